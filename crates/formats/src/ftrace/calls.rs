//! System call numbers, by architecture: a trace may come from another architecture than the reader's.

use model::Call;

/// Which arguments of a call are what: the index of each, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallArguments {
    pub call: Call,
    pub fd: Option<u8>,
    /// The position in it; for an open, its flags.
    pub pos: Option<u8>,
    pub bytes: Option<u8>,
    /// The flags of this read or write (RWF_…).
    pub flags: Option<u8>,
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
    pub fn from_uname(machine: &str) -> Option<Self> {
        match machine {
            "x86_64" => Some(Self::X86_64),
            "aarch64" | "riscv64" | "loongarch64" => Some(Self::Generic),
            _ => None,
        }
    }

    fn number_of<T: Copy>(self, both: (T, T)) -> T {
        if self == Self::X86_64 { both.0 } else { both.1 }
    }

    /// The call of that number, if it is about files.
    pub fn file_call(self, number: u64) -> Option<CallArguments> {
        let number = u16::try_from(number).ok().filter(|n| *n != NO_NUMBER)?;
        let line = FILE_CALLS.iter().find(|l| self.number_of(l.0) == number)?;
        let arg = |n: u8| (n != NO_ARGUMENT).then_some(n);
        let how = match line.0 {
            PREADV2_NUMBERS | PWRITEV2_NUMBERS => Some(5),
            UNLINKAT_NUMBERS => Some(2),
            _ => None,
        };
        Some(CallArguments { call: line.1, fd: arg(line.2), pos: arg(line.3), bytes: arg(line.4), flags: how })
    }

    /// The call of that number, if it changes descriptors or positions.
    pub fn descriptor_change(self, number: u64) -> Option<DescriptorChange> {
        let number = u16::try_from(number).ok().filter(|n| *n != NO_NUMBER)?;
        DESCRIPTOR_CALLS.iter().find(|(both, _)| self.number_of(*both) == number).map(|(_, other)| *other)
    }
}

const NO_ARGUMENT: u8 = 0xff;
/// No such call on that machine.
const NO_NUMBER: u16 = u16::MAX;

/// The calls whose last argument has flags.
const UNLINKAT_NUMBERS: (u16, u16) = (263, 35);
const PREADV2_NUMBERS: (u16, u16) = (327, 286);
const PWRITEV2_NUMBERS: (u16, u16) = (328, 287);

struct FileCall((u16, u16), Call, u8, u8, u8);

/// Numbers on amd64 (arch/x86/entry/syscalls/syscall_64.tbl) and on newer machines (include/uapi/asm-generic/unistd.h).
const FILE_CALLS: &[FileCall] = &[
    FileCall((0, 63), Call::Read, 0, NO_ARGUMENT, 2),
    FileCall((17, 67), Call::Pread64, 0, 3, 2),
    FileCall((19, 65), Call::Readv, 0, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((295, 69), Call::Preadv, 0, 3, NO_ARGUMENT),
    FileCall(PREADV2_NUMBERS, Call::Preadv2, 0, 3, NO_ARGUMENT),
    FileCall((1, 64), Call::Write, 0, NO_ARGUMENT, 2),
    FileCall((18, 68), Call::Pwrite64, 0, 3, 2),
    FileCall((20, 66), Call::Writev, 0, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((296, 70), Call::Pwritev, 0, 3, NO_ARGUMENT),
    FileCall(PWRITEV2_NUMBERS, Call::Pwritev2, 0, 3, NO_ARGUMENT),
    FileCall((74, 82), Call::Fsync, 0, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((75, 83), Call::Fdatasync, 0, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((277, 84), Call::SyncFileRange, 0, 1, 2),
    FileCall((77, 46), Call::Ftruncate, 0, 1, NO_ARGUMENT),
    FileCall((285, 47), Call::Fallocate, 0, 2, 3),
    FileCall((87, NO_NUMBER), Call::Unlink, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall(UNLINKAT_NUMBERS, Call::Unlink, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((82, NO_NUMBER), Call::Rename, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((264, 38), Call::Rename, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((316, 276), Call::Rename, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((76, 45), Call::Truncate, NO_ARGUMENT, 1, NO_ARGUMENT),
    FileCall((86, NO_NUMBER), Call::Link, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((265, 37), Call::Link, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((88, NO_NUMBER), Call::Symlink, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((266, 36), Call::Symlink, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((83, NO_NUMBER), Call::Mkdir, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((258, 34), Call::Mkdir, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((84, NO_NUMBER), Call::Rmdir, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((2, NO_NUMBER), Call::Open, NO_ARGUMENT, 1, NO_ARGUMENT),
    FileCall((85, NO_NUMBER), Call::Open, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((257, 56), Call::Open, NO_ARGUMENT, 2, NO_ARGUMENT),
    FileCall((437, 437), Call::Open, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((26, 227), Call::Msync, NO_ARGUMENT, NO_ARGUMENT, 1),
    FileCall((40, 71), Call::Sendfile, 0, NO_ARGUMENT, 3),
    FileCall((275, 76), Call::Splice, 2, NO_ARGUMENT, 4),
    FileCall((326, 285), Call::CopyRange, 2, NO_ARGUMENT, 4),
    FileCall((162, 81), Call::Sync, NO_ARGUMENT, NO_ARGUMENT, NO_ARGUMENT),
    FileCall((306, 267), Call::Sync, 0, NO_ARGUMENT, NO_ARGUMENT),
];

const DESCRIPTOR_CALLS: &[((u16, u16), DescriptorChange)] = &[
    ((3, 57), DescriptorChange::Close),
    ((32, 23), DescriptorChange::Dup),
    ((33, NO_NUMBER), DescriptorChange::Dup),
    ((292, 24), DescriptorChange::Dup),
    ((72, 25), DescriptorChange::Control),
    ((8, 62), DescriptorChange::Seek),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syscall_numbers_depend_on_architecture() {
        let call = |machine: Machine, n| machine.file_call(n).map(|s| s.call);
        assert_eq!(call(Machine::X86_64, 18), Some(Call::Pwrite64));
        assert_eq!(call(Machine::Generic, 68), Some(Call::Pwrite64));
        assert_eq!(call(Machine::Generic, 18), None);
        assert_eq!(Machine::X86_64.descriptor_change(3), Some(DescriptorChange::Close));
        assert_eq!([u64::from(NO_NUMBER), u64::MAX].map(|n| call(Machine::Generic, n)), [None; 2]);
        assert_eq!(Machine::from_uname("i686"), None);
        let how = |machine: Machine, n| machine.file_call(n).and_then(|shape| shape.flags);
        assert_eq!([296, 328].map(|n| how(Machine::X86_64, n)), [None, Some(5)], "pwritev has no sixth argument");
        assert_eq!([70, 287].map(|n| how(Machine::Generic, n)), [None, Some(5)]);
    }
}
