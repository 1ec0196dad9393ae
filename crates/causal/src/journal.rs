//! Transactions of a journal: who joined, who waited, and which transaction last logged each metadata block.
//!
//! A task that changes metadata joins the running transaction by a *handle* (a call may start several). The journal's
//! thread commits the transaction, and each journal block that it writes is shared among the joiners, by their handles;
//! kernel threads that work for others pay nothing (see `attribution`). An fsync waits until the commit ends; the cache
//! flushes, which the commit issues only for its waiters, are charged to them. Later a *checkpoint*, by any thread, writes
//! each metadata block to its home location; it is charged to the transaction that last logged the block.
//!
//! *Uncertainty*: the kernel does not report which fsync waits for which commit. An fsync waits if it is under way when the
//! commit ends, unless its inode is known to belong to another transaction (ext4's `i_sync_tid` holds that, but no
//! tracepoint exposes it; the handles of earlier calls on the inode stand in for it). Handles have equal weight, although
//! one may log more blocks than another. A commit whose end was lost is known to have ended when its journal's thread began
//! the next one; who waited for it is a guess.

use crate::actor::{Actor, Source, TxnKey};
use crate::context::{Context, span};
use crate::hash::FastMap;
use crate::loss::Window;
use model::table::Span;
use model::{Confidence, Layer, Relation};
use std::collections::VecDeque;

/// Number of transactions kept after their end, for checkpoints. jbd2 checkpoints long before that many commits.
const TRANSACTIONS_MAX: usize = 4096;
/// Maximum number of members kept in total.
const MEMBERS_MAX: usize = 1 << 18;
/// Number of home blocks kept: 256 MiB of metadata.
const HOMES_MAX: usize = 1 << 16;
/// Number of waits kept per file system.
const SYNCS_MAX: usize = 4096;
/// Number of kernel threads kept that joined for others.
const PROXIES_MAX: usize = 4096;

/// A member of a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joiner {
    pub source: Source,
    /// The span that held the handles; 0: none.
    pub span: u64,
    pub handles: f64,
    pub confidence: Confidence,
    pub time_ns: u64,
    pub cpu: u16,
}

impl Joiner {
    /// Links it to its commit.
    pub(crate) fn link(&self, commit: u64, begin_ns: u64, cpu: u16, cx: &mut Context<'_>) {
        let window = Window { start_ns: self.time_ns, end_ns: begin_ns, cpus: [self.cpu, cpu] };
        cx.link(self.span, commit, Relation::JoinsTransaction, self.confidence, window);
    }
}

/// A task that waited for the commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter {
    pub source: Source,
    pub span: u64,
    pub confidence: Confidence,
}

#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// The commit's span; 0: it has not begun.
    pub span: u64,
    pub begin_ns: u64,
    pub end_ns: Option<u64>,
    /// Its end was lost: `end_ns` is only the latest time at which it can have ended.
    pub end_unseen: bool,
    pub tgid: u32,
    pub tid: u32,
    pub cpu: u16,
    pub joiners: Vec<Joiner>,
    pub waiters: Vec<Waiter>,
}

impl Transaction {
    /// Whether its commit began and has no end yet.
    fn is_unfinished(&self) -> bool {
        self.span != 0 && self.end_ns.is_none()
    }

    /// Its commit's row.
    pub(crate) fn row(&self, key: TxnKey) -> Span {
        Span {
            end_ns: self.end_ns,
            disk: Some(key.0),
            number: Some(key.1.into()),
            ..span(self.span, Layer::FileSystem, "commit", self.begin_ns, self.tgid, self.tid)
        }
    }
}

/// A call (or a flush command of a loop disk) that waits for the medium.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SyncWait {
    pub tid: u32,
    pub start_ns: u64,
    /// `u64::MAX`: not known yet.
    pub end_ns: u64,
    pub ino: u64,
    pub source: Source,
    pub span: u64,
    /// The transaction its inode was last seen to join; 0: not known.
    pub expects: u32,
    /// It asked the file system to write its log.
    pub asked: bool,
    pub confidence: Confidence,
}

#[derive(Default)]
pub(crate) struct Journal {
    transactions: FastMap<TxnKey, Transaction>,
    order: VecDeque<TxnKey>,
    members: usize,
    homes: FastMap<(u32, u64), TxnKey>,
    homes_order: VecDeque<(u32, u64)>,
    /// The journal's threads inside a commit.
    committing: FastMap<u32, TxnKey>,
    syncs: FastMap<u32, Vec<SyncWait>>,
    inodes: FastMap<(u32, u64), u32>,
    /// Newest transaction seen on each disk.
    newest: FastMap<u32, u32>,
    /// Kernel threads that joined a transaction for what they will write next, and their place in it.
    proxies: FastMap<u32, (TxnKey, usize)>,
}

impl Journal {
    fn transaction(&mut self, key: TxnKey) -> &mut Transaction {
        if !self.transactions.contains_key(&key) {
            self.order.push_back(key);
            let newest = self.newest.entry(key.0).or_default();
            *newest = (*newest).max(key.1);
        }
        self.transactions.entry(key).or_default()
    }

    /// Returns a transaction, if it is still kept.
    pub(crate) fn get(&self, key: TxnKey) -> Option<&Transaction> {
        self.transactions.get(&key)
    }

    /// Whether this disk is known to hold a journal.
    pub(crate) fn is_journal(&self, dev: u32) -> bool {
        self.newest.contains_key(&dev)
    }

    /// Returns the newest transaction of a disk: the running one, or the one being committed.
    pub(crate) fn newest(&self, dev: u32) -> Option<TxnKey> {
        self.newest.get(&dev).map(|txn| (dev, *txn))
    }

    /// Adds a member; if the commit has begun, it is linked here, otherwise when it begins. `ino`: the inode on whose
    /// behalf it joined, 0 if not known. Returns the member's place.
    pub(crate) fn join(&mut self, key: TxnKey, ino: u64, joiner: Joiner, cx: &mut Context<'_>) -> usize {
        if ino != 0 {
            if self.inodes.len() >= HOMES_MAX {
                let newest = &self.newest;
                self.inodes.retain(|k, txn| newest.get(&k.0).is_some_and(|n| n.saturating_sub(*txn) < 16));
                // All of them are recent: no criterion to choose by, so start over.
                if self.inodes.len() >= HOMES_MAX {
                    self.inodes.clear();
                }
            }
            let last = self.inodes.entry((key.0, ino)).or_default();
            *last = (*last).max(key.1);
        }
        self.members += 1;
        let joiners = &mut self.transaction(key).joiners;
        joiners.push(joiner);
        let place = joiners.len() - 1;
        self.prune(key, cx);
        if let Some((span, begin_ns, cpu)) = self.get(key).map(|t| (t.span, t.begin_ns, t.cpu)) {
            joiner.link(span, begin_ns, cpu, cx);
        }
        place
    }

    /// Replaces a member that turned out to have acted for others (a writeback thread for those who dirtied the pages).
    pub(crate) fn replace(
        &mut self,
        key: TxnKey,
        place: usize,
        mut with: impl Iterator<Item = Joiner>,
        cx: &mut Context<'_>,
    ) {
        let Some(joiners) = self.transactions.get_mut(&key).map(|t| &mut t.joiners) else { return };
        if place >= joiners.len() {
            return;
        }
        let before = joiners.len();
        if let Some(first) = with.next() {
            joiners[place] = first;
            joiners.extend(with);
        }
        self.members += joiners.len() - before;
        self.prune(key, cx);
    }

    /// Records that a kernel thread joined for what it will write next.
    pub(crate) fn joined_as_proxy(&mut self, tid: u32, key: TxnKey, place: usize) {
        self.proxies.insert(tid, (key, place));
    }

    /// Takes the transaction that the kernel thread joined last, if the task that it works for is still unknown.
    pub(crate) fn take_proxy(&mut self, tid: u32) -> Option<(TxnKey, usize)> {
        self.proxies.remove(&tid)
    }

    /// Limits the proxies: most are identified at once; the others must not accumulate over the trace.
    pub(crate) fn prune_proxies(&mut self) {
        if self.proxies.len() > PROXIES_MAX {
            self.proxies.clear();
        }
    }

    /// Records that the journal's thread `tid` began to commit.
    pub(crate) fn begin(
        &mut self,
        key: TxnKey,
        tgid: u32,
        tid: u32,
        cpu: u16,
        time_ns: u64,
        cx: &mut Context<'_>,
    ) -> &Transaction {
        let span = cx.new_span();
        self.committing.insert(tid, key);
        let transaction = self.transaction(key);
        *transaction = Transaction {
            span,
            begin_ns: time_ns,
            tgid,
            tid,
            cpu,
            joiners: std::mem::take(&mut transaction.joiners),
            ..Transaction::default()
        };
        self.prune(key, cx);
        &self.transactions[&key]
    }

    /// Ends the commit and determines who waited for it.
    pub(crate) fn end(&mut self, key: TxnKey, tid: u32, time_ns: u64) -> Option<&Transaction> {
        self.end_commit(key, tid, time_ns, |s, _| (s.end_ns > time_ns).then_some(s.confidence))
    }

    /// Ends a commit whose end was not seen, before `by_ns`. Who waited for it is a guess: those whose wait ended since it
    /// began, and those known to wait for this transaction, since they return only some time after its end.
    pub(crate) fn end_unseen(&mut self, key: TxnKey, tid: u32, by_ns: u64) -> Option<&Transaction> {
        self.transactions.get_mut(&key).filter(|t| t.end_ns.is_none())?.end_unseen = true;
        self.end_commit(key, tid, by_ns, |s, begin_ns| {
            let waited = begin_ns < s.end_ns && (s.end_ns <= by_ns || s.expects == key.1);
            waited.then_some(Confidence::Guess)
        })
    }

    /// `waited`: given when the commit began, decides whether a task that was waiting by then waited for it, and with which
    /// confidence.
    fn end_commit(
        &mut self,
        key: TxnKey,
        tid: u32,
        time_ns: u64,
        waited: impl Fn(&SyncWait, u64) -> Option<Confidence>,
    ) -> Option<&Transaction> {
        self.committing.remove(&tid);
        let transaction = self.transactions.get_mut(&key)?;
        if transaction.end_ns.is_some() || transaction.span == 0 {
            return None;
        }
        transaction.end_ns = Some(time_ns.max(transaction.begin_ns));
        let syncs = self.syncs.entry(key.0).or_default();
        let begin_ns = transaction.begin_ns;
        transaction.waiters = syncs
            .iter()
            .filter(|s| s.start_ns <= time_ns && (s.expects == 0 || s.expects == key.1))
            .filter_map(|s| Some(Waiter { source: s.source, span: s.span, confidence: waited(s, begin_ns)? }))
            .collect();
        syncs.retain(|s| s.end_ns > time_ns);
        self.members -= add_up(&mut transaction.joiners);
        Some(transaction)
    }

    /// Returns who waits for the medium at `time_ns`, on file systems that `here` accepts.
    pub(crate) fn waiting_syncs(&self, time_ns: u64, here: impl Fn(u32) -> bool) -> Vec<SyncWait> {
        let mut all: Vec<SyncWait> = self
            .syncs
            .iter()
            .filter(|(dev, _)| here(**dev))
            .flat_map(|(_, syncs)| syncs)
            .filter(|s| s.start_ns <= time_ns && s.end_ns > time_ns)
            .copied()
            .collect();
        all.sort_unstable_by_key(|s| s.span);
        all
    }

    /// Returns the commit that the thread is in.
    pub(crate) fn committing(&self, tid: u32) -> Option<TxnKey> {
        self.committing.get(&tid).copied()
    }

    /// Returns the disk of a journal whose newest transaction is about `txn`, for a call whose file system is not known.
    pub(crate) fn disk_of(&self, txn: u32) -> Option<u32> {
        let mut near = self.newest.iter().filter(|(_, n)| n.abs_diff(txn) <= 2).map(|(d, _)| *d);
        let first = near.next();
        // Two journals at the same count cannot be distinguished.
        if near.next().is_some() { None } else { first }
    }

    /// Adds a call that begins to wait for the medium, or updates a known one.
    pub(crate) fn add_sync(&mut self, dev: u32, now_ns: u64, sync: SyncWait) {
        let known = self.inodes.get(&(dev, sync.ino)).copied().unwrap_or(0);
        let syncs = self.syncs.entry(dev).or_default();
        match syncs.iter_mut().find(|s| s.tid == sync.tid && s.span == sync.span) {
            Some(old) => *old = SyncWait { expects: old.expects.max(sync.expects), asked: old.asked, ..sync },
            None => {
                if syncs.len() >= 64 {
                    syncs.retain(|s| s.end_ns > now_ns);
                }
                // A wait whose end was lost would otherwise stay forever.
                if syncs.len() >= SYNCS_MAX {
                    syncs.remove(0);
                }
                syncs.push(SyncWait { expects: sync.expects.max(known), ..sync });
            }
        }
    }

    /// Records that the wait of `span` ended.
    pub(crate) fn sync_ended(&mut self, dev: u32, span: u64, end_ns: u64) {
        if let Some(sync) = self.syncs.get_mut(&dev).and_then(|s| s.iter_mut().find(|s| s.span == span)) {
            sync.end_ns = end_ns;
        }
    }

    /// Records that the wait of `span` is for the log.
    pub(crate) fn mark_asked(&mut self, dev: u32, span: u64) {
        if let Some(sync) = self.syncs.get_mut(&dev).and_then(|s| s.iter_mut().find(|s| s.span == span)) {
            sync.asked = true;
        }
    }

    /// Records a handle taken inside a wait: the wait is for that transaction.
    pub(crate) fn expect_transaction(&mut self, dev: u32, span: u64, txn: u32) {
        if let Some(sync) = self.syncs.get_mut(&dev).and_then(|s| s.iter_mut().find(|s| s.span == span)) {
            sync.expects = sync.expects.max(txn);
        }
    }

    /// Records that the journal logged the metadata block whose home is page `index` of disk `dev`.
    pub(crate) fn record_home(&mut self, dev: u32, index: u64, pages: u32, key: TxnKey) {
        // A journal bio carries one block; a damaged record must not cost 4 billion entries.
        for page in index..index.saturating_add(pages.clamp(1, 256).into()) {
            if self.homes.insert((dev, page), key).is_none() {
                self.homes_order.push_back((dev, page));
            }
        }
        while self.homes.len() > HOMES_MAX {
            let Some(old) = self.homes_order.pop_front() else { break };
            self.homes.remove(&old);
        }
    }

    /// Returns the transaction that last logged a metadata block.
    pub(crate) fn last_logged(&self, dev: u32, index: u64) -> Option<TxnKey> {
        self.homes.get(&(dev, index)).copied()
    }

    /// Returns the commits without an end, at the end of the trace, oldest first.
    pub(crate) fn unfinished(&self) -> Vec<(TxnKey, &Transaction)> {
        let mut all: Vec<_> =
            self.transactions.iter().filter(|(_, t)| t.is_unfinished()).map(|(k, t)| (*k, t)).collect();
        all.sort_by_key(|(_, t)| t.span);
        all
    }

    /// Forgets the oldest transactions beyond the bounds, except the one `in_use`. A commit that has not ended gets its row, since links
    /// may name it.
    fn prune(&mut self, in_use: TxnKey, cx: &mut Context<'_>) {
        while self.order.len() > TRANSACTIONS_MAX || (self.members > MEMBERS_MAX && self.order.len() > 2) {
            let oldest = usize::from(self.order.front() == Some(&in_use));
            let Some(old) = self.order.remove(oldest) else { break };
            let Some(gone) = self.transactions.remove(&old) else { continue };
            self.members -= gone.joiners.len();
            if gone.is_unfinished() {
                cx.sink.span(gone.row(old));
            }
        }
        assert!(self.order.len() <= TRANSACTIONS_MAX && self.transactions.len() == self.order.len());
    }

    /// Panics if what is counted or listed twice does not agree.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.order.len(), self.transactions.len(), "a transaction is not listed by age");
        assert!(self.order.iter().all(|key| self.transactions.contains_key(key)), "a transaction is listed twice");
        assert!(self.order.len() <= TRANSACTIONS_MAX);
        assert_eq!(self.members, self.transactions.values().map(|t| t.joiners.len()).sum::<usize>());
        assert!(self.members <= MEMBERS_MAX || self.order.len() <= 2, "{} members", self.members);
        for (key, t) in &self.transactions {
            let newest = self.newest.get(&key.0).copied();
            assert!(newest.is_some_and(|newest| newest >= key.1), "{key:?} is newer than {newest:?}");
            assert!(t.joiners.iter().all(|j| j.handles.is_finite() && j.handles >= 0.0), "{key:?}: {:?}", t.joiners);
            assert!(t.end_ns.is_none_or(|end_ns| t.span != 0 && end_ns >= t.begin_ns), "{key:?}: {t:?}");
            assert!(t.end_ns.is_some() || t.waiters.is_empty() && !t.end_unseen, "{key:?} has not ended: {t:?}");
        }
        assert!(self.homes.len() <= HOMES_MAX && self.homes_order.len() == self.homes.len());
        assert!(self.inodes.len() <= HOMES_MAX);
        assert!(self.syncs.values().all(|syncs| syncs.len() <= SYNCS_MAX));
    }

    pub(crate) fn len(&self) -> usize {
        self.members
            + self.transactions.values().map(|t| 1 + t.waiters.len()).sum::<usize>()
            + self.homes.len()
            + self.inodes.len()
            + self.syncs.values().map(Vec::len).sum::<usize>()
            + self.proxies.len()
    }
}

/// Combines members that will be charged together; returns by how many their number decreases. After the end of the commit
/// only their identities and handles matter. Kernel threads whose principal may still become known are referred to by their
/// place, so then all stay.
fn add_up(joiners: &mut Vec<Joiner>) -> usize {
    if joiners.iter().any(|j| j.source == Source::Actor(Actor::UNATTRIBUTED)) {
        return 0;
    }
    let before = joiners.len();
    joiners.dedup_by(|next, first| {
        let same = (next.source, next.confidence) == (first.source, first.confidence);
        if same {
            first.handles += next.handles;
        }
        same
    });
    joiners.shrink_to_fit();
    before - joiners.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SharedState;
    use crate::text::Rows;
    use model::Origin;

    fn joiner(tgid: u32) -> Joiner {
        Joiner {
            source: Source::Actor(Actor::process(Origin::Process, tgid)),
            span: 0,
            handles: 1.0,
            confidence: Confidence::Structural,
            time_ns: 1,
            cpu: 0,
        }
    }

    /// A journal with three transactions, the oldest of which has as many members as are kept in total.
    fn full_journal(cx: &mut Context<'_>) -> Journal {
        let mut journal = Journal::default();
        for txn in 1..=3 {
            journal.join((1, txn), 0, joiner(txn), cx);
        }
        journal.replace((1, 1), 0, (0..MEMBERS_MAX as u32).map(joiner), cx);
        journal.check_invariants();
        journal
    }

    #[test]
    fn a_transaction_in_use_is_not_forgotten() {
        let mut shared = SharedState::new(crate::Config::default());
        let mut rows = Rows::default();
        let cx = &mut shared.context(&mut rows);
        let oldest = (1, 1);

        let mut journal = full_journal(cx);
        assert_eq!(journal.begin(oldest, 5, 5, 0, 10, cx).joiners.len(), MEMBERS_MAX);
        journal.check_invariants();

        let mut journal = full_journal(cx);
        let place = journal.join(oldest, 0, joiner(9), cx);
        assert_eq!(journal.get(oldest).map(|t| t.joiners.len()), Some(place + 1));
        journal.check_invariants();
    }

    #[test]
    fn a_forgotten_commit_without_an_end_has_a_row() {
        let mut shared = SharedState::new(crate::Config::default());
        let mut rows = Rows::default();
        let cx = &mut shared.context(&mut rows);
        let mut journal = Journal::default();
        let begun = TRANSACTIONS_MAX as u32 + 10;
        for txn in 1..=begun {
            journal.begin((1, txn), txn, txn, 0, u64::from(txn), cx);
        }
        journal.check_invariants();
        let kept = journal.unfinished().len();
        assert_eq!((kept, rows.spans.len()), (TRANSACTIONS_MAX, 10));
    }
}
