//! The host side: an agent on a device, and the pipe to it.

use super::agent::now_ns;
use super::frame::{AGENT_GREETING, BEAT_INTERVAL, FRAME_BYTES_MAX, Frame};
use super::patience::{SILENCE_TIMEOUT, TransferCount, receive};
use super::pipe::{Ending, Life, LossCause, Pipe};
use super::program::Deployment;
use super::read::read_some;
use super::{Unreachable, transport};
use crate::{Reader, RunError};
use model::{Context, Dev};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long it may take to clean up and exit: a little longer than it gives its command.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(6);
/// How long to wait for the last error output after the end of the pipe; a surviving process keeps it open.
const ERROR_OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
/// Beats without a response after which a device is regarded as lost.
const MISSED_BEATS_MAX: u32 = 6;
/// The maximum number of lines before the greeting, printed by a login.
const PREAMBLE_LINES_MAX: usize = 1000;
/// The number of clock exchanges.
const CLOCK_EXCHANGES: u64 = 12;

/// A message from a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Out(Vec<u8>),
    /// Error output of the command.
    Err(Vec<u8>),
    /// The command ended: its exit status, or a negated signal number.
    Exit(i32),
    /// Part of a followed directory: a file has these bytes at this offset. Offset 0 starts over.
    Piece(String, u64, Vec<u8>),
    /// Why a sent file could not be stored.
    Done(Result<(), String>),
    /// The device, or the connection to it, is gone.
    Gone(Unreachable),
}

/// Why a request to a device has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No response: the device, or the connection to it, may be lost.
    #[error("{0} does not answer")]
    Silent(super::DeviceAddress),
    /// The device returned an error.
    #[error(transparent)]
    Refused(RunError),
}

/// The relation of a device's CLOCK_BOOTTIME to this machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skew {
    /// The time of the response, by the device's clock, ns.
    pub at_ns: u64,
    /// How far it is ahead, ns.
    pub ahead_ns: i64,
    /// The error bound of the offset, ns: half the fastest exchange.
    pub error_ns: u64,
}

/// An agent on a device. Dropping it ends all processes that it started.
pub struct AgentLink {
    deployment: Deployment,
    life: SharedLife,
    to: SharedInput,
    /// Responses to requests of the host.
    answers: Mutex<Receiver<Frame>>,
    closing: Arc<AtomicBool>,
    /// Beats without a response.
    unanswered: Arc<AtomicU32>,
    /// Dropping it ends the beat.
    beating: Option<Sender<()>>,
    context: Context,
}

/// The sending end of the pipe; `None` when closed.
type SharedInput = Arc<Mutex<Option<Box<dyn Write + Send>>>>;
type SharedLife = Arc<Mutex<Box<dyn Life>>>;

impl std::fmt::Debug for AgentLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentLink").field("deployment", &self.deployment).finish_non_exhaustive()
    }
}

impl AgentLink {
    /// Starts an agent. All its unsolicited frames are passed to `on_event`, from another thread. Once `context` is cancelled, no response of
    /// the agent is waited for.
    ///
    /// # Errors
    /// It does not start, and the message contains the output of ssh, adb or the device; or `context` was cancelled.
    pub fn open(
        deployment: &Deployment,
        context: &Context,
        on_event: impl Fn(Event) + Send + 'static,
    ) -> Result<Self, Unreachable> {
        let place = &deployment.place;
        let line =
            format!("exec {} agent {}", child::quoted(&deployment.program), child::quoted(&deployment.directory));
        let Pipe { to, from, complaints, life } = transport::open(place, &line, context)?;
        let said = Arc::new(Mutex::new(String::new()));
        // Nothing is sent: the channel closes when all error output was read.
        let (overhearing, overheard) = channel();
        std::thread::spawn({
            let said = said.clone();
            move || {
                let _closes = overhearing;
                keep_error_output(complaints, &said);
            }
        });
        let (greet, greeted) = channel();
        let (answer, answers) = channel();
        let to: SharedInput = Arc::new(Mutex::new(Some(to)));
        let life: SharedLife = Arc::new(Mutex::new(life));
        let closing = Arc::new(AtomicBool::new(false));
        let unanswered = Arc::new(AtomicU32::new(0));
        let reader = FrameReader {
            place: place.clone(),
            said,
            answer,
            closing: closing.clone(),
            unanswered: unanswered.clone(),
        };
        std::thread::spawn(move || reader.listen(from, &greet, &overheard, &on_event));
        let (beating, stop) = channel();
        let beating = Some(beating);
        let link = Self {
            deployment: deployment.clone(),
            life,
            to,
            answers: Mutex::new(answers),
            closing,
            unanswered: unanswered.clone(),
            beating,
            context: context.clone(),
        };
        let what = format!("{place} to start Fathom");
        match receive(&greeted, transport::silence_timeout(place), &TransferCount::default(), context, &what) {
            Ok(Ok(())) => {
                // Not earlier: a booting machine does not respond.
                let (to, life) = (link.to.clone(), link.life.clone());
                std::thread::spawn(move || send_beats(&to, &stop, &unanswered, &life));
                Ok(link)
            }
            Ok(Err(why)) => Err(why),
            Err(why) => {
                // It has started nothing that it could end.
                if let Ok(mut life) = link.life.lock() {
                    life.kill();
                }
                Err(why.into_unreachable(place, &what))
            }
        }
    }

    /// The device and the deployed program.
    pub fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    fn send(&self, frame: &Frame) -> io::Result<()> {
        let mut to = self.to.lock().map_err(|_| io::ErrorKind::BrokenPipe)?;
        frame.write(to.as_mut().ok_or(io::ErrorKind::BrokenPipe)?)
    }

    /// Writes a file into the agent's directory. If it cannot be stored, [`Event::Done`] reports it.
    ///
    /// # Errors
    /// The pipe broke.
    pub fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut parts = bytes.chunks(FRAME_BYTES_MAX / 2);
        self.send(&Frame::Part(name.into(), parts.next().unwrap_or_default().to_vec()))?;
        parts.try_for_each(|part| self.send(&Frame::Part(name.into(), part.to_vec())))
    }

    /// Starts a command in the agent's directory; one at a time.
    ///
    /// # Errors
    /// The pipe broke.
    pub fn start(&self, argv: &[String]) -> io::Result<()> {
        self.send(&Frame::Start(argv.to_vec()))
    }

    /// Sends a signal to the command and all its child processes.
    ///
    /// # Errors
    /// The pipe broke.
    pub fn signal(&self, number: u8) -> io::Result<()> {
        self.send(&Frame::Signal(number))
    }

    /// Requests the current and future contents of a directory of the agent, as [`Event::Piece`]s; all of them arrive before
    /// [`Event::Exit`]. Names that begin or end with one of `leave` are skipped.
    ///
    /// # Errors
    /// The pipe broke.
    pub fn follow(&self, directory: &str, leave: &[&str]) -> io::Result<()> {
        self.send(&Frame::Follow([&[directory], leave].concat().into_iter().map(Into::into).collect()))
    }

    fn exchange(&self, ask: &Frame) -> Option<Frame> {
        // One request at a time.
        let answers = self.answers.lock().ok()?;
        while answers.try_recv().is_ok() {}
        self.send(ask).ok()?;
        receive(
            &answers,
            SILENCE_TIMEOUT,
            &TransferCount::default(),
            &self.context,
            &format!("{} to answer", self.deployment.place),
        )
        .ok()
    }

    /// The clock offset, from the fastest of several exchanges; `None` if the device does not respond.
    pub fn skew(&self) -> Option<Skew> {
        let one = |number: u64| {
            let asked = now_ns();
            match self.exchange(&Frame::Ping(number + 1))? {
                Frame::Pong(n, theirs) if n == number + 1 => Some(skew(asked, theirs, now_ns())),
                _ => None,
            }
        };
        // A device that leaves one unanswered is not asked again.
        (0..CLOCK_EXCHANGES).map_while(one).min_by_key(|s| s.error_ns)
    }

    /// Whether it has answered nothing for some seconds, not even a beat.
    pub(super) fn is_silent(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > MISSED_BEATS_MAX
    }

    /// Ends all processes started there and waits until the agent has cleaned up; returns whether it has.
    pub fn close(mut self) -> bool {
        self.shut_down()
    }

    fn shut_down(&mut self) -> bool {
        self.closing.store(true, Ordering::Relaxed);
        drop(self.beating.take());
        // A blocked writer may hold the lock; the process is then killed below.
        if let Ok(mut to) = self.to.try_lock() {
            drop(to.take());
        }
        let Ok(mut life) = self.life.lock() else { return false };
        match life.wait(CLOSE_TIMEOUT) {
            Some(ending) => matches!(ending, Ending::Exit(_)),
            None => {
                life.kill();
                false
            }
        }
    }
}

impl Drop for AgentLink {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// The clock offset of one exchange: the device's time was read at some point between the request and the response.
pub(super) fn skew(asked: u64, theirs: u64, back: u64) -> Skew {
    let middle = asked + back.saturating_sub(asked) / 2;
    Skew {
        at_ns: theirs,
        ahead_ns: theirs.wrapping_sub(middle) as i64,
        error_ns: back.saturating_sub(asked).div_ceil(2),
    }
}

/// Keeps the last error output of ssh or adb.
fn keep_error_output(from: impl Read, said: &Mutex<String>) {
    let mut buffer = [0; 4096];
    let mut from = from;
    while let Some(n) = read_some(&mut from, &mut buffer).ok().filter(|n| *n > 0) {
        let Ok(mut said) = said.lock() else { return };
        said.push_str(&String::from_utf8_lossy(&buffer[..n]));
        if said.len() > 16_384 {
            let from = (said.len() - 8192..said.len()).find(|at| said.is_char_boundary(*at)).unwrap_or(0);
            said.drain(..from);
        }
    }
}

/// Sends beats to the agent, and gives up on one that does not respond.
fn send_beats(to: &SharedInput, stop: &Receiver<()>, unanswered: &AtomicU32, life: &SharedLife) {
    while stop.recv_timeout(BEAT_INTERVAL / 2) == Err(RecvTimeoutError::Timeout) {
        let missed = unanswered.fetch_add(1, Ordering::Relaxed);
        if missed > 2 * MISSED_BEATS_MAX {
            // Its reader then finds the end of the pipe.
            if let Ok(mut life) = life.lock() {
                life.kill();
            }
            return;
        }
        // If a writer is busy, its frames serve as a beat.
        if let Ok(mut to) = to.try_lock()
            && to.as_mut().is_none_or(|to| Frame::Ping(0).write(to).is_err())
        {
            return;
        }
    }
}

/// Receives the frames of the agent.
struct FrameReader {
    place: super::DeviceAddress,
    said: Arc<Mutex<String>>,
    answer: Sender<Frame>,
    closing: Arc<AtomicBool>,
    unanswered: Arc<AtomicU32>,
}

impl FrameReader {
    fn listen(
        self,
        from: impl Read,
        greet: &Sender<Result<(), Unreachable>>,
        overheard: &Receiver<()>,
        on_event: &dyn Fn(Event),
    ) {
        let mut from = BufReader::new(from);
        let greeted = skip_to_greeting(&mut from);
        if greeted {
            let _ = greet.send(Ok(()));
            let broke = self.read_frames(&mut from, on_event);
            if self.closing.load(Ordering::Relaxed) {
                return;
            }
            on_event(Event::Gone(self.gone(overheard, &broke)));
        } else {
            let _ =
                greet.send(Err(self.gone(overheard, &LossCause::Other("Fathom did not start on the device".into()))));
        }
    }

    fn read_frames(&self, from: &mut impl Read, on_event: &dyn Fn(Event)) -> LossCause {
        loop {
            let frame = match Frame::read(from) {
                Ok(Some(frame)) => frame,
                Ok(None) => return LossCause::Connection(None),
                Err(error) => return LossCause::Connection(Some(error.to_string())),
            };
            self.unanswered.store(0, Ordering::Relaxed);
            match frame {
                Frame::Out(bytes) => on_event(Event::Out(bytes)),
                Frame::Err(bytes) => on_event(Event::Err(bytes)),
                Frame::Exit(status) => on_event(Event::Exit(status)),
                Frame::Piece(name, at, bytes) => on_event(Event::Piece(name, at, bytes)),
                Frame::Done(done) => on_event(Event::Done(done)),
                // The response to a beat.
                Frame::Pong(0, _) => {}
                Frame::Pong(..) | Frame::Answer(_) => drop(self.answer.send(frame)),
                Frame::Part(..)
                | Frame::Start(_)
                | Frame::Signal(_)
                | Frame::Follow(_)
                | Frame::Ping(_)
                | Frame::Ask(_) => {
                    return LossCause::Other("the device sent a message that only this side may send".into());
                }
            }
        }
    }

    fn gone(&self, overheard: &Receiver<()>, otherwise: &LossCause) -> Unreachable {
        // The last error output arrives with the end of the pipe.
        let _ = overheard.recv_timeout(ERROR_OUTPUT_TIMEOUT);
        let said = self.said.lock().map(|s| s.clone()).unwrap_or_default();
        Unreachable::new(&self.place, transport::explain(&said, otherwise))
    }
}

/// Reads up to the agent's first line.
fn skip_to_greeting(from: &mut impl io::BufRead) -> bool {
    (0..PREAMBLE_LINES_MAX).any(|_| {
        let mut line = Vec::new();
        match from.take(4096).read_until(b'\n', &mut line) {
            Ok(n) if n > 0 => line.ends_with(AGENT_GREETING.as_bytes()),
            _ => false,
        }
    })
}

impl AgentLink {
    /// Sends a request to the agent; returns its result, or why there is none.
    pub(super) fn ask(&self, words: &[&str]) -> Result<String, RequestError> {
        match self.exchange(&Frame::Ask(words.iter().map(ToString::to_string).collect())) {
            Some(Frame::Answer(answer)) => answer.map_err(RequestError::Refused),
            _ => Err(RequestError::Silent(self.deployment.place.clone())),
        }
    }

    /// The same, with the reason as text.
    fn fact(&self, words: &[&str]) -> Result<String, String> {
        self.ask(words).map_err(|why| why.to_string())
    }
}

impl Reader for AgentLink {
    fn read(&self, path: &str) -> Result<String, String> {
        self.fact(&["read", path])
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, String> {
        self.fact(&["list", directory]).map(|names| names.lines().map(Into::into).collect())
    }

    fn run(&self, words: &[&str]) -> Result<String, RunError> {
        self.ask(&[&["run"], words].concat()).map_err(|why| match why {
            RequestError::Refused(why) => why,
            RequestError::Silent(_) => RunError::Failed(why.to_string()),
        })
    }

    fn canonical(&self, path: &str) -> Result<String, String> {
        self.fact(&["canonical", path])
    }

    fn identity(&self, path: &str) -> Result<(Dev, u64), String> {
        let answer = self.fact(&["identity", path])?;
        let numbers: Vec<u64> = answer.split(' ').filter_map(|n| n.parse().ok()).collect();
        match numbers[..] {
            [major, minor, inode] if major < 1 << 12 && minor < 1 << 20 => {
                Ok((Dev::new(major as u32, minor as u32), inode))
            }
            _ => Err("the device did not identify itself".into()),
        }
    }
}
