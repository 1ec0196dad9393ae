//! Facts about SQLite in a recording: which version ran, which PRAGMAs its programs set, and what the headers of their databases
//! contain about the others.

use crate::collect::run_fact;
use crate::observed::{Observations, OpenedDatabase};
use crate::sqlite_version::ProbedLibrary;
use model::{Environment, Fact};
use sqlite::{DatabaseHeader, PRAGMAS, Pragma};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Returns the facts, by name.
pub fn facts(observed: &mut Observations, probed: &[ProbedLibrary]) -> Environment {
    // Only at the end: a mapping may come after the statement.
    observed.sqlite.read_mappings();
    let mut facts = Environment::new();
    if let Some(version) = observed.sqlite.version(probed) {
        facts.insert("sqlite.version".into(), version);
    }
    let (stored, unread) = read_headers(&observed.databases);
    for (name, values) in &stored {
        let distinct: BTreeSet<&str> = values.iter().map(|(_, value)| value.as_str()).collect();
        let paths: Vec<&str> = values.iter().map(|(path, _)| path.as_str()).collect();
        let source = format!("file header at the end of the recording: {}", paths.join(" "));
        let value = distinct.into_iter().collect::<Vec<_>>().join(", ");
        facts.insert(format!("sqlite.{name}"), run_fact(&value, None, &source));
    }
    for Pragma { name, in_file } in PRAGMAS {
        let recorded = format!("no statement PRAGMA {name} = … was recorded");
        let unknown = match (in_file, unread.first()) {
            (false, _) => format!(
                "{recorded}, and it is a setting of each connection that the database file does \
                not store"
            ),
            (true, None) if observed.databases.is_empty() => {
                format!("{recorded}, and no database was opened during the recording")
            }
            (true, None) => format!("{recorded}, and the file's header does not have it"),
            (true, Some(why)) => format!("{recorded}, and the file's header cannot be read: {why}"),
        };
        facts.entry(format!("sqlite.{name}")).or_insert_with(|| Fact {
            value: None,
            unknown: Some(unknown),
            unit: None,
            source: "the recorded statements and the files' headers".into(),
            varies: "run".into(),
        });
    }
    for (name, value) in &observed.pragmas {
        facts.insert(format!("sqlite.{name}"), run_fact(value, None, "a PRAGMA statement of the recorded program"));
    }
    facts
}

/// Values by name of PRAGMA, each with its database.
type PragmaValues = BTreeMap<&'static str, Vec<(String, String)>>;

/// Returns the current contents of databases' headers, and why some cannot be read. Only at the end, since reading during
/// the recording would bring pages into the cache, or keep a removed file's blocks from being freed.
fn read_headers(databases: &BTreeMap<String, OpenedDatabase>) -> (PragmaValues, Vec<String>) {
    let (mut stored, mut unread) = (PragmaValues::new(), Vec::new());
    for (path, opened) in databases {
        match read_header(path, *opened) {
            Ok(header) => {
                for (name, value) in header.facts() {
                    stored.entry(name).or_default().push((path.clone(), value));
                }
            }
            Err(why) => unread.push(format!("{path}: {why}")),
        }
    }
    (stored, unread)
}

/// Reads the header of the database that a process saw at `path`: through its own root if it is still running.
fn read_header(path: &str, opened: OpenedDatabase) -> Result<DatabaseHeader, String> {
    use std::io::Read;
    let inside = capture::in_proc(opened.tgid).map(|pid| format!("/proc/{pid}/root{path}"));
    let places = inside.as_deref().into_iter().chain([path]);
    let place = places.into_iter().find(|p| Path::new(p).exists()).ok_or("it no longer exists")?;
    // A recorded program may have put a pipe there; opening it would wait for a writer.
    let open = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(place);
    let mut file = open.map_err(|e| e.to_string())?;
    let about = file.metadata().map_err(|e| e.to_string())?;
    if !about.is_file() || (opened.ino != 0 && about.ino() != opened.ino) {
        return Err("it was replaced by another file".into());
    }
    let mut bytes = [0; DatabaseHeader::SIZE];
    file.read_exact(&mut bytes).map_err(|_| "it is empty or shorter than a header")?;
    DatabaseHeader::parse(&bytes).ok_or_else(|| "it has no SQLite header (it may be encrypted)".into())
}
