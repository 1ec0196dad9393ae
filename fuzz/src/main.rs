//! The driver: makes inputs from each target's seeds and tries them, a given time or number.
//!
//! ```text
//! cargo run -p fathom-fuzz -- smoke [--seconds N] [--seed S]     every target, N seconds each (2)
//! cargo run -p fathom-fuzz -- run TARGET [--seconds N] [--iterations N] [--seed S]
//! cargo run -p fathom-fuzz -- try TARGET FILE                    one input
//! cargo run -p fathom-fuzz -- seeds TARGET DIRECTORY                writes what inputs are made of, a file each
//! cargo run -p fathom-fuzz -- pack TARGET DIRECTORY                 keeps the inputs in a directory's files
//! cargo run -p fathom-fuzz -- list
//! ```
//!
//! Input i of a seed is always the same, whatever the time. An input that fails is written to `fuzz/corpus/TARGET/`,
//! from where it is tried first from then on. Exit 0: nothing failed; 1: something did; 2: bad usage.

use fathom_fuzz::kept::{KeptInput, kept_inputs, pack_files};
use fathom_fuzz::memory::{CURRENT_INPUT, LimitedAllocator};
use fathom_fuzz::mutate::{Random, mutate};
use fathom_fuzz::{CANARY_TARGET, TARGETS, Target, find};
use std::any::Any;
use std::io::Write;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: LimitedAllocator = LimitedAllocator;

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
            TARGETS.iter().for_each(|t| print_line(t.name));
            Some(true)
        }
        ["try", name, file] => {
            find(name).zip(std::fs::read(file).ok()).map(|(t, bytes)| failure_of(t, &bytes).is_none())
        }
        ["seeds", name, to] => find(name).map(|t| write_inputs(t, Path::new(to))),
        ["pack", name, from] => find(name).map(|t| pack_corpus(t, Path::new(from))),
        ["run", name, ref options @ ..] => {
            find(name).zip(parse_limits(options)).map(|(t, limits)| fuzz_target(t, limits))
        }
        ["smoke", ref options @ ..] => parse_limits(options).map(fuzz_every_target),
        _ => None,
    };
    match done {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            print_line(
                "usage: smoke [--seconds N] [--seed S] | run TARGET [--seconds N] [--iterations N] [--seed S] | try TARGET FILE | \
                 seeds TARGET DIRECTORY | pack TARGET DIRECTORY | list",
            );
            ExitCode::from(2)
        }
    }
}

fn parse_limits(options: &[&str]) -> Option<Limits> {
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
fn fuzz_every_target(limits: Limits) -> bool {
    let iterations = 1_000_000;
    let alive = (0..iterations)
        .all(|i| failure_of(CANARY_TARGET, &make_input(&(CANARY_TARGET.seeds)(), limits.seed, i)).is_none());
    if alive {
        print_line("canary: did not fail, so that nothing below would mean anything");
        return false;
    }
    // All of them, also after one that failed.
    TARGETS.iter().filter(|t| !fuzz_target(**t, limits)).count() == 0
}

fn fuzz_target(target: Target, limits: Limits) -> bool {
    let (mut seeds, kept) = match all_seeds(target) {
        Ok(all) => all,
        Err(why) => {
            print_line(&format!("{}: {why}", target.name));
            return false;
        }
    };
    for (name, bytes) in kept {
        if let Some(why) = failure_of(target, &bytes) {
            print_line(&format!("{}: {name} fails again: {why}", target.name));
            return false;
        }
        seeds.push(bytes);
    }
    let start = Instant::now();
    let mut tried = 0;
    while tried < limits.iterations && start.elapsed() < limits.time {
        CURRENT_INPUT.store(tried, Ordering::Relaxed);
        let bytes = make_input(&seeds, limits.seed, tried);
        if let Some(why) = failure_of(target, &bytes) {
            print_line(&format!(
                "{}: input {tried} of seed {} fails: {why}; {}",
                target.name,
                limits.seed,
                keep_failing(target, &bytes)
            ));
            return false;
        }
        tried += 1;
    }
    print_line(&format!("{}: {tried} inputs in {:.1} s", target.name, start.elapsed().as_secs_f64()));
    true
}

/// Inputs that our own writers make, and those that are kept.
fn all_seeds(target: Target) -> Result<(Vec<Vec<u8>>, Vec<KeptInput>), String> {
    let seeds = catch_unwind(target.seeds).map_err(|panic| format!("no seeds: {}", panic_text(&*panic)))?;
    Ok((seeds, kept_inputs(target.name).map_err(|e| format!("what is kept cannot be read: {e}"))?))
}

/// Writes all inputs of a target, for another fuzzer to begin with.
fn write_inputs(target: Target, to: &Path) -> bool {
    let write = |bytes: &Vec<u8>| std::fs::write(to.join(format!("{:08x}", crc32fast::hash(bytes))), bytes);
    let all = all_seeds(target).and_then(|(seeds, kept)| {
        let mut all = seeds.iter().chain(kept.iter().map(|(_, bytes)| bytes));
        std::fs::create_dir_all(to).and_then(|()| all.try_for_each(write)).map_err(|e| format!("{}: {e}", to.display()))
    });
    if let Err(why) = &all {
        print_line(&format!("{}: {why}", target.name));
    }
    all.is_ok()
}

fn pack_corpus(target: Target, from: &Path) -> bool {
    let done = pack_files(target.name, from);
    print_line(&match &done {
        Ok((inputs, bytes)) => format!("{}: {inputs} inputs in {bytes} bytes", target.name),
        Err(e) => format!("{}: {e}", target.name),
    });
    done.is_ok()
}

/// Keeps an input that failed, to be tried first from now on, and says where.
fn keep_failing(target: Target, bytes: &[u8]) -> String {
    if target.name == CANARY_TARGET.name {
        return "not kept, since it must fail".into();
    }
    let directory = fathom_fuzz::kept::corpus_directory(target.name);
    let path = directory.join(format!("{:08x}", crc32fast::hash(bytes)));
    let kept = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&path, bytes));
    kept.map_or_else(|e| format!("not kept ({e})"), |()| format!("kept as {}", path.display()))
}

fn make_input(seeds: &[Vec<u8>], seed: u64, i: u64) -> Vec<u8> {
    mutate(seeds, &mut Random::new(seed.rotate_left(32) ^ i))
}

/// Why the target fails on an input, if it does.
fn failure_of(target: Target, bytes: &[u8]) -> Option<String> {
    catch_unwind(|| (target.run)(bytes)).err().map(|panic| panic_text(&*panic))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").into()
}

fn print_line(line: &str) {
    // Nobody reads on: nothing is left to print.
    let _ = writeln!(std::io::stdout(), "{line}");
}
