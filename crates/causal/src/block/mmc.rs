//! Names for MMC's commands and responses, by the SD Physical Layer and JEDEC's eMMC specifications.
//!
//! A command's index alone distinguishes neither SD from eMMC nor an application command (after CMD55) from a plain one; its
//! data and argument do, where both forms exist.
//!
//! An error is one that the host detected or, failing that, one that the card reports in its status: a medium that is unreadable or
//! worn out is reported by the command itself or by a CMD13 after it.
//!
//! *Uncertainty*: a discard (CMD38) names its blocks in the commands before it. Status bits about the previous command
//! (COM_CRC_ERROR, ILLEGAL_COMMAND) are left out: that command has its error from the host.

use model::event::{DriverEnd, mmc_answer, mmc_is, mmc_part};
use std::borrow::Cow;

/// Names of commands, by index.
const COMMAND_NAMES: [(u16, &str); 33] = [
    (0, "CMD0 GO_IDLE_STATE"),
    (3, "CMD3 SET_RELATIVE_ADDR"),
    (5, "CMD5 SLEEP_AWAKE"),
    (7, "CMD7 SELECT_CARD"),
    (9, "CMD9 SEND_CSD"),
    (10, "CMD10 SEND_CID"),
    (12, "CMD12 STOP_TRANSMISSION"),
    (16, "CMD16 SET_BLOCKLEN"),
    (17, "CMD17 READ_SINGLE_BLOCK"),
    (18, "CMD18 READ_MULTIPLE_BLOCK"),
    (21, "CMD21 SEND_TUNING_BLOCK"),
    (22, "ACMD22 SEND_NUM_WR_BLOCKS"),
    (23, "CMD23 SET_BLOCK_COUNT"),
    (24, "CMD24 WRITE_BLOCK"),
    (25, "CMD25 WRITE_MULTIPLE_BLOCK"),
    (32, "CMD32 ERASE_WR_BLK_START"),
    (33, "CMD33 ERASE_WR_BLK_END"),
    (35, "CMD35 ERASE_GROUP_START"),
    (36, "CMD36 ERASE_GROUP_END"),
    (38, "CMD38 ERASE"),
    (41, "ACMD41 SD_SEND_OP_COND"),
    (44, "CMD44 QUEUED_TASK_PARAMS"),
    (45, "CMD45 QUEUED_TASK_ADDRESS"),
    (46, "CMD46 EXECUTE_READ_TASK"),
    (47, "CMD47 EXECUTE_WRITE_TASK"),
    (48, "CMD48 READ_EXTR_SINGLE"),
    (49, "CMD49 WRITE_EXTR_SINGLE"),
    (51, "ACMD51 SEND_SCR"),
    (52, "CMD52 IO_RW_DIRECT"),
    (53, "CMD53 IO_RW_EXTENDED"),
    (55, "CMD55 APP_CMD"),
    (58, "CMD58 READ_EXTR_MULTI"),
    (59, "CMD59 WRITE_EXTR_MULTI"),
];

/// Bytes of the EXT_CSD that eMMC's CMD6 writes while a disk is in use.
const EXT_CSD_NAMES: [(u32, &str); 8] = [
    (31, "BARRIER"),
    (32, "FLUSH_CACHE"),
    (33, "CACHE_CTRL"),
    (34, "POWER_OFF_NOTIFICATION"),
    (164, "BKOPS_START"),
    (165, "SANITIZE_START"),
    (179, "PARTITION_CONFIG"),
    (185, "HS_TIMING"),
];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub name: Cow<'static, str>,
    /// First sector of 512 bytes, if it names one.
    pub lba: Option<u64>,
    pub blocks: Option<u64>,
}

impl Command {
    /// Decodes a command from its index and the fields of the record.
    pub(super) fn decode(code: u16, raw: &[u8; 16]) -> Self {
        let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let [arg, sector, blocks, is] = [0, 4, 8, 12].map(word);
        let has = |bit: u32| is & bit != 0;
        let (name, moves): (Cow<'static, str>, bool) = if has(mmc_is::TASK) {
            (if has(mmc_is::WRITES) { "CQE write" } else { "CQE read" }.into(), has(mmc_is::DATA))
        } else {
            // By sector, or by byte on a card of up to 2 GB; other commands of this kind have no sector.
            let same = arg == sector || arg == sector << 9;
            (command_name(code, arg, has(mmc_is::DATA)), matches!(code, 17 | 18 | 24 | 25) && has(mmc_is::DATA) && same)
        };
        Self { name, lba: moves.then(|| sector.into()), blocks: moves.then(|| blocks.into()) }
    }
}

fn command_name(code: u16, arg: u32, data: bool) -> Cow<'static, str> {
    match (code, data) {
        (6, true) => "CMD6 SWITCH_FUNC".into(),
        (6, false) if arg >> 24 == 0 => "ACMD6 SET_BUS_WIDTH".into(),
        (6, false) => {
            let byte = arg >> 16 & 0xff;
            let known = EXT_CSD_NAMES.iter().find(|(own, _)| *own == byte);
            known.map_or_else(|| format!("CMD6 SWITCH ({byte})"), |(_, name)| format!("CMD6 SWITCH ({name})")).into()
        }
        (8, true) => "CMD8 SEND_EXT_CSD".into(),
        (8, false) => "CMD8 SEND_IF_COND".into(),
        (13, true) => "ACMD13 SD_STATUS".into(),
        (13, false) => "CMD13 SEND_STATUS".into(),
        _ => COMMAND_NAMES
            .iter()
            .find(|(own, _)| *own == code)
            .map_or_else(|| format!("CMD{code}").into(), |(_, name)| Cow::Borrowed(*name)),
    }
}

/// Errors of hosts (documented in include/linux/mmc/core.h).
const HOST_ERROR_NAMES: [(u32, &str); 5] = [
    (5, "EIO"),
    (22, "EINVAL: cannot be done"),
    (84, "EILSEQ: bad CRC or response"),
    (110, "ETIMEDOUT: no answer in time"),
    (123, "ENOMEDIUM: no card"),
];

/// Errors in the card's status (R1), named as in both specifications; only those about the command that it answers.
const CARD_STATUS_NAMES: [(u32, &str); 11] = [
    (mmc_answer::OUT_OF_RANGE, "OUT_OF_RANGE"),
    (1 << 30, "ADDRESS_ERROR"),
    (1 << 29, "BLOCK_LEN_ERROR"),
    (1 << 28, "ERASE_SEQ_ERROR"),
    (1 << 27, "ERASE_PARAM"),
    (1 << 26, "WP_VIOLATION"),
    (1 << 24, "LOCK_UNLOCK_FAILED"),
    (1 << 21, "CARD_ECC_FAILED"),
    (1 << 20, "CC_ERROR"),
    (1 << 19, "ERROR"),
    (1 << 16, "CSD_OVERWRITE"),
];

/// eMMC only, for commands without data.
const SWITCH_ERROR: u32 = 1 << 7;

/// Whether the response to a command is the card's status: true for CMD6, 7, 12, 13 and all that read, write and erase. Others return
/// registers, addresses or voltages (R2 to R7).
fn answers_with_status(code: u16) -> bool {
    matches!(code, 6 | 7 | 12 | 13 | 16..=38 | 42 | 44..=49 | 55 | 56)
}

/// Returns what went wrong with a command: the host's error with the part that failed, else what the card reports.
pub(super) fn error_text(code: u16, end: &DriverEnd) -> Option<String> {
    host_error(end.result, end.sense).or_else(|| card_error(code, end.answer))
}

fn card_error(code: u16, answer: u32) -> Option<String> {
    let switch = (matches!(code, 6 | 13)).then_some((SWITCH_ERROR, "SWITCH_ERROR"));
    let all =
        CARD_STATUS_NAMES.into_iter().chain(switch).filter(|(bit, _)| answers_with_status(code) && answer & bit != 0);
    let names: Vec<&str> = all.map(|(_, name)| name).collect();
    (!names.is_empty()).then(|| format!("card status: {}", names.join(", ")))
}

fn host_error(result: u32, part: [u8; 4]) -> Option<String> {
    let part = match u32::from_le_bytes(part) {
        mmc_part::COUNT => "block count (CMD23)",
        mmc_part::DATA => "data",
        mmc_part::STOP => "stop (CMD12)",
        _ => "command",
    };
    let number = result.wrapping_neg();
    let known = HOST_ERROR_NAMES.iter().find(|(own, _)| *own == number);
    let what = known.map_or_else(|| format!("error {}", result.cast_signed()), |(_, name)| (*name).into());
    (result != 0).then(|| format!("{part}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(words: [u32; 4]) -> [u8; 16] {
        let mut raw = [0; 16];
        words.iter().enumerate().for_each(|(i, word)| raw[i * 4..][..4].copy_from_slice(&word.to_le_bytes()));
        raw
    }

    #[test]
    fn commands_name_their_sectors() {
        let (data, write, task) = (mmc_is::DATA, mmc_is::DATA | mmc_is::WRITES, mmc_is::TASK);
        for (code, words, name, range) in [
            (25, [2048, 2048, 8, write], "CMD25 WRITE_MULTIPLE_BLOCK", Some((2048, 8))),
            (24, [2048 << 9, 2048, 1, write], "CMD24 WRITE_BLOCK", Some((2048, 1))),
            // From an ioctl: only the block driver has a sector.
            (18, [77, 0, 8, data], "CMD18 READ_MULTIPLE_BLOCK", None),
            (3, [0, 4096, 16, write | task], "CQE write", Some((4096, 16))),
            (4, [0, 4096, 16, data | task], "CQE read", Some((4096, 16))),
            (13, [0xaaaa_0000, 0, 0, 0], "CMD13 SEND_STATUS", None),
            (13, [0, 0, 1, data], "ACMD13 SD_STATUS", None),
            (6, [0x0320_0101, 0, 0, 0], "CMD6 SWITCH (FLUSH_CACHE)", None),
            (6, [0x03ff_0101, 0, 0, 0], "CMD6 SWITCH (255)", None),
            (6, [2, 0, 0, 0], "ACMD6 SET_BUS_WIDTH", None),
            (6, [0x80ff_fff1, 0, 1, data], "CMD6 SWITCH_FUNC", None),
            (61, [0; 4], "CMD61", None),
        ] {
            let (lba, blocks) = range.unzip();
            assert_eq!(Command::decode(code, &raw(words)), Command { name: name.into(), lba, blocks });
        }
    }

    #[test]
    fn errors_name_failed_part() {
        let of = |errno: i32, part: u32| host_error((-errno).cast_unsigned(), part.to_le_bytes());
        assert_eq!(of(0, 0), None);
        assert_eq!(of(110, mmc_part::COMMAND).as_deref(), Some("command: ETIMEDOUT: no answer in time"));
        assert_eq!(of(84, mmc_part::DATA).as_deref(), Some("data: EILSEQ: bad CRC or response"));
        assert_eq!(of(71, mmc_part::STOP).as_deref(), Some("stop (CMD12): error -71"));
    }

    #[test]
    fn the_card_status_is_an_error_of_its_own_command() {
        // Ready, in state `tran`; the card did not know the previous command.
        const READY_STATUS: u32 = 1 << 8 | 4 << 9 | 1 << 22;
        let of = |code: u16, answer: u32| error_text(code, &DriverEnd { answer, ..DriverEnd::default() });
        assert_eq!(of(17, READY_STATUS), None);
        assert_eq!(of(18, READY_STATUS | 1 << 21).as_deref(), Some("card status: CARD_ECC_FAILED"));
        assert_eq!(of(13, 1 << 19 | 1 << 7).as_deref(), Some("card status: ERROR, SWITCH_ERROR"));
        assert_eq!(of(25, 1 << 7), None);
        // A register, an address, a voltage.
        for code in [2, 3, 5, 8, 9, 10, 41, 52, 60] {
            assert_eq!(of(code, u32::MAX), None, "CMD{code}");
        }
        let host = DriverEnd { result: (-110_i32).cast_unsigned(), answer: 1 << 31, ..DriverEnd::default() };
        assert_eq!(error_text(17, &host).as_deref(), Some("command: ETIMEDOUT: no answer in time"));
    }
}
