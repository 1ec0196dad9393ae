//! Whether the coordinator and its nodes of this machine run on one processor: tried, and kept while it answers more.
//!
//! Coordinator and node take turns with a round of small requests: while one has it, the other waits for it. On two processors each hand-over
//! wakes a processor, which in a virtual machine is an exit to the hypervisor and costs as much as several writes; and where a client
//! needs a processor too, the three fight for two. On one processor a hand-over is a switch of threads, and the data are in its cache.
//! Where processors are many and requests cost much, running beside each other is better. The kernel's scheduler looks for an idle processor
//! whenever it wakes a thread (`select_idle_sibling`), and there is no way to ask it for less. So it is measured: while a client
//! has many small requests under way, short periods of both in turn, and what answered more is kept until the next trial, which comes later and
//! later. Otherwise all run where the scheduler wants them.
//!
//! The coordinator keeps itself on the processor that it is on, and asks nodes through the memory that they share to follow ([`crate::shm`]). A
//! node follows only to where it may run, and lets go when the coordinator says so or is gone.
//!
//! Uncertain: a trial beside other programs may find what holds only beside them. The next one mends it.

use crate::patience::{Done, Patience};
use crate::scheduling;
use crate::shm::suggest;
use nbd::buffer::LARGE_BYTES;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Of a trial: threads move in its first part, and what ends in the rest counts.
const SETTLE: Duration = Duration::from_millis(5);
const PERIOD: Duration = Duration::from_millis(35);
/// Whether together, of each period: whatever grows or falls steadily meanwhile does so for both.
const ORDER: [bool; 8] = [false, true, true, false, false, true, true, false];
/// So much better it must be.
const WORTH: f64 = 1.04;
/// Fewer requests in a period say nothing, and such a load is not limited by processors.
const FEWEST: u64 = 100;
/// Between two trials: at first, and at most.
const SOON: Duration = Duration::from_secs(2);
const LATE: Duration = Duration::from_secs(64);
/// After so long without a crowd the load may be another one.
const FORGET: Duration = Duration::from_secs(10);
/// How often it is checked whether the load is still the same.
const LOOK: Duration = Duration::from_millis(100);

/// Follows a coordinator's load until it is dropped.
#[derive(Debug)]
pub(crate) struct Colocation(tokio::task::AbortHandle);

impl Drop for Colocation {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Colocation {
    /// Of this thread and of those that follow it. Runs in a `LocalSet`.
    pub fn start(load: Rc<Patience>) -> Self {
        Self(tokio::task::spawn_local(async move { run(&load, &mut Threads).await }).abort_handle())
    }
}

/// Where the threads run.
trait Place {
    /// False if that cannot be done, or if the user has set it.
    fn put(&mut self, together: bool) -> bool;
}

/// This one, and nodes' that share this process's memory.
struct Threads;

impl Place for Threads {
    fn put(&mut self, together: bool) -> bool {
        let here = scheduling::current();
        let done = if together { scheduling::pin(here) } else { scheduling::unpin() };
        suggest(Some(here).filter(|_| together && done));
        done
    }
}

/// Lets go however the task ends.
struct Placed<'p, P: Place>(&'p mut P);

impl<P: Place> Drop for Placed<'_, P> {
    fn drop(&mut self) {
        self.0.put(false);
    }
}

/// Ends when the threads' placement is changed from outside.
async fn run(load: &Patience, place: &mut impl Place) {
    let placed = Placed(place);
    let (mut better, mut pause, mut next, mut last) = (false, SOON, Instant::now(), Instant::now());
    loop {
        load.crowded().await;
        if measure(load, PERIOD).await.is_none() {
            sleep(LOOK).await;
            continue;
        }
        if last.elapsed() > FORGET {
            (better, pause, next) = (false, SOON, Instant::now());
        }
        if Instant::now() >= next {
            match trial(load, placed.0, if better { 1.0 } else { WORTH }).await {
                Ok(found) => (better, next, pause) = (found, Instant::now() + pause, (2 * pause).min(LATE)),
                Err(Cut::Load) => (better, next) = (false, Instant::now() + SOON),
                Err(Cut::Fixed) => return,
            }
        }
        if !placed.0.put(better) {
            return;
        }
        while Instant::now() < next && measure(load, LOOK).await.is_some() {}
        last = Instant::now();
        if last < next && !placed.0.put(false) {
            return;
        }
    }
}

/// Why a trial has no result.
enum Cut {
    /// The crowd has gone, or asks for something else.
    Load,
    /// Somebody else decides where the threads run.
    Fixed,
}

/// Whether more is answered together: so many times what is answered apart, and more.
async fn trial(load: &Patience, place: &mut impl Place, times: f64) -> Result<bool, Cut> {
    let mut rates = [0.0; ORDER.len()];
    for (rate, together) in rates.iter_mut().zip(ORDER) {
        if !place.put(together) {
            return Err(Cut::Fixed);
        }
        sleep(SETTLE).await;
        *rate = measure(load, PERIOD).await.ok_or(Cut::Load)?;
    }
    Ok(gain(&rates) > times)
}

/// What is answered together to what is answered apart: the median of neighbours.
fn gain(rates: &[f64; ORDER.len()]) -> f64 {
    let pair = |nth: usize| {
        let (one, other) = (rates[2 * nth], rates[2 * nth + 1]);
        if ORDER[2 * nth] { one / other } else { other / one }
    };
    let mut pairs: [f64; ORDER.len() / 2] = std::array::from_fn(pair);
    pairs.sort_by(f64::total_cmp);
    f64::midpoint(pairs[pairs.len() / 2 - 1], pairs[pairs.len() / 2])
}

/// Requests a second, from now on for so long; None if they are no crowd of small ones.
async fn measure(load: &Patience, time: Duration) -> Option<f64> {
    let (before, begin) = (load.done(), Instant::now());
    sleep(time).await;
    let Done { requests, bytes } = load.done();
    let (requests, bytes) = (requests - before.requests, bytes - before.bytes);
    let is_small = bytes < requests * LARGE_BYTES as u64;
    (load.is_crowded() && is_small && requests >= FEWEST).then(|| requests as f64 / begin.elapsed().as_secs_f64())
}

/// A node's thread, which runs where its coordinator would have it until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    wanted: Option<usize>,
}

impl Follower {
    /// To be called now and then.
    pub fn follow(&mut self, wanted: Option<usize>) {
        if wanted == self.wanted {
            return;
        }
        self.wanted = wanted;
        // Where it may not run there, or the user wants it elsewhere, it stays, and the coordinator finds out what that is worth.
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

    /// A load of 64 requests at once, answered at a rate that depends on where the threads are.
    struct World {
        load: Patience,
        together: Cell<bool>,
        /// Switches, and time together.
        switches: Cell<u32>,
    }

    struct Simulated(Rc<World>);

    impl Place for Simulated {
        fn put(&mut self, together: bool) -> bool {
            self.0.switches.update(|count| count + u32::from(self.0.together.get() != together));
            self.0.together.set(together);
            true
        }
    }

    /// For so many seconds: how many of them it was together.
    async fn seconds_together(seconds: u32, bytes: u64, mut rate: impl FnMut(u32, bool) -> f64) -> (f64, u32) {
        let load = Patience::new(|_| true);
        let world = Rc::new(World { load, together: Cell::new(false), switches: Cell::new(0) });
        let own = world.clone();
        let tried = async move { run(&own.load, &mut Simulated(own.clone())).await };
        let clients = async {
            let (mut together, mut left) = (0, 0.0);
            for ms in 0..seconds * 1000 {
                left += rate(ms, world.together.get()) / 1000.0;
                let _crowd: Vec<_> = (0..left as u64).map(|_| world.load.enter(bytes)).collect();
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
    async fn slower_colocation_is_tried_ever_less() {
        let (together, switches) =
            seconds_together(35, 4096, |_, together| if together { 60_000.0 } else { 100_000.0 }).await;
        // After 0, 2, 6, 14 and 30 s.
        assert!((0.7..0.9).contains(&together) && switches <= 5 * 4, "{together} {switches}");
    }

    #[tokio::test(start_paused = true)]
    async fn colocation_that_became_slower_is_undone() {
        let rate = |ms, together| if together == (ms < 10_000) { 120_000.0 } else { 100_000.0 };
        let (together, _) = seconds_together(40, 4096, rate).await;
        assert!((9.0..16.0).contains(&together), "{together}");
    }

    #[tokio::test(start_paused = true)]
    async fn only_crowds_of_small_requests_are_tried() {
        let faster = |_, together| if together { 30_000.0 } else { 20_000.0 };
        assert_eq!(seconds_together(5, LARGE_BYTES as u64, faster).await, (0.0, 0));
        assert_eq!(seconds_together(5, 4096, |_, _| 15_000.0).await.1, 0, "15 at once are no crowd");
        assert!(seconds_together(5, 4096, faster).await.0 > 4.0);
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_crowd_undoes_colocation() {
        let rate = |ms, together| match ms {
            5000.. => 1000.0,
            _ if together => 120_000.0,
            _ => 100_000.0,
        };
        let (together, _) = seconds_together(60, 4096, rate).await;
        assert!((4.0..5.3).contains(&together), "{together}");
    }

    #[test]
    fn node_follows_while_asked() {
        let follows = || {
            let offer = crate::shm::Offer::to(&crate::shm::boot()).expect("memory can be had");
            let memory = crate::shm::Attached::find(&offer).expect("it is this process");
            let mask = || sched_getaffinity(None).expect("a thread has a mask");
            let (all, here) = (mask(), scheduling::current());
            assert_eq!(memory.suggested(), None);
            if all.count() < 2 {
                println!("SKIP node_follows_while_asked: one processor only");
                return;
            }
            let mut follower = Follower::default();
            suggest(Some(here));
            assert_eq!(memory.suggested(), Some(here));
            follower.follow(memory.suggested());
            assert!(mask().count() == 1 && mask().is_set(here));
            suggest(None);
            follower.follow(memory.suggested());
            assert!(mask() == all);
            follower.follow(Some(usize::MAX));
            assert!(mask() == all, "there is no such processor");
            follower.follow(Some(here));
            assert_eq!(mask().count(), 1);
            drop(follower);
            assert!(mask() == all);
        };
        // In a separate thread, since the mask is the thread's.
        std::thread::spawn(follows).join().expect("it does not panic");
    }

    #[test]
    fn gain_ignores_one_disturbed_pair() {
        assert!((gain(&[1.0, 1.2, 1.2, 1.0, 1.0, 0.1, 1.2, 1.0]) - 1.2).abs() < 1e-9);
        assert!((gain(&[1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]) - 1.0).abs() < 1e-9);
    }
}
