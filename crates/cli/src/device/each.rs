//! Does the same on several devices, each with an archive of its own.

use crate::Usage;
use anyhow::{Context as _, Result, anyhow};
use device::remote::{Concurrency, DeviceAddress, DeviceNames, OneOrAll, Selection};
use model::text::ShownPath as _;
use std::path::{Path, PathBuf};

/// A device's archive in a directory.
pub fn archive_path(directory: &Path, place: &DeviceAddress) -> PathBuf {
    directory.join(format!("{}.fathom", place.file_name()))
}

/// Returns the named devices, each once; further names of the same device are reported.
pub fn choose_devices(names: &[DeviceNames]) -> Result<Selection> {
    let chosen = OneOrAll::select(names.iter().flat_map(|names| &names.0))?;
    for (name, first) in &chosen.duplicates {
        eprintln!("fathom: {name} is the same device as {first} (serial number and boot): it is used once");
    }
    Ok(chosen)
}

/// The same for verbs that make an archive of each.
pub fn choose_archived_devices(names: &[DeviceNames]) -> Result<Selection> {
    let chosen = choose_devices(names)?;
    for (at, place) in chosen.places.iter().enumerate() {
        if let Some(other) = chosen.places[..at].iter().find(|other| other.file_name() == place.file_name()) {
            let name = place.file_name();
            return Err(Usage(format!("{other} and {place} would both be {name}.fathom: run them one by one")).into());
        }
    }
    Ok(chosen)
}

/// Runs `one` for each device, with its own archive in `directory` and a prefix for its lines, and returns the results of those that
/// did not fail. Reports failures, and the `what` that is missing.
pub fn run_each<'a, T: Send>(
    places: &'a [DeviceAddress],
    turns: Concurrency,
    directory: &Path,
    what: &str,
    one: impl Fn(&DeviceAddress, &Path, &str) -> Result<T> + Sync,
) -> Result<Vec<(&'a DeviceAddress, Option<T>)>> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.shown()))?;
    let done = turns.run_each(places, |place| one(place, &archive_path(directory, place), &format!("{place}: ")));
    let reported = |(place, done): (&'a DeviceAddress, Option<Result<T>>)| {
        let done = done.unwrap_or_else(|| Err(anyhow!("the thread of a device failed")));
        let failed = |error: &anyhow::Error| {
            eprintln!("fathom: {}", crate::error_sentence(error));
            eprintln!("fathom: {place} has no {what}");
        };
        (place, done.inspect_err(failed).ok())
    };
    Ok(done.map(reported).collect())
}
