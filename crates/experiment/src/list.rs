//! The workloads, what can be varied in them, and what this machine lacks for them; for people and for programs.

use crate::suite::Factor;
use crate::{Workload, needs};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// Returns what the workload or one of its values needs and this machine lacks: (the value that needs it, the reason).
fn missing_needs(workload: &Workload) -> Vec<(Option<String>, String)> {
    let here = Path::new(".");
    let of = |value: Option<String>, all: &[String]| {
        all.iter().filter_map(|need| Some((value.clone(), needs::unmet(need, here)?))).collect::<Vec<_>>()
    };
    let by_value = |f: &Factor| -> Vec<(Option<String>, String)> {
        f.needs.iter().flat_map(|(value, all)| of(Some(format!("{}={value}", f.name)), all)).collect()
    };
    of(None, &workload.needs).into_iter().chain(workload.factors.iter().flat_map(by_value)).collect()
}

/// Formats a workload for people.
pub fn text(workload: &Workload) -> String {
    let mut out = format!("{}\n  {}\n", workload.name, workload.question);
    if !workload.figures.is_empty() {
        let _ = writeln!(out, "  figures of the papers: {}", workload.figures.join(", "));
    }
    let width = workload.factors.iter().map(|f| f.name.len()).max().unwrap_or(0);
    for factor in &workload.factors {
        let _ = writeln!(out, "    {:width$}  {}", factor.name, factor.about);
        let quick = match &factor.quick[..] {
            [] => String::new(),
            quick => format!(" (quick: {})", quick.join(", ")),
        };
        let _ = writeln!(
            out,
            "    {:width$}  default {}{quick}; allowed: {}",
            "",
            factor.default.join(", "),
            factor.allowed()
        );
    }
    let needs: BTreeSet<&String> =
        workload.needs.iter().chain(workload.factors.iter().flat_map(|f| f.needs.values().flatten())).collect();
    if !needs.is_empty() {
        let all: Vec<&str> = needs.into_iter().map(String::as_str).collect();
        let _ = writeln!(out, "  needs: {}", all.join(", "));
    }
    for (value, why) in missing_needs(workload) {
        let _ = writeln!(out, "  not available{}: {why}", value.map_or(String::new(), |v| format!(" ({v})")));
    }
    out.push('\n');
    out
}

/// Formats a workload as JSON: docs/reference/json.md.
pub fn contract(workload: &Workload) -> Value {
    let factor = |f: &Factor| {
        json!({"name": f.name, "about": f.about, "default": f.default, "quick": f.quick, "values": f.values,
               "range": f.range, "free": f.free, "folder": f.directory, "needs": f.needs})
    };
    let lacking: Vec<Value> =
        missing_needs(workload).into_iter().map(|(value, why)| json!({"value": value, "why": why})).collect();
    json!({"name": workload.name, "question": workload.question, "figures": workload.figures, "needs": workload.needs,
           "better": workload.score.better().map(crate::Better::name), "lacking": lacking,
           "parameters": workload.factors.iter().map(factor).collect::<Vec<_>>()})
}
