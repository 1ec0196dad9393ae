//! Reads the client's messages on a thread of its own, so that they are handled while a tool runs: a ping is answered, a request cancelled.
//!
//! Tool calls wait in a short queue; when it is full nothing more is read, so that a client that sends requests faster than they
//! are answered costs no memory.

use crate::protocol::{self, Action, Call};
use serde_json::Value;
use std::io::{self, BufRead, Read as _, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Calls that wait.
const CALLS_WAITING_MAX: usize = 64;

/// The unanswered requests, and whether each was cancelled.
#[derive(Debug, Clone, Default)]
pub struct OpenRequests(Arc<Mutex<Vec<(Value, bool)>>>);

impl OpenRequests {
    fn with_requests<T>(&self, what: impl FnOnce(&mut Vec<(Value, bool)>) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn is_cancelled(&self, id: &Value) -> bool {
        self.with_requests(|open| open.iter().any(|(known, cancelled)| *cancelled && known == id))
    }

    /// Forgets a request that is answered or whose answer is not expected any more.
    pub fn remove(&self, id: &Value) {
        self.with_requests(|open| {
            if let Some(at) = open.iter().position(|(known, _)| known == id) {
                open.remove(at);
            }
        });
    }

    fn cancel(&self, id: &Value) {
        self.with_requests(|open| {
            open.iter_mut().filter(|(known, _)| known == id).for_each(|(_, cancelled)| *cancelled = true)
        });
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
    pub open: OpenRequests,
    /// The destination of answers.
    pub out: Arc<Outbox<W>>,
    reader: JoinHandle<io::Result<()>>,
}

impl<W: Write + Send + 'static> Inbox<W> {
    pub fn new(from: impl BufRead + Send + 'static, to: W, tools: Value, instructions: &'static str) -> Self {
        let (call_sender, calls) = sync_channel(CALLS_WAITING_MAX);
        let (open, out) = (OpenRequests::default(), Arc::new(Outbox(Mutex::new(to))));
        let (ours, answers) = (open.clone(), out.clone());
        let reader =
            std::thread::spawn(move || read_messages(from, &tools, instructions, &call_sender, &ours, &answers));
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

fn read_messages(
    mut from: impl BufRead,
    tools: &Value,
    instructions: &str,
    call_sender: &SyncSender<(Value, Call)>,
    open: &OpenRequests,
    out: &Outbox<impl Write>,
) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        if from.by_ref().take(protocol::LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() == protocol::LINE_BYTES_MAX && line.last() != Some(&b'\n') {
            // The rest of the line is not a message of its own.
            from.skip_until(b'\n')?;
            out.send(&protocol::too_long_error())?;
            continue;
        }
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        match protocol::parse_line(line.trim(), tools, instructions) {
            Action::Nothing => {}
            Action::Answer(answer) => out.send(&answer)?,
            Action::Cancel(id) => open.cancel(&id),
            Action::Tool(id, call) => {
                open.with_requests(|open| open.push((id.clone(), false)));
                if call_sender.send((id, call)).is_err() {
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
    fn pipe_without_a_reader_is_unread() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!is_unread(&writer));
        drop(reader);
        assert!(is_unread(&writer));
    }
}
