//! `fathom device stop`: what was left on a device is listed and stopped there, by this program.

use crate::args::DeviceStop;
use crate::{output, progress};
use anyhow::{Context as _, Result};
use device::remote::detached::{Left, Shelf, Wanted};
use device::remote::{DeviceAddress, ask, program};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    device: String,
    left: Vec<Left>,
    /// Whether the program itself was removed; nothing if nobody asked for it.
    program_removed: Option<bool>,
}

pub fn run(args: &DeviceStop) -> Result<ExitCode> {
    let mut document = match &args.device {
        DeviceAddress::Local | DeviceAddress::Netns(_) => {
            let wanted = Wanted { names: &args.names, list: args.list, discard: args.discard };
            Document {
                version: 1,
                device: args.device.to_string(),
                left: Shelf::of_environment().stop_all(&wanted)?,
                program_removed: None,
            }
        }
        device => {
            let mut words: Vec<String> = ["device", "stop", "local", "--json"].map(String::from).to_vec();
            words.extend(args.list.then(|| "--list".into()));
            words.extend(args.discard.then(|| "--discard".into()));
            words.push("--".into());
            words.extend(args.names.iter().cloned());
            let context = progress::context(false);
            progress::end_on_signal(&context);
            let said = ask::printed(device, &args.binary, &words, &context, &mut |line| eprintln!("fathom: {line}"));
            let (place, said) = said.map_err(super::info::failed)?;
            let answer: Document =
                serde_json::from_slice(&said).with_context(|| format!("{place}: its answer cannot be read"))?;
            Document { device: place.to_string(), ..answer }
        }
    };
    let gone = document.left.iter().all(|left| left.action == "removed");
    if args.remove_program {
        document.program_removed = Some(gone && program::remove(&args.device)?);
    }
    let failed = document.left.iter().any(|left| left.problem.is_some()) || document.program_removed == Some(false);
    let code = if failed && args.device != DeviceAddress::Local { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    if args.json {
        output::text(&(serde_json::to_string(&document)? + "\n"));
        return Ok(code);
    }
    let shown = |text: &str| analysis::text::shown(&text.chars().take(300).collect::<String>());
    let device = shown(&document.device);
    if document.left.is_empty() {
        println!("{device}: nothing was left there");
    }
    let width = document.left.iter().map(|l| l.name.chars().count().min(64)).max().unwrap_or(0);
    for left in &document.left {
        println!(
            "{:width$}  {:7}  {:8}  {:8}  {}",
            shown(&left.name),
            shown(&left.kind),
            shown(&left.state),
            shown(&left.action),
            shown(&left.command)
        );
        if let Some(problem) = &left.problem {
            println!("{:width$}  {}", "", shown(problem));
        }
        if left.action == "kept" {
            println!("{:width$}  fetch it: fathom device fetch {device} {}", "", shown(&left.name));
        }
    }
    match document.program_removed {
        Some(true) => println!("{device}: the program was removed"),
        Some(false) => eprintln!("fathom: the program stays on {device}, since something there still needs it"),
        None => {}
    }
    Ok(code)
}
