//! Network runs (`fathom net run -o`): a cell with one process, which reports its own score and interval (`run_score`).

use super::disturbance::excluded_replicates;
use super::error::Error;
use super::figure::{Bar, Figure};
use super::flows;
use super::is_counted;
use super::page::{Page, page};
use super::recording_series::RecordingSeries;
use super::results::{Bench, factor_words};
use super::run_score::{DirectionLimits, LIMITED_BY, Limit, cause_in_words, run_score};
use model::table::{MarkRow, Sample};
use std::collections::{BTreeMap, BTreeSet};

/// Builds the page of network runs: the numbers of each, the flows of all on one axis, and what was recorded beside them.
///
/// # Errors
/// A recording does not fit on their axis, or there is no run.
pub fn page_of(runs: &[Bench], recordings: &[RecordingSeries]) -> Result<Page, Error> {
    let nothing = |_: &str| -> super::Why { unreachable!("network runs contain no recordings") };
    let several = runs.len() > 1;
    let mut pages = runs.iter().map(|run| {
        let mut page = page(run, &nothing);
        page.figures = run_figure(run, several).into_iter().collect();
        page.held = direction_limits(run, several);
        if several {
            page.shown.results.iter_mut().for_each(|result| result.workload = run.name.clone());
            page.metrics.iter_mut().for_each(|metric| metric.title = format!("{}: {}", run.name, metric.title));
        }
        page
    });
    // The page is that of the last run; the numbers of the others are added to it.
    let mut whole = pages.next().ok_or(Error::NoRun)?;
    for mut page in pages {
        add_bars(&mut whole.figures, page.figures);
        std::mem::swap(&mut whole.shown.results, &mut page.shown.results);
        page.shown.results.drain(..).rev().for_each(|result| whole.shown.results.insert(0, result));
        whole.shown.complete &= page.shown.complete;
        (whole.shown.environment, whole.shown.marks) = (page.shown.environment, page.shown.marks);
        whole.metrics.extend(page.metrics);
        whole.held.extend(page.held);
        whole.command = page.command;
    }
    whole.flows = flows::flows_of_runs(runs, recordings)?;
    Ok(whole)
}

/// Adds the bars of further runs to the figure of the same kind.
fn add_bars(figures: &mut Vec<Figure>, more: Vec<Figure>) {
    for figure in more {
        match figures.first_mut() {
            Some(first) => first.bars.extend(figure.bars),
            None => figures.push(figure),
        }
    }
}

/// Returns the score of a run, and of each of its directions if there are two.
fn run_figure(bench: &Bench, several: bool) -> Option<Figure> {
    let all = bench.measured_cells();
    let m = all.first()?;
    let name = |words: String| if several { format!("{} {words}", bench.name.replace(' ', "_")) } else { words };
    let (counted, disturbed) = (counted_replicates(bench), excluded_replicates(bench.tables.replicates.iter()));
    let is_counted = |s: &&Sample| s.replicate.is_some_and(|id| counted.contains(&id) && !disturbed.contains(&id));
    let samples: Vec<&Sample> = bench.tables.samples.iter().filter(is_counted).collect();
    let score = m.score();
    let directions: BTreeSet<&str> =
        samples.iter().filter(|s| s.metric == score.metric).filter_map(|s| direction_label(&s.labels)).collect();
    let whole = Bar { label: name(factor_words(&m.factors)), ..super::figure::score_bar(m) };
    let mut bars = vec![whole];
    if directions.len() > 1 && bars[0].estimate.is_some() {
        for way in directions {
            let run_score = run_score(&score.metric, &samples, |labels| direction_label(labels) == Some(way))?;
            let factors: BTreeMap<String, String> = m
                .factors
                .iter()
                .map(|(n, v)| (n.clone(), if n == "direction" { way.into() } else { v.clone() }))
                .collect();
            let label = name(factor_words(&factors));
            bars.push(Bar {
                label,
                estimate: Some(run_score.value),
                ci95: run_score.ci95,
                values: vec![run_score.value],
                ..bars[0].clone()
            });
        }
    }
    Some(Figure {
        paper: "",
        figure: "",
        title: "throughput".into(),
        says: "",
        x: None,
        series: None,
        bars,
        stated: Vec::new(),
    })
}

fn counted_replicates(bench: &Bench) -> BTreeSet<u64> {
    bench.tables.replicates.iter().filter(|r| is_counted(r)).map(|r| r.id).collect()
}

fn direction_label(labels: &str) -> Option<&str> {
    labels.split(' ').find_map(|word| word.strip_prefix("direction="))
}

/// Returns what limited each direction, as the run stored it. A malformed mark, in a foreign archive, is left out.
fn direction_limits(bench: &Bench, several: bool) -> Vec<DirectionLimits> {
    let good = counted_replicates(bench);
    let of_run = bench.tables.marks.iter().filter(|m| m.replicate.is_some_and(|id| good.contains(&id)));
    let one = |mark: &MarkRow| {
        let direction = mark.name.strip_prefix(LIMITED_BY)?.to_string();
        let mut limits: Vec<Limit> = serde_json::from_str(&mark.text).ok()?;
        limits.iter_mut().for_each(|limit| limit.cause = cause_in_words(&limit.cause));
        Some(DirectionLimits { run: several.then(|| bench.name.clone()), direction, limits })
    };
    of_run.filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::bench;

    /// The score of the run leaves them out, so those of its directions must.
    #[test]
    fn warm_ups_and_failures_count_for_no_direction() {
        let mut run = bench("run", super::super::run_score::RUN);
        run.tables.designs[0].score = "run".into();
        run.add(&[("direction", "both")], 100.0, 1.0, 3);
        run.tables.cells[0].metric = Some("throughput".into());
        run.tables.replicates[0].warmup = true;
        run.tables.replicates[1].failure = Some("the connection was lost".into());
        run.tables.samples = (0..3)
            .flat_map(|id| {
                ["up", "down"].map(|way| Sample {
                    replicate: Some(id),
                    metric: "throughput".into(),
                    unit: "bit/s".into(),
                    labels: format!("direction={way}"),
                    time_ns: None,
                    value: if id == 2 { 100.0 } else { 7.0 },
                })
            })
            .collect();
        let figure = run_figure(&run, false).unwrap();
        let estimates: Vec<Option<f64>> = figure.bars.iter().map(|bar| bar.estimate).collect();
        assert_eq!(estimates, [Some(200.0), Some(100.0), Some(100.0)]);
    }
}
