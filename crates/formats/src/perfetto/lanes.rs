//! Slices on one Perfetto track must nest, like calls on a stack. Slices that overlap without nesting are put on lanes:
//! each slice takes the first lane on which it fits, so that few lanes are used and a lane means nothing in itself.

/// Which slices may share a lane at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// A slice that lies wholly within another: calls on a thread.
    Nested,
    /// None: commands on a disk, where a command within the time of another is not its child.
    Alone,
}

/// The lanes of one row of the display.
#[derive(Debug, Clone)]
pub struct Lanes {
    share: Share,
    /// For each lane the ends of the slices that are open on it, the innermost last.
    open: Vec<Vec<u64>>,
}

impl Lanes {
    /// Creates a row without lanes.
    pub fn new(share: Share) -> Self {
        Self { share, open: Vec::new() }
    }

    /// Returns the lane, from 0, for a slice from `start` to `end`. Slices must come in order of start and, with the
    /// same start, the longest first, so that the outer one comes before the inner.
    pub fn place(&mut self, start: u64, end: u64) -> usize {
        for (lane, open) in self.open.iter_mut().enumerate() {
            while open.last().is_some_and(|&e| e <= start) {
                open.pop();
            }
            let fits = match open.last() {
                None => true,
                Some(&outer) => self.share == Share::Nested && end <= outer,
            };
            if fits {
                open.push(end);
                return lane;
            }
        }
        self.open.push(vec![end]);
        self.open.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overlapping_commands_use_own_lanes_and_lanes_are_reused() {
        let mut lanes = Lanes::new(Share::Alone);
        let places = [(0, 10), (2, 4), (4, 6), (5, 20), (10, 11)].map(|(s, e)| lanes.place(s, e));
        assert_eq!(places, [0, 1, 1, 2, 0]);
    }

    #[test]
    fn nested_calls_share_lane_and_crossing_ones_do_not() {
        let mut lanes = Lanes::new(Share::Nested);
        let places = [(0, 100), (10, 50), (20, 30), (40, 60), (100, 110)].map(|(s, e)| lanes.place(s, e));
        // The fourth crosses the second, so it cannot nest in it.
        assert_eq!(places, [0, 0, 0, 1, 0]);
    }

    proptest! {
        #[test]
        fn slices_of_one_lane_never_cross(mut all in prop::collection::vec((0_u64..100, 0_u64..30), 0..60), nested: bool) {
            all.sort_by_key(|&(start, len)| (start, std::cmp::Reverse(len)));
            let share = if nested { Share::Nested } else { Share::Alone };
            let mut lanes = Lanes::new(share);
            let placed: Vec<_> = all.iter().map(|&(s, len)| (lanes.place(s, s + len), s, s + len)).collect();
            for (i, &(lane, s, e)) in placed.iter().enumerate() {
                for &(other, s2, e2) in &placed[i + 1..] {
                    let apart = e <= s2;
                    let within = nested && e2 <= e;
                    prop_assert!(lane != other || apart || within, "{s}-{e} and {s2}-{e2} on lane {lane}");
                }
            }
        }
    }
}
