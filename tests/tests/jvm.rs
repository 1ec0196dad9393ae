//! Bytecode compared with native code: the same results to the last bit in every mode, modes that are proven, and
//! helpful errors. Ground truth are the published residuals, and a JVM stub that reports false results.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, run, run_suite, wait_until};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let java = || installed("java").and_then(|()| built_with_java());
    let cases: Vec<Case> = vec![
        ("results_match_in_every_mode", java(), same_bits),
        ("jvm_proves_its_mode", java(), jvm_proves_its_mode),
        ("jvm_in_wrong_mode_fails", java(), jvm_in_wrong_mode_fails),
        ("java_environment_options_are_ignored", java(), java_environment_options_are_ignored),
        ("wrong_result_fails_without_score", java(), wrong_result),
        ("canvas_draws_exact_pixels", java(), canvas_draws_exact_pixels),
        ("killed_jvm_leaves_no_files", java(), killed_jvm_leaves_no_files),
        ("closed_pipe_is_no_error_but_full_stdout_is", java(), read_enough),
        ("missing_java_names_package", Ok(()), no_java),
        ("native_modes_print_contract_lines", Ok(()), native_modes_print_contract_lines),
    ];
    run_suite(cases)
}

/// A program that was built without a JDK reports that when a JVM mode is requested.
fn built_with_java() -> Result<(), String> {
    let output = run_workload(&["himeno", "--mode=jvm-int", "--java=/no/such/java"]).map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if text.contains("no JDK was installed") { Err("no JDK was installed".into()) } else { Ok(()) }
}

fn run_workload(words: &[&str]) -> Result<Output> {
    Command::new(fathom()).arg("workload").args(words).output().context("starting fathom")
}

/// The lines of a successful workload.
fn workload_lines(words: &[&str]) -> Result<Vec<Value>> {
    let output = run(Command::new(fathom()).arg("workload").args(words))?;
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(|l| serde_json::from_str(l).with_context(|| format!("no JSON: {l}"))).collect()
}

fn mark_text<'a>(lines: &'a [Value], name: &str) -> Result<&'a str> {
    let line = lines.iter().find(|l| l["mark"] == name).with_context(|| format!("no mark {name}"))?;
    line["text"].as_str().context("a mark's text")
}

fn metric_values(lines: &[Value], metric: &str) -> Vec<f64> {
    lines.iter().filter(|l| l["metric"] == metric).filter_map(|l| l["v"].as_f64()).collect()
}

/// The results in the texts: sums, bits and counts, without the words around them.
fn result_texts(lines: &[Value]) -> Result<Vec<String>> {
    let verified = lines.iter().find(|l| l["verified"] == true).context("not verified")?;
    let text = format!("{} {}", mark_text(lines, "result")?, verified["by"].as_str().context("by")?);
    let words = text.split([' ', ',', ';', '(', ')']);
    let hex = |w: &&str| (w.len() == 16 || w.len() == 8) && w.bytes().all(|b| b.is_ascii_hexdigit());
    let words: Vec<String> = words.filter(|w| hex(w) || w.starts_with("3.1")).map(String::from).collect();
    ensure!(!words.is_empty(), "no results in {text}");
    Ok(words)
}

const JVM_MODES: [&str; 4] = ["jvm-int", "jvm-c1", "jvm-c2", "jvm-tiered"];

fn same_bits() -> Result<()> {
    for load in [
        &["himeno", "--size=XS", "--iterations=4", "--inner=5"][..],
        &["linpack", "--size=100", "--iterations=3", "--inner=4"],
        &["scimark", "--size=tiny", "--iterations=3", "--inner=1"],
        &["scimark", "--size=small", "--iterations=2", "--inner=1"],
    ] {
        let of = |mode: &str| result_texts(&workload_lines(&[load, &["--mode", mode]].concat())?);
        let known = of("c-O0")?;
        for mode in ["c-O2", "c-O3", "rust"].iter().chain(&JVM_MODES) {
            ensure!(of(mode)? == known, "{load:?}: {mode} gives {:?}, c-O0 {known:?}", of(mode)?);
        }
    }
    Ok(())
}

fn jvm_proves_its_mode() -> Result<()> {
    for (mode, parts) in [
        ("jvm-int", ["(interpreted mode", "compilers ran 0 ms", "tier {}"]),
        ("jvm-c1", ["(mixed mode", "TieredStopAtLevel 1", "tier {1="]),
        ("jvm-c2", ["(mixed mode", "TieredCompilation false", "tier {4="]),
        ("jvm-tiered", ["(mixed mode", "TieredCompilation true", "3="]),
    ] {
        let all = workload_lines(&["himeno", "--size=XS", "--iterations=60", "--inner=4", "--mode", mode])?;
        let proof = mark_text(&all, "mode")?;
        ensure!(proof.starts_with(mode) && parts.iter().all(|p| proof.contains(p)), "{proof}");
        let compiled = !proof.ends_with("Himeno.jacobi none");
        ensure!(compiled == (mode != "jvm-int"), "after 240 steps: {proof}");
        ensure!(metric_values(&all, "iteration").len() == 60, "60 iterations");
    }
    Ok(())
}

/// A launcher that changes its arguments before it executes the real one.
fn write_launcher(directory: &Path, script: &str) -> Result<PathBuf> {
    let path = directory.join("java");
    lab::script::write(&path, &format!("#!/bin/sh\n{script}\n"))?;
    Ok(path)
}

fn jvm_in_wrong_mode_fails() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (mode, extra) in [
        ("jvm-c2", "-Xint"),
        ("jvm-tiered", "-Xint"),
        ("jvm-tiered", "-XX:TieredStopAtLevel=1"),
        ("jvm-c1", "-XX:TieredStopAtLevel=3"),
        ("jvm-c2", "-XX:+TieredCompilation"),
        ("jvm-int", "-Xmixed"),
    ] {
        // The last of two options takes effect: it goes before the class path.
        let script =
            format!("set -- $(for a; do [ \"$a\" = -cp ] && echo {extra}; echo \"$a\"; done)\nexec java \"$@\"");
        let java = write_launcher(directory.path(), &script)?;
        let java = format!("--java={}", java.display());
        let output = run_workload(&["himeno", "--size=XS", "--iterations=2", "--inner=1", "--mode", mode, &java])?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{mode} with {extra}: {}\n{text}", output.status);
        ensure!(text.contains(&format!("not in mode {mode}")), "{mode} with {extra}: {text}");
        ensure!(output.stdout.is_empty(), "a score of another mode");
    }
    Ok(())
}

fn java_environment_options_are_ignored() -> Result<()> {
    let mut command = Command::new(fathom());
    command.args(["workload", "himeno", "--size=XS", "--iterations=2", "--inner=1", "--mode=jvm-c1"]);
    for name in ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"] {
        command.env(name, "-Xint");
    }
    let output = run(&mut command)?;
    ensure!(String::from_utf8_lossy(&output.stdout).contains("TieredStopAtLevel 1"), "another mode");
    Ok(())
}

fn wrong_result() -> Result<()> {
    let directory = tempfile::tempdir()?;
    // Changes the bits of gosa that are expected for XS.
    let script = "set -- $(for a; do echo \"$a\" | sed 's/^3bcc0fd7,/3bcc0fd8,/'; done)\nexec java \"$@\"";
    let java = format!("--java={}", write_launcher(directory.path(), script)?.display());
    let output = run_workload(&["himeno", "--size=XS", "--iterations=2", "--inner=1", "--mode=jvm-int", &java])?;
    let (messages, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.code() == Some(1) && complaint.contains("wrong result"), "{}: {complaint}", output.status);
    ensure!(messages.contains("\"verified\":false") && messages.contains("6.227474e-03"), "{messages}");
    ensure!(!messages.contains("\"iteration\""), "a score of a wrong result: {messages}");
    Ok(())
}

fn canvas_draws_exact_pixels() -> Result<()> {
    for shape in ["rect", "line", "circle"] {
        for (antialias, format) in
            [("off", "argb"), ("on", "argb"), ("off", "rgb565"), ("on", "rgb565"), ("on", "rgb"), ("off", "argb-pre")]
        {
            let options =
                [format!("--shape={shape}"), format!("--antialias={antialias}"), format!("--format={format}")];
            let mut words = vec!["draw", "--mode=jvm-tiered", "--size=200x120", "--iterations=3", "--inner=50"];
            words.extend(options.iter().map(String::as_str));
            let all = workload_lines(&words)?;
            let verified = all.iter().find(|l| l["verified"] == true).context("not verified")?;
            let by = verified["by"].as_str().context("by")?;
            ensure!(by.contains(&format!("one {shape} covers")), "{by}");
            ensure!(by.contains(&format!("antialiasing {antialias}")), "{by}");
            ensure!(metric_values(&all, "work") == [50.0] && metric_values(&all, "iteration").len() == 3, "{all:?}");
        }
    }
    Ok(())
}

fn read_enough() -> Result<()> {
    let words = ["workload", "himeno", "--size=XS", "--iterations=2", "--inner=1", "--mode=jvm-int"];
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let full = fs::File::options().write(true).open("/dev/full")?;
    for (stdout, expected) in [(Stdio::from(writer), 0), (Stdio::from(full), 1)] {
        let output =
            Command::new(fathom()).args(words).stdout(stdout).stderr(Stdio::piped()).spawn()?.wait_with_output()?;
        let messages = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(expected), "{}: {messages}", output.status);
        ensure!(messages.contains("cannot write the result") == (expected == 1), "{messages}");
    }
    Ok(())
}

fn killed_jvm_leaves_no_files() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut child = Command::new(fathom())
        .args(["workload", "himeno", "--size=XS", "--iterations=1000000", "--inner=10", "--mode=jvm-int"])
        .env("TMPDIR", directory.path())
        .spawn()?;
    // The process itself becomes the JVM: the same process ID, another program.
    let exe = format!("/proc/{}/exe", child.id());
    let became = wait_until("a JVM", || Ok(fs::read_link(&exe).is_ok_and(|p| p.ends_with("java"))));
    child.kill()?;
    child.wait()?;
    became?;
    ensure!(fs::read_dir(directory.path())?.next().is_none(), "files are left in {}", directory.path().display());
    Ok(())
}

fn no_java() -> Result<()> {
    let output = run_workload(&["linpack", "--mode=jvm-c2", "--java=/no/such/java"])?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "{}", output.status);
    ensure!(text.contains("apt install default-j"), "{text}");
    Ok(())
}

fn native_modes_print_contract_lines() -> Result<()> {
    for mode in ["c-O0", "c-O2", "c-O3", "c-fast", "rust"] {
        let all = workload_lines(&["himeno", "--size=XS", "--iterations=5", "--inner=2", "--mode", mode])?;
        ensure!(
            metric_values(&all, "work") == [34.0 * 30.0 * 30.0 * 62.0 * 2.0],
            "{mode}: {:?}",
            metric_values(&all, "work")
        );
        ensure!(
            metric_values(&all, "iteration").len() == 5 && all.iter().any(|l| l["verified"] == true),
            "{mode}: {all:?}"
        );
        let proof = mark_text(&all, "mode")?;
        ensure!(proof.contains("not comparable") == (mode == "c-fast"), "{proof}");
        ensure!(mark_text(&all, "inner")? == "2", "inner");
    }
    Ok(())
}
