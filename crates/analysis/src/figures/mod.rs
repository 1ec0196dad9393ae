//! The report's figures as plain data: the layered timeline (papers 000, figures 13-15, and 004, figures 2-5), the
//! address-time scatter of device commands (000, figures 11 and 12), and the tables of counts.
//!
//! Everything is computed here; the page only draws. Long lists are columns, which are a third of the size of a list of
//! objects, times are relative to the first one shown, and references to rows are positions.
//!
//! A page is limited in size, a trace is not. A timeline too large for one table is cut into parts, of which the page loads those
//! that are viewed; what does not fit into them either is shown as levels of detail and in the list, with a note.

mod lanes;
mod levels;
mod part;
mod part_tables;
mod parts;
mod scatter;
mod timeline;

pub use crate::counts::{Counts, counts};
pub use lanes::{Lane, LayerLanes};
pub use levels::{CellColumns, Level};
pub use part::Part;
pub use part_tables::{CauseColumns, LinkColumns, PartRowPositions, PartTables, Positions, SliceColumns, SpanColumns};
pub use scatter::{PointColumns, Scatter, ScatterShape, looks_read_only, scatter, scatter_of};
pub use timeline::{FileInfo, LossMark, OperationColumns, ProcessName, ShapeInfo, Timeline, timeline, timeline_with};

use crate::contract::DiskRole;
use crate::rows::Index;
use crate::text::shown;
use model::table::Span;
use serde::Serialize;
use std::collections::HashMap;

/// Version of the shapes below.
pub const VERSION: u32 = 1;

/// Limits of a figure.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Spans of a timeline in one table; a larger one is cut into parts.
    pub spans: usize,
    /// Spans that begin in one part.
    pub part: usize,
    /// Spans of all parts.
    pub all: usize,
    /// Points of a scatter.
    pub points: usize,
    /// Lanes of one thread or disk.
    pub lanes: usize,
    /// The time range whose spans have priority if not all fit, in ns from the first operation's start.
    pub window: Option<(u64, u64)>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { spans: 200_000, part: 100_000, all: 20_000_000, points: 200_000, lanes: 32, window: None }
    }
}

/// One column of a table, as the page packs it.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// Integers, or none.
    Whole(Vec<Option<i64>>),
    /// Other numbers.
    Real(Vec<f64>),
}

/// A type that a column may hold.
trait Cell: Copy {
    fn column(values: Vec<Self>) -> Column;
}

macro_rules! whole_cells {
    ($($ty:ty),*) => {$(
        impl Cell for $ty {
            fn column(values: Vec<Self>) -> Column {
                Column::Whole(values.into_iter().map(|value| Some(value as i64)).collect())
            }
        }
        impl Cell for Option<$ty> {
            fn column(values: Vec<Self>) -> Column {
                Column::Whole(values.into_iter().map(|value| value.map(|value| value as i64)).collect())
            }
        }
    )*};
}

whole_cells!(u32, u64, i64, bool);

impl Cell for f64 {
    fn column(values: Vec<Self>) -> Column {
        Column::Real(values)
    }
}

/// A table stored as columns.
pub trait Table: Default {
    /// Passes its columns by name, one after the other, and leaves it empty.
    fn take_columns(&mut self, each: &mut dyn FnMut(&'static str, Column));
}

/// Declares a table stored as columns.
macro_rules! columns {
    ($(#[doc = $doc:literal])+ $Type:ident { $( $(#[doc = $cdoc:literal])+ $column:ident : $ty:ty ),* $(,)? }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Default, PartialEq, Serialize)]
        pub struct $Type { $( $(#[doc = $cdoc])+ pub $column: Vec<$ty>, )* }
        impl $Type {
            #[allow(clippy::too_many_arguments, reason = "a row has as many values as the table has columns")]
            fn push(&mut self, $( $column: $ty ),*) { $( self.$column.push($column); )* }
        }
        impl $crate::figures::Table for $Type {
            fn take_columns(&mut self, each: &mut dyn FnMut(&'static str, $crate::figures::Column)) {
                $( each(stringify!($column), $crate::figures::Cell::column(std::mem::take(&mut self.$column))); )*
            }
        }
    };
}

use columns;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskAxis {
    pub name: String,
    /// `holds the files`, `below`, `other`.
    pub role: DiskRole,
    /// Lowest sector of a command shown.
    pub sectors_low: u64,
    /// Highest, its last.
    pub sectors_high: u64,
}

/// What a figure does not show.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Omissions {
    pub operations: usize,
    pub spans: usize,
    pub links: usize,
    pub slices: usize,
    pub causes: usize,
    /// The time from which on rows are left out; `None` if nothing is left out.
    pub after_ns: Option<u64>,
    /// The reason, in a sentence; empty if nothing is left out.
    pub why: String,
}

/// Interned texts.
#[derive(Default)]
pub struct Strings {
    all: Vec<String>,
    position: HashMap<String, u32>,
}

impl Strings {
    fn intern(&mut self, text: &str) -> u32 {
        if let Some(&at) = self.position.get(text) {
            return at;
        }
        let at = self.all.len() as u32;
        self.position.insert(text.into(), at);
        self.all.push(shown(text));
        at
    }
}

fn end_of(span: &Span) -> u64 {
    span.end_ns.unwrap_or(span.start_ns)
}

/// Disks in order of first occurrence.
#[derive(Default)]
pub struct Disks {
    all: Vec<DiskAxis>,
    position: HashMap<u32, u32>,
}

impl Disks {
    fn include_span(&mut self, index: &Index, dev: u32, span: &Span) -> u32 {
        let at = *self.position.entry(dev).or_insert_with(|| {
            let name = shown(&index.disk_name(dev));
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
