//! Driver commands compared with the kernel's own trace events. Both clocks are CLOCK_BOOTTIME, so that only the events of
//! the recording's window are compared.

use super::run_shell;
use anyhow::{Context, Result, ensure};
use fathom_tests::{assert_near, fathom, number, rows, shape_of};
use lab::guest::{Bus, Config, Disk, Guest};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const ROW_COUNT: u32 = 20;
const TRACEFS_PATH: &str = "/sys/kernel/tracing";

/// Number of commands by key.
type Counts = BTreeMap<String, u64>;

/// Has the kernel trace these events while a program is recorded. Returns `show --json`, the archive's commands, and the
/// events of the window, each as its name and the text after it.
fn record_both(guest: &mut Guest, events: &[&str], program: &str) -> Result<BothRecordings> {
    run_shell(
        guest,
        &format!("mount -t tracefs none {TRACEFS_PATH} 2>/dev/null; echo boot > {TRACEFS_PATH}/trace_clock"),
    )?;
    run_shell(guest, &format!("echo > {TRACEFS_PATH}/trace; echo 4096 > {TRACEFS_PATH}/buffer_size_kb; sync"))?;
    for event in events {
        run_shell(guest, &format!("echo 1 > {TRACEFS_PATH}/events/{event}/enable"))?;
    }
    run_shell(guest, &format!("rm -rf /t.fathom; /fathom record --quiet -o /t.fathom -- {program}"))?;
    for event in events {
        run_shell(guest, &format!("echo 0 > {TRACEFS_PATH}/events/{event}/enable"))?;
    }
    let summary: Value =
        serde_json::from_str(&run_shell(guest, "/fathom show --json /t.fathom")?).context("show --json")?;
    let trace = run_shell(guest, &format!("cat {TRACEFS_PATH}/trace"))?;
    let window = [number(&summary, "/trace/start_ns")?, number(&summary, "/trace/end_ns")?];
    let directory = tempfile::tempdir()?;
    let commands = rows(&guest.fetch("/t.fathom", directory.path())?, "driver_commands")?;
    let inside = |line: &str| -> Option<(String, String)> {
        // `dd-123  [000] .....  12.345678: scsi_dispatch_cmd_start: host_no=0 …`
        let (head, rest) = line.split_once(": ")?;
        let seconds: f64 = head.rsplit(' ').next()?.parse().ok()?;
        let (event, text) = rest.split_once(':')?;
        (window[0] / 1e9..=window[1] / 1e9).contains(&seconds).then(|| (event.to_string(), text.to_string()))
    };
    let events = trace.lines().filter(|line| !line.starts_with('#')).filter_map(inside).collect();
    Ok(BothRecordings { summary, commands, events, text: run_shell(guest, "/fathom show /t.fathom")? })
}

struct BothRecordings {
    summary: Value,
    commands: Vec<BTreeMap<String, String>>,
    events: Vec<(String, String)>,
    text: String,
}

impl BothRecordings {
    /// Counts the kernel's events of that name by the key that `key` parses from them.
    fn kernel(&self, event: &str, key: impl Fn(&str) -> String) -> Counts {
        let mut counts = Counts::new();
        let own = self.events.iter().filter(|(name, _)| name == event);
        own.for_each(|(_, text)| *counts.entry(key(text)).or_default() += 1);
        counts
    }

    fn ours(&self, key: impl Fn(&BTreeMap<String, String>) -> Option<String>) -> Counts {
        let mut counts = Counts::new();
        self.commands.iter().filter_map(key).for_each(|key| *counts.entry(key).or_default() += 1);
        counts
    }

    /// Every command belongs to a recorded request, and completed.
    fn all_linked(&self) -> Result<()> {
        let loose = self.commands.iter().find(|row| row["command"].is_empty() || row["end_ns"].is_empty());
        ensure!(loose.is_none(), "{loose:?}\n{}", self.text);
        ensure!(self.commands.iter().all(|row| row["confidence"] == "exact"), "{}", self.text);
        ensure!(self.summary["completeness"]["state"] == "checked", "{:#}", self.summary["completeness"]);
        Ok(())
    }
}

/// Returns the word after `name=`.
fn word_after<'a>(text: &'a str, name: &str) -> &'a str {
    let from = text.find(&format!("{name}=")).map_or(text.len(), |at| at + name.len() + 1);
    text[from..].split([' ', ')']).next().unwrap_or_default()
}

/// Formats `cmnd=(WRITE_10 lba=2048 txlen=8 … raw=2a 00 …)` as `WRITE(10) 2048 + 8`.
fn scsi_command(text: &str) -> String {
    let Some((_, command)) = text.split_once("cmnd=(") else { return text.into() };
    let name = command.split(' ').next().unwrap_or_default();
    // The kernel's name of SYNCHRONIZE CACHE(10) has no length.
    let name = match name {
        "SYNCHRONIZE_CACHE" => "SYNCHRONIZE CACHE(10)".into(),
        _ => match name.rsplit_once('_') {
            Some((verb, length)) if length.parse::<u8>().is_ok() => format!("{}({length})", verb.replace('_', " ")),
            _ => name.replace('_', " "),
        },
    };
    match (word_after(command, "lba"), word_after(command, "txlen")) {
        (lba, blocks) if name.starts_with("READ(") || name.starts_with("WRITE(") => format!("{name} {lba} + {blocks}"),
        _ => name,
    }
}

fn scsi_row(row: &BTreeMap<String, String>) -> Option<String> {
    let data = row["name"].starts_with("READ(") || row["name"].starts_with("WRITE(");
    Some(if data { format!("{} {} + {}", row["name"], row["lba"], row["blocks"]) } else { row["name"].clone() })
}

const SCSI_OPERATIONS: [&str; 5] = [
    "scsi/scsi_dispatch_cmd_start",
    "scsi/scsi_dispatch_cmd_error",
    "scsi/scsi_dispatch_cmd_done",
    "scsi/scsi_dispatch_cmd_timeout",
    "scsi/scsi_eh_wakeup",
];

pub fn scsi_matches_the_kernel() -> Result<()> {
    super::stock::with_stock_guest(scsi_matches)
}

fn scsi_matches(guest: &mut Guest) -> Result<()> {
    run_shell(guest, "mount -t ext4 /dev/disk/data /mnt && echo warm > /mnt/warm && sync")?;
    let inserts = format!("/fathom workload sqlite --op insert --rows {ROW_COUNT} --dir /mnt");
    let recorded = record_both(guest, &SCSI_OPERATIONS, &inserts)?;
    let kernel = recorded.kernel("scsi_dispatch_cmd_start", scsi_command);
    let ours = recorded.ours(scsi_row);
    ensure!(ours == kernel, "ours {ours:#?}\nthe kernel's {kernel:#?}\n{}", recorded.text);
    recorded.all_linked()?;
    assert_near("INSERTs", number(shape_of(&recorded.summary, "INSERT")?, "/count")?, ROW_COUNT.into())?;
    let syncs = kernel.get("SYNCHRONIZE CACHE(10)").copied().unwrap_or(0);
    ensure!(syncs > u64::from(ROW_COUNT), "{kernel:#?}");
    ensure!(recorded.text.contains("\nDriver commands\n"), "{}", recorded.text);
    // The commands sent for the requests are the requests issued: none twice, none without a command.
    let total = number(&recorded.summary, "/device_commands/total")?;
    assert_near("commands", total, recorded.commands.len() as f64)?;
    force_errors(guest)?;
    run_shell(guest, "umount /mnt; rm -rf /t.fathom")?;
    Ok(())
}

/// scsi_debug's medium errors, in ten blocks from its block 4660, and commands that it never completes.
fn force_errors(guest: &mut Guest) -> Result<()> {
    let disk = "for d in /sys/block/sd*; do grep -q scsi_debug $d/device/model && basename $d; done";
    let name = run_shell(guest, disk)?.trim().to_string();
    let options = |guest: &mut Guest, text: &str| {
        run_shell(
            guest,
            &format!("cd /sys/bus/pseudo/drivers/scsi_debug && {text}; echo 1 > /sys/block/{name}/device/timeout"),
        )
    };
    let read = |skip: u32, count: u32| {
        format!("dd if=/dev/{name} of=/dev/null bs=4096 iflag=direct skip={skip} count={count}")
    };
    options(guest, "echo 2 > opts")?;
    let bad = format!("sh -c '{}; {}; {}; true'", read(0, 3), read(582, 1), read(583, 1));
    let recorded = record_both(guest, &SCSI_OPERATIONS, &bad)?;
    let failed = recorded.kernel("scsi_dispatch_cmd_done", |text| word_after(text, "status").to_string());
    let kernel = failed.get("SAM_STAT_CHECK_CONDITION").copied().unwrap_or(0);
    let ours = recorded.ours(|row| Some(row["error"].clone()).filter(|error| !error.is_empty()));
    ensure!(kernel >= 2, "no error came: {failed:#?}\n{}", recorded.text);
    let expected = Counts::from([("MEDIUM ERROR (11/00)".to_string(), kernel)]);
    ensure!(ours == expected, "ours {ours:#?}\nthe kernel's {failed:#?}\n{}", recorded.text);
    ensure!(recorded.text.contains("x MEDIUM ERROR (11/00)"), "{}", recorded.text);

    // Every third command is never completed.
    options(guest, "echo 4 > opts; echo 3 > every_nth")?;
    let recorded = record_both(guest, &SCSI_OPERATIONS, &read(0, 6))?;
    options(guest, "echo 0 > every_nth; echo 0 > opts")?;
    let kernel = recorded.kernel("scsi_dispatch_cmd_timeout", scsi_command);
    let ours = recorded.ours(|row| (row["timed_out"] == "true").then(|| scsi_row(row)).flatten());
    ensure!(!kernel.is_empty(), "none timed out: {}", recorded.text);
    ensure!(ours == kernel, "ours {ours:#?}\nthe kernel's {kernel:#?}\n{}", recorded.text);
    Ok(())
}

/// No command is answered for some seconds: one that times out again after it was aborted wakes the error handler, as often as the
/// kernel's own event says.
pub fn error_handler() -> Result<()> {
    const SCSI_DEBUG_PATH: &str = "/sys/bus/pseudo/drivers/scsi_debug";
    let config =
        Config { modules: vec!["scsi_debug".into()], files: vec![(fathom(), "/fathom".into())], ..Config::default() };
    let mut guest = Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?;
    let disk = "for d in /sys/block/sd*; do grep -q scsi_debug $d/device/model && basename $d; done";
    let name = run_shell(&mut guest, disk)?.trim().to_string();
    let silent = format!(
        "echo 1 >/sys/block/{name}/device/timeout; echo 1 >/sys/block/{name}/device/eh_timeout; echo 4 >{SCSI_DEBUG_PATH}/opts; \
         echo 1 >{SCSI_DEBUG_PATH}/every_nth"
    );
    run_shell(&mut guest, &silent)?;
    let read = format!("dd if=/dev/{name} of=/dev/null bs=4096 iflag=direct count=1");
    let program = format!("sh -c '(sleep 6; echo 0 >{SCSI_DEBUG_PATH}/every_nth) & {read}; wait; true'");
    let recorded = record_both(&mut guest, &SCSI_OPERATIONS, &program)?;
    let kernel =
        recorded.kernel("scsi_eh_wakeup", |text| format!("error handler of host {}", word_after(text, "host_no")));
    let ours = recorded.ours(|row| row["name"].starts_with("error handler").then(|| row["name"].clone()));
    println!("{ours:?}");
    ensure!(!kernel.is_empty(), "the error handler was not woken: {}", recorded.text);
    ensure!(ours == kernel, "ours {ours:#?}\nthe kernel's {kernel:#?}\n{}", recorded.text);
    Ok(())
}

/// Reads of bad blocks, each of which fails. Every error is recorded, and the SCSI device's own counts of commands and errors equal
/// ours.
pub fn every_disk_error_appears() -> Result<()> {
    const ERROR_COUNT: u32 = 200;
    const COUNTER_NAMES: [&str; 3] = ["iorequest_cnt", "iodone_cnt", "ioerr_cnt"];
    let config =
        Config { modules: vec!["scsi_debug".into()], files: vec![(fathom(), "/fathom".into())], ..Config::default() };
    let mut guest = Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?;
    let disk = "for d in /sys/block/sd*; do grep -q scsi_debug $d/device/model && basename $d; done";
    let name = run_shell(&mut guest, disk)?.trim().to_string();
    run_shell(&mut guest, "echo 2 > /sys/bus/pseudo/drivers/scsi_debug/opts")?;
    // Block 582 of 4096 bytes contains the first bad block of 512.
    let counters = COUNTER_NAMES.map(|counter| format!("/sys/block/{name}/device/{counter}")).join(" ");
    let script = format!(
        "#!/bin/sh\ncat {counters} > /before\ni=0 failed=0\nwhile [ $i -lt {ERROR_COUNT} ]; do\n  \
         dd if=/dev/{name} of=/dev/null bs=4096 iflag=direct skip=582 count=1 2> /dev/null || failed=$((failed + 1))\n  \
         i=$((i + 1))\ndone\necho $failed > /failed\ncat {counters} > /after\n"
    );
    run_shell(&mut guest, &format!("cat > /errors.sh <<'END'\n{script}END\nchmod +x /errors.sh"))?;
    run_shell(&mut guest, "/fathom record --quiet -o /t.fathom -- /errors.sh")?;
    let failed: u32 = run_shell(&mut guest, "cat /failed")?.trim().parse()?;
    ensure!(failed == ERROR_COUNT, "{failed} of {ERROR_COUNT} reads failed");
    let mut count = |file: &str| -> Result<Vec<u64>> {
        let text = run_shell(&mut guest, &format!("cat {file}"))?;
        let number = |line: &str| u64::from_str_radix(line.trim().trim_start_matches("0x"), 16);
        Ok(text.lines().map(number).collect::<Result<_, _>>()?)
    };
    let (before, after) = (count("/before")?, count("/after")?);
    let counted: Vec<u64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    let text = run_shell(&mut guest, "/fathom show /t.fathom")?;
    let dev = run_shell(&mut guest, &format!("cat /sys/block/{name}/dev"))?;
    let directory = tempfile::tempdir()?;
    let commands = rows(&guest.fetch("/t.fathom", directory.path())?, "driver_commands")?;
    let (major, minor) = dev.trim().split_once(':').context("MAJOR:MINOR")?;
    let number = (major.parse::<u64>()? << 20 | minor.parse::<u64>()?).to_string();
    let own: Vec<_> = commands.iter().filter(|row| row["disk"] == number).collect();
    let errors = own.iter().filter(|row| row["error"] == "MEDIUM ERROR (11/00)").count() as u64;
    println!(
        "{failed} reads failed, {errors} errors are recorded of {} commands; the device counts {counted:?}",
        own.len()
    );
    // The kernel may retry a read, which fails again.
    ensure!(errors >= ERROR_COUNT.into(), "{errors} of {ERROR_COUNT} errors are recorded\n{text}");
    ensure!(own.iter().all(|row| !row["error"].is_empty() && !row["end_ns"].is_empty()), "{text}");
    let ours = own.len() as u64;
    ensure!(counted == [ours, ours, errors], "{ours} commands, {errors} errors; the device counts {counted:?}\n{text}");
    ensure!(text.contains(&format!("{errors} x MEDIUM ERROR (11/00)")), "{text}");
    Ok(())
}

/// Formats `cmd=(nvme_cmd_write slba=2048, len=7, …)` as `Write 2048 + 8`.
fn nvme_command(text: &str) -> String {
    let Some((_, command)) = text.split_once("cmd=(") else { return text.into() };
    let (slba, len) = (word_after(command, "slba"), word_after(command, "len").trim_end_matches(','));
    let blocks = len.parse::<u64>().map_or(0, |len| len + 1);
    match command.split(' ').next().unwrap_or_default() {
        "nvme_cmd_write" => format!("Write {} + {blocks}", slba.trim_end_matches(',')),
        "nvme_cmd_read" => format!("Read {} + {blocks}", slba.trim_end_matches(',')),
        "nvme_cmd_flush" => "Flush".into(),
        other => other.into(),
    }
}

fn nvme_row(row: &BTreeMap<String, String>) -> Option<String> {
    let data = matches!(row["name"].as_str(), "Read" | "Write");
    Some(if data { format!("{} {} + {}", row["name"], row["lba"], row["blocks"]) } else { row["name"].clone() })
}

pub fn nvme_matches_the_kernel() -> Result<()> {
    let disk = Disk { name: "data".into(), bus: Bus::Nvme, bytes: 128 << 20, ext4: true };
    let config = Config { disks: vec![disk], files: vec![(fathom(), "/fathom".into())], ..Config::default() };
    let mut guest = Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?;
    run_shell(&mut guest, "mount -t ext4 /dev/disk/data /mnt && echo warm > /mnt/warm && sync")?;
    let inserts = format!("/fathom workload sqlite --op insert --rows {ROW_COUNT} --dir /mnt");
    let recorded = record_both(&mut guest, &["nvme/nvme_setup_cmd", "nvme/nvme_complete_rq"], &inserts)?;
    let kernel = recorded.kernel("nvme_setup_cmd", nvme_command);
    let ours = recorded.ours(nvme_row);
    ensure!(ours == kernel, "ours {ours:#?}\nthe kernel's {kernel:#?}\n{}", recorded.text);
    recorded.all_linked()?;
    assert_near("INSERTs", number(shape_of(&recorded.summary, "INSERT")?, "/count")?, ROW_COUNT.into())?;
    ensure!(kernel.get("Flush").is_some_and(|flushes| *flushes > u64::from(ROW_COUNT)), "{kernel:#?}");
    ensure!(recorded.commands.iter().all(|row| row["error"].is_empty()), "{}", recorded.text);
    let total = number(&recorded.summary, "/device_commands/total")?;
    assert_near("commands", total, recorded.commands.len() as f64)?;
    Ok(())
}

/// Formats `mmc0: start struct mmc_request[…]: cmd_opcode=25 … blocks=8 block_size=512 blk_addr=2048 …` as `CMD25 2048 + 8`.
fn mmc_command(text: &str) -> String {
    match word_after(text, "cmd_opcode") {
        code @ ("17" | "18" | "24" | "25") => {
            format!("CMD{code} {} + {}", word_after(text, "blk_addr"), word_after(text, "blocks"))
        }
        code => format!("CMD{code}"),
    }
}

fn mmc_row(row: &BTreeMap<String, String>) -> Option<String> {
    let code = row["name"].split(' ').next()?.trim_start_matches('A');
    let data = !row["blocks"].is_empty();
    Some(if data { format!("{code} {} + {}", row["lba"], row["blocks"]) } else { code.into() })
}

pub fn mmc_matches_the_kernel() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("card.log");
    let disk = Disk { name: "data".into(), bus: Bus::Sd, bytes: 128 << 20, ext4: true };
    let config = Config {
        disks: vec![disk],
        files: vec![(fathom(), "/fathom".into())],
        card_log: Some(log.clone()),
        ..Config::default()
    };
    let mut guest = Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?;
    run_shell(&mut guest, "mount -t ext4 /dev/disk/data /mnt && echo warm > /mnt/warm && sync")?;
    let inserts = format!("/fathom workload sqlite --op insert --rows {ROW_COUNT} --dir /mnt");
    let recorded = record_both(&mut guest, &["mmc/mmc_request_start", "mmc/mmc_request_done"], &inserts)?;
    let kernel = recorded.kernel("mmc_request_start", mmc_command);
    let ours = recorded.ours(mmc_row);
    ensure!(ours == kernel, "ours {ours:#?}\nthe kernel's {kernel:#?}\n{}", recorded.text);
    ensure!(recorded.summary["completeness"]["state"] == "checked", "{:#}", recorded.summary["completeness"]);
    assert_near("INSERTs", number(shape_of(&recorded.summary, "INSERT")?, "/count")?, ROW_COUNT.into())?;
    // Each command that moves data belongs to one request; commands that the core sends by itself belong to none.
    let (data, own): (Vec<_>, Vec<_>) = recorded.commands.iter().partition(|row| !row["blocks"].is_empty());
    let loose =
        data.iter().find(|row| row["command"].is_empty() || row["confidence"] != "exact" || row["disk"].is_empty());
    ensure!(loose.is_none(), "{loose:?}\n{}", recorded.text);
    let total = number(&recorded.summary, "/device_commands/total")?;
    assert_near("commands", total, data.len() as f64)?;
    ensure!(data.len() > ROW_COUNT as usize, "{}", recorded.text);
    ensure!(own.iter().all(|row| row["command"].is_empty() && row["disk"].is_empty()), "{own:?}");
    ensure!(own.iter().any(|row| row["name"] == "CMD13 SEND_STATUS"), "{}", recorded.text);
    let bad = recorded.commands.iter().find(|row| !row["error"].is_empty() || row["end_ns"].is_empty());
    ensure!(bad.is_none(), "{bad:?}\n{}", recorded.text);
    drop(guest);
    card_got_the_same(&recorded, &std::fs::read_to_string(&log)?)
}

/// Compares with the commands that the card itself received, in order: CMD12, which ends a transfer, and CMD55, which precedes another
/// command, are part of a command of the driver's and do not count.
fn card_got_the_same(recorded: &BothRecordings, log: &str) -> Result<()> {
    // `sdcard_normal_command SD WRITE_MULTIPLE_BLOCK/ CMD25 arg 0x00012c00 (mode transfer, state transfer)`
    let command = |line: &str| -> Option<(u8, u64)> {
        let (_, rest) = line.split_once("/ CMD")?;
        let (code, rest) = rest.split_once(" arg 0x")?;
        Some((code.trim().parse().ok()?, u64::from_str_radix(rest.split(' ').next()?, 16).ok()?))
    };
    let data = |code: u8| [17, 18, 24, 25].contains(&code);
    // An argument that is not an address is ignored.
    let plain = |(code, argument): (u8, u64)| (code, if data(code) { argument } else { 0 });
    let card: Vec<_> = log.lines().filter_map(command).map(plain).filter(|(c, _)| ![12, 55].contains(c)).collect();
    let mut rows: Vec<_> = recorded.commands.iter().collect();
    rows.sort_by_key(|row| row["start_ns"].parse::<u64>().unwrap_or(0));
    let ours = rows.iter().map(|row| -> Result<(u8, u64)> {
        let code = row["name"].split(' ').next().unwrap_or_default().trim_start_matches("CMD").parse()?;
        // A card of this size is addressed in bytes.
        Ok((code, row["lba"].parse::<u64>().map_or(0, |lba| lba * 512)))
    });
    let ours = ours.collect::<Result<Vec<_>>>()?;
    println!("{} commands are recorded; the card got {} since it was there", ours.len(), card.len());
    ensure!(ours.len() > ROW_COUNT as usize, "only {} commands", ours.len());
    let found = card.windows(ours.len()).any(|part| part == ours);
    ensure!(found, "the card got other commands than were recorded: {ours:?}\n{card:?}");
    Ok(())
}
