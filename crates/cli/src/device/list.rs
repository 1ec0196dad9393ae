//! `fathom device list`.

use crate::args::DeviceList;
use crate::{output, progress};
use anyhow::Result;
use device::remote::adb::wire::ListedDevice;
use device::remote::adb::{AdbServer, Failure};
use device::show;
use model::Context;
use std::process::ExitCode;
use std::time::Duration;

/// How often to check for a requested end.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub fn run(args: &DeviceList) -> Result<ExitCode> {
    let server = AdbServer::from_environment();
    if !args.watch {
        let listed = server.devices();
        print(args, listed.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let context = Context::silent();
    progress::end_on_signal(&context);
    let mut tracker = server.track()?;
    while !context.cancelled() && !output::stdout_is_closed() {
        // The tracker gives serial numbers and states; models have to be queried.
        if tracker.next(POLL_INTERVAL)?.is_some() {
            print(args, server.devices().as_deref())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(args: &DeviceList, listed: Result<&[ListedDevice], &Failure>) -> Result<()> {
    let devices = listed.unwrap_or_default();
    let why = listed.err().map(ToString::to_string);
    if args.json {
        output::print_text(&format!("{}\n", show::devices_json(devices, why.as_deref())));
        return Ok(());
    }
    output::print_text(&show::devices(devices));
    match why {
        Some(why) => eprintln!("fathom: devices of adb are not listed: {why}"),
        None if devices.is_empty() && !args.watch => {
            eprintln!(
                "fathom: adb lists no device: enable USB debugging in a phone's developer options and connect it, or `adb connect HOST:5555`"
            );
        }
        None => {}
    }
    Ok(())
}
