//! Keeps QEMU's main loop awake.
//!
//! QEMU 7.2 now and then sleeps for ever with a timer of the guest's due. An emulated SD card writes its file from the processor's own
//! thread (`blk_pwrite` in `hw/sd/sd.c`), which then polls the main loop's events (`aio_poll`); so it takes the notification with which
//! that thread itself told the main loop of an earlier timer. The main loop goes on waiting for the deadline that it knew before, and if
//! there was none and all of the guest's processors halt, nothing ever ends its `ppoll`. Seen in one of five runs of f2fs on an SD card
//! beside other work: the processors' thread in `qemu_cond_wait`, the main thread in `ppoll`, no processor time used for minutes; any
//! event of QEMU's (a debugger, a byte on its monitor) made the guest go on as if nothing had been. So it gets a byte several times a second.
//!
//! Uncertainty: which notification is lost was read off QEMU's source and the threads' stacks, not traced. That a byte on the monitor ends
//! the sleep was seen.

use crate::Error;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a lost timer may be late.
const EVERY: Duration = Duration::from_millis(200);

/// A monitor of QEMU's: this end and that one, which is open in QEMU too.
pub(crate) struct Monitor {
    ours: UnixStream,
    _theirs: UnixStream,
}

impl Monitor {
    /// Gives QEMU a monitor.
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

    /// Wakes QEMU until it is gone. Called when it has started.
    pub fn keep_awake(self) {
        let Self { ours, _theirs: theirs } = self;
        drop(theirs);
        std::thread::spawn(move || wake(ours));
    }
}

/// An empty line is no command; the prompt that answers it is of no interest.
fn wake(mut monitor: UnixStream) {
    let mut prompt = [0; 4096];
    // A QEMU that is stopped takes nothing, and this is not to wait for it.
    if monitor.set_nonblocking(true).is_err() {
        return;
    }
    loop {
        match monitor.write(b"\n").and_then(|_| monitor.read(&mut prompt)) {
            Ok(0) => return,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => std::thread::sleep(EVERY),
        }
    }
}
