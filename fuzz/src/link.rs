//! The linker, on any events in any order: one a line, in their text form, `kernel` at its end for a kernel thread's.

use causal::text::Rows;
use causal::{Backing, Config, StackedDisk};
use model::{Event, Layer, Relation};
use std::collections::{BTreeMap, BTreeSet};

/// Most of what the linker does, once: a write, its fsync, the commit, a merged request, a flush, a disk on a file.
const STORY_LINES: &str = r#"@50 50/50 task what=1 text="jbd2/vda-8"
@90 10/10 statement stmt=7 start_ns=80 text="INSERT INTO t VALUES (?)"
@100 10/10 op_begin key=7 depth=1
@120 10/10 syscall start_ns=110 dev=5 ino=12 pos=4096 bytes=4096 result=4096 fs_start_ns=112 fs_end_ns=118 txn=5 handles=1 call=6 ctx=137
@125 60/60 join dev=5 txn=5 handles=2 kernel
@130 10/10 sync_begin dev=5 ino=12 call=10 ctx=9
@132 10/10 bio_queue bio=16 sector=800 ino=12 index=1 syscall_ns=130 bytes=4096 disk=5 dev=5 pages=1 op=1 ctx=11
@133 10/10 bio_queue bio=17 sector=808 ino=12 index=2 syscall_ns=130 bytes=4096 disk=5 dev=5 pages=1 op=1 ctx=11
@135 10/10 rq_issue rq=90 sector=800 alloc_ns=133 bytes=8192 disk=5 op=1 listed=2 total=2 bios=16,17
@140 0/0 rq_done rq=90 sector=800 bytes=8192 disk=5 op=1 last=1
@145 50/50 commit_begin dev=5 txn=5 kernel
@146 50/50 bio_queue bio=20 sector=9000 ino=5 index=77 bytes=4096 disk=5 dev=5 pages=1 op=1 flags=4 kernel
@148 50/50 rq_issue rq=95 disk=5 op=2 kernel
@148 50/50 flush_issue rq=95 bios=20 steps=1 listed=1 total=1 kernel
@150 0/0 rq_done rq=95 disk=5 op=2 last=1
@152 50/50 rq_issue rq=91 sector=9000 bytes=4096 disk=5 op=1 listed=1 total=1 bios=20 kernel
@155 0/0 rq_done rq=91 sector=9000 bytes=4096 disk=5 op=1 last=1
@158 50/50 commit_end dev=5 txn=5 kernel
@159 10/10 off_cpu start_ns=136 wake_ns=158 state=2 ctx=3
@160 10/10 syscall start_ns=130 dev=5 ino=12 pos=-1 call=10 ctx=137
@170 10/10 op_end key=7 start_ns=100 steps=1 inside_ns=60 result=101
@180 10/10 loss start_ns=170 events=3
@205 70/70 syscall start_ns=200 dev=5 ino=21 result=4 call=17 ctx=136
@205 70/70 file dev=5 ino=21 text="/a.db-journal"
@210 70/70 syscall start_ns=207 dev=5 ino=21 bytes=512 result=512 call=6 ctx=136
@220 70/70 syscall start_ns=215 dev=5 ino=21 pos=-1 call=15 ctx=136
@230 10/10 sync_begin dev=9 ino=30 call=10 ctx=9
@232 10/10 checkpoint number=4 syscall_ns=230 dev=9 ctx=11
@235 61/61 checkpoint number=4 dev=9 phase=1 kernel
@236 10/10 checkpoint number=5 syscall_ns=230 dev=9 phase=1 ctx=11
@237 10/10 checkpoint syscall_ns=230 dev=9 phase=2 ctx=11
@240 10/10 syscall start_ns=230 dev=9 ino=30 pos=-1 call=10 ctx=137
"#;

pub fn story_seeds() -> Vec<Vec<u8>> {
    let every: Vec<String> = crate::targets::every_event().iter().map(Event::to_text).collect();
    // A line that is not understood would be missing from every input.
    STORY_LINES.lines().for_each(|line| assert!(parse_event(line).is_some(), "{line}"));
    vec![STORY_LINES.into(), (every.join("\n") + "\n").into_bytes()]
}

fn parse_event(line: &str) -> Option<Event> {
    let (line, kernel) = line.strip_suffix(" kernel").map_or((line, false), |rest| (rest, true));
    let mut event = Event::parse(line).ok()?;
    event.header.flags = kernel.into();
    Some(event)
}

/// Nothing is charged twice or not at all, nothing hangs in the air, no time is explained twice.
pub fn check_links(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let config = Config {
        with_statements: Some(BTreeSet::from([10])),
        horizon_ns: 50,
        tracer: Some(99),
        tracer_files: vec![(5, 99)],
        stacked: vec![StackedDisk { disk: 7 << 20, backing: Backing::File { dev: 254 << 20, ino: 900 } }],
        ..Config::default()
    };
    let rows = causal::text::link_checked(config, text.lines().filter_map(parse_event));
    assert_charges(&rows);
    assert_times(&rows);
}

fn assert_charges(rows: &Rows) {
    let mut shares: BTreeMap<u64, f64> = BTreeMap::new();
    rows.causes.iter().for_each(|c| *shares.entry(c.command).or_default() += c.share);
    let tried: BTreeSet<u64> =
        rows.links.iter().filter(|l| l.relation == Relation::Retries).map(|l| l.parent).collect();
    let mut ids = BTreeSet::new();
    for span in &rows.spans {
        assert!(ids.insert(span.id), "two spans are {}", span.id);
        assert!(span.end_ns.is_none_or(|end| end >= span.start_ns), "{span:?}");
        let charged = shares.remove(&span.id);
        let whole = charged.is_some_and(|sum| (sum - 1.0).abs() < 1e-9);
        // One without an end was caused by somebody all the same; of a request that is tried again only the last try counts.
        let counts = span.layer == Layer::Driver && !tried.contains(&span.id);
        assert!(if counts { whole } else { charged.is_none() }, "{span:?} is charged {charged:?}");
    }
    assert!(shares.is_empty(), "what is charged is no command: {shares:?}");
    assert!(rows.links.iter().all(|l| ids.contains(&l.parent) && ids.contains(&l.child)), "a link hangs in the air");
}

fn assert_times(rows: &Rows) {
    for operation in &rows.operations {
        let mut at = operation.start_ns;
        for slice in rows.slices.iter().filter(|s| s.operation == operation.id) {
            assert!(slice.start_ns == at && slice.end_ns > at, "{operation:?}: a gap or overlap at {slice:?}");
            at = slice.end_ns;
        }
        assert!(operation.end_ns.is_none_or(|end| end == at), "{operation:?}: its slices end at {at}");
    }
}
