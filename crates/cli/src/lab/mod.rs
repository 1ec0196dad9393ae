//! `fathom lab`: one file per verb.

mod exec;
mod list;
mod prepared;
mod recording;
mod run;
mod shell;

use crate::Usage;
use crate::args::{HostArgs, Lab, LabVerb};
use anyhow::{Context as _, Result};
use lab::{directory, scenario};
use std::path::PathBuf;
use std::process::ExitCode;

pub fn run(args: &Lab) -> Result<ExitCode> {
    match &args.verb {
        LabVerb::List(args) => list::run(args),
        LabVerb::Run(args) => run::run(args),
        LabVerb::Shell(args) => shell::run(args),
        LabVerb::Exec(args) => exec::run(args),
    }
}

/// Reports an invalid scenario as a wrong argument.
fn as_usage(error: scenario::Error) -> anyhow::Error {
    Usage(error.to_string()).into()
}

/// Explains what this machine lacks, and the remedy.
fn explain_missing(error: lab::Error) -> anyhow::Error {
    const MISSING_TOOLS_REMEDY: &str = "fathom lab needs QEMU, a static busybox and apt (on Debian: apt-get install qemu-system-x86 busybox-static, for \
                          arm64 guests qemu-system-arm), and the network once, for the kernel";
    match error {
        lab::Error::Missing(_) => anyhow::anyhow!("{error}\n{MISSING_TOOLS_REMEDY}"),
        other => other.into(),
    }
}

/// Returns the directory of the kernels, and the program that runs in a guest.
fn host_paths(args: &HostArgs) -> Result<(PathBuf, PathBuf)> {
    let program = args.program.clone().map_or_else(std::env::current_exe, std::path::absolute);
    Ok((directory::cache(args.cache.as_deref())?, program.context("cannot find the program for the guest")?))
}
