//! Whether an archive's log and tables belong together, byte by byte: for those who take in archives of others.

use crate::archive::Archive;
use crate::error::Result;
use crate::layout;
use crate::log::LogReader;
use crate::runs::Runs;
use crate::tables::{Index, LogState, damaged_log, log_of};
use model::LossSource;
use model::table::{LossRow, Replicate, Row as _};

/// Checks that the log of an archive, byte by byte, is the one that its tables were made from. An archive without a log has nothing to
/// check. Of older archives, whose tables do not name their log, the log's own checksums are checked.
///
/// # Errors
/// [`crate::Error::Damaged`] if it is not, [`crate::Error::NotLinked`], [`crate::Error::Newer`], [`crate::Error::Io`].
pub fn check_log(archive: &Archive) -> Result<()> {
    let dir = archive.dir();
    let index = Index::read(dir)?;
    let Some(log) = log_of(dir) else { return Ok(()) };
    let why = match index.log {
        Some(of) => {
            (Some(of) != LogState::from_archive(dir)?).then(|| "its tables were made from another log".to_owned())
        }
        None => missing_behind_tables(archive, &index)?,
    };
    why.map_or(Ok(()), |why| Err(damaged_log(dir, log, why)))
}

/// What the log of an archive of an older version lacks, although its tables do not say so.
fn missing_behind_tables(archive: &Archive, index: &Index) -> Result<Option<String>> {
    let dir = archive.dir();
    if !layout::events(dir).is_file() {
        let tabled = index.rows.get(Replicate::TABLE.name).copied().unwrap_or(0);
        let logged = Runs::salvage(dir)?.0.runs.len() as u64;
        return Ok((logged < tabled).then(|| format!("it has {logged} processes, its tables {tabled}")));
    }
    if archive.rows::<LossRow>()?.iter().any(|loss| loss.source == LossSource::Damage) {
        return Ok(None);
    }
    let mut log = LogReader::open(dir)?;
    let events = log.by_ref().count() as u64 - log.damage().tellings;
    let stored = archive.meta().extra.get("surroundings").and_then(|all| all.get("stored")?.as_u64());
    Ok(match stored {
        Some(stored) if events < stored => Some(format!("it has {events} events of {stored}")),
        _ if log.damage().places > 0 => Some("a part of it is missing".into()),
        _ => None,
    })
}
