//! Waits for the device working for other processes: sleeps until a command ends in which the sleeper has no part, or behind
//! which its own command was queued.
//!
//! A file system's journal processes one transaction at a time, so a thread that syncs first sleeps for the commit that another
//! process requested: its journal blocks, its flush (jbd2_log_wait_commit, then a commit of its own). And the block layer has at
//! most one flush in flight per queue; further requests wait for the next one (block/blk-flush.c). Both can be derived from the
//! process to which a command is charged.
//!
//! **Uncertainty.** A command of an unknown process does not count as one of others. One that also carries data of the sleeper is
//! its own. A device that processes one command at a time also delays data behind another's flush: that counts only where the
//! recording shows it, by how much longer such commands took. The same holds for data behind another's data: a device that
//! processes several commands at once delays none.

use super::median;
use analysis::by_key::RowsByKey;
use analysis::charges::SharedItems;
use analysis::rows::{Index, IoAction};
use model::{Layer, Origin, Relation};
use std::collections::HashMap;

/// Minimum number of commands of each kind for a comparison.
const COMPARED_COMMANDS_MIN: usize = 5;
/// Factor by which commands behind a flush take longer if the device processes one command at a time.
const SERIAL_DELAY_RATIO: f64 = 1.5;

/// Time in which an operation's own command was queued behind another's flush.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueuedPeriod {
    /// Start.
    pub from: u64,
    /// End.
    pub to: u64,
    /// The process of the flush.
    pub tgid: u32,
    /// The flush, or the write.
    pub command: u64,
    /// Whether it is a write: pages of another process.
    pub data: bool,
}

/// The processes to which commands are charged.
#[derive(Debug)]
pub struct OtherProcesses {
    charged: RowsByKey,
    behind: HashMap<u32, Vec<QueuedPeriod>>,
}

struct Command {
    disk: u32,
    start_ns: u64,
    end_ns: u64,
    id: u64,
    /// When it was queued, if before its issue.
    queued_ns: u64,
    action: IoAction,
    /// Its number among the charged commands.
    number: u32,
}

impl OtherProcesses {
    /// Indexes the commands.
    pub fn new(index: &Index, shared: &SharedItems) -> Self {
        let causes = &index.rows.causes;
        let others = |at: &usize| causes.share(*at) > 0.0 && causes.origin(*at) != Origin::Tracer;
        let charged = (0..causes.len()).filter(others).filter(|&at| causes.tgid(at).is_some());
        let charged = charged.filter_map(|at| Some((index.span(causes.command(at))?, at as u32)));
        let charged = RowsByKey::new(index.rows.spans.len(), charged);
        let mut others = Self { charged, behind: HashMap::new() };
        others.find_queued_periods(index, shared);
        others
    }

    /// Returns the process of a command, if the given process has no part in it.
    pub fn whose(&self, index: &Index, command: u64, own: u32) -> Option<u32> {
        let causes = &index.rows.causes;
        let all = self.charged.rows_of(index.span(command)?).iter().map(|&at| at as usize);
        let all: Vec<(u32, f64)> = all.filter_map(|at| Some((causes.tgid(at)?, causes.share(at)))).collect();
        let known: f64 = all.iter().map(|(_, share)| share).sum();
        if known < 0.5 || all.iter().any(|(tgid, _)| *tgid == own) {
            return None;
        }
        all.iter().max_by(|p, q| p.1.total_cmp(&q.1)).map(|(tgid, _)| *tgid)
    }

    /// Yields the parts of a sleep of an operation in which one of its commands was queued behind a flush of others.
    pub fn behind(&self, operation: usize, from: u64, to: u64) -> impl Iterator<Item = QueuedPeriod> {
        let all = self.behind.get(&(operation as u32)).map_or(&[][..], Vec::as_slice);
        let cut = move |b: &QueuedPeriod| QueuedPeriod { from: b.from.max(from), to: b.to.min(to), ..*b };
        all.iter().map(cut).filter(|b| b.from < b.to)
    }

    fn find_queued_periods(&mut self, index: &Index, shared: &SharedItems) {
        let commands = finished_commands(index, shared);
        let of = |is: fn(IoAction) -> bool| {
            let mut by_disk: HashMap<u32, Vec<&Command>> = HashMap::new();
            for command in commands.iter().filter(|command| is(command.action)) {
                by_disk.entry(command.disk).or_default().push(command);
            }
            by_disk
        };
        let (flushes, writes) = (of(|a| a == IoAction::Flush), of(|a| a == IoAction::Write));
        let flush_before = |command: &Command, at: u64| last_in_flight(&flushes, command, at);
        let write_before = |command: &Command, at: u64| last_in_flight(&writes, command, at);
        let (behind_flushes, behind_writes) = (is_serial(&commands, flush_before), is_serial(&commands, write_before));
        let mut found = Vec::new();
        for command in &commands {
            let parts = shared.shares_of(command.number as usize);
            if !parts.iter().any(|part| part.share > 0.0) {
                continue;
            }
            // A flush is held back in the block layer; data, if at all, at the device.
            let flush = match command.action {
                IoAction::Flush => Some((command.queued_ns, command.start_ns)),
                _ => behind_flushes.then_some((command.start_ns, command.end_ns)),
            };
            let flush = flush.and_then(|(since, until)| Some((since, until, flush_before(command, since)?)));
            let write = behind_writes.then(|| write_before(command, command.start_ns)).flatten();
            let write = write.map(|write| (command.start_ns, command.end_ns, write));
            for operation in parts.iter().filter(|part| part.share > 0.0).map(|part| part.operation) {
                let own = index.rows.operations.tgid(operation as usize);
                for (since, until, first) in flush.iter().chain(&write) {
                    if let Some(tgid) = self.whose(index, first.id, own) {
                        let (to, data) = (first.end_ns.min(*until), first.action != IoAction::Flush);
                        found.push((operation, QueuedPeriod { from: *since, to, tgid, command: first.id, data }));
                    }
                }
            }
        }
        for (operation, behind) in found {
            self.behind.entry(operation).or_default().push(behind);
        }
        // Two own commands behind one command of others are one wait.
        for list in self.behind.values_mut() {
            list.sort_by_key(|b| (b.from, b.to));
            let mut until = 0;
            list.iter_mut().for_each(|b| {
                b.from = b.from.max(until);
                until = until.max(b.to);
            });
        }
    }
}

/// Returns the last of some commands that was in flight at a time on the same disk.
fn last_in_flight<'a>(all: &HashMap<u32, Vec<&'a Command>>, command: &Command, at: u64) -> Option<&'a Command> {
    let all = all.get(&command.disk)?;
    let next = all.partition_point(|other| other.start_ns <= at);
    let other = all[..next].iter().rev().find(|other| other.id != command.id)?;
    (other.end_ns > at).then_some(*other)
}

/// Whether a device does nothing else while one of these is in flight, as far as its data commands show.
fn is_serial<'a>(commands: &'a [Command], before: impl Fn(&Command, u64) -> Option<&'a Command>) -> bool {
    let data = commands.iter().filter(|c| matches!(c.action, IoAction::Read | IoAction::Write));
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for command in data {
        let times = if before(command, command.start_ns).is_some() { &mut beside } else { &mut alone };
        times.push(command.end_ns - command.start_ns);
    }
    alone.len() >= COMPARED_COMMANDS_MIN
        && beside.len() >= COMPARED_COMMANDS_MIN
        && median(&beside) as f64 >= SERIAL_DELAY_RATIO * median(&alone) as f64
}

/// Finished commands of the disks that hold the files, in the order of their issue.
fn finished_commands(index: &Index, shared: &SharedItems) -> Vec<Command> {
    let rows = index.rows;
    let mut queued: HashMap<u64, u64> = HashMap::new();
    for link in rows.links.iter().filter(|l| l.relation == Relation::WaitsForFlush) {
        let (Some(from), Some(to)) = (index.span(link.parent), index.span(link.child)) else { continue };
        if rows.spans.layer(from) == Layer::Block && rows.spans.layer(to) == Layer::Driver {
            let first = queued.entry(link.child).or_insert(u64::MAX);
            *first = (*first).min(rows.spans.start_ns(from));
        }
    }
    let mut all: Vec<Command> = Vec::new();
    for (number, (at, _)) in (0..).zip(shared.iter()) {
        let span = &rows.spans.at(at);
        let (Some(disk), Some(took_ns)) = (span.disk.filter(|disk| index.counted_disks.contains(disk)), span.took_ns())
        else {
            continue;
        };
        all.push(Command {
            disk,
            start_ns: span.start_ns,
            end_ns: span.start_ns + took_ns,
            id: span.id,
            queued_ns: queued.get(&span.id).copied().unwrap_or(span.start_ns).min(span.start_ns),
            action: IoAction::on_disk(span),
            number,
        });
    }
    all.sort_by_key(|command| (command.start_ns, command.id));
    all
}
