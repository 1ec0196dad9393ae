//! Writes the linker's rows to the archive's tables, and passes them to the trackers that learn from them.

use super::completeness::{Losses, UnissuedCommands};
use super::sqlite_coverage::SqliteCoverage;
use super::stacks::Stacks;
use super::used_disks::UsedDisks;
use crate::Metadata;
use archive::TablesWriter;
use causal::Sink;
use model::table::{
    Cause, DriverCommand, File, Link, LossRow, Operation, Process, Row, Shape, Slice, Span, StatementCounters,
    ThreadTime, TraceContext,
};

/// Keeps the first error, since a [`Sink`] cannot fail.
pub struct Tables {
    writer: TablesWriter,
    failed: Option<archive::Error>,
    operations: u64,
    pub losses: Losses,
    pub unissued: UnissuedCommands,
    pub used_disks: UsedDisks,
    pub sqlite: SqliteCoverage,
    pub stacks: Stacks,
}

impl Tables {
    pub fn new(writer: TablesWriter, metadata: &Metadata) -> Self {
        Self {
            writer,
            failed: None,
            operations: 0,
            losses: Losses::default(),
            unissued: UnissuedCommands::new(&metadata.under_way),
            used_disks: UsedDisks::default(),
            sqlite: SqliteCoverage::default(),
            stacks: Stacks::default(),
        }
    }

    pub fn put<T: Row>(&mut self, row: &T) {
        if self.failed.is_none() {
            self.failed = self.writer.push(row).err();
        }
    }

    /// Moves the tables to their place; returns the number of operations.
    pub fn finish(self) -> archive::Result<u64> {
        self.failed.map_or(Ok(()), Err)?;
        self.writer.finish()?;
        Ok(self.operations)
    }
}

impl Sink for Tables {
    fn operation(&mut self, row: Operation) {
        self.operations += 1;
        self.sqlite.operation(&row);
        self.stacks.operation(&row);
        self.put(&row);
    }
    fn shape(&mut self, row: Shape) {
        self.sqlite.shape(&row);
        self.put(&row);
    }
    fn context(&mut self, row: TraceContext) {
        self.put(&row);
    }
    fn counters(&mut self, row: StatementCounters) {
        self.put(&row);
    }
    fn span(&mut self, row: Span) {
        self.sqlite.span(&row);
        self.stacks.span(&row);
        self.used_disks.span(&row);
        self.unissued.span(&row);
        self.put(&row);
    }
    fn link(&mut self, row: Link) {
        self.put(&row);
    }
    fn cause(&mut self, row: Cause) {
        self.put(&row);
    }
    fn driver_command(&mut self, row: DriverCommand) {
        self.put(&row);
    }
    fn slice(&mut self, row: Slice) {
        self.put(&row);
    }
    fn thread_time(&mut self, row: ThreadTime) {
        self.put(&row);
    }
    fn file(&mut self, row: File) {
        self.used_disks.file(&row);
        self.sqlite.file(&row);
        self.put(&row);
    }
    fn process(&mut self, row: Process) {
        self.sqlite.process(&row);
        self.put(&row);
    }
    fn loss(&mut self, row: LossRow) {
        self.losses.learn(&row);
        self.put(&row);
    }
}
