//! State of the kernel's objects, below their users: files, transactions, disks, what is in flight. None of these trackers
//! depends on another; tasks and the block layer query and update them.

use crate::Config;
use crate::activity::Activity;
use crate::actor::{Actor, Source};
use crate::context::Context;
use crate::journal::Journal;
use crate::logs::Logs;
use crate::names::Names;
use crate::pages::Pages;
use crate::stacked::Stack;
use model::event::{CommitBegin, CommitEnd, Header};
use model::table::Span;

/// The trackers; each owns its state.
pub(crate) struct Objects {
    pub names: Names,
    pub pages: Pages,
    pub journal: Journal,
    pub logs: Logs,
    pub activity: Activity,
    pub stacked: Stack,
}

impl Objects {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            names: Names::default(),
            pages: Pages::default(),
            journal: Journal::default(),
            logs: Logs::default(),
            activity: Activity::default(),
            stacked: Stack::new(config),
        }
    }

    /// Records a change to a file system without transactions that are known by number.
    pub(crate) fn changed(&mut self, dev: u32, actor: Actor, time_ns: u64) {
        if dev != 0 && !self.journal.is_journal(dev) {
            self.logs.changed(dev, Source::Actor(actor), time_ns);
        }
    }

    /// A journal's thread began to commit.
    pub(crate) fn on_commit_begin(&mut self, h: &Header, r: &CommitBegin, cx: &mut Context<'_>) {
        let key = (r.dev, r.txn);
        if self.journal.get(key).is_some_and(|t| t.span != 0) {
            return; // The same number again: a damaged log, or a disk made anew.
        }
        // A journal's thread commits one transaction at a time: only the end of the previous commit was lost.
        if let Some(old) = self.journal.committing(h.tid)
            && let Some(transaction) = self.journal.end_unseen(old, h.tid, h.time_ns)
        {
            cx.sink.span(Span { end_ns: None, ..transaction.row(old) });
            self.activity.commit_ended(old, h.time_ns, false);
        }
        let transaction = self.journal.begin(key, h.tgid, h.tid, h.cpu, h.time_ns, cx);
        let (id, joiners) = (transaction.span, transaction.joiners.clone());
        joiners.iter().for_each(|j| j.link(id, h.time_ns, h.cpu, cx));
        self.activity.commit_began(key, id, h.time_ns);
    }

    /// The commit is on the medium.
    pub(crate) fn on_commit_end(&mut self, h: &Header, r: &CommitEnd, cx: &mut Context<'_>) {
        let key = (r.dev, r.txn);
        if let Some(transaction) = self.journal.end(key, h.tid, h.time_ns) {
            cx.sink.span(transaction.row(key));
            self.activity.commit_ended(key, h.time_ns, true);
        }
    }

    /// Writes the commits that had not ended at the end of the trace.
    pub(crate) fn finish_commits(&self, cx: &mut Context<'_>) {
        for (key, transaction) in self.journal.unfinished() {
            cx.sink.span(transaction.row(key));
        }
    }

    /// Drops what ended before `before_ns`, and what is only left because records were lost.
    pub(crate) fn prune(&mut self, before_ns: u64) {
        self.activity.prune(before_ns);
        self.journal.prune_proxies();
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
            + self.pages.len()
            + self.journal.len()
            + self.logs.len()
            + self.activity.len()
            + self.stacked.len()
    }
}
