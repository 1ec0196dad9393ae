//! The record is written to all nodes, and valid when a quorum has it.

use super::super::mutant::Mutant;
use super::super::record::SLOT_BYTES;
use super::{ISSUED_MAX, Machine, Purpose, Work};

impl Machine {
    pub(super) fn pump_record(&mut self) {
        let is_idle = self.durable.sequence == self.current.sequence;
        if self.is_changed && (is_idle || (self.is_superseded && self.issued.len() < ISSUED_MAX)) {
            self.wanted.sequence += 1;
            if self.mutant != Mutant::OtherQuorum && self.issued.iter().any(|record| !record.meets(&self.wanted)) {
                self.wanted.out = 0;
            }
            self.current = self.wanted.clone();
            self.current_since_ms = self.now_ms;
            debug_assert!(
                self.mutant != Mutant::None || self.issued.iter().all(|record| record.meets(&self.current)),
                "two coordinators could be ready"
            );
            self.issued.push(self.current.clone());
            (self.is_changed, self.is_superseded) = (false, false);
        }
        let sequence = self.current.sequence;
        for nth in 0..self.nodes.len() {
            let node = &self.nodes[nth];
            if node.up && !node.is_recording && node.has < sequence {
                let offset = self.placement.meta_offset(nth) + node.slot * SLOT_BYTES;
                self.nodes[nth].is_recording = true;
                let bytes = self.current.encode(&self.identity);
                self.send(nth, Purpose::Record(sequence), Work::Record { offset, bytes });
            }
        }
        let having = self.set_of(u64::MAX >> (64 - self.nodes.len()), |node| self.nodes[node].has == sequence);
        if self.current.is_quorum(having) && self.durable.sequence != sequence {
            self.durable = self.current.clone();
            self.issued = vec![self.current.clone()];
            self.is_ready = true;
        }
    }
}
