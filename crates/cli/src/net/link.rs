//! `fathom net link`: the emulated link, until a command ends or Ctrl-C.

use crate::args::NetLink;
use crate::progress;
use ::net::link::effect::Effect;
use ::net::link::lateness::Lateness;
use ::net::link::schedule::{DOWN, UP};
use ::net::link::test_bed::{CLIENT, SERVER, TestBed};
use ::net::link::{Outcome, Spec};
use anyhow::{Context as _, Result};
use model::Context;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Version of the JSON.
const VERSION: u64 = 1;

pub fn run(args: &NetLink) -> Result<ExitCode> {
    let spec = match args.link.spec() {
        Ok(spec) => spec,
        Err(sentence) => {
            eprintln!("fathom net link: {sentence}");
            return Ok(ExitCode::from(2));
        }
    };
    let context = progress::context(true);
    progress::end_on_signal(&context);
    let testbed = TestBed::create(&spec)?;
    let status = match args.command.split_first() {
        Some((program, arguments)) => {
            let mut command = testbed.command(program);
            command.args(arguments);
            if args.json {
                command.stdout(Stdio::from(std::io::stderr().as_fd().try_clone_to_owned()?));
            }
            let name = program.to_string_lossy();
            Some(wait(command.spawn().with_context(|| format!("cannot run {name}"))?, &context)?)
        }
        None => {
            eprint!("{}", usage(&testbed));
            while !context.cancelled() {
                std::thread::sleep(Duration::from_millis(50));
            }
            None
        }
    };
    let outcome = testbed.finish()?;
    if args.json {
        println!("{:#}", document(&spec, &outcome, None, status));
    } else {
        eprint!("{}", summary(&spec, &outcome, None));
    }
    Ok(status.map_or(ExitCode::SUCCESS, exit_code))
}

/// Waits for the command. Ctrl-C reaches it from the terminal too and it ends as it likes, within a second; then, or if only
/// we were told to end, it is told.
fn wait(mut child: Child, context: &Context) -> Result<ExitStatus> {
    let mut told = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if context.cancelled() {
            let since = *told.get_or_insert_with(Instant::now);
            if since.elapsed() > Duration::from_secs(1) {
                // SAFETY: two integers; the child was not waited for yet, so that the number is its.
                unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
                return Ok(child.wait()?);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// As a shell would say it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn usage(testbed: &TestBed) -> String {
    format!(
        "The link is up until Ctrl-C. In the client's namespace, {}:\n  {} CMD\nIn the server's namespace, {}:\n  {} \
         CMD\n",
        CLIENT.join(" and "),
        testbed.client().nsenter(false),
        SERVER.join(" and "),
        testbed.server().nsenter(false),
    )
}

fn effect(effect: &Effect) -> Value {
    let ms = effect.added_ns.map(|ns| ns / 1e6);
    json!({"rate": effect.rate, "round_trip_added_ms": ms, "round_trip_ms": effect.round_trip_ns / 1e6, "latest_ms": effect.longest_ns as f64 / 1e6})
}

/// The figures as JSON; what is measured over a link is marked with the same. `own`: how far the interval of what was measured reaches to
/// either side, as a share.
pub fn document(spec: &Spec, outcome: &Outcome, own: Option<f64>, status: Option<ExitStatus>) -> Value {
    let invalid = outcome.invalid(spec, own);
    let late = |of: &Lateness| {
        let us = |q: f64| of.quantile(q) as f64 / 1e3;
        json!({"packets": of.count(), "mean": of.mean() / 1e3, "p50": us(0.5), "p90": us(0.9), "p99": us(0.99), "p99_9": us(0.999), "max": of.max() as f64 / 1e3})
    };
    let way = |d: usize| {
        let (way, c) = (if d == UP { &spec.up } else { &spec.down }, &outcome.counts[d]);
        json!({
            "delay_ms": way.delay_ns as f64 / 1e6, "rate_bps": way.rate_bps, "packet_cost_us": way.packet_ns as f64 / 1e3,
            "jitter_ms": way.jitter_ns as f64 / 1e6, "loss_mean": way.loss.mean(), "queue_packets": way.queue_packets,
            "queue_bytes": way.queue_bytes, "packets": c.offered, "bytes": c.offered_bytes, "delivered": c.delivered,
            "delivered_bytes": c.delivered_bytes, "lost": c.lost, "queue_full": c.dropped, "under_way": c.under_way(),
            "queue_max": c.queue_max, "queue_full_in_doubt": outcome.in_doubt[d],
            "late_us": late(&outcome.late[d].known), "late_at_most_us": late(&outcome.late[d].most),
        })
    };
    json!({
        "version": VERSION,
        "up": way(UP),
        "down": way(DOWN),
        "half_duplex": spec.half_duplex,
        "mtu": spec.mtu(),
        "large_packets": outcome.large_packets,
        "seed": spec.seed,
        "lateness_us": late(&outcome.lateness()),
        "effect": effect(&outcome.effect(spec)),
        "passing_ms": outcome.passing_ns as f64 / 1e6,
        "stalled_ms": outcome.stalled_ns as f64 / 1e6,
        "realtime": outcome.realtime,
        "overrun": outcome.overrun,
        "valid": invalid.is_empty(),
        "invalid_because": invalid,
        "status": status.map(|s| s.code().unwrap_or_else(|| 128 + s.signal().unwrap_or(0))),
    })
}

/// The figures for people.
pub fn summary(spec: &Spec, outcome: &Outcome, own: Option<f64>) -> String {
    let mut text = String::from(
        "\n  direction   packets    delivered      lost  queue full  in flight  longest queue        bytes\n",
    );
    for (d, name) in [(UP, "up"), (DOWN, "down")] {
        let c = &outcome.counts[d];
        let _ = writeln!(
            text,
            "  {name:<9} {:>9} {:>12} {:>9} {:>11} {:>10} {:>14} {:>12}",
            c.offered,
            c.delivered,
            c.lost,
            c.dropped,
            c.under_way(),
            c.queue_max,
            c.offered_bytes
        );
    }
    let lateness = outcome.lateness();
    let us = |q: f64| lateness.quantile(q) as f64 / 1e3;
    let _ = writeln!(
        text,
        "  lateness  median {:.1} us, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1} ({} packets)",
        us(0.5),
        us(0.9),
        us(0.99),
        us(0.999),
        lateness.max() as f64 / 1e3,
        lateness.count()
    );
    let _ = writeln!(text, "  {}", outcome.effect(spec).text());
    let doubt = outcome.in_doubt.iter().sum::<u64>();
    if doubt > 0 {
        let _ = writeln!(text, "  of the queue-full drops, {doubt} may be due to the emulator reading late");
    }
    if !outcome.realtime {
        text += "  without real-time priority: SCHED_FIFO needs root\n";
    }
    for reason in outcome.invalid(spec, own) {
        let _ = writeln!(text, "  invalid: {reason}");
    }
    text
}
