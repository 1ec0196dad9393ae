//! Files that stand there whole or not at all: written under another name beside their own, then renamed. What a full disk
//! or a Ctrl-C leaves of a page looks like a page.

use anyhow::{Context as _, Result};
use archive::SignalCleanup;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes `output` with what `fill` writes; returns what that returns. What stood there stays until all is written.
pub fn write<T>(output: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let made = |at: &Path, error| anyhow::Error::new(error).context(format!("making {}", at.display()));
    let finish = |file: File| -> Result<T> {
        let mut out = BufWriter::new(file);
        let filled = fill(&mut out)?;
        out.flush()?;
        // Before it gets its name, or a power cut could leave the name to an empty file. Devices and pipes have no such thing.
        match out.get_ref().sync_all() {
            Err(e) if e.kind() != std::io::ErrorKind::InvalidInput && e.raw_os_error() != Some(libc::EROFS) => {
                Err(e.into())
            }
            _ => Ok(filled),
        }
    };
    let writing = || format!("writing {}", output.display());
    // A link stays one, and what it leads to is replaced.
    let target = fs::canonicalize(output).unwrap_or_else(|_| output.to_path_buf());
    let there = fs::metadata(&target).ok();
    if there.as_ref().is_some_and(|about| !about.is_file()) {
        // A device or a pipe is written to, never replaced.
        return finish(File::create(&target).map_err(|e| made(output, e))?).with_context(writing);
    }
    let tmp = beside(&target);
    let _cleanup = SignalCleanup::file(&tmp)?;
    let file = File::options().write(true).create_new(true).open(&tmp).map_err(|e| made(output, e))?;
    let filled = there.map_or(Ok(()), |about| file.set_permissions(about.permissions()).map_err(Into::into));
    let filled = filled.and_then(|()| finish(file)).and_then(|filled| {
        fs::rename(&tmp, &target)?;
        Ok(filled)
    });
    if filled.is_err() {
        // Half a file is of no use to anybody.
        let _ = fs::remove_file(&tmp);
    }
    filled.with_context(writing)
}

/// Writes a text as [`write`] does.
pub fn text(output: &Path, text: &str) -> Result<()> {
    write(output, |out| Ok(out.write_all(text.as_bytes())?))
}

/// `.NAME.PID.tmp` in the same folder, so that it can be renamed.
fn beside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{}.tmp", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_write_leaves_old_file_and_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.html");
        let half = |out: &mut dyn Write| -> Result<()> {
            out.write_all(&[b'x'; 100_000])?;
            anyhow::bail!("no room")
        };
        let names = || fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
        assert!(format!("{:#}", write(&path, half).unwrap_err()).contains("x.html: no room"));
        assert!(names().is_empty());
        text(&path, "whole").unwrap();
        assert!(write(&path, half).is_err());
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names().len()), ("whole", 1));

        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        text(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn device_file_is_written_in_place() {
        text(Path::new("/dev/null"), "gone").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(text(Path::new("/dev/full"), "no room").is_err());
    }
}
