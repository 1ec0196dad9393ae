//! Access to a device.

use model::Dev;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

/// Reads from one device. Errors are sentences for people: they become the reason why a fact is unknown.
pub trait Reader {
    /// The text of a file, without its final line end.
    ///
    /// # Errors
    /// Why it could not be read.
    fn read(&self, path: &str) -> Result<String, String>;

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// Why it could not be listed.
    fn list(&self, directory: &str) -> Result<Vec<String>, String>;

    /// The output of a command, without its final line end.
    ///
    /// # Errors
    /// Why there is no output.
    fn run(&self, words: &[&str]) -> Result<String, RunError>;

    /// The path without links and dots.
    ///
    /// # Errors
    /// There is no such file.
    fn canonical(&self, path: &str) -> Result<String, String>;

    /// Device and inode of a file.
    ///
    /// # Errors
    /// There is no such file.
    fn identity(&self, path: &str) -> Result<(Dev, u64), String>;
}

/// Why a command has no output, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// It exceeded the limits of time or output. Repeating it would exceed them again.
    #[error("{0}")]
    BeyondLimits(String),
    /// It is absent, or failed.
    #[error("{0}")]
    Failed(String),
}

impl From<RunError> for String {
    fn from(error: RunError) -> Self {
        match error {
            RunError::BeyondLimits(why) | RunError::Failed(why) => why,
        }
    }
}

/// The maximum size of a file; a log read by mistake must not exhaust the memory.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A tool that waits for an unresponsive service must not block everything else. `dumpsys` itself gives up after 10 s.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);

fn trimmed(mut text: String) -> String {
    text.truncate(text.trim_end_matches(['\n', '\0']).len());
    text
}

fn list_names(directory: &std::path::Path) -> std::io::Result<Vec<String>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        all.push(entry?.file_name().to_string_lossy().into_owned());
    }
    all.sort();
    Ok(all)
}

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

/// The text of a system error, without its number.
fn error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error ").map_or(text.clone(), |(words, _)| words.to_owned())
}

/// The output of a command, if it finishes within this time.
fn run_command(argv: &[&str], timeout: Duration) -> Result<String, RunError> {
    let (program, arguments) = argv.split_first().ok_or_else(|| RunError::Failed("an empty command".into()))?;
    let fail = |e: std::io::Error| RunError::Failed(format!("{program}: {}", error_text(&e)));
    let beyond = |what: String| Err(RunError::BeyondLimits(format!("{program}: {what}")));
    let mut command = std::process::Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // In its own process group, so that its children end with it.
    let mut child = child::kill_with_parent(command.process_group(0)).spawn().map_err(fail)?;
    let out = child.stdout.take();
    let (sender, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = out.map(|out| out.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)).transpose();
        let _ = sender.send(read.map(|_| bytes));
    });
    let received = received.recv_timeout(timeout);
    let is_complete =
        received.as_ref().is_ok_and(|read| read.as_ref().is_ok_and(|bytes| bytes.len() as u64 <= FILE_BYTES_MAX));
    let ended = if is_complete { child::wait_timeout(&mut child, timeout).map_err(fail)? } else { None };
    let status = match ended {
        Some(status) => status,
        None => {
            // SAFETY: a signal to the group created for it, whose leader was not waited for yet.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            child.wait().map_err(fail)?
        }
    };
    let Ok(bytes) = received else { return beyond(format!("no answer within {} s", timeout.as_secs())) };
    let bytes = bytes.map_err(fail)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return beyond(format!("prints more than {FILE_BYTES_MAX} bytes"));
    }
    if ended.is_none() {
        return beyond(format!("did not end within {} s", timeout.as_secs()));
    }
    if !status.success() {
        return Err(RunError::Failed(format!("{program}: {status}")));
    }
    Ok(trimmed(String::from_utf8_lossy(&bytes).into_owned()))
}

impl Reader for Local {
    fn read(&self, path: &str) -> Result<String, String> {
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|e| error_text(&e))?;
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| error_text(&e))?;
        Ok(trimmed(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, String> {
        list_names(directory.as_ref()).map_err(|e| error_text(&e))
    }

    fn run(&self, asked: &[&str]) -> Result<String, RunError> {
        run_command(asked, COMMAND_TIMEOUT)
    }

    fn canonical(&self, path: &str) -> Result<String, String> {
        let path = std::fs::canonicalize(path).map_err(|e| error_text(&e))?;
        path.into_os_string().into_string().map_err(|_| "its path is not UTF-8".into())
    }

    fn identity(&self, path: &str) -> Result<(Dev, u64), String> {
        let about = std::fs::metadata(path).map_err(|e| error_text(&e))?;
        Ok((from_stat(about.dev()), about.ino()))
    }
}

/// The C library splits the two numbers of a device differently over 64 bits (its `gnu_dev_major`) than the kernel.
fn from_stat(dev: u64) -> Dev {
    let major = dev >> 8 & 0xfff | dev >> 32 & !0xfff;
    let minor = dev & 0xff | dev >> 12 & !0xff;
    Dev::new(major as u32, minor as u32)
}

/// A directory with the files of a device at their own paths, for tests and for devices that only sent these. The output of a
/// command is in `run/` under its words (`uname -m`); `identity` has lines of `MAJOR:MINOR INODE PATH`.
#[derive(Debug, Clone)]
pub struct Fixture {
    root: PathBuf,
}

impl Fixture {
    /// The device stored in this directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn host_path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

impl Reader for Fixture {
    fn read(&self, path: &str) -> Result<String, String> {
        std::fs::read_to_string(self.host_path(path)).map(trimmed).map_err(|e| error_text(&e))
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, String> {
        list_names(&self.host_path(directory)).map_err(|e| error_text(&e))
    }

    fn run(&self, asked: &[&str]) -> Result<String, RunError> {
        let answer = std::fs::read_to_string(self.root.join("run").join(asked.join(" ")));
        let fail = |e| RunError::Failed(format!("{}: {}", asked.first().unwrap_or(&""), error_text(&e)));
        answer.map(trimmed).map_err(fail)
    }

    fn canonical(&self, path: &str) -> Result<String, String> {
        Ok(path.to_owned())
    }

    fn identity(&self, path: &str) -> Result<(Dev, u64), String> {
        let all = self.read("identity")?;
        let found = all.lines().find_map(|line| {
            let (dev, rest) = line.split_once(' ')?;
            let (inode, name) = rest.split_once(' ')?;
            (name == path).then_some((crate::dev::parse_dev(dev)?, inode.parse().ok()?))
        });
        found.ok_or_else(|| "no such file".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_of_stat_are_unpacked() {
        assert_eq!(from_stat(0xfe00), Dev::new(254, 0));
        assert_eq!(from_stat(0x0010_0312), Dev::new(3, 0x112));
    }

    /// Its child processes are killed as well.
    #[test]
    fn tool_that_hangs_is_ended_with_its_children() {
        let soon = Duration::from_secs(1);
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        for (script, why) in [
            ("sleep 1000 & echo $! >PID; wait", "no answer within"),
            // It exits, but its child keeps the output open.
            ("sleep 1000 & echo $! >PID", "no answer within"),
            ("exec >/dev/null; sleep 1000 & echo $! >PID; wait", "did not end within"),
        ] {
            let script = script.replace("PID", &pid.to_string_lossy());
            let said = run_command(&["sh", "-c", &script], soon).unwrap_err();
            assert!(matches!(&said, RunError::BeyondLimits(said) if said.contains(why)), "{script}: {said}");
            // On a busy machine it may not have got this far.
            let Ok(started) = std::fs::read_to_string(&pid) else { continue };
            let there = std::path::Path::new("/proc").join(started.trim()).join("stat");
            let runs = || std::fs::read_to_string(&there).is_ok_and(|stat| !stat.contains(") Z"));
            let ended = (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                !runs()
            });
            assert!(ended, "{script}: what it started runs on");
        }
        assert_eq!(run_command(&["echo", "yes"], COMMAND_TIMEOUT), Ok("yes".into()));
    }

    #[test]
    fn facts_of_this_machine_have_a_value_or_a_reason() {
        assert!(Local.read("/proc/sys/kernel/osrelease").is_ok_and(|r| !r.is_empty() && !r.ends_with('\n')));
        assert!(Local.read("/no/such/file").is_err_and(|why| why.contains("No such file")));
        for failing in ["no-such-command-at-all", "false"] {
            assert!(matches!(Local.run(&[failing]), Err(RunError::Failed(_))), "{failing}");
        }
        let endless = Local.run(&["yes"]).unwrap_err();
        assert!(matches!(&endless, RunError::BeyondLimits(why) if why.contains("prints more than")), "it is ended");
        assert_eq!(Local.canonical("/proc/../proc/self/..").as_deref(), Ok("/proc"));
        // The same numbers as in the kernel's own list for the root.
        let (dev, _) = Local.identity("/").unwrap();
        let mount = crate::mount_of(&Local, "/").unwrap();
        if mount.kind == "ext4" || mount.kind == "xfs" {
            assert_eq!(dev, mount.dev);
        }
    }
}
