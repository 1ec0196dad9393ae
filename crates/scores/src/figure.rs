//! Contents of a figure of a page: our values, and the numbers of a paper's text beside them.

use super::results::{MeasuredCell, factor_words};
use serde::Serialize;
use std::borrow::Cow;

/// A figure with our values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Paper, such as `000`.
    pub paper: &'static str,
    /// Number.
    pub figure: &'static str,
    /// What it shows.
    pub title: Cow<'static, str>,
    /// What the paper's text states about it.
    pub says: &'static str,
    /// The factor along its x axis, for figures of lines.
    pub x: Option<&'static str>,
    /// The factor that distinguishes its lines.
    pub series: Option<&'static str>,
    /// Our values.
    pub bars: Vec<Bar>,
    /// Numbers of the paper's text, beside ours.
    pub stated: Vec<StatedNumber>,
}

/// One of our values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bar {
    pub cell: u64,
    /// Its factors in words.
    pub label: String,
    pub workload: String,
    /// The value on the x axis, for figures of lines.
    pub x: Option<String>,
    /// The line it belongs to.
    pub series: Option<String>,
    /// The score; `None` if there is none.
    pub estimate: Option<f64>,
    /// Bounds of its confidence interval.
    pub ci95: Option<[f64; 2]>,
    /// Each process's score.
    pub values: Vec<f64>,
    pub unit: String,
    /// Notes beside it: its class, failures.
    pub notes: Vec<String>,
}

/// A number of the paper's text, beside ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatedNumber {
    /// The quantity.
    pub what: &'static str,
    /// The paper's value.
    pub paper: f64,
    /// Our value; `None` if the cell was not measured.
    pub ours: Option<f64>,
    /// Unit of both.
    pub unit: &'static str,
}

/// A cell's score, not yet assigned to a line.
pub fn score_bar(m: &MeasuredCell) -> Bar {
    let e = &m.estimate;
    let mut notes: Vec<String> = e.class.iter().map(|class| class.name().to_owned()).collect();
    if e.failed > 0 {
        notes.push(format!("{} failed", e.failed));
    }
    notes.extend(e.absent.as_ref().map(|why| format!("missing: {why}")));
    notes.extend(e.machine_notes());
    notes.extend(m.design.quick.then(|| "quick run".to_string()));
    Bar {
        cell: m.cell.id,
        label: if m.factors.is_empty() { m.cell.name.clone() } else { factor_words(&m.factors) },
        workload: m.design.name.clone(),
        x: None,
        series: None,
        estimate: e.estimate,
        ci95: e.ci95,
        values: m.scores(),
        unit: e.unit.clone(),
        notes,
    }
}
