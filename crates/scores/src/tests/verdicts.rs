//! Tests of comparisons, histories and tables, on benchmarks with known results.

use crate::comparability::Rules;
use crate::compare::{BenchComparison, compare_across, compare_archives, compare_within};
use crate::results::Bench;
use crate::synthetic::bench;
use crate::{compare_text, history};
use stats::verdict::Better;

fn verdicts(c: &BenchComparison) -> Vec<&str> {
    c.results.iter().map(|p| p.verdict.name()).collect()
}

#[test]
fn cells_are_matched_by_factors_and_judged_per_unit_of_work() {
    let (mut a, mut b) = (bench("a", "w"), bench("b", "w"));
    a.add(&[("op", "x"), ("size", "1")], 100.0, 1000.0, 10);
    a.add(&[("op", "x"), ("size", "2")], 100.0, 1000.0, 10);
    a.add(&[("op", "x"), ("size", "3")], 100.0, 1000.0, 10);
    a.add(&[("op", "y")], 100.0, 1000.0, 10);
    // In another order, with iterations of another size.
    b.add(&[("op", "z")], 100.0, 500.0, 10);
    b.add(&[("op", "x"), ("size", "3")], 80.0, 500.0, 10);
    b.add(&[("op", "x"), ("size", "2")], 125.0, 500.0, 10);
    b.add(&[("op", "x"), ("size", "1")], 100.0, 500.0, 10);
    let c = compare_archives(&a, &b, &Rules::default());
    assert_eq!(verdicts(&c), ["equivalent", "slower", "faster"]);
    let ratios: Vec<f64> = c.results.iter().map(|p| p.ratio.unwrap()).collect();
    for (ratio, truth) in ratios.iter().zip([1.0, 0.8, 1.25]) {
        assert!((ratio / truth - 1.0).abs() < 0.01, "{ratio} {truth}");
    }
    let p = &c.results[1];
    assert!((p.a.estimate.unwrap() / 1e7 - 1.0).abs() < 0.01 && p.unit == "row/s" && p.higher_is_better);
    assert!(p.second.cliffs_delta == Some(-1.0) && p.second.mann_whitney_p.unwrap() < 0.001 && p.notes.is_empty());
    assert!(p.second.shift.unwrap() < 0.0 && p.p_adjusted.unwrap() >= p.p.unwrap());
    let alone: Vec<(&str, &str)> = c.unmatched.iter().map(|u| (u.of, u.parameters["op"].as_str())).collect();
    assert_eq!(alone, [("a", "y"), ("b", "z")]);
    // The three ratios multiply to 1.
    let overall = c.overall.as_ref().unwrap();
    assert!((overall.speed - 1.0).abs() < 0.005 && overall.cells == 3);

    assert_eq!((c.slower(0.0).len(), c.slower(20.0).len(), c.slower(30.0).len()), (1, 1, 0));
    assert!(compare_archives(&b, &a, &Rules::default()).slower(20.0)[0].title().contains("size=3"));
}

#[test]
fn times_of_an_emulated_processor_are_not_compared() {
    let (mut a, mut b) = (bench("a", "w"), bench("b", "w"));
    a.add(&[("op", "x")], 100.0, 1000.0, 10);
    b.add(&[("op", "x")], 200.0, 1000.0, 10);
    assert_eq!(verdicts(&compare_archives(&a, &b, &Rules::default())), ["slower"]);
    b.fact("virtual.accelerator", "tcg", "boot");
    let c = compare_archives(&a, &b, &Rules::default());
    assert!(c.results.is_empty() && c.overall.is_none() && c.slower(0.0).is_empty());
    assert!(c.incomparable[0].words().contains("the processor of B was emulated"), "{:?}", c.incomparable);
}

#[test]
fn differences_within_the_self_comparisons_noise_are_no_finding() {
    let (mut a, mut b) = (bench("a", "w"), bench("b", "w"));
    a.add(&[("op", "x")], 100.0, 1000.0, 10);
    b.add(&[("op", "x")], 105.0, 1000.0, 10);
    assert_eq!(verdicts(&compare_archives(&a, &b, &Rules::default())), ["slower"]);
    // A twin of the cell that seems 8 % slower: this much is the machine's noise.
    let twin = a.add(&[("op", "x")], 108.0, 1000.0, 10) as usize;
    a.tables.cells[twin].same_as = Some(a.tables.cells[0].name.clone());
    a.tables.cells[twin].name = "again".into();
    let c = compare_archives(&a, &b, &Rules::default());
    assert!(c.noise.unwrap() > 0.07 && verdicts(&c)[0] != "slower", "{:?}", c.noise);
}

#[test]
fn verdicts_are_corrected_for_multiple_comparisons() {
    let (mut a, mut b) = (bench("a", "w"), bench("b", "w"));
    for size in 0..30 {
        let size = size.to_string();
        a.add(&[("size", &size)], 100.0, 1000.0, 4);
        b.add(&[("size", &size)], if size == "3" { 103.0 } else { 100.0 }, 1000.0, 4);
    }
    let alone = {
        let (mut a, mut b) = (bench("a", "w"), bench("b", "w"));
        a.add(&[("size", "3")], 100.0, 1000.0, 4);
        b.add(&[("size", "3")], 103.0, 1000.0, 4);
        compare_archives(&a, &b, &Rules::default())
    };
    assert_eq!(verdicts(&alone), ["slower"]);
    let c = compare_archives(&a, &b, &Rules::default());
    let pair = &c.results[3];
    assert!(pair.p_adjusted.unwrap() > pair.p.unwrap());
    assert!(verdicts(&c).iter().filter(|v| **v == "slower" || **v == "faster").count() <= 1);
}

#[test]
fn modes_of_one_archive_are_compared_within_blocks() {
    let mut a = bench("a", "w");
    for size in ["1", "2"] {
        for (mode, time) in [("int", 800.0), ("c1", 200.0), ("c2", 100.0)] {
            a.add(&[("mode", mode), ("size", size)], time, 1000.0, 10);
        }
    }
    let c = compare_within(&a, "mode", None, &Rules::default()).unwrap();
    assert_eq!((c.results.len(), verdicts(&c)), (4, vec!["faster"; 4]));
    assert_eq!(c.results[0].levels, Some(["int".to_string(), "c1".to_string()]));
    assert!((c.results[1].ratio.unwrap() / 8.0 - 1.0).abs() < 0.02);
    assert_eq!(c.results[0].title(), "w size=1: int -> c1");
    assert!(c.shared_parameters().is_empty());
    let c = compare_within(&a, "mode", Some("c2"), &Rules::default()).unwrap();
    assert_eq!(verdicts(&c), ["slower"; 4]);
    assert!(compare_within(&a, "node", None, &Rules::default()).unwrap_err().to_string().contains("mode, size"));
    assert!(compare_within(&a, "mode", Some("x"), &Rules::default()).unwrap_err().to_string().contains("c1, c2, int"));
    let mut one = bench("a", "w");
    one.add(&[("mode", "int"), ("size", "1")], 800.0, 1000.0, 4);
    let alone = compare_within(&one, "size", None, &Rules::default()).unwrap_err().to_string();
    assert!(alone.contains("there is no other value to compare with"), "{alone}");
}

/// A cell has only the factors that its command uses.
#[test]
fn a_factor_of_only_one_mode_is_ignored_in_matching() {
    let mut a = bench("a", "w");
    a.add(&[("mode", "native"), ("iterations", "30")], 100.0, 1000.0, 10);
    a.add(&[("mode", "jvm"), ("jit_iterations", "100")], 200.0, 1000.0, 10);
    let c = compare_within(&a, "mode", None, &Rules::default()).unwrap();
    assert_eq!((verdicts(&c), c.unmatched.len()), (vec!["slower"], 0));
    // Two of the same mode cannot both be the other one.
    a.add(&[("mode", "native"), ("iterations", "60")], 100.0, 1000.0, 10);
    let c = compare_within(&a, "mode", None, &Rules::default()).unwrap();
    assert_eq!((verdicts(&c), c.unmatched.len()), (vec!["slower"], 1));
}

/// A phone names its modes differently, and its commands have other arguments.
#[test]
fn modes_of_different_machines_are_compared() {
    let (mut pc, mut phone) = (bench("pc", "w"), bench("phone", "w"));
    for (shape, times) in [("rect", 1.0), ("line", 2.0)] {
        pc.add(&[("mode", "jvm-int"), ("shape", shape)], 100.0 * times, 1000.0, 10);
        pc.add(&[("mode", "jvm-tiered"), ("shape", shape)], 50.0 * times, 1000.0, 10);
        phone.add(&[("mode", "art-jit"), ("shape", shape), ("dex_jar", "x")], 200.0 * times, 500.0, 10);
    }
    phone.add(&[("mode", "art-jit"), ("shape", "circle"), ("dex_jar", "x")], 200.0, 500.0, 10);
    let c = compare_across(&pc, &phone, "mode", ["jvm-tiered", "art-jit"], &Rules::default()).unwrap();
    assert_eq!(verdicts(&c), ["slower", "slower"]);
    assert!(c.results.iter().all(|p| (p.ratio.unwrap() / 0.25 - 1.0).abs() < 0.01), "{:?}", c.results);
    assert_eq!(c.results[0].title(), "w shape=rect: jvm-tiered -> art-jit");
    assert!((c.overall.as_ref().unwrap().speed / 0.25 - 1.0).abs() < 0.01 && c.by.is_none());
    let alone: Vec<(&str, &str)> = c.unmatched.iter().map(|u| (u.of, u.parameters["shape"].as_str())).collect();
    assert_eq!(alone, [("b", "circle")], "other modes were not requested");
    let wrong =
        compare_across(&pc, &phone, "mode", ["jvm-tiered", "art-aot"], &Rules::default()).unwrap_err().to_string();
    assert!(wrong.contains("phone has mode=art-aot; it has art-jit"), "{wrong}");
    assert!(
        compare_across(&pc, &phone, "node", ["x", "y"], &Rules::default())
            .unwrap_err()
            .to_string()
            .contains("none has this factor")
    );
}

#[test]
fn doubtful_results_have_notes() {
    let (mut a, mut b) = (bench("a", "w"), bench("b", "w"));
    a.add(&[("op", "x")], 100.0, 1000.0, 10);
    b.add(&[("op", "x")], 100.0, 1000.0, 10);
    b.tables.designs[0].quick = true;
    b.tables.marks.iter_mut().for_each(|m| m.text = "interpreted".into());
    b.tables.replicates[0].failure = Some("killed".into());
    b.tables.replicates[1].gates = Some(r#"{"temperature":{"state":"failed"}}"#.into());
    let notes = compare_archives(&a, &b, &Rules::default()).results[0].notes.join("; ");
    for part in ["quick run", "B: 1 process failed", "B: gate temperature", "different values of mode"] {
        assert!(notes.contains(part), "{notes}");
    }
    b.tables.replicates.iter_mut().for_each(|r| r.failure = Some("killed".into()));
    let c = compare_archives(&a, &b, &Rules::default());
    assert_eq!((verdicts(&c), c.results[0].ratio), (vec!["inconclusive"], None));
}

#[test]
fn a_lower_score_is_faster_where_less_is_better() {
    let (mut a, mut b) = (bench("a", "w"), bench("b", "w"));
    for (bench, time) in [(&mut a, 100.0), (&mut b, 80.0)] {
        bench.add(&[("op", "x")], time, 1000.0, 10);
        bench.add(&[("op", "y")], time, 1000.0, 10);
        bench.tables.designs[0].score = "time".into();
        bench.tables.designs[0].better = Some("lower".into());
    }
    let turned = compare_archives(&b, &a, &Rules::default());
    assert_eq!(verdicts(&turned), ["slower", "slower"], "the other way round");
    let c = compare_archives(&a, &b, &Rules::default());
    assert!((c.results[0].ratio.unwrap() / 0.8 - 1.0).abs() < 0.01 && c.results[0].unit == "ns");
    assert_eq!(verdicts(&c), ["faster", "faster"]);
    assert!((c.overall.unwrap().speed / 1.25 - 1.0).abs() < 0.01);
}

#[test]
fn a_history_is_in_order_of_time_and_notes_machine_changes() {
    let mut all: Vec<_> = [("c", 3, 100.0, "6.8"), ("a", 1, 100.0, "6.1"), ("b", 2, 150.0, "6.1")]
        .into_iter()
        .map(|(name, day, time, kernel)| {
            let mut bench = bench(name, "w");
            bench.created_unix_ns = day;
            bench.add(&[("op", "x")], time, 1000.0, 10);
            bench.fact("kernel.release", kernel, "boot");
            bench.fact("load.one_minute", name, "run");
            bench
        })
        .collect();
    all[2].add(&[("op", "y")], 100.0, 1000.0, 10);
    let h = history::history(all);
    let names: Vec<&str> = h.archives.iter().map(|e| e.archive.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let changed: Vec<usize> = h.archives.iter().map(|e| e.changed.len()).collect();
    assert_eq!(changed, [0, 0, 1]);
    assert_eq!(h.cells.len(), 2);
    let verdicts: Vec<Option<&str>> = h.cells[0].points.iter().map(|p| p.verdict).collect();
    assert_eq!(verdicts, [None, Some("slower"), Some("faster")]);
    let text = history::text(&h);
    assert!(text.contains("changed: kernel.release from 6.1 to 6.8") && text.contains("slower (x 0.66"), "{text}");
}

/// Another unit of its work makes the score another quantity: its points have a line, a unit and a scale of their own.
#[test]
fn a_history_draws_no_two_units_on_one_line() {
    let made = |day: u64, unit: &str| {
        let mut bench = bench(unit, "w");
        bench.created_unix_ns = day;
        bench.add(&[("op", "x")], 100.0, 1000.0, 10);
        bench.tables.samples.iter_mut().filter(|s| s.metric == "work").for_each(|s| s.unit = unit.into());
        bench
    };
    let mut empty = made(3, "page");
    empty.tables.samples.clear();
    let h = history::history(vec![made(1, "row"), made(2, "page"), empty]);
    let lines: Vec<(&str, Vec<usize>)> =
        h.cells.iter().map(|l| (l.unit.as_str(), l.points.iter().map(|p| p.archive).collect())).collect();
    assert_eq!(lines, [("page/s", vec![1, 2]), ("row/s", vec![0])]);
    assert_eq!(h.cells[0].points[0].verdict, Some("not comparable"));
    assert!(h.cells[0].points[1].estimate.is_none());
}

#[test]
fn table_cells_are_escaped() {
    let mut a = bench("a|b", "w");
    a.add(&[("op", "x")], 100.0, 1000.0, 10);
    a.add(&[("op", "\u{1b}[31m|")], 100.0, 1000.0, 10);
    let c = compare_archives(&a, &a, &Rules::default());
    let markdown = compare_text::markdown(&c);
    assert!(markdown.contains("## a\\|b and a\\|b") && !markdown.contains('\u{1b}'));
    let rows: Vec<usize> =
        markdown.lines().filter(|l| l.starts_with("| ")).map(|l| l.replace("\\|", "").matches('|').count()).collect();
    assert_eq!(rows, [10, 10, 10]);
    let text = compare_text::text(&c);
    assert!(c.shared_parameters().is_empty(), "they differ in their one parameter");
    assert!(text.contains("No known fact of the machines differed") && !text.contains('\u{1b}'), "{text}");
}

/// Times of a comparison: 80 ns became 100 ns. Older archives do not record their direction.
#[test]
fn a_missing_direction_is_not_guessed() {
    let (mut a, mut b) = (bench("a", "w"), bench("b", "w"));
    for (bench, time) in [(&mut a, 80.0), (&mut b, 100.0)] {
        bench.add(&[("op", "x")], time, 1000.0, 10);
        bench.tables.designs[0].score = "value".into();
        bench.tables.designs[0].better = None;
        bench.tables.designs[0].baseline = Some("op=x".into());
    }
    let c = compare_archives(&a, &b, &Rules::default());
    assert!(c.results.is_empty() && c.overall.is_none() && c.slower(0.0).is_empty(), "{:?}", c.results);
    let why = c.incomparable[0].words();
    assert!(
        why.contains("the archives do not record the direction of \"iteration\"") && why.contains("--better"),
        "{why}"
    );
    assert!(
        compare_text::text(&c).contains("Not comparable: w")
            && compare_text::markdown(&c).contains("Not comparable: w")
    );
    for (better, verdict) in [(Better::Lower, "slower"), (Better::Higher, "faster")] {
        let rules = Rules { better: Some(better), ..Rules::default() };
        assert_eq!(verdicts(&compare_archives(&a, &b, &rules)), [verdict]);
    }
    // What an archive does record is not overruled.
    b.tables.designs[0].better = Some("lower".into());
    let one = compare_archives(&a, &b, &Rules::default());
    assert!(one.incomparable[0].why[0].starts_with("A does not record"), "{:?}", one.incomparable);
    a.tables.designs[0].better = Some("higher".into());
    let rules = Rules { better: Some(Better::Lower), ..Rules::default() };
    assert!(compare_archives(&a, &b, &rules).incomparable[0].why[0].contains("directions differ"));
    let all = vec![a, b];
    let h = history::history(all);
    assert_eq!(h.cells[0].points[1].verdict, Some("not comparable"));
}

#[test]
fn different_quantities_are_not_compared() {
    let made = || {
        let mut bench = bench("x", "w");
        bench.add(&[("op", "x")], 100.0, 1000.0, 10);
        bench.tables.cells[0].argv = r#"["{fathom}","workload","--rows=10"]"#.into();
        bench
    };
    let why = |a: &Bench, b: &Bench| -> String {
        let c = compare_archives(a, b, &Rules::default());
        assert!(c.results.is_empty() != c.incomparable.is_empty());
        c.incomparable.iter().flat_map(|i| i.why.clone()).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(why(&made(), &made()), "");
    let mut other = made();
    other.tables.cells[0].argv = r#"["{fathom}", "workload", "--rows=1000"]"#.into();
    let both = [why(&made(), &other), why(&other, &made())];
    assert!(both[0].contains(r#"A has "--rows=10" where B has "--rows=1000""#), "{}", both[0]);
    assert!(both[1].contains(r#"A has "--rows=1000" where B has "--rows=10""#) && both[1].contains("--other-commands"));
    let rules = Rules { other_commands: true, ..Rules::default() };
    let c = compare_archives(&made(), &other, &rules);
    assert!(c.results[0].notes[0].starts_with("their commands differ"), "{:?}", c.results[0].notes);
    // JSON with different whitespace is the same command.
    let mut spaced = made();
    spaced.tables.cells[0].argv = r#"[ "{fathom}" , "workload","--rows=10" ]"#.into();
    assert_eq!(why(&made(), &spaced), "");
    let mut unit = made();
    unit.tables.samples.iter_mut().filter(|s| s.metric == "work").for_each(|s| s.unit = "page".into());
    assert!(why(&made(), &unit).contains(r#"A's score is in "row/s", B's in "page/s""#), "{}", why(&made(), &unit));
    let mut metric = made();
    metric.tables.cells[0].metric = Some("latency.p99".into());
    assert!(why(&made(), &metric).contains("latency.p99"));
    let mut beside = made();
    beside.tables.designs[0].design =
        r#"{"words":{"w":["two"]},"cells":[{"name":"op=x","background":["one","@w"],"setup":[["s"]]}]}"#.into();
    assert!(why(&made(), &beside).contains(r#"A has nothing where B has "(before)""#), "{}", why(&made(), &beside));
    let mut peer = made();
    peer.tables.marks.iter_mut().for_each(|m| (m.name, m.text) = ("peer".into(), "192.0.2.1:80".into()));
    assert_eq!(why(&made(), &peer), "", "one that says nothing");
    let mut elsewhere = peer.clone();
    elsewhere.tables.marks.iter_mut().for_each(|m| m.text = "192.0.2.2:80".into());
    assert!(why(&peer, &elsewhere).contains("measured against 192.0.2.1:80, B against 192.0.2.2:80"));
}

/// The scores that a design of latencies stores.
const LATENCY_DESIGN: &str = r#"{"plan":{"score":{"of":"rate","set_by":"rate"},
    "also":[{"metric":"latency.p99","unit":"us","scale":0.001,"better":"lower"}]}}"#;

/// A benchmark whose processes print a p99 of this many ns, and slightly more in later blocks.
fn with_latency(name: &str, factors: &[(&str, &str)], p99: f64) -> Bench {
    let mut bench = bench(name, "w");
    bench.tables.designs[0].design = LATENCY_DESIGN.into();
    bench.add(factors, 100.0, 1000.0, 10);
    let own = bench.tables.samples.iter_mut().filter(|s| s.metric == "latency.p99");
    own.for_each(|s| s.value += p99);
    bench
}

#[test]
fn a_percentile_can_be_compared_and_can_fail_a_build() {
    let at = [("op", "x"), ("rate", "0")];
    let (a, b) = (with_latency("a", &at, 181_000.0), with_latency("b", &at, 3_376_000.0));
    let c = compare_archives(&a, &b, &Rules::default());
    let results: Vec<(Option<&str>, &str)> = c.results.iter().map(|p| (p.score.as_deref(), p.verdict.name())).collect();
    assert_eq!(results, [(None, "equivalent"), (Some("latency.p99"), "slower")]);
    let p = &c.results[1];
    assert!((p.a.estimate.unwrap() - 181.1).abs() < 0.1 && p.unit == "us" && !p.higher_is_better, "{:?}", p.a);
    assert!((p.ratio.unwrap() - 18.65).abs() < 0.05 && p.title() == "w op=x rate=0 latency.p99", "{}", p.title());
    assert!(c.slower(5.0).iter().any(|p| p.score.is_some()) && c.overall.is_none());
    assert_eq!(verdicts(&compare_archives(&b, &a, &Rules::default())), ["equivalent", "faster"]);
    // For an older archive without this score: reported, not skipped.
    let mut old = a.clone();
    old.tables.designs[0].design = "{}".into();
    let c = compare_archives(&old, &b, &Rules::default());
    assert!(c.results.len() == 1 && c.unmatched[0].score.as_deref() == Some("latency.p99"), "{:?}", c.unmatched);
    let h = history::history(vec![a, b]);
    let lines: Vec<Option<&str>> = h.cells.iter().map(|l| l.score.as_deref()).collect();
    assert_eq!(lines, [None, Some("latency.p99")]);
    assert_eq!(h.cells[1].points[1].verdict, Some("slower"));
}

/// An open loop sends at the rate it was given: p50 went from 181 to 3,376 us, and the rate was "equivalent".
#[test]
fn an_offered_rate_is_not_a_score() {
    let at = [("op", "x"), ("rate", "1000")];
    let open = |name: &str, p99: f64, achieved: f64| {
        let mut bench = with_latency(name, &at, p99);
        let own: Vec<_> = bench.tables.samples.iter().filter(|s| s.metric == "work").cloned().collect();
        bench.tables.samples.extend(own.into_iter().map(|mut s| {
            (s.metric, s.value) = ("request.rate".into(), achieved);
            s
        }));
        bench
    };
    let (a, b) = (open("a", 181_000.0, 1000.0), open("b", 3_376_000.0, 612.0));
    let c = compare_archives(&a, &b, &Rules::default());
    assert_eq!(verdicts(&c), ["slower"]);
    let p = &c.results[0];
    assert_eq!(p.score.as_deref(), Some("latency.p99"));
    let notes = p.notes.join("; ");
    assert!(notes.contains("B: 1000 requests/s were offered and 612 achieved"), "{notes}");
    // An older archive does not record that its rate was offered; its processes do.
    let mut old = a.clone();
    old.tables.designs[0].design = "{}".into();
    old.tables.marks.iter_mut().for_each(|m| m.text = "open loop, 1000 requests a second; 1 connections".into());
    let c = compare_archives(&old, &old, &Rules::default());
    assert!(c.results.is_empty() && c.incomparable[0].why[0].contains("is an input"), "{:?}", c.incomparable);
}
