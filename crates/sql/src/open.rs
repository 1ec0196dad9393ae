//! Opens the queried archives, directories of archives, or fleet.
//!
//! The program `fathom` (`fathom reindex`), which alone has every linker, first builds the tables of an archive without any; tables
//! of an older version are rewritten to a temporary directory, since an engine would compute wrongly with unsigned times.

use anyhow::{Context as _, Result, anyhow, bail};
use archive::Archive;
use datafusion::common::ScalarValue;
use fleet::Identity;
use model::table::TABLE_VERSION;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::stop::Scratch;
use crate::tables::{Part, Parts};

/// An archive whose tables an engine may read.
pub struct OpenedArchive {
    /// The archive as it was given.
    pub archive: Archive,
    pub identity: Identity,
    /// Its tables in the current version, if its own are older.
    rewritten: Option<PathBuf>,
}

/// The program that builds tables: next to this one, or in PATH.
pub(crate) fn fathom() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("fathom")).filter(|path| path.is_file());
    std::env::var_os("FATHOM").map(PathBuf::from).or(beside).unwrap_or_else(|| "fathom".into())
}

/// Builds the tables of an archive.
fn build_tables(dir: &Path) -> Result<()> {
    let program = fathom();
    let made = Command::new(&program).arg("reindex").arg(dir).stdin(Stdio::null()).stdout(Stdio::null()).output();
    let made = made.with_context(|| {
        format!("{} has no tables, and {} cannot be started to build them", dir.display(), program.display())
    })?;
    if !made.status.success() {
        let messages = String::from_utf8_lossy(&made.stderr);
        bail!(
            "{} has no tables, and they cannot be built: {}",
            dir.display(),
            messages.trim().trim_start_matches("fathom: ")
        );
    }
    // Its warnings (an incomplete log) apply to every result. If stderr is closed, they are dropped.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), &made.stderr);
    Ok(())
}

/// Opens an archive, and builds its tables if they are missing.
///
/// # Errors
/// It is not an archive, is damaged or newer, or its tables cannot be built.
pub fn open_linked(dir: &Path) -> Result<Archive> {
    let archive = Archive::open(dir)?;
    if archive.has_current_tables() {
        return Ok(archive);
    }
    build_tables(dir)?;
    Ok(Archive::open(dir)?)
}

/// Opens an archive that must have tables.
fn as_it_is(dir: &Path) -> Result<Archive> {
    let archive = Archive::open(dir)?;
    if !archive.has_tables() {
        bail!("{} has no tables; `fathom reindex` builds them", dir.display());
    }
    Ok(archive)
}

/// Returns an archive's tables in the current version, if its own are older.
fn rewrite_tables(archive: &Archive, identity: &Identity, scratch: &Scratch) -> Result<Option<PathBuf>> {
    if archive::tables::Index::read(archive.dir())?.table_version >= TABLE_VERSION {
        return Ok(None);
    }
    let directory = scratch.directory(&identity.run)?;
    archive::export::parquet(archive, &directory, &model::Context::silent())?;
    Ok(Some(directory))
}

/// The result of a search for archives.
#[derive(Debug, Default)]
pub struct FoundArchives {
    /// Archives, in order of their paths.
    pub archives: Vec<PathBuf>,
    /// Paths that could not be searched, and why.
    pub unread: Vec<(PathBuf, String)>,
}

fn is_archive(dir: &Path) -> bool {
    dir.join("meta.json").is_file() || archive::log::path(dir).is_file()
}

/// Finds the archives in a directory, at any depth; archives within archives belong to the outer one, and those that a fleet in it keeps to
/// the fleet. A link is followed only if it points to an archive: others may form cycles.
fn find_archives(directory: &Path, links: bool) -> FoundArchives {
    let mut found = FoundArchives::default();
    let mut open = vec![directory.to_path_buf()];
    while let Some(dir) = open.pop() {
        if is_archive(&dir) {
            found.archives.push(dir);
            continue;
        }
        if dir != directory && is_fleet(&dir) {
            continue;
        }
        let entries = std::fs::read_dir(&dir).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        match entries {
            Ok(entries) => open.extend(entries.iter().filter_map(|entry| {
                let kind = entry.file_type().ok()?;
                let path = entry.path();
                (kind.is_dir() || links && kind.is_symlink() && is_archive(&path)).then_some(path)
            })),
            Err(error) => found.unread.push((dir, error.to_string())),
        }
    }
    found.archives.sort();
    found
}

/// Whether a directory is a fleet.
pub fn is_fleet(dir: &Path) -> bool {
    dir.join("fleet.json").is_file()
}

/// Finds the archives that these words name, each once, and the words, or directories below them, that name none; `links` is whether to
/// follow links in a directory.
pub fn search(words: &[PathBuf], links: bool) -> FoundArchives {
    let mut all = FoundArchives::default();
    for word in words {
        if !word.is_dir() {
            // The archive's own message states what was expected.
            if let Err(error) = Archive::open(word) {
                all.unread.push((word.clone(), error.to_string()));
            }
            continue;
        }
        let found = find_archives(word, links);
        if found.archives.is_empty() && found.unread.is_empty() {
            all.unread.push((word.clone(), "it is not an archive, and contains none".into()));
        }
        all.archives.extend(found.archives);
        all.unread.extend(found.unread);
    }
    let mut known = std::collections::HashSet::new();
    all.archives.retain(|dir| known.insert(std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone())));
    all
}

/// The archives that these words name, each once.
///
/// # Errors
/// A word names nothing, a directory without archives, or something unreadable.
pub fn archives(words: &[PathBuf], links: bool) -> Result<Vec<PathBuf>> {
    let found = search(words, links);
    match found.unread.first() {
        Some((path, why)) => Err(anyhow!("{}", named(&path.display().to_string(), why))),
        None => Ok(found.archives),
    }
}

/// An error about something, which the reason may already name.
pub fn named(what: &str, why: &str) -> String {
    let is_named = why.strip_prefix(what).is_some_and(|rest| rest.starts_with([' ', ':']));
    if is_named { why.to_string() } else { format!("{what}: {why}") }
}

/// Several archives, opened.
#[derive(Clone)]
pub struct Archives(Arc<Vec<OpenedArchive>>);

impl Archives {
    /// Opens them all. An archive given twice under different names is opened once.
    ///
    /// # Errors
    /// One cannot be opened: a result without it would answer another question.
    pub fn open(dirs: &[PathBuf], read_only: bool, scratch: &Scratch) -> Result<Self> {
        let mut opened: Vec<OpenedArchive> = Vec::new();
        let mut runs = std::collections::HashMap::new();
        for dir in dirs {
            let archive = if read_only { as_it_is(dir)? } else { open_linked(dir)? };
            let identity = Identity::from_archive(&archive, None)?;
            let recording = identity.recording.clone().unwrap_or_else(|| identity.run.clone());
            if let Some(first) = runs.insert(recording, dir.clone()) {
                bail!(
                    "{} and {} hold the same recording: each of its rows would count twice",
                    first.display(),
                    dir.display()
                );
            }
            let rewritten = rewrite_tables(&archive, &identity, scratch)?;
            opened.push(OpenedArchive { archive, identity, rewritten });
        }
        Ok(Self(Arc::new(opened)))
    }

    pub fn all(&self) -> &[OpenedArchive] {
        &self.0
    }

    /// The files of a table.
    pub fn table(&self, name: &'static str) -> Box<dyn Parts> {
        Box::new(TableOf { archives: self.clone(), name })
    }
}

/// The columns that are not in an archive's files.
pub const ATTACHED_COLUMNS: [&str; 4] = ["device", "run", "date", "archive"];

struct TableOf {
    archives: Archives,
    name: &'static str,
}

impl Parts for TableOf {
    fn parts(&self) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        for one in self.archives.all() {
            let Some((mut path, rows)) = one.archive.table_file(self.name)? else { continue };
            if let Some(directory) = &one.rewritten {
                path = directory.join(format!("{}.parquet", self.name));
            }
            let whole = std::path::absolute(&path).with_context(|| path.display().to_string())?;
            let bytes = std::fs::metadata(&whole).with_context(|| format!("reading {}", whole.display()))?.len();
            let location = object_store::path::Path::from_absolute_path(&whole)?;
            parts.push(Part { location, bytes, rows, values: attached_values(&one.identity) });
        }
        Ok(parts)
    }
}

/// The values of [`ATTACHED_COLUMNS`].
fn attached_values(identity: &Identity) -> Vec<ScalarValue> {
    let text = |text: &str| ScalarValue::Utf8View(Some(text.into()));
    vec![text(&identity.device), text(&identity.run), ScalarValue::Date32(Some(identity.day)), text(&identity.archive)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_follows_links_to_archives_only() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for dir in ["pile/a.fathom", "pile/deep/b.fathom/inner.fathom", "elsewhere/c.fathom"] {
            std::fs::create_dir_all(at(dir)).unwrap();
        }
        for archive in ["pile/a.fathom", "pile/deep/b.fathom", "pile/deep/b.fathom/inner.fathom", "elsewhere/c.fathom"]
        {
            std::fs::write(at(archive).join("meta.json"), "{}").unwrap();
        }
        for (to, link) in [
            ("elsewhere/c.fathom", "pile/link"),
            ("pile/a.fathom", "pile/again"),
            ("pile", "pile/circle"),
            ("elsewhere", "pile/other"),
            ("nothing", "pile/broken"),
        ] {
            std::os::unix::fs::symlink(at(to), at(link)).unwrap();
        }
        let found = search(&[at("pile"), at("pile/a.fathom")], true);
        let expected = ["pile/a.fathom", "pile/deep/b.fathom", "pile/link"].map(&at);
        assert_eq!((found.archives, found.unread), (expected.to_vec(), vec![]));
        assert_eq!(search(&[at("pile")], false).archives, expected[..2]);
    }

    #[test]
    fn archives_kept_by_the_fleet_are_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for archive in ["a.fathom", "fleet/_raw/0123456789abcdef"] {
            std::fs::create_dir_all(at(archive)).unwrap();
            std::fs::write(at(archive).join("meta.json"), "{}").unwrap();
        }
        std::fs::write(at("fleet/fleet.json"), "{}").unwrap();
        assert_eq!(search(&[directory.path().to_path_buf()], true).archives, [at("a.fathom")]);
        // Naming the fleet means its archives.
        assert_eq!(search(&[at("fleet")], true).archives, [at("fleet/_raw/0123456789abcdef")]);
    }

    #[test]
    fn word_that_names_nothing_hides_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("a.fathom")).unwrap();
        std::fs::create_dir(at("empty")).unwrap();
        std::fs::write(at("a.fathom/meta.json"), "{}").unwrap();
        let words = [at("nothing"), at("a.fathom"), at("empty")];
        let found = search(&words, true);
        assert_eq!(found.archives, [at("a.fathom")]);
        assert_eq!(found.unread.iter().map(|one| &one.0).collect::<Vec<_>>(), [&words[0], &words[2]]);
        assert!(archives(&words, true).is_err());
    }
}
