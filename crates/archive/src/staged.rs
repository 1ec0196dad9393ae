//! An archive that is being created: it has a temporary name next to its destination until it is complete.

use crate::error::IoResultExt as _;
use crate::{Archive, Error, Result};
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// Removed when dropped unfinished.
#[derive(Debug)]
pub struct StagedArchive {
    directory: PathBuf,
    place: PathBuf,
}

impl StagedArchive {
    /// Checks, before anything is measured, that an archive of `bytes` could be written: `place` is suitable, and has space. Leaves
    /// nothing there.
    pub fn check_possible(place: &Path, bytes: u64) -> Result<()> {
        Archive::check_create(&without_trailing_slash(place), true)?;
        let staged = Self::begin(place)?;
        staged.check_space(bytes).map_err(|source| Error::NoSpace { path: staged.place.clone(), bytes, source })
    }

    /// Creates a directory next to `place`.
    pub fn begin(place: &Path) -> Result<Self> {
        let place = without_trailing_slash(place);
        let mut name = place.clone().into_os_string();
        name.push(format!(".coming-{}", std::process::id()));
        let directory = PathBuf::from(name);
        // Left by a killed process with the same number, which in a container is the same each time.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).with_action("create", &directory)?;
        Ok(Self { directory, place })
    }

    /// The directory until it is finished.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its destination.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Allocates `bytes` for a moment.
    fn check_space(&self, bytes: u64) -> std::io::Result<()> {
        let file = File::create(self.directory.join("room"))?;
        let bytes = libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
        // SAFETY: integer arguments, and a descriptor that lives until the call returns.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) } == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            // The file system cannot allocate in advance.
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }

    /// Moves it to its destination, from which anything older has been moved away.
    pub fn finish(self) -> Result<PathBuf> {
        fs::rename(&self.directory, &self.place).with_action("write the archive to", &self.place)?;
        Ok(self.place.clone())
    }
}

/// Removes a slash at the end, to which no suffix could be added.
fn without_trailing_slash(place: &Path) -> PathBuf {
    place.components().collect()
}

impl Drop for StagedArchive {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_archive_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("r.fathom");
        let staged = StagedArchive::begin(&place).unwrap();
        fs::write(staged.directory().join("a"), b"12").unwrap();
        drop(staged);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let staged = StagedArchive::begin(&place).unwrap();
        fs::write(staged.directory().join("a"), b"123").unwrap();
        assert_eq!(staged.finish().unwrap(), place);
        assert_eq!(fs::read(place.join("a")).unwrap(), b"123");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_killed_process_leaves_nothing_that_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("r.fathom");
        std::mem::forget(StagedArchive::begin(&place).unwrap());
        assert_eq!(StagedArchive::begin(&place).unwrap().finish().unwrap(), place);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_destination_and_free_space_are_checked_without_leftovers() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("r.fathom/");
        StagedArchive::check_possible(&place, 1 << 20).unwrap();
        let why = StagedArchive::check_possible(&place, 1 << 60).unwrap_err().to_string();
        assert!(why.contains("not enough space for") && why.contains("nothing was measured"), "{why}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert!(StagedArchive::check_possible(Path::new("/no/such/directory/r.fathom"), 1).is_err());
        // A destination that is no archive is reported before the run, not after it.
        fs::create_dir(&place).unwrap();
        fs::write(place.join("mine"), "").unwrap();
        assert!(StagedArchive::check_possible(&place, 1).unwrap_err().to_string().contains("not a Fathom archive"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        // A trailing slash does not change the name.
        fs::remove_file(place.join("mine")).unwrap();
        StagedArchive::begin(&place).unwrap().finish().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
