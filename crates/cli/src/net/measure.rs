//! `fathom net measure`: a run as another process of Fathom asks for it (on a device, or in a namespace), which gets all of it on stdout
//! and shows it itself; and a run of this process, which is measured the same way.

use crate::args::NetMeasure;
use crate::output;
use anyhow::{Context as _, Result};
use net::clock::Moment;
use net::measure::{ClientMachine, Handover, Measured, RunRequest};
use net::progress::Progress;
use net::run::Session;
use net::spec::Spec;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub fn run(args: &NetMeasure) -> Result<ExitCode> {
    let text = std::fs::read(&args.asked).with_context(|| format!("reading {}", args.asked.display()))?;
    let asked: RunRequest = serde_json::from_slice(&text)
        .with_context(|| format!("{} does not ask for a measurement", args.asked.display()))?;
    let Some(measured) = measure(&asked)? else {
        eprintln!("fathom: interrupted; nothing was stored");
        return Ok(ExitCode::from(130));
    };
    output::text(&Handover { measured, place: place() }.into_json()?);
    Ok(ExitCode::SUCCESS)
}

/// This machine, after a run.
pub fn place() -> ClientMachine {
    ClientMachine { facts: runner::facts(&[]), boot: device::boot_id(&device::Local), moment: Moment::now() }
}

/// Measures. The first Ctrl-C ends the run, with what it has; the second ends everything: `None`.
pub fn measure(asked: &RunRequest) -> Result<Option<Measured>> {
    super::local(2, async {
        let mut beside = Vec::new();
        let begun = |session: &Session| {
            let interrupter = session.interrupter();
            beside.push(tokio::task::spawn_local(async move {
                if tokio::signal::ctrl_c().await.is_ok() {
                    interrupter.store(true, Ordering::Relaxed);
                }
            }));
            // The steps of a search are told instead: its counters begin anew at each.
            if asked.progress && !asked.highest {
                beside.push(tokio::task::spawn_local(live(session.live(), asked.spec.clone())));
            }
        };
        let mut tell = |line: String| {
            if asked.progress {
                eprintln!("{line}");
            }
        };
        let measured = asked.measure(begun, &mut tell).await;
        beside.iter().for_each(tokio::task::JoinHandle::abort);
        Ok(measured?)
    })
}

/// A line a second while a run is under way, on stderr.
async fn live(live: Arc<net::traffic::LiveCounters>, spec: Spec) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let (mut progress, origin) = (Progress::default(), std::time::Instant::now());
    loop {
        ticks.tick().await;
        let now = spec.directions.iter().map(|d| live.amount(*d)).collect();
        if let Some(line) = progress.line(&spec, origin.elapsed().as_secs_f64(), live.under_way(), now) {
            eprintln!("{line}");
        }
    }
}
