//! Comparison of any commands, without a file: they are made into a design, with the first as the baseline and the first again
//! under another name, which shows which differences the machine cannot resolve.
//!
//! Each command is run by `fathom workload command`, which prints the wall time and the resources used. Commands are passed to it
//! as values of variables, so that braces in them are literal.

pub mod contract;
pub mod git;
pub mod text;
mod verdict;

pub use verdict::verdict;

use crate::design::{Fill, Plan};
use crate::suite::{Better, Score, ScoreKind};
use crate::{Cell, Design, Error, Results, template};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// The compared metric: the wall time.
pub const WALL_METRIC: &str = "wall";
/// The name of such a design.
pub const DESIGN_NAME: &str = "ab";
/// The least number of blocks: an interval of fewer is worth little.
pub const BLOCKS_MIN: u64 = 10;
/// A command that runs longer than a day is killed.
const TIMEOUT_S: u64 = 86_400;
const BUDGET_UNLIMITED: Duration = Duration::from_secs(1 << 40);

/// A command to be compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// Its name; if empty, the command line.
    pub name: String,
    pub line: String,
    /// The directory in which it runs, if not the current one.
    pub directory: Option<PathBuf>,
    /// Values for the parameters in it.
    pub values: BTreeMap<String, String>,
}

/// A request for a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct AbRequest {
    /// The commands; the first is the baseline.
    pub commands: Vec<Command>,
    /// Command to run before each of them, untimed.
    pub prepare: Option<String>,
    /// Number of warm-up blocks.
    pub warmup: u64,
    /// Exact number of measured blocks, whatever the intervals are.
    pub blocks: Option<u64>,
    /// Time after which no further block is started, once the least number is complete.
    pub budget: Duration,
    /// Half-width of the ratios' intervals at which the run ends.
    pub precision: f64,
    /// Seed of the order.
    pub seed: u64,
}

/// Builds the design of these commands.
///
/// # Errors
/// [`Error::Design`]: there are fewer than two.
pub fn design(request: &AbRequest) -> Result<Design, Error> {
    let wrong = |what: &str| Error::Design { name: DESIGN_NAME.into(), what: what.into() };
    let [first, _, ..] = request.commands.as_slice() else {
        return Err(wrong("at least two commands are needed, each as one word in quotes: -- 'CMD A' 'CMD B'"));
    };
    let mut names = BTreeSet::new();
    let mut name = |command: &Command, suffix: &str| {
        let base = if command.name.is_empty() { &command.line } else { &command.name };
        let numbered = |n: usize| if n == 1 { String::new() } else { format!(" ({n})") };
        let free = (1..).map(|n| format!("{base}{suffix}{}", numbered(n))).find(|name| !names.contains(name));
        let name = free.unwrap_or_default();
        names.insert(name.clone());
        name
    };
    let cell = |name: String, command: &Command| {
        let path =
            command.directory.as_ref().map_or(String::new(), |directory| directory.to_string_lossy().into_owned());
        let variables = [
            ("ab_directory", path),
            ("ab_prepare", substitute_values(request.prepare.as_deref().unwrap_or_default(), &command.values)),
            ("ab_command", substitute_values(&command.line, &command.values)),
        ];
        Cell {
            name,
            factors: command.values.clone(),
            argv: [
                "{fathom}",
                "workload",
                "command",
                "--in",
                "{ab_directory}",
                "--prepare",
                "{ab_prepare}",
                "--",
                "{ab_command}",
            ]
            .map(String::from)
            .to_vec(),
            fill: Fill {
                variables: variables.map(|(name, value)| (name.to_string(), value)).into(),
                words: BTreeMap::new(),
            },
            ..Cell::default()
        }
    };
    let mut cells: Vec<Cell> = request.commands.iter().map(|command| cell(name(command, ""), command)).collect();
    let baseline = cells[0].name.clone();
    cells.push(Cell { same_as: Some(baseline.clone()), ..cell(name(first, " again"), first) });
    Ok(Design {
        name: DESIGN_NAME.into(),
        question: format!("How long does each command run, compared with {baseline}?"),
        metric: WALL_METRIC.into(),
        better: Some(Better::Lower),
        baseline: Some(baseline),
        blocks: request.blocks.unwrap_or(BLOCKS_MIN),
        warmup: request.warmup,
        seed: request.seed,
        timeout_s: TIMEOUT_S,
        words: BTreeMap::new(),
        disk: None,
        cells,
        plan: Some(Plan {
            score: Score {
                of: ScoreKind::Value,
                metric: WALL_METRIC.into(),
                unit: Some("s".into()),
                scale: 1.0,
                better: Some(Better::Lower),
                set_by: None,
            },
            also: Vec::new(),
            precision: request.precision,
            budget: if request.blocks.is_some() { BUDGET_UNLIMITED } else { request.budget },
            exactly: request.blocks.is_some(),
            quick: false,
            sizing: None,
            figures: Vec::new(),
        }),
        directory: None,
    })
}

/// Substitutes the values of parameters in a line; a value is literal, whatever is in it.
pub fn substitute_values(line: &str, values: &BTreeMap<String, String>) -> String {
    template::fill(line, values)
}

/// The command line of a cell.
pub fn command_line(cell: &Cell) -> &str {
    cell.fill.variables.get("ab_command").map_or("", String::as_str)
}

/// Returns the half-widths by which such a run stops: those of the ratios, its actual result. A baseline has none and needs none.
pub fn half_widths(results: &Results) -> Vec<Option<f64>> {
    let of = |c: crate::Comparison| match &results.design.baseline {
        Some(baseline) if *baseline == c.cell => Some(0.0),
        _ => c.ratio.map(|r| (r.high - r.low) / 2.0 / r.value),
    };
    results.comparisons().into_iter().map(of).collect()
}

/// Why a parameter has no values, or is not used by any command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// It is neither a range nor a list.
    #[error("{0:?}: expected whole numbers FROM..TO or FROM..TO..STEP, or VALUE,VALUE, such as 1..8 or 0.5,1,2")]
    Malformed(String),
    /// A range without a value.
    #[error("{0:?}: the first value is above the last")]
    Reversed(String),
    /// More values than anyone would wait for.
    #[error("{0:?}: more than {VALUES_MAX} values")]
    TooMany(String),
    /// No command uses it.
    #[error("--param {0}: no command has {{{0}}} in it")]
    Unused(String),
}

/// Parses the values of a parameter: `1..8`, `1..9..2` (bounds are inclusive), `a,b,c`.
///
/// # Errors
/// It is not a list, or an unlimited one.
pub fn parse_values(text: &str) -> Result<Vec<String>, ParameterError> {
    let wrong = || ParameterError::Malformed(text.into());
    let ends: Vec<&str> = text.split("..").collect();
    if let [_] = ends.as_slice() {
        let values: Vec<String> = text.split(',').map(String::from).collect();
        return if values.iter().any(String::is_empty) { Err(wrong()) } else { Ok(values) };
    }
    let numbers: Vec<i64> = ends.iter().map(|n| n.parse()).collect::<Result<_, _>>().map_err(|_| wrong())?;
    let (from, to, step) = match *numbers.as_slice() {
        [from, to] => (from, to, 1),
        [from, to, step] if step > 0 => (from, to, step),
        _ => return Err(wrong()),
    };
    let step = usize::try_from(step).map_err(|_| wrong())?;
    let all: Vec<String> = (from..=to).step_by(step).take(VALUES_MAX + 1).map(|n| n.to_string()).collect();
    match all.len() {
        0 => Err(ParameterError::Reversed(text.into())),
        n if n > VALUES_MAX => Err(ParameterError::TooMany(text.into())),
        _ => Ok(all),
    }
}

/// Maximum number of values that anyone would wait for.
const VALUES_MAX: usize = 1000;

/// Returns the commands with every combination of values of the parameters that they use. A command that uses none is unchanged.
pub fn combine_parameters(
    commands: &[Command],
    parameters: &[(String, Vec<String>)],
) -> Result<Vec<Command>, ParameterError> {
    for (name, _) in parameters {
        if !commands.iter().any(|c| c.line.contains(&format!("{{{name}}}"))) {
            return Err(ParameterError::Unused(name.clone()));
        }
    }
    let mut all = Vec::new();
    for command in commands {
        let mut made = vec![command.clone()];
        for (name, values) in parameters.iter().filter(|(name, _)| command.line.contains(&format!("{{{name}}}"))) {
            let with = |command: &Command| {
                let value = |value: &String| {
                    let mut command = command.clone();
                    command.values.insert(name.clone(), value.clone());
                    command
                };
                values.iter().map(value).collect::<Vec<_>>()
            };
            made = made.iter().flat_map(with).collect();
        }
        for command in &mut made {
            if !command.values.is_empty() {
                let name = if command.name.is_empty() { &command.line } else { &command.name };
                command.name = substitute_values(name, &command.values);
            }
        }
        all.extend(made);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Command {
        Command { line: line.into(), ..Command::default() }
    }

    fn request(lines: &[&str]) -> AbRequest {
        AbRequest {
            commands: lines.iter().map(|line| command(line)).collect(),
            prepare: Some("sync {N}".into()),
            warmup: 1,
            blocks: None,
            budget: Duration::from_secs(1),
            precision: 0.01,
            seed: 7,
        }
    }

    #[test]
    fn first_command_is_baseline_and_control() {
        let design = design(&request(&["a", "b", "a"])).unwrap();
        let names: Vec<&str> = design.cells.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "a (2)", "a again"]);
        assert_eq!((design.baseline.as_deref(), design.cells[3].same_as.as_deref()), (Some("a"), Some("a")));
        assert_eq!(command_line(&design.cells[3]), "a");
        assert!(super::design(&request(&["a"])).unwrap_err().to_string().contains("two commands"));
    }

    #[test]
    fn value_of_a_parameter_is_literal() {
        let values = [("A", "{B}"), ("B", "{A}")].map(|(name, value)| (name.to_string(), vec![value.to_string()]));
        let all = combine_parameters(&[command("x {A} {B}")], &values).unwrap();
        assert_eq!(substitute_values(&all[0].line, &all[0].values), "x {B} {A}");
        assert_eq!(all[0].name, "x {B} {A}");
    }

    #[test]
    fn parameters_are_combined() {
        assert_eq!(parse_values("1..3").unwrap(), ["1", "2", "3"]);
        assert_eq!(parse_values("1..9..4").unwrap(), ["1", "5", "9"]);
        assert_eq!(parse_values("-O1,-O2").unwrap(), ["-O1", "-O2"]);
        for wrong in ["3..1", "a..b", "1..2..0", "1..2..3..4", "a,,b", "", "0..1000000000"] {
            assert!(parse_values(wrong).is_err(), "{wrong}");
        }
        let two = |name: &str| (name.to_string(), vec!["1".to_string(), "2".into()]);
        let all = combine_parameters(&[command("x {N} {M}"), command("y")], &[two("N"), two("M")]).unwrap();
        let names: Vec<&str> = all.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["x 1 1", "x 1 2", "x 2 1", "x 2 2", ""]);
        assert!(combine_parameters(&[command("x")], &[two("N")]).unwrap_err().to_string().contains("{N}"));
    }
}
