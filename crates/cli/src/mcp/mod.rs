//! `fathom mcp`: an assistant's door to archives, which only reads.
//!
//! Each tool is a verb of this program run as a process of its own, with `--json`: what an assistant is told is what `fathom show`
//! and its likes tell everybody, and a verb that fails costs one answer. An archive without tables is refused, since making them
//! would write.

mod fit;
mod protocol;

use crate::args::Mcp;
use anyhow::Result;
use archive::Meta;
use protocol::{Call, Wants};
use serde_json::{Value, json};
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time of one answer.
const LONGEST: Duration = Duration::from_secs(120);

/// Folders deep in which archives are looked for.
const DEPTH: usize = 6;

const INSTRUCTIONS: &str = "Recordings of storage I/O, from SQL statements to device commands, and benchmarks of devices. Begin with `list`. \
    Read `cannot_claim` of an answer before its numbers: what is named there must not be concluded from it. A verdict holds only with \
    the interval beside it; `inconclusive` is not `equal`. `left_out` says what the answer's budget cut off.";

/// Whom is answered, within what.
struct Door {
    roots: Vec<PathBuf>,
    budget: usize,
}

/// `fathom mcp`.
pub fn run(args: &Mcp) -> Result<()> {
    let given = if args.roots.is_empty() { vec![PathBuf::from(".")] } else { args.roots.clone() };
    let roots = given
        .iter()
        .map(|root| std::fs::canonicalize(root).map_err(|error| anyhow::anyhow!("{}: {error}", root.display())))
        .collect::<Result<_>>()?;
    // Room for what stands around the answer.
    let door = Door { roots, budget: usize::try_from(args.budget).unwrap_or(usize::MAX).saturating_mul(4) };
    let tools = tools();
    let mut stdin = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        if stdin.by_ref().take(protocol::LONGEST_LINE as u64).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() {
            continue;
        }
        let answer = match protocol::read(line.trim(), &tools, INSTRUCTIONS) {
            Wants::Nothing => continue,
            Wants::Answer(answer) => answer,
            Wants::Tool(id, call) => protocol::answer(id, door.call(&call)),
        };
        let mut out = crate::output::Stdout;
        // JSON escapes what could steer a terminal, and has no line break.
        writeln!(out, "{answer}").and_then(|()| out.flush())?;
    }
}

fn tools() -> Value {
    let tool = |name: &str, what: &str, properties: Value, required: &[&str]| {
        json!({
            "name": name,
            "description": what,
            "inputSchema": {"type": "object", "properties": properties, "required": required},
            "annotations": {"readOnlyHint": true, "destructiveHint": false, "openWorldHint": false},
        })
    };
    let archive = json!({"type": "string", "description": "Path of an archive (NAME.fathom), as `list` gives it."});
    json!([
        tool("list", "The archives there are: kind, when, command, whether complete.", json!({}), &[]),
        tool(
            "summary",
            "Where the time of each statement of a recording went, or what a benchmark measured.",
            json!({"archive": archive}),
            &["archive"],
        ),
        tool(
            "explain",
            "Why a recording's statements take their time: findings with evidence, and what would help.",
            json!({"archive": archive}),
            &["archive"],
        ),
        tool(
            "diff",
            "What the second recording does that the first does not, and a verdict with its interval.",
            json!({"a": archive, "b": archive}),
            &["a", "b"],
        ),
        tool(
            "sql",
            "One SELECT over archives, or a folder of them. Tables: operations, shapes, spans, links, causes, slices, files, processes, \
             disks, losses, coverage, facts, designs, cells, replicates, marks, samples, archives; all with device, run, date, archive. \
             Join on run and id. Quote column names. Ask information_schema.columns for columns.",
            json!({
                "archives": {"type": "array", "items": {"type": "string"}, "description": "Archives, a folder of them, or a fleet."},
                "query": {"type": "string"},
            }),
            &["archives", "query"],
        ),
    ])
}

impl Door {
    /// What a tool says, or why it says nothing.
    fn call(&self, call: &Call) -> Result<Value, String> {
        let text = |name: &str| {
            let given = call.arguments.get(name).and_then(Value::as_str);
            given.ok_or_else(|| format!("the argument {name} is missing, or no text"))
        };
        match call.tool.as_str() {
            "list" => Ok(self.within(self.list(), Vec::new())),
            "summary" => {
                let summary = self.verb("show", &[self.recorded(text("archive")?)?])?;
                let claims = cannot_claim(&summary);
                Ok(self.within(summary, claims))
            }
            "explain" => {
                let archive = self.recorded(text("archive")?)?;
                // What is missing of a recording holds for its findings too.
                let claims = cannot_claim(&self.verb("show", std::slice::from_ref(&archive))?);
                let explained = self.verb("explain", &[archive])?;
                Ok(self.within(explained, claims))
            }
            "diff" => {
                let both = [self.recorded(text("a")?)?, self.recorded(text("b")?)?];
                let diff = self.verb("diff", &both)?;
                let mut claims = Vec::new();
                if diff["verdict"] == "inconclusive" {
                    let why = diff["why"].as_str().unwrap_or("the interval holds both signs");
                    claims.push(json!(format!("which of the two is faster: {why}")));
                }
                for side in ["a", "b"] {
                    if diff[side]["losses"].as_array().is_some_and(|losses| !losses.is_empty()) {
                        claims.push(json!(format!("that {side} does not do something: it lost records")));
                    }
                }
                Ok(self.within(diff, claims))
            }
            "sql" => self.sql(call, text("query")?),
            other => Err(format!("there is no tool {}", model::text::shown(other))),
        }
    }

    fn sql(&self, call: &Call, query: &str) -> Result<Value, String> {
        let places = call.arguments.get("archives").and_then(Value::as_array).filter(|list| !list.is_empty());
        let places = places.ok_or("the argument archives is missing: a list of paths")?;
        let mut words = vec!["sql".into(), "--format".into(), "json".into(), "--memory".into(), "512M".into()];
        for place in places {
            let place = self.allowed(place.as_str().ok_or("a path is a text")?)?;
            for dir in archives(&place) {
                has_tables(&dir)?;
            }
            words.push(place.into_os_string());
        }
        // A query never is an option or a path, whatever it looks like.
        words.push("--query".into());
        words.push(query.into());
        let rows = run_self(&words)?;
        let claims = vec![json!(
            "a difference or a trend from these rows alone: they carry no intervals; `diff` of two recordings does"
        )];
        Ok(self.within(rows, claims))
    }

    /// A path below one of the roots.
    fn allowed(&self, path: &str) -> Result<PathBuf, String> {
        let base = self.roots.first().cloned().unwrap_or_default();
        let whole =
            std::fs::canonicalize(base.join(path)).map_err(|error| format!("{}: {error}", model::text::shown(path)))?;
        let inside = self.roots.iter().any(|root| whole.starts_with(root));
        inside
            .then_some(whole)
            .ok_or_else(|| format!("{} is outside the folders that may be asked about", model::text::shown(path)))
    }

    /// An archive that can be read without writing to it.
    fn recorded(&self, path: &str) -> Result<PathBuf, String> {
        let dir = self.allowed(path)?;
        Meta::read(&dir).map_err(|error| error.to_string())?;
        has_tables(&dir)?;
        Ok(dir)
    }

    fn list(&self) -> Value {
        let found = self.roots.iter().flat_map(|root| archives(root)).map(|dir| match Meta::read(&dir) {
            Ok(meta) => json!({
                "archive": dir.to_string_lossy(),
                "kind": meta.kind,
                "made": model::text::date(meta.created_unix_ns),
                "command": meta.command.join(" "),
                "complete": meta.complete,
            }),
            Err(error) => json!({"archive": dir.to_string_lossy(), "unreadable": error.to_string()}),
        });
        json!({"archives": found.collect::<Vec<_>>()})
    }

    fn verb(&self, verb: &str, archives: &[PathBuf]) -> Result<Value, String> {
        let mut words = vec![verb.into(), "--json".into()];
        words.extend(archives.iter().map(|dir| dir.clone().into_os_string()));
        run_self(&words)
    }

    /// The answer within the budget, with what it cannot carry before it.
    fn within(&self, value: Value, cannot_claim: Vec<Value>) -> Value {
        let around = json!({"cannot_claim": cannot_claim}).to_string().chars().count() + 200;
        let (answer, left_out) = fit::fit(value, self.budget.saturating_sub(around).max(400));
        // By the alphabet, what must not be concluded is read first.
        let mut whole = json!({"cannot_claim": cannot_claim, "result": answer});
        if !left_out.is_empty() {
            whole["left_out"] = left_out.into();
        }
        whole
    }
}

/// What must not be concluded from a recording, by its own summary.
fn cannot_claim(summary: &Value) -> Vec<Value> {
    let mut claims = Vec::new();
    let lost = summary["loss"]["events"].as_u64().unwrap_or(0)
        + summary["loss"]["events_at_unknown_time"].as_u64().unwrap_or(0);
    if lost > 0 {
        claims.push(json!(format!("exact counts: {lost} records were lost")));
    }
    if summary["trace"]["complete"] == false || summary["complete"] == false {
        claims.push(json!("what happened at the end: it was cut short"));
    }
    for blind in summary["blind"].as_array().into_iter().flatten() {
        let means = blind["means"].as_str().unwrap_or_default();
        claims.push(json!(format!("anything of the layer {}: {means}", blind["layer"].as_str().unwrap_or("unknown"))));
    }
    let completeness = &summary["completeness"];
    if let Some(state) = completeness["state"].as_str().filter(|state| *state != "checked") {
        let why = completeness["why"].as_str().unwrap_or("the kernel's counts are not known");
        claims.push(json!(format!("that every device command was recorded ({state}): {why}")));
    }
    let statements = |wanted: &dyn Fn(&Value) -> bool| {
        let operations = summary["operations"].as_array().into_iter().flatten().filter(|operation| wanted(operation));
        let names: Vec<String> =
            operations.filter_map(|operation| operation["statement"].as_str()).map(short).collect();
        match names.len() {
            0 => None,
            n if n > NAMED => Some(format!("{} and {} more", names[..NAMED].join(", "), n - NAMED)),
            _ => Some(names.join(", ")),
        }
    };
    if let Some(names) = statements(&|operation| operation["tracer"]["large"] == true) {
        claims.push(json!(format!(
            "how fast these are unrecorded (the recording took over a tenth of their time): {names}"
        )));
    }
    if let Some(names) = statements(&|operation| operation["count"].as_u64().is_some_and(|count| count < 6)) {
        claims.push(json!(format!("percentiles of these (fewer than six executions): {names}")));
    }
    claims
}

/// Statements that are named in a claim.
const NAMED: usize = 4;

/// A statement in a few words.
fn short(statement: &str) -> String {
    match statement.char_indices().nth(50) {
        Some((at, _)) => format!("`{}…`", &statement[..at]),
        None => format!("`{statement}`"),
    }
}

/// The archives in a folder.
fn archives(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![(root.to_path_buf(), 0)];
    while let Some((dir, depth)) = open.pop() {
        if Meta::path(&dir).is_file() {
            found.push(dir);
            continue;
        }
        if depth == DEPTH {
            continue;
        }
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push((entry.path(), depth + 1));
            }
        }
    }
    found.sort();
    found
}

fn has_tables(dir: &Path) -> Result<(), String> {
    let index = archive::tables::Index::path(dir);
    let there = index.is_file();
    let remedy =
        || format!("{} has no tables, and this door only reads: run `fathom reindex` on it first", dir.display());
    there.then_some(()).ok_or_else(remedy)
}

/// What a verb of this program prints as JSON.
fn run_self(words: &[std::ffi::OsString]) -> Result<Value, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.map(|mut out| out.read_to_end(&mut bytes)).transpose().map(|_| bytes)
    });
    let complaint = std::thread::spawn(move || {
        let mut said = String::new();
        // What cannot be read is not said.
        let _ = err.map(|err| err.take(64 << 10).read_to_string(&mut said));
        said
    });
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if begun.elapsed() > LONGEST => {
                child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
                return Err(format!("no answer within {} s; ask for less", LONGEST.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let bytes = reader.join().map_err(|_| "its output could not be read")?.map_err(|error| error.to_string())?;
    let said = complaint.join().unwrap_or_default();
    if !status.success() {
        let said: Vec<String> =
            said.trim().lines().map(|line| model::text::shown(line.trim_start_matches("fathom: "))).collect();
        return Err(if said.is_empty() { format!("it ended with {status}") } else { said.join("\n") });
    }
    serde_json::from_slice(&bytes).map_err(|error| format!("its answer is no JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_with_flaws_cannot_carry_claims() {
        let summary = json!({
            "trace": {"complete": false},
            "loss": {"events": 3, "events_at_unknown_time": 2},
            "blind": [{"layer": "Database", "means": "statements are missing"}],
            "completeness": {"state": "failed", "why": "12 writes of vda"},
            "operations": [{"statement": "SELECT 1", "count": 2, "tracer": {"large": true}}],
        });
        let claims: Vec<String> =
            cannot_claim(&summary).iter().map(|claim| claim.as_str().unwrap_or_default().to_string()).collect();
        for part in ["5 records", "cut short", "Database", "12 writes of vda", "a tenth", "six executions"] {
            assert!(claims.iter().any(|claim| claim.contains(part)), "{part}: {claims:?}");
        }
        let sound = json!({
            "trace": {"complete": true}, "loss": {"events": 0, "events_at_unknown_time": 0}, "blind": [],
            "completeness": {"state": "checked", "why": null}, "operations": [{"statement": "x", "count": 6, "tracer": null}],
        });
        assert!(cannot_claim(&sound).is_empty());
    }

    #[test]
    fn path_outside_roots_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir(root.join("in")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        let door = Door { roots: vec![root.clone()], budget: 1000 };
        assert_eq!(door.allowed("in"), Ok(root.join("in")));
        for outside in ["/etc", "..", "link", "in/../../", "nothing"] {
            assert!(door.allowed(outside).is_err(), "{outside}");
        }
    }
}
