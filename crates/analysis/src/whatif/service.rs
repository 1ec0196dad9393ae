//! How long another device takes for what this one did: service times measured there, drawn for each command by what it does and how
//! large it is.
//!
//! Between commands others have to be woken, which takes as long as CPUs sleep deep: longer after a long wait. So the time between them is
//! taken from there, too, on average.
//!
//! **Uncertainty.** Draws are independent, where a device's slow moments last; and a service time measured there holds what else that
//! device did meanwhile. A kind that was not measured there keeps its time; a size that was not is taken from the nearest one.

use super::pieces::{Piece, pieces};
use crate::diff::phase::Phases;
use crate::rows::{Index, IoAction};
use model::table::Span;
use model::{Layer, Reason, SpanFlag};
use stats::random::Random;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a command does, whether it forces data to the medium (FUA), and the octave of its bytes.
type Class = (IoAction, bool, u32);

/// Service times, by class.
#[derive(Debug, Default)]
pub struct Measured {
    times: BTreeMap<Class, Vec<u64>>,
    between_ns: Option<f64>,
}

/// Mean time that a thread slept in calls while no command was waited for, for each command that was.
pub fn between(pieces: &[Vec<Piece>]) -> Option<f64> {
    let all = || pieces.iter().flatten().filter(|piece| piece.call.is_some());
    let commands = all().filter(|piece| matches!(piece.reason, Reason::Device | Reason::Flush)).count();
    let between =
        all().filter(|piece| matches!(piece.reason, Reason::Journal | Reason::Other)).map(|piece| piece.ns as f64);
    (commands > 0).then(|| between.sum::<f64>() / commands as f64)
}

fn class(span: &Span) -> Class {
    let fua = span.has(SpanFlag::Fua);
    (IoAction::on_disk(span), fua, span.bytes.max(1).ilog2())
}

/// The finished commands of the disks that hold the files.
fn commands<'a>(index: &'a Index<'a>) -> impl Iterator<Item = (&'a Span, u64)> {
    let counted = |span: &&Span| span.disk.is_some_and(|disk| index.counted.contains(&disk));
    let all = index.rows.spans.iter().filter(|span| span.layer == Layer::Driver).filter(counted);
    all.filter_map(|span| Some((span, span.end_ns?.checked_sub(span.start_ns)?)))
}

impl Measured {
    /// The commands of a recording.
    pub fn new(index: &Index) -> Self {
        let mut times: BTreeMap<Class, Vec<u64>> = BTreeMap::new();
        for (span, ns) in commands(index) {
            times.entry(class(span)).or_default().push(ns);
        }
        let phases = Phases::new(index);
        Self { times, between_ns: between(&pieces(index, &phases)) }
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The service times of the nearest class, and whether it is the very one.
    fn nearest(&self, (does, fua, octave): Class) -> Option<(&[u64], bool)> {
        let of = self.times.iter().filter(|((d, ..), _)| *d == does);
        let distance = |(_, f, o): &Class| (u32::from(*f != fua) * 64).saturating_add(o.abs_diff(octave));
        let (found, times) = of.min_by_key(|(class, _)| distance(class))?;
        Some((times, *found == (does, fua, octave)))
    }
}

/// How many times as long each command of a recording takes on the other device.
#[derive(Debug, Default)]
pub struct Factors {
    /// By the command's span; of a request or a bio that it carries, nothing.
    pub of: HashMap<u64, f64>,
    /// The same on average, by time.
    pub mean: f64,
    /// The same of what comes between commands.
    pub between: f64,
    /// Commands by kind that the other device did not measure at all.
    pub unknown: BTreeSet<&'static str>,
    /// Commands whose size was taken from another.
    pub nearest: u64,
    /// Commands that got a time.
    pub drawn: u64,
}

/// Draws a time for each command. A command that several wait for has one, so that all of them wait alike.
pub fn draw(index: &Index, own: &[Vec<Piece>], other: &Measured, seed: u64) -> Factors {
    let mut random = Random::new(seed);
    let mut factors = Factors::default();
    let (mut before, mut after) = (0.0, 0.0);
    for (span, ns) in commands(index) {
        let Some((times, exact)) = other.nearest(class(span)) else {
            factors.unknown.insert(IoAction::on_disk(span).name());
            continue;
        };
        let drawn = times[random.below(times.len() as u64) as usize] as f64;
        factors.drawn += 1;
        factors.nearest += u64::from(!exact);
        factors.of.insert(span.id, drawn / ns.max(1) as f64);
        (before, after) = (before + ns as f64, after + drawn);
    }
    let ratio = between(own).zip(other.between_ns).map(|(ours, theirs)| theirs / ours);
    factors.between = ratio.filter(|ratio| ratio.is_finite()).unwrap_or(1.0);
    factors.mean = if before > 0.0 { after / before } else { 1.0 };
    factors
}
