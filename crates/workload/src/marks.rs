//! Marks: how a program tells the trace "this is mine, from here to here" at the price of two readings of the clock.
//!
//! The papers bracket every INSERT in the application by App(start) and App(end). A probe on a function of the
//! program's would cost a trap into the kernel each time (about 1 us); a mark is a 64-byte record stored into memory
//! that the recorder shares. The recorder makes a memfd and passes its number in `FATHOM_MARKS_FD`; the program maps it
//! and fills records; the recorder (`capture`) reads them at the end. This is the program's side, and a model for other
//! languages.
//!
//! Little-endian, 64 bytes each:
//!
//! | offset | header | record |
//! |---|---|---|
//! | 0 | `FTHMMARK` | u64 begin, CLOCK_BOOTTIME in ns |
//! | 8 | u32 version 1, u32 record size 64 | u64 end; 0 until the record is whole |
//! | 16 | u64 capacity in records | u32 process, u32 thread |
//! | 24 | u64 records asked for, may exceed the capacity | u64 ordinal among the marks of that name |
//! | 32 | zeroes | name, UTF-8, cut at 32 bytes, padded with zeroes |
//!
//! A writer takes a place by adding 1 to the count, so threads and processes need no lock. A full memory loses marks
//! and the count says how many.

use crate::clock;
use std::ffi::c_void;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable that names the descriptor.
pub const VARIABLE: &str = "FATHOM_MARKS_FD";
const MAGIC: &[u8; 8] = b"FTHMMARK";
const VERSION: u32 = 1;
const RECORD: usize = 64;
const COUNT_AT: usize = 24;
/// A capacity beyond this (256 MiB) is a damaged header.
const MOST: u64 = 1 << 22;

/// The header's capacity; an error if this is not a header of ours.
fn capacity(file: &File) -> Result<u64> {
    let mut bytes = [0_u8; RECORD];
    file.read_exact_at(&mut bytes, 0)?;
    let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let capacity = u64::from_le_bytes(std::array::from_fn(|i| bytes[16 + i]));
    if &bytes[..8] != MAGIC || u32_at(8) != VERSION || u32_at(12) as usize != RECORD || capacity > MOST {
        return Err(Error::other("this is no memory for marks of version 1"));
    }
    Ok(capacity)
}

/// The mapped memory, on the program's side.
#[derive(Debug)]
pub struct Writer {
    memory: NonNull<u8>,
    length: usize,
    capacity: u64,
}

// SAFETY: the mapping belongs to no thread, and everything in it is accessed through atomics.
unsafe impl Send for Writer {}
// SAFETY: as above.
unsafe impl Sync for Writer {}

impl Writer {
    /// The recorder's memory, if this program was started by one.
    pub fn from_environment() -> Option<Self> {
        let fd: RawFd = std::env::var(VARIABLE).ok()?.parse().ok().filter(|fd| *fd >= 0)?;
        // SAFETY: dup of any number is defined: it fails if that is no open descriptor. The copy is ours alone.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        // SAFETY: as above; only a descriptor that dup gave is owned.
        (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) }).and_then(|fd| Self::new(fd).ok())
    }

    /// Maps a recorder's memory.
    ///
    /// # Errors
    /// It is something else, or cannot be mapped.
    pub fn new(fd: OwnedFd) -> Result<Self> {
        let file = File::from(fd);
        let capacity = capacity(&file)?;
        let length = (capacity as usize + 1) * RECORD;
        if file.metadata()?.len() < length as u64 {
            return Err(Error::other("the memory for marks is smaller than its header says"));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, within the file's length just checked.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let memory = NonNull::new(at.cast::<u8>()).ok_or_else(|| Error::other("mapped at address 0"))?;
        Ok(Self { memory, length, capacity })
    }

    fn atomic(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.length);
        // SAFETY: inside the mapping (every caller's offset is below capacity + 1 records), aligned because mappings
        // begin at a page, and only ever accessed as an atomic.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().add(at).cast::<u64>()) }
    }

    /// Stores one mark. `nth` is its ordinal among the marks of that name.
    pub fn put(&self, name: &Name, nth: u64, start_ns: u64, end_ns: u64) {
        let place = self.atomic(COUNT_AT).fetch_add(1, Ordering::Relaxed);
        if place >= self.capacity {
            return;
        }
        let at = (place as usize + 1) * RECORD;
        self.atomic(at).store(start_ns.to_le(), Ordering::Relaxed);
        self.atomic(at + 16).store(name.who, Ordering::Relaxed);
        self.atomic(at + 24).store(nth.to_le(), Ordering::Relaxed);
        for (i, word) in name.words.iter().enumerate() {
            self.atomic(at + 32 + 8 * i).store(*word, Ordering::Relaxed);
        }
        // Last, since a record without an end is not whole.
        self.atomic(at + 8).store(end_ns.to_le(), Ordering::Release);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no reference into it outlives self.
        unsafe { libc::munmap(self.memory.as_ptr().cast::<c_void>(), self.length) };
    }
}

/// A mark's name and thread, made ready once so that a mark itself costs no formatting and no system call.
#[derive(Debug, Clone)]
pub struct Name {
    words: [u64; 4],
    who: u64,
}

impl Name {
    /// The name (cut at 32 bytes, between characters) for marks of the calling thread.
    pub fn new(name: &str) -> Self {
        let mut end = name.len().min(32);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0_u8; 32];
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        let words = std::array::from_fn(|i| u64::from_ne_bytes(std::array::from_fn(|j| bytes[8 * i + j])));
        // SAFETY: takes no arguments and cannot fail.
        let tid = unsafe { libc::gettid() } as u32;
        let mut who = [0_u8; 8];
        who[..4].copy_from_slice(&std::process::id().to_le_bytes());
        who[4..].copy_from_slice(&tid.to_le_bytes());
        Self { words, who: u64::from_ne_bytes(who) }
    }
}

/// A series of marks of one name; does nothing but read the clock when nobody records.
#[derive(Debug)]
pub struct Series<'a> {
    writer: Option<&'a Writer>,
    name: Name,
    nth: u64,
}

impl<'a> Series<'a> {
    /// A series for the calling thread.
    pub fn new(writer: Option<&'a Writer>, name: &str) -> Self {
        Self { writer, name: Name::new(name), nth: 0 }
    }

    /// Runs `work` as the next of the series, and returns what it returned, its begin and its end (CLOCK_BOOTTIME).
    pub fn around<T>(&mut self, work: impl FnOnce() -> T) -> (T, u64, u64) {
        let start = clock::now_ns();
        let result = work();
        let end = clock::now_ns();
        if let Some(writer) = self.writer {
            writer.put(&self.name, self.nth, start, end);
        }
        self.nth += 1;
        (result, start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory as a recorder makes it.
    fn memory(capacity: u64) -> File {
        // SAFETY: the name is a NUL-terminated literal.
        let fd = unsafe { libc::memfd_create(c"fathom-marks-test".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: the kernel just gave this descriptor to us alone.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len((capacity + 1) * RECORD as u64).unwrap();
        file.write_all_at(b"FTHMMARK\x01\0\0\0\x40\0\0\0", 0).unwrap();
        file.write_all_at(&capacity.to_le_bytes(), 16).unwrap();
        file
    }

    fn writer(file: &File) -> Result<Writer> {
        Writer::new(file.try_clone().unwrap().into())
    }

    fn bytes<const N: usize>(file: &File, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn number(file: &File, at: u64) -> u64 {
        u64::from_le_bytes(bytes(file, at))
    }

    #[test]
    fn a_mark_is_laid_out_as_documented() {
        let file = memory(2);
        writer(&file).unwrap().put(&Name::new("SELECT"), 3, 0x11, 0x22);
        assert_eq!(number(&file, 24), 1);
        assert_eq!(&bytes(&file, 64), b"\x11\0\0\0\0\0\0\0\x22\0\0\0\0\0\0\0");
        assert_eq!(bytes(&file, 80), std::process::id().to_le_bytes());
        // SAFETY: takes no arguments and cannot fail.
        assert_eq!(bytes(&file, 84), unsafe { libc::gettid() }.to_le_bytes());
        assert_eq!(&bytes(&file, 88), b"\x03\0\0\0\0\0\0\0SELECT\0\0");
        assert_eq!(bytes(&file, 128), [0; 64]);
    }

    #[test]
    fn a_series_counts_and_returns_the_times_it_marked() {
        let file = memory(10);
        let writer = writer(&file).unwrap();
        let mut series = Series::new(Some(&writer), "a name that is cut before this \u{fc}");
        series.around(|| ());
        let (seven, start, end) = series.around(|| 7);
        assert!(seven == 7 && start <= end);
        assert_eq!((number(&file, 128), number(&file, 136), number(&file, 152)), (start, end, 1));
        assert_eq!(&bytes(&file, 160), b"a name that is cut before this \0");
    }

    #[test]
    fn threads_share_the_memory_and_a_full_one_counts_its_losses() {
        let file = memory(1000);
        let writer = &writer(&file).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let name = Name::new(&format!("t{thread}"));
                    (0..300).for_each(|n| writer.put(&name, n, n + 1, n + 2));
                });
            }
        });
        assert_eq!(number(&file, 24), 1200);
        let mut threads = std::collections::BTreeSet::new();
        for record in 1..=1000 {
            let at = record * 64;
            let (start, nth) = (number(&file, at), number(&file, at + 24));
            assert!(number(&file, at + 8) == start + 1 && nth + 1 == start);
            threads.insert(number(&file, at + 16));
        }
        assert_eq!(threads.len(), 4);
    }

    #[test]
    fn what_is_no_such_memory_is_refused() {
        let file = memory(4);
        file.set_len(100).unwrap();
        assert!(writer(&file).is_err(), "cut short");
        let file = memory(4);
        file.write_all_at(&u64::MAX.to_le_bytes(), 16).unwrap();
        assert!(writer(&file).is_err(), "an absurd capacity");
        let file = memory(4);
        file.write_all_at(b"\x02", 8).unwrap();
        assert!(writer(&file).is_err(), "another version");
        assert!(Writer::new(File::open("/dev/null").unwrap().into()).is_err());
    }
}
