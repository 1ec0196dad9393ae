//! Housekeeping commands of the repository, written in the language that everyone here reads: `cargo xtask COMMAND`.

mod claims;
mod cli_page;
mod dist;
mod follow;
mod gen_files;
mod licences;
mod lint;
mod linters;
mod long;
mod markdown;
mod metadata;
mod mutants;
mod programs;
mod results;
mod run;
mod source;
mod tally;
mod test;
mod tidy;

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  gen [--check]    write the files that come from crates/model (and, once built, from the program), or tell which are stale
  tidy             check the repository rules
  lint             formatting and linters of every language, tidy, generated files, and that a second build does nothing;
                   `--no-clippy` leaves clippy to `test --linted`
  test [NAME…]     run the test suites (all if none is named) and count their tests; `cargo xtask test --list` names the suites;
                   `--linted` has clippy compile them, so that one build lints and makes them
  long [NAME…]     run the long tests, with `--minutes N` as many as fit; what was left out is named; `--linted` as above
  mutants [NAME…]  break the invariants of causal, net and pool, one at a time, and tell which faults their tests do not find
  licences         what the program is linked with, and the texts of its licences, as `dist` ships them
  results          how many commits changed what each page of docs/results measures since it was made
  dist             a .tar.gz for each target under target/dist
  aarch64 [adbd]   the program for aarch64 alone, which arm64 guests of the lab record with; and the tests' device daemon,
                   which makes a phone of such a guest
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run_command(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_command(words: &[String]) -> Result<()> {
    let root = root();
    let rest = words.get(1..).unwrap_or_default();
    match words.first().map(String::as_str) {
        Some("gen") if rest == ["--check"] => gen_files::run(&root, true),
        Some("gen") => gen_files::run(&root, false).and_then(|()| cli_page::write(&root)),
        Some("tidy") => tidy::run(&root),
        Some("lint") => lint::run(&root, rest),
        Some("test") => test::run(&root, rest),
        Some("long") => long::run(&root, rest),
        Some("mutants") => mutants::run(&root, rest),
        Some("licences") => licences::print(&root),
        Some("results") => results::print(&root),
        Some("dist") => dist::all(&root),
        Some("aarch64") if rest == ["adbd"] => dist::build_adbd_aarch64(&root),
        Some("aarch64") => dist::build_aarch64(&root).map(|built| println!("{}", built.display())),
        _ => bail!("{USAGE}"),
    }
}

/// The repository: the directory above this crate's.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
