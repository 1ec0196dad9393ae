//! How long a process has had, as far as that is its own fault: a busy host that gives it no processor is not counted against it.
//!
//! What the kernel counts for every thread (`/proc/PID/task/TID/schedstat`, Documentation/scheduler/sched-stats.rst) is the time for which
//! it could have run and waited for a processor. So a guest that makes no progress on a host that does other things is waited for,
//! and one that makes none on its own processor, or sleeps, is not.
//!
//! Uncertainty: time that a hypervisor below takes away counts as the guest's own; so do slow disks. A kernel without these counters
//! has waited for nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a process has had since a moment.
#[derive(Debug)]
pub(crate) struct Patience {
    pid: u32,
    begun: Instant,
    waited: BTreeMap<String, u64>,
}

impl Patience {
    /// From now on.
    pub fn of(pid: u32) -> Self {
        Self { pid, begun: Instant::now(), waited: waited(pid) }
    }

    /// How long it has had, without the time for which the thread that was worst off waited for a processor.
    pub fn spent(&self) -> Duration {
        let delayed =
            waited(self.pid).iter().map(|(thread, ns)| ns - self.waited.get(thread).unwrap_or(&0).min(ns)).max();
        self.begun.elapsed().saturating_sub(Duration::from_nanos(delayed.unwrap_or(0)))
    }
}

/// For how long each thread has waited for a processor, ns.
fn waited(pid: u32) -> BTreeMap<String, u64> {
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
    fn waiting_for_processor_is_not_counted() {
        // One that sleeps is counted in full; two that share one processor have each about half of the time.
        let mut sleeps = Command::new("sleep").arg("60").spawn().unwrap();
        let loops = || Command::new("sh").args(["-c", "taskset -p 1 $$ >/dev/null && while :; do :; done"]).spawn();
        let mut busy = [loops().unwrap(), loops().unwrap(), loops().unwrap()];
        let patience = |child: &std::process::Child| Patience::of(child.id());
        let (idle, starved) = (patience(&sleeps), patience(&busy[0]));
        // A fixed wait: what is measured is how it passes.
        std::thread::sleep(Duration::from_millis(1500));
        let (idle, starved) = (idle.spent(), starved.spent());
        for child in busy.iter_mut().chain([&mut sleeps]) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(idle >= Duration::from_millis(1400), "{idle:?}");
        assert!(starved < idle, "{starved:?} of {idle:?}");
    }
}
