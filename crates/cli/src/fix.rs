//! `fathom fix`: the remedies for a command, what each brings, and the best of them set for good.

use crate::bench::{INTERRUPTED, measured};
use crate::{args, link, notices, output};
use anyhow::Result;
use experiment::ab::contract::Outcome;
use experiment::fix::contract::Fixed;
use experiment::fix::remedies::{Durability, Remedy};
use experiment::fix::text;
use model::Context;
use runner::fix::{self, Request};
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &args::Fix) -> Result<ExitCode> {
    fix::put_back_left_over(&notices::remark)?;
    let request = Request {
        command: &args.command,
        database: args.database.as_deref(),
        prepare: args.prepare.as_deref(),
        names: &args.names,
        system: args.system,
        scratch: args.scratch.as_deref(),
        blocks: args.blocks,
        budget: args.budget,
        precision: args.precision,
        seed: args.seed,
    };
    if args.list {
        return list(&fix::list(&request)?);
    }
    let allowed = match args.allow {
        args::Allow::Same => Durability::Same,
        args::Allow::LastCommits => Durability::LastCommits,
        args::Allow::Corruption => Durability::Corruption,
    };
    let trial = fix::prepare(&request, &|path: &Path| Ok(link::open(path, &Context::silent())?))?;
    let Some(design) = &trial.design else {
        let untried = Fixed::untried(trial.not_tried.clone(), trial.findings.clone(), allowed);
        let said = nothing(args, &untried);
        trial.end()?;
        return said;
    };
    let measured = measured(design, &args.output, args.quiet);
    let (tried, not_tried, findings) = (trial.tried.clone(), trial.not_tried.clone(), trial.findings.clone());
    let database = trial.database();
    let put_back = trial.end();
    let (results, tables) = measured?;
    let fixed = Fixed::new(&Outcome::new(&results), tried, not_tried, findings, allowed);
    let mut value = serde_json::to_value(&fixed)?;
    value["archive"] = serde_json::json!(args.output);
    output::result(args.json, &value, || text::text(&fixed))?;
    tables?;
    put_back?;
    if !results.complete() {
        eprintln!("fathom: interrupted; what was measured is kept: fathom bench show {}", output::word(&args.output));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    match (args.apply, fixed.best()) {
        (true, Some(best)) => {
            fix::apply(best, database.as_deref())?.iter().for_each(|done| eprintln!("fathom: {done}"))
        }
        (true, None) => eprintln!("fathom: --apply: there is nothing to set"),
        (false, _) => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn list(remedies: &[Remedy]) -> Result<ExitCode> {
    for remedy in remedies {
        println!("{}", remedy.name);
        text::settings(remedy).iter().for_each(|setting| println!("  {setting}"));
        println!("  gives up: {}", remedy.gives_up);
    }
    Ok(ExitCode::SUCCESS)
}

/// Nothing was tried: that is an answer, not a failure.
fn nothing(args: &args::Fix, untried: &Fixed) -> Result<ExitCode> {
    let mut value = serde_json::to_value(untried)?;
    value["archive"] = serde_json::Value::Null;
    output::result(args.json, &value, || {
        let mut text = match &untried.findings[..] {
            [] => "No finding names a remedy.\n".to_owned(),
            codes => format!("Findings: {}; none of their remedies can be tried here.\n", codes.join(", ")),
        };
        untried.not_tried.iter().for_each(|one| text.push_str(&format!("  {}: {}\n", one.name, one.why)));
        text
    })?;
    Ok(ExitCode::SUCCESS)
}
