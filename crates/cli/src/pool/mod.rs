//! `fathom pool`: a file a verb.

mod bench;
mod front;
mod node;
mod serve;
mod trial;

use crate::args::{Control, Disk, Front, Order, Pool, PoolVerb};
use anyhow::{Context as _, Result};
use pool::layout::Arrangement;
use pool::setting::Setting;
use pool::volume::Volume;
use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;

/// Bytes of a stripe.
const STRIPE_BYTES: u64 = 64 << 10;

pub fn run(args: &Pool) -> Result<ExitCode> {
    match &args.verb {
        PoolVerb::Node(args) => node::run(args),
        PoolVerb::Serve(args) => serve::run(args),
        PoolVerb::Bench(args) => bench::run(args),
        PoolVerb::Try(args) => trial::run(args),
    }
}

/// Whether these addresses may be used while there is no encryption; if not, says why.
fn allowed(insecure: bool, addresses: impl IntoIterator<Item = SocketAddr>) -> bool {
    let mut addresses = addresses.into_iter().peekable();
    if addresses.peek().is_some() && !insecure {
        eprintln!(
            "fathom pool: connections are not encrypted and nobody is authenticated yet; give --insecure if everyone on this machine may read and write the data"
        );
        return false;
    }
    if let Some(address) = addresses.find(|address| !address.ip().is_loopback()) {
        eprintln!(
            "fathom pool: {address} is not a loopback address; without encryption, which is not there yet, a pool is kept to one machine (127.0.0.1, ::1)"
        );
        return false;
    }
    true
}

/// The addresses of a front that others can reach.
fn reachable(front: &Front) -> Option<SocketAddr> {
    match front {
        Front::Tcp(address) => Some(*address),
        Front::Unix(_) => None,
    }
}

/// Runs on one thread, with `workers` beside it for files.
fn local<T>(workers: usize, work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(workers).build();
    tokio::task::LocalSet::new().block_on(&runtime.context("cannot start")?, work)
}

/// Ready when the user or the system wants the program to end.
async fn ended() -> Result<()> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => Ok(result?),
        _ = terminated.recv() => Ok(()),
    }
}

/// Trouble that is no end: a line on stderr.
fn report() -> Rc<dyn Fn(String)> {
    Rc::new(|line| eprintln!("fathom: {line}"))
}

async fn join(nodes: &[SocketAddr], disk: &Disk, control: &pool::link::Control) -> Result<Rc<Volume>> {
    let arrangement = match disk.layout {
        Order::Concat => Arrangement::Concatenated,
        Order::Stripe => Arrangement::Striped { stripe_bytes: STRIPE_BYTES },
    };
    Ok(Rc::new(Volume::join(&pool::connect::tcp(), nodes, &disk.pool, arrangement, control, report()).await?))
}

fn control(args: &Control) -> pool::link::Control {
    match args.window {
        Some(window) => pool::link::Control::Fixed(Setting::new(window, args.batch)),
        None => pool::link::Control::Tuned,
    }
}
