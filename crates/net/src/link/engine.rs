//! The loop of the emulator: reads packets from two TUN devices, holds them as [`schedule`](super::schedule) says, writes
//! them to the other device when they are due, and notes how late each was.
//!
//! One thread does both directions, so that a half-duplex medium needs no lock. It sleeps until shortly before the next
//! instant (`ppoll` with the timer slack at one nanosecond) and watches the clock for the rest ([`SPIN_NS`]), since waking
//! takes tens of microseconds that nobody can foresee. Where it is allowed it runs with SCHED_FIFO and its memory locked: an
//! ordinary thread waits for the sender and the receiver that it stands between. Whether that was granted is in the
//! outcome.
//!
//! A TUN device drops what its queue cannot hold, before the emulator ever sees it. The queue is made long
//! ([`TUN_QUEUE`]), and the kernel's own count of such drops is read at the end ([`super::bed`]).

use super::lateness::Lateness;
use super::packet::{HEADER, LARGEST, measure};
use super::schedule::{Counts, DOWN, Link, Refused, UP};
use super::spec::Spec;
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The last part of a wait is spent watching the clock.
pub const SPIN_NS: u64 = 40_000;
/// Packets that a TUN device may hold for the emulator.
pub const TUN_QUEUE: u32 = 10_000;
/// Packets read from one side before the clock is looked at again.
const BATCH: usize = 32;
/// The longest sleep, after which a wish to stop is noticed.
const NAP_NS: u64 = 20_000_000;
/// Whoever did not look for so long did not run: the machine was stopped or suspended, or had no time at all.
const STILL_NS: u64 = 1_000_000_000;
/// What a small piece of memory begins with.
const SMALL: usize = 2048;
/// What is longer is kept where it was read, in a piece of [`LARGEST`]: so memory is at most twice what is counted.
const COPIED: usize = LARGEST / 2;
/// Pieces of memory kept for the next packet.
const SPARE: usize = 1024;

/// What a run of the link gave.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Lateness of every packet delivered.
    pub lateness: Lateness,
    /// What became of the packets, up and down.
    pub counts: [Counts; 2],
    /// What was no IP packet.
    pub unreadable: u64,
    /// Packets that the kernel refused when they were due.
    pub unwritten: u64,
    /// Packets that the TUN devices dropped before they were read.
    pub overrun: u64,
    /// For how long the emulator did not run, in stretches of more than a second, ns.
    pub still_ns: u64,
    /// Whether SCHED_FIFO was granted.
    pub realtime: bool,
    /// Whether large packets passed in one piece.
    pub large_packets: bool,
    /// Why the emulator's thread ended by itself, or was not in the way.
    pub failed: Option<String>,
}

impl Outcome {
    /// Why the result is not the link's that was asked for; nothing if it is.
    pub fn invalid(&self, spec: &Spec) -> Vec<String> {
        let delay = spec.up.delay_ns.min(spec.down.delay_ns);
        let refused = self.counts.iter().map(|c| c.refused).sum::<u64>();
        let counted = [
            (self.overrun, "packets were dropped before the emulator could read them"),
            (self.unwritten, "packets were refused by the kernel when they were due"),
            (refused, "packets found the emulator's memory full"),
        ];
        let counted = counted.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        let still = (self.still_ns > 0).then(|| {
            format!(
                "the emulator did not run for {:.1} s: this machine was stopped or suspended",
                self.still_ns as f64 / 1e9
            )
        });
        self.lateness.verdict(delay).err().into_iter().chain(still).chain(counted).chain(self.failed.clone()).collect()
    }
}

/// CLOCK_MONOTONIC, nanoseconds.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The two ends of the link and what is between them.
pub struct Engine {
    /// The client's device and the server's.
    ends: [File; 2],
    link: Link<Vec<u8>>,
    /// Where the next packet is read to.
    room: Vec<u8>,
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    outcome: Outcome,
}

impl Engine {
    /// `client` and `server` are TUN devices with a vnet header.
    ///
    /// # Errors
    /// They cannot be made not to block, or refuse offloads.
    pub fn new(client: OwnedFd, server: OwnedFd, spec: &Spec) -> Result<Self> {
        let ends = [File::from(client), File::from(server)];
        for end in &ends {
            prepare(end, spec.large_packets())?;
        }
        let outcome = Outcome { large_packets: spec.large_packets(), ..Outcome::default() };
        let room = vec![0; LARGEST];
        Ok(Self { ends, link: Link::new(spec), room, small: Vec::new(), large: Vec::new(), outcome })
    }

    /// Carries packets on a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(self) -> Result<Emulator> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = stop.clone();
        let thread = std::thread::Builder::new().name("link".into()).spawn(move || self.run(&flag))?;
        Ok(Emulator { thread: Some(thread), stop })
    }

    /// Carries packets until `stop` is set. What is still under way then is not delivered.
    fn run(mut self, stop: &AtomicBool) -> Outcome {
        self.outcome.realtime = hurry();
        let mut looked = now_ns();
        while !stop.load(Ordering::Relaxed) {
            let now = now_ns();
            // No turn takes that long: the longest nap is a fiftieth of it.
            self.outcome.still_ns += Some(now - looked).filter(|ns| *ns > STILL_NS).unwrap_or(0);
            looked = now;
            if let Err(error) = self.turn() {
                self.outcome.failed = Some(format!("the emulator stopped: {error}"));
                break;
            }
        }
        self.outcome.counts = [self.link.counts(UP), self.link.counts(DOWN)];
        self.outcome
    }

    /// Writes what is due, reads what has come, and waits if there was neither.
    fn turn(&mut self) -> Result<()> {
        let wrote = self.deliver()?;
        let mut read = false;
        for direction in [UP, DOWN] {
            read |= self.take(direction)?;
        }
        if wrote || read {
            return Ok(());
        }
        let now = now_ns();
        let wait = self.link.next_event().map_or(NAP_NS, |at| at.saturating_sub(now).min(NAP_NS));
        if wait > SPIN_NS { self.sleep(wait - SPIN_NS) } else { Ok(()) }
    }

    fn deliver(&mut self) -> Result<bool> {
        let mut some = false;
        while let Some(departure) = self.link.pop(now_ns()) {
            some = true;
            // From the client's device to the server's, or back.
            match (&self.ends[1 - departure.direction]).write(&departure.item) {
                Ok(_) => self.outcome.lateness.record(departure.due, now_ns()),
                // The device is gone: so is the link.
                Err(e) if e.raw_os_error() == Some(libc::EBADFD) => return Err(e),
                Err(_) => self.outcome.unwritten += 1,
            }
            self.keep(departure.item);
        }
        Ok(some)
    }

    /// Reads what the device of one end holds, at most [`BATCH`] packets.
    fn take(&mut self, direction: usize) -> Result<bool> {
        for n in 0..BATCH {
            let length = match (&self.ends[direction]).read(&mut self.room) {
                Ok(length) => length,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(n > 0),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let Some(size) = measure(&self.room[..length]) else {
                self.outcome.unreadable += 1;
                continue;
            };
            let (packet, now) = (self.packed(length), now_ns());
            // Whoever is refused is counted there.
            let (Ok(()) | Err(Refused::Queue | Refused::Memory)) = self.link.push(direction, packet, size, now);
            // Nobody who is due waits for the rest of the batch.
            if self.link.next_event().is_some_and(|at| at <= now) {
                return Ok(true);
            }
        }
        Ok(true)
    }

    /// The packet just read, in memory of its own.
    fn packed(&mut self, length: usize) -> Vec<u8> {
        if length <= COPIED {
            let mut packet = self.small.pop().unwrap_or_else(|| Vec::with_capacity(SMALL));
            packet.clear();
            packet.extend_from_slice(&self.room[..length]);
            return packet;
        }
        let mut next = self.large.pop().unwrap_or_default();
        next.resize(LARGEST, 0);
        let mut packet = std::mem::replace(&mut self.room, next);
        packet.truncate(length);
        packet
    }

    /// Keeps a piece of memory for the next packet.
    fn keep(&mut self, packet: Vec<u8>) {
        let spare = if packet.capacity() >= LARGEST { &mut self.large } else { &mut self.small };
        if spare.len() < SPARE {
            spare.push(packet);
        }
    }

    fn sleep(&self, ns: u64) -> Result<()> {
        let mut fds = [&self.ends[0], &self.ends[1]].map(|end| libc::pollfd {
            fd: end.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let time = libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ };
        // SAFETY: two pollfds and a timespec of ours; no signal mask.
        let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, &time, std::ptr::null()) };
        let error = Error::last_os_error();
        if ready < 0 && error.kind() != ErrorKind::Interrupted { Err(error) } else { Ok(()) }
    }
}

/// A running engine, whose end this is when it is dropped.
#[derive(Debug)]
pub struct Emulator {
    thread: Option<JoinHandle<Outcome>>,
    stop: Arc<AtomicBool>,
}

impl Emulator {
    /// Ends it and says how it went; its devices are closed then.
    pub fn halt(&mut self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Outcome::default() };
        thread.join().unwrap_or_else(|_| Outcome { failed: Some("the emulator failed".into()), ..Outcome::default() })
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.halt();
    }
}

/// Makes a device not block, and lets the kernel leave checksums, and if `large` segmentation, undone.
fn prepare(device: &File, large: bool) -> Result<()> {
    const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
    const TUNSETVNETHDRSZ: libc::Ioctl = 0x4004_54d8;
    // TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6, TUN_F_TSO_ECN of linux/if_tun.h.
    let (checksums, segmentation) = (1, 2 | 4 | 8);
    let offloads: libc::c_ulong = if large { checksums | segmentation } else { checksums };
    let header: libc::c_int = HEADER as libc::c_int;
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

/// Asks the kernel to wake this thread on time. Returns whether it may go before all ordinary threads.
fn hurry() -> bool {
    // struct sched_param of the kernel. The call goes to the kernel directly: musl's function only says that it is absent.
    let priority: libc::c_int = 10;
    // SAFETY: integer arguments, and an int of ours that is read. None of them can do harm by failing.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT);
        // Of the calling thread; what it starts is ordinary again.
        let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0
    }
}
