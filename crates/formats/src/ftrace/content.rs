//! The content of a trace file that has no pages of the ring buffer: texts, Perfetto's messages, blktrace's records.
//!
//! Their readers produce the same [`TraceItem`]s that [`super::merge`] produces from pages. All of them are held in memory, since these
//! files are not in time order; their number is limited ([`EVENTS_MAX`]).

use super::calls::Machine;
use super::decoder::Kind;
use super::merge::TraceItem;
use super::page::MissedEvents;
use std::collections::BTreeMap;
use std::fmt;

/// Most events of a trace: about 8 GB of memory.
pub const EVENTS_MAX: usize = 64 << 20;
/// Most kinds of events that are counted by name; names come from the file.
const NAMES_MAX: usize = 4096;

/// Why a file is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// It contains nothing that Fathom supports.
    Empty(&'static str),
    /// It holds more events than memory allows.
    TooLarge,
    /// Its form is not supported.
    Unsupported(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty(why) => f.write_str(why),
            Self::TooLarge => write!(f, "it holds more than {EVENTS_MAX} events; cut it, or record for a shorter time"),
            Self::Unsupported(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ReadError {}

/// The content of a file.
#[derive(Debug, Clone, Default)]
pub struct TraceContent {
    /// The kind of file.
    pub format: String,
    /// Its events, in time order.
    pub events: Vec<TraceItem>,
    /// Events that are not interpreted, by name.
    pub left_out: BTreeMap<String, u64>,
    /// Events that are interpreted, but could not be read, by kind.
    pub unread: BTreeMap<Kind, u64>,
    /// Kinds that could have been in it.
    pub described: Vec<Kind>,
    /// Threads and their names.
    pub names: BTreeMap<u32, String>,
    /// Some threads and the processes that they belong to.
    pub members: BTreeMap<u32, u32>,
    /// All threads and their processes; 0: the kernel's.
    pub tasks: BTreeMap<u32, u32>,
    /// The architecture of the system call numbers, if known.
    pub machine: Option<Machine>,
    /// The kernel's release, if known.
    pub release: Option<String>,
    /// Events of each CPU that are known to be lost at an unknown place.
    pub lost: BTreeMap<u16, u64>,
    /// Whether more may be lost.
    pub at_least: bool,
    /// Parts that could not be read.
    pub damaged: u64,
    /// What the user should know about how it was read.
    pub notes: Vec<String>,
}

impl TraceContent {
    /// Adds an event.
    pub fn add(&mut self, next: TraceItem) -> Result<(), ReadError> {
        if self.events.len() >= EVENTS_MAX {
            return Err(ReadError::TooLarge);
        }
        self.events.push(next);
        Ok(())
    }

    /// Adds a gap of one CPU.
    pub fn add_gap(&mut self, cpu: u16, since: u64, until: u64, events: Option<u64>) -> Result<(), ReadError> {
        self.add(TraceItem::Missed(cpu, MissedEvents { since: since.min(until), until, events }))
    }

    /// Counts an event that is not interpreted.
    pub fn leave_out(&mut self, name: &str) {
        if let Some(count) = self.left_out.get_mut(name) {
            *count += 1;
        } else {
            let name = if self.left_out.len() < NAMES_MAX { name } else { "other" };
            *self.left_out.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Sets a thread's name.
    pub fn name(&mut self, tid: u32, name: &str) {
        let known = !name.is_empty() && !matches!(name, "<...>" | "<idle>");
        if known && self.names.get(&tid).is_none_or(|old| old != name) {
            self.names.insert(tid, name.to_owned());
        }
    }

    /// Sorts the events by time; the order of those with the same time is kept.
    pub fn sort(&mut self) {
        self.events.sort_by_key(item_time);
    }
}

/// When an event happened, or when a gap ended.
pub fn item_time(next: &TraceItem) -> u64 {
    match next {
        TraceItem::DecodedEvent(seen) => seen.time_ns,
        TraceItem::Missed(_, missed) => missed.until,
    }
}
