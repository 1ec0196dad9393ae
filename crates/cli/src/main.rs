//! The program: a file a verb, each of which parses, composes and prints. What is measured, linked and computed lives
//! in the rooms below.

mod args;
mod progress;

use clap::{CommandFactory, Parser};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    if std::env::var_os("FATHOM_PARSE_ONLY").is_some() {
        return ExitCode::SUCCESS;
    }
    match run(cli.verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fathom: {error:#}");
            ExitCode::from(1)
        }
    }
}
