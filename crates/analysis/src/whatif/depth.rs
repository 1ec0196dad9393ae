//! Another number of commands at the device at once: each disk as a queue with so many servers, first come, first served.
//!
//! Commands come as they were queued. A thread that waits for one is moved by as much as its command is, and so are the commands it queues
//! afterwards (a closed loop); so they are served in the order in which they come then, not in which they came.
//!
//! A disk that serves one command after the other ([`is_serial`]) does so at any depth: each command takes what it took behind the one before
//! it, whoever else waits.
//!
//! Another one, which works on several at once, may take longer for each. How much longer is in the recording: its commands' times against
//! the number in flight as each was issued, a straight line for each disk and kind of command. A command takes as many times as long as the
//! line at its new depth is as high as at its old one.
//!
//! **Uncertainty**: the line is extrapolated where the recording has no such depth; with one depth only, times stay. How many commands that
//! concerns is counted. The driver's own limits and the scheduler's order are not replayed.

use super::pieces::Piece;
use crate::rows::{Index, IoAction};
use model::{Layer, Relation};
use stats::quantile;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};

type Thread = (u32, u32);

/// By how much a thread is later, from when on, in the recording's time.
pub struct Delays {
    threads: HashMap<Thread, Vec<(u64, f64)>>,
    /// Commands, and how many of them would be at the device with a number of others that hardly any recorded one of their kind was.
    pub commands: usize,
    pub extrapolated: usize,
    /// Those of disks that serve one after the other.
    pub serial: usize,
}

impl Delays {
    /// By how much the thread is later at that time.
    pub fn at(&self, thread: Thread, time_ns: u64) -> f64 {
        let Some(steps) = self.threads.get(&thread) else { return 0.0 };
        let next = steps.partition_point(|(at, _)| *at <= time_ns);
        next.checked_sub(1).map_or(0.0, |at| steps[at].1)
    }
}

/// A command as it was.
#[derive(Debug, Clone, Copy)]
struct Command {
    queued_ns: u64,
    issued_ns: u64,
    end_ns: u64,
    disk: u32,
    action: IoAction,
    /// Who waited for it.
    waiter: Option<Thread>,
    /// How many were in flight as it was issued, itself among them.
    depth: usize,
    /// Its time since the end before its own, or since it was issued, if that was later: what it took, if the disk served no other.
    alone_ns: u64,
}

/// A kind of command's time by depth: `at` its height at 0 and `slope`, ns; neither is negative.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Law {
    at: f64,
    slope: f64,
    /// The depths that all but the lowest twentieth of the commands were recorded at.
    recorded: (usize, usize),
}

impl Law {
    /// The least squares' line. What gets faster with depth does so for another reason: then depth has no effect.
    fn fit(points: &[(f64, f64)]) -> Self {
        let n = points.len() as f64;
        let [x, y] = [0, 1].map(|which| points.iter().map(|p| if which == 0 { p.0 } else { p.1 }).sum::<f64>() / n);
        let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
        let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread;
        let mut depths: Vec<usize> = points.iter().map(|p| p.0 as usize).collect();
        depths.sort_unstable();
        let recorded =
            (depths.get(depths.len() / 20).copied().unwrap_or(0), depths.last().copied().unwrap_or(usize::MAX));
        if !slope.is_finite() || slope <= 0.0 {
            return Self { at: y, slope: 0.0, recorded };
        }
        match y - slope * x {
            // Through the origin: one after the other.
            at if at < 0.0 => Self { at: 0.0, slope: y / x, recorded },
            at => Self { at, slope, recorded },
        }
    }

    /// How many times as long a command takes at one depth as at another.
    fn times(self, to: usize, from: usize) -> f64 {
        let height = |depth: usize| self.at + self.slope * depth as f64;
        let times = height(to) / height(from);
        if times.is_finite() { times } else { 1.0 }
    }
}

/// Replays the disks with `servers` commands at once.
pub fn replay(index: &Index, pieces: &[Vec<Piece>], servers: usize) -> Delays {
    let commands = commands(index, pieces);
    let laws = laws(&commands);
    let serial = serial(&commands);
    // When the last command that was begun on such a disk ends.
    let mut last: HashMap<u32, u64> = HashMap::new();
    // Each thread's commands in their order; those that nobody waited for come when they came.
    let mut lines: BTreeMap<(Option<Thread>, usize), Vec<usize>> = BTreeMap::new();
    for (at, command) in commands.iter().enumerate() {
        lines.entry((command.waiter, if command.waiter.is_some() { 0 } else { at })).or_default().push(at);
    }
    let lines: Vec<Vec<usize>> = lines.into_values().collect();
    let mut next = vec![0; lines.len()];
    let mut delays = Delays { threads: HashMap::new(), commands: commands.len(), extrapolated: 0, serial: 0 };
    let arrives = |delays: &Delays, at: usize| {
        let command: &Command = &commands[at];
        let moved = command.waiter.map_or(0.0, |thread| delays.at(thread, command.queued_ns));
        (command.queued_ns as f64 + moved).max(0.0) as u64
    };
    let mut coming: BinaryHeap<Reverse<(u64, usize, usize)>> =
        lines.iter().enumerate().map(|(line, own)| Reverse((arrives(&delays, own[0]), own[0], line))).collect();
    let mut busy: HashMap<u32, BinaryHeap<Reverse<u64>>> = HashMap::new();
    while let Some(Reverse((arrives_ns, at, line))) = coming.pop() {
        let command = &commands[at];
        let disk = busy.entry(command.disk).or_default();
        let mut begins_ns = arrives_ns;
        while disk.peek().is_some_and(|Reverse(ends)| *ends <= begins_ns || disk.len() >= servers) {
            begins_ns = disk.pop().map_or(begins_ns, |Reverse(ends)| ends.max(begins_ns));
        }
        let ends = if serial.contains(&command.disk) {
            let last = last.entry(command.disk).or_default();
            *last = begins_ns.max(*last) + command.alone_ns;
            delays.serial += 1;
            *last as f64
        } else {
            let depth = disk.len() + 1;
            let law = laws.get(&(command.disk, command.action));
            let times = law.map_or(1.0, |law| law.times(depth, command.depth));
            delays.extrapolated +=
                usize::from(law.is_some_and(|law| !(law.recorded.0..=law.recorded.1).contains(&depth)));
            begins_ns as f64 + (command.end_ns - command.issued_ns) as f64 * times
        };
        disk.push(Reverse(ends as u64));
        if let Some(thread) = command.waiter {
            let steps = delays.threads.entry(thread).or_default();
            let place = steps.partition_point(|(at, _)| *at <= command.end_ns);
            steps.insert(place, (command.end_ns, ends - command.end_ns as f64));
        }
        next[line] += 1;
        if let Some(&at) = lines[line].get(next[line]) {
            coming.push(Reverse((arrives(&delays, at), at, line)));
        }
    }
    delays
}

/// The finished commands, in the order in which they were queued.
fn commands(index: &Index, pieces: &[Vec<Piece>]) -> Vec<Command> {
    let rows = index.rows;
    let mut waiter: HashMap<u64, Thread> = HashMap::new();
    for (at, pieces) in pieces.iter().enumerate() {
        let operation = &rows.operations[at];
        for span in pieces.iter().filter(|piece| piece.slept()).filter_map(|piece| piece.span) {
            waiter.entry(span).or_insert((operation.tgid, operation.tid));
        }
    }
    let queued = queued(index);
    let mut commands: Vec<Command> = Vec::new();
    for span in rows.spans.iter().filter(|s| s.layer == Layer::Driver) {
        if let Some(end_ns) = span.end_ns.filter(|end| *end >= span.start_ns) {
            commands.push(Command {
                queued_ns: queued.get(&span.id).copied().unwrap_or(span.start_ns).min(span.start_ns),
                issued_ns: span.start_ns,
                end_ns,
                disk: span.disk.unwrap_or(0),
                action: IoAction::on_disk(span),
                waiter: waiter.get(&span.id).copied(),
                depth: 1,
                alone_ns: 0,
            });
        }
    }
    commands.sort_by_key(|c| c.issued_ns);
    let mut busy: HashMap<u32, BinaryHeap<Reverse<u64>>> = HashMap::new();
    for command in &mut commands {
        let disk = busy.entry(command.disk).or_default();
        while disk.peek().is_some_and(|Reverse(ends)| *ends <= command.issued_ns) {
            disk.pop();
        }
        disk.push(Reverse(command.end_ns));
        command.depth = disk.len();
    }
    with_distances(&mut commands);
    commands.sort_by_key(|c| (c.queued_ns, c.issued_ns));
    commands
}

fn with_distances(commands: &mut [Command]) {
    commands.sort_by_key(|c| c.end_ns);
    let mut ends: HashMap<u32, u64> = HashMap::new();
    for command in commands {
        let before = ends.insert(command.disk, command.end_ns).unwrap_or(0);
        command.alone_ns = command.end_ns - command.issued_ns.max(before);
    }
}

/// The disks that serve one command after the other.
fn serial(commands: &[Command]) -> HashSet<u32> {
    let mut disks: BTreeMap<u32, Vec<Command>> = BTreeMap::new();
    commands.iter().for_each(|command| disks.entry(command.disk).or_default().push(*command));
    disks.into_iter().filter(|(_, own)| is_serial(own)).map(|(disk, _)| disk).collect()
}

/// Commands that came while others were at the disk, from which on their ends tell how it serves.
const OVERLAPPING: usize = 20;
/// The part of them that may end before one that came earlier.
const OVERTAKING: f64 = 0.02;
/// How many times as long as behind another a command may take that comes to an idle disk.
const ALONE: f64 = 1.5;
/// Which part of the scatter of times the scatter of the ends' distances has to account for.
const SCATTER: f64 = 0.3;

/// Whether a disk serves one command after the other: they end in the order in which they came, and a command that comes to an idle disk takes
/// no longer than one does behind another. A disk with a long way to it, which works on many at once, may keep the order, too, but lets one
/// that comes alone wait as long as all.
///
/// Where none ever came alone, times tell: behind so many others each waits for the distances of as many ends, so that where those scatter,
/// it does by the sum of them. Where many are served at once, the ends are as far from each other as the begins were: they may scatter,
/// while all take the same time.
fn is_serial(commands: &[Command]) -> bool {
    let mut commands = commands.to_vec();
    commands.sort_by_key(|c| (c.issued_ns, c.end_ns));
    let (mut latest, mut overlapping, mut overtaking) = (0, 0_usize, 0_usize);
    for command in &commands {
        overlapping += usize::from(command.issued_ns < latest);
        overtaking += usize::from(command.end_ns < latest);
        latest = latest.max(command.end_ns);
    }
    if overlapping < OVERLAPPING || overtaking as f64 > OVERTAKING * overlapping as f64 {
        return false;
    }
    // The first ones may have come behind some that nobody recorded.
    let first_end = commands.iter().map(|c| c.end_ns).min().unwrap_or(0);
    let of_action = |action: IoAction| {
        let own = || commands.iter().filter(move |c| c.action == action);
        let is_alone = |c: &&Command| c.depth == 1 && c.issued_ns >= first_end;
        let alone = middle(own().filter(is_alone).map(|c| c.alone_ns as f64));
        alone.zip(middle(own().filter(|c| c.depth > 1).map(|c| c.alone_ns as f64)))
    };
    let actions: BTreeSet<IoAction> = commands.iter().map(|c| c.action).collect();
    let told: Vec<(f64, f64)> = actions.into_iter().filter_map(of_action).collect();
    match told.is_empty() {
        false => told.iter().all(|(alone, behind)| *alone <= ALONE * behind),
        true => scatters_by_ends(&commands),
    }
}

/// Whether the times of the commands at the usual depth scatter by what the distances of their ends do.
fn scatters_by_ends(commands: &[Command]) -> bool {
    let mut depths: BTreeMap<usize, usize> = BTreeMap::new();
    commands.iter().for_each(|command| *depths.entry(command.depth).or_default() += 1);
    let Some((usual, _)) = depths.into_iter().max_by_key(|(_, count)| *count) else { return false };
    let own = || commands.iter().filter(|command| command.depth == usual);
    let times = variance(own().map(|c| (c.end_ns - c.issued_ns) as f64));
    let distances = variance(own().map(|c| c.alone_ns as f64));
    distances > 0.0 && times >= SCATTER * usual as f64 * distances
}

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    quantile::of(&values.collect::<Vec<_>>(), 0.5)
}

fn variance(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / n;
    values.map(|value| (value - mean).powi(2)).sum::<f64>() / n
}

fn laws(commands: &[Command]) -> BTreeMap<(u32, IoAction), Law> {
    let mut points: BTreeMap<(u32, IoAction), Vec<(f64, f64)>> = BTreeMap::new();
    for command in commands {
        let point = (command.depth as f64, (command.end_ns - command.issued_ns) as f64);
        points.entry((command.disk, command.action)).or_default().push(point);
    }
    points.into_iter().map(|(kind, points)| (kind, Law::fit(&points))).collect()
}

/// When the first bio of each command was queued.
fn queued(index: &Index) -> HashMap<u64, u64> {
    let rows = index.rows;
    let mut first: HashMap<u64, u64> = HashMap::new();
    // A command's request lies between it and its bios.
    for _ in 0..2 {
        for link in rows.links.iter().filter(|l| matches!(l.relation, Relation::Carries | Relation::Merges)) {
            let Some(parent) = index.span(link.parent).map(|at| &rows.spans[at]) else { continue };
            let since = match parent.layer {
                Layer::Block => parent.start_ns,
                _ => first.get(&link.parent).copied().unwrap_or(u64::MAX),
            };
            let known = first.entry(link.child).or_insert(u64::MAX);
            *known = (*known).min(since);
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn law_of_serial_device_goes_through_origin() {
        let serial: Vec<(f64, f64)> = (1..=8).map(|d| (f64::from(d), 100.0 * f64::from(d))).collect();
        let law = Law::fit(&serial);
        assert!((law.times(1, 8) - 0.125).abs() < 1e-9 && (law.times(16, 8) - 2.0).abs() < 1e-9, "{law:?}");
        let parallel: Vec<(f64, f64)> = (1..=8).map(|d| (f64::from(d), 100.0)).collect();
        assert_eq!(Law::fit(&parallel).times(1, 8), 1.0);
    }

    /// The commands of 16 writers of which each has one under way, on a device of so many servers. With `pauses`, all begin together again and
    /// again, and one of them before the others.
    fn closed_loop(servers: usize, pauses: bool, mut takes_ns: impl FnMut() -> u64) -> Vec<Command> {
        let mut free = BinaryHeap::from(vec![Reverse(0); servers]);
        let mut coming: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
        let mut all: Vec<Command> = Vec::new();
        while all.len() < 640 {
            if coming.is_empty() {
                let last = all.iter().map(|c| c.end_ns).max().unwrap_or(0) + 50_000_000;
                coming.extend([Reverse(last)]);
                coming.extend((1..16).map(|nth| Reverse(last + 100_000 + nth)));
            }
            let Some(Reverse(issued_ns)) = coming.pop() else { break };
            let Reverse(server) = free.pop().unwrap_or_default();
            let end_ns = issued_ns.max(server) + takes_ns();
            free.push(Reverse(end_ns));
            if !pauses || all.len() % 64 < 48 {
                coming.push(Reverse(end_ns));
            }
            let depth = 1 + all.iter().filter(|c| c.end_ns > issued_ns).count();
            all.push(Command {
                queued_ns: issued_ns,
                issued_ns,
                end_ns,
                disk: 1,
                action: IoAction::Write,
                waiter: None,
                depth,
                alone_ns: 0,
            });
        }
        with_distances(&mut all);
        all
    }

    #[test]
    fn disk_that_serves_one_after_other_is_told_by_its_ends() {
        let mut random = stats::random::Random::new(7);
        let mut about = |ns: u64, by: u64| ns + random.below(by.max(1));
        for pauses in [true, false] {
            let one = closed_loop(1, pauses, || about(5_000_000, 2_000_000));
            assert_eq!(one.iter().filter(|c| c.depth == 1).count() > 1, pauses);
            assert!(is_serial(&one), "{pauses}");
            // Sixteen at once; a way of 5 ms, on which there is room for all, which keeps their order; four at once.
            for (servers, by) in [(16, 2_000_000), (16, 200), (16, 1), (4, 100), (2, 100_000)] {
                let several = closed_loop(servers, pauses, || about(5_000_000, by));
                assert!(!is_serial(&several), "{servers} of 5 ms and up to {by} ns more, {pauses}");
            }
        }
        let few: Vec<Command> = closed_loop(1, true, || 5_000_000).into_iter().take(15).collect();
        assert!(!is_serial(&few), "fewer that overlap than tell anything");
    }

    #[test]
    fn law_of_one_depth_or_of_faster_commands_changes_nothing() {
        assert_eq!(Law::fit(&[(4.0, 50.0), (4.0, 70.0)]).times(1, 4), 1.0);
        assert_eq!(Law::fit(&[(1.0, 90.0), (2.0, 30.0)]).times(2, 1), 1.0);
        assert_eq!(Law::fit(&[(1.0, 0.0), (2.0, 0.0)]).times(2, 1), 1.0);
    }
}
