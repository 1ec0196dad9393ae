//! Handmade recordings for tests: every time is known, so that every figure can be calculated.

use crate::contract::Trace;
use crate::rows::Rows;
use model::table::{Cause, Coverage, Disk, File, Link, Operation, Shape, Slice, Span};
use model::{Confidence, Layer, Origin, Reason, Relation};

pub const INSERT_STATEMENT: &str = "INSERT INTO t VALUES (?)";
pub const DISK_DEV: u32 = 7 << 20;
pub const JOURNAL_FILE: u64 = 1;
pub const DATABASE_FILE: u64 = 2;
pub const DIRECTORY_FILE: u64 = 3;

/// A system call of an execution: name, file, time, bytes; a sync waits for a flush for half of its time.
pub type CallSpec = (&'static str, u64, u64, u64);

/// One execution: its calls, and the time outside calls, before each of them and at the end.
#[derive(Debug, Clone, Default)]
pub struct Execution {
    pub outside_ns: u64,
    pub calls: Vec<CallSpec>,
}

/// A recording of one statement.
pub fn recording(executions: &[Execution]) -> Rows {
    let mut rows = Rows {
        trace: Trace { command: vec!["./insert".into()], complete: true, ..Trace::default() },
        shapes: vec![Shape { id: 1, kind: "statement".into(), text: INSERT_STATEMENT.into() }],
        files: [(JOURNAL_FILE, Some("/m/t.db-journal")), (DATABASE_FILE, Some("/m/t.db")), (DIRECTORY_FILE, None)]
            .map(|(id, path)| File { id, dev: 1, ino: id, path: path.map(Into::into), start_ns: 0 })
            .into(),
        disks: vec![Disk { dev: DISK_DEV, name: "loop0".into(), below: String::new(), holds_files: true }],
        coverage: vec![Coverage::attached(Layer::Database, "sqlite3_step", "uprobe")],
        ..Rows::default()
    };
    let mut now = 1_000_000;
    let mut id = 0;
    let mut next = || {
        id += 1;
        id
    };
    for (nth, execution) in executions.iter().enumerate() {
        let operation = next();
        let start = now;
        let mut slices = Vec::new();
        let slice = |layer, reason, start_ns, end_ns| Slice::new(operation, layer, reason, start_ns, end_ns);
        for &(kind, file, ns, bytes) in &execution.calls {
            slices.push(slice(Layer::Database, Reason::Cpu, now, now + execution.outside_ns));
            now += execution.outside_ns;
            let span = Span {
                id: next(),
                layer: Layer::Syscall,
                kind: kind.into(),
                start_ns: now,
                end_ns: Some(now + ns),
                tgid: 5,
                tid: 5,
                operation: Some(operation),
                file: Some(file),
                offset: Some(0),
                disk: None,
                sector: None,
                bytes,
                result: Some(bytes as i64),
                number: None,
                cache_added: None,
                flags: "".into(),
            };
            if kind.contains("sync") {
                let flush = Span {
                    id: next(),
                    layer: Layer::Driver,
                    kind: "flush".into(),
                    file: None,
                    offset: None,
                    disk: Some(DISK_DEV),
                    operation: None,
                    flags: "flush".into(),
                    ..span.clone()
                };
                rows.causes.push(Cause {
                    command: flush.id,
                    origin: Origin::Operation,
                    operation: Some(operation),
                    tgid: Some(5),
                    share: 1.0,
                    confidence: Confidence::Exact,
                    via: "flush".into(),
                });
                rows.links.push(Link {
                    parent: span.id,
                    child: flush.id,
                    relation: Relation::WaitsForFlush,
                    confidence: Confidence::Exact,
                    weakened_by: None,
                });
                slices.push(slice(Layer::Syscall, Reason::Cpu, now, now + ns / 2));
                slices.push(slice(Layer::Driver, Reason::Flush, now + ns / 2, now + ns));
                rows.spans.push(flush);
            } else {
                slices.push(slice(Layer::Syscall, Reason::Cpu, now, now + ns));
            }
            rows.spans.push(span);
            now += ns;
        }
        slices.push(slice(Layer::Database, Reason::Cpu, now, now + execution.outside_ns));
        now += execution.outside_ns;
        rows.slices.extend(slices);
        rows.operations.push(Operation {
            id: operation,
            span: operation,
            shape: 1,
            nth: nth as u64,
            parent: None,
            tgid: 5,
            tid: 5,
            start_ns: start,
            end_ns: Some(now),
            inside_ns: now - start,
            rows: 0,
            steps: Some(1),
            result: Some(101),
        });
        now += 1000;
    }
    rows
}

/// A journal written and synced, then the database: 10 + 100 + 20 + 200 us in calls, 5 x 2 us outside.
pub fn insert() -> Execution {
    Execution {
        outside_ns: 2_000,
        calls: vec![
            ("pwrite64", JOURNAL_FILE, 10_000, 512),
            ("fdatasync", JOURNAL_FILE, 100_000, 0),
            ("pwrite64", DATABASE_FILE, 20_000, 4096),
            ("fdatasync", DATABASE_FILE, 200_000, 0),
        ],
    }
}
