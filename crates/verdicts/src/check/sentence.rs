//! What a change adds, in a sentence for its author: "adds 1 fdatasync and 12 KiB per INSERT INTO orders, at models.py:88 (Order.save)".

use super::count_name::CountName;
use super::difference::{Difference, Outcome};
use super::located::Place;
use model::text::bytes;

/// Maximum number of characters of a statement in a sentence.
const STATEMENT_CHARS_MAX: usize = 60;

/// The differences of what the most important one concerns: a statement, the rest of the program, or the whole of it.
fn group(outcome: &Outcome) -> Vec<&Difference> {
    let Some(first) = outcome.differences.first() else { return Vec::new() };
    let same = |d: &&Difference| (&d.statement, d.total) == (&first.statement, first.total);
    outcome.differences.iter().filter(same).collect()
}

/// Returns the sentence; `None` if nothing differs.
pub fn sentence(outcome: &Outcome) -> Option<String> {
    let first = outcome.differences.first()?;
    let change = change(outcome)?;
    let place = first.places.first().map_or(String::new(), |place| format!(", at {}", shown_place(place)));
    let because = outcome.because.as_ref().map_or(String::new(), |why| format!(", because {why}"));
    Some(format!("This change {change}{place}{because}"))
}

/// What is added or removed, and by what.
pub fn change(outcome: &Outcome) -> Option<String> {
    let group = group(outcome);
    let first = *group.first()?;
    let whose = whose(first);
    let executions = first.executions.filter(|n| *n > 0);
    let (divisor, per) = match executions {
        Some(n) if first.statement.is_some() => (n as f64, format!("per {whose}")),
        _ => (1.0, format!("in {whose}")),
    };
    let mut syncs: Vec<(&'static str, i64)> = Vec::new();
    let mut written = 0;
    for one in group.iter().filter(|d| !d.device) {
        match CountName::parse(&one.what) {
            CountName::Call(call, _) if call.syncs() => syncs.push((call.name(), one.delta())),
            CountName::BytesWritten(_) => written += one.delta(),
            _ => {}
        }
    }
    let net: i64 = syncs.iter().map(|(_, n)| n).sum();
    let first_written = matches!(CountName::parse(&first.what), CountName::BytesWritten(_));
    let (direction, count) = match syncs.first() {
        Some((name, _)) if net != 0 => {
            let name = if syncs.iter().all(|(other, _)| other == name) { name } else { "syncs" };
            (net.signum(), Some(format!("{} {name}", number(net.unsigned_abs() as f64 / divisor))))
        }
        _ if first_written => (written.signum(), None),
        _ => {
            let divisor = if CountName::parse(&first.what) == CountName::Executions { 1.0 } else { divisor };
            let amount = number(first.delta().unsigned_abs() as f64 / divisor);
            (first.delta().signum(), Some(format!("{amount} {}", first.what)))
        }
    };
    let bytes = (written.signum() == direction).then(|| bytes(written.unsigned_abs() as f64 / divisor) + " written");
    let parts: Vec<String> = count.into_iter().chain(bytes).collect();
    Some(format!("{} {} {per}", if direction > 0 { "adds" } else { "removes" }, parts.join(" and ")))
}

/// A count per execution: whole, or with two digits.
fn number(n: f64) -> String {
    let text = format!("{n:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

pub(super) fn whose(d: &Difference) -> String {
    if d.total {
        return "the whole program".into();
    }
    d.statement.as_ref().map_or("the program outside statements".into(), |text| cut(text))
}

/// Cuts a statement for a sentence.
fn cut(text: &str) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match one_line.char_indices().nth(STATEMENT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &one_line[..at]),
        None => one_line,
    }
}

/// `models.py:88 (Order.save)`.
pub(super) fn shown_place(place: &Place) -> String {
    let line = place.line.map_or(String::new(), |line| format!(":{line}"));
    let function = if place.function == "<module>" { String::new() } else { format!(" ({})", place.function) };
    format!("{}{line}{function}", place.file)
}
