//! The arguments of `fathom watch`.

use super::{comm, one_of, process};
use crate::destination::directory_parser;
use clap::Args;
use model::quantity::{bytes, moment, seconds};
use recorder::Probes;
use recorder::presets::Operation;
use recorder::watch::{Keep, Slow};
use std::path::PathBuf;

/// Record all the time, and keep only what was slow.
///
/// Keeps the newest events in memory. When an operation takes as long as --slow, what caused its time is kept: an archive with this
/// operation and everything since its oldest cause, of all processes, for `show`, `explain` and `report`. Prints one line per incident.
/// Slow operations that follow each other closely are one incident; those that come while one is written, or within --interval of the last
/// one, are counted. Under too many of them, the limit is raised, and later lowered. SIGUSR1 keeps what the buffer holds now.
///
/// Runs until Ctrl-C, and then prints what was seen, kept and lost, and what it cost.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo fathom watch                                    every program, operations of 5 ms and more
  sudo fathom watch --slow p99.9 --pid 1234            the slowest of a process
  sudo fathom watch --slow 20ms -- ./server            a program, until it exits
  sudo fathom watch --who --duration 600               who delayed whom in ten minutes
  sudo fathom watch --json | jq .archive               for other programs
  sudo kill -USR1 $(pidof fathom)                      keep what the buffer holds now
  fathom explain incidents/incident-000001-*.fathom    why it was slow

An operation is an SQL statement, a function of --op, or, in programs without these, a call that waits for the disk (fsync, \
synchronous writes, reads that miss the page cache).")]
pub struct Watch {
    /// Directory for incidents; it is created
    #[arg(short, long, value_name = "DIR", default_value = "incidents", value_parser = directory_parser())]
    pub output: PathBuf,
    /// How long a slow operation takes at least: a time (5ms, 200us), or a percentile of the operations so far (p99, p99.9)
    #[arg(long, value_name = "TIME|pN", default_value = "5ms")]
    pub slow: Slow,
    /// Memory for events (suffixes K, M, G). Linking an incident needs more for a moment
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = buffer)]
    pub buffer: u64,
    /// Incidents to keep, as a number or in bytes (suffixes K, M, G); the oldest ones are removed
    #[arg(long, value_name = "N|BYTES", default_value = "100")]
    pub keep: Keep,
    /// Seconds after an incident in which slow operations are only counted
    #[arg(long, value_name = "S", default_value = "10", value_parser = moment)]
    pub interval: std::time::Duration,
    /// Watch this running process and its children (repeatable)
    #[arg(long, value_name = "N", value_parser = process, conflicts_with_all = ["comm", "cgroup", "command"])]
    pub pid: Vec<u32>,
    /// Watch processes of this name, running or started later
    #[arg(long, value_name = "NAME", value_parser = comm, conflicts_with_all = ["cgroup", "command"])]
    pub comm: Option<String>,
    /// Watch the processes that are in this cgroup (v2) or below it now, and what they start
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    pub cgroup: Option<PathBuf>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Option<std::time::Duration>,
    /// Trace calls to this function as operations, as `fathom record` does (`fathom record --list-ops`)
    #[arg(long = "op", value_name = "BINARY:FUNCTION|NAME")]
    pub operations: Vec<Operation>,
    /// Keep literals in stored SQL text; by default they are replaced by ? before anything is stored
    #[arg(long)]
    pub keep_sql: bool,
    /// Run CMD as root even under sudo
    #[arg(long)]
    pub as_root: bool,
    /// How to probe SQLite's functions
    #[arg(long, default_value = "auto", value_parser = one_of(&Probes::CHOICES))]
    pub probes: Probes,
    /// At the end, print who delayed whom: the time of the slow operations by victim, culprit and reason
    #[arg(long)]
    pub who: bool,
    /// After each incident, write counters and who delayed whom to this file, for Prometheus's node_exporter (textfile collector)
    #[arg(long, value_name = "FILE.prom")]
    pub prometheus: Option<PathBuf>,
    /// Print a JSON object per line (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
    /// Program to run, with its arguments
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

/// Parses the size of the buffer, of which a part has to hold the longest record.
fn buffer(text: &str) -> Result<u64, String> {
    const BUFFER_BYTES_MIN: u64 = 1 << 20;
    let size = bytes(text).map_err(|error| error.to_string())?;
    if size < BUFFER_BYTES_MIN { Err("expected at least 1M".into()) } else { Ok(size) }
}
