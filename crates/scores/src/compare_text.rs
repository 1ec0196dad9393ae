//! A comparison for people: as text and as Markdown.

use super::compare::{BenchComparison, Pair, Side, UnmatchedCell};
use super::results::factor_words;
use analysis::text::{digits, escaped, scale, shown};
use model::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

pub fn text(c: &BenchComparison) -> String {
    let mut text = match &c.by {
        Some(by) => format!("{}, by {by}\n\n", shown(&c.a)),
        None => format!("A  {}\nB  {}\n\n", shown(&c.a), shown(&c.b)),
    };
    let shared = c.shared_parameters();
    let none = BTreeMap::new();
    let title = |p: &Pair| shown(&p.title_without(shared.get(p.workload.as_str()).unwrap_or(&none)));
    let width = c.results.iter().map(|p| title(p).chars().count()).max().unwrap_or(0).min(70);
    // A note on the processes of a cell's score is not repeated for their latencies.
    let mut before: Option<&Pair> = None;
    let mut said: BTreeSet<&str> = BTreeSet::new();
    for p in &c.results {
        if before.replace(p).is_none_or(|before| !before.is_of_cell(p)) {
            said.clear();
        }
        let (size, unit) = score_scale(p);
        let _ = writeln!(
            text,
            "  {:width$}  {:>9} -> {:>9} {unit:10} {:>24}  {}",
            title(p),
            format_score(&p.a, size),
            format_score(&p.b, size),
            format_ratio(p),
            p.verdict
        );
        for note in p.notes.iter().filter(|note| said.insert(note)) {
            let _ = writeln!(text, "  {:width$}    {}", "", shown(note));
        }
    }
    if c.results.is_empty() && c.incomparable.is_empty() {
        text.push_str("  The archives have no cell in common.\n");
    }
    for (workload, same) in &shared {
        let _ = writeln!(text, "\n  {workload}: all with {}", shown(&factor_words(same)));
    }
    if let Some(o) = &c.overall {
        let [low, high] = o.ci95;
        let _ = writeln!(
            text,
            "\nOverall B is x {:.3} as fast (x {low:.3} to x {high:.3}; geometric mean of {}).",
            o.speed,
            counted(o.cells, "cell")
        );
    }
    for i in &c.incomparable {
        let _ = writeln!(text, "{}", shown(&i.words()));
    }
    for a in &c.unmatched {
        let _ = writeln!(text, "{}", shown(&unmatched_line(a)));
    }
    if !c.differs.is_empty() {
        let name = c.differs.iter().map(|d| d.fact.len()).max().unwrap_or(0);
        let side = c.differs.iter().map(|d| d.a.chars().count()).max().unwrap_or(0).min(50);
        text.push_str("\nDifferences between the machines\n");
        for d in &c.differs {
            let _ = writeln!(text, "  {:name$}  {:side$}  {}", d.fact, shown(&d.a), shown(&d.b));
        }
    } else if c.by.is_none() {
        text.push_str("\nNo known fact of the machines differed.\n");
    }
    let _ = writeln!(text, "\n{}\n{}", describe_method(c), c.scope);
    text
}

fn format_score(side: &Side, size: f64) -> String {
    side.estimate.map_or_else(|| "-".into(), |value| digits(value / size))
}

/// Returns the divisor for both scores of a pair, and the resulting unit.
fn score_scale(p: &Pair) -> (f64, String) {
    scale(&p.unit, p.a.estimate.or(p.b.estimate).unwrap_or(0.0))
}

fn format_ratio(p: &Pair) -> String {
    match p.ratio.zip(p.ratio_ci_adjusted.or(p.ratio_ci95)) {
        Some((r, [low, high])) => format!("x {r:.3} ({low:.3} to {high:.3})"),
        None => "no ratio".into(),
    }
}

fn unmatched_line(a: &UnmatchedCell) -> String {
    let score = a.score.as_ref().map_or_else(String::new, |metric| format!(" {metric}"));
    format!("Only in {}: {} {}{score}", a.of.to_uppercase(), a.workload, factor_words(&a.parameters))
}

/// Describes how the cells were judged.
fn describe_method(c: &BenchComparison) -> String {
    let margin = c.results.first().map_or(0.02, |p| p.margin) * 100.0;
    let noise = match c.noise {
        Some(noise) => format!("the machine's A/A noise is {:.1} %", noise * 100.0),
        None => "these archives have no A/A cells".into(),
    };
    let paired = if c.by.is_some() { "within blocks" } else { "over processes" };
    format!(
        "Ratios are B / A of the scores with 95 % intervals {paired}. Verdicts of faster and slower need a ratio \
         beyond {margin:.1} % ({noise}); among {} their false discovery rate is at most 5 % (Benjamini-Hochberg; \
         their intervals are at the adjusted level).",
        counted(c.results.iter().filter(|p| p.p.is_some()).count(), "cell")
    )
}

/// Formats a section of a page.
pub fn markdown(c: &BenchComparison) -> String {
    let mut text = match &c.by {
        Some(by) => format!("## {}, by {}\n\n", escaped(&c.a), escaped(by)),
        None => format!("## {} and {}\n\n", escaped(&c.a), escaped(&c.b)),
    };
    text.push_str("| cell | A | B | unit | B / A | 95 % interval | verdict | Cliff's delta | notes |\n|---|---:|---:|---|---:|---:|---|---:|---|\n");
    for p in &c.results {
        let interval = p
            .ratio_ci_adjusted
            .or(p.ratio_ci95)
            .map_or_else(String::new, |[low, high]| format!("{low:.3} to {high:.3}"));
        let (size, unit) = score_scale(p);
        let cells = [
            p.title(),
            format_score(&p.a, size),
            format_score(&p.b, size),
            unit,
            p.ratio.map_or_else(String::new, |r| format!("{r:.3}")),
            interval,
            p.verdict.to_string(),
            p.second.cliffs_delta.map_or_else(String::new, |d| format!("{d:.2}")),
            p.notes.join("; "),
        ];
        let _ = writeln!(text, "| {} |", cells.map(|c| escaped(&c)).join(" | "));
    }
    if let Some(o) = &c.overall {
        let [low, high] = o.ci95;
        let _ = writeln!(
            text,
            "\nOverall B is {:.3} times as fast ({low:.3} to {high:.3}; geometric mean of {}).",
            o.speed,
            counted(o.cells, "cell")
        );
    }
    for i in &c.incomparable {
        let _ = writeln!(text, "\n{}", escaped(&i.words()));
    }
    for a in &c.unmatched {
        let _ = writeln!(text, "\n{}", escaped(&unmatched_line(a)));
    }
    if !c.differs.is_empty() {
        text.push_str("\n| fact | A | B |\n|---|---|---|\n");
        for d in &c.differs {
            let _ = writeln!(text, "| {} |", [&d.fact, &d.a, &d.b].map(|t| escaped(t)).join(" | "));
        }
    }
    let _ = writeln!(text, "\n{}\n\n{}", escaped(&describe_method(c)), escaped(&c.scope));
    text
}
