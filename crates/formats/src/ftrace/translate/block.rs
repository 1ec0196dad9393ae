//! Reconstructs bios, requests and flushes from events that identify none of them.
//!
//! For a bio or a request ftrace records the disk, first sector, length and operation, but no address. So each gets a
//! number here, and they are matched by sectors: a request carries the bios that were queued on its disk, lie within its
//! sectors, have the same operation, and are not carried yet. The linker calls such links `address`, not `exact`
//! ([`super`]).
//!
//! A flush carries no sectors. Its waiters are simulated as in block/blk-flush.c: those that arrive while a flush is in
//! flight share the next one.
//!
//! *Uncertainty*: two bios that write the same sectors at the same time are distinguished only by age. A disk with several
//! hardware queues has a flush queue for each; here they are one.

use model::DiskOp;
use model::event::bio_flags;
use std::collections::{HashMap, VecDeque};

/// Steps of a waiter, as in `flush_issue` (`REQ_FSEQ_…`).
pub const BEFORE_DATA: u8 = 1;
pub const AFTER_DATA: u8 = 4;
pub const FLUSH_ONLY: u8 = 7;

/// Open bios or requests of a disk; there can be more only because ends were lost.
const IN_FLIGHT_MAX: usize = 1 << 14;

/// Parses the letters of a request (`blk_fill_rwbs`): its operation and flags.
pub fn parse_rwbs(rwbs: &str) -> (DiskOp, u16) {
    let (mut flags, mut rest) = (0, rwbs);
    // A leading F is a flush before the data, if an operation follows it.
    if let Some(after) = rwbs.strip_prefix('F').filter(|r| r.starts_with(['W', 'R', 'D', 'F', 'N', 'Z'])) {
        (flags, rest) = (bio_flags::PREFLUSH, after);
    }
    let op = match rest.chars().next() {
        Some('R') => DiskOp::Read,
        Some('W') => DiskOp::Write,
        Some('Z') => DiskOp::Write,
        Some('D') => DiskOp::Discard,
        Some('F') => DiskOp::Flush,
        _ => DiskOp::Other,
    };
    for letter in rest.chars().skip(1) {
        flags |= match letter {
            'F' => bio_flags::FUA,
            'A' if op != DiskOp::Write || !rest.starts_with('Z') => bio_flags::READ_AHEAD,
            'S' => bio_flags::SYNC,
            'M' => bio_flags::META,
            _ => 0,
        };
    }
    (op, flags)
}

/// The operation and flags of a request that goes to the driver. Before Linux 4.8 (commit 3a5e02ced11e) a flush was a write with
/// REQ_FLUSH and without sectors.
fn parse_request_rwbs(rwbs: &str, sectors: u64) -> (DiskOp, u16) {
    match parse_rwbs(rwbs) {
        (DiskOp::Write, flags) if sectors == 0 && flags & bio_flags::PREFLUSH != 0 => (DiskOp::Flush, flags),
        other => other,
    }
}

/// A bio in flight.
#[derive(Debug, Clone)]
struct Bio {
    id: u64,
    sector: u64,
    sectors: u64,
    op: DiskOp,
    flags: u16,
    tid: u32,
    carried: bool,
    /// Its request needs a flush after its data.
    after: bool,
}

impl Bio {
    fn is_bare(&self) -> bool {
        self.sectors == 0 && self.flags & bio_flags::PREFLUSH != 0
    }

    fn waits(&self) -> bool {
        self.flags & (bio_flags::PREFLUSH | bio_flags::FUA) != 0
    }
}

/// A request at the driver.
#[derive(Debug)]
struct Request {
    id: u64,
    sector: u64,
    sectors: u64,
    op: DiskOp,
    /// A flush of the form before Linux 4.8: its letters are those of a write.
    as_write: bool,
    /// When it was issued, in ns.
    issued_ns: u64,
    /// Bytes that have not completed yet.
    left: u64,
    bios: Vec<u64>,
    /// The thread that issued it.
    tid: u32,
    /// Commands that the driver sent for it.
    commands: u32,
}

impl Request {
    /// Its number, and when it was issued.
    fn identity(self) -> (u64, Option<u64>) {
        (self.id, Some(self.issued_ns))
    }
}

/// A driver's command, as it describes its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedRequest {
    pub op: DiskOp,
    /// First block and number of blocks, if it has them.
    pub place: Option<(u64, u64)>,
    /// Bytes per block; `None`: 512 or 4096.
    pub block: Option<u64>,
    /// The thread that sends it.
    pub tid: u32,
}

impl WantedRequest {
    /// Whether a request with these sectors may be its own.
    fn fits(&self, op: DiskOp, sector: u64, sectors: u64) -> bool {
        let same = |bytes: u64, (first, blocks): (u64, u64)| {
            first.checked_mul(bytes / 512) == Some(sector) && blocks.checked_mul(bytes / 512) == Some(sectors)
        };
        let fits = |place| match self.block {
            Some(bytes) => same(bytes, place),
            None => same(512, place) || same(4096, place),
        };
        op == self.op && (op == DiskOp::Flush || self.place.is_none_or(fits))
    }
}

/// What an issued request carries.
#[derive(Debug, PartialEq, Eq)]
pub struct IssuedRequest {
    pub rq: u64,
    pub op: DiskOp,
    pub flags: u16,
    /// When it was allocated; 0: not seen.
    pub made_ns: u64,
    pub bios: Vec<u64>,
    /// Whether it goes through the flush machinery.
    pub sequence: bool,
    /// For a flush: the waiters, and their steps.
    pub waiters: Vec<(u64, u8)>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    pub rq: u64,
    pub op: DiskOp,
    pub bytes: u64,
    pub last: bool,
    pub flags: u16,
    /// When the request was issued, if that was seen.
    pub issued_ns: Option<u64>,
}

/// Bios, requests and flushes in flight on one disk.
#[derive(Debug, Default)]
struct Disk {
    bios: VecDeque<Bio>,
    requests: Vec<Request>,
    /// Allocated requests: sector, operation, time.
    made: VecDeque<(u64, DiskOp, u64)>,
    inserted: VecDeque<(u64, DiskOp, u64)>,
    /// Writes through the flush machinery whose data is done: sector, request, bio.
    sequences: Vec<(u64, u64, u64)>,
    /// The waiters of the flush in flight, and of the next.
    running: Vec<(u64, u8)>,
    pending: Vec<(u64, u8)>,
    under_way: bool,
    /// Writes through the flush machinery whose data is at the driver.
    data_in_flight: usize,
}

impl Disk {
    /// `blk_kick_flush`: the next flush begins when neither a flush nor data of such a write is in flight, and takes all
    /// waiters at that time.
    fn start_flush(&mut self) {
        if !self.under_way && self.running.is_empty() && self.data_in_flight == 0 {
            self.running = std::mem::take(&mut self.pending);
        }
    }
}

/// All disks.
#[derive(Debug, Default)]
pub struct Block {
    disks: HashMap<u32, Disk>,
    count: u64,
    /// Partition to its disk and first sector.
    partitions: HashMap<u32, (u32, u64)>,
    starts: HashMap<u32, u64>,
}

impl Block {
    pub fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Adds a partition known to the recorder.
    pub fn add_partition(&mut self, partition: u32, disk: u32) {
        self.partitions.insert(partition, (disk, 0));
    }

    /// Sets a partition's first sector, from a bio that was remapped from it.
    pub fn starts_at(&mut self, partition: u32, sector: u64) {
        self.starts.insert(partition, sector);
    }

    /// The disk of a partition.
    pub fn disk_of(&self, dev: u32) -> u32 {
        self.partitions.get(&dev).map_or(dev, |(disk, _)| *disk)
    }

    /// The first sector of a partition.
    pub fn start_of(&self, dev: u32) -> u64 {
        self.starts.get(&dev).copied().unwrap_or(0)
    }

    /// Partitions, as given or as found.
    pub fn partitions(&self) -> impl Iterator<Item = (u32, u32)> {
        self.partitions.iter().map(|(partition, (disk, _))| (*partition, *disk))
    }

    /// A bio was queued.
    pub fn queue(&mut self, dev: u32, tid: u32, (sector, sectors): (u64, u64), rwbs: &str) -> (u64, DiskOp, u16) {
        let (mut op, flags) = parse_rwbs(rwbs);
        let id = self.number();
        let disk = self.disks.entry(self.partitions.get(&dev).map_or(dev, |p| p.0)).or_default();
        let bio = Bio { id, sector, sectors, op, flags, tid, carried: false, after: false };
        if flags & bio_flags::PREFLUSH != 0 {
            disk.pending.push((id, if bio.is_bare() { FLUSH_ONLY } else { BEFORE_DATA }));
            disk.start_flush();
        }
        if bio.is_bare() {
            op = DiskOp::Write;
        }
        disk.bios.push_back(bio);
        if disk.bios.len() > IN_FLIGHT_MAX {
            disk.bios.pop_front();
        }
        (id, op, flags)
    }

    /// A bio passed its first part, up to `at`, to a new one: returns the old one, the new one and its bytes.
    pub fn split(&mut self, dev: u32, tid: u32, sector: u64, at: u64) -> Option<(u64, u64, u64)> {
        let id = self.number();
        let disk = self.disks.get_mut(&self.partitions.get(&dev).map_or(dev, |p| p.0))?;
        let of = |b: &Bio| !b.carried && b.sector == sector && at > sector && at < sector.saturating_add(b.sectors);
        let place = disk.bios.iter().rposition(|b| of(b) && b.tid == tid).or(disk.bios.iter().rposition(of))?;
        let old = &mut disk.bios[place];
        let first = Bio { id, sectors: at - sector, ..old.clone() };
        (old.sector, old.sectors) = (at, old.sectors - (at - sector));
        let extent = (old.id, id, first.sectors.saturating_mul(512));
        disk.bios.insert(place, first);
        Some(extent)
    }

    /// The parent of a stacked disk's bio: the newest that contains the sector it came from.
    pub fn bio_holding(&self, dev: u32, tid: u32, sector: u64) -> Option<u64> {
        let disk = self.disks.get(&self.disk_of(dev))?;
        let holds = |b: &&Bio| (b.sector..b.sector.saturating_add(b.sectors.max(1))).contains(&sector);
        let mut all = disk.bios.iter().rev().filter(holds);
        all.clone().find(|b| b.tid == tid).or_else(|| all.next()).map(|b| b.id)
    }

    /// A bio ended without a request.
    pub fn ended(&mut self, dev: u32, sector: u64, bare: bool) -> Option<u64> {
        let disk = self.disks.get_mut(&self.partitions.get(&dev).map_or(dev, |p| p.0))?;
        let place = disk.bios.iter().position(|b| if bare { b.is_bare() } else { !b.carried && b.sector == sector })?;
        disk.bios.remove(place).map(|b| b.id)
    }

    /// A request was allocated.
    pub fn allocated(&mut self, dev: u32, sector: u64, rwbs: &str, time_ns: u64) {
        let disk = self.disks.entry(self.disk_of(dev)).or_default();
        disk.made.push_back((sector, parse_rwbs(rwbs).0, time_ns));
        if disk.made.len() > IN_FLIGHT_MAX {
            disk.made.pop_front();
        }
    }

    /// A request is at the scheduler: returns its number, for `rq_insert`.
    pub fn inserted(&mut self, dev: u32, sector: u64, rwbs: &str) -> u64 {
        let id = self.number();
        let disk = self.disks.entry(self.disk_of(dev)).or_default();
        disk.inserted.push_back((sector, parse_rwbs(rwbs).0, id));
        if disk.inserted.len() > IN_FLIGHT_MAX {
            disk.inserted.pop_front();
        }
        id
    }

    /// Finds the partition that a request's bios were queued on, if it was not known to belong to this disk.
    fn find_partition(&mut self, disk: u32, (sector, sectors): (u64, u64), op: DiskOp) {
        let same_driver = |dev: u32| dev != disk && dev >> 20 == disk >> 20;
        let carries = |d: &Disk| {
            d.bios.iter().any(|b| !b.carried && b.op == op && b.sector == sector && b.sectors <= sectors && sectors > 0)
        };
        // A device with requests of its own is not a partition.
        let found = self.disks.iter().filter(|(dev, d)| same_driver(**dev) && d.requests.is_empty() && carries(d));
        let mut found = found.map(|(dev, _)| *dev);
        let (Some(partition), None) = (found.next(), found.next()) else { return };
        self.partitions.insert(partition, (disk, 0));
        if let Some(below) = self.disks.remove(&partition) {
            let to = self.disks.entry(disk).or_default();
            to.bios.extend(below.bios);
            to.bios.make_contiguous().sort_by_key(|b| b.id);
            to.made.extend(below.made);
            to.pending.extend(below.pending);
            to.pending.extend(below.running);
            to.start_flush();
        }
    }

    /// A request went to the driver.
    pub fn issue(&mut self, dev: u32, tid: u32, (sector, bytes): (u64, u64), rwbs: &str, now_ns: u64) -> IssuedRequest {
        let sectors = bytes / 512;
        let ((op, flags), next) = (parse_request_rwbs(rwbs, sectors), self.number());
        let has = |d: &Disk| d.bios.iter().any(|b| !b.carried && b.sector == sector);
        if !self.disks.get(&dev).is_some_and(has) && op != DiskOp::Flush {
            self.find_partition(dev, (sector, sectors), op);
        }
        let disk = self.disks.entry(dev).or_default();
        let take = |list: &mut VecDeque<(u64, DiskOp, u64)>| {
            let place = list.iter().position(|(s, o, _)| (*s, *o) == (sector, op))?;
            list.remove(place).map(|x| x.2)
        };
        let (made_ns, id) = (take(&mut disk.made).unwrap_or(0), take(&mut disk.inserted).unwrap_or(next));
        if op == DiskOp::Flush {
            if disk.running.is_empty() {
                disk.running = std::mem::take(&mut disk.pending);
            }
            disk.under_way = true;
            let as_write = parse_rwbs(rwbs).0 == DiskOp::Write;
            let (issued_ns, commands, bios) = (now_ns, 0, Vec::new());
            let request = Request { id, sector, sectors: 0, op, as_write, issued_ns, left: 0, bios, tid, commands };
            disk.requests.push(request);
            let waiters = disk.running.clone();
            return IssuedRequest { rq: id, op, flags, made_ns: 0, bios: Vec::new(), sequence: false, waiters };
        }
        let end = sector.saturating_add(sectors);
        // Requeued: the same sectors, not completed.
        let passed_through = op == DiskOp::Other;
        let same = |r: &&mut Request| (r.sector, r.sectors, r.op) == (sector, sectors, op) && !passed_through;
        if let Some(old) = disk.requests.iter_mut().find(same) {
            let fresh = disk.bios.iter().any(|b| !b.carried && b.op == op && b.sector == sector);
            if !fresh {
                old.issued_ns = now_ns;
                let (rq, bios) = (old.id, old.bios.clone());
                return IssuedRequest { rq, op, flags, made_ns, bios, sequence: false, waiters: Vec::new() };
            }
        }
        let (mut bios, mut sequence) = (Vec::new(), false);
        for bio in disk.bios.iter_mut().filter(|b| !b.carried && b.op == op && b.sectors > 0) {
            if bio.sector >= sector && bio.sector.saturating_add(bio.sectors) <= end {
                bio.carried = true;
                bio.after = bio.flags & bio_flags::FUA != 0 && flags & bio_flags::FUA == 0;
                if bio.after && bio.flags & bio_flags::PREFLUSH == 0 {
                    disk.data_in_flight += 1;
                }
                sequence |= bio.after || bio.flags & bio_flags::PREFLUSH != 0;
                bios.push(bio.id);
            }
        }
        // In the order of a request's chain: by sector.
        let place = |id: &u64| disk.bios.iter().find(|b| b.id == *id).map(|b| b.sector);
        bios.sort_by_key(place);
        if disk.requests.len() > IN_FLIGHT_MAX {
            disk.requests.drain(..IN_FLIGHT_MAX / 2);
        }
        let (issued_ns, as_write, commands) = (now_ns, false, 0);
        let carries = bios.clone();
        disk.requests.push(Request {
            id,
            sector,
            sectors,
            op,
            as_write,
            issued_ns,
            left: bytes,
            bios: carries,
            tid,
            commands,
        });
        IssuedRequest { rq: id, op, flags, made_ns, bios, sequence, waiters: Vec::new() }
    }

    /// Returns the request in flight that a driver's command is for, and its disk; `on` is its disk, if known. If several fit, one that has
    /// no command yet, that this thread issued, the latest.
    pub fn request_for_command(&mut self, wanted: &WantedRequest, on: Option<u32>) -> Option<(u32, u64)> {
        let disks = self.disks.iter_mut().filter(|(dev, _)| on.is_none_or(|on| on == **dev));
        let all = disks.flat_map(|(dev, disk)| disk.requests.iter_mut().map(|r| (*dev, r)));
        let fits = all.filter(|(_, r)| wanted.fits(r.op, r.sector, r.sectors));
        let (dev, found) = fits.max_by_key(|(_, r)| (r.commands == 0, r.tid == wanted.tid, r.id))?;
        // A command without blocks can only belong to the request that its thread just issued.
        let sure = wanted.place.is_some_and(|_| wanted.op != DiskOp::Flush)
            || (found.commands == 0 && found.tid == wanted.tid);
        if !sure {
            return None;
        }
        found.commands = found.commands.saturating_add(1);
        Some((dev, found.id))
    }

    /// Bytes of a request in flight.
    pub fn bytes_of(&self, dev: u32, rq: u64) -> u64 {
        let request = self.disks.get(&dev).and_then(|d| d.requests.iter().find(|r| r.id == rq));
        request.map_or(0, |r| r.sectors.saturating_mul(512))
    }

    /// A request, or a part of it, completed.
    pub fn complete(&mut self, dev: u32, sector: u64, sectors: u64, rwbs: &str) -> (Completion, Vec<u64>) {
        let ((mut op, flags), next) = (parse_rwbs(rwbs), self.number());
        let disk = self.disks.entry(dev).or_default();
        let bytes = sectors.saturating_mul(512);
        if bytes == 0 && disk.requests.iter().any(|r| r.as_write && r.sector == sector && op == DiskOp::Write) {
            op = DiskOp::Flush;
        }
        let done = |rq, bytes, last, flags, issued_ns| Completion { rq, op, bytes, last, flags, issued_ns };
        if op == DiskOp::Flush {
            disk.under_way = false;
            let ended = std::mem::take(&mut disk.running);
            disk.data_in_flight += ended.iter().filter(|(_, step)| *step == BEFORE_DATA).count();
            disk.start_flush();
            let place = disk.requests.iter().position(|r| r.op == DiskOp::Flush);
            let (rq, issued_ns) = place.map(|i| disk.requests.remove(i)).map_or((next, None), Request::identity);
            let bare = |(id, step): &(u64, u8)| (*step == FLUSH_ONLY).then_some(*id);
            let bare: Vec<u64> = ended.iter().filter_map(bare).collect();
            disk.bios.retain(|b| !bare.contains(&b.id));
            return (done(rq, 0, true, flags | bio_flags::FLUSH_SEQUENCE, issued_ns), bare);
        }
        if op == DiskOp::Other {
            // A command that is passed through has no sectors, even if it has data (blk_rq_trace_sector, blk_rq_trace_nr_sectors), and
            // its end has the sector -1: of several, the one with these sectors, else the oldest. It is not in the disk's statistics.
            let all = || disk.requests.iter().enumerate().filter(|(_, r)| r.op == op);
            let place = all().find(|(_, r)| r.sector == sector && r.left == bytes).or_else(|| all().next());
            let found = place.map(|(i, _)| i).map(|i| disk.requests.remove(i));
            let moved = found.as_ref().map_or(bytes, |r| r.left.max(bytes));
            let (rq, issued_ns) = found.map_or((next, None), Request::identity);
            return (done(rq, moved, true, flags, issued_ns), Vec::new());
        }
        let counted = flags | bio_flags::COUNTED;
        if bytes == 0 {
            // The end of a write through the flush machinery, or of a bare flush, which no driver sees.
            let place = disk.sequences.iter().position(|(at, ..)| *at == sector);
            let rq = place.map(|i| disk.sequences.remove(i));
            if let Some((_, _, bio)) = rq {
                disk.bios.retain(|b| b.id != bio);
            }
            return (done(rq.map_or(next, |r| r.1), 0, true, counted, None), Vec::new());
        }
        let begins =
            |r: &Request| r.op == op && r.sector.saturating_add(r.sectors).wrapping_sub(r.left / 512) == sector;
        let holds = |r: &Request| r.op == op && (r.sector..r.sector.saturating_add(r.sectors)).contains(&sector);
        let place = disk.requests.iter().position(begins).or_else(|| disk.requests.iter().position(holds));
        let Some(place) = place else { return (done(next, bytes, true, counted, None), Vec::new()) };
        let request = &mut disk.requests[place];
        request.left = request.left.saturating_sub(bytes);
        let issued_ns = Some(request.issued_ns);
        if request.left > 0 {
            return (done(request.id, bytes, false, counted, issued_ns), Vec::new());
        }
        let request = disk.requests.remove(place);
        let carried = |b: &&Bio| request.bios.contains(&b.id);
        let mut sequence = false;
        for bio in disk.bios.iter().filter(carried).filter(|b| b.waits()) {
            if bio.after {
                disk.pending.push((bio.id, AFTER_DATA));
            }
            if bio.after || bio.flags & bio_flags::PREFLUSH != 0 {
                sequence = true;
                disk.data_in_flight = disk.data_in_flight.saturating_sub(1);
                disk.sequences.push((bio.sector, request.id, bio.id));
            }
        }
        disk.start_flush();
        disk.sequences.truncate(IN_FLIGHT_MAX);
        if !sequence {
            disk.bios.retain(|b| !request.bios.contains(&b.id));
        }
        let flags = if sequence { counted | bio_flags::FLUSH_SEQUENCE } else { counted };
        (done(request.id, bytes, true, flags, issued_ns), Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rwbs_letters_give_operation_and_flags() {
        use bio_flags::{FUA, META, PREFLUSH, READ_AHEAD, SYNC};
        for (rwbs, op, flags) in [
            ("WS", DiskOp::Write, SYNC),
            ("RA", DiskOp::Read, READ_AHEAD),
            ("RM", DiskOp::Read, META),
            ("FWFSM", DiskOp::Write, PREFLUSH | FUA | SYNC | META),
            ("FWS", DiskOp::Write, PREFLUSH | SYNC),
            ("WFS", DiskOp::Write, FUA | SYNC),
            ("FF", DiskOp::Flush, PREFLUSH),
            ("F", DiskOp::Flush, 0),
            ("DS", DiskOp::Discard, SYNC),
            ("N", DiskOp::Other, 0),
            ("", DiskOp::Other, 0),
        ] {
            assert_eq!(parse_rwbs(rwbs), (op, flags), "{rwbs}");
        }
    }

    #[test]
    fn a_request_carries_the_bios_within_its_sectors() {
        let mut block = Block::default();
        let bios = [(100, 8), (116, 8), (108, 8), (200, 8)].map(|place| block.queue(7, 1, place, "WS").0);
        let read = block.queue(7, 1, (100, 8), "R").0;
        block.allocated(7, 100, "WS", 55);
        let issued = block.issue(7, 1, (100, 24 * 512), "WS", 0);
        assert_eq!((issued.bios.as_slice(), issued.made_ns), (&[bios[0], bios[2], bios[1]][..], 55));
        let again = block.issue(7, 1, (100, 24 * 512), "WS", 0);
        assert_eq!((again.rq, &again.bios), (issued.rq, &issued.bios), "the driver could not accept it");
        assert_eq!(block.issue(7, 1, (100, 8 * 512), "R", 0).bios, [read]);
        assert!(!block.complete(7, 100, 8, "WS").0.last);
        let (done, _) = block.complete(7, 108, 16, "WS");
        assert_eq!((done.rq, done.last), (issued.rq, true));
    }

    /// A commit record in block/blk-flush.c on a disk without FUA, with a bare flush merged into its second flush.
    #[test]
    fn a_flush_sequence_tracks_its_waiters() {
        let mut block = Block::default();
        let commit = block.queue(7, 1, (300, 2), "FWFSM").0;
        let first = block.issue(7, 1, (0, 0), "FF", 0);
        assert_eq!(first.waiters, [(commit, BEFORE_DATA)]);
        let bare = block.queue(7, 2, (0, 0), "FWS").0;
        assert_eq!(block.complete(7, u64::MAX, 0, "FF").0.rq, first.rq);
        let data = block.issue(7, 1, (300, 1024), "WSM", 0);
        assert_eq!((data.bios.as_slice(), data.sequence), (&[commit][..], true));
        let done = block.complete(7, 300, 2, "WSM").0;
        assert_eq!((done.rq, done.flags & bio_flags::FLUSH_SEQUENCE != 0), (data.rq, true));
        let second = block.issue(7, 1, (0, 0), "FF", 0);
        assert_eq!(second.waiters, [(bare, FLUSH_ONLY), (commit, AFTER_DATA)], "it waits for data that is under way");
        assert_eq!(block.complete(7, u64::MAX, 0, "FF").1, [bare]);
        let end = block.complete(7, 300, 0, "WSM").0;
        assert_eq!((end.rq, end.bytes), (data.rq, 0));
    }

    #[test]
    fn bios_of_a_partition_are_carried_by_its_disk() {
        let mut block = Block::default();
        let bio = block.queue(8 << 20 | 1, 1, (5000, 8), "WS").0;
        assert_eq!(block.issue(8 << 20, 1, (5000, 4096), "WS", 0).bios, [bio]);
        assert_eq!(block.disk_of(8 << 20 | 1), 8 << 20);
        let bio = block.queue(8 << 20 | 1, 1, (6000, 8), "WS").0;
        assert_eq!(block.issue(8 << 20, 1, (6000, 4096), "WS", 0).bios, [bio]);
    }

    #[test]
    fn a_split_bio_becomes_two() {
        let mut block = Block::default();
        let old = block.queue(7, 1, (100, 16), "W").0;
        let (parent, new, bytes) = block.split(7, 1, 100, 110).unwrap();
        assert_eq!((parent, bytes), (old, 5120));
        assert_eq!(block.issue(7, 1, (100, 5120), "W", 0).bios, [new]);
        assert_eq!(block.issue(7, 1, (110, 3072), "W", 0).bios, [old]);
        assert_eq!(block.split(7, 1, 100, 100), None);
    }
}
