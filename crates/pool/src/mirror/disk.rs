//! A mirrored disk: the machine ([`super::machine`]) with links to nodes, and a clock.
//!
//! The link of a node that is recorded out is closed, and the node is claimed anew: it accepts that when no request of the old
//! connections can still be executed. So nothing that it was asked before can overwrite what it is given now.

use super::join::{self, Claims, JoinedNode};
use super::machine::{Action, Fault, Kind, Machine, NodeState, Reason, RequestError, RequestId, Token, Work, members};
use super::placement::Placement;
use super::{MirrorError, Mirroring};
use crate::connect::Connect;
use crate::frame::{DATA_BYTES_MAX, Operation, Status, Stretch};
use crate::link::{Control, Failure, Health, NodeLink, Options};
use crate::zeroes::Zeroes;
use bytes::{Bytes, BytesMut};
use futures_util::future::try_join_all;
use nbd::{Error, Export, Extent, Info};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// How often late answers and broken connections are looked for.
const TICK_INTERVAL: Duration = Duration::from_millis(10);
/// The pause before a node that was recorded out is claimed again, and between attempts.
const REJOIN_PAUSE: Duration = Duration::from_millis(200);
/// The same after a write or flush has failed there.
const FAILED_PAUSE: Duration = Duration::from_secs(10);
/// How long the first record may take.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

struct Pending {
    data: Bytes,
    reply: oneshot::Sender<Result<Bytes, Error>>,
}

/// A connected node, and what it was asked: dropping it ends both.
struct Slot {
    link: Rc<NodeLink>,
    tasks: JoinSet<()>,
}

struct Inner {
    own: Weak<Self>,
    claims: Claims,
    machine: RefCell<Machine>,
    placement: Rc<Placement>,
    slots: RefCell<Vec<Option<Slot>>>,
    requests: RefCell<HashMap<RequestId, Pending>>,
    /// Answers that are being handled.
    answers: RefCell<HashMap<Token, Result<Bytes, Failure>>>,
    last_request: Cell<RequestId>,
    begin: Instant,
    zeroes: Zeroes,
    fenced: RefCell<Option<String>>,
    report: Rc<dyn Fn(String)>,
}

/// A disk of which each chunk has several copies.
pub struct MirrorDisk {
    info: Info,
    inner: Rc<Inner>,
    ticker: AbortHandle,
}

impl std::fmt::Debug for MirrorDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MirrorDisk").field("info", &self.info).field("nodes", &self.nodes()).finish_non_exhaustive()
    }
}

impl Drop for MirrorDisk {
    fn drop(&mut self) {
        self.ticker.abort();
    }
}

/// The state of one node, for people.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorNode {
    pub address: SocketAddr,
    pub is_connected: bool,
    /// Requests go on without it.
    pub is_out: bool,
    /// Its flushes take long, and are not waited for.
    pub is_slow: bool,
    /// What it has to be given before it is whole.
    pub lacks_bytes: u64,
}

impl MirrorDisk {
    /// Claims the nodes, as many as there are and at least a majority, with an epoch higher than any that they have seen.
    ///
    /// # Errors
    /// [`MirrorError`].
    pub async fn join(
        connect: &Connect,
        addresses: &[SocketAddr],
        pool: &str,
        mirroring: &Mirroring,
        options: &Options,
        control: &Control,
        report: Rc<dyn Fn(String)>,
    ) -> Result<Self, MirrorError> {
        let (claims, machine, joined) =
            join::join(connect, addresses, pool, mirroring, options, control, report.clone()).await?;
        let placement = claims.placement.clone();
        let description = format!("pool {pool} of {} nodes, {} copies", addresses.len(), placement.copies());
        let info = Info { description, ..Info::disk(placement.size_bytes()) };
        let mut slots: Vec<Option<Slot>> = addresses.iter().map(|_| None).collect();
        for JoinedNode { node, link, .. } in joined {
            slots[node] = Some(Slot { link: Rc::new(link), tasks: JoinSet::new() });
        }
        let absent: Vec<usize> = (0..slots.len()).filter(|node| slots[*node].is_none()).collect();
        let inner = Rc::new_cyclic(|own| Inner {
            own: own.clone(),
            claims,
            machine: RefCell::new(machine),
            placement,
            slots: RefCell::new(slots),
            requests: RefCell::default(),
            answers: RefCell::default(),
            last_request: Cell::new(0),
            begin: Instant::now(),
            zeroes: Zeroes::new(),
            fenced: RefCell::default(),
            report,
        });
        absent.into_iter().for_each(|node| inner.rejoin(node, REJOIN_PAUSE));
        inner.act();
        let ticker = tokio::task::spawn_local(Inner::run(Rc::downgrade(&inner))).abort_handle();
        let disk = Self { info, inner, ticker };
        while !disk.inner.machine.borrow().is_ready() {
            if let Some(why) = disk.inner.fenced.borrow().clone() {
                return Err(MirrorError::Fenced(why));
            }
            if disk.inner.begin.elapsed() > READY_TIMEOUT {
                let needed = disk.inner.machine.borrow().needed();
                return Err(MirrorError::Needs(disk.inner.names(needed)));
            }
            tokio::time::sleep(TICK_INTERVAL).await;
        }
        Ok(disk)
    }

    pub fn nodes(&self) -> Vec<MirrorNode> {
        let region_bytes = self.inner.placement.region_bytes();
        let state = |(state, address): (NodeState, &SocketAddr)| MirrorNode {
            address: *address,
            is_connected: state.up,
            is_out: state.out,
            is_slow: state.slow,
            lacks_bytes: u64::from(state.lacks) * region_bytes,
        };
        self.inner.machine.borrow().node_states().into_iter().zip(&self.inner.claims.addresses).map(state).collect()
    }

    pub fn copies(&self) -> usize {
        self.inner.placement.copies()
    }

    /// The number of copies that have everything acknowledged and flushed, durably: of the region with the fewest.
    pub fn durable_copies(&self) -> u32 {
        self.inner.machine.borrow().durable_copies()
    }

    /// Why it cannot be used now, if it cannot.
    pub fn unusable_reason(&self) -> Option<String> {
        let needed = self.inner.machine.borrow().needed();
        (needed != 0).then(|| self.inner.needs(needed))
    }

    /// Completes, with the reason, when another coordinator has taken over.
    pub async fn wait_until_fenced(&self) -> String {
        loop {
            if let Some(why) = self.inner.fenced.borrow().clone() {
                return why;
            }
            tokio::time::sleep(REJOIN_PAUSE).await;
        }
    }

    /// The links of connected nodes.
    pub fn links(&self) -> Vec<Option<Rc<NodeLink>>> {
        self.inner.slots.borrow().iter().map(|slot| slot.as_ref().map(|slot| slot.link.clone())).collect()
    }

    pub(super) fn placement(&self) -> &Placement {
        &self.inner.placement
    }

    /// A block of a node's store is damaged.
    pub(super) fn mend(&self, node: usize, offset: u64) {
        let regions = self.inner.placement.regions_of(node, offset..offset + 1);
        regions.into_iter().for_each(|region| self.inner.machine.borrow_mut().mend(node, region, self.inner.now_ms()));
        self.inner.act();
    }

    pub fn pool(&self) -> &str {
        &self.inner.claims.pool
    }

    pub fn epoch(&self) -> u64 {
        self.inner.claims.epoch
    }

    /// The parts of a range in regions, each at most `most` bytes.
    fn parts(&self, offset: u64, length: u32, most: u64) -> impl Iterator<Item = (u64, u32)> + use<> {
        let (region_bytes, end) = (self.inner.placement.region_bytes(), offset + u64::from(length));
        let mut at = offset;
        std::iter::from_fn(move || {
            let next = end.min((at / region_bytes + 1) * region_bytes).min(at + most);
            let part = (at, (next - at) as u32);
            at = next;
            (part.1 > 0).then_some(part)
        })
    }

    async fn each(&self, kind: Kind, offset: u64, length: u32, data: Bytes) -> Result<Vec<Bytes>, Error> {
        let most = if matches!(kind, Kind::Trim { .. }) { u64::MAX / 2 } else { DATA_BYTES_MAX as u64 };
        let ask = |(at, length): (u64, u32)| {
            let begin = (at - offset) as usize;
            let data = if data.is_empty() { Bytes::new() } else { data.slice(begin..begin + length as usize) };
            self.inner.ask(kind, at, length, data)
        };
        try_join_all(self.parts(offset, length, most).map(ask)).await
    }
}

impl Inner {
    fn now_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    fn names(&self, nodes: u64) -> Vec<String> {
        members(nodes).filter_map(|node| self.claims.addresses.get(node)).map(ToString::to_string).collect()
    }

    fn needs(&self, nodes: u64) -> String {
        format!("not enough copies are there; needed: {}", self.names(nodes).join(", "))
    }

    async fn ask(&self, kind: Kind, offset: u64, length: u32, data: Bytes) -> Result<Bytes, Error> {
        let request = self.last_request.get() + 1;
        self.last_request.set(request);
        let (reply, answer) = oneshot::channel();
        self.requests.borrow_mut().insert(request, Pending { data, reply });
        self.machine.borrow_mut().request(request, kind, offset, length, self.now_ms());
        self.act();
        answer.await.unwrap_or(Err(Error::Io))
    }

    /// Does what the machine wants.
    pub(super) fn act(&self) {
        loop {
            let actions = self.machine.borrow_mut().take_actions();
            if actions.is_empty() {
                return;
            }
            actions.into_iter().for_each(|action| self.act_on(action));
        }
    }

    fn act_on(&self, action: Action) {
        match action {
            Action::Send { token, node, work } => self.send(token, node, work),
            Action::Reply { request, result } => {
                let Some(pending) = self.requests.borrow_mut().remove(&request) else { return };
                let error = |failure: &Failure| match failure {
                    Failure::Node(_, Status::Full, _) => Error::NoSpaceBecause(failure.to_string()),
                    other => Error::Because(other.to_string()),
                };
                let answers = self.answers.borrow();
                let result = match result {
                    Ok(token) => Ok(answers.get(&token).and_then(|answer| answer.clone().ok()).unwrap_or_default()),
                    Err(RequestError::Needs(nodes)) => Err(Error::Because(self.needs(nodes))),
                    Err(RequestError::Failed(token)) => {
                        Err(answers.get(&token).and_then(|answer| answer.as_ref().err()).map_or(Error::Io, error))
                    }
                };
                // The client may be gone.
                let _ = pending.reply.send(result);
            }
            Action::Drop { node, why: reason } => {
                let why = match reason {
                    Reason::Late => "does not answer in time",
                    Reason::Failed => "a write or flush failed there",
                };
                (self.report)(format!("node {}: {why}; requests go on without it", self.claims.addresses[node]));
                // A medium that fails is not asked again at once.
                self.close(node, if reason == Reason::Failed { FAILED_PAUSE } else { REJOIN_PAUSE });
            }
        }
    }

    /// Ends a node's link, and claims the node anew.
    fn close(&self, node: usize, pause: Duration) {
        // Its tasks end later, as one of them may be running.
        if self.slots.borrow_mut()[node].take().is_some() {
            self.rejoin(node, pause);
        }
    }

    /// A node's link has broken.
    fn lose(&self, node: usize, link: &Rc<NodeLink>, why: &str) {
        let is_this = self.slots.borrow()[node].as_ref().is_some_and(|slot| Rc::ptr_eq(&slot.link, link));
        if is_this {
            (self.report)(format!("node {}: the connection is lost: {why}", self.claims.addresses[node]));
            self.close(node, REJOIN_PAUSE);
            self.machine.borrow_mut().node_down(node, self.now_ms());
            self.act();
        }
    }

    fn send(&self, token: Token, node: usize, work: Work) {
        let (operation, offset, length, data, durable) = match work {
            Work::Probe { offset } => (Operation::Read, offset, 4096, Bytes::new(), false),
            Work::Flush => (Operation::Flush, 0, 0, Bytes::new(), false),
            Work::Record { offset, bytes } => (Operation::Write, offset, bytes.len() as u32, bytes, true),
            Work::CopyRead { offset, length } => (Operation::Read, offset, length, Bytes::new(), false),
            Work::CopyWrite { read, offset, length } => {
                let data = self.answers.borrow().get(&read).and_then(|answer| answer.clone().ok()).unwrap_or_default();
                if data.iter().all(|byte| *byte == 0) {
                    (Operation::Trim, offset, length, Bytes::new(), false)
                } else {
                    (Operation::Write, offset, length, data, false)
                }
            }
            Work::Request { request, kind, offset, length } => {
                let data = || {
                    let requests = self.requests.borrow();
                    requests.get(&request).map(|pending| pending.data.clone()).unwrap_or_default()
                };
                match kind {
                    Kind::Read => (Operation::Read, offset, length, Bytes::new(), false),
                    Kind::Map => (Operation::Map, offset, length, Bytes::new(), false),
                    Kind::Write { durable } => (Operation::Write, offset, length, data(), durable),
                    Kind::Trim { durable } => (Operation::Trim, offset, length, Bytes::new(), durable),
                    Kind::Flush => (Operation::Flush, 0, 0, Bytes::new(), false),
                }
            }
        };
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots[node].as_mut() else { return };
        while slot.tasks.try_join_next().is_some() {}
        let (link, inner) = (slot.link.clone(), self.own.clone());
        slot.tasks.spawn_local(async move {
            let result = link.ask(operation, offset, length, data, durable).await;
            let Some(inner) = inner.upgrade() else { return };
            let fault = match &result {
                Ok(_) => Ok(()),
                Err(Failure::Node(_, Status::Damaged, _)) => Err(Fault::Damaged),
                Err(Failure::Node(..)) => Err(Fault::Other),
                // Not an answer: what the node was asked is void.
                Err(why) => return inner.lose(node, &link, &why.to_string()),
            };
            drop(link);
            inner.answers.borrow_mut().insert(token, result);
            inner.machine.borrow_mut().answer(token, fault, inner.now_ms());
            inner.act();
            if !inner.machine.borrow().is_held(token) {
                inner.answers.borrow_mut().remove(&token);
            }
        });
    }

    /// Claims a node again until it succeeds.
    fn rejoin(&self, node: usize, mut pause: Duration) {
        let own = self.own.clone();
        tokio::task::spawn_local(async move {
            let mut told = String::new();
            loop {
                tokio::time::sleep(std::mem::replace(&mut pause, REJOIN_PAUSE)).await;
                let Some(inner) = own.upgrade() else { return };
                let prepare = |lost: &[u32]| {
                    let prepared = inner.machine.borrow_mut().prepare_return(node, lost);
                    inner.act();
                    prepared
                };
                match join::rejoin(&inner.claims, node, prepare).await {
                    Ok(JoinedNode { link, slot, has, .. }) => {
                        inner.slots.borrow_mut()[node] = Some(Slot { link: Rc::new(link), tasks: JoinSet::new() });
                        inner.machine.borrow_mut().node_up(node, slot, has, inner.now_ms());
                        (inner.report)(format!("node {}: it is back", inner.claims.addresses[node]));
                        return inner.act();
                    }
                    Err(MirrorError::Recording(_)) => {}
                    Err(MirrorError::Fenced(why)) => {
                        inner.fenced.replace(Some(why));
                        return;
                    }
                    Err(why) => {
                        let why = why.to_string();
                        if why != told {
                            (inner.report)(format!("{why}; retrying"));
                            told = why;
                        }
                    }
                }
            }
        });
    }

    /// Looks for late answers and broken connections, as long as the disk is there.
    async fn run(own: Weak<Self>) {
        loop {
            tokio::time::sleep(TICK_INTERVAL).await;
            let Some(inner) = own.upgrade() else { return };
            let down = |(node, slot): (usize, &Option<Slot>)| match slot.as_ref().map(|slot| slot.link.health()) {
                Some(Health::Serving | Health::Failing(_)) | None => None,
                Some(Health::Ended(why) | Health::Away(why) | Health::Connecting(why) | Health::Missing(why)) => {
                    Some((node, slot.as_ref()?.link.clone(), why))
                }
            };
            let broken: Vec<_> = inner.slots.borrow().iter().enumerate().filter_map(down).collect();
            broken.into_iter().for_each(|(node, link, why)| inner.lose(node, &link, &why));
            inner.machine.borrow_mut().tick(inner.now_ms());
            inner.act();
            let machine = inner.machine.borrow();
            inner.answers.borrow_mut().retain(|token, _| machine.is_held(*token));
        }
    }
}

impl Export for MirrorDisk {
    fn info(&self) -> &Info {
        &self.info
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Bytes, Error> {
        let mut parts = self.each(Kind::Read, offset, length, Bytes::new()).await?;
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        let mut data = BytesMut::with_capacity(length as usize);
        parts.iter().for_each(|part| data.extend_from_slice(part));
        Ok(data.freeze())
    }

    async fn read_parts(&self, offset: u64, length: u32) -> Result<Vec<Bytes>, Error> {
        self.each(Kind::Read, offset, length, Bytes::new()).await
    }

    async fn write(&self, offset: u64, data: Bytes, durable: bool) -> Result<(), Error> {
        self.each(Kind::Write { durable }, offset, data.len() as u32, data).await.map(drop)
    }

    async fn flush(&self) -> Result<(), Error> {
        self.inner.ask(Kind::Flush, 0, 0, Bytes::new()).await.map(drop)
    }

    async fn trim(&self, offset: u64, length: u32, durable: bool) -> Result<(), Error> {
        // A few regions at a time: a trim may cover the whole disk.
        for (at, part) in self.parts(offset, length, u64::MAX / 2) {
            self.inner.ask(Kind::Trim { durable }, at, part, Bytes::new()).await?;
        }
        Ok(())
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
            return Err(Error::Unsupported);
        }
        if !allocate {
            return self.trim(offset, length, durable).await;
        }
        self.inner.zeroes.write_to(self, offset, length, durable).await
    }

    async fn extents(&self, offset: u64, length: u32) -> Result<Vec<Extent>, Error> {
        // The first region is enough: a client asks for the rest.
        let Some((at, part)) = self.parts(offset, length, u64::MAX / 2).next() else { return Ok(Vec::new()) };
        let known = self.inner.ask(Kind::Map, at, part, Bytes::new()).await?;
        let stretches = Stretch::parse_all(&known, part).ok_or(Error::Io)?;
        let extent = |stretch: Stretch| Extent { length: stretch.length, hole: stretch.hole, zero: stretch.hole };
        Ok(stretches.into_iter().map(extent).collect())
    }
}
