//! A disk's own statistics: the kernel's counters since its appearance.

use crate::Reader;

macro_rules! statistics {
    ($( $(#[doc = $doc:literal])+ $name:ident ),* $(,)?) => {
        /// `/sys/block/NAME/stat` (Documentation/block/stat.rst). All counters start at the disk's appearance, except
        /// `in_flight`. Kernels before 5.5 have no flushes, before 4.18 no discards: those are 0 then.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct DiskStat { $( $(#[doc = $doc])+ pub $name: u64, )* }

        impl DiskStat {
            /// The number of fields of current kernels.
            pub const FIELDS: usize = [$(stringify!($name)),*].len();

            /// Parses the line; `None` if a field is not a number or there are fewer fields than in the oldest kernels (11).
            pub fn parse(line: &str) -> Option<Self> {
                let numbers: Vec<u64> = line.split_whitespace().map(|w| w.parse().ok()).collect::<Option<_>>()?;
                if numbers.len() < 11 {
                    return None;
                }
                let mut numbers = numbers.into_iter();
                Some(Self { $( $name: numbers.next().unwrap_or(0), )* })
            }

            /// The activity since `before`: differences of the counters, and the current `in_flight`. A counter that
            /// decreased (the disk was replaced by another with its name) gives 0. Times wrap at 2^32 ms.
            pub fn since(&self, before: &Self) -> Self {
                Self {
                    $( $name: self.$name.saturating_sub(before.$name), )*
                }.with_in_flight(self.in_flight)
            }
        }
    };
}
statistics! {
    /// Reads completed, requests.
    reads,
    /// Reads merged into others.
    reads_merged,
    /// Sectors read, 512 bytes each.
    read_sectors,
    /// Total time of reads, from start to completion, in ms.
    read_ms,
    /// Writes completed, requests.
    writes,
    /// Writes merged into others.
    writes_merged,
    /// Sectors written, 512 bytes each.
    write_sectors,
    /// Total time of writes, in ms.
    write_ms,
    /// Requests currently at the driver.
    in_flight,
    /// Time with at least one request in flight, in ms.
    busy_ms,
    /// Total time of all requests, in ms.
    queue_ms,
    /// Discards completed, requests.
    discards,
    /// Discards merged into others.
    discards_merged,
    /// Sectors discarded, 512 bytes each.
    discard_sectors,
    /// Total time of discards, in ms.
    discard_ms,
    /// Flushes completed, requests of the flush machinery.
    flushes,
    /// Total time of flushes, in ms.
    flush_ms,
}

impl DiskStat {
    fn with_in_flight(mut self, in_flight: u64) -> Self {
        self.in_flight = in_flight;
        self
    }

    /// The current statistics of a disk, given its name (`nvme0n1`).
    ///
    /// # Errors
    /// There is no such disk, or the kernel's line cannot be parsed.
    pub fn read(reader: &dyn Reader, disk: &str) -> Result<Self, String> {
        let path = format!("/sys/block/{disk}/stat");
        let line = reader.read(&path).map_err(|why| format!("{path}: {why}"))?;
        Self::parse(&line).ok_or_else(|| format!("{path}: cannot parse: {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAT_LINE: &str = "  197578    37205 14681434   148579   149151    71402 19159632    65895        3    24316   \
                        218166    26278       28  3542880     2099    32706     1592";

    #[test]
    fn all_seventeen_fields_are_read_in_order() {
        assert_eq!(DiskStat::FIELDS, 17);
        let stat = DiskStat::parse(STAT_LINE).unwrap();
        assert_eq!((stat.reads, stat.writes, stat.write_sectors), (197_578, 149_151, 19_159_632));
        assert_eq!(
            (stat.in_flight, stat.busy_ms, stat.discards, stat.flushes, stat.flush_ms),
            (3, 24_316, 26_278, 32_706, 1592)
        );
    }

    #[test]
    fn stat_of_older_kernels_has_fewer_fields() {
        let stat = DiskStat::parse("1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!((stat.queue_ms, stat.discards, stat.flushes), (11, 0, 0));
        assert_eq!(DiskStat::parse("1 2 3 4 5 6 7 8 9 10"), None);
        assert_eq!(DiskStat::parse("1 2 3 4 5 6 7 8 9 10 x"), None);
    }

    #[test]
    fn difference_keeps_the_current_requests_in_flight() {
        let before = DiskStat::parse(STAT_LINE).unwrap();
        let after = DiskStat { writes: before.writes + 5, flushes: before.flushes + 2, in_flight: 1, ..before };
        let done = after.since(&before);
        assert_eq!(done, DiskStat { writes: 5, flushes: 2, in_flight: 1, ..DiskStat::default() });
        assert_eq!(before.since(&after).writes, 0);
    }

    proptest! {
        #[test]
        fn arbitrary_input_does_not_panic(line in ".{0,80}", numbers in proptest::collection::vec(any::<u64>(), 0..20)) {
            DiskStat::parse(&line);
            let text = numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(DiskStat::parse(&text).is_some(), numbers.len() >= 11);
        }
    }
}
