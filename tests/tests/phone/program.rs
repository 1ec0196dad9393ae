//! Copying the program to the device: once, completely or not at all, over slow and broken links.

use super::{DAEMON_PATH, clean, json, phone, told};
use anyhow::{Result, ensure};
use fathom_tests::phone::{Phone, Shape};
use fathom_tests::{fathom, run, wait_until};
use std::fs;
use std::process::{Child, Command, Stdio};

pub fn pushed_once() -> Result<()> {
    let phone = phone()?;
    let look = || -> Result<String> { Ok(told(&phone.fathom().args(["device", "check", &phone.name()]).output()?)) };
    ensure!(look()?.contains("copying Fathom"), "it was not there");
    ensure!(!look()?.contains("copying Fathom"), "it was there already");
    // Another file of that name is not run.
    phone.shell("for f in /data/local/tmp/fathom/fathom-*; do echo 'echo no' >$f; done")?;
    ensure!(look()?.contains("copying Fathom"), "another program was taken for it");
    // Nor one of the same length and time, although this one has been hashed before.
    let hashed = || phone.shell("stat -c %i /data/local/tmp/fathom/verified");
    ensure!(!look()?.contains("copying Fathom"), "it was copied just now");
    let before = hashed()?;
    ensure!(!look()?.contains("copying Fathom") && hashed()? == before, "it was hashed again");
    let patch = "cd /data/local/tmp; for f in fathom/fathom-*; do touch -r $f time; \
                 { head -c 9000 $f; printf no; tail -c +9003 $f; } >other; cat other >$f && echo patched; \
                 touch -r time $f; done; rm time other";
    // A program that still runs cannot be written.
    wait_until("a changed program", || Ok(phone.shell(patch)?.contains("patched")))?;
    ensure!(look()?.contains("copying Fathom"), "a changed program was taken for it");
    let sums = phone.shell("sha256sum /data/local/tmp/fathom/fathom-*")?;
    let ours = run(Command::new("sha256sum").arg(fathom()))?;
    ensure!(sums.split(' ').next() == String::from_utf8(ours.stdout)?.split(' ').next(), "{sums}");
    clean(&phone)
}

pub fn full_data_is_reported_and_unchanged() -> Result<()> {
    let phone = Phone::start(DAEMON_PATH, &Shape { data: "size=4m", ..Shape::default() })?;
    let output = phone.fathom().args(["device", "info", &phone.name()]).output()?;
    let said = told(&output);
    ensure!(
        output.status.code() == Some(1) && said.contains("No space left") && said.contains("free space on the device"),
        "{said}"
    );
    ensure!(phone.left()?.is_empty(), "half of it was left: {:?}", phone.left()?);
    let phone = Phone::start(DAEMON_PATH, &Shape { data: "noexec", ..Shape::default() })?;
    let output = phone.fathom().args(["device", "info", &phone.name()]).output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("noexec"), "{}", told(&output));
    Ok(())
}

pub fn slow_link_is_slow_and_works() -> Result<()> {
    // USB 1 has 1 MB/s; the program is not on the device yet, so that the copy takes its time here.
    let size = fs::metadata(fathom())?.len();
    let phone = Phone::start(DAEMON_PATH, &Shape { rate: Some(size / 4), ..Shape::default() })?;
    let value = json(&phone.fathom().args(["device", "info", &phone.name(), "--json"]).output()?)?;
    ensure!(value["facts"]["os.sdk"]["value"] == "34", "{value}");
    clean(&phone)
}

/// A device to which the program is being copied; the copy alone would take a minute.
fn start_copying() -> Result<(Phone, Child)> {
    let rate = fs::metadata(fathom())?.len() / 60;
    let phone = Phone::start(DAEMON_PATH, &Shape { rate: Some(rate), ..Shape::default() })?;
    let mut command = phone.fathom();
    command.args(["device", "info", &phone.name()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    wait_until("a copy under way", || {
        Ok(phone.shell("ls /data/local/tmp/fathom 2>/dev/null; true")?.contains("part-"))
    })?;
    Ok((phone, child))
}

pub fn interrupted_copy() -> Result<()> {
    let (phone, child) = start_copying()?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(130), "{}", told(&output));
    wait_until("a clean device", || Ok(phone.left()?.is_empty()))
}

pub fn cut_copy() -> Result<()> {
    let (phone, child) = start_copying()?;
    phone.cut()?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("fathom device list"), "{}", told(&output));
    wait_until("a device after its cut", || {
        phone.connect()?;
        Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
    })?;
    // A partial copy is not executable under the program's name, and nothing runs it.
    let all = phone.shell("ls /data/local/tmp/fathom")?;
    ensure!(!all.contains("fathom-"), "half a program: {all}");
    Ok(())
}

/// The part of an interrupted copy is removed: nobody uses it.
pub fn part_left() -> Result<()> {
    let phone = phone()?;
    phone.shell("mkdir -p /data/local/tmp/fathom; echo half >/data/local/tmp/fathom/part-0123abcd-1")?;
    let output = phone.fathom().args(["device", "stop", &phone.name(), "--remove-program"]).output()?;
    ensure!(output.status.success(), "{}", told(&output));
    let left = phone.shell("ls -A /data/local/tmp")?;
    ensure!(left.trim().is_empty(), "{left}: {}", told(&output));
    Ok(())
}

pub fn old_shell() -> Result<()> {
    let phone = Phone::start(DAEMON_PATH, &Shape { features: "cmd", ..Shape::default() })?;
    let output = phone.fathom().args(["device", "info", &phone.name()]).output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("Android 7"), "{}", told(&output));
    Ok(())
}
