//! An archive that is made on a device ([`recorder::incoming`]), and its messages meanwhile.

use crate::args::Devices;
use crate::{notices, output};
use analysis::host_clock::{ClockReading, HostClock};
use anyhow::Result;
use device::remote::{CommandEnd, DetachedOptions, DetachedStart, DeviceAddress, JobEvent, JobOutcome, Remark, Skew};
use model::{Context, Lines};
use recorder::incoming::{FetchError, RemoteRun};
use std::path::Path;

/// How it is reported.
#[derive(Clone, Copy, Default)]
pub struct ReportOptions<'a> {
    /// Whether only warnings are printed.
    pub quiet: bool,
    /// Whether its output is printed here; results are printed by this side.
    pub prints_output: bool,
    /// Before each line of the device, if there are several.
    pub prefix: &'a str,
}

/// Runs it until it ends; how, and whether anything was brought.
pub fn bring_archive(
    incoming: &RemoteRun<'_>,
    telling: ReportOptions<'_>,
    context: &Context,
) -> Result<(JobOutcome, bool)> {
    let ReportOptions { quiet, prints_output: prints, prefix } = telling;
    let mut aside = Lines::new(|text| text.lines().for_each(|line| eprintln!("{prefix}{}", line.trim_end())));
    let notify = |notice| {
        if !quiet {
            notices::print_recorder_notice(notice)
        }
    };
    let brought = recorder::incoming::fetch(incoming, context, &notify, &mut |note| match note {
        JobEvent::Message(remark) if !quiet || !matches!(remark, Remark::Copying { .. }) => {
            eprintln!("fathom: {remark}")
        }
        JobEvent::Out(bytes) if prints => output::out(format_args!("{}", String::from_utf8_lossy(bytes))),
        JobEvent::Err(bytes) => aside.take(bytes),
        JobEvent::Message(_) | JobEvent::Out(_) | JobEvent::Received(_) => {}
    });
    drop(aside);
    let (done, kept) = brought.map_err(|error| match error {
        FetchError::Interrupted => anyhow::Error::from(crate::Interrupted),
        other => other.into(),
    })?;
    // An archive that is cut off may have no meta.json yet; its own times are right without it.
    if let Some(clock) = clock(&done).filter(|_| kept)
        && let Err(error) = recorder::incoming::keep_facts(incoming.output, clock.facts())
    {
        eprintln!("fathom: the relation between the clocks was not stored: {}", model::text::error_chain(&error));
    }
    Ok((done, kept))
}

/// What outlives its connection, of this name there: a connection to this machine, or to a guest of its own, does not break.
pub fn detached<'a>(place: &DeviceAddress, name: &'a str, devices: &Devices) -> Option<DetachedOptions<'a>> {
    let patience = devices.reconnect_timeout();
    let far = matches!(place, DeviceAddress::Adb(_) | DeviceAddress::Ssh(..)) && !patience.is_zero();
    far.then_some(DetachedOptions { name, begin: DetachedStart::Start, patience })
}

/// How the device's clock related to this machine's, if it has one of its own.
pub fn clock(done: &JobOutcome) -> Option<HostClock> {
    if matches!(done.place, DeviceAddress::Local | DeviceAddress::Netns(_)) {
        return None;
    }
    host_clock(done.skew, done.skew_last)
}

/// A device's clock relative to this machine's, from the first and the last exchange with it.
pub fn host_clock(first: Option<Skew>, last: Option<Skew>) -> Option<HostClock> {
    let reading = |s: Skew| ClockReading { at_ns: s.at_ns, ahead_ns: s.ahead_ns, error_ns: s.error_ns };
    let boot = device::boot_id(&device::Local)?;
    Some(HostClock { boot, first: reading(first?), last: last.map(reading) })
}

/// The message about a lost device.
pub fn report_lost(done: &JobOutcome, kept: bool, output: &Path) -> bool {
    let CommandEnd::Lost(why) = &done.ended else { return false };
    eprintln!("fathom: {why}");
    if kept {
        eprintln!("fathom: what was measured until then is in {}", crate::output::word(output));
    } else {
        eprintln!("fathom: nothing was measured until then");
    }
    true
}
