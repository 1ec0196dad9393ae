//! What a contract would notice: proven on the data that it was made of, before it is relied on.
//!
//! A contract of counts that vary passes what is within their range, and nobody sees it. So each recorded run is changed as a commit would
//! change the program, by one sync more, and compared: a run that still conforms shows a contract that cannot see a sync.

use super::compare::differences;
use super::contract::Contract;
use super::count_name::CountName;
use super::observe::ObservedRun;
use std::collections::BTreeSet;
use std::fmt;

/// An added sync that a contract would not notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unnoticed {
    /// The count, such as `fsync file`.
    pub what: String,
    /// Its minimum and maximum in the recorded runs.
    pub counts: [u64; 2],
}

impl fmt::Display for Unnoticed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, counts: [least, most] } = self;
        write!(f, "the runs differ in `{what}` ({least} to {most}), so that one more would not be noticed")
    }
}

/// A sync that every program can add.
const ANY_SYNC: &str = "fsync file";

/// Adds one sync of each kind to each run, in turn, and returns the first that the contract does not notice.
pub fn unnoticed_sync(contract: &Contract, runs: &[ObservedRun]) -> Option<Unnoticed> {
    let totals: Vec<_> = runs.iter().map(ObservedRun::sums).collect();
    let is_sync = |name: &&String| matches!(CountName::parse(name), CountName::Call(call, _) if call.syncs());
    let mut kinds: BTreeSet<String> = totals.iter().flat_map(|sums| sums.keys()).filter(is_sync).cloned().collect();
    kinds.insert(ANY_SYNC.into());
    for what in kinds {
        let counts = || totals.iter().map(|sums| sums.get(&what).copied().unwrap_or(0));
        for run in runs {
            // By the program, and by each statement that makes such calls.
            let making =
                run.statements.iter().filter(|(_, one)| one.calls.contains_key(&what)).map(|(text, _)| Some(text));
            for place in making.chain([None]) {
                let mut changed = run.clone();
                let section = match place {
                    Some(text) => changed.statements.entry(text.clone()).or_default(),
                    None => &mut changed.program,
                };
                *section.calls.entry(what.clone()).or_default() += 1;
                if differences(contract, &changed).is_empty() {
                    let counts = [counts().min().unwrap_or(0), counts().max().unwrap_or(0)];
                    return Some(Unnoticed { what, counts });
                }
            }
        }
    }
    None
}
