//! System call numbers, by architecture: a trace may come from another architecture than the reader's.

use model::Call;

/// Which arguments of a call are what: the index of each, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub call: Call,
    pub fd: Option<u8>,
    /// The position in it; for an open, its flags.
    pub pos: Option<u8>,
    pub bytes: Option<u8>,
    /// The flags of this read or write (RWF_…).
    pub how: Option<u8>,
}

/// A call that changes what a file descriptor refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorChange {
    /// `close`.
    Close,
    /// `dup`, `dup2`, `dup3`: the result refers to the same file as the first argument.
    Dup,
    /// `fcntl`: it may duplicate the descriptor, too.
    Control,
    /// `lseek`: the result is the position.
    Seek,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// amd64.
    X86_64,
    /// arm64, and all later ones: riscv64, loong64.
    Generic,
}

impl Machine {
    /// Returns the one that `uname -m` names.
    pub fn of(machine: &str) -> Option<Self> {
        match machine {
            "x86_64" => Some(Self::X86_64),
            "aarch64" | "riscv64" | "loongarch64" => Some(Self::Generic),
            _ => None,
        }
    }

    fn column<T: Copy>(self, both: (T, T)) -> T {
        if self == Self::X86_64 { both.0 } else { both.1 }
    }

    /// The call of that number, if it is about files.
    pub fn call(self, number: u64) -> Option<Shape> {
        let number = u16::try_from(number).ok().filter(|n| *n != NO)?;
        let line = LINES.iter().find(|l| self.column(l.0) == number)?;
        let arg = |n: u8| (n != NONE).then_some(n);
        let how = [PREADV2, PWRITEV2].contains(&line.0).then_some(5);
        Some(Shape { call: line.1, fd: arg(line.2), pos: arg(line.3), bytes: arg(line.4), how })
    }

    /// The call of that number, if it changes descriptors or positions.
    pub fn other(self, number: u64) -> Option<DescriptorChange> {
        let number = u16::try_from(number).ok().filter(|n| *n != NO)?;
        OTHERS.iter().find(|(both, _)| self.column(*both) == number).map(|(_, other)| *other)
    }
}

const NONE: u8 = 0xff;
/// No such call on that machine.
const NO: u16 = u16::MAX;

/// The calls whose last argument has flags.
const PREADV2: (u16, u16) = (327, 286);
const PWRITEV2: (u16, u16) = (328, 287);

struct Line((u16, u16), Call, u8, u8, u8);

/// Numbers on amd64 (arch/x86/entry/syscalls/syscall_64.tbl) and on newer machines (include/uapi/asm-generic/unistd.h).
const LINES: &[Line] = &[
    Line((0, 63), Call::Read, 0, NONE, 2),
    Line((17, 67), Call::Pread64, 0, 3, 2),
    Line((19, 65), Call::Readv, 0, NONE, NONE),
    Line((295, 69), Call::Preadv, 0, 3, NONE),
    Line(PREADV2, Call::Preadv2, 0, 3, NONE),
    Line((1, 64), Call::Write, 0, NONE, 2),
    Line((18, 68), Call::Pwrite64, 0, 3, 2),
    Line((20, 66), Call::Writev, 0, NONE, NONE),
    Line((296, 70), Call::Pwritev, 0, 3, NONE),
    Line(PWRITEV2, Call::Pwritev2, 0, 3, NONE),
    Line((74, 82), Call::Fsync, 0, NONE, NONE),
    Line((75, 83), Call::Fdatasync, 0, NONE, NONE),
    Line((277, 84), Call::SyncFileRange, 0, 1, 2),
    Line((77, 46), Call::Ftruncate, 0, 1, NONE),
    Line((285, 47), Call::Fallocate, 0, 2, 3),
    Line((87, NO), Call::Unlink, NONE, NONE, NONE),
    Line((263, 35), Call::Unlink, NONE, NONE, NONE),
    Line((82, NO), Call::Rename, NONE, NONE, NONE),
    Line((264, 38), Call::Rename, NONE, NONE, NONE),
    Line((316, 276), Call::Rename, NONE, NONE, NONE),
    Line((76, 45), Call::Truncate, NONE, 1, NONE),
    Line((86, NO), Call::Link, NONE, NONE, NONE),
    Line((265, 37), Call::Link, NONE, NONE, NONE),
    Line((88, NO), Call::Symlink, NONE, NONE, NONE),
    Line((266, 36), Call::Symlink, NONE, NONE, NONE),
    Line((83, NO), Call::Mkdir, NONE, NONE, NONE),
    Line((258, 34), Call::Mkdir, NONE, NONE, NONE),
    Line((84, NO), Call::Rmdir, NONE, NONE, NONE),
    Line((2, NO), Call::Open, NONE, 1, NONE),
    Line((85, NO), Call::Open, NONE, NONE, NONE),
    Line((257, 56), Call::Open, NONE, 2, NONE),
    Line((437, 437), Call::Open, NONE, NONE, NONE),
    Line((26, 227), Call::Msync, NONE, NONE, 1),
    Line((40, 71), Call::Sendfile, 0, NONE, 3),
    Line((275, 76), Call::Splice, 2, NONE, 4),
    Line((326, 285), Call::CopyRange, 2, NONE, 4),
    Line((162, 81), Call::Sync, NONE, NONE, NONE),
    Line((306, 267), Call::Sync, 0, NONE, NONE),
];

const OTHERS: &[((u16, u16), DescriptorChange)] = &[
    ((3, 57), DescriptorChange::Close),
    ((32, 23), DescriptorChange::Dup),
    ((33, NO), DescriptorChange::Dup),
    ((292, 24), DescriptorChange::Dup),
    ((72, 25), DescriptorChange::Control),
    ((8, 62), DescriptorChange::Seek),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syscall_numbers_depend_on_architecture() {
        let call = |machine: Machine, n| machine.call(n).map(|s| s.call);
        assert_eq!(call(Machine::X86_64, 18), Some(Call::Pwrite64));
        assert_eq!(call(Machine::Generic, 68), Some(Call::Pwrite64));
        assert_eq!(call(Machine::Generic, 18), None);
        assert_eq!(Machine::X86_64.other(3), Some(DescriptorChange::Close));
        assert_eq!([u64::from(NO), u64::MAX].map(|n| call(Machine::Generic, n)), [None; 2]);
        assert_eq!(Machine::of("i686"), None);
        let how = |machine: Machine, n| machine.call(n).and_then(|shape| shape.how);
        assert_eq!([296, 328].map(|n| how(Machine::X86_64, n)), [None, Some(5)], "pwritev has no sixth argument");
        assert_eq!([70, 287].map(|n| how(Machine::Generic, n)), [None, Some(5)]);
    }
}
