//! Reads the client's messages on a thread of its own, so that they are handled while a tool runs: a ping is answered, a request cancelled.
//!
//! Tool calls wait in a short queue; when it is full nothing more is read, so that a client that sends requests faster than they
//! are answered costs no memory.

use crate::protocol::{self, Call, Wants};
use serde_json::Value;
use std::io::{self, BufRead, Read as _, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Calls that wait.
const WAITING: usize = 64;

/// The unanswered requests, and whether each was cancelled.
#[derive(Debug, Clone, Default)]
pub struct Open(Arc<Mutex<Vec<(Value, bool)>>>);

impl Open {
    fn with<T>(&self, what: impl FnOnce(&mut Vec<(Value, bool)>) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn is_cancelled(&self, id: &Value) -> bool {
        self.with(|open| open.iter().any(|(known, cancelled)| *cancelled && known == id))
    }

    /// Forgets a request that is answered or whose answer is not expected any more.
    pub fn done(&self, id: &Value) {
        self.with(|open| {
            if let Some(at) = open.iter().position(|(known, _)| known == id) {
                open.remove(at);
            }
        });
    }

    fn cancel(&self, id: &Value) {
        self.with(|open| open.iter_mut().filter(|(known, _)| known == id).for_each(|(_, cancelled)| *cancelled = true));
    }
}

/// The writer: answers come from two threads, one per line.
pub struct Outbox<W>(Mutex<W>);

impl<W: Write> Outbox<W> {
    /// Sends a message.
    ///
    /// # Errors
    /// The reader has gone.
    pub fn send(&self, message: &Value) -> io::Result<()> {
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // JSON escapes what could control a terminal, and has no line break.
        writeln!(to, "{message}").and_then(|()| to.flush())
    }
}

/// Whether `out` has lost its reader: the other end of its pipe or socket is closed.
pub fn is_unread(out: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let polls = poll(&mut polled, Some(&Timespec::default()));
    polls.is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}

/// The tool calls, in order of arrival.
pub struct Inbox<W> {
    /// Each with its request's id.
    pub calls: Receiver<(Value, Call)>,
    /// Which of them are open.
    pub open: Open,
    /// The destination of answers.
    pub out: Arc<Outbox<W>>,
    reader: JoinHandle<io::Result<()>>,
}

impl<W: Write + Send + 'static> Inbox<W> {
    pub fn new(from: impl BufRead + Send + 'static, to: W, tools: Value, instructions: &'static str) -> Self {
        let (tell, calls) = sync_channel(WAITING);
        let (open, out) = (Open::default(), Arc::new(Outbox(Mutex::new(to))));
        let (ours, answers) = (open.clone(), out.clone());
        let reader = std::thread::spawn(move || read(from, &tools, instructions, &tell, &ours, &answers));
        Self { calls, open, out, reader }
    }

    /// Returns why reading ended.
    ///
    /// # Errors
    /// Reading, or writing an answer, failed.
    pub fn ended(self) -> io::Result<()> {
        drop(self.calls);
        self.reader.join().unwrap_or_else(|_| Err(io::Error::other("the client could not be read")))
    }
}

fn read(
    mut from: impl BufRead,
    tools: &Value,
    instructions: &str,
    tell: &SyncSender<(Value, Call)>,
    open: &Open,
    out: &Outbox<impl Write>,
) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        if from.by_ref().take(protocol::LONGEST_LINE as u64).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() == protocol::LONGEST_LINE && line.last() != Some(&b'\n') {
            // The rest of the line is not a message of its own.
            from.skip_until(b'\n')?;
            out.send(&protocol::too_long())?;
            continue;
        }
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        match protocol::read(line.trim(), tools, instructions) {
            Wants::Nothing => {}
            Wants::Answer(answer) => out.send(&answer)?,
            Wants::Cancel(id) => open.cancel(&id),
            Wants::Tool(id, call) => {
                open.with(|open| open.push((id.clone(), false)));
                if tell.send((id, call)).is_err() {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipe_without_reader_is_unread() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!is_unread(&writer));
        drop(reader);
        assert!(is_unread(&writer));
    }
}
