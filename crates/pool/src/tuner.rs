//! Finds a node's window and batch by itself: a hill climber that walks by comparisons.
//!
//! A till with one cashier: a second customer in the queue keeps her busy while the first one packs; the tenth only waits.
//! Which one is the first that only waits, nobody tells us, and it changes with the shop. But it shows: let half as many
//! again queue up, and count who leaves. By Little's law
//!
//! ```text
//!     window = goodput x latency
//! ```
//!
//! so what a larger window does not bring in goodput it costs in latency (the **latency gradient**). Two settings are
//! compared by
//!
//! ```text
//!     merit = ln goodput - THRIFT ln window - PATIENCE ln batch
//! ```
//!
//! which is goodput, less a little for the room taken and for the waiting: a doubling of the window must bring 3.5 %.
//!
//! Window and batch cannot be tuned one after the other. On a link bound by packets a window of 64 with batches of 32 carries
//! half as much again as any window without batches, and from a window of 4 neither step alone leads there. So the moves are
//! of both: [`MOVES`]. The one that paid is made again; one that did not gives way to the next. When none has paid, the tuner
//! rests, each time twice as long, and then looks again, for links change.
//!
//! A comparison alternates: an epoch of the present setting, one of the other, [`ROUNDS`] times, so that whatever else
//! changes meanwhile changes for both. The first answers of an epoch were sent under the other setting and do not count.
//!
//! A window larger than the **demand** (what is under way and what waits) is never full and teaches nothing; so the demand
//! is a ceiling, and when it falls the setting shrinks with it, window and batch alike. A lone request never waits.
//!
//! No clock, no I/O: told of answers and the time, asked for the setting. Epochs are counted in answers.

use crate::setting::Setting;

/// Goodput that a window must bring for its growth, as a part of the growth.
const THRIFT: f64 = 0.05;
/// Goodput that a batch must bring for its growth, likewise.
const PATIENCE: f64 = 0.02;
/// The other setting must be better by this much: less than noise shows.
const MARGIN: f64 = 0.01;
/// A difference that needs no further round.
const CLEAR: f64 = 0.1;
/// What is tried: factors of window and batch. Small steps first; then longer ones, since goodput does not grow evenly:
/// where two replies fill a packet, a third request brings nothing and a fourth does.
const MOVES: [(f64, f64); 11] = [
    (1.5, 1.0),
    (1.5, 1.5),
    (1.0, 0.7),
    (1.0, 1.4),
    (0.67, 0.67),
    (0.67, 1.0),
    (1.0, 2.5),
    (2.0, 4.0),
    (4.0, 4.0),
    (4.0, 1.0),
    (0.4, 0.2),
];
/// Exponents of the moves, one a round of failures: the same step lands elsewhere the next time.
const STRETCH: [f64; 3] = [1.0, 0.8, 1.25];
/// Times that each setting is tried in a comparison.
const ROUNDS: u32 = 4;
/// In so many comparisons each is tried once only: in the beginning speed matters more than certainty.
const HASTY: u32 = 16;
/// Answers that count in an epoch, as a multiple of the window, but at least so many.
const EPOCH_WINDOWS: u32 = 3;
const EPOCH_LEAST: u32 = 64;
/// The longest rest, in epochs.
const LONGEST_REST: u32 = 1024;
/// A demand that grew by this factor ends a rest: there is something new to learn.
const NEW_DEMAND: f64 = 1.25;

/// The tuner of one node's connection.
#[derive(Debug, Clone)]
pub struct Tuner {
    /// What the node granted.
    granted: u32,
    demand: Demand,
    /// The demand that the present state of knowledge was made with.
    known: u32,
    settled: Setting,
    state: State,
    /// The move that is next.
    next: usize,
    /// How far it goes: place in [`STRETCH`].
    stretch: usize,
    /// Moves that failed since one paid.
    failed: usize,
    /// Epochs to rest when all have failed.
    rest: u32,
    /// Comparisons made.
    compared: u32,
}

/// The largest demand of late: of the present stretch of answers and the one before.
#[derive(Debug, Clone, Default)]
struct Demand {
    now: u32,
    before: u32,
    answers: u32,
}

impl Demand {
    fn seen(&mut self, demand: u32) {
        self.now = self.now.max(demand);
        self.answers += 1;
        if self.answers >= epoch_answers(self.now) {
            (self.before, self.now, self.answers) = (self.now, demand, 0);
        }
    }

    fn peak(&self) -> u32 {
        self.now.max(self.before)
    }
}

#[derive(Debug, Clone)]
enum State {
    Rest { answers: u32 },
    Compare { other: Setting, epoch: u32, seen: u32, began_ns: u64, sums: [Sum; 2] },
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    answers: u32,
    time_ns: u64,
}

impl Sum {
    fn merit(self, setting: Setting) -> f64 {
        let goodput = f64::from(self.answers) / self.time_ns.max(1) as f64;
        goodput.ln() - THRIFT * f64::from(setting.window()).ln() - PATIENCE * f64::from(setting.batch()).ln()
    }
}

impl Tuner {
    /// Begins small; never allows more than `granted` under way.
    pub fn new(granted: u32) -> Self {
        let (demand, state) = (Demand::default(), State::Rest { answers: 0 });
        Self {
            granted,
            demand,
            known: 0,
            settled: Setting::LEAST,
            state,
            next: 0,
            stretch: 0,
            failed: 0,
            rest: 1,
            compared: 0,
        }
    }

    /// What is in force.
    pub fn setting(&self) -> Setting {
        match &self.state {
            State::Compare { other, epoch, .. } if epoch % 2 == 1 => *other,
            _ => self.settled,
        }
    }

    /// A request was answered at `now_ns`, when `demand` of them, it included, were under way or waiting.
    pub fn answered(&mut self, now_ns: u64, demand: u32) {
        self.demand.seen(demand);
        let window = self.setting().window();
        if self.ceiling() < window {
            return self.shrink();
        }
        if f64::from(self.ceiling()) > f64::from(self.known) * NEW_DEMAND {
            self.look_around();
        }
        let rounds = if self.compared < HASTY { 1 } else { ROUNDS };
        match &mut self.state {
            State::Rest { answers: 0 } => self.compare(),
            State::Rest { answers } => *answers -= 1,
            State::Compare { epoch, seen, began_ns, sums, .. } => {
                *seen += 1;
                if *seen == window {
                    *began_ns = now_ns;
                }
                if *seen >= window + epoch_answers(window) {
                    let sum = &mut sums[*epoch as usize % 2];
                    sum.answers += *seen - window;
                    sum.time_ns += now_ns.saturating_sub(*began_ns);
                    *seen = 0;
                    *epoch += 1;
                    if *epoch % 2 == 0 {
                        let last = *epoch == 2 * rounds;
                        self.decide(last);
                    }
                }
            }
        }
    }

    fn ceiling(&self) -> u32 {
        self.granted.min(self.demand.peak()).max(Setting::LEAST.window())
    }

    /// The demand fell below the window: keeps the proportion of batch to window.
    fn shrink(&mut self) {
        let factor = f64::from(self.ceiling()) / f64::from(self.settled.window());
        if factor < 1.0 {
            self.settled = self.settled.scaled(factor, factor, self.ceiling());
        }
        self.look_around();
    }

    /// Begins anew from where it is.
    fn look_around(&mut self) {
        (self.known, self.failed, self.rest) = (self.ceiling(), 0, 1);
        self.compare();
    }

    /// Begins the next comparison.
    fn compare(&mut self) {
        while self.failed < MOVES.len() {
            let (window, batch) = MOVES[self.next];
            let (window, batch) = (window.powf(STRETCH[self.stretch]), batch.powf(STRETCH[self.stretch]));
            let other = self.settled.scaled(window, batch, self.ceiling());
            if (other.window(), other.batch()) != (self.settled.window(), self.settled.batch()) {
                self.compared = self.compared.saturating_add(1);
                self.state = State::Compare { other, epoch: 0, seen: 0, began_ns: 0, sums: [Sum::default(); 2] };
                return;
            }
            self.give_way();
        }
        self.failed = 0;
        self.stretch = (self.stretch + 1) % STRETCH.len();
        self.state = State::Rest { answers: self.rest * epoch_answers(self.settled.window()) };
        self.rest = (2 * self.rest).min(LONGEST_REST);
    }

    /// Ends the comparison if its last round is over or the difference is beyond doubt.
    fn decide(&mut self, last: bool) {
        let State::Compare { other, sums: [here, there], .. } = &self.state else { return };
        let gain = there.merit(*other) - here.merit(self.settled);
        if gain > if last { MARGIN } else { CLEAR } {
            self.settled = *other;
            self.failed = 0;
            self.rest = 1;
        } else if last || gain < -CLEAR {
            self.give_way();
        } else {
            return;
        }
        self.compare();
    }

    fn give_way(&mut self) {
        self.next = (self.next + 1) % MOVES.len();
        self.failed += 1;
    }
}

fn epoch_answers(window: u32) -> u32 {
    (EPOCH_WINDOWS * window).max(EPOCH_LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link on which an answer takes a time that depends on the setting alone, one after the other.
    struct Link {
        tuner: Tuner,
        now_ns: f64,
    }

    impl Link {
        fn new(granted: u32) -> Self {
            Self { tuner: Tuner::new(granted), now_ns: 0.0 }
        }

        /// Where the tuner stays after so many answers, with `latency_ns(window, batch)`.
        fn settle(&mut self, answers: u32, demand: u32, latency_ns: impl Fn(f64, f64) -> f64) -> (u32, u32) {
            for _ in 0..answers {
                let setting = self.tuner.setting();
                let window = f64::from(setting.window().min(demand));
                self.now_ns += latency_ns(window, f64::from(setting.batch())) / window;
                self.tuner.answered(self.now_ns as u64, demand);
            }
            (self.tuner.settled.window(), self.tuner.settled.batch())
        }
    }

    const MUCH: u32 = 10_000;

    #[test]
    fn it_grows_to_where_waiting_begins() {
        // 100 us of travel, a server that takes 10 us each: ten fill it.
        let found = Link::new(1024).settle(200_000, MUCH, |w, _| 100_000_f64.max(10_000.0 * w));
        assert!((8..=14).contains(&found.0) && found.1 == 1, "{found:?}");
    }

    #[test]
    fn it_takes_what_the_node_grants_where_more_is_always_better() {
        assert_eq!(Link::new(48).settle(100_000, MUCH, |_, _| 50_000.0), (48, 1));
    }

    #[test]
    fn it_stays_small_where_more_only_waits() {
        assert_eq!(Link::new(1024).settle(100_000, MUCH, |w, _| 1000.0 * w), (2, 1));
    }

    #[test]
    fn it_finds_a_batch_that_pays() {
        // Best at 20, worse on both sides.
        let latency = |w: f64, b: f64| 1e4 * w * (1.0 + 0.3 * (b / 20.0).ln().powi(2)) + 1e5;
        let (_, batch) = Link::new(64).settle(200_000, MUCH, latency);
        assert!((10..=32).contains(&batch), "{batch}");
    }

    #[test]
    fn it_follows_a_link_that_changes() {
        let mut link = Link::new(1024);
        for (servers, low, high) in [(64.0, 50, 90), (4.0, 3, 6), (64.0, 50, 90)] {
            let (window, _) = link.settle(2_000_000, MUCH, |w, _| 100_000_f64.max(100_000.0 * w / servers));
            assert!((low..=high).contains(&window), "{servers} servers: {window}");
        }
    }

    #[test]
    fn the_setting_shrinks_and_grows_with_the_demand() {
        let mut link = Link::new(1024);
        for (demand, low, high) in [(500, 50, 90), (5, 4, 5), (1, 2, 2), (500, 50, 90)] {
            let (window, _) = link.settle(300_000, demand, |w, _| 100_000_f64.max(100_000.0 * w / 64.0));
            assert!((low..=high).contains(&window), "a demand of {demand}: {window}");
        }
    }
}
