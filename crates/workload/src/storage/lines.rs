//! The output of a run: collected while it runs and written after it, so that a slow reader disturbs nothing.

use crate::clock;
use serde_json::{Value, json};

/// The lines of a run.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    bytes: Vec<u8>,
}

impl Lines {
    /// One iteration: its start (CLOCK_BOOTTIME) and duration, ns.
    pub(crate) fn iteration(&mut self, start_ns: u64, duration_ns: u64) {
        self.put(&json!({"metric": "iteration", "unit": "ns", "t": start_ns, "v": duration_ns}));
    }

    /// The amount of work per iteration.
    pub(crate) fn work(&mut self, unit: &str, amount: u64) {
        self.put(&json!({"metric": "work", "unit": unit, "v": amount}));
    }

    /// A number measured now.
    pub(crate) fn sample(&mut self, metric: &str, unit: &str, value: f64) {
        self.put(&json!({"metric": metric, "unit": unit, "t": clock::now_ns(), "v": value}));
    }

    /// A fact of the run.
    pub(crate) fn mark(&mut self, name: &str, text: impl std::fmt::Display) {
        self.put(&json!({"mark": name, "text": text.to_string()}));
    }

    /// Reports that the result was checked, and how.
    pub(crate) fn verified(&mut self, by: impl std::fmt::Display) {
        self.put(&json!({"verified": true, "by": by.to_string()}));
    }

    fn put(&mut self, line: &Value) {
        self.bytes.extend_from_slice(line.to_string().as_bytes());
        self.bytes.push(b'\n');
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
