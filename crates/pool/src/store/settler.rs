//! Takes marks away when nothing is written, so that an idle store records that all it has answered is flushed.
//!
//! A mark costs whoever writes next a wait for the medium. So it is taken away only after a pause of ten times what a flush takes: however
//! clients write, waits for marks that need not have been taken away cost them no more than a tenth of their time. In a store that
//! is written without a pause, regions that are left alone lose their marks after half a minute.

use super::Store;
use super::regions::Regions;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A pause is so many flushes long,
const PAUSE_FLUSHES: u32 = 10;
/// and within these.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);
/// What was not written for so long is settled in any case, by the next turn.
const EVERY: Duration = Duration::from_secs(30);
/// Bytes that are read in one go to make the sums that an unclean end left to be made: clients wait for the medium meanwhile.
const LOOK_BYTES: u64 = 64 << 20;

/// Tells the settler of flushes.
#[derive(Debug, Default)]
pub(super) struct Idle {
    state: Mutex<State>,
    changed: Condvar,
    /// What a flush takes, smoothed.
    flush_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    flushes: u64,
    ended: bool,
}

impl Idle {
    /// A flush succeeded, which took so long.
    pub fn flushed(&self, took: Duration) {
        let (now, before) = (took.as_nanos() as u64, self.flush_ns.load(Ordering::Relaxed));
        self.flush_ns.store(if before == 0 { now } else { before - before / 8 + now / 8 }, Ordering::Relaxed);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).flushes += 1;
        self.changed.notify_one();
    }

    fn is_over(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended
    }

    fn pause(&self) -> Duration {
        (Duration::from_nanos(self.flush_ns.load(Ordering::Relaxed)) * PAUSE_FLUSHES).clamp(SHORTEST, LONGEST)
    }
}

/// A thread that settles a store until this is dropped.
#[derive(Debug)]
pub struct Settler {
    store: Arc<Store>,
    thread: Option<JoinHandle<()>>,
}

impl Settler {
    /// None for a store in memory, which has nothing to settle.
    ///
    /// # Errors
    /// No thread can be had. The store works without; after a loss of power more counts as not flushed than must.
    pub fn start(store: &Arc<Store>) -> std::io::Result<Option<Self>> {
        if store.regions.is_none() {
            return Ok(None);
        }
        let own = store.clone();
        store.idle.state.lock().unwrap_or_else(PoisonError::into_inner).ended = false;
        let thread = std::thread::Builder::new().name("settler".into()).spawn(move || {
            if let Some(regions) = &own.regions {
                run(&own, regions);
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
            // If it panicked, that was reported.
            let _ = thread.join();
        }
    }
}

fn run(store: &Store, regions: &Regions) {
    let idle = &store.idle;
    let (mut seen, mut turn, mut before) = (0, Instant::now(), 0);
    if store.header().is_marked() {
        // What a process that was killed has left: until it is flushed once, it is not known to be. If that fails, whoever flushes
        // next is state.
        let _ = store.flush();
    }
    loop {
        let state = idle.state.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |state: &mut State| !state.ended && state.flushes == seen;
        let (state, _) = idle.changed.wait_timeout_while(state, EVERY, same).unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return;
        }
        let flushed = state.flushes != seen;
        seen = state.flushes;
        drop(state);
        if flushed {
            let begun = regions.begun();
            // Not on the condition, or every flush would wake it. Ended early, it finds out above.
            std::thread::park_timeout(idle.pause());
            while regions.begun() == begun && regions.all_covered() && !idle.is_over() {
                // If it fails, whoever writes next finds out.
                if store.settle(u64::MAX, LOOK_BYTES).unwrap_or(true) {
                    break;
                }
            }
        }
        if turn.elapsed() >= EVERY {
            let _ = store.settle(before, LOOK_BYTES);
            (before, turn) = (regions.begun(), Instant::now());
        }
    }
}
