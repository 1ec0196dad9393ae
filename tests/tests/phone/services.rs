//! Services that run on the device without a connection until they are stopped: nodes of a pool, network servers.

use super::{clean, json, phone, told};
use anyhow::{Context, Result, ensure};
use fathom_tests::phone::Phone;
use fathom_tests::sshd::Ssh;
use fathom_tests::{fathom, run, wait_until};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

pub fn papers_cluster_has_nodes_on_devices() -> Result<()> {
    let phone = phone()?;
    let bench = |at: &str, more: &[&str]| -> Result<Output> {
        let mut command = phone.fathom();
        command.args(["pool", "bench", "--paper", "--at", at, "--size", "1M", "--duration", "1", "--interface"]);
        Ok(command.args(more).output()?)
    };
    // Every response is checked against the part of the space that the node was given.
    let both = format!("local+{}", phone.name());
    let value = json(&bench(&both, &["lo", "--json", "--batch", "10"])?)?;
    ensure!(value.to_string().contains("ops_per_s"), "{value}");
    clean(&phone)?;
    for (at, more, status, why) in [
        (phone.name(), &["nosuch0"][..], 1, "no interface nosuch0"),
        (phone.name(), &["lo", "--use", "2"], 2, "--at names 1"),
        ("adb:none".into(), &["lo"], 1, "no device of that name"),
    ] {
        let output = bench(&at, more)?;
        ensure!(output.status.code() == Some(status) && told(&output).contains(why), "{why}: {}", told(&output));
    }
    clean(&phone)?;
    let mut command = phone.fathom();
    command.args(["pool", "bench", "--paper", "--at", &phone.name(), "--interface", "lo", "--duration", "60"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    wait_until("a node on the device", || Ok(phone.processes()?.iter().any(|p| p.contains("--paper"))))?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(130), "{}", told(&output));
    clean(&phone)
}

/// Starts a service on the device; returns the address that it prints.
fn start_service(phone: &Phone, words: &[&str]) -> Result<String> {
    let mut command = phone.fathom();
    command.args(words).args(["--device", &phone.name(), "--listen", "127.0.0.1:0"]);
    let output = command.output()?;
    ensure!(output.status.success() && told(&output).contains("until `fathom device stop"), "{}", told(&output));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Stops the service, and everything else that runs there.
fn stop_service(phone: &Phone, kind: &str) -> Result<()> {
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--json"]).output()?)?;
    let left = &value["left"][0];
    ensure!(left["state"] == "running" && left["action"] == "removed" && left["kind"] == "service", "{value}");
    ensure!(left["name"].as_str().is_some_and(|name| name.starts_with(kind)), "{value}");
    clean(phone)?;
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--json"]).output()?)?;
    ensure!(value["left"].as_array().is_some_and(Vec::is_empty), "{value}");
    Ok(())
}

pub fn node_on_device_survives_cut_until_stop() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let key = directory.path().join("key");
    run(Command::new(fathom()).args(["pool", "keygen"]).arg(&key))?;
    let words = ["pool", "node", "--backend", "memory:4M", "--key", key.to_str().context("a path")?];
    let address = start_service(&phone, &words)?;
    // The device's network is this machine's.
    let bench = || -> Result<Value> {
        let mut command = Command::new(fathom());
        command.args(["pool", "bench", "--node", &address, "--key"]).arg(&key);
        json(&command.args(["--duration", "1", "--json"]).output()?)
    };
    bench()?;
    phone.cut()?;
    wait_until("a device after its cut", || {
        phone.connect()?;
        Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
    })?;
    bench()?;
    stop_service(&phone, "node-")?;
    // The paper's own node, as its figures 7 to 12 need it.
    let address =
        start_service(&phone, &["pool", "node", "--paper", "--backend", "memory:16M", "--first", "0", "--insecure"])?;
    let mut command = Command::new(fathom());
    command.args([
        "pool",
        "bench",
        "--paper",
        "--check",
        "--insecure",
        "--duration",
        "1",
        "--json",
        "--node",
        &address,
    ]);
    json(&command.output()?)?;
    stop_service(&phone, "node-")?;
    ensure!(std::net::TcpStream::connect(&address).is_err(), "it still listens");
    // The program is removed, too, when requested.
    let output = phone.fathom().args(["device", "stop", &phone.name(), "--remove-program"]).output()?;
    ensure!(output.status.success(), "{}", told(&output));
    ensure!(phone.shell("ls /data/local/tmp")?.trim().is_empty(), "{}", told(&output));
    // A service that cannot start reports the reason, and leaves nothing behind.
    let output = phone
        .fathom()
        .args([
            "pool",
            "node",
            "--store",
            "/no/such",
            "--insecure",
            "--device",
            &phone.name(),
            "--listen",
            "127.0.0.1:0",
        ])
        .output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("/no/such"), "{}", told(&output));
    clean(&phone)
}

/// A run of a second to this server measures something. It need not be valid: that either end did not get on for a second says nothing about
/// the service.
fn measure_net(address: &str) -> Result<()> {
    let output = Command::new(fathom()).args(["net", "run", address, "--duration", "1", "--json"]).output()?;
    let value: Value = serde_json::from_slice(&output.stdout).with_context(|| told(&output))?;
    let rate = value["throughput_bps"]["estimate"].as_f64();
    ensure!(rate.is_some_and(|rate| rate > 0.0), "{}", told(&output));
    ensure!(output.status.code() == Some(i32::from(value["valid"] == false)), "{}", told(&output));
    Ok(())
}

pub fn net_server() -> Result<()> {
    let phone = phone()?;
    let address = start_service(&phone, &["net", "serve"])?;
    measure_net(&address)?;
    stop_service(&phone, "serve-")
}

pub fn over_ssh() -> Result<()> {
    let ssh = Ssh::start()?;
    let directory = tempfile::tempdir()?;
    let key = directory.path().join("key");
    run(Command::new(fathom()).args(["pool", "keygen"]).arg(&key))?;
    let there = |words: &[&str]| -> Result<Output> {
        let mut command = Command::new(fathom());
        ssh.path(&mut command);
        Ok(command.args(words).stdin(Stdio::null()).output()?)
    };
    let device = ssh.device();
    let start = |words: &[&str]| -> Result<String> {
        let output = there(&[words, &["--device", &device, "--listen", "127.0.0.1:0"]].concat())?;
        ensure!(output.status.success(), "{}", told(&output));
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        let address = line.split_whitespace().find(|w| w.starts_with("127.0.0.1:")).with_context(|| line.clone())?;
        Ok(address.trim_end_matches([',', '.', ';']).to_owned())
    };
    let node = start(&["pool", "node", "--backend", "memory:4M", "--key", key.to_str().context("a path")?])?;
    let server = start(&["net", "serve"])?;
    // Both outlive the connections that started them.
    let mut command = Command::new(fathom());
    command.args(["pool", "bench", "--node", &node, "--duration", "1", "--json", "--key"]).arg(&key);
    json(&command.output()?)?;
    measure_net(&server)?;
    let value = json(&there(&["device", "stop", &device, "--json"])?)?;
    let left = value["left"].as_array().context("left")?;
    ensure!(left.len() == 2 && left.iter().all(|l| l["kind"] == "service" && l["action"] == "removed"), "{value}");
    for address in [&node, &server] {
        ensure!(std::net::TcpStream::connect(address).is_err(), "{address} still listens");
    }
    // Other files of the cache stay, and do not count as the program.
    let other = ssh.cache().join("kernels");
    std::fs::create_dir_all(&other)?;
    let value = json(&there(&["device", "stop", &device, "--remove-program", "--json"])?)?;
    ensure!(ssh.kept()? == [other], "{:?}", ssh.kept()?);
    ensure!(value["program_removed"] == true && value["left"].as_array().is_some_and(Vec::is_empty), "{value}");
    Ok(())
}
