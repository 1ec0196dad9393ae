//! Commands of the device's protocol that drivers send to their devices for requests.
//!
//! A command belongs to the request that it names, by the request's address, while that request is in flight. An NVMe
//! command is made just before its request is issued, and is matched when that happens. A command that names no recorded
//! request (a disk's own housekeeping before the recording, a request whose issue was lost, everything that MMC's core
//! sends without a request, such as CMD13 until a card is ready) is kept all the same.
//!
//! *Uncertainty*: a command whose end was not seen ended at the latest when its memory was reused, which does not date its
//! end; so it has none. A command that timed out may still complete, or be aborted, for which there is no tracepoint.

use super::requests::IN_FLIGHT_MAX;
use super::{BlockIo, mmc, nvme, scsi};
use crate::context::Context;
use crate::loss::Window;
use model::event::{DriverBegin, DriverEnd, Header, RqIssue, driver_what, scsi_code};
use model::table::DriverCommand;
use model::{Confidence, Protocol, Relation};

/// A command in flight, as far as its row is known.
#[derive(Debug)]
pub(crate) struct SentCommand {
    row: DriverCommand,
    /// It is sent before its request is issued.
    early: bool,
    /// The code from the record.
    code: u16,
    cpu: u16,
}

/// A host's error handler was woken: a moment, with no disk and no request.
fn error_handler(header: &Header, r: &DriverBegin) -> DriverCommand {
    let host = u32::from_le_bytes([r.raw[0], r.raw[1], r.raw[2], r.raw[3]]);
    DriverCommand {
        command: None,
        confidence: None,
        protocol: Protocol::Scsi.name().into(),
        name: format!("error handler of host {host}").into(),
        disk: None,
        lba: None,
        blocks: None,
        bytes: 0,
        start_ns: header.time_ns,
        end_ns: Some(header.time_ns),
        timed_out: false,
        error: None,
    }
}

impl BlockIo {
    /// A driver sends a command.
    pub(crate) fn on_driver_begin(&mut self, header: &Header, r: &DriverBegin, cx: &mut Context<'_>) {
        if (r.protocol, r.code) == (Protocol::Scsi as u16, scsi_code::ERROR_HANDLER) {
            return cx.sink.driver_command(error_handler(header, r));
        }
        if let Some(old) = self.sent.remove(&r.command) {
            cx.sink.driver_command(old.row);
        }
        if self.sent.len() >= IN_FLIGHT_MAX {
            self.put_sent(cx);
        }
        let Some(protocol) = Protocol::from_number(r.protocol) else { return };
        let (name, lba, blocks, bytes) = match protocol {
            Protocol::Scsi => {
                let block = scsi::CommandBlock::decode(&r.raw, r.code);
                (block.name, block.lba, block.blocks, r.bytes.into())
            }
            Protocol::Nvme => {
                let command = nvme::Command::decode(r.code, r.queue, &r.raw, r.bytes.into());
                (command.name, command.lba, command.blocks, command.bytes)
            }
            Protocol::Mmc => {
                let command = mmc::Command::decode(r.code, &r.raw);
                (command.name, command.lba, command.blocks, r.bytes.into())
            }
        };
        let early = protocol == Protocol::Nvme;
        let request = self.requests.get(&r.rq).filter(|_| !early);
        let request = request.filter(|request| r.disk == 0 || request.disk == r.disk);
        let confidence = request.map(|request| {
            let (start_ns, end_ns) = (request.issue_ns.min(header.time_ns), header.time_ns);
            let window = Window { start_ns, end_ns, cpus: [request.cpu, header.cpu] };
            // Not a link, since it does not lead to a span; but with the confidence of one.
            cx.link(0, 0, Relation::Carries, Confidence::Exact, window)
        });
        let row = DriverCommand {
            command: request.map(|request| request.command),
            confidence,
            protocol: protocol.name().into(),
            name,
            disk: (r.disk != 0).then_some(r.disk).or_else(|| request.map(|request| request.disk)),
            lba,
            blocks,
            bytes,
            start_ns: header.time_ns,
            end_ns: None,
            timed_out: false,
            error: None,
        };
        self.sent.insert(r.command, SentCommand { row, early, code: r.code, cpu: header.cpu });
    }

    /// A request was issued; its command may have been made just before.
    pub(crate) fn on_issue_of_sent(&mut self, header: &Header, r: &RqIssue, cx: &mut Context<'_>) {
        let Some(sent) = self.sent.get_mut(&r.rq).filter(|sent| sent.early && sent.row.command.is_none()) else {
            return;
        };
        let Some(request) = self.requests.get(&r.rq).filter(|request| sent.row.disk.is_none_or(|d| d == request.disk))
        else {
            return;
        };
        let window = Window { start_ns: sent.row.start_ns, end_ns: header.time_ns, cpus: [sent.cpu, header.cpu] };
        sent.row.command = Some(request.command);
        sent.row.confidence = Some(cx.link(0, 0, Relation::Carries, Confidence::Exact, window));
    }

    /// Something happened to a driver's command.
    pub(crate) fn on_driver_end(&mut self, header: &Header, r: &DriverEnd, cx: &mut Context<'_>) {
        let Some(SentCommand { row, code, .. }) = self.sent.get_mut(&r.command) else { return };
        if r.what == driver_what::TIMED_OUT {
            row.timed_out = true;
            return;
        }
        row.end_ns = Some(header.time_ns.max(row.start_ns));
        row.error = match r.what {
            driver_what::REFUSED => Some("not taken by the driver".into()),
            _ if r.protocol == Protocol::Nvme as u16 => nvme::error_text(r.result),
            _ if r.protocol == Protocol::Mmc as u16 => mmc::error_text(*code, r),
            _ => scsi::error_text(r.result, r.sense),
        };
        if let Some(sent) = self.sent.remove(&r.command) {
            cx.sink.driver_command(sent.row);
        }
    }

    /// Writes the commands that have no end.
    pub(crate) fn put_sent(&mut self, cx: &mut Context<'_>) {
        let mut all: Vec<DriverCommand> = self.sent.drain().map(|(_, sent)| sent.row).collect();
        all.sort_by_key(|row| (row.start_ns, row.command, row.lba));
        all.into_iter().for_each(|row| cx.sink.driver_command(row));
    }
}
