//! Whether a node is there, and whether it makes progress: two questions, since silence is a failure and slowness is not.
//!
//! The model is a doctor on the telephone. As long as somebody speaks at the other end, however slowly, the patient lives;
//! only a silent line is an emergency. And if the voice repeats the same words for ten minutes, something is wrong too.
//!
//! A node reports at a fixed interval, whatever its medium does. So a connection over which nothing is received for
//! [`SILENCE`] is closed, even if nothing was requested. A report also says how much of what was sent has arrived: a path
//! that works in one direction only is silent, too. A node that has not been heard for its timeout is **away**. One that is
//! heard may take any time for a request, as long as its count of progress changes; if it does not change for [`STALLED`]
//! while requests are outstanding, its medium has **stalled**.
//!
//! No clock except the times passed in.

use super::STALLED;
use std::time::Duration;
use tokio::time::Instant;

/// A connection over which nothing is received for this long, not even a report, is closed, as is one over which nothing of
/// what was sent arrives; or after the node's timeout, if that is less.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// The longest interval of a node's reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Reports within the time of a silence that counts as a failure: one may be late, or two.
const REPORTS_IN_SILENCE: u32 = 4;

/// Why a connection is unusable, although it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Tardy {
    #[error("no data received for {} s", .0.as_secs_f64())]
    Silence(Duration),
    #[error("nothing that was sent has arrived for {} s", .0.as_secs_f64())]
    Unheard(Duration),
    #[error("its medium has made no progress for {} s", .0.as_secs_f64())]
    Stalled(Duration),
}

/// The interval at which a node has to report, in milliseconds, if it counts as away after `timeout`. Its connections are
/// checked as often.
pub(super) fn report_ms(timeout: Duration) -> u32 {
    let interval = REPORT_INTERVAL.min(SILENCE.min(timeout) / REPORTS_IN_SILENCE);
    interval.as_millis().max(1) as u32
}

/// What was received over a connection, and what of the bytes sent has arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    received: Instant,
    sent_bytes: u64,
    arrived_bytes: u64,
    /// When more of them had arrived, or nothing was on its way.
    arrived: Instant,
}

impl Path {
    /// A connection that has just been welcomed.
    pub fn new(now: Instant) -> Self {
        Self { received: now, sent_bytes: 0, arrived_bytes: 0, arrived: now }
    }

    /// Bytes were received.
    pub fn received(&mut self, now: Instant) {
        self.received = now;
    }

    /// Bytes will be sent.
    pub fn sends(&mut self, bytes: usize, now: Instant) {
        if self.sent_bytes == self.arrived_bytes {
            self.arrived = now;
        }
        self.sent_bytes += bytes as u64;
    }

    /// A request was answered, so at least that has arrived.
    pub fn answered(&mut self, now: Instant) {
        self.arrived = now;
    }

    /// The node reports how many bytes have arrived.
    pub fn arrived(&mut self, bytes: u64, now: Instant) {
        if bytes > self.arrived_bytes {
            (self.arrived_bytes, self.arrived) = (bytes.min(self.sent_bytes), now);
        }
    }

    /// Whether it has been silent for too long, in either direction.
    pub fn tardy(&self, timeout: Duration, now: Instant) -> Option<Tardy> {
        let silence = SILENCE.min(timeout);
        if now.saturating_duration_since(self.received) > silence {
            return Some(Tardy::Silence(silence));
        }
        let is_on_its_way = self.sent_bytes > self.arrived_bytes;
        (is_on_its_way && now.saturating_duration_since(self.arrived) > silence).then_some(Tardy::Unheard(silence))
    }
}

/// A node, over all its connections.
#[derive(Debug)]
pub(super) struct Liveness {
    timeout: Duration,
    /// When anything was last received from it, apart from a welcome: a node may welcome us, and fail each time.
    heard: Instant,
    /// When it last made progress, or had nothing to do, and its count of that.
    progressed: Instant,
    progress: u64,
    /// Whether there is no connection.
    cut_off: bool,
    stalled: bool,
}

impl Liveness {
    /// A node that counts as away after `timeout`.
    pub fn new(timeout: Duration, now: Instant) -> Self {
        Self { timeout, heard: now, progressed: now, progress: 0, cut_off: false, stalled: false }
    }

    /// Something was received from it.
    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// It has answered a request, or begins with the first of several.
    pub fn progressed(&mut self, now: Instant) {
        self.progressed = now;
    }

    /// Its count of progress, which a node that was restarted begins anew.
    pub fn counts(&mut self, progress: u64, now: Instant) {
        if std::mem::replace(&mut self.progress, progress) != progress {
            (self.progressed, self.stalled) = (now, false);
        }
    }

    /// It asks to wait for its welcome.
    pub fn waits(&mut self, progress: u64, now: Instant) {
        self.heard(now);
        self.counts(progress, now);
        self.stalled |= self.has_stalled(now);
    }

    /// Its connections are closed; `idle` if nothing was outstanding.
    pub fn cut(&mut self, idle: bool, now: Instant) {
        self.cut_off = true;
        if idle {
            self.progressed = now;
        }
        self.stalled |= self.has_stalled(now);
    }

    /// It has accepted us again.
    pub fn reopened(&mut self, now: Instant) {
        (self.cut_off, self.stalled, self.progressed) = (false, false, now);
    }

    /// The time without progress after which requests fail.
    pub fn patience(&self) -> Duration {
        STALLED.max(self.timeout)
    }

    /// Whether it has made no progress for too long, if it has anything to do.
    pub fn has_stalled(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.progressed) > self.patience()
    }

    /// Whether it had stalled when it was last connected, and has not made progress since.
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Whether it has not been heard for so long that requests do not wait for it.
    pub fn is_away(&self, now: Instant) -> bool {
        self.cut_off && now.saturating_duration_since(self.heard) > self.timeout
    }

    /// When it counts as away if it is not heard meanwhile.
    pub fn away_at(&self) -> Instant {
        // One more than the permitted wait.
        self.heard + self.timeout + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn flush_of_minutes_is_no_failure_and_silence_is() {
        let mut now = Instant::now();
        let (mut path, mut node) = (Path::new(now), Liveness::new(TIMEOUT, now));
        node.progressed(now);
        path.sends(100, now);
        // It says that it flushes, and nothing more.
        for _ in 0..300 {
            now += SECOND;
            path.received(now);
            path.arrived(100, now);
            node.heard(now);
            node.counts(0, now);
            assert_eq!((path.tardy(TIMEOUT, now), node.has_stalled(now), node.is_away(now)), (None, false, false));
        }
        now += SILENCE;
        assert_eq!(path.tardy(TIMEOUT, now), None);
        now += SECOND;
        assert_eq!(path.tardy(TIMEOUT, now), Some(Tardy::Silence(SILENCE)));
        node.cut(false, now);
        assert!(!node.is_away(now) && now < node.away_at(), "it was heard 11 s ago");
        assert!(node.is_away(node.away_at()) && !node.is_stalled());
    }

    #[test]
    fn medium_without_progress_stalls_and_any_progress_is_enough() {
        let mut now = Instant::now();
        let mut node = Liveness::new(TIMEOUT, now);
        for progress in 1..20 {
            now += STALLED;
            assert!(!node.has_stalled(now));
            node.counts(progress, now);
        }
        now += STALLED + SECOND;
        assert!(node.has_stalled(now));
        node.cut(false, now);
        assert!(node.is_stalled());
        // It asks to wait for the same request.
        node.waits(19, now);
        assert!(node.is_stalled() && !node.is_away(now));
        node.waits(20, now);
        assert!(!node.is_stalled());
        // An idle node makes no progress either.
        now += STALLED + SECOND;
        node.cut(true, now);
        assert!(!node.is_stalled());
    }

    #[test]
    fn path_in_one_direction_is_silent() {
        let mut now = Instant::now();
        let mut path = Path::new(now);
        path.sends(10, now);
        for _ in 0..11 {
            now += SECOND;
            path.received(now);
            path.arrived(4, now);
        }
        assert_eq!(path.tardy(TIMEOUT, now), None, "the first bytes arrived 10 s ago");
        now += SECOND;
        path.received(now);
        assert_eq!(path.tardy(TIMEOUT, now), Some(Tardy::Unheard(SILENCE)));
        path.arrived(10, now);
        assert_eq!(path.tardy(TIMEOUT, now), None);
        // A count of bytes that were never sent.
        path.arrived(1000, now);
        path.sends(1, now);
        now += SILENCE + SECOND;
        path.received(now);
        assert_eq!(path.tardy(TIMEOUT, now), Some(Tardy::Unheard(SILENCE)));
    }

    #[test]
    fn node_that_welcomes_and_fails_each_time_is_away() {
        let begin = Instant::now();
        let (mut node, mut now) = (Liveness::new(TIMEOUT, begin), begin);
        while now < begin + TIMEOUT {
            assert!(!node.is_away(now));
            node.cut(false, now);
            now += SECOND;
            node.reopened(now);
        }
        now += SECOND;
        assert!(!node.is_away(now), "it is connected");
        node.cut(false, now);
        assert!(node.is_away(now));
    }

    #[test]
    fn several_reports_fit_into_silence() {
        for seconds in [1, 2, 10, 30, 3600] {
            let timeout = Duration::from_secs(seconds);
            let interval = Duration::from_millis(report_ms(timeout).into());
            assert!(
                interval * 4 <= SILENCE.min(timeout) && interval <= SECOND && interval >= SECOND / 4,
                "{interval:?}"
            );
        }
    }
}
