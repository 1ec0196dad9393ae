//! Questions from processes that are probed inside, asked before a file's code runs: about a program that they are about to execute,
//! or a library that they have loaded. The asking process waits for the answer, so that the file has its probes before its first
//! instruction.
//!
//! Questions arrive on a socket in the object's directory, which is open to whoever can see the directory. The kernel identifies the sender
//! (the socket's peer); only recorded threads are answered. The file that they name is compared with the identity that they report, and
//! only regular files are opened.

use super::error::InsideError;
use inside::question::{Answer, QUESTION_BYTES, Question, Subject};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Maximum number of connections; further ones wait at the socket.
const CONNECTIONS_MAX: usize = 64;

/// The socket for questions.
pub struct QuestionListener {
    listener: UnixListener,
    /// Peers whose question is incomplete.
    incomplete: Vec<(UnixStream, Vec<u8>)>,
}

/// A question that waits for its answer. If dropped, it is answered by closing the connection.
#[derive(Debug)]
pub struct PendingQuestion {
    stream: UnixStream,
    /// The process that asks.
    pub pid: u32,
    pub tid: u32,
    /// The kind of question.
    pub subject: Subject,
    /// The file's device and inode.
    pub identity: (u64, u64),
    /// A path by which this process can open it.
    pub path: PathBuf,
}

impl QuestionListener {
    /// Listens at that path, for every user.
    pub fn listen(path: &Path) -> Result<Self, InsideError> {
        let listener = UnixListener::bind(path).and_then(|listener| {
            listener.set_nonblocking(true)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
            Ok(listener)
        });
        let listener = listener.map_err(|source| InsideError::File { path: path.into(), source })?;
        Ok(Self { listener, incomplete: Vec::new() })
    }

    /// Returns the descriptors that become readable when a question arrives.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let listener = (self.incomplete.len() < CONNECTIONS_MAX).then(|| self.listener.as_raw_fd());
        listener.into_iter().chain(self.incomplete.iter().map(|(stream, _)| stream.as_raw_fd()))
    }

    pub fn take_complete(&mut self) -> Vec<PendingQuestion> {
        while self.incomplete.len() < CONNECTIONS_MAX
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                self.incomplete.push((stream, Vec::new()));
            }
        }
        let mut whole = Vec::new();
        for (mut stream, mut bytes) in std::mem::take(&mut self.incomplete) {
            match read_question(&mut stream, &mut bytes) {
                Some(true) => {
                    whole.extend(Question::parse(&bytes).and_then(|q| PendingQuestion::from_question(stream, q)))
                }
                Some(false) => self.incomplete.push((stream, bytes)),
                None => {}
            }
        }
        whole
    }
}

/// Whether the question is complete; `None`: it never will be.
fn read_question(stream: &mut UnixStream, bytes: &mut Vec<u8>) -> Option<bool> {
    let mut part = [0; QUESTION_BYTES];
    loop {
        match stream.read(&mut part[..QUESTION_BYTES - bytes.len()]) {
            Ok(0) => return None,
            Ok(count) => bytes.extend(&part[..count]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Some(false),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
        if bytes.len() == QUESTION_BYTES {
            return Some(true);
        }
    }
}

impl PendingQuestion {
    fn from_question(stream: UnixStream, question: Question) -> Option<Self> {
        let pid = peer_pid(&stream)?;
        let tid = question.thread;
        if !Path::new(&format!("/proc/{pid}/task/{tid}")).exists() {
            return None;
        }
        let identity = question.identity;
        let is_it = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|about| about.is_file() && (about.dev(), about.ino()) == identity)
        };
        let named = &question.path;
        let below =
            |root: &str| Path::new(&format!("/proc/{pid}/{root}")).join(named.strip_prefix("/").unwrap_or(named));
        let cwd = || {
            fs::read_link(format!("/proc/{pid}/cwd")).ok().map(|directory| directory.join(named).components().collect())
        };
        let candidates =
            if named.is_absolute() { [Some(named.clone()), Some(below("root"))] } else { [cwd(), Some(below("cwd"))] };
        let path = candidates.into_iter().flatten().find(is_it)?;
        Some(Self { stream, pid, tid, subject: question.subject, identity, path })
    }

    /// Lets the process continue.
    pub fn answer(self, answer: Answer) {
        self.reply(answer);
    }

    /// Does the same and keeps the connection open: it ends with the exec.
    pub(super) fn reply(&self, answer: Answer) {
        // The process may have given up.
        let _ = (&self.stream).write_all(&[answer.byte()]);
    }

    /// Whether the connection was closed: by the exec, or because the exec failed.
    pub(super) fn has_ended(&self) -> bool {
        matches!((&self.stream).read(&mut [0]), Ok(0))
    }
}

/// Returns the process at the other end, as reported by the kernel.
fn peer_pid(stream: &UnixStream) -> Option<u32> {
    let mut about = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both live until the call returns, and the size is the structure's.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut about).cast(),
            &raw mut size,
        )
    };
    u32::try_from(about.pid).ok().filter(|pid| done == 0 && *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(path: &Path, identity: (u64, u64), tid: u32) -> Vec<u8> {
        let mut bytes = [&identity.0.to_le_bytes()[..], &identity.1.to_le_bytes(), &tid.to_le_bytes()].concat();
        bytes.extend(inside::question::ASK_LOADED.to_le_bytes());
        bytes.extend(path.as_os_str().as_encoded_bytes());
        bytes.resize(QUESTION_BYTES, 0);
        bytes
    }

    /// Sends a question in two parts; returns what was received.
    fn send_in_two_parts(bytes: &[u8]) -> Option<PendingQuestion> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ask");
        let mut asks = QuestionListener::listen(&path).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(&bytes[..9]).unwrap();
        assert!(asks.take_complete().is_empty());
        assert_eq!(asks.descriptors().count(), 2);
        stream.write_all(&bytes[9..]).unwrap();
        let mut taken = asks.take_complete();
        assert_eq!(asks.descriptors().count(), 1, "it is open no more");
        assert!(taken.len() <= 1);
        taken.pop()
    }

    #[test]
    fn question_names_peer_and_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("library.so");
        fs::write(&file, "x").unwrap();
        let about = fs::metadata(&file).unwrap();
        // SAFETY: takes no arguments and has no effect.
        let own = unsafe { libc::gettid() }.unsigned_abs();
        let asked = send_in_two_parts(&question(&file, (about.dev(), about.ino()), own)).unwrap();
        assert_eq!((asked.pid, asked.tid, &asked.path), (std::process::id(), own, &file));
        assert_eq!(asked.subject, Subject::Loaded);
        let other = send_in_two_parts(&question(&file, (about.dev(), about.ino() + 1), own));
        assert!(other.is_none(), "the file is another one: {other:?}");
        let about = fs::metadata(directory.path()).unwrap();
        let other = send_in_two_parts(&question(directory.path(), (about.dev(), about.ino()), own));
        assert!(other.is_none(), "it is no regular file: {other:?}");
        let about = fs::metadata(&file).unwrap();
        let other = send_in_two_parts(&question(&file, (about.dev(), about.ino()), 1));
        assert!(other.is_none(), "the thread is another process's: {other:?}");
    }
}
