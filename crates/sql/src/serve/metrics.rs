//! A fleet's numbers in Prometheus' text format.

use crate::fleets::log::Fleet;
use crate::otlp::SentCounts;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// All of the metrics.
pub fn text(fleet: &Fleet, sent: Option<SentCounts>) -> String {
    let mut out = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(out, "{name}{labels} {value}");
        }
    };
    let one = |value: u64| vec![(String::new(), value)];
    metric("fathom_fleet_archives", "gauge", "Archives in the fleet.", &one(fleet.state.runs.len() as u64));
    metric("fathom_fleet_commits", "gauge", "Commits so far.", &one(fleet.state.last));
    let mut tables: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for file in fleet.state.files.values() {
        let sums = tables.entry(&file.table).or_default();
        for (sum, one) in sums.iter_mut().zip([1, file.rows, file.bytes]) {
            *sum += one;
        }
    }
    for (at, (name, help)) in [
        ("fathom_fleet_files", "Files of a table."),
        ("fathom_fleet_rows", "Rows of a table."),
        ("fathom_fleet_size_bytes", "Bytes of a table's files."),
    ]
    .into_iter()
    .enumerate()
    {
        let values: Vec<_> = tables.iter().map(|(table, sums)| (format!("{{table=\"{table}\"}}"), sums[at])).collect();
        metric(name, "gauge", help, &values);
    }
    if let Some(sent) = sent {
        let counters = [
            ("fathom_otlp_spans_total", "Spans that the collector took.", sent.spans),
            ("fathom_otlp_rejected_total", "Spans that the collector rejected.", sent.rejected),
            ("fathom_otlp_failures_total", "Exports that failed; they are tried again.", sent.failures),
        ];
        for (name, help, value) in counters {
            metric(name, "counter", help, &one(value));
        }
    }
    out
}
