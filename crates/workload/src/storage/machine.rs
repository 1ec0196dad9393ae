//! The same files through a JVM: it transfers the bytes and times itself, everything else stays here.
//!
//! The state of the cache needs calls that Java does not have, and the files must be removed however the JVM ends. So it is
//! a process next to this one, with one command per line (`write DIRECTORY`, `read DIRECTORY`) and one answer: `done BEGIN NS`,
//! `wrong PLACE FILE` or `failed WHY`. When there are no more commands it proves its mode and ends. It receives the signals
//! of a terminal as well; a second one ends it in any case, since this side drops it.

use crate::{Error, jvm};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

#[derive(Debug)]
pub(crate) struct Jvm {
    pub java: String,
    /// One of [`jvm::MODES`].
    pub mode: &'static str,
}

/// A running JVM, ended when dropped.
#[derive(Debug)]
pub(super) struct JvmProcess {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl JvmProcess {
    /// Starts it with these options, which describe the files to transfer, in blocks of `block` bytes.
    pub(super) fn new(jvm: &Jvm, options: &[(&str, u64)], block: usize) -> Result<Self, Error> {
        let words: Vec<String> = std::iter::once("file".to_owned())
            .chain(options.iter().flat_map(|(name, n)| [(*name).to_owned(), n.to_string()]))
            .collect();
        // One period of the pattern, and two blocks.
        let heap = (64 << 20) + 4 * block as u64;
        let (mut command, _jar) = jvm::command(&jvm.java, jvm.mode, heap, &words)?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| jvm::start_error(&jvm.java, &e))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Failed("cannot talk to the JVM".into()));
        };
        Ok(Self { child, commands: Some(orders), answers: BufReader::new(answers) })
    }

    /// Writes or reads the files of a directory; returns start (CLOCK_BOOTTIME) and duration, ns.
    pub(super) fn transfer(&mut self, what: &str, paths: &[PathBuf]) -> Result<(u64, u64), Error> {
        let directory = paths.first().and_then(|path| path.parent()).unwrap_or(Path::new(""));
        let sent = self.commands.as_mut().map(|orders| writeln!(orders, "{what} {}", directory.to_string_lossy()));
        let answer = match sent {
            Some(Ok(())) => self.read_answer(),
            _ => String::new(),
        };
        let (kind, rest) = answer.split_once(' ').unwrap_or_default();
        match (kind, rest.split_once(' ')) {
            ("done", Some((begin, ns))) => {
                let number =
                    |text: &str| text.parse::<u64>().map_err(|_| Error::Failed(format!("the JVM said {answer:?}")));
                Ok((number(begin)?, number(ns)?))
            }
            ("wrong", Some((place, file))) => {
                Err(super::io_error::wrong_byte(Path::new(file), place.parse().unwrap_or_default()))
            }
            ("failed", _) => {
                Err(Error::Failed(format!("Java cannot {what} {rest} (choose another directory with --dir)")))
            }
            _ => Err(self.exit_error()),
        }
    }

    fn read_answer(&mut self) -> String {
        let mut line = String::new();
        // An error counts as the end, and `exit_error` reports it.
        let _ = self.answers.read_line(&mut line);
        line.trim_end().to_owned()
    }

    /// Ends it; returns the proof of its mode.
    pub(super) fn end(mut self) -> Result<String, Error> {
        drop(self.commands.take());
        match self.read_answer().strip_prefix("mode ") {
            Some(proof) => Ok(proof.to_owned()),
            None => Err(self.exit_error()),
        }
    }

    fn exit_error(&mut self) -> Error {
        drop(self.commands.take());
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        Error::Failed(format!("the JVM ended: {}", said.trim()))
    }
}

impl Drop for JvmProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
