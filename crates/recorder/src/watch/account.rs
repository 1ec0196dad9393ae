//! What a slow operation's time was spent on, and for whom: each slice is charged once, so that the parts add up to its duration.
//!
//! A thread that waits for its own command on a disk waits for whatever the disk has to do meanwhile. So the time in a disk, its queue or a
//! flush is divided among the commands that the disk had during it, in proportion to the time for which it had each, and a command's part
//! among its causes. A journal's commit is divided among the commands that it wrote. Who holds a lock or woke the thread is known directly.
//!
//! *Uncertainty*: the order in which a device works on its commands is not visible. What has no known cause is nobody's.

use super::closure::Closure;
use model::table::{Operation, Slice};
use model::{Layer, Origin, Reason};
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
        Reason::RunQueue => (Spent::WaitingForCpu, Vec::new()),
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
        let own = matches!(spent, Spent::Running);
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
