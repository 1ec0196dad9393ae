//! Which workloads there are, and what a word of the command line means.

use crate::Usage;
use anyhow::{Context as _, Result};
use experiment::{Design, Workload};
use std::path::Path;

/// The suite, by name: file name and text of each design in `experiments/suite` (see build.rs).
const SUITE: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/suite.rs"));

/// The sweeps of `fathom net sweep`, in `experiments/net`: no part of the suite, since they need root and measure the
/// kernel's TCP rather than the device.
const NET: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/net.rs"));

/// What `bench selftest` runs.
const SELFTEST: (&str, &str) = ("selftest.toml", include_str!("../../../../experiments/selftest.toml"));

/// What `pool bench --paper-figures` runs: not in the suite, since it is about many devices, and takes an hour.
const CLUSTER: (&str, &str) = ("cluster.toml", include_str!("../../../../experiments/papers/cluster.toml"));

/// What can be run.
pub enum Runnable {
    /// Factors and their values.
    Workload(Workload),
    /// Cells and a baseline.
    Comparison(Design),
}

/// Every workload of the suite.
pub fn all() -> Result<Vec<Workload>> {
    SUITE.iter().map(|(name, text)| Ok(Workload::parse(name, text)?)).collect()
}

/// Every sweep of a network.
pub fn sweeps() -> Result<Vec<Workload>> {
    NET.iter().map(|(name, text)| Ok(Workload::parse(name, text)?)).collect()
}

/// The names of all workloads.
#[cfg(test)]
pub fn names() -> Result<Vec<String>> {
    Ok(all()?.into_iter().chain(sweeps()?).map(|w| w.name).collect())
}

pub fn selftest() -> Result<Workload> {
    Ok(Workload::parse(SELFTEST.0, SELFTEST.1)?)
}

/// The sweep of a network of that name, or the design in that file.
pub fn find_sweep(word: &str) -> Result<Runnable> {
    let all = sweeps()?;
    if is_file(word) || all.iter().any(|w| w.name == word) {
        return find(word);
    }
    let names: Vec<&str> = all.iter().map(|w| w.name.as_str()).collect();
    Err(Usage(format!("there is no sweep {word:?}; there are {}, or give a file: DESIGN.toml", names.join(", ")))
        .into())
}

fn is_file(word: &str) -> bool {
    word.ends_with(".toml") || word.contains('/')
}

/// The workload of that name, or the design in that file.
pub fn find(word: &str) -> Result<Runnable> {
    if !is_file(word) {
        if word == "cluster" {
            return Ok(Runnable::Workload(Workload::parse(CLUSTER.0, CLUSTER.1)?));
        }
        let all: Vec<Workload> = all()?.into_iter().chain(sweeps()?).collect();
        let names: Vec<String> = all.iter().map(|w| w.name.clone()).collect();
        return match all.into_iter().find(|w| w.name == word) {
            Some(workload) => Ok(Runnable::Workload(workload)),
            None => {
                let names = names.join(", ");
                Err(Usage(format!("there is no workload {word:?}; there are {names}, or give a file: DESIGN.toml"))
                    .into())
            }
        };
    }
    let text = std::fs::read_to_string(Path::new(word)).with_context(|| format!("cannot read the design {word}"))?;
    // Which kind it is shows before anything is checked, so that what is wrong is said of the right kind.
    let is_comparison = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("cell"));
    Ok(match is_comparison {
        true => {
            // What stands beside the file is found from any folder, also when the run is resumed.
            let whole = Path::new(word).canonicalize().with_context(|| format!("looking for {word}"))?;
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
    fn every_design_of_the_suite_is_in_the_program_and_sound() {
        for (folder, ours, parsed) in [("suite", SUITE, all().unwrap()), ("net", NET, sweeps().unwrap())] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(folder);
            let mut files: Vec<String> =
                std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
            files.sort();
            assert_eq!(files, ours.iter().map(|(name, _)| *name).collect::<Vec<_>>());
            assert_eq!(parsed.len(), files.len());
        }
        selftest().unwrap();
        assert!(matches!(find("cluster"), Ok(Runnable::Workload(_))));
    }
}
