//! A run as the judgement sees it, kept in one line of JSON, so that what one machine saw is judged on every other. The tests judge the stored runs of
//! several machines (`crates/net/tests/stored`); `cargo run --package net --example store_run` makes more.
//!
//! Readings are rows under the names of their fields: a field that a later version adds is 0, unknown, in an older run.

use super::{BothEnds, Cause};
use crate::outcome::{EndReport, Received, Sent};
use crate::spec::Spec;
use crate::tcp_info::{FIELDS, TcpSample};
use serde::{Deserialize, Serialize};

/// A run, where it was made, and what was done to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// The machine: processors, kernel, idle driver, what else it did.
    pub machine: String,
    /// What was injected, and by what means.
    pub injected: String,
    /// What may be named first.
    pub expected: Vec<Cause>,
    /// Whether it was synthesised from reported numbers, and not read.
    #[serde(default)]
    pub reconstructed: bool,
    /// What was asked for.
    pub spec: Spec,
    /// The direction at its sender, without its readings.
    pub sent: Sent,
    /// Names of a reading's figures; `time_ns` and `stream` come first.
    pub fields: Vec<String>,
    /// The readings.
    pub readings: Vec<Vec<u64>>,
    /// The direction at its receiver.
    pub received: Received,
    /// The sending end.
    pub sender: EndReport,
    /// The receiving end.
    pub receiver: EndReport,
    /// What arrived, bit/s over the whole run.
    pub rate_bps: f64,
}

/// Why a line is no stored run.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// It is not written as one.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The meaning of a reading's figures is unknown.
    #[error("a reading has {figures} figures, and there are {names} names")]
    Reading {
        /// Of the reading.
        figures: usize,
        /// Of the run.
        names: usize,
    },
}

impl Stored {
    /// Keeps what the judgement sees. The ends are kept without what they sent and received, which stands beside them.
    pub fn of(seen: &BothEnds<'_>, machine: String, injected: String, expected: Vec<Cause>) -> Self {
        let bare = |end: &EndReport| EndReport { sent: Vec::new(), received: Vec::new(), ..end.clone() };
        let names = ["time_ns", "stream"].into_iter().chain(FIELDS.iter().map(|(name, _)| *name));
        Self {
            machine,
            injected,
            expected,
            reconstructed: false,
            spec: seen.spec.clone(),
            sent: Sent { samples: Vec::new(), acks: Vec::new(), ..seen.sent.clone() },
            fields: names.map(String::from).collect(),
            readings: seen.sent.samples.iter().map(row).collect(),
            received: seen.received.clone(),
            sender: bare(seen.sender),
            receiver: bare(seen.receiver),
            rate_bps: seen.rate_bps,
        }
    }

    /// Reads one line; the readings are put back where the judgement looks for them.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn parse(line: &str) -> Result<Self, StoredError> {
        let mut stored: Self = serde_json::from_str(line)?;
        stored.sent.samples =
            stored.readings.iter().map(|row| sample(&stored.fields, row)).collect::<Result<_, _>>()?;
        Ok(stored)
    }

    /// What the judgement sees.
    pub fn seen(&self) -> BothEnds<'_> {
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

fn row(sample: &TcpSample) -> Vec<u64> {
    [sample.time_ns, sample.stream].into_iter().chain(sample.values()).collect()
}

fn sample(fields: &[String], row: &[u64]) -> Result<TcpSample, StoredError> {
    if fields.len() != row.len() {
        return Err(StoredError::Reading { figures: row.len(), names: fields.len() });
    }
    let of = |name: &str| fields.iter().position(|f| f == name).and_then(|at| row.get(at)).copied().unwrap_or(0);
    let values: Vec<u64> =
        ["time_ns", "stream"].into_iter().chain(FIELDS.iter().map(|(name, _)| *name)).map(of).collect();
    // A sample reads itself from a row of all its figures.
    Ok(serde_json::from_value(values.into())?)
}
