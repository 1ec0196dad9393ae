//! What a recording cannot carry: conclusions that do not hold whatever its rows say. Verdicts, savings and predictions are made from a
//! recording together with its caveats, and results hold them, so that no view of a result has to know them.

use crate::completeness::{CHECKED, completeness, lost_at_unknown_time};
use crate::rows::{Index, Rows};
use model::Environment;
use model::words::EMULATED_PROCESSOR;
use serde::Serialize;

/// What limits a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The processor was emulated: its times show order, not speed.
    EmulatedProcessor,
    /// The recording ended early.
    CutShort,
    /// Records were lost.
    RecordsLost,
    /// The kernel's own counts do not confirm that every command was recorded.
    Unconfirmed,
}

/// A conclusion that a recording does not support.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Caveat {
    /// The kind, for programs.
    pub limit: Limit,
    /// The state of the recording, in words.
    pub because: String,
    /// What cannot be claimed from it, and why.
    pub cannot_claim: String,
}

/// The caveats of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Caveats(Vec<Caveat>);

/// Whether a machine's processor is emulated in software: QEMU's TCG is the only emulator that the facts name.
pub fn is_emulated(environment: &Environment) -> bool {
    let (name, value) = EMULATED_PROCESSOR;
    environment.get(name).and_then(|fact| fact.value.as_deref()) == Some(value)
}

impl Caveats {
    /// Those of a recording.
    pub fn of(index: &Index) -> Self {
        let rows = index.rows;
        let mut all = Vec::new();
        let mut add = |limit, because: &str, cannot_claim: String| {
            all.push(Caveat { limit, because: because.to_owned(), cannot_claim });
        };
        if is_emulated(&rows.environment()) {
            add(
                Limit::EmulatedProcessor,
                "the processor is emulated (QEMU's TCG): times show order, not speed",
                "how fast anything is, or what a change saves: the processor was emulated (QEMU's TCG), so that times show order, not \
                 speed"
                    .into(),
            );
        }
        if !rows.trace.complete {
            add(
                Limit::CutShort,
                "the recording was interrupted",
                "what happened at the end: the recording was cut short".into(),
            );
        }
        if let Some(lost) = lost(rows) {
            add(Limit::RecordsLost, &format!("{lost} lost"), format!("exact counts: {lost} lost"));
        }
        let confirmed = completeness(index);
        if confirmed.state != CHECKED {
            let (state, why) =
                (confirmed.state, confirmed.why.unwrap_or_else(|| "the kernel's counts are unknown".into()));
            add(
                Limit::Unconfirmed,
                &format!("completeness: {state}: {why}"),
                format!("that every device command was recorded ({state}): {why}"),
            );
        }
        Self(all)
    }

    /// Adds those of another recording that the same conclusion is made from.
    pub fn extend(&mut self, other: Self) {
        let new = other.0.into_iter().filter(|caveat| !self.0.contains(caveat));
        let new: Vec<Caveat> = new.collect();
        self.0.extend(new);
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Caveat> {
        self.0.iter()
    }

    /// The one that forbids any conclusion from times.
    pub fn against_times(&self) -> Option<&Caveat> {
        self.0.iter().find(|caveat| caveat.limit == Limit::EmulatedProcessor)
    }
}

/// Describes how many records were lost.
fn lost(rows: &Rows) -> Option<String> {
    let known = rows.losses.iter().filter_map(|loss| loss.events).fold(lost_at_unknown_time(rows), u64::saturating_add);
    let more = rows.losses.iter().any(|loss| loss.at_least || loss.events.is_none());
    match (known, more) {
        (0, false) => None,
        (0, true) => Some("an unknown number of records was".into()),
        (1, false) => Some("1 record was".into()),
        (known, false) => Some(format!("{known} records were")),
        (known, true) => Some(format!("at least {known} records were")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    fn limits(rows: &Rows) -> Vec<Limit> {
        Caveats::of(&Index::new(rows)).iter().map(|caveat| caveat.limit).collect()
    }

    #[test]
    fn each_flaw_of_recording_has_caveat() {
        let mut rows = case::rows();
        assert_eq!(limits(&rows), [Limit::RecordsLost, Limit::Unconfirmed]);
        (rows.trace.complete, rows.facts) = (false, vec![case::emulated()]);
        let all = Caveats::of(&Index::new(&rows));
        assert_eq!(limits(&rows), [Limit::EmulatedProcessor, Limit::CutShort, Limit::RecordsLost, Limit::Unconfirmed]);
        assert!(all.against_times().unwrap().cannot_claim.contains("emulated"));
        rows.losses[0].events = None;
        let text = serde_json::to_string(&Caveats::of(&Index::new(&rows))).unwrap();
        assert!(text.contains("an unknown number of records was lost"), "{text}");
    }
}
