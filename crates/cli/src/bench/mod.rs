//! `fathom bench`: a file a verb. The suite's designs are part of the program.

mod ab;
mod eta;
mod list;
mod look;
mod machine;
mod results;
mod run;
mod selftest;
mod serve_http;
mod suite;

use crate::args::{Bench, BenchVerb};
use anyhow::Result;
use std::process::ExitCode;

pub use ab::measured;
pub use look::{load, show};
pub use machine::facts;
pub use results::explain;
pub use run::{INTERRUPTED, run as sweep};

pub fn run(args: &Bench) -> Result<ExitCode> {
    match &args.verb {
        BenchVerb::List(args) => list::run(args),
        BenchVerb::Run(args) => run::run(args),
        BenchVerb::Ab(args) => ab::run(args),
        BenchVerb::Show(args) => look::show(args),
        BenchVerb::Compare(args) => look::compare(args),
        BenchVerb::History(args) => look::history(args),
        BenchVerb::Plan(args) => look::plan(args),
        BenchVerb::ServeHttp(args) => serve_http::run(args),
        BenchVerb::Selftest(args) => selftest::run(args),
    }
}
