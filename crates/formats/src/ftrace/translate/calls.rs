//! System calls: what a thread is inside of, and which file a descriptor means.
//!
//! ftrace records numbers of descriptors and, from within the file system, inodes. Which inode a descriptor means is learnt
//! from any call with it that the file system said something of, also a later one: the trace is read twice, and the first
//! time only learns ([`Learned`]). A descriptor is itself from its opening to its closing.
//!
//! *Uncertainty*: of a descriptor that never reached a file system whose events were recorded nothing is known, and its
//! calls are left out, like those on pipes and sockets. Where a read or write without a position happened is known if the
//! trace saw the file's position move from the start, or an event of the file system had it.

use super::extents::File;
use crate::ftrace::calls::{DescriptorChange, Machine, Shape};
use model::event::flags;
use std::collections::{HashMap, HashSet};

/// A descriptor of a process, and how often that number was given out before.
type Opened = (u32, i32, u32);

/// What the first reading learnt.
#[derive(Debug, Clone, Default)]
pub struct Learned {
    pub files: HashMap<Opened, File>,
    /// Files that have pages, so that they are no folders.
    pub regular: HashSet<File>,
    /// Calls without a descriptor that are about a file: thread, start.
    pub about_files: HashSet<(u32, u64)>,
    /// Metadata blocks that a commit left to be written home: file system and transaction to pages of the disk.
    pub logged: HashMap<(u32, u32), Vec<u64>>,
    /// Threads that make system calls.
    pub callers: HashSet<u32>,
}

/// A call that a thread is in.
#[derive(Debug, Clone)]
pub struct Call {
    pub shape: Shape,
    pub start_ns: u64,
    pub args: [u64; 6],
    pub fd: i32,
    pub opened: Option<Opened>,
    pub file: Option<File>,
    pub fs_start_ns: u64,
    /// File system, transaction and handles.
    pub txn: Option<(u32, u32, u16)>,
    pub fs_writes: u32,
    pub cache_added: u16,
    /// Where the file system said that it begins.
    pub began_at: Option<u64>,
    /// Its record will be made.
    pub emitted: bool,
    /// The name that it was given.
    pub path: String,
}

/// Descriptors of all processes.
#[derive(Debug, Default)]
pub struct Descriptors {
    generations: HashMap<u32, HashMap<i32, u32>>,
    /// What a process inherited: its own descriptors to those of whoever made it.
    inherited: HashMap<Opened, Opened>,
    positions: HashMap<Opened, u64>,
    modes: HashMap<Opened, u16>,
}

impl Descriptors {
    /// What the number means now.
    pub fn opened(&self, tgid: u32, fd: i32) -> Opened {
        let generation = self.generations.get(&tgid).and_then(|all| all.get(&fd)).copied().unwrap_or(0);
        let own = (tgid, fd, generation);
        self.inherited.get(&own).copied().unwrap_or(own)
    }

    /// A process was made, and has what its maker has.
    pub fn inherit(&mut self, maker: u32, tgid: u32) {
        let all = self.generations.get(&maker).cloned().unwrap_or_default();
        for (fd, generation) in &all {
            let theirs = self.opened(maker, *fd);
            self.inherited.insert((tgid, *fd, *generation), theirs);
        }
        self.generations.insert(tgid, all);
    }

    /// The number was given out anew, or given back.
    pub fn renew(&mut self, tgid: u32, fd: i32, position: Option<u64>) -> Opened {
        let generation = self.generations.entry(tgid).or_default().entry(fd).or_default();
        *generation += 1;
        let opened = (tgid, fd, *generation);
        if let Some(at) = position {
            self.positions.insert(opened, at);
        }
        opened
    }

    /// How it was opened, as bits of a record's context.
    pub fn mode(&self, opened: Opened) -> u16 {
        self.modes.get(&opened).copied().unwrap_or(0)
    }

    /// It was opened so.
    pub fn set_mode(&mut self, opened: Opened, mode: u16) {
        self.modes.insert(opened, mode);
    }

    /// Where the file stands.
    pub fn position(&self, opened: Opened) -> Option<u64> {
        self.positions.get(&opened).copied()
    }

    /// It stands there now.
    pub fn moved(&mut self, opened: Opened, to: Option<u64>) {
        match to {
            Some(to) => self.positions.insert(opened, to),
            None => self.positions.remove(&opened),
        };
    }
}

/// A call that changes what descriptors mean.
#[derive(Debug, Clone, Copy)]
pub struct DescriptorCall {
    pub other: DescriptorChange,
    pub args: [u64; 6],
}

/// What a thread's entry into the kernel is.
pub fn entered(machine: Machine, number: u64, args: [u64; 6]) -> (Option<Shape>, Option<DescriptorCall>) {
    (machine.call(number), machine.other(number).map(|other| DescriptorCall { other, args }))
}

/// The flags of a read or write, as bits of a record's context.
pub fn own_mode(shape: Shape, args: [u64; 6]) -> u16 {
    // RWF_DSYNC and RWF_SYNC of uapi/linux/fs.h, on every machine.
    const SYNCED: u64 = 0x2 | 0x4;
    let given = shape.how.map_or(0, |i| args[usize::from(i)]);
    if shape.call.writes() && given & SYNCED != 0 { flags::SYNC_FILE } else { 0 }
}

/// The flags of an open: whether it appends, and bits of a record's context.
pub fn mode(machine: Machine, given: u64) -> (bool, u16) {
    // The numbers of amd64 (asm-generic/fcntl.h) and of arm64 (its uapi/asm/fcntl.h); O_SYNC is O_DSYNC and one bit more.
    let (append, dsync) = (0o2000, 0o10000);
    let direct = if machine == Machine::X86_64 { 0o40000 } else { 0o200_000 };
    let bit = |set: u64, bit: u16| if given & set != 0 { bit } else { 0 };
    (given & append != 0, bit(direct, flags::DIRECT) | bit(dsync, flags::SYNC_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_that_say_so_are_synchronous() {
        let of =
            |machine: Machine, number, how| machine.call(number).map(|shape| own_mode(shape, [3, 0, 1, 0, 0, how]));
        for (machine, pwritev, pwritev2, preadv2) in
            [(Machine::X86_64, 296, 328, 327), (Machine::Generic, 70, 287, 286)]
        {
            assert_eq!([0x2, 0x4, 0x6, 0x12].map(|how| of(machine, pwritev2, how)), [Some(flags::SYNC_FILE); 4]);
            assert_eq!([0, 0x1, 0x8, 0x10].map(|how| of(machine, pwritev2, how)), [Some(0); 4]);
            // What stands in the register of an argument that the call does not have.
            assert_eq!([of(machine, pwritev, 0x2), of(machine, preadv2, 0x2)], [Some(0); 2]);
        }
    }
}
