//! Event router: dispatches each event to the trackers. No linking logic.

use crate::Config;
use crate::attribution::Attribution;
use crate::block::{BlockIo, Env};
use crate::checkpoints::Checkpoints;
use crate::context::Context;
use crate::objects::Objects;
use crate::tasks::Tasks;
use model::{Event, Record};

/// Number of events between sweeps of the state that grows with the open horizon.
const SWEEP_INTERVAL_EVENTS: u32 = 256;
/// Number of flights beyond which the time sheets of long operations are filled in before they end.
const EARLY_FILL_FLIGHTS_MIN: usize = 4096;

/// The trackers; each may query those listed before it.
pub(crate) struct Router {
    objects: Objects,
    tasks: Tasks,
    checkpoints: Checkpoints,
    block: BlockIo,
    attribution: Attribution,
    since_sweep: u32,
}

impl Router {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            objects: Objects::new(config),
            tasks: Tasks::default(),
            checkpoints: Checkpoints::default(),
            block: BlockIo::default(),
            attribution: Attribution::default(),
            since_sweep: 0,
        }
    }

    /// Notes what must be known of an event on arrival, before it is handed on in order.
    pub(crate) fn on_arrival(&mut self, event: &Event, config: &Config) {
        if let Record::File(file) = &event.record {
            self.objects.names.note_arrival(&event.header, file);
        }
        self.tasks.threads.on_arrival(event, config);
    }

    /// Dispatches an event whose turn has come.
    pub(crate) fn on_event(&mut self, event: &Event, cx: &mut Context<'_>) {
        let h = &event.header;
        let Self { objects, tasks, checkpoints, block, .. } = self;
        let threads = &mut tasks.threads;
        match &event.record {
            Record::Statement(r) => threads.on_statement(h, r, objects, cx),
            Record::OpBegin(r) => threads.on_op_begin(h, r, objects, cx),
            Record::OpCounts(r) => threads.on_op_counts(h, r),
            Record::OpEnd(r) => threads.on_op_end(h, r, objects, cx),
            Record::Mark(r) => threads.on_mark(h, r, objects, cx),
            Record::SyncBegin(r) => threads.on_sync_begin(h, r, objects, cx),
            Record::Syscall(r) => {
                threads.infer_begin(h, r, objects, cx);
                threads.on_syscall(h, r, objects, cx);
                threads.infer_end(h, r, objects, cx);
            }
            Record::File(r) => {
                if objects.names.note_name(h, r, cx.sink) {
                    objects.pages.on_removed((r.dev, r.ino));
                }
            }
            Record::OffCpu(r) => threads.on_off_cpu(h, r, cx.config),
            Record::Wait(r) => threads.on_wait(h, r, &objects.names),
            // Where a thread slept, not what for: the recorder stores it next to the rows.
            Record::Stack(_) | Record::Chain(_) => {}
            Record::Lock(r) => threads.on_lock(h, r, objects),
            Record::BioQueue(r) => block.on_bio_queue(h, r, &mut Env { tasks, objects, cx }),
            Record::BioPages(r) => block.on_bio_pages(h, r, &mut Env { tasks, objects, cx }),
            Record::BioSplit(r) => block.on_bio_split(h, r, &mut Env { tasks, objects, cx }),
            Record::BioRemap(r) => block.on_bio_remap(h, r, &mut Env { tasks, objects, cx }),
            Record::RqInsert(r) => block.on_rq_insert(h, r),
            Record::RqIssue(r) => {
                block.on_rq_issue(h, r, &mut Env { tasks, objects, cx });
                block.on_issue_of_sent(h, r, cx);
            }
            Record::RqBios(r) => block.on_rq_bios(r, &mut Env { tasks, objects, cx }),
            Record::FlushIssue(r) => block.on_flush_issue(h, r, &mut Env { tasks, objects, cx }),
            Record::RqDone(r) => block.on_rq_done(h, r, &mut Env { tasks, objects, cx }),
            Record::DriverBegin(r) => block.on_driver_begin(h, r, cx),
            Record::DriverEnd(r) => block.on_driver_end(h, r, cx),
            Record::BioDone(r) => block.on_bio_done(h, r, &mut Env { tasks, objects, cx }),
            Record::CommitBegin(r) => objects.on_commit_begin(h, r, cx),
            Record::CommitEnd(r) => objects.on_commit_end(h, r, cx),
            Record::Checkpoint(r) => checkpoints.on_checkpoint(h, r, tasks, objects, cx),
            Record::Join(r) => tasks.on_join(h, r, objects, cx),
            Record::FsWrite(r) => tasks.on_fs_write(h, r, objects, cx),
            Record::CacheAdd(r) => tasks.on_cache_add(h, r, objects, cx),
            Record::Task(r) => {
                objects.names.on_task(h, r, cx.sink);
                threads.on_task(h, r.what, objects, cx);
            }
            Record::Uring(r) => tasks.rings.on_uring(h, r, threads, objects, cx),
            // Marks are renumbered before they are pushed: see `inner`.
            Record::InnerTask(_) => {}
            Record::Loss(r) => cx.losses.add(h, r, cx.sink),
        }
        if block.has_completed() {
            block.take_completed().for_each(|command| self.attribution.add(command, cx.config));
        }
    }

    /// Handles what the passage of time decides.
    #[inline]
    pub(crate) fn on_time(&mut self, cx: &mut Context<'_>) {
        if self.attribution.is_due(cx.now_ns) {
            self.attribution.settle(false, &mut self.tasks.threads, &self.objects, cx);
        }
        self.since_sweep += 1;
        // A sweep visits every thread: the more threads, the less often it runs.
        if self.since_sweep >= SWEEP_INTERVAL_EVENTS && self.since_sweep as usize >= self.tasks.threads.count() {
            self.since_sweep = 0;
            let many = self.objects.activity.len() > EARLY_FILL_FLIGHTS_MIN;
            let before_ns = self.tasks.threads.sweep(many, &mut self.objects, cx);
            self.objects.prune(before_ns);
            self.tasks.threads.forget_dead(&mut self.objects, cx);
        }
    }

    /// Writes what is still open.
    pub(crate) fn finish(&mut self, cx: &mut Context<'_>) {
        let Self { objects, tasks, block, attribution, .. } = self;
        tasks.rings.finish(&mut tasks.threads, objects, cx);
        tasks.threads.finish(objects, cx);
        objects.finish_commits(cx);
        block.finish(&mut Env { tasks, objects, cx });
        block.take_completed().for_each(|command| attribution.add(command, cx.config));
        cx.losses.put_unseen(cx.sink);
        objects.stacked.finish();
        attribution.settle(true, &mut tasks.threads, objects, cx);
        objects.names.finish(cx.sink);
    }

    pub(crate) fn check_invariants(&self) {
        self.objects.journal.check_invariants();
        self.block.check_invariants();
        self.attribution.check_invariants();
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len() + self.tasks.len() + self.checkpoints.len() + self.block.len() + self.attribution.len()
    }
}
