//! The state that the rooms of this crate share, and which of them hears of which event. No idea lives here.

use crate::activity::Activity;
use crate::actor::TxnKey;
use crate::attribution::{Bills, Share};
use crate::bios::Bio;
use crate::checkpoints::Checkpoints;
use crate::exclusive;
use crate::hash::FastMap;
use crate::inferred::Inferred;
use crate::journal::{Journal, Transaction};
use crate::logs::Logs;
use crate::loss::{Losses, Window};
use crate::names::Names;
use crate::pages::{Pages, Taken};
use crate::reorder::moment;
use crate::requests::Request;
use crate::stacked::Stack;
use crate::threads::{Threads, span};
use crate::uring::Ring;
use crate::{Config, Sink};
use model::event::{CommitBegin, CommitEnd, Header};
use model::table::{Link, Span};
use model::{Confidence, Event, Layer, Record, Relation};
use std::collections::VecDeque;

/// How often the things that grow with the open horizon are looked through.
const SWEEP_EVERY: u32 = 256;
/// Threads beyond which those that were not heard of for longest are taken for dead: the kernel side follows half as many.
const MANY_THREADS: usize = 1 << 15;
/// Flights beyond which long operations' time sheets are filled in before they end.
const MANY_FLIGHTS: usize = 4096;

pub(crate) struct State {
    pub config: Config,
    pub now_ns: u64,
    spans: u64,
    since_sweep: u32,
    pub losses: Losses,
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
    pub(crate) fn new(config: Config) -> Self {
        Self {
            stacked: Stack::new(&config),
            config,
            now_ns: 0,
            spans: 0,
            since_sweep: 0,
            losses: Losses::default(),
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

    pub(crate) fn new_span(&mut self) -> u64 {
        self.spans += 1;
        self.spans
    }

    /// Writes a link, if both its ends are known, and says how sure it is.
    pub(crate) fn link(
        &mut self,
        parent: u64,
        child: u64,
        relation: Relation,
        confidence: Confidence,
        window: Window,
        sink: &mut dyn Sink,
    ) -> Confidence {
        let (confidence, weakened_by) = self.losses.judge(confidence, window);
        if parent != 0 && child != 0 && parent != child {
            sink.link(Link { parent, child, relation, confidence, weakened_by });
        }
        confidence
    }

    pub(crate) fn on_event(&mut self, event: &Event, sink: &mut dyn Sink) {
        let h = &event.header;
        match &event.record {
            Record::Statement(r) => self.on_statement(h, r, sink),
            Record::OpBegin(r) => self.on_op_begin(h, r, sink),
            Record::OpEnd(r) => self.on_op_end(h, r, sink),
            Record::Mark(r) => self.on_mark(h, r, sink),
            Record::SyncBegin(r) => self.on_sync_begin(h, r, sink),
            Record::Syscall(r) => {
                self.infer_begin(h, r, sink);
                self.on_syscall(h, r, sink);
                self.infer_end(h, r, sink);
            }
            Record::File(r) => {
                if self.names.learn(h, r, sink) {
                    self.pages.removed((r.dev, r.ino));
                }
            }
            Record::OffCpu(r) => {
                if let Some(thread) = self.threads.map.get_mut(&h.tid) {
                    thread.on_away(r.start_ns, r.wake_ns, h.time_ns, r.state, r.ctx);
                }
            }
            Record::BioQueue(r) => self.on_bio_queue(h, r, sink),
            Record::BioPages(r) => self.on_bio_pages(h, r, sink),
            Record::BioSplit(r) => self.on_bio_split(h, r, sink),
            Record::BioRemap(r) => self.on_bio_remap(h, r, sink),
            Record::RqInsert(r) => self.on_rq_insert(h, r),
            Record::RqIssue(r) => self.on_rq_issue(h, r, sink),
            Record::RqBios(r) => self.on_rq_bios(r, sink),
            Record::FlushIssue(r) => self.on_flush_issue(h, r, sink),
            Record::RqDone(r) => self.on_rq_done(h, r, sink),
            Record::BioDone(r) => self.on_bio_done(h, r, sink),
            Record::CommitBegin(r) => self.on_commit_begin(h, r, sink),
            Record::CommitEnd(r) => self.on_commit_end(h, r, sink),
            Record::Checkpoint(r) => self.on_checkpoint(h, r, sink),
            Record::Join(r) => self.on_join(h, r, sink),
            Record::FsWrite(r) => self.on_fs_write(h, r, sink),
            Record::CacheAdd(r) => self.on_cache_add(h, r, sink),
            Record::Task(r) => {
                self.names.task(h, r, sink);
                if r.what == 2 {
                    self.thread_ended(h.tid, sink);
                }
            }
            Record::Uring(r) => self.on_uring(h, r, sink),
            // Marks are readdressed before they are pushed: see `inner`.
            Record::InnerTask(_) => {}
            Record::Loss(r) => self.losses.add(h, r, sink),
        }
        // After the event, so that a late mark or call can be told by its time.
        self.now_ns = self.now_ns.max(moment(event));
        self.settle(false, sink);
        self.since_sweep += 1;
        // It looks at every thread: with many, the less often.
        if self.since_sweep >= SWEEP_EVERY && self.since_sweep as usize >= self.threads.map.len() {
            self.since_sweep = 0;
            self.sweep(sink);
        }
    }

    fn on_commit_begin(&mut self, h: &Header, r: &CommitBegin, sink: &mut dyn Sink) {
        let key = (r.dev, r.txn);
        if self.journal.get(key).is_some_and(|t| t.span != 0) {
            return; // The same number again: a damaged log, or a disk made anew.
        }
        // A journal's thread commits one after the other: of the one before only the end was lost.
        if let Some(old) = self.journal.committing(h.tid)
            && let Some(transaction) = self.journal.end_unseen(old, h.tid, h.time_ns)
        {
            sink.span(Span { end_ns: None, ..commit(old, transaction) });
            self.activity.commit_ended(old, h.time_ns, false);
        }
        let id = self.new_span();
        let joiners = self.journal.begin(key, h.tgid, h.tid, h.cpu, h.time_ns, id).joiners.clone();
        joiners.iter().for_each(|j| self.link_joiner(j, id, h.time_ns, h.cpu, sink));
        self.activity.commit_began(key, id, h.time_ns);
    }

    fn on_commit_end(&mut self, h: &Header, r: &CommitEnd, sink: &mut dyn Sink) {
        let key = (r.dev, r.txn);
        if let Some(transaction) = self.journal.end(key, h.tid, h.time_ns) {
            sink.span(commit(key, transaction));
            self.activity.commit_ended(key, h.time_ns, true);
        }
    }

    /// Fills in long operations' time sheets and forgets what nobody can wait for any more.
    fn sweep(&mut self, sink: &mut dyn Sink) {
        let many = self.activity.len() > MANY_FLIGHTS;
        let (now_ns, horizon_ns) = (self.now_ns, self.config.horizon_ns);
        let mut before_ns = now_ns;
        let mut open: Vec<u32> =
            self.threads.map.iter().filter(|(_, t)| !t.frames.is_empty()).map(|(tid, _)| *tid).collect();
        open.sort_unstable();
        for tid in open {
            let Some(thread) = self.threads.map.get_mut(&tid) else { continue };
            if many || thread.calls.len() + thread.aways.len() > 256 {
                let upto_ns = exclusive::settled(thread, now_ns, horizon_ns);
                exclusive::account(thread, upto_ns, &mut self.activity, sink);
            }
            before_ns = before_ns.min(thread.cursor_ns);
        }
        self.activity.prune(before_ns);
        if self.threads.map.len() > MANY_THREADS {
            self.forget_threads(sink);
        }
        self.inferred.prune(now_ns);
        if self.kernel_joins.len() > 4096 {
            self.kernel_joins.clear();
        }
    }

    /// Writes what is still open.
    pub(crate) fn finish(&mut self, sink: &mut dyn Sink) {
        let mut rings: Vec<Ring> = std::mem::take(&mut self.rings).into_values().collect();
        rings.sort_by_key(|r| r.span);
        rings.iter().for_each(|r| self.ring_lost(r, self.now_ns, sink));
        let mut tids: Vec<u32> = self.threads.map.keys().copied().collect();
        tids.sort_unstable();
        tids.into_iter().for_each(|tid| self.thread_ended(tid, sink));
        for (key, transaction) in self.journal.unfinished() {
            sink.span(commit(key, transaction));
        }
        let mut bios: Vec<(u64, u64)> = self.bios.iter().map(|(at, b)| (b.span, *at)).collect();
        bios.sort_unstable();
        bios.into_iter().for_each(|(_, at)| self.drop_bio(at, sink));
        let mut requests: Vec<Request> = std::mem::take(&mut self.requests).into_values().collect();
        requests.sort_by_key(|r| r.command);
        let end_ns = self.now_ns;
        requests.into_iter().for_each(|r| self.charge_open(r, end_ns, sink));
        self.losses.tell_unseen(sink);
        self.stacked.finish();
        self.settle(true, sink);
        self.names.finish(sink);
    }

    /// Entries in memory, of all kinds.
    pub(crate) fn len(&self) -> usize {
        self.losses.len()
            + self.names.len()
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
