//! The tables of an archive, declared once: the Parquet schema, the writer, the reader and the manual's page all come
//! from the lists below, so that a new column is one line.

pub use crate::column::{Cell, Column, ColumnInfo, ColumnType, Row, TableInfo};
use crate::column::{Texts, position};
use crate::packed::PackedTable;
use crate::words::{
    Absence, Confidence, Layer, LossSource, Origin, Reason, Relation, ShapeKind, SpanFlag, SpanKind, Wait,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Version of the tables below; stored in every archive. Incremented by a change that an old reader would misread.
pub const TABLE_VERSION: u32 = 3;

macro_rules! tables {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $Type:ident { $( $(#[doc = $cdoc:literal])+ $column:ident : $ty:ty ),* $(,)? }
    )*) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            pub struct $Type { $( $(#[doc = $cdoc])+ pub $column: $ty, )* }
            impl Row for $Type {
                const TABLE: TableInfo = TableInfo {
                    name: stringify!($name),
                    doc: concat!($($doc),+),
                    columns: &[$( ColumnInfo {
                        name: stringify!($column),
                        kind: <$ty as Column>::KIND,
                        optional: <$ty as Column>::OPTIONAL,
                        doc: concat!($($cdoc),+),
                    } ),*],
                };
                const RANGES: &'static [(i64, i64)] = &[$( <$ty as Column>::RANGE ),*];
                fn cells(&self) -> Vec<Cell> {
                    vec![$( self.$column.to_cell() ),*]
                }
                #[allow(unused_assignments)]
                fn from_cells(cells: &[Cell]) -> Option<Self> {
                    let mut at = 0;
                    $( let $column = <$ty as Column>::from_cell(cells.get(at)?)?; at += 1; )*
                    Some(Self { $($column),* })
                }
                fn numbers(&self, texts: &mut [Texts], each: &mut dyn FnMut(Option<i64>)) {
                    $( {
                        const AT: usize = position(<$Type as Row>::TABLE.columns, stringify!($column));
                        each(self.$column.to_number(&mut texts[AT]));
                    } )*
                }
                #[inline]
                fn from_numbers(number: &impl Fn(usize) -> Option<i64>, texts: &[Texts]) -> Self {
                    Self { $( $column: {
                        const AT: usize = position(<$Type as Row>::TABLE.columns, stringify!($column));
                        <$ty as Column>::from_number(number(AT), &texts[AT])
                    } ),* }
                }
                fn number_of(column: usize, cell: &Cell, texts: &mut Texts) -> Option<Option<i64>> {
                    $(
                        if column == const { position(<$Type as Row>::TABLE.columns, stringify!($column)) } {
                            return <$ty as Column>::number_of(cell, texts);
                        }
                    )*
                    None
                }
            }
            impl PackedTable<$Type> {
                $(
                    $(#[doc = $cdoc])+
                    #[inline]
                    pub fn $column(&self, row: usize) -> $ty {
                        const AT: usize = position(<$Type as Row>::TABLE.columns, stringify!($column));
                        <$ty as Column>::from_number(self.number_at(AT, row), self.texts_of(AT))
                    }
                )*
            }
        )*
        /// Every table, in the order of declaration.
        pub const TABLES: &[TableInfo] = &[$( $Type::TABLE ),*];
    };
}

tables! {
    /// One execution of what the user asks about: an SQL statement, a function named by --op, a mark of the program's own, or a
    /// transaction inferred from SQLite's files.
    operations Operation {
        /// Identity within the archive.
        id: u64,
        /// Its span.
        span: u64,
        /// Its shape (`shapes.id`).
        shape: u64,
        /// Its ordinal among the executions of its shape, from 0.
        nth: u64,
        /// The operation it ran inside, on the same thread.
        parent: Option<u64>,
        /// Process.
        tgid: u32,
        /// Thread.
        tid: u32,
        /// Start, CLOCK_BOOTTIME.
        start_ns: u64,
        /// End; empty if the trace or the process ended first.
        end_ns: Option<u64>,
        /// Time inside the database's calls; less than end - start if the application spent time between rows.
        inside_ns: u64,
        /// Rows returned; 0 for an execution without an end, of which they are unknown.
        rows: u64,
        /// Calls of `sqlite3_step`, or of the function (several if it recurses); each costs the recording two traps. Empty if not
        /// counted: marks, inferred transactions, executions without an end, older archives.
        steps: Option<u64>,
        /// Result code.
        result: Option<i64>,
    }
    /// The trace context that an application passed with an operation (`traceparent` of W3C's Trace Context, in a comment of the
    /// statement as sqlcommenter writes it).
    contexts TraceContext {
        /// Operation.
        operation: u64,
        /// The application's `traceparent`: `00-TRACE-SPAN-FLAGS`.
        traceparent: String,
    }
    /// What SQLite itself counted during an execution of a statement: how far its counters (`sqlite3_stmt_status`,
    /// `sqlite3_db_status`) grew. Executions without a row were not counted: recorded by uprobes, or of a SQLite whose functions
    /// were not found (the fact `sqlite.counters` says which). Older versions of SQLite lack some counters; those of the page cache are
    /// also empty while a database is attached, and for the first executions of a process.
    statement_counters StatementCounters {
        /// Operation.
        operation: u64,
        /// Steps forward in a table or index as part of a full scan (SQLITE_STMTSTATUS_FULLSCAN_STEP).
        fullscan_steps: Option<u64>,
        /// Sorts (SORT).
        sorts: Option<u64>,
        /// Rows inserted into automatic indices (AUTOINDEX).
        autoindex_rows: Option<u64>,
        /// Instructions of SQLite's virtual machine (VM_STEP).
        vm_steps: Option<u64>,
        /// Times that the statement was prepared again, since the schema had changed (REPREPARE).
        reprepares: Option<u64>,
        /// Times that a program began: the statement's, and each of a trigger or a foreign-key action (RUN).
        runs: Option<u64>,
        /// Pages found in the connection's cache (SQLITE_DBSTATUS_CACHE_HIT).
        cache_hits: Option<u64>,
        /// Pages that had to be read (CACHE_MISS).
        cache_misses: Option<u64>,
        /// Pages written from the cache (CACHE_WRITE).
        cache_writes: Option<u64>,
        /// Pages written in the middle of a transaction, since the cache was full (CACHE_SPILL).
        cache_spills: Option<u64>,
    }
    /// A statement with its literals replaced, or the name of a function, mark or transaction.
    shapes Shape {
        /// Identity within the archive.
        id: u64,
        /// `statement`, `function`, `mark`, `call` (a system call of a program without operations of its own) or `transaction` (inferred
        /// from SQLite's files).
        kind: Cow<'static, str>,
        /// The text.
        text: String,
    }
    /// An interval on one layer.
    spans Span {
        /// Identity within the archive.
        id: u64,
        /// Layer.
        layer: Layer,
        /// What it is: `step`, `prepare`, `pwrite64`, `write`, `sync`, `commit`, `bio`, `request`, `flush`, …
        kind: Cow<'static, str>,
        /// Start.
        start_ns: u64,
        /// End; empty if it was not seen.
        end_ns: Option<u64>,
        /// Process that created it (0: none).
        tgid: u32,
        /// Thread that created it (0: none).
        tid: u32,
        /// The operation in which it was created, on its own thread. `causes` has the origin of a command.
        operation: Option<u64>,
        /// File (`files.id`).
        file: Option<u64>,
        /// First byte in the file.
        offset: Option<u64>,
        /// Disk (major << 20 | minor).
        disk: Option<u32>,
        /// First sector (512 B) on the disk; empty for flushes and for commands of a driver or a program, which have none.
        sector: Option<u64>,
        /// Bytes requested or carried.
        bytes: u64,
        /// Result: bytes done, or a negative error number.
        result: Option<i64>,
        /// A number specific to its kind: the transaction of a commit, the count of a request's bios or of a flush's waiters.
        number: Option<u64>,
        /// Pages a read had to add to the page cache; empty where it does not apply.
        cache_added: Option<u32>,
        /// `sync meta preflush fua …`, or how the file was opened. `untimed`: how long the command took is not known.
        flags: Cow<'static, str>,
    }
    /// From a span to one that it caused.
    links Link {
        /// The span above.
        parent: u64,
        /// The span below.
        child: u64,
        /// Relation.
        relation: Relation,
        /// Confidence.
        confidence: Confidence,
        /// The loss that lowered its confidence (`losses.id`).
        weakened_by: Option<u64>,
    }
    /// A command as the driver sent it to the device, in the terms of its protocol.
    driver_commands DriverCommand {
        /// The device command (`spans.id`, layer Driver) that it carried out; empty if its request was not recorded.
        command: Option<u64>,
        /// Confidence of that link; empty without one.
        confidence: Option<Confidence>,
        /// The protocol: `scsi`, `nvme` or `mmc`.
        protocol: Cow<'static, str>,
        /// Its name in the protocol, such as `WRITE(10)` or `Write`.
        name: Cow<'static, str>,
        /// Disk (major << 20 | minor); empty if it went to none.
        disk: Option<u32>,
        /// First block, in the device's own block size; empty if it has none.
        lba: Option<u64>,
        /// Number of blocks, in the device's own block size.
        blocks: Option<u64>,
        /// Bytes of data that it transferred.
        bytes: u64,
        /// When the driver sent it; NVMe: prepared it, before its queue's doorbell rang for it and others.
        start_ns: u64,
        /// When it completed; empty if that was not seen.
        end_ns: Option<u64>,
        /// Whether the kernel gave up waiting for it.
        timed_out: bool,
        /// The error of the device or the driver; empty on success.
        error: Option<String>,
    }
    /// One origin of a device command. The shares of a command sum to 1.
    causes Cause {
        /// The command (`spans.id`, layer Driver).
        command: u64,
        /// Origin.
        origin: Origin,
        /// The operation, if it is one.
        operation: Option<u64>,
        /// The process, if one is known.
        tgid: Option<u32>,
        /// Fraction of the command: by bytes for data, by handles for a transaction, equal among the waiters of a flush.
        share: f64,
        /// Confidence of the weakest link of the chain.
        confidence: Confidence,
        /// How the chain reached it: `page`, `transaction`, `flush`, `thread`, …
        via: Cow<'static, str>,
    }
    /// Where an operation's time went: its slices follow each other without gap or overlap and add up to its latency.
    slices Slice {
        /// Operation.
        operation: u64,
        /// The one layer this time belongs to: the deepest that was waited on.
        layer: Layer,
        /// What the thread did or waited for.
        reason: Reason,
        /// Start.
        start_ns: u64,
        /// End.
        end_ns: u64,
        /// The span waited for or run in, if one is known.
        span: Option<u64>,
        /// Confidence of layer and span: `exact` if the thread's own records show it, lower where what a sleeping thread waited for
        /// is inferred; empty in archives without it.
        confidence: Option<Confidence>,
        /// What the thread slept for, more precisely than the reason, where the kernel shows it; for a wait for a CPU, the quota.
        wait: Option<Wait>,
        /// For a lock, the process that held it; otherwise the one that woke the thread, if it did so of its own accord.
        by_tgid: Option<u32>,
        /// The operation that this process was in.
        by_operation: Option<u64>,
        /// The locked file.
        wait_file: Option<u64>,
    }
    /// Where the time of a recorded thread went outside its operations, as sums: the rows of a thread are in groups with one start and one
    /// end, and add up to the group's time less that of the outermost operations in it.
    thread_times ThreadTime {
        /// Process.
        tgid: u32,
        /// Thread.
        tid: u32,
        /// Start of the group.
        start_ns: u64,
        /// End of the group.
        end_ns: u64,
        /// The one layer this time belongs to, as in `slices`.
        layer: Layer,
        /// What the thread did or waited for.
        reason: Reason,
        /// The recorded system call that it was in; empty outside these.
        call: Option<Cow<'static, str>>,
        /// What the thread slept for, as in `slices`.
        wait: Option<Wait>,
        /// Who held the lock or woke the thread, as in `slices`.
        by_tgid: Option<u32>,
        /// The locked file.
        wait_file: Option<u64>,
        /// The time.
        ns: u64,
        /// Number of pieces.
        times: u64,
        /// Start of the longest piece.
        longest_start_ns: u64,
        /// Its length.
        longest_ns: u64,
        /// The span that it waited for or ran in, if one is known.
        span: Option<u64>,
    }
    /// Functions on the stack of a thread that slept for long inside an operation or a recorded call, for as many of the longest
    /// sleeps as the budget allowed (facts `stacks.*`). One row has the kernel's functions, another the program's.
    stacks StackRow {
        /// Process.
        tgid: u32,
        /// Thread.
        tid: u32,
        /// When it fell asleep.
        start_ns: u64,
        /// When it ran again.
        end_ns: u64,
        /// The innermost operation it was in.
        operation: Option<u64>,
        /// The recorded system call that it was in (`spans.id`).
        span: Option<u64>,
        /// `kernel` or `program`.
        kind: Cow<'static, str>,
        /// Names of the functions, one per line, the innermost first; file and offset where there is no name.
        functions: String,
        /// Their locations, one per line: offset in the function, file, offset in the file, build ID, separated by tabs.
        places: String,
        /// Why no further function is known; empty if the outermost is known.
        ended: Option<Cow<'static, str>>,
    }
    /// A file, for as long as it had this path.
    files File {
        /// Identity within the archive.
        id: u64,
        /// File system.
        dev: u32,
        /// Inode; one of 2^63 or more, as some file systems generate them, is stored minus 2^64.
        ino: u64,
        /// Path as the process saw it; empty if unknown.
        path: Option<String>,
        /// When this path became known.
        start_ns: u64,
    }
    /// A process that appears in the trace.
    processes Process {
        /// Process.
        tgid: u32,
        /// Its name.
        name: String,
        /// Its parent.
        parent: Option<u32>,
        /// Whether it was selected for recording.
        tracked: bool,
    }
    /// A block device.
    disks Disk {
        /// Number (major << 20 | minor).
        dev: u32,
        /// Name, such as `vda`.
        name: String,
        /// What it is stacked on: the disks (or the file, for a loop disk) below, separated by spaces.
        below: String,
        /// Whether the recorded files are on it.
        holds_files: bool,
    }
    /// Something missing from the recording.
    losses LossRow {
        /// Identity within the archive.
        id: u64,
        /// What lost it.
        source: LossSource,
        /// CPU; empty if any.
        cpu: Option<u32>,
        /// Start of the interval in which it was lost.
        start_ns: u64,
        /// End of that interval.
        end_ns: u64,
        /// How many records; empty if unknown.
        events: Option<u64>,
        /// Whether `events` is a lower bound.
        at_least: bool,
        /// The program concerned, if any.
        program: Option<String>,
    }
    /// A disk's own statistics compared with what was recorded of it during an interval: whether anything is missing.
    checks CheckRow {
        /// Disk (major << 20 | minor).
        disk: u32,
        /// What is counted as completed: `reads`, `writes`, `discards`, `flushes`, `bytes read`, `bytes written`, `bytes discarded`;
        /// and among the writes, `flushes counted as writes`, which carry no data.
        what: Cow<'static, str>,
        /// How many the kernel counted; empty if unknown.
        kernel: Option<u64>,
        /// How many were recorded.
        recorded: u64,
        /// How many of these completed so close to either end of the interval that the kernel may have counted them on the other side
        /// of it.
        unsure: u64,
        /// Why the kernel's count is not known.
        unknown: Option<String>,
    }
    /// Which layers and probes were recorded.
    coverage Coverage {
        /// Layer.
        layer: Layer,
        /// Probe.
        probe: String,
        /// Whether it was attached.
        attached: bool,
        /// How it was attached, or why it is blind.
        how: String,
        /// Why it is not attached, as one of a few values. Empty if it is attached, and in archives older than this column.
        absence: Option<Absence>,
        /// How often its program ran while the kernel counted: 5 ms of each quarter of a second, in total the fact `tracer.counted`.
        /// Empty if the kernel did not count. Functions of several files may share one program.
        hits: Option<u64>,
        /// How often it could not run because it was already running on that CPU.
        misses: Option<u64>,
        /// Mean time of one run, sampled by the kernel's own statistics; empty if not measured.
        price_ns: Option<f64>,
    }
    /// A fact about the device under test.
    facts FactRow {
        /// Name.
        name: String,
        /// Value.
        value: Option<String>,
        /// Why there is none.
        unknown: Option<String>,
        /// Unit.
        unit: Option<String>,
        /// Where it was read.
        source: String,
        /// `device`, `boot` or `run`.
        varies: String,
    }
    /// A design that was run: a workload of the suite with the values chosen, or a comparison.
    designs DesignRow {
        /// Identity within the archive.
        id: u64,
        /// Name of the workload or of the comparison.
        name: String,
        /// The question it answers.
        question: String,
        /// Seed of the order; one of 2^63 or more is stored minus 2^64.
        seed: u64,
        /// Whether it was a quick run: fewer processes, smaller values.
        quick: bool,
        /// What the score is: `rate` (work in an iteration / its time), `time`, or `value` (the metric as it was printed).
        score: Cow<'static, str>,
        /// Unit of the score; empty if it follows from the samples: what `work` counts per second, or the metric's own.
        unit: Option<String>,
        /// Factor by which the score is multiplied.
        scale: f64,
        /// Direction, `higher` or `lower` is better; empty for a comparison in an archive older than this column.
        better: Option<String>,
        /// Target for half the width of each cell's interval, as a fraction; empty if blocks were fixed.
        precision: Option<f64>,
        /// Why no further block was run: `precision`, `budget`, `blocks` (the requested number), `nothing to run`; empty if it was interrupted.
        stopped: Option<String>,
        /// The cell that others are compared with; empty for a workload.
        baseline: Option<String>,
        /// The whole design as it was run, as JSON.
        design: String,
    }
    /// A combination of factors in a design.
    cells DesignCell {
        /// Identity within the archive.
        id: u64,
        /// Design.
        design: u64,
        /// Name, unique in the design.
        name: String,
        /// The factors, as JSON. Cells of two archives are the same if design name and factors are equal.
        factors: String,
        /// The command, as a JSON array.
        argv: String,
        /// The metric that the score is computed from.
        metric: Option<String>,
        /// The cell that it repeats under another name (A/A).
        same_as: Option<String>,
        /// Why it has no, or no further, replicates.
        absent: Option<String>,
    }
    /// One fresh process of a cell.
    replicates Replicate {
        /// Identity within the archive.
        id: u64,
        /// Cell.
        cell: u64,
        /// Block: one replicate of every cell, in the block's own order.
        block: u64,
        /// Position in the block.
        place: u64,
        /// Start, CLOCK_BOOTTIME.
        start_ns: u64,
        /// End.
        end_ns: u64,
        /// Start, ns since 1970 by the machine's clock, which may be wrong.
        start_unix_ns: Option<u64>,
        /// Exit status; empty if killed.
        exit: Option<i64>,
        /// Whether the workload checked its own result, and it was right.
        verified: Option<bool>,
        /// What it checked, as the workload describes it.
        verified_by: Option<String>,
        /// Whether it belongs to a warm-up block, which no estimate uses.
        warmup: bool,
        /// The archive, within this one, into which it was recorded (`--why`); no estimate uses the replicate.
        why: Option<String>,
        /// The gates before it, as JSON: by name `state` (`passed`, `failed`, `unavailable`), `value`, `unit`, `why`.
        gates: Option<String>,
        /// Why it has no result; empty if it has one.
        failure: Option<String>,
    }
    /// A fact of a run as reported by the workload or the runner: `mode` with its proof, `cache`, `inner`, `clock`, …
    marks MarkRow {
        /// Replicate; empty if it holds for the whole archive.
        replicate: Option<u64>,
        /// Name.
        name: String,
        /// The text.
        text: String,
    }
    /// One number as it was read.
    samples Sample {
        /// Replicate; empty outside a design.
        replicate: Option<u64>,
        /// Metric.
        metric: String,
        /// Unit.
        unit: String,
        /// `key=value` pairs, separated by spaces.
        labels: String,
        /// When.
        time_ns: Option<u64>,
        /// Value.
        value: f64,
    }
}

impl Shape {
    /// Whether it is of this kind.
    pub fn is(&self, kind: ShapeKind) -> bool {
        self.kind == kind.name()
    }
}

impl Span {
    /// Whether it is of this kind.
    pub fn is(&self, kind: SpanKind) -> bool {
        self.kind == kind.name()
    }

    /// Whether it has this flag.
    pub fn has(&self, flag: SpanFlag) -> bool {
        self.flags.split(' ').any(|word| word == flag.name())
    }

    /// How long it took, in ns; `None` if its begin or its end is not known. Archives made before there was the flag `untimed` have
    /// commands without an issue as commands that took no time.
    pub fn took_ns(&self) -> Option<u64> {
        let took_ns = self.end_ns?.saturating_sub(self.start_ns);
        let unissued = self.layer == Layer::Driver && self.number.is_none() && took_ns == 0;
        (!unissued && !self.has(SpanFlag::Untimed)).then_some(took_ns)
    }
}

impl PackedTable<Span> {
    /// The spans of a layer with their positions; of the others, only the layer is read.
    pub fn of_layer(&self, layer: Layer) -> impl Iterator<Item = (usize, Span)> + '_ {
        self.of_layers(move |other| other == layer)
    }

    /// The spans of several layers with their positions.
    pub fn of_layers(&self, wanted: impl Fn(Layer) -> bool) -> impl Iterator<Item = (usize, Span)> {
        let mut rows = self.in_order();
        (0..self.len()).filter(move |&at| wanted(self.layer(at))).map(move |at| (at, rows.at(at)))
    }
}

impl DriverCommand {
    /// Its name with the blocks that it names: `WRITE(10) lba 2048 + 8`.
    pub fn label(&self) -> String {
        match (self.lba, self.blocks) {
            (Some(lba), Some(blocks)) => format!("{} lba {lba} + {blocks}", self.name),
            (Some(lba), None) => format!("{} lba {lba}", self.name),
            (None, _) => self.name.to_string(),
        }
    }
}

impl Coverage {
    /// A probe that is attached, and how.
    pub fn attached(layer: Layer, probe: impl Into<String>, how: impl Into<String>) -> Self {
        let (probe, how) = (probe.into(), how.into());
        Self { layer, probe, attached: true, how, absence: None, hits: None, misses: None, price_ns: None }
    }

    /// A probe that is not attached, and why.
    pub fn absent(layer: Layer, probe: impl Into<String>, absence: Absence, why: impl Into<String>) -> Self {
        Self { attached: false, absence: Some(absence), ..Self::attached(layer, probe, why) }
    }
}

impl Slice {
    /// One of which nothing else is known.
    pub fn new(operation: u64, layer: Layer, reason: Reason, start_ns: u64, end_ns: u64) -> Self {
        Self {
            operation,
            layer,
            reason,
            start_ns,
            end_ns,
            span: None,
            confidence: None,
            wait: None,
            by_tgid: None,
            by_operation: None,
            wait_file: None,
        }
    }

    /// What the thread did or waited for, as precisely as it is known.
    pub fn why(&self) -> &'static str {
        self.wait.map_or(self.reason.name(), Wait::name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_round_trips_through_cells() {
        let row = Span {
            id: 1,
            layer: Layer::Driver,
            kind: "request".into(),
            start_ns: 5,
            end_ns: None,
            tgid: 0,
            tid: 0,
            operation: None,
            file: Some(3),
            offset: Some(4096),
            disk: Some(7 << 20),
            sector: Some(8),
            bytes: 4096,
            result: Some(-5),
            number: None,
            cache_added: None,
            flags: "sync".into(),
        };
        let cells = row.cells();
        assert_eq!(cells.len(), Span::TABLE.columns.len());
        assert_eq!(Span::from_cells(&cells), Some(row));
        assert_eq!(Span::from_cells(&cells[1..]), None);
    }

    #[test]
    fn unknown_word_is_refused() {
        assert_eq!(Confidence::from_cell(&Cell::Text("certain".into())), None);
        assert_eq!(u32::from_cell(&Cell::I64(1 << 40)), None);
        assert_eq!(u32::from_cell(&Cell::I64(-1)), None);
    }

    #[test]
    fn u64_round_trips_through_cell() {
        for n in [0, 1, 1 << 40, i64::MAX as u64, 1 << 63, u64::MAX] {
            assert_eq!(u64::from_cell(&n.to_cell()), Some(n), "{n}");
        }
    }

    #[test]
    fn table_and_column_names_are_unique() {
        for (i, t) in TABLES.iter().enumerate() {
            assert!(TABLES[i + 1..].iter().all(|o| o.name != t.name), "{}", t.name);
            for (j, c) in t.columns.iter().enumerate() {
                assert!(t.columns[j + 1..].iter().all(|o| o.name != c.name), "{}.{}", t.name, c.name);
            }
        }
    }
}
