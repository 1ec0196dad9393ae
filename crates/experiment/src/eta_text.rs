//! Progress of a run, in words; and when to print a line of it where no bar can be drawn.

use model::text::rough_duration;
use std::time::Duration;

/// How often a line is printed where no bar can be drawn.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// When a line was last printed, and how much was done then.
#[derive(Debug, Default)]
pub struct LineTimer {
    last: Option<Duration>,
    done: u64,
}

impl LineTimer {
    /// Whether a line is due now: at a design's start, and at intervals.
    pub fn due(&mut self, now: Duration, done: u64) -> bool {
        let begins = done < self.done;
        self.done = done;
        let due = begins || self.last.is_none_or(|last| now.saturating_sub(last) >= LINE_INTERVAL);
        if due {
            self.last = Some(now);
        }
        due
    }
}

/// Formats the time left, and the finishing time.
pub fn time_left((least, most): (Duration, Duration)) -> String {
    let end = clock_time_after(most).map_or(String::new(), |time| format!(", until about {time}"));
    let or_before = if least == most || end.is_empty() { "" } else { " or before" };
    format!(", {} left{end}{or_before}", format_range(least, most))
}

/// Formats a range of times.
fn format_range(least: Duration, most: Duration) -> String {
    match (rough_duration(least.as_secs()), rough_duration(most.as_secs())) {
        (a, b) if a == b => a,
        (_, b) if least.is_zero() => format!("up to {b}"),
        (a, b) => format!("{a} to {b}"),
    }
}

/// Returns the local hour and minute after `left`.
fn clock_time_after(left: Duration) -> Option<String> {
    let then = std::time::SystemTime::now().checked_add(left)?.duration_since(std::time::UNIX_EPOCH).ok()?;
    // The integer type of the C library; musl's is about to change.
    let seconds = then.as_secs().try_into().ok()?;
    // SAFETY: a tm may be all zeroes.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values of ours.
    let filled = unsafe { libc::localtime_r(&raw const seconds, &raw mut parts) };
    (!filled.is_null()).then(|| format!("{:02}:{:02}", parts.tm_hour, parts.tm_min))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn bounded_time_is_printed_as_range() {
        assert_eq!(format_range(s(20), s(600)), "20 s to 10 min");
        assert_eq!(format_range(s(0), s(90)), "up to 90 s");
        assert_eq!(format_range(s(30), s(30)), "30 s");
    }

    #[test]
    fn progress_without_terminal_is_printed_every_ten_seconds() {
        let mut lines = LineTimer::default();
        // The first process waits for the gate, then one process ends per second.
        assert_eq!((0..5).filter(|t| lines.due(s(*t), 0)).collect::<Vec<_>>(), [0]);
        assert_eq!((5..32).filter(|t| lines.due(s(*t), *t)).collect::<Vec<_>>(), [10, 20, 30]);
        assert!(lines.due(s(33), 0), "the next design begins");
        assert!(!lines.due(s(34), 0), "and waits for the machine");
    }

    /// The time in addition to the blocks cannot be predicted.
    #[test]
    fn finishing_time_is_approximate_or_upper_bound() {
        for (least, most) in [(s(20), s(600)), (s(0), s(90)), (s(30), s(30))] {
            let status_line = time_left((least, most));
            assert!(
                status_line.contains("left, until about ")
                    && !status_line.contains("at the latest")
                    && !status_line.contains("at most"),
                "{status_line}"
            );
            assert_eq!(status_line.ends_with(" or before"), least != most, "{status_line}");
        }
    }
}
