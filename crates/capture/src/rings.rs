//! Takes records from the rings that the kernel side fills (`bpf/ring.h`): one for each CPU if there are not too many, in
//! shared memory.
//!
//! A ring is read up to its first incomplete record. From several rings, a stretch of time is read from each in turn, since
//! readers of the log reorder records only within a limited distance. A record stays in place until the sink has seen it,
//! unpacked ([`crate::unpack`]); then its room is released.

use crate::Error;
use crate::kernel::clock::boot_ns;
use crate::loss::CpuState;
use crate::unpack::{CHECK_MASK, CHUNK, PackedRecord, RECORD_WORDS_MAX};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Size of a word: every position in a ring is a multiple of it.
const WORD_BYTES: u64 = size_of::<u64>() as u64;
/// Spare bytes after a chunk, for a record that begins in it; as in `ring.h`.
const CHUNK_SPARE: u64 = 8 << 10;
/// Maximum number of chunks of all rings together.
const CHUNKS_MAX: u32 = 64;
const RING_CHUNKS_MIN: u32 = 2;
const RING_CHUNKS_MAX: u32 = 32;

/// By how much a ring's records may be later than the oldest record of all others when they are passed on.
const TIME_SLICE_NS: u64 = 10_000_000;
/// By how much the kernel's fast clock may be behind ours, generously; the low bits of a time before ours would stand for one a year
/// later.
const CLOCK_SKEW_NS_MAX: u64 = 3_600_000_000_000;
/// Number of bytes after which room is released meanwhile.
const RELEASE_BYTES: u64 = 256 << 10;
/// How often a record that is not complete is looked at again.
const RETRIES_MAX: u32 = 20;
/// How full a ring may become while it waits for another one.
const WAITING_FILL_RATIO_MAX: f64 = 0.5;

/// A CPU's counters and a ring's positions; `tail` is written by us. As in `ring.h`.
#[repr(C)]
struct Control {
    head: AtomicU64,
    lost: AtomicU64,
    table_full: AtomicU64,
    late_ns: AtomicU64,
    reset_wanted: AtomicU64,
    switches_unseen: AtomicU64,
    wakings_unseen: AtomicU64,
    pad: u64,
    tail: AtomicU64,
    pad_tail: [u64; 7],
}

// The kernel side has the same layout, with `tail` in a cache line of its own; and a record that begins at a chunk's last word must end
// within its spare bytes.
const _: () = {
    assert!(size_of::<Control>() == 128 && align_of::<Control>() == 8);
    assert!(offset_of!(Control, head) == 0 && offset_of!(Control, tail) == 64);
    assert!(CHUNK.is_power_of_two() && CHUNK_SPARE.is_multiple_of(WORD_BYTES));
    assert!((RECORD_WORDS_MAX - 1) * WORD_BYTES <= CHUNK_SPARE);
    assert!(CHUNKS_MAX.is_power_of_two() && RING_CHUNKS_MIN <= RING_CHUNKS_MAX && RING_CHUNKS_MAX <= CHUNKS_MAX);
};

/// The check's upper bits in the first 4 GiB of a ring. A body word left from the previous lap, where a record was begun and not yet
/// named, must not look like a record's: no word in bodies (numbers, times, addresses with flags, sectors, texts) ends like this.
const CHECK_UPPER_BITS: u64 = 0xd << 60;

/// The layout of this machine's rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLayout {
    /// Maximum number of CPUs that the machine may have.
    pub cpus: u32,
    /// Number of rings; CPUs with higher numbers share them.
    pub rings: u32,
    /// Number of chunks of each ring, a power of two.
    pub chunks: u32,
    /// The value that is mixed into the words' checks.
    pub salt: u64,
}

impl RingLayout {
    /// Creates the layout for this number of possible and of running CPUs: at most 64 MiB in total, 2 to 32 MiB each. From
    /// `salt`, the bits that fit into the check are used, minus four bits that are [`CHECK_UPPER_BITS`].
    pub fn new(cpus: u32, running: u32, salt: u64) -> Self {
        let rings = running.clamp(1, CHUNKS_MAX / RING_CHUNKS_MIN);
        let share = (CHUNKS_MAX / rings).min(RING_CHUNKS_MAX);
        let layout = Self {
            cpus: cpus.max(rings),
            rings,
            chunks: 1 << share.ilog2(),
            salt: CHECK_UPPER_BITS | salt & (CHECK_MASK >> 4) & CHECK_MASK,
        };
        layout.check_invariants();
        layout
    }

    /// The kernel side masks the chunk's number, and has a control block for each ring.
    fn check_invariants(&self) {
        assert!(self.chunks.is_power_of_two() && self.chunks >= RING_CHUNKS_MIN);
        assert!(self.rings >= 1 && self.rings <= self.cpus && self.rings * self.chunks <= CHUNKS_MAX);
    }

    fn ring_bytes(&self) -> u64 {
        u64::from(self.chunks) * CHUNK
    }

    /// Returns the size of all rings in memory.
    fn memory_bytes(&self) -> u64 {
        u64::from(self.rings) * u64::from(self.chunks) * (CHUNK + CHUNK_SPARE)
    }

    /// Returns the number of bytes between these positions; `None` if they are impossible. Both are in memory that the kernel side
    /// writes, too.
    fn used_bytes(&self, head: u64, tail: u64) -> Option<u64> {
        let used = head.checked_sub(tail)?;
        (used <= self.ring_bytes() && (head | tail).is_multiple_of(WORD_BYTES)).then_some(used)
    }

    /// Returns the offset in memory of a place in a ring.
    fn memory_offset(&self, ring: u32, place: u64) -> usize {
        debug_assert!(ring < self.rings);
        let chunk = u64::from(ring) * u64::from(self.chunks) + place / CHUNK % u64::from(self.chunks);
        (chunk * (CHUNK + CHUNK_SPARE) + place % CHUNK) as usize
    }
}

pub struct Rings {
    maps: Maps,
    numbers: SequenceNumbers,
    /// Earlier than any record.
    began_ns: u64,
    /// The record being passed on.
    record_words: Vec<u64>,
    progress: Vec<RingProgress>,
    /// Parts of the rings, by CPU, that could not be read.
    unreadable: Vec<u64>,
}

/// How far a ring was read.
#[derive(Debug, Clone, Copy, Default)]
struct RingProgress {
    /// The time of its last record.
    last_ns: u64,
    /// How often it had to be read on at its head.
    resynchronised: u64,
}

impl Rings {
    /// Maps the two tables, `ring_controls` and `ring_memory`. Must be called before anything writes into them.
    pub fn new(shape: RingLayout, controls: BorrowedFd<'_>, memory: BorrowedFd<'_>) -> Result<Self, Error> {
        shape.check_invariants();
        let maps = Maps {
            shape,
            controls: TableMapping::new(controls, u64::from(shape.cpus) * size_of::<Control>() as u64)?,
            memory: TableMapping::new(memory, shape.memory_bytes())?,
        };
        let began_ns = boot_ns().saturating_sub(CLOCK_SKEW_NS_MAX);
        let progress = vec![RingProgress { last_ns: boot_ns(), resynchronised: 0 }; shape.rings as usize];
        let (numbers, unreadable) = (SequenceNumbers::new(shape.cpus), vec![0; shape.cpus as usize]);
        Ok(Self { maps, numbers, began_ns, record_words: Vec::new(), progress, unreadable })
    }

    /// Whether so many statements were left between their rows that their resets matter.
    pub fn reset_wanted(&self) -> bool {
        self.maps.each_cpu().any(|control| control.reset_wanted.load(Ordering::Relaxed) != 0)
    }

    /// Returns the counters of each CPU.
    pub fn counters(&self) -> Vec<CpuState> {
        let state = |(control, unreadable): (&Control, &u64)| CpuState {
            lost: control.lost.load(Ordering::Relaxed),
            unreadable: *unreadable,
            table_full: control.table_full.load(Ordering::Relaxed),
            switches_unseen: control.switches_unseen.load(Ordering::Relaxed),
            wakings_unseen: control.wakings_unseen.load(Ordering::Relaxed),
        };
        self.maps.each_cpu().zip(&self.unreadable).map(state).collect()
    }

    /// Returns how full the fullest ring is, from 0 to 1.
    pub fn fill_ratio(&self) -> f64 {
        self.maps.fill_ratio()
    }

    /// Passes on the available records, for no longer than `at_most`. They are complete: a header and a body as in `model::event`.
    pub fn drain(&mut self, at_most: Duration, order: Order, sink: &mut dyn FnMut(&[u8])) -> DrainResult {
        let Self { maps, numbers, began_ns, record_words: whole, progress, unreadable } = self;
        let resynchronised: Vec<u64> = progress.iter().map(|ring| ring.resynchronised).collect();
        let mut count = 0;
        let until_ns = maps.drain(at_most, order, *began_ns, progress, &mut |ring, record| {
            let (cpu, time_ns) = (record.cpu().unwrap_or(ring), record.time_ns(*began_ns));
            let Some(number) = numbers.next(cpu) else {
                unreadable[ring as usize] += 1;
                return;
            };
            if record.unpack(time_ns, cpu, number, whole) {
                sink(bytes_of(whole));
                count += 1;
            }
            if record.has_rest()
                && let Some(number) = numbers.next(cpu)
            {
                record.unpack_rest(time_ns, cpu, number, whole);
                sink(bytes_of(whole));
                count += 1;
            }
        });
        for ((all, ring), before) in unreadable.iter_mut().zip(progress.iter()).zip(resynchronised) {
            *all += ring.resynchronised - before;
        }
        numbers.skip_lost(maps.each_cpu().map(|control| control.lost.load(Ordering::Relaxed)));
        DrainResult { count, until_ns }
    }

    /// Returns how far each ring has been reserved: what is made from now on lies beyond.
    pub fn heads(&self) -> Vec<u64> {
        (0..self.maps.shape.rings).map(|ring| self.maps.control(ring).head.load(Ordering::Acquire)).collect()
    }

    /// Returns the bytes of each ring up to `heads` that have not been passed on. They include records behind one that is
    /// incomplete, because its task was preempted while it wrote it: these are not available yet, and not lost.
    pub fn unread(&self, heads: &[u64]) -> Vec<u64> {
        let tail = |ring| self.maps.control(ring).tail.load(Ordering::Relaxed);
        (0..).zip(heads).map(|(ring, head)| head.saturating_sub(tail(ring))).collect()
    }
}

/// Numbers the records of each CPU, including lost ones. The kernel side does not, since that needed a locked instruction per
/// record.
struct SequenceNumbers {
    next: Vec<u32>,
    lost: Vec<u64>,
}

impl SequenceNumbers {
    fn new(cpus: u32) -> Self {
        Self { next: vec![0; cpus as usize], lost: vec![0; cpus as usize] }
    }

    /// Returns the next number of a CPU; `None` if there is no such CPU.
    fn next(&mut self, cpu: u32) -> Option<u32> {
        let next = self.next.get_mut(cpu as usize)?;
        *next = next.wrapping_add(1);
        Some(next.wrapping_sub(1))
    }

    /// Skips the numbers of lost records, by each CPU's count.
    fn skip_lost(&mut self, counts: impl Iterator<Item = u64>) {
        for ((next, lost), count) in self.next.iter_mut().zip(&mut self.lost).zip(counts) {
            *next = next.wrapping_add((count - *lost) as u32);
            *lost = count;
        }
    }
}

/// Returns words as their bytes in memory.
fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: as many bytes as the words have, for which any value is valid; they are borrowed as long as the words.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// The memory shared by both sides.
struct Maps {
    shape: RingLayout,
    controls: TableMapping,
    memory: TableMapping,
}

impl Maps {
    /// Returns the control block of a CPU, or of a ring.
    fn control(&self, cpu: u32) -> &Control {
        assert!(cpu < self.shape.cpus);
        // SAFETY: the mapping holds a `Control` for each CPU, begins at a page, and lives as long as `self`; everything that
        // others write is atomic.
        unsafe { self.controls.start.cast::<Control>().add(cpu as usize).as_ref() }
    }

    fn each_cpu(&self) -> impl Iterator<Item = &Control> {
        (0..self.shape.cpus).map(|cpu| self.control(cpu))
    }

    /// Returns how full the fullest ring is. One with impossible positions counts as full, so that it is soon resynchronised.
    fn fill_ratio(&self) -> f64 {
        let used = |ring| {
            let control = self.control(ring);
            let (head, tail) = (control.head.load(Ordering::Relaxed), control.tail.load(Ordering::Relaxed));
            self.shape.used_bytes(head, tail).unwrap_or(self.shape.ring_bytes())
        };
        (0..self.shape.rings).map(used).max().unwrap_or(0) as f64 / self.shape.ring_bytes() as f64
    }

    /// Passes on the available records, each with its ring, for no longer than `at_most`. Returns the time up to which no ring has
    /// more, if any has.
    fn drain(
        &self,
        at_most: Duration,
        order: Order,
        began_ns: u64,
        progress: &mut [RingProgress],
        sink: &mut dyn FnMut(u32, PackedRecord<'_>),
    ) -> Option<u64> {
        let (began, mut retries_left) = (Instant::now(), RETRIES_MAX);
        let mut readers: Vec<RingReader<'_>> = (0..)
            .zip(progress.iter())
            .map(|(ring, progress)| RingReader::new(self, ring, began_ns, *progress))
            .collect();
        // If records arrive faster than they are taken (an emulated machine), a drain would never end.
        while began.elapsed() < at_most {
            let held_up_ns = readers.iter().filter(|r| r.is_blocked()).map(|r| r.progress.last_ns).min();
            let limit = held_up_ns
                .filter(|_| order == Order::Kept && self.fill_ratio() < WAITING_FILL_RATIO_MAX)
                .unwrap_or(u64::MAX);
            let oldest = readers.iter().filter_map(RingReader::time).min().filter(|oldest| *oldest <= limit);
            match oldest {
                Some(oldest) => {
                    readers
                        .iter_mut()
                        .for_each(|r| r.pass_on_until(oldest.saturating_add(TIME_SLICE_NS).min(limit), sink));
                }
                // Another CPU may be writing the record at this moment.
                None if limit < u64::MAX && retries_left > 0 => {
                    retries_left -= 1;
                    std::thread::yield_now();
                }
                None => break,
            }
        }
        for (progress, reader) in progress.iter_mut().zip(&readers) {
            *progress = reader.progress;
        }
        let next =
            |reader: &RingReader<'_>| reader.time().or_else(|| reader.is_blocked().then_some(reader.progress.last_ns));
        readers.iter().filter_map(next).min()
    }
}

/// Whether rings wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// A task that was preempted while it wrote a record holds up its ring. What the other rings have from then on waits for it, unless
    /// they fill up: the linker sorts by time only within its horizon.
    Kept,
    /// Everything that is complete is passed on.
    GivenUp,
}

/// The result of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainResult {
    pub count: usize,
    /// The time up to which no ring has more; `None` if all were empty.
    pub until_ns: Option<u64>,
}

/// A ring that is being read.
struct RingReader<'a> {
    maps: &'a Maps,
    control: &'a Control,
    ring: u32,
    began_ns: u64,
    position: u64,
    released: u64,
    /// The head when reading began.
    head: u64,
    progress: RingProgress,
}

impl<'a> RingReader<'a> {
    fn new(maps: &'a Maps, ring: u32, began_ns: u64, progress: RingProgress) -> Self {
        let control = maps.control(ring);
        let at = control.tail.load(Ordering::Relaxed);
        let head = control.head.load(Ordering::Acquire);
        let mut reader = Self { maps, control, ring, began_ns, position: at, released: at, head, progress };
        if maps.shape.used_bytes(head, at).is_none() || reader.has_false_length() {
            reader.resynchronise();
        }
        reader
    }

    /// Reads on at the head: nothing before it can be located any more.
    fn resynchronise(&mut self) {
        self.progress.resynchronised += 1;
        self.position = self.head;
        self.release_read();
    }

    /// Returns the first word of the record at the current place, and the number of words that it names, if it is complete.
    fn first_word(&self) -> Option<(NonNull<u64>, usize)> {
        if self.position >= self.head {
            return None;
        }
        let shape = &self.maps.shape;
        assert!(self.position.is_multiple_of(WORD_BYTES));
        // SAFETY: the place is within the mapping, and a multiple of 8; the kernel side stores words whole.
        let (start, word) = unsafe {
            let start = self.maps.memory.start.add(shape.memory_offset(self.ring, self.position)).cast::<u64>();
            (start, start.cast::<AtomicU64>().as_ref().load(Ordering::Acquire))
        };
        Some((start, PackedRecord::length(word, self.position, shape.salt)?))
    }

    /// Whether so many words were reserved.
    fn is_reserved(&self, words: usize) -> bool {
        words as u64 <= (self.head - self.position) / WORD_BYTES
    }

    /// Whether the record at the current place is longer than what was reserved: its word was overwritten.
    fn has_false_length(&self) -> bool {
        self.first_word().is_some_and(|(_, words)| !self.is_reserved(words))
    }

    /// Whether the record at the current place is not complete.
    fn is_blocked(&self) -> bool {
        self.position < self.head && self.record().is_none()
    }

    /// Returns the record at the current place, if there is one and it is complete.
    fn record(&self) -> Option<PackedRecord<'a>> {
        let (start, length) = self.first_word().filter(|(_, words)| self.is_reserved(*words))?;
        // SAFETY: it ends within its chunk or the spare bytes after that, hence within the mapping. It is complete, and the kernel
        // side does not write there again before `tail` has passed it.
        Some(PackedRecord::new(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }))
    }

    /// Returns when the record at the current place was made.
    fn time(&self) -> Option<u64> {
        Some(self.record()?.time_ns(self.began_ns))
    }

    /// Passes on the records up to a time.
    fn pass_on_until(&mut self, until_ns: u64, sink: &mut dyn FnMut(u32, PackedRecord<'_>)) {
        while let Some(record) = self.record() {
            let time_ns = record.time_ns(self.began_ns);
            if time_ns > until_ns {
                break;
            }
            self.progress.last_ns = self.progress.last_ns.max(time_ns);
            sink(self.ring, record);
            self.position += WORD_BYTES * record.words() as u64;
            assert!(self.position <= self.head);
            if self.position - self.released >= RELEASE_BYTES {
                self.release_read();
            }
        }
        if self.has_false_length() {
            self.resynchronise();
        }
        self.release_read();
    }

    fn release_read(&mut self) {
        if self.position != self.released {
            self.control.tail.store(self.position, Ordering::Release);
            self.released = self.position;
        }
    }
}

/// A kernel table mapped into our memory.
struct TableMapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: nothing else in this process owns the memory, and all access to it is atomic or ordered by atomics.
unsafe impl Send for TableMapping {}

impl TableMapping {
    fn new(fd: BorrowedFd<'_>, bytes: u64) -> Result<Self, Error> {
        // SAFETY: a call without arguments that cannot fail.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as u64;
        let bytes = bytes.next_multiple_of(page) as usize;
        // SAFETY: a new mapping at an address chosen by the kernel; no mapping of ours is replaced.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        match NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED) {
            Some(start) => Ok(Self { start, bytes }),
            None => Err(Error::table("the rings cannot be mapped", std::io::Error::last_os_error())),
        }
    }
}

impl Drop for TableMapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing borrowed from it outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    const TEST_LAYOUT: RingLayout = RingLayout { cpus: 2, rings: 2, chunks: 2, salt: 0x1234 << 48 };
    /// Number of words of a record without a body.
    const RECORD_HEAD_WORDS: u64 = 2;

    /// Rings in plain files, and the actions of the kernel side.
    struct Kernel {
        rings: Rings,
        heads: [u64; 2],
    }

    impl Kernel {
        fn new() -> Self {
            let file = |bytes: u64| -> File {
                let file = tempfile::tempfile().unwrap();
                file.set_len(bytes).unwrap();
                file
            };
            let controls = file(4096);
            let memory = file(TEST_LAYOUT.memory_bytes());
            let mut rings = Rings::new(TEST_LAYOUT, controls.as_fd(), memory.as_fd()).unwrap();
            rings.began_ns = 0;
            Self { rings, heads: [0; 2] }
        }

        fn control(&self, cpu: usize) -> &Control {
            self.rings.maps.control(cpu as u32)
        }

        /// Stores a word of the record that begins at a place.
        fn store(&self, cpu: usize, place: u64, nth: u64, word: u64) {
            let offset = TEST_LAYOUT.memory_offset(cpu as u32, place) + 8 * nth as usize;
            // SAFETY: within the mapping, and a multiple of 8.
            unsafe { self.rings.maps.memory.start.add(offset).cast::<AtomicU64>().as_ref() }
                .store(word, Ordering::Release);
        }

        fn word(place: u64, words: u64) -> u64 {
            (place / CHUNK) << 48 ^ TEST_LAYOUT.salt | words
        }

        /// Reserves room for a record; returns its place, or `None` if there is no room.
        fn take(&mut self, cpu: usize, words: u64) -> Option<u64> {
            let place = self.heads[cpu];
            let control = self.control(cpu);
            if place + 8 * words - control.tail.load(Ordering::Relaxed) > TEST_LAYOUT.ring_bytes() {
                return None;
            }
            control.head.store(place + 8 * words, Ordering::Release);
            self.heads[cpu] += 8 * words;
            self.store(cpu, place, 0, !Self::word(place, words));
            Some(place)
        }

        fn fill(&self, cpu: usize, place: u64, words: u64, time: u64) {
            self.store(cpu, place, 1, time << 9);
            for nth in RECORD_HEAD_WORDS..words {
                self.store(cpu, place, nth, time ^ nth);
            }
            self.store(cpu, place, 0, Self::word(place, words));
        }

        fn put(&mut self, cpu: usize, words: u64, time: u64) -> bool {
            self.take(cpu, words).map(|place| self.fill(cpu, place, words, time)).is_some()
        }

        /// Returns the times and lengths of the available records.
        fn drain(&self) -> Vec<(u64, u64)> {
            self.drain_in(Order::GivenUp, &mut [RingProgress::default(); 2]).0
        }

        /// The same, and until when nothing is left.
        fn drain_in(&self, order: Order, progress: &mut [RingProgress]) -> (Vec<(u64, u64)>, Option<u64>) {
            let mut all = Vec::new();
            let until = self.rings.maps.drain(Duration::from_secs(60), order, 0, progress, &mut |_, record| {
                let time = record.time_ns(0);
                for (nth, word) in record.all().iter().enumerate().skip(RECORD_HEAD_WORDS as usize) {
                    assert_eq!(*word, time ^ nth as u64);
                }
                all.push((time, record.words() as u64));
            });
            (all, until)
        }
    }

    #[test]
    fn ring_wraps_without_loss_and_refuses_records_when_full() {
        let mut kernel = Kernel::new();
        let (mut time, mut lost, mut laps) = (0u64, 0, 0);
        for round in 0..200u64 {
            let mut put = Vec::new();
            // Now and then more than fits.
            for i in 0..(if round % 20 == 0 { 30_000 } else { 3_000 }) {
                time += 1;
                let words = 3 + (time * 37 % 200 + i % 5) / 8;
                if kernel.put((time % 3 == 0).into(), words, time) {
                    put.push((time, words));
                } else {
                    lost += 1;
                }
            }
            let mut got = kernel.drain();
            got.sort_unstable();
            assert_eq!(got, put, "round {round}");
            laps = kernel.heads[0] / TEST_LAYOUT.ring_bytes();
        }
        assert!(laps > 10 && lost > 0, "{laps} laps, {lost} lost: the test shows nothing");
    }

    #[test]
    fn reading_stops_at_an_incomplete_record() {
        let mut kernel = Kernel::new();
        assert!(kernel.put(0, 3, 1));
        let open = kernel.take(0, 4).unwrap();
        assert!(kernel.put(0, 3, 3) && kernel.put(1, 3, 4));
        assert_eq!(kernel.drain(), [(1, 3), (4, 3)]);
        kernel.fill(0, open, 4, 2);
        assert_eq!(kernel.drain(), [(2, 4), (3, 3)]);
        assert_eq!(kernel.drain(), []);
    }

    #[test]
    fn rings_wait_for_an_incomplete_record_unless_they_fill_up() {
        // Times that one stretch keeps apart.
        let at = |nth: u64| nth * 2 * TIME_SLICE_NS;
        let (mut kernel, mut progress) = (Kernel::new(), [RingProgress::default(); 2]);
        assert!(kernel.put(0, 3, at(1)));
        let open = kernel.take(0, 4).unwrap();
        assert!(kernel.put(1, 3, at(1)) && kernel.put(1, 3, at(4)));
        assert_eq!(kernel.drain_in(Order::Kept, &mut progress), (vec![(at(1), 3), (at(1), 3)], Some(at(1))));
        assert_eq!(kernel.drain_in(Order::Kept, &mut progress), (vec![], Some(at(1))));
        kernel.fill(0, open, 4, at(2));
        assert_eq!(kernel.drain_in(Order::Kept, &mut progress), (vec![(at(2), 4), (at(4), 3)], None));
        let open = kernel.take(0, 4).unwrap();
        let half = TEST_LAYOUT.ring_bytes() / 2 / 24;
        assert!((0..half - 1).all(|nth| kernel.put(1, 3, at(5 + nth))));
        assert_eq!(kernel.drain_in(Order::Kept, &mut progress), (vec![], Some(at(2))));
        assert!(kernel.put(1, 3, at(5 + half)) && kernel.put(1, 3, at(6 + half)));
        let (passed, until) = kernel.drain_in(Order::Kept, &mut progress);
        assert!(!passed.is_empty() && until == Some(at(2)), "{} of {half}", passed.len());
        kernel.fill(0, open, 4, at(3));
        let (rest, until) = kernel.drain_in(Order::Kept, &mut progress);
        assert_eq!((rest[0], (passed.len() + rest.len()) as u64, until), ((at(3), 4), half + 2, None));
    }

    #[test]
    fn records_behind_an_incomplete_one_are_unread() {
        let mut kernel = Kernel::new();
        assert!(kernel.put(0, 24, 1) && kernel.put(1, 24, 2));
        let open = kernel.take(0, 4).unwrap();
        assert!(kernel.put(0, 3, 4));
        let heads = kernel.rings.heads();
        let drained = kernel.rings.drain(Duration::ZERO, Order::Kept, &mut |_| ());
        assert_eq!(drained, DrainResult { count: 0, until_ns: Some(1) });
        assert_eq!(kernel.rings.unread(&heads), [8 * 31, 8 * 24]);
        kernel.drain();
        assert_eq!(kernel.rings.unread(&heads), [8 * 7, 0]);
        // What is made later does not count.
        kernel.fill(0, open, 4, 3);
        assert!(kernel.put(1, 24, 5));
        assert_eq!(kernel.rings.unread(&heads), [8 * 7, 0]);
        kernel.drain();
        assert_eq!(kernel.rings.unread(&heads), [0, 0]);
    }

    /// Drains everything; returns the CPU and time of each record, and the number of parts of each ring that could not be read.
    fn drain_whole(kernel: &mut Kernel) -> (Vec<(u16, u64)>, [u64; 2]) {
        let mut all = Vec::new();
        kernel.rings.drain(Duration::from_secs(60), Order::GivenUp, &mut |bytes| {
            let event = model::Event::decode(bytes).unwrap();
            all.push((event.header.cpu, event.header.time_ns));
        });
        let counters = kernel.rings.counters();
        (all, [counters[0].unreadable, counters[1].unreadable])
    }

    /// Puts a commit's begin, whose body is one word, of the ring's or another CPU.
    fn put_commit(kernel: &mut Kernel, ring: usize, cpu: Option<u64>, time: u64) {
        let words = 3 + u64::from(cpu.is_some());
        let place = kernel.take(ring, words).unwrap();
        kernel.store(ring, place, 1, time << 9);
        kernel.store(ring, place, 2, 5);
        let mut word = Kernel::word(place, words) | u64::from(model::event::CommitBegin::INFO.kind) << 10;
        if let Some(cpu) = cpu {
            kernel.store(ring, place, 3, cpu << 32);
            word |= 1 << 20;
        }
        kernel.store(ring, place, 0, word);
    }

    #[test]
    fn false_length_is_counted_loss() {
        for false_words in [5, 100, 1023] {
            let mut kernel = Kernel::new();
            put_commit(&mut kernel, 0, None, 10);
            let place = kernel.take(0, 4).unwrap();
            kernel.store(0, place, 0, Kernel::word(place, false_words));
            put_commit(&mut kernel, 1, None, 20);
            assert_eq!(drain_whole(&mut kernel), (vec![(0, 10), (1, 20)], [1, 0]), "{false_words}");
            assert_eq!(kernel.control(0).tail.load(Ordering::Relaxed), kernel.heads[0]);
            // Room is released, and later records are read.
            put_commit(&mut kernel, 0, None, 30);
            assert_eq!(drain_whole(&mut kernel), (vec![(0, 30)], [1, 0]), "{false_words}");
        }
    }

    #[test]
    fn impossible_ring_positions_are_counted_losses() {
        let ring = TEST_LAYOUT.ring_bytes();
        for (head, tail) in
            [(0, 8), (ring + 8, 0), (u64::MAX - 7, 0), (64, 61), (5 * ring, 7 * ring), (0, u64::MAX - 7)]
        {
            let mut kernel = Kernel::new();
            kernel.control(0).head.store(head, Ordering::Relaxed);
            kernel.control(0).tail.store(tail, Ordering::Relaxed);
            assert!(kernel.rings.fill_ratio() <= 1.0);
            assert_eq!(drain_whole(&mut kernel), (vec![], [1, 0]), "{head} {tail}");
            assert_eq!(kernel.control(0).tail.load(Ordering::Relaxed), head);
        }
    }

    #[test]
    fn record_of_unknown_cpu_is_counted_loss() {
        let mut kernel = Kernel::new();
        put_commit(&mut kernel, 0, Some(1), 10);
        put_commit(&mut kernel, 0, Some(2), 20);
        put_commit(&mut kernel, 0, Some(0), 30);
        assert_eq!(drain_whole(&mut kernel), (vec![(1, 10), (0, 30)], [1, 0]));
    }

    #[test]
    fn stale_ring_data_is_not_a_record() {
        let mut kernel = Kernel::new();
        while kernel.put(0, 4, 7) {}
        kernel.drain();
        // Reserved, but interrupted before its word was stored: the previous lap's word is still there.
        kernel.control(0).head.store(kernel.heads[0] + 32, Ordering::Release);
        assert_eq!(kernel.drain(), []);
    }

    #[test]
    fn record_bodies_are_not_parsed_as_records() {
        let held = [
            40,                       // a number
            (1_000_000_000 << 9) | 3, // a time and its context, or two halves
            0xffff_8881_2345_6780,    // an address
            0x3fff_8881_2345_6780,    // one with flags
            0x8700_0000_0001_0008,    // a sector with its operation, the last part
            u64::MAX,                 // -1
            0x6c71_732e_7469_6c64,    // a text
        ];
        for salt in [0, 0x1234 << 48, u64::MAX] {
            let shape = RingLayout::new(2, 2, salt);
            for chunk in 0..4096 {
                assert!(
                    held.iter().all(|word| PackedRecord::length(*word, chunk * CHUNK, shape.salt).is_none()),
                    "{chunk}"
                );
            }
        }
    }

    #[test]
    fn rings_are_drained_by_time_slices() {
        let mut kernel = Kernel::new();
        let ms = |n: u64| n * 1_000_000;
        for time in [1, 2, 30, 31] {
            assert!(kernel.put(0, 3, ms(time)));
        }
        for time in [0, 5, 29, 90] {
            assert!(kernel.put(1, 3, ms(time)));
        }
        let times: Vec<u64> = kernel.drain().into_iter().map(|(time, _)| time / 1_000_000).collect();
        assert_eq!(times, [1, 2, 0, 5, 30, 31, 29, 90]);
    }

    #[test]
    fn records_and_losses_are_numbered_per_cpu() {
        let mut kernel = Kernel::new();
        let numbers = |kernel: &mut Kernel| {
            let mut all = Vec::new();
            let drained = kernel.rings.drain(Duration::from_secs(60), Order::Kept, &mut |bytes| {
                let event = model::Event::decode(bytes).unwrap();
                all.push((event.header.cpu, event.header.seq, event.header.time_ns));
            });
            assert_eq!(drained.count, all.len());
            all
        };
        put_commit(&mut kernel, 0, None, 10);
        put_commit(&mut kernel, 1, None, 20);
        put_commit(&mut kernel, 0, None, 30);
        kernel.control(0).lost.store(3, Ordering::Relaxed);
        assert_eq!(numbers(&mut kernel), [(0, 0, 10), (0, 1, 30), (1, 0, 20)]);
        put_commit(&mut kernel, 0, None, 40);
        assert_eq!(numbers(&mut kernel), [(0, 5, 40)]);
    }

    #[test]
    fn ring_memory_is_bounded_and_shared_among_cpus() {
        let shape = |cpus, running| {
            let shape = RingLayout::new(cpus, running, 0);
            (shape.cpus, shape.rings, shape.chunks)
        };
        assert_eq!(shape(1, 1), (1, 1, 32));
        assert_eq!(shape(2, 2), (2, 2, 32));
        assert_eq!(shape(128, 3), (128, 3, 16));
        assert_eq!(shape(8, 8), (8, 8, 8));
        assert_eq!(shape(256, 256), (256, 32, 2));
    }
}
