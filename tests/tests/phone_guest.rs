//! A device with a kernel, a disk and a network of its own, and the real `adb`: a virtual machine with Debian's kernel, /data as f2fs on
//! an SD card, /sdcard behind FUSE, and the daemon of `src/bin/adbd`. Its times are of an emulated processor: nothing here is about speed.

use anyhow::{Context, Result, ensure};
use device::remote::adb::AdbServer;
use fathom_tests::phone::{Phone, Shape, machine};
use fathom_tests::{Case, fathom, rows, run, run_suite, wait_until_within};
use lab::arch::Arch;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::Duration;

#[path = "phone_guest/papers.rs"]
mod papers;
#[path = "phone_guest/perfetto.rs"]
mod perfetto;

fn main() -> ExitCode {
    let needs = machine::possible;
    let arm = || machine::possible_on(Arch::Aarch64);
    let cases: Vec<Case> = vec![
        ("long::facts_and_files_of_guest_come_over_real_adb", needs(), || facts(Arch::default())),
        ("long::facts_and_files_of_arm64_guest_come_over_real_adb", arm(), || facts(Arch::Aarch64)),
        ("long::storage_of_guest_is_measured_by_directory", needs(), storage_of_guest_is_measured_by_directory),
        ("long::insert_in_guest_is_followed_to_card", needs(), || recorded(Arch::default())),
        ("long::insert_in_arm64_guest_is_followed_to_card", arm(), || recorded(Arch::Aarch64)),
        ("long::run_in_guest_survives_pulled_cable", needs(), || cable(Arch::default())),
        ("long::run_in_arm64_guest_survives_pulled_cable", arm(), || cable(Arch::Aarch64)),
        ("long::reboot_of_guest_keeps_what_was_measured", needs(), reboot_of_guest_keeps_what_was_measured),
        ("long::full_card_of_guest_is_reported", needs(), full_card_of_guest_is_reported),
        ("long::slow_link_to_guest_works", needs(), slow_link_to_guest_works),
        ("long::services_in_guest_are_reached_by_forwarding", needs(), || services(Arch::default())),
        ("long::services_in_arm64_guest_are_reached_by_forwarding", arm(), || services(Arch::Aarch64)),
        ("long::node_in_guest_keeps_its_data_while_it_is_unplugged", needs(), unplugged_node),
        ("long::clocks_of_guest_and_host_are_aligned", needs(), clocks_of_guest_and_host_are_aligned),
        ("long::guest_whose_clock_says_1970_is_measured_and_joined", needs(), year_1970),
        ("long::perfetto_of_guest_records_its_card", needs(), perfetto::perfetto_of_guest_records_its_card),
        (
            "long::perfetto_of_guests_is_joined_on_one_clock",
            needs(),
            perfetto::perfetto_of_guests_is_joined_on_one_clock,
        ),
        ("long::host_and_guest_are_compared_and_traced", needs(), host_and_guest_are_compared_and_traced),
        ("long::papers_claims_are_judged_of_guest", needs(), papers::papers_claims_are_judged_of_guest),
        ("long::papers_statements_are_measured_in_guest", needs(), papers::paper_000_sqlite),
        ("long::papers_pool_is_measured_with_guest", needs(), papers::paper_001),
        ("long::papers_networks_are_measured_with_guest", needs(), papers::paper_002),
        ("long::papers_causes_are_recorded_in_guest", needs(), papers::paper_004),
    ];
    run_suite(cases)
}

const DAEMON_PATH: &str = env!("CARGO_BIN_EXE_adbd");

/// Output of real models: properties of one, temperatures of another, since no public source has both of one model.
const REPLAYED_MODELS: &[&str] = &["models/pixel-8", "models/shield-tv-pro-2019", "phone"];

fn start_phone(uid: u32) -> Result<Phone> {
    phone_of(Arch::default(), uid)
}

fn phone_of(arch: Arch, uid: u32) -> Result<Phone> {
    Phone::boot(DAEMON_PATH, &Shape { uid, arch, models: REPLAYED_MODELS, ..Shape::default() })
}

fn stderr_of(output: &Output) -> String {
    format!("{}\n{}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn json(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "{}", stderr_of(output));
    serde_json::from_slice(&output.stdout).with_context(|| stderr_of(output))
}

/// Waits until `so` returns true: an emulated machine on a busy host takes its time.
fn wait_until(what: &str, so: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_until_within(Duration::from_secs(900), what, so)
}

/// Checks that only the program itself is left there.
fn assert_clean(phone: &Phone) -> Result<()> {
    wait_until("a clean device", || Ok(phone.left()?.is_empty() && phone.processes()?.is_empty()))
        .with_context(|| format!("left: {:?}, running: {:?}", phone.left(), phone.processes()))
}

fn facts(arch: Arch) -> Result<()> {
    let phone = phone_of(arch, 2000)?;
    let value = json(&phone.fathom().args(["device", "info", &phone.name(), "--json"]).output()?)?;
    let fact = |name: &str| value["facts"][name]["value"].as_str().unwrap_or_default().to_owned();
    // From replayed properties, the kernel and the card.
    ensure!(
        fact("device.model") == "Pixel 8" && fact("os.sdk") == "34" && fact("thermal.status") == "none",
        "{value:#}"
    );
    ensure!(
        fact("kernel.release").ends_with(&format!("-{}", arch.debian())) && fact("virtual.accelerator") == "tcg",
        "{value:#}"
    );
    ensure!(
        fact("mount./data").starts_with("f2fs on ") && fact("mount./storage/emulated/0").starts_with("fuse on "),
        "{value:#}"
    );
    ensure!(fact("access.uid") == "2000" && fact("access.capabilities") == "none", "{value:#}");
    // Two cards are two directories, each with its own disk.
    for (directory, text) in [
        ("internal", "/data/local/tmp: internal, f2fs on mmcblk0 (SD card)"),
        ("3234-3432", "/storage/3234-3432: removable, vfat on mmcblk1 (SD card), behind fuse"),
        ("A1B2-C3D4", "/storage/A1B2-C3D4: removable, vfat on mmcblk2 (SD card), behind fuse"),
    ] {
        ensure!(fact(&format!("folder.{directory}")) == text, "{directory}: {value:#}");
    }
    // Arbitrary bytes: to the card and back, and through FUSE.
    let directory = tempfile::tempdir()?;
    let (sent, back) = (directory.path().join("sent"), directory.path().join("back"));
    fs::write(&sent, (0..3_000_000_u32).map(|i| ((i * 31) >> 3) as u8).collect::<Vec<_>>())?;
    for place in ["/data/local/tmp/file", "/sdcard/file"] {
        for [from, to, verb] in
            [[&sent, Path::new(place), Path::new("push")], [Path::new(place), &back, Path::new("pull")]]
        {
            run(phone.adb().args(["-s", &phone.serial]).arg(verb).args([from, to]))?;
        }
        ensure!(fs::read(&sent)? == fs::read(&back)?, "{place}");
        phone.shell(&format!("rm {place}"))?;
    }
    let status = phone.adb().args(["-s", &phone.serial, "shell", "echo out; echo err >&2; exit 7"]).output()?;
    ensure!(status.status.code() == Some(7) && status.stdout == b"out\n" && status.stderr == b"err\n", "{status:?}");
    // Only root can record; the clock is wrong by decades, which must not affect any measurement.
    let archive = directory.path().join("t.fathom");
    let mut command = phone.fathom();
    command.args(["record", "--device", &phone.name(), "-o"]).arg(&archive).args(["--", "sleep", "0.1"]);
    let output = command.output()?;
    ensure!(
        !output.status.success() && stderr_of(&output).contains("root") && !archive.exists(),
        "{}",
        stderr_of(&output)
    );
    phone.machine()?.run("date -s 1999-01-01")?;
    let output = bench_command(&phone, &archive, &["--blocks", "2"]).output()?;
    ensure!(output.status.success() && process_count(&archive)? > 0, "{}", stderr_of(&output));
    assert_clean(&phone)
}

/// A benchmark of some seconds.
fn bench_command(phone: &Phone, archive: &Path, more: &[&str]) -> Command {
    let mut command = phone.fathom();
    command.args(["bench", "run", "sqlite", "--no-wait", "--quick", "-p", "rows=10", "-p", "op=insert"]);
    command.args(["-p", "journal_mode=delete", "-p", "synchronous=full"]);
    command.args(["--device", &phone.name()]).args(more).arg("-o").arg(archive);
    command
}

fn process_count(archive: &Path) -> Result<usize> {
    Ok(rows(archive, "replicates")?.iter().filter(|r| r["exit"] == "0").count())
}

/// Internal storage is f2fs on the card; the shared storage is the same card behind FUSE; two more cards have FAT, each behind
/// FUSE.
fn storage_of_guest_is_measured_by_directory() -> Result<()> {
    let phone = start_phone(2000)?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let mut dirs = vec!["--blocks", "2", "--json"];
    let named = ["internal=/data/local/tmp", "shared=/sdcard", "card1=/storage/3234-3432", "card2=/storage/A1B2-C3D4"];
    dirs.extend(named.iter().flat_map(|dir| ["--dir", dir]));
    let value = json(&bench_command(&phone, &archive, &dirs).output()?)?;
    let results = value["results"].as_array().context("results")?;
    for (dir, kind) in [("internal", "f2fs"), ("shared", "fuse"), ("card1", "fuse"), ("card2", "fuse")] {
        let result = results.iter().find(|r| r["parameters"]["dir"].as_str().is_some_and(|d| d.starts_with(dir)));
        let result = result.with_context(|| format!("{dir}: {value:#}"))?;
        ensure!(result["marks"]["fs.type"].as_str().is_some_and(|t| t.starts_with(kind)), "{result:#}");
    }
    assert_clean(&phone)
}

/// Records INSERTs in a directory on the device.
fn record_inserts(phone: &Phone, dir: &str, archive: &Path) -> Result<Value> {
    let mut command = phone.fathom();
    command
        .args(["record", "--device", &phone.name(), "-o"])
        .arg(archive)
        .args(["--", "{fathom}", "workload", "sqlite"]);
    let output = command.args(["--op", "insert", "--rows", "25", "--dir", dir]).output()?;
    ensure!(output.status.success(), "{}", stderr_of(&output));
    fathom_tests::show(archive)
}

fn recorded(arch: Arch) -> Result<()> {
    let phone = phone_of(arch, 0)?;
    let directory = tempfile::tempdir()?;
    let kept = std::env::var_os("FATHOM_KEEP_ARCHIVE").map_or_else(|| directory.path().to_path_buf(), PathBuf::from);
    let on_card = record_inserts(&phone, "/data/local/tmp", &kept.join("card.fathom"))?;
    let insert = fathom_tests::shape_of(&on_card, "INSERT")?;
    let per = |what: &str| fathom_tests::number(insert, &format!("/per_operation/{what}"));
    ensure!(insert["count"] == 25 && per("fsyncs")? == 4.0 && per("requests")? >= 4.0, "{insert:#}");
    // The commands of the card's driver, named as in the card's specification.
    let commands = on_card["driver_commands"].as_array().context("driver_commands")?;
    let written = commands.iter().find(|c| c["name"].as_str().is_some_and(|n| n.starts_with("CMD25")));
    let written = written.with_context(|| format!("{commands:?}"))?;
    ensure!(written["disk"] == "mmcblk0" && written["count"].as_f64() >= Some(25.0 * per("requests")?), "{written}");
    let shared = record_inserts(&phone, "/sdcard", &kept.join("shared.fathom"))?;
    ensure!(fathom_tests::shape_of(&shared, "INSERT")?["count"] == 25);
    // The server of /sdcard writes to the card, not the program: this is reported, not shown as no writes.
    let fact = |name: &str| &shared["environment"][name];
    ensure!(fact("fs.type")["value"] == "fuse", "{}", shared["environment"]);
    ensure!(fact("disk.name")["unknown"].as_str().is_some_and(|why| why.contains("FUSE")), "{}", fact("disk.name"));
    assert_clean(&phone)
}

/// Blocks of a run that is disturbed.
const BLOCK_COUNT: usize = 8;

/// Starts a benchmark and waits until one of its processes was measured there.
fn under_way(phone: &Phone, archive: &Path, blocks: usize) -> Result<Child> {
    let mut command = bench_command(phone, archive, &["--blocks", &blocks.to_string(), "--reconnect", "15m"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    wait_until("a measured process", || {
        ensure!(child.try_wait()?.is_none(), "it ended");
        let directory = archive.parent().context("a directory")?;
        let logs = fs::read_dir(directory)?.filter_map(|e| fs::read_to_string(e.ok()?.path().join("runs.jsonl")).ok());
        Ok(logs.into_iter().any(|log| log.matches("\"replicate\"").count() > 1))
    })?;
    Ok(child)
}

/// Checks that each block of each cell is there once, and a warm-up.
fn assert_complete(archive: &Path) -> Result<()> {
    let rows = rows(archive, "replicates")?;
    let mut cells = std::collections::BTreeMap::<String, Vec<String>>::new();
    for row in &rows {
        ensure!(row["exit"] == "0", "{row:?}");
        cells.entry(row["cell"].to_string()).or_default().push(row["block"].to_string());
    }
    for (cell, blocks) in &cells {
        let distinct: std::collections::BTreeSet<_> = blocks.iter().collect();
        ensure!(distinct.len() == BLOCK_COUNT + 1 && blocks.len() == distinct.len(), "{cell}: {blocks:?}");
    }
    ensure!(!cells.is_empty());
    Ok(())
}

fn back(phone: &Phone) -> Result<()> {
    wait_until("a device again", || {
        phone.connect()?;
        Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
    })
}

fn cable(arch: Arch) -> Result<()> {
    let phone = phone_of(arch, 2000)?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let child = under_way(&phone, &archive, BLOCK_COUNT)?;
    phone.machine()?.cable(false)?;
    // A fixed wait: the time without a network, in which the run continues on the device.
    std::thread::sleep(Duration::from_secs(15));
    phone.machine()?.cable(true)?;
    // And a connection that breaks completely.
    phone.cut()?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{}", stderr_of(&output));
    assert_complete(&archive)?;
    back(&phone)?;
    assert_clean(&phone)
}

fn reboot_of_guest_keeps_what_was_measured() -> Result<()> {
    let phone = start_phone(2000)?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let child = under_way(&phone, &archive, BLOCK_COUNT)?;
    phone.reboot()?;
    back(&phone)?;
    let output = child.wait_with_output()?;
    ensure!(
        output.status.code() == Some(1) && stderr_of(&output).contains("until then is in"),
        "{}",
        stderr_of(&output)
    );
    ensure!(process_count(&archive)? > 0, "nothing was kept: {}", stderr_of(&output));
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--discard", "--json"]).output()?)?;
    ensure!(value["left"].as_array().is_some_and(|left| left.iter().all(|l| l["action"] == "removed")), "{value}");
    assert_clean(&phone)
}

fn full_card_of_guest_is_reported() -> Result<()> {
    let phone = start_phone(2000)?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let fill = "cat /dev/zero >/data/local/tmp/fill 2>/dev/null; true";
    let free = "rm /data/local/tmp/fill";
    phone.shell(fill)?;
    let output = phone.fathom().args(["device", "info", &phone.name()]).output()?;
    let said = stderr_of(&output);
    ensure!(output.status.code() == Some(1) && said.contains("No space left") && said.contains("free space"), "{said}");
    phone.shell(free)?;
    ensure!(phone.left()?.is_empty(), "half of it was left: {:?}", phone.left()?);
    // The program is on the device, and then there is no room for its output.
    json(&phone.fathom().args(["device", "check", &phone.name(), "--json"]).output()?)?;
    phone.shell(fill)?;
    let output = bench_command(&phone, &archive, &["--blocks", "2"]).output()?;
    ensure!(
        !output.status.success() && stderr_of(&output).to_lowercase().contains("no space left"),
        "{}",
        stderr_of(&output)
    );
    phone.shell(free)?;
    assert_clean(&phone)?;
    // The disk fills up during a run, which must not end before.
    let _ = fs::remove_dir_all(&archive);
    let child = under_way(&phone, &archive, 4 * BLOCK_COUNT)?;
    phone.shell(fill)?;
    let output = child.wait_with_output()?;
    ensure!(!output.status.success() && process_count(&archive)? > 0, "{}", stderr_of(&output));
    phone.shell(free)?;
    assert_clean(&phone)
}

fn slow_link_to_guest_works() -> Result<()> {
    // The copy alone takes twenty seconds.
    let rate = fs::metadata(fathom())?.len() / 20;
    let phone =
        Phone::boot(DAEMON_PATH, &Shape { uid: 2000, models: REPLAYED_MODELS, rate: Some(rate), ..Shape::default() })?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let output = bench_command(&phone, &archive, &["--blocks", "2"]).output()?;
    ensure!(output.status.success() && process_count(&archive)? > 0, "{}", stderr_of(&output));
    assert_clean(&phone)
}

/// A node and a net server on the device: the guest's ports are not this machine's, so that adb forwards them.
fn services(arch: Arch) -> Result<()> {
    let phone = phone_of(arch, 2000)?;
    let directory = tempfile::tempdir()?;
    let key = directory.path().join("key");
    run(Command::new(fathom()).args(["pool", "keygen"]).arg(&key))?;
    let server = AdbServer::from_address(format!("127.0.0.1:{}", phone.port));
    let start = |words: &[&str]| -> Result<u16> {
        let output =
            phone.fathom().args(words).args(["--device", &phone.name(), "--listen", "127.0.0.1:0"]).output()?;
        ensure!(output.status.success(), "{}", stderr_of(&output));
        let port = String::from_utf8_lossy(&output.stdout).trim().rsplit(':').next().and_then(|p| p.parse().ok());
        let port = port.with_context(|| stderr_of(&output))?;
        ensure!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "the guest's port is this machine's");
        Ok(server.forward(&phone.serial, port)?)
    };
    let node = start(&["pool", "node", "--backend", "memory:4M", "--key", key.to_str().context("a path")?])?;
    let serve = start(&["net", "serve", "--key", key.to_str().context("a path")?])?;
    let used = || -> Result<()> {
        let mut command = Command::new(fathom());
        command.args(["pool", "bench", "--node", &format!("127.0.0.1:{node}"), "--duration", "1", "--json", "--key"]);
        json(&command.arg(&key).output()?)?;
        Ok(())
    };
    used()?;
    let mut command = Command::new(fathom());
    command.args(["net", "run", &format!("127.0.0.1:{serve}"), "--duration", "1", "--json", "--key"]).arg(&key);
    let output = command.output()?;
    json(&output)?;
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--json"]).output()?)?;
    let left = value["left"].as_array().context("left")?;
    ensure!(left.len() == 2 && left.iter().all(|l| l["kind"] == "service" && l["action"] == "removed"), "{value}");
    assert_clean(&phone)
}

/// A node whose store is on the card: what was written before the cable was pulled is there afterwards, and the node keeps serving.
fn unplugged_node() -> Result<()> {
    let phone = start_phone(2000)?;
    let directory = tempfile::tempdir()?;
    let key = directory.path().join("key");
    run(Command::new(fathom()).args(["pool", "keygen"]).arg(&key))?;
    let key_name = key.to_str().context("a path")?;
    let store = "/data/local/tmp/store";
    let mut command = phone.fathom();
    command.args(["pool", "node", "--device", &phone.name(), "--init", "--store", store, "--size", "4M"]);
    let output = command.args(["--key", key_name, "--listen", "127.0.0.1:7071"]).output()?;
    ensure!(output.status.success(), "{}", stderr_of(&output));
    let server = AdbServer::from_address(format!("127.0.0.1:{}", phone.port));
    let here = server.forward(&phone.serial, 7071)?;
    let served = |port: u16, more: &[&str]| -> Result<()> {
        let mut command = Command::new(fathom());
        command.args(["pool", "bench", "--node", &format!("127.0.0.1:{port}"), "--duration", "1", "--key", key_name]);
        json(&command.arg("--json").args(more).output()?).map(drop)
    };
    served(here, &["--write"])?;
    let (mut written, sum) = (String::new(), || phone.shell(&format!("sha256sum {store}")));
    wait_until("a store at rest", || {
        let before = std::mem::replace(&mut written, sum()?);
        Ok(before == written)
    })?;
    let began = phone.processes()?;
    phone.machine()?.cable(false)?;
    // A fixed wait: the time without a network.
    std::thread::sleep(Duration::from_secs(15));
    ensure!(server.devices().is_ok(), "the adb server is another's");
    phone.machine()?.cable(true)?;
    phone.cut()?;
    back(&phone)?;
    ensure!(phone.processes()? == began, "it is another process than before: {began:?}");
    ensure!(sum()? == written, "its store changed while nobody used it");
    // Forwarding ended with the connection. The checksum of each block that is read is verified.
    served(server.forward(&phone.serial, 7071)?, &[])?;
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--json"]).output()?)?;
    let left = value["left"].as_array().context("left")?;
    ensure!(left.len() == 1 && left[0]["kind"] == "service" && left[0]["action"] == "removed", "{value}");
    // The store belongs to the user, and is kept.
    phone.shell(&format!("rm {store}"))?;
    assert_clean(&phone)
}

/// The guest's clock began when it booted, this machine's long before: the result of the exchange is compared with the output of the
/// guest's own shell over its serial line.
fn clocks_of_guest_and_host_are_aligned() -> Result<()> {
    aligned(&start_phone(0)?)
}

/// A phone whose battery was empty for long starts in 1970: its wall clock is wrong, and the clock of the timestamps is not. No file is
/// considered older than another because of it, no time is negative, and the archive itself has the correct creation time.
fn year_1970() -> Result<()> {
    let phone = start_phone(0)?;
    phone.machine()?.run("date -s @3600")?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("t.fathom");
    let summary = record_inserts(&phone, "/data/local/tmp", &archive)?;
    ensure!(fathom_tests::shape_of(&summary, "INSERT")?["count"] == 25, "{summary:#}");
    let facts = rows(&archive, "facts")?;
    let began = facts.iter().find(|f| f["name"] == "trace.start_unix").context("trace.start_unix")?;
    let began: f64 = began["value"].trim_matches(['"', '\'']).parse()?;
    ensure!((0.0..7200e9).contains(&began), "the device's own date is kept as it is: {began}");
    let measured = directory.path().join("b.fathom");
    let output = bench_command(&phone, &measured, &["--blocks", "2"]).output()?;
    ensure!(output.status.success() && process_count(&measured)? > 0, "{}", stderr_of(&output));
    // A run whose host is gone has a date, too, and is removed.
    let alone = tempfile::tempdir()?;
    let mut child = under_way(&phone, &alone.path().join("left.fathom"), 50)?;
    child.kill()?;
    child.wait()?;
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--discard", "--json"]).output()?)?;
    ensure!(value["left"][0]["since_s"].as_u64().is_some_and(|s| s < 7200), "{value}");
    // Fleets accept both kinds, and pages show them.
    for archive in [&archive, &measured] {
        run(Command::new(fathom()).arg("report").arg(archive).arg("-o").arg(directory.path().join("page.html")))?;
        run(Command::new(fathom()).arg("show").arg(archive))?;
    }
    aligned(&phone)
}

fn aligned(phone: &Phone) -> Result<()> {
    let beside = Phone::start(DAEMON_PATH, &Shape { uid: 0, open: true, ..Shape::default() })?;
    beside.connect_to(phone)?;
    let directory = tempfile::tempdir()?;
    let all = directory.path().join("all");
    let mut command = phone.fathom();
    command.args([
        "record",
        "--all",
        "--duration",
        "40",
        "--device",
        &format!("{},{}", phone.name(), beside.name()),
        "-o",
    ]);
    let output = command.arg(&all).output()?;
    ensure!(output.status.success() && stderr_of(&output).matches("clock was").count() == 2, "{}", stderr_of(&output));
    let uptime = |text: &str| -> Result<f64> { Ok(text.split(' ').next().context("a number")?.trim().parse()?) };
    let here = || -> Result<f64> { uptime(&fs::read_to_string("/proc/uptime")?) };
    let before = here()?;
    let there = uptime(&phone.machine()?.run("cat /proc/uptime")?)?;
    let after = here()?;
    let archive = |phone: &Phone| all.join(format!("adb-{}.fathom", phone.serial.replace(':', "-")));
    // Attaching the probes takes the guest longer than a real device; so the recordings are long enough to overlap.
    let facts = rows(&archive(phone), "facts")?;
    let number = |name: &str| -> Result<f64> {
        let row = facts.iter().find(|f| f["name"] == name).with_context(|| name.to_string())?;
        Ok(row["value"].to_string().trim_matches(['"', '\'']).parse()?)
    };
    let (ahead, error) = (number("clock.ahead_last")? / 1e9, number("clock.error_last")? / 1e9);
    // The resolution of /proc/uptime (hundredths), and how far an emulated clock may drift until it was read here.
    let slack = error + 0.02 + 0.25;
    ensure!(
        there - after - slack <= ahead && ahead <= there - before + slack,
        "{ahead} +- {error}, {before} {there} {after}"
    );
    ensure!(ahead < -10.0, "the guest booted long after this machine: {ahead}");
    // Both on one axis, though their own clocks are far apart.
    let page = directory.path().join("page.html");
    run(Command::new(fathom()).arg("report").args([archive(phone), archive(&beside)]).arg("-o").arg(&page))?;
    let text = fs::read_to_string(&page)?;
    let block = text.split_once("class=\"together\">").and_then(|(_, rest)| rest.split_once("</script>"));
    let together: Value = serde_json::from_str(block.context("no recordings on one clock")?.0)?;
    ensure!(together["charts"].as_array().is_some_and(|c| !c.is_empty()), "{}", together["note"]);
    let end = together["charts"][0]["end"].as_f64();
    ensure!(end.is_some_and(|end| end < 600.0), "they lasted less than a minute each: {end:?}");
    assert_clean(phone)
}

fn host_and_guest_are_compared_and_traced() -> Result<()> {
    let phone = start_phone(0)?;
    let directory = tempfile::tempdir()?;
    let mut command = phone.fathom();
    command.args(["bench", "compare", "host", &phone.name(), "--quick", "--blocks", "2", "--no-wait", "-p", "rows=10"]);
    command.args(["-p", "op=insert", "--b-settings", "journal_mode=persist", "--trace", "--json"]);
    let output = command.current_dir(directory.path()).output()?;
    let value: Value = serde_json::from_slice(&output.stdout).with_context(|| stderr_of(&output))?;
    let recordings = value["traced"]["recordings"].as_array().context("no recordings")?;
    let count = |side: usize, what: &str| -> Result<f64> {
        let figures = recordings[side]["figures"].as_array().with_context(|| recordings[side].to_string())?;
        let row = figures.iter().flat_map(|f| f["rows"].as_array().into_iter().flatten()).find(|r| r["what"] == what);
        row.and_then(|r| r["ours"].as_f64()).with_context(|| format!("{what}: {:#}", recordings[side]))
    };
    // PERSIST clears the journal's header where DELETE removes the file; the writes to the database are the same.
    let (a, b) = (count(0, "of these to the journal")?, count(1, "of these to the journal")?);
    ensure!((b - a - 1.0).abs() < 0.1, "the journal: {a} on the host, {b} in the guest");
    let (a, b) = (count(0, "of these to the database")?, count(1, "of these to the database")?);
    ensure!((a - b).abs() < 0.1, "the database: {a} and {b}");
    // Unlike the stand-in, it has a disk.
    ensure!(count(1, "device commands per INSERT")? > 0.0, "none in the guest");
    assert_clean(&phone)
}
