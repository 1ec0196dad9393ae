//! The arrival order of numbered packets: which are new, duplicate, or late.
//!
//! One bit per number records whether it arrived, for the last [`WINDOW_PACKETS`] numbers, so that memory does not grow
//! with a run. A packet is **reordered** if one with a higher number arrived before it (RFC 4737, 3.3). One that
//! arrives later than the window reaches back is treated as new and late: at 100,000 packets a second that is ten
//! seconds.

/// The number of packets that are remembered.
const WINDOW_PACKETS: u64 = 1 << 20;

/// The classification of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The highest number so far.
    Next,
    /// Overtaken by a higher one.
    Late,
    /// A duplicate.
    Duplicate,
}

/// The packets that have arrived so far.
#[derive(Debug)]
pub struct ArrivalOrder {
    /// The highest number plus one.
    next: u64,
    seen: Vec<u64>,
}

impl ArrivalOrder {
    pub fn new() -> Self {
        Self { next: 0, seen: vec![0; (WINDOW_PACKETS / 64) as usize] }
    }

    /// The highest number seen, plus one.
    pub fn expected(&self) -> u64 {
        self.next
    }

    /// Records the arrival of a packet. The number must be below `u64::MAX`.
    pub fn record(&mut self, number: u64) -> Arrival {
        if number < self.next {
            if self.next - number > WINDOW_PACKETS {
                return Arrival::Late;
            }
            return if self.mark(number) { Arrival::Duplicate } else { Arrival::Late };
        }
        // The bits of skipped numbers were used by numbers one window before.
        if number - self.next >= WINDOW_PACKETS {
            self.seen.fill(0);
        } else {
            (self.next..number).for_each(|n| self.clear(n));
        }
        self.clear(number);
        self.mark(number);
        self.next = number + 1;
        Arrival::Next
    }

    fn bit_position(number: u64) -> (usize, u64) {
        let at = number % WINDOW_PACKETS;
        ((at / 64) as usize, 1 << (at % 64))
    }

    fn clear(&mut self, number: u64) {
        let (word, bit) = Self::bit_position(number);
        self.seen[word] &= !bit;
    }

    /// Marks a number; returns whether it was already marked.
    fn mark(&mut self, number: u64) -> bool {
        let (word, bit) = Self::bit_position(number);
        let was = self.seen[word] & bit != 0;
        self.seen[word] |= bit;
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn late_and_duplicate_packets_are_distinguished() {
        let mut order = ArrivalOrder::new();
        let places: Vec<Arrival> = [0, 2, 1, 1, 2, 3].into_iter().map(|n| order.record(n)).collect();
        use Arrival::{Duplicate, Late, Next};
        assert_eq!(places, [Next, Next, Late, Duplicate, Duplicate, Next]);
        assert_eq!(order.expected(), 4);
        assert_eq!(order.record(5 * WINDOW_PACKETS), Next);
        assert_eq!(order.record(5 * WINDOW_PACKETS - 1), Late);
        assert_eq!(order.record(3), Late, "too long ago to know");
    }

    proptest! {
        #[test]
        fn order_tracking_agrees_with_set(numbers in proptest::collection::vec(0_u64..3000, 0..400)) {
            let (mut order, mut set, mut high) = (ArrivalOrder::new(), HashSet::new(), None);
            for n in numbers {
                let expected = match (set.insert(n), high) {
                    (false, _) => Arrival::Duplicate,
                    (true, Some(h)) if n < h => Arrival::Late,
                    (true, _) => Arrival::Next,
                };
                high = high.max(Some(n));
                prop_assert_eq!(order.record(n), expected);
            }
        }
    }
}
