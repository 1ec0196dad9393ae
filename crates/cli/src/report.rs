//! `fathom report`: archives as one page.

use crate::{args, link, progress};
use analysis::{Rows, figures, summary};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

pub fn run(args: &args::Report) -> Result<()> {
    let context = progress::context(false);
    let mut parts = Vec::new();
    for path in &args.archives {
        let archive = link::open(path, &context)?;
        if matches!(archive.meta().kind.as_str(), "bench" | "net") {
            anyhow::ensure!(
                parts.is_empty(),
                "{} holds benchmarks or network runs, and the archives before it recordings: make a page of each kind",
                path.display()
            );
            return crate::bench::report(&args.archives, args.output.as_deref());
        }
        parts.push(Part::of(&archive, path)?);
    }
    let first = args.archives.first().map_or(Path::new("trace.fathom"), PathBuf::as_path);
    let output = args.output.clone().unwrap_or_else(|| beside(first, "html"));
    write_parts(parts, &output)?;
    println!("{}: open it in a browser; it needs no network", output.display());
    Ok(())
}

/// Spans of one recording in a page, about 150 bytes each. With 300,000 a browser takes four seconds to open the page, with
/// 60,000 less than one; zooming and choosing stay below half a second in both. What is left out is said there.
const SPANS: usize = 150_000;

/// One recording of a page.
struct Part {
    title: String,
    timeline: Value,
    scatter: Value,
    counts: Value,
    summary: Value,
}

impl Part {
    fn of(archive: &archive::Archive, name: &Path) -> Result<Self> {
        let rows = Rows::load(archive)?;
        let limits = figures::Limits { spans: SPANS, ..figures::Limits::default() };
        let summary = summary::summarise(&rows);
        Ok(Self {
            title: name.display().to_string(),
            timeline: serde_json::to_value(figures::timeline(&rows, &limits))?,
            scatter: serde_json::to_value(figures::scatter(&rows, &limits))?,
            counts: serde_json::to_value(figures::counts(&summary))?,
            summary: serde_json::to_value(&summary)?,
        })
    }
}

/// Writes the page of `archive` to `output`.
pub fn write(archive: &archive::Archive, name: &Path, output: &Path) -> Result<()> {
    write_parts(vec![Part::of(archive, name)?], output)
}

fn write_parts(mut parts: Vec<Part>, output: &Path) -> Result<()> {
    let titles: Vec<String> = parts.iter_mut().map(|part| std::mem::take(&mut part.title)).collect();
    let recordings: Vec<report::PageData> = parts
        .into_iter()
        .zip(&titles)
        .map(|(part, title)| report::PageData {
            title,
            timeline: part.timeline,
            scatter: part.scatter,
            counts: part.counts,
            summary: part.summary,
        })
        .collect();
    std::fs::write(output, report::pages(&recordings)).with_context(|| format!("writing {}", output.display()))
}

/// `T.fathom` with another ending.
pub fn beside(archive: &Path, ending: &str) -> PathBuf {
    archive.with_extension(ending)
}
