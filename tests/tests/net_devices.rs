//! `fathom net run --from DEVICE --to DEVICE`, with real transports to devices: network namespaces, a real sshd of the test's own, and
//! the real adb client with a fake of its server (tests/fakes/adb). Only the devices are simulated, by this host.

use anyhow::{Context, Result, bail, ensure};
use fathom_tests::sshd::Ssh;
use fathom_tests::tmpfs::Tmpfs;
use fathom_tests::{Case, fathom, installed, page_data, rows, run, run_suite, wait_until};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let spaces = || fathom_tests::root().and_then(|()| installed("ip"));
    let ssh = fathom_tests::sshd::possible;
    let adb = || installed("adb").and_then(|()| installed("python3")).and_then(|()| busybox());
    let cases: Vec<Case> = vec![
        ("invalid_device_error_lists_valid_forms", Ok(()), invalid_device_error_lists_valid_forms),
        ("server_listens_only_at_namespace_address", spaces(), server_listens_only_at_namespace_address),
        ("ctrl_c_is_forwarded_and_results_are_collected", spaces(), ctrl_c_is_forwarded_and_results_are_collected),
        ("killed_controller_leaves_no_process", spaces(), killed_controller_leaves_no_process),
        ("dead_end_stops_other_end", spaces(), dead_end_stops_other_end),
        ("devices_behind_one_access_point_share_clock", spaces().and_then(|()| nsenter()), access_point),
        ("ssh_copies_program_once_and_returns_results", ssh(), over_ssh),
        ("ssh_failures_are_reported", ssh(), ssh_troubles),
        ("facts_and_benchmark_of_ssh_host_are_fetched", ssh(), measured_over_ssh),
        ("adb_copies_program_once_and_returns_results", adb(), over_adb),
        ("adb_failures_are_reported", adb(), adb_troubles),
        ("full_and_noexec_devices_are_reported", adb().and_then(|()| fathom_tests::root()), no_room),
    ];
    run_suite(cases)
}

fn nsenter() -> Result<(), String> {
    installed("nsenter").and_then(|()| installed("sysctl"))
}

fn busybox() -> Result<(), String> {
    Path::new("/bin/busybox").exists().then_some(()).ok_or_else(|| "busybox is not installed".into())
}

/// Returns `fathom net run` with these arguments.
fn fathom_command(words: &[&str]) -> Command {
    let mut command = Command::new(fathom());
    command.args(["net", "run"]).args(words).stdin(Stdio::null());
    command
}

fn refused(command: &mut Command, status: i32, reason: &str) -> Result<()> {
    let output = command.output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(status) && messages.contains(reason),
        "{command:?}: {:?}: {messages}",
        output.status
    );
    ensure!(output.stdout.is_empty(), "it prints results all the same");
    Ok(())
}

/// Returns the JSON of a run that succeeded.
fn document(output: &Output) -> Result<Value> {
    ensure!(output.status.success(), "{:?}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(value["valid"] == true && value["throughput_bps"]["estimate"].as_f64() > Some(0.0), "{value}");
    Ok(value)
}

fn invalid_device_error_lists_valid_forms() -> Result<()> {
    for bad in ["phone", "ssh:-oProxyCommand=x", "netns:../x", "adb:"] {
        refused(&mut fathom_command(&["--to", bad, "--interface", "lo"]), 2, "ssh:[USER@]HOST[:PORT]")?;
    }
    refused(&mut fathom_command(&["--from", "ssh:a", "--to", "ssh:b"]), 2, "--interface")?;
    refused(&mut fathom_command(&["0.0.0.0:7100", "--to", "ssh:b"]), 2, "the wildcard address")?;
    refused(&mut fathom_command(&["--from", "ssh:a"]), 2, "ADDR:PORT")?;
    refused(&mut fathom_command(&["--to", "netns:no-such", "--interface", "lo"]), 1, "no such network namespace")?;
    refused(&mut fathom_command(&["--to", "local", "--interface", "lo", "-o", "/no/such/r.fathom"]), 1, "/no/such")
}

/// Two namespaces connected by a veth pair.
struct Pair(String);

impl Pair {
    fn make() -> Result<Self> {
        let pair = Self(format!("fathom-{}", std::process::id()));
        let (a, b) = (pair.name("a"), pair.name("b"));
        let ip = |words: &str| run(Command::new("ip").args(words.split(' '))).map(drop);
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!("link add wire0 netns {a} type veth peer name wire0 netns {b}"))?;
        for (name, address) in [(&a, "198.18.7.1/24"), (&b, "198.18.7.2/24")] {
            ip(&format!("-n {name} addr add {address} dev wire0"))?;
            ip(&format!("-n {name} link set wire0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(pair)
    }

    fn name(&self, end: &str) -> String {
        format!("{}{end}", self.0)
    }

    fn fathom_command(&self, words: &[&str]) -> Command {
        let device = |end| format!("netns:{}", self.name(end));
        let mut command = fathom_command(&["--from", &device("a"), "--to", &device("b"), "--interface", "wire0"]);
        command.args(words);
        command
    }

    /// The processes in one end.
    fn processes(&self, end: &str) -> Result<Vec<i32>> {
        let output = run(Command::new("ip").args(["netns", "pids", &self.name(end)]))?;
        Ok(String::from_utf8(output.stdout)?.lines().filter_map(|l| l.parse().ok()).collect())
    }

    fn empty(&self) -> Result<bool> {
        Ok(self.processes("a")?.is_empty() && self.processes("b")?.is_empty())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for end in ["a", "b"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(end)]).output();
        }
    }
}

/// Returns the listening sockets in one end: from the kernel's TCP table, as `address:port` in its hexadecimal form.
fn listening(pair: &Pair, end: &str) -> Result<Vec<String>> {
    let both = ["netns", "exec", &pair.name(end), "cat", "/proc/net/tcp", "/proc/net/tcp6"];
    let output = run(Command::new("ip").args(both))?;
    let table = String::from_utf8(output.stdout)?;
    let rows = table.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
    Ok(rows.filter(|r| r.get(3) == Some(&"0A")).map(|r| r[1].to_string()).collect())
}

fn server_listens_only_at_namespace_address() -> Result<()> {
    let pair = Pair::make()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("run.fathom");
    let mut command = pair.fathom_command(&["--duration", "1.5", "--direction", "both", "--json", "-o"]);
    let child = command.arg(&archive).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut seen = Vec::new();
    wait_until("a listening end", || {
        seen = listening(&pair, "b")?;
        Ok(!seen.is_empty())
    })?;
    // 198.18.7.2, little-endian.
    ensure!(seen.len() == 1 && seen[0].starts_with("020712C6:"), "{seen:?}");
    ensure!(listening(&pair, "a")?.is_empty(), "the client listens");
    let output = child.wait_with_output()?;
    let value = document(&output)?;
    ensure!(value["samples"] == archive.to_str().context("a path of text")?, "{}", value["samples"]);
    let (a, b) = (format!("netns:{}", pair.name("a")), format!("netns:{}", pair.name("b")));
    ensure!(value["ends"]["client"] == *a && value["ends"]["server"] == *b, "{}", value["ends"]);
    ensure!(pair.empty()?, "something is left running");

    run(Command::new(fathom()).args(["export", "--csv"]).arg(&archive).arg("-o").arg(directory.path().join("csv")))?;
    let samples = fs::read_to_string(directory.path().join("csv/samples.csv"))?;
    for way in ["direction=up stream=0", "direction=down stream=0"] {
        ensure!(samples.lines().any(|l| l.contains("tcp.cwnd") && l.contains(way)), "no window of {way}");
    }
    let marks = fs::read_to_string(directory.path().join("csv/marks.csv"))?;
    ensure!(marks.contains(&a) && marks.contains(&b) && marks.contains("to within"), "{marks}");
    let facts = fs::read_to_string(directory.path().join("csv/facts.csv"))?;
    ensure!(facts.contains("server.kernel.release"), "no facts of the server");
    let page = directory.path().join("run.html");
    run(Command::new(fathom()).arg("report").arg(&archive).arg("-o").arg(&page))?;
    let page = fs::read_to_string(page)?;
    ensure!(page.contains(&a) && page.contains(&b), "the page does not name both ends");
    Ok(())
}

/// Starts a long run, and waits until something has been measured.
fn under_way(pair: &Pair, words: &[&str]) -> Result<(Child, BufReader<std::process::ChildStderr>)> {
    let mut command = pair.fathom_command(&["--duration", "600"]);
    let mut child = command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut told = BufReader::new(child.stderr.take().context("stderr")?);
    let mut line = String::new();
    told.read_line(&mut line)?;
    ensure!(line.contains(" s  up "), "{line}");
    Ok((child, told))
}

fn ctrl_c_is_forwarded_and_results_are_collected() -> Result<()> {
    let pair = Pair::make()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("run.fathom");
    let (child, mut told) = under_way(&pair, &["-o", archive.to_str().context("a path of text")?])?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let mut messages = String::new();
    told.read_to_string(&mut messages)?;
    let output = child.wait_with_output()?;
    ensure!(
        output.status.code() == Some(130) && messages.contains("the results so far"),
        "{:?}: {messages}",
        output.status
    );
    ensure!(String::from_utf8_lossy(&output.stdout).contains("limited by"), "no result");
    ensure!(archive.join("meta.json").exists(), "no archive");
    ensure!(fs::read_dir(directory.path())?.count() == 1 && pair.empty()?, "something is left");
    Ok(())
}

fn killed_controller_leaves_no_process() -> Result<()> {
    let pair = Pair::make()?;
    let (mut child, _told) = under_way(&pair, &[])?;
    ensure!(!pair.empty()?);
    child.kill()?;
    child.wait()?;
    wait_until("the end of both ends", || pair.empty())
}

fn dead_end_stops_other_end() -> Result<()> {
    let pair = Pair::make()?;
    for end in ["a", "b"] {
        let (child, mut told) = under_way(&pair, &[])?;
        // The agent of one end and its children: as if the device had lost power.
        for process in pair.processes(end)? {
            run(Command::new("kill").args(["-KILL", &process.to_string()]))?;
        }
        let mut messages = String::new();
        told.read_to_string(&mut messages)?;
        let output = child.wait_with_output()?;
        ensure!(output.status.code() == Some(1), "{:?}: {messages}", output.status);
        ensure!(messages.contains(&pair.name(end)) || messages.contains("broke"), "{messages}");
        wait_until("the end of the other", || pair.empty())?;
    }
    Ok(())
}

/// Two devices that reach a server through one access point: each has a cable to it, and the path from there on is one medium for
/// all packets of both, in both directions (54 Mb/s, and 165 us per packet).
struct Cell {
    link: Child,
    name: String,
}

impl Cell {
    fn make() -> Result<Self> {
        let mut command = Command::new(fathom());
        command.args(["net", "link", "--preset", "wifi-g"]).stdin(Stdio::null()).stdout(Stdio::null());
        let link = command.stderr(Stdio::piped()).spawn()?;
        let mut cell = Self { link, name: format!("fathom-{}", std::process::id()) };
        let mut messages = BufReader::new(cell.link.stderr.take().context("stderr")?).lines();
        for end in ["ap", "server"] {
            let line = messages.by_ref().find(|l| l.as_ref().map_or(true, |l| l.contains("--target")));
            let line = line.context("it says no process number")??;
            let number = line.split_whitespace().skip_while(|word| *word != "--target").nth(1).context("no number")?;
            run(Command::new("ip").args(["netns", "attach", &cell.of(end), number]))?;
        }
        // Its final output is not read.
        std::thread::spawn(move || messages.for_each(drop));
        let (ap, server) = (cell.of("ap"), cell.of("server"));
        let ip = |words: String| run(Command::new("ip").args(words.split(' '))).map(drop);
        for (number, device) in [(1, cell.of("one")), (2, cell.of("two"))] {
            ip(format!("netns add {device}"))?;
            ip(format!("link add eth0 netns {device} type veth peer name sta{number} netns {ap}"))?;
            ip(format!("-n {device} addr add 10.77.{number}.2/24 dev eth0"))?;
            ip(format!("-n {ap} addr add 10.77.{number}.1/24 dev sta{number}"))?;
            ip(format!("-n {device} link set eth0 up"))?;
            ip(format!("-n {ap} link set sta{number} up"))?;
            ip(format!("-n {device} route add default via 10.77.{number}.1"))?;
        }
        ip(format!("netns exec {ap} sysctl -q net.ipv4.ip_forward=1"))?;
        ip(format!("-n {server} route add 10.77.0.0/16 dev link0"))?;
        Ok(cell)
    }

    fn of(&self, end: &str) -> String {
        format!("{}-{end}", self.name)
    }

    /// One device measures the path to the server.
    fn measures(&self, device: &str, seconds: &str, archive: &Path) -> Result<Child> {
        let (from, to) = (format!("netns:{}", self.of(device)), format!("netns:{}", self.of("server")));
        let ends = ["--from", &from, "--to", &to, "--interface", "eth0", "--to-interface", "link0"];
        let mut command = fathom_command(&ends);
        command.args(["--duration", seconds, "-o"]).arg(archive).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(command.spawn()?)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        for end in ["one", "two", "ap", "server"] {
            let _ = Command::new("ip").args(["netns", "del", &self.of(end)]).output();
        }
        // As Ctrl-C does.
        let _ = Command::new("kill").args(["-INT", &self.link.id().to_string()]).output();
        let _ = self.link.wait();
    }
}

/// Throughput of a run over time: ends of intervals and bits in them.
fn throughput(archive: &Path) -> Result<Series> {
    let mut all: Vec<(u64, f64)> = rows(archive, "samples")?
        .iter()
        .filter(|s| s["metric"] == "interval")
        .map(|s| Ok((s["time_ns"].parse()?, s["value"].parse()?)))
        .collect::<Result<_>>()?;
    all.sort_by_key(|(end, _)| *end);
    ensure!(all.len() > 10, "only {} intervals", all.len());
    let mut before = all[0].0 - 100_000_000;
    for (end, value) in &mut all {
        *value *= (*end - before) as f64 / 1e9;
        before = *end;
    }
    Ok(all)
}

/// The mean rate in intervals that ended from `from` to `to`.
fn mean(of: &[(u64, f64)], from: u64, to: u64) -> f64 {
    let within = of.iter().filter(|(end, _)| (from..=to).contains(end));
    within.map(|(_, bits)| bits).sum::<f64>() * 1e9 / (to - from) as f64
}

/// Two stations at an access point. On a busy machine both together may get less than one alone should: then the result is inconclusive,
/// and they measure again.
fn access_point() -> Result<()> {
    for _ in 0..3 {
        let directory = tempfile::tempdir()?;
        if let Some(runs) = at_access_point(directory.path())? {
            return on_one_page(directory.path(), &runs);
        }
    }
    bail!("both together never had more than one alone, so nothing was shown")
}

/// Throughput over time.
type Series = Vec<(u64, f64)>;

/// Returns both runs, the second within the first; `None` if they do not show that they shared the medium.
fn at_access_point(directory: &Path) -> Result<Option<[Series; 2]>> {
    let cell = Cell::make()?;
    let (one, two) = (directory.join("one.fathom"), directory.join("two.fathom"));
    // It is interrupted when the second run has ended, however late a busy machine starts that one.
    let mut first = cell.measures("one", "600", &one)?;
    // The second begins when the first has been running for two seconds.
    let mut told = BufReader::new(first.stderr.take().context("stderr")?).lines();
    for line in told.by_ref() {
        if line?.contains("2.0 s  up") {
            break;
        }
    }
    let second = cell.measures("two", "3", &two)?.wait_with_output()?;
    run(Command::new("kill").args(["-INT", &first.id().to_string()]))?;
    let messages: Vec<String> = told.map_while(Result::ok).collect();
    let first = first.wait()?;
    ensure!(
        first.code() == Some(130) && second.status.success(),
        "{messages:?} {}",
        String::from_utf8_lossy(&second.stderr)
    );

    let (a, b) = (throughput(&one)?, throughput(&two)?);
    let (begin, end) = (b[0].0, b[b.len() - 1].0);
    ensure!(a[0].0 < begin && end < a[a.len() - 1].0, "the second run is not within the first");
    // A full packet takes 1500 bytes at 54 Mb/s and 165 us, and carries 1448; acknowledgements take more.
    let most = 1448.0 * 8.0 / (1500.0 * 8.0 / 54e6 + 165e-6);
    let (from, to) = (begin + 500_000_000, end - 200_000_000);
    let (alone, beside, other) = (mean(&a, a[0].0, begin - 200_000_000), mean(&a, from, to), mean(&b, from, to));
    println!("alone {:.1} Mb/s, then {:.1} beside {:.1}, of {:.1}", alone / 1e6, beside / 1e6, other / 1e6, most / 1e6);
    // Both rates at one time add up to what the medium carries. On clocks that differ by as much as the second run lasted, the first would
    // have all of it during that time.
    let interval = most * 0.1 / ((to - from) as f64 / 1e9);
    ensure!(beside + other <= most + interval, "{beside} and {other} bit/s at once, of {most}");
    let shown = alone + other > most + interval && beside < alone * 0.9;
    Ok(shown.then_some([a, b]))
}

fn on_one_page(directory: &Path, [a, b]: &[Series; 2]) -> Result<()> {
    let (one, two) = (directory.join("one.fathom"), directory.join("two.fathom"));
    let page = directory.join("both.html");
    run(Command::new(fathom()).arg("report").args([&one, &two]).arg("-o").arg(&page))?;
    let page = page_data(&page)?;
    let charts = page["flows"].as_array().context("flows")?;
    let chart = charts.iter().find(|c| c["title"] == "throughput").context("no chart of throughput")?;
    let lines = chart["flows"].as_array().context("lines")?;
    ensure!(lines.len() == 2, "{} lines on the axis", lines.len());
    let begins = |line: &Value| line["points"][0][0].as_f64().context("a point");
    let apart = begins(&lines[1])? - begins(&lines[0])?;
    ensure!((apart - (b[0].0 - a[0].0) as f64 / 1e9).abs() < 1e-6, "they stand {apart} s apart on the page");
    Ok(())
}

/// Returns `fathom net run` with these arguments, using that sshd.
fn ssh_command(ssh: &Ssh, words: &[&str]) -> Command {
    let mut command = fathom_command(words);
    ssh.path(&mut command);
    command
}

fn over_ssh() -> Result<()> {
    let ssh = Ssh::start()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("run.fathom");
    let device = ssh.device();
    let words = ["--from", &device, "--to", &device, "--interface", "lo", "--duration", "1", "--json", "-o"];
    let go = || -> Result<String> {
        let output = ssh_command(&ssh, &words).arg(&archive).output()?;
        let value = document(&output)?;
        ensure!(value["ends"]["client"] == *device, "{}", value["ends"]);
        ensure!(ssh.kept()?.len() == 1, "left behind: {:?}", ssh.kept()?);
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    ensure!(go()?.matches("copying Fathom").count() == 1, "it is put there once for both ends");
    ensure!(archive.join("meta.json").exists(), "no archive");
    ensure!(!go()?.contains("copying"), "it was there already");
    // Another file of that name is not run.
    let kept = ssh.kept()?.remove(0);
    fs::write(&kept, "#!/bin/sh\necho no\n")?;
    ensure!(go()?.contains("copying Fathom"), "another program was taken for it");
    ensure!(fs::read(&kept)? == fs::read(fathom())?, "not what was put there");
    // A given address, and one end here.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    document(&ssh_command(&ssh, &[&port, "--to", &device, "--duration", "1", "--json"]).output()?).map(drop)
}

fn measured_over_ssh() -> Result<()> {
    let ssh = Ssh::start()?;
    let directory = tempfile::tempdir()?;
    let fathom = |words: &[&str]| -> Result<Output> {
        let mut command = Command::new(fathom());
        command.args(words).current_dir(directory.path()).stdin(Stdio::null());
        ssh.path(&mut command);
        Ok(command.output()?)
    };
    let device = ssh.device();
    let value: Value = serde_json::from_slice(&fathom(&["device", "info", &device, "--json"])?.stdout)?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    ensure!(value["facts"]["kernel.release"]["value"] == release.trim() && value["device"] == *device, "{value}");
    let words = ["bench", "run", "sqlite", "--quick", "--no-wait", "--blocks", "1", "-p", "rows=10", "-p", "op=insert"];
    let output = fathom(&[&words[..], &["--device", &device, "-o", "b.fathom", "--json"]].concat())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(value["results"].as_array().is_some_and(|r| !r.is_empty()), "{value}");
    ensure!(!rows(&directory.path().join("b.fathom"), "replicates")?.is_empty(), "no process came back");
    ensure!(ssh.kept()?.len() == 1, "left behind: {:?}", ssh.kept()?);
    // The command's own output and status are passed through.
    let output = fathom(&["record", "--backend", "none", "--device", &device, "--", "sh", "-c", "echo hello; exit 5"])?;
    ensure!(output.status.code() == Some(5) && output.stdout == b"hello\n", "{output:?}");
    Ok(())
}

fn ssh_troubles() -> Result<()> {
    let ssh = Ssh::start()?;
    let device = ssh.device();
    let to = |device: &str| ssh_command(&ssh, &["--to", device, "--interface", "lo"]);
    refused(&mut to("ssh:no-such-host.invalid"), 1, "check the name")?;
    refused(&mut to("ssh:127.0.0.1:1"), 1, "no ssh server is listening")?;
    refused(&mut ssh_command(&ssh, &["--to", &device, "--interface", "nosuch0"]), 1, "no interface nosuch0")?;
    let taken = format!("127.0.0.1:{}", ssh.port);
    refused(&mut ssh_command(&ssh, &[&taken, "--to", &device]), 1, "another program uses this port")?;
    // A key that is not authorized.
    let config = ssh.directory.path().join("config");
    let text = fs::read_to_string(&config)?.replace("/user\n", "/host\n");
    fs::write(&config, text)?;
    refused(&mut to(&device), 1, "ssh-copy-id")?;
    fs::write(ssh.directory.path().join("known"), "")?;
    refused(&mut to(&device), 1, "connect once with ssh")?;
    refused(
        fathom_command(&["--to", &device, "--interface", "lo"]).env("PATH", "/nonexistent"),
        1,
        "apt-get install openssh-client",
    )
}

/// The fake of adb's server, with devices, for the real client.
struct Adb {
    server: Child,
    port: String,
    directory: tempfile::TempDir,
}

impl Adb {
    fn start(machine: &str, devices: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::create_dir(directory.path().join("tmp"))?;
        let file = directory.path().join("port");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fakes/adb/server.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(&file).arg(directory.path()).arg(machine).args(devices).stdin(Stdio::null());
        let mut adb = Self { server: command.spawn()?, port: String::new(), directory };
        wait_until("the fake of adb's server", || Ok(file.exists()))?;
        adb.port = fs::read_to_string(file)?;
        Ok(adb)
    }

    fn fathom_command(&self, words: &[&str]) -> Command {
        let mut command = fathom_command(&["--interface", "lo"]);
        command.args(words).env("ANDROID_ADB_SERVER_PORT", &self.port);
        command
    }

    fn kept(&self) -> Result<Vec<String>> {
        let all = fs::read_dir(self.directory.path().join("tmp/fathom"))?;
        let all = all.map(|e| Ok(e?.file_name().to_string_lossy().into_owned()));
        // Besides its hash.
        all.filter(|name| !name.as_ref().is_ok_and(|name| name == "verified")).collect()
    }
}

impl Drop for Adb {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn over_adb() -> Result<()> {
    let adb = Adb::start(std::env::consts::ARCH, &["R58=device", "192.0.2.3:5555=device"])?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("run.fathom");
    let words = ["--from", "adb:R58", "--to", "adb:192.0.2.3:5555", "--duration", "1", "--json", "-o"];
    let output = adb.fathom_command(&words).arg(&archive).output()?;
    let value = document(&output)?;
    ensure!(value["ends"]["server"] == "adb:192.0.2.3:5555", "{}", value["ends"]);
    ensure!(String::from_utf8_lossy(&output.stderr).matches("copying").count() == 1);
    ensure!(archive.join("meta.json").exists(), "no archive");
    let kept = adb.kept()?;
    ensure!(kept.len() == 1 && kept[0].starts_with("fathom-"), "left behind: {kept:?}");
    // The client's messages and its status are passed through.
    refused(&mut adb.fathom_command(&["--from", "adb:R58", "--to", "local", "--cc", "nosuch"]), 1, "nosuch")?;
    let output = adb
        .fathom_command(&["--to", "adb:R58", "--duration", "1", "--udp", "--preset", "iperf2", "--json"])
        .output()?;
    document(&output).map(drop)
}

fn adb_troubles() -> Result<()> {
    let adb = Adb::start("riscv64", &["R58=device", "NEW=unauthorized", "GONE=offline", "OLD=device:cmd"])?;
    let to = |device: &str, reason: &str| refused(&mut adb.fathom_command(&["--to", device]), 1, reason);
    to("adb", "choose one of adb:R58, adb:NEW")?;
    to("adb:none", "no device of that name")?;
    to("adb:NEW", "allow USB debugging")?;
    to("adb:GONE", "plug it in again")?;
    to("adb:OLD", "Android 7")?;
    // An architecture that Fathom is not built for.
    to("adb:R58", "its architecture is riscv64")?;
    let file = adb.directory.path().join("text").display().to_string();
    fs::write(&file, "no program")?;
    refused(&mut adb.fathom_command(&["--to", "adb:R58", "--binary", &file]), 1, "is not a Linux program")?;
    let none = Adb::start("x86_64", &[])?;
    refused(&mut none.fathom_command(&["--to", "adb"]), 1, "adb lists no device")?;
    // A port on which nobody listens, and no adb that would start a server there.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let mut alone = none.fathom_command(&["--to", "adb"]);
    refused(alone.env("PATH", "/nonexistent").env("ANDROID_ADB_SERVER_PORT", port), 1, "apt-get install adb")
}

/// A file system with little free space, or one mounted noexec.
fn no_room() -> Result<()> {
    for (options, reason) in [("size=4m", "free space on the device"), ("noexec", "noexec")] {
        let adb = Adb::start(std::env::consts::ARCH, &["R58=device"])?;
        let _mounted = Tmpfs::mount_at(adb.directory.path().join("tmp"), options)?;
        refused(&mut adb.fathom_command(&["--to", "adb"]), 1, reason)?;
        let kept = adb.kept()?;
        if kept.iter().any(|name| name.starts_with("part-")) {
            bail!("half of it was left: {kept:?}");
        }
    }
    Ok(())
}
