//! The designs that come with the program, and what a word names: one of them, or a file.

use crate::{Design, Workload};
use std::io;
use std::path::Path;

/// Why a word names nothing that can be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such workload or sweep.
    #[error("unknown {what} {word:?}; expected one of {names}, or a file: DESIGN.toml")]
    Unknown {
        /// What it would be.
        what: &'static str,
        /// What was asked for.
        word: String,
        /// What there is.
        names: String,
    },
    /// The file.
    #[error("{tried} {word}: {error}")]
    Io {
        /// What was done.
        tried: &'static str,
        /// The file.
        word: String,
        /// Why not.
        error: io::Error,
    },
    /// What is in it.
    #[error(transparent)]
    Design(#[from] crate::Error),
}

type Result<T> = std::result::Result<T, Error>;

/// The suite, by name: file name and text of each design in `experiments/suite` (see build.rs).
const SUITE: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/suite.rs"));

/// The sweeps of `fathom net sweep`, in `experiments/net`: no part of the suite, since they need root and measure the
/// kernel's TCP rather than the device.
const NET: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/net.rs"));

/// What `bench selftest` runs.
const SELFTEST: (&str, &str) = ("selftest.toml", include_str!("../../../experiments/selftest.toml"));

/// What `pool bench --paper-figures` runs: not in the suite, since it is about many devices, and takes an hour.
const CLUSTER: (&str, &str) = ("cluster.toml", include_str!("../../../experiments/papers/cluster.toml"));

/// The same with nodes on devices: the paper's figures as `papers --device` makes them.
const CLUSTER_DEVICES: (&str, &str) =
    ("cluster-devices.toml", include_str!("../../../experiments/papers/cluster-devices.toml"));

/// What can be run.
pub enum Runnable {
    /// Factors and their values.
    Workload(Workload),
    /// Cells and a baseline.
    Comparison(Design),
}

/// Every workload of the suite.
///
/// # Errors
/// One is wrong, which the tests would show.
pub fn all() -> Result<Vec<Workload>> {
    SUITE.iter().map(|(name, text)| Ok(Workload::parse(name, text)?)).collect()
}

/// Every sweep of a network.
///
/// # Errors
/// One is wrong, which the tests would show.
pub fn sweeps() -> Result<Vec<Workload>> {
    NET.iter().map(|(name, text)| Ok(Workload::parse(name, text)?)).collect()
}

/// The names of all workloads.
///
/// # Errors
/// One is wrong, which the tests would show.
pub fn names() -> Result<Vec<String>> {
    Ok(all()?.into_iter().chain(sweeps()?).map(|w| w.name).collect())
}

/// What `bench selftest` compares with itself.
///
/// # Errors
/// It is wrong, which the tests would show.
pub fn selftest() -> Result<Workload> {
    Ok(Workload::parse(SELFTEST.0, SELFTEST.1)?)
}

/// The sweep of a network of that name, or the design in that file.
///
/// # Errors
/// There is none.
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

/// The workload of that name, or the design in that file.
///
/// # Errors
/// There is none.
pub fn find(word: &str) -> Result<Runnable> {
    if !is_file(word) {
        let (cluster, devices) = (word == "cluster", word == "cluster-devices");
        if cluster || devices {
            let (name, text) = if cluster { CLUSTER } else { CLUSTER_DEVICES };
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
    // Which kind it is shows before anything is checked, so that errors name the right kind.
    let is_comparison = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("cell"));
    Ok(match is_comparison {
        true => {
            // What stands beside the file is found from any folder, also when the run is resumed.
            let whole = Path::new(word).canonicalize().map_err(refused("looking for"))?;
            let folder = whole.parent().map(Path::to_path_buf);
            Runnable::Comparison(Design { folder, ..Design::parse(word, &text)? })
        }
        false => Runnable::Workload(Workload::parse(word, &text)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_design_is_embedded_and_valid() {
        for (folder, ours, parsed) in [("suite", SUITE, all().unwrap()), ("net", NET, sweeps().unwrap())] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(folder);
            let mut files: Vec<String> =
                std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
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
