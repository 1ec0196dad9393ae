//! The sums of all blocks ([`super::sums`]), in memory that a coordinator of the same user on this machine may map, read-only,
//! to verify what it reads from the page cache itself ([`super::direct`]).

use crate::shm::{self, FILE_HEADER_BYTES, MemoryOffer};
use rustix::mm::{ProtFlags, munmap};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The name of the memory file.
const TABLE_FILE_NAME: &str = "fathom-pool-sums";

/// One entry for each block, all zero at first.
#[derive(Debug)]
pub(super) struct Table(TableMemory);

#[derive(Debug)]
enum TableMemory {
    Own(Vec<AtomicU64>),
    Mapped(MappedTable),
}

#[derive(Debug)]
struct MappedTable {
    begin: NonNull<u8>,
    blocks: usize,
    /// The offer's words, and the file, which other processes open while this one has it.
    offer: Option<(File, String)>,
}

// SAFETY: it is only an address; all accesses are atomic.
unsafe impl Send for MappedTable {}
// SAFETY: as above.
unsafe impl Sync for MappedTable {}

/// Bytes of the memory file.
fn file_bytes(blocks: usize) -> Option<usize> {
    blocks.checked_mul(size_of::<AtomicU64>())?.checked_add(FILE_HEADER_BYTES)
}

impl Table {
    /// A table that only this process has.
    pub fn new_private(blocks: usize) -> Self {
        Self(TableMemory::Own((0..blocks).map(|_| AtomicU64::new(0)).collect()))
    }

    /// A table that can be offered; where the kernel refuses that, one that cannot.
    pub fn new_shared(blocks: usize) -> Self {
        Self::create(blocks).unwrap_or_else(|_| Self::new_private(blocks))
    }

    fn create(blocks: usize) -> io::Result<Self> {
        let bytes = file_bytes(blocks).ok_or(io::ErrorKind::OutOfMemory)?;
        let (file, words) = shm::create_memory_file(TABLE_FILE_NAME, bytes)?;
        let begin = shm::map_file(&file, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self(TableMemory::Mapped(MappedTable { begin, blocks, offer: Some((file, words)) })))
    }

    /// Maps another process's table of this many blocks. It may be read only.
    pub fn attach(offer: &MemoryOffer, blocks: usize) -> Option<Self> {
        let bytes = file_bytes(blocks)?;
        let file = offer.open(TABLE_FILE_NAME, bytes, false)?;
        let begin = shm::map_file(&file, bytes, ProtFlags::READ).ok()?;
        Some(Self(TableMemory::Mapped(MappedTable { begin, blocks, offer: None })))
    }

    /// Its description for other processes, if there can be any.
    pub fn offer(&self) -> Option<MemoryOffer> {
        match &self.0 {
            TableMemory::Mapped(MappedTable { offer: Some((file, words)), .. }) => {
                Some(MemoryOffer::from_file(file, words))
            }
            _ => None,
        }
    }
}

impl Deref for Table {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        match &self.0 {
            TableMemory::Own(entries) => entries,
            TableMemory::Mapped(mapped) => {
                // SAFETY: the mapping has that many aligned entries after its header, cannot shrink, and lives as long as
                // `self`; all accesses are atomic, and of a read-only mapping only loads are made.
                unsafe {
                    std::slice::from_raw_parts(
                        mapped.begin.as_ptr().add(FILE_HEADER_BYTES).cast::<AtomicU64>(),
                        mapped.blocks,
                    )
                }
            }
        }
    }
}

impl Drop for MappedTable {
    fn drop(&mut self) {
        let bytes = FILE_HEADER_BYTES + self.blocks * size_of::<AtomicU64>();
        // SAFETY: the mapping is ours, and no slice of it outlives `self`. If it cannot be unmapped it stays, unused.
        let _ = unsafe { munmap(self.begin.as_ptr().cast(), bytes) };
    }
}
