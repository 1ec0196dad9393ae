//! Commands that drivers send to their devices: those of SCSI, MMC, NVMe and UFS.
//!
//! Their events identify a device in their own way (host, channel and target; a controller's number; a host's pointer) and no request. The
//! request is the one in flight with the same blocks and operation ([`Block::request_for_command`]): a driver sends a command from the
//! thread that issued its request, right after it, so that among several the latest of that thread is meant. The disk of a SCSI device or
//! of a controller's queue is learnt from the first command that fits only one disk.
//!
//! An NVMe command is set up just before its request is issued: it is kept until then. Its event names the disk, whose number is learnt from
//! the requests; a disk without requests in the trace has a number of its own ([`Dev::placeholder`]). A UFS host's commands are SCSI's;
//! where SCSI's events are not recorded, the host's own event gives them.
//!
//! *Uncertainty*: that a UFS device's blocks have 4096 bytes is JEDEC's usual value; the event does not contain it. A bare tag identifies
//! the command on the device, not on the disk: a command whose end was lost is found again when its tag is reused.

use super::Translator;
use super::block::WantedRequest;
use crate::ftrace::decoder::{DecodedEvent, Kind};
use model::event::{DriverBegin, DriverEnd, Header, driver_what, mmc_answer, mmc_is, mmc_part, nvme_code, scsi_code};
use model::{Dev, DiskOp, Protocol};
use std::collections::{BTreeMap, HashMap};

/// Commands in flight that are remembered; there can be more only because ends were lost.
const IN_FLIGHT_MAX: usize = 1 << 14;

/// What identifies a command until it ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CommandKey {
    /// The device, the tag or -1, and if there is no tag the command itself.
    Scsi([u64; 4], u64, String),
    /// Its `mmc_request`.
    Mmc(u64),
    /// Controller, queue, command.
    Nvme(u64, u64, u64),
    /// Queue, tag.
    Ufs(u64, u64),
}

/// An NVMe command that was set up for a request that is not issued yet.
#[derive(Debug)]
struct PreparedCommand {
    header: Header,
    record: DriverBegin,
    wanted: Option<WantedRequest>,
    name: CommandKey,
    disk: Option<Box<str>>,
}

/// Commands in flight.
#[derive(Debug, Default)]
pub(super) struct Drivers {
    sent: HashMap<CommandKey, u64>,
    /// Disks of SCSI and UFS devices.
    disks: HashMap<[u64; 4], u32>,
    /// Disks of which only the name is known.
    named: BTreeMap<Box<str>, u32>,
    /// By thread.
    made: HashMap<u32, PreparedCommand>,
    /// Whether SCSI's own events are in the trace.
    scsi: bool,
}

impl Drivers {
    fn add_sent(&mut self, name: CommandKey, command: u64) {
        if self.sent.len() >= IN_FLIGHT_MAX {
            self.sent.clear();
        }
        self.sent.insert(name, command);
    }
}

/// The blocks of a command block, at the positions that its length implies (SBC).
fn scsi_wanted(block: &[u8; 16], tid: u32) -> Option<WantedRequest> {
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let (op, place) = match block[0] {
        0x08 | 0x0a => {
            let op = if block[0] == 0x08 { DiskOp::Read } else { DiskOp::Write };
            (op, Some((number(&block[1..4]) & 0x1f_ffff, if block[4] == 0 { 256 } else { block[4].into() })))
        }
        0x28 => (DiskOp::Read, Some((number(&block[2..6]), number(&block[7..9])))),
        0x2a => (DiskOp::Write, Some((number(&block[2..6]), number(&block[7..9])))),
        0xa8 => (DiskOp::Read, Some((number(&block[2..6]), number(&block[6..10])))),
        0xaa => (DiskOp::Write, Some((number(&block[2..6]), number(&block[6..10])))),
        0x88 => (DiskOp::Read, Some((number(&block[2..10]), number(&block[10..14])))),
        0x8a => (DiskOp::Write, Some((number(&block[2..10]), number(&block[10..14])))),
        0x35 | 0x91 => (DiskOp::Flush, None),
        // A discard, whose blocks are in its data, or a WRITE SAME that unmaps.
        0x42 => (DiskOp::Discard, None),
        0x41 if block[1] & 8 != 0 => (DiskOp::Discard, Some((number(&block[2..6]), number(&block[7..9])))),
        0x93 if block[1] & 8 != 0 => (DiskOp::Discard, Some((number(&block[2..10]), number(&block[10..14])))),
        _ => return None,
    };
    Some(WantedRequest { op, place, block: None, tid })
}

/// Converts digits to bytes, as many as fit.
fn parse_bytes<const N: usize>(digits: &str) -> [u8; N] {
    let mut out = [0; N];
    let digits = digits.as_bytes();
    for (to, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |d: u8| char::from(d).to_digit(16).unwrap_or(0) as u8;
        *to = value(pair[0]) << 4 | value(pair[1]);
    }
    out
}

impl Translator {
    /// The request of a command, its disk and its bytes.
    fn request_of(&mut self, wanted: Option<WantedRequest>, device: Option<[u64; 4]>) -> (u64, u32, u32) {
        let known = device.and_then(|device| self.drivers.disks.get(&device).copied());
        let found = wanted.and_then(|wanted| self.block.request_for_command(&wanted, known));
        let Some((dev, rq)) = found else { return (0, known.unwrap_or(0), 0) };
        if let (Some(device), Some(WantedRequest { place: Some(_), .. })) = (device, wanted) {
            self.drivers.disks.entry(device).or_insert(dev);
        }
        (rq, dev, self.block.bytes_of(dev, rq).min(u32::MAX.into()) as u32)
    }

    fn end_command(&mut self, s: &DecodedEvent, name: &CommandKey, end: DriverEnd) {
        let command = match end.what {
            driver_what::TIMED_OUT => self.drivers.sent.get(name).copied(),
            _ => self.drivers.sent.remove(name),
        };
        // The command began before the trace.
        if let Some(command) = command {
            self.put(Self::header_without_thread(s), DriverEnd { command, ..end });
        }
    }

    pub(super) fn on_scsi(&mut self, s: &DecodedEvent) {
        self.drivers.scsi = true;
        let device = [0, 1, 2, 3].map(|i| s.number(i).unwrap_or(0));
        let tag = s.number(4).filter(|tag| *tag < 1 << 32);
        let name = CommandKey::Scsi(
            device,
            tag.unwrap_or(u64::MAX),
            if tag.is_some() { String::new() } else { s.text.clone() },
        );
        let what = match s.kind {
            Kind::ScsiStart => {
                let raw: [u8; 16] = parse_bytes(&s.text);
                let (rq, disk, bytes) = self.request_of(scsi_wanted(&raw, s.tid), Some(device));
                let moves = !matches!(raw[0], 0x35 | 0x91);
                let command = self.block.number();
                self.drivers.add_sent(name, command);
                let record = DriverBegin {
                    command,
                    rq,
                    raw,
                    bytes: if moves { bytes } else { 0 },
                    disk,
                    protocol: Protocol::Scsi as u16,
                    code: s.number(5).unwrap_or(0).min(260) as u16,
                    ..DriverBegin::default()
                };
                return self.put(self.header(s), record);
            }
            Kind::ScsiTimeout => driver_what::TIMED_OUT,
            Kind::ScsiError => driver_what::REFUSED,
            _ => driver_what::ENDED,
        };
        let sense = [6, 7, 8].map(|i| s.number(i).unwrap_or(0) as u8);
        let record = DriverEnd {
            result: s.number(5).filter(|_| s.kind == Kind::ScsiDone).unwrap_or(0) as u32,
            sense: [sense[0], sense[1], sense[2], 0],
            protocol: Protocol::Scsi as u16,
            what,
            ..DriverEnd::default()
        };
        self.end_command(s, &name, record);
    }

    pub(super) fn on_scsi_handler(&mut self, s: &DecodedEvent) {
        let mut raw = [0; 16];
        raw[..4].copy_from_slice(&(s.number(0).unwrap_or(0) as u32).to_le_bytes());
        let record = DriverBegin {
            command: self.block.number(),
            raw,
            protocol: Protocol::Scsi as u16,
            code: scsi_code::ERROR_HANDLER,
            ..DriverBegin::default()
        };
        self.put(Self::header_without_thread(s), record);
    }

    pub(super) fn on_mmc(&mut self, s: &DecodedEvent) {
        /// `MMC_DATA_WRITE`, `MMC_DATA_READ` of include/linux/mmc/core.h.
        const MMC_DATA_WRITE: u64 = 1 << 8;
        const MMC_DATA_READ: u64 = 1 << 9;
        let name = CommandKey::Mmc(s.number(0).unwrap_or(0));
        if s.kind == Kind::MmcDone {
            // The first part that failed.
            let failed = [(3, mmc_part::COUNT), (1, mmc_part::COMMAND), (4, mmc_part::DATA), (2, mmc_part::STOP)];
            let failed = failed.into_iter().find(|(i, _)| s.number(*i).unwrap_or(0) != 0);
            let (result, part) = failed.map_or((0, 0), |(i, part)| (s.number(i).unwrap_or(0) as u32, part));
            let protocol = Protocol::Mmc as u16;
            let [command, stop] = [5, 6].map(|i| s.number(i).unwrap_or(0) as u32);
            let answer = command | stop & !mmc_answer::OUT_OF_RANGE;
            let record = DriverEnd { result, sense: part.to_le_bytes(), protocol, answer, ..DriverEnd::default() };
            return self.end_command(s, &name, record);
        }
        let [opcode, arg, sector, blocks, size, flags] = [1, 2, 3, 4, 5, 6].map(|i| s.number(i).unwrap_or(0));
        let data = flags & (MMC_DATA_WRITE | MMC_DATA_READ) != 0;
        let task = data && opcode == 0;
        let moves = task || matches!(opcode, 17 | 18 | 24 | 25);
        let op = if flags & MMC_DATA_WRITE != 0 { DiskOp::Write } else { DiskOp::Read };
        let wanted = WantedRequest { op, place: Some((sector, blocks)), block: Some(512), tid: s.tid };
        let (rq, disk, _) = self.request_of((data && moves).then_some(wanted), None);
        let bit = |has: bool, bit: u32| if has { bit } else { 0 };
        let is = bit(data, mmc_is::DATA) | bit(flags & MMC_DATA_WRITE != 0, mmc_is::WRITES) | bit(task, mmc_is::TASK);
        let words = [arg as u32, if data { sector as u32 } else { 0 }, if data { blocks as u32 } else { 0 }, is];
        let mut raw = [0; 16];
        words.iter().zip(raw.chunks_exact_mut(4)).for_each(|(word, to)| to.copy_from_slice(&word.to_le_bytes()));
        let command = self.block.number();
        self.drivers.add_sent(name, command);
        let record = DriverBegin {
            command,
            rq,
            raw,
            bytes: if data { blocks.saturating_mul(size).min(u32::MAX.into()) as u32 } else { 0 },
            disk,
            protocol: Protocol::Mmc as u16,
            code: if task { s.number(7).unwrap_or(0) as u16 } else { opcode as u16 },
            ..DriverBegin::default()
        };
        self.put(self.header(s), record);
    }

    pub(super) fn on_nvme(&mut self, s: &DecodedEvent) {
        let number = |i| s.number(i).unwrap_or(0);
        let protocol = Protocol::Nvme as u16;
        if s.kind == Kind::NvmeDone {
            let name = CommandKey::Nvme(number(0), number(1), number(2));
            let waiting = self.drivers.made.iter().find(|(_, made)| made.name == name).map(|(tid, _)| *tid);
            if let Some(made) = waiting.and_then(|tid| self.drivers.made.remove(&tid)) {
                self.begin_made(made, None);
            }
            let record = DriverEnd { result: number(3) as u32, protocol, ..DriverEnd::default() };
            return self.end_command(s, &name, record);
        }
        let raw: [u8; 16] = parse_bytes(&s.text);
        let word = |at: usize| u64::from(u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]));
        let (queue, opcode) = (number(1), s.number(2));
        let op = match opcode {
            Some(1 | 8) => Some(DiskOp::Write),
            Some(2) => Some(DiskOp::Read),
            Some(0) => Some(DiskOp::Flush),
            Some(9) => Some(DiskOp::Discard),
            _ => None,
        };
        let place = matches!(opcode, Some(1 | 2 | 8)).then(|| (word(4) << 32 | word(0), (word(8) & 0xffff) + 1));
        let wanted = op.filter(|_| queue != 0).map(|op| WantedRequest { op, place, block: None, tid: s.tid });
        let code = opcode.map_or(nvme_code::UNKNOWN, |code| code as u16 & 0xff);
        let record = DriverBegin { raw, protocol, code, queue: queue as u16, ..DriverBegin::default() };
        let name = CommandKey::Nvme(number(0), queue, number(3));
        let disk = s.disk.clone().filter(|name| !name.is_empty());
        let made = PreparedCommand { header: self.header(s), record, wanted, name, disk };
        if let Some(old) = self.drivers.made.insert(s.tid, made) {
            self.begin_made(old, None);
        }
    }

    /// A request is issued; its command may have been set up just before.
    pub(super) fn on_issue_of_made(&mut self, s: &DecodedEvent, dev: u32, rq: u64) {
        if let Some(made) = self.drivers.made.remove(&s.tid) {
            let found = made.wanted.and_then(|wanted| self.block.request_for_command(&wanted, Some(dev)));
            let found = found.filter(|(_, own)| *own == rq);
            if let (Some(name), Some(_)) = (&made.disk, found) {
                self.known.disks.entry(name.clone()).or_insert(dev);
            }
            self.begin_made(made, found);
        }
    }

    /// The number of a disk of which the trace has the name.
    fn disk_named(&mut self, name: Option<&str>) -> u32 {
        let Some(name) = name else { return 0 };
        if let Some(dev) = self.known.disks.get(name).or_else(|| self.drivers.named.get(name)) {
            return *dev;
        }
        let dev = Dev::placeholder(self.drivers.named.len() as u32).0;
        self.drivers.named.insert(name.into(), dev);
        dev
    }

    /// Names of disks, by number, as far as the trace has them.
    pub(super) fn disk_names(&self) -> Vec<(u32, String)> {
        let known = self.known.disks.iter().map(|(name, dev)| (*dev, name.to_string()));
        known.chain(self.drivers.named.iter().map(|(name, dev)| (*dev, name.to_string()))).collect()
    }

    fn begin_made(&mut self, made: PreparedCommand, request: Option<(u32, u64)>) {
        let (disk, command) = request.unwrap_or_else(|| (self.disk_named(made.disk.as_deref()), self.block.number()));
        let bytes = request.map_or(0, |(dev, rq)| self.block.bytes_of(dev, rq)).min(u32::MAX.into()) as u32;
        self.drivers.add_sent(made.name, command);
        self.put(made.header, DriverBegin { command, rq: command, disk, bytes, ..made.record });
    }

    pub(super) fn on_ufs(&mut self, s: &DecodedEvent) {
        if self.drivers.scsi {
            return;
        }
        // `enum ufs_trace_str_t` since 5.10, a text before: sent, or completed; other lines are for queries and for the device's
        // management.
        let (sent, ended) = match (s.number(0), s.text.as_str()) {
            (_, "send" | "send_req") => (true, false),
            (_, "complete" | "complete_rsp") => (false, true),
            (Some(0), "") => (true, false),
            (Some(1), "") => (false, true),
            _ => return,
        };
        let [tag, lba, opcode, length, queue] = [1, 2, 3, 4, 5].map(|i| s.number(i).unwrap_or(0));
        let name = CommandKey::Ufs(queue, tag);
        let protocol = Protocol::Scsi as u16;
        if ended {
            return self.end_command(s, &name, DriverEnd { protocol, ..DriverEnd::default() });
        }
        if !sent {
            return;
        }
        // -1: it transfers no data.
        let length = u64::from(u32::try_from(length).unwrap_or(0));
        let mut raw = [0; 16];
        raw[0] = opcode as u8;
        let op = match opcode {
            0x28 | 0x88 => Some(DiskOp::Read),
            0x2a | 0x8a => Some(DiskOp::Write),
            0x35 => Some(DiskOp::Flush),
            0x42 => Some(DiskOp::Discard),
            _ => None,
        };
        // Kernels that write a text give the bio's sector; those that write a number give the device's block, which for UFS devices has
        // 4096 bytes.
        let size = if matches!(s.text.as_str(), "send" | "complete") { 512 } else { 4096 };
        let moves = matches!(op, Some(DiskOp::Read | DiskOp::Write));
        let place = moves.then_some((lba, length / size));
        let wanted = op.map(|op| WantedRequest { op, place, block: Some(size), tid: s.tid });
        let found = self.request_of(wanted, None);
        // In the units of the command.
        let (lba, size) = if size == 512 { (lba / 8, 4096) } else { (lba, size) };
        let blocks = length / size;
        if moves && opcode < 0x80 {
            raw[2..6].copy_from_slice(&(lba as u32).to_be_bytes());
            raw[7..9].copy_from_slice(&(blocks as u16).to_be_bytes());
        } else if moves {
            raw[2..10].copy_from_slice(&lba.to_be_bytes());
            raw[10..14].copy_from_slice(&(blocks as u32).to_be_bytes());
        }
        let command = self.block.number();
        self.drivers.add_sent(name, command);
        let record = DriverBegin {
            command,
            rq: found.0,
            raw,
            bytes: length as u32,
            disk: found.1,
            protocol,
            code: if opcode < 0x80 { 10 } else { 16 },
            ..DriverBegin::default()
        };
        self.put(self.header(s), record);
    }
}
