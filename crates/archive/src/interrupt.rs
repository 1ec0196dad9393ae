//! Ctrl-C, SIGTERM and SIGHUP ask long-running work to end, so that measurements are kept; a second signal ends the program at once,
//! after removing half-written files ([`crate::signal_cleanup`]).

use crate::signal_cleanup;
use model::Context;
use model::context::SAME_SIGNAL_WINDOW;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// The flag of the newest context that a signal cancels, null if there is none.
static CANCEL_FLAG: AtomicPtr<AtomicBool> = AtomicPtr::new(std::ptr::null_mut());
/// When the first signal came, 0 if none did.
static FIRST_SIGNAL_NS: AtomicU64 = AtomicU64::new(0);

/// Makes Ctrl-C, SIGTERM and SIGHUP cancel `context`, as does one that came before. A second one ends the program at once.
pub fn end_on_signal(context: &Context) {
    extern "C" fn on_signal(signal: libc::c_int) {
        // SAFETY: never freed, once it was stored.
        let Some(flag) = (unsafe { CANCEL_FLAG.load(Ordering::SeqCst).as_ref() }) else { return };
        let now_ns = boot_ns();
        match FIRST_SIGNAL_NS.compare_exchange(0, now_ns, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => flag.store(true, Ordering::Relaxed),
            Err(first_ns) if now_ns.saturating_sub(first_ns) < SAME_SIGNAL_WINDOW.as_nanos() as u64 => {}
            Err(_) => {
                signal_cleanup::remove_files();
                // SAFETY: both calls are async-signal-safe; the default action of the signal then ends the process.
                unsafe {
                    libc::signal(signal, libc::SIG_DFL);
                    libc::raise(signal);
                }
            }
        }
    }
    // Never freed: a handler may be reading it. A verb has two or three of them.
    let flag = Arc::into_raw(context.cancel_flag()).cast_mut();
    CANCEL_FLAG.store(flag, Ordering::SeqCst);
    if is_interrupted() {
        // SAFETY: as above.
        unsafe { &*flag }.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        set_handler(signal, on_signal);
    }
}

/// The flag that SIGUSR1 sets, null if there is none.
static REQUEST_FLAG: AtomicPtr<AtomicBool> = AtomicPtr::new(std::ptr::null_mut());

/// Makes SIGUSR1 set this flag.
pub fn set_on_request(flag: Arc<AtomicBool>) {
    extern "C" fn on_signal(_: libc::c_int) {
        // SAFETY: never freed, once it was stored.
        if let Some(flag) = unsafe { REQUEST_FLAG.load(Ordering::SeqCst).as_ref() } {
            flag.store(true, Ordering::Relaxed);
        }
    }
    // Never freed: a handler may be reading it.
    REQUEST_FLAG.store(Arc::into_raw(flag).cast_mut(), Ordering::SeqCst);
    set_handler(libc::SIGUSR1, on_signal);
}

/// Makes a write beyond the limit on a file's size (RLIMIT_FSIZE) fail, as on a full disk; by default, SIGXFSZ ends the program without
/// a message. A handler that does nothing, since an ignored signal would stay ignored in the programs that this one starts.
pub fn size_limit_is_error() {
    extern "C" fn nothing(_: libc::c_int) {}
    set_handler(libc::SIGXFSZ, nothing);
}

/// Calls an async-signal-safe function at each such signal.
fn set_handler(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handlers touch atomics only, if anything; the struct is plain data, valid when zeroed.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// CLOCK_BOOTTIME, ns; reading it is async-signal-safe.
fn boot_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one structure, which lives until the call returns.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Whether a signal has requested an end.
fn is_interrupted() -> bool {
    FIRST_SIGNAL_NS.load(Ordering::SeqCst) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SignalCleanup;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::time::{Duration, Instant};

    const CHILD_VARIABLE: &str = "FATHOM_TEST_SECOND_SIGNAL";

    /// The first signal ends a recording; the same one sent twice keeps the unfinished tables, and a second one removes them.
    #[test]
    fn second_signal_after_recording_removes_unfinished_tables() {
        if let Some(path) = std::env::var_os(CHILD_VARIABLE) {
            end_on_signal(&model::Context::silent());
            let there = Path::new(&path);
            let tmp = there.parent().unwrap();
            let _cleanup = SignalCleanup::directory(&[there.to_path_buf(), tmp.to_path_buf()]).unwrap();
            std::fs::create_dir(tmp).unwrap();
            std::fs::write(there, "half").unwrap();
            // A fixed wait: the signals come long before.
            std::thread::sleep(Duration::from_secs(60));
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path().join("tables.tmp/spans.parquet");
        let test = "interrupt::tests::second_signal_after_recording_removes_unfinished_tables";
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let command = command.args(["--exact", test]).env(CHILD_VARIABLE, &there).stdout(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        let pid = child.id() as libc::pid_t;
        let deadline = Instant::now() + Duration::from_secs(50);
        while std::fs::read(&there).map_or(true, |text| text.is_empty()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: a child of ours that was not waited for.
        let interrupt = || unsafe { libc::kill(pid, libc::SIGINT) };
        interrupt();
        // A fixed wait: that the child does not end cannot be polled.
        std::thread::sleep(SAME_SIGNAL_WINDOW + Duration::from_millis(100));
        assert!(child.try_wait().unwrap().is_none() && there.exists());
        // Timed from when the child got the first signal, which may be late on a busy machine.
        let deadline = Instant::now() + Duration::from_secs(30);
        let ended = loop {
            interrupt();
            std::thread::sleep(SAME_SIGNAL_WINDOW + Duration::from_millis(100));
            match child.try_wait().unwrap() {
                None if Instant::now() < deadline => {}
                ended => break ended,
            }
        };
        assert_eq!(ended.and_then(|status| status.signal()), Some(libc::SIGINT));
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
    }
}
