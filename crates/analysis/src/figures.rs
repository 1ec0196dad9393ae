//! The report's figures as plain data: the layered timeline (papers 000, figures 13-15, and 004, figures 2-5), the
//! address-time scatter of device commands (000, figures 11 and 12), and the tables of counts.
//!
//! All that is computed is computed here; the page only draws. Long lists are columns, which are a third of the size of
//! a list of objects, times are relative to the first one shown, and what refers to a row refers by position.
//!
//! A page has a limit, a trace has none. A timeline that would be too large holds whole operations from the beginning,
//! with everything that happened until the last of them ended, and says what it left out.

use crate::contract::Summary;
use crate::files::FileClass;
use crate::rows::{Does, Index, Rows};
use model::table::Span;
use model::{Layer, Origin};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Version of the shapes below.
pub const VERSION: u32 = 1;

/// What a figure may hold at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Spans of a timeline.
    pub spans: usize,
    /// Points of a scatter.
    pub points: usize,
    /// Lanes of one thread or disk.
    pub lanes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { spans: 200_000, points: 200_000, lanes: 32 }
    }
}

/// Declares a table held as columns.
macro_rules! columns {
    ($(#[doc = $doc:literal])+ $Type:ident { $( $(#[doc = $cdoc:literal])+ $column:ident : $ty:ty ),* $(,)? }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Default, PartialEq, Serialize)]
        pub struct $Type { $( $(#[doc = $cdoc])+ pub $column: Vec<$ty>, )* }
        impl $Type {
            #[expect(clippy::too_many_arguments, reason = "a row has as many values as the table has columns")]
            fn push(&mut self, $( $column: $ty ),*) { $( self.$column.push($column); )* }
        }
    };
}

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
        /// Begin, ns from the origin.
        start: u64,
        /// End; `None` if it was not seen.
        end: Option<u64>,
        /// Operation on whose thread it was made.
        operation: Option<u32>,
        /// Process.
        tgid: u32,
        /// Thread.
        tid: u32,
        /// Position in `files`.
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
        /// What to write into the box.
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
        /// Whether a loss made it less sure.
        weakened: bool,
    }
}
columns! {
    /// Operations.
    OperationColumns {
        /// Identity within the archive.
        id: u64,
        /// Position in `shapes`.
        shape: Option<u32>,
        /// Ordinal within its shape.
        nth: u64,
        /// Position in `spans`.
        span: Option<u32>,
        /// Position of the operation around it.
        parent: Option<u32>,
        /// Begin.
        start: u64,
        /// End.
        end: Option<u64>,
        /// Rows.
        rows: u64,
        /// Result.
        result: Option<i64>,
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
        /// Begin.
        start: u64,
        /// End.
        end: u64,
        /// Position in `spans`.
        span: Option<u32>,
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
        /// How the chain went.
        via: u32,
    }
}
columns! {
    /// Device commands in the plane of time and address.
    PointColumns {
        /// Issue.
        t: u64,
        /// Until completion.
        latency: Option<u64>,
        /// First sector; `None` for a flush.
        sector: Option<u64>,
        /// Bytes.
        bytes: u64,
        /// `read`, `write`, `flush`, `discard`, `other`.
        kind: u32,
        /// Position in `disks`.
        disk: Option<u32>,
        /// Position in `shapes`.
        shape: Option<u32>,
        /// Origin of the largest share.
        origin: u32,
        /// That share.
        share: f64,
        /// The command's span, by its identity within the archive.
        command: u64,
    }
}

/// A layer and its lanes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerLanes {
    /// Name.
    pub name: &'static str,
    /// Lanes from top to bottom.
    pub lanes: Vec<Lane>,
}

/// A row of boxes that do not overlap, but for the last lane of a group that had too many at once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lane {
    /// The thread or the disk.
    pub name: String,
    /// Lanes of one thread or disk share a number.
    pub group: u32,
}

/// A statement, function or mark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShapeInfo {
    /// Text.
    pub text: String,
    /// `statement`, `function`, `mark`.
    pub kind: String,
    /// Executions shown.
    pub count: u64,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileInfo {
    /// Path, or what is known instead.
    pub path: String,
    /// Class.
    pub class: FileClass,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskAxis {
    /// Name.
    pub name: String,
    /// `holds the files`, `below`, `other`.
    pub role: &'static str,
    /// Lowest sector of a command shown.
    pub sectors_low: u64,
    /// Highest, its last.
    pub sectors_high: u64,
}

/// A loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LossMark {
    /// What lost records.
    pub source: &'static str,
    /// CPU.
    pub cpu: Option<u32>,
    /// Begin.
    pub start: u64,
    /// End.
    pub end: u64,
    /// How many.
    pub events: Option<u64>,
}

/// What a figure does not show.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LeftOut {
    /// Operations.
    pub operations: usize,
    /// Spans.
    pub spans: usize,
    /// Links.
    pub links: usize,
    /// Slices.
    pub slices: usize,
    /// Causes.
    pub causes: usize,
    /// From when on; `None` if nothing is left out.
    pub after_ns: Option<u64>,
    /// Why, in a sentence; empty if nothing is left out.
    pub why: String,
}

/// The layered timeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timeline {
    /// [`VERSION`].
    pub version: u32,
    /// CLOCK_BOOTTIME that all times are relative to, ns.
    pub origin_ns: u64,
    /// Last time shown.
    pub duration_ns: u64,
    /// Widths of the papers' windows.
    pub presets_ns: [u64; 2],
    /// Texts; no control characters, not escaped for HTML.
    pub strings: Vec<String>,
    /// Layers from top to bottom.
    pub layers: Vec<LayerLanes>,
    /// Spans by begin.
    pub spans: SpanColumns,
    /// Links.
    pub links: LinkColumns,
    /// Operations by begin.
    pub operations: OperationColumns,
    /// Shapes.
    pub shapes: Vec<ShapeInfo>,
    /// Slices.
    pub slices: SliceColumns,
    /// Causes.
    pub causes: CauseColumns,
    /// Files.
    pub files: Vec<FileInfo>,
    /// Disks.
    pub disks: Vec<DiskAxis>,
    /// Losses.
    pub losses: Vec<LossMark>,
    /// What is not shown.
    pub left_out: LeftOut,
}

/// The address-time scatter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scatter {
    /// [`VERSION`].
    pub version: u32,
    /// CLOCK_BOOTTIME that all times are relative to, ns.
    pub origin_ns: u64,
    /// Last time.
    pub duration_ns: u64,
    /// Texts.
    pub strings: Vec<String>,
    /// Shapes with the time they were at work.
    pub shapes: Vec<ScatterShape>,
    /// Disks.
    pub disks: Vec<DiskAxis>,
    /// Commands by time.
    pub points: PointColumns,
    /// What is not shown.
    pub left_out: LeftOut,
}

/// A shape in a scatter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScatterShape {
    /// Text.
    pub text: String,
    /// `statement`, `function`, `mark`.
    pub kind: String,
    /// Whether the text begins as a statement that only reads.
    pub read_only_looking: bool,
    /// First begin.
    pub start: Option<u64>,
    /// Last end.
    pub end: Option<u64>,
    /// Sum of its shares of the commands.
    pub commands: f64,
}

/// Texts, each once.
#[derive(Default)]
struct Strings {
    all: Vec<String>,
    position: HashMap<String, u32>,
}

impl Strings {
    fn of(&mut self, text: &str) -> u32 {
        if let Some(&at) = self.position.get(text) {
            return at;
        }
        let at = self.all.len() as u32;
        self.position.insert(text.into(), at);
        self.all.push(clean(text));
        at
    }
}

/// A text of the traced program's without what a page must not hold; the page escapes the rest.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') { '\u{fffd}' } else { c }).collect()
}

fn end_of(span: &Span) -> u64 {
    span.end_ns.unwrap_or(span.start_ns)
}

/// The timeline of a trace.
pub fn timeline(rows: &Rows, limits: &Limits) -> Timeline {
    let index = Index::new(rows);
    let mut order: Vec<usize> = (0..rows.spans.len()).collect();
    order.sort_by_key(|&at| (rows.spans[at].start_ns, rows.spans[at].layer, rows.spans[at].id));
    let origin_ns = order.first().map_or(0, |&at| rows.spans[at].start_ns);
    let mut operations: Vec<usize> = (0..rows.operations.len()).collect();
    operations.sort_by_key(|&at| (rows.operations[at].start_ns, rows.operations[at].id));
    let cut_ns = cut(rows, &order, &operations, limits.spans);
    let in_time = |start: u64| cut_ns.is_none_or(|cut| start <= cut);
    order.retain(|&at| in_time(rows.spans[at].start_ns));
    order.truncate(limits.spans);
    operations.retain(|&at| in_time(rows.operations[at].end_ns.unwrap_or(rows.operations[at].start_ns)));

    let span_at: HashMap<u64, u32> = order.iter().enumerate().map(|(i, &at)| (rows.spans[at].id, i as u32)).collect();
    let operation_at: HashMap<u64, u32> =
        operations.iter().enumerate().map(|(i, &at)| (rows.operations[at].id, i as u32)).collect();
    let mut strings = Strings::default();
    let mut disks = Disks::default();
    let (layers, places) = lanes(&index, &order, limits.lanes);
    let mut spans = SpanColumns::default();
    for (&at, (layer, lane)) in order.iter().zip(places) {
        let s = &rows.spans[at];
        let file = s.file.and_then(|id| index.file(id)).map(|at| at as u32);
        let label = label(&index, s);
        spans.push(
            s.id,
            layer,
            lane,
            strings.of(&s.kind),
            s.start_ns - origin_ns,
            s.end_ns.map(|e| e.saturating_sub(origin_ns)),
            s.operation.and_then(|id| operation_at.get(&id).copied()),
            s.tgid,
            s.tid,
            file,
            s.offset,
            s.disk.map(|d| disks.of(&index, d, s)),
            s.sector,
            s.bytes,
            s.result,
            s.number,
            strings.of(&label),
            strings.of(&s.flags),
        );
    }
    let mut links = LinkColumns::default();
    for l in &rows.links {
        if let (Some(&parent), Some(&child)) = (span_at.get(&l.parent), span_at.get(&l.child)) {
            let (relation, confidence) = (strings.of(l.relation.name()), strings.of(l.confidence.name()));
            links.push(parent, child, relation, confidence, l.weakened_by.is_some());
        }
    }
    let mut counts: HashMap<usize, u64> = HashMap::new();
    let mut columns = OperationColumns::default();
    for &at in &operations {
        let o = &rows.operations[at];
        let shape = index.shape(at);
        *counts.entry(shape.unwrap_or(usize::MAX)).or_default() += 1;
        columns.push(
            o.id,
            shape.map(|s| s as u32),
            o.nth,
            span_at.get(&o.span).copied(),
            o.parent.and_then(|id| operation_at.get(&id).copied()),
            o.start_ns.saturating_sub(origin_ns),
            o.end_ns.map(|e| e.saturating_sub(origin_ns)),
            o.rows,
            o.result,
        );
    }
    let mut slices = SliceColumns::default();
    let mut shown: Vec<_> =
        rows.slices.iter().filter_map(|s| Some((*operation_at.get(&s.operation)?, s.start_ns, s))).collect();
    shown.sort_by_key(|&(operation, start, _)| (operation, start));
    for (operation, _, s) in shown {
        let (layer, reason) = (strings.of(s.layer.name()), strings.of(s.reason.name()));
        let (start, end) = (s.start_ns.saturating_sub(origin_ns), s.end_ns.saturating_sub(origin_ns));
        slices.push(operation, layer, reason, start, end, s.span.and_then(|id| span_at.get(&id).copied()));
    }
    let mut causes = CauseColumns::default();
    for c in &rows.causes {
        let Some(&command) = span_at.get(&c.command) else { continue };
        let process = c.tgid.and_then(|t| index.process_name(t)).map(|name| strings.of(name));
        let operation = c.operation.and_then(|id| operation_at.get(&id).copied());
        let (origin, confidence) = (strings.of(c.origin.name()), strings.of(c.confidence.name()));
        causes.push(command, origin, operation, c.tgid, process, c.share, confidence, strings.of(&c.via));
    }
    let left_out = LeftOut {
        operations: rows.operations.len() - operations.len(),
        spans: rows.spans.len() - order.len(),
        links: rows.links.len() - links.parent.len(),
        slices: rows.slices.len() - slices.operation.len(),
        causes: rows.causes.len() - causes.command.len(),
        after_ns: cut_ns.map(|cut| cut - origin_ns),
        why: if cut_ns.is_some() {
            format!("The page holds at most {} spans: whole operations from the beginning.", limits.spans)
        } else {
            String::new()
        },
    };
    Timeline {
        version: VERSION,
        origin_ns,
        duration_ns: order.iter().map(|&at| end_of(&rows.spans[at])).max().unwrap_or(origin_ns).saturating_sub(origin_ns),
        presets_ns: [12_000_000, 80_000_000],
        layers,
        spans,
        links,
        operations: columns,
        shapes: rows
            .shapes
            .iter()
            .enumerate()
            .map(|(i, s)| ShapeInfo {
                text: clean(&s.text),
                kind: s.kind.to_string(),
                count: counts.get(&i).copied().unwrap_or(0),
            })
            .collect(),
        slices,
        causes,
        files: files(&index),
        disks: disks.all,
        losses: rows
            .losses
            .iter()
            .map(|l| LossMark {
                source: l.source.name(),
                cpu: l.cpu,
                start: l.start_ns.saturating_sub(origin_ns),
                end: l.end_ns.saturating_sub(origin_ns),
                events: l.events,
            })
            .collect(),
        strings: strings.all,
        left_out,
    }
}

/// The end of the last operation that fits, if not all do. `order` and `operations` are by begin.
fn cut(rows: &Rows, order: &[usize], operations: &[usize], limit: usize) -> Option<u64> {
    if order.len() <= limit {
        return None;
    }
    // Spans that begin at or after this time do not fit.
    let full_ns = rows.spans[order[limit]].start_ns;
    let ends = operations.iter().filter_map(|&at| rows.operations[at].end_ns);
    Some(ends.filter(|&end| end < full_ns).max().unwrap_or(full_ns.saturating_sub(1)))
}

/// What is written into a span's box.
fn label(index: &Index, span: &Span) -> String {
    if matches!(span.layer, Layer::App | Layer::Database)
        && let Some(shape) = index.operation_of(span).filter(|&o| index.rows.operations[o].span == span.id).and_then(|o| index.shape(o))
    {
        return index.rows.shapes[shape].text.clone();
    }
    match span.layer {
        Layer::Block | Layer::IoScheduler | Layer::Driver => match Does::on_disk(span) {
            Does::Flush => "flush".into(),
            Does::Other => format!("{} {}", span.kind, span.bytes),
            does => format!("{} {}", does.name(), span.bytes),
        },
        _ => match index.class_of(span) {
            Some(class) if span.bytes > 0 => format!("{} {} {}", span.kind, class.name(), span.bytes),
            Some(class) => format!("{} {}", span.kind, class.name()),
            None => span.kind.to_string(),
        },
    }
}

/// Disks in the order in which they are met.
#[derive(Default)]
struct Disks {
    all: Vec<DiskAxis>,
    position: HashMap<u32, u32>,
}

impl Disks {
    fn of(&mut self, index: &Index, dev: u32, span: &Span) -> u32 {
        let at = *self.position.entry(dev).or_insert_with(|| {
            let name = clean(&index.disk_name(dev));
            self.all.push(DiskAxis { name, role: index.role(dev), sectors_low: u64::MAX, sectors_high: 0 });
            self.all.len() as u32 - 1
        });
        if let Some(sector) = span.sector {
            let axis = &mut self.all[at as usize];
            axis.sectors_low = axis.sectors_low.min(sector);
            axis.sectors_high = axis.sectors_high.max(sector.saturating_add((span.bytes / 512).saturating_sub(1)));
        }
        at
    }
}

fn files(index: &Index) -> Vec<FileInfo> {
    let path = |f: &model::table::File| match &f.path {
        Some(path) => clean(path),
        None => format!("inode {} on {}", f.ino, model::Dev(f.dev)),
    };
    index.rows.files.iter().zip(&index.classes).map(|(f, &class)| FileInfo { path: path(f), class }).collect()
}

/// Puts spans, given by begin, into lanes: for each thread or disk the first lane that is free. Returns the layers and
/// (layer, lane) of each span.
fn lanes(index: &Index, order: &[usize], most: usize) -> (Vec<LayerLanes>, Vec<(u32, u32)>) {
    /// A thread, or a disk.
    type Group = (bool, u32, u32);
    let spans = &index.rows.spans;
    let group = |s: &Span| -> Group {
        match (s.layer, s.disk) {
            (Layer::Block | Layer::IoScheduler | Layer::Driver, disk) => (true, disk.unwrap_or(0), 0),
            _ => (false, s.tgid, s.tid),
        }
    };
    // For each layer and group, when each of its lanes is free again.
    let mut free: BTreeMap<Layer, BTreeMap<Group, Vec<u64>>> = BTreeMap::new();
    let mut within: Vec<(Layer, Group, usize)> = Vec::with_capacity(order.len());
    for &at in order {
        let span = &spans[at];
        let ends = free.entry(span.layer).or_default().entry(group(span)).or_default();
        let found = ends.iter().position(|&end| end <= span.start_ns);
        let lane = found.unwrap_or_else(|| {
            if ends.len() < most.max(1) {
                ends.push(0);
            }
            ends.len() - 1
        });
        ends[lane] = ends[lane].max(end_of(span));
        within.push((span.layer, group(span), lane));
    }
    let mut layers = Vec::new();
    let mut first: HashMap<(Layer, Group), (u32, u32)> = HashMap::new();
    for (layer, groups) in &free {
        let mut lanes = Vec::new();
        for (number, (&group, ends)) in groups.iter().enumerate() {
            first.insert((*layer, group), (layers.len() as u32, lanes.len() as u32));
            let name = match group {
                (true, disk, _) => index.disk_name(disk),
                (false, tgid, tid) => format!("{} {tid}", index.process_name(tgid).unwrap_or("thread")),
            };
            lanes.extend(ends.iter().map(|_| Lane { name: clean(&name), group: number as u32 }));
        }
        layers.push(LayerLanes { name: layer.name(), lanes });
    }
    let places = within
        .into_iter()
        .map(|(layer, group, lane)| {
            let (layer, start) = first[&(layer, group)];
            (layer, start + lane as u32)
        })
        .collect();
    (layers, places)
}

/// The scatter of a trace's device commands.
pub fn scatter(rows: &Rows, limits: &Limits) -> Scatter {
    let index = Index::new(rows);
    let mut shapes: Vec<ScatterShape> = rows
        .shapes
        .iter()
        .map(|s| ScatterShape {
            text: clean(&s.text),
            kind: s.kind.to_string(),
            read_only_looking: looks_read_only(&s.text),
            start: None,
            end: None,
            commands: 0.0,
        })
        .collect();
    let mut commands: Vec<&Span> = rows.spans.iter().filter(|s| s.layer == Layer::Driver).collect();
    commands.sort_by_key(|s| (s.start_ns, s.id));
    let begins = rows.operations.iter().map(|o| o.start_ns);
    let origin_ns = begins.chain(commands.iter().map(|s| s.start_ns)).min().unwrap_or(0);
    for (at, operation) in rows.operations.iter().enumerate() {
        let Some(shape) = index.shape(at).map(|s| &mut shapes[s]) else { continue };
        let (start, end) = (operation.start_ns - origin_ns, operation.end_ns.unwrap_or(operation.start_ns) - origin_ns);
        shape.start = Some(shape.start.map_or(start, |s| s.min(start)));
        shape.end = Some(shape.end.map_or(end, |e| e.max(end)));
    }
    // The shares of each command: of shapes, and of the other origins.
    let mut shares: HashMap<u64, BTreeMap<(Origin, Option<usize>), f64>> = HashMap::new();
    for cause in rows.causes.iter().filter(|c| c.share.is_finite()) {
        let shape = cause.operation.and_then(|id| index.operation(id)).and_then(|o| index.shape(o));
        *shares.entry(cause.command).or_default().entry((cause.origin, shape)).or_default() += cause.share;
        if let Some(shape) = shape {
            shapes[shape].commands += cause.share;
        }
    }
    let mut strings = Strings::default();
    let mut disks = Disks::default();
    let mut points = PointColumns::default();
    let left = commands.len().saturating_sub(limits.points);
    let after_ns = commands.get(limits.points).map(|s| s.start_ns - origin_ns);
    let mut end_ns = origin_ns;
    for s in commands.iter().take(limits.points) {
        let largest = shares.get(&s.id).and_then(|own| own.iter().max_by(|a, b| a.1.total_cmp(b.1)));
        let ((origin, shape), share) = largest.map_or(((Origin::Unattributed, None), 1.0), |(&who, &share)| (who, share));
        let does = Does::on_disk(s);
        end_ns = end_ns.max(end_of(s));
        points.push(
            s.start_ns - origin_ns,
            s.end_ns.map(|e| e.saturating_sub(s.start_ns)),
            s.sector.filter(|_| does != Does::Flush),
            s.bytes,
            strings.of(does.name()),
            s.disk.map(|d| disks.of(&index, d, s)),
            shape.map(|s| s as u32),
            strings.of(origin.name()),
            share,
            s.id,
        );
    }
    let ends = rows.operations.iter().filter_map(|o| o.end_ns);
    Scatter {
        version: VERSION,
        origin_ns,
        duration_ns: ends.chain([end_ns]).max().unwrap_or(origin_ns) - origin_ns,
        strings: strings.all,
        shapes,
        disks: disks.all,
        points,
        left_out: LeftOut {
            spans: left,
            after_ns,
            why: if left > 0 {
                format!("The page holds at most {} commands, from the beginning.", limits.points)
            } else {
                String::new()
            },
            ..LeftOut::default()
        },
    }
}

/// Whether a statement's text begins as one that only reads does.
pub fn looks_read_only(text: &str) -> bool {
    let first = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
    first.eq_ignore_ascii_case("select") || first.eq_ignore_ascii_case("values") || first.eq_ignore_ascii_case("explain")
}

/// The counts of paper 004 for each statement, as rows of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counts {
    /// Statements in the summary's order.
    pub statements: Vec<StatementCounts>,
}

/// The counts of one statement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatementCounts {
    /// Text.
    pub statement: String,
    /// Executions.
    pub count: u64,
    /// Counts from the application down.
    pub rows: Vec<CountRow>,
}

/// One count.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CountRow {
    /// Layer.
    pub layer: &'static str,
    /// What is counted.
    pub name: String,
    /// Class of file.
    pub class: Option<FileClass>,
    /// Mean per execution.
    pub count: f64,
    /// Mean bytes per execution.
    pub bytes: Option<f64>,
    /// What to know about it.
    pub note: String,
}

/// The tables of counts.
pub fn counts(summary: &Summary) -> Counts {
    let statements = summary.operations.iter().map(|operation| {
        let per = &operation.per_operation;
        let mut rows = Vec::new();
        let mut add = |layer: Layer, name: &str, class, count: f64, bytes, note: String| {
            if count > 0.0 {
                rows.push(CountRow { layer: layer.name(), name: name.into(), class, count, bytes, note });
            }
        };
        add(Layer::Syscall, "system calls", None, per.syscalls, None, String::new());
        add(Layer::Syscall, "fsync, fdatasync", None, per.fsyncs, None, String::new());
        for (class, writes) in &per.filesystem_writes {
            let note = format!("{} {}", writes.inodes, if writes.inodes == 1 { "inode" } else { "inodes" });
            add(Layer::FileSystem, "writes", Some(*class), writes.count, Some(writes.bytes), note);
        }
        for (class, reads) in &per.filesystem_reads {
            let note = if reads.count > 0.0 {
                format!("{:.0} % from the page cache", 100.0 * reads.cache_hits / reads.count)
            } else {
                String::new()
            };
            add(Layer::FileSystem, "reads", Some(*class), reads.count, Some(reads.bytes), note);
            add(Layer::FileSystem, "page-cache misses (pages)", Some(*class), reads.pages_added, None, String::new());
        }
        add(Layer::FileSystem, "journal commits", None, per.journal_commits, None, touched(per.touched.journal_commits));
        add(Layer::Block, "bios", None, per.bios, Some(per.bytes_written.block), touched(per.touched.bios));
        add(Layer::IoScheduler, "merges", None, per.merges, None, String::new());
        add(Layer::Driver, "requests", None, per.requests, Some(per.device_bytes), touched(per.touched.requests));
        add(Layer::Driver, "flushes", None, per.flushes, None, touched(per.touched.flushes));
        StatementCounts { statement: clean(&operation.statement), count: operation.count, rows }
    });
    Counts { statements: statements.collect() }
}

fn touched(count: f64) -> String {
    format!("has a part in {count:.2}")
}
