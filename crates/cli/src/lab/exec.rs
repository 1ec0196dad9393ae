//! `fathom lab exec`: a command in a guest, with its streams and its exit status.

use super::run::explained;
use crate::{Usage, args, output, progress};
use anyhow::{Context as _, Result};
use lab::exec::Streams;
use lab::folder;
use lab::run::{NotStarted, Options};
use lab::scenario;
use std::process::ExitCode;

pub fn run(args: &args::LabExec) -> Result<ExitCode> {
    let usage = |error: scenario::Error| anyhow::Error::new(Usage(error.to_string()));
    let (_, scenario) = scenario::find(&args.scenario, &args.set).map_err(usage)?;
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
    let words: Vec<String> = args.command.iter().map(|word| model::shell_word(std::path::Path::new(word))).collect();
    let streams = Streams {
        stdin: Box::new(std::io::stdin()),
        stdout: Box::new(output::Stdout),
        stderr: Box::new(std::io::stderr()),
    };
    let ended = lab::exec::exec(&scenario, &words.join(" "), &options, &context, streams);
    progress::clear(&context);
    match ended {
        Ok(status) => Ok(ExitCode::from(u8::try_from(status).unwrap_or(1))),
        Err(_) if context.cancelled() => Ok(ExitCode::from(crate::bench::INTERRUPTED)),
        Err(NotStarted::Wrong(error)) => Err(usage(error)),
        Err(NotStarted::Lab(error)) => Err(explained(error)),
    }
}
