//! Bios, from their queueing until a request takes them.
//!
//! When a bio is queued, everything that decides whom it is charged to is known (who wrote its pages, the commit that its
//! thread is in, the system call that sent it). So its charges are determined at that time (`Charging::charge_bio`) and kept with it
//! through splits and remaps.
//!
//! *Uncertainty*: a bio's address is reused within a millisecond. A bio is the one queued last at its address; if the end
//! of an earlier one was lost, that one simply has no end.

use super::bio::{Bio, disk_op, flag_words, new_flight};
use super::charging::{BioCharger, FILE_INODE_MIN};
use super::{BlockIo, Env};
use crate::Config;
use crate::actor::{Actor, cut_out, is_near, split_off_front};
use crate::context::{Context, span};
use crate::loss::Window;
use crate::pages::PAGE_BYTES;
use crate::tasks::Tasks;
use model::event::{BioDone, BioPages, BioQueue, BioRemap, BioSplit, Header, bio_flags, flags};
use model::table::Span;
use model::{BioEnd, Confidence, DiskOp, Layer, Relation};

/// Number of bios of stacked disks that are kept until their clones appear, which happens at once.
pub(super) const STACKED_BIOS_MAX: usize = 256;

/// Maximum number of bios kept, if their ends are lost.
pub(super) const BIOS_MAX: usize = 1 << 16;
/// Maximum number of bios kept that need a flush.
pub(super) const BARRIERS_MAX: usize = 4096;

/// Whether a bio carries a program's memory, by its completion handler: `submit_bio_wait` sends data for short direct I/O to a block
/// device (`__blkdev_direct_IO_simple`). btrfs has one handler for all its bios; it sends only the call's data while a thread is in a
/// call on a file opened for direct I/O.
fn is_direct(r: &BioQueue, config: &Config) -> bool {
    match BioEnd::from_number(r.end) {
        Some(BioEnd::Direct) => true,
        Some(BioEnd::Wait) => !config.by_place && r.bytes > 0,
        Some(BioEnd::Unknown) => {
            !config.by_place && r.ctx & flags::DIRECT != 0 && r.ino >= FILE_INODE_MIN && r.ino != u64::from(r.dev)
        }
        _ => false,
    }
}

impl BlockIo {
    /// A bio entered the block layer.
    pub(crate) fn on_bio_queue(&mut self, header: &Header, r: &BioQueue, env: &mut Env<'_, '_>) {
        if let Some(bio) = self.bios.get_mut(&r.bio).filter(|b| b.derived && !b.written) {
            // The device mapper announced it, with its parent, just before it sent it on.
            (bio.derived, bio.disk, bio.sector) = (false, r.disk, r.sector);
            let part = (bio.at_parent, u64::from(r.bytes));
            bio.charges = cut_out(&bio.charges, part, bio.bytes);
            bio.offset = bio.offset.map(|o| o.saturating_add(bio.at_parent)).filter(|_| r.bytes > 0);
            bio.bytes = r.bytes.into();
            // A mapper sends the flush of a write before its data, in a bio without data.
            let bare = r.bytes == 0 && r.flags & bio_flags::PREFLUSH != 0;
            (bio.op, bio.flags) = (if bare { DiskOp::Flush } else { disk_op(r.op) }, r.flags);
            if bio.is_barrier() && !self.barriers.contains(&r.bio) {
                self.barriers.push_back(r.bio);
            }
            return;
        }
        self.drop_bio(r.bio, env);
        let direct = is_direct(r, env.cx.config);
        // Memory that a program shares with a file, or maps from one, is no page of the file that is written.
        let anonymous;
        let r = if direct && !env.cx.config.by_place {
            anonymous = BioQueue { ino: 0, dev: 0, index: 0, pages: 0, ..r.clone() };
            &anonymous
        } else {
            r
        };
        // A bare flush is a write of nothing with PREFLUSH (blkdev_issue_flush).
        let bare = r.bytes == 0 && r.flags & bio_flags::PREFLUSH != 0;
        let op = if bare { DiskOp::Flush } else { disk_op(r.op) };
        let issuer = env.tasks.issuer(header, r.ctx, r.syscall_ns, env.objects, env.cx);
        let commit = env.objects.journal.committing(header.tid);
        let metadata = r.ino == 0 || r.ino == u64::from(r.dev);
        let file = if metadata { None } else { env.objects.names.file((r.dev, r.ino), header.time_ns) };
        let mut bio = Bio {
            span: env.cx.new_span(),
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
            offset: file.map(|_| r.index.saturating_mul(PAGE_BYTES)),
            operation: issuer.operation,
            charges: Vec::new(),
            ring: issuer.ring,
            flight: 0,
            commit,
            call: (header.tid, r.syscall_ns),
            pages_of: (r.dev, r.ino),
            direct,
            derived: false,
            at_parent: 0,
            written: false,
            carrier: 0,
        };
        bio.flight = env.objects.activity.add(new_flight(&bio));
        BioCharger { tid: header.tid, issuer, objects: env.objects, cx: env.cx, carried: &mut self.carried }
            .charge_bio(header, r, &mut bio);
        if bio.is_barrier() {
            self.barriers.push_back(r.bio);
        }
        if env.cx.config.stands_on_disks(r.disk) {
            if self.on_stacked_disks.len() >= STACKED_BIOS_MAX {
                self.on_stacked_disks.pop_front();
            }
            self.on_stacked_disks.push_back(r.bio);
        }
        self.bios.insert(r.bio, bio);
        self.prune_bios(env);
    }

    /// More pages of the bio just queued.
    pub(crate) fn on_bio_pages(&mut self, header: &Header, r: &BioPages, env: &mut Env<'_, '_>) {
        let Some(mut bio) = self.bios.remove(&r.bio) else { return };
        if bio.op == DiskOp::Write && bio.call.0 == header.tid && !bio.written && !bio.direct {
            let issuer = env.tasks.issuer(header, 0, bio.call.1, env.objects, env.cx);
            if let Some(key) = bio.commit.filter(|_| r.ino == u64::from(r.dev)) {
                env.objects.journal.record_home(r.dev, r.index, r.pages, key);
            } else if bio.pages_of.1 != u64::from(bio.pages_of.0) {
                let mut billing = BioCharger {
                    tid: header.tid,
                    issuer,
                    objects: env.objects,
                    cx: env.cx,
                    carried: &mut self.carried,
                };
                billing.charge_pages((r.dev, r.ino), r.index, r.pages.into(), &mut bio);
            }
        }
        self.bios.insert(r.bio, bio);
    }

    /// A bio was split: the new one takes the first part, the old one keeps the rest.
    pub(crate) fn on_bio_split(&mut self, header: &Header, r: &BioSplit, env: &mut Env<'_, '_>) {
        if r.bio == r.parent {
            return; // A damaged record.
        }
        let Some(mut parent) = self.bios.remove(&r.parent) else { return };
        let bytes = u64::from(r.bytes).min(parent.bytes);
        let all: f64 = parent.charges.iter().map(|c| c.weight).sum();
        let front = if bytes == parent.bytes {
            // Nothing stays, not even what rounding would leave.
            std::mem::take(&mut parent.charges)
        } else {
            split_off_front(&mut parent.charges, all * (bytes as f64 / parent.bytes as f64))
        };
        debug_assert!(is_near(front.iter().chain(&parent.charges).map(|c| c.weight).sum(), all));
        let child = Bio {
            span: env.cx.new_span(),
            queue_ns: header.time_ns,
            cpu: header.cpu,
            bytes,
            charges: front,
            derived: false,
            written: false,
            ..parent.clone()
        };
        parent.bytes -= bytes;
        parent.sector = r.sector;
        parent.offset = parent.offset.map(|o| o.saturating_add(bytes));
        self.derive(header, r.parent, parent, r.bio, child, (Relation::Splits, Confidence::Exact), env);
    }

    /// A bio was remapped: to another disk (device mapper), or from a partition to its disk.
    pub(crate) fn on_bio_remap(&mut self, header: &Header, r: &BioRemap, env: &mut Env<'_, '_>) {
        let (of, sure) = if r.parent != 0 || self.bios.contains_key(&r.bio) {
            (if r.parent == 0 { r.bio } else { r.parent }, Confidence::Exact)
        } else {
            // A clone by the device mapper; the only hint of its parent is its place there.
            let Some(of) = self.mapped_from(header.tid, r, env.cx.config) else { return };
            (of, Confidence::Address)
        };
        let Some(mut parent) = self.bios.remove(&of) else { return };
        if of == r.bio && env.cx.config.disk_of(r.from_disk) == env.cx.config.disk_of(r.disk) {
            (parent.disk, parent.sector) = (r.disk, r.sector);
            self.bios.insert(of, parent);
            return;
        }
        let mut child = Bio {
            span: env.cx.new_span(),
            queue_ns: header.time_ns,
            cpu: header.cpu,
            disk: r.disk,
            sector: r.sector,
            derived: true,
            at_parent: r.from_sector.saturating_sub(parent.sector).saturating_mul(512),
            written: false,
            ..parent.clone()
        };
        self.put_bio(&mut parent, Some(header.time_ns), None, env.tasks, env.cx);
        // From here on the child is waited for.
        env.objects.activity.superseded(parent.flight, header.time_ns);
        child.charges.iter_mut().for_each(|c| c.confidence = c.confidence.min(sure));
        self.derive(header, of, parent, r.bio, child, (Relation::Remaps, sure), env);
    }

    /// The bio on a disk above that a clone must come from: it holds the clone's former sector, and was preferably sent by
    /// the thread that maps it (dm maps inside submit_bio).
    fn mapped_from(&self, tid: u32, r: &BioRemap, config: &Config) -> Option<u64> {
        let from = config.disk_of(r.from_disk);
        let mut holders = self.on_stacked_disks.iter().rev().filter(|at| {
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
        env: &mut Env<'_, '_>,
    ) {
        let window = Window { start_ns: parent.queue_ns, end_ns: header.time_ns, cpus: [parent.cpu, header.cpu] };
        env.cx.link(parent.span, child.span, relation, sure, window);
        child.flight = env.objects.activity.add(new_flight(&child));
        child.carrier = 0;
        if child.is_barrier() {
            self.barriers.push_back(child_at);
        }
        if parent_at != child_at {
            self.drop_bio(child_at, env);
            self.bios.insert(parent_at, parent);
        }
        self.bios.insert(child_at, child);
    }

    /// A bio without data completed.
    pub(crate) fn on_bio_done(&mut self, header: &Header, r: &BioDone, env: &mut Env<'_, '_>) {
        let Some(mut bio) = self.bios.remove(&r.bio) else { return };
        env.objects.activity.superseded(bio.flight, header.time_ns);
        self.put_bio(&mut bio, Some(header.time_ns), Some(r.error.into()), env.tasks, env.cx);
    }

    /// Writes a bio's row, once.
    pub(crate) fn put_bio(
        &mut self,
        bio: &mut Bio,
        end_ns: Option<u64>,
        result: Option<i64>,
        tasks: &mut Tasks,
        cx: &mut Context<'_>,
    ) {
        if std::mem::replace(&mut bio.written, true) {
            return;
        }
        let actor = Actor { operation: bio.operation.unwrap_or(0), ..Actor::UNATTRIBUTED };
        let operation = tasks.threads.settled(actor).operation;
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
        // The thread on whose behalf it was made may still hold rows back.
        tasks.threads.put_span(if bio.ring != 0 { bio.ring } else { bio.tid }, row, cx);
    }

    /// The address is reused, or the bio's command ended.
    pub(crate) fn drop_bio(&mut self, at: u64, env: &mut Env<'_, '_>) {
        let Some(mut bio) = self.bios.remove(&at) else { return };
        // A flight that a request took over ends with its command.
        if bio.carrier == 0 {
            env.objects.activity.forgotten(bio.flight, env.cx.now_ns);
        }
        self.put_bio(&mut bio, None, None, env.tasks, env.cx);
    }

    /// Ends of bios may be lost; bios left behind must not accumulate over the trace.
    fn prune_bios(&mut self, env: &mut Env<'_, '_>) {
        while self.barriers.len() > 64 && self.barriers.front().is_some_and(|b| !self.bios.contains_key(b)) {
            self.barriers.pop_front();
        }
        if self.barriers.len() > BARRIERS_MAX {
            self.barriers.pop_front();
        }
        if self.bios.len() > BIOS_MAX {
            let mut all: Vec<(u64, u64)> = self.bios.iter().map(|(at, b)| (b.queue_ns, *at)).collect();
            all.sort_unstable();
            all[..BIOS_MAX / 2].iter().for_each(|(_, at)| self.drop_bio(*at, env));
        }
    }
}
