//! Tests of the method's guarantees, shape by shape. A guarantee is a share; with few trials it is tested within the scatter of
//! that number of trials (three standard errors), with thousands in the module `long` it is tested as it is written.

use super::*;
use crate::steady::{self, Class};
use crate::stop::{Rule, Signal};

/// Three standard errors of a share near `share` in this many trials.
fn scatter(share: f64, trials: u64) -> f64 {
    3.0 * (share * (1.0 - share) / trials as f64).sqrt()
}

/// Asserts that a share is within these bounds, up to the scatter of this many trials.
fn assert_share_within(what: &str, share: f64, (least, most): (f64, f64), trials: u64) {
    let low = least - scatter(least, trials);
    let high = most + scatter(most, trials);
    assert!(
        (low..=high).contains(&share),
        "{what}: {share:.4} is not within {least} to {most} ({low:.4} to {high:.4})"
    );
}

/// Tests every guarantee for a shape with the default number of blocks.
fn check_guarantees(shape: Shape, trials: u64) {
    for pairing in [Pairing::Blocks, Pairing::Unpaired] {
        // Two archives are not linked: a change of the machine in between is part of the comparison.
        if pairing == Pairing::Unpaired && shape.changes_over_time() {
            continue;
        }
        let found = coverage(shape, BLOCKS_DEFAULT, pairing, trials, 14);
        let name = format!("{shape:?} {pairing:?}: {found:?}");
        // Differences from block to block vary less than their mixture: the coverage of such an interval is higher, not lower.
        assert_share_within(&name, found.cell, (0.93, if shape.changes_over_time() { 1.0 } else { 0.97 }), trials);
        assert_share_within(&name, found.ratio, (0.93, 0.97), 3 * trials);
        assert_share_within(&name, found.alarms, (0.0, 0.05), trials);
        assert_share_within(&name, found.power, (0.8, 1.0), 2 * trials);
        assert!(found.wrong == 0.0 && found.beyond == 0.0, "{name}");
    }
}

#[test]
fn coverage_and_error_rates_hold_for_every_noise() {
    for shape in SHAPES {
        check_guarantees(shape, 200);
    }
}

/// Few processes: a valid interval or none.
fn check_few_processes(trials: u64) {
    for shape in [Shape::Normal, Shape::Lognormal, Shape::Disturbed, Shape::Correlated] {
        for blocks in [5, 8] {
            for pairing in [Pairing::Blocks, Pairing::Unpaired] {
                let found = coverage(shape, blocks, pairing, trials, 7);
                let name = format!("{blocks} blocks of {shape:?} {pairing:?}: {found:?}");
                // The coverage of a few blocks is discrete: five have 0.9375 within blocks, 0.968 between groups.
                assert_share_within(&name, found.cell, (0.93, 0.975), trials);
                assert_share_within(&name, found.ratio, (0.93, 0.975), 3 * trials);
                assert_share_within(&name, found.alarms, (0.0, 0.05), trials);
                assert!(found.beyond == 0.0, "{name}");
            }
        }
        for blocks in [2, 3] {
            let run = simulate_run(shape, blocks, 1.0, &mut Noise::new(1));
            let (a, b) = (cell_of_times(&run.a).unwrap(), cell_of_times(&run.b).unwrap());
            assert_eq!(typical_process(&a, CONFIDENCE_LEVEL), None);
            assert!([Pairing::Blocks, Pairing::Unpaired].iter().all(|p| ratio(&a, &b, *p, CONFIDENCE_LEVEL).is_none()));
        }
    }
}

#[test]
fn few_processes_have_valid_interval_or_none() {
    check_few_processes(300);
}

/// 160 cells, 38 of which differ: no more false ones among those reported than guaranteed, and more true ones than with Holm.
fn check_suite(trials: u64) {
    for pairing in [Pairing::Unpaired, Pairing::Blocks] {
        for shape in [Shape::Normal, Shape::Disturbed] {
            let found = simulate_suite(shape, (160, 38), BLOCKS_DEFAULT, pairing, trials, 3);
            let name = format!("{shape:?} {pairing:?}: {found:?}");
            assert_share_within(&name, found.false_share, (0.0, 0.05), trials * 38);
            assert_share_within(&name, found.missed, (0.0, 0.06), trials * 38);
            assert!(found.power > 0.6 && found.power > found.power_of_holm, "{name}");
        }
    }
    let none = simulate_suite(Shape::Normal, (160, 0), BLOCKS_DEFAULT, Pairing::Unpaired, trials, 3);
    assert_share_within(&format!("{none:?}"), none.false_share, (0.0, 0.05), trials);
}

#[test]
fn false_discovery_rate_and_power_hold_over_many_cells() {
    check_suite(20);
}

/// Why means are not used: 47 processes of 10 ms and one of 111.
#[test]
fn one_outlying_process_does_not_widen_interval() {
    let mut noise = Noise::new(4);
    let mut times: Vec<f64> = (0..48).map(|_| 10.0 * (1.0 + 0.005 * noise.normal())).collect();
    times[20] = 111.0;
    let e = typical_process(&cell_of_times(&times).unwrap(), CONFIDENCE_LEVEL).unwrap();
    assert!(e.holds(10.0) && e.low > 9.9 && e.high < 10.1, "{e:?}");
    let other: Vec<f64> = (0..48).map(|_| 10.0 * (1.0 + 0.005 * noise.normal())).collect();
    for pairing in [Pairing::Blocks, Pairing::Unpaired] {
        let c =
            ratio(&cell_of_times(&times).unwrap(), &cell_of_times(&other).unwrap(), pairing, CONFIDENCE_LEVEL).unwrap();
        assert!(c.ratio.low > 0.99 && c.ratio.high < 1.01, "{c:?}");
    }
}

/// From iteration times to the verdict: twelve slow iterations, then thirty steady ones, in every process.
#[test]
fn warm_up_is_excluded_from_verdict() {
    let process = |mean: f64, noise: &mut Noise| {
        let level = mean * (1.0 + 0.015 * noise.normal());
        let mut times: Vec<f64> = (0..12).map(|_| 150.0 * (1.0 + 0.02 * noise.normal())).collect();
        times.extend((0..30).map(|_| level * (1.0 + 0.01 * noise.normal())));
        let found = steady::classify(&times, steady::EQUIVALENCE_MARGIN, steady::Penalty::Fixed, 1).unwrap();
        assert_eq!((found.class, found.from), (Class::Warmup, Some(12)));
        found.part(&times).to_vec()
    };
    let found = (0..100).filter(|trial| {
        let mut noise = Noise::new(*trial);
        let mut cell =
            |mean| Cell::new(&(0..BLOCKS_DEFAULT).map(|_| process(mean, &mut noise)).collect::<Vec<_>>()).unwrap();
        let ratio = ratio(&cell(103.0), &cell(100.0), Pairing::Unpaired, CONFIDENCE_LEVEL).unwrap().ratio;
        verdict::judge(&ratio, Better::Lower, verdict::MARGIN_DEFAULT) == Verdict::Slower
    });
    let found = found.count();
    assert!(found >= 88, "{found} of 100");
}

/// Checking after each block and stopping at the first narrow interval: a cell that needs more than the least number of blocks.
#[test]
fn early_stopping_costs_little_coverage() {
    let rule = Rule { target: 0.02, least_blocks: BLOCKS_DEFAULT, most_blocks: 60, budget_ns: u64::MAX };
    let (mut blocks, trials) = (0, 1000);
    let held = (0..trials).filter(|trial| {
        let mut noise = Noise::new(*trial);
        let mut times: Vec<f64> = Vec::new();
        loop {
            times.push(1.0 + 0.04 * noise.normal());
            let Some(e) = cell_of_times(&times).and_then(|c| typical_process(&c, CONFIDENCE_LEVEL)) else { continue };
            if rule.signal(times.len(), 0, &[e.precision()]) != Signal::Continue {
                blocks += times.len();
                return e.holds(1.0);
            }
        }
    });
    let held = held.count() as f64 / trials as f64;
    let mean_blocks = blocks as f64 / trials as f64;
    assert!((BLOCKS_DEFAULT as f64 + 1.0..40.0).contains(&mean_blocks), "{mean_blocks}");
    assert!((0.89..=0.97).contains(&held), "{held}");
}

/// The page of figures was written by this code, and meets the guarantees.
#[test]
fn coverage_page_matches_nominal_rates() {
    let page = include_str!("../../../../docs/results/coverage.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|l| l.starts_with("| "))
        .map(|l| l.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    for shape in SHAPES {
        let row = rows.iter().find(|r| r[0] == shape.about()).unwrap_or_else(|| panic!("{shape:?} is not in the page"));
        let number = |at: usize| row[at].parse::<f64>().ok();
        assert!(number(1).is_some_and(|c| c >= 0.93), "{row:?}");
        assert!([2, 5].iter().all(|at| number(*at).is_none_or(|c| (0.93..=0.97).contains(&c))), "{row:?}");
        assert!([3, 6].iter().all(|at| number(*at).is_none_or(|c| c <= 0.05)), "{row:?}");
        assert!([4, 7].iter().all(|at| number(*at).is_none_or(|c| c >= 0.8)), "{row:?}");
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "long: thousands of experiments a shape"]
    fn coverage_and_error_rates_hold_for_every_noise() {
        for shape in SHAPES {
            check_guarantees(shape, 4000);
        }
    }

    #[test]
    #[ignore = "long: thousands of experiments a shape"]
    fn few_processes_have_valid_interval_or_none() {
        check_few_processes(6000);
    }

    #[test]
    #[ignore = "long: hundreds of suites of 160 cells"]
    fn false_discovery_rate_and_power_hold_over_many_cells() {
        check_suite(300);
    }
}
