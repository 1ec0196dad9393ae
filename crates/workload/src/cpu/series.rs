//! A series of timed iterations of one kernel: how many units each does, and when it began and how long it took.
//!
//! The clock is read right before a piece of work and right after it, and nothing else happens in between: two readings
//! a piece are all that the harness adds to what it measures. Checks, fresh inputs and output lie outside.

use crate::Error;
use model::Context;

/// What one iteration must last at least, if its size is not given: well above the clock's resolution (a nanosecond
/// step, some 20 ns a reading) and the scheduler's tick.
pub const DEFAULT_MIN_MS: &str = "10";

/// How often a size must last long enough before it is taken: code that is still being compiled gets faster.
const CONFIRMATIONS: u32 = 3;

/// Beyond this a doubled count is no sensible size of anything.
const MOST: u64 = 1 << 40;

/// A kernel on its data.
pub trait Load {
    /// Floating-point operations in one unit, as the benchmark's definition counts them.
    fn flop(&self) -> f64;

    /// Does `inner` units and times them with [`time`]. A wrong result is an error.
    fn run(&mut self, inner: u64, clock: &mut dyn FnMut() -> u64) -> Result<Timed, String>;

    /// Checks the compiled kernel against what is known of it, on fresh data. Says what was checked, with its numbers.
    fn check(&mut self) -> Result<String, String>;

    /// Checks what the timed runs left behind, and says what it is.
    fn left(&mut self) -> Result<String, String>;
}

/// One iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// Its begin, CLOCK_BOOTTIME in ns.
    pub start_ns: u64,
    /// How long its work took, ns.
    pub ns: u64,
}

/// Times one piece of work: two readings of the clock around it.
pub fn time<T>(clock: &mut dyn FnMut() -> u64, work: impl FnOnce() -> T) -> (T, Timed) {
    let start_ns = clock();
    let result = work();
    let end_ns = clock();
    (result, Timed { start_ns, ns: end_ns.saturating_sub(start_ns) })
}

/// Finds how many units last `min_ns`: doubled until they do, three times over. These runs count for nothing else.
pub fn size(load: &mut dyn Load, min_ns: u64, context: &Context, clock: &mut dyn FnMut() -> u64) -> Result<u64, Error> {
    let (mut inner, mut long_enough) = (1, 0);
    while long_enough < CONFIRMATIONS {
        if context.cancelled() {
            return Err(Error::Interrupted);
        }
        if load.run(inner, clock).map_err(Error::Failed)?.ns >= min_ns {
            long_enough += 1;
        } else if inner < MOST {
            (inner, long_enough) = (inner * 2, 0);
        } else {
            return Err(Error::Failed(format!("{inner} units took less than {min_ns} ns: the clock stands still")));
        }
    }
    Ok(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load whose unit takes so many ticks of a clock that ticks when it works.
    struct Fake {
        unit: u64,
        now: std::rc::Rc<std::cell::Cell<u64>>,
        runs: Vec<u64>,
    }

    impl Load for Fake {
        fn flop(&self) -> f64 {
            1.0
        }
        fn run(&mut self, inner: u64, clock: &mut dyn FnMut() -> u64) -> Result<Timed, String> {
            self.runs.push(inner);
            Ok(time(clock, || self.now.set(self.now.get() + inner * self.unit)).1)
        }
        fn check(&mut self) -> Result<String, String> {
            Ok(String::new())
        }
        fn left(&mut self) -> Result<String, String> {
            Ok(String::new())
        }
    }

    fn sized(unit: u64, min_ns: u64) -> (u64, Vec<u64>) {
        let now = std::rc::Rc::new(std::cell::Cell::new(0));
        let mut fake = Fake { unit, now: now.clone(), runs: Vec::new() };
        let inner = size(&mut fake, min_ns, &Context::silent(), &mut || now.get()).unwrap();
        (inner, fake.runs)
    }

    #[test]
    fn a_size_is_doubled_until_it_lasts_and_then_confirmed() {
        assert_eq!(sized(3, 20), (8, vec![1, 2, 4, 8, 8, 8]));
        assert_eq!(sized(1000, 20), (1, vec![1, 1, 1]));
    }

    #[test]
    fn a_clock_that_stands_still_is_told() {
        let mut fake = Fake { unit: 1, now: std::rc::Rc::default(), runs: Vec::new() };
        assert!(matches!(size(&mut fake, 5, &Context::silent(), &mut || 7), Err(Error::Failed(_))));
    }

    #[test]
    fn the_clock_is_read_twice_around_the_work() {
        let mut readings = 0;
        let (seen, timed) = time(
            &mut || {
                readings += 1;
                readings * 10
            },
            || 5,
        );
        assert_eq!((seen, timed, readings), (5, Timed { start_ns: 10, ns: 10 }, 2));
    }
}
