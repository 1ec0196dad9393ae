//! The cluster of paper 001: its node, and its coordinator's measurement of itself.

use super::auth;
use crate::args::{PoolBench, PoolNode};
use anyhow::{Context as _, Result, bail};
use model::text::ShownPath as _;
use pool::flash::Flash;
use pool::paper::coordinator::{self, Load, Measurement};
use pool::paper::node::PaperNode;
use std::net::TcpListener;
use std::process::ExitCode;

/// The protocol has no field for a key.
const INSECURE_ADVICE: &str = "the paper's nodes have no authentication; use them on this machine only";

/// Serves as one of the paper's nodes. Each connection has a process of its own, so this returns in those too.
pub fn node(args: &PoolNode) -> Result<ExitCode> {
    auth::allow(args.trust.insecure, INSECURE_ADVICE, args.listen)?;
    let Some(listen) = args.listen else { bail!("a node needs --listen") };
    let io = !args.paper.no_io;
    let flash = args.paper.flash.map(Flash::new).transpose().context("the emulated flash")?;
    let node = match &args.store {
        Some(path) => PaperNode::file(path, io, flash).with_context(|| format!("cannot open {}", path.shown()))?,
        None => PaperNode::memory(args.backend.unwrap_or_default(), args.paper.first, io, flash)
            .context("not enough memory for the store")?,
    };
    pool::flash::reduce_timer_slack();
    let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    // Alone on stdout, for scripts that asked for port 0.
    println!("{}", listener.local_addr()?);
    if !args.hosted {
        eprintln!("fathom: a node of the paper, of {} bytes; Ctrl-C to stop", node.size_bytes());
    }
    node.listen(&listener, &|line| eprintln!("fathom: {line}")).context("a connection ended")?;
    Ok(ExitCode::SUCCESS)
}

/// Measures the paper's cluster, of nodes that run.
pub fn bench(args: &PoolBench) -> Result<Measurement> {
    auth::allow(args.disk.trust.insecure, INSECURE_ADVICE, args.node.iter().copied())?;
    // Ctrl-C ends it like any program: there is nothing to lose.
    Ok(coordinator::run(&args.node, load(args, args.paper.check), &|| false)?)
}

/// Returns the load for the nodes; `check`: each holds its part of the pattern.
pub fn load(args: &PoolBench, check: bool) -> Load {
    let paper = &args.paper;
    Load {
        threads: args.load.transfer_threads(),
        batch: args.control.batch,
        ahead: paper.ahead,
        duration: args.load.duration,
        node_bytes: paper.size,
        check,
        seed: args.load.seed,
    }
}
