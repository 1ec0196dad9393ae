//! `fathom lab list`: the scenarios, a line each; or one of them as a file.

use crate::{Usage, args, output};
use anyhow::Result;
use lab::scenario::{self, Scenario, Series};
use serde_json::json;
use std::process::ExitCode;

pub fn run(args: &args::LabList) -> Result<ExitCode> {
    let find = |word: &str| scenario::find(word, &[]).map_err(|e| anyhow::Error::new(Usage(e.to_string())));
    if let Some(word) = &args.scenario {
        let (name, scenario) = find(word)?;
        output::print_result(args.json, &contract(&name, &scenario), || scenario.to_toml())?;
        return Ok(ExitCode::SUCCESS);
    }
    let all = scenario::shipped().iter().map(|entry| find(entry.name)).collect::<Result<Vec<_>>>()?;
    let contracts: Vec<_> = all.iter().map(|(name, scenario)| contract(name, scenario)).collect();
    let series = scenario::series();
    let runs = |s: &Series| s.runs.iter().map(|(name, run)| json!({"name": name, "scenario": run})).collect::<Vec<_>>();
    let listed: Vec<_> =
        series.iter().map(|s| json!({"name": s.name, "about": s.about, "figure": s.figure, "runs": runs(s)})).collect();
    output::print_result(args.json, &json!({"version": 1, "scenarios": contracts, "series": listed}), || {
        let scenarios = all.iter().map(|(name, scenario)| (name.as_str(), scenario.about.as_str()));
        let mut lines: Vec<(&str, &str)> = scenarios.chain(series.iter().map(|s| (s.name, s.about))).collect();
        lines.sort_unstable();
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        lines.iter().map(|(name, about)| format!("{name:width$}  {about}\n")).collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

fn contract(name: &str, scenario: &Scenario) -> serde_json::Value {
    json!({"name": name, "scenario": scenario})
}
