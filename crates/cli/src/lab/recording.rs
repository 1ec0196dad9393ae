//! Recordings made by a guest of the lab.

use archive::table_maker::Failure;
use lab::show::Recording;
use scores::measure::Open;
use std::path::Path;

/// Returns the recording in the directory of a run, if there is one; tables that the guest did not finish are made here.
pub fn read_recording(directory: &Path, open: Open<'_>) -> Option<Recording> {
    let path = directory.join(lab::run::ARCHIVE_NAME);
    if !archive::log::path(&path).is_file() {
        return None;
    }
    let read = || -> Result<Recording, Failure> {
        let summary = analysis::summarise_archive(&open(&path)?)?;
        Ok(Recording {
            operations: summary.operations.iter().map(|o| o.count).sum(),
            commands: summary.device_commands.total as u64,
            complete: summary.trace.complete,
            blind: summary.blind.iter().map(|blind| blind.means.clone()).collect(),
            lost: !summary.loss.intervals.is_empty(),
            problem: None,
        })
    };
    let problem =
        |error: Failure| Recording { problem: Some(model::text::error_chain(error.as_ref())), ..Recording::default() };
    Some(read().unwrap_or_else(problem))
}
