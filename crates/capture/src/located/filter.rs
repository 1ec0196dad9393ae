//! The filter that stops a program at some system calls, and lets every other one pass without a stop (seccomp_bpf(2)).

use crate::kernel::calls::numbers_of;
use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};
use model::Call;
use std::io;

/// `AUDIT_ARCH_*` of this machine (linux/audit.h). Calls of 32-bit programs pass.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Offsets in `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

pub struct Filter(Vec<sock_filter>);

impl Filter {
    pub fn new(calls: &[Call]) -> Self {
        let step = |code: u32, jump_true: u8, jump_false: u8, k: u32| sock_filter {
            code: code as u16,
            jt: jump_true,
            jf: jump_false,
            k,
        };
        let (load, equal, end) = (BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K);
        let allow = step(end, 0, 0, libc::SECCOMP_RET_ALLOW);
        let stop = step(end, 0, 0, libc::SECCOMP_RET_TRACE);
        let mut all = vec![
            step(load, 0, 0, ARCHITECTURE_OFFSET),
            step(equal, 1, 0, ARCHITECTURE),
            allow,
            step(load, 0, 0, NUMBER_OFFSET),
        ];
        for number in calls.iter().flat_map(|call| numbers_of(*call)) {
            all.extend([step(equal, 0, 1, number as u32), stop]);
        }
        all.push(allow);
        Self(all)
    }

    /// Lets the parent trace this process, and installs the filter. Makes system calls only, as must be between fork and exec.
    pub fn install_traced(&self) -> io::Result<()> {
        let program = sock_fprog { len: self.0.len() as u16, filter: self.0.as_ptr().cast_mut() };
        let none = 0 as libc::c_ulong;
        // SAFETY: the requests take numbers, and a program that lives until the call returns.
        unsafe {
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            let filter = |program: &sock_fprog| {
                libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER as libc::c_ulong,
                    &raw const *program,
                    none,
                    none,
                )
            };
            // With CAP_SYS_ADMIN the command keeps its privileges.
            if filter(&program) < 0
                && (libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, none, none, none) < 0
                    || filter(&program) < 0)
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }
}
