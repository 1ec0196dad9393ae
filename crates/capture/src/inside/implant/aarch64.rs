//! A stopped program's registers on aarch64.

use crate::launch::Request;
use libc::{c_long, c_void, iovec};
use std::io;

/// From linux/ptrace.h and linux/elf.h; the crate `libc` does not have them everywhere.
const PTRACE_GETREGSET: Request = 0x4204;
const PTRACE_SETREGSET: Request = 0x4205;
const NT_PRSTATUS: usize = 1;

/// The number's register is preserved: the kernel overwrites an argument, and this call has none.
pub(super) const FIRST_CALL: c_long = libc::SYS_getpid;

/// `struct user_pt_regs`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Registers {
    x: [u64; 31],
    sp: u64,
    pc: u64,
    pstate: u64,
}

impl Registers {
    /// Reads the registers by a ptrace request. `None`: a 32-bit program, which has fewer.
    pub(super) fn read(ask: impl Fn(Request, usize, *mut c_void) -> io::Result<()>) -> io::Result<Option<Self>> {
        let mut all = Self::default();
        let mut place = iovec { iov_base: (&raw mut all).cast(), iov_len: size_of::<Self>() };
        ask(PTRACE_GETREGSET, NT_PRSTATUS, (&raw mut place).cast())?;
        Ok((place.iov_len == size_of::<Self>()).then_some(all))
    }

    pub(super) fn write(&self, ask: impl Fn(Request, usize, *mut c_void) -> io::Result<()>) -> io::Result<()> {
        let mut place = iovec { iov_base: (&raw const *self).cast_mut().cast(), iov_len: size_of::<Self>() };
        ask(PTRACE_SETREGSET, NT_PRSTATUS, (&raw mut place).cast())
    }

    /// Returns the registers for executing a system call instruction.
    pub(super) fn calling(&self, at: u64, number: c_long, a: [u64; 6]) -> Self {
        let mut all = *self;
        all.pc = at;
        all.x[..6].copy_from_slice(&a);
        all.x[8] = number as u64;
        all
    }

    /// Returns the registers for resuming, elsewhere if given. A call is restarted only depending on its result, and these
    /// contain none.
    pub(super) fn outside_call(&self, at: Option<u64>) -> Self {
        Self { pc: at.unwrap_or(self.pc), ..*self }
    }

    pub(super) fn at(&self) -> u64 {
        self.pc
    }

    pub(super) fn result(&self) -> u64 {
        self.x[0]
    }

    pub(super) fn stack(&self) -> u64 {
        self.sp
    }
}

/// Returns the offset of `svc #0` in code.
pub(super) fn call_instruction(code: &[u8]) -> Option<usize> {
    code.chunks_exact(4).position(|w| w == 0xd400_0001_u32.to_le_bytes()).map(|at| at * 4)
}
