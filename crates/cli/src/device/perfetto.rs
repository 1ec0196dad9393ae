//! `fathom record --device adb:… --via perfetto`: records with the device's own tracer, fetches its file and imports it. No root is
//! needed: a shell may use `perfetto`, and traced writes only where it may (/data/misc/perfetto-traces).

use super::result;
use crate::args::Record;
use crate::{notices, output};
use analysis::host_clock::HostClock;
use anyhow::{Context as _, Result, bail};
use archive::Archive;
use device::remote::perfetto::{self, Config};
use device::remote::{DeviceAddress, new_name};
use model::text::ShownPath as _;
use model::{Context, counted};
use recorder::Import;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default duration of a trace.
const TRACE_DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// Checks that these devices can record this way at all.
pub fn check_possible(args: &Record, places: &[DeviceAddress]) -> Result<(), crate::Usage> {
    if let Some(place) = places.iter().find(|place| !matches!(place, DeviceAddress::Adb(_))) {
        return Err(crate::Usage(format!("--via perfetto needs an Android device (adb:SERIAL), not {place}")));
    }
    if !args.command.is_empty() {
        return Err(crate::Usage(
            "--via perfetto records the whole device: give --duration, and start the program there meanwhile".into(),
        ));
    }
    Ok(())
}

/// Records on one device and imports the recording as `archive`, with the trace next to it; returns how the device's clock
/// relates to this machine's.
pub fn record_trace(
    args: &Record,
    place: &DeviceAddress,
    archive: &Path,
    prefix: &str,
    context: &Context,
) -> Result<Option<HostClock>> {
    // Reported before anything is recorded.
    Archive::check_create(archive, true)?;
    let duration = args.duration.unwrap_or(TRACE_DURATION_DEFAULT);
    let config = Config { name: new_name("trace"), duration, max_bytes: args.max_size };
    let mut name = archive.as_os_str().to_owned();
    name.push(".pftrace");
    let file = PathBuf::from(name);
    let took = perfetto::record(place, &config, &file, context, &mut |line| {
        if !args.quiet {
            eprintln!("fathom: {line}");
        }
    });
    context.clear_progress();
    let took = took?;
    if took.bytes == 0 {
        bail!("{place}: its perfetto recorded nothing");
    }
    let [first, last] = took.clocks;
    let clock = result::host_clock(first, last);
    let notify =
        |notice| if args.quiet { notices::print_warning(notice) } else { notices::print_recorder_notice(notice) };
    let request = Import {
        files: vec![file.clone()],
        output: archive.to_path_buf(),
        keep_sql: args.keep_sql,
        machine: None,
        facts: clock.as_ref().map(HostClock::facts).unwrap_or_default(),
    };
    let imported = recorder::import(&request, context, &notify);
    context.clear_progress();
    let imported = imported.with_context(|| format!("the trace of {place} was kept as {}", file.shown()))?;
    recorder::output::give_to_caller(archive)?;
    if !args.quiet {
        let taken = counted(imported.taken as usize, "event");
        eprintln!("{}: {taken} of {place}, in {}", archive.shown(), output::word(&file));
        if !imported.blind.is_empty() {
            let layers: Vec<&str> = imported.blind.iter().map(|layer| layer.name()).collect();
            eprintln!("{prefix}blind: {}", layers.join(", "));
        }
        eprintln!("{prefix}next: fathom show {0}, or fathom report {0}", output::word(archive));
    }
    Ok(clock)
}
