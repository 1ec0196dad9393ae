//! A benchmark's tables, made from its log.

use crate::store::{self, Error};
use archive::runs::NET_RUN;
use archive::table_maker::{Failure, Occasion, TableCounts};
use archive::{Archive, ArchiveKind, Meta, Runs, SignalCleanup, TableMaker};
use model::Context;
use model::text::ShownPath as _;
use std::fmt;
use std::path::{Path, PathBuf};

/// Notices to the user while tables are made. The caller formats them.
#[derive(Debug)]
pub enum Notice {
    /// An archive is being opened whose tables must be made first.
    Building {
        archive: PathBuf,
        /// Why.
        why: Occasion,
    },
    /// An archive's `meta.json` is missing or damaged; the tables are made without its contents.
    MetaUnreadable(archive::Error),
    /// An archive's log has lost a part since its tables were made.
    LogCut(archive::Error),
    /// Something is missing in the log.
    Missing(String),
}

/// Sentences, one per line.
impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Building { archive, why } => {
                let state = match why {
                    Occasion::NoTables => "has no tables yet",
                    Occasion::LogGrew => "has grown since its tables were made",
                    Occasion::Live => "is still running",
                };
                write!(f, "{} {state}; building the tables from its log", archive.shown())
            }
            Self::MetaUnreadable(error) => write!(
                f,
                "{}\ncontinuing with the log (runs.jsonl) alone: the command line is lost, and the archive's time is that of its \
                 first process",
                error.without_remedy()
            ),
            Self::LogCut(error) => error.fmt(f),
            Self::Missing(what) => f.write_str(what),
        }
    }
}

/// Makes tables from `runs.jsonl`: of benchmarks and of network runs.
pub struct FromRuns<'a> {
    /// Receiver of notices.
    pub notify: &'a dyn Fn(Notice),
}

impl FromRuns<'_> {
    fn count_and_report(&self, (runs, missing): (Runs, Vec<String>)) -> TableCounts {
        missing.into_iter().for_each(|warning| (self.notify)(Notice::Missing(warning)));
        TableCounts { read: (runs.designs.len() as u64, "design"), found: (runs.runs.len() as u64, "process") }
    }
}

impl TableMaker for FromRuns<'_> {
    fn kinds(&self) -> &'static [ArchiveKind] {
        &[ArchiveKind::Bench, ArchiveKind::Net]
    }

    fn log(&self, dir: &Path) -> PathBuf {
        archive::runs::path(dir)
    }

    fn reads_live(&self) -> bool {
        true
    }

    fn report_start(&self, dir: &Path, why: Occasion) {
        (self.notify)(Notice::Building { archive: dir.into(), why });
    }

    fn report_cut(&self, why: archive::Error) {
        (self.notify)(Notice::LogCut(why));
    }

    fn make(&self, dir: &Path, _context: &Context) -> Result<TableCounts, Failure> {
        Ok(self.count_and_report(make(dir)?))
    }

    fn make_without_meta(&self, dir: &Path, why: archive::Error, _context: &Context) -> Result<TableCounts, Failure> {
        (self.notify)(Notice::MetaUnreadable(why));
        Ok(self.count_and_report(make_without_meta(dir)?))
    }
}

/// Makes a benchmark's tables from its log, and marks them as made in `meta.json`. The second value describes what is missing.
///
/// # Errors
/// Those of the archive, or [`Error::LogCut`].
pub fn make(dir: &Path) -> Result<(Runs, Vec<String>), Error> {
    make_with_meta(dir, Archive::open(dir)?.meta().clone())
}

/// The same if `meta.json` is missing or damaged: uses what the log contains.
fn make_without_meta(dir: &Path) -> Result<(Runs, Vec<String>), Error> {
    let (runs, _) = Runs::salvage(dir)?;
    let began = runs.runs.first().and_then(|run| run.replicate.start_unix_ns).unwrap_or(0);
    let kind = if runs.designs.iter().any(|d| d.name == NET_RUN) { ArchiveKind::Net } else { ArchiveKind::Bench };
    make_with_meta(dir, Meta::new(kind, began, Vec::new()))
}

fn make_with_meta(dir: &Path, meta: Meta) -> Result<(Runs, Vec<String>), Error> {
    let (runs, warnings) = store::read(dir)?;
    store::check_keeps_tables(dir, &runs)?;
    {
        let _cleanup = SignalCleanup::tables(dir)?;
        runs.make_tables(dir)?;
    }
    store::meta_with_tables(meta, &runs).write(dir)?;
    Ok((runs, warnings))
}
