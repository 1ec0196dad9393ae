//! Facts about the storage of a path: its file system, the journal, the disk and the disks below it.
//!
//! Facts are named by role, `disk` for the disk of the path and `disk.below1`, `disk.below2`, … for those below it, so that
//! two devices with different disk names can be compared.

use crate::disks::{BlockDisk, DiskBacking, Disks};
use crate::facts::{Sheet, Validity};
use crate::mounts::mounts;
use crate::{Mount, mount_of};
use model::Dev;

/// Records everything about the storage of an absolute path.
pub(crate) fn put_for_path(sheet: &mut Sheet<'_>, path: &str) {
    const MOUNTINFO_PATH: &str = "/proc/self/mountinfo";
    let reader = sheet.reader;
    let mount = match mount_of(reader, path) {
        Ok(mount) => mount,
        Err(why) => return sheet.put("fs.type", Validity::Device, "", MOUNTINFO_PATH, Err(why)),
    };
    sheet.put("fs.type", Validity::Device, "", MOUNTINFO_PATH, Ok(mount.kind.clone()));
    sheet.put("fs.options", Validity::Boot, "", MOUNTINFO_PATH, Ok(mount.options.clone()));
    let nothing =
        |why: String, sheet: &mut Sheet<'_>| sheet.put("disk.name", Validity::Boot, "", "/sys/block", Err(why));
    let disks = match Disks::read(reader) {
        Ok(disks) => disks,
        Err(why) => return nothing(why, sheet),
    };
    let Some(top) = disks.of_path(reader, path) else {
        return nothing(format!("{} is not on a disk that the kernel lists", mount.source), sheet);
    };
    file_system(sheet, &mount, top);
    for (depth, one) in disks.stack(reader, top).into_iter().enumerate() {
        let role = if depth == 0 { "disk".to_owned() } else { format!("disk.below{depth}") };
        disk(sheet, &role, one, &disks);
    }
}

/// Records everything about the storage of a file system, wherever it is mounted. That of a container may not be mounted here.
pub(crate) fn put_for_file_system(sheet: &mut Sheet<'_>, file_system: Dev) {
    let reader = sheet.reader;
    let mounted = mounts(reader).unwrap_or_default().into_iter().filter(|m| m.dev == file_system);
    // Another file system may be mounted over it.
    let mut seen = mounted.filter(|m| mount_of(reader, &m.point).is_ok_and(|top| top.dev == file_system));
    if let Some(mount) = seen.next() {
        return put_for_path(sheet, &mount.point);
    }
    let disks = Disks::read(reader).unwrap_or_default();
    let why = || Err(format!("the file system {file_system} is not mounted here"));
    sheet.put("fs.type", Validity::Device, "", "/proc/self/mountinfo", why());
    if let Some(top) = disks.whole(file_system) {
        for (depth, one) in disks.stack(reader, top).into_iter().enumerate() {
            let role = if depth == 0 { "disk".to_owned() } else { format!("disk.below{depth}") };
            disk(sheet, &role, one, &disks);
        }
    }
}

/// Facts specific to ext4 and its journal. Their directories are named after the disk or partition, the journal's also after its inode (8).
fn file_system(sheet: &mut Sheet<'_>, mount: &Mount, top: &BlockDisk) {
    if mount.kind != "ext4" {
        return;
    }
    let partition = top.partitions.get(&mount.dev);
    let name = partition.unwrap_or(&top.name);
    let options = format!("/proc/fs/ext4/{name}/options");
    let option = |key: &'static str| {
        move |text: &str| text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
    };
    sheet
        .part("fs.ext4.options", Validity::Boot, "", &options, |text| Some(text.lines().collect::<Vec<_>>().join(",")));
    sheet.part("fs.ext4.commit_interval", Validity::Boot, "s", &options, option("commit"));
    // Absent on a file system without a journal.
    sheet.part("fs.ext4.data", Validity::Boot, "", &options, option("data"));
    sheet.part("fs.ext4.barrier", Validity::Boot, "", &options, |text| {
        let off = |l: &str| l == "nobarrier" || l == "barrier=0";
        Some(if text.lines().any(off) { "no" } else { "yes" }.to_owned())
    });
    let info = format!("/proc/fs/jbd2/{name}-8/info");
    // "3412 transactions (3390 requested), each up to 8192 blocks" (jbd2_seq_info_show)
    sheet.part("fs.journal.transactions", Validity::Run, "", &info, |text| number_before(text, " transactions"));
    sheet.part("fs.journal.transaction_max", Validity::Boot, "blocks", &info, |text| number_before(text, " blocks"));
    sheet.part("fs.journal.commit_mean", Validity::Run, "us", &info, |text| {
        number_before(text, "us average transaction commit time")
    });
}

/// The number immediately before a text.
fn number_before(text: &str, after: &str) -> Option<String> {
    let before = &text[..text.find(after)?];
    let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    (digits > 0).then(|| before[before.len() - digits..].to_owned())
}

fn disk(sheet: &mut Sheet<'_>, role: &str, disk: &BlockDisk, disks: &Disks) {
    use Validity::{Boot, Device, Run};
    let directory = format!("/sys/block/{}", disk.name);
    let name = |what: &str| format!("{role}.{what}");
    sheet.put(&name("name"), Boot, "", "/sys/block", Ok(disk.name.clone()));
    match &disk.below {
        DiskBacking::Nothing => {}
        DiskBacking::Disks(below) => {
            let names = below.iter().filter_map(|d| disks.whole(*d)).map(|d| d.name.as_str());
            sheet.put(
                &name("stands_on"),
                Boot,
                "",
                &format!("{directory}/slaves"),
                Ok(names.collect::<Vec<_>>().join(" ")),
            );
        }
        DiskBacking::File { path, .. } => {
            sheet.put(&name("stands_on"), Boot, "", &format!("{directory}/loop/backing_file"), Ok(path.clone()));
            sheet.file(&name("direct_io"), Boot, "", &format!("{directory}/loop/dio"));
        }
    }
    sheet.part(&name("size"), Device, "B", &format!("{directory}/size"), |text| {
        Some(text.parse::<u64>().ok()?.checked_mul(512)?.to_string())
    });
    // Virtual disks have no model; for MMC it is in `name`.
    let model = ["device/model", "device/name"].map(|f| format!("{directory}/{f}"));
    let source = model.iter().find(|p| sheet.reader.read(p).is_ok()).unwrap_or(&model[0]).clone();
    sheet.file(&name("model"), Device, "", &source);
    let firmware = ["device/firmware_rev", "device/rev", "device/fwrev"].map(|f| format!("{directory}/{f}"));
    let source = firmware.iter().find(|p| sheet.reader.read(p).is_ok()).unwrap_or(&firmware[0]).clone();
    sheet.file(&name("firmware"), Device, "", &source);
    sheet.choice(&name("scheduler"), Run, &format!("{directory}/queue/scheduler"));
    for (what, file, varies, unit) in [
        ("write_cache", "write_cache", Run, ""),
        ("fua", "fua", Boot, ""),
        ("rotational", "rotational", Device, ""),
        ("queue_depth", "nr_requests", Run, "requests"),
        ("logical_block", "logical_block_size", Device, "B"),
        ("physical_block", "physical_block_size", Device, "B"),
        ("request_max", "max_sectors_kb", Run, "KiB"),
        ("read_ahead", "read_ahead_kb", Run, "KiB"),
        ("discard_granularity", "discard_granularity", Device, "B"),
        ("no_merges", "nomerges", Run, ""),
        ("writeback_throttling", "wbt_lat_usec", Run, "us"),
        ("statistics", "iostats", Run, ""),
    ] {
        sheet.file(&name(what), varies, unit, &format!("{directory}/queue/{file}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_before_phrase_is_extracted() {
        let info = "12 transactions (3 requested), each up to 8192 blocks\naverage: \n  0ms waiting for transaction\n  \
                    531us average transaction commit time\n  4 handles per transaction\n";
        assert_eq!(number_before(info, " transactions").as_deref(), Some("12"));
        assert_eq!(number_before(info, " blocks").as_deref(), Some("8192"));
        assert_eq!(number_before(info, "us average transaction commit time").as_deref(), Some("531"));
        assert_eq!(number_before(info, " waiting"), None);
        assert_eq!(number_before(info, " absent"), None);
    }
}
