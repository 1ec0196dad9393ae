//! Takes records off the rings that the kernel side fills (`bpf/ring.h`): one for each CPU if there are not too many, in
//! memory that both see.
//!
//! A ring is read up to its first record that is not whole yet. Of several rings a stretch of time is read from each by
//! turns, since who reads the log puts records in order only as far as they are apart in it. A record stays where it is
//! until the sink has seen it; then its room is given back.

use crate::Error;
use crate::loss::CpuState;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a chunk; as in `ring.h`.
const CHUNK: u64 = 1 << 20;
/// Bytes behind it, for a record that begins in it.
const SPARE: u64 = 8 << 10;
/// Bits of a word that hold the length.
const LENGTH_BITS: u32 = 13;
/// Chunks of all rings together at most.
const CHUNKS: u32 = 64;
const LEAST_CHUNKS: u32 = 2;
const MOST_CHUNKS: u32 = 32;

/// How much later than the oldest record of all others a ring's may be when they are handed on.
const STRETCH_NS: u64 = 10_000_000;
/// How often room is given back meanwhile.
const GIVE_BACK: u64 = 256 << 10;

/// A CPU's counters and a ring's positions, `tail` being written by us. As in `ring.h`.
#[repr(C)]
struct Control {
    head: AtomicU64,
    seq: AtomicU64,
    lost: AtomicU64,
    table_full: AtomicU64,
    late_ns: AtomicU64,
    reset_wanted: AtomicU64,
    pad: [u64; 2],
    tail: AtomicU64,
    pad_tail: [u64; 7],
}

/// How the rings of this machine are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// CPUs that the machine may have.
    pub cpus: u32,
    /// Rings; CPUs of higher numbers share them.
    pub rings: u32,
    /// Chunks of each ring, a power of two.
    pub chunks: u32,
    /// What the words are mixed with.
    pub salt: u64,
}

impl Shape {
    /// For so many CPUs that there may ever be, and so many that run: at most 64 MiB in all, 2 to 32 MiB each.
    pub fn new(cpus: u32, running: u32, salt: u64) -> Self {
        let rings = running.clamp(1, CHUNKS / LEAST_CHUNKS);
        let share = (CHUNKS / rings).min(MOST_CHUNKS);
        Self { cpus: cpus.max(rings), rings, chunks: 1 << share.ilog2(), salt }
    }

    fn ring_bytes(&self) -> u64 {
        u64::from(self.chunks) * CHUNK
    }

    /// Bytes of all rings in memory.
    fn memory(&self) -> u64 {
        u64::from(self.rings) * u64::from(self.chunks) * (CHUNK + SPARE)
    }

    /// Where in the memory a place of a ring is.
    fn offset(&self, ring: u32, place: u64) -> usize {
        let chunk = u64::from(ring) * u64::from(self.chunks) + place / CHUNK % u64::from(self.chunks);
        (chunk * (CHUNK + SPARE) + place % CHUNK) as usize
    }
}

/// The rings.
pub struct Rings {
    shape: Shape,
    controls: Mapping,
    memory: Mapping,
}

impl Rings {
    /// Maps the two tables, `ring_controls` and `ring_memory`.
    pub fn new(shape: Shape, controls: BorrowedFd<'_>, memory: BorrowedFd<'_>) -> Result<Self, Error> {
        Ok(Self {
            shape,
            controls: Mapping::new(controls, u64::from(shape.cpus) * size_of::<Control>() as u64)?,
            memory: Mapping::new(memory, shape.memory())?,
        })
    }

    /// That of a CPU, or of a ring.
    fn control(&self, cpu: u32) -> &Control {
        assert!(cpu < self.shape.cpus);
        // SAFETY: the mapping holds a `Control` for each CPU, begins at a page, and lives as long as `self`; all that others
        // write is atomic.
        unsafe { self.controls.start.cast::<Control>().add(cpu as usize).as_ref() }
    }

    /// Whether so many statements were left between their rows that their resets matter.
    pub fn reset_wanted(&self) -> bool {
        (0..self.shape.cpus).any(|cpu| self.control(cpu).reset_wanted.load(Ordering::Relaxed) != 0)
    }

    /// The counters of each CPU.
    pub fn counters(&self) -> Vec<CpuState> {
        (0..self.shape.cpus)
            .map(|cpu| {
                let control = self.control(cpu);
                CpuState {
                    lost: control.lost.load(Ordering::Relaxed),
                    table_full: control.table_full.load(Ordering::Relaxed),
                }
            })
            .collect()
    }

    /// How full the fullest ring is, from 0 to 1.
    pub fn fill(&self) -> f64 {
        let used = |ring| {
            let control = self.control(ring);
            control.head.load(Ordering::Relaxed).saturating_sub(control.tail.load(Ordering::Relaxed))
        };
        (0..self.shape.rings).map(used).max().unwrap_or(0) as f64 / self.shape.ring_bytes() as f64
    }

    /// Hands on what is there, for no longer than `at_most`; returns how many records.
    pub fn drain(&self, at_most: Duration, sink: &mut dyn FnMut(&[u8])) -> usize {
        let began = Instant::now();
        let mut readers: Vec<Reader<'_>> = (0..self.shape.rings).map(|ring| Reader::new(self, ring)).collect();
        let mut count = 0;
        // Where records come faster than they are taken (an emulated machine), a drain would never end.
        while began.elapsed() < at_most {
            let Some(oldest) = readers.iter().filter_map(Reader::time).min() else { break };
            for reader in &mut readers {
                count += reader.take(oldest.saturating_add(STRETCH_NS), sink);
            }
        }
        count
    }

    /// When the oldest record that is there was made.
    pub fn oldest(&self) -> Option<u64> {
        (0..self.shape.rings).filter_map(|ring| Reader::new(self, ring).time()).min()
    }
}

/// One ring, being read.
struct Reader<'a> {
    rings: &'a Rings,
    control: &'a Control,
    ring: u32,
    at: u64,
    given_back: u64,
    /// What was there when the reading began.
    head: u64,
}

impl<'a> Reader<'a> {
    fn new(rings: &'a Rings, ring: u32) -> Self {
        let control = rings.control(ring);
        let at = control.tail.load(Ordering::Relaxed);
        Self { rings, control, ring, at, given_back: at, head: control.head.load(Ordering::Acquire) }
    }

    /// The record at the current place, if there is one and it is whole.
    fn record(&self) -> Option<&'a [u8]> {
        if self.at >= self.head {
            return None;
        }
        let shape = &self.rings.shape;
        // SAFETY: the place is within the mapping, and a multiple of 8 since all lengths are; the kernel side stores words
        // whole.
        let (start, word) = unsafe {
            let start = self.rings.memory.start.add(shape.offset(self.ring, self.at));
            (start, start.cast::<AtomicU64>().as_ref().load(Ordering::Acquire))
        };
        let length = word & ((1 << LENGTH_BITS) - 1);
        if word ^ length != ((self.at / 8) ^ shape.salt) << LENGTH_BITS || length + 8 > SPARE {
            return None;
        }
        // SAFETY: it ends within its chunk or the bytes behind that, hence within the mapping. It is whole, and the kernel side
        // does not write there again before `tail` has passed it.
        Some(unsafe { std::slice::from_raw_parts(start.add(8).as_ptr(), length as usize) })
    }

    /// When the record at the current place was made: the first that a record says.
    fn time(&self) -> Option<u64> {
        self.record()?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// Hands on the records up to a time.
    fn take(&mut self, until_ns: u64, sink: &mut dyn FnMut(&[u8])) -> usize {
        let mut count = 0;
        while let Some(record) = self.record() {
            if record.first_chunk().is_some_and(|bytes| u64::from_ne_bytes(*bytes) > until_ns) {
                break;
            }
            sink(record);
            count += 1;
            self.at += 8 + (record.len() as u64).next_multiple_of(8);
            if self.at - self.given_back >= GIVE_BACK {
                self.give_back();
            }
        }
        self.give_back();
        count
    }

    fn give_back(&mut self) {
        if self.at != self.given_back {
            self.control.tail.store(self.at, Ordering::Release);
            self.given_back = self.at;
        }
    }
}

/// A table of the kernel's in our memory.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to nobody else in this process, and all access to it is atomic or ordered by atomics.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, bytes: u64) -> Result<Self, Error> {
        // SAFETY: a call without arguments that cannot fail.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as u64;
        let bytes = bytes.next_multiple_of(page) as usize;
        // SAFETY: a new mapping at a place of the kernel's choice; nothing of ours is replaced.
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

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing that was lent from it outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    const SHAPE: Shape = Shape { cpus: 2, rings: 2, chunks: 2, salt: 0x1234_5678_9abc_def0 };

    /// Rings in plain files, and what the kernel side does to them.
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
            let memory = file(SHAPE.memory());
            Self { rings: Rings::new(SHAPE, controls.as_fd(), memory.as_fd()).unwrap(), heads: [0; 2] }
        }

        /// A word of a record that begins at a place.
        fn store(&self, cpu: usize, place: u64, at: u64, word: u64) {
            let offset = SHAPE.offset(cpu as u32, place) + at as usize;
            // SAFETY: within the mapping, and a multiple of 8.
            unsafe { self.rings.memory.start.add(offset).cast::<AtomicU64>().as_ref() }.store(word, Ordering::Release);
        }

        fn word(place: u64, length: u64) -> u64 {
            ((place / 8) ^ SHAPE.salt) << LENGTH_BITS | length
        }

        /// Takes room for a record; returns its place, `None` if there is none left.
        fn take(&mut self, cpu: usize, length: u64) -> Option<u64> {
            let (whole, place) = (8 + length.next_multiple_of(8), self.heads[cpu]);
            let control = self.rings.control(cpu as u32);
            if place + whole - control.tail.load(Ordering::Relaxed) > SHAPE.ring_bytes() {
                return None;
            }
            self.heads[cpu] = place + whole;
            control.head.store(self.heads[cpu], Ordering::Release);
            self.store(cpu, place, 0, !Self::word(place, length));
            Some(place)
        }

        fn fill(&self, cpu: usize, place: u64, length: u64, time: u64) {
            self.store(cpu, place, 8, time);
            for at in (8..length).step_by(8) {
                self.store(cpu, place, 8 + at, time ^ at);
            }
            self.store(cpu, place, 0, Self::word(place, length));
        }

        fn put(&mut self, cpu: usize, length: u64, time: u64) -> bool {
            self.take(cpu, length).map(|place| self.fill(cpu, place, length, time)).is_some()
        }

        fn drain(&self) -> Vec<(u64, usize)> {
            let mut all = Vec::new();
            self.rings.drain(Duration::from_secs(60), &mut |record| {
                let time = u64::from_ne_bytes(*record.first_chunk().unwrap());
                for (i, word) in record.chunks_exact(8).enumerate().skip(1) {
                    assert_eq!(u64::from_ne_bytes(word.try_into().unwrap()), time ^ (8 * i as u64));
                }
                all.push((time, record.len()));
            });
            all
        }
    }

    #[test]
    fn many_laps_lose_nothing_and_a_full_ring_takes_nothing() {
        let mut kernel = Kernel::new();
        let (mut time, mut lost, mut laps) = (0u64, 0, 0);
        for round in 0..200u64 {
            let mut put = Vec::new();
            // Now and then more than there is room for.
            for i in 0..(if round % 20 == 0 { 30_000 } else { 3_000 }) {
                time += 1;
                let length = 24 + (time * 37 % 200 + i % 5) / 8 * 8;
                if kernel.put((time % 3 == 0).into(), length, time) {
                    put.push((time, length as usize));
                } else {
                    lost += 1;
                }
            }
            let mut got = kernel.drain();
            got.sort_unstable();
            assert_eq!(got, put, "round {round}");
            laps = kernel.heads[0] / SHAPE.ring_bytes();
        }
        assert!(laps > 10 && lost > 0, "{laps} laps, {lost} lost: the test shows nothing");
    }

    #[test]
    fn reading_stops_at_a_record_that_is_not_whole() {
        let mut kernel = Kernel::new();
        assert!(kernel.put(0, 24, 1));
        let open = kernel.take(0, 32).unwrap();
        assert!(kernel.put(0, 24, 3) && kernel.put(1, 24, 4));
        assert_eq!(kernel.drain(), [(1, 24), (4, 24)]);
        kernel.fill(0, open, 32, 2);
        assert_eq!(kernel.drain(), [(2, 32), (3, 24)]);
        assert_eq!(kernel.drain(), []);
    }

    #[test]
    fn what_a_drain_had_no_time_for_is_known_to_be_there() {
        let mut kernel = Kernel::new();
        assert!(kernel.put(0, 24, 7) && kernel.put(1, 24, 5));
        assert_eq!(kernel.rings.drain(Duration::ZERO, &mut |_| ()), 0);
        assert_eq!(kernel.rings.oldest(), Some(5));
        kernel.drain();
        assert_eq!(kernel.rings.oldest(), None);
    }

    #[test]
    fn what_an_earlier_lap_left_is_not_taken_for_a_record() {
        let mut kernel = Kernel::new();
        while kernel.put(0, 24, 7) {}
        kernel.drain();
        // Taken, and interrupted before its word was stored: there stands the word of the lap before.
        kernel.rings.control(0).head.store(kernel.heads[0] + 32, Ordering::Release);
        assert_eq!(kernel.drain(), []);
    }

    #[test]
    fn rings_are_handed_on_by_stretches_of_time() {
        let mut kernel = Kernel::new();
        let ms = |n: u64| n * 1_000_000;
        for time in [1, 2, 30, 31] {
            assert!(kernel.put(0, 24, ms(time)));
        }
        for time in [0, 5, 29, 90] {
            assert!(kernel.put(1, 24, ms(time)));
        }
        let times: Vec<u64> = kernel.drain().into_iter().map(|(time, _)| time / 1_000_000).collect();
        assert_eq!(times, [1, 2, 0, 5, 30, 31, 29, 90]);
    }

    #[test]
    fn memory_is_bounded_and_each_cpu_has_some() {
        let shape = |cpus, running| {
            let shape = Shape::new(cpus, running, 0);
            (shape.cpus, shape.rings, shape.chunks)
        };
        assert_eq!(shape(1, 1), (1, 1, 32));
        assert_eq!(shape(2, 2), (2, 2, 32));
        assert_eq!(shape(128, 3), (128, 3, 16));
        assert_eq!(shape(8, 8), (8, 8, 8));
        assert_eq!(shape(256, 256), (256, 32, 2));
    }
}
