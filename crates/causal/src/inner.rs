//! Marks of programs that run in a PID namespace.
//!
//! A program marks its spans with the process and thread numbers that it sees, in a container those of its PID namespace;
//! all other records have those of the initial namespace. The kernel side records both numbers of each task that is created
//! in a namespace, so the marks are renumbered before they are linked.
//!
//! *Uncertainty*: two containers in one recording use the same small numbers. The task created last before the mark began
//! is taken; marks do not name their container.

use model::event::task_what;
use model::{Event, Record};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of tasks remembered; a number is reused only after thousands.
const TASKS_MAX: usize = 1 << 18;

/// A process and one of its threads.
type Numbers = (u32, u32);

/// The tasks of namespaces that appear in a log.
#[derive(Debug, Default)]
pub struct InnerTasks {
    /// By the numbers that the program sees: creation time, and the numbers outside.
    known: BTreeMap<Numbers, Vec<(u64, Numbers)>>,
    count: usize,
    /// Recorded processes by their numbers in the initial namespace.
    outside: BTreeSet<u32>,
}

impl InnerTasks {
    /// Records an event of the log.
    pub fn learn(&mut self, event: &Event) {
        match &event.record {
            Record::InnerTask(r) if self.count < TASKS_MAX => {
                self.count += 1;
                let same = self.known.entry((r.inner_tgid, r.inner_tid)).or_default();
                same.push((event.header.time_ns, (r.tgid, r.tid)));
            }
            Record::Task(r) if r.what < task_what::ENDED && self.outside.len() < TASKS_MAX => {
                self.outside.insert(event.header.tgid);
            }
            _ => {}
        }
    }

    /// Renumbers a mark, once the whole log has been read. Other events stay as they are.
    pub fn renumber(&self, mut event: Event) -> Event {
        let Record::Mark(mark) = &event.record else { return event };
        // A recorded process with this number: the mark is its own.
        if self.outside.contains(&event.header.tgid) {
            return event;
        }
        let Some(same) = self.known.get(&(event.header.tgid, event.header.tid)) else { return event };
        let before = same.iter().filter(|(since, ..)| *since <= mark.start_ns).max_by_key(|(since, ..)| *since);
        if let Some(&(_, (tgid, tid))) = before {
            (event.header.tgid, event.header.tid) = (tgid, tid);
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> Event {
        Event::parse(line).unwrap()
    }

    #[test]
    fn a_mark_belongs_to_the_latest_container() {
        let mut tasks = InnerTasks::default();
        for line in [
            "@10 70/70 inner_task inner_tgid=1 inner_tid=1 tgid=500 tid=500",
            "@11 500/500 inner_task inner_tgid=1 inner_tid=2 tgid=500 tid=501",
            "@90 70/70 inner_task inner_tgid=1 inner_tid=1 tgid=600 tid=600",
            "@91 70/70 inner_task inner_tgid=7 inner_tid=7 tgid=601 tid=601",
            "@5 7/7 task what=1 text=a",
        ] {
            tasks.learn(&event(line));
        }
        let who = |line: &str| {
            let h = tasks.renumber(event(line)).header;
            (h.tgid, h.tid)
        };
        assert_eq!(who("@80 1/1 mark start_ns=50 text=a"), (500, 500));
        assert_eq!(who("@80 1/2 mark start_ns=50 text=a"), (500, 501));
        assert_eq!(who("@99 1/1 mark start_ns=95 text=a"), (600, 600));
        assert_eq!(who("@99 1/1 mark start_ns=5 text=a"), (1, 1));
        assert_eq!(who("@99 7/7 mark start_ns=95 text=a"), (7, 7));
        assert_eq!(who("@99 8/8 mark start_ns=95 text=a"), (8, 8));
    }
}
