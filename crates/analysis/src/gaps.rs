//! Phases of an operation and the gaps between them, as paper 004 compares them (its figures 2 and 3): journal write 1,
//! journal write 2, database write, next statement.
//!
//! SQLite does not report its phases; they are derived from the calls. A **phase** is a run of writes to files of one
//! class that no sync (fsync, fdatasync) interrupts. In a DELETE-mode INSERT these are the journal's records; after two
//! syncs the journal's record count; after one more the database's pages: the paper's three phases. A **gap** is the time
//! from the end of one phase's last call to the start of the next phase's first, so phases and gaps cover the time from
//! an operation's start to the start of the next one without overlap. Times of one phase over many operations are
//! compared by the phase's name: class and ordinal.

use crate::contract::{Gap, Phase, Times};
use crate::phase_names::{GapEnd, ORDINAL_MAX, PhaseName};
use crate::times::times;
use sqlite::FileClass;
use std::collections::BTreeMap;

/// An action of an operation that delimits phases: a write or a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Act {
    /// Position of the operation.
    pub operation: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    /// The class written; `None` for a sync.
    pub wrote: Option<FileClass>,
    /// Bytes written.
    pub bytes: u64,
}

/// The acts, phases and gaps of all executions of one shape.
#[derive(Debug, Default)]
pub struct Phases {
    phases: Vec<(PhaseName, u64, u64, u64, Vec<u64>)>,
    gaps: Vec<(GapEnd, GapEnd, u64, Vec<u64>)>,
    /// From the end of the last phase of a database to the next statement.
    after_database: Vec<u64>,
}

impl Phases {
    /// Adds one execution: its acts in order of time, its start, and the start of the thread's next execution, if any.
    pub fn add(&mut self, acts: &[Act], start_ns: u64, next_ns: Option<u64>) {
        let mut from = GapEnd::Begin;
        let mut from_ns = start_ns;
        let mut syncs = 0;
        let mut ordinals: BTreeMap<FileClass, u32> = BTreeMap::new();
        let (mut at, mut database_ns) = (0, None);
        while at < acts.len() {
            let Some(class) = acts[at].wrote else {
                syncs += 1;
                at += 1;
                continue;
            };
            let run = acts[at..].iter().take_while(|a| a.wrote == Some(class)).count();
            let run = &acts[at..at + run];
            at += run.len();
            let end_ns = run.iter().map(|a| a.end_ns).max().unwrap_or(run[0].end_ns);
            let ordinal = ordinals.entry(class).or_default();
            *ordinal = (*ordinal + 1).min(ORDINAL_MAX);
            let name = PhaseName { class, ordinal: *ordinal };
            self.add_gap(from, GapEnd::Phase(name), syncs, run[0].start_ns.saturating_sub(from_ns));
            let bytes = run.iter().fold(0_u64, |sum, a| sum.saturating_add(a.bytes));
            self.add_phase(name, run.len() as u64, bytes, end_ns.saturating_sub(run[0].start_ns));
            (from, from_ns, syncs) = (GapEnd::Phase(name), end_ns, 0);
            if class == FileClass::Database {
                database_ns = Some(end_ns);
            }
        }
        self.after_database.extend(database_ns.zip(next_ns).map(|(end, next)| next.saturating_sub(end)));
        if let Some(next_ns) = next_ns.filter(|_| from != GapEnd::Begin) {
            self.add_gap(from, GapEnd::NextStatement, syncs, next_ns.saturating_sub(from_ns));
        }
    }

    fn add_gap(&mut self, from: GapEnd, to: GapEnd, syncs: u64, ns: u64) {
        match self.gaps.iter_mut().find(|g| g.0 == from && g.1 == to) {
            Some(gap) => {
                gap.2 += syncs;
                gap.3.push(ns);
            }
            None => self.gaps.push((from, to, syncs, vec![ns])),
        }
    }

    fn add_phase(&mut self, name: PhaseName, writes: u64, bytes: u64, ns: u64) {
        match self.phases.iter_mut().find(|p| p.0 == name) {
            Some(phase) => {
                phase.1 += writes;
                phase.2 = phase.2.saturating_add(bytes);
                phase.3 += 1;
                phase.4.push(ns);
            }
            None => self.phases.push((name, writes, bytes, 1, vec![ns])),
        }
    }

    /// Returns the summaries in order of first occurrence, and the times from the last phase of a database to the next statement.
    pub fn finish(mut self) -> (Vec<Phase>, Vec<Gap>, Option<Times>) {
        let mean = |sum: u64, n: u64| sum as f64 / n.max(1) as f64;
        let phase = |(phase, writes, bytes, n, mut ns): (PhaseName, u64, u64, u64, Vec<u64>)| Phase {
            phase: phase.to_string(),
            count: n,
            writes: mean(writes, n),
            bytes: mean(bytes, n),
            duration_ns: times(&mut ns),
        };
        let gap = |(from, to, syncs, mut ns): (GapEnd, GapEnd, u64, Vec<u64>)| {
            let n = ns.len() as u64;
            Gap { from, to, count: n, duration_ns: times(&mut ns), fsyncs: mean(syncs, n) }
        };
        let after = (!self.after_database.is_empty()).then(|| times(&mut self.after_database));
        (self.phases.into_iter().map(phase).collect(), self.gaps.into_iter().map(gap).collect(), after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FileClass::{Database, RollbackJournal};

    fn acts(list: &[(u64, u64, Option<FileClass>)]) -> Vec<Act> {
        list.iter().map(|&(start_ns, end_ns, wrote)| Act { operation: 0, start_ns, end_ns, wrote, bytes: 10 }).collect()
    }

    #[test]
    fn an_insert_has_the_three_phases_of_the_paper() {
        let mut phases = Phases::default();
        phases.add(
            &acts(&[
                (110, 120, Some(RollbackJournal)),
                (130, 140, Some(RollbackJournal)),
                (150, 300, None),
                (310, 400, None),
                (410, 420, Some(RollbackJournal)),
                (430, 500, None),
                (510, 530, Some(Database)),
                (540, 700, None),
            ]),
            100,
            Some(1000),
        );
        let (phases, gaps, after) = phases.finish();
        assert_eq!(after.map(|times| times.sum), Some(470));
        let names: Vec<_> = phases.iter().map(|p| (p.phase.as_str(), p.writes, p.duration_ns.sum)).collect();
        assert_eq!(
            names,
            [
                ("rollback journal write 1", 2.0, 30),
                ("rollback journal write 2", 1.0, 10),
                ("database write 1", 1.0, 20)
            ]
        );
        let gaps: Vec<_> = gaps.iter().map(|g| (g.to.to_string(), g.duration_ns.sum, g.fsyncs)).collect();
        let gaps: Vec<_> = gaps.iter().map(|(to, sum, syncs)| (to.as_str(), *sum, *syncs)).collect();
        assert_eq!(
            gaps,
            [
                ("rollback journal write 1", 10, 0.0),
                ("rollback journal write 2", 270, 2.0),
                ("database write 1", 90, 1.0),
                ("next statement", 470, 1.0)
            ]
        );
        let covered: u64 = phases.iter().map(|p| p.duration_ns.sum).sum::<u64>() + 10 + 270 + 90 + 470;
        assert_eq!(covered, 1000 - 100, "from one begin to the next");
    }

    /// PERSIST writes the journal's header once more after the database is written.
    #[test]
    fn the_time_after_a_database_write_spans_later_phases() {
        let mut phases = Phases::default();
        let run = [(110, 120, Some(RollbackJournal)), (130, 140, Some(Database)), (150, 160, Some(RollbackJournal))];
        phases.add(&acts(&run), 100, Some(300));
        phases.add(&acts(&run[..1]), 300, Some(400));
        phases.add(&acts(&run), 400, None);
        let (_, gaps, after) = phases.finish();
        assert!(
            gaps.iter().all(|g| g.to != GapEnd::NextStatement || g.from.to_string() != "database write 1"),
            "{gaps:?}"
        );
        let after = after.unwrap();
        assert_eq!((after.sum, after.p50), (160, 160));
    }

    #[test]
    fn gaps_are_absent_without_writes_and_limited_in_number() {
        let mut phases = Phases::default();
        phases.add(&acts(&[(1, 2, None)]), 0, Some(10));
        assert_eq!(phases.finish(), (vec![], vec![], None));
        let mut phases = Phases::default();
        let many: Vec<_> =
            (0..1000).flat_map(|i| [(i * 10, i * 10 + 1, Some(Database)), (i * 10 + 2, i * 10 + 3, None)]).collect();
        phases.add(&acts(&many), 0, None);
        assert_eq!(phases.finish().0.len(), 9);
    }
}
