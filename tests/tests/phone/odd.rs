//! Failures around the real adb: one phone with two names, a server that is killed, names of any bytes, clocks, variables.

use super::benchmarks::under_way;
use super::{DAEMON_PATH, QUICK_BENCHMARK, clean, json, phone, processes, told};
use anyhow::{Context, Result, ensure};
use fathom_tests::phone::{Phone, Shape};
use fathom_tests::{fathom, run, wait_until};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

fn two_phones() -> Result<(Phone, Phone)> {
    let open = Shape { open: true, ..Shape::default() };
    let (a, b) = (Phone::start(DAEMON_PATH, &Shape::default())?, Phone::start(DAEMON_PATH, &open)?);
    b.connect_to(&a)?;
    Ok((a, b))
}

fn archive_name(phone: &Phone) -> String {
    format!("adb-{}.fathom", phone.serial.replace(':', "-"))
}

/// Both have this machine's boot ID; with the same serial number they are one phone, on USB and on Wi-Fi.
pub fn two_names() -> Result<()> {
    let (a, b) = two_phones()?;
    let directory = tempfile::tempdir()?;
    for phone in [&a, &b] {
        phone.replay("getprop ro.serialno", b"R5CT\n")?;
    }
    let shelf = directory.path().join("shelf");
    let both = format!("{},{}", a.name(), b.name());
    let output =
        a.fathom().args(QUICK_BENCHMARK).args(["--blocks", "2", "--device", &both, "-o"]).arg(&shelf).output()?;
    ensure!(output.status.success() && told(&output).contains("the same device"), "{}", told(&output));
    ensure!(
        processes(&shelf.join(archive_name(&a)))? > 0 && !shelf.join(archive_name(&b)).exists(),
        "{}",
        told(&output)
    );
    // Two serial numbers are two phones.
    b.replay("getprop ro.serialno", b"R5CU\n")?;
    let shelf = directory.path().join("two");
    let output =
        a.fathom().args(QUICK_BENCHMARK).args(["--blocks", "2", "--device", "all", "-o"]).arg(&shelf).output()?;
    ensure!(output.status.success() && !told(&output).contains("the same device"), "{}", told(&output));
    ensure!(processes(&shelf.join(archive_name(&a)))? > 0 && processes(&shelf.join(archive_name(&b)))? > 0);
    clean(&a)
}

/// Their measurements in turn, by this machine's clock, which they share.
pub fn in_turn() -> Result<()> {
    let (a, b) = two_phones()?;
    let directory = tempfile::tempdir()?;
    let shelf = directory.path().join("shelf");
    let mut command = a.fathom();
    command.args(QUICK_BENCHMARK).args([
        "--blocks",
        "2",
        "--in-turn",
        "--device",
        &format!("{},{}", b.name(), a.name()),
        "-o",
    ]);
    let output = command.arg(&shelf).output()?;
    ensure!(output.status.success(), "{}", told(&output));
    let times = |phone: &Phone| -> Result<(f64, f64)> {
        let rows = fathom_tests::rows(&shelf.join(archive_name(phone)), "replicates")?;
        let time = |name: &str| -> Result<Vec<f64>> {
            rows.iter().map(|row| Ok(row[name].to_string().trim_matches(['"', '\'']).parse()?)).collect()
        };
        let (starts, ends) = (time("start_ns")?, time("end_ns")?);
        Ok((starts.into_iter().fold(f64::MAX, f64::min), ends.into_iter().fold(0.0, f64::max)))
    };
    let (first, second) = (times(&b)?, times(&a)?);
    ensure!(first.1 <= second.0, "they overlap: {first:?}, {second:?}");
    clean(&a)
}

/// The adb server is killed, as by `adb kill-server` or an `adb` of another version. Fathom starts another server, and
/// continues.
pub fn killed_server() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    let child = under_way(&phone, &archive, "1m")?;
    run(phone.adb().arg("kill-server"))?;
    let lost = "is back after";
    let mut child = child;
    let stderr = std::io::BufReader::new(child.stderr.take().context("stderr")?);
    let mut said = String::new();
    let mut lines = std::io::BufRead::lines(stderr);
    while !said.contains(lost) {
        said += &lines.next().with_context(|| said.clone())??;
    }
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    lines.map_while(Result::ok).for_each(|line| said += &line);
    ensure!(child.wait()?.code() == Some(130) && processes(&archive)? > 0, "{said}");
    let done = clean(&phone);
    // The server that fathom started is not a child of the test.
    run(phone.adb().arg("kill-server"))?;
    done
}

/// The local disk fills up during a run: what was received is kept, and what still runs on the device is named.
pub fn full_here() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let small = directory.path().join("small");
    let _small = fathom_tests::tmpfs::Tmpfs::new(small.clone(), "400k")?;
    let archive = small.join("b.fathom");
    let child = under_way(&phone, &archive, "2m")?;
    fs::write(small.join("fill"), vec![0; 1 << 20]).ok();
    let output = child.wait_with_output()?;
    let said = told(&output);
    ensure!(output.status.code() == Some(1) && said.contains("No space left"), "{said}");
    ensure!(said.contains("fathom device fetch") && said.contains("until then is in"), "{said}");
    fs::remove_file(small.join("fill"))?;
    ensure!(processes(&archive)? > 0, "nothing was kept: {said}");
    // The complete archive can be fetched from the device, once there is room.
    let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--json"]).output()?)?;
    let name = value["left"][0]["name"].as_str().with_context(|| value.to_string())?.to_owned();
    let whole = directory.path().join("whole.fathom");
    let output = phone.fathom().args(["device", "fetch", &phone.name(), &name, "-o"]).arg(&whole).output()?;
    ensure!(output.status.success() && processes(&whole)? >= processes(&archive)?, "{}", told(&output));
    clean(&phone)
}

/// An output that cannot be stored here is refused before anything runs on the device, by every verb that fetches something; and the
/// message names the cause, not the operation that failed because of it.
pub fn refused_early() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let foreign = directory.path().join("foreign");
    fs::create_dir(&foreign)?;
    fs::write(foreign.join("mine"), "text")?;
    phone.replay("trace", &super::perfetto::write_requests(2))?;
    let perfetto = ["record", "--via", "perfetto", "--duration", "0.3"];
    let named = [("/proc/x.fathom", "/proc/x.fathom"), ("/no/such/x.fathom", "/no/such;")]
        .map(|(p, n)| (p.into(), n.to_owned()));
    for (place, shown) in named.into_iter().chain([(foreign.clone(), foreign.display().to_string())]) {
        let place: &Path = &place;
        for words in [&QUICK_BENCHMARK[..], &perfetto] {
            let output = phone.fathom().args(words).args(["--device", &phone.name(), "-o"]).arg(place).output()?;
            ensure!(output.status.code() == Some(1), "{}: {}", place.display(), told(&output));
            ensure!(told(&output).contains(&shown) && !told(&output).contains("recording by"), "{}", told(&output));
            let value = json(&phone.fathom().args(["device", "stop", &phone.name(), "--list", "--json"]).output()?)?;
            ensure!(value["left"].as_array().is_some_and(Vec::is_empty), "{shown}: it ran: {value}");
        }
    }
    ensure!(fs::read_dir(&foreign)?.count() == 1 && fs::read_dir(directory.path())?.count() == 1, "something was left");
    let output = phone.fathom().args(["device", "stop", &phone.name(), "nosuch"]).output()?;
    let said = told(&output);
    ensure!(output.status.code() == Some(1) && said.contains("no such detached command: `nosuch`"), "{said}");
    ensure!(!said.contains("facts") && said.matches("fathom: ").count() == 1, "{said}");
    // Of several devices, the next command shown names only the archives that were made.
    let shelf = directory.path().join("shelf");
    let both = format!("{},adb:R58M1", phone.name());
    let output =
        phone.fathom().args(QUICK_BENCHMARK).args(["--blocks", "2", "--device", &both, "-o"]).arg(&shelf).output()?;
    let said = told(&output);
    ensure!(output.status.code() == Some(1) && said.contains("adb:R58M1 has no result"), "{said}");
    let next = said.lines().find(|line| line.starts_with("next: ")).with_context(|| said.clone())?;
    ensure!(next.contains(&archive_name(&phone)) && !next.contains("R58M1"), "{next}");
    // A missing tool is named, and not mistaken for another operating system.
    fs::rename(phone.replayed("../system/bin/uname"), phone.replayed("uname"))?;
    let output = phone.fathom().args(["device", "info", &phone.name()]).output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("uname"), "{}", told(&output));
    fs::rename(phone.replayed("uname"), phone.replayed("../system/bin/uname"))?;
    clean(&phone)
}

/// The cable is pulled during detection, copy, start, run and fetch. What can be resumed is; what cannot leaves only the part of a program,
/// which the next copy removes.
pub fn cut_phases() -> Result<()> {
    let size = fs::metadata(fathom())?.len();
    // The copy alone takes some seconds.
    let phone = Phone::start(DAEMON_PATH, &Shape { rate: Some(size / 4), ..Shape::default() })?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    for phase in 0..12_u32 {
        let reconnect = if phase % 2 == 0 { "0" } else { "1m" };
        let mut command = phone.fathom();
        command.args(QUICK_BENCHMARK).args([
            "--blocks",
            "2",
            "--reconnect",
            reconnect,
            "--device",
            &phone.name(),
            "-o",
        ]);
        let child = command.arg(&archive).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        // A fixed wait: the phases follow each other, and the cut hits any of them.
        std::thread::sleep(std::time::Duration::from_millis(u64::from(phase * phase) * 60));
        phone.cut()?;
        let output = child.wait_with_output()?;
        let said = told(&output);
        ensure!(matches!(output.status.code(), Some(0 | 1)) && !said.contains("panicked"), "phase {phase}: {said}");
        // A failure prints a message, with a remedy.
        ensure!(output.status.success() || said.contains("fathom: "), "phase {phase}: {said}");
        wait_until("a device after its cut", || {
            phone.connect()?;
            Ok(phone.shell("echo here").is_ok_and(|said| said.contains("here")))
        })?;
        let left = || -> Result<bool> {
            Ok(phone.left()?.iter().all(|name| name.starts_with("part-")) && phone.processes()?.is_empty())
        };
        wait_until("a clean device", left)
            .with_context(|| format!("phase {phase}: {:?} {:?}: {said}", phone.left(), phone.processes()))?;
        if !archive.join("meta.json").exists() {
            ensure!(fs::read_dir(directory.path())?.next().is_none(), "phase {phase}: half an archive: {said}");
        }
        let _ = fs::remove_dir_all(&archive);
    }
    Ok(())
}

/// Two hosts in containers have the same process number; both use the same directory on the device.
pub fn same_process_number() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let contained = |blocks: &str, name: &str| {
        let fathom = phone.fathom();
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).arg(fathom.get_program());
        command.envs(fathom.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
            .args(QUICK_BENCHMARK)
            .args(["--blocks", blocks, "--device", &phone.name(), "-o"])
            .arg(directory.path().join(name));
        command.stdin(Stdio::null());
        command
    };
    let mut first = contained("500", "a.fathom").stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    wait_until("a run there", || Ok(phone.processes()?.iter().any(|line| line.contains(" workload "))))?;
    let output = contained("2", "b.fathom").output()?;
    first.kill()?;
    first.wait()?;
    ensure!(output.status.success() && processes(&directory.path().join("b.fathom"))? > 0, "{}", told(&output));
    json(&phone.fathom().args(["device", "stop", &phone.name(), "--discard", "--json"]).output()?)?;
    clean(&phone)
}

/// Blanks, quotes and dollars are passed literally; a name that is not UTF-8 is refused, not changed.
pub fn odd_names_reach_device_unchanged_or_are_refused() -> Result<()> {
    let phone = phone()?;
    let directory = tempfile::tempdir()?;
    let odd = "/data/local/tmp/a b'c\"d$(id)`é";
    run(phone.adb().args(["-s", &phone.serial, "shell", "mkdir \"/data/local/tmp/a b'c\\\"d\\$(id)\\`é\""]))?;
    let archive = directory.path().join("b c'd\"é.fathom");
    let mut command = phone.fathom();
    command.args(QUICK_BENCHMARK).args(["--blocks", "2", "--dir", odd, "--device", &phone.name(), "-o"]).arg(&archive);
    let output = command.output()?;
    ensure!(output.status.success() && processes(&archive)? > 0, "{}", told(&output));
    // Local names may contain any bytes.
    let bytes = directory.path().join(OsStr::from_bytes(b"x\xff.fathom"));
    let output = phone
        .fathom()
        .args(QUICK_BENCHMARK)
        .args(["--blocks", "2", "--device", &phone.name(), "-o"])
        .arg(&bytes)
        .output()?;
    ensure!(output.status.success() && bytes.join("meta.json").exists(), "{}", told(&output));
    // An argument that would arrive changed on the device is refused before anything is done.
    let word = OsStr::from_bytes(b"x\xff");
    for words in [&["record", "--device"][..], &["pool", "node", "--insecure", "--listen", "127.0.0.1:0", "--device"]] {
        let mut command = phone.fathom();
        command.args(words).arg(phone.name());
        match words[0] {
            "record" => command.args(["--", "echo"]).arg(word),
            _ => command.arg("--store").arg(word),
        };
        let output = command.current_dir(directory.path()).output()?;
        ensure!(output.status.code() == Some(2) && told(&output).contains("UTF-8"), "{words:?}: {}", told(&output));
    }
    phone.shell("rmdir /data/local/tmp/a*")?;
    clean(&phone)
}

/// Copied files have this machine's time, and the device's clock is thirty years ahead: its own copy is not an old one.
pub fn copy_survives_device_clock_that_is_years_off() -> Result<()> {
    let phone = Phone::start(DAEMON_PATH, &Shape { ahead_s: 30 * 365 * 86_400, ..Shape::default() })?;
    phone.shell("mkdir /data/local/tmp/fathom; touch -t 200001010000 /data/local/tmp/fathom/part-1")?;
    json(&phone.fathom().args(["device", "info", &phone.name(), "--json"]).output()?)?;
    // A part that another host left is old.
    ensure!(!phone.left()?.iter().any(|name| name.starts_with("part-")), "{:?}", phone.left()?);
    clean(&phone)
}

pub fn adb_variables_choose_device_and_server() -> Result<()> {
    let (a, b) = two_phones()?;
    let with = |name: &str, value: &str| a.fathom().args(["device", "info", "adb", "--json"]).env(name, value).output();
    let value = json(&with("ANDROID_SERIAL", &b.serial)?)?;
    ensure!(value["device"] == b.name(), "{}", value["device"]);
    let output = with("ANDROID_SERIAL", "R58M1")?;
    ensure!(output.status.code() == Some(1) && told(&output).contains(&b.name()), "{}", told(&output));
    // A server elsewhere is not replaced by a local one.
    let output = with("ADB_SERVER_SOCKET", "localfilesystem:/tmp/adb.socket")?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("ADB_SERVER_SOCKET"), "{}", told(&output));
    clean(&a)
}

/// Interrupted during detection, copy, start, run and fetch: status 130, and nothing is left, here or on the device.
pub fn interrupted_phases() -> Result<()> {
    let size = fs::metadata(fathom())?.len();
    // The copy alone takes some seconds.
    let phone = Phone::start(DAEMON_PATH, &Shape { rate: Some(size / 4), ..Shape::default() })?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("b.fathom");
    for phase in 0..12_u32 {
        let mut command = phone.fathom();
        command
            .args(QUICK_BENCHMARK)
            .args(["--blocks", "2", "--reconnect", "0", "--device", &phone.name(), "-o"])
            .arg(&archive);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        // A fixed wait: the phases follow each other, and the signal hits any of them.
        std::thread::sleep(std::time::Duration::from_millis(u64::from(phase * phase) * 60));
        let _ = run(Command::new("kill").args(["-INT", &child.id().to_string()]));
        let output = child.wait_with_output()?;
        // A run may already have succeeded; before its handlers are installed, a signal kills it like any program.
        let by_signal = output.status.code().is_none() && phase == 0;
        ensure!(by_signal || matches!(output.status.code(), Some(0 | 130)), "phase {phase}: {}", told(&output));
        ensure!(!told(&output).contains("panicked"), "{}", told(&output));
        wait_until("a clean device", || Ok(phone.left()?.is_empty() && phone.processes()?.is_empty()))
            .with_context(|| format!("phase {phase}: {:?} {:?}", phone.left(), phone.processes()))?;
        if !archive.join("meta.json").exists() {
            ensure!(
                fs::read_dir(directory.path())?.next().is_none(),
                "phase {phase}: half an archive: {}",
                told(&output)
            );
        }
        let _ = fs::remove_dir_all(&archive);
    }
    Ok(())
}
