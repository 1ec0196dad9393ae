//! A check's outcome as text for people.

use super::count_name::{CountName, FLUSHES, FileKind};
use super::difference::{Difference, Outcome};
use super::sentence::shown_place;
use analysis::text::shown;
use model::counted;
use std::fmt::Write as _;

/// Maximum number of differences shown.
const DIFFERENCES_SHOWN_MAX: usize = 12;

fn expected_range(d: &Difference) -> String {
    match d.expected {
        [least, most] if least == most => least.to_string(),
        [least, most] => format!("{least} to {most}"),
    }
}

fn whose(d: &Difference) -> String {
    if d.total {
        return "whole program".into();
    }
    d.statement.as_ref().map_or("program".into(), |text| shown(text))
}

pub(super) fn change(d: &Difference) -> String {
    let delta = d.delta();
    let sign = if delta > 0 { "+" } else { "" };
    format!("{sign}{delta} {} ({} -> {})", d.what, expected_range(d), d.found)
}

/// Formats a difference in a line, with what it is a count of.
pub(super) fn difference_text(d: &Difference) -> String {
    format!("{}: {}", whose(d), change(d))
}

/// Formats the most important difference, with the resulting flushes.
pub(super) fn headline(differences: &[Difference]) -> Option<String> {
    let first = differences.first()?;
    let flushes = differences.iter().find(|d| d.statement == first.statement && d.device && d.what == FLUSHES);
    let flushes = flushes.filter(|d| !first.device && d.delta() > 0);
    let with = flushes.map_or(String::new(), |d| format!(", and with it {}", change(d)));
    // SQLite's files are named by their kind; for others, name an example.
    let other = matches!(CountName::parse(&first.what).file(), Some(FileKind::File | FileKind::Directory));
    let example = first.example.as_ref().filter(|_| other && first.found > 0);
    let example = example.map_or(String::new(), |path| format!(", such as {}", shown(path)));
    Some(format!("{}: {}{example}{with}", whose(first), change(first)))
}

fn push_caveat(out: &mut String, outcome: &Outcome) {
    if let Some(caveat) = outcome.caveats.against_charges() {
        let _ = writeln!(out, "  device: {}, so that a statement may have caused more", caveat.because);
    }
}

pub fn text(outcome: &Outcome) -> String {
    let mut out = String::new();
    let runs = counted(outcome.runs as usize, "run");
    if outcome.passed {
        let _ = writeln!(out, "As recorded (counted by {}, {runs})", outcome.counted_by);
        if !outcome.totals {
            out.push_str(
                "  The contract has no totals: a call on a file whose name differs in each run is not compared. Record it again \
                 (fathom check record).\n",
            );
        }
        push_caveat(&mut out, outcome);
        return out;
    }
    let _ = writeln!(out, "{}", outcome.first.as_deref().unwrap_or_default());
    if let Some(because) = &outcome.because {
        let _ = writeln!(out, "  since {}", shown(because));
    }
    for place in outcome.differences.iter().take(1).flat_map(|d| &d.places) {
        let _ = writeln!(out, "  at {}, {}", shown(&shown_place(place)), counted(place.calls as usize, "call"));
    }
    if let Some(first) = outcome.differences.first().filter(|first| first.calls_elsewhere > 0) {
        let which = if first.places.is_empty() { "at an unknown place" } else { "elsewhere" };
        let _ = writeln!(out, "  {which}, {}", counted(first.calls_elsewhere as usize, "call"));
    }
    let mut last = None;
    for one in outcome.differences.iter().skip(1).take(DIFFERENCES_SHOWN_MAX) {
        if last != Some(whose(one)) {
            last = Some(whose(one));
            let _ = writeln!(out, "{}", whose(one));
        }
        let device = if one.device { ", device" } else { "" };
        let _ = writeln!(out, "  {}{device}", change(one));
    }
    if outcome.differences.len() > DIFFERENCES_SHOWN_MAX + 1 {
        let _ = writeln!(out, "{} more (--json lists all)", outcome.differences.len() - DIFFERENCES_SHOWN_MAX - 1);
    }
    push_caveat(&mut out, outcome);
    let _ =
        writeln!(out, "\nCounted by {}, in each of {runs}. If it is intended: fathom check record", outcome.counted_by);
    out
}
