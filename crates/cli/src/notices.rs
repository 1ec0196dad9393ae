//! Prints the crates' notices on stderr, one per line, prefixed with the program's name.

use anyhow::Result;
use archive::Runs;
use recorder::Notice;
use std::fmt::Display;
use std::path::Path;

pub fn print_notice(what: &dyn Display) {
    what.to_string().lines().for_each(|line| eprintln!("fathom: {line}"));
}

/// Returns the log of a benchmark after printing its warnings.
pub fn print_warnings((runs, warnings): (Runs, Vec<String>)) -> Runs {
    warnings.iter().for_each(|warning| print_notice(warning));
    runs
}

/// Prints a notice of a benchmark's table maker.
pub fn print_table_notice(notice: experiment::tables::Notice) {
    print_notice(&notice);
}

/// Prints a notice of a benchmark's runner.
pub fn print_runner_notice(notice: scores::measure::Notice) {
    print_notice(&notice);
}

/// Prints a notice of the recorder, if it is a warning.
pub fn print_warning(notice: Notice) {
    if !notice.is_remark() {
        print_notice(&notice);
    }
}

pub fn print_recorder_notice(notice: Notice) {
    print_notice(&notice);
}

/// Moves an archive of that name out of the way, and reports it unless `quiet`.
pub fn keep_old(output: &Path, quiet: bool) -> Result<()> {
    if let Some(kept) = recorder::output::keep_old(output)?.filter(|_| !quiet) {
        print_recorder_notice(Notice::KeptOld(kept));
    }
    Ok(())
}
