//! What processes spent of the processors, to the nanosecond: the first figure of each thread's `schedstat` (proc(5)).
//!
//! A thread that ends takes its figure with it, so this is for a server whose threads stay while a connection does. What the
//! kernel does for a socket in the sender's stead, on loopback the receiver's side too, is in the sender's time.

use std::fs;
use std::io;

/// Processes whose time is told together.
#[derive(Debug)]
pub struct Spent {
    processes: Vec<u32>,
}

/// There is no such process, or /proc does not tell.
#[derive(Debug, thiserror::Error)]
#[error("the processor time of process {process} cannot be read: {error}")]
pub struct Unknown {
    process: u32,
    error: io::Error,
}

impl Spent {
    /// A process and those that descend from it now.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn of(process: u32) -> Result<Self, Unknown> {
        let mut processes = vec![process];
        let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
            .map_err(|error| Unknown { process, error })?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|child| Some((child, parent(child)?)))
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

    /// Nanoseconds up to now.
    ///
    /// # Errors
    /// [`Unknown`]: one of them ended.
    pub fn now_ns(&self) -> Result<u64, Unknown> {
        let of = |process: &u32| {
            let sum = || -> io::Result<u64> {
                let threads = fs::read_dir(format!("/proc/{process}/task"))?;
                threads.map(|thread| ran_ns(&fs::read_to_string(thread?.path().join("schedstat"))?)).sum()
            };
            sum().map_err(|error| Unknown { process: *process, error })
        };
        self.processes.iter().map(of).sum()
    }
}

/// The first figure of a `schedstat`.
fn ran_ns(text: &str) -> io::Result<u64> {
    let figure = text.split_whitespace().next().and_then(|word| word.parse().ok());
    figure.ok_or_else(|| io::Error::other("schedstat has no figure"))
}

/// The parent in `/proc/PID/stat`; the name before it may hold anything, so its last parenthesis counts.
fn parent(process: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Nanoseconds of this process up to now.
pub fn own_ns() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec.cast_unsigned() * 1_000_000_000 + spent.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_s_time_is_its_parent_s() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let spent = Spent::of(std::process::id()).expect("there is /proc");
        assert!(spent.processes.contains(&child.id()));
        let (begin, own) = (spent.now_ns().expect("figures"), own_ns());
        let alone = Spent { processes: vec![child.id()] };
        while alone.now_ns().expect("figures") < 50_000_000 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(spent.now_ns().expect("figures") - begin > 40_000_000 && own_ns() >= own);
        child.kill().expect("it runs");
        child.wait().expect("it ended");
        assert!(alone.now_ns().is_err());
        assert!(Spent::of(u32::MAX).is_err());
    }
}
