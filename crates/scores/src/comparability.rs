//! Whether two cells can be compared at all. A ratio of two scores is meaningful only if both are the same quantity: the same
//! metric in the same unit, better in the same direction, of the same command against the same peer. An equal name is not
//! enough: a design's file can be edited between two runs, and its cells keep their names.
//!
//! Different quantities are never compared silently: the pair is listed as not comparable, with the reason and what can be
//! done. Users may decide two things: the direction of a score for which an old archive has none ([`Rules::better`]; guessing
//! once turned times into rates), and whether commands may differ ([`Rules::other_commands`]: two builds of one program have
//! two paths).
//!
//! A command is compared as it was stored: with its lists expanded and its factors filled in, but with the per-process
//! placeholders (`{scratch}`, `{inner}`, `{fathom}`) unexpanded, so that differences between processes do not make cells
//! incomparable.

use super::ScoreKind;
use super::contract::MODE_MARK;
use super::error::{Error, WithoutDirection};
use super::results::{MeasuredCell, factor_words};
use serde::Serialize;
use serde_json::Value;
use stats::verdict::Better;
use std::collections::BTreeMap;
use workload::http::OPEN_LOOP_MODE;

/// Decisions of the user where archives are ambiguous.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rules {
    /// The direction of scores for which the archive has none.
    pub better: Option<Better>,
    /// Whether cells with different commands may be compared.
    pub other_commands: bool,
}

/// Two cells of one name that cannot be compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Incomparable {
    /// The design's name.
    pub workload: String,
    /// Their factors.
    pub parameters: BTreeMap<String, String>,
    /// The metric, if it is not the cell's own score.
    pub score: Option<String>,
    /// The values of A and B, if they differ in one factor on purpose.
    pub levels: Option<[String; 2]>,
    /// Every reason, each with what can be done.
    pub why: Vec<String>,
}

impl Incomparable {
    /// Returns the cell in words.
    pub fn title(&self) -> String {
        let levels = self.levels.as_ref().map_or_else(String::new, |[a, b]| format!(": {a} -> {b}"));
        let score = self.score.as_ref().map_or_else(String::new, |metric| format!(" {metric}"));
        format!("{} {}{score}{levels}", self.workload, factor_words(&self.parameters)).trim().to_string()
    }

    /// Returns the cell and why it is not compared, in a sentence.
    pub fn words(&self) -> String {
        format!("Not comparable: {}: {}", self.title(), self.why.join("; "))
    }
}

/// Returns the direction of both scores, or an error if it is unknown, or not the same.
///
/// # Errors
/// [`Error::OppositeDirections`], [`Error::NoDirection`].
pub fn common_direction(a: &MeasuredCell, b: &MeasuredCell, rules: &Rules) -> Result<Better, Error> {
    let of = |m: &MeasuredCell| m.better().or(rules.better);
    match (of(a), of(b)) {
        (Some(x), Some(y)) if x == y => Ok(x),
        (Some(x), Some(y)) => Err(Error::OppositeDirections { a: direction_name(x), b: direction_name(y) }),
        _ => Err(Error::NoDirection {
            silent: match (a.better(), b.better()) {
                (None, None) => WithoutDirection::Both,
                (None, _) => WithoutDirection::A,
                _ => WithoutDirection::B,
            },
            metric: a.cell.metric.clone().unwrap_or_default(),
        }),
    }
}

fn direction_name(better: Better) -> &'static str {
    match better {
        Better::Higher => "higher",
        Better::Lower => "lower",
    }
}

/// Returns every reason why these cells cannot be compared; none if they can. `on_purpose`: the user named a factor in which
/// they differ, and so expects their commands to differ.
pub fn why_not(a: &MeasuredCell, b: &MeasuredCell, on_purpose: bool, rules: &Rules) -> Vec<String> {
    let mut why = Vec::new();
    let (x, y) = (a.score(), b.score());
    if (&x.kind, &x.metric) != (&y.kind, &y.metric) {
        why.push(format!(
            "A's score is the {} of {:?}, B's the {} of {:?}",
            x.kind.name(),
            x.metric,
            y.kind.name(),
            y.metric
        ));
    }
    why.extend(common_direction(a, b, rules).err().map(|why| why.to_string()));
    // Archives without offered rates: use the mode that the process reported.
    if a.extra.is_none() && [a, b].iter().any(|m| !m.is_offered() && sends_at_a_rate(m)) {
        why.push(
            "the rate of an open loop is an input; run it again: percentiles of its latency are scores now".into(),
        );
    }
    let emulated: Vec<&str> = [("A", a), ("B", b)]
        .into_iter()
        .filter(|(_, m)| m.emulated && depends_on_time(m))
        .map(|(which, _)| which)
        .collect();
    if !emulated.is_empty() {
        why.push(format!(
            "the processor of {} was emulated (QEMU's TCG): times show order, not speed; measure on hardware",
            emulated.join(" and ")
        ));
    }
    let (u, v) = (&a.estimate.unit, &b.estimate.unit);
    // A cell without a result has neither a unit nor a ratio.
    if u != v && a.estimate.processes > 0 && b.estimate.processes > 0 {
        why.push(format!("A's score is in {:?}, B's in {:?}", u.as_str(), v.as_str()));
    }
    if !on_purpose && !rules.other_commands {
        why.extend(commands_differ(a, b));
    }
    if !on_purpose && let Some((p, q)) = reported_peers(a).zip(reported_peers(b)).filter(|(p, q)| p != q) {
        why.push(format!("A was measured against {p}, B against {q}"));
    }
    why
}

/// Whether a score depends on how fast the machine is. A count does not.
fn depends_on_time(m: &MeasuredCell) -> bool {
    let unit = m.estimate.unit.as_str();
    m.score().kind != ScoreKind::Value || unit.ends_with("/s") || ["ns", "us", "µs", "ms", "s"].contains(&unit)
}

/// Whether a cell's processes report that they sent at a fixed rate, whether they achieved it or not.
fn sends_at_a_rate(m: &MeasuredCell) -> bool {
    m.marks.get(MODE_MARK).is_some_and(|modes| modes.keys().any(|mode| mode.starts_with(OPEN_LOOP_MODE)))
}

/// Returns the note on cells compared although their commands differ.
pub fn different_commands_note(a: &MeasuredCell, b: &MeasuredCell, rules: &Rules) -> Option<String> {
    rules.other_commands.then(|| first_difference(&command_words(a), &command_words(b))).flatten()
}

fn commands_differ(a: &MeasuredCell, b: &MeasuredCell) -> Option<String> {
    let what = first_difference(&command_words(a), &command_words(b))?;
    Some(format!("{what}; to compare them anyway, give --other-commands"))
}

/// Describes the first word in which two commands differ.
fn first_difference(a: &[String], b: &[String]) -> Option<String> {
    let at = (0..a.len().max(b.len())).find(|at| a.get(*at) != b.get(*at))?;
    let word = |all: &[String]| all.get(at).map_or_else(|| "nothing".to_string(), |word| format!("{word:?}"));
    Some(format!("their commands differ: A has {} where B has {}", word(a), word(b)))
}

/// Returns everything that a cell's process runs, as words: its command, the commands run before it and beside it, and the disk
/// made for it.
pub fn command_words(m: &MeasuredCell) -> Vec<String> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|w| w.as_str().map(String::from)).collect()
    };
    let design: Value = serde_json::from_str(&m.design.design).unwrap_or_default();
    let lists = &design["words"];
    let unfolded = |words: &Value| -> Vec<String> {
        let list = |word: String| match word.strip_prefix('@').map(|name| &lists[name]).filter(|list| list.is_array()) {
            Some(list) => texts(list),
            None => vec![word],
        };
        texts(words).into_iter().flat_map(list).collect()
    };
    let mut words = texts(&serde_json::from_str(&m.cell.argv).unwrap_or_default());
    let cell = design["cells"].as_array().or_else(|| design["cell"].as_array());
    if let Some(cell) = cell.into_iter().flatten().find(|c| c["name"] == m.cell.name.as_str()) {
        for setup in cell["setup"].as_array().into_iter().flatten() {
            words.extend(std::iter::once("(before)".to_string()).chain(unfolded(setup)));
        }
        let beside = unfolded(&cell["background"]);
        words.extend((!beside.is_empty()).then(|| "(beside)".to_string()).into_iter().chain(beside));
    }
    if let Some(disk) = design.get("disk").filter(|disk| disk.is_object()) {
        words.push(format!("(disk) {disk}"));
    }
    words
}

/// Returns the peers that a cell's processes reported.
fn reported_peers(m: &MeasuredCell) -> Option<String> {
    let peers = m.marks.get("peer")?;
    Some(peers.keys().cloned().collect::<Vec<_>>().join(", "))
}
