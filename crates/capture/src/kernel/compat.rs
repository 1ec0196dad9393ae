//! The system calls of 32-bit programs: their numbers, and the positions of their arguments.
//!
//! A 64-bit kernel executes such programs with the numbers of i386 (`arch/x86/entry/syscalls/syscall_32.tbl`) or of 32-bit Arm
//! (`arch/arm64/tools/syscall_32.tbl`). A file position takes two arguments, on Arm an even one and the next. 64-bit programs may make
//! calls of i386 too (`int 0x80`).
//!
//! Not read: the calls of x32, a 64-bit mode with short pointers that kernels have switched off (`syscall.x32`), and i386's `mmap` of
//! before 1999, whose arguments are in memory.

use super::calls::{BY_FILE, CALLS, Line, NONE, encode, encode_waits};
use model::{Call, Wait};

/// As in `common.h`: two arguments, the lower half first.
const WIDE: u8 = 0x40;

/// What one of the two has in addition to the common calls.
struct Abi {
    calls: &'static [Line],
    waits: &'static [(libc::c_long, Wait)],
    pwritev2: u32,
}

#[cfg(target_arch = "x86_64")]
const NATIVE: Abi = I386;
#[cfg(target_arch = "aarch64")]
const NATIVE: Abi = ARM;

/// The number of pwritev2.
pub const PWRITEV2: u32 = NATIVE.pwritev2;

/// Calls with the same numbers on i386 and Arm.
const COMMON: &[Line] = &[
    Line(3, Call::Read, 0, NONE, 2),
    Line(4, Call::Write, 0, NONE, 2),
    Line(5, Call::Open, NONE, NONE, NONE),
    Line(8, Call::Open, NONE, NONE, NONE),
    Line(9, Call::Link, NONE, NONE, NONE),
    Line(10, Call::Unlink, NONE, 0, NONE),
    Line(36, Call::Sync, NONE, NONE, NONE),
    Line(38, Call::Rename, NONE, NONE, NONE),
    Line(39, Call::Mkdir, NONE, NONE, NONE),
    Line(40, Call::Rmdir, NONE, NONE, NONE),
    Line(83, Call::Symlink, NONE, NONE, NONE),
    Line(92, Call::Truncate, NONE, 1, NONE),
    Line(93, Call::Ftruncate, 0, 1, NONE),
    Line(118, Call::Fsync, 0, NONE, NONE),
    Line(144, Call::Msync, NONE, NONE, 1),
    Line(145, Call::Readv, 0, NONE, NONE),
    Line(146, Call::Writev, 0, NONE, NONE),
    Line(148, Call::Fdatasync, 0, NONE, NONE),
    Line(187, Call::Sendfile, 0, NONE, 3),
    Line(192, Call::Mmap, NONE, NONE, 1),
    Line(239, Call::Sendfile, 0, NONE, 3),
    Line(426, Call::IoUringEnter, NONE, NONE, NONE),
    Line(437, Call::Open, NONE, NONE, NONE),
];

/// What a thread waits for; also in the calls with 64-bit times, which are the same everywhere.
const COMMON_WAITS: &[(libc::c_long, Wait)] = &[
    (55, Wait::Fcntl),
    (114, Wait::Child),
    (142, Wait::Poll),
    (143, Wait::Flock),
    (162, Wait::Timer),
    (168, Wait::Poll),
    (221, Wait::Fcntl),
    (240, Wait::Futex),
    (407, Wait::Timer),
    (413, Wait::Poll),
    (414, Wait::Poll),
    (417, Wait::Socket),
    (420, Wait::Futex),
    (422, Wait::Futex),
    (441, Wait::Poll),
    (449, Wait::Futex),
    (455, Wait::Futex),
];

#[cfg(any(test, target_arch = "x86_64"))]
const I386: Abi = Abi {
    calls: &[
        Line(180, Call::Pread64, 0, 3 | WIDE, 2),
        Line(181, Call::Pwrite64, 0, 3 | WIDE, 2),
        Line(193, Call::Truncate, NONE, 1 | WIDE, NONE),
        Line(194, Call::Ftruncate, 0, 1 | WIDE, NONE),
        Line(295, Call::Open, NONE, NONE, NONE),
        Line(296, Call::Mkdir, NONE, NONE, NONE),
        Line(301, Call::Unlink, NONE, 1, NONE),
        Line(302, Call::Rename, NONE, NONE, NONE),
        Line(303, Call::Link, NONE, NONE, NONE),
        Line(304, Call::Symlink, NONE, NONE, NONE),
        Line(313, Call::Splice, 2, NONE, 4),
        Line(314, Call::SyncFileRange, 0, 1 | WIDE, 3 | WIDE),
        Line(324, Call::Fallocate, 0, 2 | WIDE, 4 | WIDE),
        Line(333, Call::Preadv, 0, 3 | WIDE, NONE),
        Line(334, Call::Pwritev, 0, 3 | WIDE, NONE),
        Line(344, Call::Sync, 0, NONE, NONE),
        Line(353, Call::Rename, NONE, NONE, NONE),
        Line(377, Call::CopyRange, 2, NONE, 4),
        Line(378, Call::Preadv2, 0, 3 | WIDE, NONE),
        Line(379, Call::Pwritev2, 0, 3 | WIDE, NONE),
    ],
    waits: &[
        // socketcall
        (102, Wait::Socket),
        (256, Wait::Poll),
        (267, Wait::Timer),
        (284, Wait::Child),
        (308, Wait::Poll),
        (309, Wait::Poll),
        (319, Wait::Poll),
        (337, Wait::Socket),
        (345, Wait::Socket),
        (362, Wait::Socket),
        (364, Wait::Socket),
        (369, Wait::Socket),
        (370, Wait::Socket),
        (371, Wait::Socket),
        (372, Wait::Socket),
    ],
    pwritev2: 379,
};

#[cfg(any(test, target_arch = "aarch64"))]
const ARM: Abi = Abi {
    calls: &[
        Line(180, Call::Pread64, 0, 4 | WIDE, 2),
        Line(181, Call::Pwrite64, 0, 4 | WIDE, 2),
        Line(193, Call::Truncate, NONE, 2 | WIDE, NONE),
        Line(194, Call::Ftruncate, 0, 2 | WIDE, NONE),
        Line(322, Call::Open, NONE, NONE, NONE),
        Line(323, Call::Mkdir, NONE, NONE, NONE),
        Line(328, Call::Unlink, NONE, 1, NONE),
        Line(329, Call::Rename, NONE, NONE, NONE),
        Line(330, Call::Link, NONE, NONE, NONE),
        Line(331, Call::Symlink, NONE, NONE, NONE),
        Line(340, Call::Splice, 2, NONE, 4),
        // sync_file_range2: the flags come second.
        Line(341, Call::SyncFileRange, 0, 2 | WIDE, 4 | WIDE),
        Line(352, Call::Fallocate, 0, 2 | WIDE, 4 | WIDE),
        Line(361, Call::Preadv, 0, 3 | WIDE, NONE),
        Line(362, Call::Pwritev, 0, 3 | WIDE, NONE),
        Line(373, Call::Sync, 0, NONE, NONE),
        Line(382, Call::Rename, NONE, NONE, NONE),
        Line(391, Call::CopyRange, 2, NONE, 4),
        Line(392, Call::Preadv2, 0, 3 | WIDE, NONE),
        Line(393, Call::Pwritev2, 0, 3 | WIDE, NONE),
    ],
    waits: &[
        (252, Wait::Poll),
        (265, Wait::Timer),
        (280, Wait::Child),
        (283, Wait::Socket),
        (285, Wait::Socket),
        (289, Wait::Socket),
        (290, Wait::Socket),
        (291, Wait::Socket),
        (292, Wait::Socket),
        (296, Wait::Socket),
        (297, Wait::Socket),
        (298, Wait::Futex),
        (312, Wait::Futex),
        (335, Wait::Poll),
        (336, Wait::Poll),
        (346, Wait::Poll),
        (365, Wait::Socket),
        (366, Wait::Socket),
        (374, Wait::Socket),
    ],
    pwritev2: 393,
};

/// Like [`super::calls::table`].
pub fn table() -> [u8; CALLS * 4] {
    table_of(&NATIVE)
}

fn table_of(abi: &Abi) -> [u8; CALLS * 4] {
    encode(COMMON.iter().chain(abi.calls))
}

/// Like [`super::calls::waits`].
pub fn waits() -> [u8; CALLS] {
    waits_of(&NATIVE)
}

fn waits_of(abi: &Abi) -> [u8; CALLS] {
    // read, write, readv, writev.
    let by_file = [3, 4, 145, 146].map(|number| (number, BY_FILE));
    let named = COMMON_WAITS.iter().chain(abi.waits).map(|(number, wait)| (*number, wait.number() as u8));
    encode_waits(named.chain(by_file))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shapes of both, by name.
    const SHAPES: &[(&str, [u8; 4])] = &[
        ("read", [Call::Read as u8, 0, NONE, 2]),
        ("write", [Call::Write as u8, 0, NONE, 2]),
        ("open", [Call::Open as u8, NONE, NONE, NONE]),
        ("creat", [Call::Open as u8, NONE, NONE, NONE]),
        ("openat", [Call::Open as u8, NONE, NONE, NONE]),
        ("openat2", [Call::Open as u8, NONE, NONE, NONE]),
        ("unlink", [Call::Unlink as u8, NONE, 0, NONE]),
        ("unlinkat", [Call::Unlink as u8, NONE, 1, NONE]),
        ("rename", [Call::Rename as u8, NONE, NONE, NONE]),
        ("renameat", [Call::Rename as u8, NONE, NONE, NONE]),
        ("renameat2", [Call::Rename as u8, NONE, NONE, NONE]),
        ("sync", [Call::Sync as u8, NONE, NONE, NONE]),
        ("syncfs", [Call::Sync as u8, 0, NONE, NONE]),
        ("fsync", [Call::Fsync as u8, 0, NONE, NONE]),
        ("fdatasync", [Call::Fdatasync as u8, 0, NONE, NONE]),
        ("msync", [Call::Msync as u8, NONE, NONE, 1]),
        ("readv", [Call::Readv as u8, 0, NONE, NONE]),
        ("writev", [Call::Writev as u8, 0, NONE, NONE]),
        ("preadv", [Call::Preadv as u8, 0, 3 | WIDE, NONE]),
        ("pwritev", [Call::Pwritev as u8, 0, 3 | WIDE, NONE]),
        ("preadv2", [Call::Preadv2 as u8, 0, 3 | WIDE, NONE]),
        ("pwritev2", [Call::Pwritev2 as u8, 0, 3 | WIDE, NONE]),
        ("ftruncate", [Call::Ftruncate as u8, 0, 1, NONE]),
        ("fallocate", [Call::Fallocate as u8, 0, 2 | WIDE, 4 | WIDE]),
        ("truncate", [Call::Truncate as u8, NONE, 1, NONE]),
        ("link", [Call::Link as u8, NONE, NONE, NONE]),
        ("linkat", [Call::Link as u8, NONE, NONE, NONE]),
        ("symlink", [Call::Symlink as u8, NONE, NONE, NONE]),
        ("symlinkat", [Call::Symlink as u8, NONE, NONE, NONE]),
        ("mkdir", [Call::Mkdir as u8, NONE, NONE, NONE]),
        ("mkdirat", [Call::Mkdir as u8, NONE, NONE, NONE]),
        ("rmdir", [Call::Rmdir as u8, NONE, NONE, NONE]),
        ("sendfile", [Call::Sendfile as u8, 0, NONE, 3]),
        ("sendfile64", [Call::Sendfile as u8, 0, NONE, 3]),
        ("splice", [Call::Splice as u8, 2, NONE, 4]),
        ("copy_file_range", [Call::CopyRange as u8, 2, NONE, 4]),
        ("mmap2", [Call::Mmap as u8, NONE, NONE, 1]),
        ("io_uring_enter", [Call::IoUringEnter as u8, NONE, NONE, NONE]),
    ];

    /// Positions follow their buffers on i386, and take an even argument and the next on Arm.
    const ALIGNED: &[(&str, [u8; 4], [u8; 4])] = &[
        ("pread64", [Call::Pread64 as u8, 0, 3 | WIDE, 2], [Call::Pread64 as u8, 0, 4 | WIDE, 2]),
        ("pwrite64", [Call::Pwrite64 as u8, 0, 3 | WIDE, 2], [Call::Pwrite64 as u8, 0, 4 | WIDE, 2]),
        ("truncate64", [Call::Truncate as u8, NONE, 1 | WIDE, NONE], [Call::Truncate as u8, NONE, 2 | WIDE, NONE]),
        ("ftruncate64", [Call::Ftruncate as u8, 0, 1 | WIDE, NONE], [Call::Ftruncate as u8, 0, 2 | WIDE, NONE]),
    ];

    const WAITS: &[(Wait, &[&str])] = &[
        (Wait::Futex, &["futex", "futex_time64", "futex_waitv", "semtimedop_time64"]),
        (Wait::Timer, &["nanosleep", "clock_nanosleep", "clock_nanosleep_time64"]),
        (Wait::Poll, &["poll", "ppoll", "ppoll_time64", "_newselect", "pselect6", "pselect6_time64"]),
        (Wait::Poll, &["epoll_wait", "epoll_pwait", "epoll_pwait2"]),
        (Wait::Socket, &["recvfrom", "recvmsg", "recvmmsg", "recvmmsg_time64", "sendto", "sendmsg", "sendmmsg"]),
        (Wait::Socket, &["accept4", "connect"]),
        (Wait::Child, &["wait4", "waitid"]),
        (Wait::Fcntl, &["fcntl", "fcntl64"]),
        (Wait::Flock, &["flock"]),
    ];

    /// Compares a table with the numbers in the kernel's headers for programs.
    fn agrees_with(abi: &Abi, number: impl Fn(&str) -> usize, own: &[(&str, [u8; 4])], own_waits: &[(Wait, &[&str])]) {
        let (table, waits) = (table_of(abi), waits_of(abi));
        for (name, shape) in SHAPES.iter().chain(own) {
            assert_eq!(table[number(name) * 4..][..4], *shape, "{name}");
        }
        assert_eq!(SHAPES.len() + own.len(), COMMON.len() + abi.calls.len(), "each is compared");
        assert_eq!(number("pwritev2"), abi.pwritev2 as usize);
        for (wait, names) in WAITS.iter().chain(own_waits) {
            for name in *names {
                assert_eq!(waits[number(name)], wait.number() as u8, "{name}");
            }
        }
        let compared: usize = WAITS.iter().chain(own_waits).map(|(_, names)| names.len()).sum();
        // futex_wait is younger than the headers of Debian 12.
        assert_eq!(compared + 1, COMMON_WAITS.len() + abi.waits.len(), "each is compared");
    }

    #[test]
    fn numbers_of_i386_are_those_of_kernel_headers() {
        let header = "/usr/include/x86_64-linux-gnu/asm/unistd_32.h";
        let Ok(text) = std::fs::read_to_string(header) else {
            println!("SKIP numbers_of_i386_are_those_of_kernel_headers: {header} is not installed");
            return;
        };
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("#define __NR_{name} ")));
            line.unwrap_or_else(|| panic!("no {name} in {header}")).trim().parse().unwrap()
        };
        let mut own: Vec<_> = ALIGNED.iter().map(|(name, shape, _)| (*name, *shape)).collect();
        own.push(("sync_file_range", [Call::SyncFileRange as u8, 0, 1 | WIDE, 3 | WIDE]));
        agrees_with(&I386, number, &own, &[(Wait::Socket, &["socketcall"])]);
    }

    #[test]
    fn numbers_of_arm_are_those_of_kernel_headers() {
        // Some releases put the common numbers into a file of their own.
        let directory = "/usr/arm-linux-gnueabihf/include/asm";
        let read = |file: &str| std::fs::read_to_string(format!("{directory}/{file}")).unwrap_or_default();
        let text = read("unistd-common.h") + &read("unistd-eabi.h");
        if text.is_empty() {
            println!("SKIP numbers_of_arm_are_those_of_kernel_headers: linux-libc-dev-armhf-cross is not installed");
            return;
        }
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("#define __NR_{name} ")));
            let value = line.unwrap_or_else(|| panic!("no {name} in {directory}")).trim();
            let value = value.trim_start_matches("(__NR_SYSCALL_BASE +").trim_end_matches(')').trim();
            value.parse().unwrap_or_else(|_| panic!("{name} is {value}"))
        };
        let mut own: Vec<_> = ALIGNED.iter().map(|(name, _, shape)| (*name, *shape)).collect();
        // sync_file_range2: the flags come second.
        own.push(("arm_sync_file_range", [Call::SyncFileRange as u8, 0, 2 | WIDE, 4 | WIDE]));
        agrees_with(
            &ARM,
            number,
            &own,
            &[(Wait::Socket, &["send", "recv", "accept"]), (Wait::Futex, &["semop", "semtimedop"])],
        );
    }
}
