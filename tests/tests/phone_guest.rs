//! A device with a kernel, a disk and a network of its own before the real `adb`: a virtual machine with Debian's kernel, /data as f2fs on
//! an SD card, /sdcard behind FUSE, and the daemon of `src/bin/adbd`. Its times are of an emulated processor: nothing here is about speed.

use anyhow::{Context, Result, ensure};
use fathom_tests::phone::{Phone, Shape, machine};
use fathom_tests::{Case, fathom, lane, run, until};
use serde_json::Value;
use std::fs;
use std::process::{ExitCode, Output};

fn main() -> ExitCode {
    let needs = machine::possible;
    let cases: Vec<Case> = vec![
        ("long::facts_of_guest_come_over_real_adb", needs(), facts),
        ("long::insert_in_guest_is_followed_to_card", needs(), recorded),
    ];
    lane(cases)
}

const DAEMON: &str = env!("CARGO_BIN_EXE_adbd");

/// What real models print: properties of one, temperatures of another, since no public source has both of one.
const REPLAYED: &[&str] = &["models/pixel-8", "models/shield-tv-pro-2019", "phone"];

fn phone(uid: u32) -> Result<Phone> {
    Phone::boot(DAEMON, &Shape { uid, models: REPLAYED, ..Shape::default() })
}

fn told(output: &Output) -> String {
    format!("{}\n{}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn json(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "{}", told(output));
    serde_json::from_slice(&output.stdout).with_context(|| told(output))
}

/// Nothing but the program itself is left there.
fn clean(phone: &Phone) -> Result<()> {
    until("a clean device", || Ok(phone.left()?.is_empty() && phone.processes()?.is_empty()))
        .with_context(|| format!("left: {:?}, running: {:?}", phone.left(), phone.processes()))
}

fn facts() -> Result<()> {
    let phone = phone(2000)?;
    let value = json(&phone.fathom().args(["device", "info", &phone.name(), "--json"]).output()?)?;
    println!("{value:#}");
    let output = phone.fathom().args(["device", "check", &phone.name()]).output()?;
    println!("{}", told(&output));
    clean(&phone)
}

fn recorded() -> Result<()> {
    let phone = phone(0)?;
    let folder = tempfile::tempdir()?;
    for dir in ["/data/local/tmp", "/sdcard"] {
        let archive = folder.path().join("t.fathom");
        let mut command = phone.fathom();
        command.args(["record", "--device", &phone.name(), "-o"]).arg(&archive).args(["--", "{fathom}", "workload", "sqlite", "--op", "insert", "--rows", "25", "--dir", dir]);
        let output = command.output()?;
        println!("{}", told(&output));
        ensure!(output.status.success(), "{}", told(&output));
        let summary = fathom_tests::show(&archive)?;
        println!("{summary:#}");
        fs::remove_dir_all(&archive)?;
    }
    clean(&phone)
}
