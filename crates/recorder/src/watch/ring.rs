//! The newest records, in a bounded amount of memory.
//!
//! Records are kept as they come, in chunks of one size. When all chunks are full, the oldest one is given up as a whole and its memory is
//! used for the newest. A snapshot shares the chunks instead of copying them, so that an incident can be linked while records keep coming.
//! A chunk that a snapshot holds is not reused before the snapshot is dropped: with one snapshot at a time, ring and snapshot together
//! never hold more than twice the ring's chunks.

use std::collections::VecDeque;
use std::sync::Arc;

/// Size of a chunk: more than any record (24 bytes, a body and at most 65,535 bytes of text).
pub const CHUNK_BYTES: usize = 128 << 10;

/// Records in the order in which they came, each after its length.
#[derive(Debug, Default)]
pub struct Chunk {
    bytes: Vec<u8>,
    /// Time of the newest record, ns.
    newest_ns: u64,
}

impl Chunk {
    fn new(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.reserve_exact(CHUNK_BYTES.saturating_sub(bytes.capacity()));
        Self { bytes, newest_ns: 0 }
    }

    fn has_room(&self, record: &[u8]) -> bool {
        self.bytes.len() + size_of::<u32>() + record.len() <= CHUNK_BYTES
    }

    fn push(&mut self, time_ns: u64, record: &[u8]) {
        self.bytes.extend_from_slice(&(record.len() as u32).to_ne_bytes());
        self.bytes.extend_from_slice(record);
        self.newest_ns = self.newest_ns.max(time_ns);
    }

    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk()?;
            let (record, after) = after.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
            rest = after;
            Some(record)
        })
    }
}

/// The chunks of a ring at one moment, the oldest first.
pub type Snapshot = Vec<Arc<Chunk>>;

#[derive(Debug)]
pub struct RecordRing {
    full: VecDeque<Arc<Chunk>>,
    open: Chunk,
    /// Maximum number of chunks, the open one included.
    chunks_max: usize,
    /// No record older than this was given up: everything from then on is in the ring.
    complete_from_ns: u64,
}

impl RecordRing {
    /// Creates a ring that holds at most `bytes`, and at least two chunks, of a recording that began at `began_ns`.
    pub fn new(bytes: usize, began_ns: u64) -> Self {
        let chunks_max = (bytes / CHUNK_BYTES).max(2);
        Self { full: VecDeque::new(), open: Chunk::new(Vec::new()), chunks_max, complete_from_ns: began_ns }
    }

    /// Adds a record. Passes the records that this pushes out to `given_up`. Returns whether there was room: a record longer than a chunk
    /// is none that the kernel makes.
    pub fn push(&mut self, time_ns: u64, record: &[u8], given_up: &mut dyn FnMut(&[u8])) -> bool {
        if !self.open.has_room(record) {
            if record.len() + size_of::<u32>() > CHUNK_BYTES {
                return false;
            }
            let memory = self.make_room(given_up);
            let full = std::mem::replace(&mut self.open, Chunk::new(memory));
            self.full.push_back(Arc::new(full));
        }
        self.open.push(time_ns, record);
        true
    }

    /// Gives up the oldest chunk if all are in use; returns its memory, unless a snapshot shares it.
    fn make_room(&mut self, given_up: &mut dyn FnMut(&[u8])) -> Vec<u8> {
        if self.full.len() + 1 < self.chunks_max {
            return Vec::new();
        }
        let Some(oldest) = self.full.pop_front() else { return Vec::new() };
        oldest.records().for_each(given_up);
        self.complete_from_ns = self.complete_from_ns.max(oldest.newest_ns + 1);
        Arc::try_unwrap(oldest).map_or_else(|_| Vec::new(), |chunk| chunk.bytes)
    }

    /// The time from which on every record is there, ns.
    pub fn complete_from_ns(&self) -> u64 {
        self.complete_from_ns
    }

    /// Shares what is there. The open chunk is closed, so a snapshot costs the ring at most the rest of one chunk.
    pub fn snapshot(&mut self, given_up: &mut dyn FnMut(&[u8])) -> Snapshot {
        if !self.open.bytes.is_empty() {
            let memory = self.make_room(given_up);
            let full = std::mem::replace(&mut self.open, Chunk::new(memory));
            self.full.push_back(Arc::new(full));
        }
        self.full.iter().cloned().collect()
    }

    /// Memory in use for records, in bytes.
    pub fn held_bytes(&self) -> usize {
        (self.full.len() + 1) * CHUNK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, the same each time.
    struct Seeded(u64);

    impl Seeded {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % n
        }
    }

    #[test]
    fn memory_is_bounded_and_each_record_is_in_one_place() {
        for seed in 0..6 {
            let mut random = Seeded(seed);
            let bytes = random.below(3 << 20) as usize;
            let bound = bytes.max(2 * CHUNK_BYTES);
            let mut ring = RecordRing::new(bytes, 0);
            let (mut pushed, mut given_up): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            let number = |record: &[u8]| u64::from_ne_bytes(*record.first_chunk().unwrap());
            for n in 0..3000u64 {
                let longest = [64, 4096, (CHUNK_BYTES - 4) as u64][random.below(3) as usize];
                let mut record = n.to_ne_bytes().to_vec();
                record.resize(8 + random.below(longest - 8) as usize, 7);
                // Out of order, as records of several CPUs are.
                let time_ns = n * 10 + random.below(50);
                assert!(ring.push(time_ns, &record, &mut |record| given_up.push(number(record))));
                pushed.push(n);
                assert!(ring.held_bytes() <= bound, "{} > {bound}", ring.held_bytes());
                if random.below(500) == 0 {
                    let held: Vec<u64> = ring
                        .snapshot(&mut |record| given_up.push(number(record)))
                        .iter()
                        .flat_map(|chunk| chunk.records().map(number).collect::<Vec<_>>())
                        .collect();
                    let all: Vec<u64> = given_up.iter().chain(&held).copied().collect();
                    assert_eq!(all, pushed, "each is given up or held, in order");
                    assert!(given_up.iter().all(|n| n * 10 < ring.complete_from_ns()), "what is given up is older");
                }
            }
            assert!(given_up.len() > 1000, "nothing was given up: this proves nothing");
        }
    }

    #[test]
    fn snapshot_outlives_what_the_ring_gives_up() {
        let mut ring = RecordRing::new(0, 0);
        ring.push(1, &[1; 100], &mut |_| ());
        let snapshot = ring.snapshot(&mut |_| ());
        for n in 0..10_000 {
            ring.push(n, &[2; 100], &mut |_| ());
        }
        assert_eq!(snapshot[0].records().collect::<Vec<_>>(), [[1; 100]]);
        assert!(ring.complete_from_ns() > 1);
    }

    #[test]
    fn record_longer_than_a_chunk_is_refused() {
        let mut ring = RecordRing::new(0, 0);
        assert!(!ring.push(1, &vec![0; CHUNK_BYTES], &mut |_| ()));
        assert!(ring.push(1, &vec![0; CHUNK_BYTES - 4], &mut |_| ()));
    }
}
