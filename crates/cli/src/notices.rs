//! Prints the crates' notices on stderr, one per line, prefixed with the program's name.

use anyhow::Result;
use archive::Runs;
use recorder::Notice;
use std::fmt::Display;
use std::path::Path;

pub fn say(what: &dyn Display) {
    what.to_string().lines().for_each(|line| eprintln!("fathom: {line}"));
}

/// Returns the log of a benchmark after printing its warnings.
pub fn warned((runs, warnings): (Runs, Vec<String>)) -> Runs {
    warnings.iter().for_each(|warning| say(warning));
    runs
}

/// Prints a notice of a benchmark's table maker.
pub fn print_run_notice(notice: experiment::tables::Notice) {
    say(&notice);
}

/// Prints a notice of a benchmark's runner.
pub fn remark(notice: runner::Notice) {
    say(&notice);
}

/// Prints a notice of the recorder, if it is a warning.
pub fn warn(notice: Notice) {
    if !notice.is_remark() {
        say(&notice);
    }
}

pub fn print(notice: Notice) {
    say(&notice);
}

/// Moves an archive of that name out of the way, and reports it unless `quiet`.
pub fn keep_old(output: &Path, quiet: bool) -> Result<()> {
    if let Some(kept) = recorder::output::keep_old(output)?.filter(|_| !quiet) {
        print(Notice::KeptOld(kept));
    }
    Ok(())
}
