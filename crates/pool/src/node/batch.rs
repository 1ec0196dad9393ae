//! One drain of a connection: the received requests, served in the order of the store, and their replies in frames that are
//! sent in as few writes as the cuts allow.

use super::GRANTED_REQUESTS_MAX;
use crate::frame::{self, Frame, FrameError, FrameHeader, Operation, Reply, Report, Request, Status, WaitClass};
use crate::shm::{Extent, MappedMemory};
use crate::store::{BLOCK_BYTES, Store};
use bytes::Bytes;
use nbd::buffer::LARGE_BYTES;
use nbd::inbox::Inbox;
use nbd::outbox::Outbox;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Data after which replies are sent.
pub(super) const REPLY_CUT_BYTES: usize = 64 << 10;
/// Bytes of small writes of one batch that one thread does.
const WRITE_PART_BYTES: usize = 256 << 10;
/// Bytes of writes done in one call by a thread that must not block; a longer write is done alone.
const WRITE_GROUP_BYTES_MAX: usize = 128 << 10;
/// Data served before replies are sent.
const TURN_BYTES_MAX: usize = 1 << 20;
/// Time after which replies are sent.
const REPLY_CUT_DURATION: Duration = Duration::from_millis(1);
/// Time after which the rest of a turn is left to other threads. Copying it takes less; so the kernel has blocked this thread,
/// or run another one.
const INLINE_DURATION_MAX: Duration = Duration::from_millis(5);

/// The requests of all complete frames, sorted by offset, and the number of requests in the largest frame; sets `wanted` to
/// the number of replies that the coordinator wants in a frame.
pub(super) fn drain_requests(
    input: &mut Inbox,
    epoch: u64,
    wanted: &mut usize,
) -> Result<(Vec<(Request, Bytes)>, usize), FrameError> {
    let (mut batch, mut most) = (Vec::new(), 0);
    while !input.is_empty() {
        match frame::take_from_inbox(input)? {
            Some(Frame::Requests(head, requests)) if head.epoch == epoch => {
                *wanted = usize::from(head.granted).max(1);
                most = most.max(requests.len());
                if batch.is_empty() {
                    batch = requests;
                } else {
                    batch.extend(requests);
                }
            }
            Some(Frame::Requests(..)) => return Err(FrameError::Invalid("its epoch differs from the handshake's")),
            Some(Frame::Replies(..) | Frame::Report(..)) => return Err(FrameError::Invalid("not a request")),
            None => break,
        }
    }
    if batch.len() > usize::from(GRANTED_REQUESTS_MAX) {
        return Err(FrameError::Invalid("more requests in flight than granted"));
    }
    batch.sort_unstable_by_key(|(request, _)| request.offset);
    Ok((batch, most))
}

/// The bytes that a request carries or requests; a node's reply to a map request has at most a few bytes per block, and
/// usually covers few blocks.
pub(super) fn moved_bytes(request: &Request) -> usize {
    match request.operation {
        Operation::Read | Operation::Write => (request.length as usize).min(frame::DATA_BYTES_MAX),
        Operation::Map | Operation::Flush | Operation::Trim | Operation::Verify => 0,
    }
}

/// The range that a request writes: offset and length.
pub(super) fn write_range(request: &Request) -> Option<(u64, u64)> {
    (request.operation == Operation::Write).then_some((request.offset, u64::from(request.length)))
}

/// A write of whole blocks.
fn is_plain(request: &Request) -> bool {
    let whole = (request.offset | u64::from(request.length)).is_multiple_of(BLOCK_BYTES);
    request.operation == Operation::Write && whole
}

/// A plain write that is also small, and need not be durable.
fn is_small(request: &Request) -> bool {
    is_plain(request) && (request.length as usize) < LARGE_BYTES && !request.durable
}

/// Moves the flushes of a batch to `unflushed`, as replies that are due when one flush is done.
pub(super) fn take_flushes(batch: &mut Vec<(Request, Bytes)>, unflushed: &mut Vec<Reply>) {
    batch.retain(|(request, _)| {
        let is_flush = request.operation == Operation::Flush;
        if is_flush {
            unflushed.push(done_reply(request));
        }
        !is_flush
    });
}

/// One flush for all these replies, which get its result.
pub(super) fn flush_replies(store: &Store, mut replies: Vec<Reply>) -> ServedReplies {
    let begin = Instant::now();
    match store.flush() {
        // Of a flush the coordinator reads it, of a write nobody: see `frame`.
        Ok(()) => replies.iter_mut().for_each(|reply| reply.checksum = store.sequence() as u32),
        Err(status) => replies.iter_mut().for_each(|reply| reply.status = status),
    }
    ServedReplies { replies, time: begin.elapsed(), is_flush: true, ..ServedReplies::default() }
}

/// The reply to a request that was done and has no data.
fn done_reply(request: &Request) -> Reply {
    Reply { status: Status::Done, placed: false, tag: request.tag, length: 0, checksum: 0 }
}

/// Takes the next requests to serve before replies are sent: so the other end is busy meanwhile, and finds the data in a
/// cache. They are in the order of the store, also across two drains; with an order over all waiting requests one could be
/// overtaken for ever.
pub(super) fn take_turn(batch: &mut Vec<(Request, Bytes)>) -> Vec<(Request, Bytes)> {
    let mut bytes = 0;
    let count = batch.iter().take_while(|(request, _)| {
        let fits = bytes < TURN_BYTES_MAX;
        bytes += moved_bytes(request);
        fits
    });
    let rest = batch.split_off(count.count());
    let mut next = std::mem::replace(batch, rest);
    next.sort_unstable_by_key(|(request, _)| request.offset);
    next
}

/// Divides a batch among threads that may block, with at most this number of parts for each class, not counting small
/// writes of whole blocks. Those go to the page cache one after the other, whichever thread does them: a file has one lock
/// for them (ext4's inode lock, and that of most file systems), so more threads would only wait for each other. For a
/// partial block the rest is read first, which the disk does for several in parallel.
pub(super) fn divide_batch(batch: Vec<(Request, Bytes)>, threads: usize) -> Vec<(WaitClass, Vec<(Request, Bytes)>)> {
    let (small, others): (Vec<_>, Vec<_>) = batch.into_iter().partition(|(request, _)| is_small(request));
    let mut parts: Vec<(WaitClass, Vec<_>)> = Vec::new();
    let mut of_class = [WaitClass::Read, WaitClass::Write, WaitClass::Sync].map(|class| (class, Vec::new()));
    others.into_iter().for_each(|item| of_class[item.0.class() as usize].1.push(item));
    for (class, items) in of_class {
        let each = items.len().div_ceil(threads).max(1);
        let mut items = items.into_iter();
        while items.len() > 0 {
            parts.push((class, items.by_ref().take(each).collect()));
        }
    }
    let (mut part, mut bytes) = (Vec::new(), 0);
    for item in small {
        bytes += item.0.length as usize;
        part.push(item);
        if bytes >= WRITE_PART_BYTES {
            parts.push((WaitClass::Write, std::mem::take(&mut part)));
            bytes = 0;
        }
    }
    if !part.is_empty() {
        parts.push((WaitClass::Write, part));
    }
    parts
}

/// Requests that are served one after the other.
pub(super) struct Batch<I> {
    pub requests: I,
    /// The maximum number of replies per frame.
    pub frame_replies_max: usize,
    /// The coordinator's shared memory.
    pub memory: Option<Arc<MappedMemory>>,
}

/// Replies that are sent together.
#[derive(Default)]
pub(super) struct ServedReplies {
    pub replies: Vec<Reply>,
    /// The concatenated data of the replies, except for `large`.
    pub data: Vec<u8>,
    /// Data that is sent without copying, with the index of its reply.
    pub large: Vec<(usize, Bytes)>,
    /// Replies to writes that are done, and have to be flushed first.
    pub unflushed: Vec<Reply>,
    /// Whether it is the result of [`flush_replies`].
    pub is_flush: bool,
    /// Bytes of data put into shared memory.
    pub placed_bytes: usize,
    /// Bytes that the requests carried and requested.
    pub moved_bytes: usize,
    pub time: Duration,
}

impl ServedReplies {
    /// Bytes of data.
    pub fn data_bytes(&self) -> usize {
        self.data.len() + self.placed_bytes + self.large.iter().map(|(_, data)| data.len()).sum::<usize>()
    }

    pub fn append(&mut self, more: Self) {
        let before = self.replies.len();
        self.large.extend(more.large.into_iter().map(|(nth, data)| (before + nth, data)));
        self.replies.extend(more.replies);
        self.data.extend(more.data);
        self.unflushed.extend(more.unflushed);
        self.placed_bytes += more.placed_bytes;
        self.moved_bytes += more.moved_bytes;
        self.time += more.time;
    }
}

impl<I: ExactSizeIterator<Item = (Request, Bytes)>> Batch<I> {
    pub fn new(requests: I) -> Self {
        Self { requests, frame_replies_max: usize::MAX, memory: None }
    }

    /// Serves the next requests into `served`, up to the cut; false if there are none.
    pub fn serve(&mut self, store: &Store, served: &mut ServedReplies) -> bool {
        let begin = Instant::now();
        served.replies.clear();
        served.data.clear();
        served.large.clear();
        (served.placed_bytes, served.moved_bytes, served.time) = (0, 0, Duration::ZERO);
        while served.replies.len() < self.frame_replies_max
            && served.data_bytes() < REPLY_CUT_BYTES
            && served.time < REPLY_CUT_DURATION
        {
            let Some((request, data)) = self.requests.next() else { break };
            let begin_bytes = served.data.len();
            let mut reply = if request.extent_count > 0 {
                let result = serve_placed(store, &request, self.memory.as_deref(), &data);
                let length = if result.is_ok() && request.operation == Operation::Read { request.length } else { 0 };
                served.placed_bytes += length as usize;
                let status = result.err().unwrap_or(Status::Done);
                Reply { status, placed: length > 0, tag: request.tag, length, checksum: 0 }
            } else if request.length as usize >= LARGE_BYTES && is_checked_read(&request) {
                serve_large_read(store, &request, served)
            } else {
                serve_request(store, &request, &data, &mut served.data)
            };
            if reply.status != Status::Done {
                served.data.truncate(begin_bytes);
                add_fault_offset(store, &request, &mut reply, &mut served.data);
            }
            served.replies.push(reply);
            served.moved_bytes += moved_bytes(&request);
            served.time = begin.elapsed();
        }
        !served.replies.is_empty()
    }
}

/// Adds to a reply with an error where in the store the fault is, if that is known.
fn add_fault_offset(store: &Store, request: &Request, reply: &mut Reply, data: &mut Vec<u8>) {
    if let Some(offset) = store.first_fault(request.offset, u64::from(request.length)) {
        data.extend(offset.to_le_bytes());
        reply.length = size_of::<u64>() as u32;
    }
}

fn is_checked_read(request: &Request) -> bool {
    request.operation == Operation::Read && !request.unchecked && request.length as usize <= frame::DATA_BYTES_MAX
}

/// Serves a request whose data is in shared memory, or goes there.
fn serve_placed(store: &Store, request: &Request, memory: Option<&MappedMemory>, places: &[u8]) -> Result<(), Status> {
    let memory = memory.ok_or(Status::Range)?;
    let mut offset = request.offset;
    for place in Extent::decode(places) {
        // SAFETY: the coordinator does not touch them until this request is answered.
        let bytes = unsafe { memory.bytes(place) }.ok_or(Status::Range)?;
        match request.operation {
            Operation::Read => store.read_into(offset, bytes)?,
            Operation::Write => store.write(offset, bytes, false)?,
            Operation::Flush | Operation::Trim | Operation::Map | Operation::Verify => return Err(Status::Range),
        }
        offset = offset.checked_add(u64::from(place.length)).ok_or(Status::Range)?;
    }
    let is_whole = offset.checked_sub(request.offset) == Some(u64::from(request.length));
    if !is_whole {
        return Err(Status::Range);
    }
    if request.durable { store.flush() } else { Ok(()) }
}

/// Serves those reads of a batch that cannot block, into shared memory or, if they are small, into the reply, for as long
/// as a reply may wait: waking a thread for each takes longer than copying the data. The others are left to threads that
/// may block.
pub(super) fn serve_reads_inline(
    store: &Store,
    memory: Option<&MappedMemory>,
    batch: &mut Vec<(Request, Bytes)>,
    served: &mut ServedReplies,
) {
    let begin = Instant::now();
    let read = |(request, places): &(Request, Bytes)| {
        let mut offset = request.offset;
        for place in Extent::decode(places) {
            // SAFETY: as in `serve_placed`.
            let Some(bytes) = memory.and_then(|memory| unsafe { memory.bytes(place) }) else { return false };
            if !store.read_nonblocking(offset, bytes) {
                return false;
            }
            offset += u64::from(place.length);
        }
        offset - request.offset == u64::from(request.length)
    };
    let mut at_once = |item: &(Request, Bytes)| {
        let request = &item.0;
        let placed = request.extent_count > 0;
        let is_small = is_checked_read(request) && (request.length as usize) < LARGE_BYTES;
        if request.operation != Operation::Read || !(placed || is_small) || begin.elapsed() >= INLINE_DURATION_MAX {
            return false;
        }
        let checksum = if placed {
            read(item).then_some(0)
        } else {
            store.append_nonblocking(request.offset, request.length, &mut served.data)
        };
        let Some(checksum) = checksum else { return false };
        let (tag, length) = (request.tag, request.length);
        served.replies.push(Reply { status: Status::Done, placed, tag, length, checksum });
        served.placed_bytes += if placed { length as usize } else { 0 };
        served.moved_bytes += moved_bytes(request);
        true
    };
    batch.retain(|item| !at_once(item));
    served.time += begin.elapsed();
}

/// Does those writes of a batch, sorted in the order of the store, that cannot block, for as long as a reply may wait: a
/// hand-over to a thread and back costs as much as a few small writes, and threads would wait for each other. The others
/// are left to threads that may block.
pub(super) fn serve_writes_inline(
    store: &Store,
    memory: Option<&MappedMemory>,
    batch: &mut Vec<(Request, Bytes)>,
    served: &mut ServedReplies,
) {
    let begin = Instant::now();
    let mut written = Vec::with_capacity(batch.len());
    while written.len() < batch.len() {
        let rest = &batch[written.len()..];
        let mut bytes = 0;
        let fits = |item: &&(Request, Bytes)| {
            let request = &item.0;
            let first = bytes == 0;
            bytes += request.length as usize;
            is_plain(request) && (first || bytes <= WRITE_GROUP_BYTES_MAX)
        };
        let group = &rest[..rest.iter().take_while(fits).count()];
        let done = !group.is_empty()
            && begin.elapsed() < INLINE_DURATION_MAX
            && serve_group_inline(store, memory, group, served);
        written.resize(written.len() + group.len().max(1), done);
    }
    let mut written = written.into_iter();
    batch.retain(|_| !written.next().unwrap_or_default());
    served.time += begin.elapsed();
}

/// Appends the offsets and data of a write to `parts`; `None` if its data or length is invalid, for which the error is
/// returned elsewhere.
fn put_parts<'b>(
    (request, data): &'b (Request, Bytes),
    memory: Option<&'b MappedMemory>,
    parts: &mut Vec<(u64, &'b [u8])>,
) -> Option<()> {
    let mut end = request.offset;
    let mut part = |bytes: &'b [u8]| {
        parts.push((end, bytes));
        end = end.checked_add(bytes.len() as u64)?;
        Some(())
    };
    match request.extent_count {
        0 => part(data)?,
        // SAFETY: as in `serve_placed`.
        _ => Extent::decode(data).try_for_each(|place| part(unsafe { memory?.bytes(place) }?))?,
    }
    (end - request.offset == u64::from(request.length)).then_some(())
}

/// Does all of these writes, or none.
fn serve_group_inline(
    store: &Store,
    memory: Option<&MappedMemory>,
    group: &[(Request, Bytes)],
    served: &mut ServedReplies,
) -> bool {
    let mut parts = Vec::with_capacity(group.len());
    if group.iter().try_for_each(|item| put_parts(item, memory, &mut parts)).is_none() {
        return false;
    }
    let Some(results) = store.write_nonblocking(&parts) else { return false };
    let mut results = results.into_iter();
    for (request, _) in group {
        let count = usize::from(request.extent_count.max(1));
        let result: Result<(), Status> = results.by_ref().take(count).fold(Ok(()), Result::and);
        let mut reply = Reply { status: result.err().unwrap_or(Status::Done), ..done_reply(request) };
        if result.is_err() {
            add_fault_offset(store, request, &mut reply, &mut served.data);
        }
        let is_due = !request.durable || result.is_err();
        if is_due { &mut served.replies } else { &mut served.unflushed }.push(reply);
        served.moved_bytes += moved_bytes(request);
    }
    true
}

/// Answers a read whose data is sent without copying.
fn serve_large_read(store: &Store, request: &Request, served: &mut ServedReplies) -> Reply {
    match store.read_shared(request.offset, request.length) {
        Ok((data, checksum)) => {
            served.large.push((served.replies.len(), data));
            Reply { status: Status::Done, placed: false, tag: request.tag, length: request.length, checksum }
        }
        Err(status) => Reply { status, placed: false, tag: request.tag, length: 0, checksum: 0 },
    }
}

fn serve_request(store: &Store, request: &Request, data: &[u8], out: &mut Vec<u8>) -> Reply {
    let Request { operation, durable, unchecked, tag, length, offset, .. } = *request;
    let result = match operation {
        Operation::Read if length as usize > frame::DATA_BYTES_MAX => Err(Status::Range),
        Operation::Read if unchecked => store.read_unchecked(offset, length, out).map(|()| (length, 0)),
        Operation::Read => store.read(offset, length, out).map(|checksum| (length, checksum)),
        Operation::Write => store.write(offset, data, durable).map(|()| (0, 0)),
        // In place of the checksum of no data: see `frame`.
        Operation::Flush => store.flush().map(|()| (0, store.sequence() as u32)),
        Operation::Trim => store.trim(offset, length, durable).map(|()| (0, 0)),
        Operation::Map => {
            let begin = out.len();
            store.map(offset, length, out).map(|checksum| ((out.len() - begin) as u32, checksum))
        }
        Operation::Verify if length > frame::VERIFY_BYTES_MAX => Err(Status::Range),
        Operation::Verify => {
            let begin = out.len();
            store.verify(offset, length, out).map(|checksum| ((out.len() - begin) as u32, checksum))
        }
    };
    match result {
        Ok((length, checksum)) => Reply { status: Status::Done, placed: false, tag, length, checksum },
        Err(status) => Reply { status, placed: false, tag, length: 0, checksum: 0 },
    }
}

/// Frames of replies waiting to be sent.
pub(super) struct ReplyQueue {
    head: FrameHeader,
    out: Outbox,
    /// The time spent serving the replies in `out`.
    time: Duration,
}

impl ReplyQueue {
    /// Creates it for a coordinator with this epoch.
    pub fn new(epoch: u64) -> Self {
        let head = FrameHeader { epoch, granted: GRANTED_REQUESTS_MAX, ..FrameHeader::default() };
        Self { head, out: Outbox::default(), time: Duration::ZERO }
    }

    pub fn put(&mut self, waiting: usize, served: &ServedReplies) {
        let count = served.replies.len() as u128;
        self.head.queued = waiting.min(usize::from(u16::MAX)) as u16;
        self.head.service_us = u32::try_from(served.time.as_micros() / count.max(1)).unwrap_or(u32::MAX);
        frame::put_replies(&mut self.out, &self.head, &served.replies, &served.data, &served.large);
        self.head.sequence += 1;
        self.time += served.time;
    }

    pub fn report(&mut self, report: &Report) {
        frame::put_report(&mut self.out, &self.head, report);
        self.head.sequence += 1;
    }

    /// Whether there is enough for a write.
    pub fn is_due(&self) -> bool {
        self.out.len() >= REPLY_CUT_BYTES || self.time >= REPLY_CUT_DURATION
    }

    pub async fn send_all(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        self.time = Duration::ZERO;
        while !self.out.is_empty() {
            poll_fn(|cx| self.out.poll_write(writer, cx)).await?;
        }
        writer.flush().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;

    #[test]
    fn small_writes_stay_in_one_part_and_the_rest_is_split() {
        let request = |tag, operation, length, durable| {
            (Request { operation, durable, unchecked: false, extent_count: 0, tag, length, offset: 0 }, Bytes::new())
        };
        let tags = |batch: Vec<_>, threads| -> Vec<Vec<u16>> {
            let parts = divide_batch(batch, threads).into_iter();
            parts.map(|(_, part)| part.into_iter().map(|(request, _)| request.tag).collect()).collect()
        };
        let writes = (0..8).map(|tag| request(tag, Operation::Write, 4096, false));
        assert_eq!(tags(writes.collect(), 4), [[0, 1, 2, 3, 4, 5, 6, 7]]);
        let many = (0..65).map(|tag| request(tag, Operation::Write, 4096, false));
        assert_eq!(tags(many.collect(), 4).iter().map(Vec::len).collect::<Vec<_>>(), [64, 1]);
        let mixed = vec![
            request(0, Operation::Read, 4096, false),
            request(1, Operation::Write, 4096, false),
            request(2, Operation::Write, 4096, true),
            request(3, Operation::Flush, 0, false),
            request(4, Operation::Write, 1 << 20, false),
            request(5, Operation::Write, 8192, false),
            request(6, Operation::Write, 512, false),
        ];
        assert_eq!(tags(mixed, 2), [vec![0], vec![4], vec![6], vec![2], vec![3], vec![1, 5]]);
        assert_eq!(tags(Vec::new(), 4), Vec::<Vec<u16>>::new());
    }

    #[test]
    fn inline_writes_are_answered_and_the_rest_keeps_its_order() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::format(&directory.path().join("store"), Some(1 << 20), "n".into(), false).expect("a store");
        // The first regions are marked, and the last is not.
        store.write(0, &[1; 1 << 16], false).expect("it has room");
        let write = |tag, offset, length: u32, durable| {
            let request = Request {
                operation: Operation::Write,
                durable,
                unchecked: false,
                extent_count: 0,
                tag,
                length,
                offset,
            };
            (request, Bytes::from(vec![tag as u8; length as usize]))
        };
        let lies = (write(7, 40_960, 4096, false).0, Bytes::from_static(b"short"));
        let mut batch = vec![
            write(2, 0, 4096, false),
            write(3, 4096, 8192, false),
            write(4, 16_384, 4096, true),
            write(5, 20_480, 512, false),
            write(6, 24_576, 4096, false),
            (Request { operation: Operation::Flush, length: 0, ..write(9, 28_672, 4096, false).0 }, Bytes::new()),
            lies,
            (Request { operation: Operation::Trim, ..write(10, 45_056, 4096, false).0 }, Bytes::new()),
            write(8, 1 << 19, 4096, false),
        ];
        let mut served = ServedReplies::default();
        serve_writes_inline(&store, None, &mut batch, &mut served);
        assert_eq!(served.replies.iter().map(|reply| reply.tag).collect::<Vec<_>>(), [2, 3, 6]);
        assert!(served.replies.iter().all(|reply| reply.status == Status::Done) && served.moved_bytes == 20_480);
        // A durable write is answered after a flush, with all others that wait for one.
        let mut unflushed = served.unflushed;
        assert_eq!(unflushed.iter().map(|reply| reply.tag).collect::<Vec<_>>(), [4]);
        take_flushes(&mut batch, &mut unflushed);
        assert_eq!(batch.iter().map(|(request, _)| request.tag).collect::<Vec<_>>(), [5, 7, 10, 8]);
        let flushed = flush_replies(&store, unflushed);
        assert_eq!(
            flushed.replies.iter().map(|reply| (reply.tag, reply.status)).collect::<Vec<_>>(),
            [(4, Status::Done), (9, Status::Done)]
        );
        let mut now = Vec::new();
        store.read(0, 1 << 16, &mut now).expect("it is whole");
        let at = |block: usize| now[block * 4096];
        assert_eq!([at(0), at(1), at(2), at(3), at(4), at(6), at(10)], [2, 3, 3, 1, 4, 6, 1]);
    }

    #[test]
    fn small_inline_reads_carry_their_data_in_order() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::format(&directory.path().join("store"), Some(1 << 20), "n".into(), false).expect("a store");
        let content: Vec<u8> = (0..1_u32 << 20).map(|at| (at / 500) as u8).collect();
        store.write(0, &content, false).expect("it has room");
        let read = |tag, offset, length, unchecked| {
            let operation = Operation::Read;
            (Request { operation, durable: false, unchecked, extent_count: 0, tag, length, offset }, Bytes::new())
        };
        let mut batch = vec![
            read(1, 0, 4096, false),
            read(2, 4608, 512, false),
            read(3, 8192, LARGE_BYTES as u32, false),
            read(4, 9000, 10_000, false),
            read(5, 20_480, 4096, true),
            read(6, 1 << 20, 1, false),
        ];
        let mut served = ServedReplies::default();
        // On a busy machine some are left, because of the time limit.
        while batch.len() > 3 {
            serve_reads_inline(&store, None, &mut batch, &mut served);
        }
        assert_eq!(batch.iter().map(|(request, _)| request.tag).collect::<Vec<_>>(), [3, 5, 6]);
        let mut data = &served.data[..];
        served.replies.sort_unstable_by_key(|reply| reply.tag);
        for (reply, (tag, offset, length)) in
            served.replies.iter().zip([(1, 0, 4096), (2, 4608, 512), (4, 9000, 10_000_usize)])
        {
            let (own, rest) = data.split_at(length);
            assert!(own == &content[offset..offset + length] && reply.checksum == crc32c::crc32c(own), "{tag}");
            assert_eq!((reply.tag, reply.length as usize, reply.placed), (tag, length, false));
            data = rest;
        }
        assert!(data.is_empty() && served.moved_bytes == 4096 + 512 + 10_000);
    }

    #[test]
    fn large_inline_write_in_several_parts_is_answered_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::format(&directory.path().join("store"), Some(1 << 20), "n".into(), false).expect("a store");
        store.write(0, &[1; 1 << 20], false).expect("it has room");
        let offer = crate::shm::MemoryOffer::for_boot(&crate::shm::boot()).expect("memory can be had");
        let memory = MappedMemory::map_offer(&offer).expect("it is this process");
        let mut data = nbd::buffer::Buffer::new(256 << 10);
        data.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 999) as u8);
        let write = |tag, parts: &[&[u8]]| {
            let places = Extent::encode(parts.iter().copied()).expect("it is taken from there");
            let length = parts.iter().map(|part| part.len()).sum::<usize>() as u32;
            let (operation, offset) = (Operation::Write, 64 << 10);
            let places_count = Extent::count(&places);
            (
                Request {
                    operation,
                    durable: false,
                    unchecked: false,
                    extent_count: places_count,
                    tag,
                    length,
                    offset,
                },
                places,
            )
        };
        let (first, second) = data.split_at(100 << 10);
        // A part that is not of whole blocks is left to a thread that can read the others first.
        let mut batch = vec![write(1, &[first, second]), write(2, &[&data[..1000], &data[1000..8192]])];
        let mut served = ServedReplies::default();
        serve_writes_inline(&store, Some(&memory), &mut batch, &mut served);
        let replies: Vec<_> = served.replies.iter().map(|reply| (reply.tag, reply.status)).collect();
        let left: Vec<_> = batch.iter().map(|(request, _)| request.tag).collect();
        // On a busy machine both may be left, because of the time limit.
        assert!(matches!((&replies[..], &left[..]), ([(1, Status::Done)], [2]) | ([], [1, 2])), "{replies:?} {left:?}");
        if replies.is_empty() {
            return;
        }
        let mut now = Vec::new();
        store.read(64 << 10, 256 << 10, &mut now).expect("it is whole");
        assert!(now == data[..]);
    }

    #[test]
    fn turn_takes_the_front_of_a_batch_and_leaves_the_rest() {
        let read = |tag, length| {
            let (operation, offset) = (Operation::Read, u64::from(tag));
            let request = Request { operation, durable: false, unchecked: false, extent_count: 0, tag, length, offset };
            (request, Bytes::new())
        };
        let tags = |turn: Vec<(Request, Bytes)>| turn.iter().map(|(request, _)| request.tag).collect::<Vec<_>>();
        let mut batch: Vec<_> = (0..10).map(|tag| read(tag, 256 << 10)).collect();
        batch.push(read(10, 1 << 20));
        batch.push(read(11, 4096));
        assert_eq!(tags(take_turn(&mut batch)), [0, 1, 2, 3]);
        assert_eq!(tags(take_turn(&mut batch)), [4, 5, 6, 7]);
        assert_eq!(tags(take_turn(&mut batch)), [8, 9, 10]);
        assert_eq!(tags(take_turn(&mut batch)), [11]);
        assert_eq!(tags(take_turn(&mut batch)), [0; 0]);
    }

    #[test]
    fn reply_frame_has_no_more_entries_than_a_request_frame() {
        let store = Store::memory(1 << 20, "n".into()).expect("memory");
        let mut sent = BytesMut::new();
        let mut tags = 0..;
        for count in [3, 1, 2] {
            let request = |tag| Request {
                operation: Operation::Read,
                durable: false,
                unchecked: false,
                extent_count: 0,
                tag,
                length: 1,
                offset: 1000 - u64::from(tag),
            };
            let requests = tags.by_ref().take(count).map(request).collect::<Vec<_>>();
            let head = FrameHeader { epoch: 7, granted: 5, ..FrameHeader::default() };
            frame::put_requests(&mut sent, &head, &requests, |_| &[]);
        }
        let (mut input, mut wanted) = (Inbox::new(sent.freeze()), 0);
        let (requests, most) = drain_requests(&mut input, 7, &mut wanted).expect("whole frames");
        assert_eq!((requests.len(), most, wanted), (6, 3, 5));
        let (mut batch, mut served) =
            (Batch { frame_replies_max: most, ..Batch::new(requests.into_iter()) }, ServedReplies::default());
        let mut tags = Vec::new();
        while batch.serve(&store, &mut served) {
            tags.push(served.replies.iter().map(|reply| reply.tag).collect::<Vec<_>>());
        }
        assert_eq!(tags.concat(), [5, 4, 3, 2, 1, 0], "by offset");
        // On a busy machine a frame may be cut earlier, because of the time limit.
        assert!(tags.iter().all(|frame| frame.len() <= most), "{tags:?}");
    }
}
