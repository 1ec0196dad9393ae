//! `make truth`: injected causes beside what `explain` finds, and changes that were made beside what `whatif` predicted.
//!
//! Usage: truth whatif|causes [--trials N] [--seed S] [--only TEXT] [--output FILE]

use anyhow::{Context, Result, bail};
use fathom_tests::truth::{causes, machine, whatif};
use stats::random::Random;
use std::path::PathBuf;

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
            "--trials" => asked.trials = value.parse()?,
            "--seed" => asked.seed = value.parse()?,
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

fn main() -> Result<()> {
    let asked = asked()?;
    let mut random = Random::new(asked.seed);
    let folder = tempfile::tempdir()?;
    let command = format!("make truth SEED={} TRIALS={}", asked.seed, asked.trials);
    let how = |date: &str| {
        format!(
            "Made by `{command}` on {date}: {}.\nEach trial draws a workload (rows, their size, page size) and a device (writes of 0.1 \
             to 1 ms, flushes of 1 to 8 ms, served by\n`experiments/causes/slowdisk.py`), and runs both sides in random order on fresh \
             file systems. The program runs with real-time\npriority, the kernel's threads do not: the control and the load say how \
             quiet the machine was.",
            machine()
        )
    };
    let page = match asked.what.as_str() {
        "whatif" => {
            let mut all = Vec::new();
            for change in whatif::changes().into_iter().filter(|c| c.name.contains(&asked.only)) {
                let mut trials = Vec::new();
                for _ in 0..asked.trials {
                    let trial =
                        whatif::trial(folder.path(), &change, &mut random).with_context(|| change.name.to_owned())?;
                    eprintln!(
                        "{}: {:.1} -> {:.1} ms predicted, {:.1} ms true ({:+.0} %)",
                        change.name,
                        trial.before / 1e6,
                        trial.predicted / 1e6,
                        trial.after / 1e6,
                        100.0 * trial.error()
                    );
                    trials.push(trial);
                }
                all.push((change, trials));
            }
            whatif::page(&all, &how(&date()?))
        }
        "causes" => {
            let list = causes::list()?;
            let (mut found, mut quiet) = (Vec::new(), Vec::new());
            for cause in list.cause.into_iter().filter(|c| c.name.contains(&asked.only)) {
                let mut trials = Vec::new();
                for _ in 0..asked.trials {
                    let trial =
                        causes::trial(folder.path(), &cause, &mut random).with_context(|| cause.name.clone())?;
                    eprintln!("{}: {:?}", cause.name, trial);
                    trials.push(trial);
                }
                found.push((cause, trials));
            }
            for healthy in list.healthy.into_iter().filter(|c| c.name.contains(&asked.only)) {
                let mut trials = Vec::new();
                for _ in 0..asked.trials.div_ceil(4) {
                    let codes = causes::false_findings(folder.path(), &healthy, &mut random)
                        .with_context(|| healthy.name.clone())?;
                    eprintln!("healthy: {}: {codes:?}", healthy.name);
                    trials.push(codes);
                }
                quiet.push((healthy, trials));
            }
            causes::page(&found, &quiet, &how(&date()?))
        }
        other => bail!("unknown {other}: expected whatif or causes"),
    };
    match asked.output {
        Some(file) => std::fs::write(&file, page).with_context(|| format!("writing {}", file.display())),
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
