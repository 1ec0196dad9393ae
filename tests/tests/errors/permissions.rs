//! What a user may not do, or a system lacks: the message names it.

use super::{copy_archive, messages, output_of};
use anyhow::{Context as _, Result, ensure};
use fathom_tests::{assert_near, ext4, fathom, number, run, shape_of, show};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The program as run by the user nobody without any capability, in this directory and from a copy in it.
fn as_nobody(directory: &Path) -> Result<Command> {
    let copy = directory.join("fathom");
    fs::copy(fathom(), &copy)?;
    run(Command::new("chmod").args(["-R", "a+rwx"]).arg(directory))?;
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"])
        .arg(&copy)
        .current_dir(directory);
    Ok(command)
}

pub fn demo_unprivileged() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let output = output_of(as_nobody(directory.path())?.args(["demo", "--rows", "7", "--scans", "3"]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}: {text}{}", output.status, messages(&output));
    let (reason, rest) = text.split_once("==== Sample recording: ").context("no sample is shown")?;
    ensure!(reason.contains("CAP_BPF") && reason.contains("sudo"), "it does not say how to get there: {reason}");
    let (sample, measured) = rest.split_once("==== This machine, untraced").context("nothing is measured")?;
    ensure!(sample.contains("INSERT INTO t VALUES (?, ?)") && sample.contains("\nNo losses"), "{sample}");
    ensure!(measured.contains("INSERT        7 times: median "), "{measured}");
    ensure!(measured.contains("SELECT        3 times: median "), "{measured}");
    let made = |name: &str| directory.path().join(name).exists();
    ensure!(made("sample.fathom") && made("sample.html") && made("sample.pftrace"), "not all of the sample is there");
    ensure!(!made("demo.fathom") && !made("demo.html"), "the sample must not look like a recording of this machine");
    Ok(())
}

pub fn without_root() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let output = output_of(as_nobody(directory.path())?.args(["record", "--", "true"]))?;
    ensure!(output.status.code() == Some(1), "{:?}", output.status);
    let messages = messages(&output);
    ensure!(messages.contains("root") && messages.contains("CAP_BPF"), "{messages}");
    ensure!(!directory.path().join("trace.fathom").exists(), "an archive was left behind");
    Ok(())
}

/// Runs `script` in a mount namespace; `$0` is the program, `$1` an empty directory.
fn with_mounts(script: &str, directory: &Path) -> Result<Output> {
    let empty = directory.join("empty");
    fs::create_dir_all(&empty)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", script]).arg(fathom()).arg(&empty).current_dir(directory);
    output_of(&mut command)
}

pub fn without_btf() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let output = with_mounts("mount --bind $1 /sys/kernel/btf; $0 record --backend ebpf -- true", directory.path())?;
    let refused = messages(&output);
    ensure!(output.status.code() == Some(1), "{:?}: {refused}", output.status);
    ensure!(refused.contains("CONFIG_DEBUG_INFO_BTF") && refused.contains("/sys/kernel/btf/vmlinux"), "{refused}");
    ensure!(!directory.path().join("trace.fathom").exists(), "an archive was left behind");
    // Without an explicit request another backend is used, and the reason is reported.
    let output = with_mounts("mount --bind $1 /sys/kernel/btf; $0 record -- true", directory.path())?;
    let reported = messages(&output);
    ensure!(output.status.success() && reported.contains("through ftrace"), "{:?}: {reported}", output.status);
    ensure!(reported.contains("CONFIG_DEBUG_INFO_BTF"), "{reported}");
    Ok(())
}

const UNMOUNT_SCRIPT: &str = "for m in /sys/kernel/tracing /sys/kernel/debug/tracing /sys/kernel/debug; do umount -l $m 2>/dev/null || true; done; \
     test ! -e /sys/kernel/tracing/events; ";

pub fn unmounted_tracefs() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let script = format!("{UNMOUNT_SCRIPT} $0 record --backend ftrace -- true; test ! -e /sys/kernel/tracing/events");
    let output = with_mounts(&script, directory.path())?;
    ensure!(output.status.success(), "{:?}: {}", output.status, messages(&output));
    let probes = show(&directory.path().join("trace.fathom"))?["coverage"].as_array().context("coverage[]")?.clone();
    ensure!(probes.iter().any(|row| row["attached"] == true), "{probes:#?}");
    Ok(())
}

pub fn without_tracefs() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let script = format!(
        "{UNMOUNT_SCRIPT} $0 record -q -- sqlite3 {} 'create table t(i); insert into t values (1);'",
        disk.path().join("t.db").display()
    );
    let output = with_mounts(&script, directory.path())?;
    ensure!(output.status.success(), "{}", messages(&output));
    let summary = show(&directory.path().join("trace.fathom"))?;
    ensure!(number(shape_of(&summary, "INSERT")?, "/per_operation/flushes")? > 0.0, "the INSERT was not followed down");
    Ok(())
}

pub fn recording_under_lockdown_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let script = "mount -t tmpfs fathom-test /sys/kernel/security; \
                  echo 'none integrity [confidentiality]' > /sys/kernel/security/lockdown; $0 record -- true";
    let output = with_mounts(script, directory.path())?;
    let messages = messages(&output);
    ensure!(output.status.code() == Some(1) && messages.contains("lockdown"), "{:?}: {messages}", output.status);
    Ok(())
}

pub fn one_capability() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let copy = directory.path().join("fathom");
    fs::copy(fathom(), &copy)?;
    run(Command::new("chmod").args(["-R", "a+rwx"]).arg(directory.path()))?;
    for (has, lacks) in [("bpf", "CAP_PERFMON"), ("perfmon", "CAP_BPF")] {
        let output = output_of(
            Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups", &format!("--inh-caps=-all,+{has}")])
                .args([format!("--ambient-caps=-all,+{has}"), format!("--bounding-set=-all,+{has}")])
                .arg(&copy)
                .args(["record", "--", "true"])
                .current_dir(directory.path()),
        )?;
        let messages = messages(&output);
        ensure!(output.status.code() == Some(1) && messages.contains(lacks), "{has}: {:?}: {messages}", output.status);
    }
    Ok(())
}

pub fn two_capabilities() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    run(Command::new("chmod").arg("-R").arg("a+rwx").args([directory.path(), disk.path()]))?;
    let copy = directory.path().join("fathom");
    fs::copy(fathom(), &copy)?;
    run(Command::new("chmod").arg("a+rx").arg(&copy))?;
    let output = output_of(
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all,+bpf,+perfmon"])
            .args(["--ambient-caps=-all,+bpf,+perfmon", "--bounding-set=-all,+bpf,+perfmon"])
            .arg(&copy)
            .args(["record", "--", "sqlite3"])
            .arg(disk.path().join("t.db"))
            .arg("create table t(i); insert into t values (1); insert into t values (2);")
            .current_dir(directory.path()),
    )?;
    let messages = messages(&output);
    if messages.contains("not permitted") && !output.status.success() {
        // This kernel requires root for any probe and reports that, which the other test covers.
        return Ok(());
    }
    ensure!(output.status.success(), "{:?}: {messages}", output.status);
    let summary = show(&directory.path().join("trace.fathom"))?;
    let blind = summary["blind"].as_array().context("blind[]")?;
    let wholly = blind.iter().any(|b| b["layer"] == "Database" && b["wholly"] == true);
    if fs::read("/sys/kernel/btf/vmlinux")?.windows(22).any(|w| w == b"BPF_TRACE_UPROBE_MULTI") {
        // From Linux 6.6 on functions of programs are probed by links, which need no further privilege.
        ensure!(!wholly && !messages.contains("the kernel refused"), "{blind:?}: {messages}");
        return assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 2.0);
    }
    ensure!(wholly && messages.contains("the kernel refused"), "{blind:?}: {messages}");
    // The layers below are still recorded, and files' names replace the statements.
    assert_near("transactions", number(shape_of(&summary, "(WRITE TRANSACTION ON T.DB")?, "/count")?, 3.0)
}

pub fn unwritable_directory() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut report = as_nobody(directory.path())?;
    let archive = copy_archive(directory.path())?;
    run(Command::new("chmod").args(["-R", "a+rX,a-w"]).arg(directory.path()))?;
    let output = output_of(report.arg("report").arg(&archive))?;
    let said = messages(&output);
    ensure!(output.status.code() == Some(1) && said.contains(&*directory.path().to_string_lossy()), "{said}");
    ensure!(said.contains("ermission denied") && !said.contains("panicked"), "{said}");
    Ok(())
}

pub fn without_home() -> Result<()> {
    let mut command = Command::new(fathom());
    let output = output_of(command.args(["lab", "run", "scsi-ext4"]).env_remove("HOME").env_remove("XDG_CACHE_HOME"))?;
    let said = messages(&output);
    ensure!(output.status.code() == Some(1) && said.contains("--cache DIR"), "{}: {said}", output.status);
    Ok(())
}

/// The recorder that fix starts refuses, with its own message; this program's name precedes it once.
pub fn fix_unprivileged() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let output = output_of(as_nobody(directory.path())?.args(["fix", "--", "true"]))?;
    let said = messages(&output);
    ensure!(output.status.code() == Some(1) && said.contains("--try NAME"), "{}: {said}", output.status);
    ensure!(said.starts_with("fathom: ") && said.matches("fathom: ").count() == 1, "{said}");
    Ok(())
}
