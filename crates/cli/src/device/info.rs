//! `fathom device info` and `check`.

use crate::args::{DeviceCheck, DeviceInfo, Which};
use crate::{output, progress};
use anyhow::Result;
use device::check::abilities;
use device::remote::ask::{self, Document};
use device::show;
use std::process::ExitCode;

pub fn info(args: &DeviceInfo) -> Result<ExitCode> {
    let document = ask(&args.which)?;
    if args.json {
        output::text(&(serde_json::to_string(&document)? + "\n"));
        return Ok(ExitCode::SUCCESS);
    }
    output::text(&show::facts(&document.facts, args.all));
    let unknown = document.facts.values().filter(|f| f.value.is_none()).count();
    if unknown > 0 && !args.all {
        eprintln!("fathom: {} could not be learnt; --all shows why", model::counted(unknown, "fact"));
    }
    Ok(ExitCode::SUCCESS)
}

pub fn check(args: &DeviceCheck) -> Result<ExitCode> {
    let Document { device, facts, .. } = ask(&args.which)?;
    let table = abilities(&facts);
    output::text(&match args.json {
        true => format!("{}\n", show::abilities_json(&device, &table)),
        false => show::abilities(&device, &facts, &table),
    });
    Ok(ExitCode::SUCCESS)
}

pub fn ask(which: &Which) -> Result<Document> {
    let context = progress::context(false);
    progress::end_on_signal(&context);
    let asked = ask::facts(&which.device, &which.binary, &context, &mut |line| eprintln!("fathom: {line}"));
    asked.map_err(failed)
}

/// As the program ends for it.
pub fn failed(error: ask::Error) -> anyhow::Error {
    match error {
        ask::Error::Interrupted => crate::Interrupted.into(),
        other => other.into(),
    }
}
