//! Which workloads there are, and what a word of the command line means.

use anyhow::{Context as _, Result, bail};
use experiment::{Design, Workload};
use std::path::Path;

/// The suite, by name: file name and text of each design in `experiments/suite` (see build.rs).
const SUITE: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/suite.rs"));

/// What `bench selftest` runs.
const SELFTEST: (&str, &str) = ("selftest.toml", include_str!("../../../../experiments/selftest.toml"));

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

/// The names of the suite's workloads.
#[cfg(test)]
pub fn names() -> Result<Vec<String>> {
    Ok(all()?.into_iter().map(|w| w.name).collect())
}

pub fn selftest() -> Result<Workload> {
    Ok(Workload::parse(SELFTEST.0, SELFTEST.1)?)
}

/// The workload of that name, or the design in that file.
pub fn find(word: &str) -> Result<Runnable> {
    if !word.ends_with(".toml") && !word.contains('/') {
        let all = all()?;
        let names: Vec<String> = all.iter().map(|w| w.name.clone()).collect();
        return match all.into_iter().find(|w| w.name == word) {
            Some(workload) => Ok(Runnable::Workload(workload)),
            None => bail!("there is no workload {word:?}; there are {}, or give a file: DESIGN.toml", names.join(", ")),
        };
    }
    let text = std::fs::read_to_string(Path::new(word)).with_context(|| format!("reading {word}"))?;
    // Which kind it is shows before anything is checked, so that what is wrong is said of the right kind.
    let is_comparison = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("cell"));
    Ok(match is_comparison {
        true => Runnable::Comparison(Design::parse(word, &text)?),
        false => Runnable::Workload(Workload::parse(word, &text)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_of_the_suite_is_in_the_program_and_sound() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/suite");
        let mut files: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        let ours: Vec<&str> = SUITE.iter().map(|(name, _)| *name).collect();
        assert_eq!(files, ours);
        assert_eq!(all().unwrap().len(), files.len());
        selftest().unwrap();
    }
}
