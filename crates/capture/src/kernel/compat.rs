//! The system calls of 32-bit programs: their numbers, and the positions of their arguments.
//!
//! A 64-bit kernel executes such programs with the numbers of i386 (`arch/x86/entry/syscalls/syscall_32.tbl`) or of 32-bit Arm
//! (`arch/arm64/tools/syscall_32.tbl`). A file position takes two arguments, on Arm an even one and the next. 64-bit programs may make
//! calls of i386 too (`int 0x80`).
//!
//! Not read: the calls of x32, a 64-bit mode with short pointers that kernels have switched off (`syscall.x32`), and i386's `mmap` of
//! before 1999, whose arguments are in memory.

use super::calls::{CALLS, CallShape, NO_ARG, WAIT_DEPENDS_ON_FILE, encode_shapes, encode_waits};
use model::{Call, Wait};

/// As in `common.h`: two arguments, the lower half first.
const WIDE_ARG: u8 = 0x40;

/// What one of the two has in addition to the common calls.
struct Abi {
    calls: &'static [CallShape],
    waits: &'static [(libc::c_long, Wait)],
    pwritev2: u32,
}

#[cfg(target_arch = "x86_64")]
const NATIVE: Abi = I386;
#[cfg(target_arch = "aarch64")]
const NATIVE: Abi = ARM;

/// The number of pwritev2.
pub const PWRITEV2_NUMBER: u32 = NATIVE.pwritev2;

/// Calls with the same numbers on i386 and Arm.
const COMMON_SHAPES: &[CallShape] = &[
    CallShape(3, Call::Read, 0, NO_ARG, 2),
    CallShape(4, Call::Write, 0, NO_ARG, 2),
    CallShape(5, Call::Open, NO_ARG, NO_ARG, NO_ARG),
    CallShape(8, Call::Open, NO_ARG, NO_ARG, NO_ARG),
    CallShape(9, Call::Link, NO_ARG, NO_ARG, NO_ARG),
    CallShape(10, Call::Unlink, NO_ARG, 0, NO_ARG),
    CallShape(36, Call::Sync, NO_ARG, NO_ARG, NO_ARG),
    CallShape(38, Call::Rename, NO_ARG, NO_ARG, NO_ARG),
    CallShape(39, Call::Mkdir, NO_ARG, NO_ARG, NO_ARG),
    CallShape(40, Call::Rmdir, NO_ARG, NO_ARG, NO_ARG),
    CallShape(83, Call::Symlink, NO_ARG, NO_ARG, NO_ARG),
    CallShape(92, Call::Truncate, NO_ARG, 1, NO_ARG),
    CallShape(93, Call::Ftruncate, 0, 1, NO_ARG),
    CallShape(118, Call::Fsync, 0, NO_ARG, NO_ARG),
    CallShape(144, Call::Msync, NO_ARG, NO_ARG, 1),
    CallShape(145, Call::Readv, 0, NO_ARG, NO_ARG),
    CallShape(146, Call::Writev, 0, NO_ARG, NO_ARG),
    CallShape(148, Call::Fdatasync, 0, NO_ARG, NO_ARG),
    CallShape(187, Call::Sendfile, 0, NO_ARG, 3),
    CallShape(192, Call::Mmap, NO_ARG, NO_ARG, 1),
    CallShape(239, Call::Sendfile, 0, NO_ARG, 3),
    CallShape(426, Call::IoUringEnter, NO_ARG, NO_ARG, NO_ARG),
    CallShape(437, Call::Open, NO_ARG, NO_ARG, NO_ARG),
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
        CallShape(180, Call::Pread64, 0, 3 | WIDE_ARG, 2),
        CallShape(181, Call::Pwrite64, 0, 3 | WIDE_ARG, 2),
        CallShape(193, Call::Truncate, NO_ARG, 1 | WIDE_ARG, NO_ARG),
        CallShape(194, Call::Ftruncate, 0, 1 | WIDE_ARG, NO_ARG),
        CallShape(295, Call::Open, NO_ARG, NO_ARG, NO_ARG),
        CallShape(296, Call::Mkdir, NO_ARG, NO_ARG, NO_ARG),
        CallShape(301, Call::Unlink, NO_ARG, 1, NO_ARG),
        CallShape(302, Call::Rename, NO_ARG, NO_ARG, NO_ARG),
        CallShape(303, Call::Link, NO_ARG, NO_ARG, NO_ARG),
        CallShape(304, Call::Symlink, NO_ARG, NO_ARG, NO_ARG),
        CallShape(313, Call::Splice, 2, NO_ARG, 4),
        CallShape(314, Call::SyncFileRange, 0, 1 | WIDE_ARG, 3 | WIDE_ARG),
        CallShape(324, Call::Fallocate, 0, 2 | WIDE_ARG, 4 | WIDE_ARG),
        CallShape(333, Call::Preadv, 0, 3 | WIDE_ARG, NO_ARG),
        CallShape(334, Call::Pwritev, 0, 3 | WIDE_ARG, NO_ARG),
        CallShape(344, Call::Sync, 0, NO_ARG, NO_ARG),
        CallShape(353, Call::Rename, NO_ARG, NO_ARG, NO_ARG),
        CallShape(377, Call::CopyRange, 2, NO_ARG, 4),
        CallShape(378, Call::Preadv2, 0, 3 | WIDE_ARG, NO_ARG),
        CallShape(379, Call::Pwritev2, 0, 3 | WIDE_ARG, NO_ARG),
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
        CallShape(180, Call::Pread64, 0, 4 | WIDE_ARG, 2),
        CallShape(181, Call::Pwrite64, 0, 4 | WIDE_ARG, 2),
        CallShape(193, Call::Truncate, NO_ARG, 2 | WIDE_ARG, NO_ARG),
        CallShape(194, Call::Ftruncate, 0, 2 | WIDE_ARG, NO_ARG),
        CallShape(322, Call::Open, NO_ARG, NO_ARG, NO_ARG),
        CallShape(323, Call::Mkdir, NO_ARG, NO_ARG, NO_ARG),
        CallShape(328, Call::Unlink, NO_ARG, 1, NO_ARG),
        CallShape(329, Call::Rename, NO_ARG, NO_ARG, NO_ARG),
        CallShape(330, Call::Link, NO_ARG, NO_ARG, NO_ARG),
        CallShape(331, Call::Symlink, NO_ARG, NO_ARG, NO_ARG),
        CallShape(340, Call::Splice, 2, NO_ARG, 4),
        // sync_file_range2: the flags come second.
        CallShape(341, Call::SyncFileRange, 0, 2 | WIDE_ARG, 4 | WIDE_ARG),
        CallShape(352, Call::Fallocate, 0, 2 | WIDE_ARG, 4 | WIDE_ARG),
        CallShape(361, Call::Preadv, 0, 3 | WIDE_ARG, NO_ARG),
        CallShape(362, Call::Pwritev, 0, 3 | WIDE_ARG, NO_ARG),
        CallShape(373, Call::Sync, 0, NO_ARG, NO_ARG),
        CallShape(382, Call::Rename, NO_ARG, NO_ARG, NO_ARG),
        CallShape(391, Call::CopyRange, 2, NO_ARG, 4),
        CallShape(392, Call::Preadv2, 0, 3 | WIDE_ARG, NO_ARG),
        CallShape(393, Call::Pwritev2, 0, 3 | WIDE_ARG, NO_ARG),
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
    shapes_of(&NATIVE)
}

fn shapes_of(abi: &Abi) -> [u8; CALLS * 4] {
    encode_shapes(COMMON_SHAPES.iter().chain(abi.calls))
}

/// Like [`super::calls::waits`].
pub fn waits() -> [u8; CALLS] {
    waits_of(&NATIVE)
}

fn waits_of(abi: &Abi) -> [u8; CALLS] {
    // read, write, readv, writev.
    let by_file = [3, 4, 145, 146].map(|number| (number, WAIT_DEPENDS_ON_FILE));
    let named = COMMON_WAITS.iter().chain(abi.waits).map(|(number, wait)| (*number, wait.number() as u8));
    encode_waits(named.chain(by_file))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shapes of both, by name.
    const EXPECTED_SHAPES: &[(&str, [u8; 4])] = &[
        ("read", [Call::Read as u8, 0, NO_ARG, 2]),
        ("write", [Call::Write as u8, 0, NO_ARG, 2]),
        ("open", [Call::Open as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("creat", [Call::Open as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("openat", [Call::Open as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("openat2", [Call::Open as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("unlink", [Call::Unlink as u8, NO_ARG, 0, NO_ARG]),
        ("unlinkat", [Call::Unlink as u8, NO_ARG, 1, NO_ARG]),
        ("rename", [Call::Rename as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("renameat", [Call::Rename as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("renameat2", [Call::Rename as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("sync", [Call::Sync as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("syncfs", [Call::Sync as u8, 0, NO_ARG, NO_ARG]),
        ("fsync", [Call::Fsync as u8, 0, NO_ARG, NO_ARG]),
        ("fdatasync", [Call::Fdatasync as u8, 0, NO_ARG, NO_ARG]),
        ("msync", [Call::Msync as u8, NO_ARG, NO_ARG, 1]),
        ("readv", [Call::Readv as u8, 0, NO_ARG, NO_ARG]),
        ("writev", [Call::Writev as u8, 0, NO_ARG, NO_ARG]),
        ("preadv", [Call::Preadv as u8, 0, 3 | WIDE_ARG, NO_ARG]),
        ("pwritev", [Call::Pwritev as u8, 0, 3 | WIDE_ARG, NO_ARG]),
        ("preadv2", [Call::Preadv2 as u8, 0, 3 | WIDE_ARG, NO_ARG]),
        ("pwritev2", [Call::Pwritev2 as u8, 0, 3 | WIDE_ARG, NO_ARG]),
        ("ftruncate", [Call::Ftruncate as u8, 0, 1, NO_ARG]),
        ("fallocate", [Call::Fallocate as u8, 0, 2 | WIDE_ARG, 4 | WIDE_ARG]),
        ("truncate", [Call::Truncate as u8, NO_ARG, 1, NO_ARG]),
        ("link", [Call::Link as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("linkat", [Call::Link as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("symlink", [Call::Symlink as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("symlinkat", [Call::Symlink as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("mkdir", [Call::Mkdir as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("mkdirat", [Call::Mkdir as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("rmdir", [Call::Rmdir as u8, NO_ARG, NO_ARG, NO_ARG]),
        ("sendfile", [Call::Sendfile as u8, 0, NO_ARG, 3]),
        ("sendfile64", [Call::Sendfile as u8, 0, NO_ARG, 3]),
        ("splice", [Call::Splice as u8, 2, NO_ARG, 4]),
        ("copy_file_range", [Call::CopyRange as u8, 2, NO_ARG, 4]),
        ("mmap2", [Call::Mmap as u8, NO_ARG, NO_ARG, 1]),
        ("io_uring_enter", [Call::IoUringEnter as u8, NO_ARG, NO_ARG, NO_ARG]),
    ];

    /// Positions follow their buffers on i386, and take an even argument and the next on Arm.
    const EXPECTED_ALIGNED_SHAPES: &[(&str, [u8; 4], [u8; 4])] = &[
        ("pread64", [Call::Pread64 as u8, 0, 3 | WIDE_ARG, 2], [Call::Pread64 as u8, 0, 4 | WIDE_ARG, 2]),
        ("pwrite64", [Call::Pwrite64 as u8, 0, 3 | WIDE_ARG, 2], [Call::Pwrite64 as u8, 0, 4 | WIDE_ARG, 2]),
        (
            "truncate64",
            [Call::Truncate as u8, NO_ARG, 1 | WIDE_ARG, NO_ARG],
            [Call::Truncate as u8, NO_ARG, 2 | WIDE_ARG, NO_ARG],
        ),
        (
            "ftruncate64",
            [Call::Ftruncate as u8, 0, 1 | WIDE_ARG, NO_ARG],
            [Call::Ftruncate as u8, 0, 2 | WIDE_ARG, NO_ARG],
        ),
    ];

    const EXPECTED_WAITS: &[(Wait, &[&str])] = &[
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
    fn assert_agrees(
        abi: &Abi,
        number: impl Fn(&str) -> usize,
        own: &[(&str, [u8; 4])],
        own_waits: &[(Wait, &[&str])],
    ) {
        let (table, waits) = (shapes_of(abi), waits_of(abi));
        for (name, shape) in EXPECTED_SHAPES.iter().chain(own) {
            assert_eq!(table[number(name) * 4..][..4], *shape, "{name}");
        }
        assert_eq!(EXPECTED_SHAPES.len() + own.len(), COMMON_SHAPES.len() + abi.calls.len(), "each is compared");
        assert_eq!(number("pwritev2"), abi.pwritev2 as usize);
        for (wait, names) in EXPECTED_WAITS.iter().chain(own_waits) {
            for name in *names {
                assert_eq!(waits[number(name)], wait.number() as u8, "{name}");
            }
        }
        let compared: usize = EXPECTED_WAITS.iter().chain(own_waits).map(|(_, names)| names.len()).sum();
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
        let mut own: Vec<_> = EXPECTED_ALIGNED_SHAPES.iter().map(|(name, shape, _)| (*name, *shape)).collect();
        own.push(("sync_file_range", [Call::SyncFileRange as u8, 0, 1 | WIDE_ARG, 3 | WIDE_ARG]));
        assert_agrees(&I386, number, &own, &[(Wait::Socket, &["socketcall"])]);
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
        let mut own: Vec<_> = EXPECTED_ALIGNED_SHAPES.iter().map(|(name, _, shape)| (*name, *shape)).collect();
        // sync_file_range2: the flags come second.
        own.push(("arm_sync_file_range", [Call::SyncFileRange as u8, 0, 2 | WIDE_ARG, 4 | WIDE_ARG]));
        assert_agrees(
            &ARM,
            number,
            &own,
            &[(Wait::Socket, &["send", "recv", "accept"]), (Wait::Futex, &["semop", "semtimedop"])],
        );
    }
}
