//! The directories of an Android device in which its storage can be measured, each with the storage below it: internal flash,
//! shared storage, which is the same flash behind FUSE, and each card or stick, of which there may be several.
//!
//! vold mounts a volume at /mnt/media_rw/NAME, NAME being the file system's serial number, and a FUSE view for apps at
//! /storage/NAME (system/vold, PublicVolume.cpp). A shell cannot write to a card that is adopted as internal storage
//! (/mnt/expand). Whether a shell may write to /storage/NAME depends on the device; this is not checked here.

use crate::disks::Disks;
use crate::facts::{Sheet, Validity};
use crate::mounts::{Mount, mounts};

/// The directory of the shell user.
const INTERNAL_PATH: &str = "/data/local/tmp";
/// Where volumes are mounted for apps, and by vold.
const APP_VOLUMES_PATH: &str = "/storage/";
const VOLD_VOLUMES_PATH: &str = "/mnt/media_rw/";
/// The maximum number of volumes.
const VOLUMES_MAX: usize = 16;

pub(crate) fn facts(sheet: &mut Sheet<'_>) {
    const MOUNTINFO_PATH: &str = "/proc/self/mountinfo";
    let all = match mounts(sheet.reader) {
        Ok(all) => all,
        Err(why) => return sheet.put("folder", Validity::Boot, "", MOUNTINFO_PATH, Err(why)),
    };
    let disks = Disks::read(sheet.reader).unwrap_or_default();
    for (name, text) in directories(sheet, &all, &disks) {
        sheet.put(&format!("folder.{name}"), Validity::Boot, "", MOUNTINFO_PATH, Ok(text));
    }
}

fn directories(sheet: &Sheet<'_>, all: &[Mount], disks: &Disks) -> Vec<(String, String)> {
    // The last mount at a point hides the others.
    let at = |point: &str| all.iter().rev().find(|m| m.point == point);
    let mut found = Vec::new();
    if let Some(data) = at("/data") {
        found.push(("internal".into(), format!("{INTERNAL_PATH}: internal, {}", describe_storage(sheet, data, disks))));
    }
    if let Some(shared) = at("/storage/emulated").or_else(|| at("/storage/emulated/0")) {
        found.push(("shared".into(), format!("/sdcard: shared, {} before the internal storage", shared.kind)));
    }
    let name = |m: &Mount| -> Option<String> {
        let rest = m.point.strip_prefix(APP_VOLUMES_PATH).or_else(|| m.point.strip_prefix(VOLD_VOLUMES_PATH))?;
        (!rest.is_empty() && !rest.contains('/') && !["emulated", "self"].contains(&rest)).then(|| rest.to_owned())
    };
    let mut volumes: Vec<String> = all.iter().filter_map(name).collect();
    volumes.sort();
    volumes.dedup();
    for volume in volumes.into_iter().take(VOLUMES_MAX) {
        let (apps, vold) = (at(&format!("{APP_VOLUMES_PATH}{volume}")), at(&format!("{VOLD_VOLUMES_PATH}{volume}")));
        let on = vold.or(apps).map(|mount| describe_storage(sheet, mount, disks)).unwrap_or_default();
        let before = apps.filter(|_| vold.is_some()).map(|m| format!(", behind {}", m.kind));
        found.push((
            volume.clone(),
            format!("{APP_VOLUMES_PATH}{volume}: removable, {on}{}", before.unwrap_or_default()),
        ));
    }
    found
}

/// File system, and disk with its kind, as far as the kernel reports them.
fn describe_storage(sheet: &Sheet<'_>, mount: &Mount, disks: &Disks) -> String {
    let disk = disks.whole(mount.dev).or_else(|| disks.by_name(&mount.source));
    let Some(disk) = disk else { return mount.kind.clone() };
    let kind = match disk.name.as_str() {
        name if name.starts_with("mmcblk") => {
            let kind = sheet.reader.read(&format!("/sys/block/{name}/device/type")).unwrap_or_default();
            if kind.trim() == "SD" { " (SD card)" } else { "" }
        }
        // The kernel reports USB sticks as removable, and UFS as not removable.
        name if name.starts_with("sd") => {
            let removable = sheet.reader.read(&format!("/sys/block/{name}/removable"));
            if removable.is_ok_and(|text| text.trim() == "1") { " (USB)" } else { "" }
        }
        _ => "",
    };
    format!("{} on {}{kind}", mount.kind, disk.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fixture;

    #[test]
    fn two_cards_are_distinguished_by_volume_and_disk() {
        let directory = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(
            "proc/self/mountinfo",
            "1 0 254:3 / /data rw - f2fs /dev/block/dm-3 rw\n\
             2 0 0:40 / /storage/emulated rw - fuse /dev/fuse rw\n\
             3 0 179:65 / /mnt/media_rw/3234-3432 rw - vfat /dev/block/vold/public:179,65 rw\n\
             4 0 0:41 / /storage/3234-3432 rw - fuse /dev/fuse rw\n\
             5 0 179:97 / /mnt/media_rw/A1B2-C3D4 rw - exfat /dev/block/vold/public:179,97 rw\n\
             6 0 0:42 / /storage/A1B2-C3D4 rw - fuse /dev/fuse rw\n\
             7 0 8:1 / /mnt/media_rw/USB1 rw - vfat /dev/block/vold/public:8,1 rw\n\
             8 0 0:43 / /storage/self rw - tmpfs tmpfs rw\n",
        );
        for (disk, dev, part, number) in
            [("mmcblk1", "179:64", "mmcblk1p1", "179:65"), ("mmcblk2", "179:96", "mmcblk2p1", "179:97")]
        {
            put(&format!("sys/block/{disk}/dev"), dev);
            put(&format!("sys/block/{disk}/device/type"), "SD\n");
            put(&format!("sys/block/{disk}/{part}/partition"), "1");
            put(&format!("sys/block/{disk}/{part}/dev"), number);
        }
        put("sys/block/sda/dev", "8:0");
        put("sys/block/sda/removable", "1\n");
        put("sys/block/sda/sda1/partition", "1");
        put("sys/block/sda/sda1/dev", "8:1");
        let fixture = Fixture::new(directory.path());
        let mut sheet = Sheet::new(&fixture);
        facts(&mut sheet);
        let all: Vec<String> =
            sheet.facts.iter().map(|(name, fact)| format!("{name} = {}", fact.value.as_deref().unwrap())).collect();
        assert_eq!(
            all,
            [
                "folder.3234-3432 = /storage/3234-3432: removable, vfat on mmcblk1 (SD card), behind fuse",
                "folder.A1B2-C3D4 = /storage/A1B2-C3D4: removable, exfat on mmcblk2 (SD card), behind fuse",
                "folder.USB1 = /storage/USB1: removable, vfat on sda (USB)",
                "folder.internal = /data/local/tmp: internal, f2fs",
                "folder.shared = /sdcard: shared, fuse before the internal storage",
            ]
        );
    }
}
