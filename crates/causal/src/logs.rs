//! File systems whose log the trace cannot divide into transactions: btrfs, f2fs, xfs.
//!
//! While such a log is written, it is charged to the calls that wait for the medium (fsync) on that file system; if some of
//! them are known to have asked for it (XFS, see `checkpoints`), to these alone. If nobody waits, it is charged to whoever
//! changed the file system since it was last written.
//!
//! *Uncertainty*: both. A waiting call may wait for something else, so that is `interval`; whoever changed the file system
//! may have nothing in this part of its metadata, so that is a `guess`. The bytes of a log are not divided by who logged
//! them.

use crate::actor::Source;
use crate::hash::FastMap;
use crate::pages::FileKey;

/// Maximum number of changers kept per file system; beyond it the oldest are dropped.
const CHANGERS_MAX: usize = 64;
/// Maximum number of file systems.
const FILE_SYSTEMS_MAX: usize = 1024;
/// Writes that nobody asked for come in bursts; a pause this long ends one (btrfs commits every 30 s, f2fs every 60 s, xfs
/// pushes its log every 30 s).
const BURST_PAUSE_NS: u64 = 500_000_000;

#[derive(Debug, Clone, Copy)]
struct Changer {
    source: Source,
    time_ns: u64,
    weight: f64,
}

/// Who changed one file system.
#[derive(Default)]
struct Log {
    changers: Vec<Changer>,
    last_burst_ns: u64,
}

/// All such file systems.
#[derive(Default)]
pub(crate) struct Logs {
    by_dev: FastMap<u32, Log>,
    /// Directories, whose pages (f2fs) are not written by any call.
    directories: FastMap<FileKey, ()>,
}

impl Logs {
    /// Records a change to a file system.
    pub(crate) fn changed(&mut self, dev: u32, source: Source, time_ns: u64) {
        if self.by_dev.len() >= FILE_SYSTEMS_MAX && !self.by_dev.contains_key(&dev) {
            self.by_dev.clear();
        }
        let changers = &mut self.by_dev.entry(dev).or_default().changers;
        // The latest are last, so a thread in a loop is found at once.
        if let Some(known) = changers.iter().rposition(|c| c.source == source) {
            changers[known].time_ns = time_ns;
            changers[known].weight += 1.0;
            return;
        }
        if changers.len() >= CHANGERS_MAX {
            changers.remove(0);
        }
        changers.push(Changer { source, time_ns, weight: 1.0 });
    }

    /// Records that a call waits for the device on something other than a regular file: a directory.
    pub(crate) fn add_directory(&mut self, file: FileKey) {
        if self.directories.len() >= FILE_SYSTEMS_MAX {
            self.directories.clear();
        }
        self.directories.insert(file, ());
    }

    pub(crate) fn is_directory(&self, file: FileKey) -> bool {
        self.directories.contains_key(&file)
    }

    /// Returns who is charged for what is written at `now_ns` while nobody waits. `here` accepts the file systems it may
    /// belong to.
    pub(crate) fn changers(&mut self, now_ns: u64, here: impl Fn(u32) -> bool) -> Vec<(Source, f64)> {
        let mut all = Vec::new();
        let mut devs: Vec<u32> = self.by_dev.keys().copied().filter(|dev| here(*dev)).collect();
        devs.sort_unstable();
        for dev in devs {
            let Some(log) = self.by_dev.get_mut(&dev) else { continue };
            if now_ns > log.last_burst_ns.saturating_add(BURST_PAUSE_NS) {
                // Already charged for the previous burst.
                let paid_ns = log.last_burst_ns;
                log.changers.retain(|c| c.time_ns > paid_ns);
            }
            log.last_burst_ns = now_ns;
            all.extend(log.changers.iter().filter(|c| c.time_ns <= now_ns).map(|c| (c.source, c.weight)));
        }
        all
    }

    pub(crate) fn len(&self) -> usize {
        self.by_dev.values().map(|l| 1 + l.changers.len()).sum::<usize>() + self.directories.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Actor;
    use model::Origin;

    #[test]
    fn log_writes_are_shared_since_the_previous_burst() {
        let mut logs = Logs::default();
        let who = |tgid| Source::Actor(Actor::process(Origin::Process, tgid));
        logs.changed(5, who(1), 100);
        logs.changed(5, who(1), 200);
        logs.changed(5, who(2), 300);
        logs.changed(6, who(3), 300);
        assert_eq!(logs.changers(1000, |d| d == 5), [(who(1), 2.0), (who(2), 1.0)]);
        assert_eq!(logs.changers(1100, |d| d == 5).len(), 2);
        logs.changed(5, who(2), 2000);
        assert_eq!(logs.changers(1100 + BURST_PAUSE_NS + 1, |d| d == 5), [(who(2), 2.0)]);
        (0..1000).for_each(|n| logs.changed(5, who(n), 3000));
        assert!(logs.len() <= 2 + CHANGERS_MAX + 1);
    }
}
