//! `--config FILE`: options from the file that are not on the command line.

use crate::args::{PoolNode, PoolServe};
use anyhow::Result;
use pool::config;
use pool::listener::Endpoint;
use pool::quantity::{memory, node_timeout, node_wait};

/// For a coordinator.
pub fn serve(args: &PoolServe) -> Result<PoolServe> {
    let mut args = args.clone();
    let Some(path) = &args.config else { return Ok(args) };
    let section = config::read_serve(path)?;
    let serve = &section.content;
    let nodes = serve.nodes.iter().map(|node| section.parse_value("nodes", node.address(), wire::address));
    args.node = nodes.collect::<Result<_, _>>()?;
    args.disk.pool = args.disk.pool.or(serve.pool.clone());
    args.disk.layout = args.disk.layout.or(Some(serve.layout));
    args.copies = args.copies.or(serve.copies);
    args.group = serve.nodes.iter().map(|node| node.group().map(String::from)).collect();
    args.disk.connections = args.disk.connections.or(serve.connections);
    if let (None, Some(text)) = (args.disk.node_timeout, &serve.node_timeout) {
        args.disk.node_timeout = Some(section.parse_value("node_timeout", text, node_timeout)?);
    }
    if let (None, Some(text)) = (args.wait, &serve.wait) {
        args.wait = Some(section.parse_value("wait", text, node_wait)?);
    }
    args.disk.trust.key = args.disk.trust.key.or(section.key.clone());
    if args.nbd.is_none() {
        args.nbd = Some(section.parse_value("nbd", &serve.nbd, str::parse::<Endpoint>)?);
    }
    args.verify_clients |= serve.verify_clients;
    args.tls = args.tls.or(serve.tls.clone());
    args.status = args.status.or(serve.status.clone());
    if let (None, Some(text)) = (args.metrics, &serve.metrics) {
        args.metrics = Some(section.parse_value("metrics", text, wire::address)?);
    }
    Ok(args)
}

/// For a node.
pub fn node(args: &PoolNode) -> Result<PoolNode> {
    let mut args = args.clone();
    let Some(path) = &args.config else { return Ok(args) };
    let section = config::read_node(path)?;
    let node = &section.content;
    args.store = node.store.clone();
    if let Some(text) = &node.backend {
        args.backend = Some(section.parse_value("backend", text, memory)?);
    }
    args.trust.key = args.trust.key.or(section.key.clone());
    if args.listen.is_none() {
        args.listen = Some(section.parse_value("listen", &node.listen, wire::address)?);
    }
    if let (None, Some(text)) = (args.metrics, &node.metrics) {
        args.metrics = Some(section.parse_value("metrics", text, wire::address)?);
    }
    Ok(args)
}
