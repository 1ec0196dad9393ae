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
const WAKE_DELAY_NS_MAX: u64 = 20_000;
/// A sleep that exceeds its requested end by this means that the thread was stopped, ns.
const OVERSLEEP_NS_MAX: u64 = 100_000;
/// The minimum time of busy-waiting, ns.
pub const BUSY_WAIT_NS_MIN: u64 = 40_000;
/// The maximum time of busy-waiting, ns.
pub const BUSY_WAIT_NS_MAX: u64 = 400_000;
/// The share of a CPU that busy-waiting may use, beyond the minimum.
const BUSY_WAIT_CPU_SHARE: f64 = 0.15;
/// The most of this budget that can be saved up, ns.
const BUSY_WAIT_BUDGET_NS: f64 = 20e6;
/// One wake-up in this many may be later than the lead covers.
const LATE_WAKEUP_PERIOD: f64 = 50.0;
/// How much a late wake-up increases the lead, ns.
const LEAD_STEP_NS: f64 = 10_000.0;

/// A completed sleep.
#[derive(Debug, Clone, Copy)]
pub struct Sleep {
    /// When it began, and ended ([`super::engine::now_ns`]).
    pub from: u64,
    /// Its requested maximum duration.
    pub requested_ns: u64,
    pub woke: u64,
    /// How long the thread was runnable and waited for a CPU meanwhile; `None` if the kernel does not report it.
    pub waited_ns: Option<u64>,
}

impl Sleep {
    /// The earliest and the latest arrival of the first packet that ended the sleep.
    fn first_arrival(&self) -> (u64, u64) {
        let overslept = self.woke.saturating_sub(self.from) > self.requested_ns.saturating_add(OVERSLEEP_NS_MAX);
        match self.waited_ns {
            Some(waited) if !overslept => {
                let latest = self.woke.saturating_sub(waited).max(self.from);
                (latest.saturating_sub(WAKE_DELAY_NS_MAX).max(self.from), latest)
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
    pub fn record_empty_poll(&mut self, at: u64) {
        *self = Self::since(at.max(self.not_before));
    }

    /// This device ended a sleep; `alone` if only this device did.
    pub fn record_wake(&mut self, slept: &Sleep, alone: bool) {
        let (earliest, latest) = slept.first_arrival();
        self.not_before = self.not_before.max(earliest);
        self.first_by = alone.then_some(latest);
    }

    /// A packet was read at `now`: returns from when its delay counts, and how much earlier than that it may have arrived.
    pub fn date_packet(&mut self, now: u64) -> (u64, u64) {
        let from = self.first_by.take().unwrap_or(now).clamp(self.not_before.min(now), now);
        (from, from.saturating_sub(self.not_before))
    }
}

/// How long before a deadline to wake.
#[derive(Debug, Clone, Copy)]
pub struct WakeLead {
    lead_ns: f64,
    /// The time left for busy-waiting, ns.
    budget_ns: f64,
    last: u64,
}

impl WakeLead {
    pub fn new(now: u64) -> Self {
        Self { lead_ns: BUSY_WAIT_NS_MIN as f64, budget_ns: BUSY_WAIT_BUDGET_NS, last: now }
    }

    /// The lead before a deadline for a sleep that begins `now`, ns.
    pub fn next_lead_ns(&mut self, now: u64) -> u64 {
        let passed = now.saturating_sub(self.last) as f64;
        self.last = now;
        self.budget_ns = (self.budget_ns + BUSY_WAIT_CPU_SHARE * passed).min(BUSY_WAIT_BUDGET_NS);
        let more = (self.lead_ns - BUSY_WAIT_NS_MIN as f64).min(self.budget_ns.max(0.0));
        BUSY_WAIT_NS_MIN + more as u64
    }

    /// Records a wake-up at `woke` that was requested for `at`, `lead_ns` before a deadline.
    pub fn record_wakeup(&mut self, at: u64, lead_ns: u64, woke: u64) {
        let late = woke.saturating_sub(at);
        // Busy-waiting starts now.
        self.budget_ns -= lead_ns.saturating_sub(late).saturating_sub(BUSY_WAIT_NS_MIN) as f64;
        // Converges to the quantile at which one step up balances LATE_WAKEUP_PERIOD - 1 small ones down (Robbins and
        // Monro).
        let step = if late as f64 > self.lead_ns { LEAD_STEP_NS } else { -LEAD_STEP_NS / (LATE_WAKEUP_PERIOD - 1.0) };
        self.lead_ns = (self.lead_ns + step).clamp(BUSY_WAIT_NS_MIN as f64, BUSY_WAIT_NS_MAX as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packet_that_wakes_is_dated_by_the_run_queue_wait() {
        let slept = Sleep { from: 1_000_000, requested_ns: 1_000_000, woke: 1_700_000, waited_ns: Some(600_000) };
        let mut looks = ArrivalBounds::since(1_000_000);
        looks.record_wake(&slept, true);
        assert_eq!(looks.date_packet(1_705_000), (1_100_000, WAKE_DELAY_NS_MAX));
        // Later packets came between that time and their read.
        assert_eq!(looks.date_packet(1_710_000), (1_710_000, 610_000 + WAKE_DELAY_NS_MAX));
        looks.record_empty_poll(1_712_000);
        assert_eq!(looks.date_packet(1_720_000), (1_720_000, 8_000));
    }

    #[test]
    fn packets_during_a_stop_have_unknown_lateness() {
        // Stopped: the wait for a CPU is not counted then.
        let slept = Sleep { from: 0, requested_ns: 1_000_000, woke: 30_000_000, waited_ns: Some(5_000) };
        let mut looks = ArrivalBounds::since(0);
        looks.record_wake(&slept, true);
        assert_eq!(looks.date_packet(30_001_000), (30_000_000, 30_000_000));
        // The same applies if the kernel counts no waits, or both devices are readable.
        let mut looks = ArrivalBounds::since(0);
        looks.record_wake(&Sleep { waited_ns: None, woke: 900_000, ..slept }, true);
        assert_eq!(looks.date_packet(901_000), (900_000, 900_000));
        let mut looks = ArrivalBounds::since(0);
        looks.record_wake(&Sleep { waited_ns: Some(700_000), woke: 900_000, ..slept }, false);
        assert_eq!(looks.date_packet(901_000), (901_000, 701_000 + WAKE_DELAY_NS_MAX));
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
                    0 => looks.record_empty_poll(before),
                    1 => looks.record_wake(&Sleep { from: before, requested_ns: 1_000_000, woke: now, waited_ns }, true),
                    2 => looks.record_wake(&Sleep { from: before, requested_ns: 1_000_000, woke: now, waited_ns }, false),
                    _ => {
                        let (from, unseen) = looks.date_packet(now);
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
                let by = ahead.next_lead_ns(now);
                let target = now + 5_000_000;
                let woke = target - by + random.below(longest);
                ahead.record_wakeup(target - by, by, woke);
                watched += target.saturating_sub(woke);
                late += u32::from(at > 1000 && woke > target);
                now = target.max(woke);
            }
            prop_assert!(late < 150, "{late} of 3000 wakings were late");
            prop_assert!(watched as f64 <= (BUSY_WAIT_CPU_SHARE + 0.01) * now as f64 + BUSY_WAIT_BUDGET_NS, "{watched} ns of {now}");
        }
    }

    #[test]
    fn busy_waiting_stays_within_budget() {
        // A deadline every 50 us, and wake-ups that take 300 us now and then.
        let (mut ahead, mut now, mut extra) = (WakeLead::new(0), 0, 0);
        for at in 0..100_000_u64 {
            let by = ahead.next_lead_ns(now);
            let late = if at % 10 == 0 { 300_000 } else { 0 };
            ahead.record_wakeup(now, by, now + late);
            extra += by.saturating_sub(late).saturating_sub(BUSY_WAIT_NS_MIN);
            now += 50_000 + late;
        }
        assert!(extra as f64 <= BUSY_WAIT_CPU_SHARE * now as f64 + 2.0 * BUSY_WAIT_BUDGET_NS, "{extra} of {now}");
    }
}
