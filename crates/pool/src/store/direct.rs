//! Reads that the coordinator does itself, of a node on the same machine: from the page cache of the node's file, verified
//! with the node's sums.
//!
//! A request to another process costs two messages and often two wake-ups, and the data arrives in another CPU's cache:
//! for small reads that is more than the read itself, and for large ones as much as a copy. So a node offers its file and
//! the table of its sums ([`super::table`]) to a coordinator of the same user. What the page cache has is read without a
//! message; everything else (data that is not cached, a block that is being written or whose content matches no sum, every
//! write and flush) is the node's, as before.
//!
//! **Why the result is right.** A block is used only if its content matches the one sum that the table has for it. A write
//! is acknowledged when the page cache has it, and everything reads and writes the same page cache; so a read that begins
//! after an acknowledged write finds it, or a later one. A block that is read during a write matches the old sum, the new
//! one, or none. So no lock is needed. All that needs a decision, such as a block with two possible sums after a failed
//! write, fails the match, and is decided by the node. The coordinator cannot write: table and file are opened read-only.
//!
//! **Another coordinator** that takes the node over ends this one's connection, and thereby its reads. Until it notices, it
//! reads what the new one has written, as the file is the same.
//!
//! The files are opened through `/proc/PID/fd`, as in [`crate::shm`]; and only those of a process of the same user, so that
//! no node can lead a coordinator with more rights to files that the node itself may not read.

use super::dirty::take_notice;
use super::disk::read_cached;
use super::sums::is_match;
use super::table::Table;
use super::{BLOCK_BYTES, Store};
use crate::shm;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::sync::atomic::Ordering;

/// Bytes that are read and then verified, while they are in the CPU's cache.
const READ_PIECE_BYTES: usize = 128 << 10;

/// A node's description of its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesOffer {
    table: shm::MemoryOffer,
    /// The file of the store in the same process, and its identity.
    file: i32,
    device: u64,
    inode: u64,
    /// Whether its file system is memory ([`read_cached`]).
    in_memory: bool,
    size_bytes: u64,
}

impl Store {
    /// What a coordinator on this machine needs to read from the page cache itself; `None` for a store in memory, or with
    /// the latency of a flash.
    pub fn offer(&self) -> Option<FilesOffer> {
        use std::os::fd::AsRawFd as _;
        let file = self.disk.file();
        let table = self.table.offer().filter(|_| self.flash.is_none())?;
        let data = file.metadata().ok()?;
        let (device, inode, in_memory) = (data.dev(), data.ino(), self.disk.is_in_memory());
        Some(FilesOffer { table, file: file.as_raw_fd(), device, inode, in_memory, size_bytes: self.size_bytes })
    }
}

/// A node's files, opened by a coordinator.
#[derive(Debug)]
pub(crate) struct DirectReader {
    file: File,
    in_memory: bool,
    table: Table,
}

impl DirectReader {
    /// Opens the files, if they are on this machine, of the same user, and what was offered.
    pub fn attach(offer: &FilesOffer) -> Option<Self> {
        if !offer.table.is_of_same_user() {
            return None;
        }
        let table = Table::attach(&offer.table, usize::try_from(offer.size_bytes / BLOCK_BYTES).ok()?)?;
        let path = offer.table.fd_path(offer.file);
        let is_same = |data: &std::fs::Metadata| {
            let kind = data.file_type();
            (kind.is_file() || kind.is_block_device()) && (data.dev(), data.ino()) == (offer.device, offer.inode)
        };
        // Checked before opening, which may have side effects, and after it, for the process may have ended meanwhile.
        std::fs::metadata(&path).ok().filter(is_same)?;
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        file.metadata().ok().filter(is_same)?;
        Some(Self { file, in_memory: offer.in_memory, table })
    }

    /// What is kept when the node's process has ended, if its store is a disk.
    pub fn into_witness(self) -> Option<Witness> {
        let is_disk = self.file.metadata().is_ok_and(|data| data.file_type().is_block_device());
        is_disk.then_some(Witness(self.file))
    }

    /// Reads the range if the page cache has it and every block matches its sum; otherwise false, and the content of `to`
    /// is arbitrary.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> bool {
        let end = offset.checked_add(to.len() as u64);
        if end.is_none_or(|end| end > self.table.len() as u64 * BLOCK_BYTES) {
            return false;
        }
        if (offset | to.len() as u64).is_multiple_of(BLOCK_BYTES) {
            return self.read_blocks(offset / BLOCK_BYTES, to);
        }
        let (first, last) = (offset / BLOCK_BYTES, (offset + to.len() as u64).div_ceil(BLOCK_BYTES));
        let mut whole = vec![0; ((last - first) * BLOCK_BYTES) as usize];
        let is_read = self.read_blocks(first, &mut whole);
        let skip = (offset - first * BLOCK_BYTES) as usize;
        to.copy_from_slice(&whole[skip..skip + to.len()]);
        is_read
    }

    fn read_blocks(&self, first: u64, to: &mut [u8]) -> bool {
        let mut entries = self.table[first as usize..].iter();
        let mut at = first * BLOCK_BYTES;
        to.chunks_mut(READ_PIECE_BYTES).all(|piece| {
            let is_read = read_cached(&self.file, self.in_memory, piece, at);
            at += piece.len() as u64;
            let mut blocks = piece.chunks_exact(BLOCK_BYTES as usize).zip(entries.by_ref());
            is_read && blocks.all(|(content, entry)| is_match(entry.load(Ordering::Acquire), content))
        })
    }
}

/// A description of a node's disk that has outlived the node's process. The kernel notifies each description once that it
/// lost a write, but one that is opened later only if nobody was notified before: a process that was killed while it flushed
/// may have been. A file system has one more notice (`syncfs`), a disk does not. A file is not kept open, or nothing could
/// be unmounted.
#[derive(Debug)]
pub(crate) struct Witness(File);

impl Witness {
    /// Fails if the kernel lost a write since it was opened. May block.
    pub fn check(&self) -> std::io::Result<()> {
        take_notice(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sums::{UNSEEN_SUMS, either_pair};
    use super::*;

    fn store(directory: &tempfile::TempDir) -> (Store, std::path::PathBuf) {
        let path = directory.path().join("store");
        (Store::format(&path, Some(1 << 20), "n".into(), false).expect("a store"), path)
    }

    fn attach(store: &Store) -> DirectReader {
        DirectReader::attach(&store.offer().expect("it is in a file")).expect("it is of this user")
    }

    #[test]
    fn direct_read_follows_the_store() {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, _) = store(&directory);
        let direct = attach(&store);
        let check = |offset, length: usize| {
            let (mut here, mut there) = (vec![7; length], Vec::new());
            assert!(direct.read(offset, &mut here), "{length} bytes at {offset}");
            store.read(offset, length as u32, &mut there).expect("it is whole");
            assert!(here == there, "{length} bytes at {offset}");
        };
        let all =
            || [(0, 4096), (0, 1 << 20), (4095, 2), (5000, 1), (8192, 300_000)].map(|(at, length)| check(at, length));
        all();
        let data: Vec<u8> = (0..300_000_u32).map(|at| (at * 7 / 3) as u8).collect();
        store.write(5000, &data, false).expect("it has room");
        all();
        store.write(8192, &[9; 4096], true).expect("it has room");
        all();
        store.trim(12_288, 100_000, false).expect("it is supported");
        all();
        for (offset, length) in [(1 << 20, 1), ((1 << 20) - 1, 2), (u64::MAX, 2)] {
            assert!(!direct.read(offset, &mut vec![0; length]), "{length} bytes at {offset}");
        }
    }

    #[test]
    fn block_that_needs_a_decision_is_left_to_the_node() {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, path) = store(&directory);
        store.write(0, &[1; 16 << 10], false).expect("it has room");
        let direct = attach(&store);
        let reads = || (0..4).map(|block| direct.read(block * BLOCK_BYTES, &mut [0; 4096])).collect::<Vec<_>>();
        assert_eq!(reads(), [true; 4]);
        let known = store.table[1].load(Ordering::Relaxed);
        store.table[1].store(either_pair(5, known), Ordering::Relaxed);
        store.table[2].store(UNSEEN_SUMS, Ordering::Relaxed);
        let file = File::options().write(true).open(path).expect("a file");
        std::os::unix::fs::FileExt::write_all_at(&file, &[2], 3 * BLOCK_BYTES).expect("it has room");
        assert_eq!(reads(), [true, false, false, false]);
        assert!(!direct.read(0, &mut vec![0; 8192]), "none of a range that is not whole");
    }

    #[test]
    fn block_read_during_a_write_is_old_or_new() {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, _) = store(&directory);
        store.write(0, &[0; 4096], false).expect("it has room");
        let direct = attach(&store);
        let acknowledged = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=2000_u64 {
                    store.write(0, &[round.to_le_bytes(); 512].concat(), false).expect("it has room");
                    acknowledged.store(round, Ordering::SeqCst);
                }
            });
            let (mut content, mut seen) = ([0; 4096], 0);
            while seen < 2000 {
                let before = acknowledged.load(Ordering::SeqCst);
                if direct.read(0, &mut content) {
                    let words = content.as_chunks::<8>().0;
                    seen = u64::from_le_bytes(words[0]);
                    assert!(words.iter().all(|word| *word == words[0]), "it is torn");
                    assert!(seen >= before, "{seen} after {before} was acknowledged");
                }
            }
        });
    }

    #[test]
    fn foreign_files_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let (store, _) = store(&directory);
        let offer = store.offer().expect("it is in a file");
        let refused = |change: &dyn Fn(&mut FilesOffer)| {
            let mut offer = offer.clone();
            change(&mut offer);
            assert!(DirectReader::attach(&offer).is_none(), "{offer:?}");
        };
        refused(&|offer| offer.inode += 1);
        refused(&|offer| offer.device += 1);
        refused(&|offer| offer.size_bytes += BLOCK_BYTES);
        refused(&|offer| offer.size_bytes = u64::MAX);
        refused(&|offer| offer.file = i32::MAX);
        // Not the table, and no table at all.
        let other = Store::format(&directory.path().join("other"), Some(1 << 20), "m".into(), false).expect("a store");
        refused(&|offer| offer.table = shm::MemoryOffer::from_file(other.disk.file(), "words"));
        let memory = Store::memory(1 << 20, "n".into()).expect("memory");
        assert!(memory.offer().is_none(), "it is not in a file");
    }
}
