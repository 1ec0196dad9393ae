//! Records this program's own load, INSERTs and scans as in the papers: for the demo, for the papers' figures, and for a host next to a
//! device.

use anyhow::{Context as _, Result};
use recorder::{Request, Target};
use scores::measure::once::Load;
use std::path::Path;

/// Returns the request to record this load into `archive`.
pub fn recording_request(load: &Load<'_>, archive: &Path) -> Result<Request> {
    let fathom = std::env::current_exe().context("cannot find Fathom's own binary")?;
    // The numbers are in the recording; JSON lines would only clutter the output.
    let words = std::iter::once("workload".into()).chain(load.words("none")).map(Into::into);
    Ok(Request::new(archive.to_path_buf(), Target::Command(std::iter::once(fathom.into()).chain(words).collect())))
}
