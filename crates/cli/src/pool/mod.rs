//! `fathom pool`: a file a verb.

mod at;
mod attach;
mod auth;
mod bench;
mod config;
mod figures;
mod forget;
mod keygen;
mod nbd_bench;
mod node;
mod paper;
mod serve;
mod started;
mod status;
mod trial;

use crate::args::{Control, Disk, Order, Pool, PoolVerb};
use anyhow::{Context as _, Result};
use pool::connect::tcp_with;
use pool::layout::Arrangement;
use pool::link::Options;
use pool::setting::Setting;
use pool::volume::Volume;
use std::future::Future;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use tokio::signal::unix::{SignalKind, signal};
use wire::Key;

/// A pool that was given no name.
const DEFAULT_POOL: &str = "default";
/// Bytes of a stripe.
const STRIPE_BYTES: u64 = 64 << 10;

pub fn run(args: &Pool) -> Result<ExitCode> {
    match &args.verb {
        PoolVerb::Keygen(args) => keygen::run(args),
        PoolVerb::Node(args) => node::run(args),
        PoolVerb::Forget(args) => forget::run(args),
        PoolVerb::Serve(args) => serve::run(args),
        PoolVerb::Status(args) => status::run(args),
        PoolVerb::Attach(args) => attach::run(args),
        PoolVerb::Bench(args) => bench::run(args),
        PoolVerb::Try(args) => trial::run(args),
    }
}

/// Runs on one thread, with `workers` beside it for files.
fn local<T>(workers: usize, work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(workers)
        .on_thread_start(pool::scheduling::inherit_nothing)
        .build();
    tokio::task::LocalSet::new().block_on(&runtime.context("cannot start")?, work)
}

/// From now on Ctrl-C and SIGTERM are heard; ready when one has come. To be called before anybody is told that the program
/// is there, or who ends it at once ends it in no order.
fn ended() -> Result<impl Future<Output = ()>> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => (),
            _ = terminated.recv() => (),
        }
    })
}

/// Trouble that is no end: a line on stderr.
fn report() -> Rc<dyn Fn(String)> {
    Rc::new(|line| eprintln!("fathom: {line}"))
}

/// Whether no other coordinator serves the nodes now.
async fn is_free(nodes: &[SocketAddr], disk: &Disk, key: Option<Key>) -> Result<()> {
    let name = disk.pool.as_deref().unwrap_or(DEFAULT_POOL);
    Ok(pool::volume::is_free(&tcp_with(key), nodes, name).await?)
}

async fn join(
    nodes: &[SocketAddr],
    disk: &Disk,
    key: Option<Key>,
    control: &pool::link::Control,
    (accept_loss, shared_memory): (bool, bool),
) -> Result<Rc<Volume>> {
    let arrangement = match disk.layout.unwrap_or(Order::Concat) {
        Order::Concat => Arrangement::Concatenated,
        Order::Stripe => Arrangement::Striped { stripe_bytes: STRIPE_BYTES },
    };
    let (name, usual) = (disk.pool.as_deref().unwrap_or(DEFAULT_POOL), Options::default());
    let options = Options {
        connections: disk.connections.unwrap_or(usual.connections),
        node_timeout: disk.node_timeout.unwrap_or(usual.node_timeout),
        accept_loss,
        shared_memory,
    };
    Ok(Rc::new(Volume::join(&tcp_with(key), nodes, name, arrangement, &options, control, report()).await?))
}

fn control(args: &Control) -> pool::link::Control {
    match args.window {
        Some(window) => pool::link::Control::Fixed(Setting::new(window, args.batch)),
        None => pool::link::Control::Tuned,
    }
}
