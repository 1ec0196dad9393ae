//! The block devices and their stacking: a partition in its disk, a device-mapper disk on others, a loop disk on a file
//! that is itself on a disk.

use crate::dev::parse_dev;
use crate::mounts::{identity, mounts};
use crate::{Reader, mount_of};
use model::Dev;
use model::table::Disk;
use std::collections::BTreeMap;

/// What a disk is stacked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskBacking {
    /// Nothing known to the kernel: it is the device itself.
    Nothing,
    /// Other disks (device mapper, md); partitions are represented by their whole disk.
    Disks(Vec<Dev>),
    /// A file (loop).
    File {
        path: String,
        /// Its file system and inode, if known.
        identity: Option<(Dev, u64)>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDisk {
    pub dev: Dev,
    /// Its name, such as `nvme0n1`.
    pub name: String,
    pub label: Option<String>,
    /// What it is stacked on.
    pub below: DiskBacking,
    /// Its partitions: number and name.
    pub partitions: BTreeMap<Dev, String>,
}

/// All disks of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disks {
    /// By number.
    pub all: BTreeMap<Dev, BlockDisk>,
}

impl Disks {
    /// Reads `/sys/block`. Disks without content (a loop disk without its file) are omitted.
    ///
    /// # Errors
    /// `/sys/block` cannot be listed.
    pub fn read(reader: &dyn Reader) -> Result<Self, String> {
        let names = reader.list("/sys/block")?;
        let mut all = BTreeMap::new();
        let mut slaves = BTreeMap::new();
        for name in names {
            let directory = format!("/sys/block/{name}");
            let number = |path: String| reader.read(&path).ok().and_then(|text| parse_dev(&text));
            let Some(dev) = number(format!("{directory}/dev")) else { continue };
            if reader.read(&format!("{directory}/size")).is_ok_and(|sectors| sectors == "0") {
                continue;
            }
            // A partition is a subdirectory of its disk with a file containing its number.
            let inside = reader.list(&directory).unwrap_or_default().into_iter();
            let partitions = inside.filter(|n| n.starts_with(&name)).filter_map(|part| {
                reader.read(&format!("{directory}/{part}/partition")).ok()?;
                Some((number(format!("{directory}/{part}/dev"))?, part))
            });
            let partitions = partitions.collect();
            let below = match reader.read(&format!("{directory}/loop/backing_file")) {
                Ok(path) => DiskBacking::File { identity: identity(reader, &path).ok(), path },
                Err(_) => DiskBacking::Nothing,
            };
            slaves.insert(dev, reader.list(&format!("{directory}/slaves")).unwrap_or_default());
            let label = reader.read(&format!("{directory}/dm/name")).ok();
            all.insert(dev, BlockDisk { dev, name, label, below, partitions });
        }
        let mut disks = Self { all };
        for (dev, names) in slaves {
            let below: Vec<Dev> = names.iter().filter_map(|n| disks.by_name(n)).map(|d| d.dev).collect();
            if let Some(disk) = disks.all.get_mut(&dev).filter(|_| !below.is_empty()) {
                disk.below = DiskBacking::Disks(below);
            }
        }
        Ok(disks)
    }

    /// The whole disk of the named disk or partition, with or without the prefix `/dev/`; also accepts device-mapper names.
    pub fn by_name(&self, name: &str) -> Option<&BlockDisk> {
        let name = name.strip_prefix("/dev/").unwrap_or(name);
        let label = name.strip_prefix("mapper/");
        self.all.values().find(|d| {
            d.name == name
                || (label.is_some() && d.label.as_deref() == label)
                || d.partitions.values().any(|p| p == name)
        })
    }

    /// The whole disk of the disk or partition with this number.
    pub fn whole(&self, dev: Dev) -> Option<&BlockDisk> {
        self.all.get(&dev).or_else(|| self.all.values().find(|d| d.partitions.contains_key(&dev)))
    }

    /// The disk of each partition.
    pub fn partitions(&self) -> BTreeMap<Dev, Dev> {
        self.all.values().flat_map(|d| d.partitions.keys().map(|p| (*p, d.dev))).collect()
    }

    /// File systems without a disk's number, since they may span several disks (btrfs), and their disks.
    pub fn volumes(&self, reader: &dyn Reader) -> Vec<(Dev, Dev)> {
        let spread = mounts(reader).unwrap_or_default().into_iter().filter(|m| m.dev.major() == 0);
        let mut all: Vec<(Dev, Dev)> = Vec::new();
        for mount in spread {
            // Mounted by a link, such as /dev/disk/by-uuid/….
            let source = reader.canonical(&mount.source).unwrap_or(mount.source);
            let Some(first) = self.by_name(&source) else { continue };
            let ids = if mount.kind == "btrfs" { reader.list("/sys/fs/btrfs").unwrap_or_default() } else { Vec::new() };
            let devices = |id: &String| reader.list(&format!("/sys/fs/btrfs/{id}/devices")).unwrap_or_default();
            let disks =
                |names: Vec<String>| -> Vec<Dev> { names.iter().filter_map(|n| Some(self.by_name(n)?.dev)).collect() };
            let others = ids.iter().map(devices).map(disks).find(|d| d.contains(&first.dev)).unwrap_or_default();
            all.extend([first.dev].into_iter().chain(others).map(|disk| (mount.dev, disk)));
        }
        // The disk named by the mount stays the first.
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|pair| seen.insert(*pair));
        all
    }

    /// The disk that contains a path, if any.
    pub fn of_path(&self, reader: &dyn Reader, path: &str) -> Option<&BlockDisk> {
        let mount = mount_of(reader, path).ok()?;
        if let Some(disk) = self.whole(mount.dev).or_else(|| self.by_name(&mount.source)) {
            return Some(disk);
        }
        // An overlay writes to its upper directory, on another file system, which is not an overlay.
        let upper = mount.options.split(',').find_map(|o| o.strip_prefix("upperdir="))?;
        let mount = mount_of(reader, upper).ok()?;
        self.whole(mount.dev).or_else(|| self.by_name(&mount.source))
    }

    /// A disk and all disks below it, from top to bottom, each once.
    pub fn stack<'a>(&'a self, reader: &dyn Reader, top: &'a BlockDisk) -> Vec<&'a BlockDisk> {
        let mut stack = vec![top];
        let mut at = 0;
        while let Some(disk) = stack.get(at).copied() {
            let next: Vec<&BlockDisk> = match &disk.below {
                DiskBacking::Nothing => Vec::new(),
                DiskBacking::Disks(devs) => devs.iter().filter_map(|d| self.whole(*d)).collect(),
                DiskBacking::File { path, .. } => self.of_path(reader, path).into_iter().collect(),
            };
            for disk in next {
                if !stack.iter().any(|s| s.dev == disk.dev) {
                    stack.push(disk);
                }
            }
            at += 1;
        }
        stack
    }

    /// The rows of the archive's table; `holds` is the disk of the recorded files.
    pub fn rows(&self, holds: Option<Dev>) -> Vec<Disk> {
        let name = |dev: &Dev| self.all.get(dev).map_or_else(|| dev.to_string(), |d| d.name.clone());
        let row = |d: &BlockDisk| Disk {
            dev: d.dev.0,
            name: d.name.clone(),
            below: match &d.below {
                DiskBacking::Nothing => String::new(),
                DiskBacking::Disks(devs) => devs.iter().map(name).collect::<Vec<_>>().join(" "),
                DiskBacking::File { path, .. } => path.clone(),
            },
            holds_files: holds == Some(d.dev),
        };
        self.all.values().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_device_numbers_are_refused() {
        assert_eq!(parse_dev("254:0"), Some(Dev::new(254, 0)));
        for text in ["", "1", "1:", ":1", "a:b", "4096:0", "1:1048576", "-1:0"] {
            assert_eq!(parse_dev(text), None, "{text}");
        }
    }
}
