//! The files that a benchmark's results go into.

use crate::args::ResultFiles;
use crate::{destination, link, output};
use anyhow::Result;
use archive::Runs;
use experiment::Results;
use model::Context;
use scores::measure::results::{self, markdown, without_comparisons};
use scores::{self, Benchmark, Why};
use std::path::{Path, PathBuf};

pub fn evaluate(runs: &Runs, dir: &Path) -> Benchmark {
    results::evaluate(runs, dir, &|path| Ok(link::open(path, &Context::silent())?))
}

/// Where the time of a recorded process went.
pub fn explain(dir: &Path, name: &str, context: &Context) -> Why {
    results::explain(dir, name, &|path| Ok(link::open(path, context)?))
}

/// The results as they are printed.
pub fn format_results(benchmark: &Benchmark, all: &[Results], dir: &Path, json: bool) -> Result<String> {
    Ok(if json { results::json(benchmark, all, dir)? } else { results::text(benchmark, all) })
}

/// Prints where the results are, and what can be done with them.
pub fn print_next_steps(archive: &Path) {
    let archive = output::word(archive);
    eprintln!("fathom: results are in {archive}");
    eprintln!("next: fathom bench show {archive}, or fathom report {archive}");
    eprintln!("      fathom bench compare {archive} OTHER.fathom");
}

/// `-` is stdout, in place of the text.
impl ResultFiles {
    /// The files, as options and names.
    pub fn names(&self) -> Vec<String> {
        let named = |option: &str, path: &Option<PathBuf>| {
            let path = path.as_deref().filter(|path| !destination::is_stdout(path));
            path.map(|path| format!("{option} {}", output::word(path)))
        };
        [named("--csv", &self.csv), named("--markdown", &self.markdown)].into_iter().flatten().collect()
    }

    /// Prints the results, unless a file takes their place.
    pub fn print(&self, text: &str) {
        let elsewhere = [&self.csv, &self.markdown].into_iter().flatten().any(|path| destination::is_stdout(path));
        if !elsewhere && !self.silent {
            output::print_text(text);
        }
    }

    /// Writes them. `run` is the command that was run, for the manual's page of comparisons.
    pub fn write(&self, benchmark: &Benchmark, all: &[Results], run: Option<&[String]>) -> Result<()> {
        if let Some(path) = &self.csv {
            destination::write_text(path, &scores::show::csv(benchmark))?;
        }
        if let Some(path) = &self.markdown {
            let only_comparisons = without_comparisons(benchmark, all).designs.is_empty();
            let text = markdown(benchmark, all);
            let before = std::fs::read_to_string(path).unwrap_or_default();
            let page = |what| experiment::page::page(what, experiment::page::hand_written_part(&before), &text);
            destination::write_text(path, &run.filter(|_| only_comparisons).map_or(text.clone(), page))?;
        }
        Ok(())
    }
}
