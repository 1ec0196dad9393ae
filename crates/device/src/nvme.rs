//! The used life of an NVMe disk: its own SMART log (NVM Express base specification, log page 02h), which the kernel
//! provides to root only (linux/nvme_ioctl.h). Reads the disks of the local machine.

use crate::Reader as _;
use crate::reader::Local;
use model::{Environment, Fact};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const NVME_IOCTL_ADMIN_CMD: u64 = 0xc048_4e41;
const GET_LOG_PAGE: u8 = 0x02;
const SMART_LOG_ID: u32 = 0x02;
/// The length of the log, bytes.
const SMART_LOG_BYTES: usize = 512;
/// Of the controller rather than of one namespace.
const ALL_NAMESPACES: u32 = 0xffff_ffff;
/// The maximum number of disks.
const DISKS_MAX: usize = 16;

/// `struct nvme_passthru_cmd`.
#[repr(C)]
#[derive(Default)]
struct Passthrough {
    opcode: u8,
    flags: u8,
    rsvd1: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11_to_15: [u32; 5],
    timeout_ms: u32,
    result: u32,
}

/// Facts of each NVMe disk of this machine.
pub fn facts() -> Environment {
    let names = Local.list("/sys/block").unwrap_or_default();
    let mut facts = Environment::new();
    for name in names.iter().filter(|name| name.starts_with("nvme")).take(DISKS_MAX) {
        // `nvme0n1` is the first namespace of the controller nvme0; others (nvme0c1n1) are its paths.
        let Some(controller) = name[4..].find('n').map(|at| format!("/dev/{}", &name[..4 + at])) else { continue };
        if !controller["/dev/nvme".len()..].bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let log = read_smart_log(&controller).map_err(|error| match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => "the kernel shows it to root only".to_owned(),
            _ => error.to_string(),
        });
        let life = log.map(|log| parse_life(&log));
        for (what, value) in [
            ("life_used", life.clone().map(|l| format!("{} %", l.used))),
            (
                "spare_used",
                life.and_then(|l| l.spare.ok_or_else(|| NO_SPARE_REASON.to_owned())).map(|spare| spare.text()),
            ),
        ] {
            let fact = Fact {
                unknown: value.as_ref().err().cloned(),
                value: value.ok(),
                unit: None,
                source: format!("{controller}: SMART log"),
                varies: "run".into(),
            };
            facts.insert(format!("media.{name}.{what}"), fact);
        }
    }
    facts
}

fn read_smart_log(controller: &str) -> io::Result<[u8; SMART_LOG_BYTES]> {
    let file = File::open(controller)?;
    let mut log = [0; SMART_LOG_BYTES];
    let mut command = Passthrough {
        opcode: GET_LOG_PAGE,
        nsid: ALL_NAMESPACES,
        addr: log.as_mut_ptr() as u64,
        data_len: SMART_LOG_BYTES as u32,
        // The number of words of 4 bytes, minus one, in the upper half.
        cdw10: (SMART_LOG_BYTES as u32 / 4 - 1) << 16 | SMART_LOG_ID,
        ..Passthrough::default()
    };
    // SAFETY: the command and the log that it points to live until the call returns, and the log has the stated length.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ADMIN_CMD as _, &raw mut command) };
    match status {
        0 => Ok(log),
        -1 => Err(io::Error::last_os_error()),
        refused => Err(io::Error::other(format!("the controller refused with status {refused:#x}"))),
    }
}

/// Values in percent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Life {
    /// The vendor's estimate; more than 100 is possible.
    used: u8,
    spare: Option<Spare>,
}

/// Values in percent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Spare {
    used: u8,
    worn_out: u8,
}

impl Spare {
    fn text(&self) -> String {
        format!("{} % (worn out from {} % on)", self.used, self.worn_out)
    }
}

const NO_SPARE_REASON: &str = "the controller reports none: neither a rest nor a threshold";

fn parse_life(log: &[u8; SMART_LOG_BYTES]) -> Life {
    let left = |percent: u8| 100_u8.saturating_sub(percent);
    // Without a threshold, a rest of 0 is no wear: QEMU's controller leaves both fields empty.
    let spare = (log[3..5] != [0, 0]).then(|| Spare { used: left(log[3]), worn_out: left(log[4]) });
    Life { used: log[5], spare }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_has_the_size_that_the_kernel_expects() {
        assert_eq!(size_of::<Passthrough>() as u64, NVME_IOCTL_ADMIN_CMD >> 16 & 0x3fff);
    }

    #[test]
    fn life_is_read_from_the_log() {
        let mut log = [0; SMART_LOG_BYTES];
        // A warning, the temperature, spare, its threshold, used.
        log[..6].copy_from_slice(&[0, 0x2b, 0x01, 97, 10, 3]);
        assert_eq!(parse_life(&log), Life { used: 3, spare: Some(Spare { used: 3, worn_out: 90 }) });
        log[3..6].copy_from_slice(&[255, 255, 255]);
        assert_eq!(parse_life(&log), Life { used: 255, spare: Some(Spare { used: 0, worn_out: 0 }) });
        log[3..6].copy_from_slice(&[0, 10, 3]);
        assert_eq!(parse_life(&log), Life { used: 3, spare: Some(Spare { used: 100, worn_out: 90 }) });
        log[3..6].copy_from_slice(&[0, 0, 0]);
        assert_eq!(parse_life(&log), Life { used: 0, spare: None });
    }
}
