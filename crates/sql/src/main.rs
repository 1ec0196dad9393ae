//! `fathom-sql`: the verbs of `fathom` that need an SQL engine or an object store.

use clap::Parser;
use sql::args::{Program, Verb};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let code = match std::thread::Builder::new().stack_size(sql::stop::STACK_BYTES).spawn(run_program) {
        // A panic has printed its message already.
        Ok(working) => working.join().unwrap_or(ExitCode::FAILURE),
        // If that much address space is not available, with the default.
        Err(_) => run_program(),
    };
    // Scratch directories of queries that were cancelled and did not end.
    sql::scratch::remove_ours();
    code
}

fn run_program() -> ExitCode {
    let program = Program::parse();
    if std::env::var_os("FATHOM_PARSE_ONLY").is_some() {
        return ExitCode::SUCCESS;
    }
    let done = match &program.verb {
        Verb::Sql(args) => sql::ask::run(args).map(|()| true),
        Verb::Fleet(args) => sql::fleets::run(args),
        Verb::Serve(args) => sql::fleets::serve(args),
        Verb::Simulate(args) => sql::simulate::run(args).map(|()| true),
        Verb::Generate(args) => sql::generate::run(args).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        // Skipped archives have been reported.
        Ok(false) => ExitCode::FAILURE,
        // The reader has enough: `| head`.
        Err(error) if is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let whole = sql::errors::full_text(&error);
            let lines: Vec<String> = whole.lines().map(model::text::shown).collect();
            // If stderr is closed, the error is dropped.
            let _ = writeln!(std::io::stderr(), "fathom: {}", lines.join("\n"));
            ExitCode::FAILURE
        }
    }
}

fn is_reader_gone(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
