//! Each tool is a verb of Fathom, asked about archives below the folders that were named, and about none else. An archive without tables
//! is refused, since making them would write.

use crate::protocol::{self, Call, Wants};
use crate::{Error, Result, claims, fit, tools, verb};
use archive::Meta;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, BufRead, Read as _, Write};
use std::path::{Path, PathBuf};

/// Folders deep in which archives are looked for.
const DEPTH: usize = 6;
/// Characters that are counted as a token.
const TOKEN: usize = 4;

/// Whom is answered, within what.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    roots: Vec<PathBuf>,
    /// Of an answer, in characters.
    budget: usize,
}

impl Server {
    /// Answers about archives below `roots` by verbs of `program`, each answer within `tokens`.
    ///
    /// # Errors
    /// A folder is not there.
    pub fn new(program: PathBuf, roots: &[PathBuf], tokens: u64) -> Result<Self> {
        let whole = |root: &PathBuf| {
            std::fs::canonicalize(root).map_err(|source| Error::NoPath { path: root.display().to_string(), source })
        };
        let roots = roots.iter().map(whole).collect::<Result<_>>()?;
        let budget = usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(TOKEN);
        Ok(Self { program, roots, budget })
    }

    /// Answers a message a line until there are no more.
    ///
    /// # Errors
    /// What is read or written fails.
    pub fn serve(&self, mut from: impl BufRead, mut to: impl Write) -> io::Result<()> {
        let offered = tools::tools();
        loop {
            let mut line = Vec::new();
            if from.by_ref().take(protocol::LONGEST_LINE as u64).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let line = String::from_utf8_lossy(&line);
            if line.trim().is_empty() {
                continue;
            }
            let answer = match protocol::read(line.trim(), &offered, tools::INSTRUCTIONS) {
                Wants::Nothing => continue,
                Wants::Answer(answer) => answer,
                Wants::Tool(id, call) => protocol::answer(id, self.call(&call)),
            };
            // JSON escapes what could steer a terminal, and has no line break.
            writeln!(to, "{answer}").and_then(|()| to.flush())?;
        }
    }

    /// What a tool says.
    fn call(&self, call: &Call) -> Result<Value> {
        let text = |name: &'static str| {
            let given = call.arguments.get(name).and_then(Value::as_str);
            given.ok_or(Error::Argument { name, wanted: "text" })
        };
        let (answer, claims) = match call.tool.as_str() {
            "list" => (self.list(), Vec::new()),
            "summary" => {
                let summary = self.verb("show", &[self.recorded(text("archive")?)?])?;
                let claims = claims::of_recording(&summary);
                (summary, claims)
            }
            "explain" => {
                let archive = self.recorded(text("archive")?)?;
                // What is missing of a recording holds for its findings too.
                let claims = claims::of_recording(&self.verb("show", std::slice::from_ref(&archive))?);
                (self.verb("explain", &[archive])?, claims)
            }
            "diff" => {
                let diff = self.verb("diff", &[self.recorded(text("a")?)?, self.recorded(text("b")?)?])?;
                let claims = claims::of_difference(&diff);
                (diff, claims)
            }
            "sql" => (self.sql(call, text("query")?)?, claims::of_rows()),
            other => return Err(Error::NoTool(model::text::shown(other))),
        };
        Ok(self.within(answer, claims))
    }

    fn sql(&self, call: &Call, query: &str) -> Result<Value> {
        let wrong = Error::Argument { name: "archives", wanted: "list of paths" };
        let places = call.arguments.get("archives").and_then(Value::as_array).filter(|list| !list.is_empty());
        let places: Option<Vec<&str>> = places.and_then(|list| list.iter().map(Value::as_str).collect());
        let mut words: Vec<OsString> = ["sql", "--format", "json", "--memory", "512M"].map(OsString::from).to_vec();
        for place in places.ok_or(wrong)? {
            let place = self.allowed(place)?;
            archives(&place).iter().try_for_each(|dir| has_tables(dir))?;
            words.push(place.into_os_string());
        }
        // A query never is an option or a path, whatever it looks like.
        words.extend(["--query".into(), query.into()]);
        verb::run(&self.program, &words)
    }

    /// A path below one of the roots.
    fn allowed(&self, path: &str) -> Result<PathBuf> {
        let base = self.roots.first().cloned().unwrap_or_default();
        let whole = std::fs::canonicalize(base.join(path))
            .map_err(|source| Error::NoPath { path: model::text::shown(path), source })?;
        let inside = self.roots.iter().any(|root| whole.starts_with(root));
        inside.then_some(whole).ok_or_else(|| Error::Outside(model::text::shown(path)))
    }

    /// An archive that can be read without writing to it.
    fn recorded(&self, path: &str) -> Result<PathBuf> {
        let dir = self.allowed(path)?;
        Meta::read(&dir)?;
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

    fn verb(&self, verb: &str, archives: &[PathBuf]) -> Result<Value> {
        let words = [verb.into(), "--json".into()];
        let words: Vec<OsString> = words.into_iter().chain(archives.iter().map(OsString::from)).collect();
        verb::run(&self.program, &words)
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
    fn path_outside_roots_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir(root.join("in")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        let server = server(&root, Path::new("/bin/true"));
        assert_eq!(server.allowed("in").unwrap(), root.join("in"));
        for outside in ["/etc", "..", "link", "in/../../", "nothing"] {
            assert!(server.allowed(outside).is_err(), "{outside}");
        }
    }

    #[test]
    fn session_of_lines_gets_answer_for_each_request() {
        let folder = tempfile::tempdir().unwrap();
        let asked = "\n{\"id\":1,\"method\":\"ping\"}\nnonsense\n{\"method\":\"notifications/initialized\"}\n\
            {\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"list\"}}\n\
            {\"id\":3,\"method\":\"tools/call\",\"params\":{\"name\":\"sql\",\"arguments\":{\"query\":\"x\",\"archives\":[7]}}}\n";
        let mut said = Vec::new();
        server(folder.path(), Path::new("/bin/true")).serve(asked.as_bytes(), &mut said).unwrap();
        let answers: Vec<Value> =
            String::from_utf8(said).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), 4, "{answers:?}");
        let text = |at: usize| answers[at]["result"]["content"][0]["text"].as_str().unwrap().to_string();
        assert!(text(2).contains("\"archives\":[]") && answers[2]["result"]["isError"] == false, "{}", text(2));
        assert!(text(3).contains("list of paths") && answers[3]["result"]["isError"] == true, "{}", text(3));
    }
}
