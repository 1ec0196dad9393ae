//! A guest as a device: booted for one command, and shut down after it.

use super::scenario::messages_of;
use anyhow::{Context, Result, ensure};
use fathom_tests::{assert_near, fathom, number, shape_of, show};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Runs Fathom in that directory, with a kernel cache that contains the tests' kernels.
fn run_fathom(directory: &Path, words: &[&str]) -> Result<Output> {
    let kernels = directory.join("cache/fathom");
    if !kernels.exists() {
        std::fs::create_dir_all(&kernels)?;
        symlink(
            std::fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"))?.join("lab"),
            kernels.join("lab"),
        )?;
    }
    let mut command = Command::new(fathom());
    Ok(command.current_dir(directory).env("XDG_CACHE_HOME", directory.join("cache")).args(words).output()?)
}

/// Returns what it prints to stdout if it succeeds.
fn run_successfully(directory: &Path, words: &[&str]) -> Result<String> {
    let output = run_fathom(directory, words)?;
    ensure!(output.status.success(), "{words:?}: {}: {}", output.status, messages_of(&output));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A recording on the guest is stored here, with the guest's facts.
pub fn guest_is_a_device_for_record_and_facts() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let load = ["fathom", "workload", "sqlite", "--op", "insert", "--rows", "10", "--dir", "/mnt"];
    run_successfully(
        directory.path(),
        &[&["record", "--device", "lab:scsi-ext4", "-o", "t.fathom", "--"], &load[..]].concat(),
    )?;
    let summary = show(&directory.path().join("t.fathom"))?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 10.0)?;
    ensure!(number(&summary, "/device_commands/by_disk/sda/total")? >= 40.0, "{:#}", summary["device_commands"]);
    let fact = |name: &str| summary["environment"][name]["value"].clone();
    ensure!(fact("virtual.accelerator") == "tcg", "{:#}", summary["environment"]);
    ensure!(fact("kernel.release").as_str().is_some_and(|r| r.ends_with("-amd64")), "{:#}", summary["environment"]);
    let unknown = run_fathom(directory.path(), &["device", "info", "lab:floppy"])?;
    ensure!(
        !unknown.status.success() && messages_of(&unknown).contains("no such scenario"),
        "{}",
        messages_of(&unknown)
    );
    Ok(())
}

/// A benchmark runs on the guest's disk, a network run in it, and a command with its streams and status.
pub fn guest_is_a_device_for_bench_and_net() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let device = ["--device", "lab:virtio-ext4"];
    let bench = ["bench", "run", "seq", "--quick", "--no-wait", "--blocks", "1", "--dir", "/mnt", "-o", "b.fathom"];
    run_successfully(directory.path(), &[&bench[..], &device].concat())?;
    let shown: Value =
        serde_json::from_str(&run_successfully(directory.path(), &["bench", "show", "--json", "b.fathom"])?)?;
    ensure!(shown.to_string().contains("virtual.accelerator"), "{shown:#}");
    let info = run_successfully(directory.path(), &["device", "info", "lab:nvme-ext4", "--json"])?;
    let info: Value = serde_json::from_str(&info)?;
    ensure!(info["device"] == "lab:nvme-ext4" && info["facts"]["virtual.accelerator"]["value"] == "tcg", "{info:#}");
    // QEMU's disk is new, and reports no spare blocks.
    let life = |what: &str| info["facts"][format!("media.nvme0n1.{what}")].clone();
    ensure!(life("life_used")["value"] == "0 %" && life("spare_used")["value"].is_null(), "{info:#}");
    ensure!(life("spare_used")["unknown"].as_str().is_some_and(|why| why.contains("reports none")), "{info:#}");

    // This machine's loopback address is 10.0.2.2 there.
    let mut serve = Serve::start()?;
    let mut line = String::new();
    BufReader::new(serve.0.stdout.take().context("its output")?).read_line(&mut line)?;
    let port = line.trim().rsplit(':').next().context("an address")?.to_string();
    let at = format!("10.0.2.2:{port}");
    let run = ["net", "run", &at, "--from", "lab:virtio-ext4", "--duration", "1s", "--json"];
    let net: Value = serde_json::from_str(&run_successfully(directory.path(), &run)?)?;
    ensure!(net["directions"][0]["intervals_bps"].as_array().is_some_and(|all| !all.is_empty()), "{net:#}");
    Ok(())
}

/// A guest is the server, for this machine and for another guest; the settings that its name implies are in force.
pub fn guest_is_a_network_server() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let bits = |words: &[&str]| -> Result<f64> {
        let words = [&["net", "run", "--duration", "1", "--json"], words].concat();
        let line: Value = serde_json::from_str(&run_successfully(directory.path(), &words)?)?;
        let intervals = line["directions"][0]["intervals_bps"].as_array().context("intervals")?;
        Ok(intervals.iter().filter_map(|interval| interval[1].as_f64()).sum())
    };
    ensure!(bits(&["--to", "lab:virtio-ext4,cpus=1"])? > 0.0, "nothing came to the guest");
    ensure!(bits(&["--to", "lab:virtio-ext4", "--udp", "--rate", "100k"])? > 0.0, "no packet came to the guest");
    ensure!(bits(&["--from", "lab:scsi-ext4", "--to", "lab:virtio-ext4"])? > 0.0, "nothing came from guest to guest");
    let cpus = run_successfully(
        directory.path(),
        &["lab", "exec", "virtio-ext4,cpus=1,fs=f2fs", "--", "sh", "-c", "nproc; mount"],
    )?;
    ensure!(cpus.starts_with("1\n") && cpus.contains(" on /mnt type f2fs "), "{cpus}");
    Ok(())
}

/// `fathom net serve` on a free port; killed when dropped.
struct Serve(Child);

impl Serve {
    fn start() -> Result<Self> {
        let serve = ["net", "serve", "--listen", "127.0.0.1:0"];
        Ok(Self(Command::new(fathom()).args(serve).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?))
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // Both fail only if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
