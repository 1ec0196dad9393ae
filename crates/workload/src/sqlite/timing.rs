//! Times of one kind of statement.
//!
//! Two clock readings and an update of a histogram take some 50 ns: half a percent of the fastest statement that is a
//! transaction of its own, and more than 2 % of one among many in a transaction. Of the latter only every [`LATENCY_STRIDE`]th is
//! timed.

use crate::marks::{Series, Writer};
use crate::{Error, clock, write_sample};
use hdrhistogram::Histogram;

/// Of statements that share a transaction, the latency of every this many-th is measured.
pub(super) const LATENCY_STRIDE: u64 = 64;

/// The times of one iteration.
#[derive(Debug)]
pub(super) struct Timing<'a> {
    series: Series<'a>,
    name: String,
    begin: u64,
    begin_cpu: u64,
    executed: u64,
    /// The latency of every this many-th statement is measured.
    stride: u64,
    /// (end, latency) of each, if requested; allocated before the loop.
    each: Option<Vec<(u64, u64)>>,
}

impl<'a> Timing<'a> {
    /// Starts now. `grouped`: the statements share transactions; `each`: every latency is wanted.
    pub(super) fn new(marks: Option<&'a Writer>, name: &str, expected: u64, grouped: bool, each: bool) -> Self {
        let capacity = usize::try_from(expected.min(1 << 24)).unwrap_or_default();
        Self {
            series: Series::new(marks, name),
            name: name.to_ascii_lowercase(),
            each: each.then(|| Vec::with_capacity(capacity)),
            executed: 0,
            stride: if grouped && !each { LATENCY_STRIDE } else { 1 },
            begin_cpu: clock::process_cpu_ns(),
            begin: clock::now_ns(),
        }
    }

    /// Runs one statement, and times it if it is due or there is a recorder.
    pub(super) fn time_statement<T>(&mut self, latencies: &mut Latencies, work: impl FnOnce() -> T) -> T {
        if !self.executed.is_multiple_of(self.stride) && !self.series.is_recorded() {
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

    /// Writes the rate, from before the first to after the last including everything in between, this process's CPU time
    /// per statement (not including work done by others for it), and each latency. Returns start and end.
    pub(super) fn finish(self, lines: &mut Vec<u8>) -> std::io::Result<(u64, u64)> {
        let end = clock::now_ns();
        let cpu = clock::process_cpu_ns() - self.begin_cpu;
        for (t, latency) in self.each.iter().flatten() {
            write_sample(lines, &format!("{}.latency", self.name), "ns", *t, *latency as f64)?;
        }
        if self.executed > 0 {
            write_rate(lines, &self.name, self.executed, self.begin, end)?;
            write_sample(lines, &format!("{}.cpu", self.name), "ns", end, cpu as f64 / self.executed as f64)?;
        }
        Ok((self.begin, end))
    }
}

pub(super) fn write_rate(lines: &mut Vec<u8>, name: &str, executed: u64, begin: u64, end: u64) -> std::io::Result<()> {
    let rate = executed as f64 * 1e9 / (end - begin).max(1) as f64;
    write_sample(lines, &format!("{name}.rate"), "1/s", end, rate)
}

/// Latencies of all statements of a run.
#[derive(Debug)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    /// Creates an empty histogram; up to an hour, three digits.
    pub(super) fn new() -> Result<Self, Error> {
        let made = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        made.map(Self).map_err(|e| Error::Failed(format!("cannot create a histogram: {e}")))
    }

    /// Writes percentiles of the latency of a statement; nothing if there were none.
    pub(super) fn append_to(&self, lines: &mut Vec<u8>) -> std::io::Result<()> {
        let now = clock::now_ns();
        let all = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];
        all.iter().filter(|_| !self.0.is_empty()).try_for_each(|(name, q)| {
            write_sample(lines, &format!("latency.{name}"), "ns", now, self.0.value_at_quantile(*q) as f64)
        })
    }
}
