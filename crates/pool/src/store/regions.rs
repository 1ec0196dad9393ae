//! Tracks which regions of a store may not match their sums after a power failure: the write-intent map.
//!
//! A region is **marked** in the header, durably, before anything in it is written, and **clean** again at some time after
//! a flush that covers all its writes, when its sums are on the medium too. So a region that is clean on the medium matches
//! its sums whatever a power failure did, and damage in it is detected. The medium has outdated sums of a marked region:
//! after an unclean shutdown its data is accepted, as on a disk without sums, and its sums are recomputed. md's bitmap and
//! dm-integrity do the same.
//!
//! In memory each region has a word: whether it is marked, the number of current writers, and when it was last written, in
//! flushes. One word holds everything so that removing the mark cannot miss a write that begins.

use super::BLOCK_BYTES;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The maximum number of regions: their map must fit into a header, with four regions per hexadecimal digit.
pub(super) const REGIONS_MAX: u64 = 8192;
/// The minimum size of a region: smaller regions need more marks, larger ones leave more data unchecked after a power failure.
const REGION_BYTES_MIN: u64 = if cfg!(test) { 4 * BLOCK_BYTES } else { 1 << 20 };
/// The maximum number of regions marked ahead of a sequential writer.
const AHEAD_REGIONS_MAX: usize = 32;

/// The fields of a region's word: its mark; the number of its writers, in units of one writer; and the number of the flush
/// after which it was last written.
const MARKED_BIT: u64 = 1 << 63;
const WRITER_UNIT: u64 = 1 << 48;
const WRITERS_MASK: u64 = MARKED_BIT - WRITER_UNIT;
const WRITTEN_MASK: u64 = WRITER_UNIT - 1;
/// Far more writers than there are threads, and far fewer than would overflow into the mark.
const WRITERS_MAX: u64 = WRITERS_MASK / 2;
const _: () =
    assert!(MARKED_BIT ^ WRITERS_MASK ^ WRITTEN_MASK == u64::MAX && WRITER_UNIT & WRITERS_MASK == WRITER_UNIT);

/// Bytes of a region in a store of this size.
pub(super) fn region_bytes(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(REGIONS_MAX).next_power_of_two().max(REGION_BYTES_MIN)
}

/// A set of regions, one bit each, as stored in the header: no longer than necessary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegionSet(Vec<u8>);

impl RegionSet {
    pub(super) fn put(&mut self, region: usize) {
        if self.0.len() <= region / 8 {
            self.0.resize(region / 8 + 1, 0);
        }
        self.0[region / 8] |= 1 << (region % 8);
    }

    pub(super) fn take(&mut self, region: usize) {
        if let Some(byte) = self.0.get_mut(region / 8) {
            *byte &= !(1 << (region % 8));
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// Removes the regions from `end` on.
    pub(super) fn truncate(&mut self, end: usize) {
        let beyond: Vec<usize> = self.iter().filter(|region| *region >= end).collect();
        beyond.into_iter().for_each(|region| self.take(region));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.0.len() * 8).filter(|region| self.0[region / 8] & 1 << (region % 8) != 0)
    }
}

impl serde::Serialize for RegionSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&digits)
    }
}

impl<'de> serde::Deserialize<'de> for RegionSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
        let bytes = bytes.filter(|bytes| bytes.len() as u64 <= REGIONS_MAX / 8);
        bytes.map(Self).ok_or_else(|| serde::de::Error::custom("no set of regions"))
    }
}

/// The regions of an open store.
#[derive(Debug)]
pub(super) struct Regions {
    region_bytes: u64,
    words: Vec<AtomicU64>,
    /// The number of flushes that have begun, and the last one that succeeded.
    flushes_begun: AtomicU64,
    last_flushed: AtomicU64,
    /// Regions to be marked by the next writer of the header, for all waiting threads.
    wanted_marks: Mutex<Vec<Range<usize>>>,
    /// Where the last mark ended, and how many regions it was ahead.
    ahead: Mutex<(usize, usize)>,
}

impl Regions {
    /// The regions of a store whose header contains `marked`.
    pub fn new(bytes: u64, size_bytes: u64, marked: &RegionSet) -> Self {
        let words: Vec<AtomicU64> = (0..size_bytes.div_ceil(bytes)).map(|_| AtomicU64::new(0)).collect();
        marked.iter().filter_map(|region| words.get(region)).for_each(|word| word.store(MARKED_BIT, Ordering::SeqCst));
        Self {
            region_bytes: bytes,
            words,
            flushes_begun: AtomicU64::new(0),
            last_flushed: AtomicU64::new(0),
            wanted_marks: Mutex::default(),
            ahead: Mutex::default(),
        }
    }

    /// Begins a write to this range, which is not empty; it ends when the result is dropped.
    pub fn begin_write(&self, offset: u64, length: u64) -> WriteInProgress<'_> {
        let range = self.touched_by(offset, length);
        for word in &self.words[range.clone()] {
            let before = word.fetch_add(WRITER_UNIT, Ordering::SeqCst);
            assert!(before & WRITERS_MASK < WRITERS_MAX, "writes that ended still count as running");
        }
        WriteInProgress { regions: self, range }
    }

    /// The regions that this range of bytes, which is not empty, touches.
    pub fn touched_by(&self, offset: u64, length: u64) -> Range<usize> {
        assert!(length > 0, "a write that touches nothing would mark a region");
        (offset / self.region_bytes) as usize..(offset + length).div_ceil(self.region_bytes) as usize
    }

    /// Announces a write to this range, which is not empty: the next thread that marks regions marks it too.
    pub fn announce(&self, offset: u64, length: u64) {
        let range = self.touched_by(offset, length);
        if !self.are_marked(&range) {
            self.request_marks(&range);
        }
    }

    fn are_marked(&self, range: &Range<usize>) -> bool {
        self.words[range.clone()].iter().all(|word| word.load(Ordering::SeqCst) & MARKED_BIT != 0)
    }

    /// Requests that these regions be marked.
    pub fn request_marks(&self, range: &Range<usize>) {
        self.wanted_marks.lock().unwrap_or_else(PoisonError::into_inner).push(range.clone());
    }

    /// The regions to mark now, including those that are likely to follow: otherwise a sequential writer would wait at each
    /// region. Empty if another thread has marked `range` meanwhile. Not called concurrently.
    pub fn take_wanted_marks(&self, range: &Range<usize>) -> Vec<usize> {
        if self.are_marked(range) {
            return Vec::new();
        }
        let mut all = std::mem::take(&mut *self.wanted_marks.lock().unwrap_or_else(PoisonError::into_inner));
        all.push(range.clone());
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let many = if range.contains(&ahead.0) { (ahead.1 * 2).clamp(1, AHEAD_REGIONS_MAX) } else { 0 };
        let end = (range.end + many).min(self.words.len());
        *ahead = (end, many.max(1));
        all.push(range.end..end);
        all.into_iter().flatten().collect()
    }

    /// Records that these regions are marked on the medium.
    pub fn mark(&self, regions: &[usize]) {
        for region in regions {
            self.words[*region].fetch_or(MARKED_BIT, Ordering::SeqCst);
        }
    }

    /// The same, as if they were written now: only a flush that begins later covers them. They are durably marked.
    pub fn mark_as_written(&self, regions: impl IntoIterator<Item = usize>) {
        for word in regions.into_iter().filter_map(|region| self.words.get(region)) {
            let when = self.flushes_begun() & WRITTEN_MASK;
            let renewed = |word: u64| Some((word & !WRITTEN_MASK) | MARKED_BIT | when.max(word & WRITTEN_MASK));
            // The closure never returns `None`.
            let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, renewed);
        }
    }

    /// Begins a flush; returns its number.
    pub fn begin_flush(&self) -> u64 {
        self.flushes_begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Records that a flush succeeded.
    pub fn record_flush(&self, number: u64) {
        assert!((1..=self.flushes_begun()).contains(&number), "flush {number} has not begun");
        self.last_flushed.fetch_max(number, Ordering::SeqCst);
    }

    /// The number of flushes that have begun.
    pub fn flushes_begun(&self) -> u64 {
        self.flushes_begun.load(Ordering::SeqCst)
    }

    /// Whether the region is marked, not being written, and its last write preceded a flush that succeeded and the flush `before`.
    fn is_covered(&self, word: u64, before: u64) -> bool {
        let flushed = self.last_flushed.load(Ordering::SeqCst);
        word & MARKED_BIT != 0 && word & WRITERS_MASK == 0 && word & WRITTEN_MASK < flushed.min(before)
    }

    /// Whether there are marked regions, all of them are flushed, and nothing is being written.
    pub fn all_covered(&self) -> bool {
        let words =
            || self.words.iter().map(|word| word.load(Ordering::SeqCst)).filter(|word| word & !WRITTEN_MASK != 0);
        words().next().is_some() && words().all(|word| self.is_covered(word, u64::MAX))
    }

    /// Regions that may contain writes that no successful flush covers.
    pub fn unflushed(&self) -> impl Iterator<Item = usize> {
        let words = self.words.iter().map(|word| word.load(Ordering::SeqCst)).enumerate();
        words.filter(|(_, word)| word & MARKED_BIT != 0 && !self.is_covered(*word, u64::MAX)).map(|(region, _)| region)
    }

    /// The marked regions that touch this range of bytes.
    pub fn marked_in(&self, offset: u64, length: u64) -> impl Iterator<Item = usize> {
        let range = self.touched_by(offset, length);
        range.filter(|region| self.words[*region].load(Ordering::SeqCst) & MARKED_BIT != 0)
    }

    /// Regions whose marks can be removed, as they were last written before the flush `before`, with their words.
    pub fn all_covered_before(&self, before: u64) -> Vec<(usize, u64)> {
        let words = self.words.iter().map(|word| word.load(Ordering::SeqCst)).enumerate();
        words.filter(|(_, word)| self.is_covered(*word, before)).collect()
    }

    /// Removes these marks in memory, except where a write has begun since these words were read (the end of a write always
    /// changes the word, since the region was flushed before); they must be removed from the medium before any further
    /// marking.
    pub fn unmark(&self, regions: &[(usize, u64)]) -> Vec<usize> {
        let taken = |(region, word): &(usize, u64)| {
            assert!(word & MARKED_BIT != 0 && word & WRITERS_MASK == 0, "region {region} was not covered by a flush");
            let change =
                self.words[*region].compare_exchange(*word, word & !MARKED_BIT, Ordering::SeqCst, Ordering::SeqCst);
            change.is_ok().then_some(*region)
        };
        regions.iter().filter_map(taken).collect()
    }

    /// The range of the store's bytes in a region.
    pub fn range(&self, region: usize, size_bytes: u64) -> Range<u64> {
        let begin = region as u64 * self.region_bytes;
        begin.min(size_bytes)..begin.saturating_add(self.region_bytes).min(size_bytes)
    }

    /// Panics if the words contradict the flushes; also while others write and flush. Returns the marked regions.
    #[cfg(test)]
    pub fn check_invariants(&self) -> Vec<usize> {
        // Read in this order: a flush begins before it is recorded, and before anything is written after it.
        let flushed = self.last_flushed.load(Ordering::SeqCst);
        let words: Vec<u64> = self.words.iter().map(|word| word.load(Ordering::SeqCst)).collect();
        let begun = self.flushes_begun();
        assert!(flushed <= begun, "flush {flushed} of {begun} succeeded");
        for (region, word) in words.iter().enumerate() {
            assert!(word & WRITTEN_MASK <= begun, "region {region} was written after a flush that has not begun");
            assert!(word & WRITERS_MASK < WRITERS_MAX, "region {region} has too many writers");
        }
        let (next, ahead) = *self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(next <= words.len() && ahead <= AHEAD_REGIONS_MAX, "{ahead} regions before {next} are marked ahead");
        let wanted = self.wanted_marks.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(wanted.iter().all(|range| range.start < range.end && range.end <= words.len()), "{wanted:?}");
        (0..words.len()).filter(|region| words[*region] & MARKED_BIT != 0).collect()
    }

    /// Whether anything is being written.
    #[cfg(test)]
    pub fn has_writers(&self) -> bool {
        self.words.iter().any(|word| word.load(Ordering::SeqCst) & WRITERS_MASK != 0)
    }
}

#[derive(Debug)]
pub(super) struct WriteInProgress<'r> {
    regions: &'r Regions,
    range: Range<usize>,
}

impl WriteInProgress<'_> {
    /// The regions, if any of them is not marked yet.
    pub fn unmarked(&self) -> Option<&Range<usize>> {
        (!self.regions.are_marked(&self.range)).then_some(&self.range)
    }
}

impl Drop for WriteInProgress<'_> {
    fn drop(&mut self) {
        // Read after the write: a flush that begins later covers it.
        let when = self.regions.flushes_begun() & WRITTEN_MASK;
        for word in &self.regions.words[self.range.clone()] {
            let leave = |word: u64| {
                assert!(word & WRITERS_MASK > 0, "a write ended twice");
                Some(((word - WRITER_UNIT) & !WRITTEN_MASK) | when.max(word & WRITTEN_MASK))
            };
            // The closure never returns `None`.
            let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, leave);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_is_unmarked_after_a_flush_covers_its_writes() {
        let regions = Regions::new(BLOCK_BYTES, 8 * BLOCK_BYTES, &RegionSet::default());
        let flush = |regions: &Regions| regions.record_flush(regions.begin_flush());
        let unmark = |before| regions.unmark(&regions.all_covered_before(before));
        let entered = regions.begin_write(5000, 4000);
        assert_eq!(entered.unmarked(), Some(&(1..3)));
        assert_eq!(regions.take_wanted_marks(&(1..3)), [1, 2]);
        regions.mark(&[1, 2]);
        assert!(entered.unmarked().is_none() && regions.take_wanted_marks(&(1..3)).is_empty());
        flush(&regions);
        assert_eq!(unmark(u64::MAX), [0; 0], "it is being written");
        let during = regions.begin_flush();
        drop(entered);
        regions.record_flush(during);
        assert_eq!(unmark(u64::MAX), [0; 0], "it was written while that flush went on");
        let again = regions.begin_write(5000, 1);
        drop(again);
        assert!(!regions.all_covered());
        flush(&regions);
        assert!(regions.all_covered());
        assert_eq!(unmark(regions.flushes_begun() - 1), [0; 0], "it was written since");
        assert_eq!(unmark(u64::MAX), [1, 2]);
        assert!(regions.begin_write(5000, 1).unmarked().is_some() && !regions.all_covered());
    }

    #[test]
    fn write_since_the_preparation_keeps_the_mark() {
        let regions = Regions::new(BLOCK_BYTES, 8 * BLOCK_BYTES, &RegionSet::default());
        let flush = |regions: &Regions| regions.record_flush(regions.begin_flush());
        regions.mark(&[1, 2, 3]);
        flush(&regions);
        let prepared = regions.all_covered_before(u64::MAX);
        assert_eq!(prepared.iter().map(|(region, _)| *region).collect::<Vec<_>>(), [1, 2, 3]);
        let writing = regions.begin_write(BLOCK_BYTES, 1);
        drop(regions.begin_write(2 * BLOCK_BYTES, 1));
        // Also after a flush, since its current sums are not those that were written.
        flush(&regions);
        assert_eq!(regions.unmark(&prepared), [3]);
        drop(writing);
        assert_eq!(regions.unmark(&prepared), [0; 0]);
    }

    #[test]
    fn only_sequential_writes_mark_regions_ahead() {
        let regions = Regions::new(BLOCK_BYTES, 1000 * BLOCK_BYTES, &RegionSet::default());
        let mut marks = 0;
        for block in 0..1000 {
            let wanted = regions.take_wanted_marks(&(block..block + 1));
            marks += u32::from(!wanted.is_empty());
            regions.mark(&wanted);
        }
        assert!(marks < 50, "{marks}");
        let regions = Regions::new(BLOCK_BYTES, 1000 * BLOCK_BYTES, &RegionSet::default());
        for nth in 1..500 {
            let block = nth * 7 % 1000;
            assert_eq!(regions.take_wanted_marks(&(block..block + 1)), [block]);
        }
    }

    #[test]
    fn region_set_round_trips_through_text() {
        let mut set = RegionSet::default();
        [3, 100, 8191].into_iter().for_each(|region| set.put(region));
        let text = serde_json::to_string(&set).expect("it is text");
        let back: RegionSet = serde_json::from_str(&text).expect("it is a set");
        assert_eq!(back, set);
        assert_eq!(back.iter().collect::<Vec<_>>(), [3, 100, 8191]);
        [8191, 3, 4000].into_iter().for_each(|region| set.take(region));
        assert!(serde_json::to_string(&set).expect("it is text").len() < 30, "{set:?}");
        set.take(100);
        assert!(set.is_empty() && set == RegionSet::default());
        let longer = format!("\"{}\"", "00".repeat(1025));
        for wrong in ["\"0\"", "\"xy\"", "\"é\"", &longer] {
            assert!(serde_json::from_str::<RegionSet>(wrong).is_err() || wrong == "\"0\"", "{wrong}");
        }
    }

    #[test]
    fn region_size_is_the_smallest_allowed() {
        for size in [BLOCK_BYTES, 1 << 20, 1 << 30, (1 << 40) + BLOCK_BYTES] {
            let bytes = region_bytes(size);
            assert!(size.div_ceil(bytes) <= REGIONS_MAX, "{size}");
            assert!(bytes == REGION_BYTES_MIN || size.div_ceil(bytes / 2) > REGIONS_MAX, "{size}");
        }
    }
}
