//! A comparison of commands as text for people. Contains nothing that is not in the JSON.

use super::contract::{Control, MeasuredCommand, Metric, Outcome};
use crate::StopReason;
use model::counted;
use model::messages::split_own_message;
use model::text::{bytes, count, digits, duration};
use std::fmt::Write as _;

pub fn text(outcome: &Outcome) -> String {
    let mut out = String::new();
    let letters: Vec<String> = (0..outcome.commands.len()).map(command_letter).collect();
    let label = |at: usize, command: &MeasuredCommand| {
        if command.control { format!("{} again", letters[0]) } else { letters[at].clone() }
    };
    for (at, command) in outcome.commands.iter().enumerate().filter(|(_, c)| !c.control) {
        let _ = writeln!(out, "{}  {}", letters[at], command.name);
        if command.name != command.command && !command.command.is_empty() {
            let _ = writeln!(out, "   {}", command.command);
        }
    }
    let _ = writeln!(
        out,
        "\n{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>9} {:>5}",
        "", "median", "mean", "min", "max", "user", "system", "reads", "writes", "written", "runs"
    );
    for (at, command) in outcome.commands.iter().enumerate() {
        write_row(&mut out, &label(at, command), command);
    }
    out.push('\n');
    for compared in &outcome.comparisons {
        let at = outcome.commands.iter().position(|c| c.name == compared.name).unwrap_or_default();
        let Some(ratio) = compared.ratio else {
            let _ = writeln!(out, "{} / {}: not compared", letters[at], letters[0]);
            continue;
        };
        let range = match compared.ci95 {
            Some([low, high]) => format!(" ({} to {})", digits(low), digits(high)),
            None => format!(" (too few pairs for an interval: {})", compared.pairs),
        };
        let _ = writeln!(out, "{} / {} = {}{range}: {}", letters[at], letters[0], digits(ratio), compared.verdict);
    }
    match &outcome.control {
        Some(control) => write_control(&mut out, &letters[0], control),
        None => {
            let _ = writeln!(out, "{0} again / {0}: too few pairs for a control", letters[0]);
        }
    }
    if let Some(why) = &outcome.withheld {
        let _ = writeln!(out, "No verdict: {why}");
    }
    write_notes(&mut out, outcome);
    out
}

/// A, B … Z, AA, AB …
fn command_letter(at: usize) -> String {
    let last = char::from(b'A' + (at % 26) as u8);
    if at < 26 { last.to_string() } else { command_letter(at / 26 - 1) + &last.to_string() }
}

fn write_row(out: &mut String, label: &str, command: &MeasuredCommand) {
    let of = |name: &str, value: fn(&Metric) -> f64| command.metrics.get(name).map(value);
    let time = |name: &str, value: fn(&Metric) -> f64| of(name, value).map_or("-".into(), |s| duration(s * 1e9));
    let median = |m: &Metric| m.median;
    let number = |name: &str| of(name, |m| m.median).map_or("-".into(), count);
    let written = of("bytes_written", |m| m.median).map_or("-".into(), bytes);
    let _ = writeln!(
        out,
        "{label:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {written:>9} {:>5}",
        time("wall", median),
        time("wall", |m| m.mean),
        time("wall", |m| m.min),
        time("wall", |m| m.max),
        time("user", median),
        time("system", median),
        number("read_calls"),
        number("write_calls"),
        command.runs,
    );
}

fn write_control(out: &mut String, first: &str, control: &Control) {
    let [low, high] = control.ci95.map(digits);
    let percent = digits(control.noise * 100.0);
    let passed = if control.passed { "passed" } else { "FAILED" };
    let _ = writeln!(
        out,
        "{first} again / {first} = {} ({low} to {high}): A/A control {passed}, differences below {percent} % are noise here",
        digits(control.ratio)
    );
}

/// Shortens a failure to the command's own error, without that of the process that ran it.
pub fn shorten_failure(why: &str) -> String {
    let why = match why.strip_prefix("exit status: ").and_then(|rest| rest.split_once(": ")) {
        Some((status, rest)) if status.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => why,
    };
    // The command's own error output precedes it.
    let (complaint, said) = split_own_message(why);
    match complaint.trim().lines().last() {
        Some(complaint) => format!("{} ({complaint})", said.trim()),
        None => said.trim().to_string(),
    }
}

fn write_notes(out: &mut String, outcome: &Outcome) {
    let ended = match outcome.stopped {
        None => "interrupted",
        Some(StopReason::Precision) => "stopped when every ratio was precise",
        Some(StopReason::Nothing) => "stopped since no command was left to compare",
        Some(StopReason::Budget) => "stopped when the time budget was spent",
        Some(StopReason::Blocks) => "the requested number of blocks",
    };
    let margin = digits(outcome.margin * 100.0);
    let io = if outcome.commands.iter().any(|c| c.metrics.contains_key("read_calls")) {
        "reads, writes (calls) and written (bytes): /proc/PID/io"
    } else if outcome.commands.iter().all(|c| c.runs == 0) {
        "reads and writes: none, since no command succeeded"
    } else {
        "reads and writes are not counted: the kernel has no /proc/PID/io, or lets root alone read that of these commands"
    };
    let _ = writeln!(
        out,
        "\n{} in random order (seed {}, {} before them as warm-up): {ended}. Ratios are\nmedians of pairs within blocks \
         with 95 % bootstrap intervals; margin of a verdict {margin} %. user, system:\nwait4; {io}. Each with children \
         that were waited for.",
        counted(outcome.blocks as usize, "block"),
        outcome.seed,
        outcome.warmup,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that all failed say nothing about the kernel.
    #[test]
    fn missing_counts_are_not_blamed_on_the_kernel() {
        let command = |runs: u64| MeasuredCommand {
            name: "a".into(),
            command: "a".into(),
            control: false,
            runs,
            failed: 3 - runs,
            failure: None,
            wall_s: Vec::new(),
            metrics: Default::default(),
        };
        let text = |runs: u64| {
            text(&Outcome {
                version: 1,
                commands: vec![command(0), command(runs)],
                comparisons: Vec::new(),
                control: None,
                margin: 0.02,
                blocks: 3,
                warmup: 0,
                seed: 1,
                withheld: None,
                stopped: Some(StopReason::Blocks),
                sources: Default::default(),
            })
        };
        assert!(text(0).contains("no command succeeded") && !text(0).contains("the kernel has no"), "{}", text(0));
        assert!(text(1).contains("the kernel has no /proc/PID/io"), "{}", text(1));
    }

    #[test]
    fn failure_is_reported_without_the_wrapper() {
        assert_eq!(
            shorten_failure("exit status: 1: ls: no x\nfathom: ls x: exit status 2"),
            "ls x: exit status 2 (ls: no x)"
        );
        assert_eq!(shorten_failure("exit status: 1: fathom: cannot start x: no"), "cannot start x: no");
        assert_eq!(shorten_failure("timed out after 5 s"), "timed out after 5 s");
        assert_eq!([0, 25, 26, 27].map(command_letter), ["A", "Z", "AA", "AB"]);
    }
}
