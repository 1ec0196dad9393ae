//! Runs a built-in workload once, in this process, if nothing can be recorded: latencies without a design.

use crate::measure::{Error, Result};
use analysis::text::{digits, duration};
use model::Context;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The papers' load: INSERTs in separate transactions, then full scans.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// INSERTs.
    pub rows: u64,
    /// Full scans afterwards.
    pub scans: u64,
    /// SQLite's journal mode.
    pub journal_mode: &'a str,
    /// The directory of the database.
    pub directory: &'a str,
}

impl Load<'_> {
    /// Returns the arguments after `fathom workload`; `samples`: which latencies it prints.
    pub fn words(&self, samples: &str) -> Vec<String> {
        let Self { rows, scans, journal_mode, directory } = self;
        vec![
            "demo".into(),
            format!("--rows={rows}"),
            format!("--scans={scans}"),
            format!("--journal-mode={journal_mode}"),
            format!("--samples={samples}"),
            format!("--dir={directory}"),
        ]
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Latencies {
    /// Latencies of each statement, in ns, ascending.
    statements: BTreeMap<String, Vec<f64>>,
    /// How the result was checked.
    checked: Option<String>,
}

/// Runs the workload with these arguments.
///
/// # Errors
/// The workload failed, or its output is malformed.
pub fn run(words: &[String], context: &Context) -> Result<Latencies> {
    let mut lines = Vec::new();
    workload::run(words, context, &mut lines)?;
    let found = Latencies::from_output(&String::from_utf8_lossy(&lines));
    found.map_err(|source| Error::MalformedOutput { what: "the workload", source })
}

impl Latencies {
    /// Parses the output of a workload, one sample per line.
    fn from_output(lines: &str) -> serde_json::Result<Self> {
        let mut all = Self::default();
        for line in lines.lines() {
            let line: Value = serde_json::from_str(line)?;
            if let (Some(metric), Some(value)) = (line["metric"].as_str(), line["v"].as_f64()) {
                if let Some(statement) = metric.strip_suffix(".latency") {
                    all.statements.entry(statement.to_uppercase()).or_default().push(value);
                }
            } else if line["verified"] == true {
                all.checked = line["by"].as_str().map(str::to_string);
            }
        }
        all.statements.values_mut().for_each(|all| all.sort_by(f64::total_cmp));
        Ok(all)
    }

    /// Formats a line for each statement.
    pub fn text(&self) -> String {
        self.statements.iter().fold(String::new(), |mut out, (statement, all)| {
            let at =
                |share: f64| all.get(((all.len() - 1) as f64 * share).round() as usize).copied().unwrap_or(f64::NAN);
            let rate = 1e9 * all.len() as f64 / all.iter().sum::<f64>();
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "  {statement:<8} {:>6} times: median {}, p95 {}, max {}; {} a second",
                all.len(),
                duration(at(0.5)),
                duration(at(0.95)),
                duration(at(1.0)),
                digits(rate)
            );
            out
        })
    }

    /// Returns how the workload's result was checked; `None` if it did not report it.
    pub fn checked(&self) -> Option<&str> {
        self.checked.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_each_statement_are_sorted() {
        let samples: String =
            [3000, 1000, 2000].iter().map(|ns| format!("{{\"metric\": \"insert.latency\", \"v\": {ns}}}\n")).collect();
        let other = "{\"metric\": \"rate\", \"v\": 5}\n{\"verified\": true, \"by\": \"count\"}";
        let found = Latencies::from_output(&(samples + other)).unwrap();
        assert_eq!(
            found.text(),
            "  INSERT        3 times: median 2.00 us, p95 3.00 us, max 3.00 us; 500000 a second\n"
        );
        assert_eq!(found.checked(), Some("count"));
        assert_eq!(Latencies::from_output("{\"verified\": false, \"by\": \"x\"}").unwrap().checked(), None);
        assert!(Latencies::from_output("no JSON").is_err());
    }
}
