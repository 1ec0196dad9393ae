//! Both backends in one guest: the eBPF recording starts the ftrace recording, which starts the program. On the drivers that this
//! machine's own kernel does not have, their results must be the same.

use super::run_shell;
use anyhow::{Context, Result, ensure};
use fathom_tests::{fathom, rows};
use lab::guest::{Bus, Config, Disk, Guest};
use std::collections::BTreeMap;
use std::path::Path;

type Row = BTreeMap<String, String>;

fn cell<'a>(row: &'a Row, column: &str) -> &'a str {
    row.get(column).map_or("", String::as_str)
}

fn cell_ns(row: &Row, column: &str) -> u64 {
    cell(row, column).parse().unwrap_or(0)
}

fn is_within(row: &Row, window: (u64, u64)) -> bool {
    (window.0..=window.1).contains(&cell_ns(row, "start_ns"))
}

fn of_disk(row: &Row) -> bool {
    matches!(cell(row, "layer"), "Block" | "IoScheduler" | "Driver")
}

/// The time that both recorded, by the time stamps of each: both probes of an event run one after the other, and how long the second
/// waits for the first depends on the machine (the emulator translates the first event of a recording meanwhile).
struct Windows {
    ebpf: (u64, u64),
    ftrace: (u64, u64),
}

impl Windows {
    /// From the first to the last of ftrace's spans of a disk, which are searched for among eBPF's.
    fn span_window(spans: &[Row], others: &[Row]) -> Result<Self> {
        let start = |row: &&Row| cell_ns(row, "start_ns");
        let first = others.iter().filter(|row| of_disk(row)).min_by_key(start).context("nothing")?;
        let last = others.iter().filter(|row| of_disk(row)).max_by_key(start).context("nothing")?;
        let same = |of: &Row| -> Result<u64> {
            let key = |row: &Row| ["layer", "kind", "disk", "sector", "bytes"].map(|c| cell(row, c).to_owned());
            let equals = spans.iter().filter(|row| key(row) == key(of)).map(|row| cell_ns(row, "start_ns"));
            // The same blocks are written repeatedly.
            let mut near: Vec<&Row> = spans.iter().filter(|row| cell(row, "layer") == cell(of, "layer")).collect();
            near.sort_by_key(|row| cell_ns(row, "start_ns").abs_diff(cell_ns(of, "start_ns")));
            near.truncate(3);
            let closest = equals.min_by_key(|at| at.abs_diff(cell_ns(of, "start_ns")));
            closest.with_context(|| format!("eBPF has no {of:#?}; closest are {near:#?}"))
        };
        let ebpf = (same(first)?, same(last)?);
        println!(
            "eBPF's stamps of the first and last that ftrace saw: {} and {} ns before",
            cell_ns(first, "start_ns").abs_diff(ebpf.0),
            cell_ns(last, "start_ns").abs_diff(ebpf.1)
        );
        Ok(Self { ebpf, ftrace: (cell_ns(first, "start_ns"), cell_ns(last, "start_ns")) })
    }
}

/// Rows within that time, as texts of these columns, counted.
fn count_rows(all: &[Row], window: (u64, u64), columns: &[&str]) -> BTreeMap<Vec<String>, i64> {
    let mut counts = BTreeMap::new();
    for row in all.iter().filter(|row| is_within(row, window)) {
        let key = columns.iter().map(|c| cell(row, c).to_owned()).collect();
        *counts.entry(key).or_default() += 1;
    }
    counts
}

/// Rows that only one of them has.
fn differences(a: &BTreeMap<Vec<String>, i64>, b: &BTreeMap<Vec<String>, i64>) -> Vec<String> {
    let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let of = |map: &BTreeMap<Vec<String>, i64>, key: &Vec<String>| map.get(key).copied().unwrap_or(0);
    let differs = keys.into_iter().filter(|key| of(a, key) != of(b, key));
    differs.map(|key| format!("{} against {} times {key:?}", of(a, key), of(b, key))).collect()
}

/// Tables of one run, as seen by eBPF and by ftrace.
struct Both {
    commands: (Vec<Row>, Vec<Row>),
    spans: (Vec<Row>, Vec<Row>),
    links: (Vec<Row>, Vec<Row>),
}

impl Both {
    fn recorded(guest: &mut Guest, program: &str) -> Result<Self> {
        run_shell(guest, "mount -t tracefs none /sys/kernel/tracing 2>/dev/null; rm -rf /e.fathom /f.fathom")?;
        run_shell(
            guest,
            &format!(
                "/fathom record --quiet --no-probe-cost --backend ebpf --probes uprobe -o /e.fathom -- \\
                 /fathom record --quiet --backend ftrace -o /f.fathom -- {program}"
            ),
        )?;
        let directory = tempfile::tempdir()?;
        let mut fetch = |name: &str| guest.fetch(name, directory.path());
        let (ebpf, ftrace) = (fetch("/e.fathom")?, fetch("/f.fathom")?);
        let both = |table: &str| -> Result<(Vec<Row>, Vec<Row>)> { Ok((rows(&ebpf, table)?, rows(&ftrace, table)?)) };
        Ok(Self { commands: both("driver_commands")?, spans: both("spans")?, links: both("links")? })
    }
}

/// Medium errors, commands that the device never answers, and the kernel's reaction to them (it retries, requests sense, resets): both
/// report the same, command by command.
pub fn both_backends_agree_on_errors_and_timeouts() -> Result<()> {
    let modules = vec!["scsi_debug".into()];
    let config = Config { modules, files: vec![(fathom(), "/fathom".into())], ..Config::default() };
    let mut guest = Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?;
    let find = "for d in /sys/block/sd*; do grep -q scsi_debug $d/device/model && basename $d; done";
    let name = run_shell(&mut guest, find)?.trim().to_string();
    // Block 4660 of 512 bytes is bad; from then on every third command is not answered within the second that the kernel waits; at last
    // none is for some seconds, so that one times out again after it was aborted, which wakes the error handler.
    let options = "/sys/bus/pseudo/drivers/scsi_debug";
    let read = |skip: u32| format!("dd if=/dev/{name} of=/dev/null bs=4096 iflag=direct count=4 skip={skip}");
    let script = format!(
        "echo 2 >{options}/opts\n{}\n{}\necho 1 >/sys/block/{name}/device/timeout\necho 4 >{options}/opts\necho 3 >{options}/every_nth\n{}\n\
         echo 1 >{options}/every_nth\n(sleep 6; echo 0 >{options}/every_nth) &\n{}\nwait\necho 0 >{options}/opts\n{}\ntrue\n",
        read(0),
        read(582),
        read(16),
        read(48),
        read(32)
    );
    run_shell(&mut guest, &format!("cat >/errors.sh <<'END'\n{script}END"))?;
    let Both { commands: (commands, other), spans: (spans, others), .. } = Both::recorded(&mut guest, "sh /errors.sh")?;
    let seen = Windows::span_window(&spans, &others)?;
    let columns = ["protocol", "name", "lba", "blocks", "bytes", "error", "timed_out"];
    // This kernel's event, 6.1, has the SCSI status but no sense data; eBPF reads that from the command.
    let status = |row: &Row| -> Row {
        let sense = cell(row, "error").ends_with(')');
        let error = if sense { "CHECK CONDITION" } else { cell(row, "error") }.to_owned();
        row.clone().into_iter().chain([("error".to_owned(), error)]).collect()
    };
    let keys: std::collections::BTreeSet<&str> = commands.iter().map(|row| cell(row, "error")).collect();
    ensure!(keys.contains("MEDIUM ERROR (11/00)"), "{keys:?}");
    let (commands, other): (Vec<Row>, Vec<Row>) =
        (commands.iter().map(status).collect(), other.iter().map(status).collect());
    let (truth, ours) = (count_rows(&commands, seen.ebpf, &columns), count_rows(&other, seen.ftrace, &columns));
    let wrong = differences(&truth, &ours);
    ensure!(wrong.is_empty(), "eBPF against ftrace: {wrong:#?}");
    let of = |is: &dyn Fn(&Row) -> bool| other.iter().filter(|row| is(row)).count();
    let (bad, late) = (of(&|row| cell(row, "error") == "CHECK CONDITION"), of(&|row| cell(row, "timed_out") == "true"));
    // Retries: the same blocks in two commands.
    let again = ours.iter().filter(|(key, _)| !key[2].is_empty()).count();
    println!("{} commands, {bad} medium errors, {late} not answered in time, {again} different", other.len());
    let woken = of(&|row| cell(row, "name").starts_with("error handler of host "));
    ensure!(bad > 0 && late > 0 && woken > 0, "{bad} errors, {late} timeouts, {woken} x the error handler: {ours:#?}");
    Ok(())
}

/// How many errors are forced.
const ERROR_COUNT: usize = 200;

/// Errors of these commands, each with its text in both, and the other commands of the driver meanwhile: the same.
fn same_errors(both: &Both, name: &str, error: &str) -> Result<()> {
    let seen = Windows::span_window(&both.spans.0, &both.spans.1)?;
    let columns = ["protocol", "name", "lba", "blocks", "bytes", "error"];
    // NVMe's event has no size, which only a request of the block layer gives: commands of the admin queue have none.
    let sized = |rows: &[Row]| -> Vec<Row> {
        let of_request = |row: &Row| !cell(row, "lba").is_empty();
        let without = |row: &Row| row.clone().into_iter().chain([("bytes".to_owned(), String::new())]).collect();
        rows.iter().map(|row| if of_request(row) { row.clone() } else { without(row) }).collect()
    };
    let (truth, ours) = (
        count_rows(&sized(&both.commands.0), seen.ebpf, &columns),
        count_rows(&sized(&both.commands.1), seen.ftrace, &columns),
    );
    let wrong = differences(&truth, &ours);
    ensure!(wrong.is_empty(), "eBPF against ftrace: {wrong:#?}");
    for (backend, rows) in [("eBPF", &both.commands.0), ("ftrace", &both.commands.1)] {
        let of = |row: &&Row| cell(row, "name") == name && cell(row, "error") == error;
        let errors = rows.iter().filter(of).count();
        println!("{backend}: {} commands, {errors} x {name}: {error}", rows.len());
        let all: std::collections::BTreeSet<_> =
            rows.iter().map(|row| (cell(row, "name"), cell(row, "error"))).collect();
        ensure!(errors == ERROR_COUNT, "{backend} has {errors} of {ERROR_COUNT} errors: {all:?}");
    }
    Ok(())
}

/// Reads of a bad sector of an NVMe disk, which fail; then its controller is reset, which shows in the commands that set it up again.
pub fn nvme_errors() -> Result<()> {
    let disk = Disk { name: "data".into(), bus: Bus::Nvme, bytes: 128 << 20, ext4: false };
    let bad = BTreeMap::from([("data".to_string(), vec![4660])]);
    let config =
        Config { disks: vec![disk], bad_sectors: bad, files: vec![(fathom(), "/fathom".into())], ..Config::default() };
    let mut guest = Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?;
    // Otherwise the kernel would retry each one.
    run_shell(&mut guest, "echo 0 >/sys/module/nvme_core/parameters/max_retries")?;
    let read =
        |skip: u32| format!("dd if=/dev/disk/data of=/dev/null bs=4096 iflag=direct count=1 skip={skip} 2>/dev/null");
    // Block 582 of 4096 bytes contains the bad block of 512.
    let script = format!(
        "{good}\ni=0 failed=0\nwhile [ $i -lt {ERROR_COUNT} ]; do\n  {bad} || failed=$((failed + 1))\n  i=$((i + 1))\ndone\n\
         echo $failed >/failed\necho 1 >/sys/class/nvme/nvme0/reset_controller\n{good}\n",
        good = read(0),
        bad = read(582),
    );
    run_shell(&mut guest, &format!("cat >/errors.sh <<'END'\n{script}END"))?;
    let both = Both::recorded(&mut guest, "sh /errors.sh")?;
    let failed = run_shell(&mut guest, "cat /failed")?;
    ensure!(failed.trim() == ERROR_COUNT.to_string(), "{failed} reads failed");
    same_errors(&both, "Read", "Unrecovered Read Error (2/81)")?;
    for (backend, rows) in [("eBPF", &both.commands.0), ("ftrace", &both.commands.1)] {
        let queues = rows.iter().filter(|row| cell(row, "name") == "Create I/O Submission Queue").count();
        ensure!(queues > 0, "{backend} tells nothing of the reset");
    }
    Ok(())
}

/// Writes that a disk does not answer in time: the driver aborts some and then resets the controller. No event reports the timeout; the
/// driver's reaction shows in its own commands. QEMU's disk completes requests in flight before it is reset, so no write fails.
pub fn nvme_timeouts() -> Result<()> {
    const WRITER_COUNT: usize = 8;
    let disk = Disk { name: "data".into(), bus: Bus::Nvme, bytes: 128 << 20, ext4: false };
    let slow = BTreeMap::from([("data".to_string(), 1024)]);
    let config = Config {
        disks: vec![disk],
        write_bytes_per_s: slow,
        files: vec![(fathom(), "/fathom".into())],
        ..Config::default()
    };
    let mut guest = Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?;
    // The disk accepts a write every four seconds, so that an aborted one is still there when its time is over again. None is retried.
    run_shell(
        &mut guest,
        "echo 0 >/sys/module/nvme_core/parameters/max_retries; echo 3000 >/sys/block/nvme0n1/queue/io_timeout",
    )?;
    let script = format!(
        "i=0; rm -f /failed; while [ $i -lt {WRITER_COUNT} ]; do\n  \
         (dd if=/dev/zero of=/dev/disk/data bs=4096 oflag=direct conv=notrunc count=1 seek=$((i * 8)) 2>/dev/null || echo $i >>/failed) &\n  \
         i=$((i + 1))\ndone\nwait\ndd if=/dev/disk/data of=/dev/null bs=4096 iflag=direct count=1\n"
    );
    run_shell(&mut guest, &format!("cat >/errors.sh <<'END'\n{script}END"))?;
    let both = Both::recorded(&mut guest, "sh /errors.sh")?;
    let failed = run_shell(&mut guest, "touch /failed; cat /failed")?.lines().count();
    let messages = run_shell(&mut guest, "dmesg | grep nvme0")?;
    let told = |what: &str| messages.lines().filter(|line| line.contains(what)).count();
    let (late, resets) = (told("timeout, aborting"), told("timeout, reset controller"));
    println!("the kernel says: {late} timeouts that it aborts, {resets} that it resets the controller for");
    ensure!(late > 0 && resets > 0, "{messages}");
    let seen = Windows::span_window(&both.spans.0, &both.spans.1)?;
    let columns = ["name", "lba", "blocks", "error"];
    let (truth, ours) =
        (count_rows(&both.commands.0, seen.ebpf, &columns), count_rows(&both.commands.1, seen.ftrace, &columns));
    let wrong = differences(&truth, &ours);
    ensure!(wrong.is_empty(), "eBPF against ftrace: {wrong:#?}");
    for (backend, rows) in [("eBPF", &both.commands.0), ("ftrace", &both.commands.1)] {
        let of = |is: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| is(row)).count();
        let errors = of(&|row| cell(row, "name") == "Write" && !cell(row, "error").is_empty());
        let aborts = of(&|row| cell(row, "name") == "Abort");
        let queues = of(&|row| cell(row, "name") == "Create I/O Submission Queue");
        println!(
            "{backend}: {failed} of {WRITER_COUNT} writes failed, {errors} errors, {aborts} aborts, {queues} queues made again"
        );
        ensure!(errors == failed, "{backend}: {failed} writes failed, {errors} are told: {ours:#?}");
        ensure!(aborts == late && queues > 0, "{backend}: {aborts} aborts of {late}, {queues} queues: {ours:#?}");
    }
    Ok(())
}

/// Commands that the SD card does not know, and so never answers; reads beyond its end, which its status reports; and rebinding its
/// controller's driver, which sets the card up from the start.
pub fn mmc_errors() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = directory.path().join("mmc_errors");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/mmc_errors.c");
    let built = std::process::Command::new("cc").args(["-O1", "-Wall", "-o"]).arg(&program).arg(source).status()?;
    ensure!(built.success(), "mmc_errors.c does not compile");
    let disk = Disk { name: "data".into(), bus: Bus::Sd, bytes: 128 << 20, ext4: false };
    let files = vec![(fathom(), "/fathom".into()), (program, "/mmc_errors".into())];
    let config = Config { disks: vec![disk], files, ..Config::default() };
    let mut guest = Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?;
    let read = "dd if=/dev/disk/data of=/dev/null bs=4096 iflag=direct count=1";
    let again = "cd /sys/bus/pci/drivers/sdhci-pci; for d in 0000:*; do echo $d >unbind; echo $d >bind; done; cd /\n\
                 until [ -b /dev/mmcblk0 ]; do sleep 0.1; done";
    let script = format!(
        "{read}\nfor how in unknown beyond; do /mmc_errors /dev/disk/data {ERROR_COUNT} $how >>/failed; done\n\
         {read} skip=8\n{again}\n{read} skip=16\n"
    );
    run_shell(&mut guest, &format!("cat >/errors.sh <<'END'\n{script}END"))?;
    let both = Both::recorded(&mut guest, "sh /errors.sh")?;
    let failed = run_shell(&mut guest, "cat /failed")?;
    ensure!(failed == format!("{ERROR_COUNT}\n{ERROR_COUNT}\n"), "{failed} commands failed");
    same_errors(&both, "CMD60", "command: ETIMEDOUT: no answer in time")?;
    same_errors(&both, "CMD17 READ_SINGLE_BLOCK", "card status: ADDRESS_ERROR")?;
    for (backend, rows) in [("eBPF", &both.commands.0), ("ftrace", &both.commands.1)] {
        let resets = rows.iter().filter(|row| cell(row, "name") == "CMD0 GO_IDLE_STATE").count();
        ensure!(resets > 0, "{backend} tells nothing of the card's reset");
    }
    Ok(())
}

fn backends_agree(bus: Bus) -> Result<()> {
    let disk = Disk { name: "data".into(), bus, bytes: 128 << 20, ext4: true };
    let config = Config { disks: vec![disk], files: vec![(fathom(), "/fathom".into())], ..Config::default() };
    let mut guest = Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?;
    run_shell(&mut guest, "mount -t ext4 /dev/disk/data /mnt && sync")?;
    let both = Both::recorded(&mut guest, "/fathom workload sqlite --op insert --rows 25 --dir /mnt")?;
    let Both { commands: (commands, other), spans: (spans, others), links: (links, others_links) } = both;
    // eBPF started before ftrace, and ended after it: the comparison covers what both saw, from ftrace's first to its last
    // span of a disk.
    let seen = Windows::span_window(&spans, &others)?;
    let wrong = differences(
        &count_rows(&commands, seen.ebpf, &["protocol", "name", "lba", "blocks", "bytes", "error"]),
        &count_rows(&other, seen.ftrace, &["protocol", "name", "lba", "blocks", "bytes", "error"]),
    );
    ensure!(wrong.is_empty(), "driver's commands, eBPF against ftrace: {wrong:#?}");
    ensure!(other.len() >= 100, "only {} commands", other.len());
    let linked = |all: &[Row], window| {
        all.iter().filter(|row| is_within(row, window)).filter(|row| !cell(row, "command").is_empty()).count()
    };
    let (exact, placed) = (linked(&commands, seen.ebpf), linked(&other, seen.ftrace));
    println!("{} commands; linked {exact} by eBPF, {placed} by ftrace", other.len());
    ensure!(placed * 100 >= exact * 99, "ftrace links {placed} of {exact} commands");
    let sure =
        other.iter().filter(|row| !cell(row, "command").is_empty()).all(|row| cell(row, "confidence") == "address");
    ensure!(sure, "a link by place is called something else than address");

    let columns = ["layer", "kind", "disk", "sector", "bytes"];
    let disks = |all: &[Row]| -> Vec<Row> { all.iter().filter(|row| of_disk(row)).cloned().collect() };
    let wrong = differences(
        &count_rows(&disks(&spans), seen.ebpf, &columns),
        &count_rows(&disks(&others), seen.ftrace, &columns),
    );
    ensure!(wrong.is_empty(), "bios, requests and commands: {wrong:#?}");
    // Links between them, by what they join: the same number as eBPF's, except for one in a hundred.
    let joins = |spans: &[Row], links: &[Row], window| -> BTreeMap<Vec<String>, i64> {
        let by_id: BTreeMap<&str, &Row> = spans.iter().map(|row| (cell(row, "id"), row)).collect();
        let mut counts = BTreeMap::new();
        for link in links {
            let (Some(a), Some(b)) = (by_id.get(cell(link, "parent")), by_id.get(cell(link, "child"))) else {
                continue;
            };
            if is_within(a, window) && is_within(b, window) && of_disk(b) {
                let end = |row: &Row| ["layer", "kind", "sector", "bytes"].map(|c| cell(row, c).to_owned());
                let key = [&end(a)[..], &end(b)[..], &[cell(link, "relation").to_owned()]].concat();
                *counts.entry(key).or_default() += 1;
            }
        }
        counts
    };
    let (truth, ours) = (joins(&spans, &links, seen.ebpf), joins(&others, &others_links, seen.ftrace));
    let total: i64 = truth.values().sum();
    let again: i64 = truth.iter().map(|(key, n)| (*n).min(ours.get(key).copied().unwrap_or(0))).sum();
    println!("{again} of eBPF's {total} links are made again");
    ensure!(total > 100 && again * 100 >= total * 99, "{again} of {total}: {:#?}", differences(&truth, &ours));
    Ok(())
}

pub fn both_backends_agree_on_scsi_commands() -> Result<()> {
    backends_agree(Bus::Scsi)
}

pub fn both_backends_agree_on_nvme_commands() -> Result<()> {
    backends_agree(Bus::Nvme)
}

pub fn both_backends_agree_on_mmc_commands() -> Result<()> {
    backends_agree(Bus::Sd)
}
