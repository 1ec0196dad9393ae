//! `fathom lab shell`: a terminal in a guest.

use super::run::explained;
use crate::{Usage, args, output, progress};
use anyhow::{Context as _, Result};
use lab::folder;
use lab::run::{NotStarted, Options};
use lab::scenario::{self, Scenario};
use lab::terminal;
use std::process::ExitCode;

pub fn run(args: &args::LabShell) -> Result<ExitCode> {
    let usage = |error: scenario::Error| anyhow::Error::new(Usage(error.to_string()));
    let scenario = match &args.scenario {
        Some(word) => scenario::find(word, &args.set).map(|(_, scenario)| scenario),
        None => Scenario::of_disks(&args.disk, &args.set),
    };
    let scenario = scenario.map_err(usage)?;
    let cache = folder::cache(args.cache.as_deref())?;
    let program = args.program.clone().map_or_else(std::env::current_exe, std::path::absolute);
    let program = program.context("where this program is")?;
    lab::guest::available().map_err(explained)?;
    let temporary = tempfile::tempdir().context("cannot create a folder")?;
    let share = args.output.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(share).with_context(|| format!("cannot create {}", share.display()))?;
    let context = progress::context(false);
    progress::end_on_signal(&context);
    let options = Options { cache: &cache, program: &program, folder: share, keep: false };
    let mut attached = None;
    let ended = lab::run::shell(&scenario, &options, &context, |to| attached = terminal::join(to, output::Stdout));
    progress::clear(&context);
    if let Some(joined) = attached {
        joined.finish();
    }
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(_) if context.cancelled() => Ok(ExitCode::from(crate::bench::INTERRUPTED)),
        Err(NotStarted::Wrong(error)) => Err(usage(error)),
        Err(NotStarted::Lab(error)) => Err(explained(error)),
    }
}
