//! Tests that are inherently long: simulations with many seeds, soaks, other engines.
//!
//! Such a test is in a module `long` (a case of a suite: its name begins with `long::`) and is marked as ignored, so that
//! `make test` skips it and runs only its small sibling. `cargo xtask long` runs them one at a time, and with `--minutes N`
//! only as many as fit: those of crates changed by the last commits come first, the others in an order that rotates with the
//! commit, so that each has its turn. Those that did not fit are counted as skipped and named.

use crate::follow::follow;
use crate::programs::{self, Compiler, FUZZ_PACKAGE, Program};
use crate::run::output;
use crate::tally::{Count, Tally, is_long};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The limit of one test, in seconds.
const LIMIT_S: u64 = 15 * 60;

/// Commits whose crates come first.
const RECENT_COMMITS: &str = "-20";

#[derive(Debug, Clone)]
struct Test {
    program: Program,
    name: String,
}

impl Test {
    fn label(&self) -> String {
        format!("{} {}", self.program.directory, self.name)
    }

    fn is_wanted(&self, words: &[String]) -> bool {
        words.is_empty() || words.iter().any(|word| self.program.name == *word || self.label().contains(word.as_str()))
    }
}

/// Runs the long tests whose program is named by one of the words, or whose name contains one (all if none is given), within the given
/// minutes, if any.
pub fn run(root: &Path, words: &[String]) -> Result<()> {
    let (compiler, words) = Compiler::from_words(root, words);
    let (minutes, filters) = arguments(&words)?;
    let deadline = minutes.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let binary = root.join("target/release/fathom");
    ensure!(binary.exists(), "{} is not there; run `make build` first", binary.display());
    let tests: Vec<Test> = list_tests(root, compiler)?.into_iter().filter(|test| test.is_wanted(&filters)).collect();
    let of = tests.len();

    let begin = Instant::now();
    let mut total = Count::default();
    let mut lines = Vec::new();
    for test in in_order(tests, &changed_directories(root), commit_number(root)) {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            total.skip(test.label(), "no time was left");
            continue;
        }
        println!("\n==== long: {} ====", test.label());
        let start = Instant::now();
        let mut tally = Tally::default();
        let mut command = match left {
            // Whole seconds, and one more: a program that is stopped has then always reached the deadline.
            Some(left) => test.program.command_within(root, left.as_secs() + 1),
            None => test.program.command(root),
        };
        command.args(["--ignored", "--exact", &test.name]).env("FATHOM", &binary);
        let success = follow(&mut command, &mut tally, &mut std::io::stdout(), &AtomicBool::new(false))?;
        let seconds = start.elapsed().as_secs();
        if !success && tally.failed() == 0 && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            total.skip(test.label(), "it was stopped when the time was over");
            continue;
        }
        let count = tally.count((!success).then_some("it died; its last lines"));
        ensure!(count.passed + count.failed + count.skipped > 0, "{} was listed, but did not run", test.label());
        let result = match &count {
            Count { failed: 1.., .. } => "failed",
            Count { passed: 1.., .. } => "passed",
            _ => "skipped",
        };
        // A test that alone takes a quarter of an hour leaves too little of CI's hour to the others.
        let split = if seconds > LIMIT_S { "  (over 15 minutes: split it)" } else { "" };
        lines.push(format!("{seconds:5} s  {result:7} {}{split}", test.label()));
        total.add(&test.program.directory, count);
    }
    lines.push(format!("{} of {of} long tests ran, in {} minutes", lines.len(), begin.elapsed().as_secs() / 60));
    total.print(&lines);
    if total.failed > 0 {
        bail!("long tests failed");
    }
    Ok(())
}

/// Parses the limit in minutes, and the filters of tests' names.
fn arguments(words: &[String]) -> Result<(Option<u64>, Vec<String>)> {
    let mut rest = words.iter();
    let (mut minutes, mut filters) = (None, Vec::new());
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--minutes" => {
                let number = rest.next().context("--minutes needs a number")?;
                minutes = Some(number.parse().with_context(|| format!("--minutes {number}: not a whole number"))?);
            }
            option if option.starts_with('-') => bail!("unknown option {option}; there is --minutes N"),
            name => filters.push(name.to_string()),
        }
    }
    Ok((minutes, filters))
}

/// Lists the long tests of every test program.
fn list_tests(root: &Path, compiler: Compiler) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for program in programs::build(root, FUZZ_PACKAGE, compiler)?.into_iter().filter(|program| program.is_test) {
        for name in long_tests(&output(program.command(root).args(["--list", "--ignored"]))?) {
            tests.push(Test { program: program.clone(), name });
        }
    }
    tests.sort_by_key(Test::label);
    Ok(tests)
}

/// The long tests in a test program's own list.
fn long_tests(list: &str) -> Vec<String> {
    let name = |line: &str| line.trim().strip_suffix(": test").map(str::to_string);
    list.lines().filter_map(name).filter(|name| is_long(name)).collect()
}

/// Orders the tests of changed crates first; the start of both parts is determined by the commit.
fn in_order(tests: Vec<Test>, changed: &BTreeSet<String>, commit: usize) -> Vec<Test> {
    let (mut first, mut rest): (Vec<_>, Vec<_>) =
        tests.into_iter().partition(|t| changed.contains(&t.program.directory));
    for part in [&mut first, &mut rest] {
        let turn = commit.checked_rem(part.len()).unwrap_or(0);
        part.rotate_left(turn);
    }
    first.append(&mut rest);
    first
}

/// The directories of packages that the last commits changed; none without git.
fn changed_directories(root: &Path) -> BTreeSet<String> {
    let log = git(root, &["log", RECENT_COMMITS, "--name-only", "--format="]);
    let directory = |path: &str| match path.split('/').collect::<Vec<_>>().as_slice() {
        ["crates", name, ..] => Some(format!("crates/{name}")),
        ["tests", ..] => Some("tests".to_string()),
        _ => None,
    };
    log.lines().filter_map(directory).collect()
}

/// A number that differs from commit to commit.
pub fn commit_number(root: &Path) -> usize {
    let head = git(root, &["rev-parse", "HEAD"]);
    usize::from_str_radix(head.get(..8).unwrap_or_default(), 16).unwrap_or(0)
}

fn git(root: &Path, words: &[&str]) -> String {
    let out = Command::new("git").args(words).current_dir(root).output();
    out.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(directory: &str, name: &str) -> Test {
        Test { program: Program::for_test(directory), name: name.into() }
    }

    #[test]
    fn only_tests_in_a_module_long_are_long() {
        let list = "store::long::cuts: test\nlong::spark: test\nbelong::to: test\nlong: test\n3 tests, 0 benchmarks\n";
        assert_eq!(long_tests(list), ["store::long::cuts", "long::spark"]);
    }

    #[test]
    fn changed_crates_come_first_and_the_rest_rotate() {
        let all = vec![test("crates/a", "long::1"), test("crates/b", "long::2"), test("crates/c", "long::3")];
        let changed = BTreeSet::from(["crates/c".to_string()]);
        let order =
            |commit| -> Vec<String> { in_order(all.clone(), &changed, commit).into_iter().map(|t| t.name).collect() };
        assert_eq!(order(0), ["long::3", "long::1", "long::2"]);
        assert_eq!(order(1), ["long::3", "long::2", "long::1"]);
    }

    #[test]
    fn word_names_a_program_or_part_of_a_test() {
        let mut test = test("tests", "long::on_spark");
        test.program.name = "engines".into();
        let is_wanted = |text: &str| test.is_wanted(&text.split_whitespace().map(str::to_string).collect::<Vec<_>>());
        assert!(is_wanted("") && is_wanted("engines") && is_wanted("sql spark"));
        assert!(!is_wanted("engine") && !is_wanted("sql"));
    }

    #[test]
    fn minutes_must_be_a_number() {
        let words = |text: &str| arguments(&text.split(' ').map(str::to_string).collect::<Vec<_>>());
        assert_eq!(words("--minutes 5 cuts").ok(), Some((Some(5), vec!["cuts".to_string()])));
        assert!(words("--minutes soon").is_err() && words("--hours 1").is_err());
    }
}
