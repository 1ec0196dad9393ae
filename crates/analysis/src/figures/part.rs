//! A part of a timeline that is too large for one table, as the page holds it.

use super::held::{Held, HeldRows};
use super::parts::Cut;
use crate::rows::Rows;
use serde::Serialize;

/// What is known of a part before it is loaded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Position of the first span that it owns among all by begin.
    pub first: usize,
    /// How many it owns; none if it is of one operation.
    pub own: usize,
    /// How many it holds.
    pub spans: usize,
    /// The time in which its own spans begin, ns from the origin.
    pub start: u64,
    /// Its end; `None` if no part comes after it.
    pub end: Option<u64>,
    /// The lowest number that one of its own spans has in the archive.
    pub id_low: u64,
    /// The highest.
    pub id_high: u64,
    /// Its tables.
    #[serde(skip)]
    pub held: Held,
    /// Which rows of the recording they are.
    #[serde(skip)]
    pub rows: HeldRows,
}

impl Part {
    /// A part of these rows, which were tabled.
    pub(super) fn new(rows: &Rows, order: &[usize], cut: &Cut, origin_ns: u64, held: Held, at: HeldRows) -> Self {
        let begin = |position: usize| order.get(position).map(|&at| rows.spans[at].start_ns.saturating_sub(origin_ns));
        let ids = || order[cut.own.clone()].iter().map(|&at| rows.spans[at].id);
        Self {
            first: cut.own.start,
            own: cut.own.len(),
            spans: cut.spans.len(),
            start: begin(cut.own.start).unwrap_or(0),
            end: begin(cut.own.end),
            id_low: ids().min().unwrap_or(0),
            id_high: ids().max().unwrap_or(0),
            held,
            rows: at,
        }
    }
}
