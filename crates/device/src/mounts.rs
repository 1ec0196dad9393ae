//! The file system of a path, from the kernel's list of mounts.

use crate::Reader;
use crate::dev::parse_dev;
use crate::facts::{Sheet, Validity};
use model::Dev;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its device number. File systems that span devices (btrfs) or have none (overlay, tmpfs) have one with major 0.
    pub dev: Dev,
    /// Where it is mounted.
    pub point: String,
    /// Type, such as `ext4`.
    pub kind: String,
    /// What is mounted, such as `/dev/sda2`.
    pub source: String,
    /// Options of the mount, then of the file system.
    pub options: String,
}

/// The file system that contains a path: the last one mounted at the longest directory above it.
///
/// # Errors
/// The list cannot be read, or the path is not absolute.
pub fn mount_of(reader: &dyn Reader, path: &str) -> Result<Mount, String> {
    let path = reader.canonical(path)?;
    let list = reader.read("/proc/self/mountinfo")?;
    // `max_by_key` returns the last of equal elements: that mount hides the others.
    let holds =
        |m: &Mount| m.point == "/" || path.strip_prefix(&m.point).is_some_and(|r| r.is_empty() || r.starts_with('/'));
    let all = list.lines().filter_map(parse).filter(holds);
    all.max_by_key(|m| m.point.len())
        .filter(|_| path.starts_with('/'))
        .ok_or_else(|| "not on any mounted file system".into())
}

/// All mounts.
///
/// # Errors
/// The list cannot be read.
pub fn mounts(reader: &dyn Reader) -> Result<Vec<Mount>, String> {
    Ok(reader.read("/proc/self/mountinfo")?.lines().filter_map(parse).collect())
}

/// The maximum number of file systems listed.
const MOUNTS_MAX: usize = 16;

/// Records the file systems that programs write to: on disks, and on Android their views for apps. System mounts (images of
/// apps and of updates) are omitted.
pub(crate) fn facts(sheet: &mut Sheet<'_>) {
    let all = match mounts(sheet.reader) {
        Ok(all) => all,
        Err(why) => return sheet.put("mount", Validity::Boot, "", "/proc/self/mountinfo", Err(why)),
    };
    let of_system = [
        "/apex",
        "/linkerconfig",
        "/system",
        "/vendor",
        "/product",
        "/odm",
        "/metadata",
        "/mnt/vendor",
        "/snap",
        "/boot",
    ];
    let below = |point: &str, directory: &str| {
        point.strip_prefix(directory).is_some_and(|r| r.is_empty() || r.starts_with('/'))
    };
    let wanted = |m: &&Mount| {
        let stands_before = ["fuse", "sdcardfs", "esdfs"].contains(&m.kind.as_str()) && below(&m.point, "/storage");
        let on_disk = m.source.starts_with("/dev/") && m.kind != "squashfs" && m.kind != "erofs";
        (stands_before || on_disk) && !of_system.iter().any(|directory| below(&m.point, directory))
    };
    let mut seen = std::collections::BTreeSet::new();
    // The last mount at a point hides the others.
    for mount in all.iter().rev().filter(wanted).filter(|m| seen.insert(m.point.clone())).take(MOUNTS_MAX) {
        let text = format!("{} on {} ({})", mount.kind, mount.source, mount.options);
        sheet.put(&format!("mount.{}", mount.point), Validity::Boot, "", "/proc/self/mountinfo", Ok(text));
    }
}

/// A file's file system and inode, as used in the kernel. For a btrfs file, stat returns the number of its subvolume, which
/// is used nowhere else.
///
/// # Errors
/// There is no such file.
pub fn identity(reader: &dyn Reader, path: &str) -> Result<(Dev, u64), String> {
    let (dev, ino) = reader.identity(path)?;
    let mount = mount_of(reader, path).ok().filter(|m| m.kind == "btrfs");
    Ok((mount.map_or(dev, |m| m.dev), ino))
}

/// One line of mountinfo (proc(5)): id, parent, device, root, mount point, options, optional fields, `-`, type, source,
/// options of the file system.
fn parse(line: &str) -> Option<Mount> {
    let (mount, system) = line.split_once(" - ")?;
    let mount: Vec<&str> = mount.split(' ').collect();
    let mut system = system.splitn(3, ' ');
    let kind = system.next()?.to_owned();
    let source = unescape(system.next()?);
    let mut options: Vec<&str> = mount.get(5)?.split(',').collect();
    for option in system.next().unwrap_or_default().split(',').filter(|o| !o.is_empty()) {
        if !options.contains(&option) {
            options.push(option);
        }
    }
    let (dev, point) = (parse_dev(mount.get(2)?)?, unescape(mount.get(4)?));
    Some(Mount { dev, point, kind, source, options: options.join(",") })
}

/// Decodes the kernel's `\040` (octal) for spaces, tabs, line ends and backslashes.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let octal = |d: &[u8]| {
            d.iter().try_fold(0u8, |n, b| n.checked_mul(8)?.checked_add(b.checked_sub(b'0').filter(|d| *d < 8)?))
        };
        match (first, tail.get(..3).and_then(octal)) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                rest = &tail[3..];
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mountinfo_line_is_parsed_with_optional_fields() {
        let line = r"36 35 98:0 /mnt1 /mnt/my\040disk rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!((mount.dev, mount.point.as_str()), (Dev::new(98, 0), "/mnt/my disk"));
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("ext3", "/dev/root"));
        assert_eq!(mount.options, "rw,noatime,errors=continue");
    }

    #[test]
    fn invalid_escapes_stay() {
        assert_eq!(unescape(r"a\134b\04\999\777\"), r"a\b\04\999\777\");
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(line in ".{0,80}") {
            parse(&line);
            unescape(&line);
        }
    }
}
