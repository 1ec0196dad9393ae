//! Memory shared by a coordinator and a node on the same machine, so that large data does not go through a socket.
//!
//! The coordinator creates it once, for all its nodes, and allocates its large buffers from it. A claim describes it; a
//! node that can map it reports so in its welcome, and from then on requests for large data refer to ranges of this memory
//! instead of carrying the data ([`crate::frame`]). Everything else uses the connection as before.
//!
//! It is opened through `/proc/PID/fd`, which the kernel permits to processes that may trace the coordinator: those of the
//! same user, or root. It must be a memory file of our name that cannot shrink (a missing page would raise a signal rather
//! than an error), and begin with the agreed words. So a coordinator cannot make a node write into anything else. In
//! another PID namespace it is not found, and everything else works as usual.
//!
//! The last word of its header is the CPU on which the coordinator wants its nodes to run ([`crate::colocation`]): old
//! coordinators leave it at zero, and old nodes ignore it.
//!
//! The coordinator does not touch a buffer from sending its request until the node has replied; or, if a connection breaks,
//! until the node has accepted its coordinator again, which it does when no request of the old session is still running
//! ([`crate::node`]).

use bytes::{Buf, BufMut as _, Bytes};
use nbd::buffer::{SHARED_MEMORY_BYTES, shared_offset, use_memory};
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

const MEMORY_FILE_NAME: &str = "fathom-pool";
/// The header before the shared memory: the words, and at its end the CPU.
pub(crate) const FILE_HEADER_BYTES: usize = 4096;
const CPU_OFFSET: usize = FILE_HEADER_BYTES - size_of::<u32>();
const FILE_BYTES: usize = FILE_HEADER_BYTES + SHARED_MEMORY_BYTES;
/// The maximum number of ranges of one request: its data may be in parts.
pub const EXTENTS_MAX: usize = 63;
/// Bytes of one range in a frame.
const EXTENT_BYTES: usize = 12;
const _: () = assert!(EXTENT_BYTES == size_of::<u64>() + size_of::<u32>());
// In a request's flags, their number has the six bits above two others.
const _: () = assert!(EXTENTS_MAX == (u8::MAX >> 2) as usize);
// The last word of the header is aligned, as an atomic has to be.
const _: () = assert!(CPU_OFFSET.is_multiple_of(align_of::<AtomicU32>()) && FILE_HEADER_BYTES.is_multiple_of(4096));

/// The description of a coordinator's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryOffer {
    /// The boot of the machine, by which both ends detect that they are on the same one.
    pub boot: String,
    process: u32,
    file: i32,
    /// The words at its beginning.
    words: String,
}

/// Changes when the machine restarts; empty where the kernel does not provide it.
pub fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().into()
}

/// The memory of this process, mapped until its end.
struct OwnMemory {
    file: File,
    words: String,
    cpu: &'static AtomicU32,
}

static OWN_MEMORY: OnceLock<Option<OwnMemory>> = OnceLock::new();

/// Asks all nodes that share this process's memory to run on a CPU, or anywhere.
pub(crate) fn suggest_cpu(processor: Option<usize>) {
    if let Some(owned) = OWN_MEMORY.get().and_then(Option::as_ref) {
        let number = processor.and_then(|nth| u32::try_from(nth + 1).ok()).unwrap_or(0);
        owned.cpu.store(number, Ordering::Relaxed);
    }
}

impl MemoryOffer {
    /// The offer to a node on the machine with this boot id; `None` if that is another machine, or if the memory cannot be allocated.
    pub fn for_boot(boot: &str) -> Option<Self> {
        if boot.is_empty() || boot != self::boot() {
            return None;
        }
        let OwnMemory { file, words, .. } = OWN_MEMORY.get_or_init(|| OwnMemory::create().ok()).as_ref()?;
        Some(Self::from_file(file, words))
    }

    /// The offer of a file of this process, which [`create_memory_file`] returned with these words.
    pub(crate) fn from_file(file: &File, words: &str) -> Self {
        Self { boot: self::boot(), process: std::process::id(), file: file.as_raw_fd(), words: words.into() }
    }

    /// Opens the file in another process; `None` if it is not on this machine, not accessible, or not what was offered.
    pub(crate) fn open(&self, name: &str, bytes: usize, write: bool) -> Option<File> {
        if self.boot != boot() {
            return None;
        }
        let path = self.fd_path(self.file);
        // Checked before opening: opening any other file may have side effects.
        let ours = std::fs::read_link(&path).ok()?.to_str()?.starts_with(&format!("/memfd:{name} "));
        let file = File::options().read(true).write(write).open(path).ok().filter(|_| ours)?;
        let sealed = fcntl_get_seals(&file).ok()?.contains(SealFlags::SHRINK | SealFlags::GROW);
        let mut words = vec![0; self.words.len().min(CPU_OFFSET)];
        file.read_exact_at(&mut words, 0).ok()?;
        let is_meant = !words.is_empty() && words == self.words.as_bytes();
        (sealed && is_meant && file.metadata().ok()?.len() == bytes as u64).then_some(file)
    }

    /// The path of another file of the offering process.
    pub(crate) fn fd_path(&self, file: i32) -> PathBuf {
        format!("/proc/{}/fd/{file}", self.process).into()
    }

    /// Whether the offering process is of the same user as this one. The owner of `/proc/PID` does not show that: it is root for
    /// any process that is not dumpable.
    pub(crate) fn is_of_same_user(&self) -> bool {
        let own = rustix::process::geteuid().as_raw().to_string();
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process)).unwrap_or_default();
        // Real, effective, saved and file system user.
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        users.is_some_and(|users| users.split_whitespace().all(|user| user == own))
    }
}

impl OwnMemory {
    fn create() -> io::Result<Self> {
        let (file, words) = create_memory_file(MEMORY_FILE_NAME, FILE_BYTES)?;
        let begin = map_file(&file, FILE_BYTES, ProtFlags::READ | ProtFlags::WRITE)?;
        // SAFETY: the mapping is new, has this many bytes after its header, and is never unmapped; nothing else in this
        // process uses it.
        let memory = unsafe { &mut *begin.as_ptr().add(FILE_HEADER_BYTES).cast::<[u8; SHARED_MEMORY_BYTES]>() };
        use_memory(memory).map_err(|_| io::Error::other("there is some already"))?;
        Ok(Self { file, words, cpu: cpu_word(begin) })
    }
}

/// Creates a memory file of this many bytes, which can neither shrink nor grow. It begins with the returned words, by which
/// another process recognises it; they take less than [`FILE_HEADER_BYTES`].
pub(crate) fn create_memory_file(name: &str, bytes: usize) -> io::Result<(File, String)> {
    let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.set_len(bytes as u64)?;
    let words: String = (0..4).map(|_| crate::unique_name::new_name()).collect();
    file.write_all_at(words.as_bytes(), 0)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok((file, words))
}

/// Maps such a file.
pub(crate) fn map_file(file: &File, bytes: usize, protection: ProtFlags) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping at an address chosen by the kernel touches nothing that is in use.
    let begin = unsafe { mmap(null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
    NonNull::new(begin.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// The last word of the header.
fn cpu_word<'m>(begin: NonNull<u8>) -> &'m AtomicU32 {
    // SAFETY: this much is mapped as long as the caller has the mapping; the word is aligned, and only accessed as an atomic.
    unsafe { AtomicU32::from_ptr(begin.as_ptr().add(CPU_OFFSET).cast()) }
}

/// A coordinator's memory, mapped by a node.
#[derive(Debug)]
pub struct MappedMemory {
    begin: NonNull<u8>,
}

// SAFETY: it is only an address; its users ensure exclusive access to the bytes (`MappedMemory::bytes`).
unsafe impl Send for MappedMemory {}
// SAFETY: as above.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// Maps the memory, if it is on this machine and accessible.
    pub fn map_offer(offer: &MemoryOffer) -> Option<Self> {
        let file = offer.open(MEMORY_FILE_NAME, FILE_BYTES, true)?;
        Some(Self { begin: map_file(&file, FILE_BYTES, ProtFlags::READ | ProtFlags::WRITE).ok()? })
    }

    /// The CPU on which the coordinator wants its nodes to run, if any.
    pub(crate) fn suggested_cpu(&self) -> Option<usize> {
        (cpu_word(self.begin).load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// The bytes of a range; `None` if some of them are outside the memory.
    ///
    /// # Safety
    /// The coordinator has named the range in an unanswered request, so that nothing else uses it.
    #[expect(clippy::mut_from_ref, reason = "the request that is served has them alone")]
    pub unsafe fn bytes(&self, place: Extent) -> Option<&mut [u8]> {
        let (at, length) = (usize::try_from(place.offset).ok()?, place.length as usize);
        if at.checked_add(length)? > SHARED_MEMORY_BYTES {
            return None;
        }
        // SAFETY: the mapping has this many bytes after its header, and cannot shrink; the caller guarantees exclusive access.
        Some(unsafe { std::slice::from_raw_parts_mut(self.begin.as_ptr().add(FILE_HEADER_BYTES + at), length) })
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice of it outlives `self`. If it cannot be unmapped it stays, unused.
        let _ = unsafe { munmap(self.begin.as_ptr().cast(), FILE_BYTES) };
    }
}

/// A range of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl Extent {
    /// The ranges of these bytes in frame format; `None` if not all are in this process's memory, or there are too many parts.
    pub fn encode<'b>(parts: impl IntoIterator<Item = &'b [u8]>) -> Option<Bytes> {
        let mut places = Vec::with_capacity(EXTENT_BYTES);
        for part in parts {
            places.put_u64_le(shared_offset(part)? as u64);
            places.put_u32_le(part.len() as u32);
        }
        let count = places.len() / EXTENT_BYTES;
        (1..=EXTENTS_MAX).contains(&count).then(|| places.into())
    }

    pub fn count(places: &[u8]) -> u8 {
        let count = places.len() / EXTENT_BYTES;
        assert!(count <= EXTENTS_MAX && places.len().is_multiple_of(EXTENT_BYTES), "{} bytes of ranges", places.len());
        count as u8
    }

    /// Bytes of `count` ranges in a frame.
    pub fn encoded_bytes(count: u8) -> usize {
        usize::from(count) * EXTENT_BYTES
    }

    /// The ranges of a frame, which has checked that there are whole ones.
    pub fn decode(mut places: &[u8]) -> impl Iterator<Item = Self> {
        assert!(places.len().is_multiple_of(EXTENT_BYTES), "{} bytes of ranges", places.len());
        std::iter::from_fn(move || {
            (places.len() >= EXTENT_BYTES).then(|| Self { offset: places.get_u64_le(), length: places.get_u32_le() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nbd::buffer::Buffer;

    #[test]
    fn node_and_coordinator_share_memory_both_ways() {
        let offer = MemoryOffer::for_boot(&boot()).expect("memory can be had");
        let node = MappedMemory::map_offer(&offer).expect("it is this process");
        let mut buffer = Buffer::new(1 << 20);
        buffer.fill(7);
        let places = Extent::encode([&buffer[..1000], &buffer[5000..5010]]).expect("it is taken from there");
        assert_eq!(Extent::count(&places), 2);
        let all: Vec<Extent> = Extent::decode(&places).collect();
        assert_eq!(all.iter().map(|place| place.length).collect::<Vec<_>>(), [1000, 10]);
        // SAFETY: the buffer is not accessed meanwhile.
        let seen = unsafe { node.bytes(all[1]) }.expect("it is within");
        assert!(seen.iter().all(|byte| *byte == 7));
        seen.fill(9);
        assert_eq!((buffer[4999], buffer[5000], buffer[5009], buffer[5010]), (7, 9, 9, 7));
        assert_eq!(Extent::encode([&[1_u8][..]]), None, "that is elsewhere");
    }

    #[test]
    fn foreign_memory_is_refused() {
        let offer = MemoryOffer::for_boot(&boot()).expect("memory can be had");
        let wrong = |change: &dyn Fn(&mut MemoryOffer)| {
            let mut offer = offer.clone();
            change(&mut offer);
            assert!(MappedMemory::map_offer(&offer).is_none(), "{offer:?}");
        };
        wrong(&|offer| offer.boot.push('0'));
        wrong(&|offer| offer.words.replace_range(..1, "x"));
        wrong(&|offer| offer.words.clear());
        wrong(&|offer| offer.process = u32::MAX);
        // A file of this process that is not shared memory, and a memfd that could be truncated.
        let file = tempfile::tempfile().expect("a file");
        file.set_len(FILE_BYTES as u64).expect("it has room");
        wrong(&|offer| offer.file = file.as_raw_fd());
        let other = File::from(
            memfd_create(MEMORY_FILE_NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory"),
        );
        other.set_len(FILE_BYTES as u64).expect("it has room");
        other.write_all_at(offer.words.as_bytes(), 0).expect("it has room");
        wrong(&|offer| offer.file = other.as_raw_fd());
        assert_eq!(MemoryOffer::for_boot("another machine"), None);
        let node = MappedMemory::map_offer(&offer).expect("it is this process");
        for place in [
            Extent { offset: SHARED_MEMORY_BYTES as u64, length: 1 },
            Extent { offset: u64::MAX, length: 1 },
            Extent { offset: 1, length: SHARED_MEMORY_BYTES as u32 },
        ] {
            // SAFETY: there are no such bytes, so none are returned.
            assert!(unsafe { node.bytes(place) }.is_none(), "{place:?}");
        }
    }
}
