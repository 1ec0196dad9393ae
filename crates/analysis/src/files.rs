//! What the files of SQLite are, and what stands at a position in them.
//!
//! The kernel shows a path, an offset and a length. SQLite's names and formats are fixed and documented
//! (<https://sqlite.org/tempfiles.html>, <https://sqlite.org/fileformat2.html>), so from these three follows which file
//! it is and which of its parts, without looking into it and without knowing anything about the program.
//!
//! Names come first: SQLite itself finds a journal by its name. A database may be called anything; it is known by a
//! journal, WAL or shm beside it in the same trace, by an extension in common use, or by SQLite's own way of looking at
//! it: every transaction begins with a read of 16 bytes at offset 24 (the change counter, `pagerLockDb` and
//! `sqlite3PagerSharedLock` in SQLite's `pager.c`), every opening with one of 100 bytes at 0. Nothing else is likely to
//! do that, but it is a guess, and so is an extension.

use model::files::{COMPANIONS, without_mark};
pub use model::files::{FileClass, class, database_of, reads_database_header};
use std::collections::HashSet;

/// The names of databases that their companions give away.
#[derive(Debug, Default)]
pub struct Companions {
    databases: HashSet<String>,
}

impl Companions {
    /// From all paths of a trace.
    pub fn new<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        let databases = paths
            .map(without_mark)
            .filter_map(|path| COMPANIONS.iter().find_map(|end| path.strip_suffix(end)))
            .map(str::to_owned)
            .collect();
        Self { databases }
    }

    /// The class that the name and the names beside it tell.
    pub fn class(&self, path: &str) -> FileClass {
        match class(path) {
            FileClass::Other if self.databases.contains(without_mark(path)) => FileClass::Database,
            class => class,
        }
    }
}

/// What the first 100 bytes of a database say (<https://sqlite.org/fileformat2.html#the_database_header>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseHeader {
    /// Bytes of a page.
    pub page_size: u32,
    /// Whether it is in WAL mode; else one of the modes with a rollback journal, or without any.
    pub wal: bool,
    /// 1 to 4; 0: no table was ever made, as far as this file shows.
    pub schema_format: u32,
    /// 1 UTF-8, 2 UTF-16le, 3 UTF-16be; 0: not set yet.
    pub encoding: u32,
}

impl DatabaseHeader {
    /// Bytes of the header.
    pub const SIZE: usize = 100;

    /// Reads it; `None`: this is no database, or one whose header makes no sense.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<{ Self::SIZE }>()?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let page_size = match u32::from(bytes[16]) << 8 | u32::from(bytes[17]) {
            1 => 65_536,
            size => size,
        };
        // The format's two versions: for writing and for reading.
        let wal = match (bytes[18], bytes[19]) {
            (1, 1) => false,
            (2, 2) => true,
            _ => return None,
        };
        let sound = bytes.starts_with(b"SQLite format 3\0") && page_size.is_power_of_two() && page_size >= 512;
        let header = Self { page_size, wal, schema_format: word(44), encoding: word(56) };
        (sound && header.schema_format <= 4 && header.encoding <= 3).then_some(header)
    }

    /// The facts it tells, by the name of their PRAGMA; what it leaves open is not among them.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mode = if self.wal { "wal" } else { "no wal (delete, truncate, persist, memory or off)" };
        let mut facts = vec![("page_size", self.page_size.to_string()), ("journal_mode", mode.into())];
        facts.extend((self.schema_format > 0).then(|| ("schema_format", self.schema_format.to_string())));
        let encoding = ["", "UTF-8", "UTF-16le", "UTF-16be"][self.encoding as usize];
        facts.extend((!encoding.is_empty()).then(|| ("encoding", encoding.into())));
        facts
    }
}

/// Finds the page size of a database from where it is written and read, in whole pages.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageGrid {
    smallest: Option<u64>,
    bits: u64,
}

impl PageGrid {
    /// Adds an access. One of less than the smallest page (512 bytes) is of the header's fields and tells nothing.
    pub fn add(&mut self, offset: u64, bytes: u64) {
        if bytes >= 512 {
            self.smallest = Some(self.smallest.map_or(bytes, |s| s.min(bytes)));
            self.bits |= offset | bytes;
        }
    }

    /// The smallest size seen, if it is a power of two up to 65,536 and all lies on its grid.
    pub fn size(&self) -> Option<u32> {
        let size = self.smallest?;
        (size.is_power_of_two() && size <= 65_536 && self.bits & (size - 1) == 0).then_some(size as u32)
    }
}

/// What stands where a file of SQLite's was read or written.
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
    /// Cannot be told from offset and length.
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

/// What an access of `bytes` at `offset` touches in a file of this class whose database has pages of `page` bytes.
pub fn part(class: FileClass, offset: u64, bytes: u64, page: u32) -> Part {
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

/// Sizes of a sector that SQLite pads a journal's header to; the first on powersafe disks, which is its default.
const SECTORS: [u64; 2] = [512, 4096];

/// A journal is a header padded to a sector, then records of page number (4 bytes), page, checksum (4); SQLite writes
/// the three one by one (`pager_write_pagelist` and `pagerAddPageToRollbackJournal` in `pager.c`), so that the length
/// tells nearly all. The sector's size is not in sight: a record's position is tried against those in use.
fn journal_part(offset: u64, bytes: u64, page: u64) -> Part {
    match (offset, bytes) {
        (0, 12) => Part::JournalCount,
        (0, 28) => Part::JournalInvalidated,
        (0, n) if SECTORS.contains(&n) || n == page => Part::JournalHeader,
        _ => {
            let within = |sector: u64| offset.checked_sub(sector).map(|from| from % (page + 8));
            SECTORS
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

/// A WAL is a header of 32 bytes, then frames of 24 bytes and a page; SQLite writes the two one by one
/// (`walWriteOneFrame` in `wal.c`).
fn wal_part(offset: u64, bytes: u64, page: u64) -> Part {
    let Some(from) = offset.checked_sub(32) else {
        return if (offset, bytes) == (0, 32) { Part::WalHeader } else { Part::Unknown };
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
    fn a_file_with_a_journal_is_a_database() {
        let paths = ["/a/places", "/a/places-wal", "/b/places"];
        let companions = Companions::new(paths.into_iter());
        assert_eq!(companions.class("/a/places"), FileClass::Database);
        assert_eq!(companions.class("/b/places"), FileClass::Other);
        assert_eq!(companions.class("/a/places-wal"), FileClass::Wal);
    }

    #[test]
    fn header_values_are_read_and_others_unknown() {
        let mut bytes = [0; 100];
        bytes[..16].copy_from_slice(b"SQLite format 3\0");
        bytes[16..20].copy_from_slice(&[0x10, 0, 2, 2]);
        (bytes[47], bytes[59]) = (4, 1);
        let header = DatabaseHeader::parse(&bytes).unwrap();
        let facts =
            |header: DatabaseHeader| header.facts().into_iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>();
        assert_eq!(facts(header), ["page_size=4096", "journal_mode=wal", "schema_format=4", "encoding=UTF-8"]);
        // A new database in WAL mode: its schema and encoding are in the WAL.
        (bytes[47], bytes[59]) = (0, 0);
        bytes[16..20].copy_from_slice(&[0, 1, 1, 1]);
        let header = DatabaseHeader::parse(&bytes).unwrap();
        assert_eq!((header.page_size, header.facts().len()), (65_536, 2));
        for (at, value) in [(0, b'x'), (16, 3), (18, 3), (19, 2), (44, 9), (59, 4)] {
            let mut damaged = bytes;
            damaged[at] = value;
            assert_eq!(DatabaseHeader::parse(&damaged), None, "byte {at}");
        }
        assert_eq!(DatabaseHeader::parse(&bytes[..99]), None);
    }

    #[test]
    fn page_size_is_the_common_grid_of_accesses() {
        let size = |accesses: &[(u64, u64)]| {
            let mut grid = PageGrid::default();
            accesses.iter().for_each(|&(offset, bytes)| grid.add(offset, bytes));
            grid.size()
        };
        assert_eq!(size(&[(24, 16), (4096, 4096), (0, 4096), (8192, 8192)]), Some(4096));
        assert_eq!(size(&[(1024, 1024), (4096, 2048)]), Some(1024));
        assert_eq!(size(&[(100, 4096)]), None);
        assert_eq!(size(&[(0, 100)]), None);
        assert_eq!(size(&[(0, 1 << 20)]), None);
    }

    /// The writes of one INSERT in DELETE mode as strace shows them (SQLite 3.40, pages of 4 KiB).
    #[test]
    fn writes_of_an_insert_are_classified() {
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
            assert_eq!(part(class, offset, bytes, 4096), expected, "{class:?} {offset} {bytes}");
        }
        assert_eq!(part(FileClass::Wal, 0, 32, 4096), Part::WalHeader);
        assert_eq!(part(FileClass::Wal, 32 + 3 * 4120, 24, 4096), Part::WalFrameHeader);
        assert_eq!(part(FileClass::Wal, 56 + 3 * 4120, 4096, 4096), Part::WalPage);
        assert_eq!(part(FileClass::Wal, 57, 4096, 4096), Part::Unknown);
    }

    #[test]
    fn hostile_positions_do_not_overflow() {
        for class in FileClass::ALL {
            for page in [0, 1, 512, u32::MAX] {
                for offset in [0, 1, 24, 31, 32, 511, 512, u64::MAX] {
                    for bytes in [0, 4, 12, 24, u64::MAX] {
                        let _ = part(class, offset, bytes, page).name();
                    }
                }
            }
        }
    }
}
