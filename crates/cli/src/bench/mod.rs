//! `fathom bench`: one file per verb. The suite's designs are part of the program.

pub mod ab;
mod eta;
pub mod inspect;
mod list;
pub mod results;
pub mod run;
mod selftest;
mod serve_http;

use crate::args::{Bench, BenchVerb};
use anyhow::Result;
use std::process::ExitCode;

pub fn run(args: &Bench) -> Result<ExitCode> {
    match &args.verb {
        BenchVerb::List(args) => list::run(args),
        BenchVerb::Run(args) if !args.devices.device.is_empty() => crate::device::bench(args),
        BenchVerb::Run(args) => run::run(args),
        BenchVerb::Ab(args) => ab::run(args),
        BenchVerb::Show(args) => inspect::show(args),
        BenchVerb::Compare(args) => match crate::device::compare(args)? {
            Some(code) => Ok(code),
            None => inspect::compare(args),
        },
        BenchVerb::History(args) => inspect::history(args),
        BenchVerb::Plan(args) => inspect::plan(args),
        BenchVerb::ServeHttp(args) => serve_http::run(args),
        BenchVerb::Selftest(args) => selftest::run(args),
    }
}
