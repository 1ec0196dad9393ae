//! A disk of a scenario: its driver, its scheduler, and the device mapper's target on top.

use super::Bytes;
use crate::guest;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    pub bus: Bus,
    #[serde(default = "size")]
    pub size: Bytes,
    /// Its I/O scheduler; left out, the kernel's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Scheduler>,
    /// Parameters of the module `scsi_debug`, such as `delay=5`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
    /// A target of the device mapper on top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<Map>,
}

fn size() -> Bytes {
    Bytes(256 << 20)
}

/// A disk's driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bus {
    /// virtio-blk.
    Virtio,
    /// `sd` on virtio-scsi.
    Scsi,
    /// NVMe.
    Nvme,
    /// An SD card in an SDHCI host (sdhci-pci).
    Sd,
    /// `sd` on the module `scsi_debug`, in the guest's memory.
    ScsiDebug,
    /// A loop device, in the guest's memory.
    Loop,
}

impl Bus {
    /// The name in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::Scsi => "scsi",
            Self::Nvme => "nvme",
            Self::Sd => "sd",
            Self::ScsiDebug => "scsi_debug",
            Self::Loop => "loop",
        }
    }

    /// QEMU's disk, if it is one.
    pub fn qemu(self) -> Option<guest::Bus> {
        match self {
            Self::Virtio => Some(guest::Bus::Virtio),
            Self::Scsi => Some(guest::Bus::Scsi),
            Self::Nvme => Some(guest::Bus::Nvme),
            Self::Sd => Some(guest::Bus::Sd),
            Self::ScsiDebug | Self::Loop => None,
        }
    }
}

/// The schedulers of the block layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    None,
    MqDeadline,
    Kyber,
    Bfq,
}

impl Scheduler {
    /// The name in `queue/scheduler`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::MqDeadline => "mq-deadline",
            Self::Kyber => "kyber",
            Self::Bfq => "bfq",
        }
    }

    pub fn module(self) -> Option<&'static str> {
        match self {
            Self::None | Self::MqDeadline => None,
            Self::Kyber => Some("kyber_iosched"),
            Self::Bfq => Some("bfq"),
        }
    }
}

/// A target of the device mapper over the whole disk. It takes effect once the file system is mounted; until then it is
/// linear.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "target", rename_all = "lowercase", deny_unknown_fields)]
pub enum Map {
    /// The disk as it is, through the mapper.
    Linear,
    /// Delays each request (`dm-delay`).
    Delay {
        /// Milliseconds per read.
        #[serde(default)]
        read_ms: u32,
        /// Milliseconds per write.
        #[serde(default)]
        write_ms: u32,
        /// Milliseconds per flush.
        #[serde(default)]
        flush_ms: u32,
    },
    /// The disk works and fails in turn (`dm-flakey`).
    Flakey {
        /// Seconds for which it works.
        up_s: u32,
        /// Seconds for which it fails.
        down_s: u32,
        /// How it fails, such as `error_writes` or `drop_writes`; left out, every request is an error.
        #[serde(default)]
        features: Vec<String>,
    },
}

impl Map {
    /// Its module; linear is built into the mapper.
    pub fn module(&self) -> Option<&'static str> {
        match self {
            Self::Linear => None,
            Self::Delay { .. } => Some("dm_delay"),
            Self::Flakey { .. } => Some("dm_flakey"),
        }
    }

    /// The part of the mapper's table after start and length (Documentation/admin-guide/device-mapper/delay.rst and
    /// dm-flakey.rst).
    pub fn table(&self, below: &str) -> String {
        match self {
            Self::Linear => format!("linear {below} 0"),
            Self::Delay { read_ms, write_ms, flush_ms } => {
                format!("delay {below} 0 {read_ms} {below} 0 {write_ms} {below} 0 {flush_ms}")
            }
            Self::Flakey { up_s, down_s, features } if features.is_empty() => {
                format!("flakey {below} 0 {up_s} {down_s}")
            }
            Self::Flakey { up_s, down_s, features } => {
                let words: Vec<&str> = features.iter().flat_map(|f| f.split_whitespace()).collect();
                format!("flakey {below} 0 {up_s} {down_s} {} {}", words.len(), words.join(" "))
            }
        }
    }
}

impl Disk {
    /// Returns what is wrong, with its key.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let bytes = self.size.0;
        if !(1 << 20..=1 << 40).contains(&bytes) || !bytes.is_multiple_of(512) {
            return Err(("size", "expected 1M to 1024G, in whole sectors of 512 bytes".into()));
        }
        if self.bus == Bus::Sd && !bytes.is_power_of_two() {
            return Err(("size", "an SD card's is a power of two, such as 256M".into()));
        }
        if self.bus == Bus::ScsiDebug && !bytes.is_multiple_of(1 << 20) {
            return Err(("size", "scsi_debug's is in whole megabytes".into()));
        }
        if self.bus != Bus::ScsiDebug && !self.parameters.is_empty() {
            return Err(("parameters", "only bus scsi_debug has parameters".into()));
        }
        let word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "_=,.-".contains(c));
        if let Some(bad) = self.parameters.iter().find(|p| !word(p) || !p.contains('=')) {
            return Err(("parameters", format!("{bad:?} is not a module parameter; expected e.g. \"delay=5\"")));
        }
        match &self.map {
            Some(Map::Flakey { up_s: 0, down_s: 0, .. }) => Err(("map", "up_s and down_s are both 0".into())),
            Some(Map::Flakey { features, .. }) if !features.iter().all(|f| f.split_whitespace().all(word)) => {
                Err(("map", "a feature is a word such as \"error_writes\"".into()))
            }
            _ => Ok(()),
        }
    }
}
