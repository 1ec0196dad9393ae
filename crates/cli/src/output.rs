//! Prints to stdout and stderr, even after the reader has gone.
//!
//! `fathom show T | head -1` closes the pipe after one line, and a recording must not be lost because its terminal is gone. The
//! standard library's macros panic then; the macros below replace them everywhere in this program. Output that cannot be written to
//! stderr is dropped. So is output to a closed stdout, which is not a failure; any other error, such as a full disk, is reported at the
//! end, with exit status 1.
//!
//! Names of files and processes, SQL and data from other machines may contain control characters. Everything that is printed is escaped
//! here, so that none reaches the terminal; in JSON the escape means the same character. Only what `fathom export` writes to stdout as
//! a file, and the lines of a workload ([`Stdout`]), are not escaped.

pub use model::shell_word as word;
use model::text::escape_controls;
use serde::Serialize;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// The exit status after an interruption: a shell's for SIGINT.
pub const INTERRUPTED_STATUS: u8 = 130;

/// The error with which stdout refused further output.
static STDOUT_ERROR: OnceLock<io::Error> = OnceLock::new();

macro_rules! println {
    ($($arg:tt)*) => { $crate::output::out(format_args!("{}\n", format_args!($($arg)*))) };
}
macro_rules! print {
    ($($arg:tt)*) => { $crate::output::out(format_args!($($arg)*)) };
}
macro_rules! eprintln {
    ($($arg:tt)*) => { $crate::output::aside(format_args!("{}\n", format_args!($($arg)*))) };
}
macro_rules! eprint {
    ($($arg:tt)*) => { $crate::output::aside(format_args!($($arg)*)) };
}

/// Prints on stdout, at once.
pub fn out(text: Arguments<'_>) {
    write_stdout(&escape_controls(&text.to_string()));
}

/// Clears the terminal on stdout.
pub fn clear() {
    write_stdout("\x1b[H\x1b[2J");
}

fn write_stdout(text: &str) {
    if STDOUT_ERROR.get().is_some() {
        return;
    }
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // Another thread may have set it first; both got the same error.
        let _ = STDOUT_ERROR.set(error);
    }
}

/// Stdout as a writer, for many lines; like the functions above it never fails.
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if STDOUT_ERROR.get().is_none()
            && let Err(error) = io::stdout().lock().write_all(bytes)
        {
            let _ = STDOUT_ERROR.set(error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if STDOUT_ERROR.get().is_none()
            && let Err(error) = io::stdout().lock().flush()
        {
            let _ = STDOUT_ERROR.set(error);
        }
        Ok(())
    }
}

pub fn print_text(text: &str) {
    out(format_args!("{text}"));
}

/// Prints a result on stdout: as JSON for programs, or as text.
pub fn print_result(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> serde_json::Result<()> {
    self::print_text(&if json { serde_json::to_string_pretty(value)? + "\n" } else { text() });
    Ok(())
}

/// Prints a remark on stderr.
pub fn aside(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_all(escape_controls(&text.to_string()).as_bytes());
}

/// Whether the reader of stdout has gone, so that endless output can stop.
pub fn stdout_is_closed() -> bool {
    STDOUT_ERROR.get().is_some()
}

/// Whether the error means that the reader of stdout has gone.
pub fn reader_has_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

/// Prints what the command line parser returns: help or the version, which are results, or a usage error.
pub fn print_parser_output(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    match printed {
        Err(refused) if !error.use_stderr() => {
            let _ = STDOUT_ERROR.set(refused);
            exit_status(code)
        }
        _ => code,
    }
}

/// The exit status: `code`, unless stdout refused something.
pub fn exit_status(code: ExitCode) -> ExitCode {
    match STDOUT_ERROR.get().filter(|error| !reader_has_gone(error)) {
        Some(error) => {
            eprintln!("fathom: cannot write to standard output: {error}");
            ExitCode::from(1)
        }
        None => code,
    }
}
