//! Calls on files whose names differ in each run, merged: by what the names do, not by what they look like.
//!
//! Where calls are the statements, a statement is named by its file. mkstemp, UUIDs and tokens of any alphabet make another name in each
//! run, so that no such statement has a counterpart. A name that is not in every run is a temporary one, and the statements of one call on
//! temporary names are one statement; its counts are as exact as any.
//!
//! **Uncertainty.** A file that has the same name in the recorded runs by chance is known by that name, and missing in the next run. Of two
//! random letters, one in 676 pairs of runs agree.

use super::observe::{ObservedRun, SectionCounts};
use model::Call;
use std::collections::BTreeSet;

/// Follows the call in the name of merged statements.
const MERGED_NAME: &str = "(files named differently in each run)";

/// Returns the name of the merged statement, of a statement that is a call on a file.
pub fn merged_name(text: &str) -> Option<String> {
    let (call, file) = text.split_once(' ')?;
    let is_call = Call::ALL.iter().any(|known| known.name() == call);
    (is_call && !file.is_empty()).then(|| format!("{call} {MERGED_NAME}"))
}

/// Whether a statement is a merged one.
pub fn is_merged(text: &str) -> bool {
    text.ends_with(MERGED_NAME)
}

/// Returns the statements whose names are in every run.
pub fn lasting_names(runs: &[ObservedRun]) -> BTreeSet<String> {
    let Some((first, rest)) = runs.split_first() else { return BTreeSet::new() };
    let lasting = first.statements.keys().filter(|text| rest.iter().all(|run| run.statements.contains_key(*text)));
    lasting.cloned().collect()
}

/// Merges the statements that are calls on files, except those whose name is kept.
pub fn merge(run: &ObservedRun, keeps: impl Fn(&str, &str) -> bool) -> ObservedRun {
    let mut merged = ObservedRun { statements: Default::default(), ..run.clone() };
    for (text, one) in &run.statements {
        let name = merged_name(text).filter(|merged| !keeps(text, merged)).unwrap_or_else(|| text.clone());
        add(merged.statements.entry(name).or_default(), one);
    }
    merged
}

fn add(sum: &mut SectionCounts, one: &SectionCounts) {
    for (name, n) in &one.calls {
        let all = sum.calls.entry(name.clone()).or_default();
        *all = all.saturating_add(*n);
    }
    for (name, amount) in &one.device {
        *sum.device.entry(name.clone()).or_default() += amount;
    }
    for (name, path) in &one.examples {
        sum.examples.entry(name.clone()).or_insert_with(|| path.clone());
    }
}
