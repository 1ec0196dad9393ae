//! The protocol of `ring.h` and of its reader, with the steps of both in any order: tasks reserve room, are interrupted between any two
//! stores, and continue while a drain is under way. Each memory access of the kernel side is a step; a seed determines the order.
//!
//! *Uncertainty*: steps happen one after the other, so what a weakly ordered processor could also do is not tried.

use super::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;

/// More CPUs than rings: the last one shares a ring with the first.
const LAYOUT: RingLayout = RingLayout { cpus: 3, rings: 2, chunks: 2, salt: CHECK_UPPER_BITS | 0x234 << 48 };
const TASKS: u64 = 7;
/// As in `ring.h`.
const TAKES: u32 = 8;
const HEAD_WORDS: u64 = 2;
/// A body is stored in so many steps.
const BODY_STEPS: u64 = 3;

/// What a task does next.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// Reads the head.
    Begin {
        tries: u32,
    },
    /// Reads the tail, and compares.
    Compare {
        tries: u32,
        place: u64,
    },
    /// Reserves, if the head is still the same.
    Swap {
        tries: u32,
        place: u64,
    },
    /// Stores the inverted first word.
    Announce {
        place: u64,
    },
    Time {
        place: u64,
    },
    Body {
        place: u64,
        step: u64,
    },
    /// Stores the first word.
    Submit {
        place: u64,
    },
}

#[derive(Debug, Clone, Copy)]
struct Task {
    cpu: u32,
    next: Next,
    /// Of the record that it makes: its time, and the source of its body.
    id: u64,
    words: u64,
}

/// The kernel side, and what it has done.
struct World {
    maps: Maps,
    random: u64,
    tasks: Vec<Task>,
    ids: u64,
    lost: u64,
    /// Reserved records of each ring by place: number, words, and whether they are complete.
    reserved: Vec<BTreeMap<u64, (u64, u64, bool)>>,
    passed: u64,
}

impl World {
    fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn new_record(&mut self, cpu: u32) -> Task {
        self.ids += 1;
        // Most are long, so that a ring wraps often.
        let words = if self.below(4) == 0 { 3 + self.below(8) } else { 500 + self.below(RECORD_WORDS_MAX - 499) };
        Task { cpu, next: Next::Begin { tries: 0 }, id: self.ids, words }
    }

    fn store(&self, ring: u32, place: u64, nth: u64, word: u64) {
        let at = LAYOUT.memory_offset(ring, place) + (nth * WORD_BYTES) as usize;
        // SAFETY: within the mapping, and a multiple of 8.
        unsafe { self.maps.memory.start.add(at).cast::<AtomicU64>().as_ref() }.store(word, Ordering::Release);
    }

    /// One step of a random task.
    fn step(&mut self) {
        let which = self.below(TASKS) as usize;
        let Task { cpu, next, id, words } = self.tasks[which];
        let (ring, size) = (cpu % LAYOUT.rings, words * WORD_BYTES);
        let word = |place: u64| (place / CHUNK) << 48 ^ LAYOUT.salt | words;
        let control = self.maps.control(ring);
        self.tasks[which].next = match next {
            Next::Begin { tries } => Next::Compare { tries, place: control.head.load(Ordering::Relaxed) },
            Next::Compare { place, .. }
                if (place + size).wrapping_sub(control.tail.load(Ordering::Relaxed)) > LAYOUT.ring_bytes() =>
            {
                return self.lose(which);
            }
            Next::Compare { tries, place } => Next::Swap { tries, place },
            Next::Swap { tries, place } => {
                let swapped =
                    control.head.compare_exchange(place, place + size, Ordering::AcqRel, Ordering::Relaxed).is_ok();
                match swapped {
                    true => {
                        assert!(self.reserved[ring as usize].insert(place, (id, words, false)).is_none());
                        Next::Announce { place }
                    }
                    false if tries == TAKES => return self.lose(which),
                    false => Next::Begin { tries: tries + 1 },
                }
            }
            Next::Announce { place } => {
                self.store(ring, place, 0, !word(place));
                Next::Time { place }
            }
            Next::Time { place } => {
                self.store(ring, place, 1, id << 9);
                Next::Body { place, step: 0 }
            }
            Next::Body { place, step } => {
                for nth in (HEAD_WORDS..words).filter(|nth| nth % BODY_STEPS == step) {
                    self.store(ring, place, nth, id ^ nth << 32);
                }
                if step + 1 < BODY_STEPS { Next::Body { place, step: step + 1 } } else { Next::Submit { place } }
            }
            Next::Submit { place } => {
                self.store(ring, place, 0, word(place));
                if let Some(record) = self.reserved[ring as usize].get_mut(&place) {
                    record.2 = true;
                }
                self.tasks[which] = self.new_record(cpu);
                return;
            }
        };
        self.check_invariants();
    }

    fn lose(&mut self, which: usize) {
        self.lost += 1;
        self.tasks[which] = self.new_record(self.tasks[which].cpu);
    }

    fn check_invariants(&self) {
        for ring in 0..LAYOUT.rings {
            let control = self.maps.control(ring);
            let (head, tail) = (control.head.load(Ordering::Relaxed), control.tail.load(Ordering::Relaxed));
            assert!(LAYOUT.used_bytes(head, tail).is_some(), "{ring}: {head} {tail}");
        }
    }

    /// A record that the reader passes on: the oldest of its ring, complete, and as it was written.
    fn accept(&mut self, ring: u32, record: PackedRecord<'_>) {
        let (place, (id, words, complete)) = self.reserved[ring as usize].pop_first().expect("a reserved record");
        assert!(complete, "{id} at {place} of ring {ring}");
        assert_eq!((record.time_ns(0), record.words() as u64), (id, words));
        let body = record.all().iter().zip(0..).skip(HEAD_WORDS as usize);
        assert!(body.into_iter().all(|(word, nth)| *word == id ^ nth << 32), "{id} at {place}");
        self.passed += 1;
    }
}

fn run(seed: u64, rounds: u64) {
    let file = |bytes: u64| -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        file
    };
    let (controls, memory) = (file(4096), file(LAYOUT.memory_bytes()));
    let maps = || Maps {
        shape: LAYOUT,
        controls: TableMapping::new(controls.as_fd(), 4096).unwrap(),
        memory: TableMapping::new(memory.as_fd(), LAYOUT.memory_bytes()).unwrap(),
    };
    let (reader, reserved) = (maps(), vec![BTreeMap::new(); LAYOUT.rings as usize]);
    let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut world = World { maps: maps(), random, tasks: Vec::new(), ids: 0, lost: 0, reserved, passed: 0 };
    for task in 0..TASKS {
        let task = world.new_record((task % u64::from(LAYOUT.cpus)) as u32);
        world.tasks.push(task);
    }
    let mut progress = [RingProgress::default(); LAYOUT.rings as usize];
    for round in 0..rounds {
        // Now and then longer than the rings have room.
        let steps = if round % 8 == 7 { 20_000 } else { world.below(2_000) };
        (0..steps).for_each(|_| world.step());
        let order = if world.below(2) == 0 { Order::Kept } else { Order::GivenUp };
        reader.drain(Duration::from_secs(60), order, 0, &mut progress, &mut |ring, record| {
            // Now and then so many that room which is released too early is written again.
            let steps = if world.below(8) == 0 { world.below(200) } else { world.below(4) };
            (0..steps).for_each(|_| world.step());
            world.accept(ring, record);
        });
        world.check_invariants();
    }
    // All complete what they have begun.
    while world.reserved.iter().flat_map(BTreeMap::values).any(|(.., complete)| !complete) {
        world.step();
    }
    let begun = world
        .tasks
        .iter()
        .filter(|task| matches!(task.next, Next::Begin { .. } | Next::Compare { .. } | Next::Swap { .. }));
    let unreserved = begun.count() as u64;
    reader.drain(Duration::from_secs(60), Order::GivenUp, 0, &mut progress, &mut |ring, record| {
        world.accept(ring, record)
    });
    assert!(world.reserved.iter().all(BTreeMap::is_empty), "seed {seed}");
    assert_eq!(world.passed + world.lost + unreserved, world.ids, "seed {seed}");
    assert!(progress.iter().all(|ring| ring.resynchronised == 0), "seed {seed}");
    for ring in 0..LAYOUT.rings {
        let control = reader.control(ring);
        let (head, tail) = (control.head.load(Ordering::Relaxed), control.tail.load(Ordering::Relaxed));
        assert_eq!(head, tail, "seed {seed}");
        assert!(head > 3 * LAYOUT.ring_bytes(), "seed {seed}: the ring did not wrap: the test shows nothing");
    }
    assert!(world.lost > 0, "seed {seed}: no ring was full: the test shows nothing");
}

#[test]
fn records_survive_any_interleaving_with_a_drain() {
    for seed in 1..=2 {
        run(seed, 32);
    }
}

mod long {
    #[test]
    #[ignore = "long: many seeds"]
    fn records_survive_many_interleavings() {
        for seed in 100..124 {
            super::run(seed, 100);
        }
    }
}
