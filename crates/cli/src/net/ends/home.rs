//! An archive on its way home: it stands under a name of its own beside its place until all of it is there.

use crate::record;
use anyhow::{Context as _, Result, bail};
use device::reach::frame::below;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// More than this no run is, bytes: a device shall not fill the disk here.
const MOST: u64 = 4 << 30;

/// Whether the archive could be written at all, before anything is measured.
pub fn possible(output: &Path) -> Result<()> {
    Coming::begin(output).map(drop)
}

/// It goes if it is not finished.
pub struct Coming {
    folder: PathBuf,
    taken: std::cell::Cell<u64>,
}

impl Coming {
    pub fn begin(output: &Path) -> Result<Self> {
        let mut name = output.as_os_str().to_owned();
        name.push(format!(".coming-{}", std::process::id()));
        let folder = PathBuf::from(name);
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder, taken: std::cell::Cell::new(0) })
    }

    /// More of a file of the archive, by its name on the device.
    pub fn take(&self, archive: &str, name: &str, bytes: &[u8]) -> Result<()> {
        let inner = name.strip_prefix(archive).and_then(|n| n.strip_prefix('/'));
        let Some(path) = inner.and_then(|n| below(&self.folder, n)) else {
            bail!("the device sent a file that is none of the archive's: {name:?}");
        };
        self.taken.set(self.taken.get() + bytes.len() as u64);
        if self.taken.get() > MOST {
            bail!("the archive is larger than any run's is");
        }
        let writing = || format!("writing {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(writing)?;
        }
        let mut file = OpenOptions::new().append(true).create(true).open(&path).with_context(writing)?;
        file.write_all(bytes).with_context(writing)
    }

    pub fn finish(self, output: &Path, quiet: bool) -> Result<()> {
        record::keep_old(output, quiet)?;
        fs::rename(&self.folder, output).with_context(|| format!("cannot put the archive at {}", output.display()))?;
        record::give_to_caller(output)
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
    fn an_archive_comes_whole_or_not_at_all() {
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
        assert!(possible(Path::new("/no/such/folder/r.fathom")).is_err());
    }
}
