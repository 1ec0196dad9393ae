//! `fathom lab exec`: a command in a guest, with its streams and its exit status.

use super::as_usage;
use super::prepared::PreparedGuest;
use crate::{args, output};
use anyhow::Result;
use lab::exec::Streams;
use lab::scenario;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &args::LabExec) -> Result<ExitCode> {
    let (_, scenario) = scenario::find(&args.scenario, &args.guest.set).map_err(as_usage)?;
    let words: Vec<String> = args.command.iter().map(|word| model::shell_word(Path::new(word))).collect();
    let streams = Streams {
        stdin: Box::new(std::io::stdin()),
        stdout: Box::new(output::Stdout),
        stderr: Box::new(std::io::stderr()),
    };
    PreparedGuest::new(&args.guest, &scenario)?.run(|options, context| {
        let status = lab::exec::exec(&scenario, &words.join(" "), options, context, streams)?;
        Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
    })
}
