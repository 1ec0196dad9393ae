//! System calls: the call that a thread is in, and the file of a descriptor.
//!
//! ftrace records descriptor numbers and, from within the file system, inodes. The inode of a descriptor is learnt from any
//! call with it that caused an event of the file system, even a later one: the trace is read twice, and the first pass only
//! learns ([`FirstPassFacts`]). A descriptor keeps its identity from open to close.
//!
//! *Uncertainty*: nothing is known of a descriptor that never reached a file system whose events were recorded, and its
//! calls are left out, like those on pipes and sockets. The offset of a read or write without a position is known if the
//! trace saw the file's position move from the start, or an event of the file system had it.

use super::extents::File;
use crate::ftrace::calls::{CallArguments, DescriptorChange, Machine};
use model::Call as Name;
use model::event::flags;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A descriptor of a process, and how often that number was reused before.
type DescriptorId = (u32, i32, u32);

/// What the first pass learnt.
#[derive(Debug, Clone, Default)]
pub struct FirstPassFacts {
    pub files: HashMap<DescriptorId, File>,
    /// Files that have pages and thus are not directories.
    pub regular: HashSet<File>,
    /// Calls without a descriptor that are about a file: thread, start.
    pub about_files: HashSet<(u32, u64)>,
    /// Metadata blocks that a commit left to be written in place: file system and transaction to pages of the disk.
    pub logged: HashMap<(u32, u32), Vec<u64>>,
    /// Threads that make system calls.
    pub callers: HashSet<u32>,
    /// Threads whose sleeps matter at any time: they store something, or mark intervals.
    pub sleepers: HashSet<u32>,
    /// Disks that drivers' events name.
    pub disks: BTreeMap<Box<str>, u32>,
}

/// A call that a thread is in.
#[derive(Debug, Clone)]
pub struct Call {
    pub shape: CallArguments,
    pub start_ns: u64,
    pub args: [u64; 6],
    pub fd: i32,
    pub opened: Option<DescriptorId>,
    pub file: Option<File>,
    pub fs_start_ns: u64,
    /// File system, transaction and handles.
    pub txn: Option<(u32, u32, u16)>,
    pub fs_writes: u32,
    pub cache_added: u16,
    /// The offset at which it begins, from the file system.
    pub began_at: Option<u64>,
    /// Whether its record will be made.
    pub emitted: bool,
    /// The path that it was given.
    pub path: String,
}

/// Descriptors of all processes.
#[derive(Debug, Default)]
pub struct Descriptors {
    generations: HashMap<u32, HashMap<i32, u32>>,
    /// Descriptors that share what another one opened: those inherited from the parent, and duplicates.
    inherited: HashMap<DescriptorId, DescriptorId>,
    positions: HashMap<DescriptorId, u64>,
    modes: HashMap<DescriptorId, u16>,
}

impl Descriptors {
    /// The current descriptor of a number.
    pub fn opened(&self, tgid: u32, fd: i32) -> DescriptorId {
        let generation = self.generations.get(&tgid).and_then(|all| all.get(&fd)).copied().unwrap_or(0);
        let own = (tgid, fd, generation);
        self.inherited.get(&own).copied().unwrap_or(own)
    }

    /// A process was created, and inherits its parent's descriptors.
    pub fn inherit(&mut self, maker: u32, tgid: u32) {
        let all = self.generations.get(&maker).cloned().unwrap_or_default();
        for (fd, generation) in &all {
            let theirs = self.opened(maker, *fd);
            self.inherited.insert((tgid, *fd, *generation), theirs);
        }
        self.generations.insert(tgid, all);
    }

    /// The number became a duplicate of a descriptor: they share the file, its position and the flags with which it was opened.
    pub fn share(&mut self, tgid: u32, fd: i32, from: DescriptorId) {
        // A descriptor duplicated onto itself, or onto another duplicate, stays what it is.
        if self.opened(tgid, fd) == from {
            return;
        }
        let (_, _, generation) = self.renew(tgid, fd, None);
        self.inherited.insert((tgid, fd, generation), from);
    }

    /// The number was reused or closed.
    pub fn renew(&mut self, tgid: u32, fd: i32, position: Option<u64>) -> DescriptorId {
        let generation = self.generations.entry(tgid).or_default().entry(fd).or_default();
        *generation += 1;
        let opened = (tgid, fd, *generation);
        if let Some(at) = position {
            self.positions.insert(opened, at);
        }
        opened
    }

    /// Its open flags, as bits of a record's context.
    pub fn mode(&self, opened: DescriptorId) -> u16 {
        self.modes.get(&opened).copied().unwrap_or(0)
    }

    /// Sets its open flags.
    pub fn set_mode(&mut self, opened: DescriptorId, mode: u16) {
        self.modes.insert(opened, mode);
    }

    /// The current position of the file.
    pub fn position(&self, opened: DescriptorId) -> Option<u64> {
        self.positions.get(&opened).copied()
    }

    /// Sets the current position.
    pub fn moved(&mut self, opened: DescriptorId, to: Option<u64>) {
        match to {
            Some(to) => self.positions.insert(opened, to),
            None => self.positions.remove(&opened),
        };
    }
}

/// A call that changes what descriptors refer to.
#[derive(Debug, Clone, Copy)]
pub struct DescriptorCall {
    pub other: DescriptorChange,
    pub args: [u64; 6],
}

/// Interprets a thread's entry into the kernel.
pub fn interpret_entry(
    machine: Machine,
    number: u64,
    args: [u64; 6],
) -> (Option<CallArguments>, Option<DescriptorCall>) {
    // AT_REMOVEDIR of uapi/linux/fcntl.h, on every machine: unlinkat is rmdir.
    const AT_REMOVEDIR: u64 = 0x200;
    let mut call = machine.file_call(number);
    if let Some(CallArguments { call: name @ Name::Unlink, flags: Some(at), .. }) = &mut call
        && args[usize::from(*at)] & AT_REMOVEDIR != 0
    {
        *name = Name::Rmdir;
    }
    (call, machine.descriptor_change(number).map(|other| DescriptorCall { other, args }))
}

/// Whether this command of `fcntl` duplicates the descriptor.
pub fn is_duplication(command: u64) -> bool {
    // F_DUPFD and F_DUPFD_CLOEXEC of uapi/linux/fcntl.h, on every machine; the command is an int.
    matches!(command as u32, 0 | 1030)
}

/// Whether a call that ended changed something in storage, as `syscalls.bpf.c` has it: what its thread does between such calls matters.
pub fn is_store(call: &Call) -> bool {
    // O_CREAT of asm-generic/fcntl.h, on every machine that Android runs on.
    const O_CREAT: u64 = 0o100;
    let CallArguments { call: name, pos, .. } = call.shape;
    match name {
        Name::Open => call.txn.is_some() || pos.is_some_and(|i| call.args[usize::from(i)] & O_CREAT != 0),
        Name::Lseek | Name::IoUringEnter | Name::Mmap => false,
        _ => !name.reads(),
    }
}

/// The flags of a read or write, as bits of a record's context.
pub fn call_mode(shape: CallArguments, args: [u64; 6]) -> u16 {
    // RWF_DSYNC and RWF_SYNC of uapi/linux/fs.h, on every machine.
    const RWF_SYNC_BITS: u64 = 0x2 | 0x4;
    let given = shape.flags.map_or(0, |i| args[usize::from(i)]);
    if shape.call.writes() && given & RWF_SYNC_BITS != 0 { flags::SYNC_FILE } else { 0 }
}

/// The flags of an open: whether it appends, and bits of a record's context.
pub fn open_mode(machine: Machine, given: u64) -> (bool, u16) {
    // The values of amd64 (asm-generic/fcntl.h) and of arm64 (its uapi/asm/fcntl.h); O_SYNC is O_DSYNC and one more bit.
    let (append, dsync) = (0o2000, 0o10000);
    let direct = if machine == Machine::X86_64 { 0o40000 } else { 0o200_000 };
    let bit = |set: u64, bit: u16| if given & set != 0 { bit } else { 0 };
    (given & append != 0, bit(direct, flags::DIRECT) | bit(dsync, flags::SYNC_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlinkat_of_a_directory_is_rmdir() {
        let name = |machine, number, flags| {
            interpret_entry(machine, number, [3, 0, flags, 0, 0, 0]).0.map(|shape: CallArguments| shape.call)
        };
        for (machine, unlinkat) in [(Machine::X86_64, 263), (Machine::Generic, 35)] {
            assert_eq!(name(machine, unlinkat, 0x200), Some(Name::Rmdir));
            assert_eq!(name(machine, unlinkat, 0), Some(Name::Unlink));
        }
        // The third argument of unlink is whatever the register has.
        assert_eq!(name(Machine::X86_64, 87, 0x200), Some(Name::Unlink));
    }

    #[test]
    fn only_writes_that_say_so_are_synchronous() {
        let of = |machine: Machine, number, how| {
            machine.file_call(number).map(|shape| call_mode(shape, [3, 0, 1, 0, 0, how]))
        };
        for (machine, pwritev, pwritev2, preadv2) in
            [(Machine::X86_64, 296, 328, 327), (Machine::Generic, 70, 287, 286)]
        {
            assert_eq!([0x2, 0x4, 0x6, 0x12].map(|how| of(machine, pwritev2, how)), [Some(flags::SYNC_FILE); 4]);
            assert_eq!([0, 0x1, 0x8, 0x10].map(|how| of(machine, pwritev2, how)), [Some(0); 4]);
            // The register of an argument that the call does not have may hold anything.
            assert_eq!([of(machine, pwritev, 0x2), of(machine, preadv2, 0x2)], [Some(0); 2]);
        }
    }
}
