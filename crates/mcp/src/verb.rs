//! Runs a verb of Fathom as a separate process: an assistant gets the same JSON as any user (`fathom show --json`), and a verb that fails
//! or hangs costs one answer.

use crate::{Error, Result};
use model::messages::strip_program_name;
use serde_json::Value;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest time of one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Limit of the error messages that are read, in bytes.
const STDERR_BYTES_MAX: u64 = 64 << 10;
/// Limit of an answer, in bytes: the result of a cross join must not fill memory.
const ANSWER_BYTES_MAX: u64 = 32 << 20;

/// How often a running verb's request is checked for cancellation. Its end is noticed at once.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the JSON that the verb prints. It is killed once the request is `cancelled`.
///
/// # Errors
/// It cannot be run, refuses, takes too long or prints something else, or was cancelled.
pub fn run(program: &Path, words: &[OsString], cancelled: &dyn Fn() -> bool) -> Result<Value> {
    run_within(program, words, ANSWER_TIMEOUT, ANSWER_BYTES_MAX, cancelled)
}

/// Waits for its end, and kills it if necessary.
fn wait_for_end(
    child: &mut Child,
    limit: Duration,
    cancelled: &dyn Fn() -> bool,
) -> std::io::Result<Result<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Some(status) = child::wait_timeout(child, left.min(POLL_INTERVAL))? {
            return Ok(Ok(status));
        }
        let why = match (cancelled(), left.is_zero()) {
            (true, _) => Error::Cancelled,
            (false, true) => Error::TimedOut(limit),
            (false, false) => continue,
        };
        child.kill()?;
        child.wait()?;
        return Ok(Err(why));
    }
}

fn run_within(
    program: &Path,
    words: &[OsString],
    limit: Duration,
    bytes_max: u64,
    cancelled: &dyn Fn() -> bool,
) -> Result<Value> {
    let failed = |source| Error::Run { program: program.into(), source };
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child::kill_with_parent(&mut command).spawn().map_err(failed)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A process that writes more finds the pipe closed and ends.
        out.map(|out| out.take(bytes_max + 1).read_to_end(&mut bytes)).transpose().map(|_| bytes)
    });
    let stderr_reader = std::thread::spawn(move || {
        let mut messages = String::new();
        let _ = err.map(|err| err.take(STDERR_BYTES_MAX).read_to_string(&mut messages));
        messages
    });
    let status = wait_for_end(&mut child, limit, cancelled).map_err(failed)??;
    let unread = || std::io::Error::other("its output could not be read");
    let bytes = reader.join().unwrap_or_else(|_| Err(unread())).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Error::AnswerTooLarge(bytes_max));
    }
    if !status.success() {
        let messages = stderr_reader.join().unwrap_or_default();
        let lines: Vec<String> =
            messages.trim().lines().map(|line| model::text::shown(strip_program_name(line))).collect();
        return Err(Error::Refused(if lines.is_empty() {
            format!("it ended with {status}")
        } else {
            lines.join("\n")
        }));
    }
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(line: &str, limit: Duration) -> Result<Value> {
        run_within(Path::new("/bin/sh"), &["-c".into(), line.into()], limit, 1000, &|| false)
    }

    #[test]
    fn cancelled_verb_ends() {
        let words = ["-c".into(), "exec sleep 600".into()];
        let asked = std::cell::Cell::new(0);
        let cancelled = || asked.replace(asked.get() + 1) > 0;
        let why = run_within(Path::new("/bin/sh"), &words, Duration::from_secs(600), 1000, &cancelled).unwrap_err();
        assert!(matches!(why, Error::Cancelled), "{why}");
    }

    #[test]
    fn endless_answer_is_refused_before_the_memory_is_full() {
        let why = sh("exec yes", Duration::from_secs(600)).unwrap_err();
        assert!(matches!(why, Error::AnswerTooLarge(1000)) && why.to_string().contains("ask for less"), "{why}");
        assert_eq!(sh("printf '\"%0998d\"' 0", Duration::from_secs(600)).unwrap().as_str().map(str::len), Some(998));
    }

    #[test]
    fn verb_answers_json_or_says_why_not() {
        let long = Duration::from_secs(60);
        assert_eq!(sh("echo '{\"a\": 1}'", long).unwrap()["a"], 1);
        let messages = |line: &str| sh(line, long).unwrap_err().to_string();
        assert_eq!(messages("echo 'fathom: no such file' >&2; exit 1"), "no such file");
        assert!(messages("exit 3").contains("exit status: 3") && messages("echo a").contains("not JSON"));
        assert!(matches!(sh("exec sleep 600", Duration::from_millis(10)), Err(Error::TimedOut(_))));
        let none = run(Path::new("/no/such/program"), &[], &|| false).unwrap_err().to_string();
        assert!(none.contains("/no/such/program"), "{none}");
    }
}
