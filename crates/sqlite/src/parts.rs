//! Determines what is at an offset of one of SQLite's files.
//!
//! The kernel shows a path, an offset and a length. SQLite's formats are fixed and documented
//! (<https://sqlite.org/fileformat2.html>), so these three determine which part of the file is accessed, without reading it
//! and without knowing anything about the program.

use crate::FileClass;

/// Size of a journal's header: SQLite overwrites it with as many zeros to end a transaction in PERSIST mode
/// (`zeroJournalHdr`).
pub const JOURNAL_HEADER_BYTES: u64 = 28;
/// Size of a WAL's header, before its first frame.
pub const WAL_HEADER_BYTES: u64 = 32;

/// Whether a read of `bytes` at `offset` is one that SQLite makes of a database's header: every transaction begins with a
/// read of 16 bytes at offset 24 (the change counter, `pagerLockDb` and `sqlite3PagerSharedLock` in SQLite's `pager.c`),
/// every open with one of 100 bytes at 0. Nothing else is likely to do that, but it is a guess.
pub fn reads_database_header(offset: u64, bytes: u64) -> bool {
    (offset, bytes) == (24, 16) || (offset, bytes) == (0, 100)
}

/// Determines the page size of a database from where it is written and read, in whole pages.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageGrid {
    smallest: Option<u64>,
    bits: u64,
}

impl PageGrid {
    /// Adds an access. An access smaller than the smallest page (512 bytes) concerns the header's fields and identifies
    /// nothing.
    pub fn add(&mut self, offset: u64, bytes: u64) {
        if bytes >= 512 {
            self.smallest = Some(self.smallest.map_or(bytes, |s| s.min(bytes)));
            self.bits |= offset | bytes;
        }
    }

    /// Returns the smallest size seen, if it is a power of two up to 65,536 and all accesses are aligned to it.
    pub fn page_size(&self) -> Option<u32> {
        let size = self.smallest?;
        (size.is_power_of_two() && size <= 65_536 && self.bits & (size - 1) == 0).then_some(size as u32)
    }
}

/// The part of one of SQLite's files that was read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Rollback journal: the header as it is first written, padded to a sector.
    JournalHeader,
    /// Rollback journal: magic and number of records, written over the header once the records are safe.
    JournalCount,
    /// Rollback journal: zeroes over the header, which end a transaction in PERSIST mode.
    JournalInvalidated,
    /// Rollback journal: the number before a page.
    JournalPageNumber,
    /// Rollback journal: the old contents of a page.
    JournalPage,
    /// Rollback journal: the checksum after a page.
    JournalChecksum,
    /// WAL: the 32 bytes at its start.
    WalHeader,
    /// WAL: the 24 bytes before a page.
    WalFrameHeader,
    /// WAL: a page.
    WalPage,
    /// Database: page 1, which holds the header and the schema.
    DatabaseFirstPage,
    /// Database: any other page.
    DatabasePage,
    /// Database: the header's fields alone, as read when a transaction begins.
    DatabaseHeader,
    /// Unknown from offset and length.
    Unknown,
}

impl Part {
    /// Its name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::JournalHeader => "journal header",
            Self::JournalCount => "journal record count",
            Self::JournalInvalidated => "journal invalidated",
            Self::JournalPageNumber => "journal page number",
            Self::JournalPage => "journal page",
            Self::JournalChecksum => "journal checksum",
            Self::WalHeader => "WAL header",
            Self::WalFrameHeader => "WAL frame header",
            Self::WalPage => "WAL page",
            Self::DatabaseFirstPage => "page 1",
            Self::DatabasePage => "page",
            Self::DatabaseHeader => "header fields",
            Self::Unknown => "unknown part",
        }
    }
}

/// Returns the part that an access of `bytes` at `offset` touches in a file of this class whose database has pages of
/// `page` bytes.
pub fn part_at(class: FileClass, offset: u64, bytes: u64, page: u32) -> Part {
    let page = u64::from(page);
    match class {
        FileClass::RollbackJournal => journal_part(offset, bytes, page),
        FileClass::Wal => wal_part(offset, bytes, page),
        FileClass::Database if offset < 100 && bytes <= 100 => Part::DatabaseHeader,
        FileClass::Database if bytes > 0 && page > 0 && offset.is_multiple_of(page) && bytes.is_multiple_of(page) => {
            if offset == 0 {
                Part::DatabaseFirstPage
            } else {
                Part::DatabasePage
            }
        }
        _ => Part::Unknown,
    }
}

/// Sector sizes to which SQLite pads a journal's header; the first on powersafe disks, which is its default.
const SECTOR_SIZES: [u64; 2] = [512, 4096];

/// Classifies an access to a journal: a header padded to a sector, then records of page number (4 bytes), page, checksum
/// (4); SQLite writes the three one by one (`pager_write_pagelist` and `pagerAddPageToRollbackJournal` in `pager.c`), so
/// that the length identifies nearly all. The sector size is not visible: a record's position is tried against those in
/// use.
fn journal_part(offset: u64, bytes: u64, page: u64) -> Part {
    match (offset, bytes) {
        (0, 12) => Part::JournalCount,
        (0, JOURNAL_HEADER_BYTES) => Part::JournalInvalidated,
        (0, n) if SECTOR_SIZES.contains(&n) || n == page => Part::JournalHeader,
        _ => {
            let within = |sector: u64| offset.checked_sub(sector).map(|from| from % (page + 8));
            SECTOR_SIZES
                .into_iter()
                .find_map(|sector| match (within(sector)?, bytes) {
                    (0, 4) => Some(Part::JournalPageNumber),
                    (4, n) if n == page => Some(Part::JournalPage),
                    (at, 4) if at == page + 4 => Some(Part::JournalChecksum),
                    _ => None,
                })
                .unwrap_or(Part::Unknown)
        }
    }
}

/// Classifies an access to a WAL: a header of 32 bytes, then frames of 24 bytes and a page; SQLite writes the two one by
/// one (`walWriteOneFrame` in `wal.c`).
fn wal_part(offset: u64, bytes: u64, page: u64) -> Part {
    let Some(from) = offset.checked_sub(WAL_HEADER_BYTES) else {
        return if (offset, bytes) == (0, WAL_HEADER_BYTES) { Part::WalHeader } else { Part::Unknown };
    };
    match (from % (page + 24), bytes) {
        (0, 24) => Part::WalFrameHeader,
        (24, n) if n == page => Part::WalPage,
        _ => Part::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_size_is_common_grid_of_accesses() {
        let size = |accesses: &[(u64, u64)]| {
            let mut grid = PageGrid::default();
            accesses.iter().for_each(|&(offset, bytes)| grid.add(offset, bytes));
            grid.page_size()
        };
        assert_eq!(size(&[(24, 16), (4096, 4096), (0, 4096), (8192, 8192)]), Some(4096));
        assert_eq!(size(&[(1024, 1024), (4096, 2048)]), Some(1024));
        assert_eq!(size(&[(100, 4096)]), None);
        assert_eq!(size(&[(0, 100)]), None);
        assert_eq!(size(&[(0, 1 << 20)]), None);
    }

    /// The writes of one INSERT in DELETE mode as shown by strace (SQLite 3.40, pages of 4 KiB).
    #[test]
    fn writes_of_insert_are_classified() {
        use FileClass::{Database, RollbackJournal};
        for (class, offset, bytes, expected) in [
            (RollbackJournal, 0, 512, Part::JournalHeader),
            (RollbackJournal, 512, 4, Part::JournalPageNumber),
            (RollbackJournal, 516, 4096, Part::JournalPage),
            (RollbackJournal, 4612, 4, Part::JournalChecksum),
            (RollbackJournal, 4616, 4, Part::JournalPageNumber),
            (RollbackJournal, 4620, 4096, Part::JournalPage),
            (RollbackJournal, 8716, 4, Part::JournalChecksum),
            (RollbackJournal, 0, 12, Part::JournalCount),
            (Database, 0, 4096, Part::DatabaseFirstPage),
            (Database, 4096, 4096, Part::DatabasePage),
            (RollbackJournal, 0, 28, Part::JournalInvalidated),
            (Database, 24, 16, Part::DatabaseHeader),
            (RollbackJournal, 513, 4, Part::Unknown),
        ] {
            assert_eq!(part_at(class, offset, bytes, 4096), expected, "{class:?} {offset} {bytes}");
        }
        assert_eq!(part_at(FileClass::Wal, 0, 32, 4096), Part::WalHeader);
        assert_eq!(part_at(FileClass::Wal, 32 + 3 * 4120, 24, 4096), Part::WalFrameHeader);
        assert_eq!(part_at(FileClass::Wal, 56 + 3 * 4120, 4096, 4096), Part::WalPage);
        assert_eq!(part_at(FileClass::Wal, 57, 4096, 4096), Part::Unknown);
    }

    #[test]
    fn extreme_offsets_do_not_overflow() {
        for class in FileClass::ALL {
            for page in [0, 1, 512, u32::MAX] {
                for offset in [0, 1, 24, 31, 32, 511, 512, u64::MAX] {
                    for bytes in [0, 4, 12, 24, u64::MAX] {
                        let _ = part_at(class, offset, bytes, page).name();
                    }
                }
            }
        }
    }
}
