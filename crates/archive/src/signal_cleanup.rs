//! Removes half-written files if a signal ends the program.
//!
//! Ctrl-C must not leave half a page next to the archives, under a meaningless name. The signals that end a program are
//! caught while a [`SignalCleanup`] lives; then the signal ends the program as it would have.

use crate::error::{IoResultExt, Result};
use crate::{Lock, TablesWriter};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Sent by a user or by the system. One that is ignored (nohup) stays ignored.
const TERMINATION_SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Files, and their directory if that is removed too.
struct Paths {
    files: Vec<CString>,
    directory: Option<CString>,
}

/// The paths to remove, null if none: only one output is written at a time.
static CLEANUP_PATHS: AtomicPtr<Paths> = AtomicPtr::new(null_mut());

/// While it lives, a signal that ends the program removes its files first.
pub struct SignalCleanup {
    before: [Option<libc::sigaction>; TERMINATION_SIGNALS.len()],
}

impl SignalCleanup {
    /// The file at `path`, which is about to be made.
    ///
    /// # Errors
    /// The path contains a NUL byte.
    pub fn file(path: &Path) -> Result<Self> {
        let paths = Paths { files: vec![c_path(path)?], directory: None };
        Ok(Self::begin(paths, |_| true))
    }

    /// The `files` of a directory, and last the directory itself. A handler that catches the signals already stays in place, and calls
    /// [`remove_files`] before it ends the program.
    ///
    /// # Errors
    /// A path contains a NUL byte.
    pub fn directory(files: &[PathBuf]) -> Result<Self> {
        let mut files = files.iter().map(|path| c_path(path)).collect::<Result<Vec<_>>>()?;
        let directory = files.pop();
        Ok(Self::begin(Paths { files, directory }, |before| before.sa_sigaction == libc::SIG_DFL))
    }

    /// The tables that are being made in the archive `dir`, and its lock if it is this process's.
    ///
    /// # Errors
    /// A path contains a NUL byte.
    pub fn tables(dir: &Path) -> Result<Self> {
        let lock = Lock::of_this_process(dir);
        let files: Vec<PathBuf> = lock.into_iter().chain(TablesWriter::leftover_paths(dir)).collect();
        Self::directory(&files)
    }

    fn begin(paths: Paths, wanted: impl Fn(&libc::sigaction) -> bool) -> Self {
        // Never freed: a handler may be reading it while this is dropped. It is a few paths per output.
        CLEANUP_PATHS.store(Box::into_raw(Box::new(paths)), Ordering::SeqCst);
        Self { before: TERMINATION_SIGNALS.map(|signal| install_handler(signal, &wanted)) }
    }
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(std::io::Error::from).with_action("name", path)
}

impl Drop for SignalCleanup {
    fn drop(&mut self) {
        CLEANUP_PATHS.store(null_mut(), Ordering::SeqCst);
        for (signal, before) in TERMINATION_SIGNALS.into_iter().zip(&self.before) {
            if let Some(before) = before {
                // SAFETY: the action that the kernel returned for this signal.
                unsafe { libc::sigaction(signal, before, null_mut()) };
            }
        }
    }
}

/// Removes what a living [`SignalCleanup`] names, if there is one. Async-signal-safe.
pub fn remove_files() {
    // SAFETY: never freed, and not changed after it was stored.
    let Some(paths) = (unsafe { CLEANUP_PATHS.swap(null_mut(), Ordering::SeqCst).as_ref() }) else { return };
    // SAFETY: each name ends with NUL; the calls are async-signal-safe.
    unsafe {
        for file in &paths.files {
            libc::unlink(file.as_ptr());
        }
        if let Some(directory) = &paths.directory {
            libc::rmdir(directory.as_ptr());
        }
    }
}

extern "C" fn on_signal(signal: libc::c_int) {
    remove_files();
    // SAFETY: async-signal-safe calls. The default action of the signal ends the process as soon as this returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Installs [`on_signal`] for a signal, unless the signal is ignored or its action is not `wanted` to be replaced; returns that action.
fn install_handler(signal: libc::c_int, wanted: impl Fn(&libc::sigaction) -> bool) -> Option<libc::sigaction> {
    // SAFETY: plain data, valid when zeroed; both structures live until the calls return, and the handler makes only
    // async-signal-safe calls.
    unsafe {
        let (mut before, mut action): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        let asked = libc::sigaction(signal, std::ptr::null(), &raw mut before) == 0;
        if !asked || before.sa_sigaction == libc::SIG_IGN || !wanted(&before) {
            return None;
        }
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        (libc::sigaction(signal, &raw const action, null_mut()) == 0).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    const CHILD_VARIABLE: &str = "FATHOM_TEST_SIGNAL_CLEANUP";

    /// Starts the test of that name as a process that writes until killed; returns once `there` has data.
    fn writer(test: &str, there: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // SAFETY: async-signal-safe calls. Tests that run in the background may inherit some of the signals as ignored.
        unsafe {
            command.pre_exec(|| {
                TERMINATION_SIGNALS.iter().for_each(|signal| {
                    libc::signal(*signal, libc::SIG_DFL);
                });
                Ok(())
            });
        }
        let child = command
            .args(["--exact", &format!("signal_cleanup::tests::{test}")])
            .env(CHILD_VARIABLE, there)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(50);
        while std::fs::read(there).map_or(true, |text| text.is_empty()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    fn send(child: &Child, signal: libc::c_int) {
        // SAFETY: a child of ours that was not waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    }

    #[test]
    fn signal_removes_file_and_ends_program() {
        if let Some(path) = std::env::var_os(CHILD_VARIABLE) {
            let path = Path::new(&path);
            let _cleanup = SignalCleanup::file(path).unwrap();
            std::fs::write(path, "half").unwrap();
            // A fixed wait: the signal comes long before.
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".x.html.1.tmp");
        for signal in TERMINATION_SIGNALS {
            let mut child = writer("signal_removes_file_and_ends_program", &path);
            send(&child, signal);
            assert_eq!(child.wait().unwrap().signal(), Some(signal));
            assert!(!path.exists(), "signal {signal}");
        }
    }

    fn write_tables(there: &Path) {
        let tmp = there.parent().unwrap();
        let _cleanup =
            SignalCleanup::directory(&[there.to_path_buf(), tmp.join("not-yet"), tmp.to_path_buf()]).unwrap();
        std::fs::create_dir(tmp).unwrap();
        std::fs::write(there, "half").unwrap();
        // A fixed wait: the signal comes long before.
        std::thread::sleep(Duration::from_secs(60));
    }

    #[test]
    fn signal_removes_unfinished_tables() {
        if let Some(path) = std::env::var_os(CHILD_VARIABLE) {
            return write_tables(Path::new(&path));
        }
        let directory = tempfile::tempdir().unwrap();
        let mut child = writer("signal_removes_unfinished_tables", &directory.path().join("tables.tmp/spans.parquet"));
        send(&child, libc::SIGTERM);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }
}
