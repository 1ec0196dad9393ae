//! `fathom diff`: two recordings, aligned by statement and occurrence: how their requests to the layers below differ, and how the
//! difference of their times is distributed.
//!
//! [`align`] matches executions, [`series`] sums up each recording, [`compare`] computes their differences and judges them,
//! [`edges`] finds what only one does; [`contract`] is the result, [`text`] formats it for people. With several recordings a
//! side, [`recordings`] judges the times by the differences between those of one side, and the median one of each side is used
//! for the rest.

mod align;
mod basis;
mod compare;
pub mod contract;
mod edges;
pub(crate) mod phase;
mod recordings;
mod series;
#[cfg(test)]
mod tests;
pub mod text;
mod totals;

use crate::explain::Accounting;
use crate::explain::contract::{Account, Between};
use analysis::blind;
use analysis::charges;
use analysis::completeness::lost_at_unknown_time;
use analysis::flaws;
use analysis::rows::{Index, Rows};
use archive::{Archive, Error};
use basis::{Basis, RecordingGaps};
use compare::{DrawsByCount, Judgement, PairedParts};
use contract::{Contribution, Diff, LostRecords, Recordings, Side, Statement, SumsComparison, Times, VERSION};
use model::table::{LossRow, Slice};
use model::{Layer, LossSource};
use recordings::Recording;
use scores::fact_difference;
use stats::verdict::{MARGIN_DEFAULT, Verdict};
use std::collections::BTreeMap;

/// Compares two recordings held in memory.
pub fn diff(a: &Rows, b: &Rows) -> Diff {
    let all = |rows: &Rows, each: &mut dyn FnMut(&Slice)| {
        rows.slices.iter().for_each(|slice| each(&slice));
        Ok::<(), std::convert::Infallible>(())
    };
    let seen =
        [RecordingGaps::from_index(&Index::new(a), "A".into()), RecordingGaps::from_index(&Index::new(b), "B".into())];
    match with_slices([a, b], [&mut |each| all(a, each), &mut |each| all(b, each)], &seen) {
        Ok(diff) => diff,
        Err(never) => match never {},
    }
}

/// Compares two archives without holding their slices.
///
/// # Errors
/// Those of [`Rows::load`].
pub fn diff_archives(a: &Archive, b: &Archive) -> Result<Diff, Error> {
    diff_with_gaps(a, b, None)
}

/// Compares two archives, with a verdict that is made from these recordings; by default, from the two.
fn diff_with_gaps(a: &Archive, b: &Archive, seen: Option<&[RecordingGaps]>) -> Result<Diff, Error> {
    let rows = [Rows::load_without_slices(a)?, Rows::load_without_slices(b)?];
    let own = || {
        [(&rows[0], "A"), (&rows[1], "B")]
            .map(|(rows, which)| RecordingGaps::from_index(&Index::new(rows), which.into()))
            .into()
    };
    with_slices(
        [&rows[0], &rows[1]],
        [&mut |each| each_slice(a, each), &mut |each| each_slice(b, each)],
        &seen.map_or_else(own, <[RecordingGaps]>::to_vec),
    )
}

/// Compares several recordings a side. `open` opens one; few are open at a time, and none is kept in memory.
///
/// # Errors
/// Those of `open` and of [`Rows::load`].
pub fn diff_many<P, E: From<Error>>(a: &[P], b: &[P], open: impl Fn(&P) -> Result<Archive, E>) -> Result<Diff, E> {
    let (mut seen, mut counts) = (Vec::new(), Vec::new());
    let mut load = |paths: &[P], which: &str| {
        let each = paths.iter().enumerate().map(|(at, path)| {
            let rows = Rows::load_without_slices(&open(path)?)?;
            seen.push(RecordingGaps::from_index(&Index::new(&rows), format!("{which}{}", at + 1)));
            counts.push(totals::count(&rows));
            Ok(Recording::from_rows(&rows))
        });
        each.collect::<Result<Vec<_>, E>>()
    };
    let (of_a, of_b) = (load(a, "A")?, load(b, "B")?);
    let (found, statements, basis) =
        recordings::compare(&of_a, &of_b, |executions| Basis::from_gaps(&seen, executions));
    let mut diff = diff_with_gaps(&open(&a[found.middle_a])?, &open(&b[found.middle_b])?, Some(&seen))?;
    let (counts_a, counts_b) = counts.split_at(of_a.len());
    diff.counts = totals::compare_counts(counts_a, counts_b);
    judge_by_recordings(&mut diff, found, &statements, &basis);
    Ok(diff)
}

/// Replaces the verdict from a pair of recordings by the verdict from all of them.
fn judge_by_recordings(
    diff: &mut Diff,
    found: Recordings,
    statements: &BTreeMap<(String, String), SumsComparison>,
    basis: &Basis,
) {
    let judged = |one: &SumsComparison| basis.verdict((one.verdict, recordings::explain_verdict(one)));
    diff.withheld |= basis.is_withheld();
    for statement in &mut diff.statements {
        let Some(own) = statements.get(&(statement.kind.clone(), statement.statement.clone())) else { continue };
        if own.ratio_interval.is_some() {
            (statement.verdict, statement.why) = judged(own);
            (statement.latency_ns.ratio, statement.latency_ns.ratio_interval) = (own.ratio, own.ratio_interval);
            set_shares(
                statement.verdict,
                &statement.latency_ns,
                statement.phases.iter_mut().chain(&mut statement.layers),
            );
        }
        statement.recordings = Some(own.clone());
    }
    if found.whole.ratio_interval.is_some() {
        (diff.verdict, diff.why) = judged(&found.whole);
        (diff.latency_ns.ratio, diff.latency_ns.ratio_interval) = (found.whole.ratio, found.whole.ratio_interval);
        let rows = diff.contributions.iter_mut().chain(&mut diff.phases).chain(&mut diff.layers);
        set_shares(diff.verdict, &diff.latency_ns, rows);
    }
    diff.recordings = Some(found);
}

/// Sets the shares in a reported difference, if the median recordings differ in the same direction as all.
fn set_shares<'c>(verdict: Verdict, times: &Times, rows: impl Iterator<Item = &'c mut Contribution>) {
    let decided =
        verdict == Verdict::Slower && times.delta_ns > 0.0 || verdict == Verdict::Faster && times.delta_ns < 0.0;
    rows.for_each(|row| row.share = decided.then_some(row.delta_ns / times.delta_ns));
}

fn each_slice(archive: &Archive, each: &mut dyn FnMut(&Slice)) -> Result<(), Error> {
    archive.for_each_group(|slices| slices.iter().for_each(|slice| each(&slice)))
}

/// Passes the slices of a recording to a callback, one after the other.
type Slices<'s, E> = &'s mut dyn FnMut(&mut dyn FnMut(&Slice)) -> Result<(), E>;

fn with_slices<E>(rows: [&Rows; 2], slices: [Slices<'_, E>; 2], seen: &[RecordingGaps]) -> Result<Diff, E> {
    let indices = rows.map(Index::new);
    let alignment = align::align(&indices[0], &indices[1]);
    let basis = Basis::from_gaps(seen, alignment.shapes.iter().map(|shape| shape.pairs.len() as u64).sum());
    let slots = series::assign_slots([&indices[0], &indices[1]], &alignment);
    let count = alignment.shapes.len();
    let [of_a, of_b] = slices;
    let (a, account_a) = sum_and_account(&indices[0], count, &slots[0], of_a)?;
    let (b, account_b) = sum_and_account(&indices[1], count, &slots[1], of_b)?;
    let lots = DrawsByCount::default();
    let mut statements: Vec<Statement> = Vec::with_capacity(count);
    for (shape, (x, y)) in alignment.shapes.iter().zip(a.statements.iter().zip(&b.statements)) {
        if shape.pairs.is_empty() {
            continue;
        }
        let both = PairedParts::new(&x.sums, &y.sums, &lots);
        let Judgement { verdict, why, times, different_work, phases, layers, .. } = both.judge_times(&basis);
        statements.push(Statement {
            statement: shape.text.clone(),
            kind: shape.kind.clone(),
            pairs: shape.pairs.len() as u64,
            left_a: shape.left[0],
            left_b: shape.left[1],
            verdict,
            why,
            latency_ns: times,
            median_ns: compare::medians(x, y, &lots),
            different_work_ns: different_work,
            counts: both.counts(),
            phases,
            layers,
            recordings: None,
        });
    }
    statements.sort_by(|p, q| time_difference(q).total_cmp(&time_difference(p)));
    let found = [0, 1].map(|side| edges::find_edges(&indices[side], &alignment, &slots[side]));
    let edges = edges::one_sided_edges(&alignment, [&found[0], &found[1]]);
    let judged = PairedParts::new(&a.whole, &b.whole, &lots).judge_times(&basis);
    let sides = [describe_side(&indices[0]), describe_side(&indices[1])];
    let mut diff = Diff {
        version: VERSION,
        verdict: judged.verdict,
        why: judged.why,
        withheld: basis.is_withheld(),
        margin: MARGIN_DEFAULT,
        latency_ns: judged.times,
        different_work_ns: judged.different_work,
        contributions: judged.contributions,
        phases: judged.phases,
        layers: judged.layers,
        statements,
        edges,
        only_a: Vec::new(),
        only_b: Vec::new(),
        facts: fact_difference::differing_facts(&rows[0].environment(), &rows[1].environment()),
        recordings: None,
        counts: totals::compare_counts(&[totals::count(rows[0])], &[totals::count(rows[1])]),
        times: totals::compare_times((&account_a.0, &account_a.1), (&account_b.0, &account_b.1)),
        a: Side::default(),
        b: Side::default(),
    };
    [diff.a, diff.b] = sides;
    [diff.only_a, diff.only_b] = alignment.alone;
    Ok(diff)
}

/// Sums up a recording and makes its account, in one pass over its slices.
fn sum_and_account<E>(
    index: &Index,
    count: usize,
    slots: &series::Slots,
    slices: Slices<'_, E>,
) -> Result<(series::Series, (Account, Between)), E> {
    let commands = charges::command_shares(index);
    let mut accounting = Accounting::new(index, &commands);
    let sums = series::sum_recording(index, count, slots, |each| {
        slices(&mut |slice| {
            accounting.slice(slice);
            each(slice);
        })
    })?;
    Ok((sums, accounting.finish()))
}

/// Returns the difference of a statement's time, ns: in its aligned executions, plus those in only one recording, each with the
/// mean latency.
fn time_difference(s: &Statement) -> f64 {
    let left = |left: u64, sum: u64| left as f64 * sum as f64 / s.pairs.max(1) as f64;
    s.latency_ns.delta_ns.abs() + left(s.left_a, s.latency_ns.a) + left(s.left_b, s.latency_ns.b)
}

fn describe_side(index: &Index) -> Side {
    let rows = index.rows;
    let mut losses: Vec<LostRecords> = rows.losses.iter().map(|loss| lost_records(rows, loss)).collect();
    let more = lost_at_unknown_time(rows);
    if more > 0 {
        let source = "recorder".into();
        losses.push(LostRecords { source, program: None, events: Some(more), hides_executions: true });
    }
    Side {
        command: rows.trace.command.clone(),
        complete: rows.trace.complete,
        caveats: flaws::find_caveats(index),
        executions: rows.operations.iter().filter(|o| o.end_ns.is_some()).count() as u64,
        blind: blind::blind_spots(&rows.coverage),
        losses,
    }
}

/// Converts a loss. A probe that did not run misses only its own events: a missed event of the device cannot hide an execution.
pub(crate) fn lost_records(rows: &Rows, loss: &LossRow) -> LostRecords {
    let one_probe = matches!(loss.source, LossSource::NotRun | LossSource::Recursion);
    let program = loss.program.as_deref().filter(|_| one_probe);
    let layer = program.and_then(|program| rows.coverage.iter().find(|c| c.probe == program)).map(|c| c.layer);
    let below = matches!(
        layer,
        Some(Layer::FileSystem | Layer::Block | Layer::IoScheduler | Layer::Driver | Layer::RunQueue | Layer::Tracer)
    );
    LostRecords {
        source: loss.source.name().into(),
        program: loss.program.clone(),
        events: loss.events.filter(|_| !loss.at_least),
        hides_executions: !below,
    }
}

impl Diff {
    /// Returns where B is slower than A by more than `percent`: overall, and in which statements.
    pub fn slower(&self, percent: f64) -> Vec<String> {
        let beyond = |verdict: Verdict, ratio: Option<f64>| {
            verdict == Verdict::Slower && ratio.is_some_and(|ratio| ratio > 1.0 + percent / 100.0)
        };
        let mut slower = Vec::new();
        if beyond(self.verdict, self.latency_ns.ratio) {
            slower.push("all statements together".to_owned());
        }
        let each = self.statements.iter().filter(|s| beyond(s.verdict, s.latency_ns.ratio));
        slower.extend(each.map(|s| s.statement.clone()));
        slower
    }
}
