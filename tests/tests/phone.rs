//! Devices through the real `adb`, server and client, before a device daemon of ours (`src/bin/adbd`) whose private root has a toybox
//! userland. What is real is the way; the device's kernel is this machine's, and no Android is there.

use anyhow::{Context, Result, ensure};
use fathom_tests::phone::{Phone, Shape, possible};
use fathom_tests::{Case, fathom, lane, run, until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let adb = possible;
    let bpf = || possible().and_then(|()| fathom_tests::root());
    let cases: Vec<Case> = vec![
        ("device_without_adb_server_is_reported", Ok(()), no_server),
        ("real_adb_authenticates_and_lists_device", adb(), listed),
        ("unauthorized_device_is_reported", adb(), unauthorized),
        ("facts_and_abilities_come_over_real_adb", adb(), facts),
        ("program_is_pushed_once_and_replaced_if_changed", adb(), pushed_once),
        ("benchmark_on_device_comes_back_as_archive", adb(), benchmark),
        ("two_devices_measure_side_by_side", adb(), two_devices),
        ("bytecode_comes_along_and_mode_is_judged", adb(), bytecode),
        ("ctrl_c_brings_back_what_was_measured", adb(), interrupted),
        ("cut_link_keeps_what_was_measured", adb(), cut),
        ("run_resumes_after_cuts_without_loss_or_repeat", adb(), cuts),
        ("run_of_lost_host_is_fetched_later", adb(), fetched),
        ("reboot_keeps_what_was_measured", adb(), reboot),
        ("fixed_performance_mode_is_reset_however_run_ends", adb(), fixed_performance),
        ("host_and_device_are_compared_by_settings", adb(), compared),
        ("node_on_device_survives_cut_until_stop", adb(), node),
        ("net_server_on_device_serves_until_stop", adb(), net_server),
        ("full_data_is_reported_and_unchanged", adb(), full),
        ("slow_link_is_slow_and_works", adb(), slow),
        ("interrupted_copy_leaves_nothing", adb(), interrupted_copy),
        ("shell_without_exit_status_is_refused", adb(), old_shell),
        ("user_without_capabilities_gets_alternatives", adb(), refused_recording),
        ("recording_on_device_is_linked_here", bpf(), recorded),
        ("trace_of_device_perfetto_is_fetched_and_removed", adb(), via_perfetto),
        ("forwarded_port_reaches_device", adb(), forwarded),
        ("adb_pushes_and_pulls_same_bytes", adb(), files),
    ];
    lane(cases)
}

const DAEMON: &str = env!("CARGO_BIN_EXE_adbd");

fn phone() -> Result<Phone> {
    Phone::start(DAEMON, &Shape::default())
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

fn no_server() -> Result<()> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let mut command = Command::new(fathom());
    command.args(["device", "info", "adb"]).env("ANDROID_ADB_SERVER_PORT", &port).env("PATH", "/nonexistent");
    let output = command.output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("apt-get install adb"), "{}", told(&output));
    let mut command = Command::new(fathom());
    command.args(["device", "list", "--json"]).env("ANDROID_ADB_SERVER_PORT", &port).env("PATH", "/nonexistent");
    let value = json(&command.output()?)?;
    ensure!(value["devices"][0]["device"] == "local" && value["adb_problem"].is_string(), "{value}");
    let output = Command::new(fathom()).args(["device", "info", "phone"]).output()?;
    ensure!(output.status.code() == Some(2) && told(&output).contains("adb:SERIAL"), "{}", told(&output));
    Ok(())
}

fn listed() -> Result<()> {
    let phone = phone()?;
    let value = json(&phone.fathom().args(["device", "list", "--json"]).output()?)?;
    let device = &value["devices"][1];
    ensure!(
        device["device"] == phone.name() && device["usable"] == true && device["model"] == "Private_Root",
        "{value}"
    );
    // The list is told again when the device is gone.
    let mut watch = phone.fathom();
    watch.args(["device", "list", "--watch", "--json"]).stdout(Stdio::piped());
    let mut watch = watch.spawn()?;
    let mut lines = BufReader::new(watch.stdout.take().context("stdout")?).lines();
    ensure!(lines.next().context("no list")??.contains(&phone.serial));
    phone.cut()?;
    let usable = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        value["devices"]
            .as_array()
            .is_some_and(|all| all.iter().any(|d| d["device"] == phone.name() && d["usable"] == true))
    };
    let gone = lines.by_ref().map_while(Result::ok).any(|line| !usable(&line));
    run(Command::new("kill").args(["-INT", &watch.id().to_string()]))?;
    ensure!(gone && watch.wait()?.success(), "its going was not told");
    Ok(())
}

fn unauthorized() -> Result<()> {
    let phone = Phone::start(DAEMON, &Shape { authorized: false, ..Shape::default() })?;
    until("an unauthorized device", || {
        let value = json(&phone.fathom().args(["device", "list", "--json"]).output()?)?;
        Ok(value["devices"][1]["state"] == "unauthorized")
    })?;
    let output = phone.fathom().args(["device", "info", &phone.name()]).output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("allow USB debugging"), "{}", told(&output));
    Ok(())
}

fn facts() -> Result<()> {
    let phone = phone()?;
    let value = json(&phone.fathom().args(["device", "info", &phone.name(), "--json"]).output()?)?;
    let fact = |name: &str| value["facts"][name]["value"].as_str().unwrap_or_default().to_owned();
    ensure!(value["version"] == 1 && value["device"] == phone.name(), "{value}");
    // Replayed; the kernel's is this machine's own, and the user is the device's.
    ensure!(fact("os.sdk") == "34" && fact("device.model") == "Example 7", "{value}");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    ensure!(fact("kernel.release") == release.trim() && fact("access.uid") == "2000", "{value}");
    ensure!(fact("access.capabilities") == "none", "{value}");
    let value = json(&phone.fathom().args(["device", "check", &phone.name(), "--json"]).output()?)?;
    let rows = value["abilities"].as_array().context("abilities")?;
    let row = |what: &str| rows.iter().find(|r| r["what"] == what).map(|r| r["can"].clone());
    ensure!(row("record: eBPF") == Some("no".into()) && row("record: --via perfetto") == Some("yes".into()), "{value}");
    let output = phone.fathom().args(["device", "info", &phone.name(), "--all"]).output()?;
    ensure!(output.status.success() && told(&output).contains("[getprop ro.product.model]"), "{}", told(&output));
    clean(&phone)
}

fn pushed_once() -> Result<()> {
    let phone = phone()?;
    let look = || -> Result<String> { Ok(told(&phone.fathom().args(["device", "check", &phone.name()]).output()?)) };
    ensure!(look()?.contains("copying Fathom"), "it was not there");
    ensure!(!look()?.contains("copying Fathom"), "it was there already");
    // Another file under its name is not run.
    phone.shell("for f in /data/local/tmp/fathom/fathom-*; do echo 'echo no' >$f; done")?;
    ensure!(look()?.contains("copying Fathom"), "another program was taken for it");
    let sums = phone.shell("sha256sum /data/local/tmp/fathom/fathom-*")?;
    let ours = run(Command::new("sha256sum").arg(fathom()))?;
    ensure!(sums.split(' ').next() == String::from_utf8(ours.stdout)?.split(' ').next(), "{sums}");
    clean(&phone)
}

/// A benchmark of a second.
const QUICK: [&str; 8] = ["bench", "run", "sqlite", "--no-wait", "-p", "rows=10", "-p", "op=insert"];

fn bench(phone: &Phone, archive: &Path) -> Command {
    let mut command = phone.fathom();
    command.args(QUICK).args(["--quick", "--blocks", "2", "--device", &phone.name(), "-o"]).arg(archive);
    command
}

fn processes(archive: &Path) -> Result<usize> {
    Ok(fathom_tests::rows(archive, "replicates")?.iter().filter(|r| r["exit"] == "0").count())
}

fn benchmark() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("b.fathom");
    let output = bench(&phone, &archive).arg("--json").output()?;
    let value = json(&output)?;
    ensure!(value["results"].as_array().is_some_and(|r| !r.is_empty()), "{value}");
    let facts = fathom_tests::rows(&archive, "facts")?;
    ensure!(facts.iter().any(|f| f["name"] == "device.model" && f["value"] == "Example 7"), "{facts:?}");
    ensure!(processes(&archive)? > 0, "no process");
    ensure!(fs::read_dir(folder.path())?.count() == 1, "something else was left here");
    // It compares with one of this machine.
    let here = folder.path().join("here.fathom");
    run(Command::new(fathom())
        .args(QUICK)
        .args(["--quick", "--blocks", "2", "--quiet", "-o"])
        .arg(&here)
        .current_dir(folder.path()))?;
    let output = Command::new(fathom()).args(["bench", "compare"]).args([&here, &archive]).output()?;
    ensure!(told(&output).contains("device.model"), "{}", told(&output));
    clean(&phone)
}

fn two_devices() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archives = folder.path().join("all");
    // The same device by its name and by `all` is one.
    let mut command = phone.fathom();
    command
        .args(QUICK)
        .args(["--quick", "--blocks", "1", "--device", &format!("all,{},local", phone.name()), "-o"])
        .arg(&archives);
    let output = command.output()?;
    ensure!(output.status.success(), "{}", told(&output));
    let mut names: Vec<String> =
        fs::read_dir(&archives)?.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect::<Result<_>>()?;
    names.sort();
    ensure!(names == [format!("adb-{}.fathom", phone.serial.replace(':', "-")), "local.fathom".into()], "{names:?}");
    clean(&phone)
}

fn bytecode() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let (archive, jar) = (folder.path().join("b.fathom"), folder.path().join("classes.jar"));
    fs::write(&jar, "dexed classes")?;
    let mut command = phone.fathom();
    command.args([
        "bench",
        "run",
        "linpack",
        "--no-wait",
        "--quick",
        "--blocks",
        "2",
        "-p",
        "mode=art-interpreter,art-jit",
        "-p",
        "size=100",
    ]);
    command.args(["--device", &phone.name(), "--json", "--dex-jar"]).arg(&jar).arg("-o").arg(&archive);
    let value = json(&command.output()?)?;
    let results = value["results"].as_array().context("results")?;
    ensure!(results.len() == 2, "{value}");
    for result in results {
        let mode = result["parameters"]["mode"].as_str().context("a mode")?;
        let proof = result["marks"]["mode"].as_str().unwrap_or_default();
        ensure!(proof.starts_with(&format!("{mode}: in /proc/self/maps")), "{result}");
    }
    clean(&phone)
}

/// Starts a long benchmark and waits until a process of it was measured there.
fn under_way(phone: &Phone, archive: &Path, reconnect: &str) -> Result<std::process::Child> {
    let mut command = phone.fathom();
    command
        .args(QUICK)
        .args(["--blocks", "500", "--device", &phone.name(), "--reconnect", reconnect, "-o"])
        .arg(archive);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    until("a measured process", || {
        let folder = archive.parent().context("a folder")?;
        let logs = fs::read_dir(folder)?.filter_map(|e| fs::read_to_string(e.ok()?.path().join("runs.jsonl")).ok());
        Ok(logs.into_iter().any(|log| log.matches("\"replicate\"").count() > 3))
    })?;
    Ok(child)
}

fn interrupted() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("b.fathom");
    let child = under_way(&phone, &archive, "2m")?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(130), "{}", told(&output));
    ensure!(processes(&archive)? > 0, "nothing was kept: {}", told(&output));
    clean(&phone)
}

fn cut() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("b.fathom");
    let child = under_way(&phone, &archive, "0")?;
    phone.cut()?;
    let output = child.wait_with_output()?;
    let said = told(&output);
    ensure!(
        output.status.code() == Some(1) && said.contains("was unplugged") && said.contains("until then is in"),
        "{said}"
    );
    ensure!(processes(&archive)? > 0, "nothing was kept");
    phone.connect()?;
    phone.ready()?;
    // The agent ends, with its command and its folder, when its input does.
    clean(&phone)
}

/// Blocks of a run whose link is cut at random points; replicates of each cell that there should be.
const BLOCKS: usize = 40;
/// How often, as long as it runs.
const CUTS: usize = 4;

fn cuts() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("b.fathom");
    let mut command = phone.fathom();
    command.args(QUICK).args(["--blocks", &BLOCKS.to_string(), "--device", &phone.name(), "-o"]).arg(&archive);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let lines = BufReader::new(child.stderr.take().context("stderr")?).lines();
    until("a run there", || {
        // What it said is told below.
        Ok(child.try_wait()?.is_some() || phone.left()?.iter().any(|name| name.starts_with("detached-")))
    })?;
    let mut seed = u64::from(std::process::id());
    let mut cut = || -> Result<()> {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A fixed wait: the point of the cut is random.
        std::thread::sleep(std::time::Duration::from_millis((seed >> 33) % 2500));
        phone.cut()
    };
    cut()?;
    let (mut said, mut back) = (String::new(), 0);
    for line in lines.map_while(Result::ok) {
        said += &format!("{line}\n");
        if line.contains("is back after") {
            back += 1;
            if back < CUTS {
                cut()?;
            }
        }
    }
    ensure!(child.wait()?.success(), "back after {back} cuts: {said}");
    ensure!(back > 0, "nothing was cut: {said}");
    let rows = fathom_tests::rows(&archive, "replicates")?;
    let mut cells = std::collections::BTreeMap::<String, Vec<String>>::new();
    for row in &rows {
        ensure!(row["exit"] == "0", "{row:?}");
        cells.entry(row["cell"].to_string()).or_default().push(row["block"].to_string());
    }
    for (cell, mut blocks) in cells {
        blocks.sort();
        blocks.dedup();
        ensure!(blocks.len() == BLOCKS + 1, "{cell}: {} of {BLOCKS} blocks and a warm-up", blocks.len());
    }
    let ids: std::collections::BTreeSet<String> = rows.iter().map(|row| row["id"].to_string()).collect();
    ensure!(ids.len() == rows.len() && rows.len() % (BLOCKS + 1) == 0, "a replicate is there twice: {rows:?}");
    phone.connect()?;
    phone.ready()?;
    clean(&phone)
}

fn fetched() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("b.fathom");
    let mut child = under_way(&phone, &archive, "5m")?;
    // Its host is killed: nobody undoes anything.
    child.kill()?;
    child.wait()?;
    let list =
        |words: &[&str]| json(&phone.fathom().args(["device", "stop", &phone.name(), "--json"]).args(words).output()?);
    let value = list(&["--list"])?;
    let left = &value["left"][0];
    let name = left["name"].as_str().context("a name")?.to_owned();
    ensure!(left["kind"] == "run" && left["state"] == "running" && left["action"] == "listed", "{value}");
    // A run that nobody fetched is ended, and kept.
    let value = list(&[])?;
    ensure!(value["left"][0]["action"] == "kept", "{value}");
    let fetched = folder.path().join("fetched.fathom");
    let mut command = phone.fathom();
    command.args(["device", "fetch", &phone.name(), &name, "-o"]).arg(&fetched);
    let output = command.output()?;
    ensure!(output.status.success(), "{}", told(&output));
    ensure!(processes(&fetched)? > 0, "{}", told(&output));
    let output = phone.fathom().args(["device", "fetch", &phone.name(), &name, "-o", "/dev/null/x"]).output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("no detached command"), "{}", told(&output));
    clean(&phone)
}

fn reboot() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("b.fathom");
    let child = under_way(&phone, &archive, "2m")?;
    phone.reboot()?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("until then is in"), "{}", told(&output));
    ensure!(processes(&archive)? > 0, "nothing was kept");
    until("a device after its restart", || {
        phone.connect()?;
        Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
    })?;
    let value = json(&phone.fathom().args(["device", "check", &phone.name(), "--json"]).output()?)?;
    ensure!(value["version"] == 1, "{value}");
    clean(&phone)
}

fn fixed_performance() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("b.fathom");
    let told_device = || phone.shell("cat /data/misc/perfetto-traces/cmd 2>/dev/null; true");
    let [on, off] = ["true", "false"].map(|value| format!("power set-fixed-performance-mode-enabled {value}\n"));
    let output = bench(&phone, &archive).arg("--fixed-performance").output()?;
    ensure!(output.status.success(), "{}", told(&output));
    ensure!(told_device()? == [&*on, &*off].concat(), "{:?}", told_device());
    clean(&phone)?;
    // Everything of it there is killed: nobody can reset it, until somebody comes.
    let mut command = phone.fathom();
    command.args(QUICK).args(["--fixed-performance", "--blocks", "500", "--device", &phone.name(), "-o"]).arg(&archive);
    command.stderr(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn()?;
    until("the mode", || Ok(told_device()? == [&*on, &*off, &*on].concat()))?;
    child.kill()?;
    child.wait()?;
    let kill = "for p in $(ps -A -o PID,ARGS | sed -n 's/^ *\\([0-9]*\\) fathom-.*/\\1/p'); do kill -9 $p; done 2>/dev/null; true";
    ensure!(!phone.processes()?.is_empty(), "nothing runs");
    until("a dead run", || {
        phone.shell(kill)?;
        Ok(phone.processes()?.is_empty())
    })?;
    ensure!(told_device()? == [&*on, &*off, &*on].concat(), "{:?}", told_device());
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--discard", "--json"]).output()?)?;
    ensure!(value["left"][0]["state"] == "vanished" && value["left"][0]["action"] == "removed", "{value}");
    ensure!(told_device()? == [&*on, &*off, &*on, &*off].concat(), "{:?}", told_device());
    clean(&phone)
}

fn compared() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let mut command = phone.fathom();
    command.args([
        "bench",
        "compare",
        "host",
        &phone.name(),
        "--quick",
        "--blocks",
        "12",
        "--no-wait",
        "-p",
        "rows=10",
    ]);
    command.args(["-p", "op=insert", "--b-settings", "journal_mode=wal", "--json"]).current_dir(folder.path());
    let value = json(&command.output()?)?;
    let settings = &value["settings"];
    ensure!(settings[0]["a"] == "delete" && settings[0]["b"] == "wal", "{settings}");
    // The framework's, since nobody said otherwise.
    ensure!(settings[1]["b"] == "full", "{settings}");
    let part = &value["apart"][0];
    let number = |value: &Value| value.as_f64().with_context(|| part.to_string());
    ensure!(part["steps"][0]["factor"] == "journal_mode" && part["steps"][1]["factor"].is_null(), "{part}");
    let steps = number(&part["steps"][0]["ratio"])? * number(&part["steps"][1]["ratio"])?;
    // Medians do not multiply exactly; they are of the same size.
    ensure!((number(&part["ratio"])? / steps).ln().abs() < 2.0, "{part}");
    ensure!(folder.path().join("compare/local.fathom").is_dir(), "no archive");
    for words in [&["host", "host"][..], &["host", "b.fathom"], &["a.fathom", "b.fathom", "--quick"]] {
        let output = phone.fathom().args(["bench", "compare"]).args(words).output()?;
        ensure!(output.status.code() == Some(2), "{words:?}: {}", told(&output));
    }
    clean(&phone)
}

/// Starts a service there; the address that it prints.
fn service(phone: &Phone, words: &[&str]) -> Result<String> {
    let mut command = phone.fathom();
    command.args(words).args(["--device", &phone.name(), "--listen", "127.0.0.1:0"]);
    let output = command.output()?;
    ensure!(output.status.success() && told(&output).contains("until `fathom device stop"), "{}", told(&output));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Ends it, and what else is there.
fn stopped(phone: &Phone, kind: &str) -> Result<()> {
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--json"]).output()?)?;
    let left = &value["left"][0];
    ensure!(left["state"] == "running" && left["action"] == "removed" && left["kind"] == "service", "{value}");
    ensure!(left["name"].as_str().is_some_and(|name| name.starts_with(kind)), "{value}");
    clean(phone)?;
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--json"]).output()?)?;
    ensure!(value["left"].as_array().is_some_and(Vec::is_empty), "{value}");
    Ok(())
}

fn node() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let key = folder.path().join("key");
    run(Command::new(fathom()).args(["pool", "keygen"]).arg(&key))?;
    let words = ["pool", "node", "--backend", "memory:4M", "--key", key.to_str().context("a path")?];
    let address = service(&phone, &words)?;
    // The device's network is this machine's.
    let bench = || -> Result<Value> {
        let mut command = Command::new(fathom());
        command.args(["pool", "bench", "--node", &address, "--key"]).arg(&key);
        json(&command.args(["--duration", "1", "--json"]).output()?)
    };
    bench()?;
    phone.cut()?;
    until("a device after its cut", || {
        phone.connect()?;
        Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
    })?;
    bench()?;
    stopped(&phone, "node-")?;
    ensure!(std::net::TcpStream::connect(&address).is_err(), "it still listens");
    // The program goes, too, when that is asked for.
    let output = phone.fathom().args(["device", "stop", &phone.name(), "--remove-program"]).output()?;
    ensure!(output.status.success(), "{}", told(&output));
    ensure!(phone.shell("ls /data/local/tmp")?.trim().is_empty(), "{}", told(&output));
    // One that cannot start says why, and leaves nothing.
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

fn net_server() -> Result<()> {
    let phone = phone()?;
    let address = service(&phone, &["net", "serve"])?;
    let output = Command::new(fathom()).args(["net", "run", &address, "--duration", "1", "--json"]).output()?;
    json(&output)?;
    stopped(&phone, "serve-")
}

fn full() -> Result<()> {
    let phone = Phone::start(DAEMON, &Shape { data: "size=4m", ..Shape::default() })?;
    let output = phone.fathom().args(["device", "info", &phone.name()]).output()?;
    let said = told(&output);
    ensure!(
        output.status.code() == Some(1) && said.contains("No space left") && said.contains("free space on the device"),
        "{said}"
    );
    ensure!(phone.left()?.is_empty(), "half of it was left: {:?}", phone.left()?);
    let phone = Phone::start(DAEMON, &Shape { data: "noexec", ..Shape::default() })?;
    let output = phone.fathom().args(["device", "info", &phone.name()]).output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("noexec"), "{}", told(&output));
    Ok(())
}

fn slow() -> Result<()> {
    // USB 1 has 1 MB/s; the program was copied before at full speed by no one, so that it takes its time here.
    let size = fs::metadata(fathom())?.len();
    let phone = Phone::start(DAEMON, &Shape { rate: Some(size / 4), ..Shape::default() })?;
    let value = json(&phone.fathom().args(["device", "info", &phone.name(), "--json"]).output()?)?;
    ensure!(value["facts"]["os.sdk"]["value"] == "34", "{value}");
    clean(&phone)
}

fn interrupted_copy() -> Result<()> {
    // The copy alone would take a minute.
    let rate = fs::metadata(fathom())?.len() / 60;
    let phone = Phone::start(DAEMON, &Shape { rate: Some(rate), ..Shape::default() })?;
    let mut command = phone.fathom();
    command.args(["device", "info", &phone.name()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    until("a copy under way", || Ok(phone.shell("ls /data/local/tmp/fathom 2>/dev/null; true")?.contains("part-")))?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(130), "{}", told(&output));
    until("a clean device", || Ok(phone.left()?.is_empty()))
}

fn old_shell() -> Result<()> {
    let phone = Phone::start(DAEMON, &Shape { features: "cmd", ..Shape::default() })?;
    let output = phone.fathom().args(["device", "info", &phone.name()]).output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("Android 7"), "{}", told(&output));
    Ok(())
}

fn refused_recording() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("t.fathom");
    let mut command = phone.fathom();
    command.args(["record", "--device", &phone.name(), "-o"]).arg(&archive).args(["--", "sleep", "0.1"]);
    let output = command.output()?;
    ensure!(!output.status.success() && !archive.exists(), "{}", told(&output));
    ensure!(told(&output).contains("root"), "{}", told(&output));
    ensure!(fs::read_dir(folder.path())?.count() == 0, "something was left here");
    clean(&phone)
}

fn recorded() -> Result<()> {
    let phone = Phone::start(DAEMON, &Shape { uid: 0, ..Shape::default() })?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("t.fathom");
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

fn via_perfetto() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("t.fathom");
    let mut command = phone.fathom();
    command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", "0.3", "-o"]).arg(&archive);
    let output = command.output()?;
    // The fake's file is no trace, and is kept for whoever wants to see it.
    let said = told(&output);
    let trace = folder.path().join("t.fathom.pftrace");
    ensure!(output.status.code() == Some(1) && said.contains("was kept as"), "{said}");
    ensure!(fs::read_to_string(&trace)? == "no trace\n", "{said}");
    // One that is: a write that was sent to disk 8:0, twice.
    phone.replay("trace", &write_requests(2))?;
    let mut command = phone.fathom();
    command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", "0.3", "-o"]).arg(&archive);
    let output = command.output()?;
    ensure!(output.status.success() && told(&output).contains("2 events"), "{}", told(&output));
    ensure!(archive.join("meta.json").exists() && fs::read(&trace)? == write_requests(2), "{}", told(&output));
    ensure!(phone.shell("ls /data/misc/perfetto-traces")?.trim().is_empty(), "the trace was left there");
    let output = phone.fathom().args(["record", "--device", "ssh:x", "--via", "perfetto"]).output()?;
    ensure!(output.status.code() == Some(2), "{}", told(&output));
    Ok(())
}

/// A trace of Perfetto's: a packet with a bundle of events of CPU 0 (trace_packet.proto 1, ftrace_event_bundle.proto 1 and 2), which are
/// requests that were issued (ftrace_event.proto 1: time, 2: thread, 119; block.proto: disk, sector, sectors, kind).
fn write_requests(count: u64) -> Vec<u8> {
    fn varint(mut value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    }
    let number = |field: u64, value: u64| [varint(field << 3), varint(value)].concat();
    let bytes =
        |field: u64, value: &[u8]| [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat();
    let request = |at: u64| {
        let issue = [number(1, 8 << 8), number(2, 64 * at), number(3, 8), bytes(4, b"WS")].concat();
        bytes(2, &[number(1, 1000 * at), number(2, 7), bytes(119, &issue)].concat())
    };
    let events: Vec<u8> = (1..=count).flat_map(request).collect();
    bytes(1, &bytes(1, &[number(1, 0), events].concat()))
}

fn forwarded() -> Result<()> {
    let phone = phone()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let server = device::remote::adb::AdbServer::at(format!("127.0.0.1:{}", phone.port));
    let here = server.forward(&phone.serial, listener.local_addr()?.port())?;
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        let mut from = stream.try_clone()?;
        std::io::copy(&mut from, &mut stream).map(drop)
    });
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", here))?;
    std::io::Write::write_all(&mut stream, b"through adb")?;
    let mut back = [0; 11];
    std::io::Read::read_exact(&mut stream, &mut back)?;
    ensure!(&back == b"through adb");
    drop(stream);
    let _ = echo.join();
    server.end_forward(&phone.serial, here)?;
    ensure!(std::net::TcpStream::connect(("127.0.0.1", here)).is_err(), "it still listens");
    Ok(())
}

fn files() -> Result<()> {
    use device::remote::adb::{AdbServer, AdbSync};
    let bytes: Vec<u8> = (0..300_000_u32).map(|i| ((i * 31) >> 3) as u8).collect();
    for features in ["shell_v2,cmd", "shell_v2,cmd,stat_v2,ls_v2,sendrecv_v2"] {
        let phone = Phone::start(DAEMON, &Shape { features, ..Shape::default() })?;
        let mut sync = AdbSync::open(&AdbServer::at(format!("127.0.0.1:{}", phone.port)), &phone.serial)?;
        let path = "/data/local/tmp/file";
        ensure!(sync.stat(path)?.is_none(), "{features}");
        sync.push(&mut &bytes[..], path, 0o640)?;
        let about = sync.stat(path)?.context("it is there")?;
        ensure!((about.size, about.mode & 0o777) == (300_000, 0o640), "{features}: {about:?}");
        let mut back = Vec::new();
        ensure!(sync.pull(path, &mut back, 1 << 20)? == 300_000 && back == bytes, "{features}");
        let limited = sync.pull(path, &mut Vec::new(), 1000).unwrap_err().to_string();
        ensure!(limited.contains("longer than 1000 bytes"), "{limited}");
        let mut sync = AdbSync::open(&AdbServer::at(format!("127.0.0.1:{}", phone.port)), &phone.serial)?;
        let missing = sync.pull("/data/local/tmp/none", &mut Vec::new(), 1000).unwrap_err().to_string();
        ensure!(missing.contains("No such file"), "{missing}");
        let mut sync = AdbSync::open(&AdbServer::at(format!("127.0.0.1:{}", phone.port)), &phone.serial)?;
        let refused = sync.push(&mut &bytes[..], "/system/file", 0o600).unwrap_err().to_string();
        ensure!(refused.contains("ermission denied"), "{refused}");
        // And the other way round: what the real client makes of it.
        run(phone.adb().args(["-s", &phone.serial, "pull", path]).current_dir(tempfile::tempdir()?.path()))?;
    }
    Ok(())
}
