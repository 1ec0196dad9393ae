//! The CPU usage of a run at one end, from which [`crate::why`] determines whether CPU time was the limit.
//!
//! A thread that is runnable but does not run waits for a CPU: /proc counts that (`schedstat`, second field). A control
//! group with a quota stops its threads without counting it there, so its `cpu.stat` is read too.
//!
//! **Uncertainty.** Interrupt work for a connection is charged to whichever thread was running, or to none; the share of
//! the busiest CPU includes it.

use crate::{clock, nan};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The threads of one direction at one end, or of transactions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadTotals {
    pub count: u64,
    /// Total CPU time, ns.
    pub cpu_ns: u64,
    /// Total time they were runnable but did not run, ns; 0 where the kernel does not count it.
    pub wait_ns: u64,
    /// CPU time of the busiest thread.
    pub busiest_cpu_ns: u64,
    /// Maximum over the threads of the time running or waiting to run, ns.
    pub busiest_ready_ns: u64,
    /// Total time they slept because their schedule had nothing to do, as reported by the threads, ns.
    #[serde(default)]
    pub paused_ns: u64,
}

impl ThreadTotals {
    pub fn add(&mut self, one: ThreadUsage) {
        self.count += 1;
        self.cpu_ns += one.cpu_ns;
        self.wait_ns += one.wait_ns;
        self.busiest_cpu_ns = self.busiest_cpu_ns.max(one.cpu_ns);
        self.busiest_ready_ns = self.busiest_ready_ns.max(one.cpu_ns + one.wait_ns);
        self.paused_ns += one.paused_ns;
    }
}

/// The calling thread's usage so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Time runnable but not running, ns.
    pub wait_ns: u64,
    /// Time it slept according to its schedule, ns; set by the thread itself.
    pub paused_ns: u64,
}

impl ThreadUsage {
    pub fn now() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let wait = text.split_whitespace().nth(1).and_then(|w| w.parse().ok()).unwrap_or(0);
        Self { cpu_ns: clock::thread_cpu_ns(), wait_ns: wait, paused_ns: 0 }
    }

    /// The usage since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            wait_ns: self.wait_ns.saturating_sub(before.wait_ns),
            paused_ns: self.paused_ns.saturating_sub(before.paused_ns),
        }
    }
}

/// The machine during a run. Shares are 0 to 1.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineUsage {
    pub cpus: u64,
    /// Share of the time that all CPUs were busy.
    #[serde(deserialize_with = "nan::read")]
    pub busy: f64,
    /// The same for the busiest CPU.
    #[serde(deserialize_with = "nan::read")]
    pub busiest: f64,
    /// Share of the run in which the quota of the control group throttled its threads.
    #[serde(deserialize_with = "nan::read")]
    pub throttled: f64,
}

/// A snapshot of the counters; two of them yield a [`MachineUsage`].
#[derive(Debug)]
pub struct CpuSnapshot {
    at_ns: u64,
    cpus: Vec<(u64, u64)>,
    throttled_us: u64,
}

impl CpuSnapshot {
    /// Takes a snapshot. A counter that cannot be read is constant.
    pub fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let throttled_us = cgroup_directories(&groups)
            .iter()
            .find_map(|dir| throttled_us(&std::fs::read_to_string(dir.join("cpu.stat")).ok()?))
            .unwrap_or(0);
        Self { at_ns: clock::now_ns(), cpus: cpu_ticks(&stat), throttled_us }
    }

    /// The usage since `before`.
    pub fn since(&self, before: &Self) -> MachineUsage {
        let shares: Vec<f64> = self
            .cpus
            .iter()
            .zip(&before.cpus)
            .map(|(now, then)| {
                let (busy, all) = (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
                if all == 0 { 0.0 } else { busy as f64 / all as f64 }
            })
            .collect();
        let wall_us = self.at_ns.saturating_sub(before.at_ns).max(1) as f64 / 1e3;
        MachineUsage {
            cpus: shares.len() as u64,
            busy: shares.iter().sum::<f64>() / shares.len().max(1) as f64,
            busiest: shares.iter().copied().fold(0.0, f64::max),
            throttled: (self.throttled_us.saturating_sub(before.throttled_us) as f64 / wall_us).min(1.0),
        }
    }
}

/// Busy and total ticks of each CPU in /proc/stat.
fn cpu_ticks(stat: &str) -> Vec<(u64, u64)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().filter(|name| name.len() > 3 && name.starts_with("cpu"))?;
        // user nice system idle iowait irq softirq steal; guest times are contained in user.
        let ticks: Vec<u64> = words.take(8).filter_map(|w| w.parse().ok()).collect();
        let all: u64 = ticks.iter().sum();
        Some((all - ticks.get(3).unwrap_or(&0) - ticks.get(4).unwrap_or(&0), all))
    };
    stat.lines().filter_map(line).collect()
}

/// The directories that may contain the quota of a process's control group: that of version 1's cpu hierarchy, and that of
/// version 2, which is mounted next to those of version 1 where both exist.
fn cgroup_directories(text: &str) -> Vec<PathBuf> {
    let mounted = Path::new("/sys/fs/cgroup");
    let mut dirs = Vec::new();
    for line in text.lines() {
        // NUMBER:NAMES:PATH
        let Some((names, path)) = line.split_once(':').and_then(|(_, rest)| rest.split_once(':')) else { continue };
        let path = path.trim_start_matches('/');
        if names.is_empty() {
            dirs.extend([mounted.join(path), mounted.join("unified").join(path)]);
        } else if names.split(',').any(|name| name == "cpu") {
            dirs.push(mounted.join(names).join(path));
        }
    }
    dirs
}

/// The time for which a quota throttled the group, us.
fn throttled_us(text: &str) -> Option<u64> {
    let value = |name: &str| -> Option<u64> { text.lines().find_map(|l| l.strip_prefix(name))?.trim().parse().ok() };
    // Version 1 counts in ns.
    value("throttled_usec ").or_else(|| value("throttled_time ").map(|ns| ns / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_ticks_are_read_per_processor() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 0 20 60 10 0 0 0 0 0\ncpu1 0 0 0 100 0 0 0 0 0 0\nintr 5\n";
        assert_eq!(cpu_ticks(text), [(30, 100), (0, 100)]);
        assert!(cpu_ticks("cpu0 x\nnonsense").iter().all(|c| *c == (0, 0)));
        assert_eq!(throttled_us("usage_usec 1\nthrottled_usec 77\n"), Some(77));
        assert_eq!(throttled_us("nr_periods 3\nnr_throttled 2\nthrottled_time 77000\n"), Some(77));
    }

    #[test]
    fn cgroup_is_found_in_v1_and_v2() {
        let found =
            |text: &str| cgroup_directories(text).iter().map(|d| d.to_string_lossy().into_owned()).collect::<Vec<_>>();
        assert_eq!(found("0::/a.slice/b\n"), ["/sys/fs/cgroup/a.slice/b", "/sys/fs/cgroup/unified/a.slice/b"]);
        assert_eq!(found("5:cpuset:/x\n4:cpu,cpuacct:/a\n")[0], "/sys/fs/cgroup/cpu,cpuacct/a");
        assert_eq!(found("1:cpu:/\nnonsense\n")[0], "/sys/fs/cgroup/cpu/");
    }

    #[test]
    fn busy_thread_has_cpu_time() {
        let before = ThreadUsage::now();
        let end = clock::now_ns() + 20_000_000;
        while clock::now_ns() < end {}
        let used = ThreadUsage::now().since(before);
        assert!(used.cpu_ns > 0 && used.cpu_ns + used.wait_ns < 10_000_000_000, "{used:?}");
    }
}
