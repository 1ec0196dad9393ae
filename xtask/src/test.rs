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
use crate::tally::{Count, Tally};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
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
        total.add(&ran.lane, ran.count);
    };
    for lane in all.iter().filter(|lane| wanted(lane)) {
        if lane == PRIVILEGED && !is_root() {
            println!("\n==== lane {lane} needs root: what it would run is listed as skipped ====");
            continue;
        }
        if lane == BACKGROUND && BESIDE.iter().any(|beside| wanted(beside)) {
            background = Some(Background::start(root, lane, &binary));
            continue;
        }
        println!("\n==== lane {lane} ====");
        let root_follows = lane == "workspace" && wanted(PRIVILEGED) && is_root();
        add(one(root, lane, &binary, root_follows, &mut std::io::stdout(), &AtomicBool::new(false))?);
    }
    if let Some(background) = background {
        let (ran, output) = background.join()?;
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

/// A lane that runs beside others, in a thread. Dropped before its end, it is stopped: whoever leaves leaves none of its processes.
struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<(Result<Ran>, Vec<u8>)>>,
}

impl Background {
    fn start(root: &Path, lane: &str, binary: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (root, lane, binary, stopped) = (root.to_path_buf(), lane.to_string(), binary.to_path_buf(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut output = Vec::new();
            let ran = one(&root, &lane, &binary, false, &mut output, &stopped);
            (ran, output)
        });
        Self { stop, thread: Some(thread) }
    }

    /// Waits for its end: what it gave, and what it printed.
    fn join(mut self) -> Result<(Result<Ran>, Vec<u8>)> {
        let thread = self.thread.take().context("it is joined once")?;
        thread.join().map_err(|_| anyhow!("the lane {BACKGROUND} panicked"))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it gave is no longer wanted.
            let _ = thread.join();
        }
    }
}

/// Runs a lane, until it is over or `stop` is set.
fn one(
    root: &Path,
    lane: &str,
    binary: &Path,
    root_follows: bool,
    output: &mut dyn Write,
    stop: &AtomicBool,
) -> Result<Ran> {
    let start = Instant::now();
    let mut tally = Tally::before_privileged(root_follows);
    let success = follow(lane_command(root, lane).env("FATHOM", binary), &mut tally, output, stop)?;
    // It did not build, or died: that is no test's failure, but it is one.
    let mut count = tally.count((!success).then_some("it did not build, or died; its last lines"));
    if success && lane == FUZZ {
        count.passed = 1;
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

/// Runs a lane's command, passes on what it prints to either stream, and counts. True if it succeeded. It is killed when `stop` is set.
pub fn follow(command: &mut Command, tally: &mut Tally, output: &mut dyn Write, stop: &AtomicBool) -> Result<bool> {
    let (lines, to) = std::io::pipe()?;
    let pipe = std::fs::read_link(format!("/proc/self/fd/{}", lines.as_raw_fd())).unwrap_or_default();
    command.stdin(Stdio::null()).stdout(to.try_clone()?).stderr(to);
    let child = command.spawn();
    // The command has our copies of the pipe's end, which would keep it open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.with_context(|| format!("cannot start {}", show(command)))?;
    let (says, said) = mpsc::channel();
    std::thread::spawn(move || BufReader::new(lines).split(b'\n').try_for_each(|line| says.send(line)));
    let mut quiet = false;
    let mut ended = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            child.kill().and_then(|()| child.wait()).context("the tests' end")?;
            return Ok(false);
        }
        let line = match said.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => String::from_utf8_lossy(&line.context("the tests' output")?).into_owned(),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if ended.is_none() && child.try_wait()?.is_some() {
                    ended = Some(Instant::now());
                }
                if ended.is_some_and(|ended| ended.elapsed() > LEFT_BEHIND) {
                    let left =
                        format!("FAILED: a test left processes behind, which hold its output: {}", holders(&pipe));
                    tally.read(&left);
                    writeln!(output, "{left}")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_left_behind_fails_a_lane_and_does_not_hold_it_up() {
        let follow = |script: &str| {
            let (mut tally, mut output) = (Tally::default(), Vec::new());
            follow(Command::new("sh").args(["-c", script]), &mut tally, &mut output, &AtomicBool::new(false)).unwrap()
        };
        assert!(follow("echo all is well"));
        // It ends by itself soon after.
        assert!(!follow("sleep 8 &"));
    }

    #[test]
    fn what_a_lane_says_to_either_stream_is_kept() {
        let (mut tally, mut output) = (Tally::default(), Vec::new());
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        assert!(!follow(&mut command, &mut tally, &mut output, &AtomicBool::new(false)).unwrap());
        assert_eq!(String::from_utf8(output).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn a_lane_that_is_stopped_is_killed_and_waited_for() {
        let (stop, mut tally) = (AtomicBool::new(true), Tally::default());
        let mut command = Command::new("sleep");
        assert!(!follow(command.arg("1000"), &mut tally, &mut Vec::new(), &stop).unwrap());
    }

    #[test]
    fn what_disturbs_runs_beside_what_is_not_disturbed_and_last() {
        let mut lanes = ["pool", "net", "workspace", "lab", "bench", "privileged"].map(String::from);
        order(&mut lanes);
        assert_eq!(lanes, ["workspace", "privileged", "bench", "net", "lab", "pool"]);
    }
}
