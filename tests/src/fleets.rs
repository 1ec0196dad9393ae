//! Helpers shared by the tests of `fathom sql` and `fathom fleet`: archives, their row counts, and a store.

use crate::service::Service;
use crate::{fathom, run};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether the program with these verbs is built.
pub fn built() -> Result<(), String> {
    let there = fathom().with_file_name("fathom-sql").is_file();
    there.then_some(()).ok_or_else(|| "fathom-sql is not built; `make build-sql` does it".to_string())
}

/// A path of this crate.
pub fn crate_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The Python that has the engines installed.
pub fn python() -> PathBuf {
    crate_path("../target/engines/bin/python3")
}

/// Whether that Python has a module.
pub fn python_has(module: &str) -> Result<(), String> {
    let import = Command::new(python()).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
    let found = import.is_ok_and(|status| status.success());
    found.then_some(()).ok_or_else(|| format!("{module} is not installed; `scripts/engines {module}` does it"))
}

/// A copy of the sample archives of every version, in a directory of its own.
pub fn copy_sample_archives(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut copies = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(crate_path("archives"))?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries.iter().filter(|entry| entry.path().is_dir()) {
        let to = directory.join(entry.file_name()).with_extension("fathom");
        copy_directory(&entry.path(), &to)?;
        copies.push(to);
    }
    Ok(copies)
}

pub fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").arg("-r").arg(from).arg(to)).map(drop)
}

/// Makes copies of an archive that count as other recordings: created at other times, `days` apart.
pub fn make_similar_archives(of: &Path, directory: &Path, count: u64, days: u64) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for n in 0..count {
        let to = directory.join(format!("{n:03}.fathom"));
        copy_directory(of, &to)?;
        let path = to.join("meta.json");
        let mut meta: Value = serde_json::from_slice(&fs::read(&path)?)?;
        let at = meta["created_unix_ns"].as_u64().context("an archive has a time")?;
        meta["created_unix_ns"] = (at + n * days * 86_400_000_000_000 + n).into();
        fs::write(&path, serde_json::to_vec(&meta)?)?;
        made.push(to);
    }
    Ok(made)
}

/// `fathom sql` with these words.
pub fn sql_command(words: &[&str]) -> Command {
    let mut command = Command::new(fathom());
    command.arg("sql").args(words).stdin(Stdio::null());
    command
}

/// `fathom fleet` with these words.
pub fn fleet_command(words: &[&str]) -> Command {
    let mut command = Command::new(fathom());
    command.arg("fleet").args(words).stdin(Stdio::null());
    command
}

/// A path as an argument.
pub fn path_text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

pub fn query_rows(place: &str, statement: &str) -> Result<Vec<Value>> {
    let output = run(&mut sql_command(&[place, "--format", "json", statement]))?;
    let whole: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(whole["format"] == "fathom.sql" && whole["version"] == 1, "{whole}");
    Ok(whole["rows"].as_array().context("an answer has rows")?.clone())
}

/// Rows of each table over all archives, from the indexes.
pub fn indexed_rows(archives: &[PathBuf]) -> Result<BTreeMap<String, u64>> {
    let mut rows = BTreeMap::new();
    for archive in archives {
        let index: Value = serde_json::from_slice(&fs::read(archive.join("tables/index.json"))?)?;
        for (table, count) in index["rows"].as_object().context("an index has rows")? {
            *rows.entry(table.clone()).or_insert(0) += count.as_u64().context("a number")?;
        }
    }
    rows.insert("archives".into(), archives.len() as u64);
    Ok(rows)
}

/// Rows of each table, as a query counts them: those of all runs, and those that differ in some column.
pub fn queried_rows(place: &str, tables: &BTreeMap<String, u64>) -> Result<BTreeMap<String, u64>> {
    let mut rows = BTreeMap::new();
    for table in tables.keys() {
        let found = query_rows(place, &format!("SELECT count(*) AS n FROM {table}"))?;
        rows.insert(table.clone(), found[0]["n"].as_u64().context("a count")?);
    }
    Ok(rows)
}

/// Runs a command that must fail with status 1, and returns its message.
pub fn refusal_of(mut command: Command) -> Result<String> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1), "{:?} ended with {}: {said}", command, output.status);
    ensure!(!said.contains("panicked"), "{said}");
    Ok(said)
}

/// Whether S3Proxy can run, an S3 store over a directory that conforms to S3 (moto, in Python, keeps objects in memory).
pub fn s3proxy() -> Result<(), String> {
    let there = crate_path("../target/s3proxy/s3proxy.jar").is_file();
    crate::installed("java")?;
    there.then_some(()).ok_or_else(|| "S3Proxy is not here; `scripts/s3proxy` brings it, with Maven".to_string())
}

/// Whether VersityGW can run, an S3 store over a file system that is sold for production use.
pub fn versitygw() -> Result<(), String> {
    let there = crate_path("../target/tools/bin/versitygw").is_file();
    there.then_some(()).ok_or_else(|| "VersityGW is not here; `scripts/versitygw` builds it, with Go".to_string())
}

/// An S3 store on loopback, which ends with the test.
pub struct S3 {
    _service: Service,
    /// Its output, unless that is in another directory.
    _log: Option<tempfile::TempDir>,
    /// The address it listens on.
    pub at: String,
}

/// Starts a store that is given its port, and waits until it accepts connections.
fn start_store(name: &str, port: u16, command: &mut Command, log: &Path) -> Result<S3> {
    let mut service = Service::start(name, command, log)?;
    let at = format!("127.0.0.1:{port}");
    service.ready(|| Ok(std::net::TcpStream::connect(&at).is_ok()))?;
    Ok(S3 { _service: service, _log: None, at })
}

/// A port that is free now.
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl S3 {
    pub fn start() -> Result<Self> {
        let (port, directory) = (free_port()?, tempfile::tempdir()?);
        let mut command = Command::new(python());
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        let mut store = start_store("moto", port, &mut command, &directory.path().join("log"))?;
        store._log = Some(directory);
        // Creating a bucket takes one PUT.
        let program = "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], method='PUT'))";
        run(Command::new(python()).args(["-c", program, &format!("http://{}/shelf", store.at)]))?;
        Ok(store)
    }

    /// Starts S3Proxy over a directory, with a bucket; its own files go into another directory.
    pub fn start_over(directory: &Path, own: &Path) -> Result<Self> {
        fs::create_dir_all(directory.join("shelf"))?;
        let (conf, port) = (own.join("s3proxy.conf"), free_port()?);
        fs::write(
            &conf,
            format!(
                "s3proxy.authorization=aws-v2-or-v4\ns3proxy.endpoint=http://127.0.0.1:{port}\ns3proxy.identity=test\n\
                 s3proxy.credential=test\njclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={}\n",
                directory.display()
            ),
        )?;
        let mut command = Command::new("java");
        command
            .args([
                "-Xmx512m",
                "-cp",
                path_text(&crate_path("../target/s3proxy/*")),
                "org.gaul.s3proxy.Main",
                "--properties",
            ])
            .arg(&conf);
        start_store("S3Proxy", port, &mut command, &own.join("s3proxy.log"))
    }

    /// Starts VersityGW over a directory, with a bucket.
    pub fn versitygw(directory: &Path, own: &Path) -> Result<Self> {
        fs::create_dir_all(directory.join("shelf"))?;
        let port = free_port()?;
        let mut command = Command::new(crate_path("../target/tools/bin/versitygw"));
        command
            .args(["--port", &format!("127.0.0.1:{port}"), "posix"])
            .arg(directory)
            .envs([("ROOT_ACCESS_KEY", "test"), ("ROOT_SECRET_KEY", "test")]);
        start_store("VersityGW", port, &mut command, &own.join("versitygw.log"))
    }

    /// Makes a command use it.
    pub fn add_to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("AWS_ENDPOINT_URL", format!("http://{}", self.at))
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_REGION", "us-east-1")
    }
}
