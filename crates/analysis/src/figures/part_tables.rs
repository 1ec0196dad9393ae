//! Spans of a timeline with everything that refers to them, as columns: of a whole recording, or of a part of it.

use super::{Disks, Strings, columns};
use crate::by_key::RowsByKey;
use crate::rows::{Index, IoAction};
use model::table::{Slice, Span};
use model::{Confidence, Layer, Relation};
use serde::Serialize;
use std::collections::HashMap;

columns! {
    /// Spans.
    SpanColumns {
        /// Identity within the archive.
        id: u64,
        /// Position in `layers`.
        layer: u32,
        /// Position among the layer's lanes.
        lane: u32,
        /// Kind.
        kind: u32,
        /// Start, ns from the origin.
        start: u64,
        /// End; `None` if it was not seen.
        end: Option<u64>,
        /// Operation on whose thread it was made.
        operation: Option<u32>,
        /// Process.
        tgid: u32,
        /// Thread.
        tid: u32,
        /// Position in `files`; for a request or command, the common file of all bios that it carries, if there is one.
        file: Option<u32>,
        /// First byte in the file.
        offset: Option<u64>,
        /// Position in `disks`.
        disk: Option<u32>,
        /// First sector.
        sector: Option<u64>,
        /// Bytes.
        bytes: u64,
        /// Result.
        result: Option<i64>,
        /// Transaction, bios or waiters.
        number: Option<u64>,
        /// Text of the box.
        label: u32,
        /// Flags.
        flags: u32,
    }
}
columns! {
    /// Links between spans that are both shown.
    LinkColumns {
        /// Position in `spans`.
        parent: u32,
        /// Position in `spans`.
        child: u32,
        /// Relation.
        relation: u32,
        /// Confidence.
        confidence: u32,
        /// Whether a loss lowered its confidence.
        weakened: bool,
    }
}
columns! {
    /// Slices, by operation and time.
    SliceColumns {
        /// Position in `operations`.
        operation: u32,
        /// Layer's name.
        layer: u32,
        /// Reason.
        reason: u32,
        /// Start.
        start: u64,
        /// End.
        end: u64,
        /// Position in `spans`.
        span: Option<u32>,
        /// Confidence that the time belongs there.
        confidence: u32,
    }
}
columns! {
    /// Causes of the commands that are shown.
    CauseColumns {
        /// Position in `spans`.
        command: u32,
        /// Origin.
        origin: u32,
        /// Position in `operations`.
        operation: Option<u32>,
        /// Process.
        tgid: Option<u32>,
        /// Its name.
        process: Option<u32>,
        /// Share.
        share: f64,
        /// Confidence.
        confidence: u32,
        /// How the cause was found.
        via: u32,
    }
}

columns! {
    /// Positions of rows within the whole recording.
    Positions {
        /// Position of one row.
        at: u32,
    }
}

/// The related tables of a timeline or a part.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PartTables {
    /// Spans by start time.
    pub spans: SpanColumns,
    /// Links between them.
    pub links: LinkColumns,
    /// Slices of the operations.
    pub slices: SliceColumns,
    /// Causes of the commands.
    pub causes: CauseColumns,
}

/// Positions of their rows in the recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PartRowPositions {
    /// Of spans, by start time.
    pub spans: Positions,
    pub links: Positions,
    pub causes: Positions,
}

/// State for converting rows to columns.
pub struct TableBuilder<'a> {
    index: &'a Index<'a>,
    /// Rows of spans in order of time.
    order: &'a [usize],
    places: &'a [(u32, u32)],
    origin_ns: u64,
    /// Position of each operation on the page, by its number.
    pub operation_at: HashMap<u64, u32>,
    /// Texts.
    pub strings: Strings,
    pub disks: Disks,
    carried: CarriedFiles,
    /// Positions of the drivers' commands.
    sent: HashMap<u64, u32>,
    links_of: RowsByKey,
    causes_of: RowsByKey,
    slices_of: RowsByKey,
    /// Position of each span's row in the current table.
    local: Vec<Option<u32>>,
}

impl<'a> TableBuilder<'a> {
    pub fn new(
        index: &'a Index<'a>,
        order: &'a [usize],
        places: &'a [(u32, u32)],
        origin_ns: u64,
        operation_at: HashMap<u64, u32>,
    ) -> Self {
        let rows = index.rows;
        let links = rows.links.iter().enumerate();
        let links = links.filter_map(|(at, link)| Some((index.span(link.parent)?, at as u32)));
        let causes = rows.causes.iter().enumerate();
        let causes = causes.filter_map(|(at, cause)| Some((index.span(cause.command)?, at as u32)));
        let slices = rows.slices.iter().enumerate();
        let slices = slices.filter_map(|(at, slice)| Some((index.operation(slice.operation)?, at as u32)));
        Self {
            index,
            order,
            places,
            origin_ns,
            operation_at,
            strings: Strings::default(),
            disks: Disks::default(),
            carried: CarriedFiles::new(index),
            sent: (0..).zip(&rows.driver_commands).filter_map(|(at, row)| Some((row.command?, at))).collect(),
            links_of: RowsByKey::new(rows.spans.len(), links),
            causes_of: RowsByKey::new(rows.spans.len(), causes),
            slices_of: RowsByKey::new(rows.operations.len(), slices),
            local: vec![None; rows.spans.len()],
        }
    }

    /// Builds the tables of these spans, as positions in order of time, and of these operations' slices, as positions in the rows.
    pub fn build_tables(&mut self, spans: &[u32], operations: &[usize]) -> (PartTables, PartRowPositions) {
        let (mut held, mut at) = (PartTables::default(), PartRowPositions::default());
        let rows: Vec<usize> = spans.iter().map(|&position| self.order[position as usize]).collect();
        rows.iter().enumerate().for_each(|(i, &row)| self.local[row] = Some(i as u32));
        for (&position, &row) in spans.iter().zip(&rows) {
            self.push_span(&mut held.spans, position as usize, row);
            at.spans.push(position);
        }
        self.push_links(&mut held.links, &mut at.links, &rows);
        self.push_causes(&mut held.causes, &mut at.causes, &rows);
        self.push_slices(&mut held.slices, operations);
        rows.iter().for_each(|&row| self.local[row] = None);
        (held, at)
    }

    fn local_position(&self, id: u64) -> Option<u32> {
        self.local[self.index.span(id)?]
    }

    fn push_span(&mut self, spans: &mut SpanColumns, position: usize, row: usize) {
        let index = self.index;
        let s = &index.rows.spans.at(row);
        let (layer, lane) = self.places[position];
        let (file, offset) = self.carried.file_and_offset(row).unwrap_or((s.file, s.offset));
        let file = file.and_then(|id| index.file(id)).map(|at| at as u32);
        let label = self
            .sent
            .get(&s.id)
            .map_or_else(|| span_label(index, s), |&at| index.rows.driver_commands.at(at as usize).label());
        spans.push(
            s.id,
            layer,
            lane,
            self.strings.intern(&s.kind),
            s.start_ns - self.origin_ns,
            s.end_ns.map(|e| e.saturating_sub(self.origin_ns)),
            s.operation.and_then(|id| self.operation_at.get(&id).copied()),
            s.tgid,
            s.tid,
            file,
            offset,
            s.disk.map(|d| self.disks.include_span(index, d, s)),
            s.sector,
            s.bytes,
            s.result,
            s.number,
            self.strings.intern(&label),
            self.strings.intern(&s.flags),
        );
    }

    fn push_links(&mut self, links: &mut LinkColumns, at: &mut Positions, rows: &[usize]) {
        let mut own: Vec<u32> = rows.iter().flat_map(|&row| self.links_of.rows_of(row)).copied().collect();
        own.sort_unstable();
        for number in own {
            let l = &self.index.rows.links.at(number as usize);
            if let (Some(parent), Some(child)) = (self.local_position(l.parent), self.local_position(l.child)) {
                let (relation, confidence) =
                    (self.strings.intern(l.relation.name()), self.strings.intern(l.confidence.name()));
                links.push(parent, child, relation, confidence, l.weakened_by.is_some());
                at.push(number);
            }
        }
    }

    fn push_causes(&mut self, causes: &mut CauseColumns, at: &mut Positions, rows: &[usize]) {
        let mut own: Vec<u32> = rows.iter().flat_map(|&row| self.causes_of.rows_of(row)).copied().collect();
        own.sort_unstable();
        for number in own {
            let c = &self.index.rows.causes.at(number as usize);
            let Some(command) = self.local_position(c.command) else { continue };
            let process = c.tgid.and_then(|t| self.index.process_name(t)).map(|name| self.strings.intern(name));
            let operation = c.operation.and_then(|id| self.operation_at.get(&id).copied());
            let (origin, confidence) = (self.strings.intern(c.origin.name()), self.strings.intern(c.confidence.name()));
            causes.push(command, origin, operation, c.tgid, process, c.share, confidence, self.strings.intern(&c.via));
            at.push(number);
        }
    }

    fn push_slices(&mut self, slices: &mut SliceColumns, operations: &[usize]) {
        let rows = self.index.rows;
        let mut own: Vec<(u32, u64, u32)> = Vec::new();
        for &operation in operations {
            let Some(&at) = self.operation_at.get(&rows.operations.id(operation)) else { continue };
            let of_operation = self.slices_of.rows_of(operation).iter();
            own.extend(of_operation.map(|&number| (at, rows.slices.start_ns(number as usize), number)));
        }
        own.sort_unstable();
        for (operation, _, number) in own {
            let s = &rows.slices.at(number as usize);
            let sure = self.strings.intern(self.confidence(s).name());
            let (layer, reason) = (self.strings.intern(s.layer.name()), self.strings.intern(s.why()));
            let [start, end] = [s.start_ns, s.end_ns].map(|ns| ns.saturating_sub(self.origin_ns));
            slices.push(operation, layer, reason, start, end, s.span.and_then(|id| self.local_position(id)), sure);
        }
    }

    /// Returns the linker's confidence in a slice (for older archives without it: that of concurrency), limited by that of the charge
    /// of the command that was waited for.
    fn confidence(&self, slice: &Slice) -> Confidence {
        let confidence = slice.confidence.unwrap_or(Confidence::Interval);
        let causes = &self.index.rows.causes;
        let of_command = slice.span.and_then(|id| self.index.span(id)).map_or(&[][..], |at| self.causes_of.rows_of(at));
        let own =
            of_command.iter().rev().map(|&at| at as usize).find(|&at| causes.operation(at) == Some(slice.operation));
        own.map_or(confidence, |at| confidence.min(causes.confidence(at)))
    }

    /// Returns the device commands that are charged to the operations of each shape.
    pub fn charged_to_shapes(&self) -> Vec<f64> {
        let rows = self.index.rows;
        let mut charged = vec![0.0; rows.shapes.len()];
        for cause in &rows.causes {
            let shape = cause.operation.and_then(|id| self.index.shape(self.index.operation(id)?));
            if let Some(sum) = shape.and_then(|shape| charged.get_mut(shape)) {
                *sum += cause.share;
            }
        }
        charged
    }
}

/// File and first byte of requests and commands: those of the bios they carry, if all are of one file.
struct CarriedFiles {
    /// The number of each span's entry, by position; [`NO_ENTRY`] if it has none.
    number: Vec<u32>,
    found: Vec<(Option<u64>, Option<u64>)>,
}

/// No entry.
const NO_ENTRY: u32 = u32::MAX;

impl CarriedFiles {
    fn new(index: &Index) -> Self {
        let (links, spans) = (&index.rows.links, &index.rows.spans);
        let mut carried = Self { number: vec![NO_ENTRY; spans.len()], found: Vec::new() };
        for upper in [Layer::Block, Layer::IoScheduler] {
            let carries = |at: &usize| matches!(links.relation(*at), Relation::Carries | Relation::Merges);
            for at in (0..links.len()).filter(carries) {
                let ends = (index.span(links.parent(at)), index.span(links.child(at)));
                let (Some(parent), Some(child)) = ends else { continue };
                if spans.layer(parent) != upper || spans.file(child).is_some() {
                    continue;
                }
                let (file, offset) =
                    carried.file_and_offset(parent).unwrap_or_else(|| (spans.file(parent), spans.offset(parent)));
                if carried.number[child] == NO_ENTRY {
                    carried.number[child] = carried.found.len() as u32;
                    carried.found.push((file, offset));
                }
                let same = &mut carried.found[carried.number[child] as usize];
                *same = match same.0 {
                    known if known != file => (None, None),
                    _ => (file, same.1.zip(offset).map(|(a, b)| a.min(b))),
                };
            }
        }
        carried
    }

    fn file_and_offset(&self, span: usize) -> Option<(Option<u64>, Option<u64>)> {
        self.found.get(self.number[span] as usize).copied()
    }
}

/// Returns the text of a span's box.
fn span_label(index: &Index, span: &Span) -> String {
    if matches!(span.layer, Layer::App | Layer::Database)
        && let Some(shape) =
            index.operation_of(span).filter(|&o| index.rows.operations.span(o) == span.id).and_then(|o| index.shape(o))
    {
        return index.rows.shapes[shape].text.clone();
    }
    match span.layer {
        Layer::Block | Layer::IoScheduler | Layer::Driver => match IoAction::on_disk(span) {
            IoAction::Flush => "flush".into(),
            IoAction::Other => format!("{} {}", span.kind, span.bytes),
            does => format!("{} {}", does.name(), span.bytes),
        },
        _ => match index.class_of(span) {
            Some(class) if span.bytes > 0 => format!("{} {} {}", span.kind, class.name(), span.bytes),
            Some(class) => format!("{} {}", span.kind, class.name()),
            None => span.kind.to_string(),
        },
    }
}
