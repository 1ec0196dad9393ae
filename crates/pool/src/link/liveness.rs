//! Whether a node is there, and whether it makes progress: two questions, since silence is a failure and slowness is not.
//!
//! The model is a doctor on the telephone. As long as somebody speaks at the other end, however slowly, the patient lives;
//! only a silent line is an emergency. And if the voice repeats the same words for ten minutes, something is wrong too.
//!
//! A node reports at a fixed interval, whatever its medium does. So a connection over which nothing is received for
//! [`SILENCE_TIMEOUT`] is closed, even if nothing was requested. A report also says how much of what was sent has arrived: a path
//! that works in one direction only is silent, too. A node that has not been heard for its timeout is **away**. One that is
//! heard may take any time for a request, as long as its count of progress changes; if it does not change for [`STALL_TIMEOUT`]
//! while requests are outstanding, its medium has **stalled**.
//!
//! No clock except the times passed in.

use super::STALL_TIMEOUT;
use std::time::Duration;
use tokio::time::Instant;

/// A connection over which nothing is received for this long, not even a report, is closed, as is one over which nothing of
/// what was sent arrives; or after the node's timeout, if that is less.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest interval of a node's reports.
const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Reports within the time of a silence that counts as a failure: one may be late, or two.
const REPORTS_IN_SILENCE: u32 = 4;

/// Why a connection is unusable, although it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum LivenessError {
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
    let interval = REPORT_INTERVAL_MAX.min(SILENCE_TIMEOUT.min(timeout) / REPORTS_IN_SILENCE);
    interval.as_millis().max(1) as u32
}

/// What was received over a connection, and what of the bytes sent has arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    received_at: Instant,
    sent_bytes: u64,
    arrived_bytes: u64,
    /// When more of them had arrived, or nothing was on its way.
    arrived_at: Instant,
}

impl Path {
    /// A connection that has just been welcomed.
    pub fn new(now: Instant) -> Self {
        Self { received_at: now, sent_bytes: 0, arrived_bytes: 0, arrived_at: now }
    }

    /// Bytes were received.
    pub fn record_receive(&mut self, now: Instant) {
        self.received_at = now;
    }

    /// Bytes will be sent.
    pub fn record_send(&mut self, bytes: usize, now: Instant) {
        if self.sent_bytes == self.arrived_bytes {
            self.arrived_at = now;
        }
        self.sent_bytes += bytes as u64;
    }

    /// A request was answered, so at least that has arrived.
    pub fn record_answer(&mut self, now: Instant) {
        self.arrived_at = now;
    }

    /// The node reports how many bytes have arrived.
    pub fn record_arrival(&mut self, bytes: u64, now: Instant) {
        if bytes > self.arrived_bytes {
            (self.arrived_bytes, self.arrived_at) = (bytes.min(self.sent_bytes), now);
        }
    }

    /// Whether it has been silent for too long, in either direction.
    pub fn liveness_error(&self, timeout: Duration, now: Instant) -> Option<LivenessError> {
        let silence = SILENCE_TIMEOUT.min(timeout);
        if now.saturating_duration_since(self.received_at) > silence {
            return Some(LivenessError::Silence(silence));
        }
        let is_on_its_way = self.sent_bytes > self.arrived_bytes;
        (is_on_its_way && now.saturating_duration_since(self.arrived_at) > silence)
            .then_some(LivenessError::Unheard(silence))
    }
}

/// A node, over all its connections.
#[derive(Debug)]
pub(super) struct Liveness {
    timeout: Duration,
    /// When anything was last received from it, apart from a welcome: a node may welcome us, and fail each time.
    heard_at: Instant,
    /// When it last made progress, or had nothing to do, and its count of that.
    progressed_at: Instant,
    progress: u64,
    /// Whether there is no connection.
    is_cut_off: bool,
    is_stalled: bool,
}

impl Liveness {
    /// A node that counts as away after `timeout`.
    pub fn new(timeout: Duration, now: Instant) -> Self {
        Self { timeout, heard_at: now, progressed_at: now, progress: 0, is_cut_off: false, is_stalled: false }
    }

    /// Something was received from it.
    pub fn record_heard(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// It has answered a request, or begins with the first of several.
    pub fn record_progress(&mut self, now: Instant) {
        self.progressed_at = now;
    }

    /// Its count of progress, which a node that was restarted begins anew.
    pub fn update_progress(&mut self, progress: u64, now: Instant) {
        if std::mem::replace(&mut self.progress, progress) != progress {
            (self.progressed_at, self.is_stalled) = (now, false);
        }
    }

    /// It asks to wait for its welcome.
    pub fn record_wait(&mut self, progress: u64, now: Instant) {
        self.record_heard(now);
        self.update_progress(progress, now);
        self.is_stalled |= self.has_stalled(now);
    }

    /// Its connections are closed; `idle` if nothing was outstanding.
    pub fn record_cut(&mut self, idle: bool, now: Instant) {
        self.is_cut_off = true;
        if idle {
            self.progressed_at = now;
        }
        self.is_stalled |= self.has_stalled(now);
    }

    /// It has accepted us again.
    pub fn record_reopen(&mut self, now: Instant) {
        (self.is_cut_off, self.is_stalled, self.progressed_at) = (false, false, now);
    }

    /// The time without progress after which requests fail.
    pub fn stall_timeout(&self) -> Duration {
        STALL_TIMEOUT.max(self.timeout)
    }

    /// Whether it has made no progress for too long, if it has anything to do.
    pub fn has_stalled(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.progressed_at) > self.stall_timeout()
    }

    /// Whether it had stalled when it was last connected, and has not made progress since.
    pub fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Whether it has not been heard for so long that requests do not wait for it.
    pub fn is_away(&self, now: Instant) -> bool {
        self.is_cut_off && now.saturating_duration_since(self.heard_at) > self.timeout
    }

    /// When it counts as away if it is not heard meanwhile.
    pub fn away_at(&self) -> Instant {
        // One more than the permitted wait.
        self.heard_at + self.timeout + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(30);
    const ONE_SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn flush_of_minutes_is_no_failure_but_silence_is() {
        let mut now = Instant::now();
        let (mut path, mut node) = (Path::new(now), Liveness::new(TEST_TIMEOUT, now));
        node.record_progress(now);
        path.record_send(100, now);
        // It says that it flushes, and nothing more.
        for _ in 0..300 {
            now += ONE_SECOND;
            path.record_receive(now);
            path.record_arrival(100, now);
            node.record_heard(now);
            node.update_progress(0, now);
            assert_eq!(
                (path.liveness_error(TEST_TIMEOUT, now), node.has_stalled(now), node.is_away(now)),
                (None, false, false)
            );
        }
        now += SILENCE_TIMEOUT;
        assert_eq!(path.liveness_error(TEST_TIMEOUT, now), None);
        now += ONE_SECOND;
        assert_eq!(path.liveness_error(TEST_TIMEOUT, now), Some(LivenessError::Silence(SILENCE_TIMEOUT)));
        node.record_cut(false, now);
        assert!(!node.is_away(now) && now < node.away_at(), "it was heard 11 s ago");
        assert!(node.is_away(node.away_at()) && !node.is_stalled());
    }

    #[test]
    fn medium_without_progress_stalls_and_any_progress_is_enough() {
        let mut now = Instant::now();
        let mut node = Liveness::new(TEST_TIMEOUT, now);
        for progress in 1..20 {
            now += STALL_TIMEOUT;
            assert!(!node.has_stalled(now));
            node.update_progress(progress, now);
        }
        now += STALL_TIMEOUT + ONE_SECOND;
        assert!(node.has_stalled(now));
        node.record_cut(false, now);
        assert!(node.is_stalled());
        // It asks to wait for the same request.
        node.record_wait(19, now);
        assert!(node.is_stalled() && !node.is_away(now));
        node.record_wait(20, now);
        assert!(!node.is_stalled());
        // An idle node makes no progress either.
        now += STALL_TIMEOUT + ONE_SECOND;
        node.record_cut(true, now);
        assert!(!node.is_stalled());
    }

    #[test]
    fn path_that_works_in_one_direction_is_silent() {
        let mut now = Instant::now();
        let mut path = Path::new(now);
        path.record_send(10, now);
        for _ in 0..11 {
            now += ONE_SECOND;
            path.record_receive(now);
            path.record_arrival(4, now);
        }
        assert_eq!(path.liveness_error(TEST_TIMEOUT, now), None, "the first bytes arrived 10 s ago");
        now += ONE_SECOND;
        path.record_receive(now);
        assert_eq!(path.liveness_error(TEST_TIMEOUT, now), Some(LivenessError::Unheard(SILENCE_TIMEOUT)));
        path.record_arrival(10, now);
        assert_eq!(path.liveness_error(TEST_TIMEOUT, now), None);
        // A count of bytes that were never sent.
        path.record_arrival(1000, now);
        path.record_send(1, now);
        now += SILENCE_TIMEOUT + ONE_SECOND;
        path.record_receive(now);
        assert_eq!(path.liveness_error(TEST_TIMEOUT, now), Some(LivenessError::Unheard(SILENCE_TIMEOUT)));
    }

    #[test]
    fn node_that_welcomes_and_fails_each_time_is_away() {
        let begin = Instant::now();
        let (mut node, mut now) = (Liveness::new(TEST_TIMEOUT, begin), begin);
        while now < begin + TEST_TIMEOUT {
            assert!(!node.is_away(now));
            node.record_cut(false, now);
            now += ONE_SECOND;
            node.record_reopen(now);
        }
        now += ONE_SECOND;
        assert!(!node.is_away(now), "it is connected");
        node.record_cut(false, now);
        assert!(node.is_away(now));
    }

    #[test]
    fn several_reports_fit_into_the_silence_timeout() {
        for seconds in [1, 2, 10, 30, 3600] {
            let timeout = Duration::from_secs(seconds);
            let interval = Duration::from_millis(report_ms(timeout).into());
            assert!(
                interval * 4 <= SILENCE_TIMEOUT.min(timeout) && interval <= ONE_SECOND && interval >= ONE_SECOND / 4,
                "{interval:?}"
            );
        }
    }
}
