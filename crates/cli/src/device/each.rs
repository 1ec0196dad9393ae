//! The same on several devices at the same time: none of them waits for another.

use anyhow::{Context as _, Result, bail};
use device::remote::DeviceAddress;
use model::text::ShownPath as _;
use std::path::{Path, PathBuf};

/// A device's archive in a folder.
pub fn archive(folder: &Path, place: &DeviceAddress) -> PathBuf {
    folder.join(format!("{}.fathom", place.file_name()))
}

/// Does `one` of each, into an archive of its own in `folder`, with what stands before its lines; what came of those that did not fail.
/// Reports that one failed, and `what` it lacks.
pub fn each<'a, T: Send>(
    places: &'a [DeviceAddress],
    folder: &Path,
    what: &str,
    one: impl Fn(&DeviceAddress, &Path, &str) -> Result<T> + Sync,
) -> Result<Vec<(&'a DeviceAddress, Option<T>)>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.shown()))?;
    let done: Vec<Result<T>> = std::thread::scope(|scope| {
        let start = |place| {
            let one = &one;
            scope.spawn(move || one(place, &archive(folder, place), &format!("{place}: ")))
        };
        let running: Vec<_> = places.iter().map(start).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended.map(|done| done.unwrap_or_else(|_| bail!("the thread of a device failed"))).collect()
    });
    let told = |(place, done): (&'a DeviceAddress, Result<T>)| match done {
        Ok(done) => (place, Some(done)),
        Err(error) => {
            eprintln!("fathom: {}", crate::sentence(&error));
            eprintln!("fathom: {place} has no {what}");
            (place, None)
        }
    };
    Ok(places.iter().zip(done).map(told).collect())
}
