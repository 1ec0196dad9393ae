//! The built-in designs, and resolution of a word to one of them, or to a file.

use crate::{Design, Workload};
use std::io;
use std::path::Path;

/// Why a word does not name anything that can be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such workload or sweep.
    #[error("unknown {what} {word:?}; expected one of {names}, or a file: DESIGN.toml")]
    Unknown { what: &'static str, word: String, names: String },
    /// The file cannot be read.
    #[error("{tried} {word}: {error}")]
    Io { tried: &'static str, word: String, error: io::Error },
    /// The design is invalid.
    #[error(transparent)]
    Design(#[from] crate::Error),
}

type Result<T> = std::result::Result<T, Error>;

/// The suite, by name: file name and text of each design in `experiments/suite` (see build.rs).
const SUITE_DESIGNS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/suite.rs"));

/// The sweeps of `fathom net sweep`, in `experiments/net`: not part of the suite, since they need root and measure
/// the kernel's TCP rather than the device.
const NET_DESIGNS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/net.rs"));

/// The workload of `bench selftest`.
const SELFTEST_DESIGN: (&str, &str) = ("selftest.toml", include_str!("../../../experiments/selftest.toml"));

/// The workload of `pool bench --paper-figures`: not in the suite, since it is about many devices, and takes an hour.
const CLUSTER_DESIGN: (&str, &str) = ("cluster.toml", include_str!("../../../experiments/papers/cluster.toml"));

/// The same with nodes on devices: the paper's figures made by `papers --device`.
const CLUSTER_DEVICES_DESIGN: (&str, &str) =
    ("cluster-devices.toml", include_str!("../../../experiments/papers/cluster-devices.toml"));

/// Something that can be run.
pub enum Runnable {
    /// Factors and their values.
    Workload(Workload),
    /// Cells and a baseline.
    Comparison(Design),
}

/// Returns every workload of the suite.
///
/// # Errors
/// A design is invalid, which the tests would detect.
pub fn all() -> Result<Vec<Workload>> {
    SUITE_DESIGNS.iter().map(|(name, text)| Ok(Workload::parse(name, text)?)).collect()
}

/// Returns every sweep of a network.
///
/// # Errors
/// A design is invalid, which the tests would detect.
pub fn sweeps() -> Result<Vec<Workload>> {
    NET_DESIGNS.iter().map(|(name, text)| Ok(Workload::parse(name, text)?)).collect()
}

/// Returns the names of all workloads.
///
/// # Errors
/// A design is invalid, which the tests would detect.
pub fn names() -> Result<Vec<String>> {
    Ok(all()?.into_iter().chain(sweeps()?).map(|w| w.name).collect())
}

/// Returns the workload that `bench selftest` compares with itself.
pub fn selftest() -> Result<Workload> {
    Ok(Workload::parse(SELFTEST_DESIGN.0, SELFTEST_DESIGN.1)?)
}

/// Finds the sweep of a network of that name, or the design in that file.
pub fn find_sweep(word: &str) -> Result<Runnable> {
    let all = sweeps()?;
    if is_file(word) || all.iter().any(|w| w.name == word) {
        return find(word);
    }
    let names: Vec<&str> = all.iter().map(|w| w.name.as_str()).collect();
    Err(Error::Unknown { what: "sweep", word: word.into(), names: names.join(", ") })
}

fn is_file(word: &str) -> bool {
    word.ends_with(".toml") || word.contains('/')
}

/// Finds the workload of that name, or the design in that file.
pub fn find(word: &str) -> Result<Runnable> {
    if !is_file(word) {
        let (cluster, devices) = (word == "cluster", word == "cluster-devices");
        if cluster || devices {
            let (name, text) = if cluster { CLUSTER_DESIGN } else { CLUSTER_DEVICES_DESIGN };
            return Ok(Runnable::Workload(Workload::parse(name, text)?));
        }
        let all: Vec<Workload> = all()?.into_iter().chain(sweeps()?).collect();
        let names: Vec<String> = all.iter().map(|w| w.name.clone()).collect();
        return match all.into_iter().find(|w| w.name == word) {
            Some(workload) => Ok(Runnable::Workload(workload)),
            None => Err(Error::Unknown { what: "workload", word: word.into(), names: names.join(", ") }),
        };
    }
    let refused = |tried| move |error| Error::Io { tried, word: word.into(), error };
    let text = std::fs::read_to_string(Path::new(word)).map_err(refused("cannot read the design"))?;
    // The kind is determined before anything is checked, so that errors name the right kind.
    let is_comparison = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("cell"));
    if !is_comparison {
        return Ok(Runnable::Workload(Workload::parse(word, &text)?));
    }
    // Files next to the design's file are found from any directory, even when the run is resumed.
    let whole = Path::new(word).canonicalize().map_err(refused("looking for"))?;
    let directory = whole.parent().map(Path::to_path_buf);
    Ok(Runnable::Comparison(Design { directory, ..Design::parse(word, &text)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_design_is_embedded_and_valid() {
        for (directory, ours, parsed) in
            [("suite", SUITE_DESIGNS, all().unwrap()), ("net", NET_DESIGNS, sweeps().unwrap())]
        {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(directory);
            let mut files: Vec<String> =
                std::fs::read_dir(directory).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
            files.sort();
            assert_eq!(files, ours.iter().map(|(name, _)| *name).collect::<Vec<_>>());
            assert_eq!(parsed.len(), files.len());
        }
        selftest().unwrap();
        for name in ["cluster", "cluster-devices"] {
            assert!(matches!(find(name), Ok(Runnable::Workload(w)) if w.name == name));
        }
    }
}
