//! Figures 7 to 12 of paper 001, from the workload `cluster`: once with the paper's own cluster, once with today's pool
//! under the same load; and from `cluster-devices`: the paper's cluster with nodes on devices.
//!
//! The paper's statements and the selection of our cells are data: experiments/papers/cluster-values.toml. Where its text
//! gives a number, the number is shown beside ours; neither is derived from the other.

use super::figure::{Bar, Figure, StatedNumber};
use super::results::{Bench, MeasuredCell};
use super::{is_counted, mean};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The workload, emulated on one machine.
const CLUSTER_WORKLOAD: &str = "cluster";
/// The workload on devices.
pub const DEVICES_WORKLOAD: &str = "cluster-devices";
/// Fraction of the best score that counts as saturated.
const SATURATED_SHARE_MIN: f64 = 0.95;

type Factors = BTreeMap<String, String>;

static PAPER_FIGURES: LazyLock<Vec<PaperFigure>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        figure: Vec<PaperFigure>,
    }
    // A test parses this file, so a mistake in it cannot reach a user.
    toml::from_str::<File>(include_str!("../../../experiments/papers/cluster-values.toml"))
        .map(|file| file.figure)
        .unwrap_or_default()
});

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperFigure {
    number: String,
    title: String,
    says: String,
    cells: Factors,
    lines: [String; 2],
    /// Replaces the score.
    metric: Option<String>,
    #[serde(default)]
    stated: Vec<Number>,
}

/// A number in its text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Number {
    what: String,
    value: f64,
    unit: String,
    at: Factors,
    of: Option<NumberKind>,
    over: Option<Factors>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NumberKind {
    Saturation,
}

/// Returns the figures for which the archive has cells.
pub fn figures(bench: &Bench, all: &[MeasuredCell]) -> Vec<Figure> {
    let by = [("cluster", ""), ("load", "; this pool under the same load")];
    let figures = by.into_iter().flat_map(|(by, addition)| {
        PAPER_FIGURES.iter().map(move |known| {
            let ours: Vec<&MeasuredCell> = all.iter().filter(|m| belongs_to_figure(m, known, by)).collect();
            build_figure(bench, known, &ours, addition, by == "cluster")
        })
    });
    let on_devices = PAPER_FIGURES.iter().map(|known| {
        let ours: Vec<&MeasuredCell> = all.iter().filter(|m| belongs_to_figure_on_devices(m, known)).collect();
        // The paper's numbers are for eight tablets.
        build_figure(bench, known, &ours, "; on devices", false)
    });
    figures.chain(on_devices).filter(|figure| !figure.bars.is_empty()).collect()
}

/// Whether a cell belongs to a figure, with any number of devices.
fn belongs_to_figure_on_devices(m: &MeasuredCell, known: &PaperFigure) -> bool {
    let mut cells = known.cells.clone();
    cells.remove("nodes");
    m.design.name == DEVICES_WORKLOAD && has_factors(&m.factors, &cells)
}

fn belongs_to_figure(m: &MeasuredCell, known: &PaperFigure, by: &str) -> bool {
    m.design.name == CLUSTER_WORKLOAD
        && m.factors.get("by").is_some_and(|b| b == by)
        && has_factors(&m.factors, &known.cells)
}

fn has_factors(factors: &Factors, wanted: &Factors) -> bool {
    wanted.iter().all(|(name, value)| factors.get(name) == Some(value))
}

fn build_figure(
    bench: &Bench,
    known: &'static PaperFigure,
    ours: &[&MeasuredCell],
    addition: &str,
    paper: bool,
) -> Figure {
    let bars: Vec<Bar> = ours.iter().filter_map(|m| build_bar(bench, known, m)).collect();
    let value = |wanted: &Factors| {
        let of = |m: &&MeasuredCell| has_factors(&m.factors, wanted).then_some(m.estimate.estimate).flatten();
        ours.iter().find_map(of)
    };
    let number = |number: &'static Number| StatedNumber {
        what: &number.what,
        paper: number.value,
        ours: match (number.of, &number.over) {
            (Some(NumberKind::Saturation), _) => saturating_threads(ours, &number.at),
            (None, Some(over)) => {
                let mut below = number.at.clone();
                below.extend(over.clone());
                value(&number.at).zip(value(&below)).map(|(above, below)| above / below)
            }
            (None, None) => value(&number.at),
        },
        unit: &number.unit,
    };
    Figure {
        paper: "001",
        figure: &known.number,
        title: format!("{}{addition}", known.title).into(),
        says: &known.says,
        x: Some(&known.lines[0]),
        series: Some(&known.lines[1]),
        bars,
        // The paper's text is about its own cluster, not ours.
        stated: known.stated.iter().filter(|_| paper).map(number).collect(),
    }
}

/// Returns the smallest number of threads, of the cells `at`, that is near the best score.
fn saturating_threads(ours: &[&MeasuredCell], at: &Factors) -> Option<f64> {
    let cells = ours.iter().filter(|m| has_factors(&m.factors, at));
    let mut by_threads: Vec<(f64, f64)> =
        cells.filter_map(|m| Some((m.factors.get("threads")?.parse().ok()?, m.estimate.estimate?))).collect();
    by_threads.sort_by(|a, b| a.0.total_cmp(&b.0));
    // One number of threads shows no trend.
    let best = by_threads.iter().map(|c| c.1).fold(0.0, f64::max);
    by_threads.iter().find(|c| c.1 >= SATURATED_SHARE_MIN * best).map(|c| c.0).filter(|_| by_threads.len() > 1)
}

fn build_bar(bench: &Bench, known: &PaperFigure, m: &MeasuredCell) -> Option<Bar> {
    let score = super::figure::score_bar(m);
    let Some(metric) = &known.metric else {
        let [x, series] = known.lines.each_ref().map(|name| m.factors.get(name).cloned());
        return Some(Bar { x, series, ..score });
    };
    let own: Vec<u64> =
        bench.tables.replicates.iter().filter(|r| r.cell == m.cell.id && is_counted(r)).map(|r| r.id).collect();
    let samples = bench.tables.samples.iter().filter(|s| s.metric == *metric);
    let samples: Vec<_> = samples.filter(|s| s.replicate.is_some_and(|id| own.contains(&id))).collect();
    let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
    let [x, series] = known.lines.each_ref().map(|name| m.factors.get(name).cloned());
    Some(Bar {
        x,
        series,
        estimate: (!values.is_empty()).then(|| mean(&values)),
        ci95: None,
        unit: samples.first()?.unit.clone(),
        values,
        ..score
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::bench;

    fn cell(
        by: &'static str,
        nodes: &'static str,
        threads: &'static str,
        batch: &'static str,
    ) -> [(&'static str, &'static str); 5] {
        [("by", by), ("io", "flash"), ("nodes", nodes), ("threads", threads), ("batch", batch)]
    }

    #[test]
    fn the_papers_values_are_shown_with_ours() {
        assert_eq!(PAPER_FIGURES.len(), 8);
        let mut made = bench("b", CLUSTER_WORKLOAD);
        for (threads, rate) in [("1", 500.0), ("2", 1000.0), ("4", 2030.0), ("32", 2100.0)] {
            made.add(&cell("cluster", "1", threads, "1"), 1e9 / rate, 1.0, 3);
            made.add(&cell("cluster", "8", threads, "100"), 1e9 / (8.0 * rate), 1.0, 3);
        }
        made.add(&cell("load", "1", "32", "1"), 1e9 / 4000.0, 1.0, 3);
        let figures = figures(&made, &made.measured_cells());
        let names: Vec<(&str, usize)> = figures.iter().map(|f| (f.figure, f.bars.len())).collect();
        assert_eq!(names[..2], [("7", 4), ("9", 4)]);
        let one = &figures[0].stated[0];
        assert!(one.paper == 2100.0 && (one.ours.unwrap() / 2100.0 - 1.0).abs() < 0.02, "{one:?}");
        let [most, saturated] = &figures[1].stated[..] else { panic!("{:?}", figures[1].stated) };
        assert!((most.ours.unwrap() / 16_800.0 - 1.0).abs() < 0.02);
        assert_eq!((saturated.paper, saturated.ours), (4.0, Some(4.0)));
        made = bench("c", DEVICES_WORKLOAD);
        made.add(&[("io", "flash"), ("nodes", "1"), ("threads", "32"), ("batch", "10")], 1e6, 1.0, 3);
        let on_devices = super::figures(&made, &made.measured_cells());
        assert!(on_devices.iter().any(|f| f.figure == "8" && f.title.ends_with("on devices") && f.stated.is_empty()));
        let today = figures.iter().find(|f| f.title.contains("this pool")).unwrap();
        assert!(today.figure == "7" && today.bars.len() == 1 && today.stated.is_empty());
    }
}
