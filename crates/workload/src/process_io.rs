//! What a process read and wrote (`/proc/PID/io`), once it has ended, without root.
//!
//! The file of an ended process is root's (`task_dump_owner`: a zombie has no memory whose owner could be asked), but who opened it
//! before may still read it (`do_io_accounting` compares users only). Opened once the process runs, it would come too late for one that
//! ends at once. So the process opens its own before it becomes the command, and hands the descriptor over.
//!
//! *Uncertainty*: where the process may not open its own (a program with file capabilities is nobody's), it is opened once the command
//! runs, and of a command that has ended by then nothing is known but to root.

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

/// Room for one descriptor (CMSG_SPACE).
const SPACE: usize = rustix::cmsg_space!(ScmRights(1));

/// The counts of a process that is about to be started.
pub(crate) struct Counts {
    socket: Option<OwnedFd>,
    file: Option<File>,
}

impl Counts {
    /// Has the process that `command` starts hand over its file, where its counts would be lost otherwise.
    pub fn of(command: &mut Command) -> Self {
        // Root may open it afterwards. So its commands are started as ever, by a `vfork`, which costs less.
        // SAFETY: a call without arguments that cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let socket = if root { None } else { hand_over(command) };
        Self { socket, file: None }
    }

    /// The process has been started.
    pub fn started(&mut self, child: &Child) {
        self.file = self.socket.take().and_then(received).or_else(|| open(child));
    }

    /// What it read and wrote, before somebody has waited for it.
    pub fn read(self, child: &Child) -> Option<String> {
        let mut text = String::new();
        self.file.or_else(|| open(child))?.read_to_string(&mut text).ok()?;
        Some(text)
    }
}

fn open(child: &Child) -> Option<File> {
    File::open(format!("/proc/{}/io", child.id())).ok()
}

fn hand_over(command: &mut Command) -> Option<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    let send = move || {
        // Without it, the counts are opened later.
        if let Ok(file) = File::open("/proc/self/io") {
            let files = [file.as_fd()];
            let mut space = [MaybeUninit::uninit(); SPACE];
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

fn received(socket: OwnedFd) -> Option<File> {
    let (mut byte, mut space) = ([0], [MaybeUninit::uninit(); SPACE]);
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // It came before the exec, or not at all.
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
