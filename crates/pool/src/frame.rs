//! The wire format between coordinator and node: frames of several requests, or of several replies, or a node's report.
//!
//! A frame is a header, an entry for each request or reply, then their data in the same order, then a checksum. A
//! coordinator's write carries one frame; a node's one or a few. All fields are little-endian.
//!
//! ```text
//!  head, 40 bytes                                       entry of a request, 16 bytes
//!   0 magic      u32  "FPL1"                             0 operation u8
//!   4 version    u8                                      1 flags     u8   bit 0: durable before it is answered, bit 1: unchecked
//!   5 kind       u8   1 requests, 2 replies, 3 report                     bits 2 to 7: number of ranges in shared memory
//!                                                        2 tag       u16  the coordinator's identifier
//!   6 count      u16  entries                            4 length    u32
//!   8 body_bytes u32  entries, data and checksum         8 offset    u64
//!  12 epoch      u64  of the coordinator
//!  20 sequence   u64  frames since the connection began  entry of a reply, 12 bytes
//!  28 granted    u16  maximum of outstanding requests    0 status    u8
//!  30 queued     u16  requests waiting at the node       1 flags     u8   bit 0: the data is in shared memory
//!  32 service_us u32  mean time in the store             2 tag       u16
//!  36 checksum   u32  CRC-32C of the 36 bytes before     4 length    u32  of the data that follows
//!                                                        8 checksum  u32  CRC-32C of that data; of a flush the low half of
//!                                                                         the sequence number of the store's header
//! ```
//!
//! The data of a reply with an error is the offset in the store (u64) of the first block that is known to be at fault, if
//! there is one.
//!
//! The body ends with a CRC-32C of everything but the replies' data, which has separate checksums that travel from the
//! store to the client. So a bit flip anywhere is detected, and no byte is summed twice.
//!
//! A node reports at a fixed interval, whatever its medium does, so that a slow node differs from one that is gone. A
//! report has one entry of 48 bytes:
//!
//! ```text
//!   0 progress       u64  changes when a request was served, or data reached the medium
//!   8 received_bytes u64  of the coordinator's frames, over this connection
//!  16 dirty_bytes    u64  written, and not known to be on the medium
//!  24 damaged_blocks u64  blocks that do not match their checksums, as far as is known
//!  32 flushing_ms    u32  time since the current flush began; 0: there is none
//!  36 flags          u32  bit 0: writes wait for the medium, bit 1: the medium is full, bit 2: the medium failed
//!  40 faults         u64  errors of the medium and damaged reads since the node began
//! ```
//!
//! If both ends share memory ([`crate::shm`]), a request may name ranges there, each with its offset (u64) and length
//! (u32): they replace its data in the frame, and hold what it writes, or receive what it reads.
//!
//! The last three fields before the header checksum are set by the node, and zero in requests. The coordinator uses them
//! for tuning and for statistics, and they cost no extra packet.

use crate::shm::{EXTENTS_MAX, Extent};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use nbd::buffer::LARGE_BYTES;
use nbd::inbox::Inbox;
use nbd::outbox::{OWN_SLICE_BYTES_MIN, Outbox};

/// The kind of a frame of requests.
const KIND_REQUESTS: u8 = 1;
/// The kind of a frame of replies.
const KIND_REPLIES: u8 = 2;
/// The kind of a report.
const KIND_REPORT: u8 = 3;
/// `FPL1`.
const MAGIC: u32 = u32::from_le_bytes(*b"FPL1");
/// 1: the first. 2: [`Operation::Map`]. 3: several connections in a session (`hello`). 4: [`Status::Lost`], [`Report`],
/// [`Operation::Verify`], and a node that asks to wait for its welcome.
pub const VERSION: u8 = 4;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 40;
/// Bytes of a request's entry.
pub const REQUEST_BYTES: usize = 16;
/// Bytes of a reply's entry.
pub const REPLY_BYTES: usize = 12;
/// Bytes of a report's entry.
pub const REPORT_BYTES: usize = 48;
/// The maximum number of entries in a frame: the number of tags.
pub const ENTRIES_MAX: usize = 4096;
/// The maximum body; a peer that announces more does not speak this protocol.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// The maximum data of one request; a longer one is split.
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// The maximum range of one request to verify.
pub const VERIFY_BYTES_MAX: u32 = 4 << 20;
/// The maximum number of stretches in the reply to a map request; the rest needs another request.
pub const STRETCHES_MAX: usize = 8192;
/// Bytes of one stretch.
const STRETCH_BYTES: usize = 8;

// The tables above.
const _: () = assert!(HEADER_BYTES == 4 + 1 + 1 + 2 + 4 + 8 + 8 + 2 + 2 + 4 + 4);
const _: () = assert!(REQUEST_BYTES == 1 + 1 + 2 + 4 + 8 && REPLY_BYTES == 1 + 1 + 2 + 4 + 4);
const _: () = assert!(REPORT_BYTES == 4 * 8 + 2 * 4 + 8);
const _: () = assert!(ENTRIES_MAX <= u16::MAX as usize && BODY_BYTES_MAX <= u32::MAX as usize);
// All requests with all their ranges, or as many as carry the data of two, fit into a frame.
const _: () = assert!(ENTRIES_MAX * (REQUEST_BYTES + EXTENTS_MAX * 12) + 2 * DATA_BYTES_MAX + 4 <= BODY_BYTES_MAX);
const _: () = assert!(STRETCHES_MAX * STRETCH_BYTES <= DATA_BYTES_MAX);

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// Read bytes of the store.
    Read = 1,
    /// Write the data of the request.
    Write = 2,
    /// Make all acknowledged writes durable.
    Flush = 3,
    /// The range's content is no longer needed and reads as zeroes.
    Trim = 4,
    /// Report which parts of the range hold data: the reply's data is a list of [`Stretch`]es.
    Map = 5,
    /// Read the range from the medium and compare it with its checksums, at most [`VERIFY_BYTES_MAX`]: the reply's data is a
    /// list of [`BadBlock`]s.
    Verify = 6,
}

impl Operation {
    const ALL: [Self; 6] = [Self::Read, Self::Write, Self::Flush, Self::Trim, Self::Map, Self::Verify];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| *operation as u8 == code)
    }
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Status {
    #[error("done")]
    Done = 0,
    #[error("the node's medium failed")]
    Io = 1,
    /// A block does not match its checksum.
    #[error("a block of the node is damaged")]
    Damaged = 2,
    /// The range ends beyond the store.
    #[error("the range ends beyond the node's store")]
    Range = 3,
    #[error("the node's medium is full")]
    Full = 4,
    /// A flush failed, now or earlier: acknowledged writes may be lost.
    #[error("a flush failed, and acknowledged writes may be lost")]
    Lost = 5,
}

impl Status {
    const ALL: [Self; 6] = [Self::Done, Self::Io, Self::Damaged, Self::Range, Self::Full, Self::Lost];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|status| *status as u8 == code)
    }
}

/// A part of a range that is all data, or never written or trimmed. On the wire its length and 1 if it is a hole, u32 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// Bytes, at least one.
    pub length: u32,
    /// Whether it occupies no space, and reads as zeroes.
    pub hole: bool,
}

impl Stretch {
    /// Appends it to a reply's data.
    pub fn put(self, out: &mut Vec<u8>) {
        out.extend(self.length.to_le_bytes());
        out.extend(u32::from(self.hole).to_le_bytes());
    }

    /// Parses the stretches of a reply: at least one, and together no longer than the requested range of `length` bytes.
    /// `None` if they are invalid.
    pub fn parse_all(data: &[u8], length: u32) -> Option<Vec<Self>> {
        let mut left = length;
        let whole = !data.is_empty() && data.len().is_multiple_of(STRETCH_BYTES);
        let stretch = |mut bytes: &[u8]| {
            let stretch = Self { length: bytes.get_u32_le(), hole: bytes.get_u32_le() & 1 != 0 };
            left = left.checked_sub(stretch.length)?;
            (stretch.length > 0).then_some(stretch)
        };
        if whole { data.chunks_exact(STRETCH_BYTES).map(stretch).collect() } else { None }
    }
}

/// What a request waits for at the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitClass {
    /// A read: for data that is not in the node's memory.
    Read,
    /// A plain write: for room in the node's memory.
    Write,
    /// A flush, or a change that has to be durable or takes space away: for the medium.
    Sync,
}

/// A block that was found bad by [`Operation::Verify`]. On the wire its offset (u64), and 1 if it cannot be read (u32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadBlock {
    /// Its offset in the store.
    pub offset: u64,
    /// Whether it cannot be read; otherwise it does not match its checksum.
    pub is_unreadable: bool,
}

impl BadBlock {
    /// Bytes of one.
    const ENTRY_BYTES: usize = 12;

    /// Appends it to a reply's data.
    pub fn put(self, out: &mut Vec<u8>) {
        out.extend(self.offset.to_le_bytes());
        out.extend(u32::from(self.is_unreadable).to_le_bytes());
    }

    /// Parses those of a reply; `None` if they are invalid.
    pub fn parse_all(data: &[u8]) -> Option<Vec<Self>> {
        let block = |mut bytes: &[u8]| Self { offset: bytes.get_u64_le(), is_unreadable: bytes.get_u32_le() & 1 != 0 };
        let whole = data.len().is_multiple_of(Self::ENTRY_BYTES);
        whole.then(|| data.chunks_exact(Self::ENTRY_BYTES).map(block).collect())
    }
}

/// A request. The data of a write is in [`Requests::data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub operation: Operation,
    /// Whether to make it durable before replying.
    pub durable: bool,
    /// A read for which no checksum is computed, neither of the blocks nor of the reply: to measure the cost of checksums.
    pub unchecked: bool,
    /// The number of ranges of shared memory that replace its data: they hold what it writes, or receive what it reads.
    pub extent_count: u8,
    /// The coordinator's identifier of the request.
    pub tag: u16,
    /// Bytes.
    pub length: u32,
    /// Offset in the node's store.
    pub offset: u64,
}

impl Request {
    /// What it waits for.
    pub fn class(&self) -> WaitClass {
        match self.operation {
            Operation::Read | Operation::Map | Operation::Verify => WaitClass::Read,
            Operation::Write if !self.durable => WaitClass::Write,
            Operation::Write | Operation::Flush | Operation::Trim => WaitClass::Sync,
        }
    }

    /// Whether it modifies nothing, and makes nothing durable.
    pub fn is_read_only(&self) -> bool {
        matches!(self.operation, Operation::Read | Operation::Map | Operation::Verify)
    }

    fn data_bytes(&self) -> usize {
        match self.operation {
            _ if self.extent_count > 0 => Extent::encoded_bytes(self.extent_count),
            Operation::Write => self.length as usize,
            _ => 0,
        }
    }
}

/// A reply without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    pub status: Status,
    /// Whether the data is in the memory that the request named.
    pub placed: bool,
    /// The coordinator's identifier of the request.
    pub tag: u16,
    /// Bytes of data.
    pub length: u32,
    /// CRC-32C of the data, as stored by the node.
    pub checksum: u32,
}

impl Reply {
    fn data_bytes(&self) -> usize {
        if self.placed { 0 } else { self.length as usize }
    }
}

/// The fields of a frame's header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrameHeader {
    pub epoch: u64,
    /// Frames since the connection began.
    pub sequence: u64,
    /// From a node: the maximum number of outstanding requests. From the coordinator: the number of replies that a frame
    /// should collect while more are pending (0: none).
    pub granted: u16,
    /// Requests waiting at the node.
    pub queued: u16,
    /// Mean time in the store of the requests answered in this frame.
    pub service_us: u32,
}

/// The state of a node, which it sends at an interval of its coordinator's choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Changes when a request was served, or data reached the medium.
    pub progress: u64,
    /// Bytes of the coordinator's frames received over this connection.
    pub received_bytes: u64,
    /// Bytes written, and not known to be on the medium.
    pub dirty_bytes: u64,
    /// Blocks that do not match their checksums, as far as is known.
    pub damaged_blocks: u64,
    /// Errors of the medium and damaged reads since the node began.
    pub faults: u64,
    /// Milliseconds since the current flush began; 0: there is none.
    pub flushing_ms: u32,
    /// Whether writes wait until earlier ones have reached the medium.
    pub writes_wait: bool,
    /// Whether the last write failed since the medium is full.
    pub is_full: bool,
    /// Whether the last access of the medium failed.
    pub has_failed: bool,
}

impl Report {
    fn flags(&self) -> u32 {
        u32::from(self.writes_wait) | u32::from(self.is_full) << 1 | u32::from(self.has_failed) << 2
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// From the coordinator: requests, each with its data (empty unless it writes).
    Requests(FrameHeader, Vec<(Request, Bytes)>),
    /// From a node: replies, each with its data, whose checksums the receiver must verify.
    Replies(FrameHeader, Vec<(Reply, Bytes)>),
    /// From a node: its state.
    Report(FrameHeader, Report),
}

/// Why bytes are not a valid frame. The connection is unusable afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not the first bytes of a frame.
    #[error("not a frame of the pool protocol")]
    Magic,
    /// Another version.
    #[error(
        "the peer speaks version {0} of the pool's protocol, and this program version {VERSION}; use the same release on both"
    )]
    Version(u8),
    #[error("a frame was corrupted in transit")]
    Checksum,
    /// The checksums are right, but the content is invalid.
    #[error("invalid frame: {0}")]
    Invalid(&'static str),
}

/// The output of a frame writer.
pub trait FrameOutput {
    /// The buffer for small parts.
    fn small(&mut self) -> &mut BytesMut;
    /// Appends data that may be sent without copying, after what was written so far.
    fn data(&mut self, data: &Bytes);
}

impl FrameOutput for Outbox {
    fn small(&mut self) -> &mut BytesMut {
        self.tail()
    }

    fn data(&mut self, data: &Bytes) {
        // Data that is copied anyway is not shared first, which would take additional memory.
        if data.len() < OWN_SLICE_BYTES_MIN {
            self.tail().put_slice(data);
        } else {
            self.put(data.clone());
        }
    }
}

impl FrameOutput for BytesMut {
    fn small(&mut self) -> &mut BytesMut {
        self
    }

    fn data(&mut self, data: &Bytes) {
        self.put_slice(data);
    }
}

/// Writes a frame of requests to `out`. `data` returns each write's data, in parts.
pub fn put_requests<'d>(
    out: &mut impl FrameOutput,
    head: &FrameHeader,
    requests: &[Request],
    data: impl Fn(usize) -> &'d [Bytes],
) {
    let data_bytes: usize = requests.iter().map(Request::data_bytes).sum();
    let body = requests.len() * REQUEST_BYTES + data_bytes + 4;
    let small = out.small();
    put_header(small, head, KIND_REQUESTS, requests.len(), body);
    let begin = small.len();
    for request in requests {
        assert!(usize::from(request.extent_count) <= EXTENTS_MAX, "{} ranges", request.extent_count);
        small.put_u8(request.operation as u8);
        small.put_u8(u8::from(request.durable) | u8::from(request.unchecked) << 1 | request.extent_count << 2);
        small.put_u16_le(request.tag);
        small.put_u32_le(request.length);
        small.put_u64_le(request.offset);
    }
    debug_assert_eq!(small.len() - begin, requests.len() * REQUEST_BYTES);
    let mut checksum = crc32c::crc32c(&small[begin..]);
    for (nth, request) in requests.iter().enumerate().filter(|(_, r)| r.data_bytes() > 0) {
        debug_assert_eq!(data(nth).iter().map(Bytes::len).sum::<usize>(), request.data_bytes());
        for part in data(nth) {
            checksum = crc32c::crc32c_append(checksum, part);
            out.data(part);
        }
    }
    out.small().put_u32_le(checksum);
}

/// Writes a frame of replies to `out`. Their data is concatenated in `data`, except for that of the replies in `large`.
pub fn put_replies(
    out: &mut impl FrameOutput,
    head: &FrameHeader,
    replies: &[Reply],
    data: &[u8],
    large: &[(usize, Bytes)],
) {
    let data_bytes = data.len() + large.iter().map(|(_, data)| data.len()).sum::<usize>();
    let small = out.small();
    put_header(small, head, KIND_REPLIES, replies.len(), replies.len() * REPLY_BYTES + data_bytes + 4);
    let begin = small.len();
    for reply in replies {
        small.put_u8(reply.status as u8);
        small.put_u8(u8::from(reply.placed));
        small.put_u16_le(reply.tag);
        small.put_u32_le(reply.length);
        small.put_u32_le(reply.checksum);
    }
    debug_assert_eq!(small.len() - begin, replies.len() * REPLY_BYTES);
    debug_assert_eq!(data_bytes, replies.iter().map(Reply::data_bytes).sum::<usize>());
    let checksum = crc32c::crc32c(&small[begin..]);
    let (mut rest, mut done) = (data, 0);
    for (nth, data) in large {
        let before: usize = replies[done..*nth].iter().map(Reply::data_bytes).sum();
        let (now, later) = rest.split_at(before);
        out.small().put_slice(now);
        out.data(data);
        (rest, done) = (later, nth + 1);
    }
    let small = out.small();
    small.put_slice(rest);
    small.put_u32_le(checksum);
}

/// Writes a node's report to `out`.
pub fn put_report(out: &mut impl FrameOutput, head: &FrameHeader, report: &Report) {
    let small = out.small();
    put_header(small, head, KIND_REPORT, 1, REPORT_BYTES + 4);
    let begin = small.len();
    small.put_u64_le(report.progress);
    small.put_u64_le(report.received_bytes);
    small.put_u64_le(report.dirty_bytes);
    small.put_u64_le(report.damaged_blocks);
    small.put_u32_le(report.flushing_ms);
    small.put_u32_le(report.flags());
    small.put_u64_le(report.faults);
    assert_eq!(small.len() - begin, REPORT_BYTES);
    let checksum = crc32c::crc32c(&small[begin..]);
    small.put_u32_le(checksum);
}

/// Writes the header of a frame with a body of `body` bytes.
fn put_header(out: &mut BytesMut, head: &FrameHeader, kind: u8, count: usize, body: usize) {
    assert!(count <= ENTRIES_MAX, "{count} entries");
    debug_assert!(body <= BODY_BYTES_MAX, "{body} bytes");
    let begin = out.len();
    out.put_u32_le(MAGIC);
    out.put_u8(VERSION);
    out.put_u8(kind);
    out.put_u16_le(count as u16);
    out.put_u32_le(body as u32);
    out.put_u64_le(head.epoch);
    out.put_u64_le(head.sequence);
    out.put_u16_le(head.granted);
    out.put_u16_le(head.queued);
    out.put_u32_le(head.service_us);
    let checksum = crc32c::crc32c(&out[begin..]);
    out.put_u32_le(checksum);
    assert_eq!(out.len() - begin, HEADER_BYTES);
}

/// Takes the next frame from `input`, if it is complete. Data are slices of the input, not copies.
pub fn take(input: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let Some(front) = parse_header(input)? else { return Ok(None) };
    let length = HEADER_BYTES + front.body_bytes;
    if input.len() < length {
        input.reserve(length - input.len());
        return Ok(None);
    }
    parse_body(front, input.split_to(length).freeze()).map(Some)
}

/// As [`take`], for a connection's inbox: a large frame is read directly into its final buffer.
pub fn take_from_inbox(input: &mut Inbox) -> Result<Option<Frame>, FrameError> {
    if input.expects_payload() {
        return Ok(None);
    }
    if let Some(frame) = input.take_payload() {
        let front = parse_header(&frame)?.ok_or(FrameError::Invalid("no header"))?;
        return parse_body(front, frame).map(Some);
    }
    let Some(front) = parse_header(input.front())? else { return Ok(None) };
    let length = HEADER_BYTES + front.body_bytes;
    if input.front().len() >= length {
        return parse_body(front, input.split(length)).map(Some);
    }
    if length >= LARGE_BYTES {
        input.expect_payload(length);
    }
    Ok(None)
}

/// The parsed header of a frame.
struct ParsedHeader {
    head: FrameHeader,
    kind: u8,
    count: usize,
    entry_bytes: usize,
    body_bytes: usize,
}

/// Parses the header at the front, if it is complete.
fn parse_header(input: &[u8]) -> Result<Option<ParsedHeader>, FrameError> {
    if input.len() < HEADER_BYTES {
        // Rejected as early as possible: a stranger may never send a whole header.
        let known = input.len().min(4);
        return if input[..known] == MAGIC.to_le_bytes()[..known] { Ok(None) } else { Err(FrameError::Magic) };
    }
    let mut fields = &input[..HEADER_BYTES];
    if fields.get_u32_le() != MAGIC {
        return Err(FrameError::Magic);
    }
    let version = fields.get_u8();
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let (kind, count, body_bytes) = (fields.get_u8(), usize::from(fields.get_u16_le()), fields.get_u32_le() as usize);
    let head = FrameHeader {
        epoch: fields.get_u64_le(),
        sequence: fields.get_u64_le(),
        granted: fields.get_u16_le(),
        queued: fields.get_u16_le(),
        service_us: fields.get_u32_le(),
    };
    if fields.get_u32_le() != crc32c::crc32c(&input[..36]) {
        return Err(FrameError::Checksum);
    }
    let entry_bytes = match kind {
        KIND_REQUESTS => REQUEST_BYTES,
        KIND_REPLIES => REPLY_BYTES,
        KIND_REPORT => REPORT_BYTES,
        _ => return Err(FrameError::Invalid("unknown kind")),
    };
    if count > ENTRIES_MAX || body_bytes > BODY_BYTES_MAX || body_bytes < count * entry_bytes + 4 {
        return Err(FrameError::Invalid("invalid size"));
    }
    Ok(Some(ParsedHeader { head, kind, count, entry_bytes, body_bytes }))
}

/// Parses the rest of a complete frame.
fn parse_body(front: ParsedHeader, mut body: Bytes) -> Result<Frame, FrameError> {
    let ParsedHeader { head, kind, count, entry_bytes, body_bytes } = front;
    body.advance(HEADER_BYTES);
    let checksum = body.split_off(body_bytes - 4).get_u32_le();
    let summed = if kind == KIND_REQUESTS { &body[..] } else { &body[..count * entry_bytes] };
    if crc32c::crc32c(summed) != checksum {
        return Err(FrameError::Checksum);
    }
    let entries = body.split_to(count * entry_bytes);
    match kind {
        KIND_REQUESTS => parse_requests(head, &entries, body),
        KIND_REPORT => parse_report(head, &entries, &body),
        _ => parse_replies(head, &entries, body),
    }
}

fn parse_report(head: FrameHeader, mut entry: &[u8], rest: &[u8]) -> Result<Frame, FrameError> {
    if entry.len() != REPORT_BYTES || !rest.is_empty() {
        return Err(FrameError::Invalid("not one report"));
    }
    let (progress, received_bytes) = (entry.get_u64_le(), entry.get_u64_le());
    let (dirty_bytes, damaged_blocks) = (entry.get_u64_le(), entry.get_u64_le());
    let (flushing_ms, flags, faults) = (entry.get_u32_le(), entry.get_u32_le(), entry.get_u64_le());
    let [writes_wait, is_full, has_failed] = [1, 2, 4].map(|bit| flags & bit != 0);
    let report = Report {
        progress,
        received_bytes,
        dirty_bytes,
        damaged_blocks,
        faults,
        flushing_ms,
        writes_wait,
        is_full,
        has_failed,
    };
    if flags == report.flags() { Ok(Frame::Report(head, report)) } else { Err(FrameError::Invalid("unknown flags")) }
}

fn parse_requests(head: FrameHeader, mut entries: &[u8], mut data: Bytes) -> Result<Frame, FrameError> {
    let mut requests = Vec::with_capacity(entries.len() / REQUEST_BYTES);
    while !entries.is_empty() {
        let operation = Operation::from_code(entries.get_u8()).ok_or(FrameError::Invalid("unknown operation"))?;
        let flags = entries.get_u8();
        let (durable, unchecked, places) = (flags & 1 != 0, flags & 2 != 0, flags >> 2);
        let (tag, length, offset) = (entries.get_u16_le(), entries.get_u32_le(), entries.get_u64_le());
        let request = Request { operation, durable, unchecked, extent_count: places, tag, length, offset };
        requests.push((request, split_data(&mut data, request.data_bytes())?));
    }
    if data.is_empty() { Ok(Frame::Requests(head, requests)) } else { Err(FrameError::Invalid("trailing data")) }
}

fn parse_replies(head: FrameHeader, mut entries: &[u8], mut data: Bytes) -> Result<Frame, FrameError> {
    let mut replies = Vec::with_capacity(entries.len() / REPLY_BYTES);
    while !entries.is_empty() {
        let status = Status::from_code(entries.get_u8()).ok_or(FrameError::Invalid("unknown status"))?;
        let placed = entries.get_u8() & 1 != 0;
        let (tag, length, checksum) = (entries.get_u16_le(), entries.get_u32_le(), entries.get_u32_le());
        let reply = Reply { status, placed, tag, length, checksum };
        replies.push((reply, split_data(&mut data, reply.data_bytes())?));
    }
    if data.is_empty() { Ok(Frame::Replies(head, replies)) } else { Err(FrameError::Invalid("trailing data")) }
}

fn split_data(data: &mut Bytes, length: usize) -> Result<Bytes, FrameError> {
    if data.len() < length { Err(FrameError::Invalid("data is missing")) } else { Ok(data.split_to(length)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> impl Strategy<Value = (Request, Vec<u8>)> {
        let operation = prop::sample::select(&Operation::ALL[..]);
        let flags = (any::<bool>(), any::<bool>(), 0_u8..4);
        (operation, flags, any::<u16>(), 0_u32..5000, any::<u64>()).prop_map(
            |(operation, (durable, unchecked, places), tag, length, offset)| {
                let request = Request { operation, durable, unchecked, extent_count: places, tag, length, offset };
                (request, vec![tag as u8; request.data_bytes()])
            },
        )
    }

    fn reply() -> impl Strategy<Value = (Reply, Vec<u8>)> {
        let status = prop::sample::select(&Status::ALL[..]);
        let data = (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..600));
        (status, any::<u16>(), data).prop_map(|(status, tag, (placed, data))| {
            let (length, checksum) = (data.len() as u32, crc32c::crc32c(&data));
            (Reply { status, placed, tag, length, checksum }, if placed { Vec::new() } else { data })
        })
    }

    const TEST_HEADER: FrameHeader = FrameHeader { epoch: 7, sequence: 1, granted: 64, queued: 3, service_us: 12 };

    fn reported() -> impl Strategy<Value = Report> {
        let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>());
        (numbers, any::<[bool; 3]>()).prop_map(|(numbers, [writes_wait, is_full, has_failed])| {
            let (progress, received_bytes, dirty_bytes, damaged_blocks, faults, flushing_ms) = numbers;
            Report {
                progress,
                received_bytes,
                dirty_bytes,
                damaged_blocks,
                faults,
                flushing_ms,
                writes_wait,
                is_full,
                has_failed,
            }
        })
    }

    fn written(requests: &[(Request, Vec<u8>)], replies: &[(Reply, Vec<u8>)]) -> BytesMut {
        let (mut out, head) = (BytesMut::new(), TEST_HEADER);
        let entries: Vec<Request> = requests.iter().map(|r| r.0).collect();
        let data: Vec<[Bytes; 1]> = requests.iter().map(|(_, data)| [Bytes::copy_from_slice(data)]).collect();
        put_requests(&mut out, &head, &entries, |nth| &data[nth]);
        let entries: Vec<Reply> = replies.iter().map(|r| r.0).collect();
        let data: Vec<u8> = replies.iter().flat_map(|r| r.1.iter().copied()).collect();
        put_replies(&mut out, &head, &entries, &data, &[]);
        out
    }

    #[test]
    fn bad_blocks_are_read_as_written() {
        let (mut data, blocks) = (Vec::new(), [(4096, false), (u64::MAX, true)]);
        let blocks = blocks.map(|(offset, is_unreadable)| BadBlock { offset, is_unreadable });
        blocks.iter().for_each(|block| block.put(&mut data));
        assert_eq!(BadBlock::parse_all(&data).as_deref(), Some(&blocks[..]));
        assert_eq!((BadBlock::parse_all(&data[1..]), BadBlock::parse_all(&[])), (None, Some(Vec::new())));
    }

    #[test]
    fn invalid_map_extents_are_refused() {
        let mut data = Vec::new();
        let stretches = [Stretch { length: 10, hole: true }, Stretch { length: 5, hole: false }];
        stretches.iter().for_each(|stretch| stretch.put(&mut data));
        assert_eq!(Stretch::parse_all(&data, 15).as_deref(), Some(&stretches[..]));
        assert_eq!(Stretch::parse_all(&data, 16).as_deref(), Some(&stretches[..]), "the rest is requested again");
        assert_eq!(Stretch::parse_all(&data, 14), None, "longer than requested");
        assert_eq!(Stretch::parse_all(&data[..12], 15), None, "cut");
        assert_eq!(Stretch::parse_all(&[], 15), None, "without a first one, requests would never end");
        assert_eq!(Stretch::parse_all(&[0; 8], 15), None, "likewise");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn frames_survive_any_fragmentation(
            requests in proptest::collection::vec(request(), 0..20),
            replies in proptest::collection::vec(reply(), 0..20),
            piece in 1_usize..3000,
        ) {
            let bytes = written(&requests, &replies);
            let (mut input, mut frames) = (BytesMut::new(), Vec::new());
            for part in bytes.chunks(piece) {
                input.extend_from_slice(part);
                while let Some(frame) = take(&mut input).expect("whole frames") {
                    frames.push(frame);
                }
            }
            prop_assert!(input.is_empty());
            let [Frame::Requests(head, asked), Frame::Replies(_, answers)] = &frames[..] else { panic!("{frames:?}") };
            prop_assert_eq!(head.granted, 64);
            let asked: Vec<(Request, Vec<u8>)> = asked.iter().map(|(r, d)| (*r, d.to_vec())).collect();
            let answers: Vec<(Reply, Vec<u8>)> = answers.iter().map(|(r, d)| (*r, d.to_vec())).collect();
            prop_assert_eq!(asked, requests);
            prop_assert_eq!(answers, replies);
        }

        /// A flipped bit is an error, or is in a reply's data and detected by its checksum.
        #[test]
        fn flipped_bit_is_detected(
            requests in proptest::collection::vec(request(), 1..6),
            replies in proptest::collection::vec(reply(), 1..6),
            place: prop::sample::Index,
            bit in 0_u8..8,
        ) {
            let mut bytes = written(&requests, &replies);
            let at = place.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let mut input = BytesMut::from(&bytes[..]);
            let mut seen = false;
            loop {
                match take(&mut input) {
                    Err(_) => seen = true,
                    Ok(None) => seen |= !input.is_empty(),
                    Ok(Some(Frame::Replies(_, answers))) => {
                        let wrong = |(reply, data): &(Reply, Bytes)| !reply.placed && crc32c::crc32c(data) != reply.checksum;
                        seen |= answers.iter().any(wrong);
                        continue;
                    }
                    Ok(Some(_)) => continue,
                }
                break;
            }
            prop_assert!(seen, "byte {} of {}", at, bytes.len());
        }

        #[test]
        fn report_is_read_as_written_and_a_flipped_bit_is_refused(report in reported(), place: prop::sample::Index, bit in 0_u8..8) {
            let mut bytes = BytesMut::new();
            put_report(&mut bytes, &TEST_HEADER, &report);
            prop_assert_eq!(take(&mut bytes.clone()), Ok(Some(Frame::Report(TEST_HEADER, report))));
            bytes[place.index(HEADER_BYTES + REPORT_BYTES + 4)] ^= 1 << bit;
            prop_assert!(take(&mut bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
            let mut input = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = take(&mut input) {}
        }
    }

    #[test]
    fn other_protocol_is_recognised_by_its_first_byte() {
        assert_eq!(take(&mut BytesMut::from(&b"GET / HTTP/1.1"[..])), Err(FrameError::Magic));
        assert_eq!(take(&mut BytesMut::from(&b"FP"[..])), Ok(None));
    }

    #[test]
    fn version_mismatch_names_the_version() {
        let mut bytes = written(&[], &[]);
        bytes[4] = 9;
        assert_eq!(take(&mut bytes), Err(FrameError::Version(9)));
    }
}
