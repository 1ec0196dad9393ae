//! Keeps QEMU's main loop awake.
//!
//! QEMU 7.2 occasionally sleeps forever although a timer of the guest is due: the vCPU thread in `qemu_cond_wait`, the main thread in
//! `ppoll`, no processor time used for minutes, in one of eleven runs of f2fs on an SD card alongside other work. One byte on QEMU's
//! monitor ended it (docs/results/limits.md): the guest continued as if nothing had happened. So QEMU gets a byte several times a
//! second: it ends the main thread's `ppoll`, which then checks its timers.
//!
//! Uncertainty: why it sleeps was inferred from QEMU's source, not traced. An emulated SD card writes its file from the processors' own
//! thread (`blk_pwrite` in `hw/sd/sd.c`), which then polls the main loop's events itself (`aio_poll`): so it can consume the notification
//! by which that same thread notified the main loop of an earlier timer (`timerlist_notify`). The main loop then waits for its previous
//! deadline and, if there was none and the guest's processors halt, for ever.

use crate::Error;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a lost timer may be late.
const WAKE_INTERVAL: Duration = Duration::from_millis(200);

/// A QEMU monitor: our end, and the other one, which is open in QEMU too.
pub(crate) struct Monitor {
    ours: UnixStream,
    _theirs: UnixStream,
}

impl Monitor {
    /// Adds a monitor to QEMU.
    pub fn attach(command: &mut Command) -> Result<Self, Error> {
        let (ours, theirs) = UnixStream::pair().map_err(|e| Error::io("make", Path::new("a pair of sockets"), e))?;
        let fd = theirs.as_raw_fd();
        command.arg("-chardev").arg(format!("socket,id=monitor,fd={fd}")).args(["-mon", "chardev=monitor"]);
        // SAFETY: between fork and exec only a system call without pointers, on a file that the caller holds open.
        unsafe {
            command.pre_exec(move || match libc::fcntl(fd, libc::F_SETFD, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        Ok(Self { ours, _theirs: theirs })
    }

    /// Wakes QEMU until it is gone. Called after it has started.
    pub fn keep_awake(self) {
        let Self { ours, _theirs: theirs } = self;
        drop(theirs);
        std::thread::spawn(move || wake(ours));
    }
}

/// An empty line is not a command; the prompt in response is ignored.
fn wake(mut monitor: UnixStream) {
    let mut prompt = [0; 4096];
    // A stopped QEMU reads nothing, and this must not wait for it.
    if monitor.set_nonblocking(true).is_err() {
        return;
    }
    loop {
        match monitor.write(b"\n").and_then(|_| monitor.read(&mut prompt)) {
            Ok(0) => return,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => std::thread::sleep(WAKE_INTERVAL),
        }
    }
}
