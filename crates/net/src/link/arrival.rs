//! When a packet can have arrived, and how long before a deadline to wake. Pure: the emulator reports every poll and every sleep.
//!
//! **Arrival.** A packet that is read now had not arrived at the last poll that found the device empty. If the emulator has
//! slept since, the first packet woke it: the kernel made it runnable at that moment, and counts how long it then waited
//! for a CPU (`schedstat`). So the first packet arrived at the wake-up minus that wait, and hardly earlier
//! ([`WAKE_DELAY_NS_MAX`]); its delay counts from there. For the packets behind it only the earliest arrival is known.
//! A thread that slept longer than requested was stopped, or its machine was, and then only the start of the sleep is
//! known.
//!
//! **Wake-up lead.** Wake-up latency cannot be predicted: it ranges from microseconds on an idle machine to hundreds on a
//! busy one. So the emulator wakes early, by the latency that 98 of 100 wake-ups do not exceed ([`WakeLead`]), and
//! busy-waits for the rest. The CPU time for that beyond the minimum ([`BUSY_WAIT_NS_MIN`]) is kept within a budget
//! ([`BUSY_WAIT_CPU_SHARE`]): the ends of the link need CPU time too.
//!
//! **Uncertainty.** Time in which a hypervisor did not run the CPU to be woken is not accounted for anywhere; it is no
//! longer than a sleep, which is at most a millisecond while packets pass.

/// Upper bound between a packet's arrival and its reader being runnable: an interrupt of another CPU, ns.
const WAKING_NS: u64 = 20_000;
/// A sleep that exceeds its requested end by this means that the thread was stopped, ns.
const OVERSLEPT_NS: u64 = 100_000;
/// The minimum time of busy-waiting, ns.
pub const LEAST_NS: u64 = 40_000;
/// The maximum time of busy-waiting, ns.
pub const MOST_NS: u64 = 400_000;
/// The share of a CPU that busy-waiting may use, beyond the minimum.
const SHARE: f64 = 0.15;
/// The most of this budget that can be saved up, ns.
const SAVED_NS: f64 = 20e6;
/// One wake-up in this many may be later than the lead covers.
const RARE: f64 = 50.0;
/// How much a late wake-up increases the lead, ns.
const STEP_NS: f64 = 10_000.0;

/// A completed sleep.
#[derive(Debug, Clone, Copy)]
pub struct Sleep {
    /// When it began, and ended ([`super::engine::now_ns`]).
    pub from: u64,
    /// Its requested maximum duration.
    pub asked_ns: u64,
    pub woke: u64,
    /// How long the thread was runnable and waited for a CPU meanwhile; `None` if the kernel does not report it.
    pub waited_ns: Option<u64>,
}

impl Sleep {
    /// The earliest and the latest arrival of the first packet that ended the sleep.
    fn first(&self) -> (u64, u64) {
        let overslept = self.woke.saturating_sub(self.from) > self.asked_ns.saturating_add(OVERSLEPT_NS);
        match self.waited_ns {
            Some(waited) if !overslept => {
                let latest = self.woke.saturating_sub(waited).max(self.from);
                (latest.saturating_sub(WAKING_NS).max(self.from), latest)
            }
            _ => (self.from, self.woke),
        }
    }
}

/// What is known about arrivals at one device.
#[derive(Debug, Clone, Copy, Default)]
pub struct ArrivalBounds {
    /// No packet that is read from now on arrived before this.
    not_before: u64,
    /// The next packet that is read arrived at this moment or before.
    first_by: Option<u64>,
}

impl ArrivalBounds {
    /// Creates bounds: nothing has arrived before `now`.
    pub fn since(now: u64) -> Self {
        Self { not_before: now, first_by: None }
    }

    /// A poll that began at `at` found the device empty.
    pub fn empty(&mut self, at: u64) {
        *self = Self::since(at.max(self.not_before));
    }

    /// This device ended a sleep; `alone` if only this device did.
    pub fn woken(&mut self, slept: &Sleep, alone: bool) {
        let (earliest, latest) = slept.first();
        self.not_before = self.not_before.max(earliest);
        self.first_by = alone.then_some(latest);
    }

    /// A packet was read at `now`: returns from when its delay counts, and how much earlier than that it may have arrived.
    pub fn came(&mut self, now: u64) -> (u64, u64) {
        let from = self.first_by.take().unwrap_or(now).clamp(self.not_before.min(now), now);
        (from, from.saturating_sub(self.not_before))
    }
}

/// How long before a deadline to wake.
#[derive(Debug, Clone, Copy)]
pub struct WakeLead {
    ahead_ns: f64,
    /// The time left for busy-waiting, ns.
    saved_ns: f64,
    last: u64,
}

impl WakeLead {
    pub fn new(now: u64) -> Self {
        Self { ahead_ns: LEAST_NS as f64, saved_ns: SAVED_NS, last: now }
    }

    /// The lead before a deadline for a sleep that begins `now`, ns.
    pub fn ns(&mut self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.last) as f64;
        self.last = now;
        self.saved_ns = (self.saved_ns + SHARE * passed).min(SAVED_NS);
        let more = (self.ahead_ns - LEAST_NS as f64).min(self.saved_ns.max(0.0));
        LEAST_NS + more as u64
    }

    /// Records a wake-up at `woke` that was requested for `at`, `lead_ns` before a deadline.
    pub fn woke(&mut self, at: u64, ahead_ns: u64, woke: u64) {
        let late = woke.saturating_sub(at);
        // Busy-waiting starts now.
        self.saved_ns -= ahead_ns.saturating_sub(late).saturating_sub(LEAST_NS) as f64;
        // Converges to the quantile at which one step up balances LATE_WAKEUP_PERIOD - 1 small ones down (Robbins and
        // Monro).
        let step = if late as f64 > self.ahead_ns { STEP_NS } else { -STEP_NS / (RARE - 1.0) };
        self.ahead_ns = (self.ahead_ns + step).clamp(LEAST_NS as f64, MOST_NS as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn waking_packet_is_dated_by_run_queue_wait() {
        let slept = Sleep { from: 1_000_000, asked_ns: 1_000_000, woke: 1_700_000, waited_ns: Some(600_000) };
        let mut looks = ArrivalBounds::since(1_000_000);
        looks.woken(&slept, true);
        assert_eq!(looks.came(1_705_000), (1_100_000, WAKING_NS));
        // Later packets came between that time and their read.
        assert_eq!(looks.came(1_710_000), (1_710_000, 610_000 + WAKING_NS));
        looks.empty(1_712_000);
        assert_eq!(looks.came(1_720_000), (1_720_000, 8_000));
    }

    #[test]
    fn packets_during_stop_have_unknown_lateness() {
        // Stopped: the wait for a CPU is not counted then.
        let slept = Sleep { from: 0, asked_ns: 1_000_000, woke: 30_000_000, waited_ns: Some(5_000) };
        let mut looks = ArrivalBounds::since(0);
        looks.woken(&slept, true);
        assert_eq!(looks.came(30_001_000), (30_000_000, 30_000_000));
        // The same applies if the kernel counts no waits, or both devices are readable.
        let mut looks = ArrivalBounds::since(0);
        looks.woken(&Sleep { waited_ns: None, woke: 900_000, ..slept }, true);
        assert_eq!(looks.came(901_000), (900_000, 900_000));
        let mut looks = ArrivalBounds::since(0);
        looks.woken(&Sleep { waited_ns: Some(700_000), woke: 900_000, ..slept }, false);
        assert_eq!(looks.came(901_000), (901_000, 701_000 + WAKING_NS));
    }

    proptest! {
        /// The assumed arrival of a packet is never before its earliest possible arrival, nor after it was read.
        #[test]
        fn assumed_arrival_is_between_sleep_and_read(
            steps in prop::collection::vec((0_u64..3_000_000, prop::option::of(0_u64..3_000_000), 0_u8..4), 1..60),
        ) {
            let (mut now, mut looks) = (0, ArrivalBounds::since(0));
            for (long, waited_ns, what) in steps {
                let before = now;
                now += long;
                match what {
                    0 => looks.empty(before),
                    1 => looks.woken(&Sleep { from: before, asked_ns: 1_000_000, woke: now, waited_ns }, true),
                    2 => looks.woken(&Sleep { from: before, asked_ns: 1_000_000, woke: now, waited_ns }, false),
                    _ => {
                        let (from, unseen) = looks.came(now);
                        prop_assert!(from <= now && unseen <= from);
                    }
                }
            }
        }

        /// For any maximum wake-up latency nearly all wake-ups are in time, and the budget is respected.
        #[test]
        fn wake_up_lead_adapts_to_wake_latency(longest in 1_000_u64..300_000, seed: u64) {
            let mut random = stats::random::Random::new(seed);
            let (mut ahead, mut now, mut late, mut watched) = (WakeLead::new(0), 0, 0, 0);
            for at in 0..4000 {
                let by = ahead.ns(now);
                let target = now + 5_000_000;
                let woke = target - by + random.below(longest);
                ahead.woke(target - by, by, woke);
                watched += target.saturating_sub(woke);
                late += u32::from(at > 1000 && woke > target);
                now = target.max(woke);
            }
            prop_assert!(late < 150, "{late} of 3000 wakings were late");
            prop_assert!(watched as f64 <= (SHARE + 0.01) * now as f64 + SAVED_NS, "{watched} ns of {now}");
        }
    }

    #[test]
    fn busy_waiting_stays_within_budget() {
        // A deadline every 50 us, and wake-ups that take 300 us now and then.
        let (mut ahead, mut now, mut extra) = (WakeLead::new(0), 0, 0);
        for at in 0..100_000_u64 {
            let by = ahead.ns(now);
            let late = if at % 10 == 0 { 300_000 } else { 0 };
            ahead.woke(now, by, now + late);
            extra += by.saturating_sub(late).saturating_sub(LEAST_NS);
            now += 50_000 + late;
        }
        assert!(extra as f64 <= SHARE * now as f64 + 2.0 * SAVED_NS, "{extra} of {now}");
    }
}
