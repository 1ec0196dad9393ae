//! `fathom lab list`: the scenarios, a line each; or one of them as a file.

use crate::{Usage, args, output};
use anyhow::Result;
use lab::scenario::{self, Scenario};
use serde_json::json;
use std::process::ExitCode;

pub fn run(args: &args::LabList) -> Result<ExitCode> {
    let find = |word: &str| scenario::find(word, &[]).map_err(|e| anyhow::Error::new(Usage(e.to_string())));
    if let Some(word) = &args.scenario {
        let (name, scenario) = find(word)?;
        match args.json {
            true => output::text(&(serde_json::to_string_pretty(&contract(&name, &scenario))? + "\n")),
            false => output::text(&scenario.to_toml()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let all = scenario::shipped().iter().map(|entry| find(entry.name)).collect::<Result<Vec<_>>>()?;
    if args.json {
        let all: Vec<_> = all.iter().map(|(name, scenario)| contract(name, scenario)).collect();
        output::text(&(serde_json::to_string_pretty(&json!({"version": 1, "scenarios": all}))? + "\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, scenario) in &all {
        println!("{name:width$}  {}", scenario.about);
    }
    Ok(ExitCode::SUCCESS)
}

fn contract(name: &str, scenario: &Scenario) -> serde_json::Value {
    json!({"name": name, "scenario": scenario})
}
