//! How much time a process has had, excluding the time for which a busy host gave it no processor.
//!
//! The kernel counts for every thread (`/proc/PID/task/TID/schedstat`, Documentation/scheduler/sched-stats.rst) the time for which it was
//! runnable and waited for a processor. So a guest that makes no progress because the host is busy is waited for, and one that makes none
//! while it has a processor, or sleeps, is not.
//!
//! Uncertainty: time that a hypervisor below takes away counts as the guest's own, as do slow disks. On a kernel without these
//! counters no waiting time is excluded.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time that a process has had since some moment.
#[derive(Debug)]
pub(crate) struct ProcessStopwatch {
    pid: u32,
    begun: Instant,
    waited: BTreeMap<String, u64>,
}

impl ProcessStopwatch {
    /// Starts now.
    pub fn start(pid: u32) -> Self {
        Self { pid, begun: Instant::now(), waited: wait_times(pid) }
    }

    /// The time it has had, without the longest time for which one of its threads waited for a processor.
    pub fn elapsed(&self) -> Duration {
        let delayed =
            wait_times(self.pid).iter().map(|(thread, ns)| ns - self.waited.get(thread).unwrap_or(&0).min(ns)).max();
        self.begun.elapsed().saturating_sub(Duration::from_nanos(delayed.unwrap_or(0)))
    }
}

/// How long each thread has waited for a processor, in ns.
fn wait_times(pid: u32) -> BTreeMap<String, u64> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeMap::new() };
    let one = |thread: std::fs::DirEntry| {
        let said = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        Some((thread.file_name().to_string_lossy().into_owned(), said.split(' ').nth(1)?.parse().ok()?))
    };
    threads.flatten().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn waiting_for_a_processor_is_not_counted() {
        // A sleeping process is counted in full; two that share a processor each get about half of the time.
        let mut sleeps = Command::new("sleep").arg("60").spawn().unwrap();
        let loops = || Command::new("sh").args(["-c", "taskset -p 1 $$ >/dev/null && while :; do :; done"]).spawn();
        let mut busy = [loops().unwrap(), loops().unwrap(), loops().unwrap()];
        let patience = |child: &std::process::Child| ProcessStopwatch::start(child.id());
        let (idle, starved) = (patience(&sleeps), patience(&busy[0]));
        // A fixed wait: its duration is what is measured.
        std::thread::sleep(Duration::from_millis(1500));
        let (idle, starved) = (idle.elapsed(), starved.elapsed());
        for child in busy.iter_mut().chain([&mut sleeps]) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(idle >= Duration::from_millis(1400), "{idle:?}");
        assert!(starved < idle, "{starved:?} of {idle:?}");
    }
}
