//! When each packet leaves the link: a queue, a medium and a line, per direction. Pure: the caller passes the time.
//!
//! Packets wait in a queue ([`DirectionSpec::queue_packets`]). The *medium* sends one packet at a time and is busy with it
//! for the transmission time of its bytes plus the cost per packet. After that the packet spends a constant time on the
//! *line* (delay and jitter), which carries any number of packets at once. On a half-duplex link both directions share one
//! medium, which alternates while both have packets waiting.
//!
//! There is no token bucket and no tick. The end of transmission is computed exactly: a packet starts when it has arrived
//! and the medium is free, whichever is later, and occupies it for bits / rate + cost; fractions of a nanosecond are
//! carried from packet to packet while the medium stays busy, so that a thousand packets end when a thousand times their
//! bits would, to the nanosecond. The times at which the caller polls do not matter: a late poll changes when packets are
//! returned, never when they were due.
//!
//! Times are nanoseconds of any one monotonic clock.

use super::loss::Losses;
use super::packet::WireSize;
use super::spec::{DirectionSpec, Spec};
use stats::random::Random;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// The most bytes in flight in one direction, so that memory is bounded: 10 Gb/s over 400 ms.
pub const IN_FLIGHT_BYTES_MAX: u64 = 512 << 20;

/// A direction: [`UP`] or [`DOWN`].
pub type Direction = usize;
/// From the client to the server.
pub const UP: Direction = 0;
/// From the server to the client.
pub const DOWN: Direction = 1;

/// Why a packet was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushError {
    /// The queue is full, as in a router with a full queue.
    Queue,
    /// More is in flight than the emulator can hold: the result is not that of the link.
    Memory,
}

/// Packet counts of one direction by fate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketCounts {
    pub offered: u64,
    /// Their bytes, as IP packets.
    pub offered_bytes: u64,
    pub delivered: u64,
    pub delivered_bytes: u64,
    /// Packets lost by the loss model.
    pub lost: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that did not fit into memory: if there are any, the result is not that of the link.
    pub rejected: u64,
    /// The longest queue, packets.
    pub queue_max: u64,
}

impl PacketCounts {
    /// Packets still in the queue or on the line: all offered packets that are in no other count.
    pub fn in_flight(&self) -> u64 {
        let settled = self.delivered + self.lost + self.dropped + self.rejected;
        assert!(self.offered >= settled, "{self:?}");
        self.offered - settled
    }
}

/// A packet that leaves.
#[derive(Debug, PartialEq, Eq)]
pub struct Departure<T> {
    pub direction: Direction,
    /// When it should leave.
    pub due: u64,
    pub item: T,
}

struct QueuedPacket<T> {
    arrived: u64,
    size: WireSize,
    item: T,
}

struct InFlightPacket<T> {
    due: u64,
    order: u64,
    size: WireSize,
    item: T,
}

// BinaryHeap is a max-heap, so the earliest packet compares greatest.
impl<T> Ord for InFlightPacket<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
    }
}

impl<T> PartialOrd for InFlightPacket<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for InFlightPacket<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for InFlightPacket<T> {}

struct HalfLink<T> {
    spec: DirectionSpec,
    queue: VecDeque<QueuedPacket<T>>,
    queued_packets: u64,
    queued_bytes: u64,
    line: BinaryHeap<InFlightPacket<T>>,
    line_bytes: u64,
    last_due: u64,
    losses: Losses,
    random: Random,
    counts: PacketCounts,
}

impl<T> HalfLink<T> {
    /// Cheap; in tests and debug builds also the sums over all packets.
    fn check_invariants(&self) {
        assert!(self.queued_packets <= self.counts.in_flight());
        assert!(!self.queue.is_empty() || self.queued_packets == 0 && self.queued_bytes == 0);
        assert!(!self.line.is_empty() || self.line_bytes == 0);
        assert!(self.line_bytes + self.queued_bytes <= IN_FLIGHT_BYTES_MAX);
        #[cfg(any(test, debug_assertions))]
        {
            let sum = |sizes: &mut dyn Iterator<Item = WireSize>| {
                sizes.fold((0, 0), |(packets, bytes), size| (packets + u64::from(size.packets), bytes + size.bytes))
            };
            let queued = sum(&mut self.queue.iter().map(|packet| packet.size));
            let (line_packets, line_bytes) = sum(&mut self.line.iter().map(|packet| packet.size));
            assert_eq!((self.queued_packets, self.queued_bytes), queued);
            assert_eq!((self.counts.in_flight(), self.line_bytes), (queued.0 + line_packets, line_bytes));
            assert!(self.queue.iter().is_sorted_by_key(|packet| packet.arrived));
        }
    }
}

/// The transmitter: one packet at a time.
#[derive(Default, Clone, Copy)]
struct Medium {
    free_at: u64,
    /// The fraction of a nanosecond to add to `free_at`, in 1/rate.
    carry: u64,
    rate: u64,
    last: Direction,
}

/// A link that carries packets of type `T`.
pub struct EmulatedLink<T> {
    sides: [HalfLink<T>; 2],
    media: Vec<(Medium, Vec<Direction>)>,
    order: u64,
}

impl<T> EmulatedLink<T> {
    pub fn new(spec: &Spec) -> Self {
        let side = |way: DirectionSpec, number: u64| HalfLink {
            spec: way,
            queue: VecDeque::new(),
            queued_packets: 0,
            queued_bytes: 0,
            line: BinaryHeap::new(),
            line_bytes: 0,
            last_due: 0,
            losses: Losses::new(way.loss, spec.seed.wrapping_mul(4).wrapping_add(number)),
            random: Random::new(spec.seed.wrapping_mul(4).wrapping_add(number + 2)),
            counts: PacketCounts::default(),
        };
        // As if the other direction had been served last: up goes first.
        let medium = Medium { last: DOWN, ..Medium::default() };
        let media = if spec.half_duplex {
            vec![(medium, vec![UP, DOWN])]
        } else {
            vec![(medium, vec![UP]), (medium, vec![DOWN])]
        };
        Self { sides: [side(spec.up, 0), side(spec.down, 1)], media, order: 0 }
    }

    /// Adds a packet that arrives at the link. `now` is not before that of any earlier call of this direction; across both
    /// directions only by how late the packet was found.
    ///
    /// # Errors
    /// The packet was rejected, and is counted as such.
    pub fn push(&mut self, direction: Direction, item: T, size: WireSize, now: u64) -> Result<(), PushError> {
        assert!(size.packets > 0 && size.bytes > 0);
        self.advance(now);
        let side = &mut self.sides[direction];
        let packets = u64::from(size.packets);
        side.counts.offered += packets;
        side.counts.offered_bytes += size.bytes;
        let way = &side.spec;
        let full = side.queued_packets + packets > way.queue_packets.max(packets)
            || way.queue_bytes > 0 && side.queued_bytes + size.bytes > way.queue_bytes.max(size.bytes);
        // A packet that can be sent at once does not use the queue, so a queue of one holds one packet besides the one
        // being sent. A direction without a rate of its own also waits for a medium that the other direction occupies.
        if full {
            side.counts.dropped += packets;
            side.check_invariants();
            return Err(PushError::Queue);
        }
        if side.line_bytes + side.queued_bytes + size.bytes > IN_FLIGHT_BYTES_MAX {
            side.counts.rejected += packets;
            side.check_invariants();
            return Err(PushError::Memory);
        }
        side.queue.push_back(QueuedPacket { arrived: now, size, item });
        side.queued_packets += packets;
        side.queued_bytes += size.bytes;
        self.advance(now);
        let side = &mut self.sides[direction];
        side.counts.queue_max = side.counts.queue_max.max(side.queued_packets);
        side.check_invariants();
        Ok(())
    }

    /// Returns the next packet that is due, if any.
    pub fn pop(&mut self, now: u64) -> Option<Departure<T>> {
        self.advance(now);
        let direction = self.next_departing().filter(|d| self.sides[*d].line.peek().is_some_and(|f| f.due <= now))?;
        let side = &mut self.sides[direction];
        let flying = side.line.pop()?;
        side.line_bytes -= flying.size.bytes;
        side.counts.delivered += u64::from(flying.size.packets);
        side.counts.delivered_bytes += flying.size.bytes;
        assert!(flying.due <= now);
        side.check_invariants();
        Some(Departure { direction, due: flying.due, item: flying.item })
    }

    /// When to poll again: when the earliest packet is due, or when the medium starts the next one.
    pub fn next_event(&self) -> Option<u64> {
        let due = self.next_departing().and_then(|d| self.sides[d].line.peek()).map(|f| f.due);
        self.media.iter().filter_map(|(medium, sides)| Some(self.next_start(medium, sides)?.0)).chain(due).min()
    }

    /// Packet counts of a direction.
    pub fn counts(&self, direction: Direction) -> PacketCounts {
        self.sides[direction].counts
    }

    fn next_departing(&self) -> Option<Direction> {
        let first = |d: Direction| self.sides[d].line.peek().map(|f| (f.due, f.order, d));
        [first(UP), first(DOWN)].into_iter().flatten().min().map(|(_, _, d)| d)
    }

    /// When the medium starts the next packet, and of which direction.
    fn next_start(&self, medium: &Medium, sides: &[Direction]) -> Option<(u64, Direction)> {
        let head = |d: Direction| self.sides[d].queue.front().map(|w| (w.arrived.max(medium.free_at), d));
        let start = sides.iter().filter_map(|d| head(*d)).map(|(at, _)| at).min()?;
        let ready = sides.iter().filter_map(|d| head(*d)).filter(|(at, _)| *at == start);
        // The direction that was not served last goes first.
        ready.min_by_key(|(_, d)| *d == medium.last)
    }

    /// Transmits all packets whose transmission starts until `now`.
    fn advance(&mut self, now: u64) {
        for m in 0..self.media.len() {
            while let Some((start, direction)) = {
                let (medium, sides) = &self.media[m];
                self.next_start(medium, sides).filter(|(start, _)| *start <= now)
            } {
                self.transmit(m, direction, start);
            }
        }
    }

    fn transmit(&mut self, medium: usize, direction: Direction, start: u64) {
        let medium = &mut self.media[medium].0;
        let side = &mut self.sides[direction];
        let Some(sent) = side.queue.pop_front() else { return };
        side.queued_packets -= u64::from(sent.size.packets);
        side.queued_bytes -= sent.size.bytes;
        let way = side.spec;
        if start > medium.free_at || medium.rate != way.rate_bps {
            (medium.carry, medium.rate) = (0, way.rate_bps);
        }
        let mut end = start + way.packet_ns * u64::from(sent.size.packets);
        if let Some(rate) = std::num::NonZeroU64::new(way.rate_bps) {
            let time = u128::from(sent.size.bytes) * 8 * 1_000_000_000 + u128::from(medium.carry);
            end += (time / u128::from(rate.get())) as u64;
            medium.carry = (time % u128::from(rate.get())) as u64;
        }
        // It sends one packet at a time, and not before the packet has arrived.
        assert!(start >= medium.free_at && start >= sent.arrived && end >= start);
        (medium.free_at, medium.last) = (end, direction);
        if side.losses.loses_next() {
            side.counts.lost += u64::from(sent.size.packets);
            return;
        }
        let mut due = end + way.delay_ns;
        if way.jitter_ns > 0 {
            due = due.saturating_sub(way.jitter_ns) + side.random.below(2 * way.jitter_ns + 1);
            if !way.reorder {
                due = due.max(side.last_due);
            }
        }
        side.last_due = due;
        side.line_bytes += sent.size.bytes;
        self.order += 1;
        side.line.push(InFlightPacket { due, order: self.order, size: sent.size, item: sent.item });
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
