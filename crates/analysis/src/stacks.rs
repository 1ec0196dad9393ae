//! Where the threads of a statement slept longest: stacks of the program and of the kernel, with identical stacks merged.
//!
//! They are a sample of the longest sleeps within the recording's budget: the number of times a stack occurs here is not a
//! count of the sleeps.

use crate::contract::SlowWait;
use crate::lines::wrapped;
use crate::rows::Index;
use crate::text::{duration, shown};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of distinct sleeps kept for a statement; the longest are kept.
const SLEEPS_MAX: usize = 16;
/// Maximum number of sleeps that `show` prints for a statement.
const SLEEPS_PRINTED_MAX: usize = 3;
/// Maximum number of functions of either side in a line.
const FUNCTIONS_SHOWN_MAX: usize = 6;

/// Key of a sleep: thread and start time.
pub type Key = (u32, u64);
/// The place of a sleep, by which sleeps are distinguished: call, the program's functions and why they end, the kernel's functions.
type Place = (Option<String>, String, Option<Cow<'static, str>>, String);

/// The kernel's and the program's stack of a sleep, by their positions.
type Sides = (Option<u32>, Option<u32>);

/// Sleeps with stacks.
pub struct Sleeps<'a> {
    index: &'a Index<'a>,
    all: BTreeMap<Key, Sides>,
}

impl<'a> Sleeps<'a> {
    /// Indexes the rows in one pass.
    pub fn new(index: &'a Index<'a>) -> Self {
        let stacks = &index.rows.stacks;
        let mut all: BTreeMap<Key, Sides> = BTreeMap::new();
        for at in 0..stacks.len() {
            let both = all.entry((stacks.tid(at), stacks.start_ns(at))).or_default();
            match &*stacks.kind(at) {
                "kernel" => both.0 = Some(at as u32),
                _ => both.1 = Some(at as u32),
            }
        }
        Self { index, all }
    }

    /// Yields the sleeps of a thread that overlap an interval, and the length of the overlap.
    pub fn within(&self, (tgid, tid): (u32, u32), from_ns: u64, to_ns: u64) -> impl Iterator<Item = (Key, u64)> {
        let stacks = &self.index.rows.stacks;
        let sleeps = self.all.range((tid, 0)..(tid, to_ns.max(from_ns))).rev();
        let rows = sleeps.filter_map(|(key, sides)| Some((*key, either_side(sides)?)));
        // The sleeps of one thread do not overlap.
        let last = rows.take_while(move |(_, at)| stacks.end_ns(*at) > from_ns);
        let own = last.filter(move |(_, at)| stacks.tgid(*at) == tgid);
        own.map(move |((tid, start), at)| {
            ((tid, start), stacks.end_ns(at).min(to_ns).saturating_sub(start.max(from_ns)))
        })
    }

    /// Returns the longest of some sleeps, merged by place, by the part of each that counts.
    pub fn longest(&self, parts: impl IntoIterator<Item = (Key, u64)>) -> Vec<SlowWait> {
        let rows = self.index.rows;
        let stacks = &rows.stacks;
        let mut places: HashMap<Place, (u64, u64, u64)> = HashMap::new();
        for (key, ns) in parts {
            let Some(sides @ (kernel, program)) = self.all.get(&key) else { continue };
            let functions = |at: &Option<u32>| at.map_or_else(String::new, |at| stacks.functions(at as usize));
            let (of_kernel, of_program) = (functions(kernel), functions(program));
            let span = either_side(sides).and_then(|at| stacks.span(at)).and_then(|id| self.index.span(id));
            let call = span.map(|at| rows.spans.kind(at).into_owned());
            let call = call.or_else(|| system_call(&of_kernel).map(str::to_owned));
            let ended = program.and_then(|at| stacks.ended(at as usize));
            let sums = places.entry((call, of_program, ended, of_kernel)).or_default();
            *sums = (sums.0 + 1, sums.1.saturating_add(ns), sums.2.max(ns));
        }
        let slow_wait = |((call, program, ended, kernel), (times, ns, longest_ns)): (Place, _)| SlowWait {
            longest_ns,
            ns,
            times,
            call,
            program: program.lines().map(str::to_string).collect(),
            program_ended: ended.map(Cow::into_owned),
            kernel: kernel.lines().map(str::to_string).collect(),
        };
        let mut waits: Vec<SlowWait> = places.into_iter().map(slow_wait).collect();
        let rest = |w: &SlowWait| (w.ns, w.program.clone(), w.kernel.clone());
        waits.sort_by(|a, b| b.longest_ns.cmp(&a.longest_ns).then_with(|| rest(b).cmp(&rest(a))));
        waits.truncate(SLEEPS_MAX);
        waits
    }
}

/// Returns a row with the fields that both sides have in common.
fn either_side((kernel, program): &Sides) -> Option<usize> {
    program.or(*kernel).map(|at| at as usize)
}

/// Returns the longest sleeps of each shape that has any.
pub fn slow_waits(index: &Index) -> HashMap<usize, Vec<SlowWait>> {
    let sleeps = Sleeps::new(index);
    let mut of_shape: HashMap<usize, Vec<(Key, u64)>> = HashMap::new();
    let stacks = &index.rows.stacks;
    for (key, sides) in &sleeps.all {
        let Some(at) = either_side(sides) else { continue };
        if let Some(shape) = stacks.operation(at).and_then(|id| index.operation(id)).and_then(|at| index.shape(at)) {
            of_shape.entry(shape).or_default().push((*key, stacks.end_ns(at).saturating_sub(stacks.start_ns(at))));
        }
    }
    of_shape.into_iter().map(|(shape, all)| (shape, sleeps.longest(all))).collect()
}

/// Returns the system call of the kernel's functions, by the name of the outermost one.
fn system_call(kernel: &str) -> Option<&str> {
    let call = |name: &'_ str| -> Option<usize> {
        ["__x64_sys_", "__arm64_sys_", "__ia32_sys_", "ksys_"]
            .iter()
            .find(|prefix| name.starts_with(**prefix))
            .map(|p| p.len())
    };
    kernel.lines().rev().find_map(|name| call(name).map(|from| &name[from..]))
}

/// Adds the sleeps that `show` prints: the longest ones, each at least a thousandth of the statement's time `sum_ns`.
pub fn text(out: &mut String, waits: &[SlowWait], sum_ns: u64) {
    for wait in waits.iter().filter(|w| w.longest_ns.saturating_mul(1000) >= sum_ns).take(SLEEPS_PRINTED_MAX) {
        wrapped(out, "  slow wait    ", &line(wait));
    }
}

/// Formats a sleep as a line: `42 ms in fdatasync: app_commit <- flush_log <- main; kernel: jbd2_log_wait_commit <- …`.
pub fn line(wait: &SlowWait) -> String {
    let call = wait.call.as_deref().map_or_else(String::new, |call| format!(" in {}", shown(call)));
    let times = if wait.times > 1 { format!(" (the longest of {} like it)", wait.times) } else { String::new() };
    let program = join_functions(&program_functions(wait));
    let program = match (program.is_empty(), wait.program_ended.as_deref()) {
        (true, why) => format!("program unknown ({})", shown(why.unwrap_or("no function"))),
        (false, None) => program,
        // The last known function is not the outermost.
        (false, Some(_)) => format!("{program} <- ?"),
    };
    let kernel = join_functions(&kernel_functions(wait));
    let kernel = if kernel.is_empty() { String::new() } else { format!("; kernel: {kernel}") };
    format!("{}{call}{times}: {program}{kernel}", duration(wait.longest_ns as f64))
}

/// The program's functions without those of the C library around `main` and around a thread's function, and without the call itself.
fn program_functions(wait: &SlowWait) -> Vec<&str> {
    // Without its debugging symbols, the C library's own part of a program's start has no name.
    let unnamed = |name: &str| wait.program_ended.is_none() && name.starts_with("libc.so.") && name.contains('+');
    let around = |name: &&&str| {
        if unnamed(name) {
            return true;
        }
        let name = name.trim_start_matches('_');
        ["start", "libc_start_main", "libc_start_call_main", "start_thread", "clone", "clone3"]
            .iter()
            .any(|outer| name == *outer || name.strip_prefix(outer).is_some_and(|rest| rest.starts_with(['@', '_'])))
    };
    let all: Vec<&str> = wait.program.iter().map(String::as_str).collect();
    let outer = all.iter().rev().take_while(around).count();
    // If nothing else is left, keep them.
    let inner = if outer < all.len() { &all[..all.len() - outer] } else { &all[..] };
    let call = wait.call.as_deref();
    let own = inner.len() > 1 && inner.first().is_some_and(|name| Some(name.trim_start_matches('_')) == call);
    inner[usize::from(own)..].to_vec()
}

/// The kernel's functions between the scheduler, in which all sleeps end, and the entry of the system call.
fn kernel_functions(wait: &SlowWait) -> Vec<&str> {
    let scheduler = |name: &&&str| {
        let name = name.trim_start_matches('_');
        name == "schedule" || name.starts_with("schedule_") || name.starts_with("io_schedule") || name == "bit_wait_io"
    };
    let entry = |name: &&&str| {
        let outer =
            ["do_syscall_", "entry_SYSCALL", "x64_sys_call", "el0", "invoke_syscall", "do_el0_svc", "ret_from_fork"];
        outer.iter().any(|prefix| name.trim_start_matches('_').starts_with(prefix))
    };
    let all: Vec<&str> = wait.kernel.iter().map(String::as_str).collect();
    let inner = all.iter().take_while(scheduler).count();
    let outer = all.iter().rev().take_while(entry).count();
    all[inner.min(all.len())..all.len().saturating_sub(outer).max(inner)].to_vec()
}

/// Joins functions, innermost first, up to the maximum for a line.
fn join_functions(functions: &[&str]) -> String {
    let mut names: Vec<String> = functions.iter().take(FUNCTIONS_SHOWN_MAX).map(|name| shown(name)).collect();
    if functions.len() > FUNCTIONS_SHOWN_MAX {
        names.push("…".into());
    }
    names.join(" <- ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(program: &[&str], kernel: &[&str], call: Option<&str>) -> SlowWait {
        let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        SlowWait {
            longest_ns: 42_000_000,
            ns: 42_000_000,
            times: 1,
            call: call.map(Into::into),
            program: owned(program),
            program_ended: None,
            kernel: owned(kernel),
        }
    }

    #[test]
    fn unnamed_functions_of_the_c_library_around_main_are_left_out() {
        let stripped =
            ["compare", "libc.so.6+0x3f1a0", "main", "libc.so.6+0x2724a", "__libc_start_main@@GLIBC_2.34", "_start"];
        let mut one = wait(&stripped, &[], None);
        assert_eq!(line(&one), "42.0 ms: compare <- libc.so.6+0x3f1a0 <- main");
        one.program.truncate(2);
        one.program_ended = Some("nothing tells who called it".into());
        assert_eq!(line(&one), "42.0 ms: compare <- libc.so.6+0x3f1a0 <- ?");
    }

    #[test]
    fn a_line_names_what_differs_between_sleeps() {
        let program = [
            "fdatasync",
            "app_commit",
            "flush_log",
            "main",
            "__libc_start_call_main",
            "__libc_start_main_impl",
            "_start",
        ];
        let kernel = [
            "__schedule",
            "schedule",
            "jbd2_log_wait_commit",
            "ext4_sync_file",
            "__x64_sys_fdatasync",
            "x64_sys_call",
            "do_syscall_64",
            "entry_SYSCALL_64_after_hwframe",
        ];
        let mut one = wait(&program, &kernel, Some("fdatasync"));
        assert_eq!(
            line(&one),
            "42.0 ms in fdatasync: app_commit <- flush_log <- main; \
             kernel: jbd2_log_wait_commit <- ext4_sync_file <- __x64_sys_fdatasync"
        );
        (one.times, one.program_ended) = (7, Some("nothing tells who called it".into()));
        assert!(
            line(&one)
                .starts_with("42.0 ms in fdatasync (the longest of 7 like it): app_commit <- flush_log <- main <- ?;")
        );
        let unknown = SlowWait { program: Vec::new(), ..one };
        assert!(
            line(&unknown).contains(": program unknown (nothing tells who called it); kernel:"),
            "{}",
            line(&unknown)
        );
    }

    #[test]
    fn short_and_long_chains_keep_what_they_can() {
        assert_eq!(line(&wait(&["_start"], &[], None)), "42.0 ms: _start");
        assert_eq!(line(&wait(&["read"], &["schedule"], Some("read"))), "42.0 ms in read: read");
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        assert!(line(&wait(&many, &many, None)).contains("a <- b <- c <- d <- e <- f <- …; kernel: a <- b"));
        assert_eq!(system_call("futex_wait\n__x64_sys_futex\ndo_syscall_64"), Some("futex"));
        assert_eq!(system_call("schedule\nret_from_fork"), None);
    }
}
