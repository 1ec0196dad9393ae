//! What a run came to: for each direction the throughput, what limited it, and what became of packets; and all of it in a few numbers.

use crate::estimate::{self, Throughput};
use crate::outcome::{Received, Sent};
use crate::run::Outcome;
use crate::spec::{Direction, Readings};
use crate::turns::{self, Turns};
use crate::why::{self, Limit, TimedCause};

/// One direction.
#[derive(Debug)]
pub struct DirectionResult<'a> {
    /// Which.
    pub direction: Direction,
    /// How much came through.
    pub throughput: Throughput,
    /// What held it back.
    pub limits: Vec<Limit>,
    /// The same as time went on.
    pub course: Vec<TimedCause>,
    /// The sending end's view.
    pub sent: &'a Sent,
    /// The receiving end's view.
    pub received: &'a Received,
    /// Of UDP, its packets.
    pub packets: Option<Packets>,
    /// Mathis' and Padhye's bounds, bit/s.
    pub bounds: Option<(f64, f64)>,
    /// Throughput with readings of TCP's state over that without, or why it is unknown; if it was asked for.
    pub cost: Option<Result<stats::Estimate, CostUnknown>>,
}

/// Why the cost of readings is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CostUnknown {
    /// Readings of one end and throughput of the other cannot be assigned to one moment.
    #[error(
        "the ends started {:.0} ms apart, too far for readings and throughput to be aligned: use a shorter path",
        *ns as f64 / 1e6
    )]
    Apart {
        /// How far, ns.
        ns: u64,
    },
    /// There are too few pairs.
    #[error("too few intervals of 0.1 s could be compared: give a longer --duration")]
    TooShort,
}

/// What became of the packets of UDP.
#[derive(Debug, serde::Serialize)]
pub struct Packets {
    /// Those that were to be sent.
    pub due: u64,
    /// Those that were.
    pub sent: u64,
    /// Those that came.
    pub received: u64,
    /// Those that did not.
    pub lost: u64,
    /// Share of those sent, 0 to 1.
    pub loss: f64,
    /// Those that its socket had no room for.
    pub dropped_by_receiver: u64,
    /// Those that came after a later one.
    pub reordered: u64,
    /// Those that came twice.
    pub duplicates: u64,
    /// As RFC 3550 has it.
    pub jitter_us: f64,
    /// How late the sender was: median, 99th percentile, most.
    pub sender_late_us: [f64; 3],
    /// One-way delay.
    pub one_way_us: Option<Delay>,
}

/// One-way delay by the clocks of both ends.
#[derive(Debug, serde::Serialize)]
pub struct Delay {
    /// The shortest, us.
    pub min: f64,
    /// The median.
    pub p50: f64,
    /// 90 of 100 were shorter.
    pub p90: f64,
    /// 99 of 100 were.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// The clocks' offset is known to this much: every value may be wrong by it, all the same way.
    pub offset_error: f64,
}

/// Every direction of a run.
pub fn directions(outcome: &Outcome) -> Vec<DirectionResult<'_>> {
    outcome.spec.directions.iter().filter_map(|d| one(outcome, *d)).collect()
}

fn one(outcome: &Outcome, direction: Direction) -> Option<DirectionResult<'_>> {
    let (sent, received) = (outcome.sent(direction)?, outcome.received(direction)?);
    let throughput = estimate::of(outcome.spec.traffic, sent, received)?;
    let seen = why::BothEnds {
        spec: &outcome.spec,
        sent,
        received,
        sender: outcome.sender(direction),
        receiver: outcome.receiver(direction),
        rate_bps: throughput.whole,
        searched: outcome.searched,
    };
    let (limits, course) = match outcome.spec.readings {
        Readings::All => (why::limits(&seen), why::course(&seen)),
        _ => Default::default(),
    };
    // A few readings of one window tell no path's loss.
    let bounds = match outcome.spec.readings {
        Readings::None => None,
        _ => why::bounds(&sent.samples, sent.sockets.len()),
    };
    let packets = packets(outcome, sent, received);
    let cost = match outcome.spec.readings {
        Readings::ByTurns { seed, .. } => {
            Some(cost(outcome, &Turns::new(seed, outcome.spec.duration_ms), sent, received))
        }
        _ => None,
    };
    Some(DirectionResult { direction, limits, course, packets, throughput, sent, received, bounds, cost })
}

/// What the readings cost.
fn cost(outcome: &Outcome, turns: &Turns, sent: &Sent, received: &Received) -> Result<stats::Estimate, CostUnknown> {
    // Both ends' beginnings by the clock of the one that asked.
    let ours = |ns: u64, there: bool| outcome.clock.filter(|_| there).map_or(ns, |clock| clock.ours(ns));
    let up = sent.direction == Direction::Up;
    let apart = ours(sent.start_ns, !up).abs_diff(ours(received.start_ns, up));
    if apart > turns::APART_NS {
        return Err(CostUnknown::Apart { ns: apart });
    }
    turns.ratio(received).ok_or(CostUnknown::TooShort)
}

fn packets(outcome: &Outcome, sent: &Sent, received: &Received) -> Option<Packets> {
    let (s, r) = (sent.packets.as_ref()?, received.packets.as_ref()?);
    let lost = s.sent.saturating_sub(r.received);
    Some(Packets {
        due: s.due,
        sent: s.sent,
        received: r.received,
        lost,
        loss: lost as f64 / s.sent.max(1) as f64,
        dropped_by_receiver: r.dropped_here,
        reordered: r.reordered,
        duplicates: r.duplicates,
        jitter_us: r.jitter_us,
        sender_late_us: s.late_us,
        one_way_us: delay(outcome, sent.direction, &r.transit_ns),
    })
}

/// One-way delays: when a packet arrived, by the receiver's clock, and how long it took, us. Transit times are arrival by the
/// receiver's clock less departure by the sender's.
fn delays(outcome: &Outcome, direction: Direction, transits: &[(u64, i64)]) -> Vec<(u64, f64)> {
    let Some(clock) = outcome.clock else { return Vec::new() };
    let one = |(arrived, transit): &(u64, i64)| {
        let ns = match direction {
            // The other end's clock is ahead: what it stamps is too late by that.
            Direction::Up => *transit as f64 - clock.ahead_at(clock.ours(*arrived)),
            Direction::Down => *transit as f64 + clock.ahead_at(*arrived),
        };
        (*arrived, ns / 1e3)
    };
    transits.iter().map(one).collect()
}

fn delay(outcome: &Outcome, direction: Direction, transits: &[(u64, i64)]) -> Option<Delay> {
    let mut all: Vec<f64> = delays(outcome, direction, transits).into_iter().map(|d| d.1).collect();
    all.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| stats::quantile::of_sorted(&all, q);
    Some(Delay {
        min: *all.first()?,
        p50: at(0.5)?,
        p90: at(0.9)?,
        p99: at(0.99)?,
        max: *all.last()?,
        offset_error: outcome.clock?.error_ns / 1e3,
    })
}

/// A value of a moment.
#[derive(Debug)]
pub struct Point {
    /// Of what.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Of which direction, stream or cause.
    pub labels: String,
    /// CLOCK_BOOTTIME of the end that asked, ns.
    pub time_ns: u64,
    /// How much.
    pub value: f64,
}

/// What a page draws over time besides TCP's own readings: the throughput of every interval, what held TCP back in each 100 ms, and
/// the one-way delays of some packets of UDP.
pub fn over_time(outcome: &Outcome, t: &DirectionResult<'_>) -> Vec<Point> {
    let up = t.direction == Direction::Up;
    // A time of the end that saw it, by our clock.
    let here = |by_other: bool, ns: u64| match outcome.clock.filter(|_| by_other) {
        Some(clock) => clock.ours(ns),
        None => ns,
    };
    let way = format!("direction={}", t.direction.name());
    let point =
        |metric, unit, labels: &str, time_ns, value| Point { metric, unit, labels: labels.into(), time_ns, value };
    let rates = t.received.ends_ns.iter().zip(&t.throughput.intervals);
    let mut points: Vec<Point> =
        rates.map(|(end, (_, bps))| point("interval", "bit/s", &way, here(up, *end), *bps)).collect();
    points.extend(t.course.iter().map(|m| {
        let labels = format!("{way} cause={}", m.cause.name().replace(' ', "_"));
        point("limited", "1", &labels, here(!up, m.start_ns), m.share)
    }));
    if let Some(packets) = &t.received.packets {
        let delays = delays(outcome, t.direction, &packets.transit_ns);
        let every = delays.len().div_ceil(DELAYS).max(1);
        let some = delays.iter().step_by(every);
        points.extend(some.map(|(at, us)| point("one_way_us", "us", &way, here(up, *at), *us)));
    }
    points
}

/// One-way delays of a run that are kept.
const DELAYS: usize = 2000;

/// What held transactions back; nothing if the run was of something else.
pub fn transactions(outcome: &Outcome) -> Vec<Limit> {
    why::transactions(&outcome.spec, &outcome.own, &outcome.other)
}

/// All directions of bulk together, or the transactions.
pub fn total(outcome: &Outcome, directions: &[DirectionResult<'_>]) -> Option<Throughput> {
    if let Some(t) = &outcome.own.transactions {
        return estimate::throughput(t.start_ns, &t.ends_ns, &t.counts, 1.0);
    }
    match directions {
        [one] => Some(one.throughput.clone()),
        [a, b] => {
            let (x, y) = (&a.throughput, &b.throughput);
            // Two directions at once are no independent runs, so their intervals add up.
            let ci95 = x.ci95.zip(y.ci95).map(|(p, q)| (p.0 + q.0, p.1 + q.1));
            Some(Throughput {
                steady: x.steady + y.steady,
                ci95,
                whole: x.whole + y.whole,
                steady_from_s: x.steady_from_s.max(y.steady_from_s),
                is_steady: x.is_steady && y.is_steady,
                alike: x.alike.max(y.alike),
                intervals: Vec::new(),
            })
        }
        _ => None,
    }
}

/// How far the widest interval of a direction's score reaches to either side, as a share of it.
pub fn within(outcome: &Outcome, directions: &[DirectionResult<'_>]) -> Option<f64> {
    let each = directions
        .iter()
        .map(|t| t.throughput.clone())
        .chain(total(outcome, directions).filter(|_| directions.is_empty()));
    let shares = each.map(|t| t.ci95.map(|(low, high)| (high - low) / 2.0 / t.steady)).collect::<Option<Vec<f64>>>();
    shares.and_then(|all| all.into_iter().reduce(f64::max)).filter(|within| within.is_finite())
}

/// A number of the whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Of what.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// How much.
    pub value: f64,
}

/// A fact of the whole run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// About what.
    pub name: String,
    /// What.
    pub text: String,
}

/// A run in a few numbers: what a benchmark's replicate prints, and what an archive keeps beside the course of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Its numbers.
    pub metrics: Vec<Metric>,
    /// Whether they can be believed.
    pub verified: bool,
    /// Why, or why not.
    pub by: String,
    /// How far the interval of the score reaches to either side, as a share of it, for whoever adds what an emulated link did.
    pub within: Option<f64>,
    /// What limited it, and what its sockets were granted.
    pub marks: Vec<Mark>,
}

/// The score of a run of transactions.
pub const TRANSACTIONS: &str = "transactions";
/// That of any other.
pub const THROUGHPUT: &str = "throughput";

/// What a run came to in a few numbers.
pub fn summary(outcome: &Outcome) -> Summary {
    let directions = directions(outcome);
    let mut metrics = Vec::new();
    let mut metric =
        |name: &str, unit: &'static str, value: f64| metrics.push(Metric { name: name.into(), unit, value });
    if let Some(all) = total(outcome, &directions) {
        match &outcome.own.transactions {
            Some(t) => {
                metric(TRANSACTIONS, "1/s", all.steady);
                metric("latency.p50", "us", t.latency_us[0]);
                metric("latency.p99", "us", t.latency_us[2]);
            }
            None => {
                metric(THROUGHPUT, "bit/s", all.steady);
                metric("throughput.whole", "bit/s", all.whole);
            }
        }
    }
    for t in &directions {
        let d = t.direction.name();
        if directions.len() > 1 {
            metric(&format!("throughput.{d}"), "bit/s", t.throughput.steady);
        }
        for limit in &t.limits {
            let cause = limit.cause.name().replace(' ', "_").to_lowercase();
            metric(&format!("limit.{d}.{cause}"), "1", limit.share);
        }
        if let Some(Ok(ratio)) = &t.cost {
            metric("readings.ratio", "1", ratio.value);
            metric("readings.ratio.low", "1", ratio.low);
            metric("readings.ratio.high", "1", ratio.high);
            metric("readings.pairs", "pair", ratio.n as f64);
        }
        if let Some(p) = &t.packets {
            metric(&format!("loss.{d}"), "1", p.loss);
            metric(&format!("jitter.{d}"), "us", p.jitter_us);
            p.one_way_us.as_ref().inspect(|one| metric(&format!("one_way.{d}.p50"), "us", one.p50));
        }
    }
    let received = directions.iter().flat_map(|t| &t.received.streams).fold(0_u64, |sum, n| sum.saturating_add(*n));
    let counted = outcome.own.transactions.as_ref().map_or(received, |t| t.counts.iter().sum());
    let by = match &outcome.own.trouble {
        Some(trouble) => trouble.clone(),
        None => format!("{counted} counted at the receiver"),
    };
    let verified = outcome.own.trouble.is_none() && counted > 0;
    let mut marks = Vec::new();
    let of_transactions = transactions(outcome);
    let both = directions.len() > 1;
    let firsts = directions.iter().map(|t| (t.limits.first(), if both { t.direction.name() } else { "" }));
    for (limit, way) in firsts.chain([(of_transactions.first(), "")]) {
        let Some(limit) = limit else { continue };
        let mark = format!("{} {way}", archive::runs::LIMITED_BY_MARK);
        marks.push(Mark { name: mark.trim().into(), text: limit.cause.name().into() });
    }
    for t in &directions {
        for (end, sockets) in [("sender", &t.sent.sockets), ("receiver", &t.received.sockets)] {
            let text = serde_json::to_string(&sockets.first()).unwrap_or_default();
            marks.push(Mark { name: format!("granted {} {end}", t.direction.name()), text });
        }
    }
    Summary { metrics, verified, by, within: within(outcome, &directions), marks }
}
