//! `fathom bench selftest`: the same command under two names, compared again and again.

use super::eta;
use super::suite;
use crate::{Usage, args, output, progress};
use analysis::bench::{self as estimates, Penalty, Score, selftest};
use anyhow::{Context as _, Result, bail};
use experiment::catalog::{self, Runnable};
use experiment::eta::{Eta, Limit, Part};
use experiment::{Discard, DiskWanted, Results, Setting};
use model::table::{Replicate, Sample};
use std::process::ExitCode;
use std::time::Duration;

pub fn run(args: &args::BenchSelftest) -> Result<ExitCode> {
    let workload = match args.what.as_deref().map(suite::find).transpose()? {
        None => catalog::selftest()?,
        Some(Runnable::Workload(workload)) => workload,
        Some(Runnable::Comparison(design)) => {
            return Err(Usage(format!("{} is a design; give a workload", design.name)).into());
        }
    };
    let seed = args.seed.unwrap_or_else(|| archive::unix_now_ns() % 1_000_000_000);
    let design = experiment::against_itself(&workload, args.comparisons * args.blocks, seed)?;
    let (context, _) =
        eta::context(false, Eta::new(vec![Part { budget: Duration::from_secs(3600), limit: Limit::None }]));
    progress::end_on_signal(&context);
    let fathom = std::env::current_exe().context("where this program is")?;
    let mut make = |_: &DiskWanted| Err("no disks are available here".into());
    let mut sensors = super::run::sensors;
    let mut setting = Setting::new(&fathom, &mut make);
    super::run::clean(&design, &setting);
    setting.sensors = Some(&mut sensors);
    setting.wait = !args.no_wait;
    let results = experiment::run(&design, &mut setting, &context, &mut Discard)?;
    progress::clear(&context);
    if let Some(failure) = results.replicates.iter().find_map(|r| r.failure.as_ref()) {
        bail!("{}: a process failed: {failure}", design.name);
    }
    if let Some(absent) = results.absent.first() {
        bail!("{} cannot run here: {}", design.name, absent.why);
    }
    let groups = groups(&results, usize::try_from(args.blocks).unwrap_or(usize::MAX));
    let done = estimates::self_test(&groups, args.margin).context("interrupted before one comparison was complete")?;
    let complete = results.complete();
    output::text(&match args.json {
        true => {
            let mut value = serde_json::to_value(&done)?;
            for (name, part) in [
                ("version", serde_json::json!(1)),
                ("workload", serde_json::json!(design.name)),
                ("blocks", serde_json::json!(args.blocks)),
                ("margin", serde_json::json!(args.margin)),
                ("seed", serde_json::json!(seed)),
                ("complete", serde_json::json!(complete)),
            ] {
                value[name] = part;
            }
            serde_json::to_string_pretty(&value)? + "\n"
        }
        false => selftest::text(&done, &design.name, args.blocks, args.margin, seed),
    });
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::from(130) })
}

/// The processes of both arms block by block, in groups of so many blocks; a last group that is not full is left out.
fn groups(results: &Results, blocks: usize) -> Vec<Vec<(Vec<f64>, Vec<f64>)>> {
    let design = &results.design;
    let plan = design.plan.as_ref();
    let score = Score {
        of: plan.map_or("value", |p| p.score.of.name()).into(),
        metric: design.metric(&design.cells[0]).into(),
        unit: None,
        scale: 1.0,
    };
    let values = |r: &Replicate| -> Option<Vec<f64>> {
        let own: Vec<&Sample> = results.samples.iter().filter(|s| s.replicate == Some(r.id)).collect();
        Some(estimates::process(&score, Penalty::default(), r.id, &own)?.values)
    };
    let last = results.replicates.iter().map(|r| r.block).max().unwrap_or(0);
    let pair = |block: u64| {
        let of = |cell: u64| {
            results
                .replicates
                .iter()
                .find(|r| r.block == block && r.cell == cell && estimates::counts(r))
                .and_then(values)
        };
        of(0).zip(of(1))
    };
    let pairs: Vec<(Vec<f64>, Vec<f64>)> = (0..=last).filter_map(pair).collect();
    pairs.chunks_exact(blocks).map(<[_]>::to_vec).collect()
}
