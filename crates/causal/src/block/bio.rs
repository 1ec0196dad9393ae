//! A bio, and the words for its operation and flags.

use crate::activity::Flight;
use crate::actor::{Charge, TxnKey};
use model::event::bio_flags;
use model::{DiskOp, SpanFlag};
use std::borrow::Cow;
use std::sync::LazyLock;

/// A bio in flight.
#[derive(Debug, Clone)]
pub(crate) struct Bio {
    pub span: u64,
    pub queue_ns: u64,
    pub cpu: u16,
    pub tgid: u32,
    pub tid: u32,
    pub disk: u32,
    pub sector: u64,
    pub bytes: u64,
    pub op: DiskOp,
    pub flags: u16,
    pub file: Option<u64>,
    pub offset: Option<u64>,
    pub operation: Option<u64>,
    pub charges: Vec<Charge>,
    /// The thread that submitted it through a ring; 0: none.
    pub ring: u32,
    pub flight: u64,
    pub commit: Option<TxnKey>,
    pub call: (u32, u64),
    pub pages_of: (u32, u64),
    /// It carries a program's memory: direct I/O.
    pub direct: bool,
    /// Made from another bio and not seen to be queued itself.
    pub derived: bool,
    /// Its start within the bytes of that bio.
    pub at_parent: u64,
    /// Its row has been written.
    pub written: bool,
    /// The request that took it.
    pub carrier: u64,
}

impl Bio {
    /// Whether it carries blocks of the disk itself rather than pages of a file.
    pub(crate) fn is_block(&self) -> bool {
        self.pages_of.1 != 0 && self.pages_of.1 == u64::from(self.pages_of.0)
    }

    /// Whether it waits, or will wait, for a flush of the disk's cache.
    pub(crate) fn is_barrier(&self) -> bool {
        self.op == DiskOp::Flush || self.flags & (bio_flags::PREFLUSH | bio_flags::FUA) != 0
    }
}

/// The bits of [`bio_flags`].
const FLAG_BITS: u16 = 0x1ff;

static FLAG_TEXTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let named: [(u16, &str); 9] = [
        (bio_flags::SYNC, SpanFlag::Sync.name()),
        (bio_flags::META, SpanFlag::Meta.name()),
        (bio_flags::PREFLUSH, SpanFlag::Preflush.name()),
        (bio_flags::FUA, SpanFlag::Fua.name()),
        (bio_flags::READ_AHEAD, "readahead"),
        (bio_flags::BACKGROUND, "background"),
        (bio_flags::FLUSH_SEQUENCE, "sequence"),
        (bio_flags::COUNTED, "counted"),
        (bio_flags::UNTIMED, SpanFlag::Untimed.name()),
    ];
    let text = |op: &DiskOp, bits: u16| {
        let words = named.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, word)| *word);
        std::iter::once(op.name()).chain(words).collect::<Vec<_>>().join(" ")
    };
    DiskOp::ALL.iter().flat_map(|op| (0..=FLAG_BITS).map(move |bits| text(op, bits))).collect()
});

/// Returns a bio's or request's operation and flags in words: `write sync meta`.
pub(crate) fn flag_words(op: DiskOp, bits: u16) -> Cow<'static, str> {
    Cow::Borrowed(&FLAG_TEXTS[op as usize * (usize::from(FLAG_BITS) + 1) + usize::from(bits & FLAG_BITS)])
}

pub(crate) fn disk_op(number: u8) -> DiskOp {
    DiskOp::from_number(number).unwrap_or(DiskOp::Other)
}

pub(super) fn new_flight(bio: &Bio) -> Flight {
    Flight {
        queue_ns: bio.queue_ns,
        made_ns: u64::MAX,
        issue_ns: u64::MAX,
        done_ns: u64::MAX,
        guess: false,
        flush: false,
        read: bio.op == DiskOp::Read,
        call: bio.call,
        file: bio.pages_of,
        commit: bio.commit,
        ring: bio.ring,
        bio: bio.span,
        request: 0,
        command: 0,
    }
}
