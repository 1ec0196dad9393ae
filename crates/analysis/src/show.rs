//! A summary as text for people: the output of `fathom show`. It fits 100 columns, has no colours and no control
//! characters, and contains nothing that is not in the JSON.

use crate::check_state::CheckState;
use crate::contract::{ByConfidence, Completeness, DiskRole, FileUse, OperationSummary, Summary, WaitedData};
use crate::counts::{self, StatementCounts};
use crate::device_times;
use crate::lines::{LINE_COLUMNS_MAX, bars, capitalise, line, paragraph, wrapped};
use crate::phase_names::GapEnd;
use crate::probes;
use crate::stacks;
use crate::text::{bytes, count, digits, duration, shown, size};
use crate::times::with_empty;
use crate::waits;
use model::ShapeKind;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Width of a bar for a whole latency, in columns.
const BAR_COLUMNS: usize = 24;
/// Maximum width of a distribution, in columns, and the number of executions from which one is drawn.
const DISTRIBUTION_COLUMNS_MAX: usize = 60;
const DISTRIBUTION_EXECUTIONS_MIN: u64 = 10;
/// Maximum number of rows in a list of processes, files or losses.
const ROWS_MAX: usize = 10;
/// A statement with less than this part of all time gets a line instead of a block, unless it is one of the first two.
const BLOCK_SHARE_MIN: f64 = 0.01;
/// Maximum number of waits listed for a statement, and the smallest share of its time for which they are listed.
const WAITS_SHOWN_MAX: usize = 3;
const WAITS_SHARE_MIN: f64 = 0.01;

/// Facts of the header: their label, and their names, of which the first known one is shown.
const HEADER_FACTS: [(&str, &[&str]); 10] = [
    ("device", &["device.model", "device.platform"]),
    ("processor", &["cpu.model"]),
    ("system", &["os.name"]),
    ("kernel", &["kernel.release"]),
    ("file system", &["fs.type"]),
    ("options", &["fs.options"]),
    ("disk", &["disk.model", "disk.name"]),
    ("scheduler", &["disk.scheduler"]),
    ("processes", &["trace.processes"]),
    ("left running", &["trace.left_running"]),
];

/// Notes on how the numbers were obtained, in the order of the table.
const METHOD_NOTES: &str = "\
Layer times are exclusive: each ns belongs to the deepest layer that was waited on; they add up to the latency.
Counts are means per finished execution. What several share (a flush, a merged request, a commit) is counted by
share: by bytes for data, equal among the waiters of a flush, by joining calls for a commit. \"touches\" counts
it as one. Nested operations count for the outer one too; \"own\" excludes them, and own counts add up to the totals.
Writes and reads are calls that enter the file system, not pages. Quantiles interpolate (type 7). Gaps go from the end
of one run of writes to the start of the next; a sync or another class of file ends a run.
";

pub fn text(summary: &Summary) -> String {
    let mut out = String::new();
    header(&mut out, summary);
    statements(&mut out, summary);
    if summary.operations.is_empty() {
        out.push_str("\nNo operation was recorded: no SQL statement, marked span or --op function.\n");
        how_to_see_calls(&mut out, summary);
    }
    let database = |b: &&crate::contract::Blind| b.layer == model::Layer::Database && !b.wholly;
    for blind in summary.blind.iter().filter(database) {
        out.push('\n');
        wrapped(&mut out, "", &shown(&capitalise(&blind.means)));
    }
    commands(&mut out, summary);
    device_times::text(&mut out, summary);
    driver_commands(&mut out, summary);
    confidence(&mut out, summary);
    losses(&mut out, summary);
    probes::text(&mut out, summary);
    files(&mut out, summary);
    line(&mut out, "\nNotes");
    paragraph(&mut out, "  ", METHOD_NOTES);
    out
}

/// Describes what a recording without operations has, and how to turn calls into operations.
fn how_to_see_calls(out: &mut String, summary: &Summary) {
    if summary.files.is_empty() {
        return;
    }
    let library = |f: &&FileUse| f.path.as_deref().is_some_and(|path| path.ends_with("/libc.so.6"));
    let library = summary.files.iter().find(library).and_then(|f| f.path.as_deref()).map(shown);
    let library = library.as_deref().unwrap_or("/lib/x86_64-linux-gnu/libc.so.6");
    wrapped(
        out,
        "",
        &format!(
            "Its calls on files are listed below. To make a call an operation, with the time in each layer, name it: \
             `fathom record --op {library}:write -- CMD`."
        ),
    );
}

fn number(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn header(out: &mut String, summary: &Summary) {
    let trace = &summary.trace;
    let fact = |name: &str| summary.environment.get(name).and_then(|f| f.value.as_deref());
    let asked = || fact("trace.asked").unwrap_or("(command unknown)");
    let command = if trace.command.is_empty() { shown(asked()) } else { shown(&trace.command.join(" ")) };
    line(out, &command);
    let length = duration(trace.end_ns.saturating_sub(trace.start_ns) as f64);
    let complete = if trace.complete { "" } else { "; the recording was interrupted" };
    line(out, &format!("  {length} recorded{complete}"));
    for (name, facts) in HEADER_FACTS {
        // The JSON has the reasons for unknown facts; here only known facts are of interest.
        if let Some(value) = facts.iter().find_map(|f| summary.environment.get(*f)?.value.as_ref()) {
            line(out, &format!("  {name:<12} {}", shown(value)));
        }
    }
    if let (Some(backend), Some(why)) = (fact("trace.backend"), fact("trace.backend_why")) {
        wrapped(out, "  backend      ", &format!("{}: {}", shown(backend), shown(why)));
    }
    if let Some(caveat) = summary.caveats.against_times() {
        wrapped(out, "  times        ", &caveat.because);
    }
    if fact("disk.name").is_none() && fact("fs.type").is_some_and(|kind| kind.starts_with("fuse")) {
        let why =
            "not seen: a process serves these files (FUSE), and what it asks of disks is not counted for the program";
        line(out, &format!("  disk         {why}"));
    }
    for n in 2..=4 {
        let fact = |name: &str| fact(&format!("storage{n}.{name}"));
        let Some(disk) = fact("disk.name") else { continue };
        let disk = fact("disk.model").map_or_else(|| disk.to_owned(), |model| format!("{disk} ({model})"));
        let words = [Some(disk.as_str()), fact("disk.scheduler"), fact("fs.type"), fact("fs.options")];
        let words: Vec<String> = words.into_iter().flatten().map(shown).collect();
        line(out, &format!("  {:<12} {}", "also on", words.join(", ")));
    }
    // Several SQLite libraries may be loaded, each with its own name below this one.
    for (name, fact) in summary.environment.iter().filter(|(name, _)| name.starts_with("sqlite.")) {
        if let Some(value) = &fact.value {
            line(out, &format!("  {name:<12} {}", shown(value)));
        }
    }
    for disk in summary.disks.iter().filter(|d| d.role != DiskRole::Other) {
        let on = if disk.below.is_empty() { String::new() } else { format!(", on {}", shown(&disk.below)) };
        let role = if disk.role == DiskRole::Below { "underlying" } else { disk.role.name() };
        line(out, &format!("  {:<12} {} ({}){on}", role, shown(&disk.name), disk.dev));
    }
}

/// Formats important statements in full, the rest in a table.
fn statements(out: &mut String, summary: &Summary) {
    let counts = counts::counts(summary);
    let all = summary.operations.iter().fold(0_u64, |sum, o| sum.saturating_add(o.latency_ns.sum));
    let mut others = Vec::new();
    for (i, (operation, counts)) in summary.operations.iter().zip(&counts.statements).enumerate() {
        // A statement that failed or never ended gets a block however little time it took.
        let ended_well = operation.errors == 0 && operation.unfinished == 0;
        if i >= 2 && ended_well && (operation.latency_ns.sum as f64) < BLOCK_SHARE_MIN * all as f64 {
            others.push((operation, counts));
        } else {
            statement(out, operation, counts);
        }
    }
    if others.is_empty() {
        return;
    }
    line(out, &format!("\nOther statements, each below {} % of the time (--json lists all)", 100.0 * BLOCK_SHARE_MIN));
    line(out, &format!("  {:>7} {:>9} {:>9}  statement", "times", "median", "sum"));
    for (operation, counts) in others {
        let [p50, sum] = [operation.latency_ns.p50, operation.latency_ns.sum].map(|ns| duration(ns as f64));
        line(out, &format!("  {:>7} {p50:>9} {sum:>9}  {}", operation.count, counts.statement));
    }
}

fn statement(out: &mut String, operation: &OperationSummary, counts: &StatementCounts) {
    out.push('\n');
    line(out, &counts.statement);
    if operation.count == 0 {
        let executions = number(operation.unfinished, "execution", "executions");
        line(out, &format!("  {executions} without an end: neither times nor rows are known"));
        return;
    }
    let latency = &operation.latency_ns;
    let mut head = format!(
        "  {}: median {}, p95 {}, p99 {}, max {}, sum {}",
        number(operation.count, "time", "times"),
        duration(latency.p50 as f64),
        duration(latency.p95 as f64),
        duration(latency.p99 as f64),
        duration(latency.max as f64),
        duration(latency.sum as f64)
    );
    for (n, one, many) in [
        (operation.rows, "row", "rows"),
        (operation.errors, "error", "errors"),
        (operation.unfinished, "unfinished", "unfinished"),
    ] {
        if n > 0 {
            let _ = write!(head, ", {}", number(n, one, many));
        }
    }
    line(out, &head);
    distribution(out, operation);
    for (outer, n) in &operation.inside {
        line(out, &format!("  {n} of them inside {}, and counted there too", shown(outer)));
    }
    layers(out, operation);
    waits(out, operation);
    if !counts.rows.is_empty() {
        line(out, "");
        line(out, &format!("  {:<51} {:>9} {:>12}", "per execution", "count", "bytes"));
    }
    for row in &counts.rows {
        let name = row.class.map_or_else(|| row.name.clone(), |class| format!("{}: {}", row.name, class.name()));
        let size = row.bytes.map_or(String::new(), bytes);
        let note = if row.note.is_empty() { String::new() } else { format!("  {}", row.note) };
        line(out, &format!("  {:<12} {name:<38} {:>9} {size:>12}{note}", row.layer, count(row.count)));
    }
    let per = &operation.per_operation;
    if let Some(factor) = per.write_amplification {
        let written = &per.bytes_written;
        let sizes = [written.syscall, written.block, written.device].map(bytes);
        line(
            out,
            &format!("  written: calls {}, bios {}, device {}: x {}", sizes[0], sizes[1], sizes[2], digits(factor)),
        );
    }
    for (class, writes) in &per.filesystem_writes {
        line(out, &format!("  sizes written, {}: {}", class.name(), sizes(&writes.sizes)));
    }
    if !per.request_sizes.is_empty() {
        line(out, &format!("  sizes of requests: {}", sizes(&per.request_sizes)));
    }
    if per.by_disk.len() > 1 {
        for (name, disk) in &per.by_disk {
            let numbers = [disk.bios, disk.requests, disk.flushes].map(count);
            let [bios, requests, flushes] = numbers;
            let text = format!("{bios} bios, {requests} requests, {flushes} flushes, {}", bytes(disk.bytes));
            line(out, &format!("  on {:<9} {text}", shown(name)));
        }
    }
    waited_for(out, operation);
    gaps(out, operation);
}

/// Shows what a call waited for, and whose data that was.
fn waited_for(out: &mut String, operation: &OperationSummary) {
    let Some(waited) = operation.waited_for else { return };
    let [requests, flushes, commits] = [waited.requests, waited.flushes, waited.commits].map(count);
    let mut text = format!("{requests} requests ({}), {flushes} flushes, {commits} commits", bytes(waited.bytes));
    let WaitedData { itself, process, others, unattributed } = waited.data;
    let of = [("itself", itself), ("the rest of its process", process), ("others", others), ("unknown", unattributed)];
    let of = of.into_iter().filter(|(_, bytes)| waited.bytes > 0.0 && bytes / waited.bytes >= 0.005);
    let of: Vec<String> = of.map(|(who, bytes)| format!("{who} {:.0} %", 100.0 * bytes / waited.bytes)).collect();
    if !of.is_empty() {
        let _ = write!(text, "; data of: {}", of.join(", "));
    }
    wrapped(out, "  waited for: ", &text);
}

/// Draws the latencies' distribution, if there are enough.
fn distribution(out: &mut String, operation: &OperationSummary) {
    let bins = &operation.distribution;
    let [first, .., last] = &bins[..] else { return };
    if operation.count < DISTRIBUTION_EXECUTIONS_MIN {
        return;
    }
    let counts: Vec<f64> = with_empty(bins).into_iter().map(|n| n as f64).collect();
    let [from, to] = [first.from_ns, last.to_ns].map(|ns| duration(ns as f64));
    line(out, &format!("  latencies: {from} |{}| {to}", bars(&counts, DISTRIBUTION_COLUMNS_MAX)));
}

/// The most frequent sizes, by size: `4 x 4 B, 2 x 4.00 KiB`.
fn sizes(sizes: &std::collections::BTreeMap<u64, f64>) -> String {
    const SIZES_SHOWN_MAX: usize = 5;
    let mut list: Vec<_> = sizes.iter().collect();
    list.sort_by(|a, b| b.1.total_cmp(a.1));
    let more = if list.len() > SIZES_SHOWN_MAX { ", …" } else { "" };
    list.truncate(SIZES_SHOWN_MAX);
    list.sort_by_key(|(size, _)| **size);
    list.into_iter().map(|(&size, &n)| format!("{} x {}", count(n), size_text(size))).collect::<Vec<_>>().join(", ")
        + more
}

/// Formats an exact size, or for size classes (see [`crate::contract::size_class`]) their upper bound.
fn size_text(bytes: u64) -> String {
    if bytes > 65_536 { format!("up to {}", size(bytes)) } else { size(bytes) }
}

fn layers(out: &mut String, operation: &OperationSummary) {
    if operation.layers.is_empty() {
        return;
    }
    line(out, "");
    line(out, &format!("  {:<12} {:>9} {:>9} {:>7}", "layer", "median", "p95", "share"));
    for (layer, time) in &operation.layers {
        let (p50, p95) = (duration(time.p50_ns as f64), duration(time.p95_ns as f64));
        let bar = bar(time.share);
        let head = format!("  {:<12} {p50:>9} {p95:>9} {:>5.1} % {bar} ", layer.name(), 100.0 * time.share);
        push_list(out, &head, &reasons(&time.reasons, time.exclusive_ns));
    }
    if let Some(part) = operation.tracer.filter(|part| part.large) {
        let of = |ns: u64| 100.0 * ns as f64 / operation.latency_ns.sum.max(1) as f64;
        wrapped(
            out,
            "  ",
            &format!(
                "Tracer overhead is high here: {:.0} % ({:.0} to {:.0} %) of the latency, by the cost of its probes \
                 on this machine. Counts are not affected; for times, measure an untraced run (`fathom bench`, or \
                 the program's own timing).",
                of(part.ns),
                of(part.low_ns),
                of(part.high_ns)
            ),
        );
    }
    let unexplained = operation.unexplained_ns as f64 / operation.latency_ns.sum.max(1) as f64;
    if unexplained > 0.0005 {
        line(out, &format!("  {:<32} {:>5.1} % {}", "(no layer)", 100.0 * unexplained, bar(unexplained)));
    }
}

/// Lists what the operation waited for other than the disk, if it is significant.
fn waits(out: &mut String, operation: &OperationSummary) {
    let least = WAITS_SHARE_MIN * operation.latency_ns.sum as f64;
    for waited in operation.waits.iter().filter(|w| w.ns as f64 >= least).take(WAITS_SHOWN_MAX) {
        wrapped(out, "  waited for   ", &waits::line(waited));
    }
    stacks::text(out, &operation.slow_waits, operation.latency_ns.sum);
}

/// Draws a bar in steps of eighths, so that small shares are visible.
fn bar(share: f64) -> String {
    const BAR_EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * BAR_COLUMNS as f64 * 8.0).round() as usize;
    let bar = "█".repeat(eighths / 8) + BAR_EIGHTHS[eighths % 8];
    format!("{bar:<BAR_COLUMNS$}")
}

/// Lists the reasons of the time, the largest first: `cpu 70 %`, `journal 30 %`.
fn reasons(reasons: &std::collections::BTreeMap<String, u64>, all: u64) -> Vec<String> {
    let mut list: Vec<_> = reasons.iter().collect();
    list.sort_by(|a, b| b.1.cmp(a.1));
    let share = |ns: u64| 100.0 * ns as f64 / all.max(1) as f64;
    let part = |(name, ns): (&String, u64)| format!("{name} {:.0} %", share(ns));
    list.into_iter().filter(|(_, ns)| share(**ns) >= 0.5).map(|(n, ns)| part((n, *ns))).collect()
}

fn gaps(out: &mut String, operation: &OperationSummary) {
    if operation.gaps.is_empty() {
        return;
    }
    line(out, "");
    line(out, &format!("  {:<58} {:>6} {:>9} {:>9} {:>6}", "gaps between phases", "times", "median", "p95", "syncs"));
    for gap in &operation.gaps {
        // A marked span or a function of --op is not a statement.
        let to = match gap.to {
            GapEnd::NextStatement if operation.kind != ShapeKind::Statement.name() => {
                format!("next {}", operation.kind)
            }
            to => to.to_string(),
        };
        let name = format!("{} -> {to}", gap.from);
        let (p50, p95) = (duration(gap.duration_ns.p50 as f64), duration(gap.duration_ns.p95 as f64));
        line(out, &format!("  {name:<58} {:>6} {p50:>9} {p95:>9} {:>6}", gap.count, count(gap.fsyncs)));
    }
}

fn commands(out: &mut String, summary: &Summary) {
    let account = &summary.device_commands;
    line(out, "\nDevice commands on the disks that hold the files");
    let share = |x: f64| if account.total == 0 { 0.0 } else { 100.0 * x / account.total as f64 };
    for (name, value) in [
        ("operations", account.by_operations),
        ("recorded, outside operations", account.by_recorded_processes),
        ("other processes", account.other_processes),
        ("tracer (Fathom)", account.tracer),
        ("unattributed", account.unattributed),
    ] {
        line(out, &format!("  {name:<30} {:>12} {:>5.1} %", count(value), share(value)));
    }
    if account.waited_for_by_calls > 0 {
        let waited = account.waited_for_by_calls;
        let text = format!("  {:<30} {:>12} {:>5.1} %", "calls waited for", waited, share(waited as f64));
        line(out, &format!("{text}  (whoever they are charged to)"));
    }
    let parts = [(account.incomplete, "without a completion"), (account.untimed, "of unknown duration")];
    let parts: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let open = if parts.is_empty() { String::new() } else { format!("  ({})", parts.join(", ")) };
    line(out, &format!("  {:<30} {:>12}{open}", "total", account.total));
    if account.retried > 0 {
        let tries = number(account.retried, "command was", "commands were");
        line(out, &format!("  ({tries} requeued by the driver and issued again; counted once)"));
    }
    let fact = |name: &str| summary.environment.get(name)?.value.as_ref()?.parse::<f64>().ok();
    if let (Some(cpu), Some(records)) = (fact("tracer.cpu"), fact("tracer.records")) {
        // While probes are being attached and detached, those already attached record events.
        let outside = fact("tracer.records_outside").filter(|n| *n > 0.0);
        line(out, &format!("  Tracer overhead: {} CPU, {} events", duration(cpu), count(records)));
        if let Some(outside) = outside {
            line(out, &format!("  ({} of them before or after the recording window, not stored)", count(outside)));
        }
    }
    for (name, disk) in &account.by_disk {
        let kinds: Vec<String> = disk.kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let text = format!("{} ({}): {}", shown(name), disk.role.name(), kinds.join(", "));
        let [read, written] = [disk.bytes_read, disk.bytes_written].map(|n| bytes(n as f64));
        wrapped(out, "  ", &format!("{text}; {read} read, {written} written"));
    }
    let processes = &account.processes;
    for process in processes.iter().take(ROWS_MAX) {
        let who = match process.tgid {
            Some(tgid) => format!("{} ({tgid}), {}", shown(&process.name), process.origin),
            None => format!("{}, {}", shown(&process.name), process.origin),
        };
        line(out, &format!("    {who:<40} {:>10} {:>12}", count(process.commands), bytes(process.bytes)));
    }
    push_more(out, processes.len());
}

/// Lists the commands that drivers sent, by their names in the protocol.
fn driver_commands(out: &mut String, summary: &Summary) {
    let all = &summary.driver_commands;
    if all.is_empty() {
        return;
    }
    line(out, "\nDriver commands");
    line(
        out,
        &format!(
            "  {:<10} {:<30} {:>8} {:>12} {:>9} {:>9} {:>9}",
            "disk", "command", "times", "bytes", "median", "p95", "sum"
        ),
    );
    for c in all {
        let disk = c.disk.as_deref().map_or_else(|| "(no disk)".into(), shown);
        let [p50, p95, sum] = [c.time_ns.p50, c.time_ns.p95, c.time_ns.sum].map(|ns| duration(ns as f64));
        let moved = bytes(c.bytes as f64);
        line(
            out,
            &format!("  {disk:<10} {:<30} {:>8} {moved:>12} {p50:>9} {p95:>9} {sum:>9}", shown(&c.name), c.count),
        );
        for (error, n) in &c.errors {
            wrapped(out, "    ", &format!("{n} x {}", shown(error)));
        }
        for (n, what) in [(c.timeouts, "timed out"), (c.unfinished, "without an end")] {
            if n > 0 {
                line(out, &format!("    {n} {what}"));
            }
        }
    }
    let unlinked: u64 = all.iter().map(|c| c.count - c.linked).sum();
    if unlinked > 0 {
        line(out, &format!("  ({unlinked} not linked to a recorded request)"));
    }
}

fn push_more(out: &mut String, rows: usize) {
    if rows > ROWS_MAX {
        line(out, &format!("    and {} more (--json lists all)", rows - ROWS_MAX));
    }
}

fn confidence(out: &mut String, summary: &Summary) {
    line(out, "\nConfidence");
    let row = |name: &str, values: ByConfidence<f64>| {
        let ByConfidence { exact, structural, interval, address, guess } = values;
        let [a, b, c, d, e] = [exact, structural, interval, address, guess].map(count);
        format!("  {name:<18} {a:>12} {b:>12} {c:>12} {d:>12} {e:>12}")
    };
    line(
        out,
        &format!(
            "  {:<18} {:>12} {:>12} {:>12} {:>12} {:>12}",
            "", "exact", "structural", "interval", "address", "guess"
        ),
    );
    let ByConfidence { exact, structural, interval, address, guess } = summary.links;
    let [exact, structural, interval, address, guess] = [exact, structural, interval, address, guess].map(|n| n as f64);
    line(out, &row("links", ByConfidence { exact, structural, interval, address, guess }));
    line(out, &row("charged commands", summary.cause_confidence));
}

fn losses(out: &mut String, summary: &Summary) {
    let loss = &summary.loss;
    let check = &summary.completeness;
    let why = check.why.as_deref().map_or(String::new(), |why| format!(": {}", shown(why)));
    let unattributed = loss.unattributed_commands;
    if unattributed > 0.0 {
        let total = summary.device_commands.total;
        let share = 100.0 * unattributed / total.max(1) as f64;
        let text = format!(
            "Lost: the origin of {} of {total} device commands ({share:.1} %). Operations may have caused them, in addition to those \
             that they are charged.",
            count(unattributed)
        );
        out.push('\n');
        wrapped(out, "", &text);
    }
    if loss.intervals.is_empty() && loss.events_at_unknown_time > 0 {
        line(out, &format!("\nLost: {} at an unknown time", number(loss.events_at_unknown_time, "record", "records")));
        return disk_checks(out, check);
    }
    if loss.intervals.is_empty() {
        out.push('\n');
        let (none, none_seen) = if unattributed > 0.0 {
            ("No record was lost", "No lost record was detected")
        } else {
            ("No losses", "No losses were detected")
        };
        let text = match check.state {
            CheckState::Checked => format!("{none}: the recording matches each disk's own statistics."),
            CheckState::Failed => format!("{none_seen}, but the disks' own statistics differ{why}."),
            CheckState::NotChecked => format!("{none_seen}; completeness was not checked{why}."),
        };
        wrapped(out, "", &text);
        return disk_checks(out, check);
    }
    let least = if loss.at_least { "at least " } else { "" };
    let [records, links] = [number(loss.events, "record", "records"), number(loss.weakened_links, "link", "links")];
    line(out, &format!("\nLost: {least}{records}; lower confidence: {links}"));
    for interval in loss.intervals.iter().take(ROWS_MAX) {
        let cpu = interval.cpu.map_or("any CPU".into(), |cpu| format!("CPU {cpu}"));
        let at = duration(interval.start_ns.saturating_sub(summary.trace.start_ns) as f64);
        let length = duration(interval.end_ns.saturating_sub(interval.start_ns) as f64);
        let events = interval.events.map_or("unknown".into(), |n| n.to_string());
        let program = interval.program.as_deref().map_or(String::new(), |p| format!(", {}", shown(p)));
        line(out, &format!("  {events} on {cpu}, {} at {at} within {length}{program}", interval.source));
    }
    push_more(out, loss.intervals.len());
    if loss.events_at_unknown_time > 0 {
        line(out, &format!("  {} more at an unknown time", loss.events_at_unknown_time));
    }
    if check.state == CheckState::NotChecked {
        wrapped(out, "  ", &format!("Completeness was not checked{why}."));
    }
    disk_checks(out, check);
}

/// Lists each disk's own counts, beside the recorded ones where they differ.
fn disk_checks(out: &mut String, check: &Completeness) {
    for (name, disk) in check.disks.iter().take(ROWS_MAX) {
        let mut parts = Vec::new();
        for what in ["reads", "writes", "discards", "flushes"] {
            let Some(count) = disk.counts.get(what) else { continue };
            let least = count.recorded.saturating_sub(count.unsure);
            let text = match count.kernel {
                None => continue,
                Some(n) if (least..=count.recorded).contains(&n) => format!("{n} {what}"),
                Some(n) => format!("{n} {what} ({} recorded)", count.recorded),
            };
            let empty = disk.counts.get("flushes counted as writes").filter(|_| what == "writes");
            // The kernel's own count exceeds the commands above by these.
            let of_these =
                empty.map_or_else(String::new, |n| format!(" ({} of them flushes without data)", n.recorded));
            parts.push(text + &of_these);
        }
        let unsure: u64 = ["reads", "writes", "discards", "flushes"]
            .iter()
            .filter_map(|w| disk.counts.get(*w))
            .map(|c| c.unsure)
            .sum();
        if unsure > 0 {
            parts.push(format!("{unsure} completed while they were read"));
        }
        let text = match (&disk.why, parts.is_empty()) {
            (Some(why), true) => format!("{} was not checked: {}", shown(name), shown(why)),
            _ => format!("{} counted {}", shown(name), parts.join(", ")),
        };
        wrapped(out, "  ", &text);
    }
}

/// Adds parts after `head`, separated by commas, over as many lines as needed; no part is split.
fn push_list(out: &mut String, head: &str, parts: &[String]) {
    let mut now = head.to_owned();
    for (i, part) in parts.iter().enumerate() {
        let comma = if i + 1 < parts.len() { ", " } else { "" };
        if i > 0 && now.chars().count() + part.chars().count() + comma.trim_end().len() > LINE_COLUMNS_MAX {
            line(out, &now);
            now = " ".repeat(head.chars().count());
        }
        now += part;
        now += comma;
    }
    line(out, &now);
}

/// Sums up the files of the same name: a rollback journal is a new file with every transaction.
fn files_by_name(files: &[FileUse]) -> Vec<(u64, FileUse)> {
    let mut named: BTreeMap<_, (u64, FileUse)> = BTreeMap::new();
    for file in files {
        // A file without a name is identified by its inode.
        let key = (file.class, &file.dev, file.path.as_ref(), file.path.is_none().then_some(file.ino));
        match named.get_mut(&key) {
            Some((n, sum)) => {
                *n += 1;
                sum.add(file);
            }
            None => drop(named.insert(key, (1, file.clone()))),
        }
    }
    let mut all: Vec<_> = named.into_values().collect();
    all.sort_by_key(|(_, f)| (f.class, Reverse(f.moved())));
    all
}

fn files(out: &mut String, summary: &Summary) {
    if summary.files.is_empty() {
        return;
    }
    let files = files_by_name(&summary.files);
    let row = |class: &str, [n, writes, written, reads, read]: [String; 5], path: &str| {
        let numbers = format!("{class:<18} {n:>6} {writes:>8} {written:>9} {reads:>8} {read:>9}  ");
        // The end of a long path is more informative than its start.
        let room = LINE_COLUMNS_MAX - numbers.chars().count().min(LINE_COLUMNS_MAX);
        let over = path.chars().count().saturating_sub(room);
        let kept: String = path.chars().skip(if over == 0 { 0 } else { over + 1 }).collect();
        numbers + if over == 0 { "" } else { "…" } + &kept
    };
    let head = ["count", "writes", "written", "reads", "read"].map(Into::into);
    line(out, &format!("\n{}", row("Files", head, "path")));
    for (n, file) in files.iter().take(ROWS_MAX) {
        let path = file.path.as_deref().map_or_else(|| format!("inode {} on {}", file.ino, file.dev), shown);
        let [written, read] = [file.bytes_written, file.bytes_read].map(|n| bytes(n as f64));
        let numbers = [n.to_string(), file.writes.to_string(), written, file.reads.to_string(), read];
        line(out, &row(&format!("  {}", file.class.name()), numbers, &path));
    }
    push_more(out, files.len());
    let mut all = FileUse::default();
    files.iter().for_each(|(_, file)| all.add(file));
    let [written, read] = [all.bytes_written, all.bytes_read].map(|n| bytes(n as f64));
    let numbers = [summary.files.len().to_string(), all.writes.to_string(), written, all.reads.to_string(), read];
    line(out, &row("  all", numbers, ""));
    wrapped(out, "  ", &what_files_count(summary, &all));
}

/// Says what the table of files counts, and what it does not.
fn what_files_count(summary: &Summary, all: &FileUse) -> String {
    let outside = if summary.operations.is_empty() {
        String::new()
    } else {
        format!(": {} writes and {} reads are outside operations", all.writes_outside, all.reads_outside)
    };
    let mut text = format!("(calls of the recorded processes that read, write or copy{outside}");
    let without: u64 = summary.calls.values().map(|total| total.without_file).sum();
    if without > 0 {
        let _ = write!(text, "; {} of which the file is not known not counted", number(without, "call", "calls"));
    }
    let mapped = [(all.mapped_bytes_written, "dirtied"), (all.mapped_bytes_read, "read")];
    let mapped: Vec<String> =
        mapped.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", bytes(n as f64))).collect();
    if !mapped.is_empty() {
        let _ = write!(text, "; in mapped pages, without calls: {}", mapped.join(", "));
    }
    text + ")"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Probe, Times};
    use crate::{small_trace, summarise};
    use model::Absence;

    #[test]
    fn small_trace_matches_snapshot() {
        let text = text(&summarise(&small_trace::rows()));
        assert!(text.lines().all(|l| l.chars().count() <= LINE_COLUMNS_MAX), "{text}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
        insta::assert_snapshot!(text);
    }
    #[test]
    fn size_classes_are_labelled_as_ranges() {
        let texts = [12, 512, 1536, 65_536, crate::contract::size_class(65_537), crate::contract::size_class(1 << 20)]
            .map(size_text);
        assert_eq!(texts, ["12 B", "512 B", "1.50 KiB", "64 KiB", "up to 128 KiB", "up to 1 MiB"]);
    }

    #[test]
    fn numbers_are_not_truncated_by_the_columns_width() {
        let mut summary = summarise(&small_trace::rows());
        let time = summary.operations[0].layers.values_mut().next().unwrap();
        time.exclusive_ns = 100;
        time.reasons =
            [("cpu", 34), ("other", 26), ("run queue", 21), ("journal", 19)].map(|(n, ns)| (n.into(), ns)).into();
        let disk = summary.device_commands.by_disk.values_mut().next().unwrap();
        disk.kinds =
            ["discard", "flush", "read", "write", "write zeroes", "zone append"].map(|k| (k.into(), 123_456)).into();
        (disk.bytes_read, disk.bytes_written) = (40 << 20, 41 << 20);
        summary.operations[0].kind = "function".into();
        let text = text(&summary);
        for whole in ["cpu 34 %, other 26 %,", "journal 19 %", "40.0 MiB read,", "41.0 MiB", "-> next function "] {
            assert!(text.contains(whole), "{whole:?} is not in {text}");
        }
        assert!(text.lines().all(|l| l.chars().count() <= LINE_COLUMNS_MAX && !l.ends_with('…')), "{text}");
    }

    #[test]
    fn times_of_an_emulated_processor_are_marked() {
        let mut summary = summarise(&small_trace::rows());
        assert!(!text(&summary).contains("emulated"));
        let mut rows = small_trace::rows();
        rows.facts.push(small_trace::emulated_fact());
        summary = summarise(&rows);
        assert!(
            text(&summary)
                .contains("\n  times        the processor is emulated (QEMU's TCG): times show order, not speed\n")
        );
    }

    #[test]
    fn a_statement_without_an_end_has_no_time() {
        let mut rows = small_trace::rows();
        rows.operations.edit().iter_mut().filter(|o| o.shape == 2).for_each(|o| o.end_ns = None);
        let text = text(&summarise(&rows));
        assert!(text.contains("1 execution without an end: neither times nor rows are known"), "{text}");
        assert!(!text.contains("0 times"), "{text}");
    }

    #[test]
    fn a_recording_without_a_command_is_titled_by_its_options() {
        let mut summary = summarise(&small_trace::rows());
        summary.trace.command.clear();
        let fact = summary.environment.values().next().unwrap().clone();
        let asked = model::Fact { value: Some("process 12 (a\u{1b}b)".into()), ..fact };
        summary.environment.insert("trace.asked".into(), asked);
        let text = text(&summary);
        assert!(text.starts_with("process 12 (a"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn losses_counted_by_the_recorder_are_always_shown() {
        let mut summary = summarise(&small_trace::rows());
        summary.loss = crate::contract::Loss { events_at_unknown_time: 940, ..Default::default() };
        let all = text(&summary);
        assert!(all.contains("\nLost: 940 records at an unknown time\n"), "{all}");
        assert!(!all.contains("No losses"), "{all}");
    }

    /// A small demo: cheap statements, probes of other kernels and repeated files take little room.
    #[test]
    fn minor_statements_take_one_line() {
        let mut summary = summarise(&small_trace::rows());
        let operation = |statement: &str, count, sum, errors| OperationSummary {
            statement: statement.into(),
            count,
            errors,
            latency_ns: Times { p50: sum / count, p95: sum / count, p99: sum / count, max: sum / count, sum },
            ..OperationSummary::default()
        };
        summary.operations[2].latency_ns.sum = 30_000;
        summary.operations.extend([
            operation("CREATE TABLE t (n INTEGER, s TEXT)", 1, 20_000, 0),
            operation("INSERT INTO u VALUES (?)", 2, 10_000, 1),
            operation(&format!("SELECT {}", "a_column, ".repeat(20)), 4, 8_000, 0),
            operation("PRAGMA synchronous=full", 2, 3_000, 0),
        ]);
        let probe = |probe: &str, absence: Option<Absence>, how: &str| Probe {
            layer: model::Layer::FileSystem,
            probe: probe.into(),
            attached: absence.is_none(),
            how: how.into(),
            absence,
            ..summary.coverage[0].clone()
        };
        let no = "this kernel has no tracepoint of that name, or its module is not loaded";
        summary.coverage = vec![
            probe("ext4_write_begin", None, "raw_tp ext4_write_begin"),
            probe("ext4_unlink", Some(Absence::NoTracepoint), no),
            probe("f2fs_write_begin", Some(Absence::NoTracepoint), no),
            probe("f2fs_write_end", Some(Absence::NoTracepoint), no),
            probe("xfs_write", Some(Absence::NotMounted), "no xfs was mounted"),
            probe("btrfs_write", Some(Absence::NotPermitted), "the kernel refused the program (EPERM)"),
        ];
        let file = summary.files[0].clone();
        let long = Some(format!("/{}end.db-journal", "directory/".repeat(20)));
        let inode = |ino| FileUse { ino, path: None, ..file.clone() };
        summary.files.extend([file.clone(), file.clone(), inode(7), inode(8), FileUse { path: long, ..file.clone() }]);

        let mut text = String::new();
        statements(&mut text, &summary);
        let mut text = text.split_off(text.find("\nINSERT INTO u").unwrap());
        probes::text(&mut text, &summary);
        files(&mut text, &summary);
        assert!(text.lines().all(|l| l.chars().count() <= LINE_COLUMNS_MAX), "{text}");
        insta::assert_snapshot!(text);
    }
}
