//! `fathom net measure`: a run requested by another process of Fathom (on a device, or in a namespace), which reads the whole result
//! from stdout and shows it itself; and a run of this process, which is measured the same way.

use crate::args::NetMeasure;
use crate::output;
use anyhow::{Context as _, Result};
use model::text::ShownPath as _;
use net::clock::Moment;
use net::local_run;
use net::measure::{ClientMachine, Handover, Measurement, RunRequest};
use std::process::ExitCode;

pub fn run(args: &NetMeasure) -> Result<ExitCode> {
    let text = std::fs::read(&args.asked).with_context(|| format!("reading {}", args.asked.shown()))?;
    let request: RunRequest = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not a valid measurement request", args.asked.shown()))?;
    let Some(measured) = measure(&request)? else {
        eprintln!("fathom: interrupted; nothing was stored");
        return Ok(ExitCode::from(output::INTERRUPTED_STATUS));
    };
    output::print_text(&Handover { measured, place: describe_machine() }.into_json()?);
    Ok(ExitCode::SUCCESS)
}

/// Describes this machine, after a run.
pub fn describe_machine() -> ClientMachine {
    ClientMachine { facts: scores::measure::facts(&[]), boot: device::boot_id(&device::Local), moment: Moment::now() }
}

/// Measures, with progress.
pub fn measure(request: &RunRequest) -> Result<Option<Measurement>> {
    Ok(local_run::measure(request, |line| eprintln!("{line}"))?)
}
