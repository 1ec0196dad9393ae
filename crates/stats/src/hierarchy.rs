//! Estimates from processes that each ran many iterations: the mean of a cell, and the ratio of two.
//!
//! **What is repeated is the process.** Memory layout, hash seeds and what the compiler chose differ from process to
//! process and are the same for all iterations of one. A thousand iterations of one process know nothing of the next
//! process. So every interval here comes from the differences between the means of processes.
//!
//! **The hierarchical bootstrap** draws processes with replacement, and of each drawn process as many of its iterations
//! as it has, with replacement (Kalibera and Jones, "Quantifying performance changes with effect size confidence
//! intervals", University of Kent 4-12, 2012). Read as a percentile interval this is wrong twice with ten processes: it
//! is too narrow, since the spread of ten is divided by ten and not by nine and a normal tail is used where t's belongs;
//! and it is too wide, since the spread between the drawn means already holds the spread of their iterations, which the
//! second drawing adds again. The **studentised** interval is free of both (Davison and Hinkley, "Bootstrap methods and
//! their application", 2.4 and 3.8): each resample gives its estimate *and* its own standard error from its process
//! means; the quantiles of (estimate* - estimate) / error* take the place of t's. What is too narrow or too wide cancels
//! in the fraction. docs/method.md gives the measured coverage of all of them.
//!
//! With fewer than [`STUDENTISED_FROM`] processes the resamples are too few kinds for that, and Student's t (Welch's
//! degrees of freedom for two arms) is used on the process means, in logarithms where all are positive.
//!
//! Ratios are made of logarithms, so that A / B and B / A are each other's reciprocals, ends included.
//!
//! The order of processes does not matter: they are sorted before any is drawn.

use crate::random::Random;
use crate::{Estimate, bootstrap, student};

/// The fewest processes for which the bootstrap is studentised.
pub const STUDENTISED_FROM: usize = 8;

/// The iterations of each process of a cell; of a process at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub(crate) processes: Vec<Vec<f64>>,
    means: Vec<f64>,
}

impl Cell {
    /// A cell of processes, each with the iterations that count (steady ones: [`crate::steady::Steady::part`]), such as
    /// times in ns. `None` if there are fewer than two processes, one has no iteration, or a value is not finite.
    pub fn new<P: AsRef<[f64]>>(processes: &[P]) -> Option<Self> {
        let finite = |p: &P| !p.as_ref().is_empty() && p.as_ref().iter().all(|v| v.is_finite());
        if processes.len() < 2 || !processes.iter().all(finite) {
            return None;
        }
        let processes: Vec<Vec<f64>> = processes.iter().map(|p| p.as_ref().to_vec()).collect();
        let means = processes.iter().map(|p| crate::mean(p)).collect();
        Some(Self { processes, means })
    }

    /// The mean of each process, in the order given.
    pub fn means(&self) -> &[f64] {
        &self.means
    }

    /// The mean of the processes' means.
    pub fn mean(&self) -> f64 {
        crate::mean(&self.means)
    }

    /// How many processes.
    pub fn processes(&self) -> usize {
        self.means.len()
    }

    fn arranged(&self, order: &[usize]) -> Self {
        Self {
            processes: order.iter().map(|i| self.processes[*i].clone()).collect(),
            means: order.iter().map(|i| self.means[*i]).collect(),
        }
    }

    /// The same processes in an order that does not depend on theirs.
    fn sorted(&self) -> Self {
        let mut order: Vec<usize> = (0..self.means.len()).collect();
        order.sort_by(|a, b| compare(&self.processes[*a], &self.processes[*b]));
        self.arranged(&order)
    }

    /// The mean of as many iterations of a process as it has, drawn with replacement.
    fn redrawn(&self, process: usize, random: &mut Random) -> f64 {
        let values = &self.processes[process];
        let n = values.len() as u64;
        let sum: f64 = (0..n).map(|_| values[random.below(n) as usize]).sum();
        sum / n as f64
    }
}

fn compare(a: &[f64], b: &[f64]) -> std::cmp::Ordering {
    let unequal = a.iter().zip(b).map(|(x, y)| x.total_cmp(y)).find(|o| o.is_ne());
    unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// How two cells belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Their processes have nothing to do with each other: another day, another machine.
    Unpaired,
    /// The i-th process of the one and the i-th of the other ran in the same block, so that what was slow for both
    /// cancels. Both must have equally many.
    Blocks,
}

/// A ratio and how surprising it would be if there were no difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The ratio of the means, first / second.
    pub ratio: Estimate,
    /// The two-sided p value of a ratio of 1, from the same distribution as the interval: below 1 - level if and only if
    /// (up to the resamples' rounding) the interval leaves out 1.
    pub p: f64,
}

/// The mean of a cell over its processes, with its interval.
pub fn mean(cell: &Cell, level: f64, seed: u64) -> Option<Estimate> {
    mean_of(cell, level, bootstrap::RESAMPLES, seed)
}

pub(crate) fn mean_of(cell: &Cell, level: f64, resamples: usize, seed: u64) -> Option<Estimate> {
    let at = student::moments(&cell.means)?;
    if at.n < STUDENTISED_FROM {
        return few(&cell.means, &at, level);
    }
    let draws = mean_draws(cell, resamples, seed);
    let (low, high) = Pivot::new(at.mean, at.error, &draws)?.interval(level)?;
    let method = "mean of processes, studentised hierarchical bootstrap";
    Some(Estimate { value: at.mean, low, high, level, n: at.n, method })
}

/// The interval of few processes. Times and rates are positive, and so are the ends: the error is that of the mean's logarithm,
/// to first order. Where processes agree the two are the same; where they differ by more than their mean, the plain
/// interval would reach below no time at all.
fn few(means: &[f64], at: &student::Moments, level: f64) -> Option<Estimate> {
    if means.iter().any(|m| *m <= 0.0) {
        return student::mean(means, level).map(|e| Estimate { method: "mean of processes, t interval", ..e });
    }
    let (reach, _) = student::reach_and_p(1.0, at.error / at.mean, at.n as f64 - 1.0, level);
    let (low, high) = (at.mean * (-reach).exp(), (at.mean * reach.exp()).min(f64::MAX));
    let method = "mean of processes, t interval of its logarithm";
    Some(Estimate { value: at.mean, low, high, level, n: at.n, method })
}

/// The ratio of the means of two cells, first / second, with its interval; `None` if a mean is not positive, or if they
/// are paired but not equally many.
pub fn ratio(a: &Cell, b: &Cell, pairing: Pairing, level: f64, seed: u64) -> Option<Comparison> {
    ratio_of((a, b), pairing, level, bootstrap::RESAMPLES, seed)
}

pub(crate) fn ratio_of(
    (a, b): (&Cell, &Cell),
    pairing: Pairing,
    level: f64,
    resamples: usize,
    seed: u64,
) -> Option<Comparison> {
    let arms = Arms::new(a, b, pairing)?;
    let at = arms.at()?;
    let n = a.processes().min(b.processes());
    let (low, high, p, method) = if n < STUDENTISED_FROM {
        let (reach, p) = student::reach_and_p(at.log, at.error, at.df, level);
        (at.log - reach, at.log + reach, p, "ratio of means of processes, t interval of its logarithm")
    } else {
        let draws = arms.draws(resamples, seed);
        let pivot = Pivot::new(at.log, at.error, &draws)?;
        let (low, high) = pivot.interval(level)?;
        (low, high, pivot.p(0.0), "ratio of means of processes, studentised hierarchical bootstrap of its logarithm")
    };
    let ratio = Estimate { value: at.log.exp(), low: low.exp(), high: high.exp(), level, n, method };
    (ratio.low.is_finite() && ratio.high.is_finite()).then_some(Comparison { ratio, p })
}

/// A resample: its estimate and its standard error.
pub(crate) type Draw = (f64, f64);

fn mean_draws(cell: &Cell, resamples: usize, seed: u64) -> Vec<Draw> {
    let cell = cell.sorted();
    let n = cell.processes();
    let mut random = Random::new(seed);
    let mut means = vec![0.0; n];
    let one = |_| {
        for mean in &mut means {
            let process = random.below(n as u64) as usize;
            *mean = cell.redrawn(process, &mut random);
        }
        let (mean, variance) = spread(&means);
        (mean, (variance / n as f64).sqrt())
    };
    (0..resamples).map(one).collect()
}

/// Mean and variance (divided by n - 1).
fn spread(values: &[f64]) -> (f64, f64) {
    let mean = crate::mean(values);
    (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64)
}

/// Two cells, sorted.
pub(crate) struct Arms {
    a: Cell,
    b: Cell,
    pairing: Pairing,
}

/// The logarithm of a ratio, its standard error and the degrees of freedom that one has.
pub(crate) struct LogRatio {
    pub(crate) log: f64,
    pub(crate) error: f64,
    pub(crate) df: f64,
}

impl Arms {
    pub(crate) fn new(a: &Cell, b: &Cell, pairing: Pairing) -> Option<Self> {
        let positive = |c: &Cell| c.means.iter().all(|m| *m > 0.0);
        if !positive(a) || !positive(b) || (pairing == Pairing::Blocks && a.processes() != b.processes()) {
            return None;
        }
        let (a, b) = match pairing {
            Pairing::Unpaired => (a.sorted(), b.sorted()),
            Pairing::Blocks => {
                let mut order: Vec<usize> = (0..a.processes()).collect();
                let pair = |i: usize| (&a.processes[i], &b.processes[i]);
                order.sort_by(|i, j| {
                    let (x, y) = (pair(*i), pair(*j));
                    compare(x.0, y.0).then_with(|| compare(x.1, y.1))
                });
                (a.arranged(&order), b.arranged(&order))
            }
        };
        Some(Self { a, b, pairing })
    }

    pub(crate) fn at(&self) -> Option<LogRatio> {
        let (log, error) = log_ratio(&self.a.means, &self.b.means, self.pairing);
        let (x, y) = (student::moments(&self.a.means)?, student::moments(&self.b.means)?);
        let df = match self.pairing {
            Pairing::Unpaired => student::welch_df((x.error / x.mean, x.n), (y.error / y.mean, y.n)),
            Pairing::Blocks => x.n as f64 - 1.0,
        };
        (log.is_finite() && error.is_finite()).then_some(LogRatio { log, error, df })
    }

    /// Resamples of the logarithm of the ratio.
    pub(crate) fn draws(&self, resamples: usize, seed: u64) -> Vec<Draw> {
        let mut random = Random::new(seed);
        let mut a = vec![0.0; self.a.processes()];
        let mut b = vec![0.0; self.b.processes()];
        let one = |_| {
            match self.pairing {
                Pairing::Unpaired => {
                    redraw(&self.a, &mut a, &mut random);
                    redraw(&self.b, &mut b, &mut random);
                }
                Pairing::Blocks => {
                    for (x, y) in a.iter_mut().zip(&mut b) {
                        let block = random.below(self.a.processes() as u64) as usize;
                        *x = self.a.redrawn(block, &mut random);
                        *y = self.b.redrawn(block, &mut random);
                    }
                }
            }
            log_ratio(&a, &b, self.pairing)
        };
        (0..resamples).map(one).collect()
    }
}

fn redraw(cell: &Cell, means: &mut [f64], random: &mut Random) {
    let n = means.len() as u64;
    for mean in means {
        let process = random.below(n) as usize;
        *mean = cell.redrawn(process, random);
    }
}

/// ln(mean a / mean b) and its standard error to first order: a's relative error and b's, or, if paired, the error of
/// the mean of a_i / mean a - b_i / mean b.
fn log_ratio(a: &[f64], b: &[f64], pairing: Pairing) -> (f64, f64) {
    let ((ma, va), (mb, vb)) = (spread(a), spread(b));
    let variance = match pairing {
        Pairing::Unpaired => va / (ma * ma) / a.len() as f64 + vb / (mb * mb) / b.len() as f64,
        Pairing::Blocks => {
            let n = a.len() as f64;
            a.iter().zip(b).map(|(x, y)| (x / ma - y / mb).powi(2)).sum::<f64>() / (n - 1.0) / n
        }
    };
    ((ma / mb).ln(), variance.sqrt())
}

/// An estimate, its error, and the distribution of (estimate* - estimate) / error* over resamples, ascending.
pub(crate) struct Pivot {
    value: f64,
    error: f64,
    quotients: Vec<f64>,
}

impl Pivot {
    pub(crate) fn new(value: f64, error: f64, draws: &[Draw]) -> Option<Self> {
        let quotient = |(v, e): &Draw| {
            let away = v - value;
            // A resample of one process only has no error: it says nothing if it agrees, and everything if not.
            if *e > 0.0 {
                (away / e).clamp(-f64::MAX, f64::MAX)
            } else {
                away.signum() * f64::MAX * f64::from(u8::from(away != 0.0))
            }
        };
        let quotients = crate::sorted(&draws.iter().map(quotient).collect::<Vec<_>>())?;
        Some(Self { value, error, quotients })
    }

    /// The interval; `None` if its ends are not finite.
    pub(crate) fn interval(&self, level: f64) -> Option<(f64, f64)> {
        if self.error == 0.0 {
            return Some((self.value, self.value));
        }
        let tail = (1.0 - level) / 2.0;
        let end = |p| crate::quantile::of_sorted(&self.quotients, p).map(|q| self.value - q * self.error);
        let (low, high) = (end(1.0 - tail)?, end(tail)?);
        // The estimate is inside by definition, whatever a very skewed distribution says.
        (low.is_finite() && high.is_finite()).then(|| (low.min(self.value), high.max(self.value)))
    }

    /// The two-sided p value of `truth`: twice the smaller share of quotients beyond it, at least 2 / (resamples + 1).
    pub(crate) fn p(&self, truth: f64) -> f64 {
        let away = self.value - truth;
        if self.error == 0.0 {
            return f64::from(u8::from(away == 0.0));
        }
        let quotient = away / self.error;
        let n = self.quotients.len();
        let below = self.quotients.partition_point(|q| *q <= quotient);
        let at_least = n - self.quotients.partition_point(|q| *q < quotient);
        (2.0 * (below.min(at_least) + 1) as f64 / (n + 1) as f64).min(1.0)
    }
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
    fn paired_processes_lose_what_they_share() {
        let (a, b) = (cell(2.0), cell(1.0));
        let apart = ratio(&a, &b, Pairing::Unpaired, 0.95, 1).unwrap();
        let together = ratio(&a, &b, Pairing::Blocks, 0.95, 1).unwrap();
        assert!((apart.ratio.value - 2.0).abs() < 1e-12 && (together.ratio.value - 2.0).abs() < 1e-12);
        let width = |c: &Comparison| c.ratio.high - c.ratio.low;
        assert!(width(&together) < width(&apart) / 5.0, "{together:?} {apart:?}");
        assert!(apart.p < 0.001 && together.p < 0.001);
        let same = ratio(&a, &a, Pairing::Unpaired, 0.95, 1).unwrap();
        assert!(same.ratio.holds(1.0) && same.p > 0.9, "{same:?}");
    }

    /// The interval and the p value are two readings of one distribution.
    #[test]
    fn p_is_small_where_the_interval_leaves_out_1() {
        let b = cell(1.0);
        for thousandths in 960..=1040 {
            let c = ratio(&cell(f64::from(thousandths) / 1000.0), &b, Pairing::Unpaired, 0.95, 3).unwrap();
            let clear = (c.p - 0.05).abs() > 0.001;
            assert!(!clear || (c.p < 0.05) != c.ratio.holds(1.0), "{thousandths}: {c:?}");
        }
    }

    /// With few processes, and with many that are nearly normal, both intervals are t's: 1..=10 has the mean 5.5 and the
    /// standard error sqrt(82.5 / 9 / 10).
    #[test]
    fn it_is_near_t_where_t_is_right() {
        let values: Vec<Vec<f64>> = (1..=10).map(|i| vec![f64::from(i)]).collect();
        let e = mean(&Cell::new(&values).unwrap(), 0.95, 1).unwrap();
        let t = 2.262_157 * (82.5_f64 / 90.0).sqrt();
        assert!(((e.high - e.low) / (2.0 * t) - 1.0).abs() < 0.08, "{e:?}, t reaches {t}");
        let few = mean(&Cell::new(&values[..5]).unwrap(), 0.95, 1).unwrap();
        let reach = 2.776_445 * 0.5_f64.sqrt() / 3.0;
        assert!((few.high - 3.0 * reach.exp()).abs() < 1e-5 && (few.low * few.high - 9.0).abs() < 1e-9, "{few:?}");
    }

    #[test]
    fn few_that_differ_much_are_still_positive() {
        let scattered = Cell::new(&[[1.0], [2.0], [90.0]]).unwrap();
        let e = mean(&scattered, 0.95, 1).unwrap();
        assert!(e.low > 0.0 && e.high > 90.0 && e.high.is_finite(), "{e:?}");
        // A metric that may be negative has an interval that may.
        let around = Cell::new(&[[-1.0], [2.0], [1.0]]).unwrap();
        assert!(mean(&around, 0.95, 1).unwrap().low < 0.0);
    }

    #[test]
    fn without_spread_there_is_no_doubt() {
        let same = Cell::new(&[[2.0, 2.0]; 10]).unwrap();
        let e = mean(&same, 0.95, 1).unwrap();
        assert_eq!((e.low, e.value, e.high), (2.0, 2.0, 2.0));
        let c = ratio(&same, &Cell::new(&[[1.0]; 10]).unwrap(), Pairing::Blocks, 0.95, 1).unwrap();
        assert!((c.ratio.low - 2.0).abs() < 1e-12 && c.ratio.low == c.ratio.high && c.p == 0.0, "{c:?}");
        assert_eq!(ratio(&same, &same, Pairing::Unpaired, 0.95, 1).unwrap().p, 1.0);
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Cell::new(&[[1.0]]), None, "one process has no spread");
        assert_eq!(Cell::new(&[vec![1.0], vec![]]), None);
        assert_eq!(Cell::new(&[[1.0], [f64::NAN]]), None);
        let ten = cell(1.0);
        let negative = Cell::new(&[[1.0], [-1.0]]).unwrap();
        assert_eq!(ratio(&ten, &negative, Pairing::Unpaired, 0.95, 1), None);
        assert_eq!(ratio(&ten, &Cell::new(&[[1.0], [2.0]]).unwrap(), Pairing::Blocks, 0.95, 1), None);
        let huge = Cell::new(&[[f64::MAX], [f64::MAX / 2.0], [1.0]]).unwrap();
        let _ = (mean(&huge, 0.95, 1), ratio(&huge, &ten, Pairing::Unpaired, 0.95, 1));
    }
}
