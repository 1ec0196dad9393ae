//! `fathom net trial`: one run over an emulated link, as a benchmark's replicate prints it.
//!
//! Both ends are processes of this program, each in its namespace: `net serve` and `net run --lines`. What the second prints
//! is handed on, with what the link did; and its `verified` is taken back if the link was not the one asked for, since the
//! number is then nobody's.

use crate::args::{NetTrial, Way};
use crate::progress;
use ::net::link::bed::{Bed, SERVER};
use ::net::link::schedule::{DOWN, UP};
use ::net::link::{Outcome, Spec};
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, ExitCode, Stdio};

/// The server's port, in a namespace where nobody else is.
const PORT: u16 = 7100;

pub fn run(args: &NetTrial) -> Result<ExitCode> {
    let spec = match args.link.spec() {
        Ok(spec) => spec,
        Err(sentence) => {
            eprintln!("fathom net trial: {sentence}");
            return Ok(ExitCode::from(2));
        }
    };
    progress::end_on_signal(&progress::context(true));
    // Supplied for as long as it is held.
    let _cc = args.cc.as_deref().map(::net::cc::ensure).transpose()?;
    let bed = Bed::create(&spec)?;
    let said = measure(args, &bed);
    let outcome = bed.finish()?;
    let (lines, verified) = with_link(&said?, &spec, &outcome);
    crate::say::text(&(lines.join("\n") + "\n"));
    if !verified {
        // The runner keeps this as the reason.
        let verdict = lines.last().map(|line| parsed(line)).unwrap_or_default();
        eprintln!("fathom net trial: {}", verdict["by"].as_str().unwrap_or_default());
    }
    Ok(if verified { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What `net run` printed.
fn measure(args: &NetTrial, bed: &Bed) -> Result<Vec<String>> {
    let program = std::env::current_exe().context("where this program is")?;
    let key = key()?;
    let (address, key) = (format!("{}:{PORT}", SERVER[0]), format!("/proc/self/fd/{}", key.as_raw_fd()));
    let net = |command: &mut Command, verb: &str| {
        command.args(["net", verb, "--key", &key]).stdin(Stdio::null()).stdout(Stdio::piped());
    };
    let mut serve = bed.server().command(&program);
    net(&mut serve, "serve");
    let mut serve = serve.args(["--once", "--listen", &address]).stderr(Stdio::null()).spawn()?;
    let mut ready = String::new();
    if let Some(stdout) = serve.stdout.as_mut() {
        BufReader::new(stdout).read_line(&mut ready)?;
    }
    let mut ask = bed.command(&program);
    net(&mut ask, "run");
    let output = ask.arg(&address).args(words(args)?).stderr(Stdio::piped()).output()?;
    // It may wait for another asker; nothing is left of it to be told.
    let _ = serve.kill();
    serve.wait()?;
    if !output.status.success() {
        bail!("the run over the link failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect())
}

/// The words of `net run` for this trial.
fn words(args: &NetTrial) -> Result<Vec<String>> {
    let mut words =
        vec!["--lines".to_string(), "--readings".into(), format!("--duration={}", args.duration.as_secs_f64())];
    if args.transactions {
        words.push("--transactions".into());
    } else {
        let way = match args.direction {
            Way::Up => "up",
            Way::Down => "down",
            Way::Both => "both",
        };
        words.push(format!("--direction={way}"));
    }
    match args.udp.as_deref() {
        None => words.push(format!("--streams={}", args.streams)),
        Some("iperf2") => words.extend(["--udp".into(), "--preset=iperf2".into()]),
        Some(rate) => words.extend(["--udp".into(), format!("--rate={rate}")]),
    }
    for (name, value) in [("cc", &args.cc), ("sndbuf", &args.sndbuf), ("rcvbuf", &args.rcvbuf)] {
        if let Some(value) = value.as_ref().filter(|v| *v != "auto") {
            words.push(format!("--{name}={value}"));
        }
    }
    Ok(words)
}

/// A key for both ends, in a file that has no name and goes with us.
fn key() -> Result<File> {
    // SAFETY: the name is a C string. Without MFD_CLOEXEC, so that both ends inherit it.
    let fd = unsafe { libc::memfd_create(c"fathom-key".as_ptr(), 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error()).context("cannot hold a key in memory");
    }
    // SAFETY: the descriptor was just made and is nobody else's.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(wire::Key::generate()?.to_text().as_bytes())?;
    Ok(file)
}

/// The run's lines with the link's, and whether the result counts.
fn with_link(said: &[String], spec: &Spec, outcome: &Outcome) -> (Vec<String>, bool) {
    let is_verdict = |line: &&String| line.starts_with('{') && parsed(line).get("verified").is_some();
    let verdict = said.iter().find(is_verdict).map(|line| parsed(line)).unwrap_or_default();
    let mut lines: Vec<String> = said.iter().filter(|l| !is_verdict(l)).cloned().collect();
    let mut metric = |name: &str, unit: &str, v: f64| {
        lines.push(json!({"metric": name, "unit": unit, "v": v}).to_string());
    };
    for (name, q) in [("link.late.p50", 0.5), ("link.late.p99", 0.99)] {
        metric(name, "us", outcome.lateness.quantile(q) as f64 / 1e3);
    }
    for (d, way) in [(UP, "up"), (DOWN, "down")] {
        let c = &outcome.counts[d];
        let share = |n: u64| n as f64 / c.offered.max(1) as f64;
        metric(&format!("link.lost.{way}"), "1", share(c.lost));
        metric(&format!("link.queue_full.{way}"), "1", share(c.dropped));
        metric(&format!("link.queue_max.{way}"), "packet", c.queue_max as f64);
    }
    let document = super::link::document(spec, outcome, None);
    lines.push(json!({"mark": "link", "text": document.to_string()}).to_string());
    let invalid = outcome.invalid(spec);
    let by = verdict["by"].as_str().unwrap_or("the run said nothing of its result");
    let by = match invalid.is_empty() {
        true => format!("{by}; one packet in a hundred late by {} us", outcome.lateness.quantile(0.99) / 1000),
        false => format!("{by}; but the link was not the one asked for: {}", invalid.join("; ")),
    };
    let verified = invalid.is_empty() && verdict["verified"] == true;
    lines.push(json!({"verified": verified, "by": by}).to_string());
    (lines, verified)
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::net::link::Way as OneWay;

    fn lines(run: &[&str], late_ns: u64) -> (Vec<String>, bool) {
        let spec = Spec::both(OneWay { delay_ns: 10_000_000, ..OneWay::default() });
        let mut outcome = Outcome::default();
        outcome.lateness.record(0, late_ns);
        with_link(&run.iter().map(ToString::to_string).collect::<Vec<_>>(), &spec, &outcome)
    }

    #[test]
    fn a_run_over_a_late_link_is_no_score() {
        let run = [r#"{"metric":"throughput","unit":"bit/s","v":1}"#, r#"{"verified":true,"by":"7 counted"}"#];
        let verdict = |lines: &[String]| parsed(lines.last().unwrap());
        let (on_time, good) = lines(&run, 20_000);
        assert!(good && verdict(&on_time)["verified"] == true);
        assert!(verdict(&on_time)["by"].as_str().unwrap().starts_with("7 counted; "));
        assert_eq!(on_time.iter().filter(|l| l.contains("verified")).count(), 1);
        let (late, bad) = lines(&run, 600_000);
        assert!(!bad && verdict(&late)["by"].as_str().unwrap().contains("500 us are allowed"), "{late:?}");
        // Whatever the link was like, a run that says nothing is no result.
        assert!(!lines(&[], 20_000).1);
        assert!(!lines(&[r#"{"verified":false,"by":"nothing arrived"}"#], 20_000).1);
    }
}
