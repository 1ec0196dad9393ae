//! A process's question to the recorder about a file that the plan may lack: `struct question` of `object/layout.h`.
//!
//! Any process may send anything. Nothing in a question is trusted: the file is looked up and compared.

use crate::layout::{ASK_PATH, QUESTION_HEADER_BYTES};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Size of a question in bytes.
pub const QUESTION_BYTES: usize = QUESTION_HEADER_BYTES + ASK_PATH;
/// `subject` for a program that is about to be executed.
pub const ASK_EXECUTES: u32 = 1;
/// `subject` for a library that was loaded, and of which no code has run.
pub const ASK_LOADED: u32 = 2;

/// The subject of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A program that the thread is about to execute.
    Executes,
    /// A library that its process has loaded.
    Loaded,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The file's device and inode, as the process's stat returns them.
    pub identity: (u64, u64),
    /// The asking thread.
    pub thread: u32,
    pub subject: Subject,
    /// The file's path, as used by the process.
    pub path: PathBuf,
}

impl Question {
    /// Parses what was sent; `None` if it is not a question.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, path) = bytes.split_at_checked(QUESTION_HEADER_BYTES)?;
        let word = |at: usize| Some(u64::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let half = |at: usize| Some(u32::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let what = match half(20)? {
            ASK_EXECUTES => Subject::Executes,
            ASK_LOADED => Subject::Loaded,
            _ => return None,
        };
        let path = path.get(..ASK_PATH)?.split(|byte| *byte == 0).next()?;
        // Without a terminating zero it is incomplete.
        if path.is_empty() || path.len() == ASK_PATH || bytes.len() != QUESTION_BYTES {
            return None;
        }
        let path = PathBuf::from(OsStr::from_bytes(path));
        Some(Self { identity: (word(0)?, word(8)?), thread: half(16)?, subject: what, path })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// There is nothing for the process to do.
    Nothing,
    /// The plan has the file.
    Planned,
}

impl Answer {
    /// Returns the byte that is sent.
    pub fn byte(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Planned => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(what: u32, path: &[u8]) -> Vec<u8> {
        let mut bytes =
            [&7u64.to_le_bytes()[..], &9u64.to_le_bytes(), &33u32.to_le_bytes(), &what.to_le_bytes()].concat();
        bytes.extend(path);
        bytes.resize(QUESTION_BYTES, 0);
        bytes
    }

    #[test]
    fn question_is_read_as_sent() {
        let read = Question::parse(&question(ASK_LOADED, b"/tmp/a b.so"));
        let wanted = Question { identity: (7, 9), thread: 33, subject: Subject::Loaded, path: "/tmp/a b.so".into() };
        assert_eq!(read, Some(wanted));
    }

    #[test]
    fn malformed_question_is_refused() {
        let good = question(ASK_EXECUTES, b"x");
        let refused = [
            &good[..QUESTION_BYTES - 1],
            &[&good[..], &[0]].concat(),
            &question(ASK_EXECUTES, b""),
            &question(3, b"x"),
            &question(ASK_EXECUTES, &[b'x'; ASK_PATH]),
            &[],
        ];
        assert!(Question::parse(&good).is_some());
        for bytes in refused {
            assert_eq!(Question::parse(bytes), None, "{}", bytes.len());
        }
    }
}
