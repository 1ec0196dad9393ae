//! `fathom check`: a contract of what a command asks of files and disk.
//!
//! Each run is a process: a traced one is `fathom record`, whose archive is read and removed; an untraced one is `fathom workload command`.

use crate::{Usage, args, link, output};
use analysis::Rows;
use analysis::check::contract::BPF;
use analysis::check::{self, Contract, Counted, Observed, Outcome};
use analysis::text::shown;
use anyhow::{Context as _, Result, bail};
use archive::atomic_file;
use model::{Context, counted};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// How often a run is repeated whose recording has lost something.
const TRIES: u32 = 3;
pub fn run(args: &args::Check) -> Result<ExitCode> {
    match &args.verb {
        Some(args::CheckVerb::Record(record)) => self::record(record),
        None => compare(args),
    }
}

/// A command to be run again and again.
struct Runs<'a> {
    command: &'a [String],
    prepare: Option<&'a str>,
    folder: tempfile::TempDir,
}

/// What a traced run gives.
enum Traced {
    Counted(Observed),
    /// Tracing is not possible here, and why.
    Impossible(String),
}

impl<'a> Runs<'a> {
    fn new(command: &'a [String], prepare: Option<&'a str>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("fathom-check-").tempdir().context("a folder for recordings")?;
        Ok(Self { command, prepare, folder })
    }

    fn prepared(&self) -> Result<()> {
        let Some(prepare) = self.prepare else { return Ok(()) };
        let done = Command::new("/bin/sh").args(["-c", prepare]).stdin(Stdio::null()).stdout(Stdio::null()).output()?;
        if !done.status.success() {
            bail!("--prepare {prepare}: {}: {}", done.status, last(&done.stderr));
        }
        Ok(())
    }

    /// A run under `fathom record`; one that lost something is made again.
    fn traced(&self) -> Result<Traced> {
        let mut why = String::new();
        for _ in 0..TRIES {
            self.prepared()?;
            let archive = self.folder.path().join("run.fathom");
            let mut record = Command::new(std::env::current_exe().context("where this program is")?);
            record.args(["record", "--quiet", "--as-root", "--backend", "ebpf", "--no-probe-cost", "-o"]).arg(&archive);
            let done = record.arg("--").args(self.command).stdin(Stdio::null()).stdout(Stdio::null()).output()?;
            if !archive.join("meta.json").exists() {
                let error = last(&done.stderr);
                // The command could not be started: then nothing else can be done either.
                if matches!(done.status.code(), Some(126 | 127)) {
                    bail!("{error}");
                }
                return Ok(Traced::Impossible(error));
            }
            if !done.status.success() {
                bail!("{} failed: {}: {}", self.shown(), done.status, last(&done.stderr));
            }
            let rows = Rows::load_without_slices(&link::open(&archive, &Context::silent())?)?;
            std::fs::remove_dir_all(&archive).context("removing a recording")?;
            let observed = check::observe(&rows);
            match observed.incomplete {
                None => return Ok(Traced::Counted(observed)),
                Some(lost) => why = lost,
            }
        }
        bail!("{} recordings in a row are incomplete, so nothing was compared: {why}", TRIES)
    }

    /// A run that is counted by the kernel alone.
    fn untraced(&self) -> Result<Counted> {
        let words = self.command.iter().map(|word| output::word(Path::new(word)).to_string());
        let line = words.collect::<Vec<_>>().join(" ");
        let mut command = Command::new(std::env::current_exe().context("where this program is")?);
        command.args(["workload", "command", "--prepare", self.prepare.unwrap_or_default(), "--", &line]);
        let done = command.stdin(Stdio::null()).output()?;
        if !done.status.success() {
            bail!("{}", experiment::ab::text::reason(String::from_utf8_lossy(&done.stderr).trim()));
        }
        let one = Counted::parse(&String::from_utf8_lossy(&done.stdout))?;
        if one.calls.is_empty() {
            bail!("nothing can be counted here: no tracing, and no /proc/PID/io");
        }
        Ok(one)
    }

    fn shown(&self) -> String {
        shown(&self.command.join(" "))
    }
}

fn last(error: &[u8]) -> String {
    let error = String::from_utf8_lossy(error);
    let line = error.trim_end().lines().last().unwrap_or_default();
    shown(line.strip_prefix("fathom: ").unwrap_or(line))
}

/// Says what is not counted without tracing.
fn print_blind(why: &str) {
    eprintln!(
        "fathom: not traced ({why}): only calls that read and write, and their bytes, of all files and pipes together, are counted; \
         syncs, statements, kinds of file and device commands are not"
    );
}

fn record(args: &args::CheckRecord) -> Result<ExitCode> {
    let runs = Runs::new(&args.command, args.prepare.as_deref())?;
    // Of the first run, what is cached or compiled meanwhile is not asked again.
    runs.untraced()?;
    let untraced = (0..args.runs).map(|_| runs.untraced()).collect::<Result<Vec<_>>>()?;
    let mut traced = Vec::new();
    if args.no_trace {
        print_blind("--no-trace");
    } else {
        for _ in 0..args.runs {
            match runs.traced()? {
                Traced::Counted(observed) => traced.push(observed),
                Traced::Impossible(why) => {
                    print_blind(&why);
                    break;
                }
            }
        }
    }
    let contract = Contract::learn(args.command.clone(), args.prepare.clone(), &traced, &untraced);
    atomic_file::text(&args.output, &contract.to_toml()?)?;
    recorder::output::give_to_caller(&args.output)?;
    let (statements, counts) = contract.size();
    let varied = match contract.varied() {
        0 => String::new(),
        n => format!(", {n} that varied"),
    };
    println!(
        "{}: {}{varied}, of {}, in {} of {}",
        args.output.display(),
        counted(counts, "exact count"),
        counted(statements, "statement"),
        counted(args.runs as usize, "run"),
        runs.shown()
    );
    Ok(ExitCode::SUCCESS)
}

fn compare(args: &args::Check) -> Result<ExitCode> {
    let file = args.file.display();
    let text = std::fs::read_to_string(&args.file)
        .with_context(|| format!("{file}: no contract; make one: fathom check record -o {file} -- CMD"))?;
    let contract = Contract::parse(&text).with_context(|| format!("{file} is no contract"))?;
    let command = if args.command.is_empty() { &contract.command } else { &args.command };
    if command.is_empty() {
        return Err(Usage(format!("{file} names no command: give it after --")).into());
    }
    let runs = Runs::new(command, args.prepare.as_deref().or(contract.prepare.as_deref()))?;
    let outcome = match compared(args, &contract, &runs)? {
        Ok(outcome) => outcome,
        Err(why) => {
            print_blind(&why);
            untraced(&contract, &runs)?
        }
    };
    output::text(&match args.json {
        true => serde_json::to_string_pretty(&outcome)? + "\n",
        false => check::text::text(&outcome),
    });
    Ok(if outcome.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Traced runs beside the contract; the inner error is why there are none.
fn compared(args: &args::Check, contract: &Contract, runs: &Runs<'_>) -> Result<Result<Outcome, String>> {
    if contract.counted_by != BPF {
        return Ok(Err(format!("{} was recorded without tracing", args.file.display())));
    }
    if args.no_trace {
        return Ok(Err("--no-trace".into()));
    }
    check::confirmed(contract, || {
        Ok(match runs.traced()? {
            Traced::Counted(observed) => Ok(observed),
            Traced::Impossible(why) => Err(why),
        })
    })
}

fn untraced(contract: &Contract, runs: &Runs<'_>) -> Result<Outcome> {
    check::confirmed_untraced(contract, || runs.untraced())
}
