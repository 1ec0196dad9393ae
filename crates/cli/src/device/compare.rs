//! `fathom bench compare host adb:X`: measures both with the same cells, at the same time, and breaks the ratio down by their
//! settings.

use super::each::archive_path;
use super::{bench, info, inserts};
use crate::args::{self, BenchCompare, MeasureBoth};
use crate::bench::inspect::load;
use crate::output::{self, INTERRUPTED_STATUS};
use crate::{Usage, destination, link, progress};
use ::papers::pairs;
use ::papers::traced::TracedPair;
use anyhow::Result;
use device::remote::DeviceAddress;
use model::Environment;
use scores::comparability::Rules;
use scores::decomposition::{self, Setting};
use scores::{compare, compare_text};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use verdicts::diff;

/// INSERTs and full scans that --trace records, and with --quick.
const ROWS_AND_SCANS: (u64, u64) = (1000, 10);
const ROWS_AND_SCANS_QUICK: (u64, u64) = (100, 1);
/// The directory of the archives.
const DIRECTORY_DEFAULT: &str = "compare";

/// Runs the comparison, if A and B are devices.
pub fn run(args: &BenchCompare) -> Result<Option<ExitCode>> {
    let (a, b) = match (pairs::parse_device(&args.a), args.b.as_deref().and_then(pairs::parse_device)) {
        (Some(a), Some(b)) => (a, b),
        // An archive that does not exist, or is no device: opening it fails with the reason.
        (None, None) if is_unused(&args.measure) => return Ok(None),
        (None, None) => {
            return Err(
                Usage("--run, -p, --a-settings and related options need two devices, not archives".into()).into()
            );
        }
        _ => {
            return Err(Usage(
                "give two devices, or two archives: `fathom bench run --device DEVICE` makes an archive of a device"
                    .into(),
            )
            .into());
        }
    };
    if a == b {
        return Err(Usage(format!("{a} cannot be compared with itself; `fathom bench selftest` does that")).into());
    }
    if args.by.is_some() {
        return Err(Usage("--by compares archives".into()).into());
    }
    let settings = settings(args, [&a, &b])?;
    let directory = args.measure.output.clone().unwrap_or_else(|| PathBuf::from(DIRECTORY_DEFAULT));
    let code = measure_both(&args.measure, &settings, [&a, &b], &directory)?;
    if code != ExitCode::SUCCESS {
        return Ok(Some(code));
    }
    let [of_a, of_b] = [&a, &b].map(|device| load(&archive_path(&directory, device)));
    let (of_a, of_b) = (of_a?, of_b?);
    let parts = decomposition::decompose(&of_a, &of_b, &settings);
    let done = compare::compare_archives(&of_a, &of_b, &Rules { better: None, other_commands: args.other_commands });
    let traced = if args.measure.trace {
        match trace_both(&args.measure, [(&a, &settings[0].a), (&b, &settings[0].b)], &directory)? {
            Some(traced) => Some(traced),
            None => return Ok(Some(ExitCode::from(INTERRUPTED_STATUS))),
        }
    } else {
        None
    };
    let mut value = serde_json::to_value(&done)?;
    value["settings"] = serde_json::to_value(&settings)?;
    value["apart"] = serde_json::to_value(&parts)?;
    if let Some(traced) = &traced {
        value["traced"] = traced.json();
    }
    if !args.markdown.as_deref().is_some_and(destination::is_stdout) {
        output::print_result(args.json, &value, || {
            let parts = decomposition::text(&parts, &settings);
            let traced = traced.as_ref().map_or_else(String::new, TracedPair::text);
            format!("{parts}\nBoth with the same settings\n{}{traced}", compare_text::text(&done))
        })?;
    }
    if let Some(path) = &args.markdown {
        destination::write_text(path, &compare_text::markdown(&done))?;
    }
    Ok(Some(if done.results.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }))
}

/// Records the papers' INSERTs on both, each with its own journal mode; returns `None` if interrupted.
fn trace_both(
    measure: &MeasureBoth,
    sides: [(&DeviceAddress, &str); 2],
    directory: &Path,
) -> Result<Option<TracedPair>> {
    let load = if measure.quick { ROWS_AND_SCANS_QUICK } else { ROWS_AND_SCANS };
    let Some(figures) = inserts::record_both(sides, load, directory, &measure.binary)? else { return Ok(None) };
    let names = sides.map(|(place, _)| place.to_string());
    let open = |place| link::open(&inserts::recording_path(directory, place), &progress::context(true));
    let diff = match &figures {
        [Ok(_), Ok(_)] => Some(diff::diff_archives(&open(sides[0].0)?, &open(sides[1].0)?)?),
        _ => None,
    };
    Ok(Some(TracedPair { names, figures, diff }))
}

fn is_unused(measure: &MeasureBoth) -> bool {
    measure.workloads.is_empty()
        && measure.parameters.is_empty()
        && measure.a_settings.is_empty()
        && measure.b_settings.is_empty()
        && measure.output.is_none()
        && measure.blocks.is_none()
        && !measure.quick
        && !measure.trace
}

/// SQLite's settings on both; an Android device is queried for its own.
fn settings(args: &BenchCompare, places: [&DeviceAddress; 2]) -> Result<Vec<Setting>> {
    let requested = [&args.measure.a_settings[..], &args.measure.b_settings[..]];
    let mut facts = [Environment::new(), Environment::new()];
    for (side, place) in places.into_iter().enumerate() {
        pairs::check_factors(requested[side])?;
        if matches!(place, DeviceAddress::Adb(_)) && requested[side].len() < pairs::SQLITE_FACTORS.len() {
            facts[side] = info::ask(place, &args.measure.binary)?.facts;
        }
    }
    Ok(pairs::settings(requested, [&facts[0], &facts[1]]))
}

/// `fathom bench run` for both.
fn measure_both(
    measure: &MeasureBoth,
    settings: &[Setting],
    devices: [&DeviceAddress; 2],
    directory: &Path,
) -> Result<ExitCode> {
    let workloads = if measure.workloads.is_empty() { vec!["sqlite".to_owned()] } else { measure.workloads.clone() };
    let is_sqlite = workloads.iter().any(|w| w == "sqlite");
    let run = pairs::MeasureBoth {
        devices,
        directory,
        binaries: &measure.binary,
        directories: &[],
        blocks: measure.blocks,
        quick: measure.quick,
        no_wait: measure.no_wait,
        dex_jar: None,
        modes: Vec::new(),
        parameters: &measure.parameters,
        cells: if is_sqlite { pairs::cell_arguments(settings) } else { Vec::new() },
        workloads,
    };
    bench::run(&args::parse_bench_run(&run.words())?)
}
