//! INSERTs recorded on two devices: the papers' load, with the journal mode of each. What it needs of a program is this one, which is
//! there already.

use super::record;
use crate::{args, bench::INTERRUPTED, link, notices, own_load, progress};
use anyhow::{Result, bail};
use device::remote::{DeviceAddress, PROGRAM};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What is recorded.
pub struct Load {
    /// INSERTs, each in a transaction of its own.
    pub rows: u64,
    /// Full scans afterwards.
    pub scans: u64,
    /// SQLite's journal mode.
    pub journal_mode: String,
}

/// What came of it.
pub enum Outcome {
    /// A recording.
    Recorded(PathBuf),
    /// None, and why.
    Not(String),
    /// Somebody asked for an end.
    Interrupted,
}

/// Records it there; `binaries` are this program for other processors.
pub fn record_at(place: &DeviceAddress, load: &Load, path: &Path, binaries: &[PathBuf]) -> Result<Outcome> {
    match place {
        DeviceAddress::Local => here(load, path),
        _ => there(place, load, path, binaries),
    }
}

fn here(load: &Load, path: &Path) -> Result<Outcome> {
    let context = progress::context(false);
    progress::end_on_signal(&context);
    let words = args::Demo {
        rows: load.rows,
        scans: load.scans,
        journal_mode: load.journal_mode.clone(),
        folder: PathBuf::from("."),
    };
    let done = recorder::record(&own_load::recording(&words, path)?, &context, &notices::warn);
    progress::clear(&context);
    Ok(match done {
        _ if context.cancelled() => Outcome::Interrupted,
        Ok(done) if done.status == 0 => Outcome::Recorded(path.to_path_buf()),
        Ok(done) => Outcome::Not(format!("the workload ended with status {}", done.status)),
        Err(error) => Outcome::Not(crate::sentence(&anyhow::Error::from(error))),
    })
}

fn there(place: &DeviceAddress, load: &Load, path: &Path, binaries: &[PathBuf]) -> Result<Outcome> {
    let mut words: Vec<String> = ["record", "--quiet"].map(String::from).to_vec();
    words.push(format!("--device={place}"));
    words.push(format!("--output={}", path.to_string_lossy()));
    words.extend(binaries.iter().map(|binary| format!("--binary={}", binary.to_string_lossy())));
    words.extend(["--", PROGRAM, "workload", "demo", "--samples=none", "--dir=."].map(String::from));
    words.extend([format!("--rows={}", load.rows), format!("--scans={}", load.scans)]);
    words.push(format!("--journal-mode={}", load.journal_mode));
    let args::Verb::Record(request) = args::asked(&words)? else { bail!("it cannot be recorded") };
    Ok(match record::alone(&request, place) {
        Ok(done) if done.code == ExitCode::SUCCESS => Outcome::Recorded(path.to_path_buf()),
        Ok(done) if done.code == ExitCode::from(INTERRUPTED) => Outcome::Interrupted,
        Ok(record::Recorded { lost: Some(why), .. }) => Outcome::Not(why),
        Ok(_) => Outcome::Not(format!("it cannot be recorded there: `fathom device check {place}` says why")),
        Err(error) if error.is::<crate::Interrupted>() => Outcome::Interrupted,
        Err(error) => Outcome::Not(crate::sentence(&error)),
    })
}

/// The papers' figures of a recording.
///
/// # Errors
/// It cannot be read, in a sentence.
pub fn figures(path: &Path) -> Result<Vec<analysis::papers::Figure>, String> {
    let read = || -> Result<_> { Ok(analysis::summarise_archive(&link::open(path, &progress::context(true))?)?) };
    read().map(|summary| analysis::papers::compare(&summary)).map_err(|error| crate::sentence(&error))
}
