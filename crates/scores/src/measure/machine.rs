//! Facts about the machine under a benchmark, and about this program.

use model::Environment;
use std::path::PathBuf;

/// Returns [`experiment::machine::facts`], and the version of the bundled SQLite.
pub fn facts(dirs: &[(String, PathBuf)]) -> Environment {
    let mut all = experiment::machine::facts(dirs);
    all.insert(
        "version.sqlite_bundled".into(),
        model::Fact {
            value: Some(workload::sqlite_version().into()),
            unknown: None,
            unit: None,
            source: "this program".into(),
            varies: "device".into(),
        },
    );
    all
}
