//! An archive as a directory: its tables round-trip, are written whole or not at all, and other files stay untouched.

use archive::tables::{Index, read_file};
use archive::{Archive, ArchiveKind, Error, LogWriter, Meta, TablesWriter, export};
use model::packed::PackedTable;
use model::table::{
    Cell, ColumnInfo, ColumnType, DesignCell, DesignRow, Link, Operation, Replicate, Row, Sample, Shape, Span, TABLES,
    TableInfo,
};
use model::{Confidence, Context, Layer, Relation};
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::Ordering;

fn span(id: u64) -> Span {
    let odd = |x: u64| (id % 2 == 1).then_some(x);
    Span {
        id,
        layer: Layer::ALL[id as usize % Layer::ALL.len()],
        kind: if id.is_multiple_of(3) { "bio".into() } else { "request".into() },
        start_ns: id * 100,
        end_ns: odd(id * 100 + 50),
        tgid: 3,
        tid: 4,
        operation: odd(u64::MAX),
        file: None,
        offset: odd(id << 12),
        disk: odd(7).map(|x| x as u32),
        sector: odd(id),
        bytes: 4096,
        result: odd(1).map(|_| -5),
        number: None,
        cache_added: None,
        flags: "sync".into(),
    }
}

fn meta() -> Meta {
    Meta::new(ArchiveKind::Trace, 1, vec!["x".into()])
}

/// An archive with some spans in `dir`.
fn make_archive(dir: &Path, spans: u64) -> Archive {
    let archive = Archive::create(dir, &meta(), false).unwrap();
    let mut tables = TablesWriter::create(dir).unwrap();
    (0..spans).for_each(|id| tables.push(&span(id)).unwrap());
    tables.push(&Shape { id: 1, kind: "statement".into(), text: "=1+1;\n\"é\"".into() }).unwrap();
    tables.finish().unwrap();
    archive
}

#[test]
fn rows_round_trip_through_several_row_groups() {
    let dir = tempfile::tempdir().unwrap();
    let archive = make_archive(dir.path(), 70_000);
    let mut next = 0;
    archive
        .for_each(|row: Span| {
            assert_eq!(row, span(next));
            next += 1;
        })
        .unwrap();
    assert_eq!(next, 70_000);
    let (mut groups, mut next) = (Vec::new(), 0);
    let each = |table: PackedTable<Span>| {
        groups.push(table.len());
        table.iter().for_each(|row| {
            assert_eq!(row, span(next));
            next += 1;
        });
    };
    archive.for_each_group(each).unwrap();
    assert_eq!((groups, next), (vec![65_536, 70_000 - 65_536], 70_000), "no more than a row group is in memory");
    assert!(archive.packed::<Span>().unwrap().iter().eq((0..70_000).map(span)));
    assert_eq!(archive.rows::<Shape>().unwrap()[0].text, "=1+1;\n\"é\"");
    assert_eq!(archive.rows::<Link>().unwrap(), [], "a table without rows is empty, not missing");
    let file = SerializedFileReader::new(File::open(dir.path().join("tables/spans.parquet")).unwrap()).unwrap();
    assert_eq!(file.num_row_groups(), 2, "memory is bounded by the row group");
}

#[test]
fn extreme_values_of_every_type_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::create(dir.path(), &meta(), false).unwrap();
    let sample = |value, time_ns| Sample {
        replicate: None,
        metric: String::new(),
        unit: "ns".into(),
        labels: "a=b".into(),
        time_ns,
        value,
    };
    let rows = [sample(f64::MIN_POSITIVE, Some(u64::MAX)), sample(-0.0, None), sample(f64::INFINITY, Some(0))];
    let mut tables = TablesWriter::create(dir.path()).unwrap();
    rows.iter().for_each(|row| tables.push(row).unwrap());
    tables.finish().unwrap();
    assert_eq!(archive.rows::<Sample>().unwrap(), rows);
}

/// What other programs see: names, types and enum words, and nothing particular to our reader.
#[test]
fn the_parquet_schema_has_names_types_and_enum_words() {
    let dir = tempfile::tempdir().unwrap();
    make_archive(dir.path(), 2);
    let file = SerializedFileReader::new(File::open(dir.path().join("tables/spans.parquet")).unwrap()).unwrap();
    let mut text = Vec::new();
    parquet::schema::printer::print_schema(&mut text, file.metadata().file_metadata().schema());
    let text = String::from_utf8(text).unwrap();
    for line in [
        "message spans {",
        "REQUIRED INT64 id (INTEGER(64,true));",
        "REQUIRED BYTE_ARRAY layer (STRING);",
        "OPTIONAL INT64 end_ns (INTEGER(64,true));",
        "OPTIONAL INT64 result (INTEGER(64,true));",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let row = file.get_row_iter(None).unwrap().nth(1).unwrap().unwrap().to_string();
    assert!(row.contains("layer: \"Database\"") && row.contains("operation: -1"), "{row}");
}

#[test]
fn an_unfinished_writer_leaves_the_old_tables() {
    let dir = tempfile::tempdir().unwrap();
    let archive = make_archive(dir.path(), 3);
    let mut tables = TablesWriter::create(dir.path()).unwrap();
    tables.push(&span(9)).unwrap();
    drop(tables);
    assert_eq!(archive.rows::<Span>().unwrap().len(), 3);
    assert!(!dir.path().join("tables.tmp").exists());

    let mut tables = TablesWriter::create(dir.path()).unwrap();
    tables.push(&span(9)).unwrap();
    tables.finish().unwrap();
    assert_eq!(archive.rows::<Span>().unwrap(), [span(9)]);
    assert_eq!(archive.rows::<Shape>().unwrap(), [], "the old tables are gone as a whole");
    assert!(!dir.path().join("tables.old").exists());
}

#[test]
fn the_error_for_missing_tables_names_reindex() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::create(dir.path(), &meta(), false).unwrap();
    assert!(!archive.has_tables());
    let error = archive.rows::<Span>().unwrap_err();
    assert!(error.to_string().contains("fathom reindex"), "{error}");
}

#[test]
fn a_damage_error_names_the_file_and_reindex() {
    let dir = tempfile::tempdir().unwrap();
    let archive = make_archive(dir.path(), 100);
    let path = dir.path().join("tables/spans.parquet");
    let whole = fs::read(&path).unwrap();
    let damaged = |bytes: Option<&[u8]>| {
        match bytes {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let error = archive.rows::<Span>().unwrap_err().to_string();
        assert!(error.contains("spans.parquet") && error.contains("fathom reindex"), "{error}");
    };
    damaged(Some(&[]));
    damaged(Some(&whole[..whole.len() / 2]));
    damaged(Some(b"PAR1 not at all PAR1"));
    // Another table's file is whole, but it is not this one.
    damaged(Some(&fs::read(dir.path().join("tables/shapes.parquet")).unwrap()));
    damaged(None);
}

/// As in an archive made before tables had checksums.
fn forget_sums(dir: &Path) {
    let mut index = Index::read(dir).unwrap();
    index.sums.clear();
    fs::write(Index::path(dir), serde_json::to_vec(&index).unwrap()).unwrap();
}

#[test]
fn every_flipped_bit_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let archive = make_archive(&dir.path().join("a.fathom"), 40);
    let path = archive.dir().join("tables/spans.parquet");
    let (whole, spans) = (fs::read(&path).unwrap(), archive.rows::<Span>().unwrap());
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, bytes).unwrap();
        assert!(matches!(archive.rows::<Span>(), Err(Error::Damaged { .. })), "byte {at}");
    }
    let out = dir.path().join("out");
    assert!(matches!(export::parquet(&archive, &out, &Context::silent()), Err(Error::Damaged { .. })));
    assert!(!out.exists(), "a damaged table is not handed on");
    fs::write(&path, whole).unwrap();
    forget_sums(archive.dir());
    assert_eq!(archive.rows::<Span>().unwrap(), spans, "an older archive is read as it was");
}

#[test]
fn an_unknown_enum_word_in_a_table_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let archive = make_archive(dir.path(), 1);
    let path = dir.path().join("tables/spans.parquet");
    // With and without compression a text of this length is stored verbatim in the dictionary page.
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(3).position(|w| w == b"App").expect("the layer's name");
    bytes[at] = b'Q';
    fs::write(&path, bytes).unwrap();
    forget_sums(dir.path());
    assert!(matches!(archive.rows::<Span>(), Err(Error::Damaged { .. })));
}

/// A newer minor version has more columns and lacks none that is required; an older one lacks optional ones.
#[test]
fn columns_are_matched_by_name() {
    const fn column(name: &'static str, optional: bool) -> ColumnInfo {
        ColumnInfo { name, kind: ColumnType::I64, optional, doc: "" }
    }
    let dir = tempfile::tempdir().unwrap();
    make_archive(dir.path(), 2);
    let read = |columns: &'static [ColumnInfo]| {
        let file = File::open(dir.path().join("tables/spans.parquet")).unwrap();
        let mut rows = Vec::new();
        let info = TableInfo { name: "spans", doc: "", columns };
        read_file(file, Path::new("a.fathom/tables/spans.parquet"), &info, 1, &mut |row| rows.push(row.to_vec()))
            .map(|_| rows)
    };
    const REORDERED_COLUMNS: &[ColumnInfo] = &[column("start_ns", false), column("colour", true), column("id", false)];
    const MISSING_COLUMNS: &[ColumnInfo] = &[column("colour", false)];
    const MISTYPED_COLUMNS: &[ColumnInfo] = &[column("kind", false)];
    let rows = read(REORDERED_COLUMNS).unwrap();
    assert_eq!(rows[1], [Cell::I64(100), Cell::Empty, Cell::I64(1)]);
    let error = read(MISSING_COLUMNS).unwrap_err().to_string();
    assert!(error.contains("missing column colour"), "{error}");
    let error = read(MISTYPED_COLUMNS).unwrap_err().to_string();
    assert!(error.contains("unexpected type"), "{error}");
}

#[test]
fn newer_tables_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let archive = make_archive(dir.path(), 1);
    let mut index = Index::read(dir.path()).unwrap();
    index.table_version = 99;
    index.made_by = "Fathom 8.0".into();
    fs::write(Index::path(dir.path()), serde_json::to_vec(&index).unwrap()).unwrap();
    let error = archive.rows::<Span>().unwrap_err();
    assert!(matches!(error, Error::Newer { .. }) && error.to_string().contains("Fathom 8.0"), "{error}");
}

#[test]
fn creating_an_archive_never_touches_other_directories() {
    let dir = tempfile::tempdir().unwrap();
    let mine = dir.path().join("photos");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("cat.jpg"), "cat").unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    for overwrite in [false, true] {
        assert!(matches!(Archive::create(&mine, &meta(), overwrite), Err(Error::NotAnArchive { .. })));
        let file = dir.path().join("file");
        assert!(matches!(Archive::create(&file, &meta(), overwrite), Err(Error::NotAnArchive { .. })));
    }
    assert_eq!(fs::read_dir(&mine).unwrap().count(), 1);

    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    Archive::create(&empty, &meta(), false).unwrap();
}

#[test]
fn an_archive_is_overwritten_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("a.fathom");
    make_archive(&place, 3);
    LogWriter::create(&place, None).unwrap().finish().unwrap();
    assert!(matches!(Archive::create(&place, &meta(), false), Err(Error::Exists { .. })));
    let archive = Archive::create(&place, &Meta::new(ArchiveKind::Bench, 2, vec![]), true).unwrap();
    assert!(!archive.has_tables() && archive.log().is_err());
    assert_eq!(Archive::open(&place).unwrap().meta().kind, ArchiveKind::Bench);
}

#[test]
fn exports_contain_every_table() {
    let dir = tempfile::tempdir().unwrap();
    let archive = make_archive(&dir.path().join("a.fathom"), 2);
    let out = dir.path().join("out");
    let mut names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
    names.sort_unstable();
    assert_eq!(export::csv(&archive, &out, &Context::silent()).unwrap(), names);
    assert_eq!(
        fs::read_to_string(out.join("shapes.csv")).unwrap(),
        "id,kind,text\r\n1,statement,\"'=1+1;\\n\"\"é\"\"\"\r\n"
    );
    let spans = fs::read_to_string(out.join("spans.csv")).unwrap();
    assert_eq!(spans.lines().nth(1), Some("0,App,bio,0,,3,4,,,,,,4096,,,,sync"));
    export::parquet(&archive, &out, &Context::silent()).unwrap();
    assert_eq!(
        fs::read(out.join("spans.parquet")).unwrap(),
        fs::read(dir.path().join("a.fathom/tables/spans.parquet")).unwrap()
    );
}

#[test]
fn an_interrupted_export_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let archive = make_archive(&dir.path().join("a.fathom"), 2);
    let context = Context::silent();
    context.cancel_flag().store(true, Ordering::Relaxed);
    let out = dir.path().join("out");
    assert!(matches!(export::csv(&archive, &out, &context), Err(Error::Interrupted { .. })));
    assert!(matches!(export::parquet(&archive, &out, &context), Err(Error::Interrupted { .. })));
    assert!(!out.exists());
    // Existing files stay.
    fs::create_dir(&out).unwrap();
    fs::write(out.join("spans.csv"), "old").unwrap();
    assert!(export::csv(&archive, &out, &context).is_err());
    let left: Vec<_> = fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!((left, fs::read_to_string(out.join("spans.csv")).unwrap().as_str()), (vec!["spans.csv".into()], "old"));
}

#[test]
fn enum_words_of_every_kind_round_trip() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::create(dir.path(), &meta(), false).unwrap();
    let mut tables = TablesWriter::create(dir.path()).unwrap();
    let links: Vec<Link> = Relation::ALL
        .iter()
        .zip(Confidence::ALL.iter().cycle())
        .map(|(r, c)| Link { parent: 1, child: 2, relation: *r, confidence: *c, weakened_by: None })
        .collect();
    links.iter().for_each(|l| tables.push(l).unwrap());
    let operation = Operation {
        id: 1,
        span: 2,
        shape: 3,
        nth: 4,
        parent: None,
        tgid: 5,
        tid: 6,
        start_ns: 7,
        end_ns: None,
        inside_ns: 0,
        rows: 9,
        steps: None,
        result: Some(101),
    };
    tables.push(&operation).unwrap();
    tables.finish().unwrap();
    assert_eq!(archive.rows::<Link>().unwrap(), links);
    assert_eq!(archive.rows::<Operation>().unwrap(), [operation]);
    assert_eq!(Operation::TABLE.name, "operations");
}

/// The kernel gives a flush request the sector 2^64 - 1, which tables of the first versions repeated.
#[test]
fn placeholder_sectors_of_older_tables_are_null() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::create(&dir.path().join("a.fathom"), &meta(), false).unwrap();
    let spans: Vec<Span> = [None, Some(0), Some(u64::MAX)].map(|sector| Span { sector, ..span(1) }).to_vec();
    let mut tables = TablesWriter::create(archive.dir()).unwrap();
    spans.iter().for_each(|s| tables.push(s).unwrap());
    tables.finish().unwrap();
    let sectors = |archive: &Archive| archive.rows::<Span>().unwrap().iter().map(|s| s.sector).collect::<Vec<_>>();
    assert_eq!(sectors(&archive), [None, Some(0), Some(u64::MAX)]);
    let mut index = Index::read(archive.dir()).unwrap();
    index.table_version = 2;
    fs::write(Index::path(archive.dir()), serde_json::to_vec(&index).unwrap()).unwrap();
    assert_eq!(sectors(&archive), [None, Some(0), None]);
    // Exports write them as today.
    let out = dir.path().join("out");
    export::parquet(&archive, &out, &Context::silent()).unwrap();
    let file = SerializedFileReader::new(File::open(out.join("spans.parquet")).unwrap()).unwrap();
    let rows: Vec<String> = file.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
    assert!(rows.len() == 3 && rows[1].contains("sector: 0") && rows[2].contains("sector: null"), "{rows:?}");
}

/// One archive of every version is kept, and each must open.
#[test]
fn archives_of_every_version_open() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives");
    let Ok(entries) = fs::read_dir(&kept) else {
        println!("SKIP archives_of_every_version_open: tests/archives is not there");
        return;
    };
    for dir in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let archive = Archive::open(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        match archive.meta().kind {
            ArchiveKind::Bench => {
                assert!(!archive.rows::<Replicate>().unwrap().is_empty(), "{}", dir.display());
                continue;
            }
            ArchiveKind::Net => {
                assert!(!archive.rows::<Sample>().unwrap().is_empty(), "{}", dir.display());
                continue;
            }
            ArchiveKind::Trace => {}
        }
        let mut log = archive.log().unwrap();
        assert!(log.by_ref().count() > 0 && log.damage().is_none(), "{}", dir.display());
        assert!(!archive.rows::<Span>().unwrap().is_empty(), "{}", dir.display());
    }
}

/// Version 1 had no designs, marks or gates: these are empty, and its cells belong to one design.
#[test]
fn version_1_benchmark_is_readable() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/archives/v1-bench");
    let archive = Archive::open(&dir).unwrap();
    assert_eq!(archive.meta().table_version, 1);
    let cells: Vec<DesignCell> = archive.rows().unwrap();
    assert_eq!(cells.iter().map(|c| (c.design, &*c.name)).collect::<Vec<_>>(), [(0, "one"), (0, "two"), (0, "three")]);
    assert!(cells.iter().all(|c| c.metric.is_none() && c.absent.is_none()));
    let replicates: Vec<Replicate> = archive.rows().unwrap();
    assert_eq!(replicates.iter().filter(|r| r.failure.is_none() && !r.warmup).count(), 12);
    assert!(replicates.iter().all(|r| r.gates.is_none() && r.why.is_none()));
    assert_eq!(archive.rows::<DesignRow>().unwrap(), []);
}
