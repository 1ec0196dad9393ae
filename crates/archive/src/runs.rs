//! `runs.jsonl`: the log of a benchmark, from which its tables are made.
//!
//! A benchmark lasts minutes to hours, and what was measured must survive a crash, a full disk and an impatient Ctrl-C.
//! So each replicate is appended, with all its numbers, as one line of JSON when it has ended, and brought to the medium
//! before the next begins: never while something is measured. As with `events.log`, this log is the truth and the tables
//! are derived; a run that was cut short goes on from it.
//!
//! A last line without its end was being written when the power went: it is left out, and cut off before more is
//! appended. Any other line that cannot be read is damage, and is named with its number; nothing is guessed.

use crate::error::{Error, Result, Tried};
use crate::lock::Lock;
use crate::tables::TablesWriter;
use model::Environment;
use model::table::{DesignCell, DesignRow, FactRow, MarkRow, Replicate, Sample};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// No replicate's line is longer; a longer one is damage, not data.
const LONGEST: u64 = 1 << 30;

/// A line of the log. Numbers of designs, cells and replicates are the archive's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// What was known of the machine when a run began, or went on.
    Machine(Environment),
    /// A design is about to be run.
    Design(DesignRow),
    /// One of its cells; all come before its first replicate.
    Cell(DesignCell),
    /// A cell has no, or no further, replicates.
    Absent {
        /// The cell.
        cell: u64,
        /// Why.
        why: String,
    },
    /// A replicate has ended.
    Replicate(Box<Run>),
    /// A fact that holds for the whole archive.
    Mark(MarkRow),
    /// A design has come to its end.
    Stopped {
        /// The design.
        design: u64,
        /// Why no further block was run.
        why: String,
    },
}

/// A replicate with what it printed.
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
    /// The designs.
    pub designs: Vec<DesignRow>,
    /// Their cells.
    pub cells: Vec<DesignCell>,
    /// The replicates in the order in which they ran.
    pub runs: Vec<Run>,
    /// Facts of the whole.
    pub marks: Vec<MarkRow>,
    /// The bytes that are whole lines.
    whole: u64,
}

/// Where the log stands in an archive.
pub fn path(dir: &Path) -> PathBuf {
    dir.join("runs.jsonl")
}

impl Runs {
    /// Reads the log of the archive `dir`.
    ///
    /// # Errors
    /// [`Error::NotAnArchive`] if it has none, [`Error::Damaged`] with the line, [`Error::Io`].
    pub fn read(dir: &Path) -> Result<Self> {
        let path = path(dir);
        let file = match File::open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let why = "it holds no benchmark (there is no runs.jsonl)".into();
                return Err(Error::NotAnArchive { path: dir.into(), why });
            }
            other => other.tried("open", &path)?,
        };
        Self::parse(&mut BufReader::new(file), &path)
    }

    /// Reads a log; `path` is for messages.
    ///
    /// # Errors
    /// As [`Runs::read`].
    pub fn parse(from: &mut dyn BufRead, path: &Path) -> Result<Self> {
        let mut runs = Self::default();
        for number in 1_u64.. {
            let mut line = Vec::new();
            let bytes = from.take(LONGEST).read_until(b'\n', &mut line).tried("read", path)? as u64;
            if line.last() != Some(&b'\n') && bytes < LONGEST {
                break;
            }
            let damaged = |why: String| Error::Damaged {
                path: path.into(),
                why: format!("line {number}: {why}"),
                remedy: "Take that line out to read the rest, or run the benchmark again".into(),
            };
            let entry = serde_json::from_slice(&line).map_err(|e| damaged(e.to_string()))?;
            runs.take(entry).map_err(damaged)?;
            runs.whole += bytes;
        }
        Ok(runs)
    }

    /// Takes an entry in. An error says which entry before it is missing.
    fn take(&mut self, entry: Entry) -> Result<(), String> {
        let next = |what: &str, found: u64, expected: usize| match found == expected as u64 {
            true => Ok(()),
            false => Err(format!("{what} {found} stands where {what} {expected} is expected")),
        };
        match entry {
            Entry::Machine(facts) => self.machines.push(facts),
            Entry::Design(row) => {
                next("design", row.id, self.designs.len())?;
                self.designs.push(row);
            }
            Entry::Cell(row) => {
                next("cell", row.id, self.cells.len())?;
                self.designs.get(row.design as usize).ok_or_else(|| format!("there is no design {}", row.design))?;
                self.cells.push(row);
            }
            Entry::Absent { cell, why } => {
                let row = usize::try_from(cell).ok().and_then(|at| self.cells.get_mut(at));
                row.ok_or_else(|| format!("there is no cell {cell}"))?.absent = Some(why);
            }
            Entry::Replicate(run) => {
                next("replicate", run.replicate.id, self.runs.len())?;
                let cell = run.replicate.cell;
                usize::try_from(cell)
                    .ok()
                    .and_then(|at| self.cells.get(at))
                    .ok_or_else(|| format!("there is no cell {cell}"))?;
                self.runs.push(*run);
            }
            Entry::Mark(row) => self.marks.push(row),
            Entry::Stopped { design, why } => {
                let row = usize::try_from(design).ok().and_then(|at| self.designs.get_mut(at));
                row.ok_or_else(|| format!("there is no design {design}"))?.stopped = Some(why);
            }
        }
        Ok(())
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

/// Appends to a log, and keeps what stands in it.
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
    /// [`Error::Io`], [`Error::Busy`] if somebody else writes the archive.
    pub fn create(dir: &Path) -> Result<Self> {
        let lock = Lock::take(dir)?;
        let path = path(dir);
        let file = OpenOptions::new().append(true).create_new(true).open(&path).tried("make", &path)?;
        Ok(Self { _lock: lock, path, file, runs: Runs::default() })
    }

    /// Goes on with the log of the archive `dir`; a line that was cut short is cut off.
    ///
    /// # Errors
    /// As [`Runs::read`], and [`Error::Busy`] if somebody else writes the archive.
    pub fn resume(dir: &Path) -> Result<Self> {
        let lock = Lock::take(dir)?;
        let runs = Runs::read(dir)?;
        let path = path(dir);
        let file = OpenOptions::new().append(true).open(&path).tried("open", &path)?;
        file.set_len(runs.whole).tried("cut", &path)?;
        Ok(Self { _lock: lock, path, file, runs })
    }

    /// What stands in the log.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Appends a line and brings it to the medium.
    ///
    /// # Errors
    /// [`Error::Io`], such as for a full disk; the lines before stay, and half a line is cut off.
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        let mut line = serde_json::to_vec(&entry).map_err(std::io::Error::from).tried("write", &self.path)?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // Best effort: a reader passes over half a line at the end anyway.
            let _ = self.file.set_len(self.runs.whole);
        }
        written.tried("write", &self.path)?;
        let bytes = line.len() as u64;
        self.runs.take(entry).map_err(std::io::Error::other).tried("continue", &self.path)?;
        self.runs.whole += bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            design: "{}".into(),
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
        log.push(Entry::Stopped { design: 0, why: "budget".into() }).unwrap();
        log.runs().clone()
    }

    #[test]
    fn what_was_written_is_read_and_becomes_tables() {
        let dir = tempfile::tempdir().unwrap();
        crate::Archive::create(dir.path(), &crate::Meta::new("bench", 1, vec![]), false).unwrap();
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
    fn what_a_writer_of_tables_may_leave_is_in_its_list() {
        let dir = tempfile::tempdir().unwrap();
        crate::Archive::create(dir.path(), &crate::Meta::new("bench", 1, vec![]), false).unwrap();
        let written = write(dir.path());
        let litter = TablesWriter::litter(dir.path());
        let tmp = litter.last().unwrap();
        let listed = |folder: &Path| {
            let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            names.map(|name| tmp.join(name)).collect::<Vec<PathBuf>>()
        };
        let mut tables = TablesWriter::create(dir.path()).unwrap();
        tables.push(&written.runs[0].replicate).unwrap();
        tables.push(&written.runs[0].samples[0]).unwrap();
        let half_made = listed(tmp);
        assert!(half_made.len() == 2 && half_made.iter().all(|path| litter.contains(path)), "{half_made:?}");
        drop(tables);
        assert!(!tmp.exists());
        // Whole ones have been there under the same names, the index besides.
        written.make_tables(dir.path()).unwrap();
        let whole = listed(&dir.path().join("tables"));
        assert!(whole.len() == 6 && whole.iter().all(|path| litter.contains(path)), "{whole:?}");
        assert!(whole.contains(&tmp.join("index.json")) && litter.contains(&tmp.join("index.json.tmp")));
    }

    #[test]
    fn a_log_cut_anywhere_is_read_up_to_the_cut_and_goes_on() {
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
                let mut log = RunsWriter::resume(dir.path()).unwrap();
                log.push(entry).unwrap();
                assert_eq!(Runs::read(dir.path()).unwrap(), *log.runs());
            }
        }
    }

    #[test]
    fn damage_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path());
        let text = std::fs::read_to_string(path(dir.path())).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let without =
            |n: usize| lines.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, l)| format!("{l}\n")).collect();
        let broken: String = text.replacen("\"block\":0", "\"block\":\"x\"", 1);
        for (text, part) in
            [(without(0), "line 1: there is no design 0"), (without(2), "line 3: replicate 1"), (broken, "line 3")]
        {
            std::fs::write(path(dir.path()), &text).unwrap();
            let error = Runs::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("runs.jsonl"), "{error}");
        }
        std::fs::remove_file(path(dir.path())).unwrap();
        assert!(Runs::read(dir.path()).unwrap_err().to_string().contains("holds no benchmark"));
    }

    proptest! {
        #[test]
        fn nothing_upsets_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Runs::parse(&mut &bytes[..], Path::new("x"));
        }
    }
}
