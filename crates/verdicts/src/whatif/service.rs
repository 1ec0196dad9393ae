//! Command times on another device: service times measured there, drawn for each command by its kind and size.
//!
//! Between commands other threads have to be woken, which depends on the depth of CPU idle states: it takes longer after a long
//! wait. So the time between commands is also taken from there, on average.
//!
//! A command that was issued while others were in flight also waited for them. That queue was the donor's, not this recording's, whose
//! own waits are in it already: so the times are those of commands that found the device idle, and where a class has too few of these, the
//! time since the commands before it were done.
//!
//! **Uncertainty.** On a device that works on several commands at once the latter is too short. Draws are independent, but a device's slow periods last; and a service time measured there includes the
//! effect of other work of that device. A kind that was not measured there keeps its time; a size that was not is taken from the
//! nearest one.

use super::pieces::{Piece, pieces};
use crate::diff::phase::Phases;
use analysis::rows::{Index, IoAction};
use model::table::Span;
use model::{Layer, Reason, SpanFlag};
use stats::random::Random;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Commands that found the device idle from which on they alone stand for their class.
const ALONE_COMMANDS_MIN: usize = 5;

/// Kind of command, whether it forces data to the medium (FUA), and the octave of its size.
type Class = (IoAction, bool, u32);

/// Service times, by class.
#[derive(Debug, Default)]
pub struct ServiceTimes {
    times: BTreeMap<Class, Vec<u64>>,
    between_ns: Option<f64>,
}

/// Returns the mean time that a thread slept in calls without waiting for a command, for each command waited for.
pub fn mean_time_between(pieces: &[Vec<Piece>]) -> Option<f64> {
    let all = || pieces.iter().flatten().filter(|piece| piece.call.is_some());
    let commands = all().filter(|piece| matches!(piece.reason, Reason::Device | Reason::Flush)).count();
    let between =
        all().filter(|piece| matches!(piece.reason, Reason::Journal | Reason::Other)).map(|piece| piece.ns as f64);
    (commands > 0).then(|| between.sum::<f64>() / commands as f64)
}

fn command_class(span: &Span) -> Class {
    let fua = span.has(SpanFlag::Fua);
    (IoAction::on_disk(span), fua, span.bytes.max(1).ilog2())
}

/// Yields the finished commands of the disks that hold the files.
fn finished_commands<'a>(index: &'a Index<'a>) -> impl Iterator<Item = (Span, u64)> {
    let counted = |span: &Span| span.disk.is_some_and(|disk| index.counted_disks.contains(&disk));
    let all = index.rows.spans.of_layer(Layer::Driver).map(|(_, span)| span).filter(counted);
    all.filter_map(|span| span.took_ns().map(|took_ns| (span, took_ns)))
}

impl ServiceTimes {
    /// Collects the commands of a recording.
    pub fn new(index: &Index) -> Self {
        let (mut alone, mut served): (BTreeMap<Class, Vec<u64>>, BTreeMap<Class, Vec<u64>>) = Default::default();
        let mut commands: Vec<(Span, u64)> = finished_commands(index).collect();
        commands.sort_by_key(|(span, _)| (span.start_ns, span.id));
        // When each disk has done all that it was given before.
        let mut busy_until: HashMap<Option<u32>, u64> = HashMap::new();
        for (span, ns) in commands {
            let until = busy_until.entry(span.disk).or_default();
            let end_ns = span.start_ns.saturating_add(ns);
            if *until <= span.start_ns {
                alone.entry(command_class(&span)).or_default().push(ns);
            }
            let from_ns = span.start_ns.max((*until).min(end_ns));
            served.entry(command_class(&span)).or_default().push(end_ns - from_ns);
            *until = (*until).max(end_ns);
        }
        let times = served.into_iter().map(|(class, served)| {
            let own = alone.remove(&class).filter(|own| own.len() >= ALONE_COMMANDS_MIN);
            (class, own.unwrap_or(served))
        });
        let times = times.collect();
        let phases = Phases::new(index);
        Self { times, between_ns: mean_time_between(&pieces(index, &phases)) }
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Returns the service times of the nearest class, and whether it is an exact match.
    fn nearest(&self, (does, fua, octave): Class) -> Option<(&[u64], bool)> {
        let of = self.times.iter().filter(|((d, ..), _)| *d == does);
        let distance = |(_, f, o): &Class| (u32::from(*f != fua) * 64).saturating_add(o.abs_diff(octave));
        let (found, times) = of.min_by_key(|(class, _)| distance(class))?;
        Some((times, *found == (does, fua, octave)))
    }
}

/// Scale factors for the commands of a recording on the other device.
#[derive(Debug, Default)]
pub struct Factors {
    /// By the command's span; none for a request or a bio that it carries.
    pub of: HashMap<u64, f64>,
    /// The average factor, weighted by time.
    pub mean: f64,
    /// The factor for the time between commands.
    pub between: f64,
    /// Kinds of commands that were not measured on the other device.
    pub unknown: BTreeSet<&'static str>,
    /// Time of commands of kinds that were measured there, and of others, in this recording.
    pub known_ns: u64,
    pub unknown_ns: u64,
    /// Number of commands whose times are from another size.
    pub nearest: u64,
    /// Number of commands with a drawn time.
    pub drawn: u64,
}

/// Draws a time for each command. A command with several waiters has one time, the same for all of them.
pub fn draw(index: &Index, own: &[Vec<Piece>], other: &ServiceTimes, seed: u64) -> Factors {
    let mut random = Random::new(seed);
    let mut factors = Factors::default();
    let (mut before, mut after) = (0.0, 0.0);
    for (span, ns) in finished_commands(index) {
        let Some((times, exact)) = other.nearest(command_class(&span)) else {
            factors.unknown.insert(IoAction::on_disk(&span).name());
            factors.unknown_ns = factors.unknown_ns.saturating_add(ns);
            continue;
        };
        let drawn = times[random.below(times.len() as u64) as usize] as f64;
        factors.drawn += 1;
        factors.known_ns = factors.known_ns.saturating_add(ns);
        factors.nearest += u64::from(!exact);
        factors.of.insert(span.id, drawn / ns.max(1) as f64);
        (before, after) = (before + ns as f64, after + drawn);
    }
    let ratio = mean_time_between(own).zip(other.between_ns).map(|(ours, theirs)| theirs / ours);
    factors.between = ratio.filter(|ratio| ratio.is_finite()).unwrap_or(1.0);
    factors.mean = if before > 0.0 { after / before } else { 1.0 };
    factors
}
