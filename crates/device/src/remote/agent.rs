//! The far side: started on a device by [`super::Link`], it does what the frames on its input say, and ends, with all that it
//! started and its folder, when they end.

use super::follow::Follower;
use super::frame::{Frame, GREETING, MOST, below};
use crate::{Local, Reader};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A [`super::Link`] says something at least this often.
pub(super) const BEAT: Duration = Duration::from_secs(5);
/// Beats that may be missed. Counted, not timed: a machine that slept wakes to an old clock and missed nothing.
const MISSED: u32 = 6;
/// How long a command may take to end when asked to.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How often a folder is looked at that is followed.
const LOOK: Duration = Duration::from_millis(300);

/// What the agent waits for.
enum Heard {
    Frame(Frame),
    /// There will be no more.
    Silence,
    /// The command's output ended.
    Quiet,
}

/// Takes part in the conversation until it ends; `folder` is where its own folder is made.
///
/// # Errors
/// Its folder cannot be made.
pub fn run(from: impl Read + Send + 'static, to: impl Write + Send + 'static, folder: &Path) -> io::Result<()> {
    let folder = Folder::make(folder)?;
    let to: Voice = Arc::new(Mutex::new(Box::new(to)));
    if let Ok(mut to) = to.lock() {
        to.write_all(GREETING.as_bytes())?;
        to.flush()?;
    }
    let (hear, heard) = channel();
    std::thread::spawn({
        let hear = hear.clone();
        move || listen(from, &hear)
    });
    Agent { folder, to, hear, command: None, streams: 0, follower: None }.serve(&heard);
    Ok(())
}

type Voice = Arc<Mutex<Box<dyn Write + Send>>>;

fn listen(mut from: impl Read, hear: &Sender<Heard>) {
    while let Ok(Some(frame)) = Frame::read(&mut from) {
        if hear.send(Heard::Frame(frame)).is_err() {
            return;
        }
    }
    let _ = hear.send(Heard::Silence);
}

fn say(to: &Voice, frame: &Frame) -> bool {
    to.lock().is_ok_and(|mut to| frame.write(&mut *to).is_ok())
}

struct Agent {
    folder: Folder,
    to: Voice,
    hear: Sender<Heard>,
    command: Option<Child>,
    /// Of its outputs, how many are open.
    streams: u32,
    /// What is followed; the thread looks at it until it is taken.
    follower: Option<Following>,
}

/// A folder that is followed, shared with the thread that does.
type Following = Arc<Mutex<Option<Follower>>>;

impl Agent {
    fn serve(&mut self, heard: &Receiver<Heard>) {
        let mut missed = 0;
        loop {
            let goes_on = match heard.recv_timeout(BEAT) {
                Ok(Heard::Frame(frame)) => {
                    missed = 0;
                    self.answer(frame)
                }
                Ok(Heard::Quiet) => {
                    self.streams = self.streams.saturating_sub(1);
                    self.streams > 0 || self.ended()
                }
                Ok(Heard::Silence) | Err(RecvTimeoutError::Disconnected) => false,
                Err(RecvTimeoutError::Timeout) => {
                    missed += 1;
                    missed <= MISSED
                }
            };
            if !goes_on {
                return self.end();
            }
        }
    }

    /// Says whether to go on.
    fn answer(&mut self, frame: Frame) -> bool {
        match frame {
            Frame::Part(name, bytes) => match self.keep(&name, &bytes) {
                Ok(()) => true,
                Err(error) => say(&self.to, &Frame::Done(Err(format!("cannot write {name} there: {error}")))),
            },
            Frame::Start(argv) => match self.start(&argv) {
                Ok(()) => true,
                Err(error) => {
                    let program = argv.first().map_or("", String::as_str);
                    say(&self.to, &Frame::Err(format!("cannot start {program}: {error}\n").into_bytes()))
                        && say(&self.to, &Frame::Exit(127))
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
            Frame::Ping(number) => say(&self.to, &Frame::Pong(number, now_ns())),
            Frame::Ask(question) => {
                let mut answer = reply(&question);
                if answer.as_ref().is_ok_and(|text| text.len() >= MOST) {
                    answer = Err("the file is too long".into());
                }
                say(&self.to, &Frame::Answer(answer))
            }
            // These are ours to say.
            Frame::Out(_)
            | Frame::Err(_)
            | Frame::Exit(_)
            | Frame::Done(_)
            | Frame::Pong(..)
            | Frame::Answer(_)
            | Frame::Piece(..) => false,
        }
    }

    fn keep(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = below(&self.folder.0, name).ok_or(io::ErrorKind::InvalidInput)?;
        OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(bytes)
    }

    fn start(&mut self, argv: &[String]) -> io::Result<()> {
        if self.command.is_some() {
            return Err(io::Error::other("another command is running"));
        }
        let (program, words) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        // Android has no /tmp; and what a command leaves there is to go with it.
        command.args(words).current_dir(&self.folder.0).env("TMPDIR", &self.folder.0).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: between fork and exec only a system call without pointers.
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
        std::thread::spawn(move || hand_on(out, Frame::Out, &to, &hear));
        let (to, hear) = (self.to.clone(), self.hear.clone());
        std::thread::spawn(move || hand_on(err, Frame::Err, &to, &hear));
        self.command = Some(child);
        Ok(())
    }

    fn follow(&mut self, words: &[String]) {
        let following: Following = Arc::new(Mutex::new(Follower::new(&self.folder.0, words)));
        self.follower = Some(following.clone());
        let to = self.to.clone();
        std::thread::spawn(move || {
            let heard = |following: &Following| {
                let mut following = following.lock().ok()?;
                following.as_mut()?.look(&mut |frame| say(&to, frame)).then_some(())
            };
            while heard(&following).is_some() {
                std::thread::sleep(LOOK);
            }
        });
    }

    /// Its outputs are closed: tells how it ended.
    fn ended(&mut self) -> bool {
        let Some(mut child) = self.command.take() else { return true };
        let status = child.wait();
        let last = self.follower.take().and_then(|following| following.lock().ok()?.take());
        if let Some(mut last) = last {
            last.look(&mut |frame| say(&self.to, frame));
        }
        // What it started and left has nobody to talk to.
        signal_group(&child, libc::SIGKILL);
        say(&self.to, &Frame::Exit(status.map_or(127, |s| status_of(&s))))
    }

    fn signal(&self, number: i32) {
        if let Some(child) = &self.command {
            signal_group(child, number);
        }
    }

    fn end(&mut self) {
        let Some(mut child) = self.command.take() else { return };
        signal_group(&child, libc::SIGTERM);
        // Its end is looked at below.
        let _ = child::wait_timeout(&mut child, LAST_WORDS);
        signal_group(&child, libc::SIGKILL);
        let _ = child.wait();
    }
}

fn hand_on(from: Option<impl Read>, frame: fn(Vec<u8>) -> Frame, to: &Voice, hear: &Sender<Heard>) {
    let mut room = vec![0; 1 << 16];
    let mut from = from;
    while let Some(n) = from.as_mut().and_then(|f| f.read(&mut room).ok()).filter(|n| *n > 0) {
        if !say(to, &frame(room[..n].to_vec())) {
            break;
        }
    }
    let _ = hear.send(Heard::Quiet);
}

fn status_of(status: &ExitStatus) -> i32 {
    status.code().or(status.signal().map(|s| -s)).unwrap_or(127)
}

/// The command is the first of its group.
fn signal_group(child: &Child, number: i32) {
    let Ok(group) = i32::try_from(child.id()) else { return };
    // SAFETY: a plain system call; the group is one that this process made, and a number that is none is refused.
    unsafe { libc::kill(-group, number) };
}

pub(super) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The answer of this machine.
fn reply(question: &[String]) -> Result<String, String> {
    let words: Vec<&str> = question.iter().map(String::as_str).collect();
    match words[..] {
        ["read", path] => Local.read(path),
        ["list", path] => Local.list(path).map(|names| names.join("\n")),
        ["canonical", path] => Local.canonical(path),
        ["identity", path] => {
            Local.identity(path).map(|(dev, inode)| format!("{} {} {inode}", dev.major(), dev.minor()))
        }
        ["run", ref argv @ ..] => Local.run(argv),
        _ => Err("this version of Fathom does not know the request".into()),
    }
}

/// The agent's own folder, only its user's, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn make(within: &Path) -> io::Result<Self> {
        for entry in fs::read_dir(within).into_iter().flatten().flatten() {
            sweep(&entry.path());
        }
        let path = within.join(format!("fathom-run-{}", std::process::id()));
        // One of that name is of a process that is gone.
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the folder of an agent that was killed and could not.
fn sweep(path: &Path) {
    let name = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix("fathom-run-"));
    let Some(id) = name.and_then(|id| id.parse::<u32>().ok()) else { return };
    if !Path::new(&format!("/proc/{id}")).exists() {
        let _ = fs::remove_dir_all(path);
    }
}
