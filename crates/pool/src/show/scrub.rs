//! The result of a scrub as text.

use crate::scrub::{NodeScrub, Scrub};
use model::text::{shown, size};
use std::fmt::Write as _;

/// The version of the JSON.
const FORMAT_VERSION: u32 = 1;

#[derive(serde::Serialize)]
struct Document<'s> {
    version: u32,
    #[serde(flatten)]
    scrub: &'s Scrub,
}

/// Formats the result as JSON.
///
/// # Errors
/// Never; the type is that of the serializer.
pub fn json(scrub: &Scrub) -> serde_json::Result<String> {
    serde_json::to_string(&Document { version: FORMAT_VERSION, scrub })
}

/// Formats the result. Names and reasons come from the nodes, and must not be able to imitate separate lines.
pub fn text(scrub: &Scrub) -> String {
    let mut out = String::new();
    for node in &scrub.nodes {
        let NodeScrub { address, store, verified_bytes, damaged_blocks, unreadable_blocks, .. } = node;
        let damaged = model::counted(*damaged_blocks as usize, "damaged block");
        let unreadable = model::counted(*unreadable_blocks as usize, "unreadable block");
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{}  {}  {} verified, {damaged}, {unreadable}",
            shown(address),
            shown(store),
            size(*verified_bytes)
        );
        for bad in &node.bad {
            let what = if bad.is_unreadable { "unreadable" } else { "damaged" };
            let disk = match bad.on_disk {
                Some((begin, bytes)) => format!("{bytes} bytes at offset {begin} of the disk"),
                None => "not used by the disk".into(),
            };
            let _ = writeln!(out, "    {what}: {} bytes at offset {} of the store ({disk})", bad.bytes, bad.offset);
        }
        if node.ranges_left_out > 0 {
            let _ = writeln!(out, "    and {} more ranges", node.ranges_left_out);
        }
        if let Some(why) = &node.failed {
            let _ = writeln!(out, "    not read to its end: {}", shown(why));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrub::BadRange;

    #[test]
    fn text_names_the_node_the_store_and_the_offset() {
        let bad = vec![BadRange { offset: 8192, bytes: 4096, on_disk: Some((1 << 20, 4096)), is_unreadable: false }];
        let node = NodeScrub {
            address: "192.0.2.1:7001".into(),
            store: "/dev/s\u{1b}dx".into(),
            size_bytes: 4 << 20,
            verified_bytes: 1 << 20,
            damaged_blocks: 1,
            bad,
            failed: Some("it is away".into()),
            ..NodeScrub::default()
        };
        assert_eq!(
            text(&Scrub { running: false, nodes: vec![node] }),
            "192.0.2.1:7001  /dev/s\\u{1b}dx  1 MiB verified, 1 damaged block, 0 unreadable blocks\n    \
             damaged: 4096 bytes at offset 8192 of the store (4096 bytes at offset 1048576 of the disk)\n    \
             not read to its end: it is away\n"
        );
    }
}
