//! The SCSI error handler's event, as the kernel prints it (include/trace/events/scsi.h).

mod support;

use formats::ftrace::calls::Machine;
use model::event::scsi_code;
use model::{Protocol, Record};

const SCSI_TRACE: &str = "\
 kworker/0:1H-44 [000] ..... 313.828183: scsi_dispatch_cmd_timeout: host_no=2 channel=0 id=0 lun=0 data_sgl=1 prot_sgl=0 prot_op=SCSI_PROT_NORMAL driver_tag=5 scheduler_tag=9 cmnd=(READ_10 lba=0 txlen=8 protect=0 raw=28 00 00 00 00 00 00 00 08 00)
 <idle>-0 [001] d.h2. 313.829654: scsi_eh_wakeup: host_no=2
";

#[test]
fn an_error_handler_names_its_host() {
    let all = support::events(SCSI_TRACE, Machine::Generic);
    let woken: Vec<_> = all
        .iter()
        .filter_map(|event| match &event.record {
            Record::DriverBegin(r) => Some((r.protocol, r.code, r.raw[0], r.rq, r.disk, event.header.time_ns)),
            _ => None,
        })
        .collect();
    assert_eq!(woken, [(Protocol::Scsi as u16, scsi_code::ERROR_HANDLER, 2, 0, 0, 313_829_654_000)]);
}
