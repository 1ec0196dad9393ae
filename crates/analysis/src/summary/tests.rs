//! Every number of [`crate::small_trace`]'s small trace, checked by hand.

use super::*;
use crate::small_trace;

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

fn operation_of<'a>(summary: &'a Summary, text: &str) -> &'a OperationSummary {
    summary.operations.iter().find(|o| o.statement == text).unwrap()
}

#[test]
fn counts_are_mean_shares_per_operation() {
    let summary = summarise(&small_trace::rows());
    let insert = operation_of(&summary, small_trace::INSERT_STATEMENT);
    assert_eq!((insert.count, insert.unfinished, insert.errors), (2, 1, 1));
    let per = &insert.per_operation;
    assert_eq!((per.syscalls, per.fsyncs), (5.5, 2.0));
    let journal = &per.filesystem_writes[&FileClass::RollbackJournal];
    assert_eq!((journal.count, journal.bytes, journal.inodes), (2.0, 2312.0, 1));
    assert_eq!((journal.parts["journal page"], journal.sizes[&4096]), (0.5, 0.5));
    assert!(near(per.request_sizes[&8192], 0.25) && near(per.request_sizes[&4096], 0.5));
    assert_eq!(per.filesystem_writes[&FileClass::Database].count, 0.5);
    assert!(!per.filesystem_writes.contains_key(&FileClass::Other), "a pipe is no file, with a name or without");
    // Half of the commit, half of the request of two bios, all of its own write and of the flush; two executions.
    assert!(near(per.journal_commits, 0.25));
    assert!(near(per.requests, 0.75) && near(per.flushes, 0.5) && near(per.merges, 0.25));
    assert!(near(per.bios, (0.5 + 0.5 + 1.0) / 2.0), "{}", per.bios);
    assert!(near(per.device_bytes, (4096.0 + 4096.0) / 2.0));
    assert_eq!(per.touched.requests, 1.0);
    assert!(near(per.write_amplification.unwrap(), 8192.0 / (4624.0 + 4096.0)));
    assert!(near(per.by_disk["vda"].requests, 0.5) && near(per.by_disk["loop0"].requests, 0.75));
}

#[test]
fn a_mark_has_the_counts_of_its_statements() {
    let summary = summarise(&small_trace::rows());
    let (mark, insert) = (operation_of(&summary, "one insert"), operation_of(&summary, small_trace::INSERT_STATEMENT));
    assert_eq!(mark.kind, "mark");
    assert!(near(mark.per_operation.requests, 2.0 * insert.per_operation.requests));
    assert_eq!(mark.per_operation.syscalls, 11.0);
}

#[test]
fn a_warm_scan_hits_the_cache_and_is_charged_nothing() {
    let summary = summarise(&small_trace::rows());
    let per = &operation_of(&summary, small_trace::SELECT_STATEMENT).per_operation;
    let reads = &per.filesystem_reads[&FileClass::Database];
    assert_eq!((reads.count, reads.cache_hits, reads.bytes), (2.0, 2.0, 4112.0));
    assert_eq!((per.bios, per.requests, per.flushes, per.journal_commits), (0.0, 0.0, 0.0, 0.0));
    assert_eq!(per.write_amplification, None);
}

/// Nothing of it is SQLite: only its calls on files are known. Another process's write to the same file does not count.
#[test]
fn files_are_listed_for_a_trace_without_operations() {
    let mut rows = small_trace::rows();
    let with = summarise(&rows);
    rows.operations.edit().clear();
    rows.spans.edit().iter_mut().for_each(|s| s.operation = None);
    let other = rows.spans.iter().find(|s| s.id == 22).unwrap().clone();
    rows.spans.push(Span { id: 9000, layer: Layer::FileSystem, kind: "write".into(), tgid: 7, ..other });
    let summary = summarise(&rows);
    assert!(summary.operations.is_empty() && !with.files.is_empty());
    let journal = |s: &Summary| s.files.iter().find(|f| f.class == FileClass::RollbackJournal).unwrap().clone();
    let inside = journal(&with);
    let outside = crate::contract::FileUse { writes_outside: inside.writes, ..inside };
    assert_eq!(journal(&summary), outside);
    let fact = |name: &str, value: &str| model::table::FactRow {
        name: name.into(),
        value: Some(value.into()),
        unknown: None,
        unit: None,
        source: "the recorder".into(),
        varies: "run".into(),
    };
    rows.facts.extend([
        fact("tracer.cpu", "1000"),
        fact("tracer.records", "862"),
        fact("tracer.records_outside", "500"),
    ]);
    let text = crate::show::text(&summarise(&rows));
    assert!(text.contains("(500 of them before or after the recording window"), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("--op /lib/x86_64-linux-gnu/libc.so.6:write -- CMD"), "{text}");
    assert!(text.contains("\nFiles"), "{text}");
}

/// An earlier read-ahead had put the page into the cache, but its read was still in flight: waiting for it is no hit.
#[test]
fn a_read_that_waits_for_the_disk_is_not_a_hit() {
    let mut rows = small_trace::rows();
    let read = rows.spans.iter().find(|s| s.id == 71).unwrap().clone();
    let wait = |start_ns, end_ns| model::table::Slice::new(13, Layer::Driver, Reason::Device, start_ns, end_ns);
    let hits = |rows: &Rows| {
        operation_of(&summarise(rows), small_trace::SELECT_STATEMENT).per_operation.filesystem_reads
            [&FileClass::Database]
            .cache_hits
    };
    // A wait after the read, and one of another operation: neither counts.
    rows.slices.push(wait(read.end_ns.unwrap(), read.end_ns.unwrap() + 5));
    rows.slices.push(model::table::Slice { operation: 11, ..wait(read.start_ns, read.start_ns + 5) });
    assert_eq!(hits(&rows), 2.0);
    rows.slices.push(wait(read.start_ns + 1, read.start_ns + 3));
    assert_eq!(hits(&rows), 1.0);
}

#[test]
fn exclusive_times_add_up_to_the_latency() {
    for operation in summarise(&small_trace::rows()).operations {
        let sum: u64 = operation.layers.values().map(|l| l.exclusive_ns).sum();
        assert_eq!(sum + operation.unexplained_ns, operation.latency_ns.sum, "{}", operation.statement);
        for (layer, time) in &operation.layers {
            assert_eq!(time.reasons.values().sum::<u64>(), time.exclusive_ns, "{layer}");
        }
    }
}

#[test]
fn every_command_is_accounted_for() {
    let account = summarise(&small_trace::rows()).device_commands;
    assert_eq!(account.total, 5, "the disk below is counted separately");
    let sum = account.attributed + account.other_processes + account.unattributed + account.tracer;
    assert!(near(sum, 5.0));
    assert!(near(account.by_operations, 2.5) && near(account.other_processes, 0.5));
    assert_eq!((account.tracer, account.unattributed, account.incomplete), (1.0, 1.0, 1));
    assert_eq!(account.by_disk["vda"].role, crate::contract::DiskRole::Below);
    assert_eq!(account.by_disk["loop0"].kinds["flush"], 1);
    assert_eq!(account.processes.iter().filter(|p| p.name == "other").map(|p| p.commands).sum::<f64>(), 0.5);
}

#[test]
fn file_system_calls_without_a_file_name_count_once() {
    let mut rows = small_trace::rows();
    rows.files[0].path = None;
    let summary = summarise(&rows);
    let writes = &operation_of(&summary, small_trace::INSERT_STATEMENT).per_operation.filesystem_writes;
    // Only one of the four calls to the file was seen in the file system.
    assert_eq!(writes[&FileClass::Other].count, 0.5);
    // A splice is not a write call: its bytes count in the file system.
    rows.spans.edit().iter_mut().filter(|s| s.id == 20).for_each(|s| s.kind = "copy_file_range".into());
    let summary = summarise(&rows);
    let writes = &operation_of(&summary, small_trace::INSERT_STATEMENT).per_operation.filesystem_writes;
    assert_eq!((writes[&FileClass::Other].count, writes[&FileClass::Other].bytes), (0.5, 256.0));
}

#[test]
fn the_order_of_rows_does_not_matter() {
    let mut rows = small_trace::rows();
    let before = serde_json::to_value(summarise(&rows)).unwrap();
    rows.spans.edit().reverse();
    rows.links.edit().reverse();
    rows.causes.edit().reverse();
    rows.slices.edit().reverse();
    assert_eq!(serde_json::to_value(summarise(&rows)).unwrap(), before);
}

#[test]
fn the_json_has_the_fields_of_the_contract() {
    let json = serde_json::to_value(summarise(&small_trace::rows())).unwrap();
    let operation = &json["operations"][0];
    for path in [
        "/statement",
        "/count",
        "/latency_ns/p50",
        "/latency_ns/p95",
        "/latency_ns/sum",
        "/layers/FileSystem/exclusive_ns",
        "/per_operation/syscalls",
        "/per_operation/fsyncs",
        "/per_operation/filesystem_writes/rollback journal/count",
        "/per_operation/filesystem_writes/database/bytes",
        "/per_operation/filesystem_reads",
        "/per_operation/journal_commits",
        "/per_operation/bios",
        "/per_operation/requests",
        "/per_operation/flushes",
        "/per_operation/device_bytes",
    ] {
        assert!(operation.pointer(path).is_some(), "{path} in {operation}");
    }
    for path in [
        "/version",
        "/device_commands/total",
        "/device_commands/attributed",
        "/device_commands/other_processes",
        "/device_commands/unattributed",
        "/device_commands/tracer",
        "/device_commands/by_disk/loop0/total",
        "/links/exact",
        "/links/guess",
        "/loss/events",
        "/loss/intervals/0/cpu",
        "/environment/kernel.release/value",
    ] {
        assert!(json.pointer(path).is_some(), "{path}");
    }
}

#[test]
fn invalid_tables_do_not_panic() {
    let mut rows = small_trace::rows();
    for operation in rows.operations.edit().iter_mut() {
        operation.parent = Some(operation.id);
        operation.end_ns = Some(0);
        operation.rows = u64::MAX;
    }
    for span in rows.spans.edit().iter_mut() {
        span.end_ns = Some(0);
        span.bytes = u64::MAX;
        span.offset = Some(u64::MAX);
        span.number = Some(u64::MAX);
        span.result = Some(i64::MIN);
    }
    for slice in rows.slices.edit().iter_mut() {
        (slice.start_ns, slice.end_ns) = (u64::MAX, 0);
    }
    rows.causes.edit().iter_mut().for_each(|c| c.share = f64::NAN);
    rows.disks.iter_mut().for_each(|d| d.below = format!("{0} {0} loop0 vda", d.name));
    let links: Vec<_> =
        rows.links.iter().map(|l| model::table::Link { parent: l.child, child: l.parent, ..l.clone() }).collect();
    rows.links.extend(links);
    let summary = summarise(&rows);
    assert!(!crate::show::text(&summary).is_empty());
    assert_eq!(summarise(&Rows::default()).operations, []);
}

#[test]
fn commands_of_unknown_origin_are_a_loss() {
    let mut rows = small_trace::rows();
    rows.losses.clear();
    let total = summarise(&rows).device_commands.total;
    assert!(total > 0 && summarise(&rows).loss.unattributed_commands > 0.0, "the case has one of {total}");
    let all = crate::show::text(&summarise(&rows));
    assert!(all.contains(&format!("\nLost: the origin of 1 of {total} device commands (")), "{all}");
    assert!(!all.contains("No losses"), "{all}");
    let account = |unattributed, total| crate::contract::DeviceCommands { unattributed, total, ..Default::default() };
    let lost = |unattributed, total| crate::account::reportable_unattributed(&account(unattributed, total));
    assert_eq!((lost(1.0, 100), lost(1.01, 100), lost(0.0, 0), lost(0.5, 1)), (0.0, 1.01, 0.0, 0.5));
}
