//! Standard output and standard error without a reader, or on a full disk.

use super::{messages, output_of};
use anyhow::{Result, ensure};
use fathom_tests::{fathom, number, record, shape_of, show};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A pipe whose reader is gone.
fn broken_pipe() -> Result<Stdio> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    Ok(writer.into())
}

pub fn nobody_reads_stderr() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("t.fathom");
    // The second time there is an old recording to report as well.
    for _ in 0..2 {
        let status = Command::new(fathom())
            .args(["record", "-o"])
            .arg(&archive)
            .args([
                "--",
                "sh",
                "-c",
                "sqlite3 \"$0\" 'CREATE TABLE t(x); INSERT INTO t VALUES(1); DROP TABLE t'; exit 7",
            ])
            .arg(directory.path().join("db"))
            .stdin(Stdio::null())
            .stderr(broken_pipe()?)
            .status()?;
        ensure!(status.code() == Some(7), "{status}");
        let shown = show(&archive)?;
        ensure!(number(shape_of(&shown, "INSERT")?, "/count")? == 1.0, "the INSERT is missing");
    }
    Ok(())
}

pub fn nobody_reads_stdout() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = record(directory.path(), &[], &["sqlite3", "-batch", ":memory:", "SELECT 1"])?;
    let page = directory.path().join("page.html");
    let (archive, page) = (archive.to_string_lossy().into_owned(), page.to_string_lossy().into_owned());
    let lines: [&[&str]; 11] = [
        &["workload", "spin", "--iterations", "50000", "--inner", "1"],
        &["show", &archive],
        &["show", "--json", &archive],
        &["report", &archive, "-o", &page],
        &["export", "--events", &archive],
        &["export", "--events", "-o", "-", &archive],
        &["export", "--perfetto", "-o", "-", &archive],
        &["bench", "list"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
    ];
    for line in lines {
        let output = output_of(Command::new(fathom()).args(line).stdout(Stdio::null()))?;
        ensure!(output.status.success(), "{line:?} with a reader: {}: {}", output.status, messages(&output));
        let mut child = Command::new(fathom());
        child.args(line).stdin(Stdio::null()).stdout(broken_pipe()?).stderr(Stdio::piped());
        let output = child.spawn()?.wait_with_output()?;
        ensure!(output.status.success(), "{line:?}: {}: {}", output.status, messages(&output));
        ensure!(
            !messages(&output).contains("panicked") && !messages(&output).contains("Broken pipe"),
            "{}",
            messages(&output)
        );
    }
    ensure!(Path::new(&page).exists(), "the page was not made");
    Ok(())
}

pub fn full_stdout() -> Result<()> {
    let spin = ["workload", "spin", "--iterations", "3", "--inner", "1"];
    let device = ["device", "info", "local"];
    let help = ["workload", "spin", "--help"];
    for line in [
        &["man"] as &[&str],
        &["bench", "list"],
        &["completions", "bash"],
        &["lab", "list"],
        &["--version"],
        &["--help"],
        &["help", "record"],
        &["bench", "run", "-h"],
        &help,
        &device,
        &spin,
    ] {
        let full = fs::File::options().write(true).open("/dev/full")?;
        let child = Command::new(fathom()).args(line).stdout(full).stderr(Stdio::piped()).spawn()?;
        let output = child.wait_with_output()?;
        ensure!(output.status.code() == Some(1), "{line:?}: {}", output.status);
        ensure!(messages(&output).contains("No space left"), "{line:?}: {}", messages(&output));
    }
    Ok(())
}
