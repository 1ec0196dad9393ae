//! A run as text. Strings from the other end, such as a setting, cannot imitate a line of ours.

use super::RunView;
use crate::estimate::Throughput;
use crate::outcome::SocketSettings;
use crate::result::{DirectionResult, directions, relative_half_width, total, transaction_limits};
use crate::spec::Readings;
use crate::why::Limit;
use model::text::{rate, shown};
use std::fmt::Write as _;

pub fn from_run(shown: &RunView<'_>) -> String {
    let outcome = &shown.measured.outcome;
    let mut text = String::new();
    if let Some((client, Some(server))) = shown.ends {
        let _ = writeln!(text, "from {client} to {server}");
    }
    if let Some(search) = &shown.measured.search {
        let _ = writeln!(text, "{}", search.text);
    }
    let directions = directions(outcome);
    if let Some(t) = &outcome.own.transactions
        && let Some(all) = total(outcome, &directions)
    {
        let (ci, [p50, p90, p99, p999, max]) = (interval_text(&all, |v| format!("{v:.0}")), t.latency_us);
        let _ = writeln!(text, "{:.0} transactions/s{ci}", all.steady);
        let _ =
            writeln!(text, "  latency: median {p50:.1} us, p90 {p90:.1}, p99 {p99:.1}, p99.9 {p999:.1}, max {max:.1}");
        write_limits(&mut text, &transaction_limits(outcome));
    }
    for t in &directions {
        write_direction(&mut text, t, outcome.spec.readings);
    }
    if let Some(link) = &shown.link {
        text += &link.text(relative_half_width(outcome, &directions));
    }
    text
}

fn write_direction(text: &mut String, t: &DirectionResult<'_>, readings: Readings) {
    let rates = &t.throughput;
    let _ = writeln!(text, "{:5} {}{}", t.direction.name(), rate(rates.steady), interval_text(rates, rate));
    if !rates.is_steady {
        let _ = writeln!(text, "      no steady state: mean of the whole run");
    } else if rates.steady_from_s > 0.0 {
        let from = rates.steady_from_s;
        let _ = writeln!(text, "      from {from:.1} s on; whole run {}", rate(rates.whole));
    }
    if let (Some(sent), Some(received)) = (t.sent.sockets.first(), t.received.sockets.first()) {
        let _ = writeln!(text, "      {}", sockets_text(sent, received));
    }
    if let Some(p) = &t.packets {
        let _ = writeln!(
            text,
            "      sent {} of {} packets due, {} lost ({:.3} %, {} by the receiver's socket), {} reordered, {} \
             duplicated",
            p.sent,
            p.due,
            p.lost,
            100.0 * p.loss,
            p.dropped_by_receiver,
            p.reordered,
            p.duplicates
        );
        let late = p.sender_late_us;
        let _ = writeln!(
            text,
            "      jitter {:.1} us; sent late by {:.1} us (median), {:.1} (p99)",
            p.jitter_us, late[0], late[1]
        );
        if let Some(d) = &p.one_way_us {
            let clocks = if d.offset_error > 0.0 {
                format!("clocks synchronised to {:.1} us", d.offset_error)
            } else {
                "both ends read one clock".into()
            };
            let _ = writeln!(
                text,
                "      one-way delay: median {:.1} us, p90 {:.1}, p99 {:.1}, max {:.1}; {clocks}",
                d.p50, d.p90, d.p99, d.max
            );
        }
    }
    match &t.cost {
        Some(Ok(ratio)) => {
            let compared = match readings {
                Readings::ByTurns { control: true, .. } => {
                    "of the throughput with TCP_INFO sampled as often (A/A \
                    control)"
                }
                _ => "of the throughput without",
            };
            let _ = writeln!(
                text,
                "      with TCP_INFO sampled every 10 ms: {:.4} {compared}  ({:.4} to {:.4}; {} pairs of 0.1 s)",
                ratio.value, ratio.low, ratio.high, ratio.n
            );
        }
        Some(Err(why)) => {
            let _ = writeln!(text, "      the cost of sampling TCP_INFO could not be measured: {why}");
        }
        None => {}
    }
    write_limits(text, &t.limits);
}

fn write_limits(text: &mut String, limits: &[Limit]) {
    if !limits.is_empty() {
        let _ = writeln!(text, "      limited by");
    }
    for limit in limits {
        let _ = writeln!(
            text,
            "        {:17} {:4.0} %  {}",
            limit.cause.name(),
            100.0 * limit.share,
            shown(&limit.evidence)
        );
        if let Some(remedy) = &limit.remedy {
            let _ = writeln!(text, "        {:17}         {}", "", shown(remedy));
        }
    }
}

fn sockets_text(sent: &SocketSettings, received: &SocketSettings) -> String {
    let congestion = sent.congestion.as_ref().map_or_else(String::new, |c| format!(", {}, MSS {}", shown(c), sent.mss));
    format!(
        "granted: send buffer {} KiB, receive buffer {} KiB{congestion}",
        sent.send_buffer / 1024,
        received.receive_buffer / 1024
    )
}

fn interval_text(t: &Throughput, show: impl Fn(f64) -> String) -> String {
    t.ci95.map_or_else(String::new, |(low, high)| format!("  ({} to {})", show(low), show(high)))
}
