//! `fathom device info` and `check`.

use crate::args::{DeviceCheck, DeviceInfo, Which};
use crate::{output, progress};
use anyhow::Result;
use device::check::{Ability, abilities};
use device::remote::ask::{self, Document};
use device::show;
use serde_json::json;
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
    if args.json {
        let row = |a: &Ability| json!({"what": a.what, "can": a.can.name(), "why": a.why, "remedy": a.remedy});
        let rows: Vec<_> = table.iter().map(row).collect();
        output::text(&(serde_json::to_string(&json!({"version": 1, "device": device, "abilities": rows}))? + "\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let fact = |name: &str| facts.get(name).and_then(|f| f.value.clone()).map(|v| analysis::text::shown(&v));
    let what: Vec<String> =
        ["device.vendor", "device.model", "os.name", "kernel.release"].iter().filter_map(|n| fact(n)).collect();
    println!("{device}: {}", what.join(", "));
    let width = table.iter().map(|a| a.what.len()).max().unwrap_or(0);
    for Ability { what, can, why, remedy } in &table {
        println!("{what:width$}  {:7}  {}", can.name(), analysis::text::shown(why));
        if let Some(remedy) = remedy {
            println!("{:width$}           {remedy}", "");
        }
    }
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
