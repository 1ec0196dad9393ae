//! The scenarios that come with the program; a word names one of them, or a file.

use super::{Error, Scenario};
use std::path::Path;

/// A scenario that comes with the program.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(Entry { name: $name, text: include_str!(concat!("../../scenarios/", $name, ".toml")) }),*]
    };
}

const SHIPPED_SCENARIOS: &[Entry] = shipped![
    "arm64",
    "arm64-mmc",
    "dm-delay-ext4",
    "dm-flakey-errors",
    "loop-ext4",
    "mmc-ext4",
    "mmc-f2fs",
    "nvme-btrfs",
    "nvme-ext4",
    "paper-004-android-x86",
    "paper-004-linux",
    "paper-004-phone",
    "paper-004-phone-f2fs",
    "scsi-debug-ext4",
    "scsi-ext4",
    "scsi-ext4-bfq",
    "scsi-xfs",
    "virtio-ext4",
];

/// Scenarios that are run one after the other and compared in one figure of the papers.
#[derive(Debug, Clone, Copy)]
pub struct Series {
    pub name: &'static str,
    /// Its purpose, in one line.
    pub about: &'static str,
    /// The figure, for `fathom papers`.
    pub figure: &'static str,
    /// The runs: the name of each in the figure, and its scenario with settings.
    pub runs: &'static [(&'static str, &'static str)],
}

const SCENARIO_SERIES: &[Series] = &[Series {
    name: "paper-004",
    about: "Paper 004's three systems side by side: Linux, Android x86 and a phone, in six runs",
    figure: "004/2-4",
    runs: &[
        ("linux", "paper-004-linux"),
        ("linux-truncate", "paper-004-linux,journal_mode=truncate"),
        ("android-x86", "paper-004-android-x86"),
        ("phone", "paper-004-phone"),
        ("phone-truncate", "paper-004-phone,journal_mode=truncate"),
        ("phone-f2fs", "paper-004-phone-f2fs"),
    ],
}];

/// All series, by name.
pub fn series() -> &'static [Series] {
    SCENARIO_SERIES
}

/// Returns the series that `word` names, and the settings after its name.
pub fn find_series(word: &str) -> Option<(&'static Series, Vec<String>)> {
    let (word, settings) = super::value::split_settings(word);
    SCENARIO_SERIES.iter().find(|series| series.name == word).map(|series| (series, settings))
}

/// All scenarios, by name.
pub fn shipped() -> &'static [Entry] {
    SHIPPED_SCENARIOS
}

/// Returns the scenario that `word` names, one that is shipped or a file, with the settings after its name (`scsi-ext4,fs=f2fs`), then
/// `settings`. Its name is returned, too.
///
/// # Errors
/// There is none, the file cannot be read, or its content is wrong.
pub fn find(word: &str, settings: &[String]) -> Result<(String, Scenario), Error> {
    let (word, mut own) = super::value::split_settings(word);
    own.extend_from_slice(settings);
    let settings = &own;
    if let Some(entry) = SHIPPED_SCENARIOS.iter().find(|entry| entry.name == word) {
        return Ok((word.to_string(), Scenario::parse(word, entry.text, settings)?));
    }
    let wrong = |what: String| Error { place: word.to_string(), what };
    let path = Path::new(word);
    if !word.contains('/') && path.extension().is_none_or(|e| e != "toml") {
        if let Some(series) = SCENARIO_SERIES.iter().find(|series| series.name == word) {
            let runs: Vec<&str> = series.runs.iter().map(|(_, scenario)| *scenario).collect();
            return Err(wrong(format!(
                "a series, which only `fathom lab run` runs; expected one of {}",
                runs.join(", ")
            )));
        }
        let names: Vec<&str> = SHIPPED_SCENARIOS.iter().map(|entry| entry.name).collect();
        return Err(wrong(format!("no such scenario; expected one of {}, or a file: FILE.toml", names.join(", "))));
    }
    let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot read it: {e}")))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, Scenario::parse(word, &text, settings)?))
}
