//! Files that are either complete or absent: written under a temporary name next to their own, then renamed. A page that a
//! full disk or a Ctrl-C left incomplete would look like a page.

use crate::error::{IoResultExt as _, Result};
use crate::{Error, SignalCleanup};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes `output` with `fill`, and returns what that returns. An existing file stays until all is written.
pub fn write<T>(output: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> Result<T> {
    // A symbolic link stays one, and its target is replaced.
    let target = fs::canonicalize(output).unwrap_or_else(|_| output.to_path_buf());
    let there = fs::metadata(&target).ok();
    let finish = |file: File| {
        let mut out = BufWriter::new(file);
        let filled = fill(&mut out)?;
        out.flush()?;
        // Synced before it gets its name, or a power cut could leave an empty file of that name. Devices and pipes cannot be
        // synced.
        match out.get_ref().sync_all() {
            Err(e) if e.kind() != io::ErrorKind::InvalidInput && e.raw_os_error() != Some(libc::EROFS) => Err(e),
            _ => Ok(filled),
        }
    };
    if there.as_ref().is_some_and(|about| !about.is_file()) {
        // A device or a pipe is written to, never replaced.
        return finish(File::create(&target).with_action("create", output)?).with_action("write", output);
    }
    let tmp = temporary_path(&target);
    let _cleanup = SignalCleanup::file(&tmp)?;
    let file = File::options()
        .write(true)
        .create_new(true)
        .open(&tmp)
        .map_err(|source| Error::creating("create", output, source))?;
    let filled = there.map_or(Ok(()), |about| file.set_permissions(about.permissions()));
    let filled = filled.and_then(|()| finish(file)).and_then(|filled| fs::rename(&tmp, &target).map(|()| filled));
    if filled.is_err() {
        // Half a file is of no use.
        let _ = fs::remove_file(&tmp);
    }
    filled.with_action("write", output)
}

/// Writes a text as [`write`] does.
pub fn write_text(output: &Path, text: &str) -> Result<()> {
    write(output, |out| out.write_all(text.as_bytes()))
}

/// `.NAME.PID.tmp` in the same directory, so that it can be renamed.
fn temporary_path(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_temporary_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.html");
        let half = |out: &mut dyn Write| -> io::Result<()> {
            out.write_all(&[b'x'; 100_000])?;
            Err(io::Error::other("no room"))
        };
        let names = || fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
        assert!(write(&path, half).unwrap_err().to_string().contains("x.html: no room"));
        assert!(names().is_empty());
        write_text(&path, "whole").unwrap();
        assert!(write(&path, half).is_err());
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names().len()), ("whole", 1));

        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_text(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let said = write_text(&dir.path().join("none/x.html"), "x").unwrap_err().to_string();
        assert!(said.contains("/none") && said.contains("mkdir -p"), "{said}");
    }

    #[test]
    fn a_device_file_is_written_in_place() {
        write_text(Path::new("/dev/null"), "gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(write_text(Path::new("/dev/full"), "no room").is_err());
    }
}
