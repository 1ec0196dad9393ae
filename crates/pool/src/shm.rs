//! Memory that a coordinator and a node of the same machine share, so that large data need not go through a socket.
//!
//! The coordinator makes it once, for all its nodes, and takes its large buffers from it. A claim says where it is; a node that finds it there
//! says so in its welcome, and from then on requests for large data say where the data are, or where they shall be put, in place of carrying
//! them ([`crate::frame`]). All else goes over the connection as before.
//!
//! It is found through `/proc/PID/fd`, which the kernel allows to who may trace that process: the same user, or root. What is found must be
//! a memory file of our name that can never be cut (a page that is gone would be a signal, and no error), and begin with the words that were
//! said. So a coordinator cannot make a node write into anything else. In another PID namespace it is not found, and nothing else is different.
//!
//! At the end of its front stands where the coordinator would have its nodes run ([`crate::colocation`]): a number that old coordinators leave at
//! nought and old nodes do not look at.
//!
//! A buffer is not touched here from when its request leaves until the node has answered; or, if a connection breaks, until the
//! node has let its coordinator in anew, which it does when nothing of the old session goes on any more ([`crate::node`]).

use bytes::{Buf, BufMut as _, Bytes};
use nbd::buffer::{MEMORY_BYTES, place, use_memory};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const NAME: &str = "fathom-pool";
/// Before the memory that is shared: the words, and last the processor.
const FRONT_BYTES: usize = 4096;
const PROCESSOR_AT: usize = FRONT_BYTES - size_of::<u32>();
const BYTES: usize = FRONT_BYTES + MEMORY_BYTES;
/// The most places of one request: its data may stand in parts.
pub const MOST_PLACES: usize = 63;
/// Bytes of one in a frame.
const PLACE_BYTES: usize = 12;

/// Where a coordinator's memory is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The machine's start, by which two know that they are on one.
    pub boot: String,
    process: u32,
    file: i32,
    /// What stands at its front.
    words: String,
}

/// Changes when the machine starts anew; empty where the kernel does not have it.
pub fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().into()
}

/// The memory of this process, which is there to its end.
struct Owned {
    file: File,
    words: String,
    processor: &'static AtomicU32,
}

static OWNED: OnceLock<Option<Owned>> = OnceLock::new();

/// Asks all nodes that share this process's memory to run on a processor, or where they like.
pub(crate) fn suggest(processor: Option<usize>) {
    if let Some(owned) = OWNED.get().and_then(Option::as_ref) {
        let number = processor.and_then(|nth| u32::try_from(nth + 1).ok()).unwrap_or(0);
        owned.processor.store(number, Ordering::Relaxed);
    }
}

impl Offer {
    /// To a node of the machine with this boot id; None if that is another one, or if the memory cannot be had.
    pub fn to(boot: &str) -> Option<Self> {
        if boot.is_empty() || boot != self::boot() {
            return None;
        }
        let Owned { file, words, .. } = OWNED.get_or_init(|| Owned::make().ok()).as_ref()?;
        Some(Self { boot: boot.into(), process: std::process::id(), file: file.as_raw_fd(), words: words.clone() })
    }
}

impl Owned {
    fn make() -> io::Result<Self> {
        let file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.set_len(BYTES as u64)?;
        let words: String = (0..4).map(|_| crate::unique_name::new_name()).collect();
        file.write_all_at(words.as_bytes(), 0)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let begin = map(&file)?;
        // SAFETY: the mapping is new, has so many bytes behind its front, and is never undone; nothing else in this process has it.
        let memory = unsafe { &mut *begin.as_ptr().add(FRONT_BYTES).cast::<[u8; MEMORY_BYTES]>() };
        use_memory(memory).map_err(|_| io::Error::other("there is some already"))?;
        Ok(Self { file, words, processor: processor(begin) })
    }
}

fn map(file: &File) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at a place that the kernel chooses touches nothing that is there.
    let begin = unsafe { mmap(null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)? };
    NonNull::new(begin.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// The last word of the front.
fn processor<'m>(begin: NonNull<u8>) -> &'m AtomicU32 {
    // SAFETY: so much is mapped for as long as whoever calls this has the mapping; the place is aligned, and everybody uses it as this only.
    unsafe { AtomicU32::from_ptr(begin.as_ptr().add(PROCESSOR_AT).cast()) }
}

/// A coordinator's memory, as a node sees it.
#[derive(Debug)]
pub struct Attached {
    begin: NonNull<u8>,
}

// SAFETY: it only says where the bytes are; who uses them ensures that nothing else does (`Attached::bytes`).
unsafe impl Send for Attached {}
// SAFETY: as above.
unsafe impl Sync for Attached {}

impl Attached {
    /// Finds it, if it is on this machine and can be had.
    pub fn find(offer: &Offer) -> Option<Self> {
        if offer.boot != boot() {
            return None;
        }
        let path = PathBuf::from(format!("/proc/{}/fd/{}", offer.process, offer.file));
        // Before it is opened: opening may do something to what is anything else.
        let ours = std::fs::read_link(&path).ok()?.to_str()?.starts_with(&format!("/memfd:{NAME} "));
        let file = File::options().read(true).write(true).open(path).ok().filter(|_| ours)?;
        let sealed = fcntl_get_seals(&file).ok()?.contains(SealFlags::SHRINK | SealFlags::GROW);
        let mut words = vec![0; offer.words.len().min(PROCESSOR_AT)];
        file.read_exact_at(&mut words, 0).ok()?;
        let is_meant = !words.is_empty() && words == offer.words.as_bytes();
        if !sealed || !is_meant || file.metadata().ok()?.len() != BYTES as u64 {
            return None;
        }
        Some(Self { begin: map(&file).ok()? })
    }

    /// The processor that the coordinator would have its nodes run on, if it minds.
    pub(crate) fn suggested(&self) -> Option<usize> {
        (processor(self.begin).load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// The bytes there; None if some of them are not in the memory.
    ///
    /// # Safety
    /// They were named by the coordinator for a request that is not answered yet, so that nothing else uses them.
    #[expect(clippy::mut_from_ref, reason = "the request that is served has them alone")]
    pub unsafe fn bytes(&self, place: Extent) -> Option<&mut [u8]> {
        let (at, length) = (usize::try_from(place.at).ok()?, place.length as usize);
        if at.checked_add(length)? > MEMORY_BYTES {
            return None;
        }
        // SAFETY: the mapping has so many bytes behind its front, which can never be cut; the caller sees to the rest.
        Some(unsafe { std::slice::from_raw_parts_mut(self.begin.as_ptr().add(FRONT_BYTES + at), length) })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice of it outlives `self`. If it cannot be unmapped it stays, unused.
        let _ = unsafe { munmap(self.begin.as_ptr().cast(), BYTES) };
    }
}

/// A part of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub length: u32,
}

impl Extent {
    /// Where these bytes are, as a frame says it; None if not all are in this process's memory, or in too many parts.
    pub fn of<'b>(parts: impl IntoIterator<Item = &'b [u8]>) -> Option<Bytes> {
        let mut places = Vec::with_capacity(PLACE_BYTES);
        for part in parts {
            places.put_u64_le(place(part)? as u64);
            places.put_u32_le(part.len() as u32);
        }
        let count = places.len() / PLACE_BYTES;
        (1..=MOST_PLACES).contains(&count).then(|| places.into())
    }

    /// How many stand there.
    pub fn count(places: &[u8]) -> u8 {
        (places.len() / PLACE_BYTES) as u8
    }

    /// Bytes that so many take in a frame.
    pub fn bytes(count: u8) -> usize {
        usize::from(count) * PLACE_BYTES
    }

    /// Those that a frame has.
    pub fn all(mut places: &[u8]) -> impl Iterator<Item = Self> {
        std::iter::from_fn(move || {
            (places.len() >= PLACE_BYTES).then(|| Self { at: places.get_u64_le(), length: places.get_u32_le() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nbd::buffer::Buffer;

    #[test]
    fn node_and_coordinator_share_memory_both_ways() {
        let offer = Offer::to(&boot()).expect("memory can be had");
        let node = Attached::find(&offer).expect("it is this process");
        let mut buffer = Buffer::new(1 << 20);
        buffer.fill(7);
        let places = Extent::of([&buffer[..1000], &buffer[5000..5010]]).expect("it is taken from there");
        assert_eq!(Extent::count(&places), 2);
        let all: Vec<Extent> = Extent::all(&places).collect();
        assert_eq!(all.iter().map(|place| place.length).collect::<Vec<_>>(), [1000, 10]);
        // SAFETY: the buffer is not touched meanwhile.
        let seen = unsafe { node.bytes(all[1]) }.expect("it is within");
        assert!(seen.iter().all(|byte| *byte == 7));
        seen.fill(9);
        assert_eq!((buffer[4999], buffer[5000], buffer[5009], buffer[5010]), (7, 9, 9, 7));
        assert_eq!(Extent::of([&[1_u8][..]]), None, "that is elsewhere");
    }

    #[test]
    fn foreign_memory_is_refused() {
        let offer = Offer::to(&boot()).expect("memory can be had");
        let wrong = |change: &dyn Fn(&mut Offer)| {
            let mut offer = offer.clone();
            change(&mut offer);
            assert!(Attached::find(&offer).is_none(), "{offer:?}");
        };
        wrong(&|offer| offer.boot.push('0'));
        wrong(&|offer| offer.words.replace_range(..1, "x"));
        wrong(&|offer| offer.words.clear());
        wrong(&|offer| offer.process = u32::MAX);
        // A file of this process that is not shared memory, and a memfd that could be truncated.
        let file = tempfile::tempfile().expect("a file");
        file.set_len(BYTES as u64).expect("it has room");
        wrong(&|offer| offer.file = file.as_raw_fd());
        let other = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory"));
        other.set_len(BYTES as u64).expect("it has room");
        other.write_all_at(offer.words.as_bytes(), 0).expect("it has room");
        wrong(&|offer| offer.file = other.as_raw_fd());
        assert_eq!(Offer::to("another machine"), None);
        let node = Attached::find(&offer).expect("it is this process");
        for place in [
            Extent { at: MEMORY_BYTES as u64, length: 1 },
            Extent { at: u64::MAX, length: 1 },
            Extent { at: 1, length: MEMORY_BYTES as u32 },
        ] {
            // SAFETY: there are no such bytes.
            assert!(unsafe { node.bytes(place) }.is_none(), "{place:?}");
        }
    }
}
