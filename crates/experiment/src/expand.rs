//! Turns a workload and the user's choices into a design: the cross product of the factors' values.
//!
//! A cell has only the factors that its command uses: a value of one factor may add words that use another (`scans` only
//! if the operation is a scan). Combinations that differ only in unused factors are one cell. So a cell's factors
//! identify it, and two archives agree on which cells are the same by comparing them.

use crate::design::{Cell, Design, Fill, Plan};
use crate::suite::{Factor, Workload};
use crate::{Error, template};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// More cells than anyone would wait for; a typing error.
const CELLS_MAX: usize = 1000;

/// The user's choices; empty ones use the workload's own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Choices {
    /// Values by factor.
    pub factors: BTreeMap<String, Vec<String>>,
    /// Directories on the storage under test: the value of the factor `dir`, and the directory.
    pub dirs: Vec<(String, PathBuf)>,
    /// Whether to use the quick values and effort.
    pub quick: bool,
    /// Exact number of measured blocks, whatever the intervals are.
    pub blocks: Option<u64>,
    /// Seed of the order.
    pub seed: u64,
    /// Time limit for this design.
    pub budget: Option<Duration>,
    /// Half-width of the interval at which the run ends, as a fraction.
    pub precision: Option<f64>,
    /// Needs ([`crate::needs`]) that are not met here: a value with such a need is replaced by its substitute.
    pub unmet: BTreeSet<String>,
}

/// Builds the design of a workload with these choices.
///
/// # Errors
/// [`Error::Design`] for a value that is not allowed, a factor that does not exist, or when nothing is left to run.
pub fn expand(workload: &Workload, choices: &Choices) -> Result<Design, Error> {
    let wrong = |what: String| Error::Design { name: workload.name.clone(), what };
    let chosen = chosen_values(workload, choices).map_err(wrong)?;
    let effort = if choices.quick { workload.quick } else { workload.run };
    let mut cells: Vec<Cell> = Vec::new();
    let mut left_out = BTreeSet::new();
    for values in combinations(&chosen) {
        if let Some(skip) = workload.skip.iter().find(|s| {
            s.when.iter().all(|(name, some)| values.get(name.as_str()).is_some_and(|v| some.iter().any(|s| s == v)))
        }) {
            left_out.insert(&skip.because);
            continue;
        }
        let cell = expand_cell(workload, choices, &chosen, &values).map_err(wrong)?;
        if !cells.iter().any(|c| c.factors == cell.factors) {
            cells.push(cell);
        }
        if cells.len() > CELLS_MAX {
            return Err(wrong(format!("these values make more than {CELLS_MAX} cells; choose fewer")));
        }
    }
    if cells.is_empty() {
        let why: Vec<&str> = left_out.into_iter().map(String::as_str).collect();
        return Err(wrong(format!("no cells to run: {}", why.join("; "))));
    }
    Ok(Design {
        name: workload.name.clone(),
        question: workload.question.clone(),
        metric: workload.score.metric.clone(),
        better: workload.score.better(),
        baseline: None,
        blocks: choices.blocks.unwrap_or(effort.blocks),
        warmup: effort.warmup,
        seed: choices.seed,
        timeout_s: workload.timeout_s,
        words: workload.words.clone(),
        disk: None,
        cells,
        plan: Some(Plan {
            score: workload.score.clone(),
            also: workload.also.clone(),
            precision: choices.precision.unwrap_or(effort.precision_percent / 100.0),
            // An explicit number of blocks is run completely.
            budget: choices.budget.unwrap_or(match choices.blocks {
                Some(_) => Duration::from_secs(u64::from(u32::MAX)),
                None => Duration::from_secs(effort.budget_s),
            }),
            exactly: choices.blocks.is_some(),
            quick: choices.quick,
            sizing: workload.sizing.clone(),
            figures: workload.figures.clone(),
        }),
        directory: None,
    })
}

/// The values of each factor, in the workload's order.
fn chosen_values<'a>(workload: &'a Workload, choices: &'a Choices) -> Result<Vec<(&'a Factor, Vec<&'a str>)>, String> {
    for (name, values) in &choices.factors {
        let factor = workload.factor(name).ok_or_else(|| format!("unknown factor {name:?}"))?;
        if factor.directory {
            return Err(format!("factor {name}: give directories with --dir"));
        }
        values.iter().try_for_each(|v| factor.check(v))?;
    }
    let of = |factor: &'a Factor| {
        let values: Vec<&str> = match choices.factors.get(&factor.name) {
            _ if factor.directory && !choices.dirs.is_empty() => choices.dirs.iter().map(|(name, _)| &**name).collect(),
            Some(values) => values.iter().map(String::as_str).collect(),
            None => {
                let mut values: Vec<&str> = Vec::new();
                for value in default_values(factor, choices) {
                    let value = find_substitute(factor, value, choices).map_or(value.as_str(), |(other, _)| other);
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
                values
            }
        };
        (factor, values)
    };
    Ok(workload.factors.iter().map(of).collect())
}

/// The default values of a factor.
fn default_values<'a>(factor: &'a Factor, choices: &Choices) -> &'a [String] {
    if choices.quick && !factor.quick.is_empty() { &factor.quick } else { &factor.default }
}

/// Returns the substitute for a value here, and its unmet need.
fn find_substitute<'a>(factor: &'a Factor, value: &str, choices: &Choices) -> Option<(&'a str, &'a str)> {
    let other = factor.instead.get(value)?;
    let need = factor.needs.get(value)?.iter().find(|need| choices.unmet.contains(*need))?;
    Some((other, need))
}

/// The workload's first cell, twice: the design of `bench selftest`.
pub fn against_itself(workload: &Workload, blocks: u64, seed: u64) -> Result<Design, Error> {
    let choices = Choices { blocks: Some(blocks), seed, ..Choices::default() };
    let mut design = expand(workload, &choices)?;
    design.cells.truncate(1);
    let mut again = design.cells[0].clone();
    again.same_as = Some(design.cells[0].name.clone());
    again.name = format!("{} again", design.cells[0].name);
    design.cells.push(again);
    Ok(design)
}

/// Describes which values are replaced by others; [`expand`] replaces them.
pub fn describe_substitutions(workload: &Workload, choices: &Choices) -> Vec<String> {
    let open = workload.factors.iter().filter(|f| !choices.factors.contains_key(&f.name));
    let substitutions = |factor: &Factor| {
        let substitutions = |value: &String| {
            let (other, need) = find_substitute(factor, value, choices)?;
            let (workload, name) = (&workload.name, &factor.name);
            Some(format!("{workload}: {name}={other} instead of {name}={value}, which needs {need}"))
        };
        default_values(factor, choices).iter().filter_map(substitutions).collect::<Vec<_>>()
    };
    open.flat_map(substitutions).collect()
}

/// Every combination; the last factor varies fastest.
fn combinations<'a>(chosen: &[(&'a Factor, Vec<&'a str>)]) -> impl Iterator<Item = BTreeMap<&'a str, &'a str>> {
    let total = chosen.iter().fold(1_usize, |n, (_, values)| n.saturating_mul(values.len()));
    (0..total).map(|mut at| {
        let pick = |(factor, values): &(&'a Factor, Vec<&'a str>)| {
            let value = values[at % values.len()];
            at /= values.len();
            (factor.name.as_str(), value)
        };
        chosen.iter().rev().map(pick).collect()
    })
}

fn expand_cell(
    workload: &Workload,
    choices: &Choices,
    chosen: &[(&Factor, Vec<&str>)],
    values: &BTreeMap<&str, &str>,
) -> Result<Cell, String> {
    let fill = fill_values(workload, values);
    let used = used_factors(workload, &fill);
    let factors: BTreeMap<String, String> =
        values.iter().filter(|(name, _)| used.contains(**name)).map(|(n, v)| (n.to_string(), v.to_string())).collect();
    // The name contains what differs: from the neighbours, or from the defaults of such a run.
    let differs = |factor: &Factor, all: &[&str]| all.len() > 1 || default_values(factor, choices) != [all[0]];
    let name: Vec<String> = chosen
        .iter()
        .filter(|(factor, all)| used.contains(factor.name.as_str()) && differs(factor, all))
        .map(|(factor, _)| format!("{}={}", factor.name, values[factor.name.as_str()]))
        .collect();
    let needs = workload.factors.iter().filter_map(|f| f.needs.get(*values.get(f.name.as_str())?)).flatten();
    let needs: BTreeSet<&String> = workload.needs.iter().chain(needs).collect();
    let why = workload.why.as_ref().map(|others| {
        let mut values = values.clone();
        values.extend(others.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        self::fill_values(workload, &values)
    });
    let dir = values.get("dir").filter(|_| workload.factor("dir").is_some_and(|f| f.directory));
    let dir = dir.map(|value| {
        let given = choices.dirs.iter().find(|(name, _)| name == value);
        given.map_or_else(|| PathBuf::from(value), |(_, path)| path.clone())
    });
    let metric = template::expand(std::slice::from_ref(&workload.score.metric), &BTreeMap::new(), &fill.variables)?;
    Ok(Cell {
        name: if name.is_empty() { workload.name.clone() } else { name.join(" ") },
        factors,
        argv: workload.argv.clone(),
        needs: needs.into_iter().cloned().collect(),
        fill,
        why,
        dir,
        metric: metric.into_iter().next(),
        ..Cell::default()
    })
}

/// Returns the values as variables, and the lists that they add.
fn fill_values(workload: &Workload, values: &BTreeMap<&str, &str>) -> Fill {
    let list = |f: &Factor| Some((f.name.clone(), f.words.get(*values.get(f.name.as_str())?)?.clone()));
    Fill {
        variables: values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        words: workload.factors.iter().filter_map(list).collect(),
    }
}

/// Returns the factors that a command uses: as a placeholder in it or in an included list, or as such a list.
fn used_factors<'a>(workload: &'a Workload, fill: &'a Fill) -> BTreeSet<&'a str> {
    let mut used = BTreeSet::new();
    let mut visit = |word: &'a str| match word.strip_prefix('@') {
        Some(list) => {
            used.insert(list);
            let words = fill.words.get(list).or_else(|| workload.words.get(list));
            words.into_iter().flatten().for_each(|word| used.extend(template::placeholders(word)));
        }
        None => used.extend(template::placeholders(word)),
    };
    workload.argv.iter().for_each(|word| visit(word));
    let sizing = workload.sizing.iter().flat_map(|s| s.calibrate.iter().chain(&s.fixed));
    sizing.chain([&workload.score.metric]).for_each(|word| visit(word));
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD_TEXT: &str = r#"
        name = "w"
        question = "?"
        argv = ["w", "@op", "--mode={mode}", "--dir={dir}"]
        why = { scans = 1 }
        [score]
        of = "value"
        better = "higher"
        metric = "{op}.rate"
        [run]
        blocks = 10
        precision_percent = 2
        budget_s = 60
        [quick]
        blocks = 5
        precision_percent = 5
        budget_s = 5
        [[factor]]
        name = "op"
        about = ""
        default = ["insert", "select"]
        values = ["insert", "select"]
        needs = { select = ["sh"] }
        words = { insert = ["-i"], select = ["-s", "--scans={scans}"] }
        [[factor]]
        name = "scans"
        about = ""
        default = 10
        quick = 2
        range = [1, 100]
        [[factor]]
        name = "mode"
        about = ""
        default = "x"
        values = ["x", "y", "z"]
        [[factor]]
        name = "dir"
        about = ""
        default = "."
        folder = true
        [[skip]]
        when = { op = "insert", mode = ["y"] }
        because = "y inserts nothing"
    "#;

    fn design(choices: &Choices) -> Result<Design, Error> {
        expand(&Workload::parse("w.toml", WORKLOAD_TEXT).unwrap(), choices)
    }

    fn choose(factors: &[(&str, &[&str])]) -> Choices {
        let list = |v: &[&str]| v.iter().map(ToString::to_string).collect();
        Choices { factors: factors.iter().map(|(n, v)| (n.to_string(), list(v))).collect(), ..Choices::default() }
    }

    #[test]
    fn cells_are_the_product_of_the_used_factors() {
        let design = design(&choose(&[("mode", &["x", "y"]), ("scans", &["3", "4"])])).unwrap();
        let names: Vec<&str> = design.cells.iter().map(|c| c.name.as_str()).collect();
        // The INSERTs do not use scans, so there is only one of them; with mode y they are left out.
        assert_eq!(
            names,
            [
                "op=insert mode=x",
                "op=select scans=3 mode=x",
                "op=select scans=3 mode=y",
                "op=select scans=4 mode=x",
                "op=select scans=4 mode=y"
            ]
        );
        assert!(!design.cells[0].factors.contains_key("scans") && design.cells[0].factors["dir"] == ".");
        assert_eq!((&*design.cells[0].needs, &*design.cells[1].needs), (&[][..], &["sh".to_string()][..]));
        assert_eq!(design.cells[1].metric.as_deref(), Some("select.rate"));
        let plan = design.plan.unwrap();
        assert_eq!((design.blocks, plan.precision, plan.budget.as_secs(), plan.exactly), (10, 0.02, 60, false));
    }

    #[test]
    fn quick_uses_quick_values_and_directories_have_names() {
        let mut choices = choose(&[("op", &["select"])]);
        choices.quick = true;
        choices.dirs = vec![("internal".into(), "/a".into()), ("card".into(), "/b".into())];
        let design = design(&choices).unwrap();
        assert_eq!((design.cells.len(), design.blocks), (2, 5));
        assert_eq!(design.cells[1].dir.as_deref(), Some(std::path::Path::new("/b")));
        assert_eq!((&*design.cells[1].factors["dir"], &*design.cells[1].factors["scans"]), ("card", "2"));
        assert_eq!(design.cells[1].name, "op=select dir=card");
        assert_eq!(design.cells[0].why.as_ref().unwrap().variables["scans"], "1");
    }

    #[test]
    fn default_values_that_cannot_run_are_replaced() {
        let text = WORKLOAD_TEXT.replace(
            "values = [\"insert\", \"select\"]",
            "values = [\"insert\", \"select\"]\n instead = { select = \"insert\" }",
        );
        let workload = Workload::parse("w.toml", &text).unwrap();
        let mut choices = Choices { unmet: BTreeSet::from(["sh".into()]), ..Choices::default() };
        let cells = expand(&workload, &choices).unwrap().cells;
        // The INSERTs exist already, so no cell is added.
        assert_eq!(cells.iter().map(|c| c.factors["op"].as_str()).collect::<Vec<_>>(), ["insert"]);
        assert_eq!(describe_substitutions(&workload, &choices), ["w: op=insert instead of op=select, which needs sh"]);
        choices.factors.insert("op".into(), vec!["select".into()]);
        assert_eq!(expand(&workload, &choices).unwrap().cells[0].factors["op"], "select");
        assert!(describe_substitutions(&workload, &choices).is_empty());
    }

    #[test]
    fn invalid_values_are_reported() {
        for (factors, parts) in [
            (&[("mode", &["w"][..])][..], &["factor mode", "\"w\"", "x, y, z"][..]),
            (&[("scans", &["0"])], &["factor scans", "1 to 100"]),
            (&[("speed", &["1"])], &["\"speed\""]),
            (&[("dir", &["/a"])], &["--dir"]),
            (&[("op", &["insert"]), ("mode", &["y"])], &["no cells to run", "y inserts nothing"]),
        ] {
            let error = design(&choose(factors)).unwrap_err().to_string();
            assert!(parts.iter().all(|p| error.contains(p)), "{error}");
        }
    }
}
