//! The recording of this program's own load, INSERTs and scans as the papers ran them: of the demo, of the papers' figures, and of a host
//! beside a device.

use crate::args;
use anyhow::{Context as _, Result};
use recorder::{Request, Target};
use std::ffi::OsString;
use std::path::Path;

/// The recording of this program's own workload.
pub fn recording(args: &args::Demo, archive: &Path) -> Result<Request> {
    let fathom = std::env::current_exe().context("where this program is")?;
    let words: [OsString; 13] = [
        fathom.into(),
        "workload".into(),
        "demo".into(),
        "--rows".into(),
        args.rows.to_string().into(),
        "--scans".into(),
        args.scans.to_string().into(),
        "--journal-mode".into(),
        args.journal_mode.clone().into(),
        // The numbers are in the recording; lines of JSON would only stand between.
        "--samples".into(),
        "none".into(),
        "--dir".into(),
        args.folder.clone().into(),
    ];
    Ok(Request::new(archive.to_path_buf(), Target::Command(words.to_vec())))
}
