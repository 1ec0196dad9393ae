//! `fathom bench run --device`: measures with this program on the device, where clocks, sensors and counters are, and fetches the
//! results run by run. Several devices measure at the same time, and this machine only listens; this machine itself and its guests take
//! turns.

use super::each::{archive_path, choose_archived_devices, run_each};
use super::result::{self, ReportOptions};
use crate::args::BenchRun;
use crate::bench::results;
use crate::output::{self, INTERRUPTED_STATUS};
use crate::{Usage, notices, progress};
use ::papers::pairs::split_name;
use anyhow::{Context as _, Result};
use device::remote::{CommandEnd, Concurrency, DeviceAddress, new_name};
use model::Context;
use model::text::ShownPath as _;
use recorder::incoming::{REMOTE_ARCHIVE_NAME, RemoteRun};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(args: &BenchRun) -> Result<ExitCode> {
    if args.resume.is_some() {
        return Err(Usage(
            "--resume continues runs of this machine only; start the run on the device again (its results are kept)"
                .into(),
        )
        .into());
    }
    if let Some(dir) = args.dir.iter().chain(&args.dir_here).find(|dir| !split_name(dir).1.starts_with('/')) {
        return Err(Usage(format!(
            "--dir {dir}: give an absolute path there, such as /data/local/tmp or /sdcard on Android"
        ))
        .into());
    }
    let chosen = choose_archived_devices(&args.devices.device)?;
    let places = &chosen.places;
    let (files, words) = collect_inputs(args)?;
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    if let Some(place) = chosen.alone() {
        return run_on_device(args, place, &args.output, &files, &words, "", &context);
    }
    let turns = if args.in_turn { Concurrency::Single } else { Concurrency::ByMachine };
    let all = run_each(places, turns, &args.output, "result", |place, output, prefix| {
        // A device whose turn has not come is not started.
        if context.cancelled() {
            return Err(crate::Interrupted.into());
        }
        run_on_device(args, place, output, &files, &words, prefix, &context)
    })?;
    let codes = all.into_iter().map(|(_, code)| code.unwrap_or(ExitCode::FAILURE));
    let code = codes.fold(ExitCode::SUCCESS, |all, own| if own == ExitCode::SUCCESS { all } else { own });
    let made = places.iter().map(|place| archive_path(&args.output, place)).filter(|archive| archive.exists());
    let archives: Vec<String> = made.map(|archive| output::word(&archive)).collect();
    if !args.quiet && !archives.is_empty() {
        eprintln!("next: fathom report {}", archives.join(" "));
    }
    Ok(code)
}

/// The bytecode's name in the directory in which the run takes place.
const DEX_JAR_NAME: &str = "fathom-dex.jar";

/// Files that the run reads there, and the arguments after the program's name.
type RunInputs = (Vec<(String, Vec<u8>)>, Vec<String>);

fn collect_inputs(args: &BenchRun) -> Result<RunInputs> {
    let mut files = Vec::new();
    let mut words: Vec<String> = ["bench", "run", "--quiet", "--output", REMOTE_ARCHIVE_NAME].map(Into::into).to_vec();
    for (at, what) in args.what.iter().enumerate() {
        // The design is in a file on this machine.
        if what.ends_with(".toml") || what.contains('/') {
            let bytes = std::fs::read(what).with_context(|| format!("cannot read {what}"))?;
            let name = format!("design-{at}.toml");
            words.push(name.clone());
            files.push((name, bytes));
        } else {
            words.push(what.clone());
        }
    }
    if let Some(jar) = &args.dex_jar {
        let bytes = std::fs::read(jar).with_context(|| format!("cannot read {}", jar.shown()))?;
        files.push((DEX_JAR_NAME.into(), bytes));
        words.push(format!("--param=dex_jar={DEX_JAR_NAME}"));
    }
    let mut option = |name: &str, value: String| words.push(format!("{name}={value}"));
    args.sweep.parameters.iter().for_each(|(name, values)| option("--param", format!("{name}={}", values.join(","))));
    args.sweep.blocks.iter().for_each(|n| option("--blocks", n.to_string()));
    args.sweep.seed.iter().for_each(|n| option("--seed", n.to_string()));
    args.sweep.budget.iter().for_each(|d| option("--budget", format!("{}s", d.as_secs().max(1))));
    args.precision.iter().for_each(|p| option("--precision", (p * PERCENT).to_string()));
    let mut flag = |on: bool, name: &str| words.extend(on.then(|| name.to_owned()));
    flag(args.sweep.quick, "--quick");
    flag(args.why, "--why");
    flag(args.sweep.no_wait, "--no-wait");
    flag(args.fixed_performance, "--fixed-performance");
    Ok((files, words))
}

/// Shares are given in percent.
const PERCENT: f64 = 100.0;

fn run_on_device(
    args: &BenchRun,
    place: &DeviceAddress,
    output: &Path,
    files: &[(String, Vec<u8>)],
    words: &[String],
    prefix: &str,
    context: &Context,
) -> Result<ExitCode> {
    // Reported before anything is copied.
    archive::Archive::check_create(output, true)?;
    let binaries: &[PathBuf] = &args.devices.binary;
    let here = matches!(place, DeviceAddress::Local) && !args.dir_here.is_empty();
    let dirs = if here { &args.dir_here } else { &args.dir };
    let words = [words, &dirs.iter().map(|dir| format!("--dir={dir}")).collect::<Vec<_>>()].concat();
    let words = &words;
    let name = new_name("run");
    let detached = result::detached(place, &name, &args.devices);
    let incoming = RemoteRun { place, binaries, files, words, output, detached };
    let telling = ReportOptions { quiet: args.quiet, prefix, ..ReportOptions::default() };
    let (done, kept) = result::bring_archive(&incoming, telling, context)?;
    let lost = result::report_lost(&done, kept, output);
    if kept {
        show_results(args, output, prefix.is_empty())?;
    }
    if !kept && !lost {
        eprintln!("fathom: {} returned no result", done.place);
    }
    Ok(match done.ended {
        _ if lost && context.cancelled() => ExitCode::from(INTERRUPTED_STATUS),
        CommandEnd::Exit(0) if kept => ExitCode::SUCCESS,
        CommandEnd::Exit(INTERRUPTED_STATUS) => {
            eprintln!("fathom: interrupted; what was measured is in {}", output.shown());
            ExitCode::from(INTERRUPTED_STATUS)
        }
        CommandEnd::Exit(status) if status != 0 => ExitCode::from(status),
        _ => ExitCode::FAILURE,
    })
}

/// Makes the tables of what was fetched, and prints the next commands.
pub fn make_bench_tables(archive: &Path, quiet: bool) -> Result<()> {
    notices::print_warnings(experiment::tables::make(archive)?);
    recorder::output::give_to_caller(archive)?;
    if !quiet {
        results::print_next_steps(archive);
    }
    Ok(())
}

/// Makes the tables here, and shows and writes what a run of this machine would.
fn show_results(args: &BenchRun, archive: &Path, alone: bool) -> Result<()> {
    let runs = notices::print_warnings(experiment::tables::make(archive)?);
    recorder::output::give_to_caller(archive)?;
    if !alone {
        return Ok(());
    }
    let benchmark = results::evaluate(&runs, archive);
    let comparisons = experiment::store::comparisons(&runs)?;
    let files = &args.files;
    files.print(&results::format_results(&benchmark, &comparisons, archive, args.sweep.json)?);
    if benchmark.complete {
        files.write(&benchmark, &comparisons, Some(&args.what))?;
    }
    if !args.quiet {
        results::print_next_steps(archive);
    }
    Ok(())
}
