//! `fathom device stop`: lists and stops what was left on a device, with this program there.

use crate::args::DeviceStop;
use crate::{output, progress};
use anyhow::Result;
use device::remote::DeviceAddress;
use device::remote::detached::StopRequest;
use device::remote::stop::{Error, stop};
use device::show;
use std::process::ExitCode;

pub fn run(args: &DeviceStop) -> Result<ExitCode> {
    let context = progress::context(false);
    // On this machine nothing checks the context.
    if !matches!(args.device, DeviceAddress::Local | DeviceAddress::Netns(_)) {
        progress::end_on_signal(&context);
    }
    let wanted = StopRequest { names: &args.names, list: args.list, discard: args.discard };
    let mut tell = |line| eprintln!("fathom: {line}");
    let done = stop(&args.device, &args.binary, &wanted, args.remove_program, &context, &mut tell);
    let document = done.map_err(|error| match error {
        Error::Ask(error) => super::info::convert_error(error),
        other => other.into(),
    })?;
    if args.json {
        output::print_text(&(serde_json::to_string(&document)? + "\n"));
    } else {
        output::print_text(&show::left_commands(&document));
        if document.program_removed == Some(false) {
            let device = analysis::text::shown(&document.device);
            eprintln!("fathom: the program stays on {device}, since something there still needs it");
        }
    }
    let well = document.succeeded() || args.device == DeviceAddress::Local;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
