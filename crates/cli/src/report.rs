//! `fathom report`: an archive as one page.

use crate::{args, link, progress};
use analysis::{Rows, figures, summary};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};

pub fn run(args: &args::Report) -> Result<()> {
    let context = progress::context(false);
    let archive = link::open(&args.archive, &context)?;
    if archive.meta().kind == "bench" {
        return crate::bench::report(args);
    }
    let output = args.output.clone().unwrap_or_else(|| beside(&args.archive, "html"));
    write(&archive, &args.archive, &output)?;
    println!("{}: open it in a browser; it needs no network", output.display());
    Ok(())
}

/// Spans in a page: about 8 MB of it. What is left out is said there.
const SPANS: usize = 60_000;

/// Writes the page of `archive` to `output`.
pub fn write(archive: &archive::Archive, name: &Path, output: &Path) -> Result<()> {
    let rows = Rows::load(archive)?;
    let limits = figures::Limits { spans: SPANS, ..figures::Limits::default() };
    let summary = summary::summarise(&rows);
    let page = report::page(&report::PageData {
        title: &name.display().to_string(),
        timeline: serde_json::to_value(figures::timeline(&rows, &limits))?,
        scatter: serde_json::to_value(figures::scatter(&rows, &limits))?,
        counts: serde_json::to_value(figures::counts(&summary))?,
        summary: serde_json::to_value(&summary)?,
    });
    std::fs::write(output, page).with_context(|| format!("writing {}", output.display()))
}

/// `T.fathom` with another ending.
pub fn beside(archive: &Path, ending: &str) -> PathBuf {
    archive.with_extension(ending)
}
