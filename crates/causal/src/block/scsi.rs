//! Names for SCSI's commands and responses: the command block by SPC and SBC, the result by the kernel's
//! `include/scsi/scsi_status.h`, the sense data by SPC.
//!
//! *Uncertainty*: of a command block of more than 16 bytes (`variable length`) only the operation code is read, and UNMAP
//! names its blocks in data that is not recorded.

use model::scsi::HOST_STATUS;
use std::borrow::Cow;

/// Names of the commands that disks receive, by operation code.
const COMMAND_NAMES: [(u8, &str); 47] = [
    (0x00, "TEST UNIT READY"),
    (0x03, "REQUEST SENSE"),
    (0x04, "FORMAT UNIT"),
    (0x08, "READ(6)"),
    (0x0a, "WRITE(6)"),
    (0x12, "INQUIRY"),
    (0x15, "MODE SELECT(6)"),
    (0x1a, "MODE SENSE(6)"),
    (0x1b, "START STOP UNIT"),
    (0x1d, "SEND DIAGNOSTIC"),
    (0x1e, "PREVENT ALLOW MEDIUM REMOVAL"),
    (0x25, "READ CAPACITY(10)"),
    (0x28, "READ(10)"),
    (0x2a, "WRITE(10)"),
    (0x2e, "WRITE AND VERIFY(10)"),
    (0x2f, "VERIFY(10)"),
    (0x34, "PRE-FETCH(10)"),
    (0x35, "SYNCHRONIZE CACHE(10)"),
    (0x3b, "WRITE BUFFER"),
    (0x3c, "READ BUFFER"),
    (0x41, "WRITE SAME(10)"),
    (0x42, "UNMAP"),
    (0x48, "SANITIZE"),
    (0x4a, "GET EVENT STATUS NOTIFICATION"),
    (0x4d, "LOG SENSE"),
    (0x55, "MODE SELECT(10)"),
    (0x5a, "MODE SENSE(10)"),
    (0x5e, "PERSISTENT RESERVE IN"),
    (0x5f, "PERSISTENT RESERVE OUT"),
    (0x7f, "variable length"),
    (0x85, "ATA PASS-THROUGH(16)"),
    (0x88, "READ(16)"),
    (0x89, "COMPARE AND WRITE"),
    (0x8a, "WRITE(16)"),
    (0x8f, "VERIFY(16)"),
    (0x91, "SYNCHRONIZE CACHE(16)"),
    (0x93, "WRITE SAME(16)"),
    (0x94, "ZBC OUT"),
    (0x95, "ZBC IN"),
    (0x9e, "SERVICE ACTION IN(16)"),
    (0xa0, "REPORT LUNS"),
    (0xa1, "ATA PASS-THROUGH(12)"),
    (0xa3, "MAINTENANCE IN"),
    (0xa4, "MAINTENANCE OUT"),
    (0xa8, "READ(12)"),
    (0xaa, "WRITE(12)"),
    (0xaf, "VERIFY(12)"),
];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandBlock {
    pub name: Cow<'static, str>,
    /// First block, if it names one.
    pub lba: Option<u64>,
    pub blocks: Option<u64>,
}

impl CommandBlock {
    /// Decodes the first bytes of a block of `size` bytes.
    pub(super) fn decode(raw: &[u8; 16], size: u16) -> Self {
        let code = raw[0];
        let known = COMMAND_NAMES.iter().find(|(own, _)| *own == code);
        let name = known.map_or_else(|| format!("{code:#04x}").into(), |(_, name)| Cow::Borrowed(*name));
        let (lba, blocks) = if (1..=16).contains(&size) { block_range(raw).unzip() } else { (None, None) };
        // "All blocks", for commands with an optional range.
        let all = matches!(code, 0x35 | 0x91) && (lba, blocks) == (Some(0), Some(0));
        if all { Self { name, lba: None, blocks: None } } else { Self { name, lba, blocks } }
    }
}

/// Returns the blocks that a command names, if any; their place in the block follows from its length.
fn block_range(raw: &[u8; 16]) -> Option<(u64, u64)> {
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    match raw[0] {
        0x08 | 0x0a => {
            let blocks = if raw[4] == 0 { 256 } else { raw[4].into() };
            Some((number(&raw[1..4]) & 0x1f_ffff, blocks))
        }
        0x28 | 0x2a | 0x2e | 0x2f | 0x34 | 0x35 | 0x41 => Some((number(&raw[2..6]), number(&raw[7..9]))),
        0xa8 | 0xaa | 0xaf => Some((number(&raw[2..6]), number(&raw[6..10]))),
        0x88 | 0x8a | 0x8f | 0x91 | 0x93 => Some((number(&raw[2..10]), number(&raw[10..14]))),
        0x89 => Some((number(&raw[2..10]), raw[13].into())),
        _ => None,
    }
}

const SENSE_KEYS: [&str; 16] = [
    "NO SENSE",
    "RECOVERED ERROR",
    "NOT READY",
    "MEDIUM ERROR",
    "HARDWARE ERROR",
    "ILLEGAL REQUEST",
    "UNIT ATTENTION",
    "DATA PROTECT",
    "BLANK CHECK",
    "VENDOR SPECIFIC",
    "COPY ABORTED",
    "ABORTED COMMAND",
    "EQUAL",
    "VOLUME OVERFLOW",
    "MISCOMPARE",
    "COMPLETED",
];

/// Returns the text of a result other than success.
pub(super) fn error_text(result: u32, sense: [u8; 4]) -> Option<String> {
    let (host, status) = (result >> 16 & 0xff, result & 0xff);
    let mut parts = Vec::new();
    if host != 0 {
        let name = HOST_STATUS.get(host as usize);
        parts.push(name.map_or_else(|| format!("host byte {host:#04x}"), |name| format!("DID_{name}")));
    }
    match status {
        0x00 | 0x04 | 0x10 | 0x14 => {}
        0x02 => parts.push(check_condition(sense)),
        0x08 => parts.push("BUSY".into()),
        0x18 => parts.push("RESERVATION CONFLICT".into()),
        0x28 => parts.push("TASK SET FULL".into()),
        0x30 => parts.push("ACA ACTIVE".into()),
        0x40 => parts.push("TASK ABORTED".into()),
        other => parts.push(format!("status {other:#04x}")),
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn check_condition([key, code, qualifier, _]: [u8; 4]) -> String {
    if [key, code, qualifier] == [0; 3] {
        return "CHECK CONDITION".into();
    }
    format!("{} ({code:02x}/{qualifier:02x})", SENSE_KEYS[usize::from(key & 0xf)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: &[u8]) -> (String, Option<(u64, u64)>) {
        let mut raw = [0; 16];
        raw[..bytes.len().min(16)].copy_from_slice(&bytes[..bytes.len().min(16)]);
        let block = CommandBlock::decode(&raw, bytes.len() as u16);
        (block.name.into_owned(), block.lba.zip(block.blocks))
    }

    #[test]
    fn command_blocks_of_each_length_name_their_blocks() {
        for (bytes, name, range) in [
            (&[0x0a, 0xe1, 2, 3, 0, 0][..], "WRITE(6)", Some((0x1_0203, 256))),
            (&[0x2a, 0, 0, 0, 8, 0, 0, 0, 8, 0], "WRITE(10)", Some((2048, 8))),
            (&[0xa8, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0], "READ(12)", Some((1 << 24, 1 << 16))),
            (&[0x88, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0], "READ(16)", Some((1 << 32, 9))),
            (&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], "SYNCHRONIZE CACHE(10)", None),
            (&[0x35, 0, 0, 0, 0, 7, 0, 0, 1, 0], "SYNCHRONIZE CACHE(10)", Some((7, 1))),
            (&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], "UNMAP", None),
            (&[0xc1, 0, 0, 0, 0, 0, 0, 0, 0, 0], "0xc1", None),
        ] {
            assert_eq!(block(bytes), (name.into(), range));
        }
        assert_eq!(block(&[0x7f; 32]), ("variable length".into(), None));
        assert_eq!(block(&[]), ("TEST UNIT READY".into(), None));
    }

    #[test]
    fn operation_codes_are_in_order() {
        assert!(COMMAND_NAMES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn results_are_decoded_to_text() {
        for (result, sense, text) in [
            (0, [0; 4], None),
            (2, [3, 0x11, 0, 0], Some("MEDIUM ERROR (11/00)")),
            (2, [0; 4], Some("CHECK CONDITION")),
            (3 << 16, [0; 4], Some("DID_TIME_OUT")),
            (0x0802_0002, [0xb, 0x47, 3, 0], Some("DID_BUS_BUSY, ABORTED COMMAND (47/03)")),
            (0x28, [0; 4], Some("TASK SET FULL")),
            (0xff_00ff, [0; 4], Some("host byte 0xff, status 0xff")),
        ] {
            assert_eq!(error_text(result, sense).as_deref(), text);
        }
    }
}
