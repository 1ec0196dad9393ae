//! A pool's state as a text table.

use crate::status::{MirrorNodeStatus, MirrorStatus, NodeState, NodeStatus, Status};
use model::text::{shown, size};
use std::fmt::Write as _;

/// Formats the table. Names and reasons come from the nodes, and must not be able to imitate separate lines.
pub fn table(status: &Status) -> String {
    let Status { pool, epoch, size_bytes, stripe_bytes, nodes, .. } = status;
    let layout = if let Some(mirror) = &status.mirror {
        format!("{} copies", mirror.copies)
    } else if *stripe_bytes == 0 {
        "concatenated".into()
    } else {
        format!("striped by {}", size(*stripe_bytes))
    };
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
            state.name(),
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
        let errors = node.errors.iter().filter(|(_, count)| **count > 0);
        let errors: Vec<String> = errors.map(|(kind, count)| format!("{count} {}", shown(kind))).collect();
        if !errors.is_empty() {
            let _ = writeln!(out, "    failed requests: {}; store {}", errors.join(", "), shown(&node.store));
        }
        if let Some(seconds) = node.flushing_s {
            let _ = writeln!(out, "    flushing for {seconds:.1} s, {} not on the medium", size(node.dirty_bytes));
        } else if node.writes_wait {
            let _ = writeln!(out, "    writes wait for the medium: {} not on it", size(node.dirty_bytes));
        }
    }
    if let Some(mirror) = &status.mirror {
        out += &copies(mirror);
    }
    if status.degraded {
        let missing = nodes.iter().filter(|node| node.state == NodeState::Missing).count();
        let of = model::counted(nodes.len(), "node");
        let _ = writeln!(out, "\nDegraded: served read-only, without {missing} of {of}");
    }
    for node in nodes {
        let why: Vec<String> = node.loss_causes.iter().map(ToString::to_string).collect();
        for (begin, bytes) in &node.may_be_lost {
            let _ = writeln!(
                out,
                "\nNode {} may have lost acknowledged writes in the {bytes} bytes from offset {begin} of the disk: {}",
                shown(&node.address),
                why.join(", and ")
            );
        }
    }
    if let Some(id) = &status.loss_id {
        let _ = writeln!(
            out,
            "\nWrites and flushes are refused until the pool is served with --accept-loss {}, which accepts exactly this",
            shown(id)
        );
    }
    if let Some(why) = &status.flush_failed {
        let _ = writeln!(out, "\nThe last flush failed: {}", shown(why));
    }
    out
}

/// How many copies there are now, who lacks what, and what requests wait for.
fn copies(mirror: &MirrorStatus) -> String {
    let state = |node: &MirrorNodeStatus| match (node.is_connected, node.is_slow, node.is_out) {
        (false, _, true) => ", is not connected, and requests go on without it",
        (false, _, false) => ", and is not connected",
        (true, true, _) => " on its medium, as its flushes are slow",
        (true, false, _) => ", and is being given it",
    };
    let lacking = mirror.nodes.iter().filter(|node| node.is_out || node.lacks_bytes > 0).map(|node| {
        let (address, lacks, state) = (shown(&node.address), size(node.lacks_bytes), state(node));
        format!("; {address} lacks {lacks}{state}")
    });
    let mut out = format!("\nDurable on {} of {} copies", mirror.durable_copies, mirror.copies);
    out.extend(lacking);
    out.push('\n');
    if let Some(why) = &mirror.waiting {
        let _ = writeln!(out, "Requests wait: {}", shown(why));
    }
    out
}
