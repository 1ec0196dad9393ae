//! Widths of a design's intervals while it runs: evaluates what its processes printed like `fathom bench show` does later.

use crate::{Penalty, Process, Score, ScoreKind};
use experiment::{Cell, Design, Results};
use model::table::{Replicate, Sample};
use std::collections::HashMap;

/// Returns how a cell's processes are scored.
fn cell_score(design: &Design, cell: &Cell) -> Score {
    Score {
        kind: ScoreKind::from_name(design.plan.as_ref().map_or("value", |p| p.score.of.name())),
        metric: design.metric(cell).into(),
        unit: None,
        scale: 1.0,
    }
}

/// Returns a function that computes the current half-width of each cell's interval. Each process is evaluated only once.
pub(crate) fn half_width_scorer(design: &Design) -> impl FnMut(&Results) -> Vec<Option<f64>> {
    let scores: Vec<Score> = design.cells.iter().map(|cell| cell_score(design, cell)).collect();
    let mut known: HashMap<u64, Option<Process>> = HashMap::new();
    move |results: &Results| {
        let mut samples: HashMap<u64, Vec<&Sample>> = HashMap::new();
        let out = crate::disturbance::excluded_replicates(&results.replicates);
        for sample in &results.samples {
            if let Some(id) = sample.replicate.filter(|id| !known.contains_key(id) && !out.contains(id)) {
                samples.entry(id).or_default().push(sample);
            }
        }
        let counting = || results.replicates.iter().filter(|r| crate::is_counted(r) && !out.contains(&r.id));
        for (id, own) in samples {
            let score = counting().find(|r| r.id == id).and_then(|r| scores.get(r.cell as usize));
            known.insert(id, score.and_then(|score| crate::evaluate_process(score, Penalty::default(), id, &own)));
        }
        (0..scores.len() as u64)
            .map(|cell| {
                let own = counting().filter(|r| r.cell == cell);
                let processes: Vec<&Process> = own.filter_map(|r| known.get(&r.id)?.as_ref()).collect();
                crate::half_width(&processes)
            })
            .collect()
    }
}

/// Returns, for a design whose cells run the same command, the values of both sides' processes by block, in groups of `blocks`
/// blocks; an incomplete last group is left out.
pub(crate) fn group_blocks(results: &Results, blocks: usize) -> Vec<Vec<(Vec<f64>, Vec<f64>)>> {
    let score = cell_score(&results.design, &results.design.cells[0]);
    let values = |r: &Replicate| -> Option<Vec<f64>> {
        let own: Vec<&Sample> = results.samples.iter().filter(|s| s.replicate == Some(r.id)).collect();
        Some(crate::evaluate_process(&score, Penalty::default(), r.id, &own)?.values)
    };
    let last = results.replicates.iter().map(|r| r.block).max().unwrap_or(0);
    let pair = |block: u64| {
        let of = |cell: u64| {
            let mut all = results.replicates.iter();
            all.find(|r| r.block == block && r.cell == cell && crate::is_counted(r)).and_then(values)
        };
        of(0).zip(of(1))
    };
    let pairs: Vec<(Vec<f64>, Vec<f64>)> = (0..=last).filter_map(pair).collect();
    pairs.chunks_exact(blocks).map(<[_]>::to_vec).collect()
}
