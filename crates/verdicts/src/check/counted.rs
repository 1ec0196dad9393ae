//! Counts the file and disk requests of a command, run by run.
//!
//! Each run is a process: a traced one is `fathom record`, whose archive is read and removed; an untraced one is `fathom workload command`.

use crate::check::contract::{BPF, PROC, PTRACE};
use crate::check::located::{self, Located};
use crate::check::{self, Contract, ObservedRun, Outcome, SectionCounts};
use analysis::Rows;
use model::messages::strip_program_name;
use model::place::LocatedCall;
use model::text::{ShownPath as _, shown};
use model::{Call, Context};
use scores::measure::error::IoContext as _;
use scores::measure::supervised::output;
use scores::measure::{Error, Open, Result};
use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Maximum number of attempts if recordings lose events.
const RECORDING_ATTEMPTS_MAX: u32 = 3;

/// Reads the contract in a file.
///
/// # Errors
/// There is no contract, or it cannot be read.
pub fn read_contract(path: &Path) -> Result<Contract> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            Contract::parse(&text).map_err(|source| Error::Contract { file: path.into(), source: source.into() })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::NoContract(path.into())),
        Err(error) => Err(error).doing(format!("cannot read {}", path.shown())),
    }
}

/// A command to be run repeatedly.
pub struct Runs<'a> {
    fathom: PathBuf,
    command: &'a [String],
    prepare: Option<&'a str>,
    directory: tempfile::TempDir,
    context: &'a Context,
    open: Open<'a>,
}

/// The result of a traced run.
#[derive(Debug)]
pub enum TracedRun {
    Counted(ObservedRun),
    /// Tracing is not possible here, with the reason.
    Impossible(UntracedReason),
}

/// The reason why runs are not traced.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UntracedReason {
    /// The user does not want it.
    NotWanted,
    /// The contract was made without tracing.
    ContractUntraced,
    /// It is not possible here: the error of `fathom record`.
    Impossible(String),
}

impl fmt::Display for UntracedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWanted => f.write_str("--no-trace"),
            Self::ContractUntraced => f.write_str("the contract was recorded without tracing"),
            Self::Impossible(why) => f.write_str(why),
        }
    }
}

/// The input for a contract.
#[derive(Debug)]
pub struct LearnedRuns {
    /// Traced runs.
    pub traced: Vec<ObservedRun>,
    /// Runs counted by the kernel alone.
    pub untraced: Vec<SectionCounts>,
    /// How the traced ones were counted.
    pub counted_by: &'static str,
    /// Why they were not counted by BPF.
    pub untraced_reason: Option<UntracedReason>,
}

impl<'a> Runs<'a> {
    /// Prepares runs of this command; `prepare` runs before each of them. Cancelling `context` ends the current run.
    pub fn new(command: &'a [String], prepare: Option<&'a str>, context: &'a Context, open: Open<'a>) -> Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("fathom-check-").tempdir().doing("making a directory for recordings")?;
        let fathom = std::env::current_exe().doing("cannot find Fathom's own binary")?;
        Ok(Self { fathom, command, prepare, directory, context, open })
    }

    fn run_prepare(&self) -> Result<()> {
        let Some(prepare) = self.prepare else { return Ok(()) };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", prepare]).stdin(Stdio::null());
        let done = output(&mut command, self.context, || "running --prepare".into())?;
        if !done.status.success() {
            return Err(Error::Command {
                what: format!("--prepare {prepare}"),
                how: format!("{}: {}", done.status, last_error_line(&done.stderr)),
            });
        }
        Ok(())
    }

    /// Runs the command under `fathom record`; repeats the run if events were lost.
    ///
    /// # Errors
    /// The command fails, or each recording lost events.
    pub fn traced(&self) -> Result<TracedRun> {
        let mut why = String::new();
        for _ in 0..RECORDING_ATTEMPTS_MAX {
            self.run_prepare()?;
            let archive = self.archive();
            remove_archive(&archive)?;
            let mut record = self.record(&archive);
            record.arg("--").args(self.command);
            let done = output(&mut record, self.context, || "starting `fathom record`".into())?;
            if !archive.join("meta.json").exists() {
                let error = last_error_line(&done.stderr);
                // If the command could not be started, nothing else can be done either.
                if matches!(done.status.code(), Some(126 | 127)) {
                    return Err(Error::Refused(error));
                }
                return Ok(TracedRun::Impossible(UntracedReason::Impossible(error)));
            }
            if !done.status.success() {
                let how = format!("{}: {}", done.status, last_error_line(&done.stderr));
                return Err(Error::Command { what: self.shown(), how });
            }
            let rows = Rows::load_without_slices(&(self.open)(&archive).map_err(Error::Open)?)?;
            let observed = check::observe(&rows);
            match observed.incomplete {
                None => return Ok(TracedRun::Counted(observed)),
                Some(lost) => why = lost,
            }
        }
        Err(Error::Incomplete { tries: RECORDING_ATTEMPTS_MAX, why })
    }

    /// The recording of the last traced run.
    pub fn archive(&self) -> PathBuf {
        self.directory.path().join("run.fathom")
    }

    fn record(&self, archive: &Path) -> Command {
        let mut record = Command::new(&self.fathom);
        record.args(["record", "--quiet", "--as-root", "--backend", "ebpf", "--no-probe-cost", "-o"]).arg(archive);
        record.stdin(Stdio::null());
        record
    }

    /// Runs the command again, stopped at each call of the differences, and adds the lines that make them. Returns the reason if that
    /// fails: a difference is one without its line, too.
    ///
    /// # Errors
    /// The run was cancelled, or its recording cannot be read.
    pub fn locate(&self, outcome: &mut Outcome) -> Result<Option<String>> {
        let calls: BTreeSet<&str> =
            outcome.differences.iter().flat_map(|d| located::calls_of(&d.what)).map(Call::name).collect();
        if calls.is_empty() {
            return Ok(None);
        }
        self.run_prepare()?;
        let (archive, stops) =
            (self.directory.path().join("located.fathom"), self.directory.path().join("calls.jsonl"));
        remove_archive(&archive)?;
        let mut record = self.record(&archive);
        // The object inside a program would be loaded by ptrace, which has one tracer.
        record.args(["--probes", "uprobe", "--stacks", "off", "--"]).arg(&self.fathom).args(["check", "calls", "-o"]);
        record.arg(&stops).args(calls.iter().flat_map(|call| ["--call", call])).arg("--").args(self.command);
        let done = output(&mut record, self.context, || "starting `fathom record`".into())?;
        if !done.status.success() || !archive.join("meta.json").exists() {
            return Ok(Some(last_error_line(&done.stderr)));
        }
        let rows = Rows::load_without_slices(&(self.open)(&archive).map_err(Error::Open)?)?;
        let text = std::fs::read_to_string(&stops).doing("reading the command's calls")?;
        let calls = text.lines().map(serde_json::from_str::<LocatedCall>).collect::<serde_json::Result<Vec<_>>>();
        let calls = calls.map_err(|source| Error::MalformedOutput { what: "`fathom check calls`", source })?;
        outcome.locate(&Located::new(&rows, &calls));
        Ok(None)
    }

    /// Runs the command, counted by the kernel alone.
    ///
    /// # Errors
    /// The command fails, or the kernel counts nothing.
    pub fn untraced(&self) -> Result<SectionCounts> {
        let words = self.command.iter().map(|word| model::shell_word(Path::new(word)).to_string());
        let line = words.collect::<Vec<_>>().join(" ");
        let mut command = Command::new(&self.fathom);
        command.args(["workload", "command", "--prepare", self.prepare.unwrap_or_default(), "--", &line]);
        let done = output(command.stdin(Stdio::null()), self.context, || "starting the command".into())?;
        if !done.status.success() {
            return Err(Error::Refused(experiment::ab::text::shorten_failure(
                String::from_utf8_lossy(&done.stderr).trim(),
            )));
        }
        let one = SectionCounts::parse(&String::from_utf8_lossy(&done.stdout));
        let one = one.map_err(|source| Error::MalformedOutput { what: "the command", source })?;
        if one.calls.is_empty() {
            return Err(Error::NothingCounted);
        }
        Ok(one)
    }

    /// Makes `runs` runs of each kind, for a contract; the very first one is discarded, since what it caches or compiles is not
    /// requested again. `report` gets the reason at once if nothing is traced.
    ///
    /// # Errors
    /// Same as [`Runs::traced`] and [`Runs::untraced`].
    pub fn learn(&self, runs: u64, trace: bool, report: &dyn Fn(&UntracedReason, &str)) -> Result<LearnedRuns> {
        self.untraced()?;
        let untraced = (0..runs).map(|_| self.untraced()).collect::<Result<Vec<_>>>()?;
        let (mut traced, mut reason) = (Vec::new(), (!trace).then_some(UntracedReason::NotWanted));
        while reason.is_none() && (traced.len() as u64) < runs {
            match self.traced()? {
                TracedRun::Counted(observed) => traced.push(observed),
                TracedRun::Impossible(why) => reason = Some(why),
            }
        }
        let mut counted_by = if reason.is_none() { BPF } else { PROC };
        if let Some(why) = &reason {
            traced.clear();
            while trace && (traced.len() as u64) < runs {
                match self.stopped()? {
                    TracedRun::Counted(observed) => traced.push(observed),
                    TracedRun::Impossible(_) => break,
                }
            }
            if !traced.is_empty() {
                counted_by = PTRACE;
            }
            report(why, counted_by);
        }
        Ok(LearnedRuns { traced, untraced, counted_by, untraced_reason: reason })
    }

    /// Compares runs with the contract, traced if that is requested and possible; `report` gets the reason at once if not.
    ///
    /// # Errors
    /// Same as [`Runs::traced`] and [`Runs::untraced`].
    pub fn compare(&self, contract: &Contract, trace: bool, report: &dyn Fn(&UntracedReason, &str)) -> Result<Outcome> {
        let done = match contract.counted_by.as_str() {
            PROC => Err(UntracedReason::ContractUntraced),
            _ if !trace => Err(UntracedReason::NotWanted),
            BPF => self.compare_traced(contract, BPF, || self.traced())?,
            _ => self.compare_traced(contract, PTRACE, || self.stopped())?,
        };
        match done {
            Ok(outcome) => Ok(outcome),
            Err(why) => {
                report(&why, PROC);
                check::check_untraced(contract, || self.untraced())
            }
        }
    }

    fn compare_traced(
        &self,
        contract: &Contract,
        counted_by: &str,
        run: impl Fn() -> Result<TracedRun>,
    ) -> Result<std::result::Result<Outcome, UntracedReason>> {
        check::check_traced(contract, counted_by, || {
            Ok(match run()? {
                TracedRun::Counted(observed) => Ok(observed),
                TracedRun::Impossible(why) => Err(why),
            })
        })
    }

    /// Runs the command, stopped at its calls on files: for all users, without statements and the device.
    ///
    /// # Errors
    /// The command fails.
    pub fn stopped(&self) -> Result<TracedRun> {
        self.run_prepare()?;
        let counts = self.directory.path().join("counts.json");
        let mut command = Command::new(&self.fathom);
        command.args(["check", "calls", "--count", "-o"]).arg(&counts).arg("--").args(self.command);
        let done = output(command.stdin(Stdio::null()), self.context, || "starting the command".into())?;
        let Ok(text) = std::fs::read_to_string(&counts) else {
            return Ok(TracedRun::Impossible(UntracedReason::Impossible(last_error_line(&done.stderr))));
        };
        std::fs::remove_file(&counts).doing("removing counts")?;
        if !done.status.success() {
            let how = format!("{}: {}", done.status, last_error_line(&done.stderr));
            return Err(Error::Command { what: self.shown(), how });
        }
        let program = serde_json::from_str(&text);
        let program = program.map_err(|source| Error::MalformedOutput { what: "`fathom check calls`", source })?;
        Ok(TracedRun::Counted(ObservedRun { program, ..ObservedRun::default() }))
    }

    /// Returns the command, for people.
    pub fn shown(&self) -> String {
        shown(&self.command.join(" "))
    }
}

fn remove_archive(archive: &Path) -> Result<()> {
    match std::fs::remove_dir_all(archive) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).doing("removing a recording"),
        _ => Ok(()),
    }
}

fn last_error_line(error: &[u8]) -> String {
    let error = String::from_utf8_lossy(error);
    let line = error.trim_end().lines().last().unwrap_or_default();
    shown(strip_program_name(line))
}
