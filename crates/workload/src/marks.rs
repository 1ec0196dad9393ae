//! Marks: how a program marks an interval of the trace as its own, at the cost of two clock readings.
//!
//! The papers bracket every INSERT in the application with App(start) and App(end). Here the program stores a record into
//! memory that the recorder shares with it; [`model::marks`] describes the layout and the reasons. This is the program's
//! side, and a model for other languages.

use crate::clock;
use model::marks::{COUNT_AT, END_AT, FD_VARIABLE, RECORD_BYTES, Slot, capacity, name, offset};
use std::ffi::c_void;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Maps the recorder's memory, if this program was started by a recorder.
    pub fn from_environment() -> Option<Self> {
        let fd: RawFd = std::env::var(FD_VARIABLE).ok()?.parse().ok().filter(|fd| *fd >= 0)?;
        // SAFETY: dup is defined for any number: it fails if that is not an open descriptor. The copy is ours alone.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        // SAFETY: as above; only a descriptor returned by dup is owned.
        (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy) }).and_then(|fd| Self::new(fd).ok())
    }

    /// Maps a recorder's memory.
    ///
    /// # Errors
    /// It is something else, or cannot be mapped.
    pub fn new(fd: OwnedFd) -> Result<Self> {
        let file = File::from(fd);
        let mut header = [0; RECORD_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let capacity = capacity(&header).ok_or_else(|| Error::other("not a marks area of version 1"))?;
        let length = offset(capacity) as usize;
        if file.metadata()?.len() < length as u64 {
            return Err(Error::other("the marks area is smaller than its header says"));
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

    /// Stores one mark. `nth` is its ordinal among the marks with that name.
    pub fn put(&self, name: &MarkName, nth: u64, start_ns: u64, end_ns: u64) {
        let place = self.atomic(COUNT_AT).fetch_add(1, Ordering::Relaxed);
        if place >= self.capacity {
            return;
        }
        let bytes = Slot { start_ns, end_ns, nth, ..name.slot }.encode();
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let begin = offset(place) as usize;
        for at in (0..RECORD_BYTES).step_by(8).filter(|at| *at != END_AT) {
            self.atomic(begin + at).store(word(at), Ordering::Relaxed);
        }
        // Written last, since a record without an end is incomplete.
        self.atomic(begin + END_AT).store(word(END_AT), Ordering::Release);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no reference into it outlives self.
        unsafe { libc::munmap(self.memory.as_ptr().cast::<c_void>(), self.length) };
    }
}

/// A mark's name and thread, prepared once so that a mark itself costs no formatting and no system call.
#[derive(Debug, Clone)]
pub struct MarkName {
    slot: Slot,
}

impl MarkName {
    /// Creates the name (truncated to 32 bytes, between characters) for marks of the calling thread.
    pub fn new(text: &str) -> Self {
        // SAFETY: takes no arguments and cannot fail.
        let tid = unsafe { libc::gettid() } as u32;
        Self { slot: Slot { tgid: std::process::id(), tid, name: name(text), ..Slot::default() } }
    }
}

/// A series of marks with one name; only reads the clock if there is no recorder.
#[derive(Debug)]
pub struct Series<'a> {
    writer: Option<&'a Writer>,
    name: MarkName,
    nth: u64,
}

impl<'a> Series<'a> {
    /// Creates a series for the calling thread.
    pub fn new(writer: Option<&'a Writer>, name: &str) -> Self {
        Self { writer, name: MarkName::new(name), nth: 0 }
    }

    /// Whether there is a recorder.
    pub fn is_recorded(&self) -> bool {
        self.writer.is_some()
    }

    /// Runs `work` as the next of the series; returns its result, start and end (CLOCK_BOOTTIME).
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

    /// Creates memory as a recorder does.
    fn memory(capacity: u64) -> File {
        // SAFETY: the name is a NUL-terminated literal.
        let fd = unsafe { libc::memfd_create(c"fathom-marks-test".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: the kernel just gave this descriptor to us alone.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len((capacity + 1) * RECORD_BYTES as u64).unwrap();
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
    fn mark_has_the_documented_layout() {
        let file = memory(2);
        writer(&file).unwrap().put(&MarkName::new("SELECT"), 3, 0x11, 0x22);
        assert_eq!(number(&file, 24), 1);
        assert_eq!(&bytes(&file, 64), b"\x11\0\0\0\0\0\0\0\x22\0\0\0\0\0\0\0");
        assert_eq!(bytes(&file, 80), std::process::id().to_le_bytes());
        // SAFETY: takes no arguments and cannot fail.
        assert_eq!(bytes(&file, 84), unsafe { libc::gettid() }.to_le_bytes());
        assert_eq!(&bytes(&file, 88), b"\x03\0\0\0\0\0\0\0SELECT\0\0");
        assert_eq!(bytes(&file, 128), [0; 64]);
    }

    #[test]
    fn series_counts_marks_and_returns_their_times() {
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
    fn threads_share_memory_and_losses_are_counted_when_full() {
        let file = memory(1000);
        let writer = &writer(&file).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let name = MarkName::new(&format!("t{thread}"));
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
    fn invalid_mark_memory_is_refused() {
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
