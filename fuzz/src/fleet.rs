//! A fleet's own files: what it is, its commits and checkpoints. They lie in a store that others write to.

use ::fleet::commits::{Commit, DataFile, FORMAT_NAME, FORMAT_VERSION, FleetInfo, State, is_data_path};
use ::fleet::plan;
use serde_json::json;

pub fn commit_seeds() -> Vec<Vec<u8>> {
    let file = |name: &str| DataFile {
        path: format!("spans/date=2026-11-25/part-{name}.parquet"),
        table: "spans".into(),
        date: "2026-11-25".into(),
        rows: 7,
        bytes: 100,
        table_version: 3,
        sum: 1,
    };
    let first = Commit {
        version: FORMAT_VERSION,
        add: vec![file("a"), file("b")],
        runs: vec!["1".into()],
        ..Commit::default()
    };
    let merge = Commit { add: vec![file("c")], remove: vec![file("a").path, file("b").path], ..first.clone() };
    let merge = Commit { runs: vec![], ..merge };
    let info = json!({
        "format": FORMAT_NAME, "version": FORMAT_VERSION, "made_by": "Fathom", "created_unix_ns": 1, "keep_raw": false, "salt": "s",
        "private": {"commands": "hash", "paths": "drop", "sql": "keep"}, "file_bytes": 134_217_728,
    });
    let lines = [json!(first), json!(merge), json!(State::default().to_checkpoint()), info];
    vec![lines.map(|line| line.to_string()).join("\n").into_bytes()]
}

/// Each line is tried as each kind of file. What a commit brings in stays below the fleet's directory, is there once, and survives a
/// checkpoint; what is merged belongs to the fleet.
pub fn check_commit(bytes: &[u8]) {
    let mut state = State::default();
    for line in bytes.split(|&byte| byte == b'\n') {
        // Either is an answer.
        let _ = FleetInfo::parse(line);
        if let Ok(checkpoint) = serde_json::from_slice(line)
            && let Ok(read) = State::from_checkpoint(checkpoint)
        {
            assert!(read.files.keys().chain(read.removed.keys()).all(|path| is_data_path(path)));
        }
        let Ok(commit) = serde_json::from_slice::<Commit>(line) else { continue };
        let before = state.clone();
        match state.apply(state.last + 1, &commit) {
            Ok(()) => assert!(commit.runs.iter().all(|run| state.runs.contains(run))),
            Err(_) => assert_eq!(state, before, "a refused commit changed something"),
        }
    }
    assert!(state.files.iter().all(|(path, file)| is_data_path(path) && *path == file.path && !path.contains("..")));
    assert_eq!(State::from_checkpoint(state.to_checkpoint()).as_ref(), Ok(&state));
    let mut seen = std::collections::HashSet::new();
    for merge in plan::plan_merges(&state, 1000, 2) {
        assert!(merge.files.iter().all(|file| state.files.contains_key(&file.path) && seen.insert(file.path.clone())));
    }
}
