//! Several recordings a side: the variation between recordings of the same thing is known then, so times decide even if the work is the
//! same.
//!
//! The unit of repetition is the recording. The executions of one recording share the state of the machine, and even a million of
//! them do not predict the next recording; so each recording contributes one number per statement, the sum over the executions
//! that *all* recordings have. The two sides are compared like two cells of a benchmark ([`stats::cells`]): the median of all
//! ratios B / A with the interval of the exact rank test (Hodges and Lehmann; Mann and Whitney). It does not assume normal noise,
//! and one outlying recording moves it little. It needs 4 and 4 recordings, or 3 and 5: with 3 and 3 the most extreme order of
//! all has a probability of 1 in 10 by chance, so that no verdict is possible. Statements are many comparisons at once; at most 5
//! % of those reported are false ([`stats::fdr`]).
//!
//! **Uncertainty.** The test detects that the sides differ, not why: if all of A were made before all of B, whatever changed on
//! the machine in between counts as a difference. [`sides_are_apart`] detects this, and the text reports it.

use super::basis::Basis;
use super::contract::{Recordings, SumsComparison};
use analysis::rows::{Index, Rows};
use stats::cells::{Cell, Pairing, ratio};
use stats::fdr;
use stats::verdict::{Better, MARGIN_DEFAULT, Verdict, judge};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Confidence level of the intervals; one minus the rate of false differences.
const CONFIDENCE_LEVEL: f64 = 0.95;
/// A statement below this share of the time is not compared: each further comparison makes it harder to be sure of the others.
const COMPARED_SHARE_MIN: f64 = 0.01;

/// A statement: kind and text.
type Key = (String, String);

#[derive(Debug)]
struct Execution {
    key: usize,
    nth: u64,
    ns: u64,
    parent: Option<usize>,
}

/// The part of one recording that is kept: its finished executions.
#[derive(Debug, Default)]
pub struct Recording {
    keys: Vec<Key>,
    executions: Vec<Execution>,
    created_unix_ns: u64,
}

impl Recording {
    /// Extracts the executions from a recording's tables.
    pub fn from_rows(rows: &Rows) -> Self {
        let index = Index::new(rows);
        let mut own = Self { created_unix_ns: rows.trace.created_unix_ns, ..Self::default() };
        let mut keys: HashMap<Key, usize> = HashMap::new();
        let mut place: HashMap<usize, usize> = HashMap::new();
        for (at, operation) in rows.operations.iter().enumerate() {
            let (Some(end), Some(shape)) = (operation.end_ns, index.shape(at)) else { continue };
            let shape = &rows.shapes[shape];
            let next = keys.len();
            let key = *keys.entry((shape.kind.to_string(), shape.text.clone())).or_insert(next);
            place.insert(at, own.executions.len());
            let ns = end.saturating_sub(operation.start_ns);
            own.executions.push(Execution { key, nth: operation.nth, ns, parent: None });
        }
        for (&at, &own_place) in &place {
            // An operation that did not end is not an execution; the one around it may be.
            let parent = index.chain(at).skip(1).find_map(|outer| place.get(&outer).copied());
            own.executions[own_place].parent = parent;
        }
        let mut sorted: Vec<(Key, usize)> = keys.into_iter().collect();
        sorted.sort_by_key(|(_, at)| *at);
        own.keys = sorted.into_iter().map(|(key, _)| key).collect();
        own
    }

    fn ordinals(&self) -> BTreeMap<&Key, BTreeSet<u64>> {
        let mut all: BTreeMap<&Key, BTreeSet<u64>> = BTreeMap::new();
        for execution in &self.executions {
            all.entry(&self.keys[execution.key]).or_default().insert(execution.nth);
        }
        all
    }

    /// Returns the compared executions, by position, and whether each is inside another compared one.
    fn chosen(&self, common: &BTreeMap<Key, BTreeSet<u64>>) -> Vec<(usize, bool)> {
        let sets: Vec<Option<&BTreeSet<u64>>> = self.keys.iter().map(|key| common.get(key)).collect();
        let is = |at: usize| sets[self.executions[at].key].is_some_and(|set| set.contains(&self.executions[at].nth));
        let inside = |at: usize| {
            let above = |at: &usize| self.executions[*at].parent;
            std::iter::successors(above(&at), above).take(self.executions.len()).any(is)
        };
        (0..self.executions.len()).filter(|&at| is(at)).map(|at| (at, inside(at))).collect()
    }
}

/// The sums of each recording, A's first: of each common statement, and of all executions that are not nested.
struct Sums {
    statements: BTreeMap<Key, Vec<u64>>,
    whole: Vec<u64>,
    /// Executions that all recordings have.
    executions: u64,
}

fn sum_common_executions(all: &[&Recording]) -> Sums {
    let mut common: BTreeMap<Key, BTreeSet<u64>> = BTreeMap::new();
    if let Some((first, rest)) = all.split_first() {
        common = first.ordinals().into_iter().map(|(key, set)| (key.clone(), set)).collect();
        for recording in rest {
            let own = recording.ordinals();
            common.retain(|key, set| {
                own.get(key).is_some_and(|other| {
                    set.retain(|nth| other.contains(nth));
                    !set.is_empty()
                })
            });
        }
    }
    let chosen: Vec<Vec<(usize, bool)>> = all.iter().map(|recording| recording.chosen(&common)).collect();
    // An execution that is nested in one recording counts as nested in all, so that the same executions are summed.
    let mut inner: HashSet<(&Key, u64)> = HashSet::new();
    for (recording, chosen) in all.iter().zip(&chosen) {
        let own = chosen.iter().filter(|(_, inside)| *inside).map(|&(at, _)| &recording.executions[at]);
        inner.extend(own.map(|execution| (&recording.keys[execution.key], execution.nth)));
    }
    let mut sums = Sums {
        statements: common.keys().map(|key| (key.clone(), vec![0; all.len()])).collect(),
        whole: vec![0; all.len()],
        executions: common.values().map(|set| set.len() as u64).sum(),
    };
    for (side, (recording, chosen)) in all.iter().zip(&chosen).enumerate() {
        for &(at, _) in chosen {
            let execution = &recording.executions[at];
            let key = &recording.keys[execution.key];
            if let Some(own) = sums.statements.get_mut(key) {
                own[side] = own[side].saturating_add(execution.ns);
            }
            if !inner.contains(&(key, execution.nth)) {
                sums.whole[side] = sums.whole[side].saturating_add(execution.ns);
            }
        }
    }
    sums
}

fn compare_sums(sums: &[u64], of_a: usize, basis: &Basis) -> SumsComparison {
    let (a, b) = sums.split_at(of_a);
    let cell = |side: &[u64]| Cell::new(&side.iter().map(|ns| [*ns as f64]).collect::<Vec<_>>());
    let found = cell(b).zip(cell(a)).and_then(|(b, a)| ratio(&b, &a, Pairing::Unpaired, CONFIDENCE_LEVEL));
    SumsComparison {
        a_ns: a.to_vec(),
        b_ns: b.to_vec(),
        ratio: found.map(|c| c.ratio.value),
        ratio_interval: found.map(|c| [c.ratio.low, c.ratio.high]),
        p: found.map(|c| c.p),
        adjusted_p: None,
        verdict: basis.allows(found.map_or(Verdict::Inconclusive, |c| judge(&c.ratio, Better::Lower, MARGIN_DEFAULT))),
    }
}

/// Whether all recordings of one side were made before all of the other.
fn sides_are_apart(a: &[Recording], b: &[Recording]) -> bool {
    let ends = |side: &[Recording]| {
        let times = || side.iter().map(|r| r.created_unix_ns);
        times().min().zip(times().max())
    };
    ends(a).zip(ends(b)).is_some_and(|((first_a, last_a), (first_b, last_b))| last_a < first_b || last_b < first_a)
}

/// Returns the position of the median; for an even number the lower one.
fn median_position(sums: &[u64]) -> usize {
    let mut order: Vec<usize> = (0..sums.len()).collect();
    order.sort_by_key(|&at| sums[at]);
    order.get(sums.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

/// Compares the recordings of both sides, and each statement. `basis` is given the number of executions that all have.
pub fn compare(
    a: &[Recording],
    b: &[Recording],
    basis: impl FnOnce(u64) -> Basis,
) -> (Recordings, BTreeMap<Key, SumsComparison>, Basis) {
    let all: Vec<&Recording> = a.iter().chain(b).collect();
    let sums = sum_common_executions(&all);
    let basis = basis(sums.executions);
    let mut statements: BTreeMap<Key, SumsComparison> =
        sums.statements.iter().map(|(key, own)| (key.clone(), compare_sums(own, a.len(), &basis))).collect();
    correct_for_many(&mut statements, &sums.whole);
    let (of_a, of_b) = sums.whole.split_at(a.len());
    let recordings = Recordings {
        middle_a: median_position(of_a),
        middle_b: median_position(of_b),
        apart: sides_are_apart(a, b),
        whole: compare_sums(&sums.whole, a.len(), &basis),
    };
    (recordings, statements, basis)
}

/// Explains the recordings' verdict.
pub fn explain_verdict(one: &SumsComparison) -> String {
    let sides = format!("{} recordings of A and {} of B", one.a_ns.len(), one.b_ns.len());
    match one.verdict {
        Verdict::Equivalent => format!("{sides} differ by no more than the margin"),
        Verdict::Inconclusive if one.p.is_some_and(|p| p <= 1.0 - CONFIDENCE_LEVEL) => {
            format!(
                "{sides} differ, but too little, or not surely enough as one of many statements; record more of each"
            )
        }
        Verdict::Inconclusive | Verdict::Disturbed => {
            format!("{sides}: those of a side differ too much to distinguish the difference from chance")
        }
        Verdict::Slower | Verdict::Faster => {
            format!("{sides}: the difference is more than those of a side differ among themselves")
        }
    }
}

/// Among many statements some differ by chance: a reported one must be significant among all that take a relevant share of the time.
fn correct_for_many(statements: &mut BTreeMap<Key, SumsComparison>, whole: &[u64]) {
    let matters = |c: &SumsComparison| {
        let own: Vec<f64> = c.a_ns.iter().chain(&c.b_ns).zip(whole).map(|(ns, all)| *ns as f64 / *all as f64).collect();
        c.p.is_some() && own.iter().any(|part| *part >= COMPARED_SHARE_MIN)
    };
    let (told, rest): (Vec<&mut SumsComparison>, Vec<&mut SumsComparison>) =
        statements.values_mut().partition(|c| matters(c));
    let p: Vec<f64> = told.iter().filter_map(|c| c.p).collect();
    let adjusted = fdr::adjust(&p, 1.0 - CONFIDENCE_LEVEL).map(|found| found.p_values).unwrap_or_default();
    let judged = told.into_iter().zip(adjusted.into_iter().map(Some)).chain(rest.into_iter().map(|one| (one, None)));
    for (one, adjusted) in judged {
        one.adjusted_p = adjusted;
        let sure = adjusted.is_some_and(|p| p <= 1.0 - CONFIDENCE_LEVEL);
        if !sure && one.verdict != Verdict::Equivalent {
            one.verdict = Verdict::Inconclusive;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::handmade::{INSERT_STATEMENT, insert, recording};
    use stats::random::Random;

    /// A recording of a noisy machine: its overall speed varies, it drifts, and now and then it is delayed.
    fn noisy(random: &mut Random, speed: f64, created: u64) -> Recording {
        let level = speed * (0.1 * (random.unit() + random.unit() - 1.0)).exp();
        let held_up = if random.below(20) == 0 { 1.5 } else { 1.0 };
        let execution = |nth: u64, random: &mut Random| {
            let drift = 1.0 + 0.05 * (nth as f64 / 30.0) * (random.unit() - 0.5);
            let ns = 340_000.0 * level * held_up * drift * (0.2 * (random.unit() - 0.5)).exp();
            Execution { key: 0, nth, ns: ns as u64, parent: None }
        };
        Recording {
            keys: vec![("statement".into(), INSERT_STATEMENT.into())],
            executions: (0..30).map(|nth| execution(nth, random)).collect(),
            created_unix_ns: created,
        }
    }

    fn pair(random: &mut Random, each: usize, speed: f64) -> (Vec<Recording>, Vec<Recording>) {
        (0..each as u64).map(|i| (noisy(random, 1.0, 2 * i), noisy(random, speed, 2 * i + 1))).unzip()
    }

    /// A binomial of 0.05 and 1,000 has a standard deviation of 6.9; the rank test of 4 and 4 rejects 2.9 % of equal cells, of 5 and 5
    /// 3.2 %.
    #[test]
    fn equal_sides_differ_in_at_most_5_percent_of_pairs() {
        let mut random = Random::new(19);
        for each in [4, 5, 8] {
            let told = (0..1000)
                .filter(|_| {
                    let (a, b) = pair(&mut random, each, 1.0);
                    matches!(compare(&a, &b, |_| Basis::default()).0.whole.verdict, Verdict::Slower | Verdict::Faster)
                })
                .count();
            assert!(told <= 64, "{each} a side: {told} of 1,000");
            assert!(told > 0, "{each} a side: a test that never rejects decides nothing");
        }
    }

    /// One recording of A that is delayed beyond all of B makes 6 and 6 insignificant (p = 0.065), and occurs in 26 of 100 pairs;
    /// with 10 and 10 one is tolerated.
    #[test]
    fn a_slower_side_is_detected_though_its_work_is_equal() {
        let mut random = Random::new(7);
        for (each, least) in [(6, 60), (10, 90)] {
            let told = (0..100).filter(|_| {
                let (a, b) = pair(&mut random, each, 1.3);
                let (all, statements, _) = compare(&a, &b, |_| Basis::default());
                let one = &statements[&("statement".into(), INSERT_STATEMENT.into())];
                assert_eq!(one.verdict, all.whole.verdict, "one statement is all there is");
                all.whole.verdict == Verdict::Slower
            });
            let told = told.count();
            assert!(told >= least, "{each} a side: {told} of 100");
        }
    }

    #[test]
    fn three_a_side_decide_nothing_and_sides_apart_are_reported() {
        let mut random = Random::new(3);
        let (a, b) = pair(&mut random, 3, 3.0);
        let (all, ..) = compare(&a, &b, |_| Basis::default());
        assert_eq!((all.whole.verdict, all.whole.ratio_interval, all.apart), (Verdict::Inconclusive, None, false));
        let later: Vec<Recording> = b.into_iter().map(|r| Recording { created_unix_ns: 100, ..r }).collect();
        assert!(compare(&a, &later, |_| Basis::default()).0.apart);
    }

    /// Oracle: R's `wilcox.test(c(5, 6, 7, 8), c(1, 2, 3, 4))$p.value` is 0.02857.
    #[test]
    fn p_is_that_of_the_exact_rank_test() {
        let found = compare_sums(&[1, 2, 3, 4, 5, 6, 7, 8], 4, &Basis::default());
        assert!((found.p.unwrap() - 2.0 / 70.0).abs() < 1e-12, "{found:?}");
        assert_eq!(found.verdict, Verdict::Slower);
        let (low, high) = (found.ratio_interval.unwrap()[0], found.ratio_interval.unwrap()[1]);
        assert!((low - 5.0 / 4.0).abs() < 1e-9 && (high - 8.0).abs() < 1e-9, "all ratios: {low} to {high}");
    }

    #[test]
    fn only_executions_of_all_recordings_are_summed() {
        let full = Recording::from_rows(&recording(&vec![insert(); 10]));
        let mut rows = recording(&vec![insert(); 10]);
        rows.operations.edit()[9].end_ns = None;
        let short = Recording::from_rows(&rows);
        let found = sum_common_executions(&[&full, &short]);
        assert_eq!(found.whole, [9 * 340_000, 9 * 340_000]);
    }

    #[test]
    fn the_median_recording_stands_for_its_side() {
        assert_eq!(median_position(&[9, 1, 5]), 2);
        assert_eq!(median_position(&[4, 3, 2, 1]), 2);
        assert_eq!(median_position(&[7]), 0);
    }
}
