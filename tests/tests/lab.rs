//! The main path on another kernel: Debian's stock one, in a QEMU guest. There ext4 and jbd2 are modules, tracepoints
//! of modules cannot be reached as those of the kernel itself, and the kernel is years older than the one this runs on.
//!
//! With FATHOM_KEEP_ARCHIVE=FOLDER the recording is left there: so were the archives in `tests/archives` made.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, lane, near, number, shape};
use lab::guest::{Bus, Config, Disk, Guest};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const ROWS: f64 = 25.0;

fn main() -> ExitCode {
    let needs = || installed("qemu-system-x86_64").and_then(|()| installed("apt-get"));
    let cases: Vec<Case> = vec![
        ("an_insert_on_debians_kernel_virtio", needs(), || insert(Bus::Virtio)),
        ("an_insert_on_debians_kernel_scsi", needs(), || insert(Bus::Scsi)),
    ];
    lane(cases)
}

fn insert(bus: Bus) -> Result<()> {
    let disk = Disk { name: "data".into(), bus, bytes: 128 << 20, ext4: true };
    let config = Config { disks: vec![disk], files: vec![(fathom(), "/fathom".into())], ..Config::default() };
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/lab");
    let mut guest = Guest::boot(&config, &cache)?;
    let load = format!("/fathom workload sqlite --op insert --rows {ROWS} --dir /mnt");
    let mut run = |command: &str| -> Result<String> {
        let output = guest.run(command, Duration::from_secs(240))?;
        ensure!(output.status == 0, "{command}: {output:?}");
        Ok(output.stdout)
    };
    run("mount -t ext4 /dev/disk/data /mnt")?;
    run(&format!("/fathom record --quiet -o /t.fathom -- {load}"))?;
    let summary: serde_json::Value =
        serde_json::from_str(&run("/fathom show --json /t.fathom")?).context("show --json")?;

    if let Some(folder) = std::env::var_os("FATHOM_KEEP_ARCHIVE") {
        guest.fetch("/t.fathom", Path::new(&folder))?;
    }

    let blind: Vec<String> = summary["coverage"]
        .as_array()
        .context("coverage")?
        .iter()
        .filter(|c| c["attached"] == false)
        .map(|c| format!("{}: {}", c["probe"], c["how"]))
        .collect();
    let insert = shape(&summary, "INSERT")?;
    let context = || format!("{insert:#}\nblind: {blind:#?}");
    near("INSERTs", number(insert, "/count")?, ROWS)?;
    near("fsyncs", number(insert, "/per_operation/fsyncs")?, 4.0).with_context(context)?;
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
