//! One reader of foreign traces under libFuzzer: the one that FATHOM_FUZZ_TARGET names. Its source is the fuzz target's of `fathom-fuzz`; all
//! that the other targets depend on would take many minutes to compile with counters.

#![no_main]

// Its makers of seeds are used by the driver alone.
#[allow(dead_code)]
#[path = "../../src/ftrace.rs"]
mod ftrace;
#[path = "../../src/memory.rs"]
mod memory;

use memory::LimitedAllocator;
use std::sync::LazyLock;

#[global_allocator]
static ALLOCATOR: LimitedAllocator = LimitedAllocator;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("FATHOM_FUZZ_TARGET").unwrap_or_default();
    match name.as_str() {
        "ftrace" => ftrace::check_pages,
        "trace_dat" => ftrace::check_trace_dat,
        "ftrace_text" => ftrace::check_text,
        "blktrace" => ftrace::check_blktrace,
        "perfetto_ftrace" => ftrace::check_bundle,
        _ => panic!("FATHOM_FUZZ_TARGET={name} is none of ftrace, trace_dat, ftrace_text, blktrace, perfetto_ftrace"),
    }
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET)(data));
