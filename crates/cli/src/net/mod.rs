//! `fathom net`: a file a verb.

mod cc;
mod link;
mod trial;

use crate::args::{Net, NetVerb};
use anyhow::Result;
use std::process::ExitCode;

pub fn run(args: &Net) -> Result<ExitCode> {
    match &args.verb {
        NetVerb::Cc(args) => cc::run(args),
        NetVerb::Link(args) => link::run(args),
        NetVerb::Sweep(args) => crate::bench::sweep(&args.as_bench()),
        NetVerb::Trial(args) => trial::run(args),
    }
}
