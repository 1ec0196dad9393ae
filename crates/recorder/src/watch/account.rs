//! What a slow operation's time was spent on, and for whom: each slice is charged once, so that the parts add up to its duration.
//!
//! A thread that waits for its own command on a disk waits for whatever the disk has to do meanwhile. So the time in a disk, its queue or a
//! flush is divided among the commands that the disk had during it, in proportion to the time for which it had each, and a command's part
//! among its causes. A journal's commit is divided among the commands that it wrote. Who holds a lock or woke the thread is known directly.
//!
//! *Uncertainty*: the order in which a device works on its commands is not visible. What has no known cause is nobody's.

use super::closure::Closure;
use model::table::{Operation, Slice};
use model::{Layer, Origin, Reason, Wait};
use std::collections::{BTreeMap, BTreeSet};

/// Who a time is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Culprit {
    /// The operation's own process.
    Own,
    /// Another process.
    Process(u32),
    Unknown,
}

/// What a time was spent on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spent {
    Running,
    WaitingForCpu,
    /// A disk worked on data.
    Disk(u32),
    /// A disk emptied its cache.
    Flush(u32),
    /// A disk's queue.
    Queue(u32),
    Journal,
    /// What the kernel shows that the thread slept for.
    Wait(&'static str),
    Other,
}

impl Spent {
    /// The disk, if it is one.
    pub fn disk(&self) -> Option<u32> {
        match self {
            Self::Disk(disk) | Self::Flush(disk) | Self::Queue(disk) => Some(*disk),
            _ => None,
        }
    }

    /// Its name in text and JSON, without the disk's.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Running => "cpu",
            Self::WaitingForCpu => "run queue",
            Self::Disk(_) => "device",
            Self::Flush(_) => "flush",
            Self::Queue(_) => "queue",
            Self::Journal => "journal",
            Self::Wait(wait) => wait,
            Self::Other => "other",
        }
    }
}

/// Time by what and for whom, ns.
pub type Account = BTreeMap<(Spent, Culprit), f64>;

/// Divides an operation's time.
pub fn account(closure: &Closure, operation: &Operation) -> Account {
    let mut account = Account::new();
    let slices = closure.slices.get(&operation.id).map_or(&[][..], Vec::as_slice);
    let commands = CommandsOfDisks::new(closure, operation);
    for slice in slices {
        let ns = slice.end_ns.saturating_sub(slice.start_ns) as f64;
        if ns > 0.0 {
            charge(closure, operation, slice, &commands, ns, &mut account);
        }
    }
    account
}

/// The commands that disks had during an operation.
struct CommandsOfDisks {
    /// By disk: span, start and end.
    by_disk: BTreeMap<u32, Vec<(u64, u64, u64)>>,
}

impl CommandsOfDisks {
    fn new(closure: &Closure, operation: &Operation) -> Self {
        let end_ns = operation.end_ns.unwrap_or(u64::MAX);
        let mut by_disk: BTreeMap<u32, Vec<(u64, u64, u64)>> = BTreeMap::new();
        for (id, span) in &closure.spans {
            if span.layer == Layer::Driver && span.start_ns < end_ns && span.end_ns > operation.start_ns {
                by_disk.entry(span.disk).or_default().push((*id, span.start_ns, span.end_ns));
            }
        }
        by_disk.values_mut().for_each(|commands| commands.sort_unstable());
        Self { by_disk }
    }

    /// The commands that a disk had during an interval, each with the time, ns.
    fn during(&self, disk: u32, slice: &Slice) -> Vec<(u64, f64)> {
        let overlap = |&(id, start, end): &(u64, u64, u64)| {
            let ns = end.min(slice.end_ns).saturating_sub(start.max(slice.start_ns));
            (ns > 0).then_some((id, ns as f64))
        };
        self.by_disk.get(&disk).into_iter().flatten().filter_map(overlap).collect()
    }
}

fn charge(
    closure: &Closure,
    operation: &Operation,
    slice: &Slice,
    commands: &CommandsOfDisks,
    ns: f64,
    account: &mut Account,
) {
    let by = |tgid: u32| if tgid == operation.tgid { Culprit::Own } else { Culprit::Process(tgid) };
    let span = slice.span.and_then(|id| closure.spans.get(&id));
    let disk = span.map_or(0, |span| span.disk);
    let (spent, parts) = match slice.reason {
        Reason::Cpu => (Spent::Running, Vec::new()),
        Reason::RunQueue if slice.wait.is_none() => (Spent::WaitingForCpu, Vec::new()),
        Reason::Device if disk != 0 => (Spent::Disk(disk), commands.during(disk, slice)),
        Reason::Flush if disk != 0 => (Spent::Flush(disk), commands.during(disk, slice)),
        Reason::Queue if disk != 0 => (Spent::Queue(disk), commands.during(disk, slice)),
        Reason::Journal => (Spent::Journal, slice.span.map_or_else(Vec::new, |id| closure.commands_below(id))),
        _ => (slice.wait.map_or(Spent::Other, |wait| Spent::Wait(wait.name())), Vec::new()),
    };
    let mut add = |culprit: Culprit, ns: f64| *account.entry((spent.clone(), culprit)).or_default() += ns;
    let total: f64 = parts.iter().map(|(_, weight)| weight).sum();
    if let Some(tgid) = slice.by_tgid {
        add(by(tgid), ns);
    } else if total > 0.0 {
        for (command, weight) in parts {
            let (mut left, part) = (1.0, ns * weight / total);
            for cause in closure.causes.get(&command).into_iter().flatten() {
                let known = cause.tgid.filter(|_| cause.origin != Origin::Unattributed);
                let own = cause.operation == Some(operation.id);
                let culprit = if own { Culprit::Own } else { known.map_or(Culprit::Unknown, by) };
                add(culprit, part * cause.share.min(left));
                left -= cause.share.min(left);
            }
            if left > 1e-9 {
                add(Culprit::Unknown, part * left);
            }
        }
    } else {
        // A timer is the program's own, and a quota that of its cgroup.
        let is_own = |wait: Wait| matches!(wait, Wait::Timer | Wait::CpuQuota | Wait::IoQuota);
        let own = matches!(spent, Spent::Running) || slice.wait.is_some_and(is_own);
        add(if own { Culprit::Own } else { Culprit::Unknown }, ns);
    }
}

impl Closure {
    /// The commands that a span led to, each with its duration, ns.
    fn commands_below(&self, span: u64) -> Vec<(u64, f64)> {
        let below: BTreeSet<u64> = self.reach_down(span);
        let commands = below.iter().filter_map(|id| Some((*id, self.spans.get(id)?)));
        commands
            .filter(|(_, span)| span.layer == Layer::Driver && span.end_ns != u64::MAX)
            .map(|(id, span)| (id, span.end_ns.saturating_sub(span.start_ns) as f64))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::closure::ShortSpan;
    use crate::watch::detector::EndedOperation;
    use causal::Sink as _;
    use model::Confidence;
    use model::table::{Cause, Link};

    const DISK: u32 = 8;

    fn slice(reason: Reason, start_ns: u64, end_ns: u64, span: Option<u64>, wait: Option<Wait>) -> Slice {
        Slice {
            operation: 1,
            layer: Layer::Driver,
            reason,
            start_ns,
            end_ns,
            span,
            confidence: None,
            wait,
            by_tgid: None,
            by_operation: None,
            wait_file: None,
        }
    }

    fn cause(command: u64, tgid: Option<u32>, share: f64) -> Cause {
        let origin = if tgid.is_some() { Origin::OtherProcess } else { Origin::Unattributed };
        Cause { command, origin, operation: None, tgid, share, confidence: Confidence::Exact, via: "page".into() }
    }

    /// An operation of process 1, from 0 to 1000, on a disk that has commands 11 and 12.
    fn example(slices: Vec<Slice>) -> (Closure, Operation) {
        let ended = EndedOperation { tgid: 1, tid: 1, start_ns: 0, end_ns: 1000 };
        let mut closure = Closure::new(&[ended]);
        for (id, start_ns, end_ns) in [(11, 100, 500), (12, 0, 300)] {
            let span = ShortSpan { start_ns, end_ns, operation: 0, disk: DISK, layer: Layer::Driver };
            closure.spans.insert(id, span);
        }
        closure
            .spans
            .insert(20, ShortSpan { start_ns: 0, end_ns: 900, operation: 0, disk: 0, layer: Layer::FileSystem });
        slices.into_iter().for_each(|slice| closure.slice(slice));
        [cause(11, Some(1), 1.0), cause(12, Some(7), 0.75)].into_iter().for_each(|row| closure.cause(row));
        let (relation, confidence) = (model::Relation::Commits, Confidence::Exact);
        closure.link(Link { parent: 20, child: 12, relation, confidence, weakened_by: None });
        closure.complete();
        let operation = Operation {
            id: 1,
            span: 30,
            shape: 1,
            nth: 0,
            parent: None,
            tgid: 1,
            tid: 1,
            start_ns: 0,
            end_ns: Some(1000),
            inside_ns: 0,
            rows: 0,
            steps: None,
            result: None,
        };
        (closure, operation)
    }

    fn of(slices: Vec<Slice>) -> Vec<(Spent, Culprit, f64)> {
        let (closure, operation) = example(slices);
        account(&closure, &operation).into_iter().map(|((spent, culprit), ns)| (spent, culprit, ns)).collect()
    }

    #[test]
    fn time_of_a_disk_is_divided_among_its_commands() {
        // Command 11 is there for 400 ns of it, command 12 for 200.
        let parts = of(vec![slice(Reason::Device, 100, 500, Some(11), None)]);
        let third = 400.0 / 3.0;
        let expected =
            [(Culprit::Own, 2.0 * third), (Culprit::Process(7), 0.75 * third), (Culprit::Unknown, 0.25 * third)];
        assert_eq!(parts.len(), expected.len(), "{parts:?}");
        for ((spent, culprit, ns), (expected_culprit, expected_ns)) in parts.into_iter().zip(expected) {
            assert_eq!((spent, culprit), (Spent::Disk(DISK), expected_culprit));
            assert!((ns - expected_ns).abs() < 1e-6, "{ns} {expected_ns}");
        }
    }

    #[test]
    fn commit_is_for_whoever_it_wrote_for() {
        let parts = of(vec![slice(Reason::Journal, 500, 900, Some(20), None)]);
        assert_eq!(parts, [(Spent::Journal, Culprit::Process(7), 300.0), (Spent::Journal, Culprit::Unknown, 100.0)]);
    }

    #[test]
    fn every_slice_is_charged_whole() {
        let mut holder = slice(Reason::Other, 500, 600, None, Some(Wait::Fcntl));
        holder.by_tgid = Some(9);
        let slices = vec![
            slice(Reason::Cpu, 0, 50, None, None),
            slice(Reason::RunQueue, 50, 60, None, None),
            slice(Reason::RunQueue, 60, 100, None, Some(Wait::CpuQuota)),
            slice(Reason::Flush, 100, 500, Some(11), None),
            holder,
            slice(Reason::Other, 600, 700, None, Some(Wait::Timer)),
            slice(Reason::Queue, 700, 800, Some(99), None),
            slice(Reason::Journal, 800, 1000, None, None),
        ];
        let parts = of(slices);
        assert!((parts.iter().map(|(.., ns)| ns).sum::<f64>() - 1000.0).abs() < 1e-6, "{parts:?}");
        for (spent, culprit, ns) in [
            (Spent::Running, Culprit::Own, 50.0),
            (Spent::WaitingForCpu, Culprit::Unknown, 10.0),
            (Spent::Wait("CPU quota"), Culprit::Own, 40.0),
            (Spent::Wait("fcntl lock"), Culprit::Process(9), 100.0),
            (Spent::Wait("timer"), Culprit::Own, 100.0),
            (Spent::Journal, Culprit::Unknown, 200.0),
        ] {
            assert!(parts.contains(&(spent.clone(), culprit, ns)), "{spent:?} of {parts:?}");
        }
    }
}
