//! What a recording (`fathom record`) captured while network runs were in progress, as time series on the runs' axis: latencies
//! of its operations and calls on files, and the throughput of its disks. Both archives have CLOCK_BOOTTIME, so no alignment is
//! needed: times are used as they are, if they are from the same clock (required by [`crate::flows::flows_of_runs`]).

use analysis::host_clock::HostClock;
use analysis::rows::{IoAction, Rows};
use model::Layer;
use std::collections::BTreeMap;

/// Interval over which disk throughput is summed, the same as for the runs' throughput, ns.
const BIN_NS: u64 = 100_000_000;

/// The parts of a recording that are drawn beside runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordingSeries {
    /// Name given by the user.
    pub name: String,
    /// Boot ID of the clock, if it was stored.
    pub boot: Option<String>,
    /// Start and latency, us, of each operation.
    pub operations: Vec<(u64, f64)>,
    /// The same for calls on files.
    pub calls: Vec<(u64, f64)>,
    /// End and bytes of each device command, by disk and action.
    pub commands: BTreeMap<(String, &'static str), Vec<(u64, u64)>>,
}

impl RecordingSeries {
    /// Builds the series from these rows.
    pub fn new(rows: &Rows, name: &str, boot: Option<String>) -> Self {
        let latency = |start: u64, end: Option<u64>| Some((start, end?.saturating_sub(start) as f64 / 1e3));
        let calls = rows.spans.of_layer(Layer::Syscall).map(|(_, s)| s);
        let mut commands: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for s in rows.spans.of_layer(Layer::Driver).map(|(_, s)| s) {
            let (Some(end), done @ (IoAction::Read | IoAction::Write)) = (s.end_ns, IoAction::on_disk(&s)) else {
                continue;
            };
            let disk = rows.disks.iter().find(|d| Some(d.dev) == s.disk).map_or("a disk", |d| d.name.as_str());
            commands.entry((disk.to_string(), done.name())).or_default().push((end, s.bytes));
        }
        Self {
            name: name.into(),
            boot,
            operations: rows.operations.iter().filter_map(|o| latency(o.start_ns, o.end_ns)).collect(),
            calls: calls.filter_map(|s| latency(s.start_ns, s.end_ns)).collect(),
            commands,
        }
    }

    /// Converts the series to the clock of the host that conducted the recording, if another machine did.
    #[must_use]
    pub fn on_host(mut self, clock: Option<&HostClock>) -> Self {
        let Some(clock) = clock else { return self };
        let moved = |t: &mut u64| *t = clock.on_host(*t);
        self.operations.iter_mut().chain(&mut self.calls).for_each(|(t, _)| moved(t));
        self.commands.values_mut().flatten().for_each(|(t, _)| moved(t));
        self.boot = Some(clock.boot.clone());
        self
    }

    /// Yields every time in it.
    fn times(&self) -> impl Iterator<Item = u64> {
        let begins = self.operations.iter().chain(&self.calls).map(|(t, _)| *t);
        begins.chain(self.commands.values().flatten().map(|(t, _)| *t))
    }

    /// Returns the first and the last time in it.
    pub fn time_range(&self) -> Option<(u64, u64)> {
        Some((self.times().min()?, self.times().max()?))
    }

    /// Whether it has any time in that interval.
    pub fn has_time_within(&self, from: u64, to: u64) -> bool {
        self.times().any(|t| (from..=to).contains(&t))
    }

    /// Returns latencies from `from` to `to`: of operations and of calls, by name.
    pub fn latencies(&self, from: u64, to: u64) -> Vec<(String, Vec<(u64, f64)>)> {
        let within = |all: &[(u64, f64)]| all.iter().filter(|(t, _)| (from..=to).contains(t)).copied().collect();
        let both = [("operations", &self.operations), ("calls on files", &self.calls)];
        let named = both.map(|(what, all)| (format!("{} {what}", self.name), within(all)));
        named.into_iter().filter(|(_, all): &(_, Vec<_>)| !all.is_empty()).collect()
    }

    /// Returns the throughput of the disks from `from` to `to`, bit/s in each interval of 100 ms, at its end like the runs' throughput.
    pub fn throughputs(&self, from: u64, to: u64) -> Vec<(String, Vec<(u64, f64)>)> {
        let bins = to.saturating_sub(from).div_ceil(BIN_NS).max(1);
        let line = |((disk, done), all): (&(String, &str), &Vec<(u64, u64)>)| {
            let mut sums = vec![0; bins as usize];
            for (end, bytes) in all.iter().filter(|(t, _)| (from..=to).contains(t)) {
                sums[((end - from) / BIN_NS).min(bins - 1) as usize] += bytes;
            }
            let seconds = BIN_NS as f64 / 1e9;
            let points = (1..).zip(&sums).map(|(n, sum)| (from + n * BIN_NS, *sum as f64 * 8.0 / seconds)).collect();
            (sums.iter().any(|sum| *sum > 0)).then(|| (format!("{} {disk} {done}", self.name), points))
        };
        self.commands.iter().filter_map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::host_clock::ClockReading;

    #[test]
    fn a_devices_recording_is_on_the_hosts_clock() {
        let series = RecordingSeries {
            boot: Some("device".into()),
            operations: vec![(1_000, 1.0)],
            commands: BTreeMap::from([(("sda".to_string(), "write"), vec![(2_000, 7)])]),
            ..RecordingSeries::default()
        };
        assert_eq!(series.clone().on_host(None), series);
        let first = ClockReading { at_ns: 0, ahead_ns: 900, error_ns: 1 };
        let clock = HostClock { boot: "host".into(), first, last: None };
        let moved = series.on_host(Some(&clock));
        assert_eq!((moved.boot.as_deref(), moved.operations[0].0), (Some("host"), 100));
        assert!(moved.has_time_within(1_100, 1_100) && !moved.has_time_within(2_000, 2_000));
    }
}
