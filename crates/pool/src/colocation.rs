//! Whether the coordinator and its nodes on this machine share one CPU: tried periodically, and kept while it increases throughput.
//!
//! Coordinator and node alternate on rounds of small requests: while one works, the other waits. On two CPUs each hand-over
//! wakes a CPU, which in a virtual machine is an exit to the hypervisor and costs as much as several writes; and where a
//! client needs a CPU too, the three compete for two. On one CPU a hand-over is a context switch, and the data is in its
//! cache. With many CPUs and expensive requests, running in parallel is better. The kernel's scheduler looks for an idle
//! CPU whenever it wakes a thread (`select_idle_sibling`), and this cannot be turned off. So it is measured: while a client
//! has many small requests outstanding, short periods of both placements alternate, and the faster one is kept until the
//! next trial; the time between trials grows. Otherwise all threads run where the scheduler places them.
//!
//! The coordinator pins itself to its current CPU, and asks nodes through shared memory to follow ([`crate::shm`]). A node
//! follows only to a CPU that it may use, and unpins itself when the coordinator requests it or is gone.
//!
//! Uncertainty: the result of a trial while other programs run may hold only while they do. The next trial corrects it.

use crate::patience::{CompletedRequests, LoadMonitor};
use crate::scheduling;
use crate::shm::suggest_cpu;
use nbd::buffer::LARGE_BYTES;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Parts of a period: threads migrate in the first, and only requests completed in the rest count.
const SETTLE_DURATION: Duration = Duration::from_millis(5);
const MEASURE_DURATION: Duration = Duration::from_millis(35);
/// Whether each period is colocated: balanced, so that a steady drift of the load affects both placements equally.
const COLOCATED_PERIODS: [bool; 8] = [false, true, true, false, false, true, true, false];
const GAIN_MIN: f64 = 1.04;
/// The minimum number of requests in a period: with fewer, the result is unreliable, and the load is not limited by CPUs.
const PERIOD_REQUESTS_MIN: u64 = 100;
/// The pause between two trials: initial and maximum.
const TRIAL_INTERVAL_MIN: Duration = Duration::from_secs(2);
const TRIAL_INTERVAL_MAX: Duration = Duration::from_secs(64);
/// After this long without many requests the load may have changed.
const IDLE_RESET_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to check whether the load is still the same.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Adapts the placement to a coordinator's load until it is dropped.
#[derive(Debug)]
pub(crate) struct Colocation(tokio::task::AbortHandle);

impl Drop for Colocation {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Colocation {
    /// Starts for this thread and those that follow it. Must run in a `LocalSet`.
    pub fn start(load: Rc<LoadMonitor>) -> Self {
        Self(tokio::task::spawn_local(async move { run(&load, &mut Threads).await }).abort_handle())
    }
}

/// The placement of the threads.
trait Placement {
    /// Changes the placement. False if that is not possible, or if the user has set it.
    fn set_colocated(&mut self, together: bool) -> bool;
}

/// This thread, and those of nodes that share this process's memory.
struct Threads;

impl Placement for Threads {
    fn set_colocated(&mut self, together: bool) -> bool {
        let here = scheduling::current_cpu();
        let done = if together { scheduling::pin(here) } else { scheduling::unpin() };
        suggest_cpu(Some(here).filter(|_| together && done));
        done
    }
}

/// Unpins the threads when the task ends, in any way.
struct PlacementGuard<'p, P: Placement>(&'p mut P);

impl<P: Placement> Drop for PlacementGuard<'_, P> {
    fn drop(&mut self) {
        self.0.set_colocated(false);
    }
}

/// Returns when the threads' placement is changed from outside.
async fn run(load: &LoadMonitor, place: &mut impl Placement) {
    let placed = PlacementGuard(place);
    let (mut better, mut pause, mut next, mut last) = (false, TRIAL_INTERVAL_MIN, Instant::now(), Instant::now());
    loop {
        load.wait_for_crowd().await;
        if measure_rate(load, MEASURE_DURATION).await.is_none() {
            sleep(CHECK_INTERVAL).await;
            continue;
        }
        if last.elapsed() > IDLE_RESET_TIMEOUT {
            (better, pause, next) = (false, TRIAL_INTERVAL_MIN, Instant::now());
        }
        if Instant::now() >= next {
            match run_trial(load, placed.0, if better { 1.0 } else { GAIN_MIN }).await {
                Ok(found) => {
                    (better, next, pause) = (found, Instant::now() + pause, (2 * pause).min(TRIAL_INTERVAL_MAX))
                }
                Err(TrialAbort::Load) => (better, next) = (false, Instant::now() + TRIAL_INTERVAL_MIN),
                Err(TrialAbort::Fixed) => return,
            }
        }
        if !placed.0.set_colocated(better) {
            return;
        }
        while Instant::now() < next && measure_rate(load, CHECK_INTERVAL).await.is_some() {}
        last = Instant::now();
        if last < next && !placed.0.set_colocated(false) {
            return;
        }
    }
}

/// Why a trial has no result.
enum TrialAbort {
    /// The load has stopped, or changed.
    Load,
    /// The placement is controlled from outside.
    Fixed,
}

/// Whether colocation completes more requests: by more than the factor `times`.
async fn run_trial(load: &LoadMonitor, place: &mut impl Placement, times: f64) -> Result<bool, TrialAbort> {
    let mut rates = [0.0; COLOCATED_PERIODS.len()];
    for (rate, together) in rates.iter_mut().zip(COLOCATED_PERIODS) {
        if !place.set_colocated(together) {
            return Err(TrialAbort::Fixed);
        }
        sleep(SETTLE_DURATION).await;
        *rate = measure_rate(load, MEASURE_DURATION).await.ok_or(TrialAbort::Load)?;
    }
    Ok(colocation_gain(&rates) > times)
}

/// The ratio of colocated to separate throughput: the median over neighbouring periods.
fn colocation_gain(rates: &[f64; COLOCATED_PERIODS.len()]) -> f64 {
    let pair = |nth: usize| {
        let (one, other) = (rates[2 * nth], rates[2 * nth + 1]);
        if COLOCATED_PERIODS[2 * nth] { one / other } else { other / one }
    };
    let mut pairs: [f64; COLOCATED_PERIODS.len() / 2] = std::array::from_fn(pair);
    pairs.sort_by(f64::total_cmp);
    f64::midpoint(pairs[pairs.len() / 2 - 1], pairs[pairs.len() / 2])
}

/// Measures requests per second during `time`; `None` if the load is not many small requests.
async fn measure_rate(load: &LoadMonitor, time: Duration) -> Option<f64> {
    let (before, begin) = (load.completed(), Instant::now());
    sleep(time).await;
    let CompletedRequests { requests, bytes } = load.completed();
    let (requests, bytes) = (requests - before.requests, bytes - before.bytes);
    let is_small = bytes < requests * LARGE_BYTES as u64;
    (load.is_crowded() && is_small && requests >= PERIOD_REQUESTS_MIN)
        .then(|| requests as f64 / begin.elapsed().as_secs_f64())
}

/// Lets a node's thread run on the CPU that its coordinator requests, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    wanted: Option<usize>,
}

impl Follower {
    /// Applies the requested CPU; called regularly.
    pub fn follow(&mut self, wanted: Option<usize>) {
        if wanted == self.wanted {
            return;
        }
        self.wanted = wanted;
        // If it may not run there, or the user has set its CPU, it stays, and the coordinator measures the effect.
        if !wanted.is_some_and(scheduling::pin) {
            scheduling::unpin();
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.follow(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;
    use std::cell::Cell;

    /// A load of 64 concurrent requests, whose rate depends on the placement of the threads.
    struct World {
        load: LoadMonitor,
        together: Cell<bool>,
        /// The number of switches.
        switches: Cell<u32>,
    }

    struct SimulatedPlacement(Rc<World>);

    impl Placement for SimulatedPlacement {
        fn set_colocated(&mut self, together: bool) -> bool {
            self.0.switches.update(|count| count + u32::from(self.0.together.get() != together));
            self.0.together.set(together);
            true
        }
    }

    /// Runs for `seconds`; returns for how many of them the threads were colocated, and the switches.
    async fn seconds_together(seconds: u32, bytes: u64, mut rate: impl FnMut(u32, bool) -> f64) -> (f64, u32) {
        let load = LoadMonitor::new(|_| true);
        let world = Rc::new(World { load, together: Cell::new(false), switches: Cell::new(0) });
        let own = world.clone();
        let tried = async move { run(&own.load, &mut SimulatedPlacement(own.clone())).await };
        let clients = async {
            let (mut together, mut left) = (0, 0.0);
            for ms in 0..seconds * 1000 {
                left += rate(ms, world.together.get()) / 1000.0;
                let _crowd: Vec<_> = (0..left as u64).map(|_| world.load.begin_request(bytes)).collect();
                left = left.fract();
                together += u32::from(world.together.get());
                // A fixed wait: a step of simulated time.
                sleep(Duration::from_millis(1)).await;
            }
            f64::from(together) / 1000.0
        };
        tokio::select! {
            () = tried => unreachable!("nothing else changes it"),
            together = clients => (together, world.switches.get()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn faster_colocation_is_kept() {
        let (together, _) =
            seconds_together(20, 4096, |_, together| if together { 120_000.0 } else { 100_000.0 }).await;
        assert!(together > 18.5, "{together}");
    }

    #[tokio::test(start_paused = true)]
    async fn slower_colocation_is_tried_less_and_less() {
        let (together, switches) =
            seconds_together(35, 4096, |_, together| if together { 60_000.0 } else { 100_000.0 }).await;
        // Trials after 0, 2, 6, 14 and 30 s.
        assert!((0.7..0.9).contains(&together) && switches <= 5 * 4, "{together} {switches}");
    }

    #[tokio::test(start_paused = true)]
    async fn colocation_that_became_slower_is_undone() {
        let rate = |ms, together| if together == (ms < 10_000) { 120_000.0 } else { 100_000.0 };
        let (together, _) = seconds_together(40, 4096, rate).await;
        assert!((9.0..16.0).contains(&together), "{together}");
    }

    #[tokio::test(start_paused = true)]
    async fn colocation_is_tried_only_with_many_small_requests() {
        let faster = |_, together| if together { 30_000.0 } else { 20_000.0 };
        assert_eq!(seconds_together(5, LARGE_BYTES as u64, faster).await, (0.0, 0));
        assert_eq!(seconds_together(5, 4096, |_, _| 15_000.0).await.1, 0, "15 at once are no crowd");
        assert!(seconds_together(5, 4096, faster).await.0 > 4.0);
    }

    #[tokio::test(start_paused = true)]
    async fn colocation_ends_with_the_load() {
        let rate = |ms, together| match ms {
            5000.. => 1000.0,
            _ if together => 120_000.0,
            _ => 100_000.0,
        };
        let (together, _) = seconds_together(60, 4096, rate).await;
        assert!((4.0..5.3).contains(&together), "{together}");
    }

    #[test]
    fn node_follows_while_requested() {
        let follows = || {
            let offer = crate::shm::MemoryOffer::for_boot(&crate::shm::boot()).expect("memory can be had");
            let memory = crate::shm::MappedMemory::map_offer(&offer).expect("it is this process");
            let mask = || sched_getaffinity(None).expect("a thread has a mask");
            let (all, here) = (mask(), scheduling::current_cpu());
            assert_eq!(memory.suggested_cpu(), None);
            if all.count() < 2 {
                println!("SKIP node_follows_while_requested: one processor only");
                return;
            }
            let mut follower = Follower::default();
            suggest_cpu(Some(here));
            assert_eq!(memory.suggested_cpu(), Some(here));
            follower.follow(memory.suggested_cpu());
            assert!(mask().count() == 1 && mask().is_set(here));
            suggest_cpu(None);
            follower.follow(memory.suggested_cpu());
            assert!(mask() == all);
            follower.follow(Some(usize::MAX));
            assert!(mask() == all, "there is no such processor");
            follower.follow(Some(here));
            assert_eq!(mask().count(), 1);
            drop(follower);
            assert!(mask() == all);
        };
        // In a separate thread, since the CPU mask is per thread.
        std::thread::spawn(follows).join().expect("it does not panic");
    }

    #[test]
    fn gain_ignores_one_disturbed_pair() {
        assert!((colocation_gain(&[1.0, 1.2, 1.2, 1.0, 1.0, 0.1, 1.2, 1.0]) - 1.2).abs() < 1e-9);
        assert!((colocation_gain(&[1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]) - 1.0).abs() < 1e-9);
    }
}
