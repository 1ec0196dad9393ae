//! UDP at a given rate. Each packet has an absolute due time, start + number x interval, so that neither a late wake-up nor
//! a slow call delays the packets after it: the number of packets sent matches the rate exactly, unless the sender's CPU or
//! the socket's buffer cannot keep up, and then the report shows how late packets were. Packets due at the same moment are
//! sent in one call (sendmmsg).
//!
//! The receiver reads many packets per call (recvmmsg), each with the kernel's arrival timestamp (SO_TIMESTAMPNS), so that
//! a late receiver does not change any delay. Packets that the kernel dropped because the socket's buffer was full are
//! counted separately (SO_RXQ_OVFL): they are lost by this machine and not by the network.

use super::order::{Arrival, ArrivalOrder};
use super::packet::{HEADER, PacketHeader};
use super::{LiveCounters, Role, RunClock, TimingEnd};
use crate::outcome::{EndReport, LOSS_BLOCK_COUNT, PacketsReceived, PacketsSent, ReceivedDirection, SentDirection};
use crate::spec::Spec;
use crate::usage::{ThreadTotals, ThreadUsage};
use crate::{clock, socket};
use hdrhistogram::Histogram;
use socket2::SockRef;
use std::io::{Error, ErrorKind};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Packets per call.
const BATCH_PACKETS_MAX: usize = 64;
/// The requested receive buffer, bytes: 20 ms at 100,000 packets/s, each charged some 800 bytes or more.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// The approximate number of transit times kept per run.
const TRANSIT_SAMPLE_COUNT: u64 = 20_000;
/// After its time, a receiver waits until nothing has arrived for this long.
const QUIET_TIMEOUT_NS: u64 = 300_000_000;
/// After its time, a receiver waits for this long at most.
const DRAIN_TIMEOUT_NS: u64 = 5_000_000_000;

pub fn run(
    spec: &Spec,
    side: Role,
    (rate_bps, packet_bytes): (u64, u32),
    (socket, run): (&UdpSocket, u64),
    stop: &AtomicBool,
    live: &LiveCounters,
) -> EndReport {
    let course = RunClock::new(spec, stop, live);
    let (counter, handed_over) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut report = EndReport::default();
    let (mut ends_ns, mut totals) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let (course, counter, handed_over) = (&course, &counter, &handed_over);
        let mut sender = None;
        let mut receiver = None;
        for direction in &spec.directions {
            if side.sends(*direction) {
                let handle = scope.spawn(move || send(socket, run, rate_bps, packet_bytes, course, handed_over));
                sender = Some((*direction, handle));
            } else {
                let expected = course.due_packets(rate_bps, packet_bytes);
                receiver = Some((*direction, scope.spawn(move || receive(socket, run, expected, counter, course))));
            }
        }
        course.run_intervals(clock::sleep_until, || {
            ends_ns.push(clock::now_ns());
            totals.push(counter.load(Ordering::Relaxed));
            for direction in &spec.directions {
                let amount = if side.sends(*direction) { handed_over } else { counter };
                live.set(*direction, amount.load(Ordering::Relaxed));
            }
        });
        let end_ns = clock::now_ns();
        let sockets = vec![socket::granted_settings(&SockRef::from(socket), false)];
        if let Some((direction, handle)) = sender {
            let (packets, threads, trouble) = handle.join().unwrap_or_default();
            report.trouble = report.trouble.take().or(trouble);
            report.sent.push(SentDirection {
                direction,
                start_ns: course.start_ns,
                end_ns,
                sockets: sockets.clone(),
                threads,
                packets: Some(packets),
                samples: Vec::new(),
                acks: Vec::new(),
                acks_lost: 0,
                carried: Vec::new(),
            });
        }
        if let Some((direction, handle)) = receiver {
            let (packets, threads, trouble) = handle.join().unwrap_or_default();
            report.trouble = report.trouble.take().or(trouble);
            let before = std::iter::once(0).chain(totals.iter().copied());
            report.received.push(ReceivedDirection {
                direction,
                start_ns: course.start_ns,
                bytes: totals.iter().zip(before).map(|(now, then)| now - then).collect(),
                ends_ns: std::mem::take(&mut ends_ns),
                streams: vec![counter.load(Ordering::Relaxed)],
                sockets,
                threads,
                unread: Vec::new(),
                packets: Some(packets),
                carried: Vec::new(),
            });
        }
        report.trouble = report.trouble.take().or_else(|| course.suspension_text());
    });
    report
}

impl RunClock<'_> {
    /// The total number of packets due.
    fn due_packets(&self, rate_bps: u64, packet_bytes: u32) -> u64 {
        let bits = u128::from(rate_bps) * u128::from(self.end_ns - self.start_ns) / 1_000_000_000;
        u64::try_from(bits / 8 / u128::from(packet_bytes)).unwrap_or(u64::MAX).max(1)
    }
}

/// When packet `number` is due, in ns from the start.
fn due_ns(number: u64, rate_bps: u64, packet_bytes: u32) -> u64 {
    let ns = u128::from(number) * u128::from(packet_bytes) * 8_000_000_000 / u128::from(rate_bps);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// How many packets are due after `elapsed_ns`.
fn due_count(elapsed_ns: u64, rate_bps: u64, packet_bytes: u32) -> u64 {
    let whole = u128::from(elapsed_ns) * u128::from(rate_bps) / (u128::from(packet_bytes) * 8_000_000_000);
    u64::try_from(whole).unwrap_or(u64::MAX).saturating_add(1)
}

fn send(
    socket: &UdpSocket,
    run: u64,
    rate_bps: u64,
    packet_bytes: u32,
    course: &RunClock<'_>,
    handed_over: &AtomicU64,
) -> (PacketsSent, ThreadTotals, Option<String>) {
    clock::request_exact_timers();
    let before = ThreadUsage::now();
    let size = packet_bytes as usize;
    let mut buffer: Vec<u8> = super::random_bytes(size).repeat(BATCH_PACKETS_MAX);
    let total = course.due_packets(rate_bps, packet_bytes);
    let (mut sent, mut refused, mut trouble) = (0_u64, 0_u64, None);
    let mut late = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are in order");
    while sent < total && !course.is_interrupted() {
        let now = clock::now_ns();
        let elapsed = now - course.start_ns;
        // A sender that cannot keep up must stop at some point.
        if now > course.end_ns + QUIET_TIMEOUT_NS {
            break;
        }
        let due = due_count(elapsed, rate_bps, packet_bytes).min(total);
        let batch = due.saturating_sub(sent).min(BATCH_PACKETS_MAX as u64) as usize;
        if batch == 0 {
            clock::sleep_until(course.start_ns + due_ns(sent, rate_bps, packet_bytes));
            continue;
        }
        for (at, packet) in buffer.chunks_exact_mut(size).take(batch).enumerate() {
            PacketHeader { number: sent + at as u64, sent_ns: now }.write(run, packet);
        }
        match send_batch(socket, &mut buffer, size, batch) {
            Ok(taken) => {
                for number in sent..sent + taken as u64 {
                    late.saturating_record(elapsed.saturating_sub(due_ns(number, rate_bps, packet_bytes)));
                }
                sent += taken as u64;
                handed_over.store(sent * u64::from(packet_bytes), Ordering::Relaxed);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => (),
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) || e.kind() == ErrorKind::WouldBlock => {
                refused += 1;
                std::thread::sleep(Duration::from_micros(100));
            }
            Err(e) => {
                trouble = course.connection_error(0, &explain_error(&e, packet_bytes), TimingEnd::Remote);
                break;
            }
        }
    }
    let us = |q: f64| late.value_at_quantile(q) as f64 / 1e3;
    let late_us = [us(0.5), us(0.99), late.max() as f64 / 1e3];
    let mut threads = ThreadTotals::default();
    threads.add(ThreadUsage::now().since(before));
    // In an interrupted run, packets due after the interrupt do not count.
    let due = if course.is_interrupted() {
        due_count(clock::now_ns() - course.start_ns, rate_bps, packet_bytes).clamp(sent, total.max(sent))
    } else {
        total
    };
    (PacketsSent { due, sent, refused, late_us }, threads, trouble)
}

fn explain_error(error: &Error, packet_bytes: u32) -> String {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => format!("packets of {packet_bytes} bytes are too large for this path: {error}"),
        Some(libc::ECONNREFUSED) => format!("the other end's UDP socket is gone: {error}"),
        _ => error.to_string(),
    }
}

/// Sends the first `batch` packets of `buffer`; returns how many the kernel accepted.
fn send_batch(socket: &UdpSocket, buffer: &mut [u8], size: usize, batch: usize) -> std::io::Result<usize> {
    let mut vectors: [libc::iovec; BATCH_PACKETS_MAX] = std::array::from_fn(|_| EMPTY_IOVEC);
    // SAFETY: all-zero bytes are a valid mmsghdr: no name, no control data, no vector.
    let mut headers: [libc::mmsghdr; BATCH_PACKETS_MAX] = unsafe { std::mem::zeroed() };
    for ((packet, vector), header) in buffer.chunks_exact_mut(size).zip(&mut vectors).zip(&mut headers).take(batch) {
        *vector = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: the first `batch` headers point to vectors, and these to bytes, that live until the call returns.
    let n = unsafe { libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), batch as libc::c_uint, 0) };
    if n < 0 { Err(Error::last_os_error()) } else { Ok(n as usize) }
}

const EMPTY_IOVEC: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// The size of control data: a timestamp and a counter, each with its header.
const CONTROL_BYTES: usize = 128;

fn receive(
    socket: &UdpSocket,
    run: u64,
    expected: u64,
    counter: &AtomicU64,
    course: &RunClock<'_>,
) -> (PacketsReceived, ThreadTotals, Option<String>) {
    let before = ThreadUsage::now();
    let mut packets = PacketsReceived::default();
    let mut order = ArrivalOrder::new();
    let sample_period = (expected / TRANSIT_SAMPLE_COUNT).max(1);
    let block = expected.div_ceil(LOSS_BLOCK_COUNT).max(1);
    packets.blocks = vec![0; expected.div_ceil(block) as usize];
    let mut jitter_ns = 0.0;
    let mut last_transit = None;
    let mut last_arrival = clock::now_ns();
    let mut trouble = None;
    let mut batch = ReceiveBatch::new();
    loop {
        let taken = match batch.receive(socket) {
            Ok(taken) => taken,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => 0,
            Err(e) => {
                trouble = course.connection_error(0, &explain_error(&e, 0), TimingEnd::Remote);
                break;
            }
        };
        let now = clock::now_ns();
        // The kernel's timestamps use CLOCK_REALTIME, which can be set; both clocks are read as close together as possible.
        let to_boot = i128::from(clock::now_ns()) - i128::from(clock::unix_ns());
        for at in 0..taken {
            let (bytes, stamp, dropped) = batch.packet(at);
            packets.dropped_here = packets.dropped_here.max(dropped.unwrap_or(0));
            let Some(packet) = PacketHeader::read(run, bytes) else { continue };
            let length = batch.length(at);
            let arrived = stamp.map_or(now, |unix| (i128::from(unix) + to_boot).max(0) as u64);
            last_arrival = now;
            match order.record(packet.number) {
                Arrival::Duplicate => {
                    packets.duplicates += 1;
                    continue;
                }
                Arrival::Late => packets.reordered += 1,
                Arrival::Next => (),
            }
            packets.received += 1;
            // The number comes from the other end and may have any value.
            let part = usize::try_from(packet.number / block).ok().and_then(|part| packets.blocks.get_mut(part));
            part.into_iter().for_each(|part| *part += 1);
            counter.fetch_add(length, Ordering::Relaxed);
            let transit = arrived.wrapping_sub(packet.sent_ns) as i64;
            if let Some(last) = last_transit {
                // RFC 3550, 6.4.1: J += (|D| - J) / 16.
                let d = transit.wrapping_sub(last) as f64;
                jitter_ns += (d.abs() - jitter_ns) / 16.0;
            }
            last_transit = Some(transit);
            if packet.number.is_multiple_of(sample_period)
                && packets.transit_ns.len() < 2 * TRANSIT_SAMPLE_COUNT as usize
            {
                packets.transit_ns.push((arrived, transit));
            }
        }
        let whole = order.expected() >= expected;
        let late = now >= course.end_ns
            && (whole || now - last_arrival > QUIET_TIMEOUT_NS || now > course.end_ns + DRAIN_TIMEOUT_NS);
        if late || course.is_interrupted() {
            break;
        }
    }
    packets.expected = order.expected();
    packets.jitter_us = jitter_ns / 1e3;
    let mut threads = ThreadTotals::default();
    threads.add(ThreadUsage::now().since(before));
    (packets, threads, trouble)
}

/// Buffers for the packets of one call. Only the header of each is copied; MSG_TRUNC still returns its length.
struct ReceiveBatch {
    buffers: Vec<[u8; HEADER]>,
    controls: Vec<[u64; CONTROL_BYTES / 8]>,
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
}

impl ReceiveBatch {
    fn new() -> Self {
        // SAFETY: all-zero bytes are a valid mmsghdr.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Self {
            buffers: vec![[0; HEADER]; BATCH_PACKETS_MAX],
            controls: vec![[0; CONTROL_BYTES / 8]; BATCH_PACKETS_MAX],
            headers: vec![header; BATCH_PACKETS_MAX],
            vectors: vec![EMPTY_IOVEC; BATCH_PACKETS_MAX],
        }
    }

    fn receive(&mut self, socket: &UdpSocket) -> std::io::Result<usize> {
        let parts = self.buffers.iter_mut().zip(&mut self.controls).zip(&mut self.vectors).zip(&mut self.headers);
        for (((room, control), vector), header) in parts {
            *vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: HEADER };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL_BYTES as _;
            header.msg_len = 0;
        }
        // SAFETY: every header points to a vector, a buffer and control data of ours that live until the call returns.
        let n = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                BATCH_PACKETS_MAX as libc::c_uint,
                (libc::MSG_WAITFORONE | libc::MSG_TRUNC) as _,
                std::ptr::null_mut(),
            )
        };
        if n < 0 { Err(Error::last_os_error()) } else { Ok(n as usize) }
    }

    fn length(&self, at: usize) -> u64 {
        self.headers[at].msg_len.into()
    }

    /// The beginning of a packet, when it arrived (CLOCK_REALTIME), and how many packets this socket has dropped so far.
    fn packet(&self, at: usize) -> (&[u8], Option<u64>, Option<u64>) {
        let (mut stamp, mut dropped) = (None, None);
        let header = &self.headers[at].msg_hdr;
        // SAFETY: the kernel filled in the control data and its length; the macros stay within it.
        let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !message.is_null() {
            // SAFETY: the macro returned a header within the control data, filled in by the kernel.
            unsafe {
                let data = libc::CMSG_DATA(message);
                match ((*message).cmsg_level, (*message).cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                        let t: libc::timespec = data.cast::<libc::timespec>().read_unaligned();
                        stamp = Some(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64);
                    }
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                        dropped = Some(u64::from(data.cast::<u32>().read_unaligned()));
                    }
                    _ => (),
                }
                message = libc::CMSG_NXTHDR(header, message);
            }
        }
        let length = (self.headers[at].msg_len as usize).min(HEADER);
        (&self.buffers[at][..length], stamp, dropped)
    }
}

/// Prepares a socket for carrying packets: timestamps, the drop counter, a large buffer unless a size was requested, and a
/// read timeout, so that its threads check for the end regularly.
///
/// # Errors
/// The error of setsockopt.
pub fn prepare_socket(socket: &UdpSocket, own_buffer: bool) -> std::io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    for option in [libc::SO_TIMESTAMPNS, libc::SO_RXQ_OVFL] {
        set_int_option(socket, option, 1)?;
    }
    if own_buffer && set_int_option(socket, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES as libc::c_int).is_err() {
        // Without root it is limited to net.core.rmem_max.
        SockRef::from(socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    }
    Ok(())
}

fn set_int_option(socket: &UdpSocket, option: libc::c_int, value: libc::c_int) -> std::io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is an int of ours, and its size is given.
    let failed =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const value).cast(), size) };
    if failed == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn due_count_inverts_due_time(
            number in 0_u64..10_000_000, rate in 1000_u64..10_000_000_000, bytes in 32_u32..65_507,
        ) {
            let at = due_ns(number, rate, bytes);
            // The time is truncated to a whole ns, and so may be up to one early.
            prop_assert!(due_count(at + 1, rate, bytes) > number);
            prop_assert!(at == 0 || due_count(at - 1, rate, bytes) <= number);
        }
    }

    #[test]
    fn packet_count_matches_rate() {
        // 1 Mb/s in packets of 1250 bytes is 100 packets a second.
        assert_eq!(due_count(999_999_999, 1_000_000, 1250), 100);
        assert_eq!(due_ns(100, 1_000_000, 1250), 1_000_000_000);
    }
}
