//! What a recording cannot carry: conclusions that do not hold whatever its rows say. Verdicts, savings and predictions are made from a
//! recording together with its caveats, and results hold them, so that no view of a result has to know them.

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
    /// More than 1 % of the device commands have no known origin.
    UnknownOrigins,
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

impl Caveats {
    /// From a list of them.
    pub fn new(all: Vec<Caveat>) -> Self {
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
        self.with_limit(Limit::EmulatedProcessor)
    }

    /// The one that makes the requests of each operation too few.
    pub fn against_charges(&self) -> Option<&Caveat> {
        self.with_limit(Limit::UnknownOrigins)
    }

    fn with_limit(&self, limit: Limit) -> Option<&Caveat> {
        self.0.iter().find(|caveat| caveat.limit == limit)
    }
}
