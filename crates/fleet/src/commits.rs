//! What belongs to a fleet: a sequence of commits, each written whole or not at all under the next free number.
//!
//! ```text
//! FLEET/
//!   fleet.json                          what this is, and its rules
//!   _log/00000000000000000001.json      a commit: files added and removed, runs added
//!   _checkpoints/00000000000000000064.json   all commits up to it in one
//!   TABLE/date=2026-11-25/part-….parquet     rows; in the fleet if a commit says so
//!   _raw/RUN/…                          the archive itself, if the fleet keeps it
//! ```
//!
//! Files are written first, then named by a commit. A writer that dies in between leaves files that nobody reads, and `gc` removes them.
//! The next number is taken by a conditional put, which one of several writers wins; the others read its commit, check that their own
//! still applies, and try the next number. File names are unique, so no writer can overwrite another's file.
//! This is how Delta Lake and Iceberg do it; either's whole format would tie the directory to an engine that writes it.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

use crate::privacy::Rules;

/// Version of the layout and of these files.
pub const FORMAT_VERSION: u32 = 1;

/// The value of `format` in `fleet.json`.
pub const FORMAT_NAME: &str = "fathom-fleet";

/// Where `fleet.json` is.
pub const INFO_FILE_NAME: &str = "fleet.json";

/// Commits between two checkpoints.
pub const COMMITS_PER_CHECKPOINT: u64 = 64;

/// What a fleet is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetInfo {
    /// Always `fathom-fleet`.
    pub format: String,
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// Who made it.
    pub made_by: String,
    /// When, ns since 1970.
    pub created_unix_ns: u64,
    /// How private texts are treated.
    pub private: Rules,
    /// The salt of its hashes.
    pub salt: String,
    /// Whether it keeps the archives themselves in addition to their tables.
    pub keep_raw: bool,
    /// Target size of its files.
    pub file_bytes: u64,
}

impl FleetInfo {
    /// Reads it.
    pub fn parse(bytes: &[u8]) -> Result<Self, InfoError> {
        // Format and version first: a newer one may have changed everything else.
        let value: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|error| InfoError::Damaged(error.to_string()))?;
        if value.get("format").and_then(|format| format.as_str()) != Some(FORMAT_NAME) {
            return Err(InfoError::Foreign);
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version > u64::from(FORMAT_VERSION) => return Err(InfoError::Newer(version)),
            Some(_) => {}
            None => return Err(InfoError::Damaged("it has no version".into())),
        }
        serde_json::from_value(value).map_err(|error| InfoError::Damaged(error.to_string()))
    }
}

/// Why a fleet's own file cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// Another program's.
    #[error("it does not belong to a fleet ({INFO_FILE_NAME} has no \"format\": \"{FORMAT_NAME}\")")]
    Foreign,
    /// A newer program's.
    #[error("its layout has version {0}; this program reads versions up to {FORMAT_VERSION}")]
    Newer(u64),
    #[error("it is damaged: {0}")]
    Damaged(String),
}

/// A file with rows of one table and one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Relative to the fleet's root.
    pub path: String,
    pub table: String,
    /// Its day, as in the directory's name.
    pub date: String,
    pub rows: u64,
    pub bytes: u64,
    /// [`model::table::TABLE_VERSION`] of its columns.
    pub table_version: u32,
    /// CRC-32 of the file.
    pub sum: u32,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Commit {
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// Identifies the writer and its commit: if a put succeeds and its response is lost, the next attempt recognises its own
    /// commit.
    #[serde(default)]
    pub id: String,
    /// Who made it.
    pub made_by: String,
    /// When, ns since 1970.
    pub at_unix_ns: u64,
    /// Files that belong to the fleet from now on.
    pub add: Vec<DataFile>,
    /// Files that no longer do.
    pub remove: Vec<String>,
    /// Archives that were added.
    pub runs: Vec<String>,
    /// The recordings of these archives ([`crate::Identity::recording`]), by run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recordings: BTreeMap<String, String>,
}

/// All commits up to one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Checkpoint {
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// The last commit in it.
    pub upto: u64,
    /// The fleet's files.
    pub files: Vec<DataFile>,
    /// The fleet's archives.
    pub runs: Vec<String>,
    /// Their recordings, by run; those added by older versions have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recordings: BTreeMap<String, String>,
    /// Files that belonged to it, and when they were replaced.
    #[serde(default)]
    pub removed: BTreeMap<String, u64>,
}

/// A fleet after some commit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    /// The last commit; 0 before the first.
    pub last: u64,
    /// Its files by path.
    pub files: BTreeMap<String, DataFile>,
    pub runs: BTreeSet<String>,
    /// The run of each recording.
    pub recordings: BTreeMap<String, String>,
    /// Files that belonged to it, and when they were replaced, ns since 1970: a query that began before may still read them.
    pub removed: BTreeMap<String, u64>,
}

/// Why a commit cannot follow a state.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Another writer added these archives.
    #[error("another writer has added {} of these archives", .0.len())]
    Runs(Vec<String>),
    /// Another writer added other states of the recordings of these archives.
    #[error("another writer has added {} of these recordings", .0.len())]
    Recordings(Vec<String>),
    /// Another writer replaced a file.
    #[error("another writer has replaced {0}")]
    Gone(String),
    /// A file of that name belongs to the fleet already.
    #[error("{0} is already in the fleet")]
    Twice(String),
    /// A path that leads elsewhere.
    #[error("{0:?} is not the path of a table's file")]
    Outside(String),
}

impl State {
    /// The state that a checkpoint holds.
    pub fn from_checkpoint(checkpoint: Checkpoint) -> Result<Self, Conflict> {
        let Checkpoint { upto, files, runs, recordings, removed, .. } = checkpoint;
        let removed = removed.into_iter().filter(|(path, _)| is_data_path(path)).collect();
        let recordings = recordings.into_iter().map(|(run, recording)| (recording, run)).collect();
        let runs = runs.into_iter().collect();
        let mut state = Self { last: upto, runs, recordings, removed, ..Self::default() };
        for file in files {
            state.insert(file)?;
        }
        Ok(state)
    }

    /// This state as a checkpoint.
    pub fn to_checkpoint(&self) -> Checkpoint {
        Checkpoint {
            version: FORMAT_VERSION,
            upto: self.last,
            files: self.files.values().cloned().collect(),
            runs: self.runs.iter().cloned().collect(),
            recordings: self.recordings.iter().map(|(recording, run)| (run.clone(), recording.clone())).collect(),
            removed: self.removed.clone(),
        }
    }

    fn insert(&mut self, file: DataFile) -> Result<(), Conflict> {
        if !is_data_path(&file.path) {
            return Err(Conflict::Outside(file.path));
        }
        match self.files.insert(file.path.clone(), file) {
            Some(old) => Err(Conflict::Twice(old.path)),
            None => Ok(()),
        }
    }

    /// Whether a commit may follow this state.
    pub fn check_commit(&self, commit: &Commit) -> Result<(), Conflict> {
        let known: Vec<String> = commit.runs.iter().filter(|run| self.runs.contains(*run)).cloned().collect();
        if !known.is_empty() {
            return Err(Conflict::Runs(known));
        }
        let there = |(run, recording): (&String, &String)| self.recordings.contains_key(recording).then(|| run.clone());
        let other: Vec<String> = commit.recordings.iter().filter_map(there).collect();
        if !other.is_empty() {
            return Err(Conflict::Recordings(other));
        }
        if let Some(gone) = commit.remove.iter().find(|path| !self.files.contains_key(*path)) {
            return Err(Conflict::Gone(gone.clone()));
        }
        if let Some(odd) = commit.add.iter().find(|file| !is_data_path(&file.path)) {
            return Err(Conflict::Outside(odd.path.clone()));
        }
        let mut own = BTreeSet::new();
        match commit.add.iter().find(|file| self.files.contains_key(&file.path) || !own.insert(&file.path)) {
            Some(twice) => Err(Conflict::Twice(twice.path.clone())),
            None => Ok(()),
        }
    }

    /// Forgets replaced files that were deleted.
    pub fn forget(&mut self, deleted: &[String]) {
        self.removed.retain(|path, _| !deleted.contains(path));
    }

    /// The state after a commit.
    ///
    /// # Errors
    /// As [`State::check_commit`]; the state is as it was then.
    pub fn apply(&mut self, number: u64, commit: &Commit) -> Result<(), Conflict> {
        self.check_commit(commit)?;
        for path in &commit.remove {
            self.files.remove(path);
            self.removed.insert(path.clone(), commit.at_unix_ns);
        }
        for file in &commit.add {
            self.insert(file.clone())?;
        }
        self.runs.extend(commit.runs.iter().cloned());
        self.recordings.extend(commit.recordings.iter().map(|(run, recording)| (recording.clone(), run.clone())));
        self.last = number;
        Ok(())
    }
}

/// Where the files of a table and a day are.
pub fn data_directory(table: &str, date: &str) -> String {
    format!("{table}/date={date}")
}

/// Whether a path is `TABLE/date=DAY/NAME.parquet` and nothing else: a commit is untrusted input.
pub fn is_data_path(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let [table, date, name] = parts[..] else { return false };
    let day = date.strip_prefix("date=").unwrap_or_default();
    crate::tables().any(|known| known.name == table)
        && day.len() == 10
        && day.chars().all(|c| c.is_ascii_digit() || c == '-')
        && name.ends_with(".parquet")
        && !name.contains("..")
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.')
}

/// Where a commit is.
pub fn commit_path(number: u64) -> String {
    format!("_log/{number:020}.json")
}

/// Where a checkpoint is.
pub fn checkpoint_path(number: u64) -> String {
    format!("_checkpoints/{number:020}.json")
}

/// The number of a commit or checkpoint of this path.
pub fn number_from_path(path: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?.strip_suffix(".json")?;
    (name.len() == 20).then(|| name.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn file(path: &str) -> DataFile {
        let parts: Vec<&str> = path.split('/').collect();
        let date = parts[1].trim_start_matches("date=").to_string();
        DataFile { path: path.into(), table: parts[0].into(), date, rows: 1, bytes: 10, table_version: 3, sum: 7 }
    }

    fn commit(add: &[&str], remove: &[&str], runs: &[&str]) -> Commit {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_string()).collect();
        Commit {
            version: FORMAT_VERSION,
            add: add.iter().map(|path| file(path)).collect(),
            remove: own(remove),
            runs: own(runs),
            ..Commit::default()
        }
    }

    const PATH_A: &str = "spans/date=2026-11-25/part-a.parquet";
    const PATH_B: &str = "spans/date=2026-11-25/part-b.parquet";

    #[test]
    fn commits_apply_in_order_and_a_checkpoint_holds_the_same() {
        let mut state = State::default();
        state.apply(1, &commit(&[PATH_A], &[], &["1"])).unwrap();
        state.apply(2, &commit(&[PATH_B], &[PATH_A], &["2"])).unwrap();
        assert_eq!((state.files.len(), state.runs.len(), state.last), (1, 2, 2));
        assert_eq!(state.removed.keys().collect::<Vec<_>>(), [PATH_A]);
        assert_eq!(State::from_checkpoint(state.to_checkpoint()), Ok(state));
    }

    #[test]
    fn second_writer_of_the_same_archive_or_file_conflicts() {
        let mut state = State::default();
        state.apply(1, &commit(&[PATH_A], &[], &["1"])).unwrap();
        let before = state.clone();
        assert_eq!(state.apply(2, &commit(&[PATH_B], &[], &["1", "2"])), Err(Conflict::Runs(vec!["1".into()])));
        assert_eq!(state.apply(2, &commit(&[PATH_A], &[], &[])), Err(Conflict::Twice(PATH_A.into())));
        assert_eq!(state.apply(2, &commit(&[], &[PATH_B], &[])), Err(Conflict::Gone(PATH_B.into())));
        assert_eq!(state, before);
        assert_eq!(state.check_commit(&commit(&[PATH_B], &[PATH_A], &["2"])), Ok(()));
    }

    /// Another state of a recording is another run, whose rows would count in addition to its own.
    #[test]
    fn second_state_of_a_recording_conflicts() {
        let of = |run: &str| {
            let recordings = BTreeMap::from([(run.to_string(), "r".to_string())]);
            Commit { recordings, ..commit(&[], &[], &[run]) }
        };
        let mut state = State::default();
        state.apply(1, &of("1")).unwrap();
        assert_eq!(state.apply(2, &of("2")), Err(Conflict::Recordings(vec!["2".into()])));
        assert_eq!(State::from_checkpoint(state.to_checkpoint()), Ok(state.clone()));
        // Written by an older version.
        assert_eq!(state.apply(2, &commit(&[], &[], &["3"])), Ok(()));
    }

    #[test]
    fn hostile_path_is_refused() {
        assert!(is_data_path(PATH_A));
        for path in [
            "spans/date=2026-11-25/../../../etc/passwd.parquet",
            "/etc/date=2026-11-25/x.parquet",
            "spans/date=../x.parquet",
            "../date=2026-11-25/x.parquet",
            "spans/date=2026-11-25/.x.parquet",
            "spans/date=2026-11-25/x.sh",
            "spans/date=2026-11-25/x..parquet",
            "nothing/date=2026-11-25/x.parquet",
            "",
        ] {
            assert!(!is_data_path(path), "{path}");
            let odd = DataFile { path: path.into(), ..file(PATH_A) };
            let commit = Commit { add: vec![odd], ..Commit::default() };
            assert_eq!(State::default().check_commit(&commit), Err(Conflict::Outside(path.into())));
        }
    }

    #[test]
    fn foreign_newer_and_damaged_info_have_distinct_errors() {
        assert_eq!(FleetInfo::parse(b"{}"), Err(InfoError::Foreign));
        assert_eq!(FleetInfo::parse(br#"{"format": "fathom-fleet", "version": 9}"#), Err(InfoError::Newer(9)));
        assert!(matches!(FleetInfo::parse(b"{"), Err(InfoError::Damaged(_))));
        assert!(matches!(FleetInfo::parse(br#"{"format": "fathom-fleet", "version": 1}"#), Err(InfoError::Damaged(_))));
    }

    #[test]
    fn numbers_are_read_back_from_paths() {
        assert_eq!(number_from_path(&commit_path(7)), Some(7));
        assert_eq!(number_from_path(&checkpoint_path(u64::from(u32::MAX))), Some(u64::from(u32::MAX)));
        assert_eq!(number_from_path("_log/7.json"), None);
        assert_eq!(number_from_path("_log/00000000000000000007.json.tmp"), None);
    }
}
