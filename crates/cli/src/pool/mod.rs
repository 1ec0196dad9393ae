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
use anyhow::Result;
use pool::connect::tcp_with;
use pool::link::Options;
use pool::runtime::{self, ended};
use pool::setting::Setting;
use pool::volume::Volume;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use wire::Key;

/// The name of a pool that was given none.
const DEFAULT_POOL: &str = "default";

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

/// [`runtime::local`].
fn local<T>(workers: usize, work: impl Future<Output = Result<T>>) -> Result<T> {
    runtime::local(workers, work)
}

/// Reports a problem that does not end the program: a line on stderr.
fn report() -> Rc<dyn Fn(String)> {
    Rc::new(|line| eprintln!("fathom: {line}"))
}

/// Checks that no other coordinator serves the nodes now.
async fn is_free(nodes: &[SocketAddr], disk: &Disk, key: Option<Key>) -> Result<()> {
    let name = disk.pool.as_deref().unwrap_or(DEFAULT_POOL);
    Ok(pool::volume::is_free(&tcp_with(key), nodes, name).await?)
}

async fn join(
    nodes: &[SocketAddr],
    disk: &Disk,
    key: Option<Key>,
    control: &pool::link::Control,
    given: Options,
) -> Result<Rc<Volume>> {
    let arrangement = disk.layout.unwrap_or_default().arrangement();
    let (name, usual) = (disk.pool.as_deref().unwrap_or(DEFAULT_POOL), Options::default());
    let options = Options {
        connections: disk.connections.unwrap_or(usual.connections),
        node_timeout: disk.node_timeout.unwrap_or(usual.node_timeout),
        ..given
    };
    Ok(Rc::new(Volume::join(&tcp_with(key), nodes, name, arrangement, &options, control, report()).await?))
}

fn control(args: &Control) -> pool::link::Control {
    match args.window {
        Some(window) => pool::link::Control::Fixed(Setting::new(window, args.batch)),
        None => pool::link::Control::Tuned,
    }
}
