//! Whether a process was disturbed while it was measured, according to the kernel's counts for other processes in that time.
//!
//! The gate checks the machine before a process begins; it cannot see what begins a second later, and the process's own times
//! cannot distinguish that from the measured effect. So the kernel's counters are read before and after each process. They do not
//! depend on its score: a process excluded by them is excluded whether it was fast or slow, in both arms of a comparison alike.
//!
//! Four things are judged, none of which the measured process can cause itself, however many threads and children it has and
//! however much work it causes in the kernel:
//!
//! - **others**: processor time of processes of other families, on average over the time, in processors;
//! - **steal**: time taken by the host for other guests, in the same unit;
//! - **queue**: the share of the time in which the command's first thread was ready to run and waited for a processor, minus all
//!   time in which its own family or the kernel could have occupied it: subtracting this upper bound of its own effect gives a
//!   lower bound of that of others;
//! - **frequency**: the maximum allowed frequency fell, or a processor was throttled for heat.
//!
//! Thresholds. The cost of a tenth of a processor is at most a tenth if the measured process fills all processors or shares the
//! one that the other uses, and next to nothing if one is free; an idle system uses a few hundredths. Time in the queue is lost
//! to the thread directly, so the limit there is a fiftieth, the smallest difference that a verdict may report; for steal as
//! well. A count below three ticks is ignored, and a process of less than ten ticks cannot be judged.

use crate::gate::{Mark, Marks, State};
use crate::process::ResourceUse;
use device::Activity;
use model::table::Replicate;

/// The mark that summarises the others.
pub const UNDISTURBED_MARK: &str = "undisturbed";
/// Processors that others may use on average.
pub const OTHERS_CPUS_MAX: f64 = 0.1;
/// Share of the time that a host may take, or that a thread may wait in the queue for others.
pub const LOST_SHARE_MAX: f64 = 0.02;
/// Counts below three of the kernel's ticks are ignored.
const DISTURBANCE_S_MIN: f64 = 0.03;
/// Shorter processes cannot be judged.
const PROCESS_S_MIN: f64 = 0.1;
/// How much lower a frequency may be than before: drivers round.
const FREQUENCY_DROP_MAX: f64 = 0.01;
/// Maximum share of disturbed processes that are excluded from an estimate: if most are disturbed, the rest is not representative.
pub const EXCLUDED_SHARE_MAX: f64 = 0.25;

/// Returns the marks of a process that lasted `wall_s`. `has_background`: something else of this run ran at the same
/// time.
pub fn judge(wall_s: f64, during: &Activity, own: &ResourceUse, has_background: bool) -> Marks {
    let mut marks = Marks::new();
    let mut wrong = Vec::new();
    let mut put = |name: &str, unit: &str, value: Result<f64, String>, most: f64, label: &str| {
        let short = (wall_s < PROCESS_S_MIN).then(|| format!("it took {:.0} ms, too short to measure", wall_s * 1e3));
        let mark = match short.map_or(value, Err) {
            Err(why) => Mark { state: State::Unavailable, value: None, unit: None, why: Some(why) },
            Ok(value) => {
                let high = value > most && value * wall_s > DISTURBANCE_S_MIN;
                if high {
                    wrong.push(format!("{label} {value:.2}"));
                }
                let state = if high { State::Failed } else { State::Passed };
                let why = high.then(|| format!("allowed: {most}"));
                Mark { state, value: Some(value), unit: Some(unit.into()), why }
            }
        };
        marks.insert(format!("during.{name}"), mark);
    };
    let share = |s: &Result<f64, String>| s.clone().map(|s| s / wall_s.max(1e-9));
    put("others", "CPUs", share(&during.others_s), OTHERS_CPUS_MAX, "other processes' CPUs");
    put("steal", "CPUs", share(&during.steal_s), LOST_SHARE_MAX, "steal time, CPUs");
    let queue = match own.scheduled {
        None => Err("not reported by the kernel".into()),
        Some(_) if has_background => Err("another process of this run ran at the same time".into()),
        Some(s) => {
            let (ran, waited) = (s.ran_ns as f64 / 1e9, s.waited_ns as f64 / 1e9);
            let by_family = (own.cpu_s - ran).max(0.0) + during.kernel_s;
            Ok((waited - by_family).max(0.0) / wall_s.max(1e-9))
        }
    };
    put("queue", "of the time", queue, LOST_SHARE_MAX, "run-queue delay, share of its time");
    let frequency = match (&during.frequency_mhz, during.throttled) {
        (Err(why), None) => Mark { state: State::Unavailable, value: None, unit: None, why: Some(why.clone()) },
        (frequency, throttled) => {
            let fell = frequency.as_ref().ok().filter(|(before, after)| *after < before * (1.0 - FREQUENCY_DROP_MAX));
            let why = match (fell, throttled) {
                (Some((before, _)), _) => Some(format!("at its start up to {before:.0} MHz")),
                (None, Some(n @ 1..)) => Some(format!("throttled {n} times")),
                _ => None,
            };
            let state = if why.is_some() { State::Failed } else { State::Passed };
            let value = frequency.as_ref().ok().map(|(_, after)| *after);
            wrong.extend(why.iter().map(|why| format!("CPUs {why}")));
            Mark { state, value, unit: value.map(|_| "MHz".into()), why }
        }
    };
    marks.insert("during.frequency".into(), frequency);
    if let Some(others) = marks.get_mut("during.others").filter(|m| during.inside && m.state == State::Passed) {
        others.state = State::Unavailable;
        others.why = Some("in a container, only its own processes are visible".into());
    }
    let judged = marks.values().any(|m| m.state != State::Unavailable);
    let state = match (judged, wrong.is_empty()) {
        (false, _) => State::Unavailable,
        (true, true) => State::Passed,
        (true, false) => State::Failed,
    };
    let why = (!wrong.is_empty()).then(|| wrong.join("; "));
    marks.insert(UNDISTURBED_MARK.into(), Mark { state, value: None, unit: None, why });
    marks
}

/// Whether a replicate was disturbed while it ran.
pub fn is_disturbed(replicate: &Replicate) -> bool {
    let marks = replicate.gates.as_ref().and_then(|text| serde_json::from_str::<Marks>(text).ok());
    marks.is_some_and(|marks| marks.get(UNDISTURBED_MARK).is_some_and(|mark| mark.state == State::Failed))
}

/// Whether so many of all processes are too many for an estimate without them.
pub fn too_many(disturbed: usize, all: usize) -> bool {
    disturbed as f64 > EXCLUDED_SHARE_MAX * all as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::SchedulerTimes;

    fn calm() -> Activity {
        Activity {
            others_s: Ok(0.02),
            inside: false,
            kernel_s: 0.05,
            steal_s: Ok(0.0),
            frequency_mhz: Err("not reported by the kernel".into()),
            throttled: None,
        }
    }

    fn resource_use(cpu_s: f64, ran_s: f64, waited_s: f64) -> ResourceUse {
        let ns = |s: f64| (s * 1e9) as u64;
        ResourceUse { cpu_s, scheduled: Some(SchedulerTimes { ran_ns: ns(ran_s), waited_ns: ns(waited_s) }) }
    }

    fn failed_marks(marks: &Marks) -> Vec<&str> {
        marks.iter().filter(|(_, m)| m.state == State::Failed).map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn only_other_processes_count_as_disturbance() {
        // Two seconds in which its four threads filled two processors, waited for each other, and caused work in the kernel.
        let busy = resource_use(4.0, 1.0, 1.0);
        assert_eq!(failed_marks(&judge(2.0, &Activity { kernel_s: 0.8, ..calm() }, &busy, false)), Vec::<&str>::new());
        // It waits for its disk: neither it nor any other process runs.
        assert!(failed_marks(&judge(2.0, &calm(), &resource_use(0.01, 0.01, 0.001), false)).is_empty());
        let loaded = Activity { others_s: Ok(1.0), ..calm() };
        let marks = judge(2.0, &loaded, &busy, false);
        assert_eq!(failed_marks(&marks), ["during.others", UNDISTURBED_MARK]);
        assert!(marks[UNDISTURBED_MARK].why.as_ref().unwrap().contains("other processes' CPUs 0.50"), "{marks:?}");
        let stolen = Activity { steal_s: Ok(0.2), ..calm() };
        assert_eq!(failed_marks(&judge(2.0, &stolen, &busy, false)), ["during.steal", UNDISTURBED_MARK]);
        // One thread, runnable half of the time without running, and no other thread of its own was running.
        assert_eq!(
            failed_marks(&judge(2.0, &calm(), &resource_use(1.0, 1.0, 0.9), false)),
            ["during.queue", UNDISTURBED_MARK]
        );
        assert!(
            failed_marks(&judge(2.0, &calm(), &resource_use(1.0, 1.0, 0.9), true)).is_empty(),
            "its background may have"
        );
        let hot = Activity { frequency_mhz: Ok((2000.0, 1500.0)), ..calm() };
        assert_eq!(failed_marks(&judge(2.0, &hot, &busy, false)), ["during.frequency", UNDISTURBED_MARK]);
        let hot = Activity { throttled: Some(3), ..calm() };
        assert_eq!(failed_marks(&judge(2.0, &hot, &busy, false)), ["during.frequency", UNDISTURBED_MARK]);
    }

    #[test]
    fn unknown_disturbance_is_unavailable_not_reported() {
        let short = judge(0.02, &Activity { others_s: Ok(0.02), ..calm() }, &resource_use(0.02, 0.02, 0.0), false);
        assert!(failed_marks(&short).is_empty() && short[UNDISTURBED_MARK].state == State::Unavailable, "{short:?}");
        // Two ticks are ignored.
        assert!(failed_marks(&judge(0.15, &calm(), &resource_use(0.1, 0.1, 0.0), false)).is_empty());
        let hidden = Activity { others_s: Err("hidden".into()), ..calm() };
        let marks = judge(1.0, &hidden, &ResourceUse { cpu_s: 1.0, scheduled: None }, false);
        assert_eq!(
            (marks["during.others"].state, marks["during.queue"].state),
            (State::Unavailable, State::Unavailable)
        );
        assert_eq!(marks[UNDISTURBED_MARK].state, State::Passed, "of what can be determined");
        let inside = judge(2.0, &Activity { inside: true, ..calm() }, &resource_use(1.0, 1.0, 0.0), false);
        assert!(inside["during.others"].state == State::Unavailable && inside["during.others"].value.is_some());
        let loaded = Activity { inside: true, others_s: Ok(1.0), ..calm() };
        assert_eq!(
            failed_marks(&judge(2.0, &loaded, &resource_use(1.0, 1.0, 0.0), false)),
            ["during.others", UNDISTURBED_MARK]
        );
    }

    #[test]
    fn at_most_a_quarter_of_the_replicates_is_excluded() {
        assert!(!too_many(0, 0) && !too_many(2, 8) && too_many(3, 8) && too_many(1, 3) && too_many(4, 4));
    }
}
