//! Attribution of a bio at queue time.
//!
//! *Uncertainty*: metadata that the journal's thread writes outside a commit (its superblock) is charged to the newest
//! transaction, which is a guess.

use super::bio::Bio;
use crate::actor::{Actor, Charge, Source, TxnKey};
use crate::context::Context;
use crate::journal::Joiner;
use crate::loss::Window;
use crate::objects::Objects;
use crate::pages::{PAGE_BYTES, WriterShare};
use crate::stacked;
use crate::tasks::Issuer;
use model::event::{BioQueue, Header, bio_flags, flags, header_flags};
use model::{BioEnd, Call, Confidence, DiskOp, Origin, Relation};
use std::collections::VecDeque;

/// The lowest inode number of a file. Lower ones are internal to a file system: the nodes (1) and the checkpoint area (2) of f2fs, the
/// trees of btrfs (1). 0 is none.
pub(super) const FILE_INODE_MIN: u64 = 3;

/// Determines the charges of one bio.
pub(super) struct BioCharger<'a, 'c> {
    /// The thread that queues it.
    pub tid: u32,
    pub issuer: Issuer,
    pub objects: &'a mut Objects,
    pub cx: &'a mut Context<'c>,
    pub carried: &'a mut PagesInTransit,
}

/// Number of runs of pages that are remembered for their copies.
const RUNS_MAX: usize = 16;
/// Maximum time between the first copy of a run and the last.
const COPIES_DURATION_NS: u64 = 10_000_000;

/// A run of pages that a thread sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// The thread and its call.
    call: (u32, u64),
    file: (u32, u64),
    index: u64,
    pages: u64,
}

/// Pages on their way to a disk.
#[derive(Debug, Default)]
pub(super) struct PagesInTransit {
    /// Those of one run. Kept to reuse its memory.
    taken: Vec<WriterShare>,
    /// Runs of file systems that may send them to several places, by age, and when they were sent.
    sent: VecDeque<(Run, u64, Vec<WriterShare>)>,
}

impl PagesInTransit {
    /// btrfs sends its data to each mirror, one after the other: the pages of the second one have the writers of the first one's.
    fn copy(&mut self, run: Run, now_ns: u64) {
        if self.taken.iter().any(|taken| taken.writer.is_some()) {
            if self.sent.len() >= RUNS_MAX {
                self.sent.pop_front();
            }
            self.sent.push_back((run, now_ns, self.taken.clone()));
        } else if let Some((.., taken)) =
            self.sent.iter().rev().find(|sent| sent.0 == run && now_ns.saturating_sub(sent.1) <= COPIES_DURATION_NS)
        {
            self.taken.clone_from(taken);
        }
    }
}

impl BioCharger<'_, '_> {
    /// Charges a bio that was just queued.
    pub(super) fn charge_bio(&mut self, header: &Header, r: &BioQueue, bio: &mut Bio) {
        let weight = f64::from(r.bytes.max(1));
        let kernel = r.ctx & flags::KERNEL_THREAD != 0 || header.flags & header_flags::KERNEL_THREAD != 0;
        let file = (r.dev, r.ino);
        if self.cx.config.tracer_files.contains(&file) {
            let tracer = Actor::process(Origin::Tracer, self.cx.config.tracer.unwrap_or(0));
            let charge = Charge { source: Source::Actor(tracer), ..Charge::unattributed(weight, "archive") };
            bio.charges.push(Charge { confidence: Confidence::Structural, ..charge });
            return;
        }
        if BioEnd::from_number(r.end) == Some(BioEnd::Log) {
            return self.charge_own_log(header, r.dev, bio, (weight, kernel));
        }
        if bio.op == DiskOp::Write && r.bytes > 0 && !bio.direct {
            let metadata = r.ino == u64::from(r.dev) && r.ino != 0;
            let buffer = BioEnd::from_number(r.end) == Some(BioEnd::BufferHead);
            if metadata || (buffer && (bio.commit.is_some() || !self.objects.pages.has_writer(file))) {
                self.charge_metadata(r, bio, weight);
            } else {
                self.charge_pages(file, r.index, pages_of(r), bio);
            }
            return;
        }
        if let Some(key) = bio.commit {
            // Sent by the journal's thread for the commit itself: its flushes are charged to those that wait.
            let barrier = bio.op == DiskOp::Flush || r.bytes == 0;
            let (source, via) =
                if barrier { (Source::Waiters(key), "flush") } else { (Source::Joiners(key), "transaction") };
            let confidence = self.link_commit(key, bio, Relation::Commits, Confidence::Interval);
            bio.charges.push(Charge { source, weight, confidence, via, span: 0 });
            return;
        }
        if kernel {
            let config = self.cx.config;
            let here = |dev| config.disk_of(dev) == config.disk_of(r.disk);
            let uppers = match bio.op {
                DiskOp::Flush => self.objects.stacked.commands_for_flush(here),
                DiskOp::Read if self.stacked_file(file) => {
                    self.objects.stacked.commands_for_read(file, r.index.saturating_mul(PAGE_BYTES), r.bytes.into())
                }
                op => self.objects.stacked.commands_for_direct_io(op, r.bytes.into(), here),
            };
            if !uppers.is_empty() {
                bio.charges = stacked::divide_charge(&uppers, weight);
                for ((upper, sure), i) in uppers.iter().zip(0..) {
                    let window = Window { start_ns: upper.issue_ns, end_ns: bio.queue_ns, cpus: [upper.cpu, bio.cpu] };
                    bio.charges[i].confidence = self.cx.link(upper.command, bio.span, Relation::Remaps, *sure, window);
                }
                return;
            }
        }
        if kernel && bio.op == DiskOp::Read && self.issuer.actor == Actor::UNATTRIBUTED {
            // Reads are never deferred, so a kernel thread that reads for no disk above reads for itself (ext4lazyinit and
            // its bitmaps): it is charged itself.
            self.issuer.actor = Actor::process(Origin::OtherProcess, header.tgid);
            return self.charge_thread(bio, weight, "thread", self.issuer.confidence);
        }
        if self.issuer.actor == Actor::UNATTRIBUTED && bio.op != DiskOp::Read {
            // A kernel thread's flush or discard.
            return self.charge_orphan(r.dev, bio, weight);
        }
        self.charge_thread(bio, weight, "thread", self.issuer.confidence);
    }

    /// Charges pages without a known writer. If they are metadata, the file system itself wrote them: btrfs and f2fs keep
    /// theirs in separate inodes, xfs in none. The thread that writes them within a call is charged, else the waiters.
    fn charge_orphan(&mut self, dev: u32, bio: &mut Bio, weight: f64) {
        let own = bio.flags & bio_flags::META != 0 || bio.op != DiskOp::Write || bio.pages_of.1 < FILE_INODE_MIN;
        let metadata = own || bio.is_block() || self.objects.logs.is_directory(bio.pages_of);
        if metadata && self.issuer.span != 0 && self.issuer.actor != Actor::UNATTRIBUTED {
            return self.charge_thread(bio, weight, "log", Confidence::Interval);
        }
        if !metadata || !self.charge_log(dev, bio, weight) {
            bio.charges.push(Charge::unattributed(weight, "unknown"));
        }
    }

    /// Charges a block of a log that the thread writes itself: it is in a call that needs it on the medium (`ext4_fc_commit`), or
    /// serves a disk above. The block holds the changes of all since the last one, which the caller waits for too.
    fn charge_own_log(&mut self, header: &Header, dev: u32, bio: &mut Bio, (weight, kernel): (f64, bool)) {
        if let Some(upper) = self.objects.stacked.served_by(header.tid, dev).filter(|_| kernel) {
            let window = Window { start_ns: bio.queue_ns, end_ns: bio.queue_ns, cpus: [bio.cpu; 2] };
            let confidence = self.cx.link(upper, bio.span, Relation::Remaps, Confidence::Structural, window);
            let charge = Charge { source: Source::Command(upper), confidence, ..Charge::unattributed(weight, "log") };
            return bio.charges.push(Charge { span: upper, ..charge });
        }
        if self.issuer.actor == Actor::UNATTRIBUTED {
            self.issuer.actor = Actor::process(Origin::OtherProcess, header.tgid);
        }
        self.charge_thread(bio, weight, "log", self.issuer.confidence);
    }

    /// Whether metadata that no transaction logged is likely to be the file system's log or superblock, written by the thread itself
    /// (`jbd2_write_superblock`, `ext4_commit_super`): no checkpoint needs a flush for its blocks. Where the completion handlers are not
    /// known, also what an fsync sends: it makes no checkpoint, but may make a fast commit.
    fn writes_log(&self, r: &BioQueue, bio: &Bio) -> Option<Confidence> {
        if self.issuer.actor == Actor::UNATTRIBUTED {
            return None;
        }
        if bio.is_barrier() {
            return Some(Confidence::Interval);
        }
        let known = !self.cx.config.by_place && BioEnd::from_number(r.end) != Some(BioEnd::Unknown);
        let syncs = matches!(self.issuer.call, Some(Call::Fsync | Call::Fdatasync));
        (!known && syncs && bio.flags & bio_flags::SYNC != 0).then_some(Confidence::Guess)
    }

    fn stacked_file(&self, file: (u32, u64)) -> bool {
        self.cx.config.stacked.iter().any(|s| s.backing == crate::Backing::File { dev: file.0, ino: file.1 })
    }

    /// Charges the thread that sent it.
    fn charge_thread(&mut self, bio: &mut Bio, weight: f64, via: &'static str, sure: Confidence) {
        let window = Window { start_ns: self.issuer.start_ns, end_ns: bio.queue_ns, cpus: [self.issuer.cpu, bio.cpu] };
        let confidence = self.cx.link(self.issuer.span, bio.span, Relation::Calls, sure, window);
        let via = if self.issuer.actor == Actor::UNATTRIBUTED { "unknown" } else { via };
        bio.charges.push(Charge {
            source: Source::Actor(self.issuer.actor),
            weight,
            confidence,
            via,
            span: self.issuer.span,
        });
    }

    fn link_commit(&mut self, key: TxnKey, bio: &Bio, relation: Relation, sure: Confidence) -> Confidence {
        let Some((commit, begin_ns, cpu)) = self.objects.journal.get(key).map(|t| (t.span, t.begin_ns, t.cpu)) else {
            return sure;
        };
        let window = Window { start_ns: begin_ns, end_ns: bio.queue_ns, cpus: [cpu, bio.cpu] };
        self.cx.link(commit, bio.span, relation, sure, window)
    }

    /// Charges metadata: the journal's own copy, or a checkpoint of what a transaction logged before.
    fn charge_metadata(&mut self, r: &BioQueue, bio: &mut Bio, weight: f64) {
        let known = match bio.commit {
            Some(key) => {
                // The journal's copy keeps the page of the block's home (jbd2_journal_write_metadata_buffer).
                self.objects.journal.record_home(r.dev, r.index, r.pages, key);
                Some((key, "transaction", Confidence::Interval))
            }
            None => {
                self.objects.journal.last_logged(r.dev, r.index).map(|key| (key, "checkpoint", Confidence::Structural))
            }
        };
        if let Some((key, via, sure)) = known {
            let confidence = self.link_commit(key, bio, Relation::Commits, sure);
            bio.charges.push(Charge { source: Source::Joiners(key), weight, confidence, via, span: 0 });
        } else if self.issuer.actor.origin == Origin::Tracer || self.issuer.actor.origin == Origin::OtherProcess {
            self.charge_thread(bio, weight, "thread", self.issuer.confidence);
        } else if let Some(key) =
            self.objects.journal.newest(r.dev).filter(|_| self.objects.names.is_journal_thread(bio.tgid))
        {
            // Before the first commit after a pause, the journal's thread writes its superblock to mark the log as no
            // longer empty (jbd2_journal_update_sb_log_tail, called before jbd2_start_commit).
            bio.charges.push(Charge {
                source: Source::Joiners(key),
                weight,
                confidence: Confidence::Guess,
                via: "transaction",
                span: 0,
            });
        } else if self.issuer.actor == Actor::UNATTRIBUTED && !self.objects.journal.is_journal(r.dev) {
            // A block of the disk itself may be anything, including ext4's before its first transaction, unless the disk
            // holds a file system known to have no transactions.
            self.charge_orphan(r.dev, bio, weight);
        } else if let Some(sure) = self.writes_log(r, bio).filter(|_| self.objects.journal.is_journal(r.dev)) {
            self.charge_thread(bio, weight, "log", sure);
        } else if self.objects.journal.is_journal(r.dev) {
            // Logged before the trace began. The thread that writes it home now (a checkpoint may run in any call that
            // needs room in the journal) is not its cause.
            bio.charges.push(Charge::unattributed(weight, "unknown"));
        } else {
            self.charge_thread(bio, weight, "thread", Confidence::Interval);
        }
    }

    /// Charges data to the writers of each page.
    pub(super) fn charge_pages(&mut self, file: (u32, u64), index: u64, pages: u64, bio: &mut Bio) {
        self.carried.taken.clear();
        self.objects.pages.take(file, index, pages, bio.queue_ns, bio.call, &mut self.carried.taken);
        // File systems on several disks have no disk's number.
        if file.0 >> 20 == 0 && file.0 != 0 {
            self.carried.copy(Run { call: bio.call, file, index, pages }, bio.queue_ns);
        }
        let taken = std::mem::take(&mut self.carried.taken);
        let mut linked: Option<(u64, Confidence)> = None;
        for WriterShare { writer, weight } in &taken {
            let Some(w) = writer else {
                match self.issuer.actor.origin {
                    Origin::Tracer | Origin::OtherProcess => {
                        self.charge_thread(bio, *weight, "thread", self.issuer.confidence);
                    }
                    _ if self.issuer.call == Some(Call::Msync) => {
                        self.charge_thread(bio, *weight, "mapped", Confidence::Guess);
                    }
                    _ if file.1 == 0 && self.issuer.actor != Actor::UNATTRIBUTED => {
                        self.charge_thread(bio, *weight, "thread", Confidence::Interval);
                    }
                    _ => self.charge_orphan(file.0, bio, *weight),
                }
                continue;
            };
            let confidence = match linked {
                Some((span, confidence)) if span == w.span => confidence,
                _ => {
                    let upper = matches!(w.source, Source::Command(_));
                    let relation = if upper { Relation::Remaps } else { Relation::Dirties };
                    let window = Window { start_ns: w.start_ns, end_ns: bio.queue_ns, cpus: [w.cpu, bio.cpu] };
                    self.cx.link(w.span, bio.span, relation, w.confidence, window)
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
        self.carried.taken = taken;
        if bio.commit.is_some() {
            // Ordered mode: the journal's thread writes data before the commit that names it.
            if let Some(key) = bio.commit {
                self.link_commit(key, bio, Relation::Commits, Confidence::Interval);
            }
        } else {
            let window =
                Window { start_ns: self.issuer.start_ns, end_ns: bio.queue_ns, cpus: [self.issuer.cpu, bio.cpu] };
            if linked.is_some_and(|(span, _)| span != self.issuer.span) {
                self.cx.link(self.issuer.span, bio.span, Relation::Calls, self.issuer.confidence, window);
            }
        }
        self.settle_join(&bio.charges);
    }

    /// A writeback thread joined a transaction for the pages it now sends: the handles belong to the pages' writers.
    fn settle_join(&mut self, charges: &[Charge]) {
        let all: f64 = charges.iter().map(|c| c.weight).sum();
        // A damaged record names no page at all; the next one may tell.
        if all <= 0.0 {
            return;
        }
        let Some((key, place)) = self.objects.journal.take_proxy(self.tid) else { return };
        let Some(joiner) = self.objects.journal.get(key).and_then(|t| t.joiners.get(place)).copied() else { return };
        let members = charges.iter().map(|c| Joiner {
            source: c.source,
            span: 0,
            handles: joiner.handles * c.weight / all,
            confidence: c.confidence.min(Confidence::Interval),
            ..joiner
        });
        self.objects.journal.replace(key, place, members, self.cx);
    }

    /// Charges what a file system writes for itself, which no page or transaction explains. `dev`: the file system, if its
    /// pages name it. Returns whether there was anyone to charge.
    fn charge_log(&mut self, dev: u32, bio: &mut Bio, weight: f64) -> bool {
        let disk = self.cx.config.disk_of(bio.disk);
        let config = self.cx.config;
        let journal = &self.objects.journal;
        // Blocks outside any file system's inode: on a disk that holds a file system without a disk's number (btrfs) they
        // are its own; on any other they may be ext4's, whose transactions are better evidence.
        let block = dev != 0 && config.disk_of(dev) == disk && dev >> 20 != 0 && bio.is_block();
        let here = |d: u32| {
            let mine = if block { d >> 20 == 0 } else { true };
            mine && (d == dev || config.disk_of(d) == disk) && !journal.is_journal(d)
        };
        let mut waiting = journal.waiting_syncs(bio.queue_ns, here);
        // If it is known who asked the file system for its log, the others wait for their data only.
        if waiting.iter().any(|w| w.asked) {
            waiting.retain(|w| w.asked);
        }
        if waiting.is_empty() {
            let meant = self.objects.logs.changers(bio.queue_ns, here);
            let all: f64 = meant.iter().map(|m| m.1).sum();
            // Each changed something at least once.
            assert!(all.is_finite() && (all > 0.0 || meant.is_empty()), "{all}");
            let line = |(source, part): &(Source, f64)| Charge {
                source: *source,
                confidence: Confidence::Guess,
                ..Charge::unattributed(weight * part / all, "log")
            };
            bio.charges.extend(meant.iter().map(line));
            return !meant.is_empty();
        }
        let each = weight / waiting.len() as f64;
        for wait in waiting {
            let window = Window { start_ns: wait.start_ns, end_ns: bio.queue_ns, cpus: [bio.cpu; 2] };
            let sure = self.cx.link(wait.span, bio.span, Relation::WaitsForLog, wait.confidence, window);
            bio.charges.push(Charge {
                source: wait.source,
                confidence: sure,
                span: wait.span,
                ..Charge::unattributed(each, "log")
            });
        }
        true
    }
}

fn pages_of(r: &BioQueue) -> u64 {
    if r.pages > 0 { r.pages.into() } else { u64::from(r.bytes).div_ceil(PAGE_BYTES).max(1) }
}
