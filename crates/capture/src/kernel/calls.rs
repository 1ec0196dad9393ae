//! The numbers of the relevant system calls on this machine, and the positions of their arguments.

use model::{Call, Wait};

/// As in `common.h`: no such argument.
pub const NONE: u8 = 0xff;
/// Number of system calls that the kernel side looks up; as in `common.h`.
pub const CALLS: usize = 512;

/// One line: the number, the call, and the indices of the arguments with the file, the position and the length.
pub struct Line(pub libc::c_long, pub Call, pub u8, pub u8, pub u8);

const LINES: &[Line] = &[
    Line(libc::SYS_read, Call::Read, 0, NONE, 2),
    Line(libc::SYS_pread64, Call::Pread64, 0, 3, 2),
    // The length of a vector is known only when the call returns: as its result.
    Line(libc::SYS_readv, Call::Readv, 0, NONE, NONE),
    Line(libc::SYS_preadv, Call::Preadv, 0, 3, NONE),
    Line(libc::SYS_preadv2, Call::Preadv2, 0, 3, NONE),
    Line(libc::SYS_write, Call::Write, 0, NONE, 2),
    Line(libc::SYS_pwrite64, Call::Pwrite64, 0, 3, 2),
    Line(libc::SYS_writev, Call::Writev, 0, NONE, NONE),
    Line(libc::SYS_pwritev, Call::Pwritev, 0, 3, NONE),
    Line(libc::SYS_pwritev2, Call::Pwritev2, 0, 3, NONE),
    // lseek is not needed: the position of a read or write is taken from the file itself.
    Line(libc::SYS_fsync, Call::Fsync, 0, NONE, NONE),
    Line(libc::SYS_fdatasync, Call::Fdatasync, 0, NONE, NONE),
    Line(libc::SYS_sync_file_range, Call::SyncFileRange, 0, 1, 2),
    Line(libc::SYS_ftruncate, Call::Ftruncate, 0, 1, NONE),
    Line(libc::SYS_fallocate, Call::Fallocate, 0, 2, 3),
    // For unlink the position argument is the name.
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_unlink, Call::Unlink, NONE, 0, NONE),
    Line(libc::SYS_unlinkat, Call::Unlink, NONE, 1, NONE),
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_rename, Call::Rename, NONE, NONE, NONE),
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_renameat, Call::Rename, NONE, NONE, NONE),
    Line(libc::SYS_renameat2, Call::Rename, NONE, NONE, NONE),
    Line(libc::SYS_truncate, Call::Truncate, NONE, 1, NONE),
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_link, Call::Link, NONE, NONE, NONE),
    Line(libc::SYS_linkat, Call::Link, NONE, NONE, NONE),
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_symlink, Call::Symlink, NONE, NONE, NONE),
    Line(libc::SYS_symlinkat, Call::Symlink, NONE, NONE, NONE),
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_mkdir, Call::Mkdir, NONE, NONE, NONE),
    Line(libc::SYS_mkdirat, Call::Mkdir, NONE, NONE, NONE),
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_rmdir, Call::Rmdir, NONE, NONE, NONE),
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_open, Call::Open, NONE, NONE, NONE),
    #[cfg(target_arch = "x86_64")]
    Line(libc::SYS_creat, Call::Open, NONE, NONE, NONE),
    Line(libc::SYS_openat, Call::Open, NONE, NONE, NONE),
    Line(libc::SYS_openat2, Call::Open, NONE, NONE, NONE),
    Line(libc::SYS_msync, Call::Msync, NONE, NONE, 1),
    Line(libc::SYS_mmap, Call::Mmap, NONE, NONE, 1),
    // Counts once it involves a file: see syscalls.bpf.c.
    Line(libc::SYS_io_uring_enter, Call::IoUringEnter, NONE, NONE, NONE),
    // The file is the destination.
    Line(libc::SYS_sendfile, Call::Sendfile, 0, NONE, 3),
    Line(libc::SYS_splice, Call::Splice, 2, NONE, 4),
    Line(libc::SYS_copy_file_range, Call::CopyRange, 2, NONE, 4),
    Line(libc::SYS_sync, Call::Sync, NONE, NONE, NONE),
    Line(libc::SYS_syncfs, Call::Sync, 0, NONE, NONE),
];

/// Returns the kernel side's table: four bytes per number ({call, fd, position, bytes}); a call of 0 is not recorded.
pub fn table() -> [u8; CALLS * 4] {
    encode(LINES.iter())
}

/// Returns the lines as such a table.
pub fn encode<'a>(lines: impl Iterator<Item = &'a Line>) -> [u8; CALLS * 4] {
    let mut all = [0; CALLS * 4];
    for Line(number, call, fd, pos, bytes) in lines {
        let at = usize::try_from(*number).expect("numbers of calls are positive") * 4;
        all[at..at + 4].copy_from_slice(&[*call as u16 as u8, *fd, *pos, *bytes]);
    }
    all
}

/// What a thread waits for in a system call, by its number. Calls that are recorded need no entry.
const WAITS: &[(libc::c_long, Wait)] = &[
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
pub const BY_FILE: u8 = 0xff;
const WAIT_BY_FILE: [libc::c_long; 4] = [libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev];

/// Returns the kernel side's table: what is waited for, by number; 0 if unknown.
pub fn waits() -> [u8; CALLS] {
    let by_file = WAIT_BY_FILE.iter().map(|number| (*number, BY_FILE));
    encode_waits(WAITS.iter().map(|(number, wait)| (*number, wait.number() as u8)).chain(by_file))
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
