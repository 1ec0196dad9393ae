//! Sorts events into the order in which things began.
//!
//! CPUs deliver at different times, and the record of an interval is written when the interval ends but matters from its
//! start (a write dirties its page before the bio that carries the page, although its record may come later). So events are
//! held for the `horizon`, in event time: an event is handed on once an event that is newer by the horizon has arrived.
//!
//! *Uncertainty*: a call that lasts longer than the horizon arrives after events that it preceded. It is handed on at once,
//! late; the linker knows such calls beforehand by the identity that bios carry and by `sync_begin`.

use crate::patience::PatienceQueue;
use model::event::ANY_CPU;
use model::{Event, Record};

/// An event's sort key: when it began; where it belongs among those that began at that time; then its CPU's own order, then its order of
/// arrival.
type SortKey = (u64, u64, u64, u64);

/// Returns the key of an event with this order of arrival.
///
/// Clocks may be coarse (a text of ftrace has us), so that much begins at the same time: first marks and losses, which may be around
/// anything, then what has no duration, then intervals; the longer ones first, and a call before the sleep in it.
fn sort_key(event: &Event, arrival: u64) -> SortKey {
    const ASLEEP_BIT: u64 = 1 << 63;
    let (start_ns, end_ns) = (order_time(event), event.header.time_ns);
    let cpu_seq = u64::from(event.header.cpu) << 32 | u64::from(event.header.seq);
    match &event.record {
        Record::Mark(_) | Record::Loss(_) => (start_ns, 0, u64::MAX - end_ns, arrival),
        _ if start_ns == end_ns => (start_ns, 1, cpu_seq, arrival),
        Record::OffCpu(_) => (start_ns, u64::MAX - end_ns, cpu_seq | ASLEEP_BIT, arrival),
        _ => (start_ns, u64::MAX - end_ns, cpu_seq, arrival),
    }
}

/// The events that wait for their turn.
pub(crate) struct ReorderBuffer {
    horizon_ns: u64,
    newest_ns: u64,
    arrivals: u64,
    waiting: PatienceQueue<SortKey, Event>,
}

/// Returns the time by which an event is ordered.
pub(crate) fn order_time(event: &Event) -> u64 {
    match &event.record {
        // A loss must be known before the links inside its interval are made.
        Record::Loss(x) => x.start_ns.min(event.header.time_ns),
        _ => event.start_ns().min(event.header.time_ns),
    }
}

impl ReorderBuffer {
    pub(crate) fn new(horizon_ns: u64) -> Self {
        Self { horizon_ns, newest_ns: 0, arrivals: 0, waiting: PatienceQueue::new() }
    }

    /// Adds an event.
    pub(crate) fn push(&mut self, event: Event) {
        // Marks are read from the program's memory and losses from counters, separately from the log, and may all be pushed first. What
        // the recorder adds (names, stacks) may come before older records of the kernel's rings.
        let separate = matches!(event.record, Record::Mark(_) | Record::Loss(_)) || event.header.cpu == ANY_CPU;
        if !separate {
            self.newest_ns = self.newest_ns.max(event.header.time_ns);
        }
        self.waiting.push(sort_key(&event, self.arrivals), event);
        self.arrivals += 1;
    }

    /// The next event whose turn has come; with `all`, the next one in any case.
    pub(crate) fn pop(&mut self, all: bool) -> Option<Event> {
        let (horizon_ns, newest_ns) = (self.horizon_ns, self.newest_ns);
        self.waiting.pop_if(|(time_ns, ..)| all || time_ns.saturating_add(horizon_ns) <= newest_ns)
    }

    /// When the newest event was recorded, except marks, losses and what the recorder adds.
    pub(crate) fn newest_ns(&self) -> u64 {
        self.newest_ns
    }

    /// Number of waiting events.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> Event {
        Event::parse(line).unwrap()
    }

    #[test]
    fn an_interval_is_ordered_by_its_start_after_the_horizon() {
        let mut order = ReorderBuffer::new(100);
        order.push(event("@50 7 bio_queue bio=1"));
        order.push(event("@60 7 syscall start_ns=40"));
        assert_eq!(order.pop(false), None);
        order.push(event("@150 7 bio_done bio=1"));
        assert_eq!(order.pop(false).map(|e| order_time(&e)), Some(40));
        assert_eq!(order.pop(false).map(|e| order_time(&e)), Some(50));
        assert_eq!(order.pop(false), None);
        assert_eq!(order.pop(true).map(|e| order_time(&e)), Some(150));
        assert_eq!(order.len(), 0);
    }

    #[test]
    fn a_begin_precedes_its_interval_that_ended_on_another_cpu() {
        let mut order = ReorderBuffer::new(100);
        let at = |line: &str, cpu: u16| {
            let mut event = event(line);
            event.header.cpu = cpu;
            event
        };
        order.push(at("@50 7 syscall start_ns=40", 0));
        order.push(at("@40 7 file ino=1 text=/d", 1));
        assert!(order.pop(true).is_some_and(|e| matches!(e.record, Record::File(_))));
        assert!(order.pop(true).is_some_and(|e| matches!(e.record, Record::Syscall(_))));
    }

    #[test]
    fn what_begins_at_the_same_time_is_sorted_from_outside() {
        let mut order = ReorderBuffer::new(100);
        let lines = [
            "@45 7 off_cpu start_ns=40",
            "@40 7 op_begin key=1",
            "@45 7 syscall start_ns=40",
            "@50 7 mark start_ns=40 text=inner",
            "@90 7 mark start_ns=40 text=outer",
        ];
        lines.iter().for_each(|line| order.push(event(line)));
        let sorted: Vec<String> = std::iter::from_fn(|| order.pop(true)).map(|e| e.to_text()).collect();
        let place = |word: &str| sorted.iter().position(|text| text.contains(word));
        let places = ["outer", "inner", "op_begin", "syscall", "off_cpu"].map(place);
        assert_eq!(places, [0, 1, 2, 3, 4].map(Some), "{sorted:?}");
    }

    #[test]
    fn events_of_the_recorder_release_none_of_the_kernel() {
        let mut order = ReorderBuffer::new(100);
        let mut stack = event("@900 7 stack start_ns=800");
        stack.header.cpu = ANY_CPU;
        order.push(event("@50 7 bio_done bio=1"));
        order.push(stack);
        assert_eq!(order.pop(false), None, "one that is older may come");
        order.push(event("@40 7 bio_done bio=2"));
        order.push(event("@150 7 bio_done bio=3"));
        assert_eq!(order.pop(false).map(|e| order_time(&e)), Some(40));
    }

    #[test]
    fn early_marks_do_not_delay_other_events() {
        let mut order = ReorderBuffer::new(100);
        order.push(event("@900 7 mark start_ns=800 text=a"));
        order.push(event("@10 7 bio_done bio=1"));
        order.push(event("@5 7 bio_done bio=2"));
        assert_eq!(order.pop(false), None);
        assert_eq!(order.pop(true).map(|e| order_time(&e)), Some(5));
    }
}
