//! Commits of file systems without jbd2: btrfs's transactions, f2fs's checkpoints, the checkpoints of XFS's log.
//!
//! It is not known whose changes such a commit holds, but some file systems report who asks for one, and when it is on the
//! medium. A call that asked for this commit or an earlier one, and is still under way when it ends, has waited for it. An f2fs
//! fsync reports only on return that it needed a commit: it was the one that ended last.
//!
//! *Uncertainty*: a call that asked waits itself (`structural`), as does one whose own thread wrote the checkpoint. Which
//! commit an f2fs fsync waited for is inferred (`interval`). Who waits for a btrfs commit that another thread carries out
//! is unknown. A commit that no call asked for has no known begin: it has no duration.

use crate::context::{Context, span};
use crate::hash::FastMap;
use crate::loss::Window;
use crate::objects::Objects;
use crate::tasks::Tasks;
use model::event::{Checkpoint, Header};
use model::table::Span;
use model::{Confidence, Layer, Relation, SpanKind};
use std::borrow::Cow;

/// Maximum number of askers kept per file system; beyond it the oldest are dropped.
const REQUESTERS_MAX: usize = 1024;
/// Maximum number of file systems.
const FILE_SYSTEMS_MAX: usize = 1024;

/// A caller that asked for a commit.
#[derive(Debug, Clone, Copy)]
struct CommitRequester {
    number: u64,
    time_ns: u64,
    cpu: u16,
    tgid: u32,
    tid: u32,
    /// The call or the ring's request that it is in; 0: none.
    call_ns: u64,
    span: u64,
}

/// The commit that ended last.
#[derive(Debug)]
struct LastCommit {
    span: u64,
    end_ns: u64,
    cpu: u16,
    /// The spans that are known to have waited for it.
    waited: Vec<u64>,
}

/// State of one file system.
#[derive(Debug, Default)]
struct FsCommits {
    requesters: Vec<CommitRequester>,
    last_commit: Option<LastCommit>,
}

/// All such file systems.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    by_dev: FastMap<u32, FsCommits>,
}

impl Checkpoints {
    fn commits_of(&mut self, dev: u32) -> &mut FsCommits {
        if self.by_dev.len() >= FILE_SYSTEMS_MAX && !self.by_dev.contains_key(&dev) {
            self.by_dev.clear();
        }
        self.by_dev.entry(dev).or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_dev
            .values()
            .map(|p| 1 + p.requesters.len() + p.last_commit.as_ref().map_or(0, |a| a.waited.len()))
            .sum()
    }
}

impl CommitRequester {
    fn new(header: &Header, record: &Checkpoint, span: u64) -> Self {
        Self {
            number: record.number,
            time_ns: header.time_ns,
            cpu: header.cpu,
            tgid: header.tgid,
            tid: header.tid,
            call_ns: record.syscall_ns,
            span,
        }
    }
}

impl Checkpoints {
    /// A file system is writing its log to the medium.
    pub(crate) fn on_checkpoint(
        &mut self,
        header: &Header,
        record: &Checkpoint,
        tasks: &mut Tasks,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let asker = if record.syscall_ns == 0 {
            0
        } else {
            tasks.issuer(header, record.ctx, record.syscall_ns, objects, cx).span
        };
        match record.phase {
            0 => {
                objects.journal.mark_asked(record.dev, asker);
                let askers = &mut self.commits_of(record.dev).requesters;
                if askers.len() >= REQUESTERS_MAX {
                    askers.remove(0);
                }
                askers.push(CommitRequester::new(header, record, asker));
            }
            1 => self.on_commit_done(header, record, asker, tasks, objects, cx),
            _ => {
                self.on_call_end(header, record.dev, asker, tasks, cx);
                put_needed(header, record, asker, tasks, cx);
            }
        }
    }

    /// A commit is on the medium. `own`: the call whose thread carried it out; 0: none.
    fn on_commit_done(
        &mut self,
        header: &Header,
        record: &Checkpoint,
        own: u64,
        tasks: &mut Tasks,
        objects: &mut Objects,
        cx: &mut Context<'_>,
    ) {
        let askers = &mut self.commits_of(record.dev).requesters;
        // A commit on the medium includes all before it.
        let (mut waited, later): (Vec<_>, Vec<_>) = askers.drain(..).partition(|a| a.number <= record.number);
        *askers = later;
        let last_ns = waited.iter().map(|a| a.time_ns).max();
        waited.retain(|a| a.span != 0 && self.is_under_way(a, header.time_ns, tasks));
        if own != 0 && !waited.iter().any(|a| a.span == own) {
            waited.push(CommitRequester::new(header, record, own));
        }
        waited.sort_unstable_by_key(|a| (a.span, a.time_ns));
        waited.dedup_by_key(|a| a.span);
        let begin_ns = waited.iter().map(|a| a.time_ns).min().or(last_ns).unwrap_or(header.time_ns).min(header.time_ns);
        let id = cx.new_span();
        for asker in &waited {
            let window = Window { start_ns: asker.time_ns, end_ns: header.time_ns, cpus: [asker.cpu, header.cpu] };
            cx.link(asker.span, id, Relation::WaitsForLog, Confidence::Structural, window);
        }
        cx.sink.span(Span {
            end_ns: Some(header.time_ns),
            disk: Some(cx.config.disk_of(record.dev)),
            number: Some(record.number),
            ..span(id, Layer::FileSystem, "commit", begin_ns, header.tgid, header.tid)
        });
        objects.activity.commit_took((record.dev, record.number as u32), id, begin_ns, header.time_ns);
        let waited = waited.into_iter().map(|a| a.span).collect();
        let arrived = LastCommit { span: id, end_ns: header.time_ns, cpu: header.cpu, waited };
        self.commits_of(record.dev).last_commit = Some(arrived);
    }

    /// A call that needed a commit returns.
    fn on_call_end(&mut self, header: &Header, dev: u32, call: u64, tasks: &Tasks, cx: &mut Context<'_>) {
        let start_ns = tasks.threads.call(header.tid).map_or(u64::MAX, |c| c.start_ns);
        let Some(arrived) = self.commits_of(dev).last_commit.as_mut() else { return };
        if call == 0 || arrived.end_ns < start_ns || arrived.waited.contains(&call) {
            return;
        }
        if arrived.waited.len() < REQUESTERS_MAX {
            arrived.waited.push(call);
        }
        let (commit, cpus) = (arrived.span, [header.cpu, arrived.cpu]);
        let window = Window { start_ns, end_ns: header.time_ns, cpus };
        cx.link(call, commit, Relation::WaitsForLog, Confidence::Interval, window);
    }

    /// Whether the asking call had not returned by then.
    fn is_under_way(&self, asker: &CommitRequester, time_ns: u64, tasks: &Tasks) -> bool {
        let call = tasks.threads.call(asker.tid);
        call.is_some_and(|c| [c.span, c.fs_span].contains(&asker.span) && c.end_ns > time_ns)
            || tasks.rings.get(asker.tgid, asker.call_ns).is_some()
    }
}

/// A returning call reported that it needed a checkpoint, and why: a point in time with its own span, since the call's
/// spans are already written.
fn put_needed(header: &Header, record: &Checkpoint, call: u64, tasks: &mut Tasks, cx: &mut Context<'_>) {
    let reason = usize::try_from(record.number).ok().and_then(|n| model::CHECKPOINT_REASONS.get(n.checked_sub(1)?));
    let (Some(reason), true) = (reason, call != 0) else { return };
    let known = tasks.threads.call(header.tid).filter(|c| [c.span, c.fs_span].contains(&call));
    let operation = known.map(|c| tasks.threads.settled(c.actor).operation).filter(|id| *id != 0);
    let (id, start_ns) = (cx.new_span(), known.map_or(header.time_ns, |c| c.start_ns));
    let row = Span {
        end_ns: Some(header.time_ns),
        operation,
        disk: Some(cx.config.disk_of(record.dev)),
        number: Some(record.number),
        flags: Cow::Borrowed(reason.name),
        ..span(id, Layer::FileSystem, SpanKind::CheckpointNeeded.name(), header.time_ns, header.tgid, header.tid)
    };
    tasks.threads.put_span(header.tid, row, cx);
    let window = Window { start_ns, end_ns: header.time_ns, cpus: [header.cpu; 2] };
    cx.link(call, id, Relation::Calls, Confidence::Structural, window);
}
