//! `fathom net trial`: one run over an emulated link, as a benchmark's replicate prints it.
//!
//! Both ends are processes of this program, each in its namespace: `net serve` and `net run --lines`. What the second prints
//! is handed on, with what the link did; and its `verified` is taken back if the link was not the one asked for, since the
//! number is then nobody's.

use super::linked::{parsed, with_link};
use crate::args::{Cli, NetTrial, NetVerb, Verb, Way};
use crate::progress;
use ::net::link::test_bed::{SERVER, TestBed};
use anyhow::{Context as _, Result, bail};
use clap::Parser as _;
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
    let words = words(args);
    if let Err(sentence) = possible(&words) {
        eprintln!("fathom net trial: {sentence}");
        return Ok(ExitCode::from(2));
    }
    progress::end_on_signal(&progress::context(true));
    // Supplied for as long as it is held.
    let _cc = args.cc.as_deref().map(::net::cc::ensure).transpose()?;
    let testbed = TestBed::create(&spec)?;
    let said = measure(&words, &testbed);
    let outcome = testbed.finish()?;
    let (lines, verified) = with_link(&said?, &spec, &outcome);
    crate::output::text(&(lines.join("\n") + "\n"));
    if !verified {
        // The runner keeps this as the reason.
        let verdict = lines.last().map(|line| parsed(line)).unwrap_or_default();
        eprintln!("fathom net trial: {}", verdict["by"].as_str().unwrap_or_default());
    }
    Ok(if verified { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What `net run` printed.
fn measure(words: &[String], testbed: &TestBed) -> Result<Vec<String>> {
    let program = std::env::current_exe().context("where this program is")?;
    let key = key()?;
    let (address, key) = (format!("{}:{PORT}", SERVER[0]), format!("/proc/self/fd/{}", key.as_raw_fd()));
    let net = |command: &mut Command, verb: &str| {
        command.args(["net", verb, "--key", &key]).stdin(Stdio::null()).stdout(Stdio::piped());
    };
    let mut serve = testbed.server().command(&program);
    net(&mut serve, "serve");
    let mut serve = serve.args(["--once", "--listen", &address]).stderr(Stdio::null()).spawn()?;
    let mut ready = String::new();
    if let Some(stdout) = serve.stdout.as_mut() {
        BufReader::new(stdout).read_line(&mut ready)?;
    }
    let mut ask = testbed.command(&program);
    net(&mut ask, "run");
    let output = ask.arg(&address).args(words).stderr(Stdio::piped()).output()?;
    // It may wait for another asker; nothing is left of it to be told.
    let _ = serve.kill();
    serve.wait()?;
    if !output.status.success() {
        bail!("the run over the link failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect())
}

/// Whether `net run` would take these words, before anything is made.
fn possible(words: &[String]) -> Result<(), String> {
    let address = format!("{}:{PORT}", SERVER[0]);
    let whole = ["fathom", "net", "run", &address].into_iter().chain(words.iter().map(String::as_str));
    // What clap says ends with the usage of another verb.
    let first = |error: clap::Error| error.to_string().lines().next().unwrap_or_default().replace("error: ", "");
    let Verb::Net(net) = Cli::try_parse_from(whole).map_err(first)?.verb else { return Ok(()) };
    match &net.verb {
        NetVerb::Run(run) => super::run::spec(run)?.check().map_err(|why| why.to_string()),
        _ => Ok(()),
    }
}

/// The words of `net run` for this trial.
fn words(args: &NetTrial) -> Vec<String> {
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
    words
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
