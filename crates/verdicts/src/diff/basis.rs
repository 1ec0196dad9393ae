//! What a verdict is made from in addition to the times: what the compared recordings saw, lost, and cannot carry.
//! Every verdict passes through [`Basis::verdict`] or [`Basis::allows`].

use super::contract::{LostRecords, Side};
use super::describe_side;
use analysis::blind;
use analysis::caveats::Caveats;
use analysis::contract::Blind;
use analysis::rows::Index;
use model::Absence;
use stats::verdict::Verdict;
use std::collections::BTreeSet;

/// Losses that may hide executions are harmless up to this fraction of the executions.
const HARMLESS_LOSS_SHARE: f64 = 0.01;

/// What is missing in a recording.
#[derive(Debug, Clone)]
pub struct RecordingGaps {
    which: String,
    unseen: BTreeSet<String>,
    losses: Vec<LostRecords>,
    caveats: Caveats,
}

impl RecordingGaps {
    /// What is missing in this recording, which is called `which`.
    pub fn from_index(index: &Index, which: String) -> Self {
        // Programs without SQLite do not affect the recording of the others; the substitute for their statements is another shape.
        let rows = &index.rows.coverage;
        let coverage: Vec<_> = rows.iter().filter(|c| c.absence != Some(Absence::NoSqlite)).cloned().collect();
        let unseen = blind::blind_spots(&coverage).into_iter().map(|Blind { means, .. }| means).collect();
        let Side { losses, caveats, .. } = describe_side(index);
        Self { which, unseen, losses, caveats }
    }
}

/// What a verdict is made from. The default withholds none.
#[derive(Debug, Clone, Default)]
pub struct Basis(Option<String>);

impl Basis {
    /// That of these recordings, which have so many executions in common.
    pub fn from_gaps(seen: &[RecordingGaps], pairs: u64) -> Self {
        Self(why_withheld(seen, pairs))
    }

    /// Whether no verdict is given, regardless of the times.
    pub fn is_withheld(&self) -> bool {
        self.0.is_some()
    }

    /// The verdict on these times, and why.
    pub fn verdict(&self, of_times: (Verdict, String)) -> (Verdict, String) {
        self.0.as_ref().map_or(of_times, |why| (Verdict::Inconclusive, why.clone()))
    }

    pub fn allows(&self, of_times: Verdict) -> Verdict {
        if self.is_withheld() { Verdict::Inconclusive } else { of_times }
    }
}

/// Returns why no verdict is given, regardless of the times.
fn why_withheld(seen: &[RecordingGaps], pairs: u64) -> Option<String> {
    if pairs == 0 {
        return Some("the recordings have no statement in common".into());
    }
    for RecordingGaps { which, caveats, .. } in seen {
        if let Some(caveat) = caveats.against_times() {
            return Some(format!("{which}: {}", caveat.because));
        }
    }
    for these in seen {
        let only = seen.iter().find_map(|those| these.unseen.difference(&those.unseen).next());
        if let Some(means) = only {
            return Some(format!("only in {}: {}", these.which, means.trim_end_matches('.')));
        }
    }
    for RecordingGaps { which, losses, .. } in seen {
        let hiding = || losses.iter().filter(|lost| lost.hides_executions);
        let known: u64 = hiding().filter_map(|lost| lost.events).fold(0, u64::saturating_add);
        if hiding().any(|lost| lost.events.is_none()) {
            return Some(format!("{which} lost an unknown number of records"));
        }
        if known as f64 > HARMLESS_LOSS_SHARE * pairs as f64 {
            return Some(format!("{which} lost {known} records, which may have been executions"));
        }
    }
    None
}
