//! The sums of all blocks ([`super::sums`]), in memory that a coordinator of the same user on this machine may map, read-only,
//! to verify what it reads from the page cache itself ([`super::direct`]).

use crate::shm::{self, FRONT_BYTES, Offer};
use rustix::mm::{ProtFlags, munmap};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The name of the memory file.
const NAME: &str = "fathom-pool-sums";

/// One entry for each block, all zero at first.
#[derive(Debug)]
pub(super) struct Table(Memory);

#[derive(Debug)]
enum Memory {
    Own(Vec<AtomicU64>),
    Mapped(Mapped),
}

#[derive(Debug)]
struct Mapped {
    begin: NonNull<u8>,
    blocks: usize,
    /// The offer's words, and the file, which other processes open while this one has it.
    offered: Option<(File, String)>,
}

// SAFETY: it is only an address; all accesses are atomic.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

/// Bytes of the memory file.
fn bytes_of(blocks: usize) -> Option<usize> {
    blocks.checked_mul(size_of::<AtomicU64>())?.checked_add(FRONT_BYTES)
}

impl Table {
    /// A table that only this process has.
    pub fn own(blocks: usize) -> Self {
        Self(Memory::Own((0..blocks).map(|_| AtomicU64::new(0)).collect()))
    }

    /// A table that can be offered; where the kernel refuses that, one that cannot.
    pub fn offered(blocks: usize) -> Self {
        Self::create(blocks).unwrap_or_else(|_| Self::own(blocks))
    }

    fn create(blocks: usize) -> io::Result<Self> {
        let bytes = bytes_of(blocks).ok_or(io::ErrorKind::OutOfMemory)?;
        let (file, words) = shm::create(NAME, bytes)?;
        let begin = shm::map(&file, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(Self(Memory::Mapped(Mapped { begin, blocks, offered: Some((file, words)) })))
    }

    /// Maps another process's table of this many blocks. It may be read only.
    pub fn attach(offer: &Offer, blocks: usize) -> Option<Self> {
        let bytes = bytes_of(blocks)?;
        let file = offer.open(NAME, bytes, false)?;
        let begin = shm::map(&file, bytes, ProtFlags::READ).ok()?;
        Some(Self(Memory::Mapped(Mapped { begin, blocks, offered: None })))
    }

    /// Its description for other processes, if there can be any.
    pub fn offer(&self) -> Option<Offer> {
        match &self.0 {
            Memory::Mapped(Mapped { offered: Some((file, words)), .. }) => Some(Offer::of(file, words)),
            _ => None,
        }
    }
}

impl Deref for Table {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        match &self.0 {
            Memory::Own(entries) => entries,
            Memory::Mapped(mapped) => {
                // SAFETY: the mapping has that many aligned entries after its header, cannot shrink, and lives as long as
                // `self`; all accesses are atomic, and of a read-only mapping only loads are made.
                unsafe {
                    std::slice::from_raw_parts(
                        mapped.begin.as_ptr().add(FRONT_BYTES).cast::<AtomicU64>(),
                        mapped.blocks,
                    )
                }
            }
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let bytes = FRONT_BYTES + self.blocks * size_of::<AtomicU64>();
        // SAFETY: the mapping is ours, and no slice of it outlives `self`. If it cannot be unmapped it stays, unused.
        let _ = unsafe { munmap(self.begin.as_ptr().cast(), bytes) };
    }
}
