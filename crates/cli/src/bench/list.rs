//! `fathom bench list`: the workloads, what can be varied, and what this machine lacks.

use crate::{Usage, args, output};
use anyhow::Result;
use experiment::Workload;
use experiment::catalog::{self, Runnable};
use experiment::list::{contract, text};
use scores::measure::run::find;
use serde_json::{Value, json};
use std::process::ExitCode;

pub fn run(args: &args::BenchList) -> Result<ExitCode> {
    let workloads = if args.workloads.is_empty() {
        catalog::all()?
    } else {
        let named = |word: &String| -> Result<Workload> {
            match find(word, false)? {
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
    output::print_text(&text);
    Ok(ExitCode::SUCCESS)
}
