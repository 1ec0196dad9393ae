//! Commands to a running recording, in the form of `perf record --control`: lines that arrive on one descriptor or FIFO, each answered by
//! `ack` on another.
//!
//! They are read once the probes are attached. So the answer to `ping` tells its sender that from now on everything is recorded,
//! which is not otherwise visible for processes that are already running. `stop` ends the recording.
//!
//! *Uncertainty*: if the recording fails before it answers, the sender waits until the descriptor is closed; a FIFO that the
//! waiting side also opened for writing is never closed.

use model::text::ShownPath as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum length of a line; a longer one is not a command.
const LINE_BYTES_MAX: usize = 256;
/// How often is read at once; a sender without end must not keep the recording from anything else.
const READS_MAX: usize = 256;
const ANSWER: &[u8] = b"ack\n";

/// Where commands come from and where answers go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Descriptors(i32, Option<i32>),
    Fifos(PathBuf, Option<PathBuf>),
}

/// A text that is not such a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected fd:COMMANDS[,ANSWERS] with numbers of open descriptors, or fifo:COMMANDS[,ANSWERS] with names of FIFOs"
)]
pub struct InvalidPlace;

impl FromStr for Place {
    type Err = InvalidPlace;

    fn from_str(text: &str) -> Result<Self, InvalidPlace> {
        let (kind, names) = text.split_once(':').ok_or(InvalidPlace)?;
        let (commands, answers) = names.split_once(',').map_or((names, None), |(c, a)| (c, Some(a)));
        let number = |text: &str| text.parse().ok().filter(|fd| *fd >= 0).ok_or(InvalidPlace);
        match kind {
            "fd" => Ok(Self::Descriptors(number(commands)?, answers.map(number).transpose()?)),
            "fifo" if !commands.is_empty() && answers != Some("") => {
                Ok(Self::Fifos(commands.into(), answers.map(PathBuf::from)))
            }
            _ => Err(InvalidPlace),
        }
    }
}

/// An open place, of a recording that is being set up or running.
#[derive(Debug, Clone)]
pub struct Control(Arc<Mutex<OpenPlace>>);

#[derive(Debug)]
struct OpenPlace {
    commands: Option<File>,
    answers: Option<File>,
    /// Number of answers that found no room.
    owed_answers: usize,
    /// The bytes of an incomplete line, at most [`LINE_BYTES_MAX`].
    partial_line: Vec<u8>,
    /// Whether the line is too long, and the rest of it is skipped.
    skips_line: bool,
}

/// The commands received.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Commands {
    /// The recording is to end.
    pub stop: bool,
    /// Lines that are not commands.
    pub unknown: Vec<String>,
}

impl Control {
    /// Opens the place.
    ///
    /// # Errors
    /// A descriptor is not open, or a FIFO cannot be opened.
    pub fn open(place: &Place) -> io::Result<Self> {
        let (commands, answers) = match place {
            Place::Descriptors(commands, answers) => {
                (duplicate_descriptor(*commands)?, answers.map(duplicate_descriptor).transpose()?)
            }
            // Opened for both, as perf does: opening then does not wait for the other side, and there is no end of file between two
            // senders.
            Place::Fifos(commands, answers) => {
                let fifo = |path: &PathBuf| {
                    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.shown()));
                    let file = File::options().read(true).write(true).open(path).map_err(named)?;
                    if file.metadata()?.file_type().is_fifo() {
                        Ok(file)
                    } else {
                        Err(named(io::Error::other("not a FIFO; mkfifo makes one")))
                    }
                };
                (fifo(commands)?, answers.as_ref().map(fifo).transpose()?)
            }
        };
        let (partial_line, commands) = (Vec::new(), Some(commands));
        let place = OpenPlace { commands, answers, owed_answers: 0, partial_line, skips_line: false };
        Ok(Self(Arc::new(Mutex::new(place))))
    }

    /// Takes the commands that have arrived, and answers them; never blocks.
    pub(crate) fn take(&self) -> Commands {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl OpenPlace {
    fn take(&mut self) -> Commands {
        let mut all = Commands::default();
        for _ in 0..READS_MAX {
            let Some(file) = self.commands.as_mut().filter(|file| is_ready(file, libc::POLLIN)) else { break };
            let mut bytes = [0; LINE_BYTES_MAX];
            match file.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Nobody sends any more; the recording continues.
                Ok(0) | Err(_) => self.commands = None,
                Ok(n) => bytes[..n].iter().for_each(|byte| self.handle_byte(*byte, &mut all)),
            }
        }
        self.send_answers();
        all
    }

    fn handle_byte(&mut self, byte: u8, all: &mut Commands) {
        match byte {
            b'\n' => {
                let line = std::mem::take(&mut self.partial_line);
                if !std::mem::take(&mut self.skips_line) {
                    self.handle_line(String::from_utf8_lossy(&line).trim(), all);
                }
            }
            _ if self.skips_line => {}
            _ if self.partial_line.len() == LINE_BYTES_MAX => {
                let line = std::mem::take(&mut self.partial_line);
                all.unknown.push(String::from_utf8_lossy(&line).into_owned());
                self.skips_line = true;
            }
            _ => self.partial_line.push(byte),
        }
        assert!(self.partial_line.len() <= LINE_BYTES_MAX);
    }

    fn handle_line(&mut self, line: &str, all: &mut Commands) {
        match line {
            "" => return,
            "ping" => {}
            "stop" => all.stop = true,
            other => return all.unknown.push(other.into()),
        }
        self.owed_answers += 1;
    }

    /// Sends the answers for which there is room; the others are sent when the peer has read some.
    fn send_answers(&mut self) {
        while self.owed_answers > 0
            && let Some(answers) = self.answers.as_mut().filter(|file| is_ready(file, libc::POLLOUT))
        {
            // A pipe that is ready has room for so many bytes. Non-blocking mode would be the peer's, too.
            let count = self.owed_answers.min(libc::PIPE_BUF / ANSWER.len());
            match answers.write_all(&ANSWER.repeat(count)) {
                Ok(()) => self.owed_answers -= count,
                // A peer that no longer reads needs no answer.
                Err(_) => self.answers = None,
            }
        }
    }
}

/// Whether a read (POLLIN) or a write (POLLOUT) would not block.
fn is_ready(file: &File, events: i16) -> bool {
    let mut wanted = libc::pollfd { fd: file.as_raw_fd(), events, revents: 0 };
    // SAFETY: one structure that lives until the call returns; the call does not block.
    unsafe { libc::poll(&raw mut wanted, 1, 0) == 1 }
}

/// Duplicates an open descriptor for this process alone: the recorded command has no use for it.
fn duplicate_descriptor(number: i32) -> io::Result<File> {
    // SAFETY: a system call on a number; the new descriptor belongs to nothing else.
    let own = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if own < 0 {
        return Err(io::Error::other(format!("descriptor {number}: {}", io::Error::last_os_error())));
    }
    if number > 2 {
        // SAFETY: sets a flag of an open descriptor.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: it was made above.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(own) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_parsed_like_those_of_perf() {
        let of = |text: &str| text.parse::<Place>();
        assert_eq!(of("fd:10,11"), Ok(Place::Descriptors(10, Some(11))));
        assert_eq!(of("fd:10"), Ok(Place::Descriptors(10, None)));
        assert_eq!(of("fifo:a:b,/c"), Ok(Place::Fifos("a:b".into(), Some("/c".into()))));
        for wrong in ["", "10", "fd:", "fd:-1", "fd:1,", "fd:a,b", "fifo:", "fifo:,a", "fifo:a,", "file:a"] {
            assert_eq!(of(wrong), Err(InvalidPlace), "{wrong}");
        }
    }

    #[test]
    fn commands_are_answered_in_pieces_and_after_the_end() {
        let (theirs, ours) = std::os::unix::net::UnixStream::pair().unwrap();
        let both = Place::Descriptors(ours.as_raw_fd(), Some(ours.as_raw_fd()));
        let control = Control::open(&both).unwrap();
        drop(ours);
        let mut theirs = theirs;
        assert_eq!(control.take(), Commands::default());
        theirs.write_all(b"pi").unwrap();
        assert_eq!(control.take(), Commands::default());
        theirs.write_all(b"ng\n\nenable\n").unwrap();
        assert_eq!(control.take(), Commands { stop: false, unknown: vec!["enable".into()] });
        let mut answer = [0; 4];
        theirs.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ack\n");
        theirs.write_all(b"stop\n").unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(control.take().stop && control.take() == Commands::default());
        theirs.read_exact(&mut answer).unwrap();
        theirs.write_all(&[b'x'; 1]).unwrap_err();
        assert!(Control::open(&Place::Descriptors(9999, None)).is_err());
    }

    #[test]
    fn full_pipe_of_answers_does_not_block() {
        let (commands, mut to) = io::pipe().unwrap();
        let (mut answers, mut from) = io::pipe().unwrap();
        // SAFETY: changes the size of an open pipe.
        let size = unsafe { libc::fcntl(from.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
        from.write_all(&vec![b'x'; usize::try_from(size).unwrap()]).unwrap();
        let control = Control::open(&Place::Descriptors(commands.as_raw_fd(), Some(from.as_raw_fd()))).unwrap();
        drop(from);
        to.write_all(b"ping\nstop\n").unwrap();
        let (sender, taken) = std::sync::mpsc::channel();
        let taker = control.clone();
        std::thread::spawn(move || sender.send(taker.take()));
        let taken = taken.recv_timeout(std::time::Duration::from_secs(60)).expect("it blocks");
        assert_eq!(taken, Commands { stop: true, unknown: vec![] });
        // They are sent once there is room.
        answers.read_exact(&mut vec![0; usize::try_from(size).unwrap()]).unwrap();
        assert_eq!(control.take(), Commands::default());
        drop(control);
        let mut rest = String::new();
        answers.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "ack\nack\n");
    }

    #[test]
    fn rest_of_overlong_line_is_not_a_command() {
        for length in [LINE_BYTES_MAX + 1, 2 * LINE_BYTES_MAX, 3 * LINE_BYTES_MAX, 5000] {
            let (commands, mut to) = io::pipe().unwrap();
            let control = Control::open(&Place::Descriptors(commands.as_raw_fd(), None)).unwrap();
            let line = format!("{}stop\n", "x".repeat(length));
            // In pieces, so that the rest begins with the command.
            let mut all = Commands::default();
            for piece in [&line.as_bytes()[..length], &line.as_bytes()[length..]] {
                to.write_all(piece).unwrap();
                let taken = control.take();
                all.stop |= taken.stop;
                all.unknown.extend(taken.unknown);
            }
            assert_eq!(all, Commands { stop: false, unknown: vec!["x".repeat(LINE_BYTES_MAX)] }, "{length}");
            to.write_all(b"stop\n").unwrap();
            assert!(control.take().stop);
        }
    }
}
