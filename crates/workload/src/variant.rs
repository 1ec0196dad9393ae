//! Prepares a variant of `fathom fix` before its command runs: a fresh copy of the database with the variant's settings in it, and the
//! variant's settings of the machine. It is the `--prepare` of `command`, so it is not part of any measured time.

use crate::Error;
use model::text::ShownPath as _;
use rusqlite::Connection;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The object that sets PRAGMAs on a program's connections; empty if there is none for this processor.
pub const PRAGMAS_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pragmas.so"));

const USAGE: &str = "variant [--database FROM TO] [--pragma SQL]… [--set FILE=VALUE]… [--remount DIRECTORY=OPTION]…\n\n\
    Copies the database FROM to TO and configures it with SQL; writes VALUE to FILE; remounts DIRECTORY with OPTION.";

/// Files that SQLite keeps next to a database.
const SIDE_FILE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

fn side_file(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Makes `to` a copy of the database `from`, on disk and not only in memory.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy_database(from: &Path, to: &Path) -> Result<(), Error> {
    let failed = |what: &Path, e: std::io::Error| Error::Failed(format!("{}: {e}", what.shown()));
    for suffix in ["", "-wal", "-journal"] {
        let (from, to) = (side_file(from, suffix), side_file(to, suffix));
        // The last copy of a read-only file may not be written.
        remove_if_present(&to)?;
        match fs::copy(&from, &to) {
            Ok(_) => File::open(&to).and_then(|file| file.sync_all()).map_err(|e| failed(&to, e))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(&from, e)),
        }
    }
    remove_if_present(&side_file(to, "-shm"))
}

/// Removes a file if there is one.
fn remove_if_present(file: &Path) -> Result<(), Error> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::Failed(format!("{}: {e}", file.shown()))),
        _ => Ok(()),
    }
}

pub fn remove_copy(database: &Path) {
    SIDE_FILE_SUFFIXES.iter().chain(&[""]).for_each(|suffix| {
        let _ = fs::remove_file(side_file(database, suffix));
    });
}

/// Sets a database up by SQL. A mode that SQLite refuses to change to is an error: it would be measured under a wrong name.
///
/// # Errors
/// SQLite's.
pub fn apply_pragmas(database: &Path, sql: &str) -> Result<(), Error> {
    let failed = |e: rusqlite::Error| Error::Failed(format!("{}: {sql}: {e}", database.shown()));
    let connection = Connection::open(database).map_err(failed)?;
    let mut mode: Option<String> = None;
    let rows = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
    for statement in sql.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        let mut prepared = connection.prepare(statement).map_err(failed)?;
        // All rows must be stepped through: VACUUM and similar statements do their work while they are stepped.
        let found: Vec<_> = prepared.query_map([], rows).and_then(Iterator::collect).map_err(failed)?;
        if let (true, Some(rusqlite::types::Value::Text(now))) =
            (statement.to_ascii_lowercase().starts_with("pragma journal_mode"), found.into_iter().next())
        {
            mode = Some(now);
        }
    }
    let wanted = sql.to_ascii_lowercase();
    match mode {
        Some(mode) if wanted.contains("journal_mode") && !wanted.contains(&mode) => {
            Err(Error::Failed(format!("{}: {sql}: the mode stays {mode}; is the database in use?", database.shown())))
        }
        _ => Ok(()),
    }
}

/// Writes a value to a file of /sys or /proc.
///
/// # Errors
/// The kernel refuses it.
pub fn write_setting(file: &Path, value: &str) -> Result<(), Error> {
    fs::write(file, value).map_err(|e| Error::Failed(format!("setting {} to {value}: {e}", file.shown())))
}

/// Changes options of a mount.
///
/// # Errors
/// The kernel refuses them.
pub fn remount(directory: &Path, option: &str) -> Result<(), Error> {
    let mut mount = Command::new("mount");
    let done = mount.args(["-o", &format!("remount,{option}")]).arg(directory).stdin(Stdio::null()).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(Error::Failed(format!("remounting {} with {option}: {said}", directory.shown())))
}

pub(crate) fn run(words: &[String]) -> Result<(), Error> {
    let mut rest = words.iter();
    let mut database: Option<PathBuf> = None;
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| Error::Usage(format!("{word} needs a value; {USAGE}")));
        let pair = |text: &str| {
            let (name, value) = text.split_once('=').ok_or_else(|| Error::Usage(format!("{text}: {USAGE}")))?;
            Ok::<_, Error>((PathBuf::from(name), value.to_owned()))
        };
        match word.as_str() {
            "--database" => {
                let (from, to) = (value()?, value()?);
                copy_database(Path::new(from), Path::new(to))?;
                database = Some(to.into());
            }
            "--pragma" => {
                let to =
                    database.as_ref().ok_or_else(|| Error::Usage(format!("--pragma needs a --database; {USAGE}")))?;
                apply_pragmas(to, value()?)?;
            }
            "--set" => pair(value()?).and_then(|(file, value)| write_setting(&file, &value))?,
            "--remount" => pair(value()?).and_then(|(directory, option)| remount(&directory, &option))?,
            _ => return Err(Error::Usage(USAGE.into())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn copy_gets_the_settings_and_the_original_keeps_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let [from, to] = ["a.db", "b.db"].map(|name| directory.path().join(name));
        Connection::open(&from).unwrap().execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (7)").unwrap();
        let before = fs::read(&from).unwrap();
        let (f, t) = (from.to_string_lossy().into_owned(), to.to_string_lossy().into_owned());
        run(&words(&["--database", &f, &t, "--pragma", "PRAGMA page_size=8192; VACUUM; PRAGMA journal_mode=wal"]))
            .unwrap();
        let ask = |sql: &str| {
            Connection::open(&to).unwrap().query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0)).unwrap()
        };
        assert_eq!(ask("PRAGMA journal_mode"), rusqlite::types::Value::Text("wal".into()));
        assert_eq!(ask("PRAGMA page_size"), rusqlite::types::Value::Integer(8192));
        assert_eq!(ask("SELECT x FROM t"), rusqlite::types::Value::Integer(7));
        assert_eq!(fs::read(&from).unwrap(), before);
        // A copy of a read-only database cannot be overwritten, so it is replaced.
        let first = directory.path().join("first");
        fs::hard_link(&to, &first).unwrap();
        let unchanged = fs::read(&first).unwrap();
        // The next arm starts from the original again, whatever the previous one left next to its copy.
        fs::write(side_file(&to, "-wal"), "left over").unwrap();
        run(&words(&["--database", &f, &t])).unwrap();
        assert!(fs::read(&to).unwrap() == before && !side_file(&to, "-wal").exists());
        assert_eq!(fs::read(&first).unwrap(), unchanged);
        remove_copy(&to);
        assert!(!to.exists());
    }

    #[test]
    fn refused_settings_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let keeper = Connection::open(&path).unwrap();
        keeper.execute_batch("CREATE TABLE t (x); BEGIN; INSERT INTO t VALUES (1)").unwrap();
        assert!(apply_pragmas(&path, "PRAGMA journal_mode=wal").is_err(), "it is in use");
        let sys = directory.path().join("queue/scheduler").to_string_lossy().into_owned();
        assert!(run(&words(&["--set", &format!("{sys}=none")])).unwrap_err().to_string().contains("scheduler"));
        for wrong in [&["--set", "x"][..], &["--pragma", "VACUUM"], &["--database", "a"], &["what"]] {
            assert!(matches!(run(&words(wrong)), Err(Error::Usage(_))), "{wrong:?}");
        }
    }
}
