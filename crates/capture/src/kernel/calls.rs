//! The numbers of the relevant system calls on this machine, and the positions of their arguments.

use model::{Call, Wait};

/// As in `common.h`: no such argument.
pub const NO_ARG: u8 = 0xff;
/// Number of system calls that the kernel side looks up; as in `common.h`.
pub const CALLS: usize = 512;

/// One line: the number, the call, and the indices of the arguments with the file, the position and the length.
pub struct CallShape(pub libc::c_long, pub Call, pub u8, pub u8, pub u8);

const CALL_SHAPES: &[CallShape] = &[
    CallShape(libc::SYS_read, Call::Read, 0, NO_ARG, 2),
    CallShape(libc::SYS_pread64, Call::Pread64, 0, 3, 2),
    // The length of a vector is known only when the call returns: as its result.
    CallShape(libc::SYS_readv, Call::Readv, 0, NO_ARG, NO_ARG),
    CallShape(libc::SYS_preadv, Call::Preadv, 0, 3, NO_ARG),
    CallShape(libc::SYS_preadv2, Call::Preadv2, 0, 3, NO_ARG),
    CallShape(libc::SYS_write, Call::Write, 0, NO_ARG, 2),
    CallShape(libc::SYS_pwrite64, Call::Pwrite64, 0, 3, 2),
    CallShape(libc::SYS_writev, Call::Writev, 0, NO_ARG, NO_ARG),
    CallShape(libc::SYS_pwritev, Call::Pwritev, 0, 3, NO_ARG),
    CallShape(libc::SYS_pwritev2, Call::Pwritev2, 0, 3, NO_ARG),
    // lseek is not needed: the position of a read or write is taken from the file itself.
    CallShape(libc::SYS_fsync, Call::Fsync, 0, NO_ARG, NO_ARG),
    CallShape(libc::SYS_fdatasync, Call::Fdatasync, 0, NO_ARG, NO_ARG),
    CallShape(libc::SYS_sync_file_range, Call::SyncFileRange, 0, 1, 2),
    CallShape(libc::SYS_ftruncate, Call::Ftruncate, 0, 1, NO_ARG),
    CallShape(libc::SYS_fallocate, Call::Fallocate, 0, 2, 3),
    // For unlink the position argument is the name.
    #[cfg(target_arch = "x86_64")]
    CallShape(libc::SYS_unlink, Call::Unlink, NO_ARG, 0, NO_ARG),
    CallShape(libc::SYS_unlinkat, Call::Unlink, NO_ARG, 1, NO_ARG),
    #[cfg(target_arch = "x86_64")]
    CallShape(libc::SYS_rename, Call::Rename, NO_ARG, NO_ARG, NO_ARG),
    #[cfg(target_arch = "x86_64")]
    CallShape(libc::SYS_renameat, Call::Rename, NO_ARG, NO_ARG, NO_ARG),
    CallShape(libc::SYS_renameat2, Call::Rename, NO_ARG, NO_ARG, NO_ARG),
    CallShape(libc::SYS_truncate, Call::Truncate, NO_ARG, 1, NO_ARG),
    #[cfg(target_arch = "x86_64")]
    CallShape(libc::SYS_link, Call::Link, NO_ARG, NO_ARG, NO_ARG),
    CallShape(libc::SYS_linkat, Call::Link, NO_ARG, NO_ARG, NO_ARG),
    #[cfg(target_arch = "x86_64")]
    CallShape(libc::SYS_symlink, Call::Symlink, NO_ARG, NO_ARG, NO_ARG),
    CallShape(libc::SYS_symlinkat, Call::Symlink, NO_ARG, NO_ARG, NO_ARG),
    #[cfg(target_arch = "x86_64")]
    CallShape(libc::SYS_mkdir, Call::Mkdir, NO_ARG, NO_ARG, NO_ARG),
    CallShape(libc::SYS_mkdirat, Call::Mkdir, NO_ARG, NO_ARG, NO_ARG),
    #[cfg(target_arch = "x86_64")]
    CallShape(libc::SYS_rmdir, Call::Rmdir, NO_ARG, NO_ARG, NO_ARG),
    #[cfg(target_arch = "x86_64")]
    CallShape(libc::SYS_open, Call::Open, NO_ARG, NO_ARG, NO_ARG),
    #[cfg(target_arch = "x86_64")]
    CallShape(libc::SYS_creat, Call::Open, NO_ARG, NO_ARG, NO_ARG),
    CallShape(libc::SYS_openat, Call::Open, NO_ARG, NO_ARG, NO_ARG),
    CallShape(libc::SYS_openat2, Call::Open, NO_ARG, NO_ARG, NO_ARG),
    CallShape(libc::SYS_msync, Call::Msync, NO_ARG, NO_ARG, 1),
    CallShape(libc::SYS_mmap, Call::Mmap, NO_ARG, NO_ARG, 1),
    // Counts once it involves a file: see syscalls.bpf.c.
    CallShape(libc::SYS_io_uring_enter, Call::IoUringEnter, NO_ARG, NO_ARG, NO_ARG),
    // The file is the destination.
    CallShape(libc::SYS_sendfile, Call::Sendfile, 0, NO_ARG, 3),
    CallShape(libc::SYS_splice, Call::Splice, 2, NO_ARG, 4),
    CallShape(libc::SYS_copy_file_range, Call::CopyRange, 2, NO_ARG, 4),
    CallShape(libc::SYS_sync, Call::Sync, NO_ARG, NO_ARG, NO_ARG),
    CallShape(libc::SYS_syncfs, Call::Sync, 0, NO_ARG, NO_ARG),
];

/// Returns the kernel side's table: four bytes per number ({call, fd, position, bytes}); a call of 0 is not recorded.
pub fn table() -> [u8; CALLS * 4] {
    encode_shapes(CALL_SHAPES.iter())
}

/// Returns the numbers by which this machine's programs make a call.
pub fn numbers_of(call: Call) -> impl Iterator<Item = libc::c_long> {
    CALL_SHAPES.iter().filter(move |shape| shape.1 == call).map(|shape| shape.0)
}

/// Returns the call of a number.
pub fn call_of_number(number: u64) -> Option<Call> {
    CALL_SHAPES.iter().find(|shape| u64::try_from(shape.0) == Ok(number)).map(|shape| shape.1)
}

/// Returns which argument of a call, made by this number, is its file; [`NO_ARG`] if none is.
pub fn file_argument(call: Call, number: u64) -> Option<u8> {
    let is = |shape: &&CallShape| shape.1 == call && u64::try_from(shape.0) == Ok(number);
    CALL_SHAPES.iter().find(is).map(|shape| shape.2)
}

/// Returns the lines as such a table.
pub fn encode_shapes<'a>(lines: impl Iterator<Item = &'a CallShape>) -> [u8; CALLS * 4] {
    let mut all = [0; CALLS * 4];
    for CallShape(number, call, fd, pos, bytes) in lines {
        let at = usize::try_from(*number).expect("numbers of calls are positive") * 4;
        all[at..at + 4].copy_from_slice(&[*call as u16 as u8, *fd, *pos, *bytes]);
    }
    all
}

/// What a thread waits for in a system call, by its number. Calls that are recorded need no entry.
const CALL_WAITS: &[(libc::c_long, Wait)] = &[
    (libc::SYS_futex, Wait::Futex),
    // futex_waitv and futex_wait, which libc does not define on every machine.
    (449, Wait::Futex),
    (455, Wait::Futex),
    (libc::SYS_semtimedop, Wait::Futex),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_semop, Wait::Futex),
    (libc::SYS_nanosleep, Wait::Timer),
    (libc::SYS_clock_nanosleep, Wait::Timer),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, Wait::Poll),
    (libc::SYS_ppoll, Wait::Poll),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, Wait::Poll),
    (libc::SYS_pselect6, Wait::Poll),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, Wait::Poll),
    (libc::SYS_epoll_pwait, Wait::Poll),
    (441, Wait::Poll),
    (libc::SYS_recvfrom, Wait::Socket),
    (libc::SYS_recvmsg, Wait::Socket),
    (libc::SYS_recvmmsg, Wait::Socket),
    (libc::SYS_sendto, Wait::Socket),
    (libc::SYS_sendmsg, Wait::Socket),
    (libc::SYS_sendmmsg, Wait::Socket),
    (libc::SYS_accept, Wait::Socket),
    (libc::SYS_accept4, Wait::Socket),
    (libc::SYS_connect, Wait::Socket),
    (libc::SYS_wait4, Wait::Child),
    (libc::SYS_waitid, Wait::Child),
    (libc::SYS_fcntl, Wait::Fcntl),
    (libc::SYS_flock, Wait::Flock),
];

/// Calls whose wait depends on their first argument; as in `waits.h`.
pub const WAIT_DEPENDS_ON_FILE: u8 = 0xff;
const FILE_WAIT_CALLS: [libc::c_long; 4] = [libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev];

/// Returns the kernel side's table: what is waited for, by number; 0 if unknown.
pub fn waits() -> [u8; CALLS] {
    let by_file = FILE_WAIT_CALLS.iter().map(|number| (*number, WAIT_DEPENDS_ON_FILE));
    encode_waits(CALL_WAITS.iter().map(|(number, wait)| (*number, wait.number() as u8)).chain(by_file))
}

/// Returns numbers and waits as such a table.
pub fn encode_waits(waits: impl Iterator<Item = (libc::c_long, u8)>) -> [u8; CALLS] {
    let mut all = [0; CALLS];
    for (number, wait) in waits {
        all[usize::try_from(number).expect("numbers of calls are positive")] = wait;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_positions_of_calls_are_known() {
        let at = libc::SYS_pwrite64 as usize * 4;
        assert_eq!(table()[at..at + 4], [Call::Pwrite64 as u8, 0, 3, 2]);
        let unwanted = libc::SYS_getpid as usize * 4;
        assert_eq!(table()[unwanted], 0);
    }
}
