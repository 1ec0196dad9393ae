//! The contract as stored in its file: TOML, to be read and reviewed like code.

use super::observe::{Counts, ObservedRun, SectionCounts};
use super::temporary;
use model::counted;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The version of the format.
pub const VERSION: u32 = 1;

/// Counted by tracing.
pub const BPF: &str = "BPF";
/// Counted by stopping the program at its calls, without root: no statements, and no commands of the device.
pub const PTRACE: &str = "ptrace";
/// Counted by the kernel for each process.
pub const PROC: &str = "/proc/PID/io";

/// The system calls and I/O of a program.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// [`VERSION`].
    pub version: u32,
    /// The command.
    pub command: Vec<String>,
    /// Command to run before each run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// Number of recorded runs.
    pub runs: u64,
    /// How it was counted: [`BPF`], [`PTRACE`], or [`PROC`] if there is only `proc`.
    pub counted_by: String,
    /// Counts of the whole process tree, without tracing.
    #[serde(default, skip_serializing_if = "Section::is_empty")]
    pub proc: Section,
    /// Calls of the whole program, in statements and outside; absent in contracts of older versions. A statement that is a call on a file
    /// (`fsync out/tmpq3x1`) has another name in each run if its file has: only here is it known that there are twelve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Section>,
    /// Counts outside of statements.
    #[serde(default, skip_serializing_if = "Section::is_empty")]
    pub program: Section,
    /// Counts of statements, by their text.
    #[serde(default, rename = "statement", skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<Statement>,
}

/// The part of one statement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    /// Counts that were the same in every run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exact: Counts,
    /// Minimum and maximum, where the runs differed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub varied: BTreeMap<String, [u64; 2]>,
    /// Minimum and maximum of the commands sent to the device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub device: BTreeMap<String, [u64; 2]>,
    /// Tables of other names, which a contract must not have.
    #[serde(flatten, skip_serializing)]
    other: BTreeMap<String, serde::de::IgnoredAny>,
}

/// Why a file is not a contract.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    /// Not TOML, or of another structure.
    #[error("{0}")]
    Form(#[from] toml::de::Error),
    /// Of another version.
    #[error("it has version {0}, and this Fathom reads version {VERSION}: record it again")]
    Version(u32),
    /// Counted in an unknown way: nothing would be traced.
    #[error("counted_by is {0:?}: expected {BPF:?}, {PTRACE:?} or {PROC:?}")]
    CountedBy(String),
    /// A table of counts that none is compared with.
    #[error("[{0}]: expected exact, varied or device")]
    Table(String),
    /// A range in which no count can be.
    #[error("{0}: [{1}, {2}] is no range: the first number must not be above the second")]
    Range(String, u64, u64),
}

impl Section {
    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.varied.is_empty() && self.device.is_empty()
    }

    /// Returns what several runs have in common.
    fn learn(runs: &[Option<&SectionCounts>]) -> Self {
        let mut learnt = Self::default();
        let empty = SectionCounts::default();
        let runs: Vec<&SectionCounts> = runs.iter().map(|run| run.unwrap_or(&empty)).collect();
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

    /// Returns the expected value of a count: the midpoint, where it varied.
    pub(super) fn count(&self, name: &str) -> u64 {
        let varied = || self.varied.get(name).map(|[least, most]| least.midpoint(*most));
        self.exact.get(name).copied().or_else(varied).unwrap_or(0)
    }
}

impl Contract {
    /// Builds a contract of what runs have in common; of those counted by `/proc` only the counts. `counted_by` is how the others were.
    pub fn learn(
        command: Vec<String>,
        prepare: Option<String>,
        counted_by: &str,
        traced: &[ObservedRun],
        untraced: &[SectionCounts],
    ) -> Self {
        let lasting = temporary::lasting_names(traced);
        let traced: Vec<ObservedRun> =
            traced.iter().map(|run| temporary::merge(run, |text, _| lasting.contains(text))).collect();
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
            counted_by: if traced.is_empty() { PROC } else { counted_by }.into(),
            proc: Section::learn(&untraced.iter().map(Some).collect::<Vec<_>>()),
            total: (!traced.is_empty()).then(|| {
                let totals: Vec<SectionCounts> = traced.iter().map(ObservedRun::total).collect();
                Section::learn(&totals.iter().map(Some).collect::<Vec<_>>())
            }),
            program: Section::learn(&traced.iter().map(|run| Some(&run.program)).collect::<Vec<_>>()),
            statements: texts.into_iter().map(of).collect(),
        }
    }

    /// Returns the file's text.
    ///
    /// # Errors
    /// It cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        Ok(format!("{FILE_HEADER}# {}\n{}", self.notices(), toml::to_string(self)?))
    }

    /// Says whether an added sync would be noticed, as [`super::proof`] shows for a contract that is traced.
    pub fn notices(&self) -> &'static str {
        if self.counted_by != PROC {
            "would notice one added fsync: yes"
        } else {
            "would notice one added fsync: no, since nothing was traced"
        }
    }

    /// Parses the file's text.
    ///
    /// # Errors
    /// See [`ContractError`].
    pub fn parse(text: &str) -> Result<Self, ContractError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        match toml::from_str::<Version>(text)?.version {
            VERSION => toml::from_str::<Self>(text)?.checked(),
            other => Err(ContractError::Version(other)),
        }
    }

    /// Refuses what would make every run conform: such a contract was edited by mistake.
    fn checked(self) -> Result<Self, ContractError> {
        if ![BPF, PTRACE, PROC].contains(&self.counted_by.as_str()) {
            return Err(ContractError::CountedBy(self.counted_by));
        }
        for section in self.statements.iter().map(|s| &s.counts).chain([&self.proc, &self.program]).chain(&self.total) {
            if let Some(name) = section.other.keys().next() {
                return Err(ContractError::Table(name.clone()));
            }
            if let Some((name, [least, most])) =
                section.varied.iter().chain(&section.device).find(|(_, [least, most])| least > most)
            {
                return Err(ContractError::Range(name.clone(), *least, *most));
            }
        }
        Ok(self)
    }

    /// Describes the size of the contract in a sentence.
    pub fn sentence(&self) -> String {
        let (statements, counts) = self.size();
        let varied = match self.varied() {
            0 => String::new(),
            n => format!(", {n} that varied"),
        };
        format!("{}{varied}, of {}", counted(counts, "exact count"), counted(statements, "statement"))
    }

    /// Returns the number of statements with counts, and the number of counts.
    pub fn size(&self) -> (usize, usize) {
        let of = |s: &Section| s.exact.len();
        let counts = self.statements.iter().map(|s| of(&s.counts)).sum::<usize>() + of(&self.program) + of(&self.proc);
        (self.statements.len(), counts)
    }

    /// Returns the number of counts that varied between the runs.
    pub fn varied(&self) -> usize {
        let of = |s: &Section| s.varied.len();
        self.statements.iter().map(|s| of(&s.counts)).sum::<usize>() + of(&self.program) + of(&self.proc)
    }
}

const FILE_HEADER: &str = "\
# What this command asks of files and disk: `fathom check` compares a run with it, `fathom check record` makes it.
# exact: the same in every run, so any other number is a difference. varied: [least, most] of the runs; beyond that by
# more than they differ is a difference. device: [least, most]; only clearly more is a difference.
# Of the program's own files; those of the system are not counted. total: all calls, in statements and outside.
";
