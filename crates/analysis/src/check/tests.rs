//! Contracts of handmade counts, and of the small trace.

use super::compare::of_proc;
use super::contract::{BPF, Contract, PROC};
use super::observe::{Counted, Observed, observe};
use super::{differences, judge, text};
use crate::case;

fn one(calls: &[(&str, u64)], flushes: f64) -> Counted {
    Counted {
        calls: calls.iter().map(|(name, n)| (name.to_string(), *n)).collect(),
        device: [("flushes".to_string(), flushes)].into(),
        ..Counted::default()
    }
}

fn observed(statements: &[(&str, Counted)]) -> Observed {
    Observed {
        statements: statements.iter().map(|(text, one)| (text.to_string(), one.clone())).collect(),
        ..Observed::default()
    }
}

const INSERT: &str = "INSERT INTO orders VALUES (?)";

fn wal() -> Observed {
    observed(&[(INSERT, one(&[("executions", 10), ("pwrite64 WAL", 20), ("fdatasync WAL", 10)], 10.0))])
}

fn learnt(runs: &[Observed]) -> Contract {
    Contract::learn(vec!["app".into()], None, runs, &[])
}

#[test]
fn contract_survives_its_file() {
    let mut second = wal();
    second.statements.get_mut(INSERT).unwrap().calls.insert("open WAL".into(), 1);
    let contract = Contract::learn(
        vec!["app".into(), "a b".into()],
        Some("rm x".into()),
        &[wal(), second],
        &[one(&[("read calls", 3)], 0.0)],
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
        let named: Vec<(String, Counted)> = (0..files)
            .map(|_| {
                nth += 1;
                let calls = [("executions", syncs), ("fsync file", syncs)];
                (format!("fsync out/tmp{}", nth * 7919), one(&calls[..if syncs == 0 { 0 } else { 2 }], 0.0))
            })
            .filter(|(_, counted)| !counted.calls.is_empty())
            .collect();
        let program = one(&[("rename file", files), ("write file", files)], 0.0);
        Observed { program, statements: named.into_iter().collect(), ..Observed::default() }
    };
    let contracts = [(1, learnt(&[run(1, 12), run(1, 12)])), (0, learnt(&[run(0, 12), run(0, 12)]))];
    for (was, contract) in contracts {
        for is in [0, 1, 3] {
            let runs: Vec<Observed> = (0..3).map(|_| run(is, 12)).collect();
            let found: Vec<_> = runs.iter().map(|run| differences(&contract, run)).collect();
            let outcome = judge(&contract, &found, runs.last(), BPF);
            assert_eq!(outcome.passed, is == was, "{was} -> {is}: {:?}", outcome.differences);
            let (was, is) = (12 * was, 12 * is);
            let sign = if is > was { "+" } else { "" };
            let said = format!("whole program: {sign}{} fsync file ({was} -> {is})", is as i64 - was as i64);
            assert!(outcome.passed || outcome.first.as_deref() == Some(said.as_str()), "{:?}", outcome.first);
        }
    }
}

/// What a statement's count explains is not repeated for the whole.
#[test]
fn total_is_not_listed_beside_its_parts() {
    let contract = learnt(&[wal()]);
    let same = judge(&contract, &[differences(&contract, &wal())], Some(&wal()), BPF);
    assert!(same.passed && !text::text(&same).contains("totals"));
    let mut run = wal();
    run.statements.get_mut(INSERT).unwrap().calls.insert("fdatasync WAL".into(), 12);
    let outcome = judge(&contract, &[differences(&contract, &run)], Some(&run), BPF);
    assert!(!outcome.passed && outcome.differences.iter().all(|d| !d.total), "{:?}", outcome.differences);
    let older = Contract { total: None, ..contract };
    assert!(!judge(&older, &[differences(&older, &run)], Some(&run), BPF).passed);
    // What an older contract does not compare is said.
    let passed = judge(&older, &[differences(&older, &wal())], Some(&wal()), BPF);
    assert!(passed.passed && text::text(&passed).contains("has no totals"), "{}", text::text(&passed));
}

/// A slip of an editor must not make a contract that every run fulfils.
#[test]
fn contract_that_compares_less_than_it_seems_is_refused() {
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
fn largest_numbers_of_contract_do_not_overflow() {
    let most = u64::MAX;
    let text = format!(
        "version = 1\ncommand = []\nruns = 3\ncounted_by = \"BPF\"\n[program.varied]\nfsync = [1, {}]\n[program.device]\nflushes = [0, {}]\n",
        most / 2,
        most / 2
    );
    let contract = Contract::parse(&text).unwrap();
    assert_eq!(differences(&contract, &Observed { program: one(&[("fsync", 5)], 3.0), ..Observed::default() }), []);
}

#[test]
fn equal_run_passes_and_any_exact_count_fails() {
    let contract = learnt(&[wal(), wal()]);
    assert_eq!(differences(&contract, &wal()), []);
    for (name, count) in [("fdatasync WAL", 11), ("fdatasync WAL", 9), ("unlink file", 1), ("pwrite64 WAL", 0)] {
        let mut run = wal();
        run.statements.get_mut(INSERT).unwrap().calls.insert(name.into(), count);
        let found = judge(&contract, &[differences(&contract, &run)], Some(&run), BPF).differences;
        assert_eq!((found.len(), found[0].what.as_str(), found[0].found), (1, name, count));
    }
}

/// A program's files may contain times, and be compressed; a page of SQLite's is a page.
#[test]
fn bytes_of_programs_files_have_small_tolerance() {
    let run = |name: &str, bytes: u64| observed(&[(INSERT, one(&[("executions", 10), (name, bytes)], 0.0))]);
    for (name, was, is, fails) in [
        ("bytes written file", 477, 478, false),
        ("bytes written file", 477, 541, false),
        ("bytes written file", 477, 542, true),
        ("bytes read file", 100_000, 101_000, false),
        ("bytes read file", 100_000, 101_001, true),
        ("bytes written file", 0, 65, true),
        ("bytes written WAL", 4120, 4121, true),
    ] {
        let found = differences(&learnt(&[run(name, was), run(name, was)]), &run(name, is));
        assert_eq!(!found.is_empty(), fails, "{name}: {was}, {is}: {found:?}");
    }
}

#[test]
fn device_counts_fail_only_when_clearly_more() {
    let contract = learnt(&[wal()]);
    for (flushes, fails) in [(0.0, false), (14.4, false), (15.0, true)] {
        let mut run = wal();
        run.statements.get_mut(INSERT).unwrap().device.insert("flushes".into(), flushes);
        assert_eq!(!differences(&contract, &run).is_empty(), fails, "{flushes}");
    }
}

#[test]
fn counts_that_varied_have_band_of_their_spread() {
    let run = |reads: u64| observed(&[(INSERT, one(&[("read file", reads)], 0.0))]);
    let contract = learnt(&[run(4), run(6)]);
    for (reads, passes) in [(2, true), (8, true), (1, false), (9, false)] {
        assert_eq!(differences(&contract, &run(reads)).is_empty(), passes, "{reads}");
    }
}

#[test]
fn difference_must_be_in_every_run() {
    let contract = learnt(&[wal()]);
    let mut more = wal();
    more.statements.get_mut(INSERT).unwrap().calls.insert("fdatasync WAL".into(), 12);
    let mut less = wal();
    less.statements.get_mut(INSERT).unwrap().calls.insert("fdatasync WAL".into(), 8);
    let [more, less, none] = [&more, &less, &wal()].map(|run| differences(&contract, run));
    let passed = |runs: &[&Vec<super::Difference>]| {
        judge(&contract, &runs.iter().map(|r| (*r).clone()).collect::<Vec<_>>(), None, BPF).passed
    };
    assert!(!passed(&[&more, &more]));
    assert!(passed(&[&more, &less]) && passed(&[&more, &none]) && passed(&[&none, &more]));
}

#[test]
fn journal_mode_is_named_before_all_else() {
    let contract = learnt(&[wal()]);
    let delete = [
        ("executions", 10),
        ("pwrite64 rollback journal", 30),
        ("fdatasync rollback journal", 20),
        ("pwrite64 database", 20),
        ("fdatasync database", 10),
        ("fdatasync directory", 10),
        ("unlink rollback journal", 10),
    ];
    let run = observed(&[("PRAGMA journal_mode=delete", one(&[("executions", 1)], 0.0)), (INSERT, one(&delete, 40.0))]);
    let outcome = judge(&contract, &[differences(&contract, &run)], Some(&run), BPF);
    let first = format!("{INSERT}: +20 fdatasync rollback journal (0 -> 20), and with it +30 flushes (10 -> 40)");
    assert_eq!(outcome.first.as_deref(), Some(first.as_str()));
    assert_eq!(outcome.because.as_deref(), Some("journal_mode changed from WAL to DELETE"));
    let text = text::text(&outcome);
    assert!(text.starts_with(&first) && text.contains("  since journal_mode"), "{text}");
}

#[test]
fn lost_transaction_is_named() {
    let batch = observed(&[
        (INSERT, one(&[("executions", 10)], 0.0)),
        ("COMMIT", one(&[("executions", 1), ("pwrite64 WAL", 9), ("fdatasync WAL", 1)], 1.0)),
    ]);
    let contract = learnt(&[batch]);
    let outcome = judge(&contract, &[differences(&contract, &wal())], Some(&wal()), BPF);
    assert!(outcome.first.unwrap().starts_with(&format!("{INSERT}: +10 fdatasync WAL")));
    assert!(outcome.because.unwrap().contains("COMMIT ran 0 times, before 1"));
}

/// As in Django's TestCase: statements that were in one transaction, rolled back at the end, commit by themselves.
#[test]
fn transaction_that_was_rolled_back_is_no_other_synchronous() {
    let journal = [("executions", 10), ("fdatasync rollback journal", 20), ("pwrite64 database", 10)];
    let spoilt = ("pwrite64 rollback journal", 1);
    let batch = observed(&[
        (INSERT, one(&[("executions", 10), spoilt], 0.0)),
        ("BEGIN", one(&[("executions", 1)], 0.0)),
        ("ROLLBACK", one(&[("executions", 1), ("unlink rollback journal", 1)], 0.0)),
    ]);
    let mut each = journal.to_vec();
    each.extend([("pwrite64 rollback journal", 20), ("unlink rollback journal", 10)]);
    let run = observed(&[(INSERT, one(&each, 30.0))]);
    let contract = learnt(&[batch]);
    let outcome = judge(&contract, &[differences(&contract, &run)], Some(&run), BPF);
    let because = outcome.because.unwrap();
    assert!(because.contains("no longer share a transaction: BEGIN ran 0 times, before 1"), "{because}");
}

#[test]
fn reads_without_index_are_explained() {
    let select = |reads| {
        observed(&[(
            "SELECT s FROM t WHERE i=?",
            one(&[("executions", 5), ("rows returned", 5), ("pread64 database", reads)], 0.0),
        )])
    };
    let contract = learnt(&[select(20)]);
    let outcome = judge(&contract, &[differences(&contract, &select(2000))], Some(&select(2000)), BPF);
    assert!(outcome.because.unwrap().contains("index is missing"));
}

#[test]
fn untraced_run_is_compared_by_its_own_counts() {
    let untraced = |writes| one(&[("write calls", writes)], 0.0);
    let contract = Contract::learn(vec!["app".into()], None, &[], &[untraced(5), untraced(5)]);
    assert_eq!(contract.counted_by, PROC);
    assert!(of_proc(&contract, &untraced(5)).is_empty());
    assert_eq!(of_proc(&contract, &untraced(6))[0].delta(), 1);
}

#[test]
fn small_trace_is_counted_by_kind_of_file() {
    let mut rows = case::rows();
    rows.losses.clear();
    let found = observe(&rows);
    let insert = &found.statements[case::INSERT];
    // Its third execution has no end, so nothing can be concluded from this recording.
    assert!(found.incomplete.is_some());
    assert_eq!(insert.calls["executions"], 2);
    assert_eq!((insert.calls["pwrite64 rollback journal"], insert.calls["fdatasync rollback journal"]), (4, 2));
    assert_eq!(insert.calls.get("fdatasync database"), Some(&1));
}

#[test]
fn read_that_slept_counts_as_programs() {
    let of = |text: &str| {
        let mut rows = case::rows();
        let shape = rows.shapes.iter_mut().find(|s| s.text == case::INSERT).unwrap();
        (shape.kind, shape.text) = ("call".into(), text.into());
        observe(&rows)
    };
    let (sync, read) = (of("fdatasync t.db"), of("pread64 t.db"));
    assert_eq!(sync.statements["fdatasync t.db"].calls["executions"], 2);
    assert!(!read.statements.contains_key("pread64 t.db"), "another run may find the page in the cache");
    // A write to a file that was opened with O_DSYNC waits, whatever is cached.
    let mut rows = case::rows();
    let shape = rows.shapes.iter_mut().find(|s| s.text == case::INSERT).unwrap();
    (shape.kind, shape.text) = ("call".into(), "pwrite64 log".into());
    rows.spans.edit().iter_mut().find(|s| s.kind == "pwrite64").unwrap().flags = "sync".into();
    assert_eq!(observe(&rows).statements["pwrite64 log"].calls["executions"], 2);
    let calls = |one: &Counted| one.calls.get("fdatasync rollback journal").copied();
    assert_eq!(calls(&read.program), calls(&sync.statements["fdatasync t.db"]));
}
