//! `fathom bench selftest`: the same command under two names, compared again and again.

use super::eta;
use crate::output::{self, INTERRUPTED_STATUS};
use crate::{Usage, args, notices, progress};
use anyhow::{Context as _, Result};
use experiment::catalog::{self, Runnable};
use experiment::eta::{Eta, Limit, Part};
use scores::measure::run::find;
use scores::measure::selftest::{self, Request};
use std::process::ExitCode;
use std::time::Duration;

/// The bar's initial estimate: the actual time is unknown.
const DURATION_ESTIMATE: Duration = Duration::from_secs(3600);

pub fn run(args: &args::BenchSelftest) -> Result<ExitCode> {
    let workload = match args.what.as_deref().map(|word| find(word, false)).transpose()? {
        None => catalog::selftest()?,
        Some(Runnable::Workload(workload)) => workload,
        Some(Runnable::Comparison(design)) => {
            return Err(Usage(format!("{} is a design; give a workload", design.name)).into());
        }
    };
    let request = Request {
        fathom: &std::env::current_exe().context("cannot find Fathom's own binary")?,
        workload: &workload,
        comparisons: args.comparisons,
        blocks: args.blocks,
        seed: args.seed.unwrap_or_else(|| archive::unix_now_ns() % 1_000_000_000),
        wait: !args.no_wait,
        margin: args.margin,
    };
    let (context, _) = eta::context(false, Eta::new(vec![Part { budget: DURATION_ESTIMATE, limit: Limit::None }]));
    progress::end_on_signal(&context);
    let done = selftest::run(&request, &context, &notices::print_runner_notice)?;
    output::print_result(args.json, &done.json(&request)?, || done.text(&request))?;
    Ok(if done.complete { ExitCode::SUCCESS } else { ExitCode::from(INTERRUPTED_STATUS) })
}
