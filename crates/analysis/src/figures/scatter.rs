//! Device commands by time and address: paper 000, figures 11 (INSERT) and 12 (SELECT).

use super::{DiskAxis, Disks, Limits, Omissions, Strings, VERSION, columns, end_of};
use crate::by_key::RowsByKey;
use crate::rows::{Index, IoAction, Rows};
use crate::text::shown;
use model::table::Cause;
use model::{Layer, Origin};
use serde::Serialize;
use std::collections::BTreeMap;

columns! {
    /// Device commands by time and address.
    PointColumns {
        /// Time of issue.
        t: u64,
        /// Time from issue to completion.
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

/// The address-time scatter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scatter {
    /// [`VERSION`].
    pub version: u32,
    /// CLOCK_BOOTTIME to which all times are relative, ns.
    pub origin_ns: u64,
    /// Last time.
    pub duration_ns: u64,
    /// Texts.
    pub strings: Vec<String>,
    /// Shapes with the time in which they were active.
    pub shapes: Vec<ScatterShape>,
    pub disks: Vec<DiskAxis>,
    /// Commands by time.
    pub points: PointColumns,
    pub left_out: Omissions,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScatterShape {
    pub text: String,
    /// `statement`, `function`, `mark`.
    pub kind: String,
    /// Whether the text begins like a read-only statement.
    pub read_only_looking: bool,
    /// First start.
    pub start: Option<u64>,
    /// Last end.
    pub end: Option<u64>,
    /// Sum of its shares of the commands on the disks that hold the files.
    pub commands: f64,
}

/// Builds the scatter of a trace's device commands.
pub fn scatter(rows: &Rows, limits: &Limits) -> Scatter {
    scatter_of(&Index::new(rows), limits)
}

/// Builds it for a trace that has its index.
pub fn scatter_of(index: &Index, limits: &Limits) -> Scatter {
    let rows = index.rows;
    let mut shapes: Vec<ScatterShape> = rows
        .shapes
        .iter()
        .map(|s| ScatterShape {
            text: shown(&s.text),
            kind: s.kind.to_string(),
            read_only_looking: looks_read_only(&s.text),
            start: None,
            end: None,
            commands: 0.0,
        })
        .collect();
    let mut commands: Vec<(u64, u64, u32)> =
        rows.spans.of_layer(Layer::Driver).map(|(at, s)| (s.start_ns, s.id, at as u32)).collect();
    commands.sort_unstable();
    let begins = rows.operations.iter().map(|o| o.start_ns);
    let origin_ns = begins.chain(commands.iter().map(|&(start_ns, ..)| start_ns)).min().unwrap_or(0);
    for (at, operation) in rows.operations.iter().enumerate() {
        let Some(shape) = index.shape(at).map(|s| &mut shapes[s]) else { continue };
        let start = operation.start_ns - origin_ns;
        // In a damaged archive an operation may end before the first begins.
        let end = operation.end_ns.map_or(start, |end| end.saturating_sub(origin_ns));
        shape.start = Some(shape.start.map_or(start, |s| s.min(start)));
        shape.end = Some(shape.end.map_or(end, |e| e.max(end)));
    }
    let finite = |at: &usize| rows.causes.share(*at).is_finite();
    let causes = (0..rows.causes.len()).filter(finite);
    let causes_of = RowsByKey::new(
        rows.spans.len(),
        causes.filter_map(|at| Some((index.span(rows.causes.command(at))?, at as u32))),
    );
    let shape_of = |cause: &Cause| cause.operation.and_then(|id| index.operation(id)).and_then(|o| index.shape(o));
    for cause in rows.causes.iter().filter(|c| c.share.is_finite()) {
        let shape = shape_of(&cause);
        let disk = index.span(cause.command).and_then(|at| rows.spans.disk(at));
        if let Some(shape) = shape.filter(|_| disk.is_some_and(|d| index.counted_disks.contains(&d))) {
            shapes[shape].commands += cause.share;
        }
    }
    let mut strings = Strings::default();
    let mut disks = Disks::default();
    let mut points = PointColumns::default();
    let left = commands.len().saturating_sub(limits.points);
    let after_ns = commands.get(limits.points).map(|&(start_ns, ..)| start_ns - origin_ns);
    let mut end_ns = origin_ns;
    for &(.., at) in commands.iter().take(limits.points) {
        let s = &rows.spans.at(at as usize);
        // The shares of shapes, and of the other origins.
        let mut shares: BTreeMap<(Origin, Option<usize>), f64> = BTreeMap::new();
        for cause in causes_of.rows_of(at as usize).iter().map(|&at| rows.causes.at(at as usize)) {
            *shares.entry((cause.origin, shape_of(&cause))).or_default() += cause.share;
        }
        let largest = shares.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let ((origin, shape), share) =
            largest.map_or(((Origin::Unattributed, None), 1.0), |(&who, &share)| (who, share));
        let does = IoAction::on_disk(s);
        end_ns = end_ns.max(end_of(s));
        points.push(
            s.start_ns - origin_ns,
            s.took_ns(),
            s.sector.filter(|_| does != IoAction::Flush),
            s.bytes,
            strings.intern(does.name()),
            s.disk.map(|d| disks.include_span(index, d, s)),
            shape.map(|s| s as u32),
            strings.intern(origin.name()),
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
        left_out: Omissions {
            spans: left,
            after_ns,
            why: if left > 0 {
                format!("The address map contains the first {} of {} device commands.", limits.points, commands.len())
            } else {
                String::new()
            },
            ..Omissions::default()
        },
    }
}

/// Whether a statement's text begins like a read-only one.
pub fn looks_read_only(text: &str) -> bool {
    let first = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
    first.eq_ignore_ascii_case("select")
        || first.eq_ignore_ascii_case("values")
        || first.eq_ignore_ascii_case("explain")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_trace;

    #[test]
    fn a_scatter_shows_the_statement_of_each_command() {
        let s = scatter(&small_trace::rows(), &Limits::default());
        assert_eq!(s.points.t.len(), 6);
        let select = s.shapes.iter().find(|s| s.read_only_looking).unwrap();
        assert_eq!(select.commands, 0.0, "a warm scan has no command");
        let insert = s.shapes.iter().find(|s| s.text == small_trace::INSERT_STATEMENT).unwrap();
        assert_eq!(insert.commands, 2.5);
        let flush = s.points.command.iter().position(|&id| id == 51).unwrap();
        assert_eq!((s.points.sector[flush], s.points.latency[flush]), (None, Some(40_000)));
        let limited = scatter(&small_trace::rows(), &Limits { points: 2, ..Limits::default() });
        assert_eq!((limited.points.t.len(), limited.left_out.spans), (2, 4));
    }

    #[test]
    fn times_of_a_damaged_trace_are_scattered() {
        for (start, end) in [(u64::MAX, 0), (u64::MAX, u64::MAX), (7, 3), (0, u64::MAX)] {
            let mut rows = small_trace::rows();
            rows.operations.edit().iter_mut().for_each(|o| (o.start_ns, o.end_ns) = (start, Some(end)));
            assert_eq!(scatter(&rows, &Limits::default()).points.t.len(), 6);
            rows.spans.edit().iter_mut().for_each(|s| (s.start_ns, s.end_ns) = (start, Some(end)));
            assert_eq!(scatter(&rows, &Limits::default()).points.t.len(), 6);
        }
    }

    #[test]
    fn an_empty_trace_has_an_empty_scatter() {
        assert_eq!(scatter(&Rows::default(), &Limits::default()).points.t.len(), 0);
    }
}
