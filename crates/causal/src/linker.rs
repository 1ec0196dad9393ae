//! The state that the rooms of this crate share, and which of them hears of which event. No idea lives here.

use crate::Config;
use crate::activity::Activity;
use crate::actor::TxnKey;
use crate::attribution::{Bills, Share};
use crate::bios::Bio;
use crate::checkpoints::Checkpoints;
use crate::context::Context;
use crate::exclusive;
use crate::hash::FastMap;
use crate::inferred::Inferred;
use crate::journal::{Journal, Transaction};
use crate::logs::Logs;
use crate::names::Names;
use crate::pages::{Pages, Taken};
use crate::requests::Request;
use crate::stacked::Stack;
use crate::threads::{Threads, span};
use crate::uring::Ring;
use model::event::{CommitBegin, CommitEnd, Header};
use model::table::Span;
use model::{Event, Layer, Record};
use std::collections::VecDeque;

/// How often the things that grow with the open horizon are looked through.
const SWEEP_EVERY: u32 = 256;
/// Threads beyond which those that were not heard of for longest are taken for dead: the kernel side follows half as many.
const MANY_THREADS: usize = 1 << 15;
/// Flights beyond which long operations' time sheets are filled in before they end.
const MANY_FLIGHTS: usize = 4096;

pub(crate) struct State {
    since_sweep: u32,
    pub names: Names,
    pub threads: Threads,
    pub inferred: Inferred,
    pub pages: Pages,
    pub journal: Journal,
    pub logs: Logs,
    pub checkpoints: Checkpoints,
    pub activity: Activity,
    pub stacked: Stack,
    pub bios: FastMap<u64, Bio>,
    /// Bios that want a flush, by age.
    pub barriers: VecDeque<u64>,
    /// Bios on disks that stand on other disks, by age.
    pub above: VecDeque<u64>,
    pub inserts: FastMap<u64, u64>,
    pub requests: FastMap<u64, Request>,
    /// Requests whose data is done but whose flush sequence is not, with their bios.
    pub sequences: FastMap<u64, Vec<u64>>,
    /// Kernel threads that joined a transaction for what they will write next.
    pub kernel_joins: FastMap<u32, (TxnKey, usize)>,
    /// io_uring's requests by process and submission, and those keys by address.
    pub rings: FastMap<(u32, u64), Ring>,
    pub ring_at: FastMap<u64, (u32, u64)>,
    /// Which request a thread last said that it works for.
    pub ring_workers: FastMap<u32, (u32, u64)>,
    pub bills: Bills,
    pub outcomes: FastMap<u64, Vec<Share>>,
    pub outcomes_order: VecDeque<u64>,
    /// Kept for its memory.
    pub taken: Vec<Taken>,
}

impl State {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            stacked: Stack::new(config),
            since_sweep: 0,
            names: Names::default(),
            threads: Threads::default(),
            inferred: Inferred::default(),
            pages: Pages::default(),
            journal: Journal::default(),
            logs: Logs::default(),
            checkpoints: Checkpoints::default(),
            activity: Activity::default(),
            bios: FastMap::default(),
            barriers: VecDeque::new(),
            above: VecDeque::new(),
            inserts: FastMap::default(),
            requests: FastMap::default(),
            sequences: FastMap::default(),
            kernel_joins: FastMap::default(),
            rings: FastMap::default(),
            ring_at: FastMap::default(),
            ring_workers: FastMap::default(),
            bills: Bills::default(),
            outcomes: FastMap::default(),
            outcomes_order: VecDeque::new(),
            taken: Vec::new(),
        }
    }

    /// Notes what an event that has just arrived tells before its turn.
    pub(crate) fn arrives(&mut self, event: &Event, config: &Config) {
        self.inferred.arrives(config.told.as_ref(), event);
    }

    pub(crate) fn on_event(&mut self, event: &Event, cx: &mut Context<'_>) {
        let h = &event.header;
        match &event.record {
            Record::Statement(r) => self.on_statement(h, r, cx),
            Record::OpBegin(r) => self.on_op_begin(h, r, cx),
            Record::OpEnd(r) => self.on_op_end(h, r, cx),
            Record::Mark(r) => self.on_mark(h, r, cx),
            Record::SyncBegin(r) => self.on_sync_begin(h, r, cx),
            Record::Syscall(r) => {
                self.infer_begin(h, r, cx);
                self.on_syscall(h, r, cx);
                self.infer_end(h, r, cx);
            }
            Record::File(r) => {
                if self.names.learn(h, r, cx.sink) {
                    self.pages.removed((r.dev, r.ino));
                }
            }
            Record::OffCpu(r) => {
                if let Some(thread) = self.threads.map.get_mut(&h.tid) {
                    thread.on_away(r.start_ns, r.wake_ns, h.time_ns, r.state, r.ctx);
                }
            }
            Record::BioQueue(r) => self.on_bio_queue(h, r, cx),
            Record::BioPages(r) => self.on_bio_pages(h, r, cx),
            Record::BioSplit(r) => self.on_bio_split(h, r, cx),
            Record::BioRemap(r) => self.on_bio_remap(h, r, cx),
            Record::RqInsert(r) => self.on_rq_insert(h, r),
            Record::RqIssue(r) => self.on_rq_issue(h, r, cx),
            Record::RqBios(r) => self.on_rq_bios(r, cx),
            Record::FlushIssue(r) => self.on_flush_issue(h, r, cx),
            Record::RqDone(r) => self.on_rq_done(h, r, cx),
            Record::BioDone(r) => self.on_bio_done(h, r, cx),
            Record::CommitBegin(r) => self.on_commit_begin(h, r, cx),
            Record::CommitEnd(r) => self.on_commit_end(h, r, cx),
            Record::Checkpoint(r) => self.on_checkpoint(h, r, cx),
            Record::Join(r) => self.on_join(h, r, cx),
            Record::FsWrite(r) => self.on_fs_write(h, r, cx),
            Record::CacheAdd(r) => self.on_cache_add(h, r, cx),
            Record::Task(r) => {
                self.names.task(h, r, cx.sink);
                if r.what == 2 {
                    self.thread_ended(h.tid, cx);
                }
            }
            Record::Uring(r) => self.on_uring(h, r, cx),
            // Marks are readdressed before they are pushed: see `inner`.
            Record::InnerTask(_) => {}
            Record::Loss(r) => cx.losses.add(h, r, cx.sink),
        }
    }

    /// What the time that has passed decides.
    pub(crate) fn on_time(&mut self, cx: &mut Context<'_>) {
        self.settle(false, cx);
        self.since_sweep += 1;
        // It looks at every thread: with many, the less often.
        if self.since_sweep >= SWEEP_EVERY && self.since_sweep as usize >= self.threads.map.len() {
            self.since_sweep = 0;
            self.sweep(cx);
        }
    }

    fn on_commit_begin(&mut self, h: &Header, r: &CommitBegin, cx: &mut Context<'_>) {
        let key = (r.dev, r.txn);
        if self.journal.get(key).is_some_and(|t| t.span != 0) {
            return; // The same number again: a damaged log, or a disk made anew.
        }
        // A journal's thread commits one after the other: of the one before only the end was lost.
        if let Some(old) = self.journal.committing(h.tid)
            && let Some(transaction) = self.journal.end_unseen(old, h.tid, h.time_ns)
        {
            cx.sink.span(Span { end_ns: None, ..commit(old, transaction) });
            self.activity.commit_ended(old, h.time_ns, false);
        }
        let id = cx.new_span();
        let joiners = self.journal.begin(key, h.tgid, h.tid, h.cpu, h.time_ns, id).joiners.clone();
        joiners.iter().for_each(|j| self.link_joiner(j, id, h.time_ns, h.cpu, cx));
        self.activity.commit_began(key, id, h.time_ns);
    }

    fn on_commit_end(&mut self, h: &Header, r: &CommitEnd, cx: &mut Context<'_>) {
        let key = (r.dev, r.txn);
        if let Some(transaction) = self.journal.end(key, h.tid, h.time_ns) {
            cx.sink.span(commit(key, transaction));
            self.activity.commit_ended(key, h.time_ns, true);
        }
    }

    /// Fills in long operations' time sheets and forgets what nobody can wait for any more.
    fn sweep(&mut self, cx: &mut Context<'_>) {
        let many = self.activity.len() > MANY_FLIGHTS;
        let (now_ns, horizon_ns) = (cx.now_ns, cx.config.horizon_ns);
        let mut before_ns = now_ns;
        let mut open: Vec<u32> =
            self.threads.map.iter().filter(|(_, t)| !t.frames.is_empty()).map(|(tid, _)| *tid).collect();
        open.sort_unstable();
        for tid in open {
            let Some(thread) = self.threads.map.get_mut(&tid) else { continue };
            if many || thread.calls.len() + thread.aways.len() > 256 {
                let upto_ns = exclusive::settled(thread, now_ns, horizon_ns);
                exclusive::account(thread, upto_ns, &mut self.activity, cx.sink);
            }
            before_ns = before_ns.min(thread.cursor_ns);
        }
        self.activity.prune(before_ns);
        if self.threads.map.len() > MANY_THREADS {
            self.forget_threads(cx);
        }
        self.inferred.prune(now_ns);
        if self.kernel_joins.len() > 4096 {
            self.kernel_joins.clear();
        }
    }

    /// Writes what is still open.
    pub(crate) fn finish(&mut self, cx: &mut Context<'_>) {
        let mut rings: Vec<Ring> = std::mem::take(&mut self.rings).into_values().collect();
        rings.sort_by_key(|r| r.span);
        rings.iter().for_each(|r| self.ring_lost(r, cx.now_ns, cx));
        let mut tids: Vec<u32> = self.threads.map.keys().copied().collect();
        tids.sort_unstable();
        tids.into_iter().for_each(|tid| self.thread_ended(tid, cx));
        for (key, transaction) in self.journal.unfinished() {
            cx.sink.span(commit(key, transaction));
        }
        let mut bios: Vec<(u64, u64)> = self.bios.iter().map(|(at, b)| (b.span, *at)).collect();
        bios.sort_unstable();
        bios.into_iter().for_each(|(_, at)| self.drop_bio(at, cx));
        let mut requests: Vec<Request> = std::mem::take(&mut self.requests).into_values().collect();
        requests.sort_by_key(|r| r.command);
        let end_ns = cx.now_ns;
        requests.into_iter().for_each(|r| self.charge_open(r, end_ns, cx));
        cx.losses.tell_unseen(cx.sink);
        self.stacked.finish();
        self.settle(true, cx);
        self.names.finish(cx.sink);
    }

    /// Entries in memory, of all kinds.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
            + self.threads.len()
            + self.inferred.len()
            + self.pages.len()
            + self.journal.len()
            + self.activity.len()
            + self.stacked.len()
            + self.bios.len()
            + self.barriers.len()
            + self.above.len()
            + self.inserts.len()
            + self.requests.len()
            + self.sequences.len()
            + self.kernel_joins.len()
            + self.rings.len()
            + self.ring_at.len()
            + self.ring_workers.len()
            + self.logs.len()
            + self.checkpoints.len()
            + self.bills.len()
            + self.outcomes.len()
    }
}

fn commit(key: TxnKey, t: &Transaction) -> Span {
    Span {
        end_ns: t.end_ns,
        disk: Some(key.0),
        number: Some(key.1.into()),
        ..span(t.span, Layer::FileSystem, "commit", t.begin_ns, t.tgid, t.tid)
    }
}
