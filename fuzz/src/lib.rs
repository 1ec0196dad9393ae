//! A fuzz target for every reader of bytes that others wrote, in one registry.
//!
//! A target is a function of bytes that panics when the reader breaks a promise: it never panics itself, and what it
//! accepts obeys the reader's rules (it goes through the writer and back unchanged, shares sum to 1, …). The driver in `main.rs` runs them
//! all for a short time in every test run, blind to coverage; `scripts/fuzz TARGET SECONDS` runs a reader of foreign traces under libFuzzer
//! (`fuzz/guided`), which keeps what reaches new code.
//!
//! To add one, write its functions in `targets.rs` (or a file of their own) and a line in [`TARGETS`]. Inputs that once failed, and those
//! that libFuzzer kept, are in `fuzz/corpus/TARGET/`: they are tried first, for ever, and others are made of them ([`kept`]).

mod agent;
mod assistant;
mod bench;
mod device;
mod disk;
mod fleet;
mod front;
mod ftrace;
mod http;
mod inside;
pub mod kept;
mod lab;
mod link;
mod link_packet;
pub mod memory;
pub mod mutate;
mod net;
mod pool;
mod sqlite;
mod stacks;
mod tables;
mod targets;
mod wire_key;
mod words;

/// One reader under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, also of its directory in `fuzz/corpus/`.
    pub name: &'static str,
    /// Valid inputs, made by our own writers, from which others are made.
    pub seeds: fn() -> Vec<Vec<u8>>,
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "event", seeds: targets::event_seeds, run: targets::check_event },
    Target { name: "event_text", seeds: targets::event_text_seeds, run: targets::check_event_text },
    Target { name: "log", seeds: targets::log_seeds, run: targets::check_log },
    Target { name: "parquet", seeds: targets::parquet_seeds, run: targets::check_parquet },
    Target { name: "meta", seeds: targets::meta_seeds, run: targets::check_meta },
    Target { name: "perfetto", seeds: targets::perfetto_seeds, run: targets::check_perfetto },
    Target { name: "ftrace", seeds: ftrace::page_seeds, run: ftrace::check_pages },
    Target { name: "trace_dat", seeds: ftrace::trace_dat_seeds, run: ftrace::check_trace_dat },
    Target { name: "ftrace_text", seeds: ftrace::text_seeds, run: ftrace::check_text },
    Target { name: "blktrace", seeds: ftrace::blktrace_seeds, run: ftrace::check_blktrace },
    Target { name: "perfetto_ftrace", seeds: ftrace::bundle_seeds, run: ftrace::check_bundle },
    Target { name: "sql", seeds: targets::statement_seeds, run: targets::check_statement },
    Target { name: "marks", seeds: targets::marks_seeds, run: targets::check_marks },
    Target { name: "elf", seeds: sqlite::program_seeds, run: sqlite::check_program },
    Target { name: "database_header", seeds: sqlite::header_seeds, run: sqlite::check_header },
    Target { name: "sqlite_library", seeds: sqlite::library_seeds, run: sqlite::check_library },
    Target { name: "text_offset", seeds: sqlite::code_seeds, run: sqlite::check_code },
    Target { name: "link", seeds: link::story_seeds, run: link::check_links },
    Target { name: "predicted", seeds: tables::recording_seeds, run: tables::check_predictions },
    Target { name: "tables", seeds: tables::recording_seeds, run: tables::check_tables },
    Target { name: "link_packet", seeds: link_packet::packet_seeds, run: link_packet::check_packet },
    Target { name: "runs", seeds: bench::log_seeds, run: bench::check_log },
    Target { name: "design", seeds: bench::design_seeds, run: bench::check_design },
    Target { name: "scenario", seeds: lab::scenario_seeds, run: lab::check_scenario },
    Target { name: "workload", seeds: bench::workload_seeds, run: bench::check_workload },
    Target { name: "http_response", seeds: bench::response_seeds, run: bench::check_response },
    Target { name: "http_request", seeds: http::request_seeds, run: http::check_request },
    Target { name: "pool_frame", seeds: pool::frame_seeds, run: pool::check_frame },
    Target { name: "pool_config", seeds: pool::config_seeds, run: pool::check_config },
    Target { name: "pool_map", seeds: pool::map_seeds, run: pool::check_map },
    Target { name: "pool_hello", seeds: pool::hello_seeds, run: pool::check_hello },
    Target { name: "pool_store", seeds: disk::store_seeds, run: disk::check_store },
    Target { name: "nbd_session", seeds: disk::session_seeds, run: disk::check_session },
    Target { name: "nbd_requests", seeds: front::request_seeds, run: front::check_requests },
    Target { name: "nbd_replies", seeds: front::reply_seeds, run: front::check_replies },
    Target { name: "wire_key", seeds: wire_key::key_seeds, run: wire_key::check_key },
    Target { name: "device_facts", seeds: device::device_seeds, run: device::check_facts },
    Target { name: "proc_maps", seeds: device::map_seeds, run: device::check_maps },
    Target { name: "passwd", seeds: device::passwd_seeds, run: device::check_user },
    Target { name: "library_cache", seeds: device::library_cache_seeds, run: device::check_library_cache },
    Target { name: "stack", seeds: stacks::stack_seeds, run: stacks::check_stack },
    Target { name: "stack_code", seeds: stacks::code_seeds, run: stacks::check_code },
    Target { name: "inside_ring", seeds: inside::ring_seeds, run: inside::check_ring },
    Target { name: "inside_question", seeds: inside::question_seeds, run: inside::check_question },
    Target { name: "inside_program", seeds: inside::program_seeds, run: inside::check_program },
    Target { name: "inside_arena", seeds: inside::arena_seeds, run: inside::check_arena },
    Target { name: "adb_answer", seeds: agent::answer_seeds, run: agent::check_answer },
    Target { name: "agent_frame", seeds: agent::frame_seeds, run: agent::check_frame },
    Target { name: "detached_command", seeds: agent::detached_seeds, run: agent::check_detached },
    Target { name: "tcp_diag", seeds: net::diag_seeds, run: net::check_diag },
    Target { name: "net_message", seeds: net::message_seeds, run: net::check_message },
    Target { name: "fleet_commit", seeds: fleet::commit_seeds, run: fleet::check_commit },
    Target { name: "assistant_line", seeds: assistant::line_seeds, run: assistant::check_line },
    Target { name: "net_words", seeds: words::word_seeds, run: words::check_word },
    Target { name: "net_binary", seeds: net::binary_seeds, run: net::check_binary },
];

/// A target that must fail. If it does not, the driver finds nothing, and its silence about the others means nothing.
pub const CANARY_TARGET: Target = Target { name: "canary", seeds: targets::canary_seeds, run: targets::check_canary };

/// The target of that name.
pub fn find(name: &str) -> Option<Target> {
    TARGETS.iter().chain([&CANARY_TARGET]).find(|t| t.name == name).copied()
}
