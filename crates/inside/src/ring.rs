//! Reads what the object recorded, as untrusted input: the program may write anything into its own rings.
//!
//! What is read is bounded and checked: only the three kinds of records that the object makes (the end of an execution has its counters, which become a record of their own), of possible sizes, of a process
//! that the caller vouches for, at times that do not run backwards and are not in the future. So a program can falsify its own
//! statements, and nothing else.

use crate::layout::{COUNTED_END_WORDS, COUNTS, LONGEST_TEXT, OP_END_WORDS, RING_WORDS};
use model::event::{Header, OpBegin, OpCounts, OpEnd, Statement, header_flags};
use model::{Event, Record};

/// Bit positions of the fields in a record's first word; its lowest bits are its number of words.
pub const KIND_SHIFT: u32 = 10;
pub const FLAGS_SHIFT: u32 = 16;
pub const CPU_SHIFT: u32 = 20;
pub const TID_SHIFT: u32 = 32;

/// `kind` of an `op_end`: a displaced execution.
pub const KIND_DISPLACED: u32 = 3;
/// A function that was left other than by returning.
const KIND_LEFT: u32 = 2;
const KIND_FUNCTION: u32 = 1;

/// One thread's ring, as far as it was read.
#[derive(Debug, Clone, Copy, Default)]
pub struct RingReader {
    /// Words read.
    pub tail: u64,
    /// Number of invalid words.
    pub unusable: u64,
    last_ns: u64,
}

/// The interval in which records can have been made.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// When the recording began.
    pub from_ns: u64,
    pub now_ns: u64,
    /// Number of functions that `--op` names.
    pub functions: u64,
}

impl Window {
    /// Whether such an execution is possible: a function must be in the list.
    fn is_possible(self, kind: u32, key: u64) -> bool {
        kind == 0 || kind == KIND_DISPLACED || (kind == KIND_FUNCTION || kind == KIND_LEFT) && key < self.functions
    }
}

impl RingReader {
    /// Returns how many words to read, from `tail` on, if the ring contains words up to `head`. `None` if that is impossible;
    /// then all of them are skipped.
    pub fn words_to_read(&mut self, head: u64) -> Option<u64> {
        let count = head.wrapping_sub(self.tail);
        if count > RING_WORDS {
            self.unusable += 1;
            self.tail = head;
            return None;
        }
        assert!(count <= RING_WORDS);
        Some(count)
    }

    /// Passes on the records in `words`, which are in the ring from `tail` on, and advances past them. `tgid` is the process that owns
    /// the ring; `belongs`: whether a thread belongs to it.
    pub fn read(
        &mut self,
        words: &[u64],
        tgid: u32,
        window: Window,
        mut belongs: impl FnMut(u32) -> bool,
        sink: &mut dyn FnMut(Event),
    ) {
        let mut rest = words;
        while let Some(first) = rest.first() {
            let length = (first & ((1 << KIND_SHIFT) - 1)) as usize;
            let kind = (first >> KIND_SHIFT & 0x3f) as u8;
            // Nothing after it can be located.
            if length == 0 || length > rest.len() {
                self.unusable += 1;
                break;
            }
            let (record, after) = rest.split_at(length);
            rest = after;
            if kind == 0 {
                continue;
            }
            let counted = kind == OpEnd::INFO.kind && record.len() == COUNTED_END_WORDS;
            let (record, counts) = record.split_at(if counted { OP_END_WORDS } else { record.len() });
            match self.event(record, kind, tgid, window).filter(|event| belongs(event.header.tid)) {
                Some(event) => {
                    counts_event(&event, counts).map(&mut *sink);
                    sink(event);
                }
                None => self.unusable += 1,
            }
        }
        assert!(words.len() as u64 <= RING_WORDS);
        self.tail = self.tail.wrapping_add(words.len() as u64);
    }

    fn event(&mut self, record: &[u64], kind: u8, tgid: u32, window: Window) -> Option<Event> {
        let (first, time, body) = (record[0], *record.get(1)?, record.get(2..)?);
        let earliest = self.last_ns.max(window.from_ns).min(window.now_ns);
        let time_ns = time.clamp(earliest, window.now_ns);
        let started = |ns: u64| ns.clamp(window.from_ns.min(time_ns), time_ns);
        let record = match (kind, body) {
            (k, &[key, about]) if k == OpBegin::INFO.kind => {
                let kind = about as u32;
                if kind > KIND_FUNCTION || !window.is_possible(kind, key) {
                    return None;
                }
                OpBegin { key, kind, depth: ((about >> 32) as u32).clamp(1, 64) }.into()
            }
            (k, &[key, start_ns, rows, steps, inside_ns, about]) if k == OpEnd::INFO.kind => {
                let start_ns = started(start_ns);
                let kind = (about >> 32) as u32;
                if !window.is_possible(kind, key) {
                    return None;
                }
                let inside_ns = inside_ns.min(time_ns - start_ns);
                OpEnd { key, start_ns, rows: rows.min(steps), steps, inside_ns, result: about as u32 as i32, kind }
                    .into()
            }
            (k, &[stmt, start_ns, about, ref text @ ..]) if k == Statement::INFO.kind => {
                let length = about >> 48;
                if length > LONGEST_TEXT || text.len() as u64 != length.div_ceil(8) {
                    return None;
                }
                let bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).take(length as usize).collect();
                let start_ns = if start_ns == 0 { 0 } else { started(start_ns) };
                let text = String::from_utf8_lossy(&bytes).into_owned();
                Statement {
                    stmt,
                    start_ns,
                    result: about as u32 as i32,
                    flags: (about >> 32 & 1) as u16,
                    text,
                    ..Statement::default()
                }
                .into()
            }
            _ => return None,
        };
        self.last_ns = time_ns;
        let header = Header {
            time_ns,
            cpu: (first >> CPU_SHIFT & 0xfff) as u16,
            kind,
            flags: (first >> FLAGS_SHIFT) as u8 & header_flags::BETWEEN_ROWS,
            tgid,
            tid: (first >> TID_SHIFT) as u32,
            ..Header::default()
        };
        Some(Event { header, record })
    }
}

/// Returns the counters of an execution whose end has these further words.
fn counts_event(end: &Event, words: &[u64]) -> Option<Event> {
    let (Record::OpEnd(op), [known, counts @ ..]) = (&end.record, words) else { return None };
    let known = *known as u32 & ((1 << COUNTS) - 1);
    let mut all = [0; COUNTS];
    let halves = counts.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
    // A counter that is not known has no value.
    (0..)
        .zip(all.iter_mut().zip(halves))
        .for_each(|(n, (to, count))| *to = if known >> n & 1 == 1 { count } else { 0 });
    let [fullscan_steps, sorts, autoindex_rows, vm_steps, reprepares, runs, rest @ ..] = all;
    let [cache_hits, cache_misses, cache_writes, cache_spills] = rest;
    let record = OpCounts {
        key: op.key,
        start_ns: op.start_ns,
        known,
        fullscan_steps,
        sorts,
        autoindex_rows,
        vm_steps,
        reprepares,
        runs,
        cache_hits,
        cache_misses,
        cache_writes,
        cache_spills,
        pad: 0,
    };
    Some(Event { header: Header { kind: OpCounts::INFO.kind, ..end.header }, record: record.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Window = Window { from_ns: 1_000, now_ns: 9_000, functions: 2 };

    fn first_word(words: usize, kind: u8, cpu: u64, tid: u64) -> u64 {
        words as u64 | u64::from(kind) << KIND_SHIFT | cpu << CPU_SHIFT | tid << TID_SHIFT
    }

    fn read(reader: &mut RingReader, words: &[u64]) -> Vec<Event> {
        let mut all = Vec::new();
        reader.read(words, 7, WINDOW, |tid| tid == 8, &mut |event| all.push(event));
        all
    }

    fn begin(time_ns: u64) -> [u64; 4] {
        [first_word(4, OpBegin::INFO.kind, 3, 8), time_ns, 0x50, 1 << 32]
    }

    #[test]
    fn records_become_same_events_as_uprobes() {
        let mut reader = RingReader::default();
        let statement = [
            first_word(6, Statement::INFO.kind, 0, 8),
            2_000,
            0x50,
            1_900,
            6 << 48,
            u64::from_le_bytes(*b"SELECT\0\0"),
        ];
        let end = [first_word(8, OpEnd::INFO.kind, 3, 8), 4_000, 0x50, 3_000, 2, 3, 700, 101];
        let pad = [first_word(3, 0, 0, 0), 5, 5];
        let words = [&statement[..], &begin(3_000), &pad, &end].concat();
        let text: Vec<String> = read(&mut reader, &words).iter().map(Event::to_text).collect();
        assert_eq!(
            text,
            [
                "@2000 cpu0 7/8 statement stmt=80 start_ns=1900 text=\"SELECT\"",
                "@3000 cpu3 7/8 op_begin key=80 depth=1",
                "@4000 cpu3 7/8 op_end key=80 start_ns=3000 rows=2 steps=3 inside_ns=700 result=101",
            ]
        );
        assert_eq!((reader.unusable, reader.tail), (0, words.len() as u64));
    }

    #[test]
    fn counters_precede_end_of_their_execution() {
        let mut reader = RingReader::default();
        // The sixth is not known.
        let counts = [0x3df, 5 | 6 << 32, 7 | 8 << 32, 9 | 10 << 32, 11 | 12 << 32, 13 | 14 << 32];
        let words =
            [&[first_word(14, OpEnd::INFO.kind, 3, 8), 4_000, 0x50, 3_000, 2, 3, 700, 101][..], &counts].concat();
        let text: Vec<String> = read(&mut reader, &words).iter().map(Event::to_text).collect();
        assert_eq!(
            text,
            [
                "@4000 cpu3 7/8 op_counts key=80 start_ns=3000 known=991 fullscan_steps=5 sorts=6 autoindex_rows=7 vm_steps=8 \
                 reprepares=9 cache_hits=11 cache_misses=12 cache_writes=13 cache_spills=14",
                "@4000 cpu3 7/8 op_end key=80 start_ns=3000 rows=2 steps=3 inside_ns=700 result=101",
            ]
        );
        assert_eq!((reader.unusable, reader.tail), (0, words.len() as u64));
    }

    #[test]
    fn times_are_monotonic_and_not_ahead_of_clock() {
        let mut reader = RingReader::default();
        let words = [begin(u64::MAX), begin(0), begin(5_000)].concat();
        let times: Vec<u64> = read(&mut reader, &words).iter().map(|event| event.header.time_ns).collect();
        assert_eq!(times, [9_000, 9_000, 9_000]);
    }

    #[test]
    fn thread_of_other_process_is_rejected() {
        let mut reader = RingReader::default();
        let mut words = begin(2_000);
        words[0] = first_word(4, OpBegin::INFO.kind, 0, 9);
        assert!(read(&mut reader, &words).is_empty());
        assert_eq!(reader.unusable, 1);
    }

    #[test]
    fn invalid_ring_head_is_skipped() {
        let mut reader = RingReader { tail: 100, ..RingReader::default() };
        assert_eq!(reader.words_to_read(150), Some(50));
        assert_eq!(reader.words_to_read(100 + RING_WORDS + 1), None);
        assert_eq!((reader.tail, reader.unusable), (101 + RING_WORDS, 1));
        assert_eq!(reader.words_to_read(5), None, "backwards");
    }

    proptest! {
        /// Whatever a ring contains: no panic, bounded, only that process, within the window; and what is passed on can be stored and
        /// read again.
        #[test]
        fn arbitrary_words_give_valid_events_or_none(
            mut words in prop::collection::vec(any::<u64>(), 0..200),
            kinds in prop::collection::vec((0u64..6, 0u64..16), 0..40),
        ) {
            // So that some are almost valid records.
            let mut at = 0;
            for (kind, length) in kinds {
                let Some(word) = words.get_mut(at) else { break };
                *word = length | kind << KIND_SHIFT | 8 << TID_SHIFT;
                at += length.max(1) as usize;
            }
            let mut reader = RingReader::default();
            let (count, mut last) = (words.len(), 0);
            for event in read(&mut reader, &words) {
                prop_assert_eq!((event.header.tgid, event.header.tid), (7, 8));
                prop_assert!((WINDOW.from_ns..=WINDOW.now_ns).contains(&event.header.time_ns));
                prop_assert!(event.header.time_ns >= last);
                last = event.header.time_ns;
                if let Record::OpEnd(end) = &event.record {
                    prop_assert!(end.start_ns <= event.header.time_ns && end.rows <= end.steps);
                    prop_assert!(end.inside_ns <= event.header.time_ns - end.start_ns);
                }
                let mut bytes = Vec::new();
                event.encode(&mut bytes);
                let back = Event::decode(&bytes);
                prop_assert_eq!(back.map(|event| event.record.kind()), Some(event.record.kind()));
            }
            prop_assert_eq!(reader.tail, count as u64);
        }
    }
}
