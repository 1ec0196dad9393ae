//! Programs that SQLite is linked into.

use super::ends;
use super::{assert_hooked, assert_near, number, run, same_operations, shape_of};
use anyhow::{Context as _, Result};
use fathom_tests::{ext4, fathom};
use std::path::Path;
use std::process::Command;

/// A way to link SQLite into a program: its name, and options of the linker.
pub type LinkMethod = (&'static str, &'static [&'static str]);

pub const LINK_METHODS: [LinkMethod; 3] = [
    ("pie", &["-Wl,-Bstatic", "-lsqlite3", "-Wl,-Bdynamic", "-lm"]),
    ("static", &["-static", "-lsqlite3", "-lm"]),
    ("static-pie", &["-static-pie", "-lsqlite3", "-lm"]),
];

pub fn link_program(source: &str, options: &[&str], program: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(source);
    run(Command::new("cc").args(["-O1", "-w", "-DLINKED"]).arg(source).arg("-o").arg(program).args(options))?;
    Ok(())
}

pub fn programs(ways: &[LinkMethod]) -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (name, options) in ways {
        let program = directory.path().join(name);
        link_program("sqlite_threads.c", options, &program)?;
        let summary = same_operations(&[&program.to_string_lossy(), "40"], 5).context(*name)?;
        assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 66.0 * 40.0)?;
        assert_hooked(&summary, &program)?;
    }
    Ok(())
}

/// Fathom is such a program itself: linked statically to musl, with SQLite in it.
pub fn to_musl() -> Result<()> {
    let (disk, binary) = (ext4()?, fathom());
    let (binary, directory) = (binary.to_string_lossy(), disk.path().to_string_lossy());
    let words = ["workload", "sqlite", "--op=demo", "--rows=200", "--scans=3", "--samples=none", "--dir", &directory];
    let summary = same_operations(&[&[&*binary], &words[..]].concat(), 4)?;
    assert_hooked(&summary, Path::new(&*binary))?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 200.0)
}

pub fn endings(ways: &[LinkMethod]) -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (name, options) in ways {
        let program = directory.path().join(name);
        link_program("sqlite_endings.c", options, &program)?;
        ends::ended_as_counted(&program, &[("9", "inside")]).with_context(|| name.to_string())?;
    }
    Ok(())
}
