//! `fathom bench`: a file a verb. The suite's designs are part of the program.

mod eta;
mod list;
mod machine;
mod results;
mod run;
mod selftest;
mod store;
mod suite;

use crate::args::{Bench, BenchVerb};
use anyhow::Result;
use std::process::ExitCode;

pub use store::remake;

pub fn run(args: &Bench) -> Result<ExitCode> {
    match &args.verb {
        BenchVerb::List(args) => list::run(args),
        BenchVerb::Run(args) => run::run(args),
        BenchVerb::Selftest(args) => selftest::run(args),
    }
}
