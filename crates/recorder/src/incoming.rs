//! An archive that is made on a device: it is received while it is written, next to its final place, and moved there when the device
//! is done or gone. What was measured until then is kept.

use crate::{ErrorContext, Metadata, Notice, Notify, output};
use archive::runs::{Entry, RunsWriter};
use archive::{ArchiveKind, Meta};
use device::remote::{DetachedOptions, DeviceAddress, Job, JobEvent, JobOutcome, Unreachable};
use model::table::MarkRow;
use model::text::ShownPath as _;
use model::{Context, Fact};
use std::fs;
use std::path::{Path, PathBuf};

/// The archive's name in the agent's directory.
pub const REMOTE_ARCHIVE_NAME: &str = "run.fathom";
/// What is not fetched: tables are made here, locks have no holder here, and unfinished files are useless.
const SKIPPED_NAMES: &[&str] = &["tables", ".tmp", "lock"];

/// What is run on the device.
#[derive(Debug, Clone, Copy)]
pub struct RemoteRun<'a> {
    pub place: &'a DeviceAddress,
    /// This program for devices of other processors.
    pub binaries: &'a [PathBuf],
    /// Files that it reads, by their names on the device.
    pub files: &'a [(String, Vec<u8>)],
    /// The words after the program's name; its archive is [`REMOTE_ARCHIVE_NAME`].
    pub words: &'a [String],
    pub output: &'a Path,
    /// Whether it outlives the connection.
    pub detached: Option<DetachedOptions<'a>>,
}

/// Why no archive was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The end was requested before there was a connection.
    #[error("interrupted")]
    Interrupted,
    /// The device failed.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The directory for it cannot be created.
    #[error("cannot create {}: {source}", .here.shown())]
    NoPlace { here: PathBuf, source: std::io::Error },
    /// The archive was received, but cannot be moved to its place.
    #[error("the archive received from {from} is in {}", .here.shown())]
    Aside {
        from: DeviceAddress,
        /// Where it is.
        here: PathBuf,
        source: Box<crate::Error>,
    },
}

/// Runs it until it ends; returns how it ended, and whether an archive was received.
pub fn fetch(
    incoming: &RemoteRun<'_>,
    context: &Context,
    notify: Notify<'_>,
    on_note: &mut dyn FnMut(JobEvent<'_>),
) -> Result<(JobOutcome, bool), FetchError> {
    let RemoteRun { place, output, .. } = *incoming;
    let mut name = output.as_os_str().to_owned();
    name.push(format!(".incoming-{}", std::process::id()));
    let here = PathBuf::from(name);
    // Left by a killed process with the same number.
    let _ = fs::remove_dir_all(&here);
    // Reported before anything begins on the device.
    fs::create_dir(&here).map_err(|source| FetchError::NoPlace { here: here.clone(), source })?;
    let job = Job {
        place,
        binaries: incoming.binaries,
        files: incoming.files,
        words: incoming.words,
        result_directory: Some((REMOTE_ARCHIVE_NAME, SKIPPED_NAMES)),
        into: &here,
        detached: incoming.detached,
    };
    let done = device::remote::run(&job, context, &mut |note| match note {
        JobEvent::Received(bytes) => context.progress(&format!("{place}: {:.1} MB", bytes as f64 / 1e6), 0, 0),
        note => on_note(note),
    });
    context.clear_progress();
    let kept = keep_received(&here, output, notify);
    let done = match done {
        Err(_) if context.cancelled() => return Err(FetchError::Interrupted),
        done => done?,
    };
    let aside = |source| FetchError::Aside { from: place.clone(), here: here.clone(), source: Box::new(source) };
    Ok((done, kept.map_err(aside)?))
}

/// Writes facts that this side knows into the received archive, next to those from the device itself.
pub fn keep_facts(archive: &Path, facts: impl IntoIterator<Item = (String, Fact)>) -> crate::Result<()> {
    let mut meta = Meta::read(archive)?;
    if meta.kind == ArchiveKind::Trace {
        let mut metadata = Metadata::load(&meta)?;
        metadata.environment.extend(facts);
        metadata.store(&mut meta)?;
        return Ok(meta.write(archive)?);
    }
    let mut log = RunsWriter::resume(archive)?.0;
    for (name, fact) in facts {
        let text = fact.value.unwrap_or_default();
        log.push(Entry::Mark(MarkRow { replicate: None, name, text }))?;
    }
    Ok(())
}

/// Moves what was received to its place, if it is an archive; returns whether it is.
fn keep_received(here: &Path, output: &Path, notify: Notify<'_>) -> crate::Result<bool> {
    let has_log = archive::log::path(here).is_file() || archive::runs::path(here).is_file();
    if !has_log {
        let _ = fs::remove_dir_all(here);
        return Ok(false);
    }
    output::keep_old(output)?.into_iter().for_each(|kept| notify(Notice::KeptOld(kept)));
    fs::rename(here, output).doing(|| format!("cannot move it to {}", output.shown()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::Archive;
    use std::cell::Cell;

    #[test]
    fn only_an_archive_with_a_log_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (here, output) = (directory.path().join("t.incoming"), directory.path().join("t.fathom"));
        let notices = Cell::new(0);
        let keep = || keep_received(&here, &output, &|_| notices.set(notices.get() + 1)).unwrap();
        fs::create_dir(&here).unwrap();
        fs::write(here.join("meta.json"), "{}").unwrap();
        assert!(!keep() && !here.exists() && !output.exists());
        Archive::create(&output, &Meta::new(ArchiveKind::Trace, 1, vec!["old".into()]), false).unwrap();
        fs::write(archive::log::path(&output), "events").unwrap();
        Archive::create(&here, &Meta::new(ArchiveKind::Trace, 1, vec!["new".into()]), false).unwrap();
        let log = archive::log::path(&here);
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        fs::write(log, "").unwrap();
        assert!(keep() && !here.exists() && notices.get() == 1);
        assert_eq!(Meta::read(&output).unwrap().command, ["new"]);
        assert_eq!(Meta::read(&directory.path().join("t.fathom.old")).unwrap().command, ["old"]);
    }
}
