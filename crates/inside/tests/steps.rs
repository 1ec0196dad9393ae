//! The object's hooks on executions whose time in and between steps is known to the cycle (`steps/steps.c`): rows, steps and executions
//! are counted exactly, and the time inside the steps is right although most steps are not timed.
#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

#[path = "../compile.rs"]
#[allow(dead_code, reason = "the rest is for the build script")]
mod compile;

type Pattern = BTreeMap<String, u64>;

/// Runs the program; returns the numbers of each line.
fn run_patterns(what: &str) -> BTreeMap<String, Pattern> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("steps-{what}"));
    let mut compiler = compile::compiler("x86_64").unwrap();
    let built = compiler.args(["-Iobject", "tests/steps/steps.c", "-o"]).arg(&program).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let out = Command::new(&program).arg(what).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    let number = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    let line = |line: &str| {
        let mut words = line.split(' ');
        (words.next().unwrap().to_owned(), words.map(|word| number(word).unwrap()).collect())
    };
    text.lines().map(line).collect()
}

/// All that does not depend on which steps are timed.
fn assert_counted_exactly(name: &str, p: &Pattern) {
    let rows = match name {
        "insert" => 0,
        "point_reset_after_row" | "single_row_kept_long" => p["truth_steps"],
        _ => p["truth_steps"] - p["truth_executions"],
    };
    assert_eq!((p["executions"], p["steps"], p["rows"]), (p["truth_executions"], p["truth_steps"], rows), "{name}");
    assert!(p["inside"] <= p["all"], "{name}: {p:?}");
}

#[test]
fn time_inside_steps_is_right_though_few_are_timed() {
    let all = run_patterns("tick");
    assert_eq!(all.len(), 14);
    for (name, p) in &all {
        assert_counted_exactly(name, p);
        let error = p["inside"].abs_diff(p["truth_inside"]) as f64 / p["all"] as f64;
        assert!(error < 0.04, "{name}: {error} of {p:?}");
    }
    for name in ["scan", "scan_with_work_between", "rows_of_two_kinds", "scan_with_one_long_gap"] {
        assert!(all[name]["readings"] < all[name]["steps"] / 8, "{name}: {:?}", all[name]);
    }
    // An execution's begin and end, and a step or gap of some of them.
    assert!(all["point"]["readings"] < 3 * all["point"]["executions"], "{:?}", all["point"]);
}

#[test]
fn each_step_is_timed_where_tick_is_unknown() {
    for (name, p) in run_patterns("none") {
        assert_counted_exactly(&name, &p);
        assert!(p["readings"] >= 2 * p["steps"], "{name}: {p:?}");
    }
}

/// Without it each step is timed, without a notice.
#[test]
fn tick_of_this_kernel_is_found() {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let source = source.unwrap_or_default();
    if source.trim_end() != "tsc" {
        println!("SKIP tick_of_this_kernel_is_found: the kernel's clock is not the time stamp counter but '{source}'");
        return;
    }
    let tick = &run_patterns("find")["tick"];
    assert_eq!((tick["found"], tick["ticks"], tick["equal"]), (1, 10, 10));
}
