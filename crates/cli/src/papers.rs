//! `fathom papers`: the papers' figures on this machine, their values and ours in columns of their own.

use crate::{Usage, args, bench, demo, link, notices, output, progress, report};
use analysis::papers;
use anyhow::{Context as _, Result, bail};
use archive::ArchiveKind;
use clap::Parser;
use serde::Deserialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Every figure of the papers, with its true state.
const LIST: &str = include_str!("../../../experiments/papers/figures.toml");

/// The archives that are made where none is given.
const BENCH: &str = "papers-bench.fathom";
const RECORDING: &str = "papers.fathom";

#[derive(Deserialize)]
struct List {
    paper: Vec<Paper>,
    figure: Vec<Known>,
}

/// A paper, by the number that stands for it everywhere here.
#[derive(Deserialize)]
struct Paper {
    number: String,
    is: String,
}

/// A figure of the list.
#[derive(Deserialize)]
struct Known {
    paper: String,
    number: String,
    shows: String,
    command: Option<String>,
    /// The workloads of the suite that make it; without one a recording does.
    #[serde(default)]
    bench: Vec<String>,
    state: String,
    /// What was measured besides, and stands beside the figure.
    note: Option<String>,
}

impl Known {
    fn is(&self, name: &str) -> bool {
        name == self.paper
            || name.split_once('/').is_some_and(|(paper, number)| {
                paper == self.paper
                    && (number == self.number || self.number.split([' ', ',']).any(|part| covers(part, number)))
            })
    }
}

/// Whether `13-15` (or `5`) covers `14`.
fn covers(range: &str, number: &str) -> bool {
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    match (low.parse::<u32>(), high.parse::<u32>(), number.parse::<u32>()) {
        (Ok(low), Ok(high), Ok(n)) => (low..=high).contains(&n),
        _ => false,
    }
}

pub fn run(args: &args::Papers) -> Result<ExitCode> {
    let list: List = toml::from_str(LIST).context("the list of figures")?;
    if let Some(unknown) = args.figures.iter().find(|name| !list.figure.iter().any(|k| k.is(name))) {
        let names: Vec<String> = list.figure.iter().map(|k| format!("{}/{}", k.paper, k.number)).collect();
        return Err(Usage(format!("unknown figure {unknown:?}; expected one of {}", names.join(", "))).into());
    }
    let wanted: Vec<&Known> =
        list.figure.iter().filter(|k| args.figures.is_empty() || args.figures.iter().any(|f| k.is(f))).collect();
    let (measured, made): (Vec<&Known>, Vec<&Known>) =
        wanted.iter().filter(|k| k.command.is_some()).partition(|k| !k.bench.is_empty());
    let mut text = overview(&list.paper, &wanted);
    // An archive that is given makes the figures of its kind.
    let mut benchmark = None;
    for path in &args.archive {
        let kind = archive::Archive::open(path)?.meta().kind;
        if let Some(why) = nothing_to_make(kind, !measured.is_empty(), !made.is_empty()) {
            return Err(Usage(format!("{}: {why}", path.display())).into());
        }
        if kind == ArchiveKind::Bench && args.archive.len() > 1 {
            let why = "only recordings can be shown side by side; use `fathom bench compare` for benchmarks";
            return Err(Usage(format!("{}: {why}", path.display())).into());
        }
        benchmark = Some(kind == ArchiveKind::Bench);
    }
    if !measured.is_empty() && benchmark != Some(false) {
        match scores(args, &measured)? {
            Made::Text(made) => text += &made,
            Made::Not(code) => return Ok(without_page(args, Path::new(BENCH), code)),
        }
        text += &notes(&measured);
    }
    if !made.is_empty() && benchmark != Some(true) {
        let archives = match &args.archive[..] {
            [] => match recorded()? {
                Some(archive) => vec![archive],
                None => return Ok(without_page(args, Path::new(RECORDING), ExitCode::from(bench::INTERRUPTED))),
            },
            given => given.to_vec(),
        };
        text += &values(&archives, &made)?;
        for archive in &archives {
            draw(archive, args.archive.is_empty())?;
        }
    }
    match &args.output {
        Some(path) => crate::atomic_file::text(path, &(head() + &text))?,
        None => output::text(&text),
    }
    Ok(ExitCode::SUCCESS)
}

/// What is said when there is no page to be made: an interruption, or nothing that could be measured. A page that is there stays.
fn without_page(args: &args::Papers, archive: &Path, code: ExitCode) -> ExitCode {
    if let Some(page) = &args.output {
        eprintln!(
            "fathom: {} was not written, since some figures are missing; what was measured is kept in {}",
            page.display(),
            archive.display()
        );
    }
    code
}

/// What came of measuring.
enum Made {
    /// The figures.
    Text(String),
    /// None, for which the program ends with this status.
    Not(ExitCode),
}

/// Why an archive of this kind makes none of the figures that are wanted: some that a benchmark makes, some that a recording makes.
fn nothing_to_make(kind: ArchiveKind, of_benchmark: bool, of_recording: bool) -> Option<String> {
    let (fits, needed) = match kind {
        ArchiveKind::Bench => (of_benchmark, "a recording (`fathom record`, or `fathom demo`)"),
        ArchiveKind::Net => (false, "a recording (`fathom record`) or a benchmark (`fathom bench run`)"),
        ArchiveKind::Trace => (of_recording, "a benchmark (`fathom bench run`)"),
    };
    let any = of_benchmark || of_recording;
    let wanted = if any { format!("is made of {needed}") } else { "can be made by a command".into() };
    let which = if any { "what was requested" } else { "nothing that was requested" };
    (!fits).then(|| {
        format!(
            "this is {kind}, and {which} {wanted}; without --archive, `fathom papers` runs new \
        measurements"
        )
    })
}

/// Draws the figures of a recording on a page beside it, if it was made for the purpose and no page of somebody else's is there.
/// Else says how to.
fn draw(archive: &Path, own: bool) -> Result<()> {
    let page = report::beside(archive, "html");
    let there = std::fs::read_to_string(&page);
    // A page names the recordings that it shows.
    let named = format!("class=\"recording\" data-title=\"{}\"", archive.display());
    let replaceable = match &there {
        Ok(text) => text.contains(&named),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    if own && replaceable {
        report::write(&link::open(archive, &progress::context(false))?, archive, &page)?;
        eprintln!("fathom: the figures are drawn in {}", page.display());
    } else {
        eprintln!("fathom: to draw the figures: fathom report {} -o PAGE.html", output::word(archive));
    }
    Ok(())
}

/// A recording made for the purpose, as the papers ran it: 1,000 autocommit INSERTs, then scans. Nothing if it was interrupted.
fn recorded() -> Result<Option<PathBuf>> {
    let context = progress::context(false);
    progress::end_on_signal(&context);
    let archive = PathBuf::from(RECORDING);
    let load = args::Demo { rows: 1000, scans: 100, journal_mode: "delete".into(), folder: PathBuf::from(".") };
    let recorded = recorder::record(&demo::recording(&load, &archive)?, &context, &notices::warn)?;
    progress::clear(&context);
    if context.cancelled() {
        eprintln!("fathom: interrupted; the recording so far is in {}", archive.display());
        return Ok(None);
    }
    if recorded.status != 0 {
        bail!("the workload ended with status {}", recorded.status);
    }
    Ok(Some(archive))
}

/// The figures that a benchmark makes: of the archive given, or of the workloads run for the purpose with the papers' values.
fn scores(args: &args::Papers, figures: &[&Known]) -> Result<Made> {
    let path = match args.archive.first() {
        Some(path) => path.clone(),
        None => {
            let path = PathBuf::from(BENCH);
            let mut words: Vec<&str> = figures.iter().flat_map(|k| &k.bench).map(String::as_str).collect();
            words.sort_unstable();
            words.dedup();
            let quick = args.quick.then_some("--quick");
            let before = ["fathom", "bench", "run", "--output", BENCH].into_iter().chain(quick);
            // As the user would say it.
            if let args::Verb::Bench(args) = args::Cli::parse_from(before.chain(words)).verb {
                let code = bench::run(&args)?;
                if code != ExitCode::SUCCESS {
                    return Ok(Made::Not(code));
                }
            }
            path
        }
    };
    let benchmark = bench::load(&path)?;
    let wanted = |f: &analysis::bench::figure::Figure| {
        figures
            .iter()
            .any(|k| k.paper == f.paper && f.figure.split(", ").any(|number| k.is(&format!("{}/{number}", f.paper))))
    };
    let all: Vec<_> = analysis::bench::figures::figures(&benchmark).into_iter().filter(wanted).collect();
    if all.is_empty() {
        bail!("{} contains no cell of these figures", path.display());
    }
    if all.iter().flat_map(|f| &f.bars).all(|bar| bar.estimate.is_none()) {
        bail!("{} contains no score for these figures", path.display());
    }
    Ok(Made::Text(format!("\n{}", experiment::folded(&analysis::bench::figures::markdown(&all)))))
}

fn head() -> String {
    "# The papers' figures\n\nThe column \"paper\" has the paper's values, from its own machines; \"ours\" has \
     values measured here. The state says on what a figure\nwas made. `make papers` makes them all; each command \
     below makes one.\n\n"
        .into()
}

/// Which papers these are, and what there is of them.
fn overview(papers: &[Paper], wanted: &[&Known]) -> String {
    let mut text = String::new();
    for paper in papers.iter().filter(|p| wanted.iter().any(|k| k.paper == p.number)) {
        let _ = writeln!(text, "- **{}**: {}", paper.number, paper.is);
    }
    text = experiment::folded(&text);
    text.push_str("\n| paper | figure | shows | command | state |\n|---|---|---|---|---|\n");
    for k in wanted {
        let command = k.command.as_ref().map_or_else(String::new, |c| format!("`{c}`"));
        let _ = writeln!(text, "| {} | {} | {} | {command} | {} |", k.paper, k.number, k.shows, k.state);
    }
    text
}

fn notes(figures: &[&Known]) -> String {
    let noted = figures.iter().filter_map(|k| Some((k, k.note.as_ref()?)));
    noted.map(|(k, note)| format!("\n### {} figure {}, notes\n\n{}\n", k.paper, k.number, note.trim())).collect()
}

fn values(archives: &[PathBuf], made: &[&Known]) -> Result<String> {
    let (mut text, mut columns) = (String::from("\n"), Vec::new());
    for (archive, name) in archives.iter().zip(names(archives)) {
        let summary = analysis::summarise_archive(&link::open(archive, &progress::context(false))?)?;
        let fact = |name: &str| summary.environment.get(name).and_then(|f| f.value.clone());
        let mut machine = Vec::new();
        for (what, name) in [
            ("kernel", "kernel.release"),
            ("processor", "cpu.model"),
            ("file system", "fs.type"),
            ("disk", "disk.name"),
            ("scheduler", "disk.scheduler"),
        ] {
            machine.extend(fact(name).map(|value| format!("{what} {value}")));
        }
        let emulated = fact("virtual.accelerator").is_some_and(|accelerator| accelerator == "tcg");
        let times = if emulated { " (emulated: its times show order, not speed)" } else { "" };
        text += &experiment::folded(&format!("{}: {}{times}.\n", capital(&name), machine.join(", ")));
        text.push('\n');
        let mut figures = papers::compare(&summary);
        figures.retain(|f| made.iter().any(|k| k.paper == f.paper && k.number == f.figure));
        columns.push((name, figures));
    }
    Ok(text + &papers::markdown(&columns))
}

/// What each recording is called: `here` if there is one; else its name, or its folder's where all have one name.
fn names(archives: &[PathBuf]) -> Vec<String> {
    if let [_] = archives {
        return vec!["here".into()];
    }
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let alike = archives.windows(2).all(|pair| stem(&pair[0]) == stem(&pair[1]));
    let folder = |path: &Path| path.parent().map(stem).filter(|name| !name.is_empty());
    archives.iter().map(|path| folder(path).filter(|_| alike).unwrap_or_else(|| stem(path))).collect()
}

fn capital(text: &str) -> String {
    if text == "here" { "Here".into() } else { format!("`{text}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_without_requested_figures_is_refused() {
        for (kind, of_benchmark, of_recording, expected) in [
            (ArchiveKind::Bench, true, false, None),
            (
                ArchiveKind::Bench,
                false,
                true,
                Some("this is a benchmark, and what was requested is made of a recording"),
            ),
            (ArchiveKind::Trace, false, true, None),
            (
                ArchiveKind::Trace,
                true,
                false,
                Some("this is a recording, and what was requested is made of a benchmark"),
            ),
            (ArchiveKind::Net, true, true, Some("this is a network run")),
            (ArchiveKind::Bench, false, false, Some("nothing that was requested can be made by a command")),
        ] {
            let why = nothing_to_make(kind, of_benchmark, of_recording);
            assert_eq!(why.is_some(), expected.is_some(), "{kind}: {why:?}");
            assert!(expected.is_none_or(|expected| why.as_ref().unwrap().contains(expected)), "{why:?}");
        }
    }

    /// Naming an archive does not ask for a page, and a foreign page is never replaced.
    #[test]
    fn foreign_page_is_not_overwritten() {
        let folder = std::env::temp_dir().join(format!("fathom-papers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (archive, page) = (folder.join("app.fathom"), folder.join("app.html"));
        for own in [false, true] {
            std::fs::write(&page, "mine").unwrap();
            // The archive does not exist: nothing is read from it.
            draw(&archive, own).unwrap();
            assert_eq!(std::fs::read_to_string(&page).unwrap(), "mine");
        }
        std::fs::remove_file(&page).unwrap();
        draw(&archive, false).unwrap();
        assert!(!page.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_figure_with_command_can_be_named() {
        let list: List = toml::from_str(LIST).unwrap();
        for known in &list.figure {
            assert!(known.is(&known.paper) && known.is(&format!("{}/{}", known.paper, known.number)));
            if let Some(command) = &known.command {
                let name = command.split_once("FIG=").expect("a command names its figure").1;
                assert!(known.is(name), "{command} does not make {}/{}", known.paper, known.number);
            }
            for workload in &known.bench {
                assert!(
                    workload == "cluster" || experiment::catalog::names().unwrap().contains(workload),
                    "{workload} is not a workload of the suite"
                );
                assert!(known.command.is_some());
            }
        }
        // The manual says of every figure what the list says.
        let whole = overview(&list.paper, &list.figure.iter().collect::<Vec<_>>());
        for line in head().lines().chain(whole.lines()) {
            assert!(
                include_str!("../../../docs/results/papers.md").lines().any(|l| l == line),
                "docs/results/papers.md lacks: {line}"
            );
        }
        // What is told besides is told in the manual in the same words, so that making the page anew drops nothing.
        let page = include_str!("../../../docs/results/papers.md");
        let all: Vec<&Known> = list.figure.iter().filter(|k| k.note.is_some()).collect();
        assert!(!all.is_empty());
        // However its lines are wrapped.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for known in all {
            let note = notes(&[known]);
            assert!(words(page).contains(&words(&note)), "docs/results/papers.md lacks: {note}");
        }
        assert!(covers("13-15", "14") && !covers("13-15", "1") && covers("5", "5") && !covers("x", "5"));
    }
}
