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
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// SQLite's settings that devices differ in, in the order in which they are changed.
const FACTORS: [&str; 2] = ["journal_mode", "synchronous"];
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
    let settings = settings(args, &a, &b)?;
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
    let [a, b] = [&a, &b].map(|device| load(&folder.join(format!("{}.fathom", bench::file_name(device)))));
    let (a, b) = (a?, b?);
    let parts = apart::apart(&a, &b, &settings);
    let done = compare::archives(&a, &b, &Rules { better: None, other_commands: args.other_commands });
    if args.json {
        let mut value = serde_json::to_value(&done)?;
        value["settings"] = serde_json::to_value(&settings)?;
        value["apart"] = serde_json::to_value(&parts)?;
        output::text(&(serde_json::to_string_pretty(&value)? + "\n"));
    } else {
        output::text(&format!(
            "{}\nBoth with the same settings\n{}",
            apart::text(&parts, &settings),
            compared::text(&done)
        ));
    }
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

/// SQLite's settings on both: as asked for, as the device says, or as its system comes.
fn settings(args: &BenchCompare, a: &DeviceAddress, b: &DeviceAddress) -> Result<Vec<Setting>> {
    let mut sides = Vec::new();
    for (device, asked) in [(a, &args.measure.a_settings), (b, &args.measure.b_settings)] {
        if let Some((wrong, _)) = asked.iter().find(|(name, _)| !FACTORS.contains(&name.as_str())) {
            return Err(Usage(format!("{wrong} is no setting that is taken apart: {}", FACTORS.join(", "))).into());
        }
        let facts = match device {
            DeviceAddress::Adb(_) if asked.len() < FACTORS.len() => info::ask(&Which { device: device.clone(), binary: args.measure.binary.clone() })?.facts,
            _ => Environment::new(),
        };
        sides.push(FACTORS.map(|factor| of(factor, asked, &facts)));
    }
    let all = FACTORS.iter().enumerate().map(|(at, factor)| {
        let [(a, why_a), (b, why_b)] = [&sides[0][at], &sides[1][at]];
        Setting { factor: (*factor).into(), a: a.clone(), b: b.clone(), source: format!("A: {why_a}; B: {why_b}") }
    });
    Ok(all.collect())
}

/// A factor's value on a device, and how it is known.
fn of(factor: &str, asked: &[(String, String)], facts: &Environment) -> (String, String) {
    if let Some((_, value)) = asked.iter().find(|(name, _)| name == factor) {
        return (value.clone(), "as asked for".into());
    }
    let fact = facts.get(&format!("sqlite.{factor}"));
    if let Some(value) = fact.and_then(|f| f.value.as_deref()).filter(|v| !v.is_empty()) {
        return (value.to_lowercase(), fact.map_or_else(String::new, |f| f.source.clone()));
    }
    match (factor, facts.contains_key("os.sdk")) {
        // frameworks/base/core/res/res/values/config.xml: db_default_journal_mode, db_default_sync_mode.
        ("journal_mode", true) => ("truncate".into(), "assumed: AOSP's db_default_journal_mode".into()),
        (_, true) => ("full".into(), "assumed: AOSP's db_default_sync_mode".into()),
        ("journal_mode", false) => ("delete".into(), "SQLite's default".into()),
        (_, false) => ("full".into(), "SQLite's default".into()),
    }
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
        for s in settings {
            let values = if s.a == s.b { s.a.clone() } else { format!("{},{}", s.a, s.b) };
            words.push(format!("--param=sqlite.{}={values}", s.factor));
        }
    }
    words.push("--".into());
    words.extend(workloads);
    words
}
