//! The large file: laid out once, with every byte computed from its offset.

use super::super::buffer::Buffer;
use super::super::directory::Directory;
use super::super::io_error::{self, on};
use super::super::pattern::Pattern;
use super::super::state::State;
use crate::{Error, check_cancelled};
use model::Context;
use model::text::ShownPath as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const CHUNK_BYTES: u64 = 1 << 20;

/// The content of a file before anything writes to it. The same for every run, so that a kept file can be reused.
pub(super) fn layout_pattern() -> Pattern {
    Pattern::full(2014)
}

/// Writes a new file, bypassing the cache if possible, and syncs it. Removed again if that fails.
pub(super) fn lay_out(path: &Path, size: u64, context: &Context) -> Result<(), Error> {
    let new = OpenOptions::new().write(true).create_new(true).open(path).map_err(on("create", path))?;
    let result = fill(path, &new, size, context);
    if result.is_err() {
        let _ = std::fs::remove_file(path);
    }
    result
}

fn fill(path: &Path, file: &File, size: u64, context: &Context) -> Result<(), Error> {
    // Refused by tmpfs and similar file systems: then through the cache.
    let direct = State::Direct.open_options().write(true).open(path).ok();
    let mut chunk = Buffer::new(CHUNK_BYTES as usize);
    let pattern = layout_pattern();
    for at in (0..size).step_by(CHUNK_BYTES as usize) {
        check_cancelled(context)?;
        let part = &mut chunk[..(size - at).min(CHUNK_BYTES) as usize];
        pattern.fill(at, part);
        let whole = part.len() == CHUNK_BYTES as usize;
        let to = direct.as_ref().filter(|_| whole).unwrap_or(file);
        match to.write_all_at(part, at) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => file.write_all_at(part, at),
            done => done,
        }
        .map_err(on("write", path))?;
        if at.is_multiple_of(64 * CHUNK_BYTES) {
            context.progress("laying out the file", at, size);
        }
    }
    file.sync_all().map_err(on("sync", path))
}

/// Ensures that a file to be kept exists, is complete, and has this pattern.
pub(super) fn ensure_laid_out(path: &Path, size: u64, place: &Directory, context: &Context) -> Result<(), Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            place.check_space(size, "--file-size")?;
            // Under another name until it is complete, so that a partial file is never taken for a complete one.
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{}", std::process::id()));
            let partial = Path::new(&name);
            lay_out(partial, size, context)?;
            return std::fs::rename(partial, path).map_err(on("name", path));
        }
        Err(e) => return Err(io_error::failed("open", path, &e)),
    };
    let length = file.metadata().map_err(on("inspect", path))?.len();
    let other = |why: String| {
        Error::Failed(format!(
            "{} was not laid out by this workload: {why}; choose another file (--file)",
            path.shown()
        ))
    };
    if length != size {
        return Err(other(format!("it has {length} bytes, not {size}")));
    }
    // Both ends and some offsets in between; every read of the run is checked anyway.
    let mut page = [0; 4096];
    for part in 0..=16 {
        let at = (length - length.min(4096)) / 16 * part;
        let page = &mut page[..length.min(4096) as usize];
        file.read_exact_at(page, at).map_err(on("read", path))?;
        if let Some(wrong) = layout_pattern().wrong(at, page) {
            return Err(other(format!("wrong byte at {wrong}")));
        }
    }
    Ok(())
}

/// Reads it into the page cache.
pub(super) fn read_into_cache(path: &Path, context: &Context) -> Result<(), Error> {
    let file = File::open(path).map_err(on("open", path))?;
    let mut chunk = vec![0; CHUNK_BYTES as usize];
    let mut at = 0;
    loop {
        check_cancelled(context)?;
        match file.read_at(&mut chunk, at).map_err(on("read", path))? {
            0 => return Ok(()),
            n => at += n as u64,
        }
    }
}
