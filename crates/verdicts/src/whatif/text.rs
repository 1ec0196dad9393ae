//! A prediction as text for people. It fits 100 columns.

use super::contract::{Prediction, Total};
use analysis::lines::{capitalise, line, wrapped};
use analysis::text::{digits, duration, shown};
use model::counted;

pub fn text(prediction: &Prediction) -> String {
    let mut out = String::new();
    if let Some(caveat) = prediction.caveats.against_times() {
        wrapped(&mut out, "", &format!("{}.", capitalise(&caveat.because)));
    }
    let total = &prediction.total;
    line(
        &mut out,
        &format!(
            "{}: {} -> {}{}",
            request_in_words(prediction),
            duration(total.recorded_ns as f64),
            duration(total.predicted_ns as f64),
            format_ratio(total)
        ),
    );
    let error = &prediction.model_error;
    if let Some([low, high]) = total.interval_with_model {
        let ns = |ratio: f64| duration(ratio * total.recorded_ns as f64);
        wrapped(
            &mut out,
            "  ",
            &format!(
                "with the model's error: {} to {} (of {} that were made, half came within {:.0} % of the time before, nine of ten within {:.0} %)",
                ns(low),
                ns(high),
                counted(error.changes as usize, "change"),
                100.0 * error.median,
                100.0 * error.p90
            ),
        );
    }
    for removed in &prediction.removed {
        wrapped(
            &mut out,
            "  ",
            &format!(
                "gone: {}, {} in {}",
                shown(&removed.what),
                duration(removed.time_ns as f64),
                counted(removed.executions as usize, "execution")
            ),
        );
    }
    for statement in &prediction.statements {
        out.push('\n');
        line(&mut out, &shown(&statement.statement));
        line(
            &mut out,
            &format!("  {:<12} {:>10} {:>10} {:>10} {:>10} {:>10}", "", "median", "p95", "p99", "max", "sum"),
        );
        for (name, t) in [("recorded", &statement.recorded_ns), ("predicted", &statement.predicted_ns)] {
            let [a, b, c, d, e] = [t.p50, t.p95, t.p99, t.max, t.sum].map(|ns| duration(ns as f64));
            line(&mut out, &format!("  {name:<12} {a:>10} {b:>10} {c:>10} {d:>10} {e:>10}"));
        }
    }
    if !prediction.unknown.is_empty() {
        line(&mut out, "\nNot known:");
        prediction.unknown.iter().for_each(|what| wrapped(&mut out, "  ", &capitalise(what)));
    }
    out
}

fn request_in_words(prediction: &Prediction) -> String {
    let mut words = Vec::new();
    if !prediction.without.is_empty() {
        words.push(format!("without {}", prediction.without.join(", ")));
    }
    if prediction.other_device {
        words.push("on the other device".into());
    }
    if let Some(queue) = prediction.queue {
        words.push(format!("with {queue} at the device at once"));
    }
    capitalise(&words.join(", "))
}

fn format_ratio(total: &Total) -> String {
    let Some(ratio) = total.ratio else { return String::new() };
    let interval =
        total.interval.map_or(String::new(), |[low, high]| format!(" ({} to {})", digits(low), digits(high)));
    format!(", x {}{interval}", digits(ratio))
}
