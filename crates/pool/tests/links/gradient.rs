//! A window controlled by the latency gradient, for comparison with the tuner; the pool does not use it.
//!
//! As in Netflix' Gradient2 and TCP Vegas, the shortest latency of a reply is that of an idle link. While latencies are at
//! most [`LATENCY_FACTOR_MAX`] times as long, the window grows by its square root; beyond, it shrinks in proportion. Each node has
//! its own.

use super::world::Control;
use pool::setting::{Hold, Setting};
use pool::tuner::Tuner;

/// The maximum latency as a multiple of the shortest one.
const LATENCY_FACTOR_MAX: f64 = 2.0;
/// The shortest latency expires after this time, so that a link may become slower.
const SHORTEST_LATENCY_TTL_NS: u64 = 10_000_000_000;
const WINDOW_MIN: f64 = 2.0;

#[derive(Debug, Clone, Copy)]
struct Window {
    size: f64,
    shortest_ns: f64,
    shortest_since_ns: u64,
    smooth_ns: f64,
    next_ns: u64,
}

/// A window for each node, and batches controlled by a tuner, or natural ones.
#[derive(Debug, Clone)]
pub struct Gradient {
    windows: Vec<Window>,
    granted: u32,
    batches: Option<Tuner>,
}

impl Gradient {
    /// Creates it; with `tuned`, the tuner decides what a write waits for, within the window.
    pub fn new(nodes: usize, granted: u32, tuned: bool) -> Self {
        let window = Window { size: 4.0, shortest_ns: f64::MAX, shortest_since_ns: 0, smooth_ns: 0.0, next_ns: 0 };
        Self { windows: vec![window; nodes], granted, batches: tuned.then(|| Tuner::new(nodes)) }
    }
}

impl Control for Gradient {
    fn setting(&self, node: usize) -> Setting {
        let hold = self.batches.as_ref().map_or(Hold::NATURAL_BATCH, Tuner::hold);
        Setting::with_hold(self.windows[node].size as u32, hold)
    }

    fn answered(&mut self, node: usize, now_ns: u64, answers: u32, left: u32, took_ns: u64) {
        if let Some(tuner) = &mut self.batches {
            tuner.record_answers(node, now_ns, answers, left);
        }
        let (it, took) = (&mut self.windows[node], took_ns.max(1) as f64);
        if took <= it.shortest_ns || now_ns > it.shortest_since_ns + SHORTEST_LATENCY_TTL_NS {
            (it.shortest_ns, it.shortest_since_ns) = (took, now_ns);
        }
        it.smooth_ns = if it.smooth_ns == 0.0 { took } else { it.smooth_ns + (took - it.smooth_ns) / 4.0 };
        // Once per latency of a reply: before that, the effect of the last change is not visible.
        if now_ns >= it.next_ns {
            let gradient = (LATENCY_FACTOR_MAX * it.shortest_ns / it.smooth_ns).clamp(0.5, 1.0);
            it.size = (it.size * gradient + it.size.sqrt()).clamp(WINDOW_MIN, f64::from(self.granted));
            it.next_ns = now_ns + took_ns;
        }
    }
}
