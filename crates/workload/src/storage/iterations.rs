//! The amount of work per iteration, if the load itself does not determine it.

use crate::options::{Options, Spec};
use crate::{Error, clock};

/// Option of a load whose iterations have a fixed size.
pub(crate) const ITERATIONS_OPTION: Spec = Spec { name: "iterations", default: "5", help: "timed iterations" };

/// The count of equal parts of an iteration.
pub(crate) const INNER_OPTION: Spec =
    Spec { name: "inner", default: "0", help: "transactions per iteration; 0: sized by --min-iteration-ms" };
/// The minimum duration, for loads whose count per iteration is determined here.
pub(crate) const ITERATION_MS_MIN_OPTION: Spec = Spec {
    name: "min-iteration-ms",
    default: "100",
    help: "minimum duration of an iteration that is sized automatically",
};

/// `--iterations`: at least 1.
pub(crate) fn count(options: &Options) -> Result<u64, Error> {
    match options.get("iterations")? {
        0 => Err(Error::Usage("--iterations must be at least 1".into())),
        n => Ok(n),
    }
}

/// Doubles a count from `first` until `run`, which does that much and returns its duration in ns, takes at least
/// `--min-iteration-ms` and 1000 ticks of the clock.
pub(crate) fn size_iteration(
    options: &Options,
    first: u64,
    mut run: impl FnMut(u64) -> Result<u64, Error>,
) -> Result<u64, Error> {
    let shortest = options.get::<u64>("min-iteration-ms")?.saturating_mul(1_000_000).max(1000 * clock::resolution_ns());
    let mut n = first;
    while run(n)? < shortest && n < 1 << 40 {
        n *= 2;
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_is_doubled_until_long_enough() {
        let options =
            |ms: &str| Options::parse("", &[ITERATION_MS_MIN_OPTION], &[format!("--min-iteration-ms={ms}")]).unwrap();
        let mut counts = Vec::new();
        let found = size_iteration(&options("10"), 3, |n| {
            counts.push(n);
            Ok(n * 1_000_000)
        });
        assert_eq!((found.unwrap(), counts), (12, vec![3, 6, 12]));
        // Never shorter than the clock can resolve.
        assert!(size_iteration(&options("0"), 1, |n| Ok(n * clock::resolution_ns())).unwrap() >= 1000);
    }
}
