//! The account of time: each nanosecond of the outermost finished operations is in exactly one leaf, or counted as unaccounted.
//!
//! Findings are a list of known causes; what is not on it has no finding. The account needs no list: it is a partition of the slices,
//! which follow each other without a gap, by what the thread did or waited for, as precisely as the kernel showed it. So whatever takes
//! time has a size here, and a name if the kernel has one.
//!
//! The recording's own part is deducted from the time on a CPU, as in [`analysis::tracer`], and is a leaf.

use super::contract::{Account, Leaf, WaitEnder, Whose};
use super::leaf::phrase;
use super::{CONFIDENCE_LEVEL, INTERVALS_SEED};
use analysis::rows::Index;
use analysis::stacks::{Key as Sleep, Sleeps};
use analysis::tracer::{Prices, Times, tracer_part_by_layer};
use model::table::Slice;
use model::{Layer, Reason, Wait};
use stats::stretches::{Draws, STRETCH_COUNT, resample_sum, stretch_index};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of processes that ended a leaf's waits and are counted apart; the rest is merged into one that is not known.
pub(super) const ENDERS_MAX: usize = 64;
/// Maximum number of them in the contract.
const ENDERS_LISTED_MAX: usize = 5;
/// Maximum number of stacks of a leaf.
const STACKS_MAX: usize = 3;
/// Leaves from this share on are listed, however many there are.
const LISTED_SHARE_MIN: f64 = 0.1;
/// Of the largest, so many are in any case, if they have [`NOTICEABLE_SHARE_MIN`].
const LISTED_LEAVES_MIN: usize = 3;
const NOTICEABLE_SHARE_MIN: f64 = 0.02;

/// What distinguishes leaves. The layer does so only for time on a CPU, or where the reason of a sleep is not known.
pub(super) type Key<'a> = (Option<Layer>, Reason, Option<Wait>, Option<Cow<'a, str>>, Option<Whose>);
/// Number of a leaf while the account is made.
pub type LeafNumber = u32;
/// What ended a wait: the file whose lock it was, the process, and the shape of its operation.
pub(super) type EndedBy = (Option<u64>, Option<u32>, Option<usize>);

/// Marks an operation that is inside another, or has no end.
const NO_PLACE: u32 = u32::MAX;

/// A set of places, a bit each: most executions have some of most leaves.
#[derive(Default)]
struct Members(Vec<u64>);

impl Members {
    fn insert(&mut self, place: usize) {
        if self.0.len() <= place / 64 {
            self.0.resize(place / 64 + 1, 0);
        }
        self.0[place / 64] |= 1 << (place % 64);
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|bits| u64::from(bits.count_ones())).sum()
    }
}

/// Sums of one leaf.
#[derive(Default)]
struct Sums {
    number: LeafNumber,
    ns: u64,
    /// By stretch of executions.
    stretches: [f64; STRETCH_COUNT],
    executions: Members,
    shapes: HashMap<usize, u64>,
    /// Number of waits, their time, and the longest since the start of the operation that ended them.
    ended_by: HashMap<EndedBy, (u64, u64, Option<u64>)>,
    sleeps: BTreeMap<Sleep, u64>,
    /// The longest piece: length and span.
    longest: (u64, Option<u64>),
}

/// Collects the account in one pass over the slices.
pub struct AccountBuilder<'a> {
    index: &'a Index<'a>,
    /// The place of each outermost finished operation among them, in order of their starts; [`NO_PLACE`] for others.
    places: Vec<u32>,
    executions: usize,
    leaves: HashMap<Key<'a>, Sums>,
    running: Times,
}

impl<'a> AccountBuilder<'a> {
    pub fn new(index: &'a Index<'a>) -> Self {
        let operations = &index.rows.operations;
        let is_outermost = |at: &usize| operations.end_ns(*at).is_some() && index.chain(*at).nth(1).is_none();
        let outermost = (0..operations.len()).filter(is_outermost);
        let mut outermost: Vec<(u64, u32)> = outermost.map(|at| (operations.start_ns(at), at as u32)).collect();
        outermost.sort_unstable();
        let mut places = vec![NO_PLACE; operations.len()];
        for (place, (_, at)) in (0..).zip(&outermost) {
            places[*at as usize] = place;
        }
        Self { index, places, executions: outermost.len(), leaves: HashMap::new(), running: Times::default() }
    }

    fn place(&self, at: usize) -> Option<usize> {
        (self.places[at] != NO_PLACE).then_some(self.places[at] as usize)
    }

    fn stretch_of(&self, place: usize) -> usize {
        stretch_index(place, self.executions, STRETCH_COUNT.min(self.executions))
    }

    /// Adds a slice; those of operations inside others repeat the time of the outer ones. `theirs`: the part of it that was for another
    /// process, of a wait for flushes, commits and requests. Returns the leaves that have it: its own, and that of others.
    pub fn add(
        &mut self,
        at: usize,
        slice: &Slice,
        theirs: Option<(u32, u64)>,
        sleeps: &Sleeps,
    ) -> [Option<LeafNumber>; 2] {
        let Some(place) = self.place(at) else { return [None, None] };
        let whole = slice.end_ns.saturating_sub(slice.start_ns);
        let others = theirs.map_or(0, |(_, ns)| ns.min(whole));
        let shared = matches!(slice.reason, Reason::Flush | Reason::Journal);
        let own = (whole > others)
            .then(|| self.add_part(at, place, slice, (shared.then_some(Whose::Own), None), whole - others, sleeps));
        let theirs = theirs.filter(|_| others > 0);
        let theirs =
            theirs.map(|(tgid, _)| self.add_part(at, place, slice, (Some(Whose::Others), Some(tgid)), others, sleeps));
        [own, theirs]
    }

    fn add_part(
        &mut self,
        at: usize,
        place: usize,
        slice: &Slice,
        (whose, tgid): (Option<Whose>, Option<u32>),
        ns: u64,
        sleeps: &Sleeps,
    ) -> LeafNumber {
        let stretch = self.stretch_of(place);
        let next = self.leaves.len() as LeafNumber;
        let key = leaf_key(self.index, slice, whose);
        let sums = self.leaves.entry(key).or_insert_with(|| Sums { number: next, ..Sums::default() });
        let number = sums.number;
        sums.ns = sums.ns.saturating_add(ns);
        sums.stretches[stretch] += ns as f64;
        sums.executions.insert(place);
        if let Some(shape) = self.index.shape(at) {
            let of_shape = sums.shapes.entry(shape).or_default();
            *of_shape = of_shape.saturating_add(ns);
        }
        if ns > sums.longest.0 {
            sums.longest = (ns, slice.span.or_else(|| Some(self.index.rows.operations.span(at))));
        }
        if slice.reason == Reason::Cpu {
            if matches!(slice.layer, Layer::App | Layer::Database | Layer::Syscall) {
                self.running.add(at, slice.layer, ns);
            }
            return number;
        }
        let holder = slice.by_operation.and_then(|id| self.index.operation(id));
        let mut by = (slice.wait_file, tgid.or(slice.by_tgid), holder.and_then(|at| self.index.shape(at)));
        if sums.ended_by.len() >= ENDERS_MAX && !sums.ended_by.contains_key(&by) {
            by = (None, None, None);
        }
        let since = holder.map(|at| slice.end_ns.saturating_sub(self.index.rows.operations.start_ns(at)));
        let (times, sum, longest) = sums.ended_by.entry(by).or_default();
        (*times, *sum, *longest) = (*times + 1, sum.saturating_add(ns), (*longest).max(since));
        let thread = (self.index.rows.operations.tgid(at), self.index.rows.operations.tid(at));
        for (sleep, ns) in sleeps.within(thread, slice.start_ns, slice.end_ns) {
            let slept = sums.sleeps.entry(sleep).or_default();
            *slept = slept.saturating_add(ns);
        }
        number
    }

    /// Returns the account of these operations, the largest leaf first, and the place of each numbered leaf in it.
    pub fn finish(mut self, sleeps: &Sleeps) -> (Account, HashMap<LeafNumber, usize>) {
        let operations = &self.index.rows.operations;
        let stretches = STRETCH_COUNT.min(self.executions);
        let mut whole = [0.0; STRETCH_COUNT];
        let mut latency_ns = 0_u64;
        for (at, place) in (0..operations.len()).filter_map(|at| Some((at, self.place(at)?))) {
            let ns = operations.end_ns(at).map_or(0, |end| end.saturating_sub(operations.start_ns(at)));
            whole[self.stretch_of(place)] += ns as f64;
            latency_ns = latency_ns.saturating_add(ns);
        }
        self.deduct_tracer();
        let accounted = self.leaves.values().fold(0_u64, |sum, leaf| sum.saturating_add(leaf.ns));
        // More can be accounted for only if slices overlap, in a damaged archive.
        let whole_ns = latency_ns.max(accounted);
        let draws = Draws::new(stretches, INTERVALS_SEED);
        let (index, executions) = (self.index, self.executions as u64);
        let leaf = |(key, sums): (Key<'_>, Sums)| {
            let id = leaf_id(&key);
            let share = draws.as_ref().and_then(|draws| {
                draws.estimate(CONFIDENCE_LEVEL, |t| {
                    resample_sum(t, &sums.stretches[..stretches]) / resample_sum(t, &whole[..stretches])
                })
            });
            let (layer, reason, wait, call, whose) = key;
            let most = sums.shapes.iter().max_by_key(|(shape, ns)| (**ns, std::cmp::Reverse(**shape)));
            let mut stacks = sleeps.longest(sums.sleeps);
            stacks.truncate(STACKS_MAX);
            let mut leaf = Leaf {
                id,
                what: String::new(),
                layer,
                reason,
                wait,
                call: call.map(Cow::into_owned),
                whose,
                ns: sums.ns,
                share: sums.ns as f64 / whole_ns.max(1) as f64,
                saves_at_most_ns: sums.ns,
                findings: Vec::new(),
                listed: false,
                interval: share.map(|e| [e.low.max(0.0), e.high.min(1.0)]),
                executions: sums.executions.len(),
                statement: most.map(|(shape, _)| index.rows.shapes[*shape].text.clone()),
                statement_ns: most.map_or(0, |(_, ns)| (*ns).min(sums.ns)),
                by: longest_first(index, sums.ended_by),
                longest_ns: sums.longest.0,
                longest_span: sums.longest.1,
                slow_waits: stacks,
            };
            leaf.what = phrase(&leaf);
            (sums.number, leaf)
        };
        let mut leaves: Vec<(LeafNumber, Leaf)> =
            self.leaves.into_iter().filter(|(_, sums)| sums.ns > 0).map(leaf).collect();
        leaves.sort_by(|(_, a), (_, b)| {
            let rest = |leaf: &Leaf| (leaf.layer, leaf.reason, leaf.wait, leaf.call.clone(), leaf.whose);
            b.ns.cmp(&a.ns).then_with(|| rest(a).cmp(&rest(b)))
        });
        let places = leaves.iter().enumerate().map(|(place, (number, _))| (*number, place)).collect();
        let mut leaves: Vec<Leaf> = leaves.into_iter().map(|(_, leaf)| leaf).collect();
        for (nth, leaf) in leaves.iter_mut().enumerate() {
            leaf.listed =
                leaf.share >= LISTED_SHARE_MIN || nth < LISTED_LEAVES_MIN && leaf.share >= NOTICEABLE_SHARE_MIN;
        }
        let listed = leaves.iter().fold(0_u64, |sum, leaf| sum.saturating_add(leaf.ns));
        assert_eq!(listed, accounted, "leaves without time are the only ones left out");
        (Account { whole_ns, executions, leaves, unaccounted_ns: whole_ns - accounted }, places)
    }

    /// Moves the recording's part of the time on a CPU into a leaf of its own: of a layer's leaves, each gives in proportion.
    fn deduct_tracer(&mut self) {
        let Some(prices) = Prices::from_rows(self.index.rows) else { return };
        let mut parts: BTreeMap<Layer, u64> = BTreeMap::new();
        let mut own = Sums::default();
        for (at, layers) in tracer_part_by_layer(self.index, prices, &self.running).into_iter().enumerate() {
            let Some(place) = self.place(at) else { continue };
            for (layer, ns) in layers.into_iter().filter(|(_, ns)| *ns > 0) {
                let part = parts.entry(layer).or_default();
                *part = part.saturating_add(ns);
                own.executions.insert(place);
                if let Some(shape) = self.index.shape(at) {
                    let of_shape = own.shapes.entry(shape).or_default();
                    *of_shape = of_shape.saturating_add(ns);
                }
            }
        }
        for (layer, part) in parts {
            let on_cpu = |key: &Key<'_>| key.0 == Some(layer) && key.1 == Reason::Cpu;
            let leaves = self.leaves.iter().filter(|(key, _)| on_cpu(key));
            let of_layer = leaves.fold(0_u64, |sum, (_, sums)| sum.saturating_add(sums.ns));
            for (_, sums) in self.leaves.iter_mut().filter(|(key, _)| on_cpu(key)) {
                let gives = u128::from(sums.ns) * u128::from(part.min(of_layer)) / u128::from(of_layer.max(1));
                let left = (sums.ns as f64 - gives as f64) / sums.ns.max(1) as f64;
                for (own, of_leaf) in own.stretches.iter_mut().zip(&mut sums.stretches) {
                    *own += *of_leaf * (1.0 - left);
                    *of_leaf *= left;
                }
                sums.ns -= gives as u64;
                own.ns = own.ns.saturating_add(gives as u64);
            }
        }
        if own.ns > 0 {
            own.number = LeafNumber::MAX;
            self.leaves.insert((Some(Layer::Tracer), Reason::Cpu, None, None, None), own);
        }
    }
}

fn leaf_key<'a>(index: &'a Index<'a>, slice: &Slice, whose: Option<Whose>) -> Key<'a> {
    let unknown = slice.reason == Reason::Other && slice.wait.is_none();
    let on_cpu = slice.reason == Reason::Cpu;
    let in_kernel = matches!(slice.layer, Layer::Syscall | Layer::FileSystem) && (on_cpu || unknown);
    let span = slice.span.filter(|_| in_kernel).and_then(|id| index.span(id));
    let call = span.map(|at| index.rows.spans.kind(at));
    ((on_cpu || unknown).then_some(slice.layer), slice.reason, slice.wait, call, whose)
}

/// Returns the name of a leaf on the command line: `futex`, `flush:own`, `cpu:Syscall:pread64`.
pub(super) fn leaf_id((layer, reason, wait, call, whose): &Key<'_>) -> String {
    let what = wait.map_or_else(|| reason.name().to_string(), |wait| wait.name().to_string());
    let mut parts = vec![what.replace(' ', "-")];
    parts.extend(layer.map(|layer| layer.name().to_string()));
    parts.extend(call.as_ref().map(ToString::to_string));
    parts.extend(whose.map(|whose| if whose == Whose::Own { "own".into() } else { "others".into() }));
    parts.join(":")
}

/// Returns the name of the leaf that has the larger part of a slice.
pub fn leaf_id_of(index: &Index, slice: &Slice, theirs: Option<(u32, u64)>) -> String {
    let whole = slice.end_ns.saturating_sub(slice.start_ns);
    let of_others = theirs.is_some_and(|(_, ns)| ns > whole / 2);
    let whose = match slice.reason {
        _ if of_others => Some(Whose::Others),
        Reason::Flush | Reason::Journal => Some(Whose::Own),
        _ => None,
    };
    leaf_id(&leaf_key(index, slice, whose))
}

/// Returns what ended most of the time.
pub(super) fn longest_first(index: &Index, all: HashMap<EndedBy, (u64, u64, Option<u64>)>) -> Vec<WaitEnder> {
    let known = all.into_iter().filter(|(by, _)| *by != (None, None, None));
    let mut all: Vec<WaitEnder> = known
        .map(|((file, tgid, shape), (times, ns, since_ns))| WaitEnder {
            file: file.and_then(|id| index.file(id)).and_then(|at| index.rows.files[at].path.clone()),
            tgid,
            process: tgid.and_then(|tgid| index.process_name(tgid)).map(str::to_string),
            statement: shape.map(|shape| index.rows.shapes[shape].text.clone()),
            times,
            ns,
            since_ns,
        })
        .collect();
    all.sort_by(|a, b| {
        let rest = |by: &WaitEnder| (by.tgid, by.file.clone(), by.statement.clone());
        b.ns.cmp(&a.ns).then_with(|| rest(a).cmp(&rest(b)))
    });
    all.truncate(ENDERS_LISTED_MAX);
    all
}
