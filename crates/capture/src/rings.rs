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
mod interleaving;
#[cfg(test)]
mod tests;
