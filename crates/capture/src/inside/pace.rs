//! Decides how often the rings of processes that are probed inside are polled, and when they are emptied.
//!
//! Like a tub under a tap: when to check again depends on how fast it filled since the last check. A thread's ring is small. A loop of
//! short SELECTs fills it within 15 ms, INSERTs that are synced take seconds, and each check wakes the recorder, on a machine with few
//! CPUs at the recorded program's cost. So a ring that will not overflow soon is left alone until the kernel's rings are read anyway.
//!
//! *Uncertainty*: a program may fill its ring twice as fast as before, which is allowed for, or ten times as fast, which is not;
//! then records are dropped, and counted.

use std::time::Duration;

/// Longest interval between polls: that at which the recorder polls the kernel's rings.
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(20);
/// Shortest interval.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(5);
/// How full a ring may become, out of 1: the rest is for what a program writes while it is read.
const FILL_RATIO_MAX: f64 = 0.5;
/// Less than this is not worth reading.
const FILL_RATIO_MIN: f64 = 0.125;
/// How much faster than before a program may fill its ring.
const RATE_GROWTH_MAX: f64 = 2.0;

/// What the polls so far have shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct PollPace {
    polled_at: Duration,
    fill: f64,
    /// The part of a ring that is filled per second. An increase counts at once, a decrease only by half each time.
    per_second: f64,
}

impl PollPace {
    /// Notes how full the fullest ring is (0 to 1) at this time, on any clock. Returns whether to empty it now.
    pub fn note_fill(&mut self, now: Duration, fill: f64) -> bool {
        let elapsed = now.saturating_sub(self.polled_at).max(Duration::from_millis(1));
        // A ring that was emptied in between filled at least by its present contents.
        let grown = if fill >= self.fill { fill - self.fill } else { fill };
        self.per_second = (grown / elapsed.as_secs_f64()).max(self.per_second / 2.0);
        (self.polled_at, self.fill) = (now, fill);
        fill >= FILL_RATIO_MAX || (fill >= FILL_RATIO_MIN && self.time_to_full() < POLL_INTERVAL_MAX)
    }

    /// Notes that the rings were emptied.
    pub fn note_emptied(&mut self) {
        self.fill = 0.0;
    }

    /// Returns when to check again at the latest.
    pub fn poll_interval(&self) -> Duration {
        self.time_to_full().clamp(POLL_INTERVAL_MIN, POLL_INTERVAL_MAX)
    }

    /// Returns how long there is room.
    fn time_to_full(&self) -> Duration {
        let seconds =
            (FILL_RATIO_MAX - self.fill).max(0.0) / (RATE_GROWTH_MAX * self.per_second).max(f64::MIN_POSITIVE);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills at a rate (parts of a ring per second) for five seconds; returns how often it was polled and emptied per second, and
    /// how full it was at most, once its rate was known.
    fn simulate(per_second: f64) -> (u32, u32, f64) {
        let (mut pace, mut now, mut fill, mut fullest) = (PollPace::default(), Duration::ZERO, 0.0f64, 0.0f64);
        let (mut looks, mut readings) = (0, 0);
        while now < Duration::from_secs(5) {
            let rest = pace.poll_interval();
            now += rest;
            fill += per_second * rest.as_secs_f64();
            if looks > 0 {
                fullest = fullest.max(fill);
            }
            looks += 1;
            if pace.note_fill(now, fill) {
                readings += 1;
                fill = 0.0;
                pace.note_emptied();
            }
        }
        (looks / 5, readings / 5, fullest)
    }

    #[test]
    fn synced_inserts_wake_recorder_no_more_than_kernel_rings() {
        // 20,000 records/s of 96 bytes.
        let (looks, readings, fullest) = simulate(0.46);
        assert!(looks <= 50 && readings <= 1 && fullest <= FILL_RATIO_MAX + 0.01, "{looks} {readings} {fullest}");
    }

    #[test]
    fn short_selects_are_read_before_their_ring_is_full() {
        // Fills a ring in 15 ms.
        let (looks, readings, fullest) = simulate(66.0);
        assert!(looks >= 190 && readings >= 190 && fullest < 0.4, "{looks} {readings} {fullest}");
    }

    #[test]
    fn burst_after_idle_is_polled_within_normal_interval() {
        let mut pace = PollPace::default();
        assert!(!pace.note_fill(Duration::from_secs(1), 0.0));
        assert_eq!(pace.poll_interval(), POLL_INTERVAL_MAX);
        assert!(pace.note_fill(Duration::from_millis(1020), 0.4), "as much again would not fit");
        pace.note_emptied();
        assert!(pace.poll_interval() < POLL_INTERVAL_MAX);
    }
}
