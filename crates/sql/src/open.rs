//! What is asked: archives, folders of archives, or a fleet.
//!
//! An archive without tables gets them first, by the program `fathom` (`fathom reindex`), which alone knows every linker; tables of
//! an older version are written anew into a temporary folder, since an engine would compute wrongly with unsigned times.

use anyhow::{Context as _, Result, anyhow, bail};
use archive::Archive;
use datafusion::common::ScalarValue;
use fleet::Identity;
use model::table::TABLE_VERSION;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::tables::{Part, Parts};

/// An archive whose tables an engine may read.
pub struct Opened {
    /// The archive as it was given.
    pub archive: Archive,
    /// Which one it is.
    pub identity: Identity,
    /// Its tables as this version writes them, if it has older ones.
    rewritten: Option<tempfile::TempDir>,
}

/// The program that makes tables: beside this one, or wherever it is found.
pub(crate) fn fathom() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("fathom")).filter(|path| path.is_file());
    std::env::var_os("FATHOM").map(PathBuf::from).or(beside).unwrap_or_else(|| "fathom".into())
}

/// Has the tables of an archive made.
fn link(dir: &Path) -> Result<()> {
    let program = fathom();
    let made = Command::new(&program).arg("reindex").arg(dir).stdin(Stdio::null()).stdout(Stdio::null()).output();
    let made = made.with_context(|| {
        format!("{} has no tables yet, and {} cannot be started to make them", dir.display(), program.display())
    })?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        bail!("{} has no tables, and none can be made: {}", dir.display(), said.trim().trim_start_matches("fathom: "));
    }
    // What is missing of the log is said there, and holds for every answer. A stderr that is gone is told nothing.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), &made.stderr);
    Ok(())
}

/// Opens an archive that has its tables afterwards.
///
/// # Errors
/// It is none, is damaged, newer, or has no tables and none can be made.
pub fn linked(dir: &Path) -> Result<Archive> {
    let archive = Archive::open(dir)?;
    if archive.has_tables() {
        return Ok(archive);
    }
    link(dir)?;
    Ok(Archive::open(dir)?)
}

/// Opens an archive, with its tables as this version has them.
///
/// # Errors
/// As [`linked`].
pub fn archive(dir: &Path, named: Option<&str>) -> Result<Opened> {
    let archive = linked(dir)?;
    let version = archive::tables::Index::read(dir)?.table_version;
    let rewritten = if version < TABLE_VERSION {
        let folder = tempfile::Builder::new().prefix("fathom-sql.").tempdir().context("a folder for older tables")?;
        archive::export::parquet(&archive, folder.path(), &model::Context::silent())?;
        Some(folder)
    } else {
        None
    };
    let identity = Identity::of(&archive, named)?;
    Ok(Opened { archive, identity, rewritten })
}

/// The archives in a folder, at any depth, in order of their paths; archives within archives are the outer one's.
///
/// # Errors
/// A folder cannot be read.
pub fn find(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(dir) = open.pop() {
        if dir.join("meta.json").is_file() || archive::log::path(&dir).is_file() {
            found.push(dir);
            continue;
        }
        let entries = std::fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("reading {}", dir.display()))?;
            // A link may lead in circles.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The archives that these words name, each once.
///
/// # Errors
/// A word names nothing, or a folder without archives.
pub fn archives(words: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for word in words {
        if !word.is_dir() {
            // The archive's own message says what was expected.
            Archive::open(word)?;
        }
        let found = find(word)?;
        if found.is_empty() {
            return Err(anyhow!("{} is no archive, and has none in it", word.display()));
        }
        all.extend(found);
    }
    let mut known = std::collections::HashSet::new();
    all.retain(|dir| known.insert(std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone())));
    Ok(all)
}

/// Several archives, opened.
#[derive(Clone)]
pub struct Archives(Arc<Vec<Opened>>);

impl Archives {
    /// Opens them all. An archive that was given twice under different names is one.
    ///
    /// # Errors
    /// One cannot be opened: an answer without it would be another question's.
    pub fn open(dirs: &[PathBuf]) -> Result<Self> {
        let mut opened: Vec<Opened> = Vec::new();
        let mut runs = std::collections::HashMap::new();
        for dir in dirs {
            let one = archive(dir, None)?;
            if let Some(first) = runs.insert(one.identity.run.clone(), dir.clone()) {
                bail!(
                    "{} and {} hold the same recording: each of its rows would count twice",
                    first.display(),
                    dir.display()
                );
            }
            opened.push(one);
        }
        Ok(Self(Arc::new(opened)))
    }

    /// The archives.
    pub fn all(&self) -> &[Opened] {
        &self.0
    }

    /// The files of a table.
    pub fn table(&self, name: &'static str) -> Box<dyn Parts> {
        Box::new(TableOf { archives: self.clone(), name })
    }
}

/// The columns that an archive's files lack.
pub const ATTACHED: [&str; 4] = ["device", "run", "date", "archive"];

struct TableOf {
    archives: Archives,
    name: &'static str,
}

impl Parts for TableOf {
    fn parts(&self) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        for one in self.archives.all() {
            let Some((mut path, rows)) = one.archive.table_file(self.name)? else { continue };
            if let Some(folder) = &one.rewritten {
                path = folder.path().join(format!("{}.parquet", self.name));
            }
            let whole = std::path::absolute(&path).with_context(|| path.display().to_string())?;
            let bytes = std::fs::metadata(&whole).with_context(|| format!("reading {}", whole.display()))?.len();
            let location = object_store::path::Path::from_absolute_path(&whole)?;
            parts.push(Part { location, bytes, rows, values: values(&one.identity) });
        }
        Ok(parts)
    }
}

/// The values of [`ATTACHED`].
fn values(identity: &Identity) -> Vec<ScalarValue> {
    let text = |text: &str| ScalarValue::Utf8View(Some(text.into()));
    vec![text(&identity.device), text(&identity.run), ScalarValue::Date32(Some(identity.day)), text(&identity.archive)]
}
