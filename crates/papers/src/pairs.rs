//! Measurement of two devices with the same cells: SQLite's settings on each, and how to get the cells of both.

use device::remote::DeviceAddress;
use model::Environment;
use scores::decomposition::Setting;
use scores::measure::error::IoContext as _;
use scores::measure::{Error, Result};
use std::path::{Path, PathBuf};

/// SQLite's settings in which devices differ, in the order in which they are changed.
pub const SQLITE_FACTORS: [&str; 2] = ["journal_mode", "synchronous"];

/// Parses a device, unless this is the path of an archive: `host` or a device's address.
pub fn parse_device(name: &Path) -> Option<DeviceAddress> {
    match name.to_str()? {
        _ if name.exists() => None,
        "host" => Some(DeviceAddress::Local),
        text => text.parse().ok(),
    }
}

/// Checks that each of `requested` is a setting whose effect can be separated.
pub fn check_factors(requested: &[(String, String)]) -> Result<()> {
    match requested.iter().find(|(name, _)| !SQLITE_FACTORS.contains(&name.as_str())) {
        Some((wrong, _)) => Err(Error::Usage(format!(
            "{wrong} is not a setting whose effect can be separated: {}",
            SQLITE_FACTORS.join(", ")
        ))),
        None => Ok(()),
    }
}

/// Returns SQLite's settings on both: as requested, from the device's facts, or the system's default.
pub fn settings(requested: [&[(String, String)]; 2], facts: [&Environment; 2]) -> Vec<Setting> {
    let of = |factor: &str| {
        let [(a, why_a), (b, why_b)] = [0, 1].map(|side| factor_value(factor, requested[side], facts[side]));
        Setting { factor: factor.into(), a, b, source: format!("A: {why_a}; B: {why_b}") }
    };
    SQLITE_FACTORS.into_iter().map(of).collect()
}

/// Returns a factor's value on a device, and its source.
fn factor_value(factor: &str, requested: &[(String, String)], facts: &Environment) -> (String, String) {
    if let Some((_, value)) = requested.iter().find(|(name, _)| name == factor) {
        return (value.clone(), "as requested".into());
    }
    let fact = facts.get(&format!("sqlite.{factor}"));
    if let Some(value) = fact.and_then(|f| f.value.as_deref()).filter(|v| !v.is_empty()) {
        return (value.to_lowercase(), fact.map_or_else(String::new, |f| f.source.clone()));
    }
    match (factor, facts.contains_key("os.sdk")) {
        // frameworks/base/core/res/res/values/config.xml: db_default_journal_mode, db_default_sync_mode.
        ("journal_mode", true) => ("truncate".into(), "assumed: AOSP's db_default_journal_mode".into()),
        (_, true) => ("full".into(), "assumed: AOSP's db_default_sync_mode".into()),
        ("journal_mode", false) => ("delete".into(), "SQLite's default".into()),
        (_, false) => ("full".into(), "SQLite's default".into()),
    }
}

/// Returns the default journal modes of a host's system and of a device's, and their sources.
pub fn journal_modes(device: &Environment) -> [(String, String); 2] {
    let [(host, _), (there, why)] =
        [&Environment::new(), device].map(|facts| factor_value(SQLITE_FACTORS[0], &[], facts));
    [(host, "SQLite's default".into()), (there, why)]
}

/// A directory on each of two devices, under one name: cells are compared by it.
#[derive(Debug)]
pub struct Directory {
    pub name: String,
    /// Its path on the host.
    pub host_path: String,
    /// Its path on the device.
    pub device_path: String,
}

/// Parses a directory of `--dir`: its name and its path.
pub fn split_name(dir: &str) -> (&str, &str) {
    dir.split_once('=').unwrap_or((dir, dir))
}

/// Returns the directories of `--dir`, each with its counterpart from `--dir-here` or the current directory.
///
/// # Errors
/// A directory here has no counterpart there, or does not exist.
pub fn directories(dir: &[String], dir_here: &[String]) -> Result<Vec<Directory>> {
    if let Some(stray) = dir_here.iter().find(|here| !dir.iter().any(|there| split_name(there).0 == split_name(here).0))
    {
        return Err(Error::Usage(format!("--dir-here {stray}: no --dir of the device has that name")));
    }
    let of = |there: &String| {
        let (name, there) = split_name(there);
        let here = dir_here.iter().map(|here| split_name(here)).find(|(n, _)| *n == name).map_or(".", |(_, path)| path);
        let here = std::fs::canonicalize(here).doing(format!("--dir-here {here}"))?;
        Ok(Directory { name: name.into(), host_path: here.to_string_lossy().into_owned(), device_path: there.into() })
    };
    dir.iter().map(of).collect()
}

/// `fathom bench run` of two devices at the same time.
#[derive(Debug)]
pub struct MeasureBoth<'a> {
    pub devices: [&'a DeviceAddress; 2],
    /// The directory for their archives.
    pub directory: &'a Path,
    /// Builds of this program for other processors.
    pub binaries: &'a [PathBuf],
    /// Directories of a device, with their counterparts on the host; without any each device uses its default one.
    pub directories: &'a [Directory],
    /// Exact number of blocks.
    pub blocks: Option<u64>,
    /// Whether it is a smoke test.
    pub quick: bool,
    /// Measure at once, even if the devices are busy.
    pub no_wait: bool,
    /// Benchmarks as Android bytecode.
    pub dex_jar: Option<&'a Path>,
    /// Arguments for parameters placed before those of the user, which override them.
    pub modes: Vec<String>,
    /// The user's parameters.
    pub parameters: &'a [(String, Vec<String>)],
    /// Arguments for parameters placed after those of the user, which make the cells comparable.
    pub cells: Vec<String>,
    /// The workloads to run.
    pub workloads: Vec<String>,
}

impl MeasureBoth<'_> {
    /// Returns its arguments after the program's name.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = ["bench", "run", "--quiet"].map(String::from).to_vec();
        words.push(format!("--device={},{}", self.devices[0], self.devices[1]));
        words.push(format!("--output={}", self.directory.to_string_lossy()));
        // The same order on both.
        words.push(format!("--seed={}", std::process::id()));
        words.extend(self.binaries.iter().map(|binary| format!("--binary={}", binary.to_string_lossy())));
        for Directory { name, host_path: here, device_path: there } in self.directories {
            words.extend([format!("--dir={name}={there}"), format!("--dir-here={name}={here}")]);
        }
        words.extend(self.blocks.map(|n| format!("--blocks={n}")));
        words.extend(self.quick.then(|| "--quick".into()));
        words.extend(self.no_wait.then(|| "--no-wait".into()));
        words.extend(self.dex_jar.map(|jar| format!("--dex-jar={}", jar.to_string_lossy())));
        words.extend(self.modes.iter().cloned());
        words.extend(self.parameters.iter().map(|(name, values)| format!("--param={name}={}", values.join(","))));
        words.extend(self.cells.iter().cloned());
        words.push("--".into());
        words.extend(self.workloads.iter().cloned());
        words
    }
}

/// Returns the arguments of `fathom bench run` that select SQLite's cells of both devices.
pub fn cell_arguments(settings: &[Setting]) -> Vec<String> {
    let word = |s: &Setting| {
        let values = if s.a == s.b { s.a.clone() } else { format!("{},{}", s.a, s.b) };
        format!("--param=sqlite.{}={values}", s.factor)
    };
    settings.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Fact;

    #[test]
    fn setting_is_requested_or_known_or_assumed() {
        let asked = [("synchronous".to_owned(), "off".to_owned())];
        let mut phone = Environment::new();
        let fact = |value: &str| Fact {
            value: Some(value.into()),
            unknown: None,
            unit: None,
            source: "getprop".into(),
            varies: "boot".into(),
        };
        phone.insert("os.sdk".into(), fact("35"));
        let of = |facts: &Environment| {
            let all = settings([&[], &asked], [facts, &Environment::new()]);
            all.into_iter().map(|s| (s.a, s.b, s.source)).collect::<Vec<_>>()
        };
        let [(mode, pc_mode, _), (sync, pc_sync, why)] = &of(&phone)[..] else { panic!("two settings") };
        assert_eq!([mode, pc_mode, sync, pc_sync], ["truncate", "delete", "full", "off"]);
        assert!(why.contains("A: assumed") && why.contains("B: as requested"), "{why}");
        phone.insert("sqlite.journal_mode".into(), fact("WAL"));
        assert_eq!(of(&phone)[0].0, "wal");
        assert!(check_factors(&asked).is_ok() && check_factors(&[("page_size".into(), "1".into())]).is_err());
    }

    #[test]
    fn cells_have_each_value_once() {
        let all = settings([&[], &[]], [&Environment::new(), &Environment::new()]);
        assert_eq!(cell_arguments(&all), ["--param=sqlite.journal_mode=delete", "--param=sqlite.synchronous=full"]);
        let other = [("journal_mode".to_owned(), "wal".to_owned())];
        let all = settings([&[], &other], [&Environment::new(), &Environment::new()]);
        assert_eq!(cell_arguments(&all)[0], "--param=sqlite.journal_mode=delete,wal");
    }
}
