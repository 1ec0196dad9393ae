//! blktrace's binary records (`struct blk_io_trace` of include/uapi/linux/blktrace_api.h): a disk's `DEV.blktrace.CPU`, one file per
//! CPU, or all of them in one, as `blkparse -d` and `btrace` write them.
//!
//! They describe bios and requests as the block layer's tracepoints do, since the kernel makes them in those very tracepoints, and
//! become the same events. They contain nothing above the block layer.
//!
//! *Uncertainty*: one record, `C`, is the end of either a request or a bio that never became one. A disk that never got a request (`D`)
//! has bios only (a device mapper's); on the others a write without data is a bare flush's, and everything else a request's. A record's
//! process is the thread ID. Gaps in the numbers of records (`sequence`) are lost records.

use crate::ftrace::content::{ReadError, TraceContent};
use crate::ftrace::decoder::{DecodedEvent, Kind};
use crate::ftrace::merge::TraceItem;
use model::Dev;
use std::collections::{BTreeMap, BTreeSet};

/// `BLK_IO_TRACE_MAGIC`, and the version of all current ones.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const HEADER_BYTES: usize = 48;

mod action {
    pub const QUEUE: u16 = 1;
    pub const BACK_MERGE: u16 = 2;
    pub const FRONT_MERGE: u16 = 3;
    pub const GET_REQUEST: u16 = 4;
    pub const REQUEUE: u16 = 6;
    pub const ISSUE: u16 = 7;
    pub const COMPLETE: u16 = 8;
    pub const PLUG: u16 = 9;
    pub const UNPLUG_IO: u16 = 10;
    pub const UNPLUG_TIMER: u16 = 11;
    pub const INSERT: u16 = 12;
    pub const SPLIT: u16 = 13;
    pub const REMAP: u16 = 15;
}

/// Bits of the upper half of an action (`enum blktrace_cat`).
mod category {
    pub const WRITE: u16 = 1 << 1;
    pub const FLUSH: u16 = 1 << 2;
    pub const SYNC: u16 = 1 << 3;
    pub const NOTIFY: u16 = 1 << 10;
    pub const AHEAD: u16 = 1 << 11;
    pub const META: u16 = 1 << 12;
    pub const DISCARD: u16 = 1 << 13;
    pub const FUA: u16 = 1 << 15;
}

/// Why each command would be counted twice: a copy of a trace next to it, or `blkparse -d`'s file next to those it was made
/// from.
const DUPLICATES_REASON: &str = "the files hold the same records twice; name each trace once, and none of its copies";

/// `BLK_TN_PROCESS`.
const NOTIFY_PROCESS: u16 = 0;

/// One record.
#[derive(Debug, Clone, Copy)]
struct Record<'a> {
    sequence: u32,
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    pid: u32,
    device: u32,
    cpu: u32,
    error: u16,
    rest: &'a [u8],
}

/// Whether a file begins as a blktrace file.
pub fn is(bytes: &[u8]) -> bool {
    byte_order(bytes).is_some()
}

/// Whether the most significant byte comes first; `None` if it is not such a file.
fn byte_order(bytes: &[u8]) -> Option<bool> {
    let magic = bytes.get(..4)?.try_into().ok()?;
    let matches = |magic: u32| magic & !0xff == MAGIC;
    match (matches(u32::from_le_bytes(magic)), matches(u32::from_be_bytes(magic))) {
        (true, _) => Some(false),
        (_, true) => Some(true),
        _ => None,
    }
}

/// Reads the files of a trace together: those of all CPUs, or the one that holds all.
///
/// # Errors
/// One is of another version, they hold too much, or the same records twice.
pub fn read(files: &[&[u8]]) -> Result<TraceContent, ReadError> {
    let mut out = TraceContent { format: "blktrace".into(), ..TraceContent::default() };
    let mut all: Vec<Record<'_>> = Vec::new();
    for bytes in files.iter().filter(|bytes| !bytes.is_empty()) {
        read_records(bytes, &mut all, &mut out)?;
    }
    all.sort_by_key(|r| r.time);
    let disks = disks_of_partitions(&all)?;
    let disk = |device: u32| disks.get(&device).copied().unwrap_or(device);
    for (partition, disk) in &disks {
        out.notes.push(format!(
            "{} is a partition of {}, traced at another time: its commands are counted as that disk's",
            Dev(*partition),
            Dev(*disk)
        ));
    }
    let requests: BTreeSet<u32> =
        all.iter().filter(|r| r.kind() == (false, action::ISSUE)).map(|r| disk(r.device)).collect();
    let mut sequences: BTreeMap<(u32, u32), (u32, u64)> = BTreeMap::new();
    for record in &all {
        let cpu = u16::try_from(record.cpu).unwrap_or(u16::MAX - 1);
        let (notify, _) = record.kind();
        if !notify {
            let before = sequences.insert((record.device, record.cpu), (record.sequence, record.time));
            if let Some((number, since)) = before {
                if (number, since) == (record.sequence, record.time) {
                    return Err(ReadError::Unsupported(DUPLICATES_REASON.into()));
                }
                let gap = u64::from(record.sequence.wrapping_sub(number.wrapping_add(1)));
                // A restarted trace counts from one again.
                if gap > 0 && gap < 1 << 31 {
                    out.add_gap(cpu, since, record.time, Some(gap))?;
                }
            }
        }
        let device = disk(record.device);
        translate_record(record, cpu, (device, requests.contains(&device)), &mut out)?;
    }
    if all.is_empty() {
        return Err(ReadError::Empty("a blktrace file without a record"));
    }
    out.described = vec![
        Kind::BioQueue,
        Kind::BioRemap,
        Kind::BioSplit,
        Kind::BioComplete,
        Kind::GetRequest,
        Kind::RqInsert,
        Kind::RqIssue,
        Kind::RqComplete,
    ];
    Ok(out)
}

/// Traced partitions, and their disks if those were traced as well. A partition's sectors are those of its disk, so that it differs
/// from the disk only in its number: each of its commands was also the disk's.
fn disks_of_partitions(all: &[Record<'_>]) -> Result<BTreeMap<u32, u32>, ReadError> {
    let mut traced: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for record in all.iter().filter(|r| !r.kind().0) {
        let times = traced.entry(record.device).or_insert((record.time, record.time));
        *times = (times.0.min(record.time), times.1.max(record.time));
    }
    // A partition's trace also records a bio that goes from the partition to its disk; a bio that goes to another device is only in that
    // one's.
    let sent = |record: &Record<'_>| {
        let (from, to) = (record.number_after(0, 4)? as u32, record.number_after(4, 4)? as u32);
        let own = record.kind() == (false, action::REMAP) && from == record.device && to != from;
        (own && traced.contains_key(&to)).then_some((from, to))
    };
    let disks: BTreeMap<u32, u32> = all.iter().filter_map(sent).collect();
    for (partition, disk) in &disks {
        let (own, whole) = (traced[partition], traced[disk]);
        // The kernel traces a disk for one process at a time.
        if own.0 <= whole.1 && whole.0 <= own.1 {
            return Err(ReadError::Unsupported(format!(
                "{} is a partition of {}, whose trace is of the same time (or of another boot): commands would be counted on both; import \
                 each by itself",
                Dev(*partition),
                Dev(*disk)
            )));
        }
    }
    Ok(disks)
}

fn read_records<'a>(bytes: &'a [u8], all: &mut Vec<Record<'a>>, out: &mut TraceContent) -> Result<(), ReadError> {
    let Some(big_endian) = byte_order(bytes) else {
        return Err(ReadError::Unsupported("one of the files next to it is not a blktrace file".into()));
    };
    let number = |bytes: &[u8], at: usize, size: usize| {
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        let part = &bytes[at..at + size];
        if big_endian { part.iter().fold(0, add) } else { part.iter().rev().fold(0, add) }
    };
    let word = |bytes: &[u8], at: usize| number(bytes, at, 4) as u32;
    let mut rest = bytes;
    while !rest.is_empty() {
        let sound = rest.len() >= HEADER_BYTES && word(rest, 0) & !0xff == MAGIC;
        let length = if sound { HEADER_BYTES + number(rest, 46, 2) as usize } else { 0 };
        if !sound || rest.len() < length {
            // The complete part of a truncated trace is kept.
            out.damaged += 1;
            return Ok(());
        }
        if word(rest, 0) & 0xff != VERSION {
            let version = word(rest, 0) & 0xff;
            return Err(ReadError::Unsupported(format!(
                "blktrace version {version} is not supported, only version {VERSION}"
            )));
        }
        if all.len() >= crate::ftrace::content::EVENTS_MAX {
            return Err(ReadError::TooLarge);
        }
        all.push(Record {
            sequence: word(rest, 4),
            time: number(rest, 8, 8),
            sector: number(rest, 16, 8),
            bytes: word(rest, 24),
            action: word(rest, 28),
            pid: word(rest, 32),
            device: word(rest, 36),
            cpu: word(rest, 40),
            error: number(rest, 44, 2) as u16,
            rest: &rest[HEADER_BYTES..length],
        });
        rest = &rest[length..];
    }
    Ok(())
}

impl Record<'_> {
    fn has(&self, bit: u16) -> bool {
        (self.action >> 16) as u16 & bit != 0
    }

    /// Whether it describes something other than a transfer, and its number.
    fn kind(&self) -> (bool, u16) {
        (self.has(category::NOTIFY), self.action as u16)
    }

    /// A big-endian number in the data after the record.
    fn number_after(&self, at: usize, size: usize) -> Option<u64> {
        let bytes = self.rest.get(at..at + size)?;
        Some(bytes.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte)))
    }

    /// The letters of an operation, as `blk_fill_rwbs` writes them.
    fn rwbs(&self) -> String {
        let mut letters = String::new();
        let mut put = |wanted: bool, letter: char| letters.extend(wanted.then_some(letter));
        let data = self.bytes > 0;
        // A flush alone is an operation; with another operation it is a flag.
        let alone = self.has(category::FLUSH) && !self.has(category::WRITE) && !data;
        put(self.has(category::FLUSH), 'F');
        let operation = if alone {
            'F'
        } else if self.has(category::DISCARD) {
            'D'
        } else if self.has(category::WRITE) {
            'W'
        } else if data {
            'R'
        } else {
            'N'
        };
        put(true, operation);
        put(self.has(category::FUA), 'F');
        put(self.has(category::AHEAD), 'A');
        put(self.has(category::SYNC), 'S');
        put(self.has(category::META), 'M');
        letters
    }
}

/// Its disk, and whether that ever got a request.
fn translate_record(
    record: &Record<'_>,
    cpu: u16,
    (disk, requests): (u32, bool),
    out: &mut TraceContent,
) -> Result<(), ReadError> {
    let (notify, number) = record.kind();
    if notify {
        if number == NOTIFY_PROCESS {
            let name = record.rest.split(|b| *b == 0).next().unwrap_or_default();
            out.name(record.pid, &String::from_utf8_lossy(name));
        } else {
            out.leave_out(if number == 2 { "message" } else { "time of day" });
        }
        return Ok(());
    }
    let rwbs = record.rwbs();
    let kind = match number {
        action::QUEUE => Kind::BioQueue,
        action::GET_REQUEST => Kind::GetRequest,
        action::INSERT => Kind::RqInsert,
        action::ISSUE => Kind::RqIssue,
        action::SPLIT => Kind::BioSplit,
        action::REMAP => Kind::BioRemap,
        action::COMPLETE if !requests => Kind::BioComplete,
        action::COMPLETE => Kind::RqComplete,
        other => {
            out.leave_out(match other {
                action::BACK_MERGE => "back merge (M)",
                action::FRONT_MERGE => "front merge (F)",
                action::REQUEUE => "requeue (R)",
                action::PLUG => "plug (P)",
                action::UNPLUG_IO | action::UNPLUG_TIMER => "unplug (U)",
                _ => "other action",
            });
            return Ok(());
        }
    };
    let mut seen = DecodedEvent::new(kind, record.time, cpu, record.pid);
    seen.set("dev", disk.into());
    seen.set("sector", record.sector);
    seen.set("nr_sector", u64::from(record.bytes) / 512);
    seen.set("bytes", record.bytes.into());
    // A kernel error number, truncated to 16 bits.
    seen.set("error", i64::from(-i32::from(record.error.cast_signed().unsigned_abs())).cast_unsigned());
    let whole = match kind {
        Kind::BioSplit => record.number_after(0, 8).map(|sector| seen.set("new_sector", sector)),
        Kind::BioRemap => record.number_after(0, 4).zip(record.number_after(8, 8)).map(|(dev, sector)| {
            seen.set("old_dev", dev);
            seen.set("old_sector", sector);
        }),
        _ => Some(()),
    };
    if whole.is_none() {
        out.damaged += 1;
        return Ok(());
    }
    // As in the tracepoints: a bare flush has no sector.
    if kind == Kind::RqComplete && rwbs.starts_with("FF") {
        seen.set("sector", u64::MAX);
    }
    seen.text = rwbs;
    out.add(TraceItem::DecodedEvent(seen))
}

#[cfg(test)]
mod tests;
