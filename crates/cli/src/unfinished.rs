//! A file that is being written, removed should a signal end the program meanwhile.
//!
//! Whoever presses Ctrl-C shall not find half a page beside his archives, under a name that says nothing to him. The signals
//! that end a program are caught for as long as a file is unfinished; then the program ends by the signal as it would have.

use anyhow::Result;
use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Those that a user or a system sends. One that is ignored (nohup) stays so.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The name of the file, null if there is none: one at a time is written.
static NAME: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// As long as it lives, its file goes with the program.
pub struct Unfinished {
    before: [Option<libc::sigaction>; SIGNALS.len()],
}

impl Unfinished {
    /// Of the file at `path`, which is about to be made.
    ///
    /// # Errors
    /// The path holds a zero.
    pub fn new(path: &Path) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        // Kept for ever: a handler may be reading it while this is dropped. It is a path for each file that is written.
        NAME.store(name.into_raw(), Ordering::SeqCst);
        Ok(Self { before: SIGNALS.map(catch) })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        NAME.store(null_mut(), Ordering::SeqCst);
        for (signal, before) in SIGNALS.into_iter().zip(&self.before) {
            if let Some(before) = before {
                // SAFETY: what the kernel itself handed out for this signal.
                unsafe { libc::sigaction(signal, before, null_mut()) };
            }
        }
    }
}

extern "C" fn on_signal(signal: libc::c_int) {
    let name = NAME.swap(null_mut(), Ordering::SeqCst);
    // SAFETY: the name ends with a zero and is never freed; the calls are async-signal-safe. The default action of the signal
    // ends the process as soon as this returns.
    unsafe {
        if !name.is_null() {
            libc::unlink(name);
        }
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Has a signal end the program by way of [`on_signal`]; what it did before, unless it is ignored.
fn catch(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: plain data, valid when zeroed; both structures live until the calls return, and the handler makes only
    // async-signal-safe calls.
    unsafe {
        let (mut before, mut action): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        let asked = libc::sigaction(signal, std::ptr::null(), &raw mut before) == 0;
        if !asked || before.sa_sigaction == libc::SIG_IGN {
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
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    const OF_CHILD: &str = "FATHOM_TEST_UNFINISHED";

    /// This very test is also the child, which writes until it is ended.
    #[test]
    fn a_signal_takes_the_file_along_and_ends_the_program() {
        if let Some(path) = std::env::var_os(OF_CHILD) {
            let path = Path::new(&path);
            let _unfinished = Unfinished::new(path).unwrap();
            std::fs::write(path, "half").unwrap();
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".x.html.1.tmp");
        for signal in SIGNALS {
            let mut command = Command::new(std::env::current_exe().unwrap());
            // SAFETY: async-signal-safe calls. Whoever runs the tests in the background may ignore some of them.
            unsafe {
                command.pre_exec(|| {
                    SIGNALS.iter().for_each(|signal| {
                        libc::signal(*signal, libc::SIG_DFL);
                    });
                    Ok(())
                });
            }
            let mut child = command
                .args(["--exact", "unfinished::tests::a_signal_takes_the_file_along_and_ends_the_program"])
                .env(OF_CHILD, &path)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let deadline = Instant::now() + Duration::from_secs(50);
            while std::fs::read(&path).map_or(true, |text| text.is_empty()) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            // SAFETY: a child of ours that was not waited for.
            unsafe { libc::kill(child.id() as libc::pid_t, signal) };
            assert_eq!(child.wait().unwrap().signal(), Some(signal));
            assert!(!path.exists(), "signal {signal}");
        }
    }
}
