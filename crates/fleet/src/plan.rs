//! Which files of a fleet to merge: small files of one table and day, up to the target size.
//!
//! A file of more than half the wanted size is left alone, so that no row is rewritten forever: each merge at least doubles the
//! size of the file that a row of the smaller half is in. Files of an older version of the tables are rewritten whatever their size.

use crate::commits::{DataFile, State};
use model::table::TABLE_VERSION;
use std::collections::BTreeMap;

/// Files to merge into one, in the order of their rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    pub table: String,
    pub date: String,
    pub files: Vec<DataFile>,
}

/// Merges that give files of about `file_bytes`; groups of fewer than `files_min` small files are left alone.
pub fn plan_merges(state: &State, file_bytes: u64, files_min: usize) -> Vec<Merge> {
    let mut groups: BTreeMap<(&str, &str), Vec<&DataFile>> = BTreeMap::new();
    for file in state.files.values() {
        if file.bytes < file_bytes / 2 || file.table_version < TABLE_VERSION {
            groups.entry((&file.table, &file.date)).or_default().push(file);
        }
    }
    let mut merges = Vec::new();
    for ((table, date), files) in groups {
        let old = files.iter().any(|file| file.table_version < TABLE_VERSION);
        if files.len() < files_min.max(2) && !old {
            continue;
        }
        let mut bins: Vec<(u64, Vec<DataFile>)> = vec![(0, Vec::new())];
        for file in files {
            if bins.last().is_some_and(|(bytes, bin)| !bin.is_empty() && bytes + file.bytes > file_bytes) {
                bins.push((0, Vec::new()));
            }
            if let Some((bytes, bin)) = bins.last_mut() {
                *bytes += file.bytes;
                bin.push(file.clone());
            }
        }
        let worth = |bin: &Vec<DataFile>| bin.len() > 1 || bin.iter().any(|file| file.table_version < TABLE_VERSION);
        let whole = bins.into_iter().map(|(_, bin)| bin).filter(worth);
        merges.extend(whole.map(|files| Merge { table: table.into(), date: date.into(), files }));
    }
    merges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(sizes: &[u64]) -> State {
        let file = |(n, &bytes): (usize, &u64)| DataFile {
            path: format!("spans/date=2026-11-25/part-{n:03}.parquet"),
            table: "spans".into(),
            date: "2026-11-25".into(),
            rows: 1,
            bytes,
            table_version: TABLE_VERSION,
            sum: 0,
        };
        let files = sizes.iter().enumerate().map(file).map(|file| (file.path.clone(), file)).collect();
        State { files, ..State::default() }
    }

    #[test]
    fn small_files_fill_bins_and_large_ones_stay() {
        let merged = plan_merges(&state(&[30, 30, 90, 30, 30, 10]), 100, 2);
        let sizes: Vec<u64> = merged.iter().map(|merge| merge.files.iter().map(|file| file.bytes).sum()).collect();
        assert_eq!(sizes, [90, 40]);
        assert!(plan_merges(&state(&[30]), 100, 2).is_empty());
        assert!(plan_merges(&state(&[30, 30]), 100, 3).is_empty());
        assert!(plan_merges(&state(&[60, 60]), 100, 2).is_empty());
    }

    #[test]
    fn file_of_an_older_version_is_rewritten_whatever_its_size() {
        let mut state = state(&[90]);
        for file in state.files.values_mut() {
            file.table_version = TABLE_VERSION - 1;
        }
        assert_eq!(plan_merges(&state, 100, 8).len(), 1);
    }

    #[test]
    fn merged_state_needs_no_further_merge() {
        assert!(plan_merges(&state(&[90, 60, 100]), 100, 2).is_empty());
    }
}
