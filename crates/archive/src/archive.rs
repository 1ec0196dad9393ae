//! Creates the directory of an archive without harming anything else, and opens it.

use crate::error::{Error, IoResultExt, Result};
use crate::lock::Lock;
use crate::log::{self, LogReader};
use crate::meta::{self, Meta};
use crate::tables::ReadLimit;
use crate::{runs, tables};
use model::table::{Cell, Row, TableInfo};
use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

/// An archive that was opened.
#[derive(Debug)]
pub struct Archive {
    dir: PathBuf,
    meta: Meta,
}

/// What exists where an archive is to be created.
enum ExistingDirectory {
    Nothing,
    Empty,
    Archive,
}

impl Archive {
    /// Creates the directory `dir` with `meta` in it. An existing empty directory is used. `overwrite` allows replacing an
    /// archive (its log and tables are removed, other files in the directory stay); anything that is not an archive is
    /// never touched.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Busy`], [`Error::NotAnArchive`] for any other directory or file, [`Error::Io`].
    pub fn create(dir: &Path, meta: &Meta, overwrite: bool) -> Result<Self> {
        match Self::find_existing(dir, overwrite)? {
            ExistingDirectory::Nothing => {
                fs::create_dir(dir).map_err(|source| Error::creating("create the directory", dir, source))?;
            }
            ExistingDirectory::Empty => {}
            ExistingDirectory::Archive => {
                tables::remove_tables(dir)?;
                remove_if_there(&log::path(dir))?;
                remove_if_there(&runs::path(dir))?;
            }
        }
        meta.write(dir)?;
        Ok(Self { dir: dir.into(), meta: meta.clone() })
    }

    /// Checks that [`Archive::create`] would succeed, before work whose result could not be stored. Changes nothing.
    pub fn check_create(dir: &Path, overwrite: bool) -> Result<()> {
        Self::find_existing(dir, overwrite).map(|_| ())
    }

    fn find_existing(dir: &Path, overwrite: bool) -> Result<ExistingDirectory> {
        Lock::is_free(dir)?;
        if fs::symlink_metadata(dir).is_err() {
            let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let there = fs::metadata(parent).map(|_| ExistingDirectory::Nothing);
            return there.map_err(|source| Error::creating("create the directory", dir, source));
        }
        let not_ours = |why: &str| Error::NotAnArchive { path: dir.into(), why: why.into() };
        let entries = fs::read_dir(dir).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotADirectory => {
                not_ours("a file of this name exists, and Fathom does not overwrite it; choose another name with -o")
            }
            _ => Error::Io { action: "read", path: dir.into(), source: e },
        })?;
        // A process that is killed while it creates an archive may leave no more than the first, unfinished meta.json.
        let unfinished =
            |entry: fs::DirEntry| entry.path() == meta::temporary_meta_path(dir) && meta::is_begun(&entry.path());
        if entries.into_iter().all(|entry| entry.is_ok_and(unfinished)) {
            return Ok(ExistingDirectory::Empty);
        }
        match Meta::read(dir) {
            Ok(_) | Err(Error::Newer { .. } | Error::UnknownKind { .. }) if overwrite => Ok(ExistingDirectory::Archive),
            Ok(_) | Err(Error::Newer { .. } | Error::UnknownKind { .. }) => Err(Error::Exists { path: dir.into() }),
            Err(_) => {
                Err(not_ours("it contains other files, which Fathom does not overwrite; choose another name with -o"))
            }
        }
    }

    /// Opens an archive to read it.
    ///
    /// # Errors
    /// Those of [`Meta::read`].
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self { dir: dir.into(), meta: Meta::read(dir)? })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// # Errors
    /// Those of [`LogReader::open`].
    pub fn log(&self) -> Result<LogReader> {
        LogReader::open(&self.dir)
    }

    /// Whether its tables exist. They exist completely or not at all.
    pub fn has_tables(&self) -> bool {
        tables::Index::path(&self.dir).is_file()
    }

    /// Whether its tables exist and hold all of its log, which a benchmark that was resumed has continued.
    pub fn has_current_tables(&self) -> bool {
        match tables::Index::read(&self.dir) {
            Ok(index) => index.log.is_none_or(|log| !log.has_grown(&self.dir)),
            // If they are damaged, whoever reads them reports it.
            Err(error) => !matches!(error, Error::NotLinked { .. }),
        }
    }

    /// Returns the Parquet file of a table and its number of rows, if it has any. The checksum is verified first.
    ///
    /// # Errors
    /// [`Error::NotLinked`], [`Error::Damaged`], [`Error::Newer`], [`Error::Io`].
    pub fn table_file(&self, table: &str) -> Result<Option<(PathBuf, u64)>> {
        let index = tables::Index::read(&self.dir)?;
        let Some(&rows) = index.rows.get(table) else { return Ok(None) };
        let path = tables::table_path(&self.dir, table);
        tables::open_checked(&index, table, &path)?;
        Ok(Some((path, rows)))
    }

    /// All rows of a table, in the order in which they were written. A table without rows is empty.
    ///
    /// # Errors
    /// [`Error::NotLinked`], [`Error::Damaged`], [`Error::Newer`], [`Error::Io`].
    pub fn rows<T: Row>(&self) -> Result<Vec<T>> {
        let path = tables::table_path(&self.dir, T::TABLE.name);
        let bound = ReadLimit::for_file_size(fs::metadata(&path).map_or(0, |about| about.len()));
        let (mut rows, mut texts) = (Vec::new(), 0_u64);
        self.each_row(|cells, row| {
            texts = cells.iter().fold(texts, |sum, cell| sum.saturating_add(own_text(cell)));
            // The reader cannot be stopped; further rows are dropped.
            if !bound.is_exceeded_by_texts(texts) {
                rows.push(row);
            }
        })?;
        if bound.is_exceeded_by_texts(texts) {
            return Err(Error::damaged_table(&path, format!("it repeats texts until they take {texts} bytes")));
        }
        Ok(rows)
    }

    /// Hands each row of a table to `each` as cells in the order of its columns, whatever version wrote it.
    pub fn for_each_cells(&self, table: &TableInfo, each: &mut dyn FnMut(&[Cell])) -> Result<()> {
        tables::read(&self.dir, table, each)
    }

    /// Hands each row of a table to `each`, with a few thousand rows in memory at a time.
    ///
    /// # Errors
    /// As [`Archive::rows`]; rows before the damaged place have been handed out then.
    pub fn for_each<T: Row>(&self, mut each: impl FnMut(T)) -> Result<()> {
        self.each_row(|_, row| each(row))
    }

    fn each_row<T: Row>(&self, mut each: impl FnMut(&[Cell], T)) -> Result<()> {
        let path = tables::table_path(&self.dir, T::TABLE.name);
        let mut wrong = 0_u64;
        tables::read(&self.dir, &T::TABLE, &mut |cells| match T::from_cells(cells) {
            Some(row) => each(cells, row),
            None => wrong += 1,
        })?;
        if wrong > 0 {
            return Err(Error::damaged_table(
                &path,
                format!("{wrong} rows have values that are invalid in their columns"),
            ));
        }
        Ok(())
    }
}

/// Bytes of a text that is in no list of words.
pub(crate) fn own_text(cell: &Cell) -> u64 {
    match cell {
        Cell::Text(Cow::Owned(text)) => text.len() as u64,
        _ => 0,
    }
}

pub(crate) fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).with_action("remove", path),
        _ => Ok(()),
    }
}
