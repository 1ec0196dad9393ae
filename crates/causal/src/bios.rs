//! Bios, from their queueing until a request takes them.
//!
//! Picture a letter with the bill pinned to it: when a bio is queued, everything that will tell who pays is at hand (the
//! signatures on its pages, the commit its thread is in, the system call that sent it), so the bill is written then
//! and travels with it through splits and remaps.
//!
//! *Uncertainty*: a bio's address is used again within a millisecond. A bio is the one queued last at its address; if
//! the end of an earlier one was lost, that one simply has no end. What the journal's thread writes to the disk's metadata
//! outside a commit (its superblock) is taken to be for the newest transaction, which is a guess.

use crate::Config;
use crate::activity::Flight;
use crate::actor::{Actor, Charge, Source, TxnKey, cut_out, split_off_front};
use crate::calls::Issuer;
use crate::context::Context;
use crate::linker::State;
use crate::loss::Window;
use crate::pages::{PAGE, Taken};
use crate::stacked;
use crate::threads::span;
use model::event::{BioDone, BioPages, BioQueue, BioRemap, BioSplit, Header, bio_flags, flags};
use model::table::Span;
use model::{BioEnd, Call, Confidence, DiskOp, Layer, Origin, Relation};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Bios of stacked disks that are remembered until their clones show up, which is at once.
const ABOVE: usize = 256;

/// Inodes below are a file system's own: the nodes (1) and the checkpoint area (2) of f2fs, the trees of btrfs (1). 0 is none.
const FILES_FROM: u64 = 3;

/// A bio on its way.
#[derive(Debug, Clone)]
pub(crate) struct Bio {
    pub span: u64,
    pub queue_ns: u64,
    pub cpu: u16,
    pub tgid: u32,
    pub tid: u32,
    pub disk: u32,
    pub sector: u64,
    pub bytes: u64,
    pub op: DiskOp,
    pub flags: u16,
    pub file: Option<u64>,
    pub offset: Option<u64>,
    pub operation: Option<u64>,
    pub charges: Vec<Charge>,
    /// The thread that submitted it through a ring; 0: none.
    ring: u32,
    pub flight: u64,
    pub commit: Option<TxnKey>,
    call: (u32, u64),
    pages_of: (u32, u64),
    /// Made from another bio and not seen to be queued itself.
    derived: bool,
    /// Where in that one's bytes it begins.
    at_parent: u64,
    /// Its row is written.
    pub written: bool,
    /// The request that took it.
    pub carrier: u64,
}

impl Bio {
    /// Whether it carries blocks of the disk itself, and pages of no file.
    pub(crate) fn is_block(&self) -> bool {
        self.pages_of.1 != 0 && self.pages_of.1 == u64::from(self.pages_of.0)
    }

    /// Whether it waits, or will, for a flush of the disk's cache.
    pub(crate) fn is_barrier(&self) -> bool {
        self.op == DiskOp::Flush || self.flags & (bio_flags::PREFLUSH | bio_flags::FUA) != 0
    }
}

static FLAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    const BITS: [(u16, &str); 8] = [
        (bio_flags::SYNC, "sync"),
        (bio_flags::META, "meta"),
        (bio_flags::PREFLUSH, "preflush"),
        (bio_flags::FUA, "fua"),
        (bio_flags::READ_AHEAD, "readahead"),
        (bio_flags::BACKGROUND, "background"),
        (bio_flags::FLUSH_SEQUENCE, "sequence"),
        (bio_flags::COUNTED, "counted"),
    ];
    let text = |op: &DiskOp, bits: u16| {
        let words = BITS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, word)| *word);
        std::iter::once(op.name()).chain(words).collect::<Vec<_>>().join(" ")
    };
    DiskOp::ALL.iter().flat_map(|op| (0..256).map(move |bits| text(op, bits))).collect()
});

/// What a bio or request does, and how: `write sync meta`.
pub(crate) fn flag_words(op: DiskOp, bits: u16) -> Cow<'static, str> {
    Cow::Borrowed(&FLAGS[op as usize * 256 + usize::from(bits & 0xff)])
}

pub(crate) fn disk_op(number: u8) -> DiskOp {
    DiskOp::from_number(number).unwrap_or(DiskOp::Other)
}

impl State {
    /// A bio entered the block layer.
    pub(crate) fn on_bio_queue(&mut self, header: &Header, r: &BioQueue, cx: &mut Context<'_>) {
        if let Some(bio) = self.bios.get_mut(&r.bio).filter(|b| b.derived && !b.written) {
            // The device mapper announced it, with what it was made from, just before it sent it on.
            (bio.derived, bio.disk, bio.sector) = (false, r.disk, r.sector);
            let part = (bio.at_parent, u64::from(r.bytes));
            bio.charges = cut_out(&bio.charges, part, bio.bytes);
            bio.offset = bio.offset.map(|o| o.saturating_add(bio.at_parent)).filter(|_| r.bytes > 0);
            bio.bytes = r.bytes.into();
            // A mapper sends the flush of a write before its data, without any.
            let bare = r.bytes == 0 && r.flags & bio_flags::PREFLUSH != 0;
            (bio.op, bio.flags) = (if bare { DiskOp::Flush } else { disk_op(r.op) }, r.flags);
            if bio.is_barrier() && !self.barriers.contains(&r.bio) {
                self.barriers.push_back(r.bio);
            }
            return;
        }
        self.drop_bio(r.bio, cx);
        // A bare flush is a write of nothing with PREFLUSH (blkdev_issue_flush).
        let bare = r.bytes == 0 && r.flags & bio_flags::PREFLUSH != 0;
        let op = if bare { DiskOp::Flush } else { disk_op(r.op) };
        let issuer = self.issuer(header, r.ctx, r.syscall_ns, cx);
        let commit = self.journal.committing(header.tid);
        let metadata = r.ino == 0 || r.ino == u64::from(r.dev);
        let file = if metadata { None } else { self.names.file((r.dev, r.ino), header.time_ns) };
        let mut bio = Bio {
            span: cx.new_span(),
            queue_ns: header.time_ns,
            cpu: header.cpu,
            tgid: header.tgid,
            tid: header.tid,
            disk: r.disk,
            sector: r.sector,
            bytes: r.bytes.into(),
            op,
            flags: r.flags,
            file,
            offset: file.map(|_| r.index.saturating_mul(PAGE)),
            operation: issuer.operation,
            charges: Vec::new(),
            ring: issuer.ring,
            flight: 0,
            commit,
            call: (header.tid, r.syscall_ns),
            pages_of: (r.dev, r.ino),
            derived: false,
            at_parent: 0,
            written: false,
            carrier: 0,
        };
        bio.flight = self.activity.add(flight(&bio));
        self.bill(header, r, &issuer, &mut bio, cx);
        if bio.is_barrier() {
            self.barriers.push_back(r.bio);
        }
        if cx.config.stands_on_disks(r.disk) {
            if self.above.len() >= ABOVE {
                self.above.pop_front();
            }
            self.above.push_back(r.bio);
        }
        self.bios.insert(r.bio, bio);
        self.prune_bios(cx);
    }

    /// Writes the bill of a bio that was just queued.
    fn bill(&mut self, header: &Header, r: &BioQueue, issuer: &Issuer, bio: &mut Bio, cx: &mut Context<'_>) {
        let weight = f64::from(r.bytes.max(1));
        let kernel = r.ctx & flags::KERNEL_THREAD != 0 || header.flags & 1 != 0;
        let file = (r.dev, r.ino);
        if cx.config.tracer_files.contains(&file) {
            let tracer = Actor::process(Origin::Tracer, cx.config.tracer.unwrap_or(0));
            let charge = Charge { source: Source::Actor(tracer), ..Charge::nobody(weight, "archive") };
            bio.charges.push(Charge { confidence: Confidence::Structural, ..charge });
            return;
        }
        if bio.op == DiskOp::Write && r.bytes > 0 && BioEnd::from_number(r.end) != Some(BioEnd::Direct) {
            let metadata = r.ino == u64::from(r.dev) && r.ino != 0;
            let buffer = BioEnd::from_number(r.end) == Some(BioEnd::BufferHead);
            if metadata || (buffer && (bio.commit.is_some() || !self.pages.knows(file))) {
                self.bill_metadata(r, issuer, bio, weight, cx);
            } else {
                self.bill_pages(header, file, r.index, pages(r), issuer, bio, cx);
            }
            return;
        }
        if let Some(key) = bio.commit {
            // What the journal's thread sends for the commit itself: its flushes are for those who wait.
            let barrier = bio.op == DiskOp::Flush || r.bytes == 0;
            let (source, via) =
                if barrier { (Source::Waiters(key), "flush") } else { (Source::Joiners(key), "transaction") };
            let confidence = self.link_commit(key, bio, Relation::Commits, Confidence::Interval, cx);
            bio.charges.push(Charge { source, weight, confidence, via, span: 0 });
            return;
        }
        if kernel {
            let uppers = match bio.op {
                DiskOp::Flush => self.stacked.flushes(|dev| cx.config.disk_of(dev) == cx.config.disk_of(r.disk)),
                DiskOp::Read if self.stacked_file(file, cx) => {
                    self.stacked.reads(file, r.index.saturating_mul(PAGE), r.bytes.into())
                }
                op => {
                    self.stacked.direct(op, r.bytes.into(), |dev| cx.config.disk_of(dev) == cx.config.disk_of(r.disk))
                }
            };
            if !uppers.is_empty() {
                bio.charges = stacked::charges(&uppers, weight);
                for ((upper, sure), i) in uppers.iter().zip(0..) {
                    let window = Window { start_ns: upper.issue_ns, end_ns: bio.queue_ns, cpus: [upper.cpu, bio.cpu] };
                    bio.charges[i].confidence = cx.link(upper.command, bio.span, Relation::Remaps, *sure, window);
                }
                return;
            }
        }
        if kernel && bio.op == DiskOp::Read && issuer.actor == Actor::NOBODY {
            // Nobody's reads are put off, so a kernel thread that reads for no disk above reads for itself (ext4lazyinit
            // and its bitmaps): it is named.
            let itself = Issuer { actor: Actor::process(Origin::OtherProcess, header.tgid), ..*issuer };
            return self.bill_thread(&itself, bio, weight, "thread", issuer.confidence, cx);
        }
        if issuer.actor == Actor::NOBODY && bio.op != DiskOp::Read {
            // A kernel thread's flush or discard.
            return self.bill_orphan(r.dev, issuer, bio, weight, cx);
        }
        self.bill_thread(issuer, bio, weight, "thread", issuer.confidence, cx);
    }

    /// Pages that nobody known wrote. If they are metadata, the file system itself did: btrfs and f2fs keep theirs in inodes
    /// of their own, xfs in no inode at all. The thread pays that writes them in a call of its own, else whoever waits.
    fn bill_orphan(&mut self, dev: u32, issuer: &Issuer, bio: &mut Bio, weight: f64, cx: &mut Context<'_>) {
        let own = bio.flags & bio_flags::META != 0 || bio.op != DiskOp::Write || bio.pages_of.1 < FILES_FROM;
        let metadata = own || bio.is_block() || self.logs.is_folder(bio.pages_of);
        if metadata && issuer.span != 0 && issuer.actor != Actor::NOBODY {
            return self.bill_thread(issuer, bio, weight, "log", Confidence::Interval, cx);
        }
        if !metadata || !self.bill_log(dev, bio, weight, cx) {
            bio.charges.push(Charge::nobody(weight, "unknown"));
        }
    }

    fn stacked_file(&self, file: (u32, u64), cx: &Context<'_>) -> bool {
        cx.config.stacked.iter().any(|s| s.below == crate::Below::File { dev: file.0, ino: file.1 })
    }

    /// The thread that sent it pays.
    fn bill_thread(
        &mut self,
        issuer: &Issuer,
        bio: &mut Bio,
        weight: f64,
        via: &'static str,
        sure: Confidence,
        cx: &mut Context<'_>,
    ) {
        let window = Window { start_ns: issuer.start_ns, end_ns: bio.queue_ns, cpus: [issuer.cpu, bio.cpu] };
        let confidence = cx.link(issuer.span, bio.span, Relation::Calls, sure, window);
        let via = if issuer.actor == Actor::NOBODY { "unknown" } else { via };
        bio.charges.push(Charge { source: Source::Actor(issuer.actor), weight, confidence, via, span: issuer.span });
    }

    fn link_commit(
        &mut self,
        key: TxnKey,
        bio: &Bio,
        relation: Relation,
        sure: Confidence,
        cx: &mut Context<'_>,
    ) -> Confidence {
        let Some((commit, begin_ns, cpu)) = self.journal.get(key).map(|t| (t.span, t.begin_ns, t.cpu)) else {
            return sure;
        };
        let window = Window { start_ns: begin_ns, end_ns: bio.queue_ns, cpus: [cpu, bio.cpu] };
        cx.link(commit, bio.span, relation, sure, window)
    }

    /// Metadata: the journal's own copy, or a checkpoint of what a transaction logged before.
    fn bill_metadata(&mut self, r: &BioQueue, issuer: &Issuer, bio: &mut Bio, weight: f64, cx: &mut Context<'_>) {
        let known = match bio.commit {
            Some(key) => {
                // The journal's copy keeps the page of the block's home (jbd2_journal_write_metadata_buffer).
                self.journal.logged(r.dev, r.index, r.pages, key);
                Some((key, "transaction", Confidence::Interval))
            }
            None => self.journal.last_logged(r.dev, r.index).map(|key| (key, "checkpoint", Confidence::Structural)),
        };
        if let Some((key, via, sure)) = known {
            let confidence = self.link_commit(key, bio, Relation::Commits, sure, cx);
            bio.charges.push(Charge { source: Source::Joiners(key), weight, confidence, via, span: 0 });
        } else if issuer.actor.origin == Origin::Tracer || issuer.actor.origin == Origin::OtherProcess {
            self.bill_thread(issuer, bio, weight, "thread", issuer.confidence, cx);
        } else if let Some(key) = self.journal.newest(r.dev).filter(|_| self.names.is_journal_thread(bio.tgid)) {
            // Before the first commit after a pause the journal's thread writes its superblock, saying that the log is no
            // longer empty (jbd2_journal_update_sb_log_tail, called before jbd2_start_commit).
            bio.charges.push(Charge {
                source: Source::Joiners(key),
                weight,
                confidence: Confidence::Guess,
                via: "transaction",
                span: 0,
            });
        } else if issuer.actor == Actor::NOBODY && !self.journal.is_journal(r.dev) {
            // A block of the disk itself may be anything, ext4's before its first transaction too, unless a file system
            // is on the disk that is known to have no transactions.
            self.bill_orphan(r.dev, issuer, bio, weight, cx);
        } else if self.journal.is_journal(r.dev) {
            // Logged before the trace began. Whoever writes it home now (a checkpoint may run in any call that needs
            // room in the journal) is not its cause.
            bio.charges.push(Charge::nobody(weight, "unknown"));
        } else {
            self.bill_thread(issuer, bio, weight, "thread", Confidence::Interval, cx);
        }
    }

    /// Data: each page's writers pay.
    #[expect(clippy::too_many_arguments, reason = "a range of a file has three, who sent it three")]
    fn bill_pages(
        &mut self,
        header: &Header,
        file: (u32, u64),
        index: u64,
        pages: u64,
        issuer: &Issuer,
        bio: &mut Bio,
        cx: &mut Context<'_>,
    ) {
        let mut taken = std::mem::take(&mut self.taken);
        taken.clear();
        self.pages.take(file, index, pages, bio.queue_ns, bio.call, &mut taken);
        let mut linked: Option<(u64, Confidence)> = None;
        for Taken { writer, weight } in &taken {
            let Some(w) = writer else {
                match issuer.actor.origin {
                    Origin::Tracer | Origin::OtherProcess => {
                        self.bill_thread(issuer, bio, *weight, "thread", issuer.confidence, cx);
                    }
                    _ if issuer.call == Some(Call::Msync) => {
                        self.bill_thread(issuer, bio, *weight, "mapped", Confidence::Guess, cx);
                    }
                    _ if file.1 == 0 && issuer.actor != Actor::NOBODY => {
                        self.bill_thread(issuer, bio, *weight, "thread", Confidence::Interval, cx);
                    }
                    _ => self.bill_orphan(file.0, issuer, bio, *weight, cx),
                }
                continue;
            };
            let confidence = match linked {
                Some((span, confidence)) if span == w.span => confidence,
                _ => {
                    let upper = matches!(w.source, Source::Command(_));
                    let relation = if upper { Relation::Remaps } else { Relation::Dirties };
                    let window = Window { start_ns: w.start_ns, end_ns: bio.queue_ns, cpus: [w.cpu, bio.cpu] };
                    cx.link(w.span, bio.span, relation, w.confidence, window)
                }
            };
            linked = Some((w.span, confidence));
            let charge = Charge { source: w.source, weight: *weight, confidence, via: w.via, span: w.span };
            match bio.charges.last_mut() {
                Some(last) if last.source == charge.source && last.confidence == confidence && last.via == w.via => {
                    last.weight += charge.weight;
                }
                _ => bio.charges.push(charge),
            }
        }
        self.taken = taken;
        if bio.commit.is_some() {
            // Ordered mode: the journal's thread writes data before the commit that names it.
            if let Some(key) = bio.commit {
                self.link_commit(key, bio, Relation::Commits, Confidence::Interval, cx);
            }
        } else {
            let window = Window { start_ns: issuer.start_ns, end_ns: bio.queue_ns, cpus: [issuer.cpu, bio.cpu] };
            if linked.is_some_and(|(span, _)| span != issuer.span) {
                cx.link(issuer.span, bio.span, Relation::Calls, issuer.confidence, window);
            }
        }
        self.settle_kernel_join(header.tid, &bio.charges);
    }

    /// A writeback thread joined a transaction for the pages it now sends: the handles are their writers'.
    fn settle_kernel_join(&mut self, tid: u32, charges: &[Charge]) {
        let Some((key, place)) = self.kernel_joins.remove(&tid) else { return };
        let Some(joiner) = self.journal.get(key).and_then(|t| t.joiners.get(place)).copied() else { return };
        let all: f64 = charges.iter().map(|c| c.weight).sum();
        let members = charges.iter().map(|c| crate::journal::Joiner {
            source: c.source,
            span: 0,
            handles: joiner.handles * c.weight / all,
            confidence: c.confidence.min(Confidence::Interval),
            ..joiner
        });
        self.journal.replace(key, place, members);
    }

    /// More pages of the bio just queued.
    pub(crate) fn on_bio_pages(&mut self, header: &Header, r: &BioPages, cx: &mut Context<'_>) {
        let Some(mut bio) = self.bios.remove(&r.bio) else { return };
        if bio.op == DiskOp::Write && bio.call.0 == header.tid && !bio.written {
            let issuer = self.issuer(header, 0, bio.call.1, cx);
            if let Some(key) = bio.commit.filter(|_| r.ino == u64::from(r.dev)) {
                self.journal.logged(r.dev, r.index, r.pages, key);
            } else if bio.pages_of.1 != u64::from(bio.pages_of.0) {
                self.bill_pages(header, (r.dev, r.ino), r.index, r.pages.into(), &issuer, &mut bio, cx);
            }
        }
        self.bios.insert(r.bio, bio);
    }

    /// A bio was split: the new one takes the first part, the old one keeps the rest.
    pub(crate) fn on_bio_split(&mut self, header: &Header, r: &BioSplit, cx: &mut Context<'_>) {
        if r.bio == r.parent {
            return; // A damaged record.
        }
        let Some(mut parent) = self.bios.remove(&r.parent) else { return };
        let bytes = u64::from(r.bytes).min(parent.bytes);
        let all: f64 = parent.charges.iter().map(|c| c.weight).sum();
        let part = if parent.bytes > 0 { all * bytes as f64 / parent.bytes as f64 } else { 0.0 };
        let child = Bio {
            span: cx.new_span(),
            queue_ns: header.time_ns,
            cpu: header.cpu,
            bytes,
            charges: split_off_front(&mut parent.charges, part),
            derived: false,
            written: false,
            ..parent.clone()
        };
        parent.bytes -= bytes;
        parent.sector = r.sector;
        parent.offset = parent.offset.map(|o| o.saturating_add(bytes));
        self.derive(header, r.parent, parent, r.bio, child, (Relation::Splits, Confidence::Exact), cx);
    }

    /// A bio was sent on: to another disk (device mapper), or from a partition to its disk.
    pub(crate) fn on_bio_remap(&mut self, header: &Header, r: &BioRemap, cx: &mut Context<'_>) {
        let (of, sure) = if r.parent != 0 || self.bios.contains_key(&r.bio) {
            (if r.parent == 0 { r.bio } else { r.parent }, Confidence::Exact)
        } else {
            // The device mapper's clone, without a word of what it was made from but the place it held there.
            let Some(of) = self.mapped_from(header.tid, r, cx.config) else { return };
            (of, Confidence::Address)
        };
        let Some(mut parent) = self.bios.remove(&of) else { return };
        if of == r.bio && cx.config.disk_of(r.from_disk) == cx.config.disk_of(r.disk) {
            (parent.disk, parent.sector) = (r.disk, r.sector);
            self.bios.insert(of, parent);
            return;
        }
        let mut child = Bio {
            span: cx.new_span(),
            queue_ns: header.time_ns,
            cpu: header.cpu,
            disk: r.disk,
            sector: r.sector,
            derived: true,
            at_parent: r.from_sector.saturating_sub(parent.sector).saturating_mul(512),
            written: false,
            ..parent.clone()
        };
        self.put_bio(&mut parent, Some(header.time_ns), None, cx);
        // From here on the child is what is waited for.
        if let Some(flight) = self.activity.get(parent.flight) {
            flight.done_ns = flight.done_ns.min(header.time_ns);
        }
        child.charges.iter_mut().for_each(|c| c.confidence = c.confidence.min(sure));
        self.derive(header, of, parent, r.bio, child, (Relation::Remaps, sure), cx);
    }

    /// The bio on a disk above that a clone must come from: it holds the clone's former sector, and the thread that maps
    /// it is the one that sent it (dm maps inside submit_bio) or, failing that, any.
    fn mapped_from(&self, tid: u32, r: &BioRemap, config: &Config) -> Option<u64> {
        let from = config.disk_of(r.from_disk);
        let mut holders = self.above.iter().rev().filter(|at| {
            self.bios.get(at).is_some_and(|b| {
                let end = b.sector.saturating_add(b.bytes.div_ceil(512).max(1));
                config.disk_of(b.disk) == from && (b.sector..end).contains(&r.from_sector)
            })
        });
        let mut any = holders.clone();
        holders.find(|at| self.bios.get(at).is_some_and(|b| b.tid == tid)).or_else(|| any.next()).copied()
    }

    #[expect(clippy::too_many_arguments, reason = "two bios, each with its address")]
    fn derive(
        &mut self,
        header: &Header,
        parent_at: u64,
        parent: Bio,
        child_at: u64,
        mut child: Bio,
        (relation, sure): (Relation, Confidence),
        cx: &mut Context<'_>,
    ) {
        let window = Window { start_ns: parent.queue_ns, end_ns: header.time_ns, cpus: [parent.cpu, header.cpu] };
        cx.link(parent.span, child.span, relation, sure, window);
        child.flight = self.activity.add(flight(&child));
        child.carrier = 0;
        if child.is_barrier() {
            self.barriers.push_back(child_at);
        }
        if parent_at != child_at {
            self.drop_bio(child_at, cx);
            self.bios.insert(parent_at, parent);
        }
        self.bios.insert(child_at, child);
    }

    /// A bio without data ended.
    pub(crate) fn on_bio_done(&mut self, header: &Header, r: &BioDone, cx: &mut Context<'_>) {
        let Some(mut bio) = self.bios.remove(&r.bio) else { return };
        if let Some(flight) = self.activity.get(bio.flight) {
            flight.done_ns = flight.done_ns.min(header.time_ns);
        }
        self.put_bio(&mut bio, Some(header.time_ns), Some(r.error.into()), cx);
    }

    /// Writes a bio's row, once.
    pub(crate) fn put_bio(&mut self, bio: &mut Bio, end_ns: Option<u64>, result: Option<i64>, cx: &mut Context<'_>) {
        if std::mem::replace(&mut bio.written, true) {
            return;
        }
        let actor = Actor { operation: bio.operation.unwrap_or(0), ..Actor::NOBODY };
        let operation = self.threads.settled(actor).operation;
        let row = Span {
            end_ns: end_ns.map(|e| e.max(bio.queue_ns)),
            operation: (operation != 0).then_some(operation),
            file: bio.file,
            offset: bio.offset,
            disk: Some(bio.disk),
            sector: Some(bio.sector),
            bytes: bio.bytes,
            result,
            flags: flag_words(bio.op, bio.flags),
            ..span(bio.span, Layer::Block, "bio", bio.queue_ns, bio.tgid, bio.tid)
        };
        // Whose thread it was made on behalf of may still hold rows back.
        self.put_span(if bio.ring != 0 { bio.ring } else { bio.tid }, row, cx);
    }

    /// The address is used again, or the bio's command ended.
    pub(crate) fn drop_bio(&mut self, at: u64, cx: &mut Context<'_>) {
        let Some(mut bio) = self.bios.remove(&at) else { return };
        // A flight that a request took over ends with its command.
        let end_ns = cx.now_ns;
        if let Some(flight) = self.activity.get(bio.flight).filter(|_| bio.carrier == 0) {
            flight.done_ns = flight.done_ns.min(end_ns.max(flight.queue_ns));
        }
        self.put_bio(&mut bio, None, None, cx);
    }

    /// Ends of bios may be lost; what is left of them must not grow with the trace.
    fn prune_bios(&mut self, cx: &mut Context<'_>) {
        while self.barriers.len() > 64 && self.barriers.front().is_some_and(|b| !self.bios.contains_key(b)) {
            self.barriers.pop_front();
        }
        if self.barriers.len() > 4096 {
            self.barriers.pop_front();
        }
        const MOST: usize = 1 << 16;
        if self.bios.len() > MOST {
            let mut all: Vec<(u64, u64)> = self.bios.iter().map(|(at, b)| (b.queue_ns, *at)).collect();
            all.sort_unstable();
            all[..MOST / 2].iter().for_each(|(_, at)| self.drop_bio(*at, cx));
        }
    }
}

fn flight(bio: &Bio) -> Flight {
    Flight {
        queue_ns: bio.queue_ns,
        made_ns: u64::MAX,
        issue_ns: u64::MAX,
        done_ns: u64::MAX,
        guess: false,
        flush: false,
        read: bio.op == DiskOp::Read,
        call: bio.call,
        file: bio.pages_of,
        commit: bio.commit,
        ring: bio.ring,
        bio: bio.span,
        request: 0,
        command: 0,
    }
}

fn pages(r: &BioQueue) -> u64 {
    if r.pages > 0 { r.pages.into() } else { u64::from(r.bytes).div_ceil(PAGE).max(1) }
}
