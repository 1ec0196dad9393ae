//! `fathom pool try`: nodes as processes of this program, joined, measured, ended.

use super::auth;
use super::bench::measure;
use crate::args::{Disk, PoolTry, Trust};
use anyhow::Result;
use nbd::Tls;
use pool::bench::Figures;
use pool::link::Control;
use pool::listener::{Endpoint, Listener};
use pool::nbd_server::Server;
use pool::setting::Setting;
use pool::show::bench::{UNITS, heading, line};
use pool::started::NodeProcess;
use pool::volume::Volume;
use serde_json::json;
use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::rc::Rc;
use wire::Key;

/// What is measured, one after the other.
const LOADS: usize = 4;

/// A node whose store is in memory.
fn start(size: u64, key: Option<&Path>) -> Result<NodeProcess> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["pool", "node", "--listen", "127.0.0.1:0", "--backend", &format!("memory:{size}")]);
    match key {
        Some(key) => command.arg("--key").arg(key),
        None => command.arg("--insecure"),
    };
    // What goes wrong shows in the measurement.
    Ok(NodeProcess::start(command, |_| {})?)
}

pub fn run(args: &PoolTry) -> Result<ExitCode> {
    auth::allow(1, "use a Unix socket", args.nbd.iter().filter_map(Endpoint::address))?;
    let key = args.key.as_deref().map(Key::read).transpose()?;
    let nodes = (0..args.nodes).map(|_| start(args.size, args.key.as_deref())).collect::<Result<Vec<NodeProcess>>>()?;
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.address).collect();
    let measured = Cell::new(0);
    super::local(1, async {
        let ended = super::ended()?;
        tokio::select! {
            done = show(args, &addresses, key, &measured) => done.map(|()| ExitCode::SUCCESS),
            () = ended => Ok(interrupted(args, measured.get())),
        }
    })
}

/// What Ctrl-C means: once all is measured, only that the disk that is served ends.
fn interrupted(args: &PoolTry, measured: usize) -> ExitCode {
    if measured == LOADS && args.nbd.is_some() {
        return ExitCode::SUCCESS;
    }
    let kept = if args.load.json { "nothing was stored" } else { "the results so far" };
    eprintln!("fathom: interrupted after {measured} of {LOADS} measurements; {kept}");
    ExitCode::from(130)
}

/// `measured` is told how many loads are done.
async fn show(args: &PoolTry, addresses: &[SocketAddr], key: Option<Key>, measured: &Cell<usize>) -> Result<()> {
    let alone = Control::Fixed(Setting::new(1, 1));
    let threads = args.load.requesters();
    let (mut rows, mut last): (Vec<(String, Figures)>, Option<Rc<Volume>>) = (Vec::new(), None);
    if !args.load.json {
        println!(
            "{}, random requests of {}\n\n{}",
            model::counted(args.nodes as usize, "node"),
            model::counted(args.load.block as usize, "byte"),
            heading()
        );
    }
    let loads: [_; LOADS] = [
        ("one read at a time", false, &alone, 1),
        ("reads, one in flight per node", false, &alone, threads),
        ("reads, tuned", false, &Control::Tuned, threads),
        ("writes, tuned", true, &Control::Tuned, threads),
    ];
    for (what, write, control, threads) in loads {
        // The one before must be gone, or it would report that it was taken over.
        drop(last.take());
        let disk = Disk {
            pool: Some("try".into()),
            layout: None,
            connections: None,
            node_timeout: None,
            trust: Trust::default(),
        };
        let volume = super::join(addresses, &disk, key.clone(), control, (false, false)).await?;
        let figures = measure(volume.clone(), &args.load, threads, write, true).await?;
        if !args.load.json {
            println!("{}", line(what, &figures));
        }
        rows.push((what.into(), figures));
        last = Some(volume);
        measured.set(rows.len());
    }
    if !args.load.json {
        println!("\n{UNITS}");
    } else {
        let rows: Vec<_> = rows.iter().map(|(what, figures)| json!({"what": what, "figures": figures})).collect();
        println!("{}", json!({"nodes": args.nodes, "block_bytes": args.load.block, "threads": threads, "rows": rows}));
    }
    if let (Some(front), Some(volume)) = (&args.nbd, last) {
        let server = Server::new(Listener::bind(front).await?, Tls::Off, super::report());
        eprintln!("fathom: the disk is at {}; Ctrl-C to stop", server.uri()?);
        server.serve(volume).await;
    }
    Ok(())
}
