//! `fathom lab shell`: a terminal in a guest.

use super::as_usage;
use super::prepared::PreparedGuest;
use crate::{args, output};
use anyhow::Result;
use lab::scenario::{self, Scenario};
use lab::terminal;
use std::process::ExitCode;

pub fn run(args: &args::LabShell) -> Result<ExitCode> {
    let scenario = match &args.scenario {
        Some(word) => scenario::find(word, &args.guest.set).map(|(_, scenario)| scenario),
        None => Scenario::from_disks(&args.disk, &args.guest.set),
    };
    let scenario = scenario.map_err(as_usage)?;
    let mut attached = None;
    let ended = PreparedGuest::new(&args.guest, &scenario)?.run(|options, context| {
        lab::run::shell(&scenario, options, context, |to| attached = terminal::join(to, output::Stdout))?;
        Ok(ExitCode::SUCCESS)
    });
    if let Some(joined) = attached {
        joined.finish();
    }
    ended
}
