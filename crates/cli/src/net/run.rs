//! `fathom net run`: what is asked for, where it is measured, and how it is shown and kept.

use super::measure;
use crate::args::{Cost, Directions, NetRun};
use crate::{notices, output, progress};
use analysis::bench::run_score::{LIMITED_BY, RUN};
use anyhow::{Context as _, Result};
use archive::Staged;
use device::remote::DeviceAddress;
use net::highest;
use net::keep::{Kept, Names, possible};
use net::link::LinkReport;
use net::measure::{Handover, RunRequest};
use net::quantity::{IPERF2_PACKET, IPERF2_RATE, Rate};
use net::remote::{self, Conducted, Job, Listen, Note, Server};
use net::show::{self, RunView};
use net::spec::{Readings, SocketOptions, Spec, Traffic};
use std::path::Path;
use std::process::ExitCode;

/// Why this machine is no end of a run whose way is led through it.
const BETWEEN: &str = "--link needs two other devices, with this machine as the router between them: give --from \
    DEVICE and --to DEVICE (or ADDR:PORT). To make this machine an end, use a network namespace: \
    docs/guide/net-link.md has the commands";

/// Why a search for the highest rate goes one way.
pub const ONE_DIRECTION: &str = "--rate auto needs one direction: --direction up or down";

pub fn run(args: &NetRun) -> Result<ExitCode> {
    let asked = spec(args).and_then(|spec| spec.check().map(|()| spec).map_err(|why| why.to_string()));
    let (spec, server) = match asked.and_then(|spec| Ok((spec, server(args)?))) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("fathom: {why}");
            return Ok(ExitCode::from(2));
        }
    };
    if let Some(output) = &args.output {
        possible(output, &spec)?;
    }
    match server {
        Server::Stands(address) if args.from == DeviceAddress::Local => {
            let asked = RunRequest {
                address,
                key: args.key.clone(),
                interface: args.interface.clone(),
                highest: args.rate == Some(Rate::Auto),
                progress: !args.json && !args.lines,
                spec,
            };
            match measure::measure(&asked)? {
                Some(measured) => finish(args, &Handover { measured, place: measure::place() }, None),
                None => Ok(interrupted()),
            }
        }
        server => conduct(args, &spec, server),
    }
}

fn interrupted() -> ExitCode {
    eprintln!("fathom: interrupted; nothing was stored");
    ExitCode::from(130)
}

/// A run of which an end is elsewhere.
fn conduct(args: &NetRun, spec: &Spec, server: Server<'_>) -> Result<ExitCode> {
    let context = progress::context(true);
    progress::end_on_signal(&context);
    let job = Job {
        client: &args.from,
        server,
        key: super::key(args.key.as_deref())?,
        binaries: &args.binary,
        link: args.link.as_ref().map(|link| &link.spec),
        spec,
        interface: args.interface.as_deref(),
        highest: args.rate == Some(Rate::Auto),
        progress: !args.json && !args.lines,
    };
    let mut aside = output::Lines::new(output::aside);
    let conducted = remote::run(&job, &context, &mut |note| match note {
        Note::Said(line) => eprintln!("fathom: {line}"),
        Note::Client(bytes) => aside.take(bytes),
    });
    drop(aside);
    match conducted {
        Ok(conducted) => match &conducted.result {
            Ok(handed) => finish(args, handed, Some(&conducted)),
            Err(status) => Ok(ExitCode::from(*status)),
        },
        Err(remote::Error::Interrupted) => Ok(interrupted()),
        Err(error) => Err(error.into()),
    }
}

/// Keeps it and shows it: also what could not be kept, and says so then.
fn finish(args: &NetRun, handed: &Handover, conducted: Option<&Conducted>) -> Result<ExitCode> {
    let link = args.link.as_ref().zip(conducted.and_then(|c| c.link.as_ref()));
    let ends = conducted.map(|c| (c.client.name.as_str(), c.server.as_ref().map(|s| s.name.as_str())));
    let link = link.map(|(word, outcome)| (word.text.as_str(), LinkReport { spec: &word.spec, outcome }));
    let shown = RunView { measured: &handed.measured, ends, link: link.map(|(_, link)| link) };
    let kept = args.output.as_deref().map(|output| {
        keep(&Kept { handed, conducted, link, names: NAMES }, output, args.json || args.lines)
            .with_context(|| format!("the run is printed but not stored in {}", output.display()))
    });
    if args.json {
        let samples = args.output.as_deref().filter(|_| kept.as_ref().is_some_and(Result::is_ok));
        let value = show::json::of(&shown, samples).context("nothing was measured")?;
        output::text(&format!("{value:#}\n"));
    } else if args.lines {
        output::text(&(show::lines::of(&shown, args.readings).lines.join("\n") + "\n"));
    } else {
        output::text(&show::text::of(&shown));
    }
    kept.unwrap_or(Ok(()))?;
    let outcome = &handed.measured.outcome;
    let objection = shown.link.and_then(|link| link.objection(net::result::summary(outcome).within));
    if let Some(objection) = &objection {
        eprintln!("fathom: {objection}");
    }
    if handed.measured.interrupted {
        eprintln!("fathom: interrupted; the results so far");
        return Ok(ExitCode::from(130));
    }
    if let Some(trouble) = &outcome.own.trouble {
        eprintln!("fathom: {}", model::text::shown(trouble));
    }
    let counts = objection.is_none() && outcome.own.trouble.is_none();
    Ok(if counts { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// As `analysis` reads them.
const NAMES: Names = Names { run: RUN, limited_by: LIMITED_BY };

/// Writes it beside its place until all of it is there: if that fails, what stood there stands there still.
fn keep(kept: &Kept<'_>, output: &Path, quiet: bool) -> Result<()> {
    let staged = Staged::begin(output)?;
    kept.write(staged.folder())?;
    notices::keep_old(staged.place(), quiet)?;
    Ok(recorder::output::give_to_caller(&staged.finish()?)?)
}

/// Where the server is, or why that makes no sense.
fn server(args: &NetRun) -> Result<Server<'_>, String> {
    if args.link.is_some() && (args.from == DeviceAddress::Local || args.to == Some(DeviceAddress::Local)) {
        return Err(BETWEEN.into());
    }
    let interface = args.to_interface.as_ref().or(args.interface.as_ref());
    match (&args.to, args.address, interface) {
        (Some(_), Some(address), _) | (None, Some(address), _)
            if address.ip().is_unspecified() && (args.to.is_some() || args.from != DeviceAddress::Local) =>
        {
            Err(format!("{address} is the wildcard address: give the server's own, such as 192.0.2.7:7100"))
        }
        (None, Some(address), _) => Ok(Server::Stands(address)),
        (Some(to), Some(address), _) => Ok(Server::Start(to, Listen::At(address))),
        (Some(to), None, Some(interface)) => Ok(Server::Start(to, Listen::On(interface))),
        (Some(to), None, None) if *to == args.from => {
            Ok(Server::Start(to, Listen::At((std::net::Ipv4Addr::LOCALHOST, 0).into())))
        }
        _ => Err("no address to test: give --interface IF (the server listens on its address) or ADDR:PORT".into()),
    }
}

/// What the words ask for, or why it makes no sense.
fn spec(args: &NetRun) -> Result<Spec, String> {
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
    if args.rate == Some(Rate::Auto) && args.direction == Directions::Both {
        return Err(ONE_DIRECTION.into());
    }
    Ok(Spec {
        traffic,
        directions: args.direction.directions(),
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
