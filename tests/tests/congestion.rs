//! `fathom net cc` through the program: the list, algorithms loaded for a command, and errors.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, root, run_suite};
use serde_json::Value;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

const AVAILABLE_PATH: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("list_has_kernel_and_bundled_algorithms", Ok(()), list_has_kernel_and_bundled_algorithms),
        ("cc_load_registers_only_while_command_runs", root(), cc_load_registers_only_while_command_runs),
        ("killed_cc_load_leaves_no_algorithm", root().and_then(|()| by_link()), killed_cc_load_leaves_no_algorithm),
        ("run_loads_algorithm_at_sender", root(), run_supplied),
        ("unavailable_congestion_controls_are_reported", Ok(()), unavailable_congestion_controls_are_reported),
    ];
    run_suite(cases)
}

/// Whether registrations end with their process here.
fn by_link() -> Result<(), String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 4) { Err(format!("Linux {} knows no link of a struct_ops map", release.trim())) } else { Ok(()) }
}

fn run_cc(words: &[&str]) -> Result<Output> {
    let mut command = Command::new(fathom());
    command.args(["net", "cc"]).args(words).stdin(Stdio::null()).output().context("starting fathom net cc")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn available_controls() -> Result<Vec<String>> {
    Ok(std::fs::read_to_string(AVAILABLE_PATH)?.split_whitespace().map(str::to_string).collect())
}

fn list_has_kernel_and_bundled_algorithms() -> Result<()> {
    let output = run_cc(&["--json"])?;
    let value: Value = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    let all = value["congestion_controls"].as_array().context("congestion_controls[]")?;
    let origin = |name: &str| all.iter().find(|c| c["name"] == name).and_then(|c| c["origin"].as_str());
    for name in available_controls()? {
        ensure!(origin(&name).is_some_and(|o| ["kernel", "bpf", "available"].contains(&o)), "{name}: {value}");
    }
    for name in ["bic", "htcp", "westwood"] {
        ensure!(origin(name).is_some(), "{name}: {value}");
    }
    let people = text(&run_cc(&[])?.stdout);
    ensure!(people.lines().count() == all.len(), "{people}");
    Ok(())
}

fn cc_load_registers_only_while_command_runs() -> Result<()> {
    let names = ["fathom_bic", "fathom_htcp", "fathom_westwood"];
    let script = format!("cat {AVAILABLE_PATH}; {} net cc; exit 7", fathom().display());
    let load: Vec<&str> = names.iter().flat_map(|n| ["--load", n]).collect();
    let output = run_cc(&[&load[..], &["--", "sh", "-c", &script]].concat())?;
    ensure!(output.status.code() == Some(7), "{output:?}");
    let messages = text(&output.stdout);
    for name in names {
        let listed = messages.lines().any(|l| l.starts_with(name) && l.contains("through BPF"));
        ensure!(messages.lines().next().is_some_and(|l| l.contains(name)) && listed, "{name}: {messages}");
    }
    let left = available_controls()?;
    ensure!(!left.iter().any(|n| n.starts_with("fathom_")), "{left:?}");
    // A missing command: the status of a shell, and nothing is left.
    let output = run_cc(&["--load", "fathom_bic", "--", "/nonexistent/program"])?;
    ensure!(output.status.code() == Some(127) && !available_controls()?.contains(&"fathom_bic".into()), "{output:?}");
    Ok(())
}

fn killed_cc_load_leaves_no_algorithm() -> Result<()> {
    let mut child = Command::new(fathom());
    let mut child = child.args(["net", "cc", "--load", "fathom_htcp", "--", "sleep", "3"]).spawn()?;
    let wait = |there: bool| -> Result<()> {
        let begun = Instant::now();
        while available_controls()?.contains(&"fathom_htcp".to_string()) != there {
            ensure!(begun.elapsed() < Duration::from_secs(60), "fathom_htcp there: {} for a minute", !there);
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    };
    let appeared = wait(true);
    child.kill()?;
    let status = child.wait()?;
    appeared?;
    ensure!(status.signal() == Some(9), "{status}");
    wait(false)
}

fn run_supplied() -> Result<()> {
    let mut serve = Command::new(fathom());
    serve.args(["net", "serve", "--once", "--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut serve = serve.spawn()?;
    let result = (|| {
        use std::io::{BufRead as _, BufReader};
        let mut first = String::new();
        BufReader::new(serve.stdout.as_mut().context("its output")?).read_line(&mut first)?;
        let address = first.split_whitespace().find(|w| w.starts_with("127.0.0.1:")).context(first.clone())?;
        let run = |cc: &str| {
            let words = ["net", "run", address, "--duration", "1", "--direction", "both", "--json", "--cc", cc];
            Command::new(fathom()).args(words).stdin(Stdio::null()).output()
        };
        let output = run("fathom_westwood")?;
        ensure!(output.status.success() && text(&output.stdout).contains("fathom_westwood"), "{output:?}");
        ensure!(!available_controls()?.contains(&"fathom_westwood".into()), "it is left behind");
        Ok(())
    })();
    // With --once it has ended; otherwise it is no longer needed.
    let _ = serve.kill();
    serve.wait()?;
    result
}

fn unavailable_congestion_controls_are_reported() -> Result<()> {
    let output = run_cc(&["--load", "nobodys", "--", "true"])?;
    let messages = text(&output.stderr);
    ensure!(
        output.status.code() == Some(1) && messages.contains("nobodys") && messages.contains("westwood"),
        "{output:?}"
    );
    // Contradictory options are usage errors.
    for words in [&["--load", "bic"][..], &["--", "true"], &["--load", "bic", "--json", "--", "true"]] {
        let output = run_cc(words)?;
        ensure!(output.status.code() == Some(2), "{words:?}: {output:?}");
    }
    let output = run_cc(&["--unload", "nobodys"])?;
    ensure!(output.status.code() == Some(1) && !output.stderr.is_empty(), "{output:?}");
    Ok(())
}
