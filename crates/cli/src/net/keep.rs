//! A run in an archive: [`net::rows`] says of what, here it is written.

use analysis::bench::run_score::{LIMITED_BY, RUN};
use anyhow::Result;
use archive::runs::{Entry, Run};
use archive::{Archive, ArchiveKind, Meta, RunsWriter, SignalCleanup, Staged};
use net::link::LinkReport;
use net::measure::{Handover, Measured};
use net::remote::{Conducted, Endpoint};
use net::rows::{self, RowContext};
use net::spec::Spec;
use std::path::Path;

/// Whether the archive could be written, before anything is measured.
pub fn possible(output: &Path, spec: &Spec) -> Result<()> {
    Ok(Staged::possible(output, rows::size(spec))?)
}

/// Writes it, beside its place until all of it is there: if that fails, what stood there stands there still. `link`: the link that the run
/// went over, as it was asked for.
pub fn keep(
    handed: &Handover,
    conducted: Option<&Conducted>,
    link: Option<(&str, LinkReport<'_>)>,
    output: &Path,
    quiet: bool,
) -> Result<()> {
    let staged = Staged::begin(output)?;
    write(handed, conducted, link, staged.folder())?;
    crate::notices::keep_old(staged.place(), quiet)?;
    let output = staged.finish()?;
    Ok(recorder::output::give_to_caller(&output)?)
}

fn write(
    handed: &Handover,
    conducted: Option<&Conducted>,
    link: Option<(&str, LinkReport<'_>)>,
    dir: &Path,
) -> Result<()> {
    let Handover { measured: Measured { outcome, .. }, place } = handed;
    let argv: Vec<String> = std::env::args().collect();
    // Whose clock the times are of.
    let boot = match conducted.filter(|conducted| conducted.skew.is_some()) {
        Some(_) => device::boot_id(&device::Local),
        None => place.boot.clone(),
    };
    let mut meta = Meta { boot, ..Meta::new(ArchiveKind::Net, archive::unix_now_ns(), argv.clone()) };
    Archive::create(dir, &meta, true)?;
    let mut log = RunsWriter::create(dir)?;
    let mut facts = place.facts.clone();
    if let Some(Endpoint { facts: theirs, .. }) = conducted.and_then(|c| c.server.as_ref()) {
        facts.extend(theirs.iter().map(|(name, fact)| (format!("server.{name}"), fact.clone())));
    }
    log.push(Entry::Machine(facts))?;
    let (design, cell) = rows::design(&outcome.spec, RUN, &argv, link.map(|(words, _)| words));
    log.push(Entry::Design(design))?;
    log.push(Entry::Cell(cell))?;
    log.push(Entry::Replicate(Box::new(replicate(handed, conducted, link.map(|(_, link)| link)))))?;
    log.push(Entry::Stopped { design: 0, why: "blocks".into(), replicates: Some(1) })?;
    {
        let _cleanup = SignalCleanup::tables(dir)?;
        log.runs().make_tables(dir)?;
    }
    meta.linked = true;
    meta.complete = true;
    meta.write(dir)?;
    Ok(())
}

fn replicate(handed: &Handover, conducted: Option<&Conducted>, link: Option<LinkReport<'_>>) -> Run {
    let outcome = &handed.measured.outcome;
    let facts = conducted.map(|conducted| rows::ends(conducted, outcome)).unwrap_or_default();
    let besides = RowContext {
        ahead_ns: conducted.and_then(|conducted| conducted.skew).map_or(0, |skew| skew.ahead_ns),
        marks: facts.into_iter().map(|(name, text)| (name.to_string(), text)).collect(),
        limited_by: LIMITED_BY,
        moment: handed.place.moment,
        link,
    };
    let rows::Rows { replicate, samples, marks } = rows::of(outcome, besides);
    Run { replicate, samples, marks }
}
