//! Another queue depth at the device: models each disk as a queue with this many servers, first come, first served.
//!
//! Commands arrive when they were queued. A thread that waits for one is delayed by as much as its command is, and so are the
//! commands it queues afterwards (a closed loop); so they are served in the order of their new arrival times, not of the recorded
//! ones.
//!
//! A disk that processes one command after the other ([`is_serial`]) does so at any depth: each command takes as long as it took
//! behind the previous one, however many others wait.
//!
//! Any other disk, which processes several at once, may take longer for each. How much longer is derived from the recording: its
//! commands' times over the number in flight when each was issued, a straight line for each disk and kind of command. A command's
//! time is scaled by the ratio of the line at its new depth to the line at its old one.
//!
//! **Uncertainty**: the line is extrapolated where the recording has no such depth; with one depth only, times are unchanged. The
//! number of affected commands is counted. The driver's own limits and the scheduler's order are not replayed.

use super::pieces::Piece;
use analysis::rows::{Index, IoAction};
use model::{Layer, Relation};
use stats::quantile;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};

type Thread = (u32, u32);

/// The delays of threads, by the recording's time.
pub struct Delays {
    threads: HashMap<Thread, Vec<(u64, f64)>>,
    /// Commands, and how many of them would be at a depth at which hardly any command of their kind was recorded.
    pub commands: usize,
    pub extrapolated: usize,
    /// Commands of serial disks.
    pub serial: usize,
}

impl Delays {
    /// Returns the delay of the thread at that time.
    pub fn delay_at(&self, thread: Thread, time_ns: u64) -> f64 {
        let Some(steps) = self.threads.get(&thread) else { return 0.0 };
        let next = steps.partition_point(|(at, _)| *at <= time_ns);
        next.checked_sub(1).map_or(0.0, |at| steps[at].1)
    }
}

/// A recorded command.
#[derive(Debug, Clone, Copy)]
struct Command {
    queued_ns: u64,
    issued_ns: u64,
    end_ns: u64,
    disk: u32,
    action: IoAction,
    /// The thread that waited for it.
    waiter: Option<Thread>,
    /// Number of commands in flight when it was issued, including itself.
    depth: usize,
    /// Its time since the previous end or its own issue, whichever was later: its service time, if the disk serves one at a time.
    alone_ns: u64,
}

/// A kind of command's time by depth: `at` is the value at depth 0, `slope` the increase, ns; neither is negative.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Law {
    at: f64,
    slope: f64,
    /// The range of depths at which commands were recorded, without the lowest twentieth.
    recorded: (usize, usize),
}

impl Law {
    /// Fits the line by least squares. If times fall with depth, there is another reason: then depth has no effect.
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

    /// Returns the ratio of a command's time at one depth to that at another.
    fn times(self, to: usize, from: usize) -> f64 {
        let height = |depth: usize| self.at + self.slope * depth as f64;
        let times = height(to) / height(from);
        if times.is_finite() { times } else { 1.0 }
    }
}

/// Replays the disks with `servers` commands at once.
pub fn replay(index: &Index, pieces: &[Vec<Piece>], servers: usize) -> Delays {
    let commands = commands_in_queue_order(index, pieces);
    let laws = fit_laws(&commands);
    let serial = serial_disks(&commands);
    // When the last command issued to such a disk ends.
    let mut last: HashMap<u32, u64> = HashMap::new();
    // Each thread's commands in order; those without a waiter keep their arrival times.
    let mut lines: BTreeMap<(Option<Thread>, usize), Vec<usize>> = BTreeMap::new();
    for (at, command) in commands.iter().enumerate() {
        lines.entry((command.waiter, if command.waiter.is_some() { 0 } else { at })).or_default().push(at);
    }
    let lines: Vec<Vec<usize>> = lines.into_values().collect();
    let mut next = vec![0; lines.len()];
    let mut delays = Delays { threads: HashMap::new(), commands: commands.len(), extrapolated: 0, serial: 0 };
    let arrives = |delays: &Delays, at: usize| {
        let command: &Command = &commands[at];
        let moved = command.waiter.map_or(0.0, |thread| delays.delay_at(thread, command.queued_ns));
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

/// Returns the finished commands, in the order in which they were queued.
fn commands_in_queue_order(index: &Index, pieces: &[Vec<Piece>]) -> Vec<Command> {
    let rows = index.rows;
    let mut waiter: HashMap<u64, Thread> = HashMap::new();
    for (at, pieces) in pieces.iter().enumerate() {
        let operation = &rows.operations.at(at);
        for span in pieces.iter().filter(|piece| piece.slept()).filter_map(|piece| piece.span) {
            waiter.entry(span).or_insert((operation.tgid, operation.tid));
        }
    }
    let queued = first_queued_ns(index);
    let mut commands: Vec<Command> = Vec::new();
    for span in rows.spans.of_layer(Layer::Driver).map(|(_, s)| s) {
        if let Some(took_ns) = span.took_ns() {
            let end_ns = span.start_ns + took_ns;
            commands.push(Command {
                queued_ns: queued.get(&span.id).copied().unwrap_or(span.start_ns).min(span.start_ns),
                issued_ns: span.start_ns,
                end_ns,
                disk: span.disk.unwrap_or(0),
                action: IoAction::on_disk(&span),
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
    set_distances(&mut commands);
    commands.sort_by_key(|c| (c.queued_ns, c.issued_ns));
    commands
}

fn set_distances(commands: &mut [Command]) {
    commands.sort_by_key(|c| c.end_ns);
    let mut ends: HashMap<u32, u64> = HashMap::new();
    for command in commands {
        let before = ends.insert(command.disk, command.end_ns).unwrap_or(0);
        command.alone_ns = command.end_ns - command.issued_ns.max(before);
    }
}

/// Returns the disks that serve one command after the other.
fn serial_disks(commands: &[Command]) -> HashSet<u32> {
    let mut disks: BTreeMap<u32, Vec<Command>> = BTreeMap::new();
    commands.iter().for_each(|command| disks.entry(command.disk).or_default().push(*command));
    disks.into_iter().filter(|(_, own)| is_serial(own)).map(|(disk, _)| disk).collect()
}

/// Minimum number of commands issued while others were at the disk for determining how it serves.
const OVERLAPPING_COMMANDS_MIN: usize = 20;
/// Maximum share of these that end before an earlier one.
const OVERTAKING_SHARE_MAX: f64 = 0.02;
/// Maximum ratio of the time of a command on an idle disk to the time of one behind another.
const ALONE_TIME_RATIO_MAX: f64 = 1.5;
/// Minimum share of the variance of times that the variance of the distances between ends must explain.
const EXPLAINED_VARIANCE_MIN: f64 = 0.3;

/// Whether a disk serves one command after the other: they end in the order in which they were issued, and a command on an idle
/// disk takes no longer than one behind another. A disk with a long latency that processes many at once may keep the order, too,
/// but a single command takes as long there as any other.
///
/// If no command was ever alone, times decide: behind n others each waits for the distances of n ends, so that if those vary, it
/// varies by their sum. If many are served at once, the ends are as far apart as the starts were: they may vary, although all
/// take the same time.
fn is_serial(commands: &[Command]) -> bool {
    let mut commands = commands.to_vec();
    commands.sort_by_key(|c| (c.issued_ns, c.end_ns));
    let (mut latest, mut overlapping, mut overtaking) = (0, 0_usize, 0_usize);
    for command in &commands {
        overlapping += usize::from(command.issued_ns < latest);
        overtaking += usize::from(command.end_ns < latest);
        latest = latest.max(command.end_ns);
    }
    if overlapping < OVERLAPPING_COMMANDS_MIN || overtaking as f64 > OVERTAKING_SHARE_MAX * overlapping as f64 {
        return false;
    }
    // The first ones may have been queued behind unrecorded ones.
    let first_end = commands.iter().map(|c| c.end_ns).min().unwrap_or(0);
    let of_action = |action: IoAction| {
        let own = || commands.iter().filter(move |c| c.action == action);
        let is_alone = |c: &&Command| c.depth == 1 && c.issued_ns >= first_end;
        let alone = median(own().filter(is_alone).map(|c| c.alone_ns as f64));
        alone.zip(median(own().filter(|c| c.depth > 1).map(|c| c.alone_ns as f64)))
    };
    let actions: BTreeSet<IoAction> = commands.iter().map(|c| c.action).collect();
    let told: Vec<(f64, f64)> = actions.into_iter().filter_map(of_action).collect();
    if told.is_empty() {
        scatters_by_ends(&commands)
    } else {
        told.iter().all(|(alone, behind)| *alone <= ALONE_TIME_RATIO_MAX * behind)
    }
}

/// Whether the times of the commands at the most frequent depth vary as the distances between their ends do.
fn scatters_by_ends(commands: &[Command]) -> bool {
    let mut depths: BTreeMap<usize, usize> = BTreeMap::new();
    commands.iter().for_each(|command| *depths.entry(command.depth).or_default() += 1);
    let Some((usual, _)) = depths.into_iter().max_by_key(|(_, count)| *count) else { return false };
    let own = || commands.iter().filter(|command| command.depth == usual);
    let times = variance(own().map(|c| (c.end_ns - c.issued_ns) as f64));
    let distances = variance(own().map(|c| c.alone_ns as f64));
    distances > 0.0 && times >= EXPLAINED_VARIANCE_MIN * usual as f64 * distances
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    quantile::of_unsorted(&values.collect::<Vec<_>>(), 0.5)
}

fn variance(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / n;
    values.map(|value| (value - mean).powi(2)).sum::<f64>() / n
}

fn fit_laws(commands: &[Command]) -> BTreeMap<(u32, IoAction), Law> {
    let mut points: BTreeMap<(u32, IoAction), Vec<(f64, f64)>> = BTreeMap::new();
    for command in commands {
        let point = (command.depth as f64, (command.end_ns - command.issued_ns) as f64);
        points.entry((command.disk, command.action)).or_default().push(point);
    }
    points.into_iter().map(|(kind, points)| (kind, Law::fit(&points))).collect()
}

/// Returns when the first bio of each command was queued.
fn first_queued_ns(index: &Index) -> HashMap<u64, u64> {
    let rows = index.rows;
    let mut first: HashMap<u64, u64> = HashMap::new();
    // A command's request is between it and its bios.
    for _ in 0..2 {
        for link in rows.links.iter().filter(|l| matches!(l.relation, Relation::Carries | Relation::Merges)) {
            let Some(parent) = index.span(link.parent).map(|at| rows.spans.at(at)) else { continue };
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
    fn the_law_of_a_serial_device_goes_through_the_origin() {
        let serial: Vec<(f64, f64)> = (1..=8).map(|d| (f64::from(d), 100.0 * f64::from(d))).collect();
        let law = Law::fit(&serial);
        assert!((law.times(1, 8) - 0.125).abs() < 1e-9 && (law.times(16, 8) - 2.0).abs() < 1e-9, "{law:?}");
        let parallel: Vec<(f64, f64)> = (1..=8).map(|d| (f64::from(d), 100.0)).collect();
        assert_eq!(Law::fit(&parallel).times(1, 8), 1.0);
    }

    /// The commands of 16 writers, each with one in flight, on a device with this many servers. With `pauses`, all begin together
    /// again and again, and one of them before the others.
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
        set_distances(&mut all);
        all
    }

    #[test]
    fn a_serial_disk_is_recognised_by_its_ends() {
        let mut random = stats::random::Random::new(7);
        let mut about = |ns: u64, by: u64| ns + random.below(by.max(1));
        for pauses in [true, false] {
            let one = closed_loop(1, pauses, || about(5_000_000, 2_000_000));
            assert_eq!(one.iter().filter(|c| c.depth == 1).count() > 1, pauses);
            assert!(is_serial(&one), "{pauses}");
            // Sixteen at once; a latency of 5 ms with room for all, which keeps their order; four at once.
            for (servers, by) in [(16, 2_000_000), (16, 200), (16, 1), (4, 100), (2, 100_000)] {
                let several = closed_loop(servers, pauses, || about(5_000_000, by));
                assert!(!is_serial(&several), "{servers} of 5 ms and up to {by} ns more, {pauses}");
            }
        }
        let few: Vec<Command> = closed_loop(1, true, || 5_000_000).into_iter().take(15).collect();
        assert!(!is_serial(&few), "fewer that overlap than tell anything");
    }

    #[test]
    fn a_law_of_one_depth_or_a_falling_one_changes_nothing() {
        assert_eq!(Law::fit(&[(4.0, 50.0), (4.0, 70.0)]).times(1, 4), 1.0);
        assert_eq!(Law::fit(&[(1.0, 90.0), (2.0, 30.0)]).times(2, 1), 1.0);
        assert_eq!(Law::fit(&[(1.0, 0.0), (2.0, 0.0)]).times(2, 1), 1.0);
    }
}
