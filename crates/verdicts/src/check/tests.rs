//! Contracts of handmade counts, and of the small trace.

use super::compare::untraced_differences;
use super::contract::{BPF, Contract, PROC};
use super::observe::{ObservedRun, SectionCounts, observe};
use super::{differences, judge, text};
use analysis::small_trace;
use stats::random::Random;

fn section_counts(calls: &[(&str, u64)], flushes: f64) -> SectionCounts {
    SectionCounts {
        calls: calls.iter().map(|(name, n)| (name.to_string(), *n)).collect(),
        device: [("flushes".to_string(), flushes)].into(),
        ..SectionCounts::default()
    }
}

fn observed_run(statements: &[(&str, SectionCounts)]) -> ObservedRun {
    ObservedRun {
        statements: statements.iter().map(|(text, one)| (text.to_string(), one.clone())).collect(),
        ..ObservedRun::default()
    }
}

const INSERT_STATEMENT: &str = "INSERT INTO orders VALUES (?)";

fn wal_run() -> ObservedRun {
    observed_run(&[(
        INSERT_STATEMENT,
        section_counts(&[("executions", 10), ("pwrite64 WAL", 20), ("fdatasync WAL", 10)], 10.0),
    )])
}

fn learn_contract(runs: &[ObservedRun]) -> Contract {
    Contract::learn(vec!["app".into()], None, BPF, runs, &[])
}

#[test]
fn a_contract_survives_its_file() {
    let mut second = wal_run();
    second.statements.get_mut(INSERT_STATEMENT).unwrap().calls.insert("open WAL".into(), 1);
    let contract = Contract::learn(
        vec!["app".into(), "a b".into()],
        Some("rm x".into()),
        BPF,
        &[wal_run(), second],
        &[section_counts(&[("read calls", 3)], 0.0)],
    );
    let text = contract.to_toml().unwrap();
    assert_eq!(Contract::parse(&text).unwrap(), contract, "{text}");
    assert!(text.contains("\"open WAL\" = [0, 1]") && text.contains("\"fdatasync WAL\" = 10"), "{text}");
    assert!(
        Contract::parse(&text.replace("version = 1", "version = 9")).unwrap_err().to_string().contains("version 9")
    );
    assert!(Contract::parse("version = 1").is_err());
}

/// Files with random names, each synced by a call that is a statement of its own, with another text in each run.
#[test]
fn calls_are_counted_whatever_their_files_are_called() {
    let mut nth = 0;
    let mut run = |syncs: u64, files: u64| {
        let named: Vec<(String, SectionCounts)> = (0..files)
            .map(|_| {
                nth += 1;
                let calls = [("executions", syncs), ("fsync file", syncs)];
                (format!("fsync out/tmp{}", nth * 7919), section_counts(&calls[..if syncs == 0 { 0 } else { 2 }], 0.0))
            })
            .filter(|(_, counted)| !counted.calls.is_empty())
            .collect();
        let program = section_counts(&[("rename file", files), ("write file", files)], 0.0);
        ObservedRun { program, statements: named.into_iter().collect(), ..ObservedRun::default() }
    };
    let contracts = [(1, learn_contract(&[run(1, 12), run(1, 12)])), (0, learn_contract(&[run(0, 12), run(0, 12)]))];
    for (was, contract) in contracts {
        for is in [0, 1, 3] {
            let runs: Vec<ObservedRun> = (0..3).map(|_| run(is, 12)).collect();
            let found: Vec<_> = runs.iter().map(|run| differences(&contract, run)).collect();
            let outcome = judge(&contract, &found, runs.last(), BPF);
            assert_eq!(outcome.passed, is == was, "{was} -> {is}: {:?}", outcome.differences);
            let (was, is) = (12 * was, 12 * is);
            let sign = if is > was { "+" } else { "" };
            let said = format!(": {sign}{} fsync file ({was} -> {is})", is as i64 - was as i64);
            assert!(
                outcome.passed || outcome.first.as_deref().is_some_and(|first| first.ends_with(&said)),
                "{:?}",
                outcome.first
            );
        }
    }
}

/// What a statement's count explains is not repeated for the whole.
#[test]
fn a_total_is_not_listed_in_addition_to_its_parts() {
    let contract = learn_contract(&[wal_run()]);
    let same = judge(&contract, &[differences(&contract, &wal_run())], Some(&wal_run()), BPF);
    assert!(same.passed && !text::text(&same).contains("totals"));
    let mut run = wal_run();
    run.statements.get_mut(INSERT_STATEMENT).unwrap().calls.insert("fdatasync WAL".into(), 12);
    let outcome = judge(&contract, &[differences(&contract, &run)], Some(&run), BPF);
    assert!(!outcome.passed && outcome.differences.iter().all(|d| !d.total), "{:?}", outcome.differences);
    let older = Contract { total: None, ..contract };
    assert!(!judge(&older, &[differences(&older, &run)], Some(&run), BPF).passed);
    // What an older contract does not compare is said.
    let passed = judge(&older, &[differences(&older, &wal_run())], Some(&wal_run()), BPF);
    assert!(passed.passed && text::text(&passed).contains("has no totals"), "{}", text::text(&passed));
}

/// A slip of an editor must not make a contract that every run fulfils.
#[test]
fn a_contract_that_compares_less_than_it_seems_is_refused() {
    let head = "version = 1\ncommand = [\"true\"]\nruns = 3\ncounted_by = \"BPF\"\n";
    let statement = "[[statement]]\ntext = \"COMMIT\"\n";
    assert!(Contract::parse(&format!("{head}[program.varied]\n\"fsync file\" = [2, 2]\n{statement}")).is_ok());
    for (wrong, expected) in [
        (head.replace("BPF", "bpf"), "counted_by"),
        (format!("{head}[program.exakt]\n\"fsync file\" = 2\n"), "exakt"),
        (format!("{head}{statement}[statement.devise]\nflushes = [1, 1]\n"), "devise"),
        (format!("{head}{statement}flushes = 2\n"), "flushes"),
        (format!("{head}[program.varied]\n\"fsync file\" = [3, 2]\n"), "[3, 2] is no range"),
        (format!("{head}{statement}[statement.device]\nflushes = [3, 2]\n"), "[3, 2] is no range"),
    ] {
        let refused = Contract::parse(&wrong).map_err(|why| why.to_string());
        assert!(refused.as_ref().is_err_and(|why| why.contains(expected)), "{wrong}: {refused:?}");
    }
}

#[test]
fn the_largest_numbers_of_a_contract_do_not_overflow() {
    let most = u64::MAX;
    let text = format!(
        "version = 1\ncommand = []\nruns = 3\ncounted_by = \"BPF\"\n[program.varied]\nfsync = [1, {}]\n[program.device]\nflushes = [0, {}]\n",
        most / 2,
        most / 2
    );
    let contract = Contract::parse(&text).unwrap();
    assert_eq!(
        differences(
            &contract,
            &ObservedRun { program: section_counts(&[("fsync", 5)], 3.0), ..ObservedRun::default() }
        ),
        []
    );
}

#[test]
fn an_equal_run_passes_and_any_other_exact_count_fails() {
    let contract = learn_contract(&[wal_run(), wal_run()]);
    assert_eq!(differences(&contract, &wal_run()), []);
    for (name, count) in [("fdatasync WAL", 11), ("fdatasync WAL", 9), ("unlink file", 1), ("pwrite64 WAL", 0)] {
        let mut run = wal_run();
        run.statements.get_mut(INSERT_STATEMENT).unwrap().calls.insert(name.into(), count);
        let found = judge(&contract, &[differences(&contract, &run)], Some(&run), BPF).differences;
        assert_eq!((found.len(), found[0].what.as_str(), found[0].found), (1, name, count));
    }
}

/// A program's files may contain times, and be compressed; a page of SQLite's is a page.
#[test]
fn bytes_of_a_programs_files_have_a_small_tolerance() {
    let run = |name: &str, bytes: u64| {
        observed_run(&[(INSERT_STATEMENT, section_counts(&[("executions", 10), (name, bytes)], 0.0))])
    };
    for (name, was, is, fails) in [
        ("bytes written file", 477, 478, false),
        ("bytes written file", 477, 541, false),
        ("bytes written file", 477, 542, true),
        ("bytes read file", 100_000, 101_000, false),
        ("bytes read file", 100_000, 101_001, true),
        ("bytes written file", 0, 65, true),
        ("bytes written WAL", 4120, 4121, true),
    ] {
        let found = differences(&learn_contract(&[run(name, was), run(name, was)]), &run(name, is));
        assert_eq!(!found.is_empty(), fails, "{name}: {was}, {is}: {found:?}");
    }
}

#[test]
fn device_counts_fail_only_when_clearly_more() {
    let contract = learn_contract(&[wal_run()]);
    for (flushes, fails) in [(0.0, false), (14.4, false), (15.0, true)] {
        let mut run = wal_run();
        run.statements.get_mut(INSERT_STATEMENT).unwrap().device.insert("flushes".into(), flushes);
        assert_eq!(!differences(&contract, &run).is_empty(), fails, "{flushes}");
    }
}

#[test]
fn counts_that_varied_have_a_band_as_wide_as_their_spread() {
    let run = |reads: u64| observed_run(&[(INSERT_STATEMENT, section_counts(&[("read file", reads)], 0.0))]);
    let contract = learn_contract(&[run(4), run(6)]);
    for (reads, passes) in [(2, true), (8, true), (1, false), (9, false)] {
        assert_eq!(differences(&contract, &run(reads)).is_empty(), passes, "{reads}");
    }
}

#[test]
fn a_difference_must_be_in_every_run() {
    let contract = learn_contract(&[wal_run()]);
    let mut more = wal_run();
    more.statements.get_mut(INSERT_STATEMENT).unwrap().calls.insert("fdatasync WAL".into(), 12);
    let mut less = wal_run();
    less.statements.get_mut(INSERT_STATEMENT).unwrap().calls.insert("fdatasync WAL".into(), 8);
    let [more, less, none] = [&more, &less, &wal_run()].map(|run| differences(&contract, run));
    let passed = |runs: &[&Vec<super::Difference>]| {
        judge(&contract, &runs.iter().map(|r| (*r).clone()).collect::<Vec<_>>(), None, BPF).passed
    };
    assert!(!passed(&[&more, &more]));
    assert!(passed(&[&more, &less]) && passed(&[&more, &none]) && passed(&[&none, &more]));
}

#[test]
fn the_journal_mode_is_named_before_all_else() {
    let contract = learn_contract(&[wal_run()]);
    let delete = [
        ("executions", 10),
        ("pwrite64 rollback journal", 30),
        ("fdatasync rollback journal", 20),
        ("pwrite64 database", 20),
        ("fdatasync database", 10),
        ("fdatasync directory", 10),
        ("unlink rollback journal", 10),
    ];
    let run = observed_run(&[
        ("PRAGMA journal_mode=delete", section_counts(&[("executions", 1)], 0.0)),
        (INSERT_STATEMENT, section_counts(&delete, 40.0)),
    ]);
    let outcome = judge(&contract, &[differences(&contract, &run)], Some(&run), BPF);
    let first =
        format!("{INSERT_STATEMENT}: +20 fdatasync rollback journal (0 -> 20), and with it +30 flushes (10 -> 40)");
    assert_eq!(outcome.first.as_deref(), Some(first.as_str()));
    assert_eq!(outcome.because.as_deref(), Some("journal_mode changed from WAL to DELETE"));
    let text = text::text(&outcome);
    assert!(text.starts_with(&first) && text.contains("  since journal_mode"), "{text}");
}

#[test]
fn a_lost_transaction_is_named() {
    let batch = observed_run(&[
        (INSERT_STATEMENT, section_counts(&[("executions", 10)], 0.0)),
        ("COMMIT", section_counts(&[("executions", 1), ("pwrite64 WAL", 9), ("fdatasync WAL", 1)], 1.0)),
    ]);
    let contract = learn_contract(&[batch]);
    let outcome = judge(&contract, &[differences(&contract, &wal_run())], Some(&wal_run()), BPF);
    assert!(outcome.first.unwrap().starts_with(&format!("{INSERT_STATEMENT}: +10 fdatasync WAL")));
    assert!(outcome.because.unwrap().contains("COMMIT ran 0 times, before 1"));
}

/// As in Django's TestCase: statements that were in one transaction, rolled back at the end, commit by themselves.
#[test]
fn a_transaction_rolled_back_is_no_change_of_synchronous() {
    let journal = [("executions", 10), ("fdatasync rollback journal", 20), ("pwrite64 database", 10)];
    let spoilt = ("pwrite64 rollback journal", 1);
    let batch = observed_run(&[
        (INSERT_STATEMENT, section_counts(&[("executions", 10), spoilt], 0.0)),
        ("BEGIN", section_counts(&[("executions", 1)], 0.0)),
        ("ROLLBACK", section_counts(&[("executions", 1), ("unlink rollback journal", 1)], 0.0)),
    ]);
    let mut each = journal.to_vec();
    each.extend([("pwrite64 rollback journal", 20), ("unlink rollback journal", 10)]);
    let run = observed_run(&[(INSERT_STATEMENT, section_counts(&each, 30.0))]);
    let contract = learn_contract(&[batch]);
    let outcome = judge(&contract, &[differences(&contract, &run)], Some(&run), BPF);
    let because = outcome.because.unwrap();
    assert!(because.contains("no longer share a transaction: BEGIN ran 0 times, before 1"), "{because}");
}

#[test]
fn reads_without_an_index_are_explained() {
    let select = |reads| {
        observed_run(&[(
            "SELECT s FROM t WHERE i=?",
            section_counts(&[("executions", 5), ("rows returned", 5), ("pread64 database", reads)], 0.0),
        )])
    };
    let contract = learn_contract(&[select(20)]);
    let outcome = judge(&contract, &[differences(&contract, &select(2000))], Some(&select(2000)), BPF);
    assert!(outcome.because.unwrap().contains("index is missing"));
}

#[test]
fn an_untraced_run_is_compared_by_its_own_counts() {
    let untraced = |writes| section_counts(&[("write calls", writes)], 0.0);
    let contract = Contract::learn(vec!["app".into()], None, BPF, &[], &[untraced(5), untraced(5)]);
    assert_eq!(contract.counted_by, PROC);
    assert!(untraced_differences(&contract, &untraced(5)).is_empty());
    assert_eq!(untraced_differences(&contract, &untraced(6))[0].delta(), 1);
}

#[test]
fn the_small_trace_is_counted_by_the_kind_of_file() {
    let mut rows = small_trace::rows();
    rows.losses.clear();
    let found = observe(&rows);
    let insert = &found.statements[small_trace::INSERT_STATEMENT];
    // Its third execution has no end, so nothing can be concluded from this recording.
    assert!(found.incomplete.is_some());
    assert_eq!(insert.calls["executions"], 2);
    assert_eq!((insert.calls["pwrite64 rollback journal"], insert.calls["fdatasync rollback journal"]), (4, 2));
    assert_eq!(insert.calls.get("fdatasync database"), Some(&1));
}

#[test]
fn a_read_that_slept_counts_for_the_program() {
    let of = |text: &str| {
        let mut rows = small_trace::rows();
        let shape = rows.shapes.iter_mut().find(|s| s.text == small_trace::INSERT_STATEMENT).unwrap();
        (shape.kind, shape.text) = ("call".into(), text.into());
        observe(&rows)
    };
    let (sync, read) = (of("fdatasync t.db"), of("pread64 t.db"));
    assert_eq!(sync.statements["fdatasync t.db"].calls["executions"], 2);
    assert!(!read.statements.contains_key("pread64 t.db"), "another run may find the page in the cache");
    // A write to a file that was opened with O_DSYNC waits, whatever is cached.
    let mut rows = small_trace::rows();
    let shape = rows.shapes.iter_mut().find(|s| s.text == small_trace::INSERT_STATEMENT).unwrap();
    (shape.kind, shape.text) = ("call".into(), "pwrite64 log".into());
    rows.spans.edit().iter_mut().find(|s| s.kind == "pwrite64").unwrap().flags = "sync".into();
    assert_eq!(observe(&rows).statements["pwrite64 log"].calls["executions"], 2);
    let calls = |one: &SectionCounts| one.calls.get("fdatasync rollback journal").copied();
    assert_eq!(calls(&read.program), calls(&sync.statements["fdatasync t.db"]));
}

/// Runs whose files are named at random in any alphabet are one statement, whose counts are exact: one sync more, or less, is a difference,
/// and the contract is proven to notice it.
#[test]
fn names_that_differ_in_each_run_are_merged() {
    let mut random = Random::new(36);
    let alphabets = ["abcdef0123456789", "ABCDEFGHIJKLMNOP", "abcdefghijklmnopqrstuvwxyz", "αβγδεζηθικλμ", "-_~."];
    for alphabet in alphabets {
        let letters: Vec<char> = alphabet.chars().collect();
        let mut name = || (0..12).map(|_| letters[random.below(letters.len() as u64) as usize]).collect::<String>();
        let mut run = |syncs: u64| {
            let calls = |n| section_counts(&[("executions", n), ("fsync file", n)], 0.0);
            let mut statements = vec![("fsync state.json".to_string(), calls(3))];
            statements.extend((0..syncs).map(|_| (format!("fsync {}", name()), calls(1))));
            ObservedRun { statements: statements.into_iter().collect(), ..ObservedRun::default() }
        };
        let runs: Vec<ObservedRun> = (0..3).map(|_| run(12)).collect();
        let contract = learn_contract(&runs);
        assert_eq!(contract.statements.len(), 2, "{alphabet}: {:?}", contract.statements);
        assert_eq!(contract.varied(), 0);
        assert_eq!(super::proof::unnoticed_sync(&contract, &runs), None);
        for (syncs, delta) in [(12, None), (13, Some(1)), (11, Some(-1)), (0, Some(-12))] {
            let again: Vec<_> = (0..3).map(|_| run(syncs)).collect();
            let found: Vec<_> = again.iter().map(|run| differences(&contract, run)).collect();
            let outcome = judge(&contract, &found, again.last(), BPF);
            let of_syncs = outcome.differences.iter().find(|d| d.what.starts_with("fsync") || d.what == "executions");
            assert_eq!(of_syncs.map(super::Difference::delta), delta, "{alphabet}: {:?}", outcome.differences);
        }
    }
}

/// A contract of runs that differ in their syncs passes one more: it is refused, and says what varied.
#[test]
fn a_contract_that_hides_a_sync_is_refused() {
    let run = |syncs| {
        observed_run(&[(INSERT_STATEMENT, section_counts(&[("executions", 10), ("fdatasync WAL", syncs)], 0.0))])
    };
    let hides = [run(10), run(14)];
    let unnoticed = super::proof::unnoticed_sync(&learn_contract(&hides), &hides).expect("11 is within 10 to 14");
    assert_eq!((unnoticed.what.as_str(), unnoticed.counts), ("fdatasync WAL", [10, 14]));
    assert!(unnoticed.to_string().contains("`fdatasync WAL` (10 to 14)"));
    // What varies besides hides nothing.
    let mut varied = [run(10), run(10)];
    varied[1].program.calls.insert("pread64 file".into(), 5);
    assert_eq!(super::proof::unnoticed_sync(&learn_contract(&varied), &varied), None);
}

/// A scan that was added comes before the reads that became fewer, however many; a sync that is missing comes before both.
#[test]
fn what_was_added_comes_before_what_became_fewer() {
    let run = |reads, scans, syncs| {
        let counts =
            [("executions", 10), ("pread64 database", reads), ("pwrite64 database", scans), ("fdatasync WAL", syncs)];
        observed_run(&[(INSERT_STATEMENT, section_counts(&counts, 0.0))])
    };
    let contract = learn_contract(&[run(900, 10, 5), run(900, 10, 5)]);
    let first = |run: ObservedRun| differences(&contract, &run)[0].what.clone();
    assert_eq!(first(run(10, 12, 5)), "pwrite64 database");
    assert_eq!(first(run(10, 12, 4)), "fdatasync WAL");
}
