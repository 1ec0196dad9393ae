//! An INSERT recorded on two compared devices: the papers' figures for each, and where the time goes.

use crate::Figure;
use model::text::shown;
use serde_json::{Value, json};
use verdicts::diff::{self, contract::Diff};

#[derive(Debug)]
pub struct TracedPair {
    pub names: [String; 2],
    /// The papers' figures of each recording, or why there is none.
    pub figures: [Result<Vec<Figure>, String>; 2],
    /// Where the time goes, if both were recorded.
    pub diff: Option<Diff>,
}

impl TracedPair {
    /// Formats them for people.
    pub fn text(&self) -> String {
        let [a, b] = &self.names;
        let mut text = format!("\nAn INSERT on both, recorded (A: {a}, B: {b})\n");
        for (name, why) in self.names.iter().zip(&self.figures).filter_map(|(n, f)| Some((n, f.as_ref().err()?))) {
            text += &format!("  {name} was not recorded: {}\n", shown(why));
        }
        if let [Ok(a), Ok(b)] = &self.figures {
            text += &crate::side_by_side(a, b);
        }
        if let Some(diff) = &self.diff {
            text += &format!("\n{}", diff::text::text(diff));
        }
        text
    }

    /// Formats them as JSON.
    pub fn json(&self) -> Value {
        let sides = self.names.iter().zip(&self.figures).map(|(name, figures)| match figures {
            Ok(figures) => json!({ "device": name, "figures": figures }),
            Err(why) => json!({ "device": name, "why_not": why }),
        });
        json!({ "recordings": sides.collect::<Vec<_>>(), "diff": self.diff })
    }
}
