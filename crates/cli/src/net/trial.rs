//! `fathom net trial`: one run over an emulated link, as a benchmark's replicate prints it.

use crate::args::NetTrial;
use crate::progress;
use ::net::asked::{self, Kind, Unasked};
use ::net::link::{LinkReport, TestBed, trial};
use ::net::measure::RunRequest;
use ::net::quantity::{Buffer, PACKET, Rate, UdpRate};
use ::net::show::{RunView, lines};
use ::net::spec::{Direction, Readings, SocketOptions, Spec};
use anyhow::Result;
use std::process::ExitCode;

pub fn run(args: &NetTrial) -> Result<ExitCode> {
    let request = args.link.spec().map_err(Unasked::from).and_then(|link| Ok((link, request(args)?)));
    let (spec, request) = match request {
        Ok(request) => request,
        Err(sentence) => {
            eprintln!("fathom net trial: {sentence}");
            return Ok(ExitCode::from(2));
        }
    };
    progress::end_on_signal(&progress::context(true));
    // The congestion control stays available for as long as this is held.
    let _cc = args.cc.as_deref().map(::net::cc::ensure).transpose()?;
    let testbed = TestBed::create(&spec)?;
    let handed = trial::run(&testbed, request);
    let outcome = testbed.finish()?;
    let link = Some(LinkReport { spec: &spec, outcome: &outcome });
    let printed = lines::of(&RunView { measured: &handed?.measured, ends: None, link }, true);
    crate::output::text(&(printed.lines.join("\n") + "\n"));
    if printed.verified {
        return Ok(ExitCode::SUCCESS);
    }
    // The runner keeps this as the reason.
    eprintln!("fathom net trial: {}", printed.by);
    Ok(ExitCode::FAILURE)
}

/// Returns the request to the client, or why the arguments make no sense.
fn request(args: &NetTrial) -> Result<RunRequest, Unasked> {
    let (kind, rate) = match args.udp {
        Some(UdpRate::Iperf2) => (Kind::Iperf2, None),
        Some(UdpRate::Of(rate)) => (Kind::Udp { packet_bytes: PACKET }, Some(rate)),
        None if args.transactions => (Kind::Transactions { request_bytes: 1, response_bytes: 1 }, None),
        None => (Kind::Tcp, None),
    };
    let directions = if args.transactions { vec![Direction::Up] } else { args.direction.0.to_vec() };
    let spec = Spec {
        traffic: asked::traffic(kind, rate, &directions)?,
        directions,
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
    spec.check()?;
    let highest = rate == Some(Rate::Auto);
    Ok(RunRequest { address: trial::server(), key: None, interface: None, spec, highest, progress: false })
}
