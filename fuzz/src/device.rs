//! What a kernel and a system say of themselves in texts: /proc, /sys, /etc. A container, a fake /proc, another device at the
//! end of a connection: they are anybody's.
//!
//! A whole device is one input: its files one after the other, each after a line `@@ PATH`. So a disk may turn out to stand
//! on itself, a mount on nothing, and a number to be a word.

use capture::launch::User;
use capture::sqlite::find::{Libraries, parse_mappings};
use device::{CpuSample, DiskStat, Disks, Reader, Readings, RunError};
use model::Dev;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The devices of the crate's own tests, and the line that names a file of theirs.
const FIXTURES_DIRECTORY: &str = "../crates/device/tests/fixtures";
const FILE_MARK: &str = "@@ ";

fn take_files(root: &Path, directory: &Path, out: &mut Vec<u8>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut paths: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            take_files(root, &path, out);
        } else if let (Ok(inside), Ok(text)) = (path.strip_prefix(root), std::fs::read(&path)) {
            out.extend(format!("{FILE_MARK}/{}\n", inside.display()).bytes().chain(text).chain([b'\n']));
        }
    }
}

pub fn device_seeds() -> Vec<Vec<u8>> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIXTURES_DIRECTORY);
    let all: Vec<Vec<u8>> = [
        "laptop",
        "phone",
        "virtual-machine",
        "models/pixel-8",
        "models/shield-tv-pro-2019",
        "models/nothing-phone-15",
    ]
    .iter()
    .map(|name| {
        let (root, mut out) = (fixtures.join(name), Vec::new());
        take_files(&root, &root, &mut out);
        out
    })
    .collect();
    assert!(all.iter().all(|device| !device.is_empty()), "the devices are gone");
    all
}

struct FakeFiles(BTreeMap<String, String>);

impl FakeFiles {
    fn new(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        let mut path = String::new();
        for line in text.lines() {
            if let Some(next) = line.strip_prefix(FILE_MARK) {
                next.clone_into(&mut path);
                continue;
            }
            let file = files.entry(path.clone()).or_default();
            if !file.is_empty() {
                file.push('\n');
            }
            file.push_str(line);
        }
        Self(files)
    }
}

impl Reader for FakeFiles {
    fn read(&self, path: &str) -> Result<String, String> {
        self.0.get(path).cloned().ok_or_else(|| "no such file".into())
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, String> {
        let names: BTreeSet<String> = self
            .0
            .keys()
            .filter_map(|p| Some(p.strip_prefix(directory)?.strip_prefix('/')?.split('/').next()?.to_owned()))
            .collect();
        if names.is_empty() { Err("no such directory".into()) } else { Ok(names.into_iter().collect()) }
    }

    fn run(&self, words: &[&str]) -> Result<String, RunError> {
        self.read(&format!("/run/{}", words.join(" "))).map_err(RunError::Failed)
    }

    fn canonical(&self, path: &str) -> Result<String, String> {
        Ok(path.to_owned())
    }

    fn identity(&self, path: &str) -> Result<(Dev, u64), String> {
        self.read(path).map(|text| (Dev::new(254, 0), text.len() as u64))
    }
}

/// A fact is known, or it is said why not. A mount holds its path. A stack of disks ends, and has each disk once.
pub fn check_facts(bytes: &[u8]) {
    let files = FakeFiles::new(bytes);
    for path in ["/", "/data", "/home/somebody/a.db", ""] {
        for (name, fact) in device::collect(&files, Some(path)) {
            assert!(fact.value.is_some() != fact.unknown.is_some(), "{name}: {fact:?}");
        }
        if let Ok(mount) = device::mount_of(&files, path) {
            assert!(path.starts_with(&mount.point), "{path} is not below {}", mount.point);
        }
    }
    device::versions(&files);
    let about = device::all_facts(&files);
    for (name, fact) in &about {
        assert!(fact.value.is_some() != fact.unknown.is_some(), "{name}: {fact:?}");
    }
    assert!(device::check::abilities(&about).iter().all(|ability| !ability.why.is_empty()));
    let readings = Readings::now(&files, &CpuSample::now(&files));
    assert!(readings.busy_cpus.is_err(), "no tick can have passed");
    let Ok(disks) = Disks::read(&files) else { return };
    for (dev, disk) in &disks.all {
        assert!(disks.whole(*dev).is_some_and(|d| d.dev == *dev));
        let stack: Vec<Dev> = disks.stack(&files, disk).iter().map(|d| d.dev).collect();
        assert_eq!(stack.iter().collect::<BTreeSet<_>>().len(), stack.len(), "a disk stands on itself");
        if let Ok(stat) = DiskStat::read(&files, &disk.name) {
            assert_eq!(stat.since(&stat), DiskStat { in_flight: stat.in_flight, ..DiskStat::default() });
        }
    }
    let pairs = disks.volumes(&files);
    assert_eq!(pairs.iter().collect::<BTreeSet<_>>().len(), pairs.len());
    assert_eq!(disks.rows(None).len(), disks.all.len());
}

pub fn map_seeds() -> Vec<Vec<u8>> {
    vec![
        b"7f0000000000-7f0000001000 r--p 00000000 fe:00 42                         /usr/lib/libsqlite3.so.0.8.6\n\
          7f0000001000-7f0000002000 r-xp 00001000 fe:00 42                         /usr/lib/libsqlite3.so.0.8.6\n\
          7f0000003000-7f0000004000 r-xp 00001000 00:2d 43                         /tmp/my libs/a b.so (deleted)\n\
          7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]\n"
            .to_vec(),
    ]
}

/// What is named is code of a file, by an absolute path.
pub fn check_maps(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for mapping in parse_mappings(&text) {
        assert!(mapping.inode != 0 && mapping.path.starts_with('/') && !mapping.path.contains('\n'));
    }
}

pub fn passwd_seeds() -> Vec<Vec<u8>> {
    vec![
        b"root:x:0:0:root:/root:/bin/bash\nme:x:1000:1000:Me,,,:/home/me:/bin/zsh\n\0sudo:x:27:me,you\nme:x:1000:\nvideo:x:44:me\n"
            .to_vec(),
    ]
}

/// /etc/passwd and /etc/group, a zero between them. Whatever they say, the numbers stay those that were requested.
pub fn check_user(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (passwd, group) = text.split_once('\0').unwrap_or((&text, ""));
    let user = User::from_files(1000, 1000, passwd, group);
    assert_eq!((user.uid, user.gid, user.groups[0]), (1000, 1000, 1000));
    assert_eq!(user.groups.iter().collect::<BTreeSet<_>>().len(), user.groups.len());
    assert!(!user.name.contains([':', '\n']));
}

pub fn library_cache_seeds() -> Vec<Vec<u8>> {
    let mut small = b"glibc-ld.so.cache1.1".to_vec();
    small.extend(1_u32.to_le_bytes());
    small.resize(48 + 4, 0);
    small.extend([72_u32, 80].iter().flat_map(|at| at.to_le_bytes()));
    small.resize(72, 0);
    small.extend(b"libz.so\0/lib/libz.so\0");
    vec![small]
}

/// What the loader's cache names is not larger than any path.
pub fn check_library_cache(bytes: &[u8]) {
    for (name, path) in Libraries::parse_cache(bytes) {
        assert!(name.len() <= 4096 && path.len() <= 4096 && !name.contains('\0'));
    }
}
