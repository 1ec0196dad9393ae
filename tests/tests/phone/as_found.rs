//! The device is as it was found, however a run ends.

use super::perfetto::write_requests;
use super::{clean, json, phone};
use anyhow::{Context, Result, ensure};
use fathom_tests::phone::Phone;
use fathom_tests::{run, until};
use std::process::{Command, Stdio};

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

pub fn as_found() -> Result<()> {
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
