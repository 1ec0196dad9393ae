//! `bench compare --fail-on slower:PERCENT`: whether a build that is gated by a comparison passes. A cell that is missing or
//! could not be compared must not pass as one that is not slower.

use super::compare::{BenchComparison, Pair};
use analysis::text::shown;
use model::counted;

/// Whether the build passes, and why not.
#[derive(Debug)]
pub struct Verdict {
    /// Nothing is slower, and nothing could hide a slowdown.
    pub passed: bool,
    /// The reasons, and any doubts.
    pub lines: Vec<String>,
}

/// Checks whether B is slower than A by more than `percent` in a cell, whether one could not be compared, and whether B lost a result
/// that A has.
pub fn check_regressions(done: &BenchComparison, percent: f64) -> Verdict {
    let mut lines = Vec::new();
    let slower = done.slower(percent);
    // A busy or hot machine makes things slower, and hides slowdowns: report it whether the build fails or passes.
    let gates = |pair: &Pair| match &pair.gates[..] {
        [] => String::new(),
        gates => format!(" ({})", gates.join("; ")),
    };
    for pair in &slower {
        lines.push(format!("slower: {}{}", shown(&pair.title()), shown(&gates(pair))));
    }
    // A cell's latencies come from the same processes as its score.
    let mut cells: Vec<&Pair> = done.results.iter().collect();
    cells.dedup_by(|pair, before| pair.is_of_cell(before));
    let doubtful: Vec<&Pair> = cells.iter().filter(|pair| !pair.gates.is_empty()).copied().collect();
    if slower.is_empty() {
        lines.push("--fail-on: no compared cell is slower".into());
        for pair in &doubtful {
            lines.push(format!("but {}{}", shown(&pair.title()), shown(&gates(pair))));
        }
    }
    if !doubtful.is_empty() {
        lines.push(format!(
            "in {} of {} the machine was disturbed or a gate failed: measure again on a quiet machine",
            doubtful.len(),
            counted(cells.len(), "cell")
        ));
    }
    // If B fails more often than A, so that there is no ratio, it must not pass as not slower.
    let is_lost = |p: &&Pair| {
        let broken = p.ratio.is_none() && p.b.failed > p.a.failed;
        p.a.estimate.is_some() && (p.b.estimate.is_none() || broken)
    };
    let lost: Vec<&Pair> = done.results.iter().filter(is_lost).collect();
    for pair in &lost {
        lines.push(format!("no result in B: {}", shown(&pair.title())));
    }
    let alone = done.unmatched.iter().filter(|cell| cell.of == "a").count();
    if alone > 0 && done.by.is_none() {
        lines.push(format!("{} of A {} not in B", counted(alone, "cell"), if alone == 1 { "is" } else { "are" }));
    }
    let compared = done.results.iter().any(|pair| pair.ratio.is_some());
    if !compared {
        lines.push("--fail-on: no cell has a ratio: too few processes succeeded".into());
    }
    let passed = compared && slower.is_empty() && lost.is_empty() && done.incomparable.is_empty();
    Verdict { passed, lines }
}
