//! `fathom fleet ls`: the content of a fleet, and the files an engine must read to see all of it once.

use super::log::Fleet;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A table's files.
#[derive(Debug, Default)]
struct Sum {
    days: std::collections::BTreeSet<String>,
    files: usize,
    rows: u64,
    bytes: u64,
}

fn sums(fleet: &Fleet) -> BTreeMap<&str, Sum> {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for file in fleet.state.files.values() {
        let sum = sums.entry(&file.table).or_default();
        sum.days.insert(file.date.clone());
        sum.files += 1;
        sum.rows += file.rows;
        sum.bytes += file.bytes;
    }
    sums
}

/// The listing for people.
pub fn text(fleet: &Fleet) -> String {
    let sums = sums(fleet);
    let whole: u64 = sums.values().map(|sum| sum.bytes).sum();
    let mut out = format!(
        "{}, {} in {} after {}\n",
        model::counted(fleet.state.runs.len(), "archive"),
        model::text::bytes(whole as f64),
        model::counted(fleet.state.files.len(), "file"),
        model::counted(usize::try_from(fleet.state.last).unwrap_or(usize::MAX), "commit"),
    );
    let rules = &fleet.info.private;
    if !rules.keep_all() {
        let word = |treatment| {
            serde_json::to_value(treatment).ok().and_then(|word| word.as_str().map(String::from)).unwrap_or_default()
        };
        out += &format!("commands: {}, paths: {}, sql: {}\n", word(rules.commands), word(rules.paths), word(rules.sql));
    }
    out += &format!("{:<16} {:>6} {:>7} {:>14} {:>10}\n", "table", "days", "files", "rows", "size");
    for (table, sum) in sums {
        let size = model::text::bytes(sum.bytes as f64);
        out += &format!("{table:<16} {:>6} {:>7} {:>14} {size:>10}\n", sum.days.len(), sum.files, sum.rows);
    }
    out
}

/// The listing for programs (docs/reference/json.md).
pub fn json(fleet: &Fleet) -> Value {
    let tables: Vec<Value> = sums(fleet)
        .into_iter()
        .map(|(table, sum)| {
            json!({"table": table, "days": sum.days.len(), "files": sum.files, "rows": sum.rows, "size_bytes": sum.bytes})
        })
        .collect();
    json!({
        "format": "fathom.fleet",
        "version": 1,
        "archives": fleet.state.runs.len(),
        "commits": fleet.state.last,
        "keep_raw": fleet.info.keep_raw,
        "private": fleet.info.private,
        "tables": tables,
    })
}

/// The files of a table, or of all, one per line.
pub fn files(fleet: &Fleet, table: Option<&str>) -> String {
    let files = fleet.state.files.values().filter(|file| table.is_none_or(|table| table == file.table));
    files.map(|file| format!("{}\n", file.path)).collect()
}
