//! Formats rows as readable lines: for test cases and for inspecting an archive.
//!
//! A span is written as `KIND#N` wherever it is named; lines are ordered by table and identity, so that two results can be
//! compared as text regardless of the order of their rows.

use crate::Sink;
use model::table::{
    Cause, DriverCommand, File, Link, LossRow, Operation, Process, Shape, Slice, Span, StatementCounters, ThreadTime,
    TraceContext,
};
use model::{Dev, Event};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A sink that keeps everything.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Rows {
    /// Operations.
    pub operations: Vec<Operation>,
    /// Shapes.
    pub shapes: Vec<Shape>,
    /// Trace contexts.
    pub contexts: Vec<TraceContext>,
    /// SQLite's counters.
    pub counters: Vec<StatementCounters>,
    /// Spans.
    pub spans: Vec<Span>,
    /// Links.
    pub links: Vec<Link>,
    /// Causes.
    pub causes: Vec<Cause>,
    /// Commands of drivers.
    pub driver_commands: Vec<DriverCommand>,
    /// Slices.
    pub slices: Vec<Slice>,
    /// Times of threads outside operations.
    pub thread_times: Vec<ThreadTime>,
    /// Files.
    pub files: Vec<File>,
    /// Processes.
    pub processes: Vec<Process>,
    /// Losses.
    pub losses: Vec<LossRow>,
}

impl Sink for Rows {
    fn operation(&mut self, row: Operation) {
        self.operations.push(row);
    }
    fn shape(&mut self, row: Shape) {
        self.shapes.push(row);
    }
    fn context(&mut self, row: TraceContext) {
        self.contexts.push(row);
    }
    fn counters(&mut self, row: StatementCounters) {
        self.counters.push(row);
    }
    fn span(&mut self, row: Span) {
        self.spans.push(row);
    }
    fn link(&mut self, row: Link) {
        self.links.push(row);
    }
    fn cause(&mut self, row: Cause) {
        self.causes.push(row);
    }
    fn driver_command(&mut self, row: DriverCommand) {
        self.driver_commands.push(row);
    }
    fn slice(&mut self, row: Slice) {
        self.slices.push(row);
    }
    fn thread_time(&mut self, row: ThreadTime) {
        self.thread_times.push(row);
    }
    fn file(&mut self, row: File) {
        self.files.push(row);
    }
    fn process(&mut self, row: Process) {
        self.processes.push(row);
    }
    fn loss(&mut self, row: LossRow) {
        self.losses.push(row);
    }
}

/// Links events with `config` and keeps all rows.
pub fn link(config: crate::Config, events: impl IntoIterator<Item = Event>) -> Rows {
    let mut rows = Rows::default();
    let mut linker = crate::Linker::new(config);
    events.into_iter().for_each(|e| linker.push(e, &mut rows));
    linker.finish(&mut rows);
    rows
}

/// As [`link`], checking the linker's state after each event: for tests and fuzz targets.
pub fn link_checked(config: crate::Config, events: impl IntoIterator<Item = Event>) -> Rows {
    let mut rows = Rows::default();
    let mut linker = crate::Linker::new(config);
    for event in events {
        linker.push(event, &mut rows);
        linker.check_invariants();
    }
    linker.finish(&mut rows);
    rows
}

impl Rows {
    /// All rows as lines.
    pub fn to_text(&self) -> String {
        let kinds: BTreeMap<u64, &str> = self.spans.iter().map(|s| (s.id, s.kind.as_ref())).collect();
        let name = |id: u64| format!("{}#{id}", kinds.get(&id).unwrap_or(&"?"));
        let time = |start: u64, end: Option<u64>| match end {
            Some(end) => format!("[{start}..{end}]"),
            None => format!("[{start}..?]"),
        };
        let mut lines: Vec<(u8, u64, u64, String)> = Vec::new();
        let mut put = |table: u8, major: u64, minor: u64, line: String| lines.push((table, major, minor, line));
        for s in &self.shapes {
            put(0, s.id, 0, format!("shape {} {} {:?}", s.id, s.kind, s.text));
        }
        for o in &self.operations {
            let mut line = format!(
                "operation {} {} shape {} nth {} {}/{} {} inside {} rows {}",
                o.id,
                name(o.span),
                o.shape,
                o.nth,
                o.tgid,
                o.tid,
                time(o.start_ns, o.end_ns),
                o.inside_ns,
                o.rows
            );
            put_option(&mut line, "result", o.result);
            put_option(&mut line, "parent", o.parent);
            put(1, o.id, 0, line);
        }
        for c in &self.contexts {
            put(1, c.operation, 1, format!("context {} {}", c.operation, c.traceparent));
        }
        for c in &self.counters {
            let mut line = format!("counters {}", c.operation);
            put_option(&mut line, "fullscan_steps", c.fullscan_steps);
            put_option(&mut line, "sorts", c.sorts);
            put_option(&mut line, "autoindex_rows", c.autoindex_rows);
            put_option(&mut line, "vm_steps", c.vm_steps);
            put_option(&mut line, "reprepares", c.reprepares);
            put_option(&mut line, "runs", c.runs);
            put_option(&mut line, "cache_hits", c.cache_hits);
            put_option(&mut line, "cache_misses", c.cache_misses);
            put_option(&mut line, "cache_writes", c.cache_writes);
            put_option(&mut line, "cache_spills", c.cache_spills);
            put(1, c.operation, 2, line);
        }
        for f in &self.files {
            put(2, f.id, 0, format!("file {} {} {} {:?} @{}", f.id, Dev(f.dev), f.ino, f.path, f.start_ns));
        }
        for s in &self.spans {
            let mut line = format!("span {} {} {}", name(s.id), s.layer, time(s.start_ns, s.end_ns));
            if s.tid != 0 {
                let _ = write!(line, " {}/{}", s.tgid, s.tid);
            }
            put_option(&mut line, "op", s.operation);
            put_option(&mut line, "file", s.file);
            put_option(&mut line, "offset", s.offset);
            put_option(&mut line, "disk", s.disk.map(Dev));
            put_option(&mut line, "sector", s.sector);
            if s.bytes != 0 {
                let _ = write!(line, " bytes {}", s.bytes);
            }
            put_option(&mut line, "result", s.result);
            put_option(&mut line, "number", s.number);
            put_option(&mut line, "cache_added", s.cache_added);
            if !s.flags.is_empty() {
                let _ = write!(line, " ({})", s.flags);
            }
            put(3, s.id, 0, line);
        }
        for l in &self.links {
            let mut line = format!("link {} -> {} {}, {}", name(l.parent), name(l.child), l.relation, l.confidence);
            put_option(&mut line, "weakened by loss", l.weakened_by);
            put(4, l.child, l.parent, line);
        }
        for c in &self.causes {
            let mut line = format!("cause {} {:.4} {}", name(c.command), c.share, c.origin);
            put_option(&mut line, "", c.operation);
            put_option(&mut line, "tgid", c.tgid);
            let _ = write!(line, " via {}, {}", c.via, c.confidence);
            put(5, c.command, c.operation.unwrap_or(0), line);
        }
        for (at, d) in self.driver_commands.iter().enumerate() {
            let of = d.command.map_or_else(|| "no request".into(), name);
            let sure = d.confidence.map_or(String::new(), |c| format!(", {c}"));
            let mut line = format!("{} {} {} of {of}{sure}", d.protocol, d.name, time(d.start_ns, d.end_ns));
            put_option(&mut line, "disk", d.disk.map(Dev));
            put_option(&mut line, "lba", d.lba);
            put_option(&mut line, "blocks", d.blocks);
            if d.bytes != 0 {
                let _ = write!(line, " bytes {}", d.bytes);
            }
            line.push_str(if d.timed_out { " timed out" } else { "" });
            put_option(&mut line, "error", d.error.as_ref().map(|e| format!("{e:?}")));
            put(6, d.start_ns, at as u64, line);
        }
        for s in &self.slices {
            let who = s.span.map_or(String::new(), |id| format!(" {}", name(id)));
            let sure = s.confidence.map_or(String::new(), |c| format!(", {c}"));
            let when = time(s.start_ns, Some(s.end_ns));
            let mut line = format!("slice {} {when} {}, {}{who}{sure}", s.operation, s.layer, s.reason);
            put_option(&mut line, "wait", s.wait);
            put_option(&mut line, "by", s.by_tgid);
            put_option(&mut line, "by op", s.by_operation);
            put_option(&mut line, "file", s.wait_file);
            put(7, s.operation, s.start_ns, line);
        }
        for p in &self.processes {
            let mut line = format!("process {} {:?}", p.tgid, p.name);
            put_option(&mut line, "parent", p.parent);
            line.push_str(if p.tracked { " tracked" } else { "" });
            put(8, p.tgid.into(), 0, line);
        }
        for l in &self.losses {
            let mut line = format!("loss {} {} {}", l.id, l.source, time(l.start_ns, Some(l.end_ns)));
            put_option(&mut line, "cpu", l.cpu);
            put_option(&mut line, if l.at_least { "at least" } else { "exactly" }, l.events);
            put_option(&mut line, "program", l.program.as_ref());
            put(9, l.id, 0, line);
        }
        lines.sort();
        lines.into_iter().map(|l| l.3 + "\n").collect()
    }
}

fn put_option<T: std::fmt::Display>(line: &mut String, word: &str, value: Option<T>) {
    if let Some(value) = value {
        let space = if word.is_empty() { "" } else { " " };
        let _ = write!(line, " {word}{space}{value}");
    }
}
