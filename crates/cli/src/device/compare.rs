//! `fathom bench compare host adb:X`: both are measured with the same cells, at the same time, and the ratio is taken apart by their
//! settings.

use super::{bench, info};
use crate::args::{self, BenchCompare, MeasureBoth, Which};
use crate::bench::load;
use crate::{Usage, output};
use analysis::bench::apart::{self, Setting};
use analysis::bench::comparable::Rules;
use analysis::bench::{compare, compared};
use anyhow::{Result, bail};
use clap::Parser as _;
use device::remote::DeviceAddress;
use model::Environment;
use runner::both;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The folder of the archives.
const FOLDER: &str = "compare";

/// Does it, if A and B are devices.
pub fn run(args: &BenchCompare) -> Result<Option<ExitCode>> {
    let b = args.b.as_deref().and_then(place);
    let (a, b) = match (place(&args.a), b) {
        (Some(a), Some(b)) => (a, b),
        // An archive that does not exist, or is no device: whoever opens it says so.
        (None, None) if unused(&args.measure) => return Ok(None),
        (None, None) => {
            return Err(Usage(
                "--run, -p, --a-settings and what else belongs to it need two devices, not archives".into(),
            )
            .into());
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
    let folder = args.measure.output.clone().unwrap_or_else(|| PathBuf::from(FOLDER));
    let words = words(&args.measure, &settings, [&a, &b], &folder);
    let parsed = args::Cli::try_parse_from(&words).map_err(|e| Usage(e.to_string()))?;
    let args::Verb::Bench(args::Bench { verb: args::BenchVerb::Run(measure) }) = parsed.verb else {
        bail!("it cannot be measured")
    };
    let code = bench::run(&measure)?;
    if code != ExitCode::SUCCESS {
        return Ok(Some(code));
    }
    let [a, b] = [&a, &b].map(|device| load(&folder.join(format!("{}.fathom", device.file_name()))));
    let (a, b) = (a?, b?);
    let parts = apart::apart(&a, &b, &settings);
    let done = compare::archives(&a, &b, &Rules { better: None, other_commands: args.other_commands });
    let mut value = serde_json::to_value(&done)?;
    value["settings"] = serde_json::to_value(&settings)?;
    value["apart"] = serde_json::to_value(&parts)?;
    output::result(args.json, &value, || {
        let parts = apart::text(&parts, &settings);
        format!("{parts}\nBoth with the same settings\n{}", compared::text(&done))
    })?;
    if let Some(path) = &args.markdown {
        archive::atomic_file::text(path, &compared::markdown(&done))?;
    }
    Ok(Some(if done.results.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }))
}

/// A device, if this is none of an archive.
fn place(name: &Path) -> Option<DeviceAddress> {
    match name.to_str()? {
        _ if name.exists() => None,
        "host" => Some(DeviceAddress::Local),
        text => text.parse().ok(),
    }
}

fn unused(measure: &MeasureBoth) -> bool {
    measure.workloads.is_empty()
        && measure.parameters.is_empty()
        && measure.a_settings.is_empty()
        && measure.b_settings.is_empty()
        && measure.output.is_none()
        && measure.blocks.is_none()
        && !measure.quick
}

/// SQLite's settings on both; a device that says more of them than nothing is asked.
fn settings(args: &BenchCompare, places: [&DeviceAddress; 2]) -> Result<Vec<Setting>> {
    let asked = [&args.measure.a_settings[..], &args.measure.b_settings[..]];
    let mut facts = [Environment::new(), Environment::new()];
    for (side, place) in places.into_iter().enumerate() {
        both::known(asked[side])?;
        if matches!(place, DeviceAddress::Adb(_)) && asked[side].len() < both::FACTORS.len() {
            facts[side] = info::ask(&Which { device: place.clone(), binary: args.measure.binary.clone() })?.facts;
        }
    }
    Ok(both::settings(asked, [&facts[0], &facts[1]]))
}

/// `fathom bench run` for both.
fn words(measure: &MeasureBoth, settings: &[Setting], devices: [&DeviceAddress; 2], folder: &Path) -> Vec<String> {
    let mut words: Vec<String> = ["fathom", "bench", "run", "--quiet"].map(String::from).to_vec();
    words.push(format!("--device={},{}", devices[0], devices[1]));
    words.push(format!("--output={}", folder.display()));
    // The same order on both.
    words.push(format!("--seed={}", std::process::id()));
    words.extend(measure.binary.iter().map(|binary| format!("--binary={}", binary.display())));
    words.extend(measure.blocks.map(|n| format!("--blocks={n}")));
    words.extend(measure.quick.then(|| "--quick".into()));
    words.extend(measure.no_wait.then(|| "--no-wait".into()));
    for (name, values) in &measure.parameters {
        words.push(format!("--param={name}={}", values.join(",")));
    }
    let workloads = if measure.workloads.is_empty() { vec!["sqlite".to_owned()] } else { measure.workloads.clone() };
    if workloads.iter().any(|w| w == "sqlite") {
        words.extend(both::cells(settings));
    }
    words.push("--".into());
    words.extend(workloads);
    words
}
