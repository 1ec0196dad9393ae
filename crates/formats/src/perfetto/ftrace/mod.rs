//! Perfetto traces with ftrace events, as recorded by Android's `perfetto` and `tracebox`: the events that Fathom knows, in time order.
//!
//! | file | what |
//! |---|---|
//! | this one | packets, bundles, the trace's data on the machine and its processes |
//! | `known` | events that have a message of their own, and those with named fields |
//! | `compact` | the compact form of switches and wake-ups |
//!
//! Packets may be compressed (zlib, zstd), and a file as a whole by gzip, as Chrome's are. If data was lost, between two reads of a
//! kernel buffer or in Perfetto's own buffer, a bundle records it, and it becomes a gap.
//!
//! *Uncertainty*: the machine's architecture is taken from `SystemInfo`; for a trace without it, from an Android device, it is arm64.
//! Times are those of the clock `boot`; times of another one (`ftrace_clock`) are shifted by the difference in the first bundle that
//! has both, so that a drift between the two clocks remains.

mod compact;
mod known;

use super::wire::{Fields, Value};
use crate::ftrace::calls::Machine;
use crate::ftrace::content::{ReadError, TraceContent};
use crate::ftrace::decoder::{DecodedEvent, Kind};
use crate::ftrace::merge::TraceItem;
use std::collections::{BTreeMap, BTreeSet, HashMap};

mod packet {
    pub const FTRACE_EVENTS: u32 = 1;
    pub const PROCESS_TREE: u32 = 2;
    pub const FTRACE_STATS: u32 = 34;
    pub const SEQUENCE_ID: u32 = 10;
    pub const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub const SYSTEM_INFO: u32 = 45;
    pub const COMPRESSED: u32 = 50;
    pub const FIRST_ON_SEQUENCE: u32 = 87;
    pub const ZSTD: u32 = 133;
}

mod bundle {
    pub const CPU: u32 = 1;
    pub const EVENT: u32 = 2;
    pub const LOST: u32 = 3;
    pub const COMPACT_SCHED: u32 = 4;
    pub const CLOCK: u32 = 5;
    pub const FTRACE_TIME: u32 = 6;
    pub const BOOT_TIME: u32 = 7;
    pub const ERROR: u32 = 8;
    pub const GENERIC: u32 = 11;
}

/// `FtraceEvent.generic`, and the first field that a descriptor may give an event.
const GENERIC_EVENT_FIELD: u32 = 327;
const DESCRIBED_FIELD_MIN: u32 = 65_536;
/// Most bytes of a decompressed packet: Perfetto makes them of at most half a megabyte.
const PACKET_BYTES_MAX: usize = 64 << 20;
/// Most bytes of a decompressed file in all.
const FILE_BYTES_MAX: u64 = 8 << 30;
/// Descriptors that are kept.
const DESCRIPTORS_MAX: usize = 4096;

/// Whether a file begins as such a trace: with a packet that has a known field; or as gzip, which may contain one.
pub fn is(bytes: &[u8]) -> bool {
    let mut fields = Fields::new(bytes);
    // The length of the first packet must be within the file; only the last packet may be truncated.
    let Some((super::fields::trace::PACKET, Value::Bytes(packet))) = fields.next() else { return false };
    let mut inner = Fields::new(packet);
    !packet.is_empty() && inner.by_ref().count() > 0 && !inner.failed()
}

/// Whether the file is compressed as a whole.
pub fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b, 8])
}

/// A gzip file's content.
///
/// # Errors
/// It is broken, or holds too much.
pub fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
    const BROKEN_GZIP: ReadError = ReadError::Empty("a gzip file that is truncated, damaged or too large");
    let flags = *bytes.get(3).ok_or(BROKEN_GZIP)?;
    let mut at = 10_usize;
    if flags & 4 != 0 {
        let extra = bytes.get(at..at + 2).ok_or(BROKEN_GZIP)?;
        at += 2 + usize::from(u16::from_le_bytes([extra[0], extra[1]]));
    }
    for bit in [8, 16] {
        if flags & bit != 0 {
            at += bytes.get(at..).ok_or(BROKEN_GZIP)?.iter().position(|b| *b == 0).ok_or(BROKEN_GZIP)? + 1;
        }
    }
    at += if flags & 2 != 0 { 2 } else { 0 };
    let limit = usize::try_from(FILE_BYTES_MAX).unwrap_or(usize::MAX).min(bytes.len().saturating_mul(1100));
    miniz_oxide::inflate::decompress_to_vec_with_limit(bytes.get(at..).ok_or(BROKEN_GZIP)?, limit)
        .map_err(|_| BROKEN_GZIP)
}

/// An event whose fields are described in the trace itself.
#[derive(Debug)]
struct DescribedEvent {
    name: String,
    fields: HashMap<u32, String>,
}

#[derive(Debug, Default)]
struct Trace {
    out: TraceContent,
    described: HashMap<u32, DescribedEvent>,
    /// Offset for the times of bundles of another clock.
    shift: Option<i64>,
    /// Last time of each CPU.
    last: BTreeMap<u16, u64>,
    budget: u64,
    started: BTreeMap<u16, u64>,
    android: bool,
    bundles: u64,
    /// Sequences of packets that have begun.
    sequences: BTreeSet<u64>,
}

/// Reads a whole trace.
///
/// # Errors
/// It holds no ftrace events, or too many.
pub fn read(bytes: &[u8]) -> Result<TraceContent, ReadError> {
    let mut trace = Trace { budget: FILE_BYTES_MAX, ..Trace::default() };
    trace.read_packets(bytes, false)?;
    if trace.bundles == 0 {
        return Err(ReadError::Empty(
            "a Perfetto trace without ftrace events (data source `linux.ftrace`): it contains nothing from the kernel",
        ));
    }
    let mut out = trace.out;
    out.sort();
    fill_running_threads(&mut out);
    out.format = "Perfetto trace".into();
    out.described = Kind::ALL.iter().copied().filter(|kind| !kind.is_own()).collect();
    if out.machine.is_none() && trace.android {
        out.machine = Some(Machine::Generic);
    }
    Ok(out)
}

impl Trace {
    fn read_packets(&mut self, bytes: &[u8], inner: bool) -> Result<(), ReadError> {
        let mut fields = Fields::new(bytes);
        for (field, value) in fields.by_ref() {
            if field == super::fields::trace::PACKET {
                self.read_packet(value.bytes(), inner)?;
            }
        }
        self.out.damaged += u64::from(fields.failed());
        Ok(())
    }

    fn read_packet(&mut self, bytes: &[u8], inner: bool) -> Result<(), ReadError> {
        let (mut events, mut dropped, mut first, mut sequence) = (None, false, false, 0);
        let mut fields = Fields::new(bytes);
        for (field, value) in fields.by_ref() {
            match field {
                packet::FTRACE_EVENTS => events = Some(value.bytes()),
                packet::PROCESS_TREE => self.read_processes(value.bytes()),
                packet::FTRACE_STATS => self.read_stats(value.bytes()),
                packet::SYSTEM_INFO => self.read_system_info(value.bytes()),
                packet::SEQUENCE_ID => sequence = value.number(),
                packet::PREVIOUS_PACKET_DROPPED => dropped = value.number() != 0,
                packet::FIRST_ON_SEQUENCE => first = value.number() != 0,
                // Packets within packets are not nested further.
                packet::COMPRESSED | packet::ZSTD if !inner => match self.open(field, value.bytes()) {
                    Some(opened) => self.read_packets(&opened, true)?,
                    None => self.out.damaged += 1,
                },
                _ => {}
            }
        }
        self.out.damaged += u64::from(fields.failed());
        // In Perfetto versions before 2022 a sequence's first packet only flags that the previous one was dropped
        // (protos/perfetto/trace/trace_packet.proto); what was dropped before the first existing packet was before the trace.
        first |= self.sequences.insert(sequence);
        match events {
            Some(events) => self.read_bundle(events, dropped && !first),
            None => Ok(()),
        }
    }

    fn open(&mut self, field: u32, data: &[u8]) -> Option<Vec<u8>> {
        let limit = PACKET_BYTES_MAX.min(usize::try_from(self.budget).unwrap_or(usize::MAX));
        let opened = match field {
            packet::COMPRESSED => miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(data, limit).ok()?,
            _ => zstd::bulk::decompress(data, limit).ok()?,
        };
        self.budget = self.budget.saturating_sub(opened.len() as u64);
        Some(opened)
    }

    fn read_bundle(&mut self, bytes: &[u8], dropped: bool) -> Result<(), ReadError> {
        self.bundles += 1;
        let (mut cpu, mut lost, mut clock, mut times) = (0, dropped, 0, (None, None));
        let mut fields = Fields::new(bytes);
        for (field, value) in fields.by_ref() {
            match field {
                bundle::CPU => cpu = u16::try_from(value.number()).unwrap_or(u16::MAX - 1),
                bundle::LOST => lost |= value.number() != 0,
                bundle::CLOCK => clock = value.number(),
                bundle::FTRACE_TIME => times.0 = Some(value.number()),
                bundle::BOOT_TIME => times.1 = Some(value.number()),
                bundle::ERROR => self.out.damaged += 1,
                bundle::GENERIC => self.read_descriptor(value.bytes()),
                _ => {}
            }
        }
        self.out.damaged += u64::from(fields.failed());
        if let (None, true, (Some(ftrace), Some(boot))) = (self.shift, clock != 0, times) {
            self.shift = Some(boot.wrapping_sub(ftrace).cast_signed());
        }
        let shift = if clock == 0 { 0 } else { self.shift.unwrap_or(0) };
        let begin = self.out.events.len();
        for (field, value) in Fields::new(bytes) {
            match field {
                bundle::EVENT => self.read_event(cpu, shift, value.bytes())?,
                bundle::COMPACT_SCHED => {
                    let mut all = Vec::new();
                    if compact::read_events(cpu, value.bytes(), |seen| all.push(seen)).is_none() {
                        self.out.damaged += 1;
                        continue;
                    }
                    for mut seen in all {
                        seen.time_ns = seen.time_ns.saturating_add_signed(shift);
                        self.note_names(&seen);
                        self.out.add(TraceItem::DecodedEvent(seen))?;
                    }
                }
                _ => {}
            }
        }
        let times = self.out.events[begin..].iter().map(crate::ftrace::content::item_time);
        let Some((first, end)) = times.fold(None, |range: Option<(u64, u64)>, t| {
            Some(range.map_or((t, t), |(first, end)| (first.min(t), end.max(t))))
        }) else {
            self.out.at_least |= lost;
            return Ok(());
        };
        let since = self.last.get(&cpu).copied().unwrap_or(0);
        if lost {
            self.out.add_gap(cpu, if since == 0 { first } else { since }, first, None)?;
            // Inserted before the events of the same time.
            let gap = self.out.events.pop();
            self.out.events.splice(begin..begin, gap);
        }
        self.last.insert(cpu, end.max(since));
        Ok(())
    }

    fn read_event(&mut self, cpu: u16, shift: i64, bytes: &[u8]) -> Result<(), ReadError> {
        let (mut time, mut tid, mut what) = (0, 0, None);
        let mut fields = Fields::new(bytes);
        for (field, value) in fields.by_ref() {
            match (field, value) {
                (1, _) => time = value.number(),
                (2, _) => tid = value.number() as u32,
                (_, Value::Bytes(message)) => what = Some((field, message)),
                _ => {}
            }
        }
        let (Some((field, message)), false) = (what, fields.failed()) else {
            self.out.damaged += u64::from(fields.failed());
            return Ok(());
        };
        let time = time.saturating_add_signed(shift);
        let named = |kind: Kind| DecodedEvent::new(kind, time, cpu, tid);
        let (seen, whole) = match field {
            GENERIC_EVENT_FIELD => {
                let (name, fields) = read_generic(message);
                let Some(kind) = Kind::from_name(&name) else {
                    self.out.leave_out(&name);
                    return Ok(());
                };
                let mut seen = named(kind);
                let whole = known::by_name(&mut seen, fields.iter().map(|(n, v)| (n.as_str(), *v)));
                (seen, whole)
            }
            DESCRIBED_FIELD_MIN.. => {
                let Some(described) = self.described.get(&field) else {
                    self.out.leave_out("(an event without its description)");
                    return Ok(());
                };
                let Some(kind) = Kind::from_name(&described.name) else {
                    let name = described.name.clone();
                    self.out.leave_out(&name);
                    return Ok(());
                };
                let mut seen = named(kind);
                let fields = Fields::new(message)
                    .filter_map(|(field, value)| Some((described.fields.get(&field)?.as_str(), value)));
                let whole = known::by_name(&mut seen, fields);
                (seen, whole)
            }
            _ => {
                let Some(kind) = known::kind_of_field(field) else {
                    self.out.leave_out(&format!("field {field} of FtraceEvent"));
                    return Ok(());
                };
                let mut seen = named(kind);
                let whole = known::fill(&mut seen, field, message);
                (seen, whole)
            }
        };
        if whole.is_none() {
            *self.out.unread.entry(seen.kind).or_default() += 1;
            return Ok(());
        }
        self.note_names(&seen);
        self.out.add(TraceItem::DecodedEvent(seen))
    }

    fn note_names(&mut self, seen: &DecodedEvent) {
        let tid = match seen.kind {
            Kind::Switch => seen.number(2),
            Kind::Waking | Kind::Wakeup => seen.number(0),
            _ => None,
        };
        if let Some(tid) = tid.and_then(|tid| u32::try_from(tid).ok()) {
            self.out.name(tid, &seen.text);
        }
    }

    /// A serialised `DescriptorProto` gives an event's name, and the number of each of its fields.
    fn read_descriptor(&mut self, bytes: &[u8]) {
        let (mut id, mut descriptor) = (0, &[][..]);
        for (field, value) in Fields::new(bytes) {
            match field {
                1 => id = value.number() as u32,
                2 => descriptor = value.bytes(),
                _ => {}
            }
        }
        let mut described = DescribedEvent { name: String::new(), fields: HashMap::new() };
        for (field, value) in Fields::new(descriptor) {
            match field {
                1 => described.name = value.text(),
                2 => {
                    let (mut name, mut number) = (String::new(), 0);
                    for (field, value) in Fields::new(value.bytes()) {
                        match field {
                            1 => name = value.text(),
                            3 => number = value.number() as u32,
                            _ => {}
                        }
                    }
                    described.fields.insert(number, name);
                }
                _ => {}
            }
        }
        if id >= DESCRIBED_FIELD_MIN && self.described.len() < DESCRIPTORS_MAX {
            self.described.insert(id, described);
        }
    }

    /// Processes and threads, as `linux.process_stats` found them.
    fn read_processes(&mut self, bytes: &[u8]) {
        const KTHREADD_PID: u64 = 2;
        for (field, value) in Fields::new(bytes) {
            let (mut id, mut other, mut name, mut kernel) = (0, 0, String::new(), false);
            let mut fields = Fields::new(value.bytes());
            for (inner, value) in fields.by_ref() {
                match (field, inner) {
                    (1 | 2, 1) => id = value.number(),
                    // The parent of a process, the process of a thread.
                    (1, 2) | (2, 3) => other = value.number(),
                    (1, 3) if name.is_empty() => name = value.text(),
                    (2, 2) => name = value.text(),
                    (1, 8) => kernel = value.number() != 0,
                    _ => {}
                }
            }
            let Ok(tid) = u32::try_from(id) else { continue };
            if fields.failed() || !matches!(field, 1 | 2) || tid == 0 {
                continue;
            }
            if field == 1 {
                kernel |= other == KTHREADD_PID || id == KTHREADD_PID;
                self.out.tasks.insert(tid, if kernel { 0 } else { tid });
                // A command line begins with a path.
                name = name.rsplit('/').next().unwrap_or_default().into();
            } else if let Ok(tgid) = u32::try_from(other) {
                let of_kernel = self.out.tasks.get(&tgid) == Some(&0);
                self.out.tasks.insert(tid, if of_kernel { 0 } else { tgid });
            }
            self.out.names.entry(tid).or_insert(name);
        }
    }

    fn read_system_info(&mut self, bytes: &[u8]) {
        for (field, value) in Fields::new(bytes) {
            match field {
                1 => {
                    for (field, value) in Fields::new(value.bytes()) {
                        match field {
                            3 => self.out.release = Some(value.text()),
                            4 => self.out.machine = Machine::from_uname(&value.text()),
                            _ => {}
                        }
                    }
                }
                2 => self.android = true,
                _ => {}
            }
        }
    }

    /// The kernel's counts of lost events, at the start and at the end.
    fn read_stats(&mut self, bytes: &[u8]) {
        const PHASE_END: u64 = 2;
        let mut phase = 0;
        let mut all = Vec::new();
        for (field, value) in Fields::new(bytes) {
            match field {
                1 => phase = value.number(),
                2 => {
                    let (mut cpu, mut lost) = (0, 0_u64);
                    for (field, value) in Fields::new(value.bytes()) {
                        match field {
                            1 => cpu = value.number() as u16,
                            // Overrun, and dropped for lack of space.
                            3 | 8 => lost = lost.saturating_add(value.number()),
                            _ => {}
                        }
                    }
                    all.push((cpu, lost));
                }
                _ => {}
            }
        }
        for (cpu, lost) in all {
            if phase != PHASE_END {
                self.started.insert(cpu, lost);
            } else {
                let before = self.started.get(&cpu).copied().unwrap_or(0);
                self.out.lost.insert(cpu, lost.saturating_sub(before));
            }
        }
    }
}

/// `GenericFtraceEvent`: its name, its fields.
fn read_generic(bytes: &[u8]) -> (String, Vec<(String, Value<'_>)>) {
    let (mut name, mut fields) = (String::new(), Vec::new());
    for (field, value) in Fields::new(bytes) {
        match field {
            1 => name = value.text(),
            2 => {
                let (mut of, mut is) = (String::new(), None);
                for (field, value) in Fields::new(value.bytes()) {
                    match field {
                        1 => of = value.text(),
                        3..=5 => is = Some(value),
                        _ => {}
                    }
                }
                fields.extend(is.map(|is| (of, is)));
            }
            _ => {}
        }
    }
    (name, fields)
}

/// Fills in the previous threads and wakers of the compact form: the thread that ran on that CPU.
fn fill_running_threads(out: &mut TraceContent) {
    let mut now: BTreeMap<u16, u32> = BTreeMap::new();
    for next in &mut out.events {
        let seen = match next {
            TraceItem::Missed(cpu, _) => {
                now.remove(cpu);
                continue;
            }
            TraceItem::DecodedEvent(seen) => seen,
        };
        if seen.tid == compact::UNKNOWN_TID {
            seen.tid = now.get(&seen.cpu).copied().unwrap_or(0);
            if seen.kind == Kind::Switch {
                seen.set("prev_pid", seen.tid.into());
            }
        }
        match seen.kind {
            Kind::Switch => drop(now.insert(seen.cpu, seen.number(2).unwrap_or(0) as u32)),
            _ if seen.tid != 0 => drop(now.insert(seen.cpu, seen.tid)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
