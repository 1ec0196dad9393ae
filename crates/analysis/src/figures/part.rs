//! A part of a timeline that is too large for one table, as the page holds it.

use super::part_tables::{PartRowPositions, PartTables};
use super::parts::Cut;
use crate::rows::Rows;
use serde::Serialize;

/// Description of a part, available before it is loaded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Position of the first span that it owns among all spans by start time.
    pub first: usize,
    /// Number of spans that it owns; 0 if the part is for one operation.
    pub own: usize,
    /// Number of spans that it holds.
    pub spans: usize,
    /// Start of the time in which its own spans begin, ns from the origin.
    pub start: u64,
    /// End of that time; `None` if it is the last part.
    pub end: Option<u64>,
    /// The lowest ID of its own spans in the archive.
    pub id_low: u64,
    /// The highest ID.
    pub id_high: u64,
    /// Its tables.
    #[serde(skip)]
    pub held: PartTables,
    /// Positions of its rows in the recording.
    #[serde(skip)]
    pub rows: PartRowPositions,
}

impl Part {
    /// Describes a part, still without its tables.
    pub(super) fn new(rows: &Rows, order: &[usize], cut: &Cut, origin_ns: u64) -> Self {
        let begin = |position: usize| order.get(position).map(|&at| rows.spans.start_ns(at).saturating_sub(origin_ns));
        let ids = || order[cut.own.clone()].iter().map(|&at| rows.spans.id(at));
        Self {
            first: cut.own.start,
            own: cut.own.len(),
            spans: cut.spans.len(),
            start: begin(cut.own.start).unwrap_or(0),
            end: begin(cut.own.end),
            id_low: ids().min().unwrap_or(0),
            id_high: ids().max().unwrap_or(0),
            held: PartTables::default(),
            rows: PartRowPositions::default(),
        }
    }
}
