//! Mutants: deliberate faults, each of which breaks one invariant that readers of a crate rely on. The crate's tests must find every one.
//!
//! `tests/mutants/PACKAGE.toml` lists them as replacements of a text that occurs once in its file ([`offences`] checks it, so that a change
//! of the code cannot silently disable one). They are built in a copy of the tree, never in the tree itself. A fault is found if a test
//! fails or does not end; one that does not compile proves nothing and is an error.

use crate::run::{cargo, show};
use crate::source::{File, paths};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The directory of the lists.
const LISTS_DIRECTORY: &str = "tests/mutants";

/// The copy of the tree. Cargo's settings are those of the tree around it.
const COPY_DIRECTORY: &str = "target/mutants/tree";
/// What is built there: of its own, since Cargo tells a package from another by its path within the workspace.
const BUILD_DIRECTORY: &str = "target/mutants/build";

/// Left out of the copy: Cargo joins the flags of both directories, and would compile every dependency again.
const SETTINGS_DIRECTORY: &str = ".cargo/";

/// How long a program of tests may take without a mutant.
const BASELINE_LIMIT: Duration = Duration::from_secs(15 * 60);
/// How long a program of tests may take with a mutant, in multiples of its time without one: longer, and it does not end.
const SLOWDOWN_MAX: u32 = 10;
/// The least of that limit.
const LIMIT_MIN: Duration = Duration::from_secs(60);

/// The mutants of a package.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    package: String,
    /// Which of its tests are run: arguments of `cargo test`.
    tests: Vec<String>,
    mutant: Vec<Mutant>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    /// What is wrong with it, as a sentence.
    fault: String,
    file: String,
    before: String,
    after: String,
}

/// How the tests of a package ended.
#[derive(Debug)]
enum Outcome {
    Passed,
    /// The first test that failed, or what the program said last.
    Failed(String),
    Endless,
}

/// Runs the mutants of these packages (of all if none is named), and fails if one is not found.
pub fn run(root: &Path, packages: &[String]) -> Result<()> {
    let lists = lists(root)?;
    let unknown: Vec<_> = packages.iter().filter(|name| lists.iter().all(|list| list.package != **name)).collect();
    ensure!(unknown.is_empty(), "no mutants of {unknown:?}; there is no such list in {LISTS_DIRECTORY}");
    for list in lists.iter().filter(|list| packages.is_empty() || packages.contains(&list.package)) {
        run_mutants(root, list, &list.mutant)?;
    }
    Ok(())
}

fn run_mutants(root: &Path, list: &List, mutants: &[Mutant]) -> Result<()> {
    let copy = root.join(COPY_DIRECTORY);
    copy_tree(root, &copy)?;
    let programs = build(root, &copy, list).context("the tests without a mutant")?;
    let begin = Instant::now();
    match run_tests(&copy, list, &programs, BASELINE_LIMIT)? {
        Outcome::Passed => {}
        other => bail!("the tests of {} fail without any mutant: {other:?}", list.package),
    }
    let limit = (SLOWDOWN_MAX * begin.elapsed()).max(LIMIT_MIN);
    println!("{}: {} mutants; the tests take {:.1} s", list.package, mutants.len(), begin.elapsed().as_secs_f64());
    let mut survivors = Vec::new();
    for mutant in mutants {
        let path = copy.join(&mutant.file);
        let original = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        fs::write(&path, mutant.apply(&original)?)?;
        let programs = build(root, &copy, list).with_context(|| format!("the mutant \"{}\"", mutant.fault))?;
        let begin = Instant::now();
        let outcome = run_tests(&copy, list, &programs, limit)?;
        fs::write(&path, original)?;
        let seconds = begin.elapsed().as_secs_f64();
        match outcome {
            Outcome::Failed(test) => println!("  found     {seconds:5.1} s  {}: {test}", mutant.fault),
            Outcome::Endless => println!("  found     {seconds:5.1} s  {}: the tests do not end", mutant.fault),
            Outcome::Passed => {
                println!("  NOT FOUND {seconds:5.1} s  {}  ({})", mutant.fault, mutant.file);
                survivors.push(&mutant.fault);
            }
        }
    }
    ensure!(
        survivors.is_empty(),
        "{} of {} mutants of {} are not found",
        survivors.len(),
        list.mutant.len(),
        list.package
    );
    Ok(())
}

impl Mutant {
    /// The file's text with the fault.
    fn apply(&self, text: &str) -> Result<String> {
        let times = text.matches(&self.before).count();
        ensure!(times == 1, "{}: the text of the mutant \"{}\" occurs {times} times", self.file, self.fault);
        ensure!(self.before != self.after, "{}: the mutant \"{}\" changes nothing", self.file, self.fault);
        Ok(text.replacen(&self.before, &self.after, 1))
    }
}

/// The lists, by package.
fn lists(root: &Path) -> Result<Vec<List>> {
    let mut lists = Vec::new();
    for entry in fs::read_dir(root.join(LISTS_DIRECTORY)).with_context(|| format!("cannot read {LISTS_DIRECTORY}"))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        lists.push(toml::from_str::<List>(&text).with_context(|| path.display().to_string())?);
    }
    lists.sort_by(|a, b| a.package.cmp(&b.package));
    Ok(lists)
}

/// Mutants that cannot be applied, as `path: what`.
pub fn offences(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with(LISTS_DIRECTORY)) {
        let list: List = match toml::from_str(&file.text) {
            Ok(list) => list,
            Err(error) => {
                found.push(format!("{}: {error}", file.path));
                continue;
            }
        };
        for mutant in &list.mutant {
            let applied = match files.iter().find(|other| other.path == mutant.file) {
                Some(other) => mutant.apply(&other.text).map(|_| ()).map_err(|error| error.to_string()),
                None => Err(format!("{} is not there", mutant.file)),
            };
            found.extend(applied.err().map(|what| format!("{}: {what}", file.path)));
        }
    }
    found
}

/// Makes the copy equal to the tree. What did not change keeps its time, so that Cargo does not compile it again.
fn copy_tree(root: &Path, copy: &Path) -> Result<()> {
    let wanted: BTreeSet<PathBuf> = paths(root)?
        .into_iter()
        .filter(|path| !path.starts_with(SETTINGS_DIRECTORY))
        .map(PathBuf::from)
        .filter(|path| root.join(path).exists())
        .collect();
    let mut directories = vec![copy.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            } else if !entry.path().strip_prefix(copy).is_ok_and(|path| wanted.contains(path)) {
                fs::remove_file(entry.path())?;
            }
        }
    }
    for path in &wanted {
        let (from, to) = (root.join(path), copy.join(path));
        let bytes = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        if !fs::read(&to).is_ok_and(|old| old == bytes) {
            fs::create_dir_all(to.parent().unwrap_or(copy))?;
            fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    Ok(())
}

/// Compiles the tests, and returns their programs.
fn build(root: &Path, copy: &Path, list: &List) -> Result<Vec<PathBuf>> {
    let mut command = cargo(copy);
    command
        .args(["test", "--no-run", "--quiet", "--message-format=json", "--package", &list.package])
        .args(&list.tests);
    command.env("CARGO_TARGET_DIR", root.join(BUILD_DIRECTORY)).stdin(Stdio::null());
    let out = command.output().with_context(|| format!("cannot start {}", show(&command)))?;
    let lines: Vec<serde_json::Value> =
        String::from_utf8_lossy(&out.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if !out.status.success() {
        let errors = lines.iter().filter_map(|line| line["message"]["rendered"].as_str()).collect::<String>();
        bail!("it does not compile:\n{errors}{}", String::from_utf8_lossy(&out.stderr));
    }
    let is_test = |line: &&serde_json::Value| line["profile"]["test"] == true;
    Ok(lines.iter().filter(is_test).filter_map(|line| Some(line["executable"].as_str()?.into())).collect())
}

/// Runs the programs until one fails.
fn run_tests(copy: &Path, list: &List, programs: &[PathBuf], limit: Duration) -> Result<Outcome> {
    ensure!(!programs.is_empty(), "{} has no such tests: {}", list.package, list.tests.join(" "));
    for program in programs {
        let (mut output, end) = std::io::pipe()?;
        let mut command = Command::new(program);
        command.current_dir(copy.join("crates").join(&list.package)).stdin(Stdio::null());
        command.stdout(end.try_clone()?).stderr(end);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        // It has our copies of the pipe's end, which would keep the pipe open.
        drop(command);
        let said = std::thread::spawn(move || {
            let mut text = Vec::new();
            output.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned())
        });
        match child::wait_or_kill(&mut child, limit)? {
            None => return Ok(Outcome::Endless),
            Some(status) if status.success() => {}
            Some(status) => {
                let text = said.join().ok().and_then(Result::ok).unwrap_or_default();
                return Ok(Outcome::Failed(failed_test(&text).unwrap_or_else(|| status.to_string())));
            }
        }
    }
    Ok(Outcome::Passed)
}

/// The first test that failed, and how many more did.
fn failed_test(output: &str) -> Option<String> {
    let name = |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_string());
    let mut failed = output.lines().filter_map(name);
    let first = failed.next()?;
    Some(match failed.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    const LIST: &str = r#"
        package = "a"
        tests = ["--lib"]
        [[mutant]]
        fault = "one is two"
        file = "crates/a/src/lib.rs"
        before = "= 1;"
        after = "= 2;"
    "#;

    #[test]
    fn mutant_replaces_a_text_that_occurs_once() {
        let list = file("tests/mutants/a.toml", LIST);
        assert_eq!(offences(&[list, file("crates/a/src/lib.rs", "let a = 1;\n")]), [""; 0]);
        for source in ["let a = 3;\n", "let a = 1; let b = 1;\n"] {
            let found = offences(&[file("tests/mutants/a.toml", LIST), file("crates/a/src/lib.rs", source)]);
            assert!(found[0].contains("one is two") && found.len() == 1, "{found:?}");
        }
        assert!(offences(&[file("tests/mutants/a.toml", LIST)])[0].contains("is not there"));
        assert!(offences(&[file("tests/mutants/a.toml", "package = 1")])[0].contains("tests/mutants/a.toml"));
    }

    #[test]
    fn failed_tests_are_named() {
        let output = "running 3 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest d ... FAILED\n";
        assert_eq!(failed_test(output).as_deref(), Some("a::c and 1 more"));
        assert_eq!(failed_test("test a ... ok\n"), None);
    }

    #[test]
    fn copy_follows_the_tree_and_keeps_what_did_not_change() {
        let tree = tempfile::tempdir().unwrap();
        let (root, copy) = (tree.path(), tree.path().join("target/mutants/tree"));
        let git =
            |words: &[&str]| assert!(Command::new("git").args(words).current_dir(root).status().unwrap().success());
        git(&["init", "--quiet"]);
        fs::write(root.join(".gitignore"), "target\n").unwrap();
        fs::write(root.join("same"), "1").unwrap();
        fs::write(root.join("changed"), "1").unwrap();
        copy_tree(root, &copy).unwrap();
        let before = fs::metadata(copy.join("same")).unwrap().modified().unwrap();
        fs::write(copy.join("changed"), "a mutant").unwrap();
        fs::write(copy.join("left"), "of a mutant").unwrap();
        copy_tree(root, &copy).unwrap();
        assert_eq!(fs::metadata(copy.join("same")).unwrap().modified().unwrap(), before);
        assert_eq!(fs::read_to_string(copy.join("changed")).unwrap(), "1");
        assert!(!copy.join("left").exists());
    }

    mod long {
        use super::super::*;

        /// How many a test runs: each takes a build. Those of the next commit are the next ones; `cargo xtask mutants` runs all.
        const MUTANTS_PER_TEST: usize = 3;

        fn next_are_found(package: &str) {
            let root = crate::root();
            let list = lists(&root).unwrap().into_iter().find(|list| list.package == package).unwrap();
            let turn = crate::long::commit_number(&root) * MUTANTS_PER_TEST;
            let mutants: Vec<Mutant> =
                list.mutant.iter().cycle().skip(turn % list.mutant.len()).take(MUTANTS_PER_TEST).cloned().collect();
            run_mutants(&root, &list, &mutants).unwrap();
        }

        #[test]
        #[ignore = "long: compiles causal and its tests once for each mutant"]
        fn mutants_of_causal_are_found() {
            next_are_found("causal");
        }

        #[test]
        #[ignore = "long: compiles pool and its tests once for each mutant"]
        fn mutants_of_pool_are_found() {
            next_are_found("pool");
        }

        #[test]
        #[ignore = "long: compiles net and its tests once for each mutant"]
        fn mutants_of_net_are_found() {
            next_are_found("net");
        }
    }
}
