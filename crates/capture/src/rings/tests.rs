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
        unsafe { self.rings.maps.memory.start.add(offset).cast::<AtomicU64>().as_ref() }.store(word, Ordering::Release);
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
    for (head, tail) in [(0, 8), (ring + 8, 0), (u64::MAX - 7, 0), (64, 61), (5 * ring, 7 * ring), (0, u64::MAX - 7)] {
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
