//! Findings on recordings made by hand, so that every share is arithmetic.

use super::contract::Finding;
use super::*;
use crate::made::{DATABASE, DEV, DIRECTORY, Execution, INSERT, JOURNAL, insert, recording};
use model::table::{Cause, Coverage, FactRow, File, Link, LossRow, Process, Shape, Span, StackRow};
use model::{Absence, Confidence, Layer, LossSource, Origin, Reason, Relation, Wait};
use proptest::prelude::*;

const WAL: u64 = 4;

fn codes(explanation: &Explanation) -> Vec<&str> {
    explanation.findings.iter().map(|f| f.code.as_str()).collect()
}

fn the<'e>(explanation: &'e Explanation, code: &str) -> &'e Finding {
    let found = explanation.findings.iter().find(|f| f.code == code);
    found.unwrap_or_else(|| panic!("no {code} in {:?}", codes(explanation)))
}

fn fact(name: &str, value: &str) -> FactRow {
    FactRow {
        name: name.into(),
        value: Some(value.into()),
        unknown: None,
        unit: None,
        source: "test".into(),
        varies: "run".into(),
    }
}

/// With a WAL beside the database.
fn with_wal(executions: &[Execution]) -> Rows {
    let mut rows = recording(executions);
    rows.files.push(File { id: WAL, dev: 1, ino: 9, path: Some("/m/t.db-wal".into()), start_ns: 0 });
    rows
}

/// Lets every slice that `of` chooses be another's reason, layer and span.
fn turn(rows: &mut Rows, from: Reason, to: (Layer, Reason)) {
    for slice in rows.slices.iter_mut().filter(|s| s.reason == from) {
        (slice.layer, slice.reason) = to;
    }
}

#[test]
fn flushes_and_syncs_of_delete_mode_are_found() {
    let done = explain(&recording(&vec![insert(); 40]));
    assert_eq!(done.latency_ns, 40 * 340_000);
    // Two syncs of 100 and 200 us: the first is more than one needs; half of each is the flush.
    let f01 = the(&done, "F01");
    assert_eq!((f01.executions, f01.of, f01.time_ns), (40, 40, Some(40 * 100_000)));
    assert!((f01.share.unwrap() - 100.0 / 340.0).abs() < 1e-9, "{f01:?}");
    assert!(f01.interval.unwrap().iter().all(|end| (end - 100.0 / 340.0).abs() < 1e-9), "all are equal: {f01:?}");
    assert_eq!(f01.saving_ns, Some(40 * 100_000));
    assert!(f01.claim.starts_with("2 flushes and 2 syncs"), "{}", f01.claim);
    let f03 = the(&done, "F03");
    assert_eq!(f03.time_ns, Some(40 * 150_000));
    // In a row, each its own transaction: one of forty is needed all the same.
    let s01 = the(&done, "S01");
    assert_eq!((s01.time_ns, s01.saving_ns), (Some(40 * 300_000), Some(39 * 300_000)));
    assert_eq!(codes(&done), ["S01", "F01", "F03"], "the most time first, what causes the flushes before them");
    assert!(s01.statement.as_deref() == Some(INSERT) && !s01.evidence.is_empty() && s01.evidence.len() <= 5);
}

/// A program without SQL has no PRAGMAs: whatever is found of it, its remedy is one that it can try.
#[test]
fn remedies_of_programs_without_sql_name_nothing_of_sqlite() {
    for kind in ["call", "function", "mark"] {
        let mut seen: Vec<String> = Vec::new();
        for reason in [Reason::Flush, Reason::Journal, Reason::Device] {
            let mut rows = recording(&vec![insert(); 40]);
            rows.shapes[0].kind = kind.into();
            rows.files[0].path = Some("/m/log".into());
            rows.files[1].path = Some("/m/data".into());
            turn(&mut rows, Reason::Flush, (Layer::Driver, reason));
            waiting(&mut rows, 90_000, |slice| (slice.wait, slice.by_tgid) = (Some(Wait::Fcntl), Some(77)));
            for finding in explain(&rows).findings {
                let of_sqlite =
                    ["PRAGMA", "WAL", "synchronous", "SQLITE"].iter().find(|w| finding.remedy.contains(**w));
                assert_eq!(of_sqlite, None, "{kind}: {} {}", finding.code, finding.remedy);
                seen.push(finding.code);
            }
        }
        assert!(["F01", "F03", "J03", "L01"].iter().all(|code| seen.iter().any(|s| s == code)), "{kind}: {seen:?}");
    }
}

/// Before each execution's end `ns` asleep, told by the kernel as `wait`.
fn waiting(rows: &mut Rows, ns: u64, told: impl Fn(&mut Slice)) {
    for operation in &mut rows.operations {
        let end = operation.end_ns.unwrap();
        operation.end_ns = Some(end + ns);
        let mut slice = Slice::new(operation.id, Layer::Database, Reason::Other, end, end + ns);
        told(&mut slice);
        rows.slices.push(slice);
    }
}

#[test]
fn lock_wait_names_holder_and_its_statement() {
    let mut rows = recording(&vec![insert(); 10]);
    rows.processes.push(Process { tgid: 77, name: "writer".into(), parent: None, tracked: true });
    let (holder, file) = (rows.operations[0].id, DATABASE);
    waiting(&mut rows, 660_000, |slice| {
        slice.wait = Some(Wait::Fcntl);
        (slice.by_tgid, slice.by_operation, slice.wait_file) = (Some(77), Some(holder), Some(file));
    });
    let done = explain(&rows);
    let l01 = the(&done, "L01");
    assert_eq!((l01.executions, l01.time_ns, l01.saving_ns), (10, Some(6_600_000), Some(6_600_000)));
    assert!((l01.share.unwrap() - 0.66).abs() < 1e-9, "{l01:?}");
    let said = format!("fcntl lock on t.db, held by writer (PID 77), {INSERT}");
    assert!(l01.claim.ends_with(&said), "{}", l01.claim);
    assert!(l01.remedy.starts_with("shorter transactions"), "{}", l01.remedy);
    let summary = summary::summarise(&rows);
    let [waited] = &summary.operations[0].waits[..] else { panic!("{:?}", summary.operations[0].waits) };
    assert_eq!((waited.times, waited.ns, waited.by_process.as_deref()), (10, 6_600_000, Some("writer")));
    let layer = &summary.operations[0].layers[&Layer::Database];
    assert_eq!(layer.reasons["fcntl lock"], 6_600_000, "it stands in the layers, too: {layer:?}");
}

/// Only the part of a sleep that the finding concerns counts, and only of that thread of that process.
#[test]
fn stacks_of_sleeps_are_evidence_of_waits() {
    let stack = |rows: &Rows, nth: usize, (from, to): (u64, u64), functions: &'static str| {
        let operation = &rows.operations[nth];
        let begin = operation.end_ns.unwrap() - 660_000;
        ["kernel", "program"].map(|kind| StackRow {
            tgid: operation.tgid,
            tid: operation.tid,
            start_ns: begin + from,
            end_ns: begin + to,
            operation: Some(operation.id),
            span: None,
            kind: kind.into(),
            functions: if kind == "kernel" { "schedule\n__x64_sys_fcntl".into() } else { functions.into() },
            places: String::new(),
            ended: None,
        })
    };
    for (code, wait, reason) in [
        ("L01", Some(Wait::Fcntl), Reason::Other),
        ("M01", Some(Wait::DirtyThrottling), Reason::Other),
        ("G01", None, Reason::RunQueue),
    ] {
        let mut rows = recording(&vec![insert(); 10]);
        // A thread each: what is added to one would lie within the next.
        (1000..).zip(&mut rows.operations).for_each(|(tid, operation)| operation.tid = tid);
        waiting(&mut rows, 660_000, |slice| (slice.wait, slice.reason, slice.by_tgid) = (wait, reason, Some(77)));
        // Two alike, of which one began before the wait; one in another process; one after it.
        rows.stacks.extend(stack(&rows, 0, (60_000, 260_000), "lock\nmain"));
        rows.stacks.extend(stack(&rows, 1, (0, 660_000), "lock\nmain"));
        rows.stacks.extend(stack(&rows, 2, (0, 600_000), "other\nmain").map(|row| StackRow { tgid: 999, ..row }));
        rows.stacks.extend(stack(&rows, 3, (660_000, 700_000), "later\nmain"));
        for row in &mut rows.stacks[2..4] {
            row.start_ns -= 50_000;
        }
        let done = explain(&rows);
        let [wait] = &the(&done, code).slow_waits[..] else { panic!("{code}: {:?}", the(&done, code).slow_waits) };
        assert_eq!((wait.times, wait.ns, wait.longest_ns), (2, 860_000, 660_000), "{code}");
        assert_eq!((wait.call.as_deref(), &wait.program[..]), (Some("fcntl"), &["lock", "main"].map(String::from)[..]));
        let said = text::text(&done);
        let line = "where: 660 us in fcntl (the longest of 2 like it): lock <- main; kernel: __x64_sys_fcntl";
        assert!(said.contains(line), "{code}: {said}");
    }
}

#[test]
fn forced_f2fs_checkpoint_has_reason() {
    let mut rows = recording(&vec![insert(); 10]);
    let syncs: Vec<Span> = rows.spans.iter().filter(|s| s.kind == "fdatasync").cloned().collect();
    assert_eq!(syncs.len(), 20);
    // Of two syncs the second, of 200 us.
    for (at, sync) in syncs.iter().filter(|s| s.end_ns == Some(s.start_ns + 200_000)).enumerate() {
        rows.spans.push(Span {
            id: 100_000 + at as u64,
            layer: Layer::FileSystem,
            kind: "checkpoint needed".into(),
            start_ns: sync.end_ns.unwrap() - 10,
            end_ns: Some(sync.end_ns.unwrap() - 10),
            flags: "file with hard links".into(),
            ..sync.clone()
        });
    }
    let done = explain(&rows);
    let c01 = the(&done, "C01");
    assert_eq!((c01.executions, c01.time_ns), (10, Some(2_000_000)));
    assert!(c01.claim.ends_with("mostly for: file with hard links"), "{}", c01.claim);
    rows.spans.iter_mut().filter(|s| s.kind == "checkpoint needed").for_each(|s| s.tid += 1);
    assert!(!codes(&explain(&rows)).contains(&"C01"), "another thread's");
}

#[test]
fn timer_and_lone_futex_are_no_lock_wait() {
    for wait in [Wait::Timer, Wait::Futex, Wait::Poll] {
        let mut rows = recording(&vec![insert(); 10]);
        waiting(&mut rows, 660_000, |slice| slice.wait = Some(wait));
        assert!(!codes(&explain(&rows)).contains(&"L01"), "{wait}");
    }
    let mut rows = recording(&vec![insert(); 10]);
    waiting(&mut rows, 660_000, |slice| (slice.wait, slice.by_tgid) = (Some(Wait::Futex), Some(5)));
    assert!(the(&explain(&rows), "L01").claim.contains("futex, ended by (PID 5)"));
}

#[test]
fn dirty_throttling_is_found_from_twentieth_of_time_on() {
    let of = |ns: u64| {
        let mut rows = recording(&vec![insert(); 10]);
        waiting(&mut rows, ns, |slice| slice.wait = Some(Wait::DirtyThrottling));
        explain(&rows)
    };
    let m01 = of(660_000);
    let m01 = the(&m01, "M01");
    assert_eq!((m01.executions, m01.time_ns), (10, Some(6_600_000)));
    assert!(!codes(&of(17_000)).contains(&"M01"), "17 of 357 us are less than 5 %");
    assert!(codes(&of(18_000)).contains(&"M01"), "18 of 358 us are more");
}

#[test]
fn scheduling_delay_names_quota_if_dominant() {
    let of = |throttled: u64| {
        let mut rows = recording(&vec![insert(); 10]);
        let waits = |ns, wait| {
            move |slice: &mut Slice| {
                (slice.layer, slice.reason, slice.wait) = (Layer::RunQueue, Reason::RunQueue, wait);
                slice.end_ns = slice.start_ns + ns;
            }
        };
        waiting(&mut rows, throttled, waits(throttled, Some(Wait::CpuQuota)));
        waiting(&mut rows, 660_000 - throttled, waits(660_000 - throttled, None));
        let done = explain(&rows);
        let g01 = the(&done, "G01");
        assert_eq!(g01.time_ns, Some(6_600_000));
        (g01.claim.clone(), g01.remedy.clone())
    };
    let (claim, remedy) = of(330_000);
    assert!(claim.contains("for 3.30 ms of it the CPU time of its cgroup was used up"), "{claim}");
    assert!(remedy.starts_with("a larger CPU quota"), "{remedy}");
    let (claim, remedy) = of(329_000);
    assert!(claim.contains("cgroup") && remedy.starts_with("fewer busy threads"), "{claim} {remedy}");
    let (claim, _) = of(65_000);
    assert!(!claim.contains("cgroup"), "{claim}");
}

#[test]
fn one_sync_of_wal_is_no_second_flush() {
    let commit =
        Execution { outside_ns: 1000, calls: vec![("pwrite64", WAL, 5_000, 4120), ("fdatasync", WAL, 90_000, 0)] };
    let done = explain(&with_wal(&vec![commit; 9]));
    assert_eq!(codes(&done), ["F03"], "nine in a row are no loop");
}

/// A program that commits once has to flush once.
#[test]
fn flush_of_lone_commit_is_no_finding() {
    let commit =
        Execution { outside_ns: 1000, calls: vec![("pwrite64", WAL, 5_000, 4120), ("fdatasync", WAL, 90_000, 0)] };
    for (commits, expected) in [(2, &[][..]), (3, &["F03"])] {
        assert_eq!(codes(&explain(&with_wal(&vec![commit.clone(); commits]))), expected, "{commits}");
    }
}

#[test]
fn journal_that_is_created_and_deleted_is_found() {
    let calls = [
        vec![("openat", JOURNAL, 0, 0), ("open", JOURNAL, 30_000, 0)],
        insert().calls,
        vec![("fdatasync", DIRECTORY, 50_000, 0), ("unlink", JOURNAL, 40_000, 0)],
    ];
    let with = Execution { calls: calls.concat(), ..insert() };
    let done = explain(&recording(&vec![with; 20]));
    let j02 = the(&done, "J02");
    assert_eq!((j02.executions, j02.time_ns), (20, Some(20 * 120_000)));
    assert!(j02.claim.contains("its directory synced"), "{}", j02.claim);
    assert!(!codes(&explain(&recording(&vec![insert(); 20]))).contains(&"J02"), "a journal that stays is no finding");
    let commit = Execution { calls: [insert().calls, vec![("unlink", JOURNAL, 40_000, 0)]].concat(), ..insert() };
    let done = explain(&recording(&vec![commit; 20]));
    assert_eq!(the(&done, "J02").time_ns, Some(20 * 40_000), "a COMMIT deletes what its first INSERT created");
}

#[test]
fn own_writes_of_file_system_beside_journal_are_found() {
    let mut rows = recording(&vec![insert(); 20]);
    let mut id = 100_000;
    for at in 0..rows.operations.len() {
        let operation = rows.operations[at].clone();
        for (flags, bytes) in [("write sync", 6000), ("write sync meta", 4000)] {
            id += 1;
            let template = rows.spans[0].clone();
            rows.spans.push(Span {
                id,
                layer: Layer::Driver,
                kind: "command".into(),
                flags: flags.into(),
                bytes,
                disk: Some(DEV),
                file: None,
                operation: None,
                start_ns: operation.start_ns,
                ..template
            });
            rows.causes.push(Cause {
                command: id,
                origin: Origin::Operation,
                operation: Some(operation.id),
                tgid: Some(5),
                share: 1.0,
                confidence: Confidence::Exact,
                via: "page".into(),
            });
        }
        // The first sync's flush becomes waiting for the metadata.
        let slice = rows.slices.iter_mut().find(|s| s.operation == operation.id && s.reason == Reason::Flush).unwrap();
        (slice.reason, slice.span) = (Reason::Device, Some(id));
    }
    let done = explain(&rows);
    let j01 = the(&done, "J01");
    assert_eq!((j01.time_ns, j01.executions), (Some(20 * 50_000), 20));
    assert!(j01.claim.contains("512 B") && j01.claim.contains("3.91 KiB of the 9.77 KiB"), "{}", j01.claim);
    // 10,000 B on the device for 4,608 B that were written: x 2.2.
    assert!(!codes(&done).contains(&"R01"));
}

#[test]
fn checkpoint_in_statement_is_found() {
    let plain = Execution { outside_ns: 1000, calls: vec![("pwrite64", WAL, 5_000, 4120)] };
    let back = vec![("pwrite64", DATABASE, 30_000, 4096), ("fdatasync", DATABASE, 200_000, 0)];
    let stalled = Execution { calls: [plain.calls.clone(), back].concat(), ..plain.clone() };
    let mut executions = vec![plain; 100];
    executions.iter_mut().step_by(10).for_each(|execution| *execution = stalled.clone());
    let done = explain(&with_wal(&executions));
    let s02 = the(&done, "S02");
    assert_eq!((s02.executions, s02.of, s02.time_ns), (10, 100, Some(10 * 230_000)));
    assert!(s02.claim.contains("the others' median is 7.00 us"), "{}", s02.claim);
}

/// A commit that syncs nothing, and every fourth execution's checkpoint: its syncs are no commit's.
#[test]
fn syncs_of_checkpoint_are_no_flushes_of_commits() {
    let plain = Execution { outside_ns: 1000, calls: vec![("pwrite64", WAL, 5_000, 4120)] };
    let back = vec![
        ("fdatasync", WAL, 90_000, 0),
        ("pread64", WAL, 1_000, 4096),
        ("pwrite64", DATABASE, 30_000, 4096),
        ("fdatasync", DATABASE, 200_000, 0),
    ];
    let stalled = Execution { calls: [plain.calls.clone(), back].concat(), ..plain.clone() };
    let mut executions = vec![plain; 100];
    executions.iter_mut().step_by(2).for_each(|execution| *execution = stalled.clone());
    let done = explain(&with_wal(&executions));
    assert_eq!(codes(&done), ["S02"]);
    assert_eq!(the(&done, "S02").time_ns, Some(50 * 321_000), "with the WAL's own sync, since the others have none");
}

/// The commit after a checkpoint writes the WAL's header anew and syncs it: without checkpoints none would. The first header is nobody's.
#[test]
fn wal_begun_anew_is_checkpoint_s_doing() {
    let plain = Execution { outside_ns: 1000, calls: vec![("pwrite64", WAL, 5_000, 4120)] };
    let back = vec![("pwrite64", DATABASE, 30_000, 4096), ("fdatasync", DATABASE, 200_000, 0)];
    let stalled = Execution { calls: [plain.calls.clone(), back].concat(), ..plain.clone() };
    let header = vec![("pwrite64", WAL, 2_000, 32), ("fdatasync", WAL, 90_000, 0)];
    let anew = Execution { calls: [header, plain.calls.clone()].concat(), ..plain.clone() };
    let mut executions = vec![anew.clone()];
    for _ in 0..25 {
        executions.extend([plain.clone(), stalled.clone(), anew.clone(), plain.clone()]);
    }
    let done = explain(&with_wal(&executions));
    assert_eq!(the(&done, "S02").time_ns, Some(25 * 230_000 + 25 * 92_000));
}

#[test]
fn prepare_before_every_execution_is_found() {
    let mut rows =
        recording(&vec![Execution { outside_ns: 10_000, calls: vec![("pread64", DATABASE, 5_000, 16)] }; 30]);
    for at in 0..30 {
        let (operation, template) = (rows.operations[at].clone(), rows.spans[0].clone());
        rows.spans.push(Span {
            id: 50_000 + at as u64,
            layer: Layer::Database,
            kind: "prepare".into(),
            start_ns: operation.start_ns - 500,
            end_ns: Some(operation.start_ns - 100),
            operation: None,
            file: None,
            ..template
        });
    }
    assert_eq!(codes(&explain(&rows)), [""; 0], "400 ns of 25.4 us are no finding");
    for operation in &mut rows.operations {
        operation.end_ns = Some(operation.start_ns + 600);
    }
    let done = explain(&rows);
    let s03 = the(&done, "S03");
    assert_eq!((s03.executions, s03.time_ns), (30, Some(30 * 400)));
    for share in [s03.share, s03.share_of_all] {
        assert!((share.unwrap() - 0.4).abs() < 1e-9, "beside 600 ns of its own: {s03:?}");
    }
    // What a trap took after it had read the clock is none of the prepare's.
    let price = [("", "500"), (".low", "450"), (".high", "600"), (".inside", "150")];
    rows.facts.extend(price.map(|(end, ns)| fact(&format!("tracer.price.prepare{end}"), ns)));
    let s03 = explain(&rows);
    let s03 = the(&s03, "S03");
    assert_eq!(s03.time_ns, Some(30 * 250));
    assert!(s03.claim.contains("250 ns each (without the 150 ns that recording it takes)"), "{}", s03.claim);
}

#[test]
fn queue_and_run_queue_are_found_where_they_last() {
    let mut rows = recording(&vec![insert(); 20]);
    turn(&mut rows, Reason::Flush, (Layer::IoScheduler, Reason::Queue));
    let done = explain(&rows);
    assert_eq!(the(&done, "Q01").time_ns, Some(20 * 150_000));
    assert!(!codes(&done).contains(&"F03"));
    turn(&mut rows, Reason::Queue, (Layer::RunQueue, Reason::RunQueue));
    let done = explain(&rows);
    assert_eq!(the(&done, "G01").time_ns, Some(20 * 150_000));
    assert!(!codes(&done).contains(&"Q01"));
}

/// What chance decides is reported as a rule only.
#[test]
fn one_long_wait_for_cpu_is_no_rule() {
    let of = |longest: usize| {
        let mut rows = recording(&vec![insert(); 60]);
        for operation in rows.operations.iter_mut().step_by(60 / longest) {
            let end = operation.end_ns.unwrap();
            operation.end_ns = Some(end + 9_000_000 / longest as u64);
            let slice = Slice::new(operation.id, Layer::RunQueue, Reason::RunQueue, end, operation.end_ns.unwrap());
            rows.slices.push(slice);
        }
        explain(&rows)
    };
    // 9 ms of 29: a third of the time, by one wait or by many.
    assert!(!codes(&of(1)).contains(&"G01"));
    let done = of(20);
    let g01 = the(&done, "G01");
    assert_eq!((g01.executions, g01.time_ns), (20, Some(9_000_000)));
    assert!(g01.saving_interval_ns.is_some_and(|[low, high]| low <= 9_000_000 && high >= 9_000_000), "{g01:?}");
}

#[test]
fn scheduling_delay_on_busy_machine_says_so() {
    let of = |load: &str| {
        let mut rows = recording(&vec![insert(); 20]);
        turn(&mut rows, Reason::Flush, (Layer::RunQueue, Reason::RunQueue));
        rows.facts = [("load.one_minute", load), ("cpu.online", "2")].map(|(name, value)| fact(name, value)).into();
        the(&explain(&rows), "G01").claim.clone()
    };
    assert!(of("18.01").ends_with("; the load average was 18.01 on 2 CPUs as the recording began"), "{}", of("18.01"));
    assert!(!of("1.90").contains("load"), "{}", of("1.90"));
}

#[test]
fn flush_behind_that_of_other_process_names_culprit() {
    let mut rows = recording(&vec![insert(); 20]);
    rows.processes.push(Process { tgid: 77, name: "backup".into(), parent: None, tracked: false });
    let own: Vec<Span> = rows.spans.iter().filter(|s| s.kind == "flush").cloned().collect();
    for (n, flush) in own.iter().enumerate() {
        let id = 90_000 + 2 * n as u64;
        // Its bio was queued as the thread fell asleep; another's flush runs, and the device begins its own 30 us later.
        let queued = flush.start_ns.midpoint(flush.end_ns.unwrap());
        let issued = queued + 30_000;
        rows.spans.push(Span { id, layer: Layer::Block, kind: "bio".into(), start_ns: queued, ..flush.clone() });
        let link = Link {
            parent: id,
            child: flush.id,
            relation: Relation::WaitsForFlush,
            confidence: Confidence::Exact,
            weakened_by: None,
        };
        rows.links.push(link);
        let other = Span { id: id + 1, start_ns: queued - 5_000, end_ns: Some(issued), ..flush.clone() };
        rows.spans.push(other);
        rows.causes.push(Cause {
            command: id + 1,
            origin: Origin::OtherProcess,
            operation: None,
            tgid: Some(77),
            share: 1.0,
            confidence: Confidence::Exact,
            via: "flush".into(),
        });
        rows.spans.iter_mut().find(|s| s.id == flush.id).unwrap().start_ns = issued;
    }
    let done = explain(&rows);
    let f02 = the(&done, "F02");
    assert_eq!((f02.executions, f02.time_ns), (20, Some(20 * 60_000)));
    assert!(f02.claim.contains("backup (77)"), "{}", f02.claim);
    assert!(f02.evidence.iter().all(|id| *id > 90_000), "the culprit's flushes: {:?}", f02.evidence);
}

/// ext4's journal does one transaction after the other: who syncs first sleeps for the commit that another asked for.
#[test]
fn commit_of_other_process_is_waited_for() {
    let of = |tgid| {
        let mut rows = recording(&vec![insert(); 20]);
        rows.processes.push(Process { tgid: 77, name: "backup".into(), parent: None, tracked: false });
        // Of two flushes the first, of 50 us, is for that process alone.
        let flushes: Vec<Span> = rows.spans.iter().filter(|s| s.kind == "flush").step_by(2).cloned().collect();
        for flush in &flushes {
            let cause = rows.causes.iter_mut().find(|c| c.command == flush.id).unwrap();
            (cause.origin, cause.operation, cause.tgid) = (Origin::OtherProcess, None, tgid);
            let end = flush.end_ns.unwrap();
            let slice = rows.slices.iter_mut().find(|s| s.reason == Reason::Flush && s.end_ns == end).unwrap();
            slice.span = Some(flush.id);
        }
        explain(&rows)
    };
    let done = of(Some(77));
    let f02 = the(&done, "F02");
    assert_eq!((f02.executions, f02.time_ns), (20, Some(20 * 50_000)));
    assert!(f02.claim.contains("backup (77)"), "{}", f02.claim);
    assert!(!codes(&done).contains(&"F03"), "own flushes are 100 of 300 us in syncs");
    for nobody_else in [Some(5), None] {
        assert!(!codes(&of(nobody_else)).contains(&"F02"), "{nobody_else:?}");
    }
}

#[test]
fn pages_of_other_process_in_sync_name_their_writer() {
    let mut rows = recording(&vec![insert(); 20]);
    rows.processes.push(Process { tgid: 77, name: "logger".into(), parent: None, tracked: false });
    let template = rows.spans[0].clone();
    rows.spans.push(Span { id: 80_000, layer: Layer::FileSystem, kind: "write".into(), tgid: 77, ..template.clone() });
    rows.spans.push(Span { id: 80_001, layer: Layer::Block, kind: "bio".into(), ..template.clone() });
    rows.spans.push(Span { id: 80_002, layer: Layer::Driver, kind: "command".into(), disk: Some(DEV), ..template });
    for (parent, child, relation) in [(80_000, 80_001, Relation::Dirties), (80_001, 80_002, Relation::Carries)] {
        rows.links.push(Link { parent, child, relation, confidence: Confidence::Exact, weakened_by: None });
    }
    for slice in rows.slices.iter_mut().filter(|s| s.reason == Reason::Flush) {
        (slice.reason, slice.span) = (Reason::Device, Some(80_002));
    }
    let done = explain(&rows);
    let w01 = the(&done, "W01");
    assert_eq!((w01.time_ns, w01.evidence.as_slice()), (Some(20 * 150_000), &[80_002][..]));
    assert!(w01.claim.contains("logger (77)"), "{}", w01.claim);
}

/// The calls of a process that is not recorded are no spans: the command's charge alone tells whose pages it carries.
#[test]
fn pages_of_unrecorded_process_name_it_by_charge() {
    let of = |tgid: u32| {
        let mut rows = recording(&vec![insert(); 20]);
        rows.processes.push(Process { tgid: 77, name: "logger".into(), parent: None, tracked: false });
        let template = rows.spans[0].clone();
        rows.spans.push(Span { id: 80_002, layer: Layer::Driver, kind: "command".into(), disk: Some(DEV), ..template });
        rows.causes.push(Cause {
            command: 80_002,
            origin: Origin::OtherProcess,
            operation: None,
            tgid: Some(tgid),
            ..rows.causes[0].clone()
        });
        for slice in rows.slices.iter_mut().filter(|s| s.reason == Reason::Flush) {
            (slice.reason, slice.span) = (Reason::Device, Some(80_002));
        }
        explain(&rows)
    };
    let done = of(77);
    let w01 = the(&done, "W01");
    assert_eq!(w01.time_ns, Some(20 * 150_000));
    assert!(w01.claim.contains("logger (77)"), "{}", w01.claim);
    assert!(!codes(&of(5)).contains(&"W01"), "its own pages are not foreign");
}

/// blk-throttle holds a bio back before it counts as queued; a worker of the kernel sends it.
#[test]
fn read_that_worker_sent_late_waited_in_queue() {
    let of = |sent: u64, offset: u64| {
        let mut rows = recording(&vec![insert(); 20]);
        let template = rows.spans.iter().find(|s| s.layer == Layer::Syscall).unwrap().clone();
        let mut id = 80_000;
        let slices: Vec<usize> = (0..rows.slices.len()).filter(|&i| rows.slices[i].reason == Reason::Flush).collect();
        for at in slices {
            let slice = &mut rows.slices[at];
            (slice.layer, slice.reason, slice.wait, slice.span) = (Layer::FileSystem, Reason::Other, None, Some(id));
            let file = Some(crate::made::DATABASE);
            let read = Span { id, layer: Layer::FileSystem, kind: "read".into(), file, ..template.clone() };
            let (start_ns, end_ns) = (slice.start_ns, slice.end_ns);
            rows.spans.push(Span { offset: Some(4096), bytes: 4096, ..read.clone() });
            rows.spans.push(Span {
                id: id + 1,
                layer: Layer::Block,
                kind: "bio".into(),
                start_ns: start_ns + (end_ns - start_ns) * sent / 100,
                tgid: 2,
                tid: 2,
                operation: None,
                offset: Some(offset),
                bytes: 8192,
                flags: "read".into(),
                ..read
            });
            id += 2;
        }
        rows.spans.sort_by_key(|s| s.id);
        explain(&rows)
    };
    let done = of(100, 0);
    assert_eq!(the(&done, "Q01").time_ns, Some(20 * 150_000));
    assert_eq!(the(&of(50, 0), "Q01").time_ns, Some(20 * 75_000));
    assert!(!codes(&of(100, 8192)).contains(&"Q01"), "other bytes");
}

#[test]
fn fdatasync_that_waits_for_commit_is_found() {
    let mut rows = recording(&vec![insert(); 20]);
    assert!(!codes(&explain(&rows)).contains(&"J03"));
    turn(&mut rows, Reason::Flush, (Layer::FileSystem, Reason::Journal));
    let done = explain(&rows);
    let j03 = the(&done, "J03");
    assert_eq!((j03.executions, j03.time_ns), (20, Some(20 * 150_000)));
    assert!(!j03.evidence.is_empty() && j03.claim.contains("in 20 of 20"), "{j03:?}");
}

#[test]
fn slow_device_is_tail_and_more_work_is_none() {
    let commit = |sync_ns| Execution {
        outside_ns: 1_000,
        calls: vec![("pwrite64", DATABASE, 5_000, 4096), ("fdatasync", DATABASE, sync_ns, 0)],
    };
    let mut executions = vec![commit(100_000); 40];
    assert!(!codes(&explain(&recording(&executions))).contains(&"D01"), "all are equal");
    executions[7] = commit(2_100_000);
    assert!(!codes(&explain(&recording(&executions))).contains(&"D01"), "one is no rule");
    for at in [3, 12, 21, 30, 38] {
        executions[at] = commit(1_100_000);
    }
    let done = explain(&recording(&executions));
    let d01 = the(&done, "D01");
    // Half of a sync is its flush: 1 ms and five times 0.5 ms more than the median.
    assert_eq!((d01.executions, d01.of, d01.time_ns), (6, 40, Some(3_500_000)));
    assert!(d01.claim.contains("7.00 ms longer in all, 3.50 ms of it the device"), "{}", d01.claim);
    let [low, high] = d01.interval.unwrap();
    assert!(low >= LEAST_LOW && low < d01.share.unwrap() && high > d01.share.unwrap(), "{d01:?}");
    // As slow, with flushes of its own for it.
    let work = vec![("fdatasync", DATABASE, 700_000, 0); 3];
    for at in [3, 7, 12, 21, 30, 38] {
        executions[at] = Execution { calls: work.clone(), ..commit(0) };
    }
    assert!(!codes(&explain(&recording(&executions))).contains(&"D01"));
    executions.truncate(19);
    assert!(!codes(&explain(&recording(&executions))).contains(&"D01"), "too few for a tail");
}

#[test]
fn search_that_reads_whole_table_is_full_scan() {
    let scan = |pages| Execution { outside_ns: 1_000, calls: vec![("pread64", DATABASE, 2_000, 4096); pages] };
    let named = |text: &str, pages, returned| {
        let mut rows = recording(&vec![scan(pages); 20]);
        rows.shapes[0].text = text.into();
        rows.operations.iter_mut().for_each(|operation| operation.rows = returned);
        explain(&rows)
    };
    let select = "SELECT s FROM t WHERE i = ?";
    let done = named(select, 60, 1);
    let s04 = the(&done, "S04");
    // 61 x 1 us outside, 60 reads of 2 us; six of sixty are left with an index.
    assert_eq!((s04.time_ns, s04.saving_ns), (Some(20 * 181_000), Some((20.0 * 181_000.0 * 0.9_f64).round() as u64)));
    assert!(
        s04.claim.contains("20 of 20 executions read 60 pages of the database (240 KiB) for 1 rows"),
        "{}",
        s04.claim
    );
    for (text, pages, returned) in [
        (select, 60, 9),
        (select, 12, 0),
        ("SELECT count(*) FROM t", 60, 1),
        ("SELECT s FROM t ORDER BY s", 60, 1),
        ("INSERT INTO t SELECT * FROM u WHERE i = ?", 60, 0),
    ] {
        assert!(!codes(&named(text, pages, returned)).contains(&"S04"), "{text}");
    }
}

#[test]
fn missing_sqlite_is_unreliable_where_inferred() {
    let mut rows = recording(&vec![insert(); 10]);
    rows.coverage.push(Coverage::absent(Layer::Database, "git", Absence::NoSqlite, "no SQLite"));
    assert!(!codes(&explain(&rows)).contains(&"T01"));
    rows.shapes[0].kind = "transaction".into();
    assert_eq!(codes(&explain(&rows))[0], "T01");
}

#[test]
fn lost_statements_make_trace_unreliable() {
    let mut rows = recording(&vec![insert(); 10]);
    assert!(!codes(&explain(&rows)).contains(&"T01"));
    rows.losses.push(LossRow {
        id: 1,
        source: LossSource::Ring,
        cpu: None,
        start_ns: 0,
        end_ns: 1,
        events: Some(3),
        at_least: false,
        program: None,
    });
    rows.trace.complete = false;
    let done = explain(&rows);
    assert_eq!(codes(&done)[0], "T01", "before all others");
    let claim = &done.findings[0].claim;
    assert!(claim.contains("3 records were lost") && claim.contains("interrupted"), "{claim}");
}

#[test]
fn text_and_line_of_show_name_findings() {
    let done = explain(&recording(&vec![insert(); 40]));
    let text = text::text(&done);
    assert!(text.contains("F01  two or more flushes a commit: INSERT INTO t VALUES (?)"), "{text}");
    assert!(text.contains("remedy:") && text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let line = text::summary(&done);
    assert!(
        line.starts_with("Findings: S01 autocommit loop (88 %), F01") && line.ends_with("(`fathom explain`)\n"),
        "{line}"
    );
    let none = Explanation { executions: 3, ..Explanation::default() };
    assert!(text::summary(&none).is_empty() && text::text(&none).starts_with("No finding"));
}

/// That nothing costs time is reported for operations only.
#[test]
fn recording_without_operations_is_not_called_healthy() {
    let none = explain(&recording(&[]));
    assert_eq!((none.findings.len(), none.executions), (0, 0));
    let said = text::text(&none);
    assert!(said.starts_with("No operation") && said.contains("--op") && !said.contains("No finding"), "{said}");
    let mut unfinished = recording(&vec![insert(); 2]);
    unfinished.operations.iter_mut().for_each(|operation| operation.end_ns = None);
    assert_eq!(explain(&unfinished).executions, 0);
    assert_eq!(explain(&recording(&vec![insert(); 2])).executions, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_finding_exceeds_its_statement(
        calls in prop::collection::vec(
            prop::collection::vec(
                (prop::sample::select(vec!["pwrite64", "fdatasync", "unlink", "open"]), 1..5_u64, 0..500_000_u64, 0..9000_u64),
                0..6,
            ),
            0..30,
        ),
    ) {
        let executions: Vec<Execution> = calls.into_iter().map(|calls| Execution { outside_ns: 500, calls }).collect();
        let rows = with_wal(&executions);
        let done = explain(&rows);
        for finding in &done.findings {
            prop_assert!(finding.time_ns.unwrap() <= done.latency_ns, "{:?}", finding);
            prop_assert!(finding.saving_ns.is_none_or(|saving| saving <= finding.time_ns.unwrap()));
            let share = finding.share.unwrap();
            prop_assert!((LEAST_SHARE..=1.0).contains(&share));
            prop_assert!(finding.executions <= finding.of);
            let known = |id: &u64| rows.spans.iter().any(|s| s.id == *id) || rows.operations.iter().any(|o| o.span == *id);
            prop_assert!(finding.evidence.iter().all(known), "{:?}", finding);
        }
    }
}

/// A statement of another kind, so that what is asked about is no SQL.
#[test]
fn functions_are_explained_where_there_is_no_sql() {
    let mut rows = recording(&vec![insert(); 12]);
    rows.shapes = vec![Shape { id: 1, kind: "function".into(), text: "handle".into() }];
    let done = explain(&rows);
    assert_eq!(the(&done, "F01").statement.as_deref(), Some("handle"));
    assert!(!codes(&done).contains(&"S01"), "a function is no transaction");
}

#[test]
fn read_held_back_by_others_is_queue() {
    let mut rows = held_back(10, |_| true, 1_000_000);
    let done = explain(&rows);
    assert_eq!(the(&done, "Q01").time_ns, Some(10 * 1_000_000), "{:?}", codes(&done));
    // What the program's own process sent was not held back.
    let tgid = rows.operations[0].tgid;
    rows.spans.iter_mut().filter(|s| s.tgid == 5000).for_each(|s| s.tgid = tgid);
    assert!(!codes(&explain(&rows)).contains(&"Q01"));
}

/// Read-ahead grows, so that a large table is read in a few waits: too few for an interval over stretches, and yet most of the time.
#[test]
fn few_waits_that_are_most_of_time_are_rule() {
    let done = explain(&held_back(600, |nth| [1, 29, 150, 350].contains(&nth), 300_000_000));
    let q01 = the(&done, "Q01");
    assert!(q01.interval.is_some_and(|[low, _]| low < 0.02) && q01.share.is_some_and(|share| share > 0.8), "{q01:?}");
    // Two may be chance; and four that are the smaller part of the time.
    assert!(!codes(&explain(&held_back(600, |nth| [1, 150].contains(&nth), 300_000_000))).contains(&"Q01"));
    assert!(!codes(&explain(&held_back(600, |nth| [1, 2, 3, 150].contains(&nth), 30_000_000))).contains(&"Q01"));
}

/// INSERTs, some of which read a page, asleep so long; a worker of the kernel sends the last part of the read-ahead first, then that with
/// the page.
fn held_back(count: usize, waits: impl Fn(usize) -> bool, asleep_ns: u64) -> Rows {
    let mut rows = recording(&vec![insert(); count]);
    let ends: Vec<(u64, u64, u32)> = rows.operations.iter().map(|o| (o.id, o.end_ns.unwrap(), o.tid)).collect();
    for (nth, (operation, end, tid)) in ends.into_iter().enumerate().filter(|(nth, _)| waits(*nth)) {
        let nth = nth as u64;
        let first = rows.spans[0].clone();
        let read = |id: u64, layer: Layer, kind: &'static str, at: (u64, u64), bytes: std::ops::Range<u64>| Span {
            id,
            layer,
            kind: kind.into(),
            start_ns: at.0,
            end_ns: Some(at.1),
            operation: None,
            file: Some(DATABASE),
            offset: Some((nth << 20) + bytes.start),
            bytes: bytes.end - bytes.start,
            flags: "read".into(),
            ..first.clone()
        };
        let [call, last, page] = [0, 1, 2].map(|at| 900_000 + 10 * nth + at);
        let own = read(call, Layer::FileSystem, "read", (end, end + asleep_ns + 100_000), 4096..8192);
        rows.spans.push(Span { operation: Some(operation), tid, ..own });
        let worker = |span: Span| Span { tgid: 5000, tid: 5000, ..span };
        let since = end + asleep_ns;
        rows.spans.push(worker(read(last, Layer::Block, "bio", (since, since + 1000), 65_536..131_072)));
        rows.spans.push(worker(read(page, Layer::Block, "bio", (since + 22_000, since + 23_000), 0..65_536)));
        rows.operations
            .iter_mut()
            .filter(|o| o.id == operation)
            .for_each(|o| o.end_ns = Some(end + asleep_ns + 100_000));
        let mut slice = Slice::new(operation, Layer::FileSystem, Reason::Other, end, since);
        slice.span = Some(call);
        rows.slices.push(slice);
    }
    rows
}
