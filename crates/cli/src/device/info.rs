//! `fathom device info` and `check`. What is elsewhere is asked there, by this program, in one command: over a slow way a hundred
//! questions would take a hundred times as long.

use crate::args::{DeviceCheck, DeviceInfo, Which};
use crate::{output, progress};
use anyhow::{Context as _, Result, bail};
use device::check::{Ability, abilities};
use device::remote::{DeviceAddress, Ended, Job, Note};
use device::{Local, about};
use model::{Environment, Fact};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// More than facts need, bytes.
const MOST: usize = 4 << 20;
/// A fact of a device is not longer when it is shown.
const LONGEST: usize = 1000;

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    device: String,
    facts: Environment,
}

pub fn info(args: &DeviceInfo) -> Result<ExitCode> {
    let (device, facts) = ask(&args.which)?;
    if args.json {
        output::text(&(serde_json::to_string(&Document { version: 1, device, facts })? + "\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let width = facts
        .iter()
        .filter(|(_, f)| args.all || f.value.is_some())
        .map(|(n, _)| n.chars().count())
        .max()
        .unwrap_or(0)
        .min(44);
    for (name, fact) in &facts {
        match line(fact, args.all) {
            Some(text) => println!("{:width$}  {text}", analysis::text::shown(name)),
            None => continue,
        }
    }
    let unknown = facts.values().filter(|f| f.value.is_none()).count();
    if unknown > 0 && !args.all {
        eprintln!("fathom: {} could not be learnt; --all shows why", model::counted(unknown, "fact"));
    }
    Ok(ExitCode::SUCCESS)
}

fn line(fact: &Fact, all: bool) -> Option<String> {
    let short = |text: &str| analysis::text::shown(&text.chars().take(LONGEST).collect::<String>());
    let source = || if all { format!("  [{}]", short(&fact.source)) } else { String::new() };
    match (&fact.value, &fact.unknown) {
        (Some(value), _) => {
            let unit = fact.unit.as_deref().unwrap_or_default();
            let value =
                if unit == "B" { bytes(value) } else { format!("{} {unit}", short(value)).trim_end().to_owned() };
            Some(value + &source())
        }
        (None, why) => all.then(|| format!("unknown: {}{}", short(why.as_deref().unwrap_or("no reason")), source())),
    }
}

fn bytes(value: &str) -> String {
    match value.parse::<u64>() {
        Ok(n) if n >= 10 << 30 => format!("{:.1} GiB", n as f64 / (1_u64 << 30) as f64),
        Ok(n) if n >= 10 << 20 => format!("{:.1} MiB", n as f64 / (1_u64 << 20) as f64),
        _ => format!("{value} B"),
    }
}

pub fn check(args: &DeviceCheck) -> Result<ExitCode> {
    let (device, facts) = ask(&args.which)?;
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

/// The device's full name, and what is known of it.
fn ask(which: &Which) -> Result<(String, Environment)> {
    if which.device == DeviceAddress::Local {
        let mut facts = about(&Local);
        facts.extend(super::sqlite::facts());
        return Ok((which.device.to_string(), facts));
    }
    let context = progress::context(false);
    progress::end_on_signal(&context);
    context.progress(&format!("asking {}", which.device), 0, 0);
    let words = ["device", "info", "local", "--json"].map(String::from);
    let job = Job {
        place: &which.device,
        binaries: &which.binary,
        files: &[],
        words: &words,
        brings: None,
        into: Path::new("."),
    };
    let (mut said, mut complaints) = (Vec::new(), String::new());
    let mut notes = Vec::new();
    let done = device::remote::run(&job, &context, &mut |note| match note {
        Note::Out(bytes) if said.len() <= MOST => said.extend_from_slice(bytes),
        Note::Err(bytes) if complaints.len() <= LONGEST => complaints += &String::from_utf8_lossy(bytes),
        Note::Said(line) => notes.push(line),
        _ => {}
    });
    progress::clear(&context);
    notes.iter().for_each(|line| eprintln!("fathom: {line}"));
    let done = match done {
        Err(_) if context.cancelled() => return Err(crate::Interrupted.into()),
        done => done?,
    };
    match done.ended {
        Ended::Exit(0) if said.len() <= MOST => {}
        Ended::Lost(why) => return Err(why.into()),
        Ended::Exit(_) if context.cancelled() => return Err(crate::Interrupted.into()),
        Ended::Exit(status) => bail!("{}: asking failed with status {status}: {}", done.place, complaints.trim()),
    }
    let document: Document =
        serde_json::from_slice(&said).with_context(|| format!("{}: its facts cannot be read", done.place))?;
    Ok((done.place.to_string(), document.facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_shown_short_and_harmless() {
        let fact = |value: &str, unit: Option<&str>| Fact {
            value: Some(value.into()),
            unknown: None,
            unit: unit.map(Into::into),
            source: "s".into(),
            varies: "run".into(),
        };
        assert_eq!(line(&fact("8053063680", Some("B")), false).as_deref(), Some("7680.0 MiB"));
        assert_eq!(line(&fact("128000000000", Some("B")), false).as_deref(), Some("119.2 GiB"));
        assert_eq!(line(&fact("12", Some("%")), true).as_deref(), Some("12 %  [s]"));
        assert!(!line(&fact("\u{1b}[2J", None), false).unwrap().contains('\u{1b}'));
        assert!(line(&fact(&"x".repeat(100_000), None), false).unwrap().len() <= LONGEST);
        let unknown = Fact { value: None, unknown: Some("no".into()), ..fact("", None) };
        assert_eq!((line(&unknown, false), line(&unknown, true).as_deref()), (None, Some("unknown: no  [s]")));
    }
}
