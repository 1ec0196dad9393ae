//! How long commands waited to be issued and how long the device took, by disk and kind: btt's Q2D and D2C. Also the queue depth
//! at the device: mean, maximum, and over time.
//!
//! A command's queue time begins with the first of its bios, according to the links: a bio that was merged into its request later
//! waited less (btt counts each bio). A command without a recorded bio has only a D2C; one whose issue was not recorded has neither, and is
//! not part of the depth.

use crate::by_key::RowsByKey;
use crate::contract::{CommandTimes, DepthPart, DiskCommands, Summary, Times};
use crate::lines::{bars, line};
use crate::rows::{Index, IoAction};
use crate::text::{digits, duration, shown};
use crate::times::times;
use model::{Layer, Relation};
use std::collections::BTreeMap;

/// Durations of one disk and kind: queue to issue, issue to completion.
type Durations = (Vec<u64>, Vec<u64>);

/// Number of parts of a recording with a depth each: as many as fit the width of a page.
const DEPTH_PART_COUNT: u64 = 120;

/// Width of the depth over time in `fathom show`, in columns.
const DEPTH_COLUMNS: usize = 60;

/// Adds times and depths to the disks. `window`: the recording's start and end, ns.
pub fn add_times(index: &Index, disks: &mut BTreeMap<String, DiskCommands>, window: (u64, u64)) {
    let length_ns = window.1.saturating_sub(window.0);
    let rows = index.rows;
    let carries = |at: &usize| matches!(rows.links.relation(*at), Relation::Carries | Relation::Merges);
    let ends = |at: usize| Some((index.span(rows.links.child(at))?, index.span(rows.links.parent(at))? as u32));
    let above = RowsByKey::new(rows.spans.len(), (0..rows.links.len()).filter(carries).filter_map(ends));
    let queued = |command: usize| {
        let mut first: Option<u64> = None;
        let mut waiting = vec![command];
        // A chain has three layers; a damaged table may contain a cycle.
        for _ in 0..3 {
            let next: Vec<usize> = waiting.iter().flat_map(|&at| above.rows_of(at)).map(|&at| at as usize).collect();
            let bios = next.iter().filter(|&&at| rows.spans.layer(at) == Layer::Block);
            let bios = bios.map(|&at| rows.spans.start_ns(at));
            first = first.into_iter().chain(bios).min();
            waiting = next;
        }
        first
    };
    let mut all: BTreeMap<(u32, &'static str), Durations> = BTreeMap::new();
    // When commands are issued to each disk, and when they complete.
    let mut moments: BTreeMap<u32, Vec<(u64, i64)>> = BTreeMap::new();
    for (at, span) in rows.spans.of_layer(Layer::Driver) {
        let disk = span.disk.unwrap_or(0);
        let (waited, took) = all.entry((disk, IoAction::on_disk(&span).name())).or_default();
        waited.extend(queued(at).map(|since| span.start_ns.saturating_sub(since)));
        let (Some(end_ns), Some(took_ns)) = (span.end_ns, span.took_ns()) else { continue };
        took.push(took_ns);
        moments.entry(disk).or_default().extend([(span.start_ns, 1), (end_ns, -1)]);
    }
    let name = |dev: u32| if dev == 0 { "unknown disk".to_owned() } else { index.disk_name(dev) };
    for ((disk, kind), (mut waited, mut took)) in all {
        let times = CommandTimes {
            queued: waited.len() as u64,
            queue_to_issue_ns: times(&mut waited),
            completed: took.len() as u64,
            issue_to_complete_ns: times(&mut took),
        };
        disks.entry(name(disk)).or_default().times.insert(kind.into(), times);
    }
    for (disk, mut moments) in moments {
        // A command that completes at the moment at which another is issued does not overlap it.
        moments.sort_unstable();
        let of = disks.entry(name(disk)).or_default();
        let (mut depth, mut most, mut before, mut sum) = (0_i64, 0_i64, 0, 0.0);
        for &(at, step) in &moments {
            sum += depth as f64 * (at - before) as f64;
            (depth, before) = (depth + step, at);
            most = most.max(depth);
        }
        of.depth_over_time = depth_over_time(&moments, window);
        of.depth_max = most.unsigned_abs();
        of.depth_mean = if length_ns > 0 { sum / length_ns as f64 } else { 0.0 };
    }
}

/// Returns the depths of a disk for each part; `moments` are issues and completions, in order. Those outside of the window count
/// at its edge.
fn depth_over_time(moments: &[(u64, i64)], (start, end): (u64, u64)) -> Vec<DepthPart> {
    let length = end.saturating_sub(start);
    if length < DEPTH_PART_COUNT {
        return Vec::new();
    }
    let edge = |part: u64| start + (u128::from(length) * u128::from(part) / u128::from(DEPTH_PART_COUNT)) as u64;
    let mut waiting = moments.iter().map(|&(at, step)| (at.clamp(start, end), step)).peekable();
    let mut depth = 0_i64;
    let part = |part: u64| {
        let (from, to) = (edge(part), edge(part + 1));
        let (mut before, mut sum, mut most) = (from, 0.0, depth);
        // The last part includes the end of the window.
        while let Some((at, step)) = waiting.next_if(|(at, _)| *at < to || part + 1 == DEPTH_PART_COUNT) {
            sum += depth as f64 * (at - before) as f64;
            (depth, before) = (depth + step, at);
            most = most.max(depth);
        }
        sum += depth as f64 * (to - before) as f64;
        DepthPart { from_ns: from - start, mean: sum / (to - from).max(1) as f64, max: most.unsigned_abs() }
    };
    (0..DEPTH_PART_COUNT).map(part).collect()
}

/// Adds a table of device times to the output of `fathom show`.
pub fn text(out: &mut String, summary: &Summary) {
    let disks = || summary.device_commands.by_disk.iter().filter(|(_, disk)| !disk.times.is_empty());
    if disks().next().is_none() {
        return;
    }
    line(out, "\nDevice times (Q2D: first bio queued to issued; D2C: issued to completed)");
    let row = |first: [&str; 2], a: [String; 4], b: [String; 4]| {
        let ([disk, kind], [n, a, b, c], [m, d, e, f]) = (first, a, b);
        format!("  {disk:<10} {kind:<8} {n:>7} {a:>9} {b:>9} {c:>9} {m:>8} {d:>9} {e:>9} {f:>9}")
    };
    let head = |count: &str| [count, "median", "p99", "max"].map(str::to_owned);
    line(out, &row(["disk", "kind"], head("Q2D"), head("D2C")));
    let cells = |count: u64, t: &Times| {
        let time = |ns: u64| if count == 0 { "-".to_owned() } else { duration(ns as f64) };
        [count.to_string(), time(t.p50), time(t.p99), time(t.max)]
    };
    for (name, disk) in disks() {
        for (kind, t) in &disk.times {
            let (waited, took) = (cells(t.queued, &t.queue_to_issue_ns), cells(t.completed, &t.issue_to_complete_ns));
            line(out, &row([&shown(name), kind], waited, took));
        }
        let depth = format!("{} on average, {} at most", digits(disk.depth_mean), disk.depth_max);
        line(out, &format!("  {:<10} commands at the device at once: {depth}", shown(name)));
        let most: Vec<f64> = disk.depth_over_time.iter().map(|part| part.max as f64).collect();
        if !most.is_empty() {
            line(out, &format!("  {:<10} over time, at most: |{}|", shown(name), bars(&most, DEPTH_COLUMNS)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DEPTH_PART_COUNT, depth_over_time};
    use crate::small_trace;
    use crate::summary::summarise;
    use model::{Layer, Relation};

    #[test]
    fn the_depth_of_each_part_is_that_of_its_moments() {
        // Two at once from 12 to 25 of 1000 to 13000, parts of 100 ns.
        let moments = [(1200, 1), (1250, 1), (1450, -1), (1500, -1), (12_990, 1), (13_000, -1)];
        let parts = depth_over_time(&moments, (1000, 13_000));
        let told: Vec<(u64, f64, u64)> =
            parts.iter().filter(|part| part.max > 0).map(|part| (part.from_ns, part.mean, part.max)).collect();
        // At 1500 the last command ends: it was in flight when that part began.
        let expected = [(200, 1.5, 2), (300, 2.0, 2), (400, 1.5, 2), (500, 0.0, 1), (11_900, 0.1, 1)];
        assert_eq!(told, expected);
        assert_eq!((parts.len() as u64, depth_over_time(&moments, (5, 5)).len()), (DEPTH_PART_COUNT, 0));
    }

    #[test]
    fn times_are_those_of_commands_and_their_first_bios() {
        let rows = small_trace::rows();
        let summary = summarise(&rows);
        let start = |id: u64| rows.spans.iter().find(|s| s.id == id).map(|s| (s.layer, s.start_ns));
        let (mut waited, mut took) = (0, 0);
        for command in rows.spans.of_layer(Layer::Driver).map(|(_, s)| s) {
            took += command.end_ns.map_or(0, |end| end - command.start_ns);
            let carried = |l: &model::table::Link| {
                l.child == command.id && matches!(l.relation, Relation::Carries | Relation::Merges)
            };
            let bios = rows.links.iter().filter(carried).filter_map(|l| start(l.parent));
            let first = bios.filter(|(layer, _)| *layer == Layer::Block).map(|(_, start)| start).min();
            waited += first.map_or(0, |first| command.start_ns - first);
        }
        let disks = &summary.device_commands.by_disk;
        let times = || disks.values().flat_map(|disk| disk.times.values());
        assert_eq!(times().map(|t| t.queue_to_issue_ns.sum).sum::<u64>(), waited);
        assert_eq!(times().map(|t| t.issue_to_complete_ns.sum).sum::<u64>(), took);
        assert!(waited > 0 && took > 0);
        for disk in disks.values() {
            let ended: u64 = disk.times.values().map(|t| t.completed).sum();
            assert_eq!(ended, disk.total - disk.incomplete - disk.untimed);
            // Little's law: the mean depth is the total time at the device divided by the length of the recording.
            let time: u64 = disk.times.values().map(|t| t.issue_to_complete_ns.sum).sum();
            let length = (summary.trace.end_ns - summary.trace.start_ns) as f64;
            assert!((disk.depth_mean - time as f64 / length).abs() < 1e-9, "{} of {time}", disk.depth_mean);
            assert!(disk.depth_max >= 1);
            let parts = &disk.depth_over_time;
            assert_eq!(parts.iter().map(|part| part.max).max(), Some(disk.depth_max));
            let mean = parts.iter().map(|part| part.mean).sum::<f64>() / parts.len() as f64;
            assert!((mean - disk.depth_mean).abs() < 0.02 * disk.depth_mean.max(0.01), "{mean} of {}", disk.depth_mean);
        }
    }
}
