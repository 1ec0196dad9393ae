//! How much of the ratio of two devices is due to their settings: from the first device's settings to the second's, one factor at
//! a time, on the first device; then the second device at those settings.
//!
//! The ratios of the steps multiply to the whole: with scores A(s) and B(s) at settings s, B(b)/A(a) is the product of
//! A(after)/A(before) over the factors, and B(b)/A(b). So each step has a share in the logarithm of the ratio. The shares depend
//! on the order of the factors if those interact (in WAL mode `synchronous` means something else): the order is stated, and the
//! steps are measured, not modelled. The last step is the rest: kernel, file system, disk and processor together, which no
//! setting of the first device can reproduce.

use super::CONFIDENCE_LEVEL;
use super::compare::ratio_of;
use super::results::{Bench, MeasuredCell, factor_words};
use analysis::text::{digits, shown};
use serde::Serialize;
use stats::cells::{Comparison, Pairing};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A factor and its values on both devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name, such as `journal_mode`.
    pub factor: String,
    /// The first device's.
    pub a: String,
    /// The second's.
    pub b: String,
    /// The source of these values.
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// The factor; `None` for the rest.
    pub factor: Option<String>,
    /// Old and new value; `None` for the rest.
    pub values: Option<[String; 2]>,
    /// Score after / score before.
    pub ratio: Option<f64>,
    /// Its confidence interval.
    pub ci95: Option<[f64; 2]>,
    /// Its share of the whole ratio's logarithm; `None` if the whole does not differ from 1.
    pub share: Option<f64>,
}

/// A cell measured on both devices.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DecomposedRatio {
    /// The design's name.
    pub workload: String,
    /// The factors that are the same on both.
    pub parameters: BTreeMap<String, String>,
    /// The metric, if it is not the cell's own score.
    pub score: Option<String>,
    /// Unit of the scores.
    pub unit: String,
    /// Score of B with its settings / score of A with its own.
    pub ratio: f64,
    /// Its confidence interval.
    pub ci95: [f64; 2],
    /// The steps from A to B, the rest last.
    pub steps: Vec<Step>,
}

/// Returns every cell whose steps were measured. A workload that does not have the factors has no steps, only a ratio.
pub fn decompose(a: &Bench, b: &Bench, settings: &[Setting]) -> Vec<DecomposedRatio> {
    let (first, second) = (a.scores(), b.scores());
    let has = |m: &MeasuredCell| settings.iter().all(|s| m.factors.get(&s.factor) == Some(&s.a));
    first.iter().filter(|m| has(m)).filter_map(|m| decompose_cell(m, &first, &second, settings)).collect()
}

fn decompose_cell(
    start: &MeasuredCell,
    first: &[MeasuredCell],
    second: &[MeasuredCell],
    settings: &[Setting],
) -> Option<DecomposedRatio> {
    let like = |all: &[MeasuredCell], factors: &BTreeMap<String, String>| {
        all.iter().position(|m| {
            m.design.name == start.design.name && m.extra_metric() == start.extra_metric() && m.factors == *factors
        })
    };
    let changing = settings.iter().filter(|s| s.a != s.b);
    let mut current = start;
    let mut factors = start.factors.clone();
    let mut steps = Vec::new();
    for setting in changing {
        factors.insert(setting.factor.clone(), setting.b.clone());
        let next = &first[like(first, &factors)?];
        let values = Some([setting.a.clone(), setting.b.clone()]);
        // A block in which one process was disturbed is not a pair; of few blocks, too few may remain.
        let ratio = ratio_of(current, next, Pairing::Blocks, CONFIDENCE_LEVEL)
            .or_else(|| ratio_of(current, next, Pairing::Unpaired, CONFIDENCE_LEVEL));
        steps.push(step(Some(setting.factor.clone()), values, ratio));
        current = next;
    }
    let end = &second[like(second, &factors)?];
    steps.push(step(None, None, ratio_of(current, end, Pairing::Unpaired, CONFIDENCE_LEVEL)));
    let whole = ratio_of(start, end, Pairing::Unpaired, CONFIDENCE_LEVEL)?.ratio;
    if !whole.holds(1.0) {
        // Medians of three comparisons do not multiply exactly: shares are relative to the product of the steps.
        let sum: f64 = steps.iter().filter_map(|s| s.ratio).map(f64::ln).sum();
        let all = steps.iter().all(|s| s.ratio.is_some()) && sum != 0.0;
        steps.iter_mut().for_each(|s| s.share = s.ratio.filter(|_| all).map(|ratio| ratio.ln() / sum));
    }
    let mut parameters = start.factors.clone();
    parameters.retain(|name, _| !settings.iter().any(|s| s.factor == *name));
    Some(DecomposedRatio {
        workload: start.design.name.clone(),
        parameters,
        score: start.extra_metric().map(String::from),
        unit: start.estimate.unit.clone(),
        ratio: whole.value,
        ci95: [whole.low, whole.high],
        steps,
    })
}

fn step(factor: Option<String>, values: Option<[String; 2]>, comparison: Option<Comparison>) -> Step {
    let ratio = comparison.map(|c| c.ratio);
    Step { factor, values, ratio: ratio.map(|r| r.value), ci95: ratio.map(|r| [r.low, r.high]), share: None }
}

pub fn text(all: &[DecomposedRatio], settings: &[Setting]) -> String {
    let mut text = String::from("Settings: A's and B's\n");
    for s in settings {
        let _ = writeln!(text, "  {:14} {:9} {:9}  {}", shown(&s.factor), shown(&s.a), shown(&s.b), shown(&s.source));
    }
    text.push_str("\nB with its settings / A with its own, and what makes the ratio\n");
    for cell in all {
        let score = cell.score.as_ref().map_or_else(String::new, |score| format!(" {score}"));
        let _ = writeln!(
            text,
            "  {} {}{}: x {}",
            shown(&cell.workload),
            shown(&factor_words(&cell.parameters)),
            shown(&score),
            format_interval(cell.ratio, cell.ci95)
        );
        for step in &cell.steps {
            let what = match (&step.factor, &step.values) {
                (Some(factor), Some([from, to])) => format!("{factor} {from} -> {to}, on A"),
                _ => "the rest, at B's settings: B / A".into(),
            };
            let ratio = match (step.ratio, step.ci95) {
                (Some(ratio), Some(ci)) => format!("x {}", format_interval(ratio, ci)),
                _ => "too few processes for a ratio".into(),
            };
            let share = step.share.map_or_else(String::new, |share| format!("  {:.0} %", share * 100.0));
            let _ = writeln!(text, "    {:36} {ratio}{share}", shown(&what));
        }
    }
    if all.is_empty() {
        text.push_str("  no cell was measured with these settings on both\n");
    } else {
        text.push_str("  (%: share of the ratio's logarithm; none where the interval holds 1)\n");
    }
    text
}

fn format_interval(value: f64, [low, high]: [f64; 2]) -> String {
    format!("{} ({} to {})", digits(value), digits(low), digits(high))
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::bench;
    use super::*;

    fn setting(factor: &str, a: &str, b: &str) -> Setting {
        Setting { factor: factor.into(), a: a.into(), b: b.into(), source: "x".into() }
    }

    /// Times per row: 8 with DELETE on A, 4 with WAL, 1 with WAL and `normal`; 0.5 for the last on B. So the whole is 16.
    fn both() -> (Bench, Bench) {
        let (mut a, mut b) = (bench("a", "sqlite"), bench("b", "sqlite"));
        for (mode, sync, row_ns) in [("delete", "full", 8e6), ("wal", "full", 4e6), ("wal", "normal", 1e6)] {
            a.add(&[("op", "insert"), ("journal_mode", mode), ("synchronous", sync)], row_ns, 100.0, 12);
        }
        b.add(&[("op", "insert"), ("journal_mode", "wal"), ("synchronous", "normal")], 0.5e6, 100.0, 12);
        (a, b)
    }

    #[test]
    fn steps_multiply_to_the_ratio_and_shares_add_up_to_one() {
        let (a, b) = both();
        let settings = [setting("journal_mode", "delete", "wal"), setting("synchronous", "full", "normal")];
        let all = decompose(&a, &b, &settings);
        let [cell] = &all[..] else { panic!("{all:?}") };
        let near =
            |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.02, "{value}, not {expected}");
        near(cell.ratio, 16.0);
        for (step, (ratio, share)) in cell.steps.iter().zip([(2.0, 0.25), (4.0, 0.5), (2.0, 0.25)]) {
            near(step.ratio.unwrap(), ratio);
            near(step.share.unwrap(), share);
            let [low, high] = step.ci95.unwrap();
            assert!(low < ratio * 1.01 && high > ratio * 0.99, "{step:?}");
        }
        near(cell.steps.iter().map(|s| s.share.unwrap()).sum(), 1.0);
        assert_eq!(cell.parameters.keys().collect::<Vec<_>>(), ["op"]);
        assert!(text(&all, &settings).contains("journal_mode delete -> wal, on A"));
        // In the opposite order the steps are not measured: nothing is reported.
        let other = [setting("synchronous", "full", "normal"), setting("journal_mode", "delete", "wal")];
        assert_eq!(decompose(&a, &b, &other), []);
    }

    #[test]
    fn equal_settings_leave_only_the_rest() {
        let (mut a, mut b) = (bench("a", "sqlite"), bench("b", "sqlite"));
        a.add(&[("journal_mode", "wal")], 1e6, 100.0, 12);
        b.add(&[("journal_mode", "wal")], 1e6, 100.0, 12);
        let all = decompose(&a, &b, &[setting("journal_mode", "wal", "wal")]);
        assert_eq!((all.len(), all[0].steps.len()), (1, 1));
        // Nothing differs: there is nothing to share.
        assert!(all[0].ci95[0] <= 1.0 && all[0].ci95[1] >= 1.0 && all[0].steps[0].share.is_none(), "{all:?}");
    }
}
