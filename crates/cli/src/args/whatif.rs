//! Command line of `fathom whatif`.

use clap::Args;
use std::path::PathBuf;
use verdicts::whatif::removal::{NAMED_REMOVALS, Removal};

/// Predict how long a recording's statements would take without a flush, a call or a checkpoint, or on another device.
///
/// Each execution is a chain of intervals in which its thread ran or waited for a known cause. The chain is replayed without what
/// --without removes, with the durations of device commands from another recording, or with at most N commands at the device at once.
/// Prints recorded and predicted latencies, their ratio with its interval, and the measured error of such predictions where the changes
/// were actually made. What was not recorded is not simulated; the output lists what the prediction leaves out.
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub struct Whatif {
    /// The recording
    #[arg(value_name = "T.fathom")]
    pub archive: PathBuf,
    /// Remove this from each execution (repeatable, or comma-separated): a name from the list below, or calls as `fathom diff` prints
    /// them
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = str::parse::<Removal>)]
    pub without: Vec<Removal>,
    /// Take the durations of device commands from this recording, by kind and size
    #[arg(long, value_name = "OTHER.fathom")]
    pub device: Option<PathBuf>,
    /// Let the device process this many commands at once, in order of arrival
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), conflicts_with_all = ["without", "device"])]
    pub queue: Option<u32>,
    /// Seed for drawing the durations of --device
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
}

fn after_help() -> String {
    let names: String = NAMED_REMOVALS.iter().map(|(name, _, what)| format!("  {name:<16} {what}\n")).collect();
    format!(
        "\
Examples:
  fathom whatif trace.fathom --without flush             a device with power-loss protection
  fathom whatif trace.fathom --without journal-delete,directory-sync
  fathom whatif trace.fathom --without 'second fdatasync rollback journal'
  fathom whatif trace.fathom --device other.fathom       on the device of another recording
  fathom whatif trace.fathom --queue 1

--without takes:
{names}  [NTH] CALL [FILE]  such system calls; NTH: first, second, third, 4th … of each execution;
                   FILE: database, WAL, directory, …
  PART             a part of the account, by its id in `fathom explain --json`: timer,
                   futex, flush:others …
  lock:PID         waits for locks that a process held
  foreign:PID      waits for what was for a process alone, or that it ended"
    )
}
