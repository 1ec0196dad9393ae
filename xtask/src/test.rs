//! The lanes of tests, with counts, and skips with their reasons.
//!
//! A lane is a set of tests with the same requirements. `workspace` is every crate's own tests; each other lane is a test target of
//! the package in `tests/`, which drives the built program (its path is in FATHOM), or `fuzz`, a short run of every fuzz target. A
//! lane that fails does not stop the next one. All their programs are built at once, before the first lane.
//!
//! Streams of lanes run in parallel: lanes that compute, lanes that use the one kernel (record it, make disks), lanes that wait
//! for disks, for a network of their own, or for devices. Lanes whose assertions need a quiet machine follow, one by one.
//!
//! A test that cannot run here (no BPF, no browser) prints `SKIP name: reason` and returns; a test harness that supports skipping prints
//! `ignored, reason`. Both are counted as skipped, never as passed. A crate's own test that needs root is marked `#[ignore = "root: …"]`:
//! the lane `privileged` runs those, one at a time, with the full capabilities of root. Long tests are left to `cargo xtask long`, and
//! named.
//!
//! A test that failed in a stream runs once more, alone. If it passes, it is flaky: it, or what it tests, depends on load. It is counted as
//! passed, and its message is printed with its name at the end.

use crate::follow::follow;
use crate::metadata::packages;
use crate::programs::{self, Compiler, FUZZ_PACKAGE, Program};
use crate::run::cargo;
use crate::tally::{self, Count, Tally};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The package whose test targets are lanes, and its directory.
const PACKAGE: &str = "fathom-tests";
const DIRECTORY: &str = "tests";

/// The lane of the crates' own tests.
const WORKSPACE: &str = "workspace";

/// The lane of the crates' own tests that need root.
const PRIVILEGED: &str = "privileged";

/// The lane of hostile bytes: a separate program, which counts as one test.
const FUZZ: &str = "fuzz";

/// The lanes that run in parallel, one after the other within each stream. None of them asserts anything that depends on the load of
/// the machine. The streams take about as long as each other, so that the last does not run alone (docs/results/minutes.md).
const STREAMS: [&[&str]; 4] = [
    // Processors: programs that compute, browsers, guests, virtual machines for bytecode.
    &[WORKSPACE, "lab", FUZZ, "jvm", "drawing", "engines"],
    // The recorded kernel.
    &["inside", "programs", "ground_truth", "check", "fleet", "bench_use"],
    // Networks and pools, where tests wait for packets and for time to pass; full disks; benchmarks of sleeping programs.
    &[
        "net",
        "net_devices",
        "net_routed",
        "congestion",
        "link",
        "rate",
        "pool",
        "pool_clients",
        "pool_medium",
        "pool_kill",
        "json",
        "errors",
        "bench",
    ],
    // Devices simulated by a program of ours; recordings of programs that sleep; what mostly reads archives.
    &["phone", "phone_guest", "waits", "fix", "ab", "ftrace", "diff", "android", "archives", "install", "mcp", "sql"],
];

/// Most failed tests that run again. If more fail, load is not the reason.
const MOST_AGAIN: u64 = 5;

/// Runs the named lanes (all if none is named), or lists them.
pub fn run(root: &Path, words: &[String]) -> Result<()> {
    let (compiler, words) = Compiler::of(root, words);
    let all = lanes(root)?;
    if words == ["--list"] {
        println!("{}", all.join("\n"));
        return Ok(());
    }
    for word in &words {
        ensure!(all.contains(word), "there is no lane {word}; there are {}", all.join(", "));
    }
    let wanted: Vec<&str> =
        all.iter().map(String::as_str).filter(|lane| words.is_empty() || words.iter().any(|w| w == lane)).collect();
    let binary = root.join("target/release/fathom");
    let drives = wanted.iter().any(|lane| ![WORKSPACE, PRIVILEGED, FUZZ].contains(lane));
    ensure!(!drives || binary.exists(), "{} is not there; run `make build` first", binary.display());

    let mut ground = Lanes {
        root: root.to_path_buf(),
        binary,
        programs: programs::build(root, FUZZ_PACKAGE, compiler)?,
        compiler,
        root_follows: lab::privilege::full().is_ok() && wanted.contains(&PRIVILEGED),
        stop: AtomicBool::new(false),
        ran: Mutex::default(),
    };
    let (streams, alone) = streams(&wanted);
    std::thread::scope(|scope| {
        for lanes in &streams {
            scope.spawn(|| ground.stream(lanes));
        }
    });
    ground.stream(&alone);

    let mut ran = std::mem::take(ground.ran.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner));
    ground.again(&mut ran);
    let mut lines = Vec::new();
    let mut total = Count::default();
    for ran in ran {
        lines.push(ran.line());
        total.add(&ran.lane, ran.count);
    }
    total.print(&lines);
    if total.failed > 0 {
        bail!("tests failed");
    }
    Ok(())
}

/// The streams that run in parallel, and the lanes that run alone after them.
fn streams<'a>(wanted: &[&'a str]) -> ([Vec<&'a str>; STREAMS.len()], Vec<&'a str>) {
    let of = |lanes: &[&str]| lanes.iter().filter_map(|lane| wanted.iter().find(|w| *w == lane).copied()).collect();
    (STREAMS.map(of), wanted.iter().copied().filter(|lane| !is_in_stream(lane)).collect())
}

fn is_in_stream(lane: &str) -> bool {
    STREAMS.iter().any(|lanes| lanes.contains(&lane))
}

/// A lane that has run.
struct Ran {
    lane: String,
    seconds: u64,
    count: Count,
}

impl Ran {
    fn line(&self) -> String {
        let Count { passed, failed, skipped, .. } = self.count;
        format!("{:12} {:4} s: {passed} passed, {failed} failed, {skipped} skipped", self.lane, self.seconds)
    }
}

/// State shared by the lanes.
struct Lanes {
    root: PathBuf,
    binary: PathBuf,
    programs: Vec<Program>,
    compiler: Compiler,
    root_follows: bool,
    /// Set when a stream ends early: the lanes of the others are then ended, too.
    stop: AtomicBool,
    ran: Mutex<Vec<Ran>>,
}

/// Makes a stream that panics (our output has lost its reader) stop the others.
struct StopOthers<'a>(&'a AtomicBool);

impl Drop for StopOthers<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), Ordering::Relaxed);
    }
}

impl Lanes {
    /// Runs lanes one by one. A lane's output is shown at its end, so that parallel lanes do not mix.
    fn stream(&self, lanes: &[&str]) {
        let _others = StopOthers(&self.stop);
        for lane in lanes.iter().take_while(|_| !self.stop.load(Ordering::Relaxed)) {
            if let (PRIVILEGED, Err(why)) = (*lane, lab::privilege::full()) {
                println!("\n==== lane {lane} {why}: what it would run is listed as skipped ====");
                continue;
            }
            println!("lane {lane} begins");
            let start = Instant::now();
            let mut output = Vec::new();
            let count = self.lane(lane, &mut output);
            let seconds = start.elapsed().as_secs();
            println!("\n==== lane {lane}, {seconds} s ====\n{}", String::from_utf8_lossy(&output).trim_end());
            let mut ran = self.ran.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            ran.push(Ran { lane: lane.to_string(), seconds, count });
        }
    }

    /// Runs a lane. A lane that cannot be run counts as failed.
    fn lane(&self, lane: &str, output: &mut Vec<u8>) -> Count {
        let commands = self.commands(lane);
        let mut total = Count::default();
        if commands.is_empty() {
            total.fail("no program of it was built");
        }
        for (program, mut command) in commands {
            let mut tally = Tally::of(&program, lane == WORKSPACE && self.root_follows);
            let done = follow(command.env("FATHOM", &self.binary), &mut tally, output, &self.stop);
            // The program died, or left something behind: that is not a test's failure, but still a failure.
            let why = match &done {
                Ok(true) => None,
                Ok(false) => Some("it died; its last lines".to_string()),
                Err(error) => Some(format!("{error:#}")),
            };
            let mut count = tally.count(why.as_deref());
            if why.is_none() && lane == FUZZ {
                count.passed = 1;
            }
            total.add(&program, count);
        }
        total
    }

    /// Runs the tests that failed in a stream once more, alone.
    fn again(&self, ran: &mut [Ran]) {
        let in_streams = || ran.iter().filter(|ran| is_in_stream(&ran.lane));
        if in_streams().map(|ran| ran.count.failed).sum::<u64>() > MOST_AGAIN {
            return;
        }
        for ran in ran.iter_mut().filter(|ran| is_in_stream(&ran.lane)) {
            for failed in ran.count.failed_tests() {
                println!("{}: {failed} runs again, alone", ran.lane);
                if self.passes_alone(&ran.lane, &failed) {
                    ran.count.passed_alone(&failed);
                }
            }
        }
    }

    /// Whether a test passes alone; `failed` is its name, after that of its program if the lane has several.
    fn passes_alone(&self, lane: &str, failed: &str) -> bool {
        self.commands(lane).into_iter().any(|(program, mut command)| {
            let test = match program.as_str() {
                "" => Some(failed),
                program => failed.strip_prefix(program).and_then(|rest| rest.strip_prefix(": ")),
            };
            let Some(test) = test else { return false };
            let (mut tally, mut output) = (Tally::default(), Vec::new());
            let command = command.args(["--exact", test]).env("FATHOM", &self.binary);
            let success = follow(command, &mut tally, &mut output, &self.stop).unwrap_or(false);
            println!("{}", String::from_utf8_lossy(&output).trim_end());
            success && tally.passed_only(test)
        })
    }

    /// The programs of a lane: the name of each, and its command.
    fn commands(&self, lane: &str) -> Vec<(String, Command)> {
        let mut commands = Vec::new();
        for program in &self.programs {
            let arguments: &[&str] = match lane {
                FUZZ if !program.is_test => &["smoke", "--seconds", "0.5"],
                WORKSPACE if program.is_test && program.directory != DIRECTORY => &["--show-output"],
                PRIVILEGED if program.is_test && program.directory != DIRECTORY => {
                    &["--ignored", "--show-output", "--test-threads=1", "--skip", tally::LONG]
                }
                // Lanes make disks and load programs into the one kernel: one test at a time.
                _ if program.is_test && program.directory == DIRECTORY && program.name == lane => &["--test-threads=1"],
                _ => continue,
            };
            let mut command = program.command(&self.root);
            command.args(arguments);
            let label = match lane {
                WORKSPACE | PRIVILEGED => format!("{} {}", program.directory, program.name),
                _ => String::new(),
            };
            commands.push((label, command));
        }
        if lane == WORKSPACE {
            // Only cargo can run examples in comments.
            let mut command = cargo(&self.root);
            command.args(["test", "--locked", "--quiet", "--workspace", "--doc"]);
            self.compiler.set(&mut command);
            commands.push(("examples in comments".into(), command));
        }
        commands
    }
}

fn lanes(root: &Path) -> Result<Vec<String>> {
    let packages = packages(root)?;
    let package = packages.iter().find(|p| p.name == PACKAGE);
    let mut lanes = package.with_context(|| format!("there is no package {PACKAGE}"))?.tests.clone();
    lanes.extend([FUZZ.into(), WORKSPACE.into(), PRIVILEGED.into()]);
    // The lanes that fail soonest come first.
    lanes.sort_by_key(|lane| (lane != WORKSPACE, lane != PRIVILEGED, lane.clone()));
    Ok(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_for_quiet_machine_run_alone() {
        let wanted = ["lab", "privileged", "bench_end", "errors", "workspace", "net", "limits"];
        let (streams, alone) = streams(&wanted);
        assert_eq!(streams, [vec!["workspace", "lab"], vec![], vec!["net", "errors"], vec![]]);
        assert_eq!(alone, ["privileged", "bench_end", "limits"]);
    }
}
