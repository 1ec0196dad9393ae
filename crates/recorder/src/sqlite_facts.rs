//! Facts about SQLite in a recording: which version ran, which PRAGMAs its programs set, and what the headers of their databases
//! say of the others.

use crate::collect::fact;
use crate::observed::Observed;
use crate::sqlite_version::Probed;
use analysis::files::DatabaseHeader;
use model::{Environment, Fact};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A database that a recorded program opened.
#[derive(Debug, Clone, Copy)]
pub struct OpenedDatabase {
    /// The process that did.
    pub tgid: u32,
    /// Inode; 0: only a file beside it was opened.
    pub ino: u64,
}

/// The facts, by name.
pub fn facts(observed: &mut Observed, probed: &[Probed]) -> Environment {
    // Only at the end: a mapping may come after the statement.
    observed.sqlite.read_mappings();
    let mut facts = Environment::new();
    if let Some(version) = observed.sqlite.version(probed) {
        facts.insert("sqlite.version".into(), version);
    }
    let (stored, unread) = headers(&observed.databases);
    for (name, values) in &stored {
        let distinct: BTreeSet<&str> = values.iter().map(|(_, value)| value.as_str()).collect();
        let paths: Vec<&str> = values.iter().map(|(path, _)| path.as_str()).collect();
        let source = format!("file header at the end of the recording: {}", paths.join(" "));
        let value = distinct.into_iter().collect::<Vec<_>>().join(", ");
        facts.insert(format!("sqlite.{name}"), fact(&value, None, &source));
    }
    for (name, in_file) in PRAGMAS {
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
        facts.insert(format!("sqlite.{name}"), fact(value, None, "a PRAGMA statement of the recorded program"));
    }
    facts
}

/// PRAGMAs that explain a trace, and whether a database's file keeps their value.
const PRAGMAS: [(&str, bool); 9] = [
    ("journal_mode", true),
    ("page_size", true),
    ("encoding", true),
    ("schema_format", true),
    ("synchronous", false),
    ("cache_size", false),
    ("locking_mode", false),
    ("mmap_size", false),
    ("wal_autocheckpoint", false),
];

/// Values by name of PRAGMA, each with the database that it is of.
type Stored = BTreeMap<&'static str, Vec<(String, String)>>;

/// What the headers of databases say now, and why some cannot be read. Only now, since a look during the recording would
/// bring pages into the cache, or keep a removed file's blocks from being freed.
fn headers(databases: &BTreeMap<String, OpenedDatabase>) -> (Stored, Vec<String>) {
    let (mut stored, mut unread) = (Stored::new(), Vec::new());
    for (path, opened) in databases {
        match header(path, *opened) {
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

/// The header of the database that a process saw at `path`: through its own root if it still lives.
fn header(path: &str, opened: OpenedDatabase) -> Result<DatabaseHeader, String> {
    use std::io::Read;
    let inside = capture::in_proc(opened.tgid).map(|pid| format!("/proc/{pid}/root{path}"));
    let places = inside.as_deref().into_iter().chain([path]);
    let place = places.into_iter().find(|p| Path::new(p).exists()).ok_or("it no longer exists")?;
    // A recorded program may have put a pipe there, whose opening would wait for a writer.
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

/// Name and value of `PRAGMA name = value`; values that are private are `?` by now.
pub fn pragma(shape: &str) -> Option<(String, String)> {
    let rest = shape.get(..7).filter(|w| w.eq_ignore_ascii_case("pragma ")).map(|_| &shape[7..])?;
    let (name, value) = rest.split_once('=').or_else(|| rest.strip_suffix(')')?.split_once('('))?;
    let value = value.trim().trim_end_matches(';').trim();
    let quotes = |q: char| Some(value.strip_prefix(q)?.strip_suffix(q)?.trim());
    let value = ['\'', '"', '`'].into_iter().find_map(quotes).unwrap_or(value);
    (value != "?").then(|| (name.trim().to_ascii_lowercase(), value.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::pragma;

    #[test]
    fn only_a_pragma_that_sets_something_is_one() {
        assert_eq!(pragma("PRAGMA journal_mode = WAL"), Some(("journal_mode".into(), "wal".into())));
        assert_eq!(pragma("pragma synchronous(off)"), Some(("synchronous".into(), "off".into())));
        assert_eq!(pragma("PRAGMA page_size = '4096';"), Some(("page_size".into(), "4096".into())));
        assert_eq!(pragma("PRAGMA synchronous(\"FULL\")"), Some(("synchronous".into(), "full".into())));
        assert_eq!(pragma("PRAGMA journal_mode"), None);
        assert_eq!(pragma("PRAGMA key = ?"), None);
        assert_eq!(pragma("SELECT a = b"), None);
    }
}
