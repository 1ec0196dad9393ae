//! A directory for a test, removed with the test.

use serde_json::Value;
use std::path::{Path, PathBuf};

pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fathom-storage-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Number of files left in it.
    pub(crate) fn left(&self) -> usize {
        std::fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a workload through its public entry point and parses its lines.
pub(crate) fn run(words: &str, dir: &Path) -> Result<Vec<Value>, crate::Error> {
    run_with(words, dir, &model::Context::silent()).0
}

/// As above, with the lines that were written although it failed.
pub(crate) fn run_with(
    words: &str,
    dir: &Path,
    context: &model::Context,
) -> (Result<Vec<Value>, crate::Error>, Vec<Value>) {
    let mut words: Vec<String> = words.split_whitespace().map(String::from).collect();
    words.extend(["--dir".into(), dir.to_str().unwrap().into()]);
    let mut out = Vec::new();
    let result = crate::run(&words, context, &mut out);
    let lines: Vec<Value> =
        out.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect();
    (result.map(|()| lines.clone()), lines)
}

pub(crate) fn values(lines: &[Value], metric: &str) -> Vec<f64> {
    lines.iter().filter(|l| l["metric"] == metric).map(|l| l["v"].as_f64().unwrap()).collect()
}

/// The text of a mark.
pub(crate) fn mark<'a>(lines: &'a [Value], name: &str) -> Option<&'a str> {
    lines.iter().find(|l| l["mark"] == name).and_then(|l| l["text"].as_str())
}
