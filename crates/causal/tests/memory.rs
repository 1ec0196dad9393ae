//! Memory is bounded by the open horizon, also where nothing ever ends: what a linker holds is measured in bytes, of a log
//! in which threads die unseen, requests never complete, and rings, commits and waits stay open.

use causal::{Below, Config, Linker, Sink, Stacked};
use model::{Event, table};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator; beside it only a counter changes.
unsafe impl GlobalAlloc for Counting {
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
static ALLOCATOR: Counting = Counting;

/// Drops all rows.
struct Nowhere;

impl Sink for Nowhere {
    fn operation(&mut self, _: table::Operation) {}
    fn shape(&mut self, _: table::Shape) {}
    fn span(&mut self, _: table::Span) {}
    fn link(&mut self, _: table::Link) {}
    fn cause(&mut self, _: table::Cause) {}
    fn slice(&mut self, _: table::Slice) {}
    fn file(&mut self, _: table::File) {}
    fn process(&mut self, _: table::Process) {}
    fn loss(&mut self, _: table::LossRow) {}
}

/// Events that leave something open, each with numbers of its own.
const OPEN: &[&str] = &[
    "@T 10/N op_begin key=7 depth=1",
    "@T 10/N sync_begin ino=N dev=2 call=10 ctx=9",
    "@T 10/N off_cpu start_ns=T wake_ns=T state=2 ctx=3",
    "@T 10/N uring req=N ino=N bytes=4096 dev=2 opcode=3",
    "@T 10/N uring phase=2 result=T",
    "@T 11/11 syscall start_ns=T ino=N dev=2 pos=0 bytes=1 result=1 txn=N handles=1 call=6 ctx=136",
    "@T 11/11 syscall start_ns=T ino=5 dev=N bytes=1 result=0 call=15 ctx=136",
    "@T N/N join start_ns=T dev=2 txn=N handles=1 ctx=4",
    "@T 50/N commit_begin dev=2 txn=N",
    "@T 50/N bio_queue bio=N sector=N ino=2 index=N bytes=4096 disk=2 dev=2 pages=1 op=1 end=2 flags=13 ctx=4",
    "@T 10/N bio_queue bio=0x1N sector=N bytes=4096 disk=9 op=1 flags=4 ctx=8 syscall_ns=T",
    "@T 10/N bio_remap bio=0x2N parent=0x1N sector=N from_sector=N disk=2 from_disk=9",
    "@T 10/N rq_insert rq=N disk=2",
    "@T 10/N rq_issue rq=N sector=N bytes=4096 disk=2 op=1 listed=1 total=1 bios=N",
    "@T 10/N rq_issue rq=0x1N sector=N bytes=4096 disk=7 op=1 listed=1 total=1 bios=0x2N",
    "@T 10/N rq_issue rq=0x2N disk=7 op=2",
    "@T 0/0 rq_done rq=0x3N sector=N bytes=4096 disk=2 op=1 last=1 flags=64",
    "@T 10/N mark start_ns=T nth=N text=\"m\"",
];

#[test]
fn what_never_ends_does_not_let_memory_grow() {
    let config = Config {
        horizon_ns: 1_000,
        stacked: vec![
            Stacked { disk: 7, below: Below::File { dev: 2, ino: 5 } },
            Stacked { disk: 9, below: Below::Disks(vec![2]) },
        ],
        ..Config::default()
    };
    let mut linker = Linker::new(config);
    let mut time_ns: u64 = 1;
    let mut in_use = Vec::new();
    let before = IN_USE.load(Relaxed);
    // So many of each that every bound is met in the first round.
    for round in 0..3_u64 {
        for n in round * 70_000..(round + 1) * 70_000 {
            let number = (1_000 + n).to_string();
            for line in OPEN {
                time_ns += 40_000;
                let line = line.replace('N', &number).replace('T', &time_ns.to_string());
                linker.push(Event::parse(&line).expect(&line), &mut Nowhere);
            }
        }
        in_use.push(IN_USE.load(Relaxed) - before);
    }
    // Tables double when they grow, so a bound that is met at different moments shows as some difference.
    assert!(in_use[2] <= in_use[1] + in_use[1] / 4, "bytes after each round: {in_use:?}, {} entries", linker.held());
    linker.finish(&mut Nowhere);
}
