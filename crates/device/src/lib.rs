//! Facts about the device under test: its kernel, CPU, memory, file systems and disks, and how its disks are stacked.
//!
//! Everything is read through a [`Reader`], which reads files, lists directories and runs commands on the device, which may be
//! this machine or a directory of files copied from another one. So the source of each fact is implemented once, and tested
//! for devices that are not available. Nothing here needs root; a fact that cannot be read contains the reason.
//!
//! [`remote`] copies this program to a device by ssh or adb, and runs it there; a remote device is a [`Reader`] too.

mod access;
mod android;
pub mod check;
mod clusters;
mod dev;
mod directories;
mod disks;
mod dumpsys;
mod during;
mod facts;
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

pub use disks::{BlockDisk, DiskBacking, Disks};
pub use during::{Activity, ActivityCount};
pub use mounts::{Mount, identity, mount_of};
pub use reader::{Fixture, Local, Reader, RunError};
pub use sensors::{Battery, CpuSample, Readings};
pub use stat::DiskStat;

use model::Environment;

/// The boot id, which identifies the CLOCK_BOOTTIME of this device.
pub fn boot_id(reader: &dyn Reader) -> Option<String> {
    Some(reader.read("/proc/sys/kernel/random/boot_id").ok()?.trim().to_string())
}

/// Every fact about a device, and about the storage under `path` (absolute) if one is given.
pub fn collect(reader: &dyn Reader, path: Option<&str>) -> Environment {
    let mut sheet = facts::Sheet::new(reader);
    facts::machine(&mut sheet);
    if let Some(path) = path {
        storage::put_for_path(&mut sheet, path);
    }
    sheet.facts
}

/// Every known fact about a device, for display: [`collect`], the media of its disks, kinds of CPUs, what the current user
/// may do, and facts specific to Android. Takes half a second on a phone.
pub fn all_facts(reader: &dyn Reader) -> Environment {
    let mut sheet = facts::Sheet::new(reader);
    facts::machine(&mut sheet);
    facts::versions(&mut sheet);
    clusters::facts(&mut sheet);
    media::facts(&mut sheet);
    mounts::facts(&mut sheet);
    access::facts(&mut sheet);
    if properties::is_android(reader) {
        android::facts(&mut sheet);
        directories::facts(&mut sheet);
    } else {
        facts::battery(&mut sheet);
    }
    sheet.facts
}

/// Every fact about the storage under `path` (absolute).
pub fn storage(reader: &dyn Reader, path: &str) -> Environment {
    let mut sheet = facts::Sheet::new(reader);
    storage::put_for_path(&mut sheet, path);
    sheet.facts
}

/// Every fact about the storage of a file system, given its number; only its disk where it is not mounted here.
pub fn storage_of(reader: &dyn Reader, file_system: model::Dev) -> Environment {
    let mut sheet = facts::Sheet::new(reader);
    storage::put_for_file_system(&mut sheet, file_system);
    sheet.facts
}

/// Further facts that make benchmarks of two machines differ: CPU frequency boost, address space randomization, and the
/// installed versions of benchmarked programs. Runs commands, so it takes a tenth of a second.
pub fn versions(reader: &dyn Reader) -> Environment {
    let mut sheet = facts::Sheet::new(reader);
    facts::versions(&mut sheet);
    sheet.facts
}
