//! The identity of an archive: the content of its log, not its name, so that a copy is the same recording and is added
//! once.
//!
//! The log is authoritative and never changes once it is complete; `meta.json` and the tables may be rebuilt. An archive that is
//! still being written has another identity a moment later.
//!
//! Several states of one recording, such as a copy that was cut short, or a benchmark before it was resumed, have different identities.
//! They are recognised by [`Identity::recording`], as their rows would otherwise count twice.
//!
//! An archive does not name the device under test: host names and serial numbers are left out of its facts on purpose. So the
//! person who collects archives names the device (`--device`, or a directory `device=NAME` on the path to them); otherwise it is
//! vendor and model.

use archive::{Archive, Error, Meta, Result};
use model::LossSource;
use model::table::{FactRow, LossRow};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// A day in ns.
const DAY_NS: u64 = 86_400_000_000_000;

/// What distinguishes an archive from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The device under test.
    pub device: String,
    /// Hash of its log.
    pub run: String,
    /// Hash of when it was made, in which boot: the same for every state of its log. `None` if that is unknown.
    pub recording: Option<String>,
    /// Whether a part of its log was damaged when its tables were made.
    pub damaged: bool,
    /// The directory's name.
    pub archive: String,
    /// When it was made, ns since 1970; times that exceed a signed number (after 2262) become the largest one.
    pub created_unix_ns: i64,
    /// The day on which it was made (UTC), in days since 1970.
    pub day: i32,
    /// Size of its log.
    pub log_bytes: u64,
}

impl Identity {
    /// The identity of an archive that has its tables; `named` is the device's name, if one was given.
    ///
    /// # Errors
    /// Those of reading its log and its facts, and [`Error::Damaged`] if its tables are not of this log.
    pub fn from_archive(archive: &Archive, named: Option<&str>) -> Result<Self> {
        let dir = archive.dir();
        archive::check_log(archive)?;
        let (run, log_bytes) = hash_log(archive)?;
        let device = match named.map(str::to_string).or_else(|| device_in_path(dir)) {
            Some(name) => name,
            None => device_by_model(&archive.rows::<FactRow>()?),
        };
        let created_unix_ns = i64::try_from(archive.meta().created_unix_ns).unwrap_or(i64::MAX);
        let day = i32::try_from(created_unix_ns.cast_unsigned() / DAY_NS).unwrap_or(i32::MAX);
        // A table that cannot be read is reported when all of them are read.
        let damaged =
            archive.rows::<LossRow>().is_ok_and(|all| all.iter().any(|loss| loss.source == LossSource::Damage));
        let recording = hash_recording(archive.meta());
        Ok(Self { device, run, recording, damaged, archive: directory_name(dir), created_unix_ns, day, log_bytes })
    }

    /// Its day as `2026-11-25`.
    pub fn date(&self) -> String {
        format_day(self.day)
    }
}

/// A day since 1970 as `2026-11-25`.
pub fn format_day(day: i32) -> String {
    model::text::date(u64::try_from(day).unwrap_or(0).saturating_mul(DAY_NS)).chars().take(10).collect()
}

/// The directory's own name, even if it was given as `.` or through a link.
fn directory_name(dir: &Path) -> String {
    let whole = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    let given = dir.file_name().or(whole.file_name());
    given.map_or_else(|| dir.to_string_lossy().into_owned(), |name| name.to_string_lossy().into_owned())
}

fn hash_recording(meta: &Meta) -> Option<String> {
    if meta.created_unix_ns == 0 {
        return None;
    }
    let mut hash = Sha256::new_with_prefix(meta.created_unix_ns.to_le_bytes());
    hash.update(meta.boot.as_deref().unwrap_or_default());
    Some(short_hex(hash))
}

/// 16 digits of a hash.
fn short_hex(hash: Sha256) -> String {
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The hash and the size of the log; without a log, those of the index of the tables.
fn hash_log(archive: &Archive) -> Result<(String, u64)> {
    let dir = archive.dir();
    let logs = [archive::log::path(dir), archive::runs::path(dir)];
    let log = logs.into_iter().find(|log| log.is_file());
    let from = log.clone().unwrap_or_else(|| archive::tables::Index::path(dir));
    let failed = |source| Error::Io { action: "read", path: from.clone(), source };
    let mut file = archive::own_file::open(&from).map_err(failed)?;
    // Two empty recordings must have different identities.
    let mut hash = Sha256::new_with_prefix(archive.meta().created_unix_ns.to_le_bytes());
    let (mut bytes, mut size) = (vec![0; 1 << 20], 0);
    loop {
        match file.read(&mut bytes).map_err(failed)? {
            0 => break,
            n => {
                hash.update(&bytes[..n]);
                size += n as u64;
            }
        }
    }
    Ok((short_hex(hash), if log.is_some() { size } else { 0 }))
}

/// The name in a directory `device=NAME` on the path to the archive, as in Hive's layout; the nearest.
fn device_in_path(dir: &Path) -> Option<String> {
    let whole = std::path::absolute(dir).unwrap_or_else(|_| PathBuf::from(dir));
    let named = |part: Component<'_>| match part {
        Component::Normal(name) => {
            name.to_str()?.strip_prefix("device=").filter(|name| !name.is_empty()).map(String::from)
        }
        _ => None,
    };
    whole.components().rev().find_map(named)
}

fn device_by_model(facts: &[FactRow]) -> String {
    let fact = |name: &str| {
        let value = facts.iter().find(|fact| fact.name == name).and_then(|fact| fact.value.as_deref());
        value.map(str::trim).filter(|value| !value.is_empty())
    };
    match (fact("device.vendor"), fact("device.model")) {
        (Some(vendor), Some(model)) if model.starts_with(vendor) => model.to_string(),
        (Some(vendor), Some(model)) => format!("{vendor} {model}"),
        (one, other) => one.or(other).unwrap_or("unknown").to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::{ArchiveKind, TablesWriter};

    fn fact(name: &str, value: &str) -> FactRow {
        let text = |text: &str| text.to_string();
        FactRow {
            name: text(name),
            value: Some(text(value)),
            unknown: None,
            unit: None,
            source: text("x"),
            varies: text("device"),
        }
    }

    fn make_archive(dir: &Path, log: &str) -> Archive {
        make_archive_at(DAY_NS + 5, dir, log)
    }

    fn make_archive_at(unix_ns: u64, dir: &Path, log: &str) -> Archive {
        let meta = Meta::new(ArchiveKind::Bench, unix_ns, vec!["x".into()]);
        let archive = Archive::create(dir, &meta, false).unwrap();
        std::fs::write(archive::runs::path(dir), log).unwrap();
        let mut tables = TablesWriter::create(dir).unwrap();
        tables.push(&fact("device.model", "Pad 3")).unwrap();
        tables.finish().unwrap();
        archive
    }

    #[test]
    fn copy_has_the_same_run_and_another_log_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str, log: &str| {
            Identity::from_archive(&make_archive(&directory.path().join(name), log), None).unwrap()
        };
        let (a, copy, other) = (of("a.fathom", "1\n"), of("b.fathom", "1\n"), of("c.fathom", "2\n"));
        assert_eq!((&a.run, a.log_bytes), (&copy.run, 2));
        assert_ne!(a.run, other.run);
        assert_eq!((a.archive.as_str(), copy.archive.as_str()), ("a.fathom", "b.fathom"));
        assert_eq!((a.date().as_str(), a.device.as_str()), ("1970-01-02", "Pad 3"));
    }

    /// Copied in part, as by an interrupted `cp`: the tables are whole, and would count in addition to those of the whole one.
    #[test]
    fn log_other_than_that_of_the_tables_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (n, (log, has)) in
            [("123\n", "12"), ("123\n", ""), ("123\n", "124\n"), ("123\n", "123\n4\n")].into_iter().enumerate()
        {
            let archive = make_archive(&directory.path().join(format!("{n}.fathom")), log);
            std::fs::write(archive::runs::path(archive.dir()), has).unwrap();
            let error = Identity::from_archive(&archive, None).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{has:?}: {error}");
        }
    }

    #[test]
    fn states_of_one_recording_share_its_identity() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str, unix_ns, log| {
            Identity::from_archive(&make_archive_at(unix_ns, &directory.path().join(name), log), None)
                .unwrap()
                .recording
        };
        assert_eq!(of("whole.fathom", 7, "12"), of("half.fathom", 7, "1"));
        assert_ne!(of("other.fathom", 8, "12"), of("again.fathom", 7, "12"));
        assert_eq!(of("unknown.fathom", 0, "12"), None);
    }

    #[test]
    fn time_and_day_agree_where_signed_numbers_end() {
        let directory = tempfile::tempdir().unwrap();
        for (at, (unix_ns, date)) in
            [(0, "1970-01-01"), (DAY_NS, "1970-01-02"), (i64::MAX as u64, "2262-04-11"), (u64::MAX, "2262-04-11")]
                .into_iter()
                .enumerate()
        {
            let archive = make_archive_at(unix_ns, &directory.path().join(format!("{at}.fathom")), "1\n");
            let identity = Identity::from_archive(&archive, None).unwrap();
            assert_eq!(identity.date(), date);
            let row = crate::row::archives_row(archive.meta(), &identity);
            assert!(row.contains(&model::table::Cell::I64(unix_ns.min(i64::MAX as u64).cast_signed())), "{row:?}");
        }
    }

    #[test]
    fn device_is_named_by_the_user_then_directory_then_model() {
        let directory = tempfile::tempdir().unwrap();
        let parent = directory.path().join("device=shelf-7");
        std::fs::create_dir(&parent).unwrap();
        let archive = make_archive(&parent.join("a.fathom"), "1\n");
        assert_eq!(Identity::from_archive(&archive, Some("mine")).unwrap().device, "mine");
        assert_eq!(Identity::from_archive(&archive, None).unwrap().device, "shelf-7");
        assert_eq!(device_by_model(&[fact("device.vendor", "Acme"), fact("device.model", "Pad")]), "Acme Pad");
        assert_eq!(device_by_model(&[fact("device.vendor", "Acme"), fact("device.model", "Acme Pad")]), "Acme Pad");
        assert_eq!(device_by_model(&[]), "unknown");
    }
}
