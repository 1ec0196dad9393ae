//! The cost of each probe. The kernel can time every run of a program, at about 50 ns per run, which is as much as the run
//! itself; so this is enabled only for short windows, one fiftieth of the time, and the mean over the windows is reported.

use crate::trap::{FirstInstruction, Price, ProbedFunction};
use aya::sys::{Stats, enable_stats};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::size_of_val;
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Time without a window: between two, and before the first. A short trace has one too, but not while its program is still
/// starting.
const WINDOW_INTERVAL: Duration = Duration::from_millis(245);
const FIRST_WINDOW_DELAY: Duration = Duration::from_millis(25);
const WINDOW_DURATION: Duration = Duration::from_millis(5);

/// Approximate time that timing a run takes, in ns, which is included in the measured time.
const TIMING_NS: f64 = 45.0;

/// What a program does that costs it more while it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// A call of `sqlite3_step`.
    Step,
    /// The additional cost of an execution, if probed inside.
    Statement,
    /// A call of a function that prepares statements.
    Prepare,
    /// A call of a function named by --op.
    Function,
    /// A recorded system call.
    Call,
}

impl Activity {
    /// Returns its name in the facts `tracer.price.*`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Statement => "statement",
            Self::Prepare => "prepare",
            Self::Function => "function",
            Self::Call => "call",
        }
    }

    /// Whether it calls a probed function, which traps unless its process is probed inside.
    pub fn is_function_call(self) -> bool {
        matches!(self, Self::Step | Self::Prepare | Self::Function)
    }
}

/// Returns what being recorded costs a program, by activity: the traps, if any, and the programs at its begin and its end. How much of
/// the programs' time is the timing itself is known only approximately: the minimum excludes it, the maximum includes all of it.
///
/// `begins` contains how the probed functions begin. If functions of one sort begin in both ways, it is not known which one an
/// execution has: the cost ranges from the minimum to the maximum of both.
///
/// The clock is read in the middle of the trap at the entry and of the one at the return. Stepping over an instruction happens
/// after the entry's trap, and so lies entirely inside the function.
pub fn costs(
    traps: &BTreeMap<FirstInstruction, Price>,
    begins: &BTreeSet<(ProbedFunction, FirstInstruction)>,
    programs: &BTreeMap<&str, ProgramInfo>,
) -> Vec<(Activity, Price)> {
    let emulated_ns = traps.get(&FirstInstruction::Emulated).map(|price| price.ns);
    let inside = |begin: FirstInstruction, price: Price| match (begin, emulated_ns) {
        (FirstInstruction::Stepped, Some(emulated_ns)) if price.ns > emulated_ns => price.ns - emulated_ns / 2.0,
        _ => price.ns / 2.0,
    };
    let traps = |probed: ProbedFunction| {
        let own = traps.iter().filter(|(begin, _)| begins.contains(&(probed, **begin)));
        own.map(|(begin, price)| Price { inside_ns: inside(*begin, *price), ..*price }).reduce(|a, b| Price {
            ns: (a.ns + b.ns) / 2.0,
            low_ns: a.low_ns.min(b.low_ns),
            high_ns: a.high_ns.max(b.high_ns),
            inside_ns: (a.inside_ns + b.inside_ns) / 2.0,
        })
    };
    let mean = |name: &str| {
        let info = programs.get(name).filter(|info| info.run_count > 0)?;
        Some(info.run_time_ns as f64 / info.run_count as f64)
    };
    let pair = |first: &str, second: &str| {
        let means = [mean(first)?, mean(second)?];
        let own: f64 = means.iter().map(|ns| (ns - TIMING_NS).max(0.0)).sum();
        Some(Price { ns: own, low_ns: own, high_ns: means.iter().sum(), inside_ns: own / 2.0 })
    };
    let with = |traps: Price, programs: Option<Price>| {
        let p = programs.unwrap_or_default();
        Price {
            ns: traps.ns + p.ns,
            low_ns: traps.low_ns + p.low_ns,
            high_ns: traps.high_ns + p.high_ns,
            inside_ns: traps.inside_ns + p.inside_ns,
        }
    };
    let step = traps(ProbedFunction::Step).map(|traps| with(traps, pair("sqlite_step", "sqlite_step_return")));
    let prepare =
        traps(ProbedFunction::Prepare).map(|traps| with(traps, pair("sqlite_prepare", "sqlite_prepare_return")));
    let function = traps(ProbedFunction::Function).map(|traps| with(traps, pair("function_enter", "function_return")));
    let call = pair("sys_enter", "sys_exit");
    let all =
        [(Activity::Step, step), (Activity::Prepare, prepare), (Activity::Function, function), (Activity::Call, call)];
    all.into_iter().filter_map(|(activity, price)| Some((activity, price?))).collect()
}

/// What recording inside costs a program, relative to what it costs in a loop of nothing else, where it was measured. Among other
/// instructions, the processor does part of it while it waits for those: a row of five columns bears a third of a bare step's cost. On the
/// other hand the loop has its memory in the caches, and includes neither the jumps to the hooks nor a reset. Programs of scans, point SELECTs
/// and INSERTs measured 0.35 to 1.4 (docs/results/inside.md).
const PROGRAM_FACTORS: [f64; 2] = [0.25, 1.5];

/// Returns what being recorded inside the process costs it: a step, and the additional cost of a statement, independent of its steps.
/// `statement` is the cost of one with one step. Both lie half before and half after the clock is read.
pub fn inside_costs(step: Option<Price>, statement: Option<Price>) -> Vec<(Activity, Price)> {
    let (Some(step), Some(whole)) = (step, statement) else { return Vec::new() };
    let rest = |whole: f64, step: f64| (whole - step).max(0.0);
    let statement = Price {
        ns: rest(whole.ns, step.ns),
        low_ns: rest(whole.low_ns, step.high_ns),
        high_ns: rest(whole.high_ns, step.low_ns),
        inside_ns: rest(whole.ns, step.ns) / 2.0,
    };
    let [least, most] = PROGRAM_FACTORS;
    let in_program = |price: Price| Price { low_ns: price.low_ns * least, high_ns: price.high_ns * most, ..price };
    vec![(Activity::Step, in_program(step)), (Activity::Statement, in_program(statement))]
}

/// Opens and closes the windows.
#[derive(Debug)]
pub struct PriceSampler {
    wanted: bool,
    /// Timing is on while this lives.
    window: Option<OwnedFd>,
    /// Start of the window, or end of the last one.
    last_change: Instant,
    /// The pause after that before the next one begins.
    pause: Duration,
    /// Total time of the closed windows.
    windows_total: Duration,
}

impl PriceSampler {
    /// Creates a sampler, which does nothing unless wanted.
    pub fn new(wanted: bool) -> Self {
        Self {
            wanted,
            window: None,
            last_change: Instant::now(),
            pause: FIRST_WINDOW_DELAY,
            windows_total: Duration::ZERO,
        }
    }

    /// Returns the time until the open window should be closed.
    pub fn window_remaining(&self) -> Option<Duration> {
        self.window.as_ref().map(|_| WINDOW_DURATION.saturating_sub(self.last_change.elapsed()))
    }

    /// Must be called often; opens or closes a window when it is time.
    pub fn tick(&mut self) {
        let since = self.last_change.elapsed();
        if self.window.is_some() && since >= WINDOW_DURATION {
            self.window = None;
            self.windows_total += since;
            self.last_change = Instant::now();
            self.pause = WINDOW_INTERVAL;
        } else if self.window.is_none() && since >= self.pause {
            self.open();
        }
    }

    /// Returns the total time during which runs were timed and counted so far.
    pub fn counted_duration(&self) -> Duration {
        self.windows_total + if self.window.is_some() { self.last_change.elapsed() } else { Duration::ZERO }
    }

    fn open(&mut self) {
        // On a kernel without this (before v5.8) the cost is unknown, but the trace is just as good.
        self.window = if self.wanted { enable_stats(Stats::RunTime).ok() } else { None };
        self.wanted = self.window.is_some();
        self.last_change = Instant::now();
    }
}

/// The kernel's statistics of a program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Time of the runs that were timed, in ns.
    pub run_time_ns: u64,
    /// Runs that were timed.
    pub run_count: u64,
    /// Runs that were skipped because the program was already running on that CPU.
    pub recursion_misses: u64,
}

impl std::ops::AddAssign for ProgramInfo {
    fn add_assign(&mut self, other: Self) {
        self.run_time_ns += other.run_time_ns;
        self.run_count += other.run_count;
        self.recursion_misses += other.recursion_misses;
    }
}

/// Queries the kernel about a loaded program. The loader's own query omits these fields.
pub fn program_info(fd: RawFd) -> Option<ProgramInfo> {
    const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
    // Offsets in `struct bpf_prog_info` (include/uapi/linux/bpf.h), which only grows at its end.
    const RUN_TIME_OFFSET: usize = 192;
    const RUN_COUNT_OFFSET: usize = 200;
    const RECURSION_MISSES_OFFSET: usize = 208;

    #[repr(C)]
    struct Query {
        fd: u32,
        info_len: u32,
        info: u64,
    }
    let mut info = [0u64; 28];
    let mut query =
        Query { fd: fd as u32, info_len: size_of_val(&info) as u32, info: info.as_mut_ptr() as usize as u64 };
    // SAFETY: `query` is the attribute that this command takes and `info` a buffer of the given length; both live until the
    // call returns.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &raw mut query, size_of_val(&query)) };
    let field = |offset: usize| info[offset / 8];
    (result == 0).then(|| ProgramInfo {
        run_time_ns: field(RUN_TIME_OFFSET),
        run_count: field(RUN_COUNT_OFFSET),
        recursion_misses: field(RECURSION_MISSES_OFFSET),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statement_inside_costs_what_its_step_leaves() {
        let price = |ns| Price { ns, low_ns: ns - 2.0, high_ns: ns + 4.0, inside_ns: ns / 2.0 };
        let step = Price { ns: 30.0, low_ns: 7.0, high_ns: 51.0, inside_ns: 15.0 };
        let statement = Price { ns: 120.0, low_ns: 28.5, high_ns: 189.0, inside_ns: 60.0 };
        assert_eq!(
            inside_costs(Some(price(30.0)), Some(price(150.0))),
            [(Activity::Step, step), (Activity::Statement, statement)]
        );
        assert_eq!(inside_costs(Some(price(30.0)), Some(price(10.0)))[1].1.ns, 0.0);
        assert_eq!(inside_costs(Some(price(30.0)), None), []);
    }

    #[test]
    fn step_cost_is_traps_plus_programs() {
        let info = |run_time_ns, run_count| ProgramInfo { run_time_ns, run_count, recursion_misses: 0 };
        let programs = BTreeMap::from([
            ("sqlite_step", info(2450, 10)),
            ("sqlite_step_return", info(1450, 10)),
            ("sys_enter", info(700, 10)),
            ("sys_exit", info(0, 0)),
        ]);
        let price = |ns| Price { ns, low_ns: ns - 100.0, high_ns: ns + 200.0, inside_ns: 0.0 };
        let traps =
            BTreeMap::from([(FirstInstruction::Emulated, price(1000.0)), (FirstInstruction::Stepped, price(5000.0))]);
        let begins = BTreeSet::from([
            (ProbedFunction::Step, FirstInstruction::Emulated),
            (ProbedFunction::Function, FirstInstruction::Emulated),
            (ProbedFunction::Function, FirstInstruction::Stepped),
        ]);
        // The cost of programs without timed runs is unknown; that of traps is known.
        assert_eq!(
            costs(&traps, &begins, &programs),
            [
                (Activity::Step, Price { ns: 1300.0, low_ns: 1200.0, high_ns: 1590.0, inside_ns: 650.0 }),
                (Activity::Function, Price { ns: 3000.0, low_ns: 900.0, high_ns: 5200.0, inside_ns: 2500.0 })
            ]
        );
        // Stepping is 4,000 of the 5,000, and happens after the clock was read.
        let stepped = BTreeSet::from([(ProbedFunction::Function, FirstInstruction::Stepped)]);
        let function = Price { ns: 5000.0, low_ns: 4900.0, high_ns: 5200.0, inside_ns: 4500.0 };
        assert_eq!(costs(&traps, &stepped, &programs), [(Activity::Function, function)]);
        let prepared = BTreeSet::from([(ProbedFunction::Prepare, FirstInstruction::Stepped)]);
        assert_eq!(costs(&traps, &prepared, &programs), [(Activity::Prepare, function)]);
        assert_eq!(costs(&BTreeMap::new(), &begins, &programs), []);
    }
}
