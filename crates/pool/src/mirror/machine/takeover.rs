//! A coordinator begins with the newest record of the nodes that it has claimed.

use super::super::mutant::Mutant;
use super::super::placement::Placement;
use super::super::record::{Identity, Record};
use super::{Activity, INTERNAL, Machine, Node, NodeSet, Reached, TakeoverError, members};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// How a coordinator begins.
#[derive(Debug, Clone, Copy)]
pub struct Takeover {
    /// With which it has claimed its nodes.
    pub epoch: u64,
    pub accept_loss: bool,
    /// After which requests fail.
    pub timeout_ms: u64,
    pub now_ms: u64,
    pub mutant: Mutant,
}

impl Machine {
    /// The state of a coordinator that has claimed these nodes.
    ///
    /// # Errors
    /// [`TakeoverError`]: others are needed.
    pub fn takeover(
        placement: Rc<Placement>,
        identity: Identity,
        reached: &[Reached],
        with: Takeover,
    ) -> Result<Self, TakeoverError> {
        let Takeover { epoch, accept_loss, timeout_ms, now_ms, mutant } = with;
        let count = placement.node_count();
        let all = if count == 64 { u64::MAX } else { (1 << count) - 1 };
        let up = reached.iter().fold(0, |set: NodeSet, node| set | 1 << node.node);
        let newest = reached.iter().filter_map(|node| node.record.as_ref()).map(|(record, _)| record);
        let newest = newest.max_by_key(|record| record.generation());
        if newest.is_none() && up != all {
            return Err(TakeoverError::Needs(all & !up));
        }
        let mut record = newest.cloned().unwrap_or_else(|| Record::new(count));
        if !record.is_quorum(up) && mutant != Mutant::EpochWithoutMajority {
            return Err(TakeoverError::Needs(all & !up & !record.out));
        }
        // They come back when their loss is recorded: see `prepare_return`.
        let lossy = reached.iter().filter(|node| !node.lost.is_empty() && !accept_loss);
        let lossy = lossy.fold(0, |set: NodeSet, node| set | 1 << node.node);
        let old = record.clone();
        for region in 0..placement.region_count() {
            let holders = placement.holders(region);
            let lost = reached
                .iter()
                .filter(|node| node.lost.contains(&region))
                .fold(0, |set: NodeSet, node| set | 1 << node.node);
            let in_sync = members(holders)
                .filter(|node| !old.lacks[*node].contains(region))
                .fold(0, |set: NodeSet, node| set | 1 << node);
            if in_sync & up == 0 {
                return Err(TakeoverError::Needs(in_sync));
            }
            let good = match in_sync & up & !lost {
                0 if in_sync & !up != 0 => return Err(TakeoverError::Needs(in_sync & !up)),
                0 if !accept_loss => return Err(TakeoverError::Lost(in_sync & lost)),
                0 => in_sync & up,
                good => good,
            };
            let source: NodeSet = 1 << good.trailing_zeros();
            let lacking = if old.active.contains(region) { holders & !source } else { holders & lost & !source };
            members(lacking).for_each(|node| {
                record.lacks[node].insert(region);
            });
        }
        let lacking =
            (0..count).filter(|node| !record.lacks[*node].is_empty()).fold(0, |set: NodeSet, node| set | 1 << node);
        record.out = 0;
        record.put_out((all & !up) | lacking | lossy);
        (record.epoch, record.sequence) = (epoch, 0);
        let active = record
            .active
            .iter()
            .map(|region| (region, Activity { at_ms: now_ms, unflushed: true, version: 0 }))
            .collect();
        let mut nodes: Vec<Node> = (0..count).map(|_| Node::default()).collect();
        for node in reached.iter().filter(|node| lossy >> node.node & 1 == 0) {
            nodes[node.node].up = true;
            nodes[node.node].slot = node.record.as_ref().map_or(0, |(_, slot)| 1 - slot);
        }
        let mut machine = Self {
            placement,
            identity,
            mutant,
            timeout_ms,
            now_ms,
            wanted: record.clone(),
            current: record.clone(),
            current_since_ms: now_ms,
            durable: record,
            issued: reached.iter().filter_map(|node| node.record.as_ref()).map(|(record, _)| record.clone()).collect(),
            is_changed: true,
            is_superseded: false,
            is_ready: false,
            nodes,
            active,
            requests: BTreeMap::new(),
            waiting: VecDeque::new(),
            tokens: BTreeMap::new(),
            last_token: 0,
            last_version: 0,
            last_internal: INTERNAL,
            actions: Vec::new(),
        };
        machine.pump();
        Ok(machine)
    }
}
