//! A run as it is told: for each direction the throughput, what limited it, and what became of packets.

use net::estimate::{self, Throughput};
use net::outcome::{Received, Sent};
use net::run::Outcome;
use net::spec::Direction;
use net::why::{self, Limit};

/// One direction.
pub struct Told<'a> {
    pub direction: Direction,
    pub throughput: Throughput,
    pub limits: Vec<Limit>,
    pub sent: &'a Sent,
    pub received: &'a Received,
    pub packets: Option<Packets>,
    /// Mathis' and Padhye's bounds, bit/s.
    pub bounds: Option<(f64, f64)>,
}

/// What became of the packets of UDP.
#[derive(serde::Serialize)]
pub struct Packets {
    pub due: u64,
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    /// Share of those sent, 0 to 1.
    pub loss: f64,
    pub dropped_by_receiver: u64,
    pub reordered: u64,
    pub duplicates: u64,
    pub jitter_us: f64,
    /// How late the sender was: median, 99th percentile, most.
    pub sender_late_us: [f64; 3],
    /// One-way delay.
    pub one_way_us: Option<Delay>,
}

/// One-way delay by the clocks of both ends.
#[derive(serde::Serialize)]
pub struct Delay {
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
    /// The clocks' offset is known to this much: every value may be wrong by it, all the same way.
    pub offset_error: f64,
}

/// Every direction of a run.
pub fn told(outcome: &Outcome) -> Vec<Told<'_>> {
    outcome.spec.directions.iter().filter_map(|d| one(outcome, *d)).collect()
}

fn one(outcome: &Outcome, direction: Direction) -> Option<Told<'_>> {
    let (sent, received) = (outcome.sent(direction)?, outcome.received(direction)?);
    let throughput = estimate::received(received)?;
    let seen = why::Seen {
        spec: &outcome.spec,
        sent,
        received,
        sender: outcome.sender(direction),
        receiver: outcome.receiver(direction),
        rate_bps: throughput.whole,
    };
    let limits = why::limits(&seen);
    let bounds = why::bounds(&sent.samples, sent.sockets.len());
    Some(Told { direction, limits, packets: packets(outcome, sent, received), throughput, sent, received, bounds })
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

/// Transit times are arrival by the receiver's clock less departure by the sender's.
fn delay(outcome: &Outcome, direction: Direction, transits: &[(u64, i64)]) -> Option<Delay> {
    let clock = outcome.clock?;
    let mut all: Vec<f64> = transits
        .iter()
        .map(|(arrived, transit)| match direction {
            // The other end's clock is ahead: what it stamps is too late by that.
            Direction::Up => *transit as f64 - clock.ahead_at(clock.ours(*arrived)),
            Direction::Down => *transit as f64 + clock.ahead_at(*arrived),
        })
        .map(|ns| ns / 1e3)
        .collect();
    all.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| stats::quantile::of_sorted(&all, q);
    Some(Delay {
        min: *all.first()?,
        p50: at(0.5)?,
        p90: at(0.9)?,
        p99: at(0.99)?,
        max: *all.last()?,
        offset_error: clock.error_ns / 1e3,
    })
}

/// All directions of bulk together, or the transactions.
pub fn whole(outcome: &Outcome, told: &[Told<'_>]) -> Option<Throughput> {
    if let Some(t) = &outcome.own.transactions {
        return estimate::throughput(t.start_ns, &t.ends_ns, &t.counts, 1.0);
    }
    match told {
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
