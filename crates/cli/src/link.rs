//! From the event log to the tables. The linker is pure; here it meets the archive's files.

use anyhow::{Context as _, Result};
use archive::{Archive, Damage, Lock, LogReader, Meta, SignalCleanup, TablesWriter};
use causal::accounts::{Accounts, Reading};
use causal::{Below, InnerTasks, Linker, Sink, Stacked};
use model::event::{ANY_CPU, Header, Loss};
use model::files::FileClass;
use model::table::{Coverage, Disk, FactRow, LossRow, Process, Row};
use model::{Context, Environment, Event, Layer, LossSource, Record, counted};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
    /// Records in the log: what a log holds less was cut off it. Unknown of a recorder that was killed.
    #[serde(default)]
    pub stored: Option<u64>,
    /// Commands that were under way at each disk when the recording began: disk, CLOCK_BOOTTIME, how many.
    #[serde(default)]
    pub under_way: Vec<(u32, u64, u64)>,
    /// The disks' own statistics, when the recording began: disk, just before and just after they were read, the fields.
    #[serde(default)]
    pub counted_before: Vec<Counted>,
    /// When it ended.
    #[serde(default)]
    pub counted_after: Vec<Counted>,
    /// What could be seen, and what not.
    pub coverage: Vec<Coverage>,
    /// Facts about the device.
    pub environment: Environment,
}

/// A reading of a disk's statistics: disk, CLOCK_BOOTTIME just before and just after, and the fields of `/sys/block/NAME/stat`.
pub type Counted = (u32, u64, u64, Vec<u64>);

fn readings(all: &[Counted]) -> Vec<Reading> {
    let reading = |(disk, from_ns, to_ns, fields): &Counted| Reading {
        disk: *disk,
        from_ns: *from_ns,
        to_ns: *to_ns,
        fields: fields.clone(),
    };
    all.iter().map(reading).collect()
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

    /// Whether a probe was in force, as far as is known.
    fn sees(&self, probe: &str) -> bool {
        self.coverage.iter().all(|row| row.attached || row.probe != probe)
    }

    fn config(&self, told: BTreeSet<u32>) -> causal::Config {
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
            completions: self.sees("rq_done"),
            full_since_ns: self.no_room.map(|(since_ns, ..)| since_ns),
            // Of several disks the first.
            partitions: self.partitions.iter().rev().copied().collect(),
            told: Some(told),
            ..causal::Config::default()
        }
    }
}

/// Passes rows on to the tables and keeps the first error, since a [`Sink`] cannot fail.
struct Tables {
    writer: TablesWriter,
    failed: Option<archive::Error>,
    operations: u64,
    /// Highest number of a loss, and how many records all of them lost.
    losses: u64,
    lost: u64,
    /// Whether more may be lost than is known.
    lost_more: bool,
    /// For each disk: from when on, and of how many commands, the issue may lie before the recording; and of how many it was not
    /// recorded.
    orphans: BTreeMap<u32, (u64, u64, u64)>,
    /// File system of each file, and those that calls used, of operations and of anyone.
    file_systems: HashMap<u64, u32>,
    of_operations: HashSet<u32>,
    of_anyone: HashSet<u32>,
    seen: Databases,
}

/// What shows that a process uses SQLite, and whether its statements could be seen.
#[derive(Default)]
struct Databases {
    /// Kind of each shape that is a statement or an inferred transaction.
    shapes: HashMap<u64, bool>,
    /// Files that SQLite's names or ways of reading give away.
    files: HashSet<u64>,
    /// Processes that executed statements, of which transactions were inferred, that used such files.
    told: HashSet<u32>,
    inferred: HashSet<u32>,
    users: HashSet<u32>,
    /// Those that were asked for, by name.
    asked: BTreeMap<u32, String>,
}

impl Databases {
    /// What was not seen of the database's layer, and what stands in its place.
    fn coverage(&self) -> Vec<Coverage> {
        let mut rows = BTreeMap::new();
        for (tgid, name) in self.asked.iter().filter(|(tgid, _)| !self.told.contains(tgid)) {
            let name = if name.is_empty() { format!("process {tgid}") } else { name.clone() };
            let how = if self.inferred.contains(tgid) {
                format!("no SQLite was found in {name}: its statements are inferred from the names of its files")
            } else if self.users.contains(tgid) {
                format!(
                    "no SQLite was found in {name}, though it uses files named as SQLite's: its statements are not seen"
                )
            } else {
                continue;
            };
            rows.insert(name, how);
        }
        if rows.is_empty() && self.told.is_empty() {
            let how = "nothing that looks like SQLite: no statement, and no file named as SQLite's";
            rows.insert("sqlite".into(), how.into());
        }
        let row = |(probe, how)| Coverage {
            layer: Layer::Database,
            probe,
            attached: false,
            how,
            hits: None,
            misses: None,
            price_ns: None,
        };
        rows.into_iter().map(row).collect()
    }
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

impl Tables {
    fn put_loss(&mut self, source: LossSource, window_ns: (u64, u64), events: u64, program: Option<&str>) {
        self.losses += 1;
        self.lost = self.lost.saturating_add(events);
        self.put(&LossRow {
            id: self.losses,
            source,
            cpu: None,
            start_ns: window_ns.0,
            end_ns: window_ns.1,
            events: Some(events),
            at_least: false,
            program: program.map(Into::into),
        });
    }

    /// Sets the kernel's own counts beside what was recorded. What is missing, and no loss told so far explains, is one.
    fn check(&mut self, known: &Surroundings, accounts: &Accounts) {
        if !known.sees("rq_done") {
            return;
        }
        let window = |name: &str| known.environment.get(name)?.value.as_ref()?.parse::<u64>().ok();
        let window_ns = (window("trace.start").unwrap_or(0), window("trace.end").unwrap_or(0));
        // A damaged log may lack any number of them.
        let told = if self.lost_more { u64::MAX } else { self.lost };
        let mut missing: u64 = 0;
        for audit in accounts.close() {
            audit.rows.iter().for_each(|row| self.put(row));
            let unexplained = audit.missing.saturating_sub(told.saturating_sub(missing));
            missing = missing.saturating_add(audit.missing);
            if unexplained > 0 {
                self.put_loss(LossSource::NotRun, audit.window_ns, unexplained, Some("rq_done"));
            }
        }
        if told > 0 || !known.sees("rq_issue") {
            return;
        }
        // What was under way when the recording began has no issue in it.
        let events: u64 = self.orphans.values().map(|(_, under_way, count)| count.saturating_sub(*under_way)).sum();
        if events > 0 {
            self.put_loss(LossSource::NotRun, window_ns, events, Some("rq_issue"));
        }
    }
}

impl Sink for Tables {
    fn operation(&mut self, row: model::table::Operation) {
        self.operations += 1;
        match self.seen.shapes.get(&row.shape) {
            Some(true) => drop(self.seen.told.insert(row.tgid)),
            Some(false) => drop(self.seen.inferred.insert(row.tgid)),
            None => {}
        }
        self.put(&row);
    }
    fn shape(&mut self, row: model::table::Shape) {
        if let "statement" | "transaction" = &*row.kind {
            self.seen.shapes.insert(row.id, row.kind == "statement");
        }
        self.put(&row);
    }
    fn span(&mut self, row: model::table::Span) {
        if row.layer == Layer::Syscall && row.file.is_some_and(|file| self.seen.files.contains(&file)) {
            self.seen.users.insert(row.tgid);
        }
        if row.layer == Layer::Syscall
            && let Some(dev) = row.file.and_then(|file| self.file_systems.get(&file))
        {
            self.of_anyone.insert(*dev);
            if row.operation.is_some() {
                self.of_operations.insert(*dev);
            }
        }
        // One that was seen being issued says what it carried.
        if let (Layer::Driver, None, Some(disk)) = (row.layer, row.number, row.disk)
            && let Some((since_ns, _, count)) = self.orphans.get_mut(&disk)
        {
            *count += u64::from(row.start_ns > *since_ns);
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
        if row.path.as_deref().is_some_and(|path| model::files::class(path) != FileClass::Other) {
            self.seen.files.insert(row.id);
        }
        self.put(&row);
    }
    fn process(&mut self, row: model::table::Process) {
        if row.tracked {
            self.seen.asked.insert(row.tgid, row.name.clone());
        }
        self.put(&row);
    }
    fn loss(&mut self, row: model::table::LossRow) {
        self.losses = self.losses.max(row.id);
        self.lost = self.lost.saturating_add(row.events.unwrap_or(0));
        self.lost_more |= row.events.is_none() || row.at_least;
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

/// Makes the tables of the archive at `dir` from its log. The caller holds its lock: half-made tables have one place in it.
pub fn link(dir: &Path, context: &Context) -> Result<Linked> {
    let mut meta = Meta::read(dir).or_else(|error| without_meta(dir, error))?;
    let known = Surroundings::of(&meta).unwrap_or_else(|error| {
        eprintln!("fathom: {}: {error:#}", dir.display());
        eprintln!("fathom: going on with the events alone; disks, facts and coverage are lost");
        Surroundings::default()
    });
    let mut log = LogReader::open(dir)?;
    let writer = TablesWriter::create(dir)?;
    // Only now is the folder of half-made tables ours.
    let _cleanup = SignalCleanup::tables(dir)?;
    let mut tables = Tables {
        writer,
        failed: None,
        operations: 0,
        losses: 0,
        lost: 0,
        lost_more: false,
        orphans: known.under_way.iter().map(|&(disk, since_ns, count)| (disk, (since_ns, count, 0))).collect(),
        file_systems: HashMap::new(),
        of_operations: HashSet::new(),
        of_anyone: HashSet::new(),
        seen: Databases::default(),
    };
    let (marks, told) = first_look(dir)?;
    let mut accounts = Accounts::new(readings(&known.counted_before), readings(&known.counted_after));
    let mut linker = Linker::new(known.config(told));
    marks.into_iter().for_each(|mark| linker.push(mark, &mut tables));
    let (mut events, mut last_ns) = (0, 0);
    while let Some(event) = log.next_event() {
        events += 1;
        last_ns = event.header.time_ns.max(last_ns);
        accounts.learn(&event);
        if !is_mark(&event) {
            linker.push(event, &mut tables);
        }
        if events % 65_536 == 0 {
            let (done, total) = log.progress();
            context.progress("linking", done, total);
        }
    }
    if let Some(loss) = cut_off(&known, events, last_ns, log.damage()) {
        linker.push(loss, &mut tables);
    }
    linker.finish(&mut tables);
    for row in known.coverage.iter().chain(&tables.seen.coverage()) {
        tables.put(row);
    }
    if let Some(tgid) = known.tracer {
        tables.put(&Process { tgid, name: "fathom, recording".into(), parent: None, tracked: false });
    }
    if let Some((start_ns, end_ns, events)) = known.no_room {
        tables.put_loss(LossSource::ArchiveFull, (start_ns, end_ns), events, None);
    }
    tables.check(&known, &accounts);
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

/// What was cut off the end of a log, exactly at the edge of a chunk, so that the log itself shows nothing of it: it holds so
/// many `events`, told damage included.
fn cut_off(known: &Surroundings, events: u64, last_ns: u64, damage: &Damage) -> Option<Event> {
    let told = events.saturating_sub(damage.tellings);
    let missing =
        known.stored?.checked_sub(told.saturating_add(damage.events)).filter(|n| *n > 0 && !damage.at_least)?;
    let fact = |name: &str| known.environment.get(name)?.value.as_ref()?.parse::<u64>().ok();
    let start_ns = if last_ns > 0 { last_ns } else { fact("trace.start").unwrap_or(0) };
    let loss = Loss { start_ns, events: missing, source: LossSource::Damage.number(), ..Loss::default() };
    let time_ns = fact("trace.end").unwrap_or(0).max(start_ns);
    let header = Header { time_ns, cpu: ANY_CPU, kind: Loss::INFO.kind, ..Header::default() };
    Some(Event { header, record: loss.into() })
}

/// A log whose `meta.json` is gone or damaged is still worth its events; what was known of the machine is lost.
fn without_meta(dir: &Path, error: archive::Error) -> Result<Meta> {
    if !rescuable(&error) || !archive::log::path(dir).is_file() {
        return Err(error.into());
    }
    eprintln!("fathom: {}", sentence_of(&error));
    eprintln!("fathom: going on with the events alone; disks, facts and coverage are lost");
    Ok(Meta::new("trace", 0, Vec::new()))
}

/// Whether an archive's log is worth something in spite of it.
fn rescuable(error: &archive::Error) -> bool {
    matches!(error, archive::Error::Damaged { .. } | archive::Error::NotAnArchive { .. })
}

/// What is the matter with `meta.json`, without the advice to do what is being done.
fn sentence_of(error: &archive::Error) -> String {
    match error {
        archive::Error::Damaged { path, why, .. } => format!("{} is damaged: {why}", path.display()),
        archive::Error::NotAnArchive { path, .. } => format!("{} has no meta.json that is Fathom's", path.display()),
        other => other.to_string(),
    }
}

/// What must be known of the whole log before the first of it is linked: the marks, which are read from a program's memory
/// at the end and so stand last, though what ran inside them comes after them (by the numbers that the program knows itself by,
/// in a container); and which processes tell their statements.
fn first_look(dir: &Path) -> Result<(Vec<Event>, BTreeSet<u32>)> {
    let (mut marks, mut told, mut inner) = (Vec::new(), BTreeSet::new(), InnerTasks::default());
    for event in LogReader::open(dir)? {
        inner.learn(&event);
        match &event.record {
            Record::Mark(_) => marks.push(event),
            Record::Statement(_) => drop(told.insert(event.header.tgid)),
            Record::OpBegin(begin) if begin.kind == 0 => drop(told.insert(event.header.tgid)),
            _ => {}
        }
    }
    Ok((marks.into_iter().map(|mark| inner.readdress(mark)).collect(), told))
}

fn is_mark(event: &Event) -> bool {
    matches!(event.record, Record::Mark(_))
}

/// Opens an archive, linking it first if it has no tables, as after a recording that was cut short.
pub fn open(dir: &Path, context: &Context) -> Result<Archive> {
    let archive = Archive::open(dir)?;
    let benchmark = archive.meta().kind != "trace";
    let live = benchmark && Lock::is_free(dir).is_err();
    // Of a benchmark that still runs the tables are of when somebody looked at it before.
    if archive.has_tables() && !(benchmark && live) {
        return Ok(archive);
    }
    if benchmark {
        let state = if live { "is still being run" } else { "has no tables yet" };
        // Who runs it holds the lock until its end.
        let _lock = if live { None } else { Some(Lock::take(dir)?) };
        eprintln!("fathom: {} {state}; making the tables from its log", dir.display());
        crate::bench::remake(dir)?;
        return Ok(Archive::open(dir)?);
    }
    link_alone(dir, context).map_err(|error| match lacks_room(&error) {
        true => error.context(
            "tables are made within the archive; copy it to where there is room and you may write, and open the copy",
        ),
        false => error,
    })?;
    Ok(Archive::open(dir)?)
}

/// Links an archive without tables, unless somebody else is writing it.
fn link_alone(dir: &Path, context: &Context) -> Result<()> {
    let _lock = Lock::take(dir)?;
    // Whoever held the lock before may have made them.
    if !Archive::open(dir)?.has_tables() {
        eprintln!("fathom: {} has no tables yet; linking its events", dir.display());
        link(dir, context)?;
    }
    Ok(())
}

/// Whether the tables could not be written where the archive is: no space, no quota, or not a place to write to.
pub fn lacks_room(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind as Kind;
    let kinds =
        [Kind::StorageFull, Kind::QuotaExceeded, Kind::FileTooLarge, Kind::ReadOnlyFilesystem, Kind::PermissionDenied];
    let io =
        |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    error.chain().filter_map(io).any(|kind| kinds.contains(&kind))
}

/// `fathom link`.
pub fn run(args: &crate::args::Link) -> Result<()> {
    let context = crate::progress::context(false);
    let dir = &args.archive;
    // In a folder that is no archive nothing is made, not even a lock.
    let ours = [archive::log::path(dir), archive::runs::path(dir)].iter().any(|log| log.is_file());
    let _lock = if ours { Some(Lock::take(dir)?) } else { None };
    let remade = match Archive::open(dir) {
        Ok(archive) if archive.meta().kind != "trace" => Some(crate::bench::remake(dir)?),
        Ok(_) => None,
        Err(error) if rescuable(&error) && archive::runs::path(dir).is_file() => {
            eprintln!("fathom: {}", sentence_of(&error));
            eprintln!(
                "fathom: going on with the log (runs.jsonl) alone: the command line is lost, and the archive's time is its \
                 first process's"
            );
            Some(crate::bench::remake_without_meta(dir)?)
        }
        Err(_) => None,
    };
    let (events, made) = match remade {
        Some(runs) => (counted(runs.designs.len(), "design"), counted(runs.runs.len(), "process")),
        None => {
            let linked = link(dir, &context)?;
            (counted(linked.events as usize, "event"), counted(linked.operations as usize, "operation"))
        }
    };
    println!("{}: {events}, {made}", dir.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::LogWriter;

    /// An archive of two writes of which the recorder was told these lines, and the disk counted so many.
    fn recorded(lines: &[&str], writes: u64) -> analysis::Summary {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let mut meta = Meta { complete: true, ..Meta::new("trace", 1, Vec::new()) };
        let fields = |writes: u64| {
            let mut fields = vec![0; 17];
            (fields[4], fields[6]) = (100 + writes, 800 + 8 * writes);
            fields
        };
        const DISK: u32 = 254 << 20;
        let known = Surroundings {
            disks: vec![Disk { dev: DISK, name: "vda".into(), below: String::new(), holds_files: true }],
            under_way: vec![(DISK, 1_000_000_000, 0)],
            counted_before: vec![(DISK, 1_000_000_000, 1_000_010_000, fields(0))],
            counted_after: vec![(DISK, 3_000_000_000, 3_000_010_000, fields(writes))],
            ..Surroundings::default()
        };
        known.store(&mut meta).unwrap();
        Archive::create(dir, &meta, false).unwrap();
        let mut log = LogWriter::create(dir, None).unwrap();
        for line in lines {
            let mut bytes = Vec::new();
            Event::parse(&line.replace("disk=vda", &format!("disk={DISK}"))).unwrap().encode(&mut bytes);
            log.append(&bytes).unwrap();
        }
        log.finish().unwrap();
        link(dir, &Context::silent()).unwrap();
        analysis::summarise_archive(&Archive::open(dir).unwrap()).unwrap()
    }

    const WRITES: [&str; 4] = [
        "@2000000000 cpu0 10/10 rq_issue rq=0x5 sector=80 alloc_ns=1999999000 bytes=4096 disk=vda op=1 flags=128",
        "@2000100000 cpu1 0/0 rq_done rq=0x5 sector=80 bytes=4096 disk=vda op=1 last=1 flags=128",
        "@2000200000 cpu0 10/10 rq_issue rq=0x5 sector=88 alloc_ns=2000199000 bytes=4096 disk=vda op=1 flags=128",
        "@2000300000 cpu1 0/0 rq_done rq=0x5 sector=88 bytes=4096 disk=vda op=1 last=1 flags=128",
    ];

    #[test]
    fn nothing_is_called_lost_or_complete_that_the_disk_did_not_count() {
        let whole = recorded(&WRITES, 2);
        assert_eq!((whole.completeness.state.as_str(), whole.loss.events), ("checked", 0), "{:?}", whole.completeness);
        let text = analysis::show::text(&whole);
        assert!(text.contains("Nothing was lost") && text.contains("vda counted 2 writes"), "{text}");
        // A completion is missing: its command's next use, or the count alone, tells of it.
        for (missing, program) in [(1, "rq_done"), (3, "rq_done")] {
            let lines: Vec<&str> = (0..4).filter(|n| *n != missing).map(|n| WRITES[n]).collect();
            let summary = recorded(&lines, 2);
            assert_eq!((summary.completeness.state.as_str(), summary.loss.events), ("failed", 1), "{missing}");
            let interval = &summary.loss.intervals[0];
            assert_eq!((interval.source.as_str(), interval.program.as_deref()), ("probe not run", Some(program)));
            assert_eq!(summary.device_commands.incomplete, 1);
            let text = analysis::show::text(&summary);
            assert!(
                !text.contains("Nothing was lost") && text.contains("2 writes, of which 1 were recorded"),
                "{text}"
            );
        }
        // So is an issue, and so are both.
        let unissued = recorded(&[WRITES[0], WRITES[1], WRITES[3]], 2);
        assert_eq!((unissued.loss.events, unissued.loss.intervals[0].program.as_deref()), (1, Some("rq_issue")));
        let unseen = recorded(&WRITES[..2], 2);
        assert_eq!((unseen.loss.events, unseen.completeness.state.as_str()), (1, "failed"));
        assert_eq!(recorded(&WRITES, 1).completeness.state, "failed", "more than the disk counted");
    }

    #[test]
    fn who_finds_an_archive_being_written_leaves_its_tables_alone() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        Archive::create(dir, &Meta::new("trace", 1, Vec::new()), false).unwrap();
        LogWriter::create(dir, None).unwrap().finish().unwrap();
        let half_made = dir.join("tables.tmp/spans.parquet");
        std::fs::create_dir(dir.join("tables.tmp")).unwrap();
        std::fs::write(&half_made, "half").unwrap();
        let lock = Lock::take(dir).unwrap();
        let error = open(dir, &Context::silent()).unwrap_err().to_string();
        assert!(error.contains("is being written by process") && half_made.exists(), "{error}");
        drop(lock);
        // What a crash left is replaced, and neither it nor a lock stays.
        assert!(open(dir, &Context::silent()).unwrap().has_tables());
        assert!(!dir.join("tables.tmp").exists() && !dir.join("lock").exists());
    }
}
