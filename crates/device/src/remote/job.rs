//! A command of this program on a device whose result is a folder: it is brought here while it is written, so that what was measured is
//! here when the device is lost. What the folder means is the caller's business.

use super::frame::below;
use super::{AgentLink, DeviceAddress, Event, Skew, Unreachable, program};
use model::Context;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How often it is looked whether somebody asked for an end.
const LOOK: Duration = Duration::from_millis(100);
/// More than this is not taken from a device, bytes.
const MOST: u64 = 64 << 30;
/// More files than any result has.
const MOST_FILES: usize = 10_000;

/// What is to be done.
#[derive(Debug)]
pub struct Job<'a> {
    /// Where.
    pub place: &'a DeviceAddress,
    /// This program for devices of other processors.
    pub binaries: &'a [PathBuf],
    /// Files that it reads, by their names in its folder.
    pub files: &'a [(String, Vec<u8>)],
    /// The words after the program's name.
    pub words: &'a [String],
    /// The folder that it makes, in its own, and what names of it begin or end with that stay there.
    pub brings: Option<(&'a str, &'a [&'a str])>,
    /// Where its files are put here.
    pub into: &'a Path,
}

/// What is told meanwhile.
#[derive(Debug)]
pub enum Note<'a> {
    /// A sentence of this side.
    Said(String),
    /// The command printed this.
    Out(&'a [u8]),
    /// The command complained.
    Err(&'a [u8]),
    /// So many bytes of the folder are here.
    Brought(u64),
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Exit(u8),
    /// The device, or the way to it, was lost.
    Lost(Unreachable),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The device, by its full name.
    pub place: DeviceAddress,
    /// How it ended.
    pub ended: Ended,
    /// How its clock relates to this machine's, if it told.
    pub skew: Option<Skew>,
    /// Bytes that were brought.
    pub brought: u64,
}

/// Does it. When `context` asks for an end the command gets SIGINT, and finishes.
///
/// # Errors
/// It was not started, or what it made cannot be kept here.
pub fn run(job: &Job<'_>, context: &Context, tell: &mut dyn FnMut(Note<'_>)) -> Result<Done, Unreachable> {
    let fail = |why: String| Unreachable::new(job.place, why);
    let ours = std::env::current_exe().map_err(|e| fail(format!("cannot find Fathom's own binary: {e}")))?;
    let (sender, events) = channel();
    let said = std::cell::RefCell::new(&mut *tell);
    let deployment =
        program::put(job.place, &ours, job.binaries, context, &|line| said.borrow_mut()(Note::Said(line)))?;
    let link = AgentLink::open(&deployment, move |event| drop(sender.send(event)))?;
    let skew = link.skew();
    if context.cancelled() {
        return Err(fail("interrupted".into()));
    }
    let argv: Vec<String> = std::iter::once(&deployment.program).chain(job.words).cloned().collect();
    let begun = || -> io::Result<()> {
        job.files.iter().try_for_each(|(name, bytes)| link.put(name, bytes))?;
        if let Some((folder, leave)) = job.brings {
            link.follow(folder, leave)?;
        }
        link.start(&argv)
    };
    begun().map_err(|e| fail(format!("the connection to the device broke: {e}")))?;
    let mut folder = Incoming { into: job.into, lengths: HashMap::new(), all: 0 };
    let ended = follow(&link, &events, &mut folder, context, tell).map_err(fail);
    let lost = matches!(ended, Ok(Ended::Lost(_)));
    if !link.close() && !lost {
        tell(Note::Said(format!(
            "{} did not confirm its clean-up; what was started there exits by itself within a minute",
            deployment.place
        )));
    }
    Ok(Done { place: deployment.place, ended: ended?, skew, brought: folder.all })
}

fn follow(
    link: &AgentLink,
    events: &Receiver<Event>,
    folder: &mut Incoming<'_>,
    context: &Context,
    tell: &mut dyn FnMut(Note<'_>),
) -> Result<Ended, String> {
    let mut asked = false;
    loop {
        if context.cancelled() && !asked {
            asked = true;
            // If it cannot be told, the next event says why.
            let _ = link.signal(libc::SIGINT as u8);
        }
        match events.recv_timeout(LOOK) {
            Ok(Event::Out(bytes)) => tell(Note::Out(&bytes)),
            Ok(Event::Err(bytes)) => tell(Note::Err(&bytes)),
            Ok(Event::Piece(name, at, bytes)) => {
                folder.take(&name, at, &bytes)?;
                tell(Note::Brought(folder.all));
            }
            // A command that a signal ended.
            Ok(Event::Exit(status)) => {
                return Ok(Ended::Exit(u8::try_from(if status < 0 { 128 - status } else { status }).unwrap_or(1)));
            }
            Ok(Event::Gone(why)) => return Ok(Ended::Lost(why)),
            Ok(Event::Done(Err(why))) => return Err(why),
            Ok(Event::Done(Ok(()))) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("the device is gone".into()),
        }
    }
}

/// A folder that comes from a device: only below `into`, only from where it has come so far, and not more than there may be.
struct Incoming<'a> {
    into: &'a Path,
    lengths: HashMap<String, u64>,
    all: u64,
}

impl Incoming<'_> {
    fn take(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), String> {
        // Without the name of the folder there.
        let inside = name.split_once('/').map(|(_, rest)| rest).filter(|rest| !rest.is_empty());
        let path = inside
            .and_then(|rest| below(self.into, rest))
            .ok_or("the device sent a file of a name that no file has")?;
        let known = self.lengths.get(name).copied();
        if at != 0 && known != Some(at) {
            return Err("the device sent a piece of a file without what stands before".into());
        }
        self.all = self.all.saturating_add(bytes.len() as u64);
        if self.all > MOST || (known.is_none() && self.lengths.len() >= MOST_FILES) {
            return Err("the device sent more than any result has".into());
        }
        let write = || -> io::Result<()> {
            fs::create_dir_all(path.parent().unwrap_or(self.into))?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(at == 0).open(&path)?;
            file.seek(SeekFrom::Start(at))?;
            file.write_all(bytes)
        };
        write().map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        self.lengths.insert(name.into(), at + bytes.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_put_together_below_folder_only() {
        let into = tempfile::tempdir().unwrap();
        let mut folder = Incoming { into: into.path(), lengths: HashMap::new(), all: 0 };
        folder.take("run/log", 0, b"one").unwrap();
        folder.take("run/log", 3, b" two").unwrap();
        folder.take("run/why/a", 0, b"").unwrap();
        let read = |name: &str| fs::read(into.path().join(name)).unwrap();
        assert_eq!((read("log"), read("why/a")), (b"one two".to_vec(), vec![]));
        folder.take("run/log", 0, b"x").unwrap();
        assert_eq!(read("log"), b"x", "it begins anew");
        for (name, at) in [
            ("run/log", 7),
            ("run/log", u64::MAX),
            ("run/new", 1),
            ("run/../x", 0),
            ("run//etc/x", 0),
            ("x", 0),
            ("run/", 0),
        ] {
            assert!(folder.take(name, at, b"y").is_err(), "{name} at {at}");
        }
        assert_eq!(fs::read_dir(into.path().parent().unwrap().join("x")).ok().map(drop), None);
    }
}
