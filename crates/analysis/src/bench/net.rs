//! Network runs (`fathom net run -o`): a cell with one process, whose score and interval are its own words.
//!
//! A benchmark's cell has its interval from how processes differ. A run is one process; what is known of its mean is how much
//! parts of it differ (batch means, `net::estimate`), and the run has told that with its estimate. So both are read here and
//! not made: of each direction `METRIC`, `METRIC.low` and `METRIC.high`. Two directions at once are no independent runs, so
//! their intervals add up.
//!
//! What held a direction back the run has told too, as the mark `limited_by DIRECTION`, whose text is the JSON of the
//! contract of `fathom net run --json`.

use super::beside::Beside;
use super::figures::{Bar, Figure};
use super::flows;
use super::page::{Page, page};
use super::results::{Bench, words};
use super::{Score, counts};
use model::table::{DesignRow, Sample};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The name of a run's only design.
pub const RUN: &str = "net run";
/// What a run's score is of, in the place of `rate`, `time` and `value`.
pub(super) const OF: &str = "run";
/// What the mark of a direction's limits is called, before the direction.
pub const LIMITED_BY: &str = "limited_by ";
/// How the interval was made.
const METHOD: &str = "batch means of this one run";

/// What held one direction of a run back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Held {
    /// The run's archive, if the page shows several.
    pub run: Option<String>,
    /// `up` or `down`.
    pub direction: String,
    /// The causes, the greatest first.
    pub limits: Vec<Limit>,
}

/// A cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// In words: `link rate`.
    pub cause: String,
    /// The share of the run's time, 0 to 1.
    pub share: f64,
    /// What shows it.
    pub evidence: String,
    /// What would change it.
    pub remedy: Option<String>,
}

/// A score as a run told it.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// The estimate, of all directions together.
    pub value: f64,
    /// Its interval, if the run was long enough for one.
    pub ci95: Option<[f64; 2]>,
}

impl Told {
    /// How the interval was made; nothing if there is none.
    pub fn method(&self) -> &'static str {
        if self.ci95.is_some() { METHOD } else { "" }
    }
}

/// The score that these samples of a run tell, of all directions or of those whose labels `wanted` takes.
pub fn told(metric: &str, samples: &[&Sample], wanted: impl Fn(&str) -> bool) -> Option<Told> {
    let of = |metric: &str| -> Vec<f64> {
        samples.iter().filter(|s| s.metric == metric && wanted(&s.labels)).map(|s| s.value).collect()
    };
    let (values, lows, highs) = (of(metric), of(&format!("{metric}.low")), of(&format!("{metric}.high")));
    let whole = lows.len() == values.len() && highs.len() == values.len();
    let ci95 = whole.then(|| [lows.iter().sum(), highs.iter().sum()]);
    (!values.is_empty()).then(|| Told { value: values.iter().sum(), ci95 })
}

/// How a run was measured, in sentences; `None` for any other design.
pub(super) fn method(design: &DesignRow) -> Option<Vec<String>> {
    (design.name == RUN).then(|| {
        vec![
            "One run. Throughput was counted at the receiver every 100 ms, transactions at the client.".into(),
            "The score is the mean of the steady state, or of the whole run if there is none, with an interval from \
             ten batch means. The interval is of this run's mean; it does not include variation between runs."
                .into(),
        ]
    })
}

/// The page of network runs: the numbers of each, the flows of all on one axis, and what was recorded beside them.
///
/// # Errors
/// A recording has no place on their axis, or there is no run.
pub fn page_of(runs: &[Bench], recordings: &[Beside]) -> Result<Page, String> {
    let nothing = |_: &str| -> super::Why { unreachable!("network runs contain no recordings") };
    let several = runs.len() > 1;
    let mut pages = runs.iter().map(|run| {
        let mut page = page(run, &nothing);
        page.figures = figure(run, several).into_iter().collect();
        page.held = held(run, several);
        if several {
            page.shown.results.iter_mut().for_each(|result| result.workload = run.name.clone());
            page.metrics.iter_mut().for_each(|metric| metric.title = format!("{}: {}", run.name, metric.title));
        }
        page
    });
    // The last one is the page's; the others lend it their numbers.
    let mut whole = pages.next().ok_or("no archive contains a network run")?;
    for mut page in pages {
        join(&mut whole.figures, page.figures);
        std::mem::swap(&mut whole.shown.results, &mut page.shown.results);
        page.shown.results.drain(..).rev().for_each(|result| whole.shown.results.insert(0, result));
        whole.shown.complete &= page.shown.complete;
        (whole.shown.environment, whole.shown.marks) = (page.shown.environment, page.shown.marks);
        whole.metrics.extend(page.metrics);
        whole.held.extend(page.held);
        whole.command = page.command;
    }
    whole.flows = flows::together(runs, recordings)?;
    Ok(whole)
}

/// Bars of one kind of figure, of all runs.
fn join(figures: &mut Vec<Figure>, more: Vec<Figure>) {
    for figure in more {
        match figures.first_mut() {
            Some(first) => first.bars.extend(figure.bars),
            None => figures.push(figure),
        }
    }
}

/// The score of a run, and of each of its directions if there are two.
fn figure(bench: &Bench, several: bool) -> Option<Figure> {
    let all = bench.measured();
    let m = all.first()?;
    let name = |words: String| if several { format!("{} {words}", bench.name.replace(' ', "_")) } else { words };
    let samples: Vec<&Sample> = bench.tables.samples.iter().collect();
    let score = m.score();
    let directions: BTreeSet<&str> =
        samples.iter().filter(|s| s.metric == score.metric).filter_map(|s| direction(&s.labels)).collect();
    let whole = Bar { label: name(words(&m.factors)), ..super::figures::score(m) };
    let mut bars = vec![whole];
    if directions.len() > 1 && bars[0].estimate.is_some() {
        for way in directions {
            let told = told(&score.metric, &samples, |labels| direction(labels) == Some(way))?;
            let factors: BTreeMap<String, String> = m
                .factors
                .iter()
                .map(|(n, v)| (n.clone(), if n == "direction" { way.into() } else { v.clone() }))
                .collect();
            let label = name(words(&factors));
            bars.push(Bar {
                label,
                estimate: Some(told.value),
                ci95: told.ci95,
                values: vec![told.value],
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

fn direction(labels: &str) -> Option<&str> {
    labels.split(' ').find_map(|word| word.strip_prefix("direction="))
}

/// What held each direction back, as the run told it. A mark that is no such text, in a foreign archive, is left out.
fn held(bench: &Bench, several: bool) -> Vec<Held> {
    let good: BTreeSet<u64> = bench.tables.replicates.iter().filter(|r| counts(r)).map(|r| r.id).collect();
    let of_run = bench.tables.marks.iter().filter(|m| m.replicate.is_some_and(|id| good.contains(&id)));
    let one = |mark: &model::table::MarkRow| {
        let direction = mark.name.strip_prefix(LIMITED_BY)?.to_string();
        let mut limits: Vec<Limit> = serde_json::from_str(&mark.text).ok()?;
        limits.iter_mut().for_each(|limit| limit.cause = cause(&limit.cause));
        Some(Held { run: several.then(|| bench.name.clone()), direction, limits })
    };
    of_run.filter_map(one).collect()
}

/// A cause in words, from how JSON and samples write it.
pub(super) fn cause(written: &str) -> String {
    if written == "cpu" { "CPU".into() } else { written.replace('_', " ") }
}

/// Whether a score is one that a run told.
pub(super) fn is_told(score: &Score) -> bool {
    score.of == OF
}
