//! Who dirtied which page.
//!
//! For each page of a file, the threads that wrote to it are kept, and the bio that carries the page to the disk takes them
//! over. So a page written back half a minute later, by a kernel thread or by another program's fsync, is still charged to
//! its writers (the tag sets of Split-level I/O scheduling, SOSP'15, kept outside the kernel).
//!
//! Writers are kept per file in a map of page ranges, so that a write of 1 GiB is one entry. The charge for a page with
//! several writers is divided by the bytes each wrote into it.
//!
//! Some calls write pages that they do not name: a write behind a file's end, or a change of the end, makes the file system zero the rest
//! of the page that the end was in, and punching a hole makes it zero parts of the pages at the hole's edges. These calls are writers of
//! such pages too. For that, each file's size is kept, exactly where a call's record has it, else as the furthest byte written; results
//! based on the latter are a guess.
//!
//! *Uncertainty*: only the start and end of a write are known, not when it dirtied the page. A bio queued between the two
//! may or may not carry the bytes; it is charged, and the writer also stays for the next bio (unless the write itself sent
//! the bio, as O_SYNC does). Of a page rewritten many times, only the last [`WRITERS_MAX`] writers stay.

use crate::actor::Source;
use crate::hash::FastMap;
use model::Confidence;
use std::collections::BTreeMap;

/// Size of a page of the page cache, in bytes.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Maximum number of writers kept per page. A page that many operations rewrote before its writeback is shared by the last
/// of them.
const WRITERS_MAX: usize = 64;

/// Maximum number of ranges kept; beyond it the older half is dropped, and its bios become unattributed. A kernel with its
/// dirty limit at 20 % of 16 GiB has 800 thousand dirty pages at most, and there are fewer ranges than pages.
const RANGES_MAX: usize = 1 << 19;

/// Maximum number of files whose sizes are kept; beyond it all are dropped.
const SIZES_MAX: usize = 1 << 16;

/// (file system, inode).
pub(crate) type FileKey = (u32, u64);

/// One writer of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer {
    pub source: Source,
    /// The span that wrote.
    pub span: u64,
    /// Bytes written into each page of the range.
    pub bytes: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    /// The writing system call: thread and start.
    pub call: (u32, u64),
    pub cpu: u16,
    pub confidence: Confidence,
    pub via: &'static str,
}

/// The size of a file, as far as it is known.
#[derive(Debug, Clone, Copy)]
struct FileSize {
    bytes: u64,
    /// If not, it may be larger.
    exact: bool,
}

struct DirtyRange {
    /// First page after the range.
    end: u64,
    last: Writer,
    earlier: Vec<Writer>,
}

impl DirtyRange {
    fn add_writer(&mut self, writer: Writer) {
        if self.last.call == writer.call && self.last.source == writer.source {
            let bytes = if self.last.span == writer.span { writer.bytes.max(self.last.bytes) } else { writer.bytes };
            self.last = Writer { bytes, ..writer };
            return;
        }
        if self.earlier.len() + 1 >= WRITERS_MAX {
            self.earlier.remove(0);
        }
        self.earlier.push(std::mem::replace(&mut self.last, writer));
    }

    fn copy(&self, end: u64) -> Self {
        Self { end, last: self.last, earlier: self.earlier.clone() }
    }
}

/// A part of what a bio carries: a number of pages with one writer's share of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriterShare {
    /// `None`: pages without a known writer.
    pub writer: Option<Writer>,
    /// Bytes charged.
    pub weight: f64,
}

/// The dirty pages of all files.
#[derive(Default)]
pub(crate) struct Pages {
    files: FastMap<FileKey, BTreeMap<u64, DirtyRange>>,
    ranges: usize,
    sizes: FastMap<FileKey, FileSize>,
}

impl Pages {
    /// Records that a call wrote bytes `pos..pos + bytes`: adds the writer to those pages, and to the page with the previous end of the
    /// file if that is an earlier one.
    pub(crate) fn write_by_call(&mut self, file: FileKey, pos: u64, bytes: u64, writer: Writer) {
        if bytes == 0 {
            return;
        }
        if let Some(old) =
            self.sizes.get(&file).copied().filter(|old| old.bytes < pos && old.bytes / PAGE_BYTES < pos / PAGE_BYTES)
        {
            self.add_tail_writer(file, old, writer);
        }
        self.extend_to(file, pos.saturating_add(bytes));
        self.write(file, pos, bytes, writer);
    }

    /// Records that a call truncated or extended the file to `bytes`.
    pub(crate) fn resize(&mut self, file: FileKey, bytes: u64, writer: Writer) {
        let new = FileSize { bytes, exact: true };
        let old = self.sizes.get(&file).copied().unwrap_or(FileSize { bytes: 0, exact: false });
        if bytes < old.bytes {
            self.add_tail_writer(file, new, writer);
        } else {
            // Extended, or truncated if it was larger than known.
            if bytes > old.bytes {
                self.add_tail_writer(file, old, writer);
            }
            if !old.exact {
                self.add_tail_writer(file, FileSize { exact: false, ..new }, writer);
            }
        }
        self.truncate(file, bytes);
        self.set_size(file, new);
    }

    /// Records that a call allocated, zeroed or punched out bytes `pos..pos + bytes`; which of these is not known. The last two write
    /// the pages that are only partly inside; all may extend the file.
    pub(crate) fn allocate(&mut self, file: FileKey, pos: u64, bytes: u64, writer: Writer) {
        let Some(end) = pos.checked_add(bytes).filter(|_| bytes > 0) else { return };
        let edge = Writer { bytes: 1, confidence: Confidence::Guess, ..writer };
        for at in [pos, end] {
            if !at.is_multiple_of(PAGE_BYTES) {
                self.add_writer(file, at / PAGE_BYTES, 1, edge);
            }
        }
        self.on_opened(file);
    }

    /// Records that the file was opened, which may have truncated it.
    pub(crate) fn on_opened(&mut self, file: FileKey) {
        if let Some(size) = self.sizes.get_mut(&file) {
            size.exact = false;
        }
    }

    /// Records that the file extends at least to `end`.
    pub(crate) fn extend_to(&mut self, file: FileKey, end: u64) {
        let old = self.sizes.get(&file).copied().unwrap_or(FileSize { bytes: 0, exact: false });
        if end > old.bytes {
            self.set_size(file, FileSize { bytes: end, ..old });
        }
    }

    fn set_size(&mut self, file: FileKey, size: FileSize) {
        if self.sizes.len() >= SIZES_MAX && !self.sizes.contains_key(&file) {
            self.sizes.clear();
        }
        self.sizes.insert(file, size);
    }

    /// Adds the writer to the last page of the file, whose rest was zeroed.
    fn add_tail_writer(&mut self, file: FileKey, end: FileSize, writer: Writer) {
        let rest = (PAGE_BYTES - end.bytes % PAGE_BYTES) as u32;
        if u64::from(rest) == PAGE_BYTES {
            return;
        }
        // A guess takes next to nothing from the certain writers of the page.
        let writer = if end.exact {
            Writer { bytes: rest, ..writer }
        } else {
            Writer { bytes: 1, confidence: Confidence::Guess, ..writer }
        };
        self.add_writer(file, end.bytes / PAGE_BYTES, 1, writer);
    }

    /// Adds the writer to the pages that contain bytes `pos..pos + bytes`. `writer.bytes` is set here, page by page.
    pub(crate) fn write(&mut self, file: FileKey, pos: u64, bytes: u64, writer: Writer) {
        let Some(end) = pos.checked_add(bytes).filter(|_| bytes > 0) else { return };
        let (first, last) = (pos / PAGE_BYTES, (end - 1) / PAGE_BYTES);
        let partial = |from: u64, to: u64| Writer { bytes: (to - from) as u32, ..writer };
        if first == last {
            return self.add_writer(file, first, 1, partial(pos, end));
        }
        let whole_from = if pos.is_multiple_of(PAGE_BYTES) { first } else { first + 1 };
        let whole_to = if end.is_multiple_of(PAGE_BYTES) { last + 1 } else { last };
        if whole_from > first {
            self.add_writer(file, first, 1, partial(pos, (first + 1) * PAGE_BYTES));
        }
        if whole_to > whole_from {
            self.add_writer(file, whole_from, whole_to - whole_from, partial(0, PAGE_BYTES));
        }
        if whole_to <= last {
            self.add_writer(file, last, 1, partial(last * PAGE_BYTES, end));
        }
    }

    /// Adds the writer to `pages` pages from `index`.
    pub(crate) fn add_writer(&mut self, file: FileKey, index: u64, pages: u64, writer: Writer) {
        let Some(end) = index.checked_add(pages).filter(|_| pages > 0) else { return };
        let book = self.files.entry(file).or_default();
        let before = book.len();
        if let Some(range) = book.get_mut(&index).filter(|d| d.end == end) {
            range.add_writer(writer);
            return;
        }
        split_range(book, index);
        split_range(book, end);
        let mut at = index;
        let mut gaps = Vec::new();
        for (&start, range) in book.range_mut(index..end) {
            if start > at {
                gaps.push((at, start));
            }
            at = range.end;
            range.add_writer(writer);
        }
        if at < end {
            gaps.push((at, end));
        }
        for (from, to) in gaps {
            book.insert(from, DirtyRange { end: to, last: writer, earlier: Vec::new() });
        }
        self.ranges = self.ranges + book.len() - before;
        if self.ranges > RANGES_MAX {
            self.forget_older_half();
        }
    }

    /// Takes the charges for these pages, carried by a bio queued at `at_ns` by the system call `call`, in page order.
    pub(crate) fn take(
        &mut self,
        file: FileKey,
        index: u64,
        pages: u64,
        at_ns: u64,
        call: (u32, u64),
        out: &mut Vec<WriterShare>,
    ) {
        let end = index.saturating_add(pages);
        // A damaged record: no file has a page there.
        if end == index {
            return;
        }
        let unknown = |pages: u64| WriterShare { writer: None, weight: (pages * PAGE_BYTES) as f64 };
        let Some(book) = self.files.get_mut(&file) else {
            out.push(unknown(end - index));
            return;
        };
        let before = book.len();
        split_range(book, index);
        split_range(book, end);
        let mut at = index;
        let mut empty = Vec::new();
        for (&start, range) in book.range_mut(index..end) {
            if start > at {
                out.push(unknown(start - at));
            }
            at = range.end;
            let bytes = ((range.end - start) * PAGE_BYTES) as f64;
            let known = |w: &&Writer| w.start_ns <= at_ns;
            let all = || range.earlier.iter().chain([&range.last]);
            let written: f64 = all().filter(known).map(|w| f64::from(w.bytes.max(1))).sum();
            if written == 0.0 {
                out.push(unknown(range.end - start));
                continue;
            }
            out.extend(
                all()
                    .filter(known)
                    .map(|w| WriterShare { writer: Some(*w), weight: bytes * f64::from(w.bytes.max(1)) / written }),
            );
            let stays = |w: &Writer| w.start_ns > at_ns || (w.end_ns > at_ns && w.call != call);
            range.earlier.retain(stays);
            if !stays(&range.last) {
                match range.earlier.pop() {
                    Some(writer) => range.last = writer,
                    None => empty.push(start),
                }
            }
        }
        if at < end {
            out.push(unknown(end - at));
        }
        for start in empty {
            book.remove(&start);
        }
        self.ranges = self.ranges + book.len() - before;
        if book.is_empty() {
            self.files.remove(&file);
        }
    }

    /// Updates the entries of a call that wrote bytes `pos..pos + bytes`: it turned out to be made by `source`.
    pub(crate) fn set_source(&mut self, file: FileKey, (pos, bytes): (u64, u64), call: (u32, u64), source: Source) {
        let pages = pos / PAGE_BYTES..pos.saturating_add(bytes).div_ceil(PAGE_BYTES);
        let range = self.files.get_mut(&file).into_iter().flat_map(|book| book.range_mut(pages.clone()));
        let writers = range.flat_map(|(_, d)| d.earlier.iter_mut().chain([&mut d.last]));
        writers.filter(|w| w.call == call).for_each(|w| w.source = source);
    }

    /// Whether the file has a known writer and has not been written back.
    pub(crate) fn has_writer(&self, file: FileKey) -> bool {
        self.files.contains_key(&file)
    }

    /// Records that the file was removed.
    pub(crate) fn on_removed(&mut self, file: FileKey) {
        self.truncate(file, 0);
        self.sizes.remove(&file);
    }

    /// Truncates the file to `bytes`: pages after its end will never be written.
    fn truncate(&mut self, file: FileKey, bytes: u64) {
        let Some(book) = self.files.get_mut(&file) else { return };
        let before = book.len();
        let end = bytes.div_ceil(PAGE_BYTES);
        split_range(book, end);
        book.split_off(&end);
        self.ranges -= before - book.len().min(before);
        if book.is_empty() {
            self.files.remove(&file);
        }
    }

    fn forget_older_half(&mut self) {
        let mut times: Vec<u64> = self.files.values().flat_map(|b| b.values().map(|d| d.last.start_ns)).collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        self.files.retain(|_, book| {
            book.retain(|_, d| d.last.start_ns > median);
            !book.is_empty()
        });
        self.ranges = self.files.values().map(BTreeMap::len).sum();
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges
    }
}

/// Makes `at` a boundary between two ranges.
fn split_range(book: &mut BTreeMap<u64, DirtyRange>, at: u64) {
    let Some((&start, range)) = book.range_mut(..at).next_back() else { return };
    if range.end > at && start < at {
        let rest = range.copy(range.end);
        range.end = at;
        book.insert(at, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::Actor;
    use model::Origin;

    fn writer(tgid: u32, start_ns: u64, end_ns: u64) -> Writer {
        Writer {
            source: Source::Actor(Actor::process(Origin::Process, tgid)),
            span: u64::from(tgid),
            bytes: 0,
            start_ns,
            end_ns,
            call: (tgid, start_ns),
            cpu: 0,
            confidence: Confidence::Structural,
            via: "page",
        }
    }

    fn taken(pages: &mut Pages, index: u64, n: u64, at: u64) -> Vec<(u64, f64)> {
        let mut out = Vec::new();
        pages.take((1, 2), index, n, at, (0, 0), &mut out);
        out.iter().map(|t| (t.writer.map_or(0, |w| w.span), t.weight)).collect()
    }

    #[test]
    fn a_write_of_a_gigabyte_is_one_entry_taken_in_pieces() {
        let mut pages = Pages::default();
        pages.write((1, 2), 0, 1 << 30, writer(5, 10, 20));
        assert_eq!(pages.len(), 1);
        assert_eq!(taken(&mut pages, 100, 2, 30), [(5, 8192.0)]);
        assert_eq!(pages.len(), 2);
        assert_eq!(taken(&mut pages, 99, 4, 30), [(5, 4096.0), (0, 8192.0), (5, 4096.0)]);
        assert_eq!(taken(&mut pages, 0, 1 << 18, 30).iter().map(|t| t.1).sum::<f64>(), (1u64 << 30) as f64);
        assert_eq!((pages.len(), pages.files.len()), (0, 0));
    }

    #[test]
    fn a_page_is_shared_by_bytes() {
        let mut pages = Pages::default();
        pages.write((1, 2), 0, 1024, writer(1, 10, 20));
        pages.write((1, 2), 1024, 3072, writer(2, 30, 40));
        assert_eq!(taken(&mut pages, 0, 1, 50), [(1, 1024.0), (2, 3072.0)]);
    }

    #[test]
    fn writers_during_and_after_the_bio_is_queued_stay_charged() {
        let mut pages = Pages::default();
        pages.write((1, 2), 0, 4096, writer(1, 10, 20));
        pages.write((1, 2), 0, 4096, writer(2, 25, 35));
        pages.write((1, 2), 0, 4096, writer(3, 40, 50));
        assert_eq!(taken(&mut pages, 0, 1, 30), [(1, 2048.0), (2, 2048.0)]);
        assert_eq!(taken(&mut pages, 0, 1, 60), [(2, 2048.0), (3, 2048.0)]);
        assert_eq!(taken(&mut pages, 0, 1, 70), [(0, 4096.0)]);
    }

    #[test]
    fn unaligned_writes_and_truncation_are_tracked() {
        let mut pages = Pages::default();
        pages.write((1, 2), 4000, 4096 + 200, writer(1, 10, 20));
        pages.truncate((1, 2), 4097);
        assert_eq!(taken(&mut pages, 0, 4, 30), [(1, 4096.0), (1, 4096.0), (0, 8192.0)]);
        pages.write((1, 2), 0, 9000, writer(1, 10, 20));
        pages.truncate((1, 2), 0);
        assert_eq!((pages.len(), pages.files.len()), (0, 0));
    }
}
