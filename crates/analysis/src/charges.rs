//! Shares of operations in device commands, bios and commits.
//!
//! The archive has the shares of device commands (`causes`). Those of the layers above are derived:
//!
//! - a **bio** is charged like the commands that carry it, equally if it was split over several; a bare flush like the
//!   flush it waited for; a bio that no command carried (a disk without a cache drops a bare flush) to the operation
//!   that queued it.
//! - a **commit** is shared by the calls that joined its transaction, each counted once; btrfs, f2fs and XFS do not
//!   report which calls joined, so their commits are shared by the calls that waited for them.
//!
//! An operation's shares also count for the operations around it, so a function around a statement has all shares of the
//! statement. The share of the innermost operation alone is kept separately ([`OperationShare::own`]): the own shares of one item
//! and its unattributed share add up to 1.

use crate::rows::{Index, IoAction};
use model::{Layer, Origin, Relation};
use std::sync::Arc;

/// Marks an absent entry in tables of positions.
const NO_COMMAND: u32 = u32::MAX;

/// An operation's share of an item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperationShare {
    /// Its position.
    pub operation: u32,
    /// Its share, including those of the operations inside it.
    pub share: f64,
    /// Its share without them.
    pub own: f64,
}

/// Yields a share for an operation and the same share for the operations around it.
fn shares_in_chain<'i>(
    index: &'i Index<'i>,
    operation: usize,
    share: f64,
) -> impl Iterator<Item = OperationShare> + 'i {
    let own = move |at: usize| if at == operation { share } else { 0.0 };
    index.chain(operation).map(move |at| OperationShare { operation: at as u32, share, own: own(at) })
}

/// Items (spans by position), each with its shares.
#[derive(Debug, Default)]
pub struct SharedItems {
    items: Vec<u32>,
    ends: Vec<u32>,
    shares: Vec<OperationShare>,
}

impl SharedItems {
    /// Yields each item: the position of its span, and all shares in it.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[OperationShare])> {
        (0..self.items.len()).map(|i| (self.items[i] as usize, self.shares_of(i)))
    }

    /// All shares in the item of this number.
    pub fn shares_of(&self, item: usize) -> &[OperationShare] {
        let start = item.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.shares[start..self.ends[item] as usize]
    }

    /// Adds an item. Shares of the same operation are summed.
    fn push(&mut self, span: usize, parts: impl Iterator<Item = OperationShare>) {
        let start = self.shares.len();
        for part in parts {
            match self.shares[start..].iter_mut().find(|p| p.operation == part.operation) {
                Some(sum) => (sum.share, sum.own) = (sum.share + part.share, sum.own + part.own),
                None => self.shares.push(part),
            }
        }
        assert!(self.shares.len() <= u32::MAX as usize, "more shares than positions");
        self.items.push(span as u32);
        self.ends.push(self.shares.len() as u32);
    }
}

/// All shared items of a trace.
#[derive(Debug)]
pub struct Charges {
    /// Device commands.
    pub commands: Arc<SharedItems>,
    /// Bios that each command carries, in the same order.
    pub carried: Vec<u32>,
    pub bios: SharedItems,
    pub commits: SharedItems,
}

impl Charges {
    /// Follows the links of a trace.
    pub fn new(index: &Index) -> Self {
        Self::with_commands(index, Arc::new(command_shares(index)))
    }

    /// The same where the shares of the commands are known.
    pub fn with_commands(index: &Index, commands: Arc<SharedItems>) -> Self {
        let (bios, carried) = bio_shares(index, &commands);
        let commits = commit_shares(index);
        Self { commands, carried, bios, commits }
    }
}

/// Device commands alone.
pub fn command_shares(index: &Index) -> SharedItems {
    let rows = index.rows;
    let mut number = vec![NO_COMMAND; rows.spans.len()];
    let mut spans: Vec<u32> = Vec::new();
    for (i, number) in number.iter_mut().enumerate().filter(|(i, _)| rows.spans.layer(*i) == Layer::Driver) {
        *number = spans.len() as u32;
        spans.push(i as u32);
    }
    let mut causes: Vec<(u32, u32, f64)> = Vec::new();
    for cause in rows.causes.iter().filter(|c| c.origin == Origin::Operation && c.share.is_finite()) {
        let command = index.span(cause.command).map(|i| number[i]).filter(|&n| n != NO_COMMAND);
        if let (Some(command), Some(operation)) = (command, cause.operation.and_then(|id| index.operation(id))) {
            causes.push((command, operation as u32, cause.share));
        }
    }
    causes.sort_by_key(|&(command, ..)| command);
    let mut shared = SharedItems::default();
    let mut rest = causes.as_slice();
    for (n, &span) in spans.iter().enumerate() {
        // Few each: a binary search of the rest would read all over it.
        let (own, after) = rest.split_at(rest.iter().take_while(|(command, ..)| *command as usize == n).count());
        rest = after;
        let parts = own.iter().flat_map(|&(_, op, share)| shares_in_chain(index, op as usize, share));
        shared.push(span as usize, parts);
    }
    assert!(rest.is_empty(), "shares of a command that does not exist");
    shared
}

/// A link between the block layer and the driver, by positions of spans.
struct DriverLink {
    child: u32,
    parent: u32,
    waits: bool,
}

/// Bios with their shares, and how many bios each command carries.
fn bio_shares(index: &Index, commands: &SharedItems) -> (SharedItems, Vec<u32>) {
    let rows = index.rows;
    let stage = |layer| match layer {
        Layer::Block => Some(0),
        Layer::IoScheduler => Some(1),
        Layer::Driver => Some(2),
        _ => None,
    };
    let mut links: Vec<DriverLink> = Vec::new();
    let mut is_part = vec![false; rows.spans.len()];
    for link in &rows.links {
        let (Some(parent), Some(child)) = (index.span(link.parent), index.span(link.child)) else { continue };
        let layers = (rows.spans.layer(parent), rows.spans.layer(child));
        let (Some(from), Some(to)) = (stage(layers.0), stage(layers.1)) else { continue };
        let (upper, lower) = (rows.spans.disk(parent), rows.spans.disk(child));
        let same_disk = upper.is_none() || lower.is_none() || upper == lower;
        let splits = link.relation == Relation::Splits && from == 0 && to == 0;
        is_part[child] |= splits;
        if (from < to || splits) && same_disk && link.relation != Relation::Remaps {
            let waits = link.relation == Relation::WaitsForFlush;
            links.push(DriverLink { child: child as u32, parent: parent as u32, waits });
        }
    }
    links.sort_by_key(|l| l.child);
    let parents = |child: u32| {
        let start = links.partition_point(|l| l.child < child);
        links[start..].iter().take_while(move |l| l.child == child)
    };

    // Follow the links up from each command to the bios that were queued for it.
    let mut pairs: Vec<(u32, bool, u32)> = Vec::new();
    let mut carried = Vec::with_capacity(commands.items.len());
    let mut todo: Vec<(u32, bool)> = Vec::new();
    let mut found: Vec<(u32, bool)> = Vec::new();
    for (number, &command) in (0..).zip(&commands.items) {
        todo.push((command, false));
        while let Some((at, waited)) = todo.pop() {
            for link in parents(at) {
                let step = (link.parent, waited || link.waits);
                if !todo.contains(&step) && !found.contains(&step) {
                    if rows.spans.layer(link.parent as usize) == Layer::Block {
                        found.push(step);
                    }
                    todo.push(step);
                }
            }
        }
        found.retain(|&(bio, _)| !is_part[bio as usize]);
        let linked = found.iter().filter(|(_, waited)| !waited).count() as u32;
        let span = &rows.spans.at(command as usize);
        let said = span.number.filter(|_| IoAction::on_disk(span) != IoAction::Flush);
        carried.push(said.and_then(|n| n.try_into().ok()).unwrap_or(0).max(linked));
        pairs.extend(found.drain(..).map(|(bio, waited)| (bio, waited, number)));
    }
    drop(links);
    // Carried before waited: a bio with data is charged by its data, not by the flushes around it.
    pairs.sort_unstable();

    let mut shared = SharedItems::default();
    let mut rest = pairs.as_slice();
    for (i, _) in is_part.iter().enumerate().filter(|(_, is_part)| !**is_part) {
        if rows.spans.layer(i) != Layer::Block {
            continue;
        }
        let before = rest.iter().take_while(|(bio, ..)| (*bio as usize) < i).count();
        let (own, after) =
            rest[before..].split_at(rest[before..].iter().take_while(|(bio, ..)| *bio as usize == i).count());
        rest = after;
        let own = &own[..own.partition_point(|&(_, waited, _)| waited == own[0].1)];
        let part = 1.0 / own.len().max(1) as f64;
        let carriers = own
            .iter()
            .flat_map(|&(.., command)| commands.shares_of(command as usize))
            .map(|p| OperationShare { share: p.share * part, own: p.own * part, ..*p });
        let alone = own.is_empty().then(|| index.operation_of_row(i)).flatten().into_iter();
        shared.push(i, carriers.chain(alone.flat_map(|o| shares_in_chain(index, o, 1.0))));
    }
    (shared, carried)
}

/// Commits with the shares of the calls that joined them, or of those that waited where no call is known to have joined.
fn commit_shares(index: &Index) -> SharedItems {
    let rows = index.rows;
    let mut joins: Vec<(u32, u32)> = Vec::new();
    let relations = [Relation::JoinsTransaction, Relation::WaitsForLog];
    for link in rows.links.iter().filter(|l| relations.contains(&l.relation)) {
        if let (Some(parent), Some(child)) = (index.span(link.parent), index.span(link.child)) {
            // A call may wait for a single bio of the log, too.
            if link.relation == Relation::JoinsTransaction || rows.spans.layer(child) == Layer::FileSystem {
                joins.push((child as u32, parent as u32));
            }
        }
    }
    joins.sort_unstable();
    joins.dedup();
    let mut shared = SharedItems::default();
    let mut rest = joins.as_slice();
    while let Some(&(commit, _)) = rest.first() {
        let (own, after) = rest.split_at(rest.iter().take_while(|(c, _)| *c == commit).count());
        rest = after;
        let part = 1.0 / own.len() as f64;
        let operations = own.iter().filter_map(|&(_, parent)| index.operation_of_row(parent as usize));
        let parts = operations.flat_map(|o| shares_in_chain(index, o, part));
        shared.push(commit as usize, parts);
    }
    shared
}
