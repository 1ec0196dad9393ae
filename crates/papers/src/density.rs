//! Figure 5 of paper 004: over a longer time INSERTs are dense in some regions and sparse in others. This module finds the sparse
//! ones and lists them, with the device's activity in them.
//!
//! An INSERT's period is the time from the end of the previous one to its own end. A period of more than
//! [`SPARSE_PERIOD_RATIO_MIN`] times the median is sparse; a region may include up to [`BRIDGED_INSERTS_MAX`] dense ones. The
//! paper's regions were drawn by eye, without a threshold: this one is ours.

use super::{find_shape, shown};
use analysis::Rows;
use analysis::text::duration;
use model::Layer;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

/// Minimum length of a sparse period, as a multiple of the median.
const SPARSE_PERIOD_RATIO_MIN: u64 = 3;
/// Maximum number of dense INSERTs between two sparse ones of one region.
const BRIDGED_INSERTS_MAX: usize = 1;
/// Maximum number of regions listed: the longest.
const LISTED_REGIONS_MAX: usize = 10;

/// A stretch of time without a change between dense and sparse.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Region {
    sparse: bool,
    start_ns: u64,
    end_ns: u64,
    inserts: usize,
}

/// A command that the device completed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServedCommand {
    start_ns: u64,
    end_ns: u64,
    name: String,
}

/// Returns the regions between these ends of INSERTs, in order of time, and the median period.
fn find_regions(ends: &[u64]) -> (Vec<Region>, u64) {
    let mut periods: Vec<u64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    periods.sort_unstable();
    let median = periods.get(periods.len() / 2).copied().unwrap_or(0);
    let mut sparse: Vec<bool> =
        ends.windows(2).map(|pair| pair[1] - pair[0] > SPARSE_PERIOD_RATIO_MIN * median).collect();
    let at: Vec<usize> = sparse.iter().enumerate().filter_map(|(i, is)| is.then_some(i)).collect();
    for pair in at.windows(2).filter(|pair| pair[1] - pair[0] <= BRIDGED_INSERTS_MAX + 1) {
        sparse[pair[0]..pair[1]].fill(true);
    }
    let mut all: Vec<Region> = Vec::new();
    for (pair, sparse) in ends.windows(2).zip(sparse) {
        match all.last_mut().filter(|last| last.sparse == sparse) {
            Some(last) => {
                last.end_ns = pair[1];
                last.inserts += 1;
            }
            None => all.push(Region { sparse, start_ns: pair[0], end_ns: pair[1], inserts: 1 }),
        }
    }
    (all, median)
}

/// Returns the device's activity in a region: for how long it had a command, how many began, and the longest.
fn activity_in<'a>(commands: &'a [ServedCommand], of: &Region) -> (u64, usize, Option<&'a ServedCommand>) {
    let within = commands.iter().filter(|c| c.start_ns < of.end_ns && c.end_ns > of.start_ns);
    let (mut busy, mut until, mut began) = (0, of.start_ns, 0);
    for command in within.clone() {
        let end = command.end_ns.min(of.end_ns);
        busy += end.saturating_sub(command.start_ns.max(until));
        until = until.max(end);
        began += usize::from(command.start_ns >= of.start_ns);
    }
    (busy, began, within.max_by_key(|c| c.end_ns - c.start_ns))
}

/// Returns the ends of the INSERTs of the statement with the most of them, and the device's commands, both in order of time.
fn inserts_and_commands(rows: &Rows) -> Option<(String, Vec<u64>, Vec<ServedCommand>)> {
    let shape = find_shape(rows)?;
    let mut ends: Vec<u64> = rows.operations.iter().filter(|o| o.shape == shape.id).filter_map(|o| o.end_ns).collect();
    ends.sort_unstable();
    let names: HashMap<u64, Cow<str>> =
        rows.driver_commands.iter().filter_map(|c| Some((c.command?, c.name))).collect();
    let driver = rows.spans.of_layer(Layer::Driver).map(|(_, span)| span);
    let mut commands: Vec<ServedCommand> = driver
        .filter_map(|span| {
            let kind = || format!("{} of {} bytes", span.kind, span.bytes);
            let name = names.get(&span.id).map_or_else(kind, |name| format!("{name} of {} bytes", span.bytes));
            Some(ServedCommand { start_ns: span.start_ns, end_ns: span.start_ns + span.took_ns()?, name })
        })
        .collect();
    commands.sort_by_key(|c| c.start_ns);
    Some((shape.text.clone(), ends, commands))
}

/// Formats the regions of a recording, as a section of a page; empty if it has no INSERTs.
pub fn markdown(name: &str, rows: &Rows) -> String {
    let Some((statement, ends, commands)) = inserts_and_commands(rows).filter(|(_, ends, _)| ends.len() > 2) else {
        return String::new();
    };
    let (all, median) = find_regions(&ends);
    let sum = |sparse: bool| {
        let (mut time, mut inserts, mut busy, mut began) = (0, 0, 0, 0);
        for region in all.iter().filter(|region| region.sparse == sparse) {
            let (of_device, commands, _) = activity_in(&commands, region);
            time += region.end_ns - region.start_ns;
            inserts += region.inserts;
            busy += of_device;
            began += commands;
        }
        let per = |n: f64, of: f64| if of > 0.0 { n / of } else { 0.0 };
        let rate = per(inserts as f64 * 1e9, time as f64);
        let (share, each) = (per(busy as f64 * 100.0, time as f64), per(began as f64, inserts as f64));
        (time, inserts, format!("{rate:.0} INSERTs/s, device busy {share:.0} %, {each:.1} commands an INSERT"))
    };
    let ((dense_ns, _, dense), (sparse_ns, sparse_inserts, sparse)) = (sum(false), sum(true));
    let whole = (dense_ns + sparse_ns).max(1) as f64;
    let mut listed: Vec<&Region> = all.iter().filter(|region| region.sparse).collect();
    let found = listed.len();
    let mut text = format!(
        "\n### 004 figure 5: dense and sparse regions of `{name}`\n\n{} executions of {}. The median period, from the end of one to the end of \
         the next, is {}; sparse is more than {SPARSE_PERIOD_RATIO_MIN} times that. Dense: {dense}. Sparse: ",
        ends.len(),
        shown(&statement),
        duration(median as f64),
    );
    if found == 0 {
        return text + "none.\n";
    }
    let _ = writeln!(
        text,
        "{} with {}, {:.0} % of the time: {sparse}.\n\n| at | length | INSERTs | device busy | commands | longest command |\n\
         |---|---|---|---|---|---|",
        model::counted(found, "region"),
        model::counted(sparse_inserts, "INSERT"),
        sparse_ns as f64 * 100.0 / whole,
    );
    listed.sort_by_key(|region| std::cmp::Reverse(region.end_ns - region.start_ns));
    for region in listed.into_iter().take(LISTED_REGIONS_MAX) {
        let (busy, began, longest) = activity_in(&commands, region);
        let length = region.end_ns - region.start_ns;
        let longest = longest
            .map_or_else(|| "none".into(), |c| format!("{}, {}", c.name, duration((c.end_ns - c.start_ns) as f64)));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} % | {} | {longest} |",
            duration((region.start_ns - ends[0]) as f64),
            duration(length as f64),
            region.inserts,
            busy as f64 * 100.0 / length.max(1) as f64,
            began,
        );
    }
    if found > LISTED_REGIONS_MAX {
        let _ = writeln!(text, "\nThe {LISTED_REGIONS_MAX} longest of {found}.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(start_ns: u64, end_ns: u64, name: &str) -> ServedCommand {
        ServedCommand { start_ns, end_ns, name: name.into() }
    }

    #[test]
    fn slow_inserts_form_sparse_regions() {
        // Every 10, except for two slow ones with a fast one in between, and a single one.
        let ends = [0, 10, 20, 30, 100, 110, 160, 170, 180, 190, 200, 240, 250];
        let (all, median) = find_regions(&ends);
        assert_eq!(median, 10);
        let region = |sparse, start_ns, end_ns, inserts| Region { sparse, start_ns, end_ns, inserts };
        let expected = [
            region(false, 0, 30, 3),
            region(true, 30, 160, 3),
            region(false, 160, 200, 4),
            region(true, 200, 240, 1),
            region(false, 240, 250, 1),
        ];
        assert_eq!(all, expected);
        assert_eq!(all.iter().map(|r| r.inserts).sum::<usize>(), ends.len() - 1);
        assert_eq!(find_regions(&[]), (vec![], 0));
        assert_eq!(find_regions(&[5, 5, 5]).0.len(), 1, "all at once are dense");
    }

    #[test]
    fn busy_time_counts_overlapping_commands_once() {
        let region = Region { sparse: true, start_ns: 100, end_ns: 200, inserts: 1 };
        let commands =
            [command(90, 110, "before"), command(120, 150, "a"), command(130, 140, "b"), command(190, 260, "c")];
        let (busy, began, longest) = activity_in(&commands, &region);
        assert_eq!((busy, began), (10 + 30 + 10, 3));
        assert_eq!(longest.map(|c| c.name.as_str()), Some("c"));
        assert_eq!(activity_in(&[], &region), (0, 0, None));
    }

    #[test]
    fn a_recording_without_inserts_has_no_regions() {
        assert_eq!(markdown("x", &Rows::default()), "");
    }
}
