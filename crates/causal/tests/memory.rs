//! Memory is bounded by the open horizon, even if nothing ever ends: measures what a linker holds in bytes, for a log in
//! which threads die unseen, ring requests never complete, and handles and waits stay open. (That bios and requests do not
//! pile up is tested in `properties`.)

use causal::{Config, Linker, Sink};
use model::{Event, table};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts bytes in use.
struct CountingAllocator;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator; apart from that, only a counter changes.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Drops all rows.
struct NullSink;

impl Sink for NullSink {
    fn operation(&mut self, _: table::Operation) {}
    fn shape(&mut self, _: table::Shape) {}
    fn span(&mut self, _: table::Span) {}
    fn link(&mut self, _: table::Link) {}
    fn cause(&mut self, _: table::Cause) {}
    fn driver_command(&mut self, _: table::DriverCommand) {}
    fn slice(&mut self, _: table::Slice) {}
    fn file(&mut self, _: table::File) {}
    fn process(&mut self, _: table::Process) {}
    fn loss(&mut self, _: table::LossRow) {}
}

/// Events that leave something open, with unique numbers: N is a number, T the time.
const OPEN_EVENTS: &[&str] = &[
    "@T 10/N op_begin key=7 depth=1",
    "@T 10/N sync_begin ino=5 dev=2 call=10 ctx=9",
    "@T 10/N uring req=N ino=5 bytes=4096 dev=2 opcode=23",
    "@T 10/N uring phase=2 result=T",
    "@T N/N join start_ns=T dev=2 txn=N handles=1 ctx=4",
    "@T 10/10 mark start_ns=T nth=N text=\"m\"",
];

/// Large enough that two rounds reach every bound, the largest being 32,768.
const ROUND_EVENTS: u64 = 18_000;

#[test]
fn unfinished_spans_do_not_grow_memory() {
    let mut linker = Linker::new(Config { horizon_ns: 1_000, ..Config::default() });
    let mut time_ns: u64 = 1;
    let before = IN_USE.load(Relaxed);
    let mut most = [0; 4];
    for (round, most) in most.iter_mut().enumerate() {
        for n in round as u64 * ROUND_EVENTS..(round as u64 + 1) * ROUND_EVENTS {
            let number = (1_000 + n).to_string();
            for line in OPEN_EVENTS {
                time_ns += 40_000;
                let line = line.replace('N', &number).replace('T', &time_ns.to_string());
                linker.push(Event::parse(&line).expect(&line), &mut NullSink);
            }
            *most = (*most).max(IN_USE.load(Relaxed) - before);
        }
    }
    // Tables double when they grow, so reaching the bound earlier or later shows as a small difference.
    let (early, late) = (most[0].max(most[1]), most[2].max(most[3]));
    assert!(late <= early + early / 4, "at most so many bytes in each round: {most:?}, {} entries", linker.held());
    linker.finish(&mut NullSink);
}
