//! The test suites, with counts, and skips with their reasons.
//!
//! A suite is a set of tests with the same requirements. `workspace` is every crate's own tests; each other suite is a test target of
//! the package in `tests/`, which drives the built program (its path is in FATHOM), or `fuzz`, a short run of every fuzz target. A
//! suite that fails does not stop the next one. All their programs are built at once, before the first suite.
//!
//! Streams of suites run in parallel: suites that compute, suites that use the one kernel (record it, make disks), suites that wait
//! for disks, for a network of their own, or for devices. Suites whose assertions need a quiet machine follow, one by one.
//!
//! A test that cannot run here (no BPF, no browser) prints `SKIP name: reason` and returns; a test harness that supports skipping prints
//! `ignored, reason`. Both are counted as skipped, never as passed. A crate's own test that needs root is marked `#[ignore = "root: …"]`:
//! the suite `privileged` runs those, one at a time, with the full capabilities of root. Long tests are left to `cargo xtask long`, and
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

/// The package whose test targets are suites, and its directory.
const TESTS_PACKAGE: &str = "fathom-tests";
const TESTS_DIRECTORY: &str = "tests";

/// The suite of the crates' own tests.
const WORKSPACE_SUITE: &str = "workspace";

/// The suite of the crates' own tests that need root.
const PRIVILEGED_SUITE: &str = "privileged";

/// The suite of hostile bytes: a separate program, which counts as one test.
const FUZZ_SUITE: &str = "fuzz";

/// The suites that run in parallel, one after the other within each stream. None of them asserts anything that depends on the load of
/// the machine. The streams take about as long as each other, so that the last does not run alone (docs/results/minutes.md).
const SUITE_STREAMS: [&[&str]; 4] = [
    // Processors: programs that compute, browsers, guests, virtual machines for bytecode.
    &[WORKSPACE_SUITE, "lab", FUZZ_SUITE, "jvm", "drawing", "engines"],
    // The recorded kernel.
    &["inside", "programs", "ground_truth", "check", "pull_request", "fleet", "bench_use"],
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
        "pool_mirror",
        "pool_kill",
        "json",
        "errors",
        "bench",
    ],
    // Devices simulated by a program of ours; recordings of programs that sleep; what mostly reads archives.
    &[
        "phone",
        "phone_guest",
        "waits",
        "watch",
        "fix",
        "ab",
        "ftrace",
        "diff",
        "android",
        "archives",
        "install",
        "packaging",
        "hooks",
        "mcp",
        "sql",
    ],
];

/// Maximum number of failed tests that run again. If more fail, load is not the reason.
const REPEATED_TESTS_MAX: u64 = 5;

/// Runs the named suites (all if none is named), or lists them.
pub fn run(root: &Path, words: &[String]) -> Result<()> {
    let (compiler, words) = Compiler::from_words(root, words);
    let all = suite_names(root)?;
    if words == ["--list"] {
        println!("{}", all.join("\n"));
        return Ok(());
    }
    for word in &words {
        ensure!(all.contains(word), "there is no suite {word}; there are {}", all.join(", "));
    }
    let wanted: Vec<&str> =
        all.iter().map(String::as_str).filter(|suite| words.is_empty() || words.iter().any(|w| w == suite)).collect();
    let binary = root.join("target/release/fathom");
    let needs_program = wanted.iter().any(|suite| ![WORKSPACE_SUITE, PRIVILEGED_SUITE, FUZZ_SUITE].contains(suite));
    ensure!(!needs_program || binary.exists(), "{} is not there; run `make build` first", binary.display());

    let mut runner = SuiteRunner {
        root: root.to_path_buf(),
        binary,
        programs: programs::build(root, FUZZ_PACKAGE, compiler)?,
        compiler,
        root_follows: lab::privilege::full().is_ok() && wanted.contains(&PRIVILEGED_SUITE),
        stop: AtomicBool::new(false),
        ran: Mutex::default(),
    };
    let (streams, alone) = split_into_streams(&wanted);
    std::thread::scope(|scope| {
        for suites in &streams {
            scope.spawn(|| runner.run_stream(suites));
        }
    });
    runner.run_stream(&alone);

    let mut ran = std::mem::take(runner.ran.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner));
    runner.repeat_failed(&mut ran);
    let mut lines = Vec::new();
    let mut total = Count::default();
    for ran in ran {
        lines.push(ran.line());
        total.add(&ran.suite, ran.count);
    }
    total.print(&lines);
    if total.failed > 0 {
        bail!("tests failed");
    }
    Ok(())
}

/// The streams that run in parallel, and the suites that run alone after them.
fn split_into_streams<'a>(wanted: &[&'a str]) -> ([Vec<&'a str>; SUITE_STREAMS.len()], Vec<&'a str>) {
    let of = |suites: &[&str]| suites.iter().filter_map(|suite| wanted.iter().find(|w| *w == suite).copied()).collect();
    (SUITE_STREAMS.map(of), wanted.iter().copied().filter(|suite| !is_in_stream(suite)).collect())
}

fn is_in_stream(suite: &str) -> bool {
    SUITE_STREAMS.iter().any(|suites| suites.contains(&suite))
}

/// A suite that has run.
struct SuiteResult {
    suite: String,
    seconds: u64,
    count: Count,
}

impl SuiteResult {
    fn line(&self) -> String {
        let Count { passed, failed, skipped, .. } = self.count;
        format!("{:12} {:4} s: {passed} passed, {failed} failed, {skipped} skipped", self.suite, self.seconds)
    }
}

/// State shared by the suites.
struct SuiteRunner {
    root: PathBuf,
    binary: PathBuf,
    programs: Vec<Program>,
    compiler: Compiler,
    root_follows: bool,
    /// Set when a stream ends early: the suites of the others are then ended, too.
    stop: AtomicBool,
    ran: Mutex<Vec<SuiteResult>>,
}

/// Makes a stream that panics (our output has lost its reader) stop the others.
struct StopOthers<'a>(&'a AtomicBool);

impl Drop for StopOthers<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), Ordering::Relaxed);
    }
}

impl SuiteRunner {
    /// Runs suites one by one. A suite's output is shown at its end, so that parallel suites do not mix.
    fn run_stream(&self, suites: &[&str]) {
        let _others = StopOthers(&self.stop);
        for suite in suites.iter().take_while(|_| !self.stop.load(Ordering::Relaxed)) {
            if let (PRIVILEGED_SUITE, Err(why)) = (*suite, lab::privilege::full()) {
                println!("\n==== suite {suite} {why}: what it would run is listed as skipped ====");
                continue;
            }
            println!("suite {suite} begins");
            let start = Instant::now();
            let mut output = Vec::new();
            let count = self.run_suite(suite, &mut output);
            let seconds = start.elapsed().as_secs();
            println!("\n==== suite {suite}, {seconds} s ====\n{}", String::from_utf8_lossy(&output).trim_end());
            let mut ran = self.ran.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            ran.push(SuiteResult { suite: suite.to_string(), seconds, count });
        }
    }

    /// Runs a suite. A suite that cannot be run counts as failed.
    fn run_suite(&self, suite: &str, output: &mut Vec<u8>) -> Count {
        let commands = self.commands(suite);
        let mut total = Count::default();
        if commands.is_empty() {
            total.fail("no program of it was built");
        }
        for (program, mut command) in commands {
            let mut tally = Tally::for_program(&program, suite == WORKSPACE_SUITE && self.root_follows);
            let done = follow(command.env("FATHOM", &self.binary), &mut tally, output, &self.stop);
            // The program died, or left something behind: that is not a test's failure, but still a failure.
            let why = match &done {
                Ok(true) => None,
                Ok(false) => Some("it died; its last lines".to_string()),
                Err(error) => Some(format!("{error:#}")),
            };
            let mut count = tally.count(why.as_deref());
            if why.is_none() && suite == FUZZ_SUITE {
                count.passed = 1;
            }
            total.add(&program, count);
        }
        total
    }

    /// Runs the tests that failed in a stream once more, alone.
    fn repeat_failed(&self, ran: &mut [SuiteResult]) {
        let in_streams = || ran.iter().filter(|ran| is_in_stream(&ran.suite));
        if in_streams().map(|ran| ran.count.failed).sum::<u64>() > REPEATED_TESTS_MAX {
            return;
        }
        for ran in ran.iter_mut().filter(|ran| is_in_stream(&ran.suite)) {
            for failed in ran.count.failed_tests() {
                println!("{}: {failed} runs again, alone", ran.suite);
                if self.passes_alone(&ran.suite, &failed) {
                    ran.count.passed_alone(&failed);
                }
            }
        }
    }

    /// Whether a test passes alone; `failed` is its name, after that of its program if the suite has several.
    fn passes_alone(&self, suite: &str, failed: &str) -> bool {
        self.commands(suite).into_iter().any(|(program, mut command)| {
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

    /// The programs of a suite: the name of each, and its command.
    fn commands(&self, suite: &str) -> Vec<(String, Command)> {
        let mut commands = Vec::new();
        for program in &self.programs {
            let arguments: &[&str] = match suite {
                FUZZ_SUITE if !program.is_test => &["smoke", "--seconds", "0.5"],
                WORKSPACE_SUITE if program.is_test && program.directory != TESTS_DIRECTORY => &["--show-output"],
                PRIVILEGED_SUITE if program.is_test && program.directory != TESTS_DIRECTORY => {
                    &["--ignored", "--show-output", "--test-threads=1", "--skip", tally::LONG_MODULE]
                }
                // Suites make disks and load programs into the one kernel: one test at a time.
                _ if program.is_test && program.directory == TESTS_DIRECTORY && program.name == suite => {
                    &["--test-threads=1"]
                }
                _ => continue,
            };
            let mut command = program.command(&self.root);
            command.args(arguments);
            let label = match suite {
                WORKSPACE_SUITE | PRIVILEGED_SUITE => format!("{} {}", program.directory, program.name),
                _ => String::new(),
            };
            commands.push((label, command));
        }
        if suite == WORKSPACE_SUITE {
            // Only cargo can run examples in comments.
            let mut command = cargo(&self.root);
            command.args(["test", "--locked", "--quiet", "--workspace", "--doc"]);
            self.compiler.set(&mut command);
            commands.push(("examples in comments".into(), command));
        }
        commands
    }
}

fn suite_names(root: &Path) -> Result<Vec<String>> {
    let packages = packages(root)?;
    let package = packages.iter().find(|p| p.name == TESTS_PACKAGE);
    let mut suites = package.with_context(|| format!("there is no package {TESTS_PACKAGE}"))?.tests.clone();
    suites.extend([FUZZ_SUITE.into(), WORKSPACE_SUITE.into(), PRIVILEGED_SUITE.into()]);
    // The suites that fail soonest come first.
    suites.sort_by_key(|suite| (suite != WORKSPACE_SUITE, suite != PRIVILEGED_SUITE, suite.clone()));
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_for_quiet_machine_run_alone() {
        let wanted = ["lab", "privileged", "bench_end", "errors", "workspace", "net", "limits"];
        let (streams, alone) = split_into_streams(&wanted);
        assert_eq!(streams, [vec!["workspace", "lab"], vec![], vec!["net", "errors"], vec![]]);
        assert_eq!(alone, ["privileged", "bench_end", "limits"]);
    }
}
