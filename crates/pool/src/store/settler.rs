//! Removes marks when nothing is written, so that an idle store records that everything acknowledged is flushed.
//!
//! A mark makes the next writer wait for the medium. So it is removed only after a pause of ten times the duration of a
//! flush: with any access pattern, waits for marks that were removed too early cost clients no more than a tenth of their
//! time. In a store that is written without pauses, unused regions lose their marks after half a minute.

use super::Store;
use super::regions::Regions;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The length of a pause in flushes,
const PAUSE_FLUSHES: u32 = 10;
/// and its limits.
const PAUSE_DURATION_MIN: Duration = Duration::from_millis(10);
const PAUSE_DURATION_MAX: Duration = Duration::from_secs(1);
/// Regions not written for this long are settled in any case, in the next round.
const SETTLE_INTERVAL: Duration = Duration::from_secs(30);
/// Bytes that are read at once to recompute sums after an unclean shutdown: clients wait for the medium meanwhile.
const RECHECK_BYTES_MAX: u64 = 64 << 20;

/// Notifies the settler of flushes.
#[derive(Debug, Default)]
pub(super) struct IdleSignal {
    state: Mutex<State>,
    changed: Condvar,
    /// The duration of a flush, smoothed.
    flush_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    wakes: u64,
    ended: bool,
}

impl IdleSignal {
    /// Records a successful flush and its duration.
    pub fn flushed(&self, took: Duration) {
        let (now, before) = (took.as_nanos() as u64, self.flush_ns.load(Ordering::Relaxed));
        self.flush_ns.store(if before == 0 { now } else { before - before / 8 + now / 8 }, Ordering::Relaxed);
        self.wake();
    }

    /// There is something to do.
    pub fn wake(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).wakes += 1;
        self.changed.notify_one();
    }

    fn has_ended(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended
    }

    fn pause(&self) -> Duration {
        (Duration::from_nanos(self.flush_ns.load(Ordering::Relaxed)) * PAUSE_FLUSHES)
            .clamp(PAUSE_DURATION_MIN, PAUSE_DURATION_MAX)
    }
}

/// A thread that settles a store until this is dropped.
#[derive(Debug)]
pub struct Settler {
    store: Arc<Store>,
    thread: Option<JoinHandle<()>>,
}

impl Settler {
    /// Starts it; `None` for a store in memory, which has nothing to settle.
    ///
    /// # Errors
    /// The thread cannot be started. The store works without it; after a power failure more counts as not flushed than necessary.
    pub fn start(store: &Arc<Store>) -> std::io::Result<Option<Self>> {
        if store.regions.is_none() {
            return Ok(None);
        }
        let own = store.clone();
        store.idle.state.lock().unwrap_or_else(PoisonError::into_inner).ended = false;
        let thread = std::thread::Builder::new().name("settler".into()).spawn(move || {
            if let Some(regions) = &own.regions {
                run_settler(&own, regions);
            }
        })?;
        Ok(Some(Self { store: store.clone(), thread: Some(thread) }))
    }
}

impl Drop for Settler {
    fn drop(&mut self) {
        self.store.idle.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.store.idle.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic was reported already.
            let _ = thread.join();
        }
    }
}

fn run_settler(store: &Store, regions: &Regions) {
    let idle = &store.idle;
    let (mut seen, mut turn, mut before) = (0, Instant::now(), 0);
    if store.header().is_marked() {
        // Left behind by a killed process: it is not known to be flushed until it is flushed once. A failure is recorded in the
        // store.
        let _ = store.flush();
    }
    loop {
        store.save_loss();
        let state = idle.state.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |state: &mut State| !state.ended && state.wakes == seen;
        let longest = if store.has_unsaved_loss() { PAUSE_DURATION_MAX } else { SETTLE_INTERVAL };
        let (state, _) = idle.changed.wait_timeout_while(state, longest, same).unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return;
        }
        let woken = state.wakes != seen;
        seen = state.wakes;
        drop(state);
        if woken {
            let begun = regions.flushes_begun();
            // Not on the condition variable, or every flush would wake it. The end is detected above.
            std::thread::park_timeout(idle.pause());
            while regions.flushes_begun() == begun && regions.all_covered() && !idle.has_ended() {
                // A failure is reported to the next writer.
                if store.settle(u64::MAX, RECHECK_BYTES_MAX).unwrap_or(true) {
                    break;
                }
            }
        }
        if turn.elapsed() >= SETTLE_INTERVAL {
            let _ = store.settle(before, RECHECK_BYTES_MAX);
            (before, turn) = (regions.flushes_begun(), Instant::now());
        }
    }
}
