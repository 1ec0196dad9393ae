//! `fathom papers`: the papers' figures on this machine, with their values and ours in separate columns.

use crate::{Usage, args, bench, destination, link, notices, output, own_load, progress, report};
use ::papers::list::{self, ListedFigure, nothing_to_make};
use anyhow::{Context as _, Result, bail};
use archive::ArchiveKind;
use model::text::ShownPath as _;
use scores::measure::once::Load;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The archives that are created if none is given.
const BENCH_ARCHIVE: &str = "papers-bench.fathom";
const RECORDING_ARCHIVE: &str = "papers.fathom";

pub fn run(args: &args::Papers) -> Result<ExitCode> {
    let all = list::list().context("cannot read the list of figures")?;
    if let Some(unknown) = args.figures.iter().find(|name| !all.figure.iter().any(|k| k.is_named_by(name))) {
        let names: Vec<String> = all.figure.iter().map(|k| format!("{}/{}", k.paper, k.number)).collect();
        return Err(Usage(format!("unknown figure {unknown:?}; expected one of {}", names.join(", "))).into());
    }
    let wanted: Vec<&ListedFigure> = all
        .figure
        .iter()
        .filter(|k| args.figures.is_empty() || args.figures.iter().any(|f| k.is_named_by(f)))
        .collect();
    if let Some(place) = &args.beside.device {
        return crate::device::papers(args, place, &all, &wanted);
    }
    let (measured, made): (Vec<&ListedFigure>, Vec<&ListedFigure>) =
        wanted.iter().filter(|k| k.command.is_some()).partition(|k| !k.bench.is_empty());
    let mut text = list::overview(&all.paper, &wanted);
    // A given archive provides the figures of its kind.
    let mut benchmark = None;
    for path in &args.archive {
        let kind = archive::Archive::open(path)?.meta().kind;
        if let Some(why) = nothing_to_make(kind, !measured.is_empty(), !made.is_empty()) {
            return Err(Usage(format!("{}: {why}", path.shown())).into());
        }
        if kind == ArchiveKind::Bench && args.archive.len() > 1 {
            let why = "only recordings can be shown side by side; use `fathom bench compare` for benchmarks";
            return Err(Usage(format!("{}: {why}", path.shown())).into());
        }
        benchmark = Some(kind == ArchiveKind::Bench);
    }
    if !measured.is_empty() && benchmark != Some(false) {
        match score_figures(args, &measured)? {
            FiguresOutcome::Text(made) => text += &made,
            FiguresOutcome::Not(code) => return Ok(report_no_page(args, Path::new(BENCH_ARCHIVE), code)),
        }
        text += &list::notes(&measured);
    }
    if !made.is_empty() && benchmark != Some(true) {
        let archives = match &args.archive[..] {
            [] => match record_inserts()? {
                Some(archive) => vec![archive],
                None => {
                    return Ok(report_no_page(
                        args,
                        Path::new(RECORDING_ARCHIVE),
                        ExitCode::from(output::INTERRUPTED_STATUS),
                    ));
                }
            },
            given => given.to_vec(),
        };
        text += &::papers::measure::values(&archives, &made, &|path| Ok(link::open(path, &progress::context(false))?))?;
        for archive in &archives {
            draw_figures(archive, args.archive.is_empty())?;
        }
    }
    match &args.output {
        Some(path) => destination::write_text(path, &(list::page_head() + &text))?,
        None => output::print_text(&text),
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the page of one figure from recordings, a column each, that this command made.
pub fn figure_page(figure: &str, archives: &[PathBuf], command: &str, state: &str) -> Result<String> {
    let all = list::list().context("cannot read the list of figures")?;
    let wanted = all.figure.into_iter().filter(|listed| listed.is_named_by(figure));
    let wanted: Vec<ListedFigure> = wanted.map(|listed| listed.made_by(command.into(), state.into())).collect();
    let wanted: Vec<&ListedFigure> = wanted.iter().collect();
    let values =
        ::papers::measure::values(archives, &wanted, &|path| Ok(link::open(path, &progress::context(false))?))?;
    Ok(list::page_head() + &list::overview(&all.paper, &wanted) + &values)
}

/// Reports that no page is made, after an interruption or because nothing could be measured. An existing page stays.
fn report_no_page(args: &args::Papers, archive: &Path, code: ExitCode) -> ExitCode {
    if let Some(page) = args.output.as_ref().filter(|page| !destination::is_stdout(page)) {
        eprintln!(
            "fathom: {} was not written, since some figures are missing; what was measured is kept in {}",
            page.shown(),
            archive.shown()
        );
    }
    code
}

/// The outcome of measuring.
enum FiguresOutcome {
    Text(String),
    /// No figures; the program ends with this status.
    Not(ExitCode),
}

/// Draws the figures of a recording on a page next to it, if the recording was made for this purpose and no foreign page is
/// there. Otherwise prints how to do so.
fn draw_figures(archive: &Path, own: bool) -> Result<()> {
    let page = report::path_beside(archive, "html");
    let there = std::fs::read_to_string(&page);
    let replaceable = match &there {
        Ok(text) => ::report::archives::shows_archive(text, archive),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    if own && replaceable {
        report::write_page(&link::open(archive, &progress::context(false))?, archive, &page)?;
        eprintln!("fathom: the figures are drawn in {}", page.shown());
    } else {
        eprintln!("fathom: to draw the figures: fathom report {} -o PAGE.html", output::word(archive));
    }
    Ok(())
}

/// Makes a recording as in the papers: 1,000 autocommit INSERTs, then scans. Returns nothing if it was interrupted.
fn record_inserts() -> Result<Option<PathBuf>> {
    let context = progress::context(false);
    progress::end_on_signal(&context);
    let archive = PathBuf::from(RECORDING_ARCHIVE);
    let load = Load { rows: 1000, scans: 100, journal_mode: "delete", directory: "." };
    let recorded = recorder::record(&own_load::recording_request(&load, &archive)?, &context, &notices::print_warning)?;
    progress::clear(&context);
    if context.cancelled() {
        eprintln!("fathom: interrupted; the recording so far is in {}", archive.shown());
        return Ok(None);
    }
    if recorded.status != 0 {
        bail!("the workload ended with status {}", recorded.status);
    }
    Ok(Some(archive))
}

/// Returns the figures of a benchmark: of the given archive, or of the workloads run for this purpose with the papers'
/// values.
fn score_figures(args: &args::Papers, figures: &[&ListedFigure]) -> Result<FiguresOutcome> {
    let path = match args.archive.first() {
        Some(path) => path.clone(),
        None => {
            let path = PathBuf::from(BENCH_ARCHIVE);
            let mut words: Vec<&str> = figures.iter().flat_map(|k| &k.bench).map(String::as_str).collect();
            words.sort_unstable();
            words.dedup();
            let quick = args.quick.then_some("--quick");
            let words: Vec<&str> =
                ["bench", "run", "--output", BENCH_ARCHIVE].into_iter().chain(quick).chain(words).collect();
            let code = bench::run::run(&args::parse_bench_run(&words)?)?;
            if code != ExitCode::SUCCESS {
                return Ok(FiguresOutcome::Not(code));
            }
            path
        }
    };
    Ok(FiguresOutcome::Text(::papers::measure::scores(&bench::inspect::load(&path)?, figures)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Naming an archive does not ask for a page, and a foreign page is never replaced.
    #[test]
    fn foreign_page_is_not_overwritten() {
        let directory = std::env::temp_dir().join(format!("fathom-papers-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (archive, page) = (directory.join("app.fathom"), directory.join("app.html"));
        for own in [false, true] {
            std::fs::write(&page, "mine").unwrap();
            // The archive does not exist: nothing is read from it.
            draw_figures(&archive, own).unwrap();
            assert_eq!(std::fs::read_to_string(&page).unwrap(), "mine");
        }
        std::fs::remove_file(&page).unwrap();
        draw_figures(&archive, false).unwrap();
        assert!(!page.exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn commands_with_device_are_accepted_by_parser() {
        let texts = list::list().unwrap().figure.into_iter().filter_map(|figure| figure.with_device("adb:R58M1"));
        let mut commands = 0;
        for text in texts {
            for command in text
                .split('`')
                .filter_map(|part| part.strip_prefix("sudo ").or(Some(part)).filter(|p| p.starts_with("fathom ")))
            {
                let command = command.replace("ADDRESS", "192.0.2.1:7001");
                let parsed = args::parse_words(&command.split(' ').skip(1).collect::<Vec<_>>());
                assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
                commands += 1;
            }
        }
        assert!(commands >= 4, "{commands}");
    }

    #[test]
    fn workloads_of_figures_are_in_suite() {
        let names = experiment::catalog::names().unwrap();
        for figure in list::list().unwrap().figure {
            let unknown = figure.bench.iter().find(|w| *w != "cluster" && !names.contains(w));
            assert_eq!(unknown, None, "{}/{}", figure.paper, figure.number);
        }
    }
}
