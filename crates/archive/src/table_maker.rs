//! Makes the tables of an archive of any kind: the crates that write a log implement [`TableMaker`], and a program that opens
//! archives passes all of them. So no caller needs to know an archive's kind to open it.

use crate::{Archive, ArchiveKind, Error, Lock, tables};
use model::Context;
use std::path::{Path, PathBuf};

/// The error with which a [`TableMaker`] failed: one of its own crate.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Makes the tables of some kinds of archives from their log.
pub trait TableMaker {
    /// The kinds whose tables it makes.
    fn kinds(&self) -> &'static [ArchiveKind];

    /// Where its log is in the archive `dir`.
    fn log(&self, dir: &Path) -> PathBuf;

    /// Whether its log may be read while it is written; the tables of such an archive are rebuilt each time it is opened.
    fn reads_live(&self) -> bool;

    /// Reports that an archive is opened whose tables must be made first, and why.
    fn report_start(&self, dir: &Path, why: Occasion);

    /// Reports that an archive is opened whose log has lost a part since its tables were made; `why` names it.
    fn report_cut(&self, why: Error);

    /// Makes the tables. The caller holds the archive's lock, unless the archive is live.
    ///
    /// # Errors
    /// Those of the crate that implements it.
    fn make(&self, dir: &Path, context: &Context) -> Result<TableCounts, Failure>;

    /// The same from the log alone, where `meta.json` cannot be read; `why` is the reason.
    fn make_without_meta(&self, dir: &Path, why: Error, context: &Context) -> Result<TableCounts, Failure>;
}

/// Counts of what the tables were made from and of what was found, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableCounts {
    /// What the log holds, such as 12 events.
    pub read: (u64, &'static str),
    /// What was found in it, such as 3 operations.
    pub found: (u64, &'static str),
}

/// Why tables are made when an archive is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// It has none.
    NoTables,
    /// Its log has grown since they were made, as that of a resumed benchmark.
    LogGrew,
    /// It is being written.
    Live,
}

/// Why an archive cannot be opened, or its tables cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be opened.
    #[error(transparent)]
    Archive(#[from] Error),
    /// It has no tables, and they cannot be made.
    #[error(transparent)]
    Tables(Failure),
    /// There is no table maker for this kind.
    #[error("this program makes no tables of {0}")]
    NoMaker(ArchiveKind),
}

impl OpenError {
    /// Whether the archive was read, and only its location is at fault: no space, no quota, or not writable.
    pub fn lacks_room(&self) -> bool {
        matches!(self, Self::Tables(failure) if crate::error::lacks_room(&**failure))
    }
}

/// Opens the archive at `dir`, making its tables first if it has none, as after an interrupted recording.
///
/// # Errors
/// It cannot be read, is being written, or its tables cannot be made.
pub fn open(dir: &Path, makers: &[&dyn TableMaker], context: &Context) -> Result<Archive, OpenError> {
    let archive = Archive::open(dir)?;
    let maker = maker_of(archive.meta().kind, makers)?;
    // The tables of an archive that is being written are as old as its last opening.
    let live = maker.reads_live() && Lock::is_free(dir).is_err();
    if archive.has_current_tables() && !live {
        if let Some(why) = tables::cut_log(dir) {
            maker.report_cut(why);
        }
        return Ok(archive);
    }
    // The writer of a live archive holds the lock until it ends.
    let _lock = if live { None } else { Some(Lock::take(dir).map_err(|error| OpenError::Tables(error.into()))?) };
    // The previous holder of the lock may have made them.
    if live || !archive.has_current_tables() {
        let why = match (live, archive.has_tables()) {
            (true, _) => Occasion::Live,
            (false, true) => Occasion::LogGrew,
            (false, false) => Occasion::NoTables,
        };
        maker.report_start(dir, why);
        maker.make(dir, context).map_err(OpenError::Tables)?;
    }
    Ok(Archive::open(dir)?)
}

/// Rebuilds the tables of the archive at `dir`. If `meta.json` is missing or damaged, the log that exists selects the table
/// maker.
pub fn remake(dir: &Path, makers: &[&dyn TableMaker], context: &Context) -> Result<TableCounts, OpenError> {
    let logged = makers.iter().find(|maker| maker.log(dir).is_file());
    // Nothing is created in a directory that is not an archive, not even a lock.
    let _lock = logged.map(|_| Lock::take(dir)).transpose()?;
    // Tables of the whole log are worth more than those of what is left of it.
    if let Some(cut) = tables::cut_log(dir) {
        return Err(cut.into());
    }
    let made = match (Archive::open(dir), logged) {
        (Ok(archive), _) => maker_of(archive.meta().kind, makers)?.make(dir, context),
        (Err(error), Some(maker)) if error.is_rescuable() => maker.make_without_meta(dir, error, context),
        (Err(error), _) => return Err(error.into()),
    };
    made.map_err(OpenError::Tables)
}

fn maker_of<'a>(kind: ArchiveKind, makers: &[&'a dyn TableMaker]) -> Result<&'a dyn TableMaker, OpenError> {
    makers.iter().copied().find(|maker| maker.kinds().contains(&kind)).ok_or(OpenError::NoMaker(kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Meta, TablesWriter};
    use std::cell::RefCell;

    /// Records its calls.
    struct RecordingMaker {
        kinds: &'static [ArchiveKind],
        log: &'static str,
        live: bool,
        calls: RefCell<Vec<String>>,
    }

    const TABLE_COUNTS: TableCounts = TableCounts { read: (2, "line"), found: (1, "row") };

    impl TableMaker for RecordingMaker {
        fn kinds(&self) -> &'static [ArchiveKind] {
            self.kinds
        }
        fn log(&self, dir: &Path) -> PathBuf {
            dir.join(self.log)
        }
        fn reads_live(&self) -> bool {
            self.live
        }
        fn report_start(&self, _: &Path, why: Occasion) {
            self.calls.borrow_mut().push(format!("{why:?}"));
        }
        fn report_cut(&self, why: Error) {
            self.calls.borrow_mut().push(format!("cut: {why}"));
        }
        fn make(&self, dir: &Path, _: &Context) -> Result<TableCounts, Failure> {
            self.calls.borrow_mut().push("make".into());
            TablesWriter::create(dir)?.finish()?;
            Ok(TABLE_COUNTS)
        }
        fn make_without_meta(&self, _: &Path, _: Error, _: &Context) -> Result<TableCounts, Failure> {
            self.calls.borrow_mut().push("make without meta".into());
            Ok(TABLE_COUNTS)
        }
    }

    fn makers() -> (RecordingMaker, RecordingMaker) {
        let of = |kinds, log, live| RecordingMaker { kinds, log, live, calls: RefCell::default() };
        (
            of(&[ArchiveKind::Bench, ArchiveKind::Net], "runs.jsonl", true),
            of(&[ArchiveKind::Trace], "events.log", false),
        )
    }

    fn archive(kind: ArchiveKind) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path().join("x.fathom");
        Archive::create(&dir, &Meta::new(kind, 1, vec![]), false).unwrap();
        (directory, dir)
    }

    #[test]
    fn tables_are_made_once_by_the_maker_of_the_kind() {
        let (runs, events) = makers();
        let (_directory, dir) = archive(ArchiveKind::Trace);
        for _ in 0..2 {
            let opened = open(&dir, &[&runs, &events], &Context::silent()).unwrap();
            assert!(opened.has_tables());
        }
        assert_eq!(*events.calls.borrow(), ["NoTables", "make"]);
        assert!(runs.calls.borrow().is_empty());
        assert!(!dir.join("lock").exists());
    }

    #[test]
    fn a_live_archive_gets_new_tables_without_the_lock() {
        let (runs, events) = makers();
        let (_directory, dir) = archive(ArchiveKind::Bench);
        let _written = Lock::take(&dir).unwrap();
        for _ in 0..2 {
            open(&dir, &[&runs, &events], &Context::silent()).unwrap();
        }
        assert_eq!(*runs.calls.borrow(), ["Live", "make", "Live", "make"]);
        // A recording that is being made is busy instead.
        let (_directory, dir) = archive(ArchiveKind::Trace);
        let _written = Lock::take(&dir).unwrap();
        let error = open(&dir, &[&runs, &events], &Context::silent()).unwrap_err();
        assert!(error.to_string().contains("is being written") && !error.lacks_room(), "{error}");
    }

    #[test]
    fn the_log_selects_the_maker_if_meta_json_is_gone() {
        let (runs, events) = makers();
        let (_directory, dir) = archive(ArchiveKind::Bench);
        std::fs::remove_file(Meta::path(&dir)).unwrap();
        let error = remake(&dir, &[&runs, &events], &Context::silent()).unwrap_err();
        assert!(matches!(error, OpenError::Archive(Error::NotAnArchive { .. })), "{error}");
        assert!(!dir.join("lock").exists(), "nothing is made in a directory without a log");
        std::fs::write(dir.join("events.log"), "").unwrap();
        assert_eq!(remake(&dir, &[&runs, &events], &Context::silent()).unwrap(), TABLE_COUNTS);
        assert_eq!(*events.calls.borrow(), ["make without meta"]);
        assert!(runs.calls.borrow().is_empty());
    }

    /// A file that was copied in part, and a benchmark that was resumed.
    #[test]
    fn a_log_changed_after_its_tables_is_reported_or_read_again() {
        let (runs, events) = makers();
        let makers: [&dyn TableMaker; 2] = [&runs, &events];
        let (_directory, dir) = archive(ArchiveKind::Trace);
        let log = dir.join("events.log");
        std::fs::write(&log, "0123456789").unwrap();
        open(&dir, &makers, &Context::silent()).unwrap();
        std::fs::write(&log, "01234").unwrap();
        assert!(open(&dir, &makers, &Context::silent()).unwrap().has_current_tables());
        let error = remake(&dir, &makers, &Context::silent()).unwrap_err().to_string();
        assert!(error.contains("it has 5 bytes, but its tables were made from 10"), "{error}");
        assert_eq!(*events.calls.borrow(), ["NoTables", "make", &format!("cut: {error}")]);
        events.calls.borrow_mut().clear();
        std::fs::write(&log, "0123456789ab").unwrap();
        for _ in 0..2 {
            open(&dir, &makers, &Context::silent()).unwrap();
        }
        assert_eq!(*events.calls.borrow(), ["LogGrew", "make"]);
    }

    #[test]
    fn a_kind_without_a_maker_is_reported() {
        let (_directory, dir) = archive(ArchiveKind::Net);
        let error = open(&dir, &[], &Context::silent()).unwrap_err();
        assert_eq!(error.to_string(), "this program makes no tables of a network run");
    }

    #[test]
    fn a_full_disk_is_found_among_the_causes_of_an_error() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let below = Error::Io { action: "write", path: "x".into(), source: full };
        assert!(OpenError::Tables(Box::new(below)).lacks_room());
        let gone = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let unreadable = Error::Io { action: "read", path: "x".into(), source: gone };
        assert!(!OpenError::Archive(unreadable).lacks_room(), "a copy would not be readable either");
    }
}
