//! How blocks are transferred: a system call each (psync), or a queue of the kernel's with some in flight.

use super::aio::Aio;
use super::queue::{Queue, Transfer};
use io_uring::{IoUring, opcode, types};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::RawFd;

/// The values of `--engine`.
pub(super) const ENGINE_NAMES: &[&str] = &["psync", "libaio", "io_uring"];

/// How blocks are transferred: by system calls, or by a queue of the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    Psync,
    Libaio,
    IoUring,
}

impl Engine {
    /// One of [`ENGINE_NAMES`].
    pub(super) fn parse(name: &str) -> Self {
        match name {
            "libaio" => Self::Libaio,
            "io_uring" => Self::IoUring,
            _ => Self::Psync,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Psync => "psync",
            Self::Libaio => "libaio",
            Self::IoUring => "io_uring",
        }
    }
}

/// Creates a queue for `depth` requests in flight; an error names the reason of the kernel.
pub(super) fn create_queue(engine: Engine, depth: usize) -> Result<Box<dyn Queue>> {
    let made: Result<Box<dyn Queue>> = match engine {
        Engine::IoUring => Uring::new(depth).map(|q| Box::new(q) as Box<dyn Queue>),
        _ => Aio::new(depth).map(|q| Box::new(q) as Box<dyn Queue>),
    };
    made.map_err(|e| {
        let why = match e.raw_os_error() {
            Some(libc::ENOSYS) => "this kernel is built without it",
            Some(libc::EPERM | libc::EACCES) => {
                "not permitted here (kernel.io_uring_disabled, or a sandbox's seccomp filter)"
            }
            Some(libc::EAGAIN) => "the machine's limit is reached (fs.aio-max-nr)",
            Some(libc::ENOMEM) => "the limit of locked memory is reached (ulimit -l), or --depth is too large",
            _ => "the kernel refused",
        };
        Error::other(format!("{} is not available: {why}: {e}; --engine psync always works", engine.name()))
    })
}

struct Uring {
    ring: IoUring,
    in_flight: usize,
}

impl Uring {
    fn new(depth: usize) -> Result<Self> {
        let entries = u32::try_from(depth).map_err(Error::other)?.next_power_of_two();
        Ok(Self { ring: IoUring::new(entries)?, in_flight: 0 })
    }
}

impl Queue for Uring {
    unsafe fn start(&mut self, file: RawFd, all: &[Transfer]) -> Result<()> {
        for t in all {
            let fd = types::Fd(file);
            let entry = if t.writes {
                opcode::Write::new(fd, t.buffer, t.length).offset(t.offset).build()
            } else {
                opcode::Read::new(fd, t.buffer, t.length).offset(t.offset).build()
            };
            // SAFETY: the caller keeps the buffer; the ring has an entry for every slot.
            unsafe { self.ring.submission().push(&entry.user_data(t.slot)) }.map_err(Error::other)?;
        }
        self.in_flight += all.len();
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn wait(&mut self, done: &mut Vec<(u64, i64)>) -> Result<()> {
        // Completions are already in memory that the kernel shares with us: no call is needed.
        while self.ring.completion().is_empty() {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        for entry in self.ring.completion() {
            self.in_flight -= 1;
            done.push((entry.user_data(), entry.result().into()));
        }
        Ok(())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 {
            if self.wait(&mut done).is_err() {
                // Unreachable with a ring of our own; the process must not continue while the kernel may still write to
                // a buffer.
                std::process::abort();
            }
        }
    }
}
