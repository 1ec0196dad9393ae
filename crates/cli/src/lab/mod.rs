//! `fathom lab`: a file a verb.

mod exec;
mod guest;
mod list;
mod run;
mod shell;

use crate::args::{Lab, LabVerb};
use anyhow::Result;
use std::process::ExitCode;

pub fn run(args: &Lab) -> Result<ExitCode> {
    match &args.verb {
        LabVerb::List(args) => list::run(args),
        LabVerb::Run(args) => run::run(args),
        LabVerb::Shell(args) => shell::run(args),
        LabVerb::Exec(args) => exec::run(args),
    }
}
