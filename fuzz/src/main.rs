//! The driver: makes inputs from each target's seeds and tries them, a given time or number.
//!
//! ```text
//! cargo run -p fathom-fuzz -- smoke [--seconds N] [--seed S]     every target, N seconds each (2)
//! cargo run -p fathom-fuzz -- run TARGET [--seconds N] [--iterations N] [--seed S]
//! cargo run -p fathom-fuzz -- try TARGET FILE                    one input
//! cargo run -p fathom-fuzz -- list
//! ```
//!
//! Input i of a seed is always the same, whatever the time. An input that fails is written to `fuzz/corpus/TARGET/`,
//! from where it is tried first from then on. Exit 0: nothing failed; 1: something did; 2: bad usage.

use fathom_fuzz::mutate::{Random, mutate};
use fathom_fuzz::{CANARY, TARGETS, Target, find};
use std::alloc::{GlobalAlloc, Layout, System};
use std::any::Any;
use std::io::Write;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// More than any input of ours can justify at once: a reader that asks for it believes a number of the file.
const MAX_ALLOCATION: usize = 1 << 30;

/// The input being tried, for the message when memory is refused, which ends the program.
static TRYING: AtomicU64 = AtomicU64::new(0);

struct Limited;

#[global_allocator]
static MEMORY: Limited = Limited;

// SAFETY: it passes everything on to the system's allocator, or refuses, which the contract allows.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MAX_ALLOCATION {
            // Standard error is not buffered, so that this takes no memory.
            let _ = writeln!(
                std::io::stderr(),
                "{} bytes were asked for at once, in input {}",
                layout.size(),
                TRYING.load(Ordering::Relaxed)
            );
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises about `layout` are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` above, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How long, and from which number.
#[derive(Clone, Copy)]
struct Limits {
    time: Duration,
    iterations: u64,
    seed: u64,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // The targets catch panics, and report those that count.
    std::panic::set_hook(Box::new(|_| ()));
    let done = match words[..] {
        ["list"] => {
            TARGETS.iter().for_each(|t| say(t.name));
            Some(true)
        }
        ["try", name, file] => find(name).zip(std::fs::read(file).ok()).map(|(t, bytes)| fails(t, &bytes).is_none()),
        ["run", name, ref options @ ..] => find(name).zip(limits(options)).map(|(t, limits)| fuzz(t, limits)),
        ["smoke", ref options @ ..] => limits(options).map(smoke),
        _ => None,
    };
    match done {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            say(
                "usage: smoke [--seconds N] [--seed S] | run TARGET [--seconds N] [--iterations N] [--seed S] | try TARGET FILE | list",
            );
            ExitCode::from(2)
        }
    }
}

fn limits(options: &[&str]) -> Option<Limits> {
    let mut limits = Limits { time: Duration::from_secs(2), iterations: u64::MAX, seed: 1 };
    for option in options.chunks(2) {
        match *option {
            ["--seconds", n] => limits.time = Duration::try_from_secs_f64(n.parse().ok()?).ok()?,
            ["--iterations", n] => (limits.iterations, limits.time) = (n.parse().ok()?, Duration::MAX),
            ["--seed", n] => limits.seed = n.parse().ok()?,
            _ => return None,
        }
    }
    Some(limits)
}

/// Every target, after the canary has shown that the driver finds what is there.
fn smoke(limits: Limits) -> bool {
    let iterations = 1_000_000;
    let alive = (0..iterations).all(|i| fails(CANARY, &input(&(CANARY.seeds)(), limits.seed, i)).is_none());
    if alive {
        say("canary: did not fail, so that nothing below would mean anything");
        return false;
    }
    // All of them, also after one that failed.
    TARGETS.iter().filter(|t| !fuzz(**t, limits)).count() == 0
}

fn fuzz(target: Target, limits: Limits) -> bool {
    let mut seeds = match catch_unwind(target.seeds) {
        Ok(seeds) => seeds,
        Err(panic) => {
            say(&format!("{}: no seeds: {}", target.name, words(&*panic)));
            return false;
        }
    };
    for (path, bytes) in corpus(target) {
        if let Some(why) = fails(target, &bytes) {
            say(&format!("{}: {} fails again: {why}", target.name, path.display()));
            return false;
        }
        seeds.push(bytes);
    }
    let start = Instant::now();
    let mut tried = 0;
    while tried < limits.iterations && start.elapsed() < limits.time {
        TRYING.store(tried, Ordering::Relaxed);
        let bytes = input(&seeds, limits.seed, tried);
        if let Some(why) = fails(target, &bytes) {
            say(&format!(
                "{}: input {tried} of seed {} fails: {why}; {}",
                target.name,
                limits.seed,
                keep(target, &bytes)
            ));
            return false;
        }
        tried += 1;
    }
    say(&format!("{}: {tried} inputs in {:.1} s", target.name, start.elapsed().as_secs_f64()));
    true
}

/// Keeps an input that failed, to be tried first from now on, and says where.
fn keep(target: Target, bytes: &[u8]) -> String {
    if target.name == CANARY.name {
        return "not kept, since it must fail".into();
    }
    let path = folder(target).join(format!("{:08x}", crc32fast::hash(bytes)));
    let kept = std::fs::create_dir_all(folder(target)).and_then(|()| std::fs::write(&path, bytes));
    kept.map_or_else(|e| format!("not kept ({e})"), |()| format!("kept as {}", path.display()))
}

fn input(seeds: &[Vec<u8>], seed: u64, i: u64) -> Vec<u8> {
    mutate(seeds, &mut Random::new(seed.rotate_left(32) ^ i))
}

/// Why the target fails on an input, if it does.
fn fails(target: Target, bytes: &[u8]) -> Option<String> {
    catch_unwind(|| (target.run)(bytes)).err().map(|panic| words(&*panic))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").into()
}

fn folder(target: Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

fn corpus(target: Target) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(folder(target)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    paths.into_iter().filter_map(|p| Some((p.clone(), std::fs::read(&p).ok()?))).collect()
}

fn say(line: &str) {
    // Nobody reads on: nothing is left to print.
    let _ = writeln!(std::io::stdout(), "{line}");
}
