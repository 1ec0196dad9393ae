//! What bios, requests and commands carry: which are the file system's own, and which processes wrote the data of the others.
//!
//! There are as many as spans, so everything is by position of span, and equal lists of processes are held once.

use analysis::rows::{Index, IoAction};
use model::table::Slice;
use model::{Layer, Relation, SpanFlag};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Maximum number of writers that are distinguished.
const WRITERS_MAX: usize = 8;

/// What spans of the layers below the file system carry.
pub struct CarriedData {
    metadata: Vec<bool>,
    writers: Writers,
    /// Commits with the process of each call that joined them, in order.
    joined: Vec<(u32, u32)>,
    /// For each file, the reads issued outside operations: time, process, and range of bytes.
    reads: HashMap<u64, Vec<(u64, u32, Range<u64>)>>,
}

/// The processes that wrote the data of each span.
struct Writers {
    /// The number of each span's list; 0 is the empty one.
    of: Vec<u32>,
    lists: Vec<Vec<u32>>,
    number: HashMap<Vec<u32>, u32>,
}

impl Writers {
    fn new(spans: usize) -> Self {
        Self { of: vec![0; spans], lists: vec![Vec::new()], number: HashMap::from([(Vec::new(), 0)]) }
    }

    fn list(&self, span: usize) -> &[u32] {
        &self.lists[self.of[span] as usize]
    }

    /// Adds processes to those of a span.
    fn add(&mut self, span: usize, who: &[u32]) {
        let own = self.list(span);
        if who.iter().all(|tgid| own.contains(tgid)) || own.len() >= WRITERS_MAX {
            return;
        }
        let mut all = own.to_vec();
        for tgid in who {
            if !all.contains(tgid) && all.len() < WRITERS_MAX {
                all.push(*tgid);
            }
        }
        let next = self.lists.len() as u32;
        let number = *self.number.entry(all).or_insert_with_key(|all| {
            self.lists.push(all.clone());
            next
        });
        self.of[span] = number;
    }

    /// Adds the processes of one span to those of another.
    fn pass(&mut self, from: usize, to: usize) {
        if self.of[from] != 0 && self.of[from] != self.of[to] {
            let who = self.list(from).to_vec();
            self.add(to, &who);
        }
    }
}

impl CarriedData {
    /// Follows the links.
    pub fn new(index: &Index) -> Self {
        let rows = index.rows;
        let (spans, links) = (&rows.spans, &rows.links);
        let ends = |at: usize| Some((index.span(links.parent(at))?, index.span(links.child(at))?));
        let below = |layer| matches!(layer, Layer::Block | Layer::IoScheduler | Layer::Driver);
        let meta = |at: usize| spans.flags(at).split(' ').any(|word| word == SpanFlag::Meta.name());
        let metadata = (0..spans.len()).map(|at| below(spans.layer(at)) && meta(at)).collect();
        let mut writers = Writers::new(spans.len());
        let mut joined: Vec<(u32, u32)> = Vec::new();
        for at in 0..links.len() {
            match links.relation(at) {
                Relation::Dirties => {
                    let Some((parent, child)) = ends(at) else { continue };
                    let tgid = spans.tgid(parent);
                    if tgid != 0 {
                        writers.add(child, &[tgid]);
                    }
                }
                Relation::JoinsTransaction => {
                    joined.extend(ends(at).map(|(parent, child)| (child as u32, spans.tgid(parent))));
                }
                _ => {}
            }
        }
        joined.sort_unstable();
        // From bios to requests, and from these to commands: two steps, and one more for split bios.
        for _ in 0..3 {
            let links = if writers.lists.len() > 1 { 0..links.len() } else { 0..0 };
            for at in links {
                if matches!(rows.links.relation(at), Relation::Carries | Relation::Merges | Relation::Splits)
                    && let Some((parent, child)) = ends(at)
                {
                    writers.pass(parent, child);
                }
            }
        }
        let mut reads: HashMap<u64, Vec<(u64, u32, Range<u64>)>> = HashMap::new();
        let outside = (0..spans.len()).filter(|&at| spans.layer(at) == Layer::Block && spans.operation(at).is_none());
        for bio in outside.map(|at| spans.at(at)) {
            if let (IoAction::Read, Some(file), Some(from)) = (IoAction::on_disk(&bio), bio.file, bio.offset) {
                let own = (bio.start_ns, bio.tgid, from..from.saturating_add(bio.bytes));
                reads.entry(file).or_default().push(own);
            }
        }
        Self { metadata, writers, joined, reads }
    }

    /// Whether a span carries the file system's own data.
    pub fn is_metadata(&self, span: usize) -> bool {
        self.metadata[span]
    }

    /// Returns the processes that wrote the data of a span.
    pub fn writers(&self, span: usize) -> &[u32] {
        self.writers.list(span)
    }

    /// Returns the part of a commit that belongs to other processes, and the process with most of it.
    pub fn foreign(&self, commit: usize, own: u32) -> Option<(f64, u32)> {
        let from = self.joined.partition_point(|(span, _)| (*span as usize) < commit);
        let joined = &self.joined[from..];
        let joined = &joined[..joined.partition_point(|(span, _)| *span as usize == commit)];
        let mut others: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, tgid) in joined.iter().filter(|(_, tgid)| *tgid != own && *tgid != 0) {
            *others.entry(*tgid).or_default() += 1;
        }
        let (most, _) = others.iter().max_by_key(|(_, n)| **n)?;
        Some((others.values().sum::<usize>() as f64 / joined.len() as f64, *most))
    }

    /// Returns when a read for which a thread sleeps was sent, if another thread sent it meanwhile: a cgroup's limit
    /// (blk_throtl_bio) holds a bio back before the kernel reports it as queued, and a kernel worker sends it later. The worker
    /// sends all bios held back, so the one that ends the sleep may be another part of the same read-ahead.
    pub fn held_back(&self, index: &Index, own: u32, slice: &Slice) -> Option<u64> {
        let read = slice.span.and_then(|id| index.span(id)).map(|at| index.rows.spans.at(at))?;
        let from = read.offset?;
        let bytes = from..from.saturating_add(read.bytes);
        let until = read.end_ns.unwrap_or(slice.end_ns).max(slice.end_ns);
        let sent = self.reads.get(&read.file?)?.iter().find(|(at, tgid, of)| {
            (slice.start_ns.saturating_add(1)..=until).contains(at)
                && *tgid != own
                && of.start < bytes.end
                && bytes.start < of.end
        });
        // A slice of a damaged archive may end before it begins.
        sent.map(|(at, ..)| (*at).min(slice.end_ns).max(slice.start_ns))
    }
}
