//! The system's own SQLite, through its program `sqlite3`: a static binary cannot load the system's library, and the
//! system's applications use what the system's vendor built, with its version and its settings.
//!
//! The program keeps running, with the database open, and reads SQL from a pipe: it parses and prepares each statement
//! again, since it is text, and formats and discards the rows of a SELECT. That is part of the measured time, and is stated
//! with the result: a few microseconds per statement, which is little compared with a synced INSERT and much compared with a
//! scan. Start and end are observed through the pipe, at a cost of tens of microseconds per iteration.

use super::contents::text_of;
use super::files::{Files, check_journal_mode};
use super::{Op, Parameters};
use crate::{Error, check_cancelled, clock};
use model::Context;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PROGRAM: &str = "sqlite3";
/// Printed by the shell when it has come this far.
const DONE_MARKER: &str = "fathom: done";

/// A running shell on a database, ended when dropped.
#[derive(Debug)]
pub(super) struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Shell {
    /// Starts it with the requested settings.
    pub(super) fn new(files: &Files, p: &Parameters) -> Result<Self, Error> {
        let mut child = Command::new(PROGRAM)
            // Ignores the user's ~/.sqliterc.
            .args(["-batch", "-bail", "-init", "/dev/null"])
            .arg(&files.database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => Error::Failed(
                    "--engine system needs the program sqlite3, which is not installed (Debian's package sqlite3); \
                     --engine bundled does not"
                        .into(),
                ),
                _ => Error::Failed(format!("cannot start {PROGRAM}: {e}")),
            })?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Failed(format!("cannot talk to {PROGRAM}")));
        };
        let mut shell = Self { child, input: Some(input), output: BufReader::new(output) };
        shell.query(&format!("PRAGMA page_size = {}; PRAGMA synchronous = {};", p.page_size, p.synchronous))?;
        let mode = shell.query(&format!("PRAGMA journal_mode = {};", p.journal_mode))?;
        check_journal_mode(mode.trim(), p)?;
        Ok(shell)
    }

    /// Version and source of the engine.
    pub(super) fn version(&mut self) -> Result<String, Error> {
        let answer = self.query("SELECT sqlite_version() || ' (' || sqlite_source_id() || ')';")?;
        Ok(format!(
            "{}, the system's program {PROGRAM}: statements as text, each parsed and prepared again",
            answer.trim()
        ))
    }

    /// Sends SQL and waits until it is done; returns the output.
    pub(super) fn query(&mut self, sql: &str) -> Result<String, Error> {
        self.execute(sql)?;
        self.execute(&format!("\n.print {DONE_MARKER}\n"))?;
        let mut said = String::new();
        let mut line = String::new();
        loop {
            line.clear();
            match self.output.read_line(&mut line) {
                Ok(0) | Err(_) => return Err(self.exit_error()),
                Ok(_) if line.trim_end() == DONE_MARKER => return Ok(said),
                Ok(_) => said.push_str(&line),
            }
        }
    }

    fn execute(&mut self, sql: &str) -> Result<(), Error> {
        match self.input.as_mut().map(|input| input.write_all(sql.as_bytes())) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.exit_error()),
        }
    }

    /// Why it ended.
    fn exit_error(&mut self) -> Error {
        drop(self.input.take());
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        Error::Failed(format!("{PROGRAM} ended: {}", said.trim()))
    }

    /// Executes the load; returns start, end (CLOCK_BOOTTIME) and the number of statements.
    pub(super) fn run(&mut self, p: &Parameters, context: &Context) -> Result<(u64, u64, u64), Error> {
        let statement: &dyn Fn(u64) -> String = match p.op {
            Op::Insert => &|n| format!("INSERT INTO t VALUES ({n}, '{}');\n", text_of(n)),
            Op::Update => &|n| format!("UPDATE t SET n = n + 1 WHERE rowid = {n};\n"),
            Op::Delete => &|n| format!("DELETE FROM t WHERE rowid = {n};\n"),
            _ => &|_| "SELECT * FROM t;\n".to_owned(),
        };
        let (count, group) = if p.op == Op::Select { (p.scans, 0) } else { (p.rows, p.per_transaction) };
        if p.op == Op::Select {
            // Sent without waiting for an answer, which would go there too.
            self.execute(".output /dev/null\n")?;
        }
        let begin = clock::now_ns();
        for n in 1..=count {
            check_cancelled(context)?;
            let first = group > 1 && (n - 1).is_multiple_of(group);
            let last = group > 1 && (n.is_multiple_of(group) || n == count);
            let (before, after) = (if first { "BEGIN;\n" } else { "" }, if last { "COMMIT;\n" } else { "" });
            self.execute(&format!("{before}{}{after}", statement(n)))?;
            if n.is_multiple_of(64) {
                context.progress(p.op.name(), n, count);
            }
        }
        self.query(if p.op == Op::Select { ".output stdout" } else { "" })?;
        Ok((begin, clock::now_ns(), count))
    }

    /// Ends it regularly.
    pub(super) fn close(mut self) -> Result<(), Error> {
        drop(self.input.take());
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(self.exit_error()),
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
