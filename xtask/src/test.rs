//! The lanes of tests, counted, and their skips told with their reasons. They run one after the other, but for the guests of `lab`, which run
//! beside lanes that no noise disturbs.
//!
//! A lane is a set of tests that need the same things. The first, `workspace`, is every crate's own tests; each other
//! is a test target of the package in `tests/`, which drives the built program (its path is in FATHOM), or `fuzz`,
//! a short run of every fuzz target. A lane that fails does not stop the next one.
//!
//! A test that cannot run here (no BPF, no browser) prints `SKIP name: reason` and returns; a test harness that knows
//! skipping says `ignored, reason`. Both are counted as skipped, never as passed. A crate's own test that needs root is
//! marked `#[ignore = "root: …"]`: the lane `privileged` runs those, one at a time, if we are root. Long tests are left to
//! `cargo xtask long`, and named.

use crate::long;
use crate::metadata::packages;
use crate::run::{cargo, show};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The package whose test targets are lanes.
const PACKAGE: &str = "fathom-tests";

/// The lane of the crates' own tests that need root.
const PRIVILEGED: &str = "privileged";

/// The lane of hostile bytes: a program of its own, which counts as one test.
const FUZZ: &str = "fuzz";

/// The package of that program.
const FUZZ_PACKAGE: &str = "fathom-fuzz";

/// What runs first, for it fails soonest; then the lanes that need the machine for themselves, by name; then the rest.
const FIRST: [&str; 2] = ["workspace", PRIVILEGED];

/// The lane of guests, whose kernels compute for minutes on one processor: it runs in the background.
const BACKGROUND: &str = "lab";

/// The lanes that it runs beside: what they assert does not depend on who else computes.
const BESIDE: [&str; 11] =
    ["android", "drawing", "engines", "errors", "fuzz", "install", "jvm", "pool", "pool_clients", "pool_kill", "reach"];

/// Whoever still has the tests' output so long after their end was left behind by one of them.
const LEFT_BEHIND: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// What a lane's output says.
#[derive(Debug, Default)]
pub struct Tally {
    /// Sums over the harnesses' own result lines.
    passed: u64,
    failed: u64,
    ignored: u64,
    /// The lane `privileged` runs what needs root: here it is not skipped, but counted apart.
    root_follows: bool,
    following: u64,
    /// Long tests, which are another command's.
    long: BTreeSet<String>,
    /// Tests that a harness listed as ignored, with its reason; those that will follow as root are left out.
    listed: BTreeMap<String, String>,
    /// Tests that said SKIP themselves, with their reason.
    said: BTreeMap<String, String>,
}

/// What a lane gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Tests that ran and passed.
    pub passed: u64,
    /// Tests that ran and failed.
    pub failed: u64,
    /// Tests that did not run here.
    pub skipped: u64,
    /// `test: reason`.
    reasons: BTreeSet<String>,
    /// Long tests that were left out; they are counted by the command that runs them.
    long: BTreeSet<String>,
}

/// Runs the named lanes (all if none is named), or lists them.
pub fn run(root: &Path, words: &[String]) -> Result<()> {
    let all = lanes(root)?;
    if words == ["--list"] {
        println!("{}", all.join("\n"));
        return Ok(());
    }
    for word in words {
        ensure!(all.contains(word), "there is no lane {word}; there are {}", all.join(", "));
    }
    let wanted = |lane: &str| words.is_empty() || words.iter().any(|w| w == lane);
    let binary = root.join("target/release/fathom");
    let drives = all.iter().any(|lane| wanted(lane) && !["workspace", PRIVILEGED, FUZZ].contains(&lane.as_str()));
    ensure!(!drives || binary.exists(), "{} is not there; run `make build` first", binary.display());

    let mut lines = Vec::new();
    let mut total = Count::default();
    let mut background = None;
    let mut add = |ran: Ran| {
        lines.push(ran.line());
        total.add(ran.count);
    };
    for lane in all.iter().filter(|lane| wanted(lane)) {
        if lane == PRIVILEGED && !is_root() {
            println!("\n==== lane {lane} needs root: what it would run is listed as skipped ====");
            continue;
        }
        if lane == BACKGROUND && BESIDE.iter().any(|beside| wanted(beside)) {
            let (root, lane, binary) = (root.to_path_buf(), lane.clone(), binary.clone());
            background = Some(std::thread::spawn(move || {
                let mut output = Vec::new();
                let ran = one(&root, &lane, &binary, false, &mut output);
                (ran, output)
            }));
            continue;
        }
        println!("\n==== lane {lane} ====");
        let root_follows = lane == "workspace" && wanted(PRIVILEGED) && is_root();
        add(one(root, lane, &binary, root_follows, &mut std::io::stdout())?);
    }
    if let Some(background) = background {
        let (ran, output) = background.join().map_err(|_| anyhow!("the lane {BACKGROUND} panicked"))?;
        println!(
            "\n==== lane {BACKGROUND}, which ran beside others ====\n{}",
            String::from_utf8_lossy(&output).trim_end()
        );
        add(ran?);
    }

    total.print(&lines);
    if total.failed > 0 {
        bail!("tests failed");
    }
    Ok(())
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

/// Runs a lane.
fn one(root: &Path, lane: &str, binary: &Path, root_follows: bool, output: &mut dyn Write) -> Result<Ran> {
    let start = Instant::now();
    let mut tally = Tally { root_follows, ..Tally::default() };
    let success = follow(lane_command(root, lane).env("FATHOM", binary), &mut tally, output)?;
    let mut count = tally.count();
    if success && lane == FUZZ {
        count.passed = 1;
    }
    if !success && count.failed == 0 {
        // It did not build, or died: that is no test's failure, but it is one.
        count.failed = 1;
    }
    Ok(Ran { lane: lane.into(), seconds: start.elapsed().as_secs(), count })
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

fn lanes(root: &Path) -> Result<Vec<String>> {
    let packages = packages(root)?;
    let package = packages.iter().find(|p| p.name == PACKAGE);
    let mut lanes = package.with_context(|| format!("there is no package {PACKAGE}"))?.tests.clone();
    if packages.iter().any(|p| p.name == FUZZ_PACKAGE) {
        lanes.push(FUZZ.into());
    }
    lanes.extend(["workspace".into(), PRIVILEGED.into()]);
    order(&mut lanes);
    Ok(lanes)
}

/// The background's lane stands before those that it runs beside.
fn order(lanes: &mut [String]) {
    let rank = |lane: &str| match FIRST.iter().position(|first| *first == lane) {
        Some(nth) => nth,
        None if lane == BACKGROUND => FIRST.len() + 1,
        None => FIRST.len() + if BESIDE.contains(&lane) { 2 } else { 0 },
    };
    lanes.sort_by_key(|lane| (rank(lane), lane.clone()));
}

fn lane_command(root: &Path, lane: &str) -> Command {
    let mut command = cargo(root);
    if lane == FUZZ {
        command.args(["run", "--locked", "--quiet", "--package", FUZZ_PACKAGE, "--", "smoke"]);
        return command;
    }
    command.args(["test", "--locked", "--no-fail-fast"]);
    match lane {
        "workspace" => command.args(["--workspace", "--exclude", PACKAGE, "--", "--show-output"]),
        PRIVILEGED => {
            let only = ["--", "--ignored", "--show-output", "--test-threads=1", "--skip", long::MARK];
            // Not --doc: an example that is marked `ignore` is not meant to run.
            command.args(["--workspace", "--exclude", PACKAGE, "--lib", "--bins", "--tests"]).args(only)
        }
        // Lanes make disks and load programs into the one kernel there is: one test at a time.
        _ => command.args(["--package", PACKAGE, "--test", lane, "--", "--test-threads=1"]),
    };
    command
}

/// Runs a lane's command, passes its output on, and counts. True if it succeeded.
pub fn follow(command: &mut Command, tally: &mut Tally, output: &mut dyn Write) -> Result<bool> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", show(command)))?;
    let stdout = child.stdout.take().context("the tests' output")?;
    let pipe = std::fs::read_link(format!("/proc/self/fd/{}", stdout.as_raw_fd())).unwrap_or_default();
    let (says, said) = mpsc::channel();
    std::thread::spawn(move || BufReader::new(stdout).split(b'\n').try_for_each(|line| says.send(line)));
    let mut quiet = false;
    let mut ended = None;
    loop {
        let line = match said.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => String::from_utf8_lossy(&line.context("the tests' output")?).into_owned(),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if ended.is_none() && child.try_wait()?.is_some() {
                    ended = Some(Instant::now());
                }
                if ended.is_some_and(|ended| ended.elapsed() > LEFT_BEHIND) {
                    writeln!(
                        output,
                        "FAILED: a test left processes behind, which hold its output: {}",
                        holders(&pipe)
                    )?;
                    return Ok(false);
                }
                continue;
            }
        };
        tally.read(&line);
        // What tests that passed have printed is read for their skips, but not worth the log's lines.
        quiet = match line.as_str() {
            "successes:" => true,
            "failures:" => false,
            other => quiet && !other.starts_with("test result"),
        };
        let nothing =
            line.ends_with(" ... ok") || line == "running 0 tests" || line.contains(" 0 passed; 0 failed; 0 ig");
        if !quiet && !nothing && !line.trim().is_empty() {
            writeln!(output, "{line}")?;
        }
    }
    Ok(child.wait().context("the tests' end")?.success())
}

/// Those who have that pipe open, but for us: number and command.
fn holders(pipe: &Path) -> String {
    let has = |process: &Path| {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|file| file == pipe)
    };
    let told = |process: std::path::PathBuf| {
        let number: u32 = process.file_name()?.to_str()?.parse().ok()?;
        let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        (number != std::process::id() && has(&process)).then(|| format!("{number} ({})", command.trim()))
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    processes.filter_map(told).collect::<Vec<_>>().join(", ")
}

impl Tally {
    /// Takes one line of a test program's output.
    fn read(&mut self, line: &str) {
        let line = line.trim();
        if let Some(result) = line.strip_prefix("test result: ") {
            let number = |word: &str| -> u64 {
                let part = result.split([';', '.']).map(str::trim).find(|p| p.ends_with(&format!(" {word}")));
                part.and_then(|p| p.split(' ').next()?.parse().ok()).unwrap_or(0)
            };
            self.passed += number("passed");
            self.failed += number("failed");
            self.ignored += number("ignored");
        } else if let Some((test, reason)) = line.strip_prefix("SKIP ").and_then(|l| l.split_once(": ")) {
            self.said.insert(test.into(), reason.into());
        } else if let Some((test, reason)) = line.strip_prefix("test ").and_then(|l| l.split_once(" ... ignored")) {
            // Names are filled up to one length.
            let (test, reason) = (test.trim_end(), reason.trim_start_matches([',', ' ']));
            if long::is_long(test) {
                self.long.insert(test.into());
            } else if self.root_follows && reason.starts_with("root:") {
                self.following += 1;
            } else {
                self.listed.insert(test.into(), reason.into());
            }
        }
    }

    /// The sum. Who said SKIP and is not listed as ignored was counted as passed by its harness.
    pub fn count(self) -> Count {
        let mistaken = self.said.keys().filter(|test| !self.listed.contains_key(*test)).count() as u64;
        let mut reasons = self.listed;
        reasons.extend(self.said);
        let line = |(test, reason): (String, String)| match reason.as_str() {
            "" => format!("{test}: no reason given"),
            reason => format!("{test}: {reason}"),
        };
        Count {
            passed: self.passed.saturating_sub(mistaken),
            failed: self.failed,
            skipped: self.ignored.saturating_sub(self.following + self.long.len() as u64) + mistaken,
            long: self.long,
            reasons: reasons.into_iter().map(line).collect(),
        }
    }
}

impl Count {
    /// Adds another lane's.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.reasons.extend(other.reasons);
        self.long.extend(other.long);
    }

    /// One more test that did not run, and why.
    pub fn skip(&mut self, test: String, reason: &str) {
        self.skipped += 1;
        self.reasons.insert(format!("{test}: {reason}"));
    }

    /// Prints a line for each lane, what was skipped and why, and the sums.
    pub fn print(&self, lines: &[String]) {
        println!("\n==== lanes ====\n{}", lines.join("\n"));
        if !self.reasons.is_empty() {
            println!("\n==== skipped ====");
            self.reasons.iter().for_each(|reason| println!("{reason}"));
        }
        if !self.long.is_empty() {
            println!("\n==== left to `make test-all` ====");
            self.long.iter().for_each(|test| println!("{test}"));
        }
        println!("\n{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(root_follows: bool, text: &str) -> Count {
        let mut tally = Tally { root_follows, ..Tally::default() };
        text.lines().for_each(|line| tally.read(line));
        tally.count()
    }

    #[test]
    fn a_process_that_is_left_behind_fails_a_lane_and_does_not_hold_it_up() {
        let follow = |script: &str| {
            follow(Command::new("sh").args(["-c", script]), &mut Tally::default(), &mut Vec::new()).unwrap()
        };
        assert!(follow("echo all is well"));
        // It ends by itself soon after.
        assert!(!follow("sleep 8 2>/dev/null &"));
    }

    #[test]
    fn what_disturbs_runs_beside_what_is_not_disturbed_and_last() {
        let mut lanes = ["pool", "net", "workspace", "lab", "bench", "privileged"].map(String::from);
        order(&mut lanes);
        assert_eq!(lanes, ["workspace", "privileged", "bench", "net", "lab", "pool"]);
    }

    #[test]
    fn results_of_several_programs_add_up() {
        let found = count(
            false,
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s\n",
        );
        assert_eq!((found.passed, found.failed, found.skipped), (7, 2, 1));
    }

    #[test]
    fn a_test_that_says_skip_has_not_passed() {
        let found = count(
            false,
            "SKIP a::b: needs a browser\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             SKIP a::b: needs a browser\n",
        );
        assert_eq!((found.passed, found.skipped), (1, 1));
        assert_eq!(found.reasons.into_iter().collect::<Vec<_>>(), ["a::b: needs a browser"]);
    }

    #[test]
    fn a_harness_own_skips_keep_their_reasons() {
        let found = count(
            false,
            "test boots ... ignored, no qemu here\ntest mute ... ignored\n\
             test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!((found.passed, found.skipped), (0, 2));
        assert!(found.reasons.contains("boots: no qemu here") && found.reasons.contains("mute: no reason given"));
    }

    #[test]
    fn a_skip_reported_by_test_and_harness_counts_once() {
        let found = count(
            false,
            "SKIP counts: no BTF\nSKIP fsx: not installed\ntest counts ... ignored\ntest fsx    ... ignored\n\
             test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!((found.passed, found.skipped), (5, 2));
        assert_eq!(found.reasons.into_iter().collect::<Vec<_>>(), ["counts: no BTF", "fsx: not installed"]);
    }

    #[test]
    fn long_tests_are_named_and_not_counted() {
        let found = count(
            false,
            "test store::long::cuts ... ignored, long: 10,000 cuts\ntest phone ... ignored, no phone\n\
             test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!((found.passed, found.skipped, found.reasons.len()), (1, 1, 1));
        assert_eq!(found.long.into_iter().collect::<Vec<_>>(), ["store::long::cuts"]);
    }

    #[test]
    fn what_the_privileged_lane_will_run_is_not_skipped() {
        let text = "test disk ... ignored, root: makes a loop device\ntest phone ... ignored, no phone\n\
                    test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        let (as_root, not) = (count(true, text), count(false, text));
        assert_eq!((as_root.passed, as_root.skipped, as_root.reasons.len()), (1, 1, 1));
        assert_eq!((not.passed, not.skipped, not.reasons.len()), (1, 2, 2));
    }
}
