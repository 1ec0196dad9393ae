//! `fathom whatif`: predicts the times of a recording's operations without a flush, a call, a checkpoint, or on another device.
//!
//! An operation's time is a chain of pieces ([`pieces`]): its thread ran, or waited for something known. [`replay`] replays them
//! without what is removed ([`removal`]), with the command times of another device ([`service`]), or with another queue depth
//! ([`depth`]). An execution that no longer sleeps takes less CPU time ([`warm`]). Nothing is simulated that was not recorded:
//! the effect of a change on *others* is not included, as [`Prediction::unknown`](contract::Prediction) states.
//!
//! The error of such predictions was measured: each was made, then the change was made, on real programs (docs/results/whatif.md,
//! by `make truth`). [`MODEL_ERROR`] summarises such a table, and widens the interval.

pub mod contract;
mod depth;
mod pieces;
pub mod removal;
mod replay;
mod service;
#[cfg(test)]
mod tests;
pub mod text;
mod warm;

use crate::diff::phase::Phases;
use analysis::flaws;
use analysis::rows::{Index, Rows};
use analysis::times::{distribution, times};
use contract::{ModelError, Prediction, RemovedPart, Statement, Total, VERSION};
use pieces::Piece;
use removal::{Lookup, Removal};
use replay::{Change, ReplayedOperation};
use service::{Factors, ServiceTimes};
use stats::stretches::{Draws, STRETCH_COUNT, resample_sum, stretch_index};
use std::collections::BTreeSet;

/// From the trials with seed 20261126 on a quiet machine, with the factor for warm caches; `--queue` was not among the
/// changes. docs/results/whatif.md has these or later ones, with the share of them in which the interval covered the true
/// value.
const MODEL_ERROR: ModelError = ModelError { median: 0.02, p90: 0.07, median_of_truth: 0.10, changes: 16 };

/// A request for a prediction.
#[derive(Default)]
pub struct PredictionRequest<'a> {
    /// What is removed.
    pub without: Vec<Removal>,
    /// Another recording, whose device replaces this one's.
    pub device: Option<&'a Rows>,
    /// Queue depth at the device.
    pub queue: Option<u32>,
    /// Seed of the draws.
    pub seed: u64,
}

/// Why there is no prediction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The recording has no finished operation.
    #[error("the recording has no operation that ended: there is nothing to predict")]
    NoOperation,
    /// No execution has what is to be removed.
    #[error("--without {what}: {lacks}; {has}")]
    Missing {
        /// The requested removal.
        what: String,
        /// What no statement does, in a sentence.
        lacks: String,
        /// What there is instead.
        has: String,
    },
    /// The other recording has no finished commands on its disks.
    #[error(
        "the recording of the other device has no finished commands on the disks of its files: its speed is unknown"
    )]
    NoCommands,
    /// It never did what takes most of the time here.
    #[error(
        "the recording of the other device measured no {kinds}, which take most of the device's time here: record a program there that does"
    )]
    CannotServe {
        /// The kinds of command.
        kinds: String,
    },
}

/// Predicts the times.
///
/// # Errors
/// There is no basis for a prediction.
pub fn predict(rows: &Rows, asked: &PredictionRequest<'_>) -> Result<Prediction, Error> {
    let index = Index::new(rows);
    let phases = Phases::new(&index);
    let pieces = pieces::pieces(&index, &phases);
    let lookups: Vec<Lookup> =
        asked.without.iter().map(|removal| Lookup::new(removal.clone(), &index, &phases, &pieces)).collect();
    let factors = asked.device.map(|other| draw_factors(&index, &pieces, other, asked.seed)).transpose()?;
    let delays = asked.queue.map(|servers| depth::replay(&index, &pieces, servers.max(1) as usize));
    let warm = if lookups.is_empty() { None } else { warm::factor(&index, &phases, &pieces) };
    let change = Change { without: &lookups, device: factors.as_ref(), delays: delays.as_ref(), warm };
    let ended = |at: usize| rows.operations.end_ns(at).is_some();
    let replayed: Vec<Option<ReplayedOperation>> = (0..rows.operations.len())
        .map(|at| ended(at).then(|| replay::replay_operation(&index, at, &pieces[at], &change)))
        .collect();
    if replayed.iter().all(Option::is_none) {
        return Err(Error::NoOperation);
    }
    let outermost = |at: usize| index.chain(at).nth(1).is_none();
    let removed: Vec<RemovedPart> = asked
        .without
        .iter()
        .enumerate()
        .map(|(by, what)| {
            let gone = replayed
                .iter()
                .enumerate()
                .filter(|(at, _)| outermost(*at))
                .filter_map(|(_, r)| Some(r.as_ref()?.removed_ns[by]));
            let gone: Vec<f64> = gone.filter(|ns| *ns > 0.0).collect();
            RemovedPart {
                what: what.to_string(),
                executions: gone.len() as u64,
                time_ns: gone.iter().sum::<f64>() as u64,
            }
        })
        .collect();
    // What another removal already removed did exist.
    let exists = |by: usize| {
        let alone = Change { without: &lookups[by..=by], device: None, delays: None, warm: None };
        let gone = |at: usize| replay::replay_operation(&index, at, &pieces[at], &alone).removed_ns[0] > 0.0;
        (0..rows.operations.len()).any(|at| ended(at) && outermost(at) && gone(at))
    };
    if let Some((by, missing)) = removed.iter().enumerate().find(|(by, r)| r.executions == 0 && !exists(*by)) {
        let lacks = asked.without[by].absence_sentence();
        let of_account = matches!(asked.without[by], Removal::Leaf(_) | Removal::LockOf(_) | Removal::Foreign(_));
        let has = if of_account { existing_leaves(&index) } else { existing_calls(&index, &phases) };
        return Err(Error::Missing { what: missing.what.clone(), lacks, has });
    }
    let mut statements: Vec<Statement> =
        (0..rows.shapes.len()).filter_map(|shape| predict_statement(&index, shape, &replayed)).collect();
    statements.sort_by_key(|s| std::cmp::Reverse(s.total.recorded_ns.abs_diff(s.total.predicted_ns)));
    let all: Vec<usize> = (0..rows.operations.len()).filter(|&at| outermost(at) && ended(at)).collect();
    let mut caveats = flaws::find_caveats(&index);
    caveats.extend(asked.device.map(|other| flaws::find_caveats(&Index::new(other))).unwrap_or_default());
    let mut total = predict_total(&index, &all, &replayed);
    if caveats.against_times().is_some() {
        // The model's error was measured on processors that are not emulated.
        statements.iter_mut().map(|s| &mut s.total).chain([&mut total]).for_each(|t| t.interval_with_model = None);
    }
    Ok(Prediction {
        version: VERSION,
        without: asked.without.iter().map(ToString::to_string).collect(),
        other_device: asked.device.is_some(),
        queue: asked.queue,
        seed: asked.seed,
        total,
        statements,
        removed,
        model_error: MODEL_ERROR,
        caveats,
        unknown: list_unknown(&index, asked, &change, factors.as_ref(), &all),
    })
}

fn draw_factors(index: &Index, pieces: &[Vec<Piece>], other: &Rows, seed: u64) -> Result<Factors, Error> {
    let measured = ServiceTimes::new(&Index::new(other));
    if measured.is_empty() {
        return Err(Error::NoCommands);
    }
    let factors = service::draw(index, pieces, &measured, seed);
    if !factors.unknown.is_empty() && factors.unknown_ns > factors.known_ns {
        let kinds = factors.unknown.iter().copied().collect::<Vec<_>>().join(", ");
        return Err(Error::CannotServe { kinds });
    }
    Ok(factors)
}

/// Lists the parts of the account, for a request that matches none.
fn existing_leaves(index: &Index) -> String {
    let account = crate::explain::explain_rows(index).account;
    let ids: Vec<&str> = account.leaves.iter().map(|leaf| leaf.id.as_str()).collect();
    format!("the parts: {}", ids.join(", "))
}

/// Lists the calls of a recording's executions, for a request that matches none.
fn existing_calls(index: &Index, phases: &Phases) -> String {
    let calls: BTreeSet<String> = crate::checkpoints::calls_in_operations(index, phases)
        .map(|(_, _, call, kind)| Removal::Calls(0, call, Some(kind)).to_string().trim().to_owned())
        .collect();
    if calls.is_empty() {
        "they make no system call that is recorded".into()
    } else {
        format!("their calls: {}", calls.into_iter().collect::<Vec<_>>().join(", "))
    }
}

fn recorded_latency(index: &Index, at: usize) -> u64 {
    let operation = &index.rows.operations.at(at);
    operation.end_ns.map_or(0, |end| end.saturating_sub(operation.start_ns))
}

fn predict_statement(index: &Index, shape: usize, replayed: &[Option<ReplayedOperation>]) -> Option<Statement> {
    let rows = index.rows;
    let mut executions: Vec<usize> =
        (0..rows.operations.len()).filter(|&at| index.shape(at) == Some(shape) && replayed[at].is_some()).collect();
    executions.sort_by_key(|&at| (rows.operations.nth(at), rows.operations.start_ns(at)));
    if executions.is_empty() {
        return None;
    }
    let mut before: Vec<u64> = executions.iter().map(|&at| recorded_latency(index, at)).collect();
    let mut after: Vec<u64> =
        executions.iter().filter_map(|&at| replayed[at].as_ref()).map(|r| r.ns.round() as u64).collect();
    Some(Statement {
        statement: rows.shapes[shape].text.clone(),
        kind: rows.shapes[shape].kind.to_string(),
        count: executions.len() as u64,
        total: predict_total(index, &executions, replayed),
        distribution: distribution(&after),
        recorded_ns: times(&mut before),
        predicted_ns: times(&mut after),
    })
}

/// Returns the sum over executions, with the interval of its ratio.
fn predict_total(index: &Index, executions: &[usize], replayed: &[Option<ReplayedOperation>]) -> Total {
    let used = STRETCH_COUNT.min(executions.len());
    let mut sums = [vec![0.0; used], vec![0.0; used]];
    for (place, &at) in executions.iter().enumerate() {
        let stretch = stretch_index(place, executions.len(), used);
        sums[0][stretch] += recorded_latency(index, at) as f64;
        sums[1][stretch] += replayed[at].as_ref().map_or(0.0, |r| r.ns);
    }
    let [before, after] = [0, 1].map(|side| sums[side].iter().sum::<f64>());
    let estimate = Draws::new(used, index.rows.operations.len() as u64)
        .and_then(|draws| draws.estimate(0.95, |t| resample_sum(t, &sums[1]) / resample_sum(t, &sums[0])));
    let interval = estimate.map(|e| [e.low, e.high]);
    Total {
        recorded_ns: before as u64,
        predicted_ns: after.round() as u64,
        ratio: Some(after / before).filter(|ratio| ratio.is_finite()),
        interval,
        interval_with_model: interval.map(|[low, high]| [(low - MODEL_ERROR.p90).max(0.0), high + MODEL_ERROR.p90]),
    }
}

/// Lists the limits of the prediction that are relevant here.
fn list_unknown(
    index: &Index,
    asked: &PredictionRequest<'_>,
    change: &Change<'_>,
    factors: Option<&Factors>,
    all: &[usize],
) -> Vec<String> {
    let rows = index.rows;
    let mut said = Vec::new();
    let threads: BTreeSet<(u32, u32)> =
        all.iter().map(|&at| (rows.operations.tgid(at), rows.operations.tid(at))).collect();
    if threads.len() > 1 {
        said.push(format!(
            "{} threads ran operations: how they would overlap, whom a lock would let in first and which commits they would share is not replayed",
            threads.len()
        ));
    }
    let calls = |removal: &Removal| {
        !matches!(
            removal,
            Removal::Flush
                | Removal::SecondFlush
                | Removal::Metadata
                | Removal::Queue
                | Removal::RunQueue
                | Removal::Leaf(_)
                | Removal::LockOf(_)
                | Removal::Foreign(_)
        )
    };
    if asked.without.iter().any(calls) {
        said.push("what a removed call did for later ones (writing pages, joining a commit) may have to be done by them; what takes its place is not in the prediction".into());
        said.push(match change.warm {
            Some(factor) => format!("executions that no longer sleep are taken to need {:.0} % of their CPU time, as calls that were repeated without a sleep did: with warm caches it may be less", 100.0 * factor),
            None => "CPU time is kept as recorded, where a thread that need not sleep finds its caches warm: what is left may take less".into(),
        });
    }
    if asked.without.iter().any(|r| matches!(r, Removal::Flush | Removal::SecondFlush)) {
        said.push("a device that need not flush may also write sooner or later than it did".into());
    }
    if let Some(factors) = factors {
        said.push("service times are drawn one by one, with whatever else the other device did in them; its slow moments last longer than one command".into());
        if !factors.unknown.is_empty() {
            let kinds: Vec<&str> = factors.unknown.iter().copied().collect();
            said.push(format!("the other device measured no {}: these keep their times", kinds.join(", ")));
        }
        if factors.nearest > 0 {
            said.push(format!(
                "{} of {} commands had no counterpart of their size there: the nearest size stands in",
                factors.nearest, factors.drawn
            ));
        }
    }
    if let Some(delays) = change.delays {
        said.push(if delays.commands == 0 {
            "no command of the device was recorded from its queueing to its end: another depth changes nothing here".into()
        } else if delays.serial == delays.commands {
            "the device serves one command after the other, as the order and the distances of their ends tell: so it is taken to do at any depth; the scheduler's order and the driver's own limit are not replayed".into()
        } else {
            "how a command's time depends on the number at the device is a straight line through the recorded ones; the scheduler's order and the driver's own limit are not replayed".into()
        });
        // One in a hundred has little effect.
        if delays.extrapolated * 100 > delays.commands {
            said.push(format!(
                "{} of {} commands would be at the device with a number of others that hardly any recorded one was: their times are a guess",
                delays.extrapolated, delays.commands
            ));
        }
    }
    said
}
