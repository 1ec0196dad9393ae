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
    /// The bytes of an incomplete line.
    partial_line: Vec<u8>,
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
        Ok(Self(Arc::new(Mutex::new(OpenPlace { commands: Some(commands), answers, partial_line: Vec::new() }))))
    }

    /// Takes the commands that have arrived, and answers them; never blocks.
    pub(crate) fn take(&self) -> Commands {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl OpenPlace {
    fn take(&mut self) -> Commands {
        let mut all = Commands::default();
        while let Some(file) = self.commands.as_mut().filter(|file| is_ready(file)) {
            let mut bytes = [0; LINE_BYTES_MAX];
            match file.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Nobody sends any more; the recording continues.
                Ok(0) | Err(_) => self.commands = None,
                Ok(n) => self.partial_line.extend_from_slice(&bytes[..n]),
            }
            while let Some(end) = self.partial_line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.partial_line.drain(..=end).collect();
                self.handle_line(String::from_utf8_lossy(&line).trim(), &mut all);
            }
            if self.partial_line.len() > LINE_BYTES_MAX {
                all.unknown.push(String::from_utf8_lossy(&std::mem::take(&mut self.partial_line)).into_owned());
            }
        }
        all
    }

    fn handle_line(&mut self, line: &str, all: &mut Commands) {
        match line {
            "" => return,
            "ping" => {}
            "stop" => all.stop = true,
            other => return all.unknown.push(other.into()),
        }
        // A peer that no longer reads needs no answer.
        if let Some(answers) = &mut self.answers {
            let _ = answers.write_all(b"ack\n");
        }
    }
}

/// Whether a read would not block.
fn is_ready(file: &File) -> bool {
    let mut wanted = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
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
}
