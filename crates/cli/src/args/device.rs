//! Command line of `fathom device`, and of every verb that works on a device.

use crate::destination::directory_parser;
use clap::{Args, Subcommand, ValueEnum};
use device::remote::{AddressError, DeviceAddress, DeviceNames, OneOrAll};
use model::quantity::long_time;
use std::path::PathBuf;
use std::time::Duration;

/// List devices, show their facts and what Fathom can do on them.
///
/// A device is `local`, `adb:SERIAL` (as `fathom device list` names it; `adb` if there is only one), or `ssh:[USER@]HOST[:PORT]`.
/// Fathom copies itself to the device once per version, and removes everything else it creates there. Nothing is installed, and these
/// commands need no root.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Start here:
  fathom device list                                     this machine, and what adb lists
  fathom device check adb                                what Fathom can do there (all: on each)
  fathom device info adb                                 facts about the phone
  fathom bench run sqlite --quick --device adb           the first measurement there
  fathom device stop adb --list                          what was left running there

The guide is docs/guide/android.md."
)]
pub struct Device {
    #[command(subcommand)]
    pub verb: DeviceVerb,
}

/// The commands of `device`, documented at their arguments.
#[derive(Debug, Subcommand)]
pub enum DeviceVerb {
    List(DeviceList),
    Info(DeviceInfo),
    Check(DeviceCheck),
    Stop(DeviceStop),
    Fetch(DeviceFetch),
}

/// List this machine and the devices that adb lists, with their states.
#[derive(Debug, Args)]
pub struct DeviceList {
    /// Run until Ctrl-C, and print the list again whenever it changes
    #[arg(long)]
    pub watch: bool,
    /// Print JSON (format: docs/reference/json.md); with --watch, one line per change
    #[arg(long)]
    pub json: bool,
}

/// Show the facts known about a device, and why others are unknown.
///
/// Several devices (comma-separated, or `all` for every device that adb lists) are queried at the same time, and shown one after
/// another.
#[derive(Debug, Args)]
pub struct DeviceInfo {
    #[command(flatten)]
    pub which: Which,
    /// Also show unknown facts with the reason, and the source of each fact
    #[arg(long)]
    pub all: bool,
    /// Print JSON (format: docs/reference/json.md); with several devices, one line each
    #[arg(long)]
    pub json: bool,
}

/// Show what Fathom can do on a device, and what prevents the rest.
///
/// Several devices (comma-separated, or `all` for every device that adb lists) are queried at the same time, and shown one after
/// another.
#[derive(Debug, Args)]
pub struct DeviceCheck {
    #[command(flatten)]
    pub which: Which,
    /// Print JSON (format: docs/reference/json.md); with several devices, one line each
    #[arg(long)]
    pub json: bool,
}

/// List and stop what Fathom left running on a device: nodes, net servers, benchmarks whose host was disconnected.
///
/// A service (`pool node --device`, `net serve --device`) is stopped and removed. A benchmark that was not fetched is ended; its
/// results are kept for `fathom device fetch` unless --discard is given.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom device stop adb --list               list what is running
  fathom device stop adb                      stop all of it
  fathom device stop adb node-4711-9f3c       stop this one
  fathom device stop adb --remove-program     also remove Fathom's binary there")]
pub struct DeviceStop {
    /// The device
    #[arg(value_name = "DEVICE", value_parser = device)]
    pub device: DeviceAddress,
    /// What to stop, by the names that --list shows [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Only list what is running
    #[arg(long, conflicts_with_all = ["discard", "remove_program"])]
    pub list: bool,
    /// Also remove the results of benchmarks that were not fetched
    #[arg(long)]
    pub discard: bool,
    /// Also remove Fathom's binary from the device, if nothing there needs it
    #[arg(long, conflicts_with = "names")]
    pub remove_program: bool,
    /// Fathom's binary for devices of another architecture (repeatable)
    #[arg(long, value_name = "FILE")]
    pub binary: Vec<PathBuf>,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Fetch the results of a benchmark whose host was disconnected, and remove them from the device.
///
/// A benchmark that is still running is followed to its end; Ctrl-C ends it and fetches its results so far.
#[derive(Debug, Args)]
pub struct DeviceFetch {
    /// The device
    #[arg(value_name = "DEVICE", value_parser = device)]
    pub device: DeviceAddress,
    /// The benchmark, by the name that `fathom device stop DEVICE --list` shows
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Archive to write; an existing one is kept as NAME.fathom.old
    #[arg(short, long, value_name = "B.fathom", default_value = "bench.fathom", value_parser = directory_parser())]
    pub output: PathBuf,
    /// Fathom's binary for devices of another architecture (repeatable)
    #[arg(long, value_name = "FILE")]
    pub binary: Vec<PathBuf>,
    /// Print no progress, only warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// Where a service runs, if not here.
#[derive(Debug, Clone, Default, Args)]
pub struct ServiceDevice {
    /// Run on this device, and keep running there when the connection ends: adb:SERIAL (adb if there is only one) or
    /// ssh:[USER@]HOST[:PORT]. `fathom device stop DEVICE` stops it. In a guest, lab:SCENARIO,forward=PORT, it runs as long as this command
    #[arg(long, value_name = "DEVICE", value_parser = device)]
    pub device: Option<DeviceAddress>,
    /// Fathom's binary for devices of another architecture (repeatable)
    #[arg(long, value_name = "FILE", requires = "device")]
    pub binary: Vec<PathBuf>,
}

/// The devices that are looked at.
#[derive(Debug, Args)]
pub struct Which {
    /// Devices, separated by commas, or `all` for every device that adb lists
    #[arg(value_name = "DEVICE,…", default_value = "local", value_parser = devices)]
    pub device: Vec<DeviceNames>,
    /// Fathom's binary for devices of another architecture (repeatable)
    #[arg(long, value_name = "FILE")]
    pub binary: Vec<PathBuf>,
}

/// Where something runs, one device or several.
#[derive(Debug, Clone, Default, Args)]
pub struct Devices {
    /// Run on this device and bring the archive back: adb:SERIAL (adb if there is only one), ssh:[USER@]HOST[:PORT],
    /// lab:SCENARIO[,KEY=VALUE…], such as lab:scsi-ext4,fs=f2fs (docs/guide/lab.md). Several devices, separated by commas, or `all`
    /// (every device that adb lists), run at the same time; their archives, named after the devices, are in the directory given by -o
    #[arg(long, value_name = "DEVICE,…", value_parser = devices)]
    pub device: Vec<DeviceNames>,
    /// Fathom's binary for devices of another architecture (repeatable)
    #[arg(long, value_name = "FILE", requires = "device")]
    pub binary: Vec<PathBuf>,
    /// How long to wait for a disconnected device; the run continues on it meanwhile [default: 2m; 0: the run ends with the connection]
    #[arg(long, value_name = "TIME", value_parser = patience, requires = "device")]
    pub reconnect: Option<Duration>,
}

impl Devices {
    /// How long a device is waited for.
    pub fn reconnect_timeout(&self) -> Duration {
        self.reconnect.unwrap_or(Duration::from_secs(120))
    }
}

/// A device. The scenario of a guest is looked at here, before anything begins.
pub fn device(text: &str) -> Result<DeviceAddress, String> {
    let place = text.parse().map_err(|error: AddressError| error.to_string())?;
    check_bootable(&place).map(|()| place)
}

fn devices(text: &str) -> Result<DeviceNames, String> {
    let names: DeviceNames = text.parse().map_err(|error: AddressError| error.to_string())?;
    for name in &names.0 {
        if let OneOrAll::One(place) = name {
            check_bootable(place)?;
        }
    }
    Ok(names)
}

/// Whether there is such a scenario. Lines of the manual are parsed where its files are not.
fn check_bootable(place: &DeviceAddress) -> Result<(), String> {
    match place {
        DeviceAddress::Lab(word) if std::env::var_os("FATHOM_PARSE_ONLY").is_none() => {
            ::lab::scenario::find(word, &[]).map(drop).map_err(|error| error.to_string())
        }
        _ => Ok(()),
    }
}

fn patience(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { long_time(text).map_err(|error| error.to_string()) }
}

/// What records on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// Android's own Perfetto, without root: ftrace as far as the device exposes it, and the framework's SQL statements.
    Perfetto,
}
