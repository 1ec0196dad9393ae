//! Another number of commands at the device at once: each disk as a queue with so many servers, first come, first served.
//!
//! Commands come as they were queued and take as long as they took. A thread that waits for one is moved by as much as its command is, and
//! so are the commands it queues afterwards (a closed loop). **Uncertainty**: a device that works on several commands at once takes longer
//! for each, and its times hold that; the driver's own limits and the scheduler's order are not replayed.

use super::pieces::Piece;
use crate::rows::Index;
use model::{Layer, Relation};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// By how much a thread is later, from when on, in the recording's time.
pub struct Delays {
    threads: HashMap<(u32, u32), Vec<(u64, f64)>>,
}

impl Delays {
    /// By how much the thread is later at that time.
    pub fn at(&self, thread: (u32, u32), time_ns: u64) -> f64 {
        let Some(steps) = self.threads.get(&thread) else { return 0.0 };
        let next = steps.partition_point(|(at, _)| *at <= time_ns);
        next.checked_sub(1).map_or(0.0, |at| steps[at].1)
    }
}

/// Replays the disks with `servers` commands at once.
pub fn replay(index: &Index, pieces: &[Vec<Piece>], servers: usize) -> Delays {
    let rows = index.rows;
    let mut waiter: HashMap<u64, (u32, u32)> = HashMap::new();
    for (at, pieces) in pieces.iter().enumerate() {
        let operation = &rows.operations[at];
        for span in pieces.iter().filter(|piece| piece.slept()).filter_map(|piece| piece.span) {
            waiter.entry(span).or_insert((operation.tgid, operation.tid));
        }
    }
    let queued = queued(index);
    let mut commands: Vec<(u64, u64, u64, usize)> = Vec::new();
    for (at, span) in rows.spans.iter().enumerate().filter(|(_, s)| s.layer == Layer::Driver) {
        if let Some(end) = span.end_ns.filter(|end| *end >= span.start_ns) {
            let since = queued.get(&span.id).copied().unwrap_or(span.start_ns).min(span.start_ns);
            commands.push((since, span.start_ns, end, at));
        }
    }
    commands.sort_unstable();
    let mut free: HashMap<u32, BinaryHeap<Reverse<u64>>> = HashMap::new();
    let mut delays = Delays { threads: HashMap::new() };
    for (since, issued, end, at) in commands {
        let span = &rows.spans[at];
        let thread = waiter.get(&span.id).copied();
        let moved = thread.map_or(0.0, |thread| delays.at(thread, since));
        let arrives = (since as f64 + moved).max(0.0) as u64;
        let disk = free.entry(span.disk.unwrap_or(0)).or_default();
        let begins =
            if disk.len() < servers { arrives } else { disk.pop().map_or(arrives, |Reverse(at)| at.max(arrives)) };
        let ends = begins.saturating_add(end - issued);
        disk.push(Reverse(ends));
        if let Some(thread) = thread {
            let steps = delays.threads.entry(thread).or_default();
            let place = steps.partition_point(|(at, _)| *at <= end);
            steps.insert(place, (end, ends as f64 - end as f64));
        }
    }
    delays
}

/// When the first bio of each command was queued.
fn queued(index: &Index) -> HashMap<u64, u64> {
    let rows = index.rows;
    let mut first: HashMap<u64, u64> = HashMap::new();
    // A command's request lies between it and its bios.
    for _ in 0..2 {
        for link in rows.links.iter().filter(|l| matches!(l.relation, Relation::Carries | Relation::Merges)) {
            let Some(parent) = index.span(link.parent).map(|at| &rows.spans[at]) else { continue };
            let since = match parent.layer {
                Layer::Block => parent.start_ns,
                _ => first.get(&link.parent).copied().unwrap_or(u64::MAX),
            };
            let known = first.entry(link.child).or_insert(u64::MAX);
            *known = (*known).min(since);
        }
    }
    first
}
