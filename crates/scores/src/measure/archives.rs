//! Selection of benchmarks to compare: which archives, and which two values.

use crate::comparability::Rules;
use crate::compare::{self, BenchComparison};
use crate::measure::error::IoContext as _;
use crate::measure::{Error, Open, Result};
use crate::results::Bench;
use archive::{Archive, ArchiveKind};
use model::text::ShownPath as _;
use std::path::{Path, PathBuf};

/// Loads the benchmark in an archive.
///
/// # Errors
/// The archive cannot be opened, or is not a benchmark.
pub fn load(path: &Path, open: Open<'_>) -> Result<Bench> {
    let name = path.to_string_lossy();
    if !path.exists() && name.parse::<device::remote::DeviceAddress>().is_ok() {
        return Err(Error::Usage(format!(
            "{name} is a device, and no archive: `fathom bench run WORKLOAD --device local,{name} -o both` measures both \
             and puts an archive of each into the directory; compare those"
        )));
    }
    let archive = open(path).map_err(Error::Open)?;
    let kind = archive.meta().kind;
    match kind {
        ArchiveKind::Bench => Ok(Bench::load(&archive, &path.to_string_lossy())?),
        ArchiveKind::Net => Err(Error::OtherKind { archive: path.into(), kind, instead: "`fathom report` shows it" }),
        ArchiveKind::Trace => Err(Error::OtherKind { archive: path.into(), kind, instead: "`fathom show` shows it" }),
    }
}

/// Opens the recording in an archive; `of_bench` names the equivalent command for a benchmark.
///
/// # Errors
/// The archive cannot be opened, or is not a recording.
pub fn open_recording(path: &Path, of_bench: &'static str, open: Open<'_>) -> Result<Archive> {
    let archive = open(path).map_err(Error::Open)?;
    let kind = archive.meta().kind;
    let instead = match kind {
        ArchiveKind::Trace => return Ok(archive),
        ArchiveKind::Bench => of_bench,
        ArchiveKind::Net => "`fathom show` shows what limited it",
    };
    Err(Error::NoRecording { archive: path.into(), kind, instead })
}

/// Returns the given archives, and the benchmarks in the given directories, in order; recordings there are skipped.
///
/// # Errors
/// A directory cannot be read, or contains no benchmark.
pub fn expand_directories(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        if Archive::open(path).is_ok() || !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).doing(format!("reading {}", path.shown()))?;
        let mut found: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_benchmark(path)).collect();
        if found.is_empty() {
            return Err(Error::NoBenchmark(path.clone()));
        }
        found.sort();
        all.extend(found);
    }
    Ok(all)
}

fn is_benchmark(path: &Path) -> bool {
    Archive::open(path).is_ok_and(|archive| archive.meta().kind == ArchiveKind::Bench)
}

/// Compares two benchmarks, two values of a parameter in both (`by`: `NAME=VALUE,VALUE`), or those of one benchmark (`NAME`, `NAME=VALUE`).
///
/// # Errors
/// `by` names something that does not exist, or is invalid for this number of benchmarks.
pub fn compare_benchmarks(a: &Bench, b: Option<&Bench>, by: Option<&str>, rules: &Rules) -> Result<BenchComparison> {
    let wrong = |why: crate::Error| Error::Usage(why.to_string());
    match (b, by.map(|by| (by, by.split_once('=')))) {
        (Some(b), None) => Ok(compare::compare_archives(a, b, rules)),
        (Some(b), Some((by, values))) => {
            let Some((name, (of_a, of_b))) = values.and_then(|(name, values)| Some((name, values.split_once(',')?)))
            else {
                return Err(Error::Usage(format!(
                    "--by {by}: with two archives, give two values to compare, such as mode=jvm-tiered,art-jit"
                )));
            };
            compare::compare_across(a, b, name, [of_a, of_b], rules).map_err(wrong)
        }
        (None, Some((by, values))) => {
            let (name, base) = values.map_or((by, None), |(name, base)| (name, Some(base)));
            compare::compare_within(a, name, base, rules).map_err(wrong)
        }
        (None, None) => Err(Error::NothingToCompare),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::Meta;

    #[test]
    fn directory_stands_for_its_benchmarks_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, kind| {
            Archive::create(&directory.path().join(name), &Meta::new(kind, 1, vec![]), false).unwrap();
        };
        let path = |name: &str| directory.path().join(name);
        assert!(matches!(expand_directories(&[directory.path().into()]), Err(Error::NoBenchmark(_))));
        make("b.fathom", ArchiveKind::Bench);
        make("a.fathom", ArchiveKind::Bench);
        make("t.fathom", ArchiveKind::Trace);
        std::fs::write(path("note"), "").unwrap();
        assert_eq!(expand_directories(&[directory.path().into()]).unwrap(), [path("a.fathom"), path("b.fathom")]);
        // Archives given by name are checked when they are opened.
        assert_eq!(expand_directories(&[path("t.fathom"), path("no")]).unwrap(), [path("t.fathom"), path("no")]);
    }
}
