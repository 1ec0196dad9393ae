//! Processes with known times, so that the score can be computed by hand.

mod verdicts;

use super::gates::GateState;
use super::*;

fn design(score: &'static str, unit: Option<&str>, scale: f64) -> DesignRow {
    DesignRow {
        id: 0,
        name: "w".into(),
        question: "?".into(),
        seed: 1,
        quick: false,
        score: score.into(),
        unit: unit.map(Into::into),
        scale,
        better: Some("higher".into()),
        precision: Some(0.02),
        stopped: Some("precision".into()),
        baseline: None,
        design: "{}".into(),
    }
}

fn cell(metric: &str) -> DesignCell {
    DesignCell {
        id: 7,
        design: 0,
        name: "c".into(),
        factors: "{}".into(),
        argv: "[]".into(),
        metric: Some(metric.into()),
        same_as: None,
        absent: None,
    }
}

fn replicate(id: u64) -> Replicate {
    Replicate {
        id,
        cell: 7,
        block: id,
        place: 0,
        start_ns: 0,
        end_ns: 1,
        start_unix_ns: None,
        exit: Some(0),
        verified: Some(true),
        verified_by: Some("sum".into()),
        warmup: false,
        why: None,
        gates: Some(r#"{"load":{"state":"passed","value":0.1},"temperature":{"state":"unavailable"},"waited":{"state":"passed"}}"#.into()),
        failure: None,
    }
}

fn samples(id: u64, metric: &str, unit: &str, values: &[f64]) -> Vec<Sample> {
    let sample = |value: &f64| Sample {
        replicate: Some(id),
        metric: metric.into(),
        unit: unit.into(),
        labels: String::new(),
        time_ns: None,
        value: *value,
    };
    values.iter().map(sample).collect()
}

/// Processes with `means` ms per iteration, 40 iterations each, with 500 rows of work.
fn run_with_means(means: &[f64]) -> (Vec<Replicate>, Vec<Sample>) {
    let ids = 0..means.len() as u64;
    let jitter = |i: usize| if i.is_multiple_of(2) { 1.001 } else { 0.999 };
    let all = means.iter().zip(ids.clone()).flat_map(|(mean, id)| {
        let times: Vec<f64> = (0..40).map(|i| mean * 1e6 * jitter(i)).collect();
        [samples(id, "iteration", "ns", &times), samples(id, "work", "row", &[500.0])].concat()
    });
    (ids.map(replicate).collect(), all.collect())
}

fn estimate_one(design: &DesignRow, cell: &DesignCell, rows: &(Vec<Replicate>, Vec<Sample>)) -> CellEstimate {
    let tables = Tables {
        designs: vec![design.clone()],
        cells: vec![cell.clone()],
        replicates: rows.0.clone(),
        samples: rows.1.clone(),
        ..Tables::default()
    };
    let all = estimate_cells(&tables, Penalty::Fixed);
    assert_eq!(all.len(), 1);
    all.into_iter().next().unwrap()
}

#[test]
fn a_rate_is_the_work_over_the_mean_time() {
    let rows = run_with_means(&[8.0, 12.0, 8.0, 12.0, 8.0, 12.0, 8.0, 12.0, 8.0, 12.0]);
    let estimate = estimate_one(&design("rate", None, 1.0), &cell("iteration"), &rows);
    // 500 rows in 10 ms; the mean of the rates would be 52,083.
    assert!((estimate.estimate.unwrap() - 50_000.0).abs() < 1e-6, "{estimate:?}");
    let [low, high] = estimate.ci95.unwrap();
    assert!(low < 50_000.0 && 50_000.0 < high && low > 40_000.0 && high < 65_000.0);
    assert_eq!((estimate.unit.as_str(), estimate.processes, estimate.iterations), ("row/s", 10, 400));
    assert_eq!((estimate.class.map(Consistency::name), estimate.verified), (Some("flat"), Some(true)));
    assert_eq!(estimate.gates["load"][&GateState::Passed], 10);
    assert!(estimate.gates["temperature"][&GateState::Unavailable] == 10 && !estimate.gates.contains_key("waited"));
}

#[test]
fn double_work_in_double_time_is_the_same_rate() {
    let mut rows = run_with_means(&[10.0, 20.0, 10.0, 20.0, 10.0]);
    rows.1
        .iter_mut()
        .filter(|s| s.metric == "work" && s.replicate.is_some_and(|r| r % 2 == 1))
        .for_each(|s| s.value = 1000.0);
    let estimate = estimate_one(&design("rate", None, 1.0), &cell("iteration"), &rows);
    let [low, high] = estimate.ci95.unwrap();
    assert!((estimate.estimate.unwrap() - 50_000.0).abs() < 1e-6 && high - low < 1.0, "{estimate:?}");
}

#[test]
fn a_score_has_the_unit_and_scale_of_its_design() {
    let rows = run_with_means(&[10.0; 5]);
    let rate = estimate_one(&design("rate", Some("krow/s"), 1e-3), &cell("iteration"), &rows);
    assert!((rate.estimate.unwrap() - 50.0).abs() < 1e-9 && rate.unit == "krow/s");
    let time = estimate_one(&design("time", Some("ms"), 1e-6), &cell("iteration"), &rows);
    assert!((time.estimate.unwrap() - 10.0).abs() < 1e-9 && time.unit == "ms");
}

#[test]
fn a_printed_score_is_taken_unchanged() {
    let values = [100.0, 101.0, 99.0, 100.0, 100.0];
    let all = values.iter().zip(0..).flat_map(|(v, id)| samples(id, "insert.rate", "1/s", &[*v])).collect();
    let estimate =
        estimate_one(&design("value", None, 1.0), &cell("insert.rate"), &((0..5).map(replicate).collect(), all));
    assert!((estimate.estimate.unwrap() - 100.0).abs() < 1e-9);
    assert_eq!((estimate.unit.as_str(), estimate.class), ("1/s", None));
}

#[test]
fn the_warm_up_is_excluded_from_the_score_and_reported() {
    let mut rows = run_with_means(&[10.0; 6]);
    // The first ten iterations of each process take five times as long.
    for id in 0..6 {
        let own = rows.1.iter_mut().filter(|s| s.replicate == Some(id) && s.metric == "iteration");
        own.take(10).for_each(|s| s.value *= 5.0);
    }
    let estimate = estimate_one(&design("rate", None, 1.0), &cell("iteration"), &rows);
    assert_eq!(estimate.class.map(Consistency::name), Some("warmup"));
    assert!((estimate.estimate.unwrap() / 50_000.0 - 1.0).abs() < 1e-3, "{estimate:?}");
    assert!((estimate.first.unwrap() / 10_000.0 - 1.0).abs() < 2e-3, "{:?}", estimate.first);
}

#[test]
fn failed_unverified_warm_up_and_recorded_runs_are_excluded() {
    let mut rows = run_with_means(&[10.0, 10.0, 10.0, 10.0, 1.0, 1.0, 1.0, 1.0]);
    rows.0[4].failure = Some("it died".into());
    // A wrong result that the runner accepted is excluded nevertheless.
    rows.0[5].verified = Some(false);
    rows.0[6].warmup = true;
    rows.0[7].why = Some("why/x.fathom".into());
    let estimate = estimate_one(&design("rate", None, 1.0), &cell("iteration"), &rows);
    assert!((estimate.estimate.unwrap() - 50_000.0).abs() < 1e-6);
    assert_eq!((estimate.processes, estimate.failed, estimate.failure.as_deref()), (4, 1, Some("it died")));
}

#[test]
fn fewer_than_two_processes_give_no_score() {
    for means in [&[][..], &[10.0][..]] {
        let estimate = estimate_one(&design("rate", None, 1.0), &cell("iteration"), &run_with_means(means));
        assert_eq!((estimate.estimate, estimate.ci95, estimate.processes), (None, None, means.len()));
    }
}

#[test]
fn the_stop_rule_uses_the_spread_between_processes() {
    let score = Score::for_cell(&design("rate", None, 1.0), &cell("iteration"));
    let width = |means: &[f64]| {
        let rows = run_with_means(means);
        let of = |id: u64| rows.1.iter().filter(move |s| s.replicate == Some(id)).collect::<Vec<_>>();
        let all: Vec<Process> = (0..means.len() as u64)
            .map(|id| evaluate_process(&score, Penalty::default(), id, &of(id)).unwrap())
            .collect();
        half_width(&all.iter().collect::<Vec<_>>())
    };
    assert!(width(&[10.0; 10]).unwrap() < 1e-9);
    // Interval ends between the second and third value on either side: 8 and 12 around a median of 10.
    let got = width(&[8.0, 12.0, 8.0, 12.0, 8.0, 12.0, 8.0, 12.0, 8.0, 12.0]).unwrap();
    assert!((got / 0.2 - 1.0).abs() < 1e-5, "{got}");
    assert_eq!(width(&[10.0; 4]), None, "too few for an interval");
}
