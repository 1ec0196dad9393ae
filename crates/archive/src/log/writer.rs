//! Writes the log. Nothing is synced to disk before the end: an fsync while a disk is being observed would show in
//! every number. So a crash of the machine costs what the kernel had not written back yet, and a crash of Fathom costs
//! the chunk being filled.
//!
//! When space runs out, a chunk that does not fit is split into smaller ones, and those that fit are kept. A little space is
//! left free on the disk, since `meta.json` is written after the log and an archive without it is worth less.

use super::{CHUNK_BYTES, ChunkHeader, LZ4_FLAG, RECORD_BYTES_MAX};
use crate::error::{Error, IoResultExt, NoRoom, Result};
use crate::meta::MetaRoom;
use crate::versions;
use model::event::Header;
use model::record::Field;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A summary of the written log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// Events in the log.
    pub events: u64,
    pub bytes: u64,
    /// Events for which there was no space.
    pub lost_events: u64,
    /// The earliest time of those, if there are any.
    pub lost_since_ns: Option<u64>,
}

/// A chunk that does not fit is split into parts down to this size, unpacked.
const SPLIT_BYTES_MIN: usize = 4096;

/// Bytes left free on a disk: `meta.json` takes 20 to 40 KiB, and twice that while it is replaced.
const DISK_FREE_BYTES_MIN: u64 = 96 << 10;
/// The same if `meta.json` has reserved space ([`MetaRoom`]).
const DISK_FREE_BYTES_MIN_IF_RESERVED: u64 = 16 << 10;

/// Writes `events.log`.
#[derive(Debug)]
pub struct LogWriter {
    file: File,
    path: PathBuf,
    max_bytes: Option<u64>,
    /// A chunk is closed at this size, unpacked.
    chunk: usize,
    /// Bytes of the whole chunks in the file.
    bytes: u64,
    /// Events in them.
    events: u64,
    lost_events: u64,
    lost_since_ns: Option<u64>,
    /// When the log's first chunk began, which identifies its chunks.
    began_ns: Option<u64>,
    raw: Vec<u8>,
    /// The buffer in which a chunk is packed; kept, to avoid allocating and freeing memory for each.
    packed: Vec<u8>,
    raw_events: u32,
    full: Option<NoRoom>,
}

impl LogWriter {
    /// Begins the log of the archive `dir`, which must exist. `max_bytes` limits the file.
    pub fn create(dir: &Path, max_bytes: Option<u64>) -> Result<Self> {
        let path = super::path(dir);
        let file = File::create(&path).with_action("create", &path)?;
        Ok(Self {
            file,
            path,
            max_bytes,
            // A chunk that does not fit is lost as a whole, so under a small limit chunks are small too.
            chunk: max_bytes
                .map_or(CHUNK_BYTES, |max| usize::try_from(max / 8).unwrap_or(CHUNK_BYTES).clamp(4096, CHUNK_BYTES)),
            bytes: 0,
            events: 0,
            lost_events: 0,
            lost_since_ns: None,
            began_ns: None,
            raw: Vec::with_capacity(CHUNK_BYTES + RECORD_BYTES_MAX),
            packed: Vec::new(),
            raw_events: 0,
            full: None,
        })
    }

    /// Appends one record: header and body, as [`model::Event::encode`] or a probe makes it.
    ///
    /// # Errors
    /// [`Error::Full`] once the disk or the limit is reached: the caller ends the recording and keeps what was written.
    /// [`Error::BadRecord`] for bytes that cannot be a record; the log remains usable.
    pub fn append(&mut self, record: &[u8]) -> Result<()> {
        if !(Header::SIZE..=RECORD_BYTES_MAX).contains(&record.len()) {
            return Err(Error::BadRecord { bytes: record.len() });
        }
        if let Some(why) = self.full.clone() {
            self.count_lost(1, u64::get(record));
            return Err(self.full_error(why));
        }
        (record.len() as u32).put(&mut self.raw);
        self.raw.extend_from_slice(record);
        self.raw_events += 1;
        if self.raw.len() >= self.chunk { self.sync_chunk() } else { Ok(()) }
    }

    /// Closes the chunk being filled and hands it to the kernel, so that a crash of this process loses nothing of it.
    /// Does nothing if it is empty.
    ///
    /// # Errors
    /// [`Error::Full`], with those of the chunk's events that did not fit counted as lost, and the file truncated to its
    /// last complete chunk.
    pub fn sync_chunk(&mut self) -> Result<()> {
        if self.raw_events == 0 {
            return Ok(());
        }
        let raw = std::mem::take(&mut self.raw);
        let result = self.write_chunks(&raw);
        self.raw = raw;
        self.raw.clear();
        self.raw_events = 0;
        result
    }

    /// Writes records as one chunk or, when space runs out, as many smaller ones as fit.
    fn write_chunks(&mut self, records: &[u8]) -> Result<()> {
        let (mut rest, mut size) = (records, records.len());
        while !rest.is_empty() {
            let part = Prefix::from_records(rest, size);
            let why = match self.write(&rest[..part.bytes], part) {
                Ok(None) => {
                    rest = &rest[part.bytes..];
                    continue;
                }
                Ok(Some(why)) => why,
                Err(error) => {
                    self.full = Some(NoRoom::Disk(error.to_string()));
                    let left = Prefix::from_records(rest, usize::MAX);
                    self.count_lost(left.events.into(), left.first_ns);
                    return Err(Error::Io { action: "write", path: self.path.clone(), source: error });
                }
            };
            if part.events > 1 && part.bytes > SPLIT_BYTES_MIN {
                size = part.bytes / 2;
                continue;
            }
            self.full = Some(why.clone());
            let left = Prefix::from_records(rest, usize::MAX);
            self.count_lost(left.events.into(), left.first_ns);
            return Err(self.full_error(why));
        }
        Ok(())
    }

    /// Writes a chunk, or returns why there is no space for it and leaves the file as it was.
    fn write(&mut self, raw: &[u8], part: Prefix) -> std::io::Result<Option<NoRoom>> {
        let began_ns = *self.began_ns.get_or_insert(part.first_ns);
        let room = lz4_flex::block::get_maximum_output_size(raw.len());
        if self.packed.len() < room {
            self.packed.resize(room, 0);
        }
        // The buffer is large enough; data that does not shrink is stored as it is: reading it back is then a copy.
        let packed = lz4_flex::block::compress_into(raw, &mut self.packed).unwrap_or(usize::MAX);
        let (flags, payload) = if packed < raw.len() { (LZ4_FLAG, &self.packed[..packed]) } else { (0, raw) };
        let header = ChunkHeader {
            version: versions::newest(versions::LOG_VERSIONS) as u16,
            flags,
            payload: payload.len() as u32,
            raw: raw.len() as u32,
            events: part.events,
            began_ns,
            before: self.events,
            first_ns: part.first_ns,
            last_ns: part.last_ns,
            crc: crc32fast::hash(payload),
        };
        let size = (ChunkHeader::ENCODED_BYTES + payload.len()) as u64;
        if let Some(max) = self.max_bytes.filter(|max| self.bytes + size > *max) {
            return Ok(Some(NoRoom::Limit { bytes: max }));
        }
        if let Some(free) = free_disk_bytes(&self.file).filter(|free| *free < size + DISK_FREE_BYTES_MIN) {
            let dir = self.path.parent().unwrap_or(&self.path);
            let spared = if MetaRoom::is_held(dir) { DISK_FREE_BYTES_MIN_IF_RESERVED } else { DISK_FREE_BYTES_MIN };
            if free < size + spared {
                let why = format!("No space left on device, except {} KiB reserved for its metadata", spared >> 10);
                return Ok(Some(NoRoom::Disk(why)));
            }
        }
        match self.file.write_all(&header.encode()).and_then(|()| self.file.write_all(payload)) {
            Ok(()) => {
                self.bytes += size;
                self.events += u64::from(part.events);
                Ok(None)
            }
            Err(e) => {
                // Half a chunk is of no use, and meta.json may need its space.
                let _ = self.file.set_len(self.bytes).and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)));
                if out_of_room(&e) { Ok(Some(NoRoom::Disk(e.to_string()))) } else { Err(e) }
            }
        }
    }

    /// Bytes in the file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Closes the last chunk and syncs the log to disk. A full log is no error here: the summary has the number of
    /// events that did not fit.
    ///
    /// # Errors
    /// [`Error::Io`] if the disk refuses.
    pub fn finish(mut self) -> Result<LogSummary> {
        match self.sync_chunk() {
            Ok(()) | Err(Error::Full { .. }) => {}
            Err(e) => return Err(e),
        }
        self.file.sync_all().with_action("sync", &self.path)?;
        Ok(LogSummary {
            events: self.events,
            bytes: self.bytes,
            lost_events: self.lost_events,
            lost_since_ns: self.lost_since_ns,
        })
    }

    fn count_lost(&mut self, events: u64, first_ns: u64) {
        self.lost_events += events;
        self.lost_since_ns = Some(self.lost_since_ns.map_or(first_ns, |since| since.min(first_ns)));
    }

    fn full_error(&self, why: NoRoom) -> Error {
        Error::Full { path: self.path.clone(), why, kept_events: self.events, lost_events: self.lost_events }
    }
}

/// The first records of a payload.
#[derive(Debug, Clone, Copy)]
struct Prefix {
    bytes: usize,
    events: u32,
    first_ns: u64,
    last_ns: u64,
}

impl Prefix {
    /// The first records that take at most `bytes_max` bytes, but at least one. `records` are whole records, each preceded by
    /// its length.
    fn from_records(records: &[u8], bytes_max: usize) -> Self {
        let mut part = Self { bytes: 0, events: 0, first_ns: u64::MAX, last_ns: 0 };
        while let Some((length, rest)) = records[part.bytes..].split_first_chunk() {
            let next = part.bytes + 4 + u32::from_le_bytes(*length) as usize;
            if part.events > 0 && next > bytes_max {
                break;
            }
            let time_ns = u64::get(rest);
            (part.first_ns, part.last_ns) = (part.first_ns.min(time_ns), part.last_ns.max(time_ns));
            (part.bytes, part.events) = (next, part.events + 1);
        }
        part
    }
}

/// Bytes that can still be written to the disk of a file, if its file system reports them.
fn free_disk_bytes(file: &File) -> Option<u64> {
    // SAFETY: a structure of integers, for which zero is valid.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure lives until the call returns.
    let done = unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut about) };
    // SAFETY: a call without arguments that cannot fail.
    let blocks = if unsafe { libc::geteuid() } == 0 { about.f_bfree } else { about.f_bavail };
    // A file system without a limit has no blocks (a tmpfs with size=0, many in user space).
    (done == 0 && about.f_blocks > 0).then(|| (blocks as u64).saturating_mul(about.f_frsize as u64))
}

/// No space, no quota, or a file at its size limit (RLIMIT_FSIZE, file system).
fn out_of_room(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}
