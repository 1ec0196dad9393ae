//! `fathom net run`: the request, where it is measured, and how the result is shown and stored.

use super::measure;
use crate::args::{NetRun, ReadingsCost};
use crate::{Usage, notices, output, progress};
use anyhow::{Context as _, Result};
use archive::StagedArchive;
use device::remote::DeviceAddress;
use model::Lines;
use model::text::ShownPath as _;
use net::link::LinkReport;
use net::measure::{Handover, RunRequest};
use net::quantity::Rate;
use net::remote::{self, Job, Note, RemoteOutcome, Server};
use net::request::{self, RequestError, RequestedEnds, TrafficKind};
use net::run_archive::{RowNames, RunArchive, check_output};
use net::show::{self, RunView};
use net::spec::{Readings, SocketOptions, Spec};
use scores::run_score::{LIMITED_BY, RUN};
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &NetRun) -> Result<ExitCode> {
    let usage = |why: RequestError| Usage(why.to_string());
    let spec = spec_from_args(args).map_err(usage)?;
    let ends = RequestedEnds {
        from: &args.from,
        to: args.to.as_ref(),
        address: args.address,
        interface: args.to_interface.as_deref().or(args.interface.as_deref()),
        through_here: args.link.is_some(),
    };
    let server = ends.server().map_err(usage)?;
    if let Some(output) = &args.output {
        check_output(output, &spec)?;
    }
    match server {
        Server::Stands(address) if args.from == DeviceAddress::Local => {
            let request = RunRequest {
                address,
                key: args.key.clone(),
                interface: args.interface.clone(),
                highest: args.rate == Some(Rate::Auto),
                progress: !args.json && !args.lines,
                spec,
            };
            match measure::measure(&request)? {
                Some(measured) => finish(args, &Handover { measured, place: measure::describe_machine() }, None),
                None => Ok(report_interrupted()),
            }
        }
        server => conduct(args, &spec, server),
    }
}

fn report_interrupted() -> ExitCode {
    eprintln!("fathom: interrupted; nothing was stored");
    ExitCode::from(output::INTERRUPTED_STATUS)
}

/// Conducts a run with an end on another machine.
fn conduct(args: &NetRun, spec: &Spec, server: Server<'_>) -> Result<ExitCode> {
    let context = progress::context(true);
    progress::end_on_signal(&context);
    let job = Job {
        client: &args.from,
        server,
        key: super::read_key(args.key.as_deref())?,
        binaries: &args.binary,
        link: args.link.as_ref().map(|link| &link.spec),
        spec,
        interface: args.interface.as_deref(),
        highest: args.rate == Some(Rate::Auto),
        progress: !args.json && !args.lines,
    };
    let mut aside = Lines::new(|text| output::aside(format_args!("{text}")));
    let conducted = remote::run(&job, &context, &mut |note| match note {
        Note::Message(line) => eprintln!("fathom: {line}"),
        Note::Client(bytes) => aside.take(bytes),
    });
    drop(aside);
    match conducted {
        Ok(conducted) => match &conducted.result {
            Ok(handed) => finish(args, handed, Some(&conducted)),
            Err(status) => Ok(ExitCode::from(*status)),
        },
        Err(remote::Error::Interrupted) => Ok(report_interrupted()),
        Err(error) => Err(error.into()),
    }
}

/// Stores and shows a run; one that cannot be stored is shown too, with the error.
fn finish(args: &NetRun, handed: &Handover, conducted: Option<&RemoteOutcome>) -> Result<ExitCode> {
    let link = args.link.as_ref().zip(conducted.and_then(|c| c.link.as_ref()));
    let ends = conducted.map(|c| (c.client.name.as_str(), c.server.as_ref().map(|s| s.name.as_str())));
    let link = link.map(|(word, outcome)| (word.text.as_str(), LinkReport { spec: &word.spec, outcome }));
    let shown = RunView { measured: &handed.measured, ends, link: link.map(|(_, link)| link) };
    let kept = args.output.as_deref().map(|output| {
        store_run(
            &RunArchive { handover: handed, conducted, link, names: ANALYSIS_NAMES },
            output,
            args.json || args.lines,
        )
        .with_context(|| format!("the run is printed but not stored in {}", output.shown()))
    });
    if args.json {
        let samples = args.output.as_deref().filter(|_| kept.as_ref().is_some_and(Result::is_ok));
        let value = show::json::from_run(&shown, samples).context("nothing was measured")?;
        output::print_text(&format!("{value:#}\n"));
    } else if args.lines {
        output::print_text(&(show::lines::from_run(&shown, args.readings).lines.join("\n") + "\n"));
    } else {
        output::print_text(&show::text::from_run(&shown));
    }
    kept.unwrap_or(Ok(()))?;
    let outcome = &handed.measured.outcome;
    let objection = shown.link.and_then(|link| link.objection(net::result::summary(outcome).relative_half_width));
    if let Some(objection) = &objection {
        eprintln!("fathom: {objection}");
    }
    if handed.measured.interrupted {
        eprintln!("fathom: interrupted; the results so far");
        return Ok(ExitCode::from(output::INTERRUPTED_STATUS));
    }
    if let Some(trouble) = &outcome.own.trouble {
        eprintln!("fathom: {}", model::text::shown(trouble));
    }
    let counts = objection.is_none() && outcome.own.trouble.is_none();
    Ok(if counts { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The names as `analysis` reads them.
const ANALYSIS_NAMES: RowNames = RowNames { run: RUN, limited_by: LIMITED_BY };

/// Writes the run next to its destination and moves it there when complete: on failure the destination stays as it was.
fn store_run(kept: &RunArchive<'_>, output: &Path, quiet: bool) -> Result<()> {
    let staged = StagedArchive::begin(output)?;
    kept.write(staged.directory())?;
    notices::keep_old(staged.place(), quiet)?;
    Ok(recorder::output::give_to_caller(&staged.finish()?)?)
}

/// Converts the arguments to a specification.
fn spec_from_args(args: &NetRun) -> Result<Spec, RequestError> {
    let kind = match (args.udp, args.transactions) {
        (true, _) if args.preset.is_some() => TrafficKind::Iperf2,
        (true, _) => TrafficKind::Udp { packet_bytes: args.packet },
        (_, true) => TrafficKind::Transactions { request_bytes: args.request, response_bytes: args.response },
        _ => TrafficKind::Tcp,
    };
    let directions = args.direction.0.to_vec();
    let spec = Spec {
        traffic: request::requested_traffic(kind, args.rate, &directions)?,
        directions,
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
            (_, Some(cost)) => Readings::ByTurns { seed: net::clock::now_ns(), control: cost == ReadingsCost::Control },
            _ => Readings::All,
        },
    };
    spec.check()?;
    Ok(spec)
}
