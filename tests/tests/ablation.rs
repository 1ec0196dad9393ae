//! Truth by ablation: programs and perturbations are drawn from a grammar, and the account of `explain` is compared with what the same
//! program takes untraced without the perturbation. No list of causes is consulted: a perturbation is known by the part of the account that
//! must hold it, and by its size.
//!
//! A draw is a hit if the part that holds the perturbation is the largest, and if the time by which it grew is within 15 % of what the
//! program's own clock says of that run (of the untraced difference, where the program cannot time it), or inside the part's own interval. How long a thread waits for a processor depends on who else uses the machine, in each run
//! anew; so truth and ranking are without that time, which the kernel counts for each thread (schedstat), except where it is the
//! perturbation. The long cases draw more, and write all misses, the worst first, to ABLATION_OUTPUT.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, ext4, fathom, installed, raise_priority, root, run, run_suite};
use model::{Reason, Wait};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/ablation.py");
/// How far the size may be off, as a fraction of the truth.
const SIZE_ERROR_MAX: f64 = 0.15;
/// A perturbation that costs less of its program is not counted.
const COST_MIN: f64 = 0.1;
/// Untraced pairs of a draw: their median is the truth. As many are recorded, if the machine's load moves the part.
const PAIRS: usize = 3;

/// What is done to a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// What the program does itself, by this name.
    Own(&'static str),
    /// It computes, in a cgroup with this part of a processor, percent.
    Quota(u32),
    /// It computes, on one processor with as many others that do.
    Neighbours(usize),
}

/// A perturbation, and the reasons and waits of the parts of the account that may hold it.
struct Perturbation {
    name: &'static str,
    cause: Cause,
    /// The same program without it.
    base: Cause,
    holds: fn(&Value) -> bool,
    /// Whether its time is in no operation.
    is_outside: bool,
    /// The program sets how long it takes: no load of the machine moves it.
    is_steady: bool,
}

const NONE: Cause = Cause::Own("none");

const fn own(name: &'static str, holds: fn(&Value) -> bool) -> Perturbation {
    Perturbation { name, cause: Cause::Own(name), base: NONE, holds, is_outside: false, is_steady: false }
}

const fn steady(name: &'static str, holds: fn(&Value) -> bool) -> Perturbation {
    Perturbation { is_steady: true, ..own(name, holds) }
}

fn is(leaf: &Value, key: &str, names: &[&str]) -> bool {
    leaf[key].as_str().is_some_and(|name| names.contains(&name))
}

/// What a sync takes: the device, the journal, and the kernel's work for both.
fn is_of_sync(leaf: &Value) -> bool {
    is(leaf, "reason", &["flush", "journal", "device", "queue"])
        || is(leaf, "wait", &["journal commit", "journal transaction", "page writeback", "request tag"])
        || is(leaf, "call", &["fsync", "fdatasync", "sync"])
}

fn is_of_reading(leaf: &Value) -> bool {
    is(leaf, "reason", &["device", "queue"]) || is(leaf, "call", &["pread64", "read"])
}

fn is_of_computing(leaf: &Value) -> bool {
    is(leaf, "reason", &["cpu"]) && is(leaf, "layer", &["App", "Database"])
}

fn is_run_queue(leaf: &Value) -> bool {
    is(leaf, "reason", &[Reason::RunQueue.name()]) || is(leaf, "wait", &[Wait::CpuQuota.name()])
}

const PERTURBATIONS: [Perturbation; 11] = [
    steady("sleep", |leaf| is(leaf, "wait", &["timer"])),
    steady("thread_lock", |leaf| is(leaf, "wait", &["futex"])),
    steady("pipe", |leaf| is(leaf, "wait", &["pipe"])),
    steady("lock", |leaf| is(leaf, "wait", &["fcntl lock"])),
    Perturbation { is_outside: true, ..steady("outside", |leaf| is(leaf, "wait", &["timer"])) },
    own("compute", is_of_computing),
    own("fsync", is_of_sync),
    own("pragma", is_of_sync),
    own("cold", is_of_reading),
    Perturbation { cause: Cause::Quota(40), base: Cause::Own("compute"), ..own("quota", is_run_queue) },
    Perturbation { cause: Cause::Neighbours(2), base: Cause::Own("compute"), ..own("neighbour", is_run_queue) },
];

/// The first ones are steady.
const STEADY: usize = 5;

/// The result of a draw.
struct Draw {
    name: &'static str,
    seed: u64,
    /// The difference of the untraced runs, and how much the parts grew.
    truth_ns: f64,
    found_ns: f64,
    /// What the perturbation took in the recorded run, by the program's own clock; 0: not known.
    taken_ns: f64,
    /// What the perturbation costs, relative to the program without it.
    cost: f64,
    is_first: bool,
    in_interval: bool,
    first: String,
}

impl Draw {
    /// Relative to the same run's own clock, where that measured it; otherwise to the untraced runs.
    fn error(&self) -> f64 {
        let true_ns = if self.taken_ns > 0.0 { self.taken_ns } else { self.truth_ns };
        (self.found_ns / true_ns - 1.0).abs()
    }

    fn untraced_error(&self) -> f64 {
        (self.found_ns / self.truth_ns - 1.0).abs()
    }

    fn is_sized(&self) -> bool {
        self.error() <= SIZE_ERROR_MAX || self.in_interval
    }
}

/// Where programs run and are recorded.
struct Place<'a> {
    python: String,
    disk: &'a Path,
    archives: &'a Path,
}

/// What a cause needs around the program, as long as it runs.
#[derive(Default)]
struct Around {
    neighbours: Vec<Child>,
    cgroup: Option<PathBuf>,
}

impl Drop for Around {
    fn drop(&mut self) {
        for child in &mut self.neighbours {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(cgroup) = &self.cgroup {
            let _ = std::fs::remove_dir(cgroup);
        }
    }
}

/// The interpreter itself: what is found first may be a script that starts it, with processes of its own.
fn python() -> Result<String> {
    let said = run(Command::new("python3").args(["-c", "import sys; print(sys.executable)"]))?;
    Ok(String::from_utf8(said.stdout)?.trim().to_string())
}

/// Prepares a run; returns its command line.
fn prepare(place: &Place, seed: u64, cause: Cause) -> Result<(Vec<String>, Around)> {
    let name = match cause {
        Cause::Own(name) => name,
        Cause::Quota(_) | Cause::Neighbours(_) => "compute",
    };
    let mut argv =
        [&place.python, PROGRAM, &place.disk.to_string_lossy(), &seed.to_string(), name].map(str::to_string).to_vec();
    let mut around = Around::default();
    let within = |argv: Vec<String>, what: &str| {
        ["sh", "-c", what, "sh"].map(str::to_string).into_iter().chain(argv).collect::<Vec<_>>()
    };
    match cause {
        Cause::Own(_) => {}
        Cause::Quota(percent) => {
            const PERIOD_US: u32 = 20_000;
            let one = Path::new("/sys/fs/cgroup/cpu");
            let root = if one.exists() { one } else { Path::new("/sys/fs/cgroup") };
            let cgroup = root.join(format!("ablation{}", std::process::id()));
            std::fs::create_dir_all(&cgroup)?;
            around.cgroup = Some(cgroup.clone());
            let quota_us = PERIOD_US * percent / 100;
            if one.exists() {
                std::fs::write(cgroup.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
                std::fs::write(cgroup.join("cpu.cfs_quota_us"), quota_us.to_string())?;
            } else {
                let _ = std::fs::write(root.join("cgroup.subtree_control"), "+cpu");
                std::fs::write(cgroup.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?;
            }
            argv = within(argv, &format!("echo $$ > {}/cgroup.procs; exec \"$@\"", cgroup.display()));
        }
        Cause::Neighbours(count) => {
            for _ in 0..count {
                around.neighbours.push(Command::new("taskset").args(["1", "sh", "-c", "while :; do :; done"]).spawn()?);
            }
            argv = ["taskset", "1"].map(str::to_string).into_iter().chain(argv).collect();
        }
    }
    Ok((argv, around))
}

/// What a program prints of itself, ns.
struct OwnTimes {
    whole: f64,
    /// The part in which it waited for a processor.
    waited: f64,
    /// What its perturbation took of the rest.
    taken: f64,
}

fn own_times(printed: &[u8]) -> Result<OwnTimes> {
    let said = String::from_utf8_lossy(printed);
    let seconds: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [whole, waited, taken] = seconds[..] else { anyhow::bail!("the program prints its times, not {said:?}") };
    Ok(OwnTimes { whole: 1e9 * whole, waited: 1e9 * waited, taken: 1e9 * taken })
}

fn untraced(place: &Place, seed: u64, cause: Cause) -> Result<OwnTimes> {
    let (words, _around) = prepare(place, seed, cause)?;
    own_times(&run(Command::new(&words[0]).args(&words[1..]))?.stdout)
}

/// Records a run; returns what it says of itself, and its explanation.
fn explained(place: &Place, seed: u64, cause: Cause) -> Result<(OwnTimes, Value)> {
    let (words, around) = prepare(place, seed, cause)?;
    let archive = place.archives.join("t.fathom");
    let said = run(Command::new(fathom()).args(["record", "--quiet", "-o"]).arg(&archive).arg("--").args(&words))?;
    drop(around);
    let own = own_times(&said.stdout)?;
    let done = run(Command::new(fathom()).arg("explain").arg(&archive).arg("--json"))?;
    std::fs::remove_dir_all(&archive)?;
    Ok((own, serde_json::from_slice(&done.stdout).context("explain --json")?))
}

/// Returns the parts of the account, of operations or of the rest, with the time that their shares are of.
fn parts(explanation: &Value, is_outside: bool) -> (&Vec<Value>, f64) {
    static NONE: Vec<Value> = Vec::new();
    let of = &explanation[if is_outside { "between" } else { "account" }];
    (of["leaves"].as_array().unwrap_or(&NONE), of["whole_ns"].as_f64().unwrap_or(0.0))
}

fn held(explanation: &Value, perturbation: &Perturbation) -> f64 {
    let (leaves, _) = parts(explanation, perturbation.is_outside);
    leaves.iter().filter(|leaf| (perturbation.holds)(leaf)).filter_map(|leaf| leaf["ns"].as_f64()).sum()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn draw(place: &Place, perturbation: &Perturbation, seed: u64) -> Result<Draw> {
    let Perturbation { cause, base, .. } = *perturbation;
    let is_waiting = matches!(cause, Cause::Quota(_) | Cause::Neighbours(_));
    let own_time = |own: OwnTimes| if is_waiting { own.whole } else { own.whole - own.waited };
    let (mut truths, mut costs, mut grown, mut explanations) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for nth in 0..PAIRS {
        let without = own_time(untraced(place, seed, base)?);
        let difference = own_time(untraced(place, seed, cause)?) - without;
        truths.push(difference);
        costs.push(difference / without);
        if nth == 0 || !perturbation.is_steady {
            let base_ns = held(&explained(place, seed, base)?.1, perturbation);
            let (own, with) = explained(place, seed, cause)?;
            grown.push(held(&with, perturbation) - base_ns);
            explanations.push((with, base_ns, own.taken));
        }
    }
    let truth_ns = median(truths);
    let found_ns = median(grown.clone());
    let middle = grown.iter().position(|ns| *ns == found_ns).unwrap_or(0);
    let (with, base_ns, taken_ns) = &explanations[middle];
    let (leaves, whole_ns) = parts(with, perturbation.is_outside);
    // What others take of the processor is as much without the perturbation, and more than it on a busy machine.
    let mut ranked = leaves.iter().filter(|leaf| is_waiting || !is_run_queue(leaf));
    let first = ranked.next();
    let holding: Vec<&Value> = leaves.iter().filter(|leaf| (perturbation.holds)(leaf)).collect();
    let ends = |at: usize| holding.iter().filter_map(|leaf| leaf["interval"][at].as_f64()).sum::<f64>() * whole_ns;
    Ok(Draw {
        name: perturbation.name,
        seed,
        truth_ns,
        found_ns,
        // The processor that it lacks is no time of its own.
        taken_ns: if is_waiting || perturbation.name == "lock" { 0.0 } else { *taken_ns },
        cost: median(costs),
        is_first: first.is_some_and(perturbation.holds),
        in_interval: !holding.is_empty() && (ends(0) - base_ns..=ends(1) - base_ns).contains(&truth_ns),
        first: first.and_then(|leaf| leaf["what"].as_str()).unwrap_or("nothing").into(),
    })
}

fn draws(of: &[Perturbation], seeds: std::ops::Range<u64>) -> Result<Vec<Draw>> {
    // Both the untraced runs and the recorded ones, so that waiting for a processor is no perturbation of its own.
    raise_priority();
    let disk = ext4()?;
    let archives = tempfile::tempdir()?;
    let place = Place { python: python()?, disk: disk.path(), archives: archives.path() };
    let each = seeds.flat_map(|seed| of.iter().map(move |perturbation| (perturbation, seed)));
    each.map(|(perturbation, seed)| draw(&place, perturbation, seed)).collect()
}

/// What is slept for, or held by another thread or process, is the first part of the account, and as long as it really was.
fn waits_are_first_and_sized() -> Result<()> {
    for draw in draws(&PERTURBATIONS[..STEADY], 1..2)? {
        let Draw { name, seed, truth_ns, found_ns, taken_ns, first, .. } = &draw;
        ensure!(draw.is_first, "{name}, seed {seed}: the first part {first}");
        ensure!(draw.is_sized(), "{name}, seed {seed}: {found_ns} ns found, {truth_ns} or {taken_ns} ns true");
    }
    Ok(())
}

/// A program without SQL has its whole time in the account, and the kernel's own counts of it are the same.
fn program_without_operations_is_accounted_for() -> Result<()> {
    const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/outside.py");
    /// How far the counts may be apart: what ends after the program counted, and the kernel's own tick.
    const DIFFERENCE_NS_MAX: f64 = 30e6;
    let archives = tempfile::tempdir()?;
    let archive = archives.path().join("t.fathom");
    let mut recording = Command::new(fathom());
    recording.args(["record", "--quiet", "-o"]).arg(&archive).args(["--", &python()?, PROGRAM, "0.4"]);
    let said = run(&mut recording)?;
    let truth: Value = serde_json::from_slice(&said.stdout).context("the program's own counts")?;
    let done = run(Command::new(fathom()).arg("explain").arg(&archive).arg("--json"))?;
    let explanation: Value = serde_json::from_slice(&done.stdout)?;
    let sum = |is_wanted: &dyn Fn(&Value) -> bool| {
        let both = [false, true].map(|is_outside| parts(&explanation, is_outside).0);
        both.into_iter().flatten().filter(|leaf| is_wanted(leaf)).filter_map(|leaf| leaf["ns"].as_f64()).sum::<f64>()
    };
    for reason in ["cpu", Reason::RunQueue.name()] {
        let (found, true_ns) =
            (sum(&|leaf| is(leaf, "reason", &[reason])), 1e9 * truth[reason].as_f64().unwrap_or(0.0));
        let is_near = (found - true_ns).abs() <= DIFFERENCE_NS_MAX + SIZE_ERROR_MAX * true_ns;
        ensure!(is_near, "{reason}: {found} ns in the account, {true_ns} ns by the kernel: {explanation:#}");
    }
    for (wait, seconds) in truth["waits"].as_object().context("waits")? {
        let (found, true_ns) = (sum(&|leaf| is(leaf, "wait", &[wait])), 1e9 * seconds.as_f64().unwrap_or(0.0));
        ensure!(found >= (1.0 - SIZE_ERROR_MAX) * true_ns, "{wait}: {found} ns in the account, {true_ns} ns true");
    }
    let between = &explanation["between"];
    let [rest, whole] = ["unaccounted_ns", "whole_ns"].map(|name| between[name].as_f64().unwrap_or(f64::NAN));
    ensure!(rest <= 0.01 * whole, "{rest} of {whole} ns are not accounted for");
    let leaves = between["leaves"].as_array().context("leaves")?;
    let parts: f64 = leaves.iter().filter_map(|leaf| leaf["ns"].as_f64()).sum();
    let operations = between["operations_ns"].as_f64().unwrap_or(f64::NAN);
    ensure!((parts + rest + operations - whole).abs() < 1.0, "{parts} + {rest} + {operations} is not {whole}");
    Ok(())
}

/// Formats the hits as a table, and every miss, the worst first.
fn page(of: &[Perturbation], draws: &[Draw]) -> String {
    let (draws, small): (Vec<&Draw>, Vec<&Draw>) = draws.iter().partition(|draw| draw.cost >= COST_MIN);
    let mut out = String::from(
        "| perturbation | draws | first | sized | median error | against untraced |\n|---|---|---|---|---|---|\n",
    );
    for perturbation in of {
        let own: Vec<&Draw> = draws.iter().copied().filter(|draw| draw.name == perturbation.name).collect();
        if own.is_empty() {
            let _ = writeln!(out, "| {} | 0 | | | | |", perturbation.name);
            continue;
        }
        let count = |is: fn(&Draw) -> bool| own.iter().filter(|draw| is(draw)).count();
        let [error, untraced] =
            [Draw::error, Draw::untraced_error].map(|of| 100.0 * median(own.iter().map(|draw| of(draw)).collect()));
        let (first, sized) = (count(|draw| draw.is_first), count(Draw::is_sized));
        let _ = writeln!(
            out,
            "| {} | {} | {first} | {sized} | {error:.0} % | {untraced:.0} % |",
            perturbation.name,
            own.len()
        );
    }
    let _ = writeln!(
        out,
        "\nDraws whose perturbation cost less than a tenth of the program, which are not counted: {}.",
        small.len()
    );
    let mut misses: Vec<&Draw> = draws.iter().copied().filter(|draw| !draw.is_first || !draw.is_sized()).collect();
    misses.sort_by(|a, b| a.is_first.cmp(&b.is_first).then(b.error().total_cmp(&a.error())));
    out.push_str("\nMisses, the worst first:\n\n");
    for Draw { name, seed, truth_ns, found_ns, taken_ns, first, .. } in misses {
        let [truth, found, taken] = [truth_ns, found_ns, taken_ns].map(|ns| ns / 1e6);
        let _ = writeln!(
            out,
            "- {name}, seed {seed}: {found:.1} ms found, {taken:.1} ms by the run's own clock, {truth:.1} ms untraced; the first part {first}"
        );
    }
    out
}

/// The hits are counted, and no more than a fifth of the draws may have another first part.
fn check_draws(of: &[Perturbation], seeds: std::ops::Range<u64>) -> Result<()> {
    let all = draws(of, seeds)?;
    let page = page(of, &all);
    println!("{page}");
    if let Some(path) = std::env::var_os("ABLATION_OUTPUT") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        std::io::Write::write_all(&mut file, page.as_bytes())?;
    }
    let counted: Vec<&Draw> = all.iter().filter(|draw| draw.cost >= COST_MIN).collect();
    let first = counted.iter().filter(|draw| draw.is_first).count();
    ensure!(5 * first >= 4 * counted.len(), "{first} of {} are first:\n{page}", counted.len());
    Ok(())
}

fn drawn_waits_are_first() -> Result<()> {
    check_draws(&PERTURBATIONS[..STEADY], 10..13)
}

fn drawn_work_is_first() -> Result<()> {
    check_draws(&PERTURBATIONS[STEADY..], 10..11)
}

fn main() -> ExitCode {
    let needs = || root().and_then(|()| installed("python3")).and_then(|()| installed("taskset"));
    let cases: Vec<Case> = vec![
        ("waits_are_first_and_sized", needs(), waits_are_first_and_sized),
        ("program_without_operations_is_accounted_for", needs(), program_without_operations_is_accounted_for),
        ("long::drawn_waits_are_first", needs(), drawn_waits_are_first),
        ("long::drawn_work_is_first", needs(), drawn_work_is_first),
    ];
    run_suite(cases)
}
