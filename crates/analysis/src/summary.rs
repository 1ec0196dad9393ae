//! An archive's tables as one [`Summary`]: what `show` prints and the report's tables hold.
//!
//! One pass over each table, into an accumulator for each shape; nothing is kept for a span, so that a million of them take a
//! second or two. Slices, the largest table, are not held in memory but streamed. Separate concepts are in modules of their own:
//! shares ([`crate::charges`]), phases ([`crate::gaps`]), classes of files (the crate `sqlite`), the charging of commands
//! ([`crate::account`]).

use crate::account;
use crate::blind;
use crate::charges::{Charges, OperationShare, SharedItems};
use crate::completeness::completeness;
use crate::contract::{
    ByConfidence, BytesWritten, DiskInfo, DiskUse, LayerTime, Loss, LossInterval, OperationSummary, OwnCounts,
    PerOperation, Probe, Reads, Summary, TouchedCounts, VERSION, Writes, size_class,
};
use crate::device_times;
use crate::driver;
use crate::entries::{Entries, SpanEffect};
use crate::files;
use crate::flaws;
use crate::gaps::{Act, Phases};
use crate::rows::{Index, IoAction, Rows};
use crate::stacks;
use crate::times::{distribution, times};
use crate::tracer::{self, Prices, Times};
use crate::waited_io::WaitedSpans;
use crate::waits::Waits;
use archive::{Archive, Error};
use model::table::{Operation, Slice, Span};
use model::{Layer, Reason, Relation, ShapeKind};
use sqlite::{FileClass, PageGrid, database_of, part_at};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Page size of a database of which no whole page was seen: SQLite's default since 3.12.
const DEFAULT_PAGE_BYTES: u32 = 4096;

/// SQLite's result codes that are no errors: OK, ROW (reset before its end), DONE.
const SUCCESS_CODES: [i64; 3] = [0, 100, 101];

/// Summarises a trace.
pub fn summarise(rows: &Rows) -> Summary {
    summarise_rows(&Index::new(rows))
}

/// Summarises a trace that has its index.
pub fn summarise_rows(index: &Index) -> Summary {
    let all = |each: &mut dyn FnMut(&Slice)| {
        index.rows.slices.iter().for_each(|slice| each(&slice));
        Ok::<(), std::convert::Infallible>(())
    };
    match of_index(index, all) {
        Ok(summary) => summary,
        Err(never) => match never {},
    }
}

/// Summarises an archive without holding its slices in memory.
///
/// # Errors
/// Those of [`Rows::load`].
pub fn summarise_archive(archive: &Archive) -> Result<Summary, Error> {
    let rows = Rows::load_without_slices(archive)?;
    of_index(&Index::new(&rows), |each| archive.for_each_group(|slices| slices.iter().for_each(|slice| each(&slice))))
}

/// Summarises a trace that has its index, and whose slices are passed by `slices`, one after the other.
fn of_index<E>(index: &Index, slices: impl FnOnce(&mut dyn FnMut(&Slice)) -> Result<(), E>) -> Result<Summary, E> {
    let mut summary = SummaryBuilder::new(index);
    slices(&mut |slice| summary.slice(slice))?;
    Ok(summary.finish(Charges::new(index)))
}

/// A summary in the making: slices are added one after the other.
pub struct SummaryBuilder<'a>(Tallies<'a>);

impl<'a> SummaryBuilder<'a> {
    /// Begins one with the executions.
    pub fn new(index: &'a Index<'a>) -> Self {
        let mut tallies = Tallies::new(index);
        tallies.executions();
        Self(tallies)
    }

    pub fn slice(&mut self, slice: &Slice) {
        self.0.slice(slice);
    }

    /// Adds what is in no slice.
    pub fn finish(self, charges: Charges) -> Summary {
        build_summary(self.0, charges)
    }
}

fn build_summary(mut tallies: Tallies, charges: Charges) -> Summary {
    let index = tallies.index;
    let rows = index.rows;
    tallies.slices_end();
    tallies.calls();
    tallies.charges(&charges);
    drop(charges);
    for (shape, waits) in stacks::slow_waits(index) {
        tallies.shapes[shape].summary.slow_waits = waits;
    }
    let mut files = files::FileSums::new(index);
    let used = |layer| matches!(layer, Layer::Syscall | Layer::FileSystem);
    rows.spans.of_layers(used).for_each(|(_, span)| files.add(index, &span));
    let (files, calls) = files.finish();
    let (waited, waited_commands) = std::mem::take(&mut tallies.waited).finish(index);
    for (shape, sums) in waited {
        let summary = &mut tallies.shapes[shape].summary;
        summary.waited_for = Some(sums.mean(summary.count));
    }
    let mut operations: Vec<OperationSummary> = tallies.finish();
    operations.sort_by(|a, b| b.latency_ns.sum.cmp(&a.latency_ns.sum).then_with(|| a.statement.cmp(&b.statement)));
    let (links, relations) = count_links(rows);
    let mut trace = rows.trace.clone();
    // The recorder reports when its probes were attached; an archive from elsewhere may lack this.
    let fact = |name: &str| rows.facts.iter().find(|f| f.name == name)?.value.as_ref()?.parse::<u64>().ok();
    let first = || rows.spans.iter().map(|s| s.start_ns).min();
    let last = || rows.spans.iter().map(|s| s.end_ns.unwrap_or(s.start_ns)).max();
    trace.start_ns = fact("trace.start").or_else(first).unwrap_or(0);
    trace.end_ns = fact("trace.end").or_else(last).unwrap_or(0);
    let mut device_commands = account::device_commands(index).clone();
    device_commands.waited_for_by_calls = waited_commands;
    device_times::add_times(index, &mut device_commands.by_disk, (trace.start_ns, trace.end_ns));
    let loss =
        Loss { unattributed_commands: account::reportable_unattributed(&device_commands), ..summarise_loss(rows) };
    Summary {
        version: VERSION,
        trace,
        operations,
        device_commands,
        driver_commands: driver::driver_commands(index),
        links,
        relations,
        cause_confidence: account::charge_confidence(index),
        loss,
        completeness: completeness(index),
        caveats: flaws::find_caveats(index),
        environment: rows.environment(),
        disks: disk_infos(index),
        files,
        calls,
        coverage: probe_rows(rows),
        blind: blind::blind_spots(&rows.coverage),
    }
}

/// Sums for one shape.
#[derive(Default)]
struct Tally {
    summary: OperationSummary,
    latency: Vec<u64>,
    inside: Vec<u64>,
    /// For each layer, the sum of slices of each execution that has any.
    layers: BTreeMap<Layer, Vec<u64>>,
    phases: Phases,
    waits: Waits,
    /// Counts that become means; held in the contract's own type as sums.
    sums: PerOperation,
    written: HashMap<FileClass, HashSet<u64>>,
    read: HashMap<FileClass, HashSet<u64>>,
}

struct Tallies<'a> {
    index: &'a Index<'a>,
    shapes: Vec<Tally>,
    /// Position of each finished operation's shape.
    of: Vec<Option<usize>>,
    /// What calls that are operations waited for.
    waited: WaitedSpans,
    /// For each operation, the time in each layer in which it has any.
    layers: Times,
    /// The part of that time in which it was running.
    running: Times,
    /// By operation, when its thread slept until the disk had completed a read or a write. A page that an earlier
    /// call's read-ahead is still fetching is in the page cache, but a call that must wait for it had no hit.
    waits: Vec<(u32, u64, u64)>,
}

fn finished_latency(operation: &Operation) -> Option<u64> {
    operation.end_ns.map(|end| end.saturating_sub(operation.start_ns))
}

impl<'a> Tallies<'a> {
    fn new(index: &'a Index<'a>) -> Self {
        let rows = index.rows;
        let tally = |shape: &model::table::Shape| Tally {
            summary: OperationSummary {
                statement: shape.text.clone(),
                kind: shape.kind.to_string(),
                ..OperationSummary::default()
            },
            ..Tally::default()
        };
        let of = (0..rows.operations.len())
            .map(|i| finished_latency(&rows.operations.at(i)).and_then(|_| index.shape(i)))
            .collect();
        Self {
            index,
            shapes: rows.shapes.iter().map(tally).collect(),
            of,
            waited: WaitedSpans::default(),
            layers: Times::default(),
            running: Times::default(),
            waits: Vec::new(),
        }
    }

    fn executions(&mut self) {
        for (i, operation) in self.index.rows.operations.iter().enumerate() {
            let Some(shape) = self.index.shape(i) else { continue };
            let tally = &mut self.shapes[shape];
            let summary = &mut tally.summary;
            let Some(latency) = finished_latency(&operation) else {
                summary.unfinished += 1;
                continue;
            };
            summary.count += 1;
            summary.rows = summary.rows.saturating_add(operation.rows);
            if let Some(result) = operation.result {
                *summary.results.entry(result).or_default() += 1;
                summary.errors +=
                    u64::from(summary.kind == ShapeKind::Statement.name() && !SUCCESS_CODES.contains(&result));
            }
            tally.latency.push(latency);
            tally.inside.push(operation.inside_ns);
            summary.own.latency_ns += latency as f64;
            let Some(around) = operation.parent.and_then(|id| self.index.operation(id)) else { continue };
            if let Some(shape) = self.index.shape(around) {
                let text = &self.index.rows.shapes[shape].text;
                *entry_or_default(&mut self.shapes[self.of[i].unwrap_or(shape)].summary.inside, text) += 1;
            }
            // It cannot have been inside for longer than the outer operation ran, even if lost records suggest so.
            let outer = &self.index.rows.operations.at(around);
            let within = operation.start_ns.max(outer.start_ns)..operation.end_ns.min(outer.end_ns).unwrap_or(0);
            if let Some(shape) = self.of[around] {
                self.shapes[shape].summary.own.latency_ns -= within.end.saturating_sub(within.start) as f64;
            }
        }
    }

    /// Adds time by layer. Slices of one operation need not be adjacent in the table.
    fn slice(&mut self, slice: &Slice) {
        let Some(operation) = self.index.operation(slice.operation) else { return };
        if matches!(slice.reason, Reason::Device | Reason::Queue) {
            self.waits.push((operation as u32, slice.start_ns, slice.end_ns));
        }
        self.waited.add(self.index, operation, slice);
        let Some(shape) = self.of[operation] else { return };
        let ns = slice.end_ns.saturating_sub(slice.start_ns);
        self.shapes[shape].waits.add(self.index, slice);
        let layer = self.shapes[shape].summary.layers.entry(slice.layer).or_default();
        layer.exclusive_ns = layer.exclusive_ns.saturating_add(ns);
        let reason = entry_or_default(&mut layer.reasons, slice.why());
        *reason = reason.saturating_add(ns);
        self.layers.add(operation, slice.layer, ns);
        if slice.reason == Reason::Cpu && matches!(slice.layer, Layer::App | Layer::Database | Layer::Syscall) {
            self.running.add(operation, slice.layer, ns);
        }
    }

    fn slices_end(&mut self) {
        let (of, shapes) = (&self.of, &mut self.shapes);
        if let Some(prices) = Prices::from_rows(self.index.rows) {
            tracer::deduct_all(self.index, prices, &mut self.layers, &self.running, |at, part| {
                if let Some(shape) = of[at] {
                    part(&mut shapes[shape].summary);
                }
            });
        }
        self.running = Times::default();
        for (operation, layer, ns) in std::mem::take(&mut self.layers).iter() {
            if let Some(shape) = self.of[operation] {
                self.shapes[shape].layers.entry(layer).or_default().push(ns);
            }
        }
        self.waits.sort_unstable();
    }

    /// Adds system calls, entries into the file system, and phases.
    fn calls(&mut self) {
        let index = self.index;
        let rows = index.rows;
        let pages = page_sizes(index);
        let entries = Entries::new(index);
        let waits = std::mem::take(&mut self.waits);
        let mut acts: Vec<Act> = Vec::new();
        for (i, span) in rows.spans.iter().enumerate() {
            let Some(operation) = span.operation.and_then(|id| index.operation(id)) else { continue };
            let SpanEffect { enters, class, wrote, read, syncs, bytes } = entries.effect_of(index, i, &span);
            let file = span.file.and_then(|id| index.file(id));
            if wrote.is_some() || syncs {
                let end_ns = span.end_ns.unwrap_or(span.start_ns);
                acts.push(Act { operation: operation as u32, start_ns: span.start_ns, end_ns, wrote, bytes });
            }
            for (shape, own) in index.chain(operation).filter_map(|o| Some((self.of[o]?, o == operation))) {
                let tally = &mut self.shapes[shape];
                let sums = &mut tally.sums;
                if span.layer == Layer::Syscall && own {
                    tally.summary.own.syscalls += 1.0;
                    tally.summary.own.fsyncs += f64::from(u8::from(syncs));
                }
                if span.layer == Layer::Syscall {
                    sums.syscalls += 1.0;
                    sums.fsyncs += f64::from(u8::from(syncs));
                    *entry_or_default(&mut sums.calls, &span.kind) += 1.0;
                }
                if let Some(class) = wrote {
                    let page = file.and_then(|at| pages[at]).unwrap_or(DEFAULT_PAGE_BYTES);
                    let part = part_at(class, span.offset.unwrap_or(u64::MAX), bytes, page).name();
                    let writes = sums.filesystem_writes.entry(class).or_default();
                    writes.count += 1.0;
                    writes.bytes += bytes as f64;
                    *entry_or_default(&mut writes.parts, part) += 1.0;
                    *writes.sizes.entry(size_class(bytes)).or_default() += 1.0;
                    sums.bytes_written.syscall += bytes as f64;
                    tally.written.entry(class).or_default().extend(file.map(|at| rows.files[at].ino));
                }
                let added = span.cache_added.filter(|_| read.is_some() || enters);
                if read.is_some() || added.is_some_and(|n| n > 0) {
                    let reads = sums.filesystem_reads.entry(class.unwrap_or(FileClass::Other)).or_default();
                    reads.pages_added += f64::from(added.unwrap_or(0));
                    if let Some(class) = read {
                        reads.count += 1.0;
                        reads.bytes += bytes as f64;
                        let since = (operation as u32, span.start_ns);
                        let next = waits.partition_point(|&(at, _, to)| (at, to) <= since);
                        let until = span.end_ns.unwrap_or(u64::MAX);
                        let waited = waits.get(next).is_some_and(|&(at, from, _)| at == since.0 && from < until);
                        reads.cache_hits += f64::from(u8::from(span.cache_added == Some(0) && !waited));
                        tally.read.entry(class).or_default().extend(file.map(|at| rows.files[at].ino));
                    }
                }
            }
        }
        self.phases(acts);
    }

    fn phases(&mut self, mut acts: Vec<Act>) {
        acts.sort_unstable();
        let rows = self.index.rows;
        let next = next_on_thread(self.index);
        let mut rest = acts.as_slice();
        while let Some(first) = rest.first() {
            let (own, after) = rest.split_at(rest.partition_point(|a| a.operation == first.operation));
            rest = after;
            let at = first.operation as usize;
            if let Some(shape) = self.of[at] {
                self.shapes[shape].phases.add(own, rows.operations.start_ns(at), next[at]);
            }
        }
    }

    /// Adds sums of shares.
    fn charges(&mut self, charges: &Charges) {
        let index = self.index;
        let spans = &index.rows.spans;
        let counted = |span: &Span| span.disk.is_some_and(|d| index.counted_disks.contains(&d));
        let names: HashMap<u32, String> = (0..spans.len())
            .filter_map(|at| spans.disk(at))
            .collect::<HashSet<_>>()
            .into_iter()
            .map(|d| (d, index.disk_name(d)))
            .collect();
        self.each(&charges.commits, |sums, own, _, _, OperationShare { share, own: alone, .. }| {
            own.journal_commits += alone;
            sums.journal_commits += share;
            sums.touched.journal_commits += 1.0;
        });
        self.each(&charges.commands, |sums, own, number, span, OperationShare { share, own: alone, .. }| {
            let does = IoAction::on_disk(span);
            let flush = does == IoAction::Flush;
            // A discard names bytes but carries none.
            let data = matches!(does, IoAction::Read | IoAction::Write);
            let bytes = if data { span.bytes as f64 * share } else { 0.0 };
            if let Some(name) = span.disk.and_then(|d| names.get(&d)) {
                let disk = entry_or_default(&mut sums.by_disk, name);
                match (flush, data) {
                    (true, _) => disk.flushes += share,
                    (_, true) => disk.requests += share,
                    _ => disk.discards += share,
                }
                disk.bytes += bytes;
            }
            if !counted(span) {
            } else if flush {
                own.flushes += alone;
                sums.flushes += share;
                sums.touched.flushes += 1.0;
            } else if !data {
                own.discards += alone;
                sums.discards += share;
            } else {
                own.requests += alone;
                own.device_bytes += span.bytes as f64 * alone;
                sums.requests += share;
                sums.touched.requests += 1.0;
                sums.merges += f64::from(charges.carried[number].saturating_sub(1)) * share;
                sums.device_bytes += bytes;
                *sums.request_sizes.entry(size_class(span.bytes)).or_default() += share;
                if IoAction::on_disk(span) == IoAction::Write {
                    sums.bytes_written.device += bytes;
                }
            }
        });
        self.each(&charges.bios, |sums, own, _, span, OperationShare { share, own: alone, .. }| {
            if let Some(name) = span.disk.and_then(|d| names.get(&d)) {
                entry_or_default(&mut sums.by_disk, name).bios += share;
            }
            if counted(span) {
                own.bios += alone;
                sums.bios += share;
                sums.touched.bios += 1.0;
                if matches!(IoAction::on_disk(span), IoAction::Read | IoAction::Write) {
                    sums.block_bytes += span.bytes as f64 * share;
                }
                if IoAction::on_disk(span) == IoAction::Write {
                    sums.bytes_written.block += span.bytes as f64 * share;
                }
            }
        });
    }

    /// Passes each share of a finished operation to `add`, with the item's number and span.
    fn each(
        &mut self,
        shared: &SharedItems,
        mut add: impl FnMut(&mut PerOperation, &mut OwnCounts, usize, &Span, OperationShare),
    ) {
        let mut spans = self.index.rows.spans.in_order();
        for (number, (at, parts)) in shared.iter().enumerate() {
            let mut parts = parts.iter().filter(|part| part.share > 0.0).peekable();
            if parts.peek().is_none() {
                continue;
            }
            let span = spans.at(at);
            for &part in parts {
                if let Some(shape) = self.of[part.operation as usize] {
                    let tally = &mut self.shapes[shape];
                    add(&mut tally.sums, &mut tally.summary.own, number, &span, part);
                }
            }
        }
    }

    fn finish(self) -> Vec<OperationSummary> {
        let index = self.index;
        let seen = self.shapes.into_iter().filter(|t| t.summary.count + t.summary.unfinished > 0);
        seen.map(|tally| tally.finish(index)).collect()
    }
}

impl Tally {
    fn finish(mut self, index: &Index) -> OperationSummary {
        let mut summary = self.summary;
        summary.waits = self.waits.finish(index);
        summary.latency_ns = times(&mut self.latency);
        summary.distribution = distribution(&self.latency);
        summary.inside_ns = times(&mut self.inside);
        for (layer, time) in &mut summary.layers {
            let mut each = self.layers.remove(layer).unwrap_or_default();
            each.resize(self.latency.len(), 0);
            let all = times(&mut each);
            *time = LayerTime {
                share: time.exclusive_ns as f64 / summary.latency_ns.sum.max(1) as f64,
                p50_ns: all.p50,
                p95_ns: all.p95,
                ..std::mem::take(time)
            };
        }
        tracer::judge_tracer_part(&mut summary);
        let explained = summary.layers.values().fold(0_u64, |sum, l| sum.saturating_add(l.exclusive_ns));
        summary.unexplained_ns = summary.latency_ns.sum.saturating_sub(explained);
        (summary.phases, summary.gaps, summary.database_to_next_ns) = self.phases.finish();
        for (class, files) in self.written {
            self.sums.filesystem_writes.entry(class).or_default().inodes = files.len() as u64;
        }
        for (class, files) in self.read {
            self.sums.filesystem_reads.entry(class).or_default().inodes = files.len() as u64;
        }
        summary.per_operation = to_means(self.sums, summary.count);
        let n = summary.count.max(1) as f64;
        let OwnCounts {
            latency_ns,
            syscalls,
            fsyncs,
            journal_commits,
            bios,
            requests,
            discards,
            flushes,
            device_bytes,
        } = &mut summary.own;
        [latency_ns, syscalls, fsyncs, journal_commits, bios, requests, discards, flushes, device_bytes]
            .into_iter()
            .for_each(|x| *x /= n);
        summary
    }
}

/// Turns sums over `count` executions into means.
fn to_means(mut sums: PerOperation, count: u64) -> PerOperation {
    let n = count.max(1) as f64;
    // Named in full, so that a new count cannot be forgotten here.
    let PerOperation {
        syscalls,
        fsyncs,
        calls,
        filesystem_writes,
        filesystem_reads,
        journal_commits,
        bios,
        block_bytes,
        requests,
        discards,
        merges,
        flushes,
        device_bytes,
        request_sizes,
        touched,
        bytes_written,
        write_amplification: _,
        by_disk,
    } = &mut sums;
    let plain =
        [syscalls, fsyncs, journal_commits, bios, block_bytes, requests, discards, merges, flushes, device_bytes];
    plain.into_iter().chain(calls.values_mut()).chain(request_sizes.values_mut()).for_each(|x| *x /= n);
    for Writes { count, bytes, parts, sizes, inodes: _ } in filesystem_writes.values_mut() {
        [count, bytes].into_iter().chain(parts.values_mut()).chain(sizes.values_mut()).for_each(|x| *x /= n);
    }
    for Reads { count, bytes, cache_hits, pages_added, inodes: _ } in filesystem_reads.values_mut() {
        [count, bytes, cache_hits, pages_added].into_iter().for_each(|x| *x /= n);
    }
    for DiskUse { bios, requests, discards, flushes, bytes } in by_disk.values_mut() {
        [bios, requests, discards, flushes, bytes].into_iter().for_each(|x| *x /= n);
    }
    let TouchedCounts { journal_commits, bios, requests, flushes } = touched;
    let BytesWritten { syscall, block, device } = bytes_written;
    [journal_commits, bios, requests, flushes, syscall, block, device].into_iter().for_each(|x| *x /= n);
    sums.write_amplification =
        (sums.bytes_written.syscall > 0.0).then(|| sums.bytes_written.device / sums.bytes_written.syscall);
    sums
}

/// Returns the entry of a map, without allocating a new key if it exists.
fn entry_or_default<'m, T: Default>(map: &'m mut BTreeMap<String, T>, key: &str) -> &'m mut T {
    if !map.contains_key(key) {
        map.insert(key.into(), T::default());
    }
    map.get_mut(key).expect("was just put there")
}

/// Returns the page size of the database that each file is, or belongs to.
fn page_sizes(index: &Index) -> Vec<Option<u32>> {
    let rows = index.rows;
    let base = |at: usize| rows.files[at].path.as_deref().map(database_of);
    let mut grids: HashMap<&str, PageGrid> = HashMap::new();
    let spans = &rows.spans;
    for span in (0..spans.len()).filter(|&at| spans.layer(at) == Layer::Syscall) {
        let Some(offset) = spans.offset(span) else { continue };
        let Some(at) = spans.file(span).and_then(|id| index.file(id)) else { continue };
        if index.classes[at] == FileClass::Database
            && let Some(path) = base(at)
        {
            grids.entry(path).or_default().add(offset, spans.bytes(span));
        }
    }
    (0..rows.files.len()).map(|at| grids.get(base(at)?)?.page_size()).collect()
}

/// Returns for each operation when its thread began the next operation of the same kind after its end.
fn next_on_thread(index: &Index) -> Vec<Option<u64>> {
    let rows = index.rows;
    let kind = |at: usize| index.shape(at).map(|s| rows.shapes[s].kind.as_ref());
    let mut order: Vec<usize> = (0..rows.operations.len()).collect();
    let key = |at: usize| (rows.operations.tgid(at), rows.operations.tid(at), kind(at), rows.operations.start_ns(at));
    order.sort_by_cached_key(|&at| key(at));
    let mut next = vec![None; rows.operations.len()];
    for pair in order.windows(2) {
        let (a, b) = (&rows.operations.at(pair[0]), &rows.operations.at(pair[1]));
        let same = (a.tgid, a.tid, kind(pair[0])) == (b.tgid, b.tid, kind(pair[1]));
        next[pair[0]] = a.end_ns.filter(|&end| same && b.start_ns >= end).map(|_| b.start_ns);
    }
    next
}

fn count_links(rows: &Rows) -> (ByConfidence<u64>, BTreeMap<String, u64>) {
    let mut links = ByConfidence::default();
    let mut relations: BTreeMap<Relation, u64> = BTreeMap::new();
    for link in &rows.links {
        *links.get_mut(link.confidence) += 1;
        *relations.entry(link.relation).or_default() += 1;
    }
    (links, relations.into_iter().map(|(relation, n)| (relation.name().into(), n)).collect())
}

fn summarise_loss(rows: &Rows) -> Loss {
    let mut weakened: HashMap<u64, u64> = HashMap::new();
    for id in rows.links.iter().filter_map(|l| l.weakened_by) {
        *weakened.entry(id).or_default() += 1;
    }
    Loss {
        events: rows.losses.iter().filter_map(|l| l.events).fold(0, u64::saturating_add),
        events_at_unknown_time: crate::completeness::lost_at_unknown_time(rows),
        at_least: rows.losses.iter().any(|l| l.at_least || l.events.is_none()),
        weakened_links: weakened.values().sum(),
        intervals: rows
            .losses
            .iter()
            .map(|l| LossInterval {
                source: l.source.name().into(),
                cpu: l.cpu,
                start_ns: l.start_ns,
                end_ns: l.end_ns,
                events: l.events,
                at_least: l.at_least,
                program: l.program.clone(),
                weakened_links: weakened.get(&l.id).copied().unwrap_or(0),
            })
            .collect(),
        unattributed_commands: 0.0,
    }
}

fn disk_infos(index: &Index) -> Vec<DiskInfo> {
    let info = |d: &model::table::Disk| DiskInfo {
        name: d.name.clone(),
        dev: model::Dev(d.dev).to_string(),
        role: index.role(d.dev),
        below: d.below.clone(),
    };
    index.rows.disks.iter().map(info).collect()
}

fn probe_rows(rows: &Rows) -> Vec<Probe> {
    let fact =
        rows.facts.iter().find(|f| f.name == "tracer.counted").and_then(|f| f.value.as_ref()?.parse::<f64>().ok());
    let counted_s = fact.filter(|ns| *ns > 0.0).map(|ns| ns / 1e9);
    let probe = |c: &model::table::Coverage| Probe {
        layer: c.layer,
        probe: c.probe.clone(),
        attached: c.attached,
        how: c.how.clone(),
        absence: c.absence,
        hits: c.hits,
        runs_per_s: c.hits.zip(counted_s).map(|(hits, s)| hits as f64 / s),
        misses: c.misses,
        price_ns: c.price_ns,
    };
    rows.coverage.iter().map(probe).collect()
}

#[cfg(test)]
mod tests;
