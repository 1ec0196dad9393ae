//! Who a device command is charged to: actors, or something whose actors are not known yet.
//!
//! A [`Charge`] names either actors, or a [`Source`] that is resolved when it is complete: the members of a transaction
//! (known once the transaction is closed), the waiters of its commit, or whoever another command is charged to (the
//! command of a loop disk, which a file below it serves).

use crate::context::Context;
use model::event::{Header, flags, header_flags};
use model::{Confidence, Origin};

/// An actor that can be charged. The order serves only to make the output stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Actor {
    pub origin: Origin,
    /// The operation; 0: none.
    pub operation: u64,
    /// The process; 0: not known.
    pub tgid: u32,
    /// The operation is a guess (see `inferred`).
    pub guess: bool,
}

impl Actor {
    /// No task known to the trace.
    pub(crate) const UNATTRIBUTED: Self = Self { origin: Origin::Unattributed, operation: 0, tgid: 0, guess: false };

    /// Returns who is charged for what a thread does, in the absence of better evidence: the operation around it, which may
    /// be a guess.
    pub(crate) fn from_header(header: &Header, ctx: u16, around: Option<(u64, bool)>, cx: &Context<'_>) -> Self {
        let kernel = ctx & flags::KERNEL_THREAD != 0 || header.flags & header_flags::KERNEL_THREAD != 0;
        if cx.config.tracer == Some(header.tgid) || ctx & flags::TRACER != 0 {
            Actor::process(Origin::Tracer, header.tgid)
        } else if let Some((operation, guess)) = around {
            Actor { origin: Origin::Operation, operation, tgid: header.tgid, guess }
        } else if ctx & flags::TRACKED != 0 {
            Actor::process(Origin::Process, header.tgid)
        } else if kernel || header.tgid == 0 {
            Actor::UNATTRIBUTED
        } else {
            Actor::process(Origin::OtherProcess, header.tgid)
        }
    }

    pub(crate) fn process(origin: Origin, tgid: u32) -> Self {
        Self { origin, operation: 0, tgid, guess: false }
    }
}

/// A transaction: the disk of its journal and its number.
pub(crate) type TxnKey = (u32, u32);

/// What a charge names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// This actor.
    Actor(Actor),
    /// Whoever is charged for this command (its span) of a disk above.
    Command(u64),
    /// Those who joined the transaction, by handles.
    Joiners(TxnKey),
    /// Those who waited for its commit, equally; if there are none, those who joined it.
    Waiters(TxnKey),
}

/// A part of the cost of a bio or command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charge {
    pub source: Source,
    /// Bytes, or any measure in proportion to the other charges.
    pub weight: f64,
    pub confidence: Confidence,
    /// The kind of chain, as written to the table.
    pub via: &'static str,
    /// The span that waits (for a flush); 0: none.
    pub span: u64,
}

impl Charge {
    pub(crate) fn unattributed(weight: f64, via: &'static str) -> Self {
        Self { source: Source::Actor(Actor::UNATTRIBUTED), weight, confidence: Confidence::Exact, via, span: 0 }
    }
}

impl Charge {
    /// Whether its weight is one that can be summed and divided.
    pub(crate) fn is_valid(&self) -> bool {
        self.weight.is_finite() && self.weight >= 0.0
    }
}

/// Whether a sum is what it should be, but for rounding.
pub(crate) fn is_near(sum: f64, expected: f64) -> bool {
    (sum - expected).abs() <= expected.abs() * 1e-9
}

/// Splits off the charges of the first `bytes`; charges are in the order of their pages.
pub(crate) fn split_off_front(charges: &mut Vec<Charge>, bytes: f64) -> Vec<Charge> {
    let mut left = bytes;
    let mut front = Vec::new();
    let mut kept = Vec::new();
    for charge in charges.drain(..) {
        let taken = charge.weight.min(left).max(0.0);
        left -= taken;
        if taken > 0.0 {
            front.push(Charge { weight: taken, ..charge });
        }
        if charge.weight > taken {
            kept.push(Charge { weight: charge.weight - taken, ..charge });
        }
    }
    *charges = kept;
    front
}

/// Returns the charges of bytes `from..from + bytes` out of `all`, in page order. `all` is unchanged.
pub(crate) fn cut_out(charges: &[Charge], (from, bytes): (u64, u64), all: u64) -> Vec<Charge> {
    let sum: f64 = charges.iter().map(|c| c.weight).sum();
    if all == 0 || bytes == 0 || from.saturating_add(bytes) > all {
        return charges.to_vec();
    }
    let scale = sum / all as f64;
    let mut rest = charges.to_vec();
    split_off_front(&mut rest, from as f64 * scale);
    let part = split_off_front(&mut rest, bytes as f64 * scale);
    // Rounding is relative to the whole, of which this may be a small part.
    debug_assert!((part.iter().map(|c| c.weight).sum::<f64>() - bytes as f64 * scale).abs() <= sum * 1e-9);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_bio_is_charged_to_the_writers_of_its_pages() {
        let line = |tgid, weight| Charge {
            source: Source::Actor(Actor::process(Origin::Process, tgid)),
            ..Charge::unattributed(weight, "page")
        };
        let all = vec![line(1, 4096.0), line(2, 8192.0)];
        let seen = |c: &[Charge]| c.iter().map(|c| (c.source, c.weight)).collect::<Vec<_>>();
        assert_eq!(seen(&cut_out(&all, (8192, 4096), 12288)), [(line(2, 0.0).source, 4096.0)]);
        assert_eq!(seen(&cut_out(&all, (0, 6144), 12288)).len(), 2);
        // Data that is not a part of it, such as encrypted data elsewhere, is charged as the whole.
        assert_eq!(seen(&cut_out(&all, (8192, 8192), 12288)), seen(&all));
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn a_split_keeps_the_writer_of_each_byte() {
        let line = |tgid, weight| Charge {
            source: Source::Actor(Actor::process(Origin::Process, tgid)),
            ..Charge::unattributed(weight, "page")
        };
        let mut rest = vec![line(1, 4096.0), line(2, 8192.0)];
        let front = split_off_front(&mut rest, 8192.0);
        let seen = |c: &[Charge]| c.iter().map(|c| (c.source, c.weight)).collect::<Vec<_>>();
        assert_eq!(seen(&front), [(line(1, 0.0).source, 4096.0), (line(2, 0.0).source, 4096.0)]);
        assert_eq!(seen(&rest), [(line(2, 0.0).source, 4096.0)]);
    }
}
