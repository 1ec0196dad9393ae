//! An open fleet: its description, and the commits that define its content.

use super::store::Store;
use crate::tables::{Part, Parts};
use anyhow::{Context as _, Result, anyhow, bail};
use archive::unix_now_ns;
use datafusion::common::ScalarValue;
use fleet::commits::{self, Checkpoint, Commit, Conflict, DataFile, FleetInfo, State};
use futures_util::{StreamExt, TryStreamExt};

/// A fleet.
#[derive(Clone)]
pub struct Fleet {
    /// Its location.
    pub store: Store,
    /// Its description.
    pub info: FleetInfo,
    /// Its content.
    pub state: State,
}

/// Why a commit was not made.
#[derive(Debug)]
pub enum CommitError {
    /// Another writer was first, and this commit no longer applies.
    Conflict(Conflict),
    /// The store failed.
    Store(anyhow::Error),
}

impl Fleet {
    /// Creates an empty fleet.
    ///
    /// # Errors
    /// There already is a fleet or something else, or the store refuses.
    pub async fn init(word: &str, info: FleetInfo) -> Result<Self> {
        let store = Store::open(word)?;
        if let Some(directory) = store.directory() {
            let others = std::fs::read_dir(directory).map(|mut entries| entries.next().is_some()).unwrap_or(false);
            if others && store.read(commits::INFO_FILE_NAME).await?.is_none() {
                bail!("{word} is not empty; give a new or empty directory");
            }
            std::fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
        }
        let bytes = serde_json::to_vec_pretty(&info)?;
        if !store.put_new(commits::INFO_FILE_NAME, bytes.clone()).await? {
            bail!("{word} is already a fleet; `fathom fleet add` adds to it");
        }
        // The second put of the same name must fail, or two writers could both believe to be first. Its bytes differ,
        // so that it cannot be taken for a repetition of the first.
        if store.put_new(commits::INFO_FILE_NAME, [&bytes[..], b"\n"].concat()).await? {
            store.delete(commits::INFO_FILE_NAME).await?;
            bail!(
                "this store overwrites a file in spite of If-None-Match: several writers would lose each other's work"
            );
        }
        Ok(Self { store, info, state: State::default() })
    }

    /// Opens a fleet as it is now.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub async fn open(word: &str) -> Result<Self> {
        let store = Store::open(word)?;
        let bytes = store.read(commits::INFO_FILE_NAME).await?;
        let bytes = bytes.ok_or_else(|| anyhow!("{word} is not a fleet; `fathom fleet init {word}` creates one"))?;
        let info = FleetInfo::parse(&bytes).map_err(|why| anyhow!("{word}: {why}"))?;
        let mut fleet = Self { store, info, state: State::default() };
        fleet.load().await?;
        Ok(fleet)
    }

    /// Reads the newest checkpoint, and the commits after it.
    async fn load(&mut self) -> Result<()> {
        let checkpoints = self.store.list("_checkpoints").await?;
        if let Some((path, number)) = checkpoints
            .iter()
            .filter_map(|one| Some((&one.path, commits::number_from_path(&one.path)?)))
            .max_by_key(|(_, number)| *number)
        {
            let bytes = self.store.read(path).await?.with_context(|| format!("{path} is missing"))?;
            let checkpoint: Checkpoint =
                serde_json::from_slice(&bytes).with_context(|| format!("{path} is damaged"))?;
            if checkpoint.upto != number || checkpoint.version > commits::FORMAT_VERSION {
                bail!("{path} belongs to another commit, or to a newer version");
            }
            self.state = State::from_checkpoint(checkpoint).with_context(|| format!("{path} is damaged"))?;
        }
        self.refresh().await
    }

    /// Reads the commits made since.
    ///
    /// # Errors
    /// A commit cannot be read, or is missing.
    pub async fn refresh(&mut self) -> Result<()> {
        let after = self.state.last;
        // Earlier ones are never listed again: a store needs a request per thousand.
        let listed = self.store.list_after("_log", Some(&commits::commit_path(after))).await?;
        let newest = listed.iter().filter_map(|one| commits::number_from_path(&one.path)).max().unwrap_or(after);
        // Reads all commits up to the newest, including those not listed: a listing is no snapshot, and may have passed the position of a
        // commit before that was made, but not that of the next one.
        let new = (after + 1..=newest).map(|number| (number, commits::commit_path(number)));
        let store = &self.store;
        let mut read = futures_util::stream::iter(new)
            .map(|(number, path)| async move {
                let bytes = store.read(&path).await?;
                let bytes = bytes.with_context(|| format!("{path} is missing, but later commits exist"))?;
                let commit: Commit = serde_json::from_slice(&bytes).with_context(|| format!("{path} is damaged"))?;
                Ok::<_, anyhow::Error>((number, path, commit))
            })
            .buffered(16);
        let mut state = self.state.clone();
        while let Some((number, path, commit)) = read.try_next().await? {
            if commit.version > commits::FORMAT_VERSION {
                bail!(
                    "{path} has a newer version ({}); this program reads versions up to {}",
                    commit.version,
                    commits::FORMAT_VERSION
                );
            }
            state.apply(number, &commit).with_context(|| format!("{path} is damaged"))?;
        }
        drop(read);
        self.state = state;
        Ok(())
    }

    /// Makes a commit the next one, after those of other writers, if it may still follow them.
    ///
    /// # Errors
    /// As [`CommitError`]; the state is then the newest.
    pub async fn commit(&mut self, mut commit: Commit) -> Result<(), CommitError> {
        commit.version = commits::FORMAT_VERSION;
        commit.id = super::rows::unique_name();
        commit.made_by = super::rows::made_by();
        commit.at_unix_ns = unix_now_ns();
        loop {
            self.state.check_commit(&commit).map_err(CommitError::Conflict)?;
            let next = self.state.last + 1;
            let bytes = serde_json::to_vec(&commit).map_err(|error| CommitError::Store(error.into()))?;
            let first = self.store.put_new(&commits::commit_path(next), bytes).await.map_err(CommitError::Store)?;
            if first || self.is_ours(next, &commit.id).await.map_err(CommitError::Store)? {
                self.state.apply(next, &commit).map_err(CommitError::Conflict)?;
                if next.is_multiple_of(commits::COMMITS_PER_CHECKPOINT) {
                    self.checkpoint().await.map_err(CommitError::Store)?;
                }
                return Ok(());
            }
            self.refresh().await.map_err(CommitError::Store)?;
        }
    }

    /// Whether the commit of this number is the one with this id.
    async fn is_ours(&self, number: u64, id: &str) -> Result<bool> {
        let path = commits::commit_path(number);
        let Some(bytes) = self.store.read(&path).await? else { return Ok(false) };
        let there: Commit = serde_json::from_slice(&bytes).with_context(|| format!("{path} is damaged"))?;
        Ok(there.id == id)
    }

    /// Removes files that were written for a commit that failed.
    pub async fn discard(&self, files: &[DataFile]) -> Result<()> {
        // Their names were never published; should one be in the fleet nonetheless, it stays.
        for file in files.iter().filter(|file| !self.state.files.contains_key(&file.path)) {
            self.store.delete(&file.path).await?;
        }
        Ok(())
    }

    /// Returns the files that are missing, or differ from what was written.
    pub async fn damaged(&self) -> Result<Vec<String>> {
        let mut damaged = Vec::new();
        for file in self.state.files.values() {
            let sum = match self.store.fetch(&file.path).await {
                Ok(mut source) => super::rows::checksum(&mut source)?,
                Err(error) => {
                    damaged.push(format!("{}: {error:#}", file.path));
                    continue;
                }
            };
            if sum != file.sum {
                damaged.push(format!("{}: checksum mismatch", file.path));
            }
        }
        Ok(damaged)
    }

    /// Writes all commits so far as one file, from which the next reader starts.
    pub async fn checkpoint(&self) -> Result<()> {
        let bytes = serde_json::to_vec(&self.state.to_checkpoint())?;
        // An earlier writer wrote the same bytes.
        self.store.put_new(&commits::checkpoint_path(self.state.last), bytes).await.map(drop)
    }

    /// The files of a table for the engine.
    pub fn table(&self, name: &str) -> Box<dyn Parts> {
        let files = self.state.files.values().filter(|file| file.table == name);
        let parts = files.map(|file| Part {
            location: self.store.location(&file.path),
            bytes: file.bytes,
            rows: file.rows,
            values: vec![ScalarValue::Date32(day_number(&file.date))],
        });
        Box::new(Listed(parts.collect()))
    }
}

struct Listed(Vec<Part>);

impl Parts for Listed {
    fn parts(&self) -> Result<Vec<Part>> {
        Ok(self.0.clone())
    }
}

/// Days since 1970 of `2026-11-25`.
fn day_number(date: &str) -> Option<i32> {
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // After Hinnant, "chrono-compatible low-level date algorithms".
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    i32::try_from(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_is_inverse_of_date() {
        for known in [0, 1, 59, 60, 365, 11_016, 20_782, 40_000] {
            assert_eq!(day_number(&fleet::identity::format_day(known)), Some(known));
        }
        for odd in ["2026-13-01", "x", "2026-11", ""] {
            assert_eq!(day_number(odd), None, "{odd}");
        }
    }
}
