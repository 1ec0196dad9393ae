//! Measures designs into an archive, one after the other, or the remaining ones after an interruption.

use crate::measure::error::IoContext as _;
use crate::measure::score::half_width_scorer;
use crate::measure::setting::{count_activity, make_disk, read_sensors, remove_leftovers};
use crate::measure::{Error, Notice, Notify, Result, machine, results};
use archive::runs::Entry;
use archive::{Archive, ArchiveKind, Meta};
use experiment::catalog::{self, Runnable};
use experiment::eta::{Eta, Part};
use experiment::selection::{self, Selection};
use experiment::store::Store;
use experiment::{Design, Results, Setting};
use model::table::MarkRow;
use model::text::ShownPath as _;
use model::{Context, counted};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

/// Designs, and the archive for their results.
pub struct Bench {
    pub dir: PathBuf,
    designs: Vec<Design>,
    store: Store,
    why: Option<PathBuf>,
}

/// The outcome. An error affects the designs that follow, not the previous ones.
#[derive(Debug)]
pub struct MeasuredDesigns {
    /// The results of each design that ran.
    pub results: Vec<Results>,
    /// The error that ended it.
    pub error: Option<Error>,
}

/// Finds what a word names: a workload by name, or a design by file; `sweep`: only those of `fathom net sweep`.
///
/// # Errors
/// Nothing has that name, or its file is invalid.
pub fn find(word: &str, sweep: bool) -> Result<Runnable> {
    let found = if sweep { catalog::find_sweep(word) } else { catalog::find(word) };
    found.map_err(|error| match error {
        catalog::Error::Unknown { .. } => Error::Usage(error.to_string()),
        other => other.into(),
    })
}

/// Returns the requested designs, and the values that were replaced since they cannot run here.
///
/// # Errors
/// The invalid part of the selection.
pub fn choose_designs(selection: &Selection) -> std::result::Result<(Vec<Design>, Vec<String>), selection::Error> {
    selection::designs(selection, archive::unix_now_ns() % 1_000_000_000)
}

/// Parses the directories of `--dir [NAME=]DIRECTORY`: name and path.
///
/// # Errors
/// One is not a directory, or two have the same name.
pub fn parse_directories(words: &[String]) -> Result<Vec<(String, PathBuf)>> {
    let mut all: Vec<(String, PathBuf)> = Vec::new();
    for word in words {
        // A directory whose own name contains an equals sign is still a directory.
        let (name, path) = match word.split_once('=').filter(|_| !Path::new(word).is_dir()) {
            Some((name, path)) => (name, path),
            None => (word.as_str(), word.as_str()),
        };
        let found = std::fs::canonicalize(path).doing(format!("--dir {path}"))?;
        if !found.is_dir() {
            return Err(Error::Usage(format!("--dir {path}: not a directory")));
        }
        if all.iter().any(|(other, _)| other == name) {
            return Err(Error::Usage(format!(
                "--dir: {name} is given twice; name the directories, such as internal=/data"
            )));
        }
        all.push((name.into(), found));
    }
    Ok(all)
}

impl Bench {
    /// Creates a new archive at `dir` for these designs on these directories; an older one has already been moved away.
    pub fn create(
        dir: &Path,
        (designs, instead): (Vec<Design>, Vec<String>),
        directories: &[(String, PathBuf)],
        notify: Notify<'_>,
    ) -> Result<Self> {
        let meta = Meta::new(ArchiveKind::Bench, archive::unix_now_ns(), std::env::args().collect());
        Archive::create(dir, &meta, true)?;
        let mut store = Store::create(dir)?;
        store.push(Entry::Machine(machine::facts(directories)))?;
        store.plan(&designs)?;
        for text in instead {
            notify(Notice::Instead(text.clone()));
            store.push(Entry::Mark(MarkRow { replicate: None, name: "instead".into(), text }))?;
        }
        Ok(Self { dir: dir.into(), designs, store, why: None })
    }

    /// Resumes the archive at `dir`; changes of the machine since then are recorded.
    ///
    /// # Errors
    /// There is nothing to resume.
    pub fn resume(dir: &Path, notify: Notify<'_>) -> Result<Self> {
        let (store, warning) = experiment::resume::resume(dir, &machine::facts)?;
        warning.into_iter().for_each(|warning| notify(Notice::Mended(warning)));
        let why = dir.join(results::RECORDINGS_DIRECTORY);
        Ok(Self { dir: dir.into(), designs: store.designs()?, store, why: why.is_dir().then_some(why) })
    }

    /// Enables recording of one process of each cell, into the archive.
    pub fn record_why(&mut self) -> Result<()> {
        let path = self.dir.join(results::RECORDINGS_DIRECTORY);
        // Left by the previous archive at this place.
        if path.exists() {
            std::fs::remove_dir_all(&path).doing(format!("removing {}", path.shown()))?;
        }
        std::fs::create_dir(&path).doing(format!("making {}", path.shown()))?;
        self.why = Some(path);
        Ok(())
    }

    /// Returns the estimated time of the run.
    pub fn eta(&self) -> Eta {
        Eta::new(self.designs.iter().map(Part::from_design).collect())
    }

    pub fn runs(&self) -> &archive::Runs {
        self.store.runs()
    }

    /// Adds a remark on the whole run.
    pub fn mark(&mut self, name: &str, text: &str) -> Result<()> {
        self.store.push(Entry::Mark(MarkRow { replicate: None, name: name.into(), text: text.into() }))?;
        Ok(())
    }

    pub fn is_finished(&self) -> bool {
        self.designs.iter().enumerate().all(|(at, design)| self.store.finished(at, design).is_some())
    }

    /// Returns the message for a resumed run that [is finished](Self::is_finished): how to get what may have been intended.
    pub fn finished_message(&self) -> String {
        let (dir, blocks) = (self.dir.shown(), self.block_count());
        if blocks == 0 {
            return format!(
                "{dir} is complete, but none of it could run, for the reasons shown. Start a new run when they are fixed"
            );
        }
        format!(
            "{dir} is complete ({}, {}): nothing is left to run, showing its results. For more blocks, start a new run with \
             --blocks N and another -o: a run that ended by its stopping rule is not extended, since continuing after a look \
             at the result produces false positives",
            counted(self.runs().runs.len(), "process"),
            counted(blocks, "block"),
        )
    }

    /// Returns the number of measured blocks.
    fn block_count(&self) -> usize {
        let blocks = |r: &archive::runs::Run| (!r.replicate.warmup).then_some(r.replicate.block);
        self.runs().runs.iter().filter_map(blocks).collect::<BTreeSet<u64>>().len()
    }

    /// Measures the rest. `wait`: whether to wait for a hot or busy machine.
    pub fn measure(
        &mut self,
        fathom: &Path,
        wait: bool,
        (context, eta): (&Context, &Mutex<Eta>),
        notify: Notify<'_>,
    ) -> MeasuredDesigns {
        let begun = Instant::now();
        let mut measured = MeasuredDesigns { results: Vec::new(), error: None };
        for at in 0..self.designs.len() {
            if let Some(done) = self.store.finished(at, &self.designs[at]) {
                measured.results.push(done);
                continue;
            }
            if let Ok(mut eta) = eta.lock() {
                eta.begin(at, begun.elapsed());
            }
            match self.measure_design(at, fathom, wait, context, notify) {
                Ok(results) => measured.results.push(results),
                // Results measured before the error are kept, and shown before it.
                Err(error) => measured.error = Some(error),
            }
            if measured.error.is_some() || context.cancelled() {
                break;
            }
        }
        context.clear_progress();
        measured
    }

    /// Runs a design, or the rest of it.
    fn measure_design(
        &mut self,
        at: usize,
        fathom: &Path,
        wait: bool,
        context: &Context,
        notify: Notify<'_>,
    ) -> Result<Results> {
        let design = &self.designs[at];
        let (mut make, mut sensors, mut counts, mut scores) =
            (make_disk, read_sensors, count_activity, half_width_scorer(design));
        let mut setting = Setting::new(fathom, &mut make);
        setting.sensors = Some(&mut sensors);
        setting.counts = Some(&mut counts);
        setting.half_widths = Some(&mut scores);
        setting.wait = wait;
        setting.why = self.why.clone();
        setting.past = self.store.begin(at);
        remove_leftovers(design, &setting, notify);
        let results = experiment::run(design, &mut setting, context, &mut self.store)?;
        if let Some(stopped) = results.stopped.filter(|_| !context.cancelled()) {
            self.store.end(at, stopped)?;
        }
        Ok(results)
    }
}
