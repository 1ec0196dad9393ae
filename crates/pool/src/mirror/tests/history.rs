//! Whether a history of reads and writes is one that a disk could have.

use std::collections::BTreeMap;

/// An operation on a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub block: u64,
    pub value: u64,
    pub is_write: bool,
    pub begin: u64,
    pub end: Option<u64>,
}

/// Gibbons and Korach: with unique values, each value has a zone from the first end of its operations to their last begin. Zones in
/// which it was the value all the time must not overlap, nor contain one of a value that came and went.
pub(super) fn check_linearizable(history: &[Operation]) -> Result<(), String> {
    let mut zones = BTreeMap::<u64, BTreeMap<u64, (u64, u64, bool)>>::new();
    for operation in history {
        if operation.is_write || operation.end.is_some() {
            let of_block = zones.entry(operation.block).or_default();
            of_block.entry(0).or_insert((0, 0, true));
            let zone = of_block.entry(operation.value).or_insert((u64::MAX, 0, false));
            zone.0 = zone.0.min(operation.end.unwrap_or(u64::MAX));
            zone.1 = zone.1.max(operation.begin);
            zone.2 |= operation.is_write;
        }
    }
    for (block, zones) in zones {
        for (value, (end, begin, written)) in &zones {
            let (from, to) = (end.min(begin), end.max(begin));
            if !written {
                return Err(format!("block {block}: {value} was read, and never written"));
            }
            for (other, (other_end, other_begin, _)) in &zones {
                let is_forward = end < begin;
                let both_forward = other_end < other_begin;
                let overlap = from < other_begin && other_end < to;
                if value != other
                    && is_forward
                    && ((both_forward && overlap)
                        || (!both_forward && from < other_begin.min(other_end) && other_begin.max(other_end) < to))
                {
                    return Err(format!("block {block}: {value} and {other} are not in any order"));
                }
            }
        }
    }
    Ok(())
}
