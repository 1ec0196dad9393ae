//! Facts about a device: read directly on this machine, and by this program on another one, with a single command; over a
//! slow transport a hundred requests would take a hundred times as long.

use super::{CommandEnd, DeviceAddress, Job, JobEvent, Unreachable, run};
use crate::{Local, all_facts, nvme, own_sqlite};
use model::{Context, Environment};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The maximum size of the facts, bytes.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// The maximum error output that is kept, bytes.
const ERROR_BYTES_MAX: usize = 1000;

/// The output of `fathom device info --json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    /// The version of this format.
    pub version: u32,
    /// The device's full name.
    pub device: String,
    pub facts: Environment,
}

/// Why the facts are unavailable.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device was unreachable, or lost.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("interrupted")]
    Interrupted,
    /// The program there failed.
    #[error("{place}: {}", if why.is_empty() { format!("Fathom failed there with status {status}") } else { why.clone() })]
    Failed {
        place: DeviceAddress,
        /// The program's status.
        status: u8,
        /// Its error output.
        why: String,
    },
    /// Its output is invalid.
    #[error("{place}: its facts cannot be read: {source}")]
    Unreadable { place: DeviceAddress, source: serde_json::Error },
}

/// Reads the facts of a device; `tell` receives messages of the host.
///
/// # Errors
/// The facts are unavailable.
pub fn facts(
    place: &DeviceAddress,
    binaries: &[PathBuf],
    context: &Context,
    tell: &mut dyn FnMut(String),
) -> Result<Document, Error> {
    if *place == DeviceAddress::Local {
        let mut facts = all_facts(&Local);
        facts.extend(own_sqlite::facts());
        facts.extend(nvme::facts());
        return Ok(Document { version: 1, device: place.to_string(), facts });
    }
    let words = ["device", "info", "local", "--json"].map(String::from);
    let (place, said) = run_program(place, binaries, &words, context, tell)?;
    let document: Document =
        serde_json::from_slice(&said).map_err(|source| Error::Unreadable { place: place.clone(), source })?;
    // The host uses the device's full name; on the device it is `local`.
    Ok(Document { device: place.to_string(), ..document })
}

/// The output of `fathom WORDS…` on the device, and the device's full name; `tell` receives messages of the host.
///
/// # Errors
/// The device was unreachable, or the program there failed.
pub fn run_program(
    place: &DeviceAddress,
    binaries: &[PathBuf],
    words: &[String],
    context: &Context,
    tell: &mut dyn FnMut(String),
) -> Result<(DeviceAddress, Vec<u8>), Error> {
    context.progress(&format!("reading facts of {place}"), 0, 0);
    let job = Job { place, binaries, files: &[], words, result_directory: None, into: Path::new("."), detached: None };
    let (mut said, mut complaints, mut notes) = (Vec::new(), String::new(), Vec::new());
    let done = run(&job, context, &mut |note| match note {
        JobEvent::Out(bytes) if said.len() <= OUTPUT_BYTES_MAX => said.extend_from_slice(bytes),
        JobEvent::Err(bytes) if complaints.len() <= ERROR_BYTES_MAX => complaints += &String::from_utf8_lossy(bytes),
        JobEvent::Message(remark) => notes.push(remark.to_string()),
        _ => {}
    });
    context.clear_progress();
    notes.into_iter().for_each(tell);
    let done = match done {
        Err(_) if context.cancelled() => return Err(Error::Interrupted),
        done => done?,
    };
    match done.ended {
        CommandEnd::Exit(0) if said.len() <= OUTPUT_BYTES_MAX => Ok((done.place, said)),
        CommandEnd::Lost(why) => Err(why.into()),
        CommandEnd::Exit(_) if context.cancelled() => Err(Error::Interrupted),
        CommandEnd::Exit(status) => {
            // The program's name is already added to messages here.
            let why = complaints.trim().trim_start_matches("fathom: ").into();
            Err(Error::Failed { place: done.place, status, why })
        }
    }
}
