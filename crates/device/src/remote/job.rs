//! A command of this program on a device whose result is a directory: it is transferred while it is written, so that the
//! measurements are here if the device is lost. The caller interprets the directory. A detached command continues there
//! meanwhile, and is reattached when the device is back: the transfer of a file continues after its bytes that are here, if
//! they still match the beginning of the file there.

use super::adb::AdbServer;
use super::agent::VANISHED_STATUS;
use super::detached::State;
use super::follow::hash_prefix;
use super::frame::path_below;
use super::link::RequestError;
use super::pipe::LossCause;
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
pub const PROGRAM_PLACEHOLDER: &str = "{fathom}";

/// How often cancellation is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often a disconnected device is tried again.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);
/// How long an `offline` adb connection may last before it is reopened: a slow handshake looks the same.
const OFFLINE_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum size accepted from a device, bytes.
const RESULT_BYTES_MAX: u64 = 64 << 30;
/// The maximum number of files in a result.
const RESULT_FILES_MAX: usize = 10_000;

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
    pub result_directory: Option<(&'a str, &'a [&'a str])>,
    /// The directory here for its files.
    pub into: &'a Path,
    /// Set if it outlives the connection, which is then re-established.
    pub detached: Option<DetachedOptions<'a>>,
}

#[derive(Debug)]
pub enum JobEvent<'a> {
    /// A message of the host.
    Message(Remark),
    Out(&'a [u8]),
    /// Error output of the command.
    Err(&'a [u8]),
    /// The number of bytes of the directory received so far.
    Received(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandEnd {
    /// With this exit status.
    Exit(u8),
    /// The device, or the connection to it, was lost.
    Lost(Unreachable),
}

/// The outcome of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutcome {
    /// The device's full name.
    pub place: DeviceAddress,
    pub ended: CommandEnd,
    /// The offset of its clock to this machine's when the command was started, if known.
    pub skew: Option<Skew>,
    /// The same after it had ended.
    pub skew_last: Option<Skew>,
    /// Bytes transferred.
    pub received_bytes: u64,
}

/// A command that outlives the connection.
#[derive(Debug, Clone, Copy)]
pub struct DetachedOptions<'a> {
    /// Its name there.
    pub name: &'a str,
    /// Whether to start it, or to reattach it.
    pub begin: DetachedStart,
    /// How long to wait for a lost device. The command there ends by itself [`LEASE_EXTRA_DURATION`] later.
    pub patience: Duration,
}

/// The beginning of a detached command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachedStart {
    Start,
    /// It was started earlier; fetch its results.
    Fetch,
}

/// How much longer a command waits for its host than the host waits for the device.
pub const LEASE_EXTRA_DURATION: Duration = Duration::from_secs(30);

/// Why a command cannot be reattached, or is no longer followed.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Broke(#[from] LossCause),
    /// The agent did not respond.
    #[error(transparent)]
    Unanswered(#[from] RequestError),
    /// Its directory exists, but is empty.
    #[error("`{0}` was never started on the device")]
    NeverStarted(String),
    /// The device could not store a file, and why.
    #[error("{0}")]
    NotKept(String),
    /// Received data cannot be stored here.
    #[error(transparent)]
    Refused(#[from] PieceError),
    /// The receiving thread has ended.
    #[error("the device is gone")]
    Gone,
}

impl FollowError {
    /// Whether a new connection may help.
    fn is_connection(&self) -> bool {
        matches!(self, Self::Broke(LossCause::Connection(_)) | Self::Unanswered(RequestError::Silent(_)) | Self::Gone)
    }
}

impl From<io::Error> for FollowError {
    fn from(error: io::Error) -> Self {
        Self::Broke(LossCause::from_error(&error))
    }
}

/// Why a piece of a file is not accepted from a device.
#[derive(Debug, thiserror::Error)]
enum PieceError {
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
pub fn run(job: &Job<'_>, context: &Context, tell: &mut dyn FnMut(JobEvent<'_>)) -> Result<JobOutcome, Unreachable> {
    let fail = |why: FollowError| Unreachable::new(job.place, why.to_string());
    let deployment = deploy(job.place, job.binaries, context, tell)?;
    let (link, mut events) = open_link(&deployment, context)?;
    let skew = link.skew();
    if context.cancelled() {
        return Err(Unreachable::new(job.place, "interrupted"));
    }
    let mut directory = IncomingDirectory { into: job.into, lengths: HashMap::new(), received_bytes: 0 };
    let mut heard = ReceivedOutput::default();
    match job.detached {
        None => start(&link, job, &deployment).map_err(|e| fail(e.into()))?,
        Some(DetachedOptions { begin: DetachedStart::Start, name, patience }) => {
            link.ask(&["attach", name, &lease(patience)]).map_err(|e| fail(e.into()))?;
            start(&link, job, &deployment).map_err(|e| fail(e.into()))?;
        }
        Some(detached) => drop(reattach(&link, job, &detached, &deployment, &directory, &heard).map_err(fail)?),
    }
    let mut link = Some(link);
    let ended = loop {
        let Some(now) = &link else { break Err(FollowError::Gone) };
        let ended = follow(now, &events, &mut directory, &mut heard, context, tell);
        let (Ok(CommandEnd::Lost(why)), Some(detached)) = (&ended, &job.detached) else { break ended };
        if heard.vanished {
            break ended;
        }
        let why = why.clone();
        // The remains of the old connection are closed first.
        drop(link.take());
        match reconnect(job, detached, &deployment, &directory, &heard, &why, context, tell) {
            Ok((again, fresh)) => (link, events) = (Some(again), fresh),
            Err(why) => break Ok(CommandEnd::Lost(why)),
        }
    };
    // If the disk here is full, everything received so far is kept.
    let ended = ended.unwrap_or_else(|why| {
        let on = job.detached.as_ref().map_or(String::new(), |d| format!("; {}", continues_hint(&deployment.place, d)));
        CommandEnd::Lost(Unreachable::new(&deployment.place, format!("{why}{on}")))
    });
    if let (Some(_), Some(link)) = (&job.detached, &link)
        && (heard.vanished || matches!(ended, CommandEnd::Exit(_)))
        && let Err(why) = link.ask(&["discard"])
    {
        tell(JobEvent::Message(Remark::NotDiscarded { place: deployment.place.clone(), why: why.to_string() }));
    }
    let lost = matches!(ended, CommandEnd::Lost(_));
    let skew_last = link.as_ref().filter(|_| !lost).and_then(AgentLink::skew);
    if link.is_some_and(|link| !link.close()) && !lost {
        tell(JobEvent::Message(Remark::NotCleaned(deployment.place.clone())));
    }
    Ok(JobOutcome { place: deployment.place, ended, skew, skew_last, received_bytes: directory.received_bytes })
}

/// What happens to a detached command that is no longer followed, and what the user can do.
fn continues_hint(place: &DeviceAddress, detached: &DetachedOptions<'_>) -> String {
    format!(
        "the command there continues for at most {} s; `fathom device fetch {place} {}` fetches its results, `fathom device stop {place}` \
         ends it",
        (detached.patience + LEASE_EXTRA_DURATION).as_secs(),
        detached.name
    )
}

fn lease(patience: Duration) -> String {
    (patience + LEASE_EXTRA_DURATION).as_secs().to_string()
}

fn deploy(
    place: &DeviceAddress,
    binaries: &[PathBuf],
    context: &Context,
    tell: &mut dyn FnMut(JobEvent<'_>),
) -> Result<Deployment, Unreachable> {
    let ours = std::env::current_exe();
    let ours = ours.map_err(|e| Unreachable::new(place, format!("cannot find Fathom's own binary: {e}")))?;
    let said = std::cell::RefCell::new(tell);
    program::deploy(place, &ours, binaries, context, &|remark| said.borrow_mut()(JobEvent::Message(remark)))
}

fn open_link(deployment: &Deployment, context: &Context) -> Result<(AgentLink, Receiver<Event>), Unreachable> {
    let (sender, events) = channel();
    Ok((AgentLink::open(deployment, context, move |event| drop(sender.send(event)))?, events))
}

fn start(link: &AgentLink, job: &Job<'_>, deployment: &Deployment) -> io::Result<()> {
    job.files.iter().try_for_each(|(name, bytes)| link.put(name, bytes))?;
    if let Some((directory, leave)) = job.result_directory {
        link.follow(directory, leave)?;
    }
    let own = |word: &String| if word == PROGRAM_PLACEHOLDER { deployment.program.clone() } else { word.clone() };
    let argv: Vec<String> = std::iter::once(deployment.program.clone()).chain(job.words.iter().map(own)).collect();
    link.start(&argv)
}

/// How much of a detached command's output was received already, so that it is not shown again.
#[derive(Debug, Default)]
struct ReceivedOutput {
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
    detached: &DetachedOptions<'_>,
    deployment: &Deployment,
    directory: &IncomingDirectory<'_>,
    heard: &ReceivedOutput,
) -> Result<(), FollowError> {
    let nothing =
        heard.out == 0 && heard.err == 0 && directory.lengths.is_empty() && detached.begin == DetachedStart::Start;
    let lease = lease(detached.patience);
    let state = link.ask(&["reattach", detached.name, &lease, &heard.out.to_string(), &heard.err.to_string()]);
    let state = match state {
        // The connection broke before the command was started.
        Err(_) if nothing => link.ask(&["attach", detached.name, &lease])?,
        state => state?,
    };
    if state == State::Prepared.name() {
        if !nothing {
            return Err(FollowError::NeverStarted(detached.name.into()));
        }
        return Ok(start(link, job, deployment)?);
    }
    let Some((name, leave)) = job.result_directory else { return Ok(()) };
    let has = directory.has();
    let words: Vec<&str> = std::iter::once("has").chain(has.iter().map(String::as_str)).collect();
    link.ask(&words)?;
    Ok(link.follow(name, leave)?)
}

/// Waits for the device, and reattaches the command.
#[expect(clippy::too_many_arguments, reason = "what `run` has; a struct of it would be used here only")]
fn reconnect(
    job: &Job<'_>,
    detached: &DetachedOptions<'_>,
    before: &Deployment,
    directory: &IncomingDirectory<'_>,
    heard: &ReceivedOutput,
    why: &Unreachable,
    context: &Context,
    tell: &mut dyn FnMut(JobEvent<'_>),
) -> Result<(AgentLink, Receiver<Event>), Unreachable> {
    let patience = detached.patience;
    if patience.is_zero() {
        return Err(why.clone());
    }
    let place = &before.place;
    let left = || continues_hint(place, detached);
    tell(JobEvent::Message(Remark::Waiting { why: why.clone(), patience }));
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
        std::thread::sleep(RECONNECT_INTERVAL);
        if let DeviceAddress::Adb(Some(serial)) = place {
            let stale = refreshed.elapsed() > OFFLINE_TIMEOUT;
            if stale {
                refreshed = Instant::now();
            }
            AdbServer::from_environment().reconnect(serial, stale);
        }
        // The program is checked again, since the device may have been reset.
        let quiet: &mut dyn FnMut(JobEvent<'_>) = &mut |_| {};
        let opened = deploy(place, job.binaries, context, quiet).and_then(|deployment| {
            let (link, events) = open_link(&deployment, context)?;
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
                tell(JobEvent::Message(Remark::Back { place: place.clone(), after: begun.elapsed() }));
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
    directory: &mut IncomingDirectory<'_>,
    heard: &mut ReceivedOutput,
    context: &Context,
    tell: &mut dyn FnMut(JobEvent<'_>),
) -> Result<CommandEnd, FollowError> {
    let mut asked = false;
    loop {
        if context.cancelled() && !asked {
            asked = true;
            // If it cannot be sent, the next event contains the reason.
            let _ = link.signal(libc::SIGINT as u8);
        }
        if asked && link.is_silent() {
            let place = &link.deployment().place;
            return Ok(CommandEnd::Lost(Unreachable::new(place, "interrupted, and it does not answer")));
        }
        match events.recv_timeout(POLL_INTERVAL) {
            Ok(Event::Out(bytes)) => {
                heard.out += bytes.len() as u64;
                tell(JobEvent::Out(&bytes));
            }
            Ok(Event::Err(bytes)) => {
                heard.err += bytes.len() as u64;
                tell(JobEvent::Err(&bytes));
            }
            Ok(Event::Piece(name, at, bytes)) => {
                directory.take(&name, at, &bytes)?;
                tell(JobEvent::Received(directory.received_bytes));
            }
            Ok(Event::Exit(VANISHED_STATUS)) => {
                heard.vanished = true;
                let why = "the device restarted, or the command was killed there";
                return Ok(CommandEnd::Lost(Unreachable::new(&link.deployment().place, why)));
            }
            // A command killed by a signal.
            Ok(Event::Exit(status)) => {
                let status = if status < 0 { 128_i32.saturating_sub(status) } else { status };
                return Ok(CommandEnd::Exit(u8::try_from(status).unwrap_or(1)));
            }
            Ok(Event::Gone(why)) => return Ok(CommandEnd::Lost(why)),
            Ok(Event::Done(Err(why))) => return Err(FollowError::NotKept(why)),
            Ok(Event::Done(Ok(()))) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(FollowError::Gone),
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
pub struct StartedService {
    /// The device's full name.
    pub place: DeviceAddress,
    /// Its first line of output; or its exit status if it ended before.
    pub ready: Result<String, u8>,
}

/// Starts a service, and detaches from it when it has printed a line.
///
/// # Errors
/// It was not started.
pub fn serve(
    service: &Service<'_>,
    context: &Context,
    tell: &mut dyn FnMut(JobEvent<'_>),
) -> Result<StartedService, Unreachable> {
    let fail = |why: FollowError| Unreachable::new(service.place, why.to_string());
    let deployment = deploy(service.place, service.binaries, context, tell)?;
    let (link, events) = open_link(&deployment, context)?;
    link.ask(&["attach", service.name, "0"]).map_err(|e| fail(e.into()))?;
    let argv: Vec<String> = std::iter::once(&deployment.program).chain(service.words).cloned().collect();
    let files = || service.files.iter().try_for_each(|(name, bytes)| link.put(name, bytes));
    files().and_then(|()| link.start(&argv)).map_err(|e| fail(e.into()))?;
    let mut said = Vec::new();
    let ready = loop {
        if context.cancelled() {
            let _ = link.signal(libc::SIGINT as u8);
        }
        match events.recv_timeout(POLL_INTERVAL) {
            Ok(Event::Out(bytes)) => {
                said.extend(bytes);
                if said.contains(&b'\n') || said.len() > 1 << 16 {
                    break Ok(String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned());
                }
            }
            Ok(Event::Err(bytes)) => tell(JobEvent::Err(&bytes)),
            Ok(Event::Exit(status)) => {
                let _ = link.ask(&["discard"]);
                break Err(u8::try_from(status).unwrap_or(1));
            }
            Ok(Event::Gone(why)) => return Err(why),
            Ok(Event::Done(Err(why))) => return Err(fail(FollowError::NotKept(why))),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(fail(FollowError::Gone)),
        }
    };
    // Error output printed together with that line.
    while let Ok(Event::Err(bytes)) = events.recv_timeout(4 * POLL_INTERVAL) {
        tell(JobEvent::Err(&bytes));
    }
    link.close();
    Ok(StartedService { place: deployment.place, ready })
}

/// A directory received from a device: only below `into`, only contiguous data, and only up to the size limit.
struct IncomingDirectory<'a> {
    into: &'a Path,
    lengths: HashMap<String, u64>,
    received_bytes: u64,
}

impl IncomingDirectory<'_> {
    /// The files that are here: name, length and hash of each, as a flat list. A file that was changed here meanwhile is fetched again.
    fn has(&self) -> Vec<String> {
        let one = |(name, length): (&String, &u64)| {
            let path = name.split_once('/').and_then(|(_, rest)| path_below(self.into, rest))?;
            let hash = hash_prefix(fs::File::open(path).ok()?, *length).ok()?;
            Some([name.clone(), length.to_string(), hash])
        };
        self.lengths.iter().filter_map(one).flatten().collect()
    }

    fn take(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), PieceError> {
        // Without the name of the directory on the device.
        let inside = name.split_once('/').map(|(_, rest)| rest).filter(|rest| !rest.is_empty());
        let path = inside.and_then(|rest| path_below(self.into, rest)).ok_or(PieceError::Name)?;
        let known = self.lengths.get(name).copied();
        if at != 0 && known != Some(at) {
            return Err(PieceError::Gap);
        }
        self.received_bytes = self.received_bytes.saturating_add(bytes.len() as u64);
        if self.received_bytes > RESULT_BYTES_MAX || (known.is_none() && self.lengths.len() >= RESULT_FILES_MAX) {
            return Err(PieceError::TooMuch);
        }
        let write = || -> io::Result<()> {
            fs::create_dir_all(path.parent().unwrap_or(self.into))?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(at == 0).open(&path)?;
            file.seek(SeekFrom::Start(at))?;
            file.write_all(bytes)
        };
        write().map_err(|e| PieceError::Write(path, e))?;
        self.lengths.insert(name.into(), at + bytes.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_assembled_only_below_the_directory() {
        let outside = tempfile::tempdir().unwrap();
        let into = outside.path().join("into");
        fs::create_dir(&into).unwrap();
        let mut directory = IncomingDirectory { into: &into, lengths: HashMap::new(), received_bytes: 0 };
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
