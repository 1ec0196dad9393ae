//! The same on several devices: at the same time where they share nothing, one after the other where they would measure each other.

use crate::Usage;
use anyhow::{Context as _, Result, anyhow};
use device::remote::{Chosen, DeviceAddress, DeviceNames, OneOrAll};
use model::text::ShownPath as _;
use std::path::{Path, PathBuf};

/// A device's archive in a folder.
pub fn archive(folder: &Path, place: &DeviceAddress) -> PathBuf {
    folder.join(format!("{}.fathom", place.file_name()))
}

/// The devices that were named, each once; of further names of one it is said that they are.
pub fn named_once(names: &[DeviceNames]) -> Result<Chosen> {
    let chosen = OneOrAll::choose(names.iter().flat_map(|names| &names.0))?;
    for (name, first) in &chosen.again {
        eprintln!("fathom: {name} is the same device as {first} (serial number and boot): it takes part once");
    }
    Ok(chosen)
}

/// The same for what makes an archive of each.
pub fn chosen(names: &[DeviceNames]) -> Result<Chosen> {
    let chosen = named_once(names)?;
    for (at, place) in chosen.places.iter().enumerate() {
        if let Some(other) = chosen.places[..at].iter().find(|other| other.file_name() == place.file_name()) {
            let name = place.file_name();
            return Err(Usage(format!("{other} and {place} would both be {name}.fathom: run them one by one")).into());
        }
    }
    Ok(chosen)
}

/// Which devices do not wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turns {
    /// None of them waits.
    Together,
    /// Those that share this machine's processors take turns: itself and its guests.
    ByMachine,
    /// One after the other.
    Single,
}

impl Turns {
    /// The devices in chains: those of one chain take turns.
    fn chains(self, places: &[DeviceAddress]) -> Vec<Vec<(usize, &DeviceAddress)>> {
        let numbered = places.iter().enumerate();
        let ours = |place: &DeviceAddress| !matches!(place, DeviceAddress::Adb(_) | DeviceAddress::Ssh(..));
        let waits = |place| match self {
            Self::Together => false,
            Self::ByMachine => ours(place),
            Self::Single => true,
        };
        let (chain, free): (Vec<_>, Vec<_>) = numbered.partition(|(_, place)| waits(place));
        let chains = free.into_iter().map(|one| vec![one]).chain([chain]);
        chains.filter(|chain| !chain.is_empty()).collect()
    }
}

/// Does `one` of each, into an archive of its own in `folder`, with what stands before its lines; what came of those that did not fail.
/// Reports that one failed, and `what` it lacks.
pub fn each<'a, T: Send>(
    places: &'a [DeviceAddress],
    turns: Turns,
    folder: &Path,
    what: &str,
    one: impl Fn(&DeviceAddress, &Path, &str) -> Result<T> + Sync,
) -> Result<Vec<(&'a DeviceAddress, Option<T>)>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.shown()))?;
    let done = side_by_side(places, turns, |place| one(place, &archive(folder, place), &format!("{place}: ")));
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

/// Does `one` of each; what came of them, in their order.
pub fn side_by_side<T: Send>(
    places: &[DeviceAddress],
    turns: Turns,
    one: impl Fn(&DeviceAddress) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let mut done: Vec<(usize, Result<T>)> = std::thread::scope(|scope| {
        let start = |chain: Vec<(usize, &DeviceAddress)>| {
            let one = &one;
            let places: Vec<(usize, DeviceAddress)> =
                chain.into_iter().map(|(at, place)| (at, place.clone())).collect();
            let numbers: Vec<usize> = places.iter().map(|(at, _)| *at).collect();
            (numbers, scope.spawn(move || places.iter().map(|(at, place)| (*at, one(place))).collect::<Vec<_>>()))
        };
        let running: Vec<_> = turns.chains(places).into_iter().map(start).collect();
        let ended = running.into_iter().map(|(numbers, thread)| (numbers, thread.join()));
        let failed = |at| (at, Err(anyhow!("the thread of a device failed")));
        ended.flat_map(|(numbers, done)| done.unwrap_or_else(|_| numbers.into_iter().map(failed).collect())).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_one_machine_take_turns() {
        let places = ["adb:A", "local", "lab:scsi-ext4", "ssh:host"].map(|text| text.parse().unwrap());
        let names = |turns: Turns| {
            let name = |chain: &Vec<(usize, &DeviceAddress)>| {
                chain.iter().map(|(at, place)| format!("{at}={place}")).collect::<Vec<_>>().join(" ")
            };
            turns.chains(&places).iter().map(name).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(names(Turns::Together), "0=adb:A; 1=local; 2=lab:scsi-ext4; 3=ssh:host");
        assert_eq!(names(Turns::ByMachine), "0=adb:A; 3=ssh:host; 1=local 2=lab:scsi-ext4");
        assert_eq!(names(Turns::Single), "0=adb:A 1=local 2=lab:scsi-ext4 3=ssh:host");
    }
}
