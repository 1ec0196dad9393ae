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
        output::result(args.json, &contract(&name, &scenario), || scenario.to_toml())?;
        return Ok(ExitCode::SUCCESS);
    }
    let all = scenario::shipped().iter().map(|entry| find(entry.name)).collect::<Result<Vec<_>>>()?;
    let contracts: Vec<_> = all.iter().map(|(name, scenario)| contract(name, scenario)).collect();
    output::result(args.json, &json!({"version": 1, "scenarios": contracts}), || {
        let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        all.iter().map(|(name, scenario)| format!("{name:width$}  {}\n", scenario.about)).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

fn contract(name: &str, scenario: &Scenario) -> serde_json::Value {
    json!({"name": name, "scenario": scenario})
}
