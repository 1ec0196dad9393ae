//! `fathom fix`: the remedies for a command, what each gains, and the best of them applied permanently.

use crate::bench::ab::measured;
use crate::output::{self, INTERRUPTED};
use crate::{args, link, notices, progress};
use anyhow::Result;
use experiment::fix::contract::Fixed;
use experiment::fix::remedies::Remedy;
use experiment::fix::text;
use model::Context;
use model::text::shown;
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
    let context = Context::silent();
    progress::end_on_signal(&context);
    let trial = fix::prepare(&request, &context, &|path: &Path| Ok(link::open(path, &Context::silent())?))?;
    let Some(design) = &trial.design else {
        let untried = Fixed::untried(trial.not_tried.clone(), trial.findings.clone(), args.allow);
        let shown = nothing(args, &untried);
        trial.end()?;
        return shown;
    };
    let measured = measured(design, &args.output, args.quiet);
    let (tried, not_tried, findings) = (trial.tried.clone(), trial.not_tried.clone(), trial.findings.clone());
    let database = trial.database();
    let put_back = trial.end();
    let (results, outcome, tables) = measured?;
    let fixed = Fixed::new(&outcome, tried, not_tried, findings, args.allow);
    let mut value = serde_json::to_value(&fixed)?;
    value["archive"] = serde_json::json!(args.output);
    output::result(args.json, &value, || text::text(&fixed))?;
    tables?;
    put_back?;
    if !results.complete() {
        eprintln!("fathom: interrupted; what was measured is kept: fathom bench show {}", output::word(&args.output));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    if let Some(why) = Fixed::baseline_failure(&outcome) {
        eprintln!("fathom: the unchanged command failed: {}", shown(&why));
        return Ok(ExitCode::FAILURE);
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
    output::text(&text::list(remedies));
    Ok(ExitCode::SUCCESS)
}

/// Reports that nothing was tried, which is a result, not a failure.
fn nothing(args: &args::Fix, untried: &Fixed) -> Result<ExitCode> {
    let mut value = serde_json::to_value(untried)?;
    value["archive"] = serde_json::Value::Null;
    output::result(args.json, &value, || text::untried(untried))?;
    Ok(ExitCode::SUCCESS)
}
