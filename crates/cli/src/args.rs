//! The command line, defined once: help, completions and manual pages come from it.

mod ab;
mod bench;
mod check;
mod device;
mod diff;
mod fix;
mod forward;
mod import;
mod lab;
mod mcp;
mod nbd;
mod net;
mod paper;
mod pool;
mod results;
mod watch;
mod whatif;

pub use ab::*;
pub use bench::*;
pub use check::*;
pub use device::*;
pub use diff::*;
pub use fix::*;
pub use forward::forwarded_words;
pub use import::*;
pub use lab::*;
pub use mcp::*;
pub use net::*;
pub use paper::*;
pub use pool::*;
pub use results::*;
pub use watch::*;
pub use whatif::*;
// The program fathom-sql has these verbs; they are declared here too, so that help, completions and manual pages know them.
pub use fleet::args::{Fleet, Serve, Sql};

use crate::destination::directory_parser;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _, ValueParser};
use clap::{ArgAction, Args, Parser, Subcommand};
use model::quantity::{Choices, bytes, moment, seconds};
use recorder::presets::Operation;
use recorder::{Backend, Probes};
use std::ffi::OsString;
use std::path::PathBuf;

/// The release; what ships is built with `git describe` of its commit, too (`scripts/build --dist`).
const VERSION: &str = match option_env!("FATHOM_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// Trace a program's I/O from SQL statements down to device commands, and benchmark storage, CPU and networks.
#[derive(Debug, Parser)]
#[command(
    name = "fathom",
    version = VERSION,
    arg_required_else_help = true,
    after_help = "\
Start here:
  sudo fathom demo                              record 1,000 INSERTs and show where the time went
  sudo fathom record -- sqlite3 my.db 'CREATE TABLE IF NOT EXISTS t (x); INSERT INTO t VALUES (1)'
  fathom show trace.fathom                      the summary of a recording
  fathom report trace.fathom -o trace.html      the same as an HTML page with a timeline
  fathom export --perfetto trace.fathom         for ui.perfetto.dev

Exit status: 0 success, 1 failure, 2 usage error; `record -- CMD` exits with CMD's status."
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

/// What these words ask for, as a user would say it after the program's name.
///
/// # Errors
/// They are no command.
pub fn parse_words<W: Into<OsString> + Clone>(words: &[W]) -> Result<Verb, crate::Usage> {
    let words = std::iter::once("fathom".into()).chain(words.iter().cloned().map(Into::into));
    Cli::try_parse_from(words).map(|cli| cli.verb).map_err(|error| crate::Usage(error.to_string()))
}

/// The same of words that ask for a run of benchmarks.
///
/// # Errors
/// They ask for something else.
pub fn parse_bench_run<W: Into<OsString> + Clone>(words: &[W]) -> Result<BenchRun, crate::Usage> {
    match parse_words(words)? {
        Verb::Bench(Bench { verb: BenchVerb::Run(run) }) => Ok(run),
        _ => Err(crate::Usage("not a run of benchmarks".into())),
    }
}

/// The commands. Their help is at their arguments: a doc comment here would hide the longer one there.
#[derive(Debug, Subcommand)]
pub enum Verb {
    Record(Record),
    Watch(Watch),
    Show(Show),
    Explain(Explain),
    Diff(Diff),
    Check(Check),
    Whatif(Whatif),
    Fix(Fix),
    Report(Report),
    Export(Export),
    Import(Import),
    // Its name until 0.2.
    #[command(alias = "link")]
    Reindex(Reindex),
    Demo(Demo),
    Papers(Papers),
    Sql(Sql),
    Fleet(Fleet),
    Serve(Serve),
    Mcp(Mcp),
    Bench(Bench),
    Net(Box<Net>),
    Pool(Pool),
    Device(Device),
    Lab(Lab),
    Workload(Workload),
    /// Run commands on this device for a Fathom that connected to it
    #[command(hide = true)]
    Agent {
        /// Where to create its directory; with --keep, the directory of the detached command.
        directory: PathBuf,
        /// Keep COMMAND running; end it when no client asks for it for this many seconds (0: never).
        #[arg(long, requires = "command")]
        keep: Option<u64>,
        /// The command to keep running.
        #[arg(last = true, requires = "keep")]
        command: Vec<String>,
    },
    /// Print shell completions
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page (troff), or write one for each command
    Man {
        /// Write fathom.1 and a page for each command to this directory.
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// Record a program's I/O, from its SQL statements to device commands.
///
/// With CMD, the recording ends when CMD exits, and only CMD and its children count as operations. Without CMD, it ends on Ctrl-C,
/// after --duration, or when the processes of --pid have exited; what was recorded is kept. Device commands are always recorded
/// system-wide, so that each one is accounted for.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo fathom record -- python3 app.py                 a program, from start to exit
  sudo fathom record --pid 1234 --duration 10          a running process, for ten seconds
  sudo fathom record --all --duration 5 -o all.fathom  every process
  sudo fathom record --op ./server:handle_request -- ./server
                                                       calls of a function as operations
  sudo fathom record --op postgres --comm postgres     PostgreSQL's commits (--list-ops: others)
  fathom record --device adb:R58 -- /data/local/tmp/x  a program on a rooted phone, linked here
  fathom record --device adb --via perfetto --duration 10
                                                       an unrooted phone, with its own Perfetto

CMD runs as the user who called sudo, unless --as-root is given. Recording needs root or the capabilities CAP_BPF and \
CAP_PERFMON (and CAP_SYS_ADMIN if the kernel requires it for uprobes); commands that read a recording need neither.")]
pub struct Record {
    /// Archive to write; an existing one is kept as NAME.fathom.old
    #[arg(short, long, value_name = "T.fathom", default_value = "trace.fathom", value_parser = directory_parser())]
    pub output: PathBuf,
    /// Record operations of all processes, not only CMD's
    #[arg(long)]
    pub all: bool,
    /// Record this running process and its children (repeatable)
    #[arg(long, value_name = "N", value_parser = process, conflicts_with_all = ["comm", "command"])]
    pub pid: Vec<u32>,
    /// Record processes of this name, running or started later
    #[arg(long, value_name = "NAME", value_parser = comm, conflicts_with = "command")]
    pub comm: Option<String>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<std::time::Duration>,
    /// Stop when the event log reaches this size (suffixes K, M, G)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_size: Option<u64>,
    /// Trace calls to this function as operations; BINARY is a path or a library name (./server:handle, libc.so.6:fsync). NAME selects
    /// a database's ready-made operations (--list-ops)
    #[arg(long = "op", value_name = "BINARY:FUNCTION|NAME")]
    pub operations: Vec<Operation>,
    /// List the ready-made operations for --op
    #[arg(long)]
    pub list_ops: bool,
    /// Keep literals in stored SQL text; by default they are replaced by ? before anything is stored
    #[arg(long)]
    pub keep_sql: bool,
    /// Run CMD as root even under sudo
    #[arg(long)]
    pub as_root: bool,
    /// Do not measure the cost of each probe
    #[arg(long)]
    pub no_probe_cost: bool,
    /// Record kernel and program stacks of the longest sleeps (0.1 ms or longer, at most 100 per second). This reads the program's
    /// memory, but stores only function names and locations
    #[arg(long, default_value = "auto", action = ArgAction::Set, value_parser = one_of(&STACKS))]
    pub stacks: bool,
    /// How to probe SQLite's functions: inside CMD's processes, at a fraction of the cost of uprobes, or with uprobes. Processes of
    /// --pid are probed inside only with `inside`, which patches their code while they run (docs/internals/inside.md)
    #[arg(long, default_value = "auto", value_parser = one_of(&Probes::CHOICES))]
    pub probes: Probes,
    /// Omit this kernel probe, to measure its cost (repeatable); events that only this probe records are missing
    #[arg(long, value_name = "PROBE", value_parser = kernel_probe)]
    pub without: Vec<String>,
    /// Source of events; `none` and `attached` start CMD in the same way but write no archive: baselines for measuring the
    /// tracer's overhead
    #[arg(long, default_value = "auto", value_parser = one_of(&Backend::CHOICES))]
    pub backend: Backend,
    /// Accept commands while recording, as `perf record --control` does: `ping`, acknowledged with `ack` once the probes are attached,
    /// and `stop`
    #[arg(long, value_name = "fd:CTL[,ACK]|fifo:CTL[,ACK]", value_parser = control, conflicts_with = "device")]
    pub control: Option<recorder::control::Place>,
    /// Print only warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub devices: Devices,
    /// Record with the device's own tracer instead of Fathom's probes; needs --device
    #[arg(long, value_enum, requires = "device", conflicts_with_all = ["pid", "comm", "operations", "backend", "probes", "without"])]
    pub via: Option<Via>,
    /// Leave linking to the reader of the archive: the Fathom that started this one on a device.
    #[arg(long, hide = true)]
    pub no_link: bool,
    /// Program to run, with its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// Whether stacks are taken.
const STACKS: Choices<bool, 2> = [("auto", "For the longest sleeps, within a budget", true), ("off", "Never", false)];

/// Parses an option that has few values, which `--help` lists with what each means.
fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(choices: &'static Choices<T, N>) -> ValueParser {
    let known = choices.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    let meant = |text: String| choices.iter().find(|(name, ..)| *name == text).map(|(.., value)| value.clone());
    PossibleValuesParser::new(known).map(move |text| meant(text).expect("clap refuses other names")).into()
}

/// Show where the time of each statement went.
///
/// Prints for each statement: count, median, p95, p99 and maximum latency, the share of each layer, and how many system calls, bios and
/// device commands it caused, for which files. Then prints the tracer's overhead, the confidence of the links, and what was lost or not
/// recorded. Needs no root.
///
/// The first `show` or `report` of a recording builds its tables in the archive; the event log is not changed. For a benchmark or a
/// network run, prints its results.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  fathom show T.fathom                               the summary
  fathom show --json T.fathom | jq .operations       the same and more, as JSON
  fathom report T.fathom -o T.html                   the timeline as an HTML page")]
pub struct Show {
    /// The archive: a recording, a benchmark or a network run
    #[arg(value_name = "T.fathom")]
    pub archive: PathBuf,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Write one or more archives as a self-contained HTML page.
///
/// With several recordings, the page shows one at a time, and the device commands of all of them side by side. With two benchmarks, it
/// compares the second with the first (ratios with verdicts, and differences between the machines). Network runs (`fathom net run -o`)
/// share one time axis with recordings made at the same time. For a fleet, writes the page of `fathom fleet report`.
#[derive(Debug, Args)]
pub struct Report {
    /// The archives, or one fleet
    #[arg(value_name = "T.fathom", required = true)]
    pub archives: Vec<PathBuf>,
    /// File to write; `-` for stdout [default: the first archive's name with .html]
    #[arg(short, long, value_name = "x.html")]
    pub output: Option<PathBuf>,
    /// For a recording too long for the page: show executions individually from this second on, counted from the first operation
    #[arg(long, value_name = "S", value_parser = moment)]
    pub from: Option<std::time::Duration>,
    /// Show executions individually up to this second
    #[arg(long, value_name = "S", value_parser = moment)]
    pub to: Option<std::time::Duration>,
}

/// Export a recording to Perfetto, Parquet, CSV or text.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("format").required(true).args(["perfetto", "parquet", "csv", "events"])))]
pub struct Export {
    /// Perfetto's .pftrace, for ui.perfetto.dev and trace_processor
    #[arg(long)]
    pub perfetto: bool,
    /// Parquet, one file per table, for DuckDB, pandas or Spark
    #[arg(long)]
    pub parquet: bool,
    /// CSV, one file per table
    #[arg(long)]
    pub csv: bool,
    /// The event log as text, one line per event, to stdout or -o
    #[arg(long)]
    pub events: bool,
    /// The archive
    #[arg(value_name = "T.fathom")]
    pub archive: PathBuf,
    /// File (--perfetto, --events; `-` for stdout) or directory to write [default: next to the archive]
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
}

/// Rebuild an archive's tables from its log.
///
/// Takes recordings, benchmarks and network runs. Needed if a table is damaged or meta.json is missing, or to link an older recording
/// with this version's linker; commands that read missing tables also build them, if the archive is writable. The log is not changed.
/// Tables are replaced all at once, so an interrupted rebuild leaves the old ones in place. If meta.json is missing or damaged, it is
/// recreated from the log.
#[derive(Debug, Args)]
pub struct Reindex {
    /// The archive
    #[arg(value_name = "T.fathom")]
    pub archive: PathBuf,
}

/// Record 1,000 INSERTs and some full scans on the disk of the current directory, and show where their time went.
///
/// Writes demo.fathom, demo.html and demo.pftrace to the directory. If tracing is not possible, shows a sample recording instead.
#[derive(Debug, Args)]
pub struct Demo {
    /// Rows to insert, each in its own transaction
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub rows: u64,
    /// Full scans of the table
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub scans: u64,
    /// SQLite's journal mode
    #[arg(long, value_name = "MODE", default_value = "delete", value_parser = ["delete", "truncate", "persist", "memory", "wal", "off"])]
    pub journal_mode: String,
    /// Directory for the database and the results
    #[arg(long = "dir", alias = "folder", value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
}

/// Reproduce the papers' figures on this machine, next to the papers' values.
#[derive(Debug, Args)]
pub struct Papers {
    /// Figures, such as 000/11 or 004/2 [default: all]
    #[arg(value_name = "FIG")]
    pub figures: Vec<String>,
    /// Use this recording or benchmark for the figures instead of a new one; several recordings are compared side by side
    #[arg(long, value_name = "T.fathom")]
    pub archive: Vec<PathBuf>,
    /// Smoke test: few processes, small values
    #[arg(long)]
    pub quick: bool,
    /// Write the figures as Markdown to this file (`-`: stdout) instead of printing them; docs/results/papers.md is an example
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub beside: PapersBeside,
}

/// What is measured where a device is named.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Comparison with a device")]
pub struct PapersBeside {
    /// Measure this machine and the device (adb:SERIAL, adb if there is only one, ssh:[USER@]HOST[:PORT]), and judge the papers' claims
    #[arg(long, value_name = "DEVICE", value_parser = device::device, conflicts_with = "archive")]
    pub device: Option<::device::remote::DeviceAddress>,
    /// Name of the device on the page, such as `stand-in` [default: its address]
    #[arg(long, value_name = "NAME", requires = "device")]
    pub called: Option<String>,
    /// Directory for the archives [default: papers-DEVICE]
    #[arg(long = "archives", alias = "folder", value_name = "DIR", requires = "device")]
    pub directory: Option<PathBuf>,
    /// Run exactly this many blocks on each machine
    #[arg(long, value_name = "N", requires = "device", value_parser = clap::value_parser!(u64).range(1..))]
    pub blocks: Option<u64>,
    /// Set the values of a parameter (repeatable), as for `bench run`
    #[arg(short = 'p', long = "param", requires = "device", value_name = "NAME=VALUE,…", value_parser = scores::measure::quantity::parameter)]
    pub parameters: Vec<(String, Vec<String>)>,
    /// Directory on the device for the storage benchmarks (repeatable), such as internal=/data/local/tmp and external=/sdcard
    #[arg(long, value_name = "[NAME=]DIR", requires = "device")]
    pub dir: Vec<String>,
    /// Directory on this machine to compare with the device's directory of the same name (repeatable) [default: the current directory]
    #[arg(long, value_name = "NAME=DIR", requires = "dir")]
    pub dir_here: Vec<String>,
    /// Network interface that the device uses as a cluster node and for network runs
    #[arg(long, value_name = "NAME", default_value = "wlan0", requires = "device")]
    pub interface: String,
    /// Network interface of this machine that the device can reach [default: that of the default route]
    #[arg(long, value_name = "NAME", requires = "device")]
    pub interface_here: Option<String>,
    /// Server behind this machine, for the delay machine of paper 002: ssh:HOST or netns:NAME. The device must reach it through this
    /// machine (docs/guide/net-link.md). Needs root on this machine
    #[arg(long, value_name = "DEVICE", value_parser = device::device, requires = "device")]
    pub server: Option<::device::remote::DeviceAddress>,
    /// Network interface of the server
    #[arg(long, value_name = "NAME", default_value = "eth0", requires = "server")]
    pub server_interface: String,
    /// Start at once even if a machine is hot or busy; the results are marked
    #[arg(long, requires = "device")]
    pub no_wait: bool,
    /// Copy this file to the device for bytecode workloads (java/dex builds it); without it, bytecode runs on this machine only
    #[arg(long, value_name = "FILE", requires = "device")]
    pub dex_jar: Option<PathBuf>,
    /// Fathom's binary for devices of another architecture (repeatable)
    #[arg(long, value_name = "FILE", requires = "device")]
    pub binary: Vec<PathBuf>,
    /// Print the claims as JSON (format: docs/reference/json.md)
    #[arg(long, requires = "device")]
    pub json: bool,
}

/// Run one built-in workload once, as a replicate of a benchmark, and print JSON lines.
#[derive(Debug, Args)]
#[command(after_help = workload::list())]
pub struct Workload {
    /// Name of the workload, followed by its options (NAME --help lists them)
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "NAME [OPTION…]")]
    pub words: Vec<String>,
}

/// A usage error, with the one hint that clap cannot know: a command to record follows `--`.
pub fn add_hint(error: clap::Error) -> clap::Error {
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
        format!("the command to record must follow `--`: fathom {options} -- {command}"),
    )
}

/// Ends the program as clap does on a usage error: the sentence, then how to get help, and exit status 2.
pub fn usage_error(sentence: &str) -> ! {
    let mut command = <Cli as clap::CommandFactory>::command();
    command.build();
    let record = command.find_subcommand_mut("record").expect("record is a verb");
    record.error(clap::error::ErrorKind::MissingRequiredArgument, sentence).exit()
}

fn process(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a process ID, as `pgrep NAME` prints it".into())
}

fn control(text: &str) -> Result<recorder::control::Place, recorder::control::InvalidPlace> {
    text.parse()
}

fn comm(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("expected a process name, such as sqlite3".into()) } else { Ok(text.into()) }
}

fn kernel_probe(text: &str) -> Result<String, String> {
    let known: Vec<&str> = capture::probe_names().collect();
    if known.contains(&text) {
        Ok(text.into())
    } else {
        Err(format!("expected a probe of the kernel: {}", known.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::collections::BTreeMap;

    #[test]
    fn clap_definitions_are_valid() {
        Cli::command().debug_assert();
    }

    /// A doc comment at a command's name would hide the longer one at its arguments, which `--help` must show.
    #[test]
    fn long_help_of_each_command_is_shown() {
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
            ("fathom lab run", "Ctrl-C"),
        ] {
            assert!(seen.get(verb).is_some_and(|long| long.contains(words)), "{verb}: {:?}", seen.get(verb));
        }
    }

    /// A wrapped example cannot be copied; paragraphs wrap by themselves.
    #[test]
    fn example_lines_have_at_most_100_columns() {
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

    /// What `-o -` means was decided for every command: what is one file goes to stdout, and an archive is refused.
    #[test]
    fn output_dash_is_stdout_or_is_refused() {
        fn each(command: &clap::Command, path: &str, seen: &mut [Vec<String>; 2]) {
            for verb in command.get_subcommands() {
                let path = if path.is_empty() { verb.get_name().into() } else { format!("{path} {}", verb.get_name()) };
                if verb.get_arguments().any(|arg| arg.get_id() == "output") {
                    let parsed = verb.clone().try_get_matches_from(["x", "--output", "-"]);
                    let refused = parsed.is_err_and(|e| e.kind() == clap::error::ErrorKind::ValueValidation);
                    seen[usize::from(refused)].push(path.clone());
                }
                each(verb, &path, seen);
            }
        }
        let mut seen = [Vec::new(), Vec::new()];
        each(&Cli::command(), "", &mut seen);
        seen[0].sort_unstable();
        let stdout = ["check calls", "check record", "diff", "export", "fleet report", "papers", "report", "sql"];
        assert_eq!(seen[0], stdout, "a new -o: use destination::write_text or destination::directory_parser");
        assert!(seen[1].len() >= 12, "{:?}", seen[1]);
    }

    #[test]
    fn link_is_a_hidden_alias_of_reindex() {
        for name in ["reindex", "link"] {
            let verb = Cli::try_parse_from(["fathom", name, "t.fathom"]).expect(name).verb;
            assert!(matches!(verb, Verb::Reindex(Reindex { archive }) if archive.as_os_str() == "t.fathom"), "{name}");
        }
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("reindex") && !help.contains("\n  link "), "{help}");
    }

    /// Arguments are refused before an earlier demo's recording is moved out of the way.
    #[test]
    fn demo_refuses_invalid_workload_options() {
        let parses = |words: &[&str]| Cli::try_parse_from(["fathom", "demo"].iter().chain(words)).is_ok();
        assert!(parses(&["--rows", "5", "--journal-mode", "wal"]));
        assert!(!parses(&["--rows", "0"]) && !parses(&["--journal-mode", "foo"]));
    }
}
