//! What was lost, and when: turns the kernel side's growing counters into loss records.

use crate::kernel::clock::boot_ns;
use crate::price::program_info;
use crate::tasks::NO_CPU;
use model::event::{Header, Loss};
use model::{Event, LossSource, Record};
use std::collections::BTreeMap;
use std::os::fd::RawFd;

/// The kernel side's counters for a CPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuState {
    /// Records dropped because a ring was full.
    pub lost: u64,
    /// Parts of its ring that could not be read; each was at least one record.
    pub unreadable: u64,
    /// Number of times a table was full.
    pub table_full: u64,
    /// Threads that ran although no switch to them was seen.
    pub switches_unseen: u64,
    /// Sleeps that ended although no wake-up was seen.
    pub wakings_unseen: u64,
}

/// Compares the counters with their previous values.
pub struct LossWatch {
    last: Vec<CpuState>,
    last_ns: u64,
    /// By descriptor: two programs may have the same name.
    recursion: BTreeMap<RawFd, u64>,
    recursion_ns: u64,
    lost: u64,
}

impl LossWatch {
    pub fn new() -> Self {
        let now = boot_ns();
        Self { last: Vec::new(), last_ns: now, recursion: BTreeMap::new(), recursion_ns: now, lost: 0 }
    }

    /// Returns the number of records lost so far, for any reason.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the losses since the last call, from the counters of every CPU.
    pub fn losses_since_last(&mut self, values: &[CpuState]) -> Vec<Event> {
        let start = self.last_ns;
        let now = boot_ns();
        self.last.resize(values.len(), CpuState::default());
        let mut all = Vec::new();
        for (cpu, (new, old)) in values.iter().zip(&mut self.last).enumerate() {
            let cpu = cpu as u16;
            let found = [
                (new.lost - old.lost, cpu, LossSource::Ring, ""),
                (new.unreadable - old.unreadable, cpu, LossSource::Unread, ""),
                (new.table_full - old.table_full, cpu, LossSource::TableFull, ""),
                // Where they were missed is not known.
                (new.switches_unseen - old.switches_unseen, NO_CPU, LossSource::NotRun, "sched_switch"),
                (new.wakings_unseen - old.wakings_unseen, NO_CPU, LossSource::NotRun, "sched_waking"),
            ];
            for (count, cpu, source, program) in found.into_iter().filter(|(count, ..)| *count > 0) {
                // A program that was not run made no record.
                if source != LossSource::NotRun {
                    self.lost += count;
                }
                let mut event = loss_event(start, now, cpu, count, source, program);
                if let Record::Loss(loss) = &mut event.record {
                    loss.bound = (source == LossSource::Unread).into();
                }
                all.push(event);
            }
            *old = *new;
        }
        self.last_ns = now;
        all
    }

    /// Returns the losses of rings with records that stayed unavailable until the end, from the bytes left in each ring. How many
    /// they were is unknown, as is since when within the recording.
    pub fn unread_losses(&mut self, bytes: &[u64], (start_ns, end_ns): (u64, u64)) -> Vec<Event> {
        let mut all = Vec::new();
        for (cpu, _) in bytes.iter().enumerate().filter(|(_, left)| **left > 0) {
            self.lost += 1;
            let mut event = loss_event(start_ns, end_ns, cpu as u16, 1, LossSource::Unread, "");
            if let Record::Loss(loss) = &mut event.record {
                loss.bound = 1;
            }
            all.push(event);
        }
        all
    }

    /// Returns the runs that programs missed since the last call because they were already running on that CPU. The kernel
    /// does not report which CPU.
    pub fn missed_runs(&mut self, programs: &[(String, RawFd)]) -> Vec<Event> {
        let start = self.recursion_ns;
        let now = boot_ns();
        let mut all = Vec::new();
        for (name, fd) in programs {
            let Some(info) = program_info(*fd) else { continue };
            let seen = self.recursion.entry(*fd).or_default();
            let count = info.recursion_misses - *seen;
            *seen = info.recursion_misses;
            if count > 0 {
                self.lost += count;
                all.push(loss_event(start, now, NO_CPU, count, LossSource::Recursion, name));
            }
        }
        self.recursion_ns = now;
        all
    }
}

fn loss_event(start_ns: u64, now: u64, cpu: u16, events: u64, source: LossSource, program: &str) -> Event {
    let record = Loss { start_ns, events, source: source.number(), text: program.into(), ..Loss::default() }.into();
    Event { header: Header { time_ns: now, cpu, ..Header::default() }, record }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_counters_are_losses_of_their_source() {
        let mut watch = LossWatch::new();
        let state = CpuState { lost: 2, unreadable: 5, table_full: 1, switches_unseen: 4, wakings_unseen: 3 };
        let told = watch.losses_since_last(&[CpuState::default(), state]);
        let rows = |told: &[Event]| -> Vec<(u16, u64, u16, String)> {
            let row = |event: &Event| match &event.record {
                Record::Loss(loss) => (event.header.cpu, loss.events, loss.source, loss.text.clone()),
                other => panic!("{other:?}"),
            };
            told.iter().map(row).collect()
        };
        let not_run = LossSource::NotRun.number();
        let expected = [
            (1, 2, LossSource::Ring.number(), String::new()),
            (1, 5, LossSource::Unread.number(), String::new()),
            (1, 1, LossSource::TableFull.number(), String::new()),
            (NO_CPU, 4, not_run, "sched_switch".into()),
            (NO_CPU, 3, not_run, "sched_waking".into()),
        ];
        assert_eq!((rows(&told), watch.lost()), (expected.to_vec(), 8));
        assert!(watch.losses_since_last(&[CpuState::default(), state]).is_empty());
    }

    #[test]
    fn rings_that_could_not_be_read_are_losses_of_unknown_number() {
        let mut watch = LossWatch::new();
        assert!(watch.unread_losses(&[0, 0, 0], (5, 9)).is_empty() && watch.lost() == 0);
        let told = watch.unread_losses(&[0, 4096, 0], (5, 9));
        let [Event { header, record: Record::Loss(loss), .. }] = &told[..] else { panic!("{told:?}") };
        assert_eq!((header.cpu, loss.start_ns, header.time_ns), (1, 5, 9));
        assert_eq!((loss.events, loss.bound, LossSource::from_number(loss.source)), (1, 1, LossSource::Unread));
        assert_eq!(watch.lost(), 1);
    }
}
