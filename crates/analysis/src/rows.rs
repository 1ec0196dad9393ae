//! All tables of an archive in memory, with the indexes that every user of them needs.
//!
//! They are held as a whole, because a summary, a figure and an explanation each walk the same graph in several
//! directions. The large ones are packed, to about a tenth of their rows as structs. An archive too large for that belongs in a
//! database, for which its tables are designed.

use crate::contract::{DeviceCommands, DiskRole, Trace};
use crate::older_archives;
use archive::{Archive, Error};
use model::packed::PackedTable;
use model::table::{
    Cause, CheckRow, Coverage, Disk, DriverCommand, FactRow, File, Link, LossRow, Operation, Process, Shape, Slice,
    Span, StackRow, StatementCounters, ThreadTime,
};
use model::{Call, Environment, Fact, Layer, Relation};
use sqlite::{Companions, FileClass, reads_database_header};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::OnceLock;

/// The tables of a trace.
#[derive(Debug, Default)]
pub struct Rows {
    /// The recording; its times are computed.
    pub trace: Trace,
    /// Executions.
    pub operations: PackedTable<Operation>,
    /// What SQLite counted, by operation; not of all.
    pub counters: PackedTable<StatementCounters>,
    /// Statements, functions, marks.
    pub shapes: Vec<Shape>,
    pub spans: PackedTable<Span>,
    pub links: PackedTable<Link>,
    pub causes: PackedTable<Cause>,
    pub driver_commands: PackedTable<DriverCommand>,
    pub slices: PackedTable<Slice>,
    /// Where the time of threads outside operations went.
    pub thread_times: PackedTable<ThreadTime>,
    /// Where threads slept longest.
    pub stacks: PackedTable<StackRow>,
    pub files: Vec<File>,
    pub processes: Vec<Process>,
    pub disks: Vec<Disk>,
    pub losses: Vec<LossRow>,
    /// The disks' own statistics.
    pub checks: Vec<CheckRow>,
    pub coverage: Vec<Coverage>,
    pub facts: Vec<FactRow>,
}

impl Rows {
    /// Reads an archive.
    ///
    /// # Errors
    /// Those of [`Archive::rows`]: not linked, damaged, too new.
    pub fn load(archive: &Archive) -> Result<Self, Error> {
        Ok(Self { slices: archive.packed()?, ..Self::load_without_slices(archive)? })
    }

    /// Returns the facts by name, as the machine reported them.
    pub fn environment(&self) -> Environment {
        let fact = |f: &FactRow| Fact {
            value: f.value.clone(),
            unknown: f.unknown.clone(),
            unit: f.unit.clone(),
            source: f.source.clone(),
            varies: f.varies.clone(),
        };
        self.facts.iter().map(|f| (f.name.clone(), fact(f))).collect()
    }

    /// Reads all tables except the slices, the largest one.
    ///
    /// # Errors
    /// Same as [`Rows::load`].
    pub fn load_without_slices(archive: &Archive) -> Result<Self, Error> {
        let meta = archive.meta();
        // The spans take as long to decode as all other tables.
        let (spans, others) = std::thread::scope(|scope| {
            let spans = scope.spawn(|| archive.packed());
            let others = Self::load_small(archive);
            (spans.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), others)
        });
        Ok(Self {
            trace: Trace {
                command: meta.command.clone(),
                created_unix_ns: meta.created_unix_ns,
                made_by: meta.made_by.clone(),
                complete: meta.complete,
                ..Trace::default()
            },
            spans: spans?,
            ..others?
        })
    }

    /// Reads all tables except slices and spans.
    fn load_small(archive: &Archive) -> Result<Self, Error> {
        Ok(Self {
            trace: Trace::default(),
            operations: archive.packed()?,
            counters: archive.packed()?,
            shapes: archive.rows()?,
            spans: PackedTable::default(),
            links: archive.packed()?,
            causes: archive.packed()?,
            driver_commands: archive.packed()?,
            slices: PackedTable::default(),
            thread_times: archive.packed()?,
            stacks: archive.packed()?,
            files: archive.rows()?,
            processes: archive.rows()?,
            disks: archive.rows()?,
            losses: archive.rows()?,
            checks: archive.rows()?,
            coverage: archive.rows()?.into_iter().map(older_archives::coverage).collect(),
            facts: archive.rows()?,
        })
    }
}

/// The effect of a span on a disk or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoAction {
    Read,
    Write,
    /// Flushes the disk's cache; carries no data.
    Flush,
    Discard,
    /// Anything else, or not known.
    Other,
}

impl IoAction {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::Other => "other",
        }
    }

    /// Returns the effect of a bio or a command, from its kind and flags. Writing zeroes transfers no data, so it is no write.
    pub fn on_disk(span: &Span) -> Self {
        if span.flags.starts_with("write zeroes") {
            return Self::Other;
        }
        let of = |word: &str| match word {
            "read" => Some(Self::Read),
            "write" => Some(Self::Write),
            "flush" => Some(Self::Flush),
            "discard" => Some(Self::Discard),
            _ => None,
        };
        of(&span.kind).or_else(|| span.flags.split(' ').find_map(of)).unwrap_or(Self::Other)
    }
}

/// Index of the rows. Positions are `u32`: a table of four thousand million rows does not fit into memory.
#[derive(Debug)]
pub struct Index<'a> {
    pub rows: &'a Rows,
    span: Places,
    operation: Places,
    /// The operation that a span is itself, by position of both.
    operation_of_span: Places,
    /// Position of each operation's shape.
    shapes: Vec<Option<u32>>,
    file: Places,
    pub classes: Vec<FileClass>,
    /// Disks whose commands are counted: those that hold the files.
    pub counted_disks: BTreeSet<u32>,
    /// Disks below them.
    pub below: BTreeSet<u32>,
    disk: HashMap<u32, u32>,
    process: HashMap<u32, u32>,
    /// Their commands with who is charged for them, which several conclusions use ([`crate::account::device_commands`]).
    pub commands: OnceLock<DeviceCommands>,
}

/// Maximum nesting of operations that is followed; a damaged table may contain a cycle.
const CHAIN_DEPTH_MAX: usize = 16;

impl<'a> Index<'a> {
    /// Builds the index in one pass over the rows.
    pub fn new(rows: &'a Rows) -> Self {
        let shape: HashMap<u64, u32> = positions_by_key(rows.shapes.iter().map(|s| s.id));
        let disk = positions_by_key(rows.disks.iter().map(|d| d.dev));
        let file = Places::new(rows.files.iter().map(|f| f.id), rows.files.len());
        let (counted, below) = counted_disks_and_below(rows);
        Self {
            span: Places::new((0..rows.spans.len()).map(|at| rows.spans.id(at)), rows.spans.len()),
            operation: Places::new((0..rows.operations.len()).map(|at| rows.operations.id(at)), rows.operations.len()),
            operation_of_span: Places::new(
                (0..rows.operations.len()).map(|at| rows.operations.span(at)),
                rows.operations.len(),
            ),
            shapes: (0..rows.operations.len()).map(|at| shape.get(&rows.operations.shape(at)).copied()).collect(),
            classes: file_classes(rows, &file),
            file,
            counted_disks: counted,
            below,
            disk,
            process: positions_by_key(rows.processes.iter().map(|p| p.tgid)),
            commands: OnceLock::new(),
            rows,
        }
    }

    /// Position of a span.
    pub fn span(&self, id: u64) -> Option<usize> {
        self.span.position_of(id)
    }

    /// Position of an operation.
    pub fn operation(&self, id: u64) -> Option<usize> {
        self.operation.position_of(id)
    }

    /// Position of the operation's shape.
    pub fn shape(&self, operation: usize) -> Option<usize> {
        self.shapes[operation].map(|i| i as usize)
    }

    /// Position of a file.
    pub fn file(&self, id: u64) -> Option<usize> {
        self.file.position_of(id)
    }

    /// The operation to which a span belongs, or which it is.
    pub fn operation_of(&self, span: &Span) -> Option<usize> {
        span.operation.and_then(|id| self.operation(id)).or_else(|| self.operation_of_span.position_of(span.id))
    }

    /// The operation to which the span at a position belongs, or which it is.
    pub fn operation_of_row(&self, span: usize) -> Option<usize> {
        let spans = &self.rows.spans;
        let own = spans.operation(span).and_then(|id| self.operation(id));
        own.or_else(|| self.operation_of_span.position_of(spans.id(span)))
    }

    /// The operation itself and those around it, innermost first.
    pub fn chain(&self, operation: usize) -> impl Iterator<Item = usize> {
        let above = |&at: &usize| self.operation(self.rows.operations.parent(at)?);
        std::iter::successors(Some(operation), above).take(CHAIN_DEPTH_MAX)
    }

    /// Name of a disk: the kernel's, or its number.
    pub fn disk_name(&self, dev: u32) -> String {
        match self.disk.get(&dev) {
            Some(&i) => self.rows.disks[i as usize].name.clone(),
            None => model::Dev(dev).to_string(),
        }
    }

    pub fn role(&self, dev: u32) -> DiskRole {
        if self.counted_disks.contains(&dev) {
            DiskRole::HoldsFiles
        } else if self.below.contains(&dev) {
            DiskRole::Below
        } else {
            DiskRole::Other
        }
    }

    pub fn process_name(&self, tgid: u32) -> Option<&'a str> {
        self.process.get(&tgid).map(|&i| self.rows.processes[i as usize].name.as_str())
    }

    /// Path of the file of a span.
    pub fn path_of(&self, span: &Span) -> Option<&'a str> {
        self.rows.files[self.file(span.file?)?].path.as_deref()
    }

    /// Class of the file of a span that enters a file system; `None` for pipes, terminals and spans without a file.
    pub fn class_of(&self, span: &Span) -> Option<FileClass> {
        let at = self.file(span.file?)?;
        let path = self.path_of(span).unwrap_or("");
        let special = ["pipe:", "socket:", "anon_inode:", "/dev/"].iter().any(|start| path.starts_with(start));
        (!special).then(|| self.classes[at])
    }
}

/// Positions of consecutively assigned numbers, such as the span numbers assigned by the linker.
#[derive(Debug)]
enum Places {
    /// By number; missing ones are [`NO_POSITION`].
    Dense(Vec<u32>),
    /// For archives not written by Fathom.
    Sparse(HashMap<u64, u32>),
}

/// No position.
const NO_POSITION: u32 = u32::MAX;

impl Places {
    fn new(ids: impl Iterator<Item = u64> + Clone, count: usize) -> Self {
        let last = ids.clone().max().unwrap_or(0);
        if last >= (count as u64).saturating_mul(4) {
            return Self::Sparse(positions_by_key(ids));
        }
        let mut places = vec![NO_POSITION; last as usize + 1];
        ids.enumerate().for_each(|(i, id)| places[id as usize] = i as u32);
        Self::Dense(places)
    }

    fn position_of(&self, id: u64) -> Option<usize> {
        let place = match self {
            Self::Dense(places) => places.get(usize::try_from(id).ok()?).copied().filter(|&at| at != NO_POSITION),
            Self::Sparse(places) => places.get(&id).copied(),
        };
        place.map(|at| at as usize)
    }
}

/// Position of each key; of several equal keys the last, since a name learnt later is more accurate.
fn positions_by_key<K: std::hash::Hash + Eq>(keys: impl Iterator<Item = K>) -> HashMap<K, u32> {
    keys.enumerate().map(|(i, key)| (key, i as u32)).collect()
}

/// Classes of files, by name, by the names of the files beside them, and by how they are read.
fn file_classes(rows: &Rows, position: &Places) -> Vec<FileClass> {
    let companions = Companions::new(rows.files.iter().filter_map(|f| f.path.as_deref()));
    let mut classes: Vec<FileClass> = rows
        .files
        .iter()
        .map(|f| f.path.as_deref().map_or(FileClass::Other, |path| companions.classify(path)))
        .collect();
    let spans = &rows.spans;
    for span in (0..spans.len()).filter(|&at| spans.layer(at) == Layer::Syscall) {
        if let (Some(file), Some(offset)) = (spans.file(span), spans.offset(span))
            && reads_database_header(offset, spans.bytes(span))
            && spans.operation(span).is_some()
            && call_of_kind(&spans.kind(span)).is_some_and(Call::reads)
            && let Some(at) = position.position_of(file)
            && classes[at] == FileClass::Other
        {
            classes[at] = FileClass::Database;
        }
    }
    classes
}

/// Returns the system call of a span.
pub fn call_of_span(span: &Span) -> Option<Call> {
    call_of_kind(&span.kind)
}

/// Returns the system call of a span of this kind.
pub fn call_of_kind(kind: &str) -> Option<Call> {
    Call::ALL.iter().copied().find(|c| c.name() == kind)
}

/// Returns the disks that hold the files and have commands, and the disks below them. A partition or a mapped device,
/// which has no commands of its own, passes its role down. If no file was used at all, all top-level disks count; if
/// files were used, but on no disk (tmpfs), none counts.
fn counted_disks_and_below(rows: &Rows) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let by_name: HashMap<&str, u32> = rows.disks.iter().map(|d| (d.name.as_str(), d.dev)).collect();
    let under = |dev: u32| {
        rows.disks
            .iter()
            .filter(move |d| d.dev == dev)
            .flat_map(|d| d.below.split(' '))
            .filter_map(|name| by_name.get(name).copied())
    };
    let drivers = (0..rows.spans.len()).filter(|&at| rows.spans.layer(at) == Layer::Driver);
    let active: HashSet<u32> = drivers.filter_map(|at| rows.spans.disk(at)).collect();
    // All disks below the given ones, at any depth.
    let closure = |start: Vec<u32>| {
        let mut seen = BTreeSet::new();
        let mut todo = start;
        while let Some(dev) = todo.pop() {
            if seen.insert(dev) {
                todo.extend(under(dev));
            }
        }
        seen
    };
    let mut counted = BTreeSet::new();
    let mut seen = HashSet::new();
    let mut todo: Vec<u32> = rows.disks.iter().filter(|d| d.holds_files).map(|d| d.dev).collect();
    while let Some(dev) = todo.pop() {
        if !seen.insert(dev) {
            continue;
        }
        let next: Vec<u32> = under(dev).collect();
        if active.contains(&dev) || next.is_empty() {
            counted.insert(dev);
        } else {
            todo.extend(next);
        }
    }
    let mut below = closure(counted.iter().flat_map(|&dev| under(dev)).collect());
    // The disk below a loop device is not listed by name; links from the loop device's commands show it.
    let mut disk_of = HashMap::new();
    let remaps = || rows.links.iter().filter(|l| l.relation == Relation::Remaps);
    let wanted: HashSet<u64> = remaps().flat_map(|l| [l.parent, l.child]).collect();
    let wanted_rows = (0..rows.spans.len()).filter(|&at| !wanted.is_empty() && wanted.contains(&rows.spans.id(at)));
    for span in wanted_rows.map(|at| rows.spans.at(at)) {
        disk_of.insert(span.id, span.disk);
    }
    for link in remaps() {
        if let (Some(Some(upper)), Some(Some(lower))) = (disk_of.get(&link.parent), disk_of.get(&link.child))
            && upper != lower
            && (counted.contains(upper) || below.contains(upper))
        {
            below.insert(*lower);
        }
    }
    if counted.is_empty() && rows.files.is_empty() {
        let all_below = closure(active.iter().flat_map(|&dev| under(dev)).collect());
        counted = active.iter().copied().filter(|dev| !all_below.contains(dev)).collect();
        below = all_below;
    }
    below.retain(|dev| !counted.contains(dev));
    (counted, below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_trace;
    use archive::{Meta, TablesWriter};

    #[test]
    fn an_archive_and_its_rows_give_the_same_summary() {
        let rows = small_trace::rows();
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path().join("t.fathom");
        let meta = Meta { complete: true, ..Meta::new(archive::ArchiveKind::Trace, 7, rows.trace.command.clone()) };
        let archive = Archive::create(&dir, &meta, false).unwrap();
        let mut tables = TablesWriter::create(&dir).unwrap();
        macro_rules! push {
            ($each:ident, $($table:ident),*) => { $( rows.$table.iter().for_each(|row| $each!(row)); )* };
        }
        macro_rules! packed {
            ($row:ident) => {
                tables.push(&$row).unwrap()
            };
        }
        macro_rules! plain {
            ($row:ident) => {
                tables.push($row).unwrap()
            };
        }
        push!(packed, operations, spans, links, causes, driver_commands, slices, thread_times, stacks);
        push!(plain, shapes, files, processes, disks, losses, coverage, facts);
        tables.finish().unwrap();
        let loaded = Rows::load(&archive).unwrap();
        assert_eq!(loaded.trace.created_unix_ns, 7);
        let mut summary = crate::summarise(&loaded);
        assert_eq!(crate::summarise_archive(&archive).unwrap(), summary);
        let expected = crate::summarise(&rows);
        (summary.trace.created_unix_ns, summary.trace.made_by) = (0, expected.trace.made_by.clone());
        assert_eq!(summary, expected);
    }

    #[test]
    fn spans_are_found_by_dense_and_sparse_ids() {
        for ids in [vec![3, 1, 2, 1], vec![u64::MAX, 5, 0], vec![]] {
            let places = Places::new(ids.iter().copied(), ids.len());
            for id in [0, 1, 2, 3, 4, 5, u64::MAX] {
                assert_eq!(places.position_of(id), ids.iter().rposition(|&i| i == id), "{id} of {ids:?}");
            }
        }
    }

    #[test]
    fn mapped_devices_pass_commands_down_and_loop_disks_keep_them() {
        let disk = |dev, name: &str, below: &str, holds_files| Disk {
            dev,
            name: name.into(),
            below: below.into(),
            holds_files,
        };
        let mut rows = small_trace::rows();
        // As if the files were on a mapped device, which has bios but no commands, above loop0.
        rows.disks.push(disk(9, "dm-0", "loop0", true));
        rows.disks[0].holds_files = false;
        let index = Index::new(&rows);
        assert_eq!((index.role(rows.disks[0].dev), index.role(9)), (DiskRole::HoldsFiles, DiskRole::Other));
        // Even if the loop disk's backing device is unknown, the links show it.
        let mut rows = small_trace::rows();
        rows.disks[0].below = "/var/disk.img".into();
        let index = Index::new(&rows);
        assert_eq!(index.role(rows.disks[1].dev), DiskRole::Below);
        // As if the files were on no disk; and as if there were no files.
        rows.disks.clear();
        assert_eq!(Index::new(&rows).counted_disks.len(), 0);
        rows.files.clear();
        assert_eq!(Index::new(&rows).counted_disks.len(), 2);
    }

    #[test]
    fn a_database_of_any_name_is_recognised_by_its_reads() {
        let mut rows = small_trace::rows();
        rows.files.remove(0);
        rows.files[0].path = Some("/mnt/places".into());
        assert_eq!(Index::new(&rows).classes[0], FileClass::Database);
        rows.spans.edit().retain(|s| s.id != 70);
        assert_eq!(Index::new(&rows).classes[0], FileClass::Other);
    }

    #[test]
    fn flags_determine_the_kind_of_a_command() {
        let does = |kind: &'static str, flags: &'static str| {
            let span = small_trace::rows().spans.at(0);
            IoAction::on_disk(&Span { kind: kind.into(), flags: flags.into(), ..span })
        };
        assert_eq!(does("request", "write sync preflush fua"), IoAction::Write);
        assert_eq!(does("request", "read readahead"), IoAction::Read);
        assert_eq!(does("flush", ""), IoAction::Flush);
        assert_eq!(does("request", "discard sync"), IoAction::Discard);
        assert_eq!(does("request", "write zeroes sync"), IoAction::Other);
        assert_eq!(does("request", "driver command"), IoAction::Other);
    }
}
