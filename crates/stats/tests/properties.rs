//! Properties for any data.

use proptest::prelude::*;
use stats::cells::{self, Cell, Comparison, Pairing};
use stats::verdict::{Better, Verdict, judge};
use stats::{geomean, rank, steady};

/// The iterations of some processes, about a level.
fn processes(level: f64) -> impl Strategy<Value = Vec<Vec<f64>>> {
    let process = (0.8..1.2_f64, prop::collection::vec(0.9..1.1_f64, 1..6));
    let times = move |(p, its): (f64, Vec<f64>)| its.iter().map(|i| level * p * i).collect();
    prop::collection::vec(process.prop_map(times), 3..12)
}

fn scaled_cell(cell: &[Vec<f64>], by: f64) -> Cell {
    Cell::new(&cell.iter().map(|p| p.iter().map(|v| v * by).collect()).collect::<Vec<Vec<f64>>>()).unwrap()
}

fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn results_do_not_depend_on_unit(a in processes(1.0), b in processes(1.1), by in 1e-6..1e6_f64) {
        let (x, y) = (scaled_cell(&a, 1.0), scaled_cell(&b, 1.0));
        if let Some(one) = cells::typical_process(&x, 0.95) {
            let other = cells::typical_process(&scaled_cell(&a, by), 0.95).unwrap();
            prop_assert!(is_close(one.value * by, other.value) && is_close(one.high * by, other.high), "{one:?} {other:?}");
            prop_assert!(one.holds(one.value));
        }
        if let Some(one) = cells::ratio(&x, &y, Pairing::Unpaired, 0.95) {
            let other = cells::ratio(&scaled_cell(&a, by), &scaled_cell(&b, by), Pairing::Unpaired, 0.95).unwrap().ratio;
            prop_assert!((one.ratio.low / other.low - 1.0).abs() < 1e-6 && (one.ratio.high / other.high - 1.0).abs() < 1e-6);
            prop_assert!(one.ratio.holds(one.ratio.value));
        }
    }

    /// Any positive times, however far apart: a bound of an interval is a measured value, or between two of them.
    #[test]
    fn interval_stays_within_measurements(
        a in prop::collection::vec(1e-9..1e9_f64, 5..20),
        b in prop::collection::vec(1e-9..1e9_f64, 5..20),
    ) {
        let cell = |v: &[f64]| Cell::new(&v.iter().map(|x| [*x]).collect::<Vec<_>>()).unwrap();
        let (least, most) = a.iter().fold((f64::MAX, 0.0_f64), |(l, m), x| (l.min(*x), m.max(*x)));
        let e = cells::typical_process(&cell(&a), 0.95).unwrap();
        prop_assert!(least <= e.low && e.low <= e.value && e.value <= e.high && e.high <= most, "{e:?}");
        let (n, widest) = (a.len().min(b.len()), |v: &[f64]| v.iter().fold((f64::MAX, 0.0_f64), |(l, m), x| (l.min(*x), m.max(*x))));
        let ((al, am), (bl, bm)) = (widest(&a), widest(&b));
        for (c, of) in [
            (cells::ratio(&cell(&a), &cell(&b), Pairing::Unpaired, 0.95), (al / bm, am / bl)),
            (cells::ratio(&cell(&a[..n]), &cell(&b[..n]), Pairing::Blocks, 0.95), (al / bm, am / bl)),
        ] {
            let c = c.unwrap();
            prop_assert!(c.ratio.low >= of.0 * (1.0 - 1e-9) && c.ratio.high <= of.1 * (1.0 + 1e-9), "{c:?} {of:?}");
            prop_assert!(c.ratio.holds(c.ratio.value) && c.p > 0.0 && c.p <= 1.0);
        }
    }

    #[test]
    fn process_order_does_not_matter(
        a in processes(1.0).prop_flat_map(|p| (Just(p.clone()), Just(p).prop_shuffle())),
        b in processes(1.1),
    ) {
        let (x, turned, y) = (scaled_cell(&a.0, 1.0), scaled_cell(&a.1, 1.0), scaled_cell(&b, 1.0));
        let close = |p: &stats::Estimate, q: &stats::Estimate| is_close(p.low, q.low) && is_close(p.high, q.high);
        if let (Some(one), Some(other)) = (cells::typical_process(&x, 0.95), cells::typical_process(&turned, 0.95)) {
            prop_assert!(close(&one, &other));
        }
        if let Some(one) = cells::ratio(&x, &y, Pairing::Unpaired, 0.95) {
            prop_assert!(close(&one.ratio, &cells::ratio(&turned, &y, Pairing::Unpaired, 0.95).unwrap().ratio));
        }
    }

    /// Blocks are neighbours in time: they may be reversed, but not shuffled.
    #[test]
    fn reversed_blocks_give_same_ratio(pairs in prop::collection::vec((0.8..1.2_f64, 0.9..1.1_f64), 6..20)) {
        let of = |pairs: Vec<(f64, f64)>| {
            let a = Cell::new(&pairs.iter().map(|(x, y)| [*x, x * y]).collect::<Vec<_>>()).unwrap();
            let b = Cell::new(&pairs.iter().map(|(x, y)| [x / y, *y]).collect::<Vec<_>>()).unwrap();
            cells::ratio(&a, &b, Pairing::Blocks, 0.95).unwrap()
        };
        let (one, other) = (of(pairs.clone()), of(pairs.into_iter().rev().collect()));
        prop_assert!(is_close(one.ratio.low, other.ratio.low) && is_close(one.ratio.high, other.ratio.high) && is_close(one.p, other.p));
    }

    /// A against B is the opposite of B against A, and so is a metric of which more is better.
    #[test]
    fn swapped_groups_give_opposite_verdict(low in 0.8..1.2_f64, up in 0.0..0.2_f64, at in 0.0..1.0_f64, margin in 0.001..0.1_f64) {
        let high = low + up;
        let ratio = stats::Estimate { value: low + at * up, low, high, level: 0.95, n: 10, method: "given" };
        let mirror = stats::Estimate { value: 1.0 / ratio.value, low: 1.0 / high, high: 1.0 / low, ..ratio };
        let turned = match judge(&ratio, Better::Lower, margin) {
            Verdict::Faster => Verdict::Slower,
            Verdict::Slower => Verdict::Faster,
            same => same,
        };
        prop_assert_eq!(judge(&mirror, Better::Lower, margin), turned);
        prop_assert_eq!(judge(&ratio, Better::Higher, margin), turned);
    }

    /// A ratio that grows, including its interval, never becomes better if less is better.
    #[test]
    fn verdict_is_monotone(low in 0.8..1.2_f64, up in 0.0..0.2_f64, at in 0.0..1.0_f64, by in 1.0..1.2_f64, margin in 0.001..0.1_f64) {
        let of = |by: f64| {
            let (low, value, high) = (low * by, (low + at * up) * by, (low + up) * by);
            let ratio = stats::Estimate { value, low, high, level: 0.95, n: 10, method: "given" };
            match judge(&ratio, Better::Lower, margin) {
                Verdict::Faster => -1,
                Verdict::Slower => 1,
                Verdict::Equivalent | Verdict::Inconclusive | Verdict::Disturbed => 0,
            }
        };
        prop_assert!(of(1.0) <= of(by), "{} {}", of(1.0), of(by));
    }

    #[test]
    fn swapped_groups_give_mirrored_u(
        a in prop::collection::vec(0_i32..20, 1..12),
        b in prop::collection::vec(0_i32..20, 1..12),
    ) {
        let float = |v: &[i32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
        let (a, b) = (float(&a), float(&b));
        let (one, other) = (rank::mann_whitney(&a, &b).unwrap(), rank::mann_whitney(&b, &a).unwrap());
        prop_assert!(is_close(one.u + other.u, (a.len() * b.len()) as f64) && is_close(one.p, other.p));
        prop_assert!((0.0..=1.0).contains(&one.p));
        prop_assert!(is_close(rank::cliffs_delta(&a, &b).unwrap(), -rank::cliffs_delta(&b, &a).unwrap()));
        if let Some(e) = rank::shift(&a, &b, 0.95) {
            prop_assert!(e.holds(e.value));
        }
    }

    #[test]
    fn geometric_mean_lies_between_extremes(ratios in prop::collection::vec(0.5..2.0_f64, 1..5)) {
        let one = |r: &f64| Comparison {
            ratio: stats::Estimate { value: *r, low: r * 0.99, high: r * 1.01, level: 0.95, n: 9, method: "given" },
            p: 0.1,
        };
        let mean = geomean::ratios(&ratios.iter().map(one).collect::<Vec<_>>()).unwrap();
        let (least, most) = ratios.iter().fold((f64::MAX, 0.0_f64), |(l, m), r| (l.min(*r), m.max(*r)));
        prop_assert!(mean.value >= least * (1.0 - 1e-12) && mean.value <= most * (1.0 + 1e-12) && mean.holds(mean.value));
    }

    /// Any positive times: segments follow each other without a gap, and the class is consistent with them.
    #[test]
    fn segments_cover_series(times in prop::collection::vec(prop_oneof![0.9..1.1_f64, 1.9..2.1_f64, Just(1.0), Just(1e9)], 15..80), by in 1e-6..1e6_f64) {
        let found = steady::classify(&times, 0.05, steady::Penalty::Fixed, 1).unwrap();
        prop_assert_eq!(found.segments.first().unwrap().start, 0);
        prop_assert_eq!(found.segments.last().unwrap().end, times.len());
        prop_assert!(found.segments.windows(2).all(|s| s[0].end == s[1].start));
        prop_assert_eq!(found.from.is_none(), found.class == steady::Class::NoSteadyState);
        prop_assert!(found.from.is_none_or(|f| (times.len() - f) * 4 >= times.len()));
        // A power of two scales without rounding.
        let by = 2_f64.powi(by.log2() as i32);
        let scaled: Vec<f64> = times.iter().map(|t| t * by).collect();
        prop_assert_eq!(steady::classify(&scaled, 0.05, steady::Penalty::Fixed, 1).unwrap().class, found.class);
    }
}

/// Every arrangement of an interval, its estimate and the margin, against docs/guide/comparing.md.
#[test]
fn verdicts_match_manual() {
    let grid: Vec<f64> = (-24..=24).map(|n| (f64::from(n) * 0.004).exp()).collect();
    let mut seen = std::collections::BTreeMap::new();
    for margin in [0.01, 0.02, 0.05] {
        for (at, low) in grid.iter().enumerate() {
            for (up, value) in grid.iter().enumerate().skip(at) {
                for high in &grid[up..] {
                    let ratio =
                        stats::Estimate { value: *value, low: *low, high: *high, level: 0.95, n: 10, method: "given" };
                    let beyond = *value > 1.0 + margin || *value < 1.0 / (1.0 + margin);
                    let leaves_out_1 = *low > 1.0 || *high < 1.0;
                    let within = *low >= 1.0 / (1.0 + margin) && *high <= 1.0 + margin;
                    let expected = match (within, leaves_out_1 && beyond) {
                        (true, _) => Verdict::Equivalent,
                        (false, true) if *value > 1.0 => Verdict::Slower,
                        (false, true) => Verdict::Faster,
                        (false, false) => Verdict::Inconclusive,
                    };
                    let found = judge(&ratio, Better::Lower, margin);
                    assert_eq!(found, expected, "{ratio:?} with a margin of {margin}");
                    *seen.entry(found).or_insert(0) += 1;
                }
            }
        }
    }
    assert!(seen.len() == 4 && seen.values().all(|n| *n > 50), "{seen:?}");
}
