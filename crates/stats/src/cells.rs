//! Estimates from processes that each ran many iterations: the score of a cell, and the ratio of two.
//!
//! **The unit of repetition is the process.** Memory layout, hash seeds and the compiler's choices differ from process to
//! process and are the same for all iterations of one. A thousand iterations of one process do not predict the next process. So
//! a process contributes one number, the mean of its iterations, and every interval here comes from the differences between
//! processes.
//!
//! **The quantity estimated is the typical process**: for a cell the median over processes
//! ([`crate::median::interpolated`]), for two cells the ratio of their typical processes (the median of the ratios of
//! processes of one to processes of the other: all of them if nothing links the two, [`crate::rank::difference`], those
//! of neighbouring blocks if they ran in blocks, [`crate::within::difference`]). The mean is unsuitable: one process in
//! fifty that is delayed tenfold moves the mean by a fifth, and no interval from fifty processes, least of all a
//! studentised one, accounts for how often that happens. If a slower cell is slower by one factor in all of its
//! processes, like a changed program, the ratio of the medians is the ratio of the means as well.
//!
//! The rank tests behind the ratios are exact (of unpaired cells up to 50 processes each; above they are approximated) for any noise that is the same for both cells: heavy tails, two modes, a few
//! disturbed processes. `simulation` tests them on the shapes of noise that machines produce; docs/results/coverage.md has the
//! figures.
//!
//! Ratios are computed from logarithms, so that A / B and B / A are reciprocals, including their bounds.

use crate::within::Difference;
use crate::{Estimate, median, rank, within};

/// The processes of a cell, each with the mean of its iterations.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    means: Vec<f64>,
}

impl Cell {
    /// Creates a cell from processes, in the order in which they ran, each with its valid iterations (steady ones:
    /// [`crate::steady::Classification::part`]), such as times in ns. `None` if there are fewer than two processes, one
    /// has no iteration, or a value is not finite.
    pub fn new<P: AsRef<[f64]>>(processes: &[P]) -> Option<Self> {
        let finite = |p: &P| !p.as_ref().is_empty() && p.as_ref().iter().all(|v| v.is_finite());
        if processes.len() < 2 || !processes.iter().all(finite) {
            return None;
        }
        let means: Vec<f64> = processes.iter().map(|p| crate::mean(p.as_ref())).collect();
        means.iter().all(|m| m.is_finite()).then_some(Self { means })
    }

    /// The mean of each process, in the order given.
    pub fn means(&self) -> &[f64] {
        &self.means
    }

    pub fn processes(&self) -> usize {
        self.means.len()
    }

    fn logarithms(&self) -> Option<Vec<f64>> {
        self.means.iter().map(|m| (*m > 0.0).then(|| m.ln())).collect()
    }
}

/// The relation between two cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Their processes are unrelated: another day, another machine.
    Unpaired,
    /// The i-th process of one and the i-th of the other ran in the same block, and blocks are in the order in which they ran, so
    /// that changes of the machine cancel. Both must have the same number of processes.
    Blocks,
}

/// A ratio, and how unlikely it would be without a difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The ratio of typical processes, first / second.
    pub ratio: Estimate,
    /// The two-sided p value for a ratio of 1, from the same test as the interval: above 1 - level if and only if the
    /// interval contains 1 (except for ties).
    pub p: f64,
}

/// The typical process of a cell, with its interval; `None` if there are fewer than five ([`median::VALUES_MIN`]).
pub fn typical_process(cell: &Cell, level: f64) -> Option<Estimate> {
    median::interpolated(&cell.means, level)
}

/// The ratio of the typical processes of two cells, first / second, with its interval; `None` if there are too few for one, if a
/// mean is not positive, or if they are paired but of different numbers.
pub fn ratio(a: &Cell, b: &Cell, pairing: Pairing, level: f64) -> Option<Comparison> {
    let (x, y) = (a.logarithms()?, b.logarithms()?);
    let (Difference { estimate: e, p }, method) = match pairing {
        Pairing::Unpaired => (
            rank::difference(&x, &y, level)?,
            if rank::counts_exactly(x.len(), y.len()) {
                "median ratio of processes, exact rank test"
            } else {
                "median ratio of processes, rank test by normal approximation"
            },
        ),
        Pairing::Blocks => (
            within::difference(&x, &y, level)?,
            "median ratio of processes of neighbouring blocks, exact test by swaps within blocks",
        ),
    };
    let ratio = Estimate { value: e.value.exp(), low: e.low.exp(), high: e.high.exp(), method, ..e };
    [ratio.low, ratio.value, ratio.high].iter().all(|v| v.is_finite()).then_some(Comparison { ratio, p })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten processes of five iterations, all different.
    fn cell(level: f64) -> Cell {
        let time = |i: usize, j: usize| level * (1.0 + 0.01 * (i * 7 % 10) as f64 + 0.001 * (j * 3 % 5) as f64);
        Cell::new(&(0..10).map(|i| (0..5).map(|j| time(i, j)).collect()).collect::<Vec<Vec<f64>>>()).unwrap()
    }

    #[test]
    fn ratio_of_cells_holds_true_ratio() {
        let (a, b) = (cell(2.0), cell(1.0));
        for pairing in [Pairing::Unpaired, Pairing::Blocks] {
            let c = ratio(&a, &b, pairing, 0.95).unwrap();
            assert!(c.ratio.holds(2.0) && (c.ratio.value / 2.0 - 1.0).abs() < 0.01 && c.p < 0.01, "{c:?}");
            let turned = ratio(&b, &a, pairing, 0.95).unwrap();
            assert!((turned.ratio.low * c.ratio.high - 1.0).abs() < 1e-12, "{turned:?}");
            let same = ratio(&a, &a, pairing, 0.95).unwrap();
            assert!(same.ratio.holds(1.0) && same.p > 0.9, "{same:?}");
        }
    }

    #[test]
    fn approximated_ratio_is_not_called_exact() {
        for (processes, exact) in [(50, true), (51, false)] {
            let cell = Cell::new(&(1..=processes).map(|i| [f64::from(i)]).collect::<Vec<_>>()).unwrap();
            let method = ratio(&cell, &cell, Pairing::Unpaired, 0.95).unwrap().ratio.method;
            assert_eq!(method.contains("exact"), exact, "{processes}: {method}");
        }
    }

    /// The interval and the p value come from the same test.
    #[test]
    fn p_is_small_exactly_if_the_interval_excludes_1() {
        let b = cell(1.0);
        for thousandths in 960..=1040 {
            for pairing in [Pairing::Unpaired, Pairing::Blocks] {
                let c = ratio(&cell(f64::from(thousandths) / 1000.0), &b, pairing, 0.95).unwrap();
                assert!((c.p <= 0.05) != c.ratio.holds(1.0) || (c.p - 0.05).abs() < 0.02, "{thousandths}: {c:?}");
            }
        }
    }

    #[test]
    fn few_processes_have_range_or_no_interval() {
        assert_eq!(typical_process(&Cell::new(&[[1.0], [90.0]]).unwrap(), 0.95), None, "two are too few");
        let five = typical_process(&Cell::new(&[[1.0], [2.0], [90.0], [3.0], [2.0]]).unwrap(), 0.95).unwrap();
        assert_eq!((five.low, five.value, five.high), (1.0, 2.0, 90.0));
    }

    #[test]
    fn zero_variance_gives_point_interval() {
        let same = Cell::new(&[[2.0, 2.0]; 10]).unwrap();
        let e = typical_process(&same, 0.95).unwrap();
        assert_eq!((e.low, e.value, e.high), (2.0, 2.0, 2.0));
        for pairing in [Pairing::Unpaired, Pairing::Blocks] {
            let c = ratio(&same, &Cell::new(&[[1.0]; 10]).unwrap(), pairing, 0.95).unwrap();
            assert!((c.ratio.low - 2.0).abs() < 1e-12 && c.ratio.low == c.ratio.high && c.p < 0.01, "{c:?}");
            assert_eq!(ratio(&same, &same, pairing, 0.95).unwrap().p, 1.0);
        }
    }

    #[test]
    fn invalid_input_is_refused() {
        assert_eq!(Cell::new(&[[1.0]]), None, "one process has no spread");
        assert_eq!(Cell::new(&[vec![1.0], vec![]]), None);
        assert_eq!(Cell::new(&[[1.0], [f64::NAN]]), None);
        let ten = cell(1.0);
        let negative = Cell::new(&[[1.0], [-1.0], [1.0], [2.0], [3.0]]).unwrap();
        assert_eq!(ratio(&ten, &negative, Pairing::Unpaired, 0.95), None);
        assert_eq!(ratio(&ten, &Cell::new(&[[1.0]; 8]).unwrap(), Pairing::Blocks, 0.95), None);
        let huge = Cell::new(&[[f64::MAX], [f64::MAX / 2.0], [1.0], [1.0], [1e-300]]).unwrap();
        let _ = (typical_process(&huge, 0.95), ratio(&huge, &huge, Pairing::Unpaired, 0.95));
    }
}
