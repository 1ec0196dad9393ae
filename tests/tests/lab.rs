//! The main path on another kernel: Debian's stock one, in a QEMU guest. There ext4 and jbd2 are modules, tracepoints
//! of modules are reached differently from those of the kernel itself, and the kernel is years older than this
//! machine's.
//!
//! With FATHOM_KEEP_ARCHIVE=DIRECTORY the recording is left there: this is how the archives in `tests/archives` were made.

#[path = "lab/abnormal.rs"]
mod abnormal;
#[path = "lab/attach.rs"]
mod attach;
#[path = "lab/backends.rs"]
mod backends;
#[path = "lab/congestion.rs"]
mod congestion;
#[path = "lab/device.rs"]
mod device;
#[path = "lab/driver.rs"]
mod driver;
#[path = "lab/netem.rs"]
mod netem;
#[path = "lab/scenario.rs"]
mod scenario;
#[path = "lab/stock.rs"]
mod stock;

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, assert_near, fathom, installed, number, run_suite, shape_of};
use lab::guest::{Bus, Config, Disk, Guest};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const ROW_COUNT: f64 = 25.0;

fn main() -> ExitCode {
    let needs = || installed("qemu-system-x86_64").and_then(|()| installed("apt-get"));
    let cases: Vec<Case> = vec![
        ("long::insert_is_followed_on_debian_virtio", needs(), || insert("virtio")),
        ("long::insert_is_followed_on_debian_scsi", needs(), || insert("data")),
        ("scsi_commands_match_kernel_events", needs(), driver::scsi_matches_the_kernel),
        ("long::mmc_commands_match_kernel_events", needs(), driver::mmc_matches_the_kernel),
        ("long::nvme_commands_match_kernel_events", needs(), driver::nvme_matches_the_kernel),
        ("long::both_backends_agree_on_scsi_commands", needs(), backends::both_backends_agree_on_scsi_commands),
        ("long::both_backends_agree_on_nvme_commands", needs(), backends::both_backends_agree_on_nvme_commands),
        ("long::both_backends_agree_on_mmc_commands", needs(), backends::both_backends_agree_on_mmc_commands),
        (
            "long::both_backends_agree_on_errors_and_timeouts",
            needs(),
            backends::both_backends_agree_on_errors_and_timeouts,
        ),
        ("long::every_nvme_error_appears_in_both_backends", needs(), backends::nvme_errors),
        ("long::nvme_timeouts_appear_in_both_backends", needs(), backends::nvme_timeouts),
        (
            "long::every_mmc_error_appears_in_both_backends",
            needs().and_then(|()| installed("cc")),
            backends::mmc_errors,
        ),
        ("long::scsi_error_handler_matches_kernel_event", needs(), driver::error_handler),
        ("long::every_disk_error_appears", needs(), driver::every_disk_error_appears),
        ("long::device_mapper_maps_to_disks_below", needs().and_then(|()| installed("dmsetup")), device_mapper),
        ("long::btrfs_f2fs_and_xfs_are_followed_to_device", needs().and_then(|()| all_mkfs()), file_systems),
        (
            "long::pool_attaches_as_disk_on_debian",
            attach::GUEST_PROGRAMS.iter().try_fold((), |(), name| installed(name)).and(needs()),
            attach::a_disk,
        ),
        (
            "long::pool_attached_as_disk_holds_xfs_and_btrfs",
            attach::GUEST_PROGRAMS.iter().try_fold((), |(), name| installed(name)).and(needs()),
            attach::a_disk_with_other_file_systems,
        ),
        (
            "long::emulated_link_agrees_with_netem",
            needs().and_then(|()| installed("tc")),
            netem::emulated_link_agrees_with_netem,
        ),
        (
            "long::congestion_controls_match_kernel_modules",
            needs().and_then(|()| installed("tc")),
            congestion::trajectories_match,
        ),
        ("long::scenario_returns_its_recording_scsi", needs(), scenario::scenario_returns_its_recording_scsi),
        (
            "long::scenario_returns_its_recording_sd_card",
            needs().and_then(|()| installed("mkfs.f2fs")),
            scenario::scenario_returns_its_recording_sd_card,
        ),
        (
            "long::scenario_returns_its_recording_arm64",
            needs().and_then(|()| scenario::can_run_aarch64()),
            scenario::scenario_returns_its_recording_arm64,
        ),
        (
            "long::scenario_returns_its_recording_arm64_sd",
            needs().and_then(|()| scenario::can_run_aarch64()).and_then(|()| installed("mkfs.f2fs")),
            scenario::arm64_mmc,
        ),
        ("long::guest_is_a_network_server", needs(), device::guest_is_a_network_server),
        (
            "long::scenarios_end_as_they_expect",
            needs().and_then(|()| all_mkfs()).and_then(|()| installed("dmsetup")),
            scenario::every_shipped,
        ),
        (
            "long::series_is_compared_in_figure_of_papers",
            needs().and_then(|()| all_mkfs()),
            scenario::series_is_compared_in_figure_of_papers,
        ),
        (
            "long::scenario_with_disk_errors_reports_them",
            needs().and_then(|()| installed("dmsetup")),
            scenario::errors_of_the_disk,
        ),
        ("guest_is_a_device_for_record_and_facts", needs(), device::guest_is_a_device_for_record_and_facts),
        ("long::guest_is_a_device_for_bench_and_net", needs(), device::guest_is_a_device_for_bench_and_net),
        ("long::shell_in_guest_runs_typed_commands", needs(), scenario::shell_in_guest_runs_typed_commands),
        ("crashed_guest_leaves_its_recording", needs(), abnormal::crashed_guest_leaves_its_recording),
        (
            "long::hung_guest_is_ended_and_leaves_its_recording",
            needs(),
            abnormal::hung_guest_is_ended_and_leaves_its_recording,
        ),
        ("ctrl_c_ends_fetching_of_kernel", needs(), abnormal::fetching_is_interrupted),
        ("long::ctrl_c_ends_each_phase_and_leaves_nothing", needs(), abnormal::each_phase_is_interrupted),
        ("long::ctrl_c_stops_guest_and_keeps_recording", needs(), abnormal::ctrl_c_stops_guest_and_keeps_recording),
        ("long::killed_lab_leaves_no_guest", needs(), abnormal::killed_lab_leaves_no_guest),
        ("long::scenario_returns_its_recording_nvme", needs(), scenario::scenario_returns_its_recording_nvme),
        ("long::scenario_returns_its_recording_virtio", needs(), scenario::scenario_returns_its_recording_virtio),
        ("long::settings_apply_and_failing_workload_is_reported", needs(), scenario::failing_workload),
        ("lab_errors_say_what_is_missing", Ok(()), scenario::lab_errors_say_what_is_missing),
        ("stalled_guest_cycles_are_excluded", Ok(()), congestion::stalls_are_left_out),
    ];
    run_suite(cases)
}

/// The tools that make the file systems in the guest.
const MKFS_PROGRAMS: [&str; 4] = ["mkfs.ext4", "mkfs.btrfs", "mkfs.f2fs", "mkfs.xfs"];

fn all_mkfs() -> Result<(), String> {
    MKFS_PROGRAMS.iter().try_for_each(|program| installed(program))
}

fn find_program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|d| d.join(name)).find(|p| p.is_file());
    found.with_context(|| format!("{name} is not installed"))
}

/// A guest with these plain disks of 400 MiB, modules and programs.
fn boot_guest(disks: &[&str], modules: &[&str], programs: &[&str]) -> Result<Guest> {
    let disk = |name: &&str| Disk { name: (*name).into(), bus: Bus::Virtio, bytes: 400 << 20, ext4: false };
    let config = Config {
        disks: disks.iter().map(disk).collect(),
        modules: modules.iter().map(ToString::to_string).collect(),
        programs: programs.iter().map(|name| find_program(name)).collect::<Result<_>>()?,
        files: vec![(fathom(), "/fathom".into())],
        ..Config::default()
    };
    Ok(Guest::boot(&config, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab"))?)
}

fn run_shell(guest: &mut Guest, command: &str) -> Result<String> {
    let output = guest.run(command, Duration::from_secs(240))?;
    ensure!(output.status == 0, "{command}: {output:?}");
    Ok(output.stdout)
}

/// Records INSERTs on the file system mounted at /mnt and unmounts it.
fn record_inserts(guest: &mut Guest, rows: u32) -> Result<Value> {
    run_shell(guest, "sync")?;
    let load = format!("/fathom workload sqlite --op insert --rows {rows} --dir /mnt");
    run_shell(guest, &format!("/fathom record --quiet -o /t.fathom -- {load}"))?;
    let summary = serde_json::from_str(&run_shell(guest, "/fathom show --json /t.fathom")?).context("show --json")?;
    if let Some(directory) = std::env::var_os("FATHOM_KEEP_ARCHIVE") {
        guest.fetch("/t.fathom", Path::new(&directory))?;
    }
    run_shell(guest, "rm -rf /t.fathom; umount /mnt")?;
    Ok(summary)
}

/// A device mapper disk: its table, and the disks below.
struct MappedDisk {
    table: String,
    below: &'static [&'static str],
}

fn device_mapper() -> Result<()> {
    let crypto = ["dm_crypt", "aes_generic", "xts", "ecb", "cbc"];
    let mut guest = boot_guest(&["a", "b"], &crypto, &["dmsetup", "mkfs.ext4"])?;
    let key = "0123456789abcdef".repeat(4);
    let crypt = format!("0 600000 crypt aes-xts-plain64 {key} 0 /dev/disk/a 0");
    let stacks = [
        ("linear", MappedDisk { table: "0 600000 linear /dev/disk/a 2048".into(), below: &["vda"] }),
        (
            "striped",
            MappedDisk { table: "0 600064 striped 2 8 /dev/disk/a 0 /dev/disk/b 0".into(), below: &["vda", "vdb"] },
        ),
        ("crypt", MappedDisk { table: crypt, below: &["vda"] }),
    ];
    for (name, stack) in stacks {
        run_shell(&mut guest, &format!("dmsetup create it --noudevsync --table '{}'", stack.table))?;
        run_shell(
            &mut guest,
            "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 /dev/dm-0 && mount /dev/dm-0 /mnt",
        )?;
        let summary = record_inserts(&mut guest, 10)?;
        all_charged(&summary, &stack).with_context(|| name.to_string())?;
        run_shell(&mut guest, "dmsetup remove --noudevsync it")?;
    }
    // A loop disk on a file system on the mapper on the disk.
    run_shell(&mut guest, "dmsetup create it --noudevsync --table '0 600000 linear /dev/disk/a 0'")?;
    run_shell(&mut guest, "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 /dev/dm-0 && mkdir -p /below")?;
    run_shell(
        &mut guest,
        "mount -o commit=300 /dev/dm-0 /below && dd if=/dev/zero of=/below/f bs=1M count=100 status=none",
    )?;
    run_shell(
        &mut guest,
        "losetup /dev/loop0 /below/f && mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 /dev/loop0",
    )?;
    run_shell(&mut guest, "mount /dev/loop0 /mnt")?;
    let summary = record_inserts(&mut guest, 10)?;
    for (disk, role) in [("loop0", "holds the files"), ("vda", "below")] {
        let context = || format!("{disk}: {:#}", summary["device_commands"]);
        let of = |what: &str| number(&summary, &format!("/device_commands/by_disk/{disk}/{what}"));
        ensure!(
            summary.pointer(&format!("/device_commands/by_disk/{disk}/role")) == Some(&role.into()),
            "{}",
            context()
        );
        ensure!(of("total")? >= 40.0, "too few: {}", context());
        assert_near("unattributed", of("unattributed")?, 0.0).with_context(context)?;
    }
    Ok(())
}

/// Every command below belongs to the INSERTs or their program, all of them count, and the origin of the clones is known
/// exactly.
fn all_charged(summary: &Value, stack: &MappedDisk) -> Result<()> {
    let context = || format!("{:#}\n{:#}", summary["device_commands"], summary["links"]);
    assert_near("INSERTs", number(shape_of(summary, "INSERT")?, "/count")?, 10.0)?;
    let mut total = 0.0;
    for disk in stack.below {
        let of = |what: &str| number(summary, &format!("/device_commands/by_disk/{disk}/{what}"));
        ensure!(of("total")? >= 10.0, "{disk} did nothing: {}", context());
        assert_near("unattributed", of("unattributed")?, 0.0).with_context(context)?;
        total += of("total")?;
    }
    assert_near("all commands", number(summary, "/device_commands/total")?, total).with_context(context)?;
    ensure!(number(summary, "/relations/remaps")? >= total / 2.0, "no way down: {}", context());
    assert_near("links by address", number(summary, "/links/address")?, 0.0).with_context(context)?;
    let flushes = number(shape_of(summary, "INSERT")?, "/per_operation/flushes")?;
    // A flush goes to every disk below.
    ensure!(flushes > 3.0 * stack.below.len() as f64, "{flushes} flushes an INSERT: {}", context());
    Ok(())
}

fn file_systems() -> Result<()> {
    let mut guest = boot_guest(&["a"], &["btrfs", "f2fs", "xfs", "crc32_generic"], &MKFS_PROGRAMS)?;
    // The minimum of commits that an INSERT waits for: on f2fs the sync of a directory needs a checkpoint; on XFS the new
    // journal and the database's inode are in the log; btrfs writes its tree log instead.
    for (name, make, commits, probe) in [
        ("f2fs", "mkfs.f2fs -q -f /dev/disk/a", 1.0, "f2fs_checkpoint"),
        ("btrfs", "mkfs.btrfs -q -f /dev/disk/a", 0.0, "btrfs_committed"),
        ("xfs", "mkfs.xfs -q -f /dev/disk/a", 2.0, "xfs_logged"),
    ] {
        run_shell(&mut guest, &format!("{make} >/dev/null && mount -t {name} /dev/disk/a /mnt"))?;
        let summary = record_inserts(&mut guest, 10)?;
        let context = || format!("{name}: {:#}\n{:#}", summary["device_commands"], summary["links"]);
        assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 10.0).with_context(context)?;
        let rows = summary["coverage"].as_array().context("coverage")?;
        let row = rows.iter().find(|r| r["probe"] == probe).with_context(|| format!("no {probe} in {rows:#?}"))?;
        ensure!(row["attached"] == true, "{row:#}");
        let waited = number(shape_of(&summary, "INSERT")?, "/per_operation/journal_commits")?;
        ensure!(waited >= commits, "{waited} commits an INSERT: {}", context());
        ensure!(number(&summary, "/device_commands/total")? >= 20.0, "{}", context());
        assert_near("unattributed", number(&summary, "/device_commands/unattributed")?, 0.0).with_context(context)?;
        let fsyncs = number(shape_of(&summary, "INSERT")?, "/per_operation/fsyncs")?;
        let flushes = number(shape_of(&summary, "INSERT")?, "/per_operation/flushes")?;
        ensure!(fsyncs >= 3.0 && flushes > 1.0, "{fsyncs} fsyncs, {flushes} flushes: {}", context());
    }
    Ok(())
}

fn insert(disk: &str) -> Result<()> {
    stock::with_stock_guest(|guest| insert_on(guest, disk))
}

fn insert_on(guest: &mut Guest, disk: &str) -> Result<()> {
    let load = format!("/fathom workload sqlite --op insert --rows {ROW_COUNT} --dir /mnt");
    run_shell(guest, &format!("mount -t ext4 /dev/disk/{disk} /mnt"))?;
    run_shell(guest, &format!("/fathom record --quiet -o /t.fathom -- {load}"))?;
    let summary: Value =
        serde_json::from_str(&run_shell(guest, "/fathom show --json /t.fathom")?).context("show --json")?;

    if let Some(directory) = std::env::var_os("FATHOM_KEEP_ARCHIVE") {
        guest.fetch("/t.fathom", Path::new(&directory))?;
    }
    run_shell(guest, "rm -rf /t.fathom; umount /mnt")?;

    let blind: Vec<String> = summary["coverage"]
        .as_array()
        .context("coverage")?
        .iter()
        .filter(|c| c["attached"] == false)
        .map(|c| format!("{}: {}", c["probe"], c["how"]))
        .collect();
    let insert = shape_of(&summary, "INSERT")?;
    let context = || format!("{insert:#}\nblind: {blind:#?}");
    assert_near("INSERTs", number(insert, "/count")?, ROW_COUNT)?;
    assert_near("fsyncs", number(insert, "/per_operation/fsyncs")?, 4.0).with_context(context)?;
    ensure!(number(insert, "/per_operation/filesystem_writes/rollback journal/count")? > 0.0, "{}", context());
    ensure!(
        number(insert, "/per_operation/journal_commits")? > 0.0,
        "no commit of jbd2, a module there: {}",
        context()
    );
    ensure!(number(insert, "/per_operation/flushes")? > 0.0, "no flush: {}", context());
    let layers = insert["layers"].as_object().context("layers")?;
    let sum: f64 = layers.values().filter_map(|l| l["exclusive_ns"].as_f64()).sum();
    let latency = number(insert, "/latency_ns/sum")?;
    ensure!((sum - latency).abs() <= latency * 0.01, "the layers take {sum} ns of {latency} ns");
    Ok(())
}
