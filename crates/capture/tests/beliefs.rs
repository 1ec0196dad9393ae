//! The probes' assumptions about the kernel, each with its own test, so that a new kernel breaks that test and not the
//! linker. Each test creates a disk and reads only that disk's records.

mod common;

use capture::{Request, Scope};
use common::{LoopDisk, Recorder};
use model::event::{bio_flags, flags};
use model::{BioEnd, DiskOp, Event, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Records everything on a disk while `script` runs in a child shell, in the directory where the disk is mounted.
fn record_on_disk(disk: &LoopDisk, script: &str) -> Vec<Event> {
    let child = common::spawn_gated(&format!("cd {} && {script}", disk.path().display()));
    let mut recorder = Recorder::start(&Request::new(Scope::Command));
    // Leftovers of the mount were queued before the recording.
    recorder.drain_until_quiet(disk);
    recorder.events.clear();
    recorder.release(child);
    recorder.drain_until_quiet(disk);
    let (events, finished) = recorder.finish();
    assert_eq!(finished.lost, 0, "nothing may be lost on a quiet machine");
    events
}

/// Counts for a disk: the numbers in its `stat` file that completions determine.
#[derive(Debug, PartialEq, Eq, Default)]
struct Counts {
    reads: u64,
    sectors_read: u64,
    writes: u64,
    sectors_written: u64,
    discards: u64,
    flushes: u64,
}

impl Counts {
    fn between(before: &[u64], after: &[u64]) -> Self {
        let by = |i: usize| after[i] - before[i];
        Self {
            reads: by(0),
            sectors_read: by(2),
            writes: by(4),
            sectors_written: by(6),
            discards: by(11),
            flushes: by(15),
        }
    }

    fn recorded(events: &[Event], disk: u32) -> Self {
        let mut counts = Self::default();
        for (_, r) in records!(*events, RqDone).filter(|(_, r)| r.disk == disk) {
            let op = DiskOp::from_number(r.op);
            // The flush machinery's own request stands for the flush.
            if op == Some(DiskOp::Flush) {
                counts.flushes += u64::from(r.last);
                continue;
            }
            if r.flags & bio_flags::COUNTED == 0 {
                continue;
            }
            // A write that needs flushes around it completes twice: as a step of the sequence, then as itself.
            let whole = u64::from(r.last != 0 && r.flags & bio_flags::FLUSH_SEQUENCE == 0);
            let sectors = u64::from(r.bytes) / 512;
            match op {
                Some(DiskOp::Read) => {
                    counts.reads += whole;
                    counts.sectors_read += sectors;
                }
                Some(DiskOp::Write) => {
                    counts.writes += whole;
                    counts.sectors_written += sectors;
                }
                Some(DiskOp::Discard) => counts.discards += whole,
                _ => {}
            }
        }
        counts
    }
}

#[test]
fn completions_match_diskstats() {
    needs_live_kernel!();
    let disk = LoopDisk::ext4();
    let db = "for i in 1 2 3 4 5 6 7 8 9 10; do dd if=/dev/urandom of=f$i bs=4k count=$i conv=fsync status=none; done; \
              rm f3; sync; echo 3 > /proc/sys/vm/drop_caches; cat f* > /dev/null; fstrim .";
    let child = common::spawn_gated(&format!("cd {} && {db}", disk.path().display()));
    let mut recorder = Recorder::start(&Request::new(Scope::Command));
    recorder.drain_until_quiet(&disk);
    let before = disk.stat();
    // Earlier commands are in neither count.
    recorder.drain();
    recorder.events.clear();
    recorder.release(child);
    recorder.drain_until_quiet(&disk);
    let after = disk.stat();
    let (events, finished) = recorder.finish();
    assert_eq!(finished.lost, 0);
    let counts = Counts::between(&before, &after);
    assert!(counts.reads > 0 && counts.writes > 10 && counts.flushes >= 10, "too little was done: {counts:?}");
    assert_eq!(Counts::recorded(&events, disk.dev()), counts);
}

#[test]
fn merged_request_lists_its_bios_at_issue() {
    needs_live_kernel!();
    let disk = LoopDisk::ext4();
    // The journal blocks of one commit are adjacent and are submitted one by one.
    let events = record_on_disk(&disk, "mkdir a b c d; touch a/1 b/2 c/3 d/4; sync");
    let mut more: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (_, r) in records!(events, RqBios) {
        more.entry(r.rq).or_default().extend(&r.bios[..r.listed as usize]);
    }
    let mut merged = 0;
    // In time order, since an address is used for one bio after the other.
    let mut queued: BTreeMap<u64, u32> = BTreeMap::new();
    for event in &events {
        match &event.record {
            Record::BioQueue(b) if b.disk == disk.dev() => {
                queued.insert(b.bio, b.bytes);
            }
            Record::RqIssue(r) if r.disk == disk.dev() && r.op == DiskOp::Write as u8 => {
                let mut bios = r.bios[..usize::from(r.listed)].to_vec();
                let rest = r.total as usize - bios.len();
                bios.extend(more.entry(r.rq).or_default().drain(..rest));
                assert_eq!(bios.iter().collect::<BTreeSet<_>>().len(), bios.len(), "a bio is listed twice");
                let sum: u32 = bios.iter().map(|b| queued.get(b).expect("a bio that was queued")).sum();
                assert_eq!(sum, r.bytes, "the bios of a request are its bytes");
                merged += u32::from(r.total > 1);
            }
            _ => {}
        }
    }
    assert!(merged > 0, "no request was merged: the test shows nothing");
}

#[test]
fn flush_waiters_are_on_the_flush_queue() {
    needs_live_kernel!();
    let disk = LoopDisk::ext4();
    let events = record_on_disk(
        &disk,
        "echo x > f && sync f && dd if=/dev/zero of=f bs=1 count=1 conv=notrunc,fdatasync status=none",
    );
    let issued: BTreeSet<u64> = records!(events, RqIssue)
        .filter(|(_, r)| r.disk == disk.dev() && r.op == DiskOp::Flush as u8)
        .map(|(_, r)| r.rq)
        .collect();
    let mut steps = BTreeSet::new();
    let mut flagged: BTreeMap<u64, u16> = BTreeMap::new();
    for event in &events {
        match &event.record {
            Record::BioQueue(b) if b.disk == disk.dev() => {
                flagged.insert(b.bio, b.flags);
            }
            Record::FlushIssue(f) if issued.contains(&f.rq) => {
                assert!(f.listed >= 1 && f.listed == f.total.min(4), "a flush without waiters: {f:?}");
                for i in 0..usize::from(f.listed) {
                    let bio = flagged.get(&f.bios[i]).unwrap_or_else(|| panic!("a waiter never queued: {f:?}"));
                    assert_ne!(bio & bio_flags::PREFLUSH, 0, "a waiter that requested no flush");
                    steps.insert(f.steps[i]);
                }
            }
            _ => {}
        }
    }
    // A loop disk has a cache and no FUA, so the commit record waits twice; fdatasync of settled data waits once.
    assert_eq!(steps, BTreeSet::from([1, 4, 7]));
}

#[test]
fn request_is_allocated_between_bio_queue_and_issue() {
    needs_live_kernel!();
    let disk = LoopDisk::ext4();
    let events = record_on_disk(&disk, "dd if=/dev/zero of=f bs=64k count=4 conv=fsync status=none");
    let mut queued: BTreeMap<u64, u64> = BTreeMap::new();
    let mut checked = 0;
    for event in &events {
        match &event.record {
            Record::BioQueue(b) if b.disk == disk.dev() => {
                queued.insert(b.bio, event.header.time_ns);
            }
            Record::RqIssue(r) if r.disk == disk.dev() && r.listed > 0 => {
                assert_ne!(r.alloc_ns, 0, "the kernel keeps no time of making");
                assert!(r.alloc_ns <= event.header.time_ns);
                // A cached or plugged time may be slightly old, but never older than the plug: a millisecond is ample.
                let first = queued[&r.bios[0]];
                assert!(r.alloc_ns + 1_000_000 >= first, "made {} ns before its bio", first - r.alloc_ns);
                checked += 1;
            }
            _ => {}
        }
    }
    assert!(checked > 0);
}

#[test]
fn bio_lists_its_pages() {
    needs_live_kernel!();
    let disk = LoopDisk::ext4();
    let path = disk.path().join("f");
    let mut recorder = Recorder::start(&Request::new(Scope::Command));
    let file = File::create(&path).unwrap();
    // Three extents: pages 0..8, 16..17, 40..44.
    file.write_all_at(&[1; 8 * 4096], 0).unwrap();
    file.write_all_at(&[2; 4096], 16 * 4096).unwrap();
    file.write_all_at(&[3; 4 * 4096], 40 * 4096).unwrap();
    file.sync_all().unwrap();
    recorder.drain();
    let (events, _) = recorder.finish();
    let ino = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
    let mut pages = BTreeSet::new();
    let mut bytes = 0;
    for (_, b) in records!(events, BioQueue).filter(|(_, b)| b.ino == ino && b.dev == disk.dev()) {
        pages.extend(b.index..b.index + u64::from(b.pages));
        bytes += u64::from(b.bytes);
        assert_eq!(b.end, BioEnd::Ext4 as u8);
        assert_ne!(b.ctx & flags::TRACER, 0, "this process is the tracer");
    }
    for (_, p) in records!(events, BioPages).filter(|(_, p)| p.ino == ino && p.dev == disk.dev()) {
        pages.extend(p.index..p.index + u64::from(p.pages));
    }
    let expected: BTreeSet<u64> = (0..8).chain(16..17).chain(40..44).collect();
    assert_eq!((pages, bytes), (expected, 13 * 4096));
}

#[test]
fn direct_reads_have_syscall_and_no_file_pages() {
    needs_live_kernel!();
    let disk = LoopDisk::ext4();
    let events = record_on_disk(
        &disk,
        "dd if=/dev/zero of=f bs=4k count=8 conv=fsync status=none && dd if=f of=/dev/null bs=8k iflag=direct status=none",
    );
    let calls: BTreeSet<(u32, u64)> = records!(events, Syscall)
        .filter(|(_, s)| s.ctx & flags::DIRECT != 0 && s.result > 0)
        .map(|(e, s)| (e.header.tid, s.start_ns))
        .collect();
    assert_eq!(calls.len(), 4, "four reads of 8 KiB");
    let direct: Vec<_> =
        records!(events, BioQueue).filter(|(_, b)| b.disk == disk.dev() && b.end == BioEnd::Direct as u8).collect();
    assert_eq!(direct.len(), 4);
    for (event, bio) in direct {
        assert_eq!((bio.ino, bio.op), (0, DiskOp::Read as u8));
        assert!(calls.contains(&(event.header.tid, bio.syscall_ns)));
    }
}

#[test]
fn read_reports_page_cache_misses() {
    needs_live_kernel!();
    let disk = LoopDisk::ext4();
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(0)
        .open(disk.path().join("f"))
        .unwrap();
    file.write_all(&[7; 64 << 10]).unwrap();
    file.sync_all().unwrap();
    file.read_to_end(&mut Vec::new()).unwrap();
    drop(file);
    // The pages of a clean file are dropped on request.
    let events =
        record_on_disk(&disk, "dd if=f iflag=nocache count=0 status=none; cat f > /dev/null; cat f > /dev/null");
    let reads: Vec<u64> = records!(events, Syscall)
        .filter(|(_, s)| s.dev == disk.dev() && s.result > 0 && s.call == model::Call::Read as u16)
        .map(|(_, s)| u64::from(s.cache_added))
        .collect();
    assert_eq!((reads.len(), reads[0] >= 16, reads[1]), (2, true, 0), "first a miss, then a hit: {reads:?}");
}
