//! The recording of this program's own load, INSERTs and scans as the papers ran them: of the demo, of the papers' figures, and of a host
//! beside a device.

use anyhow::{Context as _, Result};
use recorder::{Request, Target};
use runner::once::Load;
use std::path::Path;

/// Of this load, into `archive`.
pub fn recording(load: &Load<'_>, archive: &Path) -> Result<Request> {
    let fathom = std::env::current_exe().context("where this program is")?;
    // The numbers are in the recording; lines of JSON would only stand between.
    let words = std::iter::once("workload".into()).chain(load.words("none")).map(Into::into);
    Ok(Request::new(archive.to_path_buf(), Target::Command(std::iter::once(fathom.into()).chain(words).collect())))
}
