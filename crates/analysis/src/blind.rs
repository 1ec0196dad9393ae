//! The effect of missing probes on the numbers.
//!
//! In every table, a layer that was not seen looks like one that did nothing. So each layer without an attached probe gets
//! a sentence, and so does each single probe without which a number is too small or wrong. Probes that only some machines
//! have (those of a file system that is not in use) get none.

use crate::contract::Blind;
use model::table::Coverage;
use model::{Absence, Layer};
use std::collections::BTreeSet;

/// Returns the sentence for a layer of which nothing is seen.
fn unseen_layer(layer: Layer) -> &'static str {
    match layer {
        Layer::App => "processes that started or exited during the recording are not tracked and have no names.",
        Layer::Database => {
            "SQL statements are not recorded: calls and device commands are charged to processes, or to transactions \
             inferred from files."
        }
        Layer::Syscall => {
            "system calls are not recorded: files, offsets and sizes above the block layer are unknown, and no call, \
             read or write is counted."
        }
        Layer::FileSystem => {
            "the file system's journal and page cache are not recorded: commits are not counted, and the journal's \
             commands are unattributed."
        }
        Layer::Block => {
            "bios are not recorded: none is counted, and device commands cannot be linked to pages and calls."
        }
        Layer::IoScheduler => {
            "insertions into the I/O scheduler are not recorded: time in its queue counts as the block layer's."
        }
        Layer::Driver => "device commands are not recorded: none is counted, and no time is charged to the device.",
        Layer::Tracer => "the tracer's overhead is unknown.",
        Layer::RunQueue => {
            "sleeping and waiting for a CPU are not recorded: this time counts as running, in the layer the thread \
             was in."
        }
    }
}

/// Probes that no other probe can replace, and the effect of their absence.
const IRREPLACEABLE_PROBES: [(&str, &str); 13] = [
    ("sys_enter", "system calls are not recorded: no call, read or write is counted."),
    ("sys_exit", "system calls are not recorded: no call, read or write is counted."),
    (
        "compat_calls",
        "a 32-bit program ran; ftrace does not distinguish its system calls from those of 64-bit programs: they are missing or misread.",
    ),
    ("bio_queue", "bios are not recorded: none is counted, and device commands cannot be linked to pages and calls."),
    ("rq_issue", "the issue of device commands is not recorded: none is counted."),
    ("rq_done", "the completion of device commands is not recorded: they have no end and are unattributed."),
    ("flush_issue", "waiting for a flush is not recorded: flushes are unattributed."),
    ("jbd2_start_commit", "journal commits are not recorded: the journal's commands are unattributed."),
    ("jbd2_end_commit", "the end of journal commits is not recorded: who waited for one is unknown."),
    ("jbd2_handle_start", "joining a journal transaction is not recorded: the journal's commands are unattributed."),
    ("page_cache_add", "page-cache misses are not recorded: every read looks like a hit."),
    ("sched_switch", "sleeping and waiting for a CPU are not recorded: no time is known to be CPU time."),
    ("sched_waking", "wake-ups are not recorded: waiting for a CPU counts as sleeping."),
];

/// The sentence for a SQLite found only after a process had begun to run it. It does not name the library (the list of probes does), so
/// that recordings can be compared.
const SQLITE_FOUND_LATE: &str = "a SQLite was found when a process already ran it: that process's first statements, or all of them, may be missing.";

/// Returns the sentences for probes that were not attached.
pub fn blind_spots(coverage: &[Coverage]) -> Vec<Blind> {
    let mut all: Vec<Blind> = Vec::new();
    for &layer in Layer::ALL {
        let mut rows = coverage.iter().filter(|c| c.layer == layer).peekable();
        if rows.peek().is_some() && rows.all(|c| !c.attached) {
            all.push(Blind { layer, wholly: true, means: unseen_layer(layer).into() });
        }
    }
    for row in coverage.iter().filter(|c| !c.attached) {
        let covered = all.iter().any(|b| b.layer == row.layer && b.wholly);
        if row.absence == Some(Absence::NoSqlite) {
            all.push(Blind { layer: row.layer, wholly: false, means: format!("{}.", row.how) });
        } else if row.absence == Some(Absence::Late) {
            all.push(Blind { layer: row.layer, wholly: false, means: SQLITE_FOUND_LATE.into() });
        } else if let Some((_, means)) = IRREPLACEABLE_PROBES.iter().find(|(probe, _)| *probe == row.probe && !covered)
        {
            all.push(Blind { layer: row.layer, wholly: false, means: (*means).into() });
        }
    }
    let mut said = BTreeSet::new();
    all.retain(|blind| said.insert((blind.layer, blind.means.clone())));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(layer: Layer, probe: &str, attached: bool, how: &str) -> Coverage {
        if attached {
            Coverage::attached(layer, probe, how)
        } else {
            Coverage::absent(layer, probe, Absence::Failed, how)
        }
    }

    #[test]
    fn a_layer_is_blind_only_without_any_probe() {
        let rows = [
            row(Layer::Block, "bio_queue", false, "refused"),
            row(Layer::Block, "bio_done", false, "refused"),
            row(Layer::Driver, "rq_issue", true, "tp_btf"),
            row(Layer::Driver, "rq_done", false, "refused"),
            row(Layer::FileSystem, "xfs_write", false, "this kernel has no tracepoint"),
            row(Layer::FileSystem, "ext4_sync_enter", true, "raw_tp"),
        ];
        let found: Vec<_> = blind_spots(&rows).into_iter().map(|b| (b.layer, b.wholly)).collect();
        assert_eq!(found, [(Layer::Block, true), (Layer::Driver, false)]);
        assert!(blind_spots(&[]).is_empty());
    }

    /// Nothing was lost, and yet statements may be missing.
    #[test]
    fn a_sqlite_that_was_found_late_is_reported_once() {
        let late = |path| Coverage::absent(Layer::Database, path, Absence::Late, "it was found late");
        let steps = |path: &str| row(Layer::Database, &format!("{path}:sqlite3_step"), true, "uprobe");
        let found = blind_spots(&[steps("/a/app"), late("/a/app"), steps("/b/app"), late("/b/app")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(!found[0].wholly && found[0].means.contains("may be missing"), "{found:?}");
        // If no step is seen at all, that is reported first.
        assert!(blind_spots(&[late("/a/app")])[0].wholly);
        let found =
            blind_spots(&[steps("/a/app"), Coverage::absent(Layer::Database, "/a/app", Absence::Failed, "no symbols")]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn substitutes_for_statements_are_reported_verbatim() {
        let how = "no SQLite was found in app: its transactions are inferred from its files";
        let rows = [
            row(Layer::Database, "/lib/libsqlite3.so.0:sqlite3_step", true, "uprobe"),
            Coverage::absent(Layer::Database, "app", Absence::NoSqlite, how),
        ];
        let found = blind_spots(&rows);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].means, format!("{how}."));
        assert!(!found[0].wholly);
    }
}
