//! Debian packages without installing them: fetched through apt's own configuration (mirrors, proxies, keys), but with
//! our own state directory, and unpacked under a cache directory. The machine's package lists and database are neither read
//! nor written, and no root is needed.
//!
//! Uncertainty: a list that was fetched weeks ago may name versions that the mirror has dropped. So a failed download
//! is retried once with fresh lists.

use crate::Error;
use child::{kill_with_parent, wait_timeout};
use model::Context;
use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How often to check for a requested end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long apt may take to end after SIGTERM.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(2);

/// Debian packages of one architecture, in a cache directory that several processes may share.
#[derive(Debug)]
pub struct Packages {
    cache: PathBuf,
    arch: String,
    /// A suite other than the machine's own, such as `sid`.
    suite: Option<String>,
    /// Cancelling it ends running commands.
    context: Context,
}

impl Packages {
    /// Packages of `arch` in Debian's terms (`amd64`, `arm64`).
    ///
    /// # Errors
    /// `Missing` if apt or dpkg is not on this machine; `Io` if the cache directory cannot be made.
    pub fn new(cache: &Path, arch: &str) -> Result<Self, Error> {
        crate::find_program("apt-get", "apt")?;
        crate::find_program("dpkg-deb", "dpkg")?;
        fs::create_dir_all(cache).map_err(|e| Error::io("create", cache, e))?;
        let cache = fs::canonicalize(cache).map_err(|e| Error::io("find", cache, e))?;
        Ok(Self { cache, arch: arch.to_string(), suite: None, context: Context::silent() })
    }

    /// The same, ended when this context is cancelled.
    #[must_use]
    pub fn with_context(self, context: &Context) -> Self {
        Self { context: context.clone(), ..self }
    }

    /// Packages of another suite from the mirror that this machine uses, in main. Programs from it need that suite's libraries,
    /// too.
    ///
    /// # Errors
    /// As [`Self::new`]; `Missing` if the machine's apt has no mirror of Debian.
    pub fn from_suite(cache: &Path, arch: &str, suite: &str) -> Result<Self, Error> {
        let packages = Self { suite: Some(suite.to_string()), ..Self::new(cache, arch)? };
        let asked = ["indextargets", "--format", "$(REPO_URI) $(COMPONENT)", "Created-By: Packages"];
        let targets = run(Command::new("apt-get").args(asked), &packages.context)?;
        let mirror =
            find_mirror(&targets).ok_or_else(|| Error::Missing("apt has no Debian mirror configured".into()))?;
        let state = packages.state();
        fs::create_dir_all(&state).map_err(|e| Error::io("create", &state, e))?;
        let sources = packages.sources();
        fs::write(&sources, format!("deb {mirror} {suite} main\n")).map_err(|e| Error::io("write", &sources, e))?;
        Ok(packages)
    }

    /// Distinguishes these packages from others in the same cache.
    fn kind(&self) -> String {
        self.suite.iter().fold(self.arch.clone(), |arch, suite| format!("{arch}-{suite}"))
    }

    /// apt's state.
    fn state(&self) -> PathBuf {
        self.cache.join(format!("apt-{}", self.kind()))
    }

    /// The sources of packages from another suite.
    fn sources(&self) -> PathBuf {
        self.state().join("sources.list")
    }

    /// Returns the directory with the files of a package; fetches and unpacks it first if it is missing.
    ///
    /// # Errors
    /// `Missing` if it cannot be fetched (no network, no such package): a test reports this and is skipped.
    pub fn unpack(&self, name: &str) -> Result<PathBuf, Error> {
        let directory = self.cache.join("packages").join(format!("{name}-{}", self.kind()));
        let _lock = self.lock()?;
        if directory.exists() {
            return Ok(directory);
        }
        // Created under another name and renamed when complete, so that an interrupted run leaves nothing that looks
        // done.
        let fresh = directory.with_extension("part");
        if fresh.exists() {
            fs::remove_dir_all(&fresh).map_err(|e| Error::io("clear", &fresh, e))?;
        }
        fs::create_dir_all(&fresh).map_err(|e| Error::io("create", &fresh, e))?;
        let package = self.download(name, &fresh)?;
        run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&fresh), &self.context)?;
        fs::remove_file(&package).map_err(|e| Error::io("remove", &package, e))?;
        fs::rename(&fresh, &directory).map_err(|e| Error::io("rename", &fresh, e))?;
        Ok(directory)
    }

    /// The names of a package's dependencies: a metapackage such as `linux-image-amd64` names the real one this way.
    ///
    /// # Errors
    /// As [`Self::unpack`].
    pub fn dependencies(&self, name: &str) -> Result<Vec<String>, Error> {
        let _lock = self.lock()?;
        self.update_lists(false)?;
        let text = run(self.apt("apt-cache")?.args(["depends", &self.qualified_name(name)]), &self.context)?;
        Ok(parse_dependencies(&text))
    }

    fn qualified_name(&self, name: &str) -> String {
        format!("{name}:{}", self.arch)
    }

    fn download(&self, name: &str, into: &Path) -> Result<PathBuf, Error> {
        self.update_lists(false)?;
        let attempt = || {
            run(self.apt("apt-get")?.current_dir(into).args(["download", &self.qualified_name(name)]), &self.context)
        };
        if attempt().is_err() && !self.context.cancelled() {
            self.update_lists(true)?;
            attempt()?;
        }
        let entries = fs::read_dir(into).map_err(|e| Error::io("read", into, e))?;
        let package = entries.flatten().map(|e| e.path()).find(|p| p.extension().is_some_and(|x| x == "deb"));
        package.ok_or_else(|| Error::Missing(format!("apt-get fetched no {name}")))
    }

    /// Fetches the package lists, unless they exist or `again` is set.
    fn update_lists(&self, again: bool) -> Result<(), Error> {
        let done = self.state().join("updated");
        if again || !done.exists() {
            run(self.apt("apt-get")?.arg("update"), &self.context)?;
            File::create(&done).map_err(|e| Error::io("create", &done, e))?;
        }
        Ok(())
    }

    /// One of apt's programs, with its own state.
    fn apt(&self, program: &str) -> Result<Command, Error> {
        let state = self.state();
        for directory in ["lists/partial", "cache/archives/partial"] {
            let directory = state.join(directory);
            fs::create_dir_all(&directory).map_err(|e| Error::io("create", &directory, e))?;
        }
        let mut command = Command::new(program);
        let mut option = |name: &str, value: &str| {
            command.arg("-o").arg(format!("{name}={value}"));
        };
        option("Dir::State", &state.to_string_lossy());
        option("Dir::State::lists", &state.join("lists").to_string_lossy());
        option("Dir::Cache", &state.join("cache").to_string_lossy());
        // Nothing is installed in it: an empty database.
        option("Dir::State::status", "/dev/null");
        option("APT::Architecture", &self.arch);
        option("APT::Architectures::", &self.arch);
        // As root, apt would fetch as the user _apt, who may not write here.
        option("APT::Sandbox::User", &std::env::var("USER").unwrap_or_else(|_| "root".into()));
        // The machine's own hooks are for the machine's own lists.
        option("APT::Update::Post-Invoke-Success::", "");
        option("Acquire::Retries", "3");
        if self.suite.is_some() {
            option("Dir::Etc::sourcelist", &self.sources().to_string_lossy());
            option("Dir::Etc::sourceparts", "/dev/null");
        }
        command.arg("--quiet");
        Ok(command)
    }

    fn lock(&self) -> Result<File, Error> {
        let path = self.cache.join("lock");
        let file = File::create(&path).map_err(|e| Error::io("create", &path, e))?;
        // Another process may be fetching a kernel.
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(e)) => return Err(Error::io("lock", &path, e)),
                Err(TryLockError::WouldBlock) if self.context.cancelled() => return Err(interrupted()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }
}

/// Runs a command; an error has the last lines of its stderr. It ends, with all processes that it started, when the context
/// is cancelled.
fn run(command: &mut Command, context: &Context) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let missing = |e: std::io::Error| Error::Missing(format!("cannot start {program}: {e}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = kill_with_parent(command).spawn().map_err(missing)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let said = std::thread::spawn(move || read_all(stdout));
    let complained = std::thread::spawn(move || read_all(stderr));
    let ended = loop {
        match wait_timeout(&mut child, POLL_INTERVAL).map_err(missing)? {
            Some(status) => break Some(status),
            None if context.cancelled() => break None,
            None => {}
        }
    };
    let Some(status) = ended else {
        terminate_group(&mut child);
        return Err(interrupted());
    };
    let text = |reader: std::thread::JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    let Output { status, stdout, stderr } = Output { status, stdout: text(said), stderr: text(complained) };
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&stderr);
    let tail: Vec<&str> = stderr.lines().rev().take(3).collect();
    Err(Error::Missing(format!("{program}: {status}: {}", tail.into_iter().rev().collect::<Vec<_>>().join("; "))))
}

fn read_all(from: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Text before an error is just as useful.
    let _ = from.map(|mut from| from.read_to_end(&mut bytes));
    bytes
}

/// Ends a process and its group: apt fetches with processes of its own.
fn terminate_group(child: &mut Child) {
    let begun = Instant::now();
    let tell = |signal: libc::c_int| {
        // SAFETY: two integers; the group's leader was not waited for, so the number is still its own.
        unsafe { libc::kill(-(child.id() as libc::pid_t), signal) };
    };
    tell(libc::SIGTERM);
    // Polled instead of waited for: its number must stay its own until the whole group has been signalled.
    while begun.elapsed() < TERMINATION_TIMEOUT && !is_zombie(child.id()) {
        std::thread::sleep(POLL_INTERVAL);
    }
    tell(libc::SIGKILL);
    let _ = child.wait();
}

/// Whether a child has ended and was not waited for.
fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

fn interrupted() -> Error {
    Error::Guest("was interrupted".into())
}

/// Debian's mirror among the lines of `apt-get indextargets`: not that of its security updates, nor a third party's.
fn find_mirror(targets: &str) -> Option<&str> {
    let uris = targets.lines().filter_map(|line| line.strip_suffix(" main"));
    uris.into_iter().find(|uri| uri.trim_end_matches('/').ends_with("/debian"))
}

fn parse_dependencies(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| line.trim().trim_start_matches('|').strip_prefix("Depends: "));
    names.map(|name| name.split(':').next().unwrap_or(name).trim().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debians_mirror_is_found_among_others() {
        let targets = "https://other.example/apt/ main\nhttps://m.example/debian-security/ main\n\
                       https://m.example/debian/ contrib\nhttps://m.example/debian/ main\n";
        assert_eq!(find_mirror(targets), Some("https://m.example/debian/"));
        assert_eq!(find_mirror("https://other.example/apt/ main\n"), None);
    }

    #[test]
    fn cancelled_program_ends_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        // It ignores SIGTERM, and so do its children.
        let script = "trap '' TERM; sleep 1000 & echo $$ $! >pids.new; mv pids.new pids; wait; sleep 1000";
        let context = Context::silent();
        let cancel = context.clone();
        let waiting = std::thread::spawn({
            let pids = pids.clone();
            move || {
                while !pids.exists() {
                    std::thread::sleep(POLL_INTERVAL);
                }
                cancel.cancel_flag().store(true, std::sync::atomic::Ordering::Relaxed);
            }
        });
        let ended = run(Command::new("sh").args(["-c", script]).current_dir(&directory), &context);
        waiting.join().unwrap();
        assert!(matches!(ended, Err(Error::Guest(_))), "{ended:?}");
        for pid in fs::read_to_string(&pids).unwrap().split_whitespace() {
            let gone = std::iter::repeat_with(|| is_zombie(pid.parse().unwrap())).take(100).any(|gone| {
                std::thread::sleep(POLL_INTERVAL);
                gone
            });
            assert!(gone, "{pid} is left");
        }
        let waits = Packages { cache: directory.path().into(), arch: "x".into(), suite: None, context };
        let other = File::create(directory.path().join("lock")).unwrap();
        other.lock().unwrap();
        assert!(matches!(waits.lock(), Err(Error::Guest(_))), "a lock is waited for");
    }

    #[test]
    fn dependencies_are_parsed() {
        let text =
            "linux-image-amd64:amd64\n  Depends: linux-image-6.1.0-9-amd64\n |Depends: kmod:amd64\n  Recommends: x\n";
        assert_eq!(parse_dependencies(text), ["linux-image-6.1.0-9-amd64", "kmod"]);
    }
}
