//! The program: one file per verb, which parses, composes and prints. The crates below measure, link and compute.

#[macro_use]
mod output;
mod own_load;

mod args;
mod bench;
mod check;
mod demo;
mod destination;
mod device;
mod diff;
mod elsewhere;
mod explain;
mod export;
mod fix;
mod import;
mod lab;
mod link;
mod mcp;
mod net;
mod notices;
mod papers;
mod pool;
mod progress;
mod record;
mod report;
mod show;
mod watch;
mod whatif;
mod workload;

use anyhow::{Context as _, Result};
use args::Verb;
use clap::{CommandFactory, Parser};
use model::text::ShownPath as _;
use std::process::ExitCode;

/// The sources this program was built from, for [`model::program`] to find in the executable.
static SOURCES_HASH: &str = concat!("fathom-sources:", env!("FATHOM_SOURCES"));

/// Wrong usage that the parser cannot detect: something requested does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// The user interrupted before there was a result.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

fn main() -> ExitCode {
    std::hint::black_box(SOURCES_HASH);
    archive::interrupt::size_limit_is_error();
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::print_parser_output(&args::add_hint(error)),
    };
    if std::env::var_os("FATHOM_PARSE_ONLY").is_some() {
        return ExitCode::SUCCESS;
    }
    match run(cli.verb) {
        Ok(code) => output::exit_status(code),
        Err(error) => {
            eprintln!("fathom: {}", error_sentence(&error));
            ExitCode::from(match error.downcast_ref() {
                Some(scores::measure::Error::Usage(_)) => 2,
                Some(scores::measure::Error::Cancelled) => output::INTERRUPTED_STATUS,
                _ if error.is::<Usage>() => 2,
                _ if error.is::<Interrupted>() => output::INTERRUPTED_STATUS,
                _ => 1,
            })
        }
    }
}

fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Record(args) => return record::run(&args),
        Verb::Watch(args) => return watch::run(&args),
        Verb::Demo(args) => return demo::run(&args),
        Verb::Bench(args) => return bench::run(&args),
        Verb::Workload(args) => return workload::run(&args),
        Verb::Pool(args) => return pool::run(&args),
        Verb::Device(args) => return self::device::run(&args),
        Verb::Lab(args) => return lab::run(&args),
        Verb::Net(args) => return net::run(&args),
        Verb::Diff(args) => return diff::run(&args),
        Verb::Check(args) => return check::run(&args),
        Verb::Sql(_) | Verb::Fleet(_) | Verb::Serve(_) => match elsewhere::exec_sql()? {},
        Verb::Mcp(args) => self::mcp::run(&args)?,
        Verb::Fix(args) => return fix::run(&args),
        Verb::Show(args) => show::run(&args)?,
        Verb::Explain(args) => explain::run(&args)?,
        Verb::Whatif(args) => whatif::run(&args)?,
        Verb::Report(args) => report::run(&args)?,
        Verb::Export(args) => export::run(&args)?,
        Verb::Import(args) => import::run(&args)?,
        Verb::Reindex(args) => link::run(&args)?,
        Verb::Papers(args) => return papers::run(&args),
        Verb::Agent { directory, keep: Some(lease_s), command } => {
            ::device::remote::detached::keeper::run(&directory, std::time::Duration::from_secs(lease_s), &command)?;
        }
        Verb::Agent { directory, .. } => ::device::remote::agent::run(std::io::stdin(), std::io::stdout(), &directory)
            .with_context(|| format!("cannot create a directory in {}", directory.shown()))?,
        Verb::Completions { shell } => {
            let mut command = args::Cli::command();
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command, "fathom", &mut text);
            print!("{}", String::from_utf8_lossy(&text));
        }
        Verb::Man { dir: Some(dir) } => {
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.shown()))?;
            let written = clap_mangen::generate_to(args::Cli::command(), &dir);
            written.with_context(|| format!("cannot write manual pages into {}", dir.shown()))?;
        }
        Verb::Man { dir: None } => {
            let mut text = Vec::new();
            clap_mangen::Man::new(args::Cli::command()).render(&mut text)?;
            print!("{}", String::from_utf8_lossy(&text));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The error with its causes.
fn error_sentence(error: &anyhow::Error) -> String {
    model::text::error_chain(error.as_ref())
}
