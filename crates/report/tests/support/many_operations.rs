//! A synthetic recording with any number of operations: each an INSERT with one call and one device command. An operation's
//! latency does not depend on when it ran.

use analysis::Rows;
use model::table::{Cause, Disk, Link, Operation, Process, Shape, Span};
use model::{Confidence, Layer, Origin, Relation};

/// Time from the start of one operation to the start of the next.
const PERIOD_NS: u64 = 100_000;
const ORIGIN_NS: u64 = 7_000_000_000_000;
const DISK_DEV: u32 = 254 << 20;

/// Returns the ID of the operation's call.
pub fn call_id(operation: u64) -> u64 {
    operation * 3 + 1
}
/// Returns the ID of its command.
pub fn command_id(operation: u64) -> u64 {
    operation * 3 + 2
}

/// Returns its latency: no two of 20,000 are equal.
fn latency_ns(operation: u64) -> u64 {
    70_000 + operation * 7919 % 20_011
}

/// Returns its latency as formatted by the page.
pub fn latency_text(operation: u64) -> String {
    format!("{:.1} µs", latency_ns(operation) as f64 / 1e3)
}

/// Returns the slowest of this many operations.
pub fn slowest_operation(operations: u64) -> u64 {
    (0..operations).max_by_key(|&at| latency_ns(at)).unwrap_or(0)
}

/// Returns the fastest one.
pub fn fastest_operation(operations: u64) -> u64 {
    (0..operations).min_by_key(|&at| latency_ns(at)).unwrap_or(0)
}

/// Returns its time window, relative to the first one's start.
pub fn window_of(operation: u64) -> (u64, u64) {
    (operation * PERIOD_NS, operation * PERIOD_NS + latency_ns(operation))
}

/// Builds the recording.
pub fn make_rows(operations: u64) -> Rows {
    let mut rows = Rows {
        shapes: vec![Shape { id: 1, kind: "statement".into(), text: "INSERT INTO many VALUES (?)".into() }],
        processes: vec![Process { tgid: 50, name: "many".into(), parent: None, tracked: true }],
        disks: vec![Disk { dev: DISK_DEV, name: "vda".into(), below: String::new(), holds_files: true }],
        ..Rows::default()
    };
    for at in 0..operations {
        let (start, end) = (ORIGIN_NS + at * PERIOD_NS, ORIGIN_NS + at * PERIOD_NS + latency_ns(at));
        let step = at * 3;
        let span = |id: u64, layer: Layer, kind: &'static str, start_ns: u64, end_ns: u64| Span {
            id,
            layer,
            kind: kind.into(),
            start_ns,
            end_ns: Some(end_ns),
            tgid: 50,
            tid: 50,
            operation: (layer != Layer::Driver).then_some(at),
            file: None,
            offset: None,
            disk: None,
            sector: None,
            bytes: 0,
            result: None,
            number: None,
            cache_added: None,
            flags: "".into(),
        };
        rows.spans.push(span(step, Layer::Database, "step", start, end));
        rows.spans.push(span(call_id(at), Layer::Syscall, "pwrite64", start + 1_000, end - 1_000));
        rows.spans.push(Span {
            disk: Some(DISK_DEV),
            sector: Some(2048 + at * 8),
            bytes: 4096,
            flags: "write".into(),
            ..span(command_id(at), Layer::Driver, "write", start + 2_000, end - 2_000)
        });
        for (parent, child) in [(step, call_id(at)), (call_id(at), command_id(at))] {
            rows.links.push(Link {
                parent,
                child,
                relation: Relation::Calls,
                confidence: Confidence::Structural,
                weakened_by: None,
            });
        }
        rows.causes.push(Cause {
            command: command_id(at),
            origin: Origin::Operation,
            operation: Some(at),
            tgid: Some(50),
            share: 1.0,
            confidence: Confidence::Structural,
            via: "thread".into(),
        });
        rows.operations.push(Operation {
            id: at,
            span: step,
            shape: 1,
            nth: at,
            parent: None,
            tgid: 50,
            tid: 50,
            start_ns: start,
            end_ns: Some(end),
            inside_ns: end - start,
            rows: 0,
            steps: Some(1),
            result: Some(101),
        });
    }
    rows
}
