//! What a missing probe means for the numbers.
//!
//! A layer that nobody saw looks in every table like one that did nothing. So each layer without any probe in force gets a
//! sentence, and so does each single probe without which a number is smaller than the truth, or wrong. Probes that only
//! some machines have (a file system's that is not used) get none.

use crate::contract::Blind;
use model::Layer;
use model::table::Coverage;

/// What it means that nothing of a layer is seen.
fn whole(layer: Layer) -> &'static str {
    match layer {
        Layer::App => "processes started or ended during the recording are not followed, and have no names.",
        Layer::Database => {
            "SQL statements are not seen: calls and device commands are charged to processes, or to what was inferred from files."
        }
        Layer::Syscall => {
            "system calls are not seen: no file, offset or size is known above the block layer, and no call, read or write is counted."
        }
        Layer::FileSystem => {
            "the file system's journal and page cache are not seen: commits are not counted, and the journal's commands are charged to nobody."
        }
        Layer::Block => {
            "bios are not seen: none is counted, and device commands cannot be led back to pages and calls."
        }
        Layer::IoScheduler => {
            "entries into the I/O scheduler are not seen: time in its queue counts as the block layer's."
        }
        Layer::Driver => "device commands are not seen: none is counted, and no time is the device's.",
        Layer::Tracer => "what the recording itself takes is not known.",
        Layer::RunQueue => {
            "sleeping and waiting for a CPU are not seen: such time counts as running, in the layer the thread was in."
        }
    }
}

/// Probes that others cannot stand in for: what it means that one is missing.
const SINGLE: [(&str, &str); 12] = [
    ("sys_enter", "system calls are not seen: no call, read or write is counted."),
    ("sys_exit", "system calls are not seen: no call, read or write is counted."),
    ("bio_queue", "bios are not seen: none is counted, and device commands cannot be led back to pages and calls."),
    ("rq_issue", "device commands are not seen being issued: none is counted."),
    ("rq_done", "device commands are not seen completing: they have no end and are charged to nobody."),
    ("flush_issue", "who waits for a flush is not seen: flushes are charged to nobody."),
    ("jbd2_start_commit", "commits of the journal are not seen: its commands are charged to nobody."),
    ("jbd2_end_commit", "the end of the journal's commits is not seen: who waited for one is not known."),
    ("jbd2_handle_start", "who joins the journal's transactions is not seen: its commands are charged to nobody."),
    ("page_cache_add", "page-cache misses are not seen: every read looks like a hit."),
    ("sched_switch", "sleeping and waiting for a CPU are not seen: such time counts as running."),
    ("sched_waking", "when a sleeper was woken is not seen: waiting for a CPU counts as sleeping."),
];

/// The sentences for what was not in force.
pub fn blind(coverage: &[Coverage]) -> Vec<Blind> {
    let mut all: Vec<Blind> = Vec::new();
    for &layer in Layer::ALL {
        let mut rows = coverage.iter().filter(|c| c.layer == layer).peekable();
        if rows.peek().is_some() && rows.all(|c| !c.attached) {
            all.push(Blind { layer, wholly: true, means: whole(layer).into() });
        }
    }
    for row in coverage.iter().filter(|c| !c.attached) {
        let told = all.iter().any(|b| b.layer == row.layer && b.wholly);
        let own =
            row.layer == Layer::Database && (row.how.starts_with("no SQLite") || row.how.starts_with("nothing that"));
        if own {
            all.push(Blind { layer: row.layer, wholly: false, means: format!("{}.", row.how) });
        } else if let Some((_, means)) = SINGLE.iter().find(|(probe, _)| *probe == row.probe && !told) {
            all.push(Blind { layer: row.layer, wholly: false, means: (*means).into() });
        }
    }
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(layer: Layer, probe: &str, attached: bool, how: &str) -> Coverage {
        Coverage { layer, probe: probe.into(), attached, how: how.into(), hits: None, misses: None, price_ns: None }
    }

    #[test]
    fn a_layer_is_blind_only_if_nothing_of_it_is_in_force() {
        let rows = [
            row(Layer::Block, "bio_queue", false, "refused"),
            row(Layer::Block, "bio_done", false, "refused"),
            row(Layer::Driver, "rq_issue", true, "tp_btf"),
            row(Layer::Driver, "rq_done", false, "refused"),
            row(Layer::FileSystem, "xfs_write", false, "this kernel has no tracepoint"),
            row(Layer::FileSystem, "ext4_sync_enter", true, "raw_tp"),
        ];
        let found: Vec<_> = blind(&rows).into_iter().map(|b| (b.layer, b.wholly)).collect();
        assert_eq!(found, [(Layer::Block, true), (Layer::Driver, false)]);
        assert!(blind(&[]).is_empty());
    }

    #[test]
    fn what_stands_for_statements_is_said_as_it_is() {
        let how = "no SQLite was found in app: its statements are inferred from the names of its files";
        let rows = [
            row(Layer::Database, "/lib/libsqlite3.so.0:sqlite3_step", true, "uprobe"),
            row(Layer::Database, "app", false, how),
        ];
        let found = blind(&rows);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].means, format!("{how}."));
        assert!(!found[0].wholly);
    }
}
