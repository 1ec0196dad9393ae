//! Processes that others disturbed while they were measured: which are excluded from an estimate, and when none are excluded.
//!
//! This is determined by a mark (`replicates.gates`, written by `experiment`), which depends on what the kernel counted for other
//! processes, never on the score: a disturbed process is excluded whether it was fast or slow, in both arms alike. If at most a
//! quarter of a cell's processes were disturbed, the estimate is based on the rest. If more were, excluding them would base the
//! estimate on whatever moments remained; then all count, the cell is called disturbed, and nothing is concluded from it.

use super::gates::{GateState, gate_states};
use super::{CellEstimate, is_counted};
pub use experiment::disturbed::UNDISTURBED_MARK;
use model::table::Replicate;
use std::collections::{BTreeMap, BTreeSet};

/// Prefix of the marks that it summarises.
pub const DURING_PREFIX: &str = "during.";
/// Maximum share of disturbed processes that are excluded.
const EXCLUDED_SHARE_MAX: f64 = 0.25;

/// Whether a mark concerns the time in which a process ran, not the time before.
pub fn is_during_run(mark: &str) -> bool {
    mark == UNDISTURBED_MARK || mark.starts_with(DURING_PREFIX)
}

/// Whether a replicate was disturbed.
fn is_disturbed(replicate: &Replicate) -> bool {
    gate_states(replicate).get(UNDISTURBED_MARK) == Some(&GateState::Failed)
}

fn too_many(disturbed: usize, all: usize) -> bool {
    disturbed as f64 > EXCLUDED_SHARE_MAX * all as f64
}

/// Returns the replicates that are excluded from estimates, by number.
pub fn excluded_replicates<'a>(replicates: impl IntoIterator<Item = &'a Replicate>) -> BTreeSet<u64> {
    // For each cell, the number of replicates, and those that were disturbed.
    let mut cells: BTreeMap<u64, (usize, Vec<u64>)> = BTreeMap::new();
    for r in replicates.into_iter().filter(|r| is_counted(r)) {
        let (all, disturbed) = cells.entry(r.cell).or_default();
        *all += 1;
        if is_disturbed(r) {
            disturbed.push(r.id);
        }
    }
    cells.into_values().filter(|(all, out)| !too_many(out.len(), *all)).flat_map(|(_, out)| out).collect()
}

/// Ignores what was counted while processes ran: the marks stay, under another state.
pub fn ignore_disturbances(replicates: &mut [Replicate]) {
    for text in replicates.iter_mut().filter_map(|r| r.gates.as_mut()) {
        let Ok(mut marks) = serde_json::from_str::<BTreeMap<String, serde_json::Value>>(text) else { continue };
        let failed = |mark: &serde_json::Value| mark["state"] == GateState::Failed.name();
        let failed = marks.iter_mut().filter(|(name, mark)| is_during_run(name) && failed(mark));
        failed.for_each(|(_, mark)| mark["state"] = GateState::Overlooked.name().into());
        *text = serde_json::json!(marks).to_string();
    }
}

impl CellEstimate {
    /// Returns the number of processes that were disturbed while they ran, including those without a result, and of all processes.
    pub fn disturbed(&self) -> (usize, usize) {
        let states = self.gates.get(UNDISTURBED_MARK);
        let failed = states.and_then(|s| s.get(&GateState::Failed)).map_or(0, |n| *n as usize);
        (failed, states.map_or(0, |s| s.values().sum::<u64>() as usize))
    }

    /// Whether so many were disturbed that nothing can be concluded.
    pub fn is_disturbed(&self) -> bool {
        let (disturbed, all) = self.disturbed();
        too_many(disturbed, all)
    }

    /// Returns notes about gates that were not passed and about disturbances.
    pub fn machine_notes(&self) -> Vec<String> {
        let failed = |name: &str| self.gates.get(name).and_then(|states| states.get(&GateState::Failed)).copied();
        let mut notes = Vec::new();
        for (gate, states) in self.gates.iter().filter(|(gate, _)| !is_during_run(gate)) {
            if let Some(n) = failed(gate) {
                let all = model::counted(states.values().sum::<u64>() as usize, "process");
                notes.push(format!("{n} of {all} started without passing the gate {}", analysis::text::shown(gate)));
            }
        }
        let (disturbed, all) = self.disturbed();
        if disturbed > 0 {
            let by = self.gates.keys().filter_map(|name| Some((name.strip_prefix(DURING_PREFIX)?, failed(name)?)));
            let by: Vec<String> = by.map(|(what, n)| format!("{} {n}", analysis::text::shown(what))).collect();
            let done = if self.is_disturbed() {
                "too many to exclude, so no verdict is possible; measure again on a quiet machine"
            } else {
                "excluded"
            };
            let all = model::counted(all, "process");
            notes.push(format!("{disturbed} of {all} disturbed while measured ({}), {done}", by.join(", ")));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::bench;
    use crate::{comparability::Rules, compare};

    const DISTURBED_GATES: &str =
        r#"{"undisturbed":{"state":"failed"},"during.others":{"state":"failed","value":0.9}}"#;
    const UNDISTURBED_GATES: &str =
        r#"{"undisturbed":{"state":"passed"},"during.others":{"state":"passed","value":0.01}}"#;

    /// Ten processes, of which the last `shaken` were disturbed and took a third longer.
    fn bench_with_disturbed(shaken: usize) -> crate::results::Bench {
        let mut b = bench("b", "w");
        b.add(&[("op", "x")], 100.0, 1000.0, 10);
        let first = b.tables.replicates.len() - shaken;
        let mut out = BTreeSet::new();
        for (at, row) in b.tables.replicates.iter_mut().enumerate() {
            row.gates = Some(if at < first { UNDISTURBED_GATES } else { DISTURBED_GATES }.into());
            if at >= first {
                out.insert(row.id);
            }
        }
        for sample in b.tables.samples.iter_mut().filter(|s| s.metric == "iteration") {
            if sample.replicate.is_some_and(|id| out.contains(&id)) {
                sample.value *= 1.35;
            }
        }
        b
    }

    #[test]
    fn a_load_started_during_a_run_disturbs_and_is_not_slower() {
        let calm = bench_with_disturbed(0);
        for (shaken, verdict) in [(0, "equivalent"), (2, "equivalent"), (5, "disturbed"), (10, "disturbed")] {
            let b = bench_with_disturbed(shaken);
            let done = compare::compare_archives(&calm, &b, &Rules::default());
            let pair = &done.results[0];
            assert_eq!(pair.verdict.name(), verdict, "{shaken}: {:?}", pair.ratio);
            let mentioned = pair.notes.iter().any(|n| n.contains(&format!("{shaken} of 10 processes disturbed")));
            assert_eq!(mentioned, shaken > 0, "{:?}", pair.notes);
            assert!(done.slower(0.0).is_empty());
            // In both directions.
            assert_eq!(compare::compare_archives(&b, &calm, &Rules::default()).results[0].verdict.name(), verdict);
            let left = if verdict == "equivalent" { 10 - shaken } else { 10 };
            assert_eq!(pair.b.processes, left);
        }
        let mut b = bench_with_disturbed(10);
        ignore_disturbances(&mut b.tables.replicates);
        assert_eq!(
            compare::compare_archives(&calm, &b, &Rules::default()).results[0].verdict.name(),
            "slower",
            "disturbances are ignored on request"
        );
        assert!(b.tables.replicates[0].gates.as_ref().unwrap().contains("overlooked"));
    }

    /// Only the counters decide which processes are excluded, fast and slow ones alike.
    #[test]
    fn a_disturbance_does_not_depend_on_the_score() {
        let mut b = bench_with_disturbed(2);
        let slow: BTreeSet<u64> = excluded_replicates(&b.tables.replicates);
        assert_eq!(slow.len(), 2);
        b.tables.samples.iter_mut().for_each(|s| s.value *= if s.metric == "iteration" { 0.5 } else { 1.0 });
        assert_eq!(excluded_replicates(&b.tables.replicates), slow);
    }
}
