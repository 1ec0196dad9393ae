//! A UFS device's commands, from published traces: no such device is available here.
//!
//! The first lines are from a mail by Bean Huo to linux-scsi (7 November 2019, tags of a UFS device), the last two from the sample of a
//! patch by liuderong; the part before the event (thread, CPU) is ours, since the mails leave it out.

mod support;

use formats::ftrace::calls::Machine;
use model::Record;

const UFS_TRACE: &str = "\
 kworker/0:1H-44 [000] ..... 313.828183: ufshcd_command: send: ff3b0000.ufs: tag: 1, DB: 0x3, size: 8192, IS: 0, LBA: 2880768, opcode: 0x2a
 kworker/0:1H-44 [000] ..... 313.829654: ufshcd_command: send: ff3b0000.ufs: tag: 6, DB: 0x40, size: -1, IS: 0, LBA: 18446744073709551615, opcode: 0x35
 kworker/0:1H-44 [000] ..... 317.713874: ufshcd_command: send: ff3b0000.ufs: tag: 14, DB: 0x4000, size: 4096, IS: 0, LBA: 11976872, opcode: 0x28
 kworker/0:1H-44 [000] ..... 318.000000: ufshcd_command: send_req: 1d84000.ufshc: tag: 31, DB: 0x0, size: -1, IS: 0, LBA: 0, opcode: 0x8a (WRITE_16), group_id: 0x0, hwq_id: 7
 <idle>-0 [001] d.h2. 318.000200: ufshcd_command: complete_rsp: 1d84000.ufshc: tag: 31, DB: 0x0, size: -1, IS: 0, LBA: 0, opcode: 0x8a (WRITE_16), group_id: 0x0, hwq_id: 7
";

#[test]
fn published_ufs_commands_become_scsi_commands() {
    let all = support::events(UFS_TRACE, Machine::Generic);
    let begins: Vec<(u8, u64, u64, u32)> = all
        .iter()
        .filter_map(|event| match &event.record {
            Record::DriverBegin(r) => {
                let number = |bytes: &[u8]| bytes.iter().fold(0, |sum: u64, b| sum << 8 | u64::from(*b));
                Some((r.raw[0], number(&r.raw[2..6]), number(&r.raw[7..9]), r.bytes))
            }
            _ => None,
        })
        .collect();
    // 2880768 and 11976872 are 512-byte sectors of a device with 4096-byte blocks.
    assert_eq!(begins, [(0x2a, 360_096, 2, 8192), (0x35, 0, 0, 0), (0x28, 1_497_109, 1, 4096), (0x8a, 0, 0, 0)]);
    let ends = all.iter().filter(|event| matches!(event.record, Record::DriverEnd(_))).count();
    assert_eq!(ends, 1);
}
