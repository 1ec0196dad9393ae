//! Progress of a run, one line a second: converts transferred amounts to rates. Pure.

use crate::spec::{Spec, Traffic};
use model::text::rate;

/// Converts amounts sampled over time to the rates between samples.
#[derive(Debug, Default)]
pub struct Progress {
    /// The time of the first sample with data, s; and the time and amounts of the last sample.
    begun: Option<(f64, f64, Vec<u64>)>,
}

impl Progress {
    /// Adds a sample at `now` s: returns the line to print, if any.
    pub fn line(&mut self, spec: &Spec, now: f64, under_way: bool, amounts: Vec<u64>) -> Option<String> {
        let (at, rates) = self.tick(now, under_way, amounts)?;
        let columns = spec.directions.iter().zip(rates).map(|(direction, of)| match spec.traffic {
            Traffic::Transactions { .. } => format!("{of:.0} transactions/s"),
            _ => format!("{} {}", direction.name(), rate(of * 8.0)),
        });
        Some(format!("{at:6.1} s  {}", columns.collect::<Vec<_>>().join("  ")))
    }

    /// Returns the seconds since the beginning, and the rate of each direction since the last sample. `None` if no data
    /// flows: the counters then belong to the previous run, or connections are still being set up.
    fn tick(&mut self, now: f64, under_way: bool, amounts: Vec<u64>) -> Option<(f64, Vec<f64>)> {
        if !under_way {
            return None;
        }
        let Some((start, last, before)) = &mut self.begun else {
            self.begun = amounts.iter().any(|n| *n > 0).then_some((now, now, amounts));
            return None;
        };
        let rates = amounts.iter().zip(&*before).map(|(n, b)| n.saturating_sub(*b) as f64 / (now - *last)).collect();
        (*last, *before) = (now, amounts);
        Some((now - *start, rates))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_earlier_trial_do_not_count() {
        let mut progress = Progress::default();
        // The last trial of a search had 4 MB; the run after it counts from 0.
        assert_eq!(progress.tick(0.0, false, vec![4_000_000]), None);
        assert_eq!(progress.tick(1.0, true, vec![3_000_000]), None);
        assert_eq!(progress.tick(2.0, true, vec![6_750_000]), Some((1.0, vec![3_750_000.0])));
        assert_eq!(progress.tick(3.0, false, vec![7_000_000]), None);
    }
}
