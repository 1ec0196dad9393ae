//! Damages the log in many ways: every undamaged chunk is read, nothing is invented, and missing events are reported.

use archive::{LogReader, LogWriter};
use model::event::{ANY_CPU, Header, OpBegin, RqDone, Statement};
use model::{Event, LossSource, Record};
use proptest::prelude::*;
use std::cell::Cell;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::Path;

fn event(n: u64) -> Event {
    let record: Record = match n % 3 {
        0 => Statement { stmt: n, text: format!("SELECT {n}"), ..Statement::default() }.into(),
        1 => OpBegin { key: n, depth: 1, ..OpBegin::default() }.into(),
        _ => RqDone { rq: n, sector: n * 8, bytes: 4096, ..RqDone::default() }.into(),
    };
    let kind = record.kind();
    let mut event =
        Event { header: Header { time_ns: 1_000 + n * 10, tgid: 7, tid: 8, kind, ..Header::default() }, record };
    if let Record::Statement(x) = &mut event.record {
        x.len = x.text.len() as u16;
    }
    event
}

/// A log of `chunks` chunks of `per` events, and where each chunk begins.
fn make_log(chunks: u64, per: u64) -> (Vec<u8>, Vec<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::create(dir.path(), None).unwrap();
    let mut begins = Vec::new();
    for chunk in 0..chunks {
        begins.push(writer.bytes() as usize);
        for n in chunk * per..(chunk + 1) * per {
            let mut bytes = Vec::new();
            event(n).encode(&mut bytes);
            writer.append(&bytes).unwrap();
        }
        writer.sync_chunk().unwrap();
    }
    begins.push(writer.bytes() as usize);
    assert_eq!(writer.finish().unwrap().events, chunks * per);
    (std::fs::read(dir.path().join("events.log")).unwrap(), begins)
}

fn read_log(bytes: &[u8]) -> (Vec<Event>, Vec<Event>, archive::Damage) {
    let mut reader = LogReader::new(Cursor::new(bytes), Path::new("x/events.log"), "Fathom 9").unwrap();
    let all: Vec<Event> = reader.by_ref().collect();
    let (losses, events) = all.into_iter().partition(|e| matches!(e.record, Record::Loss(_)));
    (events, losses, reader.damage().clone())
}

fn loss(event: &Event) -> (u64, u64, u64, bool) {
    let Record::Loss(x) = &event.record else { panic!("{event:?} is no loss") };
    assert_eq!((event.header.cpu, x.source), (ANY_CPU, LossSource::Damage.number()));
    (x.start_ns, event.header.time_ns, x.events, x.bound == 1)
}

/// Whether the log was full.
fn is_full(error: &archive::Error) -> bool {
    matches!(error, archive::Error::Full { .. })
}

#[test]
fn a_log_round_trips() {
    let (bytes, _) = make_log(3, 5);
    let (events, losses, damage) = read_log(&bytes);
    assert_eq!(events, (0..15).map(event).collect::<Vec<_>>());
    assert!(losses.is_empty() && damage.is_none());
}

#[test]
fn an_empty_log_has_no_events_and_no_damage() {
    let (events, losses, damage) = read_log(&[]);
    assert!(events.is_empty() && losses.is_empty() && damage.is_none());
}

#[test]
fn a_large_log_is_split_into_chunks_and_round_trips() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::create(dir.path(), None).unwrap();
    let mut bytes = Vec::new();
    for n in 0..40_000 {
        bytes.clear();
        event(n).encode(&mut bytes);
        writer.append(&bytes).unwrap();
    }
    assert!(writer.bytes() > 0, "more than a MiB was buffered");
    assert_eq!(writer.finish().unwrap().events, 40_000);
    let mut reader = LogReader::open(dir.path()).unwrap();
    assert!((0..40_000).all(|n| reader.next_event() == Some(event(n))));
    assert_eq!(reader.next_event(), None);
    assert!(reader.damage().is_none());
}

#[test]
fn a_truncated_log_gives_whole_chunks_and_reports_the_cut() {
    let (bytes, begins) = make_log(3, 4);
    for cut in 0..=bytes.len() {
        let (events, losses, damage) = read_log(&bytes[..cut]);
        let whole = begins.iter().filter(|&&b| b > 0 && b <= cut).count() as u64;
        assert_eq!(events, (0..whole * 4).map(event).collect::<Vec<_>>(), "cut at {cut}");
        let torn = !begins.contains(&cut);
        assert_eq!(losses.len(), usize::from(torn), "cut at {cut}");
        assert_eq!(damage.is_none(), !torn);
        if torn {
            let begin = *begins.iter().rfind(|&&b| b < cut).unwrap();
            let (_, _, missing, at_least) = loss(&losses[0]);
            // Once the torn chunk's header is complete, it gives the number of lost events.
            assert_eq!((missing, at_least), (if cut - begin >= 64 { 4 } else { 0 }, true), "cut at {cut}");
        }
    }
}

#[test]
fn a_damaged_chunk_is_a_loss_with_the_exact_event_count() {
    let (mut bytes, begins) = make_log(3, 4);
    bytes[begins[1] + 3] ^= 1; // In the magic: nothing of the header can be believed.
    let (events, losses, damage) = read_log(&bytes);
    assert_eq!(events, (0..4).chain(8..12).map(event).collect::<Vec<_>>());
    assert_eq!(losses.iter().map(loss).collect::<Vec<_>>(), [(1_030, 1_080, 4, false)]);
    assert_eq!((damage.places, damage.bytes, damage.events), (1, (begins[2] - begins[1]) as u64, 4));
}

#[test]
fn the_loss_of_the_first_chunk_begins_with_the_log() {
    let (mut bytes, _) = make_log(2, 4);
    bytes[0] = 0;
    let (events, losses, _) = read_log(&bytes);
    assert_eq!(events, (4..8).map(event).collect::<Vec<_>>());
    assert_eq!(losses.iter().map(loss).collect::<Vec<_>>(), [(1_000, 1_040, 4, false)]);
}

#[test]
fn a_removed_chunk_is_a_loss() {
    let (mut bytes, begins) = make_log(3, 4);
    bytes.drain(begins[1]..begins[2]);
    let (events, losses, _) = read_log(&bytes);
    assert_eq!(events.len(), 8);
    assert_eq!(losses.iter().map(loss).collect::<Vec<_>>(), [(1_030, 1_080, 4, false)]);
}

#[test]
fn a_duplicate_chunk_counts_once() {
    let (mut bytes, begins) = make_log(3, 4);
    let again = bytes[begins[1]..begins[2]].to_vec();
    bytes.splice(begins[2]..begins[2], again);
    let (events, losses, _) = read_log(&bytes);
    assert_eq!(events, (0..12).map(event).collect::<Vec<_>>());
    assert_eq!(losses.iter().map(|l| loss(l).2).collect::<Vec<_>>(), [0]);
}

/// A traced program may embed a forged log in its SQL.
#[test]
fn a_log_embedded_in_a_damaged_chunk_is_not_read() {
    let planted = make_log(1, 4).0;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::create(dir.path(), None).unwrap();
    for n in [100, 0, 104] {
        let mut bytes = Vec::new();
        event(n).encode(&mut bytes);
        if n == 0 {
            bytes.extend_from_slice(&planted);
            // Incompressible bytes, so that the chunk is stored verbatim, as a crafted text could be.
            let mut x = 1_u32;
            bytes.extend((0..60_000).map(|_| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (x >> 24) as u8
            }));
        }
        writer.append(&bytes).unwrap();
        writer.sync_chunk().unwrap();
    }
    writer.finish().unwrap();
    let mut bytes = std::fs::read(dir.path().join("events.log")).unwrap();
    let place = bytes.windows(planted.len()).position(|w| w == planted).expect("the chunk is stored as it is");
    bytes[place - 8] ^= 1; // In the payload, before the planted chunk.
    let (events, losses, _) = read_log(&bytes);
    assert_eq!(events, [event(100), event(104)]);
    assert_eq!(losses.len(), 1);
}

/// Counts the bytes that are read.
struct CountingReader<'a>(Cursor<Vec<u8>>, &'a Cell<u64>);

impl Read for CountingReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.read(out)?;
        self.1.set(self.1.get() + n as u64);
        Ok(n)
    }
}

impl Seek for CountingReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

/// How often each byte of a log without valid chunks is read on average.
fn times_read(bytes: Vec<u8>) -> u64 {
    let (len, count) = (bytes.len() as u64, Cell::new(0));
    let mut reader = LogReader::new(CountingReader(Cursor::new(bytes), &count), Path::new("x"), "").unwrap();
    assert_eq!(reader.by_ref().filter(|e| !matches!(e.record, Record::Loss(_))).count(), 0);
    assert_eq!(reader.damage().bytes, len);
    count.get() / len
}

/// A log crafted to be slow: each byte is still read only a few times.
#[test]
fn false_chunk_headers_do_not_cause_quadratic_reading() {
    const LOG_BYTES: usize = 1 << 20;
    let (genuine, _) = make_log(1, 1);
    assert!(times_read(genuine[..8].repeat(LOG_BYTES / 8)) <= 10, "nothing but magics");

    // Valid headers, each claiming a payload up to the end of the file.
    let mut heads = Vec::new();
    while heads.len() < LOG_BYTES {
        let mut head = genuine[..64].to_vec();
        head[10..12].fill(0);
        let payload = ((LOG_BYTES - heads.len() - 64) as u32).to_le_bytes();
        head[12..16].copy_from_slice(&payload);
        head[16..20].copy_from_slice(&payload);
        head[20..24].fill(0);
        let sum = crc32fast::hash(&head[..60]);
        head[60..].copy_from_slice(&sum.to_le_bytes());
        heads.extend(head);
    }
    assert!(times_read(heads) <= 10, "nothing but heads");
}

#[test]
fn records_of_unknown_kind_are_counted_and_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::create(dir.path(), None).unwrap();
    for n in 0..3 {
        let mut bytes = Vec::new();
        event(n).encode(&mut bytes);
        if n == 1 {
            bytes[14] = 250;
        }
        writer.append(&bytes).unwrap();
    }
    writer.finish().unwrap();
    let (events, losses, damage) = read_log(&std::fs::read(dir.path().join("events.log")).unwrap());
    assert_eq!(events, [event(0), event(2)]);
    assert_eq!((losses.len(), damage.unknown_records), (1, 1));
}

#[test]
fn a_newer_log_is_refused_but_not_damaged() {
    let (mut bytes, _) = make_log(1, 1);
    bytes[8] = 77;
    let crc = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    let error = LogReader::new(Cursor::new(bytes), Path::new("x/events.log"), "Fathom 9.1").unwrap_err();
    assert!(error.to_string().contains("Fathom 9.1") && error.to_string().contains("77"), "{error}");
}

#[test]
fn the_size_limit_keeps_written_events() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::create(dir.path(), Some(300)).unwrap();
    let mut stored = 0;
    let error = loop {
        let mut bytes = Vec::new();
        event(stored).encode(&mut bytes);
        writer.append(&bytes).unwrap();
        match writer.sync_chunk() {
            Ok(()) => stored += 1,
            Err(e) => break e,
        }
    };
    assert!(is_full(&error) && error.to_string().contains("300 bytes"), "{error}");
    assert!(writer.append(&[0; 24]).is_err_and(|e| is_full(&e)));
    let summary = writer.finish().unwrap();
    assert_eq!((summary.events, summary.lost_events), (stored, 2));
    let bytes = std::fs::read(dir.path().join("events.log")).unwrap();
    assert!(bytes.len() <= 300);
    assert_eq!(read_log(&bytes).0.len() as u64, stored);
}

/// If a chunk does not fit, those of its events that fit are kept.
#[test]
fn the_size_limit_is_used_up_to_the_last_chunk() {
    let dir = tempfile::tempdir().unwrap();
    const LOG_BYTES_MAX: u64 = 64 << 10;
    let mut writer = LogWriter::create(dir.path(), Some(LOG_BYTES_MAX)).unwrap();
    let noise = |n: u64| {
        let mut x = n + 1;
        let text = std::iter::repeat_with(|| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'0' + (x >> 33) as u8 % 75)
        });
        let record = Statement { text: text.take(200).collect(), len: 200, ..Statement::default() };
        Event { record: record.into(), ..event(3 * n) }
    };
    let given = 600;
    for n in 0..given {
        let mut bytes = Vec::new();
        noise(n).encode(&mut bytes);
        let taken = writer.append(&bytes);
        assert!(taken.is_ok() || taken.is_err_and(|e| is_full(&e)));
    }
    let summary = writer.finish().unwrap();
    assert!(summary.lost_events > 0 && summary.events + summary.lost_events == given, "{summary:?}");
    // The last attempt is a part of 2 to 4 KiB.
    assert!((LOG_BYTES_MAX - 4096 - 256..=LOG_BYTES_MAX).contains(&summary.bytes), "{summary:?}");
    let (events, losses, damage) = read_log(&std::fs::read(dir.path().join("events.log")).unwrap());
    assert_eq!(events, (0..summary.events).map(noise).collect::<Vec<_>>(), "the first that came, whole");
    assert!(losses.is_empty() && damage.is_none());
    assert_eq!(summary.lost_since_ns, Some(noise(summary.events).header.time_ns));
}

#[test]
fn full_and_failing_disks_have_their_own_errors() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", dir.path().join("events.log")).unwrap();
    let mut writer = LogWriter::create(dir.path(), None).unwrap();
    writer.append(&[1; 24]).unwrap();
    let error = writer.sync_chunk().unwrap_err();
    assert!(is_full(&error) && error.to_string().contains("No space left"), "{error}");
    assert!(writer.append(&[1; 24]).is_err_and(|e| is_full(&e)), "it stays full");
    assert!(writer.sync_chunk().is_ok(), "there is nothing to be stored");
}

#[test]
fn an_invalid_record_is_refused_and_the_log_continues() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::create(dir.path(), None).unwrap();
    for size in [0, 23, (128 << 10) + 1] {
        assert!(writer.append(&vec![0; size]).is_err_and(|e| !is_full(&e)));
    }
    let mut bytes = Vec::new();
    event(0).encode(&mut bytes);
    writer.append(&bytes).unwrap();
    assert_eq!(writer.finish().unwrap().events, 1);
}

proptest! {
    #[test]
    fn changed_bytes_lose_only_their_chunks(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..6),
    ) {
        let (mut bytes, begins) = make_log(5, 3);
        let mut good = [true; 5];
        let whole = bytes.clone();
        for (place, change) in changes {
            bytes[place.index(whole.len())] ^= change;
        }
        for (chunk, good) in good.iter_mut().enumerate() {
            *good = bytes[begins[chunk]..begins[chunk + 1]] == whole[begins[chunk]..begins[chunk + 1]];
        }
        let (events, losses, damage) = read_log(&bytes);
        let expected: Vec<Event> = (0..15).filter(|n| good[*n as usize / 3]).map(event).collect();
        prop_assert_eq!(events, expected);
        prop_assert_eq!(losses.is_empty(), good.iter().all(|g| *g));
        let missing = good.iter().filter(|g| !**g).count() as u64 * 3;
        prop_assert!(damage.events <= missing);
        prop_assert!(damage.events == missing || damage.at_least);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(mut reader) = LogReader::new(Cursor::new(bytes), Path::new("x"), "") {
            while reader.next_event().is_some() {}
        }
    }
}
