//! `fathom bench selftest`: the same command under two names, compared again and again.

use super::eta;
use super::suite;
use crate::{Usage, args, output, progress};
use analysis::bench::{self as estimates, Penalty, Score, SelfTest};
use anyhow::{Context as _, Result, bail};
use experiment::catalog::{self, Runnable};
use experiment::eta::{Eta, Limit, Part};
use experiment::{Choices, Design, DiskWanted, Results, Setting, Sink, Workload};
use model::counted;
use model::table::{DesignCell, MarkRow, Replicate, Sample};
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
    let design = twice(&workload, args.comparisons * args.blocks, seed)?;
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
    let results = experiment::run(&design, &mut setting, &context, &mut DiscardSink)?;
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
        false => text(&done, &design, args),
    });
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::from(130) })
}

/// The workload's first cell, twice.
fn twice(workload: &Workload, blocks: u64, seed: u64) -> Result<Design> {
    let choices = Choices { blocks: Some(blocks), seed, ..Choices::default() };
    let mut design = experiment::expand(workload, &choices)?;
    design.cells.truncate(1);
    let mut again = design.cells[0].clone();
    again.same_as = Some(design.cells[0].name.clone());
    again.name = format!("{} again", design.cells[0].name);
    design.cells.push(again);
    Ok(design)
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

fn text(done: &SelfTest, design: &Design, args: &args::BenchSelftest) -> String {
    let percent = |x: f64| format!("{:.1} %", x * 100.0);
    let [low, high] = done.ci95;
    let [miss_low, miss_high] = done.miss_ci95;
    let blocks = counted(args.blocks as usize, "block");
    format!(
        "{}: the same command under two names, {} of {}\n\x20 false positives  {} of {}: {}  [{}, {}]  (verdicts of \
         faster or slower; margin {})\n\x20 intervals that exclude 1  {} of {}: {}  [{}, {}]  (nominal: 5 %)\n\x20 \
         minimum detectable difference {} in {} (median over the comparisons)\n\x20 95 % Wilson intervals; seed {}\n",
        design.name,
        counted(done.comparisons, "comparison"),
        blocks,
        done.alarms,
        done.comparisons,
        percent(done.rate),
        percent(low),
        percent(high),
        percent(args.margin),
        done.misses,
        done.comparisons,
        percent(done.miss_rate),
        percent(miss_low),
        percent(miss_high),
        percent(done.noise),
        blocks,
        design.seed
    )
}

/// The self-test keeps its rows in memory only.
struct DiscardSink;

impl Sink for DiscardSink {
    fn cell(&mut self, _: &DesignCell) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
    fn absent(&mut self, _: u64, _: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
    fn replicate(
        &mut self,
        _: &Replicate,
        _: &[Sample],
        _: &[MarkRow],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}
