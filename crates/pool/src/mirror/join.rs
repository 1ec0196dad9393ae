//! The claims of a mirror's nodes: of as many as answer when it begins, at least a majority, and of each that comes later or returns.

use super::machine::{Machine, Reached, Takeover, TakeoverError, members};
use super::placement::{Member, Placement};
use super::record::{Identity, Record, RecordError, SLOT_BYTES};
use super::{MirrorError, Mirroring, Mutant};
use crate::connect::Connect;
use crate::frame::{self, Operation, Status};
use crate::hello::{Hello, Welcome};
use crate::link::{Control, Failure, JoinError, NodeLink, Options, Pace, greet};
use crate::protocol::{Claim, ClaimExtensions, Loss, LossId, MirrorPosition, StorePosition};
use crate::store::check_belongs;
use crate::volume::assembly::{ASSEMBLY_RETRY_PAUSE, greet_all};
use crate::volume::coordinator_name;
use bytes::Bytes;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// How long all nodes are waited for, once enough are there.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(2);

/// What is needed to claim a node.
pub(super) struct Claims {
    pub connect: Connect,
    pub addresses: Vec<SocketAddr>,
    pub pool: String,
    pub epoch: u64,
    coordinator: String,
    pub placement: Rc<Placement>,
    pub identity: Identity,
    mirror: MirrorPosition,
    options: Options,
    control: Control,
    report: Rc<dyn Fn(String)>,
}

/// A claimed node.
pub(super) struct JoinedNode {
    pub node: usize,
    pub link: NodeLink,
    /// The slot of its newest record.
    pub slot: Option<u64>,
    /// The sequence of that record, if it is known to be of this coordinator, or 0.
    pub has: u64,
}

impl Claims {
    async fn look(&self, node: usize) -> Result<Welcome, MirrorError> {
        let look = Hello { protocol: frame::VERSION, pool: self.pool.clone(), claim: None };
        let address = self.addresses[node];
        let seen = greet(&self.connect, address, &look).await;
        let (_, welcome) = seen.map_err(|why| MirrorError::Node { address, why })?;
        Ok(welcome)
    }

    fn claim(&self, node: usize, welcome: &Welcome, accepts: &Loss) -> Claim {
        let place = StorePosition {
            index: node as u32,
            count: self.addresses.len() as u32,
            stripe_bytes: 0,
            mirror: Some(self.mirror.clone()),
        };
        let (coordinator, name) = (self.coordinator.clone(), welcome.node.clone());
        let also = ClaimExtensions {
            accepts: accepts.ranges.clone(),
            accepts_id: accepts.id.clone(),
            ..ClaimExtensions::default()
        };
        Claim { epoch: self.epoch, coordinator, node: name, size_bytes: welcome.size_bytes, place, joins: None, also }
    }

    /// Checks that a node may be one of these.
    fn check(&self, node: usize, welcome: &Welcome) -> Result<(), MirrorError> {
        let address = self.addresses[node];
        check_durable(address, welcome)?;
        let (is, was) = (&welcome.node, &self.identity.names[node]);
        if !was.is_empty() && is != was {
            return Err(MirrorError::OtherNode { address, is: is.clone(), was: was.clone() });
        }
        let wanted = self.claim(node, welcome, &Loss::default()).place;
        check_belongs((&welcome.pool, welcome.place.as_ref()), (&self.pool, &wanted))
            .map_err(|why| MirrorError::Node { address, why: JoinError::Refused(why.to_string()) })
    }

    /// Claims a node, and reads its records.
    async fn join_node(&self, node: usize, welcome: &Welcome) -> Result<(NodeLink, Vec<Option<Bytes>>), MirrorError> {
        let address = self.addresses[node];
        let wrong = |why| match why {
            JoinError::Fenced(why) => MirrorError::Fenced(format!("node {address}: {why}")),
            why => MirrorError::Node { address, why },
        };
        // Each node has its own pace: what one may have lost does not concern the others.
        let pace = Pace::new(&self.control, self.addresses.len());
        let claim = self.claim(node, welcome, &welcome.loss);
        let joined =
            NodeLink::join(&self.connect, address, &self.pool, claim, &self.options, &pace, self.report.clone());
        let link = joined.await.map_err(wrong)?;
        let mut slots = Vec::new();
        for slot in 0..2 {
            let at = self.placement.meta_offset(node) + slot * SLOT_BYTES;
            match link.ask(Operation::Read, at, SLOT_BYTES as u32, Bytes::new(), false).await {
                Ok(bytes) => slots.push(Some(bytes)),
                // Damage in one slot is what the other is for.
                Err(Failure::Node(_, Status::Damaged, _)) => slots.push(None),
                Err(why) => return Err(MirrorError::Record { address, why: why.to_string() }),
            }
        }
        Ok((link, slots))
    }

    /// The regions in which a node may have lost writes.
    fn lost_regions(&self, node: usize, loss: &Loss) -> Vec<u32> {
        let regions =
            |(begin, bytes): &(u64, u64)| self.placement.regions_of(node, *begin..begin.saturating_add(*bytes));
        loss.ranges.iter().flat_map(regions).collect()
    }
}

fn check_durable(address: SocketAddr, welcome: &Welcome) -> Result<(), MirrorError> {
    match welcome.durable {
        Some(true) => Ok(()),
        Some(false) => Err(MirrorError::Volatile(address)),
        None => Err(MirrorError::Older(address)),
    }
}

/// The newest record of a node, and its slot. A slot without data is damaged.
fn newest(
    address: SocketAddr,
    slots: &[Option<Bytes>],
    identity: &Identity,
) -> Result<Option<(Record, u64)>, MirrorError> {
    let mut found: Option<(Record, u64)> = None;
    for (slot, bytes) in (0..).zip(slots) {
        let Some(bytes) = bytes else { continue };
        match Record::decode(bytes, identity) {
            Ok(record) if found.as_ref().is_none_or(|(best, _)| best.generation() < record.generation()) => {
                found = Some((record, slot));
            }
            Ok(_) | Err(RecordError::Absent) => {}
            Err(why) => return Err(MirrorError::Record { address, why: why.to_string() }),
        }
    }
    if found.is_none() && slots.contains(&None) {
        return Err(MirrorError::Record { address, why: "its record is damaged".into() });
    }
    Ok(found)
}

/// Claims those that answer; tried until enough do.
pub(super) async fn join(
    connect: &Connect,
    addresses: &[SocketAddr],
    pool: &str,
    mirroring: &Mirroring,
    options: &Options,
    control: &Control,
    report: Rc<dyn Fn(String)>,
) -> Result<(Claims, Machine, Vec<JoinedNode>), MirrorError> {
    let (begin, mut told) = (Instant::now(), String::new());
    loop {
        let left = options.wait.saturating_sub(begin.elapsed());
        let once = try_join(connect, addresses, pool, mirroring, options, control, report.clone()).await;
        match once {
            Err(MirrorError::Needs(nodes)) if !left.is_zero() => {
                let missing = nodes.join(", ");
                if missing != told {
                    report(format!("waiting for nodes, for up to {:.0} s: {missing}", left.as_secs_f64().ceil()));
                    told = missing;
                }
                tokio::time::sleep(ASSEMBLY_RETRY_PAUSE).await;
            }
            done => return done,
        }
    }
}

async fn try_join(
    connect: &Connect,
    addresses: &[SocketAddr],
    pool: &str,
    mirroring: &Mirroring,
    options: &Options,
    control: &Control,
    report: Rc<dyn Fn(String)>,
) -> Result<(Claims, Machine, Vec<JoinedNode>), MirrorError> {
    let look = Hello { protocol: frame::VERSION, pool: pool.into(), claim: None };
    let seen = greet_all(connect, addresses, &look, OTHERS_TIMEOUT.min(options.wait), &|_| {}).await;
    let mut there: Vec<(usize, Welcome)> = Vec::new();
    let mut absent = Vec::new();
    for (node, seen) in seen.into_iter().enumerate() {
        let address = addresses[node];
        match seen {
            Ok(welcome) => {
                check_durable(address, &welcome)?;
                if let Some((first, _)) = there.iter().find(|(_, other)| other.node == welcome.node) {
                    return Err(MirrorError::Twice { first: addresses[*first], second: address });
                }
                there.push((node, welcome));
            }
            Err(JoinError::Refused(why)) => {
                return Err(MirrorError::Node { address, why: JoinError::Refused(why) });
            }
            Err(why) => absent.push(format!("{address} ({why})")),
        }
    }
    let count = addresses.len();
    if there.is_empty() || (count > 2 && there.len() * 2 <= count) {
        return Err(MirrorError::Needs(absent));
    }
    // A new node among those of a pool that has data would count as a copy.
    if let Some((new, _)) = there.iter().find(|(_, welcome)| welcome.place.is_none())
        && let Some((old, _)) = there.iter().find(|(_, welcome)| welcome.place.is_some() && !welcome.empty)
    {
        return Err(MirrorError::Mixed { new: addresses[*new], old: addresses[*old] });
    }
    let is_new = |welcome: &Welcome| welcome.place.is_none() && !welcome.empty;
    if let Some((node, _)) = there.iter().find(|(_, welcome)| is_new(welcome)) {
        return Err(MirrorError::NotEmpty(addresses[*node]));
    }
    let known = there.iter().filter_map(|(_, welcome)| welcome.place.as_ref()?.mirror.as_ref()).next();
    let sizes: Vec<u64> = match known {
        Some(known) => known.sizes.clone(),
        None if there.len() == count => there.iter().map(|(_, welcome)| welcome.size_bytes).collect(),
        None => return Err(MirrorError::Needs(absent)),
    };
    let group = |node: usize| mirroring.groups.get(node).cloned().flatten();
    let member = |(node, size_bytes): (usize, &u64)| Member { size_bytes: *size_bytes, group: group(node) };
    let members_of: Vec<Member> = sizes.iter().enumerate().map(member).collect();
    let distinct = mirroring.group_count(count);
    let copies = mirroring.copies.or(known.map(|known| known.copies)).unwrap_or(if distinct > 2 { 3 } else { 2 });
    let placement = Rc::new(Placement::new(&members_of, copies)?);
    let mirror = MirrorPosition { copies, placement: placement.checksum(), sizes };
    let epoch = there.iter().map(|(_, welcome)| welcome.epoch).max().unwrap_or(0) + 1;
    let identity = Identity {
        names: vec![String::new(); count],
        region_bytes: placement.region_bytes(),
        region_count: placement.region_count(),
        placement: placement.checksum(),
    };
    let mut claims = Claims {
        connect: connect.clone(),
        addresses: addresses.to_vec(),
        pool: pool.into(),
        epoch,
        coordinator: coordinator_name(),
        placement,
        identity,
        mirror,
        options: Options { shared_memory: false, reopens: false, ..*options },
        control: control.clone(),
        report: report.clone(),
    };
    there.iter().try_for_each(|(node, welcome)| claims.check(*node, welcome))?;
    let loss = LossId::from_losses(there.iter().map(|(_, welcome)| (welcome.node.as_str(), &welcome.loss)));
    let accepts_loss = options.accept_loss.is_some() && options.accept_loss == loss;
    let mut nodes = Vec::new();
    for (node, welcome) in &there {
        // What may be lost is accepted by the claim only when it is known that another copy has it, or the user wants it.
        let hold = Welcome { loss: Loss::default(), ..welcome.clone() };
        match claims.join_node(*node, &hold).await {
            Ok((link, slots)) => nodes.push((*node, welcome, link, slots)),
            Err(why @ (MirrorError::Fenced(_) | MirrorError::Node { why: JoinError::Refused(_), .. })) => {
                return Err(why);
            }
            // The others may be enough.
            Err(why) => absent.push(format!("{} ({why})", addresses[*node])),
        }
    }
    if nodes.is_empty() || (count > 2 && nodes.len() * 2 <= count) {
        return Err(MirrorError::Needs(absent));
    }
    // What a damaged slot said is known as long as all others are there.
    let damaged = nodes.iter().find(|(.., slots)| slots.contains(&None));
    if let (Some((node, ..)), false) = (damaged, absent.is_empty()) {
        report(format!(
            "node {}: a copy of the pool's record is damaged there, so all nodes are needed",
            addresses[*node]
        ));
        return Err(MirrorError::Needs(absent));
    }
    let names = nodes.iter().flat_map(|(.., slots)| slots).flatten().find_map(|slot| Record::names(slot));
    claims.identity.names = names.filter(|names| names.len() == count).unwrap_or_else(|| vec![String::new(); count]);
    for (node, welcome, ..) in &nodes {
        claims.identity.names[*node].clone_from(&welcome.node);
    }
    let mut reached = Vec::new();
    for (node, welcome, _, slots) in &nodes {
        let record = newest(addresses[*node], slots, &claims.identity)?;
        reached.push(Reached { node: *node, record, lost: claims.lost_regions(*node, &welcome.loss) });
    }
    if reached.iter().all(|node| node.record.is_none())
        && let Some((node, ..)) = nodes.iter().find(|(_, welcome, ..)| !welcome.empty)
    {
        return Err(MirrorError::NotEmpty(addresses[*node]));
    }
    let timeout_ms = options.node_timeout.as_millis() as u64;
    let with = Takeover { epoch, accept_loss: accepts_loss, timeout_ms, now_ms: 0, mutant: Mutant::None };
    let taken = Machine::takeover(claims.placement.clone(), claims.identity.clone(), &reached, with);
    let machine = taken.map_err(|why| match why {
        TakeoverError::Needs(nodes) => {
            MirrorError::Needs(members(nodes).map(|node| addresses[node].to_string()).collect())
        }
        TakeoverError::Lost(nodes) => MirrorError::Lost {
            nodes: members(nodes).map(|node| addresses[node].to_string()).collect(),
            id: loss.map(|id| id.to_string()).unwrap_or_default(),
        },
    })?;
    let mut joined = Vec::new();
    for ((node, welcome, link, _), Reached { record, .. }) in nodes.into_iter().zip(reached) {
        let slot = record.map(|(_, slot)| slot);
        let link = match (welcome.loss.ranges.is_empty(), accepts_loss) {
            (true, _) => link,
            (false, true) => {
                drop(link);
                claims.join_node(node, welcome).await?.0
            }
            // It comes back when its loss is recorded.
            (false, false) => continue,
        };
        joined.push(JoinedNode { node, link, slot, has: 0 });
    }
    Ok((claims, machine, joined))
}

/// Claims a node that comes later, or returns. `prepare` has the machine record these regions, which the node may have lost; see
/// [`Machine::prepare_return`].
pub(super) async fn rejoin(
    claims: &Claims,
    node: usize,
    prepare: impl FnOnce(&[u32]) -> Result<Option<(u64, Bytes)>, u32>,
) -> Result<JoinedNode, MirrorError> {
    let welcome = claims.look(node).await?;
    claims.check(node, &welcome)?;
    let lost = claims.lost_regions(node, &welcome.loss);
    let address = claims.addresses[node];
    let Some((sequence, record)) = prepare(&lost).map_err(|regions| MirrorError::OnlyCopy { address, regions })? else {
        return Err(MirrorError::Recording(address));
    };
    if !lost.is_empty() {
        // The claim that accepts the loss makes it durable first.
        let hold = Welcome { loss: Loss::default(), ..welcome.clone() };
        let (link, slots) = claims.join_node(node, &hold).await?;
        let slot = newest(address, &slots, &claims.identity)?.map_or(0, |(_, slot)| 1 - slot);
        let at = claims.placement.meta_offset(node) + slot * SLOT_BYTES;
        let written = link.ask(Operation::Write, at, record.len() as u32, record, false).await;
        written.map_err(|why| MirrorError::Record { address, why: why.to_string() })?;
    }
    let (link, slots) = claims.join_node(node, &welcome).await?;
    let newest = newest(address, &slots, &claims.identity)?;
    let is_this = |record: &Record| !lost.is_empty() && record.generation() == (claims.epoch, sequence);
    let has = newest.as_ref().filter(|(record, _)| is_this(record)).map_or(0, |_| sequence);
    if !lost.is_empty() && has == 0 {
        return Err(MirrorError::Recording(address));
    }
    Ok(JoinedNode { node, link, slot: newest.map(|(_, slot)| slot), has })
}
