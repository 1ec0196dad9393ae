//! Well-known programs, recorded both ways: interpreters, a version control system, a JVM, a program in Go, a browser. Each does the same
//! work each time; its output is compared too, so that a difference is due to the recording and not to the program.
//!
//! Firefox does not do the same each time: how often it executes a statement depends on when its threads get to run. It is compared with
//! its own log of statements, written by SQLite's trace callback in the same run.

use super::{hooked_by_name, hooked_in, own_links, same_operations_after, statement_facts};
use anyhow::{Context, Result, ensure};
use fathom_tests::{assert_near, ext4, fathom, number, record, records_lost, run, shape_of, show};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PHP_PROGRAM: &str = r#"
$db = new PDO("sqlite:" . $argv[1]);
$db->exec("pragma journal_mode = wal");
$db->exec("create table t (a integer primary key, b text)");
$insert = $db->prepare("insert into t (b) values (?)");
for ($i = 0; $i < 40; $i++) $insert->execute(["x$i"]);
$rows = count($db->query("select a from t where a < 20")->fetchAll());
$db->beginTransaction();
foreach ($db->query("select a from t where a < 10") as $row) $db->exec("update t set b = 'u' where a = " . $row["a"]);
$db->commit();
$other = new SQLite3($argv[1]);
$other->createFunction("twice", fn($x) => 2 * $x);
$found = $other->query("select twice(a) from t where a < 5");
while ($found->fetchArray()) $rows++;
echo "$rows rows\n";
"#;

/// Removes a database, if it exists.
fn remove_database(database: &Path) -> Result<()> {
    for end in ["", "-wal", "-shm", "-journal"] {
        let file = PathBuf::from(format!("{}{end}", database.display()));
        if file.exists() {
            fs::remove_file(file)?;
        }
    }
    Ok(())
}

/// Two of PHP's modules, one database.
pub fn php_matches_uprobes() -> Result<()> {
    let disk = ext4()?;
    let database = disk.path().join("t.db");
    let argv = ["php", "-r", PHP_PROGRAM, &database.to_string_lossy()];
    let (summary, printed) = same_operations_after(|| remove_database(&database), &argv, 12)?;
    ensure!(printed == "23 rows\n", "{printed}");
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 40.0)?;
    // Its query() performs a first step, and restarts when rows are fetched.
    assert_near("rows of a function of PHP's", number(shape_of(&summary, "SELECT TWICE")?, "/rows")?, 5.0)?;
    hooked_by_name(&summary, "libsqlite3.so", "1 process")
}

/// Its working copy has a database, its repository has files that it syncs. A statement that it resets after a row ends before the next
/// system call, also with uprobes.
pub fn svn_matches_uprobes() -> Result<()> {
    let disk = ext4()?;
    let directory = disk.path().display().to_string();
    let prepare = format!(
        "cd {directory}; rm -rf repo wc; svnadmin create repo; svn -q co file://$PWD/repo wc; \
         for i in 1 2 3 4; do echo $i > wc/$i; done; svn -q add wc/?"
    );
    let before = || run(Command::new("sh").args(["-c", &prepare])).map(drop);
    let work = format!(
        "cd {directory}; svn -q commit -m x wc; svn status wc; svn -q up wc; echo 5 > wc/1; svn -q revert wc/1; svn cleanup wc"
    );
    let (summary, _) = same_operations_after(before, &["sh", "-c", &work], 100)?;
    ensure!(summary["operations"].as_array().is_some_and(|all| all.len() > 100), "{summary}");
    hooked_by_name(&summary, "libsqlite3.so", "5 processes")
}

/// SQLite compiled by cgo, in a program whose goroutines move from thread to thread.
pub const GO_PROGRAM_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/bin/gosqlite");

pub fn go_program_matches_uprobes() -> Result<()> {
    for mode in ["wal", "delete"] {
        let disk = ext4()?;
        let database = disk.path().join("t.db");
        let argv = [GO_PROGRAM_PATH, &database.to_string_lossy(), mode];
        let (summary, printed) = same_operations_after(|| remove_database(&database), &argv, 8)?;
        ensure!(printed == "40 rows\n", "{printed}");
        assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 100.0)?;
        hooked_in(&summary, Path::new(GO_PROGRAM_PATH), "1 process")?;
    }
    Ok(())
}

const JAVA_PROGRAM: &str = r#"
import java.sql.*;
public class Load {
    public static void main(String[] a) throws Exception {
        Class.forName("org.sqlite.JDBC");
        int rows = 0;
        try (Connection c = DriverManager.getConnection("jdbc:sqlite:" + a[0]); Statement s = c.createStatement()) {
            // A fixed wait: with uprobes, what runs between the mapping of a library and its probing is not seen.
            Thread.sleep(1000);
            s.executeUpdate("CREATE TABLE t (i INTEGER)");
            try (PreparedStatement p = c.prepareStatement("INSERT INTO t VALUES (?)")) {
                for (int i = 0; i < 12; i++) { p.setInt(1, i); p.executeUpdate(); }
            }
            try (ResultSet r = s.executeQuery("SELECT i FROM t WHERE i < 7")) { while (r.next()) rows++; }
        }
        System.out.println(rows + " rows");
    }
}
"#;

pub const JDBC_JAR_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/jars/sqlite-jdbc-3.7.2.jar");

/// The driver unpacks its library under a different name each time, and the JVM loads it.
pub fn jvm_matches_uprobes() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let source = directory.path().join("Load.java");
    fs::write(&source, JAVA_PROGRAM)?;
    run(Command::new("javac").arg("-d").arg(directory.path()).arg(&source))?;
    let database = disk.path().join("t.db");
    let path = format!("{}:{JDBC_JAR_PATH}", directory.path().display());
    let argv = ["java", "-cp", &path, "Load", &database.to_string_lossy()];
    let (summary, printed) = same_operations_after(|| remove_database(&database), &argv, 5)?;
    ensure!(printed == "7 rows\n", "{printed}");
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 12.0)?;
    assert_near("rows", number(shape_of(&summary, "SELECT I FROM T")?, "/rows")?, 7.0)?;
    hooked_by_name(&summary, "libsqlitejdbc", "1 process")
}

/// A static musl program, in a root that contains nothing else: the object is not there, so it has uprobes either way. It is the same
/// file that the command names, whose uprobes exist from the start.
pub fn musl_in_chroot() -> Result<()> {
    let disk = ext4()?;
    let (program, root) = (disk.path().join("program"), disk.path().join("root"));
    fs::copy(fathom(), &program)?;
    let (there, work) = (root.join(program.strip_prefix("/")?), root.join("work"));
    fs::create_dir_all(there.parent().context("a directory")?)?;
    fs::create_dir(&work)?;
    fs::hard_link(&program, &there)?;
    let [program, root] = [program, root].map(|path| path.to_string_lossy().into_owned());
    let words = ["chroot", &root, &program, "workload", "sqlite", "--op=demo", "--rows=200", "--samples=none"];
    let argv = [&words[..], &["--dir", "/work"]].concat();
    let directory = tempfile::tempdir()?;
    let (mut both, mut links) = (Vec::new(), Vec::new());
    for way in ["auto", "uprobe"] {
        let archive = record(directory.path(), &["--probes", way, "--keep-sql"], &argv)?;
        let summary = show(&archive)?;
        links.push(own_links(&archive)?);
        ensure!(records_lost(&summary)? == 0.0, "{way}: {}", summary["loss"]);
        assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 200.0)?;
        both.push(statement_facts(&summary)?);
    }
    for (statement, ours) in &both[0] {
        ensure!(Some(ours) == both[1].get(statement), "{statement}: {ours:?} is not {:?}", both[1].get(statement));
    }
    ensure!(both[0].len() == both[1].len(), "{:?}", both[1].keys());
    ensure!(links[0] == links[1] && !links[0].is_empty(), "links:\nauto {:?}\nuprobe {:?}", links[0], links[1]);
    Ok(())
}

/// The prefix of the browser's own tables, which other libraries' statements do not name.
const OWN_TABLES_PREFIX: &str = "moz_";
const FIREFOX_PREFERENCES: &str = r#"user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("browser.aboutwelcome.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
"#;

/// The verbs that are counted: the trace callback is not called for everything that ANALYZE and similar statements run
/// internally.
const STATEMENT_VERBS: [&str; 5] = ["CREATE", "INSERT", "UPDATE", "DELETE", "SELECT"];

/// How many executions of statements of each verb on its own tables are in the browser's log.
fn logged_executions(log: &str) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    // A statement may have several lines; each entry begins with the process in brackets.
    for entry in log.split("\n[").filter_map(|entry| entry.split_once("TRACE_STMT on ")) {
        let Some((_, statement)) = entry.1.split_once(": '") else { continue };
        // Statements executed by triggers are commented out.
        if !statement.starts_with("--") && statement.contains(OWN_TABLES_PREFIX) {
            *counts.entry(statement_verb(statement)).or_default() += 1.0;
        }
    }
    counts.retain(|verb, _| STATEMENT_VERBS.contains(&verb.as_str()));
    counts
}

fn statement_verb(statement: &str) -> String {
    let words = statement.split_whitespace().skip_while(|word| word.starts_with("/*") || word.ends_with("*/"));
    words.map(str::to_uppercase).next().unwrap_or_default()
}

/// The same for a recording, including executions that did not end.
fn recorded_executions(summary: &Value) -> Result<BTreeMap<String, f64>> {
    let mut counts = BTreeMap::new();
    for operation in
        summary["operations"].as_array().context("operations[]")?.iter().filter(|o| o["kind"] == "statement")
    {
        let statement = operation["statement"].as_str().unwrap_or_default();
        if statement.contains(OWN_TABLES_PREFIX) {
            *counts.entry(statement_verb(statement)).or_default() +=
                number(operation, "/count")? + number(operation, "/unfinished")?;
        }
    }
    Ok(counts)
}

/// Its SQLite is a library of its own, in processes that it starts itself, some of which request system call filters and some of which
/// install one.
pub fn browser_matches_its_own_log() -> Result<()> {
    for way in ["inside", "uprobe"] {
        let directory = tempfile::tempdir()?;
        let profile = directory.path().join("profile");
        fs::create_dir(&profile)?;
        fs::write(profile.join("user.js"), FIREFOX_PREFERENCES)?;
        fs::write(directory.path().join("page.html"), "<h1>A page</h1>")?;
        let picture = directory.path().join("picture.png");
        let log = directory.path().join("log");
        let archive = directory.path().join("b.fathom");
        let mut command = Command::new(fathom());
        command.args(["record", "--quiet", "--keep-sql", "--probes", way, "-o"]).arg(&archive);
        command.env("HOME", directory.path()).env("MOZ_LOG", "sync,mozStorage:5").env("MOZ_LOG_FILE", &log);
        command.args(["--", "firefox-esr", "--headless", "--no-remote", "--profile"]).arg(&profile);
        command.arg("--screenshot").arg(&picture).arg(format!("file://{}/page.html", directory.path().display()));
        run(&mut command)?;
        ensure!(picture.exists(), "{way}: it took no picture");
        let summary = show(&archive)?;
        ensure!(records_lost(&summary)? == 0.0, "{way}: {}", summary["loss"]);
        let truth = logged_executions(&fs::read_to_string(log.with_extension("moz_log"))?);
        let ours = recorded_executions(&summary)?;
        ensure!(truth.values().sum::<f64>() > 100.0, "its log has only {truth:?}");
        // With uprobes the library is found when it is mapped; earlier statements are missing, and the coverage reports
        // that.
        let says =
            |what: &str| summary["coverage"].as_array().is_some_and(|rows| rows.iter().any(|row| row["how"] == what));
        let late = says(
            "it was found after a process had begun to run it: that process's first statements, or all, are missing",
        );
        for (verb, count) in &truth {
            let found = ours.get(verb).copied().unwrap_or_default();
            let right = if late { found <= *count } else { found == *count };
            ensure!(right, "{way}: {verb}: we say {ours:?}, its log says {truth:?}");
        }
        if way == "inside" {
            ensure!(!late, "none can be missing: {:#}", summary["coverage"]);
            hooked_in(&summary, Path::new("/usr/lib/firefox-esr/libmozsqlite3.so"), "process")?;
        }
    }
    Ok(())
}
