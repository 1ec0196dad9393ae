//! Writes a run to an archive; [`crate::rows`] makes the rows.

use crate::link::LinkReport;
use crate::measure::{Handover, Measurement};
use crate::remote::{Endpoint, RemoteOutcome};
use crate::rows::{self, RowContext};
use crate::spec::Spec;
use archive::runs::{Entry, Run};
use archive::{Archive, ArchiveKind, Meta, Result, RunsWriter, SignalCleanup, StagedArchive};
use std::path::Path;

/// Names of rows, set by the reader of the archive.
#[derive(Debug, Clone, Copy)]
pub struct RowNames {
    /// The design name of a single run.
    pub run: &'static str,
    /// Prefix of the labels that tell what limited a direction.
    pub limited_by: &'static str,
}

/// Checks whether the archive can be written, before anything is measured.
pub fn check_output(output: &Path, spec: &Spec) -> Result<()> {
    StagedArchive::check_possible(output, rows::archive_bytes_min(spec))
}

/// The parts of a run that are kept.
#[derive(Debug, Clone, Copy)]
pub struct RunArchive<'a> {
    pub handover: &'a Handover,
    /// Both ends, if they were controlled from this machine.
    pub conducted: Option<&'a RemoteOutcome>,
    /// The requested link that the run used.
    pub link: Option<(&'a str, LinkReport<'a>)>,
    pub names: RowNames,
}

impl RunArchive<'_> {
    /// Writes everything into the directory `dir`, which nothing reads yet.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let Handover { measured: Measurement { outcome, interrupted, .. }, place } = self.handover;
        let argv: Vec<String> = std::env::args().collect();
        // The boot of the machine whose clock the timestamps use.
        let boot = match self.conducted.filter(|conducted| conducted.skew.is_some()) {
            Some(_) => device::boot_id(&device::Local),
            None => place.boot.clone(),
        };
        let mut meta = Meta { boot, ..Meta::new(ArchiveKind::Net, archive::unix_now_ns(), argv.clone()) };
        Archive::create(dir, &meta, true)?;
        let mut log = RunsWriter::create(dir)?;
        let mut facts = place.facts.clone();
        if let Some(Endpoint { facts: theirs, .. }) = self.conducted.and_then(|c| c.server.as_ref()) {
            facts.extend(theirs.iter().map(|(name, fact)| (format!("server.{name}"), fact.clone())));
        }
        log.push(Entry::Machine(facts))?;
        let (design, cell) = rows::design_rows(&outcome.spec, self.names.run, &argv, self.link.map(|(words, _)| words));
        log.push(Entry::Design(design))?;
        log.push(Entry::Cell(cell))?;
        log.push(Entry::Replicate(Box::new(self.replicate())))?;
        // As in a benchmark, a design without a `Stopped` entry was interrupted.
        if !interrupted {
            log.push(Entry::Stopped { design: 0, why: "blocks".into(), replicates: Some(1) })?;
        }
        {
            let _cleanup = SignalCleanup::tables(dir)?;
            log.runs().make_tables(dir)?;
        }
        meta.linked = true;
        meta.complete = !interrupted;
        meta.write(dir)
    }

    fn replicate(&self) -> Run {
        let (outcome, conducted) = (&self.handover.measured.outcome, self.conducted);
        let facts = conducted.map(|conducted| rows::end_labels(conducted, outcome)).unwrap_or_default();
        let context = RowContext {
            ahead_ns: conducted.and_then(|conducted| conducted.skew).map_or(0, |skew| skew.ahead_ns),
            marks: facts.into_iter().map(|(name, text)| (name.to_string(), text)).collect(),
            limited_by: self.names.limited_by,
            moment: self.handover.place.moment,
            link: self.link.map(|(_, link)| link),
        };
        let rows::Rows { replicate, samples, marks } = rows::from_outcome(outcome, context);
        Run { replicate, samples, marks }
    }
}
