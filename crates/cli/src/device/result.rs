//! An archive that is made on a device ([`recorder::incoming`]), and its messages meanwhile.

use crate::args::Devices;
use crate::{notices, output};
use analysis::host_clock::{HostClock, Reading};
use anyhow::Result;
use device::remote::{Begin, Detached, DeviceAddress, Done, Ended, Note, Remark, Skew};
use model::{Context, Lines};
use recorder::incoming::{Incoming, NotBrought};
use std::path::Path;

/// How it is reported.
#[derive(Clone, Copy, Default)]
pub struct Telling<'a> {
    /// Whether only warnings are printed.
    pub quiet: bool,
    /// Whether its output is printed here; results are printed by this side.
    pub prints: bool,
    /// Before each line of the device, if there are several.
    pub prefix: &'a str,
}

/// Runs it until it ends; how, and whether anything was brought.
pub fn bring(incoming: &Incoming<'_>, telling: Telling<'_>, context: &Context) -> Result<(Done, bool)> {
    let Telling { quiet, prints, prefix } = telling;
    let mut aside = Lines::new(|text| text.lines().for_each(|line| eprintln!("{prefix}{}", line.trim_end())));
    let notify = |notice| {
        if !quiet {
            notices::print(notice)
        }
    };
    let brought = recorder::incoming::bring(incoming, context, &notify, &mut |note| match note {
        Note::Said(remark) if !quiet || !matches!(remark, Remark::Copying { .. }) => eprintln!("fathom: {remark}"),
        Note::Out(bytes) if prints => output::out(format_args!("{}", String::from_utf8_lossy(bytes))),
        Note::Err(bytes) => aside.take(bytes),
        Note::Said(_) | Note::Out(_) | Note::Brought(_) => {}
    });
    drop(aside);
    let (done, kept) = brought.map_err(|error| match error {
        NotBrought::Interrupted => anyhow::Error::from(crate::Interrupted),
        other => other.into(),
    })?;
    // An archive that is cut off may have no meta.json yet; its own times are right without it.
    if let Some(clock) = clock(&done).filter(|_| kept)
        && let Err(error) = recorder::incoming::keep_facts(incoming.output, clock.facts())
    {
        eprintln!("fathom: the relation between the clocks was not stored: {}", model::text::error(&error));
    }
    Ok((done, kept))
}

/// What outlives its connection, of this name there: a connection to this machine, or to a guest of its own, does not break.
pub fn detached<'a>(place: &DeviceAddress, name: &'a str, devices: &Devices) -> Option<Detached<'a>> {
    let patience = devices.patience();
    let far = matches!(place, DeviceAddress::Adb(_) | DeviceAddress::Ssh(..)) && !patience.is_zero();
    far.then_some(Detached { name, begin: Begin::Start, patience })
}

/// How the device's clock related to this machine's, if it has one of its own.
pub fn clock(done: &Done) -> Option<HostClock> {
    if matches!(done.place, DeviceAddress::Local | DeviceAddress::Netns(_)) {
        return None;
    }
    host_clock(done.skew, done.skew_last)
}

/// A device's clock relative to this machine's, from the first and the last exchange with it.
pub fn host_clock(first: Option<Skew>, last: Option<Skew>) -> Option<HostClock> {
    let reading = |s: Skew| Reading { at_ns: s.at_ns, ahead_ns: s.ahead_ns, error_ns: s.error_ns };
    let boot = device::boot_id(&device::Local)?;
    Some(HostClock { boot, first: reading(first?), last: last.map(reading) })
}

/// The message about a lost device.
pub fn lost(done: &Done, kept: bool, output: &Path) -> bool {
    let Ended::Lost(why) = &done.ended else { return false };
    eprintln!("fathom: {why}");
    if kept {
        eprintln!("fathom: what was measured until then is in {}", crate::output::word(output));
    } else {
        eprintln!("fathom: nothing was measured until then");
    }
    true
}
