//! `fathom report`: archives as one page.

use crate::{args, bench, destination, elsewhere, link, progress};
use anyhow::{Result, bail, ensure};
use archive::{Archive, ArchiveKind};
use model::text::ShownPath as _;
use report::archives::{self, PageContent};
use std::path::{Path, PathBuf};

pub fn run(args: &args::Report) -> Result<()> {
    if let Some(fleet) = args.archives.iter().find(|place| elsewhere::is_fleet(place)) {
        if args.archives.len() > 1 || args.from.is_some() || args.to.is_some() {
            bail!("{}: a fleet has a page of its own; give it alone, without --from and --to", fleet.shown());
        }
        match elsewhere::exec_fleet_report(fleet, args.output.as_deref())? {}
    }
    let context = progress::context(false);
    let mut opened = Vec::new();
    for path in &args.archives {
        opened.push((link::open(path, &context)?, path.to_string_lossy().into_owned()));
    }
    let kinds: Vec<ArchiveKind> = opened.iter().map(|(archive, _)| archive.meta().kind).collect();
    // The archive that the page is put next to, unless `-o` names another place.
    let mut beside_of = args.archives.first();
    let page = match archives::page_content(&kinds, args.from.is_some() || args.to.is_some())? {
        PageContent::Recordings => archives::recordings_page(&opened, time_window(args)?)?,
        PageContent::NetworkRuns => {
            beside_of =
                args.archives.iter().zip(&kinds).rfind(|(_, kind)| **kind == ArchiveKind::Net).map(|(path, _)| path);
            archives::network_runs(&opened)?
        }
        PageContent::Benchmarks => {
            beside_of = args.archives.last();
            benchmarks_page(&args.archives)?
        }
    };
    let first = beside_of.map_or(Path::new("trace.fathom"), PathBuf::as_path);
    let output = args.output.clone().unwrap_or_else(|| path_beside(first, "html"));
    destination::write_text(&output, &page)?;
    if !destination::is_stdout(&output) {
        println!("{}: open it in a browser (self-contained)", output.shown());
    }
    Ok(())
}

/// The page of a benchmark, or of two: the second is shown, with the first next to it.
fn benchmarks_page(archives: &[PathBuf]) -> Result<String> {
    let context = progress::context(true);
    let (a, shown) = match archives {
        [one] => (None, one),
        [a, b] => (Some(bench::inspect::load(a)?), b),
        _ => bail!("a page shows at most two benchmarks; `fathom bench history` shows more"),
    };
    let bench = bench::inspect::load(shown)?;
    let why = |name: &str| bench::results::explain(shown, name, &context);
    let (page, title) = match &a {
        Some(a) => (scores::page::page_with_comparison(a, &bench, &why), format!("{} beside {}", bench.name, a.name)),
        None => (scores::page::page(&bench, &why), bench.name.clone()),
    };
    Ok(report::bench_page(&title, &page)?)
}

/// The time range of `--from` and `--to`, in ns from the first operation.
fn time_window(args: &args::Report) -> Result<Option<(u64, u64)>> {
    if args.from.is_none() && args.to.is_none() {
        return Ok(None);
    }
    let ns = |time: std::time::Duration| time.as_nanos().try_into().unwrap_or(u64::MAX);
    let (from, to) = (args.from.map_or(0, ns), args.to.map_or(u64::MAX, ns));
    ensure!(from <= to, "--from {} s is after --to {} s", from as f64 / 1e9, to as f64 / 1e9);
    Ok(Some((from, to)))
}

/// Writes the page of `archive` to `output`.
pub fn write_page(archive: &Archive, name: &Path, output: &Path) -> Result<()> {
    destination::write_text(output, &archives::recording_page(archive, &name.to_string_lossy())?)
}

/// `T.fathom` with another ending.
pub fn path_beside(archive: &Path, ending: &str) -> PathBuf {
    archive.with_extension(ending)
}
