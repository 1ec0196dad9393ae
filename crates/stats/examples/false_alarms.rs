//! How often a change is set where there is none, and one that is there is found: series as a fleet has them, by length and kind.
//!
//!     cargo run --release -p stats --example false_alarms > docs/results/fleet-changes.md
//!     cargo run --release -p stats --example false_alarms -- chances      the table of crates/stats/src/steps.rs
//!
//! All numbers are of seeds, so that they come out again on every machine.

use stats::random::Random;
use stats::{changes, pelt, steps};
use std::io::Write as _;

const SERIES: u64 = 20_000;

/// A day's median of a statement, as a logarithm: level 0, spread 1.
#[derive(Clone, Copy)]
enum Kind {
    /// Independent, normal.
    Normal,
    /// Independent, with heavy tails (Student's t of 3 degrees of freedom).
    Heavy,
    /// One day in ten is an outlier of ten spreads.
    Outliers,
    /// Each day takes over this part of the deviation of the day before (1: a random walk).
    Dependent(f64),
    /// One number of few digits, as a counter gives it: most days equal.
    Rounded,
}

fn normal(random: &mut Random) -> f64 {
    let (a, b) = (random.unit().max(f64::MIN_POSITIVE), random.unit());
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

fn series(kind: Kind, n: usize, random: &mut Random) -> Vec<f64> {
    let mut before = normal(random);
    (0..n)
        .map(|_| match kind {
            Kind::Normal => normal(random),
            Kind::Heavy => {
                let chi: f64 = (0..3).map(|_| normal(random).powi(2)).sum();
                normal(random) / (chi / 3.0).sqrt()
            }
            Kind::Outliers => normal(random) + if random.unit() < 0.1 { 10.0 } else { 0.0 },
            Kind::Dependent(part) => {
                let new = if part < 1.0 { (1.0 - part * part).sqrt() } else { 1.0 };
                before = part * before + new * normal(random);
                before
            }
            Kind::Rounded => (normal(random) * 0.7).round(),
        })
        .collect()
}

fn changes(values: &[f64]) -> Vec<usize> {
    let n = values.len();
    pelt::changepoints(values, pelt::penalty(n), pelt::shortest(n)).unwrap_or_default()
}

/// The gains that series have by chance, for `steps.rs`.
fn chances() {
    for n in [10, 12, 15, 20, 30, 45, 70, 120, 200, 365] {
        let count = (3_000_000 / n).min(100_000) as u64;
        let mut largest = [0.0; 5];
        for kept in [0.0, 0.5, 0.8, 0.9, 0.95, 1.0] {
            let gain = |seed| steps::gain(&series(Kind::Dependent(kept), n, &mut Random::new(seed ^ (n as u64) << 40)));
            let mut gains: Vec<f64> = (0..count).map(gain).collect();
            gains.sort_by(|a, b| b.total_cmp(a));
            for (of, largest) in [0.1, 0.03, 0.01, 0.003, 0.001].iter().zip(&mut largest) {
                *largest = f64::max(*largest, gains[(of * count as f64) as usize]);
            }
        }
        let texts = largest.map(|gain| format!("{gain:.1}"));
        println!("    ({n}, [{}]),", texts.join(", "));
    }
}

fn main() -> std::io::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("chances") {
        chances();
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    let kinds = [
        ("normal", Kind::Normal),
        ("heavy tails (t, 3 degrees)", Kind::Heavy),
        ("a tenth outliers of 10 spreads", Kind::Outliers),
        ("dependent (0.5 of the day before)", Kind::Dependent(0.5)),
        ("dependent (0.8 of the day before)", Kind::Dependent(0.8)),
        ("dependent (0.9 of the day before)", Kind::Dependent(0.9)),
        ("dependent (0.95 of the day before)", Kind::Dependent(0.95)),
        ("random walk", Kind::Dependent(1.0)),
        ("rounded, most days equal", Kind::Rounded),
    ];
    let lengths = [10, 14, 30, 60, 120, 365];
    writeln!(out, "# Changes found by chance\n")?;
    writeln!(
        out,
        "Made by `cargo run --release -p stats --example false_alarms`: series of seeds, {SERIES} of each kind and length, a tenth as many \
         from\n120 days on. What `fathom fleet report` does with them is in [the guide](../guide/fleet.md#changes).\n"
    )?;
    writeln!(
        out,
        "Series without a change in which PELT (penalty 15 ln n, five days at least) sets one, per million:\n"
    )?;
    writeln!(out, "| days | {} |", lengths.map(|n| n.to_string()).join(" | "))?;
    writeln!(out, "|---|{}", "---:|".repeat(lengths.len()))?;
    for (name, kind) in kinds {
        write!(out, "| {name} |")?;
        for n in lengths {
            let count = if n >= 120 { SERIES / 10 } else { SERIES };
            let found = (0..count)
                .filter(|&seed| !changes(&series(kind, n, &mut Random::new(seed ^ (n as u64) << 32))).is_empty())
                .count();
            write!(out, " {:.0} |", found as f64 * 1e6 / count as f64)?;
        }
        writeln!(out)?;
    }
    writeln!(
        out,
        "\nSeries of 30 normal days with a step after the 15th in which it is found within a day of its place, in percent:\n"
    )?;
    let steps = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0];
    writeln!(out, "| step, in spreads of a day | {} |", steps.map(|s| format!("{s}")).join(" | "))?;
    writeln!(out, "|---|{}", "---:|".repeat(steps.len()))?;
    write!(out, "| found |")?;
    for step in steps {
        let found = (0..10_000_u64).filter(|&seed| {
            let mut values = series(Kind::Normal, 30, &mut Random::new(seed ^ 1 << 40));
            values[15..].iter_mut().for_each(|v| *v += step);
            changes(&values).iter().any(|at| (14..=16).contains(at))
        });
        write!(out, " {:.1} |", found.count() as f64 / 100.0)?;
    }
    writeln!(out)?;
    listed(&mut out, &kinds)
}

/// Fleets of each kind, and series of each fleet.
const FLEETS: u64 = 50;
const OF_FLEET: u64 = 100;

/// Of what a page lists, the part without a step: its mean over fleets is what the bound is about (0 where nothing is listed).
fn listed(out: &mut impl std::io::Write, kinds: &[(&str, Kind)]) -> std::io::Result<()> {
    writeln!(
        out,
        "\nWhat the page lists: {FLEETS} fleets of {OF_FLEET} series of 30 days, of which some step by 6 spreads after the 15th day. \
         Series of all\nfleets that PELT alone finds, those that are listed (`stats::changes`), how many of the listed have no step, \
         and the mean over fleets\nof their part of what is listed (0 if nothing is), which is what 5 % bound, with its standard error:\n"
    )?;
    writeln!(
        out,
        "| days | with a step | found by PELT | listed | without a step | mean part |\n|---|---:|---:|---:|---:|---:|"
    )?;
    for &(name, kind) in kinds {
        for stepped in [0, 5] {
            let (mut found, mut listed, mut wrong) = (0, 0, 0);
            let mut parts = Vec::new();
            for fleet in 0..FLEETS {
                let all: Vec<Vec<f64>> = (0..OF_FLEET)
                    .map(|n| {
                        let mut values = series(kind, 30, &mut Random::new(fleet << 32 ^ n ^ 1 << 50));
                        if n < stepped {
                            values[15..].iter_mut().for_each(|v| *v += 6.0);
                        }
                        values
                    })
                    .collect();
                let looked = changes::look(&all);
                let chance = looked.places.iter().skip(stepped as usize).filter(|places| !places.is_empty()).count();
                (found, listed, wrong) = (found + looked.found, listed + looked.taken(), wrong + chance);
                parts.push(chance as f64 / looked.taken().max(1) as f64);
            }
            let n = parts.len() as f64;
            let mean = parts.iter().sum::<f64>() / n;
            let error = (parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt();
            let part = format!("{:.1} % ± {:.1} %", mean * 100.0, error * 100.0);
            writeln!(out, "| {name} | {} | {found} | {listed} | {wrong} | {part} |", stepped * FLEETS)?;
        }
    }
    Ok(())
}
