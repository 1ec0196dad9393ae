//! Decides what a mirrored disk does: no socket, no task, and no clock but the times passed in.
//!
//! The model is a team that keeps identical diaries. Each page (region) says in the team's minutes who lacks it. An entry counts when
//! everybody has written it who does not lack the page; who does not answer is put down in the minutes first, and then goes without.
//! Who comes back copies the pages that he lacks, and until then nobody asks him about them.
//!
//! - **In-sync copies have every answered write.** A write goes to all copies of its region that do not lack it, and is answered when all
//!   of these have it; a copy that is silent is recorded out first, on a quorum, durably. So after the end of the coordinator any of the
//!   copies in sync is the truth, without a log, and unanswered writes are the only difference between them.
//! - **Active regions** are recorded before they are written: where copies may differ (unanswered), or may have lost something in a power
//!   cut (unflushed). Who is recorded out lacks all active regions. A new coordinator takes one copy of each, and the others lack it.
//! - Overlapping writes are done one after the other, before they are sent to any copy; reads wait for writes that they overlap.
//! - With three copies, a write needs two that have it; where there are fewer, the region is copied first.

use super::mutant::Mutant;
use super::placement::Placement;
use super::record::{Identity, Record};
use super::regions::RegionSet;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

mod nodes;
mod order;
mod reads;
mod records;
mod request;
mod resync;
mod sets;
mod takeover;
mod time;
mod writes;

pub use request::Kind;
use request::Request;
pub use takeover::Takeover;

pub type Token = u64;
pub type RequestId = u64;
/// A set of nodes: a bit each.
pub type NodeSet = u64;

/// How long the others wait for the last copy that has not answered.
pub const LATE_MS: u64 = 120;
/// The same for a write that has waited that long for something else, such as a record, to a node that was late then.
const SUSPECT_MS: u64 = 30;
/// After this time a read is also sent to another copy.
const HEDGE_MS: u64 = 25;
/// After this time a node that does not answer is recorded out, even if nobody waits for it. A medium may take as long for a flush as it
/// wants, and then nobody does.
const SILENT_MS: u64 = 3000;
/// Regions stay active for this time after their last write.
const ACTIVE_MS: u64 = if cfg!(test) { 500 } else { 5000 };
/// Regions copied before they are flushed and recorded.
const COPIED_MAX: u32 = 32;
/// Records that may be somewhere, before one is on a quorum.
const ISSUED_MAX: usize = 64;
/// Bytes copied by one request.
const COPY_BYTES: u64 = 1 << 20;

/// What a node is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    Request {
        request: RequestId,
        kind: Kind,
        offset: u64,
        length: u32,
    },
    Flush,
    /// Durably.
    Record {
        offset: u64,
        bytes: Bytes,
    },
    CopyRead {
        offset: u64,
        length: u32,
    },
    /// Anything that is answered: that proves the node has no newer coordinator.
    Probe {
        offset: u64,
    },
    /// The data of the answer to `read`.
    CopyWrite {
        read: Token,
        offset: u64,
        length: u32,
    },
}

/// What the caller has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Send {
        token: Token,
        node: usize,
        work: Work,
    },
    /// Answer a request, for a read with the data of the answer to the token.
    Reply {
        request: RequestId,
        result: Result<Token, RequestError>,
    },
    /// Close the node's connections: what it was asked is void. It may come back with [`Machine::node_up`].
    Drop {
        node: usize,
        why: Reason,
    },
}

/// Why a node is recorded out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Late,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestError {
    /// It was not possible without these nodes.
    Needs(NodeSet),
    /// The answer to this token is an error, and there is no other copy.
    Failed(Token),
}

/// Why a request failed at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A block does not match its checksum.
    Damaged,
    Other,
}

/// What a node that was claimed has.
#[derive(Debug, Clone, Default)]
pub struct Reached {
    pub node: usize,
    /// Its newest record, and the slot that it is in.
    pub record: Option<(Record, u64)>,
    /// Where it may have lost writes.
    pub lost: Vec<u32>,
}

/// Why a coordinator cannot begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeoverError {
    /// Without these nodes it is unknown, or not there, what was last written.
    Needs(NodeSet),
    /// No copy is known to have all acknowledged writes: these nodes may have lost some.
    Lost(NodeSet),
}

#[derive(Debug, Clone, Copy)]
enum Purpose {
    Request(RequestId),
    Probe,
    Record(u64),
    CopyRead(usize),
    CopyWrite,
    CopyFlush,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    node: usize,
    at_ms: u64,
    purpose: Purpose,
}

/// A region on its way to a node.
#[derive(Debug, Clone, Copy)]
struct Copy {
    region: u32,
    done_bytes: u64,
    begin_ms: u64,
}

#[derive(Debug, Default)]
struct Node {
    up: bool,
    /// The sequence of the last record that it has.
    has: u64,
    is_recording: bool,
    is_probed: bool,
    /// The last of its answers: when that was asked, or later, this coordinator was its own.
    proved: Token,
    /// The slot for its next record.
    slot: u64,
    /// Regions that it lacks according to the record, and that were copied since. It gets their writes.
    copied: RegionSet,
    unflushed_copies: u32,
    copy: Option<Copy>,
    flushing: Option<RegionSet>,
    /// Regions of which something was flushed without it since it was last asked to flush.
    missed: RegionSet,
    /// Its flushes take long: nobody waits for them, and what it lacks is kept as recorded.
    is_slow: bool,
    pause_until_ms: u64,
}

/// A region that is active.
#[derive(Debug, Clone, Copy)]
struct Activity {
    at_ms: u64,
    unflushed: bool,
    /// Changes with every write.
    version: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeState {
    pub up: bool,
    pub out: bool,
    /// Its flushes take long.
    pub slow: bool,
    /// Regions that it lacks, or may not have on its medium.
    pub lacks: u32,
}

#[derive(Debug)]
pub struct Machine {
    placement: Rc<Placement>,
    identity: Identity,
    mutant: Mutant,
    timeout_ms: u64,
    now_ms: u64,
    /// The next record; the one being written, or written last; and the last that a quorum has.
    wanted: Record,
    current: Record,
    current_since_ms: u64,
    durable: Record,
    /// The records that a node may have as its newest, and a new coordinator begin with: of the last that is durable on.
    issued: Vec<Record>,
    is_changed: bool,
    /// A node that the record in progress waits for is out.
    is_superseded: bool,
    is_ready: bool,
    nodes: Vec<Node>,
    active: BTreeMap<u32, Activity>,
    requests: BTreeMap<RequestId, Request>,
    waiting: VecDeque<RequestId>,
    tokens: BTreeMap<Token, Sent>,
    last_token: Token,
    last_version: u64,
    last_internal: RequestId,
    actions: Vec<Action>,
}

/// Requests of the machine itself have higher numbers.
const INTERNAL: RequestId = 1 << 63;

pub(super) fn members(set: NodeSet) -> impl Iterator<Item = usize> {
    (0..64).filter(move |node| set >> node & 1 == 1)
}

impl Machine {
    /// What has to be done now.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Whether a quorum knows of this coordinator: it serves requests.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    pub fn node_states(&self) -> Vec<NodeState> {
        let state = |(nth, node): (usize, &Node)| NodeState {
            up: node.up,
            out: self.records().any(|record| record.out >> nth & 1 == 1),
            slow: node.is_slow,
            lacks: self.wanted.lacks[nth].len(),
        };
        self.nodes.iter().enumerate().map(state).collect()
    }

    /// The number of copies that everything acknowledged and flushed has: of the region that has the fewest.
    pub fn durable_copies(&self) -> u32 {
        (0..self.placement.region_count()).map(|region| self.counted(region).count_ones()).min().unwrap_or(0)
    }

    /// The nodes without which nothing is answered now.
    pub fn needed(&self) -> NodeSet {
        let up = self.up();
        if self.current.is_quorum(up) { 0 } else { !up & ((1_u64 << self.nodes.len().min(63)) - 1) }
    }

    /// The state, for a story.
    #[cfg(test)]
    pub fn describe(&self) -> String {
        let record = |r: &Record| {
            let lacks: Vec<Vec<u32>> = r.lacks.iter().map(|set| set.iter().collect()).collect();
            format!(
                "{:?} out {:b} active {:?} lacks {lacks:?}",
                r.generation(),
                r.out,
                r.active.iter().collect::<Vec<_>>()
            )
        };
        let copied: Vec<Vec<u32>> = self.nodes.iter().map(|node| node.copied.iter().collect()).collect();
        format!(
            "up {:b} wanted {} | durable {} | copied {copied:?}",
            self.up(),
            record(&self.wanted),
            record(&self.durable)
        )
    }

    /// Begins a request for a range within one region; a flush has none.
    pub fn request(&mut self, request: RequestId, kind: Kind, offset: u64, length: u32, now_ms: u64) {
        self.now_ms = now_ms;
        let region = self.placement.region(offset);
        debug_assert!(length == 0 || self.placement.region(offset + u64::from(length) - 1) == region);
        let after = self.last_token;
        self.requests.insert(request, Request { after, ..Request::new(kind, region, offset, length, now_ms) });
        self.waiting.push_back(request);
        self.pump();
    }

    /// A node has answered.
    pub fn answer(&mut self, token: Token, result: Result<(), Fault>, now_ms: u64) {
        self.now_ms = now_ms;
        let Some(sent) = self.tokens.remove(&token) else { return };
        let node = &mut self.nodes[sent.node];
        node.proved = node.proved.max(token);
        match sent.purpose {
            Purpose::Probe => node.is_probed = false,
            Purpose::Request(id) => self.answer_request(id, token, sent.node, result),
            Purpose::Record(sequence) => {
                let node = &mut self.nodes[sent.node];
                node.is_recording = false;
                if result.is_ok() {
                    (node.has, node.slot) = (sequence, 1 - node.slot);
                } else {
                    self.fail_node(sent.node, Reason::Failed);
                }
            }
            Purpose::CopyRead(to) => self.answer_copy_read(to, token, result),
            Purpose::CopyWrite => self.answer_copy_write(sent.node, result),
            Purpose::CopyFlush => {
                if result.is_ok() {
                    self.answer_copy_flush(sent.node, sent.at_ms);
                } else {
                    self.nodes[sent.node].flushing = None;
                    self.fail_node(sent.node, Reason::Failed);
                }
            }
        }
        self.pump();
    }

    fn send(&mut self, node: usize, purpose: Purpose, work: Work) -> Token {
        self.last_token += 1;
        let token = self.last_token;
        self.tokens.insert(token, Sent { node, at_ms: self.now_ms, purpose });
        self.actions.push(Action::Send { token, node, work });
        token
    }

    fn pump(&mut self) {
        loop {
            let before = (self.actions.len(), self.requests.len(), self.durable.sequence, self.is_changed);
            if self.is_ready {
                self.start_waiting();
                self.run_requests();
            }
            self.pump_record();
            if self.is_ready {
                (0..self.nodes.len()).for_each(|node| self.resync(node));
                self.probe();
            }
            if before == (self.actions.len(), self.requests.len(), self.durable.sequence, self.is_changed) {
                return;
            }
        }
    }
}
