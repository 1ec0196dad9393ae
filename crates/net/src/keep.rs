//! Writes a run to an archive; [`crate::rows`] makes the rows.

use crate::link::LinkReport;
use crate::measure::{Handover, Measured};
use crate::remote::{Conducted, Endpoint};
use crate::rows::{self, RowContext};
use crate::spec::Spec;
use archive::runs::{Entry, Run};
use archive::{Archive, ArchiveKind, Meta, Result, RunsWriter, SignalCleanup, Staged};
use std::path::Path;

/// Names of rows, set by the reader of the archive.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// The design name of a single run.
    pub run: &'static str,
    /// Prefix of the labels that tell what limited a direction.
    pub limited_by: &'static str,
}

/// Checks whether the archive can be written, before anything is measured.
pub fn possible(output: &Path, spec: &Spec) -> Result<()> {
    Staged::possible(output, rows::size(spec))
}

/// The parts of a run that are kept.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'a> {
    pub handed: &'a Handover,
    /// Both ends, if they were controlled from this machine.
    pub conducted: Option<&'a Conducted>,
    /// The requested link that the run used.
    pub link: Option<(&'a str, LinkReport<'a>)>,
    pub names: Names,
}

impl Kept<'_> {
    /// Writes everything into the directory `dir`, which nothing reads yet.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let Handover { measured: Measured { outcome, interrupted, .. }, place } = self.handed;
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
        let (design, cell) = rows::design(&outcome.spec, self.names.run, &argv, self.link.map(|(words, _)| words));
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
        let (outcome, conducted) = (&self.handed.measured.outcome, self.conducted);
        let facts = conducted.map(|conducted| rows::ends(conducted, outcome)).unwrap_or_default();
        let besides = RowContext {
            ahead_ns: conducted.and_then(|conducted| conducted.skew).map_or(0, |skew| skew.ahead_ns),
            marks: facts.into_iter().map(|(name, text)| (name.to_string(), text)).collect(),
            limited_by: self.names.limited_by,
            moment: self.handed.place.moment,
            link: self.link.map(|(_, link)| link),
        };
        let rows::Rows { replicate, samples, marks } = rows::of(outcome, besides);
        Run { replicate, samples, marks }
    }
}
