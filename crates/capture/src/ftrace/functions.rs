//! Uprobes as ftrace events: SQLite's steps with the statement's text, and the path passed to the C library's `open`.
//!
//! A probe is defined for the whole machine, in a group of this process's own, and enabled only in the instance.

use crate::sqlite::entry::find_entry;
use crate::sqlite::find::FoundSqlite;
use model::Layer;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

#[cfg(target_arch = "x86_64")]
const ARGUMENT_REGISTERS: [&str; 2] = ["%di", "%si"];
#[cfg(target_arch = "aarch64")]
const ARGUMENT_REGISTERS: [&str; 2] = ["%x0", "%x1"];

/// Possible paths of the C library.
const LIBC_PATHS: [&str; 6] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/aarch64-linux-gnu/libc.so.6",
    "/lib64/libc.so.6",
    "/usr/lib64/libc.so.6",
    "/usr/lib/libc.so.6",
    "/lib/libc.so.6",
];

/// Why there is no probe on a function.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The statement's text cannot be read.
    #[error("its text cannot be read: sqlite3_sql was not found or not understood")]
    NoText,
    #[error("the function was not found")]
    NoFunction,
    /// There is no C library at the usual paths.
    #[error("the C library was not found: opened files have no names")]
    NoLibrary,
    /// The kernel refused the probe.
    #[error("{}", crate::error::chain(.0))]
    Refused(#[from] std::io::Error),
}

/// A probe on a function: its layer, its name, and why it is missing, if it is.
pub type ProbeOutcome = (Layer, String, Result<(), ProbeError>);

/// The probes that were defined.
#[derive(Debug)]
pub struct FunctionProbes {
    root: PathBuf,
    group: String,
    events: Vec<&'static str>,
    outcomes: Vec<ProbeOutcome>,
}

impl FunctionProbes {
    /// Defines the probes; failures are in the outcomes.
    pub fn define(root: &Path, sqlite: &[FoundSqlite]) -> Self {
        let group = format!("fathom_{}", std::process::id());
        let mut all = Self { root: root.into(), group, events: Vec::new(), outcomes: Vec::new() };
        for found in sqlite {
            all.define_sqlite(found);
        }
        all.define_open();
        all
    }

    fn define_sqlite(&mut self, found: &FoundSqlite) {
        let (path, symbols) = (&found.path, &found.symbols);
        let stmt = ARGUMENT_REGISTERS[0];
        // Without the offset the text is empty, which counts as a shape.
        let text = symbols.sql_offset.map_or_else(String::new, |at| format!(" sql=+0(+{at}({stmt})):ustring"));
        if text.is_empty() {
            let probe = format!("{}:sqlite3_step", path.to_string_lossy());
            self.outcomes.push((Layer::Database, probe, Err(ProbeError::NoText)));
            return;
        }
        let layer = Layer::Database;
        self.define_probe(
            layer,
            "p",
            "fathom_step",
            path,
            symbols.step,
            &format!("stmt={stmt}:u64{text}"),
            "sqlite3_step",
        );
        self.define_probe(
            layer,
            "r",
            "fathom_step_return",
            path,
            symbols.step,
            "ret=$retval:s32",
            "sqlite3_step's return",
        );
        for (offset, event, name) in [
            (symbols.reset, "fathom_reset", "sqlite3_reset"),
            (symbols.finalize, "fathom_finalize", "sqlite3_finalize"),
        ] {
            match offset {
                Some(offset) => self.define_probe(layer, "p", event, path, offset, &format!("stmt={stmt}:u64"), name),
                None => self.outcomes.push((
                    layer,
                    format!("{}:{name}", path.to_string_lossy()),
                    Err(ProbeError::NoFunction),
                )),
            }
        }
    }

    fn define_open(&mut self) {
        let Some(library) = LIBC_PATHS.iter().map(Path::new).find(|p| p.exists()) else {
            return self.outcomes.push((Layer::FileSystem, "libc.so.6:open".into(), Err(ProbeError::NoLibrary)));
        };
        let mut known = Vec::new();
        for (name, argument) in
            [("open64", 0), ("open", 0), ("openat64", 1), ("openat", 1), ("unlink", 0), ("unlinkat", 1)]
        {
            let Some(offset) = find_entry(library, name).ok().filter(|at| !known.contains(at)) else { continue };
            known.push(offset);
            let path = format!("path=+0({}):ustring", ARGUMENT_REGISTERS[argument]);
            self.define_probe(Layer::FileSystem, "p", "fathom_open", library, offset, &path, name);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a line of tracefs has as many parts")]
    fn define_probe(
        &mut self,
        layer: Layer,
        kind: &str,
        event: &'static str,
        path: &Path,
        offset: u64,
        what: &str,
        name: &str,
    ) {
        let line = format!("{kind}:{}/{event} {}:{offset:#x} {what}\n", self.group, path.to_string_lossy());
        let outcome = append_probe(&self.root, &line).map_err(ProbeError::from);
        if outcome.is_ok() && !self.events.contains(&event) {
            self.events.push(event);
        }
        self.outcomes.push((layer, format!("{}:{name}", path.to_string_lossy()), outcome));
    }

    pub fn group(&self) -> &str {
        &self.group
    }

    /// Removes them again; returns the outcome of each.
    pub fn remove(mut self) -> Vec<ProbeOutcome> {
        std::mem::take(&mut self.outcomes)
    }
}

impl Drop for FunctionProbes {
    fn drop(&mut self) {
        for event in &self.events {
            remove_probe(&self.root, &format!("{}/{event}", self.group));
        }
    }
}

/// Removes the probes of a name, `GROUP/EVENT`.
pub fn remove_probe(root: &Path, name: &str) {
    // A probe that no longer exists, or is still in use, stays as it is.
    let _ = fs::write(root.join("events").join(name).join("enable"), "0");
    let _ = append_probe(root, &format!("-:{name}\n"));
}

fn append_probe(root: &Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new().append(true).open(root.join("uprobe_events"))?.write_all(line.as_bytes())
}
