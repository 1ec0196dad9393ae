//! Which devices exist, and the facts known about them: from adb's list, despite its errors, and from tools of the device, whose
//! output is untrusted.

use super::{DAEMON_PATH, clean, json, phone, told};
use anyhow::{Context, Result, ensure};
use fathom_tests::phone::{Phone, Shape};
use fathom_tests::{fathom, run, wait_until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

pub fn no_server() -> Result<()> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let mut command = Command::new(fathom());
    command.args(["device", "info", "adb"]).env("ANDROID_ADB_SERVER_PORT", &port).env("PATH", "/nonexistent");
    let output = command.output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("apt-get install adb"), "{}", told(&output));
    let mut command = Command::new(fathom());
    command.args(["device", "list", "--json"]).env("ANDROID_ADB_SERVER_PORT", &port).env("PATH", "/nonexistent");
    let value = json(&command.output()?)?;
    ensure!(value["devices"][0]["device"] == "local" && value["adb_problem"].is_string(), "{value}");
    let output = Command::new(fathom()).args(["device", "info", "phone"]).output()?;
    ensure!(output.status.code() == Some(2) && told(&output).contains("adb:SERIAL"), "{}", told(&output));
    Ok(())
}

/// A phone that accepts every request and answers none: all that there is of it is adb's server, which says so much.
pub fn mute_device_is_given_up_by_first_ctrl_c() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for silent_from in [SilencePoint::List, SilencePoint::Shell] {
        for words in [
            &["device", "info", "adb:R58", "--json"][..],
            &["bench", "run", "http", "--quick", "--no-wait", "--device", "adb:R58", "-o", "b.fathom"],
            &["record", "--device", "adb:R58", "-o", "r.fathom", "--", "true"],
            &["device", "stop", "adb:R58"],
            &["device", "fetch", "adb:R58", "bench-1"],
        ] {
            let server = MuteServer::start(silent_from)?;
            let mut command = Command::new(fathom());
            command.args(words).env("ANDROID_ADB_SERVER_PORT", &server.port).current_dir(directory.path());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
            server.reached.recv()?;
            run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
            let ended = wait_until("its end", || Ok(child.try_wait()?.is_some()));
            if ended.is_err() {
                child.kill()?;
            }
            let output = child.wait_with_output()?;
            ended.with_context(|| format!("{words:?} survives Ctrl-C: {}", told(&output)))?;
            // Before its handlers are installed, a signal kills it like any program.
            let code = output.status.code();
            ensure!(matches!(code, None | Some(130 | 1)), "{words:?}: {code:?} {}", told(&output));
            ensure!(!told(&output).contains("panicked"), "{}", told(&output));
        }
    }
    Ok(())
}

/// From where on the server says nothing.
#[derive(Clone, Copy, PartialEq)]
enum SilencePoint {
    List,
    Shell,
}

/// The words of adb's server up to there.
struct MuteServer {
    port: String,
    /// A message when it has become silent.
    reached: std::sync::mpsc::Receiver<()>,
}

impl MuteServer {
    fn start(silent: SilencePoint) -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port().to_string();
        let (sender, reached) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                let _ = answer_until(&stream, silent).map(|()| sender.send(()));
                open.push(stream);
            }
        });
        Ok(Self { port, reached })
    }
}

/// Answers requests until it falls silent; a connection that ends before is an error.
fn answer_until(mut stream: &std::net::TcpStream, silent: SilencePoint) -> std::io::Result<()> {
    use std::io::{Read as _, Write as _};
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = std::str::from_utf8(&length).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok());
        let mut request = vec![0; length.unwrap_or_default()];
        stream.read_exact(&mut request)?;
        let block = |text: &str| format!("OKAY{:04x}{text}", text.len());
        let answer = match request.as_slice() {
            _ if silent == SilencePoint::List => return Ok(()),
            b"host:devices-l" => block("R58 device usb:1-1\n"),
            r if r.starts_with(b"host-serial:") => block("shell_v2"),
            r if r.starts_with(b"host:transport") => "OKAY".into(),
            // The shell is open; its command never answers.
            r if r.starts_with(b"shell") => {
                stream.write_all(b"OKAY")?;
                return Ok(());
            }
            _ => return Ok(()),
        };
        stream.write_all(answer.as_bytes())?;
    }
}

pub fn real_adb_authenticates_and_lists_device() -> Result<()> {
    let phone = phone()?;
    let value = json(&phone.fathom().args(["device", "list", "--json"]).output()?)?;
    let device = &value["devices"][1];
    ensure!(
        device["device"] == phone.name() && device["usable"] == true && device["model"] == "Private_Root",
        "{value}"
    );
    // The list is printed again when the device disappears.
    let mut watch = phone.fathom();
    watch.args(["device", "list", "--watch", "--json"]).stdout(Stdio::piped());
    let mut watch = watch.spawn()?;
    let mut lines = BufReader::new(watch.stdout.take().context("stdout")?).lines();
    ensure!(lines.next().context("no list")??.contains(&phone.serial));
    phone.cut()?;
    let usable = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        value["devices"]
            .as_array()
            .is_some_and(|all| all.iter().any(|d| d["device"] == phone.name() && d["usable"] == true))
    };
    let gone = lines.by_ref().map_while(Result::ok).any(|line| !usable(&line));
    run(Command::new("kill").args(["-INT", &watch.id().to_string()]))?;
    ensure!(gone && watch.wait()?.success(), "its going was not told");
    Ok(())
}

pub fn unauthorized_device_is_reported() -> Result<()> {
    let phone = Phone::start(DAEMON_PATH, &Shape { authorized: false, ..Shape::default() })?;
    wait_until("an unauthorized device", || {
        let value = json(&phone.fathom().args(["device", "list", "--json"]).output()?)?;
        Ok(value["devices"][1]["state"] == "unauthorized")
    })?;
    let output = phone.fathom().args(["device", "info", &phone.name()]).output()?;
    ensure!(output.status.code() == Some(1) && told(&output).contains("allow USB debugging"), "{}", told(&output));
    Ok(())
}

pub fn facts_and_abilities_come_over_real_adb() -> Result<()> {
    let phone = phone()?;
    let value = json(&phone.fathom().args(["device", "info", &phone.name(), "--json"]).output()?)?;
    let fact = |name: &str| value["facts"][name]["value"].as_str().unwrap_or_default().to_owned();
    ensure!(value["version"] == 1 && value["device"] == phone.name(), "{value}");
    // Properties are replayed; the kernel is this machine's own, and the user is the device's.
    ensure!(fact("os.sdk") == "34" && fact("device.model") == "Example 7", "{value}");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    ensure!(fact("kernel.release") == release.trim() && fact("access.uid") == "2000", "{value}");
    ensure!(fact("access.capabilities") == "none", "{value}");
    let value = json(&phone.fathom().args(["device", "check", &phone.name(), "--json"]).output()?)?;
    let rows = value["abilities"].as_array().context("abilities")?;
    let row = |what: &str| rows.iter().find(|r| r["what"] == what).map(|r| r["can"].clone());
    ensure!(row("record: eBPF") == Some("no".into()) && row("record: --via perfetto") == Some("yes".into()), "{value}");
    let output = phone.fathom().args(["device", "info", &phone.name(), "--all"]).output()?;
    ensure!(output.status.success() && told(&output).contains("[getprop ro.product.model]"), "{}", told(&output));
    clean(&phone)
}

/// Devices that answer are shown, each separately, and one that does not is reported.
pub fn several_devices_are_looked_at_at_once() -> Result<()> {
    let open = Shape { open: true, ..Shape::default() };
    let (a, b) = (Phone::start(DAEMON_PATH, &Shape::default())?, Phone::start(DAEMON_PATH, &open)?);
    b.connect_to(&a)?;
    b.replay("getprop ro.product.model", b"Other 8\n")?;
    let ask = |words: &[&str]| -> Result<Output> { Ok(a.fathom().arg("device").args(words).output()?) };
    let lines = |output: &Output| -> Result<Vec<Value>> {
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
    };
    let mut names = [a.name(), b.name()];
    names.sort();
    for verb in ["info", "check"] {
        let output = ask(&[verb, "all", "--json"])?;
        let mut found: Vec<String> =
            lines(&output)?.iter().filter_map(|d| d["device"].as_str().map(Into::into)).collect();
        found.sort();
        ensure!(output.status.success() && found == names, "{verb}: {}", told(&output));
        // In the order of the command line, separated by an empty line.
        let output = ask(&[verb, &format!("{},local,{}", b.name(), a.name())])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let heads: Vec<&str> = text.split("\n\n").filter_map(|block| block.lines().next()).collect();
        ensure!(output.status.success() && heads.len() == 3, "{verb}: {}", told(&output));
        let named = heads.iter().zip([&b.name(), "local", &a.name()]).all(|(head, name)| head.starts_with(name));
        ensure!(named, "{verb}: {heads:?}");
        let output = ask(&[verb, &format!("{},adb:R58M1,local", a.name()), "--json"])?;
        ensure!(output.status.code() == Some(1) && lines(&output)?.len() == 2, "{verb}: {}", told(&output));
        ensure!(told(&output).contains("adb:R58M1: adb lists no device of that name"), "{verb}: {}", told(&output));
    }
    // A device with two names is one device.
    for phone in [&a, &b] {
        phone.replay("getprop ro.serialno", b"R5CT\n")?;
    }
    let output = ask(&["check", "all", "--json"])?;
    ensure!(lines(&output)?.len() == 1 && told(&output).contains("the same device"), "{}", told(&output));
    clean(&a)
}

/// The output of its tools is untrusted: too long, terminal escape sequences, binary, never ending.
pub fn hostile_output_of_device_is_bounded_and_escaped() -> Result<()> {
    let phone = phone()?;
    let info = |more: &[&str]| -> Result<Output> {
        Ok(phone.fathom().args(["device", "info", &phone.name()]).args(more).output()?)
    };
    phone.replay(
        "getprop",
        b"[ro.product.model]: [\x1b]0;owned\x07\xff\xfe\x1b[2JModel]\n[ro.product.device]: [<b>\x00\x9b31m]\n[broken\n",
    )?;
    phone.replay("dumpsys battery", &[0xff; 4096])?;
    phone.replay("getenforce", b"\x1b[31mEnforcing\r\n\r\n")?;
    for more in [&["--all"][..], &["--json"], &[]] {
        let output = info(more)?;
        ensure!(output.status.success(), "{}", told(&output));
        let raw = output.stdout.iter().chain(&output.stderr).find(|b| b.is_ascii_control() && **b != b'\n');
        ensure!(
            raw.is_none() && !told(&output).contains('\u{9b}'),
            "{more:?}: an order to the terminal: {}",
            told(&output)
        );
    }
    // A gigabyte, from a sparse file.
    let path = phone.replayed("getprop");
    fs::File::create(&path)?.set_len(1 << 30)?;
    let value = json(&info(&["--json"])?)?;
    ensure!(value["facts"]["os.build"]["unknown"].as_str().is_some_and(|why| why.contains("more than")), "{value}");
    clean(&phone)
}

pub fn same_model() -> Result<()> {
    let open = Shape { open: true, ..Shape::default() };
    let (a, b) = (Phone::start(DAEMON_PATH, &Shape::default())?, Phone::start(DAEMON_PATH, &open)?);
    b.connect_to(&a)?;
    let value = json(&a.fathom().args(["device", "list", "--json"]).output()?)?;
    let models: Vec<_> = value["devices"].as_array().context("devices")?.iter().map(|d| &d["model"]).collect();
    ensure!(models.iter().filter(|m| **m == "Private_Root").count() == 2, "{value}");
    // Of two devices none is chosen, and a name of no device matches none.
    for (device, why) in [("adb", a.name()), ("adb", b.name()), ("adb:R58M1", b.name())] {
        let output = a.fathom().args(["device", "info", device]).output()?;
        ensure!(output.status.code() == Some(1) && told(&output).contains(&why), "{device}: {}", told(&output));
    }
    run(a.adb().args(["disconnect"]))?;
    let directory = tempfile::tempdir()?;
    for words in [
        &["bench", "run", "sqlite", "--quick", "--device", "all"][..],
        &["record", "--all", "--duration", "1", "--device", "all"],
    ] {
        let output = a.fathom().args(words).arg("-o").arg(directory.path().join("x")).output()?;
        ensure!(
            output.status.code() == Some(1) && told(&output).contains("no usable device"),
            "{words:?}: {}",
            told(&output)
        );
        ensure!(fs::read_dir(directory.path())?.next().is_none(), "{words:?}: something was left here");
    }
    // A port that listens and sends nothing is offline, or is not listed; it is not waited for.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let serial = format!("127.0.0.1:{}", silent.local_addr()?.port());
    let mut connecting = a.adb().args(["connect", &serial]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let output = a.fathom().args(["device", "info", &format!("adb:{serial}")]).output()?;
    ensure!(output.status.code() == Some(1), "{}", told(&output));
    ensure!(["offline", "lists no device", "not found"].iter().any(|w| told(&output).contains(w)), "{}", told(&output));
    connecting.kill()?;
    connecting.wait()?;
    Ok(())
}
