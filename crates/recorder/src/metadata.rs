//! What an archive of a trace stores in addition to its events, as the field `surroundings` of its `meta.json`: everything that the linker
//! needs and the log does not contain, so that linking again, on another machine, gives the same tables.

use crate::Result;
use archive::Meta;
use model::Environment;
use model::table::{Coverage, Disk};
use serde::{Deserialize, Serialize};

/// Its name in `meta.json`.
const META_KEY: &str = "surroundings";

/// What is known in addition to the events. Disks are named by their device numbers, times are CLOCK_BOOTTIME in ns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Metadata {
    /// Fathom's own process.
    pub tracer: Option<u32>,
    /// The archive's own files (file system, inode): writes to them are charged to the tracer.
    pub tracer_files: Vec<(u32, u64)>,
    /// Block devices, and their backing.
    pub disks: Vec<Disk>,
    /// Files under loop disks: (loop disk, file system, inode).
    pub loop_files: Vec<(u32, u32, u64)>,
    /// Partition to disk. Also maps a file system without a disk's number (btrfs) to each disk that it is on.
    pub partitions: Vec<(u32, u32)>,
    /// Names of the functions given by --op, in their order.
    #[serde(default)]
    pub functions: Vec<String>,
    /// Records for which the log had no room: first time, last time, number.
    #[serde(default)]
    pub no_room: Option<(u64, u64, u64)>,
    /// Number of records in the log: if the log holds fewer, they were cut off. Unknown if the recorder was killed.
    #[serde(default)]
    pub stored: Option<u64>,
    /// Commands in flight at each disk when the recording began: disk, time, number.
    #[serde(default)]
    pub under_way: Vec<(u32, u64, u64)>,
    /// The disks' own statistics, when the recording began.
    #[serde(default)]
    pub counted_before: Vec<DiskCounters>,
    /// The same, when the recording ended.
    #[serde(default)]
    pub counted_after: Vec<DiskCounters>,
    /// What could be seen, and what could not.
    pub coverage: Vec<Coverage>,
    /// Facts about the device and about the recording.
    pub environment: Environment,
    /// Objects have numbers made up of disk, sector and time, and no addresses: the events come from ftrace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_place: bool,
    /// The sleeps of threads that store something are recorded at any time, not only in operations and calls; not so in archives of older
    /// versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_sleeps: bool,
    /// So are those of all recorded threads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle_sleeps: bool,
    /// Since when those of all threads are, as the command may mark intervals; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks_from_ns: Option<u64>,
}

/// A sample of a disk's statistics: disk, times just before and just after, and the fields of `/sys/block/NAME/stat`.
pub type DiskCounters = (u32, u64, u64, Vec<u64>);

impl Metadata {
    /// Loads the metadata of an archive; empty if its recorder was killed before it was written.
    pub fn load(meta: &Meta) -> Result<Self> {
        let value = meta.extra.get(META_KEY).cloned();
        Ok(value.map_or_else(|| Ok(Self::default()), serde_json::from_value)?)
    }

    /// Stores it in `meta`, which the caller writes.
    pub fn store(&self, meta: &mut Meta) -> Result<()> {
        meta.extra.insert(META_KEY.into(), serde_json::to_value(self)?);
        Ok(())
    }

    /// Whether a probe was attached, as far as is known.
    pub fn is_attached(&self, probe: &str) -> bool {
        self.coverage.iter().all(|row| row.attached || row.probe != probe)
    }

    /// Returns when the recording began and ended; 0 if unknown.
    pub fn window_ns(&self) -> (u64, u64) {
        let fact = |name: &str| self.environment.get(name)?.value.as_ref()?.parse().ok();
        (fact("trace.start").unwrap_or(0), fact("trace.end").unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names are the same in archives of every version.
    #[test]
    fn metadata_format_is_stable() {
        let metadata =
            Metadata { under_way: vec![(1, 2, 3)], counted_after: vec![(1, 2, 3, vec![4])], ..Metadata::default() };
        let mut meta = Meta::new(archive::ArchiveKind::Trace, 1, Vec::new());
        metadata.store(&mut meta).unwrap();
        let json = serde_json::json!({
            "tracer": null, "tracer_files": [], "disks": [], "loop_files": [], "partitions": [], "functions": [],
            "no_room": null, "stored": null, "under_way": [[1, 2, 3]], "counted_before": [],
            "counted_after": [[1, 2, 3, [4]]], "coverage": [], "environment": {},
        });
        assert_eq!(meta.extra["surroundings"], json);
        assert_eq!(Metadata::load(&meta).unwrap().under_way, metadata.under_way);
        assert!(Metadata::load(&Meta::new(archive::ArchiveKind::Trace, 1, Vec::new())).unwrap().tracer.is_none());
        meta.extra.insert("surroundings".into(), 5.into());
        assert!(Metadata::load(&meta).unwrap_err().to_string().contains("damaged"));
    }
}
