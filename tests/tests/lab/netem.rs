//! The emulated link compared with the kernel's netem, in one guest: the same delays, rate and loss, measured over both by
//! the same program. The guest is emulated in software, so that its times show behavior and not speed.

use super::boot_guest;
use anyhow::{Context, Result, bail, ensure};
use lab::guest::Guest;
use serde_json::Value;

const DELAYS_MS: [u32; 6] = [0, 2, 4, 8, 16, 32];
/// A run to the other end over netem, on the loopback device.
const NETEM_RUN_COMMAND: &str = "/fathom net run 127.0.0.1:7100 --lines";

/// Runs a command in the guest. Its shell prefers busybox's own `tc`, whatever the path; programs that it starts use the
/// path.
fn run_shell(guest: &mut Guest, command: &str) -> Result<String> {
    let tc = super::find_program("tc")?;
    let command = match command.strip_prefix("tc ") {
        Some(rest) => format!("{} {rest}", tc.display()),
        None => command.to_owned(),
    };
    super::run_shell(guest, &format!("export PATH=/usr/sbin:/sbin:$PATH; {command}"))
}

/// Returns one metric from the lines of a run.
fn metric_of(lines: &str, name: &str) -> Result<f64> {
    let mut values = lines.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let found = values.find(|v| v["metric"] == name).with_context(|| format!("no {name} in {lines}"))?;
    found["v"].as_f64().with_context(|| format!("{name} is no number"))
}

/// Runs over netem with these options; every packet on the loopback device passes it once, so a round trip passes it
/// twice.
fn over_netem(guest: &mut Guest, netem: &str, words: &str) -> Result<String> {
    Ok(over_netem_counted(guest, netem, words)?.0)
}

/// Returns the lines, and netem's counters: bytes and packets of both directions.
fn over_netem_counted(guest: &mut Guest, netem: &str, words: &str) -> Result<(String, f64, f64)> {
    run_shell(guest, &format!("tc qdisc replace dev lo root netem limit 100000 {netem}"))?;
    let lines = run_shell(guest, &format!("{NETEM_RUN_COMMAND} {words}"));
    let counted = run_shell(guest, "tc -s qdisc show dev lo")?;
    run_shell(guest, "tc qdisc del dev lo root")?;
    let mut numbers =
        counted.split_whitespace().skip_while(|word| *word != "Sent").filter_map(|word| word.parse().ok());
    let (Some(bytes), Some(packets)) = (numbers.next(), numbers.next()) else { bail!("tc says no numbers: {counted}") };
    Ok((lines?, bytes, packets))
}

/// Returns the lines of a trial over our link. In a guest the link may be late: the trial then fails, but its lines still
/// contain the measurement.
fn over_ours(guest: &mut Guest, words: &str) -> Result<String> {
    run_shell(guest, &format!("/fathom net trial {words} || true"))
}

/// Mb/s of payload over 10 Mb/s, netem's and ours, compared with arithmetic. A packet of 1,500 bytes carries 1,448 of payload (IPv4 20,
/// TCP 20, timestamps 12). Our link counts its 1,500 bytes, separately for each direction; netem counts 1,514, with the Ethernet header,
/// and on the loopback device both directions share its rate: for every other packet an acknowledgement of 66 bytes. netem's own counters
/// confirm this.
///
/// Both have a round trip of 16 ms, in which 10 Mb/s are 14 packets: slow start, from 10 on, takes fewer than ten, 2 % of 8 s. Nothing may
/// be faster than arithmetic except for what was in flight when the clock started, at most two tenths of a second's worth. A busy host and
/// an emulated clock only lower the result: the best of three trials counts.
fn at_10_mbit(guest: &mut Guest) -> Result<(f64, f64)> {
    const PAYLOAD_BYTES: f64 = 1448.0;
    const DATA_FRAME_BYTES: f64 = 1514.0;
    const ACK_FRAME_BYTES: f64 = 66.0;
    let words = "--direction up --duration 8";
    let mut best = [0.0_f64; 2];
    let share = [PAYLOAD_BYTES / (DATA_FRAME_BYTES + ACK_FRAME_BYTES / 2.0), PAYLOAD_BYTES / 1500.0];
    for _ in 0..3 {
        let (lines, bytes, packets) = over_netem_counted(guest, "delay 8ms rate 10mbit", words)?;
        let acks = (DATA_FRAME_BYTES * packets - bytes) / (DATA_FRAME_BYTES - ACK_FRAME_BYTES);
        println!("netem passed {bytes} bytes in {packets} packets, of which {acks:.0} of {ACK_FRAME_BYTES} bytes");
        ensure!((0.4..0.6).contains(&(acks / (packets - acks))), "{acks} of {packets} packets are acknowledgements");
        let netem = metric_of(&lines, "throughput.whole")?;
        let ours = metric_of(&over_ours(guest, &format!("--delay 8ms --rate 10mbit {words}"))?, "throughput.whole")?;
        for (best, rate) in best.iter_mut().zip([netem, ours]) {
            *best = best.max(rate);
        }
        if best.iter().zip(share).all(|(best, share)| *best >= 0.97 * share * 10e6) {
            break;
        }
    }
    for ((name, best), share) in ["netem", "ours"].into_iter().zip(best).zip(share) {
        let most = share * 10e6;
        ensure!((0.95 * most..1.025 * most).contains(&best), "{name} of 10 Mb/s gave {best} b/s, arithmetic {most}");
    }
    Ok((best[0], best[1]))
}

pub fn emulated_link_agrees_with_netem() -> Result<()> {
    let mut guest = boot_guest(&[], &["tun", "sch_netem", "veth"], &["ip", "tc", "nohup"])?;
    run_shell(
        &mut guest,
        "ip link set lo up mtu 1500; [ -e /dev/net/tun ] || { mkdir -p /dev/net && mknod /dev/net/tun c 10 200; }",
    )?;
    run_shell(
        &mut guest,
        "nohup /fathom net serve --listen 127.0.0.1:7100 >/run/serve 2>&1 & until [ -s /run/serve ]; do sleep 0.1; done; cat /run/serve",
    )?;

    println!("| one-way delay | netem: round trip, median | ours | ours late, p50 | p99 |\n|---:|---:|---:|---:|---:|");
    for ms in DELAYS_MS {
        let words = "--transactions --duration 2";
        let netem = metric_of(&over_netem(&mut guest, &format!("delay {ms}ms"), words)?, "latency.p50")?;
        let lines = over_ours(&mut guest, &format!("--delay {ms}ms {words}"))?;
        let ours = metric_of(&lines, "latency.p50")?;
        let (late, worst) = (metric_of(&lines, "link.late.p50")?, metric_of(&lines, "link.late.p99")?);
        println!("| {ms} ms | {:.2} ms | {:.2} ms | {late:.0} us | {worst:.0} us |", netem / 1e3, ours / 1e3);
        let both = 2000.0 * f64::from(ms);
        ensure!(
            netem >= both && ours >= both,
            "a round trip of {netem} and {ours} us is shorter than two delays of {ms} ms"
        );
    }

    let (netem, ours) = at_10_mbit(&mut guest)?;
    println!("\n10 Mb/s, 8 ms: {:.2} Mb/s of payload over netem, {:.2} over ours", netem / 1e6, ours / 1e6);

    // 5 % of 2,000 packets is 100, and five standard deviations are 49.
    let words = "--udp --rate 2M --packet 1000 --duration 8";
    let netem = metric_of(&over_netem(&mut guest, "loss 5%", words)?, "loss.up")?;
    let lines = over_ours(&mut guest, "--loss 5%/0 --direction up --udp 2M --duration 8")?;
    let ours = metric_of(&lines, "loss.up")?;
    println!("5 % of loss, UDP: {:.2} % over netem, {:.2} % over ours", netem * 100.0, ours * 100.0);
    for (name, loss) in [("netem", netem), ("ours", ours)] {
        ensure!((loss - 0.05).abs() < 0.025, "{name} of 5 % lost {loss}");
    }
    Ok(())
}
