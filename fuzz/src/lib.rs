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
    Target { name: "event", seeds: targets::events, run: targets::event },
    Target { name: "event_text", seeds: targets::event_texts, run: targets::event_text },
    Target { name: "log", seeds: targets::logs, run: targets::log },
    Target { name: "parquet", seeds: targets::parquets, run: targets::parquet },
    Target { name: "meta", seeds: targets::metas, run: targets::meta },
    Target { name: "perfetto", seeds: targets::traces, run: targets::perfetto },
    Target { name: "ftrace", seeds: ftrace::pages, run: ftrace::ftrace },
    Target { name: "trace_dat", seeds: ftrace::files, run: ftrace::trace_dat },
    Target { name: "ftrace_text", seeds: ftrace::texts, run: ftrace::text },
    Target { name: "blktrace", seeds: ftrace::blktraces, run: ftrace::blktrace },
    Target { name: "perfetto_ftrace", seeds: ftrace::bundles, run: ftrace::bundle },
    Target { name: "sql", seeds: targets::statements, run: targets::sql },
    Target { name: "marks", seeds: targets::memories, run: targets::marks },
    Target { name: "elf", seeds: sqlite::programs, run: sqlite::elf },
    Target { name: "database_header", seeds: sqlite::headers, run: sqlite::header },
    Target { name: "sqlite_library", seeds: sqlite::libraries, run: sqlite::library },
    Target { name: "text_offset", seeds: sqlite::codes, run: sqlite::code },
    Target { name: "link", seeds: link::stories, run: link::link },
    Target { name: "predicted", seeds: tables::tables, run: tables::predicted },
    Target { name: "tables", seeds: tables::tables, run: tables::table },
    Target { name: "link_packet", seeds: link_packet::packets, run: link_packet::packet },
    Target { name: "runs", seeds: bench::logs, run: bench::log },
    Target { name: "design", seeds: bench::designs, run: bench::design },
    Target { name: "scenario", seeds: lab::scenarios, run: lab::scenario },
    Target { name: "workload", seeds: bench::workloads, run: bench::workload },
    Target { name: "http_response", seeds: bench::responses, run: bench::response },
    Target { name: "http_request", seeds: http::requests, run: http::request },
    Target { name: "pool_frame", seeds: pool::frames, run: pool::frame },
    Target { name: "pool_config", seeds: pool::configs, run: pool::config },
    Target { name: "pool_map", seeds: pool::maps, run: pool::map },
    Target { name: "pool_hello", seeds: pool::hellos, run: pool::hello },
    Target { name: "pool_store", seeds: disk::stores, run: disk::store },
    Target { name: "nbd_session", seeds: disk::sessions, run: disk::session },
    Target { name: "nbd_requests", seeds: front::requests, run: front::request_bytes },
    Target { name: "nbd_replies", seeds: front::replies, run: front::reply_bytes },
    Target { name: "wire_key", seeds: wire_key::keys, run: wire_key::key },
    Target { name: "device_facts", seeds: device::devices, run: device::facts },
    Target { name: "proc_maps", seeds: device::maps, run: device::mapped },
    Target { name: "passwd", seeds: device::passwords, run: device::user },
    Target { name: "library_cache", seeds: device::library_caches, run: device::library_cache },
    Target { name: "stack", seeds: stacks::stacks, run: stacks::stack },
    Target { name: "stack_code", seeds: stacks::files, run: stacks::file },
    Target { name: "inside_ring", seeds: inside::rings, run: inside::ring },
    Target { name: "inside_question", seeds: inside::questions, run: inside::question },
    Target { name: "inside_program", seeds: inside::programs, run: inside::program },
    Target { name: "inside_arena", seeds: inside::arenas, run: inside::arena },
    Target { name: "adb_answer", seeds: agent::answers, run: agent::answer },
    Target { name: "agent_frame", seeds: agent::frames, run: agent::frame },
    Target { name: "detached_command", seeds: agent::left, run: agent::detached },
    Target { name: "net_message", seeds: net::messages, run: net::message },
    Target { name: "fleet_commit", seeds: fleet::commits, run: fleet::commit },
    Target { name: "assistant_line", seeds: assistant::lines, run: assistant::line },
    Target { name: "net_words", seeds: words::words, run: words::word },
    Target { name: "net_binary", seeds: net::binaries, run: net::binary },
];

/// A target that must fail. If it does not, the driver finds nothing, and its silence about the others means nothing.
pub const CANARY: Target = Target { name: "canary", seeds: targets::canaries, run: targets::canary };

/// The target of that name.
pub fn find(name: &str) -> Option<Target> {
    TARGETS.iter().chain([&CANARY]).find(|t| t.name == name).copied()
}
