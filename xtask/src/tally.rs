//! Summarises the output of test programs: sums, skips with their reasons, and failures with their messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Lines kept of a failed test's message, and of a suite that failed without one: the last ones have the reason.
const LAST_LINES_MAX: usize = 40;

/// How many of the longest tests are named.
const LONGEST_TESTS_MAX: usize = 20;

/// The part of a test's path that marks it as long (`cargo xtask long`).
pub const LONG_MODULE: &str = "long::";

/// Whether a test's path marks it as long.
pub fn is_long(name: &str) -> bool {
    name.starts_with(LONG_MODULE) || name.contains(&format!("::{LONG_MODULE}"))
}

/// The state while reading a suite's output.
#[derive(Debug, Default)]
pub struct Tally {
    /// Sums over the harnesses' own result lines.
    passed: u64,
    failed: u64,
    ignored: u64,
    /// The suite `privileged` runs what needs root: then such tests are not counted as skipped here, but separately.
    root_follows: bool,
    following: u64,
    /// Long tests, which another command runs.
    long: BTreeSet<String>,
    /// Tests that a harness listed as ignored, with its reason; those that will follow as root are left out.
    listed: BTreeMap<String, String>,
    /// Tests that printed SKIP themselves, with their reason.
    printed_skips: BTreeMap<String, String>,
    failures: Vec<Failure>,
    part: OutputSection,
    /// The last lines of any kind.
    last: VecDeque<String>,
    /// The program, if its tests run in parallel: then only their total time is known.
    program: String,
    /// The current test, and its start. Harnesses print its name before or after it; what counts is when the previous line came.
    running: Option<(String, Instant)>,
    last_line: Option<Instant>,
    times: Vec<(Duration, String)>,
}

/// A test that failed, and the end of its output.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Failure {
    test: String,
    message: VecDeque<String>,
}

/// The part of a test program's output about failures: messages below each test's name, then only the names.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum OutputSection {
    #[default]
    Elsewhere,
    Messages,
    Names,
}

/// The result of a suite.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Tests that ran and passed.
    pub passed: u64,
    /// Tests that ran and failed.
    pub failed: u64,
    /// Tests that did not run here.
    pub skipped: u64,
    /// `test: reason`.
    reasons: BTreeSet<String>,
    /// Long tests that were left out; the command that runs them counts them.
    long: BTreeSet<String>,
    failures: Vec<Failure>,
    /// Tests that failed next to others and passed alone: counted as passed, and named with their messages.
    flaky: Vec<Failure>,
    /// The times of tests or of whole programs.
    times: Vec<(Duration, String)>,
}

/// The test that prints SKIP, and the reason: on a line of its own, or after its name, if a harness prints that before it runs the
/// test.
fn parse_skip(line: &str) -> Option<(&str, &str)> {
    let skip = line
        .strip_prefix("SKIP ")
        .or_else(|| line.strip_prefix("test ")?.split_once(" ... SKIP ").map(|(_, skip)| skip));
    skip?.split_once(": ")
}

impl Tally {
    /// Creates one for a program; `root_follows` is whether another suite follows, which runs what needs root.
    pub fn for_program(program: &str, root_follows: bool) -> Self {
        Self { root_follows, program: program.into(), ..Self::default() }
    }

    /// Tests reported as failed by a harness.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Whether one test ran, this one, and passed. Other cases of a suite may have printed SKIP before any ran.
    pub fn passed_only(&self, test: &str) -> bool {
        self.passed == 1 && self.failed == 0 && !self.printed_skips.contains_key(test)
    }

    /// Reads one line of a test program's output.
    pub fn read(&mut self, line: &str) {
        push_last_line(&mut self.last, line);
        self.read_failure(line);
        self.read_time(line, Instant::now());
        let line = line.trim();
        if let Some(result) = line.strip_prefix("test result: ") {
            let number = |word: &str| -> u64 {
                let part = result.split([';', '.']).map(str::trim).find(|p| p.ends_with(&format!(" {word}")));
                part.and_then(|p| p.split(' ').next()?.parse().ok()).unwrap_or(0)
            };
            self.passed += number("passed");
            self.failed += number("failed");
            self.ignored += number("ignored");
        } else if let Some((test, reason)) = parse_skip(line) {
            self.printed_skips.insert(test.into(), reason.into());
        } else if let Some((test, reason)) = line.strip_prefix("test ").and_then(|l| l.split_once(" ... ignored")) {
            // Names are padded to one length.
            let (test, reason) = (test.trim_end(), reason.trim_start_matches([',', ' ']));
            if is_long(test) {
                self.long.insert(test.into());
            } else if self.root_follows && reason.starts_with("root:") {
                self.following += 1;
            } else {
                self.listed.insert(test.into(), reason.into());
            }
        }
    }

    fn read_time(&mut self, line: &str, now: Instant) {
        let begins = line.strip_prefix("test ").and_then(|l| l.split_once(" ..."));
        let result = line.strip_prefix("test result: ");
        let ends = begins.is_some() || result.is_some();
        if let (Some((test, from)), Some(until)) = (self.running.take_if(|_| ends), self.last_line) {
            self.times.push((until - from, test));
        }
        if self.program.is_empty() {
            self.running =
                begins.map(|(test, _)| (test.trim_end().into(), self.last_line.unwrap_or(now))).or(self.running.take());
        } else if let Some(seconds) = result.and_then(|r| r.rsplit_once("finished in ")) {
            let seconds = seconds.1.trim_end_matches('s').parse().unwrap_or(0.0);
            self.times.push((Duration::try_from_secs_f64(seconds).unwrap_or_default(), String::new()));
        }
        self.last_line = Some(now);
    }

    /// A failure's message is below `---- test ----`, where libtest adds the stream's name.
    fn read_failure(&mut self, line: &str) {
        match (self.part, line.trim_end()) {
            (OutputSection::Messages, "failures:") => self.part = OutputSection::Names,
            (_, "failures:") => self.part = OutputSection::Messages,
            (_, "successes:") => self.part = OutputSection::Elsewhere,
            (_, line) if line.starts_with("test result: ") => self.part = OutputSection::Elsewhere,
            (OutputSection::Messages, line) => {
                if let Some(test) = line.strip_prefix("---- ").and_then(|l| l.strip_suffix(" ----")) {
                    let test = test.strip_suffix(" stdout").unwrap_or(test).into();
                    self.failures.push(Failure { test, message: VecDeque::new() });
                } else if let Some(failure) = self.failures.last_mut() {
                    push_last_line(&mut failure.message, line);
                }
            }
            (OutputSection::Names, line) => {
                let test = line.trim();
                if !test.is_empty() && self.failures.iter().all(|failure| failure.test != test) {
                    self.failures.push(Failure { test: test.into(), message: VecDeque::new() });
                }
            }
            (OutputSection::Elsewhere, _) => {}
        }
    }

    /// The result of a suite that failed (`why`, if no test's failure explains it) or not. A test that printed SKIP and is not listed as
    /// ignored was counted as passed by its harness.
    pub fn count(mut self, why: Option<&str>) -> Count {
        if let Some(why) = why.filter(|_| self.failed == 0) {
            self.failed = 1;
            self.failures.push(Failure { test: why.into(), message: self.last });
        }
        let mistaken = self.printed_skips.keys().filter(|test| !self.listed.contains_key(*test)).count() as u64;
        let mut reasons = self.listed;
        reasons.extend(self.printed_skips);
        let line = |(test, reason): (String, String)| match reason.as_str() {
            "" => format!("{test}: no reason given"),
            reason => format!("{test}: {reason}"),
        };
        Count {
            passed: self.passed.saturating_sub(mistaken),
            failed: self.failed,
            skipped: self.ignored.saturating_sub(self.following + self.long.len() as u64) + mistaken,
            long: self.long,
            failures: self.failures,
            flaky: Vec::new(),
            times: self.times,
            reasons: reasons.into_iter().map(line).collect(),
        }
    }
}

impl Count {
    /// Adds a failure that does not belong to a test.
    pub fn fail(&mut self, why: &str) {
        self.failed += 1;
        self.failures.push(Failure { test: why.into(), message: VecDeque::new() });
    }

    /// Adds the result of a suite or a program: its printed lines are prefixed with the label, if there is one.
    pub fn add(&mut self, label: &str, other: Self) {
        let labelled = |test: String| match (label, test.as_str()) {
            ("", _) => test,
            (_, "") => label.into(),
            _ => format!("{label}: {test}"),
        };
        let failure = |failure: Failure| Failure { test: labelled(failure.test), ..failure };
        self.failures.extend(other.failures.into_iter().map(&failure));
        self.flaky.extend(other.flaky.into_iter().map(&failure));
        self.times.extend(other.times.into_iter().map(|(time, test)| (time, labelled(test))));
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.reasons.extend(other.reasons);
        self.long.extend(other.long);
    }

    /// The tests that failed.
    pub fn failed_tests(&self) -> Vec<String> {
        self.failures.iter().map(|failure| failure.test.clone()).collect()
    }

    /// Counts a failed test as passed: it failed next to others and passed alone.
    pub fn passed_alone(&mut self, test: &str) {
        if let Some(at) = self.failures.iter().position(|failure| failure.test == test) {
            self.flaky.push(self.failures.remove(at));
            self.failed -= 1;
            self.passed += 1;
        }
    }

    /// Adds a test that did not run, and the reason.
    pub fn skip(&mut self, test: String, reason: &str) {
        self.skipped += 1;
        self.reasons.insert(format!("{test}: {reason}"));
    }

    /// The messages of tests that failed, and of those that are flaky; nothing if there are none.
    fn why(&self) -> String {
        let mut why = String::new();
        let parts = [("failed", &self.failures), ("flaky: failed next to others, passed alone", &self.flaky)];
        for (title, failures) in parts.iter().filter(|(_, failures)| !failures.is_empty()) {
            why.push_str(&format!("\n==== {title} ====\n"));
            for Failure { test, message } in *failures {
                why.push_str(&format!("---- {test} ----\n"));
                let text = message.iter().fold(String::new(), |text, line| text + line + "\n");
                let text = text.trim_end();
                why.push_str(if text.is_empty() { "(no output)" } else { text });
                why.push('\n');
            }
        }
        why
    }

    /// Prints a line for each suite, the skips with their reasons, the sums, and last the reasons of failures: of a long log, often only
    /// the end is kept.
    pub fn print(&self, lines: &[String]) {
        println!("\n==== suites ====\n{}", lines.join("\n"));
        let mut times: Vec<_> = self.times.iter().collect();
        times.sort_by(|a, b| b.cmp(a));
        println!("\n==== longest ====");
        times.iter().take(LONGEST_TESTS_MAX).for_each(|(time, test)| println!("{:6.1} s  {test}", time.as_secs_f64()));
        if !self.reasons.is_empty() {
            println!("\n==== skipped ====");
            self.reasons.iter().for_each(|reason| println!("{reason}"));
        }
        if !self.long.is_empty() {
            println!("\n==== left to `make test-all` ====");
            self.long.iter().for_each(|test| println!("{test}"));
        }
        println!("\n{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        print!("{}", self.why());
    }
}

/// Adds a line to the last ones.
fn push_last_line(lines: &mut VecDeque<String>, line: &str) {
    // A message does not begin with an empty line.
    if lines.is_empty() && line.trim().is_empty() {
        return;
    }
    if lines.len() == LAST_LINES_MAX {
        lines.pop_front();
    }
    lines.push_back(line.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(text: &str) -> Tally {
        let mut tally = Tally::default();
        text.lines().for_each(|line| tally.read(line));
        tally
    }

    fn count(root_follows: bool, text: &str) -> Count {
        let mut tally = Tally::for_program("", root_follows);
        text.lines().for_each(|line| tally.read(line));
        tally.count(None)
    }

    #[test]
    fn flaky_test_counts_as_passed_and_keeps_message() {
        let text = "failures:\n\n---- slow ----\ntoo late\n\n\nfailures:\n    slow\n    broken\n\n\
                    test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured\n";
        let mut found = count(false, text);
        assert_eq!(found.failed_tests(), ["slow", "broken"]);
        found.passed_alone("slow");
        found.passed_alone("unknown");
        assert_eq!((found.passed, found.failed, found.failed_tests()), (4, 1, vec!["broken".to_string()]));
        let mut total = Count::default();
        total.add("waits", found);
        let why = total.why();
        let (failed, flaky) = why.split_once("==== flaky").unwrap();
        assert!(failed.contains("waits: broken") && flaky.contains("waits: slow ----\ntoo late"), "{why}");
    }

    #[test]
    fn test_that_ran_alone_passed_unless_it_skipped() {
        let text = "SKIP other: no db_bench\nrunning 1 test\ntest one ... ok\n\
                    test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 20 filtered out\n";
        assert!(tally(text).passed_only("one") && !tally(text).passed_only("other"));
        let none = "running 0 tests\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 21 filtered out\n";
        assert!(!tally(none).passed_only("one"));
    }

    /// Both harnesses: libtest prints the stream's name, and no message for a test that printed nothing.
    #[test]
    fn failures_show_end_of_message() {
        let long: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let text = format!(
            "test a::b ... ok\ntest mute ... FAILED\n\nsuccesses:\n\n---- a::b stdout ----\nhello\n\n\n\
             successes:\n    a::b\n\nfailures:\n\n---- a::c stdout ----\n\nthread 'a::c' panicked\n{long}\n\n\
             failures:\n    a::c\n    mute\n\ntest result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured\n\
             failures:\n\n---- rate ----\ntwo of them\n\n\nfailures:\n    rate\n\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured\n"
        );
        let mut total = Count::default();
        total.add("workspace", tally(&text).count(Some("exit status: 101")));
        let why = total.why();
        let headers: Vec<_> = why.lines().filter(|line| line.starts_with("---- ")).collect();
        assert_eq!(headers, ["---- workspace: a::c ----", "---- workspace: mute ----", "---- workspace: rate ----"]);
        assert!(why.contains("\nline 99\n") && why.contains("\ntwo of them\n"), "{why}");
        assert!(!why.contains("\nline 50\n") && !why.contains("hello") && why.lines().count() < 60, "{why}");
    }

    #[test]
    fn test_time_starts_at_previous_line() {
        let start = Instant::now();
        let mut tally = Tally::default();
        let lines = [
            (0, "running 2 tests"),
            (3, "test a ... ok"),
            (4, "test b   ... says"),
            (9, "ok"),
            (10, "test result: ok."),
        ];
        lines.iter().for_each(|(at, line)| tally.read_time(line, start + Duration::from_secs(*at)));
        let times =
            |tally: Tally| tally.times.into_iter().map(|(time, test)| (time.as_secs(), test)).collect::<Vec<_>>();
        assert_eq!(times(tally), [(3, "a".to_string()), (6, "b".to_string())]);
        let mut tally = Tally::for_program("crates/pool links", false);
        tally.read_time("test a ... ok", start);
        tally.read_time("test result: ok. 1 passed; 0 failed; finished in 56.18s", start);
        assert_eq!(times(tally), [(56, String::new())]);
    }

    #[test]
    fn crashed_suite_fails_with_its_last_lines() {
        let found = tally("running 3 tests\ntest a ... no memory\n").count(Some("signal: 6"));
        assert_eq!(found.failed, 1);
        let why = found.why();
        assert!(why.contains("signal: 6") && why.contains("no memory"), "{why}");
        assert_eq!(tally("test result: ok. 1 passed; 0 failed\n").count(None).why(), "");
    }

    #[test]
    fn results_of_several_programs_add_up() {
        let found = count(
            false,
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s\n",
        );
        assert_eq!((found.passed, found.failed, found.skipped), (7, 2, 1));
    }

    #[test]
    fn skip_line_is_not_counted_as_passed() {
        let found = count(
            false,
            "SKIP a::b: needs a browser\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
             SKIP a::b: needs a browser\n",
        );
        assert_eq!((found.passed, found.skipped), (1, 1));
        assert_eq!(found.reasons.into_iter().collect::<Vec<_>>(), ["a::b: needs a browser"]);
    }

    #[test]
    fn skip_after_test_name_counts() {
        let found = count(
            false,
            "test long::spark ... SKIP long::spark: pyspark is not installed\nok\n\
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!((found.passed, found.skipped), (0, 1));
        assert_eq!(found.reasons.into_iter().collect::<Vec<_>>(), ["long::spark: pyspark is not installed"]);
    }

    #[test]
    fn ignored_tests_keep_reasons() {
        let found = count(
            false,
            "test boots ... ignored, no qemu here\ntest mute ... ignored\n\
             test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!((found.passed, found.skipped), (0, 2));
        assert!(found.reasons.contains("boots: no qemu here") && found.reasons.contains("mute: no reason given"));
    }

    #[test]
    fn skip_reported_twice_counts_once() {
        let found = count(
            false,
            "SKIP counts: no BTF\nSKIP fsx: not installed\ntest counts ... ignored\ntest fsx    ... ignored\n\
             test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!((found.passed, found.skipped), (5, 2));
        assert_eq!(found.reasons.into_iter().collect::<Vec<_>>(), ["counts: no BTF", "fsx: not installed"]);
    }

    #[test]
    fn long_tests_are_named_and_not_counted() {
        let found = count(
            false,
            "test store::long::cuts ... ignored, long: 10,000 cuts\ntest phone ... ignored, no phone\n\
             test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
        );
        assert_eq!((found.passed, found.skipped, found.reasons.len()), (1, 1, 1));
        assert_eq!(found.long.into_iter().collect::<Vec<_>>(), ["store::long::cuts"]);
    }

    #[test]
    fn tests_of_privileged_suite_are_not_skipped() {
        let text = "test disk ... ignored, root: makes a loop device\ntest phone ... ignored, no phone\n\
                    test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        let (as_root, not) = (count(true, text), count(false, text));
        assert_eq!((as_root.passed, as_root.skipped, as_root.reasons.len()), (1, 1, 1));
        assert_eq!((not.passed, not.skipped, not.reasons.len()), (1, 2, 2));
    }
}
