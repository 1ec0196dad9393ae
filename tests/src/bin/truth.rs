//! `make truth`: injected causes beside what `explain` finds, and changes that were made beside what `whatif` predicted.
//!
//! Trials of all causes, healthy workloads and changes come in random order, so that what changes on the machine meets all of them alike.
//! Ctrl-C ends them; the page is made of those that are done, says so first, and names what has no trial.
//!
//! Usage: truth whatif|causes [--trials N] [--seed S] [--only TEXT] [--output FILE]

use anyhow::{Context, Result, bail, ensure};
use fathom_tests::truth::causes::{Cause, List};
use fathom_tests::truth::whatif::Change;
use fathom_tests::truth::{Machine, Missing, causes, stop_on_interrupt, stopped, whatif};
use stats::random::Random;
use std::path::{Path, PathBuf};
use std::time::Instant;

struct Asked {
    what: String,
    trials: usize,
    seed: u64,
    only: String,
    output: Option<PathBuf>,
}

fn asked() -> Result<Asked> {
    let mut words = std::env::args().skip(1);
    let what = words.next().context("expected whatif or causes")?;
    let mut asked = Asked { what, trials: 3, seed: now(), only: String::new(), output: None };
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--trials" => asked.trials = value.parse().with_context(|| format!("--trials {value}"))?,
            "--seed" => asked.seed = value.parse().with_context(|| format!("--seed {value}"))?,
            "--only" => asked.only = value,
            "--output" => asked.output = Some(value.into()),
            _ => bail!("unknown option {word}"),
        }
    }
    Ok(asked)
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_secs())
}

/// What came of trials.
struct Done<R> {
    /// What each gave, by the thing.
    results: Vec<Vec<R>>,
    /// What is not in it.
    missing: Missing,
}

/// Runs so many trials of each thing, all in random order.
fn trials<R>(
    counts: &[usize],
    name: impl Fn(usize) -> String,
    seed: u64,
    mut run: impl FnMut(usize, &mut Random) -> Result<(R, String)>,
) -> Done<R> {
    let mut order: Vec<usize> = counts.iter().enumerate().flat_map(|(at, n)| std::iter::repeat_n(at, *n)).collect();
    Random::new(seed).shuffle(&mut order);
    let mut results: Vec<Vec<R>> = counts.iter().map(|_| Vec::new()).collect();
    let mut missing = Missing { trials: order.len(), ..Missing::default() };
    let since = Instant::now();
    for (done, &at) in order.iter().enumerate() {
        // A seed a trial, so that one draws the same whatever came before.
        let mut random = Random::new(seed.wrapping_add(1 + done as u64));
        let result = run(at, &mut random);
        if stopped() {
            eprintln!("stopped after {done} of {} trials", order.len());
            missing.stopped_after = Some(done);
            break;
        }
        let head = format!("[{}/{}, {:.0} s] {}", done + 1, order.len(), since.elapsed().as_secs_f64(), name(at));
        match result {
            Ok((result, said)) => {
                eprintln!("{head}: {said}");
                results[at].push(result);
            }
            Err(error) => {
                eprintln!("{head}: failed: {error:#}");
                missing.failed.push(format!("{}: {error}", name(at)).lines().next().unwrap_or_default().to_owned());
            }
        }
    }
    let without = results.iter().enumerate().filter(|(at, all)| counts[*at] > 0 && all.is_empty());
    missing.untried = without.map(|(at, _)| name(at)).collect();
    Done { results, missing }
}

fn whatif_page(folder: &Path, asked: &Asked, how: impl Fn() -> Result<String>) -> Result<String> {
    let changes: Vec<Change> = whatif::changes().into_iter().filter(|c| c.name.contains(&asked.only)).collect();
    let Done { results, missing } = trials(
        &vec![asked.trials; changes.len()],
        |at| changes[at].name.to_owned(),
        asked.seed,
        |at, random| {
            let trial = whatif::trial(folder, &changes[at], random)?;
            let said = format!(
                "{:.1} -> {:.1} ms predicted, {:.1} ms true ({:+.0} %)",
                trial.before / 1e6,
                trial.predicted / 1e6,
                trial.after / 1e6,
                100.0 * trial.error()
            );
            Ok((trial, said))
        },
    );
    let all: Vec<_> = changes.into_iter().zip(results).filter(|(_, trials)| !trials.is_empty()).collect();
    ensure!(!all.is_empty(), "no trial was done");
    Ok(whatif::page(&all, &missing, &how()?))
}

fn causes_page(folder: &Path, asked: &Asked, how: impl Fn() -> Result<String>) -> Result<String> {
    let List { cause, healthy } = causes::list()?;
    let named = |all: Vec<Cause>| all.into_iter().filter(|c| c.name.contains(&asked.only)).collect::<Vec<_>>();
    let (causes, healthy) = (named(cause), named(healthy));
    let all: Vec<&Cause> = causes.iter().chain(&healthy).collect();
    let mut counts = vec![asked.trials; causes.len()];
    counts.resize(all.len(), asked.trials.div_ceil(4));
    let Done { mut results, missing } = trials(
        &counts,
        |at| all[at].name.clone(),
        asked.seed,
        |at, random| {
            let trial = causes::trial(folder, all[at], random)?;
            let said = format!("{trial:?}");
            Ok((trial, said))
        },
    );
    let quiet: Vec<_> = results.split_off(causes.len());
    let wrong = |trials: Vec<causes::Trial>| trials.iter().map(causes::Trial::wrong).collect::<Vec<_>>();
    let found: Vec<_> = causes.into_iter().zip(results).filter(|(_, trials)| !trials.is_empty()).collect();
    let quiet: Vec<_> = healthy.into_iter().zip(quiet.into_iter().map(wrong)).filter(|(_, t)| !t.is_empty()).collect();
    ensure!(!found.is_empty() || !quiet.is_empty(), "no trial was done");
    Ok(causes::page(&found, &quiet, &missing, &how()?))
}

fn main() -> Result<()> {
    let asked = asked()?;
    stop_on_interrupt();
    let folder = tempfile::tempdir()?;
    let machine = Machine::watch();
    let how = || -> Result<String> {
        Ok(format!(
            "Made by `make truth SEED={} TRIALS={}` on {}:\n{}.\nEach trial draws a workload (rows, their size, page size) and a device \
             (writes of 0.1 to 1 ms, flushes of 1 to 8 ms unless the cause is the\ndevice; served by `experiments/causes/slowdisk.py`), and \
             runs both sides in random order on fresh file systems; all trials come\nin random order. The program runs with real-time \
             priority unless the cause is the CPU, the kernel's threads do not.",
            asked.seed,
            asked.trials,
            date()?,
            machine.said()
        ))
    };
    let page = match asked.what.as_str() {
        "whatif" => whatif_page(folder.path(), &asked, how)?,
        "causes" => causes_page(folder.path(), &asked, how)?,
        other => bail!("unknown {other}: expected whatif or causes"),
    };
    match asked.output {
        // Only a complete page replaces one.
        Some(file) => archive::atomic_file::text(&file, &page).with_context(|| format!("writing {}", file.display())),
        None => {
            print!("{page}");
            Ok(())
        }
    }
}

fn date() -> Result<String> {
    let output = std::process::Command::new("date").arg("+%d %B %Y").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
