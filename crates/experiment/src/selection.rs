//! Turns selected workloads and designs, with parameters for all of them, into the designs of one run.

use crate::catalog::Runnable;
use crate::{Choices, Design, Workload, describe_substitutions, expand, needs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Default)]
pub struct Selection {
    /// Workloads and designs, in the order in which they are run.
    pub runnable: Vec<Runnable>,
    /// Whether they were named explicitly, or are all that exist.
    pub named: bool,
    /// Values by `FACTOR` or `WORKLOAD.FACTOR`.
    pub parameters: Vec<(String, Vec<String>)>,
    /// Directories on storage under test: a name and the directory.
    pub dirs: Vec<(String, PathBuf)>,
    /// Whether to use the quick values and effort.
    pub quick: bool,
    /// Number of measured blocks.
    pub blocks: Option<u64>,
    /// Total time limit.
    pub budget: Option<Duration>,
    /// Half-width of the interval at which a run ends, as a fraction.
    pub precision: Option<f64>,
    /// Seed of the order.
    pub seed: Option<u64>,
}

/// Why the selection cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No workload has the parameter.
    #[error(
        "-p {name}: no selected workload has this parameter; `fathom bench list{}` lists the parameters",
        workloads.iter().map(|w| format!(" {w}")).collect::<String>()
    )]
    Parameter {
        /// The parameter as given.
        name: String,
        workloads: Vec<String>,
    },
    /// None of them uses files on storage under test.
    #[error("--dir: {} {} no files on storage under test; omit it, or select a workload that has", .0.join(", "), has_or_have(.0))]
    NoFiles(Vec<String>),
    /// A name is used twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// A workload's values are invalid.
    #[error(transparent)]
    Design(#[from] crate::Error),
}

fn has_or_have(names: &[String]) -> &'static str {
    if names.len() == 1 { "has" } else { "have" }
}

/// Returns the designs, and notes on the selection: values that were replaced by others since they cannot run here.
///
/// # Errors
/// A parameter or a directory that applies to nothing, or the same design twice.
pub fn designs(selection: &Selection, new_seed: u64) -> Result<(Vec<Design>, Vec<String>), Error> {
    let workloads: Vec<&Workload> = selection
        .runnable
        .iter()
        .filter_map(|r| match r {
            Runnable::Workload(workload) => Some(workload),
            Runnable::Comparison(_) => None,
        })
        .collect();
    for (name, _) in &selection.parameters {
        if !workloads.iter().any(|w| factor_of_parameter(name, w).is_some()) {
            let workloads = workloads.iter().map(|w| w.name.clone()).collect();
            return Err(Error::Parameter { name: name.clone(), workloads });
        }
    }
    let mut notes = without_files(selection)?;
    let own = |w: &Workload| Duration::from_secs(if selection.quick { w.quick.budget_s } else { w.run.budget_s });
    let sum: Duration = workloads.iter().map(|w| own(w)).sum();
    let mut designs: Vec<Design> = Vec::new();
    for one in &selection.runnable {
        let design = match one {
            Runnable::Workload(workload) => {
                let share = own(workload).as_secs_f64() / sum.as_secs_f64();
                let choices = workload_choices(selection, workload, share, selection.seed.unwrap_or(new_seed));
                notes.extend(describe_substitutions(workload, &choices));
                expand(workload, &choices)?
            }
            Runnable::Comparison(design) => {
                let mut design = design.clone();
                design.blocks = selection.blocks.unwrap_or(design.blocks);
                design.seed = selection.seed.unwrap_or(design.seed);
                design
            }
        };
        if designs.iter().any(|d| d.name == design.name) {
            return Err(Error::Twice(design.name));
        }
        designs.push(design);
    }
    Ok((designs, notes))
}

/// Returns the selected ones to which `--dir` does not apply.
fn without_files(selection: &Selection) -> Result<Vec<String>, Error> {
    let fileless: Vec<String> = selection
        .runnable
        .iter()
        .filter_map(|one| match one {
            Runnable::Workload(workload) if workload.factors.iter().any(|f| f.directory) => None,
            Runnable::Workload(workload) => Some(workload.name.clone()),
            Runnable::Comparison(design) => Some(design.name.clone()),
        })
        .collect();
    if selection.dirs.is_empty() || fileless.is_empty() || !selection.named {
        return Ok(Vec::new());
    }
    if fileless.len() == selection.runnable.len() {
        return Err(Error::NoFiles(fileless));
    }
    let (names, has) = (fileless.join(", "), has_or_have(&fileless));
    Ok(vec![format!("--dir does not apply to {names}, which {has} no files on storage under test")])
}

fn workload_choices(selection: &Selection, workload: &Workload, share: f64, seed: u64) -> Choices {
    let mut factors = BTreeMap::new();
    for (name, values) in &selection.parameters {
        if let Some(factor) = factor_of_parameter(name, workload) {
            factors.insert(factor.to_string(), values.clone());
        }
    }
    Choices {
        factors,
        dirs: selection.dirs.clone(),
        quick: selection.quick,
        blocks: selection.blocks,
        seed,
        budget: selection.budget.map(|all| all.mul_f64(share)),
        precision: selection.precision,
        unmet: unmet_needs(workload, &selection.dirs),
    }
}

/// Returns the needs of a workload's factor values that this machine, or one of the directories, does not meet.
fn unmet_needs(workload: &Workload, dirs: &[(String, PathBuf)]) -> BTreeSet<String> {
    let here = [PathBuf::from(".")];
    let directories: Vec<&PathBuf> =
        if dirs.is_empty() { here.iter().collect() } else { dirs.iter().map(|d| &d.1).collect() };
    let needs: BTreeSet<&String> = workload.factors.iter().flat_map(|f| f.needs.values().flatten()).collect();
    let lacking = |need: &&&String| directories.iter().any(|directory| needs::unmet(need, directory).is_some());
    needs.iter().filter(lacking).map(|need| need.to_string()).collect()
}

/// Returns the factor of `workload` to which a parameter `FACTOR` or `WORKLOAD.FACTOR` refers.
fn factor_of_parameter<'a>(name: &'a str, workload: &Workload) -> Option<&'a str> {
    let factor = match name.split_once('.') {
        Some((only, factor)) if only == workload.name => factor,
        Some(_) => return None,
        None => name,
    };
    workload.factor(factor).map(|_| factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    fn selected(words: &[&str]) -> Selection {
        let runnable = words.iter().map(|word| catalog::find(word).unwrap()).collect();
        Selection { runnable, named: true, ..Selection::default() }
    }

    fn refused(selection: &Selection) -> String {
        designs(selection, 1).unwrap_err().to_string()
    }

    #[test]
    fn parameter_of_no_selected_workload_is_refused() {
        let mut selection = selected(&["linpack", "himeno"]);
        selection.parameters = vec![("sqlite.mode".into(), vec!["wal".into()])];
        let why = refused(&selection);
        assert!(why.contains("-p sqlite.mode") && why.contains("bench list linpack himeno"), "{why}");
    }

    #[test]
    fn directory_for_workloads_without_files_is_refused_or_noted() {
        let dirs = vec![("here".to_string(), PathBuf::from("."))];
        let only = Selection { dirs: dirs.clone(), ..selected(&["linpack"]) };
        assert!(refused(&only).contains("linpack has no files"), "{}", refused(&only));
        let both = Selection { dirs, ..selected(&["linpack", "seq"]) };
        let (made, notes) = designs(&both, 1).unwrap();
        assert_eq!(made.len(), 2);
        assert!(notes.iter().any(|note| note.contains("does not apply to linpack")), "{notes:?}");
    }

    #[test]
    fn total_budget_is_divided_in_proportion_and_names_are_unique() {
        let selection = Selection { budget: Some(Duration::from_secs(100)), ..selected(&["linpack", "himeno"]) };
        let (made, _) = designs(&selection, 7).unwrap();
        let budgets: Vec<Duration> = made.iter().map(|d| d.plan.as_ref().unwrap().budget).collect();
        assert!((budgets.iter().sum::<Duration>().as_secs_f64() - 100.0).abs() < 0.01, "{budgets:?}");
        assert!(made.iter().all(|d| d.seed == 7));
        assert_eq!(refused(&selected(&["linpack", "linpack"])), "linpack is given twice");
    }
}
