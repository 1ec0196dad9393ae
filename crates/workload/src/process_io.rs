//! What a process read and wrote (`/proc/PID/io`), after it has ended, without root.
//!
//! The file of an ended process belongs to root (`task_dump_owner`: a zombie has no memory whose owner could be checked), but a process
//! that opened it earlier may still read it (`do_io_accounting` compares users only). Opening it once the process runs would be too
//! late for one that ends at once. So the process opens its own file before it becomes the command, and passes the descriptor.
//!
//! *Uncertainty*: where the process may not open its own file (a program with file capabilities is not dumpable), the file is opened
//! once the command runs, and for a command that has ended by then only root can read the counts.

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

/// Space for one descriptor (CMSG_SPACE).
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(1));

/// The counts of a process about to be started.
pub(crate) struct Counts {
    socket: Option<OwnedFd>,
    file: Option<File>,
}

impl Counts {
    /// Makes the process that `command` starts pass its file, if its counts would be lost otherwise.
    pub fn for_command(command: &mut Command) -> Self {
        // Root may open it afterwards. So its commands are started as usual, by a `vfork`, which costs less.
        // SAFETY: a call without arguments that cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let socket = if root { None } else { pass_descriptor(command) };
        Self { socket, file: None }
    }

    /// To be called after the process has been started.
    pub fn receive_descriptor(&mut self, child: &Child) {
        self.file = self.socket.take().and_then(receive_file).or_else(|| open_counts(child));
    }

    /// Reads the counts, before the process is waited for.
    pub fn read(self, child: &Child) -> Option<String> {
        let mut text = String::new();
        self.file.or_else(|| open_counts(child))?.read_to_string(&mut text).ok()?;
        Some(text)
    }
}

fn open_counts(child: &Child) -> Option<File> {
    File::open(format!("/proc/{}/io", child.id())).ok()
}

fn pass_descriptor(command: &mut Command) -> Option<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    let send = move || {
        // If this fails, the counts are opened later.
        if let Ok(file) = File::open("/proc/self/io") {
            let files = [file.as_fd()];
            let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&files));
            let _ = sendmsg(&theirs, &[IoSlice::new(b"i")], &mut control, SendFlags::NOSIGNAL);
        }
        Ok(())
    };
    // SAFETY: between fork and exec it opens a file by a short path and sends it: system calls without memory or locks.
    unsafe { command.pre_exec(send) };
    Some(ours)
}

fn receive_file(socket: OwnedFd) -> Option<File> {
    let (mut byte, mut space) = ([0], [MaybeUninit::uninit(); CONTROL_BYTES]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // It was sent before the exec, or not at all.
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(&socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return None;
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next().map(File::from),
        _ => None,
    })
}
