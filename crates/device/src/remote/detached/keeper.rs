//! The process that waits for a detached command: `fathom agent DIRECTORY --keep LEASE -- COMMAND…`, in its own session, so
//! that it is independent of the connection that started it.
//!
//! **The lease.** A host that follows the command has an agent send SIGUSR1 to the keeper with each beat. A keeper with a
//! lease that receives none for that long interrupts its command (SIGINT, so that it finishes writing), and then kills it.
//! No file is touched for that: a write per second would be part of what a storage benchmark measures. Beats are counted,
//! not timed: a suspended device has missed none.

use super::{
    CommandDirectory, DIRECTORY_VARIABLE, Description, EXIT_TIMEOUT, EndCause, Error, POLL_INTERVAL, Status,
    signal_group, undo_notes,
};
use crate::knobs;
use crate::remote::frame::BEAT_INTERVAL;
use crate::remote::read::read_some;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// The maximum size kept of each output, bytes; the rest is discarded, so that a verbose command does not fill a device.
const OUTPUT_BYTES_MAX: u64 = 16 << 20;

/// Starts the command, and waits until it has ended. A `lease` of zero: it runs until it is stopped.
///
/// # Errors
/// Another keeper uses the directory, or it cannot be written.
pub fn run(directory: &Path, lease: Duration, argv: &[String]) -> Result<(), Error> {
    let place = CommandDirectory::at(directory);
    let file = |name: &str| {
        let path = place.file(name);
        move |e| Error::File(path, e)
    };
    let words = block_signals();
    // With two hosts, or one that requests it twice, only the first keeper starts the command.
    let once = OpenOptions::new().write(true).create_new(true).mode(0o600).open(place.file("keeper"));
    once.map_err(file("keeper"))?;
    let outputs = [create_output(&place, "out"), create_output(&place, "err")];
    let [out, err] = outputs;
    let (out, mut err) = (out.map_err(file("out"))?, err.map_err(file("err"))?);
    let started = start(&place, argv);
    let own = std::process::id();
    let about = Description {
        version: 1,
        argv: argv.to_vec(),
        lease_s: lease.as_secs(),
        boot: crate::boot_id(&crate::Local).unwrap_or_default(),
        keeper: own,
        began: knobs::start_ticks(own).unwrap_or(0),
        command: started.as_ref().map_or(0, Child::id),
        since_s: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
    };
    replace_file(&place, "about.json", &about).map_err(file("about.json"))?;
    let mut child = match started {
        Ok(child) => child,
        Err(why) => {
            let program = argv.first().map_or("", String::as_str);
            let _ = writeln!(err, "cannot start {program}: {why}");
            return replace_file(&place, "status.json", &Status { exit: 127, by: None }).map_err(file("status.json"));
        }
    };
    let copies = [
        child.stdout.take().map(|from| std::thread::spawn(move || copy_bounded(from, &out))),
        child.stderr.take().map(|from| std::thread::spawn(move || copy_bounded(from, &err))),
    ];
    let by = Arc::new(Mutex::new(None));
    let ended = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let (by, ended, leader) = (by.clone(), ended.clone(), child.id());
        move || wait_for_end(&words, lease, leader, &by, &ended)
    });
    let exit = child.wait().map_or(127, child::signed_status);
    ended.store(true, Ordering::Relaxed);
    // Remaining child processes would keep its outputs open.
    let _ = signal_group(child.id(), libc::SIGKILL);
    for copy in copies.into_iter().flatten() {
        let _ = copy.join();
    }
    // Restore settings of a killed command.
    if let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE) {
        let _ = knobs::restore_left_over(&undo_notes(Path::new(&directory)));
    }
    let by = by.lock().map_or(None, |by| *by);
    replace_file(&place, "status.json", &Status { exit, by }).map_err(file("status.json"))
}

fn create_output(place: &CommandDirectory, name: &str) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(place.file(name))
}

/// Writes a file atomically.
fn replace_file(place: &CommandDirectory, name: &str, value: &impl serde::Serialize) -> io::Result<()> {
    let fresh = place.file(&format!("{name}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    // A status lost in a power failure would look like a vanished command.
    file.sync_all()?;
    fs::rename(&fresh, place.file(name))
}

fn start(place: &CommandDirectory, argv: &[String]) -> io::Result<Child> {
    let (program, words) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(words).current_dir(place.work()).env("TMPDIR", place.work()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: between fork and exec there are only async-signal-safe system calls.
    unsafe {
        command.pre_exec(|| {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
    command.spawn()
}

fn copy_bounded(mut from: impl Read, mut to: &File) {
    let mut buffer = [0; 1 << 14];
    let mut left = OUTPUT_BYTES_MAX;
    while let Some(n) = read_some(&mut from, &mut buffer).ok().filter(|n| *n > 0) {
        let n = (n as u64).min(left) as usize;
        left -= n as u64;
        // On a full device output is lost; the command continues.
        let _ = to.write_all(&buffer[..n]);
    }
}

/// The signals to wait for, blocked in all threads from here on.
fn block_signals() -> libc::sigset_t {
    // SAFETY: an all-zero signal set is valid, and the calls only write to it, or change this thread's mask.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for number in [libc::SIGUSR1, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&raw mut set, number);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        set
    }
}

/// Waits for beats, until the command is to be stopped.
fn wait_for_end(
    words: &libc::sigset_t,
    lease: Duration,
    leader: u32,
    by: &Mutex<Option<EndCause>>,
    ended: &AtomicBool,
) {
    let most = lease.as_secs().div_ceil(BEAT_INTERVAL.as_secs());
    let wait = libc::timespec { tv_sec: BEAT_INTERVAL.as_secs().cast_signed(), tv_nsec: 0 };
    let mut missed = 0;
    let why = loop {
        // SAFETY: both pointers are valid; the signal's details are not requested.
        match unsafe { libc::sigtimedwait(words, std::ptr::null_mut(), &raw const wait) } {
            libc::SIGUSR1 => missed = 0,
            libc::SIGTERM | libc::SIGINT => break EndCause::Stop,
            // It is the session leader and has no terminal; SIGHUP concerns the connection only.
            libc::SIGHUP => {}
            _ => missed += 1,
        }
        if most > 0 && missed > most {
            break EndCause::Lease;
        }
    };
    if let Ok(mut by) = by.lock() {
        *by = Some(why);
    }
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGKILL] {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        let _ = signal_group(leader, number);
        let begun = Instant::now();
        while !ended.load(Ordering::Relaxed) && begun.elapsed() < EXIT_TIMEOUT / 2 {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DetachedCommands, State};
    use super::*;

    fn run_kept(line: &str) -> (tempfile::TempDir, CommandDirectory) {
        let directory = tempfile::tempdir().unwrap();
        let place = DetachedCommands::in_directory(directory.path()).create("a").unwrap();
        run(place.path(), Duration::ZERO, &["sh".into(), "-c".into(), line.into()]).unwrap();
        (directory, place)
    }

    #[test]
    fn outputs_and_status_are_kept() {
        let (_directory, place) = run_kept("echo out; echo err >&2; pwd >there; exit 3");
        let read = |name: &str| fs::read_to_string(place.file(name)).unwrap();
        assert_eq!((read("out").as_str(), read("err").as_str()), ("out\n", "err\n"));
        assert_eq!(read("work/there").trim(), place.work().canonicalize().unwrap().to_string_lossy());
        assert_eq!(place.state(), State::Ended(Status { exit: 3, by: None }));
        // It cannot be started again.
        assert!(run(place.path(), Duration::ZERO, &["true".into()]).is_err());
    }

    #[test]
    fn command_that_cannot_start_ends_with_127() {
        let directory = tempfile::tempdir().unwrap();
        let place = DetachedCommands::in_directory(directory.path()).create("a").unwrap();
        run(place.path(), Duration::ZERO, &["/no/such".into()]).unwrap();
        assert_eq!(place.state(), State::Ended(Status { exit: 127, by: None }));
        assert!(fs::read_to_string(place.file("err")).unwrap().contains("/no/such"));
    }

    #[test]
    fn leftovers_end_with_a_command_killed_by_a_signal() {
        let (_directory, place) = run_kept("sleep 1000 & kill -9 $$");
        assert_eq!(place.state(), State::Ended(Status { exit: -9, by: None }));
    }
}
