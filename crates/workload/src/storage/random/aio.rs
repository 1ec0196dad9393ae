//! Linux's own asynchronous I/O by its system calls: what libaio wraps, and what fio calls by that name.

use super::queue::{Queue, Transfer};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::RawFd;

/// struct iocb of uapi/linux/aio_abi.h, little-endian.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// struct io_event.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Event {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;

/// A context of the kernel.
pub(super) struct Aio {
    context: libc::c_ulong,
    events: Vec<Event>,
    in_flight: usize,
}

fn check(result: libc::c_long) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

impl Aio {
    pub(super) fn new(depth: usize) -> Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the context is a word of ours, zero as the call requires.
        check(unsafe { libc::syscall(libc::SYS_io_setup, depth as libc::c_long, &raw mut context) })?;
        Ok(Self { context, events: vec![Event::default(); depth], in_flight: 0 })
    }
}

impl Queue for Aio {
    unsafe fn start(&mut self, file: RawFd, all: &[Transfer]) -> Result<()> {
        let blocks: Vec<Iocb> = all
            .iter()
            .map(|t| Iocb {
                data: t.slot,
                opcode: if t.writes { IOCB_CMD_PWRITE } else { IOCB_CMD_PREAD },
                file: file as u32,
                buffer: t.buffer as u64,
                bytes: t.length.into(),
                offset: t.offset as i64,
                ..Iocb::default()
            })
            .collect();
        let pointers: Vec<*const Iocb> = blocks.iter().map(std::ptr::from_ref).collect();
        let mut begun = 0;
        while begun < pointers.len() {
            let rest = &pointers[begun..];
            // SAFETY: the kernel copies the control blocks during the call; the caller keeps the buffers.
            let result = unsafe { libc::syscall(libc::SYS_io_submit, self.context, rest.len(), rest.as_ptr()) };
            let n = check(result)?;
            if n == 0 {
                return Err(Error::new(ErrorKind::WouldBlock, "the kernel accepted no request"));
            }
            begun += n;
            self.in_flight += n;
        }
        Ok(())
    }

    fn wait(&mut self, done: &mut Vec<(u64, i64)>) -> Result<()> {
        let n = loop {
            let (context, capacity) = (self.context, self.events.len());
            let none = std::ptr::null::<libc::timespec>();
            // SAFETY: there is space for this many events, and no timeout.
            let result = unsafe {
                libc::syscall(libc::SYS_io_getevents, context, 1_usize, capacity, self.events.as_mut_ptr(), none)
            };
            match check(result) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.in_flight -= n;
        done.extend(self.events[..n].iter().map(|e| (e.data, e.result)));
        Ok(())
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: destroys the context made in `new`; the kernel waits for what is in flight (exit_aio's kill_ioctx).
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
