//! When which packet leaves the link: a queue, a medium and a line, per direction. Pure: the caller says what time it is.
//!
//! Packets wait in a queue ([`DirectionSpec::queue_packets`]). The *medium* sends one packet at a time and is busy with
//! it for as long as the packet's bytes and the cost per packet take. What it has sent then takes a constant time, any
//! number of packets at once (the *line*: delay and jitter). On a half-duplex link both directions share one medium,
//! which alternates while both have packets waiting.
//!
//! There is no token bucket and no tick. The end of sending is computed exactly: a packet starts when it has arrived and
//! the medium is free, whichever is later, and occupies it for bits / rate + cost; fractions of a nanosecond are carried
//! from packet to packet while the medium stays busy, so that a thousand packets end when a thousand times their bits
//! would, to the nanosecond. It does not matter when the caller looks: a late look changes when packets are handed out,
//! never when they were due.
//!
//! Times are nanoseconds of any one clock that does not go back.

use super::loss::Losses;
use super::packet::Size;
use super::spec::{DirectionSpec, Spec};
use stats::random::Random;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// More than this under way in one direction is refused, so that memory is bounded: 10 Gb/s over 400 ms.
pub const IN_FLIGHT_BYTES: u64 = 512 << 20;

/// A direction: [`UP`] or [`DOWN`].
pub type Direction = usize;
/// From the client to the server.
pub const UP: Direction = 0;
/// From the server to the client.
pub const DOWN: Direction = 1;

/// Why a packet was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The queue is full: what a full queue of a router does.
    Queue,
    /// More is under way than the emulator can hold: the result is not the link's.
    Memory,
}

/// What became of one direction's packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets offered.
    pub offered: u64,
    /// Their bytes, as IP packets.
    pub offered_bytes: u64,
    /// Packets handed out.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets that the loss model took.
    pub lost: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that did not fit into memory: if there are any, the result is not the link's.
    pub refused: u64,
    /// Most packets that ever waited.
    pub queue_max: u64,
}

impl Counts {
    /// Packets of which nothing has become yet: they wait or are on the line. Those that were offered are these and the others.
    pub fn under_way(&self) -> u64 {
        self.offered.saturating_sub(self.delivered + self.lost + self.dropped + self.refused)
    }
}

/// A packet that leaves.
#[derive(Debug, PartialEq, Eq)]
pub struct Departure<T> {
    /// Where to.
    pub direction: Direction,
    /// When it should leave.
    pub due: u64,
    /// What was pushed.
    pub item: T,
}

struct Waiting<T> {
    arrived: u64,
    size: Size,
    item: T,
}

struct Flying<T> {
    due: u64,
    order: u64,
    size: Size,
    item: T,
}

// The heap's greatest is what leaves first.
impl<T> Ord for Flying<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
    }
}

impl<T> PartialOrd for Flying<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Flying<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Flying<T> {}

struct HalfLink<T> {
    way: DirectionSpec,
    waiting: VecDeque<Waiting<T>>,
    waiting_packets: u64,
    waiting_bytes: u64,
    flying: BinaryHeap<Flying<T>>,
    flying_bytes: u64,
    last_due: u64,
    losses: Losses,
    random: Random,
    counts: Counts,
}

/// What sends: one packet at a time.
#[derive(Default, Clone, Copy)]
struct Medium {
    free_at: u64,
    /// The part of a nanosecond by which `free_at` is too early, in 1/rate.
    carry: u64,
    rate: u64,
    last: Direction,
}

/// A link with packets of type `T` on it.
pub struct EmulatedLink<T> {
    sides: [HalfLink<T>; 2],
    media: Vec<(Medium, Vec<Direction>)>,
    order: u64,
}

impl<T> EmulatedLink<T> {
    /// An empty link.
    pub fn new(spec: &Spec) -> Self {
        let side = |way: DirectionSpec, number: u64| HalfLink {
            way,
            waiting: VecDeque::new(),
            waiting_packets: 0,
            waiting_bytes: 0,
            flying: BinaryHeap::new(),
            flying_bytes: 0,
            last_due: 0,
            losses: Losses::new(way.loss, spec.seed.wrapping_mul(4).wrapping_add(number)),
            random: Random::new(spec.seed.wrapping_mul(4).wrapping_add(number + 2)),
            counts: Counts::default(),
        };
        // As if the other direction had been served last: up goes first.
        let medium = Medium { last: DOWN, ..Medium::default() };
        let media = match spec.half_duplex {
            true => vec![(medium, vec![UP, DOWN])],
            false => vec![(medium, vec![UP]), (medium, vec![DOWN])],
        };
        Self { sides: [side(spec.up, 0), side(spec.down, 1)], media, order: 0 }
    }

    /// A packet arrives at the link. `now` is not before that of any earlier call of this direction; of all calls only by how late the packet was found.
    ///
    /// # Errors
    /// It was refused, and is counted as such.
    pub fn push(&mut self, direction: Direction, item: T, size: Size, now: u64) -> Result<(), Refused> {
        self.advance(now);
        let side = &mut self.sides[direction];
        let packets = u64::from(size.packets);
        side.counts.offered += packets;
        side.counts.offered_bytes += size.bytes;
        let way = &side.way;
        let full = side.waiting_packets + packets > way.queue_packets.max(packets)
            || way.queue_bytes > 0 && side.waiting_bytes + size.bytes > way.queue_bytes.max(size.bytes);
        // Whoever can be sent at once does not wait, so that a queue of one is one packet besides that being sent; but also a
        // way without a limit of its own waits for a medium that the other way occupies.
        if full {
            side.counts.dropped += packets;
            return Err(Refused::Queue);
        }
        if side.flying_bytes + side.waiting_bytes + size.bytes > IN_FLIGHT_BYTES {
            side.counts.refused += packets;
            return Err(Refused::Memory);
        }
        side.waiting.push_back(Waiting { arrived: now, size, item });
        side.waiting_packets += packets;
        side.waiting_bytes += size.bytes;
        self.advance(now);
        let side = &mut self.sides[direction];
        side.counts.queue_max = side.counts.queue_max.max(side.waiting_packets);
        Ok(())
    }

    /// The next packet that is due, if one is.
    pub fn pop(&mut self, now: u64) -> Option<Departure<T>> {
        self.advance(now);
        let direction = self.next_side().filter(|d| self.sides[*d].flying.peek().is_some_and(|f| f.due <= now))?;
        let side = &mut self.sides[direction];
        let flying = side.flying.pop()?;
        side.flying_bytes -= flying.size.bytes;
        side.counts.delivered += u64::from(flying.size.packets);
        side.counts.delivered_bytes += flying.size.bytes;
        Some(Departure { direction, due: flying.due, item: flying.item })
    }

    /// When to look again: at the earliest due packet, or when the medium takes the next one.
    pub fn next_event(&self) -> Option<u64> {
        let due = self.next_side().and_then(|d| self.sides[d].flying.peek()).map(|f| f.due);
        self.media.iter().filter_map(|(medium, sides)| Some(self.next_start(medium, sides)?.0)).chain(due).min()
    }

    /// What became of the packets of a direction.
    pub fn counts(&self, direction: Direction) -> Counts {
        self.sides[direction].counts
    }

    fn next_side(&self) -> Option<Direction> {
        let first = |d: Direction| self.sides[d].flying.peek().map(|f| (f.due, f.order, d));
        [first(UP), first(DOWN)].into_iter().flatten().min().map(|(_, _, d)| d)
    }

    /// When the medium takes a packet next, and whose.
    fn next_start(&self, medium: &Medium, sides: &[Direction]) -> Option<(u64, Direction)> {
        let head = |d: Direction| self.sides[d].waiting.front().map(|w| (w.arrived.max(medium.free_at), d));
        let start = sides.iter().filter_map(|d| head(*d)).map(|(at, _)| at).min()?;
        let ready = sides.iter().filter_map(|d| head(*d)).filter(|(at, _)| *at == start);
        // Those who were not served last go first.
        ready.min_by_key(|(_, d)| *d == medium.last)
    }

    /// Lets the media send whatever they started until `now`.
    fn advance(&mut self, now: u64) {
        for m in 0..self.media.len() {
            while let Some((start, direction)) = {
                let (medium, sides) = &self.media[m];
                self.next_start(medium, sides).filter(|(start, _)| *start <= now)
            } {
                self.send(m, direction, start);
            }
        }
    }

    fn send(&mut self, medium: usize, direction: Direction, start: u64) {
        let medium = &mut self.media[medium].0;
        let side = &mut self.sides[direction];
        let Some(sent) = side.waiting.pop_front() else { return };
        side.waiting_packets -= u64::from(sent.size.packets);
        side.waiting_bytes -= sent.size.bytes;
        let way = side.way;
        if start > medium.free_at || medium.rate != way.rate_bps {
            (medium.carry, medium.rate) = (0, way.rate_bps);
        }
        let mut end = start + way.packet_ns * u64::from(sent.size.packets);
        if let Some(rate) = std::num::NonZeroU64::new(way.rate_bps) {
            let time = u128::from(sent.size.bytes) * 8 * 1_000_000_000 + u128::from(medium.carry);
            end += (time / u128::from(rate.get())) as u64;
            medium.carry = (time % u128::from(rate.get())) as u64;
        }
        (medium.free_at, medium.last) = (end, direction);
        if side.losses.takes() {
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
        side.flying_bytes += sent.size.bytes;
        self.order += 1;
        side.flying.push(Flying { due, order: self.order, size: sent.size, item: sent.item });
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
