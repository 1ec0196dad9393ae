//! Writing the log. Nothing is forced to the medium before the end: an fsync while a disk is being observed would be
//! seen in every number. What a crash of the machine costs is thus what the kernel had not written back yet, and what
//! a crash of Fathom costs is the chunk being filled.

use super::{CHUNK, ChunkHeader, LZ4, MAX_RECORD};
use crate::error::{Error, Result, Tried};
use crate::versions;
use model::event::Header;
use model::record::Field;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// Events in the log.
    pub events: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Events that found no room.
    pub lost_events: u64,
}

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
    /// When the log's first chunk began; what its chunks are known by.
    began_ns: Option<u64>,
    raw: Vec<u8>,
    /// Where a chunk is packed; kept, as new memory would be asked for and given back with each.
    packed: Vec<u8>,
    raw_events: u32,
    first_ns: u64,
    last_ns: u64,
    full: Option<String>,
}

impl LogWriter {
    /// Begins the log of the archive `dir`, which must exist. `max_bytes` limits the file.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be made.
    pub fn create(dir: &Path, max_bytes: Option<u64>) -> Result<Self> {
        let path = super::path(dir);
        let file = File::create(&path).tried("make", &path)?;
        Ok(Self {
            file,
            path,
            max_bytes,
            // A chunk that does not fit is lost as a whole, so under a small limit chunks are small too.
            chunk: max_bytes.map_or(CHUNK, |max| usize::try_from(max / 8).unwrap_or(CHUNK).clamp(4096, CHUNK)),
            bytes: 0,
            events: 0,
            lost_events: 0,
            began_ns: None,
            raw: Vec::with_capacity(CHUNK + MAX_RECORD),
            packed: Vec::new(),
            raw_events: 0,
            first_ns: u64::MAX,
            last_ns: 0,
            full: None,
        })
    }

    /// Appends one record: header and body, as [`model::Event::encode`] or a probe makes it.
    ///
    /// # Errors
    /// [`Error::Full`] from the moment that the disk or the limit is reached: the caller ends the recording and keeps
    /// what there is. [`Error::BadRecord`] for bytes that cannot be a record; the log goes on.
    pub fn append(&mut self, record: &[u8]) -> Result<()> {
        if !(Header::SIZE..=MAX_RECORD).contains(&record.len()) {
            return Err(Error::BadRecord { bytes: record.len() });
        }
        if self.full.is_some() {
            self.lost_events += 1;
            return Err(self.full_error());
        }
        let time_ns = u64::get(record);
        self.first_ns = self.first_ns.min(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        (record.len() as u32).put(&mut self.raw);
        self.raw.extend_from_slice(record);
        self.raw_events += 1;
        if self.raw.len() >= self.chunk { self.sync_chunk() } else { Ok(()) }
    }

    /// Closes the chunk being filled and hands it to the kernel, so that a crash of this process costs nothing of it.
    /// Does nothing if it is empty.
    ///
    /// # Errors
    /// [`Error::Full`], with the chunk's events counted as lost and the file cut to its last whole chunk.
    pub fn sync_chunk(&mut self) -> Result<()> {
        if self.raw_events == 0 {
            return Ok(());
        }
        let began_ns = *self.began_ns.get_or_insert(self.first_ns);
        let room = lz4_flex::block::get_maximum_output_size(self.raw.len());
        if self.packed.len() < room {
            self.packed.resize(room, 0);
        }
        // It fits by the line above; what does not shrink stands as it is: reading it back is then a copy.
        let packed = lz4_flex::block::compress_into(&self.raw, &mut self.packed).unwrap_or(usize::MAX);
        let (flags, payload) = if packed < self.raw.len() { (LZ4, &self.packed[..packed]) } else { (0, &self.raw[..]) };
        let header = ChunkHeader {
            version: versions::newest(versions::LOG) as u16,
            flags,
            payload: payload.len() as u32,
            raw: self.raw.len() as u32,
            events: self.raw_events,
            began_ns,
            before: self.events,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            crc: crc32fast::hash(payload),
        };
        let size = (ChunkHeader::SIZE + payload.len()) as u64;
        let result = match self.max_bytes {
            Some(max) if self.bytes + size > max => {
                self.full = Some(format!("the limit of {max} bytes is reached"));
                Err(self.lose_chunk())
            }
            _ => match self.file.write_all(&header.encode()).and_then(|()| self.file.write_all(payload)) {
                Ok(()) => {
                    self.bytes += size;
                    self.events += u64::from(self.raw_events);
                    Ok(())
                }
                Err(e) => {
                    // Half a chunk is of no use, and its room is what meta.json may need.
                    let _ = self.file.set_len(self.bytes).and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)));
                    self.full = Some(e.to_string());
                    let full = self.lose_chunk();
                    Err(if out_of_room(&e) {
                        full
                    } else {
                        Error::Io { action: "write", path: self.path.clone(), source: e }
                    })
                }
            },
        };
        self.raw.clear();
        self.raw_events = 0;
        self.first_ns = u64::MAX;
        self.last_ns = 0;
        result
    }

    /// Bytes in the file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Closes the last chunk and brings the log to the medium. A log that became full finishes well: how many events
    /// found no room stands in the summary.
    ///
    /// # Errors
    /// [`Error::Io`] if the medium refuses.
    pub fn finish(mut self) -> Result<LogSummary> {
        match self.sync_chunk() {
            Ok(()) | Err(Error::Full { .. }) => {}
            Err(e) => return Err(e),
        }
        self.file.sync_all().tried("bring to the medium", &self.path)?;
        Ok(LogSummary { events: self.events, bytes: self.bytes, lost_events: self.lost_events })
    }

    fn lose_chunk(&mut self) -> Error {
        self.lost_events += u64::from(self.raw_events);
        self.full_error()
    }

    fn full_error(&self) -> Error {
        Error::Full {
            path: self.path.clone(),
            why: self.full.clone().unwrap_or_default(),
            kept_events: self.events,
            lost_events: self.lost_events,
        }
    }
}

/// No space, no quota, or a file as large as its limit (RLIMIT_FSIZE, file system) lets it be.
fn out_of_room(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}
