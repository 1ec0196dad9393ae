//! Names for NVMe's commands and responses, by the NVM Command Set and Base specifications.
//!
//! *Uncertainty*: Dataset Management (a discard) names its blocks in data that is not recorded.

use model::event::nvme_code;
use std::borrow::Cow;

/// Names of commands of an I/O queue, by operation code.
const IO_COMMAND_NAMES: [(u16, &str); 14] = [
    (0x00, "Flush"),
    (0x01, "Write"),
    (0x02, "Read"),
    (0x04, "Write Uncorrectable"),
    (0x05, "Compare"),
    (0x08, "Write Zeroes"),
    (0x09, "Dataset Management"),
    (0x0c, "Verify"),
    (0x0d, "Reservation Register"),
    (0x0e, "Reservation Report"),
    (0x19, "Copy"),
    (0x79, "Zone Management Send"),
    (0x7a, "Zone Management Receive"),
    (0x7d, "Zone Append"),
];

/// Names of commands of the admin queue.
const ADMIN_COMMAND_NAMES: [(u16, &str); 15] = [
    (0x00, "Delete I/O Submission Queue"),
    (0x01, "Create I/O Submission Queue"),
    (0x02, "Get Log Page"),
    (0x04, "Delete I/O Completion Queue"),
    (0x05, "Create I/O Completion Queue"),
    (0x06, "Identify"),
    (0x08, "Abort"),
    (0x09, "Set Features"),
    (0x0a, "Get Features"),
    (0x0c, "Asynchronous Event Request"),
    (0x10, "Firmware Commit"),
    (0x11, "Firmware Image Download"),
    (0x14, "Device Self-test"),
    (0x18, "Keep Alive"),
    (0x80, "Format NVM"),
];

/// Size of a range of Dataset Management, in bytes.
const DSM_RANGE_BYTES: u64 = 16;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub name: Cow<'static, str>,
    /// First block, if it names one.
    pub lba: Option<u64>,
    pub blocks: Option<u64>,
    /// Bytes of data that it moves.
    pub bytes: u64,
}

impl Command {
    /// Decodes a command from its operation code, queue and dwords 10 to 13; `bytes` is the size of its request.
    pub(super) fn decode(code: u16, queue: u16, raw: &[u8; 16], bytes: u64) -> Self {
        let names = if queue == 0 { &ADMIN_COMMAND_NAMES[..] } else { &IO_COMMAND_NAMES[..] };
        let known = names.iter().find(|(own, _)| *own == code);
        let name = match known {
            Some((_, name)) => Cow::Borrowed(*name),
            None if code == nvme_code::UNKNOWN => Cow::Borrowed("unknown command"),
            None => format!("{code:#04x}").into(),
        };
        let number = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let blocks = || (u64::from(number(4)) << 32 | u64::from(number(0)), u64::from(number(8) & 0xffff) + 1);
        let (range, bytes) = match (queue, code) {
            (0, _) => (None, bytes),
            (_, 0x01 | 0x02 | 0x05 | 0x7d) => (Some(blocks()), bytes),
            (_, 0x04 | 0x08 | 0x0c) => (Some(blocks()), 0),
            (_, 0x09) => (None, (u64::from(number(0) & 0xff) + 1) * DSM_RANGE_BYTES),
            (_, 0x00) => (None, 0),
            _ => (None, bytes),
        };
        let (lba, blocks) = range.unzip();
        Self { name, lba, blocks, bytes }
    }
}

/// Statuses that disks return, by status code type << 8 | status code.
const STATUS_NAMES: [(u32, &str); 21] = [
    (0x001, "Invalid Command Opcode"),
    (0x002, "Invalid Field in Command"),
    (0x004, "Data Transfer Error"),
    (0x005, "Aborted due to Power Loss"),
    (0x006, "Internal Error"),
    (0x007, "Command Abort Requested"),
    (0x008, "Aborted due to SQ Deletion"),
    (0x00b, "Invalid Namespace or Format"),
    (0x020, "Namespace is Write Protected"),
    (0x080, "LBA Out of Range"),
    (0x081, "Capacity Exceeded"),
    (0x082, "Namespace Not Ready"),
    (0x083, "Reservation Conflict"),
    (0x280, "Write Fault"),
    (0x281, "Unrecovered Read Error"),
    (0x282, "End-to-end Guard Check Error"),
    (0x285, "Compare Failure"),
    (0x286, "Access Denied"),
    (0x287, "Deallocated or Unwritten Logical Block"),
    (0x370, "Host Pathing Error"),
    (0x371, "Command Aborted By Host"),
];

/// Returns the text of a status other than success.
pub(super) fn error_text(result: u32) -> Option<String> {
    let status = result & 0x7ff;
    let name = STATUS_NAMES.iter().find(|(own, _)| *own == status).map_or("status", |(_, name)| name);
    (status != 0).then(|| format!("{name} ({:x}/{:02x})", status >> 8, status & 0xff))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(dwords: [u32; 4]) -> [u8; 16] {
        let mut raw = [0; 16];
        dwords.iter().enumerate().for_each(|(i, word)| raw[i * 4..][..4].copy_from_slice(&word.to_le_bytes()));
        raw
    }

    #[test]
    fn commands_name_their_blocks_and_data() {
        for (code, queue, dwords, name, range, bytes) in [
            (1, 1, [2048, 1, 7, 0], "Write", Some(((1 << 32) + 2048, 8)), 4096),
            (2, 3, [8, 0, 0x4000_0000, 0], "Read", Some((8, 1)), 4096),
            (0, 1, [0; 4], "Flush", None, 0),
            (8, 1, [16, 0, 0xffff, 0], "Write Zeroes", Some((16, 65_536)), 0),
            (9, 1, [1, 4, 0, 0], "Dataset Management", None, 32),
            (6, 0, [1, 0, 0, 0], "Identify", None, 4096),
            (0xc1, 1, [0; 4], "0xc1", None, 4096),
            (0xff, 1, [0; 4], "0xff", None, 4096),
            (nvme_code::UNKNOWN, 1, [0; 4], "unknown command", None, 4096),
        ] {
            let (lba, blocks) = range.unzip();
            assert_eq!(
                Command::decode(code, queue, &raw(dwords), 4096),
                Command { name: name.into(), lba, blocks, bytes }
            );
        }
    }

    #[test]
    fn a_status_is_decoded_to_text() {
        // 0x4000: do not retry.
        assert_eq!(error_text(0x4281).as_deref(), Some("Unrecovered Read Error (2/81)"));
        assert_eq!(error_text(0x1ff).as_deref(), Some("status (1/ff)"));
        assert_eq!(error_text(0x4000), None);
    }

    #[test]
    fn operation_codes_are_in_order() {
        assert!(
            [&IO_COMMAND_NAMES[..], &ADMIN_COMMAND_NAMES[..]].iter().all(|names| names.is_sorted_by(|a, b| a.0 < b.0))
        );
    }
}
