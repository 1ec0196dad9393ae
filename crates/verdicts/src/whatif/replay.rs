//! Replays an operation without what is removed, or on another device.
//!
//! The thread's pieces follow each other as recorded. A removed piece takes its consequences with it:
//!
//! - A thread that does not sleep at all is not woken: the wait for a CPU after such a sleep is removed.
//! - The time between the end of a removed command and the next one, while the thread still sleeps, is spent on waking others
//!   (jbd2, the block layer's flush machinery): it is removed. It was the larger part of a flush's cost on a busy machine.
//!
//! - An execution that no longer sleeps at all finds its caches warm.
//!
//! On another device a wait for a command is scaled like the command's time; the time between commands is scaled by its ratio there.

use super::depth::Delays;
use super::pieces::Piece;
use super::removal::{Lookup, RemovalExtent};
use super::service::Factors;
use analysis::rows::Index;
use model::Reason;

/// The requested change.
pub struct Change<'a> {
    /// What is removed.
    pub without: &'a [Lookup],
    /// Scale factors of command times.
    pub device: Option<&'a Factors>,
    /// Delays of threads.
    pub delays: Option<&'a Delays>,
    /// CPU time, as a fraction, of an execution that slept and no longer does.
    pub warm: Option<f64>,
}

/// The result for an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayedOperation {
    /// Its predicted time.
    pub ns: f64,
    /// For each removal, the removed time.
    pub removed_ns: Vec<f64>,
}

/// Replays the operation at a position.
pub fn replay_operation(index: &Index, at: usize, pieces: &[Piece], change: &Change<'_>) -> ReplayedOperation {
    let operation = &index.rows.operations.at(at);
    let end = operation.end_ns.unwrap_or(operation.start_ns);
    let latency = end.saturating_sub(operation.start_ns);
    let mut gone = vec![0.0; change.without.len()];
    let mut saved = 0.0;
    // For the current or last sleep of the thread: its length, what is left of it, and the removal that took the last part of it.
    let (mut slept, mut left, mut taker) = (0.0, 0.0, 0);
    // For the whole operation: time asleep, what is left of it, and CPU time.
    let (mut asleep, mut still_asleep, mut cpu) = (0.0, 0.0, 0.0);
    // Whether the last command that was waited for in this sleep is removed.
    let mut ended_by_gone = false;
    let mut had = 0.0;
    for piece in pieces {
        let ns = piece.ns as f64;
        had += ns;
        let goes =
            change.without.iter().enumerate().find_map(|(by, lookup)| Some((by, lookup.extent_of(at as u32, piece)?)));
        let command = matches!(piece.reason, Reason::Device | Reason::Flush);
        if command || !piece.slept() {
            ended_by_gone = command && matches!(goes, Some((_, RemovalExtent::Wait)));
        }
        let goes = goes.or((ended_by_gone && !command).then_some((taker, RemovalExtent::Wait)));
        let mut kept = match goes {
            Some((by, _)) => {
                gone[by] += ns;
                taker = by;
                0.0
            }
            None => change.device.map_or(ns, |factors| ns * scale_factor(piece, factors)),
        };
        match piece.reason {
            Reason::RunQueue => {
                if goes.is_none() && slept > 0.0 && left == 0.0 {
                    // Without a removal, the other device served it in no time.
                    if let Some(gone) = gone.get_mut(taker) {
                        *gone += ns;
                    }
                    kept = 0.0;
                }
                (slept, left) = (0.0, 0.0);
            }
            Reason::Cpu => (slept, left) = (0.0, 0.0),
            _ if matches!(goes, Some((_, RemovalExtent::Call))) => {}
            _ => (slept, left) = (slept + ns, left + kept),
        }
        saved += ns - kept;
        match piece.reason {
            Reason::Cpu => cpu += kept,
            _ => (asleep, still_asleep) = (asleep + ns, still_asleep + kept),
        }
    }
    if let Some(warm) = change.warm.filter(|_| asleep > 0.0 && still_asleep == 0.0) {
        saved += (1.0 - warm) * cpu;
    }
    if let Some(delays) = change.delays {
        let thread = (operation.tgid, operation.tid);
        saved -= delays.delay_at(thread, end) - delays.delay_at(thread, operation.start_ns);
    }
    // Each piece is removed at most once. (In a damaged archive, pieces may be longer than their operation.)
    let removed: f64 = gone.iter().sum();
    assert!(removed <= had * (1.0 + 1e-9), "{removed} ns removed of {had}");
    ReplayedOperation { ns: (latency as f64 - saved).max(0.0), removed_ns: gone }
}

/// Returns the scale factor of a wait: that of the command waited for; a queue drains as fast as commands complete on average.
fn scale_factor(piece: &Piece, factors: &Factors) -> f64 {
    match piece.reason {
        Reason::Device | Reason::Flush => piece.span.and_then(|span| factors.of.get(&span)).copied().unwrap_or(1.0),
        Reason::Queue => factors.mean,
        Reason::Journal | Reason::Other if piece.call.is_some() => factors.between,
        Reason::Journal | Reason::Other | Reason::Cpu | Reason::RunQueue => 1.0,
    }
}
