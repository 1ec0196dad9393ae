//! Merges the CPUs' streams in time order; each stream is already in order.

use super::decoder::{DecodedEvent, Decoder};
use super::page::{Item, MissedEvents, Pages};
use std::collections::{BTreeMap, BTreeSet};

/// One CPU's part of a trace.
#[derive(Debug, Clone)]
pub struct Stream<'a> {
    /// CPU.
    pub cpu: u16,
    pub pages: Pages<'a>,
    /// The decoder of the trace's events: those of a second buffer may be of another kernel.
    pub decoder: &'a Decoder,
    /// Converts the trace's clock to ns.
    pub clock: Clock,
}

/// Converts the times of a trace to ns of one clock: `ns = ((t * mult) >> shift) + offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    pub mult: u64,
    pub shift: u32,
    pub offset: i64,
}

impl Clock {
    /// For times that are already in ns.
    pub const NS: Self = Self { mult: 1, shift: 0, offset: 0 };

    /// A time in ns.
    pub fn ns(&self, time: u64) -> u64 {
        let scaled = (u128::from(time) * u128::from(self.mult)) >> self.shift.min(127);
        u64::try_from(scaled).unwrap_or(u64::MAX).saturating_add_signed(self.offset)
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceItem {
    DecodedEvent(DecodedEvent),
    /// Events of a CPU that are missing, in ns.
    Missed(u16, MissedEvents),
}

/// All streams together.
#[derive(Debug)]
pub struct MergedStreams<'a> {
    streams: Vec<(Stream<'a>, u64)>,
    /// The next item of each stream, by time; for the same time the lower stream first.
    waiting: BTreeSet<(u64, usize)>,
    heads: Vec<Option<TraceItem>>,
    /// Events that are not interpreted, by name.
    pub left_out: BTreeMap<String, u64>,
    /// Events taken, by kind.
    pub taken: BTreeMap<super::decoder::Kind, u64>,
}

impl<'a> MergedStreams<'a> {
    /// Merges these streams.
    pub fn new(streams: Vec<Stream<'a>>) -> Self {
        let heads = streams.iter().map(|_| None).collect();
        let streams: Vec<_> = streams.into_iter().map(|s| (s, 0)).collect();
        let count = streams.len();
        let mut merged =
            Self { streams, waiting: BTreeSet::new(), heads, left_out: BTreeMap::new(), taken: BTreeMap::new() };
        (0..count).for_each(|i| merged.advance(i));
        merged
    }

    /// Pages that could be read only partly.
    pub fn damaged(&self) -> u64 {
        self.streams.iter().map(|(s, _)| s.pages.damaged()).sum()
    }

    fn advance(&mut self, i: usize) {
        let (stream, last) = &mut self.streams[i];
        for item in stream.pages.by_ref() {
            let (time, next) = match item {
                Item::Record(record) => {
                    let time = stream.clock.ns(record.time);
                    let Some(seen) = stream.decoder.decode(time, stream.cpu, record.data) else {
                        let name =
                            stream.decoder.name_of(record.data).unwrap_or("(events that the trace does not describe)");
                        *self.left_out.entry(name.to_owned()).or_default() += 1;
                        continue;
                    };
                    (time, TraceItem::DecodedEvent(seen))
                }
                Item::Missed(m) => {
                    let (since, until) = (stream.clock.ns(m.since), stream.clock.ns(m.until));
                    let since = if m.since == 0 { until } else { since };
                    (until, TraceItem::Missed(stream.cpu, MissedEvents { since, until, ..m }))
                }
            };
            // Within a CPU the order of the buffer counts, even where its clock steps back.
            *last = time.max(*last);
            self.waiting.insert((*last, i));
            self.heads[i] = Some(next);
            return;
        }
    }
}

impl Iterator for MergedStreams<'_> {
    type Item = TraceItem;

    fn next(&mut self) -> Option<TraceItem> {
        let (_, i) = self.waiting.pop_first()?;
        let next = self.heads[i].take();
        self.advance(i);
        if let Some(TraceItem::DecodedEvent(seen)) = &next {
            *self.taken.entry(seen.kind).or_default() += 1;
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftrace::format::Format;
    use crate::ftrace::page::Layout;

    const PAGE_LAYOUT: Layout = Layout { page_size: 64, commit: (8, 8), data: 16, big_endian: false };

    /// Pages with one event each, of type 7.
    fn stream(times: &[u64]) -> Vec<u8> {
        let page = |time: &u64| {
            let mut page = time.to_le_bytes().to_vec();
            page.extend(12u64.to_le_bytes());
            page.extend([2, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
            page.resize(64, 0);
            page
        };
        times.iter().flat_map(page).collect()
    }

    #[test]
    fn per_cpu_streams_are_merged_by_time() {
        let text = "name: jbd2_end_commit\nID: 7\nfield:int common_pid;offset:4;size:4;signed:1;\n";
        let decoder = Decoder::new(PAGE_LAYOUT, &[Format::parse("jbd2", text).unwrap()]);
        let (a, b) = (stream(&[10, 30, 50]), stream(&[20, 30, 70]));
        let clock = Clock { mult: 2, shift: 1, offset: 5 };
        let make = |cpu, bytes| Stream { cpu, pages: Pages::new(PAGE_LAYOUT, bytes), decoder: &decoder, clock };
        let all: Vec<(u64, u16)> = MergedStreams::new(vec![make(0, &a), make(1, &b)])
            .map(|next| match next {
                TraceItem::DecodedEvent(seen) => (seen.time_ns, seen.cpu),
                TraceItem::Missed(..) => panic!("nothing is missing"),
            })
            .collect();
        assert_eq!(all, [(15, 0), (25, 1), (35, 0), (35, 1), (55, 0), (75, 1)]);
    }
}
