//! `fathom bench ab`: compares commands.

use super::eta;
use crate::output::{self, INTERRUPTED_STATUS};
use crate::{Usage, args, notices, progress};
use analysis::text::shown;
use anyhow::{Context as _, Result};
use experiment::ab::contract::Outcome;
use experiment::ab::git::{self, Worktrees};
use experiment::ab::{self, AbRequest, Command};
use experiment::eta::{Eta, Part};
use experiment::{Design, Results};
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &args::BenchAb) -> Result<ExitCode> {
    let parameters = scores::measure::ab::parse_parameters(&args.param)?;
    let lines = args.commands.iter().map(|line| Command { line: line.clone(), ..Command::default() });
    let mut commands =
        ab::combine_parameters(&lines.collect::<Vec<_>>(), &parameters).map_err(|why| Usage(why.to_string()))?;
    if args.git.is_none() && commands.len() < 2 {
        return Err(
            Usage("at least two commands are needed, each as one word in quotes: -- 'CMD A' 'CMD B'".into()).into()
        );
    }
    if args.git.is_none() && args.prepare.is_none() {
        commands.iter().try_for_each(scores::measure::ab::check_program)?;
    }
    let worktrees = args.git.as_ref().map(|range| check_out(args, range)).transpose()?;
    if let Some(worktrees) = &worktrees {
        commands = scores::measure::ab::in_worktrees(worktrees, &commands);
    }
    let design = ab::design(&AbRequest {
        commands,
        prepare: args.prepare.clone(),
        warmup: args.warmup,
        blocks: args.blocks,
        budget: args.budget,
        precision: args.precision,
        seed: args.seed.unwrap_or_else(|| archive::unix_now_ns() % 1_000_000_000),
    })?;
    let (results, outcome, tables) = measure_design(&design, &args.output, args.quiet)?;
    let mut value = serde_json::to_value(&outcome)?;
    value["archive"] = serde_json::json!(args.output);
    output::print_result(args.json, &value, || ab::text::text(&outcome))?;
    tables?;
    report_end(args, &outcome, results.complete())
}

/// Runs such a design into an archive; returns the results, their evaluation, and whether its tables could be made.
pub fn measure_design(design: &Design, to: &Path, quiet: bool) -> Result<(Results, Outcome, Result<()>)> {
    notices::keep_old(to, quiet)?;
    let (context, _) = eta::context(quiet, Eta::new(vec![Part::from_design(design)]));
    progress::end_on_signal(&context);
    let (results, machine) = scores::measure::ab::measure(design, to, &context, &notices::print_runner_notice)?;
    let tables = experiment::tables::make(to).map(|made| drop(notices::print_warnings(made)));
    recorder::output::give_to_caller(to)?;
    let outcome = Outcome::new(&results, &machine);
    Ok((results, outcome, tables.map_err(Into::into)))
}

/// The exit status, and the messages with it.
fn report_end(args: &args::BenchAb, outcome: &Outcome, complete: bool) -> Result<ExitCode> {
    if !complete {
        let what = if args.git.is_none() {
            format!("continue with: fathom bench run --resume {}", output::word(&args.output))
        } else {
            format!("what was measured is kept: fathom bench show {}", output::word(&args.output))
        };
        eprintln!("fathom: interrupted; {what}");
        return Ok(ExitCode::from(INTERRUPTED_STATUS));
    }
    let (lines, passed) = ab::verdict(outcome, args.fail_on);
    lines.iter().for_each(|line| eprintln!("fathom: {line}"));
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The commits in worktrees, built.
fn check_out(args: &args::BenchAb, range: &str) -> Result<Worktrees> {
    let here = std::env::current_dir().context("cannot determine the current directory")?;
    let context = model::Context::silent();
    progress::end_on_signal(&context);
    // git, too, may have ended because of the signal.
    let interrupted = |error: git::Error| {
        if context.cancelled() { scores::measure::Error::Cancelled.into() } else { anyhow::Error::from(error) }
    };
    let worktrees = Worktrees::new(&here, range).map_err(interrupted)?;
    if let Some(build) = &args.build {
        for (at, (commit, _)) in worktrees.all.iter().enumerate() {
            if !args.quiet {
                eprintln!("fathom: building {}", shown(commit));
            }
            worktrees.build(at, build, &|| context.cancelled()).map_err(interrupted)?;
        }
    }
    Ok(worktrees)
}
