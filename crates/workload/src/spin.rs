//! Arithmetic and nothing else: no files, hardly any memory, no system calls while it is timed. Differences between two
//! of its processes are caused by the machine, so that the method can be tested with it (`fathom bench selftest`).

use crate::options::{Options, Spec};
use crate::{Error, check_cancelled, clock, write_sample};
use model::Context;
use std::io::Write;

const HELP_SUMMARY: &str = "Steps of a linear congruential generator; the final state is verified.";

const OPTION_SPECS: &[Spec] = &[
    Spec { name: "iterations", default: "30", help: "timed iterations" },
    Spec { name: "inner", default: "1000000", help: "steps per iteration" },
];

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// Runs it with `words` as its options.
pub fn run(words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let options = Options::parse(HELP_SUMMARY, OPTION_SPECS, words)?;
    let (iterations, inner): (u64, u64) = (options.get("iterations")?, options.get("inner")?);
    if iterations == 0 || inner == 0 {
        return Err(Error::Usage("--iterations and --inner must be at least 1".into()));
    }
    let mut times = Vec::new();
    let mut state = 0_u64;
    for _ in 0..iterations {
        check_cancelled(context)?;
        let start = clock::now_ns();
        for _ in 0..inner {
            // Hidden from the optimiser, which can leap ahead too.
            state = std::hint::black_box(state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT));
        }
        times.push((start, clock::now_ns() - start));
    }
    let expected = state_after(iterations.wrapping_mul(inner));
    for (start, time) in times {
        write_sample(out, "iteration", "ns", start, time as f64)?;
    }
    write_sample(out, "work", "step", clock::now_ns(), inner as f64)?;
    let by =
        format!("the state after {} steps is {state:#x}, computed in closed form {expected:#x}", iterations * inner);
    writeln!(out, "{}", serde_json::json!({"verified": state == expected, "by": by}))?;
    if state == expected { Ok(()) } else { Err(Error::Failed(by)) }
}

/// The state after `n` steps from 0, by squaring the step (Brown, "Random number generation with arbitrary strides").
fn state_after(mut n: u64) -> u64 {
    let (mut state, mut multiplier, mut increment) = (0_u64, MULTIPLIER, INCREMENT);
    while n > 0 {
        if n & 1 == 1 {
            state = state.wrapping_mul(multiplier).wrapping_add(increment);
        }
        increment = increment.wrapping_mul(multiplier.wrapping_add(1));
        multiplier = multiplier.wrapping_mul(multiplier);
        n >>= 1;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_has_the_lines_of_the_contract() {
        let words = ["--iterations=3", "--inner=10"].map(String::from);
        let mut out = Vec::new();
        run(&words, &Context::silent(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.iter().filter(|l| l["metric"] == "iteration" && l["v"].as_f64() >= Some(0.0)).count(), 3);
        assert_eq!((&lines[3]["v"], &lines[4]["verified"]), (&serde_json::json!(10.0), &serde_json::json!(true)));
    }

    #[test]
    fn closed_form_equals_repeated_steps() {
        let mut state = 0_u64;
        for n in 0..100 {
            assert_eq!(state_after(n), state);
            state = state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        }
    }

    #[test]
    fn invalid_options_are_reported() {
        let words = ["--inner=0"].map(String::from);
        assert!(matches!(run(&words, &Context::silent(), &mut Vec::new()), Err(Error::Usage(_))));
    }
}
