//! Determines which SQLite ran: among the probed files, those that a process which executed statements had mapped as code.
//!
//! Everything that may be loaded is probed, so being probed does not mean being used: the system's library is probed for
//! every command. A process whose mappings were not seen (it was forked from one that had them, and has ended) may have used
//! any of the probed files; then the version is known only if they all have the same.

use capture::sqlite::find::parse_mappings;
use device::Local;
use model::{Dev, Fact};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;

/// A probed file that contains SQLite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedLibrary {
    pub path: String,
    /// The file's identity, if known.
    pub file: Option<Identity>,
    /// The version that it reports.
    pub version: String,
}

/// A file's file system, as the kernel's own records name it, and its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// `None` if stat returns a different number than the kernel's records: then the inode alone decides.
    pub dev: Option<Dev>,
    pub ino: u64,
}

impl Identity {
    /// Returns the identity of a file that can be opened here.
    pub fn for_path(path: &str) -> Option<Self> {
        let (dev, ino) = device::identity(&Local, path).ok()?;
        Some(Self { dev: Some(dev).filter(|_| stat_agrees(path)), ino })
    }

    /// Whether a record with this file system and inode refers to it.
    pub fn is(&self, (dev, ino): (Dev, u64)) -> bool {
        self.ino == ino && self.dev.is_none_or(|own| own == dev)
    }
}

/// `f_type` of statfs(2).
const BTRFS_MAGIC: u64 = 0x9123_683e;
const OVERLAYFS_MAGIC: u64 = 0x794c_7630;

/// Whether stat returns the kernel's number: btrfs and overlayfs make one up for each subvolume or layer.
fn stat_agrees(path: &str) -> bool {
    let Ok(path) = CString::new(path) else { return false };
    // SAFETY: a structure of numbers, for which zero is valid.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero, and both live until the call returns.
    let done = unsafe { libc::statfs(path.as_ptr(), &raw mut about) };
    done == 0 && ![BTRFS_MAGIC, OVERLAYFS_MAGIC].contains(&(about.f_type as u64))
}

/// Which processes executed statements, with which code.
#[derive(Debug, Default)]
pub struct SqliteUse {
    with_statements: BTreeSet<u32>,
    mapped: BTreeMap<u32, BTreeSet<(Dev, u64)>>,
}

impl SqliteUse {
    /// Records that a process executed a statement.
    pub fn statement(&mut self, tgid: u32) {
        self.with_statements.insert(tgid);
    }

    /// Whether the process is known to have executed statements.
    pub fn has_statements(&self, tgid: u32) -> bool {
        self.with_statements.contains(&tgid)
    }

    /// Records that a process mapped a file as code: its file system and inode.
    pub fn mapped(&mut self, tgid: u32, file: (Dev, u64)) {
        self.mapped.entry(tgid).or_default().insert(file);
    }

    /// Adds the mappings of processes that are still running.
    pub fn read_mappings(&mut self) {
        for &tgid in &self.with_statements {
            let Some(pid) = capture::in_proc(tgid) else { continue };
            let Ok(maps) = std::fs::read(format!("/proc/{pid}/maps")) else { continue };
            let maps = String::from_utf8_lossy(&maps);
            let files = parse_mappings(&maps).filter_map(|m| Some((device_of(m.device)?, m.inode)));
            self.mapped.entry(tgid).or_default().extend(files);
        }
    }

    /// Returns the version that ran, with its file; or why it is not known, and what was probed. `None` if nothing was
    /// probed.
    pub fn version(&self, probed: &[ProbedLibrary]) -> Option<Fact> {
        if probed.is_empty() {
            return None;
        }
        let fact = |value, unknown, source| Fact { value, unknown, unit: None, source, varies: "run".into() };
        let why_not = |why: &str| {
            let list: Vec<String> = probed.iter().map(|p| format!("{} ({})", p.path, p.version)).collect();
            fact(None, Some(format!("{why}; probed: {}", list.join(", "))), "the recorded statements".into())
        };
        if self.with_statements.is_empty() {
            return Some(why_not("no statement was recorded"));
        }
        let mut ran: BTreeSet<usize> = BTreeSet::new();
        let mut sure = true;
        for tgid in &self.with_statements {
            let its = self.mapped.get(tgid);
            let has = |p: &ProbedLibrary| {
                its.zip(p.file).is_some_and(|(files, probed)| files.iter().any(|file| probed.is(*file)))
            };
            let files: Vec<usize> = (0..probed.len()).filter(|&i| has(&probed[i])).collect();
            sure &= files.len() == 1;
            ran.extend(if files.is_empty() { (0..probed.len()).collect() } else { files });
        }
        let of = |what: fn(&ProbedLibrary) -> &str| ran.iter().map(|&i| what(&probed[i])).collect::<BTreeSet<&str>>();
        let (versions, paths) = (of(|p| &p.version), of(|p| &p.path));
        if !sure && versions.len() > 1 {
            return Some(why_not("a process executed statements of an unidentified SQLite"));
        }
        let joined = |set: BTreeSet<&str>, by: &str| set.into_iter().collect::<Vec<_>>().join(by);
        Some(fact(Some(joined(versions, ", ")), None, joined(paths, " ")))
    }
}

/// Parses `MAJOR:MINOR`, in hexadecimal.
fn device_of(text: &str) -> Option<Dev> {
    let (major, minor) = text.split_once(':')?;
    let number = |hex| u32::from_str_radix(hex, 16).ok();
    Some(Dev::new(number(major)?, number(minor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK_DEV: Dev = Dev(254 << 20);

    /// Creates probed files on one file system.
    fn probed(all: &[(&str, u64, &str)]) -> Vec<ProbedLibrary> {
        let file = |ino| Some(Identity { dev: Some(DISK_DEV), ino });
        all.iter()
            .map(|&(path, ino, version)| ProbedLibrary { path: path.into(), file: file(ino), version: version.into() })
            .collect()
    }

    #[test]
    fn same_inode_on_two_file_systems_is_two_files() {
        let mut both = probed(&[("/a", 5, "3.40.1"), ("/mnt/b", 5, "3.54.1")]);
        both[1].file = Some(Identity { dev: Some(Dev(7 << 20)), ino: 5 });
        let mut ran = SqliteUse::default();
        ran.mapped(1, (Dev(7 << 20), 5));
        ran.statement(1);
        assert_eq!(ran.version(&both).unwrap().value.as_deref(), Some("3.54.1"));
        // If stat does not return it, it may be either.
        both[0].file = Some(Identity { dev: None, ino: 5 });
        assert!(ran.version(&both).unwrap().value.is_none());
    }

    #[test]
    fn own_executable_matches_its_mapping() {
        let own = std::env::current_exe().unwrap();
        let mut ran = SqliteUse::default();
        ran.statement(std::process::id());
        ran.read_mappings();
        let identity = Identity::for_path(own.to_str().unwrap()).unwrap();
        assert!(ran.mapped[&std::process::id()].iter().any(|file| identity.is(*file)), "{identity:?}");
        assert_eq!(device_of("fe:01"), Some(Dev::new(254, 1)));
        assert_eq!(device_of("fe"), None);
    }

    #[test]
    fn unused_library_is_not_named() {
        let both = probed(&[("/lib/libsqlite3.so.0", 5, "3.40.1"), ("/opt/app", 6, "3.54.1")]);
        let mut ran = SqliteUse::default();
        ran.mapped(1, (DISK_DEV, 5));
        let nobody = ran.version(&both).unwrap();
        assert_eq!(nobody.value, None);
        let why = nobody.unknown.unwrap();
        assert!(why.starts_with("no statement") && why.contains("/lib/libsqlite3.so.0 (3.40.1)"), "{why}");
        assert!(SqliteUse::default().version(&[]).is_none());

        ran.mapped(2, (DISK_DEV, 6));
        ran.mapped(2, (DISK_DEV, 7));
        ran.statement(2);
        let one = ran.version(&both).unwrap();
        assert_eq!((one.value.as_deref(), one.source.as_str()), (Some("3.54.1"), "/opt/app"));

        ran.statement(1);
        assert_eq!(ran.version(&both).unwrap().value.as_deref(), Some("3.40.1, 3.54.1"), "both ran");
    }

    #[test]
    fn process_without_mappings_has_only_common_version() {
        let mut ran = SqliteUse::default();
        ran.statement(u32::MAX);
        ran.read_mappings();
        let same = probed(&[("/a", 5, "3.40.1"), ("/b", 6, "3.40.1")]);
        assert_eq!(ran.version(&same).unwrap().value.as_deref(), Some("3.40.1"));
        let two = probed(&[("/a", 5, "3.40.1"), ("/b", 6, "3.41.0")]);
        let fact = ran.version(&two).unwrap();
        assert!(fact.value.is_none() && fact.unknown.unwrap().contains("/b (3.41.0)"));
    }
}
