//! The LINPACK benchmark: a dense system of n equations solved by dgefa and dgesl, counted as 2/3 n^3 + 2 n^2 operations
//! (J. Dongarra). The matrix comes from the published generator; its right-hand side is the sum of each row, so that the
//! solution is all ones.
//!
//! The factors overwrite the matrix, so a new one is made before each solution, outside the measured time. An
//! iteration's time is the sum over its solutions.

use super::Native;
use super::checksum::checksum;
use super::series::{IterationTime, Load, WrongResult, time};

/// A normalised residual of this or more is not a solution by this method in double precision.
const RESIDUAL_LIMIT: f64 = 16.0;

/// The period of the published generator, from which every matrix is drawn.
const GENERATOR_PERIOD: usize = 16_384;

/// Orders and the checksums of their solutions, which every faithful build gives.
pub const SOLUTION_CHECKSUMS: [(usize, u64); 4] = [
    (100, 0x8587_7794_83f3_ff4d),
    (200, 0x7a10_d744_52f2_55c0),
    (500, 0xba93_aa83_8d2f_ee69),
    (1000, 0xfd65_d551_40e2_8f89),
];

/// The system with its storage.
#[derive(Debug)]
pub struct Linpack {
    native: Native,
    n: usize,
    a: Vec<f64>,
    b: Vec<f64>,
    pivot: Vec<i32>,
    /// The checksum of the first solution; all others must be the same.
    sum: Option<u64>,
    solutions: u64,
}

/// Why there is no such system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("{0:?} is not a number of equations")]
    NotANumber(String),
    /// It is too small, or too large for a machine.
    #[error("{0} equations: must be from 2 to 20000")]
    Range(usize),
    #[error("{0} equations are singular: the published generator repeats columns; use an odd number")]
    Singular(usize),
}

/// Parses an order.
///
/// # Errors
/// Describes what is wrong with it.
pub fn parse_order(text: &str) -> Result<usize, OrderError> {
    let n: usize = text.parse().map_err(|_| OrderError::NotANumber(text.into()))?;
    if !(2..=20_000).contains(&n) {
        return Err(OrderError::Range(n));
    }
    // Column j starts where column j + PERIOD / gcd(n, PERIOD) does: then two columns are equal.
    let shared = 1 << n.trailing_zeros().min(GENERATOR_PERIOD.trailing_zeros());
    if n > GENERATOR_PERIOD / shared {
        return Err(OrderError::Singular(n));
    }
    Ok(n)
}

impl Linpack {
    /// Creates the system of `n` equations.
    pub fn new(native: Native, n: usize) -> Self {
        let (a, b) = (vec![0.0; n * (n + 1)], vec![0.0; n]);
        Self { native, n, a, b, pivot: vec![0; n], sum: None, solutions: 0 }
    }

    /// The published matrix and its row sums. Returns the largest value.
    fn generate(&mut self) -> f64 {
        let (mut x, mut largest) = (1325_i32, 0.0_f64);
        self.b.fill(0.0);
        for column in self.a.chunks_exact_mut(self.n + 1) {
            for (value, sum) in column.iter_mut().zip(&mut self.b) {
                x = 3125 * x % 65_536;
                *value = f64::from(x - 32_768) / 16_384.0;
                largest = largest.max(*value);
                *sum += *value;
            }
        }
        largest
    }

    fn solve(&mut self, clock: &mut dyn FnMut() -> u64) -> Result<IterationTime, WrongResult> {
        self.generate();
        let (regular, timed) =
            time(clock, || self.native.linpack(&mut self.a, self.n + 1, &mut self.pivot, &mut self.b));
        if !regular {
            return Err(WrongResult::ZeroPivot("linpack"));
        }
        let sum = checksum(&self.b);
        self.solutions += 1;
        let first = *self.sum.get_or_insert(sum);
        if first != sum {
            let what = format!("solution {} (checksum {sum:016x})", self.solutions);
            return Err(WrongResult::Unrepeatable { what, before: format!("{first:016x}") });
        }
        Ok(timed)
    }

    /// Largest |A x - b|, divided by n, the largest |x|, the largest value of A, and the precision.
    fn residual(&mut self) -> (f64, f64) {
        let x = self.b.clone();
        let largest = self.generate();
        let mut rest: Vec<f64> = self.b.iter().map(|b| -b).collect();
        for (column, x) in self.a.chunks_exact(self.n + 1).zip(&x) {
            rest.iter_mut().zip(column).for_each(|(r, a)| *r += a * x);
        }
        let most =
            |values: &[f64]| values.iter().fold(0.0_f64, |m, v| if v.is_nan() { f64::NAN } else { m.max(v.abs()) });
        let off = x.iter().fold(0.0_f64, |m, v| m.max((v - 1.0).abs()));
        (most(&rest) / (self.n as f64 * largest * most(&x) * f64::EPSILON), off)
    }
}

impl Load for Linpack {
    fn flop(&self) -> f64 {
        let n = self.n as f64;
        2.0 / 3.0 * n * n * n + 2.0 * n * n
    }

    fn run(&mut self, inner: u64, clock: &mut dyn FnMut() -> u64) -> Result<IterationTime, WrongResult> {
        let mut whole: Option<IterationTime> = None;
        for _ in 0..inner {
            let one = self.solve(clock)?;
            whole = Some(IterationTime {
                duration_ns: whole.map_or(0, |w| w.duration_ns) + one.duration_ns,
                ..whole.unwrap_or(one)
            });
        }
        whole.ok_or(WrongResult::NothingRun("linpack"))
    }

    fn check(&mut self) -> Result<String, WrongResult> {
        self.solve(&mut || 0)?;
        let sum = checksum(&self.b);
        let (residual, off) = self.residual();
        let text = format!("normalised residual {residual:.3}, x within {off:.1e} of 1, checksum {sum:016x}");
        let known = SOLUTION_CHECKSUMS.iter().find(|(n, _)| *n == self.n).filter(|_| self.native.is_exact());
        // A NaN residual is not less than anything.
        let solved = residual < RESIDUAL_LIMIT;
        match known {
            _ if !solved => {
                Err(WrongResult::Result(format!("{text}: the residual must be less than {RESIDUAL_LIMIT}")))
            }
            Some((_, known)) if *known != sum => {
                Err(WrongResult::Unexpected { found: text, known: format!("{known:016x}") })
            }
            _ => Ok(text),
        }
    }

    fn check_data(&mut self) -> Result<String, WrongResult> {
        Ok(format!("{} identical solutions", self.solutions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singular_orders_are_refused() {
        for n in ["100", "200", "500", "999", "1000", "1001"] {
            assert!(parse_order(n).is_ok(), "{n}");
        }
        for n in ["0", "1", "-3", "x", "256", "512", "1024", "2000000"] {
            assert!(parse_order(n).is_err(), "{n}");
        }
    }

    #[test]
    fn refused_order_has_two_equal_columns() {
        // 128 is the largest accepted power of two, 256 the first that is refused.
        let mut refused = Linpack::new(Native::Rust, 256);
        refused.generate();
        assert_eq!(refused.a[..256], refused.a[64 * 257..][..256]);
        assert!(Linpack::new(Native::Rust, 128).check().is_ok());
    }

    #[test]
    fn wrong_solution_is_detected() {
        let mut linpack = Linpack::new(Native::Rust, 100);
        linpack.solve(&mut || 0).unwrap();
        assert!(linpack.residual().0 < RESIDUAL_LIMIT);
        linpack.solve(&mut || 0).unwrap();
        linpack.b[17] += 1e-9;
        assert!(linpack.residual().0 > RESIDUAL_LIMIT);
    }
}
