//! Findings on handmade recordings, so that every share can be calculated.

mod account;
mod counted;
mod waits;

use super::contract::Finding;
use super::*;
use analysis::handmade::{
    DATABASE_FILE, DIRECTORY_FILE, DISK_DEV, Execution, INSERT_STATEMENT, JOURNAL_FILE, insert, recording,
};
use model::table::{Cause, Coverage, FactRow, File, LossRow, Shape, Span};
use model::{Absence, Confidence, Layer, LossSource, Origin, Reason};
use proptest::prelude::*;

const WAL_FILE: u64 = 4;

fn codes(explanation: &Explanation) -> Vec<&str> {
    explanation.findings.iter().map(|f| f.code.name()).collect()
}

fn find_finding<'e>(explanation: &'e Explanation, code: &str) -> &'e Finding {
    let found = explanation.findings.iter().find(|f| f.code.name() == code);
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

/// Replaces layer and reason of every slice with the reason `from`.
fn replace_reason(rows: &mut Rows, from: Reason, to: (Layer, Reason)) {
    for slice in rows.slices.edit().iter_mut().filter(|s| s.reason == from) {
        (slice.layer, slice.reason) = to;
    }
}

/// A recording with a WAL beside the database.
fn with_wal(executions: &[Execution]) -> Rows {
    let mut rows = recording(executions);
    rows.files.push(File { id: WAL_FILE, dev: 1, ino: 9, path: Some("/m/t.db-wal".into()), start_ns: 0 });
    rows
}

#[test]
fn an_emulated_processor_saves_nothing() {
    let mut rows = recording(&vec![insert(); 40]);
    let hardware = explain(&rows);
    assert!(hardware.findings.iter().any(|f| f.saving_ns.is_some()) && text::text(&hardware).contains("saving: "));
    rows.facts.push(analysis::small_trace::emulated_fact());
    let done = explain(&rows);
    assert!(done.findings.iter().all(|f| f.saving_ns.is_none() && f.saving_interval_ns.is_none()));
    assert!(done.caveats.against_times().is_some() && find_finding(&done, "F01").executions == 40);
    let text = text::text(&done);
    assert!(text.starts_with("The processor is emulated") && !text.contains("saving: "), "{text}");
}

#[test]
fn flushes_and_syncs_of_delete_mode_are_found() {
    let done = explain(&recording(&vec![insert(); 40]));
    assert_eq!(done.latency_ns, 40 * 340_000);
    // Two syncs of 100 and 200 us: the first is more than one needs; half of each is the flush.
    let f01 = find_finding(&done, "F01");
    assert_eq!((f01.executions, f01.of, f01.time_ns), (40, 40, Some(40 * 100_000)));
    assert!((f01.share.unwrap() - 100.0 / 340.0).abs() < 1e-9, "{f01:?}");
    assert!(f01.interval.unwrap().iter().all(|end| (end - 100.0 / 340.0).abs() < 1e-9), "all are equal: {f01:?}");
    assert_eq!(f01.saving_ns, Some(40 * 100_000));
    assert!(f01.claim.starts_with("2 flushes and 2 syncs"), "{}", f01.claim);
    let f03 = find_finding(&done, "F03");
    assert_eq!(f03.time_ns, Some(40 * 150_000));
    // Consecutive, each its own transaction: one of forty is needed anyway.
    let s01 = find_finding(&done, "S01");
    assert_eq!((s01.time_ns, s01.saving_ns), (Some(40 * 300_000), Some(39 * 300_000)));
    assert_eq!(codes(&done), ["S01", "F01", "F03"], "the most time first, what causes the flushes before them");
    assert!(s01.statement.as_deref() == Some(INSERT_STATEMENT) && !s01.evidence.is_empty() && s01.evidence.len() <= 5);
}

/// SQLite creates a master journal for a transaction over several databases, which a WAL would make atomic only in each of them.
#[test]
fn a_remedy_with_a_wal_says_what_several_databases_lose() {
    let mut rows = recording(&vec![insert(); 40]);
    let of_wal = |rows: &Rows| -> Vec<(FindingCode, bool)> {
        let found = explain(rows).findings.into_iter().filter(|f| f.remedy.contains("WAL"));
        found.map(|f| (f.code, f.remedy.contains("atomic in each, but no longer across them"))).collect()
    };
    let alone = of_wal(&rows);
    assert!(!alone.is_empty() && alone.iter().all(|(_, said)| !said), "{alone:?}");
    rows.files.push(File { id: 9, dev: 1, ino: 9, path: Some("/m/t.db-mj0A1B2C9DE".into()), start_ns: 0 });
    let across = of_wal(&rows);
    assert!(across.len() == alone.len() && across.iter().all(|(_, said)| *said), "{across:?}");
}

#[test]
fn a_forced_f2fs_checkpoint_has_a_reason() {
    let mut rows = recording(&vec![insert(); 10]);
    let syncs: Vec<Span> = rows.spans.iter().filter(|s| s.kind == "fdatasync").collect();
    assert_eq!(syncs.len(), 20);
    // The second of two syncs, of 200 us.
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
    let c01 = find_finding(&done, "C01");
    assert_eq!((c01.executions, c01.time_ns), (10, Some(2_000_000)));
    assert!(c01.claim.ends_with("mostly for: file with hard links"), "{}", c01.claim);
    rows.spans.edit().iter_mut().filter(|s| s.kind == "checkpoint needed").for_each(|s| s.tid += 1);
    assert!(!codes(&explain(&rows)).contains(&"C01"), "another thread's");
}

#[test]
fn one_sync_of_a_wal_is_no_second_flush() {
    let commit = Execution {
        outside_ns: 1000,
        calls: vec![("pwrite64", WAL_FILE, 5_000, 4120), ("fdatasync", WAL_FILE, 90_000, 0)],
    };
    let done = explain(&with_wal(&vec![commit; 9]));
    assert_eq!(codes(&done), ["F03"], "nine in a row are no loop");
}

/// A share of the time decides, not a number of executions: the flush of a lone commit is named if it is a large part of all the time.
#[test]
fn a_lone_flush_is_named_by_its_share_of_time() {
    let commit = |outside_ns| Execution {
        outside_ns,
        calls: vec![("pwrite64", WAL_FILE, 5_000, 4120), ("fdatasync", WAL_FILE, 90_000, 0)],
    };
    for (commits, outside_ns, expected) in [(1, 1_000, &["F03"][..]), (2, 1_000, &["F03"]), (2, 1_000_000, &[])] {
        let rows = with_wal(&vec![commit(outside_ns); commits]);
        assert_eq!(codes(&explain(&rows)), expected, "{commits} of {outside_ns}");
    }
}

/// A one-off that is most of the time is explained, however few its waits are.
#[test]
fn a_single_long_execution_is_explained() {
    let mut rows = recording(&[insert()]);
    replace_reason(&mut rows, Reason::Flush, (Layer::Driver, Reason::Queue));
    let slices: Vec<_> = rows.slices.iter().filter(|slice| slice.reason == Reason::Queue).collect();
    let (first, last) = (slices[0].start_ns, slices[slices.len() - 1].end_ns);
    rows.slices.edit().retain(|slice| slice.end_ns <= first || slice.start_ns >= last);
    rows.slices.push(Slice { end_ns: last, ..slices[0].clone() });
    let done = explain(&rows);
    let q01 = find_finding(&done, "Q01");
    assert_eq!((q01.executions, q01.of, q01.time_ns), (1, 1, Some(last - first)));
}

/// Statements with the same cause and remedy are one finding, whose time, share and saving are theirs together.
#[test]
fn one_cause_of_several_statements_is_one_finding() {
    let mut rows = recording(&vec![insert(); 60]);
    let one = explain(&rows);
    let alone = find_finding(&one, "F01");
    for nth in 1..6 {
        rows.shapes.push(Shape { id: 1 + nth, text: format!("UPDATE t{nth} SET a = ?"), ..rows.shapes[0].clone() });
    }
    for (nth, operation) in rows.operations.edit().iter_mut().enumerate() {
        operation.shape = 1 + nth as u64 % 6;
    }
    let many = explain(&rows);
    let f01: Vec<_> = many.findings.iter().filter(|f| f.code == FindingCode::F01).collect();
    assert_eq!(f01.len(), 1, "{:?}", codes(&many));
    assert_eq!((f01[0].time_ns, f01[0].executions, f01[0].of), (alone.time_ns, alone.executions, alone.of));
    assert_eq!((f01[0].share, f01[0].interval, f01[0].saving_ns), (alone.share, alone.interval, alone.saving_ns));
    assert_eq!(f01[0].statements.len(), 6);
    assert_eq!(f01[0].statements.iter().map(|one| one.executions).sum::<u64>(), 60);
    assert!(text::text(&many).contains("the same in 5 further statements: "));
}

/// A remedy that is in effect is none.
#[test]
fn no_wal_is_advised_to_a_wal() {
    let commit = Execution {
        outside_ns: 1000,
        calls: vec![
            ("pwrite64", WAL_FILE, 5_000, 4120),
            ("fdatasync", WAL_FILE, 90_000, 0),
            ("fdatasync", WAL_FILE, 90_000, 0),
        ],
    };
    let done = explain(&with_wal(&vec![commit; 30]));
    assert!(!done.findings.is_empty());
    for finding in &done.findings {
        assert!(!finding.remedy.contains("journal_mode") && !finding.remedy.contains("(WAL"), "{finding:?}");
    }
    let rollback = explain(&recording(&vec![insert(); 30]));
    assert!(find_finding(&rollback, "F01").remedy.contains("journal_mode = WAL"));
}

#[test]
fn a_journal_that_is_created_and_deleted_is_found() {
    let calls = [
        vec![("openat", JOURNAL_FILE, 0, 0), ("open", JOURNAL_FILE, 30_000, 0)],
        insert().calls,
        vec![("fdatasync", DIRECTORY_FILE, 50_000, 0), ("unlink", JOURNAL_FILE, 40_000, 0)],
    ];
    let with = Execution { calls: calls.concat(), ..insert() };
    let done = explain(&recording(&vec![with; 20]));
    let j02 = find_finding(&done, "J02");
    assert_eq!((j02.executions, j02.time_ns), (20, Some(20 * 120_000)));
    assert!(j02.claim.contains("its directory synced"), "{}", j02.claim);
    assert!(!codes(&explain(&recording(&vec![insert(); 20]))).contains(&"J02"), "a journal that stays is no finding");
    let commit = Execution { calls: [insert().calls, vec![("unlink", JOURNAL_FILE, 40_000, 0)]].concat(), ..insert() };
    let done = explain(&recording(&vec![commit; 20]));
    assert_eq!(find_finding(&done, "J02").time_ns, Some(20 * 40_000), "a COMMIT deletes what its first INSERT created");
}

#[test]
fn the_file_systems_own_writes_for_a_journal_are_found() {
    let mut rows = recording(&vec![insert(); 20]);
    let mut id = 100_000;
    for at in 0..rows.operations.len() {
        let operation = rows.operations.at(at).clone();
        for (flags, bytes) in [("write sync", 6000), ("write sync meta", 4000)] {
            id += 1;
            let template = rows.spans.at(0).clone();
            rows.spans.push(Span {
                id,
                layer: Layer::Driver,
                kind: "command".into(),
                flags: flags.into(),
                bytes,
                disk: Some(DISK_DEV),
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
        // Waiting for the first sync's flush becomes waiting for the metadata.
        let mut slices = rows.slices.edit();
        let slice = slices.iter_mut().find(|s| s.operation == operation.id && s.reason == Reason::Flush).unwrap();
        (slice.reason, slice.span) = (Reason::Device, Some(id));
    }
    let done = explain(&rows);
    let j01 = find_finding(&done, "J01");
    assert_eq!((j01.time_ns, j01.executions), (Some(20 * 50_000), 20));
    assert!(j01.claim.contains("512 B") && j01.claim.contains("3.91 KiB of the 9.77 KiB"), "{}", j01.claim);
    // 10,000 B on the device for 4,608 B that were written: x 2.2.
    assert!(!codes(&done).contains(&"R01"));
}

#[test]
fn a_checkpoint_in_a_statement_is_found() {
    let plain = Execution { outside_ns: 1000, calls: vec![("pwrite64", WAL_FILE, 5_000, 4120)] };
    let back = vec![("pwrite64", DATABASE_FILE, 30_000, 4096), ("fdatasync", DATABASE_FILE, 200_000, 0)];
    let stalled = Execution { calls: [plain.calls.clone(), back].concat(), ..plain.clone() };
    let mut executions = vec![plain; 100];
    executions.iter_mut().step_by(10).for_each(|execution| *execution = stalled.clone());
    let done = explain(&with_wal(&executions));
    let s02 = find_finding(&done, "S02");
    assert_eq!((s02.executions, s02.of, s02.time_ns), (10, 100, Some(10 * 230_000)));
    assert!(s02.claim.contains("the others' median is 7.00 us"), "{}", s02.claim);
}

/// A commit that syncs nothing, and a checkpoint in every fourth execution: its syncs do not belong to a commit.
#[test]
fn the_syncs_of_a_checkpoint_are_no_flushes_of_commits() {
    let plain = Execution { outside_ns: 1000, calls: vec![("pwrite64", WAL_FILE, 5_000, 4120)] };
    let back = vec![
        ("fdatasync", WAL_FILE, 90_000, 0),
        ("pread64", WAL_FILE, 1_000, 4096),
        ("pwrite64", DATABASE_FILE, 30_000, 4096),
        ("fdatasync", DATABASE_FILE, 200_000, 0),
    ];
    let stalled = Execution { calls: [plain.calls.clone(), back].concat(), ..plain.clone() };
    let mut executions = vec![plain; 100];
    executions.iter_mut().step_by(2).for_each(|execution| *execution = stalled.clone());
    let done = explain(&with_wal(&executions));
    assert_eq!(codes(&done), ["S02"]);
    assert_eq!(
        find_finding(&done, "S02").time_ns,
        Some(50 * 321_000),
        "with the WAL's own sync, since the others have none"
    );
}

/// The commit after a checkpoint rewrites the WAL's header and syncs it: without checkpoints none would. No checkpoint causes the first
/// header.
#[test]
fn restarting_the_wal_is_charged_to_the_checkpoint() {
    let plain = Execution { outside_ns: 1000, calls: vec![("pwrite64", WAL_FILE, 5_000, 4120)] };
    let back = vec![("pwrite64", DATABASE_FILE, 30_000, 4096), ("fdatasync", DATABASE_FILE, 200_000, 0)];
    let stalled = Execution { calls: [plain.calls.clone(), back].concat(), ..plain.clone() };
    let header = vec![("pwrite64", WAL_FILE, 2_000, 32), ("fdatasync", WAL_FILE, 90_000, 0)];
    let anew = Execution { calls: [header, plain.calls.clone()].concat(), ..plain.clone() };
    let mut executions = vec![anew.clone()];
    for _ in 0..25 {
        executions.extend([plain.clone(), stalled.clone(), anew.clone(), plain.clone()]);
    }
    let done = explain(&with_wal(&executions));
    assert_eq!(find_finding(&done, "S02").time_ns, Some(25 * 230_000 + 25 * 92_000));
}

#[test]
fn a_prepare_before_every_execution_is_found() {
    let mut rows =
        recording(&vec![Execution { outside_ns: 10_000, calls: vec![("pread64", DATABASE_FILE, 5_000, 16)] }; 30]);
    for at in 0..30 {
        let (operation, template) = (rows.operations.at(at).clone(), rows.spans.at(0).clone());
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
    for operation in rows.operations.edit().iter_mut() {
        operation.end_ns = Some(operation.start_ns + 600);
    }
    let done = explain(&rows);
    let s03 = find_finding(&done, "S03");
    assert_eq!((s03.executions, s03.time_ns), (30, Some(30 * 400)));
    for share in [s03.share, s03.share_of_all] {
        assert!((share.unwrap() - 0.4).abs() < 1e-9, "in addition to 600 ns of its own: {s03:?}");
    }
    // The cost of a trap after it read the clock is not part of the prepare.
    let price = [("", "500"), (".low", "450"), (".high", "600"), (".inside", "150")];
    rows.facts.extend(price.map(|(end, ns)| fact(&format!("tracer.price.prepare{end}"), ns)));
    let s03 = explain(&rows);
    let s03 = find_finding(&s03, "S03");
    assert_eq!(s03.time_ns, Some(30 * 250));
    assert!(s03.claim.contains("250 ns each (without the 150 ns that recording it takes)"), "{}", s03.claim);
    // Of 400 ns, 300 are the trap: the rest says nothing about the prepare.
    rows.facts.iter_mut().find(|f| f.name == "tracer.price.prepare.inside").unwrap().value = Some("300".into());
    let s03 = explain(&rows);
    let s03 = find_finding(&s03, "S03");
    assert_eq!((s03.time_ns, s03.saving_ns, s03.saving_interval_ns), (None, None, None));
    assert_eq!((s03.share, s03.interval, s03.share_of_all), (None, None, None));
    assert!(s03.claim.contains("takes less than the 300 ns of its uprobe: how much is unknown"), "{}", s03.claim);
}

#[test]
fn an_fdatasync_that_waits_for_a_commit_is_found() {
    let mut rows = recording(&vec![insert(); 20]);
    assert!(!codes(&explain(&rows)).contains(&"J03"));
    replace_reason(&mut rows, Reason::Flush, (Layer::FileSystem, Reason::Journal));
    let done = explain(&rows);
    let j03 = find_finding(&done, "J03");
    assert_eq!((j03.executions, j03.time_ns), (20, Some(20 * 150_000)));
    assert!(!j03.evidence.is_empty() && j03.claim.contains("in 20 of 20"), "{j03:?}");
}

#[test]
fn a_slow_device_is_a_tail_and_more_work_is_none() {
    let commit = |sync_ns| Execution {
        outside_ns: 1_000,
        calls: vec![("pwrite64", DATABASE_FILE, 5_000, 4096), ("fdatasync", DATABASE_FILE, sync_ns, 0)],
    };
    let mut executions = vec![commit(100_000); 40];
    assert!(!codes(&explain(&recording(&executions))).contains(&"D01"), "all are equal");
    executions[7] = commit(2_100_000);
    assert!(!codes(&explain(&recording(&executions))).contains(&"D01"), "one is no rule");
    for at in [3, 12, 21, 30, 38] {
        executions[at] = commit(1_100_000);
    }
    let done = explain(&recording(&executions));
    let d01 = find_finding(&done, "D01");
    // Half of a sync is its flush: 1 ms and five times 0.5 ms more than the median.
    assert_eq!((d01.executions, d01.of, d01.time_ns), (6, 40, Some(3_500_000)));
    assert!(d01.claim.contains("7.00 ms longer in all, 3.50 ms of it the device"), "{}", d01.claim);
    let [low, high] = d01.interval.unwrap();
    assert!(low >= LOWER_BOUND_MIN && low < d01.share.unwrap() && high > d01.share.unwrap(), "{d01:?}");
    // One that is even slower for another reason hides nothing.
    let mut busy = executions.clone();
    busy[25].outside_ns = 3_000_000;
    let done = explain(&recording(&busy));
    let d01 = find_finding(&done, "D01");
    assert_eq!((d01.executions, d01.time_ns), (6, Some(3_500_000)));
    // Equally slow, with flushes of its own as the cause.
    let work = vec![("fdatasync", DATABASE_FILE, 700_000, 0); 3];
    for at in [3, 7, 12, 21, 30, 38] {
        executions[at] = Execution { calls: work.clone(), ..commit(0) };
    }
    assert!(!codes(&explain(&recording(&executions))).contains(&"D01"));
    executions.truncate(19);
    assert!(!codes(&explain(&recording(&executions))).contains(&"D01"), "too few for a tail");
}

/// Every 26th resample of twenty stretches has none of three. Their exact interval begins at 0.6 of one of them.
#[test]
fn three_waits_are_a_pattern_unlike_two_or_neighbours() {
    let commit = |sync_ns| Execution { outside_ns: 1_000, calls: vec![("fdatasync", DATABASE_FILE, sync_ns, 0)] };
    let of = |slow: &[usize], ns| {
        let mut executions = vec![commit(100_000); 60];
        slow.iter().for_each(|at| executions[*at] = commit(ns));
        explain(&recording(&executions))
    };
    let done = of(&[5, 25, 45], 1_100_000);
    let d01 = find_finding(&done, "D01");
    let (share, [low, high]) = (d01.share.unwrap(), d01.interval.unwrap());
    assert_eq!((d01.executions, d01.time_ns), (3, Some(1_500_000)));
    assert!((low / share - 0.0321 * 20.0 / 3.0).abs() < 1e-3 && high > share, "{d01:?}");
    assert!(d01.saving_interval_ns.is_some_and(|[low, _]| low > 0), "{d01:?}");
    assert!(!codes(&of(&[5, 45], 1_100_000)).contains(&"D01"), "two may be chance");
    assert!(!codes(&of(&[24, 25, 26], 1_100_000)).contains(&"D01"), "one event");
    assert!(!codes(&of(&[5, 25, 45], 400_000)).contains(&"D01"), "too little");
}

#[test]
fn a_missing_sqlite_is_unreliable_where_it_is_inferred() {
    let mut rows = recording(&vec![insert(); 10]);
    rows.coverage.push(Coverage::absent(Layer::Database, "git", Absence::NoSqlite, "no SQLite"));
    assert!(!codes(&explain(&rows)).contains(&"T01"));
    rows.shapes[0].kind = "transaction".into();
    let done = explain(&rows);
    assert_eq!(codes(&done)[0], "T01");
    let remedy = &done.findings[0].remedy;
    assert!(remedy.contains("symbols") && !remedy.contains("less load"), "less load brings no symbols: {remedy}");
}

#[test]
fn lost_statements_make_a_trace_unreliable() {
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
    let remedy = &done.findings[0].remedy;
    assert!(remedy.contains("less load") && remedy.contains("a whole run") && !remedy.contains("symbols"), "{remedy}");
}

#[test]
fn the_text_and_the_line_of_show_name_the_findings() {
    let done = explain(&recording(&vec![insert(); 40]));
    let text = text::text(&done);
    assert!(text.contains("F01  two or more flushes a commit: INSERT INTO t VALUES (?)"), "{text}");
    assert!(text.contains("remedy:") && text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let line = text::summary(&done);
    let lines: Vec<&str> = line.lines().collect();
    assert_eq!(lines[0], "Largest part: 53 % of the time runs in the kernel");
    assert!(lines[1].starts_with("Findings: S01 autocommit loop (88 %), F01"), "{line}");
    assert!(line.ends_with("(`fathom explain`)\n"), "{line}");
    let none = Explanation { executions: 3, ..Explanation::default() };
    assert!(text::summary(&none).is_empty() && text::text(&none).starts_with("No finding"));
}

/// That nothing costs time is reported only if there are operations.
#[test]
fn a_recording_without_operations_is_not_called_healthy() {
    let none = explain(&recording(&[]));
    assert_eq!((none.findings.len(), none.executions), (0, 0));
    let said = text::text(&none);
    assert!(said.starts_with("No operation") && said.contains("--op") && !said.contains("No finding"), "{said}");
    let mut unfinished = recording(&vec![insert(); 2]);
    unfinished.operations.edit().iter_mut().for_each(|operation| operation.end_ns = None);
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
            let held: u64 = finding.leaves.iter().map(|at| done.account.leaves[*at].saves_at_most_ns).sum();
            let cap = if finding.leaves.is_empty() { done.latency_ns } else { held };
            prop_assert!(finding.saving_ns.is_none_or(|saving| saving <= cap), "{:?} of {}", finding, cap);
            prop_assert!(finding.saving_interval_ns.is_none_or(|[low, high]| low <= high && high <= cap), "{:?}", finding);
            prop_assert!(finding.interval.is_none_or(|[low, high]| 0.0 <= low && low <= high && high <= 1.0));
            let share = finding.share.unwrap();
            prop_assert!((SHARE_MIN..=1.0).contains(&share));
            prop_assert!(finding.executions <= finding.of);
            let known = |id: &u64| rows.spans.iter().any(|s| s.id == *id) || rows.operations.iter().any(|o| o.span == *id);
            prop_assert!(finding.evidence.iter().all(known), "{:?}", finding);
        }
    }
}

/// Shapes of another kind, so that nothing is SQL.
#[test]
fn functions_are_explained_where_there_is_no_sql() {
    let mut rows = recording(&vec![insert(); 12]);
    rows.shapes = vec![Shape { id: 1, kind: "function".into(), text: "handle".into() }];
    let done = explain(&rows);
    assert_eq!(find_finding(&done, "F01").statement.as_deref(), Some("handle"));
    assert!(!codes(&done).contains(&"S01"), "a function is no transaction");
}

#[test]
fn summary_and_explanation_together_are_those_of_each_alone() {
    for rows in [analysis::small_trace::rows(), recording(&vec![insert(); 1000]), Rows::default()] {
        let index = Index::new(&rows);
        assert_eq!(summarise_and_explain_rows(&index), (analysis::summarise(&rows), explain(&rows)));
    }
}
