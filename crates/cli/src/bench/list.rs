//! `fathom bench list`: the workloads, what can be varied, and what this machine lacks.

use super::suite;
use crate::{Usage, args, output};
use anyhow::Result;
use experiment::catalog::{self, Runnable};
use experiment::suite::Factor;
use experiment::{Workload, needs};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &args::BenchList) -> Result<ExitCode> {
    let workloads = if args.workloads.is_empty() {
        catalog::all()?
    } else {
        let named = |word: &String| -> Result<Workload> {
            match suite::find(word)? {
                Runnable::Workload(workload) => Ok(workload),
                Runnable::Comparison(_) => {
                    Err(Usage(format!("{word} is a design: its cells are listed in the file")).into())
                }
            }
        };
        args.workloads.iter().map(named).collect::<Result<_>>()?
    };
    let text = if args.json {
        let all: Vec<Value> = workloads.iter().map(contract).collect();
        serde_json::to_string_pretty(&json!({"version": 1, "workloads": all}))? + "\n"
    } else {
        workloads.iter().map(text).collect()
    };
    output::text(&text);
    Ok(ExitCode::SUCCESS)
}

/// What the workload or one of its values needs and this machine has not: (which value needs it, the reason).
fn lacking(workload: &Workload) -> Vec<(Option<String>, String)> {
    let here = Path::new(".");
    let of = |value: Option<String>, all: &[String]| {
        all.iter().filter_map(|need| Some((value.clone(), needs::unmet(need, here)?))).collect::<Vec<_>>()
    };
    let by_value = |f: &Factor| -> Vec<(Option<String>, String)> {
        f.needs.iter().flat_map(|(value, all)| of(Some(format!("{}={value}", f.name)), all)).collect()
    };
    of(None, &workload.needs).into_iter().chain(workload.factors.iter().flat_map(by_value)).collect()
}

fn text(workload: &Workload) -> String {
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
    for (value, why) in lacking(workload) {
        let _ = writeln!(out, "  not available{}: {why}", value.map_or(String::new(), |v| format!(" ({v})")));
    }
    out.push('\n');
    out
}

fn contract(workload: &Workload) -> Value {
    let factor = |f: &Factor| {
        json!({"name": f.name, "about": f.about, "default": f.default, "quick": f.quick, "values": f.values,
               "range": f.range, "free": f.free, "folder": f.folder, "needs": f.needs})
    };
    let lacking: Vec<Value> =
        lacking(workload).into_iter().map(|(value, why)| json!({"value": value, "why": why})).collect();
    json!({"name": workload.name, "question": workload.question, "figures": workload.figures, "needs": workload.needs,
           "better": workload.score.better().map(experiment::Better::name), "lacking": lacking,
           "parameters": workload.factors.iter().map(factor).collect::<Vec<_>>()})
}
