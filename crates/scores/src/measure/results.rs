//! A run's results as output: text, JSON, Markdown. Workloads have estimates, comparisons have tables of their own.

use crate::measure::Open;
use crate::{Benchmark, Penalty, Why};
use analysis::text::shown;
use archive::Runs;
use archive::table_maker::Failure;
use experiment::Results;
use serde_json::{Value, json};
use std::path::Path;

/// The directory of recordings of single processes in an archive.
pub const RECORDINGS_DIRECTORY: &str = "why";

/// Evaluates the log of the archive `dir`.
pub fn evaluate(runs: &Runs, dir: &Path, open: Open<'_>) -> Benchmark {
    crate::benchmark(&runs.into(), Penalty::default(), &|name| explain(dir, name, open))
}

/// Describes where the time of a recorded process went: the shares of the layers in the operation that took most of it.
pub fn explain(dir: &Path, name: &str, open: Open<'_>) -> Why {
    let summary = || -> Result<_, Failure> {
        Ok(analysis::summarise_archive(&open(&dir.join(RECORDINGS_DIRECTORY).join(name))?)?)
    };
    Why::from_summary(format!("{RECORDINGS_DIRECTORY}/{name}"), summary().map_err(|error| format!("{error:#}")))
}

/// Returns only the workloads' part; comparisons have tables of their own.
pub fn without_comparisons(benchmark: &Benchmark, all: &[Results]) -> Benchmark {
    let comparison = |name: &str| all.iter().any(|r| r.design.baseline.is_some() && r.design.name == name);
    let mut part = benchmark.clone();
    part.designs.retain(|d| !comparison(&d.name));
    part.results.retain(|r| !comparison(&r.workload));
    part
}

/// Formats the results for people.
pub fn text(benchmark: &Benchmark, all: &[Results]) -> String {
    let mut parts = vec![crate::show::text(&without_comparisons(benchmark, all))];
    parts.extend(all.iter().filter(|r| r.design.baseline.is_some()).map(experiment::markdown));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// Lists failures, one sentence each. A cell that cannot be run here (no Java) is reported but is not a failure; one that failed
/// repeatedly is, and so is a comparison without its baseline.
pub fn failures(benchmark: &Benchmark, all: &[Results]) -> Vec<String> {
    let given_up = benchmark.results.iter().filter(|r| r.estimate.failed > 0).filter_map(|r| {
        let why = r.estimate.absent.as_ref()?;
        Some(format!("{} {}: {}", shown(&r.workload), shown(&r.name), shown(why)))
    });
    let alone = all.iter().filter_map(|results| {
        let absent = results.missing_baseline()?;
        Some(format!("{} was not compared: {} is missing: {}", results.design.name, absent.cell, absent.why))
    });
    given_up.chain(alone).collect()
}

/// Formats the results as JSON: docs/reference/json.md.
pub fn json(benchmark: &Benchmark, all: &[Results], dir: &Path) -> serde_json::Result<String> {
    let mut value = serde_json::to_value(benchmark)?;
    value["archive"] = json!(dir);
    let comparisons: Vec<Value> = all.iter().filter(|r| r.design.baseline.is_some()).map(experiment::json).collect();
    if !comparisons.is_empty() {
        value["comparisons"] = comparisons.into();
    }
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

/// Formats the results as tables of a Markdown page: workloads, then comparisons.
pub fn markdown(benchmark: &Benchmark, all: &[Results]) -> String {
    let sections = all.iter().filter(|r| r.design.baseline.is_some()).map(experiment::markdown);
    crate::show::markdown(&without_comparisons(benchmark, all)) + &sections.collect::<Vec<_>>().join("\n")
}
