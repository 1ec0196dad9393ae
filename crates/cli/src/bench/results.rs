//! A run's results as they leave the program: text, JSON, CSV, Markdown.

use crate::{link, output};
use analysis::bench::{self, Benchmark, Penalty, Tables, Why};
use anyhow::Result;
use archive::Runs;
use experiment::Results;
use model::Context;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Where recordings of single processes stand in an archive.
pub const WHY: &str = "why";

/// What the log of the archive `dir` says.
pub fn of(runs: &Runs, dir: &Path, context: &Context) -> Benchmark {
    let marks = runs.runs.iter().flat_map(|r| &r.marks).chain(&runs.marks);
    let tables = Tables {
        designs: runs.designs.clone(),
        cells: runs.cells.clone(),
        replicates: runs.runs.iter().map(|r| r.replicate.clone()).collect(),
        samples: runs.runs.iter().flat_map(|r| r.samples.clone()).collect(),
        marks: marks.cloned().collect(),
        environment: runs.machines.last().cloned().unwrap_or_default(),
    };
    bench::benchmark(&tables, Penalty::default(), &|name| explain(dir, name, context))
}

/// Where the time of a recorded process went: the shares of the layers of the operation that took most of it.
pub fn explain(dir: &Path, name: &str, context: &Context) -> Why {
    let archive = &dir.join(WHY).join(name);
    let nothing = |failure: String| Why {
        archive: format!("{WHY}/{name}"),
        failure: Some(failure),
        operation: None,
        layers: BTreeMap::new(),
    };
    let summary = link::open(archive, context).and_then(|archive| Ok(analysis::summarise_archive(&archive)?));
    let summary = match summary {
        Ok(summary) => summary,
        Err(error) => return nothing(format!("{error:#}")),
    };
    match summary.operations.first() {
        None => nothing("no operation was recorded".into()),
        Some(operation) => Why {
            archive: format!("{WHY}/{name}"),
            failure: None,
            operation: Some(operation.statement.clone()),
            layers: operation.layers.iter().map(|(layer, time)| (layer.to_string(), time.share)).collect(),
        },
    }
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
    let comparisons: Vec<Value> = all.iter().filter(|r| r.design.baseline.is_some()).map(comparison).collect();
    if !comparisons.is_empty() {
        value["comparisons"] = comparisons.into();
    }
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}

fn comparison(results: &Results) -> Value {
    let cells: Vec<Value> = results
        .comparisons()
        .iter()
        .map(|c| {
            json!({
                "cell": c.cell, "median": c.median, "unit": results.unit(), "processes": c.replicates, "failed": c.failed,
                "ratio": c.middle.map(|middle| json!({
                    "estimate": c.ratio.map_or(middle, |r| r.value), "ci95": c.ratio.map(|r| [r.low, r.high]), "pairs": c.pairs,
                })),
                "absent": c.absent,
            })
        })
        .collect();
    json!({"name": results.design.name, "question": results.design.question, "baseline": results.design.baseline,
           "seed": results.design.seed, "complete": results.complete(), "results": cells})
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
            let page = |what| page(what, by_hand(&before), &text);
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
    crate::atomic_file::text(path, &text)
}

/// As tables of a Markdown page: workloads, then comparisons.
pub fn markdown(benchmark: &Benchmark, all: &[Results]) -> String {
    let sections = all.iter().filter(|r| r.design.baseline.is_some()).map(experiment::markdown);
    bench::show::markdown(&workloads(benchmark, all)) + &sections.collect::<Vec<_>>().join("\n")
}

/// Between these lines of the manual's page stands what people wrote: it is kept when the page is made again.
const BY_HAND: [&str; 2] = ["<!-- by hand -->\n", "<!-- made -->\n"];

/// That part of a page, with its lines; empty if there is none.
fn by_hand(page: &str) -> &str {
    let [begin, end] = BY_HAND;
    let part = |from: usize| page[from..].find(end).map(|to| &page[from..from + to + end.len()]);
    page.find(begin).and_then(part).unwrap_or_default()
}

/// The manual's page of comparisons.
fn page(what: &[String], by_hand: &str, text: &str) -> String {
    let gap = if by_hand.is_empty() { "" } else { "\n" };
    format!(
        "# Performance\n\n\
         Made by `make bench`, which runs `fathom bench run {} --markdown docs/results/performance.md`: each command of a design in a\n\
         fresh process, in randomised complete blocks, compared pair by pair with the baseline of the same block. A ratio\n\
         is the median of the pairs with its 95 % bootstrap interval; the row \"again\" is the baseline against itself and shows\n\
         what the machine's noise alone makes.\n\n{by_hand}{gap}{text}",
        what.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_written_parts_of_page_are_kept() {
        let what = ["a.toml".to_string()];
        let first = page(&what, by_hand(""), "## a\n");
        assert!(first.ends_with("makes.\n\n## a\n"));
        let written = first.replace("## a\n", "<!-- by hand -->\nwhy\n<!-- made -->\n\n## a\n");
        let again = page(&what, by_hand(&written), "## b\n");
        assert!(again.ends_with("<!-- by hand -->\nwhy\n<!-- made -->\n\n## b\n"), "{again}");
        assert_eq!(by_hand(&again), by_hand(&written));
        assert_eq!(by_hand("<!-- by hand -->\nnever ended"), "");
    }
}
