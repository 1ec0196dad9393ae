//! `fathom fix`: the remedies for a command, what each gains, and the best of them applied permanently.

use crate::bench::ab::measure_design;
use crate::output::{self, INTERRUPTED_STATUS};
use crate::{args, link, notices, progress};
use anyhow::Result;
use experiment::fix::contract::FixOutcome;
use experiment::fix::remedies::Remedy;
use experiment::fix::text;
use model::Context;
use model::text::shown;
use std::path::Path;
use std::process::ExitCode;
use verdicts::fix::{self, Request};

pub fn run(args: &args::Fix) -> Result<ExitCode> {
    fix::put_back_left_over(&notices::print_runner_notice)?;
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
        return print_list(&fix::list(&request)?);
    }
    let context = Context::silent();
    progress::end_on_signal(&context);
    let trial = fix::prepare(&request, &context, &|path: &Path| Ok(link::open(path, &Context::silent())?))?;
    let Some(design) = &trial.design else {
        let untried = FixOutcome::untried(trial.not_tried.clone(), trial.findings.clone(), args.allow);
        let shown = report_nothing_tried(args, &untried);
        trial.end()?;
        return shown;
    };
    let measured = measure_design(design, &args.output, args.quiet);
    let (tried, not_tried, findings) = (trial.tried.clone(), trial.not_tried.clone(), trial.findings.clone());
    let database = trial.database();
    let put_back = trial.end();
    let (results, outcome, tables) = measured?;
    let fixed = FixOutcome::new(&outcome, tried, not_tried, findings, args.allow);
    let mut value = serde_json::to_value(&fixed)?;
    value["archive"] = serde_json::json!(args.output);
    output::print_result(args.json, &value, || text::text(&fixed))?;
    tables?;
    put_back?;
    if !results.complete() {
        eprintln!("fathom: interrupted; what was measured is kept: fathom bench show {}", output::word(&args.output));
        return Ok(ExitCode::from(INTERRUPTED_STATUS));
    }
    if let Some(why) = FixOutcome::baseline_failure(&outcome) {
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

fn print_list(remedies: &[Remedy]) -> Result<ExitCode> {
    output::print_text(&text::list(remedies));
    Ok(ExitCode::SUCCESS)
}

/// Reports that nothing was tried, which is a result, not a failure.
fn report_nothing_tried(args: &args::Fix, untried: &FixOutcome) -> Result<ExitCode> {
    let mut value = serde_json::to_value(untried)?;
    value["archive"] = serde_json::Value::Null;
    output::print_result(args.json, &value, || text::untried(untried))?;
    Ok(ExitCode::SUCCESS)
}
