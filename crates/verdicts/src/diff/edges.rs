//! What executions of one recording did, and none of the other: a second flush, a sync of the directory, a checkpoint.
//!
//! The graph of an execution is a set of **edges**, each named so that two recordings can be compared: a call on a kind of file
//! (with the first, second … sync of it distinguished), the n-th flush, a checkpoint of the WAL, and the kinds of links. Means
//! hide such things: one more flush in every hundredth execution is 4.01 instead of 4.00.
//!
//! An edge in only one recording may be chance, such as a single page-cache miss. If it were chance, each of its occurrences
//! would be in either recording with equal probability: from [`SURE_OCCURRENCES_MIN`] on, it is not chance that all are in one (p < 0.01).
//! Requests of a program are counted by executions. Effects in the system below come in clusters, for as long as a machine is
//! busy: these are counted by stretches.

use super::align::Alignment;
use super::phase::{FileRole, Phase, Phases, wal_databases};
use super::series::Slots;
use analysis::charges;
use analysis::rows::{Index, IoAction};
use model::{Call, Layer, Relation};
use serde::Serialize;
use sqlite::FileClass;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// Occurrences from which on an edge in only one recording is not chance: the probability of so many equal coin flips is
/// 2 x 0.5^8 = 0.008.
pub const SURE_OCCURRENCES_MIN: u64 = 8;
/// Ordinal from which on things are no longer distinguished.
const ORDINAL_MAX: u32 = 9;

/// Something that occurs in an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Edge {
    /// A system call; for a sync with its ordinal among those of its kind.
    Calls(Phase, u32),
    /// The n-th flush of the device in which it had a share.
    Flush(u32),
    /// The execution wrote the database of a WAL.
    Checkpoint,
    /// A span of one layer led to one of another.
    Link(Layer, Relation, Layer),
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ordinal = |n: &u32| match n {
            1 => "first".to_owned(),
            2 => "second".to_owned(),
            3 => "third".to_owned(),
            n if *n < ORDINAL_MAX => format!("{n}th"),
            n => format!("{n}th or later"),
        };
        match self {
            Self::Calls(phase, 0) => write!(f, "{phase}"),
            Self::Calls(phase, n) => write!(f, "{} {phase}", ordinal(n)),
            Self::Flush(n) => write!(f, "{} flush", ordinal(n)),
            Self::Checkpoint => f.write_str("WAL checkpoint"),
            Self::Link(from, relation, to) => write!(f, "{from} -> {to} ({relation})"),
        }
    }
}

/// Occurrences of an edge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Occurrences {
    /// Executions with the edge.
    executions: u64,
    /// A bit for each stretch with the edge.
    stretches: u32,
}

impl Occurrences {
    /// Whether there are too many for chance.
    fn exceed_chance(self, edge: Edge) -> bool {
        let asked = matches!(edge, Edge::Calls(..) | Edge::Checkpoint);
        let occurrences = if asked { self.executions } else { self.stretches.count_ones().into() };
        occurrences >= SURE_OCCURRENCES_MIN
    }
}

/// For each statement, the occurrences of each edge.
pub type EdgesByStatement = Vec<BTreeMap<Edge, Occurrences>>;

/// Finds the edges of a recording.
pub fn find_edges(index: &Index, alignment: &Alignment, slots: &Slots) -> EdgesByStatement {
    let rows = index.rows;
    let phases = Phases::new(index);
    let mut all: Vec<(u32, Edge)> = Vec::new();
    let aligned = |at: &usize| slots[*at].is_some();
    let wal = wal_databases(index);
    let mut syncs: HashMap<(u32, Phase), u32> = HashMap::new();
    let mut calls: Vec<usize> = (0..rows.spans.len()).filter(|&i| rows.spans.layer(i) == Layer::Syscall).collect();
    calls.sort_by_key(|&i| rows.spans.start_ns(i));
    for i in calls {
        let span = &rows.spans.at(i);
        let (Some(operation), phase @ Phase::In(call, kind)) = (index.operation_of(span), phases.of_call(i)) else {
            continue;
        };
        let of_wal = || index.path_of(span).is_some_and(|path| wal.contains(path));
        let checkpoint = call.writes() && kind == FileRole::Of(FileClass::Database) && of_wal();
        for at in index.chain(operation).filter(aligned) {
            let nth = match call {
                Call::Fsync | Call::Fdatasync => {
                    let nth = syncs.entry((at as u32, phase)).or_default();
                    *nth += 1;
                    (*nth).min(ORDINAL_MAX)
                }
                _ => 0,
            };
            all.push((at as u32, Edge::Calls(phase, nth)));
            if checkpoint {
                all.push((at as u32, Edge::Checkpoint));
            }
        }
    }
    let mut flushes: HashMap<u32, u32> = HashMap::new();
    for (span, parts) in charges::command_shares(index).iter() {
        let span = &rows.spans.at(span);
        if IoAction::on_disk(span) != IoAction::Flush
            || !span.disk.is_some_and(|disk| index.counted_disks.contains(&disk))
        {
            continue;
        }
        for part in parts.iter().filter(|part| part.share > 0.0 && aligned(&(part.operation as usize))) {
            let nth = flushes.entry(part.operation).or_default();
            *nth += 1;
            all.push((part.operation, Edge::Flush((*nth).min(ORDINAL_MAX))));
        }
    }
    for link in &rows.links {
        let (Some(parent), Some(child)) = (index.span(link.parent), index.span(link.child)) else { continue };
        let (upper, lower) = (&rows.spans.at(parent), &rows.spans.at(child));
        let operation = [upper, lower].into_iter().find_map(|span| index.operation_of(span));
        // Calls are already known from the calls themselves.
        let Some(operation) = operation.filter(|_| link.relation != Relation::Calls) else { continue };
        for at in index.chain(operation).filter(aligned) {
            all.push((at as u32, Edge::Link(upper.layer, link.relation, lower.layer)));
        }
    }
    all.sort_unstable();
    all.dedup();
    let mut found: EdgesByStatement = vec![BTreeMap::new(); alignment.shapes.len()];
    for (at, edge) in all {
        if let Some(slot) = slots[at as usize] {
            let occurs: &mut Occurrences = found[slot.statement as usize].entry(edge).or_default();
            occurs.executions += 1;
            occurs.stretches |= 1 << slot.stretch;
        }
    }
    found
}

/// An edge that only one recording has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OneSidedEdge {
    pub statement: String,
    /// The edge: `second flush`, `fdatasync directory`, `WAL checkpoint`.
    pub edge: String,
    /// Executions with the edge.
    pub executions: u64,
    /// Compared executions.
    pub of: u64,
    /// Whether there are too many for chance.
    pub sure: bool,
}

/// One-sided edges, by recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Edges {
    /// Edges of A that no execution of B has.
    pub only_a: Vec<OneSidedEdge>,
    /// Edges of B that no execution of A has.
    pub only_b: Vec<OneSidedEdge>,
}

/// Returns the edges that only one recording has, the most frequent first.
pub fn one_sided_edges(alignment: &Alignment, [a, b]: [&EdgesByStatement; 2]) -> Edges {
    let only = |these: &EdgesByStatement, those: &EdgesByStatement| {
        let mut list = Vec::new();
        for ((shape, here), there) in alignment.shapes.iter().zip(these).zip(those) {
            for (edge, occurs) in here.iter().filter(|(edge, _)| !there.contains_key(edge)) {
                list.push(OneSidedEdge {
                    statement: shape.text.clone(),
                    edge: edge.to_string(),
                    executions: occurs.executions,
                    of: shape.pairs.len() as u64,
                    sure: occurs.exceed_chance(*edge),
                });
            }
        }
        list.sort_by_key(|one: &OneSidedEdge| std::cmp::Reverse(one.executions));
        list
    };
    Edges { only_a: only(a, b), only_b: only(b, a) }
}
