//! Results over time: the same cells in one archive after the other, and where the machine changed in between.
//!
//! Each result is compared with the previous one of the same cell ([`super::compare`]), so that a step is distinguished from
//! noise; the margins and corrections are those of that pair of archives. A fact that holds only for a run (the load, the
//! temperature) is not a change of the machine.

use super::comparability::Rules;
use super::compare::{BenchComparison, compare_archives, distinguishing_factors};
use super::fact_difference::{self, FactDifference};
use super::results::{Bench, factor_words};
use analysis::text::{date, digits, scale, shown};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The contract of `fathom bench history --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct History {
    pub version: u32,
    /// The archives, oldest first.
    pub archives: Vec<Entry>,
    /// One line per cell; several if its unit changed.
    pub cells: Vec<Line>,
}

/// An archive.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    pub archive: String,
    /// When it was started, ns since 1970.
    pub created_unix_ns: u64,
    /// Whether it ran to its end.
    pub complete: bool,
    /// Changes of the machine since the previous archive.
    pub changed: Vec<FactDifference>,
}

/// A cell over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The design's name.
    pub workload: String,
    /// Its factors.
    pub parameters: BTreeMap<String, String>,
    /// The metric, if it is not the cell's own score.
    pub score: Option<String>,
    /// Unit of the scores.
    pub unit: String,
    /// Its results, oldest first.
    pub points: Vec<Point>,
}

/// A result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// The archive's index in the list.
    pub archive: usize,
    /// The score.
    pub estimate: Option<f64>,
    /// Bounds of its confidence interval.
    pub ci95: Option<[f64; 2]>,
    pub processes: usize,
    /// Score / previous score of this cell.
    pub ratio: Option<f64>,
    /// `faster`, `slower`, `equivalent`, `inconclusive` or `disturbed` relative to that; `not comparable` where it is another quantity.
    pub verdict: Option<&'static str>,
}

/// The design's name, the factors in words, and the metric of a further score.
type Key = (String, String, Option<String>);

/// Returns the history of these archives, given in any order.
pub fn history(mut benches: Vec<Bench>) -> History {
    benches.sort_by_key(|b| b.created_unix_ns);
    // By cell and unit: scores of different units share no axis.
    let mut lines: BTreeMap<(Key, String), Line> = BTreeMap::new();
    // The last archive that has each cell, and the cell's unit there.
    let mut last: BTreeMap<Key, (usize, String)> = BTreeMap::new();
    let mut entries = Vec::new();
    for (at, bench) in benches.iter().enumerate() {
        let changed = match at.checked_sub(1).and_then(|before| benches.get(before)) {
            Some(before) => fact_difference::differing_facts(&before.tables.environment, &bench.tables.environment)
                .into_iter()
                .filter(|d| d.varies != "run")
                .collect(),
            None => Vec::new(),
        };
        entries.push(Entry {
            archive: bench.name.clone(),
            created_unix_ns: bench.created_unix_ns,
            complete: bench.is_complete(),
            changed,
        });
        let mut compared = BTreeMap::new();
        for m in bench.scores() {
            let parameters = distinguishing_factors(&m);
            let score = m.extra_metric().map(String::from);
            let key = (m.design.name.clone(), factor_words(&parameters), score.clone());
            let all: Option<&BenchComparison> = last.get(&key).map(|(before, _)| {
                let with = || compare_archives(&benches[*before], bench, &Rules::default());
                &*compared.entry(*before).or_insert_with(with)
            });
            let same = |workload: &str, of: &BTreeMap<String, String>, metric: &Option<String>| {
                workload == m.design.name && *of == parameters && *metric == score
            };
            let pair = all.and_then(|all| all.results.iter().find(|p| same(&p.workload, &p.parameters, &p.score)));
            let is_incomparable =
                all.is_some_and(|all| all.incomparable.iter().any(|i| same(&i.workload, &i.parameters, &i.score)));
            let point = Point {
                archive: at,
                estimate: m.estimate.estimate,
                ci95: m.estimate.ci95,
                processes: m.estimate.processes,
                ratio: pair.and_then(|p| p.ratio),
                verdict: pair.map(|p| p.verdict.name()).or(is_incomparable.then_some("not comparable")),
            };
            // Without a score its unit may be unknown.
            let before = last.get(&key).filter(|_| m.estimate.estimate.is_none());
            let unit = before.map_or(&m.estimate.unit, |(_, unit)| unit).clone();
            let line = lines.entry((key.clone(), unit.clone())).or_insert_with(|| Line {
                workload: m.design.name.clone(),
                parameters,
                score,
                unit: unit.clone(),
                points: Vec::new(),
            });
            line.points.push(point);
            last.insert(key, (at, unit));
        }
    }
    History { version: 1, archives: entries, cells: lines.into_values().collect() }
}

pub fn text(history: &History) -> String {
    let mut text = String::new();
    for (at, e) in history.archives.iter().enumerate() {
        let note = if e.complete { "" } else { "  (interrupted)" };
        let _ = writeln!(text, "{:>3}  {}  {}{note}", at + 1, date(e.created_unix_ns), shown(&e.archive));
        for d in &e.changed {
            let _ = writeln!(text, "     changed: {} from {} to {}", d.fact, shown(&d.a), shown(&d.b));
        }
    }
    for line in &history.cells {
        let score = line.score.as_ref().map_or_else(String::new, |metric| format!(" {}", shown(metric)));
        let middle = line.points.iter().find_map(|p| p.estimate).unwrap_or(0.0);
        let (size, unit) = scale(&line.unit, middle);
        let _ = writeln!(text, "\n{} {}{score} ({unit})", line.workload, shown(&factor_words(&line.parameters)));
        // The bars share a scale from zero, so that a small difference looks small.
        let most = line.points.iter().filter_map(|p| p.ci95.map(|c| c[1]).or(p.estimate)).fold(0.0, f64::max);
        for p in &line.points {
            let changed = if history.archives[p.archive].changed.is_empty() { ' ' } else { '*' };
            let shown = |x: f64| digits(x / size);
            let value = p.estimate.map_or_else(|| "-".into(), shown);
            let interval = p.ci95.map_or_else(String::new, |[low, high]| format!("{} to {}", shown(low), shown(high)));
            let bar = p.estimate.filter(|_| most > 0.0).map_or(0, |e| (e / most * 30.0).round().max(0.0) as usize);
            let verdict = match (p.verdict, p.ratio) {
                (Some(verdict), Some(ratio)) => format!("{verdict} (x {ratio:.3})"),
                (Some(verdict), None) => verdict.into(),
                (None, _) => String::new(),
            };
            let line =
                format!("{changed}{:>3}  {value:>9}  {interval:22} {:30}  {verdict}", p.archive + 1, "█".repeat(bar));
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    if history.archives.iter().any(|e| !e.changed.is_empty()) {
        text.push_str("\n* the machine changed since the previous archive.\n");
    }
    text
}
