//! `fathom check` in a pull request: the steps of action.yml and the script of the GitLab template, executed as a runner executes them, on a
//! repository with a bare remote, against a fake of the code host (`programs/code_host.py`). The program is a real one, the recordings too.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, root, run, run_suite};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

fn main() -> ExitCode {
    let tools = || {
        let programs = ["python3", "git", "curl", "jq", "bash"].into_iter().try_for_each(installed);
        programs.and(python_module("yaml")).and(root())
    };
    let cases: Vec<Case> = vec![
        ("action_comments_once_and_updates_its_comment", tools(), action_comments_once_and_updates_its_comment),
        ("gitlab_job_comments_once_and_updates_its_comment", tools(), gitlab_job_comments_once_and_updates_its_comment),
        ("long::action_without_permission_has_its_result", tools(), action_without_permission_has_its_result),
    ];
    run_suite(cases)
}

fn python_module(name: &str) -> Result<(), String> {
    let import = Command::new("python3").args(["-c", &format!("import {name}")]).stderr(Stdio::null()).status();
    import.is_ok_and(|status| status.success()).then_some(()).ok_or_else(|| format!("Python has no module {name}"))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

const APP: &str = r#"import settings, sqlite3
from models import Order

connection = sqlite3.connect("t.db", isolation_level=None)
connection.execute(f"PRAGMA journal_mode={settings.JOURNAL_MODE}")
connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
for item in range(20):
    Order(connection, item).save()
"#;
const MODELS: &str = r#"import os


class Order:
    def __init__(self, connection, item):
        self.connection, self.item = connection, f"item {item}"

    def save(self):
        self.connection.execute("INSERT INTO orders (item) VALUES (?)", [self.item])
"#;
/// The line of the INSERT above.
const INSERT_LINE: &str = "models.py:9 (Order.save)";
/// A commit that adds a sync to what it saves, and the line of it.
const WITH_FSYNC: &str = r#"import os


class Order:
    def __init__(self, connection, item):
        self.connection, self.item = connection, f"item {item}"

    def save(self):
        self.connection.execute("INSERT INTO orders (item) VALUES (?)", [self.item])
        with open("audit.log", "a") as log:
            log.write(self.item)
            log.flush()
            os.fsync(log.fileno())
"#;
const FSYNC_LINE: &str = "models.py:13 (Order.save)";

/// A bare remote, a clone where commits are made, and the directories of a runner.
struct Site {
    directory: TempDir,
}

impl Site {
    /// Makes a repository whose main branch has a program and its contract.
    fn new() -> Result<Self> {
        let site = Self { directory: tempfile::tempdir()? };
        let remote = site.path("origin.git");
        run(Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(&remote))?;
        run(Command::new("git").args(["clone", "--quiet"]).arg(&remote).arg(site.path("work")).stderr(Stdio::null()))?;
        site.write("app.py", APP)?;
        site.write("models.py", MODELS)?;
        site.write("settings.py", "JOURNAL_MODE = 'WAL'\n")?;
        site.write("fathom-check.toml", &contract(&site.path("work"))?)?;
        site.commit("main")?;
        // A release whose installer installs the program under test; the real one is tried by the suite `packaging`.
        std::fs::create_dir(site.path("release"))?;
        let installer = "mkdir -p \"$PREFIX/bin\" && ln -sf \"$FATHOM_UNDER_TEST\" \"$PREFIX/bin/fathom\"\n";
        std::fs::write(site.path("release/install.sh"), installer)?;
        Ok(site)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(self.path("work").join(name), text)?)
    }

    fn git(&self, words: &[&str]) -> Result<Output> {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@host.test", "-c", "commit.gpgsign=false"]).args(words);
        run(git.current_dir(self.path("work")))
    }

    /// Commits everything that belongs to the program, and pushes it to a branch.
    fn commit(&self, branch: &str) -> Result<()> {
        self.git(&["add", "app.py", "models.py", "settings.py", "fathom-check.toml"])?;
        self.git(&["commit", "--quiet", "--allow-empty", "-m", "change"])?;
        self.git(&["push", "--quiet", "--force", "origin", &format!("HEAD:{branch}")])?;
        Ok(())
    }

    /// Checks a branch out as a runner does, in a directory that is new each time.
    fn checkout(&self, branch: &str) -> Result<PathBuf> {
        let workspace = self.path("workspace");
        if workspace.exists() {
            std::fs::remove_dir_all(&workspace)?;
        }
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", "--depth=1", "--branch", branch]);
        run(clone.arg(format!("file://{}", self.path("origin.git").display())).arg(&workspace))?;
        Ok(workspace)
    }

    /// Runs the action on a branch's pull request 7.
    fn run_action(&self, branch: &str, host: &CodeHost, token: &str) -> Result<Output> {
        let workspace = self.checkout(branch)?;
        let (event, context) = (self.path("event.json"), self.path("context.json"));
        std::fs::write(&event, json!({ "pull_request": { "number": 7 } }).to_string())?;
        for directory in ["tools", "temp"] {
            if self.path(directory).exists() {
                std::fs::remove_dir_all(self.path(directory))?;
            }
            std::fs::create_dir(self.path(directory))?;
        }
        let written = json!({
            "inputs": { "base": format!("file://{}", self.path("release").display()), "token": token },
            "github": { "token": token },
            "runner": { "os": "Linux", "arch": "X64", "temp": self.path("temp"), "tool_cache": self.path("tools") },
            "workspace": workspace,
            "stores": self.path("stores"),
            "env": {
                "FATHOM_UNDER_TEST": std::fs::canonicalize(fathom())?,
                "GITHUB_API_URL": host.address,
                "GITHUB_REPOSITORY": "someone/orders",
                "GITHUB_EVENT_PATH": event,
                "GITHUB_STEP_SUMMARY": self.path("summary.md"),
            },
        });
        std::fs::write(&context, written.to_string())?;
        let mut runner = Command::new("python3");
        runner.arg(program("run_action.py")).arg(repository().join("action.yml")).arg(&context);
        Ok(runner.stdin(Stdio::null()).output()?)
    }
}

/// The contract of the program in a directory; recorded once, since it does not depend on where.
fn contract(directory: &Path) -> Result<String> {
    static RECORDED: OnceLock<String> = OnceLock::new();
    if let Some(text) = RECORDED.get() {
        return Ok(text.clone());
    }
    let mut record = Command::new(fathom());
    record.args(["check", "record", "--runs", "2", "--prepare", "rm -f t.db* audit.log"]);
    run(record.args(["--", "python3", "-B", "app.py"]).current_dir(directory))?;
    let text = std::fs::read_to_string(directory.join("fathom-check.toml"))?;
    Ok(RECORDED.get_or_init(|| text).clone())
}

/// The fake, which ends with the test.
struct CodeHost {
    child: Child,
    address: String,
    log: PathBuf,
}

impl CodeHost {
    /// Starts it with this number of comments of others.
    fn start(directory: &Path, others: u32) -> Result<Self> {
        let log = directory.join("requests.jsonl");
        let mut command = Command::new("python3");
        command.arg(program("code_host.py")).arg(&log).arg(others.to_string()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut address)?;
        Ok(Self { child, address: address.trim().into(), log })
    }

    /// What was changed, in order: method, comment, text.
    fn changes(&self) -> Result<Vec<(String, u64, String)>> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let parse = |line: &str| {
            let one: Value = serde_json::from_str(line)?;
            let word = |name: &str| one[name].as_str().unwrap_or_default().to_string();
            Ok((word("method"), one["id"].as_u64().context("no id")?, word("body")))
        };
        text.lines().map(parse).collect()
    }
}

impl Drop for CodeHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shown(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn action_comments_once_and_updates_its_comment() -> Result<()> {
    let site = Site::new()?;
    // More than a page of them.
    let host = CodeHost::start(site.directory.path(), 150)?;
    let unchanged = site.run_action("main", &host, "a-token")?;
    ensure!(unchanged.status.success() && host.changes()?.is_empty(), "{}", shown(&unchanged));

    site.write("settings.py", "JOURNAL_MODE = 'DELETE'\n")?;
    site.commit("slower")?;
    let slower = site.run_action("slower", &host, "a-token")?;
    let changes = host.changes()?;
    let [(method, posted, body)] = &changes[..] else { anyhow::bail!("{changes:?}\n{}", shown(&slower)) };
    println!("{body}");
    ensure!(!slower.status.success() && method == "POST", "{}", shown(&slower));
    ensure!(body.starts_with("<!-- fathom-check: fathom-check.toml -->\n"), "{body}");
    ensure!(
        body.contains("adds 3 fdatasync and 1")
            && body.contains("KiB written per INSERT INTO orders (item) VALUES (?)"),
        "{body}"
    );
    ensure!(body.contains(INSERT_LINE) && body.contains("journal_mode changed from WAL to DELETE"), "{body}");
    ensure!(body.contains("](https://host.test/artifacts/fathom-check)"), "{body}");
    ensure!(site.path("stores/artifacts/fathom-check/check.html").is_file(), "{}", shown(&slower));
    // The program was installed by the first run.
    ensure!(shown(&slower).contains("install: skipped"), "{}", shown(&slower));

    site.write("settings.py", "JOURNAL_MODE = 'WAL'\n")?;
    site.write("models.py", WITH_FSYNC)?;
    site.commit("slower")?;
    let synced = site.run_action("slower", &host, "a-token")?;
    let changes = host.changes()?;
    let [_, (method, updated, body)] = &changes[..] else { anyhow::bail!("{changes:?}\n{}", shown(&synced)) };
    println!("{body}");
    ensure!(!synced.status.success() && (method.as_str(), updated) == ("PATCH", posted), "{}", shown(&synced));
    ensure!(body.contains("adds 20 fsync and") && body.contains(FSYNC_LINE), "{body}");
    let sarif: Value = serde_json::from_slice(&std::fs::read(site.path("temp/fathom-check/check.sarif"))?)?;
    let place = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
    ensure!(place["artifactLocation"]["uri"] == "models.py" && place["region"]["startLine"] == 13, "{sarif}");
    let junit = std::fs::read_to_string(site.path("temp/fathom-check/check.xml"))?;
    ensure!(junit.contains("file=\"models.py\" line=\"13\"") && junit.contains("<failure "), "{junit}");

    site.write("models.py", MODELS)?;
    site.commit("slower")?;
    let mended = site.run_action("slower", &host, "a-token")?;
    let changes = host.changes()?;
    let [_, _, (method, updated, body)] = &changes[..] else { anyhow::bail!("{changes:?}\n{}", shown(&mended)) };
    ensure!(mended.status.success() && (method.as_str(), updated) == ("PATCH", posted), "{}", shown(&mended));
    ensure!(body.contains("as recorded"), "{body}");
    Ok(())
}

/// As for a pull request from a fork: the check fails for its difference, and the log says why there is no comment.
fn action_without_permission_has_its_result() -> Result<()> {
    let site = Site::new()?;
    let host = CodeHost::start(site.directory.path(), 0)?;
    site.write("models.py", WITH_FSYNC)?;
    site.commit("slower")?;
    let output = site.run_action("slower", &host, "another-token")?;
    let said = shown(&output);
    ensure!(!output.status.success() && host.changes()?.is_empty(), "{said}");
    ensure!(said.contains("::warning::the comment could not be posted: 401 Bad credentials"), "{said}");
    ensure!(said.contains("comment: passed") && said.contains("result: failed"), "{said}");
    let summary = std::fs::read_to_string(site.path("summary.md"))?;
    ensure!(summary.contains(FSYNC_LINE) && !summary.contains("FATHOM_PAGE_URL"), "{summary}");
    Ok(())
}

fn gitlab_job_comments_once_and_updates_its_comment() -> Result<()> {
    let site = Site::new()?;
    let host = CodeHost::start(site.directory.path(), 0)?;
    let run_job = |branch: &str| -> Result<Output> {
        let mut job = Command::new("python3");
        job.arg(program("run_action.py")).arg("--gitlab");
        job.arg(repository().join("packaging/gitlab/fathom-check.yml")).arg("fathom-check");
        job.current_dir(site.checkout(branch)?).stdin(Stdio::null());
        job.env("FATHOM_UNDER_TEST", std::fs::canonicalize(fathom())?).env("FATHOM_TOKEN", "a-token");
        job.env("FATHOM_BASE", format!("file://{}", site.path("release").display()));
        job.env("CI_API_V4_URL", format!("{}/api/v4", host.address)).env("CI_PROJECT_ID", "3");
        job.env("CI_MERGE_REQUEST_IID", "7").env("CI_JOB_URL", "https://host.test/-/jobs/5");
        Ok(job.output()?)
    };
    site.write("models.py", WITH_FSYNC)?;
    site.commit("slower")?;
    let slower = run_job("slower")?;
    let changes = host.changes()?;
    let [(method, posted, body)] = &changes[..] else { anyhow::bail!("{changes:?}\n{}", shown(&slower)) };
    ensure!(!slower.status.success() && method == "POST" && body.contains(FSYNC_LINE), "{}", shown(&slower));
    ensure!(body.contains("](https://host.test/-/jobs/5/artifacts/file/fathom-check/check.html)"), "{body}");
    site.write("models.py", MODELS)?;
    site.commit("slower")?;
    let mended = run_job("slower")?;
    let changes = host.changes()?;
    let [_, (method, updated, body)] = &changes[..] else { anyhow::bail!("{changes:?}\n{}", shown(&mended)) };
    ensure!(mended.status.success() && (method.as_str(), updated) == ("PUT", posted), "{}", shown(&mended));
    ensure!(body.contains("as recorded"), "{body}");
    Ok(())
}
