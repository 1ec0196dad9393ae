//! `fathom net`: a file a verb.

mod cc;

use crate::args::{Net, NetVerb};
use anyhow::Result;
use std::process::ExitCode;

pub fn run(args: &Net) -> Result<ExitCode> {
    match &args.verb {
        NetVerb::Cc(args) => cc::run(args),
    }
}
