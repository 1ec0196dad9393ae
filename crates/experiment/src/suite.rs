//! A workload of the suite as read from its file: a command with placeholders, and **factors** that fill them.
//!
//! A [`Design`](crate::Design) of the peers lists its cells one by one. A workload lists what can be varied instead:
//! each factor with its default (the paper's value where there is one), a smaller one for quick runs, and all allowed
//! values. [`crate::expand`] makes the cross product of the chosen values, which is a design like any other.
//!
//! Everything is checked when the file is read: a placeholder that no factor fills, a default that is not allowed, a
//! list of words for a value that does not exist. An error names the file and the factor, before anything runs.

use crate::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Variables that exist in addition to the factors.
pub const BUILT_IN_VARIABLES: &[&str] = &["fathom", "scratch", "shared", "dir", "kept", "inner", "block_number"];

/// A workload with its factors.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Name, such as `sqlite`, as used on the command line.
    pub name: String,
    /// The question that it answers, as a sentence.
    pub question: String,
    /// The command. `{factor}` is replaced by a value, a word `@list` by a list of words.
    pub argv: Vec<String>,
    /// Figures of the papers that it reproduces, such as `000/9`.
    #[serde(default)]
    pub figures: Vec<String>,
    /// What every cell needs ([`crate::needs`]).
    #[serde(default)]
    pub needs: Vec<String>,
    /// Lists of words that a command includes as `@name`.
    #[serde(default)]
    pub words: BTreeMap<String, Vec<String>>,
    /// A process that takes longer is killed and counts as failed.
    #[serde(default = "ten_minutes")]
    pub timeout_s: u64,
    /// What is estimated; by default a rate.
    #[serde(default)]
    pub score: Score,
    #[serde(default)]
    pub also: Vec<ExtraScore>,
    /// How long it is run.
    pub run: Effort,
    /// How long it is run with `--quick`.
    pub quick: Effort,
    /// How the inner count of an iteration is determined.
    pub sizing: Option<Sizing>,
    /// Set if `--why` may record a process of it; the values are factors that then take another value.
    #[serde(default, deserialize_with = "maybe_words")]
    pub why: Option<BTreeMap<String, String>>,
    /// What can be varied.
    #[serde(rename = "factor", default)]
    pub factors: Vec<Factor>,
    /// Combinations that make no sense.
    #[serde(default)]
    pub skip: Vec<Skip>,
}

fn ten_minutes() -> u64 {
    600
}

/// The score of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// How it is computed from the metric.
    #[serde(default)]
    pub of: ScoreKind,
    /// The metric; may have placeholders.
    #[serde(default = "iteration")]
    pub metric: String,
    /// Unit of the score. By default the unit of `work` per second; for `time` and `value` the metric's own.
    pub unit: Option<String>,
    /// Factor by which the score is multiplied, such as 1e-6 for MB/s.
    #[serde(default = "once")]
    pub scale: f64,
    /// Direction. By default higher for a rate and lower for a time; for a value the workload must state it.
    #[serde(default)]
    pub better: Option<Better>,
    /// A factor that, if it is not 0, sets this score: the rate at which an open loop sends. Then the score is reported but never
    /// compared, since it would be the requested one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_by: Option<String>,
}

/// A further score of every cell: another metric that its processes print, such as a latency percentile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtraScore {
    pub metric: String,
    /// Unit of the score; by default the metric's own.
    #[serde(default)]
    pub unit: Option<String>,
    /// Factor by which the score is multiplied, such as 1e-3 for us from ns.
    #[serde(default = "once")]
    pub scale: f64,
    /// Direction.
    pub better: Better,
}

impl Default for Score {
    fn default() -> Self {
        Self { of: ScoreKind::Rate, metric: iteration(), unit: None, scale: once(), better: None, set_by: None }
    }
}

impl Score {
    /// Returns the direction, from the file or implied by how the score is computed; `None` for a value without one.
    pub fn better(&self) -> Option<Better> {
        self.better.or(match self.of {
            ScoreKind::Rate => Some(Better::Higher),
            ScoreKind::Time => Some(Better::Lower),
            ScoreKind::Value => None,
        })
    }
}

fn iteration() -> String {
    "iteration".into()
}

fn once() -> f64 {
    1.0
}

/// How a score is computed from the metric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScoreKind {
    /// Work in one iteration / mean time of a steady iteration.
    #[default]
    Rate,
    /// Mean time of a steady iteration.
    Time,
    /// The mean of the metric as the process printed it: it is already a score.
    Value,
}

impl ScoreKind {
    /// The name in a design and in the archive.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Time => "time",
            Self::Value => "value",
        }
    }
}

/// Direction of a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

impl Better {
    /// The name in a design and in the archive.
    pub fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

/// The length of a run of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effort {
    /// Minimum number of measured blocks; each has a process of every cell.
    pub blocks: u64,
    /// Number of warm-up blocks before them.
    #[serde(default = "one")]
    pub warmup: u64,
    /// Further blocks are run until every cell's interval has this half-width, in percent of the estimate.
    pub precision_percent: f64,
    /// No further block is started that would end later than this after the first began.
    pub budget_s: u64,
}

fn one() -> u64 {
    1
}

/// How the inner count of an iteration is determined: the process of the warm-up block is started with `calibrate` and
/// prints the mark `inner`, and all later processes of that cell are started with `fixed`. The command includes these
/// as `@sizing`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizing {
    /// Words of the process that determines the count.
    pub calibrate: Vec<String>,
    /// Words of all others; `{inner}` is the count.
    pub fixed: Vec<String>,
}

/// Something that can be varied.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Name: small letters and `_`.
    pub name: String,
    /// Description.
    pub about: String,
    /// Values that are run by default.
    #[serde(deserialize_with = "words")]
    pub default: Vec<String>,
    /// Values that `--quick` runs; if empty, the default ones.
    #[serde(default, deserialize_with = "words")]
    pub quick: Vec<String>,
    /// All allowed values.
    #[serde(default, deserialize_with = "words")]
    pub values: Vec<String>,
    /// Smallest and largest allowed number. Values may have the suffix K, M or G (binary).
    #[serde(default, deserialize_with = "words")]
    pub range: Vec<String>,
    /// Whether any text is allowed.
    #[serde(default)]
    pub free: bool,
    /// Whether values are directories on the storage under test, given by `--dir`. `{dir}` is then a new directory in it for
    /// the replicate, and `{kept}` one that exists as long as the run.
    #[serde(default, alias = "folder")]
    pub directory: bool,
    /// Additional needs of some values, by value.
    #[serde(default)]
    pub needs: BTreeMap<String, Vec<String>>,
    /// The substitute for a value if its needs are not met and the user did not request it explicitly.
    #[serde(default)]
    pub instead: BTreeMap<String, String>,
    /// A list of words for each value: the command includes it as `@NAME`.
    #[serde(default)]
    pub words: BTreeMap<String, Vec<String>>,
}

/// Combinations that are left out: those in which every named factor has one of the named values.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// Values by factor.
    #[serde(deserialize_with = "lists")]
    pub when: BTreeMap<String, Vec<String>>,
    pub because: String,
}

/// A value as in TOML: a design may have `1000` or `"1000"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Number(i64),
    Fraction(f64),
    Truth(bool),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    One(Word),
    Many(Vec<Word>),
}

impl From<Word> for String {
    fn from(word: Word) -> Self {
        match word {
            Word::Text(text) => text,
            Word::Number(n) => n.to_string(),
            Word::Fraction(x) => x.to_string(),
            Word::Truth(yes) => yes.to_string(),
        }
    }
}

impl From<Words> for Vec<String> {
    fn from(words: Words) -> Self {
        match words {
            Words::One(word) => vec![word.into()],
            Words::Many(words) => words.into_iter().map(Into::into).collect(),
        }
    }
}

fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Words::deserialize(from).map(Into::into)
}

fn lists<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let map = BTreeMap::<String, Words>::deserialize(from)?;
    Ok(map.into_iter().map(|(name, words)| (name, words.into())).collect())
}

fn maybe_words<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let map = BTreeMap::<String, Word>::deserialize(from)?;
    Ok(Some(map.into_iter().map(|(name, word)| (name, word.into())).collect()))
}

/// A value that a factor does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("factor {factor}: {value:?} is not allowed; {allowed}")]
pub struct DisallowedValue {
    /// The factor's name.
    pub factor: String,
    pub value: String,
    /// The allowed values, for people.
    pub allowed: String,
}

impl From<DisallowedValue> for String {
    /// Converts to the text for [`Error::Design`].
    fn from(why: DisallowedValue) -> Self {
        why.to_string()
    }
}

impl Factor {
    /// Checks that `value` is allowed.
    pub fn check(&self, value: &str) -> Result<(), DisallowedValue> {
        let allowed = self.free
            || self.directory
            || self.values.iter().any(|v| v == value)
            || self.bounds().is_some_and(|(low, high)| parse_number(value).is_some_and(|n| (low..=high).contains(&n)));
        if allowed {
            return Ok(());
        }
        Err(DisallowedValue { factor: self.name.clone(), value: value.into(), allowed: self.allowed() })
    }

    /// Describes the allowed values, for people.
    pub fn allowed(&self) -> String {
        match (&self.values[..], &self.range[..]) {
            _ if self.directory => "any directory (--dir)".into(),
            _ if self.free => "any text".into(),
            ([], [low, high, ..]) => format!("{low} to {high}"),
            (values, [low, high, ..]) => format!("{}, or {low} to {high}", values.join(", ")),
            (values, _) => values.join(", "),
        }
    }

    fn bounds(&self) -> Option<(u64, u64)> {
        Some((parse_number(self.range.first()?)?, parse_number(self.range.get(1)?)?))
    }
}

/// Parses an integer with an optional binary suffix.
pub fn parse_number(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'K') => (&text[..at], 10),
        (at, 'M') => (&text[..at], 20),
        (at, 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    if digits.starts_with('+') {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    n.checked_shl(shift).filter(|v| v >> shift == n)
}

impl Workload {
    /// Parses and checks a workload. `name` is the file's name, for errors.
    ///
    /// # Errors
    /// [`Error::Design`] with the invalid line or factor.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let wrong = |what: String| Error::Design { name: name.into(), what };
        let workload: Self = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        workload.check().map_err(wrong)?;
        Ok(workload)
    }

    pub fn factor(&self, name: &str) -> Option<&Factor> {
        self.factors.iter().find(|f| f.name == name)
    }

    fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for factor in &self.factors {
            self.check_factor(factor)?;
            if !names.insert(&factor.name) {
                return Err(format!("duplicate factor {:?}", factor.name));
            }
        }
        if self.argv.is_empty() {
            return Err("argv is empty".into());
        }
        for (what, effort) in [("run", &self.run), ("quick", &self.quick)] {
            if effort.blocks == 0 || effort.budget_s == 0 || effort.precision_percent.is_nan() {
                return Err(format!("[{what}]: blocks and budget_s must be at least 1"));
            }
            if effort.precision_percent <= 0.0 || effort.precision_percent >= 100.0 {
                return Err(format!("[{what}]: precision_percent must lie between 0 and 100"));
            }
            if self.sizing.is_some() && effort.warmup == 0 {
                return Err(format!("[{what}]: [sizing] needs a warm-up block, which determines the count"));
            }
        }
        if self.timeout_s == 0 {
            return Err("timeout_s must be at least 1".into());
        }
        if self.score.scale.is_nan() || self.score.scale <= 0.0 {
            return Err("[score]: scale must be above 0".into());
        }
        if let Some(by) = self.score.set_by.as_ref().filter(|by| self.factor(by).is_none()) {
            return Err(format!("[score]: set_by: unknown factor {by:?}"));
        }
        if let Some(also) = self.also.iter().find(|also| also.scale.is_nan() || also.scale <= 0.0) {
            return Err(format!("[[also]] {}: scale must be above 0", also.metric));
        }
        if self.score.better().is_none() {
            return Err(format!(
                "[score]: {} may be a time or a rate; set its direction: better = \"higher\" or \"lower\"",
                self.score.metric
            ));
        }
        let lists: Vec<&Vec<String>> =
            self.words.values().chain(self.factors.iter().flat_map(|f| f.words.values())).collect();
        let sizing = self.sizing.iter().flat_map(|s| s.calibrate.iter().chain(&s.fixed));
        let metric = std::iter::once(&self.score.metric);
        for word in self.argv.iter().chain(lists.into_iter().flatten()).chain(sizing).chain(metric) {
            self.check_word(word)?;
        }
        for (name, value) in self.why.iter().flatten() {
            let factor = self.factor(name).ok_or_else(|| format!("[why]: unknown factor {name:?}"))?;
            factor.check(value).map_err(|why| format!("[why]: {why}"))?;
        }
        for (name, values) in self.skip.iter().flat_map(|s| &s.when) {
            let factor = self.factor(name).ok_or_else(|| format!("[[skip]]: unknown factor {name:?}"))?;
            values.iter().try_for_each(|v| factor.check(v)).map_err(|why| format!("[[skip]]: {why}"))?;
        }
        Ok(())
    }

    fn check_factor(&self, factor: &Factor) -> Result<(), String> {
        let name = &factor.name;
        let sound = |c: u8| c.is_ascii_lowercase() || c == b'_';
        if name.is_empty() || !name.bytes().all(sound) {
            return Err(format!("factor {name:?}: a name consists of lower-case letters and _"));
        }
        if BUILT_IN_VARIABLES.contains(&name.as_str()) && !(factor.directory && name == "dir") || name == "sizing" {
            return Err(format!("factor {name:?}: this name is reserved"));
        }
        if factor.directory && name != "dir" {
            return Err(format!("factor {name:?}: a factor of directories must be named dir"));
        }
        if !factor.range.is_empty() && (factor.range.len() != 2 || factor.bounds().is_none_or(|(l, h)| l > h)) {
            return Err(format!("factor {name:?}: range must be two numbers, the smaller first"));
        }
        if factor.values.is_empty() && factor.range.is_empty() && !factor.free && !factor.directory {
            return Err(format!("factor {name:?}: set what is allowed: values, range, free or directory"));
        }
        if factor.default.is_empty() {
            return Err(format!("factor {name:?}: default has no value"));
        }
        factor.default.iter().chain(&factor.quick).try_for_each(|v| factor.check(v))?;
        for value in factor.words.keys().chain(factor.needs.keys()) {
            factor.check(value)?;
        }
        for (value, other) in &factor.instead {
            factor.check(value)?;
            factor.check(other)?;
            if factor.needs.get(value).is_none_or(Vec::is_empty) {
                return Err(format!("factor {name:?}: {other:?} replaces {value:?}, which has no requirements"));
            }
        }
        if let Some(without) = factor.values.iter().find(|v| !factor.words.is_empty() && !factor.words.contains_key(*v))
        {
            return Err(format!("factor {name:?}: value {without:?} has no words, but others have"));
        }
        Ok(())
    }

    /// Checks that a word's placeholder is a variable or a factor, and that a list exists.
    fn check_word(&self, word: &str) -> Result<(), String> {
        if let Some(list) = word.strip_prefix('@') {
            let known = self.words.contains_key(list)
                || list == "sizing" && self.sizing.is_some()
                || self.factor(list).is_some_and(|f| !f.words.is_empty());
            return if known { Ok(()) } else { Err(format!("{word:?}: no list of words has this name")) };
        }
        match crate::template::placeholders(word)
            .find(|hole| !BUILT_IN_VARIABLES.contains(hole) && self.factor(hole).is_none())
        {
            Some(hole) => Err(format!("{word:?}: {{{hole}}} is neither a factor nor a variable")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const SMALL_WORKLOAD: &str = r#"
        name = "small"
        question = "Is it?"
        argv = ["w", "@mode", "--size={size}", "@sizing", "--dir={dir}"]
        sizing = { calibrate = ["--min"], fixed = ["--inner={inner}"] }
        why = { size = 10 }

        [score]
        unit = "MB/s"
        scale = 1e-6

        [run]
        blocks = 10
        precision_percent = 2
        budget_s = 60

        [quick]
        blocks = 5
        precision_percent = 5
        budget_s = 5

        [[factor]]
        name = "mode"
        about = "how"
        default = ["a", "b"]
        quick = "a"
        values = ["a", "b"]
        needs = { b = ["java"] }
        words = { a = ["--a"], b = ["--b", "--heap={size}"] }

        [[factor]]
        name = "size"
        about = "how much"
        default = 64
        range = [1, "1M"]

        [[factor]]
        name = "dir"
        about = "where"
        default = "."
        directory = true

        [[skip]]
        when = { mode = "b", size = [1, 2] }
        because = "too small"
    "#;

    #[test]
    fn workload_is_parsed() {
        let workload = Workload::parse("small.toml", SMALL_WORKLOAD).unwrap();
        assert_eq!(workload.factor("mode").unwrap().default, ["a", "b"]);
        assert_eq!(workload.factor("size").unwrap().default, ["64"]);
        assert_eq!(
            (workload.score.of, workload.score.better(), workload.run.warmup),
            (ScoreKind::Rate, Some(Better::Higher), 1)
        );
        assert_eq!(workload.why.unwrap()["size"], "10");
        assert_eq!(workload.skip[0].when["size"], ["1", "2"]);
    }

    #[test]
    fn errors_name_the_file_and_the_factor_or_the_line() {
        for (from, to, parts) in [
            ("name = \"size\"", "name = \"Size\"", &["\"Size\"", "lower-case letters"][..]),
            ("--size={size}", "--size={siez}", &["{siez}"]),
            ("\"@mode\"", "\"@moed\"", &["@moed"]),
            ("default = 64", "default = 0", &["factor size", "\"0\"", "1 to 1M"]),
            ("quick = \"a\"", "quick = \"c\"", &["factor mode", "\"c\"", "a, b"]),
            ("range = [1, \"1M\"]", "range = [1]", &["size", "two numbers"]),
            ("range = [1, \"1M\"]", "", &["size", "set what is allowed"]),
            ("needs = { b = [\"java\"] }", "needs = { c = [\"java\"] }", &["factor mode", "\"c\""]),
            ("a = [\"--a\"], ", "", &["mode", "\"a\" has no words"]),
            ("quick = \"a\"", "quick = \"a\"\n instead = { b = \"c\" }", &["factor mode", "\"c\""]),
            ("quick = \"a\"", "quick = \"a\"\n instead = { a = \"b\" }", &["mode", "has no requirements"]),
            ("name = \"dir\"", "name = \"inner\"", &["inner", "is reserved"]),
            ("blocks = 10", "blocks = 0", &["[run]", "at least 1"]),
            ("blocks = 5", "blocks = 5\nwarmup = 0", &["[quick]", "warm-up"]),
            ("precision_percent = 2", "precision_percent = 0", &["[run]", "between 0 and 100"]),
            ("mode = \"b\", size", "mood = \"b\", size", &["[[skip]]", "mood"]),
            ("why = { size = 10 }", "why = { size = 0 }", &["[why]", "factor size"]),
            ("scale = 1e-6", "scael = 1e-6", &["line", "scael"]),
            ("about = \"how much\"", "about = \"how much\"\n default = 3", &["line", "default"]),
        ] {
            assert!(SMALL_WORKLOAD.contains(from), "{from}");
            let error = Workload::parse("small.toml", &SMALL_WORKLOAD.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains("small.toml") && parts.iter().all(|p| error.contains(p)), "{to}: {error}");
        }
    }

    #[test]
    fn numbers_may_have_suffixes() {
        assert_eq!(
            (parse_number("10"), parse_number("4K"), parse_number("10G")),
            (Some(10), Some(4096), Some(10 << 30))
        );
        for text in ["", "K", "-1", "+1", "1.5K", "99999999999G", "1KB", "é"] {
            assert_eq!(parse_number(text), None, "{text}");
        }
    }
}
