//! A benchmark's results for people: as text, as Markdown, as CSV. Names and texts come from designs and processes, hence
//! from untrusted sources, and are escaped.

use super::contract::{Benchmark, CellResult, MODE_MARK};
use super::{CellEstimate, metrics};
use analysis::lines::{paragraph, wrapped};
use analysis::text::{digits, escaped, scale, shown};
use archive::runs::LIMITED_BY_MARK;
use experiment::StopReason;
use model::counted;
use stats::median::VALUES_MIN;
use stats::steady::{Class, Consistency, Penalty};
use std::fmt::Write as _;
use workload::http::OPEN_LOOP_MODE;

/// Fewer processes than this are few: the minimum of a run that is not quick.
const FULL_RUN_PROCESSES_MIN: usize = 10;

/// Returns the label for the numbers of a quick run.
fn quick_label(own: &[&CellResult]) -> &'static str {
    match own.iter().map(|r| r.estimate.processes).filter(|n| *n > 0).min() {
        Some(n) if n >= FULL_RUN_PROCESSES_MIN => "quick run: small values; not comparable with full runs",
        _ => "quick run: few processes and small values; not comparable with full runs",
    }
}

/// Formats the results as text.
pub fn text(benchmark: &Benchmark) -> String {
    let mut out = String::new();
    for design in &benchmark.designs {
        let own: Vec<&CellResult> = benchmark.results.iter().filter(|r| r.workload == design.name).collect();
        let _ = writeln!(out, "{}", shown(&design.name));
        paragraph(&mut out, "  ", &shown(&design.question));
        if design.quick {
            paragraph(&mut out, "  ", quick_label(&own));
        }
        out.push('\n');
        let names: Vec<String> = own.iter().map(|r| shown(&r.name)).collect();
        let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
        for (result, name) in own.iter().zip(&names) {
            let _ = writeln!(out, "  {name:<width$}  {}", score_line(result));
            for note in score_notes(result) {
                paragraph(&mut out, &format!("  {:width$}  ", ""), &note);
            }
        }
        out.push('\n');
        paragraph(&mut out, "  ", &end_sentence(benchmark, design));
        out.push('\n');
    }
    for mark in &benchmark.marks {
        wrapped(&mut out, &format!("{}: ", shown(&mark.name)), &shown(&mark.text));
    }
    out
}

fn end_sentence(benchmark: &Benchmark, design: &super::contract::Design) -> String {
    let stopped = design.stopped.as_deref().map(|name| StopReason::from_name(name).ok_or(name));
    let why = match stopped {
        Some(Ok(StopReason::Precision)) => "every interval reached the target".to_string(),
        Some(Ok(StopReason::Budget)) => {
            "the time budget was spent before every interval reached the target (`fathom bench plan` \
            estimates what it takes)"
                .to_string()
        }
        Some(Ok(StopReason::Blocks)) => "the requested number of blocks".to_string(),
        Some(Ok(reason @ StopReason::Nothing)) => reason.name().into(),
        Some(Err(other)) => shown(other),
        None if benchmark.complete => String::new(),
        None => "INTERRUPTED: the run is incomplete".to_string(),
    };
    let target = design.precision.map_or(String::new(), |p| format!(" (target: \u{b1} {} %)", digits(p * 100.0)));
    let penalty = match benchmark.penalty {
        Penalty::Fixed => String::new(),
        Penalty::Elbow => format!("; change-point penalty: {}", benchmark.penalty.name()),
    };
    format!("median of processes with its 95 % interval; {why}{target}; seed {}{penalty}", design.seed)
}

/// Formats the score of a cell as a line.
fn score_line(result: &CellResult) -> String {
    let e = &result.estimate;
    let processes = counted(e.processes, "process");
    match (e.estimate, e.ci95) {
        (Some(value), Some([low, high])) => {
            let half = e.half_width().unwrap_or(f64::INFINITY) * 100.0;
            let class = e.class.map_or(String::new(), |c| format!(", {}", c.name()));
            let (size, unit) = scale(&e.unit, value);
            format!(
                "{} {}  \u{b1} {} %  [{}, {}]  {processes}{class}",
                digits(value / size),
                shown(&unit),
                digits(half),
                digits(low / size),
                digits(high / size)
            )
        }
        (Some(value), None) => {
            format!("{} {}  {processes}: an interval needs {VALUES_MIN}", digits(value), shown(&e.unit))
        }
        _ => why_no_score(e),
    }
}

/// Describes why a cell has no score.
fn why_no_score(e: &CellEstimate) -> String {
    match (&e.absent, e.processes, e.failed) {
        (Some(why), ..) => format!("not run: {}", shown(why)),
        (None, 0, 0) => "no result: no process has finished".into(),
        (None, 0, failed) => format!("no result: {} failed, none succeeded", counted(failed, "process")),
        (None, 1, _) => "no result: one process succeeded, and a score needs two".into(),
        (None, n, _) => format!("no result from {}: their times are too short for a rate", counted(n, "process")),
    }
}

/// Returns the caveats of a score.
fn score_notes(result: &CellResult) -> Vec<String> {
    let e = &result.estimate;
    let mut notes: Vec<String> = metrics::metrics_line(&result.metrics).into_iter().collect();
    // The rate of an open loop is a setting; only the achieved rate is a result.
    let open = result.marks.get(MODE_MARK).and_then(|mode| mode.strip_prefix(OPEN_LOOP_MODE));
    notes.extend(open.map(|mode| {
        let offered = mode.split(';').next().unwrap_or(mode);
        format!("open loop: {} were offered; the score is the rate achieved", shown(offered))
    }));
    // A mark of network runs, if all have the same.
    notes.extend(result.marks.get(LIMITED_BY_MARK).map(|cause| format!("limited by {}", shown(cause))));
    // For a cell that was given up, this is shown instead of its score.
    if e.failed > 0 && (e.estimate.is_some() || e.absent.is_none()) {
        notes.push(format!("{} failed: {}", e.failed, shown(e.failure.as_deref().unwrap_or_default())));
    }
    if e.estimate.is_some() && e.absent.is_some() {
        notes.push(format!("stopped early: {}", shown(e.absent.as_deref().unwrap_or_default())));
    }
    if let Some(class) = e.class.filter(|c| *c != Consistency::Consistent(Class::Flat)) {
        let of = |first: f64| {
            let (size, unit) = scale(&e.unit, first);
            format!("; first iteration: {} {}", digits(first / size), shown(&unit))
        };
        let first = e.first.map_or(String::new(), of);
        let means = match class {
            Consistency::Consistent(Class::Warmup) => "iterations before the steady state are excluded",
            Consistency::Consistent(Class::Slowdown) => "it slows down; iterations before that are excluded",
            Consistency::Consistent(Class::NoSteadyState) => "no steady state; all iterations are included",
            _ => "processes differ in how they reach the steady state",
        };
        notes.push(format!("{means}{first}"));
    }
    if e.outliers > 0 {
        notes.push(format!(
            "{} of {} are outliers, up to {} % of a process's time; they are included",
            e.outliers,
            counted(e.iterations, "iteration"),
            digits(e.outlier_share * 100.0)
        ));
    }
    notes.extend(e.machine_notes());
    if e.verified != Some(true) && e.processes > 0 {
        notes.push("not every process verified its result".into());
    }
    if let Some(why) = &result.why {
        notes.push(match (&why.failure, &why.operation) {
            (Some(failure), _) => format!("why: not recorded: {}", shown(failure)),
            (None, operation) => {
                let mut layers: Vec<(&String, f64)> = why.layers.iter().map(|(l, s)| (l, *s)).collect();
                layers.sort_by(|a, b| b.1.total_cmp(&a.1));
                let shares: Vec<String> = layers
                    .iter()
                    .filter(|(_, s)| *s >= 0.005)
                    .map(|(l, s)| format!("{l} {:.0} %", s * 100.0))
                    .collect();
                format!("why: {}: {}", shown(operation.as_deref().unwrap_or("")), shares.join(", "))
            }
        });
    }
    notes
}

/// Formats the results as a section of a Markdown page.
pub fn markdown(benchmark: &Benchmark) -> String {
    let mut out = String::new();
    for design in &benchmark.designs {
        let _ = writeln!(out, "## {}\n\n{}\n", escaped(&design.name), escaped(&design.question));
        let own: Vec<&CellResult> = benchmark.results.iter().filter(|r| r.workload == design.name).collect();
        if design.quick {
            let _ = writeln!(out, "**{}**\n", quick_label(&own));
        }
        out.push_str("| | score | unit | \u{b1} % | 95 % interval | processes | class | |\n|---|---:|---|---:|---:|---:|---|---|\n");
        for result in own {
            let e = &result.estimate;
            let (size, unit) = scale(&e.unit, e.estimate.unwrap_or(0.0));
            let score = e.estimate.map_or(String::new(), |value| digits(value / size));
            let half = e.half_width().map_or(String::new(), |half| digits(half * 100.0));
            let interval = e
                .ci95
                .map_or(String::new(), |[low, high]| format!("{} to {}", digits(low / size), digits(high / size)));
            let mut notes = score_notes(result);
            if e.estimate.is_none() {
                notes.push(why_no_score(e));
            }
            let _ = writeln!(
                out,
                "| {} | {} | {} | {half} | {interval} | {} | {} | {} |",
                escaped(&result.name),
                score,
                escaped(&unit),
                e.processes,
                e.class.map_or("", Consistency::name),
                escaped(&notes.join("; "))
            );
        }
        let _ = writeln!(out, "\n{}.\n", escaped(&end_sentence(benchmark, design)));
    }
    out
}

/// Formats the results as CSV (RFC 4180): one line per cell, its parameters as JSON.
pub fn csv(benchmark: &Benchmark) -> String {
    let mut out = String::from(
        "workload,name,parameters,unit,estimate,low,high,class,processes,failed,iterations,outliers,first,verified,quick,complete,absent\r\n",
    );
    for r in &benchmark.results {
        let e = &r.estimate;
        let number = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
        let parameters = serde_json::to_string(&r.parameters).unwrap_or_default();
        let design = benchmark.designs.iter().find(|d| d.name == r.workload);
        let row = [
            r.workload.clone(),
            r.name.clone(),
            parameters,
            e.unit.clone(),
            number(e.estimate),
            number(e.ci95.map(|c| c[0])),
            number(e.ci95.map(|c| c[1])),
            e.class.map_or("", Consistency::name).to_owned(),
            e.processes.to_string(),
            e.failed.to_string(),
            e.iterations.to_string(),
            e.outliers.to_string(),
            number(e.first),
            e.verified.map_or(String::new(), |v| v.to_string()),
            r.quick.to_string(),
            design.is_some_and(|d| d.stopped.is_some()).to_string(),
            e.absent.clone().unwrap_or_default(),
        ];
        out.push_str(&row.map(|text| csv_field(&text)).join(","));
        out.push_str("\r\n");
    }
    out
}

/// Formats a field of CSV. A text that a spreadsheet would evaluate as a formula gets an apostrophe; a number does not.
fn csv_field(text: &str) -> String {
    let text = shown(text);
    let formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
    let text = if formula { format!("'{text}") } else { text };
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Design, Why};
    use crate::gates::GateState;
    use std::collections::BTreeMap;

    fn benchmark() -> Benchmark {
        let estimate = CellEstimate {
            cell: 0,
            unit: "row/s".into(),
            estimate: Some(1000.0),
            ci95: Some([980.0, 1030.0]),
            method: "t".into(),
            class: Some(Consistency::Consistent(Class::Warmup)),
            processes: 5,
            left_out: 0,
            failed: 1,
            failure: Some("it died\u{1b}[31m".into()),
            first: Some(500.0),
            iterations: 100,
            outliers: 2,
            outlier_share: 0.07,
            gates: BTreeMap::from([("load".into(), BTreeMap::from([(GateState::Failed, 2), (GateState::Passed, 3)]))]),
            verified: Some(true),
            verified_by: None,
            absent: None,
        };
        let why = Why {
            archive: "why/w-0.fathom".into(),
            failure: None,
            operation: Some("INSERT".into()),
            layers: BTreeMap::from([("Driver".into(), 0.6), ("Block".into(), 0.001), ("Database".into(), 0.399)]),
        };
        let result = CellResult {
            workload: "w".into(),
            name: "op=insert".into(),
            parameters: BTreeMap::from([("op".into(), "=insert,\"x\"".into())]),
            better: Some("higher".into()),
            quick: true,
            estimate,
            marks: BTreeMap::new(),
            metrics: BTreeMap::new(),
            why: Some(why),
        };
        let mut absent = result.clone();
        absent.name = "op=|select".into();
        absent.why = None;
        absent.estimate = CellEstimate {
            estimate: None,
            ci95: None,
            class: None,
            processes: 0,
            failed: 0,
            outliers: 0,
            gates: BTreeMap::new(),
            absent: Some("java is not installed".into()),
            ..absent.estimate
        };
        Benchmark {
            version: 1,
            complete: true,
            quick: true,
            penalty: Penalty::default(),
            designs: vec![Design {
                name: "w".into(),
                question: "How fast?".into(),
                seed: 9,
                quick: true,
                stopped: Some("budget".into()),
                precision: Some(0.02),
                figures: Vec::new(),
            }],
            results: vec![result, absent],
            marks: Vec::new(),
            environment: BTreeMap::new(),
        }
    }

    #[test]
    fn text_shows_score_and_notes() {
        insta::assert_snapshot!(text(&benchmark()));
    }

    #[test]
    fn a_cell_without_a_score_says_why() {
        let mut b = benchmark();
        let e = &mut b.results[0].estimate;
        (e.estimate, e.ci95, e.processes, e.failed) = (None, None, 0, 0);
        assert!(text(&b).contains("no process has finished") && markdown(&b).contains("has finished"));
        b.results[0].estimate.failed = 1;
        assert!(text(&b).contains("no result: 1 process failed"), "{}", text(&b));
        b.results[0].estimate.processes = 1;
        assert!(text(&b).contains("a score needs two"), "{}", text(&b));
        let e = &mut b.results[0].estimate;
        (e.estimate, e.processes) = (Some(7.0), 2);
        assert!(text(&b).contains("7.00 row/s  2 processes: an interval needs 5"), "{}", text(&b));
    }

    #[test]
    fn the_common_limit_of_network_runs_is_shown_with_the_score() {
        let mut b = benchmark();
        assert!(!text(&b).contains("limited by"));
        b.results[0].marks.insert(LIMITED_BY_MARK.into(), "link rate".into());
        assert!(text(&b).contains("limited by link rate"), "{}", text(&b));
    }

    #[test]
    fn an_open_loop_shows_the_offered_and_the_achieved_rate() {
        let mut b = benchmark();
        b.results[0].marks.insert("mode".into(), "open loop, 500 requests a second; 1 connections".into());
        assert!(text(&b).contains("open loop: 500 requests a second were offered;"), "{}", text(&b));
    }

    #[test]
    fn a_quick_run_with_many_processes_is_not_called_few() {
        let mut b = benchmark();
        b.results[0].estimate.processes = 40;
        assert!(text(&b).contains("quick run: small values;") && !markdown(&b).contains("few processes"));
    }

    #[test]
    fn markdown_labels_a_quick_run_and_escapes_its_table() {
        let page = markdown(&benchmark());
        assert!(page.contains("**quick run") && page.contains("| op=\\|select |"));
        let bars = |l: &str| l.replace("\\|", "").matches('|').count();
        assert!(page.lines().filter(|l| l.starts_with('|')).all(|l| bars(l) == 9), "{page}");
    }

    #[test]
    fn csv_has_one_line_per_cell_and_no_formulas() {
        let csv = csv(&benchmark());
        let lines: Vec<&str> = csv.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1].starts_with(r#"w,op=insert,"{""op"":""=insert,\""x\""""}",row/s,1000,980,1030,warmup,5,1,"#),
            "{csv}"
        );
        assert_eq!((csv_field("=1+1").as_str(), csv_field("-5").as_str()), ("'=1+1", "-5"));
    }
}
