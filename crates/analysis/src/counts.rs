//! The counts of paper 004 as rows of a table, from the application down: the same for the terminal and the page.

use crate::contract::Summary;
use crate::text::shown;
use model::Layer;
use serde::Serialize;
use sqlite::FileClass;

/// The counts of paper 004 for each statement, as rows of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counts {
    /// Statements in the summary's order.
    pub statements: Vec<StatementCounts>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatementCounts {
    /// Text.
    pub statement: String,
    /// Executions.
    pub count: u64,
    /// Counts from the application down.
    pub rows: Vec<CountRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CountRow {
    pub layer: &'static str,
    /// What is counted.
    pub name: String,
    pub class: Option<FileClass>,
    /// Mean per execution.
    pub count: f64,
    /// Mean bytes per execution.
    pub bytes: Option<f64>,
    /// Remark.
    pub note: String,
}

/// The tables of counts.
pub fn counts(summary: &Summary) -> Counts {
    let statements = summary.operations.iter().map(|operation| {
        let (per, own) = (&operation.per_operation, &operation.own);
        let mut rows = Vec::new();
        let mut add = |layer: Layer, name: &str, class, count: f64, bytes, note: String| {
            if count > 0.0 {
                rows.push(CountRow { layer: layer.name(), name: name.into(), class, count, bytes, note });
            }
        };
        add(Layer::Syscall, "recorded system calls", None, per.syscalls, None, own_note(per.syscalls, own.syscalls));
        add(Layer::Syscall, "fsync, fdatasync", None, per.fsyncs, None, own_note(per.fsyncs, own.fsyncs));
        for (class, writes) in &per.filesystem_writes {
            let note = format!("{} {} in all", writes.inodes, if writes.inodes == 1 { "inode" } else { "inodes" });
            add(Layer::FileSystem, "writes", Some(*class), writes.count, Some(writes.bytes), note);
        }
        for (class, reads) in &per.filesystem_reads {
            let note = if reads.count > 0.0 {
                format!("{:.0} % from cache", (100.0 * reads.cache_hits / reads.count).floor())
            } else {
                String::new()
            };
            add(Layer::FileSystem, "reads", Some(*class), reads.count, Some(reads.bytes), note);
            add(Layer::FileSystem, "page-cache misses (pages)", Some(*class), reads.pages_added, None, String::new());
        }
        add(
            Layer::FileSystem,
            "journal commits",
            None,
            per.journal_commits,
            None,
            touched_note(per.touched.journal_commits, per.journal_commits, own.journal_commits),
        );
        let bios = touched_note(per.touched.bios, per.bios, own.bios);
        add(Layer::Block, "bios", None, per.bios, Some(per.block_bytes), bios);
        add(Layer::IoScheduler, "merges", None, per.merges, None, String::new());
        let requests = touched_note(per.touched.requests, per.requests, own.requests);
        add(Layer::Driver, "requests", None, per.requests, Some(per.device_bytes), requests);
        add(Layer::Driver, "discards", None, per.discards, None, own_note(per.discards, own.discards));
        let flushes = touched_note(per.touched.flushes, per.flushes, own.flushes);
        add(Layer::Driver, "flushes", None, per.flushes, None, flushes);
        StatementCounts { statement: shown(&operation.statement), count: operation.count, rows }
    });
    Counts { statements: statements.collect() }
}

/// Returns the operation's own part of a count, if operations inside it contribute to it.
fn own_note(all: f64, own: f64) -> String {
    if all - own > 0.005 { format!("own {own:.2}") } else { String::new() }
}

fn touched_note(touched: f64, all: f64, own: f64) -> String {
    match own_note(all, own) {
        own if own.is_empty() => format!("touches {touched:.2}"),
        own => format!("{own}, touches {touched:.2}"),
    }
}
