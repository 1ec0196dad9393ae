//! Commands on a device that outlive the connection to it: a benchmark that continues while its connection is
//! re-established, a node that serves until it is stopped.
//!
//! Each has its own directory, `detached-UID/NAME`, next to the program: `about.json` (its description, and its processes),
//! `out` and `err` (its output), `work` (its current directory), `status.json` (its exit status; written last). A [`keeper`],
//! in its own session, waits for the command and writes them. So any later connection, even from another host, learns the
//! outcome from the directory alone. A process is distinguished from a later one with the same PID by its start time, and by
//! the boot.
//!
//! Uncertain: whether a vendor's adbd kills more than the shell's own session when a host disconnects; AOSP's does not.

pub mod keeper;
mod stop;

pub use stop::{Action, LeftCommand, StopRequest};

use super::frame::path_below;
use crate::knobs::start_ticks;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The environment variable with the directory of Fathom's files, for a command on a device.
pub const DIRECTORY_VARIABLE: &str = "FATHOM_DIRECTORY";
/// The maximum length of a name.
const NAME_BYTES_MAX: usize = 64;
/// The maximum size of a description, bytes.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;
/// How long a command may take to exit on request, before it is killed: a store is closed, an archive finished.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "`{0}` cannot be the name of a detached command: letters, digits, `.`, `-` and `_` only, {NAME_BYTES_MAX} at most"
    )]
    Name(String),
    /// There is no command with that name.
    #[error("no such detached command: `{0}`")]
    Missing(String),
    /// There is already a command with that name.
    #[error("a detached command `{0}` already exists; `fathom device stop` lists and stops it")]
    Exists(String),
    /// The command is running, so it cannot be removed.
    #[error("`{0}` is still running")]
    Running(String),
    /// The directory belongs to another user.
    #[error("{0} belongs to another user")]
    Foreign(PathBuf),
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error("{0} is damaged: {1}")]
    Damaged(PathBuf, DescriptionError),
}

/// Why a file is not a valid description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// It is not valid JSON of one.
    #[error("{0}")]
    Json(String),
    /// It has the version of another release.
    #[error("version {0} is not supported; this Fathom reads version 1")]
    Version(u32),
}

impl From<serde_json::Error> for DescriptionError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error.to_string())
    }
}

/// The description of a detached command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The version of the format: 1.
    pub version: u32,
    pub argv: Vec<String>,
    /// Seconds without a beat after which it ends; 0: it runs until it is stopped.
    pub lease_s: u64,
    /// The boot in which it was started.
    pub boot: String,
    /// Its keeper's process,
    pub keeper: u32,
    /// and its start time, in the kernel's unit.
    pub began: u64,
    /// Its own process, the leader of its process group; 0 if it could not be started.
    pub command: u32,
    /// When it was started, in seconds since 1970 by the device's clock.
    pub since_s: u64,
}

impl Description {
    /// Parses a file.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, DescriptionError> {
        let about: Self = serde_json::from_slice(bytes)?;
        match about.version {
            1 => Ok(about),
            other => Err(DescriptionError::Version(other)),
        }
    }
}

/// The exit status of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its exit status, or a negated signal number.
    pub exit: i32,
    /// What ended it, if it did not exit by itself.
    pub by: Option<EndCause>,
}

impl Status {
    /// Parses a file.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, DescriptionError> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    Lease,
    /// [`DetachedCommands::stop`].
    Stop,
}

/// The state of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Its directory exists, but it was not started.
    Prepared,
    Running,
    Ended(Status),
    /// It ended without a status: the device restarted, or its keeper was killed.
    Vanished,
}

impl State {
    /// The name in text and JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Running => "running",
            Self::Ended(_) => "ended",
            Self::Vanished => "vanished",
        }
    }
}

/// A command found on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCommand {
    pub name: String,
    /// Its description, if it was started and the description is readable.
    pub about: Option<Description>,
    pub state: State,
    /// Bytes in its `work` directory.
    pub bytes: u64,
}

/// The directory with notes about settings that Fathom has changed on a device, so that a later process can undo the changes
/// of a killed one ([`crate::knobs`]).
pub fn undo_notes(directory: &Path) -> PathBuf {
    // SAFETY: it only reads this process's user id.
    directory.join(format!("undo-{}", unsafe { libc::geteuid() }))
}

/// All detached commands of this user, on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachedCommands {
    directory: PathBuf,
}

impl DetachedCommands {
    /// The commands next to the program in `directory`.
    pub fn in_directory(directory: &Path) -> Self {
        // SAFETY: it only reads this process's user id.
        let uid = unsafe { libc::geteuid() };
        Self { directory: directory.join(format!("detached-{uid}")) }
    }

    /// The commands of this machine, in the directory given by the agent that started this process.
    pub fn from_environment() -> Self {
        Self::in_directory(&std::env::var_os(DIRECTORY_VARIABLE).map_or_else(std::env::temp_dir, PathBuf::from))
    }

    /// The place of the command with this name.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn place(&self, name: &str) -> Result<CommandDirectory, Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let good = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && name.chars().all(plain)
            && !name.starts_with(['.', '-']);
        match path_below(&self.directory, name).filter(|_| good) {
            Some(path) => Ok(CommandDirectory { path, name: name.into() }),
            None => Err(Error::Name(name.chars().filter(|c| !c.is_control()).take(NAME_BYTES_MAX).collect())),
        }
    }

    /// Creates the place of a new command.
    ///
    /// # Errors
    /// There is one with that name, or it cannot be created.
    pub fn create(&self, name: &str) -> Result<CommandDirectory, Error> {
        let place = self.place(name)?;
        let file = |e| Error::File(place.path.clone(), e);
        let mut directory = fs::DirBuilder::new();
        directory.mode(0o700);
        match directory.create(&self.directory) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(file)?,
        }
        // In /tmp any user may have created it.
        let owner = fs::symlink_metadata(&self.directory).map_err(file)?;
        // SAFETY: it only reads this process's user id.
        if !owner.is_dir() || owner.uid() != unsafe { libc::geteuid() } {
            return Err(Error::Foreign(self.directory.clone()));
        }
        match directory.create(&place.path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(Error::Exists(name.into())),
            made => made.map_err(file)?,
        }
        directory.create(place.work()).map_err(file)?;
        Ok(place)
    }

    /// All commands, by name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<FoundCommand>, Error> {
        let entries = match fs::read_dir(&self.directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| Error::File(self.directory.clone(), e))?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut all: Vec<FoundCommand> =
            names.filter_map(|name| self.place(&name).ok()).map(|place| place.describe()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Stops a command, and waits until its keeper has written its status.
    ///
    /// # Errors
    /// It does not exit, or this user may not stop it.
    pub fn stop(&self, name: &str) -> Result<(), Error> {
        let place = self.place(name)?;
        let about = place.about()?.ok_or_else(|| Error::Missing(name.into()))?;
        if place.state() != State::Running {
            return Ok(());
        }
        let refused = |e| Error::File(place.path.clone(), e);
        signal(about.keeper, libc::SIGTERM).map_err(refused)?;
        let begun = Instant::now();
        // The keeper kills a command that does not exit on request.
        while begun.elapsed() < 2 * EXIT_TIMEOUT {
            if place.state() != State::Running {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err(Error::Running(name.into()))
    }

    /// Removes a command that is not running, with all its files.
    ///
    /// # Errors
    /// It is running, or cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let place = self.place(name)?;
        if place.state() == State::Running {
            return Err(Error::Running(name.into()));
        }
        match fs::remove_dir_all(&place.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::Missing(name.into())),
            gone => gone.map_err(|e| Error::File(place.path.clone(), e))?,
        }
        // The last one also removes the directory.
        let _ = fs::remove_dir(&self.directory);
        Ok(())
    }
}

/// The place of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandDirectory {
    path: PathBuf,
    name: String,
}

impl CommandDirectory {
    /// The place of a command, from its directory; used by its keeper.
    pub fn at(path: &Path) -> Self {
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        Self { path: path.into(), name }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The current directory of the command.
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// The path of a file in its directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Its description; `None` if it was not started.
    ///
    /// # Errors
    /// The description is damaged.
    pub fn about(&self) -> Result<Option<Description>, Error> {
        self.read("about.json", Description::parse)
    }

    fn read<T>(&self, name: &str, parse: fn(&[u8]) -> Result<T, DescriptionError>) -> Result<Option<T>, Error> {
        use io::Read as _;
        let path = self.file(name);
        let mut bytes = Vec::new();
        match fs::File::open(&path).and_then(|file| file.take(DESCRIPTION_BYTES_MAX).read_to_end(&mut bytes)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|e| Error::File(path.clone(), e))?,
        };
        parse(&bytes).map(Some).map_err(|why| Error::Damaged(path, why))
    }

    /// Its state. A command with unreadable files has vanished.
    pub fn state(&self) -> State {
        let ended = || self.read("status.json", Status::parse);
        let about = match self.about() {
            Ok(Some(about)) => about,
            Ok(None) if !self.file("keeper").exists() => return State::Prepared,
            _ => return State::Vanished,
        };
        if let Ok(Some(status)) = ended() {
            return State::Ended(status);
        }
        let lives = crate::boot_id(&crate::Local).is_some_and(|boot| boot == about.boot)
            && start_ticks(about.keeper).is_some_and(|began| began == about.began);
        if lives {
            State::Running
        } else {
            // It may have ended since the first check.
            ended().ok().flatten().map_or(State::Vanished, State::Ended)
        }
    }

    fn describe(&self) -> FoundCommand {
        let about = self.about().ok().flatten();
        FoundCommand { name: self.name.clone(), about, state: self.state(), bytes: directory_bytes(&self.work(), 0) }
    }
}

/// The total bytes below a directory, as far as it is readable.
fn directory_bytes(directory: &Path, depth: usize) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() && depth < 8 => directory_bytes(&entry.path(), depth + 1),
        Ok(about) if about.is_file() => about.len(),
        _ => 0,
    };
    entries.map(size).sum()
}

/// Sends a signal to one process.
pub(super) fn signal(pid: u32, number: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: a plain system call; the number is that of a process, not a group.
    match unsafe { libc::kill(pid, number) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a signal to a command and all its processes.
pub(super) fn signal_group(leader: u32, number: i32) -> io::Result<()> {
    let group = i32::try_from(leader).ok().filter(|pid| *pid > 1).ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: a plain system call.
    match unsafe { libc::kill(-group, number) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_directory() {
        let shelf = DetachedCommands::in_directory(Path::new("/x"));
        assert!(shelf.place("run-7.a_b").is_ok());
        for bad in ["", ".", "..", "a/b", "/etc", ".hidden", "-x", "a b", "a\0b", "a\nb", &"x".repeat(65)] {
            assert!(matches!(shelf.place(bad), Err(Error::Name(_))), "{bad:?}");
        }
    }

    #[test]
    fn state_follows_files_and_processes() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = DetachedCommands::in_directory(directory.path());
        assert_eq!(shelf.list().unwrap(), []);
        let place = shelf.create("a").unwrap();
        assert!(matches!(shelf.create("a"), Err(Error::Exists(_))));
        assert_eq!(place.state(), State::Prepared);
        let own = std::process::id();
        let boot = crate::boot_id(&crate::Local).unwrap();
        let about = Description {
            version: 1,
            argv: vec!["x".into()],
            lease_s: 0,
            boot,
            keeper: own,
            began: start_ticks(own).unwrap(),
            command: 0,
            since_s: 1,
        };
        let write =
            |about: &Description| fs::write(place.file("about.json"), serde_json::to_vec(about).unwrap()).unwrap();
        write(&about);
        assert_eq!(place.state(), State::Running);
        assert!(matches!(shelf.remove("a"), Err(Error::Running(_))));
        write(&Description { began: about.began + 1, ..about.clone() });
        assert_eq!(place.state(), State::Vanished, "another process has the number");
        write(&Description { boot: "another".into(), ..about.clone() });
        assert_eq!(place.state(), State::Vanished, "the device restarted");
        let status = Status { exit: -9, by: Some(EndCause::Lease) };
        fs::write(place.file("status.json"), serde_json::to_vec(&status).unwrap()).unwrap();
        assert_eq!(place.state(), State::Ended(status));
        fs::write(place.work().join("data"), [0; 10]).unwrap();
        assert_eq!(shelf.list().unwrap()[0].bytes, 10);
        shelf.remove("a").unwrap();
        assert!(matches!(shelf.remove("a"), Err(Error::Missing(_))));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "the last takes the directory along");
    }

    #[test]
    fn damaged_description_does_not_panic() {
        for bytes in [&b""[..], b"{", b"[]", b"{\"version\":2}", &[0xff; 9]] {
            assert!(Description::parse(bytes).is_err() && Status::parse(bytes).is_err());
        }
    }
}
