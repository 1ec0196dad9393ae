//! From the event log to the tables. The linker is pure; here it meets the archive's files.

use anyhow::{Context as _, Result};
use archive::{Archive, LogReader, Meta, TablesWriter};
use causal::{Below, InnerTasks, Linker, Sink, Stacked};
use model::table::{Coverage, Disk, FactRow, LossRow, Process, Row};
use model::{Context, Environment, Event, Layer, LossSource, Record};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// What is known beside the events: kept in `meta.json`, so that linking again, on another machine, gives the same.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Surroundings {
    /// Fathom's own process.
    pub tracer: Option<u32>,
    /// The archive's own files (device number, inode): what is written there is the tracer's.
    pub tracer_files: Vec<(u32, u64)>,
    /// Block devices, and what they stand on.
    pub disks: Vec<Disk>,
    /// Files under loop disks: (loop disk, file system, inode).
    pub loop_files: Vec<(u32, u32, u64)>,
    /// Partition to disk. And a file system without a disk's number (btrfs) to each disk that it is on.
    pub partitions: Vec<(u32, u32)>,
    /// Names of the functions given by --op, in their order.
    #[serde(default)]
    pub functions: Vec<String>,
    /// Records for which the log had no room: since when, until when, how many.
    #[serde(default)]
    pub no_room: Option<(u64, u64, u64)>,
    /// What could be seen, and what not.
    pub coverage: Vec<Coverage>,
    /// Facts about the device.
    pub environment: Environment,
}

const KEY: &str = "surroundings";

impl Surroundings {
    /// Those of an archive; nothing if its recorder was killed before it could say.
    pub fn of(meta: &Meta) -> Result<Self> {
        meta.extra.get(KEY).map_or_else(
            || Ok(Self::default()),
            |value| serde_json::from_value(value.clone()).context("meta.json: what is known of the machine is damaged"),
        )
    }

    /// Puts them into `meta`.
    pub fn store(&self, meta: &mut Meta) -> Result<()> {
        meta.extra.insert(KEY.into(), serde_json::to_value(self)?);
        Ok(())
    }

    fn config(&self) -> causal::Config {
        let number = |name: &str| self.disks.iter().find(|d| d.name == name).map(|d| d.dev);
        let mut stacked: Vec<Stacked> = self
            .disks
            .iter()
            .filter(|d| !self.loop_files.iter().any(|(disk, ..)| *disk == d.dev))
            .map(|d| Stacked { disk: d.dev, below: Below::Disks(d.below.split(' ').filter_map(number).collect()) })
            .filter(|s| !matches!(&s.below, Below::Disks(d) if d.is_empty()))
            .collect();
        stacked
            .extend(self.loop_files.iter().map(|&(disk, dev, ino)| Stacked { disk, below: Below::File { dev, ino } }));
        causal::Config {
            tracer: self.tracer,
            tracer_files: self.tracer_files.clone(),
            stacked,
            functions: self.functions.clone(),
            // Of several disks the first.
            partitions: self.partitions.iter().rev().copied().collect(),
            ..causal::Config::default()
        }
    }
}

/// Passes rows on to the tables and keeps the first error, since a [`Sink`] cannot fail.
struct Tables {
    writer: TablesWriter,
    failed: Option<archive::Error>,
    operations: u64,
    /// Highest number of a loss.
    losses: u64,
    /// File system of each file, and those that calls used, of operations and of anyone.
    file_systems: HashMap<u64, u32>,
    of_operations: HashSet<u32>,
    of_anyone: HashSet<u32>,
}

impl Tables {
    fn put<T: Row>(&mut self, row: &T) {
        if self.failed.is_none() {
            self.failed = self.writer.push(row).err();
        }
    }

    /// The disks of the files that operations used; if there was no operation, that any recorded call used.
    fn holders(&self, known: &Surroundings) -> HashSet<u32> {
        let calls = if self.of_operations.is_empty() { &self.of_anyone } else { &self.of_operations };
        let mut all = HashSet::new();
        for dev in calls {
            let mut mine = known.partitions.iter().filter(|(part, _)| part == dev).map(|(_, disk)| *disk).peekable();
            if mine.peek().is_none() {
                all.insert(*dev);
            }
            all.extend(mine);
        }
        all
    }
}

impl Sink for Tables {
    fn operation(&mut self, row: model::table::Operation) {
        self.operations += 1;
        self.put(&row);
    }
    fn shape(&mut self, row: model::table::Shape) {
        self.put(&row);
    }
    fn span(&mut self, row: model::table::Span) {
        if row.layer == Layer::Syscall
            && let Some(dev) = row.file.and_then(|file| self.file_systems.get(&file))
        {
            self.of_anyone.insert(*dev);
            if row.operation.is_some() {
                self.of_operations.insert(*dev);
            }
        }
        self.put(&row);
    }
    fn link(&mut self, row: model::table::Link) {
        self.put(&row);
    }
    fn cause(&mut self, row: model::table::Cause) {
        self.put(&row);
    }
    fn slice(&mut self, row: model::table::Slice) {
        self.put(&row);
    }
    fn file(&mut self, row: model::table::File) {
        self.file_systems.insert(row.id, row.dev);
        self.put(&row);
    }
    fn process(&mut self, row: model::table::Process) {
        self.put(&row);
    }
    fn loss(&mut self, row: model::table::LossRow) {
        self.losses = self.losses.max(row.id);
        self.put(&row);
    }
}

/// What linking found.
#[derive(Debug, Clone, Copy)]
pub struct Linked {
    /// Events read.
    pub events: u64,
    /// Operations found.
    pub operations: u64,
}

/// Makes the tables of the archive at `dir` from its log.
pub fn link(dir: &Path, context: &Context) -> Result<Linked> {
    let mut meta = Meta::read(dir).or_else(|error| without_meta(dir, error))?;
    let known = Surroundings::of(&meta)?;
    let mut log = LogReader::open(dir)?;
    let mut tables = Tables {
        writer: TablesWriter::create(dir)?,
        failed: None,
        operations: 0,
        losses: 0,
        file_systems: HashMap::new(),
        of_operations: HashSet::new(),
        of_anyone: HashSet::new(),
    };
    let mut linker = Linker::new(known.config());
    // A program's marks are read from its memory at the end, hence stand last in the log; the linker wants them before what
    // ran inside them.
    let mut inner = InnerTasks::default();
    let learnt = |event: &Event| {
        inner.learn(event);
        is_mark(event)
    };
    let marks: Vec<Event> = LogReader::open(dir)?.filter(learnt).collect();
    for mark in marks {
        linker.push(inner.readdress(mark), &mut tables);
    }
    let mut events = 0;
    while let Some(event) = log.next_event() {
        events += 1;
        if !is_mark(&event) {
            linker.push(event, &mut tables);
        }
        if events % 65_536 == 0 {
            let (done, total) = log.progress();
            context.progress("linking", done, total);
        }
    }
    linker.finish(&mut tables);
    for row in &known.coverage {
        tables.put(row);
    }
    if let Some(tgid) = known.tracer {
        tables.put(&Process { tgid, name: "fathom, recording".into(), parent: None, tracked: false });
    }
    if let Some((start_ns, end_ns, events)) = known.no_room {
        tables.losses += 1;
        tables.put(&LossRow {
            id: tables.losses,
            source: LossSource::ArchiveFull,
            cpu: None,
            start_ns,
            end_ns,
            events: Some(events),
            at_least: false,
            program: None,
        });
    }
    let holders = tables.holders(&known);
    for row in &known.disks {
        tables.put(&Disk { holds_files: holders.contains(&row.dev), ..row.clone() });
    }
    for (name, fact) in &known.environment {
        let fact = fact.clone();
        tables.put(&FactRow {
            name: name.clone(),
            value: fact.value,
            unknown: fact.unknown,
            unit: fact.unit,
            source: fact.source,
            varies: fact.varies,
        });
    }
    if let Some(error) = tables.failed {
        return Err(error).with_context(|| format!("writing the tables of {}", dir.display()));
    }
    tables.writer.finish()?;
    meta.linked = true;
    meta.write(dir)?;
    crate::progress::clear(context);
    Ok(Linked { events, operations: tables.operations })
}

/// A log whose `meta.json` is gone or damaged is still worth its events; what was known of the machine is lost.
fn without_meta(dir: &Path, error: archive::Error) -> Result<Meta> {
    let rescuable = matches!(error, archive::Error::Damaged { .. } | archive::Error::NotAnArchive { .. });
    if !rescuable || !archive::log::path(dir).is_file() {
        return Err(error.into());
    }
    eprintln!("fathom: {error}");
    eprintln!("fathom: going on with the events alone; disks, facts and coverage are lost");
    Ok(Meta::new("trace", 0, Vec::new()))
}

fn is_mark(event: &Event) -> bool {
    matches!(event.record, Record::Mark(_))
}

/// Opens an archive, linking it first if it has no tables, as after a recording that was cut short.
pub fn open(dir: &Path, context: &Context) -> Result<Archive> {
    let archive = Archive::open(dir)?;
    if archive.has_tables() {
        return Ok(archive);
    }
    if archive.meta().kind == "bench" {
        eprintln!("fathom: {} has no tables yet; making them from its log", dir.display());
        crate::bench::remake(dir)?;
        return Ok(Archive::open(dir)?);
    }
    eprintln!("fathom: {} has no tables yet; linking its events", dir.display());
    link(dir, context)?;
    Ok(Archive::open(dir)?)
}

/// `fathom link`.
pub fn run(args: &crate::args::Link) -> Result<()> {
    let context = crate::progress::context(false);
    if Archive::open(&args.archive).is_ok_and(|archive| archive.meta().kind == "bench") {
        let runs = crate::bench::remake(&args.archive)?;
        println!("{}: {} designs, {} processes", args.archive.display(), runs.designs.len(), runs.runs.len());
        return Ok(());
    }
    let linked = link(&args.archive, &context)?;
    println!("{}: {} events, {} operations", args.archive.display(), linked.events, linked.operations);
    Ok(())
}
