//! `fathom device list`.

use crate::args::DeviceList;
use crate::{output, progress};
use anyhow::Result;
use device::remote::adb::wire::Listed;
use device::remote::adb::{AdbServer, Failure};
use device::remote::usable;
use model::Context;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// How often it is looked whether somebody asked for an end.
const LOOK: Duration = Duration::from_millis(200);

pub fn run(args: &DeviceList) -> Result<ExitCode> {
    let server = AdbServer::of_environment();
    if !args.watch {
        let listed = server.devices();
        show(args, listed.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let context = Context::silent();
    progress::end_on_signal(&context);
    let mut tracker = server.track()?;
    while !context.cancelled() && !output::nobody_reads() {
        // The tracker names serial numbers and states; models are asked for.
        if tracker.next(LOOK)?.is_some() {
            show(args, server.devices().as_deref())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &DeviceList, listed: Result<&[Listed], &Failure>) -> Result<()> {
    let devices = listed.unwrap_or_default();
    let why = listed.err().map(ToString::to_string);
    if args.json {
        let of = |d: &Listed| {
            json!({"device": format!("adb:{}", d.serial), "state": d.state, "usable": usable(&d.state).is_ok(),
                   "model": d.get("model"), "product": d.get("product"), "problem": usable(&d.state).err()})
        };
        let local = json!({"device": "local", "state": "device", "usable": true, "model": null, "product": null, "problem": null});
        let all: Vec<_> = std::iter::once(local).chain(devices.iter().map(of)).collect();
        output::text(&(serde_json::to_string(&json!({"version": 1, "devices": all, "adb_problem": why}))? + "\n"));
        return Ok(());
    }
    let names: Vec<String> = devices.iter().map(|d| format!("adb:{}", d.serial)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0).max(12);
    println!("{:width$}  this machine", "local");
    for (name, device) in names.iter().zip(devices) {
        match usable(&device.state) {
            Ok(()) => println!("{name:width$}  {}", device.get("model").unwrap_or("ready").replace('_', " ")),
            Err(why) => println!("{name:width$}  {}: {why}", device.state),
        }
    }
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
