//! Invariants for arbitrary events.

mod common;

use causal::text::{Rows, link, link_checked};
use causal::{Backing, Config, Linker, StackedDisk};
use common::Inserts;
use model::event::{Header, OpBegin, OpEnd};
use model::{Event, Layer, Origin, Record, Relation};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Checks the rules that every result obeys.
fn check_invariants(rows: &Rows) {
    let mut shares: BTreeMap<u64, f64> = BTreeMap::new();
    let mut actors = BTreeSet::new();
    for cause in &rows.causes {
        assert!(cause.share > 0.0 && cause.share <= 1.0 + 1e-9, "{cause:?}");
        assert_eq!(cause.operation.is_some(), cause.origin == Origin::Operation, "{cause:?}");
        *shares.entry(cause.command).or_default() += cause.share;
        let actor = (cause.command, cause.origin, cause.operation, cause.tgid);
        assert!(actors.insert(actor), "an actor twice: {cause:?}");
    }
    let mut ids = BTreeSet::new();
    for span in &rows.spans {
        assert!(ids.insert(span.id), "two spans are {}", span.id);
        assert!(span.end_ns.is_none_or(|e| e >= span.start_ns), "{span:?}");
        if span.layer == Layer::Driver {
            let sum = shares.get(&span.id).copied();
            // An attempt that the driver requeued is not a command; one without an end is still charged.
            if rows.links.iter().any(|l| l.relation == Relation::Retries && l.parent == span.id) {
                assert_eq!((sum, span.end_ns), (None, None), "{span:?}");
            } else {
                assert!(sum.is_some_and(|s| (s - 1.0).abs() < 1e-9), "{span:?}: {sum:?}");
            }
        }
    }
    let drivers: BTreeSet<u64> = rows.spans.iter().filter(|s| s.layer == Layer::Driver).map(|s| s.id).collect();
    assert!(shares.keys().all(|c| drivers.contains(c)), "a cause of no command");
    for l in &rows.links {
        assert!(ids.contains(&l.parent) && ids.contains(&l.child), "{l:?} names a span that has no row");
    }
    let operations: BTreeSet<u64> = rows.operations.iter().map(|o| o.id).collect();
    assert!(rows.causes.iter().all(|c| c.operation.is_none_or(|o| operations.contains(&o))));
    assert!(rows.spans.iter().all(|s| s.operation.is_none_or(|o| operations.contains(&o))));
    for o in &rows.operations {
        let slices: Vec<_> = rows.slices.iter().filter(|s| s.operation == o.id).collect();
        let mut at = o.start_ns;
        for s in &slices {
            assert!(s.start_ns == at && s.end_ns > at, "{o:?}: a gap or overlap at {s:?}");
            at = s.end_ns;
        }
        if let Some(end) = o.end_ns {
            assert_eq!(at, end, "{o:?}: the slices end elsewhere");
        }
        for pair in slices.windows(2) {
            let whole =
                |s: &model::table::Slice| model::table::Slice { start_ns: 0, end_ns: 0, confidence: None, ..s.clone() };
            assert_ne!(whole(pair[0]), whole(pair[1]), "{o:?}: two slices that are one");
        }
    }
    assert!(rows.slices.iter().all(|s| operations.contains(&s.operation)));
    let mut files = BTreeSet::new();
    assert!(rows.files.iter().all(|f| files.insert(f.id)), "two files are one: {:?}", rows.files);
    let lost = |s: &&model::table::Span| s.file.is_some_and(|f| !files.contains(&f));
    assert_eq!(rows.spans.iter().find(lost), None, "its file has no row");
}

/// Generates calls that open, remove or write a file, each by a thread of its own, with the record of the name if there is one. Few inodes
/// and names, and calls that overlap in any way.
fn calls_on_files() -> impl Strategy<Value = Vec<Event>> {
    let call = (0u8..6, 1u64..3, 0u8..3, 0u64..300, 1u64..100);
    prop::collection::vec(call, 0..40).prop_map(|mut calls| {
        calls.sort_by_key(|(.., start_ns, length)| start_ns + length);
        calls.into_iter().zip(1..).flat_map(call_on_file).collect()
    })
}

fn call_on_file(((what, ino, name, start_ns, length), tid): ((u8, u64, u8, u64, u64), u32)) -> Vec<Event> {
    let end_ns = start_ns + length;
    let (call, what) = match what {
        0 | 1 => ("17", Some("0")),
        2 => ("17", Some("5")),
        3 => ("15", Some("2")),
        4 => ("15", Some("6")),
        _ => ("7", None),
    };
    let at = format!("@{end_ns} 7/{tid}");
    let named = what.map(|what| format!("{at} file dev=1 ino={ino} what={what} text=/d/{name}"));
    let call = format!("{at} syscall start_ns={start_ns} dev=1 ino={ino} call={call} ctx=138");
    named.into_iter().chain([call]).map(|line| Event::parse(&line).expect("a record")).collect()
}

/// Generates any event, with small numbers so that they collide.
fn any_event() -> impl Strategy<Value = Event> {
    let kinds = Record::KINDS;
    let body = prop::collection::vec(prop_oneof![4 => 0u8..6, 1 => any::<u8>()], 128);
    (0..kinds.len(), body, 0u64..3000, 0u16..3, prop_oneof![9 => 1u32..6, 1 => any::<u32>()], 0u32..1000).prop_map(
        move |(kind, body, time_ns, cpu, tid, seq)| {
            let kind = &kinds[kind];
            // Most bytes of an integer are zero, so that addresses, threads and times coincide.
            let mut bytes = Vec::new();
            for field in kind.fields {
                let width = field.size / field.count;
                for i in 0..field.size {
                    let low = i % width == 0 || (i % width == 1 && body[127 - i % 8] == 0);
                    bytes.push(if low && field.name != "len" { body[(bytes.len() + i) % 128] } else { 0 });
                }
            }
            let record = Record::decode(kind.kind, &bytes).expect("all its fields are there");
            let header = Header { time_ns, seq, cpu, kind: kind.kind, flags: u8::from(tid == 4), tgid: tid / 2, tid };
            Event { header, record }
        },
    )
}

fn inserts(threads: u32, n: usize) -> Vec<Event> {
    let mut events = Vec::new();
    let mut made = Inserts::new(threads);
    (0..n).for_each(|_| made.next(&mut events));
    events
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_events_keep_invariants(
        mut events in prop::collection::vec(any_event(), 0..300),
        horizon_ns in prop_oneof![Just(0u64), Just(50), Just(100_000)],
    ) {
        // Some of the files in the random events belong to SQLite.
        for (ino, name) in ["a.db", "a.db-journal", "a.db-wal", "b-journal"].into_iter().enumerate() {
            for dev in 0..3 {
                events.push(Event::parse(&format!("@0 7 file dev={dev} ino={} text={name}", ino + 1)).expect("a file"));
            }
        }
        let config = Config {
            horizon_ns,
            tracer: Some(2),
            tracer_files: vec![(1, 3)],
            with_statements: Some(BTreeSet::from([2])),
            functions: vec!["commit".into(), "other".into()],
            group_commits: BTreeSet::from([0]),
            stacked: vec![
                StackedDisk { disk: 1, backing: Backing::File { dev: 2, ino: 2 } },
                StackedDisk { disk: 2, backing: Backing::File { dev: 1, ino: 1 } },
            ],
            ..Config::default()
        };
        check_invariants(&link_checked(config, events));
    }

    #[test]
    fn calls_on_files_keep_invariants(
        events in calls_on_files(),
        horizon_ns in prop_oneof![Just(0u64), Just(50), Just(100_000)],
    ) {
        check_invariants(&link_checked(Config { horizon_ns, ..Config::default() }, events));
    }

    #[test]
    fn lost_duplicate_and_late_records_keep_the_invariants(
        threads in 1u32..4,
        fate in prop::collection::vec(0u8..20, 300),
        horizon_ns in prop_oneof![Just(0u64), Just(50_000), Just(1_000_000)],
    ) {
        let mut events = Vec::new();
        for (event, fate) in inserts(threads, 8).into_iter().zip(fate.iter().cycle()) {
            match fate {
                0..3 => {}
                3 => events.extend([event.clone(), event]),
                4 => events.insert(events.len() / 2, event),
                _ => events.push(event),
            }
        }
        check_invariants(&link_checked(Config { horizon_ns, ..Config::default() }, events));
    }

    #[test]
    fn arrival_order_within_horizon_does_not_matter(
        threads in 1u32..4,
        delays in prop::collection::vec(0u64..40_000, 200),
    ) {
        let events = inserts(threads, 5);
        let config = Config { horizon_ns: 1_000_000, ..Config::default() };
        let expected = link_checked(config.clone(), events.clone());
        check_invariants(&expected);
        let mut late: Vec<(u64, Event)> =
            events.into_iter().zip(delays.iter().cycle()).map(|(e, d)| (e.header.time_ns + d, e)).collect();
        late.sort_by_key(|(arrival, _)| *arrival);
        let got = link(config, late.into_iter().map(|(_, e)| e));
        prop_assert_eq!(got.to_text(), expected.to_text());
    }
}

fn events_of(lines: &str) -> Vec<Event> {
    let event = |line: &str| {
        let (line, kernel) = line.strip_suffix(" kernel").map_or((line, false), |rest| (rest, true));
        let mut event = Event::parse(line).expect(line);
        event.header.flags = kernel.into();
        event
    };
    lines.lines().map(event).collect()
}

/// A transaction with a process and a kernel thread, which then writes the pages in `carried`, and a command of its commit.
fn commit_after(carried: &str) -> String {
    format!(
        "@50 10/10 join dev=5 txn=5 handles=1\n\
         @60 60/60 join dev=5 txn=5 handles=2 kernel\n\
         {carried}\
         @80 50/50 commit_begin dev=5 txn=5 kernel\n\
         @82 50/50 bio_queue bio=20 ino=5 index=77 bytes=4096 disk=5 dev=5 pages=1 op=1 flags=4 kernel\n\
         @84 50/50 rq_issue rq=91 bytes=4096 disk=5 op=1 listed=1 total=1 bios=20 kernel\n\
         @90 0/0 rq_done rq=91 bytes=4096 disk=5 op=1 last=1\n\
         @95 50/50 commit_end dev=5 txn=5 kernel"
    )
}

#[test]
fn impossible_pages_leave_a_transactions_members() {
    let queued =
        |index: u64| format!("@70 60/60 bio_queue bio=16 ino=12 index={index} bytes=4096 disk=5 dev=5 pages=1 op=1\n");
    let listed = "@71 60/60 bio_pages bio=16 ino=12 index=9 dev=5 pages=0\n";
    for carried in [queued(u64::MAX), queued(u64::MAX) + listed] {
        let rows = link_checked(Config::default(), events_of(&commit_after(&carried)));
        check_invariants(&rows);
        let causes: Vec<_> = rows.causes.iter().map(|c| (c.tgid, c.share)).collect();
        assert_eq!(causes, [(Some(10), 1.0)], "{carried}");
    }
}

#[test]
fn an_open_commit_at_the_end_of_time_is_settled_once() {
    let last = u64::MAX;
    let log = commit_after("").replace("@90", &format!("@{last}")).replace("@95", &format!("@{last}"));
    let whole = events_of(&log);
    for events in [whole.clone(), whole[..whole.len() - 1].to_vec()] {
        check_invariants(&link_checked(Config::default(), events));
    }
}

#[test]
fn every_command_is_charged_to_inserts() {
    let rows = link(Config::default(), inserts(3, 100));
    check_invariants(&rows);
    assert_eq!(rows.operations.len(), 100);
    let commands = rows.spans.iter().filter(|s| s.layer == Layer::Driver).count();
    assert_eq!(commands, 600);
    assert!(rows.causes.iter().all(|c| c.origin == Origin::Operation), "something was not attributed");
    let total: f64 = rows.causes.iter().map(|c| c.share).sum();
    assert!((total - 600.0).abs() < 1e-6);
    // Every INSERT is charged for its own data, journal block, commit record and flushes, except for the pages that later
    // INSERTs of the stream share.
    let first: f64 = rows.causes.iter().filter(|c| c.operation == Some(1)).map(|c| c.share).sum();
    assert!((first - 6.0).abs() < 1e-9, "{first}");
}

#[test]
fn open_select_does_not_change_charges_of_inserts() {
    let alone = link(Config::default(), inserts(1, 50));
    let mut events = inserts(1, 50);
    let (first, last) = (events[0].header, events[events.len() - 1].header);
    let at = |time_ns| Header { time_ns, tgid: 100, tid: 100, ..first };
    let begin = OpBegin { key: 1, kind: 0, depth: 1 };
    let start_ns = first.time_ns - 500;
    let end_ns = last.time_ns + 500;
    let end = OpEnd { key: 1, start_ns, rows: 50, steps: 51, inside_ns: 700, result: 101, kind: 0 };
    events.insert(0, Event { header: at(start_ns), record: begin.into() });
    events.push(Event { header: at(end_ns), record: end.into() });
    let rows = link(Config::default(), events);
    check_invariants(&rows);
    let charged = |rows: &Rows, least: u64| {
        let mut sums = vec![0.0; 60];
        rows.causes.iter().for_each(|c| sums[(c.operation.expect("an INSERT") - least) as usize] += c.share);
        sums
    };
    let select = rows.operations.iter().find(|o| o.rows == 50).expect("the SELECT");
    assert_eq!(select.id, 1);
    assert_eq!(charged(&rows, 2), charged(&alone, 1));
    assert!(rows.operations.iter().all(|o| o.parent.is_none()));
    let own: u64 =
        rows.slices.iter().filter(|s| s.operation == 1 && s.layer != Layer::App).map(|s| s.end_ns - s.start_ns).sum();
    assert_eq!(own, 700);
}

/// Counts rows and keeps none.
#[derive(Default)]
struct CountingSink(u64);

impl causal::Sink for CountingSink {
    fn operation(&mut self, _: model::table::Operation) {
        self.0 += 1;
    }
    fn shape(&mut self, _: model::table::Shape) {}
    fn span(&mut self, _: model::table::Span) {}
    fn link(&mut self, _: model::table::Link) {}
    fn cause(&mut self, _: model::table::Cause) {}
    fn driver_command(&mut self, _: model::table::DriverCommand) {}
    fn slice(&mut self, _: model::table::Slice) {}
    fn file(&mut self, _: model::table::File) {}
    fn process(&mut self, _: model::table::Process) {}
    fn loss(&mut self, _: model::table::LossRow) {}
}

#[test]
fn memory_is_bounded_by_the_horizon() {
    let mut linker = Linker::new(Config { horizon_ns: 1_000_000, ..Config::default() });
    let (mut made, mut sink, mut events) = (Inserts::new(4), CountingSink::default(), Vec::new());
    let mut most = Vec::new();
    let mut pushed = 0;
    for _ in 0..3 {
        let mut held = 0;
        for n in 0..20_000 {
            made.next(&mut events);
            pushed += events.len();
            events.drain(..).for_each(|e| linker.push(e, &mut sink));
            if n % 50 == 0 {
                held = held.max(linker.held());
            }
        }
        most.push(held);
    }
    assert!(pushed > 2_000_000, "{pushed}");
    // The bounded memories (transactions for checkpoints, history for late marks) fill up and then stay constant.
    assert!(most[2] < 120_000 && most[2] < most[1] + most[1] / 20, "{most:?}");
    linker.finish(&mut sink);
    assert_eq!(sink.0, 60_000);
}

/// Kinds of records in the stream of INSERTs.
fn kinds_of_inserts() -> BTreeSet<u8> {
    inserts(1, 2).iter().map(|e| e.header.kind).collect()
}

fn kind_name(kind: u8) -> &'static str {
    Record::KINDS.iter().find(|k| k.kind == kind).map_or("?", |k| k.name)
}

#[test]
fn lost_records_are_not_awaited_forever() {
    let whole = inserts(1, 40);
    // The last INSERT's time, by layer and reason; and its charges, by the commands' times, since their numbers differ.
    let last = |events: Vec<Event>| {
        let rows = link(Config::default(), events);
        let operation = rows.operations.last().unwrap().id;
        let slices = rows.slices.iter().filter(|s| s.operation == operation);
        let slices: Vec<_> = slices.map(|s| (s.start_ns, s.end_ns, s.layer, s.reason)).collect();
        let started: BTreeMap<u64, u64> = rows.spans.iter().map(|s| (s.id, s.start_ns)).collect();
        let causes = rows.causes.iter().filter(|c| c.operation == Some(operation));
        let mut causes: Vec<_> =
            causes.map(|c| (started[&c.command], c.share.to_string(), c.confidence, c.via.clone())).collect();
        causes.sort();
        (slices, causes)
    };
    let seen = last(whole.clone());
    for kind in kinds_of_inserts() {
        let mut left = whole.len() / 2;
        let mut events = whole.clone();
        events.retain(|e| {
            left = left.saturating_sub(1);
            left == 0 || e.header.kind != kind
        });
        assert_eq!(last(events), seen, "half of the INSERTs lack {}", kind_name(kind));
    }
}

#[test]
fn a_missing_record_does_not_multiply_rows() {
    let rows = |n, kind| {
        let events = inserts(2, n).into_iter().filter(|e| e.header.kind != kind);
        let rows = link(Config::default(), events);
        rows.spans.len() + rows.links.len() + rows.causes.len() + rows.slices.len()
    };
    for kind in kinds_of_inserts() {
        let (some, twice) = (rows(300, kind), rows(600, kind));
        assert!(twice <= some * 2 + some / 10, "without {}: {some} rows, {twice} of twice as much", kind_name(kind));
    }
}

#[test]
fn lost_ends_do_not_grow_memory() {
    let mut linker = Linker::new(Config { horizon_ns: 1_000, ..Config::default() });
    let mut sink = CountingSink::default();
    let mut most = 0;
    for n in 0..400_000u64 {
        let line = match n % 4 {
            0 => format!("@{n} 7 bio_queue bio={n} ino=5 index={n} bytes=4096 disk=1 dev=2 pages=1 op=1"),
            1 => format!("@{n} 7 rq_issue rq={n} bytes=4096 disk=1 op=1 listed=1 total=1 bios={}", n - 1),
            2 => format!("@{n} 9 sync_begin ino=5 dev=2 call=10 ctx=8"),
            _ => format!("@{n} 9 syscall start_ns={n} ino=5 dev=2 pos={} bytes=1 result=1 call=6 ctx=136", n * 8192),
        };
        linker.push(Event::parse(&line).expect(&line), &mut sink);
        if n % 1000 == 0 {
            most = most.max(linker.held());
        }
    }
    assert!(most < 400_000, "{most}");
}
