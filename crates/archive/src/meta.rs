//! `meta.json`: what an archive is. Read before everything else, so that a newer archive is refused with a clear
//! message instead of a parse error, and replaced atomically, so that it is never half written.

use crate::error::{Error, IoResultExt, Result};
use crate::{ArchiveKind, layout, versions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// The value of `format` in every archive.
pub const FORMAT_NAME: &str = "fathom-archive";

/// A larger file is not one of ours.
const META_BYTES_MAX: u64 = 16 << 20;
/// The remedy if there is no archive.
const MISSING_ARCHIVE_REMEDY: &str = "give an archive made by `fathom record` or `fathom bench run`";

/// What an archive is and which versions wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Always `fathom-archive`.
    pub format: String,
    /// Version of the directory ([`versions::DIRECTORY_VERSIONS`]).
    pub version: u32,
    /// Who made it, such as `Fathom 0.2.0`.
    #[serde(default)]
    pub made_by: String,
    /// The kind of its content.
    pub kind: ArchiveKind,
    /// When it was made, ns since 1970 (CLOCK_REALTIME).
    pub created_unix_ns: u64,
    /// The command that was recorded, or empty.
    #[serde(default)]
    pub command: Vec<String>,
    /// Whether the recording completed. If not, the log has the events until then.
    #[serde(default)]
    pub complete: bool,
    /// Version of the log's records ([`model::event::EVENT_VERSION`]).
    pub event_version: u32,
    /// Version of the tables ([`model::table::TABLE_VERSION`]).
    pub table_version: u32,
    /// Whether the tables were made. The directory `tables/` decides; this is for people.
    #[serde(default)]
    pub linked: bool,
    /// The boot whose CLOCK_BOOTTIME the times refer to (the kernel's `random/boot_id`): times of two archives are comparable if it
    /// is the same. Older archives omit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// All other fields, from a newer minor version or from an instrument; preserved as they are.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Meta {
    /// The metadata of a new archive, with this program's versions.
    pub fn new(kind: ArchiveKind, created_unix_ns: u64, command: Vec<String>) -> Self {
        Self {
            format: FORMAT_NAME.into(),
            version: versions::newest(versions::DIRECTORY_VERSIONS),
            made_by: format!("Fathom {}", env!("CARGO_PKG_VERSION")),
            kind,
            created_unix_ns,
            command,
            complete: false,
            event_version: model::event::EVENT_VERSION,
            table_version: model::table::TABLE_VERSION,
            linked: false,
            boot: None,
            extra: Map::new(),
        }
    }

    /// Its path in an archive.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("meta.json")
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`Error::NotAnArchive`] if the directory has none or it is another program's, [`Error::Newer`], [`Error::Damaged`].
    pub fn read(dir: &Path) -> Result<Self> {
        let path = Self::path(dir);
        let file = match crate::own_file::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let has_log = layout::events(dir).is_file() || layout::runs(dir).is_file();
                let why = match (has_log, dir.is_dir()) {
                    (true, _) => {
                        format!("it has a log but no meta.json; `fathom reindex {}` makes one", model::shell_word(dir))
                    }
                    (false, true) => format!("it has no meta.json; {MISSING_ARCHIVE_REMEDY}"),
                    (false, false) => format!("no such directory; {MISSING_ARCHIVE_REMEDY}"),
                };
                return Err(Error::NotAnArchive { path: dir.into(), why });
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
                let why = format!("it is a file, not a directory; {MISSING_ARCHIVE_REMEDY}");
                return Err(Error::NotAnArchive { path: dir.into(), why });
            }
            Err(e) => return Err(e).with_action("open", &path),
        };
        let mut bytes = Vec::new();
        file.take(META_BYTES_MAX + 1).read_to_end(&mut bytes).with_action("read", &path)?;
        Self::parse(&path, &bytes)
    }

    /// Reads it from the bytes of the file at `path`.
    ///
    /// # Errors
    /// As [`Meta::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let dir = path.parent().unwrap_or(path);
        // The remedy depends on the files next to it.
        let log = [layout::events(dir), layout::runs(dir)].into_iter().find(|log| log.is_file());
        let remedy = match log.as_ref().and_then(|log| log.file_name()) {
            Some(log) => format!(
                "Its log, {}, exists: `fathom reindex {}` rebuilds the tables and meta.json from it",
                log.to_string_lossy(),
                model::shell_word(dir)
            ),
            None => "There is no log (events.log or runs.jsonl) to rebuild it from: use a copy of the archive, or \
                record again"
                .into(),
        };
        let damaged = |why: String| Error::Damaged { path: path.into(), why, remedy: remedy.clone() };
        if bytes.len() as u64 > META_BYTES_MAX {
            return Err(damaged(format!("it has more than {META_BYTES_MAX} bytes")));
        }
        // Format and version first, parsed as loosely as possible: everything else may have changed.
        let value: Value = serde_json::from_slice(bytes).map_err(|e| damaged(e.to_string()))?;
        let not_ours = || Error::NotAnArchive {
            path: path.parent().unwrap_or(path).into(),
            why: format!("its meta.json has no \"format\": \"{FORMAT_NAME}\""),
        };
        if value.get("format").and_then(Value::as_str) != Some(FORMAT_NAME) {
            return Err(not_ours());
        }
        let made_by = value.get("made_by").and_then(Value::as_str).unwrap_or("a newer Fathom").to_string();
        let parts = [
            ("version", "format", versions::newest(versions::DIRECTORY_VERSIONS)),
            ("event_version", "event list", model::event::EVENT_VERSION),
            ("table_version", "set of tables", model::table::TABLE_VERSION),
        ];
        for (key, what, newest) in parts {
            let found = value.get(key).and_then(Value::as_u64).ok_or_else(|| damaged(format!("it has no {key}")))?;
            versions::check_version(path, what, u32::try_from(found).unwrap_or(u32::MAX), newest, &made_by)?;
        }
        // A new kind does not raise a version: it changes nothing that older programs know.
        if let Some(kind) =
            value.get("kind").and_then(Value::as_str).filter(|word| ArchiveKind::from_word(word).is_none())
        {
            return Err(Error::UnknownKind { path: dir.into(), kind: kind.into(), made_by });
        }
        serde_json::from_value(value).map_err(|e| damaged(e.to_string()))
    }

    /// Replaces `meta.json`: the old one stays until the new one is on disk.
    pub fn write(&self, dir: &Path) -> Result<()> {
        // A structure of strings, numbers and JSON values always has a JSON form; only a failing writer could fail here.
        let mut bytes =
            serde_json::to_vec_pretty(self).map_err(std::io::Error::from).with_action("write", &Self::path(dir))?;
        bytes.push(b'\n');
        replace_file(&Self::path(dir), &bytes)
    }
}

/// The current time, in the form of [`Meta::created_unix_ns`].
pub fn unix_now_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Where a process that was killed leaves the `meta.json` that it was writing.
pub(crate) fn temporary_meta_path(dir: &Path) -> PathBuf {
    temporary_path(&Meta::path(dir))
}

/// Whether a file is the begin of a `meta.json`, or space reserved for one.
pub(crate) fn is_begun(path: &Path) -> bool {
    let begin = format!("{{\n  \"format\": \"{FORMAT_NAME}\"").into_bytes();
    let mut found = Vec::new();
    let read = crate::own_file::open(path).and_then(|file| file.take(begin.len() as u64).read_to_end(&mut found));
    read.is_ok() && (begin.starts_with(&found) || found.iter().all(|byte| *byte == 0))
}

/// The temporary name of a file while it is written.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    PathBuf::from(name)
}

/// Space reserved for the `meta.json` that is written at the end: others may have filled the disk by then, and a recording is worth
/// less without it. Unused space is released when this is dropped.
#[derive(Debug)]
pub struct MetaRoom(PathBuf);

impl MetaRoom {
    /// `meta.json` takes 20 to 40 KiB; more where many programs have probes.
    const RESERVED_BYTES: u32 = 128 << 10;

    /// Reserves the space in an archive that has its `meta.json`. `None` if there is not enough, or the file system cannot reserve
    /// any: there may be space at the end all the same.
    pub fn reserve(dir: &Path) -> Option<Self> {
        let held = Self(temporary_path(&Meta::path(dir)));
        let file = File::create(&held.0).ok()?;
        // SAFETY: a call on an open file and numbers.
        (unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, Self::RESERVED_BYTES.into()) } == 0).then_some(held)
    }

    /// Whether space is reserved in this archive.
    pub(crate) fn is_held(dir: &Path) -> bool {
        std::fs::metadata(temporary_path(&Meta::path(dir)))
            .is_ok_and(|about| about.len() >= u64::from(Self::RESERVED_BYTES))
    }
}

impl Drop for MetaRoom {
    fn drop(&mut self) {
        // Once it was used, it has another name.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Replaces a file atomically: written next to it, synced to disk, renamed over it.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let tmp = temporary_path(path);
    // Reserved space is written to, not released first: others would take it.
    let written = File::options().write(true).create(true).truncate(false).open(&tmp).and_then(|mut file| {
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)?;
        file.sync_all()
    });
    if written.is_err() {
        // The old file stays; the half-written new one is of no use.
        let _ = std::fs::remove_file(&tmp);
    }
    written.with_action("write", &tmp)?;
    std::fs::rename(&tmp, path).with_action("replace", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_space_is_used_by_the_last_write_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        let Some(room) = MetaRoom::reserve(dir.path()) else { return };
        assert!(MetaRoom::is_held(dir.path()) && names() == 1);
        sample().write(dir.path()).unwrap();
        assert!(!MetaRoom::is_held(dir.path()));
        assert_eq!(Meta::read(dir.path()).unwrap(), sample(), "nothing of the reserved space is left behind it");
        drop(room);
        assert_eq!(names(), 1);
        drop(MetaRoom::reserve(dir.path()));
        assert_eq!(names(), 1);
    }

    fn sample() -> Meta {
        let mut meta =
            Meta::new(ArchiveKind::Trace, 1_700_000_000_000_000_000, vec!["sqlite3".into(), "a \"b\"".into()]);
        meta.extra.insert("sqlite".into(), serde_json::json!({"version": "3.40.1"}));
        meta
    }

    #[test]
    fn unknown_fields_survive_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        sample().write(dir.path()).unwrap();
        assert_eq!(Meta::read(dir.path()).unwrap(), sample());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing temporary is left");
    }

    #[test]
    fn a_newer_archive_names_the_required_version() {
        for key in ["version", "event_version", "table_version"] {
            let mut value = serde_json::to_value(sample()).unwrap();
            value[key] = 99.into();
            value["made_by"] = "Fathom 7.1.0".into();
            // Fields that a newer version may have changed must not be checked before the version.
            value["command"] = 5.into();
            let error = Meta::parse(Path::new("x.fathom/meta.json"), value.to_string().as_bytes()).unwrap_err();
            let text = error.to_string();
            assert!(
                matches!(error, Error::Newer { .. }) && text.contains("Fathom 7.1.0") && text.contains("99"),
                "{text}"
            );
        }
    }

    /// An archive of another version's kind is not damaged, and must not be rebuilt as something else.
    #[test]
    fn an_unknown_kind_is_reported() {
        let mut value = serde_json::to_value(sample()).unwrap();
        value["kind"] = "heat".into();
        value["made_by"] = "Fathom 7.1.0".into();
        let error = Meta::parse(Path::new("x.fathom/meta.json"), value.to_string().as_bytes()).unwrap_err();
        assert!(matches!(error, Error::UnknownKind { .. }) && !error.is_rescuable(), "{error}");
        let text = error.to_string();
        assert!(text.contains("Fathom 7.1.0") && text.contains("\"heat\""), "{text}");
    }

    #[test]
    fn foreign_and_damaged_directories_have_their_own_errors() {
        let path = Path::new("x.fathom/meta.json");
        assert!(matches!(Meta::parse(path, b"{\"name\": 1}"), Err(Error::NotAnArchive { .. })));
        assert!(matches!(Meta::parse(path, b"{\"format\": "), Err(Error::Damaged { .. })));
        assert!(matches!(Meta::parse(path, br#"{"format": "fathom-archive"}"#), Err(Error::Damaged { .. })));
        assert!(matches!(Meta::read(Path::new("/nonexistent/x")), Err(Error::NotAnArchive { .. })));
    }
}
