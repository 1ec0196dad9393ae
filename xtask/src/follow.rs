//! Follows a running test program: its output is passed on and counted, and neither it nor a process that it leaves behind can
//! block its suite.

use crate::run::show;
use crate::tally::Tally;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A process that still has the tests' output open this long after their end was left behind by one of them.
const LEFT_BEHIND_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// A program that prints nothing for this long hangs: no single test may take more than 15 minutes.
const SILENCE_TIMEOUT: Duration = if cfg!(test) { Duration::from_secs(3) } else { Duration::from_secs(60 * 20) };

/// How often to check whether the program has ended, or is to be stopped.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The same for a program that has closed its output, and so normally has ended.
const CLOSED_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Runs a suite's command, passes on the output of both streams, and counts. Returns true if it succeeded. It is killed when `stop` is
/// set.
pub fn follow(command: &mut Command, tally: &mut Tally, output: &mut dyn Write, stop: &AtomicBool) -> Result<bool> {
    let (lines, to) = std::io::pipe()?;
    let pipe = std::fs::read_link(format!("/proc/self/fd/{}", lines.as_raw_fd())).unwrap_or_default();
    command.stdin(Stdio::null()).stdout(to.try_clone()?).stderr(to);
    let child = command.spawn();
    // The command has our copies of the pipe's end, which would keep the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.with_context(|| format!("cannot start {}", show(command)))?;
    let (says, said) = mpsc::channel();
    std::thread::spawn(move || BufReader::new(lines).split(b'\n').try_for_each(|line| says.send(line)));
    let (mut quiet, mut closed) = (false, false);
    let mut ended = None;
    let mut heard = Instant::now();
    let mut checked = Instant::now();
    loop {
        if stop.load(Ordering::Relaxed) {
            child.kill().and_then(|()| child.wait()).context("the tests' end")?;
            return Ok(false);
        }
        // However much is printed: a process that was left behind may print without end.
        if closed || checked.elapsed() >= CHECK_INTERVAL {
            checked = Instant::now();
            if ended.is_none() {
                ended = child.try_wait().context("the tests' end")?.map(|status| (status, Instant::now()));
            }
            let failure = match ended {
                Some((status, _)) if closed => return Ok(status.success()),
                Some((_, at)) if at.elapsed() > LEFT_BEHIND_TIMEOUT => {
                    Some(format!("FAILED: a test left processes behind, which hold its output: {}", holders(&pipe)))
                }
                None if heard.elapsed() > SILENCE_TIMEOUT => {
                    child.kill().and_then(|()| child.wait()).context("the tests' end")?;
                    Some(format!("FAILED: it printed nothing for {} s, so it was killed", SILENCE_TIMEOUT.as_secs()))
                }
                _ => None,
            };
            if let Some(failure) = failure {
                tally.read(&failure);
                writeln!(output, "{failure}")?;
                return Ok(false);
            }
        }
        let line = match said.recv_timeout(CHECK_INTERVAL) {
            Ok(line) => String::from_utf8_lossy(&line.context("the tests' output")?).into_owned(),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => {
                if std::mem::replace(&mut closed, true) {
                    std::thread::sleep(CLOSED_CHECK_INTERVAL);
                }
                continue;
            }
        };
        heard = Instant::now();
        tally.read(&line);
        // The output of passed tests is parsed for their skips, but is not worth showing in the log.
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
}

/// Other processes that have that pipe open: number and command.
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
    fn leftover_process_fails_suite_without_blocking() {
        let follow = |script: &str| {
            let (mut tally, mut output) = (Tally::default(), Vec::new());
            follow(Command::new("sh").args(["-c", script]), &mut tally, &mut output, &AtomicBool::new(false)).unwrap()
        };
        assert!(follow("echo all is well"));
        // The process ends by itself soon after.
        assert!(!follow("sleep 8 &"));
        // Nor does it matter that it prints.
        assert!(!follow("for n in $(seq 40); do echo $n; sleep 0.2; done &"));
    }

    #[test]
    fn program_that_closes_its_output_is_not_awaited_forever() {
        let (mut tally, mut output) = (Tally::default(), Vec::new());
        let mut command = Command::new("sh");
        command.args(["-c", "exec >/dev/null 2>&1; exec sleep 60"]);
        assert!(!follow(&mut command, &mut tally, &mut output, &AtomicBool::new(false)).unwrap());
        let printed = String::from_utf8(output).unwrap();
        assert_eq!(printed, "FAILED: it printed nothing for 3 s, so it was killed\n");
    }

    #[test]
    fn program_that_closed_its_output_is_stopped() {
        let closed = std::env::temp_dir().join(format!("fathom-xtask-closed-{}", std::process::id()));
        let (stop, mut output) = (AtomicBool::new(false), Vec::new());
        let mut command = Command::new("sh");
        command.args(["-c", "exec >/dev/null 2>&1; echo >\"$0\"; exec sleep 60"]).arg(&closed);
        let success = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !closed.exists() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                stop.store(true, Ordering::Relaxed);
            });
            follow(&mut command, &mut Tally::default(), &mut output, &stop).unwrap()
        });
        std::fs::remove_file(&closed).unwrap();
        assert_eq!((success, output.as_slice()), (false, &b""[..]));
    }

    #[test]
    fn silent_program_is_killed_and_named() {
        let (mut tally, mut output) = (Tally::default(), Vec::new());
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; exec sleep 1000"]);
        assert!(!follow(&mut command, &mut tally, &mut output, &AtomicBool::new(false)).unwrap());
        let printed = String::from_utf8(output).unwrap();
        assert_eq!(printed, "begun\nFAILED: it printed nothing for 3 s, so it was killed\n");
    }

    #[test]
    fn stdout_and_stderr_of_suite_are_kept() {
        let (mut tally, mut output) = (Tally::default(), Vec::new());
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        assert!(!follow(&mut command, &mut tally, &mut output, &AtomicBool::new(false)).unwrap());
        assert_eq!(String::from_utf8(output).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn stopped_suite_is_killed_and_reaped() {
        let (stop, mut tally) = (AtomicBool::new(true), Tally::default());
        let mut command = Command::new("sleep");
        assert!(!follow(command.arg("1000"), &mut tally, &mut Vec::new(), &stop).unwrap());
    }
}
