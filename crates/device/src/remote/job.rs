//! A command of this program on a device whose result is a directory: it is transferred while it is written, so that the
//! measurements are here if the device is lost. The caller interprets the directory. A detached command continues there
//! meanwhile, and is reattached when the device is back: the transfer of a file continues after its bytes that are here, if
//! they still match the beginning of the file there.

use super::adb::AdbServer;
use super::agent::VANISHED;
use super::detached::State;
use super::follow::hashed;
use super::frame::below;
use super::link::Unanswered;
use super::pipe::Broke;
use super::program::Deployment;
use super::{AgentLink, DeviceAddress, Event, Remark, Skew, Unreachable, program};
use model::Context;
use model::text::ShownPath as _;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The placeholder for the path of this program there, as in a design.
pub const PROGRAM: &str = "{fathom}";

/// How often cancellation is checked.
const LOOK: Duration = Duration::from_millis(100);
/// How often a disconnected device is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// How long an `offline` adb connection may last before it is reopened: a slow handshake looks the same.
const STALE: Duration = Duration::from_secs(15);
/// The maximum size accepted from a device, bytes.
const MOST: u64 = 64 << 30;
/// The maximum number of files in a result.
const MOST_FILES: usize = 10_000;

/// A command to run on a device.
#[derive(Debug)]
pub struct Job<'a> {
    pub place: &'a DeviceAddress,
    /// This program's binaries for devices of other architectures.
    pub binaries: &'a [PathBuf],
    /// Its input files, by their names in its directory.
    pub files: &'a [(String, Vec<u8>)],
    /// The words after the program's name.
    pub words: &'a [String],
    /// Its result directory, inside its own, and prefixes or suffixes of names that are not transferred.
    pub brings: Option<(&'a str, &'a [&'a str])>,
    /// The directory here for its files.
    pub into: &'a Path,
    /// Set if it outlives the connection, which is then re-established.
    pub detached: Option<Detached<'a>>,
}

#[derive(Debug)]
pub enum Note<'a> {
    /// A message of the host.
    Said(Remark),
    Out(&'a [u8]),
    /// Error output of the command.
    Err(&'a [u8]),
    /// The number of bytes of the directory received so far.
    Brought(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With this exit status.
    Exit(u8),
    /// The device, or the connection to it, was lost.
    Lost(Unreachable),
}

/// The outcome of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The device's full name.
    pub place: DeviceAddress,
    pub ended: Ended,
    /// The offset of its clock to this machine's when the command was started, if known.
    pub skew: Option<Skew>,
    /// The same after it had ended.
    pub skew_last: Option<Skew>,
    /// Bytes transferred.
    pub brought: u64,
}

/// A command that outlives the connection.
#[derive(Debug, Clone, Copy)]
pub struct Detached<'a> {
    /// Its name there.
    pub name: &'a str,
    /// Whether to start it, or to reattach it.
    pub begin: Begin,
    /// How long to wait for a lost device. The command there ends by itself [`LEASE_EXTRA_DURATION`] later.
    pub patience: Duration,
}

/// The beginning of a detached command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    Start,
    /// It was started earlier; fetch its results.
    Fetch,
}

/// How much longer a command waits for its host than the host waits for the device.
pub const SLACK: Duration = Duration::from_secs(30);

/// Why a command cannot be reattached, or is no longer followed.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    Broke(#[from] Broke),
    /// The agent did not respond.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// Its directory exists, but is empty.
    #[error("`{0}` was never started on the device")]
    NeverStarted(String),
    /// The device could not store a file, and why.
    #[error("{0}")]
    NotKept(String),
    /// Received data cannot be stored here.
    #[error(transparent)]
    Refused(#[from] NotTaken),
    /// The receiving thread has ended.
    #[error("the device is gone")]
    Gone,
}

impl Stopped {
    /// Whether a new connection may help.
    fn is_connection(&self) -> bool {
        matches!(self, Self::Broke(Broke::Connection(_)) | Self::Unanswered(Unanswered::Silent(_)) | Self::Gone)
    }
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Broke(Broke::by(&error))
    }
}

/// Why a piece of a file is not accepted from a device.
#[derive(Debug, thiserror::Error)]
enum NotTaken {
    /// Its name leads outside the directory.
    #[error("the device sent a file with an invalid name")]
    Name,
    /// The data before it is missing.
    #[error("the device sent part of a file without the part before it")]
    Gap,
    /// It exceeds the size limit.
    #[error("the device sent too much data for a result")]
    TooMuch,
    /// It cannot be written.
    #[error("cannot write {}: {}", .0.shown(), .1)]
    Write(PathBuf, io::Error),
}

/// Runs the job. When `context` is cancelled the command gets SIGINT, and finishes.
///
/// # Errors
/// It was not started, or its results cannot be stored here.
pub fn run(job: &Job<'_>, context: &Context, tell: &mut dyn FnMut(Note<'_>)) -> Result<Done, Unreachable> {
    let fail = |why: Stopped| Unreachable::new(job.place, why.to_string());
    let deployment = deployed(job.place, job.binaries, context, tell)?;
    let (link, mut events) = linked(&deployment, context)?;
    let skew = link.skew();
    if context.cancelled() {
        return Err(Unreachable::new(job.place, "interrupted"));
    }
    let mut directory = Incoming { into: job.into, lengths: HashMap::new(), all: 0 };
    let mut heard = Heard::default();
    match job.detached {
        None => start(&link, job, &deployment).map_err(|e| fail(e.into()))?,
        Some(Detached { begin: Begin::Start, name, patience }) => {
            link.ask(&["attach", name, &lease(patience)]).map_err(|e| fail(e.into()))?;
            start(&link, job, &deployment).map_err(|e| fail(e.into()))?;
        }
        Some(detached) => drop(reattach(&link, job, &detached, &deployment, &directory, &heard).map_err(fail)?),
    }
    let mut link = Some(link);
    let ended = loop {
        let Some(now) = &link else { break Err(Stopped::Gone) };
        let ended = follow(now, &events, &mut directory, &mut heard, context, tell);
        let (Ok(Ended::Lost(why)), Some(detached)) = (&ended, &job.detached) else { break ended };
        if heard.vanished {
            break ended;
        }
        let why = why.clone();
        // The remains of the old connection are closed first.
        drop(link.take());
        match reconnected(job, detached, &deployment, &directory, &heard, &why, context, tell) {
            Ok((again, fresh)) => (link, events) = (Some(again), fresh),
            Err(why) => break Ok(Ended::Lost(why)),
        }
    };
    // If the disk here is full, everything received so far is kept.
    let ended = ended.unwrap_or_else(|why| {
        let on = job.detached.as_ref().map_or(String::new(), |d| format!("; {}", goes_on(&deployment.place, d)));
        Ended::Lost(Unreachable::new(&deployment.place, format!("{why}{on}")))
    });
    if let (Some(_), Some(link)) = (&job.detached, &link)
        && (heard.vanished || matches!(ended, Ended::Exit(_)))
        && let Err(why) = link.ask(&["discard"])
    {
        tell(Note::Said(Remark::NotDiscarded { place: deployment.place.clone(), why: why.to_string() }));
    }
    let lost = matches!(ended, Ended::Lost(_));
    let skew_last = link.as_ref().filter(|_| !lost).and_then(AgentLink::skew);
    if link.is_some_and(|link| !link.close()) && !lost {
        tell(Note::Said(Remark::NotCleaned(deployment.place.clone())));
    }
    Ok(Done { place: deployment.place, ended, skew, skew_last, brought: directory.all })
}

/// What happens to a detached command that is no longer followed, and what the user can do.
fn goes_on(place: &DeviceAddress, detached: &Detached<'_>) -> String {
    format!(
        "the command there continues for at most {} s; `fathom device fetch {place} {}` fetches its results, `fathom device stop {place}` \
         ends it",
        (detached.patience + SLACK).as_secs(),
        detached.name
    )
}

fn lease(patience: Duration) -> String {
    (patience + SLACK).as_secs().to_string()
}

fn deployed(
    place: &DeviceAddress,
    binaries: &[PathBuf],
    context: &Context,
    tell: &mut dyn FnMut(Note<'_>),
) -> Result<Deployment, Unreachable> {
    let ours = std::env::current_exe();
    let ours = ours.map_err(|e| Unreachable::new(place, format!("cannot find Fathom's own binary: {e}")))?;
    let said = std::cell::RefCell::new(tell);
    program::put(place, &ours, binaries, context, &|remark| said.borrow_mut()(Note::Said(remark)))
}

fn linked(deployment: &Deployment, context: &Context) -> Result<(AgentLink, Receiver<Event>), Unreachable> {
    let (sender, events) = channel();
    Ok((AgentLink::open(deployment, context, move |event| drop(sender.send(event)))?, events))
}

fn start(link: &AgentLink, job: &Job<'_>, deployment: &Deployment) -> io::Result<()> {
    job.files.iter().try_for_each(|(name, bytes)| link.put(name, bytes))?;
    if let Some((directory, leave)) = job.brings {
        link.follow(directory, leave)?;
    }
    let own = |word: &String| if word == PROGRAM { deployment.program.clone() } else { word.clone() };
    let argv: Vec<String> = std::iter::once(deployment.program.clone()).chain(job.words.iter().map(own)).collect();
    link.start(&argv)
}

/// How much of a detached command's output was received already, so that it is not shown again.
#[derive(Debug, Default)]
struct Heard {
    /// Bytes of output.
    out: u64,
    /// Bytes of error output.
    err: u64,
    /// Whether it ended without a status, and all its files are here.
    vanished: bool,
}

/// Reattaches a detached command at the received position; starts it if the connection broke before it was started.
fn reattach(
    link: &AgentLink,
    job: &Job<'_>,
    detached: &Detached<'_>,
    deployment: &Deployment,
    directory: &Incoming<'_>,
    heard: &Heard,
) -> Result<(), Stopped> {
    let nothing = heard.out == 0 && heard.err == 0 && directory.lengths.is_empty() && detached.begin == Begin::Start;
    let lease = lease(detached.patience);
    let state = link.ask(&["reattach", detached.name, &lease, &heard.out.to_string(), &heard.err.to_string()]);
    let state = match state {
        // The connection broke before the command was started.
        Err(_) if nothing => link.ask(&["attach", detached.name, &lease])?,
        state => state?,
    };
    if state == State::Prepared.name() {
        if !nothing {
            return Err(Stopped::NeverStarted(detached.name.into()));
        }
        return Ok(start(link, job, deployment)?);
    }
    let Some((name, leave)) = job.brings else { return Ok(()) };
    let has = directory.has();
    let words: Vec<&str> = std::iter::once("has").chain(has.iter().map(String::as_str)).collect();
    link.ask(&words)?;
    Ok(link.follow(name, leave)?)
}

/// Waits for the device, and reattaches the command.
#[expect(clippy::too_many_arguments, reason = "what `run` has; a struct of it would be used here only")]
fn reconnected(
    job: &Job<'_>,
    detached: &Detached<'_>,
    before: &Deployment,
    directory: &Incoming<'_>,
    heard: &Heard,
    why: &Unreachable,
    context: &Context,
    tell: &mut dyn FnMut(Note<'_>),
) -> Result<(AgentLink, Receiver<Event>), Unreachable> {
    let patience = detached.patience;
    if patience.is_zero() {
        return Err(why.clone());
    }
    let place = &before.place;
    let left = || goes_on(place, detached);
    tell(Note::Said(Remark::Waiting { why: why.clone(), patience }));
    let (begun, mut last) = (Instant::now(), String::new());
    let mut refreshed = begun;
    loop {
        if context.cancelled() {
            return Err(Unreachable::new(place, format!("{}; interrupted: {}", why.why, left())));
        }
        if begun.elapsed() > patience {
            let last = if last.is_empty() { String::new() } else { format!(" (last: {last})") };
            return Err(Unreachable::new(
                place,
                format!("{}; not back within {} s{last}: {}", why.why, patience.as_secs(), left()),
            ));
        }
        context.progress(
            &format!("{place} is disconnected; waiting for it"),
            begun.elapsed().as_secs(),
            patience.as_secs(),
        );
        std::thread::sleep(AGAIN);
        if let DeviceAddress::Adb(Some(serial)) = place {
            let stale = refreshed.elapsed() > STALE;
            if stale {
                refreshed = Instant::now();
            }
            AdbServer::of_environment().reconnect(serial, stale);
        }
        // The program is checked again, since the device may have been reset.
        let quiet: &mut dyn FnMut(Note<'_>) = &mut |_| {};
        let opened = deployed(place, job.binaries, context, quiet).and_then(|deployment| {
            let (link, events) = linked(&deployment, context)?;
            Ok((deployment, link, events))
        });
        let (deployment, link, events) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                last = error.why;
                continue;
            }
        };
        return match reattach(&link, job, detached, &deployment, directory, heard) {
            Ok(()) => {
                tell(Note::Said(Remark::Back { place: place.clone(), after: begun.elapsed() }));
                Ok((link, events))
            }
            // It broke again meanwhile.
            Err(why) if why.is_connection() => {
                last = why.to_string();
                continue;
            }
            Err(lost) => Err(Unreachable::new(place, format!("{}; it is back, but {lost}", why.why))),
        };
    }
}

fn follow(
    link: &AgentLink,
    events: &Receiver<Event>,
    directory: &mut Incoming<'_>,
    heard: &mut Heard,
    context: &Context,
    tell: &mut dyn FnMut(Note<'_>),
) -> Result<Ended, Stopped> {
    let mut asked = false;
    loop {
        if context.cancelled() && !asked {
            asked = true;
            // If it cannot be sent, the next event contains the reason.
            let _ = link.signal(libc::SIGINT as u8);
        }
        if asked && link.is_silent() {
            let place = &link.deployment().place;
            return Ok(Ended::Lost(Unreachable::new(place, "interrupted, and it does not answer")));
        }
        match events.recv_timeout(LOOK) {
            Ok(Event::Out(bytes)) => {
                heard.out += bytes.len() as u64;
                tell(Note::Out(&bytes));
            }
            Ok(Event::Err(bytes)) => {
                heard.err += bytes.len() as u64;
                tell(Note::Err(&bytes));
            }
            Ok(Event::Piece(name, at, bytes)) => {
                directory.take(&name, at, &bytes)?;
                tell(Note::Brought(directory.all));
            }
            Ok(Event::Exit(VANISHED)) => {
                heard.vanished = true;
                let why = "the device restarted, or the command was killed there";
                return Ok(Ended::Lost(Unreachable::new(&link.deployment().place, why)));
            }
            // A command killed by a signal.
            Ok(Event::Exit(status)) => {
                let status = if status < 0 { 128_i32.saturating_sub(status) } else { status };
                return Ok(Ended::Exit(u8::try_from(status).unwrap_or(1)));
            }
            Ok(Event::Gone(why)) => return Ok(Ended::Lost(why)),
            Ok(Event::Done(Err(why))) => return Err(Stopped::NotKept(why)),
            Ok(Event::Done(Ok(()))) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Stopped::Gone),
        }
    }
}

/// A command that serves until it is stopped.
#[derive(Debug)]
pub struct Service<'a> {
    pub place: &'a DeviceAddress,
    /// This program's binaries for devices of other architectures.
    pub binaries: &'a [PathBuf],
    /// Its name there.
    pub name: &'a str,
    /// Its input files, by their names in its directory. They are kept as long as it runs.
    pub files: &'a [(String, Vec<u8>)],
    /// The words after the program's name.
    pub words: &'a [String],
}

/// A service that is running, or has already ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The device's full name.
    pub place: DeviceAddress,
    /// Its first line of output; or its exit status if it ended before.
    pub ready: Result<String, u8>,
}

/// Starts a service, and detaches from it when it has printed a line.
///
/// # Errors
/// It was not started.
pub fn serve(service: &Service<'_>, context: &Context, tell: &mut dyn FnMut(Note<'_>)) -> Result<Started, Unreachable> {
    let fail = |why: Stopped| Unreachable::new(service.place, why.to_string());
    let deployment = deployed(service.place, service.binaries, context, tell)?;
    let (link, events) = linked(&deployment, context)?;
    link.ask(&["attach", service.name, "0"]).map_err(|e| fail(e.into()))?;
    let argv: Vec<String> = std::iter::once(&deployment.program).chain(service.words).cloned().collect();
    let files = || service.files.iter().try_for_each(|(name, bytes)| link.put(name, bytes));
    files().and_then(|()| link.start(&argv)).map_err(|e| fail(e.into()))?;
    let mut said = Vec::new();
    let ready = loop {
        if context.cancelled() {
            let _ = link.signal(libc::SIGINT as u8);
        }
        match events.recv_timeout(LOOK) {
            Ok(Event::Out(bytes)) => {
                said.extend(bytes);
                if said.contains(&b'\n') || said.len() > 1 << 16 {
                    break Ok(String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned());
                }
            }
            Ok(Event::Err(bytes)) => tell(Note::Err(&bytes)),
            Ok(Event::Exit(status)) => {
                let _ = link.ask(&["discard"]);
                break Err(u8::try_from(status).unwrap_or(1));
            }
            Ok(Event::Gone(why)) => return Err(why),
            Ok(Event::Done(Err(why))) => return Err(fail(Stopped::NotKept(why))),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(fail(Stopped::Gone)),
        }
    };
    // Error output printed together with that line.
    while let Ok(Event::Err(bytes)) = events.recv_timeout(4 * LOOK) {
        tell(Note::Err(&bytes));
    }
    link.close();
    Ok(Started { place: deployment.place, ready })
}

/// A directory received from a device: only below `into`, only contiguous data, and only up to the size limit.
struct Incoming<'a> {
    into: &'a Path,
    lengths: HashMap<String, u64>,
    all: u64,
}

impl Incoming<'_> {
    /// The files that are here: name, length and hash of each, as a flat list. A file that was changed here meanwhile is fetched again.
    fn has(&self) -> Vec<String> {
        let one = |(name, length): (&String, &u64)| {
            let path = name.split_once('/').and_then(|(_, rest)| below(self.into, rest))?;
            let hash = hashed(fs::File::open(path).ok()?, *length).ok()?;
            Some([name.clone(), length.to_string(), hash])
        };
        self.lengths.iter().filter_map(one).flatten().collect()
    }

    fn take(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), NotTaken> {
        // Without the name of the directory on the device.
        let inside = name.split_once('/').map(|(_, rest)| rest).filter(|rest| !rest.is_empty());
        let path = inside.and_then(|rest| below(self.into, rest)).ok_or(NotTaken::Name)?;
        let known = self.lengths.get(name).copied();
        if at != 0 && known != Some(at) {
            return Err(NotTaken::Gap);
        }
        self.all = self.all.saturating_add(bytes.len() as u64);
        if self.all > MOST || (known.is_none() && self.lengths.len() >= MOST_FILES) {
            return Err(NotTaken::TooMuch);
        }
        let write = || -> io::Result<()> {
            fs::create_dir_all(path.parent().unwrap_or(self.into))?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(at == 0).open(&path)?;
            file.seek(SeekFrom::Start(at))?;
            file.write_all(bytes)
        };
        write().map_err(|e| NotTaken::Write(path, e))?;
        self.lengths.insert(name.into(), at + bytes.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_put_together_below_directory_only() {
        let outside = tempfile::tempdir().unwrap();
        let into = outside.path().join("into");
        fs::create_dir(&into).unwrap();
        let mut directory = Incoming { into: &into, lengths: HashMap::new(), all: 0 };
        directory.take("run/log", 0, b"one").unwrap();
        directory.take("run/log", 3, b" two").unwrap();
        directory.take("run/why/a", 0, b"").unwrap();
        let read = |name: &str| fs::read(into.join(name)).unwrap();
        assert_eq!((read("log"), read("why/a")), (b"one two".to_vec(), vec![]));
        directory.take("run/log", 0, b"x").unwrap();
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
            assert!(directory.take(name, at, b"y").is_err(), "{name} at {at}");
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "nothing is beside the directory");
    }
}
