//! One replicate: a process in a group of its own, its lines of JSON, its end.
//!
//! The whole group is interrupted, so that a tracer takes its tracee along; the terminal's Ctrl-C does not reach it, so that the
//! runner decides how a replicate ends. Any process that remains, in the group or not, is ended by the process's [`guard`], and
//! so are all of them if the runner itself is killed. While it runs, the runner sleeps on a pipe and wakes up ten times a second.

use crate::guard::{self, GuardHandle, SchedulerTimes};
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a waiting runner checks whether it should stop.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of ticks to wait for the rest of an ended process's output.
const LAST_TICKS_MAX: u32 = 30;
/// How long a process may take to end after SIGINT before it is killed.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes kept of a process's error output: its end.
const ERROR_OUTPUT_BYTES_MAX: usize = 2000;
/// More numbers than any process of ours prints; a runaway peer must not fill the memory.
const LINES_MAX: usize = 4_000_000;
/// Number of lines to read before the time, cancellation and the process itself are checked.
const LINES_PER_CHECK: u64 = 1000;
/// A longer line is truncated here; it is malformed then, if it is one of ours.
const LINE_BYTES_MAX: u64 = 1 << 16;
/// Difference of the clocks above which the machine slept: reading two clocks takes less than a ms.
const SLEEP_NS_MIN: u64 = 100_000_000;
/// Difference of the wall clock above which it was set.
const CLOCK_JUMP_NS_MIN: f64 = 100e6;

/// One number as a replicate printed it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Line {
    /// Name of the metric.
    pub metric: String,
    #[serde(default)]
    pub unit: String,
    /// Time, CLOCK_BOOTTIME in ns.
    pub t: Option<u64>,
    /// The value.
    pub v: f64,
    /// `key=value` pairs, separated by spaces.
    #[serde(default)]
    pub labels: String,
}

/// The result of a process.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Start and end, CLOCK_BOOTTIME.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Start by the wall clock, ns since 1970.
    pub start_unix_ns: u64,
    /// Its exit status; `None` if it was killed.
    pub exit: Option<i64>,
    /// Its numbers.
    pub lines: Vec<Line>,
    /// Remarks of the process, and about the clocks: name and text.
    pub marks: Vec<(String, String)>,
    /// Whether it reported a check of its result.
    pub verified: Option<bool>,
    /// What it reported to have checked.
    pub verified_by: Option<String>,
    /// Why it has no result.
    pub failure: Option<String>,
    /// Whether that is because it was interrupted.
    pub interrupted: bool,
    pub resource_use: ResourceUse,
}

/// Resource usage of a process and all its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ResourceUse {
    /// Processor time, s.
    pub cpu_s: f64,
    /// The scheduler's counts for its first thread, if available.
    pub scheduled: Option<SchedulerTimes>,
}

impl Outcome {
    /// Returns the outcome of a process that failed before it began.
    pub fn failed(why: String) -> Self {
        let clocks = Clocks::now();
        let (now, unix) = (clocks.boot, clocks.real);
        Self { start_ns: now, end_ns: now, start_unix_ns: unix, failure: Some(why), ..Self::default() }
    }

    /// Parses a line. An error is a line that has our format but is malformed: an invalid number must not be lost
    /// among a peer's other output.
    fn take_line(&mut self, line: &str) -> Result<(), String> {
        #[derive(Deserialize)]
        struct VerifiedLine {
            verified: bool,
            #[serde(default)]
            by: String,
        }
        #[derive(Deserialize)]
        struct MarkLine {
            mark: String,
            #[serde(default)]
            text: String,
        }
        let nonsense = |why: &dyn std::fmt::Display| {
            let shown: String = line.chars().take(120).collect();
            Err(format!("it printed an invalid line ({why}): {shown}"))
        };
        if !line.starts_with('{') {
            return Ok(());
        }
        let ours = |key: &str| line.contains(&format!("\"{key}\""));
        match (ours("metric"), ours("verified"), ours("mark")) {
            (true, ..) => match serde_json::from_str::<Line>(line) {
                Ok(line) if self.lines.len() < LINES_MAX => self.lines.push(line),
                Ok(_) => return Err(format!("it printed more than {LINES_MAX} numbers")),
                Err(e) => return nonsense(&e),
            },
            (_, true, _) => match serde_json::from_str::<VerifiedLine>(line) {
                Ok(v) => {
                    // A check that failed once has failed, and its description is the one to keep.
                    if self.verified != Some(false) {
                        self.verified_by = Some(v.by);
                    }
                    self.verified = Some(v.verified && self.verified.unwrap_or(true));
                }
                Err(e) => return nonsense(&e),
            },
            (_, _, true) => match serde_json::from_str::<MarkLine>(line) {
                Ok(m) => self.marks.push((m.mark, m.text)),
                Err(e) => return nonsense(&e),
            },
            // Anything else is other output of a peer.
            _ => {}
        }
        Ok(())
    }
}

/// The clocks at one moment, ns.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    /// Continues while the machine sleeps.
    boot: u64,
    /// Stops while the machine sleeps.
    awake: u64,
    /// The wall clock, which may be set.
    real: u64,
}

impl Clocks {
    fn now() -> Self {
        Self { boot: now_ns(), awake: read_clock(libc::CLOCK_MONOTONIC), real: read_clock(libc::CLOCK_REALTIME) }
    }

    /// Returns the seconds that the machine has slept since, if it has.
    fn slept_since(&self, before: &Self) -> Option<f64> {
        let slept = (self.boot - before.boot).saturating_sub(self.awake.saturating_sub(before.awake));
        (slept > SLEEP_NS_MIN).then_some(slept as f64 / 1e9)
    }

    /// Returns the seconds by which the wall clock was set forward (or back: negative) since, if it was. Slewing by a
    /// time server, up to 500 ppm, does not count.
    fn jumped_since(&self, before: &Self) -> Option<f64> {
        let steady = (self.boot - before.boot) as f64;
        let jump = self.real as f64 - before.real as f64 - steady;
        (jump.abs() > CLOCK_JUMP_NS_MIN + steady * 500e-6).then_some(jump / 1e9)
    }
}

/// Returns CLOCK_BOOTTIME in nanoseconds.
pub fn now_ns() -> u64 {
    read_clock(libc::CLOCK_BOOTTIME)
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    // A date before 1970 is a jump like any other.
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

/// Prepares a command under a guard.
fn guarded_command(argv: &[String]) -> std::io::Result<(Command, GuardHandle)> {
    // A design has no empty argv; an empty one would only fail to start.
    let mut command = Command::new(argv.first().map_or("", String::as_str));
    command.args(argv.get(1..).unwrap_or_default()).stdin(Stdio::null());
    let handle = guard::guard(&mut command)?;
    Ok((command, handle))
}

/// Why a command is not running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The system did not start it.
    #[error("cannot start {0}: {1}")]
    NotStarted(String, std::io::Error),
    /// It ended too early: the end of its output.
    #[error("{0} ended at once: {1}")]
    Ended(String, String),
}

/// Starts the command with its output piped as required.
fn spawn(argv: &[String], stdout: Stdio) -> Result<(Child, GuardHandle), StartError> {
    let started = guarded_command(argv).and_then(|(mut command, handle)| {
        let child = command.stdout(stdout).stderr(Stdio::piped()).spawn()?;
        Ok((child, handle))
    });
    started.map_err(|e| StartError::NotStarted(argv.first().cloned().unwrap_or_default(), e))
}

/// Runs `argv` to its end, to the timeout, or until `cancelled`.
pub fn run(argv: &[String], timeout: Duration, cancelled: &dyn Fn() -> bool) -> Outcome {
    let before_s = children_cpu_s();
    let start = Clocks::now();
    let (mut child, handle) = match spawn(argv, Stdio::piped()) {
        Ok(started) => started,
        Err(why) => return Outcome::failed(why.to_string()),
    };
    let (output_lines, error_output) = (read_lines(child.stdout.take()), read_tail(child.stderr.take()));
    let mut outcome = Outcome { start_ns: start.boot, start_unix_ns: start.real, ..Outcome::default() };
    let deadline = Instant::now() + timeout;
    let (mut open, mut nonsense, mut taken) = (true, None, 0_u64);
    let stopped = loop {
        if open {
            match output_lines.recv_timeout(TICK_INTERVAL) {
                Ok(line) => {
                    nonsense = nonsense.or(outcome.take_line(&line).err());
                    taken += 1;
                    // Endless output must not prevent us from checking the time.
                    if nonsense.is_none() && !taken.is_multiple_of(LINES_PER_CHECK) {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => open = false,
                Err(RecvTimeoutError::Timeout) => {}
            }
        } else {
            std::thread::sleep(Duration::from_millis(2));
        }
        if has_ended(&child) {
            break None;
        }
        if cancelled() {
            outcome.interrupted = true;
            break Some("interrupted".to_string());
        }
        if let Some(why) = nonsense.take() {
            break Some(why);
        }
        if Instant::now() >= deadline {
            break Some(format!("timed out after {} s", timeout.as_secs()));
        }
    };
    let (status, scheduled) = end_group(&mut child, handle);
    let end = Clocks::now();
    outcome.resource_use = ResourceUse { cpu_s: (children_cpu_s() - before_s).max(0.0), scheduled };
    outcome.end_ns = end.boot;
    while let Some(line) = next_output(&output_lines) {
        nonsense = nonsense.or(outcome.take_line(&line).err());
    }
    outcome.exit = status.and_then(|s| s.code()).map(i64::from);
    let complaint = next_output(&error_output).unwrap_or_default();
    outcome.failure = stopped.or_else(|| match status {
        Some(s) if s.success() => None,
        Some(s) => Some(format!("{s}: {}", complaint.trim())),
        None => Some("its exit status is unknown".into()),
    });
    outcome.failure = outcome.failure.or(nonsense);
    if outcome.failure.is_none() && outcome.verified == Some(false) {
        let by = outcome.verified_by.as_deref().filter(|by| !by.is_empty()).map(|by| format!(": {by}"));
        outcome.failure = Some(format!("its own check of the result failed{}", by.unwrap_or_default()));
    }
    if let Some(s) = end.slept_since(&start) {
        outcome.failure = outcome.failure.or(Some(format!("the machine slept for {s:.1} s during it")));
    }
    if let Some(s) = end.jumped_since(&start) {
        // Durations do not use that clock, so this is only worth a mark.
        outcome.marks.push(("clock".into(), format!("the wall clock was set by {s:+.3} s during it")));
    }
    outcome
}

/// A command that runs alongside a replicate, ended on drop.
#[derive(Debug)]
pub struct Background {
    child: Child,
    handle: Option<GuardHandle>,
}

impl Background {
    /// Starts the command and waits `settle` for it to take effect; an error if it ended by then.
    pub fn start(argv: &[String], settle: Duration) -> Result<Self, StartError> {
        let (mut child, handle) = spawn(argv, Stdio::null())?;
        let complaint = read_tail(child.stderr.take());
        let background = Self { child, handle: Some(handle) };
        std::thread::sleep(settle);
        if has_ended(&background.child) {
            let complaint = next_output(&complaint).unwrap_or_default();
            return Err(StartError::Ended(argv.first().cloned().unwrap_or_default(), complaint.trim().into()));
        }
        Ok(background)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            end_group(&mut self.child, handle);
        }
    }
}

/// Whether the process has ended; it stays a zombie, so that its group ID cannot be reused.
fn has_ended(child: &Child) -> bool {
    // SAFETY: siginfo_t may be all zeroes, and waitid writes into ours only.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the pointer is to a siginfo_t of ours; WNOWAIT leaves the child for `wait`.
    let result = unsafe { libc::waitid(libc::P_PID, child.id(), &raw mut info, options) };
    // SAFETY: waitid filled it; si_pid is 0 if nothing has ended.
    result != 0 || unsafe { info.si_pid() } != 0
}

/// Returns the processor time of all reaped children, and of their reaped children, s.
fn children_cpu_s() -> f64 {
    // SAFETY: a rusage may be all zeroes, and getrusage writes into ours only.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let s = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    s(usage.ru_utime) + s(usage.ru_stime)
}

/// Ends a group: SIGINT, time to finish; then its guard kills the rest. Returns how the command ended, and the scheduler's counts for it.
fn end_group(child: &mut Child, handle: GuardHandle) -> (Option<ExitStatus>, Option<SchedulerTimes>) {
    let deadline = Instant::now() + INTERRUPT_TIMEOUT;
    if !has_ended(child) {
        let group = i32::try_from(child.id()).unwrap_or(i32::MAX);
        // SAFETY: a signal to a group that we made, whose leader, the guard, we have not reaped yet. The guard ignores it.
        unsafe { libc::kill(-group, libc::SIGINT) };
        while !has_ended(child) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let reply = handle.release();
    (child.wait().ok(), reply.read())
}

/// Returns the next part of an ended process's output, until its pipe is closed too. The thread that reads it may have to
/// wait for a processor, on a busy machine for longer than a tick; but a process that left the group may hold the pipe open
/// forever. Ticks are counted, not time, so that the reader gets its chance even if the machine was suspended.
fn next_output<T>(from: &Receiver<T>) -> Option<T> {
    (0..LAST_TICKS_MAX).find_map(|_| match from.recv_timeout(TICK_INTERVAL) {
        Ok(item) => Some(Some(item)),
        Err(RecvTimeoutError::Disconnected) => Some(None),
        Err(RecvTimeoutError::Timeout) => None,
    })?
}

fn read_lines(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let Some(mut stream) = stream.map(BufReader::new) else { return };
        let mut line = Vec::new();
        while stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            if sender.send(String::from_utf8_lossy(&line).trim_end().to_string()).is_err() {
                break;
            }
            line.clear();
        }
    });
    receiver
}

/// Reads a stream to its end, so that its writer does not block, and then sends its last part.
fn read_tail(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (mut tail, mut buffer) = (Vec::new(), [0; 4096]);
        if let Some(mut stream) = stream {
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                tail.extend_from_slice(&buffer[..n]);
                tail.drain(..tail.len().saturating_sub(ERROR_OUTPUT_BYTES_MAX));
            }
        }
        let _ = sender.send(String::from_utf8_lossy(&tail).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, timeout: Duration) -> Outcome {
        run(&["/bin/sh".into(), "-c".into(), script.into()], timeout, &|| false)
    }

    const LONG_TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn lines_become_samples_and_other_output_is_ignored() {
        let script = r#"echo hello; echo '{"metric":"m","unit":"1/s","t":5,"v":2.5}'; echo '{"mark":"mode","text":"C1"}'
            echo '{"verified":true,"by":"looking"}'; echo '{"metric":"n","v":1}'"#;
        let outcome = sh(script, LONG_TIMEOUT);
        assert_eq!((outcome.exit, outcome.verified, outcome.failure), (Some(0), Some(true), None));
        assert_eq!(
            (outcome.verified_by.as_deref(), &*outcome.marks),
            (Some("looking"), &[("mode".into(), "C1".into())][..])
        );
        assert_eq!(
            outcome.lines.iter().map(|l| (l.metric.as_str(), l.v)).collect::<Vec<_>>(),
            [("m", 2.5), ("n", 1.0)]
        );
    }

    #[test]
    fn each_failure_has_a_reason() {
        let failure = |script: &str| sh(script, LONG_TIMEOUT).failure.unwrap();
        assert!(failure("echo no such thing >&2; exit 3").contains("no such thing"));
        assert!(failure("kill -9 $$").contains("signal"));
        assert!(failure(r#"echo '{"verified":false,"by":"sum 3, not 4"}'"#).contains("sum 3, not 4"));
        for line in
            [r#"{"metric":"m","v":"fast"}"#, r#"{"metric":"m","v":1e999}"#, r#"{"metric":"m"}"#, r#"{"verified":1}"#]
        {
            assert!(failure(&format!("echo '{line}'")).contains("an invalid line"), "{line}");
        }
        assert!(failure(r#"echo '{"verified":false}'; echo '{"verified":true}'"#).contains("check"));
        let missing = run(&["/no/such/program".into()], LONG_TIMEOUT, &|| false);
        assert!(missing.failure.unwrap().contains("/no/such/program"));
    }

    #[test]
    fn excess_output_is_discarded() {
        let outcome = sh("head -c 10000000 /dev/zero; echo; head -c 3000000 /dev/zero | tr '\\0' '{'", LONG_TIMEOUT);
        assert_eq!((outcome.lines.len(), outcome.failure), (0, None));
    }

    #[test]
    fn endless_output_ends_at_the_timeout_or_when_cancelled() {
        let yes = ["yes".to_string(), "not one of ours".into()];
        let outcome = run(&yes, Duration::from_millis(300), &|| false);
        assert!(outcome.failure.unwrap().contains("timed out after"));
        let begun = Instant::now();
        let outcome = run(&yes, LONG_TIMEOUT, &|| begun.elapsed() > Duration::from_millis(200));
        assert!(outcome.interrupted);
    }

    #[test]
    fn suspend_and_clock_steps_are_distinguished_from_drift() {
        let s = |boot: f64, awake: f64, real: f64| Clocks {
            boot: (boot * 1e9) as u64,
            awake: (awake * 1e9) as u64,
            real: (real * 1e9) as u64,
        };
        let start = s(100.0, 90.0, 1e9);
        let quiet = s(400.0, 390.0, 1e9 + 300.1);
        assert_eq!((quiet.slept_since(&start), quiet.jumped_since(&start)), (None, None));
        assert_eq!(s(160.0, 91.0, 1e9 + 60.0).slept_since(&start), Some(59.0));
        assert!((s(101.0, 91.0, 1e9 - 3599.0).jumped_since(&start).unwrap() + 3600.0).abs() < 1e-3);
    }

    #[test]
    fn timeout_kills_the_process_group_and_keeps_its_output() {
        let said = r#"echo '{"metric":"pid","v":'"#;
        let outcome = sh(&format!("{said}$$'}}'; sleep 1000 & {said}$!'}}'; wait"), Duration::from_millis(300));
        assert!(outcome.failure.unwrap().contains("timed out after"));
        assert_eq!(outcome.lines.len(), 2);
        for line in outcome.lines {
            // SAFETY: signal 0 only tests whether the process exists.
            assert!(unsafe { libc::kill(line.v as i32, 0) } != 0, "{} lives", line.v);
        }
    }

    /// On a fully loaded machine the reader is scheduled late.
    #[test]
    fn output_of_an_ended_process_is_read_to_its_end() {
        let (sender, said) = channel();
        let late = std::thread::spawn(move || {
            // A fixed wait: the reader is late by more than a tick, twice.
            std::thread::sleep(4 * TICK_INTERVAL);
            sender.send(1).unwrap();
            std::thread::sleep(3 * TICK_INTERVAL);
            sender.send(2).unwrap();
        });
        assert_eq!(std::iter::from_fn(|| next_output(&said)).collect::<Vec<i32>>(), [1, 2]);
        late.join().unwrap();
    }

    #[test]
    fn interrupt_lets_the_process_finish() {
        // It signals when it is ready to be interrupted: on a busy machine a shell starts slowly.
        let ready = std::env::temp_dir().join(format!("fathom-interrupt-{}", std::process::id()));
        let script = format!(
            r#"trap 'echo "{{\"metric\":\"late\",\"v\":1}}"; exit 0' INT; : >{}; while :; do sleep 0.05; done"#,
            ready.to_string_lossy()
        );
        let outcome = run(&["/bin/sh".into(), "-c".into(), script], LONG_TIMEOUT, &|| ready.exists());
        std::fs::remove_file(&ready).unwrap();
        assert_eq!(outcome.failure.as_deref(), Some("interrupted"));
        assert_eq!(outcome.lines.len(), 1, "it was allowed to finish");
    }

    #[test]
    fn background_that_exits_at_once_is_a_failure() {
        let sh = |script: &str| vec!["/bin/sh".to_string(), "-c".into(), script.into()];
        let settle = Duration::from_millis(200);
        let error = Background::start(&sh("echo not allowed >&2; exit 1"), settle).unwrap_err().to_string();
        assert!(error.contains("not allowed"), "{error}");
        let background = Background::start(&sh("sleep 1000"), settle).unwrap();
        let group = i32::try_from(background.child.id()).unwrap();
        drop(background);
        // SAFETY: signal 0 only tests whether the process exists.
        assert!(unsafe { libc::kill(group, 0) } != 0);
    }
}
