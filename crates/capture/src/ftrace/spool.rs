//! The data from one CPU's buffer: in memory, and beyond that in a file.
//!
//! If its disk is full, a file keeps the whole pages that it has; what was not written yet stays in memory. So nothing that was read
//! is lost, and the recording can end there.

use super::{Error, Result, with_context};
use model::text::ShownPath as _;
use std::fs::{self, File};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes of a CPU that are kept in memory before they are written to its file. A short recording thus writes nothing, and a
/// slow disk rarely delays the reader.
const HELD_BYTES_MAX: usize = 64 << 20;

/// The pages of one CPU.
#[derive(Debug)]
pub struct Spool {
    file: File,
    path: PathBuf,
    /// Bytes in the file.
    written: u64,
    /// Data that was read and not written yet.
    held: Vec<u8>,
    full: Option<String>,
}

impl Spool {
    /// Creates a spool with `path` as its file.
    pub fn create(path: PathBuf) -> Result<Self> {
        let file = with_context(File::create(&path), || format!("making {}", path.shown()))?;
        Ok(Self { file, path, written: 0, held: Vec::new(), full: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn hold(&mut self, page: &[u8]) {
        self.held.extend_from_slice(page);
    }

    /// Writes the held pages, if they are many. A full disk is not an error here: see [`Spool::full_reason`].
    pub fn write(&mut self) -> Result<()> {
        if self.held.len() <= HELD_BYTES_MAX || self.full.is_some() {
            return Ok(());
        }
        match self.file.write_all(&self.held) {
            Ok(()) => {
                self.written += self.held.len() as u64;
                self.held.clear();
                Ok(())
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
                ) =>
            {
                self.full = Some(format!("{} is full: {error}", self.path.shown()));
                // Some of them are in the file, and all of them in memory.
                let cut = self.file.set_len(self.written).and_then(|()| self.file.seek(SeekFrom::Start(self.written)));
                with_context(cut.map(drop), || format!("cutting {}", self.path.shown()))
            }
            Err(source) => Err(Error::Io { doing: format!("writing {}", self.path.shown()), source }),
        }
    }

    /// Returns why it writes no more.
    pub fn full_reason(&self) -> Option<&str> {
        self.full.as_deref()
    }

    /// Returns all pages, in the order in which they were added.
    pub fn read(mut self) -> Result<Vec<u8>> {
        let mut pages = with_context(fs::read(&self.path), || format!("reading {}", self.path.shown()))?;
        pages.append(&mut self.held);
        Ok(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    const PAGE_BYTES: usize = 4096;

    fn hold_pages(spool: &mut Spool, pages: std::ops::Range<usize>) {
        pages.for_each(|n| spool.hold(&[n as u8; PAGE_BYTES]));
    }

    #[test]
    fn pages_come_back_in_order_from_file_and_memory() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(directory.path().join("cpu0.raw")).unwrap();
        let many = HELD_BYTES_MAX / PAGE_BYTES + 1;
        hold_pages(&mut spool, 0..many);
        spool.write().unwrap();
        assert_eq!((spool.held.len(), spool.written), (0, (many * PAGE_BYTES) as u64));
        hold_pages(&mut spool, many..many + 3);
        spool.write().unwrap();
        assert_eq!(spool.held.len(), 3 * PAGE_BYTES, "a little is not written");
        let pages = spool.read().unwrap();
        assert_eq!(pages.len(), (many + 3) * PAGE_BYTES);
        assert!(pages.chunks(PAGE_BYTES).enumerate().all(|(n, page)| page.iter().all(|byte| *byte == n as u8)));
    }

    #[test]
    fn full_file_keeps_what_was_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cpu0.raw");
        let mut spool = Spool::create(path.clone()).unwrap();
        // Every write to this device fails as on a full disk; unlike a disk's file, it cannot be truncated.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let file = std::mem::replace(&mut spool.file, full);
        hold_pages(&mut spool, 0..HELD_BYTES_MAX / PAGE_BYTES + 1);
        let _ = spool.write();
        assert!(spool.full_reason().is_some_and(|why| why.contains("cpu0.raw is full")), "{:?}", spool.full_reason());
        spool.file = file;
        hold_pages(&mut spool, 7..8);
        spool.write().unwrap();
        let pages = spool.read().unwrap();
        assert_eq!(pages.len(), HELD_BYTES_MAX + 2 * PAGE_BYTES);
        assert_eq!(pages[pages.len() - 1], 7);
    }
}
