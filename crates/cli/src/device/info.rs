//! `fathom device info` and `check`, of one device or of several, which are queried at the same time.

use super::each::choose_devices;
use crate::args::{DeviceCheck, DeviceInfo, Which};
use crate::{output, progress};
use anyhow::{Result, anyhow};
use device::check::abilities;
use device::remote::ask::{self, Document};
use device::remote::{Concurrency, DeviceAddress};
use device::show;
use model::Context;
use std::path::PathBuf;
use std::process::ExitCode;

pub fn info(args: &DeviceInfo) -> Result<ExitCode> {
    let mut unknown = 0;
    let code = query_each(&args.which, args.json, |document, alone| {
        if args.json {
            return Ok(serde_json::to_string(document)? + "\n");
        }
        unknown += document.facts.values().filter(|f| f.value.is_none()).count();
        let name = if alone { String::new() } else { format!("{}\n", analysis::text::shown(&document.device)) };
        Ok(name + &show::facts(&document.facts, args.all))
    })?;
    if unknown > 0 && !args.all {
        eprintln!("fathom: {} could not be determined; --all shows why", model::counted(unknown, "fact"));
    }
    Ok(code)
}

pub fn check(args: &DeviceCheck) -> Result<ExitCode> {
    query_each(&args.which, args.json, |Document { device, facts, .. }, _| {
        let table = abilities(facts);
        Ok(if args.json {
            format!("{}\n", show::abilities_json(device, &table))
        } else {
            show::abilities(device, facts, &table)
        })
    })
}

/// Prints `text` of each device, with an empty line between two unless they are `lines` of JSON; `text` gets whether the device is the
/// only one. An unreachable device is reported, and the others are shown.
fn query_each(which: &Which, lines: bool, mut text: impl FnMut(&Document, bool) -> Result<String>) -> Result<ExitCode> {
    let chosen = choose_devices(&which.device)?;
    let context = progress::context(false);
    progress::end_on_signal(&context);
    let all = Concurrency::ByMachine.run_each(&chosen.places, |place| ask_with_context(place, &which.binary, &context));
    let alone = chosen.alone().is_some();
    let (mut code, mut between) = (ExitCode::SUCCESS, "");
    for (_, document) in all {
        match document.unwrap_or_else(|| Err(anyhow!("the thread of a device failed"))) {
            Ok(document) => {
                output::print_text(&format!("{between}{}", text(&document, alone)?));
                between = if lines { "" } else { "\n" };
            }
            Err(error) if alone || error.is::<crate::Interrupted>() => return Err(error),
            Err(error) => {
                eprintln!("fathom: {}", crate::error_sentence(&error));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// Queries one device, for another verb.
pub fn ask(place: &DeviceAddress, binaries: &[PathBuf]) -> Result<Document> {
    let context = progress::context(false);
    progress::end_on_signal(&context);
    ask_with_context(place, binaries, &context)
}

fn ask_with_context(place: &DeviceAddress, binaries: &[PathBuf], context: &Context) -> Result<Document> {
    ask::facts(place, binaries, context, &mut |line| eprintln!("fathom: {line}")).map_err(convert_error)
}

/// Converts the error to that with which the program ends.
pub fn convert_error(error: ask::Error) -> anyhow::Error {
    match error {
        ask::Error::Interrupted => crate::Interrupted.into(),
        other => other.into(),
    }
}
