//! Perfetto's compact form of switches and wake-ups (`FtraceEventBundle.CompactSched`): a list for each of their
//! fields.
//!
//! It omits the thread that a switch takes the CPU from, and the waker: that is the thread that the last switch of that CPU gave it to,
//! which is only known once all bundles are read ([`UNKNOWN_TID`], `super::fill_running_threads`).

use super::known::each_number;
use crate::ftrace::decoder::{DecodedEvent, Kind};
use crate::perfetto::wire::Fields;

/// The thread of an event that does not contain it.
pub const UNKNOWN_TID: u32 = u32::MAX;

const INTERN_TABLE: u32 = 5;
const SWITCH_TIME: u32 = 1;
const SWITCH_STATE: u32 = 2;
const SWITCH_NEXT: u32 = 3;
const SWITCH_NAME: u32 = 6;
const WAKING_TIME: u32 = 7;
const WAKING_PID: u32 = 8;
const WAKING_NAME: u32 = 11;

/// Passes on the events of a message; `None` if it is broken, in which case nothing is passed on.
pub fn read_events(cpu: u16, message: &[u8], mut put: impl FnMut(DecodedEvent)) -> Option<()> {
    let mut names: Vec<String> = Vec::new();
    let mut lists: [Vec<u64>; 12] = Default::default();
    let mut fields = Fields::new(message);
    for (field, value) in fields.by_ref() {
        if field == INTERN_TABLE {
            names.push(value.text());
        } else if let Some(list) = lists.get_mut(field as usize) {
            each_number(value, |n| list.push(n));
        }
    }
    let list = |field: u32| &lists[field as usize];
    let even = |time: u32, others: &[u32]| others.iter().all(|other| list(*other).len() == list(time).len());
    let sound = even(SWITCH_TIME, &[SWITCH_STATE, SWITCH_NEXT]) && even(WAKING_TIME, &[WAKING_PID]);
    if fields.failed() || !sound {
        return None;
    }
    let name = |field: u32, i: usize| {
        let place = list(field).get(i).and_then(|at| usize::try_from(*at).ok());
        place.and_then(|at| names.get(at)).cloned().unwrap_or_default()
    };
    for (kind, time, told, text) in [
        (Kind::Switch, SWITCH_TIME, [SWITCH_STATE, SWITCH_NEXT], SWITCH_NAME),
        (Kind::Waking, WAKING_TIME, [WAKING_PID, WAKING_PID], WAKING_NAME),
    ] {
        let mut now = 0_u64;
        for (i, delta) in list(time).iter().enumerate() {
            now = now.wrapping_add(*delta);
            let mut seen = DecodedEvent::new(kind, now, cpu, UNKNOWN_TID);
            if kind == Kind::Switch {
                seen.set("prev_state", list(told[0])[i]);
                seen.set("next_pid", list(told[1])[i]);
            } else {
                seen.set("pid", list(told[0])[i]);
            }
            seen.text = name(text, i);
            put(seen);
        }
    }
    Some(())
}
