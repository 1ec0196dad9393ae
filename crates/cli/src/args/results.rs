//! What the user may say to those verbs of `fathom bench` that look at results, and to the HTTP server.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What a change of a process's level must pay when its steady state is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Penalty {
    /// 15 ln n, the same for every series of n iterations
    Fixed,
    /// What each series suggests: the elbow over all penalties from 4 ln n on. It sees smaller and shorter changes, and some that are noise
    Crops,
}

/// Which way a score is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Better {
    /// More is better: rates
    Higher,
    /// Less is better: times
    Lower,
}

/// Compare two benchmarks cell by cell, or the values of one parameter within one.
///
/// Cells are the same if their workload and all their parameters are. Each gets the ratio B / A of the scores with its
/// interval and a verdict: faster, slower, equivalent (shown to be within the margin), or inconclusive; disturbed, where other
/// programs disturbed more than a quarter of the processes while they were measured. The margin is 2 %, or
/// what the machine's own noise makes of a cell compared with itself; of the differences that are told at most one in twenty is false (Benjamini-Hochberg).
/// Cells whose commands, units, metrics or directions differ are not one quantity: they are listed and not compared.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom bench compare monday.fathom tuesday.fathom
  fathom bench compare phone.fathom pc.fathom --markdown phone-pc.md
  fathom bench compare old.fathom new.fathom --fail-on slower:5    fails if a cell is slower
  fathom bench compare bench.fathom --by mode                      each mode with the first
  fathom bench compare bench.fathom --by mode=int                  each mode with int
  fathom bench compare pc.fathom phone.fathom --by mode=jvm-tiered,art-jit

Exit status: 0 done; 1 failed, nothing could be compared, or with --fail-on a cell is slower or could not be compared; 2 wrong usage.")]
pub struct BenchCompare {
    /// The baseline
    #[arg(value_name = "A.fathom")]
    pub a: PathBuf,
    /// The candidate
    #[arg(value_name = "B.fathom", required_unless_present = "by")]
    pub b: Option<PathBuf>,
    /// Compare the values of a parameter within A, with the first or with VALUE; of two archives A's cells with one value (NAME=A,B) with
    /// B's with another
    #[arg(long, value_name = "NAME[=VALUE[,VALUE]]")]
    pub by: Option<String>,
    /// Exit with 1 if a cell is slower (takes more than PERCENT longer), or if a cell of both could not be compared
    #[arg(long, value_name = "slower[:PERCENT]", value_parser = fail_on)]
    pub fail_on: Option<f64>,
    /// Which way scores are good of which an archive does not say it: comparisons of older versions did not
    #[arg(long, value_enum, value_name = "WAY")]
    pub better: Option<Better>,
    /// Compare cells also if their commands differ, such as two builds of a program; a note says in what
    #[arg(long)]
    pub other_commands: bool,
    /// What a change of level must pay when steady states are looked for (docs/internals/method.md)
    #[arg(long, value_enum, default_value = "fixed")]
    pub penalty: Penalty,
    /// Take processes that others disturbed while they were measured for any others, where what disturbs them belongs to what is measured
    #[arg(long)]
    pub even_disturbed: bool,
    /// Print JSON (its contract: docs/guide/comparing.md)
    #[arg(long)]
    pub json: bool,
    /// Write the tables as Markdown to this file as well (`-`: to stdout, in place of the text)
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// Show results over time, with what changed of the machine.
///
/// Each result is compared with the one before it of the same cell.
#[derive(Debug, Args)]
pub struct BenchHistory {
    /// Archives, or folders that hold some
    #[arg(value_name = "FOLDER|B.fathom", required = true)]
    pub paths: Vec<PathBuf>,
    /// Take processes that others disturbed while they were measured for any others
    #[arg(long)]
    pub even_disturbed: bool,
    /// Print JSON (its contract: docs/guide/comparing.md)
    #[arg(long)]
    pub json: bool,
}

/// Say how many processes it would take for narrower intervals, or to tell a smaller difference.
///
/// A benchmark's own spread, within processes and between them, says how narrow the interval of more processes would be.
/// Of five processes the spread is known to a factor of about 1.7: a hint, not a promise.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom bench plan bench.fathom                    intervals of 2 %, differences of 3 %
  fathom bench plan pilot.fathom --precision 1 --difference 2
  fathom bench run sqlite --blocks 24               and then so many")]
pub struct BenchPlan {
    /// The archive
    #[arg(value_name = "B.fathom")]
    pub archive: PathBuf,
    /// Half the width of the interval that is wanted of each cell, in percent
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    pub precision: f64,
    /// The difference between two cells that shall be told nine times of ten, in percent
    #[arg(long, value_name = "PERCENT", default_value = "3", value_parser = percent)]
    pub difference: f64,
    /// Print JSON (its contract: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
}

/// Show the results of a benchmark.
#[derive(Debug, Args)]
pub struct BenchShow {
    /// The archive
    #[arg(value_name = "B.fathom")]
    pub archive: PathBuf,
    /// What a change of level must pay when steady states are looked for (docs/internals/method.md)
    #[arg(long, value_enum, default_value = "fixed")]
    pub penalty: Penalty,
    /// Print JSON (its contract: docs/reference/json.md)
    #[arg(long)]
    pub json: bool,
    /// Write the results as CSV to this file as well (`-`: to stdout, in place of the text)
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the tables as Markdown to this file as well (`-`: to stdout, in place of the text)
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// Serve a byte by HTTP, for the workload `http` on another machine.
///
/// Whoever reaches the address may fetch. There is no TLS: it is for a network under test. Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom bench serve-http --listen 0.0.0.0:8080             on the machine behind the network
  fathom bench run http -p target=http://192.0.2.1:8080/    on the device under test")]
pub struct ServeHttp {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// Bytes of each response
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub bytes: usize,
    /// Threads that serve
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
}

/// Percent as a fraction.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.trim_end_matches('%').parse().map_err(|_| "give percent, such as 2")?;
    if value > 0.0 && value < 100.0 {
        Ok(value / 100.0)
    } else {
        Err("give more than 0 and less than 100 percent".into())
    }
}

/// `slower` or `slower:5`: percent.
fn fail_on(text: &str) -> Result<f64, String> {
    let wrong = || "give slower, or slower:PERCENT such as slower:5".to_string();
    let percent = match text.strip_prefix("slower") {
        Some("") => 0.0,
        Some(rest) => rest
            .strip_prefix(':')
            .and_then(|p| p.trim_end_matches('%').parse::<f64>().ok())
            .filter(|p| p.is_finite() && *p >= 0.0)
            .ok_or_else(wrong)?,
        None => return Err(wrong()),
    };
    Ok(percent)
}

#[cfg(test)]
mod tests {
    use super::fail_on;

    #[test]
    fn a_limit_is_slower_with_or_without_percent() {
        assert_eq!((fail_on("slower"), fail_on("slower:5"), fail_on("slower:2.5%")), (Ok(0.0), Ok(5.0), Ok(2.5)));
        for text in ["", "faster", "slower:", "slower:x", "slower:-1", "slower5", "slower:inf"] {
            assert!(fail_on(text).is_err(), "{text}");
        }
    }
}
