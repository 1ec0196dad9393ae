//! The design as read from its file (TOML), checked as a whole before anything runs.

use crate::Error;
use crate::suite::{Better, ExtraScore, Score, Sizing};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// A comparison to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// Name, such as `insert-delete`.
    pub name: String,
    /// The question that it answers, as a sentence.
    pub question: String,
    /// The metric compared; if a replicate prints it more than once, the median counts.
    pub metric: String,
    /// Direction of the metric. A design's file must state it: 104 ms that became 134 are no gain. `None` in designs that were
    /// stored before this was required, and in those of a workload, whose score has it.
    #[serde(default)]
    pub better: Option<Better>,
    /// The cell with which the others are compared; a design from a file has one, a workload of the suite has none.
    pub baseline: Option<String>,
    /// Number of measured blocks.
    pub blocks: u64,
    /// Number of warm-up blocks before them.
    #[serde(default = "one")]
    pub warmup: u64,
    /// Seed of the order and of the intervals.
    pub seed: u64,
    /// A replicate that takes longer is killed and counts as failed.
    #[serde(default = "two_minutes")]
    pub timeout_s: u64,
    /// Lists of words that a cell's argv includes as `@name`.
    #[serde(default)]
    pub words: BTreeMap<String, Vec<String>>,
    /// The disk to which `{disk}` and `{device}` refer.
    pub disk: Option<DiskRequest>,
    #[serde(rename = "cell")]
    pub cells: Vec<Cell>,
    /// For a workload of the suite: what is estimated, and when to stop.
    #[serde(default)]
    pub plan: Option<Plan>,
    /// The absolute path of the design file's directory: `{design}`. Not stored in the file; set by whoever reads it.
    #[serde(default, rename = "folder", alias = "directory")]
    pub directory: Option<PathBuf>,
}

/// How a design of the suite is run and what is estimated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is estimated.
    pub score: Score,
    #[serde(default)]
    pub also: Vec<ExtraScore>,
    /// Half-width of every cell's interval at which the run ends, as a fraction of the estimate.
    pub precision: f64,
    /// No block is started that would end later, even if there are fewer than requested by then.
    pub budget: Duration,
    /// Whether the design's number of blocks is exact, not a minimum.
    pub exactly: bool,
    /// Whether it is a quick run.
    pub quick: bool,
    /// How the inner count is determined.
    pub sizing: Option<Sizing>,
    /// Figures of the papers that it reproduces.
    pub figures: Vec<String>,
}

/// Values for the placeholders of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fill {
    /// Variables by name.
    pub variables: BTreeMap<String, String>,
    /// Lists of words by name.
    pub words: BTreeMap<String, Vec<String>>,
}

fn one() -> u64 {
    1
}

fn two_minutes() -> u64 {
    120
}

/// A disk made for the design.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskRequest {
    /// Its kind as known to the maker, such as `loop-ram-ext4`.
    pub kind: String,
    pub size_mib: u64,
    /// How often it is recreated.
    #[serde(default)]
    pub fresh: DiskLifetime,
}

/// How often a disk is recreated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskLifetime {
    /// For each replicate: none finds what another left.
    #[default]
    Replicate,
    /// For each block.
    Block,
    /// Once.
    Run,
}

impl DiskLifetime {
    pub fn name(self) -> &'static str {
        match self {
            Self::Replicate => "replicate",
            Self::Block => "block",
            Self::Run => "run",
        }
    }
}

/// One of the things compared.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Name, unique in the design.
    pub name: String,
    /// What it is and what it measures, for the table.
    #[serde(default)]
    pub about: String,
    /// Its factors, for programs that read the results.
    #[serde(default)]
    pub factors: BTreeMap<String, String>,
    /// The command. `{name}` is replaced by a variable, a word `@name` by a list of words.
    #[serde(default)]
    pub argv: Vec<String>,
    /// The cell whose command this one repeats: an A/A arm.
    pub same_as: Option<String>,
    /// Programs that it needs on this machine.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Commands run once before the first block; if one fails, the cell is absent.
    #[serde(default)]
    pub setup: Vec<Vec<String>>,
    /// A command that runs alongside each replicate: started before it, ended by SIGINT after it.
    #[serde(default)]
    pub background: Vec<String>,
    /// How long the background command needs until it takes effect.
    #[serde(default = "half_a_second")]
    pub background_settle_ms: u64,
    /// The target for its ratio, for the table.
    pub goal: Option<f64>,
    /// Maximum deviation from the baseline, percent, for the table: an independent tool that does the same is expected to agree.
    pub within_percent: Option<f64>,
    /// The known cause of a deviation from the baseline, reported if the deviation is larger than that.
    #[serde(default)]
    pub because: String,
    /// Values for the command's placeholders in addition to the design's words.
    #[serde(default)]
    pub fill: Fill,
    /// The same for the process recorded by `--why`.
    #[serde(default)]
    pub why: Option<Fill>,
    /// The directory on the storage under test.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// The metric, if it is not the design's.
    #[serde(default)]
    pub metric: Option<String>,
}

fn half_a_second() -> u64 {
    500
}

impl Design {
    /// Parses and checks a design. `name` is the file's name, for errors.
    ///
    /// # Errors
    /// [`Error::Design`] with the line or the name that is wrong.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let wrong = |what: String| Error::Design { name: name.into(), what };
        let mut design: Self = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        design.check().map_err(wrong)?;
        let commands: BTreeMap<String, Cell> = design.cells.iter().map(|c| (c.name.clone(), c.clone())).collect();
        for cell in &mut design.cells {
            if let Some(original) = cell.same_as.as_ref().and_then(|name| commands.get(name)) {
                let (name, about, same_as) = (cell.name.clone(), cell.about.clone(), cell.same_as.clone());
                *cell = Cell {
                    name,
                    about,
                    same_as,
                    goal: None,
                    within_percent: None,
                    because: String::new(),
                    ..original.clone()
                };
            }
        }
        Ok(design)
    }

    /// Returns the direction of the score.
    pub fn better(&self) -> Option<Better> {
        self.plan.as_ref().map_or(self.better, |plan| plan.score.better())
    }

    /// The metric of a cell.
    pub fn metric<'a>(&'a self, cell: &'a Cell) -> &'a str {
        cell.metric.as_deref().unwrap_or(&self.metric)
    }

    fn check(&self) -> Result<(), String> {
        // These come from a workload's factors, and are stored in archives.
        let ours = |c: &Cell| c.fill != Fill::default() || c.why.is_some() || c.dir.is_some() || c.metric.is_some();
        if self.plan.is_some() || self.cells.iter().any(ours) {
            return Err("a design file may not set plan, fill, why, dir or metric of a cell".into());
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = self.cells.iter().find(|c| !names.insert(&c.name)) {
            return Err(format!("duplicate cell {:?}", twice.name));
        }
        match &self.baseline {
            None => return Err("it has no baseline".into()),
            Some(baseline) if !names.contains(baseline) => {
                return Err(format!("the baseline {baseline:?} is not a cell"));
            }
            Some(_) => {}
        }
        if self.better.is_none() {
            return Err(format!(
                "{:?} has no direction: set better = \"higher\" (a rate) or \"lower\" (a time)",
                self.metric
            ));
        }
        if self.blocks == 0 || self.timeout_s == 0 {
            return Err("blocks and timeout_s must be at least 1".into());
        }
        for cell in &self.cells {
            match &cell.same_as {
                Some(original) => {
                    let original = self.cells.iter().find(|c| c.name == *original);
                    if original.is_none_or(|o| o.same_as.is_some() || o.name == cell.name) {
                        return Err(format!("cell {:?}: same_as must name a cell with a command", cell.name));
                    }
                    if !cell.argv.is_empty() {
                        return Err(format!("cell {:?} has both argv and same_as", cell.name));
                    }
                }
                None if cell.argv.is_empty() => return Err(format!("cell {:?} has no argv", cell.name)),
                None => {}
            }
            if cell.within_percent.is_some_and(|percent| !(percent > 0.0 && percent < 100.0)) {
                return Err(format!("cell {:?}: within_percent must lie between 0 and 100", cell.name));
            }
            if !cell.because.is_empty() && cell.within_percent.is_none() {
                return Err(format!("cell {:?}: because needs within_percent", cell.name));
            }
            for word in cell.argv.iter().chain(&cell.background).chain(cell.setup.iter().flatten()) {
                if let Some(list) = word.strip_prefix('@').filter(|list| !self.words.contains_key(*list)) {
                    return Err(format!("cell {:?}: no [words] {list:?}", cell.name));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL_DESIGN: &str = r#"
        name = "small"
        question = "Is it?"
        metric = "x"
        better = "higher"
        baseline = "a"
        blocks = 2
        seed = 1
        [words]
        load = ["work", "{scratch}"]
        [[cell]]
        name = "a"
        argv = ["@load"]
        needs = ["sh"]
        goal = 0.5
        [[cell]]
        name = "a again"
        same_as = "a"
    "#;

    #[test]
    fn same_as_cell_has_the_command_of_the_original() {
        let design = Design::parse("small.toml", SMALL_DESIGN).unwrap();
        assert_eq!(design.cells[1].argv, ["@load"]);
        assert_eq!(design.cells[1].needs, ["sh"]);
        assert_eq!((design.cells[1].name.as_str(), design.cells[1].goal), ("a again", None));
        assert_eq!((design.warmup, design.timeout_s), (1, 120));
    }

    #[test]
    fn invalid_designs_are_refused_with_a_reason() {
        for (from, to, part) in [
            ("baseline = \"a\"", "baseline = \"b\"", "\"b\" is not a cell"),
            ("baseline = \"a\"", "", "no baseline"),
            ("better = \"higher\"", "", "\"x\" has no direction"),
            ("better = \"higher\"", "better = \"more\"", "more"),
            ("same_as = \"a\"", "same_as = \"a again\"", "same_as must name"),
            ("same_as = \"a\"", "goal = 1.0", "has no argv"),
            ("goal = 0.5", "within_percent = 0", "between 0 and 100"),
            ("goal = 0.5", "because = \"?\"", "needs within_percent"),
            ("[\"@load\"]", "[\"@laod\"]", "\"laod\""),
            ("\"a again\"", "\"a\"", "duplicate cell"),
            ("seed = 1", "sede = 1", "sede"),
            ("blocks = 2", "blocks = 0", "at least 1"),
        ] {
            let error = Design::parse("small.toml", &SMALL_DESIGN.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("small.toml"), "{error}");
        }
    }
}
