//! Which copies have, get and may be asked for what.

use super::super::mutant::Mutant;
use super::super::record::Record;
use super::{Machine, NodeSet, members};

impl Machine {
    pub(super) fn up(&self) -> NodeSet {
        self.nodes.iter().enumerate().filter(|(_, node)| node.up).fold(0, |set, (nth, _)| set | 1 << nth)
    }

    pub(super) fn set_of(&self, nodes: NodeSet, is_in: impl Fn(usize) -> bool) -> NodeSet {
        members(nodes).filter(|node| is_in(*node)).fold(0, |set, node| set | 1 << node)
    }

    /// The copies that get writes now.
    pub(super) fn targets(&self, region: u32) -> NodeSet {
        self.set_of(self.placement.holders(region), |node| {
            self.nodes[node].up
                && (!self.wanted.lacks[node].contains(region) || self.nodes[node].copied.contains(region))
        })
    }

    /// The copies whose loss the record does not excuse.
    pub(super) fn unexcused(&self, region: u32) -> NodeSet {
        if self.mutant == Mutant::ForgetBitmap {
            return self.placement.holders(region) & !self.wanted.out;
        }
        let issued = self.issued.iter().filter(|_| self.mutant != Mutant::NoRecord);
        let records = std::iter::once(&self.wanted).chain(issued);
        self.set_of(self.placement.holders(region), |node| {
            !records.clone().all(|record| record.lacks[node].contains(region))
        })
    }

    /// The next record, and those that a new coordinator may begin with.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        std::iter::once(&self.wanted).chain(&self.issued)
    }

    /// The copies that every record counts.
    pub(super) fn counted(&self, region: u32) -> NodeSet {
        self.set_of(self.placement.holders(region), |node| {
            !self.records().any(|record| record.lacks[node].contains(region))
        })
    }

    /// The copies that may be read.
    pub(super) fn readable(&self, region: u32) -> NodeSet {
        self.set_of(self.placement.holders(region), |node| {
            self.nodes[node].up && (!self.wanted.lacks[node].contains(region) || self.mutant == Mutant::ServeStale)
        })
    }

    /// The nodes whose flushes nobody waits for.
    pub(super) fn slow(&self) -> NodeSet {
        self.set_of(self.up(), |node| self.nodes[node].is_slow)
    }

    /// Whether enough copies of everything are left without a node, and a quorum to record that.
    pub(super) fn can_go_without(&self, node: usize) -> bool {
        let (up, count) = (self.up() & !(1 << node), self.nodes.len() as u32);
        let is_quorum = match count {
            0..=2 => up != 0 && (self.mutant == Mutant::OtherQuorum || self.records().all(|r| up & !r.out != 0)),
            _ => up.count_ones() * 2 > count,
        };
        if !is_quorum {
            return false;
        }
        let needed = self.placement.copies_needed() as u32;
        (0..self.placement.region_count()).all(|region| {
            let is_held = self.placement.holders(region) >> node & 1 == 1 && !self.wanted.lacks[node].contains(region);
            !is_held || (self.counted(region) & up).count_ones() >= needed
        })
    }
}
