//! A database's files: created under a name unique to the process, opened as requested, removed when dropped.

use super::{Parameters, failed};
use crate::{Error, clock};
use model::text::ShownPath as _;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// The database, its journal, WAL and shared memory.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) database: PathBuf,
}

impl Files {
    /// Creates a unique name in `dir`.
    pub(super) fn new(dir: &Path) -> Result<Self, Error> {
        let name = format!("fathom-workload-{}-{}.db", std::process::id(), clock::now_ns());
        let database = dir.join(name);
        // Created here and not by SQLite, so that an unwritable directory gets our error, and so that an existing file of
        // that name is never taken for ours and removed.
        std::fs::File::create_new(&database).map_err(|e| {
            Error::Failed(format!(
                "cannot create a database in {}: {e} (choose another directory with --dir)",
                dir.shown()
            ))
        })?;
        Ok(Self { database })
    }

    /// Opens it with the requested SQLite settings.
    pub(super) fn connect(&self, parameters: &Parameters) -> Result<Connection, Error> {
        let connection = Connection::open(&self.database).map_err(failed("open the database"))?;
        let pragma = |name: &str, value: &str| {
            connection.pragma_update(None, name, value).map_err(failed(&format!("set PRAGMA {name} = {value}")))
        };
        pragma("page_size", &parameters.page_size.to_string())?;
        pragma("synchronous", parameters.synchronous)?;
        let mode: String = connection
            .query_row(&format!("PRAGMA journal_mode = {}", parameters.journal_mode), [], |row| row.get(0))
            .map_err(failed("set PRAGMA journal_mode"))?;
        check_journal_mode(&mode, parameters)?;
        Ok(connection)
    }

    /// Evicts the database from the kernel's page cache. Its pages are clean, since its last transaction was synced
    /// (with `--synchronous off` it is synced here).
    pub(super) fn evict(&self) -> Result<(), Error> {
        Ok(crate::storage::evict(&std::fs::File::open(&self.database)?)?)
    }
}

/// SQLite returns the mode it kept if it cannot use the new one (WAL needs shared memory).
pub(super) fn check_journal_mode(mode: &str, parameters: &Parameters) -> Result<(), Error> {
    if mode == parameters.journal_mode {
        return Ok(());
    }
    let wanted = parameters.journal_mode;
    Err(Error::Failed(format!("SQLite refused journal mode {wanted} here and uses {mode}")))
}

impl Drop for Files {
    fn drop(&mut self) {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let mut name = self.database.clone().into_os_string();
            name.push(suffix);
            let _ = std::fs::remove_file(name);
        }
    }
}
