//! `fathom pool bench --nodes`: starts nodes for the measurement, which the coordinator started with them prints; and `--compute`: how
//! much reading and computing slow each other down there.

use crate::args::{Paper, PaperBench, PoolBench};
use anyhow::{Context as _, Result, bail};
use lab::medium::Rate;
use pool::show::bench::{slowdown, slowdown_json};
use pool::started::cluster::PaperNodes;
use pool::started::{Cluster, ClusterSpec, compute};
use std::process::ExitCode;

fn start_cluster(paper: &PaperBench, count: u32) -> Result<Cluster> {
    let rate = Rate { packets_per_s: paper.packets_per_s, queue_packets: paper.queue_packets };
    let wanted = ClusterSpec {
        program: std::env::current_exe().context("cannot find Fathom's own binary")?,
        count,
        bytes: paper.size,
        // Only the paper's node can read nothing; today's then reads from memory.
        paper: (paper.paper == Some(Paper::Cluster)).then_some(if paper.no_io {
            PaperNodes::WithoutIo
        } else {
            PaperNodes::Reading
        }),
        flash: paper.flash,
        medium: paper.link.map(|kind| (kind, rate)),
    };
    // The stderr is passed on: it has the reason why a measurement fails.
    Ok(Cluster::start(&wanted, |nth, line| eprintln!("node {nth}: {line}"))?)
}

pub fn run(args: &PoolBench, count: u32) -> Result<ExitCode> {
    let cluster = start_cluster(&args.paper, count)?;
    let mut command = cluster.bench();
    command.args(coordinator_words(args, count));
    let status = command.status().context("cannot start the coordinator")?;
    Ok(match status.code() {
        Some(code) => ExitCode::from(code as u8),
        None => bail!("the coordinator ended: {status}"),
    })
}

pub fn compute(args: &PoolBench, count: u32) -> Result<ExitCode> {
    let cluster = start_cluster(&args.paper, count)?;
    let mut words = coordinator_words(args, count);
    words.extend((!args.load.json).then(|| "--json".into()));
    let measured = compute::measure(&cluster, &words, args.load.duration)?;
    if args.load.json {
        println!("{}", slowdown_json(&measured));
    } else {
        println!("{}", slowdown(&measured));
    }
    Ok(ExitCode::SUCCESS)
}

/// The arguments passed on to the coordinator.
fn coordinator_words(args: &PoolBench, count: u32) -> Vec<String> {
    let (paper, load, control) = (&args.paper, &args.load, &args.control);
    let mut words = vec![format!("--duration={}", load.duration.as_secs_f64()), format!("--seed={}", load.seed)];
    match paper.paper {
        Some(Paper::Cluster) => {
            words.extend(["--paper=cluster".into(), format!("--threads={}", load.transfer_threads())]);
            words.extend([format!("--batch={}", control.batch), format!("--ahead={}", paper.ahead)]);
            words.push(format!("--size={}", paper.size));
            words.extend((!paper.no_io).then(|| "--check".to_string()));
        }
        Some(Paper::Load) => {
            let requesters = u64::from(count) * u64::from(load.transfer_threads()) * u64::from(control.batch);
            words.extend(["--block=1".into(), format!("--threads={requesters}")]);
        }
        None => {
            words.extend([format!("--block={}", load.block), format!("--threads={}", load.requesters())]);
            words.extend(args.disk.connections.map(|count| format!("--connections={count}")));
            words.extend(control.window.map(|window| format!("--window={window}")));
            words.extend(control.window.map(|_| format!("--batch={}", control.batch)));
            words.extend(args.write.then(|| "--write".to_string()));
        }
    }
    words.extend(load.json.then(|| "--json".to_string()));
    words.extend(paper.lines.then(|| "--lines".to_string()));
    words
}
