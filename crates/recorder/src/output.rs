//! The place of a new archive: an existing one is kept, and the new one belongs to the user who called sudo.

use crate::{ErrorContext, Result};
use archive::tables::Index;
use archive::{Lock, Meta, Runs};
use capture::launch;
use model::text::ShownPath as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A benchmark's log without a replicate is smaller than this.
const SMALL_LOG_BYTES: u64 = 1 << 20;

/// An archive that was moved out of the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedArchive {
    /// Where it is now.
    pub path: PathBuf,
    /// Whether an older archive at that path was removed.
    pub replaced: bool,
}

/// Moves an archive of that name to `NAME.fathom.old`; anything else is not touched (`Archive::create` reports it).
///
/// # Errors
/// One of the two is being written, or they cannot be moved.
pub fn keep_old(output: &Path) -> Result<Option<MovedArchive>> {
    Lock::is_free(output)?;
    if Meta::read(output).is_err() {
        return Ok(None);
    }
    // An archive without measurements must not push out one with measurements.
    if is_without_measurements(output) {
        fs::remove_dir_all(output).doing(|| format!("removing {}, which has no result", output.shown()))?;
        return Ok(None);
    }
    let mut old = output.as_os_str().to_owned();
    old.push(".old");
    let path = PathBuf::from(old);
    Lock::is_free(&path)?;
    let replaced = Meta::read(&path).is_ok();
    if replaced {
        fs::remove_dir_all(&path).doing(|| format!("removing {}", path.shown()))?;
    }
    fs::rename(output, &path).doing(|| format!("keeping {} as {}", output.shown(), path.shown()))?;
    Ok(Some(MovedArchive { path, replaced }))
}

/// Whether an archive ended before its first replicate or event, as if killed while it started.
fn is_without_measurements(dir: &Path) -> bool {
    let size = |log: PathBuf| fs::metadata(log).map(|log| log.len());
    let has_tables = Index::path(dir).is_file();
    match (size(archive::log::path(dir)), size(archive::runs::path(dir))) {
        (Ok(0), _) => !has_tables,
        (Err(_), Err(_)) => !has_tables,
        (Err(_), Ok(bytes)) => bytes < SMALL_LOG_BYTES && Runs::read(dir).is_ok_and(|runs| runs.runs.is_empty()),
        _ => false,
    }
}

/// Removes the archive of a command that never ran, and puts back the previous one.
pub(crate) fn put_back(output: &Path, kept: Option<&MovedArchive>) {
    // It holds only its own empty log; a failure leaves both, under their two names.
    if Meta::read(output).is_ok() && fs::remove_dir_all(output).is_ok() {
        let _ = kept.map(|kept| fs::rename(&kept.path, output));
    }
}

/// Gives the output to the user who called sudo, so that it can be removed without sudo.
///
/// # Errors
/// The owner of a file cannot be changed.
pub fn give_to_caller(path: &Path) -> Result<()> {
    let Some(user) = launch::User::sudo_caller()? else { return Ok(()) };
    let mut all = vec![path.to_path_buf()];
    while let Some(path) = all.pop() {
        let giving = || format!("changing the owner of {} to the user who called sudo", path.shown());
        // A symbolic link is given away itself, never its target.
        if path.symlink_metadata().doing(giving)?.is_dir() {
            all.extend(fs::read_dir(&path).doing(giving)?.filter_map(|e| Some(e.ok()?.path())));
        }
        std::os::unix::fs::lchown(&path, Some(user.uid), Some(user.gid)).doing(giving)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::Archive;

    #[test]
    fn one_old_archive_is_kept_and_restored() {
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().join("t.fathom");
        let make = |command: &str| {
            Archive::create(&output, &Meta::new(archive::ArchiveKind::Trace, 1, vec![command.into()]), false).unwrap();
            fs::write(archive::log::path(&output), "events").unwrap();
        };
        assert_eq!(keep_old(&output).unwrap(), None);
        make("first");
        let path = directory.path().join("t.fathom.old");
        assert_eq!(keep_old(&output).unwrap(), Some(MovedArchive { path: path.clone(), replaced: false }));
        make("second");
        let kept = keep_old(&output).unwrap().unwrap();
        assert!(kept.replaced && Meta::read(&path).unwrap().command == ["second"] && !output.exists());
        make("third");
        put_back(&output, Some(&kept));
        assert!(Meta::read(&output).unwrap().command == ["second"] && !path.exists());
    }

    #[test]
    fn archive_of_a_killed_start_replaces_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let (output, old) = (directory.path().join("t.fathom"), directory.path().join("t.fathom.old"));
        let make = |log: Option<&str>| {
            Archive::create(&output, &Meta::new(archive::ArchiveKind::Trace, 1, vec![]), false).unwrap();
            log.iter().for_each(|log| fs::write(archive::log::path(&output), log).unwrap());
        };
        make(Some("events"));
        keep_old(&output).unwrap();
        for log in [None, Some("")] {
            make(log);
            assert_eq!(keep_old(&output).unwrap(), None);
            assert!(!output.exists() && fs::read(archive::log::path(&old)).unwrap() == b"events", "{log:?}");
        }
    }
}
