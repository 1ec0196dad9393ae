//! Comparison of two benchmarks: which cells became faster or slower, which are equivalent, and which are inconclusive.
//!
//! Cells match if their design's name and all their factors are equal; cells without a counterpart are listed. The ratio is
//! that of the scores, B to A: A is the old state and B the new one. Its interval comes from the differences between processes
//! ([`stats::cells`]); two cells of one archive are compared within blocks, cells of two archives are not, since nothing links
//! their blocks. One factor may differ on purpose ([`compare_across`]): a host and a phone name their modes differently.
//!
//! Cells that are different quantities ([`super::comparability`]: another command, unit or direction) are listed as such and not compared.
//!
//! A verdict needs more than an interval without 1: the ratio must lie beyond a **margin**, 2 % or the noise that the machine
//! shows for a cell compared with itself, if that is larger; and among many cells it must be in a list of which at most one in
//! twenty is false ([`stats::fdr`]), since of twenty equal cells one is "significant" by chance. Equivalent means shown to be
//! within the margin; everything else is reported as inconclusive. Mann-Whitney's test of the scores is shown with the verdict,
//! also where the verdict comes from blocks.

use super::CONFIDENCE_LEVEL;
use super::comparability::{self, Incomparable, Rules};
use super::contract::MODE_MARK;
use super::error::Error;
use super::fact_difference::{self, FactDifference};
use super::gates::GateState;
use super::results::{Bench, MeasuredCell, factor_words};
use super::{ScoreKind, disturbance, merged_marks};
use analysis::text::digits;
use model::counted;
use serde::Serialize;
use stats::cells::{self, Comparison, Pairing};
use stats::steady::{Class, Consistency};
use stats::verdict::{self, Better, Verdict};
use stats::{fdr, geomean, rank, ratio};
use std::collections::{BTreeMap, BTreeSet};

/// The share of the reported differences that may be false: the false discovery rate of a comparison.
const FALSE_DISCOVERY_RATE: f64 = 0.05;

/// The score of a cell on one side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// The score; `None` if fewer than two processes gave one.
    pub estimate: Option<f64>,
    /// Bounds of its confidence interval.
    pub ci95: Option<[f64; 2]>,
    pub processes: usize,
    /// Behaviour of the processes over their iterations.
    pub class: Option<Consistency>,
    /// Processes without a result.
    pub failed: usize,
    /// Each process's score.
    pub values: Vec<f64>,
    /// The command of its processes, with per-process placeholders unexpanded.
    pub command: Vec<String>,
}

/// A second opinion, based on ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankTest {
    /// Mann-Whitney's two-sided p value.
    pub mann_whitney_p: Option<f64>,
    /// Hodges and Lehmann's shift of the scores, B minus A.
    pub shift: Option<f64>,
    /// Its interval of 0.95.
    pub shift_ci95: Option<[f64; 2]>,
    /// Cliff's delta: how much more often B's processes have the larger score, -1 to 1.
    pub cliffs_delta: Option<f64>,
}

/// A cell of both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// The design's name.
    pub workload: String,
    /// The factors that both have in common.
    pub parameters: BTreeMap<String, String>,
    /// The metric, such as `latency.p99`, if it is not the cell's own score.
    pub score: Option<String>,
    /// The values of A and B, if they differ in one factor on purpose: `int` and `tiered`.
    pub levels: Option<[String; 2]>,
    /// Unit of the scores.
    pub unit: String,
    /// Whether a larger score is better.
    pub higher_is_better: bool,
    /// The first side.
    pub a: Side,
    /// The second side.
    pub b: Side,
    /// Score of B / score of A.
    pub ratio: Option<f64>,
    /// Bounds of its confidence interval.
    pub ratio_ci95: Option<[f64; 2]>,
    /// For a cell that is faster or slower: the interval adjusted for the selection (false coverage rate), so that one in twenty
    /// of the intervals of reported differences misses the true value.
    pub ratio_ci_adjusted: Option<[f64; 2]>,
    /// The level of the adjusted interval.
    pub adjusted_level: Option<f64>,
    /// How the interval was computed.
    pub method: String,
    /// p value for a ratio of 1.
    pub p: Option<f64>,
    /// The same, adjusted over all pairs (Benjamini and Hochberg).
    pub p_adjusted: Option<f64>,
    /// Relative differences above this count as a difference.
    pub margin: f64,
    /// `faster`, `slower`, `equivalent`, `inconclusive` or `disturbed`: B relative to A.
    pub verdict: Verdict,
    /// The test based on ranks.
    pub second: RankTest,
    /// Caveats for the verdict.
    pub notes: Vec<String>,
    /// The notes about gates that were not passed and about disturbances.
    #[serde(skip)]
    pub gates: Vec<String>,
}

/// A cell without a counterpart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnmatchedCell {
    /// `a` or `b`.
    pub of: &'static str,
    /// The design's name.
    pub workload: String,
    /// Factors.
    pub parameters: BTreeMap<String, String>,
    /// The metric, if it is not the cell's own score.
    pub score: Option<String>,
}

/// All pairs as one number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverallSpeed {
    /// Speed of B relative to A, geometric mean; above 1 is faster, whatever the scores' units.
    pub speed: f64,
    /// Its confidence interval.
    pub ci95: [f64; 2],
    /// Number of cells included.
    pub cells: usize,
    /// How it was computed.
    pub method: String,
}

/// The comparison: the contract of `fathom bench compare --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchComparison {
    pub version: u32,
    /// Name of the first archive.
    pub a: String,
    /// Name of the second; the same if modes of one archive are compared.
    pub b: String,
    /// The factor whose values are compared, within one archive.
    pub by: Option<String>,
    /// Noise: the difference that A/A cells of these archives show although nothing differs.
    pub noise: Option<f64>,
    /// The cells of both.
    pub results: Vec<Pair>,
    /// Cells that both have, but that are different quantities.
    pub incomparable: Vec<Incomparable>,
    /// Cells without a counterpart.
    pub unmatched: Vec<UnmatchedCell>,
    /// All pairs as one number; for two cells or more.
    pub overall: Option<OverallSpeed>,
    /// What differed between the machines.
    pub differs: Vec<FactDifference>,
    /// The scope of the result.
    pub scope: String,
}

/// Two matching cells, with their names.
struct Match<'a> {
    a: &'a MeasuredCell<'a>,
    b: &'a MeasuredCell<'a>,
    parameters: BTreeMap<String, String>,
    levels: Option<[String; 2]>,
}

/// The version of the contract. 2 lists incomparable cells, and has each side's command; 3 renamed `ratio_ci_told` and
/// `level_told` to `ratio_ci_adjusted` and `adjusted_level`.
const COMPARISON_VERSION: u32 = 3;

/// Compares the cells that both archives have.
pub fn compare_archives(a: &Bench, b: &Bench, rules: &Rules) -> BenchComparison {
    let (first, second) = (a.scores(), b.scores());
    let of = |all: &'_ [MeasuredCell]| -> BTreeSet<Key> { all.iter().map(|m| match_key(m, &m.factors)).collect() };
    let (in_a, in_b) = (of(&first), of(&second));
    let matches: Vec<Match> = first
        .iter()
        .filter_map(|x| {
            let y = second.iter().find(|y| match_key(y, &y.factors) == match_key(x, &x.factors))?;
            Some(Match { a: x, b: y, parameters: distinguishing_factors(x), levels: None })
        })
        .collect();
    let mut unmatched = Vec::new();
    unmatched
        .extend(first.iter().filter(|m| !in_b.contains(&match_key(m, &m.factors))).map(|m| unmatched_cell("a", m)));
    unmatched
        .extend(second.iter().filter(|m| !in_a.contains(&match_key(m, &m.factors))).map(|m| unmatched_cell("b", m)));
    build_comparison((a, &first), (b, &second), matches, unmatched, rules)
}

/// Compares the cells of `a` that have the first of two values of the factor `by` with those of `b` that have the second, if
/// all other factors that all of these cells have are equal.
///
/// # Errors
/// One of the archives has no such cell.
pub fn compare_across(
    a: &Bench,
    b: &Bench,
    by: &str,
    values: [&str; 2],
    rules: &Rules,
) -> Result<BenchComparison, Error> {
    let (first, second) = (a.scores(), b.scores());
    let mut sides = [Vec::new(), Vec::new()];
    for (side, (all, bench, value)) in sides.iter_mut().zip([(&first, a, values[0]), (&second, b, values[1])]) {
        side.extend(all.iter().filter(|m| m.factors.get(by).is_some_and(|v| v == value)));
        if side.is_empty() {
            let there: BTreeSet<&str> = all.iter().filter_map(|m| Some(m.factors.get(by)?.as_str())).collect();
            let there = there.into_iter().map(String::from).collect();
            return Err(Error::NoCell { archive: bench.name.clone(), factor: by.into(), value: value.into(), there });
        }
    }
    let [of_a, of_b] = &sides;
    // Factors that only the command of one value uses do not prevent a match.
    let shared = |name: &str, design: &str| {
        of_a.iter().chain(of_b).filter(|m| m.design.name == design).all(|m| m.factors.contains_key(name))
    };
    let rest = |m: &MeasuredCell| {
        let mut factors = m.factors.clone();
        factors.retain(|name, _| name != by && shared(name, &m.design.name));
        factors
    };
    let mut matched: BTreeSet<(u64, Option<&str>)> = BTreeSet::new();
    let mut matches = Vec::new();
    let mut unmatched = Vec::new();
    for &x in of_a {
        let same = |y: &&&MeasuredCell| {
            match_key(y, &rest(y)) == match_key(x, &rest(x)) && !matched.contains(&(y.cell.id, y.extra_metric()))
        };
        match of_b.iter().find(same).copied() {
            Some(y) => {
                matched.insert((y.cell.id, y.extra_metric()));
                let levels = Some(values.map(String::from));
                matches.push(Match { a: x, b: y, parameters: rest(x), levels });
            }
            None => unmatched.push(unmatched_cell("a", x)),
        }
    }
    unmatched.extend(
        of_b.iter().filter(|y| !matched.contains(&(y.cell.id, y.extra_metric()))).map(|y| unmatched_cell("b", y)),
    );
    Ok(build_comparison((a, &first), (b, &second), matches, unmatched, rules))
}

/// Key by which scores of two archives match: the design's name, the factors, the name of a comparison's cell, and the metric of
/// a further score.
type Key = (String, BTreeMap<String, String>, Option<String>, Option<String>);

fn match_key(m: &MeasuredCell, factors: &BTreeMap<String, String>) -> Key {
    (m.design.name.clone(), factors.clone(), comparison_cell_name(m), m.extra_metric().map(String::from))
}

fn unmatched_cell(of: &'static str, m: &MeasuredCell) -> UnmatchedCell {
    UnmatchedCell {
        of,
        workload: m.design.name.clone(),
        parameters: distinguishing_factors(m),
        score: m.extra_metric().map(String::from),
    }
}

/// Compares two archives with matched cells.
fn build_comparison(
    (a, first): (&Bench, &[MeasuredCell]),
    (b, second): (&Bench, &[MeasuredCell]),
    matches: Vec<Match>,
    unmatched: Vec<UnmatchedCell>,
    rules: &Rules,
) -> BenchComparison {
    let (matches, incomparable) = split_comparable(matches, rules);
    let all: Vec<&MeasuredCell> = first.iter().chain(second).collect();
    let noise =
        self_comparison_noise(first, None).into_iter().chain(self_comparison_noise(second, None)).reduce(f64::max);
    BenchComparison {
        version: COMPARISON_VERSION,
        a: a.name.clone(),
        b: b.name.clone(),
        by: None,
        noise,
        overall: overall_speed(&matches, Pairing::Unpaired, rules),
        results: build_pairs(&matches, Pairing::Unpaired, &all, rules),
        incomparable,
        unmatched,
        differs: fact_difference::differing_facts(&a.tables.environment, &b.tables.environment),
        scope: fact_difference::scope(&a.tables.environment, &b.tables.environment),
    }
}

/// Separates the pairs that are the same quantity from the others.
fn split_comparable<'a>(matches: Vec<Match<'a>>, rules: &Rules) -> (Vec<Match<'a>>, Vec<Incomparable>) {
    let (mut can, mut cannot) = (Vec::new(), Vec::new());
    // An open loop sends at the rate it was given: that is neither a gain nor a loss, and is reported with its latencies.
    for m in matches.into_iter().filter(|m| !(m.a.is_offered() && m.b.is_offered())) {
        let why = comparability::why_not(m.a, m.b, m.levels.is_some(), rules);
        if why.is_empty() {
            can.push(m);
        } else {
            let (workload, parameters) = (m.a.design.name.clone(), m.parameters);
            let score = m.a.extra_metric().map(String::from);
            cannot.push(Incomparable { workload, parameters, score, levels: m.levels, why });
        }
    }
    (can, cannot)
}

/// Compares the values of one factor within an archive: each with `base`, or with the first value.
///
/// # Errors
/// No cell has that factor, or none has that value.
pub fn compare_within(bench: &Bench, by: &str, base: Option<&str>, rules: &Rules) -> Result<BenchComparison, Error> {
    let all = bench.scores();
    let with: Vec<&MeasuredCell> = all.iter().filter(|m| m.factors.contains_key(by)).collect();
    if with.is_empty() {
        let names: BTreeSet<&String> = all.iter().flat_map(|m| m.factors.keys()).collect();
        return Err(Error::NoFactor { factor: by.into(), there: names.into_iter().cloned().collect() });
    }
    if let Some(base) = base.filter(|base| !with.iter().any(|m| m.factors[by] == *base)) {
        let values: BTreeSet<&String> = with.iter().map(|m| &m.factors[by]).collect();
        let there = values.into_iter().cloned().collect();
        return Err(Error::NoBase { factor: by.into(), value: base.into(), there });
    }
    // A cell has only the factors that its command uses: factors that one mode has and the other does not (how often a
    // compiler gets the chance to compile) do not prevent a match.
    let shared = |name: &String, design: u64| {
        with.iter().filter(|m| m.design.id == design).all(|m| m.factors.contains_key(name))
    };
    let rest = |m: &MeasuredCell| {
        let mut factors = m.factors.clone();
        factors.retain(|name, _| name != by && shared(name, m.design.id));
        (m.design.id, factors, comparison_cell_name(m), m.extra_metric().map(String::from))
    };
    let first = |m: &MeasuredCell| {
        with.iter().find(|x| rest(x) == rest(m) && base.is_none_or(|base| x.factors[by] == base)).copied()
    };
    let mut matches = Vec::new();
    let mut unmatched = Vec::new();
    for m in &with {
        match first(m) {
            Some(a) if a.cell.id == m.cell.id => {}
            Some(a) if a.factors[by] != m.factors[by] => matches.push(Match {
                a,
                b: m,
                parameters: rest(m).1,
                levels: Some([a.factors[by].clone(), m.factors[by].clone()]),
            }),
            _ => unmatched.push(unmatched_cell("b", m)),
        }
    }
    if matches.is_empty() {
        let values: BTreeSet<&str> = with.iter().map(|m| m.factors[by].as_str()).collect();
        let values: Vec<String> = values.into_iter().map(String::from).collect();
        let factor = by.into();
        return Err(match &values[..] {
            [one] => Error::OneValue { factor, value: one.clone() },
            _ => Error::NotAlone { factor, values },
        });
    }
    let (matches, incomparable) = split_comparable(matches, rules);
    let noise = self_comparison_noise(&all, None);
    let every: Vec<&MeasuredCell> = all.iter().collect();
    Ok(BenchComparison {
        version: COMPARISON_VERSION,
        a: bench.name.clone(),
        b: bench.name.clone(),
        by: Some(by.into()),
        noise,
        overall: None,
        results: build_pairs(&matches, Pairing::Blocks, &every, rules),
        incomparable,
        unmatched,
        differs: Vec::new(),
        scope: fact_difference::scope(&bench.tables.environment, &bench.tables.environment),
    })
}

/// The cells of a comparison have names instead of factors.
fn comparison_cell_name(m: &MeasuredCell) -> Option<String> {
    (m.design.baseline.is_some() || m.factors.is_empty()).then(|| m.cell.name.clone())
}

/// Returns what distinguishes a cell from the others of its design.
pub(super) fn distinguishing_factors(m: &MeasuredCell) -> BTreeMap<String, String> {
    match comparison_cell_name(m) {
        Some(name) => m.factors.clone().into_iter().chain([("cell".to_string(), name)]).collect(),
        None => m.factors.clone(),
    }
}

/// Returns the blocks in which both cells have a result.
fn common_blocks(a: &MeasuredCell, b: &MeasuredCell) -> Vec<u64> {
    let of = |m: &MeasuredCell| m.processes.iter().map(|r| r.row.block).collect::<BTreeSet<u64>>();
    of(a).intersection(&of(b)).copied().collect()
}

/// Returns both cells as costs, so that the first's mean divided by the second's is how much better or larger B is.
fn cost_cells(a: &MeasuredCell, b: &MeasuredCell, pairing: Pairing) -> Option<(cells::Cell, cells::Cell)> {
    let blocks = (pairing == Pairing::Blocks).then(|| common_blocks(a, b));
    let of = |m: &MeasuredCell| m.costs(blocks.as_deref());
    Some((of(a)?, of(b)?))
}

/// Returns score of B / score of A, with an interval of this level.
pub(super) fn ratio_of(a: &MeasuredCell, b: &MeasuredCell, pairing: Pairing, level: f64) -> Option<Comparison> {
    let (x, y) = cost_cells(a, b, pairing)?;
    // For a rate the stored value is its cost: the smaller, the higher the score.
    match a.score().kind {
        ScoreKind::Rate => cells::ratio(&x, &y, pairing, level),
        _ => cells::ratio(&y, &x, pairing, level),
    }
}

/// Returns the largest difference that a cell under two names shows, in its own score or in a further one.
fn self_comparison_noise<'a>(
    all: impl IntoIterator<Item = &'a MeasuredCell<'a>> + Clone,
    further: Option<&str>,
) -> Option<f64> {
    let of_it = || all.clone().into_iter().filter(|m| m.extra_metric() == further);
    let twin = |m: &MeasuredCell| {
        let name = m.cell.same_as.as_ref()?;
        // Two archives have cells of the same number: a twin's original is in the same archive.
        let original = of_it().find(|x| std::ptr::eq(x.design, m.design) && x.cell.name == *name)?;
        Some(ratio::self_check(&ratio_of(original, m, Pairing::Blocks, CONFIDENCE_LEVEL)?.ratio).noise)
    };
    of_it().filter_map(twin).reduce(f64::max)
}

fn build_pairs(matches: &[Match], pairing: Pairing, all: &[&MeasuredCell], rules: &Rules) -> Vec<Pair> {
    let scores: BTreeSet<Option<&str>> = matches.iter().map(|m| m.a.extra_metric()).collect();
    let noises: BTreeMap<Option<&str>, Option<f64>> =
        scores.into_iter().map(|score| (score, self_comparison_noise(all.iter().copied(), score))).collect();
    let ratios: Vec<Option<Comparison>> =
        matches.iter().map(|m| ratio_of(m.a, m.b, pairing, CONFIDENCE_LEVEL)).collect();
    // Cells without a ratio are not tests, and do not make it harder for the others.
    let tested: Vec<f64> = ratios.iter().flatten().map(|r| r.p).collect();
    let adjusted = fdr::adjust(&tested, FALSE_DISCOVERY_RATE);
    let mut p_values = adjusted.iter().flat_map(|adjusted| adjusted.p_values.clone());
    let level = adjusted.as_ref().and_then(|adjusted| adjusted.level);
    let one = |(m, r): (&Match, Option<Comparison>)| {
        let p_adjusted = r.and_then(|_| p_values.next());
        let better = comparability::common_direction(m.a, m.b, rules).ok()?;
        let margin = verdict::margin(noises.get(&m.a.extra_metric()).copied().flatten());
        let mut pair = build_pair(m, r, p_adjusted, (margin, better));
        if let Some(level) = level.filter(|_| matches!(pair.verdict, Verdict::Faster | Verdict::Slower)) {
            let again = ratio_of(m.a, m.b, pairing, level).map(|c| [c.ratio.low, c.ratio.high]);
            (pair.ratio_ci_adjusted, pair.adjusted_level) = (again, again.map(|_| level));
        }
        pair.notes.extend(comparability::different_commands_note(m.a, m.b, rules).filter(|_| m.levels.is_none()));
        Some(pair)
    };
    matches.iter().zip(ratios).filter_map(one).collect()
}

fn build_pair(m: &Match, ratio: Option<Comparison>, p_adjusted: Option<f64>, (margin, better): (f64, Better)) -> Pair {
    let uncorrected = ratio.map(|r| verdict::judge(&r.ratio, better, margin));
    let verdict = match uncorrected {
        Some(v) => v.among_many(p_adjusted.unwrap_or(f64::NAN), FALSE_DISCOVERY_RATE),
        None => Verdict::Inconclusive,
    };
    let (a, b) = (build_side(m.a), build_side(m.b));
    let second = rank_test(&a.values, &b.values);
    let gates = machine_notes(m);
    Pair {
        workload: m.a.design.name.clone(),
        parameters: m.parameters.clone(),
        score: m.a.extra_metric().map(String::from),
        levels: m.levels.clone(),
        unit: m.a.estimate.unit.clone(),
        higher_is_better: better == Better::Higher,
        notes: pair_notes(
            m,
            &second,
            &gates,
            uncorrected,
            verdict,
            ratio.map(|r| verdict::is_surely_beyond(&r.ratio, margin)),
        ),
        gates,
        a,
        b,
        ratio: ratio.map(|r| r.ratio.value),
        ratio_ci95: ratio.map(|r| [r.ratio.low, r.ratio.high]),
        ratio_ci_adjusted: None,
        adjusted_level: None,
        method: ratio.map_or_else(String::new, |r| r.ratio.method.into()),
        p: ratio.map(|r| r.p),
        p_adjusted,
        margin,
        verdict: if m.a.estimate.is_disturbed() || m.b.estimate.is_disturbed() { Verdict::Disturbed } else { verdict },
        second,
    }
}

fn build_side(m: &MeasuredCell) -> Side {
    let e = &m.estimate;
    Side {
        estimate: e.estimate,
        ci95: e.ci95,
        processes: e.processes,
        class: e.class,
        failed: e.failed,
        values: m.scores(),
        command: comparability::command_words(m),
    }
}

fn rank_test(a: &[f64], b: &[f64]) -> RankTest {
    let shift = rank::shift(b, a, CONFIDENCE_LEVEL);
    RankTest {
        mann_whitney_p: rank::mann_whitney(b, a).map(|t| t.p),
        shift: shift.map(|s| s.value),
        shift_ci95: shift.map(|s| [s.low, s.high]),
        cliffs_delta: rank::cliffs_delta(b, a),
    }
}

/// Notes on the state of the machine, which slows things down and hides differences: gates that were not passed, and disturbances.
fn machine_notes(m: &Match) -> Vec<String> {
    let mut gates = Vec::new();
    for (which, x) in [("A", m.a), ("B", m.b)] {
        let before = x.estimate.gates.iter().filter(|(gate, _)| !disturbance::is_during_run(gate));
        let failed = before.filter_map(|(gate, states)| Some((gate, states.get(&GateState::Failed)?)));
        let processes = |n: u64| counted(n as usize, "process");
        gates.extend(failed.map(|(gate, n)| format!("{which}: gate {gate} not passed before {}", processes(*n))));
        if let (n @ 1.., all) = x.estimate.disturbed() {
            let done = if x.estimate.is_disturbed() { Verdict::Disturbed.name() } else { "excluded" };
            let of = processes(all as u64);
            gates.push(format!("{which}: {n} of {of} disturbed by others while measured ({done})"));
        }
    }
    gates
}

fn pair_notes(
    m: &Match,
    second: &RankTest,
    gates: &[String],
    uncorrected: Option<Verdict>,
    verdict: Verdict,
    surely_beyond: Option<bool>,
) -> Vec<String> {
    let mut notes = Vec::new();
    let (has_ratio, surely_beyond) = (surely_beyond.is_some(), surely_beyond.unwrap_or(false));
    if !has_ratio {
        notes.push("too few results for a ratio".into());
    }
    if uncorrected.is_some_and(|v| v != verdict) {
        notes.push("significant by itself, but not after correction for the number of cells".into());
    }
    if matches!(verdict, Verdict::Faster | Verdict::Slower)
        && second.mann_whitney_p.is_none_or(|p| p >= FALSE_DISCOVERY_RATE)
    {
        notes.push("not confirmed by ranks (Mann-Whitney)".into());
    }
    if matches!(verdict, Verdict::Faster | Verdict::Slower) && !surely_beyond {
        notes.push("a significant difference; its interval reaches into the margin".into());
    }
    if m.a.design.quick || m.b.design.quick {
        notes.push("quick run".into());
    }
    for (which, x) in [("A", m.a), ("B", m.b)] {
        notes.extend(achieved_rate_note(x).map(|adjusted| format!("{which}: {adjusted}")));
        let unsteady =
            |c: &Consistency| matches!(c, Consistency::Inconsistent | Consistency::Consistent(Class::NoSteadyState));
        notes.extend(x.estimate.class.filter(unsteady).map(|class| format!("{which}: {}", class.name())));
        if x.estimate.failed > 0 {
            notes.push(format!("{which}: {} failed", counted(x.estimate.failed, "process")));
        }
    }
    notes.extend_from_slice(gates);
    // The proof of a mode, the state of a cache: what the processes report must be what is compared. Free space always differs.
    for (name, texts) in m.a.marks.iter().filter(|(name, _)| !["inner", "fs.free"].contains(&name.as_str())) {
        let differ = |other: &BTreeMap<String, u64>| {
            if name == MODE_MARK {
                let a: Vec<&str> = texts.keys().map(String::as_str).collect();
                let b: Vec<&str> = other.keys().map(String::as_str).collect();
                merged_marks::contradict(&a, &b)
            } else {
                !other.keys().eq(texts.keys())
            }
        };
        if m.levels.is_none() && m.b.marks.get(name).is_some_and(differ) {
            notes.push(format!("the processes report different values of {name}"));
        }
    }
    notes
}

/// Describes the rate achieved by an open loop. It is needed to interpret every latency: where less was achieved than
/// offered, the peer could not keep up.
fn achieved_rate_note(m: &MeasuredCell) -> Option<String> {
    let offered = m.offered?;
    let rates = m.processes.iter().filter_map(|r| r.process.achieved);
    let rate = stats::quantile::of_unsorted(&rates.collect::<Vec<_>>(), 0.5)?;
    Some(format!("{} requests/s were offered and {} achieved", digits(offered), digits(rate)))
}

fn overall_speed(matches: &[Match], pairing: Pairing, rules: &Rules) -> Option<OverallSpeed> {
    let oriented = |m: &Match| {
        let (a, b) = cost_cells(m.a, m.b, pairing)?;
        // Costs of a rate, and scores of which less is better, are divided A by B: above 1 is faster.
        let costs = m.a.score().kind == ScoreKind::Rate
            || comparability::common_direction(m.a, m.b, rules).ok()? == Better::Lower;
        let (x, y) = if costs { (a, b) } else { (b, a) };
        cells::ratio(&x, &y, pairing, CONFIDENCE_LEVEL)
    };
    // Latency percentiles of a cell measure the time of the same processes again, which an overall number must not count twice.
    let counts = |m: &&Match| m.a.extra.is_none() && !m.a.estimate.is_disturbed() && !m.b.estimate.is_disturbed();
    let all: Vec<_> = matches.iter().filter(counts).filter_map(oriented).collect();
    if all.len() < 2 {
        return None;
    }
    let mean = geomean::ratios(&all)?;
    Some(OverallSpeed { speed: mean.value, ci95: [mean.low, mean.high], cells: all.len(), method: mean.method.into() })
}

impl BenchComparison {
    /// Returns the parameters that all cells of each workload share, for workloads with more than one.
    pub fn shared_parameters(&self) -> BTreeMap<&str, BTreeMap<String, String>> {
        let mut all: BTreeMap<&str, (usize, BTreeMap<String, String>)> = BTreeMap::new();
        for p in &self.results {
            let (n, same) = all.entry(&p.workload).or_insert_with(|| (0, p.parameters.clone()));
            *n += 1;
            same.retain(|name, value| p.parameters.get(name) == Some(value));
        }
        all.into_iter().filter(|(_, (n, same))| *n > 1 && !same.is_empty()).map(|(w, (_, same))| (w, same)).collect()
    }

    /// Returns the pairs that take more than `percent` longer (0: by more than the margin).
    pub fn slower(&self, percent: f64) -> Vec<&Pair> {
        let by = |p: &&Pair| {
            let speed = p.ratio.map(|r| if p.higher_is_better { r } else { 1.0 / r });
            p.verdict == Verdict::Slower && speed.is_some_and(|s| s < 1.0 / (1.0 + percent / 100.0))
        };
        self.results.iter().filter(by).collect()
    }
}

impl Pair {
    /// Whether the other is another score of the same cell.
    pub fn is_of_cell(&self, other: &Self) -> bool {
        (&self.workload, &self.parameters, &self.levels) == (&other.workload, &other.parameters, &other.levels)
    }

    /// Returns the cell in words: `cpu kernel=fft`, or `cpu kernel=fft: int -> tiered`.
    pub fn title(&self) -> String {
        self.title_without(&BTreeMap::new())
    }

    /// Returns the title without these parameters, which others share.
    pub fn title_without(&self, shared: &BTreeMap<String, String>) -> String {
        let own = self.parameters.iter().filter(|(name, _)| !shared.contains_key(*name));
        let parameters = factor_words(&own.map(|(name, value)| (name.clone(), value.clone())).collect());
        let levels = self.levels.as_ref().map_or_else(String::new, |[a, b]| format!(": {a} -> {b}"));
        let score = self.score.as_ref().map_or_else(String::new, |metric| format!(" {metric}"));
        format!("{} {parameters}{score}{levels}", self.workload).trim().to_string()
    }
}
