//! The output of `fathom fix --json`. A change of a field's meaning or type changes [`FORMAT_VERSION`].

use super::BASELINE_NAME;
use super::remedies::{Durability, Remedy};
use crate::StopReason;
use crate::ab::contract::{self as ab, Control};
use crate::ab::text::shorten_failure;
use model::FindingCode;
use serde::Serialize;
use stats::verdict::{self, Verdict};

/// The version of the format.
pub const FORMAT_VERSION: u32 = 1;

/// The remedies tried, and the results.
#[derive(Debug, Clone, Serialize)]
pub struct FixOutcome {
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// Codes of the findings that have remedies; empty if the user named the remedies.
    pub findings: Vec<FindingCode>,
    /// Every remedy that was tried, the largest saving first.
    pub tried: Vec<TriedRemedy>,
    /// Remedies that could not be tried, and why.
    pub not_tried: Vec<UntriedRemedy>,
    /// The best remedy with an allowed durability; null if none is faster.
    pub best: Option<String>,
    /// The classes of durability from which the best was chosen, up to this one.
    pub allowed: Durability,
    /// Median wall time of the unchanged command, s.
    pub as_it_is_s: Option<f64>,
    /// The unchanged command compared with itself.
    pub control: Option<Control>,
    /// The smallest difference that counts as one.
    pub margin: f64,
    /// Number of measured blocks.
    pub blocks: u64,
    /// Why there is no verdict, whatever the times; null if there is no such reason.
    pub withheld: Option<String>,
    /// Why no further block was run; null if it was interrupted.
    pub stopped: Option<StopReason>,
}

/// A remedy that was tried.
#[derive(Debug, Clone, Serialize)]
pub struct TriedRemedy {
    pub remedy: Remedy,
    /// Its time divided by that of the unchanged command.
    pub ratio: Option<f64>,
    /// The interval of 95 %.
    pub ci95: Option<[f64; 2]>,
    /// `slower`, `faster`, `equivalent`, `inconclusive`.
    pub verdict: Verdict,
    /// Why it has no (further) result.
    pub failure: Option<String>,
    /// Whether its durability is allowed.
    pub allowed: bool,
}

/// A remedy that was not tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UntriedRemedy {
    pub name: String,
    pub why: String,
}

impl FixOutcome {
    /// Evaluates a run's outcome. Only a *faster* variant can be the best: a remedy without a measurable effect is none.
    pub fn new(
        outcome: &ab::Outcome,
        remedies: Vec<Remedy>,
        not_tried: Vec<UntriedRemedy>,
        findings: Vec<FindingCode>,
        allowed: Durability,
    ) -> Self {
        let mut tried: Vec<TriedRemedy> = remedies
            .into_iter()
            .map(|remedy| {
                let compared = outcome.comparisons.iter().find(|c| c.name == remedy.name);
                let measured = outcome.commands.iter().find(|c| c.name == remedy.name);
                TriedRemedy {
                    ratio: compared.and_then(|c| c.ratio),
                    ci95: compared.and_then(|c| c.ci95),
                    verdict: compared.map_or(Verdict::Inconclusive, |c| c.verdict),
                    failure: measured.and_then(|m| m.failure.as_deref()).map(shorten_failure),
                    allowed: remedy.durability <= allowed,
                    remedy,
                }
            })
            .collect();
        tried.sort_by(|p, q| p.ratio.unwrap_or(f64::INFINITY).total_cmp(&q.ratio.unwrap_or(f64::INFINITY)));
        let best = tried.iter().find(|t| t.allowed && t.verdict == Verdict::Faster && t.failure.is_none());
        let as_it_is = outcome.commands.iter().find(|c| c.name == BASELINE_NAME);
        Self {
            version: FORMAT_VERSION,
            findings,
            best: best.map(|t| t.remedy.name.clone()),
            tried,
            not_tried,
            allowed,
            as_it_is_s: as_it_is.and_then(|c| c.metrics.get("wall")).map(|wall| wall.median),
            control: outcome.control.clone(),
            margin: outcome.margin,
            blocks: outcome.blocks,
            withheld: outcome.withheld.clone(),
            stopped: outcome.stopped,
        }
    }

    /// Returns why the unchanged command failed in every run: there is nothing to compare with then.
    pub fn baseline_failure(outcome: &ab::Outcome) -> Option<String> {
        let as_it_is = outcome.commands.iter().find(|c| c.name == BASELINE_NAME && c.runs == 0)?;
        as_it_is.failure.as_deref().map(shorten_failure)
    }

    /// The result for a command for which no remedy could be tried.
    pub fn untried(not_tried: Vec<UntriedRemedy>, findings: Vec<FindingCode>, allowed: Durability) -> Self {
        Self {
            version: FORMAT_VERSION,
            findings,
            tried: Vec::new(),
            not_tried,
            best: None,
            allowed,
            as_it_is_s: None,
            control: None,
            margin: verdict::margin(None),
            blocks: 0,
            withheld: None,
            stopped: Some(StopReason::Nothing),
        }
    }

    pub fn best(&self) -> Option<&Remedy> {
        self.tried.iter().map(|t| &t.remedy).find(|remedy| Some(&remedy.name) == self.best.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::super::remedies::{Machine, all};
    use super::*;
    use crate::ab::contract::{ComparedCommand, Outcome};

    fn outcome_of_verdicts(verdicts: &[(&str, f64, Verdict)], allowed: Durability) -> FixOutcome {
        let compared = |&(name, ratio, verdict): &(&str, f64, Verdict)| ComparedCommand {
            name: name.into(),
            baseline: BASELINE_NAME.into(),
            ratio: Some(ratio),
            ci95: Some([ratio, ratio]),
            pairs: 10,
            verdict,
        };
        let outcome = Outcome {
            version: 1,
            commands: Vec::new(),
            comparisons: verdicts.iter().map(compared).collect(),
            control: None,
            margin: 0.02,
            blocks: 10,
            warmup: 1,
            seed: 1,
            withheld: None,
            stopped: Some(StopReason::Blocks),
            sources: Default::default(),
        };
        let remedies = all(&Machine::default());
        let tried = remedies.into_iter().filter(|r| verdicts.iter().any(|(name, ..)| *name == r.name)).collect();
        FixOutcome::new(&outcome, tried, Vec::new(), vec![FindingCode::F01], allowed)
    }

    #[test]
    fn lost_durability_is_best_only_if_allowed() {
        let verdicts = [
            ("off", 0.1, Verdict::Faster),
            ("wal-normal", 0.2, Verdict::Faster),
            ("wal", 0.6, Verdict::Faster),
            ("persist", 0.5, Verdict::Inconclusive),
        ];
        let best = |allowed| outcome_of_verdicts(&verdicts, allowed).best;
        assert_eq!(best(Durability::Same).as_deref(), Some("wal"));
        assert_eq!(best(Durability::LastCommits).as_deref(), Some("wal-normal"));
        assert_eq!(best(Durability::Corruption).as_deref(), Some("off"));
        let none =
            outcome_of_verdicts(&[("off", 0.1, Verdict::Faster), ("wal", 0.9, Verdict::Equivalent)], Durability::Same);
        assert_eq!(none.best, None, "what is no faster is no remedy");
        let order: Vec<&str> = none.tried.iter().map(|t| t.remedy.name.as_str()).collect();
        assert_eq!(order, ["off", "wal"], "what saves most first");
    }

    /// A run that was interrupted before its first blocks ended.
    #[test]
    fn unmeasured_remedy_is_not_called_no_faster() {
        let mut fixed = outcome_of_verdicts(&[("wal", 1.0, Verdict::Inconclusive)], Durability::Same);
        assert!(super::super::text::text(&fixed).contains("is allowed is faster"));
        fixed.tried.iter_mut().for_each(|t| (t.ratio, t.ci95) = (None, None));
        let text = super::super::text::text(&fixed);
        assert!(text.contains("No remedy was measured") && !text.contains("is faster"), "{text}");
    }

    #[test]
    fn nothing_is_best_where_verdicts_are_withheld() {
        let mut fixed = outcome_of_verdicts(&[("wal", 0.6, Verdict::Inconclusive)], Durability::Same);
        fixed.withheld = Some("the processor is emulated".into());
        let text = super::super::text::text(&fixed);
        assert!(text.ends_with("No verdict: the processor is emulated\n") && fixed.best.is_none(), "{text}");
    }

    #[test]
    fn text_lists_remedies_that_give_up_durability_apart() {
        let text = super::super::text::text(&outcome_of_verdicts(
            &[("off", 0.1, Verdict::Faster), ("wal", 0.6, Verdict::Faster)],
            Durability::Same,
        ));
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in {text}"));
        assert!(at("Durability stays the same:") < at("\n  wal ") && at("\n  wal ") < at("Durability is given up:"));
        assert!(at("Durability is given up:") < at("\n  off "));
        assert!(text.contains("may damage the database") && text.contains("Best, with durability same: wal"), "{text}");
        assert!(text.ends_with("once, in the database: PRAGMA journal_mode=WAL\n"), "{text}");
    }
}
