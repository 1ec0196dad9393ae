//! The location of a run's files: the file system, its free space, the disk below it, and that disk's counters.
//!
//! A disk counts its work for all processes. The numbers include what other processes did meanwhile, and the file
//! system's own work: journal, allocation, inode tables. On a quiet disk the difference of the counters is the cost of
//! the load.

use super::io_error::on;
use super::lines::Lines;
use crate::Error;
use device::{DiskStat, Disks, Local};
use model::Environment;
use model::text::ShownPath as _;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Facts that affect a number and that a reader of the result therefore wants to see.
const SHOWN_FACTS: &[&str] = &[
    "fs.type",
    "fs.options",
    "disk.name",
    "disk.stands_on",
    "disk.model",
    "disk.scheduler",
    "disk.rotational",
    "disk.write_cache",
    "disk.logical_block",
    "disk.physical_block",
    "disk.read_ahead",
];

/// A directory and what is below it.
#[derive(Debug)]
pub(crate) struct Directory {
    directory: PathBuf,
    facts: Environment,
    disk: Option<String>,
    block: u64,
    free: u64,
}

impl Directory {
    /// Examines a directory.
    pub(crate) fn new(directory: &Path) -> Result<Self, Error> {
        let directory = std::fs::canonicalize(directory).map_err(on("use", directory))?;
        let path = directory.to_str().ok_or_else(|| Error::Failed(format!("{} is not UTF-8", directory.shown())))?;
        let stat = file_system_stat(&directory).map_err(on("inspect", &directory))?;
        let facts = device::storage(&Local, path);
        let disk = Disks::read(&Local).ok().and_then(|d| d.of_path(&Local, path).map(|disk| disk.name.clone()));
        Ok(Self {
            facts,
            disk,
            block: stat.f_frsize as u64,
            free: stat.f_bavail as u64 * stat.f_frsize as u64,
            directory,
        })
    }

    /// Its path, without links.
    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    /// Fails if `bytes` of data do not fit; `remedy` names the option that reduces the amount.
    pub(crate) fn check_space(&self, bytes: u64, remedy: &str) -> Result<(), Error> {
        check_fits(bytes, self.free, &self.directory, remedy)
    }

    /// The disk's smallest addressable block in bytes, of which O_DIRECT requires multiples.
    pub(crate) fn logical_block(&self) -> Option<u64> {
        self.fact("disk.logical_block")?.parse().ok()
    }

    fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name)?.value.as_deref()
    }

    /// The facts, as marks.
    pub(crate) fn marks(&self, lines: &mut Lines) {
        lines.mark("fs.block", self.block);
        lines.mark("fs.free", self.free);
        for name in SHOWN_FACTS {
            match (self.fact(name), self.facts.get(*name).and_then(|f| f.unknown.as_deref())) {
                (Some(value), _) => lines.mark(name, value),
                // A fact that such a disk does not have (a virtual one has no model) is left out.
                (None, Some(why)) if *name == "disk.name" => lines.mark(name, format!("unknown: {why}")),
                _ => {}
            }
        }
    }

    /// The disk's current counters, if a disk is known.
    pub(crate) fn counters(&self) -> Option<Counters> {
        Some(Counters { disk: DiskStat::read(&Local, self.disk.as_deref()?).ok()?, own: OwnIo::now() })
    }
}

/// As [`Directory::check_space`], for a directory about which nothing else is needed.
pub(crate) fn check_free_space(directory: &Path, bytes: u64, remedy: &str) -> Result<(), Error> {
    let stat = file_system_stat(directory).map_err(on("use", directory))?;
    check_fits(bytes, stat.f_bavail as u64 * stat.f_frsize as u64, directory, remedy)
}

fn check_fits(bytes: u64, free: u64, directory: &Path, remedy: &str) -> Result<(), Error> {
    // The overhead of the file system: 1/64 for block maps and inodes, and a journal.
    let needed = bytes.saturating_add(bytes / 64).saturating_add(4 << 20);
    if needed <= free {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "not enough space for {} in {}: {} are needed with the file system's overhead, {} are available; free some, \
         choose another directory (--dir) or less data ({remedy})",
        model::text::size(bytes),
        directory.shown(),
        model::text::size(needed),
        model::text::size(free)
    )))
}

fn file_system_stat(directory: &Path) -> std::io::Result<libc::statvfs> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    // SAFETY: plain data, valid when zeroed.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a NUL-terminated path and a struct of ours.
    match unsafe { libc::statvfs(path.as_ptr(), &raw mut stat) } {
        0 => Ok(stat),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Bytes that this process has caused to be read from or written to storage so far (`/proc/self/io`), including children that have
/// ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OwnIo {
    read: u64,
}

impl OwnIo {
    fn parse(text: &str) -> Option<Self> {
        let read = text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?;
        Some(Self { read: read.trim().parse().ok()? })
    }

    fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/io").ok()?)
    }
}

/// The counters at one moment: the disk's, and this process's own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counters {
    disk: DiskStat,
    own: Option<OwnIo>,
}

impl Counters {
    /// The same if another process does the work.
    pub(crate) fn without_own(self) -> Self {
        Self { own: None, ..self }
    }
}

/// The disk's work during the parts of a run that count.
///
/// The disk's counters are for all processes. What a read load fetched is known more precisely: the kernel charges a page read to the
/// process that wanted it, including readahead. A write is charged when a page becomes dirty, metadata and journal to no process; there
/// only the disk's counters remain.
#[derive(Debug, Default)]
pub(crate) struct Account {
    done: DiskStat,
    /// Bytes read for this process; unknown if the kernel did not report some part.
    own_read: u64,
    own_unknown: bool,
    requested: u64,
    unknown: bool,
}

impl Account {
    /// Adds a part: the counters before and after it, and the bytes that the program requested meanwhile.
    pub(crate) fn add(&mut self, before: Option<Counters>, after: Option<Counters>, requested: u64) {
        self.requested += requested;
        let (Some(before), Some(after)) = (before, after) else {
            self.unknown = true;
            return;
        };
        match before.own.zip(after.own) {
            Some((then, now)) => self.own_read += now.read.saturating_sub(then.read),
            None => self.own_unknown = true,
        }
        let part = after.disk.since(&before.disk);
        self.done.reads += part.reads;
        self.done.read_sectors += part.read_sectors;
        self.done.writes += part.writes;
        self.done.write_sectors += part.write_sectors;
        self.done.flushes += part.flushes;
    }

    /// Bytes read from storage for this process; if the kernel does not report them, those that the disk read for any process, if known.
    pub(crate) fn read_bytes(&self) -> Option<u64> {
        let disk = self.done.read_sectors * 512;
        (!self.unknown).then_some(if self.own_unknown { disk } else { self.own_read })
    }

    /// Bytes that the program requested.
    pub(crate) fn requested(&self) -> u64 {
        self.requested
    }

    /// Writes the sums, and `amplification`: bytes of storage in the direction of the load per requested byte. For reads those of this
    /// process only, if the kernel reports them.
    pub(crate) fn append_to(&self, writes: bool, lines: &mut Lines) {
        if self.requested > 0 {
            lines.sample("requested_bytes", "byte", self.requested as f64);
        }
        if self.unknown {
            lines.mark("device", "unknown: no disk with counters found for the directory");
            return;
        }
        let (read, written) = (self.done.read_sectors * 512, self.done.write_sectors * 512);
        lines.sample("device.reads", "request", self.done.reads as f64);
        lines.sample("device.read_bytes", "byte", read as f64);
        lines.sample("device.writes", "request", self.done.writes as f64);
        lines.sample("device.written_bytes", "byte", written as f64);
        lines.sample("device.flushes", "request", self.done.flushes as f64);
        if !self.own_unknown {
            lines.sample("own.read_bytes", "byte", self.own_read as f64);
        }
        if self.requested > 0 {
            let moved = if writes { written } else { self.read_bytes().unwrap_or(read) };
            lines.sample("amplification", "1", moved as f64 / self.requested as f64);
            let whose = if writes || self.own_unknown { "of the whole disk" } else { "of this process" };
            lines.mark("amplification", whose);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_space_error_has_sizes_and_remedy() {
        let place = Directory::new(&std::env::temp_dir()).unwrap();
        place.check_space(1, "--count").unwrap();
        let error = place.check_space(1 << 60, "--file-size").unwrap_err().to_string();
        for part in ["1073741824 GiB", "available", "--dir", "--file-size"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(place.check_space(u64::MAX, "--count").is_err());
    }

    #[test]
    fn missing_directory_is_named() {
        let error = Directory::new(Path::new("/no/such/directory")).unwrap_err().to_string();
        assert!(error.contains("/no/such/directory") && error.contains("--dir"), "{error}");
    }

    #[test]
    fn account_adds_up_and_stays_unknown_once_it_is() {
        let stat = |read_sectors, write_sectors| {
            let disk = DiskStat { read_sectors, write_sectors, ..DiskStat::default() };
            Some(Counters { disk, own: None })
        };
        let mut account = Account::default();
        account.add(stat(100, 10), stat(108, 10), 1);
        account.add(stat(200, 10), stat(208, 20), 1);
        assert_eq!((account.read_bytes(), account.requested()), (Some(16 * 512), 2));
        let mut lines = Lines::default();
        account.append_to(false, &mut lines);
        let text = String::from_utf8(lines.bytes().to_vec()).unwrap();
        let line = text.lines().find(|l| l.contains("amplification")).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap()["v"], 4096.0);
        account.add(None, stat(1, 1), 1);
        assert_eq!(account.read_bytes(), None);
    }

    #[test]
    fn reads_of_other_processes_are_not_amplification() {
        let at = |read_sectors, own| {
            Some(Counters { disk: DiskStat { read_sectors, ..DiskStat::default() }, own: Some(OwnIo { read: own }) })
        };
        let mut account = Account::default();
        // The disk read a MiB, one block of it for us.
        account.add(at(100, 5000), at(2148, 9096), 1024);
        let mut lines = Lines::default();
        account.append_to(false, &mut lines);
        let text = String::from_utf8(lines.bytes().to_vec()).unwrap();
        let value = |name: &str| {
            let line = text.lines().find(|l| l.contains(&format!("\"metric\":\"{name}\""))).unwrap();
            serde_json::from_str::<serde_json::Value>(line).unwrap()["v"].as_f64().unwrap()
        };
        assert_eq!(
            (value("amplification"), value("own.read_bytes"), value("device.read_bytes")),
            (4.0, 4096.0, 1048576.0)
        );
        assert!(text.contains("of this process"));
        assert_eq!(OwnIo::parse("rchar: 5\nread_bytes: 4096\nwrite_bytes: 0\n"), Some(OwnIo { read: 4096 }));
        assert_eq!(OwnIo::parse("rchar: 5\n"), None);
    }
}
