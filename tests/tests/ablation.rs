//! Truth by ablation: programs and perturbations are drawn from a grammar, and the account of `explain` is compared with what the same
//! program takes untraced without the perturbation. No list of causes is consulted: a perturbation is known by the part of the account that
//! must hold it, and by its size.
//!
//! A draw is a hit if the part that holds the perturbation is the largest, and if the time by which it grew is within 15 % of the untraced
//! difference, or inside the part's own interval. The long case draws more, and writes all misses, the worst first, to ABLATION_OUTPUT.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, ext4, fathom, installed, raise_priority, record, root, run, run_suite};
use model::Reason;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/ablation.py");
/// How far the size may be off, as a fraction of the truth.
const SIZE_ERROR_MAX: f64 = 0.15;
/// A perturbation that costs less of its program is not counted.
const COST_MIN: f64 = 0.1;
/// Untraced pairs of a draw: their median is the truth.
const PAIRS: usize = 3;

/// A perturbation, and the reasons and waits of the parts of the account that may hold it.
struct Perturbation {
    name: &'static str,
    holds: fn(&Value) -> bool,
    /// Whether its time is in no operation.
    outside: bool,
}

fn is(leaf: &Value, key: &str, names: &[&str]) -> bool {
    leaf[key].as_str().is_some_and(|name| names.contains(&name))
}

/// What a sync takes: the device, the journal, the kernel's work for both, and waiting for a processor after each of its sleeps.
fn is_of_sync(leaf: &Value) -> bool {
    is(leaf, "reason", &["flush", "journal", "device", "queue"])
        || is_run_queue(leaf)
        || is(leaf, "wait", &["journal commit", "journal transaction", "page writeback", "request tag"])
        || is(leaf, "call", &["fsync", "fdatasync", "sync"])
}

/// Who computes also waits for a processor, on a machine that others use too.
fn is_of_computing(leaf: &Value) -> bool {
    is(leaf, "reason", &["cpu"]) && is(leaf, "layer", &["App", "Database"]) || is_run_queue(leaf)
}

fn is_run_queue(leaf: &Value) -> bool {
    is(leaf, "reason", &[Reason::RunQueue.name()])
}

const PERTURBATIONS: [Perturbation; 8] = [
    Perturbation { name: "sleep", holds: |leaf| is(leaf, "wait", &["timer"]), outside: false },
    Perturbation { name: "thread_lock", holds: |leaf| is(leaf, "wait", &["futex"]), outside: false },
    Perturbation { name: "pipe", holds: |leaf| is(leaf, "wait", &["pipe"]), outside: false },
    Perturbation { name: "lock", holds: |leaf| is(leaf, "wait", &["fcntl lock"]), outside: false },
    Perturbation { name: "compute", holds: is_of_computing, outside: false },
    Perturbation { name: "outside", holds: |leaf| leaf["reason"].is_null(), outside: true },
    Perturbation { name: "fsync", holds: is_of_sync, outside: false },
    Perturbation { name: "pragma", holds: is_of_sync, outside: false },
];

/// The first ones wait for a time that the program sets: no load of the machine moves their parts.
const STEADY: usize = 4;

/// The result of a draw.
struct Draw {
    name: &'static str,
    seed: u64,
    /// The difference of the untraced runs, and how much the parts grew.
    truth_ns: f64,
    found_ns: f64,
    /// What the perturbation costs, relative to the program without it.
    cost: f64,
    is_first: bool,
    in_interval: bool,
    first: String,
}

impl Draw {
    fn error(&self) -> f64 {
        (self.found_ns / self.truth_ns - 1.0).abs()
    }

    fn is_sized(&self) -> bool {
        self.error() <= SIZE_ERROR_MAX || self.in_interval
    }
}

fn argv(directory: &Path, seed: u64, cause: &str) -> Vec<String> {
    ["python3", PROGRAM, &directory.to_string_lossy(), &seed.to_string(), cause].map(str::to_string).to_vec()
}

fn untraced_seconds(directory: &Path, seed: u64, cause: &str) -> Result<f64> {
    let words = argv(directory, seed, cause);
    let done = run(Command::new(&words[0]).args(&words[1..]))?;
    String::from_utf8_lossy(&done.stdout).trim().parse().context("the program prints its seconds")
}

fn explained(archives: &Path, directory: &Path, seed: u64, cause: &str) -> Result<Value> {
    let words = argv(directory, seed, cause);
    let archive = record(archives, &[], &words.iter().map(String::as_str).collect::<Vec<_>>())?;
    let done = run(Command::new(fathom()).arg("explain").arg(&archive).arg("--json"))?;
    std::fs::remove_dir_all(&archive)?;
    serde_json::from_slice(&done.stdout).context("explain --json")
}

/// Returns the parts of the account, of operations or of the rest, with the time that their shares are of.
fn parts(explanation: &Value, outside: bool) -> (&Vec<Value>, f64) {
    static NONE: Vec<Value> = Vec::new();
    let of = &explanation[if outside { "between" } else { "account" }];
    (of["leaves"].as_array().unwrap_or(&NONE), of["whole_ns"].as_f64().unwrap_or(0.0))
}

fn held(explanation: &Value, perturbation: &Perturbation) -> f64 {
    let (leaves, _) = parts(explanation, perturbation.outside);
    leaves.iter().filter(|leaf| (perturbation.holds)(leaf)).filter_map(|leaf| leaf["ns"].as_f64()).sum()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn draw(directory: &Path, archives: &Path, perturbation: &Perturbation, seed: u64) -> Result<Draw> {
    let (mut differences, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let without = untraced_seconds(directory, seed, "none")?;
        let difference = untraced_seconds(directory, seed, perturbation.name)? - without;
        differences.push(difference);
        costs.push(difference / without);
    }
    let truth_ns = 1e9 * median(differences);
    let base = explained(archives, directory, seed, "none")?;
    let with = explained(archives, directory, seed, perturbation.name)?;
    let found_ns = held(&with, perturbation) - held(&base, perturbation);
    let (leaves, whole_ns) = parts(&with, perturbation.outside);
    let holding: Vec<&Value> = leaves.iter().filter(|leaf| (perturbation.holds)(leaf)).collect();
    let ends = |at: usize| holding.iter().filter_map(|leaf| leaf["interval"][at].as_f64()).sum::<f64>() * whole_ns;
    let base_ns = held(&base, perturbation);
    Ok(Draw {
        name: perturbation.name,
        seed,
        truth_ns,
        found_ns,
        cost: median(costs),
        is_first: leaves.first().is_some_and(perturbation.holds),
        in_interval: !holding.is_empty() && (ends(0) - base_ns..=ends(1) - base_ns).contains(&truth_ns),
        first: leaves.first().and_then(|leaf| leaf["what"].as_str()).unwrap_or("nothing").into(),
    })
}

fn draws(of: &[Perturbation], seeds: std::ops::Range<u64>) -> Result<Vec<Draw>> {
    // Both the untraced runs and the recorded ones, so that waiting for a processor is no perturbation of its own.
    raise_priority();
    let disk = ext4()?;
    let archives = tempfile::tempdir()?;
    let each = seeds.flat_map(|seed| of.iter().map(move |perturbation| (perturbation, seed)));
    each.map(|(perturbation, seed)| draw(disk.path(), archives.path(), perturbation, seed)).collect()
}

/// What is slept for, or held by another thread or process, is the first part of the account, and as long as it really was.
fn waits_are_first_and_sized() -> Result<()> {
    for draw in draws(&PERTURBATIONS[..STEADY], 1..2)? {
        let Draw { name, seed, truth_ns, found_ns, first, .. } = &draw;
        ensure!(draw.is_first, "{name}, seed {seed}: the first part {first}");
        ensure!(draw.is_sized(), "{name}, seed {seed}: {found_ns} ns found, {truth_ns} ns true");
    }
    Ok(())
}

/// Formats the hits as a table, and every miss, the worst first.
fn page(draws: &[Draw]) -> String {
    let (draws, small): (Vec<&Draw>, Vec<&Draw>) = draws.iter().partition(|draw| draw.cost >= COST_MIN);
    let mut out = String::from("| perturbation | draws | first | sized | median error |\n|---|---|---|---|---|\n");
    for perturbation in &PERTURBATIONS {
        let own: Vec<&Draw> = draws.iter().copied().filter(|draw| draw.name == perturbation.name).collect();
        if own.is_empty() {
            let _ = writeln!(out, "| {} | 0 | | | |", perturbation.name);
            continue;
        }
        let count = |is: fn(&Draw) -> bool| own.iter().filter(|draw| is(draw)).count();
        let error = median(own.iter().map(|draw| draw.error()).collect());
        let (first, sized) = (count(|draw| draw.is_first), count(Draw::is_sized));
        let _ = writeln!(out, "| {} | {} | {first} | {sized} | {:.0} % |", perturbation.name, own.len(), 100.0 * error);
    }
    let _ = writeln!(
        out,
        "\nDraws whose perturbation cost less than a tenth of the program, which are not counted: {}.",
        small.len()
    );
    let mut misses: Vec<&Draw> = draws.iter().copied().filter(|draw| !draw.is_first || !draw.is_sized()).collect();
    misses.sort_by(|a, b| a.is_first.cmp(&b.is_first).then(b.error().total_cmp(&a.error())));
    out.push_str("\nMisses, the worst first:\n\n");
    for Draw { name, seed, truth_ns, found_ns, first, .. } in misses {
        let [truth, found] = [truth_ns, found_ns].map(|ns| ns / 1e6);
        let _ = writeln!(out, "- {name}, seed {seed}: {truth:.1} ms true, {found:.1} ms found; the first part {first}");
    }
    out
}

/// All perturbations: the hits are counted, and no more than a fifth of the draws may have another first part.
fn drawn_perturbations_are_first() -> Result<()> {
    let all = draws(&PERTURBATIONS, 10..12)?;
    let page = page(&all);
    println!("{page}");
    if let Some(path) = std::env::var_os("ABLATION_OUTPUT") {
        std::fs::write(path, &page)?;
    }
    let counted: Vec<&Draw> = all.iter().filter(|draw| draw.cost >= COST_MIN).collect();
    let first = counted.iter().filter(|draw| draw.is_first).count();
    ensure!(5 * first >= 4 * counted.len(), "{first} of {} are first:\n{page}", counted.len());
    Ok(())
}

fn main() -> ExitCode {
    let needs = || root().and_then(|()| installed("python3"));
    let cases: Vec<Case> = vec![
        ("waits_are_first_and_sized", needs(), waits_are_first_and_sized),
        ("long::drawn_perturbations_are_first", needs(), drawn_perturbations_are_first),
    ];
    run_suite(cases)
}
