//! The papers' figures 11 to 15 (000: Hattori, Nii, Yamaguchi, "Performance Evaluation and Analyses of Android OS") and
//! 2 to 5 (004, the same group's later comparison of Linux, Android x86 and Android): the numbers given in their text,
//! beside those of our trace.
//!
//! The papers print their figures as plots without tables; only what the text states is here, with its system. A paper's
//! number is only in [`PaperStatement`]; ours is in [`Row::ours`], absent if the trace does not contain it. Nothing is averaged,
//! scaled or compared between the two: their disks, kernels and SQLite are of 2009 to 2012.

pub mod beside;
pub mod claims;
pub mod density;
pub mod list;
pub mod measure;
pub mod network;
pub mod networks;
mod outcome;
pub mod pairs;
pub mod quantity;
pub mod traced;
pub mod two_machines;

use analysis::contract::{FileUse, Gap, OperationSummary, Summary};
use analysis::figures::looks_read_only;
use analysis::phase_names::{GapEnd, PhaseName};
use analysis::text::shown;
use model::{Layer, ShapeKind};
use quantity::{Quantity, Unit};
use serde::Serialize;
use sqlite::FileClass;
use std::fmt::Write as _;

/// A figure of a paper.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Paper, `000` or `004`.
    pub paper: &'static str,
    /// Figure, such as `14, 15`.
    pub figure: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Width of its time window, if it has one.
    pub window_ns: Option<u64>,
    /// The quantities that it states.
    pub rows: Vec<Row>,
}

/// One quantity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the quantity.
    pub what: Quantity,
    /// That of the quantity: `count`, `bytes` or `ns`.
    pub unit: Unit,
    pub paper: Vec<PaperStatement>,
    /// The value of our trace.
    pub ours: Option<f64>,
    /// How our value was obtained, or why there is none.
    pub note: String,
}

/// A paper's statement about one system.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PaperStatement {
    pub system: &'static str,
    /// Number, in the row's unit; absent if the paper gives words only.
    pub value: Option<f64>,
    /// The statement in words.
    pub text: &'static str,
}

const fn stated_number(system: &'static str, value: f64, text: &'static str) -> PaperStatement {
    PaperStatement { system, value: Some(value), text }
}

const fn stated_words(system: &'static str, text: &'static str) -> PaperStatement {
    PaperStatement { system, value: None, text }
}

/// PC, Celeron 440, Ubuntu 10.04, Linux 2.6.32, SQLite 3.5.9.
const LINUX_PC: &str = "Linux (PC)";
/// The same PC, Android x86 1.6, Linux 2.6.32, SQLite 3.5.9.
const ANDROID_X86: &str = "Android x86 (same PC)";
/// Nexus S, Android 4.0, SQLite 3.7.4, MMC.
const ANDROID_PHONE: &str = "Android (Nexus S)";
/// The system of paper 000's figures 11, 12 and 14.
const ANDROID_000: &str = "Android";
const LINUX_000: &str = "Linux";

/// Finds the statement of a trace that corresponds to the papers' INSERT or SELECT: of the matching statements, the
/// one with the most executions.
fn find_statement(summary: &Summary, wanted: impl Fn(&str) -> bool) -> Option<&OperationSummary> {
    let statements = summary.operations.iter().filter(|o| o.kind == ShapeKind::Statement.name() && o.count > 0);
    statements.filter(|o| wanted(&o.statement)).max_by_key(|o| o.count)
}

/// Finds the statement of a recording that corresponds to the papers' INSERT.
fn find_shape(rows: &analysis::Rows) -> Option<&model::table::Shape> {
    let mut counts = std::collections::HashMap::new();
    rows.operations.iter().for_each(|o| *counts.entry(o.shape).or_insert(0_u64) += 1);
    let is = |text: &str| text.get(..6).is_some_and(|s| s.eq_ignore_ascii_case("insert"));
    let inserts = rows.shapes.iter().filter(|shape| shape.is(ShapeKind::Statement) && is(&shape.text));
    inserts.max_by_key(|shape| counts.get(&shape.id).copied().unwrap_or(0))
}

/// Finds the statement that ended the transactions of the INSERTs, where they ran in explicit ones: SQLite writes the
/// database then, and not while a row is inserted. It is recognised by this: the INSERTs themselves wrote no page of the
/// database.
fn commit_of<'a>(summary: &'a Summary, insert: &OperationSummary) -> Option<&'a OperationSummary> {
    let pages = |o: &OperationSummary| writes_of_class(o, FileClass::Database).0 + writes_of_class(o, FileClass::Wal).0;
    let ends = |s: &str| {
        let word = s.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        word.eq_ignore_ascii_case("commit") || word.eq_ignore_ascii_case("end")
    };
    if pages(insert) > 0.0 { None } else { find_statement(summary, ends).filter(|commit| pages(commit) > 0.0) }
}

/// Returns every figure with our values.
pub fn measured_figures(summary: &Summary) -> Vec<Figure> {
    let insert = find_statement(summary, |s| s.get(..6).is_some_and(|s| s.eq_ignore_ascii_case("insert")));
    let select = find_statement(summary, looks_read_only);
    let commit = insert.and_then(|insert| commit_of(summary, insert));
    let of = |operation: Option<&OperationSummary>, value: fn(&OperationSummary) -> f64, how: &str| match operation {
        Some(o) => {
            let note = format!("{how}; {} executions of {}", o.count, shown(&o.statement));
            match commit.filter(|_| insert.is_some_and(|insert| std::ptr::eq(insert, o))) {
                Some(c) => {
                    let whole = value(o) * o.count as f64 + value(c) * c.count as f64;
                    let with = format!("{note}, and {} of {} on their behalf", c.count, shown(&c.statement));
                    (Some(whole / o.count as f64), with)
                }
                None => (Some(value(o)), note),
            }
        }
        None => (None, "the recording has no such statement".to_owned()),
    };
    let alone = |value: fn(&OperationSummary) -> f64| match (insert, commit) {
        (Some(o), Some(c)) => {
            let note = format!("latency of {} alone, without {}", shown(&o.statement), shown(&c.statement));
            (Some(value(o)), format!("{note}; {} executions", o.count))
        }
        _ => of(insert, value, "latency"),
    };
    let row = |what: Quantity, paper: Vec<PaperStatement>, (ours, note): (Option<f64>, String)| Row {
        what,
        unit: what.unit(),
        paper,
        ours,
        note,
    };
    // Zero is a valid count only where something was counted.
    let unseen = unseen_commands(summary);
    let at_device = |of: (Option<f64>, String)| match &unseen {
        Some(why) => (None, why.clone()),
        None => of,
    };
    let gap = |from: fn(PhaseName) -> bool, to: PhaseName| median_gap(commit.or(insert), commit.is_some(), from, to);
    vec![
        Figure {
            paper: "000",
            figure: "11",
            title: "device commands during INSERTs, by time and address",
            window_ns: None,
            rows: vec![row(
                Quantity::DeviceCommandsPerInsert,
                vec![stated_words(ANDROID_000, "write commands are issued")],
                at_device(of(insert, device_commands, "requests and flushes, by share")),
            )],
        },
        Figure {
            paper: "000",
            figure: "12",
            title: "device commands during SELECTs, by time and address",
            window_ns: None,
            rows: vec![row(
                Quantity::DeviceCommandsPerSelect,
                vec![stated_number(ANDROID_000, 0.0, "none: the page cache answers")],
                at_device(of(select, device_commands, "requests and flushes, by share")),
            )],
        },
        Figure {
            paper: "000",
            figure: "13-15",
            title: "one INSERT through the layers",
            window_ns: Some(12_000_000),
            rows: vec![
                row(
                    Quantity::DatabaseWritesPerInsert,
                    vec![stated_number(ANDROID_000, 3.0, "3 of 1024 B"), stated_number(LINUX_000, 2.0, "2 of 1024 B")],
                    of(insert, |o| writes_of_class(o, FileClass::Database).0, "calls"),
                ),
                row(
                    Quantity::DatabaseWriteSize,
                    vec![stated_number(ANDROID_000, 1024.0, "1024 B"), stated_number(LINUX_000, 1024.0, "1024 B")],
                    match commit {
                        Some(_) => of(commit, mean_database_write, "mean"),
                        None => of(insert, mean_database_write, "mean"),
                    },
                ),
                row(
                    Quantity::DeviceWrites,
                    vec![
                        stated_number(ANDROID_000, 3.0, "2 of 4 KB and 1 of 8 KB"),
                        stated_number(LINUX_000, 2.0, "2 of 4 KB"),
                    ],
                    at_device(of(
                        insert,
                        |o| o.per_operation.requests,
                        "all requests of an INSERT, its journal's included",
                    )),
                ),
            ],
        },
        Figure {
            paper: "004",
            figure: "2-4",
            title: "INSERTs through the layers on three systems",
            window_ns: Some(80_000_000),
            rows: vec![
                row(
                    Quantity::FileSystemWritesPerInsert,
                    vec![
                        stated_number(LINUX_PC, 3.0, "3"),
                        stated_number(ANDROID_X86, 3.0, "3"),
                        stated_number(ANDROID_PHONE, 14.0, "14"),
                    ],
                    of(insert, |o| o.per_operation.filesystem_writes.values().map(|w| w.count).sum(), "calls"),
                ),
                row(
                    Quantity::JournalWrites,
                    vec![
                        stated_number(LINUX_PC, 2.0, "2"),
                        stated_number(ANDROID_X86, 2.0, "2"),
                        stated_number(ANDROID_PHONE, 11.0, "11"),
                    ],
                    of(
                        insert,
                        |o| writes_of_class(o, FileClass::RollbackJournal).0 + writes_of_class(o, FileClass::Wal).0,
                        "calls, rollback journal and WAL",
                    ),
                ),
                row(
                    Quantity::DatabaseWrites,
                    vec![
                        stated_number(LINUX_PC, 1.0, "1"),
                        stated_number(ANDROID_X86, 1.0, "1"),
                        stated_number(ANDROID_PHONE, 3.0, "3"),
                    ],
                    of(insert, |o| writes_of_class(o, FileClass::Database).0, "calls"),
                ),
                row(
                    Quantity::FirstToSecondJournalWrite,
                    vec![
                        stated_words(LINUX_PC, "no great difference to Android x86"),
                        stated_words(ANDROID_X86, "no great difference to Linux"),
                    ],
                    gap(|from| from == JOURNAL_WRITE_1, JOURNAL_WRITE_2),
                ),
                row(
                    Quantity::JournalToDatabaseWrite,
                    vec![],
                    gap(|from| from.class == FileClass::RollbackJournal, DATABASE_WRITE_1),
                ),
                row(
                    Quantity::DatabaseWriteToNextInsert,
                    vec![
                        stated_words(LINUX_PC, "differs by about 67 % from Android x86"),
                        stated_words(ANDROID_X86, "differs by about 67 % from Linux"),
                    ],
                    time_to_next(commit.or(insert)),
                ),
                row(
                    Quantity::DeviceCommandsPerInsert,
                    vec![
                        stated_words(LINUX_PC, "fewer after the database write"),
                        stated_words(ANDROID_X86, "more after the database write"),
                        stated_words(ANDROID_PHONE, "more requests in the block layer and scheduler than on either"),
                    ],
                    at_device(of(insert, device_commands, "requests and flushes, by share")),
                ),
            ],
        },
        Figure {
            paper: "004",
            figure: "5",
            title: "Android over a longer time: dense and sparse parts",
            window_ns: None,
            rows: vec![
                row(
                    Quantity::InsertMedian,
                    vec![stated_words(ANDROID_PHONE, "short where dense, but not always")],
                    alone(|o| o.latency_ns.p50 as f64),
                ),
                row(
                    Quantity::InsertP95,
                    vec![stated_words(ANDROID_PHONE, "sparse parts lower the rate")],
                    alone(|o| o.latency_ns.p95 as f64),
                ),
                row(
                    Quantity::InsertBetweenLayers,
                    vec![stated_words(ANDROID_PHONE, "requests take long from layer to layer")],
                    at_device(of(insert, between_layers, "mean time in the block layer and the I/O scheduler")),
                ),
            ],
        },
    ]
}

/// Removes the times of a recording made on an emulated processor: next to the papers' they would be read as speed.
pub fn without_emulated_times(summary: &Summary, figures: &mut [Figure]) {
    if summary.caveats.against_times().is_none() {
        return;
    }
    for row in
        figures.iter_mut().flat_map(|figure| &mut figure.rows).filter(|row| row.unit == Unit::Ns && row.ours.is_some())
    {
        (row.ours, row.note) = (None, "not timed: its processor is emulated".into());
    }
}

/// Returns why a recording has no commands of its files' disk: the files are on no disk, or the block layer was not recorded.
fn unseen_commands(summary: &Summary) -> Option<String> {
    let disk = summary.environment.get("disk.name").filter(|fact| fact.value.is_none());
    let diskless = disk.and_then(|fact| fact.unknown.clone());
    // Major number 0 is for file systems without a partition: those in memory, and those over several disks, which do get commands.
    let sqlite = |f: &&FileUse| f.class != FileClass::Other && f.writes > 0;
    let mut written = summary.files.iter().filter(sqlite).peekable();
    let unnumbered = written.peek().is_some() && written.all(|f| f.dev.starts_with("0:"));
    let idle = summary.operations.iter().all(|o| device_commands(o) == 0.0);
    let diskless =
        diskless.or_else(|| (unnumbered && idle).then(|| "its databases are on no disk, but in memory".into()));
    let blind = summary.blind.iter().find(|b| b.wholly && b.layer == Layer::Block);
    diskless.or_else(|| blind.map(|b| format!("the block layer was not recorded: {}", b.means)))
}

/// Returns the mean time that an execution waited for requests on their way to the driver, ns.
fn between_layers(operation: &OperationSummary) -> f64 {
    let layers = [Layer::Block, Layer::IoScheduler].iter().filter_map(|layer| operation.layers.get(layer));
    layers.map(|time| time.exclusive_ns).sum::<u64>() as f64 / operation.count.max(1) as f64
}

fn device_commands(operation: &OperationSummary) -> f64 {
    operation.per_operation.requests + operation.per_operation.flushes
}

/// Returns the mean calls and bytes written to a class.
fn writes_of_class(operation: &OperationSummary, class: FileClass) -> (f64, f64) {
    operation.per_operation.filesystem_writes.get(&class).map_or((0.0, 0.0), |w| (w.count, w.bytes))
}

fn mean_database_write(operation: &OperationSummary) -> f64 {
    let (count, bytes) = writes_of_class(operation, FileClass::Database);
    if count > 0.0 { bytes / count } else { 0.0 }
}

/// Returns the median of the time from the last write to a database to the next statement.
fn time_to_next(of: Option<&OperationSummary>) -> (Option<f64>, String) {
    let Some(of) = of else { return (None, "the recording has no INSERT".into()) };
    match &of.database_to_next_ns {
        Some(times) => {
            let note = format!("median; last write to the database in {}", shown(&of.statement));
            (Some(times.p50 as f64), format!("{note}, to the next statement"))
        }
        None => (None, format!("{} had no such phases", shown(&of.statement))),
    }
}

const JOURNAL_WRITE_1: PhaseName = PhaseName { class: FileClass::RollbackJournal, ordinal: 1 };
const JOURNAL_WRITE_2: PhaseName = PhaseName { class: FileClass::RollbackJournal, ordinal: 2 };
const DATABASE_WRITE_1: PhaseName = PhaseName { class: FileClass::Database, ordinal: 1 };

/// Returns the median of a gap between phases: of the matching gaps, the most frequent. `of`: the INSERT, or the `commit` that wrote
/// for it.
fn median_gap(
    of: Option<&OperationSummary>,
    commit: bool,
    from: fn(PhaseName) -> bool,
    to: PhaseName,
) -> (Option<f64>, String) {
    let Some(of) = of else { return (None, "the recording has no INSERT".into()) };
    let within = if commit { format!(" of {}", shown(&of.statement)) } else { String::new() };
    let fits = |g: &&Gap| matches!(g.from, GapEnd::Phase(phase) if from(phase)) && g.to == GapEnd::Phase(to);
    match of.gaps.iter().filter(fits).max_by_key(|g| g.count) {
        Some(g) => {
            (Some(g.duration_ns.p50 as f64), format!("median of {} gaps{within}, {} to {}", g.count, g.from, g.to))
        }
        None => (None, format!("{} had no such phases", shown(&of.statement))),
    }
}

/// Formats the figures of one or several recordings as Markdown tables: the papers' numbers, a column for each named recording,
/// and how the values were obtained. All recordings have the figures of [`measured_figures`], or the same subset of them.
pub fn markdown(recordings: &[(String, Vec<Figure>)]) -> String {
    let mut out = String::new();
    let Some((_, first)) = recordings.first() else { return out };
    let head: Vec<&str> = match recordings {
        [_] => vec!["ours"],
        all => all.iter().map(|(name, _)| name.as_str()).collect(),
    };
    for (i, figure) in first.iter().enumerate() {
        let _ = writeln!(out, "### {} figure {}: {}\n", figure.paper, figure.figure, figure.title);
        let _ = writeln!(out, "| what | paper | {} | how ours was obtained |", head.join(" | "));
        let _ = writeln!(out, "|---|---|{}---|", "---|".repeat(head.len()));
        for (j, row) in figure.rows.iter().enumerate() {
            let paper: Vec<String> = row.paper.iter().map(|s| format!("{}: {}", s.system, s.text)).collect();
            let paper = if paper.is_empty() { "not stated".to_owned() } else { paper.join("; ") };
            let value = |x: f64| row.unit.format(x);
            let same = || recordings.iter().filter_map(|(_, figures)| figures.get(i)?.rows.get(j));
            let ours: Vec<String> = same().map(|row| row.ours.map_or_else(|| "none".to_owned(), value)).collect();
            let mut notes: Vec<&str> = Vec::new();
            for note in same().map(|row| row.note.as_str()) {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
            let note = notes.join("; ").replace('|', "\\|");
            let _ = writeln!(out, "| {} | {paper} | {} | {note} |", row.what, ours.join(" | "));
        }
        out.push('\n');
    }
    out
}

/// Formats the figures of two recordings for people: each quantity of both, and their ratio where it makes sense.
pub fn side_by_side(a: &[Figure], b: &[Figure]) -> String {
    let mut out = String::new();
    let mut notes: Vec<&str> = Vec::new();
    for (figure, other) in a.iter().zip(b) {
        let _ = writeln!(out, "  {} figure {}: {}", figure.paper, figure.figure, figure.title);
        for (row, other) in figure.rows.iter().zip(&other.rows) {
            let value = |x: Option<f64>| x.map_or_else(|| "not known".to_owned(), |x| row.unit.format(x));
            let factor = match (row.ours, other.ours) {
                (Some(x), Some(y)) if x > 0.0 && y > 0.0 => format!("x {}", analysis::text::digits(y / x)),
                _ => String::new(),
            };
            let line = format!("    {:58} {:>10} {:>10}  {factor}", row.what, value(row.ours), value(other.ours));
            let _ = writeln!(out, "{}", line.trim_end());
            notes.extend([row, other].iter().filter(|r| r.ours.is_none()).map(|r| r.note.as_str()));
        }
    }
    let mut said: Vec<&str> = Vec::new();
    for note in notes {
        if !said.contains(&note) {
            said.push(note);
            let _ = writeln!(out, "  not known: {}", shown(note));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::{small_trace, summarise};

    #[test]
    fn an_emulated_processor_has_counts_but_no_times() {
        let summary = summarise(&small_trace::rows());
        let values = |figures: &[Figure], ns: bool| {
            let rows = figures.iter().flat_map(|figure| &figure.rows);
            rows.filter(|row| (row.unit == Unit::Ns) == ns && row.ours.is_some()).count()
        };
        let whole = measured_figures(&summary);
        let mut figures = whole.clone();
        without_emulated_times(&summary, &mut figures);
        assert_eq!(figures, whole);
        assert!(values(&whole, true) > 0 && values(&whole, false) > 0);
        let mut rows = small_trace::rows();
        rows.facts.push(small_trace::emulated_fact());
        without_emulated_times(&summarise(&rows), &mut figures);
        assert_eq!((values(&figures, true), values(&figures, false)), (0, values(&whole, false)));
    }

    #[test]
    fn measured_values_come_from_the_trace_others_from_the_paper() {
        let figures = measured_figures(&summarise(&small_trace::rows()));
        let row = |what: Quantity| figures.iter().flat_map(|f| &f.rows).find(|r| r.what == what).unwrap();
        assert_eq!(row(Quantity::JournalWrites).ours, Some(2.0));
        assert_eq!(row(Quantity::DatabaseWrites).ours, Some(0.5));
        assert_eq!(row(Quantity::DeviceCommandsPerSelect).ours, Some(0.0));
        assert_eq!(row(Quantity::FirstToSecondJournalWrite).ours, Some(270_000.0));
        assert_eq!(row(Quantity::DatabaseWriteToNextInsert).ours, Some(580_000.0));
        let theirs: Vec<_> = row(Quantity::FileSystemWritesPerInsert).paper.iter().map(|s| s.value).collect();
        assert_eq!(theirs, [Some(3.0), Some(3.0), Some(14.0)]);
    }

    /// A file system in memory has no device; that differs from a device that gets no command.
    #[test]
    fn files_in_memory_have_no_device_commands() {
        let mut summary = summarise(&small_trace::rows());
        let why = "no file on a disk was read or written";
        let fact = model::Fact {
            value: None,
            unknown: Some(why.into()),
            unit: None,
            source: "the recorded calls".into(),
            varies: "run".into(),
        };
        summary.environment.insert("disk.name".into(), fact);
        let figures = measured_figures(&summary);
        let row = |what: Quantity| figures.iter().flat_map(|f| &f.rows).find(|r| r.what == what).unwrap();
        for what in [Quantity::DeviceCommandsPerSelect, Quantity::DeviceCommandsPerInsert, Quantity::DeviceWrites] {
            assert_eq!((row(what).ours, row(what).note.as_str()), (None, why), "{what}");
        }
        assert_eq!(row(Quantity::JournalWrites).ours, Some(2.0));
        // Other files may be on a device.
        summary.environment.remove("disk.name");
        summary.files.iter_mut().for_each(|f| f.dev = "0:40".into());
        assert!(unseen_commands(&summary).is_none(), "there were commands");
        summary.operations.iter_mut().for_each(|o| (o.per_operation.requests, o.per_operation.flushes) = (0.0, 0.0));
        assert!(unseen_commands(&summary).is_some_and(|why| why.contains("in memory")));
    }

    #[test]
    fn two_recordings_are_shown_side_by_side_with_a_factor() {
        let figures = measured_figures(&summarise(&small_trace::rows()));
        let mut other = figures.clone();
        for row in other.iter_mut().flat_map(|f| &mut f.rows) {
            match row.what {
                Quantity::JournalWrites => row.ours = Some(11.0),
                Quantity::DeviceCommandsPerSelect => (row.ours, row.note) = (None, "no disk".into()),
                _ => {}
            }
        }
        let text = side_by_side(&figures, &other);
        let line = |what: &str| text.lines().find(|l| l.contains(what)).unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(line("of these to the journal")[5..], ["2", "11", "x", "5.50"], "{text}");
        assert_eq!(line("device commands per SELECT")[4..], ["0", "not", "known"], "{text}");
        assert_eq!(text.matches("not known: no disk").count(), 1, "{text}");
    }

    /// The mean over all executions, of both intermediate layers.
    #[test]
    fn the_time_between_layers_is_block_layer_and_scheduler() {
        let mut summary = summarise(&small_trace::rows());
        let insert = summary.operations.iter_mut().find(|o| o.statement.starts_with("INSERT")).unwrap();
        let other = insert.layers[&Layer::Driver].clone();
        let n = insert.count;
        insert.layers.insert(Layer::Block, analysis::contract::LayerTime { exclusive_ns: 3_000 * n, ..other.clone() });
        insert.layers.insert(Layer::IoScheduler, analysis::contract::LayerTime { exclusive_ns: 500 * n, ..other });
        let figures = measured_figures(&summary);
        let row = figures.iter().flat_map(|f| &f.rows).find(|r| r.what == Quantity::InsertBetweenLayers).unwrap();
        assert_eq!(row.ours, Some(3_500.0));
    }

    /// SQLite writes the database in the statement that ends the transaction.
    #[test]
    fn the_inserts_of_a_transaction_include_its_commit() {
        let mut summary = summarise(&small_trace::rows());
        let at = summary.operations.iter().position(|o| o.statement.starts_with("INSERT")).unwrap();
        let mut commit = summary.operations[at].clone();
        commit.statement = "COMMIT".into();
        commit.per_operation.filesystem_writes.remove(&FileClass::RollbackJournal);
        let insert = &mut summary.operations[at];
        insert.count = 2 * commit.count;
        insert.gaps.clear();
        insert.database_to_next_ns = None;
        insert.per_operation.filesystem_writes.remove(&FileClass::Database);
        summary.operations.push(commit);
        let figures = measured_figures(&summary);
        let row = |what: Quantity| figures.iter().flat_map(|f| &f.rows).find(|r| r.what == what).unwrap();
        // Two journal writes for each INSERT; half a database write for each COMMIT, of which there are half as many.
        assert_eq!(row(Quantity::JournalWrites).ours, Some(2.0));
        assert_eq!(row(Quantity::DatabaseWrites).ours, Some(0.25));
        assert_eq!(row(Quantity::FileSystemWritesPerInsert).ours, Some(2.25));
        assert_eq!(row(Quantity::DatabaseWriteSize).ours, Some(4096.0));
        assert_eq!(row(Quantity::DatabaseWriteToNextInsert).ours, Some(580_000.0));
        assert!(row(Quantity::DatabaseWrites).note.contains("COMMIT"));
        assert!(row(Quantity::InsertMedian).note.contains("without COMMIT"));
    }

    #[test]
    fn markdown_has_a_column_for_each_recording() {
        let figures = measured_figures(&summarise(&small_trace::rows()));
        let empty = measured_figures(&summarise(&analysis::Rows::default()));
        let text = markdown(&[("pc".into(), figures), ("phone".into(), empty)]);
        assert!(
            text.contains("| what | paper | pc | phone | how ours was obtained |\n|---|---|---|---|---|\n"),
            "{text}"
        );
        let row = text.lines().find(|line| line.starts_with("| of these to the journal |")).unwrap();
        assert!(row.contains(" | 2 | none | ") && row.ends_with("; the recording has no such statement |"), "{row}");
    }

    #[test]
    fn an_empty_trace_has_no_measured_values() {
        let figures = measured_figures(&summarise(&analysis::Rows::default()));
        assert!(figures.iter().flat_map(|f| &f.rows).all(|r| r.ours.is_none() && !r.note.is_empty()));
        assert!(
            markdown(&[("here".into(), figures)])
                .contains("| device commands per SELECT | Android: none: the page cache answers | none |")
        );
    }
}
