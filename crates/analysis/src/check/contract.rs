//! The contract as its file has it: TOML, to be read and reviewed like code.

use super::observe::{Counted, Counts, Observed};
use model::counted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The version of the format.
pub const VERSION: u32 = 1;

/// Counted by tracing.
pub const BPF: &str = "BPF";
/// Counted by the kernel for each process.
pub const PROC: &str = "/proc/PID/io";

/// What a program asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// [`VERSION`].
    pub version: u32,
    /// The command.
    pub command: Vec<String>,
    /// Runs before each run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// So many runs were recorded.
    pub runs: u64,
    /// How it was counted: [`BPF`], or [`PROC`] where there is only `proc`.
    pub counted_by: String,
    /// Of the whole process tree, without tracing.
    #[serde(default, skip_serializing_if = "Section::is_empty")]
    pub proc: Section,
    /// Outside of statements.
    #[serde(default, skip_serializing_if = "Section::is_empty")]
    pub program: Section,
    /// Of statements, by their text.
    #[serde(default, rename = "statement", skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<Statement>,
}

/// A statement's part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// Its text, without literals.
    pub text: String,
    /// Its counts.
    #[serde(flatten)]
    pub counts: Section,
}

/// Counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// The same in every run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exact: Counts,
    /// Least and most, where the runs differed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub varied: BTreeMap<String, [u64; 2]>,
    /// Least and most of what the device was asked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub device: BTreeMap<String, [u64; 2]>,
}

/// Why a file is no contract.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not TOML, or not of this form.
    #[error("{0}")]
    Form(#[from] toml::de::Error),
    /// Of another version.
    #[error("it has version {0}, and this Fathom reads version {VERSION}: record it again")]
    Version(u32),
}

impl Section {
    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.varied.is_empty() && self.device.is_empty()
    }

    /// What several runs have in common.
    fn learn(runs: &[Option<&Counted>]) -> Self {
        let mut learnt = Self::default();
        let empty = Counted::default();
        let runs: Vec<&Counted> = runs.iter().map(|run| run.unwrap_or(&empty)).collect();
        let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.calls.keys()).collect();
        for name in names {
            let values = || runs.iter().map(|run| run.calls.get(name).copied().unwrap_or(0));
            let (least, most) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
            if least == most {
                learnt.exact.insert(name.clone(), most);
            } else {
                learnt.varied.insert(name.clone(), [least, most]);
            }
        }
        let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.device.keys()).collect();
        for name in names {
            let values = || runs.iter().map(|run| run.device.get(name).copied().unwrap_or(0.0).round() as u64);
            let ends = [values().min().unwrap_or(0), values().max().unwrap_or(0)];
            if ends[1] > 0 {
                learnt.device.insert(name.clone(), ends);
            }
        }
        learnt
    }

    /// A count as it is expected: its middle, where it varied.
    pub(super) fn count(&self, name: &str) -> u64 {
        let varied = || self.varied.get(name).map(|[least, most]| least.midpoint(*most));
        self.exact.get(name).copied().or_else(varied).unwrap_or(0)
    }
}

impl Contract {
    /// What runs have in common; of those by `/proc` their counts alone.
    pub fn learn(command: Vec<String>, prepare: Option<String>, traced: &[Observed], untraced: &[Counted]) -> Self {
        let texts: BTreeSet<&String> = traced.iter().flat_map(|run| run.statements.keys()).collect();
        let of = |text: &String| Statement {
            text: text.clone(),
            counts: Section::learn(&traced.iter().map(|run| run.statements.get(text)).collect::<Vec<_>>()),
        };
        Self {
            version: VERSION,
            command,
            prepare,
            runs: traced.len().max(untraced.len()) as u64,
            counted_by: if traced.is_empty() { PROC } else { BPF }.into(),
            proc: Section::learn(&untraced.iter().map(Some).collect::<Vec<_>>()),
            program: Section::learn(&traced.iter().map(|run| Some(&run.program)).collect::<Vec<_>>()),
            statements: texts.into_iter().map(of).collect(),
        }
    }

    /// The file's text.
    ///
    /// # Errors
    /// It cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        Ok(format!("{HEAD}{}", toml::to_string(self)?))
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        match toml::from_str::<Version>(text)?.version {
            VERSION => Ok(toml::from_str(text)?),
            other => Err(Unreadable::Version(other)),
        }
    }

    /// How much it holds, for people.
    pub fn sentence(&self) -> String {
        let (statements, counts) = self.size();
        let varied = match self.varied() {
            0 => String::new(),
            n => format!(", {n} that varied"),
        };
        format!("{}{varied}, of {}", counted(counts, "exact count"), counted(statements, "statement"))
    }

    /// Statements that have something to count, and their number of counts.
    pub fn size(&self) -> (usize, usize) {
        let of = |s: &Section| s.exact.len();
        let counts = self.statements.iter().map(|s| of(&s.counts)).sum::<usize>() + of(&self.program) + of(&self.proc);
        (self.statements.len(), counts)
    }

    /// Counts that varied between the runs.
    pub fn varied(&self) -> usize {
        let of = |s: &Section| s.varied.len();
        self.statements.iter().map(|s| of(&s.counts)).sum::<usize>() + of(&self.program) + of(&self.proc)
    }
}

const HEAD: &str = "\
# What this command asks of files and disk: `fathom check` compares a run with it, `fathom check record` makes it.
# exact: the same in every run, so any other number is a difference. varied: [least, most] of the runs; beyond that by
# more than they differ is a difference. device: [least, most]; only clearly more is a difference.
# Of the program's own files; those of the system are not counted.
";
