//! The whole programs, compared: what each asked of the layers below, and where its time went, whatever its statements are called.
//!
//! Executions are aligned by statement, so that two programs without a statement in common compare nothing, and a call on a file whose
//! name differs in each run has no partner. Their totals always compare. What a program asks is a count, which no noise of the machine
//! changes: 72 more fsyncs are a difference, however much the times vary. Counts are those of [`crate::check`]: calls on the program's
//! own files, in statements and outside.
//!
//! **Uncertainty.** With one recording a side, a program whose counts differ from run to run (it polls, or retries) differs from itself.
//! With several, counts differ only if the ranges of the sides do not overlap.

use super::contract::{CountTotal, Direction, TimeTotal};
use crate::check::{count_tolerance, count_weight, observe};
use crate::explain::contract::{Account, Between};
use crate::explain::leaf_name;
use analysis::rows::Rows;
use std::collections::{BTreeMap, BTreeSet};

/// Counts of one recording, by name.
pub type Totals = BTreeMap<String, u64>;

/// Returns what a recorded program asked of the layers below.
pub fn count(rows: &Rows) -> Totals {
    observe(rows).sums()
}

/// Compares the counts of the recordings of both sides, the weightiest difference first. Equal counts are included.
pub fn compare_counts(a: &[Totals], b: &[Totals]) -> Vec<CountTotal> {
    let names: BTreeSet<&String> = a.iter().chain(b).flat_map(|one| one.keys()).collect();
    let range = |side: &[Totals], name: &String| {
        let values = || side.iter().map(|one| one.get(name).copied().unwrap_or(0));
        [values().min().unwrap_or(0), values().max().unwrap_or(0)]
    };
    let mut all: Vec<(f64, CountTotal)> = Vec::new();
    for name in names {
        let (a, b) = (range(a, name), range(b, name));
        let slack = count_tolerance(name, a[1]);
        let direction = if b[0] > a[1].saturating_add(slack) {
            Direction::More
        } else if b[1].saturating_add(slack) < a[0] {
            Direction::Fewer
        } else if a == b && a[0] == a[1] {
            Direction::Same
        } else {
            Direction::Unclear
        };
        let middle = |[least, most]: [u64; 2]| least.midpoint(most);
        let delta = i128::from(middle(b)) - i128::from(middle(a));
        let delta = delta.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let differs = matches!(direction, Direction::More | Direction::Fewer);
        let weight = if differs { delta.unsigned_abs() as f64 * count_weight(name) } else { -1.0 };
        all.push((weight, CountTotal { what: name.clone(), a, b, delta, direction }));
    }
    all.sort_by(|(p, one), (q, other)| q.total_cmp(p).then_with(|| one.what.cmp(&other.what)));
    all.into_iter().map(|(_, one)| one).collect()
}

/// Compares the accounts of two recordings by leaf, the largest difference first. What is in no leaf is listed too, so that the
/// differences add up to that of the threads' time.
pub fn compare_times(a: (&Account, &Between), b: (&Account, &Between)) -> Vec<TimeTotal> {
    let mut sums: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (side, (account, between)) in [a, b].into_iter().enumerate() {
        let mut add = |what: String, ns: u64| {
            let sum = &mut sums.entry(what).or_default()[side];
            *sum = sum.saturating_add(ns);
        };
        account.leaves.iter().for_each(|leaf| add(leaf_name(leaf), leaf.ns));
        add("is not accounted for".into(), account.unaccounted_ns);
        between.leaves.iter().for_each(|leaf| add(format!("outside operations, {}", leaf_name(leaf)), leaf.ns));
        add("outside operations, is not accounted for".into(), between.unaccounted_ns);
    }
    let delta = |[a, b]: [u64; 2]| b as f64 - a as f64;
    let rows = sums.into_iter().filter(|(_, both)| both.iter().any(|ns| *ns > 0));
    let mut rows: Vec<TimeTotal> =
        rows.map(|(what, both)| TimeTotal { what, a_ns: both[0], b_ns: both[1], delta_ns: delta(both) }).collect();
    rows.sort_by(|p, q| q.delta_ns.abs().total_cmp(&p.delta_ns.abs()).then_with(|| p.what.cmp(&q.what)));
    rows
}
