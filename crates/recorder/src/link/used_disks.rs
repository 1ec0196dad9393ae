//! Determines which disks hold the files that were used.

use model::Layer;
use model::table::{File, Span};
use std::collections::{HashMap, HashSet};

/// Files that recorded calls used, and their file systems. A file without a name is reported after the calls that used it.
#[derive(Debug, Default)]
pub struct UsedDisks {
    /// File system of each file.
    file_systems: HashMap<u64, u32>,
    by_operations: HashSet<u64>,
    by_anyone: HashSet<u64>,
}

impl UsedDisks {
    pub fn file(&mut self, row: &File) {
        self.file_systems.insert(row.id, row.dev);
    }

    pub fn span(&mut self, row: &Span) {
        if row.layer == Layer::Syscall
            && let Some(file) = row.file
        {
            self.by_anyone.insert(file);
            if row.operation.is_some() {
                self.by_operations.insert(file);
            }
        }
    }

    /// Returns the disks of the files that operations used; if there was no operation, those of files that any recorded
    /// call used.
    pub fn holders(&self, partitions: &[(u32, u32)]) -> HashSet<u32> {
        let used = if self.by_operations.is_empty() { &self.by_anyone } else { &self.by_operations };
        let mut all = HashSet::new();
        for dev in used.iter().filter_map(|file| self.file_systems.get(file)).collect::<HashSet<_>>() {
            let mut disks = partitions.iter().filter(|(part, _)| part == dev).map(|(_, disk)| *disk).peekable();
            if disks.peek().is_none() {
                all.insert(*dev);
            }
            all.extend(disks);
        }
        all
    }
}
