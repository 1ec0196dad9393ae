//! `fathom bench ab`: compares commands. Differences are so large that no noise hides them, and the shorter command is so long that a
//! process that starts late does not take several times as long; the other assertions are on counts, reasons and leftovers.

use anyhow::{Context, Result, bail, ensure};
use fathom_tests::{Case, fathom, installed, number, run, run_suite, wait_until};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("slower_command_is_called_slower", Ok(()), slower_command_is_called_slower),
        ("calls_and_bytes_of_commands_are_exact", Ok(()), calls_and_bytes_of_commands_are_exact),
        ("failed_missing_and_killed_commands_are_named", Ok(()), failed_missing_and_killed_commands_are_named),
        ("parameters_make_commands", Ok(()), parameters_make_commands),
        ("commits_are_built_compared_and_removed", installed("git"), commits_are_built_compared_and_removed),
        ("interrupted_run_keeps_results_and_resumes", Ok(()), interrupted_run_keeps_results_and_resumes),
        ("archive_is_shown_and_reported", Ok(()), archive_is_shown_and_reported),
        ("ratio_agrees_with_hyperfine", installed("hyperfine"), ratio_agrees_with_hyperfine),
    ];
    run_suite(cases)
}

fn ab(directory: &Path, options: &[&str], commands: &[&str]) -> Result<Output> {
    let mut command = Command::new(fathom());
    command.args(["bench", "ab", "--quiet"]).args(options).arg("--").args(commands).current_dir(directory);
    Ok(command.stdin(Stdio::null()).output()?)
}

fn json(directory: &Path, options: &[&str], commands: &[&str]) -> Result<Value> {
    let output = ab(directory, &[&["--json"], options].concat(), commands)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("--json")
}

fn slower_command_is_called_slower() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let commands = ["sleep 0.1", "sleep 1"];
    let output =
        ab(directory.path(), &["--blocks", "6", "--warmup", "0", "--fail-on", "slower:50", "--json"], &commands)?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let outcome: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(output.status.code() == Some(1) && messages.contains("slower: sleep 1"), "{messages}");
    ensure!(outcome["version"] == 1 && outcome["comparisons"][0]["verdict"] == "slower", "{outcome}");
    ensure!(outcome["comparisons"][0]["pairs"] == 6 && outcome["commands"][2]["control"] == true, "{outcome}");
    let output =
        ab(directory.path(), &["--blocks", "6", "--warmup", "0", "--fail-on", "slower:50"], &["sleep 1", "sleep 0.1"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(text.contains("faster") && text.contains("A/A control"), "{text}");
    // Too few blocks for an interval: must not pass.
    let output = ab(directory.path(), &["--blocks", "2", "--fail-on", "slower"], &["true", "true"])?;
    ensure!(output.status.code() == Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn calls_and_bytes_of_commands_are_exact() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let commands =
        ["dd if=/dev/zero of=a bs=1000 count=20 status=none", "dd if=/dev/zero of=b bs=500 count=80 status=none"];
    let outcome = json(directory.path(), &["--blocks", "3", "--prepare", "rm -f a b"], &commands)?;
    if !Path::new("/proc/self/io").exists() {
        ensure!(outcome["sources"].to_string().contains("not counted"), "{outcome}");
        return Ok(());
    }
    for (at, (calls, bytes)) in [(20.0, 20_000.0), (80.0, 40_000.0), (20.0, 20_000.0)].into_iter().enumerate() {
        for end in ["min", "max"] {
            let of = |name: &str| number(&outcome, &format!("/commands/{at}/metrics/{name}/{end}"));
            ensure!(of("write_calls")? == calls && of("bytes_written")? == bytes, "{outcome}");
        }
    }
    Ok(())
}

fn failed_missing_and_killed_commands_are_named() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (commands, code, expected) in [
        (["true", "no-such-program x"], 2, "no-such-program: command not found (of the command `no-such-program x`)"),
        (["true", "sh -c 'echo reason >&2; exit 3'"], 1, "exit status 3 (reason)"),
        (["true", "kill -9 $$"], 1, "kill -9 $$: killed by signal 9"),
        (["exit 4", "true"], 1, "exit 4: exit status 4"),
    ] {
        let output = ab(directory.path(), &["--blocks", "6"], &commands)?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(code) && messages.contains(expected), "{commands:?}: {messages}");
    }
    let output = ab(directory.path(), &[], &["true"])?;
    ensure!(output.status.code() == Some(2), "one command");
    Ok(())
}

fn parameters_make_commands() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let line = ["dd if=/dev/zero of=f bs={SIZE} count={N} status=none"];
    let options = ["--blocks", "1", "--warmup", "0", "--param", "N", "2..4..2", "--param", "SIZE", "10,1000"];
    let outcome = json(directory.path(), &options, &line)?;
    let names: Vec<&str> =
        outcome["commands"].as_array().context("commands")?.iter().filter_map(|c| c["command"].as_str()).collect();
    let expected = [(10, 2), (1000, 2), (10, 4), (1000, 4), (10, 2)]
        .map(|(size, n)| format!("dd if=/dev/zero of=f bs={size} count={n} status=none"));
    ensure!(names == expected, "{names:?}");
    let options = ["--blocks", "1", "--warmup", "0", "--param", "N", "-1,-2", "--param", "M", "-3..-2"];
    let outcome = json(directory.path(), &options, &["test {N} -lt 0 -a {M} -lt 0"])?;
    let lines: Vec<&str> =
        outcome["commands"].as_array().context("commands")?.iter().filter_map(|c| c["command"].as_str()).collect();
    ensure!(lines[..2] == ["test -1 -lt 0 -a -3 -lt 0", "test -1 -lt 0 -a -2 -lt 0"], "{lines:?}");
    let output = ab(directory.path(), &["--param", "M", "1..2"], &line)?;
    ensure!(output.status.code() == Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn commits_are_built_compared_and_removed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let here = directory.path();
    let git = |words: &[&str]| {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
        run(Command::new("git").arg("-C").arg(here).args(identity).args(words))
    };
    git(&["init", "--quiet"])?;
    for seconds in ["0.1", "1"] {
        std::fs::write(here.join("seconds"), seconds)?;
        git(&["add", "seconds"])?;
        git(&["commit", "--quiet", "-m", seconds])?;
    }
    let build =
        ["--git", "HEAD~1..HEAD", "--build", "(echo '#!/bin/sh'; echo sleep $(cat seconds)) > app; chmod +x app"];
    let outcome = json(here, &[&build[..], &["--blocks", "6"]].concat(), &["./app"])?;
    ensure!(outcome["comparisons"][0]["verdict"] == "slower", "{outcome}");
    let left = String::from_utf8(git(&["worktree", "list"])?.stdout)?;
    ensure!(left.lines().count() == 1, "{left}");
    let output = ab(here, &["--git", "HEAD~1..HEAD", "--build", "echo no rule; exit 2"], &["./app"])?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(1) && messages.contains("no rule") && messages.contains("HEAD~1"),
        "{messages}"
    );
    let left = String::from_utf8(git(&["worktree", "list"])?.stdout)?;
    ensure!(left.lines().count() == 1, "{left}");
    Ok(())
}

fn interrupted_run_keeps_results_and_resumes() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("ab.fathom");
    let mut command = Command::new(fathom());
    command.args([
        "bench",
        "ab",
        "--json",
        "--blocks",
        "8",
        "--warmup",
        "0",
        "--",
        "echo A >> ran; sleep 0.01",
        "sleep 0.05",
    ]);
    let child = command
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    wait_until("two runs", || {
        Ok(std::fs::read_to_string(directory.path().join("ran")).is_ok_and(|text| text.lines().count() >= 4))
    })?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let output = child.wait_with_output()?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(130) && messages.contains("--resume"), "{:?} {messages}", output.status);
    let outcome: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(outcome["stopped"].is_null() && number(&outcome, "/commands/0/runs")? >= 1.0, "{outcome}");
    // Without waiting for a quiet machine: other suites run in parallel.
    let resume = ["bench", "run", "--quiet", "--no-wait", "--resume"];
    run(Command::new(fathom()).args(resume).arg(&archive).current_dir(directory.path()))?;
    let shown = run(Command::new(fathom()).args(["bench", "show", "--json"]).arg(&archive))?;
    let shown: Value = serde_json::from_slice(&shown.stdout)?;
    ensure!(shown["comparisons"][0]["results"][1]["processes"] == 8, "{shown}");
    Ok(())
}

fn archive_is_shown_and_reported() -> Result<()> {
    let directory = tempfile::tempdir()?;
    json(directory.path(), &["--blocks", "6"], &["true", "sleep 0.01"])?;
    let archive = directory.path().join("ab.fathom");
    let shown = run(Command::new(fathom()).args(["bench", "show"]).arg(&archive))?;
    ensure!(String::from_utf8_lossy(&shown.stdout).contains("sleep 0.01"));
    run(Command::new(fathom()).arg("report").arg(&archive))?;
    ensure!(directory.path().join("ab.html").exists() || archive.with_extension("html").exists());
    Ok(())
}

/// Compares the minimum times, which a busy machine affects least. If it affects even those, the comparison is repeated: a wrong
/// ratio would agree in none of the attempts.
fn ratio_agrees_with_hyperfine() -> Result<()> {
    let mut seen = Vec::new();
    for _ in 0..5 {
        let (ours, others) = minimum_ratios(&["sleep 0.1", "sleep 0.3"])?;
        println!("least times, second / first: {ours:.4} (hyperfine {others:.4})");
        if (ours / others - 1.0).abs() < 0.05 {
            return Ok(());
        }
        seen.push((ours, others));
    }
    bail!("ratios, ours and hyperfine's: {seen:?}")
}

/// The ratio of the second command's minimum time to the first's, by both programs.
fn minimum_ratios(commands: &[&str; 2]) -> Result<(f64, f64)> {
    let directory = tempfile::tempdir()?;
    let outcome = json(directory.path(), &["--blocks", "3"], commands)?;
    let theirs = directory.path().join("h.json");
    let mut hyperfine = Command::new("hyperfine");
    hyperfine.args(["-N", "--warmup", "1", "--runs", "3", "--export-json"]).arg(&theirs).args(commands);
    run(&mut hyperfine)?;
    let theirs: Value = serde_json::from_str(&std::fs::read_to_string(theirs)?)?;
    let ours = |at: usize| number(&outcome, &format!("/commands/{at}/metrics/wall/min"));
    let others = |at: usize| number(&theirs, &format!("/results/{at}/min"));
    Ok((ours(1)? / ours(0)?, others(1)? / others(0)?))
}
