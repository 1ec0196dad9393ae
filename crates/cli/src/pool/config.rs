//! `--config FILE`: what the file says, where the command line does not.

use crate::args::{Order, PoolNode, PoolServe, pool_value as value};
use anyhow::{Context as _, Result, anyhow};
use pool::config::{Config, Layout, MAX_BYTES};
use pool::listener::Endpoint;
use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

fn read(path: &Path) -> Result<Config> {
    let tried = || format!("cannot read {}", path.display());
    let mut text = String::new();
    File::open(path).with_context(tried)?.take(MAX_BYTES).read_to_string(&mut text).with_context(tried)?;
    let folder = std::path::absolute(path).with_context(tried)?;
    let folder = folder.parent().unwrap_or(Path::new("/"));
    Config::parse(&text, folder).map_err(|why| anyhow!("{}: {why}", path.display()))
}

/// A value of the file, read as the command line's is.
fn given<T, E: Display>(path: &Path, name: &str, text: &str, read: impl Fn(&str) -> Result<T, E>) -> Result<T> {
    read(text).map_err(|why| anyhow!("{}: {name} = {text:?}: {why}", path.display()))
}

/// For a coordinator.
///
/// # Errors
/// What is wrong with the file.
pub fn serve(args: &PoolServe) -> Result<PoolServe> {
    let mut args = args.clone();
    let Some(path) = args.config.clone() else { return Ok(args) };
    let config = read(&path)?;
    let serve = config.serve.ok_or_else(|| anyhow!("{} has no [serve] section", path.display()))?;
    let nodes = serve.nodes.iter().map(|node| given(&path, "nodes", node, wire::address));
    args.node = nodes.collect::<Result<_>>()?;
    args.disk.pool = args.disk.pool.or(serve.pool);
    args.disk.layout = args.disk.layout.or(Some(match serve.layout {
        Layout::Concat => Order::Concat,
        Layout::Stripe => Order::Stripe,
    }));
    args.disk.connections = args.disk.connections.or(serve.connections);
    if let (None, Some(text)) = (args.disk.node_timeout, &serve.node_timeout) {
        args.disk.node_timeout = Some(given(&path, "node_timeout", text, value::node_timeout)?);
    }
    args.disk.trust.key = args.disk.trust.key.or(config.key);
    if args.nbd.is_none() {
        args.nbd = Some(given(&path, "nbd", &serve.nbd, str::parse::<Endpoint>)?);
    }
    args.verify_clients |= serve.verify_clients;
    args.tls = args.tls.or(serve.tls);
    args.status = args.status.or(serve.status);
    if let (None, Some(text)) = (args.metrics, &serve.metrics) {
        args.metrics = Some(given(&path, "metrics", text, wire::address)?);
    }
    Ok(args)
}

/// For a node.
///
/// # Errors
/// What is wrong with the file.
pub fn node(args: &PoolNode) -> Result<PoolNode> {
    let mut args = args.clone();
    let Some(path) = args.config.clone() else { return Ok(args) };
    let config = read(&path)?;
    let node = config.node.ok_or_else(|| anyhow!("{} has no [node] section", path.display()))?;
    args.store = node.store;
    if let Some(text) = &node.backend {
        args.backend = Some(given(&path, "backend", text, value::memory)?);
    }
    args.trust.key = args.trust.key.or(config.key);
    if args.listen.is_none() {
        args.listen = Some(given(&path, "listen", &node.listen, wire::address)?);
    }
    if let (None, Some(text)) = (args.metrics, &node.metrics) {
        args.metrics = Some(given(&path, "metrics", text, wire::address)?);
    }
    Ok(args)
}
