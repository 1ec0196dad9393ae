//! The helpers for tests in other languages, by the examples that show them (`examples/`): run with the real frameworks.

use anyhow::{Result, ensure};
use fathom_tests::{Case, fathom, installed, run, run_suite};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let python = |modules: &[&str]| {
        let each = ["pytest"].iter().chain(modules);
        installed("python3").and(each.into_iter().try_for_each(|name| python_module(name))).and(tracing())
    };
    let cases: Vec<Case> = vec![
        ("python_example_counts_sqlite3", python(&[]), || python_example("test_sqlite.py", 5)),
        ("python_example_counts_sqlalchemy", python(&["sqlalchemy"]), || python_example("test_sqlalchemy.py", 2)),
        ("python_example_counts_django", python(&["django"]), || python_example("test_django.py", 2)),
        ("python_example_fails_for_one_more_sync", python(&[]), python_example_fails_for_one_more_sync),
        ("rust_example_counts_each_test_alone", installed("cargo").and(tracing()), rust_example),
        ("go_example_counts", installed("go").and(tracing()), go_example),
        ("node_example_counts", installed("node").and(tracing()), node_example),
        (
            "java_example_counts_by_junit",
            ["java", "javac"].into_iter().try_for_each(installed).and(junit().map(drop)),
            java_example,
        ),
        ("python_test_is_skipped_without_the_program", python(&[]), python_test_is_skipped_without_the_program),
    ];
    run_suite(cases)
}

fn python_module(name: &str) -> Result<(), String> {
    let import = Command::new("python3").args(["-c", &format!("import {name}")]).stderr(Stdio::null()).status();
    import.is_ok_and(|status| status.success()).then_some(()).ok_or_else(|| format!("Python has no module {name}"))
}

/// Whether processes may be traced here; a tracer that is refused must not look like a passed test.
fn tracing() -> Result<(), String> {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if scope.trim() == "3" { Err("ptrace is switched off (kernel.yama.ptrace_scope=3)".into()) } else { Ok(()) }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs pytest on a copy of the example, so that nothing is written into the repository.
fn pytest(file: &str, change: impl FnOnce(String) -> String, program: &Path) -> Result<Output> {
    let directory = tempfile::tempdir()?;
    for entry in std::fs::read_dir(repository().join("examples/python"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), directory.path().join(entry.file_name()))?;
        }
    }
    let changed = change(std::fs::read_to_string(directory.path().join("shop.py"))?);
    std::fs::write(directory.path().join("shop.py"), changed)?;
    let mut pytest = Command::new("python3");
    pytest.args(["-B", "-m", "pytest", "-q", "-rfs", "-p", "no:cacheprovider", file]).current_dir(directory.path());
    let given = std::env::var("PYTHONPATH").unwrap_or_default();
    pytest
        .env("PYTHONPATH", format!("{}:{given}", repository().join("python").display()))
        .env("FATHOM", program)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(pytest.stdin(Stdio::null()).output()?)
}

fn shown(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn python_example(file: &str, tests: u32) -> Result<()> {
    let output = pytest(file, |text| text, &std::fs::canonicalize(fathom())?)?;
    let said = shown(&output);
    ensure!(
        output.status.success() && said.contains(&format!("{tests} passed")) && !said.contains("skipped"),
        "{said}"
    );
    Ok(())
}

fn python_example_fails_for_one_more_sync() -> Result<()> {
    let more = |text: String| text.replace("journal_mode=WAL", "journal_mode=DELETE");
    let output = pytest("test_sqlite.py", more, &std::fs::canonicalize(fathom())?)?;
    let said = shown(&output);
    ensure!(output.status.code() == Some(1) && said.contains("FAILED test_sqlite.py::test_save_syncs_once"), "{said}");
    Ok(())
}

fn python_test_is_skipped_without_the_program() -> Result<()> {
    let output = pytest("test_sqlite.py", |text| text, Path::new("/bin/false"))?;
    let said = shown(&output);
    ensure!(said.contains("5 skipped") && said.contains("fathom cannot count here"), "{said}");
    Ok(())
}

/// Copies an example beside what it uses, by the paths that its files name.
fn copied(name: &str) -> Result<(tempfile::TempDir, PathBuf)> {
    let directory = tempfile::tempdir()?;
    for part in [format!("examples/{name}"), format!("hooks/{name}")] {
        let target = directory.path().join(&part);
        std::fs::create_dir_all(target.parent().unwrap_or(directory.path()))?;
        run(Command::new("cp").arg("-r").arg(repository().join(&part)).arg(&target))?;
    }
    let example = directory.path().join("examples").join(name);
    Ok((directory, example))
}

/// Runs a framework, which must report as many passed tests as the example has.
fn passes(command: &mut Command, passed: &str) -> Result<()> {
    command.env("FATHOM", std::fs::canonicalize(fathom())?).stdin(Stdio::null());
    let output = command.output()?;
    let said = shown(&output);
    ensure!(output.status.success() && said.contains(passed), "{said}");
    Ok(())
}

fn rust_example() -> Result<()> {
    let (directory, example) = copied("rust")?;
    let mut cargo = Command::new("cargo");
    cargo
        .args(["test", "--quiet", "--offline"])
        .current_dir(example)
        .env("CARGO_TARGET_DIR", directory.path().join("target"));
    passes(cargo.env_remove("RUSTFLAGS"), "2 passed")
}

fn go_example() -> Result<()> {
    let (directory, example) = copied("go")?;
    let mut go = Command::new("go");
    go.args(["test", "-count=1", "-v", "./..."]).current_dir(example).env("GOFLAGS", "-mod=mod").env("GOPROXY", "off");
    passes(go.env("GOCACHE", directory.path().join("cache")), "--- PASS: TestOrdersSavedOneByOneDoNot")
}

fn node_example() -> Result<()> {
    let (_directory, example) = copied("node")?;
    let modules = example.join("node_modules");
    std::fs::create_dir_all(&modules)?;
    std::os::unix::fs::symlink("../../../hooks/node", modules.join("fathom-io"))?;
    passes(Command::new("node").args(["--test", "--test-reporter=tap"]).current_dir(example), "# pass 2")
}

/// JUnit's console launcher, from where Maven or Debian keep it.
fn junit() -> Result<Vec<PathBuf>, String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let kept = home.join(".m2/repository/org/junit/platform/junit-platform-console-standalone");
    let versions = std::fs::read_dir(kept).into_iter().flatten().flatten();
    let jars = versions.flat_map(|entry| std::fs::read_dir(entry.path()).into_iter().flatten().flatten());
    let jar = jars.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "jar"));
    jar.map(|path| vec![path]).ok_or_else(|| {
        "junit-platform-console-standalone is not in the local Maven repository (mvn dependency:get)".into()
    })
}

fn java_example() -> Result<()> {
    let (directory, _) = copied("java")?;
    let jar = junit().map_err(anyhow::Error::msg)?.remove(0);
    let classes = directory.path().join("classes");
    let found = run(Command::new("find").arg(directory.path()).args(["-name", "*.java"]))?;
    let sources = String::from_utf8(found.stdout)?;
    let mut javac = Command::new("javac");
    javac.args(["-Xlint:all", "-Werror", "-d"]).arg(&classes).arg("-cp").arg(&jar).args(sources.lines());
    run(&mut javac)?;
    let mut java = Command::new("java");
    java.arg("-jar")
        .arg(jar)
        .args(["execute", "--disable-banner", "--class-path"])
        .arg(classes)
        .arg("--scan-class-path");
    passes(&mut java, "2 tests successful")
}
