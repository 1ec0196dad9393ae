//! A node's store: a file, a block device or memory, with a checksum for every block.
//!
//! ```text
//!  0                    data                     table                    end - 8192      end - 4096     end
//!  | data of the pool's disk | 8 bytes for each block | (to a multiple of 4096) | header 0 | header 1 |
//! ```
//!
//! The data comes first, so that an existing image can be imported in place, and any tool can read it. The table has two
//! CRC-32C for each block of 4 KiB, for its possible contents: usually equal, and different for a block whose last write
//! failed, or was cut short in an older release. A sum of 0 stands for "reads as zeroes"; a checksum that is 0 is stored as
//! 1.
//!
//! After a power failure, table and data may have reached the medium in any order since the last flush. So a **region** is
//! marked in the header, durably, before it is written ([`regions`]), and while it is marked its sums are only in memory:
//! those on the medium are written before the mark is removed ([`sums`]). After an unclean shutdown the data of marked
//! regions is accepted as it is, as on a plain disk. Elsewhere a block that matches neither sum is an error, and wrong data
//! is never returned. The marks also show where acknowledged writes may be lost after a restart of the machine.
//!
//! The headers are at the very end, even on a device that is longer than needed, where they are found without knowing the
//! size. They are written alternately, each durably before the next. The one with the higher sequence number and a valid
//! checksum is current, so that one torn header does no harm.

use crate::flash::Flash;
use crate::frame::{STRETCHES_MAX, Status, Stretch};
use crate::memory;
use crate::protocol::{LossCause, StorePosition};
use crate::refusal::Refusal;
use crate::unique_name::new_name;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

mod at_hand;
mod claims;
mod direct;
mod dirty;
mod disk;
mod error;
mod faults;
mod flushes;
mod header;
mod large;
mod locks;
mod loss;
mod map;
mod medium;
mod regions;
mod settler;
mod sums;
mod table;
mod verify;

pub use direct::FilesOffer;
pub(crate) use direct::{DirectReader, Witness};
pub use dirty::WriteBack;
use disk::Disk;
pub use error::Error;
use faults::Faults;
pub use faults::Kind as FaultKind;
pub(crate) use faults::Limit as LineLimit;
use flushes::Flushes;
use header::{HEADER_BYTES, read_header};
pub use header::{Header, data_bytes, store_bytes};
use locks::LOCK_COUNT;
use loss::Observer;
pub use loss::Recovery;
use map::Map;
use medium::{MediumId, boot, file_length, open_exclusively, reads_as_zeroes};
use regions::{Regions, WriteInProgress};
use settler::IdleSignal;
pub use settler::Settler;
use sums::{UNSEEN_SUMS, either_pair, is_settled, settled_pair};
use table::Table;

/// Bytes of a block: the unit of checksums.
pub const BLOCK_BYTES: u64 = 4096;
/// The size of the pieces of a trim.
const TRIM_PIECE_BYTES: u64 = 1 << 20;

/// An open store. Thread-safe.
#[derive(Debug)]
pub struct Store {
    disk: Disk,
    /// Its file or device, for messages; empty if it is in memory.
    path: PathBuf,
    faults: Faults,
    /// The mapped bytes, if it is in memory.
    map: Option<Map>,
    /// Held while a header is written, which takes as long as the medium takes.
    header: Mutex<Header>,
    /// The header's, without its lock; and when it was opened.
    sequence: AtomicU64,
    opened_sequence: u64,
    /// A unique name of this open store.
    instance: String,
    /// The current header, for those who must not wait for that.
    current: Mutex<Header>,
    size_bytes: u64,
    /// Offset of the headers.
    headers_at: u64,
    /// The sums of each block ([`sums`]).
    table: Table,
    locks: Vec<Mutex<()>>,
    /// Whether a block had two sums, here or on the medium, of which one may be known to be wrong by now.
    may_have_two_sums: AtomicBool,
    flushes: Flushes,
    /// `None` in memory, which does not survive a power failure.
    regions: Option<Regions>,
    idle: IdleSignal,
    /// Held while marks are removed.
    settle_lock: Mutex<()>,
    /// The boot of the machine, and the medium.
    boot: String,
    medium: Option<MediumId>,
    recovery: Option<Recovery>,
    /// What was marked when it was opened, if only the last process had ended.
    marked_when_opened: Vec<std::ops::Range<u64>>,
    /// Whether the file system must be asked for writes that it lost before this process opened the store.
    inherits: AtomicBool,
    /// Whether the header in memory has a loss that is not on the medium.
    unsaved_loss: AtomicBool,
    /// Whether the file system still has a notice of a failed flush that is recorded.
    is_noticed: AtomicBool,
    /// Whether a durable write returned an error that may be the notice of another lost write.
    is_suspect: AtomicBool,
    losses: Observer,
    /// The flash whose speed it simulates, if any.
    flash: Option<Flash>,
}

/// Checks whether a store with this pool and position is the wanted one; a store without them is free.
pub(crate) fn check_belongs(
    has: (&str, Option<&StorePosition>),
    wanted: (&str, &StorePosition),
) -> Result<(), Refusal> {
    if !has.0.is_empty() && has.0 != wanted.0 {
        return Err(Refusal::OtherPool { has: has.0.into(), wanted: wanted.0.into() });
    }
    match has.1.filter(|known| *known != wanted.1) {
        None => Ok(()),
        Some(known) => Err(Refusal::OtherPosition { has: Box::new(known.clone()), wanted: Box::new(wanted.1.clone()) }),
    }
}

/// Checks whether the checksums of a store of this size fit into memory: otherwise the process would abort when allocating them.
fn check_table_fits(path: &Path, size_bytes: u64) -> Result<(), Error> {
    let (needed_bytes, total_bytes) = (size_bytes / BLOCK_BYTES * size_of::<AtomicU64>() as u64, memory::total_bytes());
    if needed_bytes > total_bytes {
        return Err(Error::Memory { path: path.into(), size_bytes, needed_bytes, total_bytes });
    }
    Ok(())
}

fn checksum(block: &[u8]) -> u32 {
    crate::checksum::crc32c(block).max(1)
}

/// The sum of a block as stored in the table.
fn sum_of(block: &[u8]) -> u32 {
    if is_zero(block) { 0 } else { checksum(block) }
}

impl Store {
    /// Creates a store of `size_bytes` (rounded down to blocks) in the file or device `path`; a file is created if it does
    /// not exist. A device keeps its own size. `import` keeps the existing content as data.
    ///
    /// # Errors
    /// [`Error`]; nothing was changed then.
    pub fn format(path: &Path, size_bytes: Option<u64>, node: String, import: bool) -> Result<Self, Error> {
        let (file, created) = open_exclusively(path, true)?;
        let made = Self::format_file(path, file, size_bytes, node, import);
        if made.is_err() && created {
            // It contains nothing. If it cannot be removed, the first error is the one to report.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn format_file(
        path: &Path,
        file: File,
        size_bytes: Option<u64>,
        node: String,
        import: bool,
    ) -> Result<Self, Error> {
        let tried = |action| move |source| Error::Io { action, path: path.into(), source };
        let there = file_length(&file).map_err(tried("measure"))?;
        match read_header(path, &file, there) {
            Ok(header) => return Err(Error::Exists { path: path.into(), node: header.node }),
            Err(Error::Unformatted { .. }) => {}
            Err(error) => return Err(error),
        }
        let device = file.metadata().map_err(tried("measure"))?.file_type().is_block_device();
        let empty = !import && (there == 0 || reads_as_zeroes(&file, 0, there).map_err(tried("read"))?);
        if !import && !empty {
            return Err(Error::NotEmpty { path: path.into() });
        }
        let wanted = match (device, size_bytes, import) {
            (true, None, _) => data_bytes(there),
            (_, Some(size), _) => size,
            (false, None, true) => there.next_multiple_of(BLOCK_BYTES),
            (false, None, false) => {
                let why = "no size given, such as --size 10G".into();
                return Err(Error::Size { path: path.into(), why });
            }
        };
        let size_bytes = wanted - wanted % BLOCK_BYTES;
        check_table_fits(path, size_bytes)?;
        let whole = store_bytes(size_bytes);
        let wrong = |why: String| Err(Error::Size { path: path.into(), why });
        if size_bytes == 0 {
            return wrong(format!("a store has at least one block of {BLOCK_BYTES} bytes"));
        }
        if device && whole > there {
            return wrong(format!("it has {there} bytes, but a store of {size_bytes} bytes needs {whole}"));
        }
        if import && there > size_bytes && !device {
            return wrong(format!("its content has {there} bytes, more than the {size_bytes} of the store"));
        }
        if import && device && !reads_as_zeroes(&file, size_bytes, there).map_err(tried("read"))? {
            return wrong(format!("it has content after the first {size_bytes} bytes, where the checksums must go"));
        }
        if !device {
            file.set_len(whole).map_err(tried("set the size of"))?;
        }
        let end = if device { there } else { whole };
        let disk = Disk::new(file).map_err(tried("open again"))?;
        let store = Self { path: path.into(), ..Self::new(disk, Header::new(node, size_bytes), end) };
        // A header implies that everything before it is written: so it comes last.
        store.reserve_table();
        let filled = if import { store.sum_existing_content() } else { Ok(()) }.and_then(|()| store.disk.sync());
        let written = filled.and_then(|()| store.write_header(|_| {}));
        if let Err(source) = written {
            // Restores the file; if that fails too, the first error is the one to report.
            if !device {
                let _ = store.disk.set_length(there);
            }
            return Err(Error::Io { action: "write", path: path.into(), source });
        }
        Ok(store)
    }

    /// Creates a store in memory.
    ///
    /// # Errors
    /// [`Error::Io`] if the memory cannot be allocated.
    pub fn memory(size_bytes: u64, node: String) -> Result<Self, Error> {
        let path = PathBuf::from("memory");
        let tried = |action| {
            let path = path.clone();
            move |source| Error::Io { action, path, source }
        };
        let file = rustix::fs::memfd_create("fathom-pool-store", rustix::fs::MemfdFlags::CLOEXEC);
        let file = File::from(file.map_err(|e| tried("create")(e.into()))?);
        let size_bytes = size_bytes - size_bytes % BLOCK_BYTES;
        let whole = store_bytes(size_bytes);
        file.set_len(whole).map_err(tried("create"))?;
        let map = Map::new(&file, whole).map_err(tried("map"))?;
        let store = Self::new(Disk::memory(file), Header::new(node, size_bytes), whole);
        Ok(Self { map: Some(map), regions: None, ..store })
    }

    /// Opens a store.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let tried = |action| move |source| Error::Io { action, path: path.into(), source };
        let (file, _) = open_exclusively(path, false)?;
        let there = file_length(&file).map_err(tried("measure"))?;
        let disk = Disk::new(file).map_err(tried("open again"))?;
        // A header whose write failed is in memory, as a clean page, and will not be on the medium.
        let headers_at = there.saturating_sub(2 * HEADER_BYTES);
        disk.drop_cached(headers_at - headers_at % BLOCK_BYTES, 3 * HEADER_BYTES);
        let header = read_header(path, disk.file(), there)?;
        check_table_fits(path, header.size_bytes)?;
        let mut store = Self { path: path.into(), ..Self::new(disk, header, there) };
        for (begin, bytes) in store.header().lost {
            // After a failed flush the kernel may still have the lost data in memory, as clean pages, and drop it later.
            store.disk.drop_cached(begin, bytes);
        }
        store.load_table().map_err(tried("read"))?;
        // First: a flush that succeeds counts for what is marked.
        store.flushes.set_failed(!store.header().lost.is_empty());
        store.recovery = store.recover().map_err(tried("recover"))?;
        store.flushes.set_failed(!store.header().lost.is_empty());
        store.reserve_table();
        Ok(store)
    }

    /// The consequences of an unclean shutdown, found when it was opened.
    pub fn recovery(&self) -> Option<Recovery> {
        self.recovery
    }

    /// The same store, with the read latency of a flash.
    #[must_use]
    pub fn with_flash(self, flash: Option<Flash>) -> Self {
        Self { flash, ..self }
    }

    fn new(disk: Disk, header: Header, end: u64) -> Self {
        let size_bytes = header.size_bytes;
        let regions = Regions::new(header.region_bytes, size_bytes, &header.marked);
        let blocks = (size_bytes / BLOCK_BYTES) as usize;
        let table = if disk.is_durable() { Table::new_shared(blocks) } else { Table::new_private(blocks) };
        Self {
            medium: MediumId::from_file(disk.file()),
            disk,
            path: PathBuf::new(),
            faults: Faults::default(),
            map: None,
            sequence: AtomicU64::new(header.sequence),
            opened_sequence: header.sequence,
            instance: new_name(),
            current: Mutex::new(header.clone()),
            header: Mutex::new(header),
            size_bytes,
            headers_at: end - 2 * HEADER_BYTES,
            table,
            locks: (0..LOCK_COUNT).map(|_| Mutex::new(())).collect(),
            may_have_two_sums: AtomicBool::new(false),
            flushes: Flushes::default(),
            regions: Some(regions),
            idle: IdleSignal::default(),
            settle_lock: Mutex::default(),
            boot: boot(),
            recovery: None,
            marked_when_opened: Vec::new(),
            inherits: AtomicBool::new(false),
            unsaved_loss: AtomicBool::new(false),
            is_noticed: AtomicBool::new(false),
            is_suspect: AtomicBool::new(false),
            losses: Observer::default(),
            flash: None,
        }
    }

    /// Bytes of data.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The free bytes of its file system, if they are fewer than the holes of its file will need when they are written.
    pub fn insufficient_free_bytes(&self) -> Option<u64> {
        let file = self.disk.file().metadata().ok().filter(|m| m.file_type().is_file())?;
        let system = rustix::fs::fstatvfs(self.disk.file()).ok()?;
        // A sparse file's holes still need space, its allocated blocks do not.
        use std::os::unix::fs::MetadataExt as _;
        let missing = file.len().saturating_sub(file.blocks() * 512);
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        (free < missing).then_some(free)
    }

    /// The current header; does not wait for the medium.
    pub fn header(&self) -> Header {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether acknowledged writes may not be flushed. Fewer regions than are marked: a mark stays for a while after the flush.
    pub fn has_unflushed(&self) -> bool {
        let is_unflushed = self.regions.as_ref().is_some_and(|regions| regions.unflushed().next().is_some());
        is_unflushed || self.flushes.has_failed()
    }

    /// Whether it is on a medium.
    pub fn is_durable(&self) -> bool {
        self.disk.is_durable()
    }

    /// The sequence number of the current header.
    pub fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// A name that no other open store has had.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Bytes of the blocks that are not known to be zero.
    pub fn used_bytes(&self) -> u64 {
        self.table.iter().filter(|entry| entry.load(Ordering::Relaxed) != 0).count() as u64 * BLOCK_BYTES
    }

    /// Whether all blocks are known to be zero.
    pub fn is_empty(&self) -> bool {
        self.table.iter().all(|entry| entry.load(Ordering::Relaxed) == 0)
    }

    /// Closes the store cleanly: everything is on the medium, and each block has one sum. Nothing may be written afterwards.
    pub fn close(&self) -> io::Result<()> {
        self.flush().map_err(io::Error::other)?;
        self.settle(u64::MAX, u64::MAX)?;
        if self.may_have_two_sums.load(Ordering::Acquire) {
            self.write_table()?;
            self.flush().map_err(io::Error::other)?;
        }
        // A block that was not checked since an unclean shutdown keeps both its sums.
        let settled = self.table.iter().all(|entry| is_settled(entry.load(Ordering::Relaxed)));
        self.write_header(|h| h.clean = settled && h.marked.is_empty())
    }

    /// Announces writes that will follow one after the other: the first that has to mark its regions marks those of all, so
    /// that the medium is waited for only once.
    pub fn announce(&self, writes: impl Iterator<Item = (u64, u64)>) {
        let Some(regions) = &self.regions else { return };
        for (offset, length) in
            writes.filter(|(offset, length)| *length > 0 && self.check_range(*offset, *length).is_ok())
        {
            regions.announce(offset, length);
        }
    }

    /// Prepares a write to a range: its regions are marked on the medium when this returns.
    fn mark_for_write(&self, offset: u64, length: u64) -> Result<Option<WriteInProgress<'_>>, Status> {
        let Some(regions) = &self.regions else { return Ok(None) };
        let entered = regions.begin_write(offset, length);
        if let Some(range) = entered.unmarked() {
            // Before waiting for the header: the thread that gets it next marks the regions of all waiting threads.
            regions.request_marks(range);
            let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
            let wanted = regions.take_wanted_marks(range);
            if !wanted.is_empty() {
                let mark = |header: &mut Header| {
                    header.clean = false;
                    wanted.iter().for_each(|region| header.marked.put(*region));
                };
                let marked = self.write_new_header(&mut header, mark);
                if marked.is_ok() {
                    regions.mark(&wanted);
                }
                drop(header);
                self.check_if_suspect();
                marked.map_err(|e| self.record_failure(FaultKind::Write, self.headers_at, 0, &e))?;
            }
        }
        Ok(Some(entered))
    }

    fn write_header(&self, change: impl FnOnce(&mut Header)) -> io::Result<()> {
        let written = self.write_new_header(&mut self.header.lock().unwrap_or_else(PoisonError::into_inner), change);
        self.check_if_suspect();
        written
    }

    /// Writes a changed header, which is on the medium when this returns. On failure the previous one stays current: in
    /// memory, and on the medium if the new one is incomplete; so the next attempt must not overwrite it.
    fn write_new_header(&self, header: &mut Header, change: impl FnOnce(&mut Header)) -> io::Result<()> {
        if header.is_version_1()
            && let Err(error) = self.disk.sync()
        {
            // Writes under the older version did not mark their regions.
            header.add_loss(std::iter::once(0..self.size_bytes), LossCause::FlushFailed);
            self.publish_header(header);
            return Err(error);
        }
        let mut new = header.clone();
        change(&mut new);
        new.sequence += 1;
        new.boot.clone_from(&self.boot);
        new.medium.clone_from(&self.medium);
        let at = self.headers_at + new.sequence % 2 * HEADER_BYTES;
        let bytes = new.to_bytes()?;
        if self.disk.write_durably(&bytes, at).is_err() {
            // It may have been the notice of another lost write, which the caller checks; this one is about the header.
            self.is_suspect.store(true, Ordering::Release);
            self.disk.write_durably(&bytes, at)?;
        }
        *header = Header::in_current_version(new);
        self.sequence.store(header.sequence, Ordering::Release);
        self.unsaved_loss.store(false, Ordering::Release);
        self.publish_header(header);
        Ok(())
    }

    /// Makes it the current header, for those who do not wait for the medium.
    fn publish_header(&self, header: &Header) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone_from(header);
    }

    /// Computes the sums of the existing content.
    fn sum_existing_content(&self) -> io::Result<()> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        for (nth, entry) in self.table.iter().enumerate() {
            self.disk.read(&mut block, nth as u64 * BLOCK_BYTES)?;
            entry.store(settled_pair(sum_of(&block)), Ordering::Relaxed);
        }
        self.write_table()
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<(), Status> {
        let end = offset.checked_add(length).ok_or(Status::Range)?;
        if end <= self.size_bytes { Ok(()) } else { Err(Status::Range) }
    }

    /// Whether the block's content matches one of its sums; the matching sum becomes the only one.
    fn match_content(&self, block: u64, content: &[u8]) -> bool {
        let untouched = self.table[block as usize].load(Ordering::Relaxed) == 0;
        self.match_sum(block, content, if untouched { 0 } else { checksum(content) })
    }

    /// As [`Store::match_content`], for content whose sum is already computed.
    fn match_sum(&self, block: u64, content: &[u8], sum: u32) -> bool {
        let entry = &self.table[block as usize];
        let pair = entry.load(Ordering::Relaxed);
        if pair == UNSEEN_SUMS {
            entry.store(settled_pair(if is_zero(content) { 0 } else { sum }), Ordering::Relaxed);
            return true;
        }
        let is = |known: u32| if known == 0 { is_zero(content) } else { known == sum };
        let Some(truth) = [pair as u32, (pair >> 32) as u32].into_iter().find(|known| is(*known)) else { return false };
        if !is_settled(pair) {
            entry.store(settled_pair(truth), Ordering::Relaxed);
        }
        true
    }

    /// Determines which of two sums a block has before it is written, since a write that fails would leave three. The
    /// caller holds its lock.
    fn resolve_sum(&self, block: u64) -> Result<(), Status> {
        let pair = self.table[block as usize].load(Ordering::Relaxed);
        if !is_settled(pair) && pair != UNSEEN_SUMS {
            let mut content = vec![0; BLOCK_BYTES as usize];
            self.read_disk(&mut content, block * BLOCK_BYTES)?;
            // The content of a damaged block is not preserved, so either sum may represent it.
            self.match_content(block, &content);
        }
        Ok(())
    }

    /// Runs `change`, after which the blocks have these sums. The caller holds the locks, and the regions are marked.
    fn replace_blocks(&self, first: u64, sums: &[u32], change: impl FnOnce() -> io::Result<()>) -> Result<(), Status> {
        (first..).zip(sums).try_for_each(|(block, _)| self.resolve_sum(block))?;
        let changed = change();
        self.record_sums(first, sums, changed.is_ok());
        let bytes = sums.len() as u64 * BLOCK_BYTES;
        changed.map_err(|e| self.record_failure(FaultKind::Write, first * BLOCK_BYTES, bytes, &e))
    }

    /// Records the sums of blocks after a change, which succeeded or failed. The caller holds the locks.
    fn record_sums(&self, first: u64, sums: &[u32], done: bool) {
        if done {
            self.record_success(first..first + sums.len() as u64);
        } else {
            self.may_have_two_sums.store(true, Ordering::Release);
        }
        for (entry, sum) in self.table[first as usize..].iter().zip(sums) {
            // A failed change may have been done partially.
            let pair = if done { settled_pair(*sum) } else { either_pair(*sum, entry.load(Ordering::Relaxed)) };
            entry.store(pair, Ordering::Relaxed);
        }
    }

    /// Appends the range to `out`, and returns its CRC-32C.
    ///
    /// # Errors
    /// [`Status`]: `Range`, `Io`, or `Damaged` if a block does not match its sum. `out` is unchanged then.
    pub fn read(&self, offset: u64, length: u32, out: &mut Vec<u8>) -> Result<u32, Status> {
        self.check_range(offset, u64::from(length))?;
        if let Some(flash) = &self.flash {
            flash.read();
        }
        let begin = out.len();
        let (first, end) = (offset / BLOCK_BYTES, (offset + u64::from(length)).div_ceil(BLOCK_BYTES));
        let skip = (offset - first * BLOCK_BYTES) as usize;
        if let Some(map) = &self.map {
            let _guard = self.lock(first..end);
            // SAFETY: blocks change only under their locks, which are held.
            let whole = unsafe { map.slice(first * BLOCK_BYTES..end * BLOCK_BYTES) };
            let mut blocks = (first..end).zip(whole.chunks_exact(BLOCK_BYTES as usize));
            if let Some((block, _)) = blocks.find(|(block, content)| !self.match_content(*block, content)) {
                return Err(self.record_damage(block));
            }
            out.extend_from_slice(&whole[skip..skip + length as usize]);
            return Ok(crc32c::crc32c(&out[begin..]));
        }
        out.resize(begin + ((end - first) * BLOCK_BYTES) as usize, 0);
        let result = {
            let _guard = self.lock(first..end);
            self.read_disk(&mut out[begin..], first * BLOCK_BYTES).and_then(|()| {
                let mut blocks = (first..end).zip(out[begin..].chunks_exact(BLOCK_BYTES as usize));
                let damaged = blocks.find(|(block, content)| !self.match_content(*block, content));
                damaged.map_or(Ok(()), |(block, _)| Err(self.record_damage(block)))
            })
        };
        if let Err(status) = result {
            out.truncate(begin);
            return Err(status);
        }
        if skip > 0 {
            out.copy_within(begin + skip..begin + skip + length as usize, begin);
        }
        out.truncate(begin + length as usize);
        Ok(crc32c::crc32c(&out[begin..]))
    }

    /// Appends the range to `out`, without checking the sums: to measure their cost.
    ///
    /// # Errors
    /// [`Status`]: `Range` or `Io`. `out` is unchanged then.
    pub fn read_unchecked(&self, offset: u64, length: u32, out: &mut Vec<u8>) -> Result<(), Status> {
        self.check_range(offset, u64::from(length))?;
        let begin = out.len();
        let _guard = self.lock(offset / BLOCK_BYTES..(offset + u64::from(length)).div_ceil(BLOCK_BYTES));
        if let Some(map) = &self.map {
            // SAFETY: blocks change only under their locks, which are held.
            out.extend_from_slice(unsafe { map.slice(offset..offset + u64::from(length)) });
            return Ok(());
        }
        out.resize(begin + length as usize, 0);
        let read = self.read_disk(&mut out[begin..], offset);
        if read.is_err() {
            out.truncate(begin);
        }
        read
    }

    /// Writes `data`.
    ///
    /// # Errors
    /// [`Status`]; `Damaged` if it changes only a part of a block that does not match its sum.
    pub fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), Status> {
        self.check_range(offset, data.len() as u64)?;
        if !data.is_empty() {
            self.disk.dirty().wait_for_room();
            let (first, end) = (offset / BLOCK_BYTES, (offset + data.len() as u64).div_ceil(BLOCK_BYTES));
            let _entered = self.mark_for_write(offset, data.len() as u64)?;
            let _guard = self.lock(first..end);
            if data.len() as u64 == (end - first) * BLOCK_BYTES {
                self.write_blocks(first, data)?;
            } else {
                self.write_partial_blocks(first..end, (offset - first * BLOCK_BYTES) as usize, data)?;
            }
        }
        if durable { self.flush() } else { Ok(()) }
    }

    /// Writes `data` into these blocks, at offset `skip` from their beginning. The caller holds the locks.
    fn write_partial_blocks(&self, blocks: std::ops::Range<u64>, skip: usize, data: &[u8]) -> Result<(), Status> {
        let first = blocks.start;
        let mut whole = vec![0; ((blocks.end - first) * BLOCK_BYTES) as usize];
        let last = whole.len() - BLOCK_BYTES as usize;
        // Only the first and the last block can be partial.
        let tail = whole.len() - skip - data.len();
        for (at, partly) in [(0, skip > 0 || (last == 0 && tail > 0)), (last, last > 0 && tail > 0)] {
            if partly {
                let (block, content) = (first + at as u64 / BLOCK_BYTES, &mut whole[at..at + BLOCK_BYTES as usize]);
                self.read_disk(content, block * BLOCK_BYTES)?;
                if !self.match_content(block, content) {
                    return Err(self.record_damage(block));
                }
            }
        }
        whole[skip..skip + data.len()].copy_from_slice(data);
        self.write_blocks(first, &whole)
    }

    /// Writes whole blocks. The caller holds the locks.
    fn write_blocks(&self, first: u64, whole: &[u8]) -> Result<(), Status> {
        let sums: Vec<u32> = whole.chunks_exact(BLOCK_BYTES as usize).map(checksum).collect();
        self.replace_blocks(first, &sums, || self.disk.write(whole, first * BLOCK_BYTES))
    }

    /// Flushes: everything that was acknowledged is on the medium when this returns.
    ///
    /// # Errors
    /// [`Status::Lost`] if acknowledged writes may be lost, by this failure or before: that is recorded, and no flush succeeds
    /// until it is accepted. [`Status::Io`] if nothing is lost.
    pub fn flush(&self) -> Result<(), Status> {
        let flushed = self.flush_data();
        if flushed == Err(Status::Lost) {
            // The header may be writable by now.
            self.try_to_save_loss();
        }
        flushed
    }

    fn flush_data(&self) -> Result<(), Status> {
        self.flushes.flush(|| {
            let (number, begun) = (self.regions.as_ref().map(Regions::begin_flush), Instant::now());
            let inherits = self.inherits.load(Ordering::Acquire);
            let synced = self.disk.sync().and_then(|()| if inherits { self.disk.sync_file_system() } else { Ok(()) });
            synced.map_err(|error| {
                self.record_failure(FaultKind::Flush, 0, 0, &error);
                self.record_sync_failure(&error)
            })?;
            if self.flushes.has_failed() {
                return Err(Status::Lost);
            }
            self.inherits.store(false, Ordering::Release);
            if let (Some(regions), Some(number)) = (&self.regions, number) {
                regions.record_flush(number);
                self.idle.flushed(begun.elapsed());
            }
            Ok(())
        })
    }

    /// Zeroes the range; whole blocks are deallocated where the medium supports it.
    pub fn trim(&self, offset: u64, length: u32, durable: bool) -> Result<(), Status> {
        const ZERO_BLOCK: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
        self.check_range(offset, u64::from(length))?;
        let end = offset + u64::from(length);
        let (first, last) = (offset.next_multiple_of(BLOCK_BYTES), end - end % BLOCK_BYTES);
        if first >= last {
            // Within one block, or across the border of two.
            let border = first.clamp(offset, end);
            self.write(offset, &ZERO_BLOCK[..(border - offset) as usize], false)?;
            self.write(border, &ZERO_BLOCK[..(end - border) as usize], durable)?;
            return Ok(());
        }
        // For the whole range: otherwise a long trim would wait for each of its marks.
        let entered = self.mark_for_write(offset, u64::from(length))?;
        self.write(offset, &ZERO_BLOCK[..(first - offset) as usize], false)?;
        self.write(last, &ZERO_BLOCK[..(end - last) as usize], false)?;
        // In pieces, so that one long trim does not hold every lock.
        for begin in (first..last).step_by(TRIM_PIECE_BYTES as usize) {
            let stop = last.min(begin + TRIM_PIECE_BYTES);
            let blocks = begin / BLOCK_BYTES..stop / BLOCK_BYTES;
            let _guard = self.lock(blocks.clone());
            let sums = vec![0; (blocks.end - blocks.start) as usize];
            self.replace_blocks(blocks.start, &sums, || self.disk.zero_range(begin, stop - begin))?;
        }
        // A flush covers only completed writes.
        drop(entered);
        if durable { self.flush() } else { Ok(()) }
    }

    /// Reports which parts of the range hold data: appends [`Stretch`]es to `out`, at most [`STRETCHES_MAX`], and returns
    /// their CRC-32C. A block that was not checked since an unclean shutdown counts as data.
    pub fn map(&self, offset: u64, length: u32, out: &mut Vec<u8>) -> Result<u32, Status> {
        self.check_range(offset, u64::from(length))?;
        let begin = out.len();
        let mut current: Option<Stretch> = None;
        let (end, mut at, mut count) = (offset + u64::from(length), offset, 0);
        while at < end {
            let next = end.min((at / BLOCK_BYTES + 1) * BLOCK_BYTES);
            let hole = self.table[(at / BLOCK_BYTES) as usize].load(Ordering::Relaxed) == 0;
            let now = (next - at) as u32;
            at = next;
            match &mut current {
                Some(stretch) if stretch.hole == hole => stretch.length += now,
                other => {
                    if let Some(done) = other.replace(Stretch { length: now, hole }) {
                        done.put(out);
                        count += 1;
                        if count == STRETCHES_MAX {
                            current = None;
                            break;
                        }
                    }
                }
            }
        }
        if let Some(last) = current {
            last.put(out);
        }
        Ok(crc32c::crc32c(&out[begin..]))
    }
}

/// Checks several bytes at once: blocks that were never written are read often.
fn is_zero(bytes: &[u8]) -> bool {
    let (pieces, rest) = bytes.as_chunks::<64>();
    pieces.iter().all(|piece| piece.iter().fold(0, |any, byte| any | byte) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests;
