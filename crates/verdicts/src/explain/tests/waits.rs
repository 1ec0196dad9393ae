//! Waits: for locks, CPUs and disk queues, and for other processes' writes and flushes.

use super::super::contract::Whose;
use super::super::*;
use super::{codes, fact, find_finding, replace_reason};
use analysis::handmade::{DATABASE_FILE, DISK_DEV, INSERT_STATEMENT, insert, recording};
use model::table::{Cause, Link, Process, Span, StackRow};
use model::{Confidence, Layer, Origin, Reason, Relation, Wait};

/// Extends each execution by a sleep of `ns` at its end, whose reason `told` sets.
fn extend_by_sleep(rows: &mut Rows, ns: u64, told: impl Fn(&mut Slice)) {
    for operation in rows.operations.edit().iter_mut() {
        let end = operation.end_ns.unwrap();
        operation.end_ns = Some(end + ns);
        let mut slice = Slice::new(operation.id, Layer::Database, Reason::Other, end, end + ns);
        told(&mut slice);
        rows.slices.push(slice);
    }
}

#[test]
fn a_lock_wait_names_the_holder_and_its_statement() {
    let mut rows = recording(&vec![insert(); 10]);
    rows.processes.push(Process { tgid: 77, name: "writer".into(), parent: None, tracked: true });
    let (holder, file) = (rows.operations.id(0), DATABASE_FILE);
    extend_by_sleep(&mut rows, 660_000, |slice| {
        slice.wait = Some(Wait::Fcntl);
        (slice.by_tgid, slice.by_operation, slice.wait_file) = (Some(77), Some(holder), Some(file));
    });
    let done = explain(&rows);
    let l01 = find_finding(&done, "L01");
    assert_eq!((l01.executions, l01.time_ns, l01.saving_ns), (10, Some(6_600_000), Some(6_600_000)));
    assert!((l01.share.unwrap() - 0.66).abs() < 1e-9, "{l01:?}");
    let said = format!("fcntl lock on t.db, held by writer (PID 77), {INSERT_STATEMENT}");
    assert!(l01.claim.ends_with(&said), "{}", l01.claim);
    assert!(l01.remedy.starts_with("shorter transactions"), "{}", l01.remedy);
    let summary = analysis::summary::summarise(&rows);
    let [waited] = &summary.operations[0].waits[..] else { panic!("{:?}", summary.operations[0].waits) };
    assert_eq!((waited.times, waited.ns, waited.by_process.as_deref()), (10, 6_600_000, Some("writer")));
    let layer = &summary.operations[0].layers[&Layer::Database];
    assert_eq!(layer.reasons["fcntl lock"], 6_600_000, "it stands in the layers, too: {layer:?}");
}

/// Only the part of a sleep that the finding concerns counts, and only for that thread of that process.
#[test]
fn stacks_of_sleeps_are_evidence_of_waits() {
    let stack = |rows: &Rows, nth: usize, (from, to): (u64, u64), functions: &'static str| {
        let operation = &rows.operations.at(nth);
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
        // One thread each: time added to one would otherwise overlap the next.
        (1000..).zip(rows.operations.edit().iter_mut()).for_each(|(tid, operation)| operation.tid = tid);
        extend_by_sleep(&mut rows, 660_000, |slice| {
            (slice.wait, slice.reason, slice.by_tgid) = (wait, reason, Some(77))
        });
        // Two equal ones, of which one began before the wait; one in another process; one after the wait.
        rows.stacks.extend(stack(&rows, 0, (60_000, 260_000), "lock\nmain"));
        rows.stacks.extend(stack(&rows, 1, (0, 660_000), "lock\nmain"));
        rows.stacks.extend(stack(&rows, 2, (0, 600_000), "other\nmain").map(|row| StackRow { tgid: 999, ..row }));
        rows.stacks.extend(stack(&rows, 3, (660_000, 700_000), "later\nmain"));
        for row in &mut rows.stacks.edit()[2..4] {
            row.start_ns -= 50_000;
        }
        let done = explain(&rows);
        let [wait] = &find_finding(&done, code).slow_waits[..] else {
            panic!("{code}: {:?}", find_finding(&done, code).slow_waits)
        };
        assert_eq!((wait.times, wait.ns, wait.longest_ns), (2, 860_000, 660_000), "{code}");
        assert_eq!((wait.call.as_deref(), &wait.program[..]), (Some("fcntl"), &["lock", "main"].map(String::from)[..]));
        let said = text::text(&done);
        let line = "where: 660 us in fcntl (the longest of 2 like it): lock <- main; kernel: __x64_sys_fcntl";
        assert!(said.contains(line), "{code}: {said}");
    }
}

#[test]
fn a_timer_and_a_lone_futex_are_no_lock_wait() {
    for wait in [Wait::Timer, Wait::Futex, Wait::Poll] {
        let mut rows = recording(&vec![insert(); 10]);
        extend_by_sleep(&mut rows, 660_000, |slice| slice.wait = Some(wait));
        assert!(!codes(&explain(&rows)).contains(&"L01"), "{wait}");
    }
    let mut rows = recording(&vec![insert(); 10]);
    extend_by_sleep(&mut rows, 660_000, |slice| (slice.wait, slice.by_tgid) = (Some(Wait::Futex), Some(5)));
    assert!(find_finding(&explain(&rows), "L01").claim.contains("futex, ended by (PID 5)"));
}

/// "database is locked": no other holder needs to be known.
#[test]
fn sleeps_of_a_statement_that_ended_busy_are_lock_waits() {
    for (result, is_lock) in [(5, true), (5 | 1 << 8, true), (101, false), (1, false)] {
        let mut rows = recording(&vec![insert(); 10]);
        rows.operations.edit().iter_mut().for_each(|o| o.result = Some(result));
        extend_by_sleep(&mut rows, 660_000, |slice| slice.wait = Some(Wait::Timer));
        let done = explain(&rows);
        assert_eq!(codes(&done).contains(&"L01"), is_lock, "{result}");
        assert!(
            !is_lock || find_finding(&done, "L01").claim.ends_with("until the busy timeout (SQLITE_BUSY)"),
            "{result}"
        );
    }
}

#[test]
fn dirty_throttling_is_found_from_5_percent_of_the_time_on() {
    let of = |ns: u64| {
        let mut rows = recording(&vec![insert(); 10]);
        extend_by_sleep(&mut rows, ns, |slice| slice.wait = Some(Wait::DirtyThrottling));
        explain(&rows)
    };
    let m01 = of(660_000);
    let m01 = find_finding(&m01, "M01");
    assert_eq!((m01.executions, m01.time_ns), (10, Some(6_600_000)));
    assert!(!codes(&of(17_000)).contains(&"M01"), "17 of 357 us are less than 5 %");
    assert!(codes(&of(18_000)).contains(&"M01"), "18 of 358 us are more");
}

#[test]
fn a_scheduling_delay_names_the_quota_if_it_dominates() {
    let of = |throttled: u64| {
        let mut rows = recording(&vec![insert(); 10]);
        let waits = |ns, wait| {
            move |slice: &mut Slice| {
                (slice.layer, slice.reason, slice.wait) = (Layer::RunQueue, Reason::RunQueue, wait);
                slice.end_ns = slice.start_ns + ns;
            }
        };
        extend_by_sleep(&mut rows, throttled, waits(throttled, Some(Wait::CpuQuota)));
        extend_by_sleep(&mut rows, 660_000 - throttled, waits(660_000 - throttled, None));
        let done = explain(&rows);
        let g01 = find_finding(&done, "G01");
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
fn queue_and_run_queue_are_found_where_they_last() {
    let mut rows = recording(&vec![insert(); 20]);
    replace_reason(&mut rows, Reason::Flush, (Layer::IoScheduler, Reason::Queue));
    let done = explain(&rows);
    assert_eq!(find_finding(&done, "Q01").time_ns, Some(20 * 150_000));
    assert!(!codes(&done).contains(&"F03"));
    replace_reason(&mut rows, Reason::Queue, (Layer::RunQueue, Reason::RunQueue));
    let done = explain(&rows);
    assert_eq!(find_finding(&done, "G01").time_ns, Some(20 * 150_000));
    assert!(!codes(&done).contains(&"Q01"));
}

/// Effects of chance are reported only if they are a pattern.
#[test]
fn one_long_wait_for_a_cpu_is_no_pattern() {
    let of = |longest: usize| {
        let mut rows = recording(&vec![insert(); 60]);
        for operation in rows.operations.edit().iter_mut().step_by(60 / longest) {
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
    let g01 = find_finding(&done, "G01");
    assert_eq!((g01.executions, g01.time_ns), (20, Some(9_000_000)));
    assert!(g01.saving_interval_ns.is_some_and(|[low, high]| low <= 9_000_000 && high >= 9_000_000), "{g01:?}");
}

#[test]
fn a_scheduling_delay_on_a_busy_machine_says_so() {
    let of = |load: &str| {
        let mut rows = recording(&vec![insert(); 20]);
        replace_reason(&mut rows, Reason::Flush, (Layer::RunQueue, Reason::RunQueue));
        rows.facts = [("load.one_minute", load), ("cpu.online", "2")].map(|(name, value)| fact(name, value)).into();
        find_finding(&explain(&rows), "G01").claim.clone()
    };
    assert!(of("18.01").ends_with("; the load average was 18.01 on 2 CPUs as the recording began"), "{}", of("18.01"));
    assert!(!of("1.90").contains("load"), "{}", of("1.90"));
}

#[test]
fn a_flush_behind_that_of_another_process_names_the_culprit() {
    let mut rows = recording(&vec![insert(); 20]);
    rows.processes.push(Process { tgid: 77, name: "backup".into(), parent: None, tracked: false });
    let own: Vec<Span> = rows.spans.iter().filter(|s| s.kind == "flush").collect();
    for (n, flush) in own.iter().enumerate() {
        let id = 90_000 + 2 * n as u64;
        // Its bio was queued when the thread fell asleep; another's flush is in flight, and the device begins its own 30 us later.
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
        rows.spans.edit().iter_mut().find(|s| s.id == flush.id).unwrap().start_ns = issued;
    }
    let done = explain(&rows);
    let f02 = find_finding(&done, "F02");
    assert_eq!((f02.executions, f02.time_ns), (20, Some(20 * 60_000)));
    assert!(f02.claim.contains("backup (77)"), "{}", f02.claim);
    // The same in the account: a leaf of its own, which the finding names.
    let leaf = &done.account.leaves[f02.leaves[0]];
    assert_eq!((leaf.ns, leaf.whose, leaf.by[0].tgid), (20 * 60_000, Some(Whose::Others), Some(77)));
    assert_eq!(leaf.what, "waits for a flush of the device's cache that is for others, backup (PID 77)");
    assert!(leaf.findings.contains(&FindingCode::F02));
    assert!(f02.evidence.iter().all(|id| *id > 90_000), "the culprit's flushes: {:?}", f02.evidence);
}

/// ext4's journal processes one transaction after the other: a thread that syncs first sleeps for the commit that another one requested.
#[test]
fn waiting_for_the_commit_of_another_process_is_found() {
    let of = |tgid| {
        let mut rows = recording(&vec![insert(); 20]);
        rows.processes.push(Process { tgid: 77, name: "backup".into(), parent: None, tracked: false });
        // The first of two flushes, of 50 us, is for that process alone.
        let flushes: Vec<Span> = rows.spans.iter().filter(|s| s.kind == "flush").step_by(2).collect();
        for flush in &flushes {
            let mut causes = rows.causes.edit();
            let cause = causes.iter_mut().find(|c| c.command == flush.id).unwrap();
            (cause.origin, cause.operation, cause.tgid) = (Origin::OtherProcess, None, tgid);
            let end = flush.end_ns.unwrap();
            let mut slices = rows.slices.edit();
            let slice = slices.iter_mut().find(|s| s.reason == Reason::Flush && s.end_ns == end).unwrap();
            slice.span = Some(flush.id);
        }
        explain(&rows)
    };
    let done = of(Some(77));
    let f02 = find_finding(&done, "F02");
    assert_eq!((f02.executions, f02.time_ns), (20, Some(20 * 50_000)));
    assert!(f02.claim.contains("backup (77)"), "{}", f02.claim);
    assert!(!codes(&done).contains(&"F03"), "own flushes are 100 of 300 us in syncs");
    for nobody_else in [Some(5), None] {
        assert!(!codes(&of(nobody_else)).contains(&"F02"), "{nobody_else:?}");
    }
}

#[test]
fn pages_of_another_process_in_a_sync_name_their_writer() {
    let mut rows = recording(&vec![insert(); 20]);
    rows.processes.push(Process { tgid: 77, name: "logger".into(), parent: None, tracked: false });
    let template = rows.spans.at(0).clone();
    rows.spans.push(Span { id: 80_000, layer: Layer::FileSystem, kind: "write".into(), tgid: 77, ..template.clone() });
    rows.spans.push(Span { id: 80_001, layer: Layer::Block, kind: "bio".into(), ..template.clone() });
    rows.spans.push(Span {
        id: 80_002,
        layer: Layer::Driver,
        kind: "command".into(),
        disk: Some(DISK_DEV),
        ..template
    });
    for (parent, child, relation) in [(80_000, 80_001, Relation::Dirties), (80_001, 80_002, Relation::Carries)] {
        rows.links.push(Link { parent, child, relation, confidence: Confidence::Exact, weakened_by: None });
    }
    for slice in rows.slices.edit().iter_mut().filter(|s| s.reason == Reason::Flush) {
        (slice.reason, slice.span) = (Reason::Device, Some(80_002));
    }
    let done = explain(&rows);
    let w01 = find_finding(&done, "W01");
    assert_eq!((w01.time_ns, w01.evidence.as_slice()), (Some(20 * 150_000), &[80_002][..]));
    assert!(w01.claim.contains("logger (77)"), "{}", w01.claim);
}

/// The calls of a process that is not recorded are no spans: only the command's charge shows whose pages it carries.
#[test]
fn pages_of_an_unrecorded_process_name_it_by_their_charge() {
    let of = |tgid: u32| {
        let mut rows = recording(&vec![insert(); 20]);
        rows.processes.push(Process { tgid: 77, name: "logger".into(), parent: None, tracked: false });
        let template = rows.spans.at(0).clone();
        rows.spans.push(Span {
            id: 80_002,
            layer: Layer::Driver,
            kind: "command".into(),
            disk: Some(DISK_DEV),
            ..template
        });
        rows.causes.push(Cause {
            command: 80_002,
            origin: Origin::OtherProcess,
            operation: None,
            tgid: Some(tgid),
            ..rows.causes.at(0).clone()
        });
        for slice in rows.slices.edit().iter_mut().filter(|s| s.reason == Reason::Flush) {
            (slice.reason, slice.span) = (Reason::Device, Some(80_002));
        }
        explain(&rows)
    };
    let done = of(77);
    let w01 = find_finding(&done, "W01");
    assert_eq!(w01.time_ns, Some(20 * 150_000));
    assert!(w01.claim.contains("logger (77)"), "{}", w01.claim);
    assert!(!codes(&of(5)).contains(&"W01"), "its own pages are not foreign");
}

/// blk-throttle holds a bio back before it counts as queued; a kernel worker sends it.
#[test]
fn a_read_that_a_worker_sent_late_waited_in_the_queue() {
    let of = |sent: u64, offset: u64| {
        let mut rows = recording(&vec![insert(); 20]);
        let template = rows.spans.iter().find(|s| s.layer == Layer::Syscall).unwrap().clone();
        let mut id = 80_000;
        let slices: Vec<usize> = (0..rows.slices.len()).filter(|&i| rows.slices.reason(i) == Reason::Flush).collect();
        for at in slices {
            let slice = &mut rows.slices.edit()[at];
            (slice.layer, slice.reason, slice.wait, slice.span) = (Layer::FileSystem, Reason::Other, None, Some(id));
            let file = Some(analysis::handmade::DATABASE_FILE);
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
        rows.spans.edit().sort_by_key(|s| s.id);
        explain(&rows)
    };
    let done = of(100, 0);
    assert_eq!(find_finding(&done, "Q01").time_ns, Some(20 * 150_000));
    assert_eq!(find_finding(&of(50, 0), "Q01").time_ns, Some(20 * 75_000));
    assert!(!codes(&of(100, 8192)).contains(&"Q01"), "other bytes");
}

#[test]
fn a_read_held_back_by_others_waits_in_the_queue() {
    let mut rows = held_back(10, |_| true, 1_000_000);
    let done = explain(&rows);
    assert_eq!(find_finding(&done, "Q01").time_ns, Some(10 * 1_000_000), "{:?}", codes(&done));
    // A read that the program's own process sent was not held back.
    let tgid = rows.operations.tgid(0);
    rows.spans.edit().iter_mut().filter(|s| s.tgid == 5000).for_each(|s| s.tgid = tgid);
    assert!(!codes(&explain(&rows)).contains(&"Q01"));
}

/// A damaged archive; the read then ends after the slice, which ended before it began.
#[test]
fn a_slice_that_ends_before_it_begins_is_explained() {
    let mut rows = held_back(10, |_| true, 1_000_000);
    for slice in rows.slices.edit().iter_mut() {
        std::mem::swap(&mut slice.start_ns, &mut slice.end_ns);
    }
    assert!(!codes(&explain(&rows)).contains(&"Q01"));
    for slice in rows.slices.edit().iter_mut() {
        (slice.start_ns, slice.end_ns) = (u64::MAX, 0);
    }
    assert!(!codes(&explain(&rows)).contains(&"Q01"));
}

/// Read-ahead grows, so that a large table is read in a few waits: too few for an interval over stretches, but most of the time.
#[test]
fn few_waits_that_are_most_of_the_time_are_a_pattern() {
    let done = explain(&held_back(600, |nth| [1, 29, 150, 151].contains(&nth), 300_000_000));
    let q01 = find_finding(&done, "Q01");
    assert!(q01.interval.is_some_and(|[low, _]| low < 0.02) && q01.share.is_some_and(|share| share > 0.8), "{q01:?}");
    // Two may be chance; so may four that are the smaller part of the time.
    assert!(!codes(&explain(&held_back(600, |nth| [1, 150].contains(&nth), 300_000_000))).contains(&"Q01"));
    assert!(!codes(&explain(&held_back(600, |nth| [1, 2, 3, 150].contains(&nth), 30_000_000))).contains(&"Q01"));
}

/// INSERTs, some of which read a page, asleep for this long; a kernel worker sends the last part of the read-ahead first, then
/// the part with the page.
fn held_back(count: usize, waits: impl Fn(usize) -> bool, asleep_ns: u64) -> Rows {
    let mut rows = recording(&vec![insert(); count]);
    let ends: Vec<(u64, u64, u32)> = rows.operations.iter().map(|o| (o.id, o.end_ns.unwrap(), o.tid)).collect();
    for (nth, (operation, end, tid)) in ends.into_iter().enumerate().filter(|(nth, _)| waits(*nth)) {
        let nth = nth as u64;
        let first = rows.spans.at(0).clone();
        let read = |id: u64, layer: Layer, kind: &'static str, at: (u64, u64), bytes: std::ops::Range<u64>| Span {
            id,
            layer,
            kind: kind.into(),
            start_ns: at.0,
            end_ns: Some(at.1),
            operation: None,
            file: Some(DATABASE_FILE),
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
            .edit()
            .iter_mut()
            .filter(|o| o.id == operation)
            .for_each(|o| o.end_ns = Some(end + asleep_ns + 100_000));
        let mut slice = Slice::new(operation, Layer::FileSystem, Reason::Other, end, since);
        slice.span = Some(call);
        rows.slices.push(slice);
    }
    rows
}

/// A program without SQL has no PRAGMAs: the remedies of its findings must be applicable.
#[test]
fn remedies_of_programs_without_sql_name_nothing_of_sqlite() {
    for kind in ["call", "function", "mark"] {
        let mut seen: Vec<&str> = Vec::new();
        for reason in [Reason::Flush, Reason::Journal, Reason::Device] {
            let mut rows = recording(&vec![insert(); 40]);
            rows.shapes[0].kind = kind.into();
            rows.files[0].path = Some("/m/log".into());
            rows.files[1].path = Some("/m/data".into());
            replace_reason(&mut rows, Reason::Flush, (Layer::Driver, reason));
            extend_by_sleep(&mut rows, 90_000, |slice| (slice.wait, slice.by_tgid) = (Some(Wait::Fcntl), Some(77)));
            for finding in explain(&rows).findings {
                let of_sqlite =
                    ["PRAGMA", "WAL", "synchronous", "SQLITE"].iter().find(|w| finding.remedy.contains(**w));
                assert_eq!(of_sqlite, None, "{kind}: {} {}", finding.code, finding.remedy);
                seen.push(finding.code.name());
            }
        }
        assert!(["F01", "F03", "J03", "L01"].iter().all(|code| seen.contains(code)), "{kind}: {seen:?}");
    }
}
