//! The layered timeline: papers 000, figures 13-15, and 004, figures 2-5.

use super::lanes::{LayerLanes, assign_lanes};
use super::levels::{Level, levels};
use super::part::Part;
use super::part_tables::{
    CauseColumns, LinkColumns, PartRowPositions, PartTables, SliceColumns, SpanColumns, TableBuilder,
};
use super::{DiskAxis, Limits, Omissions, VERSION, columns, parts};
use crate::rows::{Index, Rows};
use crate::text::shown;
use serde::Serialize;
use sqlite::FileClass;
use std::collections::HashMap;

columns! {
    /// Operations.
    OperationColumns {
        /// Identity within the archive.
        id: u64,
        /// Position in `shapes`.
        shape: Option<u32>,
        /// Ordinal within its shape.
        nth: u64,
        /// Position among all spans of the recording by start time: in `spans`, unless they are in parts.
        span: Option<u32>,
        /// Position of the operation around it.
        parent: Option<u32>,
        /// Start.
        start: u64,
        /// End.
        end: Option<u64>,
        /// Rows.
        rows: u64,
        /// Result.
        result: Option<i64>,
        /// Whether everything that belongs to it is shown.
        whole: bool,
        /// Index of its part, if there are parts.
        part: Option<u32>,
    }
}
/// A statement, function or mark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShapeInfo {
    pub text: String,
    /// `statement`, `function`, `mark`.
    pub kind: String,
    /// Executions shown.
    pub count: u64,
    /// Device commands that are charged to them.
    pub charged: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessName {
    /// Process ID.
    pub tgid: u32,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileInfo {
    /// Path, or a substitute if it is unknown.
    pub path: String,
    pub class: FileClass,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LossMark {
    /// What lost records.
    pub source: &'static str,
    pub cpu: Option<u32>,
    pub start: u64,
    pub end: u64,
    /// How many.
    pub events: Option<u64>,
}

/// The layered timeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timeline {
    /// [`VERSION`].
    pub version: u32,
    /// CLOCK_BOOTTIME to which all times are relative, ns.
    pub origin_ns: u64,
    /// Last recorded time.
    pub duration_ns: u64,
    /// Widths of the papers' windows.
    pub presets_ns: [u64; 2],
    /// Texts; no control characters, not escaped for HTML.
    pub strings: Vec<String>,
    /// Layers from top to bottom.
    pub layers: Vec<LayerLanes>,
    /// Names of all processes with spans.
    pub processes: Vec<ProcessName>,
    /// Levels of detail of all spans, the coarse level first.
    pub levels: Vec<Level>,
    /// Spans by start time; empty if the timeline is in parts.
    pub spans: SpanColumns,
    pub links: LinkColumns,
    /// Operations by start time.
    pub operations: OperationColumns,
    pub shapes: Vec<ShapeInfo>,
    pub slices: SliceColumns,
    pub causes: CauseColumns,
    /// The parts, if the timeline is too large for one table.
    pub parts: Vec<Part>,
    pub files: Vec<FileInfo>,
    pub disks: Vec<DiskAxis>,
    pub losses: Vec<LossMark>,
    pub left_out: Omissions,
}

/// Builds the timeline of a trace.
pub fn timeline(rows: &Rows, limits: &Limits) -> Timeline {
    let mut tables = Vec::new();
    let mut timeline = timeline_with(&Index::new(rows), limits, &mut |held, at| tables.push((held, at)));
    for (part, (held, at)) in timeline.parts.iter_mut().zip(tables) {
        (part.held, part.rows) = (held, at);
    }
    timeline
}

/// Builds the timeline of a trace, and passes the tables of each part to `each`: together they are several times as large as the
/// archive.
pub fn timeline_with(index: &Index, limits: &Limits, each: &mut dyn FnMut(PartTables, PartRowPositions)) -> Timeline {
    let rows = index.rows;
    let order = in_order(rows);
    let origin_ns = order.first().map_or(0, |&at| rows.spans.start_ns(at));
    let mut operations: Vec<usize> = (0..rows.operations.len()).collect();
    operations.sort_by_key(|&at| (rows.operations.start_ns(at), rows.operations.id(at)));
    let end_of = |at: usize| rows.spans.end_ns(at).unwrap_or_else(|| rows.spans.start_ns(at));
    let recorded_ns = (0..rows.spans.len()).map(end_of).max().unwrap_or(origin_ns).max(origin_ns);
    let (layers, places) = assign_lanes(index, &order, limits.lanes);
    let too_many = order.len() > limits.spans;
    let run = (origin_ns, recorded_ns - origin_ns);
    let levels = levels(&rows.spans, &order, &places, &layers, run, too_many);
    let first_operation = operations.first().map_or(origin_ns, |&at| rows.operations.start_ns(at));
    let window = limits.window.map(|(from, to)| [from, to].map(|ns| first_operation.saturating_add(ns)));
    let limits = parts::Limits { part: limits.part, single: limits.spans, all: limits.all };
    let cuts = too_many.then(|| parts::cut(index, &order, &limits, window.map(|[from, to]| (from, to))));
    let operation_at: HashMap<u64, u32> =
        operations.iter().enumerate().map(|(i, &at)| (rows.operations.id(at), i as u32)).collect();
    let mut position = vec![0_u32; order.len()];
    order.iter().enumerate().for_each(|(i, &at)| position[at] = i as u32);
    let mut tables = TableBuilder::new(index, &order, &places, origin_ns, operation_at);
    let mut part_of: HashMap<usize, u32> = HashMap::new();
    let mut parts = Vec::new();
    for (number, cut) in cuts.iter().flatten().enumerate() {
        part_of.extend(cut.operations.iter().map(|&at| (at, number as u32)));
        let (whole, at) = tables.build_tables(&cut.spans, &cut.operations);
        parts.push(Part::new(rows, &order, cut, origin_ns));
        each(whole, at);
    }
    let held = if too_many {
        PartTables::default()
    } else {
        let all: Vec<u32> = (0..order.len() as u32).collect();
        tables.build_tables(&all, &operations).0
    };
    let charged = tables.charged_to_shapes();
    let TableBuilder { strings, disks, operation_at, .. } = tables;
    let mut counts: HashMap<usize, u64> = HashMap::new();
    let mut columns = OperationColumns::default();
    for &at in &operations {
        let o = &rows.operations.at(at);
        let shape = index.shape(at);
        *counts.entry(shape.unwrap_or(usize::MAX)).or_default() += 1;
        columns.push(
            o.id,
            shape.map(|s| s as u32),
            o.nth,
            index.span(o.span).map(|span| position[span]),
            o.parent.and_then(|id| operation_at.get(&id).copied()),
            o.start_ns.saturating_sub(origin_ns),
            o.end_ns.map(|e| e.saturating_sub(origin_ns)),
            o.rows,
            o.result,
            !too_many || part_of.contains_key(&at),
            part_of.get(&at).copied(),
        );
    }
    let owned: usize = cuts.iter().flatten().map(|cut| cut.own.len()).sum();
    let listed = columns.whole.iter().filter(|whole| !**whole).count();
    let left = if too_many { order.len() - owned } else { 0 };
    let left_out = Omissions {
        operations: listed,
        spans: left,
        after_ns: None,
        why: omissions_note(order.len(), left, listed, operations.len(), window.is_some()),
        ..Omissions::default()
    };
    Timeline {
        version: VERSION,
        origin_ns,
        duration_ns: recorded_ns - origin_ns,
        presets_ns: [12_000_000, 80_000_000],
        layers,
        levels,
        processes: rows.processes.iter().map(|p| ProcessName { tgid: p.tgid, name: shown(&p.name) }).collect(),
        spans: held.spans,
        links: held.links,
        operations: columns,
        shapes: rows
            .shapes
            .iter()
            .enumerate()
            .map(|(i, s)| ShapeInfo {
                text: shown(&s.text),
                kind: s.kind.to_string(),
                count: counts.get(&i).copied().unwrap_or(0),
                charged: charged.get(i).copied().unwrap_or(0.0),
            })
            .collect(),
        slices: held.slices,
        causes: held.causes,
        parts,
        files: file_infos(index),
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

/// Returns the positions of the spans by start time.
fn in_order(rows: &Rows) -> Vec<usize> {
    let spans = &rows.spans;
    let mut order: Vec<(u64, u32)> = (0..spans.len()).map(|at| (spans.start_ns(at), at as u32)).collect();
    let rest = |at: u32| (spans.layer(at as usize), spans.id(at as usize), at);
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| rest(a.1).cmp(&rest(b.1))));
    order.into_iter().map(|(_, at)| at as usize).collect()
}

/// Returns the note for a page on which not everything fits; empty if everything does.
fn omissions_note(all: usize, left: usize, listed: usize, operations: usize, window: bool) -> String {
    if left == 0 && listed == 0 {
        return String::new();
    }
    let first = if window { "the requested time and then " } else { "" };
    let spans = format!(
        "Of {all} recorded spans, this page has room for {}: those of {first}the parts with the slowest operations. The others are drawn \
         as how busy each row was. ",
        all - left
    );
    let spans = if left > 0 { spans } else { String::new() };
    format!(
        "{spans}{listed} of {operations} operations are listed without their chains: `fathom report --from S --to S` makes a page with \
         those of a time. The numbers below are of the whole recording."
    )
}

fn file_infos(index: &Index) -> Vec<FileInfo> {
    let path = |f: &model::table::File| match &f.path {
        Some(path) => shown(path),
        None => format!("inode {} on {}", f.ino, model::Dev(f.dev)),
    };
    index.rows.files.iter().zip(&index.classes).map(|(f, &class)| FileInfo { path: path(f), class }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_trace;
    use model::{Confidence, Layer};

    #[test]
    fn boxes_of_one_lane_do_not_overlap() {
        let rows = small_trace::rows();
        let t = timeline(&rows, &Limits::default());
        assert_eq!(t.spans.id.len(), rows.spans.len());
        assert_eq!(t.left_out, Omissions::default());
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
    fn the_references_of_a_timeline_are_in_range() {
        let t = timeline(&small_trace::rows(), &Limits::default());
        let spans = t.spans.id.len() as u32;
        assert_eq!(t.links.parent.len(), small_trace::rows().links.len());
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
        assert_eq!(t.strings[label as usize], small_trace::INSERT_STATEMENT);
    }

    #[test]
    fn commands_have_the_bios_file_and_slices_have_a_confidence() {
        let mut rows = small_trace::rows();
        let file = rows.files[0].id;
        rows.spans
            .edit()
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
        // Each slice has the linker's confidence, limited by that of its command's charge.
        let mut rows = small_trace::rows();
        for (slice, confidence) in
            rows.slices.edit().iter_mut().zip([Confidence::Exact, Confidence::Guess].into_iter().cycle())
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
    fn parts_hold_every_row_and_operations_name_theirs() {
        let rows = small_trace::rows();
        let whole = timeline(&rows, &Limits::default());
        let t = timeline(&rows, &Limits { spans: rows.spans.len() - 1, part: 7, ..Limits::default() });
        assert_eq!((t.spans.id.len(), &t.left_out), (0, &Omissions::default()));
        assert_eq!((t.duration_ns, &t.layers, &t.shapes), (whole.duration_ns, &whole.layers, &whole.shapes));
        assert!(t.shapes.iter().any(|shape| shape.charged > 0.0));
        assert!(whole.parts.is_empty() && whole.operations.part.iter().all(Option::is_none));
        let mut links = std::collections::BTreeSet::new();
        for part in &t.parts {
            assert_eq!(part.spans, part.held.spans.id.len());
            for (i, &at) in part.rows.spans.at.iter().enumerate() {
                assert_eq!(part.held.spans.id[i], whole.spans.id[at as usize]);
                assert_eq!(part.held.spans.start[i], whole.spans.start[at as usize]);
            }
            let id = |local: u32| part.held.spans.id[local as usize];
            for (i, &at) in part.rows.links.at.iter().enumerate() {
                let link = &rows.links.at(at as usize);
                assert_eq!((id(part.held.links.parent[i]), id(part.held.links.child[i])), (link.parent, link.child));
                links.insert(at);
            }
            for (i, &at) in part.rows.causes.at.iter().enumerate() {
                assert_eq!(id(part.held.causes.command[i]), rows.causes.command(at as usize));
            }
        }
        assert_eq!(links.len(), rows.links.len(), "each link is in a part");
        for (at, part) in t.operations.part.iter().enumerate() {
            let part = &t.parts[part.expect("each operation has a part") as usize];
            let all = rows.slices.iter().filter(|s| s.operation == t.operations.id[at]).count();
            let slices = part.held.slices.operation.iter().filter(|&&operation| operation as usize == at);
            assert_eq!(slices.count(), all, "operation {at}");
            let own = t.operations.span[at].expect("each has a span");
            assert!(part.rows.spans.at.contains(&own) && whole.operations.span[at] == Some(own));
        }
    }

    #[test]
    fn a_page_without_room_lists_operations_and_marks_whole_ones() {
        let rows = small_trace::rows();
        let whole = timeline(&rows, &Limits::default());
        let limits = Limits { spans: 4, part: 4, all: rows.spans.len() / 2, ..Limits::default() };
        let t = timeline(&rows, &limits);
        assert!(t.left_out.spans > 0 && t.left_out.operations > 0 && !t.left_out.why.is_empty());
        assert_eq!((&t.operations.id, &t.operations.start), (&whole.operations.id, &whole.operations.start));
        let left = t.operations.whole.iter().filter(|whole| !**whole).count();
        assert_eq!(left, t.left_out.operations);
        for (whole, part) in t.operations.whole.iter().zip(&t.operations.part) {
            assert_eq!(*whole, part.is_some());
        }
        assert!(whole.operations.whole.iter().all(|whole| *whole));
    }

    #[test]
    fn overflow_goes_into_the_last_lane() {
        let t = timeline(&small_trace::rows(), &Limits { lanes: 1, ..Limits::default() });
        assert!(t.layers.iter().all(|l| {
            let mut groups: Vec<_> = l.lanes.iter().map(|lane| lane.group).collect();
            groups.dedup();
            groups.len() == l.lanes.len()
        }));
    }

    #[test]
    fn an_empty_trace_has_an_empty_timeline() {
        let rows = Rows::default();
        assert_eq!(timeline(&rows, &Limits::default()).spans.id.len(), 0);
    }
}
