//! A device is left as it was found, whatever verb ran on it and however that ended: files, processes, settings and ports before and
//! after, as a table of verbs by ends.

use super::perfetto::write_requests;
use super::{DAEMON_PATH, clean, json, told};
use anyhow::{Context, Result, ensure};
use fathom_tests::phone::{Phone, Shape};
use fathom_tests::{run, wait_until};
use std::process::{Command, Stdio};

/// A verb that works on a device.
struct Verb {
    name: &'static str,
    /// User on the device.
    uid: u32,
    /// Its arguments; DEVICE and OUT are placeholders.
    words: &'static str,
    /// The process that runs there while it works.
    at_work: &'static str,
    /// Whether what it starts outlives this side, until `fathom device stop`.
    outlives: bool,
}

const VERB_CASES: &[Verb] = &[
    Verb { name: "info", uid: 2000, words: "device info DEVICE", at_work: "fathom-", outlives: false },
    Verb {
        name: "bench",
        uid: 2000,
        words: "bench run sqlite --no-wait -p rows=10 -p op=insert --blocks 500 --fixed-performance --reconnect 0 --device DEVICE -o OUT",
        at_work: " workload ",
        outlives: false,
    },
    Verb {
        name: "bench that waits for its host",
        uid: 2000,
        words: "bench run sqlite --no-wait -p rows=10 -p op=insert --blocks 500 --fixed-performance --device DEVICE -o OUT",
        at_work: " workload ",
        outlives: true,
    },
    Verb {
        name: "compare",
        uid: 2000,
        words: "bench compare host DEVICE --no-wait -p rows=10 -p op=insert --blocks 500 -o OUT",
        at_work: " workload ",
        outlives: true,
    },
    Verb {
        name: "papers",
        uid: 2000,
        words: "papers 000/9-10 --no-wait -p sqlite.rows=10 --blocks 500 --device DEVICE -o OUT",
        at_work: " workload ",
        outlives: true,
    },
    Verb {
        name: "record",
        uid: 0,
        words: "record --all --reconnect 0 --device DEVICE -o OUT -- sleep 60",
        at_work: "sleep 60",
        outlives: false,
    },
    Verb {
        name: "record by perfetto",
        uid: 2000,
        words: "record --via perfetto --duration 50 --device DEVICE -o OUT",
        at_work: "/system/bin/perfetto",
        outlives: false,
    },
    Verb {
        name: "pool bench",
        uid: 2000,
        words: "pool bench --paper --interface lo --size 1M --duration 60 --at DEVICE",
        at_work: "fathom-",
        outlives: false,
    },
    Verb {
        name: "net run",
        uid: 2000,
        words: "net run --from DEVICE --to local --interface lo --to-interface lo --duration 60",
        at_work: "fathom-",
        outlives: false,
    },
    Verb {
        name: "node",
        uid: 2000,
        words: "pool node --backend memory:4M --insecure --listen 127.0.0.1:0 --device DEVICE",
        at_work: "fathom-",
        outlives: true,
    },
    Verb {
        name: "net server",
        uid: 2000,
        words: "net serve --listen 127.0.0.1:0 --device DEVICE",
        at_work: "fathom-",
        outlives: true,
    },
];

/// How it ends: by a signal to this side, by an unplugged cable, or by a killed adb server.
const RUN_ENDS: [&str; 5] = ["-INT", "-KILL", "-HUP", "cable", "server"];

/// Returns every file with its size and permissions, every process, the ports of adb, and the mode that `cmd` set last. Without the
/// program's own directory, and the fake `cmd`'s notes.
fn snapshot(phone: &Phone) -> Result<String> {
    let files = "find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /data/local/tmp/fathom \
                 -o -path /data/misc/perfetto-traces/cmd \\) -prune -o -exec stat -c '%n %A %s %u' {} + | sort";
    // The query's own processes do not count; exited processes remain in brackets here, since the stand-in's init does not reap.
    let processes = phone.shell("ps -A -o ARGS")?;
    let mut processes: Vec<&str> = processes.lines().filter(|l| !l.contains("ps -A") && !l.starts_with('[')).collect();
    processes.sort_unstable();
    let ports = ["forward", "reverse"].map(|way| {
        let output = run(phone.adb().args(["-s", &phone.serial, way, "--list"]))?;
        anyhow::Ok(format!("{way}: {}", String::from_utf8_lossy(&output.stdout).trim()))
    });
    let set = phone.shell("tail -n 1 /data/misc/perfetto-traces/cmd 2>/dev/null; true")?;
    let mode = if set.trim().ends_with("true") { "fixed performance: on" } else { "fixed performance: off" };
    // A directory's size grows with its contents.
    let files: Vec<String> =
        phone.shell(files)?.lines().filter(|l| !l.starts_with("/data/misc/perfetto-traces ")).map(Into::into).collect();
    let [forward, reverse] = ports;
    Ok([files.join("\n"), processes.join("\n"), forward?, reverse?, mode.into()].join("\n"))
}

/// Lines that only one of the two contains.
fn differing_lines(a: &str, b: &str) -> String {
    let only = |own: &str, other: &str, sign: &str| -> Vec<String> {
        own.lines().filter(|line| !other.lines().any(|l| l == *line)).map(|line| format!("{sign}{line}")).collect()
    };
    [only(a, b, "-"), only(b, a, "+")].concat().join("\n")
}

fn start_phone(uid: u32) -> Result<(Phone, String)> {
    let phone = Phone::start(DAEMON_PATH, &Shape { uid, ..Shape::default() })?;
    phone.replay("trace", &write_requests(2))?;
    // The program stays there.
    json(&phone.fathom().args(["device", "info", &phone.name(), "--json"]).output()?)?;
    let before = snapshot(&phone)?;
    ensure!(before.contains("/data/local/tmp ") && before.contains("/system/bin/sh"), "it sees nothing: {before}");
    Ok((phone, before))
}

fn end_run(phone: &Phone, before: &str, verb: &Verb, end: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("x.fathom");
    let out = out.to_str().context("a path")?;
    let words = verb.words.split(' ').map(|word| word.replace("DEVICE", &phone.name()).replace("OUT", out));
    let mut command = phone.fathom();
    command.args(words).current_dir(directory.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    // A short command may be over before it is seen.
    wait_until("a process there", || {
        Ok(phone.shell("ps -A -o ARGS")?.contains(verb.at_work) || child.try_wait()?.is_some())
    })?;
    let signal = |name: &str| -> Result<()> {
        // The process may have exited meanwhile.
        let _ = run(Command::new("kill").args([name, &child.id().to_string()]));
        Ok(())
    };
    match end {
        "cable" | "server" => {
            match end {
                "cable" => phone.cut()?,
                _ => drop(run(phone.adb().arg("kill-server"))?),
            }
            wait_until("a device after its cut", || {
                phone.connect()?;
                Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
            })?;
            // The command waits for the device, or continues.
            if verb.outlives {
                signal("-INT")?;
            }
        }
        name => signal(name)?,
    }
    child.wait()?;
    if verb.outlives {
        let output = phone.fathom().args(["device", "stop", &phone.name(), "--discard"]).output()?;
        ensure!(output.status.success(), "{}", told(&output));
    }
    clean(phone)?;
    // The mode is reset last.
    let as_before = || Ok(snapshot(phone)? == before);
    wait_until("a device as it was", as_before)
        .with_context(|| snapshot(phone).map_or_else(|e| e.to_string(), |after| differing_lines(before, &after)))
}

fn run_table(verbs: &[&Verb], ends_of: impl Fn(usize) -> &'static [&'static str]) -> Result<()> {
    for uid in [2000, 0] {
        let of_user: Vec<(usize, &&Verb)> = verbs.iter().enumerate().filter(|(_, verb)| verb.uid == uid).collect();
        if of_user.is_empty() {
            continue;
        }
        let (phone, before) = start_phone(uid)?;
        for (at, verb) in of_user {
            for end in ends_of(at) {
                end_run(&phone, &before, verb, end).with_context(|| format!("{}, {end}", verb.name))?;
            }
        }
    }
    Ok(())
}

/// The verbs that need no root, each with one end.
pub fn device_is_left_as_found_however_a_verb_ends() -> Result<()> {
    let verbs: Vec<&Verb> = VERB_CASES.iter().filter(|verb| verb.uid != 0).collect();
    run_table(&verbs, |at| &RUN_ENDS[at % RUN_ENDS.len()..][..1])
}

pub fn device_is_left_as_found_after_each_verb_and_end() -> Result<()> {
    run_table(&VERB_CASES.iter().collect::<Vec<_>>(), |_| &RUN_ENDS)
}
