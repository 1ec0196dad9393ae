//! When a thread that left the CPU within a call was woken.

mod support;

use formats::ftrace::calls::Machine;
use model::Record;

const SWITCH_OUT: &str = "sched_switch: prev_comm=dd prev_pid=10 prev_prio=120 prev_state=D ==> next_comm=swapper/0 next_pid=0 next_prio=120";
const SWITCH_IN: &str = "sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=dd next_pid=10 next_prio=120";
const WAKING_EVENT: &str = "sched_waking: comm=dd pid=10 prio=120 target_cpu=000";

/// When the thread was woken, in us, by what happened within an fsync at which time (in us).
fn wake_times_us(events: &[(u64, &str)]) -> Vec<u64> {
    let mut trace = String::from(" dd-10 [000] ..... 1.000000: sys_enter: NR 74 (3, 0, 0, 0, 0, 0)\n");
    for (at, event) in events {
        let task = if *event == SWITCH_OUT { "dd-10" } else { "<idle>-0" };
        trace.push_str(&format!(" {task} [000] d..2. 1.{at:06}: {event}\n"));
    }
    trace.push_str(" dd-10 [000] ..... 1.900000: sys_exit: NR 74 = 0\n");
    let all = support::events(&trace, Machine::X86_64);
    let wake = |record: &Record| match record {
        Record::OffCpu(r) => Some(r.wake_ns.saturating_sub(1_000_000_000) / 1000),
        _ => None,
    };
    all.iter().filter_map(|event| wake(&event.record)).collect()
}

#[test]
fn a_waking_before_the_switch_ends_the_sleep_at_once() {
    assert_eq!(wake_times_us(&[(100, SWITCH_OUT), (500, WAKING_EVENT), (600, SWITCH_IN)]), [500]);
    // On another CPU, while it was leaving this one.
    assert_eq!(wake_times_us(&[(90, WAKING_EVENT), (100, SWITCH_OUT), (600, SWITCH_IN)]), [100]);
    // That one ended an earlier sleep before it began.
    assert_eq!(wake_times_us(&[(90, WAKING_EVENT), (100, SWITCH_OUT), (500, WAKING_EVENT), (600, SWITCH_IN)]), [500]);
    assert_eq!(wake_times_us(&[(90, WAKING_EVENT), (2100, SWITCH_OUT), (2600, SWITCH_IN)]), [0], "it was not seen");
}

/// Before Linux 4.3 (commit fbd705a0c618) there was no sched_waking.
#[test]
fn a_wakeup_ends_the_sleep_if_no_waking_was_recorded() {
    const WAKEUP_EVENT: &str = "sched_wakeup: comm=dd pid=10 prio=120 success=1 target_cpu=000";
    assert_eq!(wake_times_us(&[(100, SWITCH_OUT), (510, WAKEUP_EVENT), (600, SWITCH_IN)]), [510]);
    assert_eq!(wake_times_us(&[(100, SWITCH_OUT), (500, WAKING_EVENT), (510, WAKEUP_EVENT), (600, SWITCH_IN)]), [500]);
    assert_eq!(wake_times_us(&[(90, WAKEUP_EVENT), (100, SWITCH_OUT), (600, SWITCH_IN)]), [100]);
}
