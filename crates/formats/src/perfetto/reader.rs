//! Reads a trace packet by packet, as far as [`super::fields`] has its fields. Bounded and pure: it borrows from the
//! bytes, follows no more than the four levels that these messages have, and never panics.

use super::fields::{clock_snapshot, debug_annotation, interned_data, packet, trace, track_descriptor, track_event};
use super::wire::{Fields, Value};

/// A packet of a trace.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Packet<'a> {
    /// Time, on the sequence's default clock.
    pub timestamp_ns: Option<u64>,
    /// The sequence, the scope of interned numbers.
    pub sequence: u64,
    /// Bits: 1: previously interned numbers are no longer valid, 2: they are needed.
    pub sequence_flags: u64,
    /// Texts interned by this packet: the field of `InternedData`, the number, the text.
    pub interned: Vec<(u32, u64, String)>,
    /// Its content.
    pub body: Body<'a>,
}

/// The content of a packet.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Body<'a> {
    /// Nothing known.
    #[default]
    None,
    Track(TrackDescriptor),
    /// Something on a track.
    Event(TrackEvent),
    /// Clocks at one moment: (id, ns).
    Clocks(Vec<(u64, u64)>),
    /// Another kind of packet: its field and its message.
    Other(u32, &'a [u8]),
}

/// A track, as announced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
// The names are those of TrackDescriptor.
pub struct TrackDescriptor {
    pub uuid: u64,
    pub parent_uuid: u64,
    pub name: String,
    pub pid: Option<u64>,
    pub tid: Option<u64>,
    pub counter: bool,
    pub rank: u64,
}

/// Something on a track.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
// The names are those of TrackEvent.
pub struct TrackEvent {
    pub kind: u64,
    pub track_uuid: u64,
    pub name_iid: u64,
    pub category_iids: Vec<u64>,
    pub flow_ids: Vec<u64>,
    pub terminating_flow_ids: Vec<u64>,
    pub correlation_id: Option<u64>,
    pub counter_value: Option<u64>,
    /// The number of the annotation's name, and its value: a number's bits, or the text.
    pub annotations: Vec<(u64, Annotation)>,
}

/// The value of an annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Annotation {
    /// A number, a boolean, or the bits of a floating-point or negative number.
    Number(u64),
    Text(String),
    /// The number of a previously interned text.
    Interned(u64),
}

/// A trace that could not be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokenTrace {
    /// The offset of the first byte that cannot be parsed.
    pub at: usize,
}

impl std::fmt::Display for BrokenTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no Perfetto packet at byte {}: the trace is truncated or damaged", self.at)
    }
}

impl std::error::Error for BrokenTrace {}

/// Iterates over the packets of a trace. A packet with broken content is one error, after which iteration continues;
/// where no further packet can be found, iteration ends with an error.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    fields: Fields<'a>,
    len: usize,
    failed: bool,
}

impl<'a> Reader<'a> {
    /// Reads the trace in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { fields: Fields::new(bytes), len: bytes.len(), failed: false }
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Packet<'a>, BrokenTrace>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.len - self.fields.rest().len();
            match self.fields.next() {
                Some((trace::PACKET, Value::Bytes(bytes))) => {
                    return Some(read_packet(bytes).ok_or(BrokenTrace { at }));
                }
                Some(_) => {}
                None if self.fields.failed() && !self.failed => {
                    self.failed = true;
                    return Some(Err(BrokenTrace { at }));
                }
                None => return None,
            }
        }
    }
}

/// Calls `each` for every field of a message; `None` if it is broken.
fn for_each_field<'a>(bytes: &'a [u8], mut each: impl FnMut(u32, Value<'a>)) -> Option<()> {
    let mut all = Fields::new(bytes);
    for (field, value) in all.by_ref() {
        each(field, value);
    }
    (!all.failed()).then_some(())
}

fn read_packet(bytes: &[u8]) -> Option<Packet<'_>> {
    let mut out = Packet::default();
    let mut whole = Some(());
    for_each_field(bytes, |field, value| match field {
        packet::TIMESTAMP => out.timestamp_ns = Some(value.number()),
        packet::TRUSTED_PACKET_SEQUENCE_ID => out.sequence = value.number(),
        packet::SEQUENCE_FLAGS => out.sequence_flags = value.number(),
        packet::INTERNED_DATA => whole = whole.and(read_interned(value.bytes(), &mut out.interned)),
        packet::TRACK_DESCRIPTOR => match read_track(value.bytes()) {
            Some(track) => out.body = Body::Track(track),
            None => whole = None,
        },
        packet::TRACK_EVENT => match read_event(value.bytes()) {
            Some(event) => out.body = Body::Event(event),
            None => whole = None,
        },
        packet::CLOCK_SNAPSHOT => match read_clocks(value.bytes()) {
            Some(clocks) => out.body = Body::Clocks(clocks),
            None => whole = None,
        },
        _ => {
            if let (Body::None, Value::Bytes(bytes)) = (&out.body, value) {
                out.body = Body::Other(field, bytes);
            }
        }
    })?;
    whole.map(|()| out)
}

fn read_interned(bytes: &[u8], out: &mut Vec<(u32, u64, String)>) -> Option<()> {
    let mut whole = Some(());
    for_each_field(bytes, |kind, value| {
        let (mut iid, mut text) = (0, String::new());
        whole = whole.and(for_each_field(value.bytes(), |field, value| match field {
            interned_data::IID => iid = value.number(),
            interned_data::TEXT => text = value.text(),
            _ => {}
        }));
        out.push((kind, iid, text));
    })?;
    whole
}

fn read_clocks(bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    let mut out = Vec::new();
    let mut whole = Some(());
    for_each_field(bytes, |field, value| {
        if field == clock_snapshot::CLOCKS {
            let mut clock = (0, 0);
            whole = whole.and(for_each_field(value.bytes(), |field, value| match field {
                clock_snapshot::CLOCK_ID => clock.0 = value.number(),
                clock_snapshot::TIMESTAMP => clock.1 = value.number(),
                _ => {}
            }));
            out.push(clock);
        }
    })?;
    whole.map(|()| out)
}

fn read_track(bytes: &[u8]) -> Option<TrackDescriptor> {
    let mut out = TrackDescriptor::default();
    let mut whole = Some(());
    for_each_field(bytes, |field, value| match field {
        track_descriptor::UUID => out.uuid = value.number(),
        track_descriptor::PARENT_UUID => out.parent_uuid = value.number(),
        track_descriptor::NAME => out.name = value.text(),
        track_descriptor::COUNTER => out.counter = true,
        track_descriptor::SIBLING_ORDER_RANK => out.rank = value.number(),
        track_descriptor::PROCESS => {
            whole = whole.and(for_each_field(value.bytes(), |field, value| match field {
                track_descriptor::PROCESS_PID => out.pid = Some(value.number()),
                track_descriptor::PROCESS_NAME => out.name = value.text(),
                _ => {}
            }));
        }
        track_descriptor::THREAD => {
            whole = whole.and(for_each_field(value.bytes(), |field, value| match field {
                track_descriptor::THREAD_PID => out.pid = Some(value.number()),
                track_descriptor::THREAD_TID => out.tid = Some(value.number()),
                track_descriptor::THREAD_NAME => out.name = value.text(),
                _ => {}
            }));
        }
        _ => {}
    })?;
    whole.map(|()| out)
}

fn read_event(bytes: &[u8]) -> Option<TrackEvent> {
    let mut out = TrackEvent::default();
    let mut whole = Some(());
    for_each_field(bytes, |field, value| match field {
        track_event::TYPE => out.kind = value.number(),
        track_event::TRACK_UUID => out.track_uuid = value.number(),
        track_event::NAME_IID => out.name_iid = value.number(),
        track_event::CATEGORY_IIDS => out.category_iids.push(value.number()),
        track_event::FLOW_IDS => out.flow_ids.push(value.number()),
        track_event::TERMINATING_FLOW_IDS => out.terminating_flow_ids.push(value.number()),
        track_event::CORRELATION_ID => out.correlation_id = Some(value.number()),
        track_event::COUNTER_VALUE => out.counter_value = Some(value.number()),
        track_event::DEBUG_ANNOTATIONS => {
            let (mut name, mut note) = (0, Annotation::Number(0));
            whole = whole.and(for_each_field(value.bytes(), |field, value| match field {
                debug_annotation::NAME_IID => name = value.number(),
                debug_annotation::STRING_VALUE => note = Annotation::Text(value.text()),
                debug_annotation::STRING_VALUE_IID => note = Annotation::Interned(value.number()),
                debug_annotation::BOOL_VALUE
                | debug_annotation::UINT_VALUE
                | debug_annotation::INT_VALUE
                | debug_annotation::DOUBLE_VALUE => note = Annotation::Number(value.number()),
                _ => {}
            }));
            out.annotations.push((name, note));
        }
        _ => {}
    })?;
    whole.map(|()| out)
}
