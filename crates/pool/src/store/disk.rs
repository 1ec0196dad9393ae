//! All accesses of a store to its file or device, in one place.
//!
//! Nothing else accesses the medium, so that a test can record every write and every sync, and derive from them the states
//! that a power failure may leave (`tests/power`).
//!
//! Data that must be durable by itself (a header) is written through a separate file description with O_DSYNC: that waits
//! for these bytes and the disk's cache only, not for all other writes. Since the kernel reports a lost write once to each
//! description, errors remain visible to the flushes.

use super::dirty::DirtyData;
use super::medium::file_length;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};

/// A write is split into pieces of at most this size, none of which crosses a multiple of it. The page cache allocates a
/// folio as large as the write that fills it (Linux 6.6; ext4 since 6.16), and later each write of 4 KiB into it examines
/// the state of all its blocks (ext4_block_write_begin): after writes of 1 MiB that was more than half of the cost of a
/// node's small writes.
const WRITE_PIECE_BYTES: usize = 32 << 10;

/// TMPFS_MAGIC of linux/magic.h.
const TMPFS_MAGIC: u64 = 0x0102_1994;

#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    /// The same, with O_DSYNC; `None` for memory, which is never durable.
    durable: Option<File>,
    /// The same, to sync the sums: a durable write must not take the only notice that one of them was lost.
    sums: Option<File>,
    /// Whether its file system is tmpfs, which is memory and rejects RWF_NOWAIT (no FMODE_NOWAIT in mm/shmem.c, Linux
    /// 6.18). Swapped-out pages block.
    in_memory: bool,
    dirty: DirtyData,
    #[cfg(test)]
    log: Option<std::sync::Arc<super::tests::log::Log>>,
}

/// Records the operation `$do` in the log, if there is one.
macro_rules! logged {
    ($disk:expr, $what:expr, $do:expr) => {{
        #[cfg(test)]
        let begun = $disk.log.as_ref().map(|log| log.begin($what));
        let done: io::Result<()> = $do;
        #[cfg(test)]
        let done = match ($disk.log.as_ref(), begun) {
            (Some(log), Some(begun)) => log.end(begun, done),
            _ => done,
        };
        done
    }};
}

#[cfg(test)]
use super::tests::log::{By, What};

impl Disk {
    /// Uses a file or device.
    ///
    /// # Errors
    /// It cannot be opened again.
    pub fn new(file: File) -> io::Result<Self> {
        use std::os::fd::AsRawFd as _;
        let same = format!("/proc/self/fd/{}", file.as_raw_fd());
        let again = |flags| File::options().read(true).write(true).custom_flags(flags).open(&same);
        let durable = again(libc::O_DSYNC)?;
        let in_memory = rustix::fs::fstatfs(&file).is_ok_and(|system| u64::try_from(system.f_type) == Ok(TMPFS_MAGIC));
        let dirty = DirtyData::new(if in_memory { None } else { Some(again(0)?) }, file_length(&file)?);
        let sums = Some(again(0)?);
        let disk = Self { durable: Some(durable), sums, in_memory, dirty, ..Self::memory(file) };
        #[cfg(test)]
        disk.log.iter().for_each(|log| log.opened());
        Ok(disk)
    }

    /// Uses a memory file.
    pub fn memory(file: File) -> Self {
        Self {
            file,
            durable: None,
            sums: None,
            in_memory: false,
            dirty: DirtyData::new(None, 0),
            #[cfg(test)]
            log: super::tests::log::current(),
        }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// What was written and is not on the medium.
    pub fn dirty(&self) -> &DirtyData {
        &self.dirty
    }

    pub fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }

    /// See [`read_cached`].
    pub fn read_nonblocking(&self, bytes: &mut [u8], at: u64) -> bool {
        read_cached(&self.file, self.in_memory, bytes, at)
    }

    /// Whether it is a file or device, and not this process's memory.
    pub fn is_durable(&self) -> bool {
        self.durable.is_some()
    }

    /// Whether its file system is memory.
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    pub fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_after(bytes, at, |_| {})
    }

    /// As [`Disk::write`]; passes each piece to `before` when it is about to be written, so that it is in the CPU's cache. If
    /// a write fails, `before` has not received all.
    pub fn write_after(&self, bytes: &[u8], at: u64, mut before: impl FnMut(&[u8])) -> io::Result<()> {
        let written = logged!(
            self,
            What::Write { at, bytes: bytes.to_vec() },
            pieces(bytes, at).try_for_each(|(piece, at)| {
                before(piece);
                self.file.write_all_at(piece, at)
            })
        );
        // Also if it failed: a part may have been written.
        self.dirty.record_write(at, bytes.len());
        written
    }

    /// Writes; these bytes are on the medium when this returns, with no guarantee for others.
    pub fn write_durably(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let file = self.durable.as_ref().unwrap_or(&self.file);
        #[cfg(test)]
        if let Some(log) = self.log.as_ref().filter(|log| log.is_broken()) {
            log.fail_durable(&self.file, bytes, at);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        logged!(self, What::Durable { at, bytes: bytes.to_vec() }, file.write_all_at(bytes, at))
    }

    /// Everything that was written is on the medium when this returns.
    pub fn sync(&self) -> io::Result<()> {
        self.dirty.flush(|| logged!(self, What::Sync(By::Flushes), self.file.sync_data()))
    }

    /// Everything that anyone wrote to its file system is on the medium when this returns, and no write of any file was lost
    /// since this was last asked by anyone. Of a block device only its own writes are known.
    pub fn sync_file_system(&self) -> io::Result<()> {
        logged!(self, What::Sync(By::FileSystem), {
            match rustix::fs::syncfs(&self.file) {
                Err(rustix::io::Errno::NOSYS) | Ok(()) => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Drops the clean pages of this range from memory, so that reads return what the medium has.
    pub fn drop_cached(&self, at: u64, length: u64) {
        if let Some(length) = std::num::NonZeroU64::new(length) {
            // It is advice. Memory has no medium.
            let _ = rustix::fs::fadvise(&self.file, at, Some(length), rustix::fs::Advice::DontNeed);
            #[cfg(test)]
            if let Some(log) = &self.log {
                let pages = at / super::BLOCK_BYTES..(at + length.get()).div_ceil(super::BLOCK_BYTES);
                log.forget(&self.file, |page| pages.contains(&(page as u64)));
            }
        }
    }

    /// The same, without effect on the flushes: each reports a write that the kernel lost.
    pub fn sync_sums(&self) -> io::Result<()> {
        let file = self.sums.as_ref().unwrap_or(&self.file);
        logged!(self, What::Sync(By::Sums), file.sync_data())
    }

    /// Zeroes the range, and deallocates its space where the medium supports it.
    pub fn zero_range(&self, at: u64, length: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        logged!(self, What::Write { at, bytes: vec![0; length as usize] }, {
            let punched = fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, length);
            // Not supported by the medium: write zeroes.
            punched.or_else(|_| {
                let written = self.file.write_all_at(&vec![0; length as usize], at);
                self.dirty.record_write(at, length as usize);
                written
            })
        })
    }

    pub fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
}

/// Reads without blocking, if the kernel has the data in memory; otherwise false. `in_memory`: the file system is tmpfs.
pub(super) fn read_cached(file: &File, in_memory: bool, bytes: &mut [u8], at: u64) -> bool {
    use rustix::io::{ReadWriteFlags, preadv2};
    if in_memory {
        return file.read_exact_at(bytes, at).is_ok();
    }
    let wanted = bytes.len();
    let read = preadv2(file, &mut [IoSliceMut::new(bytes)], at, ReadWriteFlags::NOWAIT);
    read.is_ok_and(|count| count == wanted)
}

/// The pieces of a write at `at`, with their offsets.
fn pieces(bytes: &[u8], at: u64) -> impl Iterator<Item = (&[u8], u64)> {
    let (mut rest, mut at) = (bytes, at);
    std::iter::from_fn(move || {
        let room = WRITE_PIECE_BYTES - (at % WRITE_PIECE_BYTES as u64) as usize;
        let (piece, behind) = rest.split_at(room.min(rest.len()));
        let place = at;
        (rest, at) = (behind, at + piece.len() as u64);
        (!piece.is_empty()).then_some((piece, place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each way to write data tells the account, also if it fails: a part may have been written.
    #[test]
    fn every_write_counts_as_dirty_even_one_that_fails() {
        type Write = fn(&Disk, &[u8], u64) -> io::Result<()>;
        let ways: [(&str, Write); 2] =
            [("write", Disk::write), ("write_after", |disk, bytes, at| disk.write_after(bytes, at, |_| {}))];
        for ((name, write), can_write) in ways.into_iter().flat_map(|way| [(way, true), (way, false)]) {
            let named = tempfile::NamedTempFile::new().expect("a file");
            named.as_file().set_len(1 << 20).expect("it has room");
            let file = File::options().read(true).write(can_write).open(named.path()).expect("it is there");
            // Of a file on a medium, wherever the temporary directory is.
            let dirty = DirtyData::new(Some(file.try_clone().expect("a descriptor")), 1 << 20);
            let disk = Disk { dirty, ..Disk::memory(file) };
            assert_eq!(write(&disk, &[7; 8192], 4096).is_ok(), can_write, "{name}");
            assert_eq!(disk.dirty().bytes(), 8192, "{name}, can write: {can_write}");
        }
    }

    #[test]
    fn pieces_cover_the_range_without_crossing_a_boundary() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        for (at, length) in [(0, 0), (0, 4096), (61_440, 4096), (65_535, 2), (4096, 300_000), (1 << 20, 65_536)] {
            let cut: Vec<(&[u8], u64)> = pieces(&bytes[..length], at).collect();
            assert_eq!(cut.iter().map(|(piece, _)| *piece).collect::<Vec<_>>().concat(), bytes[..length]);
            let mut next = at;
            for (piece, place) in cut {
                let piece_bytes = WRITE_PIECE_BYTES as u64;
                assert!(place == next && place / piece_bytes == (place + piece.len() as u64 - 1) / piece_bytes);
                next += piece.len() as u64;
            }
        }
    }
}
