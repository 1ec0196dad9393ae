//! Handmade recordings, so that every difference can be calculated.

use super::*;
use analysis::handmade::{DATABASE_FILE, DIRECTORY_FILE, Execution, insert, recording};
use contract::Contribution;
use model::table::{Coverage, File, Operation, Shape};
use model::{Absence, Reason};
use proptest::prelude::*;

fn contribution_of<'d>(rows: &'d [Contribution], phase: &str) -> &'d Contribution {
    rows.iter().find(|row| row.phase.as_deref() == Some(phase)).unwrap_or_else(|| panic!("no {phase} in {rows:?}"))
}

fn count(diff: &Diff, name: &str, file: Option<&str>) -> (f64, f64, bool) {
    let all = &diff.statements[0].counts;
    let found = all.iter().find(|c| c.name == name && c.file.as_deref() == file).unwrap_or_else(|| panic!("{all:?}"));
    (found.a, found.b, found.differs)
}

#[test]
fn a_recording_is_equivalent_to_itself_everywhere() {
    let rows = recording(&vec![insert(); 50]);
    let diff = diff(&rows, &rows);
    assert_eq!((diff.verdict.name(), diff.withheld, diff.latency_ns.ratio), ("equivalent", false, Some(1.0)));
    assert_eq!(diff.latency_ns.a, 50 * 340_000);
    assert_eq!(diff.statements[0].verdict.name(), "equivalent");
    let rows = [&diff.contributions, &diff.phases, &diff.layers, &diff.statements[0].phases];
    for row in rows.into_iter().flatten() {
        assert_eq!((row.delta_ns, row.interval, row.share), (0.0, Some([0.0, 0.0]), None));
    }
    assert!(diff.statements[0].counts.iter().all(|c| !c.differs && c.delta == 0.0));
    assert_eq!(diff.edges, edges::Edges::default());
    assert!(diff.only_a.is_empty() && diff.only_b.is_empty() && diff.facts.is_empty());
}

#[test]
fn an_extra_sync_of_a_directory_is_named_and_charged() {
    let more =
        Execution { calls: [insert().calls, vec![("fdatasync", DIRECTORY_FILE, 60_000, 0)]].concat(), ..insert() };
    let (a, b) = (recording(&vec![insert(); 40]), recording(&vec![more; 40]));
    let diff = diff(&a, &b);
    assert_eq!((diff.verdict.name(), diff.withheld), ("slower", false));
    assert_eq!(diff.slower(10.0).len(), 2, "all together and the statement");
    assert!(diff.slower(20.0).is_empty(), "402 us are 18 % more than 340");
    // 40 times the sync, and SQLite's work before it.
    assert_eq!(diff.latency_ns.delta_ns, 40.0 * 62_000.0);
    let sync = contribution_of(&diff.phases, "fdatasync directory");
    assert_eq!((sync.delta_ns, sync.different_work), (40.0 * 60_000.0, Some(true)));
    assert!((sync.share.unwrap() - 60.0 / 62.0).abs() < 1e-9);
    let driver = diff.layers.iter().find(|row| row.layer == Some(Layer::Driver)).unwrap();
    assert_eq!((driver.reason, driver.delta_ns), (Some(Reason::Flush), 40.0 * 30_000.0));
    assert_eq!(diff.different_work_ns.unwrap().delta_ns, 40.0 * 60_000.0);
    assert_eq!(count(&diff, "flushes", None), (2.0, 3.0, true));
    assert_eq!(count(&diff, "fdatasync", Some("directory")), (0.0, 1.0, true));
    assert_eq!(count(&diff, "fdatasync", Some("database")), (1.0, 1.0, false));
    assert!(diff.edges.only_a.is_empty());
    let edges: Vec<(&str, u64, u64, bool)> =
        diff.edges.only_b.iter().map(|e| (e.edge.as_str(), e.executions, e.of, e.sure)).collect();
    assert_eq!(edges, [("first fdatasync directory", 40, 40, true), ("third flush", 40, 40, true)]);
    let text_shown = text::text(&diff);
    assert!(
        text_shown.contains("fdatasync directory") && text_shown.contains("third flush (40 of 40)"),
        "{text_shown}"
    );
    assert!(text_shown.lines().all(|line| line.chars().count() <= 100), "{text_shown}");
}

#[test]
fn statements_beyond_those_shown_are_not_said_to_be_small() {
    let rows = recording(&vec![insert(); 50]);
    let mut diff = diff(&rows, &rows);
    let each = |n: usize| contract::Statement { statement: format!("statement {n}"), ..diff.statements[0].clone() };
    let small = |n: usize| {
        let mut small = each(n);
        (small.latency_ns.a, small.latency_ns.b) = (1, 1);
        small
    };
    let (large, small): (Vec<_>, Vec<_>) = ((0..15).map(each).collect(), (15..17).map(small).collect());
    let mut of = |statements: Vec<contract::Statement>| {
        diff.statements = statements;
        text::text(&diff)
    };
    let text = of(large.clone());
    assert!(text.contains("\n3 more statements (--json lists all)") && !text.contains("below 1 %"), "{text}");
    let text = of([large, small.clone()].concat());
    assert!(text.contains("\n3 more statements, 2 others below 1 % of the time (--json lists all)"), "{text}");
    let text = of(small);
    assert!(text.contains("\n2 more statements below 1 % of the time (--json lists all)"), "{text}");
}

#[test]
fn the_same_work_in_more_time_is_inconclusive() {
    let slow = Execution {
        calls: insert().calls.into_iter().map(|(kind, file, ns, bytes)| (kind, file, 2 * ns, bytes)).collect(),
        ..insert()
    };
    let diff = diff(&recording(&vec![insert(); 40]), &recording(&vec![slow; 40]));
    assert_eq!(diff.verdict.name(), "inconclusive");
    assert!(diff.why.contains("busier machine"), "{}", diff.why);
    assert!(diff.latency_ns.ratio_interval.unwrap()[0] > 1.9, "the times are known well: {:?}", diff.latency_ns);
    assert!(diff.contributions.iter().all(|row| row.share.is_none()), "nothing is accused");
    assert_eq!(diff.different_work_ns.unwrap().delta_ns, 0.0);
    assert!(!diff.withheld && diff.slower(0.0).is_empty());
}

#[test]
fn noise_around_equal_work_is_inconclusive() {
    let noisy = |seed: u64| -> Vec<Execution> {
        let mut random = stats::random::Random::new(seed);
        (0..60)
            .map(|_| Execution {
                calls: insert()
                    .calls
                    .into_iter()
                    .map(|(k, f, ns, b)| (k, f, ns / 2 + random.below(4 * ns), b))
                    .collect(),
                ..insert()
            })
            .collect()
    };
    for seed in 0..10 {
        let diff = diff(&recording(&noisy(seed)), &recording(&noisy(100 + seed)));
        assert!(["inconclusive", "equivalent"].contains(&diff.verdict.name()), "{seed}: {}", diff.verdict);
    }
}

#[test]
fn few_executions_have_no_verdict() {
    let more = Execution { calls: [insert().calls, insert().calls].concat(), ..insert() };
    let diff = diff(&recording(&vec![insert(); 5]), &recording(&vec![more; 5]));
    assert_eq!((diff.verdict.name(), diff.latency_ns.interval), ("inconclusive", None));
    assert!(diff.why.contains("too few"), "{}", diff.why);
    assert_eq!(count(&diff, "flushes", None), (2.0, 4.0, false), "reported, but not judged");
}

#[test]
fn executions_without_a_counterpart_are_only_listed() {
    let mut b = recording(&vec![insert(); 60]);
    b.shapes.push(Shape { id: 2, kind: "statement".into(), text: "SELECT ?".into() });
    b.operations.edit()[59].shape = 2;
    let diff = diff(&recording(&vec![insert(); 50]), &b);
    assert_eq!((diff.verdict.name(), diff.statements[0].pairs), ("equivalent", 50));
    assert_eq!((diff.statements[0].left_a, diff.statements[0].left_b), (0, 9));
    assert_eq!(diff.only_b.iter().map(|s| (s.statement.as_str(), s.count)).collect::<Vec<_>>(), [("SELECT ?", 1)]);
    assert_eq!((diff.latency_ns.a, diff.latency_ns.b), (50 * 340_000, 50 * 340_000));
}

/// Where calls are the operations, missing syncs are executions without a counterpart: they are the difference.
#[test]
fn executions_of_one_recording_are_named_first() {
    let with = |syncs: usize, slow: u64| {
        let one = Execution { outside_ns: slow, ..insert() };
        let mut rows = recording(&[vec![one; 3], vec![insert(); syncs]].concat());
        rows.shapes.push(Shape { id: 2, kind: "call".into(), text: "fdatasync a.log".into() });
        rows.operations.edit()[3..].iter_mut().for_each(|o| o.shape = 2);
        // Ordinals are per statement.
        rows.operations.edit()[3..].iter_mut().for_each(|o| o.nth -= 3);
        rows
    };
    let diff = diff(&with(40, 1_000), &with(2, 30_000));
    assert_eq!((diff.statements[0].statement.as_str(), diff.statements[0].left_a), ("fdatasync a.log", 38));
    let text = text::text(&diff);
    let [named, table] = ["38 of A (fdatasync a.log)", "phase "].map(|what| text.find(what).unwrap_or(usize::MAX));
    assert!(named < table && table < usize::MAX, "{text}");
    assert!(text.contains("the counts of those compared agree"), "{text}");
}

#[test]
fn nested_executions_count_once_in_the_total() {
    let nest = |mut rows: Rows| {
        rows.shapes.push(Shape { id: 2, kind: "function".into(), text: "handle".into() });
        let outer: Vec<Operation> = rows
            .operations
            .iter()
            .map(|o| Operation { id: o.id + 10_000, span: o.id + 10_000, shape: 2, ..o.clone() })
            .collect();
        let slices: Vec<Slice> =
            rows.slices.iter().map(|s| Slice { operation: s.operation + 10_000, ..s.clone() }).collect();
        rows.operations.edit().iter_mut().for_each(|o| o.parent = Some(o.id + 10_000));
        rows.operations.extend(outer);
        rows.slices.extend(slices);
        rows
    };
    let more = Execution { calls: [insert().calls, vec![("fsync", DATABASE_FILE, 60_000, 0)]].concat(), ..insert() };
    let (a, b) = (nest(recording(&vec![insert(); 20])), nest(recording(&vec![more; 20])));
    let diff = diff(&a, &b);
    assert_eq!((diff.statements.len(), diff.latency_ns.a), (2, 20 * 340_000));
    assert_eq!(diff.latency_ns.delta_ns, 20.0 * 62_000.0);
    assert!(diff.statements.iter().all(|s| s.latency_ns.delta_ns == 20.0 * 62_000.0 && s.verdict.name() == "slower"));
}

#[test]
fn a_checkpoint_is_an_edge_of_the_recording_that_has_it() {
    const WAL_FILE: u64 = 4;
    let plain = Execution { outside_ns: 1000, calls: vec![("pwrite64", WAL_FILE, 5_000, 4120)] };
    let checkpoint = Execution {
        calls: [
            plain.calls.clone(),
            vec![("pwrite64", DATABASE_FILE, 5_000, 4096), ("fdatasync", DATABASE_FILE, 90_000, 0)],
        ]
        .concat(),
        ..plain.clone()
    };
    let with_wal = |executions: &[Execution]| {
        let mut rows = recording(executions);
        rows.files.push(File { id: WAL_FILE, dev: 1, ino: 9, path: Some("/m/t.db-wal".into()), start_ns: 0 });
        rows
    };
    let mut executions = vec![plain; 100];
    let a = with_wal(&executions);
    executions.iter_mut().step_by(10).for_each(|execution| *execution = checkpoint.clone());
    let diff = diff(&a, &with_wal(&executions));
    let named: Vec<&str> = diff.edges.only_b.iter().filter(|e| e.sure).map(|e| e.edge.as_str()).collect();
    assert!(named.contains(&"WAL checkpoint") && named.contains(&"first fdatasync database"), "{named:?}");
    assert_eq!(diff.verdict.name(), "slower");
}

#[test]
fn a_verdict_is_withheld_where_recordings_saw_different_things() {
    let more = Execution { calls: [insert().calls, insert().calls].concat(), ..insert() };
    let (a, mut b) = (recording(&vec![insert(); 40]), recording(&vec![more; 40]));
    assert_eq!(diff(&a, &b).verdict.name(), "slower");
    b.coverage.push(Coverage::absent(Layer::RunQueue, "sched_switch", Absence::NotPermitted, "lockdown"));
    let done = diff(&a, &b);
    assert_eq!((done.verdict.name(), done.withheld), ("inconclusive", true));
    assert!(done.why.starts_with("only in B: sleeping and waiting"), "{}", done.why);
    assert!(done.contributions.iter().all(|row| row.share.is_none()));
    assert!(done.statements.iter().all(|s| s.verdict.name() == "inconclusive"));
}

/// Two guests of an emulator: the work differs, and the ratio of the times is that of the emulator.
#[test]
fn times_of_an_emulated_processor_make_no_verdict() {
    let more = Execution { calls: [insert().calls, insert().calls].concat(), ..insert() };
    for (of_a, of_b) in [(true, true), (true, false), (false, true)] {
        let (mut a, mut b) = (recording(&vec![insert(); 40]), recording(&vec![more.clone(); 40]));
        a.facts.extend(of_a.then(analysis::small_trace::emulated_fact));
        b.facts.extend(of_b.then(analysis::small_trace::emulated_fact));
        let done = diff(&a, &b);
        assert_eq!((done.verdict.name(), done.withheld), ("inconclusive", true));
        assert!(done.why.contains("emulated") && done.slower(0.0).is_empty(), "{}", done.why);
        let statement = &done.statements[0];
        assert_eq!((statement.verdict.name(), &statement.why), ("inconclusive", &done.why));
        let shares = done.contributions.iter().chain(&done.phases).chain(&statement.phases);
        assert!(shares.into_iter().all(|row| row.share.is_none()));
        assert_eq!([&done.a, &done.b].map(|side| side.caveats.against_times().is_some()), [of_a, of_b]);
        assert!(text::text(&done).contains("   the processor is emulated (QEMU's TCG)"));
        assert!(statement.counts.iter().any(|count| count.differs), "counts are as on any processor");
    }
}

/// Recordings of several runs decide by their times alone.
#[test]
fn times_of_an_emulated_processor_decide_nothing_however_many() {
    let sides = |scale: u64| -> Vec<Rows> {
        let execution = |n: u64| Execution { outside_ns: (2_000 + n) * scale, ..insert() };
        (0..6).map(|n| recording(&vec![execution(n); 10])).collect()
    };
    let (a, mut b) = (sides(1), sides(100));
    let judged = |a: &[Rows], b: &[Rows]| {
        let seen: Vec<RecordingGaps> =
            a.iter().chain(b).map(|rows| RecordingGaps::from_index(&Index::new(rows), "A".into())).collect();
        let of = |side: &[Rows]| side.iter().map(Recording::from_rows).collect::<Vec<_>>();
        recordings::compare(&of(a), &of(b), |executions| Basis::from_gaps(&seen, executions))
    };
    let (all, statements, _) = judged(&a, &b);
    assert_eq!(all.whole.verdict.name(), "slower");
    assert!(statements.values().all(|one| one.verdict.name() == "slower"));
    b[3].facts.push(analysis::small_trace::emulated_fact());
    let (all, statements, basis) = judged(&a, &b);
    assert!(basis.is_withheld());
    assert_eq!(all.whole.verdict.name(), "inconclusive");
    assert!(statements.values().all(|one| one.verdict.name() == "inconclusive"));
}

#[test]
fn a_verdict_is_withheld_where_executions_may_be_lost() {
    let more = Execution { calls: [insert().calls, insert().calls].concat(), ..insert() };
    let (a, mut b) = (recording(&vec![insert(); 40]), recording(&vec![more; 40]));
    b.coverage.push(Coverage::attached(Layer::Driver, "rq_done", "tp_btf"));
    b.losses.push(LossRow {
        id: 1,
        source: LossSource::NotRun,
        cpu: None,
        start_ns: 0,
        end_ns: 9,
        events: Some(500),
        at_least: false,
        program: Some("rq_done".into()),
    });
    let done = diff(&a, &b);
    assert_eq!((done.verdict.name(), done.withheld), ("slower", false), "completions hide no execution");
    assert!(text::text(&done).contains("500 records; executions are not affected"));
    b.losses[0] = LossRow { source: LossSource::Ring, program: None, ..b.losses[0].clone() };
    let done = diff(&a, &b);
    assert_eq!((done.verdict.name(), done.withheld), ("inconclusive", true));
    assert!(done.why.contains("B lost 500 records"), "{}", done.why);
}

#[test]
fn recordings_without_a_common_statement_have_no_verdict() {
    let mut b = recording(&vec![insert(); 10]);
    b.shapes[0].text = "DELETE FROM t".into();
    let diff = diff(&recording(&vec![insert(); 10]), &b);
    assert_eq!((diff.verdict.name(), diff.withheld, diff.statements.len()), ("inconclusive", true, 0));
    assert!(diff.why.contains("no statement in common"));
    assert_eq!((diff.only_a.len(), diff.only_b.len()), (1, 1));
    assert!(text::text(&diff).contains("Statements of B only"));
}

/// Executions of any length with any kinds of calls.
fn executions() -> impl Strategy<Value = Vec<Execution>> {
    let call = (
        prop::sample::select(vec!["pwrite64", "pread64", "fdatasync", "fsync", "unlink"]),
        1..4_u64,
        0..1_000_000_u64,
        0..9000_u64,
    );
    let execution = (0..10_000_u64, prop::collection::vec(call, 0..5))
        .prop_map(|(outside_ns, calls)| Execution { outside_ns, calls });
    prop::collection::vec(execution, 0..40)
}

fn near(a: f64, b: f64, of: f64) -> bool {
    (a - b).abs() <= 1e-6 * of.abs().max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn swapped_recordings_give_mirrored_differences(a in executions(), b in executions()) {
        let (a, b) = (recording(&a), recording(&b));
        let (there, back) = (diff(&a, &b), diff(&b, &a));
        let mirrored = |v: Verdict| match v { Verdict::Slower => Verdict::Faster, Verdict::Faster => Verdict::Slower, v => v };
        prop_assert_eq!(back.verdict, mirrored(there.verdict));
        prop_assert!(there.latency_ns.delta_ns == -back.latency_ns.delta_ns);
        prop_assert_eq!(&there.edges.only_a, &back.edges.only_b);
        prop_assert_eq!(&there.only_b, &back.only_a);
        let all = (there.latency_ns.a + there.latency_ns.b) as f64;
        for row in &there.contributions {
            let same = back.contributions.iter().find(|r| (&r.phase, r.layer, r.reason) == (&row.phase, row.layer, row.reason)).unwrap();
            prop_assert!(near(same.delta_ns, -row.delta_ns, all) && same.different_work == row.different_work);
            match (same.interval, row.interval) {
                (Some([low, high]), Some(ends)) => prop_assert!(near(low, -ends[1], all) && near(high, -ends[0], all)),
                (x, y) => prop_assert_eq!(x, y),
            }
        }
    }

    #[test]
    fn contributions_add_up_to_difference(a in executions(), b in executions()) {
        let done = diff(&recording(&a), &recording(&b));
        let all = (done.latency_ns.a + done.latency_ns.b) as f64;
        let statements = done.statements.iter().flat_map(|s| [(&s.phases, &s.latency_ns), (&s.layers, &s.latency_ns)]);
        let whole = [&done.contributions, &done.phases, &done.layers].map(|rows| (rows, &done.latency_ns));
        for (rows, times) in whole.into_iter().chain(statements) {
            prop_assert!(near(rows.iter().map(|r| r.delta_ns).sum(), times.delta_ns, all));
            prop_assert!(near(rows.iter().map(|r| r.a_ns).sum(), times.a as f64, all));
            if ["slower", "faster"].contains(&done.verdict.name()) {
                let shares: f64 = rows.iter().filter_map(|r| r.share).sum();
                prop_assert!(near(shares, 1.0, 1.0), "{}", shares);
            }
        }
    }

    #[test]
    fn any_recording_is_no_different_from_itself(a in executions()) {
        let rows = recording(&a);
        let done = diff(&rows, &rows);
        let expected = if a.len() < 6 || done.latency_ns.a == 0 { "inconclusive" } else { "equivalent" };
        prop_assert_eq!(done.verdict.name(), expected);
        prop_assert!(done.statements.iter().all(|s| s.latency_ns.delta_ns == 0.0));
        prop_assert_eq!(done.edges, edges::Edges::default());
    }
}

/// 72 more fsyncs are 72 more fsyncs, though no statement is in both and times decide nothing.
#[test]
fn totals_compare_without_a_common_statement() {
    use super::contract::Direction;
    let [mut a, mut b] = [insert(), insert()].map(|one| recording(&vec![one; 24]));
    (a.shapes[0].text, b.shapes[0].text) = ("one".into(), "another".into());
    let process = |rows: &Rows| {
        let tgid = rows.operations.at(0).tgid;
        model::table::Process { tgid, name: "app".into(), parent: None, tracked: true }
    };
    let (of_a, of_b) = (process(&a), process(&b));
    a.processes.push(of_a);
    b.processes.push(of_b);
    let same = diff(&a, &b);
    assert!(
        !same.counts.is_empty() && same.counts.iter().all(|one| one.direction == Direction::Same),
        "{:?}",
        same.counts
    );
    let sync = b.spans.iter().find(|span| span.kind == "fdatasync").expect("a sync");
    for nth in 0..72 {
        let span = model::table::Span { id: 500_000 + nth, kind: "fsync".into(), operation: None, ..sync.clone() };
        b.spans.push(span);
    }
    for (a, b, direction, sign) in [(&a, &b, Direction::More, "+"), (&b, &a, Direction::Fewer, "-")] {
        let found = diff(a, b);
        assert!(found.statements.is_empty());
        let first = &found.counts[0];
        assert_eq!((first.direction, first.delta.unsigned_abs()), (direction, 72), "{first:?}");
        assert!(first.what.starts_with("fsync "), "{first:?}");
        let said = text::text(&found);
        assert!(said.contains(&format!("  {sign}72 fsync ")), "{said}");
        // The whole time of each side is in the rows, whatever has a partner.
        let sums = found.times.iter().fold([0, 0], |[a, b], one| [a + one.a_ns, b + one.b_ns]);
        let whole = [a, b].map(|rows| {
            let done = crate::explain::explain(rows);
            done.account.whole_ns + done.between.whole_ns - done.between.operations_ns
        });
        assert_eq!(sums, whole);
    }
}
