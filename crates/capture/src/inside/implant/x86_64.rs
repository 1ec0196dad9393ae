//! A stopped program's registers on x86-64.

use crate::launch::Request;
use libc::{c_long, c_void, user_regs_struct};
use std::io;

/// The code segment of 64-bit programs.
const USER_CS: u64 = 0x33;
/// No system call: nothing is restarted.
const NO_CALL: u64 = u64::MAX;

/// The result and the number share a register: with a 0 in it the first call is a read, of nothing.
pub(super) const FIRST_CALL: c_long = libc::SYS_read;

#[derive(Clone, Copy)]
pub(super) struct Registers(user_regs_struct);

impl Registers {
    /// Reads the registers by a ptrace request. `None`: a 32-bit program.
    pub(super) fn read(ask: impl Fn(Request, usize, *mut c_void) -> io::Result<()>) -> io::Result<Option<Self>> {
        // SAFETY: a structure of numbers, for which zero is valid.
        let mut all: user_regs_struct = unsafe { std::mem::zeroed() };
        ask(libc::PTRACE_GETREGS, 0, (&raw mut all).cast())?;
        Ok((all.cs == USER_CS).then_some(Self(all)))
    }

    pub(super) fn write(&self, ask: impl Fn(Request, usize, *mut c_void) -> io::Result<()>) -> io::Result<()> {
        ask(libc::PTRACE_SETREGS, 0, (&raw const self.0).cast_mut().cast())
    }

    /// Returns the registers for executing a system call instruction.
    pub(super) fn calling(&self, at: u64, number: c_long, a: [u64; 6]) -> Self {
        let mut all = self.0;
        (all.rip, all.rax, all.orig_rax) = (at, number as u64, NO_CALL);
        (all.rdi, all.rsi, all.rdx, all.r10, all.r8, all.r9) = (a[0], a[1], a[2], a[3], a[4], a[5]);
        Self(all)
    }

    /// Returns the registers outside any system call, for resuming elsewhere if given.
    pub(super) fn outside_call(&self, at: Option<u64>) -> Self {
        let mut all = self.0;
        all.orig_rax = NO_CALL;
        all.rip = at.unwrap_or(all.rip);
        Self(all)
    }

    pub(super) fn at(&self) -> u64 {
        self.0.rip
    }

    pub(super) fn result(&self) -> u64 {
        self.0.rax
    }

    pub(super) fn stack(&self) -> u64 {
        self.0.rsp
    }
}

/// Returns the offset of `syscall` in code.
pub(super) fn call_instruction(code: &[u8]) -> Option<usize> {
    code.windows(2).position(|w| w == [0x0f, 0x05])
}
