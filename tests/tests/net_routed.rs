//! `fathom net run --link`: two devices routed through this host's emulated link. Devices and host are network
//! namespaces, set up as in docs/guide/net-link.md.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, rows, run, run_suite, wait_until};
use lab::netns::Namespace;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let needs = || fathom_tests::root().and_then(|()| installed("ip")).and_then(|()| installed("sysctl"));
    let cases: Vec<Case> = vec![
        ("link_requires_two_other_devices", Ok(()), link_requires_two_other_devices),
        ("round_trip_and_loss_match_link_options", needs(), round_trip_and_loss_match_link_options),
        ("text_and_json_describe_link", needs(), text_and_json_describe_link),
        ("bypassed_link_invalidates_run", needs(), passed_by),
        ("missing_ip_forwarding_is_reported", needs(), no_router),
        ("ctrl_c_and_sigkill_leave_no_routes", needs(), ctrl_c_and_sigkill_leave_no_routes),
        ("design_crosses_devices_with_link_options", needs(), || sweep("cubic", 16)),
        ("long::design_crosses_devices_with_congestion_controls", needs(), || sweep("reno,cubic", 32)),
    ];
    run_suite(cases)
}

fn link_requires_two_other_devices() -> Result<()> {
    let refused = |words: &[&str], reason: &str| {
        let output = Command::new(fathom()).args(["net", "run"]).args(words).stdin(Stdio::null()).output()?;
        let messages = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(2) && messages.contains(reason),
            "{words:?}: {:?}: {messages}",
            output.status
        );
        Ok(())
    };
    refused(&["--to", "netns:a", "--interface", "eth0", "--link", "delay=1ms"], "two other devices")?;
    refused(
        &["--from", "netns:a", "--to", "local", "--interface", "eth0", "--link", "delay=1ms"],
        "two other devices",
    )?;
    refused(&["127.0.0.1:7100", "--link", "delay=1ms"], "two other devices")?;
    refused(&["--from", "netns:a", "--to", "netns:b", "--link", "dealy=1ms"], "dealy")?;
    refused(&["--from", "netns:a", "--to", "netns:b", "--link", "delay=1ms,jitter=2ms"], "--delay")
}

/// A machine that routes between two devices, `phone` and `server` of the manual; each name is unique to this process.
struct Bench {
    router: Namespace,
    name: String,
}

impl Bench {
    fn make() -> Result<Self> {
        let bench = Self { router: Namespace::create()?, name: format!("fathom-{}", std::process::id()) };
        let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/net-link.md");
        let text = std::fs::read_to_string(&manual)?;
        let (_, after) =
            text.split_once("<!-- devices to try it with -->").context("the manual's commands are gone")?;
        let block = after.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).context("no commands")?;
        bench.shell(block)?;
        Ok(bench)
    }

    /// Runs commands of the manual on the router.
    fn shell(&self, script: &str) -> Result<()> {
        // A device's name is also that of its interface here, which is limited to 15 characters.
        let script = script.replace("netns add $device", &format!("netns add {}$device", self.name));
        let script = script.replace("netns $device", &format!("netns {}$device", self.name));
        let script = script.replace("-n $device", &format!("-n {}$device", self.name));
        let script = script.replace("-n phone", &format!("-n {}phone", self.name));
        let script = script.replace("-n server", &format!("-n {}server", self.name));
        run(self.router.command("sh").args(["-c", &format!("set -e\n{script}")])).map(drop)
    }

    fn device(&self, which: &str) -> String {
        format!("netns:{}{which}", self.name)
    }

    /// `fathom` on the router.
    fn fathom(&self, words: &[&str]) -> Command {
        let mut command = self.router.command(fathom());
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn fathom_command(&self, link: &str, words: &[&str]) -> Command {
        let (from, to) = (self.device("phone"), self.device("server"));
        let ends = ["net", "run", "--from", &from, "--to", &to, "--interface", "eth0", "--link", link];
        self.fathom(&[&ends[..], words].concat())
    }

    /// Whether nothing is left on the router or in the devices.
    fn clean(&self) -> Result<bool> {
        let rules = |family| Ok::<_, anyhow::Error>(run(self.router.command("ip").args([family, "rule"]))?.stdout);
        let rules = String::from_utf8([rules("-4")?, rules("-6")?].concat())?;
        let links = String::from_utf8(run(self.router.command("ip").args(["link"]))?.stdout)?;
        let tables = run(self.router.command("ip").args(["route", "show", "table", "all"]))?.stdout;
        let mut inside = Vec::new();
        for end in ["phone", "server"] {
            inside.extend(run(Command::new("ip").args(["netns", "pids", &format!("{}{end}", self.name)]))?.stdout);
        }
        let text = [links, String::from_utf8(tables)?].concat();
        Ok(!rules.contains("217")
            && !rules.contains("710")
            && !text.contains("fathom-to")
            && !text.contains("fathom-from")
            && inside.is_empty())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for end in ["phone", "server", "tablet"] {
            let _ = Command::new("ip").args(["netns", "del", &format!("{}{end}", self.name)]).output();
        }
    }
}

/// Returns the JSON of a run. On a busy machine the link may have been late, and the run then fails, but still prints
/// its JSON.
fn document(output: &Output) -> Result<Value> {
    let messages = String::from_utf8_lossy(&output.stderr);
    let value: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("{:?}: {messages}", output.status))?;
    ensure!(value["valid"] == output.status.success(), "{:?}: {value}", output.status);
    Ok(value)
}

fn number(value: &Value, path: &str) -> Result<f64> {
    value.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path} in {value}"))
}

/// Whether `seen` of `all` is consistent with this probability: within five standard deviations, which one in two million
/// exceeds.
fn drawn(seen: f64, all: f64, chance: f64) -> bool {
    (seen - all * chance).abs() <= 5.0 * (all * chance * (1.0 - chance)).sqrt() + 1.0
}

fn round_trip_and_loss_match_link_options() -> Result<()> {
    let bench = Bench::make()?;
    // The same path without the link, and with two delays of it: nothing is faster than both delays, and the rest is the
    // path's.
    for delay_ms in [0.0, 5.0, 20.0] {
        let link = format!("delay={delay_ms}ms");
        let value = document(&bench.fathom_command(&link, &["--transactions", "--duration", "1", "--json"]).output()?)?;
        let p50 = number(&value, "/latency_us/p50")?;
        ensure!(p50 >= 2000.0 * delay_ms, "nothing goes there and back in less than both delays: {p50} us at {link}");
        println!("{link}: round trip of a byte, median {p50} us");
    }
    // The devices' counts, and the link's reported losses, match the requested probability.
    for (way, other) in [("up", "down"), ("down", "up")] {
        let words = ["--udp", "--rate", "4M", "--packet", "500", "--direction", way, "--duration", "2", "--json"];
        let link = if way == "up" { "delay=2ms,loss=10%/0,seed=7" } else { "delay=2ms,loss=0/10%,seed=7" };
        let value = document(&bench.fathom_command(link, &words).output()?)?;
        let (sent, lost) =
            (number(&value, "/directions/0/packets/sent")?, number(&value, "/directions/0/packets/lost")?);
        ensure!(sent > 100.0 && drawn(lost, sent, 0.1), "{lost} of {sent} lost at 10 %: {value}");
        let [offered, dropped] = ["packets", "lost"].map(|what| number(&value, &format!("/link/{way}/{what}")));
        let (offered, dropped) = (offered?, dropped?);
        ensure!(offered >= sent && drawn(dropped, offered, 0.1) && dropped >= lost, "{value}");
        ensure!(number(&value, &format!("/link/{other}/lost"))? == 0.0, "{value}");
        println!("10 % {way}: {lost} of {sent} lost by the devices' count, {dropped} of {offered} by the link's");
    }
    ensure!(bench.clean()?, "something is left");
    Ok(())
}

fn text_and_json_describe_link() -> Result<()> {
    let bench = Bench::make()?;
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("r.fathom");
    let path = archive.to_str().context("a path of text")?;
    let link = "delay=10ms,rate=20mbit,queue=100";
    let value = document(
        &bench.fathom_command(link, &["--direction", "down", "--duration", "2", "--json", "-o", path]).output()?,
    )?;
    for figure in ["/lateness_us/p50", "/lateness_us/p99", "/link/lateness_us/max", "/throughput_bps/estimate"] {
        ensure!(number(&value, figure)? > 0.0);
    }
    ensure!(number(&value, "/throughput_bps/whole_run")? < 20e6, "more than the link carries: {value}");
    ensure!(number(&value, "/link/down/delivered_bytes")? >= number(&value, "/directions/0/streams_bytes/0")?);
    ensure!(value["ends"]["client"] == *bench.device("phone"), "{value}");
    let marks = rows(&archive, "marks")?;
    ensure!(marks.iter().any(|m| m["name"] == "link"), "the archive does not tell of the link: {marks:?}");
    ensure!(rows(&archive, "samples")?.iter().any(|s| s["metric"] == "link.late.p99"), "nor how late it was");
    let output =
        run(Command::new(fathom()).arg("report").arg(&archive).arg("-o").arg(directory.path().join("r.html")))?;
    ensure!(
        output.status.success() && std::fs::read_to_string(directory.path().join("r.html"))?.contains("delay=10ms")
    );
    // The text output contains the same at the end.
    let output = bench.fathom_command("delay=10ms", &["--duration", "1"]).output()?;
    let messages = String::from_utf8_lossy(&output.stdout);
    ensure!(messages.contains("from netns:") && messages.contains("lateness"), "{output:?}");
    // Over IPv6 too.
    bench.shell(
        "ip addr add fd07:50::1/64 dev phone nodad;   ip -n phone addr add fd07:50::2/64 dev eth0 nodad
         ip addr add fd07:60::1/64 dev server nodad;  ip -n server addr add fd07:60::2/64 dev eth0 nodad
         ip -n phone route add default via fd07:50::1;  ip -n server route add default via fd07:60::1
         sysctl -q net.ipv6.conf.all.forwarding=1",
    )?;
    let words = ["[fd07:60::2]:7100", "--transactions", "--duration", "1", "--json"];
    let value = document(&bench.fathom_command("delay=10ms", &words).output()?)?;
    ensure!(number(&value, "/latency_us/p50")? >= 20_000.0, "{value}");
    ensure!(bench.clean()?, "something is left");
    Ok(())
}

/// A cable from device to device, over which they reach each other without the router.
fn passed_by() -> Result<()> {
    let bench = Bench::make()?;
    bench.shell(
        "device=phone; ip -n $device link add wire0 type veth peer name wire1
         ip -n phone link set wire1 netns OTHER name wire0
         ip -n phone addr add 198.18.7.1/24 dev wire0; ip -n server addr add 198.18.7.2/24 dev wire0
         ip -n phone link set wire0 up; ip -n server link set wire0 up"
            .replace("OTHER", &format!("{}server", bench.name))
            .as_str(),
    )?;
    let mut command = bench.fathom(&["net", "run", "--from", &bench.device("phone"), "--to", &bench.device("server")]);
    command.args(["--interface", "wire0", "--link", "delay=10ms", "--duration", "1", "--lines"]);
    let output = command.output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && messages.contains("the client's route"), "{output:?}");
    let verdict = String::from_utf8_lossy(&output.stdout).lines().last().map(str::to_string).context("no lines")?;
    ensure!(verdict.contains("\"verified\":false"), "{verdict}");
    ensure!(bench.clean()?, "something is left");
    Ok(())
}

fn no_router() -> Result<()> {
    let bench = Bench::make()?;
    bench.shell("sysctl -q net.ipv4.ip_forward=0")?;
    let output = bench.fathom_command("delay=1ms", &["--duration", "1"]).output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && messages.contains("sysctl net.ipv4.ip_forward=1"), "{output:?}");
    ensure!(bench.clean()?, "something is left");
    Ok(())
}

/// Starts a long run, and waits until packets have passed the link.
fn under_way(bench: &Bench) -> Result<Child> {
    let child = bench.fathom_command("delay=1ms", &["--duration", "600", "--json"]).spawn()?;
    wait_until("packets in the link", || {
        let table = run(bench.router.command("cat").arg("/proc/self/net/dev"))?;
        let table = String::from_utf8(table.stdout)?;
        let line = table.lines().find_map(|l| l.trim().strip_prefix("fathom-to:")).unwrap_or_default();
        Ok(line.split_whitespace().nth(8).is_some_and(|bytes| bytes.len() > 5))
    })?;
    ensure!(!bench.clean()?);
    Ok(child)
}

fn ctrl_c_and_sigkill_leave_no_routes() -> Result<()> {
    let bench = Bench::make()?;
    let child = under_way(&bench)?;
    // A second one is refused until the first has ended.
    let output = bench.fathom_command("delay=1ms", &["--duration", "1"]).output()?;
    ensure!(String::from_utf8_lossy(&output.stderr).contains("another run uses"), "{output:?}");
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(130), "{output:?}");
    let value: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(number(&value, "/link/up/delivered")? > 0.0, "{value}");
    ensure!(bench.clean()?, "something is left after Ctrl-C");
    let mut child = under_way(&bench)?;
    child.kill()?;
    child.wait()?;
    wait_until("the end of all that was made", || bench.clean())?;
    // The next run works.
    document(&bench.fathom_command("delay=1ms", &["--duration", "1", "--json"]).output()?).map(drop)
}

/// A factor of a cell.
fn factor(cell: &Value, name: &str) -> Result<String> {
    let factors: Value = serde_json::from_str(cell["factors"].as_str().context("factors")?)?;
    factors[name].as_str().map(str::to_string).with_context(|| format!("no {name} in {factors}"))
}

/// The manual's design with fewer values and shorter runs: interrupted, killed, resumed; and each cell is the intended one.
fn sweep(controls: &str, cells: usize) -> Result<()> {
    let bench = Bench::make()?;
    let directory = tempfile::tempdir()?;
    // Another device besides the phone.
    bench.shell(
        "device=tablet; ip netns add $device
         ip link add $device type veth peer name eth0 netns $device
         ip link set $device up; ip -n $device link set eth0 up
         ip addr add 192.168.70.1/24 dev tablet; ip -n $device addr add 192.168.70.2/24 dev eth0
         ip -n $device route add default via 192.168.70.1",
    )?;
    let entries = || -> Vec<Value> {
        let text = std::fs::read_to_string(directory.path().join("s.fathom/runs.jsonl")).unwrap_or_default();
        text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
    };
    let runs =
        || -> Vec<Value> { entries().into_iter().map(|e| e["replicate"].clone()).filter(Value::is_object).collect() };
    let start = |words: &[&str]| -> Result<Child> {
        let mut command = bench.fathom(&["net", "sweep", "--no-wait"]);
        Ok(command.args(words).current_dir(directory.path()).spawn()?)
    };
    let design = directory.path().join("short.toml");
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/net/net-delay-devices.toml"),
    )?;
    std::fs::write(&design, text.replace("--duration={seconds}", "--duration=0.5"))?;
    let factors = [
        format!("from={},{}", bench.device("phone"), bench.device("tablet")),
        format!("to={}", bench.device("server")),
        "delay_ms=4,12".into(),
        "loss=0,3%".into(),
        format!("cc={controls}"),
        "direction=up,down".into(),
        "rate=0".into(),
    ];
    let mut words = vec![design.to_str().context("a path of text")?, "--blocks=1", "--seed=3", "-o", "s.fathom"];
    words.extend(factors.iter().flat_map(|f| ["-p", f]));
    for (signal, least) in [("-INT", 3), ("-KILL", 6)] {
        let child = if least == 3 { start(&words)? } else { start(&["--resume", "s.fathom"])? };
        wait_until("a few runs", || Ok(runs().len() >= least))?;
        run(Command::new("kill").args([signal, &child.id().to_string()]))?;
        let output = child.wait_with_output()?;
        ensure!(signal == "-KILL" || output.status.code() == Some(130), "{output:?}");
        wait_until("the end of all that was made", || bench.clean())?;
    }
    let output = start(&["--resume", "s.fathom"])?.wait_with_output()?;
    let runs = runs();
    ensure!(runs.len() == cells, "{} runs: {}", runs.len(), String::from_utf8_lossy(&output.stderr));
    ensure!(bench.clean()?, "something is left");
    look_at(&entries(), &runs, cells as u64)
}

/// Every cell was run once, in a random order; round trips and losses are the cell's, and the lateness added to a round trip is within what
/// the link reports, by the kernel's own measure of it. A run is valid unless that is wide, and an invalid run says so.
fn look_at(entries: &[Value], runs: &[Value], all: u64) -> Result<()> {
    let cells: Vec<&Value> = entries.iter().map(|e| &e["cell"]).filter(|c| c.is_object()).collect();
    let mut order = Vec::new();
    let (mut counted, mut asked, mut seen, mut widest) = (0, [0.0; 2], [0.0; 2], 0.0);
    for one in runs {
        let replicate = &one["replicate"];
        let id = replicate["cell"].as_u64().context("a cell")?;
        order.push(id);
        let cell = cells.iter().find(|c| c["id"] == id).context("its cell")?;
        let mark = one["marks"].as_array().and_then(|m| m.iter().find(|m| m["name"] == "link"));
        // A run that got no time at all on a busy machine gives the reason; a link that existed is checked whether the run's result is
        // valid or not.
        let Some(mark) = mark else {
            ensure!(replicate["verified"] != true, "a run without a link counts: {replicate}");
            continue;
        };
        let link: Value = serde_json::from_str(mark["text"].as_str().context("text")?)?;
        let low = number(&link, "/effect/rate/0")?;
        widest = f64::min(widest, low);
        if replicate["verified"] == true {
            counted += 1;
            ensure!(link["valid"] == true, "a run counts over a link that does not: {link}");
        } else if link["valid"] == false {
            let wide = low < -0.05 || number(&link, "/effect/latest_ms")? >= 200.0;
            let dropped = link["invalid_because"].to_string().contains("packets");
            ensure!(wide || dropped, "its lateness changes little, and it does not count: {link}");
        }
        let delay_ms: f64 = factor(cell, "delay_ms")?.parse()?;
        let samples = one["samples"].as_array().context("samples")?;
        let trips = samples.iter().filter(|s| s["metric"] == "tcp.min_rtt_us").filter_map(|s| s["value"].as_f64());
        let least = trips.filter(|us| *us > 0.0).fold(f64::INFINITY, f64::min);
        ensure!(least >= 2000.0 * delay_ms, "a round trip of {least} us at {delay_ms} ms each way");
        // No packet was later than the latest; the ends' kernels answer within the emulator's own call, and TCP's clock has a resolution of
        // a millisecond at worst.
        let latest = number(&link, "/up/late_at_most_us/max")? + number(&link, "/down/late_at_most_us/max")?;
        ensure!(
            !least.is_finite() || least <= 2000.0 * delay_ms + latest + 1000.0,
            "the least round trip is {least} us at {delay_ms} ms each way, and no packet was later than {latest} us: {link}"
        );
        let lossy = usize::from(factor(cell, "loss")? == "3%");
        for way in ["up", "down"] {
            asked[lossy] += number_of(&link, way, "packets")?;
            seen[lossy] += number_of(&link, way, "lost")?;
        }
        let granted = one["marks"].to_string();
        ensure!(granted.contains(&factor(cell, "cc")?), "not its congestion control: {granted}");
    }
    let mut sorted = order.clone();
    sorted.sort_unstable();
    ensure!(sorted == (0..all).collect::<Vec<u64>>() && order != sorted, "{order:?}");
    println!(
        "{counted} of {} runs count; lateness lowered a rate by at most {:.1} %; at 3 %: {} of {} packets lost",
        runs.len(),
        -100.0 * widest,
        seen[1],
        asked[1]
    );
    ensure!(seen[0] == 0.0 && drawn(seen[1], asked[1], 0.03), "{seen:?} of {asked:?} lost");
    Ok(())
}

fn number_of(link: &Value, way: &str, what: &str) -> Result<f64> {
    number(link, &format!("/{way}/{what}"))
}
