//! What each reader promises, as functions that panic when it does not keep it.

use archive::{LogReader, LogWriter, Meta, TablesWriter, tables};
use capture::marks::Marks;
use formats::perfetto::{Reader, Tables, export};
use model::event::{Header, Record};
use model::marks::{RECORD_BYTES, Slot, header, name};
use model::table::{Row, Span};
use model::{Event, Layer};
use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// One event of every kind.
pub fn every_event() -> Vec<Event> {
    let event = |(i, kind): (usize, &model::record::RecordInfo)| {
        let body: Vec<u8> = (0..kind.size() + 300).map(|at| (at * 7 + i) as u8 & 0x7f).collect();
        let record = Record::decode(kind.kind, &body)?;
        let header = Header { time_ns: 1_000 + i as u64, kind: kind.kind, tgid: 1, tid: 2, ..Header::default() };
        Some(Event { header, record })
    };
    Record::KINDS.iter().enumerate().filter_map(event).collect()
}

fn encode_event(event: &Event) -> Vec<u8> {
    let mut bytes = Vec::new();
    event.encode(&mut bytes);
    bytes
}

pub fn event_seeds() -> Vec<Vec<u8>> {
    every_event().iter().map(encode_event).collect()
}

/// What was read and written once stays as it is. (The first reading replaces what is not UTF-8.)
pub fn check_event(bytes: &[u8]) {
    if let Some(event) = Event::decode(bytes) {
        let once = encode_event(&event);
        let twice = Event::decode(&once).map(|e| encode_event(&e));
        assert_eq!(twice.as_ref(), Some(&once));
    }
}

pub fn event_text_seeds() -> Vec<Vec<u8>> {
    every_event().iter().map(|e| e.to_text().into_bytes()).collect()
}

pub fn check_event_text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(event) = Event::parse(&text) {
        assert_eq!(Event::parse(&event.to_text()), Ok(event));
    }
}

/// The files of an archive with every event and some spans.
fn archive_files(read: impl Fn(&Path) -> std::io::Result<Vec<u8>>) -> Vec<Vec<u8>> {
    let make = || -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let mut log = LogWriter::create(dir.path(), None)?;
        for (i, event) in every_event().iter().enumerate() {
            log.append(&encode_event(event))?;
            if i % 9 == 8 {
                log.sync_chunk()?;
            }
        }
        log.finish()?;
        let mut tables = TablesWriter::create(dir.path())?;
        (0..50).try_for_each(|id| tables.push(&make_span(id)))?;
        tables.finish()?;
        Ok(read(dir.path())?)
    };
    // Without seeds a target would test nothing, so this must be loud.
    vec![make().unwrap_or_else(|e| panic!("the seeds cannot be made: {e}"))]
}

fn make_span(id: u64) -> Span {
    Span {
        id,
        layer: Layer::ALL[id as usize % Layer::ALL.len()],
        kind: "pwrite64".into(),
        start_ns: id * 10,
        end_ns: (!id.is_multiple_of(5)).then_some(id * 10 + 25),
        tgid: 5,
        tid: 6,
        operation: id.is_multiple_of(3).then_some(id),
        file: None,
        offset: id.is_multiple_of(2).then_some(id * 4096),
        disk: id.is_multiple_of(4).then_some(7 << 20),
        sector: Some(id),
        bytes: 4096,
        result: Some(-1),
        number: None,
        cache_added: Some(1),
        flags: "sync".into(),
    }
}

pub fn log_seeds() -> Vec<Vec<u8>> {
    archive_files(|dir| std::fs::read(archive::log::path(dir)))
}

pub fn check_log(bytes: &[u8]) {
    read_log(bytes);
    // Its sums keep random changes from getting anywhere, as they should; what a malicious file could do is seen only
    // when they are right.
    let mut sealed = bytes.to_vec();
    let mut at = 0;
    while let Some(header) = sealed.get(at..at + 64).and_then(|h| <[u8; 64]>::try_from(h).ok()) {
        let payload = u32::from_le_bytes([header[12], header[13], header[14], header[15]]) as usize;
        let Some(end) = (at + 64).checked_add(payload).filter(|e| *e <= sealed.len()) else { break };
        let crc = crc32fast::hash(&sealed[at + 64..end]);
        sealed[at + 56..at + 60].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32fast::hash(&sealed[at..at + 60]);
        sealed[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
    read_log(&sealed);
}

fn read_log(bytes: &[u8]) {
    if let Ok(mut reader) = LogReader::new(Cursor::new(bytes), Path::new("events.log"), "") {
        let events = reader.by_ref().count() as u64;
        let (read, all) = reader.progress();
        assert_eq!(read, all, "it ends where the file ends");
        // A record takes at least its length and its header, but LZ4 packs it up to 255-fold.
        assert!(events <= 255 * all / 28 + reader.damage().places + all, "{events} events in {all} bytes");
    }
}

pub fn parquet_seeds() -> Vec<Vec<u8>> {
    archive_files(|dir| std::fs::read(tables::table_path(dir, Span::TABLE.name)))
}

pub fn check_parquet(bytes: &[u8]) {
    let mut rows = 0;
    let path = Path::new("a.fathom/tables/spans.parquet");
    let read = tables::read_file(bytes::Bytes::copy_from_slice(bytes), path, &Span::TABLE, 1, &mut |cells| {
        assert_eq!(cells.len(), Span::TABLE.columns.len());
        let _ = Span::from_cells(cells);
        rows += 1;
    });
    match read {
        Ok(n) => assert_eq!(n, rows),
        Err(e) => assert!(e.to_string().contains("fathom reindex"), "{e}"),
    }
}

pub fn meta_seeds() -> Vec<Vec<u8>> {
    let mut meta =
        Meta::new(archive::ArchiveKind::Trace, 1_700_000_000_000_000_000, vec!["sqlite3".into(), "é\u{1}".into()]);
    meta.extra.insert("sqlite".into(), "3.40.1".into());
    // With its fields in the order of the file.
    let dir = tempfile::tempdir();
    let bytes = dir.map(|dir| meta.write(dir.path()).map(|()| std::fs::read(Meta::path(dir.path()))));
    match bytes {
        Ok(Ok(Ok(bytes))) => vec![bytes],
        other => panic!("the seeds cannot be made: {other:?}"),
    }
}

pub fn check_meta(bytes: &[u8]) {
    let path = Path::new("a.fathom/meta.json");
    match Meta::parse(path, bytes) {
        Ok(meta) => assert!(meta.version == 1 && meta.format == "fathom-archive"),
        Err(e) => assert!(e.to_string().contains("a.fathom"), "{e}"),
    }
}

pub fn perfetto_seeds() -> Vec<Vec<u8>> {
    let spans: Vec<Span> = (0..30).map(make_span).collect();
    let mut bytes = Vec::new();
    match export(&Tables { spans: &spans, ..Tables::default() }, &mut bytes) {
        Ok(_) => vec![bytes],
        Err(e) => panic!("the seeds cannot be made: {e}"),
    }
}

pub fn check_perfetto(bytes: &[u8]) {
    let packets: Vec<_> = Reader::new(bytes).collect();
    // A packet has at least its tag and its length.
    assert!(packets.len() <= bytes.len() / 2 + 1);
}

pub fn statement_seeds() -> Vec<Vec<u8>> {
    [
        "INSERT INTO t(a, \"b\") VALUES (1, 'it''s'), (?1, x'00ff'), (:c, -1.5e-3)",
        "SELECT [a b], `c` FROM \"t\" WHERE a IN (1, 2, 3) AND \"d\" = 'e' -- a comment\n/* and one */ LIMIT 5;",
        "PRAGMA main.journal_mode = WAL",
        "SELECT 'x' /*action='a',traceparent='00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'*/ FROM \"t\" -- c",
        "PRAGMA key = secret; SAVEPOINT a1b2; UPDATE OR IGNORE t SET \"a\" = 'never closed",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

/// A shape is its own shape: what is stored and read again is not taken for another statement.
pub fn check_statement(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // What is kept of a comment is an identity, in whatever else the text holds, and comes back as it was.
    let (told, found) = (::sqlite::without_traceparent(&text), ::sqlite::traceparent(&text));
    assert_eq!(told.traceparent, found);
    if let Some(found) = found {
        assert!(::sqlite::is_traceparent(found));
        let shape = ::sqlite::normalise(&text);
        let kept = ::sqlite::with_traceparent(&shape, found);
        assert_eq!(
            ::sqlite::without_traceparent(&kept),
            ::sqlite::SqlAndContext { text: shape, traceparent: Some(found) }
        );
    }
    let once = ::sqlite::normalise(&text);
    assert_eq!(::sqlite::normalise(&once), once);
}

pub fn marks_seeds() -> Vec<Vec<u8>> {
    let slot = |nth| Slot { start_ns: 10 * nth, end_ns: 10 * nth + 5, tgid: 1, tid: 2, nth, name: name("insert") };
    let mut header = header(MARK_COUNT);
    header[24] = 2;
    vec![[header, slot(1).encode(), slot(2).encode(), [0; RECORD_BYTES]].concat()]
}

/// Records that the memory of [`check_marks`] has room for.
const MARK_COUNT: u64 = 3;

/// A program may write into its memory what it likes.
pub fn check_marks(bytes: &[u8]) {
    let written = || {
        let marks = Marks::create(MARK_COUNT)?;
        let memory = File::from(marks.fd().try_clone_to_owned()?);
        memory.write_all_at(&bytes[..bytes.len().min(4 * RECORD_BYTES)], 0)?;
        marks.read()
    };
    match written() {
        Ok(read) => {
            assert!(read.events.len() as u64 + read.unusable <= MARK_COUNT);
            for event in read.events {
                assert!(event.start_ns() <= event.header.time_ns);
                assert_eq!(Event::decode(&encode_event(&event)), Some(event));
            }
        }
        Err(e) => panic!("the memory could not be read: {e}"),
    }
}

pub fn canary_seeds() -> Vec<Vec<u8>> {
    vec![b"canary".to_vec()]
}

/// Fails on what a few changes make of its seed.
pub fn check_canary(bytes: &[u8]) {
    assert!(!bytes.starts_with(b"ca\xff"), "the canary died, as it must");
}
