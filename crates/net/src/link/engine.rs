//! The loop of the emulator: reads packets from two TUN devices, holds them as [`schedule`](super::schedule) determines,
//! writes them to the other device when they are due, and records how late each was.
//!
//! One thread handles both directions, so that a half-duplex medium needs no lock. It sleeps until shortly before the next
//! deadline (`ppoll` with the timer slack at one nanosecond) and busy-waits for the rest. [`arrival`](super::arrival)
//! determines how long before, and from when the delay of a packet counts that arrived during a sleep. Where permitted, the
//! thread runs with SCHED_FIFO and locked memory: an ordinary thread would compete with the sender and the receiver for CPU
//! time. The outcome records whether that was granted.
//!
//! A TUN device drops packets that exceed its queue, before the emulator can read them. The queue is made long
//! ([`TUN_QUEUE_PACKETS`]), and the kernel's count of such drops is read at the end ([`super::test_bed`]).

use super::arrival::{ArrivalBounds, Sleep, WakeLead};
use super::effect::Effect;
use super::lateness::{Lateness, LatenessBounds};
use super::packet::{FRAME_BYTES_MAX, VNET_HEADER_BYTES, wire_size};
use super::schedule::{DOWN, EmulatedLink, PacketCounts, PushError, UP};
use super::spec::{DirectionSpec, Spec};
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Packets that a TUN device may hold for the emulator.
pub const TUN_QUEUE_PACKETS: u32 = 10_000;
/// Packets read from one side before the clock is read again.
const BATCH_PACKETS_MAX: usize = 32;
/// The longest sleep, which bounds the response to a stop request.
const SLEEP_NS_MAX: u64 = 20_000_000;
/// The longest sleep while packets pass, so that the emulator detects when it was stopped for longer.
const PASSING_SLEEP_NS_MAX: u64 = 1_000_000;
/// Packets pass if one was read within this.
const PASSING_TIMEOUT_NS: u64 = 50_000_000;
/// Lateness above this counts as time in which the emulator blocked the link.
const STALL_NS_MIN: u64 = 1_000_000;
/// After a sleep shorter than this, the CPU wait is not used to date arrivals.
const DATED_SLEEP_NS_MIN: u64 = 30_000;
/// If the emulator did not poll for this long it was not running: the machine was stopped or suspended, or had no CPU time at all.
const SUSPENSION_NS_MIN: u64 = 1_000_000_000;
/// Initial capacity of a small buffer.
const SMALL_BUFFER_BYTES: usize = 2048;
/// Longer packets stay in the buffer they were read into, of [`FRAME_BYTES_MAX`] bytes: so memory use is at most twice
/// what is counted.
const COPIED_PACKET_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;
/// Free buffers kept for later packets.
const SPARE_BUFFERS_MAX: usize = 1024;

/// The result of a run of the link.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Lateness of every delivered packet, up and down.
    pub late: [LatenessBounds; 2],
    /// Of the packets that found the queue full, the number read after the emulator had not polled for longer than such a
    /// packet takes to transmit, up and down.
    pub in_doubt: [u64; 2],
    /// For how long packets passed, ns.
    pub passing_ns: u64,
    /// Of this, for how long the emulator was behind by more than a millisecond, ns.
    pub stalled_ns: u64,
    /// Packet counts by fate, up and down.
    pub counts: [PacketCounts; 2],
    /// Frames that were not IP packets.
    pub unreadable: u64,
    /// Packets that the kernel rejected when they were due.
    pub unwritten: u64,
    /// Packets that the TUN devices dropped before they were read.
    pub overrun: u64,
    /// For how long the emulator did not run, in stretches of more than a second, ns.
    pub suspended_ns: u64,
    /// Whether SCHED_FIFO was granted.
    pub realtime: bool,
    /// Whether large packets passed in one piece.
    pub large_packets: bool,
    /// Why the emulator's thread ended by itself, or was not in the path.
    pub failure: Option<String>,
}

impl Outcome {
    /// Known lateness of the packets of both directions.
    pub fn lateness(&self) -> Lateness {
        self.late[UP].known.clone().merged(&self.late[DOWN].known)
    }

    /// How lateness affected a result.
    pub fn effect(&self, spec: &Spec) -> Effect {
        Effect::from_lateness(spec, &self.late, self.stalled_ns, self.passing_ns)
    }

    /// Why a result is not that of the requested link; empty if it is. `own`: half-width of the result's own confidence
    /// interval, as a share of the result.
    pub fn invalid_reasons(&self, spec: &Spec, own: Option<f64>) -> Vec<String> {
        let refused = self.counts.iter().map(|c| c.rejected).sum::<u64>();
        let counted = [
            (self.overrun, "packets were dropped before the emulator could read them"),
            (self.unwritten, "packets were rejected by the kernel when they were due"),
            (refused, "packets did not fit in the emulator's memory"),
        ];
        let counted = counted.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        let still = (self.suspended_ns > 0).then(|| {
            format!(
                "the emulator did not run for {:.1} s: this machine was stopped or suspended",
                self.suspended_ns as f64 / 1e9
            )
        });
        let late = self.effect(spec).verdict(own).err().map(|late| late.to_string());
        late.into_iter().chain(still).chain(counted).chain(self.failure.clone()).collect()
    }
}

/// CLOCK_MONOTONIC, nanoseconds.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A packet on the link.
struct HeldPacket {
    frame: Vec<u8>,
    /// How much earlier than the start of its delay it may have arrived, ns.
    unseen_ns: u64,
}

/// The two ends of the link and the link between them.
pub struct Engine {
    /// The client's device and the server's.
    ends: [File; 2],
    link: EmulatedLink<HeldPacket>,
    arrivals: [ArrivalBounds; 2],
    wake_lead: WakeLead,
    /// When the last packet was read.
    last_read: u64,
    /// The kernel's CPU accounting of this thread.
    schedstat: Option<File>,
    spec: Spec,
    /// The buffer for the next packet.
    read_buffer: Vec<u8>,
    small_buffers: Vec<Vec<u8>>,
    large_buffers: Vec<Vec<u8>>,
    outcome: Outcome,
}

impl Engine {
    /// `client` and `server` are TUN devices with a vnet header.
    ///
    /// # Errors
    /// They cannot be made non-blocking, or reject offloads.
    pub fn new(client: OwnedFd, server: OwnedFd, spec: &Spec) -> Result<Self> {
        let ends = [File::from(client), File::from(server)];
        for end in &ends {
            prepare_device(end, spec.large_packets())?;
        }
        let outcome = Outcome { large_packets: spec.large_packets(), ..Outcome::default() };
        let room = vec![0; FRAME_BYTES_MAX];
        let now = now_ns();
        Ok(Self {
            ends,
            link: EmulatedLink::new(spec),
            arrivals: [ArrivalBounds::since(now); 2],
            wake_lead: WakeLead::new(now),
            last_read: now,
            schedstat: None,
            spec: *spec,
            read_buffer: room,
            small_buffers: Vec::new(),
            large_buffers: Vec::new(),
            outcome,
        })
    }

    /// Carries packets on a thread of its own.
    pub fn start(self) -> Result<Emulator> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = std::thread::Builder::new().name("link".into()).spawn(move || self.run(&flag))?;
        Ok(Emulator { thread: Some(thread), stop })
    }

    /// Carries packets until `stop` is set. Packets in transit then are not delivered.
    fn run(mut self, stop: &AtomicBool) -> Outcome {
        self.outcome.realtime = raise_priority();
        // It refers to the calling thread, so it is opened here.
        self.schedstat = File::open("/proc/thread-self/schedstat").ok();
        let mut looked = now_ns();
        while !stop.load(Ordering::Relaxed) {
            let now = now_ns();
            // No iteration takes that long: the longest sleep is a fiftieth of it.
            self.outcome.suspended_ns += Some(now - looked).filter(|ns| *ns > SUSPENSION_NS_MIN).unwrap_or(0);
            looked = now;
            if let Err(error) = self.run_once() {
                self.outcome.failure = Some(format!("the emulator stopped: {error}"));
                break;
            }
        }
        self.outcome.counts = [self.link.counts(UP), self.link.counts(DOWN)];
        self.outcome
    }

    /// Writes packets that are due, reads packets that have arrived, and sleeps if there were neither.
    fn run_once(&mut self) -> Result<()> {
        let wrote = self.deliver()?;
        let mut read = false;
        for direction in [UP, DOWN] {
            read |= self.read_packets(direction)?;
        }
        if wrote || read {
            return Ok(());
        }
        let now = now_ns();
        let nap = if now - self.last_read < PASSING_TIMEOUT_NS { PASSING_SLEEP_NS_MAX } else { SLEEP_NS_MAX };
        let Some(due) = self.link.next_event() else { return self.sleep(now, nap, None) };
        let ahead = self.wake_lead.next_lead_ns(now);
        match due.saturating_sub(now) {
            wait if wait > nap + ahead => self.sleep(now, nap, None),
            wait if wait > ahead => self.sleep(now, wait - ahead, Some(ahead)),
            _ => Ok(()),
        }
    }

    fn deliver(&mut self) -> Result<bool> {
        let (mut some, mut behind) = (false, 0);
        while let Some(departure) = self.link.pop(now_ns()) {
            some = true;
            // From the client's device to the server's, or back.
            let (held, begun) = (departure.item, now_ns());
            match (&self.ends[1 - departure.direction]).write(&held.frame) {
                Ok(_) => {
                    let late = &mut self.outcome.late[departure.direction];
                    late.record(departure.due, (begun, now_ns()), held.unseen_ns);
                    behind = behind.max(begun.saturating_sub(departure.due).saturating_add(held.unseen_ns));
                }
                // The device is gone, and with it the link.
                Err(e) if e.raw_os_error() == Some(libc::EBADFD) => return Err(e),
                Err(_) => self.outcome.unwritten += 1,
            }
            self.recycle(held.frame);
        }
        self.outcome.stalled_ns += if behind > STALL_NS_MIN { behind } else { 0 };
        Ok(some)
    }

    /// Reads what the device of one end holds, at most [`BATCH_PACKETS_MAX`] packets.
    fn read_packets(&mut self, direction: usize) -> Result<bool> {
        // Packets that this read does not find arrive after this moment.
        let mut looked = now_ns();
        for n in 0..BATCH_PACKETS_MAX {
            let length = match (&self.ends[direction]).read(&mut self.read_buffer) {
                Ok(length) => length,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.arrivals[direction].record_empty_poll(looked);
                    return Ok(n > 0);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let Some(size) = wire_size(&self.read_buffer[..length]) else {
                self.outcome.unreadable += 1;
                continue;
            };
            let (frame, now) = (self.take_packet(length), now_ns());
            self.outcome.passing_ns += (now - self.last_read).min(PASSING_TIMEOUT_NS);
            (looked, self.last_read) = (now, now);
            let (from, unseen_ns) = self.arrivals[direction].date_packet(now);
            // The link counts rejected packets.
            if self.link.push(direction, HeldPacket { frame, unseen_ns }, size, from) == Err(PushError::Queue) {
                let takes_ns = self.direction_spec(direction).medium_time_ns(size.bytes, size.packets);
                self.outcome.in_doubt[direction] += if unseen_ns > takes_ns { u64::from(size.packets) } else { 0 };
            }
            // A packet that is due does not wait for the rest of the batch.
            if self.link.next_event().is_some_and(|at| at <= now) {
                return Ok(true);
            }
        }
        Ok(true)
    }

    fn direction_spec(&self, direction: usize) -> &DirectionSpec {
        if direction == UP { &self.spec.up } else { &self.spec.down }
    }

    /// Moves the packet just read into a buffer of its own.
    fn take_packet(&mut self, length: usize) -> Vec<u8> {
        if length <= COPIED_PACKET_BYTES_MAX {
            let mut packet = self.small_buffers.pop().unwrap_or_else(|| Vec::with_capacity(SMALL_BUFFER_BYTES));
            packet.clear();
            packet.extend_from_slice(&self.read_buffer[..length]);
            return packet;
        }
        let mut next = self.large_buffers.pop().unwrap_or_default();
        next.resize(FRAME_BYTES_MAX, 0);
        let mut packet = std::mem::replace(&mut self.read_buffer, next);
        packet.truncate(length);
        packet
    }

    /// Keeps a buffer for a later packet.
    fn recycle(&mut self, packet: Vec<u8>) {
        let spare =
            if packet.capacity() >= FRAME_BYTES_MAX { &mut self.large_buffers } else { &mut self.small_buffers };
        if spare.len() < SPARE_BUFFERS_MAX {
            spare.push(packet);
        }
    }

    /// How long this thread has been runnable and waited for a CPU so far, ns; `None` if the kernel does not report it.
    fn waited_ns(&self) -> Option<u64> {
        let mut text = [0; 96];
        let length = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(text.get(..length)?).ok()?.split_whitespace().nth(1)?.parse().ok()
    }

    /// Sleeps for `ns` or until a packet arrives. `ahead`: how long before a deadline the sleep is to end.
    fn sleep(&mut self, from: u64, ns: u64, ahead: Option<u64>) -> Result<()> {
        let mut fds = [&self.ends[0], &self.ends[1]].map(|end| libc::pollfd {
            fd: end.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let time = libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ };
        let before = self.waited_ns();
        // SAFETY: two pollfds and a timespec of ours; no signal mask.
        let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, &time, std::ptr::null()) };
        let (woke, error) = (now_ns(), Error::last_os_error());
        if ready < 0 {
            return if error.kind() == ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        if ready == 0 {
            // The kernel checked both devices once more when the time was over, and found nothing: packets read from now on
            // arrived after that.
            self.arrivals.iter_mut().for_each(|looks| looks.record_empty_poll(from + ns));
            ahead.inspect(|ahead| self.wake_lead.record_wakeup(from + ns, *ahead, woke));
            return Ok(());
        }
        let since = |before: u64| self.waited_ns().map(|now| now.saturating_sub(before));
        let waited_ns = if woke - from > DATED_SLEEP_NS_MIN { before.and_then(since) } else { None };
        let slept = Sleep { from, requested_ns: ns, woke, waited_ns };
        for (direction, fd) in fds.iter().enumerate().filter(|(_, fd)| fd.revents != 0) {
            debug_assert_eq!(fd.fd, self.ends[direction].as_raw_fd());
            self.arrivals[direction].record_wake(&slept, ready == 1);
        }
        Ok(())
    }
}

/// A running engine, stopped when dropped.
#[derive(Debug)]
pub struct Emulator {
    thread: Option<JoinHandle<Outcome>>,
    stop: Arc<AtomicBool>,
}

impl Emulator {
    /// Stops the engine and returns its outcome; its devices are closed then.
    pub fn stop(&mut self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Outcome::default() };
        thread.join().unwrap_or_else(|_| Outcome { failure: Some("the emulator failed".into()), ..Outcome::default() })
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes a device non-blocking, and enables offloads of checksums and, if `large`, segmentation.
fn prepare_device(device: &File, large: bool) -> Result<()> {
    const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
    const TUNSETVNETHDRSZ: libc::Ioctl = 0x4004_54d8;
    // TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6, TUN_F_TSO_ECN of linux/if_tun.h.
    let (checksums, segmentation) = (1, 2 | 4 | 8);
    let offloads: libc::c_ulong = if large { checksums | segmentation } else { checksums };
    let header: libc::c_int = VNET_HEADER_BYTES as libc::c_int;
    let fd = device.as_raw_fd();
    // SAFETY: the first two read an integer argument, the third an int of ours.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0
            || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0
            || libc::ioctl(fd, TUNSETVNETHDRSZ, &header) < 0
            || libc::ioctl(fd, TUNSETOFFLOAD, offloads) < 0
        {
            return Err(Error::last_os_error());
        }
    }
    Ok(())
}

/// Requests timely wake-ups for this thread. Returns whether it runs ahead of all ordinary threads.
fn raise_priority() -> bool {
    // struct sched_param of the kernel. The system call is made directly: musl's function only returns an error.
    let priority: libc::c_int = 10;
    // SAFETY: integer arguments, and an int of ours that is read. A failure of any of these calls is harmless.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT);
        // Of the calling thread; its children are scheduled normally again.
        let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0
    }
}
