//! Helpers shared by the tests through the binary: the binary itself, a private disk, and the skipping of a test that
//! cannot run here.

pub mod bench;
pub mod contracts;
pub mod fleets;
pub mod perfetto;
pub mod phone;
pub mod pool;
pub mod service;
pub mod silent_connections;
pub mod sshd;
pub mod tmpfs;
pub mod truth;

use anyhow::{Context, Result, bail, ensure};
use lab::loopdisk::{Backing, FileSystem, LoopDisk, Options};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

/// A test, or why it cannot run here.
pub type Case = (&'static str, Result<(), String>, fn() -> Result<()>);

/// Runs a suite. A test that cannot run is counted as ignored, and its reason printed as `SKIP name: reason`. A case
/// whose name begins with `long::` runs only on request (`cargo xtask long`).
pub fn run_suite(cases: Vec<Case>) -> ExitCode {
    // Recordings see the whole machine's device commands; one at a time keeps them apart.
    run_suite_in_parallel(cases, 1)
}

/// The same with several cases at a time, for cases that wait more than they compute and have their own network.
pub fn run_suite_in_parallel(cases: Vec<Case>, side_by_side: usize) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(side_by_side);
    let trials = cases
        .into_iter()
        .map(|(name, needs, run)| {
            let long = name.starts_with("long::");
            let skip = move || needs.as_ref().err().map(|reason| println!("SKIP {name}: {reason}")).is_some();
            let ignored = long || skip();
            let test = move || if long && skip() { Ok(()) } else { run().map_err(|e| Failed::from(format!("{e:#}"))) };
            Trial::test(name, test).with_ignored_flag(ignored)
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Whether this process may load BPF programs and make disks.
pub fn root() -> Result<(), String> {
    lab::privilege::live_kernel().map_err(|why| why.to_string())
}

/// Whether `program` is installed.
pub fn installed(program: &str) -> Result<(), String> {
    let found = std::env::var_os("PATH").is_some_and(|p| std::env::split_paths(&p).any(|d| d.join(program).is_file()));
    found.then_some(()).ok_or_else(|| format!("{program} is not installed"))
}

/// Waits until `so` holds, for at most two minutes.
pub fn wait_until(what: &str, so: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_until_within(Duration::from_secs(120), what, so)
}

/// Waits until `so` holds. The limit only serves to end a test that hangs.
pub fn wait_until_within(limit: Duration, what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !so()? {
        ensure!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Makes the kernel prefer processes that this thread starts from now on: for findings that are a share of the time, which would be hidden
/// by waiting for a CPU. Without the privilege, nothing changes.
pub fn raise_priority() {
    // SAFETY: a plain system call; `who` 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
}

/// The binary under test: FATHOM, or target/release/fathom.
pub fn fathom() -> PathBuf {
    std::env::var_os("FATHOM")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/fathom"), PathBuf::from)
}

/// Runs a command to its end; an exit status other than 0 is an error that shows its output.
pub fn run(command: &mut Command) -> Result<Output> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

/// A quiet ext4 disk in RAM.
pub fn ext4() -> Result<LoopDisk> {
    Ok(LoopDisk::create(256 << 20, FileSystem::Ext4, &Backing::Ram, &Options::default())?)
}

/// Records `argv` into an archive in `directory`, which should not be on the disk under test.
pub fn record(directory: &Path, options: &[&str], argv: &[&str]) -> Result<PathBuf> {
    let archive = directory.join("t.fathom");
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet", "-o"]).arg(&archive).args(options);
    run(command.arg("--").args(argv))?;
    Ok(archive)
}

/// `fathom show --json`.
pub fn show(archive: &Path) -> Result<Value> {
    let output = run(Command::new(fathom()).args(["show", "--json"]).arg(archive))?;
    serde_json::from_slice(&output.stdout).context("show --json")
}

/// The operations whose statement begins with `verb`; they must have exactly one shape.
pub fn shape_of<'a>(summary: &'a Value, verb: &str) -> Result<&'a Value> {
    let all = summary["operations"].as_array().context("operations[]")?;
    let all: Vec<&Value> = all.iter().filter(|o| o["kind"] != "mark").collect();
    let found: Vec<&Value> = all
        .iter()
        .copied()
        .filter(|o| o["statement"].as_str().is_some_and(|s| s.to_uppercase().starts_with(verb)))
        .collect();
    match found[..] {
        [one] => Ok(one),
        _ => bail!(
            "{} shapes begin with {verb}: {:?}",
            found.len(),
            all.iter().map(|o| &o["statement"]).collect::<Vec<_>>()
        ),
    }
}

/// A number of the contract.
pub fn number(value: &Value, path: &str) -> Result<f64> {
    value.pointer(path).and_then(Value::as_f64).with_context(|| format!("{path} is not in {value}"))
}

/// Processes of a cell with a result, including disturbed ones, which are left out of the estimate.
pub fn measured_processes(result: &Value) -> Result<f64> {
    Ok(number(result, "/processes")? + number(result, "/left_out")?)
}

/// Records that were made and lost. If a kernel does not run a probe, no record was made: this was seen on a virtual machine for
/// completions that interrupt its first process, and their number is not an error.
pub fn records_lost(summary: &Value) -> Result<f64> {
    let all = summary["loss"]["intervals"].as_array().context("loss/intervals[]")?;
    Ok(all.iter().filter(|i| i["source"] != "probe not run").filter_map(|i| i["events"].as_f64()).sum())
}

/// Records that did not fit into the rings: the recorder had no CPU for too long.
fn overflowed_records(summary: &Value) -> Result<f64> {
    let all = summary["loss"]["intervals"].as_array().context("loss/intervals[]")?;
    Ok(all.iter().filter(|i| i["source"] == "ring buffer full").filter_map(|i| i["events"].as_f64()).sum())
}

/// Makes a recording whose rings lost nothing, and returns its summary. On a machine that leaves the recorder no CPU they overflow, which
/// is no fault of the recorded program (`losses_are_reported` tests that it is counted): then the recording is repeated, at most three
/// times. All other losses are for the test to judge.
pub fn recorded_whole(mut make: impl FnMut() -> Result<PathBuf>) -> Result<(PathBuf, Value)> {
    let mut lost = Vec::new();
    for _ in 0..3 {
        let archive = make()?;
        let summary = show(&archive)?;
        match overflowed_records(&summary)? {
            0.0 => return Ok((archive, summary)),
            records => lost.push(records),
        }
    }
    bail!("each of three recordings lost records of full rings: {lost:?}; is a CPU free for the recorder?")
}

/// Asserts that a mean over operations equals an independent count.
pub fn assert_near(what: &str, ours: f64, truth: f64) -> Result<()> {
    ensure!((ours - truth).abs() < 1e-6, "{what}: we say {ours}, the truth is {truth}");
    Ok(())
}

/// The rows of a table of an archive, from CSV: the columns used here contain no commas.
pub fn rows(archive: &Path, table: &str) -> Result<Vec<BTreeMap<String, String>>> {
    let directory = tempfile::tempdir()?;
    run(Command::new(fathom()).args(["export", "--csv"]).arg(archive).arg("-o").arg(directory.path().join("csv")))?;
    let text = std::fs::read_to_string(directory.path().join("csv").join(format!("{table}.csv")))?;
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().context("no header")?.split(',').collect();
    Ok(lines.map(|l| names.iter().map(ToString::to_string).zip(l.split(',').map(str::to_string)).collect()).collect())
}

/// The data that a page draws.
pub fn page_data(page: &Path) -> Result<Value> {
    let page = std::fs::read_to_string(page)?;
    let (_, after) = page.split_once("<script type=\"application/json\" id=\"data\">").context("no data")?;
    Ok(serde_json::from_str(after.split_once("</script>").context("no end of the data")?.0)?)
}
