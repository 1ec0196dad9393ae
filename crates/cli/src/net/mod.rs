//! `fathom net`: one file per verb.

mod cc;
mod link;
mod measure;
mod run;
mod serve;
mod trial;
mod watch;

use crate::args::{Net, NetVerb};
use anyhow::Result;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &Net) -> Result<ExitCode> {
    match &args.verb {
        NetVerb::Serve(args) => serve::run(args),
        NetVerb::Run(args) => run::run(args),
        NetVerb::Watch(args) => watch::run(args),
        NetVerb::Measure(args) => measure::run(args),
        NetVerb::Cc(args) => cc::run(args),
        NetVerb::Link(args) => link::run(args),
        NetVerb::Sweep(args) => crate::bench::run::run(&args.as_bench()),
        NetVerb::Trial(args) => trial::run(args),
    }
}

fn read_key(path: Option<&Path>) -> Result<Option<wire::Key>> {
    Ok(path.map(wire::Key::read).transpose()?)
}
