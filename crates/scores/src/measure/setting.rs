//! The environment in which designs run: this machine, with its sensors and counters, and disks in memory.

use crate::measure::{Notice, Notify};
use device::{ActivityCount, CpuSample, Local, Readings};
use experiment::{Design, Disk, DiskRequest, Setting};
use lab::loopdisk::{Backing, FileSystem, LoopDisk, Options};
use std::error::Error;
use std::path::Path;
use std::time::Duration;

/// How long the machine is observed before each process: six ticks of a processor's counters.
const OBSERVATION_DURATION: Duration = Duration::from_millis(60);

/// Observes the machine while nothing of ours runs.
pub(crate) fn read_sensors() -> Readings {
    let before = CpuSample::now(&Local);
    std::thread::sleep(OBSERVATION_DURATION);
    Readings::now(&Local, &before)
}

/// Counts the activity of others.
pub(crate) fn count_activity() -> ActivityCount {
    ActivityCount::now(&Local, std::process::id())
}

/// Removes the directories of killed runs from where this one makes its directories.
pub(crate) fn remove_leftovers(design: &Design, setting: &Setting<'_>, notify: Notify<'_>) {
    for parent in experiment::parents(design, setting) {
        let directories = experiment::remove_leftovers(&parent);
        if directories > 0 {
            notify(Notice::Removed { directories, parent });
        }
    }
}

struct RamDisk(LoopDisk);

impl Disk for RamDisk {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn device(&self) -> &Path {
        self.0.device()
    }
}

/// Makes the disk that a design requests.
pub(crate) fn make_disk(wanted: &DiskRequest) -> Result<Box<dyn Disk>, Box<dyn Error + Send + Sync>> {
    if wanted.kind != "loop-ram-ext4" {
        return Err(format!("unknown kind of disk {}; expected loop-ram-ext4", wanted.kind).into());
    }
    let disk = LoopDisk::create(wanted.size_mib << 20, FileSystem::Ext4, &Backing::Ram, &Options::default())
        .map_err(|e| format!("cannot create a disk in memory: {e} (this needs root)"))?;
    Ok(Box::new(RamDisk(disk)))
}

/// Refuses disks, for designs that request none.
pub(crate) fn no_disk(_: &DiskRequest) -> Result<Box<dyn Disk>, Box<dyn Error + Send + Sync>> {
    Err("no disks are available here".into())
}
