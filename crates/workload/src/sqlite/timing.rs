//! Times of one kind of statement.
//!
//! Two readings of the clock and a place in a histogram are some 50 ns: half a percent of the fastest statement that is a
//! transaction of its own, and more than 2 % of one among many in a transaction. Of those only every [`SAMPLED`]th is timed.

use crate::marks::{Series, Writer};
use crate::{Error, clock, sample};
use hdrhistogram::Histogram;

/// Of statements that share a transaction the latency of every so many-th is measured.
pub(super) const SAMPLED: u64 = 64;

/// Of one iteration.
#[derive(Debug)]
pub(super) struct Timing<'a> {
    series: Series<'a>,
    name: String,
    begin: u64,
    begin_cpu: u64,
    executed: u64,
    /// Every so many-th latency is measured.
    every: u64,
    /// (end, latency) of each, if asked for; room is made before the loop.
    each: Option<Vec<(u64, u64)>>,
}

impl<'a> Timing<'a> {
    /// Begins now. `grouped`: the statements share transactions; `each`: every latency is wanted.
    pub(super) fn new(marks: Option<&'a Writer>, name: &str, expected: u64, grouped: bool, each: bool) -> Self {
        let room = usize::try_from(expected.min(1 << 24)).unwrap_or_default();
        Self {
            series: Series::new(marks, name),
            name: name.to_ascii_lowercase(),
            each: each.then(|| Vec::with_capacity(room)),
            executed: 0,
            every: if grouped && !each { SAMPLED } else { 1 },
            begin_cpu: clock::process_cpu_ns(),
            begin: clock::now_ns(),
        }
    }

    /// Runs one, and times it if its turn has come or a recorder listens.
    pub(super) fn around<T>(&mut self, latencies: &mut Latencies, work: impl FnOnce() -> T) -> T {
        if !self.executed.is_multiple_of(self.every) && !self.series.is_heard() {
            self.executed += 1;
            return work();
        }
        let (result, start, end) = self.series.around(work);
        self.executed += 1;
        latencies.0.saturating_record(end - start);
        if let Some(each) = &mut self.each {
            each.push((end, end - start));
        }
        result
    }

    /// Writes the rate, from before the first to after the last with whatever lay between them, the CPU time that one took
    /// of this process (what others did for it is not in it), and each latency. Returns begin and end.
    pub(super) fn finish(self, lines: &mut Vec<u8>) -> std::io::Result<(u64, u64)> {
        let end = clock::now_ns();
        let cpu = clock::process_cpu_ns() - self.begin_cpu;
        for (t, latency) in self.each.iter().flatten() {
            sample(lines, &format!("{}.latency", self.name), "ns", *t, *latency as f64)?;
        }
        if self.executed > 0 {
            rate(lines, &self.name, self.executed, self.begin, end)?;
            sample(lines, &format!("{}.cpu", self.name), "ns", end, cpu as f64 / self.executed as f64)?;
        }
        Ok((self.begin, end))
    }
}

/// Writes a rate.
pub(super) fn rate(lines: &mut Vec<u8>, name: &str, executed: u64, begin: u64, end: u64) -> std::io::Result<()> {
    let rate = executed as f64 * 1e9 / (end - begin).max(1) as f64;
    sample(lines, &format!("{name}.rate"), "1/s", end, rate)
}

/// Of all statements of a run.
#[derive(Debug)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet; up to an hour, three digits.
    pub(super) fn new() -> Result<Self, Error> {
        let made = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        made.map(Self).map_err(|e| Error::Failed(format!("cannot create a histogram: {e}")))
    }

    /// Percentiles, of one statement each; nothing if there were none.
    pub(super) fn append_to(&self, lines: &mut Vec<u8>) -> std::io::Result<()> {
        let now = clock::now_ns();
        let all = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
        all.iter().filter(|_| !self.0.is_empty()).try_for_each(|(name, q)| {
            sample(lines, &format!("latency.{name}"), "ns", now, self.0.value_at_quantile(*q) as f64)
        })
    }
}
