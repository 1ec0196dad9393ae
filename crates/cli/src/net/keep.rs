//! A run in an archive: [`net::rows`] says of what, here it is written.

use analysis::bench::run_score::{LIMITED_BY, RUN};
use anyhow::Result;
use archive::runs::{Entry, Run};
use archive::{Archive, ArchiveKind, Meta, RunsWriter, SignalCleanup, Staged};
use device::remote::Skew;
use model::table::{DesignCell, DesignRow};
use net::link::LinkReport;
use net::measure::{Handover, Measured};
use net::remote::{Conducted, Endpoint};
use net::result::TRANSACTIONS;
use net::rows::{self, RowContext, factors, metric};
use net::run::Outcome;
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
    let metric = metric(&outcome.spec);
    log.push(Entry::Design(DesignRow {
        id: 0,
        name: RUN.into(),
        question: "What does the link deliver, and what limited it?".into(),
        seed: 0,
        quick: false,
        score: "value".into(),
        unit: Some(if metric == TRANSACTIONS { "1/s" } else { "bit/s" }.into()),
        scale: 1.0,
        better: Some("higher".into()),
        precision: None,
        stopped: None,
        baseline: None,
        design: serde_json::to_string(&outcome.spec)?,
    }))?;
    let mut factors = factors(&outcome.spec);
    if let Some((words, _)) = link {
        factors.insert("link", words.into());
    }
    log.push(Entry::Cell(DesignCell {
        id: 0,
        design: 0,
        name: "run".into(),
        factors: serde_json::to_string(&factors)?,
        argv: serde_json::to_string(&argv)?,
        metric: Some(metric.into()),
        same_as: None,
        absent: None,
    }))?;
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
    let facts = conducted.map(|conducted| ends(conducted, outcome)).unwrap_or_default();
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

/// What is told of the ends, and of the clocks.
fn ends(conducted: &Conducted, outcome: &Outcome) -> Vec<(&'static str, String)> {
    let mut facts = vec![("end.client", one(&conducted.client))];
    facts.extend(conducted.server.as_ref().map(|s| ("end.server", one(s))));
    let mut clocks = match conducted.skew {
        Some(Skew { ahead_ns: ahead, error_ns: error }) => format!(
            "times are of the machine that started both ends; the client's clock was {:.6} s ahead of it, to within \
             {:.1} us",
            ahead as f64 / 1e9,
            error as f64 / 1e3
        ),
        None => "times are of the client".into(),
    };
    if let Some(clock) = outcome.clock {
        clocks += &format!(
            "; the server's clock was {:.6} s ahead of the client's, to within {:.1} us",
            clock.ahead_ns / 1e9,
            clock.error_ns / 1e3
        );
    }
    facts.push(("clocks", clocks));
    facts
}

fn one(end: &Endpoint) -> String {
    let fact = |name: &str| end.facts.get(name).and_then(|f| f.value.clone());
    let facts: Vec<String> =
        ["device.model", "os.name", "kernel.release", "cpu.architecture"].iter().filter_map(|n| fact(n)).collect();
    [std::slice::from_ref(&end.name), &facts[..]].concat().join(", ")
}
