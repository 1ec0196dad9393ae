//! The consequences of a comparison for its caller: failures, and whether a command is slower than `--fail-on` allows.

use super::contract::Outcome;
use super::text::shorten_failure;
use model::text::shown;

/// Returns the messages, one per line, and whether the comparison passed.
pub fn verdict(outcome: &Outcome, fail_on: Option<f64>) -> (Vec<String>, bool) {
    let (mut lines, mut passed) = (Vec::new(), true);
    // A control that was given up only because nothing was left to compare it with did not fail.
    for command in outcome.commands.iter().filter(|c| c.failed > 0 || c.failure.is_some()) {
        if command.control && !passed {
            continue;
        }
        let why = command.failure.as_deref().map(shorten_failure).unwrap_or_default();
        lines.push(format!("{} failed: {}", shown(&command.name), shown(&why)));
        passed = false;
    }
    let Some(percent) = fail_on else { return (lines, passed) };
    let slower = outcome.slower(percent);
    lines.extend(slower.iter().map(|one| format!("slower: {}", shown(&one.name))));
    // A build that compares nothing must not pass as not slower.
    if !outcome.all_compared() {
        lines.push(format!("--fail-on: no verdict: {}", outcome.withheld.as_deref().unwrap_or("too few runs")));
    } else if slower.is_empty() {
        lines.push("--fail-on: no command is slower than the first".into());
    }
    let passed = passed && outcome.all_compared() && slower.is_empty();
    (lines, passed)
}
