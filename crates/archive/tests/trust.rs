//! Archives whose files do not belong together, and files that claim more than they hold.

use archive::tables::{Index, read_file};
use archive::{Archive, ArchiveKind, Error, LogWriter, Meta, TablesWriter};
use model::event::{OpBegin, op_kind};
use model::table::{Cell, ColumnInfo, ColumnType, Shape, TABLES, TableInfo};
use model::{Event, Record};
use parquet::basic::Compression;
use parquet::data_type::Int64Type;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

fn meta() -> Meta {
    Meta::new(ArchiveKind::Trace, 1, vec!["x".into()])
}

/// An archive in `dir` whose log has two chunks.
fn record_archive(dir: &Path) -> Archive {
    let archive = Archive::create(dir, &meta(), false).unwrap();
    let mut log = LogWriter::create(dir, None).unwrap();
    for n in 0..100 {
        let record: Record = OpBegin { key: n, kind: op_kind::STATEMENT, ..OpBegin::default() }.into();
        let header = model::event::Header { time_ns: 1000 + n, kind: record.kind(), ..Default::default() };
        let mut bytes = Vec::new();
        Event { header, record }.encode(&mut bytes);
        log.append(&bytes).unwrap();
        if n == 49 {
            log.sync_chunk().unwrap();
        }
    }
    log.finish().unwrap();
    TablesWriter::create(dir).unwrap().finish().unwrap();
    archive
}

/// As in an archive of an older version.
fn forget_log(dir: &Path) {
    let index = Index { log: None, ..Index::read(dir).unwrap() };
    fs::write(Index::path(dir), serde_json::to_vec(&index).unwrap()).unwrap();
}

#[test]
fn tables_of_another_log_are_detected() {
    let directory = tempfile::tempdir().unwrap();
    for older in [false, true] {
        let dir = directory.path().join(format!("{older}.fathom"));
        let archive = record_archive(&dir);
        let path = archive::log::path(&dir);
        if older {
            forget_log(&dir);
        }
        archive::check_log(&archive).unwrap();
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[200] ^= 1;
        for changed in [&whole[..whole.len() / 2], &whole[..whole.len() - 1], &flipped] {
            fs::write(&path, changed).unwrap();
            let error = archive::check_log(&archive).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
        }
        fs::remove_file(&path).unwrap();
        archive::check_log(&archive).unwrap();
    }
}

/// Cut at the end of a chunk, an older log shows no damage by itself.
#[test]
fn a_cut_of_an_older_log_is_found_by_its_number_of_events() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("a.fathom");
    record_archive(&dir);
    forget_log(&dir);
    let mut meta = meta();
    meta.extra.insert("surroundings".into(), serde_json::json!({"stored": 100}));
    meta.write(&dir).unwrap();
    let archive = Archive::open(&dir).unwrap();
    archive::check_log(&archive).unwrap();
    let path = archive::log::path(&dir);
    let whole = fs::read(&path).unwrap();
    let second = whole.windows(8).rposition(|bytes| bytes == archive::log::CHUNK_MAGIC).unwrap();
    fs::write(&path, &whole[..second]).unwrap();
    let error = archive::check_log(&archive).unwrap_err().to_string();
    assert!(error.contains("50 events of 100"), "{error}");
}

#[test]
fn every_declared_table_exists_even_without_rows() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("a.fathom");
    let archive = record_archive(&dir);
    for table in TABLES {
        let (path, rows) = archive.table_file(table.name).unwrap().unwrap();
        assert_eq!(rows, 0, "{}", table.name);
        let file = File::open(&path).unwrap();
        assert_eq!(read_file(file, &path, table, 3, &mut |_| ()).unwrap(), 0, "{}", table.name);
    }
}

const NUMBERS_TABLE: TableInfo = TableInfo {
    name: "numbers",
    doc: "",
    columns: &[ColumnInfo { name: "id", kind: ColumnType::I64, optional: false, doc: "" }],
};

/// Writes a file with this many rows, all of the same number.
fn write_repeated_rows(path: &Path, rows: usize) -> u64 {
    let schema = Arc::new(parse_message_type("message numbers { REQUIRED INT64 id; }").unwrap());
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(Default::default())).build();
    let mut file = SerializedFileWriter::new(File::create(path).unwrap(), schema, Arc::new(properties)).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&vec![7; rows], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
    fs::metadata(path).unwrap().len()
}

/// 3 MB of Parquet can claim 50 million rows, and took 10 GB.
#[test]
fn rows_that_a_file_cannot_hold_are_refused_unread() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.parquet");
    let read = |rows: usize| {
        let bytes = write_repeated_rows(&path, rows);
        assert!(bytes < 100_000, "{bytes}");
        let mut seen = 0;
        let result = read_file(File::open(&path).unwrap(), &path, &NUMBERS_TABLE, 3, &mut |_: &[Cell]| seen += 1);
        (seen, result)
    };
    let (seen, result) = read(100_000);
    assert_eq!((seen, result.unwrap()), (100_000, 100_000));
    let (seen, result) = read(10_000_000);
    let error = result.unwrap_err();
    assert!(seen == 0 && matches!(error, Error::Damaged { .. }), "{seen} {error}");
    assert!(error.to_string().contains("10000000 rows"), "{error}");
}

/// A text of a dictionary takes its space once in the file, and once for each row in memory.
#[test]
fn text_in_every_row_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("a.fathom");
    let archive = Archive::create(&dir, &meta(), false).unwrap();
    let mut tables = TablesWriter::create(&dir).unwrap();
    let text = "a".repeat(1 << 19);
    for id in 0..300 {
        tables.push(&Shape { id, kind: "statement".into(), text: text.clone() }).unwrap();
    }
    tables.finish().unwrap();
    let error = archive.rows::<Shape>().unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }) && error.to_string().contains("repeats texts"), "{error}");
    let mut seen = 0;
    archive.for_each(|_: Shape| seen += 1).unwrap();
    assert_eq!(seen, 300, "one at a time they take little");
}

/// A page is decompressed as a whole: a few kilobytes can become gigabytes.
#[test]
fn a_page_that_a_file_cannot_hold_is_refused_unread() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("a.fathom");
    let archive = Archive::create(&dir, &meta(), false).unwrap();
    let rows_with = |bytes: usize| {
        let mut tables = TablesWriter::create(&dir).unwrap();
        tables.push(&Shape { id: 1, kind: "statement".into(), text: "a".repeat(bytes) }).unwrap();
        tables.finish().unwrap();
        let mut rows = 0;
        archive.for_each(|_: Shape| rows += 1).map(|()| rows)
    };
    assert_eq!(rows_with(1 << 20).unwrap(), 1);
    let error = rows_with(90 << 20).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }) && error.to_string().contains("its pages claim"), "{error}");
}

/// What `record` has written when it is killed at its start must not block its name.
#[test]
fn an_unfinished_archive_is_replaced_and_other_files_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("a.fathom");
    meta().write(directory.path()).unwrap();
    let whole = fs::read(Meta::path(directory.path())).unwrap();
    let tmp = dir.join("meta.json.tmp");
    for begun in [&whole[..0], &whole[..5], &whole[..whole.len() - 1], &whole, &[0; 4096]] {
        fs::create_dir(&dir).unwrap();
        fs::write(&tmp, begun).unwrap();
        Archive::check_create(&dir, false).unwrap();
        Archive::create(&dir, &meta(), false).unwrap();
        assert_eq!(Archive::open(&dir).unwrap().meta(), &meta());
        assert!(!tmp.exists());
        fs::remove_dir_all(&dir).unwrap();
    }
    for (name, content) in [("meta.json.tmp", &b"{\"mine\": 1}"[..]), ("other.tmp", &whole), ("lock", b"")] {
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(name), content).unwrap();
        assert!(matches!(Archive::create(&dir, &meta(), true), Err(Error::NotAnArchive { .. })), "{name}");
        assert_eq!(fs::read(dir.join(name)).unwrap(), content);
        fs::remove_dir_all(&dir).unwrap();
    }
}
