//! A run in an archive: [`net::rows`] says of what, here it is written.

use super::ends::home::Coming;
use super::run_ends::{Endpoint, RunEnds};
use analysis::bench::run_score::{LIMITED_BY, RUN};
use anyhow::Result;
use archive::runs::{Entry, Run};
use archive::{Archive, ArchiveKind, Meta, RunsWriter, SignalCleanup};
use model::table::{DesignCell, DesignRow};
use net::result::TRANSACTIONS;
use net::rows::{self, Besides, factors, metric};
use net::run::Outcome;
use std::path::Path;

/// Writes it, beside its place until all of it is there: if that fails, what stood there stands there still.
pub fn keep(outcome: &Outcome, output: &Path, about: Option<&RunEnds>, quiet: bool) -> Result<()> {
    let coming = Coming::begin(output)?;
    write(outcome, coming.folder(), about)?;
    coming.finish(output, quiet)
}

fn write(outcome: &Outcome, dir: &Path, about: Option<&RunEnds>) -> Result<()> {
    let argv: Vec<String> = std::env::args().collect();
    // Whose clock the times are of.
    let boot = match about.filter(|about| about.skew_ns.is_some()) {
        Some(about) => about.boot.clone(),
        None => device::boot_id(&device::Local),
    };
    let mut meta = Meta { boot, ..Meta::new(ArchiveKind::Net, archive::unix_now_ns(), argv.clone()) };
    Archive::create(dir, &meta, true)?;
    let mut log = RunsWriter::create(dir)?;
    let mut facts = crate::bench::facts(&[]);
    if let Some(Endpoint { facts: theirs, .. }) = about.and_then(|a| a.server.as_ref()) {
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
    log.push(Entry::Cell(DesignCell {
        id: 0,
        design: 0,
        name: "run".into(),
        factors: serde_json::to_string(&factors(&outcome.spec))?,
        argv: serde_json::to_string(&argv)?,
        metric: Some(metric.into()),
        same_as: None,
        absent: None,
    }))?;
    log.push(Entry::Replicate(Box::new(replicate(outcome, about))))?;
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

fn replicate(outcome: &Outcome, about: Option<&RunEnds>) -> Run {
    let told = about.map(|about| ends(about, outcome)).unwrap_or_default();
    let rows::Rows { replicate, samples, marks } = rows::of(
        outcome,
        Besides {
            ahead_ns: about.and_then(|about| about.skew_ns).map_or(0, |(ahead, _)| ahead),
            marks: told.into_iter().map(|(name, text)| (name.to_string(), text)).collect(),
            limited_by: LIMITED_BY,
            unix_ns: archive::unix_now_ns(),
        },
    );
    Run { replicate, samples, marks }
}

/// What is told of the ends, and of the clocks.
fn ends(about: &RunEnds, outcome: &Outcome) -> Vec<(&'static str, String)> {
    let mut told = vec![("end.client", one(&about.client))];
    told.extend(about.server.as_ref().map(|s| ("end.server", one(s))));
    let mut clocks = match about.skew_ns {
        Some((ahead, error)) => format!(
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
    told.push(("clocks", clocks));
    told
}

fn one(end: &Endpoint) -> String {
    let fact = |name: &str| end.facts.get(name).and_then(|f| f.value.clone());
    let facts: Vec<String> =
        ["device.model", "os.name", "kernel.release", "cpu.architecture"].iter().filter_map(|n| fact(n)).collect();
    [std::slice::from_ref(&end.name), &facts[..]].concat().join(", ")
}
