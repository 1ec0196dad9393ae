//! `fathom explain`: the causes of lost time in a recording's statements, as findings: a code, a claim with its numbers, its
//! share of the time, spans as evidence, and a remedy.
//!
//! [`facts`] collects the inputs of the rules for each execution; [`rules`] are the findings, one function each. A rule claims
//! only what the archive proves: time spent waiting, calls made, commands charged. The saving of a remedy is stated as *at most*,
//! since its replacement takes time too. Findings are ranked by the saving, at the lower bound of its interval.

mod account;
mod between;
mod carried_data;
mod connections;
pub mod contract;
mod counted;
mod facts;
mod leaf;
mod merge;
mod others;
mod reconnects;
mod rules;
mod saving;
#[cfg(test)]
mod tests;
pub mod text;

use analysis::charges::{self, Charges};
use analysis::contract::{SlowWait, Summary};
use analysis::flaws;
use analysis::rows::{Index, Rows};
use analysis::summary::SummaryBuilder;
use archive::{Archive, Error};
use contract::{Account, AccountedSummary, Between, Explanation, Finding, VERSION};
pub(crate) use facts::LeafFinder;
use facts::{Facts, FactsBuilder, TimeCategory};
pub(crate) use leaf::name as leaf_name;
use model::packed::PackedTable;
use model::table::Slice;
use model::{FindingCode, ShapeKind};
use rules::Remedy;
pub use rules::spans_databases;
use saving::Saving;
use stats::proportion;
use stats::stretches::{Draws, STRETCH_COUNT, resample_sum, stretch_index};
use std::sync::{Arc, mpsc};

/// A finding below this share of its statement's time is not listed.
const SHARE_MIN: f64 = 0.05;
/// A finding below this share of all time is not listed either.
const SHARE_OF_ALL_MIN: f64 = 0.01;
/// Findings that may occur by chance: a few slow executions are no pattern. Excludes what the program does by itself, or the kernel
/// reports.
const CHANCE_CODES: [FindingCode; 5] =
    [FindingCode::D01, FindingCode::F02, FindingCode::G01, FindingCode::Q01, FindingCode::W01];
/// The lower bound of the interval below which a finding by chance is not listed.
const LOWER_BOUND_MIN: f64 = 0.02;
/// Number of waits from which on they are a pattern where an interval cannot show it: there are too few executions for one; or
/// few executions wait, and that is most of the statement's time.
const PIECES_MIN: u64 = 3;
/// Number of stretches from which on what occurs in them occurs repeatedly.
const STRETCHES_MIN: usize = 3;
/// The share of the statement's time that is most of it.
const MAJORITY_SHARE: f64 = 0.5;
/// Share of the time of a general finding from which on another finding is its cause.
const CAUSE_SAVING_RATIO_MIN: f64 = 0.25;
/// The level of the intervals.
const CONFIDENCE_LEVEL: f64 = 0.95;
/// The seed of the intervals.
const INTERVALS_SEED: u64 = 2026;

/// Explains a recording held in memory.
pub fn explain(rows: &Rows) -> Explanation {
    explain_rows(&Index::new(rows))
}

/// Explains a recording that has its index.
pub fn explain_rows(index: &Index) -> Explanation {
    let all = |each: &mut dyn FnMut(&Slice)| {
        index.rows.slices.iter().for_each(|slice| each(&slice));
        Ok::<(), std::convert::Infallible>(())
    };
    match explain_index(index, all) {
        Ok(explanation) => explanation,
        Err(never) => match never {},
    }
}

/// Summarises and explains a recording that has its index, with its slices.
pub fn summarise_and_explain_rows(index: &Index) -> (Summary, Explanation) {
    let all = |each: &mut dyn FnMut(Group)| {
        let mut slices = index.rows.slices.iter().peekable();
        while slices.peek().is_some() {
            each(Arc::new(slices.by_ref().take(GROUP_SLICES).collect()));
        }
        Ok::<(), std::convert::Infallible>(())
    };
    match summarise_and_explain_groups(index, all) {
        Ok(done) => done,
        Err(never) => match never {},
    }
}

/// Explains an archive without holding its slices.
///
/// # Errors
/// Those of [`Rows::load`].
pub fn explain_archive(archive: &Archive) -> Result<Explanation, Error> {
    let rows = Rows::load_without_slices(archive)?;
    explain_index(&Index::new(&rows), |each| {
        archive.for_each_group(|slices| slices.iter().for_each(|slice| each(&slice)))
    })
}

/// Summarises and explains an archive, reading its tables once.
///
/// # Errors
/// Those of [`Rows::load`].
pub fn summarise_and_explain(archive: &Archive) -> Result<(Summary, Explanation), Error> {
    let rows = Rows::load_without_slices(archive)?;
    summarise_and_explain_groups(&Index::new(&rows), |each| archive.for_each_group(|slices| each(Arc::new(slices))))
}

/// Summarises an archive, with the account of [`explain_archive`]: what `fathom show --json` prints.
///
/// # Errors
/// Those of [`Rows::load`].
pub fn summarise_with_account(archive: &Archive) -> Result<AccountedSummary, Error> {
    let (summary, Explanation { account, between, .. }) = summarise_and_explain(archive)?;
    Ok(AccountedSummary { summary, account, between })
}

/// Slices that are handed on together.
type Group = Arc<PackedTable<Slice>>;

/// Slices of a group that is made in memory.
const GROUP_SLICES: usize = 4096;

/// Groups that may wait for the explanation: it takes longer over one than the summary.
const WAITING_GROUPS_MAX: usize = 2;

/// Summarises and explains a trace that has its index, each on a thread of its own; `slices` are passed once, in groups.
fn summarise_and_explain_groups<E>(
    index: &Index,
    slices: impl FnOnce(&mut dyn FnMut(Group)) -> Result<(), E>,
) -> Result<(Summary, Explanation), E> {
    let commands = Arc::new(charges::command_shares(index));
    let (send, groups) = mpsc::sync_channel::<Group>(WAITING_GROUPS_MAX);
    let shared = &commands;
    std::thread::scope(|scope| {
        let explaining = scope.spawn(move || {
            let mut facts = FactsBuilder::new(index, shared);
            groups.iter().for_each(|group| group.iter().for_each(|slice| facts.slice(&slice)));
            build_explanation(index, facts)
        });
        let mut summary = SummaryBuilder::new(index);
        let read = slices(&mut |group| {
            // It waits for groups until there is no more; should it have panicked, that is reported below.
            let _ = send.send(group.clone());
            group.iter().for_each(|slice| summary.slice(&slice));
        });
        drop(send);
        let summary = read.map(|()| summary.finish(Charges::with_commands(index, commands.clone())));
        let explanation = explaining.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((summary?, explanation))
    })
}

/// The account alone of a recording, of slices that are also read for something else.
pub(crate) struct Accounting<'a>(FactsBuilder<'a>);

impl<'a> Accounting<'a> {
    pub(crate) fn new(index: &'a Index, commands: &'a charges::SharedItems) -> Self {
        Self(FactsBuilder::new(index, commands))
    }

    pub(crate) fn slice(&mut self, slice: &Slice) {
        self.0.slice(slice);
    }

    pub(crate) fn finish(self) -> (Account, Between) {
        let found = self.0.finish();
        (found.account, found.between)
    }
}

fn explain_index<E>(
    index: &Index,
    slices: impl FnOnce(&mut dyn FnMut(&Slice)) -> Result<(), E>,
) -> Result<Explanation, E> {
    let commands = charges::command_shares(index);
    let mut facts = FactsBuilder::new(index, &commands);
    slices(&mut |slice| facts.slice(slice))?;
    Ok(build_explanation(index, facts))
}

fn build_explanation(index: &Index, facts: FactsBuilder) -> Explanation {
    let rows = index.rows;
    let facts::Found { facts, mut account, between } = facts.finish();
    let counted = counted::Counted::new(index);
    let outermost = (0..rows.operations.len()).filter(|&at| index.chain(at).nth(1).is_none());
    let latency_ns = outermost.fold(0_u64, |sum, at| sum.saturating_add(latency(rows, at)));
    let caveats = flaws::find_caveats(index);
    let across = spans_databases(rows);
    let build = |statement: &Statement, found: &FindingDraft| {
        build_finding(index, &facts, &account, statement, found, latency_ns, across)
    };
    let mut one_by_one = Vec::new();
    for statement in statements(index) {
        let mut found = rules::find_in_statement(index, &facts, &statement);
        let connections = reconnects::per_execution(index, &facts, &statement);
        // A new connection has no prepared statements: that is no cause of its own.
        found.retain(|draft| connections.is_none() || draft.code != FindingCode::S03);
        found.extend(connections);
        let counted = counted::find_in_statement(index, &facts, &counted, &statement);
        // What spills is synced in the middle of a transaction: fewer or larger ones would not help.
        let spills = counted.iter().any(|draft| draft.code == FindingCode::S07);
        found.retain(|draft| !(spills && [FindingCode::F01, FindingCode::S01].contains(&draft.code)));
        for found in found.into_iter().chain(counted) {
            if let Some(finding) = build(&statement, &found) {
                one_by_one.push(merge::Single { statement: statement.clone(), draft: found, finding });
            }
        }
    }
    let mut findings = merge::merge(index, one_by_one, build);
    // Before they are ranked by it: what times do not show decides no order either.
    if caveats.against_times().is_some() {
        findings.iter_mut().for_each(|finding| (finding.saving_ns, finding.saving_interval_ns) = (None, None));
    }
    // By the minimum saving: a few slow executions rank below what all executions have in common.
    findings.sort_by_key(|finding: &Finding| {
        let least = finding.saving_interval_ns.map_or(finding.saving_ns, |[low, _]| Some(low));
        std::cmp::Reverse((least, finding.saving_ns, finding.time_ns))
    });
    move_general_last(&mut findings);
    // Findings that cast doubt on the rest come first.
    findings.splice(0..0, rules::find_in_recording(index));
    let executions = rows.operations.iter().filter(|operation| operation.end_ns.is_some()).count() as u64;
    label_leaves(&mut account, &findings);
    Explanation { version: VERSION, findings, caveats, executions, latency_ns, account, between }
}

/// Notes at each leaf the findings that name it.
fn label_leaves(account: &mut Account, findings: &[Finding]) {
    for finding in findings {
        for &place in &finding.leaves {
            let leaf = &mut account.leaves[place];
            if !leaf.findings.contains(&finding.code) {
                leaf.findings.push(finding.code);
            }
        }
    }
}

/// Moves general findings, which only report where time goes, behind the findings of the same statement that cause it.
fn move_general_last(findings: &mut [Finding]) {
    const CAUSE_CODES: [FindingCode; 6] =
        [FindingCode::S01, FindingCode::S02, FindingCode::F01, FindingCode::F02, FindingCode::J02, FindingCode::W01];
    const GENERAL_CODES: [FindingCode; 4] = [FindingCode::F03, FindingCode::J01, FindingCode::J03, FindingCode::R01];
    let saving = |f: &Finding| f.saving_ns.unwrap_or(0) as f64;
    let mut at = findings.len();
    // From last to first, so that a finding is moved past those already moved.
    while at > 0 {
        at -= 1;
        let (statement, least) = (findings[at].statement.clone(), CAUSE_SAVING_RATIO_MIN * saving(&findings[at]));
        if !GENERAL_CODES.contains(&findings[at].code) {
            continue;
        }
        let causes = |f: &Finding| CAUSE_CODES.contains(&f.code) && f.statement == statement && saving(f) >= least;
        if let Some(last) = findings.iter().rposition(causes).filter(|last| *last > at) {
            findings[at..=last].rotate_left(1);
        }
    }
}

fn latency(rows: &Rows, at: usize) -> u64 {
    let operation = &rows.operations.at(at);
    operation.end_ns.map_or(0, |end| end.saturating_sub(operation.start_ns))
}

/// Returns the median; the upper one for an even number.
pub(crate) fn median(ns: &[u64]) -> u64 {
    let mut sorted = ns.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// A statement's finished executions, in order.
#[derive(Clone)]
struct Statement {
    shape: usize,
    /// Further statements whose executions these are, of a merged finding.
    more: Vec<usize>,
    executions: Vec<u32>,
}

/// Returns what findings are about: statements and transactions; in a recording without any, all operations.
fn statements(index: &Index) -> Vec<Statement> {
    let rows = index.rows;
    let sql =
        |shape: usize| rows.shapes[shape].is(ShapeKind::Statement) || rows.shapes[shape].is(ShapeKind::Transaction);
    let mut all: Vec<Statement> =
        (0..rows.shapes.len()).map(|shape| Statement { shape, more: Vec::new(), executions: Vec::new() }).collect();
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
            let operation = &rows.operations.at(at as usize);
            (operation.nth, operation.start_ns)
        });
    }
    all
}

/// The result of a rule for a statement.
#[derive(Clone)]
struct FindingDraft {
    code: FindingCode,
    title: &'static str,
    claim: String,
    /// The time concerned, per execution.
    time: Vec<u64>,
    /// Time that belongs to the executions but is not in their latency.
    outside_latency: Option<Vec<u64>>,
    executions: u64,
    /// Number of pieces of the time, if known.
    pieces: Option<u64>,
    saving_ns: Option<u64>,
    /// The categories whose leaves the finding names; none where they are not known from slices.
    names: Vec<TimeCategory>,
    /// Who or what made the executions wait; findings with different ones are not one.
    cause: Option<String>,
    remedy: Remedy,
    evidence: Vec<u64>,
    slow_waits: Vec<SlowWait>,
}

/// Returns the lower bound of the sum of a time that few stretches have: the exact bound of how many do (Clopper and Pearson), each
/// with their mean. If three of twenty have all of it, every 26th resample of the bootstrap has none (0.85^20), so that its interval
/// begins at 0 however long they are; the exact bound is 0.6 stretches.
fn lower_bound_of_rare(stretches: &[f64]) -> f64 {
    let having = stretches.iter().filter(|time| **time > 0.0).count();
    if having < STRETCHES_MIN {
        return 0.0;
    }
    let share = proportion::lower_bound(having as u64, stretches.len() as u64, f64::midpoint(1.0, CONFIDENCE_LEVEL));
    stretches.iter().sum::<f64>() * share * stretches.len() as f64 / having as f64
}

/// Returns the leaves that hold the time of some categories of a statement, those with most of it first.
fn named_leaves(facts: &Facts, statement: &Statement, names: &[TimeCategory]) -> Vec<usize> {
    let shapes = || statement.more.iter().chain([&statement.shape]);
    let keys = names.iter().flat_map(|of| shapes().map(move |shape| (*shape, *of)));
    let mut held: Vec<(usize, u64)> = keys.filter_map(|key| facts.leaves.get(&key)).flatten().copied().collect();
    held.sort_by_key(|(place, ns)| (std::cmp::Reverse(*ns), *place));
    let mut leaves = Vec::new();
    for (place, _) in held {
        if !leaves.contains(&place) {
            leaves.push(place);
        }
    }
    leaves
}

/// Builds a finding, if it matters.
fn build_finding(
    index: &Index,
    facts: &Facts,
    account: &Account,
    statement: &Statement,
    found: &FindingDraft,
    all: u64,
    spans_databases: bool,
) -> Option<Finding> {
    let latency = |at: usize| {
        let beside = found.outside_latency.as_ref().map_or(0, |beside| beside[at]);
        latency(index.rows, statement.executions[at] as usize).saturating_add(beside)
    };
    let count = statement.executions.len();
    let mut sums = [vec![0.0; STRETCH_COUNT], vec![0.0; STRETCH_COUNT]];
    let (mut time, mut whole) = (0_u64, 0_u64);
    for at in 0..count {
        let stretch = stretch_index(at, count, STRETCH_COUNT.min(count));
        sums[0][stretch] += found.time[at] as f64;
        sums[1][stretch] += latency(at) as f64;
        time = time.saturating_add(found.time[at]);
        whole = whole.saturating_add(latency(at));
    }
    let beside =
        found.outside_latency.as_ref().map_or(0, |beside| beside.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns)));
    let share = time as f64 / whole.max(1) as f64;
    let of_all = time as f64 / all.saturating_add(beside).max(1) as f64;
    if share < SHARE_MIN || of_all < SHARE_OF_ALL_MIN {
        return None;
    }
    let used = STRETCH_COUNT.min(count);
    let draws = Draws::new(used, INTERVALS_SEED);
    let mut interval = draws.and_then(|draws| {
        draws.estimate(CONFIDENCE_LEVEL, |t| resample_sum(t, &sums[0][..used]) / resample_sum(t, &sums[1][..used]))
    });
    if let Some(interval) = interval.as_mut().filter(|interval| interval.low <= 0.0) {
        interval.low = lower_bound_of_rare(&sums[0][..used]) / whole.max(1) as f64;
    }
    if CHANCE_CODES.contains(&found.code) {
        let rule = match &interval {
            Some(interval) if interval.low >= LOWER_BOUND_MIN => true,
            Some(_) => share >= MAJORITY_SHARE && found.pieces.is_some_and(|pieces| pieces >= PIECES_MIN),
            // Too few executions for a pattern: what is most of all the time needs none.
            None => of_all >= MAJORITY_SHARE || found.pieces.is_none_or(|pieces| pieces >= PIECES_MIN),
        };
        if !rule {
            return None;
        }
    }
    let interval = interval.map(|e| [e.low.clamp(0.0, 1.0), e.high.clamp(0.0, 1.0)]);
    let leaves = named_leaves(facts, statement, &found.names);
    let held = leaves.iter().fold(0_u64, |sum, at| sum.saturating_add(account.leaves[*at].saves_at_most_ns));
    // Time beside the executions is in no leaf.
    let cap_ns = if leaves.is_empty() { whole.min(all.saturating_add(beside)) } else { held.saturating_add(beside) };
    let relative = interval.map(|ends| ends.map(|end| end / share));
    let saving = found.saving_ns.map(|ns| Saving::at_most(cap_ns, ns, relative));
    // A time outside the executions is saved whole: without a saving, its length is unknown, too.
    let known = found.outside_latency.is_none() || saving.is_some();
    Some(Finding {
        code: found.code,
        title: found.title.into(),
        statement: Some(index.rows.shapes[statement.shape].text.clone()),
        statements: Vec::new(),
        claim: found.claim.clone(),
        executions: found.executions,
        of: count as u64,
        time_ns: known.then_some(time),
        share: known.then_some(share),
        interval: interval.filter(|_| known),
        share_of_all: known.then_some(of_all),
        leaves,
        saving_ns: saving.map(Saving::ns),
        saving_interval_ns: saving.and_then(Saving::interval_ns),
        remedy: found
            .remedy
            .describe(spans_databases, statement.executions.iter().any(|at| facts.wal_writers.contains(at))),
        evidence: found.evidence.clone(),
        slow_waits: found.slow_waits.clone(),
    })
}
