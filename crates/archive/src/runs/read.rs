//! Reads a log that may be damaged: intact lines are kept, missing ones are counted, and nothing is guessed.
//!
//! A replicate's line is self-contained: block, cell, numbers. So whatever is left of a damaged log can be used, and a resumed run
//! measures the rest again. A design cannot be recovered: without it the plan of the run is unknown, and the log is refused. The end of
//! a design is accepted only if everything before it is there.

use super::{Entry, MisplacedEntry, Run, Runs, line};
use crate::error::{Error, IoResultExt, Result};
use model::table::{DesignCell, MarkRow, Sample};
use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;

/// No replicate's line is longer; a longer one is damage, not data.
const LINE_BYTES_MAX: u64 = 1 << 30;

/// The most cells that may be lost of a design whose number of cells is unknown.
const LOST_CELLS_MAX: u64 = 1000;

/// Damage found in a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damage {
    /// Lines that cannot be read, by number from 1, with the reason.
    pub unreadable: Vec<(u64, String)>,
    /// Lines that are not there. Logs of versions before 0.2 do not number theirs.
    pub missing: u64,
    /// Processes that are known to be lost: from their numbers, or from the count at the end of a design.
    pub processes: u64,
    /// Cells whose description is lost.
    pub cells: u64,
}

impl Damage {
    /// Whether nothing is wrong.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.unreadable.first().map(|(number, why)| format!("line {number}: {why}")));
        if self.unreadable.len() > 1 {
            parts.push(format!("{} more cannot be read", model::counted(self.unreadable.len() - 1, "line")));
        }
        let missing = |n: u64, what: &str, are: &str| {
            (n > 0).then(|| format!("{} {}", model::counted(n as usize, what), if n == 1 { "is missing" } else { are }))
        };
        parts.extend(missing(self.missing, "line", "are missing"));
        parts.extend(missing(self.processes, "process", "are missing"));
        parts.extend(missing(self.cells, "cell", "are missing"));
        f.write_str(&parts.join("; "))
    }
}

/// The state while reading a log.
struct Reader<'a> {
    path: &'a Path,
    runs: Runs,
    damage: Damage,
    /// Number of cells of each design, from the plan, or from the design's own text in logs without one; `None` if
    /// neither has it.
    cells_of: Vec<Option<u64>>,
    /// The number that the next replicate had when it was written.
    next_replicate: u64,
    /// Block, cell and purpose of each replicate.
    seen: BTreeSet<(u64, u64, bool)>,
    /// The number of replicates in each line that ends a design.
    ends: Vec<Option<u64>>,
    /// Whether an unknown line was lost after the designs and before anything else: it may have been a design.
    gap_behind_designs: bool,
}

/// Reads a log up to its end; `path` is for messages.
pub fn parse(from: &mut dyn BufRead, path: &Path) -> Result<(Runs, Damage)> {
    let mut reader = Reader {
        path,
        runs: Runs::default(),
        damage: Damage::default(),
        cells_of: Vec::new(),
        next_replicate: 0,
        seen: BTreeSet::new(),
        ends: Vec::new(),
        gap_behind_designs: false,
    };
    let mut expected = 1;
    let mut unreadable_since = 0;
    for physical in 1_u64.. {
        let mut text = Vec::new();
        let bytes = from.take(LINE_BYTES_MAX).read_until(b'\n', &mut text).with_action("read", path)? as u64;
        if text.last() != Some(&b'\n') && bytes < LINE_BYTES_MAX {
            break;
        }
        reader.runs.whole += bytes;
        reader.runs.lines += 1;
        let (number, entry) = match line::decode(&text) {
            Ok(read) => read,
            Err(why) => {
                reader.damage.unreadable.push((physical, why));
                unreadable_since += 1;
                continue;
            }
        };
        let number = number.unwrap_or(expected + unreadable_since);
        if number < expected {
            reader.damage.unreadable.push((physical, "duplicate or out of order".into()));
            continue;
        }
        let lost = number - expected;
        reader.damage.missing = reader.damage.missing.saturating_add(lost.saturating_sub(unreadable_since));
        let behind_designs = reader.runs.cells.is_empty() && !reader.runs.designs.is_empty();
        (expected, unreadable_since) = (number.saturating_add(1), 0);
        let lost_then = reader.damage.cells.saturating_add(reader.damage.processes);
        let is_design = matches!(entry, Entry::Design(_));
        if let Err(why) = reader.add_entry(entry)? {
            reader.damage.unreadable.push((physical, why.to_string()));
        }
        // The lines may have been those of cells and processes that are known to be lost.
        let lost_now = reader.damage.cells.saturating_add(reader.damage.processes);
        let explained = lost_now.saturating_sub(lost_then);
        reader.gap_behind_designs |= lost > explained && behind_designs && !is_design;
    }
    reader.finish()
}

impl Reader<'_> {
    /// The error if something indispensable is lost.
    fn lost_error(&self, what: &str) -> Error {
        Error::Damaged {
            path: self.path.into(),
            why: format!("{what} is lost, and with it the plan of the run"),
            remedy: "Start a new run; each intact line of this log has the results of one process".into(),
        }
    }

    /// Adds an entry; the inner error is why it cannot be used.
    fn add_entry(&mut self, entry: Entry) -> Result<std::result::Result<(), MisplacedEntry>> {
        match entry {
            Entry::Design(row) => {
                if row.id > self.runs.designs.len() as u64 {
                    return Err(self.lost_error(&format!("design {}", self.runs.designs.len())));
                }
                if row.id < self.runs.designs.len() as u64 {
                    return Ok(Err(MisplacedEntry::Duplicate("design", row.id)));
                }
                let planned = self.runs.planned.as_ref().and_then(|cells| cells.get(row.id as usize).copied());
                let text = || {
                    let text: serde_json::Value = serde_json::from_str(&row.design).ok()?;
                    Some(text.get("cell")?.as_array()?.len() as u64)
                };
                self.cells_of.push(planned.or_else(text));
                self.ends.push(None);
                self.runs.designs.push(row);
            }
            Entry::Cell(row) => {
                if self.runs.designs.len() as u64 <= row.design {
                    return Err(self.lost_error(&format!("design {}", row.design)));
                }
                let known = self.design_of(row.id).is_some();
                if !known && row.id.saturating_sub(self.runs.cells.len() as u64) > LOST_CELLS_MAX {
                    return Ok(Err(MisplacedEntry::OutOfOrder {
                        what: "cell",
                        found: row.id,
                        expected: self.runs.cells.len() as u64,
                    }));
                }
                self.restore_lost_cells(row.id, row.design);
                match self.runs.cells.get_mut(row.id as usize) {
                    None => self.runs.cells.push(row),
                    Some(there) if is_lost(there) => {
                        self.damage.cells = self.damage.cells.saturating_sub(1);
                        *there = DesignCell { absent: there.absent.take(), ..row };
                    }
                    Some(_) => return Ok(Err(MisplacedEntry::Duplicate("cell", row.id))),
                }
            }
            Entry::Replicate(run) => return Ok(self.add_replicate(*run)),
            Entry::Absent { cell, .. } if !self.has_cell(cell) => return Ok(Err(MisplacedEntry::Absent("cell", cell))),
            Entry::Stopped { design, replicates, .. } if (design as usize) < self.ends.len() => {
                self.ends[design as usize] = replicates;
                return Ok(self.runs.add_entry(entry));
            }
            other => return Ok(self.runs.add_entry(other)),
        }
        Ok(Ok(()))
    }

    /// Fills in cells whose lines are lost, up to `next`; those of designs before `design`, or of that.
    fn restore_lost_cells(&mut self, next: u64, design: u64) {
        while (self.runs.cells.len() as u64) < next {
            let id = self.runs.cells.len() as u64;
            self.runs.cells.push(lost_cell(id, self.design_of(id).unwrap_or(design)));
            self.damage.cells += 1;
        }
    }

    /// The design that a cell belongs to, by the designs' numbers of cells.
    fn design_of(&self, cell: u64) -> Option<u64> {
        let mut end = 0;
        for (design, cells) in (0..).zip(&self.cells_of) {
            end += (*cells)?;
            if cell < end {
                return Some(design);
            }
        }
        None
    }

    /// Whether that cell exists, if need be without its description.
    fn has_cell(&mut self, cell: u64) -> bool {
        if let Some(design) = self.design_of(cell) {
            self.restore_lost_cells(cell + 1, design);
        }
        cell < self.runs.cells.len() as u64
    }

    fn add_replicate(&mut self, run: Run) -> std::result::Result<(), MisplacedEntry> {
        let row = &run.replicate;
        let (was, cell) = (row.id, row.cell);
        if !self.has_cell(cell) {
            return Err(MisplacedEntry::Absent("cell", cell));
        }
        if was < self.next_replicate || !self.seen.insert((row.block, cell, row.why.is_some())) {
            return Err(MisplacedEntry::Duplicate("replicate", was));
        }
        self.damage.processes = self.damage.processes.saturating_add(was - self.next_replicate);
        self.next_replicate = was.saturating_add(1);
        let design = self.runs.cells[cell as usize].design;
        self.runs.goes_on(design);
        self.runs.runs.push(with_id(run, self.runs.runs.len() as u64));
        Ok(())
    }

    fn finish(mut self) -> Result<(Runs, Damage)> {
        let nothing_known = self.runs.designs.is_empty() && (!self.damage.is_none() || !self.runs.cells.is_empty());
        let designs_lost = match &self.runs.planned {
            Some(planned) => !self.runs.designs.is_empty() && planned.len() > self.runs.designs.len(),
            // The missing line may be the plan, and the log may be cut right after a design.
            None => self.gap_behind_designs || self.runs.cells.is_empty() && !self.damage.is_none(),
        };
        if nothing_known || designs_lost {
            return Err(self.lost_error("a design"));
        }
        for design in 0..self.runs.designs.len() {
            if self.runs.designs[design].stopped.is_none() {
                continue;
            }
            let own = self.runs.replicates_of(design as u64);
            let lacks = self.ends[design].map(|said| said.saturating_sub(own));
            let cells = self.runs.cells.iter().any(|c| c.design == design as u64 && is_lost(c));
            if lacks.is_some_and(|n| n > 0) && self.damage.is_none() {
                self.damage.processes += lacks.unwrap_or(0);
            }
            // If the number of replicates is unknown, an end in a damaged log proves nothing.
            if cells || lacks.map_or(!self.damage.is_none(), |n| n > 0) {
                self.runs.designs[design].stopped = None;
            }
        }
        Ok((self.runs, self.damage))
    }
}

/// The run with another number.
fn with_id(run: Run, id: u64) -> Run {
    let Run { mut replicate, samples, marks } = run;
    let was = replicate.id;
    replicate.id = id;
    let now = |of: Option<u64>| of.map(|of| if of == was { id } else { of });
    Run {
        replicate,
        samples: samples.into_iter().map(|s| Sample { replicate: now(s.replicate), ..s }).collect(),
        marks: marks.into_iter().map(|m| MarkRow { replicate: now(m.replicate), ..m }).collect(),
    }
}

/// A cell of which only the number is known.
fn lost_cell(id: u64, design: u64) -> DesignCell {
    DesignCell {
        id,
        design,
        name: format!("(lost cell {id})"),
        factors: "{}".into(),
        argv: String::new(),
        metric: None,
        same_as: None,
        absent: None,
    }
}

/// Whether only the number of a cell is known. A cell that was written has a command.
pub fn is_lost(cell: &DesignCell) -> bool {
    cell.argv.is_empty()
}
