//! Findings on SQLite's own counters.

use super::*;
use analysis::handmade::CallSpec;
use model::table::StatementCounters;

const TEMPORARY_FILE: u64 = 9;
const SELECT: &str = "SELECT s FROM t WHERE i = ?";

/// Twenty executions with these calls, returned rows and counters.
fn counted(text: &str, calls: &[CallSpec], returned: u64, counters: Option<StatementCounters>) -> Explanation {
    let one = Execution { outside_ns: 100_000, calls: calls.to_vec() };
    let mut rows = recording(&vec![one; 20]);
    rows.shapes[0].text = text.into();
    let temporary = Some("/var/tmp/etilqs_0123456789abcdef".into());
    rows.files.push(File { id: TEMPORARY_FILE, dev: 1, ino: TEMPORARY_FILE, path: temporary, start_ns: 0 });
    rows.operations.edit().iter_mut().for_each(|operation| operation.rows = returned);
    if let Some(counters) = counters {
        let ids: Vec<u64> = rows.operations.iter().map(|operation| operation.id).collect();
        rows.counters.extend(ids.into_iter().map(|operation| StatementCounters { operation, ..counters.clone() }));
    }
    explain(&rows)
}

/// An execution that did nothing that is counted as bad.
fn counters() -> StatementCounters {
    StatementCounters {
        operation: 0,
        fullscan_steps: Some(0),
        sorts: Some(0),
        autoindex_rows: Some(0),
        vm_steps: Some(30),
        reprepares: Some(0),
        runs: Some(1),
        cache_hits: Some(3),
        cache_misses: Some(0),
        cache_writes: Some(0),
        cache_spills: Some(0),
    }
}

fn scan(steps: u64, ops: u64) -> StatementCounters {
    StatementCounters { fullscan_steps: Some(steps), vm_steps: Some(ops), ..counters() }
}

#[test]
fn a_scan_is_what_stepped_through_the_table() {
    // One page in SQLite's own cache is enough: nothing has to be read.
    let done = counted(SELECT, &[], 1, Some(scan(1000, 3020)));
    let s04 = find_finding(&done, "S04");
    assert_eq!((s04.executions, s04.time_ns), (20, Some(20 * 99_800)), "two of a thousand steps remain");
    assert_eq!(s04.saving_ns, s04.time_ns);
    let leaf = &done.account.leaves[s04.leaves[0]];
    assert!(leaf.layer == Some(Layer::Database) && leaf.findings == [FindingCode::S04], "{leaf:?}");
    assert!(s04.claim.contains("stepped through 1,000 rows") || s04.claim.contains("1000 rows"), "{}", s04.claim);
}

#[test]
fn reads_without_a_counted_scan_are_none() {
    let reads = vec![("pread64", DATABASE_FILE, 20_000, 4096); 200];
    for counters in [None, Some(counters())] {
        let done = counted(SELECT, &reads, 1, counters);
        assert!(!codes(&done).contains(&"S04"), "{:?}", codes(&done));
    }
}

#[test]
fn a_scan_that_an_index_would_not_shorten_is_none() {
    for (text, returned, counters) in [
        (SELECT, 900, scan(1000, 9000)),
        (SELECT, 1, scan(20, 60)),
        // What is done with each row takes more instructions than to pass over it.
        ("UPDATE t SET s = ? WHERE i > ?", 0, scan(1000, 21_000)),
        ("SELECT sum(s) FROM t WHERE i > ?", 1, scan(1000, 5000)),
        ("SELECT count(*) FROM t", 1, scan(1000, 3000)),
        ("INSERT INTO t SELECT * FROM u WHERE i = ?", 0, scan(1000, 3000)),
    ] {
        let done = counted(text, &[], returned, Some(counters));
        assert_eq!(codes(&done), Vec::<&str>::new(), "{text}");
    }
}

#[test]
fn an_automatic_index_has_its_part_of_the_instructions() {
    let automatic = StatementCounters { autoindex_rows: Some(1000), ..scan(50, 20_000) };
    let done = counted("SELECT count(*) FROM t JOIN u ON t.a = u.a WHERE t.i < ?", &[], 1, Some(automatic));
    assert_eq!(codes(&done), ["S05"]);
    let s05 = find_finding(&done, "S05");
    assert!(s05.share.unwrap() > 0.3 && s05.share.unwrap() < 0.6 && s05.remedy.starts_with("CREATE INDEX"), "{s05:?}");
}

#[test]
fn a_sort_is_named_by_its_temporary_file() {
    let sorted = StatementCounters { sorts: Some(1), ..counters() };
    let text = "SELECT s FROM t ORDER BY s";
    assert!(codes(&counted(text, &[], 100, Some(sorted.clone()))).is_empty());
    let calls = [("pwrite64", TEMPORARY_FILE, 300_000, 65_536), ("pread64", TEMPORARY_FILE, 100_000, 65_536)];
    let done = counted(text, &calls, 100, Some(sorted));
    assert_eq!(codes(&done), ["S06"]);
    assert_eq!(find_finding(&done, "S06").time_ns, Some(20 * 400_000));
}

#[test]
fn a_spill_has_the_syncs_before_the_commit() {
    let spilled = |spills| StatementCounters { cache_writes: Some(100), cache_spills: Some(spills), ..counters() };
    let write = ("pwrite64", DATABASE_FILE, 400_000, 4096);
    let syncs = [("fdatasync", JOURNAL_FILE, 300_000, 0), write, ("fdatasync", JOURNAL_FILE, 400_000, 0), write];
    let text = "UPDATE t SET s = ?";
    assert!(!codes(&counted(text, &syncs, 0, Some(spilled(0)))).contains(&"S07"));
    assert!(!codes(&counted(text, &[write], 0, Some(spilled(25)))).contains(&"S07"), "it has to be written anyway");
    for (spills, time) in [(100, 700_000), (25, 300_000)] {
        let done = counted(text, &syncs, 0, Some(spilled(spills)));
        let s07 = find_finding(&done, "S07");
        assert_eq!((s07.time_ns, s07.executions), (Some(20 * time), 20), "a commit has to sync once: {s07:?}");
        assert!(!codes(&done).contains(&"F01"), "these are no flushes of a commit");
    }
}

#[test]
fn a_cascade_without_an_index_is_no_scan_of_the_statement() {
    let cascade = StatementCounters { runs: Some(2), ..scan(1000, 3020) };
    let done = counted("DELETE FROM t WHERE id = ?", &[], 0, Some(cascade));
    assert_eq!(codes(&done), ["S09"]);
    assert!(find_finding(&done, "S09").claim.contains("without an index"));
    // Reparsed once: the program began twice.
    let again = StatementCounters { runs: Some(2), reprepares: Some(1), ..counters() };
    assert!(codes(&counted("DELETE FROM t WHERE id = ?", &[], 0, Some(again))).is_empty());
}

proptest! {
    /// Whatever the counters, no saving exceeds what its leaves hold, and none of these findings comes without a leaf.
    #[test]
    fn savings_stay_within_their_leaves(
        numbers in prop::array::uniform10(prop::option::of(prop_oneof![0_u64..4, 0_u64..5_000, any::<u64>()])),
        returned in prop_oneof![0_u64..3, any::<u64>()],
        text in prop::sample::select(&[SELECT, "UPDATE t SET s = ? WHERE i = ?", "SELECT s FROM t ORDER BY s"][..]),
        calls in prop::collection::vec(
            (prop::sample::select(&["pread64", "pwrite64", "fdatasync"][..]), 1_u64..10, 1_u64..1_000_000, 1_u64..9_000),
            0..6,
        ),
    ) {
        let [fullscan_steps, sorts, autoindex_rows, vm_steps, reprepares, runs, rest @ ..] = numbers;
        let [cache_hits, cache_misses, cache_writes, cache_spills] = rest;
        let counters = StatementCounters {
            operation: 0,
            fullscan_steps,
            sorts,
            autoindex_rows,
            vm_steps,
            reprepares,
            runs,
            cache_hits,
            cache_misses,
            cache_writes,
            cache_spills,
        };
        let done = counted(text, &calls, returned, Some(counters));
        let of_counters = [FindingCode::S04, FindingCode::S05, FindingCode::S06, FindingCode::S07, FindingCode::S09];
        for finding in done.findings.iter().filter(|finding| of_counters.contains(&finding.code)) {
            let held: u64 = finding.leaves.iter().map(|at| done.account.leaves[*at].saves_at_most_ns).sum();
            prop_assert!(!finding.leaves.is_empty() && finding.saving_ns.is_some_and(|ns| ns <= held), "{finding:?}");
            prop_assert!(finding.interval.is_none_or(|[low, high]| 0.0 <= low && low <= high && high <= 1.0));
        }
    }
}

#[test]
fn connections_are_charged_to_the_executions_after_them() {
    let with_opens = |every: usize| {
        let mut rows = recording(&vec![Execution { outside_ns: 500, calls: Vec::new() }; 20]);
        let starts: Vec<u64> = rows.operations.iter().map(|operation| operation.start_ns).collect();
        let call = |id: u64, kind: &'static str, start_ns: u64, ns: u64| Span {
            id,
            layer: Layer::Syscall,
            kind: kind.into(),
            start_ns,
            end_ns: Some(start_ns + ns),
            tgid: 5,
            tid: 5,
            operation: None,
            file: Some(DATABASE_FILE),
            offset: None,
            disk: None,
            sector: None,
            bytes: 0,
            result: Some(3),
            number: None,
            cache_added: None,
            flags: "".into(),
        };
        for (nth, start) in starts.into_iter().enumerate().filter(|(nth, _)| nth % every == 0) {
            let id = 1_000 + 10 * nth as u64;
            rows.spans.push(call(id, "open", start - 900, 600));
            // Inside the prepare that reads the schema, and counted once with it.
            rows.spans.push(call(id + 1, "pread64", start - 200, 100));
            let prepare = Span { layer: Layer::Database, file: None, ..call(id + 2, "prepare", start - 250, 200) };
            rows.spans.push(prepare);
        }
        explain(&rows)
    };
    let done = with_opens(1);
    let s10 = find_finding(&done, "S10");
    assert_eq!((s10.executions, s10.time_ns, s10.saving_ns), (20, Some(20 * 800), Some(20 * 800)));
    assert!((s10.share.unwrap() - 800.0 / 1300.0).abs() < 1e-9 && s10.evidence.len() == 5, "{s10:?}");
    assert!(!codes(&done).contains(&"S03"), "a new connection has no prepared statements");
    assert!(!codes(&with_opens(10)).contains(&"S10"), "two of twenty");
}
