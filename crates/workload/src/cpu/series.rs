//! A series of timed iterations of one kernel: how many units each does, when it began and how long it took.
//!
//! The clock is read right before a piece of work and right after it, and nothing else happens in between: two clock
//! readings per piece are all that the harness adds to the measurement. Checks, fresh inputs and output lie outside.

use crate::{Error, check_cancelled};
use model::Context;

/// The minimum duration of an iteration whose size is not given: well above the clock's resolution (a nanosecond step,
/// some 20 ns a reading) and the scheduler's tick.
pub const DEFAULT_MIN_MS: &str = "10";

/// How often a size must last long enough before it is accepted: code that is still being compiled gets faster.
const SIZE_CONFIRMATIONS: u32 = 3;

/// A count beyond this is not a sensible size.
pub const INNER_MAX: u64 = 1 << 40;

/// Why a kernel's result is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongResult {
    /// The result is outside the allowed bound; the text has the result.
    #[error("wrong result: {0}")]
    Result(String),
    /// The result is not the known one for this size.
    #[error("wrong result: {found}, expected {known}")]
    Unexpected {
        /// A description of the check, with its numbers.
        found: String,
        /// The expected value of the last of them.
        known: String,
    },
    /// The same input gave a different result than before.
    #[error("{what} differs from {before}, the result of an earlier run on the same input")]
    Unrepeatable {
        /// The result.
        what: String,
        /// The earlier one.
        before: String,
    },
    /// A factorisation ended early.
    #[error("{0}: a pivot was zero, though the matrix is regular")]
    ZeroPivot(&'static str),
    /// There is no result to check.
    #[error("{0}: nothing was run")]
    NothingRun(&'static str),
}

impl From<WrongResult> for Error {
    fn from(wrong: WrongResult) -> Self {
        Self::Failed(wrong.to_string())
    }
}

/// A kernel with its data.
pub trait Load {
    /// Floating-point operations per unit, as counted by the benchmark's definition.
    fn flop(&self) -> f64;

    /// Does `inner` units and times them with [`time`]. A wrong result is an error.
    fn run(&mut self, inner: u64, clock: &mut dyn FnMut() -> u64) -> Result<IterationTime, WrongResult>;

    /// Checks the compiled kernel against known results, on fresh data. Returns a description of the check, with its
    /// numbers.
    fn check(&mut self) -> Result<String, WrongResult>;

    /// Checks the data left by the timed runs, and returns a description of it.
    fn check_data(&mut self) -> Result<String, WrongResult>;
}

/// One iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IterationTime {
    /// Its start, CLOCK_BOOTTIME in ns.
    pub start_ns: u64,
    /// The duration of its work, ns.
    pub duration_ns: u64,
}

/// Times one piece of work, with a clock reading before and after it.
pub fn time<T>(clock: &mut dyn FnMut() -> u64, work: impl FnOnce() -> T) -> (T, IterationTime) {
    let start_ns = clock();
    let result = work();
    let end_ns = clock();
    (result, IterationTime { start_ns, duration_ns: end_ns.saturating_sub(start_ns) })
}

/// How many of its own units each kernel does per common unit: with several kernels, enough for a million operations,
/// so that one number sizes kernels whose units are as different as a point and a matrix.
pub fn shares(loads: &[Box<dyn Load>]) -> Vec<u64> {
    match loads {
        [_] => vec![1],
        loads => loads.iter().map(|l| (1e6 / l.flop()).ceil().max(1.0) as u64).collect(),
    }
}

/// Finds how many units last `min_ns` in every kernel: doubled until they do, three times in a row. These runs are not
/// used for anything else.
pub fn size_iteration(
    loads: &mut [Box<dyn Load>],
    min_ns: u64,
    context: &Context,
    clock: &mut dyn FnMut() -> u64,
) -> Result<u64, Error> {
    let shares = shares(loads);
    let (mut inner, mut long_enough) = (1, 0);
    while long_enough < SIZE_CONFIRMATIONS {
        check_cancelled(context)?;
        let mut shortest = u64::MAX;
        for (load, share) in loads.iter_mut().zip(&shares) {
            shortest = shortest.min(load.run(inner * share, clock)?.duration_ns);
        }
        if shortest >= min_ns {
            long_enough += 1;
        } else if inner < INNER_MAX {
            (inner, long_enough) = (inner * 2, 0);
        } else {
            return Err(Error::Failed(format!("{inner} units took less than {min_ns} ns: the clock does not advance")));
        }
    }
    Ok(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    /// A load whose unit takes a fixed number of ticks of a clock that only advances with its work.
    struct FakeLoad {
        unit: u64,
        flop: f64,
        now: Rc<Cell<u64>>,
        runs: Rc<RefCell<Vec<u64>>>,
    }

    impl Load for FakeLoad {
        fn flop(&self) -> f64 {
            self.flop
        }
        fn run(&mut self, inner: u64, clock: &mut dyn FnMut() -> u64) -> Result<IterationTime, WrongResult> {
            self.runs.borrow_mut().push(inner);
            Ok(time(clock, || self.now.set(self.now.get() + inner * self.unit)).1)
        }
        fn check(&mut self) -> Result<String, WrongResult> {
            Ok(String::new())
        }
        fn check_data(&mut self) -> Result<String, WrongResult> {
            Ok(String::new())
        }
    }

    /// Sizes loads given as ticks and operations per unit.
    fn size_loads(units: &[(u64, f64)], min_ns: u64) -> (u64, Vec<u64>) {
        let (now, runs) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
        let fake = |(unit, flop): &(u64, f64)| -> Box<dyn Load> {
            Box::new(FakeLoad { unit: *unit, flop: *flop, now: now.clone(), runs: runs.clone() })
        };
        let mut loads: Vec<Box<dyn Load>> = units.iter().map(fake).collect();
        let inner = size_iteration(&mut loads, min_ns, &Context::silent(), &mut || now.get()).unwrap();
        (inner, runs.take())
    }

    #[test]
    fn size_is_doubled_until_long_enough_and_confirmed() {
        assert_eq!(size_loads(&[(3, 1.0)], 20), (8, vec![1, 2, 4, 8, 8, 8]));
        assert_eq!(size_loads(&[(1000, 1.0)], 20), (1, vec![1, 1, 1]));
    }

    #[test]
    fn one_inner_count_sizes_several_kernels() {
        // A common unit is a million operations of each, or one unit of a kernel that has more.
        assert_eq!(size_loads(&[(1, 4.0), (100, 7e8)], 150), (2, vec![250_000, 1, 500_000, 2, 500_000, 2, 500_000, 2]));
    }

    #[test]
    fn stopped_clock_is_reported() {
        let fake = FakeLoad { unit: 1, flop: 1.0, now: Rc::default(), runs: Rc::default() };
        assert!(matches!(
            size_iteration(&mut [Box::new(fake)], 5, &Context::silent(), &mut || 7),
            Err(Error::Failed(_))
        ));
    }

    #[test]
    fn clock_is_read_twice_around_work() {
        let mut readings = 0;
        let (seen, timed) = time(
            &mut || {
                readings += 1;
                readings * 10
            },
            || 5,
        );
        assert_eq!((seen, timed, readings), (5, IterationTime { start_ns: 10, duration_ns: 10 }, 2));
    }
}
