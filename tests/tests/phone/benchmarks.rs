//! Benchmarks on a device, which return archives whatever happens to the link, the host or the device.

use super::{QUICK_BENCHMARK, bench, clean, json, phone, processes, told};
use anyhow::{Context, Result, ensure};
use fathom_tests::phone::Phone;
use fathom_tests::{fathom, run, wait_until};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

pub fn benchmark_on_device_comes_back_as_archive() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let output = bench(&phone, &archive).arg("--json").output()?;
    let value = json(&output)?;
    ensure!(value["results"].as_array().is_some_and(|r| !r.is_empty()), "{value}");
    let facts = fathom_tests::rows(&archive, "facts")?;
    ensure!(facts.iter().any(|f| f["name"] == "device.model" && f["value"] == "Example 7"), "{facts:?}");
    ensure!(processes(&archive)? > 0, "no process");
    ensure!(fs::read_dir(directory.path())?.count() == 1, "something else was left here");
    // It can be compared with one of this machine.
    let here = directory.path().join("here.fathom");
    run(Command::new(fathom())
        .args(QUICK_BENCHMARK)
        .args(["--quick", "--blocks", "2", "--quiet", "-o"])
        .arg(&here)
        .current_dir(directory.path()))?;
    let output = Command::new(fathom()).args(["bench", "compare"]).args([&here, &archive]).output()?;
    ensure!(told(&output).contains("device.model"), "{}", told(&output));
    clean(&phone)
}

pub fn two_devices() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archives = directory.path().join("all");
    // A device selected both by its name and by `all` is run once.
    let mut command = phone.fathom();
    command
        .args(QUICK_BENCHMARK)
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

pub fn bytecode_is_copied_along_and_its_mode_is_checked() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let (archive, jar) = (directory.path().join("b.fathom"), directory.path().join("classes.jar"));
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

/// Starts a long benchmark and waits until one of its processes was measured there.
pub fn under_way(phone: &Phone, archive: &Path, reconnect: &str) -> Result<std::process::Child> {
    let mut command = phone.fathom();
    command
        .args(QUICK_BENCHMARK)
        .args(["--blocks", "500", "--device", &phone.name(), "--reconnect", reconnect, "-o"])
        .arg(archive);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    wait_until("a measured process", || {
        let directory = archive.parent().context("a directory")?;
        let logs = fs::read_dir(directory)?.filter_map(|e| fs::read_to_string(e.ok()?.path().join("runs.jsonl")).ok());
        Ok(logs.into_iter().any(|log| log.matches("\"replicate\"").count() > 3))
    })?;
    Ok(child)
}

pub fn ctrl_c_brings_back_what_was_measured() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let child = under_way(&phone, &archive, "2m")?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(130), "{}", told(&output));
    ensure!(processes(&archive)? > 0, "nothing was kept: {}", told(&output));
    clean(&phone)
}

pub fn cut_link_keeps_what_was_measured() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
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
    // The agent exits, with its command and its directory, at the end of its input.
    clean(&phone)
}

/// Blocks of a run whose link is cut at random points; also the expected replicates of each cell.
const BLOCK_COUNT: usize = 40;

/// Maximum number of cuts while it runs.
const CUTS_MAX: usize = 4;

pub fn run_resumes_after_cuts_without_loss_or_repeat() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let mut command = phone.fathom();
    command
        .args(QUICK_BENCHMARK)
        .args(["--blocks", &BLOCK_COUNT.to_string(), "--device", &phone.name(), "-o"])
        .arg(&archive);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let lines = BufReader::new(child.stderr.take().context("stderr")?).lines();
    wait_until("a run there", || {
        // Its output is printed below.
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
            if back < CUTS_MAX {
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
        ensure!(blocks.len() == BLOCK_COUNT + 1, "{cell}: {} of {BLOCK_COUNT} blocks and a warm-up", blocks.len());
    }
    let ids: std::collections::BTreeSet<String> = rows.iter().map(|row| row["id"].to_string()).collect();
    ensure!(ids.len() == rows.len() && rows.len() % (BLOCK_COUNT + 1) == 0, "a replicate is there twice: {rows:?}");
    phone.connect()?;
    phone.ready()?;
    clean(&phone)
}

pub fn run_of_lost_host_is_fetched_later() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let mut child = under_way(&phone, &archive, "5m")?;
    // Its host is killed, so that nothing is undone.
    child.kill()?;
    child.wait()?;
    let list =
        |words: &[&str]| json(&phone.fathom().args(["device", "stop", &phone.name(), "--json"]).args(words).output()?);
    let value = list(&["--list"])?;
    let left = &value["left"][0];
    let name = left["name"].as_str().context("a name")?.to_owned();
    ensure!(left["kind"] == "run" && left["state"] == "running" && left["action"] == "listed", "{value}");
    // A run that nobody fetched is stopped, and kept.
    let value = list(&[])?;
    ensure!(value["left"][0]["action"] == "kept", "{value}");
    let fetched = directory.path().join("fetched.fathom");
    let mut command = phone.fathom();
    command.args(["device", "fetch", &phone.name(), &name, "-o"]).arg(&fetched);
    let output = command.output()?;
    ensure!(output.status.success(), "{}", told(&output));
    ensure!(processes(&fetched)? > 0, "{}", told(&output));
    let output = phone.fathom().args(["device", "fetch", &phone.name(), &name, "-o"]).arg(&archive).output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("no such detached command"), "{}", told(&output));
    clean(&phone)
}

pub fn reboot_keeps_what_was_measured() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let child = under_way(&phone, &archive, "2m")?;
    phone.reboot()?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("until then is in"), "{}", told(&output));
    ensure!(processes(&archive)? > 0, "nothing was kept");
    wait_until("a device after its restart", || {
        phone.connect()?;
        Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
    })?;
    let value = json(&phone.fathom().args(["device", "check", &phone.name(), "--json"]).output()?)?;
    ensure!(value["version"] == 1, "{value}");
    clean(&phone)
}

pub fn fixed_performance() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let told_device = || phone.shell("cat /data/misc/perfetto-traces/cmd 2>/dev/null; true");
    let [on, off] = ["true", "false"].map(|value| format!("power set-fixed-performance-mode-enabled {value}\n"));
    let output = bench(&phone, &archive).arg("--fixed-performance").output()?;
    ensure!(output.status.success(), "{}", told(&output));
    ensure!(told_device()? == [&*on, &*off].concat(), "{:?}", told_device());
    clean(&phone)?;
    // All of its processes there are killed: nothing resets the mode until the next command.
    let mut command = phone.fathom();
    command
        .args(QUICK_BENCHMARK)
        .args(["--fixed-performance", "--blocks", "500", "--device", &phone.name(), "-o"])
        .arg(&archive);
    command.stderr(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn()?;
    wait_until("the mode", || Ok(told_device()? == [&*on, &*off, &*on].concat()))?;
    child.kill()?;
    child.wait()?;
    let kill = "for p in $(ps -A -o PID,ARGS | sed -n 's/^ *\\([0-9]*\\) fathom-.*/\\1/p'); do kill -9 $p; done 2>/dev/null; true";
    ensure!(!phone.processes()?.is_empty(), "nothing runs");
    wait_until("a dead run", || {
        phone.shell(kill)?;
        Ok(phone.processes()?.is_empty())
    })?;
    ensure!(told_device()? == [&*on, &*off, &*on].concat(), "{:?}", told_device());
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--discard", "--json"]).output()?)?;
    ensure!(value["left"][0]["state"] == "vanished" && value["left"][0]["action"] == "removed", "{value}");
    ensure!(told_device()? == [&*on, &*off, &*on, &*off].concat(), "{:?}", told_device());
    clean(&phone)
}
