//! `fathom report`: archives as one page.

use crate::{args, bench, link, progress};
use analysis::bench::page::Page;
use analysis::bench::recording_series::RecordingSeries;
use analysis::bench::results::Bench;
use analysis::{Rows, explain, figures, summary};
use anyhow::{Result, bail};
use archive::{Archive, ArchiveKind, atomic_file};
use report::PageData;
use std::path::{Path, PathBuf};

pub fn run(args: &args::Report) -> Result<()> {
    let context = progress::context(false);
    let mut opened = Vec::new();
    for path in &args.archives {
        opened.push((link::open(path, &context)?, path));
    }
    let of = |kind: ArchiveKind| opened.iter().filter(|(archive, _)| archive.meta().kind == kind).count();
    let (runs, benchmarks) = (of(ArchiveKind::Net), of(ArchiveKind::Bench));
    anyhow::ensure!(
        runs + benchmarks == 0 || args.from.is_none() && args.to.is_none(),
        "--from and --to choose a time of a recording; a benchmark's or a network run's page holds all of it"
    );
    if runs > 0 && benchmarks == 0 {
        return net(&opened, args.output.as_deref());
    }
    if benchmarks > 0 {
        anyhow::ensure!(
            benchmarks == opened.len(),
            "a page cannot mix benchmarks with other archives: make one page for each kind (network runs and \
             recordings go together)"
        );
        return benchmark_page(&args.archives, args.output.as_deref());
    }
    let titles: Vec<String> = opened.iter().map(|(_, path)| path.display().to_string()).collect();
    let window = window(args)?;
    let recordings = opened.iter().zip(&titles).map(|((archive, _), title)| recording(archive, title, window));
    let recordings: Vec<PageData> = recordings.collect::<Result<_>>()?;
    let first = args.archives.first().map_or(Path::new("trace.fathom"), PathBuf::as_path);
    let output = args.output.clone().unwrap_or_else(|| beside(first, "html"));
    atomic_file::text(&output, &report::pages(&recordings))?;
    println!("{}: open it in a browser (self-contained)", output.display());
    Ok(())
}

/// The page of network runs: the numbers of all, their flows on one axis, and on it what was recorded beside them.
fn net(opened: &[(Archive, &PathBuf)], output: Option<&Path>) -> Result<()> {
    let (mut runs, mut recordings, mut titles) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = Path::new("net.fathom");
    for (archive, path) in opened {
        let (meta, name) = (archive.meta(), path.display().to_string());
        if meta.kind == ArchiveKind::Net {
            runs.push(Bench::load(archive, &name)?);
            last = path;
        } else {
            recordings.push(RecordingSeries::new(&Rows::load(archive)?, &name, meta.boot.clone()));
        }
        titles.push(name);
    }
    let page = analysis::bench::net::page_of(&runs, &recordings)?;
    write_page(&titles.join(", "), &page, output, last)
}

/// The page of a benchmark, or of two: the second is shown, with the first beside it.
fn benchmark_page(archives: &[PathBuf], output: Option<&Path>) -> Result<()> {
    let context = progress::context(true);
    let (a, shown) = match archives {
        [one] => (None, one),
        [a, b] => (Some(bench::load(a)?), b),
        _ => bail!("a page shows at most two benchmarks; `fathom bench history` shows more"),
    };
    let bench = bench::load(shown)?;
    let why = |name: &str| bench::explain(shown, name, &context);
    let (page, title) = match &a {
        Some(a) => (analysis::bench::page::page_beside(a, &bench, &why), format!("{} beside {}", bench.name, a.name)),
        None => (analysis::bench::page::page(&bench, &why), bench.name.clone()),
    };
    write_page(&title, &page, output, shown)
}

/// Writes a page and says so.
fn write_page(title: &str, page: &Page, output: Option<&Path>, archive: &Path) -> Result<()> {
    let output = output.map_or_else(|| beside(archive, "html"), Path::to_path_buf);
    atomic_file::text(&output, &report::bench_page(title, page)?)?;
    println!("{}: open it in a browser (self-contained)", output.display());
    Ok(())
}

/// Spans of one recording in a page, about 11 bytes each there with all that refers to them. With 1,440,000 and 380,000 operations the page has 16 MB, and a
/// browser takes five seconds to open it and 590 MB on two busy cores; what is drawn afterwards takes one or two frames. What is left
/// out is said there.
const SPANS: usize = 1_500_000;
/// Device commands of the address map.
const POINTS: usize = 200_000;

/// The time that `--from` and `--to` ask for, in ns from the first operation.
fn window(args: &args::Report) -> Result<Option<(u64, u64)>> {
    if args.from.is_none() && args.to.is_none() {
        return Ok(None);
    }
    let ns = |time: std::time::Duration| time.as_nanos().try_into().unwrap_or(u64::MAX);
    let (from, to) = (args.from.map_or(0, ns), args.to.map_or(u64::MAX, ns));
    anyhow::ensure!(from <= to, "--from {} s is after --to {} s", from as f64 / 1e9, to as f64 / 1e9);
    Ok(Some((from, to)))
}

/// One recording of a page. What was loaded for it goes before the next one comes.
fn recording<'a>(archive: &Archive, title: &'a str, window: Option<(u64, u64)>) -> Result<PageData<'a>> {
    let rows = Rows::load(archive)?;
    let limits = figures::Limits { spans: SPANS, points: POINTS, window, ..figures::Limits::default() };
    let (timeline, scatter) = (figures::timeline(&rows, &limits), figures::scatter(&rows, &limits));
    let summary = summary::summarise(&rows);
    let explanation = explain::explain(&rows);
    Ok(PageData::of(title, &summary, timeline, scatter, &figures::counts(&summary), &explanation)?)
}

/// Writes the page of `archive` to `output`.
pub fn write(archive: &Archive, name: &Path, output: &Path) -> Result<()> {
    let title = name.display().to_string();
    Ok(atomic_file::text(output, &report::page(&recording(archive, &title, None)?))?)
}

/// `T.fathom` with another ending.
pub fn beside(archive: &Path, ending: &str) -> PathBuf {
    archive.with_extension(ending)
}
