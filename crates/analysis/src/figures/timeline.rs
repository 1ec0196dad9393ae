//! The layered timeline: papers 000, figures 13-15, and 004, figures 2-5.

use super::lanes::{LayerLanes, lanes};
use super::levels::{Level, levels};
use super::{DiskAxis, Disks, LeftOut, Limits, Strings, VERSION, columns, detail, end_of};
use crate::rows::{Index, IoAction, Rows};
use crate::text::shown;
use model::table::{DriverCommand, Slice, Span};
use model::{Confidence, Layer, Relation};
use serde::Serialize;
use sqlite::FileClass;
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
        /// Position in `files`; of a request or command, the file of all bios that it carries, if they have one.
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
        /// Whether all that belongs to it is shown.
        whole: bool,
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
        /// How sure it is that the time belongs there.
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
        /// How the chain went.
        via: u32,
    }
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

/// A process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessName {
    /// Its number.
    pub tgid: u32,
    /// Its name.
    pub name: String,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileInfo {
    /// Path, or what is known instead.
    pub path: String,
    /// Class.
    pub class: FileClass,
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

/// The layered timeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timeline {
    /// [`VERSION`].
    pub version: u32,
    /// CLOCK_BOOTTIME that all times are relative to, ns.
    pub origin_ns: u64,
    /// Last time that anything was recorded.
    pub duration_ns: u64,
    /// Widths of the papers' windows.
    pub presets_ns: [u64; 2],
    /// Texts; no control characters, not escaped for HTML.
    pub strings: Vec<String>,
    /// Layers from top to bottom.
    pub layers: Vec<LayerLanes>,
    /// Names of the processes that made any span.
    pub processes: Vec<ProcessName>,
    /// All spans in short, the coarse level first.
    pub levels: Vec<Level>,
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

/// The timeline of a trace.
pub fn timeline(rows: &Rows, limits: &Limits) -> Timeline {
    let index = Index::new(rows);
    let mut order: Vec<usize> = (0..rows.spans.len()).collect();
    order.sort_by_key(|&at| (rows.spans[at].start_ns, rows.spans[at].layer, rows.spans[at].id));
    let origin_ns = order.first().map_or(0, |&at| rows.spans[at].start_ns);
    let mut operations: Vec<usize> = (0..rows.operations.len()).collect();
    operations.sort_by_key(|&at| (rows.operations[at].start_ns, rows.operations[at].id));
    let recorded_ns = rows.spans.iter().map(end_of).max().unwrap_or(origin_ns).max(origin_ns);
    let (layers, all_places) = lanes(&index, &order, limits.lanes);
    let too_many = order.len() > limits.spans;
    let run = (origin_ns, recorded_ns - origin_ns);
    let levels = levels(&rows.spans, &order, &all_places, &layers, run, too_many);
    let first_operation = operations.first().map_or(origin_ns, |&at| rows.operations[at].start_ns);
    let window = limits.window.map(|(from, to)| [from, to].map(|ns| first_operation.saturating_add(ns)));
    let held = too_many.then(|| detail::chosen(&index, limits.spans, window.map(|[from, to]| (from, to))));
    let is_held = |at: usize| held.as_ref().is_none_or(|held| held.spans[at]);
    let places: Vec<(u32, u32)> =
        order.iter().zip(all_places).filter(|(at, _)| is_held(**at)).map(|(_, place)| place).collect();
    order.retain(|&at| is_held(at));
    let has_all = |at: usize| held.as_ref().is_none_or(|held| held.operations[at]);

    let span_at: HashMap<u64, u32> = order.iter().enumerate().map(|(i, &at)| (rows.spans[at].id, i as u32)).collect();
    let operation_at: HashMap<u64, u32> =
        operations.iter().enumerate().map(|(i, &at)| (rows.operations[at].id, i as u32)).collect();
    let mut strings = Strings::default();
    let mut disks = Disks::default();
    let carried = carried_files(&index);
    let sent: HashMap<u64, &DriverCommand> =
        rows.driver_commands.iter().filter_map(|row| Some((row.command?, row))).collect();
    let mut spans = SpanColumns::default();
    for (&at, (layer, lane)) in order.iter().zip(places) {
        let s = &rows.spans[at];
        let (file, offset) = carried.get(&s.id).copied().unwrap_or((s.file, s.offset));
        let file = file.and_then(|id| index.file(id)).map(|at| at as u32);
        let label = sent.get(&s.id).map_or_else(|| label(&index, s), |row| row.label());
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
            offset,
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
            has_all(at),
        );
    }
    let mut slices = SliceColumns::default();
    let mut by_operation: Vec<_> =
        rows.slices.iter().filter_map(|s| Some((*operation_at.get(&s.operation)?, s.start_ns, s))).collect();
    by_operation.retain(|&(operation, ..)| columns.whole[operation as usize]);
    by_operation.sort_by_key(|&(operation, start, _)| (operation, start));
    let sure = Confidences::of(&index);
    for (operation, _, s) in by_operation {
        let sure = strings.of(sure.slice(s).name());
        let (layer, reason) = (strings.of(s.layer.name()), strings.of(s.why()));
        let (start, end) = (s.start_ns.saturating_sub(origin_ns), s.end_ns.saturating_sub(origin_ns));
        slices.push(operation, layer, reason, start, end, s.span.and_then(|id| span_at.get(&id).copied()), sure);
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
        operations: columns.whole.iter().filter(|whole| !**whole).count(),
        spans: rows.spans.len() - order.len(),
        links: rows.links.len() - links.parent.len(),
        slices: rows.slices.len() - slices.operation.len(),
        causes: rows.causes.len() - causes.command.len(),
        after_ns: None,
        why: if too_many {
            let first = if window.is_some() { "the time that was asked for, and then of " } else { "" };
            format!(
                "Of {} recorded spans, the timeline holds {} one by one: those of {first}the slowest operations. The others \
                 are drawn as how busy each row was, and {} of {} operations are listed without their chains: `fathom \
                 report --from S --to S` makes a page with those of a time. The numbers below are of the whole recording.",
                rows.spans.len(),
                order.len(),
                columns.whole.iter().filter(|whole| !**whole).count(),
                rows.operations.len(),
            )
        } else {
            String::new()
        },
    };
    Timeline {
        version: VERSION,
        origin_ns,
        duration_ns: recorded_ns - origin_ns,
        presets_ns: [12_000_000, 80_000_000],
        layers,
        levels,
        processes: rows.processes.iter().map(|p| ProcessName { tgid: p.tgid, name: shown(&p.name) }).collect(),
        spans,
        links,
        operations: columns,
        shapes: rows
            .shapes
            .iter()
            .enumerate()
            .map(|(i, s)| ShapeInfo {
                text: shown(&s.text),
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

/// How sure slices are.
struct Confidences {
    /// Commands charged to operations, by both.
    charged: HashMap<(u64, u64), Confidence>,
}

impl Confidences {
    fn of(index: &Index) -> Self {
        let causes = index.rows.causes.iter();
        Self { charged: causes.filter_map(|c| Some(((c.operation?, c.command), c.confidence))).collect() }
    }

    /// As the linker concluded (archives from before it said so: as if from what was under way at the time), and no surer
    /// than the charge of the command that was waited for.
    fn slice(&self, slice: &Slice) -> Confidence {
        let confidence = slice.confidence.unwrap_or(Confidence::Interval);
        let charged = slice.span.and_then(|span| self.charged.get(&(slice.operation, span)));
        charged.map_or(confidence, |c| confidence.min(*c))
    }
}

/// File and first byte of requests and commands, by identity: those of the bios they carry, if all are of one file.
fn carried_files(index: &Index) -> HashMap<u64, (Option<u64>, Option<u64>)> {
    let rows = index.rows;
    let mut found: HashMap<u64, (Option<u64>, Option<u64>)> = HashMap::new();
    for upper in [Layer::Block, Layer::IoScheduler] {
        for link in rows.links.iter().filter(|l| matches!(l.relation, Relation::Carries | Relation::Merges)) {
            let (Some(parent), Some(child)) = (index.span(link.parent), index.span(link.child)) else { continue };
            let (parent, child) = (&rows.spans[parent], &rows.spans[child]);
            if parent.layer != upper || child.file.is_some() {
                continue;
            }
            let (file, offset) = found.get(&parent.id).copied().unwrap_or((parent.file, parent.offset));
            let same = found.entry(child.id).or_insert((file, offset));
            *same = match same.0 {
                known if known != file => (None, None),
                _ => (file, same.1.zip(offset).map(|(a, b)| a.min(b))),
            };
        }
    }
    found
}

/// What is written into a span's box.
fn label(index: &Index, span: &Span) -> String {
    if matches!(span.layer, Layer::App | Layer::Database)
        && let Some(shape) =
            index.operation_of(span).filter(|&o| index.rows.operations[o].span == span.id).and_then(|o| index.shape(o))
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

fn files(index: &Index) -> Vec<FileInfo> {
    let path = |f: &model::table::File| match &f.path {
        Some(path) => shown(path),
        None => format!("inode {} on {}", f.ino, model::Dev(f.dev)),
    };
    index.rows.files.iter().zip(&index.classes).map(|(f, &class)| FileInfo { path: path(f), class }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    #[test]
    fn boxes_of_one_lane_do_not_overlap() {
        let rows = case::rows();
        let t = timeline(&rows, &Limits::default());
        assert_eq!(t.spans.id.len(), rows.spans.len());
        assert_eq!(t.left_out, LeftOut::default());
        for i in 0..t.spans.id.len() {
            for j in i + 1..t.spans.id.len() {
                if (t.spans.layer[i], t.spans.lane[i]) == (t.spans.layer[j], t.spans.lane[j]) {
                    let end = t.spans.end[i].unwrap_or(t.spans.start[i]);
                    assert!(t.spans.start[j] >= end, "{} and {}", t.spans.id[i], t.spans.id[j]);
                }
            }
        }
        let names: Vec<_> = t.layers.iter().map(|l| l.name).collect();
        assert_eq!(names, ["App", "Database", "Syscall", "FileSystem", "Block", "Driver"]);
    }

    #[test]
    fn timeline_references_are_in_range() {
        let t = timeline(&case::rows(), &Limits::default());
        let spans = t.spans.id.len() as u32;
        assert_eq!(t.links.parent.len(), case::rows().links.len());
        assert!(t.links.parent.iter().chain(&t.links.child).all(|&at| at < spans));
        assert!(t.causes.command.iter().all(|&at| at < spans));
        assert!(t.spans.label.iter().all(|&at| (at as usize) < t.strings.len()));
        assert!(
            t.spans.layer.iter().zip(&t.spans.lane).all(|(&l, &n)| (n as usize) < t.layers[l as usize].lanes.len())
        );
        let insert = t.operations.id.iter().position(|&id| id == 11).unwrap();
        let mark = t.operations.parent[insert].unwrap() as usize;
        assert_eq!(t.operations.id[mark], 10);
        let label = t.spans.label[t.operations.span[insert].unwrap() as usize];
        assert_eq!(t.strings[label as usize], case::INSERT);
    }

    #[test]
    fn commands_have_file_of_bios_and_slices_have_confidence() {
        let mut rows = case::rows();
        let file = rows.files[0].id;
        rows.spans
            .iter_mut()
            .filter(|s| s.layer == Layer::Block)
            .for_each(|s| (s.file, s.offset) = (Some(file), Some(4096)));
        let t = timeline(&rows, &Limits::default());
        let driver = t.layers.iter().position(|l| l.name == "Driver").unwrap() as u32;
        let commands: Vec<usize> = (0..t.spans.id.len()).filter(|&i| t.spans.layer[i] == driver).collect();
        let with_file = |i: &&usize| t.spans.file[**i].is_some();
        assert!(commands.iter().any(|i| with_file(&i)), "no command has a file");
        for &i in commands.iter().filter(|i| with_file(i)) {
            let carried = (0..t.links.child.len()).filter(|&l| t.links.child[l] as usize == i);
            let files: Vec<_> = carried.map(|l| t.spans.file[t.links.parent[l] as usize]).collect();
            assert!(files.iter().all(|file| *file == t.spans.file[i]), "command {} has another file", t.spans.id[i]);
        }
        // Each slice has the linker's confidence, and no more than that of its command's charge.
        let mut rows = case::rows();
        for (slice, confidence) in
            rows.slices.iter_mut().zip([Confidence::Exact, Confidence::Guess].into_iter().cycle())
        {
            slice.confidence = Some(confidence);
        }
        let t = timeline(&rows, &Limits::default());
        for (i, slice) in rows.slices.iter().enumerate() {
            let causes = rows.causes.iter().filter(|c| c.operation == Some(slice.operation));
            let charge = causes.filter(|c| Some(c.command) == slice.span).map(|c| c.confidence).min();
            let expected = slice.confidence.min(charge.or(slice.confidence));
            let shown = &t.strings[t.slices.confidence[i] as usize];
            assert_eq!(Some(shown.as_str()), expected.map(Confidence::name), "slice {i}");
        }
    }

    #[test]
    fn page_without_room_lists_operations_and_marks_complete_ones() {
        let rows = case::rows();
        let whole = timeline(&rows, &Limits::default());
        let spans = rows.spans.len() / 2;
        let t = timeline(&rows, &Limits { spans, ..Limits::default() });
        assert_eq!((t.spans.id.len(), t.left_out.spans), (spans, rows.spans.len() - spans));
        assert!(t.left_out.operations > 0 && !t.left_out.why.is_empty());
        assert_eq!((&t.operations.id, &t.operations.start), (&whole.operations.id, &whole.operations.start));
        assert_eq!((t.duration_ns, &t.layers), (whole.duration_ns, &whole.layers));
        let counts = |t: &Timeline| t.shapes.iter().map(|s| s.count).collect::<Vec<_>>();
        assert_eq!(counts(&t), counts(&whole));
        let left = t.operations.whole.iter().filter(|whole| !**whole).count();
        assert_eq!(left, t.left_out.operations);
        // Slices only of whole operations, and of these all.
        for (at, id) in t.operations.id.iter().enumerate() {
            let shown = t.slices.operation.iter().filter(|&&operation| operation as usize == at).count();
            let all = rows.slices.iter().filter(|s| s.operation == *id).count();
            assert_eq!(shown, if t.operations.whole[at] { all } else { 0 }, "operation {id}");
        }
        assert!(whole.operations.whole.iter().all(|whole| *whole));
    }

    #[test]
    fn overflow_goes_into_last_lane() {
        let t = timeline(&case::rows(), &Limits { lanes: 1, ..Limits::default() });
        assert!(t.layers.iter().all(|l| {
            let mut groups: Vec<_> = l.lanes.iter().map(|lane| lane.group).collect();
            groups.dedup();
            groups.len() == l.lanes.len()
        }));
    }

    #[test]
    fn empty_trace_has_empty_timeline() {
        let rows = Rows::default();
        assert_eq!(timeline(&rows, &Limits::default()).spans.id.len(), 0);
    }
}
