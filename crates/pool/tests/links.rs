//! The controllers on simulated links: they must come within a tenth of the best fixed setting, by themselves.
//!
//! The simulation is a closed loop in virtual time: `load` requesters, one connection, a link that serialises packets in
//! each direction, a node that drains what has come, serves it with `servers` workers and answers what is done in one write.

use pool::setting::Setting;
use pool::tuner::Tuner;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

#[derive(Debug, Clone, Copy)]
struct Link {
    name: &'static str,
    /// Time on the wire of a packet, however small.
    packet_ns: u64,
    /// And of a byte.
    byte_ns: f64,
    /// One way, besides.
    delay_ns: u64,
    /// What a write or a read of the socket costs either end.
    call_ns: u64,
    /// What a request costs the node's one thread.
    serve_ns: u64,
    /// Time in the store, in which others are served as well.
    store_ns: u64,
    /// How many the store serves at once.
    servers: usize,
    /// Bytes of a reply.
    reply_bytes: u64,
}

const LINKS: [Link; 4] = [
    Link {
        name: "loopback",
        packet_ns: 0,
        byte_ns: 0.05,
        delay_ns: 3_000,
        call_ns: 5_000,
        serve_ns: 1_000,
        store_ns: 0,
        servers: 1,
        reply_bytes: 512,
    },
    Link {
        name: "packet-bound",
        packet_ns: 250_000,
        byte_ns: 0.0,
        delay_ns: 20_000,
        call_ns: 5_000,
        serve_ns: 1_000,
        store_ns: 0,
        servers: 1,
        reply_bytes: 512,
    },
    Link {
        name: "byte-bound",
        packet_ns: 1_000,
        byte_ns: 200.0,
        delay_ns: 500_000,
        call_ns: 5_000,
        serve_ns: 1_000,
        store_ns: 0,
        servers: 1,
        reply_bytes: 4096,
    },
    Link {
        name: "slow disk",
        packet_ns: 0,
        byte_ns: 0.05,
        delay_ns: 20_000,
        call_ns: 5_000,
        serve_ns: 1_000,
        store_ns: 1_900_000,
        servers: 4,
        reply_bytes: 512,
    },
];

const MTU: u64 = 1448;
const REQUEST_BYTES: u64 = 16;
const FRAME_BYTES: u64 = 44;

/// Who decides.
#[derive(Debug, Clone)]
enum Policy {
    Fixed(Setting),
    Tuned(Box<Tuner>),
}

impl Policy {
    fn setting(&self) -> Setting {
        match self {
            Self::Fixed(setting) => *setting,
            Self::Tuned(tuner) => tuner.setting(),
        }
    }
    fn answered(&mut self, now_ns: u64, demand: u32) {
        if let Self::Tuned(tuner) = self {
            tuner.answered(now_ns, demand);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Requests reach the node; the times at which they were issued.
    AtNode(Vec<u64>),
    /// The node's thread is free again.
    NodeFree,
    /// The store is done with one.
    Stored(u64),
    /// Replies reach the coordinator.
    AtCoordinator(Vec<u64>),
}

/// One direction of the wire: when what is written now has gone out.
struct Wire {
    free_ns: u64,
}

impl Wire {
    /// Cuts a write, which is a stream of messages of `each` bytes, into packets; each message arrives with its last byte.
    fn send(&mut self, now: u64, link: &Link, messages: Vec<u64>, each: u64) -> Vec<(u64, Vec<u64>)> {
        let mut arrivals = Vec::new();
        let (total, mut sent, mut messages) = (FRAME_BYTES + each * messages.len() as u64, 0, messages.into_iter());
        let mut complete = 0;
        while sent < total {
            let bytes = MTU.min(total - sent);
            sent += bytes;
            self.free_ns = self.free_ns.max(now) + link.packet_ns + (link.byte_ns * bytes as f64) as u64;
            let by_now = sent.saturating_sub(FRAME_BYTES) / each;
            let chunk: Vec<u64> = messages.by_ref().take((by_now - complete) as usize).collect();
            complete = by_now;
            if !chunk.is_empty() {
                arrivals.push((self.free_ns + link.delay_ns, chunk));
            }
        }
        arrivals
    }
}

/// Requests a second in the last half of `span_ns`.
fn run(link: &Link, load: u32, mut policy: Policy, span_ns: u64) -> (f64, Setting) {
    let mut events: BinaryHeap<Reverse<(u64, u64, Event)>> = BinaryHeap::new();
    let mut order = 0;
    let mut at = |events: &mut BinaryHeap<_>, time: u64, event: Event| {
        order += 1;
        events.push(Reverse((time, order, event)));
    };
    let (mut up, mut down) = (Wire { free_ns: 0 }, Wire { free_ns: 0 });
    let (mut pending, mut under_way) = (VecDeque::from(vec![0_u64; load as usize]), 0_u32);
    let mut inbox: Vec<u64> = Vec::new();
    let (mut waiting, mut busy): (VecDeque<u64>, usize) = (VecDeque::new(), 0);
    let (mut node_busy, mut done): (bool, Vec<u64>) = (false, Vec::new());
    let mut counted = 0_u64;
    let mut coordinator_free = 0_u64;

    macro_rules! write {
        ($now:expr) => {
            loop {
                let room = policy.setting().window().saturating_sub(under_way).min(pending.len() as u32);
                if room == 0 || !policy.setting().write_now(room, under_way) {
                    break;
                }
                let begin = coordinator_free.max($now);
                coordinator_free = begin + link.call_ns;
                let sent: Vec<u64> = pending.drain(..room as usize).map(|_| $now).collect();
                under_way += room;
                for (time, chunk) in up.send(coordinator_free, link, sent, REQUEST_BYTES) {
                    at(&mut events, time, Event::AtNode(chunk));
                }
            }
        };
    }
    macro_rules! node {
        ($now:expr) => {
            if !node_busy && (!inbox.is_empty() || !done.is_empty()) {
                // Drain, serve, answer what is done in one write.
                node_busy = true;
                let taken: Vec<u64> = inbox.drain(..).collect();
                let mut cost = link.call_ns + link.serve_ns * taken.len() as u64;
                if link.store_ns == 0 {
                    done.extend(taken);
                } else {
                    waiting.extend(taken);
                }
                if !done.is_empty() {
                    cost += link.call_ns;
                    for (time, chunk) in down.send($now + cost, link, std::mem::take(&mut done), link.reply_bytes + 12)
                    {
                        at(&mut events, time, Event::AtCoordinator(chunk));
                    }
                }
                at(&mut events, $now + cost, Event::NodeFree);
            }
        };
    }
    write!(0);
    while let Some(Reverse((now, _, event))) = events.pop() {
        if now > span_ns {
            break;
        }
        match event {
            Event::AtNode(requests) => inbox.extend(requests),
            Event::NodeFree => node_busy = false,
            Event::Stored(request) => {
                busy -= 1;
                done.push(request);
            }
            Event::AtCoordinator(replies) => {
                for _ in replies {
                    let demand = under_way + pending.len() as u32;
                    under_way -= 1;
                    pending.push_back(now);
                    counted += u64::from(now > span_ns / 2);
                    policy.answered(now, demand);
                }
                write!(now);
            }
        }
        while busy < link.servers && link.store_ns > 0 {
            let Some(request) = waiting.pop_front() else { break };
            busy += 1;
            at(&mut events, now + link.store_ns, Event::Stored(request));
        }
        node!(now);
    }
    (counted as f64 / (span_ns as f64 / 2e9), policy.setting())
}

/// The span in which a link answers some hundred thousand requests.
fn span(link: &Link) -> u64 {
    if link.packet_ns + link.store_ns == 0 && link.byte_ns < 1.0 { 1_000_000_000 } else { 60_000_000_000 }
}

#[test]
fn the_controllers_come_within_a_tenth_of_the_best_fixed_setting() {
    let mut told = Vec::new();
    for link in &LINKS {
        for load in [1_u32, 8, 64, 512] {
            let mut best = (0.0, 0, 0);
            for window in [1_u32, 2, 4, 8, 16, 32, 64, 128, 256, 512].into_iter().filter(|w| *w <= load) {
                for batch in [1, 2, 4, 8, 16, 32, 64, 128, 256].into_iter().filter(|b| *b <= window) {
                    let (rate, _) = run(link, load, Policy::Fixed(Setting::new(window, batch)), span(link) / 20);
                    if rate > best.0 {
                        best = (rate, window, batch);
                    }
                }
            }
            let (tuned, setting) = run(link, load, Policy::Tuned(Box::new(Tuner::new(1024))), span(link));
            told.push(format!("{} load {load}: tuned {tuned:.0}/s with {setting:?}, best {best:?}", link.name));
            if tuned < 0.9 * best.0 {
                told.push("    ^ too little".into());
            }
        }
    }
    assert!(!told.iter().any(|line| line.contains("too little")), "\n{}", told.join("\n"));
}
