//! What belongs to slow operations: everything that they waited for and what caused that, back to the oldest cause.
//!
//! All that the ring holds is linked once, and the rows are kept in short form. From an operation's own spans and those that its slices
//! waited for, the links lead down to the commands, and to the commands that the same disks had meanwhile; from all of these they lead up
//! to whoever caused them: the calls that dirtied their pages, the members of their transactions. The oldest of these is where the incident
//! begins.

use super::detector::EndedOperation;
use causal::Sink;
use model::Layer;
use model::table::{Cause, DriverCommand, File, Link, LossRow, Operation, Process, Shape, Slice, Span};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How far links are followed; the longest chains, of disks on files on disks, have fewer.
const DEPTH_MAX: u32 = 64;

/// What is kept of a span.
#[derive(Debug, Clone, Copy)]
pub struct ShortSpan {
    pub start_ns: u64,
    pub end_ns: u64,
    pub operation: u64,
    /// 0: none.
    pub disk: u32,
    pub layer: Layer,
}

/// Keeps the rows of a ring.
#[derive(Debug, Default)]
pub struct Closure {
    pub spans: HashMap<u64, ShortSpan>,
    down: Vec<(u64, u64)>,
    up: Vec<(u64, u64)>,
    pub operations: Vec<Operation>,
    pub slices: BTreeMap<u64, Vec<Slice>>,
    pub causes: BTreeMap<u64, Vec<Cause>>,
    pub shapes: HashMap<u64, String>,
    pub processes: HashMap<u32, String>,
    /// Only operations that ended at one of these times are kept.
    wanted_ends: BTreeSet<u64>,
}

fn linked(pairs: &[(u64, u64)], from: u64) -> impl Iterator<Item = u64> {
    let first = pairs.partition_point(|(key, _)| *key < from);
    pairs[first..].iter().take_while(move |(key, _)| *key == from).map(|(_, to)| *to)
}

impl Closure {
    /// `wanted`: the operations that are slow.
    pub fn new(wanted: &[EndedOperation]) -> Self {
        Self { wanted_ends: wanted.iter().map(|operation| operation.end_ns).collect(), ..Self::default() }
    }

    /// Sorts what was received. To be called once, after the last row.
    pub fn complete(&mut self) {
        self.down.sort_unstable();
        self.up.sort_unstable();
    }

    /// Returns the operation that these records ended, and that the linker found: the outermost one around it that is kept.
    pub fn operation_of(&self, ended: &EndedOperation) -> Option<&Operation> {
        let contains = |row: &&Operation| {
            row.tid == ended.tid && row.start_ns <= ended.start_ns && row.end_ns.is_some_and(|end| end >= ended.end_ns)
        };
        self.operations.iter().filter(contains).min_by_key(|row| row.end_ns.unwrap_or(u64::MAX) - row.start_ns)
    }

    /// Returns when the oldest cause of an operation began, ns.
    pub fn oldest_cause_ns(&self, operation: &Operation) -> u64 {
        let slices = self.slices.get(&operation.id).map_or(&[][..], Vec::as_slice);
        let own = self.spans.iter().filter(|(_, span)| span.operation == operation.id).map(|(id, _)| *id);
        let waited = slices.iter().filter_map(|slice| slice.span);
        let mut below: BTreeSet<u64> = self.reach(own.chain(waited).chain([operation.span]), &self.down);
        let disks: BTreeSet<u32> =
            below.iter().filter_map(|id| self.spans.get(id)).map(|span| span.disk).filter(|disk| *disk != 0).collect();
        let end_ns = operation.end_ns.unwrap_or(u64::MAX);
        let meanwhile = self.spans.iter().filter(|(_, span)| {
            span.layer == Layer::Driver
                && disks.contains(&span.disk)
                && span.start_ns <= end_ns
                && span.end_ns >= operation.start_ns
        });
        below.extend(meanwhile.map(|(id, _)| *id));
        let all = self.reach(below.into_iter(), &self.up);
        let oldest = all.iter().filter_map(|id| self.spans.get(id)).map(|span| span.start_ns).min();
        oldest.map_or(operation.start_ns, |ns| ns.min(operation.start_ns))
    }

    /// Everything that a span led to, itself included.
    pub fn reach_down(&self, span: u64) -> BTreeSet<u64> {
        self.reach([span].into_iter(), &self.down)
    }

    fn reach(&self, from: impl Iterator<Item = u64>, links: &[(u64, u64)]) -> BTreeSet<u64> {
        let mut reached: BTreeSet<u64> = from.collect();
        let mut edge: Vec<u64> = reached.iter().copied().collect();
        for _ in 0..DEPTH_MAX {
            edge = edge.into_iter().flat_map(|id| linked(links, id)).filter(|id| reached.insert(*id)).collect();
            if edge.is_empty() {
                break;
            }
        }
        reached
    }
}

impl Sink for Closure {
    fn operation(&mut self, row: Operation) {
        // Its slices come before it.
        let is_wanted = row.end_ns.is_some_and(|end| self.wanted_ends.range(row.start_ns..=end).next().is_some());
        if is_wanted {
            self.operations.push(row);
        } else {
            self.slices.remove(&row.id);
        }
    }
    fn shape(&mut self, row: Shape) {
        self.shapes.insert(row.id, row.text);
    }
    fn span(&mut self, row: Span) {
        let short = ShortSpan {
            start_ns: row.start_ns,
            end_ns: row.end_ns.unwrap_or(u64::MAX),
            operation: row.operation.unwrap_or(0),
            disk: row.disk.unwrap_or(0),
            layer: row.layer,
        };
        self.spans.insert(row.id, short);
    }
    fn link(&mut self, row: Link) {
        self.down.push((row.parent, row.child));
        self.up.push((row.child, row.parent));
    }
    fn cause(&mut self, row: Cause) {
        self.causes.entry(row.command).or_default().push(row);
    }
    fn driver_command(&mut self, _row: DriverCommand) {}
    fn slice(&mut self, row: Slice) {
        self.slices.entry(row.operation).or_default().push(row);
    }
    fn file(&mut self, _row: File) {}
    fn process(&mut self, row: Process) {
        self.processes.insert(row.tgid, row.name);
    }
    fn loss(&mut self, _row: LossRow) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: u64, start_ns: u64, operation: Option<u64>, disk: Option<u32>) -> Span {
        Span {
            id,
            layer: if disk.is_some() { Layer::Driver } else { Layer::Syscall },
            kind: "x".into(),
            start_ns,
            end_ns: Some(start_ns + 10),
            tgid: 1,
            tid: 1,
            operation,
            file: None,
            offset: None,
            disk,
            sector: None,
            bytes: 0,
            result: None,
            number: None,
            cache_added: None,
            flags: "".into(),
        }
    }

    fn link(parent: u64, child: u64) -> Link {
        Link {
            parent,
            child,
            relation: model::Relation::Calls,
            confidence: model::Confidence::Exact,
            weakened_by: None,
        }
    }

    fn operation(id: u64, span: u64, start_ns: u64, end_ns: u64) -> Operation {
        Operation {
            id,
            span,
            shape: 1,
            nth: 0,
            parent: None,
            tgid: 1,
            tid: 1,
            start_ns,
            end_ns: Some(end_ns),
            inside_ns: 0,
            rows: 0,
            steps: None,
            result: None,
        }
    }

    /// An fsync (span 2) sends a command (3), which carries what a neighbour's call (4) wrote long before; another neighbour's call (6)
    /// dirtied what another command (5) of that disk carried meanwhile. Span 7 has nothing to do with any of these.
    fn example() -> (Closure, EndedOperation) {
        let ended = EndedOperation { tgid: 1, tid: 1, start_ns: 1000, end_ns: 1020 };
        let mut closure = Closure::new(&[ended]);
        for row in [
            span(1, 1000, Some(1), None),
            span(2, 1001, Some(1), None),
            span(3, 1002, Some(1), Some(8)),
            span(4, 500, None, None),
            span(5, 995, None, Some(8)),
            span(6, 300, None, None),
            span(7, 100, None, None),
        ] {
            closure.span(row);
        }
        [link(1, 2), link(2, 3), link(4, 3), link(6, 5)].into_iter().for_each(|row| closure.link(row));
        closure.operation(operation(1, 1, 1000, 1020));
        closure.operation(operation(2, 7, 100, 110));
        closure.complete();
        (closure, ended)
    }

    #[test]
    fn incident_begins_with_its_oldest_cause() {
        let (closure, ended) = example();
        assert_eq!(closure.operations.len(), 1, "the other one was not slow");
        let found = closure.operation_of(&ended).unwrap();
        assert_eq!(closure.oldest_cause_ns(found), 300);
    }

    #[test]
    fn cause_that_no_link_leads_to_is_not_in_it() {
        let (mut closure, ended) = example();
        closure.up.retain(|(child, _)| *child == 3);
        assert_eq!(closure.oldest_cause_ns(closure.operation_of(&ended).unwrap()), 500);
        closure.up.clear();
        assert_eq!(closure.oldest_cause_ns(closure.operation_of(&ended).unwrap()), 995, "the command meanwhile");
    }

    #[test]
    fn links_in_a_circle_end() {
        let (mut closure, ended) = example();
        closure.link(link(3, 2));
        closure.complete();
        assert_eq!(closure.oldest_cause_ns(closure.operation_of(&ended).unwrap()), 300);
    }
}
