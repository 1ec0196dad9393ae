//! A pool in virtual time: requesters in a closed loop, a coordinator, connections, nodes.
//!
//! It models: one thread of the coordinator for all nodes; packets and bytes that take time on the wire, with a token
//! bucket as in the emulated links; a wire for each node and direction, or one medium for all; acknowledgements as separate
//! packets where no data flows back; a node that drains all received requests and replies in one write; or, with a store
//! that blocks its readers, four readers and replies held for the coordinator's batch; a queue before the wire that drops
//! what exceeds it, which is retransmitted after TCP's minimum timeout, while later packets wait for it. It does not model
//! TCP's congestion window.

use pool::setting::Setting;
use stats::random::Random;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Bytes of data in a packet.
const PACKET_DATA_BYTES: u64 = 1448;
/// Bytes of a request, without its frame.
const REQUEST_BYTES: u64 = 24;
/// Bytes of a reply, without its data.
const REPLY_BYTES: u64 = 12;
const FRAME_BYTES: u64 = 44;
/// The initial retransmission timeout.
const RETRANSMISSION_TIMEOUT_NS: u64 = 200_000_000;
/// The maximum time that a node holds a reply.
const REPLY_HOLD_TIMEOUT_NS: u64 = 50_000_000;

#[derive(Debug, Clone, Copy)]
pub struct World {
    pub nodes: usize,
    /// Link and store of the first node, if different.
    pub first: Option<Other>,
    pub asked: NodeChoice,
    /// Whether all nodes and both directions share one medium.
    pub shared: bool,
    /// Time of a packet on the wire, regardless of its size.
    pub packet_ns: u64,
    /// Time of a byte on the wire.
    pub byte_ns: f64,
    /// Packets that pass at once after a pause.
    pub burst: u64,
    /// The maximum number of full packets queued for the wire; further ones are dropped.
    pub queue: u64,
    /// Additional one-way delay.
    pub delay_ns: u64,
    /// Time of a write or a read of the socket at either end.
    pub call_ns: u64,
    /// Time of a request in either end's single thread.
    pub each_ns: u64,
    /// Time in the store, during which others are served as well; 0 is memory.
    pub store_ns: u64,
    /// Concurrent requests in the store.
    pub servers: usize,
    pub reply_bytes: u64,
    /// Relative variation of all times, up or down.
    pub jitter: f64,
    /// How often per second either end's thread loses the CPU, for 1 to 4 ms.
    pub stalls_per_s: f64,
}

/// A node's link and store.
#[derive(Debug, Clone, Copy)]
pub struct Other {
    pub packet_ns: u64,
    pub byte_ns: f64,
    pub delay_ns: u64,
    pub store_ns: u64,
}

/// The node of a requester's next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChoice {
    /// Any node, chosen randomly each time.
    Any,
    /// Always the same; each node has equally many requesters.
    Own,
    /// The same, but the first node's requesters are idle.
    NotTheFirst,
}

impl World {
    /// The parameters for one node.
    fn parameters_of(&self, node: usize) -> Self {
        match self.first {
            Some(Other { packet_ns, byte_ns, delay_ns, store_ns }) if node == 0 => {
                Self { packet_ns, byte_ns, delay_ns, store_ns, ..*self }
            }
            _ => *self,
        }
    }
}

/// A control of the setting.
pub trait Control {
    fn setting(&self, node: usize) -> Setting;
    /// Records `answers` replies that arrived together, the last one `took_ns` after its request was sent; `left` requests
    /// are outstanding or queued after them.
    fn answered(&mut self, node: usize, now_ns: u64, answers: u32, left: u32, took_ns: u64);
}

/// A fixed setting for all nodes.
impl Control for Setting {
    fn setting(&self, _: usize) -> Setting {
        *self
    }
    fn answered(&mut self, _: usize, _: u64, _: u32, _: u32, _: u64) {}
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    AtNode { node: usize, requests: u32, wanted: u32 },
    NodeFree { node: usize },
    Stored { node: usize },
    HeldLong { node: usize },
    AtCoordinator { node: usize, replies: u32 },
    Resent { node: usize, back: usize },
    CoordinatorFree,
}

/// A wire that serialises packets: when the last one has left.
#[derive(Debug, Clone, Copy, Default)]
struct Wire {
    free_ns: u64,
}

impl Wire {
    /// When a packet that is sent now has left; `None` if it is lost.
    fn try_pass(&mut self, now: u64, world: &World, bytes: u64) -> Option<u64> {
        let waits = (world.queue as f64 * (world.packet_ns as f64 + world.byte_ns * PACKET_DATA_BYTES as f64)) as u64;
        (self.free_ns <= now.saturating_add(waits)).then(|| self.pass(now, world, bytes))
    }

    fn pass(&mut self, now: u64, world: &World, bytes: u64) -> u64 {
        let took = world.packet_ns + (world.byte_ns * bytes as f64) as u64;
        self.free_ns = self.free_ns.max(now.saturating_sub(world.burst * world.packet_ns)) + took;
        self.free_ns.max(now)
    }
}

/// One direction of a connection on which a packet was lost: the messages in it and behind it, the number of lost packets,
/// and the retransmission timeout.
#[derive(Debug, Clone, Copy, Default)]
struct Direction {
    stuck: u32,
    lost: u32,
    wait_ns: u64,
}

#[derive(Debug, Clone, Default)]
struct Node {
    ways: [Direction; 2],
    pending: u32,
    under_way: u32,
    /// When requests were sent, and how many together.
    left: VecDeque<(u64, u32)>,
    answered: u64,
    /// Replies at the coordinator's socket.
    replies_arrived: u32,
    inbox: u32,
    wanted: u32,
    busy: bool,
    queue: u32,
    serving: u32,
    held: u32,
    held_since: Option<u64>,
}

impl Node {
    /// Removes the `count` oldest outstanding requests; returns when the last of them was sent.
    fn oldest(&mut self, mut count: u32) -> u64 {
        let mut when = 0;
        while count > 0
            && let Some((left_ns, together)) = self.left.front_mut()
        {
            let these = count.min(*together);
            (count, *together, when) = (count - these, *together - these, *left_ns);
            if *together == 0 {
                self.left.pop_front();
            }
        }
        when
    }
}

struct Run<'a, C> {
    world: World,
    control: &'a mut C,
    random: Random,
    now: u64,
    order: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    nodes: Vec<Node>,
    /// Up and down of each node; a shared medium only uses the first one.
    wires: Vec<[Wire; 2]>,
    coordinator_busy: bool,
    ready: VecDeque<usize>,
}

/// Replies per second from `from_ns` to `until_ns`, with `load` requesters.
pub fn run<C: Control>(world: &World, load: u32, control: &mut C, span_ns: (u64, u64), seed: u64) -> f64 {
    rates(world, load, control, span_ns, seed).iter().sum()
}

/// The same, per node.
pub fn rates<C: Control>(
    world: &World,
    load: u32,
    control: &mut C,
    (from_ns, until_ns): (u64, u64),
    seed: u64,
) -> Vec<f64> {
    let mut run = Run {
        world: *world,
        control,
        random: Random::new(seed),
        now: 0,
        order: 0,
        events: BinaryHeap::new(),
        nodes: vec![Node { wanted: 1, ..Node::default() }; world.nodes],
        wires: vec![[Wire::default(); 2]; world.nodes],
        coordinator_busy: false,
        ready: VecDeque::new(),
    };
    for nth in 0..load as usize {
        let node = nth % world.nodes;
        if world.asked != NodeChoice::NotTheFirst || node > 0 {
            run.ask(node);
        }
    }
    run.write_all(0);
    let mut before = None;
    while let Some(Reverse((now, _, event))) = run.events.pop() {
        if now > until_ns {
            break;
        }
        if now > from_ns && before.is_none() {
            before = Some(run.nodes.iter().map(|node| node.answered).collect::<Vec<_>>());
        }
        run.now = now;
        run.handle_event(event);
    }
    let before = before.unwrap_or_else(|| vec![0; world.nodes]);
    let counted = run.nodes.iter().zip(before).map(|(node, before)| node.answered - before);
    counted.map(|count| count as f64 / ((until_ns - from_ns) as f64 / 1e9)).collect()
}

impl<C: Control> Run<'_, C> {
    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn vary(&mut self, time: u64) -> u64 {
        (time as f64 * (1.0 + self.world.jitter * (2.0 * self.random.unit() - 1.0))) as u64
    }

    /// The time that work takes a thread, including stalls.
    fn work(&mut self, time: u64) -> u64 {
        let time = self.vary(time);
        // Stalls occur per unit of time, so longer work encounters more of them; waking up for it counts too.
        let stalls = self.world.stalls_per_s * (time as f64 + 5_000.0) / 1e9;
        if self.random.unit() < stalls { time + 1_000_000 + self.random.below(3_000_000) } else { time }
    }

    /// A requester that was answered by `node` sends its next request.
    fn ask(&mut self, node: usize) {
        let any = self.world.asked == NodeChoice::Any;
        let node = if any { self.random.below(self.world.nodes as u64) as usize } else { node };
        self.nodes[node].pending += 1;
    }

    /// Sends a stream of `count` messages; returns their arrivals.
    fn send(&mut self, node: usize, back: usize, begin: u64, count: u32, each: u64) -> Vec<(u64, u32)> {
        let world = self.world.parameters_of(node);
        let (way, other) = if world.shared { ((0, 0), (0, 0)) } else { ((node, back), (node, 1 - back)) };
        let (total, mut sent, mut complete) = (FRAME_BYTES + each * u64::from(count), 0, 0);
        let mut arrivals = Vec::new();
        let mut full = 0;
        while sent < total {
            let bytes = PACKET_DATA_BYTES.min(total - sent);
            sent += bytes;
            let by_now = (sent.saturating_sub(FRAME_BYTES) / each) as u32;
            let messages = by_now - complete;
            complete = by_now;
            let out = self.wires[way.0][way.1].try_pass(begin, &world, bytes);
            let stream = &mut self.nodes[node].ways[back];
            if stream.wait_ns > 0 {
                stream.stuck += messages;
                stream.lost += u32::from(out.is_none());
                continue;
            }
            let Some(out) = out else {
                *stream = Direction { stuck: messages, lost: 1, wait_ns: RETRANSMISSION_TIMEOUT_NS };
                self.at(begin + RETRANSMISSION_TIMEOUT_NS, Event::Resent { node, back });
                continue;
            };
            full += u64::from(bytes == PACKET_DATA_BYTES);
            if full == 2 {
                // Two full segments are acknowledged at once, all others by data in the other direction.
                full = 0;
                self.wires[other.0][other.1].pass(out + world.delay_ns, &world, 0);
            }
            if messages > 0 {
                arrivals.push((out + self.vary(world.delay_ns), messages));
            }
        }
        arrivals
    }

    /// Retransmits a lost packet; all messages behind it arrive with it.
    fn retransmit(&mut self, node: usize, back: usize) {
        let (world, now) = (self.world.parameters_of(node), self.now);
        let way = if world.shared { (0, 0) } else { (node, back) };
        let Some(mut out) = self.wires[way.0][way.1].try_pass(now, &world, PACKET_DATA_BYTES) else {
            let wait_ns = 2 * self.nodes[node].ways[back].wait_ns;
            self.nodes[node].ways[back].wait_ns = wait_ns;
            return self.at(now + wait_ns, Event::Resent { node, back });
        };
        let Direction { stuck, lost, .. } = std::mem::take(&mut self.nodes[node].ways[back]);
        for _ in 1..lost {
            out = self.wires[way.0][way.1].pass(now, &world, PACKET_DATA_BYTES);
        }
        let wanted = self.nodes[node].wanted;
        let come = if back == 0 {
            Event::AtNode { node, requests: stuck, wanted }
        } else {
            Event::AtCoordinator { node, replies: stuck }
        };
        self.at(out + world.delay_ns, come);
    }

    /// The coordinator writes what it may, from `begin` on; returns when it is done.
    fn write_all(&mut self, mut begin: u64) -> u64 {
        for node in 0..self.nodes.len() {
            let setting = self.control.setting(node);
            loop {
                let Node { pending, under_way, .. } = self.nodes[node];
                let room = setting.frame(pending, under_way);
                if room == 0 {
                    break;
                }
                begin += self.work(self.world.call_ns + self.world.each_ns * u64::from(room));
                self.nodes[node].pending -= room;
                self.nodes[node].under_way += room;
                self.nodes[node].left.push_back((begin, room));
                for (time, requests) in self.send(node, 0, begin, room, REQUEST_BYTES) {
                    self.at(time, Event::AtNode { node, requests, wanted: setting.batch(under_way + pending) });
                }
            }
        }
        begin
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::AtNode { node, requests, wanted } => {
                self.nodes[node].inbox += requests;
                self.nodes[node].wanted = wanted;
                self.node(node);
            }
            Event::NodeFree { node } => {
                self.nodes[node].busy = false;
                self.node(node);
            }
            Event::Stored { node } => {
                let now = self.now;
                let it = &mut self.nodes[node];
                it.serving -= 1;
                it.held += 1;
                if it.held_since.is_none() {
                    it.held_since = Some(now);
                    self.at(now + REPLY_HOLD_TIMEOUT_NS, Event::HeldLong { node });
                }
                self.serve(node);
                self.node(node);
            }
            Event::HeldLong { node } => self.node(node),
            Event::AtCoordinator { node, replies } => {
                if self.nodes[node].replies_arrived == 0 {
                    self.ready.push_back(node);
                }
                self.nodes[node].replies_arrived += replies;
                self.coordinate();
            }
            Event::Resent { node, back } => self.retransmit(node, back),
            Event::CoordinatorFree => {
                self.coordinator_busy = false;
                self.coordinate();
            }
        }
    }

    /// The coordinator's thread, if it is idle: handles one node's replies, then writes all that it may.
    fn coordinate(&mut self) {
        if self.coordinator_busy {
            return;
        }
        let Some(node) = self.ready.pop_front() else { return };
        self.coordinator_busy = true;
        let replies = std::mem::take(&mut self.nodes[node].replies_arrived);
        let done = self.now + self.work(self.world.call_ns + self.world.each_ns * u64::from(replies));
        self.nodes[node].under_way -= replies;
        let left = self.nodes[node].under_way + self.nodes[node].pending;
        let took_ns = done.saturating_sub(self.nodes[node].oldest(replies));
        self.control.answered(node, done, replies, left, took_ns);
        self.nodes[node].answered += u64::from(replies);
        for _ in 0..replies {
            self.ask(node);
        }
        let done = self.write_all(done);
        self.at(done, Event::CoordinatorFree);
    }

    fn serve(&mut self, node: usize) {
        while self.nodes[node].queue > 0 && (self.nodes[node].serving as usize) < self.world.servers {
            self.nodes[node].queue -= 1;
            self.nodes[node].serving += 1;
            let time = self.now + self.vary(self.world.parameters_of(node).store_ns);
            self.at(time, Event::Stored { node });
        }
    }

    /// The node's thread, if it is idle.
    fn node(&mut self, node: usize) {
        let (world, now) = (self.world.parameters_of(node), self.now);
        let it = &mut self.nodes[node];
        if it.busy {
            return;
        }
        let taken = std::mem::take(&mut it.inbox);
        let mut cost = 0;
        let mut replies = 0;
        if taken > 0 {
            cost += world.call_ns + world.each_ns * u64::from(taken);
        }
        if world.store_ns == 0 {
            replies = taken;
        } else {
            it.queue += taken;
            let waiting = it.queue + it.serving + it.held;
            let long = it.held_since.is_some_and(|since| now >= since + REPLY_HOLD_TIMEOUT_NS);
            if it.held > 0 && (it.held >= it.wanted || it.held == waiting || long) {
                replies = std::mem::take(&mut it.held);
                it.held_since = None;
            }
        }
        if replies > 0 {
            cost += world.call_ns;
        }
        if cost == 0 {
            return;
        }
        it.busy = true;
        self.serve(node);
        let done = now + self.work(cost);
        if replies > 0 {
            for (time, replies) in self.send(node, 1, done, replies, world.reply_bytes + REPLY_BYTES) {
                self.at(time, Event::AtCoordinator { node, replies });
            }
        }
        self.at(done, Event::NodeFree { node });
    }
}
