//! The list of the papers' figures: which exist, how each is made, and what their page states about each.

use analysis::contract::Summary;
use analysis::text::escaped;
use archive::ArchiveKind;
use model::text::wrap_markdown;
use serde::Deserialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Every figure of the papers, with its actual state.
const FIGURES_TOML: &str = include_str!("../../../experiments/papers/figures.toml");

/// Papers and figures.
#[derive(Debug, Deserialize)]
pub struct List {
    pub paper: Vec<Paper>,
    pub figure: Vec<ListedFigure>,
}

/// Returns all of them.
///
/// # Errors
/// The list is malformed, which a test would detect.
pub fn list() -> Result<List, toml::de::Error> {
    toml::from_str(FIGURES_TOML)
}

/// A paper, with the number that identifies it throughout this project.
#[derive(Debug, Deserialize)]
pub struct Paper {
    number: String,
    is: String,
}

/// A figure of the list.
#[derive(Debug, Deserialize)]
pub struct ListedFigure {
    /// The paper's number.
    pub paper: String,
    /// The figure's number, such as `13-15`.
    pub number: String,
    shows: String,
    /// The command that makes it, if there is one.
    pub command: Option<String>,
    /// The workloads of the suite that make it; if there are none, a recording does.
    #[serde(default)]
    pub bench: Vec<String>,
    state: String,
    /// The command that measures it with more machines than a host and one device.
    beside: Option<String>,
    /// The command that makes what is missing here.
    elsewhere: Option<String>,
    /// Further measurements, shown beside the figure.
    pub note: Option<String>,
}

impl ListedFigure {
    /// Returns the command that measures it with this device and others.
    pub fn with_device(&self, device: &str) -> Option<String> {
        Some(self.beside.as_ref()?.replace("{device}", device))
    }

    /// Describes it as made by another command, which leaves nothing out.
    pub fn made_by(self, command: String, state: String) -> Self {
        Self { command: Some(command), state, elsewhere: None, ..self }
    }

    /// Whether `name` refers to it: `PAPER` or `PAPER/FIGURE`.
    pub fn is_named_by(&self, name: &str) -> bool {
        name == self.paper
            || name.split_once('/').is_some_and(|(paper, number)| {
                paper == self.paper
                    && (number == self.number || self.number.split([' ', ',']).any(|part| range_covers(part, number)))
            })
    }
}

/// Whether `13-15` (or `5`) covers `14`.
fn range_covers(range: &str, number: &str) -> bool {
    let (low, high) = range.split_once('-').unwrap_or((range, range));
    match (low.parse::<u32>(), high.parse::<u32>(), number.parse::<u32>()) {
        (Ok(low), Ok(high), Ok(n)) => (low..=high).contains(&n),
        _ => false,
    }
}

/// Returns the head of the page.
pub fn page_head() -> String {
    "# The papers' figures\n\nThe column \"paper\" has the paper's values, from its own machines; \"ours\" has \
     values measured here. The state says on what a figure\nwas made. `make papers` makes them all; each command \
     below makes one.\n\n"
        .into()
}

/// Returns the head of the page of a host and a device.
pub fn head_of_both(host: &str, device: &str, date: &str, quick: bool) -> String {
    let quick = if quick { " It is of a quick run: few processes, small values." } else { "" };
    let device = escaped(device);
    wrap_markdown(&format!(
        "# The papers' figures on {host} and {device}\n\nMade by `fathom papers --device` on {date}.{quick} Both were measured with the \
         same program and parameters; a ratio is {device} / {host}, of the scores, with its interval of 95 %.\n\n"
    ))
}

/// Lists the figures that a host and a device make, and the command that makes each one alone.
pub fn overview_of_both(papers: &[Paper], wanted: &[&ListedFigure], device: &str) -> String {
    let mut text = String::new();
    for paper in papers.iter().filter(|p| wanted.iter().any(|k| k.paper == p.number)) {
        let _ = writeln!(text, "- **{}**: {}", paper.number, paper.is);
    }
    text = wrap_markdown(&text);
    text.push_str("\n| paper | figure | shows | command |\n|---|---|---|---|\n");
    for k in wanted {
        let command = match &k.command {
            None => "nothing measured in it".into(),
            Some(command) => {
                let more = k.with_device(&escaped(device)).map(|with| format!("; {with}"));
                format!("`{command} DEVICE={}`{}", escaped(device), more.unwrap_or_default())
            }
        };
        let _ = writeln!(text, "| {} | {} | {} | {command} |", k.paper, k.number, k.shows);
    }
    text
}

/// Lists the papers, and the state of their figures.
pub fn overview(papers: &[Paper], wanted: &[&ListedFigure]) -> String {
    let mut text = String::new();
    for paper in papers.iter().filter(|p| wanted.iter().any(|k| k.paper == p.number)) {
        let _ = writeln!(text, "- **{}**: {}", paper.number, paper.is);
    }
    text = wrap_markdown(&text);
    text.push_str("\n| paper | figure | shows | command | state |\n|---|---|---|---|---|\n");
    for k in wanted {
        let command = k.command.as_ref().map_or_else(String::new, |c| format!("`{c}`"));
        let _ = writeln!(text, "| {} | {} | {} | {command} | {} |", k.paper, k.number, k.shows, k.state);
    }
    let elsewhere: Vec<_> = wanted.iter().filter_map(|k| Some((k, k.elsewhere.as_ref()?))).collect();
    if !elsewhere.is_empty() {
        let line = |(k, how): (&&ListedFigure, &String)| format!("- **{} {}**: {how}\n", k.paper, k.number);
        let lines: String = elsewhere.into_iter().map(line).collect();
        text.push_str(&format!("\nTo make the rest:\n\n{}", wrap_markdown(&lines)));
    }
    text
}

/// Formats the further measurements.
pub fn notes(figures: &[&ListedFigure]) -> String {
    let noted = figures.iter().filter_map(|k| Some((k, k.note.as_ref()?)));
    noted.map(|(k, note)| format!("\n### {} figure {}, notes\n\n{}\n", k.paper, k.number, note.trim())).collect()
}

/// The name of a recording that is the only one.
const ONLY_RECORDING: &str = "here";

/// Returns the name of each recording: `here` if there is one; otherwise its file's name, or its directory's if all
/// files have the same name.
pub fn recording_names(archives: &[PathBuf]) -> Vec<String> {
    if let [_] = archives {
        return vec![ONLY_RECORDING.into()];
    }
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let alike = archives.windows(2).all(|pair| stem(&pair[0]) == stem(&pair[1]));
    let directory = |path: &Path| path.parent().map(stem).filter(|name| !name.is_empty());
    archives.iter().map(|path| directory(path).filter(|_| alike).unwrap_or_else(|| stem(path))).collect()
}

fn title_of_recording(text: &str) -> String {
    if text == ONLY_RECORDING { "Here".into() } else { format!("`{text}`") }
}

/// Describes the machine of a recording, in a line; `name` is the recording's name.
pub fn machine_line(name: &str, summary: &Summary) -> String {
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
    let times = if summary.caveats.against_times().is_some() { " (emulated: counts, no times)" } else { "" };
    wrap_markdown(&format!("{}: {}{times}.\n", title_of_recording(name), machine.join(", ")))
}

/// Returns why an archive of this kind makes none of the requested figures: some are made from a benchmark, some from a recording.
pub fn nothing_to_make(kind: ArchiveKind, of_benchmark: bool, of_recording: bool) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_without_the_requested_figures_is_refused() {
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

    #[test]
    fn every_figure_with_a_command_can_be_named() {
        let list = list().unwrap();
        for figure in &list.figure {
            assert!(
                figure.is_named_by(&figure.paper) && figure.is_named_by(&format!("{}/{}", figure.paper, figure.number))
            );
            if let Some(command) = &figure.command {
                let name = command.split_once("FIG=").expect("a command names its figure").1;
                assert!(figure.is_named_by(name), "{command} does not make {}/{}", figure.paper, figure.number);
            }
            assert!(figure.bench.is_empty() || figure.command.is_some());
        }
        assert!(
            range_covers("13-15", "14")
                && !range_covers("13-15", "1")
                && range_covers("5", "5")
                && !range_covers("x", "5")
        );
    }

    /// Regenerating the manual's page loses none of its text.
    #[test]
    fn the_page_of_papers_says_what_the_list_says() {
        let (list, page) = (list().unwrap(), include_str!("../../../docs/results/papers.md"));
        let whole = overview(&list.paper, &list.figure.iter().collect::<Vec<_>>());
        // Ignores line breaks.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let of_page = words(page);
        for line in page_head().lines().chain(whole.lines()) {
            assert!(of_page.contains(&words(line)), "docs/results/papers.md lacks: {line}");
        }
        let noted: Vec<&ListedFigure> = list.figure.iter().filter(|figure| figure.note.is_some()).collect();
        assert!(!noted.is_empty());
        for figure in noted {
            let note = notes(&[figure]);
            assert!(of_page.contains(&words(&note)), "docs/results/papers.md lacks: {note}");
        }
    }
}
