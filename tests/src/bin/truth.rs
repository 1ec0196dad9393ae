//! `make truth`: compares injected causes with the findings of `explain`, and actual changes with the predictions of
//! `whatif`.
//!
//! Trials of all causes, healthy workloads and changes come in random order, so that changes of the machine affect all of them alike, and
//! are spread so that each part of a run has as many of each: wherever it ends, it has covered a bit of everything. Ctrl-C, a SIGTERM or
//! `--minutes` ends it; the page is made from the completed trials, states so first, and names what has none. A trial draws from the
//! seed, its subject's name and its number, so that `--only` repeats it.
//!
//! Usage: truth whatif|causes [--trials N] [--minutes M] [--seed S] [--only TEXT] [--output FILE] [--keep DIRECTORY]

use anyhow::{Context, Result, bail, ensure};
use fathom_tests::truth::causes::{Cause, List};
use fathom_tests::truth::whatif::Change;
use fathom_tests::truth::{End, Machine, MissingParts, Place, causes, is_stopped, stop_on_interrupt, whatif};
use stats::random::Random;
use std::path::PathBuf;
use std::time::{Duration, Instant};

struct Arguments {
    what: String,
    trials: usize,
    seed: u64,
    only: String,
    minutes: Option<f64>,
    output: Option<PathBuf>,
    keep: Option<PathBuf>,
}

impl Arguments {
    fn budget(&self) -> Option<Duration> {
        self.minutes.and_then(|minutes| Duration::try_from_secs_f64(60.0 * minutes).ok())
    }
}

fn parse_arguments() -> Result<Arguments> {
    let mut words = std::env::args().skip(1);
    let what = words.next().context("expected whatif or causes")?;
    let mut asked = Arguments {
        what,
        trials: 3,
        seed: unix_seconds(),
        only: String::new(),
        minutes: None,
        output: None,
        keep: None,
    };
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--trials" => asked.trials = value.parse().with_context(|| format!("--trials {value}"))?,
            "--seed" => asked.seed = value.parse().with_context(|| format!("--seed {value}"))?,
            "--minutes" => asked.minutes = Some(value.parse().with_context(|| format!("--minutes {value}"))?),
            "--only" => asked.only = value,
            "--keep" => asked.keep = Some(value.into()),
            "--output" => asked.output = Some(value.into()),
            _ => bail!("unknown option {word}"),
        }
    }
    Ok(asked)
}

fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_secs())
}

/// The outcome of trials.
struct TrialResults<R> {
    /// The results, by subject.
    results: Vec<Vec<R>>,
    /// What is missing.
    missing: MissingParts,
}

/// The subject of each trial, and its number among those of the subject. The k-th of n lies somewhere in the k-th n-th of the run.
fn trial_order(counts: &[usize], random: &mut Random) -> Vec<(usize, usize)> {
    let mut all: Vec<(f64, usize, usize)> = Vec::new();
    for (at, &n) in counts.iter().enumerate() {
        all.extend((0..n).map(|nth| ((nth as f64 + random.unit()) / n as f64, at, nth)));
    }
    all.sort_by(|p, q| p.0.total_cmp(&q.0));
    all.into_iter().map(|(_, at, nth)| (at, nth)).collect()
}

/// The seed of a trial: the same whatever other trials there are.
fn seed_of(seed: u64, name: &str, nth: usize) -> u64 {
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    seed.wrapping_add(hash).wrapping_add(nth as u64)
}

/// Runs the trials of each subject, until the time is up or somebody ends it.
fn run_trials<R>(
    counts: &[usize],
    name: impl Fn(usize) -> String,
    asked: &Arguments,
    mut run: impl FnMut(usize, &mut Random) -> Result<(R, String)>,
) -> TrialResults<R> {
    let order = trial_order(counts, &mut Random::new(asked.seed));
    let mut results: Vec<Vec<R>> = counts.iter().map(|_| Vec::new()).collect();
    let mut missing = MissingParts { trials: order.len(), ..MissingParts::default() };
    let since = Instant::now();
    for (done, &(at, nth)) in order.iter().enumerate() {
        if let Some(budget) = asked.budget().filter(|budget| since.elapsed() >= *budget) {
            eprintln!("time is up after {done} of {} trials", order.len());
            missing.ended = Some((End::Time(budget), done));
            break;
        }
        let result = run(at, &mut Random::new(seed_of(asked.seed, &name(at), nth)));
        if is_stopped() {
            eprintln!("stopped after {done} of {} trials", order.len());
            missing.ended = Some((End::Interrupt, done));
            break;
        }
        let head = format!("[{}/{}, {:.0} s] {} {nth}", done + 1, order.len(), since.elapsed().as_secs_f64(), name(at));
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
    TrialResults { results, missing }
}

fn whatif_page(place: &Place, asked: &Arguments, how: impl Fn() -> Result<String>) -> Result<String> {
    let changes: Vec<Change> = whatif::all_changes().into_iter().filter(|c| c.name.contains(&asked.only)).collect();
    let TrialResults { results, missing } = run_trials(
        &vec![asked.trials; changes.len()],
        |at| changes[at].name.to_owned(),
        asked,
        |at, random| {
            let trial = whatif::run_trial(place, &changes[at], random)?;
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
    Ok(whatif::results_page(&all, &missing, &how()?))
}

fn causes_page(place: &Place, asked: &Arguments, how: impl Fn() -> Result<String>) -> Result<String> {
    let List { cause, healthy } = causes::read_list()?;
    let named = |all: Vec<Cause>| all.into_iter().filter(|c| c.name.contains(&asked.only)).collect::<Vec<_>>();
    let (causes, healthy) = (named(cause), named(healthy));
    let all: Vec<&Cause> = causes.iter().chain(&healthy).collect();
    let mut counts = vec![asked.trials; causes.len()];
    counts.resize(all.len(), asked.trials.div_ceil(4));
    let TrialResults { mut results, missing } = run_trials(
        &counts,
        |at| all[at].name.clone(),
        asked,
        |at, random| {
            let trial = causes::run_trial(place, all[at], random)?;
            let said = trial.result_line(all[at]);
            Ok((trial, said))
        },
    );
    let quiet: Vec<_> = results.split_off(causes.len());
    let wrong = |trials: Vec<causes::Trial>| trials.iter().map(causes::Trial::wrong).collect::<Vec<_>>();
    let found: Vec<_> = causes.into_iter().zip(results).filter(|(_, trials)| !trials.is_empty()).collect();
    let quiet: Vec<_> = healthy.into_iter().zip(quiet.into_iter().map(wrong)).filter(|(_, t)| !t.is_empty()).collect();
    ensure!(!found.is_empty() || !quiet.is_empty(), "no trial was done");
    Ok(causes::results_page(&found, &quiet, &missing, &how()?))
}

fn main() -> Result<()> {
    let asked = parse_arguments()?;
    stop_on_interrupt();
    let place = Place::new(asked.keep.clone())?;
    let machine = Machine::watch();
    let how = || -> Result<String> {
        Ok(format!(
            "Made by `make truth SEED={} TRIALS={}{}` on {}:\n{}.\nEach trial draws a workload (rows, their size, page size) and a device \
             (writes of 0.1 to 1 ms, flushes of 1 to 8 ms unless the cause is the\ndevice; served by `experiments/causes/slowdisk.py`), and \
             runs both sides in random order on fresh file systems; all trials come\nin random order. The program runs with real-time \
             priority unless the cause is the CPU, and so does the thread of\nthe file system's journal; the kernel's other threads do not.",
            asked.seed,
            asked.trials,
            asked.minutes.map_or_else(String::new, |minutes| format!(" MINUTES={minutes}")),
            today()?,
            machine.said()
        ))
    };
    let page = match asked.what.as_str() {
        "whatif" => whatif_page(&place, &asked, how)?,
        "causes" => causes_page(&place, &asked, how)?,
        other => bail!("unknown {other}: expected whatif or causes"),
    };
    match asked.output {
        // Only a complete page replaces one.
        Some(file) => {
            archive::atomic_file::write_text(&file, &page).with_context(|| format!("writing {}", file.display()))
        }
        None => {
            print!("{page}");
            Ok(())
        }
    }
}

fn today() -> Result<String> {
    let output = std::process::Command::new("date").arg("+%d %B %Y").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_the_order_has_each_subject() {
        let order = trial_order(&[12, 12, 12, 3], &mut Random::new(7));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((order.len(), sorted.len()), (39, 39));
        for part in order.chunks(13) {
            let counts = [0, 1, 2, 3].map(|at| part.iter().filter(|(thing, _)| *thing == at).count());
            assert!(counts.iter().zip([4_usize, 4, 4, 1]).all(|(n, mean)| n.abs_diff(mean) <= 1), "{counts:?}");
        }
    }

    #[test]
    fn trial_draws_the_same_alone_as_among_others() {
        assert_eq!(seed_of(1, "lock holder", 3), seed_of(1, "lock holder", 3));
        assert_ne!(seed_of(1, "lock holder", 3), seed_of(1, "lock holder", 2));
        assert_ne!(seed_of(1, "lock holder", 3), seed_of(1, "missing index", 3));
    }

    #[test]
    fn run_out_of_time_keeps_its_results() {
        let asked = Arguments {
            what: "causes".into(),
            trials: 1,
            seed: 1,
            only: String::new(),
            minutes: Some(0.0),
            output: None,
            keep: None,
        };
        let TrialResults { results, missing } =
            run_trials(&[2, 1], |at| at.to_string(), &asked, |_, _| Ok(((), String::new())));
        assert!(results.iter().all(Vec::is_empty) && missing.ended == Some((End::Time(Duration::ZERO), 0)));
        assert_eq!(missing.untried, ["0", "1"]);
    }
}
