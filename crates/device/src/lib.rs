//! Facts about the device under test: what its kernel, processor, memory, file system and disks are, and how its disks
//! stand on each other.
//!
//! Everything is read through a [`Reader`], which reads files, lists folders and runs commands on the device, be it this
//! machine or a folder of files taken from another one. The knowledge of where a fact stands is thus written once, and
//! tested for devices that are not at hand. Nothing here needs root; what cannot be read becomes a fact that says why.
//!
//! [`remote`] brings this program to a device by ssh or adb, and runs it there; a device that is reached is a [`Reader`] too.

mod access;
mod android;
pub mod check;
mod clusters;
mod dev;
mod disks;
mod dumpsys;
mod during;
mod facts;
mod folders;
pub mod knobs;
mod media;
mod mounts;
pub mod nvme;
pub mod own_sqlite;
pub mod performance;
mod properties;
mod reader;
pub mod remote;
mod sensors;
pub mod show;
mod stat;
mod storage;

pub use disks::{Below, BlockDisk, Disks};
pub use during::{Count, During};
pub use mounts::{Mount, identity, mount_of};
pub use reader::{Fixture, Local, Reader};
pub use sensors::{Battery, Look, Readings};
pub use stat::DiskStat;

use model::Environment;

/// The boot whose CLOCK_BOOTTIME is this device's.
pub fn boot_id(reader: &dyn Reader) -> Option<String> {
    Some(reader.read("/proc/sys/kernel/random/boot_id").ok()?.trim().to_string())
}

/// Every fact about a device, and about the storage under `path` (absolute) if one is given.
pub fn collect(reader: &dyn Reader, path: Option<&str>) -> Environment {
    let mut sheet = facts::Sheet::new(reader);
    facts::machine(&mut sheet);
    if let Some(path) = path {
        storage::under(&mut sheet, path);
    }
    sheet.facts
}

/// Everything that is known how to ask of a device, for people who want to know it: [`collect`], what its disks are made of, kinds of
/// processors, what whoever asks may do, and what only Android has. Takes half a second on a phone.
pub fn about(reader: &dyn Reader) -> Environment {
    let mut sheet = facts::Sheet::new(reader);
    facts::machine(&mut sheet);
    facts::versions(&mut sheet);
    clusters::facts(&mut sheet);
    media::facts(&mut sheet);
    mounts::facts(&mut sheet);
    access::facts(&mut sheet);
    if properties::is_android(reader) {
        android::facts(&mut sheet);
        folders::facts(&mut sheet);
    } else {
        facts::battery(&mut sheet);
    }
    sheet.facts
}

/// Every fact about the storage under `path` (absolute).
pub fn storage(reader: &dyn Reader, path: &str) -> Environment {
    let mut sheet = facts::Sheet::new(reader);
    storage::under(&mut sheet, path);
    sheet.facts
}

/// Every fact about the storage that a file system is on, by its number; its disk alone where it is not mounted here.
pub fn storage_of(reader: &dyn Reader, file_system: model::Dev) -> Environment {
    let mut sheet = facts::Sheet::new(reader);
    storage::of(&mut sheet, file_system);
    sheet.facts
}

/// What else makes benchmarks of two machines differ: how the processor may speed up, where programs are placed in
/// memory, and which versions of what is benchmarked are installed. Runs commands, so that it takes a tenth of a second.
pub fn versions(reader: &dyn Reader) -> Environment {
    let mut sheet = facts::Sheet::new(reader);
    facts::versions(&mut sheet);
    sheet.facts
}
