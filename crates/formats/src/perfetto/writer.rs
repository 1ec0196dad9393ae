//! Writes a trace, with one call per item: tracks, slices, instants, counters, flows.
//!
//! All events belong to one sequence, so that names and repeated texts are interned: written once, then referred to by number. The tracks
//! are announced on a second one: a thread that is announced on the events' own sequence is taken for the writer of all of them, and every
//! command of a disk would be shown as that thread's. Times are CLOCK_BOOTTIME in ns, as ours and Android's are. Packets need not be in
//! time order (the trace processor sorts a file), but those of one track must be, with an end before a begin of the same time.

use super::fields::{clock_snapshot, debug_annotation, interned_data, packet, trace, track_descriptor, track_event};
use super::wire::Encode;
use std::collections::HashMap;
use std::io::{self, Write};

/// The sequence of the events; any number but 0.
const EVENTS_SEQUENCE: u64 = 1;

/// The sequence of the tracks.
const TRACKS_SEQUENCE: u64 = 2;

/// A row of the display, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Track(u64);

/// One moment on three clocks, so that the trace can be aligned with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// CLOCK_BOOTTIME, ns.
    pub boottime_ns: u64,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, ns.
    pub realtime_ns: u64,
}

/// The value of an annotation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Note<'a> {
    Unsigned(u64),
    Signed(i64),
    Double(f64),
    Bool(bool),
    /// A text that occurs once.
    Text(&'a str),
    /// A text that occurs often: stored once.
    Repeated(&'a str),
}

/// An arrow's end at a slice. Both ends carry the same number, which is unique to the arrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// It begins here, or ends at a slice of the same moment.
    Passes(u64),
    /// It ends here, later than it began.
    Ends(u64),
}

/// The content of a slice (or an instant).
#[derive(Debug, Clone, Copy, Default)]
pub struct Slice<'a> {
    pub name: &'a str,
    /// A class to filter by.
    pub category: &'a str,
    /// Slices with the same number are shown as belonging together.
    pub correlation: Option<u64>,
    pub flows: &'a [Flow],
    /// Annotations.
    pub notes: &'a [(&'a str, Note<'a>)],
}

/// Interned texts, with their numbers.
#[derive(Debug, Default)]
struct Texts(HashMap<String, u64>);

impl Texts {
    /// The number of a text; if it is new, it is added to `news` under `field`.
    fn intern(&mut self, text: &str, field: u32, news: &mut Vec<u8>) -> u64 {
        if let Some(&iid) = self.0.get(text) {
            return iid;
        }
        let iid = self.0.len() as u64 + 1;
        self.0.insert(text.into(), iid);
        news.message(field, |m| {
            m.varint(interned_data::IID, iid);
            m.bytes(interned_data::TEXT, text.as_bytes());
        });
        iid
    }
}

/// Writes a trace to `W`, which should be buffered: every packet is one write.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    tracks: u64,
    names: Texts,
    categories: Texts,
    note_names: Texts,
    note_texts: Texts,
    buffer: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// Those of `out`, as in all functions below.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self {
            out,
            tracks: 0,
            names: Texts::default(),
            categories: Texts::default(),
            note_names: Texts::default(),
            note_texts: Texts::default(),
            buffer: Vec::new(),
        };
        writer.write_packet(EVENTS_SEQUENCE, |p| {
            p.varint(packet::SEQUENCE_FLAGS, packet::INCREMENTAL_STATE_CLEARED);
            p.varint(packet::FIRST_PACKET_ON_SEQUENCE, 1);
            p.message(packet::TRACE_PACKET_DEFAULTS, |d| {
                d.varint(packet::TIMESTAMP_CLOCK_ID, clock_snapshot::BOOTTIME);
            });
        })?;
        Ok(writer)
    }

    fn write_packet(&mut self, sequence: u64, fill: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.message(trace::PACKET, |p| {
            p.varint(packet::TRUSTED_PACKET_SEQUENCE_ID, sequence);
            fill(p);
        });
        self.out.write_all(&self.buffer)
    }

    /// Records three clocks at one moment.
    pub fn write_clocks(&mut self, at: Clocks) -> io::Result<()> {
        self.write_packet(EVENTS_SEQUENCE, |p| {
            p.message(packet::CLOCK_SNAPSHOT, |m| {
                let clocks = [
                    (clock_snapshot::BOOTTIME, at.boottime_ns),
                    (clock_snapshot::MONOTONIC, at.monotonic_ns),
                    (clock_snapshot::REALTIME, at.realtime_ns),
                ];
                for (id, time) in clocks {
                    m.message(clock_snapshot::CLOCKS, |c| {
                        c.varint(clock_snapshot::CLOCK_ID, id);
                        c.varint(clock_snapshot::TIMESTAMP, time);
                    });
                }
                m.varint(clock_snapshot::PRIMARY_TRACE_CLOCK, clock_snapshot::BOOTTIME);
            });
        })
    }

    /// A process, under which its threads are shown.
    pub fn process(&mut self, pid: u32, name: &str) -> io::Result<Track> {
        self.track(None, None, |d| {
            d.message(track_descriptor::PROCESS, |m| {
                m.varint(track_descriptor::PROCESS_PID, pid.into());
                m.bytes(track_descriptor::PROCESS_NAME, name.as_bytes());
            });
        })
    }

    /// A thread of a process that was announced.
    pub fn thread(&mut self, process: Track, pid: u32, tid: u32, name: &str) -> io::Result<Track> {
        self.track(Some(process), None, |d| {
            d.message(track_descriptor::THREAD, |m| {
                m.varint(track_descriptor::THREAD_PID, pid.into());
                m.varint(track_descriptor::THREAD_TID, tid.into());
                m.bytes(track_descriptor::THREAD_NAME, name.as_bytes());
            });
        })
    }

    /// A named track under another, or at the top. Tracks of one parent are shown by rising `rank`; those of the same
    /// name are shown as one row.
    pub fn named(&mut self, parent: Option<Track>, name: &str, rank: u32) -> io::Result<Track> {
        self.track(parent, Some(rank), |d| d.bytes(track_descriptor::NAME, name.as_bytes()))
    }

    pub fn counter(&mut self, parent: Option<Track>, name: &str, rank: u32) -> io::Result<Track> {
        self.track(parent, Some(rank), |d| {
            d.bytes(track_descriptor::NAME, name.as_bytes());
            d.message(track_descriptor::COUNTER, |m| {
                m.varint(track_descriptor::COUNTER_UNIT, track_descriptor::UNIT_COUNT);
            });
        })
    }

    fn track(
        &mut self,
        parent: Option<Track>,
        rank: Option<u32>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<Track> {
        self.tracks += 1;
        let track = Track(self.tracks);
        self.write_packet(TRACKS_SEQUENCE, |p| {
            p.message(packet::TRACK_DESCRIPTOR, |d| {
                d.varint(track_descriptor::UUID, track.0);
                if let Some(parent) = parent {
                    d.varint(track_descriptor::PARENT_UUID, parent.0);
                }
                fill(d);
                // Without this, children are sorted by name, and the layers would not be shown from the application
                // down.
                d.varint(track_descriptor::CHILD_ORDERING, track_descriptor::EXPLICIT);
                if let Some(rank) = rank {
                    d.varint(track_descriptor::SIBLING_ORDER_RANK, rank.into());
                }
            });
        })?;
        Ok(track)
    }

    /// A slice begins.
    pub fn begin(&mut self, track: Track, time_ns: u64, slice: &Slice<'_>) -> io::Result<()> {
        self.write_event(track, time_ns, track_event::SLICE_BEGIN, slice)
    }

    /// The innermost open slice of a track ends.
    pub fn end(&mut self, track: Track, time_ns: u64) -> io::Result<()> {
        self.write_packet(EVENTS_SEQUENCE, |p| {
            p.varint(packet::TIMESTAMP, time_ns);
            p.varint(packet::SEQUENCE_FLAGS, packet::NEEDS_INCREMENTAL_STATE);
            p.message(packet::TRACK_EVENT, |e| {
                e.varint(track_event::TYPE, track_event::SLICE_END);
                e.varint(track_event::TRACK_UUID, track.0);
            });
        })
    }

    /// An event without duration happens.
    pub fn instant(&mut self, track: Track, time_ns: u64, slice: &Slice<'_>) -> io::Result<()> {
        self.write_event(track, time_ns, track_event::INSTANT, slice)
    }

    /// A counter has this value from now on.
    pub fn count(&mut self, track: Track, time_ns: u64, value: u64) -> io::Result<()> {
        self.write_packet(EVENTS_SEQUENCE, |p| {
            p.varint(packet::TIMESTAMP, time_ns);
            p.varint(packet::SEQUENCE_FLAGS, packet::NEEDS_INCREMENTAL_STATE);
            p.message(packet::TRACK_EVENT, |e| {
                e.varint(track_event::TYPE, track_event::COUNTER);
                e.varint(track_event::TRACK_UUID, track.0);
                e.varint(track_event::COUNTER_VALUE, value);
            });
        })
    }

    fn write_event(&mut self, track: Track, time_ns: u64, kind: u64, slice: &Slice<'_>) -> io::Result<()> {
        let mut news = Vec::new();
        let name = self.names.intern(slice.name, interned_data::EVENT_NAMES, &mut news);
        let category = self.categories.intern(slice.category, interned_data::EVENT_CATEGORIES, &mut news);
        let mut event = Vec::new();
        event.varint(track_event::TYPE, kind);
        event.varint(track_event::TRACK_UUID, track.0);
        event.varint(track_event::NAME_IID, name);
        event.varint(track_event::CATEGORY_IIDS, category);
        if let Some(id) = slice.correlation {
            event.varint(track_event::CORRELATION_ID, id);
        }
        for flow in slice.flows {
            match *flow {
                Flow::Passes(id) => event.fixed64(track_event::FLOW_IDS, id),
                Flow::Ends(id) => event.fixed64(track_event::TERMINATING_FLOW_IDS, id),
            }
        }
        for (name, note) in slice.notes {
            let name = self.note_names.intern(name, interned_data::DEBUG_ANNOTATION_NAMES, &mut news);
            let texts = &mut self.note_texts;
            event.message(track_event::DEBUG_ANNOTATIONS, |a| {
                a.varint(debug_annotation::NAME_IID, name);
                match *note {
                    Note::Unsigned(x) => a.varint(debug_annotation::UINT_VALUE, x),
                    // A negative int64 is its two's complement in protobuf.
                    Note::Signed(x) => a.varint(debug_annotation::INT_VALUE, x as u64),
                    Note::Double(x) => a.fixed64(debug_annotation::DOUBLE_VALUE, x.to_bits()),
                    Note::Bool(x) => a.varint(debug_annotation::BOOL_VALUE, x.into()),
                    Note::Text(x) => a.bytes(debug_annotation::STRING_VALUE, x.as_bytes()),
                    Note::Repeated(x) => {
                        let iid = texts.intern(x, interned_data::DEBUG_ANNOTATION_STRING_VALUES, &mut news);
                        a.varint(debug_annotation::STRING_VALUE_IID, iid);
                    }
                }
            });
        }
        self.write_packet(EVENTS_SEQUENCE, |p| {
            p.varint(packet::TIMESTAMP, time_ns);
            p.varint(packet::SEQUENCE_FLAGS, packet::NEEDS_INCREMENTAL_STATE);
            if !news.is_empty() {
                p.bytes(packet::INTERNED_DATA, &news);
            }
            p.bytes(packet::TRACK_EVENT, &event);
        })
    }

    /// Ends the trace: flushes the output and returns it.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}
