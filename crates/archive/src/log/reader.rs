//! Reads the log, whatever has happened to it.

use super::{CHUNK_MAGIC, ChunkHeader, LZ4_FLAG, PAYLOAD_BYTES_MAX};
use crate::error::{IoResultExt, Result};
use crate::{Meta, versions};
use model::event::{ANY_CPU, Header, Loss};
use model::{Event, LossSource};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The parts of a log that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damage {
    /// Places that were skipped, with one `loss` event for each.
    pub places: u64,
    /// `loss` events for damage.
    pub tellings: u64,
    /// Bytes in the places.
    pub bytes: u64,
    /// Events that are known to be missing.
    pub events: u64,
    /// Whether more than `events` may be missing.
    pub at_least: bool,
    /// Records of a kind that this program does not know (a newer minor version); counted in `events`.
    pub unknown_records: u64,
    /// Why the system did not hand out the rest of the file.
    pub unreadable: Option<String>,
}

impl Damage {
    /// Whether nothing is damaged.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads `events.log` from its begin to its end, a chunk at a time.
#[derive(Debug)]
pub struct LogReader<R = File> {
    source: R,
    len: u64,
    /// Where the next chunk should be.
    at: u64,
    /// The start time that all chunks of this log, and no others, have.
    began_ns: Option<u64>,
    /// How many events the chunks up to `at` hold.
    before: u64,
    /// Last time in those chunks.
    last_ns: Option<u64>,
    ready: VecDeque<Event>,
    damage: Damage,
    ended: bool,
    /// Bytes of the file from `window_at` on, kept while searching for a magic: false ones may follow each other closely.
    window: Vec<u8>,
    window_at: u64,
    /// Bytes of payloads that were read and then rejected.
    rejected_bytes: u64,
}

/// Bytes searched at a time.
const WINDOW_BYTES: u64 = 64 << 10;

/// LZ4 expands one byte to at most 255 (its block format, "the end of block conditions").
const LZ4_EXPANSION_MAX: usize = 255;

/// The content at an offset of the file.
enum OffsetContent {
    Chunk(ChunkHeader, Vec<u8>),
    /// No valid chunk; with the header if that is intact and of this log.
    Bad(Option<ChunkHeader>),
}

impl LogReader<File> {
    /// Opens the log of the archive `dir`. A missing or damaged `meta.json` does not prevent that; a newer one does.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if there is no log, [`crate::Error::Newer`].
    pub fn open(dir: &Path) -> Result<Self> {
        let made_by = match Meta::read(dir) {
            Ok(meta) => meta.made_by,
            Err(newer @ crate::Error::Newer { .. }) => return Err(newer),
            // The log is authoritative and self-contained: it must be readable without the file next to it.
            Err(_) => "a newer Fathom".into(),
        };
        let path = super::path(dir);
        Self::new(crate::own_file::open(&path).with_action("open", &path)?, &path, &made_by)
    }
}

impl<R: Read + Seek> LogReader<R> {
    /// Reads a log from anywhere. `path` and `made_by` are for messages.
    ///
    /// # Errors
    /// [`crate::Error::Newer`], [`crate::Error::Io`].
    pub fn new(mut source: R, path: &Path, made_by: &str) -> Result<Self> {
        let len = source.seek(SeekFrom::End(0)).with_action("read", path)?;
        let mut reader = Self {
            source,
            len,
            at: 0,
            began_ns: None,
            before: 0,
            last_ns: None,
            ready: VecDeque::new(),
            damage: Damage::default(),
            ended: false,
            window: Vec::new(),
            window_at: 0,
            rejected_bytes: 0,
        };
        if let Some(first) = reader.read_header(0) {
            versions::check_version(
                path,
                "log",
                first.version.into(),
                versions::newest(versions::LOG_VERSIONS),
                made_by,
            )?;
        }
        Ok(reader)
    }

    /// Returns the next event in file order, which is roughly but not exactly time order (each CPU writes its own).
    /// Damage is returned as a `loss` event of [`ANY_CPU`] and source [`LossSource::Damage`].
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            self.next_chunk();
        }
    }

    /// What could not be read, so far.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Returns the position of the reader and the size of the log, in bytes.
    pub fn progress(&self) -> (u64, u64) {
        (self.at, self.len)
    }

    fn next_chunk(&mut self) {
        let from = self.at;
        // The first broken chunk with an intact header gives the time of the missing events.
        let mut broken: Option<ChunkHeader> = None;
        let mut place = from;
        while place < self.len {
            match self.read_chunk(place) {
                OffsetContent::Chunk(header, raw) => {
                    if place > from || header.before > self.before {
                        self.report_lost(from, place, broken, Some(&header));
                    }
                    self.at = place + ChunkHeader::ENCODED_BYTES as u64 + u64::from(header.payload);
                    self.before = header.before + u64::from(header.events);
                    self.began_ns = Some(header.began_ns);
                    self.unpack(&header, &raw);
                    self.last_ns = Some(self.last_ns.unwrap_or(0).max(header.last_ns));
                    return;
                }
                OffsetContent::Bad(header) => {
                    // The length in an intact header is trusted too, if a chunk follows there. A text within its
                    // payload might look like a chunk.
                    let behind = header.map(|h| place + ChunkHeader::ENCODED_BYTES as u64 + u64::from(h.payload));
                    broken = broken.or(header);
                    place = match behind {
                        Some(behind) if behind <= self.len && self.read_header(behind).is_some() => behind,
                        _ => self.next_magic(place + 1),
                    };
                }
            }
        }
        if from < self.len {
            self.report_lost(from, self.len, broken, None);
        }
        self.at = self.len;
        self.ended = true;
    }

    /// The header at an offset, if it belongs to this log.
    fn read_header(&mut self, at: u64) -> Option<ChunkHeader> {
        let mut bytes = [0; ChunkHeader::ENCODED_BYTES];
        if self.len.checked_sub(at)? < bytes.len() as u64 {
            return None;
        }
        self.read(at, &mut bytes)?;
        ChunkHeader::decode(&bytes).filter(|h| self.began_ns.is_none_or(|b| b == h.began_ns))
    }

    fn read_chunk(&mut self, at: u64) -> OffsetContent {
        let Some(header) = self.read_header(at) else { return OffsetContent::Bad(None) };
        let (payload, raw) = (header.payload as usize, header.raw as usize);
        let room = self.len - at - ChunkHeader::ENCODED_BYTES as u64;
        let believable = header.version <= versions::newest(versions::LOG_VERSIONS) as u16
            && header.before >= self.before
            && header.before.checked_add(header.events.into()).is_some()
            && raw <= PAYLOAD_BYTES_MAX
            && u64::from(header.payload) <= room.min(PAYLOAD_BYTES_MAX as u64)
            // Each event has at least its length and its header.
            && header.events as usize <= raw / (4 + Header::SIZE)
            && (header.flags != LZ4_FLAG || raw <= payload.saturating_add(1).saturating_mul(LZ4_EXPANSION_MAX))
            // Chunks do not overlap, so all damaged payloads together are no longer than the file: a log crafted to be
            // slow is not searched any further.
            && self.rejected_bytes <= self.len.saturating_mul(2);
        if !believable {
            return OffsetContent::Bad(Some(header));
        }
        let mut bytes = vec![0; payload];
        if self.read(at + ChunkHeader::ENCODED_BYTES as u64, &mut bytes).is_none()
            || crc32fast::hash(&bytes) != header.crc
        {
            self.rejected_bytes += u64::from(header.payload);
            return OffsetContent::Bad(Some(header));
        }
        let raw = match header.flags {
            LZ4_FLAG => lz4_flex::block::decompress(&bytes, raw).ok().filter(|b| b.len() == raw),
            0 if payload == raw => Some(bytes),
            _ => None,
        };
        match raw {
            Some(raw) => OffsetContent::Chunk(header, raw),
            None => {
                self.rejected_bytes += u64::from(header.payload);
                OffsetContent::Bad(Some(header))
            }
        }
    }

    /// Fills `bytes`, or remembers why not and treats the file as ending there.
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Option<()> {
        let within = at.checked_sub(self.window_at).and_then(|from| usize::try_from(from).ok());
        if let Some(known) = within.and_then(|from| self.window.get(from..from.checked_add(bytes.len())?)) {
            bytes.copy_from_slice(known);
            return Some(());
        }
        match self.source.seek(SeekFrom::Start(at)).and_then(|_| self.source.read_exact(bytes)) {
            Ok(()) => Some(()),
            Err(e) => {
                self.damage.unreadable.get_or_insert(e.to_string());
                None
            }
        }
    }

    /// The first offset from `at` on that has a magic, or the end of the file.
    fn next_magic(&mut self, mut at: u64) -> u64 {
        while at + (CHUNK_MAGIC.len() as u64) <= self.len {
            let seen = at.checked_sub(self.window_at).and_then(|from| self.window.get(usize::try_from(from).ok()?..));
            if let Some(seen) = seen.filter(|seen| seen.len() >= CHUNK_MAGIC.len()) {
                let hit = seen
                    .iter()
                    .enumerate()
                    .find(|(i, b)| **b == CHUNK_MAGIC[0] && seen[*i..].starts_with(&CHUNK_MAGIC));
                if let Some((i, _)) = hit {
                    return at + i as u64;
                }
                // A magic may lie across the edge of two windows.
                at += (seen.len() + 1 - CHUNK_MAGIC.len()) as u64;
                continue;
            }
            let mut window = vec![0; WINDOW_BYTES.min(self.len - at) as usize];
            if self.read(at, &mut window).is_none() {
                return self.len;
            }
            (self.window, self.window_at) = (window, at);
        }
        self.len
    }

    /// Reports the bytes between `from` and `to`, which `next` follows, as lost.
    fn report_lost(&mut self, from: u64, to: u64, broken: Option<ChunkHeader>, next: Option<&ChunkHeader>) {
        let known = broken.filter(|h| self.began_ns.is_none_or(|b| b == h.began_ns));
        let exactly = next.map(|n| n.before - self.before);
        let events = exactly.unwrap_or(known.map_or(0, |h| u64::from(h.events)));
        let begin = self.last_ns.or(next.or(known.as_ref()).map(|h| h.began_ns)).unwrap_or(0);
        let end = next.map_or(0, |n| n.first_ns).max(known.map_or(0, |h| h.last_ns)).max(begin);
        self.damage.places += 1;
        self.damage.bytes += to - from;
        self.push_loss(known.map_or(begin, |h| begin.min(h.first_ns)), end, events, exactly.is_none());
    }

    fn push_loss(&mut self, start_ns: u64, end_ns: u64, events: u64, at_least: bool) {
        self.damage.events = self.damage.events.saturating_add(events);
        self.damage.at_least |= at_least;
        self.damage.tellings += 1;
        let loss =
            Loss { start_ns, events, bound: at_least.into(), source: LossSource::Damage.number(), ..Loss::default() };
        let header = Header { time_ns: end_ns, cpu: ANY_CPU, kind: Loss::INFO.kind, ..Header::default() };
        self.ready.push_back(Event { header, record: loss.into() });
    }

    /// Takes the records out of a chunk. Unknown records are counted: a newer minor version may have new kinds.
    fn unpack(&mut self, header: &ChunkHeader, mut raw: &[u8]) {
        let mut good = 0;
        while let Some((len, rest)) = raw.split_first_chunk::<4>() {
            let Some((record, rest)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else { break };
            if let Some(event) = Event::decode(record) {
                self.ready.push_back(event);
                good += 1;
            }
            raw = rest;
        }
        let unknown = u64::from(header.events).saturating_sub(good);
        if unknown > 0 {
            self.damage.unknown_records += unknown;
            self.push_loss(header.first_ns, header.last_ns, unknown, false);
        }
    }
}

impl<R: Read + Seek> Iterator for LogReader<R> {
    type Item = Event;
    fn next(&mut self) -> Option<Event> {
        self.next_event()
    }
}
