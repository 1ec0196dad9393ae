//! `fathom pool node`.

use super::auth;
use crate::args::PoolNode;
use anyhow::{Context as _, Result};
use model::text::ShownPath as _;
use pool::flash::Flash;
use pool::listener::{Endpoint, Listener};
use pool::node::{Node, WORKERS_PER_CLASS, thread_count};
use pool::store::Store;
use pool::unique_name::new_name;
use pool::{http, memory};
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

/// Opens a store, and prints how it recovered from an unclean end.
fn open_store(path: &Path) -> Result<Store> {
    let store = Store::open(path)?;
    if let Some(recovery) = store.recovery() {
        eprintln!("fathom: {}", recovery.sentence(path));
    }
    Ok(store)
}

/// What follows from a store that cannot be closed in order.
fn unclean_message(store: &Store) -> String {
    let loss = store.header().loss();
    let ranges: Vec<String> =
        loss.ranges.iter().map(|(begin, bytes)| format!("{bytes} bytes from offset {begin}")).collect();
    if ranges.is_empty() {
        return "cannot close the store cleanly; what was flushed is safe".into();
    }
    let (ranges, why) = (ranges.join(", "), loss.why());
    format!("cannot close the store cleanly; acknowledged writes may be lost in {ranges}: {why}")
}

pub fn run(args: &PoolNode) -> Result<ExitCode> {
    if args.at.device.is_some() {
        if args.config.is_some() || (args.listen.is_none() && args.interface.is_none()) {
            let why = "--device: give the node's options on the command line, and --listen or --interface";
            return Err(crate::Usage(why.into()).into());
        }
        return crate::device::service("node", &args.at, args.trust.key.as_deref());
    }
    let mut args = super::config::node(args)?;
    if let Some(name) = &args.interface {
        args.listen = Some((net::interface::address(name)?, 0).into());
    }
    if args.paper.paper {
        return super::paper::node(&args);
    }
    let key = auth::key(&args.trust, args.listen)?;
    let store = match (&args.store, args.backend) {
        (Some(path), _) if args.init => {
            let store = Store::format(path, args.size, new_name(), args.import)?;
            eprintln!(
                "fathom: made {}, a store of {} bytes, node {}",
                path.shown(),
                store.size_bytes(),
                store.header().node
            );
            if let Some(free) = store.insufficient_free_bytes() {
                eprintln!(
                    "fathom: its file system has {free} bytes free, fewer than the store needs: writes fail with \
                     ENOSPC when it is full"
                );
            }
            store
        }
        (Some(path), _) => open_store(path)?,
        (None, size) => {
            let size = size.unwrap_or_default();
            memory::check_fits(size)?;
            Store::memory(size, new_name())?
        }
    };
    let Some(listen) = args.listen else { return Ok(ExitCode::SUCCESS) };
    let flash = args.paper.flash.map(Flash::new).transpose().context("the emulated flash")?;
    // The emulated flash blocks its reader, as a file does.
    let inline = args.backend.is_some() && flash.is_none();
    let workers = args.paper.flash.map_or(WORKERS_PER_CLASS, |speed| speed.servers.max(WORKERS_PER_CLASS));
    pool::flash::reduce_timer_slack();
    let store = Arc::new(store.with_flash(flash));
    super::local(thread_count(workers), async {
        let listener =
            tokio::net::TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
        let ended = super::end_signal()?;
        // Alone on stdout, for scripts that asked for port 0.
        println!("{}", listener.local_addr()?);
        if !args.hosted {
            eprintln!("fathom: node {} of {} bytes; Ctrl-C to stop", store.header().node, store.size_bytes());
        }
        let node = Node::with_key(store.clone(), inline, key);
        if let Some(metrics) = args.metrics {
            let listener = Listener::bind(&Endpoint::Tcp(metrics)).await?;
            if let Some(address) = listener.endpoint()?.address() {
                eprintln!("fathom: metrics at http://{address}/metrics");
            }
            tokio::task::spawn_local(http::serve(listener, Rc::new(node.clone()), super::reporter()));
        }
        node.listen(listener, super::reporter(), ended).await;
        store.close().with_context(|| unclean_message(&store))
    })?;
    Ok(ExitCode::SUCCESS)
}
