//! The memory through which a program marks its own spans: one layout for its writer and its reader.
//!
//! A mark costs the program a few stores and no system call, so that marking does not disturb the measurement; a probe on
//! one of the program's functions would cost a trap each time (about 1 us). The recorder (`capture`) creates a memfd and
//! passes its number in [`FD_VARIABLE`]; the program (`workload`, or one in any other language) maps it and fills in records.
//!
//! Little-endian: a header, then the number of records that it states, 64 bytes each.
//!
//! | offset | header | record |
//! |---|---|---|
//! | 0 | `FTHMMARK` | u64 begin, CLOCK_BOOTTIME in ns |
//! | 8 | u32 version 1, u32 bytes of a record 64 | u64 end; 0 until the record is whole |
//! | 16 | u64 capacity in records | u32 process, u32 thread |
//! | 24 | u64 records requested, may exceed the capacity | u64 ordinal among the marks of that name |
//! | 32 | zeros | name, UTF-8, cut at 32 bytes, padded with zeros |
//!
//! A writer reserves a place by adding 1 to the count, so that threads and processes need no lock, fills in the record
//! there, and writes its end last. If the count is at or above the capacity, nothing is written: a count beyond the
//! capacity includes the marks that did not fit.
//!
//! *Uncertainty*: the program may write anything there, so a reader uses its own copy of the capacity and checks every
//! record; a record reserved just now may not have an end yet.

use crate::event::{Event, Header, Mark, Record};

/// The environment variable that holds the memfd's number in decimal.
pub const FD_VARIABLE: &str = "FATHOM_MARKS_FD";
/// Size of the header, and of every record, in bytes.
pub const RECORD_BYTES: usize = 64;
/// Offset of the count of records in the header, a u64.
pub const COUNT_AT: usize = 24;
/// Offset of the end in a record, a u64, which is written last.
pub const END_AT: usize = 8;
/// Size of a name in bytes.
pub const NAME_BYTES: usize = 32;
/// The maximum capacity (256 MiB of marks). A header with a larger one is damaged.
pub const CAPACITY_MAX: u64 = 1 << 22;

const MAGIC: &[u8; 8] = b"FTHMMARK";
const VERSION: u32 = 1;
/// Offset of a record's name.
const NAME_AT: usize = 32;

/// Returns the header of an empty memory for `capacity` records.
pub fn header(capacity: u64) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(RECORD_BYTES as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&capacity.to_le_bytes());
    bytes
}

/// Returns the capacity in a header; `None` if it is not a header of this version.
pub fn capacity(header: &[u8; RECORD_BYTES]) -> Option<u64> {
    let capacity = read_u64(header, 16);
    let whole = &header[..8] == MAGIC
        && read_u64(header, 8) == u64::from(VERSION) | (RECORD_BYTES as u64) << 32
        && capacity <= CAPACITY_MAX;
    whole.then_some(capacity)
}

/// Returns the offset, in bytes, of the record with number `place` (from 0); for the capacity, that is the memory's length.
pub fn offset(place: u64) -> u64 {
    place.saturating_add(1).saturating_mul(RECORD_BYTES as u64)
}

/// Returns a name as stored in a record: cut at [`NAME_BYTES`] bytes, at a character boundary.
pub fn name(text: &str) -> [u8; NAME_BYTES] {
    let text = &text[..text.floor_char_boundary(NAME_BYTES)];
    let mut bytes = [0; NAME_BYTES];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    /// Begin of the span, CLOCK_BOOTTIME.
    pub start_ns: u64,
    /// Its end; 0: has not ended, or is incomplete.
    pub end_ns: u64,
    pub tgid: u32,
    pub tid: u32,
    /// Ordinal among the marks of that name.
    pub nth: u64,
    /// See [`name`].
    pub name: [u8; NAME_BYTES],
}

impl Slot {
    /// Returns the record as stored in the memory.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&self.start_ns.to_le_bytes());
        bytes[END_AT..16].copy_from_slice(&self.end_ns.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.tgid.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.tid.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.nth.to_le_bytes());
        bytes[NAME_AT..].copy_from_slice(&self.name);
        bytes
    }

    /// Decodes whatever is stored there.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        let who = read_u64(bytes, 16);
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(&bytes[NAME_AT..]);
        Self {
            start_ns: read_u64(bytes, 0),
            end_ns: read_u64(bytes, END_AT),
            tgid: who as u32,
            tid: (who >> 32) as u32,
            nth: read_u64(bytes, 24),
            name,
        }
    }

    /// Returns the mark as an event; `None` if it was never finished, or ends before it begins. Invalid UTF-8 in its name
    /// is replaced.
    pub fn event(&self) -> Option<Event> {
        if self.start_ns == 0 || self.end_ns < self.start_ns {
            return None;
        }
        let end = self.name.iter().position(|b| *b == 0).unwrap_or(NAME_BYTES);
        let text = String::from_utf8_lossy(&self.name[..end]).into_owned();
        let mark = Mark { start_ns: self.start_ns, nth: self.nth, len: text.len() as u16, text, ..Mark::default() };
        let record = Record::from(mark);
        let (time_ns, kind, tgid, tid) = (self.end_ns, record.kind(), self.tgid, self.tid);
        Some(Event { header: Header { time_ns, kind, tgid, tid, ..Header::default() }, record })
    }
}

fn read_u64(bytes: &[u8; RECORD_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE_SLOT: Slot = Slot { start_ns: 0x11, end_ns: 0x22, tgid: 7, tid: 8, nth: 9, name: [b'n'; NAME_BYTES] };

    #[test]
    fn header_states_capacity() {
        let bytes = header(0x0102);
        assert_eq!(&bytes[..32], b"FTHMMARK\x01\0\0\0\x40\0\0\0\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(&bytes[32..], [0; 32]);
        assert_eq!(capacity(&bytes), Some(0x0102));
        assert_eq!(capacity(&header(CAPACITY_MAX)), Some(CAPACITY_MAX));
        assert_eq!(capacity(&header(CAPACITY_MAX + 1)), None, "an absurd capacity");
        for at in 0..16 {
            let mut damaged = bytes;
            damaged[at] ^= 2;
            assert_eq!(capacity(&damaged), None, "byte {at} is part of what is checked");
        }
        assert_eq!((offset(0), offset(2), offset(u64::MAX)), (64, 192, u64::MAX));
    }

    #[test]
    fn record_has_documented_layout_and_round_trips() {
        let bytes = SAMPLE_SLOT.encode();
        assert_eq!(&bytes[..24], b"\x11\0\0\0\0\0\0\0\x22\0\0\0\0\0\0\0\x07\0\0\0\x08\0\0\0");
        assert_eq!(&bytes[24..], [b"\x09\0\0\0\0\0\0\0".as_slice(), &[b'n'; 32]].concat());
        assert_eq!(Slot::decode(&bytes), SAMPLE_SLOT);
    }

    #[test]
    fn a_name_is_cut_between_characters() {
        assert_eq!(&name("SELECT")[..8], b"SELECT\0\0");
        assert_eq!(&name("a name that is cut before this \u{fc}"), b"a name that is cut before this \0");
        assert_eq!(name(&"x".repeat(40)), [b'x'; NAME_BYTES]);
    }

    #[test]
    fn only_a_finished_span_is_an_event() {
        let event = SAMPLE_SLOT.event().map(|e| e.to_text());
        assert_eq!(event, Some(format!("@34 cpu0 7/8 mark start_ns=17 nth=9 text=\"{}\"", "n".repeat(32))));
        assert!(
            Slot { end_ns: SAMPLE_SLOT.start_ns, ..SAMPLE_SLOT }.event().is_some(),
            "it may last less than the clock tells"
        );
        for (start_ns, end_ns) in [(0, 5), (5, 0), (5, 4)] {
            assert!(Slot { start_ns, end_ns, ..SAMPLE_SLOT }.event().is_none());
        }
        let odd = Slot { name: name("a"), ..SAMPLE_SLOT };
        assert!(Slot { name: [0xff; NAME_BYTES], ..odd }.event().is_some_and(|e| e.to_text().contains('\u{fffd}')));
    }
}
