//! The media of a device's disks: eMMC, UFS, an SD card, NVMe, and their remaining life, where the kernel reports it.

use crate::Reader;
use crate::facts::{Sheet, Validity};

/// The maximum number of disks.
const DISKS_MAX: usize = 16;

/// Records every disk that is hardware, or virtual hardware.
pub(crate) fn facts(sheet: &mut Sheet<'_>) {
    let names = match sheet.reader.list("/sys/block") {
        Ok(names) => names,
        Err(why) => return sheet.put("media", Validity::Device, "", "/sys/block", Err(why)),
    };
    // The kernel lists eMMC boot partitions as disks.
    let hardware = |n: &&String| kind_of(n).is_some() && !n.contains("boot") && !n.contains("rpmb");
    for name in names.iter().filter(hardware).take(DISKS_MAX) {
        put_disk(sheet, name);
    }
}

/// The kind, from the driver's naming scheme; UFS disks have SCSI names.
fn kind_of(name: &str) -> Option<&'static str> {
    let kinds = [("mmcblk", "MMC"), ("sd", "SCSI"), ("nvme", "NVMe"), ("vd", "virtio"), ("xvd", "Xen")];
    kinds.into_iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, kind)| kind)
}

fn put_disk(sheet: &mut Sheet<'_>, disk: &str) {
    use Validity::{Device, Run};
    let directory = format!("/sys/block/{disk}");
    let name = |what: &str| format!("media.{disk}.{what}");
    let size = sheet.reader.read(&format!("{directory}/size")).ok().and_then(|t| t.trim().parse::<u64>().ok());
    if size == Some(0) {
        return;
    }
    let bytes = size.and_then(|sectors| sectors.checked_mul(512)).map(|bytes| bytes.to_string());
    sheet.put(
        &name("size"),
        Device,
        "B",
        &format!("{directory}/size"),
        bytes.ok_or_else(|| "not reported by the kernel".into()),
    );
    let ufs = ufs_controller(sheet.reader, &directory);
    let kind = match (kind_of(disk), &ufs) {
        (Some("MMC"), _) => sheet.reader.read(&format!("{directory}/device/type")).map(|t| match t.trim() {
            "MMC" => "eMMC".to_owned(),
            other => other.to_owned(),
        }),
        (Some("SCSI"), Some(_)) => Ok("UFS".into()),
        (Some(kind), _) => Ok(kind.to_owned()),
        (None, _) => return,
    };
    sheet.put(&name("kind"), Device, "", &format!("{directory}/device"), kind.clone());
    let model = ["device/model", "device/name"].map(|f| format!("{directory}/{f}"));
    let source = model.iter().find(|p| sheet.reader.read(p).is_ok()).unwrap_or(&model[0]).clone();
    sheet.file(&name("model"), Device, "", &source);
    match (kind.as_deref(), ufs) {
        (Ok("eMMC"), _) => {
            let source = format!("{directory}/device/life_time");
            sheet.part(&name("life_used"), Run, "", &source, |text| {
                let mut words = text.split_whitespace().map(tenths);
                Some(format!("type A {}, type B {}", words.next()??, words.next()??))
            });
            sheet.part(&name("spare_used"), Run, "", &format!("{directory}/device/pre_eol_info"), reserve);
        }
        (Ok("UFS"), Some(controller)) => {
            let at = |file: &str| format!("{controller}/health_descriptor/{file}");
            let life = |file: &str| {
                sheet.reader.read(&at(file)).and_then(|t| tenths(&t).ok_or_else(|| "not in that file".into()))
            };
            let answer = life("life_time_estimation_a")
                .and_then(|a| Ok(format!("type A {a}, type B {}", life("life_time_estimation_b")?)));
            sheet.put(&name("life_used"), Run, "", &at("life_time_estimation_a"), answer);
            sheet.part(&name("spare_used"), Run, "", &at("eol_info"), reserve);
        }
        // NVMe disks are queried directly (nvme.rs).
        _ => {}
    }
}

/// The directory of the UFS controller of a disk: it has a health descriptor (Linux 4.16, ufs-sysfs.c).
fn ufs_controller(reader: &dyn Reader, directory: &str) -> Option<String> {
    let path = reader.canonical(directory).ok()?;
    let (controller, _) = path.split_once("/host")?;
    let names = reader.list(controller).unwrap_or_default();
    let is = names.iter().any(|n| n == "health_descriptor")
        || controller.rsplit('/').next().is_some_and(|n| n.contains("ufs"));
    is.then(|| controller.to_owned())
}

/// JEDEC's life time estimation (eMMC 5.0, UFS 2.0): used life in steps of ten percent.
fn tenths(text: &str) -> Option<String> {
    match number(text)? {
        0 => Some("not defined".into()),
        n @ 1..=10 => Some(format!("{}-{} %", (n - 1) * 10, n * 10)),
        11 => Some("exceeded".into()),
        _ => None,
    }
}

/// JEDEC's state of the reserved blocks.
fn reserve(text: &str) -> Option<String> {
    match number(text)? {
        0 => Some("not defined".into()),
        1 => Some("normal".into()),
        2 => Some("warning: 80 %".into()),
        3 => Some("urgent: 90 %".into()),
        _ => None,
    }
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn life_time_is_reported_in_tenths() {
        let of = |text: &str| tenths(text);
        assert_eq!((of("0x01").as_deref(), of("0x0a").as_deref()), (Some("0-10 %"), Some("90-100 %")));
        assert_eq!((of("0x0b").as_deref(), of("0x00").as_deref()), (Some("exceeded"), Some("not defined")));
        assert_eq!((of("0x0c"), of("x"), of("")), (None, None, None));
        assert_eq!((reserve("0x01").as_deref(), reserve("0x9")), (Some("normal"), None));
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(text in "(0x)?[0-9a-fA-F]{0,20}.{0,4}") {
            tenths(&text);
            reserve(&text);
        }
    }
}
