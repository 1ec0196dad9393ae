//! Drivers' commands as text, as printed by the events of SCSI, MMC, NVMe and UFS (include/trace/events,
//! drivers/nvme/host/trace.h).
//!
//! *Uncertainty*: SCSI's result is printed as names; those of `enum scsi_host_status` and of the statuses of SAM are known here. NVMe's
//! commands are printed by their parts, of which those in common use by disks are known; the rest is kept without its blocks, and a
//! command whose name is not known without its operation code.

use super::fields::{parse_decimal, parse_hex, parse_signed, put, value};
use crate::ftrace::decoder::{DecodedEvent, Kind};
use model::scsi::HOST_STATUS;

const SCSI_STATUS_CODES: [(&str, u64); 9] = [
    ("GOOD", 0),
    ("CHECK_CONDITION", 2),
    ("CONDITION_MET", 4),
    ("BUSY", 8),
    ("INTERMEDIATE", 0x10),
    ("RESERVATION_CONFLICT", 0x18),
    ("TASK_SET_FULL", 0x28),
    ("ACA_ACTIVE", 0x30),
    ("TASK_ABORTED", 0x40),
];

/// Operation codes of NVMe's commands, as the kernel names them (show_nvm_opcode_name, show_admin_opcode_name of include/linux/nvme.h).
const NVME_COMMAND_CODES: [(&str, u64); 28] = [
    ("nvme_cmd_flush", 0),
    ("nvme_cmd_write", 1),
    ("nvme_cmd_read", 2),
    ("nvme_cmd_write_uncor", 4),
    ("nvme_cmd_compare", 5),
    ("nvme_cmd_write_zeroes", 8),
    ("nvme_cmd_dsm", 9),
    ("nvme_cmd_verify", 0xc),
    ("nvme_cmd_resv_register", 0xd),
    ("nvme_cmd_resv_report", 0xe),
    ("nvme_cmd_resv_acquire", 0x11),
    ("nvme_cmd_resv_release", 0x15),
    ("nvme_cmd_zone_mgmt_send", 0x79),
    ("nvme_cmd_zone_mgmt_recv", 0x7a),
    ("nvme_cmd_zone_append", 0x7d),
    ("nvme_admin_delete_sq", 0),
    ("nvme_admin_create_sq", 1),
    ("nvme_admin_get_log_page", 2),
    ("nvme_admin_delete_cq", 4),
    ("nvme_admin_create_cq", 5),
    ("nvme_admin_identify", 6),
    ("nvme_admin_abort_cmd", 8),
    ("nvme_admin_set_features", 9),
    ("nvme_admin_get_features", 0xa),
    ("nvme_admin_async_event", 0xc),
    ("nvme_admin_activate_fw", 0x10),
    ("nvme_admin_download_fw", 0x11),
    ("nvme_admin_format_nvm", 0x80),
];

/// Whether the event is a driver's command.
pub(super) fn is(kind: Kind) -> bool {
    use Kind as K;
    matches!(kind, K::ScsiStart | K::ScsiDone | K::ScsiTimeout | K::ScsiError | K::UfsCommand)
        || matches!(kind, K::MmcStart | K::MmcDone | K::NvmeSetup | K::NvmeDone)
}

/// Fills in the fields from a text; `None` if it cannot be parsed.
pub(super) fn fill(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    match seen.kind {
        Kind::MmcStart | Kind::MmcDone => fill_mmc(seen, text),
        Kind::NvmeSetup | Kind::NvmeDone => fill_nvme(seen, text),
        Kind::UfsCommand => fill_ufs(seen, text),
        _ => fill_scsi(seen, text),
    }
}

/// `host_no=2 channel=0 id=0 lun=0 … cmnd=(WRITE_10 lba=2048 … raw=2a 00 …) result=(driver=… host=DID_OK … status=SAM_STAT_GOOD)`.
fn fill_scsi(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    for name in ["host_no", "channel", "id", "lun"] {
        put(seen, name, parse_decimal(value(text, name)?)?);
    }
    if let Some(tag) = value(text, "driver_tag").and_then(parse_signed) {
        put(seen, "driver_tag", tag);
    }
    let raw = text.split_once("raw=")?.1.split_once(')')?.0;
    seen.text = raw.split_whitespace().collect();
    put(seen, "cmd_len", seen.text.len() as u64 / 2);
    if seen.kind != Kind::ScsiDone {
        return Some(());
    }
    let result = text.split_once("result=(")?.1;
    let word = |name: &str| value(result, name).map(|word| word.trim_end_matches(')'));
    // trace-cmd does not know the kernel's names for them, and writes numbers.
    let host = match word("host")? {
        number if number.starts_with("0x") => parse_hex(number)?,
        name => HOST_STATUS.iter().position(|own| name.strip_prefix("DID_") == Some(own))? as u64,
    };
    let status = match word("status")? {
        number if number.starts_with("0x") => parse_hex(number)?,
        name => SCSI_STATUS_CODES.iter().find(|(own, _)| name.strip_prefix("SAM_STAT_").unwrap_or(name) == *own)?.1,
    };
    for (name, printed) in [("sense_key", "key"), ("asc", "asc"), ("ascq", "ascq")] {
        let told = text.split_once("sense=(").and_then(|(_, sense)| value(sense, printed));
        if let Some(told) = told.and_then(|told| parse_hex(told.trim_end_matches(')'))) {
            put(seen, name, told);
        }
    }
    put(seen, "result", host << 16 | status)
}

/// `mmc0: start struct mmc_request[0000000012345678]: cmd_opcode=25 cmd_arg=0x800 … blocks=8 block_size=512 …`.
fn fill_mmc(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    let (_, rest) = text.split_once("mmc_request[")?;
    let (request, rest) = rest.split_once("]: ")?;
    put(seen, "mrq", parse_hex(request)?);
    let number = |name: &str| {
        let told = value(rest, name)?;
        if told.starts_with("0x") { parse_hex(told) } else { parse_signed(told) }
    };
    let names: &[(&str, &str)] = if seen.kind == Kind::MmcDone {
        &[("cmd_err", "cmd_err"), ("stop_err", "stop_err"), ("sbc_err", "sbc_err"), ("data_err", "data_err")]
    } else {
        &[
            ("cmd_opcode", "cmd_opcode"),
            ("cmd_arg", "cmd_arg"),
            ("blk_addr", "blk_addr"),
            ("blocks", "blocks"),
            ("blksz", "block_size"),
            ("data_flags", "data_flags"),
            ("tag", "tag"),
        ]
    };
    for (name, printed) in names {
        put(seen, name, number(printed)?);
    }
    for name in ["cmd_resp", "stop_resp"] {
        if let Some(answer) = number(name).filter(|_| seen.kind == Kind::MmcDone) {
            put(seen, name, answer);
        }
    }
    Some(())
}

/// `nvme0: disk=nvme0n1, qid=1, cmdid=57, nsid=1, flags=0x0, meta=0x0, cmd=(nvme_cmd_write slba=2048, len=7, …)`.
fn fill_nvme(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    let (controller, rest) = text.split_once(": ")?;
    put(seen, "ctrl_id", parse_decimal(controller.strip_prefix("nvme")?)?);
    let word = |name: &str| value(rest, name).map(|word| word.trim_end_matches([',', ')']));
    seen.disk = word("disk").map(Into::into);
    put(seen, "qid", parse_decimal(word("qid")?)?);
    put(seen, "cid", parse_decimal(word("cmdid")?)?);
    if seen.kind == Kind::NvmeDone {
        return put(seen, "status", parse_hex(word("status")?)?);
    }
    let command = rest.split_once("cmd=(")?.1;
    let name = command.split([' ', ')']).next()?;
    // An operation code without a name is printed as a number.
    let code = NVME_COMMAND_CODES.iter().find(|(own, _)| *own == name).map(|(_, code)| *code);
    let Some(code) = code.or_else(|| parse_hex(name.strip_prefix("0x")?)) else { return Some(()) };
    put(seen, "opcode", code);
    if name.starts_with("nvme_admin") {
        return Some(());
    }
    let part = |name: &str| {
        let told = value(command, name)?.trim_end_matches([',', ')']);
        if told.starts_with("0x") { parse_hex(told) } else { parse_decimal(told) }
    };
    if matches!(code, 1 | 2 | 8) {
        let (first, more) = (part("slba")?, part("len")?);
        let bytes = [first.to_le_bytes(), more.to_le_bytes()].concat();
        seen.text = bytes.iter().map(|b| format!("{b:02x}")).collect();
    }
    Some(())
}

/// `send_req: 1d84000.ufshc: tag: 7, DB: 0x0, size: 4096, IS: 0, LBA: 6221511, opcode: 0x28 (READ_10), group_id: 0x0, hwq_id: 1`.
fn fill_ufs(seen: &mut DecodedEvent, text: &str) -> Option<()> {
    let (what, rest) = text.split_once(": ")?;
    seen.text = what.into();
    let part = |name: &str| {
        let (_, after) = rest.split_once(name)?;
        Some(after.strip_prefix(": ")?.split([',', ' ']).next().unwrap_or_default())
    };
    put(seen, "tag", parse_decimal(part("tag")?)?);
    put(seen, "lba", parse_decimal(part("LBA")?)?);
    put(seen, "opcode", parse_hex(part("opcode")?)?);
    put(seen, "transfer_len", parse_signed(part("size")?)?);
    part("hwq_id").and_then(parse_signed).and_then(|queue| put(seen, "hwq_id", queue));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, text: &str) -> Option<(Vec<Option<u64>>, String)> {
        let mut seen = DecodedEvent::new(kind, 0, 0, 0);
        fill(&mut seen, text)?;
        Some(((0..kind.numbers().len()).map(|i| seen.number(i)).collect(), seen.text))
    }

    #[test]
    fn commands_of_each_protocol_are_read() {
        let some = |numbers: &[u64]| numbers.iter().map(|n| Some(*n)).collect::<Vec<_>>();
        for (kind, text, numbers, words) in [
            (
                Kind::ScsiStart,
                "host_no=2 channel=0 id=1 lun=0 data_sgl=1 prot_sgl=0 prot_op=SCSI_PROT_NORMAL driver_tag=5 \
                 scheduler_tag=9 cmnd=(WRITE_10 lba=2048 txlen=8 protect=0 raw=2a 00 00 00 08 00 00 00 08 00)",
                some(&[2, 0, 1, 0, 5, 10]),
                "2a000000080000000800",
            ),
            (
                Kind::MmcStart,
                "mmc0: start struct mmc_request[00000000c4b2]: cmd_opcode=25 cmd_arg=0x800 cmd_flags=0xb5 cmd_retries=0 \
                 stop_opcode=12 stop_arg=0x0 stop_flags=0x49d stop_retries=0 sbc_opcode=0 sbc_arg=0x0 sbc_flags=0x0 \
                 sbc_retires=0 blocks=8 block_size=512 blk_addr=2048 data_flags=0x100 tag=0 can_retune=1",
                some(&[0xc4b2, 25, 0x800, 2048, 8, 512, 0x100, 0]),
                "",
            ),
            (
                Kind::MmcDone,
                "mmc0: end struct mmc_request[00000000c4b2]: cmd_opcode=25 cmd_err=0 cmd_resp=0x900 0x0 0x0 0x0 \
                 cmd_retries=0 stop_opcode=12 stop_err=0 stop_resp=0x0 sbc_opcode=0 sbc_err=0 bytes_xfered=4096 \
                 data_err=-84 tag=0",
                some(&[0xc4b2, 0, 0, 0, (-84_i64).cast_unsigned(), 0x900, 0]),
                "",
            ),
            (
                Kind::NvmeSetup,
                "nvme0: disk=nvme0n1, qid=1, cmdid=57, nsid=1, flags=0x0, meta=0x0, cmd=(nvme_cmd_write slba=2048, len=7, \
                 ctrl=0x0, dsmgmt=0, reftag=0)",
                some(&[0, 1, 1, 57]),
                "00080000000000000700000000000000",
            ),
            (
                Kind::NvmeDone,
                "nvme0: disk=nvme0n1, qid=1, cmdid=57, res=0x0, retries=0, flags=0x0, status=0x281",
                some(&[0, 1, 57, 0x281]),
                "",
            ),
        ] {
            assert_eq!(read(kind, text), Some((numbers, words.into())), "{text}");
        }
    }

    #[test]
    fn an_nvme_command_without_a_known_name_has_no_code() {
        for (name, code) in [("0xff", Some(0xff)), ("nvme_cmd_new", None), ("nvme_admin_identify", Some(6))] {
            let text =
                format!("nvme0: disk=nvme0n1, qid=1, cmdid=57, nsid=1, flags=0x0, meta=0x0, cmd=({name} cdw10=00 00)");
            let mut seen = DecodedEvent::new(Kind::NvmeSetup, 0, 0, 0);
            fill(&mut seen, &text).unwrap();
            assert_eq!((seen.number(2), seen.disk.as_deref()), (code, Some("nvme0n1")), "{name}");
        }
    }

    #[test]
    fn scsi_results_are_read_from_words() {
        let start = "host_no=2 channel=0 id=1 lun=0 data_sgl=1 prot_sgl=0 cmnd=(X raw=35 00) result=(driver=DRIVER_OK \
                     host=DID_TIME_OUT message=COMMAND_COMPLETE status=";
        for (status, result) in [("SAM_STAT_GOOD)", 3 << 16), ("SAM_STAT_CHECK_CONDITION)", 3 << 16 | 2)] {
            let (numbers, words) = read(Kind::ScsiDone, &format!("{start}{status}")).unwrap();
            assert_eq!((numbers[5], words.as_str()), (Some(result), "3500"));
        }
        assert_eq!(read(Kind::ScsiDone, &format!("{start}OTHER)")), None);
        let numbers = start.replace("DID_TIME_OUT", "0x3");
        assert_eq!(read(Kind::ScsiDone, &format!("{numbers}0x2)")).map(|told| told.0[5]), Some(Some(3 << 16 | 2)));
    }

    /// Lines of a mail by Bean Huo to linux-scsi (7 November 2019, "Tested-by", tags of a UFS device), and of one by liuderong
    /// (sample of a patch for WRITE(16)), without the part before the event.
    #[test]
    fn ufs_commands_are_read() {
        for (text, numbers, words) in [
            (
                "send: ff3b0000.ufs: tag: 1, DB: 0x3, size: 8192, IS: 0, LBA: 2880768, opcode: 0x2a",
                [None, Some(1), Some(2_880_768), Some(0x2a), Some(8192), None],
                "send",
            ),
            (
                "send: ff3b0000.ufs: tag: 6, DB: 0x40, size: -1, IS: 0, LBA: 18446744073709551615, opcode: 0x35",
                [None, Some(6), Some(u64::MAX), Some(0x35), Some(u64::MAX), None],
                "send",
            ),
            (
                "complete_rsp: 1d84000.ufshc: tag: 31, DB: 0x0, size: -1, IS: 0, LBA: 0, opcode: 0x8a (WRITE_16), \
                 group_id: 0x0, hwq_id: 7",
                [None, Some(31), Some(0), Some(0x8a), Some(u64::MAX), Some(7)],
                "complete_rsp",
            ),
        ] {
            assert_eq!(read(Kind::UfsCommand, text), Some((numbers.to_vec(), words.into())), "{text}");
        }
    }
}
