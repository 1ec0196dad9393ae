//! The device's own Perfetto as a source, for devices without root.

use super::{DAEMON_PATH, phone, told};
use anyhow::{Context as _, Result, ensure};
use fathom_tests::phone::{Phone, Shape};
use fathom_tests::{fathom, run, wait_until};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub fn via_perfetto() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("t.fathom");
    let mut command = phone.fathom();
    command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", "0.3", "-o"]).arg(&archive);
    let output = command.output()?;
    // The fake's file is not a trace, and is kept for inspection.
    let said = told(&output);
    let trace = directory.path().join("t.fathom.pftrace");
    ensure!(output.status.code() == Some(1) && said.contains("was kept as"), "{said}");
    ensure!(fs::read_to_string(&trace)? == "no trace\n", "{said}");
    // A valid trace: a write that was sent to disk 8:0, twice.
    phone.replay("trace", &write_requests(2))?;
    let mut command = phone.fathom();
    command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", "0.3", "-o"]).arg(&archive);
    let output = command.output()?;
    ensure!(output.status.success() && told(&output).contains("2 events"), "{}", told(&output));
    ensure!(archive.join("meta.json").exists() && fs::read(&trace)? == write_requests(2), "{}", told(&output));
    ensure!(phone.shell("ls /data/misc/perfetto-traces")?.trim().is_empty(), "the trace was left there");
    // Real traces, Android's and Linux's, are fetched unchanged, and give the same results as `fathom import`.
    for name in ["android-sched", "linux-insert"] {
        let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{name}.perfetto-trace.gz"));
        let bytes = run(Command::new("gunzip").arg("-c").arg(&packed))?.stdout;
        phone.replay("trace", &bytes)?;
        let mut command = phone.fathom();
        command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", "0.3", "-o"]);
        let output = command.arg(&archive).output()?;
        ensure!(output.status.success() && fs::read(&trace)? == bytes, "{name}: {}", told(&output));
        let direct = directory.path().join("direct.fathom");
        run(Command::new(fathom()).arg("import").arg(&packed).arg("-o").arg(&direct))?;
        let (there, here) = (fathom_tests::show(&archive)?, fathom_tests::show(&direct)?);
        for part in ["operations", "files", "disks", "driver_commands", "syscalls"] {
            ensure!(there[part] == here[part], "{name}, {part}: {} {}", there[part], here[part]);
        }
        ensure!(there["trace"]["events"] == here["trace"]["events"], "{name}: {} {}", there["trace"], here["trace"]);
    }
    let output = phone.fathom().args(["record", "--device", "ssh:x", "--via", "perfetto"]).output()?;
    ensure!(output.status.code() == Some(2), "{}", told(&output));
    Ok(())
}

/// All at once, each into an archive of its own next to its trace, on this machine's clock.
pub fn perfettos_of_several_devices_record_at_once() -> Result<()> {
    let open = Shape { open: true, ..Shape::default() };
    let (a, b) = (phone()?, Phone::start(DAEMON_PATH, &open)?);
    b.connect_to(&a)?;
    for (phone, events) in [(&a, 2), (&b, 3)] {
        phone.replay("trace", &write_requests(events))?;
    }
    let directory = tempfile::tempdir()?;
    let record = |devices: &str, name: &str| -> Result<Output> {
        let mut command = a.fathom();
        command.args(["record", "--device", devices, "--via", "perfetto", "--duration", "0.3", "-o"]);
        Ok(command.arg(directory.path().join(name)).output()?)
    };
    let output = record("all", "all")?;
    let said = told(&output);
    ensure!(output.status.success() && said.contains("2 events") && said.contains("3 events"), "{said}");
    ensure!(said.matches("clock was").count() == 2, "{said}");
    for phone in [&a, &b] {
        let archive = directory.path().join("all").join(format!("adb-{}.fathom", phone.serial.replace(':', "-")));
        ensure!(archive.with_extension("fathom.pftrace").is_file(), "no trace beside {}", archive.display());
        // Both have this machine's clock, so that the offset is known: zero.
        let facts = fathom_tests::rows(&archive, "facts")?;
        let number = |name: &str| -> Result<f64> {
            let row = facts.iter().find(|f| f["name"] == name).with_context(|| name.to_string())?;
            Ok(row["value"].trim_matches(['"', '\'']).parse()?)
        };
        for [ahead, error] in [["clock.ahead", "clock.error"], ["clock.ahead_last", "clock.error_last"]] {
            let (ahead, error) = (number(ahead)?, number(error)?);
            ensure!(ahead.abs() <= error && error >= 5e6, "{ahead} to within {error} ns does not hold 0");
        }
        let left = run(a.adb().args(["-s", &phone.serial, "shell", "ls /data/misc/perfetto-traces"]))?;
        ensure!(left.stdout.trim_ascii().is_empty(), "the trace was left there: {left:?}");
    }
    // A device that cannot record is reported, and has no archive; the other is recorded anyway.
    b.replay("perfetto fails", b"Permission denied\n")?;
    let output = record("all", "some")?;
    let said = told(&output);
    ensure!(output.status.code() == Some(1) && said.contains(&format!("{} has no recording", b.name())), "{said}");
    ensure!(fs::read_dir(directory.path().join("some"))?.count() == 2, "{said}");
    let output = record(&format!("{},local", a.name()), "none")?;
    ensure!(output.status.code() == Some(2) && !directory.path().join("none").exists(), "{}", told(&output));
    Ok(())
}

/// The fake fails as Android's does: with its message, and its exit status.
pub fn perfetto_refused() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("t.fathom");
    let record = |duration: &str| -> Result<Output> {
        let mut command = phone.fathom();
        command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", duration, "-o"]);
        Ok(command.arg(&archive).output()?)
    };
    let refused = |why: &str| -> Result<()> {
        let output = record("0.3")?;
        ensure!(output.status.code() == Some(1) && told(&output).contains(why), "{why}: {}", told(&output));
        ensure!(fs::read_dir(directory.path())?.next().is_none(), "{why}: something was left here");
        ensure!(phone.shell("ls /data/misc/perfetto-traces")?.trim().is_empty(), "{why}: something was left there");
        Ok(())
    };
    phone.replay("getprop init.svc.traced", b"stopped\n")?;
    refused("persist.traced.enable 1")?;
    phone.replay("getprop init.svc.traced", b"running\n")?;
    phone.replay("perfetto fails", b"Failed to open /data/misc/perfetto-traces/x (errno: 13, Permission denied)\n")?;
    refused("Permission denied")?;
    // More than a pipe holds on stdout and stderr, and escape codes.
    let flood = [b"\x1b[2J".as_slice(), &[b'x'; 300_000], b"\nno room: No space left on device\n"].concat();
    phone.replay("perfetto fails", &flood)?;
    let output = record("0.3")?;
    ensure!(output.status.code() == Some(1) && !output.stderr.contains(&0x1b), "{}", told(&output));
    fs::remove_file(phone.replayed("perfetto fails"))?;
    // A trace that ends within a packet: its complete packets are used.
    let trace = write_requests(2);
    phone.replay("trace", &[write_requests(3), trace[..trace.len() - 3].to_vec()].concat())?;
    let output = record("0.3")?;
    ensure!(told(&output).contains("3 events") && told(&output).contains("blind: "), "{}", told(&output));
    // No room here: the recording stays on the device, and the message says how to fetch it.
    let full = directory.path().join("full");
    let _small = fathom_tests::tmpfs::Tmpfs::new(full.clone(), "4k")?;
    phone.replay("trace", &[0; 64 << 10])?;
    let mut command = phone.fathom();
    command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", "0.3", "-o"]);
    let output = command.arg(full.join("t.fathom")).output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("No space left"), "{}", told(&output));
    let there = phone.shell("ls /data/misc/perfetto-traces")?;
    ensure!(told(&output).contains("adb -s") && told(&output).contains(there.trim()), "{there}: {}", told(&output));
    ensure!(fs::read_dir(&full)?.next().is_none(), "half of it was left here");
    // A device without Perfetto.
    phone.shell("rm /data/misc/perfetto-traces/*")?;
    fs::remove_file(phone.replayed("../system/bin/perfetto"))?;
    let output = record("0.3")?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("Android 9"), "{}", told(&output));
    Ok(())
}

/// Its trace is removed, too: nobody would fetch it. With Ctrl-C it is fetched first.
pub fn perfetto_left() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("t.fathom");
    phone.replay("trace", &write_requests(2))?;
    let runs = || Ok(phone.shell("ps -A -o ARGS")?.contains("/system/bin/perfetto"));
    let start = || -> Result<std::process::Child> {
        let mut command = phone.fathom();
        command.args(["record", "--device", &phone.name(), "--via", "perfetto", "--duration", "50", "-o"]);
        let child = command.arg(&archive).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        wait_until("a recording", runs)?;
        Ok(child)
    };
    let nothing = || {
        wait_until("an end of perfetto", || Ok(!runs()?))?;
        wait_until("a directory without a trace", || {
            Ok(phone.shell("ls /data/misc/perfetto-traces")?.trim().is_empty())
        })
    };
    let mut child = start()?;
    child.kill()?;
    child.wait()?;
    nothing()?;
    let child = start()?;
    phone.cut()?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(1) && !archive.exists(), "{}", told(&output));
    wait_until("a device after its cut", || {
        phone.connect()?;
        Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
    })?;
    nothing()?;
    let child = start()?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let output = child.wait_with_output()?;
    ensure!(archive.join("meta.json").exists() && told(&output).contains("2 events"), "{}", told(&output));
    nothing()
}

/// A Perfetto trace: a packet with a bundle of events of CPU 0 (trace_packet.proto 1, ftrace_event_bundle.proto 1 and 2), which are
/// issued requests (ftrace_event.proto 1: time, 2: thread, 119; block.proto: disk, sector, sectors, kind).
pub fn write_requests(count: u64) -> Vec<u8> {
    fn varint(mut value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    }
    let number = |field: u64, value: u64| [varint(field << 3), varint(value)].concat();
    let bytes =
        |field: u64, value: &[u8]| [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat();
    let request = |at: u64| {
        let issue = [number(1, 8 << 8), number(2, 64 * at), number(3, 8), bytes(4, b"WS")].concat();
        bytes(2, &[number(1, 1000 * at), number(2, 7), bytes(119, &issue)].concat())
    };
    let events: Vec<u8> = (1..=count).flat_map(request).collect();
    bytes(1, &bytes(1, &[number(1, 0), events].concat()))
}
