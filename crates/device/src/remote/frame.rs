//! The frames between this program and its agent on a device: a kind, a length (4 bytes, little-endian) and that many
//! bytes. Data from a device is not trusted: a frame has at most [`FRAME_BYTES_MAX`] bytes, and the name of a file cannot lead outside
//! its directory.

use super::read::read_head;
use crate::RunError;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The maximum content of a frame, bytes.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// The first line of an agent. Anything before it comes from a login shell.
pub const AGENT_GREETING: &str = "FATHOM-AGENT 4\n";
/// The host sends a frame at least this often.
pub(super) const BEAT_INTERVAL: Duration = Duration::from_secs(5);

/// The message of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// To the agent: further bytes of a file, by its name below the agent's directory. Failures are reported by [`Frame::Done`].
    Part(String, Vec<u8>),
    /// To the agent: start this command.
    Start(Vec<String>),
    /// To the agent: send this signal to its command and all its child processes.
    Signal(u8),
    /// To the agent: send the contents of this directory's files, as they grow, as [`Frame::Piece`]s, except files whose names
    /// begin or end with one of the other words. Everything present when the command has ended is sent before
    /// [`Frame::Exit`].
    Follow(Vec<String>),
    /// To the agent: request for a response. The number is returned.
    Ping(u64),
    /// To the agent: a request of a [`crate::Reader`], named by the first word.
    Ask(Vec<String>),
    /// Part of a followed directory: a file, by its name below the agent's directory, has these bytes at this offset. Offset 0 starts over.
    Piece(String, u64, Vec<u8>),
    Out(Vec<u8>),
    /// Error output of the command.
    Err(Vec<u8>),
    /// The command ended: its exit status, or a negated signal number.
    Exit(i32),
    /// Why a [`Frame::Part`] could not be stored.
    Done(Result<(), String>),
    /// The number of a [`Frame::Ping`], and the device's CLOCK_BOOTTIME, ns.
    Pong(u64, u64),
    /// The response to a [`Frame::Ask`].
    Answer(Result<String, RunError>),
}

fn encode_words(all: &[String]) -> Vec<u8> {
    all.iter().flat_map(|word| word.bytes().filter(|b| *b != 0).chain([0])).collect()
}

fn parse_words(bytes: &[u8]) -> Option<Vec<String>> {
    let text = std::str::from_utf8(bytes).ok()?;
    Some(text.strip_suffix('\0')?.split('\0').map(ToString::to_string).collect())
}

fn encode_result(value: &Result<String, String>) -> Vec<u8> {
    match value {
        Ok(text) => [b"+", text.as_bytes()].concat(),
        Err(why) => [b"-", why.as_bytes()].concat(),
    }
}

fn encode_answer(answer: &Result<String, RunError>) -> Vec<u8> {
    match answer {
        Ok(text) => [b"+", text.as_bytes()].concat(),
        Err(RunError::Failed(why)) => [b"-", why.as_bytes()].concat(),
        Err(RunError::BeyondLimits(why)) => [b">", why.as_bytes()].concat(),
    }
}

fn parse_answer(bytes: &[u8]) -> Option<Result<String, RunError>> {
    match bytes.split_first()? {
        (b'>', why) => Some(Err(RunError::BeyondLimits(String::from_utf8_lossy(why).into_owned()))),
        _ => parse_result(bytes).map(|answer| answer.map_err(RunError::Failed)),
    }
}

fn parse_result(bytes: &[u8]) -> Option<Result<String, String>> {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    match bytes.split_first()? {
        (b'+', rest) => Some(Ok(text(rest))),
        (b'-', rest) => Some(Err(text(rest))),
        _ => None,
    }
}

impl Frame {
    fn parts(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Part(name, bytes) => (b'p', [name.as_bytes(), b"\0", bytes].concat()),
            Self::Start(argv) => (b's', encode_words(argv)),
            Self::Signal(number) => (b'k', vec![*number]),
            Self::Follow(names) => (b'w', encode_words(names)),
            Self::Piece(name, at, bytes) => (b'g', [name.as_bytes(), b"\0", &at.to_le_bytes(), bytes].concat()),
            Self::Ping(number) => (b'?', number.to_le_bytes().to_vec()),
            Self::Ask(question) => (b'a', encode_words(question)),
            Self::Out(bytes) => (b'o', bytes.clone()),
            Self::Err(bytes) => (b'e', bytes.clone()),
            Self::Exit(status) => (b'x', status.to_le_bytes().to_vec()),
            Self::Done(done) => (b'd', encode_result(&done.clone().map(|()| String::new()))),
            Self::Pong(number, ns) => (b'!', [number.to_le_bytes(), ns.to_le_bytes()].concat()),
            Self::Answer(answer) => (b'r', encode_answer(answer)),
        }
    }

    fn from_parts(kind: u8, bytes: &[u8]) -> Option<Self> {
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        Some(match kind {
            b'p' => {
                let end = bytes.iter().position(|b| *b == 0)?;
                Self::Part(std::str::from_utf8(&bytes[..end]).ok()?.into(), bytes[end + 1..].to_vec())
            }
            b's' => Self::Start(parse_words(bytes)?),
            b'k' => Self::Signal(*bytes.first()?),
            b'w' => Self::Follow(parse_words(bytes)?),
            b'g' => {
                let end = bytes.iter().position(|b| *b == 0)?;
                let (at, rest) = bytes[end + 1..].split_at_checked(8)?;
                Self::Piece(std::str::from_utf8(&bytes[..end]).ok()?.into(), number(at)?, rest.to_vec())
            }
            b'?' => Self::Ping(number(bytes)?),
            b'a' => Self::Ask(parse_words(bytes)?),
            b'o' => Self::Out(bytes.to_vec()),
            b'e' => Self::Err(bytes.to_vec()),
            b'x' => Self::Exit(i32::from_le_bytes(bytes.try_into().ok()?)),
            b'd' => Self::Done(parse_result(bytes)?.map(|_| ())),
            b'!' => Self::Pong(number(bytes.get(..8)?)?, number(bytes.get(8..)?)?),
            b'r' => Self::Answer(parse_answer(bytes)?),
            _ => return None,
        })
    }

    /// Writes the frame, and flushes.
    ///
    /// # Errors
    /// The pipe broke, or the frame is too long.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, bytes) = self.parts();
        if bytes.len() > FRAME_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too long for a frame"));
        }
        let mut all = Vec::with_capacity(5 + bytes.len());
        all.push(kind);
        all.extend((bytes.len() as u32).to_le_bytes());
        all.extend(bytes);
        to.write_all(&all)?;
        to.flush()
    }

    /// Reads the next frame; `None` at the end.
    ///
    /// # Errors
    /// The pipe broke, or the data is not a valid frame.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_string());
        let Some(head) = read_head::<5>(from)? else { return Ok(None) };
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(invalid("a frame is too long"));
        }
        let mut bytes = Vec::new();
        from.take(length as u64).read_to_end(&mut bytes)?;
        if bytes.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Self::from_parts(head[0], &bytes).map(Some).ok_or_else(|| invalid("a frame of an unknown kind"))
    }
}

/// The path of a file with this name below `directory`; `None` if it would be outside.
pub fn path_below(directory: &Path, name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    let plain = path.components().all(|c| matches!(c, Component::Normal(_)));
    (plain && !name.is_empty() && !name.contains('\0')).then(|| directory.join(path))
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::Interrupted;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_round_trip() {
        let all = [
            Frame::Part("a/b".into(), vec![0, 1, 2]),
            Frame::Part("empty".into(), vec![]),
            Frame::Start(vec!["a b".into(), String::new(), "c".into()]),
            Frame::Signal(15),
            Frame::Follow(vec!["run.fathom".into(), "tables".into()]),
            Frame::Piece("a/b".into(), u64::MAX, vec![0, 1]),
            Frame::Piece("empty".into(), 0, vec![]),
            Frame::Ping(7),
            Frame::Ask(vec!["read".into(), "/proc/x".into()]),
            Frame::Out(b"hello\0".to_vec()),
            Frame::Err(vec![]),
            Frame::Exit(-9),
            Frame::Done(Ok(())),
            Frame::Done(Err("no".into())),
            Frame::Pong(7, u64::MAX),
            Frame::Answer(Ok("+".into())),
            Frame::Answer(Err(RunError::Failed(">".into()))),
            Frame::Answer(Err(RunError::BeyondLimits("-".into()))),
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|f| f.write(&mut bytes).unwrap());
        let mut from = &bytes[..];
        let mut interrupted = Interrupted(&bytes, false);
        for frame in &all {
            assert_eq!(Frame::read(&mut from).unwrap().as_ref(), Some(frame));
            assert_eq!(Frame::read(&mut interrupted).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(Frame::read(&mut from).unwrap(), None);
        // Truncated anywhere inside a frame, it is an error, not EOF.
        assert!(Frame::read(&mut &bytes[..3]).is_err() && Frame::read(&mut &bytes[..7]).is_err());
        assert!(Frame::Out(vec![0; FRAME_BYTES_MAX + 1]).write(&mut Vec::new()).is_err());
    }

    #[test]
    fn names_outside_the_directory_are_refused() {
        let directory = Path::new("/directory");
        assert_eq!(path_below(directory, "run.fathom/meta.json"), Some("/directory/run.fathom/meta.json".into()));
        for bad in ["", "/etc/passwd", "..", "a/../../b", "./a", "a\0b"] {
            assert_eq!(path_below(directory, bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_frames_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut from = &bytes[..];
            while let Ok(Some(frame)) = Frame::read(&mut from) {
                let mut again = Vec::new();
                frame.write(&mut again).unwrap();
                prop_assert_eq!(Frame::read(&mut &again[..]).unwrap(), Some(frame));
            }
        }
    }
}
