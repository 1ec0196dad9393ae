//! `fathom net` through the program: what it refuses and what it prints.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, lane, run};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("wrong_usage_says_what_to_give", Ok(()), usage),
        ("what_cannot_be_reached_or_listened_on_is_told", Ok(()), unreachable),
        ("json_and_archive_hold_what_the_manual_says", Ok(()), documents),
        ("ctrl_c_ends_both_ends_and_keeps_what_was_measured", Ok(()), interrupted),
        ("udp_keeps_its_rate_and_its_count", Ok(()), udp),
    ];
    lane(cases)
}

/// An end that serves, ended when it is dropped.
struct Serving {
    child: Child,
    at: String,
}

impl Serving {
    fn start(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(fathom());
        command.args(["net", "serve", "--listen", "127.0.0.1:0"]).args(words);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut at = String::new();
        BufReader::new(child.stdout.take().context("it has no stdout")?).read_line(&mut at)?;
        Ok(Self { child, at: at.trim().into() })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn net(words: &[&str]) -> Command {
    let mut command = Command::new(fathom());
    command.arg("net").args(words).stdin(Stdio::null());
    command
}

fn refused(words: &[&str], status: i32, reason: &str) -> Result<()> {
    let output = net(words).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(status) && said.contains(reason), "{words:?}: {:?}: {said}", output.status);
    Ok(())
}

fn usage() -> Result<()> {
    refused(&["serve", "--listen", "0.0.0.0:0"], 2, "keygen")?;
    refused(&["run", "127.0.0.1:1", "--udp"], 2, "--preset iperf2")?;
    refused(&["run", "127.0.0.1:1", "--rate", "auto"], 2, "--udp")?;
    refused(&["run", "127.0.0.1:1", "--streams", "1000"], 2, "1 to 128")?;
    refused(&["run", "127.0.0.1:1", "--duration", "9999999"], 2, "3600000")?;
    refused(&["run", "127.0.0.1:1", "--udp", "--tcp"], 2, "cannot be used with")?;
    refused(&["run", "127.0.0.1:1", "--rate", "-5"], 2, "")?;
    refused(&["run"], 2, "ADDR:PORT")
}

fn unreachable() -> Result<()> {
    let serving = Serving::start(&[])?;
    refused(&["serve", "--listen", &serving.at], 1, "choose another")?;
    refused(&["run", &serving.at, "--cc", "nosuch", "--duration", "0.2"], 1, "nosuch")?;
    refused(&["run", &serving.at, "--interface", "nosuch0"], 1, "nosuch0")?;
    let at = serving.at.clone();
    drop(serving);
    refused(&["run", &at], 1, "fathom net serve")
}

fn json(words: &[&str]) -> Result<Value> {
    let output = run(net(words).arg("--json"))?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn documents() -> Result<()> {
    let serving = Serving::start(&[])?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("run.fathom");
    let archive = archive.to_str().context("a path of text")?;
    let value = json(&["run", &serving.at, "--duration", "1", "--direction", "both", "-o", archive])?;
    let bps = &value["throughput_bps"];
    let (estimate, low, high) = (bps["estimate"].as_f64(), bps["ci95"][0].as_f64(), bps["ci95"][1].as_f64());
    ensure!(low <= estimate && estimate <= high && estimate > Some(0.0), "{bps}");
    ensure!(value["valid"] == true && value["lateness_us"].is_null() && value["samples"] == archive, "{value}");
    for way in value["directions"].as_array().context("directions")? {
        let shares = way["limited_by"].as_array().context("limits")?;
        let sum: f64 = shares.iter().filter_map(|l| l["share"].as_f64()).sum();
        ensure!(sum > 0.9 && sum < 1.001, "{shares:?}");
        ensure!(shares.iter().all(|l| l["cause"].is_string() && l["evidence"].is_string()), "{shares:?}");
        ensure!(way["readings"].as_u64() > Some(0), "{way}");
    }
    run(Command::new(fathom()).args(["export", "--csv", archive, "-o"]).arg(folder.path().join("csv")))?;
    let samples = std::fs::read_to_string(folder.path().join("csv/samples.csv"))?;
    for metric in ["tcp.cwnd", "interval", "receiver.unread", "limit"] {
        ensure!(samples.contains(metric), "there is no {metric}");
    }
    ensure!(samples.contains("direction=down stream=0"), "the other end's readings are missing");

    let lines = run(&mut net(&["run", &serving.at, "--duration", "0.5", "--lines", "--transactions"]))?;
    let text = String::from_utf8(lines.stdout)?;
    let lines: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(lines.iter().any(|l| l["metric"] == "transactions" && l["v"].as_f64() > Some(0.0)), "{text}");
    ensure!(lines.iter().any(|l| l["verified"] == true), "{text}");
    Ok(())
}

fn interrupted() -> Result<()> {
    let serving = Serving::start(&[])?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("run.fathom");
    let mut asking = net(&["run", &serving.at, "--duration", "600", "--direction", "both", "-o"]);
    let mut asking = asking.arg(&archive).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // It tells a rate each second: then there is something to keep.
    let mut told = BufReader::new(asking.stderr.take().context("stderr")?);
    let mut said = String::new();
    told.read_line(&mut said)?;
    run(Command::new("kill").args(["-INT", &asking.id().to_string()]))?;
    told.read_to_string(&mut said)?;
    let output = asking.wait_with_output()?;
    ensure!(output.status.code() == Some(130) && said.contains("interrupted; this is what was measured"), "{said}");
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.starts_with("up ") && text.contains("\ndown ") && text.contains("limited by"), "{text}");
    run(Command::new(fathom()).args(["export", "--csv"]).arg(&archive).arg("-o").arg(folder.path().join("csv")))?;
    ensure!(std::fs::read_to_string(folder.path().join("csv/samples.csv"))?.contains("tcp.cwnd"));
    // The other end is free for the next.
    json(&["run", &serving.at, "--duration", "0.2"]).map(drop)
}

fn udp() -> Result<()> {
    let serving = Serving::start(&[])?;
    let value = json(&["run", &serving.at, "--duration", "1", "--udp", "--preset", "iperf2"])?;
    let packets = &value["directions"][0]["packets"];
    // 1 Mb/s of 1470 bytes for a second.
    ensure!(packets["due"] == 85 && packets["sent"] == 85, "{packets}");
    let number = |key: &str| packets[key].as_u64().unwrap_or(u64::MAX);
    ensure!(number("received") + number("lost") == 85, "{packets}");
    ensure!(packets["one_way_us"]["offset_error"].as_f64() > Some(0.0), "{packets}");
    Ok(())
}
