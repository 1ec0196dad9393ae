//! What is said, whoever still listens.
//!
//! Picture a guide whose party may walk away in the middle of a sentence: he finishes his round all the same. `fathom show T
//! | head -1` takes a line and goes, and a recording must not be lost because the terminal that its remarks went to is
//! gone. The standard library's macros panic then; those below stand in for them everywhere in this program.
//!
//! What stderr does not take is dropped. What stdout does not take because its reader has gone is dropped too, and is no
//! failure; any other refusal, such as a full disk, is told at the end, with exit status 1.
//!
//! Much of what is said is not ours: names of files and processes, SQL, what another machine told. Nothing of it may steer the
//! terminal, and who composes a text need not think of it: what could is written as an escape here, at the one way out. In JSON that
//! escape means the same character. Only what `fathom export` writes to stdout as a file, and
//! the lines of a workload of ours ([`Stdout`]), go out as they are.

use analysis::text::steers;
pub use model::shell_word as word;
use std::borrow::Cow;
use std::fmt::{Arguments, Write as _};
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

/// Says a remark on stderr.
pub fn aside(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_all(harmless(&text.to_string()).as_bytes());
}

/// What another program says, which comes in pieces: handed on by whole lines, so that no character is cut.
pub struct Lines {
    rest: Vec<u8>,
    say: fn(Arguments<'_>),
}

impl Lines {
    /// A line that has no end yet is not kept beyond this.
    const LONGEST: usize = 1 << 20;

    /// What it says is handed to `say`: [`out`] or [`aside`].
    pub fn new(say: fn(Arguments<'_>)) -> Self {
        Self { rest: Vec::new(), say }
    }

    pub fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let end = self.rest.iter().rposition(|b| *b == b'\n').map(|at| at + 1);
        if let Some(end) = end.or((self.rest.len() > Self::LONGEST).then_some(self.rest.len())) {
            let whole: Vec<u8> = self.rest.drain(..end).collect();
            (self.say)(format_args!("{}", String::from_utf8_lossy(&whole)));
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if !self.rest.is_empty() {
            (self.say)(format_args!("{}", String::from_utf8_lossy(&self.rest)));
        }
    }
}

/// A text whose lines and columns stay, and that steers nothing else.
fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |c: char| steers(c) && !matches!(c, '\n' | '\t');
    if !text.contains(steers) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // Lines of CSV end in both.
        let ends_line = c == '\r' && chars.peek() == Some(&'\n');
        match steers(c) && !ends_line {
            // Writing to a string does not fail.
            true => drop(write!(out, "\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out.into()
}

/// Whether the reader of stdout has gone: what would be printed for ever need not be.
pub fn nobody_reads() -> bool {
    REFUSED.get().is_some()
}

/// Whether this is a reader of stdout that has gone.
pub fn has_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_has_no_terminal_control_sequences() {
        assert_eq!(harmless("a\tb\r\nü"), "a\tb\r\nü");
        assert_eq!(harmless("\u{1b}[2J\r\u{9b}1A\u{202e}x\u{7f}"), "\\u001b[2J\\u000d\\u009b1A\\u202ex\\u007f");
        // Characters that JSON leaves unescaped survive the round trip.
        let hostile = serde_json::json!({"a": "\u{1b}[2J\u{9b}1A\u{202e}\u{feff}"});
        let said = hostile.to_string();
        assert!(said.contains('\u{202e}') && !harmless(&said).contains(steers));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&harmless(&said)).unwrap(), hostile);
    }

    #[test]
    fn partial_output_is_printed_in_complete_lines() {
        thread_local!(static SAID: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) });
        let text = "{\"a\": \"ü\u{202e}\"}\r\n é\n\u{1b}[2Jend";
        for cut in 0..=text.len() {
            let mut lines =
                Lines::new(|text| SAID.with_borrow_mut(|said| said.push(harmless(&text.to_string()).into())));
            lines.take(&text.as_bytes()[..cut]);
            lines.take(&text.as_bytes()[cut..]);
            drop(lines);
            let said = SAID.take();
            assert_eq!(said.concat(), "{\"a\": \"ü\\u202e\"}\r\n é\n\\u001b[2Jend");
            assert!(said[..said.len() - 1].iter().all(|line| line.ends_with('\n')), "{said:?}");
        }
    }
}
