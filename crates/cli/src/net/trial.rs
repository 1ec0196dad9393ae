//! `fathom net trial`: one run over an emulated link, as a benchmark's replicate prints it.

use crate::args::NetTrial;
use crate::progress;
use ::net::link::{LinkReport, TestBed, trial};
use ::net::measure::RunRequest;
use ::net::quantity::{BufferSize, Rate, UDP_PACKET_BYTES, UdpRate};
use ::net::request::{self, RequestError, TrafficKind};
use ::net::show::{RunView, lines};
use ::net::spec::{Direction, Readings, SocketOptions, Spec};
use anyhow::Result;
use std::process::ExitCode;

pub fn run(args: &NetTrial) -> Result<ExitCode> {
    let request = args.link.spec().map_err(RequestError::from).and_then(|link| Ok((link, request_from_args(args)?)));
    let (spec, request) = match request {
        Ok(request) => request,
        Err(sentence) => {
            eprintln!("fathom net trial: {sentence}");
            return Ok(ExitCode::from(2));
        }
    };
    progress::end_on_signal(&progress::context(true));
    // The congestion control stays available for as long as this is held.
    let _cc = args.cc.as_deref().map(::net::cc::ensure_available).transpose()?;
    let testbed = TestBed::create(&spec)?;
    let handed = trial::run(&testbed, request);
    let outcome = testbed.finish()?;
    let link = Some(LinkReport { spec: &spec, outcome: &outcome });
    let printed = lines::from_run(&RunView { measured: &handed?.measured, ends: None, link }, true);
    crate::output::print_text(&(printed.lines.join("\n") + "\n"));
    if printed.verified {
        return Ok(ExitCode::SUCCESS);
    }
    // The runner keeps this as the reason.
    eprintln!("fathom net trial: {}", printed.by);
    Ok(ExitCode::FAILURE)
}

/// Returns the request to the client, or why the arguments make no sense.
fn request_from_args(args: &NetTrial) -> Result<RunRequest, RequestError> {
    let (kind, rate) = match args.udp {
        Some(UdpRate::Iperf2) => (TrafficKind::Iperf2, None),
        Some(UdpRate::Requested(rate)) => (TrafficKind::Udp { packet_bytes: UDP_PACKET_BYTES }, Some(rate)),
        None if args.transactions => (TrafficKind::Transactions { request_bytes: 1, response_bytes: 1 }, None),
        None => (TrafficKind::Tcp, None),
    };
    let directions = if args.transactions { vec![Direction::Up] } else { args.direction.0.to_vec() };
    let spec = Spec {
        traffic: request::requested_traffic(kind, rate, &directions)?,
        directions,
        streams: if args.udp.is_some() { 1 } else { args.streams },
        duration_ms: u64::try_from(args.duration.as_millis()).unwrap_or(u64::MAX),
        socket: SocketOptions {
            send_buffer: args.sndbuf.and_then(BufferSize::bytes),
            receive_buffer: args.rcvbuf.and_then(BufferSize::bytes),
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
    Ok(RunRequest { address: trial::server_address(), key: None, interface: None, spec, highest, progress: false })
}
