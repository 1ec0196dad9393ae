//! `fathom net run`.

use super::ends;
use super::run_ends::{RunEnds, Trailer};
use crate::args::{Cost, IPERF2_PACKET, IPERF2_RATE, NetRun, Rate, Way};
use crate::output;
use anyhow::{Context as _, Result};
use net::highest;
use net::run::{Outcome, Session};
use net::spec::{Direction, Readings, SocketOptions, Spec, Traffic};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub fn run(args: &NetRun) -> Result<ExitCode> {
    let spec = match spec(args).and_then(|spec| spec.check().map(|()| spec).map_err(|why| why.to_string())) {
        Ok(spec) => spec,
        Err(why) => {
            eprintln!("fathom: {why}");
            return Ok(ExitCode::from(2));
        }
    };
    if ends::wanted(args) {
        return ends::run(args, &spec);
    }
    if args.link.is_some() {
        eprintln!("fathom: {}", ends::BETWEEN);
        return Ok(ExitCode::from(2));
    }
    if let Some(output) = &args.output {
        ends::home::possible(output, net::rows::size(&spec))?;
    }
    let about = args.ends.as_deref().map(RunEnds::read).transpose()?;
    let address = args.address.context("no address")?;
    let key = super::key(args.key.as_deref())?;
    let done = super::local(2, async {
        let mut session = Session::connect(address, key.as_ref(), args.interface.as_deref()).await?;
        let interrupter = session.interrupter();
        let first = tokio::task::spawn_local({
            let interrupter = interrupter.clone();
            async move {
                if tokio::signal::ctrl_c().await.is_ok() {
                    interrupter.store(true, Ordering::Relaxed);
                }
            }
        });
        let people = !args.json && !args.lines;
        // The steps of a search are told instead: its counters begin anew at each.
        let shown = (people && args.rate != Some(Rate::Auto))
            .then(|| tokio::task::spawn_local(live(session.live(), spec.clone())));
        let done = match args.rate {
            Some(Rate::Auto) => {
                let mut tell = |line: String| {
                    if people {
                        eprintln!("{line}")
                    }
                };
                let found = highest::find(&mut session, &spec, &mut tell).await;
                found.map(|(outcome, told)| (outcome, Some(told)))
            }
            _ => session.run(&spec).await.map(|outcome| (outcome, None)),
        };
        first.abort();
        shown.inspect(|shown| shown.abort());
        let (outcome, search) = done?;
        Ok((outcome, search, interrupter.load(Ordering::Relaxed)))
    })?;
    let Some((outcome, found, interrupted)) = done else {
        eprintln!("fathom: interrupted; nothing was stored");
        return Ok(ExitCode::from(130));
    };
    print(args, &outcome, found.as_ref(), about.as_ref())?;
    if interrupted {
        eprintln!("fathom: interrupted; the results so far");
        return Ok(ExitCode::from(130));
    }
    if let Some(trouble) = &outcome.own.trouble {
        eprintln!("fathom: {}", analysis::text::shown(trouble));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// A line a second while a run is under way, on stderr.
async fn live(live: Arc<net::traffic::Live>, spec: Spec) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let (mut progress, origin) = (Progress::default(), std::time::Instant::now());
    loop {
        ticks.tick().await;
        let now: Vec<u64> = spec.directions.iter().map(|d| live.amount(*d)).collect();
        let Some((at, rates)) = progress.tick(origin.elapsed().as_secs_f64(), live.under_way(), now) else { continue };
        let told = spec.directions.iter().zip(rates).map(|(direction, rate)| match spec.traffic {
            Traffic::Transactions { .. } => format!("{rate:.0} transactions/s"),
            _ => format!("{} {}", direction.name(), model::text::rate(rate * 8.0)),
        });
        eprintln!("{at:6.1} s  {}", told.collect::<Vec<_>>().join("  "));
    }
}

/// From amounts seen at times to rates between them.
#[derive(Default)]
struct Progress {
    /// When something had come, s; and the last look.
    begun: Option<(f64, f64, Vec<u64>)>,
}

impl Progress {
    /// A look at `now` s: the seconds since the beginning, and the rate of each direction since the last look. Nothing if no data go: what
    /// is counted then is of the run before, or still connections are made.
    fn tick(&mut self, now: f64, under_way: bool, amounts: Vec<u64>) -> Option<(f64, Vec<f64>)> {
        if !under_way {
            return None;
        }
        let Some((start, last, before)) = &mut self.begun else {
            self.begun = amounts.iter().any(|n| *n > 0).then_some((now, now, amounts));
            return None;
        };
        let rates = amounts.iter().zip(&*before).map(|(n, b)| n.saturating_sub(*b) as f64 / (now - *last)).collect();
        (*last, *before) = (now, amounts);
        Some((now - *start, rates))
    }
}

/// Keeps it and prints it: also what could not be kept, and says so then.
fn print(args: &NetRun, outcome: &Outcome, search: Option<&Value>, about: Option<&RunEnds>) -> Result<()> {
    let kept = args.output.as_deref().map(|output| {
        let kept = super::keep::keep(outcome, output, about, args.json || args.lines);
        kept.with_context(|| format!("the run is printed but not stored in {}", output.display()))
    });
    let samples = match &kept {
        Some(Err(_)) => None,
        _ => about.map_or(args.output.as_deref(), |about| about.archive.as_deref()),
    };
    show(args, outcome, search, about, samples)?;
    if about.is_some_and(|about| about.trailer) {
        output::text(&Trailer { within: net::result::summary(outcome).within }.line()?);
    }
    kept.unwrap_or(Ok(()))
}

fn show(
    args: &NetRun,
    outcome: &Outcome,
    search: Option<&Value>,
    about: Option<&RunEnds>,
    samples: Option<&Path>,
) -> Result<()> {
    if args.json {
        let mut value = super::json::of(outcome, samples, search)?;
        if let Some(about) = about {
            value["ends"] = json!({"client": about.client.name, "server": about.server.as_ref().map(|s| &s.name)});
        }
        output::text(&format!("{}\n", serde_json::to_string_pretty(&value)?));
        return Ok(());
    }
    if args.lines {
        let mut lines = super::lines::of(outcome);
        if args.readings {
            lines.extend(super::lines::readings(outcome));
        }
        output::text(&(lines.join("\n") + "\n"));
        return Ok(());
    }
    let mut text = super::text::of(outcome);
    if let Some(search) = search.and_then(|s| s["text"].as_str()) {
        text = format!("{search}\n{text}");
    }
    if let Some(RunEnds { client, server: Some(server), .. }) = about {
        text = format!("from {} to {}\n{text}", client.name, server.name);
    }
    output::text(&text);
    Ok(())
}

/// What the words ask for, or why it makes no sense.
pub fn spec(args: &NetRun) -> Result<Spec, String> {
    let traffic = match (args.udp, args.transactions, args.rate) {
        (true, _, _) if args.preset.is_some() => Traffic::Udp { rate_bps: IPERF2_RATE, packet_bytes: IPERF2_PACKET },
        (true, _, Some(Rate::Of(rate_bps))) => Traffic::Udp { rate_bps, packet_bytes: args.packet },
        (true, _, Some(Rate::Auto)) => Traffic::Udp { rate_bps: highest::FIRST, packet_bytes: args.packet },
        (true, _, None) => {
            return Err(
                "UDP needs a rate: give --rate R, --rate auto (the highest with at most 1 % loss), or --preset \
                 iperf2 (1 Mb/s)"
                    .into(),
            );
        }
        (_, true, _) => Traffic::Transactions { request_bytes: args.request, response_bytes: args.response },
        (_, _, Some(Rate::Auto)) => {
            return Err("--rate auto applies to --udp only; TCP finds its rate by itself".into());
        }
        (_, _, Some(Rate::Of(rate))) => Traffic::Tcp { rate_bps: Some(rate) },
        (_, _, None) => Traffic::Tcp { rate_bps: None },
    };
    if args.rate == Some(Rate::Auto) && args.direction == Way::Both {
        return Err("--rate auto needs one direction: --direction up or down".into());
    }
    Ok(Spec {
        traffic,
        directions: match args.direction {
            Way::Up => vec![Direction::Up],
            Way::Down => vec![Direction::Down],
            Way::Both => vec![Direction::Up, Direction::Down],
        },
        streams: args.streams,
        duration_ms: u64::try_from(args.duration.as_millis()).unwrap_or(u64::MAX),
        socket: SocketOptions {
            send_buffer: args.sndbuf,
            receive_buffer: args.rcvbuf,
            mss: args.mss,
            congestion: args.cc.clone(),
            nodelay: args.nodelay || args.transactions,
            pacing_bps: args.pacing,
        },
        copy: args.copy,
        probe: args.tcp_probe,
        readings: match (args.no_readings, args.readings_cost) {
            (true, _) => Readings::None,
            (_, Some(cost)) => Readings::ByTurns { seed: net::clock::now_ns(), control: cost == Cost::Control },
            _ => Readings::All,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_earlier_trial_do_not_count() {
        let mut progress = Progress::default();
        // The last trial of a search had 4 MB; the run after it counts from 0.
        assert_eq!(progress.tick(0.0, false, vec![4_000_000]), None);
        assert_eq!(progress.tick(1.0, true, vec![3_000_000]), None);
        assert_eq!(progress.tick(2.0, true, vec![6_750_000]), Some((1.0, vec![3_750_000.0])));
        assert_eq!(progress.tick(3.0, false, vec![7_000_000]), None);
    }
}
