//! A run's results as they leave the program: text, JSON, CSV, Markdown.

use crate::{link, output};
use analysis::bench::{self, Benchmark, Penalty, Why};
use anyhow::Result;
use archive::Runs;
use experiment::Results;
use model::Context;
use serde_json::{Value, json};
use std::path::Path;

/// Where recordings of single processes stand in an archive.
pub const WHY: &str = "why";

/// What the log of the archive `dir` says.
pub fn of(runs: &Runs, dir: &Path, context: &Context) -> Benchmark {
    bench::benchmark(&runs.into(), Penalty::default(), &|name| explain(dir, name, context))
}

/// Where the time of a recorded process went: the shares of the layers of the operation that took most of it.
pub fn explain(dir: &Path, name: &str, context: &Context) -> Why {
    let archive = &dir.join(WHY).join(name);
    let summary = link::open(archive, context).and_then(|archive| Ok(analysis::summarise_archive(&archive)?));
    Why::of(format!("{WHY}/{name}"), summary.map_err(|error| format!("{error:#}")))
}

/// Only the workloads' part; comparisons have tables of their own.
fn workloads(benchmark: &Benchmark, all: &[Results]) -> Benchmark {
    let comparison = |name: &str| all.iter().any(|r| r.design.baseline.is_some() && r.design.name == name);
    let mut part = benchmark.clone();
    part.designs.retain(|d| !comparison(&d.name));
    part.results.retain(|r| !comparison(&r.workload));
    part
}

/// For people.
pub fn text(benchmark: &Benchmark, all: &[Results]) -> String {
    let mut parts = vec![bench::show::text(&workloads(benchmark, all))];
    parts.extend(all.iter().filter(|r| r.design.baseline.is_some()).map(experiment::markdown));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// For programs: docs/reference/json.md.
pub fn json(benchmark: &Benchmark, all: &[Results], dir: &Path) -> Result<String> {
    let mut value = serde_json::to_value(benchmark)?;
    value["archive"] = json!(dir);
    let comparisons: Vec<Value> = all.iter().filter(|r| r.design.baseline.is_some()).map(experiment::json).collect();
    if !comparisons.is_empty() {
        value["comparisons"] = comparisons.into();
    }
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

/// The files that results go into besides: the same for `bench run` and `bench show`. `-` is stdout, in place of the text.
pub struct Files<'a> {
    csv: Option<&'a Path>,
    markdown: Option<&'a Path>,
}

impl<'a> Files<'a> {
    pub fn new(csv: Option<&'a Path>, markdown: Option<&'a Path>) -> Self {
        Self { csv, markdown }
    }

    /// The files, as options and names.
    pub fn names(&self) -> Vec<String> {
        let named = |option: &str, path: Option<&Path>| {
            path.filter(|path| *path != Path::new(STDOUT)).map(|path| format!("{option} {}", output::word(path)))
        };
        [named("--csv", self.csv), named("--markdown", self.markdown)].into_iter().flatten().collect()
    }

    /// Prints the results, unless a file takes their place.
    pub fn print(&self, text: &str) {
        if ![self.csv, self.markdown].contains(&Some(Path::new(STDOUT))) {
            output::text(text);
        }
    }

    /// Writes them. `run` is what was run, for the manual's page of comparisons.
    pub fn write(&self, benchmark: &Benchmark, all: &[Results], run: Option<&[String]>) -> Result<()> {
        if let Some(path) = self.csv {
            write(path, bench::show::csv(benchmark))?;
        }
        if let Some(path) = self.markdown {
            let only_comparisons = workloads(benchmark, all).designs.is_empty();
            let text = markdown(benchmark, all);
            let before = std::fs::read_to_string(path).unwrap_or_default();
            let page = |what| experiment::page::page(what, experiment::page::by_hand(&before), &text);
            write(path, run.filter(|_| only_comparisons).map_or(text.clone(), page))?;
        }
        Ok(())
    }
}

/// The name of a file that is none.
const STDOUT: &str = "-";

pub fn write(path: &Path, text: String) -> Result<()> {
    if path == Path::new(STDOUT) {
        output::text(&text);
        return Ok(());
    }
    Ok(archive::atomic_file::text(path, &text)?)
}

/// As tables of a Markdown page: workloads, then comparisons.
pub fn markdown(benchmark: &Benchmark, all: &[Results]) -> String {
    let sections = all.iter().filter(|r| r.design.baseline.is_some()).map(experiment::markdown);
    bench::show::markdown(&workloads(benchmark, all)) + &sections.collect::<Vec<_>>().join("\n")
}
