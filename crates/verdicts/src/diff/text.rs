//! A comparison as text for people: the output of `fathom diff`. It fits 100 columns, and contains nothing that is not in the JSON.

use super::align::UnmatchedStatement;
use super::contract::{
    Contribution, CountDifference, CountTotal, Diff, Direction, Recordings, Side, Statement, TimeTotal,
};
use super::edges::OneSidedEdge;
use super::series::CountUnit;
use analysis::lines::{capitalise, line, paragraph};
use analysis::text::{bytes, count, digits, duration, shown};
use model::counted;
use stats::verdict::Verdict;
use std::fmt::Write as _;

/// Maximum number of rows of a table, and of items of a list.
const ROWS_MAX: usize = 12;
/// Maximum number of statements with executions in only one recording that are named at the top.
const NAMED_STATEMENTS_MAX: usize = 3;
/// A phase or layer with less than this fraction of the largest difference is not shown.
const SHOWN_SHARE_MIN: f64 = 0.01;
/// A part of the whole time with less than this fraction of the largest difference is not shown.
const WHOLE_SHARE_MIN: f64 = 0.05;
/// Facts that differ between any two recordings, and are not informative.
const UNINFORMATIVE_FACT_PREFIXES: [&str; 7] =
    ["trace.", "tracer.", "load.", "memory.", "clock.", "temperature.", "stacks."];

pub fn text(diff: &Diff) -> String {
    let mut out = String::new();
    for (name, side) in [("A", &diff.a), ("B", &diff.b)] {
        let cut_short = if side.complete { "" } else { "; the recording was interrupted" };
        let command = if side.command.is_empty() { "(no command)".into() } else { side.command.join(" ") };
        line(&mut out, &format!("{name}  {}", shown(&command)));
        line(&mut out, &format!("   {}{cut_short}", counted(side.executions as usize, "finished execution")));
        for caveat in [side.caveats.against_times(), side.caveats.against_charges()].into_iter().flatten() {
            line(&mut out, &format!("   {}", caveat.because));
        }
    }
    work(&mut out, &diff.counts);
    let _ = writeln!(
        out,
        "\n{}",
        capitalise(&format_verdict(diff.verdict, diff.latency_ns.ratio, diff.latency_ns.ratio_interval))
    );
    let sums = [diff.latency_ns.a, diff.latency_ns.b].map(|ns| duration(ns as f64));
    let (delta, interval) = (signed_duration(diff.latency_ns.delta_ns), format_interval(diff.latency_ns.interval));
    line(&mut out, &format!("  compared executions: {} -> {}, B - A {delta}{interval}", sums[0], sums[1]));
    paragraph(&mut out, "  ", &capitalise(&diff.why));
    if let Some(recordings) = &diff.recordings {
        self::recordings(&mut out, recordings);
    }
    if let Some(part) = &diff.different_work_ns {
        let range = self::format_interval(Some(part.interval));
        line(
            &mut out,
            &format!("  of that, in phases that did different work: {}{range}", signed_duration(part.delta_ns)),
        );
    }
    uncompared(&mut out, diff);
    if !diff.phases.is_empty() {
        line(&mut out, "");
        table(&mut out, "phase", &diff.phases);
        line(&mut out, "");
        table(&mut out, "layer", &diff.layers);
    }
    statements(&mut out, diff);
    list_unmatched(&mut out, "A", &diff.only_a);
    list_unmatched(&mut out, "B", &diff.only_b);
    whole_times(&mut out, &diff.times);
    list_unseen(&mut out, diff);
    facts(&mut out, diff);
    let _ = writeln!(out, "\nNotes");
    paragraph(&mut out, "  ", METHOD_NOTES);
    out
}

/// Counts of the whole programs that differ: what no noise of the machine explains comes before the times.
fn work(out: &mut String, counts: &[CountTotal]) {
    let differ: Vec<&CountTotal> =
        counts.iter().filter(|one| matches!(one.direction, Direction::More | Direction::Fewer)).collect();
    if differ.is_empty() {
        return;
    }
    line(out, "\nThe programs ask for different things (A -> B, all their own files together)");
    let range = |[least, most]: [u64; 2]| if least == most { least.to_string() } else { format!("{least} to {most}") };
    for one in differ.iter().take(ROWS_MAX) {
        let sign = if one.delta > 0 { "+" } else { "-" };
        line(out, &format!("  {sign}{} {}: {} -> {}", one.delta.unsigned_abs(), one.what, range(one.a), range(one.b)));
    }
    if differ.len() > ROWS_MAX {
        line(out, &format!("  {} more (--json)", differ.len() - ROWS_MAX));
    }
}

/// Where the time of the whole programs went, by the parts of `fathom explain`.
fn whole_times(out: &mut String, times: &[TimeTotal]) {
    let largest = times.first().map_or(0.0, |one| one.delta_ns.abs());
    let shown_rows: Vec<&TimeTotal> = times
        .iter()
        .filter(|one| one.delta_ns != 0.0 && one.delta_ns.abs() >= WHOLE_SHARE_MIN * largest)
        .take(ROWS_MAX)
        .collect();
    if shown_rows.is_empty() {
        return;
    }
    line(out, "\nTime of the whole programs, compared or not (A -> B)");
    for one in shown_rows {
        let both = [one.a_ns, one.b_ns].map(|ns| duration(ns as f64));
        paragraph(out, "  ", &format!("{} {}: {} -> {}", signed_duration(one.delta_ns), one.what, both[0], both[1]));
    }
}

/// Lists executions in only one recording: where calls are the operations, a missing sync shows only here.
fn uncompared(out: &mut String, diff: &Diff) {
    let left = diff.statements.iter().flat_map(|s| [(s.left_a, "A", &s.statement), (s.left_b, "B", &s.statement)]);
    let alone = [(&diff.only_a, "A"), (&diff.only_b, "B")];
    let alone = alone.into_iter().flat_map(|(list, which)| list.iter().map(move |s| (s.count, which, &s.statement)));
    let mut all: Vec<_> = left.filter(|(count, ..)| *count > 0).chain(alone).collect();
    all.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
    let named = all
        .iter()
        .take(NAMED_STATEMENTS_MAX)
        .map(|(count, which, text)| format!("{count} of {which} ({})", shown(text)));
    let named: Vec<String> = named.collect();
    if !named.is_empty() {
        let more = if all.len() > NAMED_STATEMENTS_MAX { ", …" } else { "" };
        paragraph(out, "  ", &format!("not compared, since only one has them: {}{more}", named.join(", ")));
    }
}

/// Lists the time of each recording, and which one the rest of the output is from.
fn recordings(out: &mut String, all: &Recordings) {
    for (which, sums, middle) in [("A", &all.whole.a_ns, all.middle_a), ("B", &all.whole.b_ns, all.middle_b)] {
        let each: Vec<String> = sums.iter().map(|ns| duration(*ns as f64)).collect();
        let text = format!(
            "{which}: {}, {}; number {} is shown below",
            counted(sums.len(), "recording"),
            each.join(" "),
            middle + 1
        );
        paragraph(out, "  ", &text);
    }
    if let Some(p) = all.whole.p {
        line(out, &format!("  ratio of typical recordings, exact rank test, p = {p:.2}"));
    } else {
        paragraph(out, "  ", "too few recordings for their times to decide: 4 and 4, or 3 and 5, are the fewest");
    }
    if all.apart {
        paragraph(
            out,
            "  ",
            "all recordings of one side were made before all of the other: what changed on the machine meanwhile counts as a \
             difference; record in turns",
        );
    }
}

/// Notes on how the numbers were obtained.
const METHOD_NOTES: &str = "Executions are aligned by statement and ordinal, not by time. Times are sums over the aligned executions, B - A; intervals \
    (95 %) by a bootstrap over 20 stretches of them: they say how well these two recordings are known, not how much two others would differ. So a \
    verdict needs different work (calls, bytes, bios, flushes, rows), marked *, or several recordings a side. A phase is the system call that the \
    thread was in, and the kind of file. Counts are means per execution; what several share counts by share.";

fn format_verdict(verdict: Verdict, ratio: Option<f64>, interval: Option<[f64; 2]>) -> String {
    let range = interval.map_or(String::new(), |[low, high]| format!(" ({} to {})", digits(low), digits(high)));
    match ratio {
        Some(ratio) => format!("{verdict}: B / A = {}{range}", digits(ratio)),
        None => verdict.to_string(),
    }
}

fn signed_duration(ns: f64) -> String {
    if ns > 0.0 { format!("+{}", duration(ns)) } else { duration(ns) }
}

fn format_interval(ends: Option<[f64; 2]>) -> String {
    ends.map_or(String::new(), |[low, high]| format!(" ({} to {})", signed_duration(low), signed_duration(high)))
}

fn contribution_name(row: &Contribution) -> String {
    let words = |layer: model::Layer| match row.reason {
        Some(reason) if !reason.name().eq_ignore_ascii_case(layer.name()) => format!("{layer} {reason}"),
        _ => layer.to_string(),
    };
    match (&row.phase, row.layer) {
        (Some(phase), _) => phase.clone(),
        (None, Some(layer)) => words(layer),
        (None, None) => "(no layer)".into(),
    }
}

/// Formats the rows that matter, and the sum of the others.
fn table(out: &mut String, what: &str, rows: &[Contribution]) {
    line(out, &format!("  {what:<30} {:>9} {:>9} {:>10} {:>8}  95 % interval", "A", "B", "B - A", "share"));
    let mut sizes: Vec<f64> = rows.iter().map(|row| row.delta_ns.abs()).collect();
    sizes.sort_by(|p, q| q.total_cmp(p));
    let most = sizes.first().copied().unwrap_or(0.0);
    let least = sizes.get(ROWS_MAX - 1).copied().unwrap_or(0.0).max(SHOWN_SHARE_MIN * most);
    let (shown, rest): (Vec<&Contribution>, Vec<&Contribution>) =
        rows.iter().partition(|row| most > 0.0 && row.delta_ns.abs() >= least);
    for row in shown {
        let share = row.share.map_or(String::new(), |share| format!("{:.1} %", 100.0 * share));
        let work = if row.different_work == Some(true) { "*" } else { " " };
        let [a, b] = [row.a_ns, row.b_ns].map(duration);
        let range = row
            .interval
            .map_or(String::new(), |[low, high]| format!("{} to {}", signed_duration(low), signed_duration(high)));
        let (name, delta) = (contribution_name(row), signed_duration(row.delta_ns));
        line(out, &format!("{work} {name:<30} {a:>9} {b:>9} {delta:>10} {share:>8}  {range}"));
    }
    if !rest.is_empty() {
        let sum = |of: fn(&Contribution) -> f64| rest.iter().map(|row| of(row)).sum::<f64>();
        let (a, b) = (duration(sum(|row| row.a_ns)), duration(sum(|row| row.b_ns)));
        let (name, delta) = (counted(rest.len(), "other"), signed_duration(sum(|row| row.delta_ns)));
        line(out, &format!("  {name:<30} {a:>9} {b:>9} {delta:>10}"));
    }
}

fn statements(out: &mut String, diff: &Diff) {
    let all = (diff.latency_ns.a.max(diff.latency_ns.b)) as f64;
    let sure = |edges: &[OneSidedEdge], s: &Statement| edges.iter().any(|e| e.sure && e.statement == s.statement);
    let matters = |s: &&Statement| {
        let time = s.latency_ns.a.max(s.latency_ns.b) as f64;
        time >= SHOWN_SHARE_MIN * all || sure(&diff.edges.only_a, s) || sure(&diff.edges.only_b, s)
    };
    let (shown, rest): (Vec<&Statement>, Vec<&Statement>) = diff.statements.iter().partition(matters);
    for statement in shown.iter().take(ROWS_MAX) {
        self::statement(out, statement, diff);
    }
    let (beyond, below) = (shown.len().saturating_sub(ROWS_MAX), rest.len());
    let mut more = Vec::new();
    if beyond > 0 {
        more.push(counted(beyond, "more statement"));
    }
    if below > 0 {
        let what = if beyond > 0 { "other" } else { "more statement" };
        more.push(format!("{} below 1 % of the time", counted(below, what)));
    }
    if !more.is_empty() {
        line(out, &format!("\n{} (--json lists all)", more.join(", ")));
    }
}

fn statement(out: &mut String, s: &Statement, diff: &Diff) {
    line(out, &format!("\n{}", shown(&s.statement)));
    line(out, &format!("  {}", format_verdict(s.verdict, s.latency_ns.ratio, s.latency_ns.ratio_interval)));
    let [a, b] = [s.median_ns.a, s.median_ns.b].map(|ns| duration(ns as f64));
    let ratio = s.median_ns.ratio.zip(s.median_ns.ratio_interval).map_or(String::new(), |(ratio, [low, high])| {
        format!(", typical ratio {} ({} to {})", digits(ratio), digits(low), digits(high))
    });
    line(out, &format!("  {} compared: median {a} -> {b}{ratio}", counted(s.pairs as usize, "execution")));
    for (left, which) in [(s.left_a, "A"), (s.left_b, "B")] {
        if left > 0 {
            line(out, &format!("  {left} of {which} have no counterpart"));
        }
    }
    let differing: Vec<&CountDifference> = s.counts.iter().filter(|c| c.differs).collect();
    if differing.is_empty() {
        let which = if s.left_a + s.left_b > 0 { "of those compared" } else { "of both" };
        line(out, &format!("  the counts {which} agree"));
    } else {
        line(out, &format!("  {:<48} {:>10} {:>10} {:>10}", "per execution", "A", "B", "B - A"));
    }
    for row in differing {
        let of = row.file.as_ref().map_or(String::new(), |file| format!(" {file}"));
        let shown = match row.unit {
            CountUnit::Bytes => bytes,
            CountUnit::Number => count,
        };
        let sign = if row.delta < 0.0 { "-" } else { "+" };
        let delta = format!("{sign}{}", shown(row.delta.abs()));
        let name = format!("{:<12} {}{of}", row.layer.name(), row.name);
        line(out, &format!("  {name:<48} {:>10} {:>10} {delta:>10}", shown(row.a), shown(row.b)));
    }
    for (edges, which) in [(&diff.edges.only_a, "A"), (&diff.edges.only_b, "B")] {
        let own = edges.iter().filter(|e| e.sure && e.statement == s.statement);
        let named: Vec<String> = own.map(|e| format!("{} ({} of {})", e.edge, e.executions, e.of)).collect();
        if !named.is_empty() {
            let more = if named.len() > ROWS_MAX { ", …" } else { "" };
            paragraph(out, "  ", &format!("only in {which}: {}{more}", named[..named.len().min(ROWS_MAX)].join(", ")));
        }
    }
}

fn list_unmatched(out: &mut String, which: &str, list: &[UnmatchedStatement]) {
    if list.is_empty() {
        return;
    }
    line(out, &format!("\nStatements of {which} only"));
    for one in list.iter().take(ROWS_MAX) {
        let sum = duration(one.sum_ns as f64);
        line(out, &format!("  {:>7} {sum:>9}  {}", one.count, shown(&one.statement)));
    }
    if list.len() > ROWS_MAX {
        line(out, &format!("  {} more", list.len() - ROWS_MAX));
    }
}

fn list_unseen(out: &mut String, diff: &Diff) {
    let incomplete = |side: &Side| !side.blind.is_empty() || !side.losses.is_empty();
    if !incomplete(&diff.a) && !incomplete(&diff.b) {
        return;
    }
    line(out, "\nNot recorded, or lost");
    for (side, which) in [(&diff.a, "A"), (&diff.b, "B")] {
        for blind in side.blind.iter().take(ROWS_MAX) {
            paragraph(out, "  ", &format!("{which}: {}", shown(&blind.means)));
        }
        let mut losses: std::collections::BTreeMap<(String, bool), (u64, bool)> = std::collections::BTreeMap::new();
        for lost in &side.losses {
            let program = lost.program.as_ref().map_or(String::new(), |program| format!(" ({program})"));
            let sum = losses.entry((lost.source.clone() + &program, lost.hides_executions)).or_default();
            sum.0 = sum.0.saturating_add(lost.events.unwrap_or(0));
            sum.1 |= lost.events.is_none();
        }
        for ((source, hides), (events, unknown)) in losses {
            let what = if hides { "executions may be missing" } else { "executions are not affected" };
            let many = if unknown { "unknown number of records".into() } else { counted(events as usize, "record") };
            paragraph(out, "  ", &format!("{which}: {}: {many}; {what}", shown(&source)));
        }
    }
}

fn facts(out: &mut String, diff: &Diff) {
    let tells = |fact: &str| !UNINFORMATIVE_FACT_PREFIXES.iter().any(|start| fact.starts_with(start));
    let facts: Vec<_> = diff.facts.iter().filter(|f| tells(&f.fact)).collect();
    if facts.is_empty() {
        return;
    }
    line(out, "\nFacts that differ");
    for fact in facts.iter().take(ROWS_MAX) {
        line(out, &format!("  {:<24} {} -> {}", fact.fact, shown(&fact.a), shown(&fact.b)));
    }
    if facts.len() > ROWS_MAX {
        line(out, &format!("  {} more", facts.len() - ROWS_MAX));
    }
}
