//! The result of a run: for each direction the throughput, what limited it, and packet counts; and a summary in a few numbers.

use crate::estimate::{self, Throughput};
use crate::outcome::{ReceivedDirection, SentDirection};
use crate::run::Outcome;
use crate::sampling_cost::{self, SampledIntervals};
use crate::spec::{Direction, Readings};
use crate::why::{self, Limit, TimedCause};

#[derive(Debug)]
pub struct DirectionResult<'a> {
    pub direction: Direction,
    pub throughput: Throughput,
    pub limits: Vec<Limit>,
    /// What limited it over time.
    pub course: Vec<TimedCause>,
    pub sent: &'a SentDirection,
    pub received: &'a ReceivedDirection,
    /// UDP: packet counts.
    pub packets: Option<PacketSummary>,
    /// Mathis' and Padhye's bounds, bit/s.
    pub bounds: Option<(f64, f64)>,
    /// Ratio of the throughput with TCP sampling to that without, or why it is unknown; if requested.
    pub cost: Option<Result<stats::Estimate, CostError>>,
}

/// Why the cost of sampling is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
    /// Samples of one end and throughput of the other cannot be aligned in time.
    #[error(
        "the ends started {:.0} ms apart, too far to align readings and throughput: use a shorter path",
        *ns as f64 / 1e6
    )]
    StartsApart {
        /// The difference of the start times, ns.
        ns: u64,
    },
    /// There are too few pairs of intervals.
    #[error("too few intervals of 0.1 s could be compared: give a longer --duration")]
    TooShort,
}

/// UDP packet counts.
#[derive(Debug, serde::Serialize)]
pub struct PacketSummary {
    pub due: u64,
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    /// Lost share of the sent packets, 0 to 1.
    pub loss: f64,
    /// Packets dropped because the receiving socket's buffer was full.
    pub dropped_by_receiver: u64,
    /// Packets that arrived after a later one.
    pub reordered: u64,
    /// Packets that arrived twice.
    pub duplicates: u64,
    /// Jitter as defined in RFC 3550.
    pub jitter_us: f64,
    /// Lateness of the sender: median, 99th percentile, maximum.
    pub sender_late_us: [f64; 3],
    /// One-way delay.
    pub one_way_us: Option<OneWayDelay>,
}

/// One-way delay between the clocks of both ends, us.
#[derive(Debug, serde::Serialize)]
pub struct OneWayDelay {
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
    /// The error bound of the clock offset: every value may be wrong by it, all in the same direction.
    pub offset_error: f64,
}

/// The results of every direction of a run.
pub fn directions(outcome: &Outcome) -> Vec<DirectionResult<'_>> {
    outcome.spec.directions.iter().filter_map(|d| direction_result(outcome, *d)).collect()
}

fn direction_result(outcome: &Outcome, direction: Direction) -> Option<DirectionResult<'_>> {
    let (sent, received) = (outcome.sent(direction)?, outcome.received(direction)?);
    let throughput = estimate::direction_throughput(outcome.spec.traffic, sent, received)?;
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
        Readings::All => (why::limits(&seen), why::causes_over_time(&seen)),
        _ => Default::default(),
    };
    // Without samples, the loss of the path is unknown.
    let bounds = match outcome.spec.readings {
        Readings::None => None,
        _ => why::loss_bounds(&sent.samples, sent.sockets.len()),
    };
    let packets = packet_summary(outcome, sent, received);
    let cost = match outcome.spec.readings {
        Readings::ByTurns { seed, .. } => {
            Some(sampling_cost(outcome, &SampledIntervals::new(seed, outcome.spec.duration_ms), sent, received))
        }
        _ => None,
    };
    Some(DirectionResult { direction, limits, course, packets, throughput, sent, received, bounds, cost })
}

fn sampling_cost(
    outcome: &Outcome,
    turns: &SampledIntervals,
    sent: &SentDirection,
    received: &ReceivedDirection,
) -> Result<stats::Estimate, CostError> {
    // The start times of both ends, by the client's clock.
    let ours = |ns: u64, there: bool| outcome.clock.filter(|_| there).map_or(ns, |clock| clock.to_ours(ns));
    let up = sent.direction == Direction::Up;
    let start_difference_ns = ours(sent.start_ns, !up).abs_diff(ours(received.start_ns, up));
    if start_difference_ns > sampling_cost::START_DIFFERENCE_NS_MAX {
        return Err(CostError::StartsApart { ns: start_difference_ns });
    }
    turns.ratio(received).ok_or(CostError::TooShort)
}

fn packet_summary(outcome: &Outcome, sent: &SentDirection, received: &ReceivedDirection) -> Option<PacketSummary> {
    let (s, r) = (sent.packets.as_ref()?, received.packets.as_ref()?);
    let lost = s.sent.saturating_sub(r.received);
    Some(PacketSummary {
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
        one_way_us: delay_summary(outcome, sent.direction, &r.transit_ns),
    })
}

/// One-way delays: when a packet arrived, by the receiver's clock, and its delay, us. A transit time is the arrival by the
/// receiver's clock minus the departure by the sender's.
fn one_way_delays(outcome: &Outcome, direction: Direction, transits: &[(u64, i64)]) -> Vec<(u64, f64)> {
    let Some(clock) = outcome.clock else { return Vec::new() };
    let one = |(arrived, transit): &(u64, i64)| {
        let ns = match direction {
            // The other end's clock is ahead, so its timestamps are too late by the offset.
            Direction::Up => *transit as f64 - clock.ahead_at(clock.to_ours(*arrived)),
            Direction::Down => *transit as f64 + clock.ahead_at(*arrived),
        };
        (*arrived, ns / 1e3)
    };
    transits.iter().map(one).collect()
}

fn delay_summary(outcome: &Outcome, direction: Direction, transits: &[(u64, i64)]) -> Option<OneWayDelay> {
    let mut all: Vec<f64> = one_way_delays(outcome, direction, transits).into_iter().map(|d| d.1).collect();
    all.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| stats::quantile::of_sorted(&all, q);
    Some(OneWayDelay {
        min: *all.first()?,
        p50: at(0.5)?,
        p90: at(0.9)?,
        p99: at(0.99)?,
        max: *all.last()?,
        offset_error: outcome.clock?.error_ns / 1e3,
    })
}

/// A value at a point in time.
#[derive(Debug)]
pub struct Point {
    pub metric: &'static str,
    pub unit: &'static str,
    /// Direction, stream or cause.
    pub labels: String,
    /// CLOCK_BOOTTIME of the client, ns.
    pub time_ns: u64,
    pub value: f64,
}

/// The time series of a page besides the TCP samples: the throughput of every interval, what limited TCP in each 100 ms,
/// and the one-way delays of some UDP packets.
pub fn time_series(outcome: &Outcome, t: &DirectionResult<'_>) -> Vec<Point> {
    let up = t.direction == Direction::Up;
    // Converts a time of the end that recorded it to our clock.
    let to_client_clock = |by_other: bool, ns: u64| match outcome.clock.filter(|_| by_other) {
        Some(clock) => clock.to_ours(ns),
        None => ns,
    };
    let way = format!("direction={}", t.direction.name());
    let point =
        |metric, unit, labels: &str, time_ns, value| Point { metric, unit, labels: labels.into(), time_ns, value };
    let rates = t.received.ends_ns.iter().zip(&t.throughput.intervals);
    let mut points: Vec<Point> =
        rates.map(|(end, (_, bps))| point("interval", "bit/s", &way, to_client_clock(up, *end), *bps)).collect();
    points.extend(t.course.iter().map(|m| {
        let labels = format!("{way} cause={}", m.cause.name().replace(' ', "_"));
        point("limited", "1", &labels, to_client_clock(!up, m.start_ns), m.share)
    }));
    if let Some(packets) = &t.received.packets {
        let delays = one_way_delays(outcome, t.direction, &packets.transit_ns);
        let every = delays.len().div_ceil(DELAY_POINTS_MAX).max(1);
        let some = delays.iter().step_by(every);
        points.extend(some.map(|(at, us)| point("one_way_us", "us", &way, to_client_clock(up, *at), *us)));
    }
    points
}

/// The number of one-way delays kept of a run.
const DELAY_POINTS_MAX: usize = 2000;

/// What limited transactions; empty for any other kind of run.
pub fn transaction_limits(outcome: &Outcome) -> Vec<Limit> {
    why::transaction_limits(&outcome.spec, &outcome.own, &outcome.other)
}

/// The sum of all bulk directions, or the transactions.
pub fn total(outcome: &Outcome, directions: &[DirectionResult<'_>]) -> Option<Throughput> {
    if let Some(t) = &outcome.own.transactions {
        return estimate::throughput(t.start_ns, &t.ends_ns, &t.counts, 1.0);
    }
    match directions {
        [one] => Some(one.throughput.clone()),
        [a, b] => {
            let (x, y) = (&a.throughput, &b.throughput);
            // Two simultaneous directions are not independent runs, so their intervals add up.
            let ci95 = x.ci95.zip(y.ci95).map(|(p, q)| (p.0 + q.0, p.1 + q.1));
            Some(Throughput {
                steady: x.steady + y.steady,
                ci95,
                whole: x.whole + y.whole,
                steady_from_s: x.steady_from_s.max(y.steady_from_s),
                is_steady: x.is_steady && y.is_steady,
                batch_correlation: x.batch_correlation.max(y.batch_correlation),
                intervals: Vec::new(),
            })
        }
        _ => None,
    }
}

/// The widest half-width of the directions' confidence intervals, as a share of the value.
pub fn relative_half_width(outcome: &Outcome, directions: &[DirectionResult<'_>]) -> Option<f64> {
    let each = directions
        .iter()
        .map(|t| t.throughput.clone())
        .chain(total(outcome, directions).filter(|_| directions.is_empty()));
    let shares = each.map(|t| t.ci95.map(|(low, high)| (high - low) / 2.0 / t.steady)).collect::<Option<Vec<f64>>>();
    shares.and_then(|all| all.into_iter().reduce(f64::max)).filter(|within| within.is_finite())
}

/// A metric of the whole run.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    pub name: String,
    pub unit: &'static str,
    pub value: f64,
}

/// A label of the whole run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub name: String,
    pub text: String,
}

/// A run in a few numbers: printed by a replicate of a benchmark, and stored in an archive with the time series.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub metrics: Vec<Metric>,
    /// Whether they are valid.
    pub verified: bool,
    /// The reason for the verdict.
    pub by: String,
    /// Half-width of the score's confidence interval, as a share of the score, for adding the effect of an emulated link.
    pub relative_half_width: Option<f64>,
    /// What limited it, and the settings granted to its sockets.
    pub marks: Vec<Mark>,
}

/// The score metric of a transaction run.
pub const TRANSACTIONS_METRIC: &str = "transactions";
/// The score metric of any other run.
pub const THROUGHPUT_METRIC: &str = "throughput";

/// Summarizes a run in a few numbers.
pub fn summary(outcome: &Outcome) -> Summary {
    let directions = directions(outcome);
    let mut metrics = Vec::new();
    let mut metric =
        |name: &str, unit: &'static str, value: f64| metrics.push(Metric { name: name.into(), unit, value });
    if let Some(all) = total(outcome, &directions) {
        match &outcome.own.transactions {
            Some(t) => {
                metric(TRANSACTIONS_METRIC, "1/s", all.steady);
                metric("latency.p50", "us", t.latency_us[0]);
                metric("latency.p99", "us", t.latency_us[2]);
            }
            None => {
                metric(THROUGHPUT_METRIC, "bit/s", all.steady);
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
    let of_transactions = transaction_limits(outcome);
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
    Summary { metrics, verified, by, relative_half_width: relative_half_width(outcome, &directions), marks }
}
