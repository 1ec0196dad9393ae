//! `fathom explain`: what a recording's statements lose their time to, as findings: a code, a claim with its numbers, its share of the
//! time, spans that show it, and a remedy.
//!
//! [`facts`] gathers what each execution has of everything a rule asks for; [`rules`] are the findings, one function each. A rule
//! claims only what the archive decides: time that was awaited, calls that were made, commands that were charged. What a remedy would
//! save is stated as *at most*, since what takes its place takes time too. Findings are ranked by that, at the low end of its interval.

pub mod contract;
mod facts;
mod others;
mod rules;
mod scan;
#[cfg(test)]
mod tests;
pub mod text;

use crate::contract::{SlowWait, Summary};
use crate::rows::{Index, Rows};
use crate::summary;
use archive::{Archive, Error};
use contract::{Explanation, Finding, VERSION};
use model::ShapeKind;
use model::table::Slice;
pub use rules::spans_databases;
use stats::stretches::{Draws, STRETCHES, stretch, sum};

/// A finding that concerns less of its statement's time is not listed.
const LEAST_SHARE: f64 = 0.05;
/// Nor one that concerns less of all time.
const LEAST_OF_ALL: f64 = 0.01;
/// Findings of what chance decides: a few slow executions are no rule. What the program does by itself, or the kernel reported, is none of them.
const BY_CHANCE: [&str; 5] = ["D01", "F02", "G01", "Q01", "W01"];
/// The low end of the interval below which a finding by chance is not listed.
const LEAST_LOW: f64 = 0.02;
/// Waits from which on they are a rule where an interval cannot say it: there are too few executions for one; or few executions wait, and
/// that is most of the statement's time. Of twenty stretches of executions of which three have all the waits, every 26th resample has none
/// (0.85^20), so that the interval begins at 0 however long they are.
const LEAST_PIECES: u64 = 3;
/// That part of the statement's time is most of it.
const MOST: f64 = 0.5;
/// What causes the time of a finding that only says where it goes, if it is so large a part of that.
const PART_OF_CAUSE: f64 = 0.25;
/// The seed of the intervals.
const SEED: u64 = 2026;

/// Explains a recording held in memory.
pub fn explain(rows: &Rows) -> Explanation {
    let all = |each: &mut dyn FnMut(&Slice)| {
        rows.slices.iter().for_each(each);
        Ok::<(), std::convert::Infallible>(())
    };
    match with_slices(rows, all) {
        Ok(explanation) => explanation,
        Err(never) => match never {},
    }
}

/// Explains an archive without holding its slices.
///
/// # Errors
/// Those of [`Rows::load`].
pub fn explain_archive(archive: &Archive) -> Result<Explanation, Error> {
    let rows = Rows::load_without_slices(archive)?;
    with_slices(&rows, |each| archive.for_each(|slice: Slice| each(&slice)))
}

/// Summarises and explains an archive, reading its tables once.
///
/// # Errors
/// Those of [`Rows::load`].
pub fn summarise_and_explain(archive: &Archive) -> Result<(Summary, Explanation), Error> {
    let rows = Rows::load_without_slices(archive)?;
    let summary = summary::with_slices(&rows, |each| archive.for_each(|slice: Slice| each(&slice)))?;
    Ok((summary, with_slices(&rows, |each| archive.for_each(|slice: Slice| each(&slice)))?))
}

fn with_slices<E>(rows: &Rows, slices: impl FnOnce(&mut dyn FnMut(&Slice)) -> Result<(), E>) -> Result<Explanation, E> {
    let index = Index::new(rows);
    let facts = facts::facts(&index, slices)?;
    let scans = scan::Scans::new(&index);
    let outermost = (0..rows.operations.len()).filter(|&at| index.chain(at).nth(1).is_none());
    let latency_ns = outermost.fold(0_u64, |sum, at| sum.saturating_add(latency(rows, at)));
    let mut findings = Vec::new();
    for statement in statements(&index) {
        let found = rules::statement(&index, &facts, &statement);
        for found in found.into_iter().chain(scan::s04(&index, &scans, &statement)) {
            findings.extend(finding(&index, &statement, found, latency_ns));
        }
    }
    // By what is saved at least, as far as the recording tells: a few slow executions come after what all of them do.
    findings.sort_by_key(|finding: &Finding| {
        let least = finding.saving_interval_ns.map_or(finding.saving_ns, |[low, _]| Some(low));
        std::cmp::Reverse((least, finding.saving_ns, finding.time_ns))
    });
    general_last(&mut findings);
    // What makes the rest doubtful stands before it.
    findings.splice(0..0, rules::recording(&index));
    let executions = rows.operations.iter().filter(|operation| operation.end_ns.is_some()).count() as u64;
    Ok(Explanation { version: VERSION, findings, executions, latency_ns })
}

/// Where time goes is listed after what makes it go there: these findings come after the causes of their statement.
fn general_last(findings: &mut [Finding]) {
    const CAUSES: [&str; 6] = ["S01", "S02", "F01", "F02", "J02", "W01"];
    const GENERAL: [&str; 4] = ["F03", "J01", "J03", "R01"];
    let saving = |f: &Finding| f.saving_ns.unwrap_or(0) as f64;
    let mut at = findings.len();
    // From the last on: what is moved back meets none that was.
    while at > 0 {
        at -= 1;
        let (statement, least) = (findings[at].statement.clone(), PART_OF_CAUSE * saving(&findings[at]));
        if !GENERAL.contains(&findings[at].code.as_str()) {
            continue;
        }
        let causes = |f: &Finding| CAUSES.contains(&f.code.as_str()) && f.statement == statement && saving(f) >= least;
        if let Some(last) = findings.iter().rposition(causes).filter(|last| *last > at) {
            findings[at..=last].rotate_left(1);
        }
    }
}

fn latency(rows: &Rows, at: usize) -> u64 {
    let operation = &rows.operations[at];
    operation.end_ns.map_or(0, |end| end.saturating_sub(operation.start_ns))
}

/// The upper one of two; of some.
pub(crate) fn median(ns: &[u64]) -> u64 {
    let mut sorted = ns.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// A statement's finished executions, in their order.
struct Statement {
    shape: usize,
    executions: Vec<u32>,
}

/// What findings are about: statements and transactions; in a recording without any, whatever its operations are.
fn statements(index: &Index) -> Vec<Statement> {
    let rows = index.rows;
    let sql =
        |shape: usize| rows.shapes[shape].is(ShapeKind::Statement) || rows.shapes[shape].is(ShapeKind::Transaction);
    let mut all: Vec<Statement> =
        (0..rows.shapes.len()).map(|shape| Statement { shape, executions: Vec::new() }).collect();
    for (at, operation) in rows.operations.iter().enumerate() {
        if let Some(shape) = index.shape(at).filter(|_| operation.end_ns.is_some()) {
            all[shape].executions.push(at as u32);
        }
    }
    all.retain(|statement| !statement.executions.is_empty());
    if all.iter().any(|statement| sql(statement.shape)) {
        all.retain(|statement| sql(statement.shape));
    }
    for statement in &mut all {
        statement.executions.sort_by_key(|&at| {
            let operation = &rows.operations[at as usize];
            (operation.nth, operation.start_ns)
        });
    }
    all
}

/// What a rule says of a statement.
struct Found {
    code: &'static str,
    title: &'static str,
    claim: String,
    /// The time concerned, an execution.
    time: Vec<u64>,
    /// Time that belongs to the executions and is not in their latency.
    beside: Option<Vec<u64>>,
    executions: u64,
    /// Pieces of it, where that is known.
    pieces: Option<u64>,
    saving_ns: Option<u64>,
    remedy: String,
    evidence: Vec<u64>,
    slow_waits: Vec<SlowWait>,
}

/// A finding, if it matters.
fn finding(index: &Index, statement: &Statement, found: Found, all: u64) -> Option<Finding> {
    let latency = |at: usize| {
        let beside = found.beside.as_ref().map_or(0, |beside| beside[at]);
        latency(index.rows, statement.executions[at] as usize).saturating_add(beside)
    };
    let count = statement.executions.len();
    let mut sums = [vec![0.0; STRETCHES], vec![0.0; STRETCHES]];
    let (mut time, mut whole) = (0_u64, 0_u64);
    for at in 0..count {
        let stretch = stretch(at, count, STRETCHES.min(count));
        sums[0][stretch] += found.time[at] as f64;
        sums[1][stretch] += latency(at) as f64;
        time = time.saturating_add(found.time[at]);
        whole = whole.saturating_add(latency(at));
    }
    let beside = found.beside.as_ref().map_or(0, |beside| beside.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns)));
    let share = time as f64 / whole.max(1) as f64;
    let of_all = time as f64 / all.saturating_add(beside).max(1) as f64;
    if share < LEAST_SHARE || of_all < LEAST_OF_ALL {
        return None;
    }
    let used = STRETCHES.min(count);
    let draws = Draws::new(used, SEED);
    let interval =
        draws.and_then(|draws| draws.estimate(0.95, |t| sum(t, &sums[0][..used]) / sum(t, &sums[1][..used])));
    if BY_CHANCE.contains(&found.code) {
        let rule = match &interval {
            Some(interval) if interval.low >= LEAST_LOW => true,
            Some(_) => share >= MOST && found.pieces.is_some_and(|pieces| pieces >= LEAST_PIECES),
            None => found.pieces.is_none_or(|pieces| pieces >= LEAST_PIECES),
        };
        if !rule {
            return None;
        }
    }
    let saving = found.saving_ns.map(|ns| ns.min(time));
    let of_time = |end: f64| saving.map(|ns| (ns as f64 * end / share) as u64);
    let saving_interval_ns = interval.as_ref().and_then(|e| Some([of_time(e.low)?, of_time(e.high)?]));
    Some(Finding {
        code: found.code.into(),
        title: found.title.into(),
        statement: Some(index.rows.shapes[statement.shape].text.clone()),
        claim: found.claim,
        executions: found.executions,
        of: count as u64,
        time_ns: Some(time),
        share: Some(share),
        interval: interval.map(|e| [e.low, e.high]),
        share_of_all: Some(of_all),
        saving_ns: saving,
        saving_interval_ns,
        remedy: found.remedy,
        evidence: found.evidence,
        slow_waits: found.slow_waits,
    })
}
