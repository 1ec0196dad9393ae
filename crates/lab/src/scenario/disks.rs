//! A scenario with only disks, for `fathom lab shell --disk`: ext4 is on the first, and nothing runs.

use super::{Error, Scenario};

/// The default size of a disk.
const DISK_SIZE_DEFAULT: &str = "256M";

impl Scenario {
    /// Creates a scenario of disks, each `BUS` or `BUS:SIZE`.
    ///
    /// # Errors
    /// Describes what is wrong, and where.
    pub fn from_disks(disks: &[String], settings: &[String]) -> Result<Self, Error> {
        let mut text = "about = \"a shell\"\n".to_string();
        for (i, disk) in disks.iter().enumerate() {
            let (bus, size) = disk.split_once(':').unwrap_or((disk, DISK_SIZE_DEFAULT));
            text += &format!("[disk.disk{i}]\nbus = {bus:?}\nsize = {size:?}\n");
        }
        text += "[filesystem]\ntype = \"ext4\"\ndisk = \"disk0\"\n[workload]\ncommands = [\"true\"]\n";
        Self::parse("--disk", &text, settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Bus, Bytes};

    #[test]
    fn list_of_disks_becomes_a_scenario() {
        let scenario = Scenario::from_disks(&["nvme:1G".into(), "sd".into()], &[]).unwrap();
        assert_eq!(scenario.disk["disk0"].size, Bytes(1 << 30));
        assert_eq!(scenario.disk["disk1"].bus, Bus::Sd);
        let wrong = Scenario::from_disks(&["usb\"\nx".into()], &[]).unwrap_err().to_string();
        assert!(wrong.contains("unknown variant"), "{wrong}");
    }
}
