//! `fathom pool status`: asks a coordinator how its nodes are.

use crate::args::PoolStatus;
use analysis::text::shown;
use anyhow::{Context as _, Result};
use model::text::size;
use pool::http;
use pool::status::{NodeStatus, Status, socket};
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

pub fn run(args: &PoolStatus) -> Result<ExitCode> {
    let given = args.address.strip_prefix("unix:").unwrap_or(&args.address);
    let beside = socket(Path::new(given));
    let address = if beside.exists() { beside.to_string_lossy().into_owned() } else { given.into() };
    let mut answered = false;
    loop {
        match http::get(&address, "/status") {
            Ok(text) => show(args, &address, &text)?,
            // It may be started anew.
            Err(error) if args.watch && answered => {
                eprintln!("fathom: {}; retrying", crate::sentence(&error.into()))
            }
            Err(error) => return Err(error.into()),
        }
        answered = true;
        if !args.watch || crate::output::nobody_reads() {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn show(args: &PoolStatus, address: &str, text: &str) -> Result<()> {
    let status: Status = serde_json::from_str(text).with_context(|| {
        format!("the coordinator at {address} is of another release, with a different status format")
    })?;
    if args.json {
        println!("{text}");
        return Ok(());
    }
    // A terminal shows the newest alone.
    if args.watch && std::io::stdout().is_terminal() {
        crate::output::clear();
    }
    print!("{}", table(&status));
    Ok(())
}

/// For people. Names and reasons come from the nodes, and may not look like lines of their own.
fn table(status: &Status) -> String {
    let Status { pool, epoch, size_bytes, stripe_bytes, nodes, .. } = status;
    let layout = if *stripe_bytes == 0 { "concatenated".into() } else { format!("striped by {}", size(*stripe_bytes)) };
    let mut out = format!(
        "pool {pool:?}: {} in {}, {layout}, epoch {epoch}\n\n",
        size(*size_bytes),
        model::counted(nodes.len(), "node")
    );
    let columns =
        "window  batch   rtt us waiting queue service us     ops/s  packets/s up     down  bytes/packet up  down";
    // Writing to a string does not fail.
    let _ = writeln!(out, "{:<22}{:<11}{:>10}  {columns}", "node", "state", "size");
    for node in nodes {
        let NodeStatus { address, state, why, .. } = node;
        let _ = writeln!(
            out,
            "{:<22}{:<11}{:>10}  {:>6}{:>7}{:>9.0}{:>8}{:>6}{:>11}{:>10.0}{:>14.0}{:>9.0}{:>17.0}{:>6.0}",
            shown(address),
            shown(state),
            size(node.size_bytes),
            node.window,
            node.batch,
            node.rtt_us,
            node.waiting,
            node.queued,
            node.service_us,
            node.ops_per_s,
            node.packets_per_s.sent,
            node.packets_per_s.received,
            node.packet_bytes_mean.sent,
            node.packet_bytes_mean.received,
        );
        if let Some(why) = why {
            let _ = writeln!(out, "    {}", shown(why));
        }
    }
    for (begin, bytes) in &status.may_be_lost {
        let _ = writeln!(
            out,
            "\nAcknowledged writes may be lost in the {bytes} bytes from offset {begin}; writes and flushes are \
             refused until the pool is served with --accept-loss"
        );
    }
    if let Some(why) = &status.flush_failed {
        let _ = writeln!(out, "\nThe last flush failed: {}", shown(why));
    }
    out
}
