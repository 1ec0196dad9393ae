//! What a network run reports: its score with an interval, what limited it, and how it was measured.
//!
//! The interval of a benchmark's cell comes from the differences between processes. A run is one process; the precision of
//! its mean follows from the differences between its parts (batch means, `net::estimate`), and the run stored the interval
//! with its estimate. So both are read here, not computed: for each direction `METRIC`, `METRIC.low` and `METRIC.high`. Two
//! simultaneous directions are not independent runs, so their intervals add up.
//!
//! The run also stored what limited a direction, as the mark `limited_by DIRECTION`, whose text is the JSON of the
//! contract of `fathom net run --json`.

use super::{Score, ScoreKind};
pub use archive::runs::NET_RUN as RUN;
use model::table::{DesignRow, Sample};
use serde::{Deserialize, Serialize};

/// Prefix of the mark of a direction's limits, followed by the direction.
pub const LIMITED_BY: &str = "limited_by ";
/// How the interval was computed.
const INTERVAL_METHOD: &str = "batch means of this one run";

/// What limited one direction of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DirectionLimits {
    /// The run's archive, if the page shows several.
    pub run: Option<String>,
    /// `up` or `down`.
    pub direction: String,
    /// The causes, the largest first.
    pub limits: Vec<Limit>,
}

/// A cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The cause in words: `link rate`.
    pub cause: String,
    /// Its share of the run's time, 0 to 1.
    pub share: f64,
    pub evidence: String,
    /// What would remove it.
    pub remedy: Option<String>,
}

/// A score as a run reported it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunScore {
    /// The estimate, of all directions together.
    pub value: f64,
    /// Its confidence interval, if the run was long enough for one.
    pub ci95: Option<[f64; 2]>,
}

impl RunScore {
    /// Returns how the interval was computed; empty if there is none.
    pub fn method(&self) -> &'static str {
        if self.ci95.is_some() { INTERVAL_METHOD } else { "" }
    }
}

/// Returns the score in these samples of a run, of all directions or of those whose labels satisfy `wanted`.
pub fn run_score(metric: &str, samples: &[&Sample], wanted: impl Fn(&str) -> bool) -> Option<RunScore> {
    let of = |metric: &str| -> Vec<f64> {
        samples.iter().filter(|s| s.metric == metric && wanted(&s.labels)).map(|s| s.value).collect()
    };
    let (values, lows, highs) = (of(metric), of(&format!("{metric}.low")), of(&format!("{metric}.high")));
    let whole = lows.len() == values.len() && highs.len() == values.len();
    let ci95 = whole.then(|| [lows.iter().sum(), highs.iter().sum()]);
    (!values.is_empty()).then(|| RunScore { value: values.iter().sum(), ci95 })
}

/// Describes how a run was measured, in sentences; `None` for any other design.
pub(super) fn describe_method(design: &DesignRow) -> Option<Vec<String>> {
    (design.name == RUN).then(|| {
        vec![
            "One run. Throughput was counted at the receiver every 100 ms, transactions at the client.".into(),
            "The score is the mean of the steady state, or of the whole run if there is none, with an interval from \
             ten batch means. The interval is of this run's mean; it does not include variation between runs."
                .into(),
        ]
    })
}

/// Converts a cause from its form in JSON and samples to words.
pub(super) fn cause_in_words(written: &str) -> String {
    if written == "cpu" { "CPU".into() } else { written.replace('_', " ") }
}

/// Whether a score is one that a run reported.
pub(super) fn is_per_run(score: &Score) -> bool {
    score.kind == ScoreKind::Run
}
