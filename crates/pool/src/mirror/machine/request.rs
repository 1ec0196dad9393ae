//! A request to the disk, as the machine sees it.

use super::{NodeSet, Token};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    /// Which parts hold data.
    Map,
    Write {
        durable: bool,
    },
    Trim {
        durable: bool,
    },
    Flush,
}

impl Kind {
    pub fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Map)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// For what it overlaps, for a record, or for copies.
    Waiting,
    Running,
}

#[derive(Debug)]
pub(super) struct Request {
    pub kind: Kind,
    pub phase: Phase,
    pub region: u32,
    pub offset: u64,
    pub length: u32,
    pub begin_ms: u64,
    /// When it was last sent to a node.
    pub sent_ms: u64,
    /// The nodes that have done it, have failed, and have not answered.
    pub done: NodeSet,
    pub failed: NodeSet,
    pub live: NodeSet,
    /// Slow nodes that were given a durable write without that, as nobody counts on their media.
    pub weak: NodeSet,
    /// The last answer that was an error.
    pub error: Option<Token>,
    /// Since when it waits for the rest of the copies.
    pub rest_since_ms: Option<u64>,
    pub is_answered: bool,
    /// The data of a read, which waits for a proof that nobody has overwritten it as another coordinator.
    pub held: Option<Token>,
    /// The last token before it began.
    pub after: Token,
    /// A write overtook it: the next one waits.
    pub is_retried: bool,
    /// What a flush covers: regions, and their version when it began.
    pub flushes: Vec<(u32, u64)>,
}

impl Request {
    pub fn new(kind: Kind, region: u32, offset: u64, length: u32, begin_ms: u64) -> Self {
        Self {
            kind,
            phase: Phase::Waiting,
            region,
            offset,
            length,
            begin_ms,
            sent_ms: begin_ms,
            done: 0,
            failed: 0,
            live: 0,
            weak: 0,
            error: None,
            rest_since_ms: None,
            is_answered: false,
            held: None,
            after: 0,
            is_retried: false,
            flushes: Vec::new(),
        }
    }

    pub fn is_running_write(&self) -> bool {
        self.phase == Phase::Running && !self.kind.is_read() && self.kind != Kind::Flush
    }

    pub fn is_running_retry(&self) -> bool {
        self.phase == Phase::Running && self.kind.is_read() && self.is_retried && !self.is_answered
    }

    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }
}
