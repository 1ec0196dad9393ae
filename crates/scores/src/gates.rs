//! The states of gates, as `experiment` stores them with a replicate: read here once, so that nothing else compares their names.

use experiment::gate::State;
use model::table::Replicate;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The mark of how long a process waited for its gates: not a gate.
const WAITED_MARK: &str = "waited";

/// The state of a gate. In order of the names, which JSON has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum GateState {
    /// The machine was not in the required state, and the process ran anyway.
    Failed,
    /// The same, but the user asked to ignore it.
    Overlooked,
    Passed,
    /// There was no such sensor, or its state is missing.
    Unavailable,
    /// A state of another version: shown, and neither failed nor passed.
    Other(String),
}

/// How many processes were in which state, by gate.
pub type GateCounts = BTreeMap<String, BTreeMap<GateState, u64>>;

impl GateState {
    /// Parses the name used in archives.
    pub fn from_name(name: &str) -> Self {
        let known = [Self::Failed, Self::Overlooked, Self::Passed, Self::Unavailable];
        known.into_iter().find(|state| state.name() == name).unwrap_or_else(|| Self::Other(name.into()))
    }

    /// The name in archives and JSON.
    pub fn name(&self) -> &str {
        match self {
            Self::Failed => State::Failed.name(),
            Self::Overlooked => "overlooked",
            Self::Passed => State::Passed.name(),
            Self::Unavailable => State::Unavailable.name(),
            Self::Other(name) => name,
        }
    }
}

impl Serialize for GateState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Returns the states of a replicate's gates; none if they are damaged: the rest of the archive remains valid.
pub fn gate_states(replicate: &Replicate) -> BTreeMap<String, GateState> {
    let text = replicate.gates.as_deref().unwrap_or_default();
    let marks: BTreeMap<String, serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
    let state = |mark: &serde_json::Value| mark["state"].as_str().map_or(GateState::Unavailable, GateState::from_name);
    let gates = marks.into_iter().filter(|(name, _)| name != WAITED_MARK);
    gates.map(|(name, mark)| (name, state(&mark))).collect()
}

/// Counts the states of gates over replicates.
pub fn count_gate_states(replicates: &[&Replicate]) -> GateCounts {
    let mut all = GateCounts::new();
    for (name, state) in replicates.iter().flat_map(|replicate| gate_states(replicate)) {
        *all.entry(name).or_default().entry(state).or_default() += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_states_are_kept_and_not_guessed() {
        for name in ["failed", "overlooked", "passed", "unavailable", "tired", ""] {
            assert_eq!(GateState::from_name(name).name(), name);
        }
        assert_eq!(GateState::from_name("Failed"), GateState::Other("Failed".into()));
        let counts = BTreeMap::from([(GateState::Other("tired".into()), 1), (GateState::Failed, 2)]);
        assert_eq!(serde_json::to_string(&counts).unwrap(), r#"{"failed":2,"tired":1}"#);
    }
}
