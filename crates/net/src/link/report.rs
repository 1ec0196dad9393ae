//! Reports what an emulated link did, next to the measurement over it: as metrics, as JSON, as text, and as a verdict. If
//! the link differed from the requested one, the result is not valid, since it belongs to no defined link.
//!
//! The parameter `own` is the half-width of the result's own confidence interval, as a share of the result.

use super::effect::Effect;
use super::lateness::Lateness;
use super::schedule::{DOWN, UP};
use super::{Outcome, Spec};
use crate::result::Summary;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Version of the JSON.
const JSON_VERSION: u64 = 1;

/// A link and what it did.
#[derive(Debug, Clone, Copy)]
pub struct LinkReport<'a> {
    pub spec: &'a Spec,
    pub outcome: &'a Outcome,
}

impl LinkReport<'_> {
    /// Metrics of a whole run: names, units, values.
    pub fn metrics(&self) -> Vec<(String, &'static str, f64)> {
        let (lateness, [low, high]) = (self.outcome.lateness(), self.outcome.effect(self.spec).rate);
        let late = |q| lateness.quantile(q) as f64 / 1e3;
        let mut all = vec![("link.late.p50".into(), "us", late(0.5)), ("link.late.p99".into(), "us", late(0.99))];
        all.extend([("link.effect.low".into(), "1", low), ("link.effect.high".into(), "1", high)]);
        for (d, way) in [(UP, "up"), (DOWN, "down")] {
            let c = &self.outcome.counts[d];
            let share = |n: u64| n as f64 / c.offered.max(1) as f64;
            all.push((format!("link.lost.{way}"), "1", share(c.lost)));
            all.push((format!("link.queue_full.{way}"), "1", share(c.dropped)));
            all.push((format!("link.queue_max.{way}"), "packet", c.queue_max as f64));
        }
        all
    }

    /// Why a result over the link is not valid, if so.
    pub fn objection(&self, own: Option<f64>) -> Option<String> {
        let invalid = self.outcome.invalid_reasons(self.spec, own);
        (!invalid.is_empty()).then(|| format!("the link differed from what was requested: {}", invalid.join("; ")))
    }

    /// Why a run is not valid: its own reason, and that of the link.
    pub fn failure(&self, of_run: Option<String>, own: Option<f64>) -> Option<String> {
        of_run.into_iter().chain(self.objection(own)).reduce(|run, link| format!("{run}; {link}"))
    }

    /// Whether a run over the link is valid, and the reason.
    pub fn verdict(&self, run: &Summary) -> (bool, String) {
        match self.objection(run.relative_half_width) {
            Some(objection) => (false, format!("{}; but {objection}", run.by)),
            None => (run.verified, format!("{}; lateness {}", run.by, self.lateness_text())),
        }
    }

    /// A short summary of the lateness of packets and its effect.
    fn lateness_text(&self) -> String {
        let lateness = self.outcome.lateness();
        let us = |q| lateness.quantile(q) as f64 / 1e3;
        format!("p50 {:.0} us, p99 {:.0} us: {}", us(0.5), us(0.99), self.outcome.effect(self.spec).text())
    }

    /// The lateness as two percentiles, in JSON.
    pub fn lateness(&self) -> Value {
        let lateness = self.outcome.lateness();
        let us = |q| lateness.quantile(q) as f64 / 1e3;
        json!({"p50": us(0.5), "p99": us(0.99)})
    }

    /// The metrics as JSON; results measured over a link contain the same object. `status` is that of the command that ran over it.
    pub fn document(&self, own: Option<f64>, status: Option<i32>) -> Value {
        let Self { spec, outcome } = self;
        let invalid = outcome.invalid_reasons(spec, own);
        let late = |of: &Lateness| {
            let us = |q: f64| of.quantile(q) as f64 / 1e3;
            json!({"packets": of.count(), "mean": of.mean() / 1e3, "p50": us(0.5), "p90": us(0.9), "p99": us(0.99), "p99_9": us(0.999), "max": of.max() as f64 / 1e3})
        };
        let way = |d: usize| {
            let (way, c) = (if d == UP { &spec.up } else { &spec.down }, &outcome.counts[d]);
            json!({
                "delay_ms": way.delay_ns as f64 / 1e6, "rate_bps": way.rate_bps, "packet_cost_us": way.packet_ns as f64 / 1e3,
                "jitter_ms": way.jitter_ns as f64 / 1e6, "loss_mean": way.loss.mean(), "queue_packets": way.queue_packets,
                "queue_bytes": way.queue_bytes, "packets": c.offered, "bytes": c.offered_bytes, "delivered": c.delivered,
                "delivered_bytes": c.delivered_bytes, "lost": c.lost, "queue_full": c.dropped, "under_way": c.in_flight(),
                "queue_max": c.queue_max, "queue_full_in_doubt": outcome.in_doubt[d],
                "late_us": late(&outcome.late[d].known), "late_at_most_us": late(&outcome.late[d].upper),
            })
        };
        json!({
            "version": JSON_VERSION,
            "up": way(UP),
            "down": way(DOWN),
            "half_duplex": spec.half_duplex,
            "mtu": spec.mtu(),
            "large_packets": outcome.large_packets,
            "seed": spec.seed,
            "lateness_us": late(&outcome.lateness()),
            "effect": effect_json(&outcome.effect(spec)),
            "passing_ms": outcome.passing_ns as f64 / 1e6,
            "stalled_ms": outcome.stalled_ns as f64 / 1e6,
            "realtime": outcome.realtime,
            "overrun": outcome.overrun,
            "valid": invalid.is_empty(),
            "invalid_because": invalid,
            "status": status,
        })
    }

    /// The metrics as text.
    pub fn text(&self, own: Option<f64>) -> String {
        let Self { spec, outcome } = self;
        let mut text = String::from(
            "\n  direction   packets    delivered      lost  queue full  in flight  longest queue        bytes\n",
        );
        for (d, name) in [(UP, "up"), (DOWN, "down")] {
            let c = &outcome.counts[d];
            let _ = writeln!(
                text,
                "  {name:<9} {:>9} {:>12} {:>9} {:>11} {:>10} {:>14} {:>12}",
                c.offered,
                c.delivered,
                c.lost,
                c.dropped,
                c.in_flight(),
                c.queue_max,
                c.offered_bytes
            );
        }
        let lateness = outcome.lateness();
        let us = |q: f64| lateness.quantile(q) as f64 / 1e3;
        let _ = writeln!(
            text,
            "  lateness  median {:.1} us, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1} ({} packets)",
            us(0.5),
            us(0.9),
            us(0.99),
            us(0.999),
            lateness.max() as f64 / 1e3,
            lateness.count()
        );
        let _ = writeln!(text, "  {}", outcome.effect(spec).text());
        let doubt = outcome.in_doubt.iter().sum::<u64>();
        if doubt > 0 {
            let _ = writeln!(text, "  of the queue-full drops, {doubt} may be due to the emulator reading late");
        }
        if !outcome.realtime {
            text += "  without real-time priority: SCHED_FIFO needs root\n";
        }
        for reason in outcome.invalid_reasons(spec, own) {
            let _ = writeln!(text, "  invalid: {reason}");
        }
        text
    }
}

fn effect_json(effect: &Effect) -> Value {
    let ms = effect.added_ns.map(|ns| ns / 1e6);
    json!({"rate": effect.rate, "round_trip_added_ms": ms, "round_trip_ms": effect.round_trip_ns / 1e6, "latest_ms": effect.longest_ns as f64 / 1e6})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::DirectionSpec;

    fn spec() -> Spec {
        Spec::symmetric(DirectionSpec { delay_ns: 10_000_000, ..DirectionSpec::default() })
    }

    fn outcome(late_ns: u64) -> Outcome {
        let mut outcome = Outcome { passing_ns: 10_000_000_000, ..Outcome::default() };
        outcome.late.iter_mut().for_each(|way| way.record(0, (late_ns, late_ns), 0));
        outcome
    }

    fn run(verified: bool, by: &str, within: Option<f64>) -> Summary {
        Summary { metrics: Vec::new(), verified, by: by.into(), relative_half_width: within, marks: Vec::new() }
    }

    fn verdict(run: &Summary, late_ns: u64) -> (bool, String) {
        LinkReport { spec: &spec(), outcome: &outcome(late_ns) }.verdict(run)
    }

    #[test]
    fn run_over_late_link_has_no_score() {
        let (good, by) = verdict(&run(true, "7 counted", None), 20_000);
        assert!(good && by.starts_with("7 counted; "));
        assert!(by.contains("p50 20 us, p99 20 us: effect on a rate -0.20 to"), "{by}");
        let (bad, by) = verdict(&run(true, "7 counted", None), 700_000);
        assert!(!bad && by.contains("5 % are allowed"), "{by}");
        // A late link matters little next to a wider confidence interval of the run itself.
        let wide = run(true, "7 counted", Some(0.1));
        assert!(verdict(&wide, 700_000).0 && !verdict(&wide, 7_000_000).0);
        // Whatever the link did, a run in which nothing arrived has no result.
        assert!(!verdict(&run(false, "nothing arrived", None), 20_000).0);
    }

    #[test]
    fn reasons_of_run_and_link_are_joined() {
        let (spec, on_time, late) = (spec(), outcome(20_000), outcome(700_000));
        let of = |outcome| LinkReport { spec: &spec, outcome };
        assert_eq!(of(&on_time).failure(None, None), None);
        assert_eq!(of(&on_time).failure(Some("broke".into()), None).as_deref(), Some("broke"));
        let both = of(&late).failure(Some("broke".into()), None).unwrap();
        assert!(both.starts_with("broke; the link differed") && both.contains("5 % are allowed"), "{both}");
    }

    #[test]
    fn document_has_options_and_lateness() {
        let (spec, outcome) = (spec(), outcome(20_000));
        let link = LinkReport { spec: &spec, outcome: &outcome };
        let value = link.document(None, Some(3));
        assert!(value["valid"] == true && value["up"]["delay_ms"] == 10.0 && value["status"] == 3, "{value}");
        assert_eq!(value["lateness_us"]["p99"], link.lateness()["p99"]);
        assert!(link.lateness()["p99"].as_f64().is_some_and(|us| (19.0..21.0).contains(&us)), "{value}");
    }
}
