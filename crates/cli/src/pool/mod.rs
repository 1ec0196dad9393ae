//! `fathom pool`: one file per verb.

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
mod scrub;
mod serve;
mod started;
mod status;
mod trial;

use crate::args::{Control, Disk, Pool, PoolVerb};
use anyhow::{Context as _, Result};
use pool::connect::tcp_with_key;
use pool::link::Options;
use pool::mirror::{MirrorDisk, Mirroring};
use pool::runtime::{self, end_signal};
use pool::setting::Setting;
use pool::volume::Volume;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use wire::Key;

/// The name of a pool that was given none.
const POOL_NAME_DEFAULT: &str = "default";

pub fn run(args: &Pool) -> Result<ExitCode> {
    match &args.verb {
        PoolVerb::Keygen(args) => keygen::run(args),
        PoolVerb::Node(args) => node::run(args),
        PoolVerb::Forget(args) => forget::run(args),
        PoolVerb::Serve(args) => serve::run(args),
        PoolVerb::Status(args) => status::run(args),
        PoolVerb::Scrub(args) => scrub::run(args),
        PoolVerb::Attach(args) => attach::run(args),
        PoolVerb::Bench(args) => bench::run(args),
        PoolVerb::Try(args) => trial::run(args),
    }
}

/// [`runtime::run_local`].
fn local<T>(workers: usize, work: impl Future<Output = Result<T>>) -> Result<T> {
    runtime::run_local(workers, work)
}

/// Reports a problem that does not end the program: a line on stderr.
fn reporter() -> Rc<dyn Fn(String)> {
    Rc::new(|line| eprintln!("fathom: {line}"))
}

/// Checks that no other coordinator serves the nodes now.
async fn is_free(nodes: &[SocketAddr], disk: &Disk, key: Option<Key>) -> Result<()> {
    let name = disk.pool.as_deref().unwrap_or(POOL_NAME_DEFAULT);
    Ok(pool::volume::check_free(&tcp_with_key(key), nodes, name).await?)
}

async fn join_volume(
    nodes: &[SocketAddr],
    disk: &Disk,
    key: Option<Key>,
    control: &pool::link::Control,
    given: Options,
) -> Result<Rc<Volume>> {
    let arrangement = disk.layout.unwrap_or_default().arrangement();
    let arrangement = arrangement.context("--layout mirror is for `pool serve`; measure the served pool with --nbd")?;
    let (name, usual) = (disk.pool.as_deref().unwrap_or(POOL_NAME_DEFAULT), Options::default());
    let options = Options {
        connections: disk.connections.unwrap_or(usual.connections),
        node_timeout: disk.node_timeout.unwrap_or(usual.node_timeout),
        ..given
    };
    Ok(Rc::new(Volume::join(&tcp_with_key(key), nodes, name, arrangement, &options, control, reporter()).await?))
}

/// Joins a mirrored pool.
async fn join_mirror(
    nodes: &[SocketAddr],
    disk: &Disk,
    mirroring: &Mirroring,
    key: Option<Key>,
    given: Options,
) -> Result<Rc<MirrorDisk>> {
    let (name, usual) = (disk.pool.as_deref().unwrap_or(POOL_NAME_DEFAULT), Options::default());
    let options = Options {
        connections: disk.connections.unwrap_or(usual.connections),
        node_timeout: disk.node_timeout.unwrap_or(usual.node_timeout),
        ..given
    };
    let control = pool::link::Control::Tuned;
    Ok(Rc::new(MirrorDisk::join(&tcp_with_key(key), nodes, name, mirroring, &options, &control, reporter()).await?))
}

fn control_from_args(args: &Control) -> pool::link::Control {
    match args.window {
        Some(window) => pool::link::Control::Fixed(Setting::new(window, args.batch)),
        None => pool::link::Control::Tuned,
    }
}
