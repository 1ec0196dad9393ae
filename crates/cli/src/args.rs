//! What the user may say. One definition, from which help, completions and the manual page come.

mod bench;
mod import;
mod nbd;
mod net;
mod paper;
mod pool;
mod results;

pub use bench::{Bench, BenchList, BenchRun, BenchSelftest, BenchVerb};
pub use import::Import;
pub use net::{
    Cost, IPERF2_PACKET, IPERF2_RATE, InOneWord, Net, NetCc, NetLink, NetRun, NetServe, NetTrial, NetVerb, Rate, Way,
};
pub use paper::{Between, Paper, PaperBench};
pub use pool::{
    AttachWith, Control, Disk, Order, Pool, PoolAttach, PoolBench, PoolForget, PoolKeygen, PoolLoad, PoolNode,
    PoolServe, PoolStatus, PoolTry, PoolVerb, Trust,
};
pub use results::{BenchCompare, BenchHistory, BenchPlan, BenchShow, Better, Penalty, ServeHttp};

/// Values of `pool`, for whoever else reads them.
pub mod pool_value {
    pub use super::pool::{address, endpoint, memory, node_timeout};
}

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Fathom measures a device and shows why it performs as it does: from one SQL statement down to the storage command
/// that served it.
#[derive(Debug, Parser)]
#[command(
    name = "fathom",
    version,
    arg_required_else_help = true,
    after_help = "\
Start here:
  sudo fathom demo                              record 1,000 INSERTs, and show where the time went
  sudo fathom record -- sqlite3 my.db 'CREATE TABLE IF NOT EXISTS t (x); INSERT INTO t VALUES (1)'
  fathom show trace.fathom                      the summary of a recording
  fathom report trace.fathom -o trace.html      the same as a page with the timeline
  fathom export --perfetto trace.fathom         for ui.perfetto.dev

Exit status: 0 done, 1 failed, 2 wrong usage; `record -- CMD` exits as CMD does."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The instruments. Each is told by the words at its arguments: words here would hide the longer ones there.
#[derive(Debug, Subcommand)]
pub enum Verb {
    Record(Record),
    Show(Show),
    Report(Report),
    Export(Export),
    Import(Import),
    Link(Link),
    Demo(Demo),
    Papers(Papers),
    Bench(Bench),
    Net(Box<Net>),
    Pool(Pool),
    Workload(Workload),
    /// Take orders for a device, from the Fathom that reached it
    #[command(hide = true)]
    Agent {
        /// Where its folder is made.
        folder: PathBuf,
    },
    /// Print the completions of a shell
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page (troff), or write one for each command
    Man {
        /// Write fathom.1 and a page for each command into this folder.
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
    },
}

/// Record what a program does, from its SQL statements to the device commands.
///
/// Without CMD the recording ends with Ctrl-C or after --duration; what was recorded is kept. With CMD it ends when CMD
/// does, and only CMD and its children are taken as operations. Device commands are always recorded for the whole
/// machine, so that each one is accounted for.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo fathom record -- python3 app.py                 a program from its start to its end
  sudo fathom record --pid 1234 --duration 10          a running one, for ten seconds
  sudo fathom record --all --duration 5 -o all.fathom  everyone
  sudo fathom record --op ./server:handle_request -- ./server
                                                       a function of the program as the operation

CMD runs as the user who called sudo, unless --as-root is given. Root, or the capabilities CAP_BPF and CAP_PERFMON \
(CAP_SYS_ADMIN too where the kernel asks it of probes on programs), are needed for recording only; every other verb works \
without.")]
pub struct Record {
    /// The archive to make; an archive of that name is kept as NAME.fathom.old
    #[arg(short, long, value_name = "T.fathom", default_value = "trace.fathom")]
    pub output: PathBuf,
    /// Take everyone's statements and calls as operations, not only CMD's
    #[arg(long)]
    pub all: bool,
    /// Record this running process and its children (may be given again)
    #[arg(long, value_name = "N", value_parser = process, conflicts_with_all = ["comm", "command"])]
    pub pid: Vec<u32>,
    /// Record the processes of this name, running or to come
    #[arg(long, value_name = "NAME", value_parser = comm, conflicts_with = "command")]
    pub comm: Option<String>,
    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<std::time::Duration>,
    /// End when the event log has this size (suffixes K, M, G)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_size: Option<u64>,
    /// Make a function of a program or library an operation (a path, or a name: ./server:handle, libc.so.6:fsync)
    #[arg(long = "op", value_name = "BINARY:FUNCTION", value_parser = function)]
    pub functions: Vec<(PathBuf, String)>,
    /// Store the SQL text with its literals; without this they are replaced by ? before anything is stored
    #[arg(long)]
    pub keep_sql: bool,
    /// Run CMD as root even under sudo
    #[arg(long)]
    pub as_root: bool,
    /// Do not sample what each probe costs
    #[arg(long)]
    pub no_probe_cost: bool,
    /// Where events come from; `none` and `attached` start CMD in the same way and make no archive, as other arms of a
    /// comparison
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub backend: Backend,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// The program to run, with its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// Where events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// eBPF where the kernel allows it, else ftrace, and says so.
    Auto,
    /// eBPF programs on tracepoints and function entries.
    Ebpf,
    /// The kernel's trace buffers (tracefs), in instances of their own: links go by disk, sector and time.
    Ftrace,
    /// The eBPF probes, whose programs return at once: what tracing costs before anything is recorded.
    Attached,
    /// Nothing is attached.
    None,
}

/// Show where the time of each statement went.
#[derive(Debug, Args)]
pub struct Show {
    /// The archive
    #[arg(value_name = "T.fathom")]
    pub archive: PathBuf,
    /// Print JSON (its contract: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Make one self-contained HTML page of one or more recordings.
///
/// Of several, the page shows one at a time; the device commands of all can be set side by side. Of two benchmarks it shows the
/// second, with the first beside it: ratios with verdicts, and what differed between the machines. Network runs (`fathom net run
/// -o`) stand on one axis of time, with the recordings that were made beside them.
#[derive(Debug, Args)]
pub struct Report {
    /// The archives
    #[arg(value_name = "T.fathom", required = true)]
    pub archives: Vec<PathBuf>,
    /// The page; by default beside the first archive, with the ending .html
    #[arg(short, long, value_name = "x.html")]
    pub output: Option<PathBuf>,
}

/// Write a recording in a format of other tools.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("format").required(true).args(["perfetto", "parquet", "csv", "events"])))]
pub struct Export {
    /// Perfetto's .pftrace, for ui.perfetto.dev and trace_processor
    #[arg(long)]
    pub perfetto: bool,
    /// Parquet, a file a table, for DuckDB, pandas or Spark
    #[arg(long)]
    pub parquet: bool,
    /// CSV, a file a table
    #[arg(long)]
    pub csv: bool,
    /// The event log as text, a line an event, on stdout or in -o
    #[arg(long)]
    pub events: bool,
    /// The archive
    #[arg(value_name = "T.fathom")]
    pub archive: PathBuf,
    /// The file (--perfetto; `-` is stdout) or folder to write; by default beside the archive
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
}

/// Make a recording's tables again from its event log.
///
/// Needed after a recording was cut short or a table was damaged; `show` does it by itself where it can write.
#[derive(Debug, Args)]
pub struct Link {
    /// The archive
    #[arg(value_name = "T.fathom")]
    pub archive: PathBuf,
}

/// Record 1,000 INSERTs and full scans on the disk that this folder is on, and show them.
///
/// Leaves demo.fathom, demo.html and demo.pftrace in the folder.
#[derive(Debug, Args)]
pub struct Demo {
    /// Rows to insert, each in a transaction of its own
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub rows: u64,
    /// Full scans of the table
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub scans: u64,
    /// Journal mode of SQLite
    #[arg(long, value_name = "MODE", default_value = "delete", value_parser = ["delete", "truncate", "persist", "memory", "wal", "off"])]
    pub journal_mode: String,
    /// The folder in which the database and the results are made
    #[arg(long, default_value = ".")]
    pub folder: PathBuf,
}

/// Make the figures of the papers on this machine, beside the papers' values.
#[derive(Debug, Args)]
pub struct Papers {
    /// Figures, such as 000/11 or 004/2; all if none is named
    #[arg(value_name = "FIG")]
    pub figures: Vec<String>,
    /// Use this recording or benchmark in place of a new one; the figures of its kind are made
    #[arg(long, value_name = "T.fathom")]
    pub archive: Option<PathBuf>,
    /// Run benchmarks with few processes and small values, to see that it works
    #[arg(long)]
    pub quick: bool,
    /// Write this to a file, as docs/results/papers.md is, in place of printing it
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Run one of the built-in workloads as a benchmark's replicate: JSON lines on stdout.
#[derive(Debug, Args)]
#[command(after_help = workload::list())]
pub struct Workload {
    /// Its name, then its own options (`--help` after the name lists them)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "NAME [OPTION…]")]
    pub words: Vec<String>,
}

/// A wrong usage, with the one hint that clap cannot know: a command to record stands behind `--`.
pub fn explain(error: clap::Error) -> clap::Error {
    let words: Vec<String> = std::env::args_os().map(|w| w.to_string_lossy().into_owned()).collect();
    let record = words.get(1).is_some_and(|verb| verb == "record") && !words.contains(&"--".into());
    let stray = match error.get(clap::error::ContextKind::InvalidArg) {
        Some(clap::error::ContextValue::String(word)) if !word.starts_with('-') => words.iter().position(|w| w == word),
        _ => None,
    };
    let unknown = error.kind() == clap::error::ErrorKind::UnknownArgument;
    let Some(at) = stray.filter(|_| record && unknown) else { return error };
    let (options, command) = (words[1..at].join(" "), words[at..].join(" "));
    let mut program = <Cli as clap::CommandFactory>::command();
    program.build();
    program.find_subcommand_mut("record").expect("record is a verb").error(
        clap::error::ErrorKind::UnknownArgument,
        format!("the command to record stands behind `--`: fathom {options} -- {command}"),
    )
}

/// Ends the program as clap does on wrong usage: the sentence, then how to get help, and exit status 2.
pub fn usage_error(sentence: &str) -> ! {
    let mut command = <Cli as clap::CommandFactory>::command();
    command.build();
    let record = command.find_subcommand_mut("record").expect("record is a verb");
    record.error(clap::error::ErrorKind::MissingRequiredArgument, sentence).exit()
}

fn process(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "give the number of a process, such as `pgrep NAME` prints".into())
}

fn seconds(text: &str) -> Result<std::time::Duration, String> {
    time(text, 1.0).ok_or("give seconds, such as 10 or 0.5")?
}

/// A time with a suffix s, m or h; without one it is in seconds.
fn long(text: &str) -> Result<std::time::Duration, String> {
    let size = match text.chars().last() {
        Some('m') => 60.0,
        Some('h') => 3600.0,
        _ => 1.0,
    };
    time(text.trim_end_matches(['m', 'h']), size).ok_or("give a time, such as 90s, 5m or 1h")?
}

fn time(text: &str, size: f64) -> Option<Result<std::time::Duration, String>> {
    let value: f64 = text.trim_end_matches('s').parse().ok()?;
    Some(positive(value * size))
}

fn positive(value: f64) -> Result<std::time::Duration, String> {
    if value <= 0.0 {
        return Err("give more than 0 seconds".into());
    }
    let duration = std::time::Duration::try_from_secs_f64(value).ok().filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| "give a time that can be waited for, such as 10 or 0.5".into())
}

fn comm(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("give a name, such as sqlite3".into()) } else { Ok(text.into()) }
}

fn bytes(text: &str) -> Result<u64, String> {
    let upper = text.to_ascii_uppercase();
    let upper = upper.trim_end_matches('B').trim_end_matches('I');
    let (digits, shift) = match upper.chars().last() {
        Some('K') => (&upper[..upper.len() - 1], 10),
        Some('M') => (&upper[..upper.len() - 1], 20),
        Some('G') => (&upper[..upper.len() - 1], 30),
        Some('T') => (&upper[..upper.len() - 1], 40),
        _ => (upper, 0),
    };
    let number: u64 = digits.parse().map_err(|_| "give bytes, such as 500M or 2G".to_string())?;
    // No file is larger, with what a store keeps besides.
    let most = 1_u64 << 62;
    match number.checked_mul(1 << shift).filter(|bytes| *bytes <= most) {
        None => Err("give at most 4194304T".into()),
        // Less holds no event at all.
        Some(bytes) if bytes < 65_536 => Err("give at least 64K".into()),
        Some(bytes) => Ok(bytes),
    }
}

fn function(text: &str) -> Result<(PathBuf, String), String> {
    match text.rsplit_once(':') {
        Some((binary, name)) if !binary.is_empty() && !name.is_empty() => Ok((binary.into(), name.into())),
        _ => Err("give BINARY:FUNCTION, such as ./server:handle_request".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::collections::BTreeMap;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    /// Words at a verb's name would hide the longer ones at its arguments, which `--help` is to show.
    #[test]
    fn help_teaches_what_is_written_for_it() {
        fn each(command: &clap::Command, path: &str, seen: &mut BTreeMap<String, String>) {
            for verb in command.get_subcommands() {
                let path = format!("{path} {}", verb.get_name());
                assert!(verb.get_about().is_some(), "{path} has no words");
                if let Some(long) = verb.get_long_about() {
                    seen.insert(path.clone(), long.to_string());
                }
                each(verb, &path, seen);
            }
        }
        let mut seen = BTreeMap::new();
        each(&Cli::command(), "fathom", &mut seen);
        for (verb, words) in [
            ("fathom record", "Ctrl-C"),
            ("fathom report", "side by side"),
            ("fathom bench compare", "Benjamini"),
            ("fathom net run", "slow start"),
            ("fathom net link", "network namespaces"),
            ("fathom pool bench", "closed loop"),
        ] {
            assert!(seen.get(verb).is_some_and(|long| long.contains(words)), "{verb}: {:?}", seen.get(verb));
        }
    }

    /// A line of an example that is wrapped can no longer be read as one; paragraphs wrap by themselves.
    #[test]
    fn examples_fit_a_hundred_columns() {
        fn each(command: &clap::Command, path: &str) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in after.lines().filter(|line| line.starts_with(' ')) {
                assert!(line.chars().count() <= 100, "{path}: {line}");
            }
            for verb in command.get_subcommands() {
                each(verb, &format!("{path} {}", verb.get_name()));
            }
        }
        each(&Cli::command(), "fathom");
    }

    /// The demo's words are refused before the recording of an earlier one is put aside.
    #[test]
    fn the_demo_takes_only_what_its_load_takes() {
        let parses = |words: &[&str]| Cli::try_parse_from(["fathom", "demo"].iter().chain(words)).is_ok();
        assert!(parses(&["--rows", "5", "--journal-mode", "wal"]));
        assert!(!parses(&["--rows", "0"]) && !parses(&["--journal-mode", "foo"]));
    }

    #[test]
    fn sizes_and_times_are_read_as_people_write_them() {
        assert_eq!(bytes("2G"), Ok(2 << 30));
        assert_eq!(bytes("500KiB"), Ok(500 << 10));
        assert_eq!(bytes("4194304T"), Ok(1 << 62));
        assert_eq!(bytes("63K"), Err("give at least 64K".into()));
        for more in ["4194305T", "99999999999T", "18446744073709551615"] {
            assert_eq!(bytes(more), Err("give at most 4194304T".into()), "{more}");
        }
        assert!(bytes("0").is_err() && bytes("99999999T").is_err() && bytes("many").is_err() && bytes("").is_err());
        assert_eq!(seconds("0.5"), Ok(std::time::Duration::from_millis(500)));
        for (text, told) in [("-1", "more than 0"), ("0", "more than 0"), ("nan", "such as 10"), ("1e99", "such as 10")]
        {
            assert!(seconds(text).is_err_and(|why| why.contains(told)), "{text}: {:?}", seconds(text));
        }
        let minutes = |text| long(text).map(|d| d.as_secs_f64() / 60.0);
        assert_eq!(
            (minutes("90"), minutes("90s"), minutes("5m"), minutes("1h")),
            (Ok(1.5), Ok(1.5), Ok(5.0), Ok(60.0))
        );
        assert!(long("m").is_err() && long("5x").is_err() && long("0").is_err());
    }

    #[test]
    fn a_function_is_named_with_its_binary() {
        assert_eq!(function("/usr/bin/a:b"), Ok(("/usr/bin/a".into(), "b".into())));
        assert!(function("main").is_err() && function(":main").is_err());
    }
}
