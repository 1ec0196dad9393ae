//! The application's own spans: marks that the traced program writes into memory shared with the recorder.
//!
//! The recorder creates the memory, a memfd, before it starts the program, and reads it after the end. Its format is
//! described in [`model::marks`].
//!
//! The program may write anything there. The size is sealed, so it cannot truncate the memory under the reader; the
//! capacity is stored here, and everything read is checked.

use crate::kernel::clock::{boot_ns, to_kernel_ns};
use model::Dev;
use model::event::Event;
pub use model::marks::FD_VARIABLE;
use model::marks::{CAPACITY_MAX, COUNT_AT, RECORD_BYTES, Slot, header, offset};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt as _};

/// The shared memory, on the recorder's side.
#[derive(Debug)]
pub struct Marks {
    memory: File,
    capacity: u64,
}

/// The marks of a program.
#[derive(Debug, Default)]
pub struct ProgramMarks {
    /// One `mark` event per finished span, in the order of their records.
    pub events: Vec<Event>,
    /// Marks that did not fit.
    pub lost: u64,
    /// Invalid records: never finished, ending before they begin, or in the future.
    pub unusable: u64,
}

impl Marks {
    /// Creates room for `capacity` marks (at most 4 Mi), 64 bytes each, or for fewer if the size of files is limited (RLIMIT_FSIZE).
    /// Memory is used as it is written.
    ///
    /// # Errors
    /// The kernel has no memfd, or no memory.
    pub fn create(capacity: u64) -> io::Result<Self> {
        let mut capacity = capacity.min(CAPACITY_MAX);
        // SAFETY: a zero-terminated name and plain flags; the result is checked.
        let fd = unsafe { libc::memfd_create(c"fathom-marks".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nothing else.
        let memory = unsafe { File::from_raw_fd(fd) };
        while let Err(e) = memory.set_len(offset(capacity)) {
            if e.raw_os_error() != Some(libc::EFBIG) || capacity == 0 {
                return Err(e);
            }
            capacity /= 2;
        }
        memory.write_all_at(&header(capacity), 0)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: fcntl on an open descriptor, with an integer argument.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { memory, capacity })
    }

    /// Returns the descriptor to pass to the program.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Returns the memory's inode and file system, by which a mapping of it is recognised.
    ///
    /// # Errors
    /// Its status could not be read, which no program can cause.
    pub fn identity(&self) -> io::Result<(u64, Dev)> {
        let about = self.memory.metadata()?;
        Ok((about.ino(), Dev::new(libc::major(about.dev()), libc::minor(about.dev()))))
    }

    /// Reads what has been marked so far. The program may still be running: a span that it is about to finish is then
    /// missing.
    ///
    /// # Errors
    /// The memory could not be read, which no program can cause.
    pub fn read(&self) -> io::Result<ProgramMarks> {
        let mut count = [0; 8];
        self.memory.read_exact_at(&mut count, COUNT_AT as u64)?;
        let count = u64::from_le_bytes(count);
        let mut all = ProgramMarks { lost: count.saturating_sub(self.capacity), ..ProgramMarks::default() };
        let now_ns = boot_ns();
        let mut record = [0; RECORD_BYTES];
        for i in 0..count.min(self.capacity) {
            self.memory.read_exact_at(&mut record, offset(i))?;
            let slot = Slot::decode(&record);
            // 0 is not a time: the span has not ended.
            let of_kernel = |ns| if ns == 0 { 0 } else { to_kernel_ns(ns) };
            match (Slot { start_ns: of_kernel(slot.start_ns), end_ns: of_kernel(slot.end_ns), ..slot }).event() {
                // One that ends in the future was not read from this clock.
                Some(event) if event.header.time_ns <= now_ns => all.events.push(event),
                _ => all.unusable += 1,
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(start: u64, end: u64, name: &[u8]) -> Vec<u8> {
        let mut bytes = [start, end].iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        bytes.extend(7u32.to_le_bytes());
        bytes.extend(8u32.to_le_bytes());
        bytes.extend(9u64.to_le_bytes());
        bytes.extend(name);
        bytes.resize(RECORD_BYTES, 0);
        bytes
    }

    fn write(marks: &Marks, count: u64, records: &[Vec<u8>]) {
        marks.memory.write_all_at(&count.to_le_bytes(), 24).unwrap();
        marks.memory.write_all_at(&records.concat(), 64).unwrap();
    }

    #[test]
    fn marks_become_events() {
        let marks = Marks::create(4).unwrap();
        assert!(marks.read().unwrap().events.is_empty());
        write(&marks, 2, &[record(1000, 1500, b"insert"), record(1600, 1600, &[b'x'; 32])]);
        let read = marks.read().unwrap();
        let text: Vec<String> = read.events.iter().map(Event::to_text).collect();
        assert_eq!(text[0], "@1500 cpu0 7/8 mark start_ns=1000 nth=9 text=\"insert\"");
        assert_eq!(text[1], format!("@1600 cpu0 7/8 mark start_ns=1600 nth=9 text=\"{}\"", "x".repeat(32)));
        assert_eq!((read.lost, read.unusable), (0, 0));
    }

    #[test]
    fn lost_and_unfinished_marks_are_counted() {
        let marks = Marks::create(2).unwrap();
        write(&marks, 5, &[record(1000, 0, b"unfinished"), record(0, 5, b"")]);
        let read = marks.read().unwrap();
        assert_eq!((read.events.len(), read.lost, read.unusable), (0, 3, 2));
    }

    #[test]
    fn program_cannot_resize_shared_memory() {
        let marks = Marks::create(2).unwrap();
        assert!(marks.memory.set_len(0).is_err());
        assert!(marks.memory.set_len(1 << 20).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_marks_do_not_panic(noise in proptest::collection::vec(any::<u8>(), 64 * 3)) {
            let marks = Marks::create(2).unwrap();
            marks.memory.write_all_at(&noise, 0).unwrap();
            let read = marks.read().unwrap();
            prop_assert!(read.events.len() <= 2);
            for event in &read.events {
                let mut bytes = Vec::new();
                event.encode(&mut bytes);
                let back = Event::decode(&bytes);
                prop_assert_eq!(back.as_ref(), Some(event));
            }
        }
    }
}
