//! What is wrong with a store's medium: damaged blocks, errors, and a lack of space.
//!
//! A fault that only fails a request is known to one client at most. So each is counted by its kind, reported once,
//! and remembered with its place, until an access of the same blocks shows that it is gone: a damaged block that was written
//! anew, or a full medium that has room again.

use super::{BLOCK_BYTES, Store};
use crate::frame::Status;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of blocks whose faults are remembered: a medium that is gone fails all of its blocks.
const FAULTY_BLOCKS_MAX: usize = 1 << 16;
/// The maximum number of lines in an interval, and its length; lines left out are counted.
const LINES_MAX: u32 = 20;
const LINES_INTERVAL: Duration = Duration::from_secs(10);

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A block does not match its checksum.
    Damaged,
    /// There is no space for a write.
    Full,
    Read,
    Write,
    Flush,
}

impl Kind {
    pub const KINDS: [Self; 5] = [Self::Damaged, Self::Full, Self::Read, Self::Write, Self::Flush];

    /// The name in JSON and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Full => "full",
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }

    fn status(self) -> Status {
        match self {
            Self::Damaged => Status::Damaged,
            Self::Full => Status::Full,
            Self::Read | Self::Write | Self::Flush => Status::Io,
        }
    }
}

/// The faults of a store since it was opened.
#[derive(Default)]
pub(super) struct Faults {
    counts: [AtomicU64; Kind::KINDS.len()],
    /// The last fault of each block.
    blocks: Mutex<BTreeMap<u64, Kind>>,
    /// Their number, readable without the lock.
    known_count: AtomicUsize,
    line_limit: Mutex<Limit>,
    observer: OnceLock<Box<dyn Fn(String) + Send + Sync>>,
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").field("counts", &self.counts).field("known", &self.known_count).finish_non_exhaustive()
    }
}

/// Limits the lines of a log.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Limit {
    /// Whether a line may be written now; and the number of lines left out before it.
    pub fn permits(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= LINES_INTERVAL) {
            (self.since, self.lines) = (Some(now), 0);
        }
        if self.lines == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// The blocks of a range of bytes.
fn blocks(offset: u64, bytes: u64) -> Range<u64> {
    offset / BLOCK_BYTES..(offset.saturating_add(bytes)).div_ceil(BLOCK_BYTES)
}

impl Faults {
    fn count_fault(&self, kind: Kind) {
        self.counts[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Remembers a fault; whether it is new for any of the blocks.
    fn remember(&self, kind: Kind, range: Range<u64>) -> bool {
        let mut known = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_new = range.is_empty();
        for block in range.take(FAULTY_BLOCKS_MAX) {
            if known.len() < FAULTY_BLOCKS_MAX || known.contains_key(&block) {
                is_new |= known.insert(block, kind) != Some(kind);
            }
        }
        self.known_count.store(known.len(), Ordering::Release);
        is_new
    }

    fn report_line(&self, line: impl FnOnce() -> String) {
        let Some(observer) = self.observer.get() else { return };
        let permitted = self.line_limit.lock().unwrap_or_else(PoisonError::into_inner).permits(Instant::now());
        match permitted {
            None => {}
            Some(0) => observer(line()),
            Some(more) => observer(format!("{}; {more} more faults were not printed", line())),
        }
    }
}

impl Store {
    /// `observer` is called with a line for each fault from now on. Only the first observer counts.
    pub fn observe_faults(&self, observer: impl Fn(String) + Send + Sync + 'static) {
        // A second one would be of a node that serves the same store, which the store's lock excludes.
        let _ = self.faults.observer.set(Box::new(observer));
    }

    /// Its file or device, for people.
    pub fn shown_path(&self) -> String {
        use model::text::ShownPath as _;
        if self.path.as_os_str().is_empty() {
            return "memory".into();
        }
        // Where the directory is unknown, the path as given.
        std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone()).shown().to_string()
    }

    /// Faults of this kind since it was opened.
    pub fn faults(&self, kind: Kind) -> u64 {
        self.faults.counts[kind as usize].load(Ordering::Relaxed)
    }

    /// The number of blocks whose last access had a fault of this kind.
    pub fn faulty_blocks(&self, kind: Kind) -> u64 {
        if self.faults.known_count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let known = self.faults.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().filter(|known| **known == kind).count() as u64
    }

    /// The offset of the first block of the range whose last access had a fault.
    pub fn first_fault(&self, offset: u64, bytes: u64) -> Option<u64> {
        if self.faults.known_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let known = self.faults.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        known.range(blocks(offset, bytes)).next().map(|(block, _)| block * BLOCK_BYTES)
    }

    /// Counts and reports that an access of these bytes failed; of no bytes if it concerns the whole medium.
    pub(super) fn record_failure(&self, kind: Kind, offset: u64, bytes: u64, error: &io::Error) -> Status {
        let kind = if error.kind() == io::ErrorKind::StorageFull { Kind::Full } else { kind };
        self.faults.count_fault(kind);
        if self.faults.remember(kind, blocks(offset, bytes)) {
            let (place, name) = (self.shown_path(), kind.name());
            let what = match kind {
                Kind::Full => "there is no space left",
                _ => "the medium failed",
            };
            self.faults.report_line(|| match bytes {
                0 => format!("store {place}: {name}: {what}: {error}"),
                _ => format!("store {place}: {name} of {bytes} bytes at offset {offset}: {what}: {error}"),
            });
        }
        kind.status()
    }

    /// Reads from the medium.
    pub(super) fn read_disk(&self, to: &mut [u8], at: u64) -> Result<(), Status> {
        self.disk.read(to, at).map_err(|error| self.record_failure(Kind::Read, at, to.len() as u64, &error))
    }

    /// Counts and reports that a block does not match its checksum.
    pub(super) fn record_damage(&self, block: u64) -> Status {
        self.faults.count_fault(Kind::Damaged);
        if self.faults.remember(Kind::Damaged, block..block + 1) {
            let offset = block * BLOCK_BYTES;
            self.faults.report_line(|| {
                let place = self.shown_path();
                format!(
                    "store {place}: damaged: the block of {BLOCK_BYTES} bytes at offset {offset} does not match its checksum"
                )
            });
        }
        Status::Damaged
    }

    /// An access of these blocks has succeeded.
    pub(super) fn record_success(&self, range: Range<u64>) {
        if self.faults.known_count.load(Ordering::Acquire) > 0 {
            let mut known = self.faults.blocks.lock().unwrap_or_else(PoisonError::into_inner);
            let gone: Vec<u64> = known.range(range).map(|(block, _)| *block).collect();
            for block in gone {
                known.remove(&block);
            }
            self.faults.known_count.store(known.len(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;
    use std::sync::{Arc, mpsc};

    fn damaged_store() -> (tempfile::TempDir, Arc<Store>, mpsc::Receiver<String>) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store");
        let store = Store::format(&path, Some(4 << 20), "n".into(), false).expect("a store");
        store.write(0, &vec![7; 1 << 20], false).expect("it has room");
        let file = std::fs::File::options().write(true).open(&path).expect("a file");
        for offset in [5 * BLOCK_BYTES + 9, 200 * BLOCK_BYTES] {
            file.write_all_at(&[1], offset).expect("it has room");
        }
        let (told, lines) = mpsc::channel();
        store.observe_faults(move |line| told.send(line).expect("a receiver"));
        (directory, Arc::new(store), lines)
    }

    #[test]
    fn damage_is_counted_located_and_told_once() {
        let (_directory, store, lines) = damaged_store();
        let (mut out, length) = (Vec::new(), 1 << 20);
        for _ in 0..3 {
            assert_eq!(store.read(5 * BLOCK_BYTES, 512, &mut out), Err(Status::Damaged));
            assert_eq!(store.read_shared(0, length).map(drop), Err(Status::Damaged));
        }
        assert_eq!(store.read_into(200 * BLOCK_BYTES, &mut [0; 4096]), Err(Status::Damaged));
        assert_eq!(store.write(200 * BLOCK_BYTES + 1, &[1], false), Err(Status::Damaged), "a part of it");
        assert_eq!((store.faults(Kind::Damaged), store.faulty_blocks(Kind::Damaged)), (8, 2));
        assert_eq!(store.first_fault(0, 1 << 20), Some(5 * BLOCK_BYTES));
        assert_eq!(store.first_fault(6 * BLOCK_BYTES, 1 << 20), Some(200 * BLOCK_BYTES));
        assert_eq!(store.first_fault(6 * BLOCK_BYTES, BLOCK_BYTES), None);
        let lines: Vec<String> = lines.try_iter().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        let place = store.shown_path();
        assert!(lines[0].starts_with(&format!("store {place}: damaged: ")) && place.ends_with("store"), "{lines:?}");
        assert!(lines[0].contains("offset 20480 ") && lines[1].contains("offset 819200 "), "{lines:?}");
    }

    #[test]
    fn repaired_block_is_not_a_fault_any_more() {
        let (_directory, store, lines) = damaged_store();
        for block in [5, 200] {
            assert_eq!(store.read_shared(block * BLOCK_BYTES, 4096).map(drop), Err(Status::Damaged));
        }
        store.write(5 * BLOCK_BYTES, &[2; 4096], false).expect("it has room");
        assert_eq!(store.faulty_blocks(Kind::Damaged), 1);
        store.trim(199 * BLOCK_BYTES, 3 * 4096, false).expect("it can be trimmed");
        assert_eq!((store.faulty_blocks(Kind::Damaged), store.faults(Kind::Damaged)), (0, 2));
        assert_eq!(lines.try_iter().count(), 2);
    }

    #[test]
    fn reads_that_cannot_block_leave_counting_to_those_that_may() {
        let (_directory, store, lines) = damaged_store();
        assert!(!store.read_nonblocking(5 * BLOCK_BYTES, &mut [0; 4096]));
        assert_eq!((store.faults(Kind::Damaged), lines.try_iter().count()), (0, 0));
    }

    #[test]
    fn errors_are_counted_by_kind_and_lack_of_space_separately() {
        let (_directory, store, lines) = damaged_store();
        let full: io::Error = io::ErrorKind::StorageFull.into();
        assert_eq!(store.record_failure(Kind::Write, 8192, 8192, &full), Status::Full);
        assert_eq!(store.record_failure(Kind::Read, 0, 4096, &io::Error::from_raw_os_error(5)), Status::Io);
        assert_eq!(store.record_failure(Kind::Flush, 0, 0, &io::Error::from_raw_os_error(5)), Status::Io);
        let counts = Kind::KINDS.map(|kind| store.faults(kind));
        assert_eq!(counts, [0, 1, 1, 0, 1]);
        assert_eq!((store.faulty_blocks(Kind::Full), store.faulty_blocks(Kind::Read)), (2, 1));
        let lines: Vec<String> = lines.try_iter().collect();
        assert!(lines[0].contains("full of 8192 bytes at offset 8192: there is no space left"), "{lines:?}");
        assert!(
            lines[1].contains("read of 4096 bytes at offset 0: the medium failed: Input/output error"),
            "{lines:?}"
        );
        assert!(lines[2].contains("flush: the medium failed"), "{lines:?}");
        store.record_success(0..4);
        assert_eq!((store.faulty_blocks(Kind::Full), store.faulty_blocks(Kind::Read)), (0, 0));
    }

    #[test]
    fn log_is_limited_and_counts_what_it_leaves_out() {
        let (mut limit, now) = (Limit::default(), Instant::now());
        let permitted = (0..100).filter(|_| limit.permits(now).is_some()).count();
        assert_eq!(permitted as u32, LINES_MAX);
        assert_eq!(limit.permits(now + LINES_INTERVAL), Some(80));
        assert_eq!(limit.permits(now + LINES_INTERVAL), Some(0));
    }

    #[test]
    fn medium_that_is_gone_does_not_fill_the_memory() {
        let (_directory, store, _lines) = damaged_store();
        let gone = io::Error::from_raw_os_error(5);
        store.record_failure(Kind::Read, 0, 1 << 40, &gone);
        assert_eq!(store.faulty_blocks(Kind::Read), FAULTY_BLOCKS_MAX as u64);
    }
}
