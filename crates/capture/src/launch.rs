//! Starts the command to be recorded, and holds it back until the probes are attached.
//!
//! The child is created first, because the probes need its number, and must not run a single instruction of the command
//! before they are attached. So it waits, as a fork of the recorder, at a gate: a pipe from which it reads one byte.
//! `std::process::Command` cannot do that, since its `spawn` waits for the exec that the gate holds back; hence a manual
//! fork, whose child calls only what is safe after a fork of a process with threads (signal-safety(7)): everything that
//! needs memory is prepared before.
//!
//! **If one dies first.** Only the recorder holds the write end of the gate. If it dies, the child reads the end of the
//! pipe and exits with 125 without having run the command: a command never runs unrecorded behind its user's back. If the
//! command cannot be run, the child reports the reason through a second pipe, which a successful exec closes.
//!
//! **The command's user.** Recording needs root and is mostly called through sudo, but the command belongs to the calling
//! user: it runs with their identity and home, so that the files it creates are theirs. Its groups are those in /etc/group;
//! groups known only to a directory service are missed.
//!
//! **Ctrl-C.** The child stays in the process group and terminal of the recorder, so the terminal interrupts both. Nothing
//! here kills the command once it runs, unless the caller asks for a signal.

mod follow;
mod traced;

use crate::inside::error::ImplantError;
use crate::marks;
pub use follow::{ExecStop, Follower};
use model::text::{ShownPath as _, shown};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char, c_int};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
pub use traced::LingeringProcess;
pub(crate) use traced::Request;
use traced::{ExecProgress, TracedProcess};

/// The exit status of a child whose recorder had died before it could run the command.
pub const NOT_RUN_STATUS: i32 = 125;

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no such program.
    #[error("{}: command not found", shown(.0))]
    NotFound(String),
    /// It exists, but cannot be run.
    #[error("{}: cannot be run: {why}", shown(program))]
    NotExecutable { program: String, why: String },
    /// The user to run it as is not known.
    #[error("cannot run the command as the user who called sudo: {0}; --as-root runs it as root")]
    User(String),
    /// The system refused something else.
    #[error("cannot start the command: {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl LaunchError {
    /// Returns the exit status that a shell would give: 127 not found, 126 cannot be run, else 125.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::NotFound(_) => 127,
            Self::NotExecutable { .. } => 126,
            Self::User(_) | Self::System { .. } => NOT_RUN_STATUS,
        }
    }

    fn system(what: &'static str) -> Self {
        Self::System { what, source: io::Error::last_os_error() }
    }
}

/// Finds a program like a shell: by its path if it has a slash, else in the directories of `path` (the value of PATH).
///
/// # Errors
/// [`LaunchError::NotFound`], or [`LaunchError::NotExecutable`] if nothing that was found can be run.
pub fn resolve_program(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, LaunchError> {
    let shown = || name.to_string_lossy().into_owned();
    let refuse = |why: &str| LaunchError::NotExecutable { program: shown(), why: why.into() };
    let check = |path: &Path| match std::fs::metadata(path) {
        Ok(about) if about.is_dir() => Err(refuse("is a directory")),
        Ok(about) if about.permissions().mode() & 0o111 == 0 => Err(refuse("not executable")),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(refuse("permission denied")),
        Err(_) => Err(LaunchError::NotFound(shown())),
    };
    if name.is_empty() {
        return Err(LaunchError::NotFound(shown()));
    }
    if name.as_bytes().contains(&b'/') {
        return check(Path::new(name)).map(|()| PathBuf::from(name));
    }
    let mut error = LaunchError::NotFound(shown());
    for directory in std::env::split_paths(path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"))) {
        let candidate = if directory.as_os_str().is_empty() { Path::new(".").join(name) } else { directory.join(name) };
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(e @ LaunchError::NotExecutable { .. }) => error = e,
            Err(_) => {}
        }
    }
    Err(error)
}

/// The user to run the command as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// Name; the number if it has none.
    pub name: String,
    pub home: PathBuf,
    pub shell: Option<PathBuf>,
}

impl User {
    /// Returns the user who called sudo; none if sudo was not called, or not to become root.
    ///
    /// # Errors
    /// sudo's variables are invalid.
    pub fn sudo_caller() -> Result<Option<Self>, LaunchError> {
        // SAFETY: takes no arguments and has no effect.
        if unsafe { libc::geteuid() } != 0 {
            return Ok(None);
        }
        let (Some(uid), Some(gid)) = (std::env::var_os("SUDO_UID"), std::env::var_os("SUDO_GID")) else {
            return Ok(None);
        };
        let number = |name: &str, value: &OsStr| {
            let value = value.to_str().and_then(|v| v.parse().ok());
            value.ok_or_else(|| LaunchError::User(format!("{name} is not a number")))
        };
        let (uid, gid) = (number("SUDO_UID", &uid)?, number("SUDO_GID", &gid)?);
        // Without these files, the numbers are still known.
        let read =
            |path| std::fs::read(path).map_or_else(|_| String::new(), |b| String::from_utf8_lossy(&b).into_owned());
        Ok((uid != 0).then(|| Self::from_files(uid, gid, &read("/etc/passwd"), &read("/etc/group"))))
    }

    /// Returns the user with these numbers, from the texts of /etc/passwd and /etc/group (passwd(5), group(5)).
    pub fn from_files(uid: u32, gid: u32, passwd: &str, group: &str) -> Self {
        let entry =
            passwd.lines().map(|l| l.split(':').collect::<Vec<_>>()).find(|f| f.len() >= 7 && f[2].parse() == Ok(uid));
        let name = entry.as_ref().map_or_else(|| uid.to_string(), |f| f[0].to_owned());
        let mut groups = vec![gid];
        for line in group.lines() {
            let fields: Vec<&str> = line.split(':').collect();
            if let [_, _, number, members] = fields[..]
                && members.split(',').any(|m| m == name)
                && let Ok(number) = number.parse()
                && !groups.contains(&number)
            {
                groups.push(number);
            }
        }
        let home = entry.as_ref().map_or("/", |f| f[5]).into();
        let shell = entry.as_ref().filter(|f| !f[6].is_empty()).map(|f| f[6].into());
        Self { uid, gid, groups, name, home, shell }
    }
}

/// A command that has not been started yet.
#[derive(Debug)]
pub struct Command<'a> {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: BTreeMap<OsString, OsString>,
    user: Option<User>,
    marks: Option<BorrowedFd<'a>>,
}

impl<'a> Command<'a> {
    /// Creates the command with these words, searched in PATH, with the recorder's environment and identity.
    pub fn new(words: &[OsString]) -> Result<Self, LaunchError> {
        let name = words.first().ok_or_else(|| LaunchError::NotFound(String::new()))?;
        let environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let program = resolve_program(name, environment.get(OsStr::new("PATH")).map(OsString::as_os_str))?;
        Ok(Self { program, arguments: words.to_vec(), environment, user: None, marks: None })
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it as this user, with their HOME, USER, LOGNAME and SHELL, and without what sudo added.
    pub fn as_user(mut self, user: User) -> Self {
        for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND"] {
            self.environment.remove(OsStr::new(name));
        }
        let mut set = |name: &str, value: &OsStr| self.environment.insert(name.into(), value.into());
        set("HOME", user.home.as_os_str());
        set("USER", OsStr::new(&user.name));
        set("LOGNAME", OsStr::new(&user.name));
        if let Some(shell) = &user.shell {
            set("SHELL", shell.as_os_str());
        }
        self.user = Some(user);
        self
    }

    pub fn env(mut self, name: &str, value: &OsStr) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Passes it the memory for its marks, named in its environment.
    pub fn marks(mut self, marks: BorrowedFd<'a>) -> Self {
        let number = marks.as_raw_fd().to_string();
        self.environment.insert(marks::FD_VARIABLE.into(), number.into());
        self.marks = Some(marks);
        self
    }

    /// Creates the child, which waits at the gate until [`Child::release`].
    ///
    /// # Errors
    /// The system has no process or descriptor left, or a word holds a zero byte.
    pub fn spawn(self) -> Result<Child, LaunchError> {
        let plan = ChildPlan::new(&self)?;
        // Concurrent launches must know each other's gates; see `close_what_exec_would_close`.
        let one_at_a_time = FORK_LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (gate_out, gate_in) = pipe()?;
        let (report_out, report_in) = pipe()?;
        let ours: Vec<RawFd> = [&gate_out, &report_in].map(AsRawFd::as_raw_fd).into_iter().chain(plan.marks).collect();
        let others: Vec<RawFd> = open_descriptors().into_iter().filter(|fd| !ours.contains(fd)).collect();

        // A handler of the recorder must not run in the child: signals stay blocked until the child has reset the handlers.
        let (mut all, mut before) = (empty_set(), empty_set());
        // SAFETY: both sets are valid for the duration of the calls.
        unsafe {
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        }
        // SAFETY: the child only calls `ChildPlan::run`, which is restricted to what is safe after a fork.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: this is the child of a fork, and all descriptors are open.
            unsafe { plan.run(gate_out.as_raw_fd(), report_in.as_raw_fd(), &others) }
        }
        let error = LaunchError::system("fork");
        // SAFETY: the set was filled in by the call above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
        drop(one_at_a_time);
        if pid < 0 {
            return Err(error);
        }
        let program = self.program.to_string_lossy().into_owned();
        Ok(Child { pid, program, gate: Some(gate_in), report: report_out, exit: None })
    }
}

static FORK_LOCK: Mutex<()> = Mutex::new(());

fn empty_set() -> libc::sigset_t {
    // SAFETY: a signal set is a plain array of integers, for which zeros are valid (the empty set).
    unsafe { std::mem::zeroed() }
}

/// Creates a pipe that no exec inherits: (read end, write end).
fn pipe() -> Result<(File, File), LaunchError> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(LaunchError::system("pipe"));
    }
    // SAFETY: both descriptors are new and owned by nothing else.
    Ok(unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) })
}

/// Returns the descriptors above the standard three.
fn open_descriptors() -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter(|fd| *fd > 2).collect()
}

/// The steps of the child that can fail, by number; the exec is the last.
const STEP_NAMES: [&str; 3] = ["setting its groups", "setting its group", "setting its user"];
const EXEC_STEP: u8 = STEP_NAMES.len() as u8;
const GATE_OPEN: u8 = 1;

/// Everything that the child needs, created before the fork.
struct ChildPlan {
    program: CString,
    _words: Vec<CString>,
    arguments: Vec<*const c_char>,
    /// For a text without `#!`, which the kernel refuses and shells run as a script of their own.
    by_shell: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    groups: Vec<libc::gid_t>,
    identity: Option<(libc::gid_t, libc::uid_t)>,
    marks: Option<RawFd>,
    abandoned: Vec<u8>,
}

const SHELL_PATH: &std::ffi::CStr = c"/bin/sh";

impl ChildPlan {
    fn new(command: &Command<'_>) -> Result<Self, LaunchError> {
        let text = |bytes: Vec<u8>| {
            CString::new(bytes).map_err(|_| LaunchError::NotExecutable {
                program: command.program.to_string_lossy().into_owned(),
                why: "an argument or environment variable of the command contains a NUL byte".into(),
            })
        };
        let program = text(command.program.clone().into_os_string().into_vec())?;
        let mut words = Vec::new();
        for word in &command.arguments {
            words.push(text(word.clone().into_vec())?);
        }
        for (name, value) in &command.environment {
            words.push(text([name.as_bytes(), b"=", value.as_bytes()].concat())?);
        }
        // The pointers stay valid: the texts are on the heap and live as long as the plan.
        let pointers: Vec<*const c_char> = words.iter().map(|w| w.as_ptr()).collect();
        let (arguments, environment) = pointers.split_at(command.arguments.len());
        let ended = |list: &[*const c_char]| [list, &[std::ptr::null()]].concat();
        let by_shell = [&[SHELL_PATH.as_ptr(), program.as_ptr()], arguments.get(1..).unwrap_or_default()].concat();
        let name = command.program.shown();
        Ok(Self {
            arguments: ended(arguments),
            by_shell: ended(&by_shell),
            environment: ended(environment),
            groups: command.user.as_ref().map_or_else(Vec::new, |u| u.groups.clone()),
            identity: command.user.as_ref().map(|u| (u.gid, u.uid)),
            marks: command.marks.map(|fd| fd.as_raw_fd()),
            abandoned: format!("fathom: the recorder ended before {name} was started; it was not run\n").into_bytes(),
            program,
            _words: words,
        })
    }

    /// Runs the child until the exec.
    ///
    /// # Safety
    /// Only in a child of fork. Calls only async-signal-safe functions and touches only the plan's memory.
    unsafe fn run(&self, gate: RawFd, report: RawFd, others: &[RawFd]) -> ! {
        // SAFETY: plain system calls on descriptors and on memory that the plan owns.
        unsafe {
            close_what_exec_would_close(others);
            default_signals();
            let mut byte = 0u8;
            let read = loop {
                let n = libc::read(gate, (&raw mut byte).cast(), 1);
                if n >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                    break n;
                }
            };
            if read != 1 {
                libc::write(2, self.abandoned.as_ptr().cast(), self.abandoned.len());
                libc::_exit(NOT_RUN_STATUS);
            }
            if byte != GATE_OPEN {
                libc::_exit(NOT_RUN_STATUS);
            }
            if let Some(fd) = self.marks {
                libc::fcntl(fd, libc::F_SETFD, 0);
            }
            if let Some((gid, uid)) = self.identity {
                // In this order: a process that has given up its user may no longer change its groups.
                if libc::setgroups(self.groups.len(), self.groups.as_ptr()) < 0 {
                    report_failure(report, 0);
                }
                if libc::setgid(gid) < 0 {
                    report_failure(report, 1);
                }
                if libc::setuid(uid) < 0 {
                    report_failure(report, 2);
                }
            }
            libc::execve(self.program.as_ptr(), self.arguments.as_ptr(), self.environment.as_ptr());
            if io::Error::last_os_error().raw_os_error() == Some(libc::ENOEXEC) {
                libc::execve(SHELL_PATH.as_ptr(), self.by_shell.as_ptr(), self.environment.as_ptr());
            }
            report_failure(report, EXEC_STEP)
        }
    }
}

/// Closes now what the exec will close anyway: another launch's gate, held open here, would outlive its recorder.
///
/// # Safety
/// Only in a child of fork.
unsafe fn close_what_exec_would_close(others: &[RawFd]) {
    for fd in others {
        // SAFETY: system calls on numbers; one that is no longer open is refused.
        unsafe {
            let flags = libc::fcntl(*fd, libc::F_GETFD);
            if flags >= 0 && flags & libc::FD_CLOEXEC != 0 {
                libc::close(*fd);
            }
        }
    }
}

/// Resets every signal to its default, as the exec will, so that Ctrl-C ends a waiting child. Ignored signals stay ignored
/// (nohup), except SIGPIPE: Rust's runtime ignores it for itself.
///
/// # Safety
/// Only in a child of fork.
unsafe fn default_signals() {
    // SAFETY: the structures are plain data, valid during the calls; invalid signal numbers are refused.
    unsafe {
        for signal in 1..65 as c_int {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut action) < 0 {
                continue;
            }
            if action.sa_sigaction != libc::SIG_IGN || signal == libc::SIGPIPE {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
            }
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const EMPTY_SIGNAL_SET, std::ptr::null_mut());
    }
}

// SAFETY: a signal set is a plain array of integers, for which zeros are valid (the empty set).
static EMPTY_SIGNAL_SET: libc::sigset_t = unsafe { std::mem::zeroed() };

/// Reports which step failed and why, and exits.
///
/// # Safety
/// Only in a child of fork.
unsafe fn report_failure(report: RawFd, step: u8) -> ! {
    let number = io::Error::last_os_error().raw_os_error().unwrap_or(0).to_le_bytes();
    let message = [step, number[0], number[1], number[2], number[3]];
    // SAFETY: system calls on an open descriptor and on memory of this frame.
    unsafe {
        libc::write(report, message.as_ptr().cast(), message.len());
        libc::_exit(NOT_RUN_STATUS)
    }
}

fn died_at_gate(source: io::Error) -> LaunchError {
    LaunchError::System { what: "it exited while waiting for the probes", source }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// Returns the status that a shell would show: 128 plus the signal's number for a command that was killed.
    pub fn status(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// A child, first waiting at the gate, then running the command.
///
/// If dropped before its release, it ends without having run the command; if dropped later, it is left alone.
#[derive(Debug)]
pub struct Child {
    pid: libc::pid_t,
    program: String,
    gate: Option<File>,
    report: File,
    exit: Option<Exit>,
}

impl Child {
    /// Returns its process number, which stays the same when it becomes the command.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Lets it become the command. Returns when the exec can no longer fail, just before the program is mapped.
    ///
    /// # Errors
    /// The command could not be run: [`LaunchError::NotExecutable`], or [`LaunchError::System`] if it could not switch to
    /// its user or was killed while it waited. The child has then ended.
    pub fn release(&mut self) -> Result<(), LaunchError> {
        let Some(mut gate) = self.gate.take() else { return Ok(()) };
        let opened = gate.write_all(&[GATE_OPEN]);
        drop(gate);
        self.exec_result(opened)
    }

    /// Like [`Child::release`], with the program stopped before its first instruction, while `then` is called with its process
    /// number and may trace it. Returns its result, or why the program could not be stopped; it runs either way.
    pub fn release_stopped(
        &mut self,
        then: impl FnOnce(u32) -> Result<(), ImplantError>,
    ) -> Result<Result<(), ImplantError>, LaunchError> {
        let Some(mut gate) = self.gate.take() else {
            return Ok(Err(ImplantError::NotStopped("it was released before")));
        };
        let traced = TracedProcess::seize(self.pid);
        let opened = gate.write_all(&[GATE_OPEN]);
        drop(gate);
        let done = match traced {
            Ok(traced) => match traced.reach_exec() {
                ExecProgress::Exec(traced) => {
                    let done = then(self.pid());
                    drop(traced);
                    done
                }
                ExecProgress::Ended(status) => {
                    self.exit = Some(exit_from_status(status));
                    Err(ImplantError::NotStopped("it ended before its first instruction"))
                }
                ExecProgress::Lost(e) => Err(ImplantError::NotTraced(e)),
            },
            Err(e) => Err(ImplantError::NotTraced(e)),
        };
        self.exec_result(opened).map(|()| done)
    }

    /// Like [`Child::release`], following it from its exec on, as long as it runs programs that cannot ask about what they execute
    /// (`follow.rs`); or returns why that is not possible. `implant` loads the object into a process that its caller traces.
    pub fn release_followed(
        &mut self,
        implant: impl Fn(u32) -> Result<(), ImplantError> + Send + 'static,
    ) -> Result<Result<Follower, ImplantError>, LaunchError> {
        let follower = Follower::begin(self.pid, Box::new(implant)).map_err(ImplantError::NotTraced);
        self.release().map(|()| follower)
    }

    /// Reads what the child reports about its exec: nothing, if it has succeeded.
    fn exec_result(&mut self, opened: io::Result<()>) -> Result<(), LaunchError> {
        let mut message = Vec::new();
        let read = opened.and_then(|()| self.report.read_to_end(&mut message));
        let error = match (read, message.as_slice()) {
            (Ok(0), _) => return Ok(()),
            (Ok(_), &[step, a, b, c, d]) => self.failure_of_step(step, i32::from_le_bytes([a, b, c, d])),
            (Ok(_), _) => died_at_gate(io::Error::from(io::ErrorKind::UnexpectedEof)),
            (Err(source), _) => died_at_gate(source),
        };
        let _ = self.wait();
        Err(error)
    }

    fn failure_of_step(&self, step: u8, number: i32) -> LaunchError {
        let source = io::Error::from_raw_os_error(number);
        if step != EXEC_STEP {
            let what = STEP_NAMES.get(usize::from(step)).unwrap_or(&"an unknown step");
            return LaunchError::System { what, source };
        }
        let why = match number {
            // The file existed when it was searched.
            libc::ENOENT => "its interpreter or loader does not exist".to_owned(),
            _ => source.to_string(),
        };
        LaunchError::NotExecutable { program: self.program.clone(), why }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// Its status was already taken.
    pub fn wait(&mut self) -> io::Result<Exit> {
        loop {
            match self.poll(0) {
                Ok(Some(exit)) => return Ok(exit),
                Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
        }
    }

    /// Returns how it ended, if it has.
    ///
    /// # Errors
    /// Its status was already taken.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        self.poll(libc::WNOHANG)
    }

    fn poll(&mut self, options: c_int) -> io::Result<Option<Exit>> {
        if self.exit.is_some() {
            return Ok(self.exit);
        }
        // Stops of a traced child must be left to its tracer.
        match options & libc::WNOHANG {
            0 => traced::await_end(self.pid)?,
            _ if !traced::has_ended(self.pid) => return Ok(None),
            _ => {}
        }
        let mut status = 0;
        // SAFETY: waits for a child of this process that has not been waited for; the status is valid memory.
        match unsafe { libc::waitpid(self.pid, &raw mut status, options) } {
            0 => return Ok(None),
            n if n < 0 => return Err(io::Error::last_os_error()),
            _ => {}
        }
        self.exit = Some(exit_from_status(status));
        Ok(self.exit)
    }

    /// Sends it a signal, such as SIGTERM after the user's time limit. Does nothing if it has ended.
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        if self.try_wait()?.is_some() {
            return Ok(());
        }
        // SAFETY: a system call with numbers; the child has not been waited for, so its number is still its own.
        if unsafe { libc::kill(self.pid, signal) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(mut gate) = self.gate.take() {
            // An orderly end: the child need not complain. It exits at once, so this does not block.
            let _ = gate.write_all(&[0]);
            drop(gate);
            let _ = self.wait();
        }
    }
}

/// Meets a process that is about to execute a program, before the program's first instruction: `go` lets it continue, once it is
/// traced, `went_on` returns whether it did, and `then` is called with its process number while it is stopped. A process that
/// executes nothing is added to `linger`, to be released later.
///
/// # Errors
/// The result of `then`, or why it was not stopped; it runs either way.
pub fn stop_at_exec(
    pid: u32,
    go: impl FnOnce(),
    went_on: impl FnMut() -> bool,
    then: impl FnOnce(u32) -> Result<(), ImplantError>,
    linger: &mut Vec<LingeringProcess>,
) -> Result<(), ImplantError> {
    let traced = TracedProcess::seize_unrelated(pid.cast_signed());
    go();
    match traced.map_err(ImplantError::NotTraced)?.wait_for_exec(went_on) {
        traced::ExecOutcome::Exec(_traced) => return then(pid),
        traced::ExecOutcome::Lingers(lingering) => linger.push(lingering),
        traced::ExecOutcome::Ended => {}
    }
    Err(ImplantError::NotStopped("it did not stop at its first instruction"))
}

fn exit_from_status(status: c_int) -> Exit {
    if libc::WIFSIGNALED(status) { Exit::Signal(libc::WTERMSIG(status)) } else { Exit::Code(libc::WEXITSTATUS(status)) }
}

#[cfg(test)]
mod tests;
