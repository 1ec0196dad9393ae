//! The machine, nodes and clients in one thread, in virtual time, from a seed: the same seed gives the same run.
//!
//! Nodes have volatile and durable contents, and are killed, silenced, cut off in either direction, slowed, and lose power; messages
//! are delayed and overtake each other; coordinators end at any time, and others take over. Checked: each block is linearizable (a
//! coordinator's end is no excuse), no flushed write is lost when all power is, copies agree after faults heal, and everything is
//! answered then.

use super::machine::{Action, Kind, Machine, Reached, RequestError, Takeover, TakeoverError, Token, Work};
use super::mutant::Mutant;
use super::placement::{Member, Placement};
use super::record::{Identity, META_BYTES, Record, SLOT_BYTES};
use bytes::Bytes;
use stats::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

mod history;
mod runs;

use history::{Operation, check_linearizable};

const REGION_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;
/// Blocks of a region that clients use.
const BLOCKS: u64 = 2;
/// How long faults and clients go on, and how long everything may take afterwards.
const RUN_MS: u64 = 6_000;
const HEAL_MS: u64 = 60_000;

#[derive(Default)]
struct SimNode {
    is_alive: bool,
    /// Requests and answers wait until then.
    silent_until: u64,
    cut_in_until: u64,
    cut_out_until: u64,
    delay_ms: u64,
    /// What it takes to sync, beyond the delay of an answer.
    sync_ms: u64,
    connection: u64,
    epoch: u64,
    cache: BTreeMap<u64, u64>,
    disk: BTreeMap<u64, u64>,
    /// When a block was last put on the disk; syncs that began before have nothing newer.
    synced: BTreeMap<u64, u64>,
    /// Power cuts: what was being synced then is void.
    cuts: u64,
    slots: [Option<Bytes>; 2],
    synced_slots: [Option<Bytes>; 2],
    /// Regions that it may have lost writes to.
    lost: BTreeSet<u32>,
}

struct Coordinator {
    machine: Machine,
    epoch: u64,
    /// Of each node, on the coordinator's side.
    connections: Vec<Option<u64>>,
    /// Data of answers, by token.
    answers: BTreeMap<Token, Vec<u64>>,
    /// Requests in flight: index in the history; `None` for a flush.
    pending: BTreeMap<u64, (Option<usize>, u64)>,
    /// A node that it cannot reach until then.
    hidden: (usize, u64),
}

enum Event {
    ToNode { node: usize, connection: u64, token: Token, work: Work, data: Vec<u64> },
    FromNode { node: usize, connection: u64, token: Token, data: Vec<u64> },
    Connect { epoch: u64, node: usize },
    Broken { node: usize, connection: u64 },
    Synced { node: usize, connection: u64, cuts: u64, token: Token, begin: u64, what: Synced },
    Takeover { is_standby: bool },
    Client,
    Fault,
    Tick,
}

/// What a node has on its disk when a sync is done.
enum Synced {
    Blocks(BTreeMap<u64, u64>),
    Record(usize, Bytes),
}

struct Sim {
    random: Random,
    mutant: Mutant,
    placement: Rc<Placement>,
    identity: Identity,
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    last: u64,
    nodes: Vec<SimNode>,
    /// The last one is the newest; those before do not know that yet.
    coordinators: Vec<Coordinator>,
    history: Vec<Operation>,
    /// Flushes answered: begin.
    flushed: Vec<u64>,
    is_faulty: bool,
    accepts_loss: bool,
    /// A node was without power while others failed too: more than one failure may be too much, and is told then.
    is_beyond: bool,
    /// Why what is missing cannot be gone without.
    refusal: Option<String>,
    failures: Vec<String>,
    digest: u32,
    /// The longest read, and the longest other request.
    longest_ms: [u64; 2],
    /// The only node that has faults, one at a time, and nothing else has any.
    victim: Option<usize>,
    /// What happened, in words, if wanted.
    story: Option<Vec<String>>,
}

impl Sim {
    fn new(seed: u64, mutant: Mutant) -> Self {
        let mut random = Random::new(seed);
        let (count, copies) = [(3, 3), (3, 3), (2, 2), (4, 2), (4, 3)][random.below(5) as usize];
        let members = vec![Member { size_bytes: META_BYTES + 3 * REGION_BYTES, group: None }; count];
        let placement = Rc::new(Placement::new(&members, copies).expect("a placement"));
        let identity = Identity {
            names: (0..count).map(|nth| nth.to_string()).collect(),
            region_bytes: REGION_BYTES,
            region_count: placement.region_count(),
            placement: placement.checksum(),
        };
        let nodes = (0..count).map(|_| SimNode { is_alive: true, delay_ms: 4, ..SimNode::default() }).collect();
        let mut sim = Self {
            random,
            mutant,
            placement,
            identity,
            now: 0,
            events: BTreeMap::new(),
            last: 0,
            nodes,
            coordinators: Vec::new(),
            history: Vec::new(),
            flushed: Vec::new(),
            is_faulty: true,
            accepts_loss: false,
            is_beyond: false,
            refusal: None,
            failures: Vec::new(),
            digest: 0,
            longest_ms: [0, 0],
            victim: None,
            story: None,
        };
        for event in [Event::Takeover { is_standby: false }, Event::Tick, Event::Client, Event::Fault] {
            sim.after(1, event);
        }
        sim
    }

    fn tell(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.story.is_some() {
            let line = format!("{:>6} {}", self.now, what(self));
            self.story.iter_mut().for_each(|story| story.push(line.clone()));
        }
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.last += 1;
        self.events.insert((self.now + ms, self.last), event);
    }

    fn delay(&mut self, node: usize) -> u64 {
        let most = self.nodes[node].delay_ms;
        self.random.below(most + 1)
    }

    fn run_until(&mut self, end: u64, done: impl Fn(&Self) -> bool) {
        while self.now < end && !done(self) {
            let Some(((at, _), event)) = self.events.pop_first() else { return };
            self.now = at;
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Tick => {
                self.coordinators.iter_mut().for_each(|coordinator| coordinator.machine.tick(self.now));
                self.after(10, Event::Tick);
                self.act();
            }
            Event::Takeover { is_standby } => self.take_over(is_standby),
            Event::Client => self.client(),
            Event::Fault => self.fault(),
            Event::Connect { epoch, node } => self.connect(epoch, node),
            Event::Broken { node, connection } => {
                let Some(of) = self.coordinator_of(node, connection) else { return };
                self.coordinators[of].connections[node] = None;
                self.coordinators[of].machine.node_down(node, self.now);
                let epoch = self.coordinators[of].epoch;
                self.after(50, Event::Connect { epoch, node });
                self.act();
            }
            Event::ToNode { node, connection, token, work, data } => self.serve(node, connection, token, work, data),
            Event::Synced { node, connection, cuts, token, begin, what } => {
                let n = &mut self.nodes[node];
                if n.cuts != cuts {
                    return;
                }
                match what {
                    Synced::Record(slot, bytes) => n.synced_slots[slot] = Some(bytes),
                    Synced::Blocks(blocks) => {
                        for (at, value) in blocks {
                            if n.synced.get(&at).is_none_or(|last| *last < begin) {
                                n.disk.insert(at, value);
                                n.synced.insert(at, begin);
                            }
                        }
                    }
                }
                let delay = self.delay(node);
                self.after(delay, Event::FromNode { node, connection, token, data: Vec::new() });
            }
            Event::FromNode { node, connection, token, data } => {
                let wait = self.nodes[node].cut_out_until.saturating_sub(self.now);
                let Some(of) = self.coordinator_of(node, connection) else { return };
                if wait > 0 {
                    return self.after(wait, Event::FromNode { node, connection, token, data });
                }
                let epoch = self.coordinators[of].epoch;
                self.coordinators[of].answers.insert(token, data);
                self.coordinators[of].machine.answer(token, Ok(()), self.now);
                self.act();
                let of = self.coordinators.iter_mut().find(|coordinator| coordinator.epoch == epoch);
                let of = of.filter(|coordinator| !coordinator.machine.is_held(token));
                of.into_iter().for_each(|coordinator| drop(coordinator.answers.remove(&token)));
            }
        }
    }

    fn coordinator_of(&self, node: usize, connection: u64) -> Option<usize> {
        self.coordinators.iter().position(|coordinator| coordinator.connections[node] == Some(connection))
    }

    fn machine_state(&self) -> String {
        self.coordinators.iter().map(|c| format!("[{}] {}; ", c.epoch, c.machine.describe())).collect()
    }

    fn contents(&self) -> String {
        let node = |n: &SimNode| format!("cache {:?} disk {:?} lost {:?}", n.cache, n.disk, n.lost);
        self.nodes.iter().map(|n| format!("\n         {}", node(n))).collect()
    }

    fn is_reachable(&self, node: usize) -> bool {
        let n = &self.nodes[node];
        n.is_alive && n.silent_until.max(n.cut_in_until).max(n.cut_out_until) <= self.now
    }

    /// The newest record of a node, and its slot.
    fn record(&self, node: usize) -> Option<(Record, u64)> {
        let read = |slot: usize| {
            Record::decode(self.nodes[node].slots[slot].as_deref()?, &self.identity).ok().map(|r| (r, slot as u64))
        };
        [0, 1].into_iter().filter_map(read).max_by_key(|(record, _)| record.generation())
    }

    fn take_over(&mut self, is_standby: bool) {
        if self.coordinators.is_empty() == is_standby || self.coordinators.len() > 2 {
            return;
        }
        let hidden = match is_standby {
            true => (self.random.below(self.nodes.len() as u64) as usize, self.now + self.random.below(1500)),
            false => (0, 0),
        };
        let is_there = |node: &usize| self.is_reachable(*node) && (*node != hidden.0 || hidden.1 <= self.now);
        let there: Vec<usize> = (0..self.nodes.len()).filter(is_there).collect();
        let majority = there.len() * 2 > self.nodes.len();
        let epoch = there.iter().map(|node| self.nodes[*node].epoch).max().unwrap_or(0) + 1;
        let reached: Vec<Reached> = there
            .iter()
            .map(|node| Reached {
                node: *node,
                record: self.record(*node),
                lost: self.nodes[*node].lost.iter().copied().collect(),
            })
            .collect();
        if !there.is_empty() && (majority || self.nodes.len() == 2 || self.mutant == Mutant::EpochWithoutMajority) {
            let with = Takeover {
                epoch,
                accept_loss: self.accepts_loss,
                timeout_ms: 20_000,
                now_ms: self.now,
                mutant: self.mutant,
            };
            let taken = Machine::takeover(self.placement.clone(), self.identity.clone(), &reached, with);
            self.tell(|sim| {
                let newest = |node: &Reached| {
                    let record = node.record.as_ref().map(|(record, _)| record);
                    let record = record.map(|r| (r.generation(), r.out, &r.active, &r.lacks));
                    format!("\n         {}: lost {:?} record {record:?}", node.node, node.lost)
                };
                let nodes: String = reached.iter().map(newest).collect();
                let state = taken.as_ref().map(|machine| machine.describe());
                let contents = sim.contents();
                format!("takeover {epoch}: {state:?}, {contents}{nodes}")
            });
            match taken {
                Ok(machine) => {
                    let count = self.nodes.len();
                    self.coordinators.push(Coordinator {
                        machine,
                        epoch,
                        connections: vec![None; count],
                        answers: BTreeMap::new(),
                        pending: BTreeMap::new(),
                        hidden,
                    });
                    for node in 0..count {
                        if there.contains(&node) && (self.accepts_loss || self.nodes[node].lost.is_empty()) {
                            self.open(node, epoch);
                            self.nodes[node].lost.clear();
                        } else {
                            if there.contains(&node) {
                                self.claim(node, epoch);
                            }
                            self.after(50, Event::Connect { epoch, node });
                        }
                    }
                    return self.act();
                }
                Err(TakeoverError::Lost(_))
                    if !self.accepts_loss && !self.is_beyond && there.len() == self.nodes.len() =>
                {
                    self.failures.push("all copies of something count as lost".into());
                }
                Err(why) => self.refusal = Some(format!("{why:?}")),
            }
        }
        if !is_standby {
            self.after(50, Event::Takeover { is_standby });
        }
    }

    /// The node is this coordinator's: connections of others end, which these may notice later.
    fn claim(&mut self, node: usize, epoch: u64) {
        let old = std::mem::take(&mut self.nodes[node].connection);
        self.nodes[node].epoch = epoch;
        let notice = self.random.below(1500);
        self.after(notice, Event::Broken { node, connection: old });
    }

    fn open(&mut self, node: usize, epoch: u64) {
        self.claim(node, epoch);
        self.last += 1;
        self.nodes[node].connection = self.last;
        let of = self.coordinators.iter_mut().find(|coordinator| coordinator.epoch == epoch);
        of.into_iter().for_each(|coordinator| coordinator.connections[node] = Some(self.last));
    }

    fn connect(&mut self, epoch: u64, node: usize) {
        let Some(of) = self.coordinators.iter().position(|coordinator| coordinator.epoch == epoch) else { return };
        let coordinator = &mut self.coordinators[of];
        if coordinator.connections[node].is_some() {
            return;
        }
        let is_hidden = coordinator.hidden.0 == node && self.now < coordinator.hidden.1;
        if is_hidden || !self.is_reachable(node) {
            return self.after(50, Event::Connect { epoch, node });
        }
        if self.nodes[node].epoch > epoch {
            self.tell(|_| format!("coordinator {epoch} is fenced by node {node}"));
            self.coordinators.remove(of);
            if self.coordinators.is_empty() {
                self.after(50, Event::Takeover { is_standby: false });
            }
            return;
        }
        let lost: Vec<u32> = self.nodes[node].lost.iter().copied().collect();
        let mut slot = self.record(node).map(|(_, slot)| slot);
        match self.coordinators[of].machine.prepare_return(node, &lost) {
            Ok(Some((sequence, bytes))) => {
                let mut has = 0;
                if !lost.is_empty() {
                    let next = slot.map_or(0, |slot| 1 - slot);
                    self.nodes[node].slots[next as usize] = Some(bytes.clone());
                    self.nodes[node].synced_slots[next as usize] = Some(bytes);
                    (slot, has) = (Some(next), sequence);
                    self.nodes[node].lost.clear();
                }
                self.open(node, epoch);
                self.coordinators[of].machine.node_up(node, slot, has, self.now);
                self.tell(|sim| format!("node {node} is back, had lost {lost:?}; {}", sim.machine_state()));
            }
            other => {
                if let Err(regions) = other {
                    self.refusal = Some(format!("node {node} has the only copy of {regions} regions"));
                }
                self.after(50, Event::Connect { epoch, node });
            }
        }
        self.act();
    }

    /// Does what the machine wants.
    fn act(&mut self) {
        for of in 0..self.coordinators.len() {
            loop {
                let actions = self.coordinators[of].machine.take_actions();
                if actions.is_empty() {
                    break;
                }
                actions.into_iter().for_each(|action| self.act_on(of, action));
            }
        }
    }

    fn act_on(&mut self, of: usize, action: Action) {
        let epoch = self.coordinators[of].epoch;
        self.tell(|sim| match &action {
            Action::Send { token, node, work: Work::Record { .. } } => {
                format!("record {epoch}.{token} to {node}: {}", sim.machine_state())
            }
            Action::Send { token, node, work } => format!("  send {epoch}.{token} to {node}: {work:?}"),
            Action::Reply { request, result } => format!("  reply {epoch} {request}: {result:?}"),
            Action::Drop { node, why } => format!("drop {epoch} {node}: {why:?}; {}", sim.machine_state()),
        });
        match action {
            Action::Send { token, node, work } => {
                let coordinator = &self.coordinators[of];
                let data = match &work {
                    Work::Request { request, kind: Kind::Write { .. }, .. } => {
                        let nth = coordinator.pending.get(request).and_then(|(nth, _)| *nth);
                        vec![nth.map_or(u64::MAX, |nth| self.history[nth].value)]
                    }
                    Work::CopyWrite { read, .. } => coordinator.answers[read].clone(),
                    _ => Vec::new(),
                };
                let connection = coordinator.connections[node].unwrap_or(0);
                let delay = self.delay(node);
                self.after(delay, Event::ToNode { node, connection, token, work, data });
            }
            Action::Reply { request, result } => self.reply(of, request, result),
            Action::Drop { node, .. } => {
                self.coordinators[of].connections[node] = None;
                self.after(100, Event::Connect { epoch, node });
            }
        }
    }

    fn reply(&mut self, of: usize, request: u64, result: Result<Token, RequestError>) {
        let Some((nth, begin)) = self.coordinators[of].pending.remove(&request) else { return };
        let is_read = nth.is_some_and(|nth| !self.history[nth].is_write);
        let longest_ms = &mut self.longest_ms[usize::from(!is_read)];
        *longest_ms = (*longest_ms).max(self.now - begin);
        self.digest = crc32c::crc32c_append(self.digest, format!("{request} {result:?} {}", self.now).as_bytes());
        match (nth, result) {
            (_, Err(RequestError::Failed(_))) => {
                self.failures.push("a request failed, although no node fails any".into())
            }
            // It takes longer than any fault, so there was no quorum, or it will never end.
            (Some(_), Err(RequestError::Needs(_))) | (None, Err(_)) => {}
            (None, Ok(_)) => self.flushed.push(begin),
            (Some(nth), Ok(token)) => {
                self.history[nth].end = Some(self.now);
                if !self.history[nth].is_write {
                    self.history[nth].value = self.coordinators[of].answers[&token][0];
                }
            }
        }
    }

    fn serve(&mut self, node: usize, connection: u64, token: Token, work: Work, data: Vec<u64>) {
        let n = &mut self.nodes[node];
        let wait = n.cut_in_until.max(n.silent_until).saturating_sub(self.now);
        if !n.is_alive || n.connection != connection {
            return;
        }
        if wait > 0 {
            return self.after(wait, Event::ToNode { node, connection, token, work, data });
        }
        let blocks = |offset: u64| (0..BLOCKS).map(move |block| offset + block * BLOCK_BYTES);
        self.last += 1;
        let (begin, cuts, mut synced) = (self.last, n.cuts, None);
        let mut answer = Vec::new();
        let told = self.story.is_some().then(|| format!("  node {node} does {token}: {work:?} {data:?}"));
        match work {
            Work::Request { kind: Kind::Write { durable }, offset, .. } => {
                n.cache.insert(offset, data[0]);
                synced = durable.then(|| Synced::Blocks(BTreeMap::from([(offset, data[0])])));
            }
            Work::Request { offset, .. } => answer.push(n.cache.get(&offset).copied().unwrap_or(0)),
            Work::CopyRead { offset, .. } => {
                answer.extend(blocks(offset).map(|at| n.cache.get(&at).copied().unwrap_or(0)))
            }
            Work::CopyWrite { offset, .. } => n.cache.extend(blocks(offset).zip(data)),
            Work::Probe { .. } => {}
            Work::Flush => synced = Some(Synced::Blocks(n.cache.clone())),
            Work::Record { offset, bytes } => {
                let slot = (offset - self.placement.meta_offset(node)) / SLOT_BYTES;
                n.slots[slot as usize] = Some(bytes.clone());
                synced = Some(Synced::Record(slot as usize, bytes));
            }
        }
        let sync_ms = n.sync_ms;
        self.tell(|_| told.unwrap_or_default());
        if let Some(what) = synced {
            return self.after(sync_ms, Event::Synced { node, connection, cuts, token, begin, what });
        }
        let delay = self.delay(node);
        self.after(delay, Event::FromNode { node, connection, token, data: answer });
    }

    fn client(&mut self) {
        if !self.is_faulty {
            return;
        }
        let next = 1 + self.random.below(8);
        self.after(next, Event::Client);
        // Most of them of one region at a time: the others are not active after a while.
        let regions = u64::from(self.placement.region_count()).min(3);
        let region = if self.random.below(20) == 0 { self.random.below(regions) } else { self.now / 1500 % regions };
        let block = region * BLOCKS + self.random.below(BLOCKS);
        let pick = self.random.below(self.coordinators.len().max(1) as u64) as usize;
        // How long a request waits for others of the same block is no fault's matter.
        let is_in_use = |c: &Coordinator| {
            self.victim.is_some()
                && c.pending.values().any(|(nth, _)| nth.is_some_and(|nth| self.history[nth].block == block))
        };
        let can = |c: &Coordinator| c.machine.is_ready() && c.pending.len() < 12 && !is_in_use(c);
        if self.coordinators.get(pick).is_some_and(can) {
            self.submit(pick, block);
        }
    }

    fn submit(&mut self, of: usize, block: u64) {
        let kind = match self.random.below(20) {
            0..=8 => Kind::Read,
            9..=16 => Kind::Write { durable: false },
            17 => Kind::Write { durable: true },
            _ => Kind::Flush,
        };
        self.submit_as(of, kind, block);
    }

    fn submit_as(&mut self, of: usize, kind: Kind, block: u64) {
        self.last += 1;
        let request = self.last;
        let (offset, length) = match kind {
            Kind::Flush => (0, 0),
            _ => (block / BLOCKS * REGION_BYTES + block % BLOCKS * BLOCK_BYTES, BLOCK_BYTES as u32),
        };
        let nth = (kind != Kind::Flush).then_some(self.history.len());
        if nth.is_some() {
            let (is_write, value) = (!kind.is_read(), request);
            self.history.push(Operation { block, value, is_write, begin: self.now, end: None });
        }
        self.coordinators[of].pending.insert(request, (nth, self.now));
        self.tell(|sim| format!("  request {} {request}: {kind:?} of block {block}", sim.coordinators[of].epoch));
        self.coordinators[of].machine.request(request, kind, offset, length, self.now);
        self.act();
    }

    fn fault(&mut self) {
        if !self.is_faulty {
            return;
        }
        // One after the other, if one node has them: when it is whole again.
        let next = 20 + self.random.below(500) + if self.victim.is_some() { 1800 } else { 0 };
        self.after(next, Event::Fault);
        let node = self.victim.unwrap_or(self.random.below(self.nodes.len() as u64) as usize);
        if self.victim.is_some() {
            (self.nodes[node].delay_ms, self.nodes[node].sync_ms) = (4, 0);
        }
        let until = self.now + 50 + self.random.below(900);
        let fault = match self.victim {
            Some(_) => [0, 1, 2, 3, 4, 11][self.random.below(6) as usize],
            None => self.random.below(13),
        };
        self.tell(|sim| {
            let name = [
                "silent",
                "cut in",
                "cut out",
                "slow",
                "killed",
                "killed",
                "coordinator",
                "coordinator and 2",
                "standby",
                "standby",
                "power",
                "slow syncs",
                "slow syncs",
            ];
            format!("fault {} of {node} until {until}; {}", name[fault as usize], sim.machine_state())
        });
        let is_lossy = |node: &SimNode| !node.lost.is_empty();
        self.is_beyond |= !matches!(fault, 6 | 8 | 9) && self.nodes.iter().any(is_lossy);
        match fault {
            0 => self.nodes[node].silent_until = until,
            1 => self.nodes[node].cut_in_until = until,
            2 => self.nodes[node].cut_out_until = until,
            3 => self.nodes[node].delay_ms = [1, 4, 30, 300][self.random.below(4) as usize],
            4 | 5 => self.end_node(node, until),
            6 => self.end_coordinator(),
            7 => {
                // A coordinator that reaches a few only: the others come later.
                self.end_coordinator();
                self.nodes[node].cut_out_until = until;
                let other = self.random.below(self.nodes.len() as u64) as usize;
                self.nodes[other].silent_until = until;
            }
            8 | 9 => self.take_over(true),
            11 | 12 => self.nodes[node].sync_ms = [0, 80, 400, 3000][self.random.below(4) as usize],
            _ => {
                let whole = |(nth, state): (usize, super::machine::NodeState)| {
                    nth == node || (!state.out && state.lacks == 0 && self.is_reachable(nth))
                };
                // One that is deposed does not know.
                let newest = self.nodes.iter().map(|node| node.epoch).max().unwrap_or(0);
                let knows = self.coordinators.last().filter(|coordinator| coordinator.epoch == newest);
                let states = knows.map(|c| c.machine.node_states()).unwrap_or_default();
                let is_whole = !states.is_empty() && states.into_iter().enumerate().all(whole);
                if is_whole {
                    self.nodes.iter_mut().for_each(|node| (node.delay_ms, node.sync_ms) = (4, 0));
                }
                if is_whole || self.random.below(4) == 0 {
                    self.is_beyond |= !is_whole;
                    self.cut_power(node);
                    self.end_node(node, until);
                }
            }
        }
    }

    /// Its process ends, and begins again later.
    fn end_node(&mut self, node: usize, until: u64) {
        let connection = std::mem::take(&mut self.nodes[node].connection);
        self.nodes[node].silent_until = until;
        let notice = self.random.below(300);
        self.after(notice, Event::Broken { node, connection });
    }

    fn cut_power(&mut self, node: usize) {
        self.tell(|sim| format!("power cut of {node}{}", sim.contents()));
        let unflushed: Vec<u64> = self.nodes[node]
            .cache
            .iter()
            .filter(|(at, value)| self.nodes[node].disk.get(at) != Some(value))
            .map(|(at, _)| *at)
            .collect();
        for at in unflushed {
            if self.random.below(2) == 0 {
                let old = self.nodes[node].disk.get(&at).copied().unwrap_or(0);
                self.nodes[node].cache.insert(at, old);
            }
            let lost = self.placement.regions_of(node, at..at + 1);
            self.nodes[node].lost.extend(lost);
        }
        let cache = self.nodes[node].cache.clone();
        self.nodes[node].disk = cache;
        self.nodes[node].cuts += 1;
        for slot in 0..2 {
            if self.random.below(2) == 0 {
                self.nodes[node].slots[slot] = self.nodes[node].synced_slots[slot].clone();
            }
        }
        self.nodes[node].synced_slots = self.nodes[node].slots.clone();
    }

    fn end_coordinator(&mut self) {
        if self.coordinators.pop().is_some() && self.coordinators.is_empty() {
            let later = 20 + self.random.below(200);
            self.after(later, Event::Takeover { is_standby: false });
        }
    }

    /// Runs it all, and returns the first thing that is wrong.
    fn check(&mut self) -> Result<(u32, [u64; 2]), String> {
        let mut all_power = self.random.below(2) == 0;
        self.run_until(RUN_MS, |sim| !sim.failures.is_empty());
        self.is_faulty = false;
        if all_power {
            (0..self.nodes.len()).for_each(|node| self.cut_power(node));
            while !self.coordinators.is_empty() {
                self.end_coordinator();
            }
            self.accepts_loss = true;
        }
        for node in &mut self.nodes {
            (node.silent_until, node.cut_in_until, node.cut_out_until) = (0, 0, 0);
            (node.delay_ms, node.sync_ms) = (4, 0);
        }
        let healed = |sim: &Self| {
            sim.coordinators.len() == 1
                && sim.coordinators[0].pending.is_empty()
                && sim.coordinators[0].machine.is_ready()
                && sim.nodes.iter().zip(&sim.coordinators[0].connections).all(|(n, c)| *c == Some(n.connection))
                && sim.coordinators[0].machine.node_states().iter().all(|s| s.up && !s.out && s.lacks == 0)
        };
        let end = self.now + HEAL_MS;
        self.refusal = None;
        self.run_until(end, |sim| !sim.failures.is_empty() || healed(sim));
        if !healed(self) && self.is_beyond && !all_power {
            if self.refusal.is_none() {
                return Err(format!("nobody is told why it goes on no further: {}", self.machine_state()));
            }
            (all_power, self.accepts_loss) = (true, true);
            while !self.coordinators.is_empty() {
                self.end_coordinator();
            }
            let end = self.now + HEAL_MS;
            self.run_until(end, |sim| !sim.failures.is_empty() || healed(sim));
        }
        let history = self.history.len();
        if self.coordinators.is_empty() {
            return Err(format!("no coordinator begins: {:?}", self.failures.first()));
        }
        for block in 0..u64::from(self.placement.region_count()).min(3) * BLOCKS {
            self.submit_as(0, Kind::Read, block);
        }
        let end = self.now + HEAL_MS;
        self.run_until(end, |sim| !sim.failures.is_empty() || healed(sim));
        if let Some(failure) = self.failures.first() {
            return Err(failure.clone());
        }
        if !healed(self) {
            return Err(format!("not healed: {}", self.machine_state()));
        }
        let last: Vec<Operation> = self.history[history..].to_vec();
        if all_power {
            self.history.truncate(history);
            last.iter().try_for_each(|read| self.check_flushed(read))?;
        }
        check_linearizable(&self.history)?;
        self.check_copies()?;
        Ok((self.digest, self.longest_ms))
    }

    /// After all power was lost: what was read is the last flushed value, or a later one.
    fn check_flushed(&self, read: &Operation) -> Result<(), String> {
        let writes = || self.history.iter().filter(|w| w.is_write && w.block == read.block);
        let end = match read.value {
            0 => 0,
            value => writes().find(|w| w.value == value).ok_or("a value that nobody wrote")?.end.unwrap_or(u64::MAX),
        };
        let is_flushed = |w: &&Operation| w.end.is_some_and(|end| self.flushed.iter().any(|flush| *flush > end));
        match writes().filter(is_flushed).find(|w| w.begin > end) {
            Some(lost) => Err(format!("block {} has {}, and {} was flushed later", read.block, read.value, lost.value)),
            None => Ok(()),
        }
    }

    fn check_copies(&self) -> Result<(), String> {
        for block in 0..u64::from(self.placement.region_count()).min(3) * BLOCKS {
            let at = block / BLOCKS * REGION_BYTES + block % BLOCKS * BLOCK_BYTES;
            let values: BTreeSet<u64> = self
                .placement
                .places(at)
                .map(|place| self.nodes[place.node].cache.get(&place.offset).copied().unwrap_or(0))
                .collect();
            if values.len() > 1 {
                return Err(format!("the copies of block {block} differ: {values:?}"));
            }
        }
        Ok(())
    }
}
