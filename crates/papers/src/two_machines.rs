//! The papers' figures for two machines, a host and a device, side by side: each cell's score on both, and its ratio.
//!
//! A figure of a benchmark compares cells with the same parameters, and bytecode in corresponding modes: a JVM's interpreter with
//! ART's, its tiered compiler with ART's JIT. What was measured on only one of them is shown without a ratio.

use super::Figure as Recorded;
use analysis::text::{digits, escaped, scale, shown};
use model::Environment;
use model::words::is_emulated;
use scores::comparability::Rules;
use scores::compare::{self, Pair};
use scores::figure::{Bar, Figure};
use scores::figures;
use scores::results::{Bench, factor_words};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Modes of bytecode that correspond: a JVM's and ART's.
const CORRESPONDING_MODES: [[&str; 2]; 2] = [["jvm-int", "art-interpreter"], ["jvm-tiered", "art-jit"]];

/// One of the two machines.
#[derive(Debug)]
pub struct Machine {
    /// Name given by the user.
    pub name: String,
    /// Its measurements, or why there are none.
    pub bench: Result<Bench, String>,
    /// The figures of its recording, or why there is none.
    pub recorded: Result<Vec<Recorded>, String>,
    /// Measurements of the papers' networks: of the device as a node and as an end; of the host with networks emulated on one
    /// machine; or why there are none.
    pub network: Result<Bench, String>,
    /// Facts about it.
    pub facts: Environment,
}

impl Machine {
    /// A fact's value.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name)?.value.as_deref()
    }

    /// Whether its processor is emulated in software.
    pub fn is_emulated(&self) -> bool {
        is_emulated(&self.facts)
    }

    /// Describes the machine in a line.
    pub fn description(&self) -> String {
        let all = [
            ("", "device.model"),
            ("Android ", "os.release"),
            ("kernel ", "kernel.release"),
            ("processor ", "cpu.model"),
            ("file system ", "fs.type"),
            ("disk ", "disk.name"),
        ];
        let mut known: Vec<String> =
            all.iter().filter_map(|(what, name)| Some(format!("{what}{}", escaped(self.fact(name)?)))).collect();
        if self.is_emulated() {
            known.push("emulated by QEMU's TCG, so that its times are no speed".into());
        }
        if known.is_empty() { "nothing is known of it".into() } else { known.join(", ") }
    }
}

/// Returns the cells of both, with the ratio device / host.
pub fn pair_cells(host: &Machine, device: &Machine) -> Vec<Pair> {
    let (Ok(a), Ok(b)) = (&host.bench, &device.bench) else { return Vec::new() };
    let rules = Rules { better: None, other_commands: true };
    let mut all = compare::compare_archives(a, b, &rules).results;
    for modes in CORRESPONDING_MODES {
        // An error means that one of the two has no such cell: then there is no pair.
        all.extend(compare::compare_across(a, b, "mode", modes, &rules).map(|c| c.results).unwrap_or_default());
    }
    // Latencies are separate scores, and not part of a figure. A cell without a result on one machine is not a pair.
    all.retain(|pair| pair.score.is_none() && pair.a.estimate.is_some() && pair.b.estimate.is_some());
    all
}

/// Formats the figures of benchmarks that satisfy `wanted`, one table each.
pub fn benchmark_figures(host: &Machine, device: &Machine, pairs: &[Pair], wanted: &dyn Fn(&Figure) -> bool) -> String {
    let of = |machine: &Machine| -> Vec<Figure> {
        machine
            .bench
            .as_ref()
            .map(|b| figures::figures(b).into_iter().filter(|f| wanted(f)).collect())
            .unwrap_or_default()
    };
    let (a, b) = (of(host), of(device));
    let mut out = String::new();
    for (machine, why) in [host, device].iter().filter_map(|m| Some((m, m.bench.as_ref().err()?))) {
        let _ = writeln!(out, "No benchmark of {}: {}.\n", escaped(&machine.name), escaped(why));
    }
    let mut seen = BTreeSet::new();
    for figure in a.iter().chain(&b).filter(|f| seen.insert((f.paper, f.figure))) {
        let same = |all: &[Figure]| -> Vec<Bar> {
            let found = all.iter().find(|f| (f.paper, f.figure) == (figure.paper, figure.figure));
            found.map(|f| f.bars.clone()).unwrap_or_default()
        };
        push_figure(&mut out, figure, [same(&a), same(&b)], [host, device], pairs);
    }
    out
}

fn push_figure(out: &mut String, figure: &Figure, sides: [Vec<Bar>; 2], machines: [&Machine; 2], pairs: &[Pair]) {
    let _ = writeln!(out, "### {} figure {}: {}\n", figure.paper, figure.figure, figure.title);
    if !figure.says.is_empty() {
        let _ = writeln!(out, "The paper: {}.\n", figure.says);
    }
    let common = common_words(sides.iter().flatten().map(|b| b.label.as_str()));
    if !common.is_empty() {
        let _ = writeln!(out, "All with {}:\n", escaped(&common.join(" ")));
    }
    let names = machines.map(|m| escaped(&m.name));
    let _ = writeln!(out, "| cell | {} | {} | unit | device / host | |", names[0], names[1]);
    out.push_str("|---|---:|---:|---|---:|---|\n");
    let mut labels: Vec<(&str, &str)> = Vec::new();
    for bar in sides.iter().flatten() {
        if !labels.contains(&(&bar.workload, &bar.label)) {
            labels.push((&bar.workload, &bar.label));
        }
    }
    for (workload, label) in labels {
        let bars = [0, 1]
            .map(|i: usize| sides[i].iter().find(|b| (b.workload.as_str(), b.label.as_str()) == (workload, label)));
        let unit = bars.iter().flatten().find(|b| !b.unit.is_empty());
        let largest = bars.iter().flatten().filter_map(|b| b.estimate).fold(0.0, f64::max);
        let (size, unit) = scale(unit.map_or("", |b| b.unit.as_str()), largest);
        let values = bars.map(|bar| bar.map_or_else(|| "not measured".into(), |bar| format_bar(bar, size)));
        let pair = pairs.iter().find(|p| p.levels.is_none() && p.workload == workload && has_label(p, label));
        let mut notes: Vec<String> = Vec::new();
        for note in
            pair.map(|p| p.verdict.to_string()).into_iter().chain(bars.iter().flatten().flat_map(|b| b.notes.clone()))
        {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        let own: Vec<&str> = label.split(' ').filter(|w| !common.contains(w)).collect();
        push_row(
            out,
            &[
                own.join(" "),
                values[0].clone(),
                values[1].clone(),
                unit,
                pair.map_or_else(String::new, format_ratio),
                notes.join("; "),
            ],
        );
    }
    let workloads: BTreeSet<&str> = sides.iter().flatten().map(|b| b.workload.as_str()).collect();
    for pair in pairs.iter().filter(|p| p.levels.is_some() && workloads.contains(p.workload.as_str())) {
        let (size, unit) = scale(&pair.unit, pair.a.estimate.unwrap_or(0.0).max(pair.b.estimate.unwrap_or(0.0)));
        let of = |x: Option<f64>| x.map_or_else(|| "none".into(), |x| digits(x / size));
        push_row(
            out,
            &[
                pair.title(),
                of(pair.a.estimate),
                of(pair.b.estimate),
                unit,
                format_ratio(pair),
                pair.verdict.to_string(),
            ],
        );
    }
    out.push('\n');
}

/// Returns what several labels have in common, which is shown once.
fn common_words<'a>(labels: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let all: BTreeSet<&str> = labels.collect();
    match all.first() {
        Some(first) if all.len() > 1 => {
            first.split(' ').filter(|word| all.iter().all(|label| label.split(' ').any(|w| w == *word))).collect()
        }
        _ => Vec::new(),
    }
}

fn push_row(out: &mut String, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|c| escaped(c)).collect();
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

fn has_label(pair: &Pair, label: &str) -> bool {
    let own = factor_words(&pair.parameters);
    label == own || label.strip_prefix(pair.workload.as_str()).is_some_and(|rest| rest.trim_start() == own)
}

fn format_bar(bar: &Bar, size: f64) -> String {
    match (bar.estimate, bar.ci95) {
        (Some(x), Some([low, high])) => {
            format!("{} ({} to {})", digits(x / size), digits(low / size), digits(high / size))
        }
        (Some(x), None) => digits(x / size),
        _ => "none".into(),
    }
}

/// Formats the ratio of the scores, with its interval.
pub fn format_ratio(pair: &Pair) -> String {
    match (pair.ratio, pair.ratio_ci95) {
        (Some(x), Some([low, high])) => format!("{} ({} to {})", digits(x), digits(low), digits(high)),
        (Some(x), None) => digits(x),
        _ => String::new(),
    }
}

/// Explains why a workload has no pair: for each machine, the reasons of the cells that it could not measure.
pub fn why_unpaired(machines: [&Machine; 2], workloads: &[&str]) -> String {
    let mut why: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for machine in machines {
        let bench = match &machine.bench {
            Ok(bench) => bench,
            Err(reason) => {
                why.entry(reason.clone()).or_default().insert(machine.name.clone());
                continue;
            }
        };
        for m in bench.measured_cells().iter().filter(|m| workloads.contains(&m.design.name.as_str())) {
            let reason = m.estimate.absent.clone().or_else(|| m.estimate.failure.clone());
            if let Some(reason) = reason.filter(|_| m.estimate.estimate.is_none()) {
                why.entry(shown(&reason)).or_default().insert(machine.name.clone());
            }
        }
    }
    if why.is_empty() {
        return format!("no cell of {} has a score on both", workloads.join(", "));
    }
    let all: Vec<String> = why
        .iter()
        .take(3)
        .map(|(reason, on)| format!("on {}: {reason}", on.iter().cloned().collect::<Vec<_>>().join(" and ")))
        .collect();
    all.join("; ")
}
