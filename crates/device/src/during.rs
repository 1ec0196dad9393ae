//! The kernel's counters of other activity while something of ours ran: a count before and one after, and their difference.
//!
//! A measured process uses CPUs itself, with several threads or children, and makes the kernel work for it. So overall CPU
//! utilization is no measure of other activity. The following are:
//!
//! - **others' CPU time**: the sum over all processes outside our process tree of the time used by them and the children
//!   that they waited for (`/proc/PID/stat`). A child that exits adds its time to its parent's, so the sum includes
//!   short-lived processes. Excluded are this program and its descendants, and kernel threads, which may work for any
//!   process;
//! - **steal** (`/proc/stat`): time the host gave to other guests while this one wanted to run;
//! - **frequency**: the maximum frequency of the slowest CPU, and how often CPUs were throttled because of heat.
//!
//! Counting reads every process, which takes some ms, and is done before and after a measurement, never during it. The
//! kernel counts in ticks, mostly of 10 ms. Not included: processes whose parents ignore their exit, all other users where
//! /proc is mounted with hidden processes, and anything outside the container of this program.

use crate::Reader;
use std::collections::{BTreeMap, BTreeSet};

/// The flag of a kernel thread (PF_KTHREAD of `include/linux/sched.h`), in a process's flags.
const PF_KTHREAD: u64 = 0x0020_0000;

/// The initial PID namespace of a machine (PROC_PID_INIT_INO of `include/linux/proc_ns.h`).
const PROC_PID_INIT_INO: u64 = 0xefff_fffc;

/// A snapshot of the counters.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivityCount {
    /// Ticks of processes outside our process tree, by number: their own, and including the children that they waited for;
    /// an error tells why they are unknown.
    others: Result<BTreeMap<u32, (u64, u64)>, String>,
    /// Whether only one PID namespace is visible.
    inside: bool,
    kernel: u64,
    /// Ticks of interrupts, hard and soft.
    interrupts: u64,
    /// Steal time in ticks.
    steal: Result<u64, String>,
    /// As in [`crate::Readings`].
    frequency_mhz: Result<f64, String>,
    /// How often CPUs were throttled, if the kernel counts it.
    throttled: Option<u64>,
}

/// The activity between two counts, in CPU seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    /// CPU time of other processes.
    pub others_s: Result<f64, String>,
    /// Whether only processes of the same container (PID namespace) are counted: others are not visible there.
    pub inside: bool,
    /// Kernel threads and interrupts, for any process.
    pub kernel_s: f64,
    pub steal_s: Result<f64, String>,
    /// The frequency before and after, MHz.
    pub frequency_mhz: Result<(f64, f64), String>,
    /// How often CPUs were throttled.
    pub throttled: Option<u64>,
}

/// The length of a tick in the kernel's files, s.
fn tick_s() -> f64 {
    // SAFETY: reads a constant of the system.
    let per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1.0 / if per_s > 0 { per_s as f64 } else { 100.0 }
}

/// The relevant fields of a process: parent, flags, ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: u32,
    flags: u64,
    own: u64,
    /// The ticks of its exited children.
    waited: u64,
}

/// Parses a line of /proc/PID/stat (proc(5)): after the name, which ends with the last parenthesis, the state, the parent,
/// …, flags, …, and four times.
fn parse_process(stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // In old kernels the ticks of exited children may be negative for a moment.
    let waited = [13, 14].map(|at| number(at).unwrap_or(0)).into_iter().fold(0, u64::saturating_add);
    let own = number(11)?.saturating_add(number(12)?);
    Some(Process { parent: u32::try_from(number(1)?).ok()?, flags: number(6)?, own, waited })
}

impl ActivityCount {
    /// Takes a count now. `own` is the root of our process tree: itself, its children, their children, and so on.
    pub fn now(reader: &dyn Reader, own: u32) -> Self {
        let (all, hidden) = list_processes(reader);
        let mut family = BTreeSet::from([own]);
        // Children mostly have higher numbers than their parents; otherwise another iteration finds them.
        loop {
            let before = family.len();
            family.extend(
                all.iter().filter(|(_, p)| family.contains(&p.parent)).map(|(pid, _)| *pid).collect::<Vec<_>>(),
            );
            if family.len() == before {
                break;
            }
        }
        let is_kernel = |p: &Process| p.flags & PF_KTHREAD != 0;
        let others = all.iter().filter(|(pid, p)| !family.contains(pid) && !is_kernel(p));
        let stat = reader.read("/proc/stat");
        let ticks = |at: usize| -> Result<u64, String> {
            let text = stat.as_ref().map_err(Clone::clone)?;
            let line = text.lines().find_map(|l| l.strip_prefix("cpu ")).ok_or("cannot parse /proc/stat")?;
            line.split_whitespace()
                .nth(at)
                .and_then(|w| w.parse().ok())
                .ok_or_else(|| "not reported by the kernel".into())
        };
        Self {
            others: if hidden {
                Err("other users' processes are hidden (hidepid)".into())
            } else {
                Ok(others.map(|(pid, p)| (*pid, (p.own, p.own.saturating_add(p.waited)))).collect())
            },
            // The link has no valid path; stat identifies its target.
            inside: reader.identity("/proc/self/ns/pid").is_ok_and(|(_, inode)| inode != PROC_PID_INIT_INO),
            kernel: all.values().filter(|p| is_kernel(p)).map(|p| p.own).fold(0, u64::saturating_add),
            interrupts: ticks(5).unwrap_or(0) + ticks(6).unwrap_or(0),
            steal: ticks(7),
            frequency_mhz: crate::sensors::frequency(reader),
            throttled: throttle_count(reader),
        }
    }

    /// The activity since `before`.
    pub fn since(&self, before: &Self) -> Activity {
        let tick = tick_s();
        let s = |now: u64, then: u64| now.saturating_sub(then) as f64 * tick;
        let both = |now: &Result<u64, String>, then: &Result<u64, String>| {
            Ok(s(*now.as_ref().map_err(Clone::clone)?, *then.as_ref().map_err(Clone::clone)?))
        };
        let frequency = |of: &Self| of.frequency_mhz.clone();
        Activity {
            others_s: others_ticks(self, before).map(|ticks| ticks as f64 * tick),
            inside: self.inside,
            kernel_s: s(self.kernel, before.kernel) + s(self.interrupts, before.interrupts),
            steal_s: both(&self.steal, &before.steal),
            frequency_mhz: frequency(before).and_then(|then| Ok((then, frequency(self)?))),
            throttled: self.throttled.zip(before.throttled).map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// Ticks of other processes between two counts. The time of children that exited meanwhile is in their parents' sums,
/// unless a parent ignores their exit: then time that was counted before is gone, and the time of the surviving processes
/// is a lower bound.
fn others_ticks(now: &ActivityCount, then: &ActivityCount) -> Result<u64, String> {
    let (now, then) = (now.others.as_ref().map_err(Clone::clone)?, then.others.as_ref().map_err(Clone::clone)?);
    let sum = |of: &BTreeMap<u32, (u64, u64)>| of.values().map(|(_, all)| *all).fold(0, u64::saturating_add);
    let alive = now.iter().map(|(pid, (own, _))| own.saturating_sub(then.get(pid).map_or(0, |(own, _)| *own)));
    Ok(sum(now).saturating_sub(sum(then)).max(alive.fold(0, u64::saturating_add)))
}

/// All visible processes, and whether others are hidden: then process 1 is missing.
fn list_processes(reader: &dyn Reader) -> (BTreeMap<u32, Process>, bool) {
    let pids = reader.list("/proc").unwrap_or_default().into_iter().filter_map(|name| name.parse::<u32>().ok());
    let all: BTreeMap<u32, Process> =
        pids.filter_map(|pid| Some((pid, parse_process(&reader.read(&format!("/proc/{pid}/stat")).ok()?)?))).collect();
    let hidden = !all.contains_key(&1);
    (all, hidden)
}

fn throttle_count(reader: &dyn Reader) -> Option<u64> {
    const CPU_DIRECTORY: &str = "/sys/devices/system/cpu";
    let names = reader.list(CPU_DIRECTORY).unwrap_or_default();
    let read = |name: &String| {
        let path = format!("{CPU_DIRECTORY}/{name}/thermal_throttle/core_throttle_count");
        reader.read(&path).ok()?.trim().parse::<u64>().ok()
    };
    let counts: Vec<u64> = names.iter().filter(|n| n.starts_with("cpu")).filter_map(read).collect();
    (!counts.is_empty()).then(|| counts.into_iter().fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Files by path.
    struct Files(HashMap<String, String>);

    impl Files {
        /// Processes by number: parent, flags, and ticks of their own and of their waited-for children.
        fn with_processes(processes: &[(u32, u32, u64, u64, u64)], steal: u64) -> Self {
            let mut files =
                HashMap::from([("/proc/stat".into(), format!("cpu  1 2 3 4 5 6 7 {steal} 0 0\ncpu0 1 2 3\n"))]);
            for (pid, parent, flags, own, waited) in processes {
                let stat = format!("{pid} (a) b (c) S {parent} 1 1 0 -1 {flags} 0 0 0 0 {own} 0 {waited} 0 20 0 1 0 5");
                files.insert(format!("/proc/{pid}/stat"), stat);
            }
            Self(files)
        }
    }

    impl Reader for Files {
        fn read(&self, path: &str) -> Result<String, String> {
            self.0.get(path).cloned().ok_or_else(|| "no such file".into())
        }
        fn list(&self, directory: &str) -> Result<Vec<String>, String> {
            let below = |p: &String| Some(p.strip_prefix(directory)?.strip_prefix('/')?.split('/').next()?.to_string());
            Ok(self.0.keys().filter_map(below).collect())
        }
        fn run(&self, _: &[&str]) -> Result<String, crate::RunError> {
            Err(crate::RunError::Failed("no commands".into()))
        }
        fn canonical(&self, path: &str) -> Result<String, String> {
            Ok(path.into())
        }
        fn identity(&self, _: &str) -> Result<(model::Dev, u64), String> {
            Err("no files".into())
        }
    }

    #[test]
    fn own_children_and_kernel_threads_are_not_other_processes() {
        let tick = tick_s();
        // 10 is the runner, 20 its guard, 5 (a lower number) the load; 30 is an unrelated shell, 31 its child.
        let before = Files::with_processes(
            &[(1, 0, 0, 50, 50), (2, 0, PF_KTHREAD, 100, 0), (10, 1, 0, 3, 0), (30, 1, 0, 7, 0), (31, 30, 0, 40, 0)],
            8,
        );
        // The load used 500 ticks, a kernel thread 20 for it, the unrelated child 60 more before it exited and was waited
        // for; a short-lived child used 5.
        let after = Files::with_processes(
            &[
                (1, 0, 0, 51, 50),
                (2, 0, PF_KTHREAD, 120, 0),
                (10, 1, 0, 4, 0),
                (20, 10, 0, 1, 0),
                (5, 20, 0, 500, 0),
                (30, 1, 0, 7, 105),
            ],
            20,
        );
        let during = ActivityCount::now(&after, 10).since(&ActivityCount::now(&before, 10));
        let near = |a: f64, ticks: f64| (a - ticks * tick).abs() < 1e-9;
        assert!(near(during.others_s.clone().unwrap(), 1.0 + 60.0 + 5.0), "{during:?}");
        assert!(near(during.kernel_s, 20.0) && near(during.steal_s.clone().unwrap(), 12.0), "{during:?}");
        assert!(during.frequency_mhz.is_err() && during.throttled.is_none());
    }

    #[test]
    fn hidden_processes_make_the_value_unknown() {
        let files = Files::with_processes(&[(10, 1, 0, 3, 0)], 0);
        let count = ActivityCount::now(&files, 10);
        assert!(count.since(&count).others_s.unwrap_err().contains("hidden"));
    }

    #[test]
    fn throttling_is_read_where_the_kernel_counts_it() {
        let mut files = Files::with_processes(&[(1, 0, 0, 3, 0)], 0);
        files.0.insert("/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count".into(), "3\n".into());
        files.0.insert("/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq".into(), "2000000\n".into());
        let before = ActivityCount::now(&files, 10);
        files.0.insert("/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count".into(), "5\n".into());
        files.0.insert("/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq".into(), "1500000\n".into());
        let during = ActivityCount::now(&files, 10).since(&before);
        assert_eq!((during.throttled, during.frequency_mhz), (Some(2), Ok((2000.0, 1500.0))));
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(text in "[0-9]{0,4} ?\\(?.{0,40}\\)?[ 0-9A-Z-]{0,60}") {
            parse_process(&text);
        }
    }
}
