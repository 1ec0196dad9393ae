//! `runs.jsonl`: the log of a benchmark, from which its tables are made.
//!
//! A benchmark lasts minutes to hours, and its results must survive a crash, a full disk and an impatient Ctrl-C. So
//! each replicate is appended, with all its numbers, as one line of JSON when it has ended, and synced to disk before
//! the next begins: never while something is measured. As with `events.log`, this log is authoritative and the tables
//! are derived; an interrupted run resumes from it.
//!
//! An unterminated last line was being written when the power failed: it is ignored, and truncated before more is appended. Every other
//! line has its number and a checksum ([`line`]); unreadable and missing lines are damage, and are reported. Resuming a damaged log
//! keeps it next to the one that is made of its intact lines ([`read`]).

use crate::error::{Error, IoResultExt, Result};
use crate::lock::Lock;
use crate::tables::TablesWriter;
use model::Environment;
use model::table::{DesignCell, DesignRow, FactRow, MarkRow, Replicate, Sample};
use model::text::ShownPath as _;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

mod line;
mod read;

pub use read::{Damage, is_lost};

/// The name of the only design of a network run.
pub const NET_RUN: &str = "net run";
/// The mark of a network run with the first cause that limited it; for one of two directions, followed by its name.
pub const LIMITED_BY_MARK: &str = "limited by";

/// A line of the log. Numbers of designs, cells and replicates are the archive's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The machine's facts when a run began or was resumed.
    Machine(Environment),
    /// The plan of the run. Older logs have none.
    Planned {
        /// How many cells each design has; the designs' lines follow this one.
        cells: Vec<u64>,
    },
    /// A design is about to be run.
    Design(DesignRow),
    /// One of its cells; all come before its first replicate.
    Cell(DesignCell),
    /// A cell has no, or no further, replicates.
    Absent {
        cell: u64,
        /// Why.
        why: String,
    },
    /// A replicate has ended.
    Replicate(Box<Run>),
    /// A fact that holds for the whole archive.
    Mark(MarkRow),
    /// A design has ended.
    Stopped {
        design: u64,
        /// Why no further block was run.
        why: String,
        /// How many replicates it has. Older logs omit it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replicates: Option<u64>,
    },
}

/// A replicate with its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The process.
    pub replicate: Replicate,
    /// Its numbers.
    pub samples: Vec<Sample>,
    /// Its facts.
    pub marks: Vec<MarkRow>,
}

/// Everything in a log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Runs {
    /// What was known of the machine at each beginning, oldest first.
    pub machines: Vec<Environment>,
    /// How many cells each design has, if that is known.
    planned: Option<Vec<u64>>,
    pub designs: Vec<DesignRow>,
    pub cells: Vec<DesignCell>,
    /// The replicates in the order in which they ran.
    pub runs: Vec<Run>,
    /// Facts of the whole.
    pub marks: Vec<MarkRow>,
    /// Bytes of the complete lines.
    whole: u64,
    /// Number of the complete lines.
    lines: u64,
}

pub use crate::layout::runs as path;

/// An entry that does not fit those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum MisplacedEntry {
    #[error("found {what} {found} where {what} {expected} was expected")]
    OutOfOrder { what: &'static str, found: u64, expected: u64 },
    #[error("no such {0}: {1}")]
    Absent(&'static str, u64),
    #[error("duplicate {0} {1}")]
    Duplicate(&'static str, u64),
}

impl Runs {
    /// Reads the log of the archive `dir`, which must be undamaged.
    ///
    /// # Errors
    /// [`Error::NotAnArchive`] if it has none, [`Error::Damaged`] with the line, [`Error::Io`].
    pub fn read(dir: &Path) -> Result<Self> {
        match Self::salvage(dir)? {
            (runs, damage) if damage.is_none() => Ok(runs),
            (_, damage) => Err(Error::Damaged {
                path: path(dir),
                why: damage.to_string(),
                remedy: format!(
                    "`fathom bench run --resume {}` keeps what is intact, measures the rest again, and renames this \
                     log",
                    dir.shown()
                ),
            }),
        }
    }

    /// Reads the intact part of the log of the archive `dir`, and the damage.
    ///
    /// # Errors
    /// [`Error::NotAnArchive`] if it has none, [`Error::Damaged`] if the plan of the run is lost, [`Error::Io`].
    pub fn salvage(dir: &Path) -> Result<(Self, Damage)> {
        let path = path(dir);
        let file = match crate::own_file::open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let why = "it contains no benchmark (no runs.jsonl)".into();
                return Err(Error::NotAnArchive { path: dir.into(), why });
            }
            other => other.with_action("open", &path)?,
        };
        Self::parse(&mut BufReader::new(file), &path)
    }

    /// Reads a log; `path` is for messages.
    pub fn parse(from: &mut dyn BufRead, path: &Path) -> Result<(Self, Damage)> {
        read::parse(from, path)
    }

    /// The entries that it was made from, including those that were lost and restored.
    fn entries(&self) -> Vec<Entry> {
        let mut all: Vec<Entry> = self.machines.iter().cloned().map(Entry::Machine).collect();
        all.extend(self.planned.clone().map(|cells| Entry::Planned { cells }));
        all.extend(self.designs.iter().map(|row| Entry::Design(DesignRow { stopped: None, ..row.clone() })));
        all.extend(self.marks.iter().cloned().map(Entry::Mark));
        all.extend(self.cells.iter().map(|row| Entry::Cell(DesignCell { absent: None, ..row.clone() })));
        all.extend(self.cells.iter().filter_map(|c| Some(Entry::Absent { cell: c.id, why: c.absent.clone()? })));
        all.extend(self.runs.iter().map(|run| Entry::Replicate(Box::new(run.clone()))));
        all.extend(self.designs.iter().filter_map(|d| {
            let (design, why) = (d.id, d.stopped.clone()?);
            Some(Entry::Stopped { design, why, replicates: Some(self.replicates_of(design)) })
        }));
        all
    }

    /// How many replicates a design has.
    pub fn replicates_of(&self, design: u64) -> u64 {
        let of = |run: &&Run| self.cells.get(run.replicate.cell as usize).is_some_and(|c| c.design == design);
        self.runs.iter().filter(of).count() as u64
    }

    /// Adds an entry.
    fn add_entry(&mut self, entry: Entry) -> Result<(), MisplacedEntry> {
        let next = |what, found: u64, expected: usize| {
            if found == expected as u64 {
                Ok(())
            } else {
                Err(MisplacedEntry::OutOfOrder { what, found, expected: expected as u64 })
            }
        };
        match entry {
            Entry::Machine(facts) => self.machines.push(facts),
            Entry::Planned { cells } => self.planned = Some(cells),
            Entry::Design(row) => {
                next("design", row.id, self.designs.len())?;
                self.designs.push(row);
            }
            Entry::Cell(row) => {
                self.designs.get(row.design as usize).ok_or(MisplacedEntry::Absent("design", row.design))?;
                match self.cells.get_mut(row.id as usize) {
                    Some(lost) if is_lost(lost) => *lost = DesignCell { absent: lost.absent.take(), ..row },
                    _ => {
                        next("cell", row.id, self.cells.len())?;
                        self.cells.push(row);
                    }
                }
            }
            Entry::Absent { cell, why } => {
                let row = usize::try_from(cell).ok().and_then(|at| self.cells.get_mut(at));
                row.ok_or(MisplacedEntry::Absent("cell", cell))?.absent = Some(why);
            }
            Entry::Replicate(run) => {
                next("replicate", run.replicate.id, self.runs.len())?;
                let cell = run.replicate.cell;
                let row = usize::try_from(cell).ok().and_then(|at| self.cells.get(at));
                let design = row.ok_or(MisplacedEntry::Absent("cell", cell))?.design;
                self.goes_on(design);
                self.runs.push(*run);
            }
            Entry::Mark(row) => self.marks.push(row),
            Entry::Stopped { design, why, .. } => {
                let row = usize::try_from(design).ok().and_then(|at| self.designs.get_mut(at));
                row.ok_or(MisplacedEntry::Absent("design", design))?.stopped = Some(why);
            }
        }
        Ok(())
    }

    /// Marks a design as not ended, since a replicate follows its end.
    fn goes_on(&mut self, design: u64) {
        if let Some(row) = usize::try_from(design).ok().and_then(|at| self.designs.get_mut(at)) {
            row.stopped = None;
        }
    }

    /// Makes the tables of the archive `dir`, with the newest facts of the machine.
    ///
    /// # Errors
    /// [`Error::Io`]; the old tables are still there then.
    pub fn make_tables(&self, dir: &Path) -> Result<()> {
        let mut tables = TablesWriter::create(dir)?;
        self.designs.iter().try_for_each(|row| tables.push(row))?;
        self.cells.iter().try_for_each(|row| tables.push(row))?;
        for run in &self.runs {
            tables.push(&run.replicate)?;
            run.samples.iter().try_for_each(|row| tables.push(row))?;
            run.marks.iter().try_for_each(|row| tables.push(row))?;
        }
        self.marks.iter().try_for_each(|row| tables.push(row))?;
        for (name, fact) in self.machines.last().into_iter().flatten() {
            tables.push(&FactRow {
                name: name.clone(),
                value: fact.value.clone(),
                unknown: fact.unknown.clone(),
                unit: fact.unit.clone(),
                source: fact.source.clone(),
                varies: fact.varies.clone(),
            })?;
        }
        tables.finish()
    }
}

/// Appends to a log, and keeps its content.
#[derive(Debug)]
pub struct RunsWriter {
    _lock: Lock,
    path: PathBuf,
    file: File,
    runs: Runs,
}

impl RunsWriter {
    /// Begins the log of the archive `dir`, which must have none.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Busy`] if another process writes the archive.
    pub fn create(dir: &Path) -> Result<Self> {
        let lock = Lock::take(dir)?;
        let path = path(dir);
        let file = OpenOptions::new().append(true).create_new(true).open(&path).with_action("create", &path)?;
        Ok(Self { _lock: lock, path, file, runs: Runs::default() })
    }

    /// Resumes the log of the archive `dir`; an incomplete last line is truncated. The intact part of a damaged log goes into a new
    /// one; the old one stays next to it under another name, which is returned with the damage.
    ///
    /// # Errors
    /// As [`Runs::salvage`], and [`Error::Busy`] if another process writes the archive.
    pub fn resume(dir: &Path) -> Result<(Self, Option<(Damage, PathBuf)>)> {
        let lock = Lock::take(dir)?;
        let (mut runs, damage) = Runs::salvage(dir)?;
        let path = path(dir);
        let mended = if damage.is_none() { None } else { Some((damage, replace_damaged_log(&path, &mut runs)?)) };
        let file = OpenOptions::new().append(true).open(&path).with_action("open", &path)?;
        file.set_len(runs.whole).with_action("cut", &path)?;
        Ok((Self { _lock: lock, path, file, runs }, mended))
    }

    /// The content of the log.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Appends a line and syncs it to disk.
    ///
    /// # Errors
    /// [`Error::Io`], such as for a full disk; the lines before stay, and a partial line is truncated.
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        let line =
            line::encode(self.runs.lines + 1, &entry).map_err(std::io::Error::from).with_action("write", &self.path)?;
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // Best effort: a reader ignores a partial last line anyway.
            let _ = self.file.set_len(self.runs.whole);
        }
        written.with_action("write", &self.path)?;
        let bytes = line.len() as u64;
        self.runs.add_entry(entry).map_err(std::io::Error::other).with_action("continue", &self.path)?;
        self.runs.whole += bytes;
        self.runs.lines += 1;
        Ok(())
    }
}

/// Replaces a damaged log by one made of its intact lines, and returns the damaged one's new path. At every moment one of the two has
/// the log's name.
fn replace_damaged_log(path: &Path, runs: &mut Runs) -> Result<PathBuf> {
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let kept =
        (1_u32..).map(|n| beside(&format!(".damaged{n}"))).find(|p| !p.exists()).unwrap_or_else(|| beside(".damaged"));
    let tmp = beside(".tmp");
    let mut text = Vec::new();
    let entries = runs.entries();
    for (number, entry) in (1..).zip(&entries) {
        text.extend(line::encode(number, entry).map_err(std::io::Error::from).with_action("write", &tmp)?);
    }
    let written = File::create(&tmp).and_then(|mut file| {
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::hard_link(path, &kept).or_else(|_| std::fs::copy(path, &kept).map(drop))?;
        std::fs::rename(&tmp, path)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&tmp);
    }
    written.with_action("replace", path)?;
    (runs.whole, runs.lines) = (text.len() as u64, entries.len() as u64);
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::table::TABLES;
    use proptest::prelude::*;

    pub(super) fn design(id: u64) -> Entry {
        Entry::Design(DesignRow {
            id,
            name: "w".into(),
            question: "?".into(),
            seed: 1,
            quick: false,
            score: "rate".into(),
            unit: None,
            scale: 1.0,
            better: Some("higher".into()),
            precision: Some(0.02),
            stopped: None,
            baseline: None,
            design: r#"{"cell":[1]}"#.into(),
        })
    }

    fn cell(id: u64) -> Entry {
        Entry::Cell(DesignCell {
            id,
            design: 0,
            name: "c".into(),
            factors: "{}".into(),
            argv: "[]".into(),
            metric: Some("iteration".into()),
            same_as: None,
            absent: None,
        })
    }

    fn replicate(id: u64, cell: u64) -> Entry {
        let replicate = Replicate {
            id,
            cell,
            block: id,
            place: 0,
            start_ns: 1,
            end_ns: 2,
            start_unix_ns: Some(3),
            exit: Some(0),
            verified: Some(true),
            verified_by: Some("sum".into()),
            warmup: id == 0,
            why: None,
            gates: None,
            failure: None,
        };
        let sample = Sample {
            replicate: Some(id),
            metric: "iteration".into(),
            unit: "ns".into(),
            labels: String::new(),
            time_ns: Some(5),
            value: 0.1 + id as f64,
        };
        let mark = MarkRow { replicate: Some(id), name: "mode".into(), text: "\u{1b}\"\n".into() };
        Entry::Replicate(Box::new(Run { replicate, samples: vec![sample], marks: vec![mark] }))
    }

    fn write(dir: &Path) -> Runs {
        let mut log = RunsWriter::create(dir).unwrap();
        for entry in [design(0), cell(0), replicate(0, 0), replicate(1, 0)] {
            log.push(entry).unwrap();
        }
        log.push(Entry::Absent { cell: 0, why: "tired".into() }).unwrap();
        log.push(Entry::Stopped { design: 0, why: "budget".into(), replicates: Some(2) }).unwrap();
        log.runs().clone()
    }

    #[test]
    fn a_log_round_trips_and_becomes_tables() {
        let dir = tempfile::tempdir().unwrap();
        crate::Archive::create(dir.path(), &crate::Meta::new(crate::ArchiveKind::Bench, 1, vec![]), false).unwrap();
        let written = write(dir.path());
        let read = Runs::read(dir.path()).unwrap();
        assert_eq!(read, written);
        assert_eq!(
            (read.cells[0].absent.as_deref(), read.designs[0].stopped.as_deref()),
            (Some("tired"), Some("budget"))
        );
        read.make_tables(dir.path()).unwrap();
        let archive = crate::Archive::open(dir.path()).unwrap();
        let replicates: Vec<Replicate> = archive.rows().unwrap();
        assert_eq!(replicates, read.runs.iter().map(|r| r.replicate.clone()).collect::<Vec<_>>());
        assert_eq!(archive.rows::<Sample>().unwrap()[1].value, 1.1);
        assert_eq!(archive.rows::<MarkRow>().unwrap().len(), 2);
    }

    #[test]
    fn leftovers_of_a_table_writer_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        crate::Archive::create(dir.path(), &crate::Meta::new(crate::ArchiveKind::Bench, 1, vec![]), false).unwrap();
        let written = write(dir.path());
        let litter = TablesWriter::leftover_paths(dir.path());
        let tmp = litter.last().unwrap();
        let listed = |directory: &Path| {
            let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
            names.map(|name| tmp.join(name)).collect::<Vec<PathBuf>>()
        };
        let mut tables = TablesWriter::create(dir.path()).unwrap();
        tables.push(&written.runs[0].replicate).unwrap();
        tables.push(&written.runs[0].samples[0]).unwrap();
        let half_made = listed(tmp);
        assert!(half_made.len() == 2 && half_made.iter().all(|path| litter.contains(path)), "{half_made:?}");
        drop(tables);
        assert!(!tmp.exists());
        // Complete tables had the same names, and so had the index.
        written.make_tables(dir.path()).unwrap();
        let whole = listed(&dir.path().join("tables"));
        assert!(whole.len() == TABLES.len() + 1 && whole.iter().all(|path| litter.contains(path)), "{whole:?}");
        assert!(whole.contains(&tmp.join("index.json")) && litter.contains(&tmp.join("index.json.tmp")));
    }

    #[test]
    fn a_truncated_log_is_read_up_to_the_cut_and_continued() {
        let dir = tempfile::tempdir().unwrap();
        let whole = write(dir.path());
        let bytes = std::fs::read(path(dir.path())).unwrap();
        for cut in 0..bytes.len() {
            std::fs::write(path(dir.path()), &bytes[..cut]).unwrap();
            let read = Runs::read(dir.path()).unwrap();
            assert_eq!(read.runs, whole.runs[..read.runs.len()]);
            let lines = bytes[..cut].iter().filter(|b| **b == b'\n').count();
            let entries = [design(0), cell(0), replicate(0, 0), replicate(1, 0)];
            if let Some(entry) = entries.into_iter().nth(lines) {
                let (mut log, damage) = RunsWriter::resume(dir.path()).unwrap();
                assert_eq!(damage, None);
                log.push(entry).unwrap();
                assert_eq!(Runs::read(dir.path()).unwrap(), *log.runs());
            }
        }
    }

    #[test]
    fn a_damage_error_names_the_line() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path());
        let text = std::fs::read_to_string(path(dir.path())).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let without =
            |n: usize| lines.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, l)| format!("{l}\n")).collect();
        let broken: String = text.replacen("\"block\":0", "\"block\":1", 1);
        for (text, part) in [
            (without(0), "design 0 is lost"),
            (without(2), "1 line is missing; 1 process is missing"),
            (broken, "line 3: checksum mismatch"),
        ] {
            std::fs::write(path(dir.path()), &text).unwrap();
            let error = Runs::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("runs.jsonl"), "{error}");
        }
        std::fs::remove_file(path(dir.path())).unwrap();
        assert!(Runs::read(dir.path()).unwrap_err().to_string().contains("contains no benchmark"));
    }

    /// Whichever lines are removed, changed, duplicated or moved: the remaining ones are as written, and the end is accepted only
    /// if nothing is missing. The mended log is intact.
    #[test]
    fn intact_lines_of_a_damaged_log_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let whole = write(dir.path());
        let text = std::fs::read_to_string(path(dir.path())).unwrap();
        let lines: Vec<String> = text.lines().map(|l| format!("{l}\n")).collect();
        // The same log as older versions wrote it: without numbers and checksums.
        let old: Vec<String> = lines.iter().map(|l| format!("{}}}\n", &l[..l.rfind(",\"n\":").unwrap()])).collect();
        let old: Vec<String> = old.iter().map(|l| l.replace(",\"replicates\":2", "")).collect();
        for (numbered, lines) in [(true, &lines), (false, &old)] {
            for gone in 1..1_u32 << lines.len() {
                let left: String =
                    lines.iter().enumerate().filter(|(i, _)| gone & (1 << i) == 0).map(|(_, l)| l.as_str()).collect();
                std::fs::write(path(dir.path()), &left).unwrap();
                let Ok((read, damage)) = Runs::salvage(dir.path()) else {
                    assert!(gone & 0b11 != 0, "it is refused only where a design may be lost: {gone:b}");
                    continue;
                };
                let kept = [2, 3].iter().filter(|line| gone & (1 << **line) == 0).count();
                assert_eq!(read.runs.len(), kept);
                let ended = read.designs.first().is_some_and(|d| d.stopped.is_some());
                assert!(!ended || !numbered || (kept == 2 && gone & 2 == 0), "{gone:b}: {damage}");
                let (log, mended) = RunsWriter::resume(dir.path()).unwrap();
                assert_eq!(mended.is_some(), !damage.is_none());
                drop(log);
                // Now it is complete and unchanged.
                let (again, damage) = Runs::salvage(dir.path()).unwrap();
                assert!(damage.is_none(), "{gone:b}: {damage}");
                assert_eq!((&again.runs, &again.designs), (&read.runs, &read.designs));
                if let Some((_, kept)) = mended {
                    assert_eq!(std::fs::read_to_string(&kept).unwrap(), left, "the damaged one is kept");
                    std::fs::remove_file(kept).unwrap();
                }
            }
        }
        let doubled = lines[..4].concat() + &lines[3] + &lines[4..].concat();
        std::fs::write(path(dir.path()), doubled).unwrap();
        let (read, damage) = Runs::salvage(dir.path()).unwrap();
        assert!(read.runs == whole.runs && damage.unreadable[0].0 == 5, "{damage}");
    }

    /// Two designs of two cells, in three blocks.
    fn of_two_designs() -> Vec<Entry> {
        let design = |id| match design(id) {
            Entry::Design(row) => Entry::Design(DesignRow { design: r#"{"cell":[1,1]}"#.into(), ..row }),
            other => other,
        };
        let cell = |id| match cell(id) {
            Entry::Cell(row) => Entry::Cell(DesignCell { design: id / 2, argv: "[]".into(), ..row }),
            other => other,
        };
        let replicate = |id: u64, cell: u64| match replicate(id, cell) {
            Entry::Replicate(mut run) => {
                run.replicate.block = id / 2 % 3;
                Entry::Replicate(run)
            }
            other => other,
        };
        let mut all =
            vec![Entry::Machine(Environment::default()), Entry::Planned { cells: vec![2, 2] }, design(0), design(1)];
        for of in [0, 1] {
            all.extend([cell(2 * of), cell(2 * of + 1)]);
            all.extend((0..6).map(|id| replicate(6 * of + id, 2 * of + id % 2)));
            all.push(Entry::Stopped { design: of, why: "blocks".into(), replicates: Some(6) });
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        /// Lines removed, then the end cut off, then bytes changed: the log is refused, or has both designs and every process whose
        /// line is intact.
        #[test]
        fn a_lost_design_is_reported(
            out in proptest::collection::vec(0..22_usize, 0..15),
            cut in proptest::option::of(0..9000_usize),
            changed in proptest::collection::vec(0..9000_usize, 0..4),
        ) {
            let lines = (1..).zip(of_two_designs()).map(|(n, entry)| line::encode(n, &entry).unwrap());
            let lines: Vec<Vec<u8>> = lines.enumerate().filter(|(at, _)| !out.contains(at)).map(|(_, l)| l).collect();
            let mut text = lines.concat();
            text.truncate(cut.unwrap_or(text.len()));
            for at in changed {
                if let Some(byte) = text.get_mut(at) {
                    *byte = b'0' + (at % 10) as u8;
                }
            }
            let Ok((runs, damage)) = Runs::parse(&mut &text[..], Path::new("x")) else { return Ok(()) };
            if runs.designs.is_empty() {
                // Cut before any run was logged; resuming refuses that.
                prop_assert!(damage.is_none() && runs.runs.is_empty());
                return Ok(());
            }
            prop_assert_eq!(runs.designs.len(), 2, "{}", damage);
            let whole = text.split_inclusive(|b| *b == b'\n').filter(|l| lines.iter().any(|line| line == l));
            let whole = whole.filter(|l| l.starts_with(b"{\"replicate\""));
            prop_assert_eq!(runs.runs.len(), whole.count(), "{}", damage);
        }

        #[test]
        fn arbitrary_input_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Runs::parse(&mut &bytes[..], Path::new("x"));
        }
    }
}
