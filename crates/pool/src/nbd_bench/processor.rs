//! The CPU time of processes, in nanoseconds, from the kernel's clock of each (clock_getcpuclockid(3)).
//!
//! It includes threads that have exited: a server may end idle threads. What the kernel does for a socket on behalf of the
//! sender, on loopback including the receiver's side, counts as the sender's time.

use std::fs;
use std::io;

/// Processes whose CPU time is summed.
#[derive(Debug)]
pub struct CpuTime {
    processes: Vec<u32>,
}

/// There is no such process, or /proc does not contain it.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the CPU time of process {process}: {error}")]
pub struct UnknownProcess {
    process: u32,
    error: io::Error,
}

impl CpuTime {
    /// A process and its current descendants.
    pub fn for_process(process: u32) -> Result<Self, UnknownProcess> {
        let mut processes = vec![process];
        let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
            .map_err(|error| UnknownProcess { process, error })?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|child| Some((child, parent_of(child)?)))
            .collect();
        let mut at = 0;
        while let Some(one) = processes.get(at).copied() {
            processes.extend(parents.iter().filter(|(_, parent)| *parent == one).map(|(child, _)| child));
            at += 1;
        }
        let spent = Self { processes };
        spent.now_ns()?;
        Ok(spent)
    }

    /// The CPU time so far, in nanoseconds.
    ///
    /// # Errors
    /// [`UnknownProcess`]: one of them exited.
    pub fn now_ns(&self) -> Result<u64, UnknownProcess> {
        let of = |process: &u32| process_ns(*process).map_err(|error| UnknownProcess { process: *process, error });
        self.processes.iter().map(of).sum()
    }
}

/// The CPU time of all threads of a process in nanoseconds, including those that have exited.
fn process_ns(process: u32) -> io::Result<u64> {
    // For 0 or an invalid number it would be our own clock.
    let known = libc::pid_t::try_from(process).ok().filter(|process| *process > 0);
    let process = known.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut clock = 0;
    // SAFETY: it writes the clock's number to `clock`, and nothing else.
    let error = unsafe { libc::clock_getcpuclockid(process, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the time to `spent`, and nothing else.
    if unsafe { libc::clock_gettime(clock, &raw mut spent) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(spent.tv_sec.cast_unsigned() * 1_000_000_000 + spent.tv_nsec.cast_unsigned())
}

/// The parent in `/proc/PID/stat`; the name before it may contain anything, so the last parenthesis is used.
fn parent_of(process: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The CPU time of this process so far, in nanoseconds.
pub fn own_ns() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec.cast_unsigned() * 1_000_000_000 + spent.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_a_child_counts_for_its_parent() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let spent = CpuTime::for_process(std::process::id()).expect("there is /proc");
        assert!(spent.processes.contains(&child.id()));
        let (begin, own) = (spent.now_ns().expect("figures"), own_ns());
        let alone = CpuTime { processes: vec![child.id()] };
        while alone.now_ns().expect("figures") < 50_000_000 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(spent.now_ns().expect("figures") - begin > 40_000_000 && own_ns() >= own);
        child.kill().expect("it runs");
        child.wait().expect("it ended");
        assert!(alone.now_ns().is_err());
        assert!(CpuTime::for_process(u32::MAX).is_err() && CpuTime::for_process(0).is_err());
    }

    #[test]
    fn cpu_time_of_an_ended_thread_counts() {
        let spent = CpuTime { processes: vec![std::process::id()] };
        let begin = spent.now_ns().expect("figures");
        let busy = || {
            let begin = std::time::Instant::now();
            while begin.elapsed() < std::time::Duration::from_millis(20) {}
            rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_nsec
        };
        let thread_ns = std::thread::spawn(busy).join().expect("it ends");
        assert!(spent.now_ns().expect("figures") - begin >= thread_ns.cast_unsigned());
    }
}
