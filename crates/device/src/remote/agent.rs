//! The device side: started on a device by [`super::AgentLink`], it executes the frames on its input, and exits, together with
//! all its child processes and its directory, when the input ends.

use super::detached::{self, CommandDirectory, DetachedCommands, State, undo_notes};
use super::follow::Follower;
use super::frame::{AGENT_GREETING, BEAT_INTERVAL, FRAME_BYTES_MAX, Frame, path_below};
use super::read::read_some;
use crate::{Local, Reader, RunError};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The number of beats that may be missed. Counted, not timed: a suspended machine wakes to an old clock and has missed nothing.
const MISSED_BEATS_MAX: u32 = 6;
/// How long a command may take to exit after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// How often a followed directory is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// How long a keeper may take to report that it has started its command.
const KEEPER_START_TIMEOUT: Duration = Duration::from_secs(10);
/// In [`Frame::Exit`]: a detached command ended without storing its status.
pub(super) const VANISHED_STATUS: i32 = i32::MIN;

/// The events that the agent waits for.
enum AgentEvent {
    Frame(Frame),
    /// The end of the frames.
    InputEnd,
    /// The end of the command's output.
    OutputEnd,
}

/// Runs the agent until its input ends; its own directory is created in `directory`.
///
/// # Errors
/// Its directory cannot be created.
pub fn run(from: impl Read + Send + 'static, to: impl Write + Send + 'static, directory: &Path) -> io::Result<()> {
    // Settings left changed by killed processes.
    let _ = crate::knobs::restore_left_over(&undo_notes(directory));
    let within = directory.to_path_buf();
    let directory = AgentDirectory::create(directory)?;
    let to: SharedOutput = Arc::new(Mutex::new(Box::new(to)));
    if let Ok(mut to) = to.lock() {
        to.write_all(AGENT_GREETING.as_bytes())?;
        to.flush()?;
    }
    let (hear, heard) = channel();
    std::thread::spawn({
        let hear = hear.clone();
        move || read_frames(from, &hear)
    });
    Agent { within, directory, to, hear, command: None, streams: 0, follower: None, attached: None }.serve(&heard);
    Ok(())
}

type SharedOutput = Arc<Mutex<Box<dyn Write + Send>>>;

fn read_frames(mut from: impl Read, hear: &Sender<AgentEvent>) {
    while let Ok(Some(frame)) = Frame::read(&mut from) {
        if hear.send(AgentEvent::Frame(frame)).is_err() {
            return;
        }
    }
    let _ = hear.send(AgentEvent::InputEnd);
}

fn send(to: &SharedOutput, frame: &Frame) -> bool {
    to.lock().is_ok_and(|mut to| frame.write(&mut *to).is_ok())
}

struct Agent {
    /// The parent of its directory.
    within: PathBuf,
    directory: AgentDirectory,
    to: SharedOutput,
    hear: Sender<AgentEvent>,
    command: Option<Child>,
    /// The number of open output streams of the command.
    streams: u32,
    /// The followed directory; a thread reads it until it is taken.
    follower: Option<SharedFollower>,
    /// The detached command of this connection, if any.
    attached: Option<AttachedCommand>,
}

/// A detached command, and the parts of its output that the host has.
struct AttachedCommand {
    place: CommandDirectory,
    lease_s: u64,
    /// Bytes of its output and error output.
    heard: [u64; 2],
    /// Files: name, length and hash.
    has: Vec<(String, u64, String)>,
    /// Its keeper and its first process, once it is running.
    processes: Option<(u32, u32)>,
}

/// A followed directory, shared with the thread that follows it.
type SharedFollower = Arc<Mutex<Option<Follower>>>;

impl Agent {
    fn serve(&mut self, heard: &Receiver<AgentEvent>) {
        let mut missed = 0;
        loop {
            let goes_on = match heard.recv_timeout(BEAT_INTERVAL) {
                Ok(AgentEvent::Frame(frame)) => {
                    missed = 0;
                    self.answer(frame)
                }
                Ok(AgentEvent::OutputEnd) => {
                    self.streams = self.streams.saturating_sub(1);
                    self.streams > 0 || self.ended()
                }
                Ok(AgentEvent::InputEnd) | Err(RecvTimeoutError::Disconnected) => false,
                Err(RecvTimeoutError::Timeout) => {
                    missed += 1;
                    missed <= MISSED_BEATS_MAX
                }
            };
            if !goes_on {
                return self.end();
            }
        }
    }

    /// Handles a frame; returns whether to continue.
    fn answer(&mut self, frame: Frame) -> bool {
        match frame {
            Frame::Part(name, bytes) => match self.append_part(&name, &bytes) {
                Ok(()) => true,
                Err(error) => send(&self.to, &Frame::Done(Err(format!("cannot write {name} on the device: {error}")))),
            },
            Frame::Start(argv) => match self.start(&argv) {
                Ok(()) => true,
                Err(error) => {
                    let program = argv.first().map_or("", String::as_str);
                    send(&self.to, &Frame::Err(format!("cannot start {program}: {error}\n").into_bytes()))
                        && send(&self.to, &Frame::Exit(127))
                }
            },
            Frame::Signal(number) => {
                self.signal(number.into());
                true
            }
            Frame::Follow(words) => {
                self.follow(&words);
                true
            }
            Frame::Ping(number) => {
                if let Some((keeper, _)) = self.attached.as_ref().and_then(|a| a.processes) {
                    let _ = detached::signal(keeper, libc::SIGUSR1);
                }
                send(&self.to, &Frame::Pong(number, now_ns()))
            }
            Frame::Ask(question) => {
                let about = self.about_detached(&question).map(|answer| answer.map_err(RunError::Failed));
                let mut answer = about.unwrap_or_else(|| answer_question(&question));
                if answer.as_ref().is_ok_and(|text| text.len() >= FRAME_BYTES_MAX) {
                    answer = Err(RunError::BeyondLimits("the file is too long".into()));
                }
                send(&self.to, &Frame::Answer(answer))
            }
            // Only the agent sends these.
            Frame::Out(_)
            | Frame::Err(_)
            | Frame::Exit(_)
            | Frame::Done(_)
            | Frame::Pong(..)
            | Frame::Answer(_)
            | Frame::Piece(..) => false,
        }
    }

    fn append_part(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = path_below(&self.command_directory(), name).ok_or(io::ErrorKind::InvalidInput)?;
        OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(bytes)
    }

    /// The current directory of the command.
    fn command_directory(&self) -> PathBuf {
        self.attached.as_ref().map_or_else(|| self.directory.0.clone(), |attached| attached.place.work())
    }

    /// Answers requests about a detached command; `None` for any other request.
    fn about_detached(&mut self, question: &[String]) -> Option<Result<String, String>> {
        let words: Vec<&str> = question.iter().map(String::as_str).collect();
        let shelf = DetachedCommands::in_directory(&self.within);
        let text = |error: detached::Error| error.to_string();
        let missing = || Err::<String, _>("no detached command was named".to_owned());
        Some(match words[..] {
            ["attach", name, lease_s] => shelf.create(name).map_err(text).map(|place| {
                let lease_s = lease_s.parse().unwrap_or(0);
                self.attached =
                    Some(AttachedCommand { place, lease_s, heard: [0; 2], has: Vec::new(), processes: None });
                State::Prepared.name().to_owned()
            }),
            ["reattach", name, lease_s, out, err] => self.reattach(name, lease_s, [out, err]),
            ["has", ref files @ ..] => match &mut self.attached {
                Some(attached) => {
                    attached.has = files
                        .chunks_exact(3)
                        .filter_map(|f| Some((f[0].to_owned(), f[1].parse().ok()?, f[2].to_owned())))
                        .collect();
                    Ok(String::new())
                }
                None => missing(),
            },
            ["discard"] => match self.attached.take() {
                Some(attached) => {
                    let name = attached.place.path().file_name().map(|n| n.to_string_lossy().into_owned());
                    shelf.remove(&name.unwrap_or_default()).map(|()| String::new()).map_err(text)
                }
                None => missing(),
            },
            _ => return None,
        })
    }

    fn reattach(&mut self, name: &str, lease_s: &str, heard: [&str; 2]) -> Result<String, String> {
        let place = DetachedCommands::in_directory(&self.within).place(name).map_err(|e| e.to_string())?;
        if !place.path().is_dir() {
            return Err(detached::Error::Missing(name.into()).to_string());
        }
        let state = place.state();
        if state == State::Prepared {
            // Files may be incomplete; all of them are sent again.
            fs::remove_dir_all(place.work()).and_then(|()| fs::create_dir(place.work())).map_err(|e| e.to_string())?;
        }
        let processes = place.about().map_err(|e| e.to_string())?.map(|about| (about.keeper, about.command));
        let running = state == State::Running;
        let heard = heard.map(|n| n.parse().unwrap_or(0));
        let processes = processes.filter(|_| running);
        let lease_s = lease_s.parse().unwrap_or(0);
        self.attached = Some(AttachedCommand { place, lease_s, heard, has: Vec::new(), processes });
        Ok(state.name().into())
    }

    /// Starts a keeper, which starts the command, and reports the result.
    fn start_detached(&mut self, argv: &[String]) -> io::Result<()> {
        let Some(attached) = &mut self.attached else { return Ok(()) };
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("agent")
            .arg(attached.place.path())
            .args(["--keep", &attached.lease_s.to_string(), "--"])
            .args(argv);
        command.env(detached::DIRECTORY_VARIABLE, &self.within).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec there is only a system call without pointers.
        unsafe {
            command.pre_exec(|| match libc::setsid() {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let mut keeper = command.spawn()?;
        let begun = Instant::now();
        while begun.elapsed() < KEEPER_START_TIMEOUT {
            if let Ok(Some(about)) = attached.place.about() {
                attached.processes = Some((about.keeper, about.command));
                // Waited for, so that its number is free as soon as it has exited.
                std::thread::spawn(move || keeper.wait());
                self.watch();
                return Ok(());
            }
            if let Ok(Some(status)) = keeper.try_wait() {
                return Err(io::Error::other(format!("its keeper ended ({status})")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = keeper.kill();
        let _ = keeper.wait();
        Err(io::Error::other("its keeper did not start it in time"))
    }

    /// Sends the output and files of the detached command, until it has ended.
    fn watch(&mut self) {
        let Some(attached) = &self.attached else { return };
        let (to, place, mut heard) = (self.to.clone(), attached.place.clone(), attached.heard);
        let mut follower = self.follower.take().and_then(|following| following.lock().ok()?.take());
        if let Some(follower) = &mut follower {
            follower.skip_known(&attached.has);
        }
        std::thread::spawn(move || {
            loop {
                // The state is read before the data: so once it has ended, all data is seen.
                let state = place.state();
                let sent = follower.as_mut().is_none_or(|follower| follower.send_new(&mut |frame| send(&to, frame)))
                    && send_tail(&place, "out", &mut heard[0], Frame::Out, &to)
                    && send_tail(&place, "err", &mut heard[1], Frame::Err, &to);
                let exit = match state {
                    State::Ended(status) => Some(status.exit),
                    State::Vanished => Some(VANISHED_STATUS),
                    State::Running | State::Prepared => None,
                };
                if let Some(exit) = exit.filter(|_| sent) {
                    send(&to, &Frame::Exit(exit));
                }
                if exit.is_some() || !sent {
                    return;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        });
    }

    fn start(&mut self, argv: &[String]) -> io::Result<()> {
        if self.attached.is_some() {
            return self.start_detached(argv);
        }
        if self.command.is_some() {
            return Err(io::Error::other("another command is running"));
        }
        let (program, words) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        // Android has no /tmp; and the command's temporary files are removed with the directory.
        command.args(words).current_dir(&self.directory.0).env("TMPDIR", &self.directory.0).process_group(0);
        command.env(detached::DIRECTORY_VARIABLE, &self.within);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: between fork and exec there is only a system call without pointers.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        let mut child = command.spawn()?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        self.streams = 2;
        let (to, hear) = (self.to.clone(), self.hear.clone());
        std::thread::spawn(move || forward_output(out, Frame::Out, &to, &hear));
        let (to, hear) = (self.to.clone(), self.hear.clone());
        std::thread::spawn(move || forward_output(err, Frame::Err, &to, &hear));
        self.command = Some(child);
        Ok(())
    }

    fn follow(&mut self, words: &[String]) {
        let following: SharedFollower = Arc::new(Mutex::new(Follower::new(&self.command_directory(), words)));
        self.follower = Some(following.clone());
        if let Some(attached) = &self.attached {
            // A command that has not started yet is followed later.
            if attached.place.state() != State::Prepared {
                self.watch();
            }
            return;
        }
        let to = self.to.clone();
        std::thread::spawn(move || {
            let sent = |following: &SharedFollower| {
                let mut following = following.lock().ok()?;
                following.as_mut()?.send_new(&mut |frame| send(&to, frame)).then_some(())
            };
            while sent(&following).is_some() {
                std::thread::sleep(POLL_INTERVAL);
            }
        });
    }

    /// The command's outputs are closed: reports its end.
    fn ended(&mut self) -> bool {
        let Some(mut child) = self.command.take() else { return true };
        let status = child.wait();
        let last = self.follower.take().and_then(|following| following.lock().ok()?.take());
        if let Some(mut last) = last {
            last.send_new(&mut |frame| send(&self.to, frame));
        }
        // Its remaining processes have no connection any more.
        signal_group(&child, libc::SIGKILL);
        send(&self.to, &Frame::Exit(status.map_or(127, child::signed_status)))
    }

    fn signal(&self, number: i32) {
        if let Some(child) = &self.command {
            signal_group(child, number);
        }
        if let Some((_, command)) = self.attached.as_ref().and_then(|a| a.processes) {
            let _ = detached::signal_group(command, number);
        }
    }

    fn end(&mut self) {
        // A detached command continues; one that was never started is removed.
        if let Some(attached) = self.attached.take().filter(|a| a.place.state() == State::Prepared) {
            let _ = fs::remove_dir_all(attached.place.path());
        }
        let Some(mut child) = self.command.take() else { return };
        signal_group(&child, libc::SIGTERM);
        // The result is checked below.
        let _ = child::wait_timeout(&mut child, EXIT_TIMEOUT);
        signal_group(&child, libc::SIGKILL);
        let _ = child.wait();
    }
}

/// Sends the part of a file that was not sent yet; false if the connection is closed.
fn send_tail(
    place: &CommandDirectory,
    name: &str,
    heard: &mut u64,
    frame: fn(Vec<u8>) -> Frame,
    to: &SharedOutput,
) -> bool {
    let Ok(mut file) = fs::File::open(place.file(name)) else { return true };
    if file.seek(SeekFrom::Start(*heard)).is_err() {
        return true;
    }
    let mut buffer = vec![0; 1 << 16];
    while let Some(n) = read_some(&mut file, &mut buffer).ok().filter(|n| *n > 0) {
        if !send(to, &frame(buffer[..n].to_vec())) {
            return false;
        }
        *heard += n as u64;
    }
    true
}

fn forward_output(from: Option<impl Read>, frame: fn(Vec<u8>) -> Frame, to: &SharedOutput, hear: &Sender<AgentEvent>) {
    let mut buffer = vec![0; 1 << 16];
    let mut from = from;
    while let Some(n) = from.as_mut().and_then(|f| read_some(f, &mut buffer).ok()).filter(|n| *n > 0) {
        if !send(to, &frame(buffer[..n].to_vec())) {
            break;
        }
    }
    let _ = hear.send(AgentEvent::OutputEnd);
}

/// Sends a signal to the command's process group, whose leader is the command.
fn signal_group(child: &Child, number: i32) {
    let Ok(group) = i32::try_from(child.id()) else { return };
    // SAFETY: a plain system call; the group was created by this process, and an invalid number is rejected.
    unsafe { libc::kill(-group, number) };
}

pub(super) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Answers a request about this machine.
fn answer_question(question: &[String]) -> Result<String, RunError> {
    let words: Vec<&str> = question.iter().map(String::as_str).collect();
    let answer = match words[..] {
        ["read", path] => Local.read(path),
        ["list", path] => Local.list(path).map(|names| names.join("\n")),
        ["canonical", path] => Local.canonical(path),
        ["identity", path] => {
            Local.identity(path).map(|(dev, inode)| format!("{} {} {inode}", dev.major(), dev.minor()))
        }
        ["run", ref argv @ ..] => return Local.run(argv),
        _ => Err("this version of Fathom does not know the request".into()),
    };
    answer.map_err(RunError::Failed)
}

/// The agent's own directory, accessible only to its user, and removed with it. It is locked (flock) like the directories of
/// benchmarks: a run in the parent directory removes the leftovers of killed runs, which are unlocked directories with such names.
struct AgentDirectory(PathBuf, #[expect(dead_code, reason = "held until the end")] Option<fs::File>);

impl AgentDirectory {
    fn create(within: &Path) -> io::Result<Self> {
        for entry in fs::read_dir(within).into_iter().flatten().flatten() {
            remove_if_dead(&entry.path());
        }
        let path = within.join(format!("fathom-run-{}", std::process::id()));
        // A directory of that name belongs to a process that no longer exists.
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        // On a file system without such locks it is not locked, but there nothing is removed either.
        let lock = fs::File::open(&path).ok().filter(|lock| lock.try_lock().is_ok());
        Ok(Self(path, lock))
    }
}

impl Drop for AgentDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the directory of an agent that was killed.
fn remove_if_dead(path: &Path) {
    let name = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix("fathom-run-"));
    let Some(id) = name.and_then(|id| id.parse::<u32>().ok()) else { return };
    if !Path::new(&format!("/proc/{id}")).exists() {
        let _ = fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Benchmarks remove unlocked directories with such names (`experiment`'s scratch directories), in any directory that they measure.
    #[test]
    fn agent_directory_is_locked_until_removed() {
        let within = tempfile::tempdir().unwrap();
        let dead = within.path().join("fathom-run-4194305");
        fs::create_dir(&dead).unwrap();
        let directory = AgentDirectory::create(within.path()).unwrap();
        let path = directory.0.clone();
        assert!(fs::File::open(&path).unwrap().try_lock().is_err() && !dead.exists());
        drop(directory);
        assert!(!path.exists());
    }
}
