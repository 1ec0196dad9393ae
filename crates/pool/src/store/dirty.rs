//! Bounds the data that was written and is not on the medium.
//!
//! The model is a basin with a drain: whoever pours faster than it drains has to wait when it is full, and everybody knows
//! how long it takes to empty. The kernel's own basin holds a tenth of the memory, whatever the medium's speed: hundreds of
//! MB, which an SD card needs a minute to write. A flush takes as long then, and everything that needs the file system's
//! journal waits for it.
//!
//! So a thread starts the write-back early, when the basin is half full, and a writer waits while it is full
//! ([`DirtyData::wait_for_room`]), before it takes any lock. The basin holds what the medium writes in two seconds, as measured,
//! and at least [`DIRTY_BYTES_MIN`]: on a fast medium nobody ever waits, and a block that is overwritten often is not written
//! more often than by the kernel. A long flush writes back in the same pieces, so that its progress can be counted.
//!
//! What is counted is what was written: a page that was written twice counts twice. So the basin is never fuller than it
//! seems. Writing back makes nothing durable: it is `sync_file_range`, without the disk's cache and metadata. It uses a file
//! description of its own, since the kernel reports a lost write once to each, and the flushes must not miss it.

use super::FaultKind;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Bytes with a common bit.
const REGION_BYTES: u64 = 1 << 20;
/// The time in which the medium can write what may be dirty,
const DRAIN_DURATION_S: u64 = 2;
/// and its limits in bytes: an SD card writes the minimum in 3 s. The maximum is a fraction of the memory.
const DIRTY_BYTES_MIN: u64 = 32 << 20;
const MEMORY_FRACTION: u64 = 8;
/// What is written back before a writer that waits is woken, and before progress is counted.
const WRITE_BACK_PIECE_BYTES: u64 = 4 << 20;
/// A flush of less is left to the kernel.
const LONG_FLUSH_BYTES_MIN: u64 = 8 << 20;
/// Bytes from which the rate of the medium can be determined.
const MEASURED_BYTES_MIN: u64 = 2 << 20;
/// A flush that takes longer may block writers.
const SHORT_FLUSH_DURATION_MAX: Duration = Duration::from_millis(100);

/// The dirty data of a file or device.
#[derive(Debug)]
pub(super) struct DirtyData {
    /// `None` if nothing is ever written back.
    file: Option<File>,
    /// A bit for each region with dirty data.
    regions: Vec<AtomicU64>,
    /// Bytes written, and not being written back.
    dirty_bytes: AtomicU64,
    /// Bytes being written back.
    leaving_bytes: AtomicU64,
    limit_bytes: AtomicU64,
    limit_bytes_max: u64,
    /// Whether a thread writes back: otherwise nobody waits.
    has_write_back_thread: AtomicBool,
    /// Pieces written back.
    pieces: AtomicU64,
    /// When the current flush began, in nanoseconds since `begin`, and 1 more; 0: there is none.
    flush_began_ns: AtomicU64,
    begin: Instant,
    state: Mutex<State>,
    changed: Condvar,
    writers_wait: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    ended: bool,
    /// Writers that wait for room.
    waiting: u32,
}

impl DirtyData {
    /// The data of a file or device of this length; `file` is a description that nothing else syncs, or `None` for memory.
    pub fn new(file: Option<File>, length: u64) -> Self {
        let words = if file.is_some() { length.div_ceil(REGION_BYTES).div_ceil(64) } else { 0 };
        let most_bytes = (crate::memory::total_bytes() / MEMORY_FRACTION).max(DIRTY_BYTES_MIN);
        Self {
            file,
            regions: (0..words).map(|_| AtomicU64::new(0)).collect(),
            dirty_bytes: AtomicU64::new(0),
            leaving_bytes: AtomicU64::new(0),
            limit_bytes: AtomicU64::new(2 * DIRTY_BYTES_MIN),
            limit_bytes_max: most_bytes,
            has_write_back_thread: AtomicBool::new(false),
            pieces: AtomicU64::new(0),
            flush_began_ns: AtomicU64::new(0),
            begin: Instant::now(),
            state: Mutex::default(),
            changed: Condvar::new(),
            writers_wait: watch::Sender::new(false),
        }
    }

    /// Records that these bytes were written, and are in the page cache by now.
    pub fn record_write(&self, at: u64, length: usize) {
        if self.file.is_none() || length == 0 {
            return;
        }
        for region in at / REGION_BYTES..(at + length as u64).div_ceil(REGION_BYTES) {
            let Some(word) = self.regions.get((region / 64) as usize) else { break };
            let bit = 1 << (region % 64);
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::AcqRel);
            }
        }
        let (length, limit) = (length as u64, self.limit_bytes.load(Ordering::Relaxed));
        let before = self.dirty_bytes.fetch_add(length, Ordering::AcqRel);
        if before < limit / 2 && before + length >= limit / 2 {
            // With the lock, so that the thread is not between its look and its wait.
            drop(self.state());
            self.changed.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes written, and not known to be on the medium.
    pub fn bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Relaxed) + self.leaving_bytes.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.has_write_back_thread.load(Ordering::Relaxed) && self.bytes() >= self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Waits until there is room for a write. The caller holds no lock of the store.
    pub fn wait_for_room(&self) {
        if !self.is_full() {
            return;
        }
        let mut state = self.state();
        state.waiting += 1;
        self.writers_wait.send_replace(true);
        // The limit may have become smaller since the thread looked.
        self.changed.notify_all();
        while self.is_full() && !state.ended {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        if state.waiting == 0 {
            self.writers_wait.send_replace(false);
        }
    }

    /// Whether writers wait for room; it can be watched.
    pub fn watch_waiting(&self) -> watch::Receiver<bool> {
        self.writers_wait.subscribe()
    }

    /// Whether a write into the page cache will hardly block: little is dirty, and no long flush is running.
    pub fn is_calm(&self) -> bool {
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        let little = !self.has_write_back_thread.load(Ordering::Relaxed) || self.bytes() <= limit / 2;
        little && self.flush_duration().is_none_or(|since| since < SHORT_FLUSH_DURATION_MAX)
    }

    /// Pieces written back so far: progress.
    pub fn pieces(&self) -> u64 {
        self.pieces.load(Ordering::Relaxed)
    }

    /// How long the current flush has been running.
    pub fn flush_duration(&self) -> Option<Duration> {
        let began_ns = self.flush_began_ns.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.begin.elapsed().saturating_sub(Duration::from_nanos(began_ns)))
    }

    /// Runs `sync`, which makes everything durable; a lot of dirty data is written back first, in pieces. Not called
    /// concurrently.
    pub fn flush(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.flush_began_ns.store(self.begin.elapsed().as_nanos() as u64 + 1, Ordering::Relaxed);
        if self.bytes() >= LONG_FLUSH_BYTES_MIN {
            // What it could not write is found by `sync`.
            let _ = self.write_back();
        }
        let taken = self.take_all();
        let synced = sync();
        self.record_left(taken);
        self.flush_began_ns.store(0, Ordering::Relaxed);
        synced
    }

    /// Everything that is dirty now is leaving; returns its bytes.
    fn take_bytes(&self) -> u64 {
        let taken = self.dirty_bytes.swap(0, Ordering::AcqRel);
        self.leaving_bytes.fetch_add(taken, Ordering::AcqRel);
        taken
    }

    /// The same, and no region is dirty any more: what is written from now on sets its bit again.
    fn take_all(&self) -> u64 {
        let taken = self.take_bytes();
        if taken > 0 {
            self.regions.iter().filter(|word| word.load(Ordering::Relaxed) != 0).for_each(|word| {
                word.swap(0, Ordering::AcqRel);
            });
        }
        taken
    }

    /// These bytes have left.
    fn record_left(&self, bytes: u64) {
        if bytes > 0 {
            self.leaving_bytes.fetch_sub(bytes, Ordering::AcqRel);
            self.pieces.fetch_add(1, Ordering::Relaxed);
            drop(self.state());
            self.changed.notify_all();
        }
    }

    /// Takes the dirty regions, as ranges of bytes of at most [`WRITE_BACK_PIECE_BYTES`].
    fn take_ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (nth, word) in (0_u64..).zip(&self.regions) {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let bits = word.swap(0, Ordering::AcqRel);
            for bit in (0..64).filter(|bit| bits & 1 << bit != 0) {
                let begin = (nth * 64 + bit) * REGION_BYTES;
                match ranges.last_mut() {
                    Some(last) if last.end == begin && last.end - last.start < WRITE_BACK_PIECE_BYTES => {
                        last.end += REGION_BYTES
                    }
                    _ => ranges.push(begin..begin + REGION_BYTES),
                }
            }
        }
        ranges
    }

    /// Writes back what is dirty now.
    ///
    /// # Errors
    /// The medium did not take some of it. The rest is written back nevertheless.
    pub fn write_back(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        // Bytes first: a write between the two is written back, and counts as dirty until the next time.
        let mut left = self.take_bytes();
        let (ranges, began, mut result) = (self.take_ranges(), Instant::now(), Ok(()));
        let total = left.min(ranges.len() as u64 * WRITE_BACK_PIECE_BYTES);
        let share = left / (ranges.len() as u64).max(1);
        if let Some(first) = ranges.first() {
            start_write_back(file, first);
        }
        for (nth, range) in ranges.iter().enumerate() {
            // So that the medium is never idle.
            if let Some(next) = ranges.get(nth + 1) {
                start_write_back(file, next);
            }
            result = result.and(wait_for_write_back(file, range));
            let now = if nth + 1 == ranges.len() { left } else { share };
            left -= now;
            self.record_left(now);
        }
        self.record_left(left);
        if total >= MEASURED_BYTES_MIN {
            self.record_rate(total, began.elapsed());
        }
        result
    }

    /// The medium has written so much in this time.
    fn record_rate(&self, bytes: u64, took: Duration) {
        let rate = bytes as f64 / took.as_secs_f64().max(1e-6);
        let now = (rate * DRAIN_DURATION_S as f64) as u64;
        let before = self.limit_bytes.load(Ordering::Relaxed);
        // A first measurement counts as much as all later ones.
        let limit = (before / 2 + now.min(self.limit_bytes_max) / 2).clamp(DIRTY_BYTES_MIN, self.limit_bytes_max);
        self.limit_bytes.store(limit, Ordering::Relaxed);
    }

    /// Writes back whenever half of what may be dirty is, until it has ended; `failed` is called if the medium does not take
    /// something.
    fn drain_until_ended(&self, failed: &dyn Fn(&io::Error)) {
        loop {
            let mut state = self.state();
            while !state.ended
                && self.dirty_bytes.load(Ordering::Acquire) < self.limit_bytes.load(Ordering::Relaxed) / 2
            {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.ended {
                return;
            }
            drop(state);
            if let Err(error) = self.write_back() {
                failed(&error);
            }
        }
    }
}

impl super::Store {
    /// Whether a write into the page cache will hardly block.
    pub fn is_calm(&self) -> bool {
        self.disk.dirty().is_calm()
    }

    /// Bytes written, and not known to be on the medium.
    pub fn dirty_bytes(&self) -> u64 {
        self.disk.dirty().bytes()
    }

    /// How long the current flush has been running.
    pub fn flush_duration(&self) -> Option<Duration> {
        self.disk.dirty().flush_duration()
    }

    /// Changes when data reaches the medium.
    pub fn progress(&self) -> u64 {
        self.disk.dirty().pieces()
    }

    /// Whether writes wait for the medium; it can be watched.
    pub fn writes_wait(&self) -> watch::Receiver<bool> {
        self.disk.dirty().watch_waiting()
    }

    /// The medium did not take something that was written earlier.
    pub(super) fn record_lost_write(&self, error: &io::Error) {
        self.record_failure(FaultKind::Write, 0, 0, error);
        // Before all that may take time: a process that opens the file later is not notified of an error that was seen.
        self.record_sync_failure(error);
        // The flushes' description has a notice of its own, which must not come after the loss is accepted.
        self.flushes.run_exclusively(|| {
            if let Err(error) = self.disk.sync() {
                self.record_sync_failure(&error);
            }
        });
    }
}

/// Starts to write back a range.
fn start_write_back(file: &File, range: &Range<u64>) {
    // What fails is found when it is waited for.
    let _ = sync_range(file, range, libc::SYNC_FILE_RANGE_WRITE);
}

/// Writes back a range, and waits for that.
fn wait_for_write_back(file: &File, range: &Range<u64>) -> io::Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, range, all)
}

/// Fails if the kernel lost a write to this file, and has not notified this description of it. Writes nothing.
pub(super) fn take_notice(file: &File) -> io::Result<()> {
    // Of any range, since the notice is about the file.
    sync_range(file, &(0..1), libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

fn sync_range(file: &File, range: &Range<u64>, flags: libc::c_uint) -> io::Result<()> {
    let (begin, bytes) = (range.start as libc::off64_t, (range.end - range.start) as libc::off64_t);
    // SAFETY: the descriptor is open as long as `file` is, and the call touches no memory of this process.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), begin, bytes, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A thread that writes back until this is dropped.
#[derive(Debug)]
pub struct WriteBack {
    store: Arc<super::Store>,
    thread: Option<JoinHandle<()>>,
}

impl WriteBack {
    /// Starts it; `None` for a store in memory, which has nothing to write back.
    ///
    /// # Errors
    /// The thread cannot be started. The store works without it, and leaves all to the kernel.
    pub fn start(store: &Arc<super::Store>) -> io::Result<Option<Self>> {
        if store.disk.dirty().file.is_none() {
            return Ok(None);
        }
        let own = store.clone();
        store.disk.dirty().state().ended = false;
        let work = move || own.disk.dirty().drain_until_ended(&|error| own.record_lost_write(error));
        let thread = std::thread::Builder::new().name("write-back".into()).spawn(work)?;
        store.disk.dirty().has_write_back_thread.store(true, Ordering::Release);
        Ok(Some(Self { store: store.clone(), thread: Some(thread) }))
    }
}

impl Drop for WriteBack {
    fn drop(&mut self) {
        let dirty = self.store.disk.dirty();
        dirty.has_write_back_thread.store(false, Ordering::Release);
        dirty.state().ended = true;
        dirty.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic was reported already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    fn file(bytes: u64) -> (tempfile::TempDir, File, DirtyData) {
        let directory = tempfile::tempdir().unwrap();
        let file = File::options().read(true).write(true).create_new(true).open(directory.path().join("f")).unwrap();
        file.set_len(bytes).unwrap();
        let dirty = DirtyData::new(Some(file.try_clone().unwrap()), bytes);
        (directory, file, dirty)
    }

    #[test]
    fn ranges_cover_what_was_written_once() {
        let (_directory, _, dirty) = file(1 << 30);
        dirty.record_write(0, 1);
        dirty.record_write(REGION_BYTES - 1, 2);
        dirty.record_write(100 * REGION_BYTES, 10 << 20);
        dirty.record_write(100 * REGION_BYTES, 10 << 20);
        assert_eq!(dirty.bytes(), 3 + (20 << 20));
        let ranges: Vec<Range<u64>> = dirty.take_ranges();
        let regions: Vec<Range<u64>> =
            ranges.iter().map(|range| range.start / REGION_BYTES..range.end / REGION_BYTES).collect();
        assert_eq!(regions, [0..2, 100..104, 104..108, 108..110]);
        assert_eq!(dirty.take_ranges(), []);
        // Beyond the end, as a device may grow.
        dirty.record_write(1 << 40, 4096);
    }

    #[test]
    fn nothing_is_dirty_after_write_back_and_flush() {
        let (_directory, file, dirty) = file(64 << 20);
        for nth in 0..40 {
            file.write_all_at(&[1; 1 << 20], nth << 20).unwrap();
            dirty.record_write(nth << 20, 1 << 20);
        }
        dirty.write_back().unwrap();
        assert_eq!((dirty.bytes(), dirty.pieces() >= 10), (0, true));
        dirty.record_write(0, 4096);
        dirty
            .flush(|| {
                assert!(dirty.flush_duration().is_some() && dirty.bytes() == 4096);
                file.sync_data()
            })
            .unwrap();
        assert_eq!((dirty.bytes(), dirty.flush_duration()), (0, None));
        dirty.flush(|| Err(io::ErrorKind::Other.into())).unwrap_err();
        assert_eq!(dirty.flush_duration(), None);
    }

    #[test]
    fn limit_follows_the_rate_of_the_medium_within_bounds() {
        let (_directory, _, dirty) = file(1 << 20);
        let limit = || dirty.limit_bytes.load(Ordering::Relaxed);
        (0..20).for_each(|_| dirty.record_rate(15 << 20, Duration::from_secs(1)));
        assert_eq!(limit(), DIRTY_BYTES_MIN);
        (0..20).for_each(|_| dirty.record_rate(50 << 20, Duration::from_secs(1)));
        assert!((99 << 20..=100 << 20).contains(&limit()), "{}", limit());
        (0..40).for_each(|_| dirty.record_rate(1 << 40, Duration::from_millis(1)));
        assert!(limit() > dirty.limit_bytes_max - 4096 && limit() <= dirty.limit_bytes_max);
    }

    #[test]
    fn smaller_limit_wakes_the_thread_that_writes_back() {
        let (_directory, _, dirty) = file(1 << 30);
        dirty.limit_bytes.store(1 << 30, Ordering::Relaxed);
        dirty.has_write_back_thread.store(true, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| dirty.drain_until_ended(&|error| panic!("{error}")));
            dirty.record_write(0, 100 << 20);
            // As after a flush that was slow.
            (0..20).for_each(|_| dirty.record_rate(1 << 20, Duration::from_secs(1)));
            dirty.wait_for_room();
            assert!(dirty.bytes() < DIRTY_BYTES_MIN);
            dirty.state().ended = true;
            dirty.changed.notify_all();
        });
    }

    #[test]
    fn writer_waits_while_full_and_no_longer() {
        let (_directory, _, dirty) = file(1 << 30);
        dirty.record_write(0, 3 * DIRTY_BYTES_MIN as usize);
        // Without a thread that writes back nobody waits.
        dirty.wait_for_room();
        assert!(dirty.is_calm());
        dirty.has_write_back_thread.store(true, Ordering::Release);
        assert!(!dirty.is_calm());
        let waits = dirty.watch_waiting();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| dirty.wait_for_room());
            while !*waits.borrow() {
                std::thread::yield_now();
            }
            assert!(!writer.is_finished());
            dirty.write_back().unwrap();
            writer.join().unwrap();
        });
        assert!(!*waits.borrow() && dirty.is_calm());
    }
}
