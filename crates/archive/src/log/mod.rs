//! `events.log`: what the probes recorded, in self-contained chunks.
//!
//! Each chunk has a sequence, times and checksums of its own: a damaged one is recognised, the next one is still good,
//! and the counts say how many events the damaged one had.
//!
//! A chunk is a header of 64 bytes and a payload. All numbers are little-endian.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | magic `F5 46 54 48 4D 4C 4F 47` (`õFTHMLOG`) |
//! | 8 | 2 | version of the log ([`crate::versions::LOG_VERSIONS`]) |
//! | 10 | 2 | flags; 1: the payload is an LZ4 block |
//! | 12 | 4 | bytes of the payload in the file |
//! | 16 | 4 | bytes of the payload, unpacked |
//! | 20 | 4 | events in it |
//! | 24 | 8 | when the log began (ns, CLOCK_BOOTTIME): the same in all chunks of one log |
//! | 32 | 8 | events in the chunks before it |
//! | 40 | 8 | first time in it |
//! | 48 | 8 | last time in it |
//! | 56 | 4 | CRC-32 of the payload as stored in the file |
//! | 60 | 4 | CRC-32 of the 60 bytes before |
//!
//! The payload consists of records, each preceded by its length in 4 bytes. Magic, version, the header's size and its
//! last CRC stay the same in every later version, so that an old reader can distinguish *newer* from *damaged*.
//!
//! # Damage
//!
//! A reader accepts a chunk only if both checksums match, it belongs to the same log, and it follows the chunks before it.
//! Otherwise the reader skips to the next magic. The skipped part becomes one `loss` event, in its place, whose interval is
//! that of the skipped chunk (if its header is intact) or of its neighbours, and whose count is exact as soon as a later
//! chunk gives the number of events before it. So damage can hide events but neither invent them nor go unnoticed, except
//! in a log cut off exactly at the end of a chunk; there `meta.json` helps, which records that a log is incomplete or how
//! many events the recorder stored.

mod reader;
mod writer;

pub use reader::{Damage, LogReader};
pub use writer::{LogSummary, LogWriter};

use model::record::Field;

/// First bytes of a chunk. The first is neither ASCII nor a UTF-8 lead byte, so that no text contains it.
pub const CHUNK_MAGIC: [u8; 8] = *b"\xf5FTHMLOG";

/// The payload is an LZ4 block.
const LZ4_FLAG: u16 = 1;

/// A payload is closed at this size (unpacked): about 20 ms of the fastest recording, so that a crash costs little,
/// and enough for LZ4's window of 64 KiB.
const CHUNK_BYTES: usize = 1 << 20;

/// A longer payload is damage: no writer produces one, and a reader must not be made to allocate it.
const PAYLOAD_BYTES_MAX: usize = 8 << 20;

pub use crate::layout::{RECORD_BYTES_MAX, events as path};

/// The header of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChunkHeader {
    version: u16,
    flags: u16,
    payload: u32,
    raw: u32,
    events: u32,
    began_ns: u64,
    before: u64,
    first_ns: u64,
    last_ns: u64,
    crc: u32,
}

impl ChunkHeader {
    const ENCODED_BYTES: usize = 64;

    fn encode(&self) -> Vec<u8> {
        let mut out = CHUNK_MAGIC.to_vec();
        self.version.put(&mut out);
        self.flags.put(&mut out);
        for x in [self.payload, self.raw, self.events] {
            x.put(&mut out);
        }
        for x in [self.began_ns, self.before, self.first_ns, self.last_ns] {
            x.put(&mut out);
        }
        self.crc.put(&mut out);
        crc32fast::hash(&out).put(&mut out);
        out
    }

    /// `None` unless the magic and the header's own checksum match.
    fn decode(bytes: &[u8; Self::ENCODED_BYTES]) -> Option<Self> {
        if bytes[..8] != CHUNK_MAGIC || crc32fast::hash(&bytes[..60]) != u32::get(&bytes[60..]) {
            return None;
        }
        Some(Self {
            version: u16::get(&bytes[8..]),
            flags: u16::get(&bytes[10..]),
            payload: u32::get(&bytes[12..]),
            raw: u32::get(&bytes[16..]),
            events: u32::get(&bytes[20..]),
            began_ns: u64::get(&bytes[24..]),
            before: u64::get(&bytes[32..]),
            first_ns: u64::get(&bytes[40..]),
            last_ns: u64::get(&bytes[48..]),
            crc: u32::get(&bytes[56..]),
        })
    }
}
