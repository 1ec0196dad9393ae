//! What a loss may have hidden. Its record and its row name the probe that was not run, or the event that could not be read, as a text, in
//! archives of all versions; here alone a decision is made of that text.

use crate::LossSource;
use crate::event::Loss;

/// The scheduler's events, by the names of the probes and of the kernel's own events: a task stops to run, and is woken.
const SCHEDULING_EVENTS: [&str; 3] = ["sched_switch", "sched_waking", "sched_wakeup"];

/// The records that a loss may concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossScope {
    /// Any records.
    Any,
    /// Only those of when threads slept, were woken and ran.
    Scheduling,
}

impl LossScope {
    /// Returns what a loss concerns.
    pub fn of(loss: &Loss) -> Self {
        let scheduling = SCHEDULING_EVENTS.contains(&loss.text.as_str());
        match LossSource::from_number(loss.source) {
            // Such a loss concerns the events of its probe alone.
            LossSource::NotRun | LossSource::Recursion | LossSource::Unreadable if scheduling => Self::Scheduling,
            _ => Self::Any,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sleeps_and_wake_ups_are_scheduling() {
        let scope = |source: LossSource, text: &str| {
            LossScope::of(&Loss { source: source.number(), text: text.into(), ..Loss::default() })
        };
        for name in SCHEDULING_EVENTS {
            assert_eq!(scope(LossSource::NotRun, name), LossScope::Scheduling, "{name}");
            assert_eq!(scope(LossSource::Ring, name), LossScope::Any, "a ring has records of all probes");
        }
        // Without the end or the name of a process, its number may be another's.
        for name in ["sched_process_exit", "sched_process_exec", "sched_process_fork", "rq_done", ""] {
            assert_eq!(scope(LossSource::Unreadable, name), LossScope::Any, "{name}");
        }
    }
}
