//! Disks that are backed by other disks or by files.
//!
//! The kernel carries out a command of a loop disk in a worker that reads and writes a file on the disk below. Whoever is
//! charged for the upper command is charged for the lower ones. When the upper command is issued, it is noted as the writer
//! of its pages of the file below, so that a later writeback finds it; reads, flushes and direct I/O below are matched to
//! the upper commands in flight. (The device mapper needs none of this: its bios name the bio that they were made from.)
//!
//! *Uncertainty*: the kernel does not report which command a worker is serving. Writes and reads are matched by range; an
//! offset of the loop disk in its file (losetup -o) is not known, so there the match falls back to any command in flight.

use crate::actor::{Charge, Source};
use crate::hash::FastMap;
use crate::pages::FileKey;
use crate::{Backing, Config};
use model::{Confidence, DiskOp};

/// A command in flight on a disk that is backed by a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpperCommand {
    pub command: u64,
    pub file: FileKey,
    /// First byte in the file.
    pub pos: u64,
    pub bytes: u64,
    pub op: DiskOp,
    pub issue_ns: u64,
    pub cpu: u16,
}

impl UpperCommand {
    fn overlaps(&self, pos: u64, bytes: u64) -> bool {
        self.pos < pos.saturating_add(bytes) && pos < self.pos.saturating_add(self.bytes)
    }
}

/// The backing of disks, and the commands in flight there.
#[derive(Default)]
pub(crate) struct Stack {
    on_file: FastMap<u32, FileKey>,
    files: FastMap<FileKey, u32>,
    in_flight: Vec<UpperCommand>,
    /// Their commands, and those in flight for so long that they were considered lost.
    open: FastMap<u64, ()>,
    /// The command that each worker was last seen to serve.
    workers: FastMap<u32, u64>,
}

impl Stack {
    pub(crate) fn new(config: &Config) -> Self {
        let mut stack = Self::default();
        for s in &config.stacked {
            if let Backing::File { dev, ino } = s.backing {
                stack.on_file.insert(s.disk, (dev, ino));
                stack.files.insert((dev, ino), s.disk);
            }
        }
        stack
    }

    /// Returns the file that backs a disk.
    pub(crate) fn file_below(&self, disk: u32) -> Option<FileKey> {
        self.on_file.get(&disk).copied()
    }

    pub(crate) fn issued(&mut self, upper: UpperCommand) {
        // A command whose end was lost must not stay forever.
        if self.in_flight.len() >= 4096 {
            self.in_flight.remove(0);
        }
        self.open.insert(upper.command, ());
        self.in_flight.push(upper);
    }

    /// Whether the command is in flight.
    pub(crate) fn is_open(&self, command: u64) -> bool {
        self.open.contains_key(&command)
    }

    /// Ends the trace: nothing is in flight any more.
    pub(crate) fn finish(&mut self) {
        self.open.clear();
    }

    pub(crate) fn done(&mut self, command: u64) {
        if self.open.remove(&command).is_none() {
            return;
        }
        self.in_flight.retain(|u| u.command != command);
        self.workers.retain(|_, served| *served != command);
    }

    /// Records that a worker was seen to write a range of a file.
    pub(crate) fn serve(&mut self, tid: u32, file: FileKey, pos: u64, bytes: u64) {
        if let Some(u) = self.in_flight.iter().find(|u| u.file == file && u.overlaps(pos, bytes)) {
            self.workers.insert(tid, u.command);
        }
    }

    /// Returns the command that a worker serves on this file system. The kernel's workers serve many masters.
    pub(crate) fn served_by(&self, tid: u32, dev: u32) -> Option<u64> {
        let command = self.workers.get(&tid).copied()?;
        self.in_flight.iter().any(|u| u.command == command && u.file.0 == dev).then_some(command)
    }

    /// Returns the upper commands served by a kernel thread's read of the file below.
    pub(crate) fn commands_for_read(&self, file: FileKey, pos: u64, bytes: u64) -> Vec<(UpperCommand, Confidence)> {
        let reading = || self.in_flight.iter().filter(|u| u.file == file && u.op == DiskOp::Read);
        let exact: Vec<_> =
            reading().filter(|u| u.overlaps(pos, bytes)).map(|u| (*u, Confidence::Structural)).collect();
        if exact.is_empty() { reading().map(|u| (*u, Confidence::Interval)).collect() } else { exact }
    }

    /// Returns the upper flushes in flight on files of the disk below. `same_disk` decides whether a file system is on that
    /// disk.
    pub(crate) fn commands_for_flush(&self, same_disk: impl Fn(u32) -> bool) -> Vec<(UpperCommand, Confidence)> {
        let on = |u: &&UpperCommand| u.op == DiskOp::Flush && same_disk(u.file.0);
        self.in_flight.iter().filter(on).map(|u| (*u, Confidence::Interval)).collect()
    }

    /// Returns the upper commands that a kernel thread's direct I/O may serve: same direction and size first.
    pub(crate) fn commands_for_direct_io(
        &self,
        op: DiskOp,
        bytes: u64,
        same_disk: impl Fn(u32) -> bool,
    ) -> Vec<(UpperCommand, Confidence)> {
        let on = || self.in_flight.iter().filter(|u| u.op == op && same_disk(u.file.0));
        let sized: Vec<_> = on().filter(|u| u.bytes == bytes).map(|u| (*u, Confidence::Interval)).collect();
        if sized.is_empty() { on().map(|u| (*u, Confidence::Guess)).collect() } else { sized }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_flight.len() + self.open.len() + self.workers.len()
    }
}

/// Divides the charge equally among the upper commands.
pub(crate) fn divide_charge(uppers: &[(UpperCommand, Confidence)], weight: f64) -> Vec<Charge> {
    let each = weight / uppers.len().max(1) as f64;
    uppers
        .iter()
        .map(|(u, confidence)| Charge {
            source: Source::Command(u.command),
            weight: each,
            confidence: *confidence,
            via: "stacked",
            span: u.command,
        })
        .collect()
}
