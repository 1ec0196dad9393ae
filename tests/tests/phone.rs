//! Devices through the real `adb`, server and client, before a device daemon of ours (`src/bin/adbd`) whose private root has a toybox
//! userland. What is real is the way; the device's kernel is this machine's, and no Android is there.

use anyhow::{Context, Result, ensure};
use fathom_tests::contracts::hold;
use fathom_tests::phone::{Phone, Shape, possible};
use fathom_tests::sshd::Ssh;
use fathom_tests::{Case, fathom, installed, lane, run, until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let adb = possible;
    let bpf = || possible().and_then(|()| fathom_tests::root());
    let ssh = fathom_tests::sshd::possible;
    let cases: Vec<Case> = vec![
        ("device_without_adb_server_is_reported", Ok(()), no_server),
        ("real_adb_authenticates_and_lists_device", adb(), listed),
        ("unauthorized_device_is_reported", adb(), unauthorized),
        ("facts_and_abilities_come_over_real_adb", adb(), facts),
        ("hostile_output_of_device_is_bounded_and_escaped", adb(), hostile),
        ("devices_of_one_model_are_told_apart_or_refused", adb(), same_model),
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
        ("insert_of_host_and_device_is_traced_and_compared", bpf(), compared_traces),
        ("papers_claims_are_judged_of_host_and_device", bpf(), papers),
        ("papers_compare_bytecode_by_modes_that_correspond", adb().and_then(|()| installed("javac")), papers_bytecode),
        ("papers_measure_named_folders_on_both", adb(), papers_folders),
        ("long::papers_measure_networks_with_device", adb(), papers_networks),
        ("papers_cluster_has_nodes_on_devices", adb(), cluster),
        ("node_on_device_survives_cut_until_stop", adb(), node),
        ("net_server_on_device_serves_until_stop", adb(), net_server),
        ("full_data_is_reported_and_unchanged", adb(), full),
        ("slow_link_is_slow_and_works", adb(), slow),
        ("interrupted_copy_leaves_nothing", adb(), interrupted_copy),
        ("cut_copy_leaves_no_program_behind", adb(), cut_copy),
        ("shell_without_exit_status_is_refused", adb(), old_shell),
        ("user_without_capabilities_gets_alternatives", adb(), refused_recording),
        ("recording_on_device_is_linked_here", bpf(), recorded),
        ("recording_resumes_after_cut_and_counts_all", bpf(), recording_cut),
        ("ctrl_c_while_device_is_gone_keeps_recording", bpf(), interrupted_while_gone),
        ("two_devices_record_on_one_clock", bpf(), one_clock),
        ("node_and_net_server_on_ssh_device_serve_until_stop", ssh(), over_ssh),
        ("trace_of_device_perfetto_is_fetched_and_removed", adb(), via_perfetto),
        ("perfetto_that_cannot_record_is_reported", adb(), perfetto_refused),
        ("perfetto_ends_with_killed_host_or_cut_link", adb(), perfetto_left),
        ("device_is_as_found_however_run_ends", adb(), as_found),
        ("forwarded_port_reaches_device", adb(), forwarded),
        ("reversed_port_reaches_host_until_it_ends", adb(), reversed),
        ("adb_pushes_and_pulls_same_bytes", adb(), files),
        ("long::every_figure_of_all_papers_is_made_with_device", bpf(), papers_whole),
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

/// What its tools print is theirs: too much, orders to a terminal, no text at all, nothing ever.
fn hostile() -> Result<()> {
    let phone = phone()?;
    let info = |more: &[&str]| -> Result<Output> {
        Ok(phone.fathom().args(["device", "info", &phone.name()]).args(more).output()?)
    };
    phone.replay(
        "getprop",
        b"[ro.product.model]: [\x1b]0;owned\x07\xff\xfe\x1b[2JModel]\n[ro.product.device]: [<b>\x00\x9b31m]\n[broken\n",
    )?;
    phone.replay("dumpsys battery", &[0xff; 4096])?;
    phone.replay("getenforce", b"\x1b[31mEnforcing\r\n\r\n")?;
    for more in [&["--all"][..], &["--json"], &[]] {
        let output = info(more)?;
        ensure!(output.status.success(), "{}", told(&output));
        let raw = output.stdout.iter().chain(&output.stderr).find(|b| b.is_ascii_control() && **b != b'\n');
        ensure!(
            raw.is_none() && !told(&output).contains('\u{9b}'),
            "{more:?}: an order to the terminal: {}",
            told(&output)
        );
    }
    // A gigabyte, of a file that takes no room.
    let path = phone.replayed("getprop");
    fs::File::create(&path)?.set_len(1 << 30)?;
    let value = json(&info(&["--json"])?)?;
    ensure!(value["facts"]["os.build"]["unknown"].as_str().is_some_and(|why| why.contains("more than")), "{value}");
    clean(&phone)
}

fn same_model() -> Result<()> {
    let open = Shape { open: true, ..Shape::default() };
    let (a, b) = (Phone::start(DAEMON, &Shape::default())?, Phone::start(DAEMON, &open)?);
    b.connect_to(&a)?;
    let value = json(&a.fathom().args(["device", "list", "--json"]).output()?)?;
    let models: Vec<_> = value["devices"].as_array().context("devices")?.iter().map(|d| &d["model"]).collect();
    ensure!(models.iter().filter(|m| **m == "Private_Root").count() == 2, "{value}");
    // One of two is nobody's choice, and a name that is no device's is nobody.
    for (device, why) in [("adb", a.name()), ("adb", b.name()), ("adb:R58M1", b.name())] {
        let output = a.fathom().args(["device", "info", device]).output()?;
        ensure!(output.status.code() == Some(1) && told(&output).contains(&why), "{device}: {}", told(&output));
    }
    run(a.adb().args(["disconnect"]))?;
    let folder = tempfile::tempdir()?;
    for words in [
        &["bench", "run", "sqlite", "--quick", "--device", "all"][..],
        &["record", "--all", "--duration", "1", "--device", "all"],
    ] {
        let output = a.fathom().args(words).arg("-o").arg(folder.path().join("x")).output()?;
        ensure!(
            output.status.code() == Some(1) && told(&output).contains("no usable device"),
            "{words:?}: {}",
            told(&output)
        );
        ensure!(fs::read_dir(folder.path())?.next().is_none(), "{words:?}: something was left here");
    }
    // A port that listens and says nothing is offline, or is not listed; it is not waited for.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let serial = format!("127.0.0.1:{}", silent.local_addr()?.port());
    let mut connecting = a.adb().args(["connect", &serial]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let output = a.fathom().args(["device", "info", &format!("adb:{serial}")]).output()?;
    ensure!(output.status.code() == Some(1), "{}", told(&output));
    ensure!(["offline", "lists no device", "not found"].iter().any(|w| told(&output).contains(w)), "{}", told(&output));
    connecting.kill()?;
    connecting.wait()?;
    Ok(())
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
    ensure!(output.status.code() == Some(1) && told(&output).contains("no such detached command"), "{}", told(&output));
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

/// Counts are arithmetic: SQLite writes alike on both, but for what the journal mode adds.
fn compared_traces() -> Result<()> {
    let phone = Phone::start(DAEMON, &Shape { uid: 0, ..Shape::default() })?;
    let folder = tempfile::tempdir()?;
    let words = ["bench", "compare", "host", &phone.name(), "--quick", "--blocks", "2", "--no-wait", "-p", "rows=10"];
    let mut command = phone.fathom();
    command.args(words).args(["-p", "op=insert", "--b-settings", "journal_mode=persist", "--trace", "--json"]);
    let output = command.current_dir(folder.path()).output()?;
    let value = json(&output)?;
    hold("bench-compare-trace", &value)?;
    let recordings = value["traced"]["recordings"].as_array().context("no recordings")?;
    ensure!(recordings.len() == 2, "{value}");
    let row = |side: usize, what: &str| -> Result<Value> {
        let figures = recordings[side]["figures"].as_array().with_context(|| recordings[side].to_string())?;
        let rows = figures.iter().flat_map(|f| f["rows"].as_array().cloned().unwrap_or_default());
        rows.into_iter().find(|r| r["what"] == what).with_context(|| what.to_string())
    };
    let count = |side, what: &str| -> Result<f64> { row(side, what)?["ours"].as_f64().context("no count") };
    // DELETE: the header, a page and its checksum are written before the commit, and the file is removed; PERSIST clears the header.
    let (a, b) = (count(0, "of these to the journal")?, count(1, "of these to the journal")?);
    ensure!((b - a - 1.0).abs() < 0.1, "the journal: {a} on the host, {b} on the device");
    let (a, b) = (count(0, "of these to the database")?, count(1, "of these to the database")?);
    ensure!((a - b).abs() < 0.1, "the database: {a} and {b}");
    // The stand-in's files are in memory: that is no disk without commands.
    let commands = row(1, "device commands per INSERT")?;
    ensure!(commands["ours"].is_null() && commands["note"].as_str().is_some_and(|n| n.contains("disk")), "{commands}");
    ensure!(count(0, "device commands per INSERT")? > 0.0, "none on the host");
    ensure!(
        value["traced"]["diff"]["statements"].as_array().is_some_and(|s| !s.is_empty()),
        "{}",
        value["traced"]["diff"]
    );
    clean(&phone)
}

fn papers() -> Result<()> {
    let phone = Phone::start(DAEMON, &Shape { uid: 0, ..Shape::default() })?;
    let folder = tempfile::tempdir()?;
    let page = folder.path().join("page.md");
    let run = |figures: &[&str]| -> Result<Output> {
        let mut command = phone.fathom();
        command.args(["papers"]).args(figures).args([
            "--device",
            &phone.name(),
            "--quick",
            "--blocks",
            "2",
            "--no-wait",
        ]);
        command.args(["--called", "stand-in", "-p", "sqlite.rows=10", "--json", "-o"]).arg(&page);
        Ok(command.current_dir(folder.path()).output()?)
    };
    let value = json(&run(&["000/9-10", "000/12", "004"])?)?;
    hold("papers-device", &value)?;
    let claims = value["claims"].as_array().context("claims")?;
    let of = |figure: &str| claims.iter().filter(|c| c["figure"] == figure).collect::<Vec<_>>();
    ensure!(value["version"] == 1 && of("000/9").len() == 1 && of("000/1").is_empty(), "{value}");
    // Two blocks are too few for a verdict, and the stand-in has no disk.
    ensure!(of("000/12")[0]["outcome"] == "cannot_be_tested", "{:?}", of("000/12"));
    // In AOSP's journal mode and in SQLite's own, an INSERT is as many writes, on this machine or that.
    let writes = of("004/2-4");
    ensure!(writes.len() == 4 && writes[0]["outcome"] == "not_confirmed", "{writes:?}");
    let text = fs::read_to_string(&page)?;
    for expected in
        ["| 000/9 | INSERTs are slower on Android |", "stand-in", "DEVICE=adb:127.0.0.1", "### 004 figure 2-4"]
    {
        ensure!(text.contains(expected), "{expected}: {text}");
    }
    ensure!(!text.contains("phone") || !text.contains("- **phone**"), "it is no phone: {text}");
    // What is not there is told before anything is measured.
    let output =
        Command::new(fathom()).args(["papers", "--device", "adb:nosuch"]).current_dir(folder.path()).output()?;
    ensure!(output.status.code() == Some(1) && !folder.path().join("papers-adb-nosuch").exists(), "{}", told(&output));
    clean(&phone)
}

/// `fathom papers` of these figures, with the page that it wrote.
fn papers_of(phone: &Phone, folder: &Path, words: &[&str]) -> Result<(Value, String)> {
    let page = folder.join("page.md");
    let mut command = phone.fathom();
    command.arg("papers").args(words).args([
        "--device",
        &phone.name(),
        "--quick",
        "--blocks",
        "2",
        "--no-wait",
        "--json",
        "-o",
    ]);
    let value = json(&command.arg(&page).current_dir(folder).output()?)?;
    Ok((value, fs::read_to_string(&page)?))
}

/// The stand-in's runtime is a fake: what is tested is which cells meet, not what they scored.
fn papers_bytecode() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let jar = folder.path().join("classes.jar");
    fs::write(&jar, "dexed classes")?;
    let jar = jar.to_str().context("a path")?;
    let words = ["000/1", "000/2", "-p", "linpack.size=100", "-p", "himeno.size=XS", "--dex-jar", jar];
    let (value, page) = papers_of(&phone, folder.path(), &words)?;
    let results = ["local", &format!("adb-{}", phone.serial.replace(':', "-"))].map(|name| {
        let archive =
            folder.path().join(format!("papers-adb-{}", phone.serial.replace(':', "-"))).join(format!("{name}.fathom"));
        fathom_tests::rows(&archive, "cells").unwrap_or_default()
    });
    ensure!(results.iter().all(|cells| !cells.is_empty()), "{value}\n{page}");
    let claims = value["claims"].as_array().context("claims")?;
    let of_java =
        claims.iter().filter(|c| c["claim"].as_str().is_some_and(|t| t.contains("Java") || t.contains("bytecode")));
    let reasons: Vec<&str> = of_java.filter_map(|c| c["because"].as_str()).collect();
    // Two blocks are too few for a verdict; but the cells met.
    ensure!(
        !reasons.is_empty() && reasons.iter().any(|why| !why.contains("not measured") && !why.contains("--dex-jar")),
        "{claims:?}"
    );
    ensure!(page.contains("jvm-tiered") && page.contains("art-jit"), "{page}");
    clean(&phone)
}

fn papers_folders() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let dirs = ["--dir", "internal=/data/local/tmp", "--dir", "external=/data/local/tmp", "-p", "seq.count=8"];
    let here = format!("external={}", folder.path().display());
    let words = [&["000/6"][..], &dirs, &["--dir-here", &here]].concat();
    let (value, page) = papers_of(&phone, folder.path(), &words)?;
    let expected =
        format!("- folder external: {} on the host, /data/local/tmp on the device", analysis_escaped(folder.path()));
    ensure!(page.contains(&expected), "{expected}: {page}");
    let claims = value["claims"].as_array().context("claims")?;
    let external: Vec<_> =
        claims.iter().filter(|c| c["claim"].as_str().is_some_and(|t| t.contains("external"))).collect();
    ensure!(!external.is_empty(), "{value}");
    for claim in external {
        let why = claim["because"].as_str().unwrap_or_default();
        ensure!(!why.contains("no folder of external storage"), "{claim}");
    }
    for (words, why) in [
        (&["--dir", "internal=data"][..], "absolute path"),
        (&["--dir", "a=/data", "--dir-here", "b=/tmp"], "no --dir of the device has that name"),
    ] {
        let output = phone
            .fathom()
            .args(["papers", "000/5", "--device", &phone.name()])
            .args(words)
            .current_dir(folder.path())
            .output()?;
        ensure!(output.status.code() == Some(2) && told(&output).contains(why), "{}", told(&output));
    }
    clean(&phone)
}

/// The stand-in's network is this machine's loopback: what is tested is that the figures and the claims are made of the device's cells.
fn papers_networks() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let mut words = vec!["001/7-12", "002/ch4", "--interface", "lo", "--interface-here", "lo"];
    let parameters = [
        "cluster.by=cluster",
        "cluster.io=flash",
        "cluster.nodes=1",
        "cluster.threads=4",
        "cluster.batch=1",
        "cluster.seconds=1",
        "cluster-devices.io=flash",
        "cluster-devices.threads=1,32",
        "cluster-devices.batch=1",
        "cluster-devices.seconds=1",
        "net-wlan.link=wifi_g",
        "net-wlan.traffic=tcp",
        "net-wlan.direction=down",
        "net-wlan.seconds=1",
        "net-devices.traffic=tcp",
        "net-devices.seconds=1",
    ];
    words.extend(parameters.iter().flat_map(|parameter| ["-p", parameter]));
    let (value, page) = papers_of(&phone, folder.path(), &words)?;
    let claims = value["claims"].as_array().context("claims")?;
    let why = |figure: &str| -> Vec<&str> {
        let of_figure = claims.iter().filter(|c| c["figure"] == figure);
        of_figure.filter_map(|c| c["because"].as_str()).collect()
    };
    // Two processes have no interval: the cells are there.
    ensure!(why("001/7")[0].contains("too few processes") && why("002/ch4")[0].contains("too few"), "{claims:?}");
    ensure!(why("001/8")[0].contains("no cell of cluster-devices with"), "{claims:?}");
    let name = phone.name();
    for part in [
        "### 001 figure 7: ",
        "figure 7: the cluster without aggregation, by nodes and threads; on devices",
        "; between devices",
    ] {
        ensure!(page.contains(part), "{part}: {page}");
    }
    ensure!(page.contains(&format!("at={name}")) && page.contains(&format!("from={name}")), "{page}");
    clean(&phone)
}

/// All five papers in one go, with values as small as they can be: each figure that is measured stands on the page.
fn papers_whole() -> Result<()> {
    let phone = Phone::start(DAEMON, &Shape { uid: 0, ..Shape::default() })?;
    let folder = tempfile::tempdir()?;
    let external = folder.path().join("external");
    fs::create_dir(&external)?;
    let here = format!("external={}", external.display());
    let mut words = vec!["--interface", "lo", "--interface-here", "lo", "--called", "stand-in", "--dir-here", &here];
    words.extend(["--dir", "internal=/data/local/tmp", "--dir", "external=/data/local/tmp"]);
    let parameters = [
        "linpack.size=100",
        "himeno.size=XS",
        "scimark.size=tiny",
        "sqlite.rows=10",
        "seq.count=8",
        "cluster.by=cluster",
        "cluster.nodes=1",
        "cluster.threads=4,32",
        "cluster.batch=1,10,100",
        "cluster.seconds=1",
        "cluster-devices.threads=4,32",
        "cluster-devices.seconds=1",
        "net-wlan.link=wifi_g",
        "net-wlan.seconds=1",
        "net-delay.cc=cubic,reno",
        "net-delay.seconds=1",
        "net-loss.seconds=1",
        "net-devices.seconds=1",
    ];
    words.extend(parameters.iter().flat_map(|parameter| ["-p", parameter]));
    let (value, page) = papers_of(&phone, folder.path(), &words)?;
    if let Some(keep) = std::env::var_os("FATHOM_KEEP_ARCHIVE") {
        fs::write(Path::new(&keep).join("papers.md"), &page)?;
    }
    let figures = [
        ("000", "1 2 3 4 5 6 7 8 9 10 11 12 13-15"),
        ("001", "1,3 2,4 7 8 9 10"),
        ("002", "5 6 ch4 loss"),
        ("004", "1 2-4 5"),
    ];
    for (paper, numbers) in figures {
        for number in numbers.split(' ').map(|n| n.replace(',', ", ")) {
            ensure!(page.contains(&format!("### {paper} figure {number}: ")), "{paper}/{number}: {page}");
        }
    }
    for part in ["; on devices", "; between devices"] {
        ensure!(page.contains(part), "{part}: {page}");
    }
    let claims = value["claims"].as_array().context("claims")?;
    ensure!(
        claims.iter().all(|c| c["because"].as_str().is_some_and(|why| !why.contains("nothing that was requested")))
    );
    clean(&phone)
}

fn cluster() -> Result<()> {
    let phone = phone()?;
    let bench = |at: &str, more: &[&str]| -> Result<Output> {
        let mut command = phone.fathom();
        command.args(["pool", "bench", "--paper", "--at", at, "--size", "1M", "--duration", "1", "--interface"]);
        Ok(command.args(more).output()?)
    };
    // Every answer is checked against the part of the space that the node was given.
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
    until("a node on the device", || Ok(phone.processes()?.iter().any(|p| p.contains("--paper"))))?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(130), "{}", told(&output));
    clean(&phone)
}

/// As a page has it.
fn analysis_escaped(path: &Path) -> String {
    path.display().to_string().replace('_', "\\_")
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
    // The paper's own node, as its figures 7 to 12 need it.
    let address =
        service(&phone, &["pool", "node", "--paper", "--backend", "memory:16M", "--first", "0", "--insecure"])?;
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

fn cut_copy() -> Result<()> {
    let rate = fs::metadata(fathom())?.len() / 60;
    let phone = Phone::start(DAEMON, &Shape { rate: Some(rate), ..Shape::default() })?;
    let mut command = phone.fathom();
    command.args(["device", "info", &phone.name()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    until("a copy under way", || Ok(phone.shell("ls /data/local/tmp/fathom 2>/dev/null; true")?.contains("part-")))?;
    phone.cut()?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("fathom device list"), "{}", told(&output));
    until("a device after its cut", || {
        phone.connect()?;
        Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
    })?;
    // What is there of it is no program, and nothing runs it.
    let all = phone.shell("ls /data/local/tmp/fathom")?;
    ensure!(!all.contains("fathom-"), "half a program: {all}");
    Ok(())
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

/// A command that makes one line after the other; the lines that are printed here.
const LINES: &str =
    "i=0; while [ $i -lt 60 ]; do echo line $i; echo $i >>/data/local/tmp/lines; sleep 0.1; i=$((i+1)); done";

/// Starts a recording of them, and waits until the first line is here.
fn recording(phone: &Phone, archive: &Path, more: &[&str]) -> Result<(std::process::Child, Lines)> {
    let mut command = phone.fathom();
    command.args(["record", "--all", "--device", &phone.name()]).args(more).arg("-o").arg(archive);
    command.args(["--", "sh", "-c", LINES]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
    ensure!(lines.next().transpose()?.as_deref() == Some("line 0"), "another first line");
    Ok((child, lines))
}

type Lines = std::io::Lines<BufReader<std::process::ChildStdout>>;

/// What ran goes on; what it printed meanwhile is told once, and what it wrote is in the recording.
fn recording_cut() -> Result<()> {
    let phone = Phone::start(DAEMON, &Shape { uid: 0, ..Shape::default() })?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("t.fathom");
    let (child, lines) = recording(&phone, &archive, &[])?;
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
    // Sixty calls, from before the cut, during it and after.
    ensure!(file["writes"] == 60, "{file}");
    phone.shell("rm /data/local/tmp/lines")?;
    clean(&phone)
}

fn interrupted_while_gone() -> Result<()> {
    let phone = Phone::start(DAEMON, &Shape { uid: 0, ..Shape::default() })?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("t.fathom");
    let (mut child, _lines) = recording(&phone, &archive, &[])?;
    // Something of it must be here before the device goes.
    until("a piece of the log", || {
        let all = fs::read_dir(folder.path())?.filter_map(|e| fs::metadata(e.ok()?.path().join("events.log")).ok());
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
    // It is back, and what went on there can be had whole.
    phone.reappear()?;
    until("a device again", || {
        phone.connect()?;
        Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
    })?;
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--list", "--json"]).output()?)?;
    let name = value["left"][0]["name"].as_str().with_context(|| value.to_string())?.to_owned();
    let whole = folder.path().join("whole.fathom");
    let output = phone.fathom().args(["device", "fetch", &phone.name(), &name, "-o"]).arg(&whole).output()?;
    ensure!(output.status.success(), "{}", told(&output));
    ensure!(fathom_tests::show(&whole)?["trace"]["complete"] == true, "{}", told(&output));
    phone.shell("rm /data/local/tmp/lines")?;
    clean(&phone)
}

/// Both are this machine's, so that the offset of their clocks is known: none. What is said of it must hold that.
fn one_clock() -> Result<()> {
    let root = Shape { uid: 0, ..Shape::default() };
    let (a, b) = (Phone::start(DAEMON, &root)?, Phone::start(DAEMON, &Shape { open: true, ..root })?);
    // Two of the same model, at one adb server.
    b.connect_to(&a)?;
    let folder = tempfile::tempdir()?;
    let all = folder.path().join("all");
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

fn over_ssh() -> Result<()> {
    let ssh = Ssh::start()?;
    let folder = tempfile::tempdir()?;
    let key = folder.path().join("key");
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
    json(&Command::new(fathom()).args(["net", "run", &server, "--duration", "1", "--json"]).output()?)?;
    let value = json(&there(&["device", "stop", &device, "--json"])?)?;
    let left = value["left"].as_array().context("left")?;
    ensure!(left.len() == 2 && left.iter().all(|l| l["kind"] == "service" && l["action"] == "removed"), "{value}");
    for address in [&node, &server] {
        ensure!(std::net::TcpStream::connect(address).is_err(), "{address} still listens");
    }
    let value = json(&there(&["device", "stop", &device, "--remove-program", "--json"])?)?;
    ensure!(value["program_removed"] == true && value["left"].as_array().is_some_and(Vec::is_empty), "{value}");
    Ok(())
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

/// The fake fails as Android's does: by its words, and its exit status.
fn perfetto_refused() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("t.fathom");
    let record = |duration: &str| -> Result<Output> {
        let mut command = phone.fathom();
        command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", duration, "-o"]);
        Ok(command.arg(&archive).output()?)
    };
    let refused = |why: &str| -> Result<()> {
        let output = record("0.3")?;
        ensure!(output.status.code() == Some(1) && told(&output).contains(why), "{why}: {}", told(&output));
        ensure!(fs::read_dir(folder.path())?.next().is_none(), "{why}: something was left here");
        ensure!(phone.shell("ls /data/misc/perfetto-traces")?.trim().is_empty(), "{why}: something was left there");
        Ok(())
    };
    phone.replay("getprop init.svc.traced", b"stopped\n")?;
    refused("persist.traced.enable 1")?;
    phone.replay("getprop init.svc.traced", b"running\n")?;
    phone.replay("perfetto fails", b"Failed to open /data/misc/perfetto-traces/x (errno: 13, Permission denied)\n")?;
    refused("Permission denied")?;
    // More than a pipe holds on both outputs, and escape codes.
    let flood = [b"\x1b[2J".as_slice(), &[b'x'; 300_000], b"\nno room: No space left on device\n"].concat();
    phone.replay("perfetto fails", &flood)?;
    let output = record("0.3")?;
    ensure!(output.status.code() == Some(1) && !output.stderr.contains(&0x1b), "{}", told(&output));
    fs::remove_file(phone.replayed("perfetto fails"))?;
    // A trace that ends in the midst of a packet: what is whole in it is taken.
    let trace = write_requests(2);
    phone.replay("trace", &[write_requests(3), trace[..trace.len() - 3].to_vec()].concat())?;
    let output = record("0.3")?;
    ensure!(told(&output).contains("3 events") && told(&output).contains("blind: "), "{}", told(&output));
    // No room here: what was recorded stays on the device, and it is said how to get it.
    let full = folder.path().join("full");
    let _small = fathom_tests::tmpfs::Tmpfs::new(full.clone(), "4k")?;
    phone.replay("trace", &[0; 64 << 10])?;
    let mut command = phone.fathom();
    command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", "0.3", "-o"]);
    let output = command.arg(full.join("t.fathom")).output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("No space left"), "{}", told(&output));
    let there = phone.shell("ls /data/misc/perfetto-traces")?;
    ensure!(told(&output).contains("adb -s") && told(&output).contains(there.trim()), "{there}: {}", told(&output));
    ensure!(fs::read_dir(&full)?.next().is_none(), "half of it was left here");
    // One that has none.
    phone.shell("rm /data/misc/perfetto-traces/*")?;
    fs::remove_file(phone.replayed("../system/bin/perfetto"))?;
    let output = record("0.3")?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("Android 9"), "{}", told(&output));
    Ok(())
}

/// Its trace goes, too: nobody would fetch it. With Ctrl-C it is fetched before.
fn perfetto_left() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("t.fathom");
    phone.replay("trace", &write_requests(2))?;
    let runs = || Ok(phone.shell("ps -A -o ARGS")?.contains("/system/bin/perfetto"));
    let start = || -> Result<std::process::Child> {
        let mut command = phone.fathom();
        command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", "50", "-o"]);
        let child = command.arg(&archive).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        until("a recording", runs)?;
        Ok(child)
    };
    let nothing = || {
        until("an end of perfetto", || Ok(!runs()?))?;
        until("a folder without a trace", || Ok(phone.shell("ls /data/misc/perfetto-traces")?.trim().is_empty()))
    };
    let mut child = start()?;
    child.kill()?;
    child.wait()?;
    nothing()?;
    let child = start()?;
    phone.cut()?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(1) && !archive.exists(), "{}", told(&output));
    until("a device after its cut", || {
        phone.connect()?;
        Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
    })?;
    nothing()?;
    let child = start()?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let output = child.wait_with_output()?;
    ensure!(archive.join("meta.json").exists() && told(&output).contains("2 events"), "{}", told(&output));
    nothing()
}

/// Every file with its size and permissions, and every process; without the program's own folder. The fake `cmd`, by which settings would
/// be changed, notes what it is told in a file.
fn snapshot(phone: &Phone) -> Result<String> {
    let files = "find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /data/local/tmp/fathom \\) -prune -o \
                 -exec stat -c '%n %A %s %u' {} + | sort";
    // What asks is not what is asked for; what ended stays in brackets here, since the stand-in's first process waits for nobody.
    let processes = phone.shell("ps -A -o ARGS")?;
    let mut processes: Vec<&str> = processes.lines().filter(|l| !l.contains("ps -A") && !l.starts_with('[')).collect();
    processes.sort_unstable();
    Ok(phone.shell(files)? + &processes.join("\n"))
}

fn as_found() -> Result<()> {
    let phone = phone()?;
    let folder = tempfile::tempdir()?;
    phone.replay("trace", &write_requests(2))?;
    // The program stays there.
    json(&phone.fathom().args(["device", "info", &phone.name(), "--json"]).output()?)?;
    let before = snapshot(&phone)?;
    ensure!(before.contains("/data/local/tmp ") && before.contains("/system/bin/sh"), "it sees nothing: {before}");
    let name = phone.name();
    let archive = folder.path().join("x.fathom");
    let path = archive.to_str().context("a path")?;
    let long = [
        "bench",
        "run",
        "sqlite",
        "--no-wait",
        "-p",
        "rows=10",
        "-p",
        "op=insert",
        "--blocks",
        "500",
        "--reconnect",
        "0",
    ];
    let node = ["pool", "bench", "--paper", "--interface", "lo", "--size", "1M", "--duration", "60", "--at", &name];
    let net = [
        "net",
        "run",
        "--from",
        &name,
        "--to",
        "local",
        "--interface",
        "lo",
        "--to-interface",
        "lo",
        "--duration",
        "60",
    ];
    let bench = [&long[..], &["--device", &name, "-o", path]].concat();
    for words in [&bench[..], &node, &net] {
        for signal in ["-INT", "-KILL", "-HUP"] {
            let mut command = phone.fathom();
            command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn()?;
            until("a process there", || Ok(!phone.processes()?.is_empty()))?;
            run(Command::new("kill").args([signal, &child.id().to_string()]))?;
            child.wait()?;
            clean(&phone).with_context(|| format!("{signal} {words:?}"))?;
            let after = snapshot(&phone)?;
            ensure!(after == before, "{signal} {words:?}: {}", differing(&before, &after));
        }
    }
    Ok(())
}

/// Lines that only one of the two has.
fn differing(a: &str, b: &str) -> String {
    let only = |own: &str, other: &str, sign: &str| -> Vec<String> {
        own.lines().filter(|line| !other.lines().any(|l| l == *line)).map(|line| format!("{sign}{line}")).collect()
    };
    [only(a, b, "-"), only(b, a, "+")].concat().join("\n")
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

/// A port of the device that leads here: ours and the real client's `adb reverse`.
fn reversed() -> Result<()> {
    let phone = phone()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let here = listener.local_addr()?.port();
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        for stream in listener.incoming().take(2) {
            let mut stream = stream?;
            let mut from = stream.try_clone()?;
            std::io::copy(&mut from, &mut stream)?;
        }
        Ok(())
    });
    // A port that is free there, which is here: the stand-in has this host's network.
    let free = || -> Result<u16> { Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()) };
    let through = |there: u16| -> Result<()> {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", there))?;
        let bytes: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
        let mut into = stream.try_clone()?;
        let sent = bytes.clone();
        let sender = std::thread::spawn(move || std::io::Write::write_all(&mut into, &sent));
        // adb closes a stream as a whole: nobody says that half of it ends.
        let mut back = vec![0; bytes.len()];
        std::io::Read::read_exact(&mut stream, &mut back)?;
        let _ = sender.join();
        ensure!(back == bytes, "other bytes came back");
        Ok(())
    };
    let server = device::remote::adb::AdbServer::at(format!("127.0.0.1:{}", phone.port));
    let there = free()?;
    server.reverse(&phone.serial, there, here)?;
    let list = run(phone.adb().args(["-s", &phone.serial, "reverse", "--list"]))?;
    ensure!(String::from_utf8_lossy(&list.stdout).contains(&format!("tcp:{there} tcp:{here}")), "{list:?}");
    through(there)?;
    server.end_reverse(&phone.serial, there)?;
    ensure!(std::net::TcpStream::connect(("127.0.0.1", there)).is_err(), "it still listens");
    let twice = server.end_reverse(&phone.serial, there);
    ensure!(twice.as_ref().is_err_and(|e| e.to_string().contains("not found")), "{twice:?}");
    // The real client, and a cut link, which ends it.
    let there = free()?;
    run(phone.adb().args(["-s", &phone.serial, "reverse", &format!("tcp:{there}"), &format!("tcp:{here}")]))?;
    through(there)?;
    phone.cut()?;
    until("a port that is closed", || Ok(std::net::TcpStream::connect(("127.0.0.1", there)).is_err()))?;
    let _ = echo.join();
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
