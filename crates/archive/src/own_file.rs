//! Opens files of an archive, which are not trusted.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a file of an archive for reading. A pipe or a device is refused: opening the one waits for a writer, and reading the other may
/// never end. A directory is left to the caller.
///
/// # Errors
/// Those of the system; [`ErrorKind::InvalidInput`] for a pipe or a device.
pub fn open(path: &Path) -> Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_dir() {
        return Ok(file);
    }
    Err(Error::new(ErrorKind::InvalidInput, "it is a pipe or a device, not a file"))
}

/// Reads all of a file that [`open`] accepts.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut open(path)?, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Archive, ArchiveKind, Lock, LogReader, Meta, TablesWriter, runs::Runs, tables::Index};
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt as _;

    fn make_pipe(path: &Path) {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: mkfifo reads a string that ends with NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    }

    /// Each would wait for ever.
    #[test]
    fn a_pipe_in_place_of_any_file_is_refused() {
        for name in ["meta.json", "events.log", "runs.jsonl", "tables/index.json", "tables/facts.parquet", "lock"] {
            let directory = tempfile::tempdir().unwrap();
            let dir = directory.path().join("a.fathom");
            Archive::create(&dir, &Meta::new(ArchiveKind::Trace, 1, vec![]), false).unwrap();
            let mut tables = TablesWriter::create(&dir).unwrap();
            let text = |text: &str| text.to_string();
            let (unknown, unit) = (None, None);
            let (source, varies) = (text("x"), text("device"));
            tables
                .push(&model::table::FactRow { name: text("a"), value: Some(text("b")), unknown, unit, source, varies })
                .unwrap();
            tables.finish().unwrap();
            let _ = std::fs::remove_file(dir.join(name));
            make_pipe(&dir.join(name));
            let refused = match name {
                "meta.json" => Meta::read(&dir).is_err(),
                "events.log" => LogReader::open(&dir).is_err(),
                "runs.jsonl" => Runs::salvage(&dir).is_err(),
                "tables/index.json" => Index::read(&dir).is_err(),
                "lock" => Lock::is_free(&dir).is_ok(),
                _ => Archive::open(&dir).unwrap().rows::<model::table::FactRow>().is_err(),
            };
            assert!(refused, "{name}");
        }
    }

    #[test]
    fn a_device_is_refused_and_a_directory_left_to_the_caller() {
        assert_eq!(open(Path::new("/dev/zero")).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(read(Path::new("/")).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(read(Path::new("/nonexistent")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
