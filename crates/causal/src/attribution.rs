//! Causes: who a completed command is charged to, and how much of it.
//!
//! Most charges name an actor at once; others name a transaction whose commit is still under way, a command of a disk above
//! that is still open, or a mark that may yet turn out not to be an operation. A command is settled one horizon after its
//! completion, when every record about it has arrived, and only once everything that its charges name is known. Then the
//! charges are summed per actor and divided by their total, so that the shares of a command sum to 1; what no charge
//! explains is `unattributed`, a share like any other.
//!
//! A kernel thread's handle in a transaction, unless the pages or the command it worked for are known, is assumed to be
//! held for others that are in the transaction themselves: it is a *proxy* (Yang et al., SOSP'15) and is not charged.
//!
//! *Uncertainty*: a proxy may have worked for only some of those that are charged; a commit with only proxies stays
//! unattributed. A commit whose end was lost would keep commands open forever; after [`LOST_TIMEOUT_NS`] they are settled with
//! what is known. The confidence of a share is that of the weakest link of its chain.

use crate::Config;
use crate::actor::{Actor, Charge, Source, is_near};
use crate::context::Context;
use crate::hash::FastMap;
use crate::loss::Window;
use crate::objects::Objects;
use crate::threads::Threads;
use model::table::Cause;
use model::{Confidence, Origin, Relation};
use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

/// A commit or an upper command that is still open after this time is considered lost; a mark is then an operation.
const LOST_TIMEOUT_NS: u64 = 30_000_000_000;
/// Maximum number of commands of upper disks whose causes are kept, for later writebacks below.
const OUTCOMES_MAX: usize = 1 << 16;
/// Maximum depth of disks on files on disks: deeper stacks are a loop in a damaged log.
const STACK_DEPTH_MAX: u32 = 8;

/// A completed command that is not settled yet.
#[derive(Debug)]
pub(crate) struct PendingCommand {
    pub due_ns: u64,
    pub command: u64,
    pub issue_ns: u64,
    pub done_ns: u64,
    pub cpu: u16,
    /// The expected sum of the charges: bytes, or the waiters of a flush.
    pub expected_weight: f64,
    pub flush: bool,
    /// The command is one of a disk on a file.
    pub on_file: bool,
    pub charges: Vec<Charge>,
}

/// The commands that are not settled yet, and the results of those that others wait for.
#[derive(Debug, Default)]
pub(crate) struct Attribution {
    /// In the order in which they fall due, which is the order of arrival: the clock never goes back, and each waits for
    /// one horizon.
    due: VecDeque<PendingCommand>,
    /// Those of disks on files, which commands below wait for.
    pending_on_file: BTreeSet<u64>,
    /// The causes of such commands that are settled.
    outcomes: FastMap<u64, Vec<Share>>,
    outcomes_order: VecDeque<u64>,
    /// The flushes that commits in groups may share, by their ends, until they are settled or known to wait for something that later
    /// flushes may settle: each covers what no earlier one did.
    in_turn: BTreeSet<(u64, u64)>,
    /// The latest end of a flush that was shared.
    shared_ns: u64,
    /// Kept to reuse their memory.
    shares: Vec<Share>,
    waits: Vec<(u64, Confidence)>,
}

/// A part of a command, as a fraction of it once all its parts are known.
#[derive(Debug, Clone, Copy)]
struct Share {
    actor: Actor,
    share: f64,
    confidence: Confidence,
    via: &'static str,
    /// It was already divided among those whom the actor's commit led.
    divided: bool,
}

/// Why a command cannot be settled yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// The journal's commit is under way, or its records are.
    Commit,
    /// A command above is not settled, or a mark may not be an operation.
    Other,
}

impl Attribution {
    /// Adds a completed command.
    pub(crate) fn add(&mut self, pending: PendingCommand, config: &Config) {
        debug_assert!(pending.charges.iter().all(Charge::is_valid), "{pending:?}");
        if pending.on_file {
            assert!(self.pending_on_file.insert(pending.command), "command {} ended twice", pending.command);
        }
        if pending.flush && !config.group_commits.is_empty() {
            self.in_turn.insert((pending.done_ns, pending.command));
        }
        self.push(pending);
    }

    /// Appends a command, which falls due no earlier than the one before it.
    fn push(&mut self, mut pending: PendingCommand) {
        pending.due_ns = self.due.back().map_or(0, |last| last.due_ns).max(pending.due_ns);
        self.due.push_back(pending);
    }

    /// Panics if what waits and what is settled do not agree.
    pub(crate) fn check_invariants(&self) {
        assert!(self.due.iter().is_sorted_by_key(|p| p.due_ns), "a command falls due before an earlier one");
        let mut waiting = BTreeSet::new();
        for p in &self.due {
            assert!(waiting.insert(p.command), "command {} waits twice", p.command);
            assert!(p.done_ns >= p.issue_ns && p.expected_weight.is_finite(), "{p:?}");
            assert!(p.charges.iter().all(Charge::is_valid), "{p:?}");
            assert_eq!(p.on_file, self.pending_on_file.contains(&p.command), "{p:?}");
            assert!(!self.outcomes.contains_key(&p.command), "command {} is settled and waits", p.command);
        }
        assert!(self.pending_on_file.is_subset(&waiting), "a command that is awaited does not wait");
        assert!(self.in_turn.iter().all(|(_, command)| waiting.contains(command)), "a settled flush blocks later ones");
        assert_eq!(self.outcomes.len(), self.outcomes_order.len());
        assert!(self.outcomes.len() <= OUTCOMES_MAX);
    }

    /// Whether a command is due.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.due.front().is_some_and(|p| p.due_ns <= now_ns)
    }

    /// Settles the commands that are due; at the `end`, all of them.
    pub(crate) fn settle(&mut self, end: bool, threads: &mut Threads, objects: &Objects, cx: &mut Context<'_>) {
        if end && !self.in_turn.is_empty() {
            self.due.make_contiguous().sort_by_key(|p| p.done_ns);
        }
        let mut attempts_left = self.due.len().saturating_mul(STACK_DEPTH_MAX as usize);
        let now_ns = cx.now_ns;
        // Once each: at the end of the clock, everything is due again at once.
        let mut tries_left = if end { usize::MAX } else { self.due.len() };
        while let Some(mut pending) = self.due.pop_front_if(|p| tries_left > 0 && (end || p.due_ns <= now_ns)) {
            tries_left -= 1;
            let is_forced = now_ns > pending.done_ns.saturating_add(LOST_TIMEOUT_NS) || (end && attempts_left == 0);
            attempts_left = attempts_left.saturating_sub(1);
            let turn = (pending.done_ns, pending.command);
            let early = !is_forced && self.in_turn.contains(&turn) && self.in_turn.first() != Some(&turn);
            let result = if early {
                Err(Unknown::Commit)
            } else {
                self.settle_one(&pending, (end, is_forced), threads, objects, cx)
            };
            if result != Err(Unknown::Commit) {
                self.in_turn.remove(&turn);
            }
            if result.is_err() {
                pending.due_ns = now_ns.saturating_add(cx.config.horizon_ns.max(1));
                self.push(pending);
            } else if pending.on_file {
                assert!(self.pending_on_file.remove(&pending.command), "command {} settled twice", pending.command);
            }
        }
    }

    /// `end`: nothing more will become known about commits. `force`: nor about commands above and marks.
    fn settle_one(
        &mut self,
        pending: &PendingCommand,
        (end, force): (bool, bool),
        threads: &mut Threads,
        objects: &Objects,
        cx: &mut Context<'_>,
    ) -> Result<(), Unknown> {
        let (mut shares, mut waits) = (std::mem::take(&mut self.shares), std::mem::take(&mut self.waits));
        shares.clear();
        waits.clear();
        let (now_ns, horizon_ns) = (cx.now_ns, cx.config.horizon_ns);
        let (commits, all) = (end || force, force);
        let mut settlement = Settlement {
            attribution: self,
            threads,
            objects,
            now_ns,
            horizon_ns,
            commits_are_final: commits,
            all_is_final: all,
            shares,
            waits,
        };
        let known = pending.charges.iter().try_for_each(|c| settlement.resolve(c, 0));
        Settlement { shares, waits, .. } = settlement;
        if known.is_ok() {
            self.write_causes(pending, (&mut shares, &mut waits), threads, objects, cx);
        }
        (self.shares, self.waits) = (shares, waits);
        known
    }

    /// Writes the causes of a command whose charges are all known, and who waited for it.
    fn write_causes(
        &mut self,
        pending: &PendingCommand,
        (shares, waits): (&mut Vec<Share>, &mut Vec<(u64, Confidence)>),
        threads: &mut Threads,
        objects: &Objects,
        cx: &mut Context<'_>,
    ) {
        let charged: f64 = pending.charges.iter().map(|c| c.weight).sum();
        let resolved: f64 = shares.iter().map(|s| s.share).sum();
        debug_assert!((resolved - charged).abs() <= 1e-6 * charged, "{charged} became {resolved}: {pending:?}");
        if charged < pending.expected_weight * (1.0 - 1e-9) || charged <= 0.0 {
            let left = if charged <= 0.0 { 1.0 } else { pending.expected_weight - charged };
            let via = if pending.flush { "flush" } else { "unknown" };
            let confidence = Confidence::Exact;
            shares.push(Share { actor: Actor::UNATTRIBUTED, share: left, confidence, via, divided: false });
        }
        for s in shares.iter_mut() {
            // That it is a guess is in the confidence.
            s.actor = Actor { guess: false, ..threads.settled(s.actor) };
            threads.decide(s.actor.operation, cx);
        }
        if pending.flush && !cx.config.group_commits.is_empty() {
            // One that was forced, or arrived late, comes after its turn.
            self.shared_ns = self.shared_ns.max(pending.done_ns);
            share_among_groups(self.shared_ns, (shares, waits), threads, objects);
        }
        add_up(shares);
        for s in shares.iter() {
            let tgid = (s.actor.tgid != 0).then_some(s.actor.tgid);
            cx.sink.cause(Cause {
                command: pending.command,
                origin: s.actor.origin,
                operation: (s.actor.operation != 0).then_some(s.actor.operation),
                tgid,
                share: s.share,
                confidence: s.confidence,
                via: Cow::Borrowed(s.via),
            });
        }
        if pending.flush {
            waits.sort_unstable();
            waits.dedup_by_key(|w| w.0);
            let window = Window { start_ns: pending.issue_ns, end_ns: pending.done_ns, cpus: [pending.cpu; 2] };
            for &mut (span, sure) in waits {
                cx.link(span, pending.command, Relation::WaitsForFlush, sure, window);
            }
        }
        if pending.on_file {
            let before = self.outcomes.insert(pending.command, shares.clone());
            assert!(before.is_none(), "command {} settled twice", pending.command);
            self.outcomes_order.push_back(pending.command);
            if self.outcomes_order.len() > OUTCOMES_MAX {
                self.outcomes_order.pop_front().map(|old| self.outcomes.remove(&old));
            }
        }
    }

    /// Whether the command's causes may still become known.
    fn is_open(&self, command: u64, objects: &Objects) -> bool {
        self.pending_on_file.contains(&command) || objects.stacked.is_open(command)
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len() + self.outcomes.len()
    }
}

/// A command that is being settled.
struct Settlement<'a> {
    attribution: &'a Attribution,
    threads: &'a Threads,
    objects: &'a Objects,
    now_ns: u64,
    horizon_ns: u64,
    /// Nothing more will become known about commits.
    commits_are_final: bool,
    /// Nor about commands above and marks.
    all_is_final: bool,
    shares: Vec<Share>,
    /// The spans that wait for the command.
    waits: Vec<(u64, Confidence)>,
}

impl Settlement<'_> {
    /// Adds the shares of a charge, if they are known.
    fn resolve(&mut self, charge: &Charge, depth: u32) -> Result<(), Unknown> {
        let share_of = |actor, confidence, via| Share { actor, share: charge.weight, confidence, via, divided: false };
        let unattributed = |via| share_of(Actor::UNATTRIBUTED, charge.confidence, via);
        if depth > STACK_DEPTH_MAX {
            self.shares.push(unattributed("unknown"));
            return Ok(());
        }
        match charge.source {
            Source::Actor(actor) if !self.all_is_final && self.threads.is_undecided(actor.operation) => {
                Err(Unknown::Other)
            }
            Source::Actor(actor) => {
                if charge.span != 0 {
                    self.waits.push((charge.span, charge.confidence));
                }
                let confidence = if actor.guess { Confidence::Guess } else { charge.confidence };
                self.shares.push(share_of(actor, confidence, charge.via));
                Ok(())
            }
            Source::Command(command) => match self.attribution.outcomes.get(&command) {
                Some(shares) => {
                    if charge.span != 0 {
                        self.waits.push((charge.span, charge.confidence));
                    }
                    self.shares.extend(shares.iter().map(|s| Share {
                        share: s.share * charge.weight,
                        confidence: s.confidence.min(charge.confidence),
                        via: charge.via,
                        ..*s
                    }));
                    Ok(())
                }
                None if self.all_is_final || !self.attribution.is_open(command, self.objects) => {
                    self.shares.push(unattributed("stacked"));
                    Ok(())
                }
                None => Err(Unknown::Other),
            },
            Source::Joiners(key) | Source::Waiters(key) => {
                let Some(transaction) = self.objects.journal.get(key) else {
                    self.shares.push(unattributed(charge.via));
                    return Ok(());
                };
                let settled = transaction.end_ns.is_some_and(|e| e.saturating_add(self.horizon_ns) <= self.now_ns);
                if !settled && !self.commits_are_final {
                    return Err(Unknown::Commit);
                }
                // If the end of a commit was lost, the absence of known waiters proves nothing.
                let confidence_max = match charge.source {
                    Source::Waiters(_) if transaction.end_unseen => Confidence::Guess,
                    _ => charge.confidence,
                };
                let charge_of = |source, weight, sure: Confidence, span| Charge {
                    source,
                    weight,
                    confidence: sure.min(confidence_max).min(charge.confidence),
                    via: charge.via,
                    span,
                };
                if matches!(charge.source, Source::Waiters(_)) && !transaction.waiters.is_empty() {
                    let each = charge.weight / transaction.waiters.len() as f64;
                    return transaction
                        .waiters
                        .iter()
                        .try_for_each(|w| self.resolve(&charge_of(w.source, each, w.confidence, w.span), depth + 1));
                }
                // Proxies are not charged, such as ext4's worker that turns written extents into valid ones
                // (ext4_end_io_rsv_work).
                let members = || transaction.joiners.iter().filter(|j| j.source != Source::Actor(Actor::UNATTRIBUTED));
                let handles_total: f64 = members().map(|j| j.handles).sum();
                if handles_total <= 0.0 {
                    self.shares.push(unattributed(charge.via));
                    return Ok(());
                }
                members().try_for_each(|j| {
                    let part = charge.weight * j.handles / handles_total;
                    self.resolve(&charge_of(j.source, part, j.confidence, 0), depth + 1)
                })
            }
        }
    }
}

/// Divides a commit's part of a flush equally among all that it led.
fn share_among_groups(
    done_ns: u64,
    (shares, waits): (&mut Vec<Share>, &mut Vec<(u64, Confidence)>),
    threads: &mut Threads,
    objects: &Objects,
) {
    for at in 0..shares.len() {
        if std::mem::replace(&mut shares[at].divided, true) {
            continue;
        }
        let led = threads.take_covered(shares[at].actor.operation, done_ns, &objects.names);
        let share = shares[at].share / (led.len() + 1) as f64;
        shares[at].share = share;
        let confidence = shares[at].confidence.min(Confidence::Interval);
        for commit in led {
            let actor = Actor { operation: commit.operation, tgid: commit.tgid, ..shares[at].actor };
            shares.push(Share { actor, share, confidence, via: "group commit", divided: true });
            waits.push((commit.span, confidence));
        }
    }
}

/// Sums the shares per actor and divides them by their total.
fn add_up(shares: &mut Vec<Share>) {
    debug_assert!(shares.iter().all(|s| s.share.is_finite() && s.share >= 0.0), "{shares:?}");
    shares.retain(|s| s.share > 0.0);
    if shares.is_empty() {
        let (actor, confidence) = (Actor::UNATTRIBUTED, Confidence::Guess);
        shares.push(Share { actor, share: 1.0, confidence, via: "unknown", divided: false });
    }
    // The larger share of an actor comes first: its chain is named.
    shares.sort_by(|a, b| a.actor.cmp(&b.actor).then(b.share.total_cmp(&a.share)).then(a.via.cmp(b.via)));
    let total: f64 = shares.iter().map(|s| s.share).sum();
    assert!(total > 0.0 && total.is_finite(), "shares of {total}");
    shares.iter_mut().for_each(|s| s.share /= total);
    // What a long chain of disks in a damaged log made tiny may be nothing now.
    shares.retain(|s| s.share > 0.0);
    shares.dedup_by(|s, first| {
        let same = s.actor == first.actor;
        if same {
            first.share += s.share;
            first.confidence = first.confidence.min(s.confidence);
        }
        same
    });
    debug_assert!(is_near(shares.iter().map(|s| s.share).sum(), 1.0), "{shares:?}");
    debug_assert!(shares.is_sorted_by(|a, b| a.actor < b.actor), "an actor twice: {shares:?}");
    debug_assert!(shares.iter().all(|s| s.actor.origin != Origin::Operation || s.actor.operation != 0));
}
