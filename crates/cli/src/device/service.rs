//! `fathom pool node --device` and `fathom net serve --device`: this program serves there until `fathom device stop` ends it.

use crate::args::{ServiceDevice, forwarded_words};
use crate::{Usage, progress};
use anyhow::{Context as _, Result};
use device::remote::{DeviceAddress, JobEvent, Service, in_guest, new_name};
use model::text::ShownPath as _;
use std::path::Path;
use std::process::ExitCode;

/// The key's name in the service's directory.
const KEY_FILE_NAME: &str = "key";
/// Whoever started the service on the device stops it.
const HOSTED_OPTION: &str = "--hosted";

/// Starts the requested service on the device. `kind` begins its name; `key` is copied into its directory.
pub fn run(kind: &str, at: &ServiceDevice, key: Option<&Path>) -> Result<ExitCode> {
    let Some(place) = &at.device else { return Ok(ExitCode::FAILURE) };
    if matches!(place, DeviceAddress::Local | DeviceAddress::Netns(_)) {
        return Err(Usage(format!("--device {place}: to start a service on this machine, omit --device")).into());
    }
    let mut words = forwarded_words(std::env::args_os().skip(1), &["device", "binary", "key"])?;
    let mut files = Vec::new();
    if let Some(key) = key {
        words.push(format!("--key={KEY_FILE_NAME}"));
        files.push((KEY_FILE_NAME.into(), std::fs::read(key).with_context(|| format!("cannot read {}", key.shown()))?));
    }
    let context = progress::context(matches!(place, DeviceAddress::Lab(_)));
    progress::end_on_signal(&context);
    if let DeviceAddress::Lab(name) = place {
        return Ok(ExitCode::from(in_guest::serve(name, &files, &words, &context)?));
    }
    words.push(HOSTED_OPTION.into());
    let name = new_name(kind);
    let service = Service { place, binaries: &at.binary, name: &name, files: &files, words: &words };
    let mut said = Vec::new();
    let started = device::remote::serve(&service, &context, &mut |note| match note {
        JobEvent::Message(line) => eprintln!("fathom: {line}"),
        JobEvent::Err(bytes) => said.extend_from_slice(bytes),
        JobEvent::Out(_) | JobEvent::Received(_) => {}
    });
    progress::clear(&context);
    for line in String::from_utf8_lossy(&said).lines() {
        eprintln!("{}", analysis::text::shown(line));
    }
    let started = match started {
        Err(_) if context.cancelled() => return Err(crate::Interrupted.into()),
        started => started?,
    };
    Ok(match started.ready {
        Ok(line) => {
            println!("{}", analysis::text::shown(&line));
            eprintln!(
                "fathom: {name} runs on {0}, also when it is disconnected, until `fathom device stop {0}`",
                started.place
            );
            ExitCode::SUCCESS
        }
        Err(status) => ExitCode::from(status),
    })
}
