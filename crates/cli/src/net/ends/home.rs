//! An archive on its way home: it stands under a name of its own beside its place until all of it is there.

use crate::notices;
use anyhow::{Context as _, Result, bail};
use archive::Archive;
use device::reach::frame::below;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// More than this no run is, bytes: a device shall not fill the disk here.
const MOST: u64 = 4 << 30;

/// Whether the archive could be written, before anything is measured: the place is one for it, and has room for so many bytes. Leaves
/// nothing there.
pub fn possible(output: &Path, bytes: u64) -> Result<()> {
    let output = &plain(output);
    Archive::has_room(output, true)?;
    let tried = Coming::begin(output)?.room(bytes);
    tried.with_context(|| {
        let mib = bytes as f64 / 1048576.0;
        format!(
            "not enough space for {} (about {mib:.1} MiB): free some, or choose another path with -o; nothing \
            was measured",
            output.display()
        )
    })
}

/// Without a slash at the end, which names beside it cannot be made from.
fn plain(output: &Path) -> PathBuf {
    output.components().collect()
}

/// It goes if it is not finished.
pub struct Coming {
    folder: PathBuf,
    taken: std::cell::Cell<u64>,
}

impl Coming {
    pub fn begin(output: &Path) -> Result<Self> {
        let mut name = plain(output).into_os_string();
        name.push(format!(".coming-{}", std::process::id()));
        let folder = PathBuf::from(name);
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self { folder, taken: std::cell::Cell::new(0) })
    }

    /// Where it stands until it is finished.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes so many bytes for a moment.
    fn room(&self, bytes: u64) -> std::io::Result<()> {
        let file = File::create(self.folder.join("room"))?;
        let bytes = libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
        // SAFETY: integer arguments, and a descriptor that lives until the call returns.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) } == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            // The file system cannot tell.
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINTR) => Ok(()),
            _ => Err(error),
        }
    }

    /// More of a file of the archive, by its name on the device.
    pub fn take(&self, archive: &str, name: &str, bytes: &[u8]) -> Result<()> {
        let inner = name.strip_prefix(archive).and_then(|n| n.strip_prefix('/'));
        let Some(path) = inner.and_then(|n| below(&self.folder, n)) else {
            bail!("the device sent a file that does not belong to the archive: {name:?}");
        };
        self.taken.set(self.taken.get() + bytes.len() as u64);
        if self.taken.get() > MOST {
            bail!("the device sent an archive that is too large");
        }
        let writing = || format!("writing {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(writing)?;
        }
        let mut file = OpenOptions::new().append(true).create(true).open(&path).with_context(writing)?;
        file.write_all(bytes).with_context(writing)
    }

    /// Puts it at its place; what was there is kept beside it.
    pub fn finish(self, output: &Path, quiet: bool) -> Result<()> {
        let output = &plain(output);
        notices::keep_old(output, quiet)?;
        fs::rename(&self.folder, output)
            .with_context(|| format!("cannot write the archive to {}", output.display()))?;
        Ok(recorder::output::give_to_caller(output)?)
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_transfer_is_atomic() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("r.fathom");
        let coming = Coming::begin(&output).unwrap();
        coming.take("run.fathom", "run.fathom/a", b"12").unwrap();
        for bad in ["run.fathom/../x", "run.fathom", "/etc/x", "run.fathom//etc/x", "other/a"] {
            assert!(coming.take("run.fathom", bad, b"x").is_err(), "{bad}");
        }
        drop(coming);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let coming = Coming::begin(&output).unwrap();
        coming.take("run.fathom", "run.fathom/d/a", b"12").unwrap();
        coming.take("run.fathom", "run.fathom/d/a", b"3").unwrap();
        coming.finish(&output, true).unwrap();
        assert_eq!(fs::read(output.join("d/a")).unwrap(), b"123");
    }

    #[test]
    fn destination_and_free_space_are_checked_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("r.fathom/");
        possible(&output, 1 << 20).unwrap();
        let why = format!("{:#}", possible(&output, 1 << 60).unwrap_err());
        assert!(why.contains("not enough space for") && why.contains("nothing was measured"), "{why}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(possible(Path::new("/no/such/folder/r.fathom"), 1).is_err());
        // A destination that is no archive is reported before the run, not after it.
        fs::create_dir(&output).unwrap();
        fs::write(output.join("mine"), "").unwrap();
        assert!(possible(&output, 1).unwrap_err().to_string().contains("not a Fathom archive"));
        // A trailing slash does not change the name.
        fs::remove_file(output.join("mine")).unwrap();
        Coming::begin(&output).unwrap().finish(&output, true).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
