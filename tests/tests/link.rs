//! `fathom net link` and the commands built on it, through the program: commands on both ends, figures, termination and errors. All
//! traffic is in namespaces that the program creates.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, run, run_suite, wait_until};
use lab::netns::Namespace;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Duration;

fn main() -> ExitCode {
    let bed = || installed("ip").and_then(|()| possible());
    let cases: Vec<Case> = vec![
        ("command_runs_on_link_and_statistics_are_printed", bed(), command_and_figures),
        ("large_transfer_arrives_whole_with_and_without_gso", bed(), large_transfer_arrives_whole_with_and_without_gso),
        ("rate_and_queue_give_exact_counts", bed(), rate_and_queue_give_exact_counts),
        ("failing_command_status_is_returned", bed(), failing_command_status_is_returned),
        ("killed_link_leaves_no_namespace", bed(), killed_link_leaves_no_namespace),
        ("invalid_link_options_are_refused_before_setup", Ok(()), invalid_link_options_are_refused_before_setup),
        ("trial_prints_replicate_lines", bed(), trial_prints_replicate_lines),
        (
            "kernel_timestamps_agree_with_reported_lateness",
            bed().and_then(|()| fathom_tests::root()).and_then(|()| installed("python3")),
            lateness_is_stamped,
        ),
        (
            "documented_commands_set_up_router",
            bed().and_then(|()| fathom_tests::root()).and_then(|()| installed("sysctl")),
            documented_commands_set_up_router,
        ),
        (
            "documented_nft_commands_give_internet_access",
            bed()
                .and_then(|()| fathom_tests::root())
                .and_then(|()| installed("sysctl"))
                .and_then(|()| installed("nft")),
            documented_internet_access,
        ),
        (
            "bundled_congestion_control_runs_over_link",
            bed().and_then(|()| fathom_tests::root()),
            bundled_congestion_control_runs_over_link,
        ),
        (
            "interrupted_sweep_resumes_where_it_ended",
            bed().and_then(|()| fathom_tests::root()),
            interrupted_sweep_resumes_where_it_ended,
        ),
        (
            "link_kernel_iperf3_and_fathom_counts_agree",
            bed().and_then(|()| installed("iperf3")).and_then(|()| installed("python3")),
            iperf3_agrees,
        ),
    ];
    run_suite(cases)
}

/// Whether a link can be created here, or why not.
fn possible() -> Result<(), String> {
    let output = link(&[], "true").map_err(|e| format!("{e:#}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_string()) }
}

/// Runs a shell script on the client's end.
fn link(options: &[&str], script: &str) -> Result<Output> {
    let mut command = Command::new(fathom());
    command.args(["net", "link"]).args(options).args(["--", "sh", "-c", script]).stdin(Stdio::null());
    command.output().context("starting fathom net link")
}

fn figures(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))
}

const SENDER_SCRIPT: &str = "
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(int(sys.argv[1])):
    s.sendto(b'x' * 972, ('198.18.0.2', 9))
time.sleep(float(sys.argv[2]))
";

fn sends(count: u32, then_s: f64) -> String {
    format!("python3 -c \"{SENDER_SCRIPT}\" {count} {then_s}")
}

fn command_and_figures() -> Result<()> {
    let script =
        "echo said; echo $FATHOM_LINK_CLIENT $FATHOM_LINK_SERVER6; $FATHOM_LINK_ENTER_SERVER cat /proc/net/dev";
    let output = link(&["--json", "--delay", "3ms/7ms", "--preset", "satellite"], script)?;
    // The command's output does not mix with the figures.
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(messages.contains("said\n198.18.0.1 2001:2::2\n") && messages.contains("link0"), "{output:?}");
    let json = figures(&output)?;
    ensure!(json["version"] == 1 && json["up"]["delay_ms"] == 3.0 && json["down"]["delay_ms"] == 7.0, "{json}");
    ensure!(json["down"]["rate_bps"] == 20_000_000 && json["status"] == 0 && json["mtu"] == 1500, "{json}");
    for figure in ["p50", "p99", "max", "packets"] {
        ensure!(json["lateness_us"][figure].is_number(), "{json}");
    }
    let text = link(&[], "true")?;
    ensure!(String::from_utf8_lossy(&text.stderr).contains("lateness"), "{text:?}");
    Ok(())
}

fn large_transfer_arrives_whole_with_and_without_gso() -> Result<()> {
    // The server hashes what arrives; the client sends data whose hash it can compute itself.
    let server = "
import socket, hashlib
l = socket.create_server(('198.18.0.2', 9)); print('up', flush=True)
c, _ = l.accept(); h = hashlib.sha256()
while True:
    d = c.recv(1 << 20)
    if not d: break
    h.update(d)
print(h.hexdigest(), flush=True)
";
    let client = "
import socket, hashlib, random, time
d = random.Random(1).randbytes(20 << 20)
for tries in range(600):
    try: c = socket.create_connection(('198.18.0.2', 9)); break
    except ConnectionRefusedError: time.sleep(0.05)
c.sendall(d); c.close(); print(hashlib.sha256(d).hexdigest(), flush=True)
";
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("server.py"), server)?;
    std::fs::write(directory.path().join("client.py"), client)?;
    let at = directory.path().display();
    let script = format!("$FATHOM_LINK_ENTER_SERVER python3 {at}/server.py & python3 {at}/client.py; wait");
    for (gso, large) in [("on", true), ("off", false)] {
        let output = link(&["--json", "--delay", "1ms", "--gso", gso], &script)?;
        let messages = String::from_utf8_lossy(&output.stderr);
        let sums: Vec<&str> = messages.lines().filter(|l| l.len() == 64).collect();
        ensure!(sums.len() == 2 && sums[0] == sums[1], "what was sent is not what arrived: {messages}");
        let json = figures(&output)?;
        ensure!(json["large_packets"] == large, "{json}");
        // As on a wire, whether the packets passed in one piece or not: 20 MiB in packets of at most 1448 bytes.
        let packets = json["up"]["packets"].as_f64().context("packets")?;
        ensure!(packets >= f64::from(20 << 20) / 1448.0, "{json}");
    }
    Ok(())
}

fn rate_and_queue_give_exact_counts() -> Result<()> {
    // 50 packets of 1000 bytes at once, onto a link that sends one in 8 ms: one is being sent, ten are queued. While the sender
    // writes its 50, the link may have sent some.
    let options = ["--json", "--rate", "1mbit", "--queue", "10", "--delay", "1ms"];
    let json = figures(&link(&options, &sends(50, 0.5))?)?;
    let up = |name: &str| json["up"][name].as_u64().with_context(|| format!("{name} in {json}"));
    ensure!(up("packets")? >= 50 && up("lost")? == 0, "{json}");
    ensure!(up("packets")? == up("delivered")? + up("queue_full")? + up("under_way")?, "{json}");
    ensure!(up("queue_full")? > 0 && up("queue_max")? == 10, "{json}");
    // Packets in flight when the link ends are reported, so that the figures add up.
    let json = figures(&link(&["--json", "--delay", "5s"], &sends(20, 0.1))?)?;
    let up = |name: &str| json["up"][name].as_u64().with_context(|| format!("{name} in {json}"));
    ensure!(up("under_way")? >= 20 && up("packets")? == up("delivered")? + up("under_way")?, "{json}");
    // Lost packets were sent, and are counted apart from queue drops.
    let json = figures(&link(&["--json", "--loss", "100%/0"], &sends(20, 0.2))?)?;
    ensure!(json["up"]["delivered"] == 0 && json["up"]["lost"] == json["up"]["packets"], "{json}");
    Ok(())
}

fn failing_command_status_is_returned() -> Result<()> {
    ensure!(link(&[], "exit 7")?.status.code() == Some(7));
    ensure!(link(&[], "kill -TERM $$")?.status.code() == Some(143));
    let json = figures(&link(&["--json"], "exit 3")?)?;
    ensure!(json["status"] == 3, "{json}");
    let missing = Command::new(fathom()).args(["net", "link", "--", "no-such-program"]).output()?;
    let messages = String::from_utf8_lossy(&missing.stderr);
    ensure!(missing.status.code() == Some(1) && messages.contains("no-such-program"), "{missing:?}");
    Ok(())
}

fn killed_link_leaves_no_namespace() -> Result<()> {
    let mut program = Command::new(fathom());
    let script = "readlink /proc/self/ns/net; sleep 1000";
    program.args(["net", "link", "--delay", "1ms", "--", "sh", "-c", script]).stdout(Stdio::piped());
    let mut program = program.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut identity = String::new();
    BufReader::new(program.stdout.take().context("stdout")?).read_line(&mut identity)?;
    let identity = PathBuf::from(identity.trim());
    ensure!(!inside(&identity)?.is_empty());
    program.kill()?;
    program.wait()?;
    wait_until("an end of all processes inside", || Ok(inside(&identity)?.is_empty()))
        .with_context(|| format!("left inside: {:?}", inside(&identity)))
}

/// The processes in a network namespace.
fn inside(identity: &Path) -> Result<Vec<String>> {
    let processes = std::fs::read_dir("/proc")?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let numbers = processes.filter(|p| p.bytes().all(|b| b.is_ascii_digit()));
    Ok(numbers.filter(|p| std::fs::read_link(format!("/proc/{p}/ns/net")).is_ok_and(|l| l == identity)).collect())
}

fn invalid_link_options_are_refused_before_setup() -> Result<()> {
    for (words, part) in [
        (&["--jitter", "5ms"][..], "--delay"),
        (&["--loss", "2"], "percent"),
        (&["--gso", "on", "--loss", "1%"], "--gso"),
        (&["--preset", "avian"], "satellite"),
        (&["--delay", "2h"], "time"),
        (&["--delay", "5"], "5ms, 5us or 5s"),
        (&["--rate", "fast"], "rate"),
    ] {
        for verb in ["link", "trial"] {
            let output = Command::new(fathom()).args(["net", verb]).args(words).stdin(Stdio::null()).output()?;
            let messages = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code() == Some(2) && messages.contains(part), "{verb} {words:?}: {output:?}");
        }
    }
    // A trial validates the options of its ends before it creates a link.
    for (words, part) in [
        (&["--udp", "20x"][..], "20x"),
        (&["--sndbuf", "much"], "much"),
        (&["--streams", "500"], "128"),
        (&["--cc", "no-such-congestion-control"], "15 letters"),
        (&["--udp", "auto", "--direction", "both"], "one direction"),
    ] {
        let output = Command::new(fathom()).args(["net", "trial"]).args(words).stdin(Stdio::null()).output()?;
        let messages = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2) && messages.contains(part), "trial {words:?}: {output:?}");
    }
    Ok(())
}

/// Returns the lines of a trial. On a busy machine the link may be late, and the trial then fails; its lines are
/// printed anyway.
fn lines(options: &[&str]) -> Result<Vec<Value>> {
    let output = Command::new(fathom()).args(["net", "trial", "--duration", "1"]).args(options).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<Value> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let verdict = lines.last().filter(|l| l["verified"].is_boolean()).with_context(|| format!("{output:?}"))?;
    ensure!(verdict["verified"] == output.status.success(), "{output:?}");
    Ok(lines)
}

fn metric(lines: &[Value], name: &str) -> Result<f64> {
    let found = lines.iter().find(|l| l["metric"] == name).with_context(|| format!("no {name} in {lines:?}"))?;
    found["v"].as_f64().context("a metric is a number")
}

fn trial_prints_replicate_lines() -> Result<()> {
    for direction in ["up", "down"] {
        let messages = lines(&["--delay", "2ms", "--rate", "20mbit", "--direction", direction])?;
        let rate = metric(&messages, "throughput")?;
        ensure!(rate > 0.0 && rate < 20e6, "payload over 20 Mb/s came at {rate}");
        metric(&messages, "link.late.p99")?;
        let link = messages.iter().find(|l| l["mark"] == "link").context("the mark of the link")?;
        let link: Value = serde_json::from_str(link["text"].as_str().context("text")?)?;
        let (with, against) = if direction == "up" { ("up", "down") } else { ("down", "up") };
        let bytes = |d: &str| link[d]["delivered_bytes"].as_u64().unwrap_or(0);
        ensure!(bytes(with) > bytes(against), "{link}");
    }
    let messages = lines(&["--udp", "iperf2", "--direction", "up", "--delay", "2ms"])?;
    ensure!(metric(&messages, "throughput")? < 1.1e6, "iperf 2 sends 1 Mb/s: {messages:?}");
    Ok(())
}

fn bundled_congestion_control_runs_over_link() -> Result<()> {
    let messages = lines(&["--cc", "westwood", "--delay", "2ms", "--rate", "20mbit"])?;
    let granted = messages.iter().any(|l| l["text"].as_str().is_some_and(|t| t.contains("westwood")));
    ensure!(granted, "no socket says that it uses westwood: {messages:?}");
    // Nothing of it is left for the next run.
    run(Command::new(fathom()).args(["net", "cc"])).map(drop)
}

/// ICMP echoes, which the kernel at the other end answers by itself. Their times are the kernel's own timestamps: of a packet's entry into
/// the TUN device and of its reply's arrival from it. So the only program whose delays they contain is the emulator.
const ECHO_SCRIPT: &str = r#"
import socket, struct, sys, time, select
TX, RX, SOFT, ID, TSONLY = 1 << 1, 1 << 3, 1 << 4, 1 << 7, 1 << 11
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.setsockopt(socket.SOL_SOCKET, 37, TX | RX | SOFT | ID | TSONLY)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
def checksum(b):
    n = sum(struct.unpack('!%dH' % (len(b) // 2), b))
    n = (n >> 16) + (n & 0xffff)
    return ~(n + (n >> 16)) & 0xffff
def stamp(ancillary):
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == 37:
            sec, nsec = struct.unpack('qq', data[:16])
            return sec * 10**9 + nsec
def key(ancillary):
    for level, kind, data in ancillary:
        if kind == 11 and level == socket.IPPROTO_IP:
            return struct.unpack('IBBBBII', data[:16])[6]
# The kernel begins to stamp what it receives in a work item of its own (net_enable_timestamp; commit 13baa00ad01b): until that has run,
# packets have no stamp.
begun = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
begun.setsockopt(socket.SOL_SOCKET, 37, RX | SOFT)
begun.bind(('127.0.0.1', 0))
while True:
    begun.sendto(b'', begun.getsockname())
    if stamp(begun.recvmsg(1, 512)[1]): break
sent, came, count = {}, {}, int(sys.argv[1])
def take():
    for flags, to in ((socket.MSG_ERRQUEUE, sent), (0, came)):
        while True:
            try: data, ancillary, _, _ = s.recvmsg(2048, 512, flags | socket.MSG_DONTWAIT)
            except BlockingIOError: break
            if flags: to[key(ancillary)] = stamp(ancillary)
            elif data[20] == 0 and struct.unpack('!H', data[24:26])[0] == 77: to[struct.unpack('!H', data[26:28])[0]] = stamp(ancillary)
for i in range(count):
    body = struct.pack('!BBHHH', 8, 0, 0, 77, i)
    body = struct.pack('!BBHHH', 8, 0, checksum(body), 77, i)
    s.sendto(body, (sys.argv[2], 0))
    time.sleep(0.005)
    take()
end = time.monotonic() + 20
while len(came) < count and time.monotonic() < end:
    select.select([s], [], [], 0.1)
    take()
took = [came[i] - sent[i] for i in range(count)]
print('TOOK', len(took), min(took), sum(took))
"#;

/// The emulator undisturbed, and one that is stopped again and again: its reported lateness covers what the kernel
/// measured.
fn lateness_is_stamped() -> Result<()> {
    const PACKET_COUNT: f64 = 400.0;
    const DELAYS_NS: f64 = 16e6;
    let directory = tempfile::tempdir()?;
    std::fs::write(directory.path().join("echoes.py"), ECHO_SCRIPT)?;
    for stops in [0, 12] {
        let script =
            format!("python3 {}/echoes.py {PACKET_COUNT} $FATHOM_LINK_SERVER; exit $?", directory.path().display());
        let mut command = Command::new(fathom());
        command.args(["net", "link", "--json", "--delay", "8ms", "--", "sh", "-c", &script]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        for _ in 0..stops {
            // Fixed waits: how long it is stopped depends on the machine; whatever it is, the link must report it.
            std::thread::sleep(Duration::from_millis(120));
            run(Command::new("kill").args(["-STOP", &child.id().to_string()]))?;
            std::thread::sleep(Duration::from_millis(60));
            run(Command::new("kill").args(["-CONT", &child.id().to_string()]))?;
        }
        let output = child.wait_with_output()?;
        let json = figures(&output)?;
        let messages = String::from_utf8_lossy(&output.stderr);
        let told = messages.lines().find_map(|l| l.strip_prefix("TOOK ")).with_context(|| messages.to_string())?;
        let told: Vec<f64> = told.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [count, least, sum] = told[..] else { anyhow::bail!("{messages}") };
        // The kernel stamps by a clock that is being slewed: an echo over 16 ms was 11 us too short. That is no early packet.
        let shortest = DELAYS_NS * 0.998;
        ensure!(count == PACKET_COUNT && least >= shortest, "an echo took {least} ns, and both delays are {DELAYS_NS}");
        // In the mean it may run by 500 ppm faster or slower; other packets (of IPv6) are few, and late too.
        let clock = 5e-4 * sum;
        let late = |what: &str| -> Result<(f64, f64)> {
            let mut all = (0.0, 0.0);
            for way in ["up", "down"] {
                let of = |name: &str| json[way][what][name].as_f64().with_context(|| format!("{name} in {json}"));
                all.0 += 1e3 * of("mean")? * of("packets")?;
                all.1 += (of("packets")? - PACKET_COUNT) * 1e3 * of("max")?;
            }
            Ok(all)
        };
        let ((known, others), (most, _)) = (late("late_us")?, late("late_at_most_us")?);
        let longer = sum - PACKET_COUNT * DELAYS_NS;
        println!(
            "{stops} stops: echoes took {:.3} ms longer than both delays in the mean; the link says {:.3} to {:.3}",
            longer / PACKET_COUNT / 1e6,
            (known - others) / PACKET_COUNT / 1e6,
            most / PACKET_COUNT / 1e6
        );
        ensure!(
            longer + clock >= known - others,
            "less than the link knows of: {longer} of {known} - {others}: {json}"
        );
        ensure!(longer - clock <= most, "more than the link holds possible: {longer} of {most}: {json}");
        // Which runs count follows from the reported lateness, not from a timeout.
        let low = json["effect"]["rate"][0].as_f64().context("an effect")?;
        let latest = json["effect"]["latest_ms"].as_f64().context("the latest")?;
        let counts = low >= -0.05 && latest < 200.0 && json["overrun"] == 0;
        ensure!(json["valid"] == counts, "{json}");
        ensure!(stops == 0 || !counts, "it stood for a third of the time: {json}");
    }
    Ok(())
}

/// Returns a block of commands that docs/guide/net-link.md has the user type in another shell, verbatim.
fn commands(block: usize) -> Result<String> {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/net-link.md");
    let text = std::fs::read_to_string(&manual)?;
    let (_, after) = text.split_once("## Between real devices").context("the manual's section is gone")?;
    let block = after.split("```text\n").nth(1 + block).and_then(|rest| rest.split("```").next());
    block.map(str::to_string).context("the section has no commands")
}

fn documented_commands_set_up_router() -> Result<()> {
    let (one, two, router) = cabled("192.168.60.2/24")?;
    two.ip(&["route", "add", "default", "via", "192.168.60.1"])?;
    measured_through(&router, &one, &two, 0, "192.168.60.2:7100")
}

/// The outside has a route to the router's address but none to the network behind it: without NAT no reply arrives.
fn documented_internet_access() -> Result<()> {
    let (one, world, router) = cabled("192.0.2.1/24")?;
    measured_through(&router, &one, &world, 1, "192.0.2.1:7100")
}

/// A device, another one with this address, and the router, cabled to both.
fn cabled(address: &str) -> Result<(Namespace, Namespace, Namespace)> {
    let router = Namespace::create()?;
    let (one, two) = (Namespace::beside(&router)?, Namespace::beside(&router)?);
    for (device, interface, address) in [(&one, "eth1", "192.168.50.2/24"), (&two, "eth2", address)] {
        device.veth("eth0", &router, interface)?;
        device.address("eth0", address)?;
    }
    one.ip(&["route", "add", "default", "via", "192.168.50.1"])?;
    Ok((one, two, router))
}

/// With the manual's commands, one device measures the path to the other, which is at `at`.
fn measured_through(router: &Namespace, one: &Namespace, two: &Namespace, block: usize, at: &str) -> Result<()> {
    let mut link = router.command(fathom());
    link.args(["net", "link", "--delay", "16ms", "--rate", "20mbit"]).stdin(Stdio::null());
    let mut link = link.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut messages = BufReader::new(link.stderr.take().context("stderr")?).lines();
    let mut process = || -> Result<String> {
        let line = messages.by_ref().find(|l| l.as_ref().map_or(true, |l| l.contains("--target")));
        let line = line.context("it says no process number")??;
        let number = line.split_whitespace().skip_while(|word| *word != "--target").nth(1);
        number.map(str::to_string).context("it says no process number")
    };
    let (c, s) = (process()?, process()?);
    let script = format!("set -e\nC={c}; S={s}\n{}", commands(block)?);
    run(router.command("sh").args(["-c", &script]))?;
    // One device measures the path to the other.
    let directory = tempfile::tempdir()?;
    let key = directory.path().join("key");
    run(Command::new(fathom()).args(["pool", "keygen"]).arg(&key))?;
    let mut serve = two.command(fathom());
    serve.args(["net", "serve", "--once", "--listen", at, "--key"]).arg(&key);
    let mut serve = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    BufReader::new(serve.stdout.take().context("stdout")?).read_line(&mut String::new())?;
    let mut ask = one.command(fathom());
    ask.args(["net", "run", at, "--transactions", "--duration", "1", "--json", "--key"]).arg(&key);
    let asked = run(&mut ask);
    let _ = serve.kill();
    serve.wait()?;
    // As Ctrl-C does.
    run(Command::new("kill").args(["-INT", &link.id().to_string()]))?;
    link.wait()?;
    let value: Value = serde_json::from_slice(&asked?.stdout)?;
    let p50 = value["latency_us"]["p50"].as_f64().context("latency")?;
    ensure!(p50 >= 32_000.0, "nothing goes there and back in less than both delays: {p50} us");
    Ok(())
}

/// Interrupted, then killed, then run to its end: nothing is lost, nothing is run twice, and the order is that of the seed.
fn interrupted_sweep_resumes_where_it_ended() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let sweep = |words: &[&str]| {
        let mut command = Command::new(fathom());
        command.args(["net", "sweep", "--no-wait"]).args(words).current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    // Short runs, which a busy machine may spoil: only which runs were made is checked.
    let made = |archive: &str| -> Result<Vec<(u64, u64)>> {
        let text = std::fs::read_to_string(directory.path().join(archive).join("runs.jsonl")).unwrap_or_default();
        let rows = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
        let number = |row: &Value, name: &str| row["replicate"]["replicate"][name].as_u64();
        Ok(rows.filter_map(|row| Some((number(&row, "block")?, number(&row, "cell")?))).collect())
    };
    let design = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/net/net-delay.toml");
    let text = std::fs::read_to_string(design)?.replace("--duration={seconds}", "--duration=0.3");
    std::fs::write(directory.path().join("short.toml"), text)?;
    let what = ["short.toml", "-p", "delay_ms=1,2", "-p", "cc=reno,cubic", "--blocks=2", "--seed=5"];
    let whole = sweep(&[&what[..], &["-o", "whole.fathom"]].concat()).output()?;
    ensure!(made("whole.fathom")?.len() == 8, "{}", String::from_utf8_lossy(&whole.stderr));
    for (signal, least) in [("-INT", 2), ("-KILL", 4)] {
        let words = if least == 2 { [&what[..], &["-o", "s.fathom"]].concat() } else { vec!["--resume", "s.fathom"] };
        let child = sweep(&words).spawn()?;
        wait_until("a few runs", || Ok(made("s.fathom")?.len() >= least))?;
        run(Command::new("kill").args([signal, &child.id().to_string()]))?;
        let output = child.wait_with_output()?;
        let messages = String::from_utf8_lossy(&output.stderr);
        let advised = output.status.code() == Some(130) && messages.contains("fathom net sweep --resume s.fathom");
        ensure!(signal == "-KILL" || advised, "{:?}: {messages}", output.status);
    }
    ensure!(made("s.fathom")?.len() < 8, "it was over before it was killed");
    sweep(&["--resume", "s.fathom"]).output()?;
    ensure!(made("s.fathom")? == made("whole.fathom")?, "{:?} is not {:?}", made("s.fathom")?, made("whole.fathom")?);
    Ok(())
}

/// A link of 20 Mb/s and 10 ms each way with a queue of 100 packets, which a TCP sender keeps busy once it is up to speed.
mod fixed {
    pub const LINK_OPTIONS: [&str; 7] = ["--json", "--rate", "20mbit", "--delay", "10ms", "--queue", "100"];
    pub const RATE_BITS_PER_S: f64 = 20e6;
    pub const ROUND_TRIP_S: f64 = 0.02;
    /// A full packet, and its TCP payload: without 20 bytes of IP, 20 of TCP, 12 of timestamps.
    pub const PACKET_BYTES: f64 = 1500.0;
    pub const PAYLOAD_BYTES: f64 = PACKET_BYTES - 52.0;
    /// Bytes that may be in flight at the end of a run: the queue, the packet being sent, the line (10 ms at the rate), and what is sent
    /// until the reset arrives (as much again).
    pub const IN_FLIGHT_BYTES_MAX: f64 = (100.0 + 1.0) * PACKET_BYTES + 2.0 * RATE_BITS_PER_S * 0.01 / 8.0;
    /// Upper bound of what both ends exchange in addition to the flow, in its direction, bytes: settings, clocks, results.
    pub const CONTROL_BYTES_MAX: f64 = 64.0 * 1024.0;
    pub const RUN_SECONDS: f64 = 2.0;
}

/// A tool's counts at the receiver, and the link's counts for the same run.
struct FlowCounts {
    bytes: f64,
    bps: f64,
    again: f64,
    link: Value,
    /// Packets that the kernel handed to the link, at the client's end and at the server's.
    handed: [f64; 2],
}

/// Runs `tool` over a link of its own; it writes its JSON to `result`.
fn over_fixed(result: &Path, tool: &str, read: fn(&Value) -> Option<[f64; 3]>) -> Result<FlowCounts> {
    let dev = result.with_extension("dev");
    // The number of sent packets is the tenth of the line.
    let handed = format!("awk '/link0:/ {{ print $11 }}' /proc/net/dev >>{}", dev.display());
    // A fixed wait: the last packets of the tool that has exited are still forwarded, and there is no notice of the last
    // one.
    let script = format!("{tool} && sleep 0.2 && {handed} && $FATHOM_LINK_ENTER_SERVER {handed}");
    let output = link(&fixed::LINK_OPTIONS, &script)?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{messages}");
    let text = std::fs::read_to_string(result)?;
    let [bytes, bps, again] =
        serde_json::from_str(&text).ok().as_ref().and_then(read).with_context(|| format!("{messages}{text}"))?;
    let handed: Vec<f64> = std::fs::read_to_string(&dev)?.lines().filter_map(|l| l.parse().ok()).collect();
    std::fs::remove_file(&dev)?;
    let handed = handed.try_into().map_err(|all| anyhow::anyhow!("no two counters of the kernel: {all:?}"))?;
    Ok(FlowCounts { bytes, bps, again, link: figures(&output)?, handed })
}

fn ours(value: &Value) -> Option<[f64; 3]> {
    let way = &value["directions"][0];
    let bytes = way["streams_bytes"].as_array()?.iter().map(|b| b.as_f64()).sum::<Option<f64>>()?;
    Some([bytes, value["throughput_bps"]["whole_run"].as_f64()?, way["retransmits"].as_f64()?])
}

fn iperf_result(value: &Value) -> Option<[f64; 3]> {
    let sum = |which: &str, what: &str| value["end"][which][what].as_f64();
    Some([sum("sum_received", "bytes")?, sum("sum_received", "bits_per_second")?, sum("sum_sent", "retransmits")?])
}

/// The factor by which the link's lateness may have lowered a rate.
fn lowered(link: &Value) -> Result<f64> {
    Ok(1.0 + link["effect"]["rate"][0].as_f64().with_context(|| format!("no effect in {link}"))?)
}

/// Compares the receiver's bytes with the link's, the link's packets with the kernel's, and both tools' rates with the rate of the
/// link and each other. The tolerances follow from the link.
fn iperf3_agrees() -> Result<()> {
    use fixed::*;
    let directory = tempfile::tempdir()?;
    let at = directory.path().display();
    run(Command::new(fathom()).args(["pool", "keygen"]).arg(directory.path().join("key")))?;
    let (program, key) = (fathom(), format!("--key {at}/key"));
    let program = program.display();
    for way in ["up", "down"] {
        let fathom = format!(
            "$FATHOM_LINK_ENTER_SERVER {program} net serve --once --listen $FATHOM_LINK_SERVER:7100 {key} >{at}/up &
             until [ -s {at}/up ]; do sleep 0.05; done
             {program} net run $FATHOM_LINK_SERVER:7100 {key} --direction {way} --duration {RUN_SECONDS} --json >{at}/fathom.json; s=$?
             rm {at}/up; wait; [ $s = 0 ]"
        );
        let reverse = if way == "up" { "" } else { "-R" };
        let iperf3 = format!(
            "$FATHOM_LINK_ENTER_SERVER iperf3 -s -1 -p 5201 >/dev/null &
             until $FATHOM_LINK_ENTER_SERVER grep -q ':1451 0*:0000 0A' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done
             iperf3 -c $FATHOM_LINK_SERVER -p 5201 -t {RUN_SECONDS} {reverse} -J >{at}/iperf3.json; s=$?; wait; [ $s = 0 ]"
        );
        let ours = over_fixed(&directory.path().join("fathom.json"), &fathom, ours)?;
        let iperf_result = over_fixed(&directory.path().join("iperf3.json"), &iperf3, iperf_result)?;
        // No faster than the link, and slower by the cost of the beginning: half a round trip until the first packet arrives, and
        // then 10 and 20 segments where 33 would have fit, which is another; as much again for handshakes and the end.
        let (most, least) = (
            RATE_BITS_PER_S * PAYLOAD_BYTES / PACKET_BYTES,
            RATE_BITS_PER_S * PAYLOAD_BYTES / PACKET_BYTES * (1.0 - 4.0 * ROUND_TRIP_S / RUN_SECONDS),
        );
        for (tool, c) in [("fathom", &ours), ("iperf3", &iperf_result)] {
            let number =
                |direction: &str, name: &str| c.link[direction][name].as_f64().context("a count of the link's");
            for (direction, handed) in ["up", "down"].into_iter().zip(c.handed) {
                let packets = number(direction, "packets")?;
                ensure!(
                    packets == handed,
                    "{tool} {way}: the link took {packets} packets {direction}, the kernel sent {handed}"
                );
            }
            // Every byte that arrived was in a packet of at most this size; the link also carried what was in flight at the end,
            // spurious retransmissions, and the control messages of both ends. iperf3 keeps sending until both ends have agreed
            // to stop, which takes longer on a busy machine: no counter shows this.
            let carried = number(way, "delivered_bytes")?;
            let needed = c.bytes + (c.bytes / PAYLOAD_BYTES).ceil() * (PACKET_BYTES - PAYLOAD_BYTES);
            let twice = (c.again - number(way, "queue_full")?).max(0.0) * PACKET_BYTES;
            let rest = carried - needed;
            println!(
                "{tool} {way}: {:.3} Mb/s of {:.3}; {} bytes in {carried} on the link, {rest:.0} besides, {twice:.0} of them twice",
                c.bps / 1e6,
                most / 1e6,
                c.bytes
            );
            ensure!(
                rest >= 0.0 && (rest <= IN_FLIGHT_BYTES_MAX + twice + CONTROL_BYTES_MAX || tool == "iperf3"),
                "{tool} {way}: {rest} bytes more on the link: {}",
                c.link
            );
            ensure!(c.bps <= most, "{tool} {way}: {} bit/s over a link that carries {most}", c.bps);
            if c.link["valid"] == true {
                // Computed from its bytes: iperf3 divides by a time that continues while its ends agree to stop.
                let bps = c.bytes * 8.0 / RUN_SECONDS;
                ensure!(bps >= least * lowered(&c.link)?, "{tool} {way}: {bps} bit/s, and {least} are possible");
            }
        }
        // A link that was late carried less than it could, by a varying amount.
        match [&ours, &iperf_result].into_iter().find(|c| c.link["valid"] != true) {
            Some(late) => println!(
                "SKIP link_kernel_iperf3_and_fathom_counts_agree: rates {way} are not compared: {}",
                late.link["invalid_because"]
            ),
            None => {
                let apart = (ours.bps - iperf_result.bps).abs();
                let least = least * lowered(&ours.link)?.min(lowered(&iperf_result.link)?);
                ensure!(apart <= most - least, "{way}: fathom {} bit/s, iperf3 {}", ours.bps, iperf_result.bps);
            }
        }
    }
    Ok(())
}
