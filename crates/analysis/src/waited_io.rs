//! What a sync that is an operation waited for, and whose data that was.
//!
//! An operation is charged for what its own thread dirtied inside it. A program that writes outside operations and then syncs (a
//! database's log) is charged for the data as a process, and its fdatasync for almost nothing, though it waited for all of that. So the
//! commands and commits are counted too that the call waited for: those that it sent, those in flight while it slept, of its file or of a
//! commit of its file system, and all commands of such commits.
//!
//! *Uncertainty*: of commands that were in flight at the same time, the one that is furthest along explains a sleep; others that the call
//! did not send itself are missing, unless a commit has them.

use crate::by_key::RowsByKey;
use crate::contract::{WaitedData, WaitedIo};
use crate::rows::{Index, IoAction};
use model::table::Slice;
use model::{Layer, Origin, Reason, Relation, ShapeKind};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The kind of a commit's span.
const COMMIT_KIND: &str = "commit";

/// Links between spans, by position, in both directions.
#[derive(Debug, Default)]
struct Graph {
    down: Vec<(u32, u32)>,
    up: Vec<(u32, u32)>,
}

impl Graph {
    fn add(&mut self, (parent, child): (u32, u32)) {
        self.down.push((parent, child));
        self.up.push((child, parent));
    }

    fn sort(&mut self) {
        self.down.sort_unstable();
        self.up.sort_unstable();
    }

    fn below(&self, at: u32) -> impl Iterator<Item = u32> {
        Self::linked_to(&self.down, at)
    }

    fn above(&self, at: u32) -> impl Iterator<Item = u32> {
        Self::linked_to(&self.up, at)
    }

    fn linked_to(pairs: &[(u32, u32)], at: u32) -> impl Iterator<Item = u32> {
        let from = pairs.partition_point(|(key, _)| *key < at);
        pairs[from..].iter().take_while(move |(key, _)| *key == at).map(|(_, other)| *other)
    }
}

/// The spans that calls waited for, by position of operation and span.
#[derive(Debug, Default)]
pub struct WaitedSpans {
    named: Vec<(u32, u32)>,
}

impl WaitedSpans {
    /// Whether what the operation waited for is counted.
    fn counts(index: &Index, operation: usize) -> bool {
        index.shape(operation).is_some_and(|shape| index.rows.shapes[shape].is(ShapeKind::Call))
    }

    pub fn add(&mut self, index: &Index, operation: usize, slice: &Slice) {
        let waits = matches!(slice.reason, Reason::Device | Reason::Flush | Reason::Queue | Reason::Journal);
        if let Some(span) = slice.span.and_then(|id| index.span(id)).filter(|_| waits && Self::counts(index, operation))
        {
            let one = (operation as u32, span as u32);
            // The slices of a wait follow each other.
            if self.named.last() != Some(&one) {
                self.named.push(one);
            }
        }
    }

    /// Returns the sums by shape, and the number of distinct commands on the counted disks that any call waited for.
    pub fn finish(self, index: &Index) -> (HashMap<usize, WaitedIo>, u64) {
        let rows = index.rows;
        if !rows.shapes.iter().any(|shape| shape.is(ShapeKind::Call)) {
            return (HashMap::new(), 0);
        }
        let mut named = self.named;
        let mut graph = Graph::default();
        for link in &rows.links {
            let (Some(parent), Some(child)) = (index.span(link.parent), index.span(link.child)) else { continue };
            let pair = (parent as u32, child as u32);
            match link.relation {
                Relation::Carries | Relation::Merges | Relation::Splits | Relation::Commits => graph.add(pair),
                Relation::WaitsForFlush | Relation::WaitsForLog => {
                    graph.add(pair);
                    let operation = index.operation_of_row(parent).filter(|o| Self::counts(index, *o));
                    named.extend(operation.map(|operation| (operation as u32, pair.1)));
                }
                _ => {}
            }
        }
        graph.sort();
        for at in (0..rows.spans.len()).filter(|&at| rows.spans.layer(at) == Layer::Block) {
            let operation = rows.spans.operation(at).and_then(|id| index.operation(id));
            if let Some(operation) = operation.filter(|o| Self::counts(index, *o)) {
                named.push((operation as u32, at as u32));
            }
        }
        let is_commit = |at: u32| rows.spans.layer(at as usize) == Layer::FileSystem;
        named.sort_unstable();
        named.dedup();
        let causes = &rows.causes;
        let charged = (0..causes.len()).filter(|&at| causes.share(at).is_finite() && causes.share(at) > 0.0);
        let charged = charged.filter_map(|at| Some((index.span(causes.command(at))?, at as u32)));
        let charged = RowsByKey::new(rows.spans.len(), charged);
        let mut any: HashSet<u32> = HashSet::new();
        let mut sums: HashMap<usize, WaitedIo> = HashMap::new();
        // In order, so that sums are rounded alike in each run; and one operation after the other, since there may be as many as calls.
        for named in named.chunk_by(|a, b| a.0 == b.0) {
            let operation = named[0].0;
            let mut reached: BTreeSet<u32> = BTreeSet::new();
            for &(_, span) in named {
                // Up to the commit that has it, down to the commands of all that.
                let (mut up, mut seen) = (vec![span], HashSet::new());
                while let Some(at) = up.pop() {
                    if seen.insert(at) && !is_commit(at) {
                        // Of the file system's spans, only a commit is above a bio by this relation.
                        up.extend(
                            graph.above(at).filter(|p| !is_commit(*p) || rows.spans.kind(*p as usize) == COMMIT_KIND),
                        );
                    }
                }
                let mut down: Vec<u32> = seen.into_iter().collect();
                while let Some(at) = down.pop() {
                    if reached.insert(at) {
                        down.extend(graph.below(at));
                    }
                }
            }
            let own = &rows.operations.at(operation as usize);
            let (Some(shape), true) = (index.shape(operation as usize), own.end_ns.is_some()) else { continue };
            let sum = sums.entry(shape).or_default();
            for at in reached {
                let span = &rows.spans.at(at as usize);
                if span.layer == Layer::FileSystem {
                    sum.commits += f64::from(u8::from(span.kind == COMMIT_KIND));
                    continue;
                }
                if span.layer != Layer::Driver || span.disk.is_some_and(|disk| !index.counted_disks.contains(&disk)) {
                    continue;
                }
                any.insert(at);
                match IoAction::on_disk(span) {
                    IoAction::Flush => sum.flushes += 1.0,
                    IoAction::Read | IoAction::Write => {
                        sum.requests += 1.0;
                        sum.bytes += span.bytes as f64;
                        let WaitedData { itself, process, others, unattributed } = &mut sum.data;
                        *unattributed += span.bytes as f64;
                        for cause in charged.rows_of(at as usize).iter().map(|&at| causes.at(at as usize)) {
                            let part = cause.share * span.bytes as f64;
                            *unattributed -= part;
                            *match cause.origin {
                                _ if cause.operation == Some(own.id) => &mut *itself,
                                Origin::Unattributed => &mut *unattributed,
                                _ if cause.tgid == Some(own.tgid) => &mut *process,
                                _ => &mut *others,
                            } += part;
                        }
                    }
                    _ => {}
                }
            }
        }
        (sums, any.len() as u64)
    }
}

impl WaitedIo {
    /// Turns sums over `count` executions into means.
    pub fn mean(mut self, count: u64) -> Self {
        let n = count.max(1) as f64;
        let Self { requests, flushes, commits, bytes, data } = &mut self;
        let WaitedData { itself, process, others, unattributed } = data;
        [requests, flushes, commits, bytes, itself, process, others, unattributed].into_iter().for_each(|x| *x /= n);
        // A rest of rounding is nobody's.
        *unattributed = unattributed.max(0.0);
        self
    }
}
