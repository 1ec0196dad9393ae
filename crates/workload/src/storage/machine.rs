//! The same files through a JVM: it moves the bytes and times itself, everything around that stays here.
//!
//! The state of the cache needs calls that Java does not have, and what was made must be removed however the JVM ends. So it
//! is a process beside this one, with one order a line (`write FOLDER`, `read FOLDER`) and one answer: `done BEGIN NS`,
//! `wrong PLACE FILE` or `failed WHY`. When there are no more orders it proves its mode and ends. It inherits the signals of
//! a terminal; a second one ends it in any case, since this side drops it.

use crate::{Error, jvm};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// Which JVM.
#[derive(Debug)]
pub(crate) struct Jvm {
    /// Its launcher.
    pub java: String,
    /// One of [`jvm::MODES`].
    pub mode: &'static str,
}

/// A running one, ended when dropped.
#[derive(Debug)]
pub(super) struct Machine {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Machine {
    /// Starts it with these options, which say what files it is to move, in blocks of so many bytes.
    pub(super) fn new(jvm: &Jvm, options: &[(&str, u64)], block: usize) -> Result<Self, Error> {
        let words: Vec<String> = std::iter::once("file".to_owned())
            .chain(options.iter().flat_map(|(name, n)| [(*name).to_owned(), n.to_string()]))
            .collect();
        // A period of the pattern, and two blocks.
        let heap = (64 << 20) + 4 * block as u64;
        let (mut command, _jar) = jvm::command(&jvm.java, jvm.mode, heap, &words)?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| jvm::not_started(&jvm.java, &e))?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Failed("cannot talk to the JVM".into()));
        };
        Ok(Self { child, orders: Some(orders), answers: BufReader::new(answers) })
    }

    /// Has the files of a folder written or read; begin (CLOCK_BOOTTIME) and duration, ns.
    pub(super) fn order(&mut self, what: &str, paths: &[PathBuf]) -> Result<(u64, u64), Error> {
        let folder = paths.first().and_then(|path| path.parent()).unwrap_or(Path::new(""));
        let sent = self.orders.as_mut().map(|orders| writeln!(orders, "{what} {}", folder.to_string_lossy()));
        let answer = match sent {
            Some(Ok(())) => self.answer(),
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
                Err(super::io_error::wrong(Path::new(file), place.parse().unwrap_or_default()))
            }
            ("failed", _) => {
                Err(Error::Failed(format!("Java cannot {what} {rest} (choose another folder with --dir)")))
            }
            _ => Err(self.complaint()),
        }
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        // An error is an end, and `complaint` reports it.
        let _ = self.answers.read_line(&mut line);
        line.trim_end().to_owned()
    }

    /// Ends it; the proof of its mode.
    pub(super) fn end(mut self) -> Result<String, Error> {
        drop(self.orders.take());
        match self.answer().strip_prefix("mode ") {
            Some(proof) => Ok(proof.to_owned()),
            None => Err(self.complaint()),
        }
    }

    fn complaint(&mut self) -> Error {
        drop(self.orders.take());
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        Error::Failed(format!("the JVM ended: {}", said.trim()))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
