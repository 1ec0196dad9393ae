//! Each tool runs a verb of Fathom on archives below the given directories, and on no others. An archive without tables is refused, since
//! building them would write to it.

use crate::inbox::Inbox;
use crate::protocol::{self, Call};
use crate::{Error, Result, claims, fit, tools, verb};
use archive::{Archive, ArchiveKind, Meta};
use model::table::FactRow;
use model::text::ShownPath as _;
use model::words::EMULATED_PROCESSOR;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

/// Maximum depth of directories that are searched for archives.
const SEARCH_DEPTH_MAX: usize = 6;
/// Characters counted as one token.
const TOKEN_CHARACTERS: usize = 4;

/// Minimum size of a result, in characters.
const RESULT_CHARACTERS_MIN: usize = 200;
/// Longest query, in bytes: it is an argument of a process, which Linux limits to 128 KiB (`MAX_ARG_STRLEN`).
const QUERY_BYTES_MAX: usize = 120 << 10;

/// Whether a request was cancelled, or its answer is not expected any more.
type IsCancelled<'a> = &'a dyn Fn() -> bool;

/// The server: its directories and its budget.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    roots: Vec<PathBuf>,
    /// Maximum size of an answer, in characters.
    budget: usize,
}

impl Server {
    /// Answers about archives below `roots` by verbs of `program`, each answer within `tokens`.
    pub fn new(program: PathBuf, roots: &[PathBuf], tokens: u64) -> Result<Self> {
        let canonical = |root: &PathBuf| {
            std::fs::canonicalize(root).map_err(|source| Error::NoPath { path: root.shown().to_string(), source })
        };
        let roots = roots.iter().map(canonical).collect::<Result<_>>()?;
        let budget = usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(TOKEN_CHARACTERS);
        Ok(Self { program, roots, budget })
    }

    /// Answers messages, one per line, until there are no more, or the client has `left`.
    ///
    /// # Errors
    /// Reading or writing fails, or the client has left.
    pub fn serve(
        &self,
        from: impl BufRead + Send + 'static,
        to: impl Write + Send + 'static,
        left: IsCancelled,
    ) -> io::Result<()> {
        let inbox = Inbox::new(from, to, tools::tools(), tools::INSTRUCTIONS);
        for (id, call) in &inbox.calls {
            let cancelled = || inbox.open.is_cancelled(&id) || left();
            // A client that cancels a request expects no answer to it.
            if !cancelled() {
                let result = self.call_tool(&call, &cancelled);
                if !cancelled() {
                    inbox.out.send(&protocol::answer(id.clone(), result, self.budget))?;
                }
            }
            if left() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            inbox.open.remove(&id);
        }
        inbox.ended()
    }

    /// The result of a tool.
    fn call_tool(&self, call: &Call, cancelled: IsCancelled) -> Result<Value> {
        let text = |name: &'static str| {
            let given = call.arguments.get(name).and_then(Value::as_str);
            given.ok_or(Error::Argument { name, wanted: "text" })
        };
        let (answer, claims, places) = match call.tool.as_str() {
            "list" => (self.list(), Vec::new(), self.roots.clone()),
            "summary" => {
                let archive = self.readable_archive(text("archive")?)?;
                let summary = self.run_verb("show", std::slice::from_ref(&archive), cancelled)?;
                let claims = claims::of_recording(&summary);
                (summary, claims, vec![archive])
            }
            "explain" => {
                let archive = self.readable_archive(text("archive")?)?;
                // What a recording lacks limits its findings too.
                let claims = claims::of_recording(&self.run_verb("show", std::slice::from_ref(&archive), cancelled)?);
                (self.run_verb("explain", std::slice::from_ref(&archive), cancelled)?, claims, vec![archive])
            }
            "diff" => {
                let both = vec![self.readable_archive(text("a")?)?, self.readable_archive(text("b")?)?];
                // If the kinds differ, `diff` says why they cannot be compared.
                if both.iter().all(|dir| Meta::read(dir).is_ok_and(|meta| meta.kind == ArchiveKind::Bench)) {
                    let words = ["bench", "compare", "--json"].iter().map(OsString::from);
                    let words: Vec<OsString> = words.chain(both.iter().map(OsString::from)).collect();
                    let compared = verb::run(&self.program, &words, cancelled)?;
                    let claims = claims::of_comparison(&compared);
                    (compared, claims, both)
                } else {
                    let diff = self.run_verb("diff", &both, cancelled)?;
                    let claims = claims::of_difference(&diff);
                    (diff, claims, both)
                }
            }
            "sql" => {
                let (rows, places) = self.query_sql(call, text("query")?, cancelled)?;
                let emulated =
                    places.iter().flat_map(|place| find_archives(place).archives).filter(|dir| is_emulated(dir));
                (rows, claims::of_rows(emulated.count()), places)
            }
            other => return Err(Error::NoTool(model::text::shown(other))),
        };
        Ok(self.fit_answer(answer, claims, places.iter().map(|place| describe_source(place)).collect()))
    }

    /// The rows, and their archives.
    fn query_sql(&self, call: &Call, query: &str, cancelled: IsCancelled) -> Result<(Value, Vec<PathBuf>)> {
        let wrong = Error::Argument { name: "archives", wanted: "list of paths" };
        let places = call.arguments.get("archives").and_then(Value::as_array).filter(|list| !list.is_empty());
        let places: Option<Vec<&str>> = places.and_then(|list| list.iter().map(Value::as_str).collect());
        let mut words: Vec<OsString> =
            ["sql", "--read-only", "--format", "json", "--memory", "512M"].map(OsString::from).to_vec();
        let mut places: Vec<PathBuf> =
            places.ok_or(wrong)?.into_iter().map(|place| self.resolve_path(place)).collect::<Result<_>>()?;
        places.sort();
        places.dedup();
        if query.len() > QUERY_BYTES_MAX {
            return Err(Error::QueryTooLong(QUERY_BYTES_MAX));
        }
        for place in &places {
            // A fleet has its own tables, whatever archives it keeps.
            find_archives(place).archives.iter().try_for_each(|dir| has_tables(dir))?;
            words.push(place.into());
        }
        // --query: so that a query is never taken for an option or a path.
        words.extend(["--query".into(), query.into()]);
        Ok((verb::run(&self.program, &words, cancelled)?, places))
    }

    /// A path below one of the roots.
    fn resolve_path(&self, path: &str) -> Result<PathBuf> {
        let base = self.roots.first().cloned().unwrap_or_default();
        let resolved = std::fs::canonicalize(base.join(path))
            .map_err(|source| Error::NoPath { path: model::text::shown(path), source })?;
        let inside = self.roots.iter().any(|root| resolved.starts_with(root));
        inside.then_some(resolved).ok_or_else(|| Error::Outside(model::text::shown(path)))
    }

    /// An archive that can be read without writing to it.
    fn readable_archive(&self, path: &str) -> Result<PathBuf> {
        let dir = self.resolve_path(path)?;
        Meta::read(&dir)?;
        has_tables(&dir)?;
        Ok(dir)
    }

    fn list(&self) -> Value {
        let found: Vec<DirectoryContents> = self.roots.iter().map(|root| find_archives(root)).collect();
        let archives: Vec<Value> =
            found.iter().flat_map(|found| &found.archives).map(|dir| describe_source(dir)).collect();
        let mut listed = json!({"archives": archives});
        let fleets: Vec<Value> = found.iter().flat_map(|found| &found.fleets).map(|dir| describe_source(dir)).collect();
        if !fleets.is_empty() {
            listed["fleets"] = fleets.into();
        }
        listed
    }

    fn run_verb(&self, verb: &str, archives: &[PathBuf], cancelled: IsCancelled) -> Result<Value> {
        let words = [verb.into(), "--json".into()];
        let words: Vec<OsString> = words.into_iter().chain(archives.iter().map(OsString::from)).collect();
        verb::run(&self.program, &words, cancelled)
    }

    /// The answer within the budget, preceded by what it does not support and by its provenance.
    fn fit_answer(&self, value: Value, cannot_claim: Vec<Value>, of: Vec<Value>) -> Value {
        let made_by = format!("Fathom {}", env!("CARGO_PKG_VERSION"));
        // Texts of a hostile archive get a part of the budget, numbers the rest.
        let (of, _) = fit::fit(of.into(), self.budget / 4);
        let provenance = json!({"answered_by": made_by, "of": of});
        let all = cannot_claim.len();
        let (cannot_claim, cut) = fit::fit(cannot_claim.into(), self.budget * 2 / 5);
        let lacking = all - cannot_claim.as_array().map_or(0, Vec::len);
        let cut = (!cut.is_empty()).then(|| json!({"path": "cannot_claim", "left_out": lacking}));
        // In alphabetical order, so `cannot_claim` comes first.
        let mut answer = json!({"cannot_claim": cannot_claim, "provenance": provenance, "result": value});
        let mut room = self
            .budget
            .saturating_sub(json_characters(&answer) - json_characters(&answer["result"]))
            .max(RESULT_CHARACTERS_MIN);
        // The list of cuts needs room too, and may be longer in the next round: so each round gives up at least a
        // sixteenth.
        loop {
            let (result, mut left_out) = fit::fit(value.clone(), room);
            left_out.extend(cut.clone());
            answer["result"] = result;
            if !left_out.is_empty() {
                answer["left_out"] = left_out.into();
            }
            let over = json_characters(&answer).saturating_sub(self.budget);
            if over == 0 || room == RESULT_CHARACTERS_MIN {
                break;
            }
            room = room.saturating_sub(over.max(room / 16)).max(RESULT_CHARACTERS_MIN);
        }
        answer
    }
}

fn json_characters(value: &Value) -> usize {
    value.to_string().chars().count()
}

/// Contents of a directory.
#[derive(Default)]
struct DirectoryContents {
    archives: Vec<PathBuf>,
    fleets: Vec<PathBuf>,
}

/// The archives and fleets in a directory; archives that a fleet keeps are not listed.
fn find_archives(root: &Path) -> DirectoryContents {
    let mut found = DirectoryContents::default();
    let mut open = vec![(root.to_path_buf(), 0)];
    while let Some((dir, depth)) = open.pop() {
        if Meta::path(&dir).is_file() {
            found.archives.push(dir);
            continue;
        }
        if is_fleet(&dir) {
            found.fleets.push(dir);
            continue;
        }
        if depth == SEARCH_DEPTH_MAX {
            continue;
        }
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push((entry.path(), depth + 1));
            }
        }
    }
    found.archives.sort();
    found.fleets.sort();
    found
}

fn is_fleet(dir: &Path) -> bool {
    dir.join("fleet.json").is_file()
}

/// Identifies a recording, directory or fleet.
fn describe_source(dir: &Path) -> Value {
    let path = dir.to_string_lossy();
    if is_fleet(dir) {
        return json!({"fleet": path});
    }
    if !Meta::path(dir).is_file() {
        return json!({"folder": path, "archives": find_archives(dir).archives.len()});
    }
    match Meta::read(dir) {
        Ok(meta) => json!({
            "archive": path,
            "kind": meta.kind,
            "made": model::text::date(meta.created_unix_ns),
            "made_by": meta.made_by,
            "command": meta.command.join(" "),
            "complete": meta.complete,
        }),
        Err(error) => json!({"archive": path, "unreadable": error.to_string()}),
    }
}

/// Whether the processor of a recording was emulated.
fn is_emulated(dir: &Path) -> bool {
    let facts = Archive::open(dir).and_then(|archive| archive.rows::<FactRow>());
    let (name, value) = EMULATED_PROCESSOR;
    facts.is_ok_and(|facts| facts.iter().any(|fact| fact.name == name && fact.value.as_deref() == Some(value)))
}

fn has_tables(dir: &Path) -> Result<()> {
    let there = archive::tables::Index::path(dir).is_file();
    there.then_some(()).ok_or_else(|| Error::NoTables(dir.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(root: &Path, program: &Path) -> Server {
        Server::new(program.into(), &[root.into()], 1000).unwrap()
    }

    #[test]
    fn path_outside_the_roots_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(directory.path()).unwrap();
        std::fs::create_dir(root.join("in")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        let server = server(&root, Path::new("/bin/true"));
        assert_eq!(server.resolve_path("in").unwrap(), root.join("in"));
        for outside in ["/etc", "..", "link", "in/../../", "nothing"] {
            assert!(server.resolve_path(outside).is_err(), "{outside}");
        }
    }

    #[test]
    fn fleet_is_listed_and_the_archives_that_it_keeps_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("fleet/_raw/0123456789abcdef");
        std::fs::create_dir_all(&kept).unwrap();
        std::fs::write(kept.join("meta.json"), "{}").unwrap();
        std::fs::write(directory.path().join("fleet/fleet.json"), "{}").unwrap();
        let root = std::fs::canonicalize(directory.path()).unwrap();
        let listed = server(&root, Path::new("/bin/true")).list();
        assert_eq!(listed, json!({"archives": [], "fleets": [{"fleet": root.join("fleet")}]}));
    }

    #[test]
    fn answer_names_its_provenance_within_the_budget() {
        let directory = tempfile::tempdir().unwrap();
        let server = server(directory.path(), Path::new("/bin/true"));
        let long = json!({"archive": "a".repeat(50_000), "command": "b".repeat(50_000)});
        let answer_within = server.fit_answer(json!({"rows": vec![1; 9000]}), vec![], vec![long]);
        assert!(answer_within.to_string().chars().count() <= 4000, "{answer_within}");
        assert!(
            answer_within["provenance"]["of"][0]["archive"].as_str().is_some_and(|name| name.starts_with("aaa")),
            "{answer_within}"
        );
        assert!(answer_within["provenance"]["answered_by"].as_str().is_some_and(|by| by.starts_with("Fathom ")));
    }

    #[test]
    fn smallest_budget_holds_many_claims() {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::new("/bin/true".into(), &[directory.path().into()], 500).unwrap();
        let claims = vec![json!("c".repeat(3000)); 30];
        let archive = json!({"archive": "a".repeat(4000), "command": "b".repeat(4000)});
        let parts: serde_json::Map<String, Value> =
            (0..300).map(|n| (format!("part{n}"), json!({"n": vec![json!("d".repeat(300)); 9]}))).collect();
        let answer = server.fit_answer(parts.into(), claims, vec![archive.clone(), archive]);
        assert!(json_characters(&answer) <= 2000, "{} {answer}", json_characters(&answer));
        let first = answer["cannot_claim"][0].as_str().unwrap();
        assert!(first.starts_with("ccc") && first.ends_with('…'), "{answer}");
        let cuts = answer["left_out"].as_array().unwrap();
        assert!(
            cuts.iter().any(|cut| cut["path"] == "cannot_claim" && cut["left_out"].as_u64() > Some(20)),
            "{answer}"
        );
    }

    /// For any number of parts: the more are cut, the longer the list of cuts.
    #[test]
    fn answer_of_any_shape_is_within_the_budget() {
        let directory = tempfile::tempdir().unwrap();
        for (tokens, parts) in [500, 700].into_iter().flat_map(|tokens| (1..30).step_by(3).map(move |n| (tokens, n))) {
            let server = Server::new("/bin/true".into(), &[directory.path().into()], tokens).unwrap();
            let part =
                |n: usize| (format!("a_part_of_{n}"), json!(vec![json!({"name": "d".repeat(n), "n": [1, 2, n]}); n]));
            let empty = ["facts", "links", "files", "coverage"].map(|name| (name.into(), json!([])));
            let value: serde_json::Map<String, Value> = (0..parts).map(part).chain(empty).collect();
            let answer =
                server.fit_answer(value.into(), vec![json!("c".repeat(9 * parts)); 3], vec![json!({"archive": "a"})]);
            assert!(
                json_characters(&answer) <= tokens as usize * TOKEN_CHARACTERS,
                "{tokens} {parts}: {}",
                json_characters(&answer)
            );
        }
    }

    /// What a client reads.
    #[derive(Clone, Default)]
    struct Output(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Output {
        fn answers(&self) -> Vec<Value> {
            let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
    }

    /// A verb that would run for ever; the ping after it is answered, and both calls end without an answer.
    #[test]
    fn cancelled_call_ends_and_is_not_answered() {
        let directory = tempfile::tempdir().unwrap();
        let program = endless(directory.path());
        let call = |id: u64| {
            let params = json!({"name": "sql", "arguments": {"query": "x", "archives": ["."]}});
            json!({"id": id, "method": "tools/call", "params": params}).to_string()
        };
        let cancel = |id: u64| json!({"method": "notifications/cancelled", "params": {"requestId": id}}).to_string();
        let ping = json!({"id": 9, "method": "ping"}).to_string();
        let requests = [call(1), call(2), ping, cancel(2), cancel(1), cancel(77)].join("\n").into_bytes();
        let output = Output::default();
        server(directory.path(), &program).serve(io::Cursor::new(requests), output.clone(), &|| false).unwrap();
        assert_eq!(output.answers(), [json!({"jsonrpc": "2.0", "id": 9, "result": {}})]);
    }

    /// A file that sleeps when it is run; another process creates it, since a file that this process has open for writing while
    /// it forks elsewhere cannot be executed.
    fn endless(directory: &Path) -> PathBuf {
        let program = directory.join("endless");
        let script = "printf '#!/bin/sh\\nexec sleep 600\\n' > \"$0\" && chmod +x \"$0\"";
        let made = std::process::Command::new("/bin/sh").args(["-c", script]).arg(&program).status();
        assert!(made.unwrap().success());
        program
    }

    #[test]
    fn call_of_a_client_that_left_ends() {
        let directory = tempfile::tempdir().unwrap();
        let program = endless(directory.path());
        let call = json!({"id": 1, "method": "tools/call",
            "params": {"name": "sql", "arguments": {"query": "x", "archives": ["."]}}});
        let output = Output::default();
        let asked = std::cell::Cell::new(0);
        let left = || asked.replace(asked.get() + 1) > 0;
        let requests = io::Cursor::new(call.to_string().into_bytes());
        let why = server(directory.path(), &program).serve(requests, output.clone(), &left).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::BrokenPipe);
        assert!(asked.get() > 1 && output.answers().is_empty());
    }

    /// The rest of such a line would be a message of its own: text that the client only quotes.
    #[test]
    fn line_beyond_the_limit_is_one_message() {
        let directory = tempfile::tempdir().unwrap();
        let ping = |id: u64| json!({"id": id, "method": "ping"}).to_string();
        let filled = format!("{}{}\n{}\n", "x".repeat(protocol::LINE_BYTES_MAX), ping(1), ping(2));
        let whole = format!("{}{}\n", " ".repeat(protocol::LINE_BYTES_MAX - 1 - ping(3).len()), ping(3));
        let output = Output::default();
        let requests = io::Cursor::new(filled + &whole);
        server(directory.path(), Path::new("/bin/true")).serve(requests, output.clone(), &|| false).unwrap();
        let ids: Vec<Value> = output.answers().into_iter().map(|answer| answer["id"].clone()).collect();
        assert_eq!(ids, [Value::Null, json!(2), json!(3)]);
    }

    #[test]
    fn long_query_is_refused_and_long_reason_cut() {
        let directory = tempfile::tempdir().unwrap();
        let call = |query: String| Call { tool: "sql".into(), arguments: json!({"archives": ["."], "query": query}) };
        let server = server(directory.path(), Path::new("/bin/true"));
        let why = server.call_tool(&call("x".repeat(QUERY_BYTES_MAX + 1)), &|| false).unwrap_err();
        assert!(matches!(why, Error::QueryTooLong(_)) && why.to_string().contains("120 KiB"), "{why}");
        let answer = protocol::answer(json!(1), Err(Error::Refused("é".repeat(9000))), 1000);
        assert_eq!(answer["result"]["content"][0]["text"].as_str().unwrap().chars().count(), 1000);
    }

    #[test]
    fn each_request_of_a_session_gets_an_answer() {
        let directory = tempfile::tempdir().unwrap();
        let requests = "\n{\"id\":1,\"method\":\"ping\"}\nnonsense\n{\"method\":\"notifications/initialized\"}\n\
            {\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"list\"}}\n\
            {\"id\":3,\"method\":\"tools/call\",\"params\":{\"name\":\"sql\",\"arguments\":{\"query\":\"x\",\"archives\":[7]}}}\n";
        let output = Output::default();
        server(directory.path(), Path::new("/bin/true")).serve(requests.as_bytes(), output.clone(), &|| false).unwrap();
        let answers = output.answers();
        assert_eq!(answers.len(), 4, "{answers:?}");
        let text = |at: usize| answers[at]["result"]["content"][0]["text"].as_str().unwrap().to_string();
        assert!(text(2).contains("\"archives\":[]") && answers[2]["result"]["isError"] == false, "{}", text(2));
        assert!(text(3).contains("list of paths") && answers[3]["result"]["isError"] == true, "{}", text(3));
    }
}
