//! The input of the evaluation of a run, stored in one line of JSON, so that runs measured on one machine are evaluated on
//! every other. The tests evaluate the stored runs of several machines (`crates/net/tests/stored`); `cargo run --package
//! net --example store_run` creates more.
//!
//! Samples are rows of values, in the order of the field names: a field added by a later version is 0, unknown, in an older run.

use super::{BothEnds, Cause};
use crate::outcome::{EndReport, ReceivedDirection, SentDirection};
use crate::spec::Spec;
use crate::tcp_info::{FIELDS, TcpSample};
use serde::{Deserialize, Serialize};

/// A run, where it was measured, and what was injected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRun {
    /// The machine: CPUs, kernel, idle driver, other load.
    pub machine: String,
    /// What was injected, and how.
    pub injected: String,
    /// The causes accepted as the first one.
    pub expected: Vec<Cause>,
    /// Whether it was reconstructed from reported numbers rather than measured.
    #[serde(default)]
    pub reconstructed: bool,
    pub spec: Spec,
    /// The direction at its sender, without its samples.
    pub sent: SentDirection,
    /// Names of a sample's values; `time_ns` and `stream` come first.
    pub fields: Vec<String>,
    pub readings: Vec<Vec<u64>>,
    /// The direction at its receiver.
    pub received: ReceivedDirection,
    pub sender: EndReport,
    pub receiver: EndReport,
    /// Throughput at the receiver, bit/s over the whole run.
    pub rate_bps: f64,
}

/// Why a line is not a stored run.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// It is not valid JSON of a run.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A sample has more or fewer values than there are names.
    #[error("a reading has {figures} values, but there are {names} names")]
    Reading {
        /// The number of values.
        figures: usize,
        /// The number of names.
        names: usize,
    },
}

impl StoredRun {
    /// Stores the input of the evaluation. The ends are stored without their sent and received directions, which are separate fields.
    pub fn from_ends(seen: &BothEnds<'_>, machine: String, injected: String, expected: Vec<Cause>) -> Self {
        let bare = |end: &EndReport| EndReport { sent: Vec::new(), received: Vec::new(), ..end.clone() };
        let names = ["time_ns", "stream"].into_iter().chain(FIELDS.iter().map(|(name, _)| *name));
        Self {
            machine,
            injected,
            expected,
            reconstructed: false,
            spec: seen.spec.clone(),
            sent: SentDirection { samples: Vec::new(), acks: Vec::new(), ..seen.sent.clone() },
            fields: names.map(String::from).collect(),
            readings: seen.sent.samples.iter().map(sample_row).collect(),
            received: seen.received.clone(),
            sender: bare(seen.sender),
            receiver: bare(seen.receiver),
            rate_bps: seen.rate_bps,
        }
    }

    /// Parses one line; the samples are put back into the sent direction.
    pub fn parse(line: &str) -> Result<Self, StoredError> {
        let mut stored: Self = serde_json::from_str(line)?;
        stored.sent.samples =
            stored.readings.iter().map(|row| parse_sample(&stored.fields, row)).collect::<Result<_, _>>()?;
        Ok(stored)
    }

    /// The input of the evaluation.
    pub fn ends(&self) -> BothEnds<'_> {
        BothEnds {
            spec: &self.spec,
            sent: &self.sent,
            received: &self.received,
            sender: &self.sender,
            receiver: &self.receiver,
            rate_bps: self.rate_bps,
            searched: None,
        }
    }
}

fn sample_row(sample: &TcpSample) -> Vec<u64> {
    [sample.time_ns, sample.stream].into_iter().chain(sample.values()).collect()
}

fn parse_sample(fields: &[String], row: &[u64]) -> Result<TcpSample, StoredError> {
    if fields.len() != row.len() {
        return Err(StoredError::Reading { figures: row.len(), names: fields.len() });
    }
    let of = |name: &str| fields.iter().position(|f| f == name).and_then(|at| row.get(at)).copied().unwrap_or(0);
    let values: Vec<u64> =
        ["time_ns", "stream"].into_iter().chain(FIELDS.iter().map(|(name, _)| *name)).map(of).collect();
    // A sample is deserialized from a row of all its values.
    Ok(serde_json::from_value(values.into())?)
}
