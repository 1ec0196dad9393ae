//! Counts of one recording: by statement, and for everything outside of statements.
//!
//! A call counts for the innermost execution in which it was made. Files of the system (libraries, locales, settings) do not
//! belong to the program: they differ on another machine, so they are left out. So are accesses to terminals and pipes.

use super::count_name::{CHECKPOINTS, CountName, EXECUTIONS, FLUSHES, FileKind, ROWS};
use crate::diff::lost_records;
use crate::diff::phase::{FileRole, Phase, Phases, wal_databases};
use analysis::caveats::Caveats;
use analysis::charges;
use analysis::completeness::lost_at_unknown_time;
use analysis::entries::Entries;
use analysis::flaws;
use analysis::rows::{Index, IoAction, Rows};
use model::table::Span;
use model::{Call, Layer, ShapeKind, SpanFlag};
use serde::{Deserialize, Serialize};
use sqlite::FileClass;
use std::collections::{BTreeMap, HashSet};

/// Counts by name, such as `fdatasync WAL`.
pub type Counts = BTreeMap<String, u64>;

/// Counts of a statement, or of everything outside of statements.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SectionCounts {
    /// Counts that depend on the program alone.
    pub calls: Counts,
    /// Commands sent to the device for it, by shares; these depend on other processes, too.
    pub device: BTreeMap<String, f64>,
    /// An example of a file for each count.
    pub examples: BTreeMap<String, String>,
}

impl SectionCounts {
    /// Parses the kernel's counts of a run from the output of `fathom workload command`.
    ///
    /// # Errors
    /// A line is not JSON.
    pub fn parse(lines: &str) -> serde_json::Result<Self> {
        let mut one = Self::default();
        for line in lines.lines() {
            let value: serde_json::Value = serde_json::from_str(line)?;
            let name = match value["metric"].as_str().unwrap_or_default() {
                "read_calls" => CountName::ReadCalls,
                "write_calls" => CountName::WriteCalls,
                "bytes_read" => CountName::BytesRead(None),
                "bytes_written" => CountName::BytesWritten(None),
                _ => continue,
            };
            one.calls.insert(name.to_string(), value["v"].as_f64().unwrap_or(0.0) as u64);
        }
        Ok(one)
    }
}

/// Counts of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObservedRun {
    /// Outside of statements; for a program without SQLite, everything.
    pub program: SectionCounts,
    /// By statement text.
    pub statements: BTreeMap<String, SectionCounts>,
    /// What is missing, if anything that could be counted is.
    pub incomplete: Option<String>,
    /// What the recording cannot carry; none for the kernel's counts alone.
    pub caveats: Caveats,
}

/// Directories of the system, whose files belong to no program.
const SYSTEM_DIRECTORIES: [&str; 17] = [
    "/usr/",
    "/lib/",
    "/lib32/",
    "/lib64/",
    "/libx32/",
    "/bin/",
    "/sbin/",
    "/etc/",
    "/proc/",
    "/sys/",
    "/dev/",
    "/run/",
    "/opt/",
    "/nix/",
    "/snap/",
    "/var/lib/",
    "/var/cache/",
];
/// Directories of tools and their data, at any place.
const TOOL_DIRECTORIES: [&str; 10] = [
    ".pyenv",
    ".cargo",
    ".rustup",
    ".cache",
    ".nvm",
    ".config",
    "site-packages",
    "dist-packages",
    "__pycache__",
    "node_modules",
];

/// Whether a file belongs to the program itself.
pub(super) fn is_own_file(path: &str) -> bool {
    path.starts_with('/')
        && !path.starts_with("/memfd:")
        && !SYSTEM_DIRECTORIES.iter().any(|start| path.starts_with(start))
        && !path.split('/').any(|part| TOOL_DIRECTORIES.contains(&part))
}

/// Ends of the names of sources that an interpreter reads: an edit of the program is no other use of the disk.
pub(super) const SOURCE_EXTENSIONS: [&str; 17] =
    ["py", "pyc", "pyi", "js", "mjs", "cjs", "ts", "rb", "pl", "pm", "sh", "bash", "lua", "php", "tcl", "jl", "awk"];

/// The files that an interpreter reads as its program: named like a source, or executed by the command itself, and never changed.
struct Sources<'a> {
    changed: HashSet<u64>,
    executed: Option<&'a str>,
}

impl<'a> Sources<'a> {
    fn new(rows: &'a Rows) -> Self {
        let changes =
            |kind: &str| Call::ALL.iter().any(|call| call.name() == kind && (call.changes() || call.writes()));
        let spans = rows.spans.of_layer(Layer::Syscall).map(|(_, span)| span);
        let changed = spans.filter(|span| changes(&span.kind)).filter_map(|span| span.file).collect();
        let executed = rows.trace.command.first().map(|word| word.trim_start_matches("./"));
        Self { changed, executed: executed.filter(|word| !word.is_empty()) }
    }

    fn contain(&self, file: Option<u64>, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let source = name.rsplit_once('.').is_some_and(|(_, end)| SOURCE_EXTENSIONS.contains(&end));
        let executed = self.executed.is_some_and(|word| path.ends_with(word));
        (source || executed) && file.is_none_or(|file| !self.changed.contains(&file))
    }
}

/// Counts a recording.
pub fn observe(rows: &Rows) -> ObservedRun {
    let index = Index::new(rows);
    let repeated = RepeatedShapes::new(&index);
    let mut found = ObservedRun {
        incomplete: why_incomplete(rows),
        caveats: flaws::find_caveats(&index),
        ..ObservedRun::default()
    };
    for (at, operation) in rows.operations.iter().enumerate() {
        if operation.end_ns.is_none() {
            found.incomplete.get_or_insert_with(|| "an execution has no end".into());
            continue;
        }
        if let Some(shape) = index.shape(at).filter(|shape| repeated.0[*shape]) {
            let one = found.statements.entry(rows.shapes[shape].text.clone()).or_default();
            *one.calls.entry(EXECUTIONS.into()).or_default() += 1;
            if operation.rows > 0 {
                *one.calls.entry(ROWS.into()).or_default() += operation.rows;
            }
        }
    }
    count_calls(&index, &repeated, &mut found, &mut |_| ());
    count_device_commands(&index, &repeated, &mut found);
    found
}

/// A call that is counted.
pub(super) struct CountedCall<'a> {
    /// The statement in which it was made; `None` outside of statements.
    pub statement: Option<&'a str>,
    /// Its count.
    pub name: &'a str,
    pub span: &'a Span,
}

/// Visits each call that a recording counts.
pub(super) fn observe_calls(rows: &Rows, visit: &mut dyn FnMut(&CountedCall)) {
    let index = Index::new(rows);
    let repeated = RepeatedShapes::new(&index);
    count_calls(&index, &repeated, &mut ObservedRun::default(), visit);
}

fn why_incomplete(rows: &Rows) -> Option<String> {
    let more = lost_at_unknown_time(rows);
    let hiding = rows.losses.iter().map(|loss| lost_records(rows, loss)).find(|lost| lost.hides_executions);
    match hiding {
        Some(lost) => Some(match lost.events {
            Some(n) => format!("{n} records were lost ({})", lost.source),
            None => format!("an unknown number of records was lost ({})", lost.source),
        }),
        None if more > 0 => Some(format!("{more} records were lost")),
        None => (!rows.trace.complete).then(|| "the recording was interrupted".into()),
    }
}

impl ObservedRun {
    /// Returns the calls of the whole program, which are the same however it names its files and whichever statement makes them.
    pub fn total(&self) -> SectionCounts {
        let mut total = SectionCounts::default();
        let each = || self.statements.values().chain([&self.program]);
        for (name, n) in each().flat_map(|one| &one.calls).filter(|(name, _)| is_call(name)) {
            let sum = total.calls.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*n);
        }
        for (name, path) in each().flat_map(|one| &one.examples).filter(|(name, _)| is_call(name)) {
            total.examples.entry(name.clone()).or_insert_with(|| path.clone());
        }
        total
    }

    /// Returns all counts of calls and bytes of the whole program.
    pub fn sums(&self) -> Counts {
        let mut sums = Counts::new();
        let of_calls = |name: &str| !matches!(CountName::parse(name), CountName::Executions | CountName::Rows);
        let each = self.statements.values().chain([&self.program]).flat_map(|one| &one.calls);
        for (name, n) in each.filter(|(name, _)| of_calls(name)) {
            let sum = sums.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*n);
        }
        sums
    }

    fn counts_of(&mut self, index: &Index, repeated: &RepeatedShapes, operation: Option<usize>) -> &mut SectionCounts {
        match operation.and_then(|at| index.shape(at)).filter(|shape| repeated.0[*shape]) {
            Some(shape) => self.statements.entry(index.rows.shapes[shape].text.clone()).or_default(),
            None => &mut self.program,
        }
    }
}

/// For each shape, whether a rerun executes it equally often. A call that became an operation because it slept for the device (a
/// read, a direct write) depends on what is cached and how busy the device is: it counts for the program, as it would have
/// without the sleep. A sync always waits, and so does a write to a file opened with O_SYNC or O_DSYNC.
struct RepeatedShapes(Vec<bool>);

impl RepeatedShapes {
    fn new(index: &Index) -> Self {
        let syncs = |text: &str| {
            let name = text.split(' ').next().unwrap_or("");
            Call::ALL.iter().any(|call| call.name() == name && call.syncs())
        };
        let mut all: Vec<bool> = index.rows.shapes.iter().map(|s| !s.is(ShapeKind::Call) || syncs(&s.text)).collect();
        let flagged = |span: &Span| span.layer == Layer::Syscall && span.has(SpanFlag::Sync);
        for span in index.rows.spans.iter().filter(flagged) {
            if let Some(shape) = index.operation_of(&span).and_then(|at| index.shape(at)) {
                all[shape] = true;
            }
        }
        Self(all)
    }
}

fn is_call(name: &str) -> bool {
    matches!(CountName::parse(name), CountName::Call(..))
}

/// Returns the kind of file, if it is counted.
fn file_kind(kind: FileRole, path: Option<&str>) -> Option<FileKind> {
    match (kind, path) {
        (FileRole::Of(FileClass::Other), Some(path)) => is_own_file(path).then_some(FileKind::File),
        (FileRole::Of(class), _) if class != FileClass::Other => Some(FileKind::Sqlite(class)),
        (FileRole::Directory, path) => path.is_none_or(is_own_file).then_some(FileKind::Directory),
        _ => None,
    }
}

fn count_calls(index: &Index, repeated: &RepeatedShapes, found: &mut ObservedRun, visit: &mut dyn FnMut(&CountedCall)) {
    let rows = index.rows;
    let tracked: HashSet<u32> = rows.processes.iter().filter(|p| p.tracked).map(|p| p.tgid).collect();
    let (phases, entries, wal) = (Phases::new(index), Entries::new(index), wal_databases(index));
    // Files that were open before the program began (stdout in a file) are not its own.
    let opened: HashSet<u64> =
        rows.spans.iter().filter(|s| s.kind == Call::Open.name()).filter_map(|s| s.file).collect();
    let sources = Sources::new(rows);
    let mut checkpointed: HashSet<usize> = HashSet::new();
    for (at, span) in rows.spans.of_layer(Layer::Syscall) {
        let Phase::In(call, kind) = phases.of_call(at) else { continue };
        if !tracked.contains(&span.tgid) || matches!(call, Call::Lseek | Call::Mmap) {
            continue;
        }
        let operation = index.operation_of(&span);
        let path = index.path_of(&span);
        if path.is_some_and(|path| sources.contain(span.file, path)) {
            continue;
        }
        // Not recorded for all calls is whose file a change is: `rename` outside ext4's events. It counts all the same.
        let is_of_no_file = matches!(call, Call::Sync | Call::IoUringEnter) || (call.changes() && span.file.is_none());
        let changes = call.changes() || span.file.is_some_and(|file| opened.contains(&file)) || path.is_none();
        let file = match file_kind(kind, path) {
            Some(file) if changes || kind != FileRole::Of(FileClass::Other) => Some(file),
            _ if is_of_no_file => None,
            _ => continue,
        };
        let name = CountName::Call(call, file).to_string();
        let shape = operation.and_then(|at| index.shape(at)).filter(|shape| repeated.0[*shape]);
        let statement = shape.map(|shape| rows.shapes[shape].text.as_str());
        visit(&CountedCall { statement, name: &name, span: &span });
        let bytes = entries.effect_of(index, at, &span).bytes;
        let one = found.counts_of(index, repeated, operation);
        if let Some(path) = path {
            one.examples.entry(name.clone()).or_insert_with(|| path.into());
        }
        if bytes > 0 && (call.reads() || call.writes()) {
            let of = if call.reads() { CountName::BytesRead(file) } else { CountName::BytesWritten(file) };
            *one.calls.entry(of.to_string()).or_default() += bytes;
        }
        *one.calls.entry(name).or_default() += 1;
        let of_wal = || path.is_some_and(|path| wal.contains(path));
        if let Some(at) = operation.filter(|_| call.writes() && kind == FileRole::Of(FileClass::Database) && of_wal())
            && checkpointed.insert(at)
        {
            *found.counts_of(index, repeated, operation).calls.entry(CHECKPOINTS.into()).or_default() += 1;
        }
    }
}

/// Adds the shares of executions in the disks' commands, and those of the program's processes outside of executions.
fn count_device_commands(index: &Index, repeated: &RepeatedShapes, found: &mut ObservedRun) {
    let spans = &index.rows.spans;
    let mut add = |operation: Option<usize>, at: usize, share: f64| {
        let span = &spans.at(at);
        if share <= 0.0 || !span.disk.is_some_and(|disk| index.counted_disks.contains(&disk)) {
            return;
        }
        let one = found.counts_of(index, repeated, operation);
        match IoAction::on_disk(span) {
            IoAction::Flush => *one.device.entry(FLUSHES.into()).or_default() += share,
            IoAction::Write => *one.device.entry(CountName::WriteCommands.to_string()).or_default() += share,
            IoAction::Read | IoAction::Discard | IoAction::Other => {}
        }
    };
    for (at, parts) in charges::command_shares(index).iter() {
        parts.iter().for_each(|part| add(Some(part.operation as usize), at, part.own));
    }
    let tracked: HashSet<u32> = index.rows.processes.iter().filter(|p| p.tracked).map(|p| p.tgid).collect();
    for cause in index.rows.causes.iter().filter(|c| c.operation.is_none()) {
        if let (Some(at), true) = (index.span(cause.command), cause.tgid.is_some_and(|tgid| tracked.contains(&tgid))) {
            add(None, at, cause.share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_directories_are_the_systems() {
        for path in
            ["/lib/a.so", "/lib64/a.so", "/usr/lib/a", "/etc/passwd", "/home/u/.cache/x", "/memfd:a", "pipe:[1]"]
        {
            assert!(!is_own_file(path), "{path}");
        }
        for path in ["/library/x.db", "/libraries/x", "/etcetera/x", "/home/u/lib/x", "/home/u/my.cache/x"] {
            assert!(is_own_file(path), "{path}");
        }
        assert!(SYSTEM_DIRECTORIES.iter().all(|name| name.starts_with('/') && name.ends_with('/')));
    }
}
