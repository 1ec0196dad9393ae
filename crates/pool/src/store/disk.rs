//! All that a store asks of its file or device, in one place.
//!
//! Nothing else touches the medium, so that a test can record every write and every sync, and make of them what a loss of power may
//! leave (`tests/power`).
//!
//! What must be durable alone (a header) is written through a separate file description with O_DSYNC: that waits for those
//! bytes and the disk's cache, and not for all else that was written. And the kernel reports a lost write once to each
//! description, so that nothing is kept from the flushes.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};

/// A write goes to the kernel in pieces of so many bytes at most, and none crosses a multiple of it. The page cache makes a folio as large as
/// the write that fills it (Linux 6.6; ext4 since 6.16), and later each write of 4 KiB into it goes through the state of all its blocks
/// (ext4_block_write_begin): after writes of 1 MiB that was more than half of what a node's small writes took.
const PIECE_BYTES: usize = 32 << 10;

/// TMPFS_MAGIC of linux/magic.h.
const TMPFS: u64 = 0x0102_1994;

#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    /// The same, with O_DSYNC; none: it is memory, and nothing of it lasts.
    durable: Option<File>,
    /// Its file system is tmpfs, which is memory and refuses RWF_NOWAIT (no FMODE_NOWAIT in mm/shmem.c, Linux 6.18). A page that
    /// was swapped out is waited for.
    in_memory: bool,
    #[cfg(test)]
    log: Option<std::sync::Arc<super::tests::log::Log>>,
}

/// Tells the log, if there is one, of what is done while `$do` runs.
macro_rules! logged {
    ($disk:expr, $what:expr, $do:expr) => {{
        #[cfg(test)]
        let begun = $disk.log.as_ref().map(|log| log.begin($what));
        let done = $do;
        #[cfg(test)]
        if let (Some(log), Some(begun)) = ($disk.log.as_ref(), begun) {
            log.end(begun);
        }
        done
    }};
}

#[cfg(test)]
use super::tests::log::What;

impl Disk {
    /// A file or device.
    ///
    /// # Errors
    /// It cannot be opened a second time.
    pub fn new(file: File) -> io::Result<Self> {
        use std::os::fd::AsRawFd as _;
        let same = format!("/proc/self/fd/{}", file.as_raw_fd());
        let durable = File::options().read(true).write(true).custom_flags(libc::O_DSYNC).open(same)?;
        let in_memory = rustix::fs::fstatfs(&file).is_ok_and(|system| u64::try_from(system.f_type) == Ok(TMPFS));
        Ok(Self { durable: Some(durable), in_memory, ..Self::memory(file) })
    }

    /// Memory.
    pub fn memory(file: File) -> Self {
        Self {
            file,
            durable: None,
            in_memory: false,
            #[cfg(test)]
            log: super::tests::log::current(),
        }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn read(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }

    /// The same, if nothing has to be waited for, since the kernel has it in memory; else false.
    pub fn read_at_hand(&self, bytes: &mut [u8], at: u64) -> bool {
        use rustix::io::{ReadWriteFlags, preadv2};
        if self.in_memory {
            return self.read(bytes, at).is_ok();
        }
        let wanted = bytes.len();
        let read = preadv2(&self.file, &mut [IoSliceMut::new(bytes)], at, ReadWriteFlags::NOWAIT);
        read.is_ok_and(|count| count == wanted)
    }

    pub fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        logged!(
            self,
            What::Write { at, bytes: bytes.to_vec() },
            pieces(bytes, at).try_for_each(|(piece, at)| self.file.write_all_at(piece, at))
        )
    }

    /// Those bytes are on the medium when this returns; of others nothing is promised.
    pub fn write_durably(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let file = self.durable.as_ref().unwrap_or(&self.file);
        logged!(self, What::Durable { at, bytes: bytes.to_vec() }, file.write_all_at(bytes, at))
    }

    /// All that was written is on the medium when this returns.
    pub fn sync(&self) -> io::Result<()> {
        logged!(self, What::Sync, self.file.sync_data())
    }

    /// The same, without effect on the flushes: a write that the kernel lost is reported to both.
    pub fn sync_apart(&self) -> io::Result<()> {
        let file = self.durable.as_ref().unwrap_or(&self.file);
        logged!(self, What::Sync, file.sync_data())
    }

    /// The range reads as zeroes, and takes no space where the medium can give it back.
    pub fn zero(&self, at: u64, length: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        logged!(self, What::Write { at, bytes: vec![0; length as usize] }, {
            let punched = fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, length);
            // A medium that cannot: zeroes are written.
            punched.or_else(|_| self.file.write_all_at(&vec![0; length as usize], at))
        })
    }

    pub fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
}

/// What is written at `at`, in pieces, and where each goes.
fn pieces(bytes: &[u8], at: u64) -> impl Iterator<Item = (&[u8], u64)> {
    let (mut rest, mut at) = (bytes, at);
    std::iter::from_fn(move || {
        let room = PIECE_BYTES - (at % PIECE_BYTES as u64) as usize;
        let (piece, behind) = rest.split_at(room.min(rest.len()));
        let place = at;
        (rest, at) = (behind, at + piece.len() as u64);
        (!piece.is_empty()).then_some((piece, place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_range_without_crossing_boundary() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
        for (at, length) in [(0, 0), (0, 4096), (61_440, 4096), (65_535, 2), (4096, 300_000), (1 << 20, 65_536)] {
            let cut: Vec<(&[u8], u64)> = pieces(&bytes[..length], at).collect();
            assert_eq!(cut.iter().map(|(piece, _)| *piece).collect::<Vec<_>>().concat(), bytes[..length]);
            let mut next = at;
            for (piece, place) in cut {
                let piece_bytes = PIECE_BYTES as u64;
                assert!(place == next && place / piece_bytes == (place + piece.len() as u64 - 1) / piece_bytes);
                next += piece.len() as u64;
            }
        }
    }
}
