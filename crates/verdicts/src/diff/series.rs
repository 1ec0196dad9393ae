//! One recording's side of a comparison: for every common statement, the times and counts of its aligned executions, summed over
//! stretches of executions ([`stats::stretches`]), from which differences get their intervals.
//!
//! Only the sums of twenty stretches are kept, and the latencies for their medians, so that a million executions fit into memory.

use super::phase::{FileRole, Phase, Phases};
use analysis::charges::Charges;
use analysis::entries::Entries;
use analysis::rows::{Index, IoAction};
use analysis::tracer::{self, Prices, Times};
use model::table::{Slice, Span};
use model::{Layer, Reason, Relation, SpanFlag};
use stats::stretches::{STRETCH_COUNT, stretch_index};
use std::collections::{BTreeMap, HashMap};

/// A sum for each stretch.
pub type Sums = Vec<f64>;

/// Where time went: phase, layer, and activity or wait. Time that no slice covers has no layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The activity of the operation.
    pub phase: Phase,
    /// The layer, and what the thread did or waited for there.
    pub layer: Option<(Layer, Reason)>,
}

/// The unit of a count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountUnit {
    #[default]
    Number,
    Bytes,
}

/// Something counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CountKey {
    pub layer: Layer,
    /// What is counted.
    pub name: &'static str,
    pub unit: CountUnit,
    /// The kind of file, where it is distinguished.
    pub file: Option<FileRole>,
}

impl CountKey {
    fn number(layer: Layer, name: &'static str) -> Self {
        Self { layer, name, unit: CountUnit::Number, file: None }
    }

    fn bytes(layer: Layer, name: &'static str) -> Self {
        Self { unit: CountUnit::Bytes, ..Self::number(layer, name) }
    }

    fn of_file(self, file: FileRole) -> Self {
        Self { file: Some(file), ..self }
    }
}

/// Measures of a phase's work: if these counts are equal in both recordings, the work was the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// System calls.
    Calls,
    /// Bytes read or written by these calls.
    Bytes,
    /// Bios that the thread queued meanwhile; excluding those of metadata, which a file system writes more often the longer a
    /// program takes (an inode's times change with each tick of the clock).
    Bios,
    /// Flushes that it waited for.
    Flushes,
    /// Rows and steps of the statement.
    Rows,
}

/// The sums of some executions.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub executions: Sums,
    pub latency_ns: Sums,
    /// Where the latency went. Without the tracer's part, which is a phase of its own; all of it adds up to the latency.
    pub times: BTreeMap<Place, Sums>,
    /// Counts of the executions.
    pub counts: BTreeMap<CountKey, Sums>,
    pub work: BTreeMap<(Phase, Work), Sums>,
}

impl Default for Part {
    fn default() -> Self {
        let zero = || vec![0.0; STRETCH_COUNT];
        Self {
            executions: zero(),
            latency_ns: zero(),
            times: BTreeMap::new(),
            counts: BTreeMap::new(),
            work: BTreeMap::new(),
        }
    }
}

pub fn add_to_stretch<K: Ord>(sums: &mut BTreeMap<K, Sums>, key: K, stretch: usize, value: f64) {
    sums.entry(key).or_insert_with(|| vec![0.0; STRETCH_COUNT])[stretch] += value;
}

/// Sums of one statement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Statement {
    /// Latencies of the aligned executions, in order.
    pub latencies: Vec<u64>,
    pub sums: Part,
}

/// Sums of one recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Statements, in the order of [`super::align::Alignment::shapes`].
    pub statements: Vec<Statement>,
    /// All executions that are not nested in another compared one.
    pub whole: Part,
}

/// The sums to which an execution belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    pub statement: u32,
    pub stretch: u32,
    /// Whether it is not nested in another one that counts.
    pub outermost: bool,
}

/// The slot of each operation, by position; `None` if it has no counterpart.
pub type Slots = Vec<Option<Slot>>;

/// Returns the slots of the executions of both sides of the aligned pairs. A pair is outermost if it is in both.
pub fn assign_slots(indices: [&Index; 2], alignment: &super::align::Alignment) -> [Slots; 2] {
    let mut slots = indices.map(|index| vec![None; index.rows.operations.len()]);
    for (statement, shape) in alignment.shapes.iter().enumerate() {
        for (place, pair) in shape.pairs.iter().enumerate() {
            let stretch = stretch_index(place, shape.pairs.len(), STRETCH_COUNT) as u32;
            for (side, &at) in pair.iter().enumerate() {
                slots[side][at as usize] = Some(Slot { statement: statement as u32, stretch, outermost: true });
            }
        }
    }
    let inside = |side: usize, at: u32| {
        indices[side].chain(at as usize).any(|outer| outer != at as usize && slots[side][outer].is_some())
    };
    let inner: Vec<[u32; 2]> = alignment
        .shapes
        .iter()
        .flat_map(|shape| &shape.pairs)
        .filter(|pair| inside(0, pair[0]) || inside(1, pair[1]))
        .copied()
        .collect();
    for pair in inner {
        for (side, &at) in pair.iter().enumerate() {
            if let Some(slot) = &mut slots[side][at as usize] {
                slot.outermost = false;
            }
        }
    }
    slots
}

/// Sums up a recording, whose slices are passed by `slices` one after the other.
pub fn sum_recording<E>(
    index: &Index,
    statements: usize,
    slots: &Slots,
    slices: impl FnOnce(&mut dyn FnMut(&Slice)) -> Result<(), E>,
) -> Result<Series, E> {
    let phases = Phases::new(index);
    let mut sums = SeriesBuilder {
        index,
        slots,
        series: Series { statements: vec![Statement::default(); statements], ..Series::default() },
    };
    sums.executions();
    let mut running = Times::default();
    slices(&mut |slice| {
        let Some(at) = index.operation(slice.operation) else { return };
        if slots[at].is_none() {
            return;
        }
        let ns = slice.end_ns.saturating_sub(slice.start_ns);
        if slice.reason == Reason::Cpu && matches!(slice.layer, Layer::App | Layer::Database | Layer::Syscall) {
            running.add(at, slice.layer, ns);
        }
        let phase = phases.phase_at(&index.rows.operations.at(at), slice.start_ns);
        let place = Place { phase, layer: Some((slice.layer, slice.reason)) };
        sums.each(at, |part, stretch| add_to_stretch(&mut part.times, place, stretch, ns as f64));
    })?;
    sums.tracer(&running);
    sums.calls(&phases);
    sums.bios_and_flushes(&phases);
    sums.charges();
    Ok(sums.finish())
}

struct SeriesBuilder<'a> {
    index: &'a Index<'a>,
    slots: &'a Slots,
    series: Series,
}

impl SeriesBuilder<'_> {
    /// Passes the sums to which an execution belongs to `to`, with its stretch.
    fn each(&mut self, at: usize, mut to: impl FnMut(&mut Part, usize)) {
        if let Some(slot) = self.slots[at] {
            to(&mut self.series.statements[slot.statement as usize].sums, slot.stretch as usize);
            if slot.outermost {
                to(&mut self.series.whole, slot.stretch as usize);
            }
        }
    }

    /// The same for an event in an operation: it is also an event of the operations around it.
    fn each_around(&mut self, operation: usize, mut to: impl FnMut(&mut Part, usize)) {
        let index = self.index;
        for at in index.chain(operation) {
            self.each(at, &mut to);
        }
    }

    fn executions(&mut self) {
        let index = self.index;
        let mut order: Vec<usize> = (0..index.rows.operations.len()).filter(|&at| self.slots[at].is_some()).collect();
        order.sort_by_key(|&at| (index.rows.operations.nth(at), index.rows.operations.start_ns(at), at));
        for at in order {
            let operation = &index.rows.operations.at(at);
            let latency = operation.end_ns.unwrap_or(0).saturating_sub(operation.start_ns);
            if let Some(slot) = self.slots[at] {
                self.series.statements[slot.statement as usize].latencies.push(latency);
            }
            let rows = (operation.rows.saturating_add(operation.steps.unwrap_or(0))) as f64;
            self.each(at, |part, stretch| {
                part.executions[stretch] += 1.0;
                part.latency_ns[stretch] += latency as f64;
                add_to_stretch(&mut part.work, (Phase::Outside, Work::Rows), stretch, rows);
            });
        }
    }

    /// Deducts the recording's own cost from the time in which the layers were running: from every phase proportionally, since
    /// the cost of a probe is known, but not exactly where it occurred.
    fn tracer(&mut self, running: &Times) {
        let Some(prices) = Prices::from_rows(self.index.rows) else { return };
        let mut taken: HashMap<(Option<u32>, u32, Layer), f64> = HashMap::new();
        for (at, layers) in tracer::tracer_part_by_layer(self.index, prices, running).into_iter().enumerate() {
            let Some(slot) = self.slots[at] else { continue };
            for (layer, ns) in layers.into_iter().filter(|(_, ns)| *ns > 0) {
                *taken.entry((Some(slot.statement), slot.stretch, layer)).or_default() += ns as f64;
                if slot.outermost {
                    *taken.entry((None, slot.stretch, layer)).or_default() += ns as f64;
                }
            }
        }
        let mut taken: Vec<_> = taken.into_iter().collect();
        // Sums of fractions depend on their order, and the same archive must give the same figures.
        taken.sort_by_key(|(key, _)| *key);
        for ((statement, stretch, layer), ns) in taken {
            let part = match statement {
                Some(statement) => &mut self.series.statements[statement as usize].sums,
                None => &mut self.series.whole,
            };
            let stretch = stretch as usize;
            let running = |place: &Place| place.layer == Some((layer, Reason::Cpu));
            let all: f64 = part.times.iter().filter(|(place, _)| running(place)).map(|(_, sums)| sums[stretch]).sum();
            let ns = ns.min(all);
            if ns <= 0.0 {
                continue;
            }
            for (_, sums) in part.times.iter_mut().filter(|(place, _)| running(place)) {
                sums[stretch] -= ns * sums[stretch] / all;
            }
            let own = Place { phase: Phase::Tracer, layer: Some((Layer::Tracer, Reason::Cpu)) };
            add_to_stretch(&mut part.times, own, stretch, ns);
        }
    }

    fn calls(&mut self, phases: &Phases) {
        let index = self.index;
        let entries = Entries::new(index);
        for (i, span) in index.rows.spans.iter().enumerate() {
            let Some(operation) = span.operation.and_then(|id| index.operation(id)) else { continue };
            let does = entries.effect_of(index, i, &span);
            let file = phases.kind(span.file);
            if let (Layer::Syscall, phase @ Phase::In(call, kind)) = (span.layer, phases.of_call(i)) {
                let counted = CountKey::number(Layer::Syscall, call.name()).of_file(kind);
                // The return value of an open or a removal is not a number of bytes.
                let bytes = if call.reads() || call.writes() || call.copies() { does.bytes } else { 0 };
                self.each_around(operation, |part, stretch| {
                    add_to_stretch(&mut part.counts, counted, stretch, 1.0);
                    add_to_stretch(&mut part.work, (phase, Work::Calls), stretch, 1.0);
                    add_to_stretch(&mut part.work, (phase, Work::Bytes), stretch, bytes as f64);
                });
            }
            let added = span.cache_added.filter(|n| *n > 0 && (does.read.is_some() || does.enters));
            if let Some(pages) = added {
                let missed = CountKey::number(Layer::FileSystem, "page-cache misses").of_file(file);
                self.each_around(operation, |part, stretch| {
                    add_to_stretch(&mut part.counts, missed, stretch, pages as f64)
                });
            }
            let (count, bytes) = match (does.wrote.is_some(), does.read.is_some()) {
                (true, _) => ("writes", "bytes written"),
                (_, true) => ("reads", "bytes read"),
                _ => continue,
            };
            let count = CountKey::number(Layer::FileSystem, count).of_file(file);
            let bytes = CountKey::bytes(Layer::FileSystem, bytes).of_file(file);
            self.each_around(operation, |part, stretch| {
                add_to_stretch(&mut part.counts, count, stretch, 1.0);
                add_to_stretch(&mut part.counts, bytes, stretch, does.bytes as f64);
            });
        }
    }

    /// Adds the work that the phases caused below them.
    fn bios_and_flushes(&mut self, phases: &Phases) {
        let index = self.index;
        let rows = index.rows;
        let metadata = |span: &Span| span.has(SpanFlag::Meta);
        for span in rows.spans.iter().filter(|s| s.layer == Layer::Block && !metadata(s)) {
            let Some(operation) = span.operation.and_then(|id| index.operation(id)) else { continue };
            let phase = phases.of_thread((span.tgid, span.tid), span.start_ns);
            self.each_around(operation, |part, stretch| {
                add_to_stretch(&mut part.work, (phase, Work::Bios), stretch, 1.0)
            });
        }
        for link in rows.links.iter().filter(|l| l.relation == Relation::WaitsForFlush) {
            let Some(waiter) = index.span(link.parent).map(|at| rows.spans.at(at)) else { continue };
            // Both the call and its bio wait for a flush: count it where the thread waits.
            if matches!(waiter.layer, Layer::Syscall | Layer::FileSystem)
                && let Some(operation) = waiter.operation.and_then(|id| index.operation(id))
            {
                let phase = phases.of_thread((waiter.tgid, waiter.tid), waiter.start_ns);
                self.each_around(operation, |part, stretch| {
                    add_to_stretch(&mut part.work, (phase, Work::Flushes), stretch, 1.0)
                });
            }
        }
    }

    /// Adds the shares of bios, device commands and commits.
    fn charges(&mut self) {
        let index = self.index;
        let spans = &index.rows.spans;
        let charges = Charges::new(index);
        let mut carried_out: HashMap<u64, f64> = HashMap::new();
        for command in index.rows.driver_commands.iter().filter_map(|c| c.command) {
            *carried_out.entry(command).or_default() += 1.0;
        }
        let counted = |at: usize| spans.disk(at).is_some_and(|disk| index.counted_disks.contains(&disk));
        let number = |name, amount: f64| (CountKey::number(Layer::Driver, name), amount);
        let bytes = |name, span: &Span| (CountKey::bytes(Layer::Driver, name), span.bytes as f64);
        for (_, parts) in charges.commits.iter() {
            self.shares(parts, &[(CountKey::number(Layer::FileSystem, "journal commits"), 1.0)]);
        }
        for (at, parts) in charges.bios.iter().filter(|(at, _)| counted(*at)) {
            let data = matches!(IoAction::on_disk(&spans.at(at)), IoAction::Read | IoAction::Write);
            let moved = if data { spans.bytes(at) as f64 } else { 0.0 };
            let count = CountKey::number(Layer::Block, "bios");
            self.shares(parts, &[(count, 1.0), (CountKey::bytes(Layer::Block, "bytes of bios"), moved)]);
        }
        for (at, parts) in charges.commands.iter().filter(|(at, _)| counted(*at)) {
            let span = &spans.at(at);
            let sent = number("driver's own commands", carried_out.get(&span.id).copied().unwrap_or(0.0));
            let what: &[(CountKey, f64)] = match IoAction::on_disk(span) {
                IoAction::Flush => &[number("flushes", 1.0), sent],
                IoAction::Read => &[number("requests", 1.0), bytes("bytes read", span), sent],
                IoAction::Write => &[number("requests", 1.0), bytes("bytes written", span), sent],
                IoAction::Discard | IoAction::Other => &[number("discards", 1.0), sent],
            };
            self.shares(parts, what);
        }
    }

    fn shares(&mut self, parts: &[analysis::charges::OperationShare], what: &[(CountKey, f64)]) {
        // The parts already include the operations around the innermost one.
        for part in parts.iter().filter(|part| part.share > 0.0) {
            self.each(part.operation as usize, |to, stretch| {
                for &(key, amount) in what.iter().filter(|(_, amount)| *amount > 0.0) {
                    add_to_stretch(&mut to.counts, key, stretch, amount * part.share);
                }
            });
        }
    }

    /// Assigns time that no slice covers to no layer, so that the sum is the latency.
    fn finish(mut self) -> Series {
        let parts = self.series.statements.iter_mut().map(|s| &mut s.sums).chain([&mut self.series.whole]);
        for part in parts {
            for stretch in 0..STRETCH_COUNT {
                let placed: f64 = part.times.values().map(|sums| sums[stretch]).sum();
                let rest = part.latency_ns[stretch] - placed;
                // Less than a nanosecond is a rounding error.
                if rest.abs() >= 1.0 {
                    add_to_stretch(&mut part.times, Place { phase: Phase::Outside, layer: None }, stretch, rest);
                }
                // Sums of f64: they are exact up to 104 days, and a damaged archive may claim any time.
                debug_assert!({
                    let whole = part.latency_ns[stretch];
                    let sum: f64 = part.times.values().map(|sums| sums[stretch]).sum();
                    let size: f64 = part.times.values().map(|sums| sums[stretch].abs()).sum();
                    (sum - whole).abs() <= 1.0 + 1e-9 * (size + whole)
                });
            }
        }
        self.series
    }
}
