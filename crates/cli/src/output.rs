//! What is printed, whoever still reads it.
//!
//! Picture a guide whose party may walk away in the middle of a sentence: he finishes his round all the same. `fathom show T
//! | head -1` takes a line and goes, and a recording must not be lost because the terminal that its remarks went to is
//! gone. The standard library's macros panic then; those below stand in for them everywhere in this program.
//!
//! What stderr does not take is dropped. What stdout does not take because its reader has gone is dropped too, and is no
//! failure; any other refusal, such as a full disk, is reported at the end, with exit status 1.
//!
//! Much of what is printed is not ours: names of files and processes, SQL, another machine's answers. Nothing of it may steer the
//! terminal, and who composes a text need not think of it: what could is written as an escape here, at the one way out. In JSON that
//! escape means the same character. Only what `fathom export` writes to stdout as a file, and
//! the lines of a workload of ours ([`Stdout`]), go out as they are.

pub use model::shell_word as word;
use model::text::harmless;
use serde::Serialize;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Why stdout took no more.
static REFUSED: OnceLock<io::Error> = OnceLock::new();

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

/// Says a result on stdout, at once.
pub fn out(text: Arguments<'_>) {
    all(&harmless(&text.to_string()));
}

/// Empties the terminal that stdout is.
pub fn clear() {
    all("\x1b[H\x1b[2J");
}

fn all(text: &str) {
    if REFUSED.get().is_some() {
        return;
    }
    let mut stdout = io::stdout().lock();
    if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // Another thread may have met it first; both met the same.
        let _ = REFUSED.set(error);
    }
}

/// Stdout for who writes many lines; says the same way, so that it never fails.
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if REFUSED.get().is_none()
            && let Err(error) = io::stdout().lock().write_all(bytes)
        {
            let _ = REFUSED.set(error);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if REFUSED.get().is_none()
            && let Err(error) = io::stdout().lock().flush()
        {
            let _ = REFUSED.set(error);
        }
        Ok(())
    }
}

/// Says a whole text on stdout.
pub fn text(text: &str) {
    out(format_args!("{text}"));
}

/// Says a result on stdout: for programs as JSON, or for people.
pub fn result(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> serde_json::Result<()> {
    self::text(&if json { serde_json::to_string_pretty(value)? + "\n" } else { text() });
    Ok(())
}

/// Says a remark on stderr.
pub fn aside(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_all(harmless(&text.to_string()).as_bytes());
}

/// Whether the reader of stdout has gone: what would be printed for ever need not be.
pub fn nobody_reads() -> bool {
    REFUSED.get().is_some()
}

/// Whether this is a reader of stdout that has gone.
pub fn has_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

/// Says what the parser of the command line has to say: help or the version, which are results, or what is wrong.
pub fn parsed(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    match printed {
        Err(refused) if !error.use_stderr() => {
            let _ = REFUSED.set(refused);
            end(code)
        }
        _ => code,
    }
}

/// How the program ends if all that is left to say against it is what stdout refused.
pub fn end(code: ExitCode) -> ExitCode {
    match REFUSED.get().filter(|error| !has_gone(error)) {
        Some(error) => {
            eprintln!("fathom: cannot write to standard output: {error}");
            ExitCode::from(1)
        }
        None => code,
    }
}
