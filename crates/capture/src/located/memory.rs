//! Registers and memory of a thread that is stopped at a system call.

use crate::stacks::raw::Registers;
use libc::pid_t;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;

/// Longer strings are cut: they come from the program.
const STRING_BYTES_MAX: u64 = 4096;

pub struct Stopped {
    pub pid: pid_t,
    /// The number of the system call.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
    pub registers: Registers,
    /// By which the C library knows the thread (`pthread_self`).
    pub thread_pointer: u64,
    memory: File,
}

impl Stopped {
    pub fn read(pid: pid_t) -> io::Result<Self> {
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let (number, arguments, registers, thread_pointer) = read_registers(pid)?;
        Ok(Self { pid, number, arguments, registers, thread_pointer, memory })
    }

    /// Reads as much of this range as is mapped.
    pub fn bytes(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut done = 0;
        while done < length {
            match self.memory.read_at(&mut bytes[done..], at.saturating_add(done as u64)) {
                Ok(0) | Err(_) => break,
                Ok(n) => done += n,
            }
        }
        bytes.truncate(done);
        bytes
    }

    pub fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    pub fn half(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    pub fn byte(&self, at: u64) -> Option<u8> {
        let mut byte = [0];
        self.memory.read_exact_at(&mut byte, at).ok()?;
        Some(byte[0])
    }

    /// Reads ASCII text of a known length.
    pub fn text(&self, at: u64, length: u64) -> Option<String> {
        let length = length.min(STRING_BYTES_MAX);
        let bytes = self.bytes(at, length as usize);
        let is_whole = bytes.len() as u64 == length && bytes.iter().all(|byte| (0x20..0x7f).contains(byte));
        is_whole.then(|| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a path that ends with a zero.
    pub fn c_path(&self, at: u64) -> Option<OsString> {
        let bytes = self.bytes(at, STRING_BYTES_MAX as usize);
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(OsString::from_vec(bytes[..end].to_vec()))
    }

    /// Reads text that ends with a zero.
    pub fn c_text(&self, at: u64) -> Option<String> {
        let bytes = self.bytes(at, 64);
        let end = bytes.iter().position(|byte| *byte == 0)?;
        String::from_utf8(bytes[..end].to_vec()).ok()
    }
}

#[cfg(target_arch = "x86_64")]
fn read_registers(pid: pid_t) -> io::Result<(u64, [u64; 6], Registers, u64)> {
    let all: libc::user_regs_struct = register_set(pid, libc::NT_PRSTATUS)?;
    let registers = Registers { ip: all.rip, sp: all.rsp, fp: all.rbp, lr: 0 };
    let arguments = [all.rdi, all.rsi, all.rdx, all.r10, all.r8, all.r9];
    Ok((all.orig_rax, arguments, registers, all.fs_base))
}

#[cfg(target_arch = "aarch64")]
fn read_registers(pid: pid_t) -> io::Result<(u64, [u64; 6], Registers, u64)> {
    /// `NT_ARM_TLS` (linux/elf.h).
    const THREAD_POINTER: libc::c_int = 0x401;
    let all: libc::user_regs_struct = register_set(pid, libc::NT_PRSTATUS)?;
    let registers = Registers { ip: all.pc, sp: all.sp, fp: all.regs[29], lr: all.regs[30] };
    let arguments = std::array::from_fn(|at| all.regs[at]);
    Ok((all.regs[8], arguments, registers, register_set::<u64>(pid, THREAD_POINTER).unwrap_or(0)))
}

fn register_set<T: Copy>(pid: pid_t, set: libc::c_int) -> io::Result<T> {
    let mut all = std::mem::MaybeUninit::<T>::zeroed();
    let mut piece = libc::iovec { iov_base: all.as_mut_ptr().cast(), iov_len: size_of::<T>() };
    // SAFETY: the kernel writes at most as many bytes as the structure has, which consists of numbers and was zero before.
    unsafe {
        if libc::ptrace(libc::PTRACE_GETREGSET, pid, set as usize as *mut libc::c_void, &raw mut piece) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(all.assume_init())
    }
}
