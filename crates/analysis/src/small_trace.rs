//! A trace small enough to check by hand, for the tests of this crate. Times are us in the code, ns in the rows.
//!
//! An INSERT within a mark writes the rollback journal (three calls), syncs, writes its record count, syncs, writes a
//! page of the database, syncs, unlinks. Its commit and the request with two bios are shared with another process. A
//! second INSERT fails at once, a third never ends. A SELECT reads from the page cache. `loop0` is on top of `vda`.

use crate::contract::Trace;
use crate::rows::Rows;
use model::packed::PackedTable;
use model::table::{
    Cause, Coverage, Disk, FactRow, File, Link, LossRow, Operation, Process, Shape, Slice, Span, StackRow,
};
use model::{Absence, Confidence, Dev, Layer, LossSource, Origin, Reason, Relation};

pub const INSERT_STATEMENT: &str = "INSERT INTO t VALUES (?, ?)";
pub const SELECT_STATEMENT: &str = "SELECT * FROM t";

const JOURNAL_FILE: u64 = 1;
const DATABASE_FILE: u64 = 2;
const PIPE_FILE: u64 = 3;
const UNNAMED_FILE: u64 = 4;

/// A fact from the recorder.
pub fn fact(name: &str, value: u64) -> FactRow {
    FactRow {
        name: name.into(),
        value: Some(value.to_string()),
        unknown: None,
        unit: Some("ns".into()),
        source: "the recorder".into(),
        varies: "run".into(),
    }
}

/// The fact of a machine whose processor is emulated.
pub fn emulated_fact() -> FactRow {
    FactRow { value: Some("tcg".into()), unit: None, source: "/proc/cmdline".into(), ..fact("virtual.accelerator", 0) }
}

fn at_us(t: u64) -> u64 {
    1_000_000_000 + t * 1000
}

/// A span with only its position filled in; the caller sets the rest.
fn span(id: u64, layer: Layer, kind: &'static str, (start, end): (u64, u64), operation: Option<u64>) -> Span {
    Span {
        id,
        layer,
        kind: kind.into(),
        start_ns: at_us(start),
        end_ns: Some(at_us(end)),
        tgid: 100,
        tid: 100,
        operation,
        file: None,
        offset: None,
        disk: None,
        sector: None,
        bytes: 0,
        result: None,
        number: None,
        cache_added: None,
        flags: "".into(),
    }
}

fn call_span(
    id: u64,
    kind: &'static str,
    time: (u64, u64),
    operation: u64,
    file: u64,
    (offset, bytes): (u64, u64),
) -> Span {
    Span {
        file: Some(file),
        offset: Some(offset),
        bytes,
        result: Some(bytes as i64),
        ..span(id, Layer::Syscall, kind, time, Some(operation))
    }
}

fn disk_span(id: u64, layer: Layer, kind: &'static str, time: (u64, u64), dev: Dev, sector: u64, bytes: u64) -> Span {
    Span {
        disk: Some(dev.0),
        sector: Some(sector),
        bytes,
        tgid: 0,
        tid: 0,
        flags: if kind == "flush" { "flush" } else { "write sync" }.into(),
        ..span(id, layer, kind, time, None)
    }
}

fn spans(upper: Dev, lower: Dev) -> Vec<Span> {
    use Layer::{App, Block, Database, Driver, FileSystem};
    let mut all = vec![
        span(10, App, "mark", (0, 1000), None),
        span(11, Database, "step", (10, 990), None),
        span(12, Database, "step", (1010, 1110), None),
        span(13, Database, "step", (2000, 2100), None),
        span(14, Database, "step", (3000, 3000), None),
        call_span(20, "pwrite64", (20, 25), 11, JOURNAL_FILE, (0, 512)),
        call_span(21, "pwrite64", (26, 28), 11, JOURNAL_FILE, (512, 4)),
        call_span(22, "pwrite64", (29, 40), 11, JOURNAL_FILE, (516, 4096)),
        call_span(23, "fdatasync", (50, 300), 11, JOURNAL_FILE, (0, 0)),
        call_span(24, "pwrite64", (310, 315), 11, JOURNAL_FILE, (0, 12)),
        call_span(25, "fdatasync", (320, 400), 11, JOURNAL_FILE, (0, 0)),
        call_span(26, "pwrite64", (410, 430), 11, DATABASE_FILE, (4096, 4096)),
        call_span(27, "fdatasync", (440, 900), 11, DATABASE_FILE, (0, 0)),
        call_span(28, "fsync", (905, 908), 11, DATABASE_FILE, (0, 0)),
        call_span(29, "write", (909, 910), 11, PIPE_FILE, (0, 80)),
        call_span(33, "write", (910, 911), 11, UNNAMED_FILE, (0, 80)),
        span(30, FileSystem, "write", (21, 24), Some(11)),
        span(31, FileSystem, "commit", (100, 280), None),
        Span { tgid: 200, tid: 200, ..span(32, Layer::Syscall, "pwrite64", (60, 70), None) },
        disk_span(40, Block, "bio", (110, 120), upper, 800, 4096),
        disk_span(41, Block, "bio", (112, 120), upper, 808, 4096),
        disk_span(42, Block, "bio", (450, 455), upper, 80, 4096),
        disk_span(50, Driver, "request", (120, 200), upper, 800, 8192),
        disk_span(51, Driver, "flush", (210, 250), upper, 0, 0),
        disk_span(52, Driver, "request", (460, 520), upper, 80, 4096),
        disk_span(53, Driver, "request", (600, 640), upper, 4000, 4096),
        disk_span(54, Driver, "request", (2050, 2060), upper, 5000, 4096),
        disk_span(60, Block, "bio", (470, 475), lower, 9080, 4096),
        disk_span(61, Driver, "request", (480, 510), lower, 9080, 4096),
        Span { cache_added: Some(0), ..call_span(70, "pread64", (2010, 2015), 13, DATABASE_FILE, (24, 16)) },
        Span { cache_added: Some(0), ..call_span(71, "pread64", (2020, 2030), 13, DATABASE_FILE, (4096, 4096)) },
    ];
    for span in &mut all {
        match span.id {
            14 | 54 => span.end_ns = None,
            20 => span.bytes = 512,
            30 => (span.file, span.offset, span.bytes) = (Some(JOURNAL_FILE), Some(0), 512),
            50 => span.number = Some(2),
            _ => {}
        }
    }
    all
}

fn slice(operation: u64, layer: Layer, reason: Reason, start: u64, end: u64) -> Slice {
    Slice::new(operation, layer, reason, at_us(start), at_us(end))
}

pub fn rows() -> Rows {
    let (upper, lower) = (Dev::new(7, 0), Dev::new(254, 0));
    let operation =
        |id: u64, shape: u64, nth: u64, parent: Option<u64>, start: u64, end: Option<u64>, result: i64| Operation {
            id,
            span: id,
            shape,
            nth,
            parent,
            tgid: 100,
            tid: 100,
            start_ns: at_us(start),
            end_ns: end.map(at_us),
            inside_ns: end.map_or(0, |end| (end - start) * 1000),
            rows: if shape == 2 { 1000 } else { 0 },
            steps: None,
            result: end.map(|_| result),
        };
    let link = |parent, child, relation, confidence| Link { parent, child, relation, confidence, weakened_by: None };
    let cause = |command, origin, operation, tgid, share| Cause {
        command,
        origin,
        operation,
        tgid,
        share,
        confidence: Confidence::Structural,
        via: "page".into(),
    };
    use Confidence::{Exact, Interval};
    use Origin::{OtherProcess, Tracer};
    use Relation::{Calls, Carries, Commits, JoinsTransaction, Merges, Remaps, WaitsForFlush};
    let mut links = vec![
        link(10, 11, Calls, Interval),
        link(11, 22, Calls, Interval),
        link(20, 30, Calls, Exact),
        link(22, 31, JoinsTransaction, Exact),
        link(32, 31, JoinsTransaction, Exact),
        link(31, 41, Commits, Interval),
        link(40, 50, Merges, Exact),
        link(41, 50, Merges, Exact),
        link(41, 51, WaitsForFlush, Exact),
        link(42, 52, Carries, Exact),
        link(52, 60, Remaps, Interval),
        link(60, 61, Carries, Exact),
    ];
    links[5].weakened_by = Some(1);
    Rows {
        trace: Trace {
            command: vec!["./insert".into(), "\u{1b}[31mred".into()],
            complete: true,
            made_by: "Fathom".into(),
            ..Trace::default()
        },
        operations: PackedTable::from(vec![
            operation(10, 3, 0, None, 0, Some(1000), 0),
            operation(11, 1, 0, Some(10), 10, Some(990), 101),
            operation(12, 1, 1, None, 1010, Some(1110), 5),
            operation(13, 2, 0, None, 2000, Some(2100), 101),
            operation(14, 1, 2, None, 3000, None, 0),
        ]),
        thread_times: PackedTable::default(),
        stacks: vec![
            stack("kernel", "__schedule\nio_schedule\next4_sync_file\n__x64_sys_fsync", None),
            stack("program", "fsync\napp_commit\n\u{1b}[31mred", Some("the stack goes on beyond what was copied")),
        ]
        .into(),
        shapes: vec![
            Shape { id: 1, kind: "statement".into(), text: INSERT_STATEMENT.into() },
            Shape { id: 2, kind: "statement".into(), text: SELECT_STATEMENT.into() },
            Shape { id: 3, kind: "mark".into(), text: "one insert".into() },
        ],
        spans: spans(upper, lower).into(),
        links: links.into(),
        causes: PackedTable::from(vec![
            cause(50, Origin::Operation, Some(11), Some(100), 0.5),
            cause(50, OtherProcess, None, Some(200), 0.5),
            cause(51, Origin::Operation, Some(11), Some(100), 1.0),
            cause(52, Origin::Operation, Some(11), Some(100), 1.0),
            cause(53, Tracer, None, Some(400), 1.0),
            cause(61, OtherProcess, None, Some(200), 0.0),
            cause(61, Origin::Operation, Some(11), Some(100), 1.0),
        ]),
        driver_commands: PackedTable::default(),
        counters: PackedTable::default(),
        slices: PackedTable::from(vec![
            slice(10, Layer::App, Reason::Cpu, 0, 10),
            slice(10, Layer::FileSystem, Reason::Journal, 10, 990),
            slice(10, Layer::App, Reason::Cpu, 990, 1000),
            slice(11, Layer::Database, Reason::Cpu, 10, 50),
            slice(11, Layer::FileSystem, Reason::Journal, 50, 120),
            slice(11, Layer::Driver, Reason::Device, 120, 200),
            slice(11, Layer::FileSystem, Reason::Journal, 200, 210),
            slice(11, Layer::Driver, Reason::Flush, 210, 250),
            slice(11, Layer::Syscall, Reason::Other, 250, 900),
            slice(11, Layer::RunQueue, Reason::RunQueue, 900, 940),
            slice(11, Layer::Database, Reason::Cpu, 940, 980),
            slice(12, Layer::Database, Reason::Cpu, 1010, 1110),
            slice(13, Layer::Database, Reason::Cpu, 2000, 2100),
        ]),
        files: vec![
            File { id: JOURNAL_FILE, dev: 1, ino: 501, path: Some("/mnt/t.db-journal".into()), start_ns: 0 },
            File { id: DATABASE_FILE, dev: 1, ino: 500, path: Some("/mnt/t.db".into()), start_ns: 0 },
            File { id: PIPE_FILE, dev: 1, ino: 77, path: Some("pipe:[77]".into()), start_ns: 0 },
            File { id: UNNAMED_FILE, dev: 1, ino: 78, path: None, start_ns: 0 },
        ],
        processes: [(100, "insert", true), (200, "other", false), (400, "fathom", false)]
            .map(|(tgid, name, tracked)| Process { tgid, name: name.into(), parent: None, tracked })
            .into(),
        disks: vec![
            Disk { dev: upper.0, name: "loop0".into(), below: "vda".into(), holds_files: true },
            Disk { dev: lower.0, name: "vda".into(), below: String::new(), holds_files: false },
        ],
        checks: Vec::new(),
        losses: vec![LossRow {
            id: 1,
            source: LossSource::Ring,
            cpu: Some(1),
            start_ns: at_us(100),
            end_ns: at_us(110),
            events: Some(3),
            at_least: false,
            program: None,
        }],
        coverage: vec![
            Coverage::attached(Layer::Database, "sqlite3_step", "uprobe"),
            Coverage::absent(Layer::FileSystem, "ext4_*", Absence::Failed, "no such tracepoint"),
        ],
        facts: vec![FactRow {
            name: "kernel.release".into(),
            value: Some("6.1.0".into()),
            unknown: None,
            unit: None,
            source: "uname".into(),
            varies: "boot".into(),
        }],
    }
}

/// A sleep of the first INSERT.
fn stack(kind: &'static str, functions: &str, ended: Option<&'static str>) -> StackRow {
    StackRow {
        tgid: 100,
        tid: 100,
        start_ns: at_us(250),
        end_ns: at_us(900),
        operation: Some(11),
        span: None,
        kind: kind.into(),
        functions: functions.into(),
        places: String::new(),
        ended: ended.map(Into::into),
    }
}
