//! `fathom net run --udp --rate auto` over links of known rate, made by the kernel and not by us: a token bucket (`tc tbf`) with a deep
//! queue and with a shallow one, a policer (nftables), a varying rate; and over our own link with losses in bursts. The kernel's drop
//! counters are the oracle.

use anyhow::{Context, Result, bail, ensure};
use fathom_tests::{Case, fathom, installed, number, run, run_suite_in_parallel, wait_until};
use lab::netns::Namespace;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn main() -> ExitCode {
    let needs = || fathom_tests::root().and_then(|()| installed("ip")).and_then(|()| installed("tc"));
    let cases: Vec<Case> = vec![
        ("found_rate_holds_through_deep_queue", needs(), found_rate_holds_through_deep_queue),
        ("found_rate_holds_through_shallow_queue", needs(), found_rate_holds_through_shallow_queue),
        ("found_rate_holds_through_policer", needs().and_then(|()| installed("nft")), found_rate_holds_through_policer),
        ("found_rate_holds_on_varying_link", needs(), found_rate_holds_on_varying_link),
        ("bursty_loss_gives_no_valid_rate", needs(), || rate_under_loss("burst:1.5%,60%")),
        ("long::random_loss_gives_no_valid_rate", needs(), || rate_under_loss("3%")),
        ("slight_loss_still_gives_rate", needs(), loses_little),
        ("interrupted_search_gives_no_valid_rate", needs(), interrupted_search_gives_no_valid_rate),
    ];
    // A search consists of trials of 2 s at 20 Mb/s. On an overloaded host a test reports this and asserts nothing.
    run_suite_in_parallel(cases, 2)
}

/// Bytes of a packet's payload, of its IP packet, and of the Ethernet frame that a bucket counts.
const PAYLOAD_BYTES: f64 = 1200.0;
const IP_BYTES: f64 = PAYLOAD_BYTES + 28.0;
const FRAME_BYTES: f64 = IP_BYTES + 14.0;

/// Packets per second that the policer admits: 20 Mb/s of payload.
const POLICED_PACKETS_PER_S: f64 = 2083.0;

/// Two ends with a cable, and a server.
struct Bench {
    client: Namespace,
    server: Namespace,
    serves: Child,
    directory: tempfile::TempDir,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.serves.kill();
        let _ = self.serves.wait();
    }
}

impl Bench {
    fn make() -> Result<Self> {
        let client = Namespace::create()?;
        let server = Namespace::beside(&client)?;
        client.veth("eth0", &server, "eth0")?;
        client.address("eth0", "198.18.5.1/24")?;
        server.address("eth0", "198.18.5.2/24")?;
        let directory = tempfile::tempdir()?;
        run(Command::new(fathom()).args(["pool", "keygen"]).arg(directory.path().join("key")))?;
        let mut serves = server.command(fathom());
        serves.args(["net", "serve", "--listen", "198.18.5.2:7100", "--key"]).arg(directory.path().join("key"));
        let mut serves = serves.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        BufReader::new(serves.stdout.take().context("stdout")?).read_line(&mut String::new())?;
        Ok(Self { client, server, serves, directory })
    }

    fn tc(&self, words: &str) -> Result<Output> {
        run(self.client.command("tc").args(words.split(' ')))
    }

    fn udp(&self, rate: &str) -> Result<Value> {
        let mut command = self.client.command(fathom());
        command.args(["net", "run", "198.18.5.2:7100", "--udp", "--rate", rate, "--duration", "2", "--json", "--key"]);
        json_of(command.args([&self.directory.path().join("key")]).args(["--packet", &PAYLOAD_BYTES.to_string()]))
    }

    /// Packets that the bucket dropped and accepted so far.
    fn dropped(&self) -> Result<[f64; 2]> {
        let text = String::from_utf8(self.tc("-s -j qdisc show dev eth0")?.stdout)?;
        let all: Value = serde_json::from_str(&text)?;
        let ours = all.as_array().and_then(|a| a.iter().find(|q| q["kind"] == "tbf")).context("no bucket")?;
        Ok([number(ours, "/drops")?, number(ours, "/packets")?])
    }
}

fn json_of(command: &mut Command) -> Result<Value> {
    let output = command.stdin(Stdio::null()).output()?;
    let value: Value = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    ensure!(value["valid"] == output.status.success(), "{output:?}");
    Ok(value)
}

/// A valid answer was sustained in its own run: at most 1 % of the packets were lost, with an upper bound above the actual loss; and it
/// names the rate that was not sustained. On a machine that has no time for the sender no rate may be sustained: then the result is
/// invalid, and says so.
fn highest_rate(value: &Value) -> Result<Option<f64>> {
    let (search, packets) = (&value["search"], &value["directions"][0]["packets"]);
    if value["valid"] != true {
        ensure!(search["rate_bps"].is_null() && value["invalid"].is_string(), "{value}");
        println!("no rate was sustained: {}", value["invalid"]);
        return Ok(None);
    }
    let (rate, loss) = (number(search, "/rate_bps")?, number(packets, "/loss")?);
    let upper = number(search, "/lost_or_queued_upper")?;
    println!("{rate} bit/s held: loss {loss}, at most {upper}; not held: {}", search["lowest_failed_bps"]);
    ensure!(loss <= upper && upper <= 0.01, "its own run does not hold it: {value}");
    ensure!(value["spec"]["traffic"]["udp"]["rate_bps"] == search["rate_bps"], "told is another run's: {value}");
    ensure!(search["lowest_failed_bps"].is_null() || number(search, "/lowest_failed_bps")? > rate, "{search}");
    Ok(Some(rate))
}

/// Through a bucket with such a queue: returns the answer, and a run at 10 % above the bucket's rate. `None` if no rate was
/// sustained.
fn through_bucket(queue: &str) -> Result<Option<(f64, Value)>> {
    const RATE_BITS_PER_S: f64 = 20e6;
    let bench = Bench::make()?;
    bench.tc(&format!("qdisc add dev eth0 root tbf rate 20mbit {queue}"))?;
    let Some(rate) = highest_rate(&bench.udp("auto")?)? else { return Ok(None) };
    // In 2 s a bucket passes its burst in addition; a sustained rate loses at most 1 %.
    ensure!(
        rate * 0.99 * FRAME_BYTES / PAYLOAD_BYTES <= RATE_BITS_PER_S * 1.005,
        "{rate} bit/s is more than the bucket gives"
    );
    // The same rate once more, by itself: the kernel's drops equal the loss that our ends report.
    let before = bench.dropped()?;
    let again = bench.udp(&format!("{rate}"))?;
    let after = bench.dropped()?;
    let lost = number(&again, "/directions/0/packets/lost")?;
    println!("again: the kernel dropped {} of {}, {lost} were lost", after[0] - before[0], after[1] - before[1]);
    ensure!(after[0] - before[0] == lost, "the kernel dropped {before:?} to {after:?}, the ends say {lost}");
    // And 10 % above the bucket's rate: the search cannot have found that.
    let over = bench.udp(&format!("{}", (RATE_BITS_PER_S * 1.1 * PAYLOAD_BYTES / FRAME_BYTES).round()))?;
    Ok(Some((rate, over)))
}

/// Bursts are queued in the bucket, so that the answer is near the bucket's rate, on a busy machine too.
fn found_rate_holds_through_deep_queue() -> Result<()> {
    let mut seen = Vec::new();
    // On a busy machine a search may end lower: the machine, not the link, limited the rate then.
    for _ in 0..3 {
        let Some((rate, over)) = through_bucket("burst 5kb limit 2mb")? else { return Ok(()) };
        let arrived = number(&over, "/directions/0/throughput_bps/whole_run")?;
        if arrived < rate * 1.05 {
            return Ok(());
        }
        seen.push(format!("{arrived} arrived, and the answer was {rate}"));
    }
    bail!("{seen:?}")
}

fn found_rate_holds_through_shallow_queue() -> Result<()> {
    let Some((_, over)) = through_bucket("burst 5kb limit 9kb")? else { return Ok(()) };
    let loss = number(&over, "/directions/0/packets/loss")?;
    ensure!(loss > 0.01, "{loss} were lost of a tenth more than the bucket gives");
    Ok(())
}

fn found_rate_holds_through_policer() -> Result<()> {
    let bench = Bench::make()?;
    let nft = |words: &str| run(bench.server.command("nft").args([words])).map(drop);
    nft("add table ip police")?;
    nft("add chain ip police in { type filter hook input priority 0; }")?;
    // The excess is dropped. By packets, not bytes: a limit in bytes has a bucket of one second's bytes and the burst (nft_limit_init).
    nft(&format!(
        "add rule ip police in udp dport 7100 limit rate over {POLICED_PACKETS_PER_S}/second burst 20 packets counter drop"
    ))?;
    let Some(rate) = highest_rate(&bench.udp("auto")?)? else { return Ok(()) };
    ensure!(
        rate * 0.99 <= POLICED_PACKETS_PER_S * PAYLOAD_BYTES * 8.0 * 1.01,
        "{rate} bit/s is more than the policer lets through"
    );
    Ok(())
}

/// Between 8 and 24 Mb/s, four times a second.
fn found_rate_holds_on_varying_link() -> Result<()> {
    let bench = Bench::make()?;
    bench.tc("qdisc add dev eth0 root tbf rate 8mbit burst 5kb limit 20kb")?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for rate in [24, 8].into_iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                let _ = bench.tc(&format!("qdisc change dev eth0 root tbf rate {rate}mbit burst 5kb limit 20kb"));
                // A fixed wait: the rate changes four times a second.
                std::thread::sleep(Duration::from_millis(250));
            }
        });
        let told = bench.udp("auto");
        over.store(true, Ordering::Relaxed);
        let Some(rate) = highest_rate(&told?)? else { return Ok(()) };
        // Any sustained rate is within what the slow half carries plus a queue of a few ms: in each half second a quarter of it is at 8
        // Mb/s.
        ensure!(rate < 10e6, "{rate} bit/s while half of the time 8 Mb/s were to be had");
        Ok(())
    })
}

/// Ctrl-C during a trial.
fn interrupted_search_gives_no_valid_rate() -> Result<()> {
    let bench = Bench::make()?;
    bench.tc("qdisc add dev eth0 root tbf rate 20mbit burst 5kb limit 60kb")?;
    let mut command = bench.client.command(fathom());
    command.args(["net", "run", "198.18.5.2:7100", "--udp", "--rate", "auto", "--json", "--key"]);
    let child = command.arg(bench.directory.path().join("key")).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    wait_until("the first trial", || Ok(bench.dropped()?[1] > 500.0))?;
    run(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(130), "{output:?}");
    let value: Value = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    ensure!(value["search"]["rate_bps"].is_null() && value["valid"] == false, "{value}");
    ensure!(value["invalid"].as_str().is_some_and(|why| why.contains("interrupted")), "{value}");
    Ok(())
}

/// Searches over our own link, in trials of this many seconds.
fn over_link(seconds: &str, options: &[&str]) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    run(Command::new(fathom()).args(["pool", "keygen"]).arg(directory.path().join("key")))?;
    let (program, at) = (fathom(), directory.path().display());
    let program = program.display();
    let script = format!(
        "$FATHOM_LINK_ENTER_SERVER {program} net serve --once --listen $FATHOM_LINK_SERVER:7100 --key {at}/key >{at}/up &
         until [ -s {at}/up ]; do sleep 0.05; done
         {program} net run $FATHOM_LINK_SERVER:7100 --key {at}/key --udp --rate auto --packet 1200 --duration {seconds} --json >{at}/told; wait"
    );
    let mut command = Command::new(fathom());
    command.args(["net", "link"]).args(options).args(["--", "sh", "-c", &script]).stdin(Stdio::null());
    run(&mut command)?;
    Ok(serde_json::from_slice(&std::fs::read(directory.path().join("told"))?)?)
}

/// Bursts of two packets, 2.4 % of all (longer ones also interrupt the ends' control messages), or 3 % independently: sending faster or
/// slower does not change that. The search goes down to the slowest rate, so each of its many trials is short.
fn rate_under_loss(loss: &str) -> Result<()> {
    let value = over_link("1", &["--delay", "1ms", "--rate", "20mbit", "--loss", loss, "--seed", "3"])?;
    ensure!(value["valid"] == false && value["search"]["rate_bps"].is_null(), "{loss}: {value}");
    let why = value["invalid"].as_str().context("no reason")?;
    ensure!(why.contains("no rate was sustained"), "{why}");
    Ok(())
}

/// A loss of 0.1 % is tolerated.
fn loses_little() -> Result<()> {
    let value = over_link("2", &["--delay", "1ms", "--rate", "20mbit", "--loss", "0.1%", "--seed", "3"])?;
    if let Some(rate) = highest_rate(&value)? {
        ensure!(rate * 0.99 * IP_BYTES / PAYLOAD_BYTES <= 20e6, "{rate} bit/s over 20 Mb/s");
    }
    Ok(())
}
