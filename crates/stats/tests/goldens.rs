//! The same results as ruptures and SciPy. goldens/make.py makes the goldens.

use serde::Deserialize;
use stats::{crops, pelt, rank, student};

#[derive(Deserialize)]
struct Goldens {
    series: Vec<Series>,
    ranks: Vec<Ranks>,
    student: Vec<Student>,
    t_interval: Interval,
}

#[derive(Deserialize)]
struct Series {
    name: String,
    times: Vec<f64>,
    changepoints: Vec<usize>,
    at: Vec<AtPenalty>,
}

#[derive(Deserialize)]
struct AtPenalty {
    factor: f64,
    changepoints: Vec<usize>,
}

#[derive(Deserialize)]
struct Ranks {
    a: Vec<f64>,
    b: Vec<f64>,
    u: f64,
    p: f64,
}

#[derive(Deserialize)]
struct Student {
    df: f64,
    p: f64,
    t: f64,
    cdf: f64,
}

#[derive(Deserialize)]
struct Interval {
    values: Vec<f64>,
    low: f64,
    high: f64,
}

fn goldens() -> Goldens {
    serde_json::from_str(include_str!("goldens/goldens.json")).unwrap()
}

/// ruptures adds 1e-6 to every segment's variance (in units of the series'), we add 1e-11. No segment of these series
/// varies so little that this could matter, so the points must be the same to the iteration.
#[test]
fn changepoints_match_ruptures() {
    let goldens = goldens();
    for series in &goldens.series {
        let n = series.times.len();
        let found = pelt::changepoints(&series.times, pelt::penalty(n), pelt::segment_values_min(n)).unwrap();
        assert_eq!(found, series.changepoints, "{}", series.name);
    }
    assert!(goldens.series.len() == 8 && goldens.series.iter().filter(|s| s.changepoints.is_empty()).count() == 1);
}

/// For each penalty for which ruptures was run, CROPS lists its result as the cheapest there.
#[test]
fn crops_contains_ruptures_answer_at_each_penalty() {
    let mut numbers = std::collections::BTreeSet::new();
    for series in &goldens().series {
        let n = series.times.len();
        let (low, high) = crops::penalty_interval(n);
        let all = crops::segmentations(&series.times, low, high, crops::SEGMENT_VALUES_MIN).unwrap();
        for golden in &series.at {
            let penalty = golden.factor * (n as f64).ln();
            let found = all.iter().find(|s| penalty <= s.to).unwrap();
            assert_eq!(found.changepoints, golden.changepoints, "{} at {} ln n", series.name, golden.factor);
            numbers.insert(found.changepoints.len());
        }
    }
    assert!(numbers.len() >= 5, "the penalties ask for different segmentations: {numbers:?}");
}

#[test]
fn u_and_p_match_scipy() {
    let goldens = goldens();
    for r in &goldens.ranks {
        let test = rank::mann_whitney(&r.a, &r.b).unwrap();
        assert_eq!(test.u, r.u);
        assert!((test.p / r.p - 1.0).abs() < 1e-9, "{test:?}, SciPy {}", r.p);
    }
    let exact = goldens.ranks.iter().filter(|r| rank::mann_whitney(&r.a, &r.b).unwrap().exact).count();
    assert!(exact >= 4 && exact <= goldens.ranks.len() - 3, "both ways are tried: {exact}");
}

#[test]
fn t_matches_scipy() {
    for s in goldens().student {
        let (t, p) = (student::quantile(s.p, s.df), student::cdf(s.t, s.df));
        assert!((t - s.t).abs() <= 1e-8 * (1.0 + s.t.abs()), "{} {}: {t}, SciPy {}", s.p, s.df, s.t);
        assert!((p / s.cdf - 1.0).abs() < 1e-8, "{} {}: {p}, SciPy {}", s.t, s.df, s.cdf);
    }
    let golden = goldens().t_interval;
    let e = student::mean(&golden.values, 0.95).unwrap();
    assert!((e.low - golden.low).abs() < 1e-9 && (e.high - golden.high).abs() < 1e-9, "{e:?}");
}
