//! `fathom pool try`: nodes as processes of this program, joined, measured, ended.

use super::auth;
use crate::args::PoolTry;
use crate::output;
use anyhow::{Result, anyhow};
use nbd::Tls;
use pool::bench::Figures;
use pool::connect::tcp_with_key;
use pool::coordinator::{LOAD_COUNT, measure_trial};
use pool::listener::{Endpoint, Listener};
use pool::nbd_server::Server;
use pool::show::bench::{COLUMN_NOTES, heading, line, trial_json};
use pool::started::NodeProcess;
use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode};
use wire::Key;

/// A node whose store is in memory.
fn start_node(size: u64, key: Option<&Path>) -> Result<NodeProcess> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["pool", "node", "--listen", "127.0.0.1:0", "--backend", &format!("memory:{size}")]);
    match key {
        Some(key) => command.arg("--key").arg(key),
        None => command.arg("--insecure"),
    };
    // A failure shows in the measurement.
    Ok(NodeProcess::start(command, |_| {})?)
}

pub fn run(args: &PoolTry) -> Result<ExitCode> {
    auth::allow(1, "use a Unix socket", args.nbd.iter().filter_map(Endpoint::address))?;
    let key = args.key.as_deref().map(Key::read).transpose()?;
    let nodes =
        (0..args.nodes).map(|_| start_node(args.size, args.key.as_deref())).collect::<Result<Vec<NodeProcess>>>()?;
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.address).collect();
    let measured = Cell::new(0);
    super::local(1, async {
        let ended = super::end_signal()?;
        tokio::select! {
            done = measure_and_print(args, &addresses, key, &measured) => done.map(|()| ExitCode::SUCCESS),
            () = ended => Ok(report_interrupted(args, measured.get())),
        }
    })
}

/// What Ctrl-C means: once all is measured, it only ends the served disk.
fn report_interrupted(args: &PoolTry, measured: usize) -> ExitCode {
    if measured == LOAD_COUNT && args.nbd.is_some() {
        return ExitCode::SUCCESS;
    }
    let kept = if args.load.json { "nothing was stored" } else { "the results so far" };
    eprintln!("fathom: interrupted after {measured} of {LOAD_COUNT} measurements; {kept}");
    ExitCode::from(output::INTERRUPTED_STATUS)
}

/// `measured` counts the loads that are done.
async fn measure_and_print(
    args: &PoolTry,
    addresses: &[SocketAddr],
    key: Option<Key>,
    measured: &Cell<usize>,
) -> Result<()> {
    let mut rows = Vec::new();
    let load = args.load.load(args.load.requesters());
    if !args.load.json {
        println!(
            "{}, random requests of {}\n\n{}",
            model::counted(args.nodes as usize, "node"),
            model::counted(args.load.block as usize, "byte"),
            heading()
        );
    }
    let mut record_figures = |what: &'static str, figures: Figures| {
        if !args.load.json {
            println!("{}", line(what, &figures));
        }
        rows.push((what, figures));
        measured.set(rows.len());
    };
    let connect = tcp_with_key(key);
    let volume = measure_trial(&connect, addresses, load, super::reporter(), &mut record_figures).await;
    // The error is not Send, like everything that stays on a node's thread.
    let volume = volume.map_err(|error| anyhow!("{}", model::text::error_chain(&error)))?;
    if args.load.json {
        println!("{}", trial_json(args.nodes, &load, &rows));
    } else {
        println!("\n{COLUMN_NOTES}");
    }
    if let Some(front) = &args.nbd {
        let server = Server::new(Listener::bind(front).await?, Tls::Off, super::reporter());
        eprintln!("fathom: the disk is at {}; Ctrl-C to stop", server.uri()?);
        server.serve(volume).await;
    }
    Ok(())
}
