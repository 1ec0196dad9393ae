//! Pages of archives: which parts are loaded, and which archives go onto one page.

use crate::{PageData, bench_page, packed_part, page, pages, pages_with};
use analysis::host_clock::HostClock;
use analysis::rows::Index;
use analysis::{Rows, figures};
use archive::{Archive, ArchiveKind};
use scores::flows;
use scores::net::page_of;
use scores::recording_series::RecordingSeries;
use scores::results::Bench;
use serde_json::{Value, json};
use std::path::Path;
use verdicts::diff::contract::Diff;
use verdicts::explain;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An archive cannot be read.
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// Benchmarks, or network runs, cannot be shown.
    #[error(transparent)]
    Bench(#[from] scores::Error),
    /// It cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The sections of the archives do not fit together.
    #[error(
        "a page cannot mix benchmarks with other archives: make one page for each kind (network runs and recordings go \
         together)"
    )]
    Mixed,
    /// Only recordings have a time window.
    #[error(
        "--from and --to select a time range of a recording; the page of a benchmark or a network run has all of it"
    )]
    NoWindow,
}

/// The kind of a page of archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageContent {
    /// Recordings only.
    Recordings,
    /// Network runs, with the recordings made during them.
    NetworkRuns,
    /// Benchmarks only.
    Benchmarks,
}

/// Returns the kind of page for archives of these kinds; `window`: whether a time window is selected.
///
/// # Errors
/// They cannot be combined on one page, or not with a window.
pub fn page_content(kinds: &[ArchiveKind], window: bool) -> Result<PageContent, Error> {
    let of = |kind| kinds.iter().filter(|one| **one == kind).count();
    match (of(ArchiveKind::Net), of(ArchiveKind::Bench)) {
        (0, 0) => Ok(PageContent::Recordings),
        _ if window => Err(Error::NoWindow),
        (_, 0) => Ok(PageContent::NetworkRuns),
        (_, benchmarks) if benchmarks == kinds.len() => Ok(PageContent::Benchmarks),
        _ => Err(Error::Mixed),
    }
}

/// Spans of a recording that a page reads when it is opened. A larger recording is in parts, of which the page reads those that
/// are viewed.
const OPENING_SPANS_MAX: usize = 500_000;
/// Spans that begin in one part.
const PART_SPANS_MAX: usize = 100_000;
/// Spans of all parts, about 11 bytes each in the page including everything that refers to them. The page names what is left out.
const PAGE_SPANS_MAX: usize = 20_000_000;
/// Device commands of the address map.
const ADDRESS_POINTS_MAX: usize = 200_000;

/// Builds the page of recordings, of which `window` is shown individually: ns from the first operation. The data of one is freed
/// before the next is loaded.
pub fn recordings_page(opened: &[(Archive, String)], window: Option<(u64, u64)>) -> Result<String, Error> {
    let mut data = Vec::new();
    let mut series = Vec::new();
    for (archive, title) in opened {
        let rows = Rows::load(archive)?;
        data.push(recording_data(&rows, title, window)?);
        if opened.len() > 1 {
            let clock = HostClock::from_facts(&rows.environment());
            let one = RecordingSeries::new(&rows, title, archive.meta().boot.clone()).on_host(clock.as_ref());
            series.push((one, clock));
        }
    }
    Ok(pages(&data, &combine_series(series)))
}

/// Returns recordings on one axis, with a note on their clocks; or why they cannot be combined.
fn combine_series(series: Vec<(RecordingSeries, Option<HostClock>)>) -> Value {
    if series.is_empty() {
        return Value::Null;
    }
    let clocks = series.iter().filter_map(|(one, clock)| Some(clock.as_ref()?.describe(&one.name) + "."));
    let clocks: Vec<String> = clocks.collect();
    let series: Vec<RecordingSeries> = series.into_iter().map(|(one, _)| one).collect();
    match flows::flows_of_recordings(&series) {
        Ok(charts) => json!({ "charts": charts, "note": clocks.join(" ") }),
        Err(why) => json!({ "charts": [], "note": format!("Not on one axis of time: {why}.") }),
    }
}

/// Builds the page of two compared recordings.
pub fn comparison_page(opened: &[(Archive, String); 2], diff: &Diff) -> Result<String, Error> {
    let data = opened.iter().map(|(archive, title)| recording_data(&Rows::load(archive)?, title, None));
    Ok(pages_with(&data.collect::<Result<Vec<_>, _>>()?, &serde_json::to_value(diff)?))
}

/// Builds the page of one recording.
pub fn recording_page(archive: &Archive, title: &str) -> Result<String, Error> {
    Ok(page(&recording_data(&Rows::load(archive)?, title, None)?))
}

/// Whether an existing page may be replaced: it shows this recording, so it is not an unrelated file.
pub fn shows_archive(page: &str, archive: &Path) -> bool {
    page.contains(&format!("class=\"recording\" data-title=\"{}\"", archive.to_string_lossy()))
}

fn recording_data<'a>(rows: &Rows, title: &'a str, window: Option<(u64, u64)>) -> Result<PageData<'a>, Error> {
    let limits = figures::Limits {
        spans: OPENING_SPANS_MAX,
        part: PART_SPANS_MAX,
        all: PAGE_SPANS_MAX,
        points: ADDRESS_POINTS_MAX,
        window,
        ..figures::Limits::default()
    };
    let index = Index::new(rows);
    let (summary, explanation) = explain::summarise_and_explain_rows(&index);
    let scatter = figures::scatter_of(&index, &limits);
    let mut parts = Vec::new();
    let timeline = figures::timeline_with(&index, &limits, &mut |held, at| parts.push(packed_part(held, at)));
    let counts = figures::counts(&summary);
    Ok(PageData::with_parts(title, &summary, timeline, parts, scatter, &counts, &explanation)?)
}

/// Builds the page of network runs: the numbers of all, and their flows on one axis with the recordings made during them.
///
/// # Errors
/// An archive cannot be read, or the runs cannot be combined on one page.
pub fn network_runs(opened: &[(Archive, String)]) -> Result<String, Error> {
    let (mut runs, mut recordings) = (Vec::new(), Vec::new());
    for (archive, name) in opened {
        let meta = archive.meta();
        if meta.kind == ArchiveKind::Net {
            runs.push(Bench::load(archive, name)?);
        } else {
            let rows = Rows::load(archive)?;
            let clock = HostClock::from_facts(&rows.environment());
            recordings.push(RecordingSeries::new(&rows, name, meta.boot.clone()).on_host(clock.as_ref()));
        }
    }
    let titles: Vec<&str> = opened.iter().map(|(_, name)| name.as_str()).collect();
    Ok(bench_page(&titles.join(", "), &page_of(&runs, &recordings)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ArchiveKind::{Bench, Net, Trace};

    #[test]
    fn page_names_its_recordings() {
        let page = page(&PageData { title: "app.fathom", ..PageData::default() });
        assert!(shows_archive(&page, Path::new("app.fathom")));
        assert!(!shows_archive(&page, Path::new("other.fathom")) && !shows_archive("mine", Path::new("app.fathom")));
    }

    #[test]
    fn kinds_of_archives_decide_the_page() {
        let shown = |kinds: &[ArchiveKind]| page_content(kinds, false).ok();
        assert_eq!(shown(&[Trace, Trace]), Some(PageContent::Recordings));
        assert_eq!(shown(&[Trace, Net]), Some(PageContent::NetworkRuns));
        assert_eq!(shown(&[Bench, Bench]), Some(PageContent::Benchmarks));
        assert!(matches!(page_content(&[Bench, Net], false), Err(Error::Mixed)));
        assert!(matches!(page_content(&[Trace, Bench], false), Err(Error::Mixed)));
        assert!(page_content(&[Trace], true).is_ok());
        assert!(matches!(page_content(&[Net], true), Err(Error::NoWindow)));
    }
}
