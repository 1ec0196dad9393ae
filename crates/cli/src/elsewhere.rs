//! Verbs that are separate programs and replace this process: found next to it or in PATH, as git finds its commands.
//!
//! An SQL engine takes longer to compile than everything else together, and is four times as large. Recording on a phone needs none.

use anyhow::{Result, anyhow};
use model::text::ShownPath as _;
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that implements the SQL verbs.
const SQL_PROGRAM: &str = "fathom-sql";

/// Becomes `fathom-sql` with the arguments of this command line, which have been parsed; returns only on failure.
///
/// # Errors
/// There is no such program, or it cannot be started.
pub fn exec_sql() -> Result<Infallible> {
    exec_with(std::env::args_os().skip(1).collect())
}

/// Whether a path names a fleet, which only `fathom-sql` can open.
pub fn is_fleet(place: &Path) -> bool {
    place.to_str().is_some_and(|word| word.starts_with("s3://")) || place.join("fleet.json").is_file()
}

/// Becomes `fathom-sql` with the arguments of `fathom fleet report`.
///
/// # Errors
/// As [`exec_sql`].
pub fn exec_fleet_report(fleet: &Path, output: Option<&Path>) -> Result<Infallible> {
    let mut words: Vec<OsString> = ["fleet", "report"].map(OsString::from).to_vec();
    if let Some(output) = output {
        words.extend(["--output".into(), output.into()]);
    }
    words.extend(["--".into(), fleet.into()]);
    exec_with(words)
}

fn exec_with(words: Vec<OsString>) -> Result<Infallible> {
    let verb = words.first().map(|verb| verb.to_string_lossy().into_owned()).unwrap_or_default();
    let own = std::env::current_exe().ok();
    let beside = own.as_ref().map(|own| own.with_file_name(SQL_PROGRAM)).filter(|path| path.is_file());
    let program = beside.unwrap_or_else(|| PathBuf::from(SQL_PROGRAM));
    let mut command = Command::new(&program);
    command.args(words);
    if let Some(own) = own {
        // `fathom-sql` runs this program to build the tables of archives without any.
        command.env("FATHOM", own);
    }
    let error = command.exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        return Err(anyhow!(
            "`fathom {verb}` needs the program {SQL_PROGRAM}, which is neither beside this one nor in PATH. In Fathom's source tree, `make \
             build-sql` builds it (some minutes, once); packages include it"
        ));
    }
    Err(anyhow::Error::new(error).context(format!("starting {}", program.shown())))
}
