//! Translates the events of the block layer and of the journal.

use super::Translator;
use super::block::IssuedRequest;
use crate::ftrace::decoder::{DecodedEvent, Kind};
use model::event::{
    BioDone, BioPages, BioQueue, BioRemap, BioSplit, CommitBegin, CommitEnd, FlushIssue, Join, RqBios, RqDone,
    RqInsert, RqIssue, bio_flags,
};
use model::{BioEnd, DiskOp};

const PAGE_BYTES: u64 = 4096;

/// The owner of a bio's pages.
#[derive(Debug, Clone, Copy)]
struct PageOwner {
    ino: u64,
    dev: u32,
    index: u64,
    end: BioEnd,
}

impl Translator {
    pub(super) fn on_bio(&mut self, s: &DecodedEvent) {
        let dev = s.number(0).unwrap_or(0) as u32;
        let (Some(sector), other) = (s.number(1), s.number(2).unwrap_or(0)) else { return };
        match s.kind {
            Kind::BioQueue => self.on_queue(s, dev, sector, other),
            Kind::BioSplit => {
                if let Some((parent, bio, bytes)) = self.block.split(dev, s.tid, sector, other) {
                    let (disk, bytes) = (self.block.disk_of(dev), bytes as u32);
                    self.put(self.header(s), BioSplit { bio, parent, sector: other, bytes, disk });
                }
            }
            Kind::BioRemap => {
                let (Some(from), Some(from_sector)) = (s.number(3).map(|n| n as u32), s.number(4)) else { return };
                if from == dev || self.block.disk_of(from) == dev {
                    // From a partition to its disk, before the bio is queued.
                    self.block.starts_at(from, sector.saturating_sub(from_sector));
                } else if let Some(parent) = self.block.bio_holding(from, s.tid, from_sector) {
                    // The clone is queued next, and gets its number then.
                    self.thread(s.tid).clone = Some((dev, sector, parent, from, from_sector));
                }
            }
            _ => {
                let error = s.number(3).unwrap_or(0) as i32;
                let bare = other == 0 && s.text.starts_with('F');
                if let Some(bio) = self.block.ended(dev, sector, bare) {
                    self.put(Self::header_without_thread(s), BioDone { bio, disk: self.block.disk_of(dev), error });
                }
            }
        }
    }

    fn on_queue(&mut self, s: &DecodedEvent, dev: u32, sector: u64, sectors: u64) {
        self.name(s, s.tid);
        let (bio, op, flags) = self.block.queue(dev, s.tid, (sector, sectors), &s.text);
        if let Some((to, at, parent, from_disk, from_sector)) = self.thread(s.tid).clone.take()
            && (to, at) == (dev, sector)
        {
            let disk = self.block.disk_of(dev);
            self.put(self.header(s), BioRemap { bio, parent, sector, from_sector, disk, from_disk });
        }
        let bytes = sectors.saturating_mul(512).min(u32::MAX.into());
        let carried = self.page_owner(s, dev, sector, bytes, op, flags);
        let call = self.threads.get(&s.tid).and_then(|t| t.call.as_ref()).filter(|c| c.emitted);
        let record = BioQueue {
            bio,
            sector,
            ino: carried.ino,
            index: carried.index,
            syscall_ns: call.map_or(0, |c| c.start_ns),
            bytes: bytes as u32,
            disk: self.block.disk_of(dev),
            dev: carried.dev,
            pages: if carried.ino == 0 { 0 } else { bytes.div_ceil(PAGE_BYTES) as u32 },
            op: op as u8,
            end: carried.end as u8,
            flags,
            ctx: self.context(s.tid),
            pad: 0,
        };
        self.put(self.header(s), record);
        // What this transaction logs; the log's own blocks do not say it.
        if let Some(key) = self.threads.get(&s.tid).and_then(|t| t.commits)
            && op == DiskOp::Write
            && carried.ino == u64::from(dev)
            && self.logged.insert(key)
        {
            for index in self.known.logged.get(&key).cloned().unwrap_or_default() {
                self.put(self.header(s), BioPages { bio, ino: dev.into(), index, dev, pages: 1 });
            }
        }
    }

    fn page_owner(&mut self, s: &DecodedEvent, dev: u32, sector: u64, bytes: u64, op: DiskOp, flags: u16) -> PageOwner {
        let start = self.block.start_of(dev);
        let at = sector.saturating_sub(start).saturating_mul(512);
        let metadata = PageOwner { ino: dev.into(), dev, index: at / PAGE_BYTES, end: BioEnd::BufferHead };
        let none = PageOwner { ino: 0, dev, index: 0, end: BioEnd::Unknown };
        let kernel = self.tasks.is_kernel(s.tid);
        let thread = self.threads.entry(s.tid).or_default();
        if bytes == 0 {
            return PageOwner {
                end: if flags & bio_flags::PREFLUSH != 0 { BioEnd::Wait } else { BioEnd::Unknown },
                ..none
            };
        }
        let of =
            |(dev, ino): super::extents::File, byte: u64, end| PageOwner { ino, dev, index: byte / PAGE_BYTES, end };
        match op {
            DiskOp::Write => {
                if let Some(file) = thread.writes_back {
                    let place = self.extents.find(dev, at, Some(file.1)).map(|p| p.1);
                    let byte = self.submit_pages(file, place, bytes);
                    return of(file, byte, BioEnd::Ext4);
                }
                if thread.commits.is_some() || flags & bio_flags::META != 0 || kernel {
                    return metadata;
                }
                match thread.call.as_ref().and_then(|c| Some((c.file?, c))) {
                    Some((file, call)) if call.shape.call.writes() => {
                        let byte = self.extents.find(dev, at, Some(file.1)).map(|p| p.1);
                        of(file, byte.or(call.began_at).unwrap_or(0), BioEnd::Direct)
                    }
                    _ => metadata,
                }
            }
            DiskOp::Read => {
                if flags & bio_flags::META != 0 {
                    return metadata;
                }
                if let Some((file, first, pages)) = thread.added.front_mut() {
                    let carried = of(*file, first.saturating_mul(PAGE_BYTES), BioEnd::PageRead);
                    let take = bytes.div_ceil(PAGE_BYTES).min(*pages);
                    (*first, *pages) = (first.saturating_add(take), *pages - take);
                    if *pages == 0 {
                        thread.added.pop_front();
                    }
                    return carried;
                }
                match thread.call.as_ref().and_then(|c| c.file) {
                    Some(file) => {
                        let byte = self.extents.find(dev, at, Some(file.1)).map_or(0, |p| p.1);
                        of(file, byte, BioEnd::PageRead)
                    }
                    None => none,
                }
            }
            _ => none,
        }
    }

    /// Pages of a file are submitted. If their offset is not known, they are the oldest ones that were written and not
    /// submitted yet: writeback processes a file's pages in order.
    fn submit_pages(&mut self, file: super::extents::File, place: Option<u64>, bytes: u64) -> u64 {
        let dirty = self.dirty.entry(file).or_default();
        let byte = place.unwrap_or_else(|| dirty.first().map_or(0, |page| page.saturating_mul(PAGE_BYTES)));
        let pages = byte / PAGE_BYTES..(byte.saturating_add(bytes.max(1) - 1) / PAGE_BYTES).saturating_add(1);
        let gone: Vec<u64> = dirty.range(pages).copied().collect();
        for page in &gone {
            dirty.remove(page);
        }
        byte
    }

    pub(super) fn on_request(&mut self, s: &DecodedEvent) {
        let dev = s.number(0).unwrap_or(0) as u32;
        let Some(sector) = s.number(1) else { return };
        let sectors = s.number(2).unwrap_or(0);
        // Before Linux 4.12, only commands that are passed through have bytes; only they have no sectors.
        let bytes = if sectors > 0 { sectors.saturating_mul(512) } else { s.number(3).unwrap_or(0) };
        match s.kind {
            Kind::GetRequest => self.block.allocated(dev, sector, &s.text, s.time_ns),
            Kind::RqInsert => {
                let rq = self.block.inserted(dev, sector, &s.text);
                self.put(self.header(s), RqInsert { rq, disk: dev, pad: 0 });
            }
            Kind::RqIssue => self.on_issue(s, dev, sector, bytes),
            _ => {
                let (done, bare) = self.block.complete(dev, sector, sectors, &s.text);
                let error = s.number(3).unwrap_or(0) as i32;
                // By its own clock, it ended before it was issued.
                let before = |issued_ns| s.time_ns.saturating_sub(s.moved_ns.into()) < issued_ns;
                let untimed = if done.issued_ns.is_some_and(before) { bio_flags::UNTIMED } else { 0 };
                let record = RqDone {
                    rq: done.rq,
                    sector,
                    bytes: done.bytes.min(u32::MAX.into()) as u32,
                    disk: dev,
                    error,
                    op: done.op as u8,
                    last: done.last.into(),
                    flags: done.flags | untimed,
                };
                self.put(Self::header_without_thread(s), record);
                for bio in bare {
                    self.put(Self::header_without_thread(s), BioDone { bio, disk: dev, error });
                }
            }
        }
    }

    fn on_issue(&mut self, s: &DecodedEvent, dev: u32, sector: u64, bytes: u64) {
        let issued = self.block.issue(dev, s.tid, (sector, bytes), &s.text, s.time_ns);
        self.on_issue_of_made(s, dev, issued.rq);
        let IssuedRequest { rq, op, mut flags, made_ns, bios, sequence, waiters } = issued;
        let flush = op == DiskOp::Flush;
        flags |= if sequence || flush { bio_flags::FLUSH_SEQUENCE } else { 0 };
        flags |= if flush || op == DiskOp::Other { 0 } else { bio_flags::COUNTED };
        let listed = bios.len().min(4);
        let mut first = [0; 4];
        first[..listed].copy_from_slice(&bios[..listed]);
        let record = RqIssue {
            rq,
            sector,
            alloc_ns: made_ns,
            bytes: bytes.min(u32::MAX.into()) as u32,
            disk: dev,
            op: op as u8,
            listed: listed as u8,
            flags,
            total: bios.len() as u32,
            bios: first,
        };
        self.put(self.header(s), record);
        for more in bios[listed..].chunks(8) {
            let mut bios = [0; 8];
            bios[..more.len()].copy_from_slice(more);
            self.put(self.header(s), RqBios { rq, listed: more.len() as u64, bios });
        }
        if flush {
            let mut record = FlushIssue { rq, total: waiters.len() as u16, ..FlushIssue::default() };
            for (i, (bio, step)) in waiters.iter().take(4).enumerate() {
                (record.bios[i], record.steps[i], record.listed) = (*bio, *step, i as u16 + 1);
            }
            self.put(self.header(s), record);
        }
    }

    pub(super) fn on_journal(&mut self, s: &DecodedEvent) {
        let (Some(dev), Some(txn)) = (s.number(0).map(|n| n as u32), s.number(1).map(|n| n as u32)) else { return };
        match s.kind {
            Kind::CommitBegin => {
                self.name(s, s.tid);
                self.thread(s.tid).commits = Some((dev, txn));
                self.put(self.header(s), CommitBegin { dev, txn });
            }
            Kind::CommitEnd => {
                self.thread(s.tid).commits = None;
                self.put(self.header(s), CommitEnd { dev, txn });
            }
            _ => self.on_handle(s, dev, txn),
        }
    }

    fn on_handle(&mut self, s: &DecodedEvent, dev: u32, txn: u32) {
        if self.learns {
            self.note_about_file(s.tid);
        }
        if let Some(call) = self.thread(s.tid).call.as_mut() {
            match &mut call.txn {
                None => {
                    call.txn = Some((dev, txn, 1));
                    return;
                }
                Some((d, t, handles)) if (*d, *t) == (dev, txn) => {
                    *handles = handles.saturating_add(1);
                    return;
                }
                Some(_) => {}
            }
        }
        let ctx = u32::from(self.context(s.tid));
        self.put(self.header(s), Join { start_ns: s.time_ns, dev, txn, handles: 1, ctx });
    }

    pub(super) fn on_place(&mut self, s: &DecodedEvent) {
        let Some(dev) = s.number(0).map(|n| n as u32) else { return };
        if s.kind == Kind::DirtyBuffer {
            let (Some(block), Some(size)) = (s.number(1), s.number(2)) else { return };
            self.extents.set_block_size(dev, size);
            // Buffers of a file's delayed pages have no location yet.
            let place = block.checked_mul(size).filter(|at| *at < 1 << 60);
            if let (Some(key), Some(at)) = (self.threads.get(&s.tid).and_then(|t| t.commits), place)
                && self.learns
            {
                let pages = self.known.logged.entry(key).or_default();
                if !pages.contains(&(at / PAGE_BYTES)) && pages.len() < 1 << 16 {
                    pages.push(at / PAGE_BYTES);
                }
            }
            return;
        }
        let [Some(ino), Some(logical), Some(blocks), Some(physical)] = [1, 2, 3, 4].map(|i| s.number(i)) else {
            return;
        };
        // Not found, a hole, or delayed.
        let found = s.kind == Kind::ExtentKept || s.number(6) != Some(0);
        const EXTENT_WRITTEN: u64 = 1;
        const EXTENT_UNWRITTEN: u64 = 2;
        if found && s.number(5).is_none_or(|status| status & (EXTENT_WRITTEN | EXTENT_UNWRITTEN) != 0) {
            self.extents.learn((dev, ino), logical, blocks, physical);
        }
    }
}
