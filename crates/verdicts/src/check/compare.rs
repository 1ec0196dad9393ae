//! Differences between a run and the contract.

use super::because;
use super::contract::{Contract, PROC, Section};
use super::count_name::{CountName, EXECUTIONS, FileKind};
use super::difference::{Difference, OUTCOME_VERSION, Outcome};
use super::observe::{ObservedRun, SectionCounts};
use super::temporary;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the weight of a count: waiting for the medium weighs most, bytes least.
pub fn count_weight(what: &str) -> f64 {
    match CountName::parse(what) {
        CountName::Checkpoints => 20_000.0,
        CountName::Call(call, _) if call.syncs() => 10_000.0,
        CountName::Flushes => 2_000.0,
        CountName::Call(call, _) if call.changes() => 100.0,
        CountName::Call(call, _) if call.writes() || call.copies() => 20.0,
        CountName::WriteCalls | CountName::WriteCommands => 20.0,
        CountName::Call(call, _) if call.reads() => 5.0,
        CountName::ReadCalls => 5.0,
        CountName::BytesRead(_) | CountName::BytesWritten(_) => 0.001,
        _ => 1.0,
    }
}

/// The weight of a count that decreased, relative to one that increased.
const MISSING_WEIGHT: f64 = 1e-6;

/// Whether fewer of them may cost durability.
fn matters_if_missing(what: &str) -> bool {
    matches!(CountName::parse(what), CountName::Call(call, _) if call.syncs())
}

/// Returns the count above which the device clearly did more: the maximum of its range plus a quarter, plus two.
fn clearly_more(most: u64) -> u64 {
    most.saturating_add(most / 4 + 2)
}

/// Returns by how much a count may differ although nothing has changed: bytes of a program's own files contain times and ids, and
/// their compression differs (a commit of git's was 477 bytes in 47 of 50 runs, and 478 in three). SQLite's files are written in
/// pages.
pub fn count_tolerance(what: &str, was: u64) -> u64 {
    match CountName::parse(what) {
        CountName::BytesRead(None | Some(FileKind::File)) | CountName::BytesWritten(None | Some(FileKind::File)) => {
            (was / 100).max(64)
        }
        _ => 0,
    }
}

fn section_differences(statement: Option<&str>, expected: &Section, found: &SectionCounts) -> Vec<Difference> {
    let mut all = Vec::new();
    let new = |what: &str, expected: [u64; 2], count: u64, device: bool| {
        let mut one = Difference {
            statement: statement.map(Into::into),
            total: false,
            what: what.into(),
            expected,
            found: count,
            device,
            example: found.examples.get(what).cloned(),
            executions: statement.and_then(|_| found.calls.get(EXECUTIONS).copied()),
            places: Vec::new(),
            calls_elsewhere: 0,
            weight: 0.0,
        };
        one.weight = one.delta().unsigned_abs() as f64 * count_weight(what);
        // What is asked less often follows from what is asked instead; a missing sync matters by itself.
        if one.delta() < 0 && !matters_if_missing(what) {
            one.weight *= MISSING_WEIGHT;
        }
        one
    };
    let names: BTreeSet<&String> =
        expected.exact.keys().chain(found.calls.keys()).filter(|name| !expected.varied.contains_key(*name)).collect();
    for name in names {
        let (was, is) = (expected.exact.get(name).copied().unwrap_or(0), found.calls.get(name).copied().unwrap_or(0));
        if was.abs_diff(is) > count_tolerance(name, was) {
            all.push(new(name, [was, was], is, false));
        }
    }
    for (name, [least, most]) in &expected.varied {
        let is = found.calls.get(name).copied().unwrap_or(0);
        let slack = (most - least).max(count_tolerance(name, *most));
        if is > most.saturating_add(slack) || is < least.saturating_sub(slack) {
            all.push(new(name, [*least, *most], is, false));
        }
    }
    for (name, amount) in &found.device {
        let [least, most] = expected.device.get(name).copied().unwrap_or_default();
        let is = amount.round() as u64;
        if is > clearly_more(most) {
            all.push(new(name, [least, most], is, true));
        }
    }
    all
}

/// Returns the differences between a traced run and the contract, the most important first.
pub fn differences(contract: &Contract, found: &ObservedRun) -> Vec<Difference> {
    // A name that the contract does not know is a temporary one, if its runs had any.
    let known: BTreeSet<&str> = contract.statements.iter().map(|s| s.text.as_str()).collect();
    let found = &temporary::merge(found, |text, merged| known.contains(text) || !known.contains(merged));
    let nothing = (Section::default(), SectionCounts::default());
    let mut all = section_differences(None, &contract.program, &found.program);
    let was: BTreeMap<&str, &Section> = contract.statements.iter().map(|s| (s.text.as_str(), &s.counts)).collect();
    let texts: BTreeSet<&str> = was.keys().copied().chain(found.statements.keys().map(String::as_str)).collect();
    for text in texts {
        let (expected, now) = (was.get(text), found.statements.get(text));
        let mut own = section_differences(Some(text), expected.unwrap_or(&&nothing.0), now.unwrap_or(&nothing.1));
        if temporary::is_merged(text) {
            // Each execution is a call, which is counted as such.
            own.retain(|d| d.what != EXECUTIONS);
        } else if expected.is_none() || now.is_none() {
            // The presence or absence of the statement is the difference; the counts only follow from it.
            let sum: f64 = own.iter().map(|d| d.weight).sum();
            own.retain(|d| d.what == EXECUTIONS);
            own.iter_mut().for_each(|d| d.weight = sum / 2.0);
        }
        all.extend(own);
    }
    if let Some(expected) = &contract.total {
        let totals = section_differences(None, expected, &found.total());
        all.extend(totals.into_iter().map(|one| Difference { total: true, ..one }));
    }
    sort_differences(&mut all);
    all
}

/// Removes differences of the whole program that other differences explain: the same count of a statement or outside, or statements that
/// are new or missing. What is left would be unknown otherwise, as that of statements with another name in each run.
fn without_explained_totals(all: &mut Vec<Difference>) {
    let new_or_missing = |d: &Difference| d.what == EXECUTIONS && (d.expected == [0, 0] || d.found == 0);
    let parts: Vec<Difference> = all.iter().filter(|d| !d.total).cloned().collect();
    all.retain(|d| !d.total || !parts.iter().any(|part| part.what == d.what || new_or_missing(part)));
}

/// Sorts by statement, the one with the largest total weight first, and within it by weight.
fn sort_differences(all: &mut [Difference]) {
    let mut sums: BTreeMap<Option<String>, f64> = BTreeMap::new();
    for one in all.iter() {
        // The device's activity follows from the program's.
        *sums.entry(one.statement.clone()).or_default() += if one.device { 0.0 } else { one.weight };
    }
    let sum = |d: &Difference| sums.get(&d.statement).copied().unwrap_or(0.0);
    all.sort_by(|a, b| {
        let groups = sum(b).total_cmp(&sum(a)).then_with(|| a.statement.cmp(&b.statement));
        groups.then(a.device.cmp(&b.device)).then(b.weight.total_cmp(&a.weight)).then_with(|| a.what.cmp(&b.what))
    });
}

/// Returns the differences between a run without tracing and the contract.
pub fn untraced_differences(contract: &Contract, found: &SectionCounts) -> Vec<Difference> {
    let mut all = section_differences(None, &contract.proc, found);
    sort_differences(&mut all);
    all
}

/// Judges runs: only what differs in all of them is a difference. `last` is the last traced run.
pub fn judge(contract: &Contract, runs: &[Vec<Difference>], last: Option<&ObservedRun>, counted_by: &str) -> Outcome {
    let (last_run, earlier) = runs.split_last().map_or((&[][..], &[][..]), |(last, rest)| (last.as_slice(), rest));
    let in_all = |d: &&Difference| earlier.iter().all(|run| run.iter().any(|other| other.is_same_count(d)));
    let mut differences: Vec<Difference> = last_run.iter().filter(in_all).cloned().collect();
    without_explained_totals(&mut differences);
    sort_differences(&mut differences);
    let because = last.and_then(|found| because::explain_difference(contract, found, &differences));
    Outcome {
        version: OUTCOME_VERSION,
        passed: differences.is_empty(),
        counted_by: counted_by.into(),
        runs: runs.len() as u64,
        totals: counted_by == PROC || contract.total.is_some(),
        first: super::text::headline(&differences),
        because,
        caveats: last.map(|found| found.caveats.clone()).unwrap_or_default(),
        differences,
    }
}

/// Number of runs in which a difference must occur.
const CONFIRMING_RUNS: usize = 3;

/// Compares traced runs with the contract: runs again until one run matches the contract, or a difference has occurred in
/// [`CONFIRMING_RUNS`] of them. `next` runs the command; its inner error is the reason why it cannot be traced, and is passed on.
///
/// # Errors
/// That of `next`.
pub fn check_traced<W, E>(
    contract: &Contract,
    counted_by: &str,
    mut next: impl FnMut() -> Result<Result<ObservedRun, W>, E>,
) -> Result<Result<Outcome, W>, E> {
    let mut all = Vec::new();
    loop {
        let observed = match next()? {
            Ok(observed) => observed,
            Err(why) => return Ok(Err(why)),
        };
        all.push(differences(contract, &observed));
        // What does not occur every time is not a difference.
        let so_far = judge(contract, &all, Some(&observed), counted_by);
        if so_far.passed || all.len() == CONFIRMING_RUNS {
            return Ok(Ok(so_far));
        }
    }
}

/// The same with the kernel's counts only.
///
/// # Errors
/// That of `next`.
pub fn check_untraced<E>(
    contract: &Contract,
    mut next: impl FnMut() -> Result<SectionCounts, E>,
) -> Result<Outcome, E> {
    let mut all = Vec::new();
    loop {
        all.push(untraced_differences(contract, &next()?));
        let so_far = judge(contract, &all, None, PROC);
        if so_far.passed || all.len() == CONFIRMING_RUNS {
            return Ok(so_far);
        }
    }
}
