//! The pool's disk: requests are split at the nodes' borders, sent to each node, and reassembled.

use crate::colocation::Colocation;
use crate::connect::Connect;
use crate::frame::{self, DATA_BYTES_MAX, Operation, Status};
use crate::hello::{Hello, Welcome};
use crate::layout::{Arrangement, Layout, Piece};
use crate::link::{Control, Failure, Health, JoinError, NodeLink, Options, Pace, greet};
use crate::patience::LoadMonitor;
use crate::protocol::{Claim, ClaimExtensions, Loss, LossId, StorePosition};
use crate::shm::MemoryOffer;
use crate::store::check_belongs;
use crate::zeroes::Zeroes;
use bytes::{Bytes, BytesMut};
use futures_util::future::{FutureExt as _, LocalBoxFuture, Shared, join_all, try_join_all};
use nbd::buffer::{Buffer, LARGE_BYTES};
use nbd::{Error, Export, Extent, Info};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// The maximum piece of a trim: a node does it in one go, and must not take longer than a reply may take. The next one is
/// sent when it is done.
const TRIM_PIECE_BYTES: u32 = 64 << 20;

/// How often a coordinator looks whether it was fenced.
const FENCED_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How long the last flush waits for a node that is not there.
const LAST_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of pieces in one map request: 64 MiB of stripes. A client requests the rest again.
const MAP_PIECES_MAX: usize = 1024;

pub(crate) mod assembly;
mod map;

/// Why a pool cannot be assembled.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    /// A node cannot be used.
    #[error("cannot use the node {address}: {why}{}", advice(address, why))]
    Node { address: SocketAddr, why: JoinError },
    /// The same node is given twice.
    #[error("{first} and {second} are the same node ({node}); give each node once")]
    Twice { node: String, first: SocketAddr, second: SocketAddr },
    /// Part of the pool's data would be missing.
    #[error(
        "the node {new} is new, but {old} already belongs to the pool {pool:?}; give the pool's own nodes or, if it \
         has no data, remove its stores from it with `fathom pool forget --store FILE`"
    )]
    Mixed {
        /// A node without data.
        new: SocketAddr,
        /// A node with data.
        old: SocketAddr,
        pool: String,
    },
    /// Another coordinator uses the node.
    #[error(
        "another coordinator is connected to the node {address} (pool {pool:?}, epoch {epoch}), and its clients' \
         requests would fail; stop it first, or give --take-over"
    )]
    Served {
        address: SocketAddr,
        pool: String,
        /// The epoch of that coordinator.
        epoch: u64,
    },
    /// Some nodes do not answer, although they were waited for.
    #[error(
        "{} of {of} nodes do not answer after {} s: {}; give --wait TIME to wait longer, or --degraded to serve the \
         others, read-only", missing.len(), waited.as_secs(), missing.join("; ")
    )]
    Late {
        /// They, and why.
        missing: Vec<String>,
        /// The number of all.
        of: usize,
        waited: Duration,
    },
    /// Where the bytes of missing nodes belong is unknown.
    #[error(
        "cannot serve a part of the pool: the stores of the other nodes do not tell where the missing ones belong; the \
         pool must have been served whole once by this release"
    )]
    UnknownLayout,
    /// There is no space to use.
    #[error("the nodes are too small for a disk of this layout")]
    Empty,
}

/// How to fix the problem, if it can be guessed.
fn advice(address: &SocketAddr, why: &JoinError) -> String {
    use std::io::ErrorKind as K;
    let JoinError::Unreachable(crate::hello::Error::Connection(error)) = why else { return String::new() };
    match error.kind() {
        K::ConnectionRefused => {
            format!("; nothing listens there: start `fathom pool node --store FILE --listen {address}` on that device")
        }
        K::TimedOut | K::HostUnreachable | K::NetworkUnreachable => "; is the device on and reachable?".into(),
        _ => String::new(),
    }
}

/// The name of this coordinator: process and machine for people, and unique for nodes.
pub(crate) fn coordinator_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} on {} ({})", std::process::id(), host.trim(), crate::unique_name::new_name())
}

/// Checks that no other coordinator is connected to any of the nodes. One that is just reconnecting is not detected.
///
/// # Errors
/// [`AssemblyError::Served`], or why a node cannot be queried.
pub async fn check_free(connect: &Connect, addresses: &[SocketAddr], pool: &str) -> Result<(), AssemblyError> {
    let look = Hello { protocol: frame::VERSION, pool: pool.into(), claim: None };
    for address in addresses {
        let (_, seen) =
            greet(connect, *address, &look).await.map_err(|why| AssemblyError::Node { address: *address, why })?;
        if seen.served {
            return Err(AssemblyError::Served { address: *address, pool: seen.pool, epoch: seen.epoch });
        }
    }
    Ok(())
}

/// Where on the disk a node may have lost acknowledged writes: offset and length.
fn lost_disk_ranges(layout: &Layout, nth: usize, loss: &Loss) -> Vec<(u64, u64)> {
    let disk = |(begin, bytes): &(u64, u64)| layout.disk_range(nth, *begin..begin.saturating_add(*bytes));
    loss.ranges.iter().filter_map(disk).map(|range| (range.start, range.end - range.start)).collect()
}

/// Whether what may be lost now is what the user has accepted; reports either.
fn accepts_loss(
    layout: &Layout,
    nodes: &[(SocketAddr, Welcome)],
    accepted: Option<LossId>,
    report: &dyn Fn(String),
) -> bool {
    let Some(accepted) = accepted else { return false };
    let id = LossId::from_losses(nodes.iter().map(|(_, node)| (node.node.as_str(), &node.loss)));
    if id != Some(accepted) {
        let now = id.map_or_else(|| "nothing may be lost now".into(), |id| format!("what may be lost now is {id}"));
        report(format!("--accept-loss {accepted}: this was accepted before, or was never shown; {now}"));
        return false;
    }
    for (nth, (address, node)) in nodes.iter().enumerate() {
        for (begin, bytes) in lost_disk_ranges(layout, nth, &node.loss) {
            report(format!(
                "accepted (--accept-loss {accepted}): node {address} may have lost acknowledged writes in the {bytes} bytes from \
                 offset {begin} of the disk: {}",
                node.loss.why()
            ));
        }
    }
    true
}

pub struct Volume {
    info: Info,
    layout: Layout,
    links: Rc<Vec<NodeLink>>,
    /// The flush that was requested last.
    last_flush: RefCell<Option<SharedFlush>>,
    zeroes: Zeroes,
    report: Rc<dyn Fn(String)>,
    /// Why the last flush failed, if it did.
    flush_failure: RefCell<Option<String>>,
    pace: Pace,
    /// The possible losses that were reported.
    reported_loss: Cell<Option<LossId>>,
    /// Shared with the requests; its thread is the coordinator's.
    load_monitor: Rc<LoadMonitor>,
    _colocation: Option<Colocation>,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("layout", &self.layout).field("links", &self.links).finish_non_exhaustive()
    }
}

impl Volume {
    /// Claims the nodes for `pool`, in this order, with an epoch higher than any that they have seen; an earlier
    /// coordinator is fenced off. Must run in a `LocalSet`. `report` receives later errors.
    ///
    /// # Errors
    /// [`AssemblyError`]. Nodes that belong elsewhere, in another order or to no pool are detected before any of them is claimed.
    pub async fn join(
        connect: &Connect,
        addresses: &[SocketAddr],
        pool: &str,
        arrangement: Arrangement,
        options: &Options,
        control: &Control,
        report: Rc<dyn Fn(String)>,
    ) -> Result<Self, AssemblyError> {
        let look = Hello { protocol: frame::VERSION, pool: pool.into(), claim: None };
        let seen = assembly::greet_all(connect, addresses, &look, options.wait, &*report).await;
        let all = addresses.iter().copied().zip(seen);
        let (nodes, missing) = assembly::split_present(all, options)?;
        // A reservation alone does not form a pool, unless one of its nodes was claimed: claiming starts when all are reserved.
        let old = nodes.iter().find(|(_, node)| node.place.is_some() && !node.reserved);
        let new = nodes.iter().find(|(_, node)| node.place.is_none());
        if let (Some((old, known)), Some((new, _))) = (old, new) {
            return Err(AssemblyError::Mixed { new: *new, old: *old, pool: known.pool.clone() });
        }
        // Two coordinators that create a pool at once may leave one node claimed by one of them, and others reserved for
        // the other. The first can continue, since nothing was written yet; if something was, a node reserved for another
        // pool has replaced one of this pool.
        let unwritten = nodes.iter().all(|(_, node)| node.place.is_none() || node.reserved || node.empty);
        let sizes = if missing.is_empty() {
            nodes.iter().map(|(_, node)| node.size_bytes).collect()
        } else {
            assembly::node_sizes(arrangement, &assembly::welcomes_by_address(addresses, &nodes))?
        };
        let disk = assembly::disk_positions(arrangement, &sizes);
        let layout = Layout::new(arrangement, &sizes);
        if layout.size_bytes() == 0 {
            return Err(AssemblyError::Empty);
        }
        let stripe_bytes = match arrangement {
            Arrangement::Concatenated => 0,
            Arrangement::Striped { stripe_bytes } => stripe_bytes,
        };
        let epoch = nodes.iter().map(|(_, node)| node.epoch).max().unwrap_or(0) + 1;
        let taken: Vec<_> = nodes.iter().filter(|(_, node)| node.served).map(|(at, node)| (*at, node.epoch)).collect();
        let coordinator = coordinator_name();
        // A pool without all of its nodes cannot be written, so nothing is accepted.
        let accepted = options.accept_loss.filter(|_| missing.is_empty());
        let accepts = accepts_loss(&layout, &nodes, accepted, &*report);
        let mut links = Vec::new();
        // With a flag whether to reserve the node first.
        let claims: Vec<(SocketAddr, Claim, bool)> = nodes
            .into_iter()
            .map(|(address, node)| {
                let nth = addresses.iter().position(|other| *other == address).unwrap_or_default();
                let index = nth as u32;
                let place = StorePosition { index, count: addresses.len() as u32, stripe_bytes, mirror: None };
                let (coordinator, size_bytes) = (coordinator.clone(), node.size_bytes);
                if !(node.reserved && unwritten) {
                    // Checked here too, so that no node is taken over for a pool that cannot be joined.
                    let has = (node.pool.as_str(), node.place.as_ref());
                    let belongs = check_belongs(has, (pool, &place)).map_err(|why| JoinError::Refused(why.to_string()));
                    belongs.map_err(|why| AssemblyError::Node { address, why })?;
                }
                let accepted = if accepts { node.loss } else { Loss::default() };
                let memory = if options.shared_memory { MemoryOffer::for_boot(&node.boot) } else { None };
                let disk = disk.get(nth).copied();
                let also = ClaimExtensions {
                    accepts: accepted.ranges,
                    accepts_id: accepted.id,
                    memory,
                    disk,
                    ..ClaimExtensions::default()
                };
                let unclaimed = node.reserved || node.place.is_none();
                let claim = Claim { epoch, coordinator, node: node.node, size_bytes, place, joins: None, also };
                Ok((address, claim, unclaimed))
            })
            .collect::<Result<_, AssemblyError>>()?;
        for (address, claim, _) in claims.iter().filter(|(_, _, unclaimed)| *unclaimed) {
            let also = ClaimExtensions { reserve: true, ..ClaimExtensions::default() };
            let claim = Some(Claim { also, ..claim.clone() });
            let hello = Hello { protocol: frame::VERSION, pool: pool.into(), claim };
            let reserved = greet(connect, *address, &hello).await;
            reserved.map_err(|why| AssemblyError::Node { address: *address, why })?;
        }
        for (address, epoch) in taken {
            report(format!(
                "node {address}: taking it over from a coordinator that is still connected (epoch {epoch}): requests of that one's \
                 clients fail from now on"
            ));
        }
        let pace = Pace::new(control, addresses.len());
        let (mut claims, mut missing) = (claims.into_iter().peekable(), missing.into_iter());
        let degraded = missing.len();
        for (place, address) in (0..).zip(addresses) {
            let address = *address;
            match claims.next_if(|(claimed, ..)| *claimed == address) {
                Some((_, claim, _)) => {
                    let joined = NodeLink::join(connect, address, pool, claim, options, &pace, report.clone()).await;
                    links.push(joined.map_err(|why| AssemblyError::Node { address, why })?);
                }
                None => {
                    let why = missing.next().map_or(JoinError::Silent, |(_, why)| why);
                    links.push(NodeLink::missing(connect, address, pool, place, &why, &pace, report.clone()));
                }
            }
        }
        let mut description = format!("pool {pool} of {} node{}", links.len(), if links.len() == 1 { "" } else { "s" });
        if degraded > 0 {
            description += &format!(", degraded: read-only, {degraded} missing");
        }
        let info = Info { description, read_only: degraded > 0, ..Info::disk(layout.size_bytes()) };
        let (unflushed, reported_loss, last_flush) = (RefCell::default(), Cell::new(None), RefCell::default());
        let patience = Rc::new(LoadMonitor::default());
        let near = links.iter().any(NodeLink::is_on_this_machine);
        let _colocation = near.then(|| Colocation::start(patience.clone()));
        let volume = Self {
            info,
            layout,
            links: Rc::new(links),
            last_flush,
            zeroes: Zeroes::new(),
            report,
            flush_failure: unflushed,
            pace,
            reported_loss,
            load_monitor: patience,
            _colocation,
        };
        if volume.pace.is_doubtful() {
            volume.report_loss();
        }
        Ok(volume)
    }

    /// Where on the disk acknowledged writes may be lost: the node, offset and length. With stripes, a range includes bytes
    /// of other nodes.
    pub fn lost_ranges(&self) -> Vec<(SocketAddr, u64, u64)> {
        let ranges = |(nth, link): (usize, &NodeLink)| {
            let address = link.address();
            lost_disk_ranges(&self.layout, nth, &link.loss())
                .into_iter()
                .map(move |(begin, bytes)| (address, begin, bytes))
        };
        self.links.iter().enumerate().flat_map(ranges).collect()
    }

    /// The same for the node with this index.
    pub fn lost_ranges_of(&self, nth: usize) -> Vec<(u64, u64)> {
        self.links.get(nth).map_or_else(Vec::new, |link| lost_disk_ranges(&self.layout, nth, &link.loss()))
    }

    /// Identifies all that may be lost now, for `--accept-loss`; `None` if nothing is.
    pub fn loss_id(&self) -> Option<LossId> {
        let losses: Vec<_> =
            self.links.iter().map(|link| (link.claim().map_or("", |c| &c.node), link.loss())).collect();
        LossId::from_losses(losses.iter().map(|(node, loss)| (*node, loss)))
    }

    /// Where these bytes of a node are on the disk: offset and length; with stripes, it may include bytes of other nodes. `None` if the disk
    /// does not use them.
    pub fn disk_range(&self, node: usize, range: std::ops::Range<u64>) -> Option<(u64, u64)> {
        self.layout.disk_range(node, range).map(|range| (range.start, range.end - range.start))
    }

    /// Reports what may be lost, unless it was reported before.
    fn report_loss(&self) {
        let is_awaited = |link: &NodeLink| {
            let loss = link.loss();
            loss.id.is_empty() && !loss.causes.is_empty()
        };
        if self.links.iter().any(is_awaited) {
            // Its node will tell which ranges.
            return;
        }
        let id = self.loss_id();
        let Some(now) = id.filter(|_| self.reported_loss.replace(id) != id) else { return };
        for (nth, link) in self.links.iter().enumerate() {
            for (begin, bytes) in self.lost_ranges_of(nth) {
                let (node, why) = (link.address(), link.loss().why());
                (self.report)(format!(
                    "node {node} may have lost acknowledged writes in the {bytes} bytes from offset {begin} of the disk: {why}"
                ));
            }
        }
        (self.report)(format!(
            "writes and flushes are refused, reads are served: a client that was connected then may rely on lost data. Check the \
             ranges, then serve the pool again with --accept-loss {now}"
        ));
    }

    /// Checks that it may be written and flushed.
    fn check_writable(&self) -> Result<(), Failure> {
        if self.info.read_only {
            return Err(Failure::Degraded);
        }
        if !self.pace.is_doubtful() {
            return Ok(());
        }
        self.report_loss();
        Err(Failure::Lost)
    }

    /// The nodes that are missing, with the reasons: the disk is read-only then.
    pub fn missing(&self) -> Vec<String> {
        let why = |link: &NodeLink| match link.health() {
            Health::Missing(why) => Some(format!("node {}: {why}", link.address())),
            _ => None,
        };
        self.links.iter().filter_map(why).collect()
    }

    /// Bytes of the disk.
    pub fn size_bytes(&self) -> u64 {
        self.layout.size_bytes()
    }

    /// Why a node cannot be used, if there is one.
    pub fn unusable_reason(&self) -> Option<String> {
        self.links.iter().find_map(|link| match link.health() {
            Health::Ended(why) | Health::Missing(why) => Some(why),
            Health::Connecting(why) | Health::Away(why) => Some(format!("node {}: {why}", link.address())),
            Health::Serving | Health::Failing(_) => None,
        })
    }

    /// Waits until another coordinator has taken a node over, and returns why it is lost for good.
    pub async fn wait_until_fenced(&self) -> String {
        loop {
            let ended = self.links.iter().find_map(|link| match link.health() {
                Health::Ended(why) => Some(why),
                Health::Connecting(_) | Health::Away(_) | Health::Serving | Health::Failing(_) | Health::Missing(_) => {
                    None
                }
            });
            if let Some(why) = ended {
                return why;
            }
            tokio::time::sleep(FENCED_POLL_INTERVAL).await;
        }
    }

    /// Flushes what clients did not flush themselves, before the coordinator ends. A node that has nothing unflushed is not
    /// asked, and one that is not there is waited for briefly only: a node that ends in order flushes everything itself.
    ///
    /// # Errors
    /// The first [`Failure`] of a node.
    pub async fn flush_rest(&self) -> Result<(), Failure> {
        if self.info.read_only {
            return Ok(());
        }
        self.check_writable()?;
        let unflushed = self.links.iter().filter(|link| !link.all_flushed());
        let flushes = unflushed.map(|link| async move {
            let flush = link.ask(Operation::Flush, 0, 0, Bytes::new(), false);
            match link.health() {
                Health::Serving | Health::Failing(_) => flush.await,
                Health::Ended(_) | Health::Away(_) | Health::Connecting(_) | Health::Missing(_) => {
                    let late = || Failure::Deadline(link.address(), LAST_FLUSH_TIMEOUT, link.trouble());
                    tokio::time::timeout(LAST_FLUSH_TIMEOUT, flush).await.unwrap_or_else(|_| Err(late()))
                }
            }
        });
        first_failure(join_all(flushes).await)
    }

    /// Its nodes, in order.
    pub fn links(&self) -> &[NodeLink] {
        &self.links
    }

    /// Why the last flush failed, with the node's address; `None` if it did not.
    pub fn flush_failure(&self) -> Option<String> {
        self.flush_failure.borrow().clone()
    }

    /// Makes acknowledged writes durable, on every node; a failing node is reported once, until another one fails or a flush succeeds.
    ///
    /// # Errors
    /// The first [`Failure`] of a node.
    pub async fn flush_all(&self) -> Result<(), Failure> {
        if self.info.read_only {
            // Nothing was written, and there are nodes that cannot be asked.
            return Ok(());
        }
        self.check_writable()?;
        let flushed = self.next_flush().await;
        let why = flushed.as_ref().err().map(ToString::to_string);
        if *self.flush_failure.borrow() != why {
            if let Some(why) = &why {
                (self.report)(format!("a flush failed, clients get EIO: {why}"));
            }
            self.flush_failure.replace(why);
        }
        flushed
    }

    /// A flush of all nodes that has not begun: the last one requested, or a new one that begins when that has ended. So all
    /// who request one while one is in progress share the next (group commit).
    fn next_flush(&self) -> Shared<LocalBoxFuture<'static, Result<(), Failure>>> {
        let mut last = self.last_flush.borrow_mut();
        if let Some(SharedFlush { result, .. }) = last.as_ref().filter(|flush| !flush.begun.get()) {
            return result.clone();
        }
        let before = last.take().map(|flush| flush.result).filter(|result| result.peek().is_none());
        let (links, begun) = (self.links.clone(), Rc::<Cell<bool>>::default());
        let begins = begun.clone();
        let flush = async move {
            if let Some(before) = before {
                // Its result is that of its requesters.
                let _ = before.await;
            }
            begins.set(true);
            let flushes = links.iter().map(|link| link.ask(Operation::Flush, 0, 0, Bytes::new(), false));
            first_failure(join_all(flushes).await)
        };
        let result = flush.boxed_local().shared();
        *last = Some(SharedFlush { begun, result: result.clone() });
        result
    }

    /// The pieces of a range, each at most `most` bytes long.
    fn pieces(&self, offset: u64, length: u32, most: u32) -> impl Iterator<Item = Piece> {
        self.layout.pieces(offset, length).flat_map(move |piece| {
            (0..piece.length).step_by(most as usize).map(move |at| Piece {
                node: piece.node,
                offset: piece.offset + u64::from(at),
                length: most.min(piece.length - at),
                request_offset: piece.request_offset + at,
            })
        })
    }

    /// Reads.
    ///
    /// # Errors
    /// The first [`Failure`] of a node.
    pub async fn read_range(&self, offset: u64, length: u32) -> Result<Bytes, Failure> {
        self.read_pieces(offset, length, |piece| {
            self.links[piece.node].ask(Operation::Read, piece.offset, piece.length, Bytes::new(), false)
        })
        .await
    }

    /// Reads without checksums, to measure their cost.
    ///
    /// # Errors
    /// As [`Volume::read_range`].
    pub async fn read_range_unchecked(&self, offset: u64, length: u32) -> Result<Bytes, Failure> {
        self.read_pieces(offset, length, |piece| self.links[piece.node].read_unchecked(piece.offset, piece.length))
            .await
    }

    /// Reads in parts: each is from one node's reply, and none is copied.
    ///
    /// # Errors
    /// The first [`Failure`] of a node.
    pub async fn read_in_parts(&self, offset: u64, length: u32) -> Result<Vec<Bytes>, Failure> {
        if let Some(Piece { node, offset, .. }) = self.single_piece(offset, length) {
            return Ok(vec![self.links[node].ask(Operation::Read, offset, length, Bytes::new(), false).await?]);
        }
        let (mut shares, count) = self.shares(offset, length);
        let ask = |s: &NodeShare| self.links[s.node].ask(Operation::Read, s.offset, s.length, Bytes::new(), false);
        let mut answers = try_join_all(shares.iter().map(ask)).await?;
        let mut parts = vec![Bytes::new(); count];
        for (share, answer) in shares.iter_mut().zip(&mut answers) {
            for (place, length) in share.pieces.drain(..) {
                parts[place] = answer.split_to(length as usize);
            }
            assert!(answer.is_empty(), "a node's answer has bytes of no piece");
        }
        Ok(parts)
    }

    /// Reads the range without asking a node ([`crate::store::DirectReader`]); otherwise false, and the content of `to` is arbitrary.
    fn read_direct(&self, offset: u64, to: &mut [u8]) -> bool {
        self.layout.pieces(offset, to.len() as u32).all(|piece| {
            let begin = piece.request_offset as usize;
            self.links[piece.node].read_direct(piece.offset, &mut to[begin..begin + piece.length as usize])
        })
    }

    /// As [`Volume::read_direct`], into new buffers.
    fn read_direct_parts(&self, offset: u64, length: u32) -> Option<Vec<Bytes>> {
        if !self.links.iter().all(NodeLink::is_direct) {
            return None;
        }
        let part = |at: u32| {
            let mut buffer = Buffer::new((length - at).min(DATA_BYTES_MAX as u32) as usize);
            self.read_direct(offset + u64::from(at), &mut buffer).then(|| buffer.into_bytes())
        };
        (0..length).step_by(DATA_BYTES_MAX).map(part).collect()
    }

    /// The range, if a single request covers it; true for most ranges.
    fn single_piece(&self, offset: u64, length: u32) -> Option<Piece> {
        self.pieces(offset, length, DATA_BYTES_MAX as u32).next().filter(|piece| piece.length == length)
    }

    /// A range's pieces merged per node, up to the size of one request; and the number of pieces.
    fn shares(&self, offset: u64, length: u32) -> (Vec<NodeShare>, usize) {
        let (mut shares, mut count) = (Vec::<NodeShare>::new(), 0);
        // The last share of each node.
        let mut last = vec![None; self.links.len()];
        for (place, piece) in self.pieces(offset, length, DATA_BYTES_MAX as u32).enumerate() {
            count += 1;
            let share = last[piece.node].and_then(|nth: usize| shares.get_mut(nth)).filter(|share| {
                let fits = (share.length + piece.length) as usize <= DATA_BYTES_MAX;
                fits && share.offset + u64::from(share.length) == piece.offset
            });
            if let Some(share) = share {
                share.length += piece.length;
                share.pieces.push((place, piece.length));
            } else {
                last[piece.node] = Some(shares.len());
                let Piece { node, offset, length, .. } = piece;
                shares.push(NodeShare { node, offset, length, pieces: vec![(place, length)] });
            }
        }
        let share_bytes: u64 = shares.iter().map(|share| u64::from(share.length)).sum();
        assert_eq!(share_bytes, u64::from(length), "the nodes' shares are not the whole range");
        (shares, count)
    }

    async fn read_pieces<F>(&self, offset: u64, length: u32, ask: impl Fn(Piece) -> F) -> Result<Bytes, Failure>
    where
        F: Future<Output = Result<Bytes, Failure>>,
    {
        let mut pieces = self.pieces(offset, length, DATA_BYTES_MAX as u32);
        let Some(first) = pieces.next() else { return Ok(Bytes::new()) };
        if first.length == length {
            return ask(first).await;
        }
        let parts = try_join_all(std::iter::once(first).chain(pieces).map(ask)).await?;
        let mut data = BytesMut::with_capacity(length as usize);
        parts.iter().for_each(|part| data.extend_from_slice(part));
        assert_eq!(data.len(), length as usize, "the nodes' answers are not the whole range");
        Ok(data.freeze())
    }

    /// Writes.
    ///
    /// # Errors
    /// The first [`Failure`] of a node; other nodes may have written their part.
    pub async fn write_range(&self, offset: u64, data: Bytes, durable: bool) -> Result<(), Failure> {
        self.check_writable()?;
        if let Some(Piece { node, offset, length, .. }) = self.single_piece(offset, data.len() as u32) {
            return self.links[node].ask(Operation::Write, offset, length, data, durable).await.map(drop);
        }
        let (shares, count) = self.shares(offset, data.len() as u32);
        // The offset of each piece in the data.
        let mut begins = vec![0; count + 1];
        for (place, length) in shares.iter().flat_map(|share| &share.pieces) {
            begins[place + 1] = *length as usize;
        }
        (0..count).for_each(|nth| begins[nth + 1] += begins[nth]);
        assert_eq!(begins[count], data.len(), "the pieces are not the whole data");
        let writes = shares.iter().map(|share| {
            let parts = share.pieces.iter().map(|(place, _)| data.slice(begins[*place]..begins[place + 1])).collect();
            self.links[share.node].write_parts(share.offset, parts, durable)
        });
        first_failure(join_all(writes).await)
    }

    async fn trim_range(&self, offset: u64, length: u32, durable: bool) -> Result<(), Failure> {
        self.check_writable()?;
        let shares = self.layout.shares(offset, length).map(|(node, begin, length)| async move {
            for at in (0..length).step_by(TRIM_PIECE_BYTES as usize) {
                let (now, begin) = (TRIM_PIECE_BYTES.min(length - at), begin + u64::from(at));
                self.links[node].ask(Operation::Trim, begin, now, Bytes::new(), durable).await?;
            }
            Ok(Bytes::new())
        });
        first_failure(join_all(shares).await)
    }
}

/// A flush of all nodes, shared by those who requested it before it began.
struct SharedFlush {
    begun: Rc<Cell<bool>>,
    result: Shared<LocalBoxFuture<'static, Result<(), Failure>>>,
}

/// One request to a node: pieces of a range that are contiguous there, though they may be apart on the disk.
#[derive(Debug)]
struct NodeShare {
    node: usize,
    offset: u64,
    length: u32,
    /// The indices of its pieces in the range, and their lengths.
    pieces: Vec<(usize, u32)>,
}

/// The first failure. All results are awaited before: a partially failed request must not continue after its reply.
fn first_failure(results: Vec<Result<Bytes, Failure>>) -> Result<(), Failure> {
    results.into_iter().try_for_each(|result| result.map(drop))
}

/// Converts to an NBD error that names the node.
fn nbd_error(failure: Failure) -> Error {
    match failure {
        Failure::Node(_, Status::Full, _) => Error::NoSpaceBecause(failure.to_string()),
        Failure::Node(..)
        | Failure::Ended(_)
        | Failure::Deadline(..)
        | Failure::Stalled(..)
        | Failure::Lost
        | Failure::Degraded => Error::Because(failure.to_string()),
    }
}

impl Export for Volume {
    fn info(&self) -> &Info {
        &self.info
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Bytes, Error> {
        let _under_way = self.load_monitor.begin_request(length.into());
        self.read_range(offset, length).await.map_err(nbd_error)
    }

    fn read_now(&self, offset: u64, length: u32, out: &mut BytesMut) -> Option<Result<(), Error>> {
        if length as usize >= LARGE_BYTES || !self.links.iter().all(NodeLink::is_direct) {
            return None;
        }
        let begin = out.len();
        out.resize(begin + length as usize, 0);
        self.read_direct(offset, &mut out[begin..]).then_some(Ok(()))
    }

    async fn read_parts(&self, offset: u64, length: u32) -> Result<Vec<Bytes>, Error> {
        // A smaller read was tried above.
        if length as usize >= LARGE_BYTES
            && let Some(parts) = self.read_direct_parts(offset, length)
        {
            return Ok(parts);
        }
        let _under_way = self.load_monitor.begin_request(length.into());
        self.read_in_parts(offset, length).await.map_err(nbd_error)
    }

    async fn write(&self, offset: u64, data: Bytes, durable: bool) -> Result<(), Error> {
        let _under_way = self.load_monitor.begin_request(data.len() as u64);
        self.write_range(offset, data, durable).await.map_err(nbd_error)
    }

    async fn flush(&self) -> Result<(), Error> {
        self.flush_all().await.map_err(nbd_error)
    }

    async fn trim(&self, offset: u64, length: u32, durable: bool) -> Result<(), Error> {
        self.trim_range(offset, length, durable).await.map_err(nbd_error)
    }

    async fn extents(&self, offset: u64, length: u32) -> Result<Vec<Extent>, Error> {
        self.map_range(offset, length).await.map_err(nbd_error)
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        length: u32,
        durable: bool,
        allocate: bool,
        fast: bool,
    ) -> Result<(), Error> {
        if fast {
            // A node's medium may have to write the zeroes.
            return Err(Error::Unsupported);
        }
        if !allocate {
            return self.trim(offset, length, durable).await;
        }
        self.zeroes.write_to(self, offset, length, durable).await
    }
}
