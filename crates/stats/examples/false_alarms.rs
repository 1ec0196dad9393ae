//! How often a change is reported where there is none, and how often an existing one is found, for series like those of a fleet,
//! by length and kind.
//!
//!     cargo run --release -p stats --example false_alarms > docs/results/fleet-changes.md
//!     cargo run --release -p stats --example false_alarms -- power           one part of it: power, listed
//!     cargo run --release -p stats --example false_alarms -- chances [N…]    the table of crates/stats/src/steps.rs
//!
//! All numbers depend only on seeds, so they are the same on every machine.

use stats::random::Random;
use stats::{changes, pelt, steps};

const SERIES_COUNT: u64 = 20_000;

/// A day's median of a statement, as a logarithm: level 0, spread 1.
#[derive(Clone, Copy)]
enum NoiseKind {
    /// Independent, normal.
    Normal,
    /// Independent, with heavy tails (Student's t of 3 degrees of freedom).
    Heavy,
    /// One day in ten is an outlier of ten spreads.
    Outliers,
    /// Each day keeps this fraction of the previous day's deviation (1: a random walk).
    Dependent(f64),
    /// The same with steps of heavy tails (Student's t of 3 degrees of freedom).
    HeavyDependent(f64),
    /// Integers with few distinct values, such as counters: most days are equal.
    Rounded,
}

fn normal(random: &mut Random) -> f64 {
    let (a, b) = (random.unit().max(f64::MIN_POSITIVE), random.unit());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

fn heavy(random: &mut Random) -> f64 {
    let chi: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
    normal(random) / (chi / 3.0).sqrt()
}

fn series(kind: NoiseKind, n: usize, random: &mut Random) -> Vec<f64> {
    let mut before = normal(random);
    (0..n)
        .map(|_| match kind {
            NoiseKind::Normal => normal(random),
            NoiseKind::Heavy => heavy(random),
            NoiseKind::Outliers => normal(random) + if random.unit() < 0.1 { 10.0 } else { 0.0 },
            NoiseKind::Dependent(part) | NoiseKind::HeavyDependent(part) => {
                let new = if part < 1.0 { (1.0 - part * part).sqrt() } else { 1.0 };
                let noise = if matches!(kind, NoiseKind::HeavyDependent(_)) { heavy(random) } else { normal(random) };
                before = part * before + new * noise;
                before
            }
            NoiseKind::Rounded => (normal(random) * 0.7).round(),
        })
        .collect()
}

fn pelt_changes(values: &[f64]) -> Vec<usize> {
    let n = values.len();
    pelt::changepoints(values, pelt::penalty(n), pelt::segment_values_min(n)).unwrap_or_default()
}

/// Prints the gains that series have by chance, for `steps.rs`.
fn print_chances(out: &mut impl std::io::Write) -> std::io::Result<()> {
    let lengths: Vec<usize> = std::env::args().skip(2).filter_map(|n| n.parse().ok()).collect();
    let all = [10, 12, 15, 20, 30, 45, 70, 120, 200, 365];
    for n in if lengths.is_empty() { all.to_vec() } else { lengths } {
        let count = (3_000_000 / n).min(100_000) as u64;
        let mut largest = [0.0; 5];
        for kept in [0.0, 0.5, 0.8, 0.9, 0.95, 1.0] {
            let gain = |seed| {
                steps::series_gain(&series(NoiseKind::Dependent(kept), n, &mut Random::new(seed ^ (n as u64) << 40)))
            };
            let mut gains: Vec<f64> = (0..count).map(gain).collect();
            gains.sort_by(|a, b| b.total_cmp(a));
            for (of, largest) in [0.1, 0.03, 0.01, 0.003, 0.001].iter().zip(&mut largest) {
                *largest = f64::max(*largest, gains[(of * count as f64) as usize]);
            }
        }
        let texts = largest.map(|gain| format!("{gain:.1}"));
        writeln!(out, "    ({n}, [{}]),", texts.join(", "))?;
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let kinds = [
        ("normal", NoiseKind::Normal),
        ("heavy tails (t, 3 degrees)", NoiseKind::Heavy),
        ("a tenth outliers of 10 spreads", NoiseKind::Outliers),
        ("dependent (0.5 of the day before)", NoiseKind::Dependent(0.5)),
        ("dependent (0.8 of the day before)", NoiseKind::Dependent(0.8)),
        ("dependent (0.9 of the day before)", NoiseKind::Dependent(0.9)),
        ("dependent (0.95 of the day before)", NoiseKind::Dependent(0.95)),
        ("random walk", NoiseKind::Dependent(1.0)),
        ("rounded, most days equal", NoiseKind::Rounded),
    ];
    // Jumps, by the fraction of a jump that the next days keep.
    let jumping = [
        ("dependent (0.5), heavy tails", NoiseKind::HeavyDependent(0.5)),
        ("dependent (0.65), heavy tails", NoiseKind::HeavyDependent(0.65)),
        ("dependent (0.8), heavy tails", NoiseKind::HeavyDependent(0.8)),
        ("dependent (0.9), heavy tails", NoiseKind::HeavyDependent(0.9)),
        ("random walk, heavy tails", NoiseKind::HeavyDependent(1.0)),
    ];
    let all = [&kinds[..], &jumping].concat();
    let part = std::env::args().nth(1);
    match part.as_deref() {
        Some("chances") => return print_chances(&mut out),
        Some("power") => return print_power(&mut out),
        Some("listed") => return print_listed(&mut out, &all),
        _ => {}
    }
    print_false_alarms(&mut out, &kinds)?;
    print_power(&mut out)?;
    print_listed(&mut out, &all)
}

/// Prints how often PELT finds a change in series without one.
fn print_false_alarms(out: &mut impl std::io::Write, kinds: &[(&str, NoiseKind)]) -> std::io::Result<()> {
    let lengths = [10, 14, 30, 60, 120, 365];
    writeln!(out, "# Changes found by chance\n")?;
    writeln!(
        out,
        "Made by `cargo run --release -p stats --example false_alarms`: series of seeds, {SERIES_COUNT} of each kind and length, a tenth as many \
         from\n120 days on. What `fathom fleet report` does with them is in [the guide](../guide/fleet.md#changes).\n"
    )?;
    writeln!(
        out,
        "Series without a change in which PELT (penalty 15 ln n, five days at least) sets one, per million:\n"
    )?;
    writeln!(out, "| days | {} |", lengths.map(|n| n.to_string()).join(" | "))?;
    writeln!(out, "|---|{}", "---:|".repeat(lengths.len()))?;
    for &(name, kind) in kinds {
        write!(out, "| {name} |")?;
        for n in lengths {
            let count = if n >= 120 { SERIES_COUNT / 10 } else { SERIES_COUNT };
            let found = (0..count)
                .filter(|&seed| !pelt_changes(&series(kind, n, &mut Random::new(seed ^ (n as u64) << 32))).is_empty())
                .count();
            write!(out, " {:.0} |", found as f64 * 1e6 / count as f64)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Minimum number of days of a level, as in `steps`.
const LEVEL_DAYS_MIN: usize = 5;
/// Fraction of series without a change that exceeds a threshold.
const PASS_FRACTION: f64 = 0.002;

/// Returns the difference in cost between no change and PELT's cheapest segmentation.
fn pelt_gain(values: &[f64]) -> f64 {
    let n = values.len();
    let Some(places) = pelt::changepoints(values, pelt::penalty(n), LEVEL_DAYS_MIN) else { return 0.0 };
    let cost = |part: &[f64]| {
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        let variance = part.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / part.len() as f64;
        part.len() as f64 * (variance + 1e-11).ln()
    };
    let (mut from, mut sum) = (0, 0.0);
    for at in places.iter().copied().chain([n]) {
        sum += cost(&values[std::mem::replace(&mut from, at)..at]);
    }
    cost(values) - sum - pelt::penalty(n) * places.len() as f64
}

/// Returns the largest Student's t statistic over the places (the test of Hunter: Fleming and others, ICPE 2023), squared.
fn largest_t(values: &[f64]) -> f64 {
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let squares = |part: &[f64]| part.iter().map(|v| (v - mean(part)).powi(2)).sum::<f64>();
    let one = |at: usize| {
        let (a, b) = values.split_at(at);
        let pooled = (squares(a) + squares(b)) / (values.len() - 2) as f64;
        (mean(a) - mean(b)).powi(2) / (pooled * (1.0 / a.len() as f64 + 1.0 / b.len() as f64))
    };
    (LEVEL_DAYS_MIN..=values.len() - LEVEL_DAYS_MIN).map(one).fold(0.0, f64::max)
}

/// Returns E-divisive's statistic of one change (Matteson and James, JASA 109, 2014; MongoDB's: Daly and others, ICPE 2020), in
/// units of the mean distance of two days.
fn e_divisive(values: &[f64]) -> f64 {
    let within = |part: &[f64]| -> f64 {
        (0..part.len()).map(|i| part[..i].iter().map(|v| (v - part[i]).abs()).sum::<f64>()).sum()
    };
    let all = within(values);
    let one = |at: usize| {
        let (a, b) = values.split_at(at);
        let (p, q, of_a, of_b) = (a.len() as f64, b.len() as f64, within(a), within(b));
        let apart = 2.0 * (all - of_a - of_b) / (p * q);
        p * q / (p + q) * (apart - 2.0 * of_a / (p * (p - 1.0)) - 2.0 * of_b / (q * (q - 1.0)))
    };
    let n = values.len() as f64;
    (LEVEL_DAYS_MIN..=values.len() - LEVEL_DAYS_MIN).map(one).fold(0.0, f64::max) / (2.0 * all / (n * (n - 1.0)))
}

/// A method's score of a series: a larger value means stronger evidence for a step.
type Method = fn(&[f64]) -> f64;

/// Prints the power of each method at the same rate of false alarms.
fn print_power(out: &mut impl std::io::Write) -> std::io::Result<()> {
    const SERIES_DAYS: usize = 30;
    let methods: [(&str, Method); 4] = [
        ("`stats::steps`", steps::series_gain),
        ("PELT alone", pelt_gain),
        ("E-divisive", e_divisive),
        ("largest t, as Hunter", largest_t),
    ];
    let over = |method: Method, kept: f64| {
        let mut all: Vec<f64> = (0..4000)
            .map(|seed| method(&series(NoiseKind::Dependent(kept), SERIES_DAYS, &mut Random::new(seed ^ 3 << 50))))
            .collect();
        all.sort_by(|a, b| b.total_cmp(a));
        all[(PASS_FRACTION * all.len() as f64) as usize]
    };
    writeln!(
        out,
        "\nPower: series of {SERIES_DAYS} days with a step after the 15th that are over a threshold, in percent. A threshold lets {} % of series \
         without\na step pass where days are independent, or (*any*) whatever part of the day before each day keeps. The first column, \
         without a step, is\nfalse alarms. E-divisive and Hunter as they are have the threshold of independent days.\n",
        PASS_FRACTION * 100.0
    )?;
    let sizes = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0];
    writeln!(out, "| days | method | threshold | {} |", sizes.map(|s| format!("{s}")).join(" | "))?;
    writeln!(out, "|---|---|---|{}", "---:|".repeat(sizes.len()))?;
    let limits = methods.map(|(_, method)| {
        let by = [0.0, 0.5, 0.8, 0.9, 0.95, 1.0].map(|kept| over(method, kept));
        (by[0], by.into_iter().fold(0.0, f64::max))
    });
    let kinds = [
        ("normal", NoiseKind::Normal),
        ("heavy tails (t, 3 degrees)", NoiseKind::Heavy),
        ("dependent (0.5)", NoiseKind::Dependent(0.5)),
        ("dependent (0.8)", NoiseKind::Dependent(0.8)),
        ("dependent (0.95)", NoiseKind::Dependent(0.95)),
        ("dependent (0.8), heavy tails", NoiseKind::HeavyDependent(0.8)),
        ("random walk", NoiseKind::Dependent(1.0)),
        ("random walk, heavy tails", NoiseKind::HeavyDependent(1.0)),
    ];
    for (name, kind) in kinds {
        for ((method_name, method), (independent, any)) in methods.iter().zip(limits) {
            for (which, limit) in [("independent", independent), ("any", any)] {
                if which == "independent" && !method_name.contains(['E', 'H']) {
                    continue;
                }
                let found = sizes.map(|size| {
                    let count = (0..1000_u64).filter(|&seed| {
                        let mut values = series(kind, SERIES_DAYS, &mut Random::new(seed ^ 1 << 40));
                        values[SERIES_DAYS / 2..].iter_mut().for_each(|v| *v += size);
                        method(&values) > limit
                    });
                    format!("{:.1}", count.count() as f64 / 10.0)
                });
                writeln!(out, "| {name} | {method_name} | {which} | {} |", found.join(" | "))?;
            }
        }
    }
    Ok(())
}

/// Number of fleets of each kind, and of series of each fleet.
const FLEET_COUNT: u64 = 50;
const FLEET_SERIES_COUNT: u64 = 100;

/// Prints the share of listed series without a step: the bound is on its mean over fleets (0 where nothing is listed).
fn print_listed(out: &mut impl std::io::Write, kinds: &[(&str, NoiseKind)]) -> std::io::Result<()> {
    writeln!(
        out,
        "\nWhat the page lists: {FLEET_COUNT} fleets of {FLEET_SERIES_COUNT} series of 30 days, of which some step by 6 spreads after the 15th day. \
         Series of all\nfleets that would be listed alone, those that are listed (`stats::changes`), how many of the listed have no step, \
         and the mean over fleets\nof their part of what is listed (0 if nothing is), which is what 5 % bound, with its standard error. The bound does not hold for \
         heavy tails\nwhere a day keeps more than 0.8 of the day before: a jump that stays is listed.\n"
    )?;
    writeln!(
        out,
        "| days | with a step | alone | listed | without a step | mean part |\n|---|---:|---:|---:|---:|---:|"
    )?;
    for &(name, kind) in kinds {
        for stepped in [0, 5] {
            let (mut found, mut listed, mut wrong) = (0, 0, 0);
            let mut parts = Vec::new();
            for fleet in 0..FLEET_COUNT {
                let all: Vec<Vec<f64>> = (0..FLEET_SERIES_COUNT)
                    .map(|n| {
                        let mut values = series(kind, 30, &mut Random::new(fleet << 32 ^ n ^ 1 << 50));
                        if n < stepped {
                            values[15..].iter_mut().for_each(|v| *v += 6.0);
                        }
                        values
                    })
                    .collect();
                let looked = changes::find(&all);
                let chance = looked.places.iter().skip(stepped as usize).filter(|places| !places.is_empty()).count();
                (found, listed, wrong) = (found + looked.found, listed + looked.taken(), wrong + chance);
                parts.push(chance as f64 / looked.taken().max(1) as f64);
            }
            let n = parts.len() as f64;
            let mean = parts.iter().sum::<f64>() / n;
            let error = (parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt();
            let part = format!("{:.1} % ± {:.1} %", mean * 100.0, error * 100.0);
            writeln!(out, "| {name} | {} | {found} | {listed} | {wrong} | {part} |", stepped * FLEET_COUNT)?;
        }
    }
    Ok(())
}
