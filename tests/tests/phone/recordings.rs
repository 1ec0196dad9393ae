//! Recordings on a device, received here, over links that break.

use super::{DAEMON_PATH, clean, json, phone, told};
use anyhow::{Context, Result, ensure};
use fathom_tests::phone::{Phone, Shape};
use fathom_tests::{run, wait_until};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

pub fn refused_recording() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("t.fathom");
    let mut command = phone.fathom();
    command.args(["record", "--device", &phone.name(), "-o"]).arg(&archive).args(["--", "sleep", "0.1"]);
    let output = command.output()?;
    ensure!(!output.status.success() && !archive.exists(), "{}", told(&output));
    ensure!(told(&output).contains("does not permit this user to trace"), "{}", told(&output));
    ensure!(fs::read_dir(directory.path())?.count() == 0, "something was left here");
    clean(&phone)
}

pub fn recording_on_device_is_linked_here() -> Result<()> {
    let phone = Phone::start(DAEMON_PATH, &Shape { uid: 0, ..Shape::default() })?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("t.fathom");
    let script = "for i in 1 2 3; do echo x >/data/local/tmp/file; done; rm /data/local/tmp/file; exit 3";
    let mut command = phone.fathom();
    command.args(["record", "--all", "--device", &phone.name(), "-o"]).arg(&archive).args(["--", "sh", "-c", script]);
    let output = command.output()?;
    ensure!(output.status.code() == Some(3), "the command's own status: {}", told(&output));
    let summary = fathom_tests::show(&archive)?;
    ensure!(summary["trace"]["complete"] == true, "{}", summary["trace"]);
    let facts = fathom_tests::rows(&archive, "facts")?;
    ensure!(facts.iter().any(|f| f["name"] == "device.model" && f["value"] == "Example 7"), "{facts:?}");
    clean(&phone)
}

/// A command that prints one line after the other.
const LINES_SCRIPT: &str =
    "i=0; while [ $i -lt 60 ]; do echo line $i; echo $i >>/data/local/tmp/lines; sleep 0.1; i=$((i+1)); done";

/// Starts a recording of that command, and waits until the first line arrives here.
fn start_recording(phone: &Phone, archive: &Path, more: &[&str]) -> Result<(std::process::Child, Lines)> {
    let mut command = phone.fathom();
    command.args(["record", "--all", "--device", &phone.name()]).args(more).arg("-o").arg(archive);
    command.args(["--", "sh", "-c", LINES_SCRIPT]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
    ensure!(lines.next().transpose()?.as_deref() == Some("line 0"), "another first line");
    Ok((child, lines))
}

type Lines = std::io::Lines<BufReader<std::process::ChildStdout>>;

/// The command continues; its output of the meantime is printed once, and its writes are in the recording.
pub fn recording_cut() -> Result<()> {
    let phone = Phone::start(DAEMON_PATH, &Shape { uid: 0, ..Shape::default() })?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("t.fathom");
    let (child, lines) = start_recording(&phone, &archive, &[])?;
    phone.cut()?;
    let lines: Vec<String> = lines.collect::<std::io::Result<_>>()?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success() && told(&output).contains("is back after"), "{}", told(&output));
    let expected: Vec<String> = (1..60).map(|i| format!("line {i}")).collect();
    ensure!(lines == expected, "a line is missing, or there twice: {lines:?}");
    let summary = fathom_tests::show(&archive)?;
    ensure!(summary["trace"]["complete"] == true, "{}", summary["trace"]);
    let files = summary["files"].as_array().context("files")?;
    let file = files.iter().find(|f| f["path"].as_str().is_some_and(|p| p.ends_with("/lines"))).context("no file")?;
    // Sixty calls, before, during and after the cut.
    ensure!(file["writes"] == 60, "{file}");
    phone.shell("rm /data/local/tmp/lines")?;
    clean(&phone)
}

pub fn interrupted_while_gone() -> Result<()> {
    let phone = Phone::start(DAEMON_PATH, &Shape { uid: 0, ..Shape::default() })?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("t.fathom");
    let (mut child, _lines) = start_recording(&phone, &archive, &[])?;
    // A part of the log must be here before the device disappears.
    wait_until("a piece of the log", || {
        let all = fs::read_dir(directory.path())?.filter_map(|e| fs::metadata(e.ok()?.path().join("events.log")).ok());
        Ok(all.into_iter().any(|log| log.len() > 0))
    })?;
    phone.vanish()?;
    let said = BufReader::new(child.stderr.take().context("stderr")?);
    let mut told_so_far = String::new();
    let mut lines = said.lines();
    while !told_so_far.contains("to come back") {
        told_so_far += &lines.next().context(told_so_far.clone())??;
    }
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    lines.map_while(Result::ok).for_each(|line| told_so_far += &line);
    ensure!(child.wait()?.code() == Some(130), "{told_so_far}");
    ensure!(told_so_far.contains("fathom device fetch") && told_so_far.contains("until then is in"), "{told_so_far}");
    fathom_tests::show(&archive)?;
    // The device is back, and the complete recording of what continued there can be fetched.
    phone.reappear()?;
    wait_until("a device again", || {
        phone.connect()?;
        Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
    })?;
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--list", "--json"]).output()?)?;
    let name = value["left"][0]["name"].as_str().with_context(|| value.to_string())?.to_owned();
    let whole = directory.path().join("whole.fathom");
    let output = phone.fathom().args(["device", "fetch", &phone.name(), &name, "-o"]).arg(&whole).output()?;
    ensure!(output.status.success(), "{}", told(&output));
    ensure!(fathom_tests::show(&whole)?["trace"]["complete"] == true, "{}", told(&output));
    phone.shell("rm /data/local/tmp/lines")?;
    clean(&phone)
}

/// Both clocks are this machine's, so that their offset is known: zero. The reported offset and its error must include
/// that.
pub fn one_clock() -> Result<()> {
    let root = Shape { uid: 0, ..Shape::default() };
    let (a, b) = (Phone::start(DAEMON_PATH, &root)?, Phone::start(DAEMON_PATH, &Shape { open: true, ..root })?);
    // Two devices of the same model, at one adb server.
    b.connect_to(&a)?;
    let directory = tempfile::tempdir()?;
    let all = directory.path().join("all");
    let mut command = a.fathom();
    command.args(["record", "--all", "--device", &format!("{},{}", a.name(), b.name()), "--duration", "1", "-o"]);
    let output = command.arg(&all).output()?;
    ensure!(output.status.success() && told(&output).matches("clock was").count() == 2, "{}", told(&output));
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    for phone in [&a, &b] {
        let archive = all.join(format!("adb-{}.fathom", phone.serial.replace(':', "-")));
        let facts = fathom_tests::rows(&archive, "facts")?;
        let fact = |name: &str| -> Result<String> {
            let row = facts.iter().find(|f| f["name"] == name).with_context(|| name.to_string())?;
            Ok(row["value"].to_string())
        };
        ensure!(fact("clock.host_boot")?.contains(boot.trim()), "{facts:?}");
        let number = |name: &str| -> Result<f64> { Ok(fact(name)?.trim_matches(['"', '\'']).parse()?) };
        for [ahead, error] in [["clock.ahead", "clock.error"], ["clock.ahead_last", "clock.error_last"]] {
            let (ahead, error) = (number(ahead)?, number(error)?);
            ensure!(ahead.abs() <= error && error > 0.0, "{ahead} to within {error} ns does not hold 0");
        }
        ensure!(number("clock.read_at_last")? > number("clock.read_at")?, "{facts:?}");
    }
    clean(&a)
}
