//! `fathom net trial`: one run over an emulated link, as a benchmark's replicate prints it.

use super::run::ONE_DIRECTION;
use crate::args::{Buffer, IPERF2_PACKET, IPERF2_RATE, NetTrial, PACKET, Rate, UdpRate, Way};
use crate::progress;
use ::net::highest;
use ::net::link::{Linked, TestBed, trial};
use ::net::measure::Asked;
use ::net::show::{Shown, lines};
use ::net::spec::{Direction, Readings, SocketOptions, Spec, Traffic};
use anyhow::Result;
use std::process::ExitCode;

pub fn run(args: &NetTrial) -> Result<ExitCode> {
    let asked = args.link.spec().and_then(|link| Ok((link, asked(args)?)));
    let (spec, asked) = match asked {
        Ok(asked) => asked,
        Err(sentence) => {
            eprintln!("fathom net trial: {sentence}");
            return Ok(ExitCode::from(2));
        }
    };
    progress::end_on_signal(&progress::context(true));
    // Supplied for as long as it is held.
    let _cc = args.cc.as_deref().map(::net::cc::ensure).transpose()?;
    let testbed = TestBed::create(&spec)?;
    let handed = trial::run(&testbed, asked);
    let outcome = testbed.finish()?;
    let link = Some(Linked { spec: &spec, outcome: &outcome });
    let told = lines::of(&Shown { measured: &handed?.measured, ends: None, link }, true);
    crate::output::text(&(told.lines.join("\n") + "\n"));
    if told.verified {
        return Ok(ExitCode::SUCCESS);
    }
    // The runner keeps this as the reason.
    eprintln!("fathom net trial: {}", told.by);
    Ok(ExitCode::FAILURE)
}

/// What is asked of the client, or why it makes no sense.
fn asked(args: &NetTrial) -> Result<Asked, String> {
    let udp = |rate_bps, packet_bytes| Traffic::Udp { rate_bps, packet_bytes };
    let traffic = match args.udp {
        Some(UdpRate::Iperf2) => udp(IPERF2_RATE, IPERF2_PACKET),
        Some(UdpRate::Of(Rate::Of(rate))) => udp(rate, PACKET),
        Some(UdpRate::Of(Rate::Auto)) => udp(highest::FIRST, PACKET),
        None if args.transactions => Traffic::Transactions { request_bytes: 1, response_bytes: 1 },
        None => Traffic::Tcp { rate_bps: None },
    };
    let highest = args.udp == Some(UdpRate::Of(Rate::Auto));
    if highest && args.direction == Way::Both {
        return Err(ONE_DIRECTION.into());
    }
    let spec = Spec {
        traffic,
        directions: if args.transactions { vec![Direction::Up] } else { args.direction.directions() },
        streams: if args.udp.is_some() { 1 } else { args.streams },
        duration_ms: u64::try_from(args.duration.as_millis()).unwrap_or(u64::MAX),
        socket: SocketOptions {
            send_buffer: args.sndbuf.and_then(Buffer::bytes),
            receive_buffer: args.rcvbuf.and_then(Buffer::bytes),
            congestion: args.cc.clone(),
            nodelay: args.transactions,
            ..SocketOptions::default()
        },
        copy: false,
        probe: false,
        readings: Readings::All,
    };
    spec.check().map_err(|why| why.to_string())?;
    Ok(Asked { address: trial::server(), key: None, interface: None, spec, highest, progress: false })
}
