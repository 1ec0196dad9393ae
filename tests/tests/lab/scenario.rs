//! `fathom lab` through the program: what it lists, what a run returns, and its messages where it cannot run.

use anyhow::{Context, Result, ensure};
use fathom_tests::contracts::check_contract;
use fathom_tests::{assert_near, fathom, installed, number, shape_of, show};
use lab::arch::Arch;
use serde_json::{Value, json};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns `fathom lab` with these arguments, in that directory, with the tests' kernels.
pub fn lab_command(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(fathom());
    command.current_dir(directory).arg("lab").args(words);
    if words[0] != "list" {
        command.arg("--cache").arg(kernel_cache());
    }
    command
}

fn kernel_cache() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab")
}

pub fn messages_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs it with `--json`; returns its exit status and its output.
fn run_json(directory: &Path, words: &[&str]) -> Result<(Option<i32>, Value)> {
    let output = lab_command(directory, words).arg("--json").output()?;
    let line = serde_json::from_slice(&output.stdout).with_context(|| messages_of(&output))?;
    check_contract("lab-run", &line)?;
    Ok((output.status.code(), line))
}

/// 25 INSERTs in the guest are 25 in the recording, each traced down to the disk of that driver. QEMU's SD card has no cache, so that
/// nothing is flushed.
pub fn assert_insert(scenario: &str, disk: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let way = if scenario == "scsi-ext4" { "inside" } else { "uprobe" };
    let set = format!("record.arguments=['--probes', '{way}']");
    let (status, line) = run_json(directory.path(), &["run", scenario, "--set", &set])?;
    ensure!(status == Some(0) && line["ending"] == "ended" && line["functional"] == true, "{status:?}: {line:#}");
    let made = directory.path().join(format!("{scenario}.lab"));
    let archive = made.join("trace.fathom");
    let summary = show(&archive)?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 25.0)?;
    assert_probed(&summary, way)?;
    let context = || format!("{:#}\n{line:#}", summary["device_commands"]);
    ensure!(number(&summary, &format!("/device_commands/by_disk/{disk}/total"))? >= 100.0, "{}", context());
    let flushes = number(shape_of(&summary, "INSERT")?, "/per_operation/flushes")?;
    ensure!(if disk == "mmcblk0" { flushes == 0.0 } else { flushes > 1.0 }, "{flushes} flushes: {}", context());
    ensure!(line["recording"]["commands"] == summary["device_commands"]["total"], "{}", context());
    ensure!(summary["environment"]["virtual.accelerator"]["value"] == "tcg", "{:#}", summary["environment"]);
    let text = messages_of(&Command::new(fathom()).arg("show").arg(&archive).output()?);
    ensure!(text.contains("times show order, not speed"), "{text}");
    for file in ["workload.log", "console.log", "kernel.log", "scenario.toml"] {
        ensure!(made.join(file).is_file(), "no {file}");
    }
    Ok(())
}

pub fn scenario_returns_its_recording_scsi() -> Result<()> {
    assert_insert("scsi-ext4", "sda")
}

/// Checks that the load's process, which a static shell started, was probed that way.
fn assert_probed(summary: &Value, way: &str) -> Result<()> {
    let fact = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default();
    ensure!(fact == way || way == "uprobe" && fact.starts_with("uprobes"), "{fact}: {:#}", summary["coverage"]);
    let rows = summary["coverage"].as_array().context("coverage[]")?;
    let inside =
        |row: &&Value| row["how"].as_str().is_some_and(|how| how.starts_with("1 process, by jumps in sqlite3_step"));
    ensure!(rows.iter().filter(inside).count() == usize::from(way == "inside"), "{rows:#?}");
    Ok(())
}

/// Whether the prerequisites of an arm64 guest are installed: QEMU, and Fathom's program for arm64 (`make aarch64`).
pub fn can_run_aarch64() -> Result<(), String> {
    installed("qemu-system-aarch64")?;
    Arch::Aarch64.program(&fathom()).map(drop).map_err(|why| why.to_string())
}

/// 25 INSERTs on an arm64 kernel, recorded by the program for aarch64: each of them, and as many bytes as the guest's own kernel counts for
/// its disk between before and after them (Documentation/admin-guide/iostats.rst: sectors of 512 bytes).
fn arm64_on(scenario: &str, disk: &str, probes: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let counters = |to: &str| format!("sync; cat /sys/block/{disk}/stat >/share/{to}; uname -m >/share/machine");
    let load = "fathom workload sqlite --op insert --rows 25 --dir {dir}";
    let set = format!("workload.commands=['{}', '{load}', '{}']", counters("before"), counters("after"));
    let words =
        ["run", scenario, "-o", "out", "--set", &set, "--set", &format!("record.arguments=['--probes', '{probes}']")];
    let (status, line) = run_json(directory.path(), &words)?;
    ensure!(status == Some(0) && line["ending"] == "ended" && line["functional"] == true, "{status:?}: {line:#}");
    let made = directory.path().join("out");
    let text = |name: &str| std::fs::read_to_string(made.join(name)).with_context(|| name.to_string());
    ensure!(text("machine")?.trim() == "aarch64", "{line:#}");
    // A probe may be rejected by this architecture's verifier and accepted by others'.
    ensure!(line["recording"]["blind"] == json!([]), "{line:#}");
    let sectors = |name: &str| -> Result<[f64; 2]> {
        let counts: Vec<f64> = text(name)?.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        Ok([*counts.get(2).context("sectors read")?, *counts.get(6).context("sectors written")?])
    };
    let (before, after) = (sectors("before")?, sectors("after")?);
    let summary = show(&made.join("trace.fathom"))?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 25.0)?;
    assert_probed(&summary, probes)?;
    ensure!(text("workload.log")?.contains("25 rows have the expected content"), "{}", text("workload.log")?);
    for (i, name) in ["bytes_read", "bytes_written"].into_iter().enumerate() {
        let theirs = (after[i] - before[i]) * 512.0;
        let ours = number(&summary, &format!("/device_commands/by_disk/{disk}/{name}"))?;
        println!("{name}: {ours} are recorded, {theirs} the guest's kernel counts");
        // Writes before the first sample of the counters are recorded too: a commit of the journal may happen by then.
        ensure!((0.0..65536.0).contains(&(ours - theirs)), "{name}: {ours}, the guest's kernel counts {theirs}");
    }
    ensure!(after[1] > before[1], "nothing was written: {before:?}, {after:?}");
    Ok(())
}

pub fn scenario_returns_its_recording_arm64() -> Result<()> {
    arm64_on("arm64", "sda", "inside")
}

pub fn arm64_mmc() -> Result<()> {
    arm64_on("arm64-mmc", "mmcblk0", "uprobe")
}

pub fn scenario_returns_its_recording_sd_card() -> Result<()> {
    assert_insert("mmc-f2fs", "mmcblk0")
}

/// Each scenario ends as it expects, with a recording of its program's statements.
pub fn every_shipped() -> Result<()> {
    let list = lab_command(Path::new("."), &["list", "--json"]).output()?;
    let list: Value = serde_json::from_slice(&list.stdout)?;
    let all = list["scenarios"].as_array().context("scenarios[]")?;
    let names = all.iter().map(|s| s["name"].as_str().context("name"));
    for name in names.collect::<Result<Vec<_>>>()? {
        if let Some(why) = can_run_aarch64().err().filter(|_| name.starts_with("arm64")) {
            println!("{name} is left out: {why}");
            continue;
        }
        let directory = tempfile::tempdir()?;
        let (mut status, mut line) = run_json(directory.path(), &["run", name])?;
        if line["ending"] == "hung" {
            // Seen once in ten runs of an SD card with f2fs (docs/guide/lab.md).
            println!("{name} hung, and is run again: {line:#}");
            (status, line) = run_json(directory.path(), &["run", name])?;
        }
        ensure!(status == Some(0) && line["as_expected"] == true, "{name}: {status:?}: {line:#}");
        let least = if name.ends_with("-errors") { 1.0 } else { 25.0 };
        ensure!(number(&line, "/recording/operations")? >= least, "{name}: {line:#}");
        ensure!(number(&line, "/recording/commands")? >= least, "{name}: {line:#}");
    }
    Ok(())
}

/// A series leaves a recording of each run and their figure, in which nothing is timed: counts differ by the journal mode alone.
pub fn series_is_compared_in_figure_of_papers() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let output = lab_command(directory.path(), &["run", "paper-004,rows=3", "--json"]).output()?;
    ensure!(output.status.success(), "{}", messages_of(&output));
    let lines: Vec<Value> =
        String::from_utf8_lossy(&output.stdout).lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let list = lab_command(Path::new("."), &["list", "--json"]).output()?;
    let list: Value = serde_json::from_slice(&list.stdout)?;
    let runs = list["series"][0]["runs"].as_array().context("runs[]")?;
    ensure!(lines.len() == runs.len(), "{lines:#?}");
    for (line, run) in lines.iter().zip(runs) {
        check_contract("lab-run", line)?;
        ensure!(line["scenario"] == run["name"] && line["as_expected"] == true, "{line:#}");
        let archive = directory.path().join(line["recording"]["archive"].as_str().context("archive")?);
        let summary = show(&archive)?;
        assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 3.0)?;
    }
    let page = std::fs::read_to_string(directory.path().join("paper-004.lab/papers.md"))?;
    let cells = |what: &str| -> Result<Vec<String>> {
        let line = page.lines().find(|line| line.contains(&format!("| {what} |"))).with_context(|| page.clone())?;
        Ok(line.split('|').skip(3).take(runs.len()).map(|cell| cell.trim().to_string()).collect())
    };
    let journal = cells("of these to the journal")?;
    // linux, linux-truncate, android-x86, phone, phone-truncate, phone-f2fs: PERSIST clears a header more.
    ensure!(journal == ["8", "8", "9", "9", "8", "9"], "{journal:?}");
    let timed = cells("from journal write 1 to journal write 2")?;
    ensure!(timed.iter().all(|cell| cell == "none") && page.contains("not timed"), "{page}");
    Ok(())
}

/// A disk whose writes fail: the program gets the error, and the recording contains it.
pub fn errors_of_the_disk() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (status, line) = run_json(directory.path(), &["run", "dm-flakey-errors", "-o", "out"])?;
    ensure!(status == Some(0) && line["status"] == 1 && line["as_expected"] == true, "{status:?}: {line:#}");
    let log = std::fs::read_to_string(directory.path().join("out/workload.log"))?;
    ensure!(log.contains("disk I/O error"), "{log}");
    Ok(())
}

pub fn scenario_returns_its_recording_nvme() -> Result<()> {
    assert_insert("nvme-ext4", "nvme0n1")
}

pub fn scenario_returns_its_recording_virtio() -> Result<()> {
    assert_insert("virtio-ext4", "vda")
}

/// Settings are applied; a workload that fails is reported with its status, and the recording is still made.
pub fn failing_workload() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let commands = "workload.commands=['echo {journal_mode} {page_size}', 'mount | grep /mnt', 'exit 3', 'echo never']";
    let settings = ["sqlite.journal_mode=wal", "filesystem.mount=noatime", "record.backend=ftrace", commands];
    let mut words = vec!["run", "virtio-ext4", "--keep", "-o", "out"];
    words.extend(settings.iter().flat_map(|s| ["--set", s]));
    let (status, line) = run_json(directory.path(), &words)?;
    ensure!(status == Some(1) && line["status"] == 3 && line["as_expected"] == false, "{status:?}: {line:#}");
    let log = std::fs::read_to_string(directory.path().join("out/workload.log"))?;
    ensure!(log.contains("wal 4096\n") && log.contains("noatime") && !log.contains("never"), "{log}");
    let coverage = show(&directory.path().join("out/trace.fathom"))?["coverage"].to_string();
    ensure!(coverage.contains("ftrace"), "{coverage}");
    // The disk is kept: ext4's magic number is at 0x438.
    let mut magic = [0; 2];
    std::fs::File::open(directory.path().join("out/guest/data"))?.read_exact_at(&mut magic, 0x438)?;
    ensure!(magic == [0x53, 0xef], "{magic:?}");
    let command = std::fs::read_to_string(directory.path().join("out/guest/command"))?;
    ensure!(command.starts_with("qemu-system-x86_64 ") && command.contains("/guest/data"), "{command}");
    Ok(())
}

/// Typed commands run in the guest, and their output is returned.
pub fn shell_in_guest_runs_typed_commands() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let typed = "grep /mnt /proc/mounts\nls -l /dev/disk/disk1\ntty\nfathom --version >/share/version\nexit\n";
    std::fs::write(directory.path().join("typed"), typed)?;
    let mut command = lab_command(directory.path(), &["shell", "--disk", "virtio:64M", "--disk", "nvme", "-o", "."]);
    let output = command.stdin(std::fs::File::open(directory.path().join("typed"))?).output()?;
    let text = messages_of(&output);
    ensure!(output.status.success(), "{}: {text}", output.status);
    for part in [" /mnt ext4 ", "-> /dev/nvme0n1", "/dev/ttyS2"] {
        ensure!(text.contains(part), "no {part:?} in {text}");
    }
    ensure!(std::fs::read_to_string(directory.path().join("version"))?.starts_with("fathom "), "{text}");
    Ok(())
}

/// A scenario that cannot run is reported with the reason and a remedy; nothing is left behind.
pub fn lab_errors_say_what_is_missing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let fails = |words: &[&str], path: Option<&str>, code: i32, parts: &[&str]| -> Result<()> {
        let mut command = lab_command(directory.path(), words);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let output = command.output()?;
        let text = messages_of(&output);
        ensure!(output.status.code() == Some(code), "{words:?}: {}: {text}", output.status);
        parts.iter().try_for_each(|part| {
            ensure!(text.contains(part), "{words:?}: no {part:?} in {text}");
            Ok(())
        })
    };
    fails(&["run", "floppy"], None, 2, &["floppy: no such scenario; expected one of", "scsi-ext4"])?;
    fails(
        &["run", "scsi-ext4", "--set", "disk.data.bus=usb"],
        None,
        2,
        &["--set disk.data.bus=usb", "`usb`", "`nvme`"],
    )?;
    std::fs::write(directory.path().join("my.toml"), "about = \"x\"\ndisks = 1\n")?;
    fails(&["run", "my.toml"], None, 2, &["my.toml: ", "line 2", "unknown field `disks`"])?;
    fails(&["run", "scsi-ext4,forward=7100"], None, 2, &["machine.forward", "lab exec"])?;
    fails(&["run", "scsi-ext4,commit=60"], None, 2, &["no setting \"commit\"", "is quoted"])?;
    // A series: its settings are checked, and its directory is its own.
    fails(&["run", "paper-004,bus=usb"], None, 2, &["--set bus=usb", "`usb`"])?;
    std::fs::create_dir(directory.path().join("mine"))?;
    std::fs::write(directory.path().join("mine/papers"), "mine")?;
    fails(&["run", "paper-004", "-o", "mine"], None, 1, &["mine exists and is not a lab result"])?;
    std::fs::remove_dir_all(directory.path().join("mine"))?;
    fails(&["exec", "paper-004", "--", "true"], None, 2, &["a series", "paper-004-linux"])?;
    fails(&["run", "scsi-ext4"], Some("/nowhere"), 1, &["qemu-system-x86_64 is not installed", "apt-get install"])?;
    // A guest as a device: the same message, before anything boots, prefixed with one name only.
    let record = |device: &str, path: Option<&str>| -> Result<(Option<i32>, String)> {
        let mut command = Command::new(fathom());
        command.current_dir(directory.path()).args(["record", "-o", "t.fathom", "--device", device, "--", "true"]);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let output = command.output()?;
        Ok((output.status.code(), messages_of(&output)))
    };
    for wrong in ["lab:floppy", "lab:scsi-ext4,commit=60", "lab:my.toml", "lab:none.toml", "local,lab:floppy"] {
        let (status, text) = record(wrong, None)?;
        ensure!(status == Some(2) && text.contains("lab:") && !text.contains("booting"), "{wrong}: {status:?}: {text}");
    }
    let (status, text) = record("lab:scsi-ext4", Some("/nowhere"))?;
    ensure!(
        status == Some(1) && text.contains("lab:scsi-ext4: qemu-system-x86_64 is not installed"),
        "{status:?}: {text}"
    );
    let list = messages_of(&lab_command(directory.path(), &["list"]).output()?);
    ensure!(list.lines().any(|l| l.starts_with("scsi-ext4 ") && l.contains("SCSI")), "{list}");
    // The printed scenario is valid as a file.
    let file = messages_of(&lab_command(directory.path(), &["list", "nvme-ext4"]).output()?);
    std::fs::write(directory.path().join("mine.toml"), file)?;
    fails(&["run", "mine.toml"], Some("/nowhere"), 1, &["qemu-system-x86_64 is not installed"])?;
    let left = directory.path().read_dir()?.flatten().filter(|e| e.path().is_dir()).count();
    ensure!(left == 0, "{left} directories are left");
    Ok(())
}
