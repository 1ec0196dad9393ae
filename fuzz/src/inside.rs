//! What a process that is probed inside leaves in its arena: it may write anything there, at any time, the recorder's own words too.

use crate::mutate::Random;
use ::inside::image::{PROGRAM_HEADER_BYTES, Tls, TlsSide, dynamic_section, relocations};
use ::inside::layout::{
    ARENA_BYTES, ARENA_HEADER_BYTES, ARENA_MAGIC, CONTROL_BYTES, CONTROLS_AT, HEAD_AT, RING_WORDS, RINGS, RINGS_AT,
    TGID_AT,
};
use ::inside::question::{ASK_EXECUTES, ASK_LOADED, QUESTION_BYTES, Question};
use ::inside::ring::{KIND_SHIFT, RingReader, TID_SHIFT, Window};
use capture::inside::arenas::Arenas;
use model::event::{OpBegin, OpEnd, Statement};
use model::{Event, Record};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The thread that the kernel side knows.
const KERNEL_TID: u32 = 8;
/// Bytes of an input before the words of a ring: two times four words that the program writes where it likes.
const OVERLAY_BYTES: usize = 2 * 4 * 10;

fn first_word(words: usize, kind: u8) -> u64 {
    words as u64 | u64::from(kind) << KIND_SHIFT | u64::from(KERNEL_TID) << TID_SHIFT
}

/// A statement, its begin, padding and its end.
fn ring_words() -> Vec<u64> {
    let text = [u64::from_le_bytes(*b"SELECT 1"), u64::from_le_bytes(*b" FROM t\0")];
    let statement = [first_word(7, Statement::INFO.kind), 2_000, 0x50, 1_900, 15 << 48, text[0], text[1]];
    let begin = [first_word(4, OpBegin::INFO.kind), 3_000, 0x50, 1 << 32];
    let end = [first_word(8, OpEnd::INFO.kind), 4_000, 0x50, 3_000, 2, 3, 700, 101];
    [&statement[..], &begin, &[3, 5, 5], &end].concat()
}

fn words_to_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect()
}

/// Words of a ring, behind where its reader stands and what the program says that it wrote.
pub fn ring_seeds() -> Vec<Vec<u8>> {
    [0, RING_WORDS - 5].map(|tail| words_to_bytes(&[&[tail, tail + 22], &ring_words()[..]].concat())).to_vec()
}

/// What is handed on is of the ring's process, within the window, in order, and can be stored; all is passed over.
pub fn check_ring(input: &[u8]) {
    let words = words_of(input);
    let Some((&[tail, head], words)) = words.split_first_chunk() else { return };
    let mut reader = RingReader::default();
    reader.tail = tail;
    match reader.words_to_read(head) {
        Some(count) => assert!(count <= RING_WORDS),
        None => assert_eq!((reader.tail, reader.unusable), (head, 1)),
    }
    let (from, window) = (reader.tail, Window { from_ns: 1_000, now_ns: 9_000, functions: 2 });
    let mut last_ns = 0;
    // In two parts, as the program goes on.
    for part in words.chunks(words.len().div_ceil(2).max(1)) {
        reader.read(part, 7, window, |tid| tid == KERNEL_TID, &mut |event| {
            assert_eq!((event.header.tgid, event.header.tid), (7, KERNEL_TID));
            assert!((window.from_ns..=window.now_ns).contains(&event.header.time_ns));
            assert!(event.header.time_ns >= last_ns, "in order");
            last_ns = event.header.time_ns;
            assert_storable(&event);
        });
    }
    assert_eq!(reader.tail, from.wrapping_add(words.len() as u64));
}

fn assert_storable(event: &Event) {
    if let Record::OpEnd(end) = &event.record {
        assert!(end.start_ns <= event.header.time_ns && end.rows <= end.steps);
        assert!(end.inside_ns <= event.header.time_ns - end.start_ns);
    }
    let encoded = |event: &Event| {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        bytes
    };
    let once = encoded(event);
    assert_eq!(Event::decode(&once).map(|event| encoded(&event)), Some(once));
}

/// Questions about a program and a library.
pub fn question_seeds() -> Vec<Vec<u8>> {
    let question = |what: u64, path: &[u8]| {
        let mut all = [&words_to_bytes(&[7, 9, what << 32 | 33])[..], path].concat();
        all.resize(QUESTION_BYTES, 0);
        all
    };
    vec![question(ASK_EXECUTES.into(), b"./program"), question(ASK_LOADED.into(), b"/tmp/libsqlite3.so")]
}

/// A question's path is a path, and nothing behind it.
pub fn check_question(input: &[u8]) {
    let Some(question) = Question::parse(input) else { return };
    let path = question.path.as_os_str().as_encoded_bytes();
    assert!(input.len() == QUESTION_BYTES && !path.is_empty() && !path.contains(&0));
}

/// Bytes of a statically linked program: its two headers, its dynamic section, and the two tables that this names.
pub fn program_seeds() -> Vec<Vec<u8>> {
    let header = |kind: u64, address: u64, filled: u64, size: u64, align: u64| {
        words_to_bytes(&[kind | 4 << 32, 0, address, address, filled, size, align])
    };
    let headers = [header(7, 0x5010, 0x10, 0x28, 0x10), header(2, 112, 160, 160, 8)].concat();
    let dynamic = words_to_bytes(&[7, 272, 8, 48, 36, 320, 35, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let tables = words_to_bytes(&[0x5018, 8, 9, 0x6000, 8, 1, 0x5000, 0b1101]);
    vec![[headers, dynamic, tables].concat()]
}

/// The object's part of the thread-local memory and the program's do not overlap, and what is relocated lies in the program's.
pub fn check_program(input: &[u8]) {
    let Some((headers, _)) = input.split_at_checked(2 * PROGRAM_HEADER_BYTES) else { return };
    let read = |at: u64, size: u64| {
        let at = usize::try_from(at).ok()?;
        Some(input.get(at..at.checked_add(usize::try_from(size).ok()?)?)?.to_vec())
    };
    let own = (0x6c0, 8);
    let below = Tls::extend(headers, own, TlsSide::Below, true);
    let above = Tls::extend(headers, own, TlsSide::Above, true);
    if let Ok(tls) = &below {
        let (_, count, to) = tls.own;
        assert!(to >= own.0 || count == 0 && to == 0);
        assert!(to + count <= tls.size && tls.offset() == -(tls.size.cast_signed()));
    }
    if let Ok(tls) = &above {
        let (_, count, to) = tls.own;
        assert!(to == 0 && count <= tls.size - own.0 && tls.offset() >= 16 + count.cast_signed());
    }
    for tls in [below, above].into_iter().flatten() {
        assert_relocated(headers, &tls, read);
    }
}

/// What is relocated lies in the program's part.
fn assert_relocated(headers: &[u8], tls: &Tls, read: impl Fn(u64, u64) -> Option<Vec<u8>> + Copy) {
    let (from, count, _) = tls.own;
    assert_eq!(tls.header(0x9000).len(), PROGRAM_HEADER_BYTES);
    let section = dynamic_section(headers).and_then(|(at, size)| read(at, size)).unwrap_or_default();
    for (at, _) in relocations(&section, from..from + count, read).unwrap_or_default() {
        assert!(at + 8 <= count);
    }
}

/// Words that the program writes over its arena's header, and the words of a ring.
pub fn arena_seeds() -> Vec<Vec<u8>> {
    // Where a ring's head stands, so that mutations make other heads.
    let overlay = |ring: u16, head: u64| {
        let at = (CONTROLS_AT + HEAD_AT) as u16 + ring * CONTROL_BYTES as u16;
        [&at.to_le_bytes()[..], &head.to_le_bytes()].concat()
    };
    let both = |heads: [u64; 8]| heads.iter().enumerate().flat_map(|(i, head)| overlay(i as u16 % 4, *head)).collect();
    let seed = |heads| [both(heads), words_to_bytes(&ring_words())].concat();
    vec![seed([22, 0, 0, 0, 22, 0, 0, 0]), seed([7, 0, 3, 0, 22, RING_WORDS, 22, RING_WORDS + 1])]
}

/// What is handed on is of the arena's process, or says what was lost, in order, and can be stored.
pub fn check_arena(input: &[u8]) {
    let Some((overlays, ring)) = input.split_at_checked(OVERLAY_BYTES) else { return };
    let own = std::process::id();
    let made = || -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let file = File::create_new(directory.path().join(format!("{own}.1")))?;
        file.set_len(ARENA_BYTES)?;
        file.write_all_at(&ARENA_MAGIC.to_le_bytes(), 0)?;
        file.write_all_at(&own.to_le_bytes(), TGID_AT as u64)?;
        // In some ring or other, from its begin.
        let nth = Random::new(ring.len() as u64).below(4) as u64;
        file.write_all_at(&ring[..ring.len().min(8 * RING_WORDS as usize)], RINGS_AT + nth * RING_WORDS * 8)?;
        let from_ns = capture::boot_ns();
        let mut arenas = Arenas::new(directory.path().into(), from_ns, 2);
        arenas.open_new();
        for half in overlays.chunks(OVERLAY_BYTES / 2) {
            for overlay in half.chunks_exact(10) {
                let at = usize::from(u16::from_le_bytes([overlay[0], overlay[1]])) % (ARENA_HEADER_BYTES - 8);
                file.write_all_at(&overlay[2..], at as u64)?;
            }
            assert!((0.0..=1.0).contains(&arenas.fill_ratio()));
            read_arenas(&mut arenas, from_ns, ring.len());
        }
        // It may cut its own short.
        file.set_len(ring.len() as u64 * 64)?;
        read_arenas(&mut arenas, from_ns, ring.len());
        Ok(())
    };
    made().unwrap_or_else(|e| panic!("the arena cannot be made: {e}"));
}

fn read_arenas(arenas: &mut Arenas, from_ns: u64, bytes: usize) {
    let events = arenas.collect(&|tid| Some(if tid == KERNEL_TID { std::process::id() } else { tid }));
    // Rings whose heads lie may be read again, but a ring's words only once a turn.
    assert!(events.len() <= RINGS * (bytes / 8 + 1) + 2);
    let now_ns = capture::boot_ns();
    for pair in events.windows(2) {
        assert!(pair[0].header.time_ns <= pair[1].header.time_ns, "in order");
    }
    for event in &events {
        assert!((from_ns..=now_ns).contains(&event.header.time_ns));
        if !matches!(event.record, Record::Loss(_)) {
            assert_eq!((event.header.tgid, event.header.tid), (std::process::id(), KERNEL_TID));
        }
        assert_storable(event);
    }
}
