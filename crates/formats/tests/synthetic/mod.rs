//! A synthetic trace with everything that is hard to draw: crossing statements, commands in flight together, a flush
//! with several waiters, an end that was not seen, spans of zero length, a child that began before its parent.

use formats::perfetto::{Clocks, Tables};
use model::table::{Cause, Disk, DriverCommand, File, Link, LossRow, Operation, Process, Shape, Slice, Span};
use model::{Confidence, Layer, LossSource, Origin, Reason, Relation};

/// The rows, to be borrowed as [`Tables`].
#[derive(Default)]
pub struct Made {
    pub operations: Vec<Operation>,
    pub shapes: Vec<Shape>,
    pub spans: Vec<Span>,
    pub links: Vec<Link>,
    pub causes: Vec<Cause>,
    pub driver_commands: Vec<DriverCommand>,
    pub slices: Vec<Slice>,
    pub files: Vec<File>,
    pub processes: Vec<Process>,
    pub disks: Vec<Disk>,
    pub losses: Vec<LossRow>,
}

pub const DISK: u32 = 7 << 20;

impl Made {
    pub fn tables(&self) -> Tables<'_> {
        Tables {
            operations: &self.operations,
            shapes: &self.shapes,
            spans: &self.spans,
            links: &self.links,
            causes: &self.causes,
            driver_commands: &self.driver_commands,
            slices: &self.slices,
            files: &self.files,
            processes: &self.processes,
            disks: &self.disks,
            losses: &self.losses,
            clocks: Some(Clocks { boottime_ns: 1_000, monotonic_ns: 900, realtime_ns: 1_700_000_000_000_000_000 }),
        }
    }

    /// Adds a span and returns its number.
    pub fn span(&mut self, layer: Layer, kind: &'static str, start_ns: u64, end_ns: Option<u64>) -> u64 {
        let id = self.spans.len() as u64 + 1;
        let of_disk = matches!(layer, Layer::Block | Layer::IoScheduler | Layer::Driver);
        self.spans.push(Span {
            id,
            layer,
            kind: kind.into(),
            start_ns,
            end_ns,
            tgid: if of_disk { 0 } else { 100 },
            tid: if of_disk { 0 } else { 101 },
            operation: None,
            file: (layer == Layer::Syscall).then_some(1),
            offset: (layer == Layer::Syscall).then_some(4096),
            disk: of_disk.then_some(DISK),
            sector: of_disk.then_some(id * 8),
            bytes: 4096,
            result: Some(-5),
            number: None,
            cache_added: None,
            flags: "sync meta".into(),
        });
        id
    }

    pub fn link(&mut self, parent: u64, child: u64, relation: Relation) {
        self.links.push(Link { parent, child, relation, confidence: Confidence::Structural, weakened_by: None });
    }
}

/// INSERTs, `n` of them, each with a write, a bio and a command, all commands in flight together with the next one's.
pub fn inserts(n: u64) -> Made {
    let mut t = Made::default();
    t.shapes.push(Shape {
        id: 1,
        kind: "statement".into(),
        text: "INSERT INTO \"t<b>\" VALUES (?, ?) -- \u{1}\n'é".into(),
    });
    t.files.push(File { id: 1, dev: 9, ino: 12, path: Some("/tmp/a b.db".into()), start_ns: 0 });
    t.processes.push(Process { tgid: 100, name: "sqlite3".into(), parent: Some(1), tracked: true });
    t.disks.push(Disk { dev: DISK, name: "loop0".into(), below: "vda".into(), holds_files: true });
    for nth in 0..n {
        let at = 10_000 + nth * 1_000;
        let database = t.span(Layer::Database, "step", at, Some(at + 900));
        let write = t.span(Layer::Syscall, "pwrite64", at + 100, Some(at + 800));
        let bio = t.span(Layer::Block, "bio", at + 200, Some(at + 1_700));
        let command = t.span(Layer::Driver, "request", at + 300, Some(at + 1_600));
        t.operations.push(Operation {
            id: nth + 1,
            span: database,
            shape: 1,
            nth,
            parent: None,
            tgid: 100,
            tid: 101,
            start_ns: at,
            end_ns: Some(at + 900),
            inside_ns: 900,
            rows: 0,
            steps: None,
            result: Some(101),
        });
        t.spans[write as usize - 1].operation = Some(nth + 1);
        t.link(database, write, Relation::Calls);
        t.link(write, bio, Relation::Calls);
        t.link(bio, command, Relation::Carries);
        t.causes.push(Cause {
            command,
            origin: Origin::Operation,
            operation: Some(nth + 1),
            tgid: Some(100),
            share: 1.0,
            confidence: Confidence::Structural,
            via: "page".into(),
        });
        for (layer, reason, start_ns, end_ns) in
            [(Layer::Database, Reason::Cpu, at, at + 300), (Layer::Driver, Reason::Device, at + 300, at + 900)]
        {
            t.slices.push(Slice { span: Some(command), ..Slice::new(nth + 1, layer, reason, start_ns, end_ns) });
        }
    }
    t
}

/// The hard cases, after some INSERTs.
pub fn everything() -> Made {
    let mut t = inserts(20);
    // Statements that cross: one is stepped while another's rows are still coming.
    t.span(Layer::Database, "step", 50_000, Some(52_000));
    t.span(Layer::Database, "step", 51_000, Some(53_000));
    // A call of zero length, and one that ends together with its outer one.
    t.span(Layer::Syscall, "lseek", 51_500, Some(51_500));
    t.span(Layer::Syscall, "pread64", 52_900, Some(53_000));
    // A flush that is in flight when the last of its forty waiters arrives, which is more than are drawn.
    let flush = t.span(Layer::Driver, "flush", 60_000, Some(70_000));
    for i in 0..40 {
        let waiter = t.span(Layer::Syscall, "fsync", 60_000 - 20 + i * 2, Some(71_000 + i));
        t.link(waiter, flush, Relation::WaitsForFlush);
    }
    // A span cut off by the end of the trace, and a link to a missing span.
    let open = t.span(Layer::Driver, "request", 72_000, None);
    t.link(open, 9_999, Relation::Retries);
    // A contradictory row.
    t.span(Layer::Block, "bio", 73_000, Some(72_000));
    // Without a thread and a disk.
    t.span(Layer::FileSystem, "commit", 74_000, Some(75_000));
    let last = t.spans.len() - 1;
    (t.spans[last].tgid, t.spans[last].tid) = (0, 0);
    t.losses.push(LossRow {
        id: 1,
        source: LossSource::Ring,
        cpu: Some(1),
        start_ns: 55_000,
        end_ns: 56_000,
        events: Some(7),
        at_least: true,
        program: Some("block_rq_issue".into()),
    });
    t
}
