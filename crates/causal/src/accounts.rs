//! Checks whether everything that a disk did was recorded.
//!
//! A recording cannot prove itself complete. The kernel counts what each disk completes (`/sys/block/NAME/stat`), recorded
//! or not, so the difference between two samples is compared with the completions in the log.
//!
//! The kernel's rules, by which completions are counted here too (`blk_account_io_done`, `blk_account_io_flush`): a request
//! counts when its last part completes, as a read, a write or a discard; one that goes through the flush machinery counts when
//! that is done with it, which is a second completion without data; an fsync that needs nothing but a flush is such a request as
//! well, so the kernel counts a *write* that no disk ever saw. The flush itself is counted separately.
//!
//! *Uncertainty*: the kernel counts slightly after the tracepoint, and taking a sample takes time. What completes within [`LAG_NS`]
//! before a sample, or while it is taken, may or may not be included. Of several samples at each end, the one with the fewest such
//! completions is used; the remainder is reported. Disk activity within that time can be missing unnoticed. Disks without requests
//! (device mapper, zram) have no account.

use model::event::{RqDone, bio_flags};
use model::table::CheckRow;
use model::{DiskOp, Event, Record};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// By how much the kernel's count may lag behind the tracepoint: a virtual machine may lose its CPU between the two.
pub const LAG_NS: u64 = 10_000_000;

/// What is counted. The kernel counts the first seven.
const COUNT_NAMES: [&str; 9] = [
    "reads",
    "writes",
    "discards",
    "flushes",
    "bytes read",
    "bytes written",
    "bytes discarded",
    "flushes counted as writes",
    "writes through the flush machinery",
];
/// The number of leading entries that the kernel counts.
const KERNEL_COUNTS_END: usize = 7;
/// The number of leading entries that count requests; the others count bytes.
const REQUEST_COUNTS_END: usize = 4;
const DISCARDS_INDEX: usize = 2;
const FLUSHES_INDEX: usize = 3;
const BYTES_INDEX: usize = 4;
const EMPTY_WRITES_INDEX: usize = 7;
const SEQUENCES_INDEX: usize = 8;

type Counts = [u64; COUNT_NAMES.len()];

/// One sample of a disk's statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSample {
    pub disk: u32,
    /// Time before the sample was taken, CLOCK_BOOTTIME.
    pub from_ns: u64,
    /// Time after.
    pub to_ns: u64,
    /// The fields of `stat`, in the kernel's order (Documentation/block/stat.rst).
    pub fields: Vec<u64>,
}

impl DiskSample {
    /// Returns the kernel's counts; `None` for those that it does not keep.
    fn counts(&self) -> [Option<u64>; KERNEL_COUNTS_END] {
        let field = |n: usize| self.fields.get(n).copied();
        let bytes = |n: usize| field(n).map(|sectors| sectors.wrapping_mul(512));
        [field(0), field(4), field(11), field(15), bytes(2), bytes(6), bytes(13)]
    }
}

/// A sample, and what was recorded before it and around it.
#[derive(Debug)]
struct Edge {
    reading: DiskSample,
    before: Counts,
    around: Counts,
}

impl Edge {
    fn uncertain_requests(&self) -> u64 {
        self.around[..REQUEST_COUNTS_END].iter().sum()
    }
}

#[derive(Debug, Default)]
struct DiskAccount {
    begin: Vec<Edge>,
    end: Vec<Edge>,
}

/// The accounts of all disks.
#[derive(Debug, Default)]
pub struct Accounts {
    disks: BTreeMap<u32, DiskAccount>,
}

/// The result of a disk's account.
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    pub disk: u32,
    /// Start and end.
    pub window_ns: (u64, u64),
    /// Rows of the table.
    pub rows: Vec<CheckRow>,
    /// Requests that the kernel counted and that were not recorded.
    pub missing: u64,
}

impl Accounts {
    /// Creates accounts from the samples taken before anything was recorded and those taken after.
    pub fn new(begin: Vec<DiskSample>, end: Vec<DiskSample>) -> Self {
        let mut disks: BTreeMap<u32, DiskAccount> = BTreeMap::new();
        let edge = |reading| Edge { reading, before: Counts::default(), around: Counts::default() };
        for reading in begin {
            disks.entry(reading.disk).or_default().begin.push(edge(reading));
        }
        for reading in end {
            disks.entry(reading.disk).or_default().end.push(edge(reading));
        }
        Self { disks }
    }

    /// Counts an event of the log; events may come in any order.
    pub fn learn(&mut self, event: &Event) {
        let Record::RqDone(done) = &event.record else { return };
        let counts = counts_of_completion(done);
        let account = self.disks.entry(done.disk).or_default();
        let time_ns = event.header.time_ns;
        for edge in account.begin.iter_mut().chain(&mut account.end) {
            let sums = match time_ns {
                t if t < edge.reading.from_ns.saturating_sub(LAG_NS) => &mut edge.before,
                t if t <= edge.reading.to_ns => &mut edge.around,
                _ => continue,
            };
            sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        }
    }

    /// Number of disks whose counts are compared, with or without activity.
    pub fn compared_disks(&self) -> usize {
        self.disks.values().filter(|account| !account.begin.is_empty() && !account.end.is_empty()).count()
    }

    /// Returns the results. Disks without activity have none.
    pub fn audit(&self) -> Vec<Audit> {
        self.disks.iter().filter_map(|(disk, account)| account.audit(*disk)).collect()
    }
}

impl DiskAccount {
    fn audit(&self, disk: u32) -> Option<Audit> {
        let quietest = |edges: &[Edge]| {
            let least = edges.iter().map(Edge::uncertain_requests).min()?;
            edges.iter().position(|edge| edge.uncertain_requests() == least)
        };
        let (Some(first), Some(last)) = (quietest(&self.begin), quietest(&self.end)) else {
            let why = match (self.begin.is_empty(), self.end.is_empty()) {
                (true, false) => "the disk was absent at the start of the recording",
                (false, true) => "the disk was absent at the end of the recording",
                _ => "the disk's statistics were not read",
            };
            let row = |what: &&'static str| CheckRow {
                disk,
                what: Cow::Borrowed(what),
                kernel: None,
                recorded: 0,
                unsure: 0,
                unknown: Some(why.into()),
            };
            return Some(Audit {
                disk,
                window_ns: (0, 0),
                rows: COUNT_NAMES[..1].iter().map(row).collect(),
                missing: 0,
            });
        };
        let (first, last) = (&self.begin[first], &self.end[last]);
        let (was, is) = (first.reading.counts(), last.reading.counts());
        let most = |n: usize| (last.before[n] + last.around[n]).saturating_sub(first.before[n]);
        let mut rows = Vec::new();
        let (mut missing, mut bytes_missing) = (0, false);
        for n in 0..KERNEL_COUNTS_END {
            let (kernel, unknown) = match (was[n], is[n]) {
                (Some(was), Some(is)) if is >= was => (Some(is - was), None),
                (Some(_), Some(_)) => {
                    (None, Some("its counter decreased: the disk was recreated during the recording"))
                }
                _ => (None, Some("not counted by this kernel")),
            };
            let (recorded, unsure) = (most(n), first.around[n] + last.around[n]);
            let more = kernel.unwrap_or(0).saturating_sub(recorded);
            if n < REQUEST_COUNTS_END {
                missing += more;
            } else {
                bytes_missing |= more > 0;
            }
            if kernel.unwrap_or(recorded) > 0
                || recorded > 0
                || (unknown.is_some() && n != DISCARDS_INDEX && n != FLUSHES_INDEX)
            {
                let unknown = unknown.map(Into::into);
                rows.push(CheckRow { disk, what: Cow::Borrowed(COUNT_NAMES[n]), kernel, recorded, unsure, unknown });
            }
        }
        // A request with a missing part, or whose data completed unseen inside the flush machinery.
        missing = missing.max(bytes_missing.into());
        let bare = most(EMPTY_WRITES_INDEX).saturating_sub(most(SEQUENCES_INDEX));
        if bare > 0 {
            let what = Cow::Borrowed(COUNT_NAMES[EMPTY_WRITES_INDEX]);
            rows.push(CheckRow { disk, what, kernel: None, recorded: bare, unsure: 0, unknown: None });
        }
        let window_ns = (first.reading.from_ns, last.reading.to_ns);
        (!rows.is_empty()).then_some(Audit { disk, window_ns, rows, missing })
    }
}

/// Returns what the kernel counts at this completion.
fn counts_of_completion(r: &RqDone) -> Counts {
    let mut counts = Counts::default();
    let last = u64::from(r.last != 0);
    let (counted, sequence) = (r.flags & bio_flags::COUNTED != 0, r.flags & bio_flags::FLUSH_SEQUENCE != 0);
    let group = match DiskOp::ALL.get(usize::from(r.op)) {
        Some(DiskOp::Flush) => {
            counts[FLUSHES_INDEX] = last;
            return counts;
        }
        Some(DiskOp::DriverCommand) => return counts,
        _ if !counted => return counts,
        Some(DiskOp::Read) => 0,
        Some(DiskOp::Discard) => DISCARDS_INDEX,
        // Writes of zeroes and zone operations count as writes.
        _ => 1,
    };
    counts[BYTES_INDEX + group] = r.bytes.into();
    if sequence {
        counts[SEQUENCES_INDEX] = last * u64::from(group == 1);
    } else {
        counts[group] = last;
        counts[EMPTY_WRITES_INDEX] = last * u64::from(group == 1 && r.bytes == 0);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::event::Header;

    const SECOND_NS: u64 = 1_000_000_000;

    fn done(time_ns: u64, op: DiskOp, bytes: u32, flags: u16) -> Event {
        let record: Record = RqDone { disk: 7, bytes, op: op as u8, last: 1, flags, ..RqDone::default() }.into();
        Event { header: Header { time_ns, kind: record.kind(), ..Header::default() }, record }
    }

    /// Returns the fields of `stat` for the given counts.
    fn reading(at_ns: u64, [reads, writes, discards, flushes, sectors_written, in_flight]: [u64; 6]) -> DiskSample {
        let mut fields = vec![0; 17];
        (fields[0], fields[4], fields[11], fields[15]) = (reads, writes, discards, flushes);
        (fields[6], fields[8]) = (sectors_written, in_flight);
        fields[2] = reads * 8;
        DiskSample { disk: 7, from_ns: at_ns, to_ns: at_ns + 20_000, fields }
    }

    /// A write through the flush machinery, an fsync without data, the flush that both wait for, and a read.
    fn traffic(at_ns: u64) -> Vec<Event> {
        use bio_flags::{COUNTED, FLUSH_SEQUENCE};
        vec![
            done(at_ns, DiskOp::Read, 4096, COUNTED),
            done(at_ns + 1000, DiskOp::Write, 4096, COUNTED | FLUSH_SEQUENCE),
            done(at_ns + 2000, DiskOp::Flush, 0, FLUSH_SEQUENCE),
            done(at_ns + 2100, DiskOp::Write, 0, COUNTED),
            done(at_ns + 2200, DiskOp::Write, 0, COUNTED),
            done(at_ns + 9000, DiskOp::DriverCommand, 512, 0),
        ]
    }

    fn close(begin: Vec<DiskSample>, end: Vec<DiskSample>, events: &[Event]) -> Vec<Audit> {
        let mut accounts = Accounts::new(begin, end);
        events.iter().for_each(|event| accounts.learn(event));
        accounts.audit()
    }

    fn row<'a>(audit: &'a Audit, what: &str) -> &'a CheckRow {
        audit.rows.iter().find(|row| row.what == what).unwrap_or_else(|| panic!("{what} is not in {audit:?}"))
    }

    #[test]
    fn recorded_commands_match_diskstats() {
        let before = reading(SECOND_NS, [100, 200, 0, 50, 1000, 0]);
        let after = reading(3 * SECOND_NS, [101, 202, 0, 51, 1008, 0]);
        let audit = close(vec![before], vec![after], &traffic(2 * SECOND_NS)).remove(0);
        assert_eq!(audit.missing, 0, "{audit:?}");
        let counted = |what: &str| (row(&audit, what).kernel, row(&audit, what).recorded);
        assert_eq!(
            (counted("reads"), counted("writes"), counted("flushes")),
            ((Some(1), 1), (Some(2), 2), (Some(1), 1))
        );
        assert_eq!((counted("bytes read"), counted("bytes written")), ((Some(4096), 4096), (Some(4096), 4096)));
        assert_eq!(counted("flushes counted as writes"), (None, 1), "one of the two writes carried no data");
        assert!(!audit.rows.iter().any(|row| row.what == "discards"));
    }

    #[test]
    fn each_unrecorded_completion_is_missing() {
        for left_out in 0..5 {
            let mut events = traffic(2 * SECOND_NS);
            events.remove(left_out);
            let before = reading(SECOND_NS, [100, 200, 0, 50, 1000, 0]);
            let after = reading(3 * SECOND_NS, [101, 202, 0, 51, 1008, 0]);
            let audit = close(vec![before], vec![after], &events).remove(0);
            assert_eq!(audit.missing, 1, "without {left_out}: {audit:?}");
        }
    }

    #[test]
    fn completions_at_the_edge_of_the_window_are_uncertain() {
        let before = reading(SECOND_NS, [100, 200, 0, 50, 1000, 2]);
        // Two were in flight when the sample was taken; the kernel had counted one of them.
        let events = [
            done(SECOND_NS - 100_000, DiskOp::Read, 4096, bio_flags::COUNTED),
            done(SECOND_NS + 10_000, DiskOp::Read, 4096, bio_flags::COUNTED),
            done(2 * SECOND_NS, DiskOp::Read, 4096, bio_flags::COUNTED),
        ];
        let after = |reads| reading(3 * SECOND_NS, [reads, 200, 0, 50, 1000, 0]);
        for reads in 101..=103 {
            let audit = close(vec![before.clone()], vec![after(reads)], &events).remove(0);
            assert_eq!((audit.missing, row(&audit, "reads").unsure), (0, 2), "{audit:?}");
        }
        assert_eq!(close(vec![before.clone()], vec![after(104)], &events)[0].missing, 1);
        // A sample without requests in flight leaves nothing unsure.
        let quiet = reading(SECOND_NS + SECOND_NS / 2, [102, 200, 0, 50, 1000, 0]);
        let audit = close(vec![before, quiet], vec![after(103)], &events).remove(0);
        assert_eq!((audit.missing, row(&audit, "reads").unsure, row(&audit, "reads").recorded), (0, 0, 1));
    }

    #[test]
    fn absent_kernel_counters_are_not_checked() {
        let [before, mut after] = [1, 3].map(|s| reading(s * SECOND_NS, [100, 200, 0, 50, 1000, 0]));
        (after.fields[0], after.fields[2]) = (0, 0);
        let audit = close(vec![before.clone()], vec![after.clone()], &traffic(2 * SECOND_NS)).remove(0);
        assert!(row(&audit, "reads").unknown.as_deref().unwrap().contains("decreased"));
        // Before Linux 5.5, flushes are not counted.
        let [before, after] = [before, after].map(|r| DiskSample { fields: r.fields[..11].to_vec(), ..r });
        let audit = close(vec![before], vec![after.clone()], &traffic(2 * SECOND_NS)).remove(0);
        assert_eq!(row(&audit, "flushes").kernel, None);
        let gone = close(vec![], vec![after], &traffic(2 * SECOND_NS)).remove(0);
        assert!(gone.rows[0].unknown.as_deref().unwrap().contains("absent at the start"));
        assert!(close(vec![], vec![], &traffic(2 * SECOND_NS))[0].rows[0].kernel.is_none());
    }
}
