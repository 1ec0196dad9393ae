//! Takes records off the rings that the kernel side fills (`bpf/ring.h`): one for each CPU, in memory that both see.
//!
//! A ring is read up to its first record that is not whole yet. Of several rings a stretch of time is read from each by
//! turns, since who reads the log puts records in order only as far as they are apart in it. A record stays where it is
//! until the sink has seen it; then its room is given back.

use crate::Error;
use crate::loss::CpuState;
use aya::maps::{Map, MapData};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a chunk; as in `ring.h`.
const CHUNK: u64 = 1 << 20;
/// Bits of a word that hold the length.
const LENGTH_BITS: u32 = 13;
/// Chunks of all rings together, if each has its least.
const CHUNKS: u32 = 64;
const LEAST_CHUNKS: u32 = 2;
const MOST_CHUNKS: u32 = 32;

/// How much later than the oldest record of all others a ring's may be when they are handed on.
const STRETCH_NS: u64 = 10_000_000;
/// How often room is given back meanwhile.
const GIVE_BACK: u64 = 256 << 10;

/// A ring's positions and counters, written by its CPU; `tail` by us. As in `ring.h`.
#[repr(C)]
struct Control {
    head: AtomicU64,
    seq: AtomicU64,
    lost: AtomicU64,
    table_full: AtomicU64,
    pad: [u64; 4],
    tail: AtomicU64,
    pad_tail: [u64; 7],
}

/// How the rings of this machine are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// CPUs that the machine may have.
    pub cpus: u32,
    /// Chunks of each one's ring, a power of two.
    pub chunks: u32,
    /// What the words are mixed with.
    pub salt: u64,
}

impl Shape {
    /// For so many CPUs: 64 MiB in all, but at least 2 MiB and at most 32 MiB each.
    pub fn new(cpus: u32, salt: u64) -> Self {
        let share = (CHUNKS / cpus.max(1)).clamp(LEAST_CHUNKS, MOST_CHUNKS);
        Self { cpus: cpus.max(1), chunks: 1 << share.ilog2(), salt }
    }

    fn ring_bytes(&self) -> u64 {
        u64::from(self.chunks) * CHUNK
    }
}

/// The rings.
pub struct Rings {
    shape: Shape,
    controls: Mapping,
    memory: Mapping,
}

impl Rings {
    /// Maps the two tables.
    pub fn new(shape: Shape, controls: &Map, memory: &Map) -> Result<Self, Error> {
        let cpus = u64::from(shape.cpus);
        Ok(Self {
            shape,
            controls: Mapping::new(descriptor(controls)?, cpus * size_of::<Control>() as u64)?,
            memory: Mapping::new(descriptor(memory)?, cpus * shape.ring_bytes())?,
        })
    }

    fn control(&self, cpu: u32) -> &Control {
        assert!(cpu < self.shape.cpus);
        // SAFETY: the mapping holds a `Control` for each CPU, begins at a page, and lives as long as `self`; all that others
        // write is atomic.
        unsafe { self.controls.start.cast::<Control>().add(cpu as usize).as_ref() }
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
        let used = |cpu| {
            let control = self.control(cpu);
            control.head.load(Ordering::Relaxed).saturating_sub(control.tail.load(Ordering::Relaxed))
        };
        (0..self.shape.cpus).map(used).max().unwrap_or(0) as f64 / self.shape.ring_bytes() as f64
    }

    /// Hands on what is there, for no longer than `at_most`; returns how many records.
    pub fn drain(&self, at_most: Duration, sink: &mut dyn FnMut(&[u8])) -> usize {
        let began = Instant::now();
        let mut readers: Vec<Reader<'_>> = (0..self.shape.cpus).map(|cpu| Reader::new(self, cpu)).collect();
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
}

/// One ring, being read.
struct Reader<'a> {
    rings: &'a Rings,
    control: &'a Control,
    cpu: u32,
    at: u64,
    given_back: u64,
    /// What was there when the reading began.
    head: u64,
}

impl<'a> Reader<'a> {
    fn new(rings: &'a Rings, cpu: u32) -> Self {
        let control = rings.control(cpu);
        let at = control.tail.load(Ordering::Relaxed);
        let mut reader = Self { rings, control, cpu, at, given_back: at, head: control.head.load(Ordering::Acquire) };
        reader.skip();
        reader
    }

    /// The word at a place and the bytes from there to the end of its chunk.
    fn word(&self, place: u64) -> (u64, u64) {
        let ring = self.rings.shape.ring_bytes();
        let offset = u64::from(self.cpu) * ring + place % ring;
        // SAFETY: the offset is within the mapping, and a multiple of 8 since every length is; the kernel side stores words
        // whole.
        let word = unsafe {
            self.rings.memory.start.add(offset as usize).cast::<AtomicU64>().as_ref().load(Ordering::Acquire)
        };
        (word, CHUNK - place % CHUNK)
    }

    /// The length of the record at the current place, if there is a whole one.
    fn length(&self) -> Option<u64> {
        if self.at >= self.head {
            return None;
        }
        let (word, left) = self.word(self.at);
        let length = word & ((1 << LENGTH_BITS) - 1);
        let place = (self.at / 8 ^ self.rings.shape.salt) << LENGTH_BITS;
        (word ^ length == place && length + 8 <= left).then_some(length)
    }

    /// Passes by the rest of a chunk that was left out.
    fn skip(&mut self) {
        while self.length() == Some(0) {
            self.at += CHUNK - self.at % CHUNK;
        }
    }

    /// The record at the current place, if it is whole.
    fn record(&self) -> Option<&'a [u8]> {
        let length = self.length()?;
        let ring = self.rings.shape.ring_bytes();
        let offset = u64::from(self.cpu) * ring + self.at % ring + 8;
        // SAFETY: the record ends within its chunk, hence within the mapping. It is whole, and the kernel side does not write
        // there again before `tail` has passed it.
        Some(unsafe {
            std::slice::from_raw_parts(self.rings.memory.start.add(offset as usize).as_ptr(), length as usize)
        })
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
            self.skip();
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

fn descriptor(map: &Map) -> Result<BorrowedFd<'_>, Error> {
    match map {
        Map::Array(data) => Ok(MapData::fd(data).as_fd()),
        other => Err(Error::Object(format!("a ring is no array: {other:?}"))),
    }
}
